/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/estimator.h: a job with roles. Chief, workers, parameter servers and an evaluator train
 * and evaluate one model together, or one process does all of it. The models are those of
 * trireme/train.h (model_fn fills in trm_model_options); the estimator runs the loop, the servers
 * and the checkpoints.
 *
 *     trm_estimator_create(model_fn, params,
 *                          &(trm_run_config){.model_dir = "/tmp/multiworker", .cluster = cluster,
 *                              .distribute = &(trm_ps_strategy){.server = {.mode = TRM_PS_SYNC}}},
 *                          &estimator, &err);
 *     trm_train_and_evaluate(estimator, &(trm_train_spec){.input_fn = input_fn, .max_steps = 1000},
 *                            &(trm_eval_spec){.input_fn = input_fn}, &result, &err);
 *     trm_estimator_destroy(estimator);
 *
 * Roles (trm_cluster_info.role):
 *
 *   ps         serves until the chief ends the job
 *   worker     trains
 *   chief      trains, saves and writes summaries; worker 0 where no chief is listed. Waits for
 *              the workers before the last checkpoint, then ends the servers. If it dies for good,
 *              another worker takes over (not in hybrid mode; not without model_dir)
 *   evaluator  evaluates each checkpoint that it finds; ends after the last one
 *   (none)     local: trains and evaluates in turn
 *
 * Any role may be killed and started again. Servers keep their tables in model_dir/ps (checkpoints
 * and a log of the pushes since), so that no answered push is lost. Workers and chief keep no
 * state, except hybrid ones: a restarted one gets the dense parameters from the running ones. */
#ifndef TRIREME_ESTIMATOR_H
#define TRIREME_ESTIMATOR_H

#include "trireme/base.h"
#include "trireme/train.h"
#include "trireme/dist.h"
#include "trireme/data.h"
#include "trireme/ps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A job of this process's role, with its configuration. */
typedef struct trm_estimator trm_estimator;

/* Purpose for which a function of the program is called. */
typedef enum trm_run_mode { TRM_MODE_TRAIN, TRM_MODE_EVAL } trm_run_mode;

/* Fills in the model: network, loss, optimizer, learning_rate and other members that are wanted.
 * The estimator sets seed and servers, and the precision if precision_mode is given; options->data
 * is the dataset already. Called once in each process.
 *   returns  TRM_OK, or an error that ends the job */
typedef trm_status (*trm_model_fn)(trm_run_mode mode, trm_model_options *options, void *params,
                                   trm_error *err);

/* The part of the data that this process reads: pipeline `index` of `pipelines`
 * (trm_dataset_shard). */
typedef struct trm_input_context {
    trm_run_mode mode;        /* training or evaluation */
    int32_t pipelines, index; /* number of pipelines; this process's */
    uint64_t seed;            /* of the order */
} trm_input_context;
/* Creates a dataset.
 *   returns  TRM_OK, or an error that ends the job
 *   owns     *out: the estimator, which destroys it */
typedef trm_status (*trm_input_fn)(const trm_input_context *context, void *params,
                                   trm_dataset **out, trm_error *err);

/* The rule by which workers share data. Leased: server 0 lends ranges of batches, and the unused
 * part of a dead worker's range goes to others. Assigned: each worker has a fixed part and
 * continues it after a restart, so that synchronous results do not depend on the workers' speed. */
typedef enum trm_ps_lend {
    TRM_PS_LEND_AUTO,   /* leased in ASYNC mode and with backup workers, else assigned */
    TRM_PS_LEND_ALWAYS, /* leased */
    TRM_PS_LEND_NEVER   /* assigned */
} trm_ps_lend;

/* Parameter servers of a job, as TensorFlow's tf.distribute.experimental.ParameterServerStrategy.
 * Zero means the default. */
typedef struct trm_ps_strategy {
    trm_ps_lend lend; /* how the workers share the data */
    /* of every server: mode, staleness, backup_workers (with LEND_NEVER the slowest workers'
     * gradients are dropped with their samples), staleness_aware, shards, memory_bytes, folder
     * (NULL = model_dir/ps), log_pushes (default: on), log_sync, spill_folder, spill_bytes. The
     * estimator sets the other members; they are ignored */
    trm_ps_server_options server;
    /* of every worker: wire, cache_staleness, and timeout_seconds, the limit of waiting for servers
     * and workers; 0 = 120. A process that is silent for half of it counts as dead, and another
     * worker takes over a chief's work. The estimator sets the other members; they are ignored */
    trm_ps_client_options client;
    /* of the model: tables_only (hybrid: dense parameters are reduced among the workers),
     * cache_rows, prefetch, placement, partition, table. The estimator sets the other members; they
     * are ignored */
    trm_ps_training training;
} trm_ps_strategy;

/* Configuration of a job, as NPURunConfig. Zero means its default. */
typedef struct trm_run_config {
    /* directory that all roles share; NULL = nothing is saved. Servers refuse a role with another
     * one (INVALID, with both folders), which they find by model_dir/job.id */
    const char *model_dir;
    /* checkpoint's directory or .safetensors file that all roles can read: with servers a new job
     * begins with its weights in place of initial values. It must stay until the job ends. NULL =
     * none */
    const char *warm_start_from;
    const trm_cluster *cluster;        /* place of this process; NULL = local. Borrowed */
    const trm_ps_strategy *distribute; /* needed where there are servers; copied */
    /* 32 bytes, the job's token, where roles are on several hosts; NULL = none */
    const void *token;
    uint64_t tf_random_seed;    /* of values, order and dropout; 0 = 1 */
    int64_t save_summary_steps; /* between TensorBoard points; 0 = 100, TRM_NONE = none */
    /* of checkpoints in model_dir (`directory` is ignored): one of every_steps and every_seconds; 0
     * = 100 steps with servers, 600 s without; and writer.keep, writer.keep_every_hours */
    trm_model_checkpoint_options checkpoints;
    /* between lines "loss = ..., step = ..."; 0 = 100, TRM_NONE = none */
    int64_t log_step_count_steps;
    /* 0 = 1; more: callbacks are called only at the ends of epochs (local only) */
    int64_t iterations_per_loop;
    /* allow_mix_precision, must_keep_origin_dtype or force_fp32; NULL = the model's precision */
    const char *precision_mode;
    double session_creation_timeout_secs; /* limit of waiting for servers to start; 0 = 7200 */
    /* tables of at most so many bytes in all are in model_dir's checkpoints, for evaluation and
     * export (rows go from the servers to the file, a few MB at a time); 0 = as many as fit on the
     * disk twice when training begins */
    int64_t export_bytes;
    trm_print print; /* receives lines for people; NULL = none */
    /* called after an evaluation, in the process of the role that evaluated; NULL = none */
    void (*on_evaluated)(void *context, uint64_t global_step, const trm_evaluation *evaluation);
    void *context; /* for `on_evaluated` */
} trm_run_config;

/* The data, the number of steps and the hooks of the training role. */
typedef struct trm_train_spec {
    trm_input_fn input_fn; /* creates the training set */
    void *params;          /* for `input_fn` */
    int64_t max_steps;     /* updates by all workers together, over the life of model_dir */
    int64_t epochs;        /* or passes of each worker over its part; one of the two */
    /* of chief and workers (TensorFlow's hooks) */
    trm_callback callbacks[TRM_MAX_CALLBACKS - 4];
} trm_train_spec;

/* The evaluated weights that are exported, as model_dir/export/<name>/model-<step>.<format>. */
typedef enum trm_exporter_kind {
    TRM_EXPORT_NONE,   /* ends the list */
    TRM_EXPORT_LATEST, /* all that were evaluated */
    /* those that are better than all before them, earlier runs in model_dir included */
    TRM_EXPORT_BEST,
    TRM_EXPORT_FINAL /* the last */
} trm_exporter_kind;
/* An export after evaluations. */
typedef struct trm_exporter {
    trm_exporter_kind kind; /* which weights */
    const char *name;       /* of the folder */
    const char *format;     /* safetensors, npz or onnx; NULL = safetensors */
    /* BEST: loss, logloss (less is better), auc, accuracy, top5; NULL = loss */
    const char *metric;
    int32_t exports_to_keep; /* the newest; 0 = 5, TRM_ALL = all */
} trm_exporter;
enum { TRM_MAX_EXPORTERS = 8 };

/* The data of the evaluator, and how often it evaluates. */
typedef struct trm_eval_spec {
    trm_input_fn input_fn;   /* creates the test set */
    void *params;            /* for `input_fn` */
    int64_t steps;           /* batches; 0 = 100, TRM_ALL = all */
    const char *name;        /* summaries go to eval_<name>; NULL = eval */
    double start_delay_secs; /* before the first evaluation; 0 = 120, TRM_NONE = none */
    double throttle_secs;    /* between the beginnings of two; 0 = 600, TRM_NONE = none */
    trm_exporter exporters[TRM_MAX_EXPORTERS]; /* up to the first of kind NONE */
} trm_eval_spec;

/* Result of this process's part of a job. */
typedef struct trm_job_result {
    trm_role role;        /* of this process */
    uint64_t global_step; /* updates of the model */
    /* this process has evaluated: evaluator, local, or a chief without evaluator */
    bool has_evaluation;
    trm_evaluation evaluation; /* the last */
    uint64_t evaluated_step;   /* global step of its weights */
    /* chief: updates of the rows of dense variables. Both are the number of pushes when each was
     * applied exactly once, whatever was killed */
    int64_t least_updates, most_updates;
    /* worker: keys of its batches; different ones; of these, found in its cache of hot rows */
    int64_t lookups, unique_keys, cached_keys;
} trm_job_result;

/* Creates an estimator and checks the configuration as a whole.
 *   errors   INVALID (naming the field and what to set), NOMEM
 *   owns     caller: trm_estimator_destroy(*out); strings and strategy are copied, cluster and
 *            params must outlive it */
TRM_API TRM_MUST_USE trm_status trm_estimator_create(trm_model_fn model_fn, void *params,
                                                     const trm_run_config *config,
                                                     trm_estimator **out, trm_error *err);
/* Frees the estimator. NULL is accepted. */
TRM_API void trm_estimator_destroy(trm_estimator *estimator);

/* Does the work of this process's role to its end: a worker or chief trains, a server serves until
 * the chief ends the job, an evaluator evaluates each new checkpoint.
 *   param    train: NULL = allowed on a server
 *            eval: NULL = nothing is evaluated
 *            out: result of this process's part, written
 *   errors   INVALID (specs), TIMEOUT and PEER (naming the process that was waited for), CANCELLED
 *            (trm_estimator_request_stop, after saving), those of training and of checkpoints */
TRM_API TRM_MUST_USE trm_status trm_train_and_evaluate(trm_estimator *estimator,
                                                       const trm_train_spec *train,
                                                       const trm_eval_spec *eval,
                                                       trm_job_result *out, trm_error *err);
/* Ends the running trm_train_and_evaluate soon.
 *   threads  any; may be called from a signal handler */
TRM_API void trm_estimator_request_stop(trm_estimator *estimator);

/* Describes what this process will do, checked as far as possible without the other processes:
 * lines for people, or one JSON object.
 *   errors   NOMEM
 *   owns     caller: trm_free(*out) */
TRM_API TRM_MUST_USE trm_status trm_estimator_plan(const trm_estimator *estimator, bool json,
                                                   char **out, trm_error *err);

/* Opens the rows with which the servers that keep `folder` (model_dir/ps) began: the weights of a
 * warm start, for trm_ps_folder_options. out->read is NULL if rows began with initial values.
 *   errors   IO (the file is gone), CORRUPT, NOMEM
 *   owns     caller: trm_ps_initial_close(out) */
TRM_API TRM_MUST_USE trm_status trm_ps_initial_open(const char *folder, trm_ps_source *out,
                                                    trm_error *err);
/* Closes what trm_ps_initial_open has opened. An empty source ({0}) is accepted. */
TRM_API void trm_ps_initial_close(trm_ps_source *source);

#ifdef __cplusplus
}
#endif
#endif
