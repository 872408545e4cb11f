/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a run: JSON lines that are only ever appended. Threads may append at the same time:
 * each line is built in memory of its own and written by one call of write(2). */
#include "trireme/io.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An open record. */
struct trm_record {
    int fd;
    char *path; /* for messages */
};

/* Returns whether the file ends inside a line, as a killed process leaves it. */
static bool ends_inside_line(int fd) {
    char last = '\n';
    off_t bytes = lseek(fd, 0, SEEK_END);
    return bytes > 0 && pread(fd, &last, 1, bytes - 1) == 1 && last != '\n';
}

/* Contract in io.h. Half a line of an earlier process is ended, so that readers skip that line
 * only. */
trm_status trm_record_open(const char *path, trm_record **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    TRMI_TRY(trmi_os_make_parent(NULL, path, err));
    trm_record *record;
    TRMI_TRY(TRMI_NEW(err, record, 1, "for the record of a run"));
    record->path = trmi_alloc(strlen(path) + 1);
    record->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    trm_status status = record->path == NULL ? TRMI_FAIL(err, TRM_NOMEM, "%s: no memory", path)
                        : record->fd < 0     ? trmi_os_cannot_create(path, err)
                                             : TRM_OK;
    if (status != TRM_OK) {
        trm_record_close(record);
        return status;
    }
    memcpy(record->path, path, strlen(path) + 1);
    if (ends_inside_line(record->fd)) {
        (void)!write(record->fd, "\n", 1);
    }
    *out = record;
    return TRM_OK;
}

void trm_record_close(trm_record *record) {
    if (record == NULL) {
        return;
    }
    if (record->fd >= 0) {
        close(record->fd);
    }
    trmi_free(record->path);
    trmi_free(record);
}

/* Contract in io.h. The time stands in front of the object's members. */
trm_status trm_record_line(trm_record *record, const char *json, size_t bytes, trm_error *err) {
    enum { LEAST = 3 }; /* {"":0} is longer */
    TRMI_NEED(err, record, json);
    struct timespec now;
    trmi_text line = {0};
    if (bytes < LEAST || json[0] != '{') {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a JSON object with members expected", record->path);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    trmi_text_printf(&line, "{\"time\":%lld.%03ld,", (long long)now.tv_sec, now.tv_nsec / 1000000);
    trmi_text_append(&line, json + 1, bytes - 1);
    trmi_text_append(&line, "\n", 1);
    trm_status status = TRMI_CHECK_MEMORY(err, &line, "for a line of %s", record->path);
    if (status == TRM_OK) {
        ssize_t written = write(record->fd, line.data, line.length);
        errno = written >= 0 && written < (ssize_t)line.length ? ENOSPC : errno;
        status = written == (ssize_t)line.length
                     ? TRM_OK
                     : TRMI_FAIL_SYS(err, "%s: cannot append a line", record->path);
    }
    trmi_text_free(&line);
    return status;
}
