/* SPDX-License-Identifier: Apache-2.0 */
/* plan/hardware/transformer.h: a transformer as numbers: sizes, parameters, work. No weights are
 * allocated and no graph is built, because all blocks are equal.
 *
 *      name of a published model --trmi_transformer_preset--> sizes --> parameters of a block, FLOPs
 *                                                                       of a token
 */
#ifndef TRMI_PLAN_TRANSFORMER_H
#define TRMI_PLAN_TRANSFORMER_H

#include "trireme/base.h"

#include <stdbool.h>
#include <stdint.h>

/* Sizes of a transformer that predicts the next token. */
typedef struct trmi_transformer {
    char name[48];
    int64_t layers, width, heads, kv_heads, head_width;
    int64_t hidden; /* width of a dense block's inner layer */
    int64_t vocabulary, context;
    bool gated;     /* the inner layer has three matrices (SwiGLU), not two */
    bool tied;      /* the output layer is the token embedding */
    bool positions; /* learned positions */
    /* mixture of experts: experts of a block (0: none), those that compute a token, those that
     * compute each token, the width of one; the first `dense` blocks have none */
    int64_t experts, top_experts, shared_experts, expert_hidden, dense;
    /* attention of low rank (DeepSeek): rank of queries and of keys and values, width of a key's
     * rotary part and of a value; 0: none */
    int64_t query_rank, key_rank, rotary_width, value_width;
    const char *differs; /* what the published model has and these sizes do not; NULL: nothing */
} trmi_transformer;

/* Sets the sizes of a published model. *known: the names of the model's presets, if there is no
 * such one. Returns false then. */
bool trmi_transformer_preset(const char *model, const char *preset, trmi_transformer *out,
                             char known[160]);
/* Checks the sizes.
 *   errors  INVALID */
trm_status trmi_transformer_check(const trmi_transformer *t, trm_error *err);

/* Return the parameters of all products and norms of attention in one block; of one expert; of the
 * router. */
double trmi_transformer_attention(const trmi_transformer *t);
double trmi_transformer_expert(const trmi_transformer *t);
double trmi_transformer_router(const trmi_transformer *t);
/* Return all parameters; those that take part in the products of one token. */
double trmi_transformer_parameters(const trmi_transformer *t);
double trmi_transformer_active(const trmi_transformer *t);
/* Returns the model FLOPs of one token, forward and backward: 6 x active parameters + attention,
 * 6 x layers x context x heads x (key width + value width) / 2 with the causal half only. */
double trmi_transformer_flops(const trmi_transformer *t);
/* Return the width of a head's keys, of its values. */
double trmi_transformer_key_width(const trmi_transformer *t);
double trmi_transformer_value_width(const trmi_transformer *t);

#endif
