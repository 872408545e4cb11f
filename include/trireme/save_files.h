/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/save_files.h: NumPy's .npy and .npz, and `inspect`: what is this file, and is it sound?
 */
#ifndef TRIREME_SAVE_FILES_H
#define TRIREME_SAVE_FILES_H

#include "trireme/base.h"
#include "trireme/save.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- NumPy ----------------------------------------------------------------------------- */

/* Writes one array (numpy.load), or a stored archive of them (numpy.savez; members are aligned, so
 * that they can be mapped). bfloat16, which NumPy does not know, is widened to float32. Complete or
 * not at all, and on the disk when the call returns.
 *   errors  TRM_INVALID for names that are empty or not unique; TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_npy_write(const char *path, const trm_tensor *array,
                                              trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_npz_write(const char *path, const trm_named_tensor *arrays,
                                              int64_t count, trm_error *err);

/* A mapped .npz or .npy file. Reading it is safe from several threads. */
typedef struct trm_npz trm_npz;

/* One array. Owned by the file. */
typedef struct trm_npz_entry {
    const char *name;  /* without ".npy"; "" in a .npy file */
    const char *descr; /* NumPy's word: "<f4", "|b1" */
    bool fortran_order;
    int32_t rank;
    const int64_t *dims;
    int64_t offset; /* of the data in the file */
    int64_t bytes;
    trm_tensor tensor; /* view of the data (perhaps unaligned; do not write). dtype TRM_DTYPE_NONE
                          if trm_dtype has no such type, the rank is above TRM_MAX_RANK, or the
                          order is Fortran's */
} trm_npz_entry;

/* Opens an archive, or a single .npy, by its content. Checksums of all members are verified.
 *   errors  TRM_CORRUPT with member and offset; TRM_UNSUPPORTED for compressed archives
 *           (numpy.savez_compressed), big-endian and object arrays (pickle): says how to save
 *           instead
 *   owns    close with trm_npz_close */
TRM_API TRM_MUST_USE trm_status trm_npz_open(const char *path, trm_npz **out, trm_error *err);
TRM_API void trm_npz_close(trm_npz *file);
TRM_API int64_t trm_npz_count(const trm_npz *file);
TRM_API const trm_npz_entry *trm_npz_at(const trm_npz *file, int64_t index);
TRM_API const trm_npz_entry *trm_npz_find(const trm_npz *file, const char *name);
/* Copies an array into `into`, whose data, dtype and shape the caller has set and which must agree.
 *   errors  TRM_INVALID naming the array with both shapes or types */
TRM_API TRM_MUST_USE trm_status trm_npz_read(const trm_npz *file, const char *name,
                                             const trm_tensor *into, trm_error *err);

/* ---- a small file ---------------------------------------------------------------------- */

/* Complete or not at all, and on the disk when the call returns; what was there before is then
 * gone.
 *   errors  TRM_IO (also: a directory or a device is there), TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_file_write(const char *path, const void *data, size_t bytes,
                                               trm_error *err);

/* ---- inspect --------------------------------------------------------------------------- */

/* Takes one line of the description, without its newline. */
typedef void (*trm_line_sink)(void *context, const char *line);

/* What a recogniser sees of a path. */
typedef struct trm_probe {
    const char *path;
    bool is_directory;
    const uint8_t *data; /* the whole file, mapped; NULL if empty or a directory */
    int64_t bytes;
} trm_probe;

/* A kind of file that inspect knows. */
typedef struct trm_recogniser {
    const char *kind; /* "safetensors" */
    /* Part of the usual names (".safetensors"): decides when no content fits, so that a damaged
     * file gets the sentence that says what is wrong. NULL: none. */
    const char *name_hint;
    /* Could this be one? Looks at the content only as far as that takes. */
    bool (*matches)(const trm_probe *probe);
    /* Checks it from end to end and describes it: lines for people, or one JSON object on one line.
     * The first fault ends it with TRM_CORRUPT and its place; what was found before is printed. */
    trm_status (*describe)(const trm_probe *probe, bool json, trm_line_sink sink, void *context,
                           trm_error *err);
} trm_recogniser;

typedef struct trm_inspect_options {
    bool json;
    const trm_recogniser *more; /* tried before the built-in ones */
    int64_t more_count;
    /* what the caller knows besides, for the sentence when nothing fits; NULL = nothing */
    const char *other_kinds;
} trm_inspect_options;

/* Recognises `path` by content and describes it: safetensors, a checkpoint or a directory of them,
 * event file, TFRecord, .npy, .npz, ONNX, CIFAR-10 batch.
 *   errors  TRM_CORRUPT when nothing fits, naming what was tried, or with the first fault */
TRM_API TRM_MUST_USE trm_status trm_inspect(const char *path, const trm_inspect_options *options,
                                            trm_line_sink sink, void *context, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
