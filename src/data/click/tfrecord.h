/* SPDX-License-Identifier: Apache-2.0 */
/* data/click/tfrecord.h: sets of TFRecord files (base/tfrecord.h), and a bounded reader of tf.Example.
 *
 *   Example { features: 1 { feature: 1 map { key: 1, value: 2 Feature {
 *             bytes_list: 1 | float_list: 2 | int64_list: 3 { value: 1 ... } } } } }
 */
#ifndef TRMI_DATA_TFRECORD_H
#define TRMI_DATA_TFRECORD_H

#include "data/pipeline/source.h"

#include "base/mapping.h"
#include "base/proto.h"
#include "base/tfrecord.h"

typedef enum trmi_feature_kind {
    TRMI_FEATURE_ABSENT,
    TRMI_FEATURE_BYTES,
    TRMI_FEATURE_FLOAT,
    TRMI_FEATURE_INT64
} trmi_feature_kind;
typedef struct trmi_feature {
    trmi_feature_kind kind;
    const uint8_t *data; /* the list's message */
    size_t bytes;
} trmi_feature;

/* Looks up `count` features by name; absent ones get TRMI_FEATURE_ABSENT. TRM_CORRUPT for malformed
 * bytes; the message has no place, the caller appends it. */
trm_status trmi_example_find(const uint8_t *data, size_t bytes, const char *const *names,
                             int32_t count, trmi_feature *out, trm_error *err);
/* Walk a list: false at its end, or with *malformed set. Packed and unpacked forms are read. */
typedef struct trmi_feature_walk {
    trmi_proto list, packed; /* the list's message, and the packed run of it that is being read */
    bool malformed;
} trmi_feature_walk;
trmi_feature_walk trmi_feature_begin(const trmi_feature *feature);
bool trmi_feature_next_bytes(trmi_feature_walk *walk, const uint8_t **data, size_t *bytes);
bool trmi_feature_next_float(trmi_feature_walk *walk, float *out);
bool trmi_feature_next_int64(trmi_feature_walk *walk, int64_t *out);

/* A set of mapped files with the place of every record. */
typedef struct trmi_tfrecord_file {
    char *path;
    const char *name; /* its tail */
    trmi_mapping mapping;
    size_t *offsets;
    int64_t records, capacity;
} trmi_tfrecord_file;
typedef struct trmi_tfrecord_set {
    trmi_arena arena;
    trmi_tfrecord_file *files;
    int64_t file_count, file_capacity;
    int64_t records;
} trmi_tfrecord_set;
/* `path` is a file, or a folder whose files with one of the prefixes (NULL: all whose name contains
 * "tfrecord" or "-of-") are read in order of name. */
trm_status trmi_tfrecord_open(const char *path, const char *const *prefixes, int32_t prefix_count,
                              trmi_tfrecord_set *out, trm_error *err);
void trmi_tfrecord_close(trmi_tfrecord_set *set);
/* The data of record `index` of the whole set, checksum verified. */
trm_status trmi_tfrecord_read(const trmi_tfrecord_set *set, int64_t index, const uint8_t **data,
                              size_t *bytes, trm_error *err);
/* The entry `check` of sources over such a set: looks at the files of the batch's samples. */
trm_status trmi_tfrecord_check(const trmi_tfrecord_set *set, const trmi_batch_work *work,
                               trm_status status, trm_error *err);
void trmi_tfrecord_place(const trmi_tfrecord_set *set, int64_t index, char *text, size_t size);

#endif
