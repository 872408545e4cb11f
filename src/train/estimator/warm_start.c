/* SPDX-License-Identifier: Apache-2.0 */
/* Warm start of a PS-Worker job: rows begin with another run's weights.
 *
 * Each server reads its rows from the file when it creates them (trm_ps_source), so that nothing
 * goes over the network. A row that has not been trained is created at any time, so the file
 * must stay for the life of the job. Its name is kept in model_dir/ps/warm-start.txt, for
 * servers that are restarted and for jobs that are continued. */
#include "train/estimator/warm_start.h"

#include "train/export/weights.h"
#include "train/model.h"
#include "train/estimator/remote.h"

#include "models/lora.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/format/half.h"
#include "base/log.h"
#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* An open file of weights. */
struct trmi_warm_start {
    char path[PATH_BYTES];
    trm_checkpoint *checkpoint; /* NULL: the weights are a file or folder of others */
    const trm_safetensors *tensors;
    trmi_weights weights; /* opened, or with `tensors`, which the checkpoint owns */
};

/* ---- reading the file ------------------------------------------------------------------------ */

/* Opens the file by its ending: .safetensors, a Hugging Face folder, or the newest checkpoint of a
 * folder. */
static trm_status open_tensors(trmi_warm_start *w, trm_error *err) {
    if (trmi_is_weights(w->path)) {
        return trmi_weights_open(w->path, &w->weights, err);
    }
    w->weights = (trmi_weights){.files = &w->tensors, .count = 1};
    trm_status status = trm_checkpoint_open(w->path, NULL, &w->checkpoint, err);
    if (status == TRM_END) {
        return TRMI_FAIL(
            err, TRM_IO,
            "%s: no checkpoint there; a checkpoint or a folder of checkpoints expected", w->path);
    }
    TRMI_TRY(status);
    w->tensors = trm_checkpoint_part_of(w->checkpoint, "model");
    return w->tensors != NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_CORRUPT, "%s: has no model.safetensors", w->path);
}

trm_status trmi_warm_start_open(const char *path, trmi_warm_start **out, trm_error *err) {
    trmi_warm_start *w;
    TRMI_TRY(TRMI_NEW(err, w, 1, "for a warm start"));
    snprintf(w->path, sizeof w->path, "%s", path);
    trm_status status = open_tensors(w, err);
    if (status != TRM_OK) {
        trmi_warm_start_close(w);
        return status;
    }
    *out = w;
    return TRM_OK;
}

void trmi_warm_start_close(trmi_warm_start *w) {
    if (w != NULL) {
        if (w->checkpoint == NULL) {
            trmi_weights_close(&w->weights);
        }
        trm_checkpoint_close(w->checkpoint);
        trmi_free(w);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Contract in warm_start.h. A variable is stored as rows of `width` values, so row `key` begins
 * at element key * width; the last row is filled up with zeros. float16 and bfloat16 are
 * converted. */
bool trmi_warm_start_row(void *context, const char *table, uint64_t key, int32_t width,
                         float *values) {
    const trmi_warm_start *w = context;
    const trm_safetensors *file;
    const trm_safetensors_entry *e = trmi_weights_find(&w->weights, table, &file);
    if (e == NULL || e->tensor.dtype == TRM_DTYPE_NONE) {
        return false;
    }
    const size_t size = trm_dtype_bytes(e->tensor.dtype);
    const uint64_t count = (uint64_t)e->bytes / size,
                   rows = (count + (uint64_t)width - 1) / (uint64_t)width;
    if (key >= rows) {
        return false;
    }
    const uint64_t begin = key * (uint64_t)width;
    const char *from = (const char *)e->tensor.data + begin * size;
    for (int32_t i = 0; i < width; i++) {
        uint16_t half = 0;
        values[i] = 0;
        if (begin + (uint64_t)i >= count) {
            continue;
        }
        if (size == sizeof half) {
            memcpy(&half, from + (size_t)i * size, size);
            values[i] = e->tensor.dtype == TRM_BFLOAT16 ? trmi_bf16_to_float(half)
                                                        : trmi_f16_to_float(half);
        } else {
            memcpy(&values[i], from + (size_t)i * size, size);
        }
    }
    return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* What the file has of the model's tensors, and how many it lacks. */
typedef struct fit {
    const trm_safetensors_entry **taken; /* [found] */
    int32_t found, missing;
} fit;

/* Checks one tensor of the model against the file. Of a Hugging Face folder all must be there, as
 * in a job without servers; adapters begin with their own values.
 *   errors  INVALID: another shape or dtype, or missing in a folder */
static trm_status check_one(const trmi_warm_start *w, const char *name, const trm_shape *shape,
                            fit *f, trm_error *err) {
    const trm_safetensors *file;
    const trm_safetensors_entry *e = trmi_weights_find(&w->weights, name, &file);
    if (e == NULL && w->weights.is_folder && !trmi_is_adapter(name)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s has no tensor '%s': it is of another network",
                         w->path, name);
    }
    if (e == NULL) {
        f->missing += trmi_is_adapter(name) ? 0 : 1;
        return TRM_OK;
    }
    /* the shape must be that of the network, in a type that can be converted */
    bool same = e->rank == shape->rank;
    for (int32_t d = 0; same && d < e->rank; d++) {
        same = e->dims[d] == shape->dim[d];
    }
    trm_dtype dtype = e->tensor.dtype;
    bool known = dtype == TRM_FLOAT32 || dtype == TRM_BFLOAT16 || dtype == TRM_FLOAT16;
    char theirs[96], ours[96];
    trm_shape has = {.rank = e->rank < TRM_MAX_RANK ? e->rank : TRM_MAX_RANK};
    memcpy(has.dim, e->dims, sizeof *e->dims * (size_t)has.rank);
    f->taken[f->found++] = e;
    return same && known
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "%s: '%s' is %s %s, the network's is float32 %s: servers cannot begin "
                           "with it; "
                           "take it out of the file",
                           w->path, name, e->dtype, trm_shape_format(&has, theirs, sizeof theirs),
                           trm_shape_format(shape, ours, sizeof ours));
}

/* Checks all tensors of the model: dense variables, and tables. Rows of the current batch ("#rows")
 * belong to the tables. */
static trm_status check_all(const trmi_warm_start *w, const trm_model *model, fit *f,
                            trm_error *err) {
    const trm_exec *exec = model->train.exec;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind != TRM_VARIABLE_SLOT && strstr(v.name, "#rows") == NULL) {
            TRMI_TRY(check_one(w, v.name, &v.shape, f, err));
        }
    }
    for (int32_t i = 0; i < trmi_remote_table_count(model->remote); i++) {
        trmi_remote_table t = trmi_remote_table_at(model->remote, i);
        trm_shape shape = trm_shape_of(t.rows, t.width);
        TRMI_TRY(check_one(w, t.name, &shape, f, err));
    }
    return TRM_OK;
}

/* Contract in warm_start.h. A checkpoint of the library has nothing that a network would miss. */
trm_status trmi_warm_start_check(const trmi_warm_start *w, const trm_model *model, trm_error *err) {
    const int64_t most =
        trm_exec_variable_count(model->train.exec) + trmi_remote_table_count(model->remote);
    fit f = {0};
    TRMI_TRY(TRMI_NEW(err, f.taken, (size_t)most + 1, "to read %s", w->path));
    trm_status status = check_all(w, model, &f, err);
    if (status == TRM_OK && f.found == 0) {
        status = TRMI_FAIL(err, TRM_INVALID, "%s has no tensor of this network", w->path);
    }
    if (status == TRM_OK && w->checkpoint == NULL) {
        status = trmi_weights_check_copies(&w->weights, f.taken, f.found, w->path, err);
    }
    if (status == TRM_OK && f.missing > 0) {
        trmi_log(TRM_LOG_WARN, "train",
                 "%s: %d of %d tensors are missing and keep their initial values", w->path,
                 f.missing, f.found + f.missing);
    }
    if (status == TRM_OK && w->checkpoint == NULL) {
        trmi_weights_warn_unused(&w->weights, f.taken, f.found, w->path);
    }
    trmi_free(f.taken);
    return status;
}

/* ---- record in the job's folder -------------------------------------------------------------- */

/* Writes the path of warm-start.txt to `note`. */
static void note_path(const char *folder, char note[PATH_BYTES + 32]) {
    snprintf(note, PATH_BYTES + 32, "%s/warm-start.txt", folder);
}

/* Reads the path of the weights from warm-start.txt. */
static trm_status read_note(const char *note, char path[PATH_BYTES], trm_error *err) {
    uint8_t *text;
    size_t bytes;
    TRMI_TRY(trmi_os_read_file(note, PATH_BYTES - 1, &text, &bytes, err));
    memcpy(path, text, bytes);
    path[bytes] = '\0';
    path[strcspn(path, "\n")] = '\0';
    trmi_free(text);
    return TRM_OK;
}

/* Opens the weights that warm-start.txt of `folder` names; *out NULL if there is no such file.
 * If the weights are gone, the message explains that untrained rows still need them. */
static trm_status open_remembered(const char *folder, trmi_warm_start **out, trm_error *err) {
    char note[PATH_BYTES + 32], path[PATH_BYTES];
    *out = NULL;
    note_path(folder, note);
    if (folder[0] == '\0' || access(note, F_OK) != 0) {
        return TRM_OK;
    }
    TRMI_TRY(read_note(note, path, err));
    trm_status status = trmi_warm_start_open(path, out, err);
    return status == TRM_OK
               ? TRM_OK
               : (trmi_error_append(
                      err,
                      ": rows that are not trained yet begin with its values (%s); put it back",
                      note),
                  status);
}

trm_status trm_ps_initial_open(const char *folder, trm_ps_source *out, trm_error *err) {
    TRMI_NEED(err, folder, out);
    trmi_warm_start *warm;
    TRMI_TRY(open_remembered(folder, &warm, err));
    *out = (trm_ps_source){warm == NULL ? NULL : trmi_warm_start_row, warm};
    return TRM_OK;
}

void trm_ps_initial_close(trm_ps_source *source) {
    TRMI_NEED_OR(, NULL, source);
    trmi_warm_start_close(source->context);
    *source = (trm_ps_source){0};
}

/* Contract in warm_start.h. A new job notes the weights in warm-start.txt; a job that began
 * without them goes on without. */
trm_status trmi_warm_start_of_job(const trm_estimator *e, const char *folder, trmi_warm_start **out,
                                  trm_error *err) {
    char note[PATH_BYTES + 32], path[PATH_BYTES], full[PATH_MAX];
    const char *wanted = e->config.warm_start_from;
    uint64_t step;
    TRMI_TRY(open_remembered(folder, out, err));
    if (*out != NULL || wanted == NULL) {
        return TRM_OK;
    }
    if (trmi_job_read(e, &step) != TRMI_JOB_NONE) {
        trmi_log(TRM_LOG_WARN, "train",
                 "the job began before without %s: it goes on from where it is", wanted);
        return TRM_OK;
    }
    if (realpath(wanted, full) == NULL) {
        return TRMI_FAIL_SYS(err, "%s: cannot begin with it", wanted);
    }
    TRMI_TRY(trmi_warm_start_open(full, out, err));
    int length = snprintf(path, sizeof path, "%s\n", full);
    note_path(folder, note);
    return folder[0] == '\0' ? TRM_OK : trmi_os_replace_file(NULL, note, path, (size_t)length, err);
}
