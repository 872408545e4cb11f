#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(trm_error) == 256, "the error record is 256 bytes on every platform");

static void write_place(trm_error *err, const char *file, int line) {
    size_t length = strlen(file);
    size_t room = sizeof err->file - 1;
    const char *tail = length > room ? file + (length - room) : file;
    memset(err->file, 0, sizeof err->file);
    memcpy(err->file, tail, strlen(tail));
    err->line = line;
}

trm_status trmi_error_set(trm_error *err, trm_status status, const char *file, int line,
                          const char *format, ...) {
    int saved_errno = errno;
    if (err == NULL) {
        return status;
    }
    memset(err, 0, sizeof *err);
    err->status = status;
    err->rank = -1;
    err->sys_errno = status == TRM_IO || status == TRM_NOSPACE ? saved_errno : 0;
    write_place(err, file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

trm_status trmi_error_append(trm_error *err, const char *format, ...) {
    if (err == NULL) {
        return TRM_INTERNAL;
    }
    size_t used = strnlen(err->message, sizeof err->message - 1);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message + used, sizeof err->message - used, format, args);
    va_end(args);
    return (trm_status)err->status;
}

trm_status trmi_error_sys(trm_error *err, const char *file, int line, const char *format, ...) {
    int saved_errno = errno;
    trm_status status = saved_errno == ENOSPC || saved_errno == EDQUOT || saved_errno == EFBIG ? TRM_NOSPACE
                        : saved_errno == ENOMEM                        ? TRM_NOMEM
                                                                       : TRM_IO;
    if (err == NULL) {
        return status;
    }
    memset(err, 0, sizeof *err);
    err->status = status;
    err->rank = -1;
    err->sys_errno = saved_errno;
    write_place(err, file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    char reason[80];
    /* strerror_r has two signatures; %m is glibc and musl. */
    errno = saved_errno;
    snprintf(reason, sizeof reason, "%m");
    trmi_error_append(err, ": %s", reason);
    return status;
}

static void put32(uint8_t *wire, int32_t value) {
    uint32_t bits = (uint32_t)value;
    for (int i = 0; i < 4; i++) {
        wire[i] = (uint8_t)(bits >> (8 * i));
    }
}

static int32_t get32(const uint8_t *wire) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) {
        bits |= (uint32_t)wire[i] << (8 * i);
    }
    return (int32_t)bits;
}

void trmi_error_encode(const trm_error *err, uint8_t wire[256]) {
    put32(wire, err->status);
    put32(wire + 4, err->rank);
    put32(wire + 8, err->sys_errno);
    put32(wire + 12, err->line);
    memcpy(wire + 16, err->file, sizeof err->file);
    memcpy(wire + 40, err->message, sizeof err->message);
}

void trmi_error_decode(trm_error *err, const uint8_t wire[256]) {
    err->status = get32(wire);
    err->rank = get32(wire + 4);
    err->sys_errno = get32(wire + 8);
    err->line = get32(wire + 12);
    memcpy(err->file, wire + 16, sizeof err->file);
    memcpy(err->message, wire + 40, sizeof err->message);
    /* A peer's bytes: never trust the terminators. */
    err->file[sizeof err->file - 1] = '\0';
    err->message[sizeof err->message - 1] = '\0';
}

_Noreturn void trmi_assert_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "trireme: internal error at %s:%d: %s does not hold\n", file, line, condition);
    abort();
}
