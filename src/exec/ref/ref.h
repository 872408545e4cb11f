/* SPDX-License-Identifier: Apache-2.0 */
/* exec/ref/ref.h: reading and writing elements of any dtype as double, and walking shapes. The
 * reference kernels are meant to be obviously right; nothing here is meant to be fast. */
#ifndef TRMI_EXEC_REF_REF_H
#define TRMI_EXEC_REF_REF_H

#include "exec/backend.h"

double trmi_ref_get(const trm_tensor *tensor, int64_t index);
/* Rounds to the tensor's dtype; does nothing when data is NULL. */
void trmi_ref_set(const trm_tensor *tensor, int64_t index, double value);
int64_t trmi_ref_get_int(const trm_tensor *tensor, int64_t index);

/* The coordinates of element `index` of a row-major shape, and back. */
void trmi_ref_unravel(const trm_shape *shape, int64_t index, int64_t *at);
int64_t trmi_ref_ravel(const trm_shape *shape, const int64_t *at);
/* The element of `shape` that broadcasting reads at position `at` of `wide`. */
int64_t trmi_ref_broadcast_index(const trm_shape *shape, const trm_shape *wide, const int64_t *at);

/* A sum that may be exact: with an anchor each value is rounded to the same unit before it is
 * added, so that the sums of ranks add up to the same bits in any order (exec/determinism/exact.h).
 */
typedef struct trmi_ref_sum {
    double sum, anchor; /* anchor 0: as it comes */
} trmi_ref_sum;
static inline void trmi_ref_sum_add(trmi_ref_sum *s, double value) {
    s->sum += s->anchor != 0 ? (value + s->anchor) - s->anchor : value;
}
/* values[0 .. largest) become the largest, values[largest .. count) the sums, over the ranks of
 * `sync` (NULL = here). */
trm_status trmi_ref_share(trmi_norm_sync *sync, double *values, int64_t largest, int64_t count,
                          trm_error *err);

/* The part of a pool's window that lies inside the image. */
typedef struct trmi_ref_window {
    int64_t h0, h1, w0, w1;
    double size; /* what an average divides by */
} trmi_ref_window;
trmi_ref_window trmi_ref_window_of(const trmi_attrs *attrs, const trm_shape *x, int64_t oh,
                                   int64_t ow);
/* The first element of the window that equals the maximum, in row-major order (as PyTorch). */
int64_t trmi_ref_arg_max(const trm_tensor *x, const trmi_ref_window *window, int64_t plane);

#define X(KIND, row) trm_status trmi_ref_##row(const trmi_ref_args *args, trm_error *err);
#include "graph/ops.def"
#undef X

#endif
