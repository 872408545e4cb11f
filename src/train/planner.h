/* train/planner.h: inside of the planner.
 *
 *      model options --batch x ranks--> training graph --for each mesh--> space --search--> found
 *                                            ^ measured operators, links         \--> the best of all meshes
 *      measure what the best plans use, search again, until nothing changes */
#ifndef TRMI_TRAIN_PLANNER_H
#define TRMI_TRAIN_PLANNER_H

#include "trireme/planner.h"

#include "base/memory.h"
#include "plan/search.h"

/* ---- links (planner_links.c) ---------------------------------------------------------------------- */

enum { TRMI_LEVELS = 4, TRMI_POINTS = 32, TRMI_CURVES = 64 };
typedef struct trmi_level {
    char name[16];
    int64_t ranks;      /* ranks that such a unit holds: 8 in a host, 512 in a pod */
    double alpha, beta; /* seconds a message, a byte */
    bool shared;        /* beta is the unit's, divided among the ranks of the unit below */
} trmi_level;
typedef struct trmi_curve {
    trmi_move move;
    int32_t ranks, count;
    double bytes[TRMI_POINTS], seconds[TRMI_POINTS]; /* of the full vector, rising */
} trmi_curve;
typedef struct trmi_links {
    trmi_level levels[TRMI_LEVELS];
    int32_t levels_count;
    trmi_curve curves[TRMI_CURVES];
    int32_t curves_count;
    double flops, bytes;  /* a second, of one rank; 0 = this machine's, measured */
    double speed;         /* of a rank's operators against this machine's, measured; 0 = 1 */
    double overlap, slowdown;
    int32_t cores;        /* that ranks of a host share; 0 = each its own */
    double scale_alpha, scale_beta; /* what-if */
    const trmi_mesh *mesh; /* of the present search */
} trmi_links;
/* INVALID with line, found and expected. */
trm_status trmi_links_parse(const char *text, trmi_links *out, trm_error *err);
void trmi_links_local(trmi_links *out, int32_t ranks);
/* trmi_prices.seconds; `context`: the links with their mesh set. */
double trmi_links_seconds(void *context, trmi_move move, uint32_t axes, double bytes);

/* ---- operators (planner_costs.c) ---------------------------------------------------------------------- */

typedef struct trmi_op_cost_entry {
    char *key;
    double forward, backward;      /* seconds on local shapes, measured; < 0: cannot be by itself */
    double forward_ratio, backward_ratio, size; /* over the roofline; the roofline's forward seconds */
} trmi_op_cost_entry;
typedef struct trmi_costs {
    trmi_arena arena;
    const trm_model_options *model;
    int threads;
    double flop, byte;    /* seconds, this machine's rates with `threads` */
    double factor;        /* on all: ranks that share cores, speed of the other machine */
    double share;         /* on memory traffic: ranks that share its bandwidth; at least 1 */
    trmi_op_cost_entry *entries;
    int64_t count, capacity;
    int64_t measured;     /* in this process */
    double measure_seconds, limit_seconds;
    struct trmi_tuning *file; /* NULL: not kept */
} trmi_costs;
/* `together`: threads of all ranks of this machine that run at a time. */
trm_status trmi_costs_open(trmi_costs *costs, const trm_model_options *model, int threads, int together, trm_error *err);
void trmi_costs_close(trmi_costs *costs);
/* trmi_search_costs.seconds */
void trmi_costs_seconds(void *context, const trmi_space *space, const trmi_space_node *node,
                        const trmi_strategy *strategy, double *forward, double *backward);
/* Measures what the choice uses and is not known; *news: how many. */
trm_status trmi_costs_measure(trmi_costs *costs, const trmi_space *space, const trmi_choice *choice, int32_t *news,
                              trm_error *err);

/* ---- the planner ------------------------------------------------------------------------------------------ */

typedef struct trmi_planned_mesh {
    trmi_mesh mesh;
    trmi_space *space;
    trmi_found found;
} trmi_planned_mesh;

typedef struct trmi_flip {
    const char *what;  /* "bandwidth", "batch", "classes" */
    double at;         /* factor on the present value; 0 = nothing changes in the range looked at */
    double low, high;  /* range of factors */
    char to[96];       /* what the plan becomes */
} trmi_flip;

struct trm_planner {
    trmi_arena arena;
    trm_model_options model;
    trm_planner_options options;
    trmi_links links;
    trmi_costs costs;
    trmi_search_mode mode;
    int32_t ranks;
    int64_t batch; /* global */
    int32_t slots;
    trm_program *program; /* whose graph is planned */
    trmi_shard_plan *given;
    trmi_planned_mesh *meshes;
    int32_t meshes_count, best, rounds;
    trmi_flip flips[3];
    int32_t flips_count;
    double search_seconds, total_seconds;
    double compiled_bytes; /* of rank 0's program of the best plan; 0: not compiled */
};

static inline const trmi_planned_mesh *trmi_planner_best(const trm_planner *p) { return &p->meshes[p->best]; }
/* The whole training graph of a global batch of `batch`. */
trm_status trmi_planner_graph(const trm_planner *p, int64_t batch, trm_program **out, trm_error *err);
/* Bytes of rank 0's program of the best plan, by liveness: what it will take but for kernels' scratch tables. */
trm_status trmi_planner_compiled(const trm_planner *p, double *bytes, trm_error *err);
trm_status trmi_planner_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh, trmi_space **out,
                              trm_error *err);
/* "data parallel", "n", "n:98% k:2%": the cuts of a plan by work. */
void trmi_planner_summary(const trmi_space *space, const trmi_choice *choice, char *text, size_t size);
trm_status trmi_planner_flips(trm_planner *p, trm_error *err);

#endif
