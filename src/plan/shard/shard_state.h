/* SPDX-License-Identifier: Apache-2.0 */
/* plan/shard/shard_state.h: the partition at work. Two walks over the same operators: the first
 * decides how each is cut and how leaves are stored, the second writes the graph of one rank.
 *
 *      value 7:  versions  "S0,R" (made)  "R,R" (gathered for op 12)  "S0,R + halo" (for op 9) */
#ifndef TRMI_PLAN_SHARD_STATE_H
#define TRMI_PLAN_SHARD_STATE_H

#include "plan/shard/shard_rules.h"

enum { TRMI_SHARD_VERSIONS = 16 };

/* One form in which a value of the global graph exists on the ranks. */
typedef struct trmi_version {
    trmi_spread spread;
    bool halo; /* the parts of `spread` widened by `window` */
    trmi_shard_window window[2];
    int32_t value; /* in the local graph; 0 in the first walk */
} trmi_version;

typedef struct trmi_shard_value {
    trmi_version versions[TRMI_SHARD_VERSIONS];
    int32_t count;
    /* a leaf, or its cast, that nobody has read yet: the first reader says how it lies */
    bool lazy;
    bool decided; /* leaves: stored as versions[0].spread */
} trmi_shard_value;

typedef struct trmi_sharder {
    const trm_graph *from;
    const trmi_shard_plan *plan;
    const trmi_mesh *mesh;
    trmi_router *router;
    const trmi_prices *prices;
    int32_t rank;
    bool emitting;
    char (*letters)[TRMI_MESH_AXES + 1]; /* [ops of from] */
    trmi_spread *stored;                 /* [values of from] leaves */
    trmi_shard_value *values;            /* [values of from] */
    const trmi_shard_choice **choices;   /* [ops of from] the plan's line, or NULL */
    /* [ops of from] the operator whose gradient this is part of, or 0 */
    int32_t *origins;
    const char **warnings; /* [ops of from] */
    bool *parameter;       /* [values of from] gradients of parameters */
    /* [values of from] the loss, outputs: whole as soon as they are made */
    bool *asked;
    trmi_pass pass;            /* to: the local graph */
    trmi_shard_report *report; /* may be NULL */
    trmi_arena scratch;
} trmi_sharder;

/* shard_choose.c: fills letters, stored, warnings. */
trm_status trmi_shard_choose(trmi_sharder *s, trm_error *err);
/* The best source among the versions for `to`, -1 = none; *seconds of its route. */
int32_t trmi_shard_source(trmi_sharder *s, int32_t value, const trmi_spread *to, double *seconds);
/* shard_bring.c: makes sure that the value exists as `to`; the local value (0 in the first walk).
 */
trm_status trmi_shard_bring(trmi_sharder *s, int32_t value, const trmi_spread *to, const char *what,
                            int32_t *out, trm_error *err);
/* The value widened by the windows of `loops`, from its spread `own`, for outputs spread as `made`.
 */
trm_status trmi_shard_widen(trmi_sharder *s, int32_t value, const trmi_loops *loops,
                            const trm_shape *out_shape, const trmi_spread *own,
                            const trmi_spread *made, int32_t *out, trm_error *err);
/* EXCHANGE over the groups of `axes`: boxes by rank, from two functions of (context, rank). */
typedef trmi_box (*trmi_shard_part)(const void *context, int32_t rank);
trm_status trmi_shard_exchange(trmi_sharder *s, int32_t local, uint32_t axes, trmi_combine combine,
                               trmi_shard_part has, const void *has_context, trmi_shard_part wants,
                               const void *wants_context, trmi_phase phase, const char *name,
                               int32_t *out, trm_error *err);
void trmi_shard_note(trmi_sharder *s, const char *op, const char *what, trmi_phase phase,
                     trmi_move move, uint32_t axes, double bytes, double seconds, bool gradient);
/* shard_emit.c: the local form of one operator. */
trm_status trmi_shard_emit(trmi_sharder *s, const trmi_op *op, const trmi_strategy *strategy,
                           trm_error *err);
trm_status trmi_shard_emit_leaf(trmi_sharder *s, const trmi_op *op, trm_error *err);
/* shard_exact.c: where the plan is exact (results must not depend on it). */
bool trmi_shard_is_exact(trmi_op_kind kind);
/* Nothing stays partial then; false: a strategy that passes partial sums on. */
bool trmi_shard_settle(const trmi_sharder *s, const trmi_op *op, trmi_strategy *strategy);
typedef struct trmi_exact_state {
    trmi_exact what;
    int32_t largest, sums; /* local values */
} trmi_exact_state;
/* The sums of this rank's part, `shape`; then (once halos are added) those of all, as numbers. bias
 * 0: none. */
trm_status trmi_shard_exact_sum(trmi_sharder *s, const trmi_op *op, const trmi_strategy *strategy,
                                const trmi_attrs *attrs, const trm_shape *shape,
                                const int32_t *inputs, trmi_exact_state *state, trm_error *err);
trm_status trmi_shard_exact_round(trmi_sharder *s, const trmi_op *op, const trmi_strategy *strategy,
                                  int32_t bias, trmi_exact_state *state, int32_t *out,
                                  trm_error *err);

#endif
