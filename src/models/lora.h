/* SPDX-License-Identifier: Apache-2.0 */
/* models/lora.h: low-rank adapters of the linear layers of transformers' blocks. A model lists
 * those layers by the ends of their names, "attn.c_attn", and the list ends with NULL. */
#ifndef TRMI_MODELS_LORA_H
#define TRMI_MODELS_LORA_H

#include "trireme/nn.h"

/* Checks the adapters that a model of this name and these layers shall have.
 *   errors  INVALID: numbers out of range, a target that is no layer of the model */
trm_status trmi_lora_check(const char *model, const char *const *layers,
                           const trm_lora_options *lora, trm_error *err);
/* Returns layer `index` of those that have adapters; NULL after the last. */
const char *trmi_lora_layer(const char *const *layers, const trm_lora_options *lora, int32_t index);
/* Returns the factor of B A. */
double trmi_lora_scale(const trm_lora_options *lora);
/* Returns whether a parameter of this name belongs to an adapter. */
bool trmi_is_adapter(const char *name);
/* Adds to y = layer(x) the layer's adapter, if the open scope is a target. lora NULL: none. */
trm_node trmi_lora_add(trm_graph *graph, trm_node x, trm_node y, const trm_lora_options *lora);
/* Freezes the parameters from operator `first` on that belong to no adapter, if there are
 * adapters. */
void trmi_lora_freeze_others(trm_graph *graph, int64_t first, const trm_lora_options *lora);

#endif
