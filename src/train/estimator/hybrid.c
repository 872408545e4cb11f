/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps, chooses and broadcasts the dense parameters of hybrid training (life cycle drawn in
 * hybrid.h), and sets the batch with which workers begin together.
 *
 * Tables are on servers, which know their step; dense parameters are with the workers, any of which
 * may die. So a worker whose life ends by the death of another one keeps its dense parameters, and
 * when all begin again, the worker whose copy is nearest to the servers' step broadcasts it.
 * Without a copy rank 0 offers the newest checkpoint.
 *
 * All functions marked collective are called by every worker in the same order. */
#include "train/estimator/hybrid.h"

#include "train/export/gather.h"
#include "train/estimator/dealt.h"
#include "train/estimator/remote.h"

#include "base/error.h"
#include "base/log.h"

#include <string.h>

/* Returns whether the variable is dense: the rows of the current batch ("table#rows0") belong to
 * the servers. */
static bool is_kept(const trm_variable *v) { return strstr(v->name, "#rows") == NULL; }

/* Returns the bytes of a variable. */
static int64_t bytes_of(const trm_variable *v) {
    trm_tensor t = {.dtype = v->dtype, .shape = v->shape};
    return trm_tensor_bytes(&t);
}

void trmi_dense_free(trmi_dense *d) {
    trmi_arena_free(&d->arena);
    *d = (trmi_dense){0};
}

/* Contract in hybrid.h. Without memory nothing is kept; the worker then has no parameters to
 * offer. */
void trmi_dense_keep(trmi_dense *d, const trm_model *model) {
    const trm_exec *exec = model->train.exec;
    trmi_dense_free(d);
    int32_t count = trm_exec_variable_count(exec);
    void **values = trmi_arena_alloc(&d->arena, (size_t)(count + 1) * sizeof *values);
    for (int32_t i = 0; values != NULL && i < count; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (!is_kept(&v)) {
            continue;
        }
        values[i] = trmi_arena_alloc(&d->arena, (size_t)bytes_of(&v) + 1);
        if (values[i] == NULL) {
            values = NULL;
            break;
        }
        trm_exec_read(exec, i, values[i]);
    }
    if (values == NULL) {
        trmi_dense_free(d);
        return;
    }
    d->values = values;
    d->count = count;
    d->step = trm_exec_step(exec);
}

/* Writes the kept copies into `exec`; returns false if there are none, or if they are of another
 * program. */
static bool put_back(const trmi_dense *d, trm_exec *exec) {
    if (d == NULL || d->values == NULL || d->count != trm_exec_variable_count(exec)) {
        return false;
    }
    for (int32_t i = 0; i < d->count; i++) {
        if (d->values[i] != NULL) {
            trm_exec_write(exec, i, d->values[i]);
        }
    }
    return true;
}

/* ---- choosing the source of the dense parameters --------------------------------------------- */

/* Dense parameters that one worker can offer, and their step. */
typedef struct holding {
    bool any;
    int64_t step;
} holding;

/* Returns the kept copies that are nearest to step `position` of the servers. */
static const trmi_dense *nearest_copies(const trmi_dense kept[TRMI_DENSE_KEPT], int64_t position) {
    const trmi_dense *best = &kept[0];
    for (int i = 1; i < TRMI_DENSE_KEPT; i++) {
        best = kept[i].values != NULL && (int64_t)kept[i].step == position ? &kept[i] : best;
    }
    return best;
}

/* Loads what this worker can offer into its model: its kept copies, or on rank 0 the newest
 * checkpoint. */
static trm_status find_own(trm_model *model, const trmi_dense *kept, const char *dir, holding *own,
                           trm_error *err) {
    *own = (holding){0};
    if (put_back(kept, model->train.exec)) {
        *own = (holding){true, (int64_t)kept->step};
    } else if (trmi_model_rank(model) == 0 && dir != NULL) {
        TRMI_TRY(trmi_model_take_newest(model, dir, &own->step, err));
        own->any = own->step >= 0;
    }
    return TRM_OK;
}

/* Returns the number of batches that this worker has finished; INT64_MAX: it is new in a job that
 * is continued with more workers, and begins where the others are. */
static int64_t own_position(const trm_model *model) {
    const trmi_dealt *d = model->dealt;
    int64_t position = trmi_remote_position(model->remote);
    if (position > 0 || d == NULL || d->count == 0) {
        return position;
    }
    int64_t workers = d->list[d->count - 1].workers;
    return workers == d->workers               ? trmi_dealt_newcomer(d, 0)
           : trmi_model_rank(model) >= workers ? INT64_MAX
                                               : 0;
}

/* Replaces *value by the minimum over the ranks. Collective. */
static trm_status reduce_least(const trm_model *model, int64_t *value, trm_error *err) {
    trm_comm *comm = trmi_model_comm(model);
    return comm == NULL ? TRM_OK
                        : trm_comm_allreduce(comm, value, 1, TRM_INT64, TRM_REDUCTION_MIN, err);
}

/* Sets *rank to the rank whose parameters are nearest to step `position` of the servers (-1: no
 * rank has any), and *step to their step. Distance and rank are packed into one integer, so that
 * a single minimum finds both; ties go to the lower rank. Collective. */
static trm_status choose_rank(const trm_model *model, const holding *own, int64_t position,
                              int32_t *rank, int64_t *step, trm_error *err) {
    const int64_t size = trmi_model_size(model);
    int64_t off = own->step > position ? own->step - position : position - own->step;
    int64_t best = own->any ? off * size + trmi_model_rank(model) : INT64_MAX;
    TRMI_TRY(reduce_least(model, &best, err));
    *rank = best == INT64_MAX ? -1 : (int32_t)(best % size);
    *step = *rank == trmi_model_rank(model) ? own->step : INT64_MAX;
    return *rank < 0 ? TRM_OK : reduce_least(model, step, err);
}

/* Broadcasts all dense variables from rank `from`, one at a time, so that only one copy is in
 * memory. Collective. */
static trm_status broadcast_dense(const trm_model *model, int32_t from, trm_error *err) {
    trm_comm *comm = trmi_model_comm(model);
    trm_exec *exec = model->train.exec;
    for (int32_t i = 0; comm != NULL && i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (!is_kept(&v)) {
            continue;
        }
        trmi_arena arena = {0};
        void *value = trmi_arena_alloc(&arena, (size_t)bytes_of(&v) + 1);
        trm_status status = TRM_OK;
        if (value == NULL) {
            status = TRMI_NO_MEMORY(err, "for a copy of %s", v.name);
        } else {
            trm_exec_read(exec, i, value);
            status = trm_comm_broadcast(comm, value, bytes_of(&v), TRM_UINT8, from, err);
        }
        if (status == TRM_OK && from != trmi_model_rank(model)) {
            trm_exec_write(exec, i, value);
        }
        trmi_arena_free(&arena);
        TRMI_TRY(status);
    }
    return TRM_OK;
}

/* Contract in hybrid.h. Collective. Order: the servers' position, what this worker has, the
 * nearest parameters of all workers, the broadcast. */
trm_status trmi_dense_begin(trm_model *model, const trmi_dense kept[TRMI_DENSE_KEPT],
                            const char *dir, trm_error *err) {
    holding own;
    int32_t from;
    int64_t step, position = own_position(model);
    TRMI_TRY(reduce_least(model, &position, err));
    trm_status status = find_own(model, nearest_copies(kept, position), dir, &own, err);
    TRMI_TRY(trmi_model_agree(model, status, 0, "dense parameters", err));
    TRMI_TRY(choose_rank(model, &own, position, &from, &step, err));
    if (from >= 0) {
        TRMI_TRY(broadcast_dense(model, from, err));
    }
    /* dense parameters and tables would be of different steps */
    if (trmi_model_rank(model) == 0 && (from < 0 ? position > 0 : step < position)) {
        trmi_log(TRM_LOG_WARN, "train",
                 "no worker that lives has the dense parameters of step %lld: they go back to "
                 "%s%lld, the tables do not",
                 (long long)position,
                 from < 0 ? "their initial values, step " : "the checkpoint of step ",
                 from < 0 ? 0 : (long long)step);
    }
    /* If the dense parameters are one step ahead of the tables, they contain that batch already:
     * the step is kept, and push_rows (sink_servers.c) then pushes only the rows that a dead
     * worker could not push. */
    trm_exec_set_step(model->train.exec,
                      (uint64_t)(from >= 0 && step > position ? step : position));
    trmi_remote_begin_at(model->remote, position);
    return TRM_OK;
}

/* Contract in hybrid.h. Servers drop a push that they have. */
trm_status trmi_workers_begin(trm_model *model, trm_error *err) {
    int64_t position = own_position(model);
    TRMI_TRY(reduce_least(model, &position, err));
    trm_exec_set_step(model->train.exec, (uint64_t)position);
    trmi_remote_begin_at(model->remote, position);
    return TRM_OK;
}
