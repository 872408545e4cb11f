/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/reduce.h: the arithmetic of reductions. One call combines any number of sources, in
 * their order, element by element, and stores the result to any number of targets. The kernels are
 * in reduce_kernels.c. */
#ifndef TRMI_COMM_REDUCE_H
#define TRMI_COMM_REDUCE_H

#include "trireme/dist.h"

/* Computes target[t][i] = sources[0][i] op sources[1][i] op ... for every t and i < count. 16-bit
 * floats are accumulated in float and rounded once. A target may be one of the sources, in exactly
 * the same place; other overlaps are not allowed. TRM_REDUCTION_MEAN divides the sum by `divisor`;
 * integers round towards zero. Sums, products and means of integers wrap around. max and min give
 * NaN if any source is NaN. The result's bits depend neither on the instruction set nor on how a
 * vector is divided into calls. Any thread may call it. */
typedef void trmi_reduce_fn(void *const *targets, int32_t target_count, const void *const *sources,
                            int32_t source_count, int64_t count, int32_t divisor);

/* Returns the fastest function that this CPU can run, or NULL if the type or the reduction is
 * unknown. */
trmi_reduce_fn *trmi_reduce_find(trm_dtype dtype, trm_reduction reduce);

/* Reductions of many long vectors. They come from memory in more streams than the prefetchers of a
 * core follow. trmi_reduce_in_blocks gives the same bits as the kernel but works in blocks: it sums
 * a few vectors at a time into a block in the core's first-level cache, and then copies the block
 * to one target after the other. Measured with 102 MB on 2 CPUs: 8 vectors 19.5 -> 15.4 ms, 16
 * vectors of half the length 30.5 -> 23.4 ms; but 6 vectors 5.0 -> 5.7 ms, hence the limits. */
typedef struct trmi_reduction {
    trm_dtype dtype;      /* of sources and targets */
    trm_reduction reduce; /* never NONE */
    int32_t divisor;      /* of a mean */
} trmi_reduction;
/* Returns whether trmi_reduce_in_blocks is faster: more than 6 sources of `count` elements, 64 MB
 * in all, and a type that needs no wider partial results. */
bool trmi_reduce_needs_blocks(const trmi_reduction *what, int32_t source_count, int64_t count);
/* Reduces as a trmi_reduce_fn. Any thread may call it; it needs 32 KB of stack. */
void trmi_reduce_in_blocks(const trmi_reduction *what, void *const *targets, int32_t target_count,
                           const void *const *sources, int32_t source_count, int64_t count);

/* The tables of the instruction sets, [dtype - 1][reduce - 1]. Tests compare them with each
 * other. */
enum { TRMI_REDUCE_DTYPES = 8, TRMI_REDUCE_OPS = 5 };
typedef trmi_reduce_fn *trmi_reduce_table[TRMI_REDUCE_DTYPES][TRMI_REDUCE_OPS];
extern const trmi_reduce_table trmi_reduce_plain;
#if defined(__x86_64__)
extern const trmi_reduce_table trmi_reduce_avx2;
extern const trmi_reduce_table trmi_reduce_avx512;
#endif

/* Returns the best table for this CPU. Code that looks up functions often keeps the pointer. */
const trmi_reduce_table *trmi_reduce_best(void);

/* Returns the type in which partial results travel when a sum takes several hops: float for 16-bit
 * floats, int64 for the mean of integers, otherwise the type itself. */
trm_dtype trmi_reduce_partial_dtype(trm_dtype dtype, trm_reduction reduce);
/* Converts `count` elements from a type to its partial type. `from` may equal `to` if the types
 * do. */
void trmi_reduce_widen(const void *from, trm_dtype from_dtype, void *to, trm_dtype to_dtype,
                       int64_t count);
/* Divides partial results by `divisor` (1: no division) and converts them back to `dtype`. `from`
 * may equal `to` if the types are equal. */
void trmi_reduce_finish(const void *from, trm_dtype from_dtype, void *to, trm_dtype dtype,
                        int64_t count, int32_t divisor);

#endif
