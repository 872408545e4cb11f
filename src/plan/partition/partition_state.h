/* SPDX-License-Identifier: Apache-2.0 */
/* plan/partition/partition_state.h: state of the partition; private to plan/partition. The
 * partition walks over the operators twice: the first walk (choose_cuts.c) decides how each
 * operator is cut and how leaves are stored, the second (emit_local.c) writes the graph of one
 * rank.
 *
 *      value 7:  versions  "S0,R" (made)  "R,R" (gathered for op 12)  "S0,R + halo" (for op 9)
 *
 * Both walks keep the versions of every value, so that no value is sent twice in the same form,
 * unless the plan says that backward gathers a parameter again. */
#ifndef TRMI_PLAN_PARTITION_STATE_H
#define TRMI_PLAN_PARTITION_STATE_H

#include "plan/partition/operator_loops.h"

/* Forms of one value, at most. */
enum { TRMI_PARTITION_VERSIONS = 16 };

/* One form in which a value of the global graph exists on the ranks. */
typedef struct trmi_version {
    trmi_spread spread;
    bool halo; /* the parts of `spread` widened by `window` */
    trmi_partition_window window[2];
    int32_t value; /* value in the local graph; 0 in the first walk */
    /* moved or cast in forward: not kept for backward, if the value is brought again there */
    bool forward;
} trmi_version;

/* All versions of one value of the global graph. */
typedef struct trmi_partition_value {
    trmi_version versions[TRMI_PARTITION_VERSIONS];
    int32_t count;
    /* a leaf or its cast without a reader so far: the first reader decides its spread */
    bool follows_reader;
    bool decided; /* of a leaf: stored as versions[0].spread */
    bool
        again; /* a parameter that backward gathers again, or its cast (trmi_partition_store.again) */
} trmi_partition_value;

/* State of one partition. Arrays by operator or value of `from` lie in `scratch`. */
typedef struct trmi_partitioner {
    const trm_graph *from;
    const trmi_partition_plan *plan;
    const trmi_mesh *mesh;
    trmi_router *router;
    const trmi_prices *prices;
    int32_t rank;
    bool emitting;                         /* false: first walk; true: second walk */
    trmi_phase phase;                      /* of the operator that is cut or emitted */
    char (*letters)[TRMI_MESH_AXES + 1];   /* [ops of from] */
    trmi_spread *stored;                   /* [values of from] spreads of leaves */
    trmi_partition_value *values;          /* [values of from] */
    const trmi_partition_choice **choices; /* [ops of from] the plan's line, or NULL */
    /* [ops of from] forward operator whose gradient this one computes, or 0 */
    int32_t *origins;
    const char **warnings;  /* [ops of from] why an operator is replicated, or NULL */
    trmi_block_marks marks; /* of `from`, in strict plans */
    int32_t *parameter;     /* [values of from] the parameter whose gradient a value is, or 0 */
    /* [values of from] loss or output: gathered as soon as it is made */
    bool *asked;
    trmi_pass pass;                /* pass.to: the local graph */
    trmi_partition_report *report; /* may be NULL */
    trmi_arena scratch;
} trmi_partitioner;

/* First walk (choose_cuts.c): fills letters, stored and warnings.
 *   errors  INVALID (the plan is not possible), NOMEM */
trm_status trmi_partition_choose(trmi_partitioner *s, trm_error *err);
/* Returns the spread to which the program brings a gradient made as `made`: the parameter's store,
 * partial on axes on which the parameter is whole (*axes), as the executor sums these in buckets
 * that overlap with backward. */
trmi_spread trmi_partition_brought(const trmi_partitioner *s, int32_t parameter,
                                   const trmi_spread *made, uint32_t *axes);
/* Returns the version from which `to` is cheapest to reach, -1 = none; *seconds of its route. */
int32_t trmi_partition_source(trmi_partitioner *s, int32_t value, const trmi_spread *to,
                              double *seconds);
/* Makes the value exist in spread `to`: emits the moves of the cheapest route (redistribute.c).
 * out: the local value (0 in the first walk).   errors  INVALID (no route, or too many versions),
 * NOMEM */
trm_status trmi_redistribute(trmi_partitioner *s, int32_t value, const trmi_spread *to,
                             const char *what, int32_t *out, trm_error *err);
/* Makes the value exist in spread `own` widened by the windows of `loops`, for outputs in spread
 * `made`. */
trm_status trmi_partition_widen(trmi_partitioner *s, int32_t value, const trmi_loops *loops,
                                const trm_shape *out_shape, const trmi_spread *own,
                                const trmi_spread *made, int32_t *out, trm_error *err);
/* Returns a rank's box of a value, before or after an exchange. */
typedef trmi_box (*trmi_partition_part)(const void *context, int32_t rank);
/* An EXCHANGE that is to be emitted. */
typedef struct trmi_exchange_plan {
    const char *name; /* of the operator */
    trmi_phase phase;
    uint32_t axes;                  /* ranks along these exchange */
    trmi_combine combine;           /* what is done with boxes that overlap */
    trmi_partition_part has, wants; /* the boxes before it and after it */
    const void *had_by, *wanted_by; /* their contexts */
} trmi_exchange_plan;
/* Emits an EXCHANGE of the local value `local`. *out: its result. */
trm_status trmi_partition_exchange(trmi_partitioner *s, int32_t local,
                                   const trmi_exchange_plan *plan, int32_t *out, trm_error *err);
/* Adds a message to the report, in the second walk, if there is a report. The report copies the
 * texts. */
void trmi_partition_note(trmi_partitioner *s, const trmi_partition_message *message);
/* Second walk (emit_local.c): emits the local form of one operator, or of one leaf. */
trm_status trmi_partition_emit(trmi_partitioner *s, const trmi_op *op,
                               const trmi_strategy *strategy, trm_error *err);
trm_status trmi_partition_emit_leaf(trmi_partitioner *s, const trmi_op *op, trm_error *err);
/* Emits an attention, or its gradient, whose queries and keys are cut alike (emit_ring.c). attrs:
 * those of this rank's part. inputs: its local inputs. locals: its outputs. */
trm_status trmi_partition_emit_ring(trmi_partitioner *s, const trmi_op *op,
                                    const trmi_strategy *strategy, const trmi_attrs *attrs,
                                    const int32_t *inputs, int32_t *locals, trm_error *err);
/* Strict plans: changes a strategy so that sums do not stay partial. Returns whether it computes
 * the bits of one device; true for other plans. */
bool trmi_partition_settle(const trmi_partitioner *s, const trmi_op *op, trmi_strategy *strategy);
/* Strict plans: emits the sums of an operator over the samples of other ranks. locals: its outputs,
 * replaced by the sums. */
trm_status trmi_partition_add_samples(trmi_partitioner *s, const trmi_op *op,
                                      const trmi_strategy *strategy, int32_t *locals,
                                      trm_error *err);

#endif
