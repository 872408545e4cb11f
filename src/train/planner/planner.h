/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/planner.h: the inside of trm_planner, shared by the files of the planner.
 *
 *        model options --batch x ranks--> training graph --search over all meshes--> best plan --> report, flips, simulator
 *                                                           ^ measured operators, links
 *
 * The search itself is in exec/autoparallel/auto_parallel.h (the drive) and src/plan/search; the
 * planner prepares its inputs and describes its results. One thread uses a planner; only rank 0 of
 * a communicator plans, the other ranks run the measurements that rank 0 requests.
 *
 *   cut     a letter for each axis of the mesh: how the operator is divided there (trireme help plan)
 *   flip    the factor on bandwidth, batch or classes from which another plan is the best
 *   round   one measurement of all costs; those of several rounds are combined by their median */
#ifndef TRMI_TRAIN_PLANNER_H
#define TRMI_TRAIN_PLANNER_H

#include "trireme/plan.h"

#include "base/format/report.h"
#include "exec/autoparallel/auto_parallel.h"
#include "plan/search/links.h"
#include "plan/search/pipeline_search.h"

/* ---- the planner ----------------------------------------------------------------------------- */

/* How far one quantity can change before another plan is at least 2 % faster. */
typedef struct trmi_flip {
    const char *what; /* "bandwidth", "batch", "classes" */
    double at;        /* factor on the present value; 0: no change within `low` to `high` */
    double now;       /* present value; 0: unknown, only the factor counts */
    double low, high; /* range of factors that was searched */
    char to[96];      /* cuts of the plan that is best there */
} trmi_flip;

/* Remedies where no plan keeps the memory limit: a smaller batch, more ranks. 0: none was found. */
typedef struct trmi_way_out {
    int64_t batch; /* a global batch with which a plan fits */
    int32_t ranks;
    double batch_step, ranks_step;
} trmi_way_out;

/* Costs measured at several times (planner_remeasure.c), and the plans that are predicted with
 * them. */
typedef struct trmi_measurements {
    trmi_links links[TRMI_COSTS_MEASUREMENTS];
    int32_t count;
    trmi_ranked plans[TRMI_RANKED];
    int32_t plans_count;
    /* predicted seconds of a step: by the search's costs, by the median of all measurements */
    double first[TRMI_RANKED], now[TRMI_RANKED];
} trmi_measurements;

/* The graph of one micro-batch of a pipeline. */
typedef struct trmi_micro_graph {
    int32_t micros;                /* micro-batches of the batch */
    trm_graph *forward, *training; /* as the model builds it; trmi_training_graph of it. Owned */
    trm_node loss;                 /* of `forward` */
} trmi_micro_graph;
/* Different numbers of micro-batches that one search tries, at most. */
enum { TRMI_MICRO_GRAPHS = 32 };
/* Plans for more ranks are not compiled: memory then is what the search counts. */
enum { TRMI_COMPILED_RANKS = 64 };

/* Plans with stages (planner_pipeline.c). */
typedef struct trmi_planner_pipe {
    trmi_micro_graph graphs[TRMI_MICRO_GRAPHS];
    int32_t graphs_count;
    bool searched; /* `found` is valid */
    bool chosen;   /* its first row is the plan of the planner */
    bool
        whole_limit; /* the bound is over all plans within the whole limit: TRMI_BOUND_WHOLE_LIMIT */
    trmi_auto_mesh mesh; /* that plan on the space of one micro-batch, for reports */
    trmi_pipe_found found;
    double compiled_bytes;     /* of the rank with most; 0 = not compiled */
    double lower_bound;        /* of all plans that were searched, those without stages too */
    trmi_partition_plan *file; /* a user's plan with stages; NULL = none */
    trmi_space *given_space;   /* of its micro-batch */
    trmi_pipe_plan given;      /* that plan, priced; space NULL = none */
    trmi_pipe_found freed;     /* options.stage_begins: the search without them; rows NULL = none */
    trmi_links *links;         /* with the mesh of messages between stages */
    trmi_mesh pairs, inner;    /* inner: the given mesh of a stage */
} trmi_planner_pipe;

/* The planner. `arena` has what lives as long as the planner; each search keeps its own results in
 * `drive`. Members are filled in the order of the stages in planner.c. */
struct trm_planner {
    trmi_arena arena;
    trmi_planner_pipe pipe;  /* plans with stages */
    trm_model_options model; /* a copy; its texts are in the arena */
    trm_planner_options options;
    trmi_links links;        /* cost of messages */
    trmi_costs costs;        /* cost of operators */
    trmi_op_benchmark probe; /* measures operators */
    trmi_plan_search drive;  /* the rounds of search and measuring, and their result */
    char *links_text;        /* links that this planner measured; owned */
    int32_t ranks;
    int64_t batch;                  /* the global batch */
    int64_t classes;                /* outputs of the classifier; 0: there is none */
    int32_t slots;                  /* of the optimiser, for each parameter */
    trm_graph *graph;               /* training graph of the global batch, uncut */
    trm_graph *whole;               /* the same before differentiation */
    trm_exec_options whole_options; /* options with which it is compiled and run */
    trmi_partition_plan *given;     /* the user's plan or pins; NULL: none */
    trmi_flip flips[6];             /* changes of the machine after which another plan is best */
    int32_t flips_count;
    trmi_candidate others[TRMI_CANDIDATES]; /* further candidate plans on the best mesh */
    double total_seconds;                   /* that planning took */
    trmi_way_out way_out;                   /* what would make a plan fit (planner_way_out.c) */
    trmi_measurements *measurements;        /* NULL: only the search's costs */
    struct trmi_simulation *simulation;     /* the last one (planner_simulate.c); NULL: none */
};

/* Sets the factor on operators' times: ranks that share cores slow each other down, and a links
 * file may describe a machine of another speed. */
void trmi_planner_settle_factor(trm_planner *p);
/* Returns the threads of all ranks divided by the cores that they have; at least 1. */
double trmi_planner_crowding(const trm_planner *p);
/* Returns whether each rank computes the statistics of batch norms over its own samples, which
 * saves their messages. */
static inline bool trmi_planner_local_norms(const trm_planner *p) {
    return p->model.exec.parallel.sync_batch_norm == TRM_NORM_LOCAL;
}
/* Returns which gradients the ranks of a host compute cooperatively in plans that cut only
 * samples, as the job itself would decide (exec/distributed/cooperative.c). */
trm_cooperative trmi_planner_cooperative(const trm_planner *p);
/* Sets *blocks to the number of blocks of samples in which strict determinism computes `batch`
 * samples of all ranks; 0: not strict.   errors  INVALID: the block does not divide them */
trm_status trmi_planner_blocks(const trm_planner *p, int64_t batch, int32_t *blocks,
                               trm_error *err);
/* Returns the mesh with the best plan. */
static inline const trmi_auto_mesh *trmi_planner_best(const trm_planner *p) {
    return trmi_auto_best(&p->drive);
}
/* Builds network and loss for a global batch of `batch`, with `classes` classes (0: as they
 * are); not differentiated. */
trm_status trmi_planner_forward(const trm_planner *p, int64_t batch, int64_t classes,
                                trm_graph **out, trm_node *loss, trm_error *err);
/* Builds the uncut training graph for a global batch of `batch`, with `classes` classes (0: as
 * they are). */
trm_status trmi_planner_graph(const trm_planner *p, int64_t batch, int64_t classes, trm_graph **out,
                              trm_error *err);
/* planner_classes.c: returns the number of classes, the outputs of the last linear operator of a
 * forward graph (0: there is none); and builds a copy of `graph` with another number of classes. */
int64_t trmi_planner_class_count(const trm_graph *graph);
trm_status trmi_planner_rescale_classes(const trm_graph *graph, int64_t classes, trm_node *loss,
                                        trm_graph **out, trm_error *err);
/* Compiles rank 0's program of a plan and sets *bytes to the memory it needs, without scratch
 * memory of kernels. */
trm_status trmi_planner_compiled(const trm_planner *p, const trmi_space *space,
                                 const trmi_choice *choice, double *bytes, trm_error *err);
/* Creates the search space of `graph` on `mesh`: strategies of each operator with their costs.
 *   owns  the caller */
trm_status trmi_planner_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh,
                              trmi_space **out, trm_error *err);
/* The differences between the space of a whole step and that of a stage. */
typedef struct trmi_planner_stage {
    bool staged;
    int32_t micros;
    bool recompute;
} trmi_planner_stage;
/* Makes the space of a stage of a pipeline; `graph`: of one micro-batch. It has no edges yet
 * (trmi_space_connect).   owns  *out: the caller */
trm_status trmi_planner_stage_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh,
                                    const trmi_planner_stage *stage, trmi_space **out,
                                    trm_error *err);
/* Builds the graphs of one of `micros` micro-batches.   owns  the caller destroys both */
trm_status trmi_planner_micro_graph(const trm_planner *p, int32_t micros, trmi_micro_graph *out,
                                    trm_error *err);
/* planner_pipeline.c: searches plans with stages (options.stages), and chooses one if it is better
 * than the plan without stages, or if a number of stages is given.
 *   errors  INVALID (numbers that do not divide, unknown operators), NOMEM */
trm_status trmi_planner_search_stages(trm_planner *p, trm_error *err);
/* planner_micro.c: finds or builds the graphs of one of `micros` micro-batches; kept. */
trm_status trmi_planner_micro(trm_planner *p, int32_t micros, const trmi_micro_graph **out,
                              trm_error *err);
/* Returns the training graph of one of `micros` micro-batches, kept; NULL: an error. Implements
 * trmi_op_benchmark.part, `context`: the planner. */
const trm_graph *trmi_planner_part(void *context, int32_t micros, trm_error *err);
/* planner_given.c: checks a user's plan with stages (pipe.file) against the graph of its
 * micro-batches.
 *   errors  INVALID (another graph, batch, operators), NOMEM */
trm_status trmi_planner_check_given(trm_planner *p, trm_error *err);
/* Measures the operators of that plan on rank 0, where costs are measured, and prices it
 * (pipe.given). */
trm_status trmi_planner_measure_given(trm_planner *p, trm_error *err);
trm_status trmi_planner_price_given(trm_planner *p, const trmi_pipe_costs *costs, trm_error *err);
/* Makes the space of one micro-batch on the mesh of a stage, without edges; `context`: the planner.
 *   owns  the caller */
trm_status trmi_planner_micro_space(void *context, const trmi_mesh *mesh, int32_t micros,
                                    bool recompute, trmi_space **out, trm_error *err);
/* planner_plans.c: makes the chosen plan, with or without stages, for a file.   owns  the caller */
trm_status trmi_planner_chosen(const trm_planner *p, trmi_partition_plan **out, trm_error *err);
/* Makes the plan of a plan with stages, for a file.   owns  the caller */
trm_status trmi_planner_staged_plan(const trm_planner *p, const trmi_pipe_plan *from,
                                    trmi_partition_plan **out, trm_error *err);
/* Compiles a rank of one stage; sets *bytes as trmi_planner_compiled. */
trm_status trmi_planner_stage_compiled(const trm_planner *p, const trmi_micro_graph *graph,
                                       const trmi_pipe_plan *from, int32_t stage, double *bytes,
                                       trm_error *err);
void trmi_planner_free_stages(trm_planner *p);
/* Writes the cuts of a plan with their share of the work to `text`: "n 98%, k 2%". */
void trmi_planner_summary(const trmi_space *space, const trmi_choice *choice, char *text,
                          size_t size);
/* Writes the simulated step of the best plan as a Chrome trace. */
trm_status trmi_planner_write_trace(const trm_planner *p, const char *path, trm_error *err);
/* Puts "timeline_events" and "timeline": the events of that step, of one of the equal ranks;
 * "hidden" ones run beside the operators. */
void trmi_planner_put_timeline(const trm_planner *p, trmi_report *report);
/* Searches for a smaller batch and for a number of ranks with which a plan fits
 * (planner->way_out). */
trm_status trmi_planner_find_way_out(trm_planner *p, trm_error *err);
/* Frees the last simulation, whose costs have changed. */
static inline void trmi_planner_forget_simulation(trm_planner *p) {
    trmi_free(p->simulation);
    p->simulation = NULL;
}
/* Searches for the flips of bandwidth, batch and classes (planner->flips). */
trm_status trmi_planner_flips(trm_planner *p, trm_error *err);

#endif
