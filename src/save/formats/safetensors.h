/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/safetensors.h: the format behind trm_safetensors_*.
 *
 *     | u64 N | N bytes of JSON, blanks to a multiple of 8 | data, no holes |
 *               {"__metadata__": {"format": "pt"},
 *                "fc.bias": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}, ...}
 */
#ifndef TRMI_SAVE_SAFETENSORS_H
#define TRMI_SAVE_SAFETENSORS_H

#include "trireme/save.h"

#include "base/memory.h"
#include "base/os.h"
#include "save/file_out.h"

enum {
    TRMI_SAFETENSORS_HEADER_MAX = 100000000,
    TRMI_SAFETENSORS_ENTRIES_MAX = 1000000,
    TRMI_SAFETENSORS_RANK_MAX = 64
};

/* Reads a file that lies in memory (borrowed until close). `path` is for messages. */
trm_status trmi_safetensors_parse(const uint8_t *data, size_t bytes, const char *path,
                                  trm_safetensors **out, trm_error *err);

/* As trm_checkpoint_part's. */
typedef trm_status (*trmi_rows_reader)(void *context, const trm_named_tensor *tensor, int64_t first,
                                       int64_t rows, void *to, trm_error *err);

/* What will be written: the header, the order, the length of it all. */
typedef struct trmi_safetensors_layout {
    trmi_rows_reader read; /* set before lay_out: of tensors without data; NULL = there are none */
    void *read_context;
    trmi_text header;
    int64_t *order; /* tensors[order[i]] is the i-th in the file */
    int64_t count;
    int64_t bytes;
} trmi_safetensors_layout;

trm_status trmi_safetensors_lay_out(trmi_safetensors_layout *layout, const char *path,
                                    const trm_named_tensor *tensors, int64_t count,
                                    const trm_text_pair *metadata, int64_t metadata_count,
                                    trm_error *err);
trm_status trmi_safetensors_put(const trmi_safetensors_layout *layout,
                                const trm_named_tensor *tensors, trmi_file_out *out,
                                trm_error *err);
void trmi_safetensors_layout_free(trmi_safetensors_layout *layout);

#endif
