/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a run (contract and drawing in record.h).
 *
 * A process has at most one record. Threads of the library log while the training reports, so
 * app_record_line may be called by any of them; the main thread alone opens and closes a record. A
 * line that cannot be written is reported once and stops nothing. */
#include "app/output/record.h"

#include "app/options/flags.h"

#include "trireme/io.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(trm_record *) record; /* NULL: none is open */
static atomic_bool failed;           /* a line could not be written */
static int32_t recorded;             /* number of the role whose record is open */

/* ---- opening --------------------------------------------------------------------------------- */

/* Contract in record.h. A new record is opened before the old one is closed, so that an error
 * leaves the old one in use. */
trm_status app_record_open(const char *folder, const char *role, int32_t number, trm_error *err) {
    trm_record *opened;
    trm_status status = trm_record_open(folder, role, number, &opened, err);
    if (status != TRM_OK) {
        return status;
    }
    app_record_close();
    atomic_store(&failed, false);
    recorded = number;
    atomic_store(&record, opened);
    return TRM_OK;
}

void app_record_close(void) { trm_record_close(atomic_exchange(&record, NULL)); }

bool app_record_is_open(void) { return atomic_load(&record) != NULL; }

bool app_record_is_of(int32_t number) { return app_record_is_open() && recorded == number; }

/* ---- lines ----------------------------------------------------------------------------------- */

bool app_record_line(const char *json, size_t bytes) {
    trm_error err;
    trm_record *to = atomic_load(&record);
    return to == NULL || trm_record_line(to, json, bytes, &err) == TRM_OK ||
           atomic_exchange(&failed, true);
}

/* Contract in record.h. A line that cannot be written is left out: training reports that. */
void app_record_log(const char *level, const char *room, const char *text) {
    char *line = NULL;
    size_t length;
    FILE *to = app_record_is_open() ? open_memstream(&line, &length) : NULL;
    if (to == NULL) {
        return;
    }
    fputs("{\"event\":\"log\",\"level\":", to);
    app_put_json_string(to, level);
    fputs(",\"room\":", to);
    app_put_json_string(to, room);
    fputs(",\"text\":", to);
    app_put_json_string(to, text);
    fputc('}', to);
    if (fclose(to) == 0) {
        (void)app_record_line(line, length);
    }
    free(line);
}

/* ---- JSON strings ---------------------------------------------------------------------------- */

/* Returns the bytes of the UTF-8 sequence at `s`; 0 if it is not valid. Jansson decides: it makes
 * strings of valid UTF-8 only. */
static int measure_sequence(const unsigned char *s) {
    for (int n = 1; n <= 4 && s[n - 1] != '\0'; n++) {
        json_t *one = json_stringn((const char *)s, (size_t)n);
        if (one != NULL) {
            json_decref(one);
            return n;
        }
    }
    return 0;
}

/* Returns whether a text is UTF-8 as a whole, as nearly all are. */
static bool is_utf8(const char *value) {
    json_t *whole = json_string(value);
    json_decref(whole);
    return whole != NULL;
}

/* Contract in record.h. Bytes that are not UTF-8 become U+FFFD, because JSON must be UTF-8. */
void app_put_json_string(FILE *to, const char *value) {
    const unsigned char *s = (const unsigned char *)value;
    const bool valid = is_utf8(value);
    fputc('"', to);
    while (*s != '\0') {
        int n = valid || *s < 0x80 ? 1 : measure_sequence(s);
        if (n == 0) {
            fputs("\\ufffd", to);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            fprintf(to, "\\%c", *s);
        } else if (*s < 0x20) {
            fprintf(to, "\\u%04x", *s);
        } else {
            fwrite(s, 1, (size_t)n, to);
        }
        s += n;
    }
    fputc('"', to);
}
