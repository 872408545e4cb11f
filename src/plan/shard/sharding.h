/* SPDX-License-Identifier: Apache-2.0 */
/* plan/shard/sharding.h: the algebra of splitting one device's graph over a mesh of ranks.
 *
 *      mesh 2x4, axes a b            spread of x [32, 64, 56, 56]: "S0,S2"
 *      rank = a * 4 + b              axis a cuts dimension 0 (samples), axis b cuts dimension 2 (rows)
 *
 *      graph --fuse, differentiate--> training graph, global shapes      trmi_shard_graph
 *            --a choice of loops per operator (trmi_shard_plan)-->
 *            --trmi_shard_partition--> graph of one rank, local shapes, communication as operators
 *            --the usual lowering--> program
 *
 * What is chosen. Every operator is a loop nest; its loops have letters (conv2d: n samples, k
 * output channels, c input channels, h rows, w columns). A strategy gives each mesh axis one
 * letter, or '.': the axis computes the same thing. The letters determine how every input and
 * output is spread, what the operator itself must exchange (halo, statistics) and each rank's part
 * of the work.
 *
 * Backward operators take the letters of the forward operator that they come from (trmi_op.origin),
 * so a plan has one line per forward operator. An edge whose value is made as A and read as B costs
 * route(A -> B) forward and route(adjoint B -> adjoint A) backward. A parameter stored as S and
 * read as B costs route(S -> B) forward, and route(adjoint B -> S) for its gradient: that is data
 * parallel's all-reduce when S = B = R.
 *
 * Everything here is pure: the same arguments give the same answer on every rank.
 */
#ifndef TRMI_PLAN_SHARDING_H
#define TRMI_PLAN_SHARDING_H

#include "plan/passes/pass.h"

/* ---- mesh
 *  ---------------------------------------------------------------------------------------- */

enum { TRMI_MESH_AXES = 4, TRMI_MESH_LIST = 64 };

/* Ranks in row-major order of the axes: the last axis is the nearest neighbours. Sizes are at least
 * 2; axes 0 is one rank by itself. */
typedef struct trmi_mesh {
    int32_t axes;
    int32_t size[TRMI_MESH_AXES];
    char name[TRMI_MESH_AXES][8]; /* "a", "b", ...; used by plan files */
} trmi_mesh;

/* "2x4", "8", "host=2xlocal=4"; sizes 1 are dropped. INVALID with the text and the place. */
trm_status trmi_mesh_parse(const char *text, trmi_mesh *out, trm_error *err);
/* "2x4". */
const char *trmi_mesh_text(const trmi_mesh *mesh, char *text, size_t size);
int32_t trmi_mesh_ranks(const trmi_mesh *mesh);
/* Every ordered factorisation of hosts, then of ranks a host, with at most TRMI_MESH_AXES axes in
 * all: (1, 8) gives 8, 2x4, 4x2, 2x2x2. Returns how many; the first has the fewest axes. */
int32_t trmi_mesh_list(int32_t hosts, int32_t local, trmi_mesh out[TRMI_MESH_LIST]);
void trmi_mesh_coordinates(const trmi_mesh *mesh, int32_t rank, int32_t at[TRMI_MESH_AXES]);
int32_t trmi_mesh_rank(const trmi_mesh *mesh, const int32_t at[TRMI_MESH_AXES]);
/* Ranks of a group that differs only in the axes of `mask` (bit i: axis i). */
int32_t trmi_mesh_group(const trmi_mesh *mesh, uint32_t mask);

/* ---- spread: how a tensor lies on the mesh
 *  --------------------------------------------------------- */

/* Letter of a mesh axis. Values from TRMI_SPLIT on are TRMI_SPLIT + dimension. */
enum {
    TRMI_WHOLE = 0,
    TRMI_PARTIAL_SUM = 1,
    TRMI_PARTIAL_MAX = 2,
    TRMI_PARTIAL_MIN = 3,
    TRMI_SPLIT = 4
};

/* at[i]: the letter of axis i. Where several axes cut one dimension, place[i] is the axis' position
 * among them, 0 = outermost; 0 for all others. Unused axes are zero, so spreads compare by memcmp
 * or by key. */
typedef struct trmi_spread {
    uint8_t at[TRMI_MESH_AXES];
    uint8_t place[TRMI_MESH_AXES];
} trmi_spread;

static inline bool trmi_is_partial(uint8_t letter) {
    return letter >= TRMI_PARTIAL_SUM && letter < TRMI_SPLIT;
}
/* Unique number of a spread: 6 bits of letter and 2 of place an axis. */
uint32_t trmi_spread_key(const trmi_spread *spread);
bool trmi_spread_equal(const trmi_spread *a, const trmi_spread *b);
/* Gradient of a value: S stays S, R becomes P(sum), P(sum) becomes R. */
trmi_spread trmi_spread_adjoint(const trmi_mesh *mesh, const trmi_spread *spread);
bool trmi_spread_has_partial(const trmi_spread *spread);
/* "S0,R", "S1.1,S1.0" (places when not in mesh order), "P+,R", "Pmax"; "-" on a mesh without axes.
 */
const char *trmi_spread_text(const trmi_mesh *mesh, const trmi_spread *spread, char *text,
                             size_t size);
trm_status trmi_spread_parse(const trmi_mesh *mesh, const char *text, trmi_spread *out,
                             trm_error *err);

/* All spreads of a shape without partials (sums too, with `sums`), several axes on a dimension in
 * mesh
 * order only (`orders`: in every order), dimensions smaller than their cut left out; the first is
 * "R,R..".
 *   owns  *out is in the arena */
trm_status trmi_spread_list(const trmi_mesh *mesh, const trm_shape *shape, bool sums, bool orders,
                            trmi_arena *arena, trmi_spread **out, int32_t *count, trm_error *err);

/* Parts are boxes: trmi_box of graph/graph_ir.h. */

/* The part of a rank: balanced, sizes differ by at most one, the larger ones first. */
trmi_box trmi_spread_box(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *spread,
                         int32_t rank);
/* Axes that cut dimension d, outermost first; returns how many. */
int32_t trmi_spread_cuts(const trmi_mesh *mesh, const trmi_spread *spread, int32_t d,
                         int32_t out[TRMI_MESH_AXES]);
/* Can it be: letters in range, partial in one way only, no part empty, places a permutation. */
bool trmi_spread_fits(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *spread);
/* Elements of the largest part. */
int64_t trmi_spread_most(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *spread);

bool trmi_box_intersect(const trmi_box *a, const trmi_box *b, trmi_box *out); /* false: empty */
int64_t trmi_box_count(const trmi_box *box);
trmi_box trmi_box_whole(const trm_shape *shape);
trm_shape trmi_box_shape(const trmi_box *box);
bool trmi_box_equal(const trmi_box *a, const trmi_box *b);

/* ---- prices
 *  ---------------------------------------------------------------------------------------- */

typedef enum trmi_move {
    TRMI_MOVE_LOCAL,          /* slice, zero padding: bytes copied by a rank */
    TRMI_MOVE_ALL_REDUCE,     /* bytes of the vector that each rank holds */
    TRMI_MOVE_ALL_GATHER,     /* bytes of the result */
    TRMI_MOVE_REDUCE_SCATTER, /* bytes of what each rank holds before */
    TRMI_MOVE_ALL_TO_ALL,     /* bytes that a rank sends to others, largest rank */
    /* bytes that a rank receives from others: halo, permutation, anything */
    TRMI_MOVE_EXCHANGE,
    /* an all-reduce of a bucket of gradients, in memory that peers reach */
    TRMI_MOVE_GRADIENTS,
    /* all-gather of a parameter that is stored in parts: bytes of the result */
    TRMI_MOVE_GATHER_STORE,
    /* reduce-scatter of its gradient: bytes of what each rank holds before */
    TRMI_MOVE_SCATTER_STORE,
    /* a reduce-scatter of a bucket of gradients, in memory that peers reach */
    TRMI_MOVE_SLICES,
    TRMI_MOVES
} trmi_move;
const char *trmi_move_name(trmi_move move); /* "all-gather" */

/* Seconds of one move over the groups of `axes` (all groups at once). The planner measures and owns
 * this; NULL function = the built-in alpha-beta of the struct, per axis. Must not decrease with
 * bytes. */
typedef struct trmi_prices {
    double (*seconds)(void *context, trmi_move move, uint32_t axes, double bytes);
    void *context;
    /* seconds a message, a byte; 0 = 20 us, 1/5e9 */
    double alpha[TRMI_MESH_AXES], beta[TRMI_MESH_AXES];
    /* seconds a byte of a local copy; 0 = 1/5e9 */
    double copy;
    /* seconds a flop, a byte of memory traffic, for operators; 0 = 1/1e11, 1/2e10 */
    double flop, byte;
} trmi_prices;
double trmi_price(const trmi_prices *prices, const trmi_mesh *mesh, trmi_move move, uint32_t axes,
                  double bytes);

/* ---- redistribution
 *  ---------------------------------------------------------------------------------- */

enum { TRMI_ROUTE_STEPS = 12 };

typedef struct trmi_route_step {
    trmi_move move;
    uint32_t axes; /* the groups that talk */
    trmi_spread to;
    double bytes, seconds;
} trmi_route_step;

typedef struct trmi_route {
    int32_t count; /* 0: nothing to do */
    trmi_route_step steps[TRMI_ROUTE_STEPS];
    double seconds;
    int64_t peak_elements; /* of the largest intermediate part, source and target included */
} trmi_route;

/* Finds and remembers cheapest routes on one mesh with one price list.
 *   thread  one at a time */
typedef struct trmi_router trmi_router;
trm_status trmi_router_create(const trmi_mesh *mesh, const trmi_prices *prices, trmi_router **out,
                              trm_error *err);
void trmi_router_destroy(trmi_router *router);

/* Cheapest sequence of moves from one spread to another (Dijkstra over spreads; moves of one axis,
 * of
 * several fused, and the direct exchange of boxes). `peak_elements` bounds every intermediate part
 * (0 = no
 * bound beyond the larger of the whole tensor). Partials of the target: only those already there,
 * or
 * R -> P(sum), S -> P(sum) (zeros elsewhere, free of messages).
 *   error  INVALID: no route (P(max) from R and the like), NOMEM
 *   cost   under a microsecond when remembered; else tens of microseconds, more while a shape is new
 */
trm_status trmi_route_find(trmi_router *router, const trm_shape *shape, trm_dtype dtype,
                           const trmi_spread *from, const trmi_spread *to, int64_t peak_elements,
                           trmi_route *out, trm_error *err);
/* Seconds only; INFINITY where there is no route. */
double trmi_route_seconds(trmi_router *router, const trm_shape *shape, trm_dtype dtype,
                          const trmi_spread *from, const trmi_spread *to);

/* The one move that exchanges boxes directly. Partials must be the same on both sides. */
trm_status trmi_route_direct(const trmi_mesh *mesh, const trmi_prices *prices,
                             const trm_shape *shape, int64_t element_bytes, const trmi_spread *from,
                             const trmi_spread *to, trmi_route_step *out);

/* ---- strategies
 *  ----------------------------------------------------------------------------------------- */

enum { TRMI_SHARD_INPUTS = 64, TRMI_SHARD_COMMS = 8 };

/* What an operator exchanges itself, beside the redistribution of its inputs. */
typedef struct trmi_shard_comm {
    trmi_move move;
    uint32_t axes;
    double bytes;     /* as the move counts them */
    const char *what; /* "halo", "statistics", "loss" */
} trmi_shard_comm;

typedef struct trmi_strategy {
    /* by mesh axis; '.' = the axis computes the same; "nk", "n." */
    char letters[TRMI_MESH_AXES + 1];
    trmi_spread inputs[TRMI_SHARD_INPUTS]; /* as they are read (absent inputs: zero) */
    trmi_spread outputs[TRMI_OP_OUTPUTS_MAX];
    /* Rank 0's problem: the largest part of everything. What calibration measures. */
    trm_shape local_inputs[4]; /* with halo; the first four */
    trm_shape local_output;
    /* work of the largest part / work of the whole operator (uneven cuts and rows computed twice
     * included): at least 1 / trmi_mesh_ranks */
    double fraction;
    trmi_shard_comm comms[TRMI_SHARD_COMMS]; /* forward; of this operator only */
    int32_t comms_count;
    trmi_shard_comm backward[TRMI_SHARD_COMMS]; /* of its gradient operators, edges not included */
    int32_t backward_count;
} trmi_strategy;

/* Letters of the loops that may be cut, e.g. "nkchw"; "" = always replicated (then *reason, unless
 * NULL, says why). A last '+': partial sums may pass through, in and out. */
enum { TRMI_SHARD_LETTERS = 12 };
void trmi_shard_loops(const trm_graph *graph, const trmi_op *op, char letters[TRMI_SHARD_LETTERS],
                      const char **reason);
/* What "n", "k" ... mean for this operator: "samples", "output channels". */
const char *trmi_shard_loop_name(const trm_graph *graph, const trmi_op *op, char letter);
/* The strategy of these letters; false: not possible (a loop shorter than its cut, group
 * convolution cut inside a group, ...). Cheap: no memory, microseconds. */
bool trmi_shard_strategy(const trm_graph *graph, const trmi_op *op, const trmi_mesh *mesh,
                         const char *letters, trmi_strategy *out);
/* Does the gradient of the parameter `input` stay in the factors that make it (program.h): few
 * samples, a large matrix, no sum over ranks, and a graph whose gradients need not be whole
 * (accumulated ones must)? */
bool trmi_shard_in_factors(const trm_graph *graph, const trmi_op *op, const trmi_strategy *strategy,
                           int32_t input);
/* All of them. The first is the replicated one.  owns: *out is in the arena */
trm_status trmi_shard_strategies(const trm_graph *graph, const trmi_op *op, const trmi_mesh *mesh,
                                 trmi_arena *arena, trmi_strategy **out, int32_t *count,
                                 trm_error *err);

/* ---- plan
 *  -------------------------------------------------------------------------------------------------
 */

/* Is the first output of an operator kept for backward, or made again there? */
typedef enum trmi_again {
    TRMI_AGAIN_RULE, /* as the back-end's pass has it (plan/passes/pass_recompute.c) */
    TRMI_AGAIN_YES,
    TRMI_AGAIN_NO
} trmi_again;
/* Which operators of a training graph can be made again: those whose first output backward reads,
 * which are functions of
 * what backward finds anyway (leaves, values that it reads and that are not made again themselves).
 * Of a chain, every other.
 *   out  can[graph->ops_count] */
void trmi_shard_repeatable(const trm_graph *graph, bool *can);

/* Which operators' first outputs the back-end's rule makes again (TRMI_AGAIN_RULE,
 * trmi_target.recompute_norm_act).
 *   out  dropped[graph->ops_count] */
void trmi_shard_rule(const trm_graph *graph, bool *dropped);

/* Letters of one forward operator. Operators without a line follow: the strategy that is cheapest
 * from where their inputs are. */
typedef struct trmi_shard_choice {
    const char *op; /* name in the training graph */
    char letters[TRMI_MESH_AXES + 1];
    bool pinned; /* by the user: the search must keep it */
    trmi_again again;
    bool has_output; /* the result is brought to `output` before anyone reads it */
    trmi_spread output;
    int32_t line; /* in the file; 0: it was not read */
} trmi_shard_choice;

/* How a parameter or state is stored between steps. Without a line: as its first reader wants it.
 */
typedef struct trmi_shard_store {
    const char *name;
    trmi_spread spread;
    int32_t line;
} trmi_shard_store;

typedef struct trmi_shard_plan {
    trmi_arena arena; /* names and lists */
    trmi_mesh mesh;
    bool exact;       /* not in files: results are the same bits under any plan (shard_exact.c) */
    const char *file; /* that it was read from, for errors; NULL: none */
    uint64_t digest;  /* trmi_shard_digest of the graph it was made for; 0 = any */
    trmi_shard_choice *choices;
    int64_t choices_count, choices_capacity;
    trmi_shard_store *stores;
    int64_t stores_count, stores_capacity;
} trmi_shard_plan;

trm_status trmi_shard_plan_create(const trmi_mesh *mesh, trmi_shard_plan **out, trm_error *err);
void trmi_shard_plan_destroy(trmi_shard_plan *plan);
/* Adds or replaces. `output` may be NULL. */
trm_status trmi_shard_plan_set(trmi_shard_plan *plan, const char *op, const char *letters,
                               bool pinned, const trmi_spread *output, trm_error *err);
trm_status trmi_shard_plan_store(trmi_shard_plan *plan, const char *name, const trmi_spread *spread,
                                 trm_error *err);
/* Of an operator that has a line. */
trm_status trmi_shard_plan_again(trmi_shard_plan *plan, const char *op, trmi_again again,
                                 trm_error *err);
const trmi_shard_choice *trmi_shard_plan_find(const trmi_shard_plan *plan, const char *op);
/* Where the plan stores this leaf; NULL: it does not say. */
const trmi_shard_store *trmi_shard_plan_stored(const trmi_shard_plan *plan, const char *name);
/* Every operator that has a loop 'n' cut by all axes: data parallel (with batch-norm over all
 * ranks). */
trm_status trmi_shard_plan_samples(const trm_graph *graph, const trmi_mesh *mesh,
                                   trmi_shard_plan **out, trm_error *err);

/* Text: lines "trireme-plan 1", "mesh a=2xb=4", "graph 0123456789abcdef", "op NAME LETTERS [->
 * SPREAD] [again|kept] [pinned]",
 * "store NAME SPREAD", comments after '#'; stable names, sorted as the graph is. A comment "# from
 * FILE" behind the first line's words
 * names the file that a text was read from: errors then say that, not `file`.
 *   owns   the text is freed by trm_free
 *   error  CORRUPT with line, found, expected; INVALID from check */
char *trmi_shard_plan_text(const trmi_shard_plan *plan);
trm_status trmi_shard_plan_parse(const char *text, size_t length, const char *file,
                                 trmi_shard_plan **out, trm_error *err);
trm_status trmi_shard_plan_save(const trmi_shard_plan *plan, const char *file, trm_error *err);
/* Names exist, letters are possible, the digest fits, `ranks` is the mesh's. */
trm_status trmi_shard_plan_check(const trmi_shard_plan *plan, const trm_graph *graph, int32_t ranks,
                                 trm_error *err);
/* Is it for this mesh?   error INVALID */
trm_status trmi_shard_plan_on(const trmi_shard_plan *plan, const trmi_mesh *mesh, trm_error *err);
/* Of operators, shapes, attributes and names. */
uint64_t trmi_shard_digest(const trm_graph *graph);

/* ---- partition
 *  -----------------------------------------------------------------------------------------------
 */

/* The graph that is planned and partitioned: fused, in the wanted precision, differentiated, tidy;
 * every
 * operator has its origin. What plan_create does up to the partition.
 *   owns  caller destroys *out; the lists of roots are in the arena */
trm_status trmi_shard_graph(const trm_graph *graph, const trmi_plan_options *options,
                            trm_graph **out, trmi_roots *roots, trmi_arena *arena, trm_error *err);

/* One communication of the partitioned graph, for tables and for the simulator. */
typedef struct trmi_shard_message {
    const char *op;   /* the operator of the training graph that needs it, or the value's maker */
    const char *what; /* "halo", "input 1", "gradient", "statistics", ... */
    trmi_phase phase;
    trmi_move move;
    uint32_t axes;
    double bytes, seconds; /* by the prices */
    bool gradient;         /* of a parameter: may overlap with backward */
} trmi_shard_message;

typedef struct trmi_shard_work {
    const char *op;
    trmi_phase phase;
    char letters[TRMI_MESH_AXES + 1];
    double fraction;
    trmi_cost cost;      /* of rank 0's part */
    const char *warning; /* why it is replicated, NULL = by choice */
} trmi_shard_work;

/* What the partition did. Arrays are in the arena. */
typedef struct trmi_shard_report {
    trmi_arena arena;
    trmi_shard_message *messages;
    int64_t messages_count, messages_capacity;
    trmi_shard_work *work;
    int64_t work_count, work_capacity;
    double comm_seconds, gradient_seconds;
} trmi_shard_report;
void trmi_shard_report_free(trmi_shard_report *report);

/* A leaf of the local graph: what part of the global tensor it is. */
typedef struct trmi_shard_leaf {
    const char *name;
    int32_t value; /* in the local graph; 0 = this leaf is not used */
    trm_shape global;
    trmi_spread spread;
    trmi_box box;
} trmi_shard_leaf;

/* What runs on `rank`: local shapes, communication as operators (ALL_REDUCE, EXCHANGE of ops.def).
 * `roots` are those of `graph` and become those of *out. leaves: [*leaves_count] in the arena of
 * *out, for
 * inputs, parameters and states. `report` may be NULL.
 *   owns   caller destroys *out
 *   error  INVALID (the plan does not fit the graph), NOMEM */
trm_status trmi_shard_partition(const trm_graph *graph, const trmi_shard_plan *plan,
                                const trmi_prices *prices, int32_t rank, trmi_roots *roots,
                                trm_graph **out, trmi_shard_leaf **leaves, int32_t *leaves_count,
                                trmi_shard_report *report, trm_error *err);

#endif
