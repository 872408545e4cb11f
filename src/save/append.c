/* SPDX-License-Identifier: Apache-2.0 */
/* Appending whole records to a file (append.h): events, metrics, logs. A record is written by one
 * call, so that a reader of the growing file sees all of it or nothing, and a failed write is taken
 * back, so that the file ends with a whole record. */
#include "save/append.h"

#include "base/error.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Contract in append.h. Cuts an existing file at keep_bytes: what a killed process wrote after
 * its last checkpoint goes away. */
trm_status trmi_append_open(trmi_append *file, const trmi_os *os, const char *path, bool exclusive,
                            int64_t keep_bytes, trm_error *err) {
    memset(file, 0, sizeof *file);
    file->fd = -1;
    file->os = os != NULL ? os : trmi_os_real();
    if (strlen(path) >= sizeof file->path) {
        return TRMI_FAIL(err, TRM_INVALID, "...%s: the path is too long", trmi_path_tail(path));
    }
    memcpy(file->path, path, strlen(path) + 1);
    struct stat info;
    /* opening a FIFO would wait for a reader */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a regular file expected (found a %s); name another file",
                         trmi_path_tail(path),
                         S_ISFIFO(info.st_mode)  ? "FIFO"
                         : S_ISDIR(info.st_mode) ? "directory"
                                                 : "device or socket");
    }
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | (exclusive ? O_EXCL : 0);
    file->fd = file->os->open(file->os->context, path, flags, 0644);
    if (file->fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open for writing", trmi_path_tail(path));
    }
    /* cut what comes after the last checkpoint */
    if (!exclusive && ftruncate(file->fd, keep_bytes) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot cut at byte %lld", trmi_path_tail(path),
                                          (long long)keep_bytes);
        file->os->close(file->os->context, file->fd);
        file->fd = -1;
        return status;
    }
    file->bytes = exclusive ? 0 : keep_bytes;
    return TRM_OK;
}

/* Contract in append.h. A short write means a full disk: it is reported as such, since write() sets
 * no errno then. */
trm_status trmi_append_record(trmi_append *file, const void *data, size_t bytes, trm_error *err) {
    ssize_t wrote;
    do {
        wrote = file->os->write(file->os->context, file->fd, data, bytes);
    } while (wrote < 0 && errno == EINTR);
    if (wrote == (ssize_t)bytes) {
        file->bytes += wrote;
        return TRM_OK;
    }
    errno = wrote >= 0 ? ENOSPC : errno;
    trm_status status = TRMI_FAIL_SYS(err, "%s: cannot append %zu bytes at offset %lld",
                                      trmi_path_tail(file->path), bytes, (long long)file->bytes);
    /* Cut off half a record: readers stop at a damaged one. */
    if (wrote > 0 && ftruncate(file->fd, file->bytes) != 0) {
        trmi_error_append(err, "; nor take back half of it");
    }
    return status;
}

trm_status trmi_append_flush(trmi_append *file, trm_error *err) {
    return file->os->fsync(file->os->context, file->fd) == 0
               ? TRM_OK
               : TRMI_FAIL_SYS(err, "%s: cannot flush to disk", trmi_path_tail(file->path));
}

/* Contract in append.h. close() may report what earlier writes could not store (network file
 * systems), so its result counts. */
trm_status trmi_append_close(trmi_append *file, trm_error *err) {
    if (file->fd < 0) {
        return TRM_OK;
    }
    trm_status status = trmi_append_flush(file, err);
    if (file->os->close(file->os->context, file->fd) != 0 && status == TRM_OK) {
        status = TRMI_FAIL_SYS(err, "%s: cannot close", trmi_path_tail(file->path));
    }
    file->fd = -1;
    return status;
}
