/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a model's whole state as a checkpoint.
 *
 *        part "model"      parameters and states      by the network's names
 *        part "optimizer"  slots                      "conv1.weight/momentum"
 *        part "layerwise"  parameters of the other ranks in hybrid_parallel     layerwise.c
 *        info              step, seed, data position, the model's description
 *        info.state_json   {"job": job.h, "epoch", "epoch_step", "batch", "accumulate", "samples", "first_ranks", "rank_batch", "loss", "loss_scale", "notes"}
 *
 * All ranks gather, rank 0 writes (save/checkpoint/checkpoint_write.c). model_resume.c reads it.
 *
 * Tensors are stored in plain layout (trm_exec_read), so that a checkpoint depends on no kernel,
 * thread count or number of ranks. */
#include "train/export/gather.h"
#include "train/job/job.h"
#include "train/model.h"
#include "train/rank_changes.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/format/report.h"

/* Appends info.state_json: the position in the data, the loss scale, the job's description and
 * the notes of callbacks, whose names are the user's. */
static void write_state(const trm_model *model, trmi_text *text) {
    trmi_report r;
    trmi_report_begin_json(&r, text);
    r.foreign = true;
    trmi_report_put(&r, trmi_int("epoch", model->epoch), trmi_int("epoch_step", model->epoch_step),
                    trmi_int("batch", model->train.batch),
                    trmi_int("accumulate", trmi_accumulate(model)),
                    trmi_int("samples", model->data_samples));
    if (model->first_ranks > 0) {
        trmi_report_put(&r, trmi_int("first_ranks", model->first_ranks),
                        trmi_int("rank_batch", model->changes->rank_batch(model)));
    }
    trmi_report_put(&r, trmi_real("loss", model->loss));
    trm_loss_scale_state scale;
    if (model->train.exec != NULL && trm_exec_get_loss_scale(model->train.exec, &scale)) {
        trmi_report_open_object(&r, "loss_scale");
        trmi_report_put(&r, trmi_real("scale", scale.scale), trmi_int("good", scale.good),
                        trmi_int("bad", scale.bad), trmi_int("skipped", scale.skipped));
        trmi_report_close(&r);
    }
    if (model->job.length > 0) {
        trmi_report_put(&r, trmi_json_value("job", model->job.data));
    }
    trmi_report_open_object(&r, "notes");
    for (int32_t i = 0; i < model->notes_count; i++) {
        trmi_report_put(&r, trmi_real(model->notes[i].name, model->notes[i].value));
    }
    (void)trmi_report_end(&r);
}

bool trmi_in_part(const trm_variable *v, bool slots) {
    return (v->kind == TRM_VARIABLE_SLOT) == slots;
}

/* Copies the variables of one part into memory of `arena`, in plain layout (contract in
 * export/gather.h). */
trm_status trmi_gather(trm_exec *exec, bool slots, trmi_arena *arena, trm_named_tensor **out,
                       int64_t *count, trm_error *err) {
    int32_t total = trm_exec_variable_count(exec);
    trm_named_tensor *list = trmi_arena_alloc(arena, (size_t)(total + 1) * sizeof *list);
    int64_t n = 0;
    for (int32_t i = 0; list != NULL && i < total; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (!trmi_in_part(&v, slots)) {
            continue;
        }
        trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        t.data = trmi_arena_alloc(arena, (size_t)trm_tensor_bytes(&t));
        if (t.data == NULL) {
            list = NULL;
            break;
        }
        trm_exec_read(exec, i, t.data);
        list[n++] = (trm_named_tensor){.name = v.name, .tensor = t};
    }
    if (list == NULL) {
        return TRMI_NO_MEMORY(err, "for a copy of the model to save");
    }
    *out = list;
    *count = n;
    return TRM_OK;
}

/* Describes the job for the checkpoints, once a training call: the dataset does not change
 * within one. */
static trm_status describe_job(trm_model *model, trm_error *err) {
    return model->job.length > 0 || model->data == NULL
               ? TRM_OK
               : trmi_job_describe(model, model->data, &model->job, err);
}

/* Gathers slots and layerwise parameters from all ranks (collective); rank 0 then copies the
 * parts and writes the checkpoint through `writer`. Contract in trireme/train.h. */
trm_status trm_model_save(trm_model *model, trm_checkpoint_writer *writer, trm_error *err) {
    TRMI_NEED(err, model);
    trm_exec *exec = trm_model_exec(model);
    TRMI_TRY(trm_exec_gather(exec, err));
    trmi_arena arena = {0};
    trmi_text state = {0};
    /* The file has two parts; with layerwise parameters a third one, whose values other ranks
     * own. */
    trm_checkpoint_part parts[3] = {{.name = "model"}, {.name = "optimizer"}};
    trm_named_tensor *lists[2] = {NULL, NULL};
    bool layerwise = trmi_model_size(model) > 1 && trmi_has_layerwise(model);
    trm_status status = layerwise ? trmi_layerwise_gather(model, &arena, &parts[2], err) : TRM_OK;
    if (status != TRM_OK || trmi_model_rank(model) != 0) {
        goto done;
    }
    /* From here on only rank 0 acts. */
    for (int p = 0; p < 2; p++) {
        TRMI_TRY_GOTO(status, trmi_gather(exec, p == 1, &arena, &lists[p], &parts[p].count, err),
                      done);
        parts[p].tensors = lists[p];
    }
    TRMI_TRY_GOTO(status, describe_job(model, err), done);
    write_state(model, &state);
    if (state.failed) {
        status = TRMI_NO_MEMORY(err, "for a checkpoint's state");
        goto done;
    }
    /* the position counts samples of all ranks, so that another number of ranks can resume */
    const trm_checkpoint_info info = {
        .global_step = (int64_t)trm_exec_step(exec),
        .epoch = model->epoch,
        .data_position = model->epoch_samples,
        .seed = model->options.exec.seed,
        .world_size = trmi_model_shares(model),
        .config_json = model->options.description,
        .state_json = state.data,
    };
    status = trm_checkpoint_save(writer, &info, parts, layerwise ? 3 : 2, err);
done:
    trmi_text_free(&state);
    trmi_arena_free(&arena);
    return status;
}
