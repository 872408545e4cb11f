/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/data_click.h: rows of click data to batches: Criteo, Avazu and other CSV, libsvm, slots,
 * tf.Example, and a generator whose best possible AUC is known. The datasets are refined and read
 * as in data.h (no image transforms). A batch has the fields
 *
 *     label    float32 [N]      0 or 1
 *     dense    float32 [N, D]   unless there are no dense columns
 *     keys     int64 [N, F]     when every row has exactly one key in each of F fields
 *
 * or, as soon as one field may hold several (a bag), ragged:
 *
 *     keys     int64 [K]        fields of row 0, then of row 1, ...
 *     offsets  int64 [N*F + 1]  bag b is keys[offsets[b] .. offsets[b+1])
 *     values   float32 [K]      libsvm only: the weight of each key
 *
 * Rows over batch->samples are zero, with empty bags. */
#ifndef TRIREME_DATA_CLICK_H
#define TRIREME_DATA_CLICK_H

#include "trireme/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- how text becomes numbers ---------------------------------------------------------------- */

typedef enum trm_column_role {
    TRM_COLUMN_SKIP,
    TRM_COLUMN_LABEL,
    TRM_COLUMN_DENSE,
    TRM_COLUMN_KEY,
    TRM_COLUMN_BAG /* several keys in one field */
} trm_column_role;

typedef struct trm_column {
    const char *name; /* in the header line, or the feature's name in a tf.Example */
    trm_column_role role;
    int32_t last_chars; /* keys: only the last so many characters count; 0 = all */
} trm_column;

typedef enum trm_dense_form {
    TRM_DENSE_DEFAULT, /* log for Criteo, raw otherwise */
    TRM_DENSE_RAW,
    TRM_DENSE_LOG /* log(1 + max(x, 0)), as DLRM does */
} trm_dense_form;

typedef enum trm_header_line { TRM_HEADER_AUTO, TRM_HEADER_YES, TRM_HEADER_NO } trm_header_line;

typedef struct trm_vocabulary trm_vocabulary;

/* Values of one text in two fields are different keys, unless same_as says otherwise. Missing ones
 * are 0 where keys are bounded (buckets or vocabulary); with unbounded keys each field has a key of
 * its own for "missing". */
typedef struct trm_click_options {
    int64_t buckets;                  /* keys are 1 + hash % (buckets - 1), 0 = missing;
                                       * 0 = unbounded: 63-bit hashes, for dynamic tables */
    const trm_vocabulary *vocabulary; /* instead: ids from 1, 0 = missing or unknown. Borrowed */
    /* bounded keys of field f are moved by those of the fields before: one table */
    bool shared_table;
    /* Values of field f are keyed as those of field same_as[f]: equal texts in the two are equal
     * keys. Borrowed as long as the dataset lives; fields from same_as_count on are keyed as
     * themselves. */
    const int32_t *same_as;
    int32_t same_as_count;
    uint64_t hash_seed;
    trm_dense_form dense;
    float missing_dense;   /* the value of an empty dense column, after the form */
    float label_threshold; /* not 0: a label is 1 from this value on (ratings) */

    /* CSV and tf.Example: roles by name, or by position where there is no header. Columns that are
     * not named are skipped. Without any (CSV with header): the column label, click, target or y is
     * the label and all others are keys. */
    const trm_column *columns;
    int32_t column_count;
    char separator;         /* 0 = comma */
    char bag_separator;     /* 0 = | */
    int64_t bag_max;        /* most keys of a bag; 0 = 16. More is an error */
    trm_header_line header; /* auto: a first line whose label is no number */

    const struct trm_clicks_options *generator; /* trm_dataset_open, kind clicks */
} trm_click_options;

/* The sources below: `path` is a file, or a folder with train and test. All errors of opening name
 * the file; those of rows
 * name line or record when they are read.   error  IO, CORRUPT, INVALID (options, columns), NOMEM
 *
 * Criteo: label, 13 integers, 26 categories, tab-separated, no header. */
TRM_API TRM_MUST_USE trm_status trm_dataset_criteo(const char *path,
                                                   const trm_click_options *options,
                                                   trm_dataset **out, trm_error *err);
/* id (skipped), click, hour (its last two digits), C1 .. C21: 22 keys. With or without header. */
TRM_API TRM_MUST_USE trm_status trm_dataset_avazu(const char *path,
                                                  const trm_click_options *options,
                                                  trm_dataset **out, trm_error *err);
/* Any separator, quotes around fields (but no line breaks in them). The file is scanned for lines
 * here; a bad field is reported with line and column when it is read. */
TRM_API TRM_MUST_USE trm_status trm_dataset_csv(const char *path, const trm_click_options *options,
                                                trm_dataset **out, trm_error *err);
/* "label index:value ..." gives one field of bags, "label field:index:value ..." (libffm) one per
 * field. Labels 1 and +1, 0 and -1. Indices are the keys unless buckets or a vocabulary is given.
 */
TRM_API TRM_MUST_USE trm_status trm_dataset_libsvm(const char *path,
                                                   const trm_click_options *options,
                                                   trm_dataset **out, trm_error *err);
/* "slot:value ...", as Paddle's recommendation models read: the slot click or label is the label,
 * dense_feature or dense gives numbers (in each row as many as in the first), any other is a field
 * of bags, its values hashed. Fields are in the order of the slots' numbers, then names;
 * options->columns chooses slots, roles and their order instead. */
TRM_API TRM_MUST_USE trm_status trm_dataset_slots(const char *path,
                                                  const trm_click_options *options,
                                                  trm_dataset **out, trm_error *err);
/* TFRecords of tf.Example: options->columns names the features. Dense and label from float or int64
 * lists, keys from bytes (hashed) or int64 (as they are, unless bounded). */
TRM_API TRM_MUST_USE trm_status trm_dataset_click_tfrecord(const char *path,
                                                           const trm_click_options *options,
                                                           trm_dataset **out, trm_error *err);

/* ---- vocabularies ------------------------------------------------------------------------------
 */

/* Reads a whole file, or the training part of a folder (kind criteo, avazu, csv, libsvm, slots or
 * tfrecord-clicks; options as for reading)
 * and numbers the values that come at least min_count times, by field, in order of appearance.
 *   owns   caller, trm_vocabulary_destroy    error  those of the source, and of each row */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_build(const char *kind, const char *path,
                                                     const trm_click_options *options,
                                                     int64_t min_count, trm_vocabulary **out,
                                                     trm_error *err);
TRM_API void trm_vocabulary_destroy(trm_vocabulary *vocabulary);
/* Text: a line "trireme-vocabulary 1 FIELDS SEED", then "field hash" lines in order of the ids. The
 * file appears whole or not
 * at all.   error  IO, NOSPACE; of load IO, CORRUPT with the line, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_vocabulary_save(const trm_vocabulary *vocabulary,
                                                    const char *path, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_vocabulary_load(const char *path, trm_vocabulary **out,
                                                    trm_error *err);
TRM_API int32_t trm_vocabulary_fields(const trm_vocabulary *vocabulary);
/* Rows that a table of this field needs: ids and 0. */
TRM_API int64_t trm_vocabulary_rows(const trm_vocabulary *vocabulary, int32_t field);

/* ---- generated clicks
 *  ---------------------------------------------------------------------------- */

/* A planted model: logit = bias + sum of a weight per key + sum of weights times dense inputs + sum
 * over pairs of fields of <u_key, u_key'>; the label is a coin with that probability. Keys are
 * Zipf-distributed ranks, dense inputs standard normal. Row i is a function of (seed, i). */
typedef struct trm_clicks_options {
    /* 0 = 1,000,000 (training); test rows lie elsewhere and never repeat them */
    int64_t rows;
    int64_t test_rows;  /* 0 = rows / 10 */
    int32_t fields;     /* 0 = 26; -1 = none */
    int32_t dense;      /* 0 = 13; -1 = none */
    int64_t vocabulary; /* keys a field; 0 = 100,000 */
    double zipf;        /* exponent; 0 = 1.1 */
    double click_rate;  /* 0 = 0.25; sets the bias approximately */
    double key_scale;   /* deviation of the sum of key weights; 0 = 1 */
    double dense_scale; /* ... of the dense part; 0 = 0.5 */
    double pair_scale;  /* ... of the pairs; 0 = 0.5; -1 = none */
    bool wide_keys;     /* 63-bit keys without order, for dynamic tables */
    /* keys of field f are moved by f * vocabulary: one table. Not with wide_keys */
    bool shared_table;
    uint64_t seed;
} trm_clicks_options;
TRM_API TRM_MUST_USE trm_status trm_dataset_clicks(const trm_clicks_options *options,
                                                   trm_usage usage, trm_dataset **out,
                                                   trm_error *err);

/* Rows without any meaning, made before reading begins and kept: batches that cost next to nothing,
 * for measuring. Keys as numpy.random.zipf(zipf) % vocabulary, of one table (those of field f are
 * moved by f * vocabulary) unless own_tables; dense inputs uniform in [0, 1); labels are coins. */
typedef struct trm_random_clicks_options {
    int64_t count;      /* 0 = 32768 */
    int32_t fields;     /* 0 = 26 */
    int32_t dense;      /* 0 = 13; -1 = none */
    int64_t vocabulary; /* 0 = 100,000 */
    double zipf;        /* above 1; 0 = 1.2 */
    double click_rate;  /* 0 = 0.25 */
    bool own_tables;    /* keys of each field begin at 0 */
    uint64_t seed;
} trm_random_clicks_options;
TRM_API TRM_MUST_USE trm_status trm_dataset_random_clicks(const trm_random_clicks_options *options,
                                                          trm_dataset **out, trm_error *err);

/* What the planted probabilities themselves reach: nothing can do better on average. `auc` and
 * `logloss` are expectations over the coins (Monte Carlo over rows, so their only error is the
 * choice of rows); the realised ones use these rows' labels: compare a model on the same rows with
 * those. */
typedef struct trm_clicks_bayes {
    double auc, logloss, click_rate;
    double realized_auc, realized_logloss;
} trm_clicks_bayes;
/* Over the first `rows` test rows (0 = all of them).   error  INVALID, NOMEM    cost  about 8 microseconds and 24 bytes a row
 */
TRM_API TRM_MUST_USE trm_status trm_clicks_measure(const trm_clicks_options *options, int64_t rows,
                                                   trm_clicks_bayes *out, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
