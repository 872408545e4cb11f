/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention of language models, and with a cache (language.h). */
#include "models/language/language.h"

/* Contract in language.h. With a cache (generation) a custom operator adds the new keys and values
 * to it; packed inputs need no copy; separate ones get rotary positions. */
trm_node trmi_language_attend(trm_graph *graph, const trm_node *parts, int32_t count,
                              const trm_language_options *o, const trmi_language_cache *cache,
                              int64_t layer) {
    const trm_attention_options causal = {.causal = true};
    if (cache != NULL) {
        trm_node qkv = count == 1 ? parts[0] : trm_concat(graph, parts, count, 2), y = TRM_NO_NODE;
        trm_custom(graph, &cache->attend[layer], &qkv, 1, &y);
        return y;
    }
    if (count == 1) {
        return trm_attention_packed(graph, parts[0], o->heads, o->kv_heads, TRM_NO_NODE, &causal);
    }
    trm_shape shape = trm_node_shape(graph, parts[0]);
    trm_node x[3];
    for (int i = 0; i < 3; i++) {
        int64_t heads = i == 0 ? o->heads : o->kv_heads;
        x[i] = trm_reshape(graph, parts[i],
                           trm_shape_of(shape.dim[0], shape.dim[1], heads, o->width / o->heads));
        x[i] = i < 2 ? trm_rotary(graph, x[i], o->rotary_theta, 0) : x[i];
    }
    trm_node y = trm_attention(graph, x[0], x[1], x[2], TRM_NO_NODE, &causal);
    return trm_reshape(graph, y, shape);
}
