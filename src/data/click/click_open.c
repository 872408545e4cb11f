/* SPDX-License-Identifier: Apache-2.0 */
/* Opening click data by kind: files, folders with a file for training and one for testing; and
 * building vocabularies from them.
 *
 * A folder has train.csv and test.csv, or the same with another ending that is known.
 * tfrecord-clicks reads folders itself.
 *
 * A vocabulary is made in one pass over the training data; missing values are not counted, because
 * every vocabulary gives them id 0. */
#include "base/arguments.h"
#include "base/error.h"
#include "data/click/click.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true for the kinds of files with click data. */
static bool is_click_kind(const char *kind) {
    static const char *const kinds[] = {"criteo", "avazu", "csv",
                                        "libsvm", "slots", "tfrecord-clicks"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Opens the reader of a kind. */
static trm_status source_of(const char *kind, const char *path, const trm_click_options *options,
                            trmi_click_source **out, trm_error *err) {
    if (strcmp(kind, "criteo") == 0 || strcmp(kind, "avazu") == 0 || strcmp(kind, "csv") == 0) {
        return trmi_csv_source(kind, path, options, out, err);
    }
    if (strcmp(kind, "libsvm") == 0) {
        return trmi_libsvm_source(path, options, out, err);
    }
    if (strcmp(kind, "slots") == 0) {
        return trmi_slots_source(path, options, out, err);
    }
    if (strcmp(kind, "tfrecord-clicks") == 0) {
        return trmi_click_tfrecord_source(path, options, out, err);
    }
    return TRMI_FAIL(
        err, TRM_INVALID,
        "unknown dataset %s: synth, random, cifar10, imagefolder, tfrecord, clicks, "
        "criteo, avazu, csv, libsvm, slots, tfrecord-clicks, tokens, text and jsonl are known",
        kind);
}

/* Contract in click.h. The first ending of the list that exists decides. */
bool trmi_click_file_in(const char *folder, trm_usage usage, char *path, size_t size) {
    static const char *const tails[] = {".csv", ".tsv",    ".txt", ".libsvm",
                                        ".svm", ".libffm", ".ffm", ".tfrecord"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        int length = snprintf(path, size, "%s/%s%s", folder,
                              usage == TRM_USAGE_TEST ? "test" : "train", tails[i]);
        if (length < (int)size && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

trm_status trmi_click_file_open(const char *kind, const char *path,
                                const trm_click_options *options, trm_usage usage,
                                trm_dataset **out, trm_error *err) {
    char file[4096];
    struct stat info;
    bool folder = is_click_kind(kind) && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    /* Find the file of the usage in the folder. */
    if (folder && strcmp(kind, "tfrecord-clicks") != 0) {
        if (!trmi_click_file_in(path, usage, file, sizeof file)) {
            return TRMI_FAIL(err, TRM_IO, "%s: no %s.csv, .tsv, .txt or .libsvm in it", path,
                             usage == TRM_USAGE_TEST ? "test" : "train");
        }
        path = file;
    }
    trmi_click_source *source;
    TRMI_TRY(source_of(kind, path, options, &source, err));
    return trmi_dataset_create(&source->base, out, err);
}

trm_status trm_dataset_click_file(const char *kind, const char *path,
                                  const trm_click_options *options, trm_dataset **out,
                                  trm_error *err) {
    TRMI_NEED(err, kind, path, out);
    return trmi_click_file_open(kind, path, options, TRM_USAGE_TRAIN, out, err);
}

trm_status trmi_clicks_open(const trm_click_options *options, trm_usage usage, trm_dataset **out,
                            trm_error *err) {
    return trm_dataset_clicks(options != NULL ? options->generator : NULL, usage, out, err);
}

/* Counts the keys of all rows in the vocabulary. Missing values are not counted, because a
 * vocabulary gives them id 0 without an entry.
 *   errors  those of reading, NOMEM */
static trm_status count_keys(const trmi_click_source *source, trm_vocabulary *v, trm_error *err) {
    size_t entries = (size_t)source->entries_max, fields = (size_t)source->field_count;
    /* Memory for one row, which is used for all. */
    int64_t *keys = trmi_alloc(entries * sizeof *keys);
    int64_t *ends = trmi_alloc(fields * sizeof *ends);
    float *dense = trmi_alloc((size_t)source->dense_count * sizeof *dense);
    trm_status status = TRM_OK;
    if (keys == NULL || ends == NULL || dense == NULL) {
        status = TRMI_NO_MEMORY(err, "to count keys");
    }
    for (int64_t i = 0; status == TRM_OK && i < source->base.count; i++) {
        trmi_row row = {.dense = dense,
                        .keys = keys,
                        .ends = source->ragged ? ends : NULL,
                        .capacity = source->entries_max};
        status = source->parse(source, i, &row, err);
        int32_t field = 0;
        for (int64_t k = 0; status == TRM_OK && k < row.count; k++) {
            /* Without ragged rows key k belongs to field k; otherwise `ends` gives the field. */
            if (!source->ragged) {
                field = (int32_t)k;
            }
            while (source->ragged && k >= ends[field]) {
                field++;
            }
            if (keys[k] != trmi_key_missing(&source->keyer, field) &&
                !trmi_vocabulary_count(v, trmi_keyed_as(&source->keyer, field),
                                       (uint64_t)keys[k])) {
                status = TRMI_NO_MEMORY(err, "for a vocabulary");
            }
        }
    }
    /* The check finds pages that could not be read; the counts are then wrong. */
    trmi_free(keys);
    trmi_free(ends);
    trmi_free(dense);
    return source->base.ops->check(&source->base, NULL, status, err);
}

/* Contract in trireme/data.h. Reads the training data once: counts the hash of each value, then
 * gives ids to those that are frequent enough. */
trm_status trm_vocabulary_build(const char *kind, const char *path,
                                const trm_click_options *options, int64_t min_count,
                                trm_vocabulary **out, trm_error *err) {
    TRMI_NEED(err, kind, path, out);
    /* The vocabulary stores unbounded hashes, so the keys must be those. */
    trm_click_options unbounded = options != NULL ? *options : (trm_click_options){0};
    unbounded.buckets = 0;
    unbounded.vocabulary = NULL;
    unbounded.shared_table = false;
    char file[4096];
    struct stat info;
    /* A vocabulary comes from the training data only. */
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode) && strcmp(kind, "tfrecord-clicks") != 0 &&
        trmi_click_file_in(path, TRM_USAGE_TRAIN, file, sizeof file)) {
        path = file;
    }
    trmi_click_source *source;
    trm_vocabulary *v = NULL;
    TRMI_TRY(source_of(kind, path, &unbounded, &source, err));
    /* Count all values, then number those that are frequent enough. */
    trm_status status = TRM_OK;
    if (source->field_count == 0) {
        status = TRMI_FAIL(err, TRM_INVALID, "%s: no key columns, so no vocabulary", path);
    }
    if (status == TRM_OK) {
        status = trmi_vocabulary_create(source->field_count, unbounded.hash_seed, &v, err);
    }
    if (status == TRM_OK) {
        status = count_keys(source, v, err);
    }
    if (status == TRM_OK) {
        status = trmi_vocabulary_number(v, min_count, err);
    }
    source->base.ops->destroy(&source->base);
    if (status != TRM_OK) {
        trm_vocabulary_destroy(v);
        return status;
    }
    *out = v;
    return TRM_OK;
}
