/* SPDX-License-Identifier: Apache-2.0 */
/* app/models/language.h: flags of the transformers, and networks of the language models. */
#ifndef TRIREME_APP_LANGUAGE_H
#define TRIREME_APP_LANGUAGE_H

#include "trireme/nn.h"

/* Values of the flags of language models and of vit, each named like its flag. Zero means that the
 * flag is not given. */
typedef struct app_transformer_flags {
    /* the network */
    const char *size; /* name of a size: small, medium, ... */
    int64_t layers, width, heads, kv_heads;
    int64_t hidden, vocabulary;
    int64_t experts, top_experts; /* of a layer; those that a token uses */
    int64_t patch;                /* vit: pixels of a side */
    double dropout, epsilon, rotary_theta;
    double balance; /* factor of the loss that balances experts */
    bool untied;    /* the output layer has weights of its own, not those of the embedding */
    /* training */
    const char *lora;
    bool lazy_embedding; /* rows that a batch does not use are not updated */
    /* samples */
    bool documents;              /* each line or document is a sample of its own */
    const char *boundary_tokens; /* on, off; NULL: not given */
    double masking;              /* share of the tokens that are masked ... */
    int64_t mask_token;          /* ... and the id in their place */
    /* no flags, but of a checkpoint */
    int64_t positions;                  /* that have an embedding; 0: the tokens of a sample */
    double image_mean[3], image_std[3]; /* vit: std 0 = unknown */
} app_transformer_flags;

/* The network of a language model. */
typedef struct app_language_network {
    trm_language_options options; /* complete: layers to vocabulary are not 0 */
    int64_t tokens;               /* of a sample */
    const char *tokenizer;        /* value of --tokens; NULL: not given */
    bool keeps_logits;            /* the graph ends in logits, for ONNX; else in the loss */
    bool is_masked;               /* predicts masked tokens; the data has a mask of keys */
    double masking;               /* share of the masked tokens ... */
    int64_t mask_token;           /* ... and the id in their place; 0: the tokenizer's */
    bool documents;               /* as the flag */
    const char *boundary_tokens;
} app_language_network;

/* Reads --lora r=16,alpha=32,dropout=0.1,targets=q_proj+v_proj. Text NULL gives all zeros.
 *   errors  INVALID */
trm_status app_read_lora(const char *text, trm_lora_options *out, trm_error *err);
/* The tokens that end a text. */
enum { APP_ENDS_MOST = 32 };
typedef struct app_ends {
    int32_t ids[APP_ENDS_MOST]; /* [count] */
    int32_t count;              /* 0: unknown */
} app_ends;
/* Reads the tokens that end a text from generation_config.json, or else config.json, of a folder.
 *   param   folder: NULL, or without these files, gives none
 *   errors  UNSUPPORTED: more than APP_ENDS_MOST */
trm_status app_ends_read(const char *folder, app_ends *out, trm_error *err);
/* Writes the tokens of the folder `from` to generation_config.json of `folder`, unless it has them
 * already, or the tokenizer says the same.
 *   errors  those of app_ends_read, IO */
trm_status app_ends_keep(const char *from, const trm_tokenizer *tokenizer, const char *folder,
                         trm_error *err);
/* Returns whether a token is among them. */
bool app_ends_have(const app_ends *ends, int32_t id);
/* Takes the value of --lora from the description of a checkpoint, unless the flag is given. */
void app_recall_lora(app_transformer_flags *flags, const char *adapters);

#endif
