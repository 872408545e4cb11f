/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/exec.h: from a graph to numbers, for programs with a loop of their own. (trireme/train.h
 * builds on this; most users need only that.)
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
 *   thread  one thread at a time per exec; it uses OpenMP inside      alloc  nothing after create
 */
#ifndef TRIREME_EXEC_H
#define TRIREME_EXEC_H

#include "trireme/base.h"
#include "trireme/dist.h"
#include "trireme/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum trm_optimizer_kind {
    TRM_SGD,
    TRM_MOMENTUM, /* slot = momentum * slot + gradient; w -= lr * slot (PyTorch, MindSpore) */
    TRM_NESTEROV, /* as MOMENTUM, w -= lr * (gradient + momentum * slot) */
    TRM_ADAM,     /* Kingma & Ba, bias-corrected; weight_decay is L2 unless `decoupled` */
    TRM_LARS,     /* You et al. 2017: momentum with a trust ratio per layer */
    TRM_ADAGRAD,
    TRM_FTRL
} trm_optimizer_kind;

typedef struct trm_optimizer_options {
    trm_optimizer_kind kind;
    double momentum;     /* MOMENTUM, NESTEROV, LARS */
    double beta1, beta2; /* ADAM; 0 = 0.9, 0.999 */
    double epsilon;      /* ADAM 1e-8, ADAGRAD 1e-10, LARS 1e-9 when 0 */
    double weight_decay;
    bool decoupled;             /* AdamW */
    bool decay_all;             /* false: parameters of rank 1 (norms, biases) are not decayed */
    bool decay_biases;          /* those that no batch norm takes are decayed */
    double trust_coefficient;   /* LARS; 0 = 0.001 */
    double initial_accumulator; /* ADAGRAD; TensorFlow's default 0.1 must be given */
    double l1, l2;              /* FTRL */
    double clip_norm;           /* global norm of all gradients; 0 = off */
} trm_optimizer_options;

/* Which gradients travel together. */
typedef enum trm_bucket_mode {
    /* the cut that ends first, from measured times; one where ranks fill the
     * cores */
    TRM_BUCKET_AUTO,
    TRM_BUCKET_OFF,  /* each gradient by itself */
    TRM_BUCKET_SIZE, /* bucket_bytes or a little more */
    TRM_BUCKET_LIST /* cut before the gradients of these numbers: MindSpore's all_reduce_fusion_config */
} trm_bucket_mode;

/* How a graph is split over ranks (MindSpore's semi_auto_parallel and auto_parallel). */
typedef enum trm_split {
    TRM_SPLIT_NONE,
    /* operators as the plan says; what reads the input by samples, the rest follows */
    TRM_SPLIT_PLANNED,
    TRM_SPLIT_SEARCHED /* the plan's pins are kept, the rest is searched */
} trm_split;

/* Gradients of weights that are large beside what they are made from are
 * made by all processes of a host together, each its slice, from all samples, instead of being
 * summed over ranks: sums in another order. */
typedef enum trm_joint {
    TRM_JOINT_OFF,
    TRM_JOINT_CONV, /* of convolutions */
    TRM_JOINT_ALL   /* of fully connected layers, too */
} trm_joint;

/* The same graph on every rank of a communicator, each with its own part of the batch. Gradients
 * are reduced over the ranks while backward runs; zero is the default everywhere. Equal on all
 * ranks. */
enum { TRM_NORM_LOCAL = -2 }; /* of sync_batch_norm */

typedef struct trm_parallel_options {
    trm_comm *comm; /* NULL or of size 1: nothing of this happens. Borrowed; outlives the exec */
    bool sum;       /* gradients are summed over the ranks; default: their mean */
    trm_dtype wire; /* how they travel: FLOAT32 (default 0), BFLOAT16, FLOAT16 */
    trm_bucket_mode bucket;
    int64_t bucket_bytes;       /* TRM_BUCKET_SIZE */
    const int32_t *bucket_list; /* TRM_BUCKET_LIST; copied */
    int32_t bucket_list_count;
    /* Each rank reduces, updates and publishes its slice: slots live on one rank only. The same
     * bits. Split: where a plan leaves all parameters whole; other plans say themselves what lies
     * where. */
    bool shard_optimizer;
    /* has no effect without shard_optimizer, between hosts or threads, with buckets other than
     * AUTO, accumulate, blocks, arena_alloc, layerwise, memory_bytes, a plan that cuts more than
     * samples */
    trm_joint joint;
    /* Batch norm's statistics, in every mode: 0 or -1 over all ranks' samples, as on one device;
     * TRM_NORM_LOCAL over each rank's; N over those of N neighbouring ranks (not split). */
    int32_t sync_batch_norm;
    bool no_broadcast; /* rank 0's parameters and states are not sent to all at creation */
    /* hybrid_parallel: parameters that stay as each rank has them, by name or by prefix ("fc"
     * covers "fc.weight"); copied. Neither broadcast nor reduced. */
    const char *const *layerwise;
    int32_t layerwise_count;
    /* Models, with one rank too: losses and weights are the same bits on any number of ranks and
     * threads, as
     * long as the global batch is. Samples are computed in blocks of so many, which divide each
     * rank's batch;
     * -1: the largest power of 2 that divides the global batch into 8 blocks or more, from 32 samples
     * a block on into 64 or more; 0: off. Batch norm is over the global batch. Costs: trireme help
     * deterministic. */
    int32_t block;
    /* The graph, which then has the whole batch's shapes, is split operator by operator over a mesh
     * of all ranks; every rank feeds the whole batch, results are those of one device. Gradients
     * are sums; of the options above only wire, bucket and bucket_bytes apply. */
    trm_split split;
    /* "2x4"; NULL = the plan's, else one axis of all ranks (searched: the best) */
    const char *mesh;
    /* text of a plan file (trireme plan --save): strategies by operator; NULL = none */
    const char *plan;
    /* Each rank feeds only its own samples, 1/size of the batch: sample i of rank r is sample i *
     * size + r of the whole. Executors: every rank feeds the whole batch otherwise. Models: the
     * default, so that a batch of the dataset is one rank's in every mode. */
    bool own_samples;
    bool whole_batch; /* models: every rank reads the whole batch; the dataset is not shared out */
    bool
        stand_alone; /* models without `comm`: this process's own, also where it has joined ranks */
    /* Split: each rank feeds a part of each input. A tuple for each input, in the order in which
     * the graph got them, has the number of parts of each dimension: "((1,1,1,2),(2,))" cuts
     * pictures by columns and labels by samples. At most one dimension of an input is cut. Of 4
     * ranks and 2 parts, ranks 0 and 1 feed part 0. Samples are dealt in turn, as above; other
     * dimensions are cut into runs. Models: a dataset gives own samples (own_samples) or whole
     * batches, so only the tuples are checked. NULL: own_samples says it. */
    const char *input_cuts;
    /* Split, or one rank: results are the same bits under every plan and on any number of ranks and
     * threads, as long as the whole batch is. Sums are made in integers by plain kernels: several
     * times slower. */
    bool exact;
    /* searched: "optimal" (NULL), "recursive", "propagation", or MindSpore's names for them */
    const char *search;
    /* Searched: plans that are predicted to be nearly as fast as the best are run in turns, for so
     * many seconds at most, and the fastest is taken; kept with the measured costs, so that the
     * next job runs none. 0 = as many as 240 steps take, 10 at least and 40 at most; negative =
     * predictions alone decide. */
    double trial_seconds;
    const char *save_plan; /* rank 0 writes the plan that runs to this file; NULL = nowhere */
    /* Split, training: rank 0 writes to this file which ranks hold the same parts of all
     * parameters, a line of ranks for each group: whose part is lost can have it from another of
     * its line. NULL = nowhere. */
    const char *save_groups;
} trm_parallel_options;

/* The loss is multiplied by a scale before backward and gradients are divided by it before clipping
 * and update, so that small ones survive in half precision. A gradient that overflows skips the
 * update (it counts as a step); `dynamic` then shrinks the scale, and grows it after good steps.
 * TensorFlow's FixedLossScaleManager and ExponentialUpdateLossScaleManager. */
typedef struct trm_loss_scale_options {
    bool on;
    bool dynamic;         /* false: the scale never changes */
    double initial;       /* >= 1; 0 = 65536 */
    double grow_by;       /* > 1; 0 = 2 */
    double shrink_by;     /* in (0, 1); 0 = 0.5 */
    int32_t grow_every;   /* good steps; 0 = 2000 */
    int32_t shrink_after; /* bad steps; 0 = 1 */
} trm_loss_scale_options;

typedef struct trm_exec_options {
    trm_node loss;           /* TRM_NO_NODE: only forward */
    const trm_node *outputs; /* readable after a step, beside the loss */
    int32_t outputs_count;
    trm_optimizer_options optimizer;
    bool updated_elsewhere; /* by parameter servers: no slots, and trm_exec_update is refused */
    const char *backend;    /* "onednn" (default) or "ref" */
    trm_precision precision;
    /* Compute threads. 0: as many as the step is worth, and at most OMP_NUM_THREADS, or where that is
     * not set the CPUs that this process may use, shared with the other processes of the job on this
     * host. The same graph, options and CPUs always have the same number. */
    int threads;
    int32_t host_processes; /* of the job on this host; 0 = the ranks of parallel.comm on it */
    uint64_t seed;          /* initial values, dropout */
    trm_loss_scale_options loss_scale; /* trm_exec_ranges shows scaled gradients */
    bool no_fusion;                    /* each operator by itself, for comparison */
    /* Gradients of large matrices over few samples are multiplied inside the update, never written,
     * where nobody sums or reads them (trm_exec_ranges). True: they are always made. */
    bool whole_gradients;
    /* Training takes at most so much on a rank (parameters, gradients, optimiser, activations, as
     * trireme plan counts them): a searched plan keeps within it, one device makes results again in
     * backward, and a program beyond it is refused (NOMEM, with what the least takes). 0 = no
     * limit. */
    int64_t memory_bytes;
    int32_t accumulate;      /* gradients of this many forward_backward calls are averaged; 0 = 1 */
    const char *tuning_file; /* measured choices; NULL = in the cache directory, "" = none */
    /* A process measures for a third of a second and guesses the rest, so that a training begins at
     * once; the file has both, and later processes take both, so that they compute the same bits.
     * Positive: measure what was guessed, too, for so long. */
    double retune_seconds;
    /* One run's choices: what is in this file is taken before the above, the others are added to
     * it. So a run that is started again has the same bits, whatever was measured in between. One
     * for each rank; NULL = not kept */
    const char *choices_file;
    const struct trm_exec *share; /* use the parameters and states of this exec (evaluation) */
    void *(*arena_alloc)(void *context, size_t bytes); /* PARAM and GRAD; NULL = private memory */
    void *arena_context;
    trm_parallel_options parallel;
    /* The same bits on any number of ranks and threads: this rank's batch is so many equal blocks;
     * sample i of what is fed belongs to block i modulo `blocks`. Sums over samples are made block by
     * block and added in a fixed order. Losses, batch norm and gradients are of the batch of all
     * ranks. Not for operators that mix samples in another way than by sums, norms and losses. 0 =
     * off; models: trm_parallel_options.block. */
    int32_t blocks;
} trm_exec_options;

typedef struct trm_exec trm_exec;

/* Compiles the graph (differentiate, fuse, lay out, place), takes all memory, sets initial values.
 *   owns    the graph stays the caller's and may be destroyed afterwards
 *   error   INVALID (a broken graph, loss not scalar), NOMEM (with bytes needed and present)
 *   cost    milliseconds, plus measuring operators never seen on this machine */
TRM_API TRM_MUST_USE trm_status trm_exec_create(const trm_graph *graph,
                                                const trm_exec_options *options, trm_exec **out,
                                                trm_error *err);
TRM_API void trm_exec_destroy(trm_exec *exec);

/* Where an input's elements are to be written before a step (plain layout, dtype of the graph).
 *   owns  the exec; valid until destroy    error  INVALID: no such input, with the names there are
 */
TRM_API TRM_MUST_USE trm_status trm_exec_input(trm_exec *exec, const char *name, trm_tensor *out,
                                               trm_error *err);
/* Copies `tensor` there; shape and dtype must match (with blocks: trm_exec_input has the
 * rows in another order, block by block).   error  INVALID naming both shapes or types, as trm_exec_input
 */
TRM_API TRM_MUST_USE trm_status trm_exec_feed(trm_exec *exec, const char *name,
                                              const trm_tensor *tensor, trm_error *err);

/* Runs the forward steps only (needed for evaluation graphs).   error  INVALID (an id outside of a table), what an operator of
 * one's own returns, with many ranks those of trm_comm_run
 */
TRM_API TRM_MUST_USE trm_status trm_exec_forward(trm_exec *exec, trm_error *err);
/* Forward and backward; adds 1/accumulate of the gradients to the gradient range. With a
 * communicator
 * the last call before an update returns with the gradients of all ranks reduced (shard_optimizer:
 * this
 * rank's slices of them), and trm_exec_loss is the mean over the ranks. Collective then.
 *   error  INVALID (a graph without a loss), those of trm_exec_forward */
TRM_API TRM_MUST_USE trm_status trm_exec_forward_backward(trm_exec *exec, trm_error *err);
/* Optimiser over all parameters, then the gradient range is ready for the next step.
 *   error  DIVERGED: a gradient is NaN or infinite (with a loss scale: at scale 1); the sentence names the
 *          first operator
 */
TRM_API TRM_MUST_USE trm_status trm_exec_update(trm_exec *exec, double learning_rate,
                                                trm_error *err);
typedef struct trm_loss_scale_state {
    double scale;
    int32_t good, bad; /* steps since the scale changed, or since an overflow */
    int64_t skipped;   /* updates so far */
    bool overflow;     /* the last update was skipped */
} trm_loss_scale_state;
/* False when no loss is scaled. Set: to go on where a checkpoint was; INVALID. */
TRM_API bool trm_exec_loss_scale(const trm_exec *exec, trm_loss_scale_state *out);
TRM_API TRM_MUST_USE trm_status trm_exec_set_loss_scale(trm_exec *exec,
                                                        const trm_loss_scale_state *state,
                                                        trm_error *err);

/* The loss of the last step, and a copy of output `index` in plain float32/integer layout.
 *   owns  *out points into the exec; valid until the next step    error  INVALID: no such output */
TRM_API float trm_exec_loss(const trm_exec *exec);
TRM_API TRM_MUST_USE trm_status trm_exec_output(trm_exec *exec, int32_t index, trm_tensor *out,
                                                trm_error *err);

/* Parameters, states and optimiser slots, by index (0 to count - 1) or name, in plain layout. Names
 * belong to the exec. */
typedef enum trm_variable_kind {
    TRM_VARIABLE_PARAMETER,
    TRM_VARIABLE_STATE,
    TRM_VARIABLE_SLOT
} trm_variable_kind;
typedef struct trm_variable {
    const char *name; /* "layer1.0.conv1.weight"; slots "layer1.0.conv1.weight/momentum" */
    trm_variable_kind kind;
    trm_dtype dtype;
    trm_shape shape;
} trm_variable;
TRM_API int32_t trm_exec_variable_count(const trm_exec *exec);
TRM_API trm_variable trm_exec_variable(const trm_exec *exec, int32_t index);
/* Index by name, -1 if there is none. */
TRM_API int32_t trm_exec_find(const trm_exec *exec, const char *name);
/* `data` has room for the variable in plain layout. */
TRM_API void trm_exec_read(const trm_exec *exec, int32_t index, void *data);
TRM_API void trm_exec_write(trm_exec *exec, int32_t index, const void *data);
/* The gradient of a parameter after forward_backward, plain float32. INVALID for other kinds. Of a
 * split graph: collective where the parameter is cut. */
TRM_API TRM_MUST_USE trm_status trm_exec_gradient(const trm_exec *exec, int32_t index, float *data,
                                                  trm_error *err);
/* All gradients (and all parameters) as one range, in the order in which backward finishes them.
 * What collectives and the three calls of trireme/dist.h work on. owns: the exec. */
TRM_API void trm_exec_ranges(trm_exec *exec, float **parameters, float **gradients, int64_t *count);

/* --- many ranks: all collective, all no-ops without a communicator; errors as trm_comm_run -------
 */

/* Rank 0's parameters, states, slots and step on every rank (layerwise ones excepted). */
TRM_API TRM_MUST_USE trm_status trm_exec_broadcast(trm_exec *exec, trm_error *err);
/* Rank 0's states only: before an evaluation, so that all ranks evaluate what a checkpoint would
 * keep. */
TRM_API TRM_MUST_USE trm_status trm_exec_broadcast_states(trm_exec *exec, trm_error *err);
/* shard_optimizer: slots complete on every rank, to be read and saved. Split graphs: all variables
 * whole; until then trm_exec_read gives this rank's part of a cut variable and zeros. */
TRM_API TRM_MUST_USE trm_status trm_exec_gather_slots(trm_exec *exec, trm_error *err);

/* Does each rank keep this variable to itself (layerwise)? Then only this rank has its values. */
TRM_API bool trm_exec_layerwise(const trm_exec *exec, int32_t index);

typedef struct trm_parallel_info {
    int32_t rank, size; /* 0 and 1 without a communicator */
    int32_t buckets;
    int64_t bytes; /* that a step sends through the reduction, in the wire's type */
    double alpha, bytes_per_second; /* measured at creation */
    bool one_copy; /* of the parameters for all ranks: shard_optimizer, processes of one host */
    /* of parameters to bfloat16 that are there once, too, and made behind the update */
    int32_t casts;
    /* of the buckets as cut; 0 = not measured yet */
    double predicted_end_seconds, backward_end_seconds;
    int64_t joint_bytes; /* of gradients that all ranks make together, and that do not travel */
    int64_t still_bytes; /* of gradients that are zero whatever the batch, and do not travel */
} trm_parallel_info;
TRM_API void trm_exec_parallel_info(const trm_exec *exec, trm_parallel_info *out);

/* The plan that a search has chosen, as rank 0 knows it. */
typedef struct trm_searched_plan {
    bool searched; /* false on other ranks, and where no plan was searched: the rest is then zero */
    char text[240];      /* in words: "data parallel, mesh 2: 31 operators by samples" */
    double step_seconds; /* predicted */
    double data_parallel_step_seconds; /* predicted; 0 = there is no such plan */
    double measured_step_seconds;      /* of plans that were run in turns; 0 = none was */
    double search_seconds;             /* of the whole search, measuring and runs included */
} trm_searched_plan;
TRM_API void trm_exec_searched_plan(const trm_exec *exec, trm_searched_plan *out);

/* What ranks waited for each other behind backward, in the last steps, some 250 of them at most:
 * for gradients, their norms, slices of parameters, casts. The last one to come to a meeting waits
 * for nothing but communication; what the others wait beyond that they wait for it, because it had
 * more to do or less of a CPU. Seconds of a rank, the ranks' mean. */
typedef struct trm_waiting {
    double step_seconds; /* forward, backward, update of these steps */
    double communication_seconds, imbalance_seconds;
    int64_t meetings;
} trm_waiting;
/* Begins anew; between steps, on all ranks. */
TRM_API void trm_exec_begin_waiting(trm_exec *exec);
/* All zero with one rank.   error as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_exec_waiting(trm_exec *exec, trm_waiting *out, trm_error *err);

/* The global step: counts updates; dropout and resume depend on it. */
TRM_API uint64_t trm_exec_step(const trm_exec *exec);
TRM_API void trm_exec_set_step(trm_exec *exec, uint64_t step);

typedef struct trm_exec_info {
    int64_t parameter_count; /* elements trained */
    int64_t parameter_bytes, gradient_bytes, slot_bytes, activation_bytes, other_bytes;
    int64_t overhead_bytes; /* outside these arenas: kernels' tables, program, the library's code */
    int64_t total_bytes;    /* by which a process that trains with this exec grows */
    double flops;           /* of one forward_backward (or forward) */
    double predicted_seconds; /* of one step */
    double create_seconds;
    int32_t steps;
    int32_t threads;     /* that a step computes with */
    const char *backend; /* "onednn", "ref" */
} trm_exec_info;
TRM_API void trm_exec_describe(const trm_exec *exec, trm_exec_info *out);
/* The program: operators, layouts, reorders, fusions, memory by category, FLOPs, predicted time; as
 * text, or as one JSON object. owns: caller, trm_free. NULL when there is no memory. */
TRM_API char *trm_exec_explain(const trm_exec *exec, bool json);

/* What the machine reaches, measured by loops that do nothing else: multiply-adds on registers; and
 * loops over working sets of rising size, so that each cache shows, by what they do: sum a; a = b +
 * s c; a = b; a = s. */
enum { TRM_PEAK_SETS = 12 };
typedef enum trm_peak_mix {
    TRM_PEAK_READ,
    TRM_PEAK_TRIAD,
    TRM_PEAK_COPY,
    TRM_PEAK_WRITE,
    TRM_PEAK_MIXES
} trm_peak_mix;
typedef struct trm_peak_memory {
    int64_t bytes;                           /* of the working set */
    double bytes_per_second[TRM_PEAK_MIXES]; /* read and written, by the better way to store */
} trm_peak_memory;
typedef struct trm_machine_peak {
    int32_t threads;
    double float32_flops, bfloat16_flops; /* per second; bfloat16 pairs: 0 = no such instruction */
    trm_peak_memory memory[TRM_PEAK_SETS];
    int32_t memory_count;
} trm_machine_peak;
/* A machine that is sampled again and again. One at a time is measured; threads 0 = the CPUs that
 * this process may use.
 *   error NOMEM   alloc 400 MB at most, until destroyed */
typedef struct trm_meter trm_meter;
TRM_API TRM_MUST_USE trm_status trm_meter_create(int threads, trm_meter **out, trm_error *err);
TRM_API void trm_meter_destroy(trm_meter *machine);
/* Each loop once, for a quarter of a second in all. */
TRM_API void trm_meter_sample(trm_meter *machine);
/* Of all samples so far the median of each loop, and the highest. Either may be NULL. */
TRM_API void trm_meter_describe(const trm_meter *machine, trm_machine_peak *median,
                                trm_machine_peak *best);
/* Seconds that moving `bytes`, of them `written`, takes by the loops of that mix, in the largest
 * working set that is no larger than `held` bytes. */
TRM_API double trm_machine_memory_seconds(const trm_machine_peak *peak, double bytes,
                                          double written, double held);

/* Per step of the program, filled by trm_exec_profile: median seconds over `repeats` runs. */
typedef struct trm_step_profile {
    const char *name, *kind, *algorithm, *phase;
    double seconds, flops, bytes, written_bytes; /* written: of bytes */
    /* Of them what a first pass moves that must end before the rest begins, as a norm's statistics.
     */
    double first_bytes, first_written_bytes;
    /* What must be computed: `work_flops` in the type of the main input (fewer than `flops` without
     * padding), or instead of them, where there are any, `work_float32`: in float32 whatever the
     * input is, as Winograd's products are, whose rounding bfloat16 could not bear. */
    double work_flops, work_float32;
    bool bfloat16; /* its main input */
    /* moved since its large inputs were last touched, itself included: a cache that is smaller does
     * not hold them any more */
    double reuse_bytes;
    int32_t same; /* equal operators (kind, shapes, layout) in the program, this one included */
    int32_t first_same; /* index of the first of them */
} trm_step_profile;
/* With `step_seconds` (NULL: not) the optimiser runs behind each run of the program, at learning
 * rate 0, so that only its
 * slots change; it is the last of the list, kind "optimizer", and *step_seconds is the median of
 * all together.
 * With `beside` (NULL: nothing) the machine is sampled after each run of the program, its
 * arithmetic also between
 * operators twenty times a second, so that both meet the same clock and the same neighbours.
 *   owns  *out belongs to the exec, valid until the next call */
TRM_API TRM_MUST_USE trm_status trm_exec_profile(trm_exec *exec, int repeats, trm_meter *beside,
                                                 const trm_step_profile **out, int32_t *count,
                                                 double *step_seconds, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
