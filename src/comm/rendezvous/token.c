/* SPDX-License-Identifier: Apache-2.0 */
/* The job's token: 32 random bytes in a file that only its owner can read. Public functions for
 * token files (trireme/dist.h), and the files that processes of one host find by address.
 *
 *   user's file    trmi_token_create, trm_token_read, trm_token_share (ranks with a common folder)
 *   by address     published by the process that listens, found by those that connect to it
 *
 * A file is written under a random name and gets its name when it is complete, so no reader sees
 * half of a token. Reading checks the open file, not the path: owner, mode and length; a symbolic
 * link is accepted only for a path that the user has given. */
#include "comm/rendezvous/token.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/net/net.h"
#include "base/os.h"
#include "comm/cluster/cluster_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes a new file of mode 0600. Fails if the path exists. */
static trm_status write_token(const char *path, const uint8_t token[TRM_TOKEN_BYTES],
                              trm_error *err) {
    char name[48];
    trmi_short_name(path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "token file %s cannot be made", name);
    }
    trm_status status = trmi_os_write_all(NULL, fd, token, TRM_TOKEN_BYTES, name, err);
    if (close(fd) != 0 && status == TRM_OK) {
        status = TRMI_FAIL_SYS(err, "token file %s cannot be closed", name);
    }
    if (status != TRM_OK) {
        unlink(path);
    }
    return status;
}

trm_status trmi_token_create(const char *path, trm_error *err) {
    uint8_t token[TRM_TOKEN_BYTES];
    TRMI_TRY(trmi_net_random(token, sizeof token, err));
    trm_status status = write_token(path, token, err);
    explicit_bzero(token, sizeof token);
    return status;
}

/* Returns true for a file of root's that a group of this process may read and others may not: an
 * administrator has made it so. A Kubernetes Secret with fsGroup looks like that. */
static bool lent_by_root(const struct stat *info) {
    gid_t groups[256];
    /* A result of -1 (more than 256 groups) leaves the effective group. */
    int count = getgroups(256, groups);
    bool member = info->st_gid == getegid();
    for (int g = 0; g < count; g++) {
        member |= groups[g] == info->st_gid;
    }
    return info->st_uid == 0 && geteuid() != 0 && (info->st_mode & 037) == 0 && member;
}

/* Checks type, mode, owner and length of an open token file, then reads it. */
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

/* Opens and reads a token file. flags: O_NOFOLLOW for names that this program makes; a user's path
 * may be a symbolic link, as Kubernetes creates them. */
static trm_status read_token(const char *path, int flags, uint8_t token[32], trm_error *err) {
    char name[48];
    trmi_short_name(path, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    if (fd < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "token file %s cannot be read (%s)", name,
                         strerror(errno));
    }
    trm_status status = read_open(fd, name, token, err);
    close(fd);
    return status;
}

trm_status trm_token_read(const char *path, uint8_t token[32], trm_error *err) {
    TRMI_NEED(err, path, token);
    return read_token(path, 0, token, err);
}

/* Contract in trireme/dist.h. Ranks that share a folder agree on a token without talking: the
 * first complete file that has the name wins. */
trm_status trm_token_share(const char *path, uint8_t token[32], trm_error *err) {
    TRMI_NEED(err, path, token);
    char own[4096], name[48];
    const char *slash = strrchr(path, '/');
    uint64_t mark;
    /* A complete file exists already. */
    if (access(path, F_OK) == 0) {
        return trm_token_read(path, token, err);
    }
    /* Write a file of a random name in the same folder, and give it the name that all ranks use. So
     * no rank reads half of a token, and all read the same one. */
    TRMI_TRY(trmi_net_random(&mark, sizeof mark, err));
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
    TRMI_TRY(trmi_token_create(own, err));
    /* link() either creates the complete file or fails because another rank was first. Both are
     * fine. */
    bool made = link(own, path) == 0 || errno == EEXIST;
    trm_status status =
        made ? TRM_OK
             : TRMI_FAIL_SYS(err, "token file %s cannot be made", trmi_short_name(path, name));
    unlink(own);
    TRMI_TRY(status);
    return trm_token_read(path, token, err);
}

/* --- tokens by address --- */

/* Writes the path of the token for `address`. */
static void place_of(const char *address, char path[TRMI_TOKEN_PATH_BYTES]) {
    snprintf(path, TRMI_TOKEN_PATH_BYTES, "/tmp/trireme-%u/token-%.80s", (unsigned)geteuid(),
             address);
}

trm_status trmi_token_publish(const char *address, const uint8_t token[TRM_TOKEN_BYTES], char *path,
                              trm_error *err) {
    char own[TRMI_TOKEN_PATH_BYTES + 24];
    uint64_t mark;
    /* Write in the same way: under a random name, then rename. */
    place_of(address, path);
    TRMI_TRY(trmi_os_private_dir(path, err));
    TRMI_TRY(trmi_net_random(&mark, sizeof mark, err));
    snprintf(own, sizeof own, "%s.%016" PRIx64, path, mark);
    TRMI_TRY(write_token(own, token, err));
    if (rename(own, path) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "token file %s cannot be made", path);
        unlink(own);
        return status;
    }
    return TRM_OK;
}

void trmi_token_withdraw(const char *path, const uint8_t token[TRM_TOKEN_BYTES]) {
    /* Another process may have published its token under the same name: remove the file only if it
     * has this token. */
    uint8_t found[TRM_TOKEN_BYTES];
    if (path[0] != '\0' && read_token(path, O_NOFOLLOW, found, NULL) == TRM_OK &&
        memcmp(found, token, sizeof found) == 0) {
        unlink(path);
    }
    explicit_bzero(found, sizeof found);
}

trm_status trmi_token_find(const char *address, uint8_t token[TRM_TOKEN_BYTES], trm_error *err) {
    const char *port = strrchr(address, ':');
    char all[2][TRM_TOKEN_BYTES], path[TRMI_TOKEN_PATH_BYTES];
    snprintf(all[0], sizeof all[0], "0.0.0.0%.10s", port != NULL ? port : "");
    snprintf(all[1], sizeof all[1], "[::]%.10s", port != NULL ? port : "");
    /* the address itself, then the addresses of a process that listens on all interfaces */
    const char *const names[] = {address, all[0], all[1]};
    /* The folder must belong to this user, because a user who writes there could set the token. */
    place_of(address, path);
    TRMI_TRY(trmi_os_private_dir(path, err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        place_of(names[i], path);
        if (access(path, F_OK) == 0) {
            return read_token(path, O_NOFOLLOW, token, err);
        }
    }
    return TRMI_FAIL(
        err, TRM_INVALID,
        "%s: the job's token is not known here (no process of user %u published it); give its file "
        "(--token-file or TRIREME_TOKEN_FILE)",
        address, (unsigned)geteuid());
}
