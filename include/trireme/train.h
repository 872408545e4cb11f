/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/train.h: the conductor. A model is a network, a loss, an optimiser and a learning rate;
 * it is trained on a dataset, evaluated, saved and resumed.
 *
 *     trm_model *model;
 *     trm_model_create(&(trm_model_options){.network = network, .data = train_set,
 *                          .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
 *                          .learning_rate = {.base = 0.01}}, &model, &err);
 *     trm_model_train(model, &(trm_train_options){.data = train_set, .epochs = 10,
 *                         .callbacks = {trm_loss_monitor(1, puts)}}, &err);
 *     trm_model_evaluate(model, test_set, &result, &err);
 *     trm_model_destroy(model);
 *
 * An epoch is one pass over the dataset. A step is one update of the parameters. The same seed,
 * data and options give the same bits, in sink mode or not, stopped and resumed or not.
 *   thread  one thread at a time per model (trm_model_request_stop excepted)
 *   alloc   nothing in a step, after the first of each training call */
#ifndef TRIREME_TRAIN_H
#define TRIREME_TRAIN_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/dist.h"
#include "trireme/exec.h"
#include "trireme/graph.h"
#include "trireme/io.h"
#include "trireme/ps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- networks and losses ----------------------------------------------------------------- */

/* The fields of a batch as inputs of a graph. */
typedef struct trm_inputs trm_inputs;
/* The input of this name ("image", "label"); TRM_NO_NODE, and the graph keeps an error that lists
 * the names there are, if the dataset has no such field. */
TRM_API trm_node trm_inputs_get(const trm_inputs *inputs, const char *name);

/* From inputs to logits. Called once for the training graph and once for the evaluation graph
 * (trm_graph_is_training tells which); both times it must make the same parameters. */
typedef trm_node (*trm_network)(trm_graph *graph, const trm_inputs *inputs, void *context);
/* From logits to the scalar loss. In an evaluation graph the rows that pad the last batch have
 * integer labels -1 and must not count; the losses below see to that. */
typedef trm_node (*trm_loss)(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                             void *context);

/* Mean softmax cross-entropy of the field "label"; `context` is a const trm_xent_options * or
 * NULL. The default of a model. An evaluation graph leaves label smoothing out. */
TRM_API trm_node trm_loss_softmax(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                                  void *context);
/* trm_softmax_cross_entropy_expand as a model's loss; context unused. */
TRM_API trm_node trm_loss_softmax_expand(trm_graph *graph, trm_node logits,
                                         const trm_inputs *inputs, void *context);
/* Mean logistic loss of the field "label" (float32, 0 or 1) for logits [N] or [N, 1]. */
TRM_API trm_node trm_loss_logistic(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                                   void *context);

/* The same loss made of small operators: max, sub, exp, sum, div, one-hot, log, mul, sum, mul,
 * mean. logits [N, K], labels int32 [N] -> scalar. The same value and gradient as
 * trm_softmax_cross_entropy to 1e-6 while no probability underflows. */
TRM_API trm_node trm_softmax_cross_entropy_expand(trm_graph *graph, trm_node logits,
                                                  trm_node labels);

/* ---- learning rate ------------------------------------------------------------------------ */

typedef enum trm_decay {
    TRM_DECAY_CONSTANT,
    TRM_DECAY_STEP,      /* base * gamma^(number of boundaries passed) */
    TRM_DECAY_COSINE,    /* from base to end along half a cosine */
    TRM_DECAY_POLYNOMIAL /* end + (base - end) * (1 - progress)^power */
} trm_decay;

/* A pure function of the global step. Zero means the default. */
typedef struct trm_learning_rate {
    trm_decay decay;
    double base;          /* the rate after warm-up; must be given */
    double end;           /* COSINE, POLYNOMIAL: the rate at total_steps */
    double gamma;         /* STEP: 0.1 when 0 */
    int64_t every_steps;  /* STEP: a boundary each so many steps; 0 = total_steps / 3, at least 1 */
    double power;         /* POLYNOMIAL: 1 when 0 */
    int64_t warmup_steps; /* linear from warmup_start to base over these steps */
    double warmup_start;
    int64_t total_steps; /* 0 = the steps of the training call */
} trm_learning_rate;
/* The rate of the update that makes global step `step` + 1 (so the first has step 0). Warm-up step
 * s of w has start + (base - start) * (s + 1) / w; decay progresses over the steps after warm-up.
 *   thread  any */
TRM_API double trm_learning_rate_at(const trm_learning_rate *rate, uint64_t step);

/* ---- figures of merit of one's own --------------------------------------------------------- */

#define TRM_MAX_METRICS 8
#define TRM_MAX_METRIC_SUMS 16

/* A figure of merit as sums over samples, so that batches and ranks can each add a part. An evaluation
 * begins with sums of zero, calls `add` for each batch, adds the sums of all ranks, and then asks for
 * the value: the same on all ranks. A mean has the sums {of the values, samples}. */
typedef struct trm_metric {
    const char *name;  /* in trm_evaluation, CSV and JSON lines, TensorBoard */
    int32_t sum_count; /* 1 to TRM_MAX_METRIC_SUMS */
    /* Adds the part of the first `samples` rows of logits and batch; the others are padding. */
    trm_status (*add)(void *context, const trm_tensor *logits, int64_t samples,
                      const trm_batch *batch, double *sums, trm_error *err);
    double (*value)(void *context, const double *sums); /* NULL: sums[0] / sums[1], or sums[0] */
    void *context;                                      /* outlives the model, as `name` */
} trm_metric;

/* ---- model -------------------------------------------------------------------------------- */

typedef struct trm_model trm_model;

/* Parameters on servers (trireme/ps.h): embedding tables, whatever they are gathered from by
 * trm_embedding, and dense variables. Nothing of a table's size is held here. The servers run the
 * optimiser. Each rank of `parallel` needs a client of its own. */
typedef struct trm_ps_training {
    trm_ps_client *client; /* NULL = no servers. Borrowed; outlives the model */
    /* hybrid: dense parameters stay here, and are reduced over `parallel` */
    bool tables_only;
    /* Batches are lent by server 0 in ranges of so many, so that each is used once an epoch
     * although workers come and go; `data` is then the same and unsharded on all workers. Not with
     * tables_only. 0 = off */
    int64_t lease_batches;
    double lease_seconds; /* without a batch finished, a worker's range goes to others; 0 = 60 */
    /* hot rows of each embedding table that this worker keeps: trm_ps_client_cache */
    int64_t cache_rows;
    /* rows of the next batch are not asked for while this one is computed; nor are, where workers
     * do not wait for each other, the variables of a model without tables: they would be old */
    bool no_prefetch;
    /* Where dense variables live: rows spread over all servers (default), whole variables or parts
     * of them in turn, or by their bytes. */
    trm_placement_kind placement;
    trm_partition partition;
    /* May change what a table is like before it is declared (rows' dtype, admission, expiry, the
     * optimiser of rows): the same on every worker. */
    void (*table)(void *context, trm_table_options *options);
    void *context;
} trm_ps_training;

typedef struct trm_model_options {
    trm_network network;
    void *network_context; /* must outlive the model, as loss_context */
    trm_loss loss;         /* NULL = trm_loss_softmax */
    void *loss_context;
    trm_optimizer_options optimizer;
    trm_learning_rate learning_rate;
    trm_dataset *data;   /* shapes of the inputs; borrowed during the call */
    const char *backend; /* as in trm_exec_options, like all that follow */
    trm_precision precision;
    trm_loss_scale_options loss_scale;
    int threads;
    int32_t host_processes;
    uint64_t seed;
    bool no_fusion;
    int32_t accumulate; /* batches per step; an epoch's last incomplete group is left out */
    const char *tuning_file;
    int64_t memory_bytes; /* of a rank, as in trm_exec_options; 0 = no limit */
    double retune_seconds;
    /* beside the checkpoints of a run that may be resumed (each rank its own) */
    const char *choices_file;
    /* Many ranks (trireme/exec.h): every call below is then collective, each rank reads its own
     * shard of the data, and losses, samples and evaluations are those of all ranks together. */
    trm_parallel_options parallel;
    /* trm_model_train then trains on the servers, and trm_model_global_step is theirs: updates by
     * all workers. Position and weights are the servers', so that save, resume and load are not for
     * this model. */
    trm_ps_training ps;
    /* Instead of `parallel`, of which only comm counts then, and of `accumulate`: what it says now
     * (trireme/train.h). Borrowed during the call. */
    struct trm_context *context;
    trm_metric metrics[TRM_MAX_METRICS]; /* of evaluations; the first without `add` ends the list */
    bool evaluation_only; /* no gradients, no optimiser: only evaluate, load and export */
    /* A checkpoint is resumed although data, network, precision, backend or optimiser are not those
     * that it was made with; else it is refused. Learning rate, schedule, momentum, weight decay,
     * epochs and steps may always change: one warning says how. */
    bool accept_changes;
    const char *description; /* JSON object kept in checkpoints; NULL = "{}" */
} trm_model_options;

/* Builds and compiles.
 *   error  INVALID (options, graph), NOMEM (bytes needed and present), and those of trm_exec_create
 */
TRM_API TRM_MUST_USE trm_status trm_model_create(const trm_model_options *options, trm_model **out,
                                                 trm_error *err);
TRM_API void trm_model_destroy(trm_model *model);

/* The compiled training program (evaluation program if evaluation_only). owns: the model. */
TRM_API trm_exec *trm_model_exec(trm_model *model);
/* The graph it was compiled from, before differentiation; `logits` may be NULL. owns: the model. */
TRM_API const trm_graph *trm_model_graph(const trm_model *model, trm_node *logits);
/* Steps done since the initial values. */
TRM_API uint64_t trm_model_global_step(const trm_model *model);

/* Ends the running trm_model_train after its current step, in sink mode too: callbacks save, and it
 * returns TRM_CANCELLED; with many ranks on all of them, one step later. Without a running one, the
 * next returns at once.
 *   thread  any; may be called from a signal handler */
TRM_API void trm_model_request_stop(trm_model *model);

/* A few named numbers that travel with the model's checkpoints (the best loss so far, say): for
 * callbacks that must survive a resume. At most 32 of at most 47 letters.   error  INVALID beyond that
 */
TRM_API TRM_MUST_USE trm_status trm_model_note(trm_model *model, const char *name, double value,
                                               trm_error *err);
/* False if there is none of this name. */
TRM_API bool trm_model_noted(const trm_model *model, const char *name, double *value);

/* ---- evaluation ---------------------------------------------------------------------------- */

typedef struct trm_evaluation {
    double loss; /* mean over samples */
    int64_t samples;
    double seconds;
    bool has_top;                     /* logits [N, K] and integer labels */
    double top1, top5;                /* fractions */
    bool has_auc;                     /* logits [N] or [N, 1] and float labels */
    double auc, logloss, calibration; /* see trireme/train.h */
    int32_t metric_count;             /* of trm_model_options.metrics */
    trm_named_scalar metrics[TRM_MAX_METRICS];
} trm_evaluation;

/* One pass over `data` with the model's parameters and running statistics, with all fields that network
 * and loss ask for. A model needs no training call before it, and training none of these. The first call compiles
 * the evaluation program for the dataset's batch size; it shares the parameters' memory.
 *   error  INVALID (fields that the network lacks), those of the dataset, CANCELLED by a stop */
TRM_API TRM_MUST_USE trm_status trm_model_evaluate(trm_model *model, trm_dataset *data,
                                                   trm_evaluation *out, trm_error *err);

/* Sees a batch of an evaluation: logits of `samples` rows (borrowed), and the batch that they are
 * of. */
typedef trm_status (*trm_prediction_fn)(void *context, const trm_tensor *logits, int64_t samples,
                                        const trm_batch *batch, trm_error *err);

/* As trm_model_evaluate (`out` may be NULL), and hands each batch's logits to `see`, in the order
 * of
 * the data. With many ranks, each sees its own share.
 *   error  those of trm_model_evaluate, and what `see` returns */
TRM_API TRM_MUST_USE trm_status trm_model_predict(trm_model *model, trm_dataset *data,
                                                  trm_prediction_fn see, void *context,
                                                  trm_evaluation *out, trm_error *err);
/* The same over at most the first `steps` batches (each rank's). */
TRM_API TRM_MUST_USE trm_status trm_model_evaluate_steps(trm_model *model, trm_dataset *data,
                                                         int64_t steps, trm_evaluation *out,
                                                         trm_error *err);

/* ---- training ------------------------------------------------------------------------------ */

/* What callbacks see. Times are of this call of trm_model_train. */
typedef struct trm_progress {
    trm_model *model;
    int64_t epoch;  /* from 1, over the model's life */
    int64_t epochs; /* where training is to end; 0 = open */
    int64_t step;   /* within the epoch, from 1 */
    int64_t epoch_steps;
    uint64_t global_step;
    float loss;           /* of this step; with accumulation the mean over its batches */
    double learning_rate; /* of this step */
    const trm_loss_scale_state *loss_scale; /* after this step; NULL when no loss is scaled */
    /* of this step, of this call in this epoch, in all */
    int64_t step_samples, epoch_samples, samples;
    double step_seconds;              /* sink mode: the mean of this epoch */
    double wait_seconds;              /* of the epoch so far: waiting for the dataset */
    double epoch_seconds;             /* since the epoch, or this call, began */
    double seconds;                   /* since this call began */
    double busy_seconds;              /* of that, in steps: not in callbacks */
    const trm_evaluation *evaluation; /* the latest; NULL before the first */
    const char *checkpoint;           /* on_checkpoint: what was written */
    bool stopping;                    /* on_end: on request, before the epochs were done */
} trm_progress;

/* TRM_OK goes on, TRM_END asks to stop after this step or epoch (training returns TRM_OK), anything
 * else ends training with that error. */
typedef trm_status (*trm_hook)(void *context, const trm_progress *progress, trm_error *err);

/* Hooks that are NULL are skipped; a callback without any hook ends the list. The training call
 * takes the callback: it calls `destroy` at its end, whatever happens. */
typedef struct trm_callback {
    trm_hook on_begin; /* after the position is known, before the first step */
    trm_hook on_epoch_begin;
    trm_hook on_gradients; /* gradients are complete, parameters still old (trm_exec_ranges) */
    /* sink mode: once, after the epoch's last step, or where the run ends inside it */
    trm_hook on_step_end;
    trm_hook on_epoch_end;
    trm_hook on_evaluated;
    trm_hook on_checkpoint;
    trm_hook on_end; /* all epochs done, or stopped; not after an error */
    void (*destroy)(void *context);
    void *context;
    bool last; /* its hooks run after those of the others (a checkpoint must see their state) */
} trm_callback;

#define TRM_MAX_CALLBACKS 16

typedef struct trm_train_options {
    trm_dataset *data;
    int64_t epochs; /* train until the model has seen so many epochs in all */
    int64_t steps;  /* or until it has made so many steps in all; 0 = no such limit */
    bool sink;      /* an epoch runs without per-step callbacks; same bits */
    /* The timeline of this call as Chrome trace JSON, which ui.perfetto.dev shows: step kernels, waiting,
     * communication, batches that are made; a process a rank, written by rank 0 at the end of the call
     * (not after an error). The first 400,000 events of each rank. NULL = none */
    const char *profile;
    trm_callback callbacks[TRM_MAX_CALLBACKS];
} trm_train_options;

/* Trains from where the model is (its start, or the resumed position).
 *   error  CANCELLED (trm_model_request_stop), DIVERGED (naming the first operator), those of the
 *          dataset, of the callbacks, and INVALID */
TRM_API TRM_MUST_USE trm_status trm_model_train(trm_model *model, const trm_train_options *options,
                                                trm_error *err);

/* The number of steps of an epoch of `data`, with the model's accumulation. */
TRM_API int64_t trm_model_epoch_steps(const trm_model *model, trm_dataset *data);

/* ---- checkpoints ---------------------------------------------------------------------------- */

/* Saves the whole state through `writer` (trireme/io.h) as directory/ckpt-STEP: parameters and
 * states in part "model", slots in part "optimizer", and step, epoch, position in the data, seed
 * and notes. Only between steps: from a callback, or outside of training.
 *   error  those of trm_checkpoint_save: what was there before is intact
 * With many ranks all call it and rank 0 writes; the writer of the others is not looked at. */
TRM_API TRM_MUST_USE trm_status trm_model_save(trm_model *model, trm_checkpoint_writer *writer,
                                               trm_error *err);
/* Takes everything from a checkpoint, or the newest sound one of a directory of several; damaged
 * ones are skipped with a warning in the log. The next trm_model_train continues bit for bit.
 *   error  TRM_END: none there, nothing changed; CORRUPT: only damaged ones; INVALID: of another
 *          network, optimiser, batch size or seed */
TRM_API TRM_MUST_USE trm_status trm_model_resume(trm_model *model, const char *path,
                                                 trm_error *err);
/* Takes only parameters and states, from a checkpoint (or the newest sound one of a directory of
 * several) or a .safetensors file. Every one must be there with its shape; with `partial` those
 * that are missing or of another shape keep their values, and `*skipped` (may be NULL) counts them.
 *   error  IO, CORRUPT, INVALID naming the first tensor that does not fit */
TRM_API TRM_MUST_USE trm_status trm_model_load(trm_model *model, const char *path, bool partial,
                                               int32_t *skipped, trm_error *err);

/* ==== metrics =============================================================================== */

/* Figures of merit that add up, so that batches, threads and ranks can each have
 * a part and merge them: the merged value is the value of all samples together.
 *
 *     trm_top_k top = {0};
 *     for each batch: trm_top_k_add(&top, logits, labels, rows, classes);
 *     printf("%.4f\n", trm_top_k_value(&top, 1));
 *
 *   thread  one thread at a time per object; alloc: only trm_auc_create
 */

/* Top-k accuracy for k = 1 .. 5. A row counts for k when fewer than k classes have a greater logit
 * (of equal ones the lower class wins). A NaN anywhere at the label loses. */
typedef struct trm_top_k {
    int64_t hits[5]; /* by rank of the true class */
    int64_t samples;
} trm_top_k;
/* logits [rows, classes]; labels [rows], those < 0 or >= classes are left out. */
TRM_API void trm_top_k_add(trm_top_k *top, const float *logits, const int32_t *labels, int64_t rows,
                           int64_t classes);
TRM_API void trm_top_k_merge(trm_top_k *into, const trm_top_k *from);
/* 0 .. 1; 0 without samples. k is 1 .. 5. */
TRM_API double trm_top_k_value(const trm_top_k *top, int k);

/* Binary predictions: area under the ROC curve, log loss, calibration. The logits are sorted into
 * 2^16 bins that are exact in sign, exponent and the upper 7 bits of the mantissa (bfloat16), so
 * the AUC is that of the logits rounded towards zero to bfloat16, ties counting one half, and
 * merging is exact. */
typedef struct trm_auc trm_auc;
/* owns  caller, trm_auc_destroy    error  NOMEM (1 MB) */
TRM_API TRM_MUST_USE trm_status trm_auc_create(trm_auc **out, trm_error *err);
TRM_API void trm_auc_destroy(trm_auc *auc);
TRM_API void trm_auc_reset(trm_auc *auc);
/* logits [rows]; labels [rows]: > 0.5 is positive. NaN logits are counted apart (trm_auc_nan). */
TRM_API void trm_auc_add(trm_auc *auc, const float *logits, const float *labels, int64_t rows);
TRM_API void trm_auc_merge(trm_auc *into, const trm_auc *from);
/* 0.5 when one class is missing. */
TRM_API double trm_auc_value(const trm_auc *auc);
/* Mean of -log p(label); logits are taken in float64, so that it never overflows. */
TRM_API double trm_auc_logloss(const trm_auc *auc);
/* Mean prediction / mean label: 1 is calibrated; 0 without positives. */
TRM_API double trm_auc_calibration(const trm_auc *auc);
TRM_API int64_t trm_auc_samples(const trm_auc *auc);
TRM_API int64_t trm_auc_nan(const trm_auc *auc);

/* ==== callbacks ============================================================================= */

/* The callbacks that come with the library, for trm_train_options.callbacks.
 *
 *     .callbacks = {trm_loss_monitor(1, puts), trm_time_monitor(puts),
 *                   trm_model_checkpoint(&(trm_model_checkpoint_options){.directory = "run", .keep
 *                   = 5})}
 *
 * Each call makes one callback for one training call, which frees it. When there is no memory for
 * one, training fails with NOMEM before its first step; with INVALID where options, a directory,
 * path, function or dataset are NULL. Strings are copied. */

/* Receives one line without its newline; `puts` of stdio fits. */
typedef int (*trm_print)(const char *line);

/* "epoch: 1 step: 156, loss is 2.0084016", every `every` steps (0 = only at the end of each epoch
 * and of training);
 * in sink mode once an epoch, with the loss of its last step (or of the run's). */
TRM_API trm_callback trm_loss_monitor(int64_t every, trm_print print);
/* "epoch time: 4321.123 ms, per step time: 27.699 ms" at the end of each epoch. */
TRM_API trm_callback trm_time_monitor(trm_print print);

typedef struct trm_model_checkpoint_options {
    const char *directory;   /* locked by this process until training ends */
    int32_t keep;            /* the newest so many; 0 = 5, negative = all */
    double keep_every_hours; /* and for ever one in so many hours; 0 = none */
    int64_t every_steps;     /* any of the three; when all are 0, every epoch */
    double every_seconds;
    int64_t every_epochs;
} trm_model_checkpoint_options;
/* Saves as asked, and at the end of training or when it is stopped. In sink mode between epochs
 * only (and when stopped): at the end of the epoch in which it was due. Without room on the disk
 * (NOSPACE) a save is left out with a warning, and tried again when the next one is due; the last
 * one then fails. */
TRM_API trm_callback trm_model_checkpoint(const trm_model_checkpoint_options *options);

/* Evaluates on `data` (borrowed) at the end of every `every_epochs`-th epoch (0 = 1) and tells the
 * other callbacks (on_evaluated). */
TRM_API trm_callback trm_evaluate_every(trm_dataset *data, int64_t every_epochs);

typedef enum trm_watch {
    TRM_WATCH_EVALUATION_LOSS,
    TRM_WATCH_TOP1, /* more is better */
    TRM_WATCH_LOSS  /* of the epoch's last step */
} trm_watch;
typedef struct trm_early_stop_options {
    trm_watch watch;
    int64_t patience; /* epochs (evaluations) without an improvement until the stop; 0 = 1 */
    double min_delta; /* an improvement is more than this */
} trm_early_stop_options;
/* Stops when the watched value no longer improves. Its memory travels in checkpoints. */
TRM_API trm_callback trm_early_stop(const trm_early_stop_options *options);

/* A file of metrics (trireme/io.h): a line every `every` steps (0 = 1), at the end of each
 * epoch, and for each evaluation. `path` ends in .csv or .jsonl. A resumed run continues the file:
 * lines of steps that come again are dropped first. A full disk is said once in the log and does
 * not stop training. */
TRM_API trm_callback trm_metrics_recorder(const char *path, int64_t every);

typedef struct trm_tensorboard_options {
    const char *directory;
    int64_t every_steps;      /* scalars; 0 = 100 */
    int64_t histogram_epochs; /* parameters' histograms every so many epochs; 0 = none */
    bool graph;               /* the network, once */
} trm_tensorboard_options;
/* An event file: loss, learning rate, images per second, evaluation, on request histograms and the
 * graph. A resumed run begins a new file that says from which step on. */
TRM_API trm_callback trm_tensorboard(const trm_tensorboard_options *options);

/* ==== context options ======================================================================= */

/* How a model is spread over ranks, by the field's names (MindSpore's
 * set_auto_parallel_context).
 *
 *     trm_context *context;
 *     trm_context_create(&context, &err);
 *     trm_context_set(context, "parallel_mode", "data_parallel", &err);
 *     trm_context_set(context, "mirror_mean", "true", &err);
 *     trm_model_create(&(trm_model_options){.parallel = {.comm = comm}, .context = context, ...},
 *     &model, &err);
 *     puts(trm_context_get(context, "device_num"));               the ranks of comm
 *     trm_context_reset(context);                                 before the next case
 *
 * A context belongs to whoever made it; there is no global one. Options are read when a model is
 * made.
 * Values are words and numbers in text, as on a command line; a table of all options is what
 * trm_context_option_at hands out (`trireme help context` prints it).
 *   thread  one at a time per context */

typedef struct trm_context trm_context;

/* All options at their defaults.   owns  caller destroys    error  NOMEM */
TRM_API TRM_MUST_USE trm_status trm_context_create(trm_context **out, trm_error *err);
TRM_API void trm_context_destroy(trm_context *context);

/* Sets one option; copied. Letters of words and truth values may be large or small.
 *   error  INVALID: no such option (the nearest is named), a value outside of its range */
TRM_API TRM_MUST_USE trm_status trm_context_set(trm_context *context, const char *name,
                                                const char *value, trm_error *err);
/* What holds: the value set, else the default; device_num and global_rank are those of the
 * communicator once a model has been made. NULL: no such option.
 *   owns  the context; valid until the next call with it */
TRM_API const char *trm_context_get(const trm_context *context, const char *name);
/* Was it set since the last reset? False for names that there are not. */
TRM_API bool trm_context_is_set(const trm_context *context, const char *name);
/* Every option at its default again. */
TRM_API void trm_context_reset(trm_context *context);

/* Does the context of a split mode say that each of `ranks` ranks reads samples of its own:
 * full_batch false, dataset_strategy data_parallel, or tuples that cut each input by samples into
 * `ranks` parts? */
TRM_API bool trm_context_own_samples(const trm_context *context, int32_t ranks);

/* Holds the options against each other, before there are ranks: what trm_context_resolve would
 * refuse whatever ranks come.
 *   error  INVALID, UNSUPPORTED: as there */
TRM_API TRM_MUST_USE trm_status trm_context_check(const trm_context *context, trm_error *err);

/* Holds the options against each other and against the ranks there are, and says them in the words
 * of
 * trireme/exec.h. trm_model_create does this for a model.
 *   in     comm  NULL: one rank
 *   out    *parallel  lists in it belong to the context, until it is set, reset or destroyed;
 *                     stand_alone: comm is NULL in it; *accumulate: grad_accumulation_step
 *   error  INVALID (options that exclude each other, another number of ranks than device_num, an option
 *          of another parallel_mode), UNSUPPORTED (a value that the mode does not carry out)
 */
TRM_API TRM_MUST_USE trm_status trm_context_resolve(trm_context *context, trm_comm *comm,
                                                    trm_parallel_options *parallel,
                                                    int32_t *accumulate, trm_error *err);

/* A row of the table. */
typedef struct trm_context_option {
    const char *name;
    const char *alias;    /* an older name that is taken too; NULL = none */
    const char *values;   /* "true|false", "1 to 4096", "20,35" */
    const char *fallback; /* the default; "" = none */
    const char *modes;    /* the parallel modes in which it may be set */
    const char *meaning;
} trm_context_option;
/* Option `index`; false behind the last one.   owns  static strings   thread any */
TRM_API bool trm_context_option_at(int32_t index, trm_context_option *out);

/* ==== export ================================================================================ */

/* A model's weights for other programs. */

/* Parameters and states by the network's names (torchvision's), float32, plain layout. The file
 * appears whole or not at all.
 *   error  IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_safetensors(trm_model *model, const char *path,
                                                       trm_error *err);
/* The same as arrays for numpy.load. */
TRM_API TRM_MUST_USE trm_status trm_export_npz(trm_model *model, const char *path, trm_error *err);
/* The evaluation network from its input ("image", with an open batch) to "logits", opset 17. The
 * model
 * must have been made with evaluation_only.
 *   error  UNSUPPORTED naming an operator that has no form in ONNX, else as above */
TRM_API TRM_MUST_USE trm_status trm_export_onnx(trm_model *model, const char *path, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
