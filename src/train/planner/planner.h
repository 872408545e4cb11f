/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/planner.h: inside of the planner.
 *
 *      model options --batch x ranks--> training graph --exec/autoparallel/auto_parallel.h--> the
 *      best of all
 *      meshes --> report, flips, simulator
 *                                            ^ measured operators, links */
#ifndef TRMI_TRAIN_PLANNER_H
#define TRMI_TRAIN_PLANNER_H

#include "trireme/planner.h"

#include "base/memory.h"
#include "exec/autoparallel/auto_parallel.h"
#include "plan/search/links.h"

/* ---- the planner
 *  ------------------------------------------------------------------------------------------ */

typedef struct trmi_flip {
    const char *what; /* "bandwidth", "batch", "classes" */
    double at;        /* factor on the present value; 0 = nothing changes in the range looked at */
    double now;       /* its present value; 0: only the factor means something */
    double low, high; /* range of factors */
    char to[96];      /* what the plan becomes */
} trmi_flip;

/* Where nothing fits: what would. 0: nothing was found. */
typedef struct trmi_way_out {
    int64_t batch; /* global */
    int32_t ranks;
    double batch_step, ranks_step;
} trmi_way_out;

/* Costs at several times (planner_looks.c), and the plans that are predicted by them. */
typedef struct trmi_looks {
    trmi_links links[TRMI_COSTS_LOOKS];
    int32_t count;
    trmi_ranked plans[TRMI_RANKED];
    int32_t plans_count;
    /* seconds of a step: by the search's costs, by all looks */
    double first[TRMI_RANKED], now[TRMI_RANKED];
} trmi_looks;

struct trm_planner {
    trmi_arena arena;
    trm_model_options model;
    trm_planner_options options;
    trmi_links links;
    trmi_costs costs;
    trmi_probe probe;
    trmi_drive drive;
    char *links_text; /* measured here */
    int32_t ranks;
    int64_t batch;   /* global */
    int64_t classes; /* of the classifier; 0: there is none */
    int32_t slots;
    trm_graph *graph;               /* of training, whole */
    trm_graph *whole;               /* before it was differentiated, ... */
    trm_exec_options whole_options; /* ... and how it would be trained */
    trmi_shard_plan *given;
    trmi_flip flips[6];
    int32_t flips_count;
    trmi_candidate others[TRMI_CANDIDATES]; /* of the best mesh */
    double total_seconds;
    trmi_way_out way_out;
    trmi_looks *looks; /* NULL: none but the search's */
};

/* Ranks that share cores slow each other down; another machine has its own speed. */
void trmi_planner_settle_factor(trm_planner *p);
static inline bool trmi_planner_local_norms(const trm_planner *p) {
    return p->model.parallel.sync_batch_norm == TRM_NORM_LOCAL;
}
/* Which gradients ranks make jointly in plans that cut only samples, as their job would
 * (exec/distributed/cooperative.c). */
trm_joint trmi_planner_joint(const trm_planner *p);
static inline const trmi_drive_mesh *trmi_planner_best(const trm_planner *p) {
    return trmi_drive_best(&p->drive);
}
/* The model and its loss for a global batch of `batch`, as the user has written it, with `classes`
 * classes (0 = as they are). */
trm_status trmi_planner_forward(const trm_planner *p, int64_t batch, int64_t classes,
                                trm_graph **out, trm_node *loss, trm_error *err);
/* The whole training graph of a global batch of `batch`, with `classes` classes (0 = as they are).
 */
trm_status trmi_planner_graph(const trm_planner *p, int64_t batch, int64_t classes, trm_graph **out,
                              trm_error *err);
/* planner_classes.c: of the last linear operator of a forward graph; 0: there is none. And with
 * another number of them. */
int64_t trmi_planner_class_count(const trm_graph *graph);
trm_status trmi_planner_rescale_classes(const trm_graph *graph, int64_t classes, trm_node *loss,
                                        trm_graph **out, trm_error *err);
/* Bytes of rank 0's program of a plan, by liveness: what it will take but for kernels' scratch
 * tables. */
trm_status trmi_planner_compiled(const trm_planner *p, const trmi_space *space,
                                 const trmi_choice *choice, double *bytes, trm_error *err);
trm_status trmi_planner_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh,
                              trmi_space **out, trm_error *err);
/* "data parallel", "n", "n:98% k:2%": the cuts of a plan by work. */
void trmi_planner_summary(const trmi_space *space, const trmi_choice *choice, char *text,
                          size_t size);
trm_status trmi_planner_find_way_out(trm_planner *p, trm_error *err);
trm_status trmi_planner_flips(trm_planner *p, trm_error *err);

#endif
