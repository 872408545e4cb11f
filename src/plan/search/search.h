/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/search.h: which strategy each operator gets on a mesh: the space of plans, their
 * costs, the search.
 *
 *      training graph, mesh, prices --trmi_space_create--> nodes (forward operators) x strategies,
 *      edges (values)
 *      weights w, lambda            --trmi_space_solve---> the plan with least  B + w G + lambda M, with bound
 *                                                           B blocking seconds: operators,
 *                                                           redistribution, halo
 *                                                           G seconds of gradient traffic, which
 *                                                           may hide
 *                                                           M bytes a rank: weights, gradients,
 *                                                           slots, activations
 *      a choice                     --trmi_space_measure-> B, G, M, traffic by axis, step time by event simulation
 *
 * Any schedule of a plan takes at least (1 - mu) B + mu G for every mu in [0, 1], so that the least
 * of that over all plans bounds the best overlapped step from below (w = mu / (1 - mu));
 * trmi_search sweeps mu, simulates the plans that come out and the baselines, and keeps the best.
 * Pure: the same arguments, the same answer.
 */
#ifndef TRMI_PLAN_SEARCH_H
#define TRMI_PLAN_SEARCH_H

#include "plan/search/links.h"
#include "plan/shard/sharding.h"
#include "plan/solve/solve.h"
#include "plan/solve/solve_front.h"

/* ---- costs that the caller knows
 *  ----------------------------------------------------------------- */

struct trmi_space;
struct trmi_space_node;

/* Of a node on one rank, while all ranks run: its operator, its gradient operators, the update of
 * its weights where their gradient stays in factors (0: there are none). */
typedef struct trmi_node_seconds {
    double forward, backward, factors;
} trmi_node_seconds;
typedef struct trmi_search_costs {
    /* Seconds of a node on the local shapes of a strategy. Comes with the roofline of `prices`; may
     * replace it. NULL = that. */
    void (*seconds)(void *context, const struct trmi_space *space,
                    const struct trmi_space_node *node, const trmi_strategy *strategy,
                    trmi_node_seconds *out);
    void *context;
    const trmi_prices *prices; /* NULL = built in */
    int32_t slots;             /* of the optimiser, float32 copies of each parameter */
    int32_t gradients;         /* copies of each gradient: 2 where they are accumulated; 0 = 1 */
    /* part of gradient traffic that can run beside operators: 1 = all, 0 = none */
    double overlap;
    double slowdown; /* of operators beside traffic; 0 = 1 */
    /* gradients travel in buckets (plan/lower/buckets.h); false: each by itself */
    bool fuse;
    double wire;       /* ... as so much of their bytes: 0.5 in 16 bits; 0 = 1 */
    bool shard_stores; /* parameters may be stored in parts (optimiser sharding) */
    /* the back-end makes norms again in backward (trmi_shard_rule): nobody chooses that */
    bool rule;
    /* ranks have one copy of the parameters where a plan leaves all of them whole, and a slice of
     * the optimiser each (trmi_shard_settle_slices), as data parallel has it */
    bool slices;
    /* slices: ... each has a copy of its own, and gathers what others have updated: ranks of
     * several hosts */
    bool gathers;
    /* slices: ... and where a plan cuts samples only, they make gradients of convolutions together
     * (lower_joint.c) */
    bool joint;
    double update_byte; /* seconds a byte of parameter in the optimiser; 0 = 5 x prices->byte */
    /* seconds an operation of the products that it makes of gradients in factors; 0 = prices->flop
     */
    double update_flop;
    /* measured (plan/search/links.h), NULL = update_byte; lives as long as the space */
    const trmi_curve *update;
    const trmi_curve *sliced; /* ... of slices; NULL = the same */
    double overhead;          /* seconds of every step beside all that */
} trmi_search_costs;

/* ---- prices between all spreads (search_prices.c)
 *  --------------------------------------------------- */

/* Every spread of a shape in mesh order, partial sums too, by number; and the cheapest way between
 * any two. */
typedef struct trmi_price_table {
    trm_shape shape;
    trm_dtype dtype;
    bool no_columns;        /* no spread cuts the last dimension of four */
    int32_t letters, count; /* letters ^ axes */
    float *seconds;         /* [count][count], INFINITY = none */
} trmi_price_table;
/* -1 */
int32_t trmi_price_number(const trmi_price_table *table, const trmi_mesh *mesh,
                          const trmi_spread *spread);
/* Seconds of the cheapest way between two spreads; INFINITY: none. */
double trmi_price_between(const trmi_price_table *table, const trmi_mesh *mesh,
                          const trmi_spread *from, const trmi_spread *to);
trm_status trmi_price_table_fill(trmi_price_table *table, const trmi_mesh *mesh,
                                 const trmi_prices *prices, trmi_arena *arena, trm_error *err);

/* Between these the price of a gradient message is taken as a line. */
enum { TRMI_SMALL_MESSAGE = 4096, TRMI_LARGE_MESSAGE = 16 << 20 };

/* ---- space
 *  ------------------------------------------------------------------------------------------- */

/* One way of storing the parameters of an operator. */
typedef struct trmi_store_cost {
    double blocking; /* gathering parts before use */
    double gradient; /* bringing the gradient to the parts */
    double bytes;
} trmi_store_cost;

/* Where the ranks make the gradient of the weights together: what that adds to the cost of each its
 * own. */
typedef struct trmi_joint_cost {
    bool made;
    double seconds, bytes; /* usually negative */
} trmi_joint_cost;

/* Operators that look alike share all of this. */
typedef struct trmi_space_class {
    int32_t op; /* the first of them in the graph */
    char *key;
    int32_t count; /* strategies */
    trmi_strategy *strategies;
    double *forward, *backward; /* [count] seconds of the operator and of its gradient operators */
    /* [count] seconds of updating weights whose gradient stays in factors; 0: there are none */
    double *factors;
    double *exchange;        /* [count] seconds of halo and statistics, both ways */
    double *kept;            /* [count] bytes of outputs that backward reads ... */
    bool repeats;            /* ... of which the first may be made again there: */
    double *again, *saved;   /* [count] seconds, bytes */
    trmi_store_cost *stores; /* [count][2]: as read, in parts */
    /* [count] whole, updated in slices; blocking INFINITY: a parameter is not whole */
    trmi_store_cost *slices;
    /* [count] counted in slices, and in a step of plans that cut samples only */
    trmi_joint_cost *joint;
    int32_t members;
} trmi_space_class;

typedef struct trmi_space_node {
    int32_t op, group; /* in the graph, in classes */
    int32_t *backward; /* gradient operators in the graph */
    int32_t backward_count;
    int32_t pinned; /* strategy, -1 = free */
    bool repeats;   /* backward may make its first output again (trmi_shard_repeatable) */
    bool dropped;   /* ... and always does, by the rule */
    uint8_t read;   /* outputs that backward reads, as bits */
} trmi_space_node;

typedef struct trmi_space_edge {
    int32_t from, to, value, input; /* nodes; value of the graph; input number at `to` */
    bool gradient;                  /* the way back is priced too */
    /* backward reads it as `to` does: where that is another way, both are kept */
    bool kept;
    int32_t table;
} trmi_space_edge;

/* Seconds: offset, which is not positive, + byte x bytes of parameters. */
typedef struct trmi_update_line {
    double byte, offset;
} trmi_update_line;
typedef struct trmi_space {
    trmi_arena arena;
    const trm_graph *graph; /* borrowed */
    trmi_mesh mesh;
    trmi_search_costs costs;
    trmi_prices prices;
    trmi_space_class *classes;
    int64_t classes_count, classes_capacity;
    trmi_space_node *nodes;
    int32_t nodes_count;
    trmi_space_edge *edges;
    int64_t edges_count, edges_capacity;
    float **tables; /* [tables_count] shared between equal edges: seconds */
    float **bytes;  /* the same: kept for backward in another way than made; NULL: none */
    int64_t tables_count, tables_capacity;
    trmi_price_table *prices_of; /* by shape and dtype */
    int64_t prices_count, prices_capacity;
    trmi_update_line update, sliced; /* below the optimiser's curves where plans lie */
    bool casts;                      /* parameters are read in another precision */
    /* not all ways of operators are looked at: meshes of four axes, where no plan is given. Bounds
     * are of those that are */
    bool bounded;
    double seconds; /* that building took */
} trmi_space;

/* `graph` is a training graph of trmi_shard_graph (an inference graph is fine too). Operators that
 * `pins` pins
 * (NULL = none) keep their strategy.   owns: caller; graph outlives it   error INVALID (pins), NOMEM
 */
trm_status trmi_space_create(const trm_graph *graph, const trmi_mesh *mesh,
                             const trmi_search_costs *costs, const trmi_shard_plan *pins,
                             trmi_space **out, trm_error *err);
void trmi_space_destroy(trmi_space *space);

static inline const trmi_space_class *trmi_space_class_of(const trmi_space *space, int32_t node) {
    return &space->classes[space->nodes[node].group];
}
static inline const trmi_op *trmi_space_op(const trmi_space *space, int32_t node) {
    return &space->graph->ops[space->nodes[node].op];
}

/* Bytes of the largest part of a value. */
double trmi_space_bytes(const trmi_space *space, int32_t value, const trmi_spread *spread);
/* search_stores.c: while a space is built. Plans have between a share of all parameters and all of
 * them: the line below the optimiser's curve is the curve's where shares begin. */
void trmi_space_find_update_lines(trmi_space *space);
/* One parameter of operator `op` in strategy i of its class: all ways of storing it are added to
 * the class' stores and slices. `table`: prices of the parameter's shape. */
void trmi_space_add_parameter(const trmi_space *space, const trmi_price_table *table,
                              const trmi_op *op, int32_t input, trmi_space_class *of, int32_t i);
/* How parameter `input` of a node is stored in parts beside strategy i; false: not possible. */
bool trmi_space_parts(const trmi_space *space, int32_t node, int32_t input, int32_t i,
                      trmi_spread *out);
/* Seconds of a node in strategy i by the roofline. */
void trmi_space_roofline(const trmi_space *space, int32_t node, int32_t i, trmi_node_seconds *out);
/* Seconds of the optimiser for all parameters of a rank together, or for its slices of all: never
 * below the line, which is what a sum over operators can count. */
double trmi_space_update(const trmi_space *space, double bytes, bool sliced);
/* Copies of each gradient in memory. */
static inline int32_t trmi_space_gradients(const trmi_space *space) {
    return space->costs.gradients > 1 ? space->costs.gradients : 1;
}
/* Seconds of a bucket of so many bytes of gradients, packing and unpacking included. */
double trmi_space_bucket(const trmi_space *space, trmi_move move, uint32_t axes, double bytes);
/* A parameter's cast, if `value` is one, read as `read`: bytes of a rank, kept all step, and
 * seconds; of `sliced` plans, whose ranks have one copy of all casts too, each rank makes its
 * share. */
double trmi_space_cast(const trmi_space *space, int32_t value, const trmi_spread *read, bool sliced,
                       double *seconds);
/* The strategy of a node that follows its inputs: cheapest from where they are. */
int32_t trmi_space_follow(const trmi_space *space, int32_t node, const int32_t *strategy);
/* Seconds of the cheapest way between spreads of a value; INFINITY: none. */
double trmi_space_way(const trmi_space *space, int32_t value, const trmi_spread *from,
                      const trmi_spread *to);
/* Seconds of bringing a parameter from its parts to `whole`, or its gradient from sums of `whole`
 * to the parts. */
double trmi_space_store_move(const trmi_space *space, int32_t value, const trmi_spread *parts,
                             const trmi_spread *whole, bool scatter);
/* What the gradient of an input is made as by these letters: an axis that only repeats makes whole
 * gradients; and what the gradient of an output is wanted as: partial results want all of it, parts
 * their part. */
trmi_spread trmi_space_gradient(const trmi_mesh *mesh, const trmi_spread *read,
                                const char *letters);
trmi_spread trmi_space_wanted(const trmi_mesh *mesh, const trmi_spread *made);

/* ---- one plan
 *  ------------------------------------------------------------------------------------------ */

/* A plan in a space: per node a strategy, a way of storing its parameters, and whether backward
 * makes its output again. */
typedef struct trmi_choice {
    int32_t *strategy; /* [nodes] */
    uint8_t *parts;    /* [nodes] parameters are stored in parts */
    uint8_t *again;    /* [nodes] */
} trmi_choice;
bool trmi_choice_open(trmi_choice *choice, const trmi_space *space, trmi_arena *arena);
void trmi_choice_copy(trmi_choice *to, const trmi_choice *from, const trmi_space *space);
bool trmi_choice_equal(const trmi_choice *a, const trmi_choice *b, const trmi_space *space);

typedef struct trmi_weights {
    double gradient, memory; /* w, lambda (seconds a byte) */
    /* of the plans that leave all parameters whole, which are then updated in slices */
    bool sliced;
} trmi_weights;
/* Is the plan one of those, and are they (costs.slices)? */
bool trmi_choice_sliced(const trmi_space *space, const trmi_choice *choice);
/* Does it cut nothing but samples, so that ranks make gradients jointly (costs.joint)? */
bool trmi_choice_joint(const trmi_space *space, const trmi_choice *choice);
/* search_joint.c: of a node with a strategy; its seconds by the roofline, and as they are taken. */
trmi_joint_cost trmi_space_joint(const trmi_space *space, const trmi_space_node *node,
                                 const trmi_strategy *strategy, const trmi_node_seconds *roof,
                                 const trmi_node_seconds *seconds);
/* Seconds of meeting before and after slices are updated; of the start of gathering them. */
double trmi_space_meetings(const trmi_space *space);
/* Beside that: seconds of gathering so many bytes of parameters out of slices. 0: ranks have one
 * copy. */
double trmi_space_gathered(const trmi_space *space, double bytes);

/* Seconds (B + w G) and bytes of a node beside its neighbours, with parameters whole or in parts,
 * its output kept or made again. INFINITY: there is no such way. */
typedef struct trmi_way {
    double seconds, bytes;
} trmi_way;
enum {
    TRMI_WAY_PARTS = 1,
    TRMI_WAY_AGAIN = 2,
    TRMI_WAYS = 4,
    TRMI_WAY_SLICED = 4 /* beside the others */
};
trmi_way trmi_space_node_way(const trmi_space *space, const trmi_space_class *of, int32_t strategy,
                             int way, double gradient);

/* The cheapest plan for given weights: least B + w G + lambda M.   *marginals (may be NULL): [nodes][strategies]
 * in the arena, the cheapest whole with that strategy.
 */
trm_status trmi_space_solve(const trmi_space *space, const trmi_weights *weights, trmi_choice *out,
                            trmi_solution *solution, float ***marginals, trmi_arena *arena,
                            trm_error *err);
/* Time (B + w G) against memory of all plans (plan/solve/solve_front.h). limit 0: the whole curve,
 * else
 * the fastest plan within it.
 * Memory has no price in `weights`.   *points: choices of out->points, in the arena. */
trm_status trmi_space_front(const trmi_space *space, const trmi_weights *weights, double limit,
                            trmi_arena *arena, trmi_front *out, trmi_choice **points,
                            trm_error *err);
/* The same among the plans in which `node` has this strategy. */
trm_status trmi_space_solve_with(const trmi_space *space, const trmi_weights *weights, int32_t node,
                                 int32_t strategy, trmi_choice *out, trmi_solution *solution,
                                 trm_error *err);

typedef struct trmi_measure {
    double step; /* seconds, by event simulation */
    double compute, redistribute, exchange, gather, again, update, overhead;
    double blocking; /* B: their sum */
    double gradient; /* G: all buckets one behind the other */
    double exposed;  /* of G */
    double bytes;    /* M, first order: what follows */
    double weight_bytes, gradient_bytes, slot_bytes, kept_bytes;
    int32_t buckets, messages; /* gradient messages that were put into buckets */
    double joint_bytes;        /* of gradients that ranks make together: nothing of them travels */
} trmi_measure;
trm_status trmi_space_measure(const trmi_space *space, const trmi_choice *choice, trmi_measure *out,
                              trm_error *err);

/* What happens when in a step of one rank, for tables, pictures and the simulator. */
typedef enum trmi_event_kind {
    TRMI_EVENT_OP,
    TRMI_EVENT_MOVE,
    TRMI_EVENT_BUCKET,
    TRMI_EVENT_UPDATE
} trmi_event_kind;
typedef struct trmi_simulated_event {
    trmi_event_kind kind;
    int32_t node; /* -1: none */
    trmi_phase phase;
    const char *what; /* "input 0", "halo", "gradient", ... */
    trmi_move move;   /* MOVE and BUCKET */
    uint32_t axes;
    double bytes, begin, seconds;
    int32_t count; /* BUCKET: gradients in it */
} trmi_simulated_event;
typedef struct trmi_timeline {
    trmi_arena arena;
    trmi_simulated_event *events;
    int64_t count, capacity;
} trmi_timeline;
/* The same as trmi_space_measure, event by event; redistribution as its cheapest route's moves.
 *   owns: caller frees with trmi_timeline_free */
trm_status trmi_space_timeline(const trmi_space *space, const trmi_choice *choice,
                               trmi_router *router, trmi_timeline *timeline, trmi_measure *out,
                               trm_error *err);
void trmi_timeline_free(trmi_timeline *timeline);

/* To and from plan files. `plan_of` writes a line per operator with loops.
 *   error  INVALID: a line that no strategy fits */
trm_status trmi_space_plan(const trmi_space *space, const trmi_choice *choice,
                           trmi_shard_plan **out, trm_error *err);
trm_status trmi_space_choice(const trmi_space *space, const trmi_shard_plan *plan, trmi_choice *out,
                             trm_error *err);

/* ---- searches
 *  ----------------------------------------------------------------------------------------------
 */

/* Plans that people write by hand. */
typedef enum trmi_baseline {
    TRMI_BASELINE_SAMPLES,    /* data parallel */
    TRMI_BASELINE_HEAD,       /* data parallel, the last linear operators and the loss by classes */
    TRMI_BASELINE_OPTIMIZER,  /* data parallel, parameters stored in parts */
    TRMI_BASELINE_SPATIAL,    /* rows of images, data parallel where there are none */
    TRMI_BASELINE_REPLICATED, /* every rank the same */
    TRMI_BASELINES
} trmi_baseline;
const char *trmi_baseline_name(trmi_baseline baseline);
/* false: this graph has nothing that the baseline would cut. */
bool trmi_space_baseline(const trmi_space *space, trmi_baseline baseline, trmi_choice *out);

/* MindSpore's other two searches, for comparison. Recursive: axis by axis, operators in the order
 * of their weight, each the cheapest letter beside what is decided. Propagation: from the pinned
 * operators (none: from the samples of the inputs) breadth first, each what moves least. Neither
 * looks back, neither has a bound. */
trm_status trmi_space_recursive(const trmi_space *space, trmi_choice *out, trm_error *err);
trm_status trmi_space_propagate(const trmi_space *space, trmi_choice *out, trm_error *err);

/* ---- the whole search
 *  ---------------------------------------------------------------------------------------- */

typedef enum trmi_search_mode {
    TRMI_SEARCH_OPTIMAL,
    TRMI_SEARCH_RECURSIVE,
    TRMI_SEARCH_PROPAGATION
} trmi_search_mode;

/* By our names or MindSpore's; NULL: optimal.   error INVALID */
trm_status trmi_search_mode_parse(const char *name, trmi_search_mode *mode, trm_error *err);

typedef struct trmi_search_options {
    trmi_search_mode mode;
    double memory_bytes;    /* a rank; 0 = any */
    bool frontier;          /* the whole curve of time against memory */
    const trmi_choice *own; /* a user's plan to compare with, or NULL */
    /* the best, because it was the fastest when it ran, or NULL: by predictions */
    const trmi_choice *take;
} trmi_search_options;

/* A plan with a name: a baseline, a point of the frontier, the winner. */
typedef struct trmi_candidate {
    const char *name;
    trmi_choice choice;
    trmi_measure measure;
    bool fits;
} trmi_candidate;

/* Of one operator: what else it could be, and what the whole would then cost more. */
typedef struct trmi_runner_up {
    int32_t strategy; /* -1: nothing else */
    double price;     /* seconds; INFINITY: not known */
} trmi_runner_up;

typedef enum trmi_bound {
    TRMI_BOUND_FREE,    /* no limit, or the best plan of all fits */
    TRMI_BOUND_EXACT,   /* of all plans that fit, by lists of time and memory */
    TRMI_BOUND_LAGRANGE /* memory at a price: the lists were too long */
} trmi_bound;
enum { TRMI_CANDIDATES = 64 };
typedef struct trmi_found {
    trmi_candidate best;
    double objective;                /* = best.measure.step */
    double lower_bound;              /* of every plan of the space that fits the memory */
    double additive, additive_bound; /* B + w G of the last exact solve, and its bound */
    trmi_weights weights;
    trmi_solution solution; /* of that solve */
    double solve_seconds;   /* all solves */
    int32_t solves;
    /* and the user's, if given; name NULL: not there */
    trmi_candidate baselines[TRMI_BASELINES + 1];
    int32_t baselines_count;
    /* falling memory, rising time: of all points some that lie apart */
    trmi_candidate frontier[TRMI_CANDIDATES];
    int32_t frontier_count;
    /* its proof: all points by B + w G, slack, stretches left open; count 0: not asked */
    trmi_front front;
    trmi_bound bound;            /* what the limit of memory did to lower_bound */
    trmi_candidate least_memory; /* choice.strategy NULL when not asked */
    trmi_runner_up *runners;     /* [nodes] */
    bool infeasible;             /* nothing fits: best is the plan of least memory */
} trmi_found;

/* Everything in `found` is in the arena.   error NOMEM, INVALID (no legal plan) */
trm_status trmi_search(const trmi_space *space, const trmi_search_options *options,
                       trmi_arena *arena, trmi_found *out, trm_error *err);

/* Up to `wanted` other plans, each the best with some operator cut in some way, chosen so that
 * their predicted times lie
 * apart: what predictions are held against.   out: candidates in the arena */
trm_status trmi_search_others(const trmi_space *space, const trmi_found *found, int32_t wanted,
                              trmi_arena *arena, trmi_candidate *out, int32_t *count,
                              trm_error *err);

/* ---- in one call
 *  ------------------------------------------------------------------------------------------------
 */

typedef struct trmi_auto_options {
    const trmi_mesh *mesh; /* NULL: every factorisation of `ranks`, in at most 3 axes */
    int32_t ranks, hosts;  /* hosts 0 = 1 */
    trmi_search_mode mode;
    double memory_bytes; /* a rank; 0 = any */
    /* NULL = roofline and built-in prices; the same on every rank */
    const trmi_search_costs *costs;
    const trmi_shard_plan *pins; /* operators that it pins are kept; needs `mesh` */
} trmi_auto_options;

/* The best plan for a training graph (trmi_shard_graph), never predicted slower than data parallel.
 * All ranks that
 * call it with equal arguments get equal plans. What does not fit memory_bytes gives INVALID, with
 * the least that would.
 *   owns  caller: trmi_shard_plan_destroy; *found_step (may be NULL): predicted seconds */
trm_status trmi_search_plan(const trm_graph *graph, const trmi_auto_options *options,
                            trmi_shard_plan **out, double *found_step, trm_error *err);

#endif
