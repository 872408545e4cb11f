/* SPDX-License-Identifier: Apache-2.0 */
/* hybrid_parallel: saves and restores the parameters that each rank has for itself.
 *
 *        parts "model", "optimizer"   rank 0's, as in any job
 *        part "layerwise"             the other ranks': "rank1/fc.weight", "rank1/fc.weight/momentum", "rank2/fc.weight", ...
 *
 * Rank 0's values are in the first two parts, so that other programs can read the checkpoint
 * like any other. */
#include "train/export/gather.h"
#include "train/model.h"

#include "base/error.h"
#include "exec/exec.h"

static const char *const part_name = "layerwise";

bool trmi_has_layerwise(const trm_model *model) {
    return model->options.exec.parallel.layerwise_count > 0;
}

/* Gathers variable `index` on rank 0: *all is [ranks][bytes of the variable], in memory of
 * `arena`. Collective. */
static trm_status gather_one(const trm_model *model, int32_t index, trmi_arena *arena, char **all,
                             trm_error *err) {
    trm_exec *exec = model->train.exec;
    trm_variable v = trm_exec_variable(exec, index);
    int64_t bytes = trm_tensor_bytes(&(trm_tensor){.dtype = v.dtype, .shape = v.shape});
    char *own = trmi_arena_alloc(arena, (size_t)bytes);
    *all = trmi_arena_alloc(
        arena, (size_t)(trmi_model_rank(model) == 0 ? bytes * trmi_model_size(model) : 1));
    if (own == NULL || *all == NULL) {
        return TRMI_NO_MEMORY(err, "for '%s' of all ranks", v.name);
    }
    trm_exec_read(exec, index, own);
    const trm_collective op = {.kind = TRM_GATHER,
                               .send = own,
                               .recv = *all,
                               .count = bytes,
                               .dtype = TRM_UINT8,
                               .tag = v.name};
    return trm_comm_run(trmi_model_comm(model), &op, err);
}

/* Gathers all layerwise variables in their order; every rank takes part, only rank 0 fills
 * `part` (contract in gather.h). */
trm_status trmi_layerwise_gather(const trm_model *model, trmi_arena *arena,
                                 trm_checkpoint_part *part, trm_error *err) {
    trm_exec *exec = model->train.exec;
    int32_t total = trm_exec_variable_count(exec), size = trmi_model_size(model);
    trm_named_tensor *list;
    int64_t n = 0;
    TRMI_TRY(TRMI_NEW_IN(err, arena, list, (size_t)total * (size_t)size + 1,
                         "for a copy of what %d ranks keep to themselves", size));
    for (int32_t i = 0; i < total; i++) {
        if (!trmi_exec_is_layerwise(exec, i)) {
            continue;
        }
        char *all;
        TRMI_TRY(gather_one(model, i, arena, &all, err));
        /* rank 0's own values are in the part "model" */
        for (int32_t r = 1; r < size && trmi_model_rank(model) == 0; r++) {
            trm_variable v = trm_exec_variable(exec, i);
            trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
            t.data = all + r * trm_tensor_bytes(&t);
            const char *name = trmi_arena_printf(arena, "rank%d/%s", r, v.name);
            if (name == NULL) {
                return TRMI_NO_MEMORY(err, "for the name of '%s'", v.name);
            }
            list[n++] = (trm_named_tensor){.name = name, .tensor = t};
        }
    }
    *part = (trm_checkpoint_part){.name = part_name, .tensors = list, .count = n};
    return TRM_OK;
}

/* Checks that checkpoint and model agree on having layerwise parameters, and on the number of
 * ranks.
 *   errors  INVALID */
static trm_status check_layerwise(const trm_model *model, const trm_checkpoint *checkpoint,
                                  trm_error *err) {
    const trm_safetensors *part = trm_checkpoint_part_of(checkpoint, part_name);
    const char *where = trm_checkpoint_get_info(checkpoint)->path;
    int32_t then = trm_checkpoint_get_info(checkpoint)->world_size, now = trmi_model_size(model);
    bool own = trmi_has_layerwise(model) && now > 1;
    if (part != NULL && !own) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: checkpoint of a hybrid_parallel job of %d ranks; resume it with the same mode and "
            "as many ranks, or load the weights of rank 0 alone (load, --init)",
            where, then);
    }
    if (part == NULL && own) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: checkpoint of a job without layerwise parameters; begin with its weights (load, "
            "--init) instead of resuming it",
            where);
    }
    if (own && then != now) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: checkpoint of a hybrid_parallel job of %d ranks, this run has %d; resume "
            "it with as many ranks",
            where, then, now);
    }
    return TRM_OK;
}

/* Loads this rank's values from the part "layerwise". Rank 0 has loaded its own from the part
 * "model" already. */
trm_status trmi_layerwise_restore(trm_model *model, const trm_checkpoint *checkpoint,
                                  trm_error *err) {
    trm_exec *exec = model->train.exec;
    int32_t rank = trmi_model_rank(model);
    TRMI_TRY(check_layerwise(model, checkpoint, err));
    trmi_arena arena = {0};
    trm_status status = TRM_OK;
    for (int32_t i = 0; rank > 0 && status == TRM_OK && i < trm_exec_variable_count(exec); i++) {
        if (!trmi_exec_is_layerwise(exec, i)) {
            continue;
        }
        trm_variable v = trm_exec_variable(exec, i);
        trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        t.data = trmi_arena_alloc(&arena, (size_t)trm_tensor_bytes(&t));
        const char *name = trmi_arena_printf(&arena, "rank%d/%s", rank, v.name);
        status = t.data == NULL || name == NULL
                     ? TRMI_NO_MEMORY(err, "to load '%s'", v.name)
                     : trm_safetensors_read(trm_checkpoint_part_of(checkpoint, part_name), name, &t,
                                            err);
        if (status == TRM_OK) {
            trm_exec_write(exec, i, t.data);
        }
    }
    trmi_arena_free(&arena);
    return status;
}
