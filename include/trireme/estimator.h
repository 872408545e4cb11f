/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/estimator.h: chief, workers, parameter servers and an evaluator train and
 * evaluate one model together; or one process does all of it.
 *
 *     trm_estimator_create(model_fn, params, &(trm_run_config){.model_dir = "/tmp/multiworker",
 *     .cluster = cluster,
 *                          .distribute = &(trm_ps_strategy){.mode = TRM_PS_ASYNC}}, &estimator,
 *                          &err);
 *     trm_train_and_evaluate(estimator, &(trm_train_spec){.input_fn = input_fn, .max_steps = 1000},
 *                            &(trm_eval_spec){.input_fn = input_fn}, &result, &err);
 *     trm_estimator_destroy(estimator);
 *
 *     ps         serves until the chief says that the job is over, then ends
 *     worker     trains
 *     chief      trains, saves, writes summaries; where none is listed worker 0 is it. Waits for the
 *                others before the last checkpoint, then ends the servers. When it dies for good
 *                another
 *                worker does all that (not where hybrid; not without model_dir)
 *     evaluator  evaluates each checkpoint it finds; ends after the last one
 *     (none)     local: trains and evaluates in turn
 *
 * Any role may be killed and started again. Servers keep their tables in model_dir/ps (checkpoints
 * and a log of what came since), so that nothing that was answered is lost; workers and chief hold
 * nothing, but for hybrid ones, of which those that live give it to the one that comes back.
 */
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

typedef struct trm_estimator trm_estimator;

typedef enum trm_run_mode { TRM_MODE_TRAIN, TRM_MODE_EVAL } trm_run_mode;

/* Fills in what the model is: network, loss, optimizer, learning_rate, and what else of it is
 * wanted. Seed, precision and servers are the estimator's; options->data is the dataset already.
 * Called once in each process. */
typedef trm_status (*trm_model_fn)(trm_run_mode mode, trm_model_options *options, void *params,
                                   trm_error *err);

/* Which part of the data this process is to read: pipeline `index` of `pipelines`
 * (trm_dataset_shard). */
typedef struct trm_input_context {
    trm_run_mode mode;
    int32_t pipelines, index;
    uint64_t seed;
} trm_input_context;
/* Makes a dataset; the estimator destroys it. */
typedef trm_status (*trm_input_fn)(const trm_input_context *context, void *params,
                                   trm_dataset **out, trm_error *err);

/* Who trains on which samples. Lent: in ranges of some batches; what a worker that dies has not
 * used goes to others. Dealt: each worker has its part from the beginning, and comes back to it:
 * synchronous results are then the same whoever was faster. */
typedef enum trm_ps_lend {
    TRM_PS_LEND_AUTO, /* ASYNC and with backup workers lent, else dealt */
    TRM_PS_LEND_ALWAYS,
    TRM_PS_LEND_NEVER
} trm_ps_lend;

/* TensorFlow's tf.distribute.experimental.ParameterServerStrategy. Zero means the default. */
typedef struct trm_ps_strategy {
    trm_ps_mode mode;
    int32_t staleness; /* BOUNDED */
    /* SYNC: a step goes on without the slowest so many; their gradients are in the next one, or,
     * with LEND_NEVER, dropped with their samples */
    int32_t backup_workers;
    bool staleness_aware; /* not SYNC: late gradients count less, as in trm_ps_server_options */
    trm_dtype wire;       /* of rows and gradients; 0 = float32 */
    trm_placement_kind placement; /* of dense variables, as in trm_ps_training */
    trm_partition partition;
    trm_ps_lend lend;   /* how the workers share the data */
    int64_t cache_rows; /* hot rows of each embedding table that a worker keeps; 0 = none */
    /* own batches that such a row may be old; 0 = 1. BOUNDED: at most staleness */
    int32_t cache_staleness;
    /* dense parameters are reduced among the workers, tables stay on servers */
    bool hybrid;
    /* servers */
    int32_t shards;           /* threads of one server; 0 = its CPUs */
    int64_t memory_bytes;     /* of one server, never exceeded; 0 = 80 % of the machine's */
    bool no_log;              /* a killed server goes back to its last checkpoint */
    const char *spill_folder; /* for rows beyond the memory; NULL = cold rows are evicted */
    const char *folder;       /* of the servers' files; NULL = model_dir/ps */
    /* servers and workers are waited for so long; who is silent for half of it is taken for dead,
     * and another worker does a chief's work; 0 = 120 */
    double timeout_seconds;
    /* as in trm_ps_training */
    void (*table)(void *context, trm_table_options *options);
    void *context;
} trm_ps_strategy;

/* NPURunConfig; zero means its default. */
typedef struct trm_run_config {
    /* one directory that all roles share; NULL = nothing is saved. Servers refuse a role that
     * has another one (model_dir/job.id tells): INVALID, with both folders */
    const char *model_dir;
    /* A checkpoint's directory or a .safetensors file that all roles reach: with servers a new job
     * begins with its weights instead of initial values (they must stay until it ends). NULL = none
     */
    const char *warm_start_from;
    const trm_cluster *cluster;        /* who this process is; NULL = local. Borrowed */
    const trm_ps_strategy *distribute; /* needed where there are servers; copied */
    /* 32 bytes, the job's secret, where roles are on several hosts */
    const void *token;
    uint64_t tf_random_seed;    /* of values, order and dropout; 0 = 1 */
    int64_t save_summary_steps; /* TensorBoard points; 0 = 100, negative = none */
    /* at most one of the two; neither: 100 steps with servers, 600 s without */
    int64_t save_checkpoints_steps;
    double save_checkpoints_secs;
    int32_t keep_checkpoint_max;          /* 0 = 5, negative = all */
    double keep_checkpoint_every_n_hours; /* and for ever one in so many hours; 0 = 10000 */
    int64_t log_step_count_steps;         /* "loss = ..., step = ..."; 0 = 100, negative = none */
    /* 0 = 1; more: callbacks see only the ends of epochs (local only) */
    int64_t iterations_per_loop;
    /* the next batch is prepared, and its rows fetched, during this one (asynchronous: not the
     * variables of a model without tables, which would be old) */
    bool enable_data_pre_proc;
    /* must be true with servers: parts of the model are not on the device */
    bool mix_compile_mode;
    /* allow_mix_precision, must_keep_origin_dtype, force_fp32; NULL = that */
    const char *precision_mode;
    double session_creation_timeout_secs; /* how long roles wait for servers to come up; 0 = 7200 */
    /* Tables of so many bytes in all are in model_dir's checkpoints, for evaluation and export
     * (rows go from the servers to the file, a few MB at a time); 0 = what fits there twice when
     * training begins. */
    int64_t export_bytes;
    trm_print print; /* lines for people; NULL = none */
    /* Told by the role in whose process it happens; may be NULL. */
    void (*on_evaluated)(void *context, uint64_t global_step, const trm_evaluation *evaluation);
    void *context;
} trm_run_config;

typedef struct trm_train_spec {
    trm_input_fn input_fn;
    void *params;
    int64_t max_steps; /* updates by all workers together, over the life of model_dir */
    int64_t epochs;    /* or: passes of each worker over its part; one of the two */
    trm_callback callbacks[TRM_MAX_CALLBACKS - 4]; /* of chief and workers alike (TF's hooks) */
} trm_train_spec;

/* What becomes of the weights after an evaluation: files
 * model_dir/export/<name>/model-<step>.<format>. */
typedef enum trm_exporter_kind {
    TRM_EXPORT_NONE,   /* ends the list */
    TRM_EXPORT_LATEST, /* each that was evaluated */
    /* when it is better than all before it, those of earlier runs in model_dir too */
    TRM_EXPORT_BEST,
    TRM_EXPORT_FINAL /* the last */
} trm_exporter_kind;
typedef struct trm_exporter {
    trm_exporter_kind kind;
    const char *name;   /* of the folder */
    const char *format; /* safetensors, npz, onnx; NULL = safetensors */
    /* BEST: loss, logloss (less is better), auc, accuracy, top5; NULL = loss */
    const char *metric;
    int32_t exports_to_keep; /* the newest; 0 = 5, negative = all */
} trm_exporter;
enum { TRM_MAX_EXPORTERS = 8 };

typedef struct trm_eval_spec {
    trm_input_fn input_fn;
    void *params;
    int64_t steps;           /* batches; 0 = 100, negative = all */
    const char *name;        /* summaries go to eval_<name>; NULL = eval */
    double start_delay_secs; /* before the first; 0 = 120, negative = none */
    double throttle_secs;    /* between the beginnings of two; 0 = 600, negative = none */
    trm_exporter exporters[TRM_MAX_EXPORTERS]; /* up to the first of kind NONE */
} trm_eval_spec;

typedef struct trm_job_result {
    trm_role role;
    uint64_t global_step;
    /* of this process: evaluator, local, and a chief without evaluator */
    bool has_evaluation;
    trm_evaluation evaluation; /* the last */
    uint64_t evaluated_step;
    /* The chief's: how often the rows of dense variables have been updated. Both are the number of
     * pushes when each was applied exactly once, whoever was killed. */
    int64_t least_updates, most_updates;
    /* Of a trainer: keys of its batches, different ones, and those of them that its cache of hot
     * rows had. */
    int64_t lookups, unique_keys, cached_keys;
} trm_job_result;

/* Checks the configuration as a whole.
 *   owns   caller destroys *out; strings and strategy are copied, cluster and params outlive it
 *   error  INVALID naming the field and what to set, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_estimator_create(trm_model_fn model_fn, void *params,
                                                     const trm_run_config *config,
                                                     trm_estimator **out, trm_error *err);
/* The same by its older name. */
#define trm_estimator(model_fn, params, config, out, err)                                          \
    trm_estimator_create((model_fn), (params), (config), (out), (err))
TRM_API void trm_estimator_destroy(trm_estimator *estimator);

/* Does the part of this process's role, to its end. `eval` may be NULL: nothing is evaluated. `train` may
 * be NULL on a server.
 *   error  those of training and of checkpoints; INVALID (specs); TIMEOUT, PEER naming whom it waited for;
 *          CANCELLED by trm_estimator_request_stop, after saving
 */
TRM_API TRM_MUST_USE trm_status trm_train_and_evaluate(trm_estimator *estimator,
                                                       const trm_train_spec *train,
                                                       const trm_eval_spec *eval,
                                                       trm_job_result *out, trm_error *err);
/* Ends the running call soon.   thread  any; may be called from a signal handler */
TRM_API void trm_estimator_request_stop(trm_estimator *estimator);

/* What this process will do, checked as far as possible without the others: lines for people or one
 * JSON
 * object.   owns   caller frees with trm_free */
TRM_API TRM_MUST_USE trm_status trm_estimator_plan(const trm_estimator *estimator, bool json,
                                                   char **out, trm_error *err);

/* What rows of the servers that keep `folder` (model_dir/ps) began with: a warm start's weights, to
 * look into the folder
 * with. read NULL: initial values.
 *   errors  IO (the file is gone), CORRUPT, NOMEM
 *   owns    caller, trm_ps_initial_close */
TRM_API TRM_MUST_USE trm_status trm_ps_initial_open(const char *folder, trm_ps_source *out,
                                                    trm_error *err);
TRM_API void trm_ps_initial_close(trm_ps_source *source);

#ifdef __cplusplus
}
#endif
#endif
