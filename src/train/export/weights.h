/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/weights.h: tensors by name, of one safetensors file or of a Hugging Face folder.
 * A training begins with one of these (trmi_is_weights), or with a checkpoint of Trireme. */
#ifndef TRMI_TRAIN_WEIGHTS_H
#define TRMI_TRAIN_WEIGHTS_H

#include "trireme/io.h"

#include "base/memory.h"

/* Files of tensors. */
typedef struct trmi_weights {
    const trm_safetensors **files; /* [count] */
    int32_t count;
    bool is_folder;   /* of transformers, which has no adapters */
    trmi_arena arena; /* of trmi_weights_open */
} trmi_weights;

/* Returns whether `path` is a folder with a config.json, as transformers writes it. */
bool trmi_is_huggingface(const char *path);
/* Returns the name of the file in a Hugging Face folder by which the weights of a whole model are
 * found, model.safetensors or else model.safetensors.index.json; NULL: it has none.
 *   param  path: where it is, written
 *   owns   the name is static */
const char *trmi_weights_file(const char *folder, char *path, size_t size);
/* Returns whether trmi_weights_open opens `path`, by its ending or by the folder's files. */
bool trmi_is_weights(const char *path);
/* Opens a file "*.safetensors", or model.safetensors of a Hugging Face folder, or the files that
 * the folder's model.safetensors.index.json names.
 *   owns  the caller: trmi_weights_close    errors  IO, CORRUPT, NOMEM */
trm_status trmi_weights_open(const char *path, trmi_weights *out, trm_error *err);
/* Closes the files that trmi_weights_open has opened. */
void trmi_weights_close(trmi_weights *weights);
/* Returns the tensor of this name, of "transformer." and this name (GPT-2 below its output layer),
 * or of gamma and beta of a LayerNorm (BERT's first files), and *file, which has it; NULL if there
 * is none. */
const trm_safetensors_entry *trmi_weights_find(const trmi_weights *weights, const char *name,
                                               const trm_safetensors **file);
/* Refuses a second name of a tied tensor (lm_head.weight beside the embedding) that has other
 * values: no variable of the network has them.
 *   param   taken: [count] entries that variables have taken; sorted by this call
 *           where: the file or folder, for the message
 *   errors  UNSUPPORTED */
trm_status trmi_weights_check_copies(const trmi_weights *weights,
                                     const trm_safetensors_entry **taken, int64_t count,
                                     const char *where, trm_error *err);
/* Logs one warning that counts and names the tensors that no variable of a network has taken. What
 * PyTorch's programs write besides (masks, positions, second names of tied tensors, counts of
 * batches) is not among them.
 *   param  taken: [count] entries that variables have taken; sorted by this call
 *          where: the file or folder, for the message */
void trmi_weights_warn_unused(const trmi_weights *weights, const trm_safetensors_entry **taken,
                              int64_t count, const char *where);

#endif
