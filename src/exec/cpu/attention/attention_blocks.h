/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/attention/attention_blocks.h: attention in blocks (Dao et al. 2022; Dao 2023), forward
 * and backward:
 *
 *                      keys of a block (K, V packed once for all queries)
 *                     +----------------+
 *      queries of     | scores, a tile |   s = q K^T, p = exp(s - max), o = o factor + p V
 *      a task         | of rows at a   |
 *                     | time           |
 *                     +----------------+
 *
 * Products are those of dense layers (gemm/dense_isa.h); rows of scores stay in the first-level
 * cache. Where the causal mask cuts a block, products leave out what no row of a tile reads; sums
 * keep their bits, because the terms left out are products of zeros.
 *
 * Of bfloat16, where the CPU multiplies pairs of bfloat16 faster, all products are of pairs: p and
 * the gradient of the scores are rounded to bfloat16, in the places of the scores. Sums, maxima and
 * scores are float32. Arrays of rows and packed arrays then hold pairs where floats are named. */
#ifndef TRMI_EXEC_CPU_ATTENTION_BLOCKS_H
#define TRMI_EXEC_CPU_ATTENTION_BLOCKS_H

#include "exec/attention.h"
#include "exec/cpu/gemm/dense_isa.h"
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

#include "base/checked.h"

/* An attention and the sizes of its blocks. */
typedef struct trmi_attention_blocks {
    const trmi_memory_kernels *kernels; /* for rows: scale, exp, dot */
    const trmi_dense_isa *isa;          /* products of a tile of mr rows by nr columns */
    const trmi_gemm_isa *pack;
    trmi_attention_shape s; /* of the whole attention; D is s.width */
    trmi_attrs attrs;       /* of the operator */
    trm_dtype dtype;        /* of queries, keys, values and results */
    bool pairs;             /* products of pairs of bfloat16 */
    int64_t lane;           /* numbers in a float of rows and packed arrays: 2 with pairs */
    int64_t group;          /* query heads that share keys */
    int64_t keys;           /* of a block: a multiple of nr */
    int64_t stride;         /* floats between rows of scores: no power of two */
    int64_t panels;         /* of nr columns that hold a row of D numbers */
    int threads;
} trmi_attention_blocks;

/* Computes *out from the step's buffers; q is input number `first`. Returns false if the types are
 * not supported. */
bool trmi_attention_blocks_of(const trm_program *program, const trmi_step *step, int first,
                              const trmi_onednn *backend, trmi_attention_blocks *out);

/* Returns the address of element (b, t, head, 0) of a tensor. */
static inline const char *trmi_attention_address(const trmi_attention_blocks *a, const void *base,
                                                 const trmi_attention_view *view, int64_t b,
                                                 int64_t t, int64_t head) {
    return (const char *)base +
           trmi_attention_at(&a->s, view, b, t, head) * (int64_t)trm_dtype_bytes(a->dtype);
}

/* Reads `count` rows of D numbers, times `factor`, as float32 or pairs, into `to` [count, D]. In
 * `from` they are `row` elements apart. With pairs `factor` is 1 (trmi_attention_scale). */
void trmi_attention_take(const trmi_attention_blocks *a, float *to, const void *from, int64_t row,
                         int64_t count, float factor);
/* Returns the factor of queries as they are taken, or (`later`) of scores: one of them is the
 * attention's scale, the other 1. Pairs stay the numbers that they are. */
static inline float trmi_attention_scale(const trmi_attention_blocks *a, bool later) {
    return a->pairs == later ? (float)a->attrs.attention.scale : 1;
}
/* Writes `count` float32 rows `from` [count, D], row i times factors[i * factors_step], in the
 * attention's dtype to rows that are `row` elements apart. */
void trmi_attention_give(const trmi_attention_blocks *a, void *to, int64_t row, const float *from,
                         int64_t count, const float *factors, int64_t factors_step);
/* Packs keys [begin, begin + count) of a tensor as columns (transposed: scores = rows * packed) or
 * as rows (results = scores * packed). */
void trmi_attention_pack(const trmi_attention_blocks *a, float *to, const void *from, int64_t row,
                         int64_t count, bool as_columns);
/* Returns the floats of a block packed as columns, which are also enough for rows. */
int64_t trmi_attention_packed_floats(const trmi_attention_blocks *a);
/* Packs rows that were taken, `count` of them, as rows. */
void trmi_attention_pack_rows(const trmi_attention_blocks *a, float *to, const float *from,
                              int64_t count);

/* The scores of some queries and a block of keys: row i reads its first `first_reads` + i keys, at
 * most `keys` (trmi_attention_row_reads). */
typedef struct trmi_attention_part {
    int64_t rows, keys;  /* keys: those that the last row reads */
    int64_t first_reads; /* negative: later rows are the first that read a key */
} trmi_attention_part;

/* Returns the part of queries [query, query + rows) and the block of keys from `begin` on. */
static inline trmi_attention_part trmi_attention_part_of(const trmi_attention_blocks *a,
                                                         int64_t query, int64_t rows,
                                                         int64_t begin) {
    int64_t last = trmi_attention_limit(&a->s, &a->attrs, query + rows - 1) - begin;
    return (trmi_attention_part){.rows = rows,
                                 .keys = trmi_max_i64(0, trmi_min_i64(last, a->keys)),
                                 .first_reads =
                                     trmi_attention_limit(&a->s, &a->attrs, query) - begin};
}

/* Returns how many keys row i reads (all, or with a causal mask those up to its own position). */
static inline int64_t trmi_attention_row_reads(const trmi_attention_part *p, int64_t i) {
    return trmi_max_i64(0, trmi_min_i64(p->first_reads + i, p->keys));
}

/* Returns how many weights of row i products may read: those behind the keys that it reads must be
 * 0. A tile of rows ends with the keys of its last row, a tile of keys with its last key. */
static inline int64_t trmi_attention_row_room(const trmi_attention_blocks *a,
                                              const trmi_attention_part *p, int64_t i) {
    int64_t tile = trmi_attention_row_reads(p, i) + a->isa->mr;
    return trmi_round_up(trmi_min_i64(tile, p->keys), a->lane);
}

/* Computes float32 scores [rows], a->stride apart, = rows of D numbers * packed columns. Scores
 * that no row of a panel reads are not written. */
void trmi_attention_scores(const trmi_attention_blocks *a, const trmi_attention_part *p,
                           const float *rows, const float *packed, float *scores);
/* Computes to [rows, D] += weights [rows], a->stride apart * packed rows. With pairs the weights
 * are bfloat16. Weights are 0 from the keys that a row reads to its room. */
void trmi_attention_apply(const trmi_attention_blocks *a, const trmi_attention_part *p,
                          const float *weights, const float *packed, float *to);
/* Computes to [keys, D] += weights^T * packed rows, with weights as above. turned: with pairs, room
 * for the weights of pairs of rows (trmi_attention_turned). */
void trmi_attention_apply_transposed(const trmi_attention_blocks *a, const trmi_attention_part *p,
                                     const float *weights, const float *packed, float *to,
                                     float *turned);
/* Returns the floats of `turned` for `rows` rows of weights; 0 without pairs. */
static inline int64_t trmi_attention_turned(const trmi_attention_blocks *a, int64_t rows) {
    return a->pairs ? trmi_pieces(rows, 2) * a->stride : 0;
}
/* Writes, for keys [begin, begin + count) of sample b, 0 where the mask shows the key and minus
 * infinity where it hides it, to be added to scores. Returns `room` [a->keys]; NULL without a
 * mask. */
const float *trmi_attention_hidden(const trmi_attention_blocks *a, const int32_t *mask, int64_t b,
                                   int64_t begin, int64_t count, float *room);

#endif
