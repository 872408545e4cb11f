/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/estimator.h: the roles' common ground.
 *
 *     model_dir/  checkpoint, ckpt-100/ ...   the chief's: weights, for evaluation and export
 *                 ps/                         the servers': tables, slots, logs; what a restart needs
 *                 job.json                    {"state": "running" | "done" | "failed", ..., "dealt": who had which samples (dealt.h)}
 *                 events.out.tfevents.*       of the chief;  eval/events...  of the evaluator
 *                 export/NAME/                of the EvalSpec's exporters
 */
#ifndef TRMI_TRAIN_ESTIMATOR_H
#define TRMI_TRAIN_ESTIMATOR_H

#include "trireme/estimator.h"

#include "base/memory.h"
#include "train/estimator/dealt.h"

#include <stdatomic.h>

struct trm_estimator {
    trm_model_fn model_fn;
    void *params;
    trm_run_config config; /* strings are copies; defaults filled in */
    trm_ps_strategy strategy;
    uint8_t token[32];
    trmi_arena arena;
    bool has_roles;
    trm_role role;
    int32_t trainers, trainer; /* chief and workers together; which of them, -1 = none */
    bool is_chief, has_evaluator;
    bool acts; /* as the chief, now */
    int32_t servers;
    size_t ring_bytes; /* of a worker's connections */
    trm_comm *workers; /* hybrid: of this life; NULL = they have not met */
    trmi_dealt dealt;  /* of job.json, and since; where samples are dealt */
    trmi_text job;     /* of job.json, too: what makes this job (train/job.h); empty before */
    double over_since; /* the job, as far as this process has seen; 0 = it is not */
    _Atomic int stop;
    _Atomic(trm_model *) model; /* that trains or evaluates now */
};

/* estimator_config.c */
/* Copies, checks as a whole, and fills in the defaults.   errors INVALID naming the field, NOMEM */
trm_status trmi_estimator_take_config(trm_estimator *e, const trm_run_config *config,
                                      trm_error *err);
trm_status trmi_estimator_precision(const trm_run_config *c, trm_precision *out, trm_error *err);

/* estimator_common.c */
/* The options of a model for this mode: model_fn's, with the configuration's own.   error of model_fn
 */
trm_status trmi_estimator_model(trm_estimator *e, trm_run_mode mode, trm_dataset *data,
                                trm_model_options *out, trm_error *err);
trm_status trmi_estimator_data(const trm_estimator *e, trm_run_mode mode, trm_input_fn input_fn,
                               void *params, trm_dataset **out, trm_error *err);
void trmi_estimator_say(const trm_estimator *e, const char *format, ...) TRM_PRINTF(2, 3);
/* Do the servers say who reads what? */
bool trmi_estimator_lends(const trm_estimator *e);
/* Are they dealt to workers that keep step? */
bool trmi_estimator_deals(const trm_estimator *e);
bool trmi_estimator_stopped(const trm_estimator *e);
/* Sleeps, but not past a request to stop. */
void trmi_estimator_sleep(const trm_estimator *e, double seconds);
/* Folder of the servers, "" when nothing is saved. */
void trmi_estimator_ps_folder(const trm_estimator *e, char *path, size_t size);

/* estimator_roles.c */
trm_status trmi_run_trainer(trm_estimator *e, const trm_train_spec *train,
                            const trm_eval_spec *eval, trm_job_result *out, trm_error *err);
trm_status trmi_run_server(trm_estimator *e, trm_error *err);

/* estimator_eval.c */
trm_status trmi_run_evaluator(trm_estimator *e, const trm_train_spec *train,
                              const trm_eval_spec *eval, trm_job_result *out, trm_error *err);
trm_status trmi_run_local(trm_estimator *e, const trm_train_spec *train, const trm_eval_spec *eval,
                          trm_job_result *out, trm_error *err);
/* Evaluates the newest checkpoint, once. TRM_END when there is none. */
trm_status trmi_evaluate_latest(trm_estimator *e, const trm_eval_spec *eval, trm_job_result *out,
                                trm_error *err);

/* estimator_export.c. Exporters of the list. */
int32_t trmi_exporter_count(const trm_eval_spec *eval);
trm_status trmi_exporters_check(const trm_estimator *e, const trm_eval_spec *eval, trm_error *err);
/* Those that follow an evaluation, or (`last`) those that follow the last one. `model` is one for
 * evaluation, with the weights of `step`. */
trm_status trmi_export(const trm_estimator *e, const trm_eval_spec *eval, bool last,
                       trm_model *model, uint64_t step, const trm_evaluation *v, trm_error *err);

/* estimator_chief.c */
typedef struct trmi_duty {
    trm_estimator *estimator;
    trm_ps_client *client;
    bool mine;
    double asked, lease_seconds;
} trmi_duty;
/* May another worker do the chief's work when that dies? */
bool trmi_duty_is_shared(const trm_estimator *e);
/* Finds out whose the chief's work is, if that was not asked lately or `now`.   errors  those of trm_ps_chief_ask
 */
trm_status trmi_duty_ask(trmi_duty *d, bool now, trm_error *err);
/* This worker has trained: waits for the end of the job (TRM_END), or until the chief's work is its
 * own (TRM_OK).
 *   errors  PEER, TIMEOUT: server 0 has been away for too long */
trm_status trmi_duty_wait(trmi_duty *d, trm_error *err);
/* A callback for the time in which this process is the chief; owns `inner`. */
trm_callback trmi_while_chief(const trm_estimator *e, trm_callback inner);

/* estimator_save.c: every trainer's callback; of the one that is the chief: checkpoints as
 * configured, at the first step, and at the end after the other workers have finished. */
trm_callback trmi_ps_saver(trm_estimator *e, trm_ps_client *client);
/* estimator_log.c: "loss = ..., step = ..." and "global_step/sec: ..." */
trm_callback trmi_step_log(trm_estimator *e);

/* job.json */
typedef enum trmi_job_state {
    TRMI_JOB_NONE,
    TRMI_JOB_RUNNING,
    TRMI_JOB_DONE,
    TRMI_JOB_FAILED
} trmi_job_state;
trm_status trmi_job_write(const trm_estimator *e, trmi_job_state state, uint64_t global_step,
                          trm_error *err);
trmi_job_state trmi_job_read(const trm_estimator *e, uint64_t *global_step);
/* Before it trains: a job that goes on is the one of job.json (the chief looks), which from now on
 * describes this run.   errors  INVALID (another job: train/job.h), NOMEM */
trm_status trmi_job_check(trm_estimator *e, trm_model *model, const trm_dataset *data,
                          trm_error *err);
/* Who had which samples so far; nothing where no job.json says so.   errors  CORRUPT */
trm_status trmi_job_read_dealt(const trm_estimator *e, trmi_dealt *out, trm_error *err);

#endif
