/* SPDX-License-Identifier: Apache-2.0 */
/* Files written from front to back.
 *
 *   trmi_file_out_write --> buffer (small pieces) --> push: digest, write --> trmi_file_out_close:
 *                                                     fsync, close, rename, fsync of the directory
 *
 * Small pieces are collected in a buffer; large ones are passed on in pieces of 1 MB, so that the
 * checksum and the write find them in the cache. Nothing counts as written before fsync, close and
 * rename have succeeded. All calls go through trmi_os, so that tests can make each of them fail. */
#include "save/file_out.h"

#include "trireme/io.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GATHER_BYTES = 64 << 10 }; /* size of the buffer; larger pieces bypass it */

/* Returns the name for messages: that of the final file. */
static const char *shown_name(const trmi_file_out *out) {
    return trmi_path_tail(out->replaces ? out->final_path : out->path);
}

/* Allocates the buffer and creates the file. */
static trm_status open_at(trmi_file_out *out, trm_error *err) {
    out->buffer = trmi_alloc(GATHER_BYTES);
    if (out->buffer == NULL) {
        return TRMI_NO_MEMORY(err, "to write %s", shown_name(out));
    }
    /* A file that is renamed later may replace the rest of an earlier attempt; another must be
     * new. */
    int flags = O_WRONLY | O_CREAT | (out->replaces ? O_TRUNC : O_EXCL);
    out->fd = out->os->open(out->os->context, out->path, flags, 0644);
    if (out->fd < 0) {
        trm_status status = trmi_os_cannot_create(shown_name(out), err);
        trmi_free(out->buffer);
        out->buffer = NULL;
        return status;
    }
    return TRM_OK;
}

/* Contract in file_out.h. The file appears under its own name; the caller has a folder that is not
 * complete yet, or another protection of readers. */
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

/* Contract in file_out.h. The temporary name has the process id, so two processes that write the
 * same file do not mix their bytes; the last rename wins. */
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

/* Writes to the file and adds the data to the digest. */
static trm_status write_through(trmi_file_out *out, const void *data, size_t bytes,
                                trm_error *err) {
    if (out->digest != NULL) {
        TRMI_TRY(trmi_digest_update(out->digest, data, bytes, err));
    }
    return trmi_os_write_all(out->os, out->fd, data, bytes, shown_name(out), err);
}

/* Writes what is in the buffer. */
static trm_status write_buffer(trmi_file_out *out, trm_error *err) {
    size_t used = out->used;
    out->used = 0;
    return used > 0 ? write_through(out, out->buffer, used, err) : TRM_OK;
}

/* Contract in file_out.h. Small pieces are gathered, so that a header of many words is one system
 * call; checksums are of the bytes as they are written. */
trm_status trmi_file_out_write(trmi_file_out *out, const void *data, size_t bytes, trm_error *err) {
    const uint8_t *next = data;
    out->bytes += (int64_t)bytes;
    /* A large piece follows what is in the buffer, without a copy. */
    if (bytes >= GATHER_BYTES) {
        TRMI_TRY(write_buffer(out, err));
        while (bytes > 0) { /* pieces that stay in the cache between checksum and write */
            size_t take = bytes < (1u << 20) ? bytes : 1u << 20;
            TRMI_TRY(write_through(out, next, take, err));
            next += take;
            bytes -= take;
        }
        return TRM_OK;
    }
    /* A small piece is copied. */
    if (out->used + bytes > GATHER_BYTES) {
        TRMI_TRY(write_buffer(out, err));
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

/* Writes the rest, flushes and closes the file, finishes the digest. A first failure of fsync means
 * lost data, and a second call would report success (the "fsyncgate" problem), so it is never
 * repeated. */
static trm_status sync_and_close(trmi_file_out *out, trm_error *err) {
    const trmi_os *os = out->os;
    TRMI_TRY(write_buffer(out, err));
    if (os->fsync(os->context, out->fd) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot flush to disk", shown_name(out));
    }
    int fd = out->fd;
    out->fd = -1;
    if (os->close(os->context, fd) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot close", shown_name(out));
    }
    if (out->digest != NULL) {
        TRMI_TRY(trmi_digest_finish(out->digest, err));
    }
    return TRM_OK;
}

/* Contract in file_out.h. After an error nothing of the file is left, and a file that was to be
 * replaced is still the old one. */
trm_status trmi_file_out_close(trmi_file_out *out, trm_error *err) {
    const trmi_os *os = out->os;
    trm_status status = sync_and_close(out, err);
    if (status == TRM_OK && out->replaces &&
        os->rename(os->context, out->path, out->final_path) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot rename from %s", trmi_path_tail(out->final_path),
                               trmi_path_tail(out->path));
    }
    if (status != TRM_OK) {
        trmi_file_out_abort(out);
        return status;
    }
    /* The file is complete and has its name. */
    trmi_free(out->buffer);
    out->buffer = NULL;
    /* the new name must be durable, too */
    if (out->replaces) {
        char parent[TRMI_PATH_BYTES];
        trmi_path_parent(out->final_path, parent);
        return trmi_os_fsync_dir(os, parent, err);
    }
    return TRM_OK;
}

/* Contract in file_out.h. May be called in any state, so that callers need one cleanup path. */
void trmi_file_out_abort(trmi_file_out *out) {
    if (out->buffer == NULL) {
        return; /* never opened, or already closed */
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
    TRMI_NEED(err, path);
    if (bytes > 0) {
        TRMI_NEED(err, data);
    }
    return trmi_os_replace_file(NULL, path, data, bytes, err);
}

trm_status trm_path_check(const char *path, bool folder, trm_error *err) {
    TRMI_NEED(err, path);
    return trmi_os_check_path(path, folder, err);
}
