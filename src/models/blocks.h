/* SPDX-License-Identifier: Apache-2.0 */
/* models/blocks.h: what the blocks of transformers have in common. Linear layers and norms are
 * named NAME.weight and NAME.bias. */
#ifndef TRMI_MODELS_BLOCKS_H
#define TRMI_MODELS_BLOCKS_H

#include "trireme/nn.h"

/* Standard deviation of the initial weights of transformers' models; their biases begin at 0. */
#define TRMI_BLOCK_DEVIATION 0.02

/* Adds a linear layer with weights [outputs, inputs], and its adapter if the layer is a target.
 * lora NULL: no adapters. */
trm_node trmi_block_linear(trm_graph *graph, const char *name, trm_node x, int64_t outputs,
                           const trm_lora_options *lora);
/* Adds a layer norm over the last dimension. */
trm_node trmi_block_norm(trm_graph *graph, const char *name, trm_node x, double epsilon);
/* Adds dropout if the rate is not 0. */
trm_node trmi_block_dropout(trm_graph *graph, trm_node x, double rate);

/* The sizes and the adapters that all layers of a block share. */
typedef struct trmi_block_options {
    int64_t heads, hidden;
    const trm_lora_options *lora;
} trmi_block_options;

/* Adds attention over whole samples and the linear layer after it, as BERT and ViT have them:
 * "attention.SELF.query", ".key", ".value" and "attention.output.dense".
 *   param    queries: [N, T, C]; keys: [N, S, C]
 *            mask: int32 [N, S], as in trm_attention */
trm_node trmi_block_attention(trm_graph *graph, const char *self, trm_node queries, trm_node keys,
                              trm_node mask, const trmi_block_options *options);
/* Adds the layers after attention, as BERT and ViT have them: "intermediate.dense" with a GELU and
 * "output.dense". */
trm_node trmi_block_layers(trm_graph *graph, trm_node x, const trmi_block_options *options);

/* The linear layers of a block of vit, ended by NULL. */
extern const char *const trmi_vit_layers[];

#endif
