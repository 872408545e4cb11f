/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint: a given one, or the newest in a directory that is good. Each damaged one
 * that is skipped is logged.
 *
 *   trm_checkpoint_open --> a checkpoint: open_one
 *                       --> a directory: open_newest: list, skip_unreadable, open_first_good
 *
 * Every file is verified before the checkpoint is returned, so a caller never sees damaged data.
 * The writer of the directory may run at the same time: a checkpoint that it removes in the
 * meantime starts the search again. */
#include "save/checkpoint/checkpoint.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "save/checkpoint/lock.h"
#include "save/formats/safetensors.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An open checkpoint. */
struct trm_checkpoint {
    char path[TRMI_PATH_BYTES];        /* of the checkpoint's directory */
    char mark[TRMI_PATH_BYTES];        /* this reader's mark; "": none */
    trmi_checkpoint_manifest manifest; /* verified */
    trm_safetensors **parts;           /* [part_count] files of the manifest that are safetensors */
    char (*part_names)[TRMI_CHECKPOINT_NAME_BYTES * 2]; /* [part_count] file names without suffix */
    int64_t part_count;                                 /* length of the two lists */
};

/* Returns the part of the path after the last slash. */
static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Marks the checkpoint as in use, so that the writer does not remove it. */
static void mark_in_use(trm_checkpoint *checkpoint) {
    static atomic_uint serial;
    char parent[TRMI_PATH_BYTES], host[65] = "";
    trmi_path_parent(checkpoint->path, parent);
    if (gethostname(host, sizeof host - 1) != 0 || strchr(host, '/') != NULL) {
        snprintf(host, sizeof host, "host");
    }
    /* The name contains host, process and a serial number, so each reader has a mark of its own. */
    int length =
        snprintf(checkpoint->mark, sizeof checkpoint->mark,
                 "%.3800s/" TRMI_IN_USE_PREFIX "%.63s-%.64s-%ld-%u", parent,
                 last_name(checkpoint->path), host, (long)getpid(), atomic_fetch_add(&serial, 1u));
    if (length < 0 || (size_t)length >= sizeof checkpoint->mark ||
        trmi_lock_mark(checkpoint->mark, trmi_os_real(), NULL) != TRM_OK) {
        /* a read-only directory: no process can remove checkpoints there */
        checkpoint->mark[0] = '\0';
    }
}

/* Opens the safetensors files that the manifest names; other files are skipped. After an error,
 * trm_checkpoint_close closes those that are open. */
static trm_status open_parts(trm_checkpoint *checkpoint, trm_error *err) {
    static const char suffix[] = ".safetensors";
    int64_t count = checkpoint->manifest.file_count;
    TRMI_TRY(
        TRMI_NEW(err, checkpoint->parts, count, "to open %s", trmi_path_tail(checkpoint->path)));
    TRMI_TRY(TRMI_NEW(err, checkpoint->part_names, count, "to open %s",
                      trmi_path_tail(checkpoint->path)));
    for (int64_t i = 0; i < count; i++) {
        const char *name = checkpoint->manifest.files[i].name;
        size_t length = strlen(name), end = sizeof suffix - 1;
        char path[TRMI_PATH_BYTES];
        /* The name of a part is that of its file without the suffix. */
        if (length <= end || strcmp(name + length - end, suffix) != 0 ||
            length - end >= sizeof *checkpoint->part_names) {
            continue;
        }
        TRMI_TRY(trmi_path_join(path, checkpoint->path, name, err));
        TRMI_TRY(trm_safetensors_open(path, &checkpoint->parts[checkpoint->part_count], err));
        memcpy(checkpoint->part_names[checkpoint->part_count], name, length - end);
        checkpoint->part_count++;
    }
    return TRM_OK;
}

/* Opens one checkpoint: manifest, verification of all files, parts. The mark is set first, so that
 * the writer does not remove files between the steps. */
static trm_status open_one(const char *path, const trm_checkpoint_open_options *options,
                           trm_checkpoint **out, trm_error *err) {
    trm_checkpoint *checkpoint;
    TRMI_TRY(TRMI_NEW(err, checkpoint, 1, "to open %s", trmi_path_tail(path)));
    snprintf(checkpoint->path, sizeof checkpoint->path, "%s", path);
    /* Mark, manifest, files, parts. */
    if (options != NULL && options->mark_in_use) {
        mark_in_use(checkpoint);
    }
    trm_status status = trmi_checkpoint_read_manifest(path, &checkpoint->manifest, err);
    if (status == TRM_OK) {
        status = trmi_checkpoint_verify(path, &checkpoint->manifest, err);
    }
    if (status == TRM_OK) {
        checkpoint->manifest.info.path = checkpoint->path;
        status = open_parts(checkpoint, err);
    }
    if (status != TRM_OK) {
        trm_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return TRM_OK;
}

/* The state of one search in a directory. */
typedef struct search {
    const char *dir; /* where the checkpoints are */
    /* the error to return if none is good: of the newest damaged one with a manifest, else of
     * any */
    trm_error first;
    bool first_is_newest; /* `first` is that of the newest with a manifest */
    int64_t skipped;      /* damaged ones so far */
    /* name of the only damaged one so far, not logged yet: if none is good, its problem is returned
     * as the error and needs no log line */
    char untold[TRMI_CHECKPOINT_NAME_BYTES];
} search;

/* Logs a damaged checkpoint. */
static void log_skipped(const char *dir, const char *name, const trm_error *problem) {
    trmi_log(TRM_LOG_WARN, "save", "%s/%s: damaged, skipped: %s", dir, name, problem->message);
}

/* Logs the one whose log line was held back. */
static void log_held_back(search *s) {
    if (s->untold[0] != '\0') {
        log_skipped(s->dir, s->untold, &s->first);
        s->untold[0] = '\0';
    }
}

/* Counts and logs a damaged checkpoint. Returns TRM_PENDING if it does not exist any more: it was
 * removed by its writer while this process read it. */
static trm_status skip_damaged(search *s, const trmi_checkpoint_slot *slot,
                               const trm_error *problem) {
    char path[TRMI_PATH_BYTES];
    struct stat info;
    TRMI_TRY(trmi_path_join(path, s->dir, slot->name, NULL));
    if (stat(path, &info) != 0 && errno == ENOENT) {
        return TRM_PENDING;
    }
    /* The second damaged one shows that a log line for the first is necessary. */
    log_held_back(s);
    if (s->skipped == 0) {
        snprintf(s->untold, sizeof s->untold, "%s", slot->name);
    } else {
        log_skipped(s->dir, slot->name, problem);
    }
    if (s->skipped++ == 0 || (!s->first_is_newest && slot->sequence >= 0)) {
        s->first = *problem;
        s->first_is_newest = slot->sequence >= 0;
    }
    return TRM_OK;
}

/* Handles those whose manifest cannot be used. How new they are is unknown, so all of them are
 * logged. A checkpoint of a newer version is not damaged, and going back to an older one must be
 * the user's decision: UNSUPPORTED. */
static trm_status skip_unreadable(search *s, const trmi_checkpoint_list *list, trm_error *err) {
    for (int64_t i = 0; i < list->count; i++) {
        const trmi_checkpoint_slot *slot = &list->slots[i];
        if (slot->sequence >= 0) {
            continue;
        }
        if (slot->problem.status == TRM_UNSUPPORTED) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s", slot->problem.message);
        }
        TRMI_TRY(skip_damaged(s, slot, &slot->problem));
    }
    return TRM_OK;
}

/* Tries those with a manifest, newest first. Returns TRM_END if none is good. */
static trm_status open_first_good(search *s, const trmi_checkpoint_list *list,
                                  const trm_checkpoint_open_options *options, trm_checkpoint **out,
                                  trm_error *err) {
    for (int64_t i = 0; i < list->count && list->slots[i].sequence >= 0; i++) {
        char path[TRMI_PATH_BYTES];
        trm_error problem;
        TRMI_TRY(trmi_path_join(path, s->dir, list->slots[i].name, err));
        trm_status status = open_one(path, options, out, &problem);
        if (status == TRM_OK) {
            log_held_back(s);
            (*out)->manifest.info.skipped = s->skipped;
            return TRM_OK;
        }
        if (status == TRM_NOMEM) {
            return TRMI_FAIL(err, TRM_NOMEM, "%s", problem.message);
        }
        TRMI_TRY(skip_damaged(s, &list->slots[i], &problem));
    }
    return TRM_END;
}

/* Searches the directory once. TRM_END: it has no checkpoint. TRM_PENDING: it changed meanwhile, so
 * search again. */
static trm_status open_newest(const char *dir, const trm_checkpoint_open_options *options,
                              trm_checkpoint **out, trm_error *err) {
    trmi_checkpoint_list list;
    TRMI_TRY(trmi_checkpoint_list_dir(dir, &list, err));
    search s = {.dir = dir};
    trm_status status = skip_unreadable(&s, &list, err);
    if (status == TRM_OK) {
        status = open_first_good(&s, &list, options, out, err);
    }
    /* None is good: return the most useful error. */
    if (status == TRM_END && s.skipped > 0) {
        status = (trm_status)s.first.status;
        if (err != NULL) {
            *err = s.first;
        }
        if (s.skipped > 1) {
            trmi_error_append(err, " (and none of the other %" PRId64 " is good)", s.skipped - 1);
        }
    }
    trmi_checkpoint_list_free(&list);
    return status;
}

/* Contract in trireme/io.h. In a directory the newest checkpoint is opened; the writer may
 * remove it at that moment, so the search is repeated. */
trm_status trm_checkpoint_open(const char *path, const trm_checkpoint_open_options *options,
                               trm_checkpoint **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    char trimmed[TRMI_PATH_BYTES], manifest[TRMI_PATH_BYTES];
    struct stat info;
    int64_t step;
    size_t length = strlen(path);
    /* Remove slashes at the end. */
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    if (length == 0 || length >= sizeof trimmed - TRMI_CHECKPOINT_NAME_BYTES) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable directory name", path);
    }
    memcpy(trimmed, path, length);
    trimmed[length] = '\0';
    bool there = stat(trimmed, &info) == 0;
    if (!there && errno != ENOENT) {
        return TRMI_FAIL_SYS(err, "%s: cannot be examined", trmi_path_tail(trimmed));
    }
    if (there && !S_ISDIR(info.st_mode)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a directory of checkpoints, or a .safetensors file, expected",
                         trmi_path_tail(trimmed));
    }
    /* A name or a manifest says that the path is a checkpoint itself; otherwise it is a directory
     * of them. */
    bool named = trmi_checkpoint_is_name(last_name(trimmed), &step);
    if (named && !there) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: no such checkpoint", trmi_path_tail(trimmed));
    }
    TRMI_TRY(trmi_path_join(manifest, trimmed, TRMI_MANIFEST_NAME, err));
    if (named || (there && stat(manifest, &info) == 0)) {
        return open_one(trimmed, options, out, err);
    }
    /* Search a directory again while it changes. */
    trm_status status = TRM_PENDING;
    for (int round = 0; round < 10 && status == TRM_PENDING; round++) {
        status = open_newest(trimmed, options, out, err);
    }
    if (status == TRM_PENDING) {
        return TRMI_FAIL(err, TRM_IO, "%s: checkpoints vanish faster than they can be read",
                         trmi_path_tail(trimmed));
    }
    return status == TRM_END
               ? TRMI_FAIL(err, TRM_END, "%s: no checkpoint here", trmi_path_tail(trimmed))
               : status;
}

/* Contract in trireme/io.h. Removes the mark of this reader, after which the writer may delete the
 * checkpoint. */
void trm_checkpoint_close(trm_checkpoint *checkpoint) {
    if (checkpoint == NULL) {
        return;
    }
    for (int64_t i = 0; i < checkpoint->part_count; i++) {
        trm_safetensors_close(checkpoint->parts[i]);
    }
    if (checkpoint->mark[0] != '\0') {
        unlink(checkpoint->mark);
    }
    trmi_free(checkpoint->parts);
    trmi_free(checkpoint->part_names);
    trmi_manifest_free(&checkpoint->manifest);
    trmi_free(checkpoint);
}

const trm_checkpoint_info *trm_checkpoint_get_info(const trm_checkpoint *checkpoint) {
    TRMI_NEED_OR(NULL, NULL, checkpoint);
    return &checkpoint->manifest.info;
}

int64_t trmi_checkpoint_part_count(const trm_checkpoint *checkpoint) {
    return checkpoint->part_count;
}

const char *trmi_checkpoint_part_name(const trm_checkpoint *checkpoint, int64_t index) {
    return index >= 0 && index < checkpoint->part_count ? checkpoint->part_names[index] : NULL;
}

const trm_safetensors *trm_checkpoint_part_of(const trm_checkpoint *checkpoint, const char *name) {
    TRMI_NEED_OR(NULL, NULL, checkpoint, name);
    for (int64_t i = 0; i < checkpoint->part_count; i++) {
        if (strcmp(checkpoint->part_names[i], name) == 0) {
            return checkpoint->parts[i];
        }
    }
    return NULL;
}

/* Contract in trireme/io.h. Only manifests are read. The list is sorted, and slots whose manifest
 * cannot be read stand at its end. */
trm_status trm_checkpoint_latest(const char *folder, int64_t *global_step, trm_error *err) {
    TRMI_NEED(err, folder, global_step);
    trmi_checkpoint_list list;
    TRMI_TRY(trmi_checkpoint_list_dir(folder, &list, err));
    bool found = list.count > 0 && list.slots[0].sequence >= 0;
    if (found) {
        *global_step = list.slots[0].step;
    }
    trmi_checkpoint_list_free(&list);
    return found ? TRM_OK
                 : TRMI_FAIL(err, TRM_END, "%s: no complete checkpoint", trmi_path_tail(folder));
}
