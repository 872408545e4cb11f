/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about other processes from /proc/PID/stat (contract in process.h). */
#include "base/process.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Contract in process.h. Pure, so that it can be tested with any line. */
bool trmi_process_parse_stat(const char *text, trmi_process_stat *out) {
    /* "PID (NAME) STATE PARENT ...". The name may contain parentheses, spaces and line ends, so it
     * ends at the last parenthesis of the line. */
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    trmi_process_stat stat = {0};
    if (open == NULL || close == NULL || close < open) {
        return false;
    }
    snprintf(stat.name, sizeof stat.name, "%.*s", (int)(close - open - 1), open + 1);
    /* Fields 3 and 4; 9; 22. Those between them are skipped: 5 to 8, and 10 to 21. */
    if (sscanf(close + 1,
               " %c %" SCNd32 " %*d %*d %*d %*d %" SCNu32
               " %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
               &stat.state, &stat.parent, &stat.flags, &stat.start_ticks) != 4) {
        return false;
    }
    *out = stat;
    return true;
}

/* Contract in process.h. False: there is no such process, or its line is not readable. */
bool trmi_process_read_stat(int64_t pid, trmi_process_stat *out) {
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    return trmi_process_parse_stat(text, out);
}

bool trmi_process_has_ended(const trmi_process_stat *stat) {
    return stat->state == 'Z' || stat->state == 'X'; /* zombie, dead */
}

/* Writes the id of this boot of the kernel, or "unknown". */
static void write_boot(char boot[64]) {
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL || fscanf(file, "%63s", boot) != 1) {
        snprintf(boot, 64, "unknown");
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Contract in process.h. Process ids mean the same only in one boot and one name space, so both are
 * part of a place. */
void trmi_process_write_place(const char *spaces, char text[TRMI_PLACE_BYTES]) {
    write_boot(text);
    size_t used = strlen(text);
    for (const char *at = spaces; *at != '\0';) {
        int length = (int)strcspn(at, " ");
        char path[48], space[32] = "";
        snprintf(path, sizeof path, "/proc/self/ns/%.*s", length, at);
        ssize_t bytes = readlink(path, space, sizeof space - 1);
        space[bytes > 0 ? bytes : 0] = '\0';
        used += (size_t)snprintf(text + used, TRMI_PLACE_BYTES - used, "/%s", space);
        at += length + (at[length] == ' ');
    }
}
