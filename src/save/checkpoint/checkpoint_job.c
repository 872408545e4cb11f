/* SPDX-License-Identifier: Apache-2.0 */
/* One save: checks the input, and writes the files. N is the step, PID the process, S the number of
 * the save in the job.
 *
 *     ckpt-N.tmp.PID-S/  <- each part (safetensors), flushed; manifest.json last, flushed
 *     ckpt-N  -> ckpt-N.old   (only if it exists)
 *     ckpt-N.tmp.PID-S  -> ckpt-N, directory flushed; ckpt-N.old removed
 *
 * A crash at any point leaves a complete ckpt-N or ckpt-N.old, or both. */
#include "save/checkpoint/checkpoint_job.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* parts of a checkpoint, and characters of a part's name, at most */
enum { PARTS_MAX = 4096, PART_NAME_MAX = 100 };
/* A folder whose number has more than 18 digits is not taken for a checkpoint
 * (checkpoint_list.c). */
static const int64_t STEP_MAX = 999999999999999999;

/* ---- preparing ------------------------------------------------------------------------- */

/* Checks number and names of the parts. A name becomes a file name, so only harmless characters are
 * allowed. */
static trm_status check_parts(const trm_checkpoint_part *parts, int64_t count, trm_error *err) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    if (count < 1 || count > PARTS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "a checkpoint of %" PRId64 " parts, 1 to %d expected",
                         count, PARTS_MAX);
    }
    for (int64_t i = 0; i < count; i++) {
        const char *name = parts[i].name;
        size_t length = name == NULL ? 0 : strlen(name);
        if (length == 0 || length > PART_NAME_MAX || name[0] == '.' ||
            strspn(name, allowed) != length) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "part '%.60s' of a checkpoint: a name of letters, digits, '.', '_' "
                             "and '-' expected",
                             name == NULL ? "" : name);
        }
        /* No two parts may have the same file. */
        for (int64_t j = 0; j < i; j++) {
            if (strcmp(name, parts[j].name) == 0) {
                return TRMI_FAIL(err, TRM_INVALID, "two parts of a checkpoint are called %.60s",
                                 name);
            }
        }
    }
    return TRM_OK;
}

/* Copies the description into the job's arena and checks it.
 *   errors  INVALID (negative numbers, texts that are no JSON objects), NOMEM */
static trm_status copy_info(trmi_checkpoint_job *job, const trm_checkpoint_info *info,
                            trm_error *err) {
    if (info->global_step < 0 || info->global_step > STEP_MAX || info->epoch < 0 ||
        info->data_position < 0 || info->world_size < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a checkpoint of step %" PRId64 ", epoch %" PRId64
                         ", data position %" PRId64 ", world size %" PRId32
                         ": none may be negative, a step has at most 18 digits",
                         info->global_step, info->epoch, info->data_position, info->world_size);
    }
    job->info = *info;
    const char *config = info->config_json != NULL ? info->config_json : "{}";
    const char *state = info->state_json != NULL ? info->state_json : "{}";
    job->info.config_json = trmi_arena_strdup(&job->arena, config);
    job->info.state_json = trmi_arena_strdup(&job->arena, state);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &job->arena, "to save a checkpoint"));
    /* the JSON of config and state is checked by formatting a trial manifest */
    trmi_text trial = {0};
    trm_status status = trmi_manifest_format(&job->info, NULL, 0, &trial, err);
    trmi_text_free(&trial);
    return status;
}

/* Copies the tensor list of part `index`, builds its header, and adds the length of its file to
 * job->bytes.
 *   errors  INVALID, NOMEM */
static trm_status prepare_part(trmi_checkpoint_job *job, const trm_checkpoint_part *part,
                               int64_t index, trm_error *err) {
    /* Name of the file, and a copy of the list, because the caller's may end with the call. */
    job->files[index].name = trmi_arena_printf(&job->arena, "%s.safetensors", part->name);
    size_t count = part->count > 0 ? (size_t)part->count : 0;
    job->tensors[index] = trmi_arena_alloc(&job->arena, (count + 1) * sizeof(trm_named_tensor));
    if (job->files[index].name == NULL || job->tensors[index] == NULL) {
        return TRMI_NO_MEMORY(err, "to save a checkpoint");
    }
    if (count > 0) {
        memcpy(job->tensors[index], part->tensors, count * sizeof(trm_named_tensor));
    }
    /* The header and the length of the file. */
    job->layouts[index] =
        (trmi_safetensors_layout){.read = part->read, .read_context = part->read_context};
    job->reads = job->reads || part->read != NULL;
    TRMI_TRY(trmi_safetensors_lay_out(&job->layouts[index], job->files[index].name, part->tensors,
                                      part->count, part->metadata, part->metadata_count, err));
    if (!trmi_add_i64(job->bytes, job->layouts[index].bytes, &job->bytes) ||
        job->bytes > INT64_MAX / 4) {
        return TRMI_FAIL(err, TRM_INVALID, "a checkpoint of more bytes than a file system holds");
    }
    return TRM_OK;
}

/* Contract in checkpoint_job.h. A job that cannot be made is freed, so the caller has nothing to
 * free. */
trm_status trmi_checkpoint_job_create(trmi_checkpoint_job *job, const trm_checkpoint_info *info,
                                      const trm_checkpoint_part *parts, int64_t part_count,
                                      trm_error *err) {
    *job = (trmi_checkpoint_job){0};
    TRMI_TRY(check_parts(parts, part_count, err));
    trm_status status;
    TRMI_TRY_GOTO(status, copy_info(job, info, err), failed);
    /* Make arrays with an entry for each part. */
    size_t count = (size_t)part_count;
    TRMI_TRY_GOTO(
        status, TRMI_NEW_IN(err, &job->arena, job->tensors, count, "to save a checkpoint"), failed);
    TRMI_TRY_GOTO(
        status, TRMI_NEW_IN(err, &job->arena, job->layouts, count, "to save a checkpoint"), failed);
    TRMI_TRY_GOTO(status, TRMI_NEW_IN(err, &job->arena, job->files, count, "to save a checkpoint"),
                  failed);
    job->part_count = part_count;
    for (int64_t i = 0; i < part_count; i++) {
        TRMI_TRY_GOTO(status, prepare_part(job, &parts[i], i, err), failed);
    }
    return TRM_OK;
failed:
    trmi_checkpoint_job_free(job);
    return status;
}

/* Contract in checkpoint_job.h. The copy lets the caller train on while a thread writes; the order
 * of tensors in `memory` does not matter to the files. */
void trmi_checkpoint_job_copy(trmi_checkpoint_job *job, uint8_t *memory) {
    for (int64_t i = 0; i < job->part_count; i++) {
        for (int64_t t = 0; t < job->layouts[i].count; t++) {
            trm_tensor *tensor = &job->tensors[i][t].tensor;
            size_t bytes = (size_t)trm_tensor_bytes(tensor);
            if (bytes > 0) {
                memcpy(memory, tensor->data, bytes);
            }
            tensor->data = memory;
            memory += bytes;
        }
    }
}

void trmi_checkpoint_job_free(trmi_checkpoint_job *job) {
    for (int64_t i = 0; i < job->part_count; i++) {
        trmi_safetensors_layout_free(&job->layouts[i]);
        trmi_digest_free(&job->files[i].digest);
    }
    trmi_arena_free(&job->arena);
    *job = (trmi_checkpoint_job){0};
}

/* ---- writing --------------------------------------------------------------------------- */

/* Writes one part as a safetensors file and computes its digest. */
static trm_status write_part(trmi_checkpoint_job *job, int64_t index, const char *dir,
                             const trmi_os *os, trm_error *err) {
    char path[TRMI_PATH_BYTES];
    trmi_digest *digest = &job->files[index].digest;
    TRMI_TRY(trmi_path_join(path, dir, job->files[index].name, err));
    TRMI_TRY(trmi_digest_start(digest, err));
    trmi_file_out out;
    TRMI_TRY(trmi_file_out_open(&out, os, path, digest, err));
    trm_status status = trmi_safetensors_put(&job->layouts[index], job->tensors[index], &out, err);
    if (status != TRM_OK) {
        trmi_file_out_abort(&out);
        return status;
    }
    return trmi_file_out_close(&out, err);
}

/* Writes manifest.json, which makes the directory a checkpoint. */
static trm_status write_manifest(trmi_checkpoint_job *job, const char *dir, const trmi_os *os,
                                 trm_error *err) {
    char path[TRMI_PATH_BYTES];
    trmi_text text = {0};
    trmi_file_out out;
    trm_status status = trmi_manifest_format(&job->info, job->files, job->part_count, &text, err);
    TRMI_TRY_GOTO(status, status, done);
    TRMI_TRY_GOTO(status, trmi_path_join(path, dir, TRMI_MANIFEST_NAME, err), done);
    TRMI_TRY_GOTO(status, trmi_file_out_open(&out, os, path, NULL, err), done);
    status = trmi_file_out_write(&out, text.data, text.length, err);
    if (status == TRM_OK) {
        status = trmi_file_out_close(&out, err);
    } else {
        trmi_file_out_abort(&out);
    }
done:
    trmi_text_free(&text);
    return status;
}

/* Renames the complete directory to its name. An existing one is moved aside first and removed once
 * the new one is durable, so that a complete one exists at every moment. */
static trm_status replace_checkpoint(const char *dir, const char *temporary, const char *name,
                                     const trmi_os *os, trm_error *err) {
    char target[TRMI_PATH_BYTES], old[TRMI_PATH_BYTES], old_name[TRMI_CHECKPOINT_NAME_BYTES];
    struct stat info;
    snprintf(old_name, sizeof old_name, "%.50s.old", name);
    TRMI_TRY(trmi_path_join(target, dir, name, err));
    TRMI_TRY(trmi_path_join(old, dir, old_name, err));
    bool replaces = lstat(target, &info) == 0;
    if (replaces && lstat(old, &info) == 0) {
        /* ckpt-N.old of an interrupted writer exists beside a damaged ckpt-N: the old one is the
         * good one, so the damaged one is removed. */
        TRMI_TRY(trmi_checkpoint_trash(dir, name, os, err));
    } else if (replaces && os->rename(os->context, target, old) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot move aside", trmi_path_tail(target));
    }
    if (os->rename(os->context, temporary, target) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot rename from %s", trmi_path_tail(target),
                                          trmi_path_tail(temporary));
        /* restore what was moved aside */
        if (lstat(old, &info) == 0) {
            os->rename(os->context, old, target);
        }
        return status;
    }
    TRMI_TRY(trmi_os_fsync_dir(os, dir, err));
    trm_error problem;
    if (lstat(old, &info) == 0 && trmi_checkpoint_trash(dir, old_name, os, &problem) != TRM_OK) {
        trmi_log(TRM_LOG_WARN, "save", "a replaced checkpoint cannot be removed: %s",
                 problem.message);
    }
    return TRM_OK;
}

/* Contract in checkpoint_job.h. Everything is written under a temporary name and flushed; one
 * rename makes it the checkpoint. */
trm_status trmi_checkpoint_job_write(trmi_checkpoint_job *job, const char *dir, const trmi_os *os,
                                     trm_error *err) {
    char name[TRMI_CHECKPOINT_NAME_BYTES], temporary_name[TRMI_CHECKPOINT_NAME_BYTES * 2];
    char temporary[TRMI_PATH_BYTES];
    snprintf(name, sizeof name, "ckpt-%" PRId64, job->info.global_step);
    snprintf(temporary_name, sizeof temporary_name, "%s.tmp.%ld-%" PRId64, name, (long)getpid(),
             job->info.sequence);
    TRMI_TRY(trmi_path_join(temporary, dir, temporary_name, err));
    if (os->mkdir(os->context, temporary, 0777) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot make the directory", trmi_path_tail(temporary));
    }
    trm_status status = TRM_OK;
    /* All files, each flushed; the manifest is the last, so a directory with a manifest is
     * complete. */
    for (int64_t i = 0; i < job->part_count && status == TRM_OK; i++) {
        status = write_part(job, i, temporary, os, err);
    }
    TRMI_TRY_GOTO(status, status, failed);
    TRMI_TRY_GOTO(status, write_manifest(job, temporary, os, err), failed);
    /* The names in the directory must be durable before it gets its name. */
    TRMI_TRY_GOTO(status, trmi_os_fsync_dir(os, temporary, err), failed);
    TRMI_TRY_GOTO(status, replace_checkpoint(dir, temporary, name, os, err), failed);
    return TRM_OK;
failed:
    trmi_os_remove_tree(os, temporary, NULL);
    return status;
}
