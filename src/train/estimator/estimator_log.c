/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the progress of training in the lines of TensorFlow's estimator, which tools and users
 * of it parse. */
#include "train/estimator/estimator.h"

#include "train/callbacks/callback.h"
#include "train/model.h"

#include "base/os.h"

/* Step and time of the latest line. */
typedef struct step_log {
    trm_estimator *estimator;
    uint64_t step;
    double time;
} step_log;

/* Notes step and time from which the first rate is counted. */
static trm_status log_begin(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    step_log *l = context;
    l->step = p->global_step;
    l->time = trmi_os_now();
    return TRM_OK;
}

/* Prints loss and speed when the global step has passed a multiple of log_step_count_steps, and
 * at step 1. All workers advance the global step, so that it need not equal a multiple. */
static trm_status log_step(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    step_log *l = context;
    uint64_t every = (uint64_t)l->estimator->config.log_step_count_steps;
    if (p->global_step / every == l->step / every && p->global_step != 1) {
        return TRM_OK;
    }
    double now = trmi_os_now(), seconds = now - l->time;
    trmi_estimator_say(l->estimator, "loss = %.8g, step = %llu (%.3f sec)", (double)p->loss,
                       (unsigned long long)p->global_step, seconds);
    if (p->global_step > l->step && seconds > 0 && p->global_step != 1) {
        trmi_estimator_say(l->estimator, "global_step/sec: %.6g",
                           (double)(p->global_step - l->step) / seconds);
    }
    l->step = p->global_step;
    l->time = now;
    return TRM_OK;
}

trm_callback trmi_step_log(trm_estimator *e) {
    step_log *l = trmi_alloc(sizeof *l);
    if (l == NULL) {
        return trmi_callback_no_memory();
    }
    l->estimator = e;
    return (trm_callback){
        .on_begin = log_begin, .on_step_end = log_step, .destroy = trmi_free, .context = l};
}
