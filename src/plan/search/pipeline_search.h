/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/pipeline_search.h: prices and searches plans with pipeline stages.
 *
 *      shape   stages x chunks, micro-batches, schedule, recompute
 *      space   plans of one micro-batch on the mesh of one stage (search.h)
 *      begins  the nodes with which the virtual stages begin
 *      choice  strategies of all nodes, as in a space
 *          --trmi_pipe_measure-->  seconds of each stage, played (pipeline/stage_schedule.h): the step
 *
 *      all shapes x meshes x begins x choices  --trmi_pipe_search-->  the fastest plan and a bound
 *
 * A step takes at least, for each stage r, what the stages before r take for one micro-batch, then
 * all micro-batches of r, then the gradients and the update of stage 0; and at least all
 * micro-batches of r and its own update. The search finds the cut into stages for which the largest
 * of these is least: every run of nodes has its least seconds from an exact search of its part of
 * the space (trmi_space_part), and equal runs are searched once. No plan of the shape is faster, so
 * a shape whose bound is above the best plan is not searched further.
 *
 * Where the ranks meet around their updates, a step is longer by that: no work hides a meeting.
 *
 * Ranks that share cores compute faster while others wait. A step then takes at least those seconds
 * divided by `crowding`, and at least the mean of all ranks' work. */
#ifndef TRMI_PLAN_PIPELINE_SEARCH_H
#define TRMI_PLAN_PIPELINE_SEARCH_H

#include "plan/pipeline/stage_schedule.h"
#include "plan/search/search.h"

/* How micro-batches go through the stages. */
typedef struct trmi_pipe_shape {
    int32_t stages, chunks, micros; /* chunks: virtual stages of each stage */
    trmi_pipeline_order order;
    bool recompute; /* the values of a block are computed again in backward */
} trmi_pipe_shape;

/* The caller's costs of messages between stages, and its memory limit. */
typedef struct trmi_pipe_costs {
    /* seconds of a message of `bytes` from each rank of one stage to a rank of another; must not
     * decrease with bytes */
    double (*message)(void *context, int32_t stages, int32_t from, int32_t to, double bytes);
    /* seconds in which the ranks of all stages meet once (TRMI_MEETINGS_BEFORE); NULL: they do
     * not */
    double (*meeting)(void *context, int32_t stages);
    void *context;
    /* seconds of work of either end of a message beside its copies (trmi_links_handover) */
    double handover;
    double overhead;     /* seconds of a step that no other item contains */
    double crowding;     /* threads of all ranks / their cores, as in trmi_pipeline_play */
    double memory_bytes; /* limit of a rank; 0 = none */
} trmi_pipe_costs;

/* One virtual stage. Seconds are those of one micro-batch. */
typedef struct trmi_pipe_run {
    int32_t begin, end; /* nodes */
    double forward, backward;
    double sent;          /* bytes of the messages that it sends */
    trmi_measure measure; /* of its nodes */
    int32_t in_flight;    /* micro-batches between its forward and its backward, at most */
} trmi_pipe_run;

/* The times and the memory of a rank of one stage in a step. */
typedef struct trmi_pipe_stage {
    double busy;   /* seconds in which it computes forwards and backwards */
    double ends;   /* end of its last backward */
    double update; /* seconds of its gradients and its update, after that or after the meeting */
    double bytes;  /* memory of a rank: the sum of what follows */
    double weight_bytes, gradient_bytes, slot_bytes, kept_bytes;
    double staging_bytes; /* messages, and the inputs of all micro-batches */
} trmi_pipe_stage;

/* A plan with stages, and its predicted step. Arrays are in the arena of the call. */
typedef struct trmi_pipe_plan {
    trmi_pipe_shape shape;
    const trmi_space *space; /* of one micro-batch */
    int32_t *begins;         /* [virtual stages] nodes */
    trmi_choice choice;
    trmi_pipe_run *runs;    /* [virtual stages] */
    trmi_pipe_stage *ranks; /* [stages] */
    trmi_pipeline pipeline; /* its actions are in the arena */
    double *starts, *ends;  /* [stages][actions] seconds at which each action computes */
    double step;            /* seconds */
    double met;     /* seconds at which the ranks have met before updates; 0: they do not meet */
    double meeting; /* seconds of one meeting; 0: they do not meet */
    double updated; /* seconds at which the last rank has made its update, and they meet again */
    double bubble;  /* part of the ranks' time until the last backward without work */
    double bytes;   /* of the rank with most */
    bool fits;
} trmi_pipe_plan;

/* Prices a plan: fills in *plan, of which shape, space, begins and choice are set.
 *   errors  INVALID (a schedule that cannot be), NOMEM */
trm_status trmi_pipe_measure(const trmi_pipe_costs *costs, trmi_pipe_plan *plan, trmi_arena *arena,
                             trm_error *err);

/* Where the ranks of all stages meet: in two places of a step. */
enum { TRMI_STAGE_MEETINGS = 2 };
/* Writes when they do in a plan that is priced, before and after updates: begin and end in seconds.
 * Returns their number; 0: they do not meet. */
int32_t trmi_pipe_meetings(const trmi_pipe_plan *plan, double (*out)[2]);
/* Returns the seconds of a step that its work does not contain: costs->overhead, and those in which
 * the ranks meet. */
double trmi_pipe_overhead(const trmi_pipe_costs *costs, int32_t stages);
/* Lists the nodes before which a stage can begin without more than one value that crosses. out
 * [nodes]; returns their number. */
int32_t trmi_pipe_cuts(const trmi_space *space, int32_t *out);
/* Finds the nodes of operators, "a,b", with which the second and further runs begin. out
 * [TRMI_VIRTUAL_STAGES_MAX].   errors  INVALID (no such operator, another order) */
trm_status trmi_pipe_begins(const trmi_space *space, const char *names, int32_t *out,
                            int32_t *count, trm_error *err);
/* Marks the parameters that a stage beginning with node `begin` reads and an earlier one updates,
 * in foreign [values]. Returns whether there are any. */
bool trmi_pipe_foreign(const trmi_space *space, int32_t begin, bool *foreign);

/* The search's options. */
typedef struct trmi_pipe_options {
    int32_t ranks;
    int64_t batch; /* samples of a step of all ranks: divided by the micro-batches */
    int64_t block; /* samples that a micro-batch has a multiple of; 0 = 1 */
    /* every rank of a stage reads samples of its own: micro-batches divide those of one rank */
    bool own_samples;
    /* 0 = all: numbers of stages, of micro-batches, of chunks */
    int32_t stages, micros, chunks;
    bool one_order; /* only `order` */
    trmi_pipeline_order order;
    bool recomputes, keeps; /* recompute or not; both false = both */
    const trmi_mesh *mesh;  /* of one stage; NULL = all */
    /* operators with which the second and further runs begin: those of a plan by hand; NULL =
     * all */
    const char *begins;
    trmi_pipe_costs costs;
    /* Makes the space of one micro-batch on the mesh of a stage, with or without edges
     * (trmi_space_open); the search owns *out, and connects it if it needs more than the operators
     * by themselves. */
    trm_status (*make_space)(void *context, const trmi_mesh *mesh, int32_t micros, bool recompute,
                             trmi_space **out, trm_error *err);
    void *context;
    double known; /* step of a plan without stages; plans that cannot be faster are bounded only */
    double
        margin; /* part of the best plan by which others must be faster to be more than bounded */
} trmi_pipe_options;

/* The best plan of one shape and mesh, or why there is none. */
typedef struct trmi_pipe_row {
    trmi_pipe_shape shape;
    trmi_mesh mesh;
    double bound;        /* no plan of this shape and mesh has a shorter step */
    trmi_pipe_plan plan; /* plan.space NULL: bounded only */
    /* ranks share cores, and of many cuts below the best plan a few were played: `bound` is that of
     * the others */
    bool few_cuts;
} trmi_pipe_row;

/* Result of a search. Everything is in the arena but the spaces. */
typedef struct trmi_pipe_found {
    trmi_pipe_row *rows; /* fastest plan first, then by bound */
    int32_t count;
    double lower_bound;  /* least bound of all rows; INFINITY: nothing was searched */
    int32_t most_stages; /* runs into which any row can be cut, of all rows that were searched */
    int64_t solves;
    double seconds;
    trmi_space **spaces; /* owned: trmi_pipe_found_free */
    int32_t spaces_count;
} trmi_pipe_found;

/* Searches all shapes, meshes, begins and strategies.
 *   errors  INVALID (nothing divides, operators of `begins` unknown), NOMEM */
trm_status trmi_pipe_search(const trmi_pipe_options *options, trmi_arena *arena,
                            trmi_pipe_found *out, trm_error *err);
void trmi_pipe_found_free(trmi_pipe_found *found);

#endif
