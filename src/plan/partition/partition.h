/* SPDX-License-Identifier: Apache-2.0 */
/* plan/partition/partition.h: partitions the graph of one device over a mesh of ranks: meshes,
 * spreads of tensors, redistribution, strategies of operators, plans, the partition.
 *
 *      mesh 2x4, axes a b            spread of x [32, 64, 56, 56]: "S0,S2"
 *      rank = a * 4 + b              axis a cuts dimension 0 (samples), axis b cuts dimension 2 (rows)
 *
 *      graph --fuse, differentiate--> training graph, global shapes      trmi_training_graph
 *            --a choice of loops per operator (trmi_partition_plan)-->
 *            --trmi_partition_graph--> graph of one rank, local shapes, communication as operators
 *            --the usual lowering--> program
 *
 * The decisions of a plan: every operator is a loop nest, and its loops have letters (conv2d: n
 * samples, k output channels, c input channels, h rows, w columns). A strategy assigns each mesh
 * axis one letter, or '.': all ranks of the axis compute the same. The letters determine the spread
 * of every input and output, what the operator itself exchanges (halo, statistics), and the work of
 * each rank.
 *
 * Gradient operators take the letters of the forward operator that they come from (trmi_op.origin),
 * so a plan has one line for each forward operator. A value that is made in spread A and read in
 * spread B costs route(A -> B) forward and route(adjoint B -> adjoint A) backward. A parameter that
 * is stored as S and read as B costs route(S -> B) forward and route(adjoint B -> S) for its
 * gradient; with S = B = R that is the all-reduce of data parallel training.
 *
 * Invariant: every result depends on the arguments only, so all ranks get the same one without
 * communication. */
#ifndef TRMI_PLAN_PARTITION_H
#define TRMI_PLAN_PARTITION_H

#include "plan/passes/pass.h"
#include "plan/pipeline/stage_schedule.h"

#include <math.h>

/* ---- mesh ---- */

/* Most axes of a mesh; most meshes of a list. */
enum { TRMI_MESH_AXES = 4, TRMI_MESH_LIST = 64 };

/* A mesh. Ranks are in row-major order of the axes: neighbours on the last axis have consecutive
 * ranks. Sizes are at least 2; a mesh with 0 axes is a single rank. */
typedef struct trmi_mesh {
    int32_t axes;
    int32_t size[TRMI_MESH_AXES];
    char name[TRMI_MESH_AXES][8]; /* "a", "b", ...; used by plan files */
} trmi_mesh;

/* Parses a mesh: "2x4", "8", "host=2xlocal=4"; axes of size 1 are dropped.
 *   errors  INVALID, with the text and the position */
trm_status trmi_mesh_parse(const char *text, trmi_mesh *out, trm_error *err);
/* Writes a mesh as text, "2x4", into `text` [size]. Returns text. */
const char *trmi_mesh_text(const trmi_mesh *mesh, char *text, size_t size);
/* Returns the number of ranks. */
int32_t trmi_mesh_ranks(const trmi_mesh *mesh);
/* Lists every ordered factorisation of hosts, then of ranks per host, with at most TRMI_MESH_AXES
 * axes in all: (1, 8) gives 8, 2x4, 4x2, 2x2x2. Returns their number; the first has the fewest
 * axes. */
int32_t trmi_mesh_list(int32_t hosts, int32_t local, trmi_mesh out[TRMI_MESH_LIST]);
/* Computes the coordinates of a rank; 0 on unused axes. */
void trmi_mesh_coordinates(const trmi_mesh *mesh, int32_t rank, int32_t at[TRMI_MESH_AXES]);
/* Returns the rank at the coordinates. */
int32_t trmi_mesh_rank(const trmi_mesh *mesh, const int32_t at[TRMI_MESH_AXES]);
/* Returns the number of ranks in a group whose members differ only on the axes of `mask` (bit i:
 * axis i). */
int32_t trmi_mesh_group(const trmi_mesh *mesh, uint32_t mask);

/* ---- spread: how a tensor lies on the mesh ---- */

/* The effect of a mesh axis on a tensor: every rank has the whole, or a partial sum (maximum,
 * minimum), or, from TRMI_SPLIT on, a part of dimension (value - TRMI_SPLIT). */
enum {
    TRMI_WHOLE = 0,
    TRMI_PARTIAL_SUM = 1,
    TRMI_PARTIAL_MAX = 2,
    TRMI_PARTIAL_MIN = 3,
    TRMI_SPLIT = 4
};

/* How a tensor is spread over a mesh. at[i]: the letter of axis i. Where several axes cut one
 * dimension, place[i] is the position of axis i among them, 0 = outermost; 0 for all other axes.
 * Unused axes are zero, so spreads can be compared by memcmp or by key. */
typedef struct trmi_spread {
    uint8_t at[TRMI_MESH_AXES];
    uint8_t place[TRMI_MESH_AXES];
} trmi_spread;

/* Returns whether a letter means partial results. */
static inline bool trmi_is_partial(uint8_t letter) {
    return letter >= TRMI_PARTIAL_SUM && letter < TRMI_SPLIT;
}
/* Returns a unique number of a spread: 6 bits of letter and 2 bits of place for each axis. */
uint32_t trmi_spread_key(const trmi_spread *spread);
/* Returns whether two spreads are the same. */
bool trmi_spread_equal(const trmi_spread *a, const trmi_spread *b);
/* Returns the spread of a value's gradient: S stays S, R becomes P(sum), P(sum) becomes R. */
trmi_spread trmi_spread_adjoint(const trmi_mesh *mesh, const trmi_spread *spread);
/* Returns whether an axis of the spread is partial. */
bool trmi_spread_has_partial(const trmi_spread *spread);
/* Writes a spread as text into `text` [size]: "S0,R", "S1.1,S1.0" (places, if not in mesh order),
 * "P+,R", "Pmax"; "-" on a mesh without axes. Returns text. */
const char *trmi_spread_text(const trmi_mesh *mesh, const trmi_spread *spread, char *text,
                             size_t size);
/* Parses the text of a spread.   errors  INVALID */
trm_status trmi_spread_parse(const trmi_mesh *mesh, const char *text, trmi_spread *out,
                             trm_error *err);

/* Parts of a tensor are boxes: trmi_box of graph/graph_ir.h. */

/* Returns the part of a rank. Parts are balanced: sizes differ by at most one, the larger ones
 * first. */
trmi_box trmi_spread_box(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *spread,
                         int32_t rank);
/* Lists the axes that cut dimension d, outermost first. Returns their number. */
int32_t trmi_spread_cuts(const trmi_mesh *mesh, const trmi_spread *spread, int32_t d,
                         int32_t out[TRMI_MESH_AXES]);
/* Returns whether a spread is valid for a shape: letters in range, partial in one way only, no part
 * empty, places a permutation. */
bool trmi_spread_fits(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *spread);
/* Returns the number of elements of the largest part. */
int64_t trmi_spread_most(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *spread);

/* Boxes: intersection (false: it is empty), number of elements, the box of a whole shape, the shape
 * of a box, equality. A box with rank -1 is empty. */
bool trmi_box_intersect(const trmi_box *a, const trmi_box *b, trmi_box *out); /* false: empty */
int64_t trmi_box_count(const trmi_box *box);
trmi_box trmi_box_whole(const trm_shape *shape);
trm_shape trmi_box_shape(const trmi_box *box);
bool trmi_box_equal(const trmi_box *a, const trmi_box *b);
/* Returns whether an exchange passes parts on: each member wants all that one other member has, or
 * nothing, and no two want the same. Equal on all members. */
bool trmi_exchange_passes_on(const trmi_box_exchange *exchange);

/* ---- prices ---- */

/* Kinds of communication, each with the meaning of its `bytes`. */
typedef enum trmi_move {
    TRMI_MOVE_LOCAL,          /* slice or zero padding within a rank: bytes copied */
    TRMI_MOVE_ALL_REDUCE,     /* bytes of the vector that each rank holds */
    TRMI_MOVE_ALL_GATHER,     /* bytes of the result */
    TRMI_MOVE_REDUCE_SCATTER, /* bytes that each rank holds before */
    TRMI_MOVE_ALL_TO_ALL,     /* bytes that the busiest rank sends to other ranks */
    /* bytes that the busiest rank receives from other ranks: halo, permutation, any boxes */
    TRMI_MOVE_EXCHANGE,
    /* all-reduce of a bucket of gradients, in memory that peers can access */
    TRMI_MOVE_GRADIENTS,
    /* all-gather of a parameter that is stored in parts: bytes of the result */
    TRMI_MOVE_GATHER_STORE,
    /* reduce-scatter of its gradient: bytes of what each rank holds before */
    TRMI_MOVE_SCATTER_STORE,
    /* reduce-scatter of a bucket of gradients, in memory that peers can access */
    TRMI_MOVE_SLICES,
    TRMI_MOVES
} trmi_move;
/* Returns the name of a move, "all-gather"; static. */
const char *trmi_move_name(trmi_move move);

/* Prices of moves and operators. seconds() returns the seconds of one move over all groups of
 * `axes` at once; it must not decrease with bytes. The planner measures and owns it; NULL = the
 * alpha-beta model below, for each axis. */
typedef struct trmi_prices {
    double (*seconds)(void *context, trmi_move move, uint32_t axes, double bytes);
    void *context;
    /* seconds per message, per byte; 0 = 20 us, 1/5e9 */
    double alpha[TRMI_MESH_AXES], beta[TRMI_MESH_AXES];
    /* seconds per byte of a local copy; 0 = 1/5e9 */
    double copy;
    /* seconds per flop, per byte of memory traffic, of operators; 0 = 1/1e11, 1/2e10 */
    double flop, byte;
} trmi_prices;
/* Returns the seconds of a move. prices NULL: the built-in model. */
double trmi_price(const trmi_prices *prices, const trmi_mesh *mesh, trmi_move move, uint32_t axes,
                  double bytes);

/* ---- redistribution ---- */

/* Moves of a route, at most. */
enum { TRMI_ROUTE_STEPS = 12 };

/* One move of a route. */
typedef struct trmi_route_step {
    trmi_move move;
    uint32_t axes;         /* axes of the groups that communicate */
    trmi_spread to;        /* the tensor's spread after the move */
    double bytes, seconds; /* bytes in the meaning of the move; seconds by the prices */
} trmi_route_step;

/* A sequence of moves from one spread to another. */
typedef struct trmi_route {
    int32_t count; /* 0: nothing to do */
    trmi_route_step steps[TRMI_ROUTE_STEPS];
    double seconds;
    /* elements of the largest part on the way, source and target included */
    int64_t peak_elements;
} trmi_route;

/* Finds cheapest routes on one mesh with one price list, and caches them. One thread at a time. */
typedef struct trmi_router trmi_router;
/* Creates a router; prices NULL: the built-in model.   owns  caller.   errors  NOMEM */
trm_status trmi_router_create(const trmi_mesh *mesh, const trmi_prices *prices, trmi_router **out,
                              trm_error *err);
/* Frees a router; NULL is fine. */
void trmi_router_destroy(trmi_router *router);

/* Finds the cheapest sequence of moves from one spread to another, by Dijkstra's algorithm over
 * spreads (moves of one axis, of several fused axes, and the direct exchange of boxes).
 *   peak_elements  most elements of every intermediate part; 0 = no bound
 *   to             may be partial only on axes that are partial already, or R -> P(sum), S -> P(sum) (zeros on the other ranks, no messages)
 *   errors         INVALID: no route (P(max) from R and the like), NOMEM
 *   cost           under a microsecond from the cache; else tens of microseconds, more while a shape is new
 */
trm_status trmi_route_find(trmi_router *router, const trm_shape *shape, trm_dtype dtype,
                           const trmi_spread *from, const trmi_spread *to, int64_t peak_elements,
                           trmi_route *out, trm_error *err);
/* Returns only the seconds of the cheapest route; INFINITY if there is none. */
double trmi_route_seconds(trmi_router *router, const trm_shape *shape, trm_dtype dtype,
                          const trmi_spread *from, const trmi_spread *to);

/* Computes the single move that exchanges boxes directly. Both spreads must have the same partial
 * axes. */
trm_status trmi_route_direct(const trmi_mesh *mesh, const trmi_prices *prices,
                             const trm_shape *shape, int64_t element_bytes, const trmi_spread *from,
                             const trmi_spread *to, trmi_route_step *out);

/* ---- strategies ---- */

/* Inputs of an operator, and messages of one operator, at most. */
enum { TRMI_PARTITION_INPUTS = 64, TRMI_PARTITION_COMMS = 8 };

/* A message of the operator itself, beside the redistribution of its inputs. */
typedef struct trmi_partition_comm {
    trmi_move move;
    uint32_t axes;
    double bytes;     /* in the meaning of the move */
    const char *what; /* "halo", "statistics", "loss", "ring" */
    int32_t times;    /* so many of them, one after the other */
    /* of these, how many travel while the operator computes all but one of its turns, where
     * messages begin ahead (plan/lower/lower_ahead.c) */
    int32_t beside;
} trmi_partition_comm;

/* Returns the seconds of a message. */
static inline double trmi_comm_seconds(const trmi_prices *prices, const trmi_mesh *mesh,
                                       const trmi_partition_comm *c) {
    return c->times * trmi_price(prices, mesh, c->move, c->axes, c->bytes);
}
/* Returns the seconds that a rank waits for a message of an operator that computes for `seconds`.
 * ahead: the part of messages that may travel meanwhile and does. */
static inline double trmi_comm_waiting(const trmi_prices *prices, const trmi_mesh *mesh,
                                       const trmi_partition_comm *c, double ahead, double seconds) {
    double all = trmi_comm_seconds(prices, mesh, c), turns = trmi_mesh_group(mesh, c->axes);
    double beside = c->times > 0 ? all * c->beside / c->times : 0;
    return all - ahead * fmin(beside, seconds * (turns - 1) / turns);
}

/* How an operator runs on a mesh. */
typedef struct trmi_strategy {
    /* a letter for each mesh axis; '.' = all ranks of the axis compute the same; "nk", "n." */
    char letters[TRMI_MESH_AXES + 1];
    /* spreads in which inputs are read (absent inputs: zero) */
    trmi_spread inputs[TRMI_PARTITION_INPUTS];
    trmi_spread outputs[TRMI_OP_OUTPUTS_MAX];
    /* shapes on rank 0, which has the largest part of everything; calibration measures these */
    trm_shape local_inputs[4]; /* of the first four inputs, halo and keys that pass by included */
    trm_shape local_output;
    /* work of the largest part / work of the whole operator, at least 1 / ranks; uneven cuts and
     * rows that are computed twice are included */
    double fraction;
    trmi_partition_comm comms[TRMI_PARTITION_COMMS]; /* messages of this operator, forward */
    int32_t comms_count;
    /* messages of its gradient operators, edges not included */
    trmi_partition_comm backward[TRMI_PARTITION_COMMS];
    int32_t backward_count;
} trmi_strategy;

/* Writes the letters of the loops that may be cut, e.g. "nkchw"; "" = always replicated, then
 * *reason (unless NULL) states why. A final '+': partial sums can pass through the operator. */
enum { TRMI_PARTITION_LETTERS = 12 };
void trmi_partition_loops(const trm_graph *graph, const trmi_op *op,
                          char letters[TRMI_PARTITION_LETTERS], const char **reason);
/* Returns the meaning of a letter for this operator: "samples", "output channels". Static. */
const char *trmi_partition_loop_name(const trm_graph *graph, const trmi_op *op, char letter);
/* Computes the strategy of these letters. False: not possible (a loop shorter than its cut, a group
 * convolution cut inside a group, ...). Allocates nothing, takes microseconds. */
bool trmi_partition_strategy(const trm_graph *graph, const trmi_op *op, const trmi_mesh *mesh,
                             const char *letters, trmi_strategy *out);
/* Returns whether the gradient of parameter `input` stays in its factors (plan/lower/program.h):
 * few samples, a large matrix, no sum over ranks, and a graph that does not need whole gradients
 * (gradient accumulation does). */
bool trmi_partition_in_factors(const trm_graph *graph, const trmi_op *op,
                               const trmi_strategy *strategy, int32_t input);
/* Strict determinism, a graph with `blocks` blocks of samples: returns whether ranks that cut an
 * operator by these letters compute the bits of one device (strict_cuts.c). */
bool trmi_partition_is_strict(const trm_graph *graph, const trmi_block_marks *marks, int32_t blocks,
                              const trmi_op *op, const trmi_mesh *mesh, const char *letters);
/* Lists all strategies of an operator; the first is the replicated one.
 *   owns  *out is in the arena.
 *   errors  NOMEM */
trm_status trmi_partition_strategies(const trm_graph *graph, const trmi_op *op,
                                     const trmi_mesh *mesh, trmi_arena *arena, trmi_strategy **out,
                                     int32_t *count, trm_error *err);

/* ---- plan ---- */

/* Whether the first output of an operator is kept for backward or recomputed there. */
typedef enum trmi_recompute_choice {
    TRMI_RECOMPUTE_RULE, /* as the back-end's pass decides (plan/passes/pass_recompute.c) */
    TRMI_RECOMPUTE_YES,
    TRMI_RECOMPUTE_NO
} trmi_recompute_choice;
/* Finds the operators of a training graph that can be recomputed: backward reads their first
 * output, and they are functions of values that are available in backward (leaves, and values that
 * backward reads and that are not recomputed themselves). Of a chain that is every other operator.
 * out can[graph->ops_count] */
void trmi_partition_repeatable(const trm_graph *graph, bool *can);

/* The values that are recomputed where the plan does not choose (TRMI_RECOMPUTE_RULE). */
typedef struct trmi_again_rules {
    bool cheap;    /* outputs of norms, GELU, gated products (trmi_target.recompute_cheap) */
    bool segments; /* values of segments (trmi_plan_options.recompute) */
    /* x + layer(y), with x and y kept, where such sums take much memory (pass_recompute.c) on one
     * of `ranks` ranks that have equal parts of the graph; ranks 0: however much they take */
    bool sums;
    int32_t ranks;
} trmi_again_rules;
/* Returns whether the sums of a training graph take so much memory on one of `ranks` ranks that
 * they are recomputed. */
bool trmi_partition_sums(const trm_graph *graph, int32_t ranks);
/* Finds the operators whose first output the rules recompute (TRMI_RECOMPUTE_RULE). out
 * dropped[graph->ops_count] */
void trmi_partition_rule(const trm_graph *graph, trmi_again_rules rules, bool *dropped);

/* A plan's line for one forward operator. An operator without a line gets the strategy that is
 * cheapest from the spreads of its inputs. */
typedef struct trmi_partition_choice {
    const char *op; /* name of the operator in the training graph */
    char letters[TRMI_MESH_AXES + 1];
    bool pinned; /* set by the user: the search must keep it */
    trmi_recompute_choice recompute;
    bool has_output; /* the result is redistributed to `output` before it is read */
    trmi_spread output;
    int32_t line; /* line number in the file; 0: not from a file */
} trmi_partition_choice;

/* How a plan stores a parameter or state between steps. Without a line: in the spread of its first
 * reader. */
typedef struct trmi_partition_store {
    const char *name;
    trmi_spread spread;
    /* what forward gathers is not kept for backward, which gathers the parameter again (ZeRO-3) */
    bool again;
    int32_t line;
} trmi_partition_store;

/* The stages of a plan: `mesh` is then that of one stage. */
typedef struct trmi_plan_stages {
    int32_t stages, chunks, micros; /* stages 0: the plan has none */
    trmi_pipeline_order order;
    bool recompute; /* values of blocks are computed again (trmi_plan_options.recompute) */
    /* operators with which the second and further runs begin, "a,b"; "" = one run */
    const char *begins;
} trmi_plan_stages;

/* A plan: the mesh, a line for each operator, and stores. */
typedef struct trmi_partition_plan {
    trmi_arena arena; /* memory of names */
    trmi_mesh mesh;
    /* strict determinism (strict_cuts.c), not part of the file: blocks of samples of the whole
     * batch; 0 = none */
    int32_t blocks;
    const char *file; /* file that the plan was read from, for errors; NULL: none */
    uint64_t digest;  /* trmi_partition_digest() of the graph that it was made for; 0 = any */
    trmi_partition_choice *choices;
    int64_t choices_count, choices_capacity;
    trmi_partition_store *stores;
    int64_t stores_count, stores_capacity;
    trmi_plan_stages staged;
} trmi_partition_plan;

/* Creates an empty plan for a mesh.   owns  caller.   errors  NOMEM */
trm_status trmi_partition_plan_create(const trmi_mesh *mesh, trmi_partition_plan **out,
                                      trm_error *err);
/* Frees a plan; NULL is fine. */
void trmi_partition_plan_destroy(trmi_partition_plan *plan);
/* Adds or replaces the line of an operator. output NULL: the strategy's own spread.
 *   errors  INVALID (wrong number of letters), NOMEM */
trm_status trmi_partition_plan_set(trmi_partition_plan *plan, const char *op, const char *letters,
                                   bool pinned, const trmi_spread *output, trm_error *err);
/* Adds or replaces the store of a parameter or state. again: trmi_partition_store.
 *   errors  NOMEM */
trm_status trmi_partition_plan_store(trmi_partition_plan *plan, const char *name,
                                     const trmi_spread *spread, bool again, trm_error *err);
/* Sets whether the output of an operator is recomputed.
 *   errors  INVALID: the operator has no line */
trm_status trmi_partition_plan_set_recompute(trmi_partition_plan *plan, const char *op,
                                             trmi_recompute_choice recompute, trm_error *err);
/* Sets the stages of a plan; `begins` is copied.
 *   errors  INVALID (numbers that cannot be), NOMEM */
trm_status trmi_partition_plan_stage(trmi_partition_plan *plan, const trmi_plan_stages *stages,
                                     trm_error *err);
/* Returns the ranks of a plan: of all stages. */
static inline int32_t trmi_partition_plan_ranks(const trmi_partition_plan *plan) {
    return trmi_mesh_ranks(&plan->mesh) * (plan->staged.stages > 1 ? plan->staged.stages : 1);
}
/* Returns the line of an operator; NULL: it has none. */
const trmi_partition_choice *trmi_partition_plan_find(const trmi_partition_plan *plan,
                                                      const char *op);
/* Returns the store of a leaf; NULL: it has none. */
const trmi_partition_store *trmi_partition_plan_stored(const trmi_partition_plan *plan,
                                                       const char *name);
/* Creates the data parallel plan: every operator with a loop 'n' is cut by it on all axes; batch
 * norm takes statistics over all ranks.   owns  caller.   errors  NOMEM */
trm_status trmi_partition_plan_samples(const trm_graph *graph, const trmi_mesh *mesh,
                                       trmi_partition_plan **out, trm_error *err);

/* Converts a plan to text and back. Lines: "trireme-plan 1", "mesh a=2xb=4", "graph
 * 0123456789abcdef", "op NAME LETTERS [-> SPREAD] [again|kept] [pinned]", "store NAME SPREAD
 * [again]"; a plan with stages also has "pipeline stages=2 chunks=1 micro-batches=4 schedule=1f1b
 * recompute=off" and a line "begin NAME" for each run but the first; comments after '#'. Names are
 * stable; lines are in the order of the graph. A comment "# from FILE" on the first line names the
 * file that the text was read from; errors then name it instead of `file`.
 *   owns   the text is freed by trm_free(), the plan by the caller
 *   errors  CORRUPT with line, found and expected; NOMEM (trmi_partition_plan_text: NULL) */
char *trmi_partition_plan_text(const trmi_partition_plan *plan);
trm_status trmi_partition_plan_parse(const char *text, size_t length, const char *file,
                                     trmi_partition_plan **out, trm_error *err);
/* Writes a plan to a file, atomically.   errors  NOMEM, IO */
trm_status trmi_partition_plan_save(const trmi_partition_plan *plan, const char *file,
                                    trm_error *err);
/* Checks a plan against a graph: names exist, letters are possible, the digest matches, `ranks` is
 * the size of the mesh.   errors  INVALID */
trm_status trmi_partition_plan_check(const trmi_partition_plan *plan, const trm_graph *graph,
                                     int32_t ranks, trm_error *err);
/* Checks that a plan is for this mesh.   errors  INVALID */
trm_status trmi_partition_plan_on(const trmi_partition_plan *plan, const trmi_mesh *mesh,
                                  trm_error *err);
/* Returns a hash of the forward operators: kinds, names, inputs and output shapes. Never 0. */
uint64_t trmi_partition_digest(const trm_graph *graph);

/* ---- partition ---- */

/* Creates the graph that is planned and partitioned: fused, in the wanted precision,
 * differentiated, cleaned up; every operator has its origin. It does what trmi_plan_create() does
 * before the partition.
 *   owns  caller destroys *out; the lists of roots are in the arena */
trm_status trmi_training_graph(const trm_graph *graph, const trmi_plan_options *options,
                               trm_graph **out, trmi_roots *roots, trmi_arena *arena,
                               trm_error *err);

/* One message of the partitioned graph, for tables and the simulator. */
typedef struct trmi_partition_message {
    /* operator of the training graph that needs it, or that made the value */
    const char *op;
    const char *what; /* "halo", "input 1", "gradient", "statistics", ... */
    trmi_phase phase;
    trmi_move move;
    uint32_t axes;
    double bytes, seconds; /* seconds by the prices */
    bool gradient;         /* gradient of a parameter: can overlap with backward */
} trmi_partition_message;

/* The work of one operator of the partitioned graph. */
typedef struct trmi_partition_work {
    const char *op;
    trmi_phase phase;
    char letters[TRMI_MESH_AXES + 1];
    double fraction;
    trmi_cost cost;      /* cost of rank 0's part */
    const char *warning; /* why the operator is replicated; NULL: by choice */
} trmi_partition_work;

/* Report of a partition. Names are in the arena; the arrays are freed with it. */
typedef struct trmi_partition_report {
    trmi_arena arena;
    trmi_partition_message *messages; /* [messages_count] */
    int64_t messages_count, messages_capacity;
    trmi_partition_work *work; /* [work_count] */
    int64_t work_count, work_capacity;
    double comm_seconds, gradient_seconds; /* of all messages; of those that are gradients */
} trmi_partition_report;
/* Frees the content of a report. */
void trmi_partition_report_free(trmi_partition_report *report);

/* A leaf (input, parameter or state) of the local graph: which part of the global tensor it is. */
typedef struct trmi_partition_leaf {
    const char *name;
    int32_t value; /* value in the local graph; 0 = not used */
    /* shape for callers; shape of which the box is a part: the same elements, and the columns of a
     * layer may be two dimensions (plan/passes/pass_fold_heads.c) */
    trm_shape shape, global;
    trmi_spread spread;
    trmi_box box;
} trmi_partition_leaf;

/* Creates the graph of one rank: local shapes, communication as operators (ALL_REDUCE and EXCHANGE
 * of graph/ops.def).
 *   roots   in: roots of `graph`; out: roots of *out
 *   leaves  out: [*leaves_count] inputs, parameters and states, in the arena of *out
 *   report  out: messages and work; may be NULL
 *   owns    caller destroys *out
 *   errors  INVALID (the plan does not fit the graph), NOMEM */
trm_status trmi_partition_graph(const trm_graph *graph, const trmi_partition_plan *plan,
                                const trmi_prices *prices, int32_t rank, trmi_roots *roots,
                                trm_graph **out, trmi_partition_leaf **leaves,
                                int32_t *leaves_count, trmi_partition_report *report,
                                trm_error *err);

#endif
