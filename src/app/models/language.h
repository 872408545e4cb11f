/* SPDX-License-Identifier: Apache-2.0 */
/* app/models/language.h: flags of the transformers, and networks of the language models. */
#ifndef TRIREME_APP_LANGUAGE_H
#define TRIREME_APP_LANGUAGE_H

#include "trireme/nn.h"

/* Values of the flags of language models and of vit. Zero means that the flag is not given. */
typedef struct app_transformer_flags {
    const char *size, *lora;
    int64_t layers, width, heads, kv_heads;
    int64_t hidden, vocabulary; /* numbers of --hidden and --vocabulary */
    int64_t positions;          /* of a checkpoint; 0: the tokens of a sample */
    int64_t experts, top_experts, patch;
    int64_t mask_token;
    double dropout, epsilon, rotary_theta, balance, masking;
    double image_mean[3], image_std[3]; /* vit: of a checkpoint; std 0: unknown */
    bool untied, lazy_embedding, documents;
    const char *boundary_tokens; /* on, off; NULL: not given */
} app_transformer_flags;

/* The network of a language model. */
typedef struct app_language_network {
    trm_language_options options; /* complete: layers to vocabulary are not 0 */
    int64_t tokens;               /* of a sample */
    const char *tokenizer;        /* value of --tokens; NULL: not given */
    bool keeps_logits;            /* the graph ends in logits, for ONNX; else in the loss */
    bool is_masked;               /* predicts masked tokens; the data has a mask of keys */
    double masking; /* their share, and the id that stands for them (0: by the data) */
    int64_t mask_token;
    bool documents; /* how samples are cut, as the flags say */
    const char *boundary_tokens;
} app_language_network;

/* Reads --lora r=16,alpha=32,dropout=0.1,targets=q_proj+v_proj; of NULL, all zeros.
 *   errors  INVALID */
trm_status app_read_lora(const char *text, trm_lora_options *out, trm_error *err);
/* Takes the value of --lora from the description of a checkpoint, unless the flag is given. */
void app_recall_lora(app_transformer_flags *flags, const char *adapters);

#endif
