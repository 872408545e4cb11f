/* SPDX-License-Identifier: Apache-2.0 */
/* Click data as TFRecords of tf.Example. The caller names the features and their roles, because a
 * tf.Example does not say which one is the label.
 *
 *   record --trmi_example_find--> features by column --role--> label, dense numbers, keys
 *
 * A record is verified when it is read; a fault is reported with file, record and feature. */
#include "base/error.h"
#include "data/click/click.h"
#include "data/tfrecord/tfrecord.h"

#include <math.h>
#include <stdio.h>

/* features at most; keys of a bag unless the options say otherwise */
enum { COLUMNS_MAX = 1024, DEFAULT_BAG = 16 };

/* The source. */
typedef struct records {
    trmi_click_source click; /* must be the first member */
    trmi_tfrecord_set set;   /* the files */
    trmi_arena arena;        /* names and roles */
    int32_t column_count;    /* number of features that are read */
    const char **names;      /* [column_count] names and roles of the features */
    trm_column_role *roles;  /* [column_count] */
    int64_t bag_max;         /* keys of a bag, at most */
} records;

/* Writes file and record of a row. */
static void write_record_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    trmi_tfrecord_place(&((const records *)source)->set, index, text, size);
}

/* Fails with record, feature and what was expected. */
static trm_status fail_at(const records *set, int64_t index, int32_t column, const char *expected,
                          trm_error *err) {
    char where[TRMI_PLACE_BYTES];
    write_record_place(&set->click.base, index, where, sizeof where);
    return TRMI_FAIL(err, TRM_CORRUPT, "%s, feature %s: %s expected", where, set->names[column],
                     expected);
}

/* Reads the only number of a float or int64 list. Returns 1 if there is one, 0 if the feature is
 * missing or empty, -1 otherwise. */
static int one_number(const trmi_feature *feature, double *out) {
    trmi_feature_walk walk = trmi_feature_begin(feature);
    float real;
    int64_t whole;
    int count = 0;
    /* Count all numbers of the list, to find more than one. */
    if (feature->kind == TRMI_FEATURE_FLOAT) {
        for (; trmi_feature_next_float(&walk, &real); count++) {
            *out = (double)real;
        }
    } else if (feature->kind == TRMI_FEATURE_INT64) {
        for (; trmi_feature_next_int64(&walk, &whole); count++) {
            *out = (double)whole;
        }
    } else {
        return feature->kind == TRMI_FEATURE_ABSENT ? 0 : -1;
    }
    return walk.malformed || count > 1 || (count == 1 && !isfinite(*out)) ? -1 : count;
}

/* Appends all keys of a feature to the row. Returns their number, -1 if the feature is malformed or
 * has more than `limit`. */
static int64_t add_keys(const records *set, const trmi_feature *feature, int32_t slot,
                        int64_t limit, trmi_row *row) {
    trmi_feature_walk walk = trmi_feature_begin(feature);
    const trmi_keyer *keyer = &set->click.keyer;
    int64_t count = 0, number;
    const uint8_t *text;
    size_t bytes;
    if (feature->kind == TRMI_FEATURE_FLOAT) {
        return -1;
    }
    /* numbers are keys by their value, texts by their bytes */
    for (;; count++) {
        int64_t key;
        if (feature->kind == TRMI_FEATURE_INT64) {
            if (!trmi_feature_next_int64(&walk, &number)) {
                break;
            }
            key = trmi_key_of_number(keyer, slot, number);
        } else {
            if (!trmi_feature_next_bytes(&walk, &text, &bytes)) {
                break;
            }
            key = trmi_key_of_text(keyer, slot, text, bytes);
        }
        if (count == limit || !trmi_row_add(row, key, 1)) {
            return -1;
        }
    }
    return walk.malformed ? -1 : count;
}

/* Reads one record into a row: looks up all features, then goes through the columns in order. A
 * missing number or key gets the value for missing ones; a missing label is an error.
 *   errors  CORRUPT, IO */
static trm_status parse_record(const trmi_click_source *source, int64_t index, trmi_row *row,
                               trm_error *err) {
    const records *set = (const records *)source;
    const uint8_t *data;
    size_t bytes;
    trmi_feature features[COLUMNS_MAX];
    TRMI_TRY(trmi_tfrecord_read(&set->set, index, &data, &bytes, err));
    trm_status status =
        trmi_example_find(data, bytes, set->names, set->column_count, features, err);
    if (status != TRM_OK) {
        char where[TRMI_PLACE_BYTES];
        write_record_place(&source->base, index, where, sizeof where);
        (void)trmi_error_append(err, " (%s)", where);
        return status;
    }
    /* Dense numbers and fields are counted in the order of the columns. */
    int32_t dense = 0, field = 0;
    for (int32_t c = 0; c < set->column_count; c++) {
        double number = 0;
        bool bag = set->roles[c] == TRM_COLUMN_BAG;
        int numbers;
        int64_t keys;
        switch (set->roles[c]) {
        case TRM_COLUMN_LABEL:
            if (one_number(&features[c], &number) != 1 ||
                !trmi_click_label(source, number, &row->label)) {
                return fail_at(set, index, c, "one label 0 or 1", err);
            }
            break;
        case TRM_COLUMN_DENSE:
            numbers = one_number(&features[c], &number);
            if (numbers < 0) {
                return fail_at(set, index, c, "one finite number or none", err);
            }
            row->dense[dense++] =
                numbers == 0 ? source->missing_dense : trmi_click_dense(source, number);
            break;
        case TRM_COLUMN_KEY:
        case TRM_COLUMN_BAG:
            keys = add_keys(set, &features[c], field, bag ? set->bag_max : 1, row);
            if (keys < 0) {
                return fail_at(set, index, c, bag ? "at most bag_max keys" : "one key or none",
                               err);
            }
            /* A field of one key always has one. */
            if (keys == 0 && !bag) {
                (void)trmi_row_add(row, trmi_key_missing(&source->keyer, field), 1);
            }
            /* Ragged rows have the end of each field. */
            if (row->ends != NULL) {
                row->ends[field] = row->count;
            }
            field++;
            break;
        default: break;
        }
    }
    return TRM_OK;
}

/* The functions of a source (data/pipeline/source.h). */
static void describe_records(const trmi_source *source, trmi_report *report) {
    const records *set = (const records *)source;
    trmi_report_put(report, trmi_int("files", set->set.file_count),
                    trmi_string("first", set->set.files[0].path));
    trmi_click_describe(source, report);
}

static trm_status check_records(const trmi_source *source, const trmi_batch_work *work,
                                trm_status status, trm_error *err) {
    return trmi_tfrecord_check(&((const records *)source)->set, work, status, err);
}

static void destroy_records(trmi_source *source) {
    records *set = (records *)source;
    trmi_tfrecord_close(&set->set);
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

static const trmi_source_ops record_ops = {.kind = "tfrecord-clicks",
                                           .fields = trmi_click_fields,
                                           .fill = trmi_click_fill,
                                           .check = check_records,
                                           .place = write_record_place,
                                           .describe = describe_records,
                                           .destroy = destroy_records};

/* Takes over the columns of the options, and counts dense columns, fields and keys.
 *   errors  INVALID unless there is one label and each column has a name; NOMEM */
static trm_status take_columns(records *set, const char *path, const trm_click_options *o,
                               trm_error *err) {
    trmi_click_source *click = &set->click;
    if (o == NULL || o->column_count < 1 || o->column_count > COLUMNS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: name the features (options->columns, 1..%d): a tf.Example does not "
                         "say which is the label",
                         path, COLUMNS_MAX);
    }
    TRMI_TRY(trmi_click_configure(click, o, false, err));
    set->bag_max = o->bag_max != 0 ? o->bag_max : DEFAULT_BAG;
    set->names = trmi_arena_alloc(&set->arena, (size_t)o->column_count * sizeof *set->names);
    set->roles = trmi_arena_alloc(&set->arena, (size_t)o->column_count * sizeof *set->roles);
    /* Copy the columns and add up what a row may have. */
    int32_t labels = 0;
    for (int32_t i = 0; i < o->column_count && set->names != NULL && set->roles != NULL; i++) {
        set->roles[i] = o->columns[i].role;
        set->names[i] =
            o->columns[i].name == NULL ? NULL : trmi_arena_strdup(&set->arena, o->columns[i].name);
        if (set->names[i] == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: feature %d has no name", path, (int)i);
        }
        labels += set->roles[i] == TRM_COLUMN_LABEL;
        click->dense_count += set->roles[i] == TRM_COLUMN_DENSE;
        bool bag = set->roles[i] == TRM_COLUMN_BAG;
        click->field_count += bag || set->roles[i] == TRM_COLUMN_KEY;
        click->entries_max += bag ? set->bag_max : set->roles[i] == TRM_COLUMN_KEY;
        click->ragged |= bag;
        set->column_count++;
    }
    if (set->column_count < o->column_count) {
        return TRMI_NO_MEMORY(err, "for %d columns", (int)o->column_count);
    }
    if (labels != 1) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %d label features, one expected", path,
                         (int)labels);
    }
    return trmi_click_ready(click, path, err);
}

trm_status trmi_click_tfrecord_source(const char *path, const trm_click_options *options,
                                      trmi_click_source **out, trm_error *err) {
    records *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->click.base.ops = &record_ops;
    set->click.base.classes = 2;
    set->click.parse = parse_record;
    trm_status status = take_columns(set, path, options, err);
    if (status == TRM_OK) {
        status = trmi_tfrecord_open(path, NULL, 0, &set->set, err);
    }
    if (status != TRM_OK) {
        destroy_records(&set->click.base);
        return status;
    }
    set->click.base.count = set->set.records;
    *out = &set->click;
    return TRM_OK;
}
