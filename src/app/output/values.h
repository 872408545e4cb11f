/* SPDX-License-Identifier: Apache-2.0 */
/* app/output/values.h: one report that prints as text or as JSON.
 *
 * A report is a stream of named values. A command lists each value once: its name and type in JSON
 * and, beside it, the format in which people read it. With --json a report is one object on a line
 * of stdout. Otherwise it is the text of its values, one after the other, with a newline at the
 * end. Nothing else is kept: no tree is built.
 *
 *      app_begin(APP_RESULT, "event", "done");
 *      app_put(app_int("global_step", step, "done: step %d"),
 *              app_real("seconds", seconds, ", %.1f s"), app_int("peak_bytes", bytes, NULL));
 *      app_end();
 *
 *      text    done: step 40, 3.1 s
 *      JSON    {"event":"done","global_step":40,"seconds":3.1,"peak_bytes":5341184}
 *
 * The format is that of printf with one value. Its conversions:
 *      %d %u    an integer (%u unsigned)      %f %g %e   a real number
 *      %s       a text (NULL: nothing)        %b         a number of bytes: "1.53 GB"
 *      %t       seconds: "1:02:03"            %%         a percent sign
 * {FACTOR} after a conversion multiplies what people read: "%.2f{1e3} ms" prints seconds. A
 * format may use its value several times ("%dx%d"), or not at all. The format of a bool is printed
 * if the value is true. A value without a key is text alone, one without a format (NULL) JSON
 * alone.
 *
 * The library has reports of its own (base/format/report.h), because the program includes public
 * headers only and because lines there are said of a finished tree, where text here follows the
 * values as they are put. */
#ifndef TRIREME_APP_VALUES_H
#define TRIREME_APP_VALUES_H

#include "trireme/base.h"

/* Where the text of a report goes. JSON goes to stdout, and that of events also to the record of
 * the run, if one is open (record.h). */
typedef enum app_stream {
    APP_RESULT,   /* stdout */
    APP_PROGRESS, /* stderr; nothing with --quiet or in a muted process */
    APP_RECORD,   /* neither text nor JSON of stdout: the record alone */
    APP_KEPT      /* the JSON alone, which app_end_kept returns: for files and pages */
} app_stream;

/* How a value is written in JSON. */
typedef enum app_value_kind {
    APP_VALUE_END, /* after the last value of a list */
    APP_VALUE_INT,
    APP_VALUE_REAL,  /* 9 significant digits */
    APP_VALUE_EXACT, /* 17: a double reads back to the same one */
    APP_VALUE_TEXT,
    APP_VALUE_BOOL,
    APP_VALUE_RAW,     /* already JSON */
    APP_VALUE_MEMBERS, /* already JSON: members with their keys */
    APP_VALUE_IDS
} app_value_kind;

/* A value of a report; its texts must live until it is put. */
typedef struct app_value {
    app_value_kind kind;
    const char *key;    /* name in JSON; "": an element of an array; NULL: only text */
    const char *format; /* for text; NULL: only JSON */
    union {
        int64_t integer;
        double real;
        const char *text; /* TEXT, RAW */
        bool boolean;
        const int32_t *ids; /* [count] */
    } of;
    int64_t count; /* of ids */
} app_value;

/* The functions that make a value: its key in JSON, the value, and the format of the text (NULL:
 * not in the text). Texts and lists are borrowed until app_put returns. */
static inline app_value app_int(const char *key, int64_t value, const char *format) {
    return (app_value){APP_VALUE_INT, key, format, {.integer = value}, 0};
}
/* Returns a real. In JSON it has 9 significant digits; NaN and infinity become null. */
static inline app_value app_real(const char *key, double value, const char *format) {
    return (app_value){APP_VALUE_REAL, key, format, {.real = value}, 0};
}
/* Returns a text. In JSON NULL becomes null, and what is not UTF-8 U+FFFD. */
static inline app_value app_text(const char *key, const char *value, const char *format) {
    return (app_value){APP_VALUE_TEXT, key, format, {.text = value}, 0};
}
static inline app_value app_bool(const char *key, bool value, const char *format) {
    return (app_value){APP_VALUE_BOOL, key, format, {.boolean = value}, 0};
}
/* Returns text alone, without a value. */
static inline app_value app_words(const char *words) {
    return (app_value){APP_VALUE_TEXT, NULL, words, {.text = NULL}, 0};
}
/* Write to JSON alone: a value that is JSON already, members with their keys, a real with all its
 * digits, an integer of an open array, and a whole array of ids ([3,1,4]). */
static inline app_value app_raw(const char *key, const char *json) {
    return (app_value){APP_VALUE_RAW, key, NULL, {.text = json}, 0};
}
static inline app_value app_members(const char *json) {
    return (app_value){APP_VALUE_MEMBERS, "", NULL, {.text = json}, 0};
}
static inline app_value app_exact(const char *key, double value) {
    return (app_value){APP_VALUE_EXACT, key, NULL, {.real = value}, 0};
}
static inline app_value app_element(int64_t value) { return app_int("", value, NULL); }
static inline app_value app_ids(const char *key, const int32_t *ids, int64_t count) {
    return (app_value){APP_VALUE_IDS, key, NULL, {.ids = ids}, count};
}

/* Begin and end a report. Its first member is "class":"name": {"event":"step" or {"bench":"ops";
 * without a class (NULL) there is none. Reports do not nest. */
void app_begin(app_stream stream, const char *class, const char *name);
void app_end(void);
/* Ends a report of stream APP_KEPT. Returns its JSON, for free(); NULL: no memory. */
char *app_end_kept(void);
/* Appends values to the report. */
#define app_put(...) app_put_values((const app_value[]){__VA_ARGS__, {.kind = APP_VALUE_END}})
void app_put_values(const app_value *values);
/* A whole report. */
#define app_tell(stream, class, name, ...)                                                         \
    (app_begin(stream, class, name), app_put(__VA_ARGS__), app_end())

/* Open nested values in JSON: "key":{ ... } and "key":[{ ... },{ ... }]. app_close ends the
 * innermost of them. Text knows no nesting: it goes on. */
void app_open_object(const char *key);
void app_open_array(const char *key);
void app_open_item(void);
void app_close(void);

/* Prints "trireme: error: ..." to stderr, and {"event":"error",...} with --json. Returns the
 * exit code of the error. */
int app_report(const trm_error *err);
/* Prints a report of the library, which is text, or with --json an object. */
void app_print_report(const char *report);

#endif
