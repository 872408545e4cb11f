/* SPDX-License-Identifier: Apache-2.0 */
/* Creates an estimator from a configuration and runs the role of its process
 * (trireme/train.h). */
#include "train/estimator/estimator.h"

#include "train/model.h"

#include "base/arguments.h"
#include "base/error.h"

/* Contract in trireme/train.h. Nothing is started: roles begin in trm_train_and_evaluate. */
trm_status trm_estimator_create(trm_model_fn model_fn, void *params, const trm_run_config *config,
                                trm_estimator **out, trm_error *err) {
    TRMI_NEED(err, (const void *)(uintptr_t)model_fn, config, out);
    trm_estimator *e;
    TRMI_TRY(TRMI_NEW(err, e, 1, "for an estimator"));
    e->model_fn = model_fn;
    e->params = params;
    trm_status status = trmi_estimator_take_config(e, config, err);
    if (status != TRM_OK) {
        trm_estimator_destroy(e);
        return status;
    }
    *out = e;
    return TRM_OK;
}

void trm_estimator_destroy(trm_estimator *e) {
    if (e != NULL) {
        trmi_text_free(&e->job);
        trmi_arena_free(&e->arena);
        trmi_free(e);
    }
}

/* Sets the stop flag, and that of the model that runs now. Safe in a signal handler. */
void trm_estimator_request_stop(trm_estimator *e) {
    TRMI_NEED_OR(, NULL, e);
    atomic_store(&e->stop, 1);
    trm_model *model = atomic_load(&e->model);
    if (model != NULL) {
        trm_model_request_stop(model);
    }
}

/* ---- dispatch -------------------------------------------------------------------------------- */

/* Checks TrainSpec and EvalSpec as far as the role of this process needs them.
 *   errors  INVALID */
static trm_status check_specs(const trm_estimator *e, const trm_train_spec *train,
                              const trm_eval_spec *eval, trm_error *err) {
    if (e->has_roles && e->role == TRM_ROLE_PS) {
        return TRM_OK;
    }
    if (train == NULL || train->input_fn == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "training needs a TrainSpec with an input_fn");
    }
    if (train->max_steps < 0 || train->epochs < 0 ||
        (train->max_steps == 0 && train->epochs == 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TrainSpec: max_steps %lld, epochs %lld: one of them greater than 0 "
                         "expected",
                         (long long)train->max_steps, (long long)train->epochs);
    }
    if (eval != NULL && eval->input_fn == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "EvalSpec: an input_fn expected");
    }
    if (eval == NULL && e->has_roles && e->role == TRM_ROLE_EVALUATOR) {
        return TRMI_FAIL(err, TRM_INVALID, "an evaluator needs an EvalSpec");
    }
    return trmi_exporters_check(e, eval, err);
}

/* Dispatches by role. *out is written on OK and CANCELLED: a stopped job has a result too. */
trm_status trm_train_and_evaluate(trm_estimator *estimator, const trm_train_spec *train,
                                  const trm_eval_spec *eval, trm_job_result *out, trm_error *err) {
    TRMI_NEED(err, estimator);
    trm_job_result result = {.role = estimator->has_roles ? estimator->role : TRM_ROLE_WORKER};
    TRMI_TRY(check_specs(estimator, train, eval, err));
    if (estimator->has_roles && estimator->is_chief && trmi_estimator_stopped(estimator)) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request before it began");
    }
    trm_status status = !estimator->has_roles ? trmi_run_local(estimator, train, eval, &result, err)
                        : estimator->role == TRM_ROLE_PS ? trmi_run_server(estimator, err)
                        : estimator->role == TRM_ROLE_EVALUATOR
                            ? trmi_run_evaluator(estimator, train, eval, &result, err)
                            : trmi_run_trainer(estimator, train, eval, &result, err);
    atomic_store(&estimator->model, NULL);
    if ((status == TRM_OK || status == TRM_CANCELLED) && out != NULL) {
        *out = result;
    }
    return status;
}
