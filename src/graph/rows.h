/* SPDX-License-Identifier: Apache-2.0 */
/* graph/rows.h: extents of a MATMUL whose leading dimensions are rows (attrs.matmul.rows). The
 * columns of a linear layer may be two dimensions, [I, A, B], which follow those of the rows. */
#ifndef TRMI_GRAPH_ROWS_H
#define TRMI_GRAPH_ROWS_H

#include "graph/graph_ir.h"

/* The product [m, k] x [k, n]; leading: dimensions of rows. */
typedef struct trmi_matmul_extents {
    int64_t m, k, n; /* after transposition, if there is one */
    int32_t leading;
} trmi_matmul_extents;

/* Returns the extents for operands of these shapes, each of one dimension at least. */
static inline trmi_matmul_extents trmi_rows_of(const trmi_attrs *attrs, const trm_shape *a,
                                               const trm_shape *b) {
    trmi_matmul_extents r = {.k = 1};
    if (attrs->matmul.transpose_a) {
        r.leading = (a->rank < b->rank ? a->rank : b->rank) - 1;
        for (int32_t i = 0; i < r.leading; i++) {
            r.k *= a->dim[i];
        }
        r.m = r.k > 0 ? trm_shape_count(a) / r.k : 0;
        r.n = r.k > 0 ? trm_shape_count(b) / r.k : 0;
        return r;
    }
    r.leading = a->rank - (b->rank - 1);
    r.n = b->dim[attrs->matmul.transpose_b ? 0 : b->rank - 1];
    r.k = r.n > 0 ? trm_shape_count(b) / r.n : 0;
    r.m = r.k > 0 ? trm_shape_count(a) / r.k : 0;
    return r;
}

#endif
