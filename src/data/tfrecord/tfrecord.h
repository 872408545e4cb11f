/* SPDX-License-Identifier: Apache-2.0 */
/* data/tfrecord/tfrecord.h: sets of TFRecord files (base/format/tfrecord.h), and a reader of
 * tf.Example with bounds checks.
 *
 *   Example { features: 1 { feature: 1 map { key: 1, value: 2 Feature {
 *             bytes_list: 1 | float_list: 2 | int64_list: 3 { value: 1 ... } } } } }
 */
#ifndef TRMI_DATA_TFRECORD_H
#define TRMI_DATA_TFRECORD_H

#include "data/pipeline/source.h"

#include "base/mapping.h"
#include "base/format/proto.h"
#include "base/format/tfrecord.h"

/* Kinds of lists of a feature. */
typedef enum trmi_feature_kind {
    TRMI_FEATURE_ABSENT,
    TRMI_FEATURE_BYTES,
    TRMI_FEATURE_FLOAT,
    TRMI_FEATURE_INT64
} trmi_feature_kind;
/* One feature of a tf.Example. Its data are borrowed from the record. */
typedef struct trmi_feature {
    trmi_feature_kind kind; /* ABSENT: `data` is not valid */
    const uint8_t *data;    /* the list's message, inside the record */
    size_t bytes;           /* length of `data` */
} trmi_feature;

/* Finds `count` features by name; out[i].kind is TRMI_FEATURE_ABSENT for those that are missing.
 *   errors  CORRUPT for malformed bytes; the message lacks the place, which the caller appends */
trm_status trmi_example_find(const uint8_t *data, size_t bytes, const char *const *names,
                             int32_t count, trmi_feature *out, trm_error *err);
/* Reading a list: the next functions return false at the end, or with walk->malformed set. Packed
 * and unpacked forms are read. */
typedef struct trmi_feature_walk {
    trmi_proto list, packed; /* the list's message, and the packed numbers that are being read */
    bool malformed;
} trmi_feature_walk;
/* Starts at the first value of the list. An absent feature has no values. */
trmi_feature_walk trmi_feature_begin(const trmi_feature *feature);
/* Return the next value of a list of bytes, floats or integers. Each may be called only for its own
 * kind. */
bool trmi_feature_next_bytes(trmi_feature_walk *walk, const uint8_t **data, size_t *bytes);
bool trmi_feature_next_float(trmi_feature_walk *walk, float *out);
bool trmi_feature_next_int64(trmi_feature_walk *walk, int64_t *out);

/* Mapped files with an index of their records. */
typedef struct trmi_tfrecord_file {
    char *path;                /* in the set's arena */
    const char *name;          /* the last part of the path */
    trmi_mapping mapping;      /* the whole file */
    size_t *offsets;           /* [records] positions */
    int64_t records, capacity; /* length and capacity of `offsets` */
} trmi_tfrecord_file;
/* All files of a data set, with the records numbered through. */
typedef struct trmi_tfrecord_set {
    trmi_arena arena;                  /* paths */
    trmi_tfrecord_file *files;         /* [file_count] sorted by name */
    int64_t file_count, file_capacity; /* length and capacity of `files` */
    int64_t records;                   /* of all files */
} trmi_tfrecord_set;
/* Opens a file, or the files of a folder in the order of their names: those with one of the
 * prefixes, or (NULL) all whose name contains "tfrecord" or "-of-".
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_tfrecord_open(const char *path, const char *const *prefixes, int32_t prefix_count,
                              trmi_tfrecord_set *out, trm_error *err);
/* Closes the files and empties the set. */
void trmi_tfrecord_close(trmi_tfrecord_set *set);
/* Returns the data of record `index` of the whole set, after verifying its checksum. */
trm_status trmi_tfrecord_read(const trmi_tfrecord_set *set, int64_t index, const uint8_t **data,
                              size_t *bytes, trm_error *err);
/* Checks the mappings of the files that have the batch's samples; the function `check` of sources
 * with such a set. work NULL: all files. */
trm_status trmi_tfrecord_check(const trmi_tfrecord_set *set, const trmi_batch_work *work,
                               trm_status status, trm_error *err);
/* Writes file and record of sample `index`, for messages. */
void trmi_tfrecord_place(const trmi_tfrecord_set *set, int64_t index, char *text, size_t size);

#endif
