/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/exec.h: a graph compiled to a program, for training loops of your own. Choose this door
 * if the program decides what a step is. trireme/train.h builds on it, and is enough where the
 * library may run the loop.
 *
 *     trm_exec *exec;
 *     trm_exec_create(graph, &(trm_exec_options){.loss = loss, .optimizer = {.kind = TRM_MOMENTUM,
 *                     .momentum = 0.9}}, &exec, &err);
 *     for (int step = 0; step < steps; step++) {
 *         trm_exec_feed(exec, "image", images, &err);
 *         trm_exec_feed(exec, "label", labels, &err);
 *         trm_exec_forward_backward(exec, &err);      // loss and gradients
 *         trm_exec_update(exec, 0.01, &err);          // optimiser
 *         printf("%g\n", trm_exec_loss(exec));
 *     }
 *
 * An exec takes all its memory in trm_exec_create; steps allocate nothing.
 *
 * Sections:
 *
 *   options           of many ranks (trm_parallel_options), of an executor (trm_exec_options)
 *   creation, a step, variables
 *   many ranks        collective calls
 *   facts             about a program: step, memory, text; peak rates of the machine; a profile
 *   context options   options of many ranks by name
 *
 *   threads  one thread at a time per exec; kernels use OpenMP inside */
#ifndef TRIREME_EXEC_H
#define TRIREME_EXEC_H

#include "trireme/base.h"
#include "trireme/dist.h"
#include "trireme/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options --------------------------------------------------------------------------------- */

/* The rule by which gradients are grouped into buckets: one all-reduce takes a whole bucket. */
typedef enum trm_bucket_mode {
    /* buckets whose reduction ends first, by measured times; one where ranks fill the cores */
    TRM_BUCKET_AUTO,
    TRM_BUCKET_OFF,  /* one bucket for each gradient */
    TRM_BUCKET_SIZE, /* buckets of bucket_bytes each, or a little more */
    /* a bucket ends before each gradient of bucket_list (MindSpore's all_reduce_fusion_config) */
    TRM_BUCKET_LIST
} trm_bucket_mode;

/* The source of a split graph's plan (MindSpore's semi_auto_parallel and auto_parallel). */
typedef enum trm_split_kind {
    TRM_SPLIT_NONE, /* each rank runs the whole graph on its own samples */
    /* operators as the plan says; operators that read an input by samples, the rest follows */
    TRM_SPLIT_PLANNED,
    TRM_SPLIT_SEARCHED /* pins of the plan are kept, the rest is searched */
} trm_split_kind;

/* The samples that a rank feeds, and a model's dataset delivers, in one batch. */
typedef enum trm_batch_scope {
    /* models: a rank's own samples; executors: of a split graph all samples, else the rank's own */
    TRM_BATCH_DEFAULT,
    /* the rank's own samples, 1 / size of the batch: sample i of rank r is sample i * size + r */
    TRM_BATCH_OF_RANK,
    /* the samples of all ranks, on every rank; a model's dataset is not sharded. Only of a split
     * graph */
    TRM_BATCH_OF_JOB
} trm_batch_scope;

/* Options of splitting one graph, operator by operator, over a mesh of the ranks. The shapes of the
 * graph are those of the batch of all ranks. Results are those of one device; gradients are sums.
 * Zero is the default of every member. */
typedef struct trm_split_options {
    trm_split_kind kind; /* no split, a given plan, or a searched one */
    const char
        *mesh; /* "2x4"; NULL = the plan's, else one axis of all ranks (searched: the best) */
    /* text of a plan file (trireme plan --save), strategies by operator; NULL = none */
    const char *plan;
    /* searched: "optimal", "recursive", "propagation", or MindSpore's names for them; NULL =
     * optimal */
    const char *search;
    /* searched: runs, in turns, plans that are predicted to be nearly as fast as the best; the
     * fastest is taken and kept with the measured costs, so that the next job runs none. Default:
     * on; TRM_OFF: predictions alone decide */
    trm_switch trials;
    /* limit of the trials; 0 = as long as 240 steps take, 3 s at least and 40 s at most */
    double trial_seconds;
    /* searched: limit of measuring operators, over all rounds of the search; operators that were
     * not measured by then cost their roofline times the ratio of the nearest measured one of their
     * kind. Where no file of an earlier job has the messages between ranks, it is also a limit of
     * measuring these; those that were not measured by then cost what two all-reduces say. 0 =
     * operators as long as 500 steps take, 3 s at least and 30 s at most, or 40 steps if those are
     * longer; messages 6 to 60 s */
    double measure_seconds;
    const char *save_plan; /* file to which rank 0 writes the plan that runs; NULL = none */

    /* expert */

    /* training: file to which rank 0 writes which ranks hold the same parts of all parameters, a
     * line of ranks for each group: another rank of the line can replace a lost part. NULL = none
     */
    const char *save_groups;
    /* a tuple for each input, in the order in which the graph got them, with the number of parts of
     * each dimension: "((1,1,1,2),(2,))" cuts images by columns and labels by samples; each rank
     * feeds its part. At most one dimension of an input is cut. Of 4 ranks and 2 parts, ranks 0 and
     * 1 feed part 0. Samples are assigned to parts in turn, as in TRM_BATCH_OF_RANK; other
     * dimensions are cut into runs. Models: only the tuples are checked. NULL = by `batch` */
    const char *input_cuts;
    /* searched: the plan is for ranks of a running job whose number has changed, and which wait for
     * it: messages of a number of ranks, or of a group, that was not measured before cost what
     * those of the nearest number do. Elastic jobs set it */
    bool replans;
} trm_split_options;

/* The weight gradients that the processes of a host compute cooperatively: each process computes
 * its rows from the samples of all, in place of a sum over ranks. This is faster where weights are
 * large beside the values that they are computed from. The order of additions, and bits, change. */
typedef enum trm_cooperative {
    TRM_COOPERATIVE_OFF,
    TRM_COOPERATIVE_CONV, /* of convolutions */
    TRM_COOPERATIVE_ALL   /* of convolutions and fully connected layers */
} trm_cooperative;

/* The order in which the stages of a pipeline run micro-batches. */
typedef enum trm_schedule {
    TRM_SCHEDULE_1F1B,  /* one forward and one backward in turn: fewest micro-batches in flight */
    TRM_SCHEDULE_GPIPE, /* all forwards, then all backwards */
    TRM_SCHEDULE_INTERLEAVED /* 1F1B with several chunks of operators on each rank */
} trm_schedule;

/* A pipeline: the operators of the graph are cut into stages of neighbours, each of which is
 * trained by its own ranks (docs/internals/pipeline.md). Rank r belongs to stage
 * r / (ranks / stages); the ranks of one stage train it by the other members of
 * trm_parallel_options. The batches of an update (trm_exec_options.accumulate) are the
 * micro-batches: the calls of trm_exec_forward_backward before the last only keep their batch, the
 * last call runs the step, and trm_exec_loss is then the mean over all of them. */
typedef struct trm_pipeline_options {
    int32_t stages;        /* 0, 1 = no pipeline; divides the number of ranks */
    trm_schedule schedule; /* order of the micro-batches */
    int32_t chunks;        /* TRM_SCHEDULE_INTERLEAVED: runs of operators of each stage; 0 = 2 */
    /* names of the forward operators with which the second and further runs begin, separated by
     * commas, in the order of the graph; NULL = runs of equal time */
    const char *begins;
} trm_pipeline_options;

/* Value of sync_batch_norm: each rank normalises its own samples. */
enum { TRM_NORM_LOCAL = 1 };

/* Options of training one model on the ranks of a communicator: each rank with its part of the
 * batch, gradients reduced while backward runs; or one graph split over them. Zero is the default
 * of every member. Equal on all ranks. */
typedef struct trm_parallel_options {
    /* ranks that train together. NULL: a model uses the ranks that its process has joined
     * (trm_join), an executor is one rank. With one rank all below is without effect. Borrowed,
     * must outlive the executor */
    trm_comm *comm;
    bool stand_alone; /* models without `comm`: one rank, although the process has joined ranks */
    /* samples in a batch that a rank feeds: its own, or those of all ranks */
    trm_batch_scope batch;
    trm_pipeline_options pipeline; /* zero = every rank runs all operators */
    trm_split_options split; /* one graph over all ranks; zero = each rank runs the whole graph */
    bool sum;                /* gradients are summed over the ranks; false: their mean */
    trm_dtype wire;          /* type of gradients on the way: 0 = float32; bfloat16, float16 */
    trm_bucket_mode bucket;  /* which gradients one all-reduce takes */
    int64_t bucket_bytes;    /* TRM_BUCKET_SIZE: bytes of a bucket */
    /* TRM_BUCKET_LIST: [bucket_list_count] numbers of gradients; copied */
    const int32_t *bucket_list;
    int32_t bucket_list_count; /* 0 = none */
    /* each rank reduces, updates and publishes its slice, and only it has the slice's slots. Same
     * bits. Split graphs: where a plan leaves all parameters whole; other plans say where values
     * are */
    bool shard_optimizer;
    /* no effect without shard_optimizer, between hosts or threads, with buckets other than AUTO,
     * accumulate, blocks, layerwise, memory_bytes, or a plan that cuts more than samples */
    trm_cooperative cooperative;
    /* ranks whose samples batch norm's statistics are of: 0 = all, as on one device;
     * TRM_NORM_LOCAL = each rank its own; N = N neighbouring ranks (not of a split graph) */
    int32_t sync_batch_norm;
    /* hybrid_parallel: [layerwise_count] names, or prefixes ("fc" covers "fc.weight"), of
     * parameters that each rank keeps to itself, neither broadcast nor reduced; copied */
    const char *const *layerwise;
    int32_t layerwise_count; /* 0 = none */
    /* models, with one rank too: samples in a block of strict determinism, which gives the same
     * bits on any number of ranks and threads, and under any plan, for an equal global batch.
     * Divides each rank's batch; -1 = the largest power of 2 that divides the global batch into 8
     * blocks or more, from 32 samples a block on into 64 or more; 0 = off. Batch norm is over the
     * global batch. Costs: trireme help deterministic */
    int32_t block;
    /* expert: creation sends rank 0's parameters and states to all ranks. Default: on */
    trm_switch broadcast;
} trm_parallel_options;

/* Loss scaling for half precision: the loss is multiplied by a scale before backward, and gradients
 * are divided by it before clipping and update, so that small ones do not become zero. A gradient
 * that overflows skips the update (it counts as a step); `dynamic` then shrinks the scale, and
 * grows it after good steps. As TensorFlow's FixedLossScaleManager and
 * ExponentialUpdateLossScaleManager. */
typedef struct trm_loss_scale_options {
    bool on;              /* scales the loss */
    bool dynamic;         /* the scale changes; false: it is fixed */
    double initial;       /* first scale, >= 1; 0 = 65536 */
    double grow_by;       /* factor > 1; 0 = 2 */
    double shrink_by;     /* factor in (0, 1); 0 = 0.5 */
    int32_t grow_every;   /* good steps until the scale grows; 0 = 2000 */
    int32_t shrink_after; /* overflows until it shrinks; 0 = 1 */
} trm_loss_scale_options;

/* Options of an executor, also inside those of a model (trm_model_options.exec). Zero means the
 * default. */
typedef struct trm_exec_options {
    trm_precision precision;         /* types that the program computes with */
    trm_optimizer_options optimizer; /* rule of trm_exec_update; zero = SGD */
    /* compute threads; 0 = as many as the step needs, at most OMP_NUM_THREADS, or without it the
     * CPUs that this process may use, shared with the other processes of the job on this host.
     * Equal graph, options and CPUs give an equal number */
    int threads;
    uint64_t seed;                     /* of initial values and dropout */
    trm_loss_scale_options loss_scale; /* trm_exec_ranges then has scaled gradients */
    /* limit of a rank's memory for training (parameters, gradients, optimiser, activations, as
     * trireme plan counts them): a searched plan stays below it, one device recomputes activations
     * in backward, a program above it is refused (NOMEM, with the least that is needed). 0 = no
     * limit; none is below 0 */
    int64_t memory_bytes;
    /* gradients of so many forward_backward calls (models: batches) are averaged; 0 = 1. A model
     * leaves out an epoch's last incomplete group. Never below 0 */
    int32_t accumulate;
    /* values of segments (trm_graph_mark_segment) are not kept for backward, but computed again
     * there: less memory, more time, the same bits */
    bool recompute;
    trm_parallel_options parallel; /* many ranks; zero = one */

    /* expert: how kernels are chosen */

    const char *backend;     /* "onednn" or "ref"; NULL = onednn */
    const char *tuning_file; /* tuning cache; NULL = in the cache directory, "" = none */
    /* by default a process measures kernels for 0.33 s and uses the cost model for the rest; both
     * are kept in tuning_file, so that later runs compute the same bits. Positive: seconds for
     * measuring, too, choices that the cost model made */
    double retune_seconds;
    /* kernels that one run has chosen: read before tuning_file, new ones are appended, so that a
     * restarted run computes the same bits. A file for each rank; NULL = none */
    const char *choices_file;
    /* adjacent operators run as one. Default: on; TRM_OFF: each by itself, for comparison */
    trm_switch fusion;
    /* parameters and states get initial values. Default: on; TRM_OFF: they are zero until
     * trm_exec_write, for callers that write all of them before the first step */
    trm_switch initialise;
    /* the state lies in memory that the other ranks of the host can map: slots of the optimiser,
     * and in a pipeline the parameters and accumulated gradients of a stage (those of other ranks
     * do anyway). Default: off; elastic jobs set it */
    trm_switch share_slots;
    /* processes of the job on this host; 0 = the ranks of parallel.comm on it */
    int32_t host_processes;

    /* what is compiled. A model sets these itself: they must be zero in trm_model_options */

    trm_node loss;           /* scalar node; TRM_NO_NODE: forward only */
    const trm_node *outputs; /* [outputs_count] nodes that trm_exec_output reads after a step */
    int32_t outputs_count;
    /* executor whose parameters and states this one uses (evaluation); NULL = its own. Must outlive
     * this one */
    const struct trm_exec *parameters_of;
    /* evaluation graphs: conversions of parameters to bfloat16 are made in the first run and kept,
     * until trm_exec_write. With `parameters_of` the parameters may not change; that executor's
     * kept conversions serve this one, if it has them all */
    bool keep_casts;
    /* parameter servers update the parameters: no slots, and trm_exec_update is refused */
    bool updated_elsewhere;
    /* all gradients are written, and nothing else into their memory: for programs that sum the
     * gradients of ranks themselves (trm_exec_ranges). False: gradients of large matrices over few
     * samples are multiplied inside the update and never written, where no reduction and no caller
     * reads them; those of embedding tables have only the rows of the batch; and one process keeps
     * activations in the memory of gradients that are not made yet, so that trm_exec_forward
     * overwrites them */
    bool whole_gradients;
    /* strict determinism, the same bits on any number of ranks and threads: number of equal blocks
     * of this rank's batch, or of the whole batch of a split graph; sample i that is fed belongs to
     * block i modulo `blocks`. Sums over samples are made block by block and added in a fixed
     * order. Losses, batch norm and gradients are of the batch of all ranks. Not for operators that
     * mix samples other than by sums, norms and losses. 0 = off. Models use
     * trm_parallel_options.block */
    int32_t blocks;
} trm_exec_options;

/* ---- creation -------------------------------------------------------------------------------- */

/* An executor: a compiled program with its memory and optimiser. */
typedef struct trm_exec trm_exec;

/* Compiles the graph (differentiates, fuses, lays out, places), takes all memory and sets the
 * initial values. Takes milliseconds, plus the time for measuring operators that are new on this
 * machine. Collective with a communicator.
 *   errors   INVALID (a broken graph, a loss that is no scalar, options), NOMEM (with the bytes
 *            needed and present), IO
 *   owns     caller: trm_exec_destroy(*out); the graph stays the caller's and may be destroyed
 *            afterwards */
TRM_API TRM_MUST_USE trm_status trm_exec_create(const trm_graph *graph,
                                                const trm_exec_options *options, trm_exec **out,
                                                trm_error *err);
/* Frees the exec. NULL is accepted. */
TRM_API void trm_exec_destroy(trm_exec *exec);

/* ---- a step ---------------------------------------------------------------------------------- */

/* Gives the memory of an input, to be written before a step, in plain layout and the graph's type.
 * The next batch may be written before trm_exec_update, too, by a caller that calls this after
 * trm_exec_forward_backward, or feeds: the update then does not repeat the step to find where a NaN
 * comes from. An input keeps its values until new ones are written or fed.
 *   errors   INVALID (no such input; the sentence lists the names)
 *   owns     the exec: valid until trm_exec_destroy */
TRM_API TRM_MUST_USE trm_status trm_exec_input(trm_exec *exec, const char *name, trm_tensor *out,
                                               trm_error *err);
/* Copies a tensor into an input; shape and type must match. With trm_exec_options.blocks it orders
 * the rows by block; trm_exec_input and trm_exec_output have them in that order, too.
 *   errors   INVALID (with both shapes or types, or the names of the inputs) */
TRM_API TRM_MUST_USE trm_status trm_exec_feed(trm_exec *exec, const char *name,
                                              const trm_tensor *tensor, trm_error *err);

/* Runs the forward steps only. For evaluation graphs. With a training graph the gradients of the
 * last trm_exec_forward_backward may be lost, because activations take their memory:
 * trm_exec_update and trm_exec_gradient are then refused until its next call. Dense gradients stay
 * with trm_exec_options.whole_gradients, and accumulated ones.
 *   errors   INVALID (an input that never got values, an id outside of a table), the error of an
 *            operator of the program's own, with many ranks those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_exec_forward(trm_exec *exec, trm_error *err);
/* Runs forward and backward, and adds 1 / accumulate of the gradients to the gradient range. With a
 * communicator, the last call before an update is collective: it returns with the gradients reduced
 * over all ranks (shard_optimizer: this rank's slices of them), and trm_exec_loss is the mean over
 * the ranks.
 *   errors   INVALID (a graph without a loss), those of trm_exec_forward */
TRM_API TRM_MUST_USE trm_status trm_exec_forward_backward(trm_exec *exec, trm_error *err);
/* Applies the optimiser to all parameters and readies the gradient range for the next step. It uses
 * the gradients of the last trm_exec_forward_backward, again if it is called twice; before the
 * first one they are 0.
 *   param    learning_rate: of this update
 *   errors   INVALID (a graph without a loss, updated_elsewhere, too few accumulated calls,
 *            gradients that trm_exec_forward has overwritten),
 *            DIVERGED (a gradient is NaN or infinite, with a loss scale: at scale 1; the sentence
 *            names the first operator, for which all ranks repeat the step; in a pipeline, and
 *            where the next batch was fed on any rank, the first parameter), with many ranks those
 *            of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_exec_update(trm_exec *exec, double learning_rate,
                                                trm_error *err);
/* State of loss scaling, as checkpoints keep it. */
typedef struct trm_loss_scale_state {
    double scale;      /* factor of the loss */
    int32_t good, bad; /* steps since the scale changed; since an overflow */
    int64_t skipped;   /* updates skipped so far */
    bool overflow;     /* the last update was skipped */
} trm_loss_scale_state;
/* Gives the state of loss scaling.
 *   returns  false if no loss is scaled */
TRM_API bool trm_exec_get_loss_scale(const trm_exec *exec, trm_loss_scale_state *out);
/* Continues loss scaling from the state of a checkpoint.
 *   errors   INVALID (no loss is scaled, or a scale that is no positive number) */
TRM_API TRM_MUST_USE trm_status trm_exec_set_loss_scale(trm_exec *exec,
                                                        const trm_loss_scale_state *state,
                                                        trm_error *err);

/* Returns the loss of the last forward pass; once gradients are reduced, the mean of all ranks. */
TRM_API float trm_exec_loss(const trm_exec *exec);
/* Gives output `index` of trm_exec_options.outputs, in plain layout, float32 or integer.
 *   errors   INVALID (no such output)
 *   owns     *out points into the exec: valid until the next step */
TRM_API TRM_MUST_USE trm_status trm_exec_output(trm_exec *exec, int32_t index, trm_tensor *out,
                                                trm_error *err);

/* ---- variables ------------------------------------------------------------------------------- */

/* Kinds of variables. A variable has an index (0 to count - 1) and a name, and is read and written
 * in plain layout. */
typedef enum trm_variable_kind {
    TRM_VARIABLE_PARAMETER,
    TRM_VARIABLE_STATE,
    TRM_VARIABLE_SLOT
} trm_variable_kind;
/* Description of a variable. */
typedef struct trm_variable {
    /* "layer1.0.conv1.weight", slots "layer1.0.conv1.weight/momentum". Of MOMENTUM, NESTEROV and
     * LARS: momentum; ADAGRAD: accumulator; ADAM, LAZY_ADAM: m, v; FTRL: n, z. The exec's */
    const char *name;
    trm_variable_kind kind; /* parameter, state or slot */
    trm_dtype dtype;        /* of its elements */
    trm_shape shape;        /* of the whole variable, also where a plan cuts it */
} trm_variable;
/* Returns the number of parameters, states and slots. */
TRM_API int32_t trm_exec_variable_count(const trm_exec *exec);
/* Describes variable `index`; all zero if there is none.
 *   owns     name: the exec */
TRM_API trm_variable trm_exec_variable(const trm_exec *exec, int32_t index);
/* Returns the index of a variable; -1 if there is none of this name. */
TRM_API int32_t trm_exec_find(const trm_exec *exec, const char *name);
/* Copies a variable out in plain layout. Of a cut variable, a rank has its own part and zeros until
 * trm_exec_gather.
 *   param    index: 0 to trm_exec_variable_count - 1; another one copies nothing
 *            data: room for the whole variable */
TRM_API void trm_exec_read(const trm_exec *exec, int32_t index, void *data);
/* Sets a variable from plain layout. Of a cut variable, a rank takes its own part; one that another
 * stage of a pipeline has is left out. If there is no memory for that part, the steps that follow
 * return NOMEM.
 *   param    index: 0 to trm_exec_variable_count - 1; another one sets nothing
 *            data: the whole variable */
TRM_API void trm_exec_write(trm_exec *exec, int32_t index, const void *data);
/* Copies the gradient of a parameter out after forward_backward, in plain float32. Collective for a
 * parameter that a plan cuts.
 *   param    index: 0 to trm_exec_variable_count - 1, of a parameter
 *            data: room for the parameter's elements; a frozen one has zeros
 *   errors   INVALID (not a parameter, gradients that trm_exec_forward has overwritten); of a cut
 *            parameter NOMEM, also of another rank, and those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_exec_gradient(const trm_exec *exec, int32_t index, float *data,
                                                  trm_error *err);
/* Gives all parameters that are not frozen, and their gradients, as one range each, in the order in
 * which backward finishes the gradients: the operands of collectives and of the three calls of
 * trireme/dist.h. Elements have the program's own layouts; trm_exec_read and trm_exec_gradient give
 * plain ones. The gradient of an embedding table, of which only rows are updated, is in the range
 * with whole_gradients, else it is 0 there.
 *   param    count: elements of a range: parameters begin at aligned offsets, with unused elements
 *            between them, which are 0 in gradients
 *   owns     the exec: valid until trm_exec_destroy */
TRM_API void trm_exec_ranges(trm_exec *exec, float **parameters, float **gradients, int64_t *count);

/* ---- many ranks: these are collective, and have no effect without a communicator ------------- */

/* Copies rank 0's parameters, states, slots and step to all ranks, except layerwise parameters.
 *   errors   those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_exec_broadcast(trm_exec *exec, trm_error *err);
/* Completes on every rank the variables of which a rank holds a part, so that trm_exec_read returns
 * them whole: slots with shard_optimizer, all variables of a split graph.
 *   errors   NOMEM (also of another rank), those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_exec_gather(trm_exec *exec, trm_error *err);

/* Facts about the reduction of gradients over ranks. */
typedef struct trm_parallel_info {
    int32_t rank, size; /* 0 and 1 without a communicator */
    int32_t buckets;    /* number of buckets */
    int64_t bytes;      /* sent through the reduction in a step, in the wire's type */
    /* seconds of an empty message, and bandwidth, measured at creation */
    double alpha, bytes_per_second;
    /* all ranks map one copy of the parameters: shard_optimizer, processes of one host */
    bool one_copy;
    /* conversions of parameters to bfloat16 that are shared in the same way, made after the update
     */
    int32_t casts;
    /* of the reduction with these buckets, and of backward; 0 = not measured yet */
    double predicted_end_seconds, backward_end_seconds;
    int64_t cooperative_bytes; /* of cooperative gradients, which are not sent */
    int64_t always_zero_bytes; /* of gradients that are always zero, which are not sent */
} trm_parallel_info;
/* Describes how gradients are reduced.
 *   level    expert */
TRM_API void trm_exec_get_parallel_info(const trm_exec *exec, trm_parallel_info *out);

/* The plan that a search has chosen. Filled on rank 0, zero on other ranks. */
typedef struct trm_searched_plan {
    /* false on other ranks, and where no plan was searched: all else is zero then */
    bool searched;
    char text[240];      /* in words: "data parallel, mesh 2: 31 operators by samples" */
    double step_seconds; /* predicted time of a step */
    /* the same of data parallel; 0 = there is no such plan */
    double data_parallel_step_seconds;
    double measured_step_seconds; /* of the plan, where plans were run in turns; 0 = none was */
    double search_seconds;        /* of the whole search, with measuring and runs */
} trm_searched_plan;
/* Describes the plan that a search has chosen.
 *   level    expert */
TRM_API void trm_exec_get_searched_plan(const trm_exec *exec, trm_searched_plan *out);

/* Time spent waiting for other ranks after backward, averaged over up to 250 recent steps, in
 * seconds of a rank, mean of all ranks. At each synchronisation point (gradients, norms, slices of
 * parameters, casts) the last rank to arrive waits only for communication; the additional wait of
 * the others is load imbalance. */
typedef struct trm_waiting {
    double step_seconds;                             /* forward, backward and update of a step */
    double communication_seconds, imbalance_seconds; /* of these, waiting */
    int64_t meetings;                                /* synchronisation points that were counted */
} trm_waiting;
/* Returns the seconds that this rank alone has waited for other ranks after backward, since the
 * executor was created; 0 with one rank. Nothing is sent.
 *   level    expert */
TRM_API double trm_exec_waiting_seconds(const trm_exec *exec);
/* Starts the measurement of trm_exec_get_waiting anew. All ranks call it, between the same steps.
 *   level    expert */
TRM_API void trm_exec_begin_waiting(trm_exec *exec);
/* Gives the time spent waiting since trm_exec_begin_waiting; all zero with one rank. Collective.
 *   errors   those of trm_comm_run
 *   level    expert */
TRM_API TRM_MUST_USE trm_status trm_exec_get_waiting(trm_exec *exec, trm_waiting *out,
                                                     trm_error *err);

/* ---- facts ----------------------------------------------------------------------------------- */

/* Returns the global step: the number of updates. Dropout depends on it. */
TRM_API uint64_t trm_exec_step(const trm_exec *exec);
/* Sets the global step, for a resume. */
TRM_API void trm_exec_set_step(trm_exec *exec, uint64_t step);

/* Memory, work and threads of a program. */
typedef struct trm_exec_info {
    int64_t parameter_count; /* elements that are trained */
    /* arenas; activations that lie in the memory of gradients (trm_exec_options.whole_gradients)
     * are in gradient_bytes alone */
    int64_t parameter_bytes, gradient_bytes, slot_bytes, activation_bytes, other_bytes;
    /* outside the arenas: tables of kernels, the program, the library's code */
    int64_t overhead_bytes;
    int64_t total_bytes;      /* growth of a process that trains with this exec */
    double flops;             /* of one forward_backward (or forward) */
    double predicted_seconds; /* of one step */
    double create_seconds;    /* that trm_exec_create took */
    int32_t steps;            /* program steps */
    int32_t threads;          /* that a step computes with */
    const char *backend;      /* "onednn" or "ref" */
} trm_exec_info;
/* Describes memory, work and threads of the program. */
TRM_API void trm_exec_get_info(const trm_exec *exec, trm_exec_info *out);
/* Returns the program as text, or as one JSON object: operators, layouts, fusions, memory by
 * category, FLOPs, predicted time.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free
 *   level    unstable */
TRM_API char *trm_exec_explain(const trm_exec *exec, bool json);

/* Peak rates of the machine, measured by loops that do nothing else: multiply-adds on registers,
 * and four kinds of memory traffic over working sets of rising size, so that each cache shows. */
enum { TRM_PEAK_SETS = 12 };
/* Kinds of memory traffic. */
typedef enum trm_peak_mix {
    TRM_PEAK_READ,  /* sum of a */
    TRM_PEAK_TRIAD, /* a = b + s c */
    TRM_PEAK_COPY,  /* a = b */
    TRM_PEAK_WRITE, /* a = s */
    TRM_PEAK_MIXES
} trm_peak_mix;
/* Bandwidth in one working set. */
typedef struct trm_peak_memory {
    int64_t bytes; /* size of the working set */
    /* read and written, with the faster kind of stores */
    double bytes_per_second[TRM_PEAK_MIXES];
} trm_peak_memory;
/* Peak rates of the machine. */
typedef struct trm_machine_peak {
    int32_t threads; /* that measured together */
    /* per second; bfloat16 pairs: 0 = no such instruction */
    double float32_flops, bfloat16_flops;
    trm_peak_memory memory[TRM_PEAK_SETS]; /* [memory_count] by rising working set */
    int32_t memory_count;
} trm_machine_peak;
/* A meter: repeated measurement of the machine's peak rates. One meter exists at a time. */
typedef struct trm_meter trm_meter;
/* Creates a meter. It holds at most 400 MB until it is destroyed.
 *   param    threads: 0 = the CPUs that this process may use
 *   errors   NOMEM
 *   owns     caller: trm_meter_destroy(*out)
 *   level    unstable */
TRM_API TRM_MUST_USE trm_status trm_meter_create(int threads, trm_meter **out, trm_error *err);
/* Frees the meter. NULL is accepted. */
TRM_API void trm_meter_destroy(trm_meter *meter);
/* Runs each loop once, a quarter of a second in all.
 *   level    unstable */
TRM_API void trm_meter_sample(trm_meter *meter);
/* Gives, of all samples so far, the median and the highest rate of each loop.
 *   param    median, best: NULL = not wanted
 *   level    unstable */
TRM_API void trm_meter_get_peaks(const trm_meter *meter, trm_machine_peak *median,
                                 trm_machine_peak *best);
/* Returns the seconds that moving `bytes`, of which `written` are written, takes at the rates of
 * that mix, in the largest working set of at most `held` bytes.
 *   threads  any
 *   level    unstable */
TRM_API double trm_machine_memory_seconds(const trm_machine_peak *peak, double bytes,
                                          double written, double held);

/* One program step as trm_exec_profile measures it. */
typedef struct trm_step_profile {
    /* of the operator and its kernel; phase: forward, backward or update */
    const char *name, *kind, *algorithm, *phase;
    /* median of the repeats; FLOPs; bytes moved, and of these written */
    double seconds, flops, bytes, written_bytes;
    /* of these, moved by a first pass that must end before the rest begins (the statistics of a
     * norm) */
    double first_bytes, first_written_bytes;
    /* FLOPs that must be executed in the type of the main input (below `flops` because padding is
     * left out), or, instead, in float32 regardless of the input type (Winograd's products, which
     * lose too much accuracy in bfloat16) */
    double work_flops, work_float32;
    bool bfloat16; /* type of the main input */
    /* moved since its large inputs were last used, itself included: a smaller cache no longer holds
     * them */
    double reuse_bytes;
    /* number of equal operators (kind, shapes, layout) in the program, with this one */
    int32_t same;
    int32_t first_same; /* index of the first of them */
} trm_step_profile;
/* Options of a profile. Zero means the default. */
typedef struct trm_profile_options {
    int32_t repeats; /* runs of the program; 0 = 1 */
    /* rates are sampled after each run (and FLOP/s 20 times per second between operators), so that
     * both are measured at the same clock frequency and load; NULL = nothing is measured beside */
    trm_meter *beside;
    /* the optimiser runs after each run at learning rate 0, which changes only its slots, and is
     * the last step of the profile (kind "optimizer") */
    bool update;
    /* another thread or a signal handler sets it to another value than 0, and the profile ends
     * after the operator that runs; NULL = none */
    const int32_t *stop;
} trm_profile_options;
/* The times of a whole program. */
typedef struct trm_program_profile {
    const trm_step_profile *steps; /* [count] the exec's, valid until the next profile */
    int32_t count;                 /* of steps */
    double seconds;                /* of one run, median */
} trm_program_profile;
/* Runs the program some times and gives the median time of each program step.
 *   param    options: NULL = defaults
 *   errors   CANCELLED (`stop`), those of trm_exec_forward_backward and trm_exec_update
 *   level    unstable */
TRM_API TRM_MUST_USE trm_status trm_exec_profile(trm_exec *exec, const trm_profile_options *options,
                                                 trm_program_profile *out, trm_error *err);

/* ==== context options ======================================================================= */

/* Members of trm_parallel_options by name, as MindSpore's set_auto_parallel_context takes them. A
 * context belongs to the code that made it; there is no global one. trm_model_create reads it
 * (trireme/train.h); a loop of your own calls trm_context_resolve.
 *
 *     trm_context *context;
 *     trm_context_create(&context, &err);
 *     trm_context_set(context, "parallel_mode", "data_parallel", &err);
 *     trm_context_set(context, "mirror_mean", "true", &err);
 *     trm_model_options options = {.exec = {.parallel = {.comm = comm}}, .context = context, ...};
 *     trm_model_create(&options, &model, &err);
 *     puts(trm_context_get(context, "device_num"));               the ranks of comm
 *     trm_context_reset(context);                                 before the next case
 *
 * Values are words and numbers in text, as on a command line; trm_context_option_at gives the table
 * of all options (`trireme help context` prints it).
 *
 *   threads  one thread at a time per context */

/* Options of parallel training by name. */
typedef struct trm_context trm_context;

/* Creates a context with all options at their defaults.
 *   errors   NOMEM
 *   owns     caller: trm_context_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_context_create(trm_context **out, trm_error *err);
/* Frees the context. NULL is accepted. */
TRM_API void trm_context_destroy(trm_context *context);

/* Sets one option; strings are copied. Words and truth values may be in upper or lower case.
 *   errors   INVALID (no such option, with the nearest name; a value outside of its range),
 *            UNSUPPORTED (another value of an option that can only have one, with the reason) */
TRM_API TRM_MUST_USE trm_status trm_context_set(trm_context *context, const char *name,
                                                const char *value, trm_error *err);
/* Returns the value of an option: the one that was set, else the default. device_num and
 * global_rank are those of the communicator once a model has been made.
 *   returns  NULL: no such option
 *   owns     the context: valid until the next call with it */
TRM_API const char *trm_context_get(const trm_context *context, const char *name);
/* Returns true if the option was set since the last reset; false if there is no such option. */
TRM_API bool trm_context_is_set(const trm_context *context, const char *name);
/* Sets every option to its default. */
TRM_API void trm_context_reset(trm_context *context);

/* Returns true if the context, in a split mode, makes each of `ranks` ranks read its own samples:
 * full_batch false, dataset_strategy data_parallel, or tuples that cut each input by samples into
 * `ranks` parts.
 *   level    expert */
TRM_API bool trm_context_own_samples(const trm_context *context, int32_t ranks);

/* Checks the options against each other: the errors of trm_context_resolve that hold for any ranks.
 *   errors   INVALID, UNSUPPORTED: as trm_context_resolve */
TRM_API TRM_MUST_USE trm_status trm_context_check(const trm_context *context, trm_error *err);

/* Checks the options against each other and against the ranks, and translates them to
 * trm_parallel_options. trm_model_create does this for a model.
 *   param    comm: NULL = one rank
 *            parallel: written; lists in it belong to the context, until it is set, reset or
 *            destroyed; in mode stand_alone comm is NULL
 *            accumulate: grad_accumulation_step, written
 *   errors   INVALID (options that exclude each other, device_num different from the number of
 *            ranks, an option of another parallel_mode), UNSUPPORTED (a value that the mode does
 *            not carry out)
 *   level    expert */
TRM_API TRM_MUST_USE trm_status trm_context_resolve(trm_context *context, trm_comm *comm,
                                                    trm_parallel_options *parallel,
                                                    int32_t *accumulate, trm_error *err);

/* One option of a context. */
typedef struct trm_context_option {
    const char *name;     /* as trm_context_set takes it */
    const char *alias;    /* older name that is accepted too; NULL = none */
    const char *values;   /* "true|false", "1 to 4096", "20,35" */
    int64_t least, most;  /* limits of a number; both 0: another kind of value */
    const char *fallback; /* default; "" = none */
    const char *modes;    /* parallel modes in which it may be set */
    const char *meaning;  /* one sentence */
} trm_context_option;
/* Gives option `index` of the table.
 *   returns  false after the last one
 *   owns     static strings
 *   threads  any */
TRM_API bool trm_context_option_at(int32_t index, trm_context_option *out);

#ifdef __cplusplus
}
#endif
#endif
