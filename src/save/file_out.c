/* SPDX-License-Identifier: Apache-2.0 */
#include "save/file_out.h"

#include "trireme/save_files.h"

#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GATHER_BYTES = 64 << 10 };

/* The name that messages say: the one that is meant. */
static const char *named(const trmi_file_out *out) {
    return trmi_path_tail(out->replaces ? out->final_path : out->path);
}

static trm_status open_at(trmi_file_out *out, trm_error *err) {
    out->buffer = trmi_alloc(GATHER_BYTES);
    if (out->buffer == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory to write it", named(out));
    }
    int flags = O_WRONLY | O_CREAT | (out->replaces ? O_TRUNC : O_EXCL);
    out->fd = out->os->open(out->os->context, out->path, flags, 0644);
    if (out->fd < 0) {
        trm_status status = trmi_os_cannot_create(named(out), err);
        trmi_free(out->buffer);
        out->buffer = NULL;
        return status;
    }
    return TRM_OK;
}

trm_status trmi_file_out_open(trmi_file_out *out, const trmi_os *os, const char *path,
                              trmi_digest *digest, trm_error *err) {
    memset(out, 0, sizeof *out);
    out->fd = -1;
    out->os = os != NULL ? os : trmi_os_real();
    out->digest = digest;
    if (strlen(path) >= sizeof out->path) {
        return TRMI_FAIL(err, TRM_INVALID, "...%s: the path is too long", trmi_path_tail(path));
    }
    memcpy(out->path, path, strlen(path) + 1);
    return open_at(out, err);
}

trm_status trmi_file_out_open_replacing(trmi_file_out *out, const trmi_os *os, const char *path,
                                        trm_error *err) {
    memset(out, 0, sizeof *out);
    out->fd = -1;
    out->os = os != NULL ? os : trmi_os_real();
    out->replaces = true;
    TRMI_TRY(trmi_os_replaceable(path, err));
    int length = snprintf(out->path, sizeof out->path, "%s.tmp.%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof out->path) {
        return TRMI_FAIL(err, TRM_INVALID, "...%s: the path is too long", trmi_path_tail(path));
    }
    memcpy(out->final_path, path, strlen(path) + 1);
    return open_at(out, err);
}

static trm_status push(trmi_file_out *out, const void *data, size_t bytes, trm_error *err) {
    if (out->digest != NULL) {
        TRMI_TRY(trmi_digest_update(out->digest, data, bytes, err));
    }
    return trmi_os_write_all(out->os, out->fd, data, bytes, named(out), err);
}

static trm_status flush(trmi_file_out *out, trm_error *err) {
    size_t used = out->used;
    out->used = 0;
    return used > 0 ? push(out, out->buffer, used, err) : TRM_OK;
}

trm_status trmi_file_out_write(trmi_file_out *out, const void *data, size_t bytes, trm_error *err) {
    const uint8_t *next = data;
    out->bytes += (int64_t)bytes;
    if (bytes >= GATHER_BYTES) {
        TRMI_TRY(flush(out, err));
        while (bytes > 0) { /* in pieces that stay in the cache between checksum and write */
            size_t take = bytes < (1u << 20) ? bytes : 1u << 20;
            TRMI_TRY(push(out, next, take, err));
            next += take;
            bytes -= take;
        }
        return TRM_OK;
    }
    if (out->used + bytes > GATHER_BYTES) {
        TRMI_TRY(flush(out, err));
    }
    if (bytes > 0) {
        memcpy(out->buffer + out->used, data, bytes);
    }
    out->used += bytes;
    return TRM_OK;
}

trm_status trmi_file_out_zeros(trmi_file_out *out, size_t bytes, trm_error *err) {
    static const uint8_t zeros[4096];
    while (bytes > 0) {
        size_t take = bytes < sizeof zeros ? bytes : sizeof zeros;
        TRMI_TRY(trmi_file_out_write(out, zeros, take, err));
        bytes -= take;
    }
    return TRM_OK;
}

/* fsync's first failure means that data is lost; a second call would say "fine" (fsyncgate). */
static trm_status settle(trmi_file_out *out, trm_error *err) {
    const trmi_os *os = out->os;
    TRMI_TRY(flush(out, err));
    if (os->fsync(os->context, out->fd) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot flush to disk", named(out));
    }
    int fd = out->fd;
    out->fd = -1;
    if (os->close(os->context, fd) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot close", named(out));
    }
    if (out->digest != NULL) {
        TRMI_TRY(trmi_digest_finish(out->digest, err));
    }
    return TRM_OK;
}

trm_status trmi_file_out_close(trmi_file_out *out, trm_error *err) {
    const trmi_os *os = out->os;
    trm_status status = settle(out, err);
    if (status == TRM_OK && out->replaces &&
        os->rename(os->context, out->path, out->final_path) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot rename from %s", trmi_path_tail(out->final_path),
                               trmi_path_tail(out->path));
    }
    if (status != TRM_OK) {
        trmi_file_out_abort(out);
        return status;
    }
    trmi_free(out->buffer);
    out->buffer = NULL;
    if (out->replaces) {
        char parent[TRMI_PATH_BYTES];
        trmi_path_parent(out->final_path, parent);
        return trmi_os_fsync_dir(os, parent, err);
    }
    return TRM_OK;
}

void trmi_file_out_abort(trmi_file_out *out) {
    if (out->buffer == NULL) {
        return; /* never opened, or closed */
    }
    if (out->fd >= 0) {
        out->os->close(out->os->context, out->fd);
    }
    out->fd = -1;
    out->os->unlink(out->os->context, out->path);
    trmi_free(out->buffer);
    out->buffer = NULL;
}

trm_status trm_file_write(const char *path, const void *data, size_t bytes, trm_error *err) {
    return trmi_os_replace_file(NULL, path, data, bytes, err);
}
