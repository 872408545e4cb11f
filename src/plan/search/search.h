/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/search.h: chooses a strategy for each operator on a mesh: builds the space of plans,
 * prices it, searches it.
 *
 *      training graph, mesh, prices --trmi_space_create--> nodes (forward operators) x strategies,
 *      edges (values)
 *      weights w, lambda            --trmi_space_solve---> the plan with least  B + w G + lambda M, with bound
 *                                                           B blocking seconds: operators,
 *                                                           redistribution, halo
 *                                                           G seconds of gradient traffic, which
 *                                                           can overlap with backward
 *                                                           M bytes of a rank: weights, gradients,
 *                                                           slots, activations
 *      a choice                     --trmi_space_measure-> B, G, M, traffic by axis, step time by event simulation
 *
 * Every schedule of a plan takes at least (1 - mu) B + mu G seconds, for every mu in [0, 1]. So the
 * least of that over all plans is a lower bound of the best overlapped step (w = mu / (1 - mu)).
 * trmi_search() sweeps mu, simulates the plans that this finds and the baselines, and keeps the
 * fastest.
 *
 * Called by the planner (train/planner) and by the executor (exec/autoparallel/plan_search.c).
 * Invariant: the result depends on the arguments only, so ranks with equal arguments get equal
 * plans. */
#ifndef TRMI_PLAN_SEARCH_H
#define TRMI_PLAN_SEARCH_H

#include "base/stop.h"
#include "plan/search/links.h"
#include "plan/partition/partition.h"
#include "plan/solve/solve.h"
#include "plan/solve/solve_front.h"

#include <stdatomic.h>

/* ---- costs that the caller knows ---- */

struct trmi_space;
struct trmi_space_node;

/* Seconds of a node on one rank while all ranks run: its operator, its gradient operators, and the
 * update of those weights whose gradient stays in factors (0: none). */
typedef struct trmi_node_seconds {
    double forward, backward, factors;
} trmi_node_seconds;
/* The caller's data about the machine, the optimiser and the executor. Zero members mean the stated
 * defaults. */
typedef struct trmi_search_costs {
    /* Writes the seconds of a node on the local shapes of a strategy. *out holds the roofline
     * estimate of `prices` on entry and may be replaced. NULL = use the roofline */
    void (*seconds)(void *context, const struct trmi_space *space,
                    const struct trmi_space_node *node, const trmi_strategy *strategy,
                    trmi_node_seconds *out);
    void *context;
    const trmi_prices *prices; /* prices of messages and arithmetic; NULL = built in */
    int32_t slots;             /* optimiser slots: float32 arrays for each parameter */
    /* arrays for each gradient: 2 with gradient accumulation; 0 = 1 */
    int32_t gradients;
    /* fraction of the gradient traffic that can run beside operators: 1 = all, 0 = none */
    double overlap;
    double slowdown; /* factor by which operators slow down beside traffic; 0 = 1 */
    /* fraction of the messages of rings that travels beside their operators, and of the gathers of
     * parameters in parts beside all operators (lower_ahead.c); at most `overlap`; 0 = they
     * block */
    double ahead;
    /* gradients are reduced in buckets (plan/lower/buckets.h); false: each one by itself */
    bool fuse;
    double wire; /* bytes sent / bytes of float32 gradients: 0.5 with 16 bits; 0 = 1 */
    /* parameters may be stored in parts, one on each rank (optimiser sharding) */
    bool shard_stores;
    /* recomputed in backward in any case (trmi_partition_rule); the search cannot choose it */
    trmi_again_rules rules;
    /* where a plan leaves all parameters whole, the ranks share one copy of them and each updates a
     * slice (trmi_program_is_whole), as data parallel training does */
    bool slices;
    /* with slices: each rank has its own copy and gathers what other ranks have updated (several
     * hosts) */
    bool gathers;
    /* with slices: where a plan cuts samples only, ranks compute cooperative gradients of
     * convolutions (lower_cooperative.c) */
    bool cooperative;
    double update_byte; /* optimiser seconds per byte of parameter; 0 = 5 x prices->byte */
    /* optimiser seconds per operation of the products of gradient factors; 0 = prices->flop */
    double update_flop;
    /* measured curve of the optimiser (plan/search/links.h); NULL = use update_byte; must outlive
     * the space */
    const trmi_curve *update;
    /* measured curve of updating slices; NULL = the same as `update` */
    const trmi_curve *sliced;
    double overhead; /* seconds of every step that no other item contains */
    /* seconds a byte of gradients that each micro-batch adds to the sum of a step; 0 = none */
    double accumulate_byte;
    /* strict determinism: blocks of samples of the batch (strict_cuts.c); 0 = none */
    int32_t blocks;
    /* the back-end whose kernels round parameters, which then have no casts
     * (trmi_plan_options.readers_round); read as the space is made; NULL = all casts are made */
    const trmi_target *rounding;
    /* counts prices, solutions and measures, so that others see that a long search goes on; NULL =
     * not counted. Borrowed */
    atomic_ullong *done;
    const int32_t *stop; /* the caller's request to end the search (base/stop.h); NULL = none */
} trmi_search_costs;

/* ---- prices between all spreads (search_prices.c) ---- */

/* The cheapest seconds between any two spreads of a shape, by number. Contains every spread with
 * cuts in mesh order, partial sums included. */
typedef struct trmi_price_table {
    trm_shape shape;
    trm_dtype dtype;
    bool no_columns;        /* leave out spreads that cut the last of four dimensions */
    int32_t letters, count; /* choices for each axis; spreads: letters ^ axes */
    float *seconds;         /* [count][count]; INFINITY = no route */
} trmi_price_table;
/* Returns the number of a spread; -1 = not in the table. */
int32_t trmi_price_number(const trmi_price_table *table, const trmi_mesh *mesh,
                          const trmi_spread *spread);
/* Fills a table whose shape, dtype and no_columns are set. Its arrays lie in the arena.
 *   errors  UNSUPPORTED (too many spreads), NOMEM */
trm_status trmi_price_table_fill(trmi_price_table *table, const trmi_mesh *mesh,
                                 const trmi_prices *prices, trmi_arena *arena, trm_error *err);

/* Sizes in bytes between which the price of a gradient message is approximated by a line. */
enum { TRMI_SMALL_MESSAGE = 4096, TRMI_LARGE_MESSAGE = 16 << 20 };

/* ---- space ---- */

/* How the parameters of an operator are stored. */
typedef enum trmi_store {
    TRMI_STORE_AS_READ,
    TRMI_STORE_PARTS, /* in parts, gathered once: what forward gathers is kept for backward (ZeRO-2) */
    TRMI_STORE_AGAIN, /* in parts, gathered in forward and again in backward (ZeRO-3) */
    TRMI_STORES
} trmi_store;

/* Cost of one form of storing the parameters of an operator. */
typedef struct trmi_store_cost {
    double blocking; /* seconds of gathering parts, casting and updating */
    double once; /* part of `blocking` that a step of several micro-batches has once: updating */
    double gradient; /* of reducing the gradients, and of gathers that begin ahead; can overlap */
    double bytes;
} trmi_store_cost;

/* Cooperative gradient of an operator's weights: difference to the cost of each rank computing its
 * own. */
typedef struct trmi_cooperative_cost {
    bool made;             /* false: computed by each rank on its own */
    double seconds, bytes; /* difference in seconds and in bytes; usually negative */
} trmi_cooperative_cost;

/* Operators with the same key have the same strategies and costs; they share one class. */
typedef struct trmi_space_class {
    int32_t op; /* first operator of the class in the graph */
    /* everything that costs depend on, as text */
    char *key;
    int32_t count; /* strategies */
    trmi_strategy *strategies;
    /* [count] seconds of the operator, of its gradient operators */
    double *forward, *backward;
    /* [count] seconds of updating weights whose gradient stays in factors; 0: none */
    double *factors;
    /* [count] seconds of halo exchange and statistics, forward and backward */
    double *exchange;
    double *kept;            /* [count] bytes of outputs that are kept for backward ... */
    bool repeats;            /* ... the first of which may be recomputed there: */
    double *again, *saved;   /* [count] seconds of the recomputation, bytes saved by it */
    trmi_store_cost *stores; /* [count][TRMI_STORES] */
    /* [count] stored whole, updated in slices; blocking INFINITY: a parameter is not whole */
    trmi_store_cost *slices;
    /* [count] cooperative gradients; included in `slices` and in the step of plans that cut samples
     * only */
    trmi_cooperative_cost *cooperative;
    /* operators in the class */
    int32_t members;
} trmi_space_class;

/* A node of the space: one forward operator. */
typedef struct trmi_space_node {
    int32_t op, group; /* index of the operator in the graph, of its class in the space */
    int32_t *backward; /* indices of its gradient operators in the graph */
    int32_t backward_count;
    int32_t pinned; /* index of the pinned strategy, -1 = free */
    /* its first output may be recomputed in backward (trmi_partition_repeatable) */
    bool repeats;
    bool dropped; /* its first output is always recomputed, by the rule of the back-end */
    /* 1 + the input whose layer is recomputed with it (trmi_again_rules.sums), where no message
     * lies between the two; 0: it is no such sum */
    int32_t layer;
    uint8_t read; /* bit k: output k is read in backward */
} trmi_space_node;

/* An edge of the space: a value and one of its readers; or a tied parameter and two of its readers:
 * the first decides how the parameter is stored, and what another one needs is redistributed from
 * there. */
typedef struct trmi_space_edge {
    /* nodes; value in the graph; index of the input of `to` */
    int32_t from, to, value, input;
    /* 0: `from` makes the value. Else the value is a parameter that `from` reads first, as its
     * input `tied` - 1: the parameter is stored as that input needs it, and `to` reads it, too */
    int32_t tied;
    /* a gradient flows back, and its redistribution is priced, too */
    bool gradient;
    /* backward reads the value in the form that `to` reads; if that differs from the form in which
     * it was made, both are kept */
    bool kept;
    bool sum; /* from a layer to the sum that is recomputed with it */
    /* a stage ends behind that sum, which it sends: the program neither computes it again nor keeps
     * it for its own backward */
    bool ends;
    /* index in the tables of the space; of a sum also that of the table with `ends` */
    int32_t table, end_table;
} trmi_space_edge;

/* Optimiser seconds as a line: offset (not positive) + byte x bytes of parameters. */
typedef struct trmi_update_line {
    double byte, offset;
} trmi_update_line;
/* All plans of one graph on one mesh, with their costs. Read-only once it has its edges. */
typedef struct trmi_space {
    trmi_arena arena;
    const trm_graph *graph; /* borrowed */
    trmi_mesh mesh;
    trmi_block_marks marks; /* with costs.blocks */
    trmi_search_costs costs;
    trmi_prices prices;
    /* operators that are equal for the search share a class: its strategies and their costs */
    trmi_space_class *classes;
    int64_t classes_count, classes_capacity;
    /* the forward operators, in the order of the graph */
    trmi_space_node *nodes;
    int32_t nodes_count;
    /* values that one node makes and another reads */
    trmi_space_edge *edges;
    int64_t edges_count, edges_capacity;
    /* [tables_count][strategies of from][strategies of to] seconds, shared by equal edges */
    float **tables;
    /* the same: bytes that are kept for backward in a second form; NULL: none */
    float **bytes;
    int64_t tables_count, tables_capacity;
    trmi_price_table *prices_of; /* price tables, one for each shape and dtype */
    int64_t prices_count, prices_capacity;
    /* lines below the optimiser's curves: of whole updates, of slices */
    trmi_update_line update, sliced;
    bool casts;          /* some parameter is read in another precision */
    const bool *rounded; /* [values] casts that are not made (costs.rounding); NULL: none */
    /* some strategies are left out (meshes of four axes without a given plan); bounds then hold for
     * the remaining plans */
    bool bounded;
    /* [values] parameters that another stage of a pipeline updates; NULL: none */
    const bool *foreign;
    /* [values] the operator that reads a parameter, or its cast, first; it has the costs of storing
     * it */
    const int32_t *owners;
    /* for its edges: [ops] node of a forward operator, -1 = none; [values] depends on a trained
     * parameter, so that a gradient flows */
    int32_t *node_of;
    uint8_t *moving;
    bool connected; /* it has its edges */
    double seconds; /* wall-clock time of making it */
} trmi_space;

/* Builds the space of all plans of `graph` on `mesh`.
 *   graph  a training graph of trmi_training_graph(), or an inference graph
 *   costs  NULL = roofline with built-in prices, one slot, full overlap, buckets
 *   pins   operators that it pins keep their strategy; NULL = none
 *   owns   caller: trmi_space_destroy; graph outlives the space
 *   errors  INVALID (a pinned strategy is not possible), NOMEM */
trm_status trmi_space_create(const trm_graph *graph, const trmi_mesh *mesh,
                             const trmi_search_costs *costs, const trmi_partition_plan *pins,
                             trmi_space **out, trm_error *err);
/* Makes a space as trmi_space_create(), but without edges and prices between spreads, which take
 * most of the time: the costs of each operator by itself. trmi_space_connect() adds them, once. */
trm_status trmi_space_open(const trm_graph *graph, const trmi_mesh *mesh,
                           const trmi_search_costs *costs, const trmi_partition_plan *pins,
                           trmi_space **out, trm_error *err);
trm_status trmi_space_connect(trmi_space *space, trm_error *err);
/* Returns a lower bound of the seconds of one micro-batch, without updates, over all plans of a
 * space: the sum of the least seconds of each operator by itself. It needs no edges. */
double trmi_space_operator_bound(const trmi_space *space);
/* Frees a space; NULL is fine. */
void trmi_space_destroy(trmi_space *space);

/* Makes a space of the nodes [begin, end) of another one, without the edges that leave them
 * (space_part.c). Costs are shared with `space`, which outlives it. `foreign`: [values] parameters
 * whose gradients and updates do not count, as another stage has them; NULL: none. Everything in
 * *out is in the arena.   errors  NOMEM */
trm_status trmi_space_part(const trmi_space *space, int32_t begin, int32_t end, const bool *foreign,
                           trmi_arena *arena, trmi_space *out, trm_error *err);
/* Returns whether a parameter is trained and updated by the ranks of this space. */
static inline bool trmi_space_trains(const trmi_space *space, const trmi_op *parameter) {
    return parameter->attrs.leaf.trainable &&
           !(space->foreign != NULL && space->foreign[parameter->outputs[0]]);
}

/* Returns whether operator `op` is the first reader of a parameter or its cast, so that it has the
 * costs of storing it; other readers only redistribute it (edges with `tied`). */
bool trmi_space_owns(const trmi_space *space, const trmi_op *op, int32_t value);
/* Returns the class of a node. */
static inline const trmi_space_class *trmi_space_class_of(const trmi_space *space, int32_t node) {
    return &space->classes[space->nodes[node].group];
}
/* Returns the operator of a node. */
static inline const trmi_op *trmi_space_op(const trmi_space *space, int32_t node) {
    return &space->graph->ops[space->nodes[node].op];
}

/* Returns the bytes that the gradient of a parameter takes in a reader that does not own it, from
 * the backward of that reader to that of the owner: none where a table's rows are added to it in
 * place. */
double trmi_space_joined(const trmi_space *space, const trmi_op *op, int32_t input,
                         const trmi_spread *read);
/* Returns the bytes of the gradient of a table in parts that an operator owns and another one
 * reads, too: the rows of all are added to it, whole, before it goes to the parts. 0: no other one
 * reads it. */
double trmi_space_held(const trmi_space *space, const trmi_op *op, int32_t input,
                       const trmi_spread *read);
/* Returns the bytes of the largest part of a value in this spread. */
double trmi_space_bytes(const trmi_space *space, int32_t value, const trmi_spread *spread);
/* Sets the optimiser lines of a space (search_stores.c). A plan stores between 1/ranks of all
 * parameters and all of them on a rank; each line is the tightest one below the optimiser's curve
 * at 1/ranks. */
void trmi_space_find_update_lines(trmi_space *space);
/* Returns whether a sum is recomputed with its layer when the layer has strategy `i` and the sum
 * `k`; otherwise it is kept. *seconds: of both.
 *   param  edge: one from a layer to a sum, or any other, which gives false */
bool trmi_space_sum(const trmi_space *space, const trmi_space_edge *edge, int32_t i, int32_t k,
                    double *seconds);
/* Adds the costs of one parameter of operator `op` in strategy i of its class to the class' stores
 * and slices. */
void trmi_space_add_parameter(const trmi_space *space, const trmi_op *op, int32_t input,
                              trmi_space_class *of, int32_t i);
/* Returns the seconds of reducing a gradient from its spread `made` to the spread `stored` of its
 * parameter; 0: it is no partial sum. With buckets only its bytes count, because gradients of a
 * bucket share the start-up. */
double trmi_space_reduce_seconds(const trmi_space *space, int32_t value, const trmi_spread *made,
                                 const trmi_spread *stored);
/* Computes how parameter `input` of a node is stored in parts with strategy i. False: not possible.
 */
bool trmi_space_parts(const trmi_space *space, int32_t node, int32_t input, int32_t i,
                      trmi_spread *out);
/* Computes the seconds of a node in strategy i by the roofline. */
void trmi_space_roofline(const trmi_space *space, int32_t node, int32_t i, trmi_node_seconds *out);
/* Returns the seconds of the optimiser for `bytes` of parameters of a rank, or for its slices of
 * them. Never less than the line, which is all that a sum over operators can count. */
double trmi_space_update(const trmi_space *space, double bytes, bool sliced);
/* Returns the number of arrays for each gradient. */
static inline int32_t trmi_space_gradients(const trmi_space *space) {
    return space->costs.gradients > 1 ? space->costs.gradients : 1;
}
/* Returns the seconds of reducing a bucket of `bytes` of gradients, packing and unpacking included.
 */
double trmi_space_bucket(const trmi_space *space, trmi_move move, uint32_t axes, double bytes);
/* Computes the cost of a parameter's cast that is read as `read`: returns its bytes on a rank, kept
 * for the whole step (0: `value` is no cast, or none that is made); *seconds. In `sliced` plans on
 * one host the ranks share one copy of all casts, and each rank computes its share. */
double trmi_space_cast(const trmi_space *space, int32_t value, const trmi_spread *read, bool sliced,
                       double *seconds);
/* Returns the strategy of a node without a line in the plan: the one that is cheapest given the
 * strategies of its inputs. */
int32_t trmi_space_choose_strategy(const trmi_space *space, int32_t node, const int32_t *strategy);
/* Returns the seconds of the cheapest route between spreads of a value; INFINITY: none. */
double trmi_space_move_seconds(const trmi_space *space, int32_t value, const trmi_spread *from,
                               const trmi_spread *to);
/* Returns the fraction of a gather of parts that travels beside operators. */
double trmi_space_ahead(const trmi_space *space);
/* Returns the seconds of gathering a parameter from its parts into `whole`, or of scattering (and
 * summing) its gradient into the parts. */
double trmi_space_store_move(const trmi_space *space, int32_t value, const trmi_spread *parts,
                             const trmi_spread *whole, bool scatter);
/* Returns the spread of an edge's value before `to` reads it, where `from` has strategy `i`: the
 * output of `from`, or the parameter as it is stored. */
trmi_spread trmi_space_source(const trmi_space *space, const trmi_space_edge *edge, int32_t i);
/* Returns the spread in which the gradient of an edge's value leaves `to`, in strategy k of `to`:
 * as `to` makes it. */
trmi_spread trmi_space_sent_back(const trmi_space *space, const trmi_space_edge *edge, int32_t k);
/* Returns the spread to which it goes, in strategy i of `from`: that of the source without partial
 * sums; of a tied parameter the one in which `from` makes its own gradient, because both are added
 * and then reduced once. */
trmi_spread trmi_space_returned(const trmi_space *space, const trmi_space_edge *edge, int32_t i);
/* Returns the spread in which an operator that reads a parameter as `read` makes its gradient; a
 * bias that is added to a partial sum has it whole. */
trmi_spread trmi_space_made(const trmi_mesh *mesh, const trmi_spread *read, const char *letters);
/* trmi_space_gradient(): returns the spread of the gradient of an input that was read as `read`; on
 * an axis that only repeats the operator (letter '.') the gradient is like the input.
 * trmi_space_wanted(): returns the spread in which the gradient of an output is needed: whole where
 * the output is a partial result, cut where the output is cut. */
trmi_spread trmi_space_gradient(const trmi_mesh *mesh, const trmi_spread *read,
                                const char *letters);
trmi_spread trmi_space_wanted(const trmi_mesh *mesh, const trmi_spread *made);

/* ---- one plan ---- */

/* A plan of a space: for each node its strategy, how its parameters are stored, and whether
 * backward recomputes its output. */
typedef struct trmi_choice {
    int32_t *strategy; /* [nodes] */
    uint8_t *stores;   /* [nodes] trmi_store of the parameters */
    uint8_t *again;    /* [nodes] 1: the first output is recomputed in backward */
} trmi_choice;
/* Allocates a zeroed choice in the arena; false: no memory. */
bool trmi_choice_open(trmi_choice *choice, const trmi_space *space, trmi_arena *arena);
/* Copies a choice into an allocated one. */
void trmi_choice_copy(trmi_choice *to, const trmi_choice *from, const trmi_space *space);
/* Returns whether two choices are the same plan. */
bool trmi_choice_equal(const trmi_choice *a, const trmi_choice *b, const trmi_space *space);

/* Weights of the objective B + w G + lambda M. */
typedef struct trmi_objective {
    double gradient, memory; /* w, lambda (seconds a byte) */
    /* true: only plans that leave all parameters whole and update them in slices */
    bool sliced;
    /* part of trmi_store_cost.once that B omits: 1 - 1 / micro-batches for the B of one
     * micro-batch, 1 without updates; 0 = none */
    double away;
    /* micro-batches whose outputs are kept at the same time, less 1: M counts them so often */
    int32_t others_kept;
} trmi_objective;
/* Returns whether the plan leaves all parameters whole and updates them in slices (costs.slices).
 */
bool trmi_choice_sliced(const trmi_space *space, const trmi_choice *choice);
/* Returns whether the plan cuts nothing but samples, so that ranks compute cooperative gradients
 * (costs.cooperative). */
bool trmi_choice_cooperative(const trmi_space *space, const trmi_choice *choice);
/* Computes the cost of the cooperative gradient of a node (search_cooperative.c). roof: its seconds
 * by the roofline; seconds: the ones that the space uses. */
trmi_cooperative_cost trmi_space_cooperative(const trmi_space *space, const trmi_space_node *node,
                                             const trmi_strategy *strategy,
                                             const trmi_node_seconds *roof,
                                             const trmi_node_seconds *seconds);
/* Returns the seconds of the barriers before and after updating slices; with costs.gathers: the
 * start-up time of gathering them. */
double trmi_space_meetings(const trmi_space *space);
/* Returns the seconds of gathering `bytes` of parameters from slices, without the start-up; 0 if
 * the ranks share one copy. */
double trmi_space_gathered(const trmi_space *space, double bytes);

/* Seconds (B + w G) and bytes of a node without its edges. Seconds INFINITY: the policy does not
 * exist. */
typedef struct trmi_node_cost {
    double seconds, bytes;
} trmi_node_cost;
/* A policy of a node: a store, and whether its output is recomputed. SLICED selects the costs of
 * updating slices. */
enum {
    TRMI_POLICIES = 2 * TRMI_STORES,
    TRMI_POLICY_SLICED = 8 /* added to a policy */
};
/* A policy as one number: how parameters are stored and whether the output is recomputed; policies
 * from TRMI_POLICY_SLICED on are the same with updates in slices. */
static inline int32_t trmi_policy_of(trmi_store store, bool again) {
    return (int32_t)store + TRMI_STORES * again;
}
static inline trmi_store trmi_policy_store(int32_t policy) {
    return (trmi_store)(policy % TRMI_POLICY_SLICED % TRMI_STORES);
}
static inline bool trmi_policy_again(int32_t policy) {
    return policy % TRMI_POLICY_SLICED >= TRMI_STORES;
}
/* Returns the cost of a node of class `of` in a strategy and a policy, for weights of B + w G. */
trmi_node_cost trmi_space_node_cost(const trmi_space *space, const trmi_space_class *of,
                                    int32_t strategy, int policy, const trmi_objective *weights);

/* Finds the plan with the least B + w G + lambda M.
 *   marginals  NULL, or out: [nodes][strategies] in the arena, the least cost of a whole plan with that strategy
 *   errors     INVALID (no plan is possible beside the pins), NOMEM */
trm_status trmi_space_solve(const trmi_space *space, const trmi_objective *weights,
                            trmi_choice *out, trmi_solution *solution, float ***marginals,
                            trmi_arena *arena, trm_error *err);
/* Computes the curve of time (B + w G) against memory of all plans (plan/solve/solve_front.h), or
 * the fastest plan within `limit` bytes (0: the whole curve). weights->memory is not used.
 *   points  out: the choices of out->points, in the arena
 *   errors  INVALID (no plan is possible), NOMEM */
trm_status trmi_space_front(const trmi_space *space, const trmi_objective *weights, double limit,
                            trmi_arena *arena, trmi_front *out, trmi_choice **points,
                            trm_error *err);
/* Finds the cheapest plan among those in which `node` has this strategy. Errors as
 * trmi_space_solve(). */
trm_status trmi_space_solve_with(const trmi_space *space, const trmi_objective *weights,
                                 int32_t node, int32_t strategy, trmi_choice *out,
                                 trmi_solution *solution, trm_error *err);

/* A plan's step, in seconds, and its memory, in bytes, on the busiest rank. */
typedef struct trmi_measure {
    double step; /* seconds of a step, by event simulation */
    /* seconds by kind; `again`: recomputation, `gather`: parameters stored in parts or slices, what
     * the rank waits for them */
    double compute, redistribute, exchange, gather, again, update, overhead;
    double blocking; /* their sum: B, and `waited` */
    double forward;  /* part of it before backward */
    double once;     /* part of it that a step of several micro-batches has once: updates */
    double gradient; /* all buckets one after another */
    double exposed;  /* seconds of them that operators do not hide */
    /* gathers that begin ahead, one after another (G: with the buckets); the part of `gather` for
     * which the rank waits for them */
    double ahead, waited;
    double bytes; /* M: the sum of the four members that follow */
    double weight_bytes, gradient_bytes, slot_bytes, kept_bytes;
    double flight_bytes;       /* part of kept_bytes that each micro-batch has until its backward */
    int32_t buckets, messages; /* buckets; gradient messages that were put into them */
    double cooperative_bytes;  /* bytes of cooperative gradients, which are not sent */
} trmi_measure;
/* Simulates one step of a plan.   errors  NOMEM */
trm_status trmi_space_measure(const trmi_space *space, const trmi_choice *choice, trmi_measure *out,
                              trm_error *err);

/* Kinds of events in a simulated step of one rank. */
typedef enum trmi_event_kind {
    TRMI_EVENT_OP,
    TRMI_EVENT_MOVE,
    TRMI_EVENT_BUCKET,
    TRMI_EVENT_AHEAD, /* a message that begins ahead and travels beside operators, as buckets do */
    TRMI_EVENT_UPDATE
} trmi_event_kind;
/* One event of a simulated step; begin and seconds from the start of the step. */
typedef struct trmi_simulated_event {
    trmi_event_kind kind;
    int32_t node; /* -1: none */
    trmi_phase phase;
    const char *what; /* "input 0", "halo", "gradient", ... */
    trmi_move move;   /* set for MOVE, BUCKET and AHEAD */
    uint32_t axes;
    double bytes, begin, seconds;
    double waited; /* AHEAD: seconds that it adds to the step */
    int32_t count; /* BUCKET: number of gradients in it */
} trmi_simulated_event;
/* The events of a step, in the order of their creation. */
typedef struct trmi_timeline {
    trmi_arena arena; /* memory of texts */
    trmi_simulated_event *events;
    int64_t count, capacity; /* of events */
} trmi_timeline;
/* Simulates one step as trmi_space_measure() and records its events. With a router, each
 * redistribution is recorded as the moves of its cheapest route.
 *   owns    the caller: trmi_timeline_free, also after an error
 *   errors  NOMEM */
trm_status trmi_space_timeline(const trmi_space *space, const trmi_choice *choice,
                               trmi_router *router, trmi_timeline *timeline, trmi_measure *out,
                               trm_error *err);
/* Frees the events of a timeline. */
void trmi_timeline_free(trmi_timeline *timeline);

/* Converts a choice to a plan and back. trmi_space_plan() writes a line for each operator with
 * loops.
 *   owns    the caller
 *   errors  NOMEM; trmi_space_choice(): INVALID if no strategy of the space matches a line */
trm_status trmi_space_plan(const trmi_space *space, const trmi_choice *choice,
                           trmi_partition_plan **out, trm_error *err);
trm_status trmi_space_choice(const trmi_space *space, const trmi_partition_plan *plan,
                             trmi_choice *out, trm_error *err);

/* ---- searches ---- */

/* Baselines: plans as people write them by hand. */
typedef enum trmi_baseline {
    TRMI_BASELINE_SAMPLES,   /* data parallel */
    TRMI_BASELINE_HEAD,      /* data parallel, the last linear operators and the loss by classes */
    TRMI_BASELINE_OPTIMIZER, /* data parallel, parameters stored in parts */
    /* as Megatron-LM: the first of two products by columns, the second by inputs, attention between
     * them by heads; other operators as is cheapest for the spreads of their inputs */
    TRMI_BASELINE_TENSOR,
    TRMI_BASELINE_SPATIAL,    /* images by rows; data parallel where there are no images */
    TRMI_BASELINE_REPLICATED, /* every rank computes everything */
    TRMI_BASELINES
} trmi_baseline;
/* Returns the name of a baseline for reports; static. */
const char *trmi_baseline_name(trmi_baseline baseline);
/* Writes a baseline as a choice. False: the baseline cuts nothing of this graph in its special way.
 */
bool trmi_space_baseline(const trmi_space *space, trmi_baseline baseline, trmi_choice *out);

/* MindSpore's other two searches, for comparison. Neither backtracks, and neither has a bound.
 * Recursive: decides axis by axis, operators in the order of their weight, each by the cheapest
 * letter given the decided ones. Propagation: starts at the pinned operators (without pins: at the
 * inputs, cut by samples) and proceeds breadth first; each operator gets the strategy that moves
 * least.   errors  NOMEM */
trm_status trmi_space_recursive(const trmi_space *space, trmi_choice *out, trm_error *err);
trm_status trmi_space_propagate(const trmi_space *space, trmi_choice *out, trm_error *err);

/* ---- the whole search ---- */

/* Search algorithms. */
typedef enum trmi_search_mode {
    TRMI_SEARCH_OPTIMAL,
    TRMI_SEARCH_RECURSIVE,
    TRMI_SEARCH_PROPAGATION
} trmi_search_mode;

/* Parses the name of a search mode, ours or MindSpore's; NULL: optimal.   errors  INVALID */
trm_status trmi_search_mode_parse(const char *name, trmi_search_mode *mode, trm_error *err);

/* The options of a search. Zero means the default. */
typedef struct trmi_search_options {
    trmi_search_mode mode;
    double memory_bytes;    /* a rank; 0 = any */
    bool frontier;          /* compute the whole curve of time against memory */
    const trmi_choice *own; /* a user's plan to list among the baselines, or NULL */
    /* the plan to report as best because it ran fastest, or NULL: the one with the best prediction
     */
    const trmi_choice *take;
} trmi_search_options;

/* A plan with a name (a baseline, a point of the curve, the winner) and its measure. */
typedef struct trmi_candidate {
    const char *name;
    trmi_choice choice;
    trmi_measure measure;
    /* within the memory limit */
    bool fits;
} trmi_candidate;

/* The next best strategy of one operator, and how much slower the best plan with it is. */
typedef struct trmi_runner_up {
    int32_t strategy; /* -1: no other strategy */
    double price;     /* additional seconds; INFINITY: not known */
} trmi_runner_up;

/* How the lower bound treats the memory limit. */
typedef enum trmi_bound {
    TRMI_BOUND_FREE,     /* no limit, or the best plan of all fits */
    TRMI_BOUND_EXACT,    /* over all plans that fit, by lists of time and memory */
    TRMI_BOUND_LAGRANGE, /* Lagrangian bound: the lists exceeded their limit */
    /* over all plans within a larger limit: the program of the plan fits, although the search
     * counts none that leaves room for what programs need beyond
     * (exec/autoparallel/auto_parallel.c) */
    TRMI_BOUND_WHOLE_LIMIT
} trmi_bound;
/* Plans that one search keeps, at most. */
enum { TRMI_CANDIDATES = 64 };
/* Result and certificate of a search. */
typedef struct trmi_found {
    trmi_candidate best;
    double objective; /* predicted step of the best plan = best.measure.step */
    /* no plan of the space that fits the memory has a faster step */
    double lower_bound;
    /* B + w G of the solve that gives the bound, and the bound of that solve */
    double additive, additive_bound;
    trmi_objective weights;
    trmi_solution solution; /* certificate of that solve */
    double solve_seconds;   /* seconds of all solves */
    int32_t solves;
    /* baselines, then the user's plan; name NULL: not applicable */
    trmi_candidate baselines[TRMI_BASELINES + 1];
    int32_t baselines_count;
    /* falling memory, rising time; a selection of points that differ in memory */
    trmi_candidate frontier[TRMI_CANDIDATES];
    int32_t frontier_count;
    /* its certificate: all points by B + w G, slack, open hull edges; count 0: not asked for */
    trmi_front front;
    trmi_bound bound; /* how lower_bound treats the memory limit */
    /* plan of least memory; choice.strategy NULL: not computed */
    trmi_candidate least_memory;
    trmi_runner_up *runners; /* [nodes]; NULL: not asked for (trmi_search_runners) */
    /* no plan fits the limit: best is the plan of least memory */
    bool infeasible;
} trmi_found;

/* Searches a space: the fastest plan by prediction, its certificate and baselines.
 * options NULL: defaults. Everything in *out lies in the arena.   errors  NOMEM, INVALID (no legal
 * plan) */
trm_status trmi_search(const trmi_space *space, const trmi_search_options *options,
                       trmi_arena *arena, trmi_found *out, trm_error *err);
/* Counts one price, solution or measure of a space: trmi_search_costs.done.
 *   errors  CANCELLED: trmi_search_costs.stop */
static inline trm_status trmi_space_go_on(const trmi_space *space, trm_error *err) {
    if (space->costs.done != NULL) {
        atomic_fetch_add_explicit(space->costs.done, 1, memory_order_relaxed);
    }
    return trmi_stop_check(space->costs.stop, "search of plans", err);
}
/* Finds the runners-up of the best plan of a search, which takes a third of its time. They lie in
 * the arena.   errors  NOMEM */
trm_status trmi_search_runners(const trmi_space *space, trmi_found *found, trmi_arena *arena,
                               trm_error *err);

/* Finds up to `wanted` other plans whose predicted times differ, to validate predictions against
 * runs. Each is the best plan with one operator in some other strategy. out: candidates [wanted],
 * in the arena; *count.   errors  NOMEM */
trm_status trmi_search_others(const trmi_space *space, const trmi_found *found, int32_t wanted,
                              trmi_arena *arena, trmi_candidate *out, int32_t *count,
                              trm_error *err);

#endif
