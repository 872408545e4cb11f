/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of an output directory.
 *
 *     save ── checks, headers, free space ──> [copy] ──> write, fsync, rename ──> decide what stays
 *                                               │             (a thread, if `background`)   │
 *                                               └─ the caller goes on          `checkpoint`, prune
 *
 * At most one save runs at a time: the next one, wait and close first wait for it. A failed save
 * leaves the directory as it was; if it ran in the background, the next call returns its error. */
#include "save/checkpoint/checkpoint_job.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "save/checkpoint/lock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Checkpoints that stay unless the options say otherwise. */
enum { KEEP_DEFAULT = 5 };

/* The writer of one directory. */
struct trm_checkpoint_writer {
    const trmi_os *os;              /* the platform, for tests that inject failures */
    trm_checkpoint_options options; /* with the defaults filled in */
    char dir[TRMI_PATH_BYTES];      /* the output directory */
    int32_t made;          /* number of directories at the end of `dir` that did not exist before */
    bool failed;           /* a save has failed */
    trmi_lock *lock;       /* held until the writer is closed */
    int64_t next_sequence; /* larger than all in the directory */
    double opened;         /* Unix seconds: keep_every_hours counts from here */
    int64_t *verified;     /* sequence numbers of checkpoints that were read back and are good */
    int64_t verified_count, verified_capacity; /* length and capacity of `verified` */
    /* The present save. These members belong to the thread while it runs. */
    bool running;
    pthread_t thread;        /* of a save in the background */
    trmi_checkpoint_job job; /* the present save */
    trm_status outcome;      /* of the thread's save */
    trm_error outcome_err;   /* of a failed save */
    uint8_t *copy;           /* memory for copies of tensors, reused by the next save */
    int64_t copy_bytes;      /* length of `copy` */
};

/* ---- which ones stay ------------------------------------------------------------------- */

/* Returns whether the checkpoint is good. It is read back completely once; the result is
 * remembered. */
static bool is_verified(trm_checkpoint_writer *writer, const trmi_checkpoint_slot *slot,
                        trm_error *err) {
    for (int64_t i = 0; i < writer->verified_count; i++) {
        if (writer->verified[i] == slot->sequence) {
            return true;
        }
    }
    /* Not yet: read it back. */
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
    /* Without memory for the list it is only read back again later. */
    if (trmi_grow((void **)&writer->verified, &writer->verified_capacity,
                  writer->verified_count + 1, sizeof *writer->verified)) {
        writer->verified[writer->verified_count++] = slot->sequence;
    }
    return true;
}

/* Writes the path of the mark that keeps a checkpoint for ever. */
static bool kept_path(const trm_checkpoint_writer *writer, const char *name, char *path) {
    char hidden[TRMI_CHECKPOINT_NAME_BYTES * 2];
    snprintf(hidden, sizeof hidden, TRMI_KEPT_PREFIX "%s", name);
    return trmi_path_join(path, writer->dir, hidden, NULL) == TRM_OK;
}

/* keep_every_hours: sets kept[i] for the checkpoints that stay for ever. Goes through those beyond
 * the newest `keep`, from the oldest on, and marks one whenever the given hours have passed since
 * the last mark. */
static void plan_keeping(trm_checkpoint_writer *writer, const trmi_checkpoint_list *list,
                         bool *kept) {
    double last = writer->opened, hours = writer->options.keep_every_hours;
    char path[TRMI_PATH_BYTES];
    struct stat info;
    trm_error err;
    /* Find those with a mark, and the time of the newest of them. */
    for (int64_t i = 0; i < list->count; i++) {
        kept[i] = kept_path(writer, list->slots[i].name, path) && stat(path, &info) == 0;
        last = kept[i] && list->slots[i].saved_unix_seconds > last
                   ? list->slots[i].saved_unix_seconds
                   : last;
    }
    /* New marks. */
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

/* Decides which checkpoints stay: stays[i] for each slot, newest first. kept[i]: it stays for ever.
 * At least two good ones stay (one, if `keep` is 1), so a checkpoint is read back before older ones
 * go. An error is returned only for the checkpoint that was just written. */
static trm_status plan_pruning(trm_checkpoint_writer *writer, const trmi_checkpoint_list *list,
                               const bool *kept, bool *stays, trm_error *err) {
    int32_t keep = writer->options.keep;
    bool prunes = keep >= 0 && list->count > keep;
    int64_t good_wanted = keep >= 2 ? 2 : 1, good = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const trmi_checkpoint_slot *slot = &list->slots[i];
        /* reasons to stay: few enough, new enough, not enough good ones yet, marked, from a newer
         * version, in use */
        stays[i] = !prunes || i < keep || good < good_wanted || kept[i] ||
                   slot->problem.status == TRM_UNSUPPORTED ||
                   trmi_checkpoint_in_use(writer->dir, slot->name, writer->os);
        trm_error problem = {0};
        if (!stays[i] || !prunes) {
            continue;
        }
        /* Only a checkpoint that can be read back counts: a damaged one makes an older one stay. */
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

/* Writes the file `checkpoint` in TensorFlow's form: the newest checkpoint, and all that stay,
 * oldest first, with the times at which they were saved. */
static trm_status write_state(trm_checkpoint_writer *writer, const trmi_checkpoint_list *list,
                              const bool *stays, trm_error *err) {
    trmi_text text = {0};
    /* The newest one, then all that stay, as paths and as times. */
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
    trm_status status =
        text.failed ? TRMI_NO_MEMORY(err, "for the state file of %s", trmi_path_tail(writer->dir))
                    : trmi_path_join(path, writer->dir, "checkpoint", err);
    if (status == TRM_OK) {
        status = trmi_os_replace_file(writer->os, path, text.data, text.length, err);
    }
    trmi_text_free(&text);
    return status;
}

/* Tidies up after a checkpoint is written: decides what stays, writes the state file, then removes
 * the others. The order matters: the state file never names a removed checkpoint. */
static trm_status prune_directory(trm_checkpoint_writer *writer, trm_error *err) {
    trmi_checkpoint_list list;
    TRMI_TRY(trmi_checkpoint_list_dir(writer->dir, &list, err));
    trm_status status;
    bool *stays = trmi_alloc(2 * (size_t)list.count * sizeof *stays), *kept = stays + list.count;
    if (stays == NULL) {
        status = TRMI_NO_MEMORY(err, "to list %s", trmi_path_tail(writer->dir));
        goto done;
    }
    /* Mark the checkpoints that stay for ever and those that stay now, write the state file, remove
     * the rest. */
    plan_keeping(writer, &list, kept);
    TRMI_TRY_GOTO(status, plan_pruning(writer, &list, kept, stays, err), done);
    TRMI_TRY_GOTO(status, write_state(writer, &list, stays, err), done);
    for (int64_t i = 0; i < list.count; i++) {
        trm_error problem;
        if (!stays[i] && /* nor is it in use since it was looked at */
            !trmi_checkpoint_in_use(writer->dir, list.slots[i].name, writer->os) &&
            trmi_checkpoint_trash(writer->dir, list.slots[i].name, writer->os, &problem) !=
                TRM_OK) {
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

/* Writes the present job, prunes, and reports it through on_saved. */
static trm_status write_and_prune(trm_checkpoint_writer *writer, trm_error *err) {
    const trm_checkpoint_info *info = &writer->job.info;
    /* Write, prune, report. */
    trm_status status = trmi_checkpoint_job_write(&writer->job, writer->dir, writer->os, err);
    if (status == TRM_OK) {
        status = prune_directory(writer, err);
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

/* Writes a checkpoint in the background: the main function of a thread. */
static void *persist_in_background(void *argument) {
    trm_checkpoint_writer *writer = argument;
    writer->outcome = write_and_prune(writer, &writer->outcome_err);
    return NULL;
}

/* Fails with NOSPACE if the file system has less than 1.2 times the size of the checkpoint. */
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

/* Copies the caller's tensors to memory of the writer. Returns false if there is none: the save
 * then runs in the foreground. */
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

/* Starts a save: in the background if possible, otherwise it runs it to its end. In the background
 * the job belongs to the thread until trm_checkpoint_wait. Errors of the checks and of a save in
 * the foreground are returned. */
static trm_status start_save(trm_checkpoint_writer *writer, const trm_checkpoint_info *info,
                             const trm_checkpoint_part *parts, int64_t part_count, trm_error *err) {
    TRMI_TRY(trmi_checkpoint_job_create(&writer->job, info, parts, part_count, err));
    /* Number and time, by which checkpoints are ordered. */
    writer->job.info.sequence = writer->next_sequence++;
    writer->job.info.saved_unix_seconds = trmi_os_wall();
    trm_status status = trmi_lock_check(writer->lock, err);
    if (status == TRM_OK) {
        status = check_space(writer, err);
    }
    /* In the background, unless tensors are read during the save, or memory or a thread is
     * missing. */
    if (status == TRM_OK && writer->options.background && !writer->job.reads && take_copy(writer) &&
        pthread_create(&writer->thread, NULL, persist_in_background, writer) == 0) {
        writer->running = true;
        return TRM_OK;
    }
    /* Write in the foreground. */
    if (status == TRM_OK) {
        trm_error local;
        status = write_and_prune(writer, err != NULL ? err : &local);
    }
    writer->failed = writer->failed || status != TRM_OK;
    trmi_checkpoint_job_free(&writer->job);
    return status;
}

/* Contract in trireme/io.h. Reports the outcome of a save once; the next call finds nothing to wait
 * for. */
trm_status trm_checkpoint_wait(trm_checkpoint_writer *writer, trm_error *err) {
    TRMI_NEED(err, writer);
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

/* Contract in trireme/io.h. An error of the save before does not prevent this one: the newer state
 * is worth more. The caller gets the error all the same. */
trm_status trm_checkpoint_save(trm_checkpoint_writer *writer, const trm_checkpoint_info *info,
                               const trm_checkpoint_part *parts, int64_t part_count,
                               trm_error *err) {
    TRMI_NEED(err, writer, info);
    if (part_count > 0) {
        TRMI_NEED(err, parts);
    }
    trm_error before;
    trm_status previous = trm_checkpoint_wait(writer, &before);
    TRMI_TRY(start_save(writer, info, parts, part_count, err));
    if (previous != TRM_OK && err != NULL) {
        *err = before;
        trmi_error_append(err, " (the save before step %" PRId64 ", which has been started)",
                          info->global_step);
    }
    return previous;
}

/* ---- open and close -------------------------------------------------------------------- */

/* Returns how many directories at the end of `dir` do not exist yet. */
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

/* Removes the directories that the writer has created, as far as they are empty, because nothing
 * could be saved. Only rmdir is used: another writer may wait for the lock in one of them. */
static void remove_what_was_made(const trm_checkpoint_writer *writer) {
    char path[TRMI_PATH_BYTES], parent[TRMI_PATH_BYTES];
    snprintf(path, sizeof path, "%s", writer->dir);
    for (int32_t i = 0; i < writer->made && writer->os->rmdir(writer->os->context, path) == 0;
         i++) {
        trmi_path_parent(path, parent);
        memcpy(path, parent, sizeof path);
    }
}

/* Creates the directory, and flushes each directory above it, so that its name is durable. A
 * directory that exists may be one that another process made and could not flush before it died. */
static trm_status make_dir(const char *dir, const trmi_os *os, trm_error *err) {
    TRMI_TRY(trmi_os_make_dirs(os, dir, err));
    char path[TRMI_PATH_BYTES], parent[TRMI_PATH_BYTES];
    snprintf(path, sizeof path, "%s", dir);
    for (;;) {
        trmi_path_parent(path, parent);
        if (access(parent, R_OK | W_OK) != 0 || strcmp(parent, path) == 0) {
            return TRM_OK; /* not writable by this user: it existed before */
        }
        TRMI_TRY(trmi_os_fsync_dir(os, parent, err));
        if (strcmp(parent, ".") == 0 || strcmp(parent, "/") == 0) {
            return TRM_OK;
        }
        memcpy(path, parent, sizeof path);
    }
}

/* Makes the writer's directory and takes its lock. Another writer that could save nothing may
 * remove the directory that it has made in between: it is made again then. */
static trm_status take_dir(trm_checkpoint_writer *writer, trm_error *err) {
    enum { TIMES = 10 };
    const trm_checkpoint_options *o = &writer->options;
    const double outwait = !o->outwait_lock         ? 0
                           : o->outwait_seconds > 0 ? fmin(o->outwait_seconds, TRMI_OUTWAIT_ALL)
                                                    : TRMI_OUTWAIT_ALL;
    trm_status status = TRM_IO;
    for (int i = 0; i < TIMES && status == TRM_IO && (i == 0 || missing_levels(writer->dir) > 0);
         i++) {
        TRMI_TRY(make_dir(writer->dir, writer->os, err));
        status = trmi_lock_take(writer->dir, writer->os, o->lock_wait_seconds, outwait,
                                &writer->lock, err);
    }
    return status;
}

/* Finds the first sequence number that is larger than all in the directory. */
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

/* Writes the folder's path from the root, so that the writer finds it after chdir() too. The names
 * of checkpoints and files are appended to it.
 *   errors  INVALID (too long), IO */
static trm_status find_absolute(const char *folder, char path[TRMI_PATH_BYTES], trm_error *err) {
    char here[TRMI_PATH_BYTES] = "";
    if (folder[0] != '/' && getcwd(here, sizeof here) == NULL) {
        return TRMI_FAIL_SYS(err, "%s: the working directory cannot be found",
                             trmi_path_tail(folder));
    }
    int length = folder[0] == '/' ? snprintf(path, TRMI_PATH_BYTES, "%s", folder)
                                  : snprintf(path, TRMI_PATH_BYTES, "%s/%s", here, folder);
    if (folder[0] == '\0' || length < 0 || length >= TRMI_PATH_BYTES - 300) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable directory name", folder);
    }
    return TRM_OK;
}

trm_status trm_checkpoint_writer_open(const char *folder, const trm_checkpoint_options *options,
                                      trm_checkpoint_writer **out, trm_error *err) {
    TRMI_NEED(err, folder, out);
    return trmi_checkpoint_writer_open_on(NULL, folder, options, out, err);
}

/* Contract in checkpoint.h. A call that fails removes the directories that it has made. */
trm_status trmi_checkpoint_writer_open_on(const trmi_os *os, const char *dir,
                                          const trm_checkpoint_options *options,
                                          trm_checkpoint_writer **out, trm_error *err) {
    char absolute[TRMI_PATH_BYTES];
    trm_checkpoint_writer *writer;
    TRMI_TRY(find_absolute(dir, absolute, err));
    TRMI_TRY(TRMI_NEW(err, writer, 1, "for a checkpoint writer"));
    writer->options = options != NULL ? *options : (trm_checkpoint_options){0};
    writer->options.keep = writer->options.keep == 0 ? KEEP_DEFAULT : writer->options.keep;
    writer->os = os != NULL ? os : trmi_os_real();
    /* Open the directory, take the lock, tidy up: in this order, because only the owner of the lock
     * may tidy up. */
    memcpy(writer->dir, absolute, sizeof absolute);
    writer->made = missing_levels(writer->dir);
    trm_status status;
    TRMI_TRY_GOTO(status, take_dir(writer, err), failed);
    trmi_checkpoint_tidy(writer->dir, writer->os);
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

/* Contract in trireme/io.h. After a failed save the folder is left without half-made files. */
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
