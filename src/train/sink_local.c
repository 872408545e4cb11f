/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient sink of parameters in this process: batches come from the dataset, gradients go
 * to the executor's optimiser. With many ranks each rank has this sink, and trm_exec_update
 * applies gradients that are reduced already. */
#include "train/gradient_sink.h"

#include "base/error.h"

/* Takes every model: the last entry of the table of sinks. */
static bool takes_all(const trm_model_options *options) {
    (void)options;
    return true;
}

/* Rejects a client in the options: a model with servers that reaches this sink is one for
 * evaluation only. */
static trm_status check_no_client(const trm_model_options *o, trm_error *err) {
    return o->ps.client == NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "a model for evaluation only needs no servers");
}

/* The functions of the sink's table (contracts in gradient_sink.h). */
static trm_status seek_batch(trmi_run *r, trm_error *err) {
    return trm_dataset_seek(r->options->data, r->model->epoch, r->batch, err);
}

static bool epoch_is_over(const trmi_run *r) {
    return r->model->epoch_step >= r->progress.epoch_steps;
}

/* Reads the batch that is due and feeds it to the training program. */
static trm_status begin_batch(trmi_run *r, trm_error *err) {
    const trm_batch *batch;
    TRMI_TRY(trmi_run_read(r, &batch, err));
    TRMI_TRY(trmi_run_use(r, batch->epoch, batch->index, batch->samples, err));
    return trmi_feed(&r->model->train, batch, true, err);
}

static trm_status update_parameters(trmi_run *r, trm_error *err) {
    return trm_exec_update(r->model->train.exec, r->progress.learning_rate, err);
}

/* Skips the batches at the end of an epoch that are too few for a step, and begins the next
 * epoch at its first batch. */
static trm_status next_epoch(trmi_run *r, trm_error *err) {
    int64_t left = trm_dataset_epoch_batches(r->options->data) - r->batch;
    r->batch = 0;
    return left > 0 ? trm_dataset_seek(r->options->data, r->model->epoch, 0, err) : TRM_OK;
}

static uint64_t steps_done(const trmi_run *r) { return trm_exec_step(r->model->train.exec); }

const trmi_gradient_sink trmi_sink_local = {
    .name = "local",
    .takes = takes_all,
    .check = check_no_client,
    .seek = seek_batch,
    .epoch_is_over = epoch_is_over,
    .begin = begin_batch,
    .push = update_parameters,
    .next_epoch = next_epoch,
    .steps_done = steps_done,
};
