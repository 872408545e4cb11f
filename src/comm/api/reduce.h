/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/reduce.h: the sums themselves. One call combines any number of sources, in their order,
 * element by element, and stores the result to any number of targets. */
#ifndef TRMI_COMM_REDUCE_H
#define TRMI_COMM_REDUCE_H

#include "trireme/comm.h"

/* target[t][i] = sources[0][i] op sources[1][i] op ... for every t.
 * 16-bit floats are accumulated in float and rounded once. A target may be a source, exactly in
 * place; other overlaps are not allowed. TRM_REDUCTION_MEAN divides the sum by `divisor`, integers
 * cut towards zero. A sum, product or mean of integers wraps. max and min give NaN if any is NaN.
 * Bits do not depend on the instruction set or on how a vector is cut into calls.   thread any */
typedef void trmi_reduce_fn(void *const *targets, int32_t target_count, const void *const *sources,
                            int32_t source_count, int64_t count, int32_t divisor);

/* The function for a type and reduction (NULL if there is none), fastest that this CPU runs. */
trmi_reduce_fn *trmi_reduce_find(trm_dtype dtype, trm_reduction reduce);

/* Many long vectors come from memory in more streams than a core's prefetchers follow.
 * trmi_reduce_far does what the kernel does, to the bit, but in blocks: a few vectors at a time are
 * added up in the core's first cache, and from there the result goes to one target after the other.
 * 102 MB, 2 CPUs: 8 vectors 19.5 -> 15.4 ms, 16 vectors of half the length 30.5 -> 23.4; 6 vectors
 * 5.0 -> 5.7, hence the limits. */
typedef struct trmi_reduction {
    trm_dtype dtype;
    trm_reduction reduce;
    int32_t divisor;
} trmi_reduction;
bool trmi_reduce_is_far(const trmi_reduction *what, int32_t source_count, int64_t count);
void trmi_reduce_far(const trmi_reduction *what, void *const *targets, int32_t target_count,
                     const void *const *sources, int32_t source_count, int64_t count);

/* The tables behind it, [dtype - 1][reduce - 1]; NULL entries where an instruction set has nothing
 * of its own. For tests, which compare them. */
enum { TRMI_REDUCE_DTYPES = 8, TRMI_REDUCE_OPS = 5 };
typedef trmi_reduce_fn *trmi_reduce_table[TRMI_REDUCE_DTYPES][TRMI_REDUCE_OPS];
extern const trmi_reduce_table trmi_reduce_plain;
#if defined(__x86_64__)
extern const trmi_reduce_table trmi_reduce_avx2;
extern const trmi_reduce_table trmi_reduce_avx512;
#endif

/* The best of them on this CPU: what trmi_reduce_find looks into, for those who look often. */
const trmi_reduce_table *trmi_reduce_best(void);

/* The type in which partial results travel when a sum takes several hops: float for 16-bit floats,
 * int64 for the mean of integers, otherwise the type itself. */
trm_dtype trmi_reduce_partial_dtype(trm_dtype dtype, trm_reduction reduce);
/* Converts between a type and its partial type. */
void trmi_reduce_widen(const void *from, trm_dtype from_dtype, void *to, trm_dtype to_dtype,
                       int64_t count);
/* Back to `dtype`, dividing first if divisor > 1. from and to may be equal if the types are. */
void trmi_reduce_finish(const void *from, trm_dtype from_dtype, void *to, trm_dtype dtype,
                        int64_t count, int32_t divisor);

#endif
