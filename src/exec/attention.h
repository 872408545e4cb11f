/* SPDX-License-Identifier: Apache-2.0 */
/* exec/attention.h: where queries, keys, values and results of an attention lie, for its reference
 * kernel and its fast one:
 *
 *      four tensors   q [B, T, H, D]   k, v [B, S, G, D]   y [B, T, H, D]
 *      packed         [B, T, H D | G D | G D]              y [B, T, H D]
 *      folded         [B, T, 3, H D], the same bytes */
#ifndef TRMI_EXEC_ATTENTION_H
#define TRMI_EXEC_ATTENTION_H

#include "graph/graph_ir.h"

#include <float.h>

/* The log-sum-exp of a query that reads no key: it weighs nothing beside one that reads some. */
#define TRMI_ATTENTION_NO_KEYS (-FLT_MAX)

/* Element (b, t, h, d) is number begin + b * batch + t * row + h * D + d. */
typedef struct trmi_attention_view {
    int64_t begin, batch, row;
} trmi_attention_view;

/* Sizes and places of the four tensors. */
typedef struct trmi_attention_shape {
    int64_t batch, queries, keys;   /* B; T and S, positions of a sample */
    int64_t heads, kv_heads, width; /* H; G, which divides H; D, elements of a head's row */
    bool packed;                    /* q, k and v are columns of one tensor */
    trmi_attention_view q, k, v, y;
} trmi_attention_shape;

/* Returns the sizes of an attention. k: shape of the keys; NULL = packed in q. */
static inline trmi_attention_shape trmi_attention_shape_of(const trmi_attrs *attrs,
                                                           const trm_shape *q, const trm_shape *k) {
    trmi_attention_shape s = {.batch = q->dim[0],
                              .queries = q->dim[1],
                              .keys = k == NULL ? q->dim[1] : k->dim[1],
                              .heads = k == NULL ? attrs->attention.heads : q->dim[2],
                              .kv_heads = k == NULL ? attrs->attention.kv_heads : k->dim[2],
                              .packed = k == NULL};
    int64_t columns = k == NULL && q->rank == 4 ? q->dim[2] * q->dim[3] : q->dim[2];
    s.width = k == NULL ? columns / (s.heads + 2 * s.kv_heads) : q->dim[3];
    int64_t own = s.heads * s.width, other = s.kv_heads * s.width;
    int64_t q_row = s.packed ? own + 2 * other : own, k_row = s.packed ? q_row : other;
    s.q = (trmi_attention_view){0, s.queries * q_row, q_row};
    s.k = (trmi_attention_view){s.packed ? own : 0, s.keys * k_row, k_row};
    s.v = (trmi_attention_view){s.packed ? own + other : 0, s.keys * k_row, k_row};
    s.y = (trmi_attention_view){0, s.queries * own, own};
    return s;
}

/* Returns the index of element (b, t, head, 0). */
static inline int64_t trmi_attention_at(const trmi_attention_shape *s, const trmi_attention_view *v,
                                        int64_t b, int64_t t, int64_t head) {
    return v->begin + b * v->batch + t * v->row + head * s->width;
}

/* Returns how many keys query t may read at most: those before this one; 0 or less: none. */
static inline int64_t trmi_attention_limit(const trmi_attention_shape *s, const trmi_attrs *attrs,
                                           int64_t t) {
    int64_t limit = attrs->attention.begin + t + 1;
    return attrs->attention.causal && limit < s->keys ? limit : s->keys;
}

#endif
