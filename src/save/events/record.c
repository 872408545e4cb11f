/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a run: JSON lines that are only ever appended.
 *
 *     run.jsonl            of rank 0, or of a run without roles
 *     run-ROLE-N.jsonl     of every other process; `trireme report` reads all of them
 *
 * Threads may append at the same time: each line is built in memory of its own and written by one
 * call of write(2) to a file that is open for appending. A process that is killed leaves at most
 * half a line, which the next one ends, so that readers skip that line only. */
#include "trireme/io.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/format/report.h"
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
    trmi_text path; /* for messages */
};

/* Returns whether the file ends inside a line, as a killed process leaves it. */
static bool ends_inside_line(int fd) {
    char last = '\n';
    off_t bytes = lseek(fd, 0, SEEK_END);
    return bytes > 0 && pread(fd, &last, 1, bytes - 1) == 1 && last != '\n';
}

/* Opens the file of a record, whose path is known.
 *   errors  IO */
static trm_status open_file(trm_record *record, trm_error *err) {
    TRMI_TRY(trmi_os_make_parent(NULL, record->path.data, err));
    record->fd =
        open(record->path.data, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    return record->fd >= 0 ? TRM_OK : trmi_os_cannot_create(record->path.data, err);
}

/* Contract in io.h. Half a line of an earlier process is ended, so that readers skip that line
 * only. */
trm_status trm_record_open(const char *folder, const char *role, int32_t number, trm_record **out,
                           trm_error *err) {
    TRMI_NEED(err, folder, out);
    trm_record *record;
    bool is_main = role == NULL || (strcmp(role, "rank") == 0 && number == 0);
    TRMI_TRY(TRMI_NEW(err, record, 1, "for the record of a run"));
    if (is_main) {
        trmi_text_printf(&record->path, "%s/run.jsonl", folder);
    } else {
        trmi_text_printf(&record->path, "%s/run-%s-%d.jsonl", folder, role, (int)number);
    }
    trm_status status = TRMI_CHECK_MEMORY(err, &record->path, "for the path of a record");
    record->fd = -1;
    status = status == TRM_OK ? open_file(record, err) : status;
    if (status != TRM_OK) {
        trm_record_close(record);
        return status;
    }
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
    trmi_text_free(&record->path);
    trmi_free(record);
}

/* Writes a line: the time, then the members of an object, which are JSON already. */
static void print_line(const char *json, size_t bytes, trmi_text *line) {
    struct timespec now;
    trmi_text members = {0};
    trmi_report report;
    clock_gettime(CLOCK_REALTIME, &now);
    trmi_text_append(&members, json + 1, bytes - 2); /* without the braces */
    trmi_report_begin_json(&report, line);
    trmi_report_put(&report,
                    trmi_real("time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) / 1000),
                    trmi_json_value(NULL, members.data));
    (void)trmi_report_end(&report);
    trmi_text_append(line, "\n", 1);
    line->failed = line->failed || members.failed;
    trmi_text_free(&members);
}

/* Contract in io.h. */
trm_status trm_record_line(trm_record *record, const char *json, size_t bytes, trm_error *err) {
    enum { LEAST = 3 }; /* {"":0} is longer */
    TRMI_NEED(err, record, json);
    trmi_text line = {0};
    if (bytes < LEAST || json[0] != '{' || json[bytes - 1] != '}') {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a JSON object with members expected",
                         record->path.data);
    }
    print_line(json, bytes, &line);
    trm_status status = TRMI_CHECK_MEMORY(err, &line, "for a line of %s", record->path.data);
    if (status == TRM_OK) {
        /* one call writes the whole line, so that a reader finds no half lines */
        ssize_t written = write(record->fd, line.data, line.length);
        errno = written >= 0 && written < (ssize_t)line.length ? ENOSPC : errno;
        status = written == (ssize_t)line.length
                     ? TRM_OK
                     : TRMI_FAIL_SYS(err, "%s: cannot append a line", record->path.data);
    }
    trmi_text_free(&line);
    return status;
}
