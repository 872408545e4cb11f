/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient sinks on parameter servers. All three use remote.c: a batch is staged (its ids go
 * out, its rows and the dense variables come back), begun, and its gradients are pushed.
 *
 *        servers   all parameters are on servers; this worker reads its shard of the data
 *        leases    the same, and the servers lend the samples: an epoch ends with the first batch lent
 *                  of the next one
 *        hybrid    only tables are on servers; dense parameters belong to the executor, reduced over workers */
#include "train/estimator/dealt.h"
#include "train/estimator/remote.h"
#include "train/gradient_sink.h"

#include "base/error.h"
#include "base/os.h"
#include "base/trace.h"
#include "ps/client/life.h"

#include <math.h>
#include <unistd.h>

enum { NEAR_THE_END = 16 }; /* updates before the step limit, in which answers are awaited */

/* ---- a model --------------------------------------------------------------------------------- */

/* Returns whether the model trains with servers. */
static bool on_servers(const trm_model_options *o) {
    return o->ps.client != NULL && !o->evaluation_only;
}
/* Return whether a sink takes a model with these options. */
static bool takes_hybrid(const trm_model_options *o) { return on_servers(o) && o->ps.tables_only; }
static bool takes_leases(const trm_model_options *o) {
    return on_servers(o) && o->ps.lease_batches > 0;
}

/* Rejects strict determinism where the servers do not add all workers' gradients of a step. */
static trm_status check_servers(const trm_model_options *o, trm_error *err) {
    if (o->exec.parallel.block == 0) {
        return TRM_OK;
    }
    if (trmi_client_mode(o->ps.client) != TRM_PS_SYNC) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism with parameter servers needs synchronous ones (--mode "
                         "sync): asynchronous servers apply pushes as they arrive, so that bits "
                         "depend on the workers' timing");
    }
    return o->ps.lease_batches == 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "strict determinism: servers that lend samples change which samples a "
                           "step has; leave --lend as it is, and use no backup workers");
}

/* trmi_gradient_sink.prepare: takes the tables out of the graph. */
static trm_status prepare_servers(trm_model *model, trm_graph *graph, trm_error *err) {
    return trmi_remote_create(&model->options, graph, &model->remote, err);
}

/* The functions of the sinks' tables (contracts in gradient_sink.h). */
static trm_status bind_servers(trm_model *model, trm_error *err) {
    return trmi_remote_bind(model->remote, &model->train, err);
}

static void destroy_servers(trm_model *model) { trmi_remote_destroy(model->remote); }

static bool is_late(const trm_model *model) { return trmi_remote_is_late(model->remote); }

static bool table_at(const trm_model *model, int32_t index, const char **name, int64_t size[2]) {
    if (model->remote == NULL || index >= trmi_remote_table_count(model->remote)) {
        return false;
    }
    const trmi_remote_table table = trmi_remote_table_at(model->remote, index);
    *name = table.name;
    size[0] = table.rows;
    size[1] = table.width;
    return true;
}

/* ---- position in the data -------------------------------------------------------------------- */

/* Sets the model's position from the number of batches that the servers have from this worker,
 * which includes batches from before a restart. In a job that was continued with other workers
 * the position is computed by stretches (dealt.h). */
static trm_status find_position(trmi_run *r, trm_error *err) {
    trm_model *model = r->model;
    int64_t done = trmi_remote_position(model->remote);
    trmi_stretch s = {.batches = r->progress.epoch_steps};
    if (model->dealt != NULL) {
        int64_t joins = trmi_dealt_newcomer(model->dealt, done);
        if (joins > done) {
            trmi_remote_begin_at(model->remote, done = joins);
        }
        TRMI_TRY(
            trmi_dealt_begin(model->dealt, r->options->data, model->train.batch, done, &s, err));
    }
    trmi_stretch_at(&s, done, &model->epoch, &model->epoch_step);
    model->epoch_samples =
        model->epoch_step * trmi_accumulate(model) * model->train.batch * trmi_model_shares(model);
    r->ahead = model->epoch * s.batches + model->epoch_step - done;
    return TRM_OK;
}

/* Moves the dataset to the next batch to read: one further if a batch is already staged. */
static trm_status seek_batch(trmi_run *r, trm_error *err) {
    return trm_dataset_seek(r->options->data, r->model->epoch,
                            r->batch + trmi_remote_is_staged(r->model->remote), err);
}

static bool epoch_is_over(const trmi_run *r) {
    return r->model->epoch_step >= r->progress.epoch_steps;
}

static trm_status next_epoch(trmi_run *r, trm_error *err) {
    int64_t left = trm_dataset_epoch_batches(r->options->data) - r->batch;
    r->batch = 0;
    return left > 0 ? trm_dataset_seek(r->options->data, r->model->epoch, 0, err) : TRM_OK;
}

static uint64_t steps_done(const trmi_run *r) { return trm_exec_step(r->model->train.exec); }

/* Returns the step of the tables, by the position. After another worker's death the dense
 * parameters may be one step ahead (hybrid.c), so the executor's step is not used. */
static uint64_t steps_of_tables(const trmi_run *r) {
    return (uint64_t)(r->model->epoch * r->progress.epoch_steps + r->model->epoch_step - r->ahead);
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* Returns whether the current step is the last one of this call: no batch is staged after it. */
static bool is_last_step(const trmi_run *r) {
    int64_t steps = r->options->until_step, epochs = r->options->until_epoch;
    return (steps > 0 && r->progress.global_step + 1 >= (uint64_t)steps) ||
           (epochs > 0 && r->model->epoch + 1 >= epochs &&
            r->progress.step >= r->progress.epoch_steps);
}

/* Reads the next batch of the dataset and stages it. */
static trm_status stage_next(trmi_run *r, trm_error *err) {
    const trm_batch *batch;
    TRMI_TRY(trmi_run_read(r, &batch, err));
    return trmi_remote_stage(r->model->remote, batch, NULL, err);
}

/* Returns whether to stage the next batch while the current one is computed. */
static bool goes_ahead(const trmi_run *r) {
    return trmi_remote_reads_ahead(r->model->remote) && !is_last_step(r) &&
           !atomic_load(&r->model->stop);
}

/* Waits for the rows and variables of the staged batch and feeds the program. */
static trm_status begin_staged(const trmi_run *r, trmi_staged_batch *staged, trm_error *err) {
    double before = trmi_os_now();
    TRMI_TRY(trmi_remote_begin(r->model->remote, staged, err));
    trmi_trace_add_since(r->trace, "waiting", "rows and variables of the servers", before);
    return TRM_OK;
}

/* Begins the batch that is due and stages the one after it, so that its pull overlaps with the
 * computation. */
static trm_status begin_batch(trmi_run *r, trm_error *err) {
    trmi_remote *remote = r->model->remote;
    trmi_staged_batch staged;
    if (!trmi_remote_is_staged(remote)) {
        TRMI_TRY(stage_next(r, err));
    }
    TRMI_TRY(begin_staged(r, &staged, err));
    TRMI_TRY(trmi_run_use(r, staged.epoch, staged.index, staged.samples, err));
    return goes_ahead(r) ? stage_next(r, err) : TRM_OK;
}

/* Pushes the gradients. Near the step limit every answer is awaited: answers carry the global
 * step, and a worker that did not know of the other workers' updates would make too many. */
static trm_status push_gradients(trmi_run *r, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    trmi_remote *remote = r->model->remote;
    if (!isfinite(r->progress.loss)) {
        return trmi_divergence_fail(&r->progress, err); /* must not reach the servers */
    }
    TRMI_TRY(trmi_remote_push(remote, r->progress.learning_rate, err));
    int64_t limit = r->options->until_step;
    if (limit > 0 && trmi_remote_step(remote) + NEAR_THE_END >= (uint64_t)limit) {
        TRMI_TRY(trmi_remote_flush(remote, err));
    }
    trm_exec_set_step(exec, trmi_remote_step(remote));
    return TRM_OK;
}

static trm_status flush_pushes(trmi_run *r, trm_error *err) {
    return trmi_remote_flush(r->model->remote, err);
}

/* Strict hybrid: pushes the rows and waits until the servers have applied the step, then updates
 * the dense parameters: a worker that dies before its push computes the batch again, from
 * parameters that must not contain it. A worker whose wait fails does not know whether the step was
 * applied: it keeps the parameters before and after the update (run_lives in estimator_roles.c). */
static trm_status push_rows_first(trmi_run *r, trm_error *err) {
    trm_model *model = r->model;
    model->owed_rate = r->progress.learning_rate;
    TRMI_TRY(trmi_remote_push(model->remote, r->progress.learning_rate, err));
    TRMI_TRY(trmi_remote_flush(model->remote, err));
    model->owed_rate = 0;
    return trm_exec_update(model->train.exec, r->progress.learning_rate, err);
}

/* Hybrid: updates the dense parameters locally, then pushes the tables' rows. If the dense
 * parameters already contain this batch (this worker or another one died between the two), only
 * the rows are pushed. */
static trm_status push_rows(trmi_run *r, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    if (!isfinite(r->progress.loss)) {
        return trmi_divergence_fail(&r->progress, err);
    }
    if (r->model->train.blocks > 0) {
        return push_rows_first(r, err);
    }
    bool had = trm_exec_step(exec) > steps_of_tables(r);
    TRMI_TRY(had ? TRM_OK : trm_exec_update(exec, r->progress.learning_rate, err));
    return trmi_remote_push(r->model->remote, r->progress.learning_rate, err);
}

/* ---- samples that servers lend --------------------------------------------------------------- */

/* Stages the next lent batch. While other workers hold the last leases of an epoch, the servers
 * answer PENDING, because a lease of a dead worker would be lent again. With `wait` the request
 * is repeated every 10 ms until that is decided; without, nothing is staged. Sets used_up when
 * all samples are used. */
static trm_status stage_lent(trmi_run *r, bool wait, trm_error *err) {
    double before = trmi_os_now();
    trm_status status;
    while ((status = trmi_remote_stage_lent(r->model->remote, r->options->data, err)) ==
               TRM_PENDING &&
           wait && !atomic_load(&r->model->stop)) {
        usleep(10000);
    }
    trmi_run_waited(r, before);
    r->used_up = status == TRM_END;
    return status == TRM_END || status == TRM_PENDING ? TRM_OK : status;
}

/* Stages a lent batch if none is staged. */
static trm_status stage_first_lent(trmi_run *r, trm_error *err) {
    return trmi_remote_is_staged(r->model->remote) ? TRM_OK : stage_lent(r, true, err);
}

/* Sends the servers the samples to lend and stages the first batch; its epoch is the run's
 * position. */
static trm_status seek_lent(trmi_run *r, trm_error *err) {
    trmi_remote *remote = r->model->remote;
    trmi_remote_lend(remote, r->options->data, r->options->until_epoch, r->options->until_step);
    bool enough = r->options->until_step > 0 && steps_done(r) >= (uint64_t)r->options->until_step;
    if (!enough && !atomic_load(&r->model->stop)) {
        TRMI_TRY(stage_first_lent(r, err));
    }
    r->model->epoch =
        trmi_remote_is_staged(remote) ? trmi_remote_staged_epoch(remote) : r->model->epoch;
    return TRM_OK;
}

/* Returns whether the staged batch belongs to another epoch, or no samples are left. */
static bool lent_epoch_is_over(const trmi_run *r) {
    const trmi_remote *remote = r->model->remote;
    return r->used_up ||
           (trmi_remote_is_staged(remote) && trmi_remote_staged_epoch(remote) != r->model->epoch);
}

/* Begins the staged batch and tries to stage the next one. That does not wait for other workers,
 * because they may be waiting for the batch that is about to be computed here. */
static trm_status begin_lent(trmi_run *r, trm_error *err) {
    trmi_staged_batch staged;
    TRMI_TRY(stage_first_lent(r, err));
    TRMI_TRY(begin_staged(r, &staged, err));
    r->batch = staged.index; /* the servers decide the order: the lent batch is due */
    TRMI_TRY(trmi_run_use(r, staged.epoch, staged.index, staged.samples, err));
    return goes_ahead(r) ? stage_lent(r, false, err) : TRM_OK;
}

/* Nothing to do: leases carry their epoch. */
static trm_status next_lent_epoch(trmi_run *r, trm_error *err) {
    (void)r;
    (void)err;
    return TRM_OK;
}

const trmi_gradient_sink trmi_sink_servers = {
    .name = "servers",
    .updates = true,
    .others_suffer = true,
    .has_own_data = true,
    .takes = on_servers,
    .check = check_servers,
    .prepare = prepare_servers,
    .bind = bind_servers,
    .destroy = destroy_servers,
    .table = table_at,
    .find = find_position,
    .seek = seek_batch,
    .epoch_is_over = epoch_is_over,
    .begin = begin_batch,
    .push = push_gradients,
    .flush = flush_pushes,
    .next_epoch = next_epoch,
    .steps_done = steps_done,
    .is_late = is_late,
};

const trmi_gradient_sink trmi_sink_leases = {
    .name = "leases",
    .updates = true,
    .others_suffer = true,
    .has_own_data = true,
    .takes = takes_leases,
    .check = check_servers,
    .prepare = prepare_servers,
    .bind = bind_servers,
    .destroy = destroy_servers,
    .table = table_at,
    .seek = seek_lent,
    .stage = stage_first_lent,
    .epoch_is_over = lent_epoch_is_over,
    .begin = begin_lent,
    .push = push_gradients,
    .flush = flush_pushes,
    .next_epoch = next_lent_epoch,
    .steps_done = steps_done,
    .is_late = is_late,
};

const trmi_gradient_sink trmi_sink_hybrid = {
    .name = "hybrid",
    .others_suffer = true,
    .has_own_data = true,
    .takes = takes_hybrid,
    .check = check_servers,
    .prepare = prepare_servers,
    .bind = bind_servers,
    .destroy = destroy_servers,
    .table = table_at,
    .find = find_position,
    .seek = seek_batch,
    .epoch_is_over = epoch_is_over,
    .begin = begin_batch,
    .push = push_rows,
    .flush = flush_pushes,
    .next_epoch = next_epoch,
    .steps_done = steps_of_tables,
    .is_late = is_late,
};
