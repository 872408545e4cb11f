/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/report.h: a report, which prints as text or as JSON.
 *
 * A report is a tree of named values, put once, in their order. JSON is the tree itself, and is
 * written while values are put. For text the tree is kept: lines name values by their paths, so
 * that both forms have the same figures.
 *
 *      trmi_report_begin(&report, json);
 *      trmi_report_put(&report, trmi_int("ranks", 4), trmi_real("step_seconds", 0.0125));
 *      trmi_report_open_object(&report, "memory");
 *      trmi_report_put(&report, trmi_whole("kept_bytes", 5.3e6));
 *      trmi_report_close(&report);
 *      trmi_report_say(&report, "step [step_seconds]%t on [ranks]%d ranks, "
 *                               "[memory.kept_bytes]%b kept\n");
 *      char *printed = trmi_report_end(&report);
 *
 *      text    step 12.50 ms on 4 ranks, 5.30 MB kept
 *      JSON    {"ranks":4,"step_seconds":0.0125,"memory":{"kept_bytes":5300000}}
 *
 * A line has plain text, paths and conversions. "[a.b]" takes the value b of the object a, "[]" the
 * value that the line is about, "[@]" its name; "[[" is a bracket. A conversion prints the value
 * taken last:
 *      %d           an integer                   %f %g %e   a real number
 *      %s           a text                       %b         a number of bytes: "1.53 GB"
 *      %t           seconds: "12.50 ms"          %r         a rate; below 100 with one decimal digit
 *      %m           seconds as "12.50 ms", also long ones   %T   seconds as "12.5 ms", "1.250 s"
 *      ?{YES|NO}    YES if there is such a value and it is neither false, 0 nor "", else NO
 * Flags, width and precision are those of printf. "{1e3}" after a conversion multiplies the number,
 * "{/1e9}" divides it. Where there is no such value a conversion prints "-". A value whose name
 * begins with '#' is for lines only: JSON leaves it out.
 *
 * Lines of events, descriptions in files, headers and manifests are JSON alone, and are reports,
 * too: trmi_report_begin_json writes one into a text of the caller.
 *
 * The program has reports of its own (app/output/values.h), because it includes public headers only
 * and because its text follows the values as they are put, where lines here are said of a tree. */
#ifndef TRMI_BASE_REPORT_H
#define TRMI_BASE_REPORT_H

#include "base/memory.h"

/* The kinds of values, and how JSON writes each. A number that is not finite is null. */
typedef enum trmi_report_kind {
    TRMI_REPORT_END, /* after the last value of a list */
    TRMI_REPORT_INT,
    TRMI_REPORT_UNSIGNED,
    TRMI_REPORT_REAL,  /* digits that read back to the same number */
    TRMI_REPORT_WHOLE, /* a real without decimal digits: bytes */
    TRMI_REPORT_NINE,  /* a real with nine significant digits */
    TRMI_REPORT_BOOL,
    TRMI_REPORT_TEXT, /* NULL: null */
    TRMI_REPORT_RAW,  /* text that is JSON already */
    TRMI_REPORT_OBJECT,
    TRMI_REPORT_ARRAY
} trmi_report_kind;

/* A value. */
typedef struct trmi_report_value {
    trmi_report_kind kind;
    const char *key; /* its name, which lives as long as the report; NULL in arrays */
    union {
        int64_t integer;
        uint64_t whole; /* UNSIGNED */
        double real;    /* REAL, WHOLE, NINE */
        bool boolean;
        const char *text; /* TEXT, RAW */
    } of;
} trmi_report_value;

/* A value in its place in the tree. */
typedef struct trmi_report_node trmi_report_node;
struct trmi_report_node {
    trmi_report_value value;
    trmi_report_node *first, *last; /* of an object or array: its values; NULL: none */
    trmi_report_node *next;         /* the next value of the object or array that has this one */
};

/* An object or array that is open in JSON. */
typedef struct trmi_report_place {
    bool array; /* false: an object */
    bool rows;  /* each of its values stands on a line of its own */
    bool any;   /* it has a value: a comma precedes the next one */
} trmi_report_place;

/* Objects and arrays inside each other, at most. */
enum { TRMI_REPORT_LEVELS = 12 };
/* A report under construction. */
typedef struct trmi_report {
    bool json;      /* JSON is wanted, and lines are not said */
    bool spaced;    /* JSON has a blank after each comma and colon, and ends its line */
    bool foreign;   /* names are from files or users: JSON has those with '#', too */
    bool printable; /* control characters in texts are said as '?' */
    int level;      /* objects and arrays that are not closed; the first is the report itself */
    trmi_text text; /* the lines, or the JSON, so far */

    /* text: the tree */

    trmi_arena arena;
    trmi_report_node *open[TRMI_REPORT_LEVELS];

    /* JSON: what is open, and what comes next */

    trmi_report_place places[TRMI_REPORT_LEVELS];
    int hidden;      /* level of a value that JSON leaves out, with all in it; 0: none */
    bool breaks;     /* the next value or bracket stands on a line of its own, ... */
    int blanks;      /* ... after so many blanks */
    trmi_text *into; /* the caller's text, in place of `text`; NULL: none */
} trmi_report;

/* Make a value for trmi_report_put. Texts are copied there, names are not. */
static inline trmi_report_value trmi_int(const char *key, int64_t value) {
    return (trmi_report_value){TRMI_REPORT_INT, key, {.integer = value}};
}
static inline trmi_report_value trmi_unsigned(const char *key, uint64_t value) {
    return (trmi_report_value){TRMI_REPORT_UNSIGNED, key, {.whole = value}};
}
static inline trmi_report_value trmi_real(const char *key, double value) {
    return (trmi_report_value){TRMI_REPORT_REAL, key, {.real = value}};
}
static inline trmi_report_value trmi_whole(const char *key, double value) {
    return (trmi_report_value){TRMI_REPORT_WHOLE, key, {.real = value}};
}
static inline trmi_report_value trmi_nine(const char *key, double value) {
    return (trmi_report_value){TRMI_REPORT_NINE, key, {.real = value}};
}
static inline trmi_report_value trmi_bool(const char *key, bool value) {
    return (trmi_report_value){TRMI_REPORT_BOOL, key, {.boolean = value}};
}
static inline trmi_report_value trmi_string(const char *key, const char *value) {
    return (trmi_report_value){TRMI_REPORT_TEXT, key, {.text = value}};
}
/* Makes a value that is JSON already; in lines it is a text. In an object, with key NULL: members
 * of it, with their names. */
static inline trmi_report_value trmi_json_value(const char *key, const char *json) {
    return (trmi_report_value){TRMI_REPORT_RAW, key, {.text = json}};
}

/* Begins a report. Memory that is missing later makes trmi_report_end fail. */
void trmi_report_begin(trmi_report *report, bool json);
/* Ends the report and frees it. Returns the text, or the JSON object; NULL: no memory.
 *   owns  the caller: trm_free */
char *trmi_report_end(trmi_report *report);
/* Ends the report as trmi_report_end does, with an error where memory is missing. `what` ends its
 * message, with a preposition ("for a plan").
 *   errors  NOMEM
 *   owns    caller: trm_free(*out) */
trm_status trmi_report_give(trmi_report *report, const char *what, char **out, trm_error *err);
/* Begins a report that appends JSON to a text of the caller and takes no memory but the text's,
 * which fails where memory is missing. trmi_report_end then only closes what is open. */
void trmi_report_begin_json(trmi_report *report, trmi_text *text);

/* Appends values to the object or array that is open. */
#define trmi_report_put(report, ...)                                                               \
    trmi_report_put_values(report,                                                                 \
                           (const trmi_report_value[]){__VA_ARGS__, {.kind = TRMI_REPORT_END}})
void trmi_report_put_values(trmi_report *report, const trmi_report_value *values);
/* Open a value that has values; key NULL: it is an element of an array. trmi_report_close ends the
 * innermost one and returns it (NULL: JSON, or no memory). */
void trmi_report_open_object(trmi_report *report, const char *key);
void trmi_report_open_array(trmi_report *report, const char *key);
trmi_report_node *trmi_report_close(trmi_report *report);
/* Makes JSON put each value of what is open, before its first one, on a line of its own, indented
 * by two blanks: for files that people edit. */
void trmi_report_set_rows(trmi_report *report);
/* Makes JSON put the next value, or bracket that closes, on a new line after so many blanks. */
void trmi_report_break(trmi_report *report, int blanks);

/* Append text to the report: a line about the report; about one value of it (NULL: nothing); and
 * the same line for each value of the array or object at `path`, with `between` between them (NULL:
 * nothing). */
void trmi_report_say(trmi_report *report, const char *line);
void trmi_report_say_of(trmi_report *report, const trmi_report_node *node, const char *line);
void trmi_report_say_each(trmi_report *report, const char *path, const char *line,
                          const char *between);
/* Appends a line about the report and about further values that only this line has. */
#define trmi_report_tell(report, line, ...)                                                        \
    trmi_report_tell_values(report, line,                                                          \
                            (const trmi_report_value[]){__VA_ARGS__, {.kind = TRMI_REPORT_END}})
void trmi_report_tell_values(trmi_report *report, const char *line,
                             const trmi_report_value *values);

#endif
