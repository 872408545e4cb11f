/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the form "click:0 dense_feature:0.05 dense_feature:0.3 1:715353 2:817085 2:5441 ...",
 * which Paddle's recommendation models read. A slot is the label, or gives numbers (as many in each
 * row), or is a field with any number of keys.
 *
 * A first pass over the file finds the slots, unless the caller chooses them. Fields
 * are ordered by name, so that files of one data set have the same fields. */
#include "base/checked.h"
#include "base/error.h"
#include "base/mapping.h"
#include "data/click/click.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* limits: slots, slots of numbers, keys of a row */
enum { SLOTS_MAX = 4096, DENSE_SLOTS_MAX = 64, ENTRIES_MAX = 1 << 24 };

/* One slot of the file. */
typedef struct slot {
    const char *name;     /* in the file or the arena; not terminated */
    size_t length;        /* of the name */
    trm_column_role role; /* LABEL, DENSE or BAG */
    int32_t place; /* slots of keys: number of the field; slots of numbers: number among those */
    /* slots of numbers: position of the first in the dense row, and how many each row has */
    int64_t first, count;
} slot;

/* The source. */
typedef struct slots {
    trmi_click_source click; /* must be the first member */
    trmi_arena arena;        /* path, slots and chosen names */
    trmi_mapping mapping;    /* the file */
    trmi_lines lines;        /* its rows */
    const char *path;        /* for messages */
    slot *all;               /* [slot_count] room for SLOTS_MAX */
    int32_t slot_count;      /* length of `all` */
    bool chosen;             /* the caller has chosen the slots; others are skipped */
} slots;

/* One "slot:value" of a line. */
typedef struct token {
    const char *begin, *colon, *end; /* colon: NULL if there is none */
    slot *slot;                      /* NULL: not among the slots */
} token;

/* Returns whether a character separates entries of a line. */
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Finds a slot by name. Slots come in nearly the same order in each row, so the search starts at
 * *hint. */
static slot *find_slot(const slots *set, const char *name, size_t length, int32_t *hint) {
    for (int32_t i = 0; i < set->slot_count; i++) {
        int32_t at = (*hint + i) % set->slot_count;
        slot *s = &set->all[at];
        if (s->length == length && memcmp(s->name, name, length) == 0) {
            *hint = at;
            return s;
        }
    }
    return NULL;
}

/* Finds the next token of a line. Returns false at its end. */
static bool next_token(const slots *set, const char **at, const char *end, int32_t *hint,
                       token *out) {
    /* Skip blanks, and then take everything up to the next one. */
    while (*at < end && is_blank(**at)) {
        ++*at;
    }
    if (*at == end) {
        return false;
    }
    out->begin = *at;
    while (*at < end && !is_blank(**at)) {
        ++*at;
    }
    out->end = *at;
    out->colon = memchr(out->begin, ':', (size_t)(out->end - out->begin));
    out->slot = out->colon == NULL
                    ? NULL
                    : find_slot(set, out->begin, (size_t)(out->colon - out->begin), hint);
    return true;
}

/* ---- a row ---- */

/* Fails with line, column, the token and what was expected. */
static trm_status fail_at(const slots *set, const char *line, const token *t, const char *expected,
                          trm_error *err) {
    int shown = t->end - t->begin > 32 ? 32 : (int)(t->end - t->begin);
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld, column %lld: '%.*s', %s expected", set->path,
                     (long long)trmi_lines_number(&set->lines, line),
                     (long long)(t->begin - line) + 1, shown, t->begin, expected);
}

/* Reads label and numbers, and counts the keys of each field in row->ends. */
static trm_status take_numbers(const slots *set, const char *line, const char *end, trmi_row *row,
                               trm_error *err) {
    int64_t used[DENSE_SLOTS_MAX] = {0}, numbers = 0;
    int32_t hint = 0, labels = 0;
    double number = 0;
    token t = {.begin = line, .end = line};
    /* ends[f] counts the keys of field f first. */
    for (int32_t f = 0; f < set->click.field_count; f++) {
        row->ends[f] = 0;
    }
    for (const char *at = line; next_token(set, &at, end, &hint, &t);) {
        const slot *s = t.slot;
        if (t.colon == NULL) {
            return fail_at(set, line, &t, "slot:value", err);
        }
        /* The value of a label or a number must be one; keys are any text. */
        if (s != NULL && s->role != TRM_COLUMN_BAG &&
            !trmi_parse_number(t.colon + 1, t.end, &number)) {
            return fail_at(set, line, &t, "a number", err);
        }
        /* a slot that the options leave out: without options each slot of the file is known */
        if (s == NULL) {
            continue;
        }
        if (s->role == TRM_COLUMN_BAG) {
            row->ends[s->place]++;
        } else if (s->role == TRM_COLUMN_LABEL) {
            if (labels++ > 0 || !trmi_click_label(&set->click, number, &row->label)) {
                return fail_at(set, line, &t, "one label, 0 or 1", err);
            }
        } else if (used[s->place] == s->count) {
            return fail_at(set, line, &t, "no more numbers than in the first row", err);
        } else {
            row->dense[s->first + used[s->place]++] = trmi_click_dense(&set->click, number);
            numbers++;
        }
    }
    if (labels == 0 || numbers != set->click.dense_count) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: line %lld: %d labels and %lld numbers, 1 and %d expected", set->path,
                         (long long)trmi_lines_number(&set->lines, line), (int)labels,
                         (long long)numbers, (int)set->click.dense_count);
    }
    return TRM_OK;
}

/* Reads a row in two passes, because a field's keys must be next to each other but its slots may
 * come in any order: the first pass counts them, the second writes them. */
static trm_status parse_slots_row(const trmi_click_source *source, int64_t index, trmi_row *row,
                                  trm_error *err) {
    const slots *set = (const slots *)source;
    const char *line, *end;
    trmi_lines_at(&set->lines, index, &line, &end);
    TRMI_TRY(take_numbers(set, line, end, row, err));
    /* The counts become the starts of the fields. */
    int64_t total = row->count;
    for (int32_t f = 0; f < source->field_count; f++) {
        int64_t count = row->ends[f];
        row->ends[f] = total;
        total += count;
    }
    if (total > row->capacity) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld: %lld keys, at most %lld expected",
                         set->path, (long long)trmi_lines_number(&set->lines, line),
                         (long long)(total - row->count), (long long)(row->capacity - row->count));
    }
    token t = {.begin = line};
    /* Writing the keys turns the starts into ends. */
    int32_t hint = 0;
    for (const char *at = line; next_token(set, &at, end, &hint, &t);) {
        const slot *s = t.slot;
        if (s != NULL && s->role == TRM_COLUMN_BAG) {
            row->keys[row->ends[s->place]++] = trmi_key_of_text(
                &source->keyer, s->place, t.colon + 1, (size_t)(t.end - t.colon - 1));
        }
    }
    row->count = total;
    return TRM_OK;
}

/* ---- finding the slots ---- */

/* Results of the first pass over the file. */
typedef struct survey {
    slots *set;                /* gets the slots that are found */
    int64_t rows, entries_max; /* rows so far; the most keys of a row */
    int32_t hint;              /* index of the slot of the last token */
    bool no_slots, too_many;   /* faults, reported at the end */
} survey;

/* Returns the role of a slot by its usual name; others have keys. */
static trm_column_role role_of(const char *name, size_t length) {
    static const struct {
        const char *name;
        trm_column_role role;
    } known[] = {{"click", TRM_COLUMN_LABEL},
                 {"label", TRM_COLUMN_LABEL},
                 {"dense_feature", TRM_COLUMN_DENSE},
                 {"dense", TRM_COLUMN_DENSE}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0) {
            return known[i].role;
        }
    }
    return TRM_COLUMN_BAG;
}

/* Adds a slot. Returns NULL if there are too many. */
static slot *new_slot(survey *s, const char *name, size_t length, trm_column_role role) {
    slots *set = s->set;
    if (set->slot_count == SLOTS_MAX) {
        s->too_many = true;
        return NULL;
    }
    set->all[set->slot_count] = (slot){.name = name, .length = length, .role = role};
    return &set->all[set->slot_count++];
}

/* Adds one row to the results: new slots, numbers in the first row, number of keys. */
static void survey_row(void *context, const char *line, const char *line_end) {
    survey *s = context;
    int64_t entries = 0;
    token t;
    for (const char *at = line; next_token(s->set, &at, line_end, &s->hint, &t);) {
        /* A word without a slot: in a later row the reader of the row reports it. */
        if (t.colon == NULL) {
            s->no_slots |= s->rows == 0;
            continue;
        }
        /* A slot that is new. */
        if (t.slot == NULL && !s->set->chosen) {
            size_t length = (size_t)(t.colon - t.begin);
            t.slot = new_slot(s, t.begin, length, role_of(t.begin, length));
        }
        /* Numbers in the first row, keys in each row. */
        if (t.slot != NULL) {
            t.slot->count += s->rows == 0;
            entries += t.slot->role == TRM_COLUMN_BAG;
        }
    }
    s->entries_max = trmi_max_i64(s->entries_max, entries);
    s->rows++;
}

/* Sorts slots: numbers by value, then names, so that the fields do not depend on which file is read
 * first. */
static int by_name(const void *a, const void *b) {
    const slot *x = a, *y = b;
    int64_t p = 0, q = 0;
    bool number = trmi_parse_integer(x->name, x->name + x->length, &p),
         other = trmi_parse_integer(y->name, y->name + y->length, &q);
    if (number != other) {
        return number ? -1 : 1;
    }
    if (number && p != q) {
        return p < q ? -1 : 1;
    }
    size_t least = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->name, y->name, least);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

/* Takes over the slots that the options choose. */
static trm_status take_columns(slots *set, const trm_click_options *o, trm_error *err) {
    survey s = {.set = set};
    set->chosen = o != NULL && o->column_count > 0;
    if (!set->chosen) {
        return TRM_OK; /* the first pass over the file finds the slots */
    }
    for (int32_t i = 0; i < o->column_count; i++) {
        const char *name =
            o->columns[i].name == NULL ? NULL : trmi_arena_strdup(&set->arena, o->columns[i].name);
        if (name == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: column %d has no name; the slot's expected",
                             set->path, (int)i);
        }
        trm_column_role role =
            o->columns[i].role == TRM_COLUMN_KEY ? TRM_COLUMN_BAG : o->columns[i].role;
        if (role != TRM_COLUMN_SKIP && new_slot(&s, name, strlen(name), role) == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: %d columns, at most %d expected", set->path,
                             (int)o->column_count, SLOTS_MAX);
        }
    }
    return TRM_OK;
}

/* Assigns fields and positions of numbers to the slots: in the order of the options, otherwise of
 * their names.
 *   errors  CORRUPT unless there is one label and at least one field of keys */
static trm_status place_slots(slots *set, trm_error *err) {
    int32_t labels = 0, dense = 0;
    /* without options the order must not depend on the first row */
    if (!set->chosen) {
        qsort(set->all, (size_t)set->slot_count, sizeof *set->all, by_name);
    }
    for (int32_t i = 0; i < set->slot_count; i++) {
        slot *s = &set->all[i];
        labels += s->role == TRM_COLUMN_LABEL;
        if (s->role == TRM_COLUMN_BAG) {
            s->place = set->click.field_count++;
        } else if (s->role == TRM_COLUMN_DENSE) {
            s->place = dense++;
            s->first = set->click.dense_count;
            set->click.dense_count += (int32_t)s->count;
        }
    }
    if (labels != 1 || set->click.field_count == 0 || dense > DENSE_SLOTS_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: %d label slots (click, label, or by columns), %d slots of keys, %d "
                         "of numbers; 1, at least 1, and at "
                         "most %d expected",
                         set->path, (int)labels, (int)set->click.field_count, (int)dense,
                         DENSE_SLOTS_MAX);
    }
    return TRM_OK;
}

/* ---- opening ---- */

/* Writes file and line of a row. */
static void write_slots_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    const slots *set = (const slots *)source;
    const char *line, *end;
    trmi_lines_at(&set->lines, index, &line, &end);
    snprintf(text, size, "%s: line %lld", set->path,
             (long long)trmi_lines_number(&set->lines, line));
}

/* The functions of a source (data/pipeline/source.h); they only pass on what click.c and
 * base/mapping.h do for all readers of click data. */
static void describe_slots(const trmi_source *source, trmi_report *report) {
    trmi_report_put(report, trmi_string("path", ((const slots *)source)->path));
    trmi_click_describe(source, report);
}

static trm_status check_slots(const trmi_source *source, const trmi_batch_work *work,
                              trm_status status, trm_error *err) {
    (void)work;
    return trmi_mapping_check(&((const slots *)source)->mapping, status, err);
}

static void destroy_slots(trmi_source *source) {
    slots *set = (slots *)source;
    trmi_mapping_close(&set->mapping);
    trmi_lines_free(&set->lines);
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

static const trmi_source_ops slots_ops = {.kind = "slots",
                                          .fields = trmi_click_fields,
                                          .fill = trmi_click_fill,
                                          .check = check_slots,
                                          .place = write_slots_place,
                                          .describe = describe_slots,
                                          .destroy = destroy_slots};

/* Opens the file; one pass indexes the lines and finds the slots. */
static trm_status open_text(slots *set, const trm_click_options *options, trm_error *err) {
    survey s = {.set = set};
    TRMI_TRY(TRMI_NEW_IN(err, &set->arena, set->all, SLOTS_MAX, "for the slots of %s", set->path));
    TRMI_TRY(trmi_click_configure(&set->click, options, false, err));
    TRMI_TRY(take_columns(set, options, err));
    TRMI_TRY(trmi_mapping_open(set->path, &set->mapping, err));
    TRMI_TRY(trmi_lines_index((const char *)set->mapping.data, set->mapping.bytes, &set->lines,
                              survey_row, &s, err));
    if (set->lines.rows == 0 || s.no_slots) {
        return TRMI_FAIL(
            err, TRM_CORRUPT, "%s: %s; lines of slot:value (click:0 dense:0.5 1:4711) expected",
            set->path,
            set->lines.rows == 0 ? "no rows" : "the first line has words without a slot");
    }
    if (s.too_many) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: more than %d slots", set->path, SLOTS_MAX);
    }
    if (s.entries_max > ENTRIES_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: a row of %lld keys, at most %d expected", set->path,
                         (long long)s.entries_max, ENTRIES_MAX);
    }
    TRMI_TRY(place_slots(set, err));
    set->click.entries_max = trmi_max_i64(s.entries_max, 1);
    set->click.ragged = true;
    set->click.base.count = set->lines.rows;
    return trmi_click_ready(&set->click, set->path, err);
}

trm_status trmi_slots_source(const char *path, const trm_click_options *options,
                             trmi_click_source **out, trm_error *err) {
    slots *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->click.base.ops = &slots_ops;
    set->click.base.classes = 2;
    set->click.parse = parse_slots_row;
    set->path = trmi_arena_strdup(&set->arena, path);
    trm_status status =
        set->path == NULL ? TRMI_NO_MEMORY(err, "to open %s", path) : open_text(set, options, err);
    status = trmi_mapping_check(&set->mapping, status, err);
    if (status != TRM_OK) {
        destroy_slots(&set->click.base);
        return status;
    }
    *out = &set->click;
    return TRM_OK;
}
