/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/adapters.h: the low-rank adapters of a transformer, for Hugging Face's programs. */
#ifndef TRMI_TRAIN_ADAPTERS_H
#define TRMI_TRAIN_ADAPTERS_H

#include "trireme/io.h"
#include "trireme/nn.h"

#include "base/memory.h"

/* Adds the product of each adapter to the weights of its layer, and removes it from the list. The
 * names may have a prefix. transposed: weights are [inputs, outputs].
 *   errors  INVALID: weights or half of an adapter are missing, or have another shape */
trm_status trmi_adapters_merge(const trm_lora_options *lora, bool transposed,
                               trm_named_tensor *tensors, int64_t *count, trm_error *err);
/* Writes a folder that peft loads: adapter_config.json and adapter_model.safetensors.
 *   param  model: its name: gpt2, llama, bert, vit
 *   errors  NOMEM, IO, NOSPACE */
trm_status trmi_adapters_write(const char *model, const trm_lora_options *lora, bool transposed,
                               const trm_named_tensor *tensors, int64_t count, const char *folder,
                               trm_error *err);

#endif
