/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/plan.h: plans for a model on many ranks. The planner predicts, searches, explains and
 * saves plans without training; verification compares a split model with one device. For programs
 * of trireme/train.h: the model is described by its trm_model_options.
 *
 *     trm_planner *p;
 *     trm_planner_create(&model_options, &(trm_planner_options){.ranks = 8}, &p, &err);
 *     trm_planner_save(p, "plan.txt", &err);              // train --plan plan.txt
 *     trm_planner_destroy(p);
 *
 * Ranks that search, stages too, and train by what they have found (options.stages = TRM_ALL):
 *
 *     trm_planner_create(&model_options, &planner_options, &p, &err);      // collective
 *     trm_planner_share(p, comm, &plan, &text, &err);
 *     trm_plan_follow(&plan, text, &model_options);
 *     trm_model_create(&model_options, &model, &err);
 *
 * Sections: planner; plans for machines that are not here (clusters of accelerators);
 * verification. */
#ifndef TRIREME_PLAN_H
#define TRIREME_PLAN_H

#include "trireme/base.h"
#include "trireme/nn.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== planner =============================================================================== */

/* The planner: how a model would be split over many ranks, at what cost, and why.
 *
 *     char *report = trm_planner_report(p, false);        // step time, memory, bound, operators
 *     puts(report);
 *     trm_free(report);
 *
 * Nothing is trained, and no memory of the model's size is taken. The search is exact for its cost
 * model (docs/guides/auto-parallel.md). Operators are measured on this machine and kept in the
 * cache directory.
 *
 *   threads  one thread at a time per planner */

/* A planner: a model, a mesh, the costs, and the plans that were found. */
typedef struct trm_planner trm_planner;

/* Options of a planner. Zero means the default. */
typedef struct trm_planner_options {
    int32_t ranks; /* 0 = those of the mesh */
    int32_t hosts; /* 0 = 1. Meshes are all factorisations of hosts and of ranks a host */
    /* text of a description of links (docs/guides/auto-parallel.md); NULL = estimates for ranks
     * that share this machine */
    const char *links;
    /* without `links`: each rank is a device like this process and shares no cores with others; for
     * simulation */
    bool own_devices;
    bool guess_links; /* uses those estimates even with a communicator */
    /* operators are measured. Default: on; TRM_OFF: costs by the machine's measured rates only */
    trm_switch measure;
    /* lists the plans of less memory and more time, too. Default: on */
    trm_switch frontier;
    /* limit for measuring operators; 0 = as long as 500 steps, 3 to 30, or 40 steps if those are
     * longer */
    double measure_seconds;
    bool refresh; /* measures again the costs that the cache directory has */
    /* number of additional candidate plans for trm_planner_plan, spaced by predicted step time */
    int32_t extra_candidates;
    bool remeasures; /* trm_planner_remeasure will be called: *out is a planner on all ranks */
    /* stages of a pipeline: 0 = none, TRM_ALL = any number, if such a plan is better than one
     * without stages. split.mesh is then the mesh of one stage */
    int32_t stages;
    /* with stages: equal parts of the global batch that go through them; 0 = any power of 2 */
    int32_t micro_batches;
    int32_t chunks;       /* with stages: runs of operators on each stage; 0 = any */
    const char *schedule; /* with stages: "1f1b", "gpipe", "interleaved"; NULL = any */
    const char
        *stage_begins; /* operators with which the second and further runs begin; NULL = any */
    /* with stages = TRM_ALL: plans with stages must be predicted faster by this part of a step to
     * be chosen, and their operators are measured only if they may be; a network without marked
     * segments is planned without stages. 0 = any faster plan is chosen */
    double stages_gain;
    /* the order in which the planned job sums over ranks, where exec.parallel.comm is NULL (that of
     * a communicator counts otherwise): a fixed order stages whole sums, which takes memory. STRICT
     * plans also need exec.parallel.block */
    trm_deterministic deterministic;
    /* rank 0: another thread or a signal handler sets it to another value than 0, and the search
     * ends soon; NULL = none. Borrowed until the planner is destroyed */
    const int32_t *stop;
} trm_planner_options;

/* Gives the number of ranks of a mesh: "8", "2x4", "host=2xlocal=4".
 *   param    ranks: written
 *   errors   INVALID (the character, and what was expected)
 *   threads  any */
TRM_API TRM_MUST_USE trm_status trm_mesh_ranks(const char *mesh, int32_t *ranks, trm_error *err);

/* Searches the plan for a model and its alternatives. Collective with a communicator: on ranks
 * other than 0 *out is NULL (with `remeasures` a planner for trm_planner_remeasure and
 * trm_planner_destroy only), and the error is rank 0's cause or their own.
 *   param    model: as for trm_model_create; its data is the batch of one rank, the global batch is
 *            ranks times that, unless exec.parallel.batch is TRM_BATCH_OF_JOB. exec.memory_bytes is
 *            the limit of a rank. Of exec.parallel count:
 *            comm: as many ranks of this machine as are planned for. Operators are measured on all
 *            of them at once, and messages between them, unless `links` gives their costs; rank 0
 *            plans, the others measure. NULL = operators are measured on this process alone
 *            split.mesh: NULL = every factorisation is searched
 *            split.plan: of this graph, compared as "the given plan"; its pins are kept
 *            split.search, split.trials, split.trial_seconds
 *            block: plans of strict determinism only
 *            wire, sync_batch_norm (1 or all), and shard_optimizer, which is on for ranks of one
 *            host; over several hosts each rank updates a slice and gathers the others
 *   errors   INVALID (names, meshes, links, a plan of another graph, with what was expected), CORRUPT
 *            (split.plan, with line, found and expected), NOMEM, CANCELLED (`stop`), those of the
 *            network
 *   owns     caller: trm_planner_destroy(*out); `model`, its data and contexts are borrowed until
 *            then */
TRM_API TRM_MUST_USE trm_status trm_planner_create(const trm_model_options *model,
                                                   const trm_planner_options *options,
                                                   trm_planner **out, trm_error *err);
/* Frees the planner. NULL is accepted. */
TRM_API void trm_planner_destroy(trm_planner *planner);

/* The chosen plan and its search. */
typedef struct trm_planner_info {
    char mesh[48];             /* of the chosen plan */
    int32_t ranks;             /* of the mesh */
    bool infeasible;           /* no plan fits memory_bytes: this is the plan of least memory */
    double step_seconds;       /* predicted time of a step */
    double samples_per_second; /* of all ranks */
    double memory_bytes;       /* of a rank, as the search counts it (first order) */
    /* of rank 0's compiled program, by liveness; 0 = not compiled (more than 64 ranks) */
    double compiled_bytes;
    double lower_bound;    /* no plan of these meshes has a shorter step, by the same costs */
    double gap;            /* (step - bound) / step */
    double solve_seconds;  /* exact solves alone */
    double search_seconds; /* spaces and searches of all meshes, the last round */
    double total_seconds;  /* with measuring and compiling */
    double data_parallel_seconds; /* predicted step of data parallel */
    /* plans that were run, of which this one is the fastest or the simplest; 0 = predictions
     * decided */
    int32_t tried;
    /* how much slower than the fastest they were predicted to be, at most: 0.1 = 10 % */
    double tried_within;
    /* meshes searched; operators of the graph; costs that were measured */
    int32_t meshes, operators, measured;
    /* measurements of the costs on which predictions rest: 1, or more with trm_planner_remeasure */
    int32_t measurements;
    int32_t stages; /* of the chosen plan; 0 = none. `mesh` is then that of one stage */
    /* of a plan with stages: parts of the batch; runs of operators on each stage (interleaved) */
    int32_t micro_batches, chunks;
} trm_planner_info;
/* Describes the chosen plan and the search. */
TRM_API void trm_planner_get_info(const trm_planner *planner, trm_planner_info *out);

/* Returns the whole report, for people or as one JSON object.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free */
TRM_API char *trm_planner_report(const trm_planner *planner, bool json);
/* Returns a picture of the operators, by how they are cut, as SVG.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free
 *   level    unstable */
TRM_API char *trm_planner_svg(const trm_planner *planner);
/* Returns the graph of the operators, by how they are cut, as DOT.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free
 *   level    unstable */
TRM_API char *trm_planner_dot(const trm_planner *planner);
/* A plan of trm_planner_plan. */
typedef struct trm_planner_candidate {
    const char *name;     /* "data parallel"; borrowed from the planner */
    double step_seconds;  /* predicted, with all measurements of the costs */
    double first_seconds; /* predicted, with the measurements that the search had */
    double bytes;         /* of rank 0's compiled program; 0 = it does not compile */
} trm_planner_candidate;
/* Returns a plan as the text of a plan file, which can be read, changed, pinned and given to
 * training. Index 0 is the chosen plan; then other good plans and the baselines, by rising
 * predicted time.
 *   param    about: description of the plan, written; NULL = not wanted
 *   returns  NULL: no such index
 *   owns     caller: trm_free */
TRM_API char *trm_planner_plan(const trm_planner *planner, int32_t index,
                               trm_planner_candidate *about);
/* Measures again the operators and messages of the plans of trm_planner_plan, with a third of the
 * samples. On shared machines costs drift, so a program that compares predictions with runs calls
 * this between the runs. The plans and their numbers stay; predictions then use each cost's median
 * over all measurements, up to 8 with that of the search. Times of runs are never used. Needs
 * options.remeasures; without effect where costs are not measured. Collective.
 *   errors   those of the network, NOMEM
 *   level    unstable */
TRM_API TRM_MUST_USE trm_status trm_planner_remeasure(trm_planner *planner, trm_error *err);
/* Writes the chosen plan to a file, complete or not at all.
 *   errors   IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_planner_save(const trm_planner *planner, const char *file,
                                                 trm_error *err);

/* Content of a plan file. */
typedef struct trm_plan_info {
    char mesh[128]; /* "2x4", "host=2xlocal=4" */
    int32_t ranks;  /* of the mesh */
    uint64_t graph; /* digest of the graph that it was made for; 0 = any */
    /* operators with a line; of these, cut into parts; of these, kept by searches */
    int64_t operators, cut, pinned;
    int64_t stores; /* parameters and states with a storage of their own */
    /* of a plan with stages, else 0: `mesh` is that of one stage, `ranks` those of all */
    int32_t stages, chunks, micro_batches;
    trm_schedule schedule;
    bool recompute;    /* values of blocks are computed again in backward */
    char begins[8192]; /* operators with which the second and further runs begin: "a,b" */
} trm_plan_info;
/* Reads a plan file. Needs no model.
 *   param    text: the plan's own lines in order, written; NULL = not wanted
 *   errors   IO, CORRUPT (with line, found and expected), NOMEM
 *   owns     caller: trm_free(*text) */
TRM_API TRM_MUST_USE trm_status trm_plan_read(const char *file, trm_plan_info *out, char **text,
                                              trm_error *err);
/* Gives the chosen plan of rank 0's planner to all ranks, so that they train by it without a file.
 * Collective.
 *   param    planner: that of rank 0; NULL on the other ranks, and on rank 0 after an error, which
 *            all ranks then get
 *            comm: the ranks that train
 *   errors   INVALID (rank 0 has no plan), NOMEM, those of the communicator
 *   owns     caller: trm_free(*text) */
TRM_API TRM_MUST_USE trm_status trm_planner_share(const trm_planner *planner, trm_comm *comm,
                                                  trm_plan_info *out, char **text, trm_error *err);
/* Sets the options with which a model trains by a plan: exec.parallel.split and pipeline, and with
 * stages exec.recompute and accumulate, the number of micro-batches. The model's data must then
 * have batches of one micro-batch: the global batch over micro_batches, and of that, where ranks
 * feed their own samples, one part for each rank of a stage.
 *   owns     caller: `plan` and `text`, borrowed until trm_model_create has returned */
TRM_API void trm_plan_follow(const trm_plan_info *plan, const char *text, trm_model_options *model);

/* Options of a simulation. Zero means the default. */
typedef struct trm_simulation_options {
    int32_t largest;   /* ranks of the scaling tables, at most; 0 = those of the mesh */
    double straggler;  /* factor of the time of one rank's operators; 0 = 1 */
    bool json;         /* one JSON object in place of text */
    const char *trace; /* file for a trace (chrome://tracing, Perfetto); NULL = none */
} trm_simulation_options;
/* Simulates the events of the chosen plan, with one rank for all that do the same: strong and weak
 * scaling, and the effect of each link, of the operators and of a slow rank.
 *   errors   IO and NOSPACE (the trace), NOMEM
 *   owns     caller: trm_free(*text)
 *   level    unstable */
TRM_API TRM_MUST_USE trm_status trm_planner_simulate(trm_planner *planner,
                                                     const trm_simulation_options *options,
                                                     char **text, trm_error *err);

/* Times and memory of a plan that was run. */
typedef struct trm_planner_run_result {
    /* of a step, of the slowest rank: the lower quartile, on which other load of the machine has
     * little effect */
    double seconds;
    double median_seconds; /* the same, the median, as costs are measured */
    /* of this rank */
    int64_t parameter_bytes, gradient_bytes, slot_bytes, activation_bytes, total_bytes;
    /* growth of this process: its own pages, and its part of pages that ranks share; without code
     */
    int64_t resident_bytes;
    float loss; /* of the last step */
} trm_planner_run_result;
/* Receives the time of one program step of this rank (phase "update": the optimiser). */
typedef void (*trm_planner_profile)(void *context, const char *phase, const char *name,
                                    const char *kind, double seconds);
/* The run of a plan. Zero means the default. */
typedef struct trm_planner_run_options {
    const char *plan; /* text of a plan file for the communicator's ranks; NULL = data parallel */
    int32_t steps;    /* number of steps that are timed; 0 = 1 */
    /* receives the time of each program step, after the steps were timed; NULL = none */
    trm_planner_profile profile;
    void *context; /* for `profile` */
} trm_planner_run_options;
/* Runs a plan for a few steps on random data, to compare a prediction with. Collective.
 *   param    model: as for trm_planner_create
 *            comm: the ranks that run; NULL = this process alone
 *   errors   INVALID (the plan does not fit), NOMEM, those of trm_exec_create and of the network
 *   level    unstable */
TRM_API TRM_MUST_USE trm_status trm_planner_run(const trm_model_options *model, trm_comm *comm,
                                                const trm_planner_run_options *options,
                                                trm_planner_run_result *out, trm_error *err);

/* The most plans that one call compares. */
enum { TRM_COMPARED_PLANS = 8 };
/* Result of trm_planner_compare. */
typedef struct trm_planner_comparison {
    int32_t turns;                      /* 0 = there was no time for one */
    int32_t fastest;                    /* index of the plan */
    double seconds[TRM_COMPARED_PLANS]; /* of a step of each plan: median of the turns */
    /* by which fraction of its own time a plan is faster than plan 0 in the same turn: median */
    double ahead[TRM_COMPARED_PLANS];
    double resolution[TRM_COMPARED_PLANS]; /* differences below this fraction are noise */
} trm_planner_comparison;
/* The plans of a comparison. */
typedef struct trm_planner_compare_options {
    const char *const *plans; /* [count] texts of plan files; used on rank 0 only */
    int32_t count;            /* 2 to TRM_COMPARED_PLANS, equal on all ranks */
    int32_t steps;            /* of each plan in a turn, at least 1 */
    double seconds;           /* for all turns, about; four turns run in any case */
} trm_planner_compare_options;
/* Runs plans in turns, forwards and backwards, so that all plans meet the machine in the same
 * states. It ends before its time when each plan's distance from the fastest is known to 1 %, or
 * the plan is known to be slower. Collective.
 *   errors   those of trm_planner_run
 *   level    unstable */
TRM_API TRM_MUST_USE trm_status trm_planner_compare(const trm_model_options *model, trm_comm *comm,
                                                    const trm_planner_compare_options *options,
                                                    trm_planner_comparison *out, trm_error *err);

/* ==== plans for machines that are not here ============================================== */

/* A plan of a transformer on a cluster of accelerators, in the words of Megatron-LM: tensor,
 * pipeline, context, expert and data parallel, micro-batches, recompute, ZeRO. The machine is a
 * hardware file (docs/reference/hardware-files.md); no weights are allocated.
 *
 *     trm_hardware_plan *p;
 *     trm_hardware_plan_options o = {.model = "llama", .preset = "70b", .hardware = text,
 *                                    .devices = 512, .batch = 512};
 *     trm_hardware_plan_create(&o, &p, &err);
 *     char *report = trm_hardware_plan_report(p, false); */
typedef struct trm_hardware_plan trm_hardware_plan;

/* The model and the machine to plan for. Zero means the default. */
typedef struct trm_hardware_plan_options {
    const char *model; /* "gpt2", "llama", "moe" */
    /* a published model: gpt2 175b, llama 8b, moe deepseek-v3-shape ... (the message about a wrong
     * name lists them), or a size of trm_language_size; NULL = `sizes` */
    const char *preset;
    trm_language_options sizes; /* completed as trm_language_complete does */
    const char *hardware;       /* text of a hardware file */
    const char *hardware_name;  /* its name, for messages; NULL = "hardware" */
    int64_t devices;            /* of all nodes */
    int64_t batch;              /* samples of a step on all devices; 0 = one for each device */
    int64_t context;            /* tokens of a sample; 0 = the model's */
    const char *products;       /* type of products, "bf16", "fp16", "fp8", "fp32"; NULL = bf16 */
    double memory_bytes;        /* of a device that a plan may use; 0 = the device's */
    bool narrow_gradients;      /* gradients travel in 16 bits. Default: in 32 */
    bool whole_optimizer; /* no ZeRO: each device keeps the whole optimiser of its parameters */
    /* a plan to compare with, "tp=8,pp=4,cp=1,micro-batch=1,recompute=full"; NULL = none */
    const char *plan;
} trm_hardware_plan_options;

/* The chosen plan. */
typedef struct trm_hardware_plan_info {
    bool fits;                /* false: no plan fits the memory; this one takes the least */
    double step_seconds;      /* predicted */
    double tokens_per_second; /* of one device */
    double utilisation;       /* model FLOPs over the peak */
    double memory_bytes;      /* of the busiest device */
    double priced;            /* plans that the search has priced */
    double search_seconds;    /* wall-clock time of the search */
    double given_seconds;     /* step of options.plan; 0 = none was given */
} trm_hardware_plan_info;

/* Searches the fastest plan that fits, by pricing every plan of the space.
 *   errors   INVALID (names; hardware file, with line, found and expected text; a plan that cannot
 *            be), NOMEM
 *   owns     caller: trm_hardware_plan_destroy(*out)
 *   threads  any */
TRM_API TRM_MUST_USE trm_status trm_hardware_plan_create(const trm_hardware_plan_options *options,
                                                         trm_hardware_plan **out, trm_error *err);
/* Frees the plan. NULL is accepted. */
TRM_API void trm_hardware_plan_destroy(trm_hardware_plan *plan);
/* Describes the chosen plan. */
TRM_API void trm_hardware_plan_get_info(const trm_hardware_plan *plan, trm_hardware_plan_info *out);
/* Returns the report, for people or as one JSON object.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free */
TRM_API char *trm_hardware_plan_report(const trm_hardware_plan *plan, bool json);
/* Returns a picture of the plan as SVG: stages and meshes, one step, memory. That of options.plan
 * if it was given.
 *   returns  NULL when memory is out
 *   owns     caller: trm_free */
TRM_API char *trm_hardware_plan_svg(const trm_hardware_plan *plan);
/* Writes the plan for another engine into a folder, which is created: plan.json, and for "torch"
 * trireme_plan.py, for "megatron" flags.txt, for "mindspore" strategy.json and context.json.
 * options.plan is exported if it was given.
 *   errors   INVALID (no such engine), UNSUPPORTED (the engine cannot run this plan), IO,
 *            NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_hardware_plan_export(const trm_hardware_plan *plan,
                                                         const char *engine, const char *directory,
                                                         trm_error *err);

/* ==== verification ========================================================================== */

/* Verification: whether a split model computes as one device does. The same weights and batches go
 * through both.
 *
 *     split        the ranks of `parallel`, by its plan
 *     one device   rank 0 by itself
 *     rounding     rank 0 again, weights moved by one unit in the last place
 *
 * Compared are the loss, outputs of operators, gradients and variables.
 *
 * A tensor agrees when its distance from one device is at most `tolerance`, or a few times what
 * rounding changes. Networks amplify rounding differently (a fresh ResNet-50 by a million in three
 * steps), so no fixed number can separate a wrong sum from rounding; the third run can. */

/* Options of verification. Zero means the default. */
typedef struct trm_verify_options {
    int32_t steps; /* of training; 0 = 3 */
    /* relative distance that is always allowed; 0 = 1e-5 (mixed precision: 2e-3) */
    double tolerance;
    double factor; /* distance in units of rounding that is allowed too; 0 = 16 */
    bool bitwise;  /* in place of both: every bit must be equal */
} trm_verify_options;

/* The kinds of values that verification compares. */
typedef enum trm_verify_kind {
    TRM_VERIFY_LOSS,     /* one a step */
    TRM_VERIFY_FORWARD,  /* output of an operator for the first batch, before any update */
    TRM_VERIFY_GRADIENT, /* of a parameter, of the first step */
    TRM_VERIFY_VARIABLE, /* parameter, state or slot after the last step */
    TRM_VERIFY_KINDS
} trm_verify_kind;
/* Returns the name of a kind ("gradient").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_verify_kind_name(trm_verify_kind kind);

/* One compared tensor. */
typedef struct trm_verify_tensor {
    trm_verify_kind kind;   /* of its values */
    const char *name;       /* of operator, parameter or variable */
    int64_t count;          /* elements */
    double error;           /* |split - one device| / |one device|, Euclidean */
    double largest;         /* difference of an element */
    double rounding;        /* as error, of the third run against one device; 0 with `bitwise` */
    bool same_bits, agrees; /* all bits are equal; the tensor agrees */
} trm_verify_tensor;

/* Result of trm_verify. */
typedef struct trm_verification {
    trm_verify_tensor *tensors; /* [count] in the order of kinds, then of the graph */
    int32_t count;              /* of tensors */
    bool agrees, same_bits;     /* of all tensors */
    double chaos; /* largest `rounding` of a loss: from about 0.01 on, later steps say little */
} trm_verification;

/* Compares a split model with one device: three trainings of `steps` steps, and as many forward
 * passes that keep the operators' outputs. Only rank 0 gets a result; the other ranks return with
 * NULL in *out when the split job is done. A difference is no error. Collective over
 * model->exec.parallel.comm.
 *   param    model: as for trm_model_create, with whole batches in model->data on every rank. Its
 *            split, plan and mesh (or its context's), optimiser, schedule, accumulation, clipping,
 *            loss scale and precision are used
 *   errors   INVALID (one rank, or nothing is split), those of trm_model_create and trm_model_train
 *   owns     caller: trm_verification_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_verify(const trm_model_options *model,
                                           const trm_verify_options *options,
                                           trm_verification **out, trm_error *err);
/* Frees the result. NULL is accepted. */
TRM_API void trm_verification_destroy(trm_verification *verification);

#ifdef __cplusplus
}
#endif
#endif
