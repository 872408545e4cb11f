/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/cache.h: keys and values of tokens that were read, and the operator that attends
 * to them (trm_custom_op).
 *
 *      packed q, k, v of T new tokens --> keys, values [kv_heads, context, D] --> y of the T tokens
 *                                         | first, first + 1 ...  |
 */
#ifndef TRMI_TRAIN_GENERATE_CACHE_H
#define TRMI_TRAIN_GENERATE_CACHE_H

#include "trireme/graph.h"
#include "trireme/nn.h"

/* The state of the cache that all blocks of a model share. */
typedef struct trmi_cache_state {
    trm_language_options network; /* complete */
    int64_t first, count; /* position of the first new token; new tokens, others are padding */
    int threads;
    float *scores; /* [threads, context] */
    float *turns;  /* rotary positions: cosines, then sines, [context, D / 2] each; NULL = none */
} trmi_cache_state;

/* The keys and values of one block. */
typedef struct trmi_cache_layer {
    trmi_cache_state *state;
    float *keys, *values; /* [kv_heads, context, D] */
} trmi_cache_layer;

/* Fills state->turns of a model with rotary positions. */
void trmi_cache_prepare_turns(trmi_cache_state *state);
/* Returns the operator that attends to `layer`: packed [1, T, (heads + 2 kv_heads) D] -> [1, T,
 * heads D]. It writes the keys and values of the new tokens first. */
trm_custom_op trmi_cache_operator(trmi_cache_layer *layer);

#endif
