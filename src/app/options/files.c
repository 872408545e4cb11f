/* SPDX-License-Identifier: Apache-2.0 */
/* Files that flags name: texts, plans, endings of names (contracts in app.h). */
#include "app/app.h"

#include "trireme/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a text that a flag names, at most. */
enum { TEXT_MAX = 1 << 20 };

/* Contract in app.h. Reads one byte more than allowed, to notice a longer file. */
trm_status app_read_text(const char *path, char **out, trm_error *err) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return app_fail(err, TRM_IO, "%.200s: cannot open: %s", path, strerror(errno));
    }
    char *text = malloc(TEXT_MAX + 1);
    size_t length = text != NULL ? fread(text, 1, TEXT_MAX + 1, file) : 0;
    bool failed = ferror(file) != 0;
    fclose(file);
    if (text == NULL || failed || length > TEXT_MAX) {
        free(text);
        return text == NULL ? app_no_memory(err, "for %.200s", path)
               : failed
                   ? app_fail(err, TRM_IO, "%.200s cannot be read", path)
                   : app_fail(err, TRM_CORRUPT,
                              "%.200s: larger than 1 MB, the limit for this kind of file", path);
    }
    if (memchr(text, '\0', length) != NULL) { /* the rest would be ignored */
        size_t at = strnlen(text, length);
        free(text);
        return app_fail(err, TRM_CORRUPT, "%.200s: byte %zu: a zero byte; text expected", path, at);
    }
    text[length] = '\0';
    *out = text;
    return TRM_OK;
}

bool app_ends_in(const char *path, const char *ending) {
    size_t length = strlen(path), end = strlen(ending);
    return length > end && strcmp(path + length - end, ending) == 0;
}

trm_status app_read_plan(const char *path, char **out, trm_error *err) {
    trm_plan_info info;
    return trm_plan_read(path, &info, out, err);
}
