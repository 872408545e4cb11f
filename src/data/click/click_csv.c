/* SPDX-License-Identifier: Apache-2.0 */
/* Text with separated columns: Criteo's and Avazu's files, and any CSV file. Columns have roles:
 * label, number, key, bag of keys, or skipped. Fields may be quoted.
 *
 *   open_text: header and options --> columns (role, slot) --> index of lines
 *   parse_csv_row: line --next_field--> fields --add_field--> row
 *
 * The file is mapped, and rows are parsed when a batch needs them, so opening costs one pass over
 * the lines. Prefetch threads parse different rows at the same time. */
#include "base/error.h"
#include "base/mapping.h"
#include "data/click/click.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* columns at most; keys of a bag unless the options say otherwise */
enum { COLUMNS_MAX = 4096, DEFAULT_BAG = 16 };

/* One column. */
typedef struct column {
    const char *name;     /* in the arena; NULL: none */
    trm_column_role role; /* how its fields are read */
    int32_t slot;         /* index among the dense numbers or the key fields */
    int32_t last_chars;   /* use only so many characters from the end; 0: all */
} column;

/* The source. */
typedef struct csv {
    trmi_click_source click;       /* must be the first member */
    trmi_arena arena;              /* path, columns and their names */
    trmi_mapping mapping;          /* the file */
    trmi_lines lines;              /* without the header */
    const char *path;              /* for messages */
    column *columns;               /* [column_count] in the order of the file */
    int32_t column_count;          /* that each row must have */
    int64_t header_lines, bag_max; /* lines before the first row; keys of a bag, at most */
    char separator, bag_separator; /* between columns, and between the keys of a bag */
} csv;

/* ---- a field of a line ---- */

/* The position in a line. */
typedef struct cursor {
    const char *at, *end; /* next character, and end of the line */
    bool done;            /* the last field was returned */
} cursor;

/* Finds the next field, without its quotes. Returns false at the end of the line, or (with *bad) if
 * a quote is not closed. */
static bool next_field(cursor *c, char separator, const char **begin, const char **end, bool *bad) {
    if (c->done) {
        return false;
    }
    if (c->at < c->end && *c->at == '"') {
        /* Two quotes inside a quoted field stand for one; they are kept as two. */
        const char *close = c->at + 1;
        while (close < c->end && !(*close == '"' && (close + 1 == c->end || close[1] != '"'))) {
            close += *close == '"' ? 2 : 1;
        }
        if (close >= c->end || (close + 1 < c->end && close[1] != separator)) {
            *bad = true;
            return false;
        }
        *begin = c->at + 1;
        *end = close;
        c->at = close + 1;
    } else {
        *begin = c->at;
        while (c->at < c->end && *c->at != separator) {
            c->at++;
        }
        *end = c->at;
    }
    c->done = c->at == c->end;
    c->at += !c->done;
    return true;
}

/* ---- a row ---- */

/* One field of a line. */
typedef struct field {
    const char *line;        /* the start of the line, for messages */
    int32_t at;              /* index of its column */
    const char *begin, *end; /* its text, without quotes */
} field;

/* Fails with line, column, text and what was expected. */
static trm_status fail_at(const csv *set, const field *f, const char *expected, trm_error *err) {
    int shown = f->end - f->begin > 24 ? 24 : (int)(f->end - f->begin);
    const char *name = set->columns[f->at].name;
    return TRMI_FAIL(
        err, TRM_CORRUPT, "%s: line %lld, column %d%s%s%s: '%.*s', %s expected", set->path,
        (long long)(trmi_lines_number(&set->lines, f->line) + set->header_lines), (int)f->at + 1,
        name ? " (" : "", name ? name : "", name ? ")" : "", shown, f->begin, expected);
}

/* Adds the keys of a bag; empty parts are skipped. */
static trm_status add_bag(const csv *set, const field *f, trmi_row *row, trm_error *err) {
    const column *c = &set->columns[f->at];
    int64_t count = 0;
    for (const char *part = f->begin; part <= f->end;) {
        const char *stop = memchr(part, set->bag_separator, (size_t)(f->end - part));
        stop = stop != NULL ? stop : f->end;
        if (stop > part) {
            if (count++ == set->bag_max ||
                !trmi_row_add(
                    row, trmi_key_of_text(&set->click.keyer, c->slot, part, (size_t)(stop - part)),
                    1)) {
                char expected[64];
                snprintf(expected, sizeof expected, "at most %lld keys (bag_max)",
                         (long long)set->bag_max);
                return fail_at(set, f, expected, err);
            }
        }
        part = stop + 1;
    }
    return TRM_OK;
}

/* Interprets a field by the role of its column.
 *   errors  CORRUPT */
static trm_status add_field(const csv *set, const field *f, trmi_row *row, trm_error *err) {
    const column *c = &set->columns[f->at];
    const char *begin = f->begin, *end = f->end;
    double number = 0;
    switch (c->role) {
    case TRM_COLUMN_LABEL:
        if (!trmi_parse_number(begin, end, &number) ||
            !trmi_click_label(&set->click, number, &row->label)) {
            return fail_at(set, f, "label 0 or 1", err);
        }
        return TRM_OK;
    case TRM_COLUMN_DENSE:
        if (begin == end) {
            row->dense[c->slot] = set->click.missing_dense;
            return TRM_OK;
        }
        if (!trmi_parse_number(begin, end, &number)) {
            return fail_at(set, f, "a number", err);
        }
        row->dense[c->slot] = trmi_click_dense(&set->click, number);
        return TRM_OK;
    case TRM_COLUMN_KEY:
        /* Take the last characters, such as the hour, the last two characters of a time. */
        if (c->last_chars > 0 && end - begin > c->last_chars) {
            begin = end - c->last_chars;
        }
        /* The row has room for one key in each key column. */
        (void)trmi_row_add(
            row, trmi_key_of_text(&set->click.keyer, c->slot, begin, (size_t)(end - begin)), 1);
        break;
    case TRM_COLUMN_BAG: TRMI_TRY(add_bag(set, f, row, err)); break;
    default: return TRM_OK;
    }
    /* rows with bags have the end of each field */
    if (row->ends != NULL) {
        row->ends[c->slot] = row->count;
    }
    return TRM_OK;
}

/* Reads one row. The number of columns must be exact. */
static trm_status parse_csv_row(const trmi_click_source *source, int64_t index, trmi_row *row,
                                trm_error *err) {
    const csv *set = (const csv *)source;
    const char *line_end;
    field f = {.at = 0};
    trmi_lines_at(&set->lines, index, &f.line, &line_end);
    cursor c = {.at = f.line, .end = line_end};
    bool bad = false;
    /* Fields beyond the known columns are only counted, for the message. */
    for (; next_field(&c, set->separator, &f.begin, &f.end, &bad); f.at++) {
        if (f.at < set->column_count) {
            TRMI_TRY(add_field(set, &f, row, err));
        }
    }
    if (bad) {
        const field rest = {f.line, f.at < set->column_count ? f.at : set->column_count - 1, c.at,
                            c.end};
        return fail_at(set, &rest, "a closed quote and a separator", err);
    }
    if (f.at != set->column_count) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld: %d columns, %d expected", set->path,
                         (long long)(trmi_lines_number(&set->lines, f.line) + set->header_lines),
                         (int)f.at, (int)set->column_count);
    }
    return TRM_OK;
}

/* ---- columns ---- */

/* Avazu's columns, as in the header of its files. Of "hour" (YYMMDDHH) only the hour of the day
 * counts. */
static const trm_column avazu_columns[] = {
    {"id", TRM_COLUMN_SKIP, 0},          {"click", TRM_COLUMN_LABEL, 0},
    {"hour", TRM_COLUMN_KEY, 2},         {"C1", TRM_COLUMN_KEY, 0},
    {"banner_pos", TRM_COLUMN_KEY, 0},   {"site_id", TRM_COLUMN_KEY, 0},
    {"site_domain", TRM_COLUMN_KEY, 0},  {"site_category", TRM_COLUMN_KEY, 0},
    {"app_id", TRM_COLUMN_KEY, 0},       {"app_domain", TRM_COLUMN_KEY, 0},
    {"app_category", TRM_COLUMN_KEY, 0}, {"device_id", TRM_COLUMN_KEY, 0},
    {"device_ip", TRM_COLUMN_KEY, 0},    {"device_model", TRM_COLUMN_KEY, 0},
    {"device_type", TRM_COLUMN_KEY, 0},  {"device_conn_type", TRM_COLUMN_KEY, 0},
    {"C14", TRM_COLUMN_KEY, 0},          {"C15", TRM_COLUMN_KEY, 0},
    {"C16", TRM_COLUMN_KEY, 0},          {"C17", TRM_COLUMN_KEY, 0},
    {"C18", TRM_COLUMN_KEY, 0},          {"C19", TRM_COLUMN_KEY, 0},
    {"C20", TRM_COLUMN_KEY, 0},          {"C21", TRM_COLUMN_KEY, 0}};

/* Columns of Criteo's files: a label, 13 numbers, 26 keys. */
enum { CRITEO_DENSE = 13, CRITEO_KEYS = 26, CRITEO_COLUMNS = 40 };

/* Allocates the columns. */
static trm_status allocate_columns(csv *set, int32_t count, trm_error *err) {
    set->column_count = count;
    return TRMI_NEW_IN(err, &set->arena, set->columns, count, "for %d columns", (int)count);
}

/* Sets the columns that Criteo's files have: label, 13 numbers, 26 keys. */
static trm_status criteo_columns(csv *set, trm_error *err) {
    TRMI_TRY(allocate_columns(set, CRITEO_COLUMNS, err));
    for (int32_t i = 0; i < CRITEO_COLUMNS; i++) {
        char name[8] = "label";
        if (i > 0) {
            snprintf(name, sizeof name, i <= CRITEO_DENSE ? "I%d" : "C%d",
                     (int)(i <= CRITEO_DENSE ? i : i - CRITEO_DENSE));
        }
        set->columns[i] = (column){.name = trmi_arena_strdup(&set->arena, name),
                                   .role = i == 0              ? TRM_COLUMN_LABEL
                                           : i <= CRITEO_DENSE ? TRM_COLUMN_DENSE
                                                               : TRM_COLUMN_KEY};
    }
    return TRM_OK;
}

/* Returns true for the usual names of a label column. */
static bool label_name(const char *name) {
    return strcasecmp(name, "label") == 0 || strcasecmp(name, "click") == 0 ||
           strcasecmp(name, "target") == 0 || strcasecmp(name, "y") == 0;
}

/* Makes the columns from the header: roles by name from `wanted`, or, without it, the label by its
 * usual name and keys otherwise. */
static trm_status named_columns(csv *set, const char *line, const char *line_end,
                                const trm_column *wanted, int32_t wanted_count, trm_error *err) {
    /* Room for the most columns that are possible; their number is known at the end. */
    cursor c = {.at = line, .end = line_end};
    const char *begin, *end;
    bool bad = false;
    int32_t count = 0, matched = 0;
    TRMI_TRY(allocate_columns(set, COLUMNS_MAX, err));
    while (next_field(&c, set->separator, &begin, &end, &bad)) {
        if (count == COLUMNS_MAX) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: more than %d columns", set->path, COLUMNS_MAX);
        }
        char *name = trmi_arena_printf(&set->arena, "%.*s", (int)(end - begin), begin);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &set->arena, "for the header of %s", set->path));
        column *col = &set->columns[count++];
        *col = (column){.name = name, .role = TRM_COLUMN_SKIP};
        /* Roles by the usual names, or by the columns of the options. */
        if (wanted_count == 0) {
            col->role = label_name(name) ? TRM_COLUMN_LABEL : TRM_COLUMN_KEY;
        }
        for (int32_t i = 0; i < wanted_count; i++) {
            if (wanted[i].name != NULL && strcmp(wanted[i].name, name) == 0) {
                col->role = wanted[i].role;
                col->last_chars = wanted[i].last_chars;
                matched++;
            }
        }
    }
    set->column_count = count;
    if (bad) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: line 1: a quote that is not closed", set->path);
    }
    /* every wanted column must be in the header */
    for (int32_t i = 0; i < wanted_count && matched < wanted_count; i++) {
        bool found = false;
        for (int32_t k = 0; k < count; k++) {
            found |= wanted[i].name != NULL && strcmp(wanted[i].name, set->columns[k].name) == 0;
        }
        if (!found) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: no column %s in the header", set->path,
                             wanted[i].name != NULL ? wanted[i].name : "without name");
        }
    }
    return TRM_OK;
}

/* Makes the columns of a file without a header from the options. */
static trm_status placed_columns(csv *set, const trm_column *wanted, int32_t count,
                                 trm_error *err) {
    if (count == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: no header line and no columns given", set->path);
    }
    TRMI_TRY(allocate_columns(set, count, err));
    for (int32_t i = 0; i < count; i++) {
        char *name = wanted[i].name != NULL ? trmi_arena_strdup(&set->arena, wanted[i].name) : NULL;
        set->columns[i] =
            (column){.name = name, .role = wanted[i].role, .last_chars = wanted[i].last_chars};
    }
    return TRM_OK;
}

/* Numbers the dense columns and key fields, and finds the largest number of keys in a row.
 *   errors  INVALID unless there is one label and at least one input */
static trm_status number_columns(csv *set, trm_error *err) {
    int32_t labels = 0;
    trmi_click_source *click = &set->click;
    /* Set the positions in the row. */
    for (int32_t i = 0; i < set->column_count; i++) {
        column *c = &set->columns[i];
        labels += c->role == TRM_COLUMN_LABEL;
        if (c->role == TRM_COLUMN_DENSE) {
            c->slot = click->dense_count++;
        } else if (c->role == TRM_COLUMN_KEY || c->role == TRM_COLUMN_BAG) {
            c->slot = click->field_count++;
            click->ragged |= c->role == TRM_COLUMN_BAG;
            click->entries_max += c->role == TRM_COLUMN_BAG ? set->bag_max : 1;
        }
    }
    if (labels != 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %d label columns, one expected (label, click, target or y, or name "
                         "the columns)",
                         set->path, (int)labels);
    }
    if (click->dense_count + click->field_count == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a label, but no inputs", set->path);
    }
    return TRM_OK;
}

/* Returns whether the first line is a header: the field at the label's position is no number, or,
 * if no columns are given, no field is a number. */
static bool looks_like_header(const csv *set, const char *line, const char *line_end,
                              const trm_column *wanted, int32_t count) {
    cursor c = {.at = line, .end = line_end};
    const char *begin, *end;
    bool bad = false, none = true;
    double number;
    for (int32_t i = 0; next_field(&c, set->separator, &begin, &end, &bad); i++) {
        bool numeric = trmi_parse_number(begin, end, &number);
        if (i < count && wanted[i].role == TRM_COLUMN_LABEL) {
            return !numeric;
        }
        none &= !numeric;
    }
    return count == 0 && none;
}

/* ---- opening ---- */

/* Writes file and line of a row. */
static void write_csv_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    const csv *set = (const csv *)source;
    const char *line, *end;
    trmi_lines_at(&set->lines, index, &line, &end);
    snprintf(text, size, "%s: line %lld", set->path,
             (long long)(trmi_lines_number(&set->lines, line) + set->header_lines));
}

/* The functions of a source (data/pipeline/source.h); they only pass on what click.c and
 * base/mapping.h do for all readers of click data. */
static void describe_csv(const trmi_source *source, trmi_report *report) {
    trmi_report_put(report, trmi_string("path", ((const csv *)source)->path));
    trmi_click_describe(source, report);
}

static trm_status check_csv(const trmi_source *source, const trmi_batch_work *work,
                            trm_status status, trm_error *err) {
    (void)work;
    return trmi_mapping_check(&((const csv *)source)->mapping, status, err);
}

static void destroy_csv(trmi_source *source) {
    csv *set = (csv *)source;
    trmi_mapping_close(&set->mapping);
    trmi_lines_free(&set->lines);
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

#define CSV_OPS(name)                                                                              \
    {                                                                                              \
        .kind = name, .fields = trmi_click_fields, .fill = trmi_click_fill, .check = check_csv,    \
        .place = write_csv_place, .describe = describe_csv, .destroy = destroy_csv                 \
    }
static const trmi_source_ops csv_ops = CSV_OPS("csv");
static const trmi_source_ops criteo_ops = CSV_OPS("criteo");
static const trmi_source_ops avazu_ops = CSV_OPS("avazu");

/* Opens the file: options, header, columns, index of lines. */
static trm_status open_text(csv *set, const trm_click_options *o, trm_error *err) {
    /* Options, with the values that Criteo and Avazu fix. */
    bool criteo = set->click.base.ops == &criteo_ops, avazu = set->click.base.ops == &avazu_ops;
    const trm_column *wanted = avazu ? avazu_columns : o->columns;
    int32_t wanted_count =
        avazu ? (int32_t)(sizeof avazu_columns / sizeof *avazu_columns) : o->column_count;
    TRMI_TRY(trmi_click_configure(&set->click, o, criteo, err));
    set->separator = criteo ? '\t' : o->separator != 0 ? o->separator : ',';
    set->bag_separator = o->bag_separator != 0 ? o->bag_separator : '|';
    set->bag_max = o->bag_max != 0 ? o->bag_max : DEFAULT_BAG;
    TRMI_TRY(trmi_mapping_open(set->path, &set->mapping, err));
    if (set->mapping.bytes == 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: an empty file; one row a line expected", set->path);
    }
    /* Find the first line, without its line break. */
    const char *data = (const char *)set->mapping.data, *end = data + set->mapping.bytes;
    const char *first = memchr(data, '\n', set->mapping.bytes);
    const char *next = first != NULL ? first + 1 : end;
    first = first != NULL ? first : end;
    first -= first > data && first[-1] == '\r';
    /* With a header line, columns get their roles by name, otherwise by position. */
    bool header = !criteo && (o->header == TRM_HEADER_YES ||
                              (o->header == TRM_HEADER_AUTO &&
                               looks_like_header(set, data, first, wanted, wanted_count)));
    if (criteo) {
        TRMI_TRY(criteo_columns(set, err));
    } else if (header) {
        TRMI_TRY(named_columns(set, data, first, wanted, wanted_count, err));
    } else {
        TRMI_TRY(placed_columns(set, wanted, wanted_count, err));
    }
    /* Set the positions, and the index of the lines after the header. */
    TRMI_TRY(number_columns(set, err));
    TRMI_TRY(trmi_click_ready(&set->click, set->path, err));
    set->header_lines = header;
    const char *begin = header ? next : data;
    TRMI_TRY(trmi_lines_index(begin, (size_t)(end - begin), &set->lines, NULL, NULL, err));
    if (set->lines.rows == 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: a header, but no rows", set->path);
    }
    set->click.base.count = set->lines.rows;
    return TRM_OK;
}

/* Contract in click.h. The three kinds differ in their columns only; Avazu and Criteo have fixed
 * ones. */
trm_status trmi_csv_source(const char *kind, const char *path, const trm_click_options *options,
                           trmi_click_source **out, trm_error *err) {
    static const trm_click_options defaults = {0};
    csv *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->click.base.ops = strcmp(kind, "criteo") == 0  ? &criteo_ops
                          : strcmp(kind, "avazu") == 0 ? &avazu_ops
                                                       : &csv_ops;
    set->click.base.classes = 2;
    set->click.parse = parse_csv_row;
    set->path = trmi_arena_strdup(&set->arena, path);
    trm_status status = set->path == NULL
                            ? TRMI_NO_MEMORY(err, "to open %s", path)
                            : open_text(set, options != NULL ? options : &defaults, err);
    status = trmi_mapping_check(&set->mapping, status, err);
    if (status != TRM_OK) {
        destroy_csv(&set->click.base);
        return status;
    }
    *out = &set->click;
    return TRM_OK;
}
