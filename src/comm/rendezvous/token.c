/* SPDX-License-Identifier: Apache-2.0 */
/* The job's token: 32 random bytes in a file that only its owner can read. */
#include "trireme/cluster.h"

#include "base/error.h"
#include "base/os.h"
#include "comm/cluster/cluster_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

trm_status trm_token_create(const char *path, trm_error *err) {
    uint8_t token[TRM_TOKEN_BYTES];
    char name[48];
    trmi_short_name(path, name);
    if (getrandom(token, sizeof token, 0) != (ssize_t)sizeof token) {
        return TRMI_FAIL_SYS(err, "no random bytes for the job token");
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "token file %s cannot be made", name);
    }
    ssize_t written = write(fd, token, sizeof token);
    explicit_bzero(token, sizeof token);
    if (written != (ssize_t)sizeof token) {
        trm_status status = TRMI_FAIL_SYS(err, "token file %s cannot be written", name);
        close(fd);
        unlink(path);
        return status;
    }
    if (close(fd) != 0) {
        return TRMI_FAIL_SYS(err, "token file %s cannot be closed", name);
    }
    return TRM_OK;
}

/* A file of root's that our group may read is an administrator's choice: a Kubernetes Secret with
 * fsGroup looks so. */
static bool lent_by_root(const struct stat *info) {
    gid_t groups[256];
    int count = getgroups(256, groups);
    bool member = info->st_gid == getegid();
    for (int g = 0; g < count; g++) {
        member |= groups[g] == info->st_gid;
    }
    return info->st_uid == 0 && geteuid() != 0 && (info->st_mode & 037) == 0 && member;
}

static trm_status read_open(int fd, const char *name, uint8_t token[32], trm_error *err) {
    struct stat info;
    uint8_t bytes[TRM_TOKEN_BYTES + 1];
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return TRMI_FAIL(err, TRM_INVALID, "token file %s: a regular file expected", name);
    }
    if ((info.st_mode & 077) != 0 && !lent_by_root(&info)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "token file %s: mode %04o lets others read it; run: chmod 600 %s", name,
                         (unsigned)(info.st_mode & 07777), name);
    }
    if (info.st_uid != geteuid() && info.st_uid != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "token file %s belongs to user %u, not to you (%u)",
                         name, (unsigned)info.st_uid, (unsigned)geteuid());
    }
    ssize_t length = read(fd, bytes, sizeof bytes);
    if (length != TRM_TOKEN_BYTES) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "token file %s: exactly %d bytes expected, found %s%zd; make one with: "
                         "head -c 32 /dev/urandom",
                         name, TRM_TOKEN_BYTES, length > TRM_TOKEN_BYTES ? "at least " : "",
                         length < 0 ? 0 : length);
    }
    memcpy(token, bytes, TRM_TOKEN_BYTES);
    explicit_bzero(bytes, sizeof bytes);
    return TRM_OK;
}

trm_status trm_token_read(const char *path, uint8_t token[32], trm_error *err) {
    char name[48];
    trmi_short_name(path, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "token file %s cannot be read (%s)", name,
                         strerror(errno));
    }
    trm_status status = read_open(fd, name, token, err);
    close(fd);
    return status;
}

trm_status trm_token_share(const char *path, uint8_t token[32], trm_error *err) {
    char own[4096], name[48];
    const char *slash = strrchr(path, '/');
    uint64_t mark;
    if (access(path, F_OK) == 0) {
        return trm_token_read(path, token, err);
    }
    if (getrandom(&mark, sizeof mark, 0) != (ssize_t)sizeof mark) {
        return TRMI_FAIL_SYS(err, "no random bytes for the job token");
    }
    int length = snprintf(own, sizeof own, "%s.%016" PRIx64, path, mark);
    if (length < 0 || (size_t)length >= sizeof own) {
        return TRMI_FAIL(err, TRM_INVALID, "token file %s: the path is too long",
                         trmi_short_name(path, name));
    }
    if (slash != NULL && slash != path) {
        own[slash - path] = '\0';
        TRMI_TRY(trmi_os_make_dirs(NULL, own, err));
        own[slash - path] = '/';
    }
    TRMI_TRY(trm_token_create(own, err));
    /* Whole or not there; the first one wins. */
    bool made = link(own, path) == 0 || errno == EEXIST;
    trm_status status =
        made ? TRM_OK
             : TRMI_FAIL_SYS(err, "token file %s cannot be made", trmi_short_name(path, name));
    unlink(own);
    TRMI_TRY(status);
    return trm_token_read(path, token, err);
}
