/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient sink of parameters in this process: the executor's optimiser. */
#include "train/gradient_sink.h"

#include "base/error.h"

static bool takes(const trm_model_options *options) {
    (void)options;
    return true;
}

static trm_status check(const trm_model_options *o, trm_error *err) {
    return o->ps.client == NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "a model for evaluation only needs no servers");
}

static trm_status seek(trmi_run *r, trm_error *err) {
    return trm_dataset_seek(r->options->data, r->model->epoch, r->batch, err);
}

static bool epoch_is_over(const trmi_run *r) { return r->model->epoch_step >= r->p.epoch_steps; }

static trm_status begin(trmi_run *r, trm_error *err) {
    const trm_batch *batch;
    TRMI_TRY(trmi_run_read(r, &batch, err));
    TRMI_TRY(trmi_run_use(r, batch->epoch, batch->index, batch->samples, err));
    return trmi_feed(&r->model->train, batch, err);
}

static trm_status push(trmi_run *r, trm_error *err) {
    return trm_exec_update(r->model->train.exec, r->p.learning_rate, err);
}

/* Batches that fill no step are left out; the next epoch begins at its first batch. */
static trm_status next_epoch(trmi_run *r, trm_error *err) {
    int64_t left = trm_dataset_epoch_batches(r->options->data) - r->batch;
    r->batch = 0;
    return left > 0 ? trm_dataset_seek(r->options->data, r->model->epoch, 0, err) : TRM_OK;
}

static uint64_t steps_done(const trmi_run *r) { return trm_exec_step(r->model->train.exec); }

const trmi_gradient_sink trmi_sink_local = {
    .name = "local",
    .takes = takes,
    .check = check,
    .seek = seek,
    .epoch_is_over = epoch_is_over,
    .begin = begin,
    .push = push,
    .next_epoch = next_epoch,
    .steps_done = steps_done,
};
