/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the forms "label index:value ..." (libsvm) and "label field:index:value ..." (libffm).
 * The first row with an entry decides which. Rows are ragged and weighted.
 *
 * Opening reads the file once: it indexes the lines and finds the largest field and the longest
 * row, from which the shapes of batches follow. Then row n is parsed where it is needed, from the
 * mapped file, by any thread: nothing is kept between rows. A row that is wrong is an error with
 * file, line and column; limits (FIELDS_MAX, ENTRIES_MAX) are checked before memory is taken. */
#include "base/checked.h"
#include "base/error.h"
#include "base/mapping.h"
#include "data/click/click.h"

#include <stdio.h>
#include <string.h>

enum { FIELDS_MAX = 65536, ENTRIES_MAX = 1 << 24 }; /* limits: fields, keys of a row */

/* The source. */
typedef struct libsvm {
    trmi_click_source click; /* must be the first member */
    trmi_arena arena;        /* the path */
    trmi_mapping mapping;    /* the file */
    trmi_lines lines;        /* its rows */
    const char *path;        /* for messages */
    bool with_fields;        /* libffm */
} libsvm;

/* Blanks between tokens. */
static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Finds the next token. Returns false at the end of the line or at a comment. */
static bool next_token(const char **at, const char *end, const char **begin, const char **stop) {
    while (*at < end && is_blank(**at)) {
        ++*at;
    }
    if (*at == end || **at == '#') {
        return false;
    }
    *begin = *at;
    while (*at < end && !is_blank(**at)) {
        ++*at;
    }
    *stop = *at;
    return true;
}

/* Fails with line, column, the token and what was expected. */
static trm_status fail_at(const libsvm *set, const char *line, const char *begin, const char *end,
                          const char *expected, trm_error *err) {
    int shown = end - begin > 24 ? 24 : (int)(end - begin);
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld, column %lld: '%.*s', %s expected", set->path,
                     (long long)trmi_lines_number(&set->lines, line), (long long)(begin - line) + 1,
                     shown, begin, expected);
}

/* Parses "index:value" or "field:index:value". */
static bool parse_entry(const libsvm *set, const char *begin, const char *end, int64_t *field,
                        int64_t *index, double *value) {
    *field = 0;
    /* In libffm the field comes first. */
    if (set->with_fields) {
        const char *colon = memchr(begin, ':', (size_t)(end - begin));
        if (colon == NULL || !trmi_parse_integer(begin, colon, field)) {
            return false;
        }
        begin = colon + 1;
    }
    const char *colon = memchr(begin, ':', (size_t)(end - begin));
    return colon != NULL && trmi_parse_integer(begin, colon, index) &&
           trmi_parse_number(colon + 1, end, value) && *index >= 0 && *field >= 0 &&
           *field < set->click.field_count;
}

/* Reads one row: the label, then the entries, whose fields must ascend, because a field's keys must
 * be next to each other.
 *   errors  CORRUPT with line and column */
static trm_status parse_libsvm_row(const trmi_click_source *source, int64_t row_index,
                                   trmi_row *row, trm_error *err) {
    const libsvm *set = (const libsvm *)source;
    const char *line, *end, *begin, *stop;
    trmi_lines_at(&set->lines, row_index, &line, &end);
    const char *at = line;
    double number;
    /* Read the label. */
    if (!next_token(&at, end, &begin, &stop)) {
        return fail_at(set, line, line, end, "a label", err);
    }
    if (!trmi_parse_number(begin, stop, &number)) {
        return fail_at(set, line, begin, stop, "label 0, 1 or -1", err);
    }
    if (number == -1 && source->label_threshold == 0) { /* libsvm's label of the negative class */
        number = 0;
    }
    if (!trmi_click_label(source, number, &row->label)) {
        return fail_at(set, line, begin, stop, "label 0, 1 or -1", err);
    }
    /* The entries. */
    int64_t current = 0;
    while (next_token(&at, end, &begin, &stop)) {
        int64_t field, index;
        if (!parse_entry(set, begin, stop, &field, &index, &number)) {
            return fail_at(set, line, begin, stop,
                           set->with_fields ? "field:index:value" : "index:value", err);
        }
        if (field < current) {
            return fail_at(set, line, begin, stop, "fields in ascending order", err);
        }
        /* close the fields between the previous entry and this one */
        for (; current < field; current++) {
            row->ends[current] = row->count;
        }
        int64_t key = trmi_key_of_number(&source->keyer, (int32_t)field, index);
        if (!trmi_row_add(row, key, (float)number)) {
            return fail_at(set, line, begin, stop, "fewer entries", err);
        }
    }
    /* The fields after the last entry are empty. */
    for (; current < source->field_count; current++) {
        row->ends[current] = row->count;
    }
    return TRM_OK;
}

/* Results of the first pass over the file. */
typedef struct survey {
    int64_t entries_max, field_max; /* keys of the longest row, largest field */
    bool first_seen, with_fields;   /* an entry was seen; it had a field */
} survey;

/* Adds one row to the results: number of entries, form, largest field. */
static void survey_row(void *context, const char *line, const char *line_end) {
    survey *s = context;
    const char *at = line, *begin, *end;
    int64_t entries = -1; /* the label is no entry */
    while (next_token(&at, line_end, &begin, &end)) {
        entries++;
        const char *colon = memchr(begin, ':', (size_t)(end - begin));
        if (colon == NULL) {
            continue;
        }
        if (!s->first_seen) {
            s->first_seen = true;
            s->with_fields = memchr(colon + 1, ':', (size_t)(end - colon - 1)) != NULL;
        }
        int64_t field;
        if (s->with_fields && trmi_parse_integer(begin, colon, &field)) {
            s->field_max = trmi_max_i64(s->field_max, field);
        }
    }
    s->entries_max = trmi_max_i64(s->entries_max, entries);
}

/* Writes file and line of a row. */
static void write_libsvm_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    const libsvm *set = (const libsvm *)source;
    const char *line, *end;
    trmi_lines_at(&set->lines, index, &line, &end);
    snprintf(text, size, "%s: line %lld", set->path,
             (long long)trmi_lines_number(&set->lines, line));
}

/* The functions of a source (data/pipeline/source.h); they only pass on what click.c and
 * base/mapping.h do for all readers of click data. */
static void describe_libsvm(const trmi_source *source, trmi_report *report) {
    trmi_report_put(report, trmi_string("path", ((const libsvm *)source)->path));
    trmi_click_describe(source, report);
}

static trm_status check_libsvm(const trmi_source *source, const trmi_batch_work *work,
                               trm_status status, trm_error *err) {
    (void)work;
    return trmi_mapping_check(&((const libsvm *)source)->mapping, status, err);
}

static void destroy_libsvm(trmi_source *source) {
    libsvm *set = (libsvm *)source;
    trmi_mapping_close(&set->mapping);
    trmi_lines_free(&set->lines);
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

static const trmi_source_ops libsvm_ops = {.kind = "libsvm",
                                           .fields = trmi_click_fields,
                                           .fill = trmi_click_fill,
                                           .check = check_libsvm,
                                           .place = write_libsvm_place,
                                           .describe = describe_libsvm,
                                           .destroy = destroy_libsvm};

/* Opens the file; one pass indexes the lines and finds fields and longest row. */
static trm_status open_text(libsvm *set, const trm_click_options *options, trm_error *err) {
    survey s = {0};
    TRMI_TRY(trmi_click_configure(&set->click, options, false, err));
    TRMI_TRY(trmi_mapping_open(set->path, &set->mapping, err));
    TRMI_TRY(trmi_lines_index((const char *)set->mapping.data, set->mapping.bytes, &set->lines,
                              survey_row, &s, err));
    if (set->lines.rows == 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: no rows", set->path);
    }
    if (s.entries_max < 1 || s.entries_max > ENTRIES_MAX || s.field_max >= FIELDS_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: rows of at most %lld entries in %lld fields: no libsvm file",
                         set->path, (long long)s.entries_max, (long long)s.field_max + 1);
    }
    /* Rows have any number of keys, each with a value. */
    set->with_fields = s.with_fields;
    set->click.field_count = (int32_t)s.field_max + 1;
    set->click.entries_max = s.entries_max;
    set->click.ragged = set->click.weighted = true;
    set->click.base.count = set->lines.rows;
    return trmi_click_ready(&set->click, set->path, err);
}

trm_status trmi_libsvm_source(const char *path, const trm_click_options *options,
                              trmi_click_source **out, trm_error *err) {
    libsvm *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->click.base.ops = &libsvm_ops;
    set->click.base.classes = 2;
    set->click.parse = parse_libsvm_row;
    set->path = trmi_arena_strdup(&set->arena, path);
    trm_status status =
        set->path == NULL ? TRMI_NO_MEMORY(err, "to open %s", path) : open_text(set, options, err);
    status = trmi_mapping_check(&set->mapping, status, err);
    if (status != TRM_OK) {
        destroy_libsvm(&set->click.base);
        return status;
    }
    *out = &set->click;
    return TRM_OK;
}
