/* SPDX-License-Identifier: Apache-2.0 */
/* models/language/language.h: what a language model consists of, and how a token is read after
 * others.
 *
 *      ids --> states of a model: embedding, blocks, last norm --> output layer --> logits, or loss
 *                                   |
 *                            trmi_language_attend
 */
#ifndef TRMI_MODELS_LANGUAGE_H
#define TRMI_MODELS_LANGUAGE_H

#include "trireme/nn.h"

/* A graph that reads tokens after earlier ones: operators of the caller keep the keys and values
 * of those (train/generate/cache.h). */
typedef struct trmi_language_cache {
    trm_node positions;          /* int32 [1, T] of the tokens */
    trm_node last;               /* int32 [1]: the row whose next token is wanted */
    const trm_custom_op *attend; /* [layers]: packed queries, keys and values -> y */
} trmi_language_cache;

/* A published size. The list of a model ends with a name NULL. */
typedef struct trmi_language_size {
    const char *name;
    trm_language_options values;
} trmi_language_size;

/* The nodes of a network up to its last norm. */
typedef struct trmi_language_states {
    trm_node x;       /* [B, T, width] */
    trm_node output;  /* weights of the output layer, [vocabulary, width] */
    trm_node bias;    /* of the output layer, [vocabulary]; TRM_NO_NODE = none */
    trm_node balance; /* mean load balance of the experts; TRM_NO_NODE = there are none */
} trmi_language_states;

/* A language model. */
typedef struct trmi_language {
    const char *name;
    const trmi_language_size *sizes;
    const char *const *layers;   /* linear layers of a block, ended by NULL: "attn.c_attn" */
    int64_t vocabulary, context; /* where options give none; 0 = 50257, 1024 */
    double epsilon;              /* the same; 0 = 1e-5 */
    bool masked;                 /* predicts masked tokens from all others, not the next ones */
    /* replaces zeros by the model's defaults; layers, width, heads, context and vocabulary are
     * set */
    void (*complete)(trm_language_options *options);
    /* Adds the network up to the last norm, [B, T, width]. Options are complete and possible; cache
     * NULL = whole samples. */
    trmi_language_states (*states)(trm_graph *graph, trm_node ids,
                                   const trm_language_options *options,
                                   const trmi_language_cache *cache);
} trmi_language;

extern const trmi_language trmi_language_gpt2, trmi_language_llama, trmi_language_moe,
    trmi_language_bert;

/* attend.c: adds causal attention of block `layer`, with rotary positions if the options have them.
 *   param    parts: queries, keys and values, [B, T, heads D] and twice [B, T, kv_heads D]; or [1]:
 *            all of them side by side, without rotary positions
 *            count: 3, or 1 */
trm_node trmi_language_attend(trm_graph *graph, const trm_node *parts, int32_t count,
                              const trm_language_options *options, const trmi_language_cache *cache,
                              int64_t layer);
/* language.c: returns a model by its name; NULL if there is none. */
const trmi_language *trmi_language_of(const char *name);
/* language.c: adds the logits [1, vocabulary] of the token after row cache->last. */
trm_node trmi_language_next(trm_graph *graph, const char *model, trm_node ids,
                            const trm_language_options *options, const trmi_language_cache *cache);

#endif
