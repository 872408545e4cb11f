/* SPDX-License-Identifier: Apache-2.0 */
/* data/click/click.h: rows of click data between their readers and the batch.
 *
 *   reader: parse row i --> trmi_row (label, dense, keys through trmi_keyer) --> batch tensors
 */
#ifndef TRMI_DATA_CLICK_H
#define TRMI_DATA_CLICK_H

#include "trireme/data_click.h"

#include "data/pipeline/source.h"

/* ---- keys -------------------------------------------------------------------------------- */

typedef struct trmi_keyer {
    int64_t buckets;
    const trm_vocabulary *vocabulary;
    bool shared;
    uint64_t seed;
    const int32_t *same_as; /* [same_as_count] */
    int32_t same_as_count;
} trmi_keyer;

/* The field as which the values of `field` are keyed. */
static inline int32_t trmi_keyed_as(const trmi_keyer *keyer, int32_t field) {
    return field < keyer->same_as_count ? keyer->same_as[field] : field;
}

/* The 64-bit hash of a value of a field; what vocabularies store. Its values are part of the
 * meaning of saved models: frozen by a test. */
uint64_t trmi_key_hash(uint64_t seed, int32_t field, const void *text, size_t bytes);
int64_t trmi_key_of_text(const trmi_keyer *keyer, int32_t field, const void *text, size_t bytes);
/* Integer keys pass through when unbounded. */
int64_t trmi_key_of_number(const trmi_keyer *keyer, int32_t field, int64_t number);
int64_t trmi_key_missing(const trmi_keyer *keyer, int32_t field);

/* Looks up a hash: 0 if unknown. */
int64_t trmi_vocabulary_id(const trm_vocabulary *vocabulary, int32_t field, uint64_t hash);
uint64_t trmi_vocabulary_seed(const trm_vocabulary *vocabulary);
/* Counting while a vocabulary is built. */
trm_status trmi_vocabulary_create(int32_t fields, uint64_t seed, trm_vocabulary **out,
                                  trm_error *err);
bool trmi_vocabulary_count(trm_vocabulary *vocabulary, int32_t field, uint64_t hash);
trm_status trmi_vocabulary_number(trm_vocabulary *vocabulary, int64_t min_count, trm_error *err);

/* ---- rows -------------------------------------------------------------------------------- */

/* One row under construction: views into the batch. `keys` has room for `capacity`. */
typedef struct trmi_row {
    float label;
    float *dense;
    int64_t *keys;
    float *values; /* NULL unless the schema has them */
    int64_t *ends; /* by field, entries so far; NULL unless ragged */
    int64_t count, capacity;
} trmi_row;

typedef struct trmi_click_source trmi_click_source;
struct trmi_click_source {
    trmi_source base;
    int32_t dense_count, field_count;
    bool ragged, weighted;
    int64_t entries_max; /* keys in a row at most */
    trmi_keyer keyer;
    trm_dense_form dense_form;
    float missing_dense, label_threshold;
    /* Fills the row; errors name file, line and column. */
    trm_status (*parse)(const trmi_click_source *source, int64_t index, trmi_row *row,
                        trm_error *err);
};

/* The ops entries `fields` and `fill` of every click source. */
int32_t trmi_click_fields(const trmi_source *source, int64_t size, trmi_field *fields);
trm_status trmi_click_fill(const trmi_source *source, trmi_picture_scratch *scratch,
                           const trmi_batch_work *work, trm_error *err);
void trmi_click_describe(const trmi_source *source, trmi_text *text);

/* Takes over what the options say (NULL = defaults); TRM_INVALID where it is impossible. */
trm_status trmi_click_configure(trmi_click_source *source, const trm_click_options *options,
                                bool log_by_default, trm_error *err);
/* Afterwards, when the fields are known: a vocabulary must have as many. */
trm_status trmi_click_ready(const trmi_click_source *source, const char *path, trm_error *err);
float trmi_click_dense(const trmi_click_source *source, double value);
/* 0/1 from a label's number; false if it is neither and there is no threshold. */
bool trmi_click_label(const trmi_click_source *source, double value, float *out);
/* Appends one key; false when the row is full. */
bool trmi_row_add(trmi_row *row, int64_t key, float value);
/* Decimal number in [at, end): false unless all of it is one finite number. */
bool trmi_parse_number(const char *at, const char *end, double *out);
/* Whole numbers only. */
bool trmi_parse_integer(const char *at, const char *end, int64_t *out);

/* ---- lines of a text file ----------------------------------------------------------------------
 */

typedef struct trmi_lines {
    const char *data;
    size_t bytes;
    int64_t rows;   /* non-empty lines */
    int64_t stride; /* rows between anchors */
    size_t *anchors;
    int64_t anchor_count, anchor_capacity;
} trmi_lines;
/* `visit`, if given, sees each row once. Anchors are kept for one row in sixteen, fewer in huge
 * files. */
typedef void (*trmi_line_visit)(void *context, const char *line, const char *end);
trm_status trmi_lines_index(const char *data, size_t bytes, trmi_lines *out, trmi_line_visit visit,
                            void *context, trm_error *err);
void trmi_lines_free(trmi_lines *lines);
/* Row `index` without its line break. */
void trmi_lines_at(const trmi_lines *lines, int64_t index, const char **line, const char **end);
/* The 1-based number of the line that begins at `line`, for messages. */
int64_t trmi_lines_number(const trmi_lines *lines, const char *line);

/* ---- by name ------------------------------------------------------------------------------- */

trm_status trmi_clicks_open(const trm_click_options *options, trm_usage usage, trm_dataset **out,
                            trm_error *err);
/* The file train.* or test.* of a folder; false without one. */
bool trmi_click_file_in(const char *folder, trm_usage usage, char *path, size_t size);
/* `path` may be such a folder. */
trm_status trmi_click_file_open(const char *kind, const char *path,
                                const trm_click_options *options, trm_usage usage,
                                trm_dataset **out, trm_error *err);

/* Sources without the dataset around them, for building vocabularies. */
trm_status trmi_csv_source(const char *kind, const char *path, const trm_click_options *options,
                           trmi_click_source **out, trm_error *err);
trm_status trmi_libsvm_source(const char *path, const trm_click_options *options,
                              trmi_click_source **out, trm_error *err);
trm_status trmi_slots_source(const char *path, const trm_click_options *options,
                             trmi_click_source **out, trm_error *err);
trm_status trmi_click_tfrecord_source(const char *path, const trm_click_options *options,
                                      trmi_click_source **out, trm_error *err);

#endif
