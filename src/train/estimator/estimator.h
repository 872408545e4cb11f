/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/estimator.h: shared by the files of the estimator. An estimator runs the role
 * of its process in a PS-Worker job: chief, worker, server, evaluator, or a job of one process.
 *
 *       model_dir/  checkpoint, ckpt-100/ ...   the chief's: weights, for evaluation and export
 *                   states.bin                  running statistics of a synchronous chief (states_file.h)
 *                   job.id                      32 random bytes, by which servers recognise the folder
 *                   ps/                         the servers': tables, slots, logs; what a restart needs
 *                   job.json                    {"state": "running" | "done" | "failed", ..., "dealt": stretches (dealt.h)}
 *                   events.out.tfevents.*       of the chief;  eval/events...  of the evaluator
 *                   export/NAME/                of the EvalSpec's exporters
 *
 *       estimator.c          create, dispatch by role       estimator_config.c    checks and defaults
 *       estimator_roles.c    server, worker, chief          estimator_chief.c     which worker is the chief
 *       estimator_save.c     the chief's checkpoints        estimator_eval.c      evaluator, job of one process
 *       estimator_connect.c  connects to the servers
 *       estimator_export.c   exporters                      estimator_common.c    model, data, job.json
 *
 * Trainers are the chief and the workers; they are numbered together, the chief first. */
#ifndef TRMI_TRAIN_ESTIMATOR_H
#define TRMI_TRAIN_ESTIMATOR_H

#include "trireme/train.h"

#include "base/memory.h"
#include "train/estimator/dealt.h"

#include <stdatomic.h>

/* Threads: one thread uses an estimator; only trm_estimator_request_stop may come from any
 * thread. */
struct trm_estimator {
    trm_model_fn model_fn; /* the caller's; gets `params` */
    void *params;
    trm_run_config config; /* strings are copies; defaults filled in */
    trm_ps_strategy strategy;
    uint8_t token[32];    /* secret of the job, for its connections */
    uint8_t job_id[32];   /* of model_dir/job.id; zeros: no model_dir */
    char job_origin[256]; /* "ps 0 has model_dir /data/run"; "": not known */
    trmi_arena arena;
    bool has_roles;
    trm_role role;             /* of this process, where has_roles */
    int32_t trainers, trainer; /* number of chief and workers; this one's number, -1: none */
    bool is_chief, has_evaluator;
    bool acts;         /* this process does the chief's work now */
    int32_t servers;   /* number of servers; 0: none */
    size_t ring_bytes; /* size of a worker's shared-memory rings */
    bool strict;       /* strict determinism; known once the model's options are */
    trm_comm *workers; /* hybrid, strict: communicator of the workers; NULL: not joined */
    trmi_dealt dealt;  /* stretches of job.json and of this run */
    trmi_text job;     /* description of the job (train/job/job.h); empty before training */
    double over_since; /* time at which the job was seen to be over; 0: it is not */
    _Atomic int stop;
    _Atomic(trm_model *) model; /* the model that trains or evaluates now */
};

/* estimator_config.c */
/* Copies the configuration into `e`, checks the fields and their combinations, and fills in the
 * defaults.
 *   errors  INVALID naming the field, NOMEM */
trm_status trmi_estimator_take_config(trm_estimator *e, const trm_run_config *config,
                                      trm_error *err);
/* Translates precision_mode (NULL: float32).
 *   errors  INVALID: an unknown name */
trm_status trmi_estimator_precision(const trm_run_config *c, trm_precision *out, trm_error *err);

/* estimator_common.c */
/* Calls model_fn for the options of a model and adds those of the configuration.
 *   errors  those of model_fn, INVALID */
trm_status trmi_estimator_model(trm_estimator *e, trm_run_mode mode, trm_dataset *data,
                                trm_model_options *out, trm_error *err);
/* Calls input_fn for the dataset of this mode. A trainer whose samples are not lent gets its
 * shard.
 *   owns    the caller     errors  those of input_fn */
trm_status trmi_estimator_data(const trm_estimator *e, trm_run_mode mode, trm_input_fn input_fn,
                               void *params, trm_dataset **out, trm_error *err);
/* Prints one line for the user: config.print, or the log. */
void trmi_estimator_say(const trm_estimator *e, const char *format, ...) TRM_PRINTF(2, 3);
/* Returns whether the servers lend ranges of samples to the trainers. */
bool trmi_estimator_lends(const trm_estimator *e);
/* Returns the servers' mode in words; `text` is used where it has a number. */
const char *trmi_estimator_mode_text(const trm_estimator *estimator, char *text, size_t size);
/* Returns whether each synchronous trainer reads a fixed shard (dealt.h). */
bool trmi_estimator_deals(const trm_estimator *e);
/* Returns whether the trainers compute each batch together: hybrid, or strict determinism. */
bool trmi_estimator_joins(const trm_estimator *e);
/* Returns whether the chief keeps its running statistics after each batch (states_file.h): in step
 * with the servers, so that a batch has one number. */
bool trmi_estimator_keeps_states(const trm_estimator *e);
/* Returns whether a stop was requested. */
bool trmi_estimator_stopped(const trm_estimator *e);
/* Sleeps until `seconds` have passed or a stop is requested. */
void trmi_estimator_sleep(const trm_estimator *e, double seconds);
/* Writes the servers' folder to `path`; "" if nothing is saved. */
void trmi_estimator_ps_folder(const trm_estimator *e, char *path, size_t size);
/* Reads model_dir/job.id, which the first role makes. Servers compare it with that of each client:
 * roles with different folders would wait for each other's files for ever. */
void trmi_estimator_read_job_id(trm_estimator *e);

/* estimator_connect.c */
/* Connects to all servers, repeatedly until session_creation_timeout_secs. If job.json shows
 * that the job is over, the servers are probably gone, and waiting is short. The chief waits
 * longer than workers, because only the chief can end the servers of a job that is being started
 * again.
 *   errors  TRM_END: the job is over; TIMEOUT, PEER */
trm_status trmi_estimator_connect(trm_estimator *e, trm_ps_client **out, trm_error *err);
/* Connects an evaluator to the servers once, for at most a second. *met: they have answered.
 *   errors  INVALID (another model_dir than theirs) */
trm_status trmi_estimator_meet_servers(trm_estimator *e, bool *met, trm_error *err);

/* estimator_roles.c: run this process as a worker or as a server, to the end of the job. */
trm_status trmi_run_trainer(trm_estimator *e, const trm_train_spec *train,
                            const trm_eval_spec *eval, trm_job_result *out, trm_error *err);
trm_status trmi_run_server(trm_estimator *e, trm_error *err);

/* estimator_eval.c: run this process as the evaluator of a job, or train and evaluate by itself. */
trm_status trmi_run_evaluator(trm_estimator *e, const trm_train_spec *train,
                              const trm_eval_spec *eval, trm_job_result *out, trm_error *err);
trm_status trmi_run_local(trm_estimator *e, const trm_train_spec *train, const trm_eval_spec *eval,
                          trm_job_result *out, trm_error *err);
/* Evaluates the newest checkpoint once, with exports.
 *   errors  TRM_END: there is none */
trm_status trmi_evaluate_latest(trm_estimator *e, const trm_eval_spec *eval, trm_job_result *out,
                                trm_error *err);

/* estimator_export.c: returns the number of exporters of `eval` (NULL: 0). */
int32_t trmi_exporter_count(const trm_eval_spec *eval);
/* Checks the exporters of `eval`.
 *   errors  INVALID naming the exporter */
trm_status trmi_exporters_check(const trm_estimator *e, const trm_eval_spec *eval, trm_error *err);
/* Runs the exporters that follow an evaluation, or with `last` those that follow the last one.
 * `model`: one for evaluation with the weights of `step`; `v`: its evaluation. */
trm_status trmi_export(const trm_estimator *e, const trm_eval_spec *eval, bool last,
                       trm_model *model, uint64_t step, const trm_evaluation *v, trm_error *err);

/* estimator_chief.c: this trainer's view of which trainer is the chief. */
typedef struct trmi_chief_role {
    trm_estimator *estimator;
    trm_ps_client *client;
    bool mine;
    /* time of the latest request; length of the chief's lease */
    double asked, lease_seconds;
} trmi_chief_role;
/* Returns whether another worker takes over the chief's work when the chief dies. */
bool trmi_duty_is_shared(const trm_estimator *e);
/* Sets duty->mine: requests the chief's lease from server 0. The request is left out if the
 * latest one is recent, unless `now`.
 *   errors  those of trm_ps_chief_request */
trm_status trmi_chief_role_query(trmi_chief_role *d, bool now, trm_error *err);
/* Waits, after this worker's last step, for the end of the job (TRM_END) or until this worker is
 * the chief (TRM_OK).
 *   errors  PEER, TIMEOUT: server 0 has not answered for too long */
trm_status trmi_chief_role_wait(trmi_chief_role *d, trm_error *err);
/* Wraps `inner`, which it owns, so that its hooks run only while this process is the chief. */
trm_callback trmi_while_chief(const trm_estimator *e, trm_callback inner);

/* estimator_save.c: returns the callback that saves. Every trainer has it; it acts in the one
 * that is the chief: checkpoints as configured, at the first step, and at the end after the
 * other workers have finished. */
trm_callback trmi_ps_saver(trm_estimator *e, trm_ps_client *client);
/* estimator_log.c: returns the callback that prints "loss = ..., step = ..." and
 * "global_step/sec: ..." */
trm_callback trmi_step_log(trm_estimator *e);

/* job.json */
typedef enum trmi_job_state {
    TRMI_JOB_NONE,
    TRMI_JOB_RUNNING,
    TRMI_JOB_DONE,
    TRMI_JOB_FAILED
} trmi_job_state;
/* Replaces job.json by this state, the job's description and its stretches. Does nothing without
 * a model_dir.
 *   errors  IO, NOMEM */
trm_status trmi_job_write(const trm_estimator *e, trmi_job_state state, uint64_t global_step,
                          trm_error *err);
/* Reads state and step from job.json; NONE and 0 if it is missing or damaged. */
trmi_job_state trmi_job_read(const trm_estimator *e, uint64_t *global_step);
/* Describes the job in e->job before training. In a continued job the chief first compares it
 * with job.json.
 *   errors  INVALID (another job: train/job/job.h), NOMEM */
trm_status trmi_job_check(trm_estimator *e, trm_model *model, const trm_dataset *data,
                          trm_error *err);
/* Reads the stretches of job.json; none if there is no file.
 *   errors  CORRUPT */
trm_status trmi_job_read_dealt(const trm_estimator *e, trmi_dealt *out, trm_error *err);

#endif
