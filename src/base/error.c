/* SPDX-License-Identifier: Apache-2.0 */
/* Error records: formatting, context, system errors, the wire form (base/error.h).
 *
 *     TRMI_FAIL       status and message                          trmi_error_set
 *     TRMI_FAIL_SYS   the status follows from errno; ": " and     trmi_error_sys
 *                     the system's text are added
 *     append          " (where it came from)" behind the cause    trmi_error_append
 *
 * A record has a fixed size and is copied as it is, so that reporting an error needs no memory: the
 * message stands in the record itself, and one that is too long loses its middle. All functions
 * accept NULL for a caller that wants the status only. errno is saved before anything that may
 * change it. The wire form has the same 256 bytes on every platform, in little-endian order. */
#include "base/error.h"

#include "base/format/endian.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(trm_error) == 256, "the error record is 256 bytes on every platform");

/* Stores file and line; of a long path the end is kept. */
static void write_place(trm_error *err, const char *file, int line) {
    size_t length = strlen(file);
    size_t room = sizeof err->file - 1;
    const char *tail = length > room ? file + (length - room) : file;
    memset(err->file, 0, sizeof err->file);
    memcpy(err->file, tail, strlen(tail));
    err->line = line;
}

/* Longest formatted message. If it does not fit the record, its middle is dropped, most likely a
 * part of a path: the beginning names the place, the end the fault. */
enum { TEXT_BYTES = 4096 + 1024 };

/* Stores a message, without its middle if it is too long. */
static void store_message(trm_error *err, const char *text) {
    size_t length = strlen(text), room = sizeof err->message - 1, head = room / 4,
           tail = room - head - 3;
    if (length <= room) {
        memcpy(err->message, text, length + 1);
        return;
    }
    memcpy(err->message, text, head);
    memcpy(err->message + head, "...", 3);
    memcpy(err->message + head + 3, text + length - tail, tail + 1);
}

/* Fills in everything but the message. */
static void fill_record(trm_error *err, trm_status status, int sys_errno, const char *file,
                        int line) {
    memset(err, 0, sizeof *err);
    err->status = status;
    err->rank = -1;
    err->sys_errno = sys_errno;
    write_place(err, file, line);
}

/* Contract in error.h. errno is saved first, because formatting may change it. */
trm_status trmi_error_set(trm_error *err, trm_status status, const char *file, int line,
                          const char *format, ...) {
    int saved_errno = errno;
    if (err == NULL) {
        return status;
    }
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fill_record(err, status, status == TRM_IO || status == TRM_NOSPACE ? saved_errno : 0, file,
                line);
    store_message(err, text);
    return status;
}

/* Contract in error.h. Adds where an error came from; the cause stays in front. */
trm_status trmi_error_append(trm_error *err, const char *format, ...) {
    if (err == NULL) {
        return TRM_INTERNAL;
    }
    char text[TEXT_BYTES];
    int used = snprintf(text, sizeof text, "%.*s", (int)sizeof err->message - 1, err->message);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, args);
    va_end(args);
    store_message(err, text);
    return (trm_status)err->status;
}

/* Returns whether errno reports a limit on open files. */
static bool is_limit(int number) { return number == EMFILE || number == ENFILE; }

/* Contract in error.h. errno decides the status: no space, no memory (or too many open files), any
 * other input/output error. */
trm_status trmi_error_sys(trm_error *err, const char *file, int line, const char *format, ...) {
    int saved_errno = errno;
    trm_status status = saved_errno == ENOSPC || saved_errno == EDQUOT || saved_errno == EFBIG
                            ? TRM_NOSPACE
                        : saved_errno == ENOMEM || is_limit(saved_errno) ? TRM_NOMEM
                                                                         : TRM_IO;
    if (err == NULL) {
        return status;
    }
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text - 100, format, args);
    va_end(args);
    size_t used = strlen(text);
    /* strerror_r has two signatures; %m is glibc and musl. */
    errno = saved_errno;
    snprintf(text + used, sizeof text - used, ": %m");
    if (saved_errno == EMFILE && sysconf(_SC_OPEN_MAX) > 0) {
        used = strlen(text);
        snprintf(text + used, sizeof text - used, " (at most %ld; ulimit -n sets the limit)",
                 sysconf(_SC_OPEN_MAX));
    }
    fill_record(err, status, saved_errno, file, line);
    store_message(err, text);
    return status;
}

/* Contract in error.h. Offsets: 0 status, 4 rank, 8 errno, 12 line, 16 file, 40 message. */
void trmi_error_encode(const trm_error *err, uint8_t wire[256]) {
    trmi_put32(wire, (uint32_t)err->status);
    trmi_put32(wire + 4, (uint32_t)err->rank);
    trmi_put32(wire + 8, (uint32_t)err->sys_errno);
    trmi_put32(wire + 12, (uint32_t)err->line);
    memcpy(wire + 16, err->file, sizeof err->file);
    memcpy(wire + 40, err->message, sizeof err->message);
}

void trmi_error_decode(trm_error *err, const uint8_t wire[256]) {
    err->status = (int32_t)trmi_get32(wire);
    err->rank = (int32_t)trmi_get32(wire + 4);
    err->sys_errno = (int32_t)trmi_get32(wire + 8);
    err->line = (int32_t)trmi_get32(wire + 12);
    memcpy(err->file, wire + 16, sizeof err->file);
    memcpy(err->message, wire + 40, sizeof err->message);
    /* Bytes of a peer may lack their ends: terminate both strings. */
    err->file[sizeof err->file - 1] = '\0';
    err->message[sizeof err->message - 1] = '\0';
}

_Noreturn void trmi_assert_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "trireme: internal error at %s:%d: %s does not hold\n", file, line, condition);
    abort();
}
