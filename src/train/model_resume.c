/* SPDX-License-Identifier: Apache-2.0 */
/* Loads or resumes a model from a checkpoint (the parts are in model_save.c).
 *
 *   load     trm_model_load     weights only, for a new job
 *   resume   trm_model_resume   everything; the run continues with the bits that it would have had without interruption
 *
 * A part is checked and converted as a whole before its first variable is written. */
#include "train/export/gather.h"
#include "train/export/weights.h"
#include "train/job/job.h"
#include "train/model.h"
#include "train/rank_changes.h"

#include "models/lora.h"

#include "graph/graph_ir.h"

#include "base/arguments.h"
#include "base/error.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- loading variables ----------------------------------------------------------------------- */

/* Returns whether a tensor of a file has a variable's shape. */
static bool same_shape(const trm_safetensors_entry *e, const trm_shape *shape) {
    bool same = e->rank == shape->rank;
    for (int32_t d = 0; same && d < e->rank; d++) {
        same = e->dims[d] == shape->dim[d];
    }
    return same;
}

/* Writes the shape of a tensor of a file, for messages. */
static void entry_shape(const trm_safetensors_entry *e, char *text, size_t size) {
    trm_shape shape = {.rank = e->rank < TRM_MAX_RANK ? e->rank : TRM_MAX_RANK};
    memcpy(shape.dim, e->dims, sizeof *e->dims * (size_t)shape.rank);
    trm_shape_format(&shape, text, size);
}

/* One part of a checkpoint that is being loaded. */
typedef struct loading {
    trm_exec *exec;
    const char *where; /* the file or folder, for messages */
    bool slots;        /* the part: slots of the optimiser; else parameters and states */
    bool partial;      /* variables without a tensor of their shape stay as they are */
    int32_t skipped;   /* counts these variables */
} loading;

/* Finds the tensor of variable `v`, and the file that has it. *out is NULL if there is none or its
 * shape differs: of partial parts, and for adapters beside the weights of a folder.
 *   errors  INVALID otherwise */
static trm_status find_entry(const loading *l, const trmi_weights *weights, const trm_variable *v,
                             const trm_safetensors **file, const trm_safetensors_entry **out,
                             trm_error *err) {
    const trm_safetensors_entry *e = trmi_weights_find(weights, v->name, file);
    *out = e;
    if (e != NULL && same_shape(e, &v->shape)) {
        return TRM_OK;
    }
    *out = NULL;
    if (l->partial || (e == NULL && weights->is_folder && trmi_is_adapter(v->name))) {
        return TRM_OK;
    }
    if (e == NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s has no tensor '%s': it is of another network; use the network of the file",
            l->where, v->name);
    }
    char found[96], expected[96];
    entry_shape(e, found, sizeof found);
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: '%s' has shape %s, the network's has %s; use the "
                     "network of the checkpoint",
                     l->where, v->name, found,
                     trm_shape_format(&v->shape, expected, sizeof expected));
}

/* Loads one part of a checkpoint. First all tensors are checked and converted, then all are
 * written, so that an error leaves the model unchanged. */
static trm_status load_part(loading *l, const trmi_weights *weights, trm_error *err) {
    trm_exec *exec = l->exec;
    int32_t total = trm_exec_variable_count(exec);
    trmi_arena arena = {0};
    void **values = trmi_arena_alloc(&arena, (size_t)(total + 1) * sizeof *values);
    trm_status status = TRM_OK;
    if (values == NULL) {
        status = TRMI_NO_MEMORY(err, "to load %s", l->where);
        goto done;
    }
    for (int32_t i = 0; i < total; i++) {
        /* Read each tensor into memory of its own. */
        trm_variable v = trm_exec_variable(exec, i);
        const trm_safetensors_entry *e = NULL;
        const trm_safetensors *file = NULL;
        if (!trmi_in_part(&v, l->slots)) {
            continue;
        }
        TRMI_TRY_GOTO(status, find_entry(l, weights, &v, &file, &e, err), done);
        if (e == NULL) {
            l->skipped += trmi_is_adapter(v.name) ? 0 : 1;
            continue;
        }
        trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        t.data = values[i] = trmi_arena_alloc(&arena, (size_t)trm_tensor_bytes(&t));
        if (t.data == NULL) {
            status = TRMI_NO_MEMORY(err, "to load %s", l->where);
            goto done;
        }
        TRMI_TRY_GOTO(status, trm_safetensors_read(file, e->name, &t, err), done);
    }
    for (int32_t i = 0; i < total; i++) {
        /* Everything was readable: now change the model. */
        if (values[i] != NULL) {
            trm_exec_write(exec, i, values[i]);
        }
    }
done:
    trmi_arena_free(&arena);
    return status;
}

/* Loads the tensors of one file of a checkpoint. */
static trm_status load_file(loading *l, const trm_safetensors *file, trm_error *err) {
    const trmi_weights weights = {.files = &file, .count = 1};
    return load_part(l, &weights, err);
}

/* Loads weights that come from elsewhere: a file, or the files of a folder. What they have and the
 * network does not is looked at, too: a second name of a tied tensor with other values is refused
 * before the model is changed, other tensors are counted in a warning. The network's variables are
 * those of the graph, because the program of a stage has only some of them. In jobs with servers
 * warm_start.c does this: tables are not in the graph there. */
static trm_status load_foreign(trm_model *model, loading *l, const trmi_weights *weights,
                               trm_error *err) {
    const trm_graph *graph = trmi_model_owner(model)->graph;
    const trm_safetensors_entry **taken;
    if (model->remote != NULL) {
        return load_part(l, weights, err);
    }
    TRMI_TRY(TRMI_NEW(err, taken, (size_t)graph->ops_count, "to load %s", l->where));
    int64_t count = 0;
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        const trm_safetensors *file;
        if (op->kind == TRMI_OP_PARAMETER || op->kind == TRMI_OP_STATE) {
            taken[count] = trmi_weights_find(weights, op->name, &file);
            count += taken[count] != NULL;
        }
    }
    trm_status status = trmi_weights_check_copies(weights, taken, count, l->where, err);
    status = status == TRM_OK ? load_part(l, weights, err) : status;
    if (status == TRM_OK && trmi_model_rank(model) == 0) {
        trmi_weights_warn_unused(weights, taken, count, l->where);
    }
    trmi_free(taken);
    return status;
}

/* Loads weights from a .safetensors file, a Hugging Face folder or the newest checkpoint under
 * `path`, on this rank alone. */
static trm_status load_here(trm_model *model, const char *path, bool partial, int32_t *skipped,
                            trm_error *err) {
    loading l = {.exec = trm_model_exec(model), .where = path, .partial = partial};
    *skipped = 0;
    trm_status status;
    if (trmi_is_weights(path)) {
        trmi_weights weights;
        TRMI_TRY(trmi_weights_open(path, &weights, err));
        status = load_foreign(model, &l, &weights, err);
        *skipped = l.skipped;
        trmi_weights_close(&weights);
        return status;
    }
    trm_checkpoint *checkpoint;
    status = trm_checkpoint_open(path, NULL, &checkpoint, err);
    if (status == TRM_END) {
        return TRMI_FAIL(
            err, TRM_IO,
            "%s: no checkpoint there; a checkpoint or a folder of checkpoints expected", path);
    }
    TRMI_TRY(status);
    const trm_safetensors *file = trm_checkpoint_part_of(checkpoint, "model");
    l.where = trm_checkpoint_get_info(checkpoint)->path;
    status = file == NULL ? TRMI_FAIL(err, TRM_CORRUPT, "%s: has no model.safetensors", l.where)
                          : load_file(&l, file, err);
    *skipped = l.skipped;
    trm_checkpoint_close(checkpoint);
    return status;
}

/* Compares the outcome of reading the files `path` over the ranks. Where a rank of an elastic job
 * dies meanwhile, the outcome of this rank holds: the ranks that are left compare their states when
 * they train.
 *   errors  those of trmi_model_agree */
static trm_status agree_on_files(const trm_model *model, trm_status status, int64_t number,
                                 const char *path, trm_error *err) {
    trm_error why;
    trm_status agreed = trmi_model_agree(model, status, number, path, &why);
    if (agreed == status || model->changes->puts_off(agreed, &why)) {
        return status;
    }
    if (err != NULL) {
        *err = why;
    }
    return agreed;
}

/* Contract in trireme/train.h. All ranks read the same files; they must agree on the outcome. */
trm_status trm_model_load(trm_model *model, const char *path, bool partial, int32_t *skipped,
                          trm_error *err) {
    TRMI_NEED(err, model, path);
    int32_t unused = 0;
    skipped = skipped != NULL ? skipped : &unused;
    trm_status status = load_here(model, path, partial, skipped, err);
    return agree_on_files(model, status, *skipped, path, err);
}

/* Loads weights and slots of the newest checkpoint as far as they exist, on this rank alone
 * (contract in gather.h). */
trm_status trmi_model_take_newest(trm_model *model, const char *dir, int64_t *step,
                                  trm_error *err) {
    trm_checkpoint *checkpoint;
    *step = -1;
    trm_status status = trm_checkpoint_open(dir, NULL, &checkpoint, err);
    if (status == TRM_END) {
        return TRM_OK;
    }
    TRMI_TRY(status);
    loading l = {.exec = model->train.exec,
                 .where = trm_checkpoint_get_info(checkpoint)->path,
                 .partial = true};
    static const char *const parts[] = {"model", "optimizer"};
    for (int p = 0; p < 2 && status == TRM_OK; p++) {
        const trm_safetensors *file = trm_checkpoint_part_of(checkpoint, parts[p]);
        l.slots = p == 1;
        status = file == NULL ? TRM_OK : load_file(&l, file, err);
    }
    *step = status == TRM_OK ? trm_checkpoint_get_info(checkpoint)->global_step : -1;
    trm_checkpoint_close(checkpoint);
    return status;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* The fields of info.state_json. */
typedef struct saved_state {
    json_int_t epoch, epoch_step, batch, samples;
    json_int_t rank_batch; /* that each rank keeps; as `batch` where it is left out */
    int accumulate, first_ranks;
    double loss;
    json_t *scale, *notes, *job; /* borrowed from the root; scale NULL = no loss was scaled */
} saved_state;

/* Parses info.state_json into `s`; *root owns the JSON values that `s` borrows.
 *   errors  CORRUPT */
static trm_status parse_state(const char *where, const char *text, json_t **root, saved_state *s,
                              trm_error *err) {
    json_error_t bad;
    *root = json_loads(text, 0, &bad);
    if (*root == NULL ||
        json_unpack(*root, "{s:I,s:I,s:I,s:i,s:I,s?i,s?I,s:F,s?o,s?o,s:o}", "epoch", &s->epoch,
                    "epoch_step", &s->epoch_step, "batch", &s->batch, "accumulate", &s->accumulate,
                    "samples", &s->samples, "first_ranks", &s->first_ranks, "rank_batch",
                    &s->rank_batch, "loss", &s->loss, "loss_scale", &s->scale, "job", &s->job,
                    "notes", &s->notes) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: its training state cannot be read; only its weights "
                         "can be used (load, --init)",
                         where);
    }
    if (s->epoch < 0 || s->epoch_step < 0 || s->accumulate < 1 || s->batch < 0 ||
        s->first_ranks < 0 || !json_is_object(s->notes) ||
        json_object_size(s->notes) > TRMI_NOTES_MAX) {
        return TRMI_FAIL(
            err, TRM_CORRUPT,
            "%s: its training state is out of range; only its weights can be used (load, --init)",
            where);
    }
    return TRM_OK;
}

/* Checks that the checkpoint can be resumed by this model: same seed, same global batch (where each
 * rank keeps its batch: same batch of a rank) and accumulation, a network with the same parameters,
 * an optimiser with as many slots. The number of ranks may differ as long as the global batch is
 * the same, because a step then reads the same samples; or where the position counts samples.
 *   errors  INVALID */
static trm_status check_same_run(const trm_model *model, const trm_checkpoint *checkpoint,
                                 const saved_state *s, trm_error *err) {
    const trm_checkpoint_info *info = trm_checkpoint_get_info(checkpoint);
    const char *where = trm_checkpoint_get_info(checkpoint)->path;
    if (s->batch == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s holds weights only (imported): begin with it (load, --init) "
                         "instead of resuming it",
                         where);
    }
    if (info->seed != model->options.exec.seed) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s was made with seed %llu, this run has %llu; resume with the same seed",
                         where, (unsigned long long)info->seed,
                         (unsigned long long)model->options.exec.seed);
    }
    const bool keeps = model->first_ranks > 0;
    if (s->first_ranks > 0 && !keeps) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s was made by ranks that kept their batches; resume it in the same way "
                         "(elastic_batch, --elastic-batch rank)",
                         where);
    }
    /* The global batch must be the same; where ranks keep their batches, that of one rank. */
    int64_t ranks = info->world_size > 0 ? info->world_size : 1;
    const int64_t now = model->changes->batch(model) / model->train.batch;
    bool same =
        keeps ? (s->rank_batch > 0 ? s->rank_batch : s->batch) == model->changes->rank_batch(model)
              : s->batch * ranks == model->train.batch * now;
    if (!same || s->accumulate != trmi_accumulate(model)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s was made with batch size %lld, ranks: %lld, batches a step: %d; this run has "
            "batch size %lld, ranks: %lld, batches a step: %d",
            where, (long long)s->batch, (long long)ranks, s->accumulate,
            (long long)model->train.batch, (long long)now, trmi_accumulate(model));
    }
    /* Another network and another optimiser both show as a different number of slots; a parameter
     * that the checkpoint lacks tells them apart. */
    int64_t slots = 0, saved = 0;
    const char *foreign = NULL; /* first parameter that the checkpoint lacks */
    trm_exec *exec = model->train.exec;
    const trm_safetensors *weights = trm_checkpoint_part_of(checkpoint, "model");
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        slots += v.kind == TRM_VARIABLE_SLOT;
        bool known =
            v.kind != TRM_VARIABLE_PARAMETER || trm_safetensors_find(weights, v.name) != NULL;
        foreign = foreign == NULL && !known ? v.name : foreign;
    }
    const trm_safetensors *part = trm_checkpoint_part_of(checkpoint, "optimizer");
    saved = part != NULL ? trm_safetensors_count(part) : 0;
    if (saved != slots && foreign != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s is of another network: it has no %s", where,
                         foreign);
    }
    if (saved != slots) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s has %lld optimiser slots, this run's optimiser has %lld; resume with the "
            "same optimiser",
            where, (long long)saved, (long long)slots);
    }
    return TRM_OK;
}

/* Restores the loss scale. If the saved run scaled no loss, the model keeps its own initial
 * scale. */
static trm_status take_scale(trm_exec *exec, const char *where, json_t *saved, trm_error *err) {
    trm_loss_scale_state state;
    json_int_t skipped;
    int good, bad;
    if (saved == NULL || !trm_exec_get_loss_scale(exec, &state)) {
        return TRM_OK;
    }
    if (json_unpack(saved, "{s:F,s:i,s:i,s:I}", "scale", &state.scale, "good", &good, "bad", &bad,
                    "skipped", &skipped) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: its loss scale cannot be read", where);
    }
    state.good = good;
    state.bad = bad;
    state.skipped = skipped;
    return trm_exec_set_loss_scale(exec, &state, err);
}

/* Compares the saved job with this model, and keeps its description: the data is compared when
 * training begins, because the dataset is not known before. */
static trm_status take_job(trm_model *model, const char *where, const json_t *job, trm_error *err) {
    char *text = job == NULL ? NULL : json_dumps(job, JSON_COMPACT);
    trm_status status = trmi_job_compare(model, NULL, text, where, err);
    trmi_text_free(&model->resumed_job);
    if (status == TRM_OK && text != NULL) {
        trmi_text_append(&model->resumed_job, text, strlen(text));
        status = TRMI_CHECK_MEMORY(err, &model->resumed_job, "for the description of a job");
    }
    free(text);
    return status;
}

/* Sets step, position, loss and notes of the model to the saved ones. */
static void take_state(trm_model *model, const trm_checkpoint_info *info, const saved_state *s) {
    trm_exec_set_step(model->train.exec, (uint64_t)info->global_step);
    model->epoch = s->epoch;
    model->epoch_step = s->epoch_step;
    model->epoch_samples = info->data_position;
    if (model->first_ranks > 0) {
        model->first_ranks = s->first_ranks > 0 ? s->first_ranks : info->world_size;
    }
    model->resumed_samples = s->samples;
    model->loss = (float)s->loss;
    model->notes_count = 0;
    const char *name;
    json_t *value;
    json_object_foreach(s->notes, name, value) {
        /* a name that is too long was not written by this library: skip it */
        (void)!trm_model_set_note(model, name, json_number_value(value), NULL);
    }
}

/* Restores everything from one open checkpoint. All checks of the run come before the first
 * variable is changed. */
static trm_status resume_from(trm_model *model, const trm_checkpoint *checkpoint, trm_error *err) {
    const char *where = trm_checkpoint_get_info(checkpoint)->path;
    const trm_checkpoint_info *info = trm_checkpoint_get_info(checkpoint);
    const trm_safetensors *weights = trm_checkpoint_part_of(checkpoint, "model");
    const trm_safetensors *slots = trm_checkpoint_part_of(checkpoint, "optimizer");
    json_t *root = NULL;
    saved_state s = {0};
    loading l = {.exec = model->train.exec, .where = where, .slots = true};
    trm_status status;
    if (weights == NULL) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: has no model.safetensors", where);
    }
    TRMI_TRY_GOTO(status, parse_state(where, info->state_json, &root, &s, err), done);
    TRMI_TRY_GOTO(status, check_same_run(model, checkpoint, &s, err), done);
    TRMI_TRY_GOTO(status, take_job(model, where, s.job, err), done);
    if (slots != NULL) {
        TRMI_TRY_GOTO(status, load_file(&l, slots, err), done);
    }
    l.slots = false;
    TRMI_TRY_GOTO(status, load_file(&l, weights, err), done);
    TRMI_TRY_GOTO(status, trmi_layerwise_restore(model, checkpoint, err), done);
    TRMI_TRY_GOTO(status, take_scale(model->train.exec, where, s.scale, err), done);
    take_state(model, info, &s);
done:
    json_decref(root);
    return status;
}

/* Contract in trireme/train.h. Ranks agree on the outcome: all have resumed the same step, or the
 * call fails on all of them. */
trm_status trm_model_resume(trm_model *model, const char *path, trm_error *err) {
    TRMI_NEED(err, model, path);
    if (model->options.evaluation_only) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a model made with evaluation_only loads, it cannot resume");
    }
    trm_checkpoint *checkpoint;
    trm_status status = trm_checkpoint_open(path, NULL, &checkpoint, err);
    if (status == TRM_OK) {
        status = resume_from(model, checkpoint, err);
        trm_checkpoint_close(checkpoint);
    }
    return agree_on_files(model, status, (int64_t)trm_exec_step(model->train.exec), path, err);
}
