/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoints of a directory: listing and verifying them, marks of readers, removing them, and
 * tidying up after an interrupted writer.
 *
 *   ckpt-N             a checkpoint
 *   ckpt-N.old         replaced, or to be restored (restore_or_remove_old)
 *   ckpt-N.tmp.*, TRMI_TRASH_PREFIX*   left by an interrupted save: removed by trmi_checkpoint_tidy
 *   TRMI_IN_USE_PREFIX*                mark of a reader: the writer keeps that checkpoint
 *
 * Readers need no lock, so a checkpoint may vanish while it is listed. */
#include "save/checkpoint/checkpoint.h"

#include "base/error.h"
#include "base/log.h"
#include "save/checkpoint/lock.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A reader on another machine counts as alive for a day after its last touch: readers do not touch
 * their marks. */
#define REMOTE_READER_SECONDS (24 * 3600.0)

/* Returns whether a text begins with another one. */
static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Contract in checkpoint.h. Only names that a save makes are taken: another spelling of the same
 * number would be a second checkpoint of the step. */
bool trmi_checkpoint_is_name(const char *name, int64_t *step) {
    if (!starts_with(name, "ckpt-")) {
        return false;
    }
    const char *digits = name + 5;
    /* N has no leading zeros and fits into int64. */
    size_t length = strspn(digits, "0123456789");
    if (length == 0 || length > 18 || (length > 1 && digits[0] == '0')) {
        return false;
    }
    *step = strtoll(digits, NULL, 10);
    return digits[length] == '\0' || strcmp(digits + length, ".old") == 0;
}

/* Contract in checkpoint.h. Without a manifest a save was interrupted, so the folder is no
 * checkpoint. */
trm_status trmi_checkpoint_read_manifest(const char *path, trmi_checkpoint_manifest *out,
                                         trm_error *err) {
    char file[TRMI_PATH_BYTES];
    struct stat info;
    TRMI_TRY(trmi_path_join(file, path, TRMI_MANIFEST_NAME, err));
    if (stat(file, &info) != 0) {
        return errno == ENOENT
                   ? TRMI_FAIL(err, TRM_CORRUPT, "%s: missing: the checkpoint is not complete",
                               trmi_path_tail(file))
                   : TRMI_FAIL_SYS(err, "%s: cannot be examined", trmi_path_tail(file));
    }
    if (!S_ISREG(info.st_mode)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: not a regular file", trmi_path_tail(file));
    }
    uint8_t *text;
    size_t bytes;
    TRMI_TRY(trmi_os_read_file(file, TRMI_MANIFEST_BYTES_MAX, &text, &bytes, err));
    trm_status status = trmi_manifest_parse((const char *)text, bytes, file, out, err);
    trmi_free(text);
    return status;
}

trm_status trmi_checkpoint_verify(const char *path, const trmi_checkpoint_manifest *manifest,
                                  trm_error *err) {
    for (int64_t i = 0; i < manifest->file_count; i++) {
        char file[TRMI_PATH_BYTES];
        TRMI_TRY(trmi_path_join(file, path, manifest->files[i].name, err));
        TRMI_TRY(trmi_digest_verify(file, &manifest->files[i].digest, err));
    }
    return TRM_OK;
}

/* Sorts by sequence number, then by step, then by name. */
static int newest_first(const void *a, const void *b) {
    const trmi_checkpoint_slot *x = a, *y = b;
    if (x->sequence != y->sequence) {
        return x->sequence > y->sequence ? -1 : 1;
    }
    return x->step != y->step ? (x->step > y->step ? -1 : 1) : strcmp(x->name, y->name);
}

/* Adds the directory `name` of `dir` to the list. An unusable manifest is stored in the slot, not
 * returned; a directory that no longer exists is left out.
 *   errors  NOMEM */
static trm_status add_slot(trmi_checkpoint_list *list, const char *dir, const char *name,
                           int64_t step, trm_error *err) {
    char path[TRMI_PATH_BYTES];
    TRMI_TRY(trmi_path_join(path, dir, name, err));
    TRMI_TRY(TRMI_GROW(err, list->slots, list->capacity, list->count + 1, "to list %s",
                       trmi_path_tail(dir)));
    trmi_checkpoint_slot *slot = &list->slots[list->count];
    *slot = (trmi_checkpoint_slot){.step = step, .sequence = -1};
    snprintf(slot->name, sizeof slot->name, "%s", name);
    trmi_checkpoint_manifest manifest;
    /* A manifest that cannot be used leaves the sequence at -1. */
    trm_status status = trmi_checkpoint_read_manifest(path, &manifest, &slot->problem);
    if (status == TRM_NOMEM) {
        return TRMI_FAIL(err, TRM_NOMEM, "%s", slot->problem.message);
    }
    /* a directory that was renamed by hand would otherwise give a wrong step */
    if (status == TRM_OK && manifest.info.global_step != step) {
        status = TRMI_FAIL(&slot->problem, TRM_CORRUPT,
                           "%s: its manifest is of step %" PRId64 " (moved here by hand?)",
                           trmi_path_tail(path), manifest.info.global_step);
        trmi_manifest_free(&manifest);
    }
    if (status == TRM_OK) {
        slot->sequence = manifest.info.sequence;
        slot->saved_unix_seconds = manifest.info.saved_unix_seconds;
        trmi_manifest_free(&manifest);
    }
    /* Another process may have removed the directory in the meantime. */
    struct stat info;
    if (status != TRM_OK && stat(path, &info) != 0 && errno == ENOENT) {
        return TRM_OK; /* removed while it was read */
    }
    list->count++;
    return TRM_OK;
}

/* Contract in checkpoint.h. A folder that does not exist has no checkpoints, which is no error: a
 * first run asks before anything was saved. */
trm_status trmi_checkpoint_list_dir(const char *dir, trmi_checkpoint_list *out, trm_error *err) {
    trmi_checkpoint_list list = {0};
    DIR *stream = opendir(dir);
    if (stream == NULL && errno != ENOENT) {
        return TRMI_FAIL_SYS(err, "%s: cannot list", trmi_path_tail(dir));
    }
    trm_status status = TRM_OK;
    for (struct dirent *entry;
         stream != NULL && status == TRM_OK && (entry = readdir(stream)) != NULL;) {
        int64_t step;
        if (trmi_checkpoint_is_name(entry->d_name, &step)) {
            status = add_slot(&list, dir, entry->d_name, step, err);
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    if (status != TRM_OK) {
        trmi_checkpoint_list_free(&list);
        return status;
    }
    if (list.count > 0) {
        qsort(list.slots, (size_t)list.count, sizeof *list.slots, newest_first);
    }
    *out = list;
    return TRM_OK;
}

void trmi_checkpoint_list_free(trmi_checkpoint_list *list) {
    trmi_free(list->slots);
    *list = (trmi_checkpoint_list){0};
}

/* Contract in checkpoint.h. A reader that was killed leaves its mark behind; its mark would keep
 * the checkpoint for ever, so it is removed here. */
bool trmi_checkpoint_in_use(const char *dir, const char *name, const trmi_os *os) {
    char prefix[TRMI_CHECKPOINT_NAME_BYTES + 16], path[TRMI_PATH_BYTES];
    bool used = false;
    snprintf(prefix, sizeof prefix, TRMI_IN_USE_PREFIX "%s-", name);
    DIR *stream = opendir(dir);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        /* Marks of this checkpoint; a mark of a dead reader is removed. */
        if (!starts_with(entry->d_name, prefix) ||
            trmi_path_join(path, dir, entry->d_name, NULL) != TRM_OK) {
            continue;
        }
        if (trmi_lock_is_live(path, REMOTE_READER_SECONDS)) {
            used = true;
        } else {
            os->unlink(os->context, path);
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    return used;
}

/* Contract in checkpoint.h. The new name has a serial number, because a process may remove
 * checkpoints of the same step several times. */
trm_status trmi_checkpoint_trash(const char *dir, const char *name, const trmi_os *os,
                                 trm_error *err) {
    char from[TRMI_PATH_BYTES], to[TRMI_PATH_BYTES], hidden[TRMI_CHECKPOINT_NAME_BYTES * 2];
    static unsigned serial;
    snprintf(hidden, sizeof hidden, TRMI_TRASH_PREFIX "%.60s-%ld-%u", name, (long)getpid(),
             __atomic_fetch_add(&serial, 1u, __ATOMIC_RELAXED));
    TRMI_TRY(trmi_path_join(from, dir, name, err));
    TRMI_TRY(trmi_path_join(to, dir, hidden, err));
    /* First the name, which is one step: then an interrupted removal leaves no half of a
     * checkpoint. */
    if (os->rename(os->context, from, to) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot move aside", trmi_path_tail(from));
    }
    return trmi_os_remove_tree(os, to, err);
}

/* Decides about ckpt-N.old, which an interrupted writer has left between its two renames or just
 * after. If ckpt-N is missing, the old one gets its name back. If ckpt-N is good, the old one is
 * removed. */
static void restore_or_remove_old(const char *dir, const char *old_name, const trmi_os *os) {
    char name[TRMI_CHECKPOINT_NAME_BYTES], path[TRMI_PATH_BYTES], old_path[TRMI_PATH_BYTES];
    struct stat info;
    trmi_checkpoint_manifest manifest;
    /* "ckpt-N.old" without its end. */
    snprintf(name, sizeof name, "%.*s", (int)(strlen(old_name) - 4), old_name);
    if (trmi_path_join(path, dir, name, NULL) != TRM_OK ||
        trmi_path_join(old_path, dir, old_name, NULL) != TRM_OK) {
        return;
    }
    if (stat(path, &info) != 0) {
        os->rename(os->context, old_path, path);
        return;
    }
    if (trmi_checkpoint_read_manifest(path, &manifest, NULL) != TRM_OK) {
        return; /* the old one may be the only good one: it stays until newer ones replace it */
    }
    if (trmi_checkpoint_verify(path, &manifest, NULL) == TRM_OK) {
        trmi_checkpoint_trash(dir, old_name, os, NULL);
    }
    trmi_manifest_free(&manifest);
}

/* Returns true for names that only an interrupted save can have left. */
static bool is_left_over(const char *name) {
    return starts_with(name, TRMI_TRASH_PREFIX) || starts_with(name, "checkpoint.tmp.") ||
           starts_with(name, TRMI_LOCK_NAME ".") ||
           (starts_with(name, "ckpt-") && strstr(name, ".tmp.") != NULL);
}

/* Contract in checkpoint.h. Removes what killed processes have left: unfinished saves, ".old"
 * copies, and marks of readers that no longer live. The caller holds the lock, so that no save
 * is running. */
void trmi_checkpoint_tidy(const char *dir, const trmi_os *os) {
    char path[TRMI_PATH_BYTES];
    int64_t step;
    DIR *stream = opendir(dir);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        const char *name = entry->d_name;
        if (trmi_path_join(path, dir, name, NULL) != TRM_OK) {
            continue;
        }
        trm_error err = {0};
        /* an unfinished save; an old copy; the mark of a reader that has died */
        if (is_left_over(name)) {
            trm_status status = trmi_os_remove_tree(os, path, &err);
            trmi_log(status == TRM_OK ? TRM_LOG_INFO : TRM_LOG_WARN, "save",
                     "%s: left by an interrupted save, %s %s", path,
                     status == TRM_OK ? "removed" : "cannot be removed:", err.message);
        } else if (trmi_checkpoint_is_name(name, &step) && strstr(name, ".old") != NULL) {
            restore_or_remove_old(dir, name, os);
        } else if (starts_with(name, TRMI_IN_USE_PREFIX) &&
                   !trmi_lock_is_live(path, REMOTE_READER_SECONDS)) {
            os->unlink(os->context, path);
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
}
