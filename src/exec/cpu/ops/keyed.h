/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/keyed.h: KEYED_LINEAR and its gradient: a linear layer on looked-up embedding rows,
 * whose products are computed once for each different id.
 *
 *      forward    for 32 columns of y at a time: P [u, 32] = rows of the u ids [u, D] x w,
 *                 y[n] = bias + dense w + sum over fields of P[field][group of n]
 *      backward   S[group of n] += dy[n],  dw = rows^T S,  d(row of an id) = S w^T
 *
 * If most ids occur only once (MOST_PERCENT in keyed.c), or there are more threads than panels of
 * columns, the products of all samples are computed instead. The same bits for any number of
 * threads for one form.
 */
#ifndef TRMI_EXEC_CPU_KEYED_H
#define TRMI_EXEC_CPU_KEYED_H

#include "exec/cpu/gemm/dense.h"
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

TRMI_MEMORY_BIND(keyed);
TRMI_MEMORY_SCRATCH(keyed);

/* Sizes, and offsets in scratch (`_at`: floats from its beginning). */
typedef struct trmi_keyed {
    int64_t samples, fields, width, dense, outputs, columns; /* columns: of w */
    int64_t nr, panels;                                      /* of y */
    int64_t chunks, dense_chunks; /* of TRMI_TILE_COLS numbers of a row */
    int64_t most;                 /* groups of all fields together, at most, where they are used */
    int threads;
    bool backward, wide, relu, biased;
    const trmi_dense_isa *isa;
    const trmi_gemm_isa *pack;
    const trmi_memory_kernels *kernels;
    /* all samples: forward dense, rows; backward rows, weights, dense weights */
    trmi_dense_plan plan[4];
    int64_t begin_at, groups_at, rows_at, dense_at, weights_at, sums_at, rest_at, thread_at,
        thread_floats, floats;
    int64_t block; /* rows of P at a time */
    int32_t hash_bits;
} trmi_keyed;

/* keyed_grad.c: computes the gradients of the operator. */
trm_status trmi_keyed_backward(const trmi_kernel *kernel, const trmi_kernel_env *env,
                               trm_error *err);

/* ---- keyed_groups.c: for forward and backward ------------------------------------------------ */

/* Returns the floats of a hash table for so many samples, with 2^bits cells, more than samples. */
int64_t trmi_keyed_room(int64_t samples, int32_t bits);
/* Groups the ids of one field: out[0] = number of groups, then the group of each sample, then the
 * first sample of each group, then zeros. ids [samples, fields], `wide`: int64, else int32. `room`:
 * trmi_keyed_room floats, 8-byte aligned, of the calling thread. */
void trmi_keyed_group(const void *ids, bool wide, int64_t samples, int64_t fields, int64_t field,
                      int32_t bits, int32_t *out, void *room);
/* Returns the groups of a field: their number, the group of each sample, the first sample of each
 * group (trmi_keyed_group). */
static inline const int32_t *trmi_keyed_groups(const trmi_keyed *q, const int32_t *groups,
                                               int64_t field) {
    return groups + field * (2 * q->samples + 1);
}
/* Writes begin[f]: number of groups of the fields before f; begin[fields]: of all. */
void trmi_keyed_begins(const trmi_keyed *q, const int32_t *groups, int64_t *begin);
/* Copies the rows of all groups: for each field [chunks][groups][TRMI_TILE_COLS], padded with
 * zeros. Called by all threads of a team, each of which copies its share. */
void trmi_keyed_take_rows(const trmi_keyed *q, const int32_t *groups, const int64_t *begin,
                          const float *rows, float *out);
/* Returns the packed rows of a field's groups. */
static inline float *trmi_keyed_rows_of(const trmi_keyed *q, float *rows, const int64_t *begin,
                                        int64_t field) {
    return rows + begin[field] * q->chunks * TRMI_TILE_COLS;
}

#endif
