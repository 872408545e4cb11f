/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a run (contract and drawing in record.h). Threads of the library log while the
 * training reports: each line is built in memory of its own and written by one call of write(2)
 * on a descriptor that appends. */
#include "app/record.h"

#include "app/flags.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static atomic_int record = -1; /* descriptor of the open record */
static atomic_bool failed;     /* a line could not be written */

/* ---- opening --------------------------------------------------------------------------------- */

/* Creates the folders of `path` up to its last slash. A folder that cannot be created is reported
 * by the opening of the file. */
static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)!mkdir(path, 0777);
        *slash = '/';
    }
}

/* Returns whether the file ends inside a line, as a killed process leaves it. */
static bool ends_inside_line(int fd) {
    char last = '\n';
    off_t bytes = lseek(fd, 0, SEEK_END);
    return bytes > 0 && pread(fd, &last, 1, bytes - 1) == 1 && last != '\n';
}

/* Contract in record.h. Half a line of an earlier process is ended, so that readers skip that line
 * only. */
trm_status app_record_open(const char *folder, const char *who, trm_error *err) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/run%s%s.jsonl", folder, who != NULL ? "-" : "",
                          who != NULL ? who : "");
    if (length < 0 || (size_t)length >= sizeof path) {
        return app_fail(err, TRM_INVALID, "--output %.60s...: the path is too long", folder);
    }
    make_folders(path);
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return app_fail(err, TRM_IO, "%.180s cannot be written: %s", path, strerror(errno));
    }
    if (ends_inside_line(fd)) {
        (void)!write(fd, "\n", 1);
    }
    app_record_close();
    atomic_store(&failed, false);
    atomic_store(&record, fd);
    return TRM_OK;
}

void app_record_close(void) {
    int fd = atomic_exchange(&record, -1);
    if (fd >= 0) {
        close(fd);
    }
}

bool app_record_is_open(void) { return atomic_load(&record) >= 0; }

/* ---- lines ----------------------------------------------------------------------------------- */

/* Contract in record.h. The time stands in front of the object's members. */
bool app_record_line(const char *json, size_t bytes) {
    struct timespec now;
    char *line = NULL;
    size_t length;
    if (!app_record_is_open() || bytes < 3) {
        return true;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    FILE *text = open_memstream(&line, &length);
    bool written = text != NULL;
    if (written) {
        fprintf(text, "{\"time\":%lld.%03ld,", (long long)now.tv_sec, now.tv_nsec / 1000000);
        fwrite(json + 1, 1, bytes - 1, text);
        fputc('\n', text);
        written = fclose(text) == 0 && write(atomic_load(&record), line, length) == (ssize_t)length;
    }
    free(line);
    return written || atomic_exchange(&failed, true);
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

/* Returns the bytes of the UTF-8 sequence at `s`, 0 if it is not valid. */
static int utf8_length(const unsigned char *s) {
    int n = s[0] < 0x80                   ? 1
            : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
            : (s[0] & 0xF0) == 0xE0       ? 3
            : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                          : 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool overlong = n == 3 && s[0] == 0xE0 && s[1] < 0xA0;
    bool surrogate = n == 3 && s[0] == 0xED && s[1] >= 0xA0;
    bool range = n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90));
    return overlong || surrogate || range ? 0 : n;
}

void app_put_json_string(FILE *to, const char *value) {
    const unsigned char *s = (const unsigned char *)value;
    fputc('"', to);
    while (*s != '\0') {
        int n = utf8_length(s);
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
