/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme inspect` of a checkpoint, or of a directory of checkpoints: every file is compared with
 * its manifest.
 *
 *     of one checkpoint      the manifest's description; then, if all files agree, the parts
 *     of a directory         a line for each checkpoint, newest first: verified, or DAMAGED and why
 *
 * A damaged checkpoint is still described as far as its manifest goes, and the error is that of the
 * first damage found; a reader of the output must look at the exit code. */
#include "save/checkpoint/checkpoint.h"
#include "save/inspect/inspect.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- one checkpoint -------------------------------------------------------------------- */

/* Returns true for a directory that is named like a checkpoint or has a manifest. */
static bool is_checkpoint(const trm_probe *probe) {
    char path[TRMI_PATH_BYTES];
    struct stat info;
    const char *slash = strrchr(probe->path, '/');
    int64_t step;
    return probe->is_directory &&
           (trmi_checkpoint_is_name(slash == NULL ? probe->path : slash + 1, &step) ||
            (trmi_path_join(path, probe->path, TRMI_MANIFEST_NAME, NULL) == TRM_OK &&
             stat(path, &info) == 0));
}

/* Reports the description in the manifest: step, epoch, position in the data, seed, time, config
 * and state. */
static void put_info(trmi_report *r, const trm_checkpoint_info *info) {
    char seed[24];
    /* Print the time as text, in UTC. */
    char when[32] = "?";
    time_t seconds = (time_t)info->saved_unix_seconds;
    struct tm utc;
    if (gmtime_r(&seconds, &utc) != NULL) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%SZ", &utc);
    }
    /* In JSON the seed is a string, because it may exceed 2^53. */
    snprintf(seed, sizeof seed, "0x%016" PRIx64, info->seed);
    trmi_report_put(r, trmi_int("global_step", info->global_step), trmi_int("epoch", info->epoch),
                    trmi_int("data_position", info->data_position), trmi_string("seed", seed),
                    trmi_int("world_size", info->world_size), trmi_string("saved", when),
                    trmi_json_value("config", info->config_json),
                    trmi_json_value("state", info->state_json));
    snprintf(seed, sizeof seed, "%" PRIu64, info->seed);
    trmi_report_tell(r,
                     "checkpoint: step [global_step]%d, epoch [epoch]%d, [data_position]%d "
                     "samples into it, seed [decimal]%s, world size [world_size]%d, saved "
                     "[saved]%s\n"
                     "  config [config]%s\n"
                     "  state  [state]%s\n",
                     trmi_string("decimal", seed));
}

/* Reports the parts with the number of their tensors. */
static void put_parts(trmi_report *r, const trm_checkpoint *checkpoint) {
    trmi_report_open_array(r, "parts");
    for (int64_t i = 0; i < trmi_checkpoint_part_count(checkpoint); i++) {
        const char *name = trmi_checkpoint_part_name(checkpoint, i);
        const trm_safetensors *part = trm_checkpoint_part_of(checkpoint, name);
        /* Count the bytes of data, without the header. */
        int64_t bytes = 0;
        for (int64_t t = 0; t < trm_safetensors_count(part); t++) {
            bytes += trm_safetensors_at(part, t)->bytes;
        }
        trmi_report_open_object(r, NULL);
        trmi_report_put(r, trmi_string("name", name),
                        trmi_int("tensor_count", trm_safetensors_count(part)),
                        trmi_int("data_bytes", bytes));
        trmi_report_say_of(
            r, trmi_report_close(r),
            "  [name]%s.safetensors: [tensor_count]%d tensors, [data_bytes]%d bytes, verified\n");
    }
    trmi_report_close(r);
}

/* Describes one checkpoint: its manifest, then its parts after all files were verified. */
static trm_status describe_checkpoint(const trm_probe *probe, bool json, trm_line_sink sink,
                                      void *context, trm_error *err) {
    trmi_inspect_report report;
    trm_checkpoint *checkpoint;
    trmi_checkpoint_manifest manifest;
    trm_error local;
    trm_status status = trmi_checkpoint_read_manifest(probe->path, &manifest, err);
    trmi_inspect_begin(&report, "checkpoint", probe, json, sink, context);
    if (status == TRM_OK) { /* reported even if the files turn out to be damaged */
        put_info(&report.report, &manifest.info);
        trmi_manifest_free(&manifest);
        status = trm_checkpoint_open(probe->path, NULL, &checkpoint, err != NULL ? err : &local);
    }
    if (status == TRM_OK) {
        put_parts(&report.report, checkpoint);
        trm_checkpoint_close(checkpoint);
    }
    return trmi_inspect_end(&report, status, err);
}

/* ---- a directory of them --------------------------------------------------------------- */

/* Returns true for a directory with at least one checkpoint. */
static bool is_checkpoint_dir(const trm_probe *probe) {
    trmi_checkpoint_list list;
    if (!probe->is_directory || trmi_checkpoint_list_dir(probe->path, &list, NULL) != TRM_OK) {
        return false;
    }
    bool some = list.count > 0;
    trmi_checkpoint_list_free(&list);
    return some;
}

/* Verifies one checkpoint of a directory. */
static trm_status verify_slot(const trm_probe *probe, const trmi_checkpoint_slot *slot,
                              trm_error *err) {
    char path[TRMI_PATH_BYTES];
    trmi_checkpoint_manifest manifest;
    TRMI_TRY(trmi_path_join(path, probe->path, slot->name, err));
    TRMI_TRY(trmi_checkpoint_read_manifest(path, &manifest, err));
    trm_status status = trmi_checkpoint_verify(path, &manifest, err);
    trmi_manifest_free(&manifest);
    return status;
}

/* Verifies all checkpoints of a directory, newest first. The status is that of the first damaged
 * one. */
static trm_status describe_checkpoint_dir(const trm_probe *probe, bool json, trm_line_sink sink,
                                          void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    trmi_checkpoint_list list;
    TRMI_TRY(trmi_checkpoint_list_dir(probe->path, &list, err));
    trm_status status = TRM_OK;
    trmi_inspect_begin(&report, "checkpoints", probe, json, sink, context);
    trmi_report_tell(r, "directory of [count]%d checkpoint[one]?{|s}, newest first\n",
                     trmi_int("count", list.count), trmi_bool("one", list.count == 1));
    trmi_report_open_array(r, "checkpoints");
    for (int64_t i = 0; i < list.count; i++) {
        trm_error problem = {0};
        trm_status found = verify_slot(probe, &list.slots[i], &problem);
        trmi_report_open_object(r, NULL);
        trmi_report_put(r, trmi_string("name", list.slots[i].name),
                        trmi_int("global_step", list.slots[i].step),
                        trmi_bool("valid", found == TRM_OK), trmi_string("#why", problem.message));
        trmi_report_say_of(r, trmi_report_close(r),
                           found == TRM_OK ? "  [name]%s: verified\n"
                                           : "  [name]%s: DAMAGED: [#why]%s\n");
        if (found != TRM_OK && status == TRM_OK) {
            status = found;
            if (err != NULL) {
                *err = problem;
            }
        }
    }
    trmi_report_close(r);
    trmi_checkpoint_list_free(&list);
    return trmi_inspect_end(&report, status, err);
}

const trm_recogniser trmi_inspect_checkpoint = {"checkpoint", NULL, is_checkpoint,
                                                describe_checkpoint};
const trm_recogniser trmi_inspect_checkpoint_dir = {"directory of checkpoints", NULL,
                                                    is_checkpoint_dir, describe_checkpoint_dir};
