/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of an output directory.
 *
 *     save ── checks, headers, free space ──> [copy] ──> write, fsync, rename ──> plan what stays
 *                                               │             (a thread, if `background`)   │
 *                                               └─ the caller goes on          `checkpoint`, prune
 */
#include "save/checkpoint/checkpoint_job.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "save/checkpoint/lock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { KEEP_DEFAULT = 5 };

struct trm_checkpoint_writer {
    const trmi_os *os;
    trm_checkpoint_options options;
    char dir[TRMI_PATH_BYTES];
    int32_t made; /* directories at the end of `dir` that were not there before */
    bool failed;  /* a save */
    trmi_lock *lock;
    int64_t next_sequence;
    double opened;     /* Unix seconds: keep_every_hours counts from here */
    int64_t *verified; /* sequence numbers of those read back and found good */
    int64_t verified_count, verified_capacity;
    /* The save in progress. Its fields belong to the thread while it runs. */
    bool running;
    pthread_t thread;
    trmi_checkpoint_job job;
    trm_status outcome;
    trm_error outcome_err;
    uint8_t *copy; /* kept from save to save */
    int64_t copy_bytes;
};

/* ---- which ones stay ------------------------------------------------------------------- */

static bool is_verified(trm_checkpoint_writer *writer, const trmi_checkpoint_slot *slot,
                        trm_error *err) {
    for (int64_t i = 0; i < writer->verified_count; i++) {
        if (writer->verified[i] == slot->sequence) {
            return true;
        }
    }
    char path[TRMI_PATH_BYTES];
    trmi_checkpoint_manifest manifest;
    if (slot->sequence < 0 || trmi_path_join(path, writer->dir, slot->name, err) != TRM_OK ||
        trmi_checkpoint_read_manifest(path, &manifest, err) != TRM_OK) {
        return false;
    }
    trm_status status = trmi_checkpoint_verify(path, &manifest, err);
    trmi_manifest_free(&manifest);
    if (status != TRM_OK) {
        return false;
    }
    if (trmi_grow((void **)&writer->verified, &writer->verified_capacity,
                  writer->verified_count + 1, sizeof *writer->verified)) {
        writer->verified[writer->verified_count++] = slot->sequence;
    }
    return true;
}

static bool kept_path(const trm_checkpoint_writer *writer, const char *name, char *path) {
    char hidden[TRMI_CHECKPOINT_NAME_BYTES * 2];
    snprintf(hidden, sizeof hidden, TRMI_KEPT_PREFIX "%s", name);
    return trmi_path_join(path, writer->dir, hidden, NULL) == TRM_OK;
}

/* Of those beyond the newest `keep`: is this one marked, or is it time to mark one? From the oldest
 * on. */
static void plan_keeping(trm_checkpoint_writer *writer, const trmi_checkpoint_list *list,
                         bool *kept) {
    double last = writer->opened, hours = writer->options.keep_every_hours;
    char path[TRMI_PATH_BYTES];
    struct stat info;
    trm_error err;
    for (int64_t i = 0; i < list->count; i++) {
        kept[i] = kept_path(writer, list->slots[i].name, path) && stat(path, &info) == 0;
        last = kept[i] && list->slots[i].saved_unix_seconds > last
                   ? list->slots[i].saved_unix_seconds
                   : last;
    }
    for (int64_t i = list->count - 1;
         hours > 0 && writer->options.keep >= 0 && i >= writer->options.keep; i--) {
        double saved = list->slots[i].saved_unix_seconds;
        if (kept[i] || list->slots[i].sequence < 0 || saved < last + hours * 3600 ||
            !kept_path(writer, list->slots[i].name, path)) {
            continue;
        }
        kept[i] = trmi_os_replace_file(writer->os, path, "", 0, &err) == TRM_OK;
        if (!kept[i]) {
            trmi_log(TRM_LOG_WARN, "save", "a checkpoint to stay cannot be marked: %s",
                     err.message);
        }
        last = saved;
    }
}

/* stays[i] for each slot, newest first; kept[i]: for ever. An error is that of the checkpoint just
 * written. */
static trm_status plan_pruning(trm_checkpoint_writer *writer, const trmi_checkpoint_list *list,
                               const bool *kept, bool *stays, trm_error *err) {
    int32_t keep = writer->options.keep;
    bool prunes = keep >= 0 && list->count > keep;
    int64_t good_wanted = keep >= 2 ? 2 : 1, good = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const trmi_checkpoint_slot *slot = &list->slots[i];
        stays[i] = !prunes || i < keep || good < good_wanted || kept[i] ||
                   slot->problem.status == TRM_UNSUPPORTED ||
                   trmi_checkpoint_in_use(writer->dir, slot->name, writer->os);
        trm_error problem = {0};
        if (!stays[i] || !prunes) {
            continue;
        }
        if (is_verified(writer, slot, &problem)) {
            good++;
        } else if (slot->sequence == writer->job.info.sequence) {
            return TRMI_FAIL(err, (trm_status)problem.status, "written, but reading it back: %s",
                             problem.message);
        } else {
            trmi_log(TRM_LOG_WARN, "save", "%s/%s: damaged, another one is kept instead: %s",
                     writer->dir, slot->name, problem.message);
        }
    }
    return TRM_OK;
}

/* TensorFlow's form, oldest first. */
static trm_status write_state(trm_checkpoint_writer *writer, const trmi_checkpoint_list *list,
                              const bool *stays, trm_error *err) {
    trmi_text text = {0};
    trmi_text_printf(&text, "model_checkpoint_path: \"ckpt-%" PRId64 "\"\n",
                     writer->job.info.global_step);
    for (int64_t i = list->count - 1; i >= 0; i--) {
        if (stays[i] && list->slots[i].sequence >= 0) {
            trmi_text_printf(&text, "all_model_checkpoint_paths: \"%s\"\n", list->slots[i].name);
        }
    }
    for (int64_t i = list->count - 1; i >= 0; i--) {
        if (stays[i] && list->slots[i].sequence >= 0) {
            trmi_text_printf(&text, "all_model_checkpoint_timestamps: %.3f\n",
                             list->slots[i].saved_unix_seconds);
        }
    }
    char path[TRMI_PATH_BYTES];
    trm_status status = text.failed ? TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for its state file",
                                                trmi_path_tail(writer->dir))
                                    : trmi_path_join(path, writer->dir, "checkpoint", err);
    if (status == TRM_OK) {
        status = trmi_os_replace_file(writer->os, path, text.data, text.length, err);
    }
    trmi_text_free(&text);
    return status;
}

static trm_status settle(trm_checkpoint_writer *writer, trm_error *err) {
    trmi_checkpoint_list list;
    TRMI_TRY(trmi_checkpoint_list_dir(writer->dir, &list, err));
    trm_status status;
    bool *stays = trmi_alloc(2 * (size_t)list.count * sizeof *stays), *kept = stays + list.count;
    if (stays == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "%s: no memory to list it", trmi_path_tail(writer->dir));
        goto done;
    }
    plan_keeping(writer, &list, kept);
    TRMI_TRY_GOTO(status, plan_pruning(writer, &list, kept, stays, err), done);
    TRMI_TRY_GOTO(status, write_state(writer, &list, stays, err), done);
    for (int64_t i = 0; i < list.count; i++) {
        trm_error problem;
        if (!stays[i] && trmi_checkpoint_trash(writer->dir, list.slots[i].name, writer->os,
                                               &problem) != TRM_OK) {
            trmi_log(TRM_LOG_WARN, "save", "an old checkpoint cannot be removed: %s",
                     problem.message);
        }
    }
done:
    trmi_free(stays);
    trmi_checkpoint_list_free(&list);
    return status;
}

/* ---- one save -------------------------------------------------------------------------- */

static trm_status persist(trm_checkpoint_writer *writer, trm_error *err) {
    const trm_checkpoint_info *info = &writer->job.info;
    trm_status status = trmi_checkpoint_job_write(&writer->job, writer->dir, writer->os, err);
    if (status == TRM_OK) {
        status = settle(writer, err);
    }
    if (status != TRM_OK) {
        trmi_log(TRM_LOG_WARN, "save", "step %" PRId64 " could not be saved: %s", info->global_step,
                 err->message);
        return status;
    }
    if (writer->options.on_saved != NULL) {
        char name[TRMI_CHECKPOINT_NAME_BYTES], path[TRMI_PATH_BYTES];
        snprintf(name, sizeof name, "ckpt-%" PRId64, info->global_step);
        TRMI_TRY(trmi_path_join(path, writer->dir, name, err));
        writer->options.on_saved(writer->options.on_saved_context, path, info->global_step);
    }
    return TRM_OK;
}

static void *persist_in_background(void *argument) {
    trm_checkpoint_writer *writer = argument;
    writer->outcome = persist(writer, &writer->outcome_err);
    return NULL;
}

static trm_status check_space(trm_checkpoint_writer *writer, trm_error *err) {
    struct statvfs space;
    if (statvfs(writer->dir, &space) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot ask for its free space", trmi_path_tail(writer->dir));
    }
    double free_bytes = (double)space.f_bavail * (double)space.f_frsize;
    double needed = 1.2 * (double)writer->job.bytes + 65536;
    if (free_bytes < needed) {
        errno = ENOSPC;
        return TRMI_FAIL(err, TRM_NOSPACE,
                         "%s: a checkpoint of step %" PRId64 " needs %.1f MB free (1.2 times its "
                         "size), %.1f MB are: make room or keep fewer",
                         trmi_path_tail(writer->dir), writer->job.info.global_step, needed / 1e6,
                         free_bytes / 1e6);
    }
    return TRM_OK;
}

/* The caller's tensors into memory that is ours. False: there is none, write at once instead. */
static bool take_copy(trm_checkpoint_writer *writer) {
    if (writer->copy_bytes < writer->job.bytes) {
        trmi_free(writer->copy);
        writer->copy = trmi_alloc((size_t)writer->job.bytes);
        writer->copy_bytes = writer->copy == NULL ? 0 : writer->job.bytes;
    }
    if (writer->copy == NULL) {
        trmi_log(TRM_LOG_WARN, "save", "no memory to copy %" PRId64 " MB: saving in the foreground",
                 writer->job.bytes / 1000000);
        return false;
    }
    trmi_checkpoint_job_copy(&writer->job, writer->copy);
    return true;
}

static trm_status start(trm_checkpoint_writer *writer, const trm_checkpoint_info *info,
                        const trm_checkpoint_part *parts, int64_t part_count, trm_error *err) {
    TRMI_TRY(trmi_checkpoint_job_create(&writer->job, info, parts, part_count, err));
    writer->job.info.sequence = writer->next_sequence++;
    writer->job.info.saved_unix_seconds = trmi_os_wall();
    trm_status status = trmi_lock_check(writer->lock, err);
    if (status == TRM_OK) {
        status = check_space(writer, err);
    }
    if (status == TRM_OK && writer->options.background && !writer->job.reads && take_copy(writer) &&
        pthread_create(&writer->thread, NULL, persist_in_background, writer) == 0) {
        writer->running = true;
        return TRM_OK;
    }
    if (status == TRM_OK) {
        trm_error local;
        status = persist(writer, err != NULL ? err : &local);
    }
    writer->failed = writer->failed || status != TRM_OK;
    trmi_checkpoint_job_free(&writer->job);
    return status;
}

trm_status trm_checkpoint_wait(trm_checkpoint_writer *writer, trm_error *err) {
    if (!writer->running) {
        return TRM_OK;
    }
    pthread_join(writer->thread, NULL);
    writer->running = false;
    if (writer->outcome != TRM_OK && err != NULL) {
        *err = writer->outcome_err;
    }
    writer->failed = writer->failed || writer->outcome != TRM_OK;
    trmi_checkpoint_job_free(&writer->job);
    return writer->outcome;
}

trm_status trm_checkpoint_save(trm_checkpoint_writer *writer, const trm_checkpoint_info *info,
                               const trm_checkpoint_part *parts, int64_t part_count,
                               trm_error *err) {
    trm_error before;
    trm_status previous = trm_checkpoint_wait(writer, &before);
    TRMI_TRY(start(writer, info, parts, part_count, err));
    if (previous != TRM_OK && err != NULL) {
        *err = before;
        trmi_error_append(err, " (the save before step %" PRId64 ", which has been started)",
                          info->global_step);
    }
    return previous;
}

/* ---- open and close -------------------------------------------------------------------- */

static int32_t missing_levels(const char *dir) {
    char path[TRMI_PATH_BYTES], parent[TRMI_PATH_BYTES];
    struct stat info;
    int32_t levels = 0;
    for (snprintf(path, sizeof path, "%s", dir); stat(path, &info) != 0;
         memcpy(path, parent, sizeof path)) {
        trmi_path_parent(path, parent);
        if (strcmp(path, parent) == 0) {
            break;
        }
        levels++;
    }
    return levels;
}

/* Where nothing could be saved there is not even an empty directory afterwards. Only then: another
 * writer may wait for the lock in a directory that this one made. */
static void remove_what_was_made(const trm_checkpoint_writer *writer) {
    char path[TRMI_PATH_BYTES], parent[TRMI_PATH_BYTES];
    snprintf(path, sizeof path, "%s", writer->dir);
    for (int32_t i = 0; i < writer->made && writer->os->rmdir(writer->os->context, path) == 0;
         i++) {
        trmi_path_parent(path, parent);
        memcpy(path, parent, sizeof path);
    }
}

/* The directory and, if it was made now, its name in each directory above. */
static trm_status make_dir(const char *dir, const trmi_os *os, trm_error *err) {
    struct stat info;
    if (stat(dir, &info) == 0 && S_ISDIR(info.st_mode)) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_os_make_dirs(os, dir, err));
    char path[TRMI_PATH_BYTES], parent[TRMI_PATH_BYTES];
    snprintf(path, sizeof path, "%s", dir);
    for (;;) {
        trmi_path_parent(path, parent);
        if (access(parent, R_OK | W_OK) != 0 || strcmp(parent, path) == 0) {
            return TRM_OK; /* not ours: it was there before */
        }
        TRMI_TRY(trmi_os_fsync_dir(os, parent, err));
        if (strcmp(parent, ".") == 0 || strcmp(parent, "/") == 0) {
            return TRM_OK;
        }
        memcpy(path, parent, sizeof path);
    }
}

static trm_status find_next_sequence(trm_checkpoint_writer *writer, trm_error *err) {
    trmi_checkpoint_list list;
    TRMI_TRY(trmi_checkpoint_list_dir(writer->dir, &list, err));
    writer->next_sequence = 1;
    for (int64_t i = 0; i < list.count; i++) {
        writer->next_sequence = trmi_max_i64(writer->next_sequence, list.slots[i].sequence + 1);
    }
    trmi_checkpoint_list_free(&list);
    return TRM_OK;
}

trm_status trm_checkpoint_writer_open(const char *dir, const trm_checkpoint_options *options,
                                      trm_checkpoint_writer **out, trm_error *err) {
    return trmi_checkpoint_writer_open_on(NULL, dir, options, out, err);
}

trm_status trmi_checkpoint_writer_open_on(const trmi_os *os, const char *dir,
                                          const trm_checkpoint_options *options,
                                          trm_checkpoint_writer **out, trm_error *err) {
    size_t length = strlen(dir);
    if (length == 0 || length >= TRMI_PATH_BYTES - 300) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable directory name", dir);
    }
    trm_checkpoint_writer *writer;
    TRMI_TRY(TRMI_NEW(err, writer, 1, "for a checkpoint writer"));
    writer->options = options != NULL ? *options : (trm_checkpoint_options){0};
    writer->options.keep = writer->options.keep == 0 ? KEEP_DEFAULT : writer->options.keep;
    writer->os = os != NULL ? os : trmi_os_real();
    memcpy(writer->dir, dir, length + 1);
    writer->made = missing_levels(dir);
    trm_status status;
    TRMI_TRY_GOTO(status, make_dir(dir, writer->os, err), failed);
    TRMI_TRY_GOTO(
        status,
        trmi_lock_take(dir, writer->os, writer->options.lock_wait_seconds, &writer->lock, err),
        failed);
    trmi_checkpoint_tidy(dir, writer->os);
    TRMI_TRY_GOTO(status, find_next_sequence(writer, err), failed);
    writer->opened = trmi_os_wall();
    *out = writer;
    return TRM_OK;
failed:
    trmi_lock_release(writer->lock);
    remove_what_was_made(writer);
    trmi_free(writer);
    return status;
}

trm_status trm_checkpoint_writer_close(trm_checkpoint_writer *writer, trm_error *err) {
    if (writer == NULL) {
        return TRM_OK;
    }
    trm_status status = trm_checkpoint_wait(writer, err);
    trmi_lock_release(writer->lock);
    if (writer->failed) {
        remove_what_was_made(writer);
    }
    trmi_free(writer->verified);
    trmi_free(writer->copy);
    trmi_free(writer);
    return status;
}
