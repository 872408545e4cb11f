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
/* Takes the value of --lora from the description of a checkpoint, unless the flag is given. */
void app_recall_lora(app_transformer_flags *flags, const char *adapters);

#endif
