/* SPDX-License-Identifier: Apache-2.0 */
/* data/click/click.h: click data between their readers and the batch. A row has a label, dense
 * numbers, and keys in fields (categories as 64-bit numbers).
 *
 *   reader: parse row i --> trmi_row (label, dense, keys through trmi_keyer) --> batch
 *
 * Readers: click_csv.c, click_libsvm.c, click_slots.c, click_tfrecord.c; generated rows:
 * click_gen.c, random_clicks.c. click.c has what they share, click_key.c the keys.
 *
 * Invariants: where keys are bounded, key 0 is a missing or unknown value. The hash of a value
 * never changes, because saved models depend on it. */
#ifndef TRMI_DATA_CLICK_H
#define TRMI_DATA_CLICK_H

#include "trireme/data.h"

#include "data/pipeline/source.h"

/* ---- keys -------------------------------------------------------------------------------- */

/* How values become keys. Exactly one of: unbounded hashes, buckets, or a vocabulary. */
typedef struct trmi_keyer {
    int64_t buckets;                  /* keys are 0 .. buckets - 1; 0: unbounded */
    const trm_vocabulary *vocabulary; /* keys are its ids; NULL: none */
    bool shared;            /* all fields share one table: each field's keys have an offset */
    uint64_t seed;          /* of the hashes */
    const int32_t *same_as; /* [same_as_count] the field as which each field is keyed */
    int32_t same_as_count;  /* fields beyond have keys of their own */
} trmi_keyer;

/* Returns the field as which the values of `field` are keyed (fields with the same meaning share
 * keys). */
static inline int32_t trmi_keyed_as(const trmi_keyer *keyer, int32_t field) {
    return field < keyer->same_as_count ? keyer->same_as[field] : field;
}

/* Returns the 64-bit hash of a value of a field; vocabularies store these hashes. Saved models
 * depend on the values, so a test keeps them from changing. */
uint64_t trmi_key_hash(uint64_t seed, int32_t field, const void *text, size_t bytes);
/* Returns the key of a text; an empty text counts as missing. */
int64_t trmi_key_of_text(const trmi_keyer *keyer, int32_t field, const void *text, size_t bytes);
/* Returns the key of a number. Unbounded keys are the number itself. */
int64_t trmi_key_of_number(const trmi_keyer *keyer, int32_t field, int64_t number);
/* Returns the key of a missing value: 0 if keys are bounded. */
int64_t trmi_key_missing(const trmi_keyer *keyer, int32_t field);

/* Returns the id of a hash: 0 if it is unknown, otherwise 1, 2, ... */
int64_t trmi_vocabulary_id(const trm_vocabulary *vocabulary, int32_t field, uint64_t hash);
uint64_t trmi_vocabulary_seed(const trm_vocabulary *vocabulary);
/* Creates an empty vocabulary. To build it, count every value, then number those that occur often
 * enough. */
trm_status trmi_vocabulary_create(int32_t fields, uint64_t seed, trm_vocabulary **out,
                                  trm_error *err);
/* Counts one occurrence. Returns false if there is no memory. */
bool trmi_vocabulary_count(trm_vocabulary *vocabulary, int32_t field, uint64_t hash);
/* Gives ids to values with at least `min_count` occurrences, in order of appearance, and drops the
 * others. */
trm_status trmi_vocabulary_number(trm_vocabulary *vocabulary, int64_t min_count, trm_error *err);

/* ---- rows -------------------------------------------------------------------------------- */

/* One row under construction: views of the batch. `keys` and `values` have room for `capacity`. */
typedef struct trmi_row {
    float label;   /* 0 or 1 */
    float *dense;  /* [dense_count] */
    int64_t *keys; /* [capacity] */
    float *values; /* NULL: the data have no values */
    /* [fields] number of keys up to the end of each field; NULL: one key in each field */
    int64_t *ends;
    int64_t count, capacity; /* keys of the row so far, at most */
} trmi_row;

typedef struct trmi_click_source trmi_click_source;
/* The first member of all sources of click data. */
struct trmi_click_source {
    trmi_source base;                 /* must be the first member */
    int32_t dense_count, field_count; /* dense numbers and key fields of a row */
    bool ragged, weighted;            /* fields have any number of keys; keys have values */
    int64_t entries_max;              /* keys of a row, at most */
    trmi_keyer keyer;                 /* how values become keys */
    trm_dense_form dense_form;        /* transformation of dense numbers */
    /* dense value of an empty column; labels of at least this count as clicks (0: only 0 and 1 are
     * labels) */
    float missing_dense, label_threshold;
    /* Reads one row. Errors name file, line and column. */
    trm_status (*parse)(const trmi_click_source *source, int64_t index, trmi_row *row,
                        trm_error *err);
};

/* Implement `fields` and `fill` of every click source, and a part of `describe`. */
int32_t trmi_click_fields(const trmi_source *source, int64_t size, trmi_field *fields);
trm_status trmi_click_fill(const trmi_source *source, trmi_picture_scratch *scratch,
                           const trmi_batch_work *work, trm_error *err);
void trmi_click_describe(const trmi_source *source, trmi_report *report);

/* Takes over the options (NULL: defaults). log_by_default: dense numbers are log-transformed unless
 * the options say otherwise.
 *   errors  INVALID */
trm_status trmi_click_configure(trmi_click_source *source, const trm_click_options *options,
                                bool log_by_default, trm_error *err);
/* Checks, once the fields are known, that a vocabulary has the same number. `path` is for
 * messages. */
trm_status trmi_click_ready(const trmi_click_source *source, const char *path, trm_error *err);
/* Applies the transformation of dense numbers. */
float trmi_click_dense(const trmi_click_source *source, double value);
/* Converts a label to 0 or 1. Returns false if it is neither and there is no threshold. */
bool trmi_click_label(const trmi_click_source *source, double value, float *out);
/* Appends a key to the row. Returns false if the row is full. */
bool trmi_row_add(trmi_row *row, int64_t key, float value);
/* Parses a decimal number. Returns false unless all of [at, end) is one finite number. */
bool trmi_parse_number(const char *at, const char *end, double *out);
/* Parses a decimal whole number. Returns false unless all of [at, end) is one that fits. */
bool trmi_parse_integer(const char *at, const char *end, int64_t *out);

/* ---- lines of a text file ----
 *
 * An index of the non-empty lines: the positions of one line in `stride`, from which the others are
 * found. */

/* The non-empty lines of a text, by number. */
typedef struct trmi_lines {
    const char *data;                      /* the text, borrowed */
    size_t bytes;                          /* length of the text */
    int64_t rows;                          /* non-empty lines */
    int64_t stride;                        /* rows between two anchors */
    size_t *anchors;                       /* [anchor_count] positions */
    int64_t anchor_count, anchor_capacity; /* length and capacity of `anchors` */
} trmi_lines;
/* Indexes the text. `visit`, if given, is called once for each row. One row in sixteen has an
 * anchor, fewer in huge files.
 *   errors  NOMEM */
typedef void (*trmi_line_visit)(void *context, const char *line, const char *end);
trm_status trmi_lines_index(const char *data, size_t bytes, trmi_lines *out, trmi_line_visit visit,
                            void *context, trm_error *err);
void trmi_lines_free(trmi_lines *lines);
/* Finds row `index`, without its line break. */
void trmi_lines_at(const trmi_lines *lines, int64_t index, const char **line, const char **end);
/* Returns the number, from 1, of the line that begins at `line`, for messages. It counts from the
 * start, so only errors may call it. */
int64_t trmi_lines_number(const trmi_lines *lines, const char *line);

/* ---- opening by name ----
 *
 * Opens generated clicks. */

trm_status trmi_clicks_open(const trm_click_options *options, trm_usage usage, trm_dataset **out,
                            trm_error *err);
/* Writes the path of the file train.* or test.* in a folder. Returns false if there is none. */
bool trmi_click_file_in(const char *folder, trm_usage usage, char *path, size_t size);
/* Opens a file of click data; `path` may be a folder with train.* and test.*.
 *   errors  INVALID for an unknown kind, and those of the reader */
trm_status trmi_click_file_open(const char *kind, const char *path,
                                const trm_click_options *options, trm_usage usage,
                                trm_dataset **out, trm_error *err);

/* Open a reader without a dataset around it, for building vocabularies. *out is destroyed through
 * its ops. */
trm_status trmi_csv_source(const char *kind, const char *path, const trm_click_options *options,
                           trmi_click_source **out, trm_error *err);
trm_status trmi_libsvm_source(const char *path, const trm_click_options *options,
                              trmi_click_source **out, trm_error *err);
trm_status trmi_slots_source(const char *path, const trm_click_options *options,
                             trmi_click_source **out, trm_error *err);
trm_status trmi_click_tfrecord_source(const char *path, const trm_click_options *options,
                                      trmi_click_source **out, trm_error *err);

#endif
