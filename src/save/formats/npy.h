/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/npy.h: NumPy's array file, and the stored zip of them.
 *
 *   .npy   \x93NUMPY, version, header length, a Python dict as text, blanks to a multiple of 64,
 * data .npz   a zip archive whose members are name.npy
 */
#ifndef TRMI_SAVE_NPY_H
#define TRMI_SAVE_NPY_H

#include "trireme/save_files.h"

#include "base/memory.h"
#include "base/os.h"

enum { TRMI_NPY_RANK_MAX = 64, TRMI_NPY_HEADER_MAX = 65536 };

/* The parsed head of an array that lies in memory. */
typedef struct trmi_npy {
    char descr[8];
    trm_dtype dtype; /* TRM_DTYPE_NONE for types that we do not have */
    int64_t item_bytes;
    bool fortran_order;
    int32_t rank;
    int64_t dims[TRMI_NPY_RANK_MAX];
    int64_t data_offset; /* from the start of the array file */
    int64_t data_bytes;
} trmi_npy;

bool trmi_npy_starts(const uint8_t *data, size_t bytes);
/* `bytes` must be the exact length of the array file. `what` is for messages. */
trm_status trmi_npy_parse(const uint8_t *data, size_t bytes, const char *what, trmi_npy *out,
                          trm_error *err);
/* Appends magic and header for the array as it will be written. */
trm_status trmi_npy_put_header(trmi_text *out, const trm_tensor *array, const char *what,
                               trm_error *err);
/* The data as NumPy will see them, in pieces (bfloat16 widened). */
typedef trm_status (*trmi_npy_take)(void *context, const void *data, size_t bytes, trm_error *err);
trm_status trmi_npy_stream(const trm_tensor *array, trmi_npy_take take, void *context,
                           trm_error *err);
int64_t trmi_npy_data_bytes(const trm_tensor *array);

/* Opens an archive or array in memory (borrowed until close). */
trm_status trmi_npz_parse(const uint8_t *data, size_t bytes, const char *path, trm_npz **out,
                          trm_error *err);
/* As trm_npz_write; members of `zip64_from` bytes and more use the 64-bit records (for tests). */
trm_status trmi_npz_write(const char *path, const trm_named_tensor *arrays, int64_t count,
                          int64_t zip64_from, trm_error *err);

#endif
