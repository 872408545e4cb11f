/* SPDX-License-Identifier: Apache-2.0 */
/* plan/partition/part.h: what a partitioned program knows of an operator beside its mathematics.
 *
 *      graph     operator: kind, inputs, attributes, `attached` (a record that graph does not read)
 *                                                         |
 *      plan      EXCHANGE, ALL_REDUCE -> trmi_box_exchange    SEND, RECEIVE -> trmi_transfer
 *                others -> trmi_op_part
 *                                                         |
 *      exec      kernels read it: trmi_part_of(step->attrs)
 *
 * The partition (emit_local.c) attaches a record to each operator that it writes. An operator
 * without one is whole. Records hold no pointers, so that graphs can copy them as bytes. An
 * operator that is added to graph needs nothing here; one that is to be cut gets its rule in
 * operator_loops.c and, where its kernel must know the part, a case in emit_local.c. */
#ifndef TRMI_PLAN_PART_H
#define TRMI_PLAN_PART_H

#include "graph/graph_ir.h"

/* The part of an operator that this rank computes. Zeros: the whole operator. */
typedef struct trmi_op_part {
    trmi_attachment head;
    /* norms and losses: mesh axes on which other ranks hold the other samples (rows and columns of
     * images, too), and the other classes. The kernel combines its statistics with theirs. */
    uint32_t sample_axes, class_axes;
    /* of the dimension that is cut (classes, rows of a table, experts, rows of bags): first index
     * here, and its extent in the whole operator; extent 0 = all of it is here */
    int64_t begin, extent;
    int64_t bag; /* BAG_POOL: first bag here */
    /* elements that a mean or a loss divides by; 0 = those that are here */
    int64_t count;
    /* DROPOUT: first index here and extent of each dimension, extents 0 = the whole */
    int64_t at[TRM_MAX_RANK], extents[TRM_MAX_RANK];
    /* before the partition: the norm shall stay on each rank's samples; the gradient of the weights
     * may stay in factors */
    bool own_norm, may_factor;
} trmi_op_part;

/* How overlapping parts are combined. */
typedef enum trmi_combine {
    TRMI_COMBINE_NONE,
    TRMI_COMBINE_SUM,
    TRMI_COMBINE_TREE, /* ALL_REDUCE: a sum that adds neighbours first (base/tree.h) */
    TRMI_COMBINE_MAX,
    TRMI_COMBINE_MIN
} trmi_combine;

/* ALL_REDUCE: axes and combine. EXCHANGE: which box of one global tensor each member of a group of
 * ranks has and wants. Elements that no member has are zero. Boxes are in coordinates of the global
 * tensor; empty boxes are allowed. */
typedef struct trmi_box_exchange {
    trmi_attachment head;
    uint32_t axes; /* mesh axes on which the members differ; 0: this rank alone */
    int32_t members, self;
    /* how elements that several members have are combined, in the order of the members; NONE: they
     * are equal copies; MAX, MIN: each member has everything that any member wants */
    trmi_combine combine;
    /* box of the input tensor of this rank; has[self] lies inside */
    trmi_box held;
    trmi_box boxes[]; /* [2 * members]: what each has, then what each wants */
} trmi_box_exchange;

/* SEND, RECEIVE: a value that travels between stages (plan/pipeline/stages.h). */
typedef struct trmi_transfer {
    trmi_attachment head;
    int32_t edge;     /* number of the message in a step, among those of all stages */
    int32_t from, to; /* stages */
    trm_dtype dtype;
    trm_shape shape;
    /* blocks of samples: rows of one block, 0 = no samples; the dimension along which they lie */
    int64_t block_rows;
    uint8_t block_dimension;
} trmi_transfer;

extern const trmi_op_part trmi_whole_op;

/* Returns the part of an operator that is no exchange. */
static inline const trmi_op_part *trmi_part_of(const trmi_attrs *attrs) {
    return attrs->attached != NULL ? (const trmi_op_part *)(const void *)attrs->attached
                                   : &trmi_whole_op;
}
/* Returns the record of an EXCHANGE or ALL_REDUCE. */
static inline const trmi_box_exchange *trmi_exchange_of(const trmi_attrs *attrs) {
    return (const trmi_box_exchange *)(const void *)attrs->attached;
}
/* Returns the record of a SEND or RECEIVE. */
static inline const trmi_transfer *trmi_transfer_of(const trmi_attrs *attrs) {
    return (const trmi_transfer *)(const void *)attrs->attached;
}
/* Returns what each member has, or wants. */
static inline const trmi_box *trmi_exchange_has(const trmi_box_exchange *exchange) {
    return exchange->boxes;
}
/* Returns the boxes that the members have after the exchange. */
static inline const trmi_box *trmi_exchange_wants(const trmi_box_exchange *exchange) {
    return exchange->boxes + exchange->members;
}
/* Rows of all operators of a program: those of graph and those that the partition adds. */
extern const trmi_op_def *const trmi_program_ops[TRMI_OP_KINDS];

/* Attaches, before the partition, own_norm to the batch norms, may_factor to the products whose
 * weights no other operator reads. */
void trmi_part_mark(trm_graph *graph, bool own_norms, bool factors);

#endif
