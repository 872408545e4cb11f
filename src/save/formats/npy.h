/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/npy.h: NumPy's array files and archives.
 *
 *   .npy   \x93NUMPY, version, header length, a Python dict as text, blanks to a multiple of 64, data
 *   .npz   a zip archive whose members are name.npy; only stored members, not compressed ones
 *
 * Source: numpy/lib/format.py. */
#ifndef TRMI_SAVE_NPY_H
#define TRMI_SAVE_NPY_H

#include "trireme/io.h"

#include "base/memory.h"
#include "base/os.h"

/* limits of an array's dimensions and of its header */
enum { TRMI_NPY_RANK_MAX = 64, TRMI_NPY_HEADER_MAX = 65536 };

/* The parsed header of an array in memory. */
typedef struct trmi_npy {
    char descr[8];                   /* NumPy's type, for instance "<f4" */
    trm_dtype dtype;                 /* TRM_DTYPE_NONE: a type that trireme does not have */
    int64_t item_bytes;              /* of one element */
    bool fortran_order;              /* the first dimension varies fastest */
    int32_t rank;                    /* number of dimensions */
    int64_t dims[TRMI_NPY_RANK_MAX]; /* the first `rank` are used */
    int64_t data_offset;             /* from the start of the .npy */
    int64_t data_bytes;              /* of the whole array */
} trmi_npy;

/* Returns whether the data begin with NumPy's signature. */
bool trmi_npy_starts(const uint8_t *data, size_t bytes);
/* Parses the header of a .npy. `bytes` must be its exact length; `what` is for messages.
 *   errors  CORRUPT, UNSUPPORTED (Python objects, big-endian, unknown types) */
trm_status trmi_npy_parse(const uint8_t *data, size_t bytes, const char *what, trmi_npy *out,
                          trm_error *err);
/* Appends signature and header for the array as it will be written.
 *   errors  INVALID, NOMEM */
trm_status trmi_npy_put_header(trmi_text *out, const trm_tensor *array, const char *what,
                               trm_error *err);
/* Passes the array's data to `take` in pieces, in the form that NumPy reads: bfloat16 becomes
 * float32. */
typedef trm_status (*trmi_npy_take)(void *context, const void *data, size_t bytes, trm_error *err);
trm_status trmi_npy_stream(const trm_tensor *array, trmi_npy_take take, void *context,
                           trm_error *err);
/* Returns the bytes that trmi_npy_stream passes on, -1 if they are too many. */
int64_t trmi_npy_data_bytes(const trm_tensor *array);

/* Opens an archive or a single array in memory, which is borrowed until trm_npz_close. Every
 * member's checksum is verified.
 *   errors  CORRUPT, UNSUPPORTED, NOMEM */
trm_status trmi_npz_parse(const uint8_t *data, size_t bytes, const char *path, trm_npz **out,
                          trm_error *err);
/* Writes as trm_npz_write does; members of at least `zip64_from` bytes use the 64-bit records
 * (tests set a low value). */
trm_status trmi_npz_write(const char *path, const trm_named_tensor *arrays, int64_t count,
                          int64_t zip64_from, trm_error *err);

#endif
