/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank adapters (Hu et al. 2021) of linear layers: y + (alpha / rank) B A x beside frozen
 * weights.
 *
 *     trmi_lora_check          options against the model's layers, once, before building
 *     trmi_lora_layer          lists the layers that get an adapter
 *     trmi_lora_add            A, B and the sum, behind a layer
 *     trmi_lora_freeze_others  all parameters of the model but the adapters
 *
 * Language models and ViT call them (models/blocks.h). Names and initial values are those of
 * Hugging Face's peft: A [rank, inputs] uniform, B [outputs, rank] zero, so that training begins
 * with the network's own outputs. */
#include "models/lora.h"

#include "graph/graph_ir.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Largest rank of an adapter, and longest list of layers. */
enum { RANK_MOST = 65536, TARGETS_MOST = 512 };

/* Returns whether a layer is of attention; else it is one of those after it. */
static bool is_of_attention(const char *layer) {
    return strstr(layer, ".attn.") != NULL || strstr(layer, ".self_attn.") != NULL ||
           strstr(layer, ".attention.") != NULL;
}

/* Returns whether [item, item + length) is a word. */
static bool is_word(const char *item, size_t length, const char *word) {
    return strlen(word) == length && memcmp(word, item, length) == 0;
}

/* Returns whether one target, [item, item + length), means the layer ".attn.c_attn". */
static bool target_means(const char *item, size_t length, const char *layer) {
    bool attention = is_word(item, length, "attention"), mlp = is_word(item, length, "mlp");
    if (attention || mlp || is_word(item, length, "all")) {
        return !(attention || mlp) || is_of_attention(layer) == attention;
    }
    size_t whole = strlen(layer);
    return length > 0 && length < whole && layer[whole - length - 1] == '.' &&
           memcmp(layer + whole - length, item, length) == 0;
}

/* Returns whether the targets contain a layer. */
static bool is_target(const trm_lora_options *lora, const char *layer) {
    const char *item = lora->targets != NULL ? lora->targets : "attention";
    for (;; item++) {
        size_t length = strcspn(item, "+");
        if (target_means(item, length, layer)) {
            return true;
        }
        item += length;
        if (*item == '\0') {
            return false;
        }
    }
}

/* Writes layer `index` of the list as is_target expects it; false after the last. */
static bool layer_at(const char *const *layers, int32_t index, char *text, size_t size) {
    const char *layer = layers[index];
    if (layer == NULL) {
        return false;
    }
    snprintf(text, size, ".%s", layer);
    return true;
}

/* Returns the shortest name of a layer that means no other layer: "query" of
 * "attention.self.query". */
static const char *shorten_layer(const char *const *layers, const char *name) {
    const char *last = strrchr(name, '.');
    char layer[64];
    int32_t meant = 0;
    for (int32_t i = 0; last != NULL && layer_at(layers, i, layer, sizeof layer); i++) {
        meant += target_means(last + 1, strlen(last + 1), layer);
    }
    return meant == 1 ? last + 1 : name;
}

/* Checks that each target means a layer of the model. */
static trm_status check_targets(const char *model, const char *const *layers, const char *targets,
                                trm_error *err) {
    char known[256] = "attention, mlp, all", layer[64];
    for (int32_t i = 0; layer_at(layers, i, layer, sizeof layer); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", shorten_layer(layers, layers[i]));
    }
    for (const char *item = targets;; item++) {
        size_t length = strcspn(item, "+");
        bool found = false;
        for (int32_t i = 0; !found && layer_at(layers, i, layer, sizeof layer); i++) {
            found = target_means(item, length, layer);
        }
        if (!found) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "lora: %s has no layer '%.*s'; targets are %s, joined by '+'", model,
                             (int)(length < 40 ? length : 40), item, known);
        }
        item += length;
        if (*item == '\0') {
            return TRM_OK;
        }
    }
}

/* Contract in lora.h. Rank 0 means no adapters; its other options are checked all the same. */
trm_status trmi_lora_check(const char *model, const char *const *layers,
                           const trm_lora_options *lora, trm_error *err) {
    if (lora->rank < 0 || lora->rank > RANK_MOST || !(lora->alpha >= 0 && lora->alpha <= 1e9) ||
        !(lora->dropout >= 0 && lora->dropout < 1)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "lora: rank %lld, alpha %g, dropout %g: a rank from 1 to %d, a positive "
                         "alpha, and a rate below 1 expected",
                         (long long)lora->rank, lora->alpha, lora->dropout, RANK_MOST);
    }
    const char *targets = lora->targets != NULL ? lora->targets : "attention";
    if (strlen(targets) > TARGETS_MOST) {
        return TRMI_FAIL(err, TRM_INVALID, "lora: targets of at most %d bytes expected",
                         TARGETS_MOST);
    }
    return lora->rank > 0 ? check_targets(model, layers, targets, err) : TRM_OK;
}

const char *trmi_lora_layer(const char *const *layers, const trm_lora_options *lora,
                            int32_t index) {
    char layer[64];
    for (int32_t i = 0; layer_at(layers, i, layer, sizeof layer); i++) {
        if (is_target(lora, layer) && index-- == 0) {
            return layers[i];
        }
    }
    return NULL;
}

double trmi_lora_scale(const trm_lora_options *lora) {
    return lora->alpha > 0 ? lora->alpha / (double)lora->rank : 1;
}

bool trmi_is_adapter(const char *name) {
    return strstr(name, ".lora_A.") != NULL || strstr(name, ".lora_B.") != NULL;
}

/* Contract in lora.h. Low-rank adaptation (Hu et al. 2021): y + B A x scaled; B begins at zero, so
 * that training begins at the given model. Names are those of the peft library. */
trm_node trmi_lora_add(trm_graph *graph, trm_node x, trm_node y, const trm_lora_options *lora) {
    char layer[sizeof graph->scope + 1];
    size_t length = strlen(graph->scope);
    if (lora == NULL || lora->rank == 0 || length == 0) {
        return y;
    }
    snprintf(layer, sizeof layer, ".%.*s", (int)length - 1, graph->scope);
    if (!is_target(lora, layer)) {
        return y;
    }
    trm_shape from = trm_node_shape(graph, x), to = trm_node_shape(graph, y);
    trm_node a = trm_parameter(graph, "lora_A.weight",
                               trm_shape_of(lora->rank, from.dim[from.rank - 1]), TRM_INIT_LINEAR),
             b = trm_parameter(graph, "lora_B.weight",
                               trm_shape_of(to.dim[to.rank - 1], lora->rank), TRM_INIT_ZERO);
    trm_node dropped = lora->dropout > 0 ? trm_dropout(graph, x, lora->dropout) : x;
    x = trm_linear(graph, dropped, a, TRM_NO_NODE);
    x = trm_linear(graph, trm_scale(graph, x, trmi_lora_scale(lora)), b, TRM_NO_NODE);
    return trm_add(graph, y, x);
}

void trmi_lora_freeze_others(trm_graph *graph, int64_t first, const trm_lora_options *lora) {
    for (int64_t i = first; lora->rank > 0 && i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        if (op->kind == TRMI_OP_PARAMETER && !trmi_is_adapter(op->name)) {
            (void)trm_freeze(graph, (trm_node){op->outputs[0]});
        }
    }
}
