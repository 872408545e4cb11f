/* SPDX-License-Identifier: Apache-2.0 */
/* Reports as text or as JSON (contract and conversions in report.h).
 *
 *   put, open, close -> JSON: appended to a text, with commas and brackets
 *                    -> text: tree in the arena -> say: text, line by line
 *
 * A node that has no memory is missing in the tree; arena.failed says so at the end. Lines are
 * constants of the program, but a mistake in one must not read beyond it: each conversion checks
 * the kind of the value that it prints. */
#include "base/format/report.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tree -------------------------------------------------------------------------------- */

static bool has_text(trmi_report_kind kind) {
    return kind == TRMI_REPORT_TEXT || kind == TRMI_REPORT_RAW;
}

static bool is_number(const trmi_report_value *value) {
    return value != NULL && value->kind >= TRMI_REPORT_INT && value->kind <= TRMI_REPORT_BOOL;
}

/* Appends a node to the object or array that is open. */
static trmi_report_node *add_node(trmi_report *report, const trmi_report_value *value) {
    trmi_report_node *node = trmi_arena_alloc(&report->arena, sizeof *node);
    trmi_report_node *parent = report->level > 0 ? report->open[report->level - 1] : NULL;
    if (node == NULL) {
        return NULL;
    }
    node->value = *value;
    if (has_text(value->kind) && value->of.text != NULL) {
        node->value.of.text = trmi_arena_strdup(&report->arena, value->of.text);
    }
    if (parent != NULL) {
        *(parent->last != NULL ? &parent->last->next : &parent->first) = node;
        parent->last = node;
    }
    return node;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Returns the text that JSON is appended to. */
static trmi_text *json_of(trmi_report *report) {
    return report->into != NULL ? report->into : &report->text;
}

/* Appends a line break and blanks. */
static void print_break(trmi_text *text, int blanks) {
    trmi_text_printf(text, "\n%*s", blanks, "");
}

/* Returns how many of the first `level` open objects and arrays have rows. */
static int count_rows(const trmi_report *report, int level) {
    int rows = 0;
    for (int i = 0; i < level; i++) {
        rows += report->places[i].rows;
    }
    return rows;
}

/* Appends what precedes a value of what is open: comma, line break, name. Returns false if JSON
 * leaves the value out. */
static bool print_start(trmi_report *report, const char *key) {
    trmi_text *text = json_of(report);
    if (report->hidden > 0 || (key != NULL && key[0] == '#' && !report->foreign)) {
        return false;
    }
    if (report->level > 0) {
        trmi_report_place *place = &report->places[report->level - 1];
        bool line = place->rows || report->breaks;
        trmi_text_append(text, ", ", !place->any ? 0 : 1 + (report->spaced && !line));
        place->any = true;
        if (line) {
            print_break(text,
                        report->breaks ? report->blanks : 2 * count_rows(report, report->level));
        }
        report->breaks = false;
    }
    if (key != NULL) {
        trmi_text_json_string(text, key);
        trmi_text_append(text, ": ", 1 + report->spaced);
    }
    return true;
}

/* Appends a value that has no values. */
static void print_scalar(trmi_text *text, const trmi_report_value *value) {
    if (value->kind == TRMI_REPORT_INT) {
        trmi_text_printf(text, "%lld", (long long)value->of.integer);
    } else if (value->kind == TRMI_REPORT_UNSIGNED) {
        trmi_text_printf(text, "%llu", (unsigned long long)value->of.whole);
    } else if (value->kind == TRMI_REPORT_BOOL) {
        trmi_text_printf(text, value->of.boolean ? "true" : "false");
    } else if (value->kind == TRMI_REPORT_TEXT && value->of.text != NULL) {
        trmi_text_json_string(text, value->of.text);
    } else if (has_text(value->kind)) {
        trmi_text_printf(text, "%s", value->of.text != NULL ? value->of.text : "null");
    } else if (value->kind == TRMI_REPORT_REAL || !isfinite(value->of.real)) {
        trmi_text_json_number(text, value->of.real);
    } else {
        trmi_text_printf(text, value->kind == TRMI_REPORT_WHOLE ? "%.0f" : "%.9g", value->of.real);
    }
}

/* Appends the bracket that closes the innermost object or array. */
static void print_end(trmi_report *report) {
    const trmi_report_place *place = &report->places[--report->level];
    if (report->hidden > 0) {
        report->hidden = report->level < report->hidden ? 0 : report->hidden;
        return;
    }
    if (report->breaks || (place->rows && place->any)) {
        print_break(json_of(report),
                    report->breaks ? report->blanks : 2 * count_rows(report, report->level));
    }
    report->breaks = false;
    trmi_text_append(json_of(report), place->array ? "]" : "}", 1);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Opens an object or array. */
static void open_node(trmi_report *report, trmi_report_kind kind, const char *key) {
    bool array = kind == TRMI_REPORT_ARRAY;
    if (report->level == TRMI_REPORT_LEVELS) {
        report->arena.failed = true;
        return;
    }
    if (!report->json) {
        trmi_report_node *node = add_node(report, &(trmi_report_value){.kind = kind, .key = key});
        report->open[report->level++] = node;
        return;
    }
    bool shown = print_start(report, key);
    report->places[report->level++] = (trmi_report_place){.array = array};
    if (shown) {
        trmi_text_append(json_of(report), array ? "[" : "{", 1);
    } else if (report->hidden == 0) {
        report->hidden = report->level;
    }
}

void trmi_report_begin(trmi_report *report, bool json) {
    *report = (trmi_report){.json = json};
    open_node(report, TRMI_REPORT_OBJECT, NULL);
}

void trmi_report_begin_json(trmi_report *report, trmi_text *text) {
    *report = (trmi_report){.json = true, .into = text};
    open_node(report, TRMI_REPORT_OBJECT, NULL);
}

void trmi_report_put_values(trmi_report *report, const trmi_report_value *values) {
    for (const trmi_report_value *v = values; v->kind != TRMI_REPORT_END; v++) {
        if (!report->json) {
            (void)add_node(report, v);
        } else if (print_start(report, v->key)) {
            print_scalar(json_of(report), v);
        }
    }
}

void trmi_report_open_object(trmi_report *report, const char *key) {
    open_node(report, TRMI_REPORT_OBJECT, key);
}

void trmi_report_open_array(trmi_report *report, const char *key) {
    open_node(report, TRMI_REPORT_ARRAY, key);
}

trmi_report_node *trmi_report_close(trmi_report *report) {
    if (report->level <= 1) {
        return NULL;
    }
    if (report->json) {
        print_end(report);
        return NULL;
    }
    return report->open[--report->level];
}

void trmi_report_set_rows(trmi_report *report) { report->places[report->level - 1].rows = true; }

void trmi_report_break(trmi_report *report, int blanks) {
    report->breaks = true;
    report->blanks = blanks;
}

/* Contract in report.h. An empty text is a text, too. */
char *trmi_report_end(trmi_report *report) {
    trmi_text *text = json_of(report);
    while (report->json && report->level > 0) {
        print_end(report);
    }
    trmi_text_append(text, "\n", report->json && report->spaced);
    text->failed = text->failed || report->arena.failed;
    trmi_arena_free(&report->arena);
    if (text->failed) {
        trmi_text_free(&report->text);
        return NULL;
    }
    return text->data;
}

trm_status trmi_report_give(trmi_report *report, const char *what, char **out, trm_error *err) {
    char *text = trmi_report_end(report);
    if (text == NULL) {
        return TRMI_NO_MEMORY(err, "%s", what);
    }
    *out = text;
    return TRM_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns the value at a path below `node`; NULL: there is none. */
static const trmi_report_node *find_node(const trmi_report_node *node, const char *path,
                                         size_t length) {
    while (length > 0 && node != NULL) {
        const char *dot = memchr(path, '.', length);
        size_t name = dot != NULL ? (size_t)(dot - path) : length;
        const trmi_report_node *n = node->first;
        while (n != NULL && (n->value.key == NULL || strncmp(n->value.key, path, name) != 0 ||
                             n->value.key[name] != '\0')) {
            n = n->next;
        }
        node = n;
        name += dot != NULL;
        path += name;
        length -= name;
    }
    return node;
}

/* Returns the number of a value; 0: it is none. */
static double number_of(const trmi_report_value *value) {
    return !is_number(value)                     ? 0
           : value->kind == TRMI_REPORT_INT      ? (double)value->of.integer
           : value->kind == TRMI_REPORT_UNSIGNED ? (double)value->of.whole
           : value->kind == TRMI_REPORT_BOOL     ? (double)value->of.boolean
                                                 : value->of.real;
}

/* Returns the text of a value; "-": it has none. */
static const char *text_of(const trmi_report_value *value) {
    return value != NULL && has_text(value->kind) && value->of.text != NULL ? value->of.text : "-";
}

/* Returns whether "?{YES|NO}" says YES. */
static bool is_true(const trmi_report_value *value) {
    return is_number(value) ? number_of(value) != 0
                            : value != NULL && has_text(value->kind) && value->of.text != NULL &&
                                  value->of.text[0] != '\0';
}

/* Writes a number with its unit, as the conversion says; returns `words`. */
static const char *unit_text(char conversion, double number, char words[32]) {
    if (conversion == 'b') {
        return trmi_bytes_text(number, words);
    }
    if (conversion == 'r') {
        snprintf(words, 32, "%.*f", number < 100 ? 1 : 0, number);
    } else if (conversion == 'T') {
        snprintf(words, 32, number < 1 ? "%.1f ms" : "%.3f s", number < 1 ? number * 1e3 : number);
    } else if (conversion == 'm') {
        snprintf(words, 32, "%.*f ms", number < 1e-2 ? 3 : number < 1 ? 2 : 1, number * 1e3);
    } else { /* t: three or four significant digits */
        const char *unit = number < 1e-3 ? "us" : number < 1 ? "ms" : "s";
        double scaled = number < 1e-3 ? number * 1e6 : number < 1 ? number * 1e3 : number;
        snprintf(words, 32, "%.*f %s",
                 scaled == 0    ? 0
                 : scaled < 10  ? 3
                 : scaled < 100 ? 2
                                : 1,
                 scaled, unit);
    }
    return words;
}

/* Says a text by a conversion such as "%-12.20s", of which `form` has what stands before the s. */
static void say_text(trmi_report *report, const char *form, const char *words) {
    size_t begin = report->text.length;
    char whole[24];
    snprintf(whole, sizeof whole, "%ss", form);
    trmi_text_printf(&report->text, whole, words);
    for (size_t i = begin; report->printable && i < report->text.length; i++) {
        unsigned char c = (unsigned char)report->text.data[i];
        report->text.data[i] = c < 0x20 || c == 0x7F ? '?' : (char)c;
    }
}

/* Says a value by the conversion at `at`, a percent sign, and returns what follows it. */
static const char *say_conversion(trmi_report *report, const trmi_report_value *value,
                                  const char *at) {
    char form[16], whole[24], words[32];
    size_t length = strspn(at + 1, "-+ #.0123456789") + 1;
    char conversion = at[length];
    const char *rest = at + length + (conversion != '\0');
    double number = number_of(value);
    if (*rest == '{' && conversion != '%') { /* "{1e3}" is a factor, "{/1e3}" a divisor */
        bool divides = rest[1] == '/';
        char *end;
        double factor = strtod(rest + 1 + divides, &end);
        number = divides ? number / factor : number * factor;
        rest = end + (*end == '}');
    }
    snprintf(form, sizeof form, "%.*s", (int)length, at);
    if (conversion == '%') {
        trmi_text_append(&report->text, "%", 1);
    } else if (conversion == 's') {
        say_text(report, form, text_of(value));
    } else if (!is_number(value) || conversion == '\0' || strchr("bdefgmrtT", conversion) == NULL) {
        form[strcspn(form, ".")] = '\0';
        say_text(report, form, "-");
    } else if (conversion == 'd' && value->kind == TRMI_REPORT_INT) {
        snprintf(whole, sizeof whole, "%slld", form);
        trmi_text_printf(&report->text, whole, (long long)value->of.integer);
    } else if (conversion == 'd') {
        snprintf(whole, sizeof whole, "%s.0f", form);
        trmi_text_printf(&report->text, whole, number);
    } else if (strchr("feg", conversion) != NULL) {
        snprintf(whole, sizeof whole, "%s%c", form, conversion);
        trmi_text_printf(&report->text, whole, number);
    } else {
        say_text(report, form, unit_text(conversion, number, words));
    }
    return rest;
}

/* Says one of the two texts of "?{YES|NO}", which begins at `at`, and returns what follows. */
static const char *say_choice(trmi_report *report, const trmi_report_value *value, const char *at) {
    const char *yes = at + 2, *no = yes + strcspn(yes, "|}");
    const char *end = no + strcspn(no, "}");
    no += no < end;
    if (is_true(value)) {
        trmi_text_append(&report->text, yes, strcspn(yes, "|}"));
    } else {
        trmi_text_append(&report->text, no, (size_t)(end - no));
    }
    return end + (*end != '\0');
}

/* Returns the value with that name; NULL: none has it. */
static const trmi_report_value *find_own(const trmi_report_value *own, const char *name,
                                         size_t length) {
    for (; own != NULL && own->kind != TRMI_REPORT_END; own++) {
        if (strncmp(own->key, name, length) == 0 && own->key[length] == '\0') {
            return own;
        }
    }
    return NULL;
}

/* Says a line about a node and about values that only the line has (NULL: none). */
static void say_line(trmi_report *report, const trmi_report_node *node,
                     const trmi_report_value *own, const char *line) {
    const trmi_report_value key = {TRMI_REPORT_TEXT, NULL, {.text = node->value.key}};
    const trmi_report_value *value = &node->value;
    for (const char *at = line; *at != '\0';) {
        size_t plain = strcspn(at, "[%");
        trmi_text_append(&report->text, at, plain);
        at += plain;
        if (at[0] == '[' && at[1] == '[') {
            trmi_text_append(&report->text, "[", 1);
            at += 2;
        } else if (*at == '[') {
            size_t length = strcspn(++at, "]");
            const trmi_report_node *found = find_node(node, at, length);
            value = find_own(own, at, length);
            value = value != NULL               ? value
                    : length == 1 && *at == '@' ? &key
                    : found != NULL             ? &found->value
                                                : NULL;
            at += length + (at[length] == ']');
            at = at[0] == '?' && at[1] == '{' ? say_choice(report, value, at) : at;
        } else if (*at == '%') {
            at = say_conversion(report, value, at);
        }
    }
}

void trmi_report_say_of(trmi_report *report, const trmi_report_node *node, const char *line) {
    if (!report->json && node != NULL) {
        say_line(report, node, NULL, line);
    }
}

void trmi_report_say(trmi_report *report, const char *line) {
    trmi_report_say_of(report, report->open[0], line);
}

void trmi_report_tell_values(trmi_report *report, const char *line,
                             const trmi_report_value *values) {
    if (!report->json && report->open[0] != NULL) {
        say_line(report, report->open[0], values, line);
    }
}

/* Contract in report.h. */
void trmi_report_say_each(trmi_report *report, const char *path, const char *line,
                          const char *between) {
    const trmi_report_node *root = report->open[0];
    const trmi_report_node *list = root != NULL ? find_node(root, path, strlen(path)) : NULL;
    for (const trmi_report_node *n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        trmi_report_say_of(report, n, line);
        trmi_report_say_of(report, n->next != NULL && between != NULL ? n : NULL, between);
    }
}
