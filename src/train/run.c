/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a training run for the gradient sinks: reading, counting, recording (contracts in
 * gradient_sink.h). */
#include "train/gradient_sink.h"

#include "base/error.h"
#include "base/os.h"
#include "base/trace.h"

void trmi_run_record(const trmi_run *r, const char *category, const char *name, double begin) {
    trmi_trace_add(
        r->trace,
        &(trmi_trace_event){
            .category = category, .name = name, .begin = begin, .end = trmi_os_now(), .bytes = -1});
}

void trmi_run_waited(trmi_run *r, double since) {
    double seconds = trmi_os_now() - since;
    r->p.wait_seconds += seconds;
    r->p.data_seconds += seconds;
}

trm_status trmi_run_read(trmi_run *r, const trm_batch **batch, trm_error *err) {
    double before = trmi_os_now();
    TRMI_TRY(trmi_next_batch(r->options->data, batch, err));
    trmi_run_waited(r, before);
    trmi_run_record(r, "waiting", "batch", before);
    return TRM_OK;
}

trm_status trmi_run_use(trmi_run *r, int64_t epoch, int64_t index, int64_t samples,
                        trm_error *err) {
    if (epoch != r->model->epoch || index != r->batch) {
        return TRMI_FAIL(
            err, TRM_INTERNAL, "the dataset gave batch %lld of epoch %lld, expected %lld of %lld",
            (long long)index, (long long)epoch, (long long)r->batch, (long long)r->model->epoch);
    }
    r->batch++;
    r->p.step_samples += samples * trmi_model_shares(r->model);
    return TRM_OK;
}

trm_status trmi_run_diverged(const trmi_run *r, trm_error *err) {
    return TRMI_FAIL(err, TRM_DIVERGED,
                     "epoch %lld, step %lld: the loss is %g; a lower learning rate or gradient "
                     "clipping may help",
                     (long long)r->p.epoch, (long long)r->p.step, (double)r->p.loss);
}
