/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/train.h: a model and its training loop. Choose this door if the library may run the loop:
 * a model is a network, a loss, an optimiser and a learning rate; it is trained on a dataset,
 * evaluated, saved and resumed. (trireme/exec.h: a loop of your own; trireme/dist.h: a framework of
 * your own.)
 *
 *     trm_model *model;
 *     TRM_OR_EXIT(trm_model_create(&(trm_model_options){
 *         .network = network, .data = train_set, .learning_rate = {.base = 0.01},
 *         .exec = {.optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}}}, &model, &err));
 *     TRM_OR_EXIT(trm_model_train(model, &(trm_train_options){.data = train_set, .until_epoch = 10,
 *         .callbacks = {trm_loss_monitor(1, puts)}}, &err));
 *     TRM_OR_EXIT(trm_model_evaluate(model, test_set, &result, &err));
 *     trm_model_destroy(model);
 *
 * Sections:
 *
 *   networks and losses           what a model computes
 *   learning rate                 its schedule
 *   metrics of the program's own  figures of evaluations
 *   model                         options, creation, requests to stop
 *   evaluation, training          one pass over test data; the training loop
 *   checkpoints                   save, resume, load (export: trireme/io.h)
 *   callbacks                     reports, checkpoints, evaluations during training
 *   jobs with roles               chief, workers, parameter servers, evaluator
 *   metrics                       top-k and AUC, for loops of your own
 *
 * An epoch is one pass over the dataset, a step is one update of the parameters. The same seed,
 * data and options give the same bits, in sink mode or not, stopped and resumed or not. A step
 * allocates nothing after the first one of each training call.
 *
 *   threads  one thread at a time per model (except trm_model_request_stop) */
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
/* Returns the input of this name ("image", "label"), of the type and shape that the field has in a
 * batch of the dataset. If the dataset has no such field, returns TRM_NO_NODE, and the graph keeps
 * an error that lists the fields. */
TRM_API trm_node trm_inputs_get(const trm_inputs *inputs, const char *name);

/* Adds the network from inputs to logits and returns the logits. Called once for the training graph
 * and once for the evaluation graph (trm_graph_is_training says which); both times it must add the
 * same parameters. */
typedef trm_node (*trm_network)(trm_graph *graph, const trm_inputs *inputs, void *context);
/* Adds the loss from logits to a scalar. In an evaluation graph the rows that pad the last batch
 * have integer labels -1 and must not count; the losses below do so. */
typedef trm_node (*trm_loss)(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                             void *context);

/* Adds the mean softmax cross-entropy of the field "label", the default loss of a model. An
 * evaluation graph leaves label smoothing out.
 *   param    context: const trm_xent_options *, or NULL */
TRM_API trm_node trm_loss_softmax(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                                  void *context);
/* Adds trm_softmax_cross_entropy_expand of the field "label".
 *   param    context: unused
 *   level    expert */
TRM_API trm_node trm_loss_softmax_expand(trm_graph *graph, trm_node logits,
                                         const trm_inputs *inputs, void *context);
/* Adds the mean logistic loss of the field "label" (float32, 0 or 1) for logits [N] or [N, 1].
 *   param    context: unused */
TRM_API trm_node trm_loss_logistic(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                                   void *context);

/* Adds the softmax cross-entropy as small operators (max, sub, exp, sum, div, one-hot, log, mul,
 * sum, mul, mean): logits [N, K], labels int32 [N] -> scalar. Value and gradient agree with
 * trm_softmax_cross_entropy to 1e-6 while no probability underflows.
 *   level    expert */
TRM_API trm_node trm_softmax_cross_entropy_expand(trm_graph *graph, trm_node logits,
                                                  trm_node labels);

/* ---- learning rate ------------------------------------------------------------------------ */

/* The curve of the learning rate after warm-up; progress runs from 0 to 1. */
typedef enum trm_decay {
    TRM_DECAY_CONSTANT,
    TRM_DECAY_STEP,       /* base * gamma^(number of boundaries passed) */
    TRM_DECAY_COSINE,     /* from base to end along half a cosine */
    TRM_DECAY_POLYNOMIAL, /* end + (base - end) * (1 - progress)^power */
    TRM_DECAY_WSD         /* warm-up, stable, decay: base, at last linearly to end */
} trm_decay;

/* A schedule of the learning rate: a pure function of the global step. Zero means the default. */
typedef struct trm_learning_rate {
    trm_decay decay; /* form after warm-up */
    double base;     /* rate after warm-up; must be given */
    double end;      /* COSINE, POLYNOMIAL, WSD: rate at total_steps */
    double gamma;    /* STEP: factor at each boundary; 0 = 0.1 */
    /* STEP: steps between boundaries; 0 = total_steps / 3, at least 1. WSD: steps of the decay at
     * the end; 0 = total_steps / 10 */
    int64_t every_steps;
    double power;         /* POLYNOMIAL: exponent; 0 = 1 */
    int64_t warmup_steps; /* steps of linear rise from warmup_start to base; 0 = none */
    double warmup_start;  /* rate at the start of warm-up */
    int64_t total_steps;  /* 0 = the global step at which the training call is to end */
} trm_learning_rate;
/* Returns the rate of the update that makes global step `step` + 1 (the first has step 0). Warm-up
 * step s of w has start + (base - start) * (s + 1) / w; decay progresses over the steps after
 * warm-up.
 *   threads  any */
TRM_API double trm_learning_rate_at(const trm_learning_rate *rate, uint64_t step);

/* ---- metrics of the program's own ---------------------------------------------------------- */

/* The most metrics of a model, and sums of one metric. */
#define TRM_MAX_METRICS 8
#define TRM_MAX_METRIC_SUMS 16

/* A metric of the program's own, as sums over samples, so that batches and ranks can each add a
 * part. An evaluation begins with sums of zero, calls `add` for each batch, adds the sums of all
 * ranks, and then calls `value`: the same on all ranks. A mean has the sums {of the values,
 * samples}. */
typedef struct trm_metric {
    /* in trm_evaluation, CSV and JSON lines, TensorBoard; not that of a figure there ("loss") */
    const char *name;
    int32_t sum_count; /* 1 to TRM_MAX_METRIC_SUMS */
    /* adds the part of the first `samples` rows of logits and batch to sums[sum_count]; further
     * rows are padding */
    trm_status (*add)(void *context, const trm_tensor *logits, int64_t samples,
                      const trm_batch *batch, double *sums, trm_error *err);
    /* computes the value; NULL = sums[0] / sums[1], or sums[0] if there is one sum */
    double (*value)(void *context, const double *sums);
    void *context; /* for both functions; must outlive the model, as must `name` */
} trm_metric;

/* ---- model -------------------------------------------------------------------------------- */

/* A model: compiled programs, parameters, optimiser, position and notes. */
typedef struct trm_model trm_model;

/* Parameters on servers (trireme/ps.h): embedding tables (all parameters that trm_embedding reads)
 * and dense variables. The servers run the optimiser, and a worker holds nothing of a table's size.
 * Each rank of `parallel` needs a client of its own. */
typedef struct trm_ps_training {
    trm_ps_client *client; /* NULL = no servers. Borrowed, must outlive the model */
    /* hybrid: dense parameters stay on the workers and are reduced over `parallel` */
    bool tables_only;
    /* batches a lease: server 0 lends ranges of so many, so that each batch is used once an epoch
     * although workers come and go; `data` is then the same and unsharded on all workers. Not with
     * tables_only. 0 = off */
    int64_t lease_batches;
    /* time without a finished batch after which a worker's lease goes to other workers; 0 = 60 */
    double lease_seconds;
    /* hot rows of each embedding table that this worker keeps (trm_ps_client_cache); 0 = none */
    int64_t cache_rows;
    /* rows of the next batch are pulled during this one (in asynchronous mode not the variables of
     * a model without tables, since they would be old). Default: on */
    trm_switch prefetch;
    /* of dense variables: rows spread over all servers (default), whole variables or parts of them
     * in turn, or by their bytes */
    trm_placement_kind placement;
    trm_partition partition; /* of dense variables into parts */
    /* may change a table's options before it is declared (rows' type, admission, expiry,
     * optimiser): the same on every worker. NULL = unchanged */
    void (*table)(void *context, trm_table_options *options);
    void *context; /* for `table` */
} trm_ps_training;

/* The batch that an elastic job keeps when its ranks change.
 *
 *   global  the batch of all ranks, and with it the learning rate: each rank has another part of it
 *   rank    the batch of each rank (in a split graph its part, in a pipeline that of each rank of a
 *           stage): the batch of all ranks, and the learning rate, are multiplied by ranks now /
 *           ranks when the training began (linear scaling rule; not with parallel.sum, where
 *           gradients scale with the ranks). The schedule goes on with the samples: its
 *           position is the number of steps that the first ranks would have made with as many */
typedef enum trm_elastic_batch {
    TRM_ELASTIC_BATCH_GLOBAL,
    TRM_ELASTIC_BATCH_RANK
} trm_elastic_batch;

/* Options of a model. Zero means the default, except for network, data and, unless evaluation_only,
 * learning_rate.base. */
typedef struct trm_model_options {
    trm_network network;   /* adds the network; must be given */
    void *network_context; /* for `network`; must outlive the model, as must loss_context */
    trm_loss loss;         /* NULL = trm_loss_softmax */
    void *loss_context;    /* for `loss` */
    /* dataset with the shapes of the inputs, usually the training set; a model that only loads and
     * generates needs one, too, of any content (trm_dataset_arrays). Borrowed during the call */
    trm_dataset *data;
    trm_learning_rate learning_rate; /* schedule */
    /* how the model computes: optimiser, precision, threads, memory, ranks (trireme/exec.h). With
     * many ranks every call below is collective, each rank reads its own shard of the data, and
     * losses, samples and evaluations are those of all ranks together */
    trm_exec_options exec;
    /* parameter servers: trm_model_train trains on the servers, and trm_model_global_step is
     * theirs, updates by all workers. Weights and position are the servers', so such a model is not
     * saved, resumed or loaded */
    trm_ps_training ps;
    /* options by name, read in this call: they replace exec.parallel, except its comm, and
     * exec.accumulate. NULL = none. Borrowed during the call */
    trm_context *context;
    /* of evaluations; the first without `add` ends the list */
    trm_metric metrics[TRM_MAX_METRICS];
    /* no gradients and no optimiser: the model evaluates, loads and exports */
    bool evaluation_only;
    /* a checkpoint of other data, network, precision, backend or optimiser is resumed; false: it is
     * refused. Learning rate, schedule, momentum, weight decay, epochs and steps may always change,
     * with one warning that says how */
    bool accept_changes;
    const char *description; /* JSON object kept in checkpoints; NULL = "{}" */
    /* elastic job whose ranks train the model: when ranks die, the others share the
     * same global batch (elastic_batch) and go on (trm_elastic_create). exec.parallel.comm is then
     * set by the model, and what trm_model_exec and trm_model_graph return is valid until the ranks
     * change. Outlives the model. NULL = the ranks do not change */
    trm_elastic *elastic;
    trm_elastic_batch elastic_batch; /* of an elastic job */
} trm_model_options;

/* Builds the graphs and compiles them. Collective with many ranks.
 *   errors   INVALID (options, graph), NOMEM (with the bytes needed and present), those of
 *            trm_exec_create
 *   owns     caller: trm_model_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_model_create(const trm_model_options *options, trm_model **out,
                                                 trm_error *err);
/* Frees the model. NULL is accepted. */
TRM_API void trm_model_destroy(trm_model *model);

/* Returns the compiled training program; with evaluation_only the evaluation program.
 *   owns     the model */
TRM_API trm_exec *trm_model_exec(trm_model *model);
/* Returns the graph that the program was compiled from, before differentiation.
 *   param    logits: node of the logits, written; NULL = not wanted
 *   owns     the model */
TRM_API const trm_graph *trm_model_graph(const trm_model *model, trm_node *logits);
/* Returns the steps since the initial values. */
TRM_API uint64_t trm_model_global_step(const trm_model *model);

/* Ends the running trm_model_train after its current step, in sink mode too: callbacks save, and it
 * returns TRM_CANCELLED; with many ranks on all of them, one step later. Without a running call the
 * next one returns at once.
 *   threads  any; may be called from a signal handler */
TRM_API void trm_model_request_stop(trm_model *model);
/* Makes this rank leave its elastic job after the current step; its trm_model_train returns
 * TRM_END, and the others go on. Where too few ranks would be left, all stop as by
 * trm_model_request_stop; so does a model of no elastic job.
 *   threads  any; may be called from a signal handler */
TRM_API void trm_model_request_leave(trm_model *model);

/* Keeps a named number in the model's checkpoints, for callbacks whose state must survive a resume
 * (the best loss so far). At most 32 names of at most 47 bytes.
 *   errors   INVALID (too many names, a name that is too long) */
TRM_API TRM_MUST_USE trm_status trm_model_set_note(trm_model *model, const char *name, double value,
                                                   trm_error *err);
/* Gives the number of this name.
 *   param    value: written if there is one
 *   returns  false if there is none */
TRM_API bool trm_model_get_note(const trm_model *model, const char *name, double *value);

/* ---- evaluation ---------------------------------------------------------------------------- */

/* Result of an evaluation. */
typedef struct trm_evaluation {
    double loss;       /* mean over samples */
    int64_t samples;   /* that were evaluated */
    double seconds;    /* that the evaluation took */
    bool has_top;      /* top1 and top5 are valid: logits [N, K] and integer labels */
    double top1, top5; /* fractions of samples, 0 to 1 */
    bool has_auc;      /* the next three are valid: logits [N] or [N, 1] and float labels */
    /* as in trm_auc_values */
    double auc, logloss, calibration;
    /* the next three are valid: the model reads the fields "tokens" and "targets" of token data.
     * Targets of -100 do not count; the loss is then the mean over tokens */
    bool has_tokens;
    int64_t tokens;       /* that were predicted */
    double perplexity;    /* e to the power of the loss */
    double bits_per_byte; /* of the text; 0: bytes are unknown */
    bool has_accuracy;    /* the next one is valid: the loss is trm_linear_cross_entropy's */
    double accuracy;      /* share of the tokens that had the largest logit, 0 to 1 */
    int32_t metric_count; /* of trm_model_options.metrics */
    trm_named_scalar metrics[TRM_MAX_METRICS]; /* [metric_count] their values */
} trm_evaluation;

/* Evaluates the model on one pass over `data`, with its parameters and running statistics. The
 * first call compiles the evaluation program for the dataset's batch size; it shares the
 * parameters' memory. Neither training nor evaluation needs the other before it.
 *   param    data: has all fields that network and loss use
 *   errors   INVALID (a missing field), those of the dataset, CANCELLED (trm_model_request_stop) */
TRM_API TRM_MUST_USE trm_status trm_model_evaluate(trm_model *model, trm_dataset *data,
                                                   trm_evaluation *out, trm_error *err);

/* Receives one batch of an evaluation.
 *   param    logits: first dimension `samples`; borrowed
 *            batch: the batch that they belong to; borrowed
 *   returns  TRM_OK, or an error that ends the evaluation */
typedef trm_status (*trm_prediction_fn)(void *context, const trm_tensor *logits, int64_t samples,
                                        const trm_batch *batch, trm_error *err);

/* Evaluates, and gives each batch's logits to `see` in the order of the data. With many ranks, each
 * receives its own shard.
 *   param    see: receives the batches; context: for `see`
 *            out: NULL = not wanted: then the data needs no fields that the loss alone reads
 *            (labels)
 *   errors   those of trm_model_evaluate, and the error that `see` returned */
TRM_API TRM_MUST_USE trm_status trm_model_predict(trm_model *model, trm_dataset *data,
                                                  trm_prediction_fn see, void *context,
                                                  trm_evaluation *out, trm_error *err);
/* Evaluates the model on at most the first `steps` batches of each rank; else as
 * trm_model_evaluate.
 *   errors   as trm_model_evaluate; INVALID: `steps` below 1
 *   level    expert */
TRM_API TRM_MUST_USE trm_status trm_model_evaluate_steps(trm_model *model, trm_dataset *data,
                                                         int64_t steps, trm_evaluation *out,
                                                         trm_error *err);

/* ---- training ------------------------------------------------------------------------------ */

/* State of training as callbacks receive it. Times are of this call of trm_model_train. */
typedef struct trm_progress {
    trm_model *model;     /* the model */
    int64_t epoch;        /* from 1, over the model's life */
    int64_t epochs;       /* where training is to end; 0 = open */
    int64_t step;         /* within the epoch, from 1 */
    int64_t epoch_steps;  /* steps of an epoch */
    uint64_t global_step; /* steps since the initial values */
    float loss;           /* of this step; with accumulation the mean over its batches */
    double learning_rate; /* of this step */
    const trm_loss_scale_state *loss_scale; /* after this step; NULL when no loss is scaled */
    /* of this step; of this call in this epoch; of this call */
    int64_t step_samples, epoch_samples, samples;
    double step_seconds;              /* of this step; sink mode: mean of this epoch */
    double wait_seconds;              /* of the epoch so far: waiting for the dataset */
    double epoch_seconds;             /* since the epoch, or this call, began */
    double seconds;                   /* since this call began */
    double busy_seconds;              /* of these, in steps: without callbacks */
    double data_seconds;              /* since this call began: waiting for the dataset */
    const trm_evaluation *evaluation; /* the latest; NULL before the first */
    const char *checkpoint;           /* on_checkpoint: path of the checkpoint that was written */
    /* the ranks since the last change of an elastic job; NULL before the first change */
    const trm_membership *membership;
    bool stopping; /* on_end: training was stopped before the epochs were done */
} trm_progress;

/* Receives the state of training.
 *   returns  TRM_OK: training goes on; TRM_END: it ends after this step or epoch and returns TRM_OK
 *            (with many ranks the hooks of all ranks return it after the same step; one rank alone
 *            calls trm_model_request_stop, which all follow); an error: it ends with that error */
typedef trm_status (*trm_hook)(void *context, const trm_progress *progress, trm_error *err);

/* A callback: hooks, each of which may be NULL. A callback without any hook ends the list. The
 * training call takes the callback and calls `destroy` at its end, also after an error. */
typedef struct trm_callback {
    trm_hook on_begin;       /* after the position is known, before the first step */
    trm_hook on_epoch_begin; /* before an epoch's first step */
    trm_hook on_gradients;   /* gradients are complete, parameters still old (trm_exec_ranges) */
    /* after each step; sink mode: once, after the epoch's last step, or where the run ends inside
     * it */
    trm_hook on_step_end;
    trm_hook on_epoch_end;  /* after an epoch's last step */
    trm_hook on_evaluated;  /* after an evaluation by a callback */
    trm_hook on_checkpoint; /* after a checkpoint was written */
    trm_hook on_membership; /* the ranks of an elastic job have changed; then on_begin again */
    trm_hook on_end;        /* all epochs done, or stopped; not after an error */
    void (*destroy)(void *context); /* frees the context; NULL = nothing to free */
    void *context;                  /* for the hooks */
    /* its hooks run after those of all others (a checkpoint must hold their state) */
    bool last;
    /* a text: the collective work of its hooks, and when, such as "checkpoints every 100 steps";
     * NULL: none. Lives as long as the context. A process that comes to an elastic job with
     * callbacks of other texts is refused, because its calls would not meet those of the ranks */
    const char *together;
} trm_callback;

/* The most callbacks of a training call. */
#define TRM_MAX_CALLBACKS 16

/* Options of one training call. Zero means the default, except for `data` and an end of training:
 * until_epoch, until_step or both, of which the first that is reached counts. */
typedef struct trm_train_options {
    /* training set, read from the model's position on; borrowed during the call */
    trm_dataset *data;
    /* end of training, in epochs of the model's whole life: a model that has done 3 epochs trains 2
     * more with until_epoch 5, and none with 3. 0 = no such limit */
    int64_t until_epoch;
    int64_t until_step; /* in steps of the model's whole life; 0 = no such limit */
    bool sink; /* sink mode: on_step_end runs once an epoch, not after each step; same bits */
    /* file for the timeline of this call as Chrome trace JSON (ui.perfetto.dev shows it): kernels,
     * waiting, communication, batches; a process a rank, the first 400,000 events of each, written
     * by rank 0 at the end of the call (not after an error). NULL = none */
    const char *profile;
    trm_callback callbacks[TRM_MAX_CALLBACKS]; /* up to the first without hooks */
} trm_train_options;

/* Trains from the model's position: the initial values, or the resumed step.
 *   errors   CANCELLED (trm_model_request_stop), END (trm_model_request_leave; the model keeps the
 *            state of the last step), DIVERGED (naming the first operator), INVALID (also in a
 *            process that has come to an elastic job with another model, other data or options than
 *            the job has: it calls trm_elastic_destroy, for which the ranks wait 10 s at most),
 *            those of the dataset and of the callbacks */
TRM_API TRM_MUST_USE trm_status trm_model_train(trm_model *model, const trm_train_options *options,
                                                trm_error *err);

/* Returns the steps of an epoch of `data`, with the model's accumulation. Shards the data over the
 * model's ranks, as trm_model_train does; 0 if the pipeline does not check. */
TRM_API int64_t trm_model_epoch_steps(const trm_model *model, trm_dataset *data);

/* ---- checkpoints ---------------------------------------------------------------------------- */

/* Saves the whole state as directory/ckpt-STEP (trireme/io.h): parameters and states in part
 * "model", slots in part "optimizer", and step, epoch, position in the data, seed and notes. Only
 * between steps: from a callback, or outside of training. With many ranks all call it and rank 0
 * writes.
 *   param    writer: of rank 0; unused on other ranks
 *   errors   those of trm_checkpoint_save; earlier checkpoints are intact */
TRM_API TRM_MUST_USE trm_status trm_model_save(trm_model *model, trm_checkpoint_writer *writer,
                                               trm_error *err);
/* Restores the whole state from a checkpoint, or from the newest sound one of a directory. Damaged
 * ones are skipped with a warning in the log. The next trm_model_train continues bit for bit.
 *   errors   END (no checkpoint there, nothing changed), CORRUPT (only damaged ones), INVALID (of
 *            another network, optimiser, batch size or seed) */
TRM_API TRM_MUST_USE trm_status trm_model_resume(trm_model *model, const char *path,
                                                 trm_error *err);
/* Reads only parameters and states, from a checkpoint (or the newest sound one of a directory) or a
 * .safetensors file, or a Hugging Face folder (trireme/io.h). All of them are read before the
 * first one is set, which takes memory for a second copy meanwhile: an error changes nothing. The
 * log names tensors of a file or folder that the network does not have.
 *   param    partial: false = every parameter and state must be in the file with its shape; true =
 *            others keep their values
 *            skipped: number of those, written; NULL = not wanted
 *   errors   IO, CORRUPT, NOMEM, INVALID (naming the first tensor that does not fit) */
TRM_API TRM_MUST_USE trm_status trm_model_load(trm_model *model, const char *path, bool partial,
                                               int32_t *skipped, trm_error *err);

/* ==== callbacks ============================================================================= */

/* Callbacks of the library, for trm_train_options.callbacks.
 *
 *     .callbacks = {trm_loss_monitor(1, puts), trm_time_monitor(puts)}
 *
 * Each function makes one callback for one training call, which frees it. Training fails before its
 * first step with NOMEM if there was no memory for a callback, and with INVALID if options, a
 * directory, path, function or dataset are NULL, or a number of steps, epochs or seconds is below
 * 0. Strings are copied. */

/* Receives one line without its newline; `puts` of stdio fits. The result is ignored. */
typedef int (*trm_print)(const char *line);

/* Prints "epoch: 1 step: 156, loss is 2.0084016" every `every` steps; in sink mode once an epoch,
 * with the loss of the epoch's (or run's) last step.
 *   param    every: steps; 0 = only at the end of each epoch and of training
 *            print: receives the lines */
TRM_API trm_callback trm_loss_monitor(int64_t every, trm_print print);
/* Prints "epoch time: 4321.123 ms, per step time: 27.699 ms" at the end of each epoch.
 *   param    print: receives the lines */
TRM_API trm_callback trm_time_monitor(trm_print print);

/* Options of trm_model_checkpoint. Zero means the default, except for `directory`. */
typedef struct trm_model_checkpoint_options {
    const char *directory;         /* locked by this process until training ends */
    int64_t every_steps;           /* any of the three; when all are 0, every epoch */
    double every_seconds;          /* time between checkpoints */
    int64_t every_epochs;          /* epochs between checkpoints */
    trm_checkpoint_options writer; /* which checkpoints stay, and how they are written */
} trm_model_checkpoint_options;
/* Saves checkpoints as the options say, and at the end of training or when it is stopped. Sink
 * mode: only between epochs (and when stopped), at the end of the epoch in which one was due. If
 * the disk is full (NOSPACE), a save is left out with a warning and tried again when the next one
 * is due; the last one then fails. An elastic job that begins at step 0 fails (INVALID) where the
 * directory has checkpoints: its ranks may be those of an ended job, started again. */
TRM_API trm_callback trm_model_checkpoint(const trm_model_checkpoint_options *options);

/* Evaluates at the end of every `every_epochs`-th epoch and calls the other callbacks'
 * on_evaluated.
 *   param    data: test set, borrowed
 *            every_epochs: 0 = 1 */
TRM_API trm_callback trm_evaluate_every(trm_dataset *data, int64_t every_epochs);

/* The value that early stopping watches. */
typedef enum trm_watch {
    TRM_WATCH_EVALUATION_LOSS, /* less is better */
    TRM_WATCH_TOP1,            /* more is better */
    TRM_WATCH_LOSS             /* of the epoch's last step; less is better */
} trm_watch;
/* Options of trm_early_stop. Zero means the default. */
typedef struct trm_early_stop_options {
    trm_watch watch; /* the value */
    /* epochs (evaluations) without an improvement until training stops; 0 = 1 */
    int64_t patience;
    double min_delta; /* an improvement is more than this */
} trm_early_stop_options;
/* Stops training when the watched value no longer improves. Its state is kept in checkpoints. A
 * value of evaluations needs trm_evaluate_every in the same list (else INVALID). */
TRM_API trm_callback trm_early_stop(const trm_early_stop_options *options);

/* Writes a file of metrics (trireme/io.h): a line every `every` steps, at the end of each epoch,
 * and for each evaluation. A resumed run continues the file; lines of steps that come again are
 * dropped first. A full disk is logged once and does not stop training.
 *   param    path: ends in .csv or .jsonl
 *            every: 0 = 1 */
TRM_API trm_callback trm_metrics_recorder(const char *path, int64_t every);

/* Appends the events of training to DIRECTORY/run.jsonl, which `trireme report` and `trireme top`
 * read (docs/guides/reports.md): start, steps, evaluations, checkpoints, changes of ranks, end.
 * Rank N writes run-rank-N.jsonl beside it, from which reports have its waiting. A line that cannot
 * be written is logged once, and training goes on.
 *   param    every: a step is written every `every` steps, the first, and the last of an epoch; 0 =
 *            100 */
TRM_API trm_callback trm_run_recorder(const char *directory, int64_t every);

/* Where a training stood when a report of steps was made. Zero at first; `step` is that from which
 * the training began. */
typedef struct trm_report_mark {
    uint64_t step;
    int64_t samples, membership_epoch;
    double seconds;      /* in steps */
    double data_seconds; /* waiting for data */
    double rank_seconds; /* waiting for other ranks */
} trm_report_mark;
/* The mean of the steps since a report. */
typedef struct trm_mean_step {
    double step_seconds, data_wait_seconds;
    double rank_wait_seconds;  /* of step_seconds: waiting for other ranks */
    double samples_per_second; /* 0 = unknown */
} trm_mean_step;
/* Returns the mean of the steps since the mark, and moves the mark.
 *   level    expert */
TRM_API trm_mean_step trm_take_mean_step(trm_report_mark *mark, const trm_progress *progress);

/* Events of training that `trireme train --json` prints and trm_run_recorder writes. */
typedef enum trm_training_event {
    TRM_EVENT_STEP,       /* "step" */
    TRM_EVENT_EPOCH,      /* "epoch" */
    TRM_EVENT_EVALUATION, /* "eval"; the progress has the evaluation */
    TRM_EVENT_CHECKPOINT, /* "checkpoint"; the progress has the path */
    TRM_EVENT_MEMBERSHIP  /* "membership"; the progress has the membership */
} trm_training_event;
/* Returns the name of an event in JSON ("step").
 *   owns     static string
 *   level    expert */
TRM_API const char *trm_event_name(trm_training_event event);
/* Writes the members of an event as JSON, without the braces: "epoch":1,"step":20,...
 *   param    mean: of a step; NULL = left out
 *            text: [size] receives the text, cut at its end if it is longer; NULL with 0 = not
 *            wanted
 *   returns  bytes of the whole text without the terminating zero; 0 = there is no memory, or the
 *            progress has no such event
 *   level    expert */
TRM_API size_t trm_event_members(trm_training_event event, const trm_progress *progress,
                                 const trm_mean_step *mean, char *text, size_t size);

/* Options of trm_tensorboard. Zero means the default, except for `directory`. */
typedef struct trm_tensorboard_options {
    const char *directory;    /* of the event files */
    int64_t every_steps;      /* steps between scalars; 0 = 100 */
    int64_t histogram_epochs; /* epochs between histograms of the parameters; 0 = none */
    bool graph;               /* writes the network once */
} trm_tensorboard_options;
/* Writes an event file: loss, learning rate, images per second, evaluation, on request histograms
 * and the graph. A resumed run begins a new file that says from which step on. */
TRM_API trm_callback trm_tensorboard(const trm_tensorboard_options *options);

/* ==== jobs with roles ======================================================================== */

/* A job with roles. Chief, workers, parameter servers and an evaluator train and evaluate one model
 * together, or one process does all of it. `model_fn` fills in trm_model_options; the estimator
 * runs the loop, the servers and the checkpoints.
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
/* The most exporters of an evaluator. */
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
     * applied exactly once, also where processes were killed */
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

/* ==== metrics =============================================================================== */

/* Metrics as sums, so that batches, threads and ranks can each add a part and merge them: the
 * merged value is the value of all samples together.
 *
 *     trm_top_k top = {0};
 *     for each batch: trm_top_k_add(&top, logits, labels, rows, classes);
 *     printf("%.4f\n", trm_top_k_value(&top, 1));
 *
 *   threads  one thread at a time per object */

/* Top-k accuracy for k = 1 to 5. A row counts for k when fewer than k classes have a greater logit
 * than the true class (of equal ones the lower class is first). A row whose logit of the true class
 * is NaN does not count. */
typedef struct trm_top_k {
    int64_t hits[5]; /* rows by the place of the true class */
    int64_t samples; /* rows with a valid label */
} trm_top_k;
/* Adds the rows of a batch.
 *   param    logits: [rows, classes]
 *            labels: [rows]; rows with a label < 0 or >= classes are left out */
TRM_API void trm_top_k_add(trm_top_k *top, const float *logits, const int32_t *labels, int64_t rows,
                           int64_t classes);
/* Returns the top-k accuracy, 0 to 1; 0 without samples.
 *   param    k: 1 to 5 */
TRM_API double trm_top_k_value(const trm_top_k *top, int k);

/* Binary predictions: area under the ROC curve, log loss, calibration. Logits are counted in 2^16
 * bins that are exact in sign, exponent and the upper 7 bits of the mantissa (bfloat16): the AUC is
 * that of the logits rounded towards zero to bfloat16, ties count one half, and merging is exact.
 */
typedef struct trm_auc trm_auc;
/* Creates the counts of a binary metric, 1 MB.
 *   errors   NOMEM
 *   owns     caller: trm_auc_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_auc_create(trm_auc **out, trm_error *err);
/* Frees the counts. NULL is accepted. */
TRM_API void trm_auc_destroy(trm_auc *auc);
/* Sets the counts to zero. */
TRM_API void trm_auc_reset(trm_auc *auc);
/* Adds the rows of a batch. NaN logits are counted as such only.
 *   param    logits: [rows]
 *            labels: [rows]: above 0.5 is positive */
TRM_API void trm_auc_add(trm_auc *auc, const float *logits, const float *labels, int64_t rows);
/* Adds the counts of another object. */
TRM_API void trm_auc_merge(trm_auc *into, const trm_auc *from);
/* Values of a binary metric. */
typedef struct trm_auc_values {
    double auc;     /* area under the ROC curve; 0.5 when one class is missing */
    double logloss; /* mean of -log p(label), computed in float64 without overflow; 0 = no sample */
    double calibration; /* mean prediction / mean label: 1 is calibrated; 0 without positives */
    int64_t samples;    /* that count */
    int64_t nans;       /* NaN logits, which do not count */
} trm_auc_values;
/* Computes the values of all samples that were added. */
TRM_API void trm_auc_get(const trm_auc *auc, trm_auc_values *out);

#ifdef __cplusplus
}
#endif
#endif
