/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/graph.h: AUTO_PARALLEL's planner, and the comparison of a split model with one device. */
#ifndef TRIREME_PLAN_H
#define TRIREME_PLAN_H

#include "trireme/base.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== planner =============================================================================== */

/* How a model would be split over many ranks, at what price, and why.
 *
 *     trm_planner *p;
 *     trm_planner_create(&model_options, &(trm_planner_options){.ranks = 8}, &p, &err);
 *     char *report = trm_planner_report(p, false);        // step time, memory, proof, operators, baselines
 *     puts(report);
 *     trm_free(report);
 *     trm_planner_save(p, "plan.txt", &err);              // train --plan plan.txt
 *     trm_planner_destroy(p);
 *
 * Nothing is trained and no memory of the model's size is taken. The search is exact for its cost
 * model
 * (docs/guides/auto-parallel.md says what that means); operators are measured on this machine and kept in
 * the
 * cache directory.     thread  one at a time per planner
 */

typedef struct trm_planner trm_planner;

typedef struct trm_planner_options {
    int32_t ranks;        /* 0 = the mesh's */
    int32_t hosts;        /* 0 = 1: meshes are every factorisation of hosts and of ranks a host */
    const char *mesh;     /* "2x4"; NULL = every factorisation is searched */
    const char *search;   /* "optimal" (default), "recursive", "propagation" */
    int64_t memory_bytes; /* a rank; 0 = any */
    /* text of a description of links (docs/guides/auto-parallel.md); NULL = guesses for ranks that share
     * this machine */
    const char *links;
    /* without `links`: ranks share no cores, each is a device like this process; what the simulator
     * is asked about */
    bool own_devices;
    bool guess_links; /* those guesses even if there is a communicator */
    /* text of a plan file of this graph: compared as "the given plan", its pins are kept */
    const char *plan;
    bool full_batch; /* the model's data is the batch of all ranks, not of one */
    bool no_measure; /* operators by the machine's measured rates only */
    bool no_frontier;
    double measure_seconds; /* at most about so long for operators; 0 = 30 */
    /* Ranks of this machine, as many as are planned for: operators are then measured on all of them
     * at once, and messages between them (unless `links` says what those cost). Rank 0 plans, the
     * others measure what it asks for. Borrowed; NULL = operators are measured on this process
     * alone. */
    trm_comm *comm;
    /* Plans that are predicted to be nearly as fast as the best are run in turns on the
     * communicator's ranks, so many seconds at most, and the fastest is taken; kept, too. 0 = as
     * many as 240 steps take, 10 at least and 40 at most; negative = predictions alone decide. */
    double trial_seconds;
    bool refresh; /* measure again what is kept in the cache directory */
    /* so many more plans for trm_planner_plan, apart in predicted time: to be tried */
    int32_t others;
    bool looks; /* trm_planner_look will be called: *out is a planner on all ranks */
} trm_planner_options;

/* How many ranks a mesh has: "8", "2x4", "host=2xlocal=4".   error  INVALID: the character, what was expected   thread  any
 */
TRM_API TRM_MUST_USE trm_status trm_mesh_ranks(const char *mesh, int32_t *ranks, trm_error *err);

/* `model` is what a rank would be created with: its data is the batch of one rank; the global batch
 * is ranks
 * times that. Of `parallel` three things count: `wire`, sync_batch_norm TRM_NORM_LOCAL, and
 * shard_optimizer, which is on for ranks of this host: of several hosts, each rank updates a slice
 * and gathers those of others.
 * Collective with a communicator: *out is NULL on ranks other than 0 (with `looks` something for
 * trm_planner_look and
 * trm_planner_destroy alone), and the error is rank 0's cause or their own.
 *   owns   caller; `model`, its data and contexts are borrowed until destroy
 *   error  INVALID (names, meshes, links, plan: what was expected), NOMEM, those of the network */
TRM_API TRM_MUST_USE trm_status trm_planner_create(const trm_model_options *model,
                                                   const trm_planner_options *options,
                                                   trm_planner **out, trm_error *err);
TRM_API void trm_planner_destroy(trm_planner *planner);

typedef struct trm_planner_info {
    char mesh[48];
    int32_t ranks;
    bool infeasible;     /* no plan fits memory_bytes: this is the plan of least memory */
    double step_seconds; /* predicted, of the chosen plan */
    double samples_per_second;
    double memory_bytes; /* a rank, first order: what the search counts */
    /* rank 0's compiled program, by liveness; 0: not compiled (more than 64 ranks) */
    double compiled_bytes;
    double lower_bound;    /* no plan of these meshes has a shorter step, by the same costs */
    double gap;            /* (step - bound) / step */
    double solve_seconds;  /* exact solves alone */
    double search_seconds; /* spaces and searches of all meshes, the last round */
    double total_seconds;  /* with measuring and compiling */
    double data_parallel_seconds;
    /* plans that were run, and of which this one is the fastest or the simplest; 0: predictions
     * decided */
    int32_t tried;
    /* how much slower than the fastest they were predicted to be, at most: 0.1 = 10 % */
    double tried_within;
    int32_t meshes, operators, measured; /* searched; of the graph; costs that were measured */
    /* at the costs that predictions are of: 1, or more with trm_planner_look */
    int32_t looks;
} trm_planner_info;
TRM_API void trm_planner_describe(const trm_planner *planner, trm_planner_info *out);

/* Everything, for people or as one JSON object; a picture of the operators by their cut (SVG), or
 * as a graph (DOT).
 *   owns  caller, trm_free; NULL without memory */
TRM_API char *trm_planner_report(const trm_planner *planner, bool json);
TRM_API char *trm_planner_svg(const trm_planner *planner);
TRM_API char *trm_planner_dot(const trm_planner *planner);
typedef struct trm_planner_candidate {
    const char *name;     /* "data parallel"; the planner's */
    double step_seconds;  /* predicted, by all looks at the costs */
    double first_seconds; /* ... and by those that the search had */
    double bytes;         /* of rank 0's compiled program; 0: it does not compile */
} trm_planner_candidate;
/* The plan as a file that can be read, changed, pinned and given to training. Index 0: the chosen
 * one; then other
 * good plans and the baselines, by rising predicted time. NULL: no such. `about` may be NULL.
 *   owns  text: caller, trm_free */
TRM_API char *trm_planner_plan(const trm_planner *planner, int32_t index,
                               trm_planner_candidate *about);
/* Measures once more what the plans of trm_planner_plan rest on, their operators and the messages,
 * in a third of the samples. On shared machines costs drift, so a program that compares
 * predictions with runs calls this between the runs. The plans and their numbers stay; predictions
 * then use each cost's median over all looks. Times of runs are never used. Up to 8 looks with the
 * search's count; collective, needs options.looks; without effect where costs are not measured.
 *   error  those of peers, NOMEM
 */
TRM_API TRM_MUST_USE trm_status trm_planner_look(trm_planner *planner, trm_error *err);
/* The chosen plan, complete or not at all.   error  IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_planner_save(const trm_planner *planner, const char *file,
                                                 trm_error *err);

/* What a plan file has in it; no model is needed. */
typedef struct trm_plan_info {
    char mesh[128]; /* "2x4", "host=2xlocal=4" */
    int32_t ranks;
    uint64_t graph; /* digest of the graph it was made for; 0: any */
    /* with a line; of them on parts of their work; kept by searches */
    int64_t operators, cut, pinned;
    int64_t stores; /* parameters and states that are stored in a way of their own */
} trm_plan_info;
/* `text` (may be NULL): the plan's own lines, in order.
 *   owns   *text: caller, trm_free
 *   error  IO, CORRUPT with line, found and expected, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_plan_read(const char *file, trm_plan_info *out, char **text,
                                              trm_error *err);

typedef struct trm_simulation_options {
    int32_t largest;  /* ranks, of the scaling tables; 0 = the mesh's */
    double straggler; /* one rank's operators take so many times longer; 0 = 1 */
    bool json;
    const char *trace; /* file to write: chrome://tracing, Perfetto; NULL = none */
} trm_simulation_options;
/* Event simulation of the chosen plan: one rank stands for all that do the same. Strong and weak
 * scaling, what
 * each link, the operators and a slow rank change.   owns: *text by the caller, trm_free */
TRM_API TRM_MUST_USE trm_status trm_planner_simulate(trm_planner *planner,
                                                     const trm_simulation_options *options,
                                                     char **text, trm_error *err);

typedef struct trm_planner_run_result {
    /* of a step, as the slowest rank has it: the lower quartile, what others do to this machine
     * counts little then */
    double seconds;
    double median_seconds; /* ... and the median, as costs are measured */
    /* of this rank */
    int64_t parameter_bytes, gradient_bytes, slot_bytes, activation_bytes, total_bytes;
    /* by which this process grew: its own pages, of those that ranks share its part; no code */
    int64_t resident_bytes;
    float loss;
} trm_planner_run_result;
typedef void (*trm_planner_profile)(void *context, const char *phase, const char *name,
                                    const char *kind, double seconds);
/* Runs a plan for a few steps on random data: what the prediction is held against. Collective;
 * `plan` is the text
 * of a plan file for the communicator's ranks, `model` as for trm_planner_create. With `profile`
 * each step of this rank's
 * program is handed to it with its seconds (phase "update": the optimiser), after the steps were
 * timed.
 *   error  INVALID (the plan does not fit), NOMEM, those of trm_exec_create and of peers */
TRM_API TRM_MUST_USE trm_status trm_planner_run(const trm_model_options *model, trm_comm *comm,
                                                const char *plan, int32_t steps,
                                                trm_planner_profile profile, void *context,
                                                trm_planner_run_result *out, trm_error *err);

enum { TRM_COMPARED_PLANS = 8 };
typedef struct trm_planner_comparison {
    int32_t turns;                      /* 0: there was not time for one */
    int32_t fastest;                    /* plan */
    double seconds[TRM_COMPARED_PLANS]; /* of a step: the median of the turns */
    /* by how much of its own time a plan is faster than plan 0, in the same turn: their median */
    double ahead[TRM_COMPARED_PLANS];
    double resolution[TRM_COMPARED_PLANS]; /* ... and below what such a difference is chance */
} trm_planner_comparison;
/* Runs up to 8 plans in turns of `steps` steps, there and back, for about `seconds` but four turns
 * at least, so that all
 * meet the machine in every state that it is in meanwhile; less long, if it is known before to 1 %
 * how far each is from the
 * fastest, or that it is behind. Collective; `plans` count on rank 0 only, `count` is the same
 * everywhere.   error as trm_planner_run */
TRM_API TRM_MUST_USE trm_status trm_planner_compare(const trm_model_options *model, trm_comm *comm,
                                                    const char *const *plans, int32_t count,
                                                    int32_t steps, double seconds,
                                                    trm_planner_comparison *out, trm_error *err);

/* ==== verification ========================================================================== */

/* Is a split model the model of one device? The same weights and batches go
 * through both.
 *
 *     split:        the ranks of `parallel`, by its plan      loss, operators' outputs, gradients, variables
 *     one device:   rank 0 by itself                          the same
 *     rounding:     rank 0 again, weights moved by one unit in the last place: how far that alone moves everything
 *
 * A tensor agrees when it is no further from one device than `tolerance`, or than a few times what
 * rounding moves. Networks differ in how they grow rounding (a fresh ResNet-50 by a million in
 * three steps), so that no fixed number can tell a wrong sum from an unlucky one; the third run
 * can.
 */

typedef struct trm_verify_options {
    int32_t steps;    /* of training; 0 = 3 */
    double tolerance; /* relative, always allowed; 0 = 1e-5 (mixed precision: 2e-3) */
    double factor;    /* times rounding, allowed too; 0 = 16 */
    bool bitwise;     /* instead: every bit must be the same */
} trm_verify_options;

typedef enum trm_verify_kind {
    TRM_VERIFY_LOSS,     /* one a step */
    TRM_VERIFY_FORWARD,  /* what an operator makes of the first batch, before any update */
    TRM_VERIFY_GRADIENT, /* of a parameter, of the first step */
    TRM_VERIFY_VARIABLE, /* parameter, state or slot after the last step */
    TRM_VERIFY_KINDS
} trm_verify_kind;
TRM_API const char *trm_verify_kind_name(trm_verify_kind kind); /* "gradient" */

typedef struct trm_verify_tensor {
    trm_verify_kind kind;
    const char *name;
    int64_t count;
    double error;    /* |split - one device| / |one device|, euclidean */
    double largest;  /* difference of an element */
    double rounding; /* as error, of the third run against one device; 0 with `bitwise` */
    bool same_bits, agrees;
} trm_verify_tensor;

typedef struct trm_verification {
    trm_verify_tensor *tensors; /* in the order of kinds, then of the graph */
    int32_t count;
    bool agrees, same_bits; /* all of them */
    /* the largest `rounding` of a loss: from about 0.01 on later steps say little */
    double chaos;
} trm_verification;

/* Collective over model->parallel.comm, with its split, plan and mesh (or the context's). `model`
 * is as for
 * trm_model_create, with whole batches in model->data on every rank; optimiser, schedule,
 * accumulation, clipping,
 * loss scale and precision are those of the options. Only rank 0 gets a result, and works on alone
 * for it: the
 * others return with NULL in *out as soon as the split job is done.
 *   owns   *out by the caller, trm_verification_destroy
 *   error  INVALID (one rank, or nothing is split), and those of trm_model_create and trm_model_train; a
 *          difference is no error
 *   cost   three trainings of `steps` and as many forward passes that keep operators' outputs
 */
TRM_API TRM_MUST_USE trm_status trm_verify(const trm_model_options *model,
                                           const trm_verify_options *options,
                                           trm_verification **out, trm_error *err);
TRM_API void trm_verification_destroy(trm_verification *verification);

#ifdef __cplusplus
}
#endif
#endif
