/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/safetensors.h: the form of safetensors files
 * (https://github.com/huggingface/safetensors).
 *
 *     | u64 N | N bytes of JSON, blanks to a multiple of 8 | data, without holes |
 *               {"__metadata__": {"format": "pt"},
 *                "fc.bias": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}, ...}
 */
#ifndef TRMI_SAVE_SAFETENSORS_H
#define TRMI_SAVE_SAFETENSORS_H

#include "trireme/io.h"

#include "base/memory.h"
#include "base/os.h"
#include "save/file_out.h"

/* Limits of what is read, compared before memory is taken. */
enum {
    TRMI_SAFETENSORS_HEADER_MAX = 100000000, /* limit of the format itself */
    TRMI_SAFETENSORS_ENTRIES_MAX = 1000000,  /* tensors of a file, at most */
    TRMI_SAFETENSORS_RANK_MAX = 64
};

/* Reads a file in memory, which is borrowed until close. `path` is for messages.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_safetensors_parse(const uint8_t *data, size_t bytes, const char *path,
                                  trm_safetensors **out, trm_error *err);

/* Reads rows [first, first + rows) of a tensor without data; see trm_checkpoint_part. */
typedef trm_status (*trmi_rows_reader)(void *context, const trm_named_tensor *tensor, int64_t first,
                                       int64_t rows, void *to, trm_error *err);

/* The layout of a file to be written: header, order of the tensors, and length. */
typedef struct trmi_safetensors_layout {
    /* set before lay_out: reads tensors without data; NULL: all tensors have data */
    trmi_rows_reader read;
    void *read_context; /* first argument of `read` */
    trmi_text header;   /* JSON with its blanks */
    int64_t *order;     /* [count] tensors[order[i]] is the i-th one in the file */
    int64_t count;      /* number of tensors */
    int64_t bytes;      /* of the whole file */
} trmi_safetensors_layout;

/* Checks the tensors and builds the header. `path` is for messages.
 *   errors  INVALID, NOMEM */
trm_status trmi_safetensors_lay_out(trmi_safetensors_layout *layout, const char *path,
                                    const trm_named_tensor *tensors, int64_t count,
                                    const trm_text_pair *metadata, int64_t metadata_count,
                                    trm_error *err);
/* Writes header and data as laid out; `tensors` are those of trmi_safetensors_lay_out.
 *   errors  those of writing and of layout->read */
trm_status trmi_safetensors_put(const trmi_safetensors_layout *layout,
                                const trm_named_tensor *tensors, trmi_file_out *out,
                                trm_error *err);
/* Frees header and order. An empty layout is allowed. */
void trmi_safetensors_layout_free(trmi_safetensors_layout *layout);

#endif
