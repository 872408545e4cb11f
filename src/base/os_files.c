/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders on Linux (base/os.h), in this order:
 *
 *   files      durable files through the table trmi_os: temporary file, flush, rename, flush of the
 *              folder; so readers see the old content or the new one, also after a crash
 *   folders    made level by level, private ones checked, trees removed
 *   reading    regular files only, as a whole
 *
 * Functions that write files use the table, because tests replace it to make one of its calls fail
 * (tests/fault_os.h). Functions that read files use the system calls directly. Nothing is kept
 * between calls, so any thread may call any function. */
#define _GNU_SOURCE
#include "base/os.h"

#include "base/error.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the table of the real system: each function forwards to the system call ---- */

/* The functions of the table: the system calls, with a context that they do not need. */
static int real_open(void *context, const char *path, int flags, int mode) {
    (void)context;
    return open(path, flags | O_CLOEXEC, mode);
}
static ssize_t real_write(void *context, int fd, const void *data, size_t bytes) {
    (void)context;
    return write(fd, data, bytes);
}
static int real_fsync(void *context, int fd) {
    (void)context;
    return fsync(fd);
}
static int real_close(void *context, int fd) {
    (void)context;
    return close(fd);
}
static int real_rename(void *context, const char *from, const char *to) {
    (void)context;
    return rename(from, to);
}
static int real_mkdir(void *context, const char *path, int mode) {
    (void)context;
    return mkdir(path, (mode_t)mode);
}
static int real_unlink(void *context, const char *path) {
    (void)context;
    return unlink(path);
}
static int real_rmdir(void *context, const char *path) {
    (void)context;
    return rmdir(path);
}

const trmi_os *trmi_os_real(void) {
    static const trmi_os table = {
        .open = real_open,
        .write = real_write,
        .fsync = real_fsync,
        .close = real_close,
        .rename = real_rename,
        .mkdir = real_mkdir,
        .unlink = real_unlink,
        .rmdir = real_rmdir,
    };
    return &table;
}

/* Returns the table, or that of the real system for NULL. */
static const trmi_os *choose_table(const trmi_os *os) { return os != NULL ? os : trmi_os_real(); }

/* Contract in os.h. A signal may interrupt a call, and a call may write only a part: both are
 * repeated. */
trm_status trmi_os_write_all(const trmi_os *os, int fd, const void *data, size_t bytes,
                             const char *path, trm_error *err) {
    os = choose_table(os);
    const char *next = data;
    size_t left = bytes;
    while (left > 0) {
        ssize_t wrote = os->write(os->context, fd, next, left);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            errno = wrote == 0 ? ENOSPC : errno;
            return TRMI_FAIL_SYS(err, "%s: cannot write %zu of %zu bytes", path, left, bytes);
        }
        next += wrote;
        left -= (size_t)wrote;
    }
    return TRM_OK;
}

/* Contract in os.h. On Linux a new or renamed file is durable only after its directory is
 * flushed. */
trm_status trmi_os_fsync_dir(const trmi_os *os, const char *path, trm_error *err) {
    os = choose_table(os);
    int fd = os->open(os->context, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open the directory", path);
    }
    trm_status status = TRM_OK;
    if (os->fsync(os->context, fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush the directory to disk", path);
    }
    os->close(os->context, fd);
    return status;
}

/* Writes the directory of a path; "." if it has none. */
static void write_parent(const char *path, char *parent, size_t size) {
    snprintf(parent, size, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == NULL) {
        snprintf(parent, size, ".");
    } else {
        slash[slash == parent ? 1 : 0] = '\0';
    }
}

/* Contract in os.h. ENOENT of a call that creates a file means that its folder is missing. */
trm_status trmi_os_cannot_create(const char *path, trm_error *err) {
    return TRMI_FAIL_SYS(
        err, errno == ENOENT ? "%s: cannot create, its folder must be there" : "%s: cannot create",
        path);
}

/* Writes data to the temporary file and flushes it to disk. path: the final name, for messages. */
static trm_status write_and_flush(const trmi_os *os, const char *temporary, const char *path,
                                  const void *data, size_t bytes, trm_error *err) {
    int fd = os->open(os->context, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) {
        return trmi_os_cannot_create(path, err);
    }
    trm_status status = trmi_os_write_all(os, fd, data, bytes, path, err);
    if (status == TRM_OK && os->fsync(os->context, fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush to disk", path);
    }
    if (os->close(os->context, fd) != 0 && status == TRM_OK) {
        status = TRMI_FAIL_SYS(err, "%s: cannot close", path);
    }
    return status;
}

/* Contract in os.h. A rename would replace a device such as /dev/null by a regular file. */
trm_status trmi_os_replaceable(const char *path, trm_error *err) {
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) {
        return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_IO, "%s: %s, a file would take its place; give a file's name", path,
                     S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
}

/* Contract in os.h. A file is made under a temporary name in its folder; a folder below the nearest
 * one that is there. */
trm_status trmi_os_check_path(const char *path, bool folder, trm_error *err) {
    char place[PATH_MAX];
    struct stat info;
    if (strlen(path) + 32 >= sizeof place) {
        return TRMI_FAIL(err, TRM_INVALID, "%.120s...: the path is too long", path);
    }
    if (!folder) {
        TRMI_TRY(trmi_os_replaceable(path, err));
        write_parent(path, place, sizeof place);
    } else {
        snprintf(place, sizeof place, "%s", path);
    }
    int there = stat(place, &info);
    while (folder && there != 0 && errno == ENOENT && strcmp(place, ".") != 0) {
        char below[PATH_MAX];
        snprintf(below, sizeof below, "%s", place);
        write_parent(below, place, sizeof place);
        there = stat(place, &info);
    }
    if (there == 0 && !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        there = -1;
    }
    if (there != 0 || access(place, W_OK | X_OK) != 0) {
        return folder ? TRMI_FAIL_SYS(err, "%s: cannot make the directory", path)
                      : trmi_os_cannot_create(path, err);
    }
    return TRM_OK;
}

/* Contract in os.h. Readers see the old or the new content: the data are flushed under a temporary
 * name before the rename, and the rename is flushed afterwards. */
trm_status trmi_os_replace_file(const trmi_os *os, const char *path, const void *data, size_t bytes,
                                trm_error *err) {
    os = choose_table(os);
    TRMI_TRY(trmi_os_replaceable(path, err));
    char temporary[PATH_MAX], parent[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return TRMI_FAIL(err, TRM_INVALID, "%.120s...: the path is too long", path);
    }
    trm_status status = write_and_flush(os, temporary, path, data, bytes, err);
    if (status == TRM_OK && os->rename(os->context, temporary, path) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot rename from %s", path, temporary);
    }
    if (status != TRM_OK) {
        os->unlink(os->context, temporary);
        return status;
    }
    write_parent(path, parent, sizeof parent);
    return trmi_os_fsync_dir(os, parent, err);
}

/* Contract in os.h. Goes through the path level by level. Another process may make a level at the
 * same time (EEXIST). */
trm_status trmi_os_make_dirs(const trmi_os *os, const char *path, trm_error *err) {
    os = choose_table(os);
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable directory name", path);
    }
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0') {
            continue;
        }
        /* Cut the path here: `partial` is the level to make. */
        char kept = partial[i];
        partial[i] = '\0';
        struct stat info;
        bool there = stat(partial, &info) == 0;
        if (there && !S_ISDIR(info.st_mode)) {
            errno = ENOTDIR;
            return TRMI_FAIL_SYS(err, "%s: cannot make the directory", partial);
        }
        if (!there && os->mkdir(os->context, partial, 0777) != 0 && errno != EEXIST) {
            return TRMI_FAIL_SYS(err, "%s: cannot make the directory", partial);
        }
        partial[i] = kept;
    }
    return TRM_OK;
}

/* Contract in os.h. A path without a slash has its folder already. */
trm_status trmi_os_make_parent(const trmi_os *os, const char *path, trm_error *err) {
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return TRM_OK;
    }
    if ((size_t)(slash - path) >= sizeof parent) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable file name", path);
    }
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    return trmi_os_make_dirs(os, parent, err);
}

/* Contract in os.h. A folder that another user can write lets that user replace its files; the
 * sticky bit (as on /tmp) prevents that. */
trm_status trmi_os_private_dir(const char *file, trm_error *err) {
    char dir[PATH_MAX];
    struct stat info;
    write_parent(file, dir, sizeof dir);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return TRMI_FAIL(err, TRM_INVALID, "directory %s cannot be made (%s)", dir,
                         strerror(errno));
    }
    if (lstat(dir, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return TRMI_FAIL(err, TRM_INVALID, "directory %s is no directory", dir);
    }
    /* The folder is shared if it is writable for the group or for all, without the sticky bit. */
    bool shared = (info.st_mode & 022) != 0 && (info.st_mode & S_ISVTX) == 0;
    if ((info.st_uid != geteuid() && info.st_uid != 0) || shared) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "directory %s can be written by others (owner %u, mode %04o); remove it or use another",
            dir, (unsigned)info.st_uid, (unsigned)(info.st_mode & 07777));
    }
    return TRM_OK;
}

/* Contract in os.h. Removes what is in a directory, then the directory. Symbolic links are removed,
 * not followed. A file that another process has removed in the meantime is no error. */
trm_status trmi_os_remove_tree(const trmi_os *os, const char *path, trm_error *err) {
    os = choose_table(os);
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? TRM_OK : TRMI_FAIL_SYS(err, "%s: cannot be examined", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return os->unlink(os->context, path) == 0 || errno == ENOENT
                   ? TRM_OK
                   : TRMI_FAIL_SYS(err, "%s: cannot remove", path);
    }
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return TRMI_FAIL_SYS(err, "%s: cannot list", path);
    }
    trm_status status = TRM_OK;
    for (struct dirent *entry; status == TRM_OK && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char child[PATH_MAX];
        int length = snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        status = length < 0 || (size_t)length >= sizeof child
                     ? TRMI_FAIL(err, TRM_INVALID, "%.120s...: the path is too long", path)
                     : trmi_os_remove_tree(os, child, err);
    }
    closedir(dir);
    if (status == TRM_OK && os->rmdir(os->context, path) != 0 && errno != ENOENT) {
        status = TRMI_FAIL_SYS(err, "%s: cannot remove the directory", path);
    }
    return status;
}

/* Contract in os.h. The check is on the open descriptor, because the path may change in between. */
trm_status trmi_os_open_regular(const char *path, int *out, int64_t *bytes, trm_error *err) {
    /* With O_NONBLOCK opening a pipe does not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open", path);
    }
    struct stat info = {0};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        /* only this errno is of use in the error */
        errno = S_ISDIR(info.st_mode) ? EISDIR : 0;
        return TRMI_FAIL(err, TRM_IO, "%s: not a regular file", path);
    }
    *out = fd;
    *bytes = (int64_t)info.st_size;
    return TRM_OK;
}

/* Contract in os.h. The size is compared with the limit before memory is taken; a zero byte follows
 * the data, so that text can be parsed. */
trm_status trmi_os_read_file(const char *path, size_t limit, uint8_t **out, size_t *bytes,
                             trm_error *err) {
    int fd;
    int64_t length;
    TRMI_TRY(trmi_os_open_regular(path, &fd, &length, err));
    trm_status status = TRM_OK;
    uint8_t *data = NULL;
    if ((uint64_t)length > limit) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: %lld bytes, at most %zu expected", path,
                           (long long)length, limit);
        goto done;
    }
    size_t size = (size_t)length, have = 0;
    data = trmi_alloc(size + 1);
    if (data == NULL) {
        status = TRMI_NO_MEMORY(err, "for %zu bytes of %s", size, path);
        goto done;
    }
    /* read all of it; the file may have become shorter since */
    while (have < size) {
        ssize_t got = read(fd, data + have, size - have);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            status =
                got < 0 ? TRMI_FAIL_SYS(err, "%s: cannot read at offset %zu", path, have)
                        : TRMI_FAIL(err, TRM_IO, "%s: ends at offset %zu of %zu", path, have, size);
            goto done;
        }
        have += (size_t)got;
    }
    data[size] = 0;
    *out = data;
    *bytes = size;
    data = NULL;
done:
    trmi_free(data);
    close(fd);
    return status;
}
