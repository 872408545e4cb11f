/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that forward and backward of attention in blocks share: the sizes of the blocks, rows
 * in and out, packing of keys and values, and the products of a tile of scores (contracts in
 * attention_blocks.h).
 *
 * Invariants: blocks of keys come in their order, and each adds its part to sums that are there; a
 * panel of keys is one tile wide; rows of scores lie at distances that are no power of two. */
#include "exec/cpu/attention/attention_blocks.h"

#include "base/element.h"

#include <math.h>
#include <string.h>

/* Panels of keys in a block; and what is added to the distance of two rows of scores, which would
 * else be a power of two, so that all rows would compete for the same sets of a cache. */
enum {
    KEY_PANELS = 8,
    APART = TRMI_TILE_COLS /* floats: rows of scores in other sets of a cache */
};

/* Contract in attention_blocks.h. Inputs are q, k, v, or one tensor that has all three side by side
 * (`packed`: the step then has no input for k). */
bool trmi_attention_blocks_of(const trm_program *program, const trmi_step *step, int first,
                              const trmi_onednn *backend, trmi_attention_blocks *out) {
    const trmi_buffer *q = &program->buffers[step->inputs[first]];
    bool packed = step->inputs[first + 1] == 0;
    const trmi_buffer *k = packed ? NULL : &program->buffers[step->inputs[first + 1]];
    *out = (trmi_attention_blocks){
        .kernels = trmi_memory_kernels_best(),
        .isa = trmi_dense(),
        .pack = trmi_gemm(),
        .s = trmi_attention_shape_of(step->attrs, &q->shape, k != NULL ? &k->shape : NULL),
        .attrs = *step->attrs,
        .dtype = q->dtype,
        .threads = backend->threads};
    /* rows of pairs have an even number; a tail of minus infinity is multiplied by the scale */
    out->pairs = backend->pairs && q->dtype == TRM_BFLOAT16 && out->s.width % 2 == 0 &&
                 step->attrs->attention.scale > 0;
    out->lane = 1;
    if (out->pairs) {
        out->isa = trmi_dense_pairs();
        out->pack = trmi_gemm_pairs();
        out->lane = 2;
    }
    out->keys = KEY_PANELS * out->isa->nr;
    out->stride = out->keys + APART;
    out->panels = trmi_pieces(out->s.width, out->isa->nr);
    out->group = out->s.heads / trmi_max_i64(1, out->s.kv_heads);
    return trmi_dtype_is_fast(q->dtype) && out->s.width > 0 && (k == NULL || k->dtype == q->dtype);
}

/* Contract in attention_blocks.h. The scale belongs to the queries, where it costs one product a
 * number; with pairs it would be rounded, so scores are scaled instead. */
void trmi_attention_take(const trmi_attention_blocks *a, float *to, const void *from, int64_t row,
                         int64_t count, float factor) {
    int64_t step = row * (int64_t)trm_dtype_bytes(a->dtype);
    if (!a->pairs) {
        a->kernels->scale_rows(&(trmi_scaled_rows){.x = from,
                                                   .y = to,
                                                   .x_step = step,
                                                   .y_step = a->s.width * 4,
                                                   .rows = count,
                                                   .count = a->s.width,
                                                   .half_x = a->dtype == TRM_BFLOAT16,
                                                   .factors = &factor});
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + i * a->s.width / 2, (const char *)from + i * step, (size_t)a->s.width * 2);
    }
}

void trmi_attention_give(const trmi_attention_blocks *a, void *to, int64_t row, const float *from,
                         int64_t count, const float *factors, int64_t factors_step) {
    a->kernels->scale_rows(&(trmi_scaled_rows){.x = from,
                                               .y = to,
                                               .x_step = a->s.width * 4,
                                               .y_step = row * (int64_t)trm_dtype_bytes(a->dtype),
                                               .rows = count,
                                               .count = a->s.width,
                                               .half_y = a->dtype == TRM_BFLOAT16,
                                               .factors = factors,
                                               .factors_step = factors_step});
}

int64_t trmi_attention_packed_floats(const trmi_attention_blocks *a) {
    return a->panels * a->isa->nr * a->keys;
}

/* Packs keys for one of the two products. As columns: panel p holds keys [p nr, ...), D rows of nr;
 * as rows: panel p holds columns [p nr, ...), a row of nr for each key. */
void trmi_attention_pack(const trmi_attention_blocks *a, float *to, const void *from, int64_t row,
                         int64_t count, bool as_columns) {
    int64_t nr = a->isa->nr, bytes = (int64_t)trm_dtype_bytes(a->dtype);
    int64_t width = as_columns ? count : a->s.width;
    for (int64_t at = 0; at < width; at += nr) {
        int columns = (int)trmi_min_i64(nr, width - at);
        if (as_columns) {
            a->pack->pack_transposed(to + at * a->s.width / a->lane,
                                     (const char *)from + at * row * bytes, a->dtype, row,
                                     a->s.width, columns);
        } else {
            a->pack->pack(to + at * a->keys / a->lane, (const char *)from + at * bytes, a->dtype,
                          row, count, columns);
        }
    }
}

void trmi_attention_pack_rows(const trmi_attention_blocks *a, float *to, const float *from,
                              int64_t count) {
    int64_t nr = a->isa->nr;
    for (int64_t at = 0; at < a->s.width; at += nr) {
        a->pack->pack(to + at * a->keys / a->lane, from + at / a->lane,
                      a->pairs ? TRM_BFLOAT16 : TRM_FLOAT32, a->s.width, count,
                      (int)trmi_min_i64(nr, a->s.width - at));
    }
}

/* Returns the first row that reads a key. */
static int64_t find_reader(const trmi_attention_part *p, int64_t key) {
    return trmi_max_i64(0, key + 1 - p->first_reads);
}

/* Contract in attention_blocks.h. A panel of keys is one tile wide; all rows that read one of its
 * keys go through it while it is in L1. */
void trmi_attention_scores(const trmi_attention_blocks *a, const trmi_attention_part *p,
                           const float *rows, const float *packed, float *scores) {
    int64_t nr = a->isa->nr, row = a->s.width / a->lane;
    for (int64_t at = 0; at < p->keys; at += nr) {
        int64_t first = find_reader(p, at);
        const trmi_dense_tile t = {.columns = (int)trmi_min_i64(nr, p->keys - at),
                                   .k = row,
                                   .a = rows + first * row,
                                   .a_stride = row,
                                   .b = packed + at * row,
                                   .c = scores + first * a->stride + at,
                                   .c_stride = a->stride};
        a->isa->all_rows(&t, p->rows - first);
    }
}

/* Contract in attention_blocks.h. The sum over keys is the k of these products, for each tile of
 * rows as many as its last row reads; results are added to, because each block of keys brings a
 * part of the sum. */
void trmi_attention_apply(const trmi_attention_blocks *a, const trmi_attention_part *p,
                          const float *weights, const float *packed, float *to) {
    int64_t nr = a->isa->nr, mr = a->isa->mr;
    for (int64_t at = 0; at < a->s.width; at += nr) {
        trmi_dense_tile t = {.columns = (int)trmi_min_i64(nr, a->s.width - at),
                             .a_stride = a->stride,
                             .b = packed + at * a->keys / a->lane,
                             .c_stride = a->s.width,
                             .add = true};
        for (int64_t row = 0; row < p->rows; row += mr) {
            int64_t rows = trmi_min_i64(mr, p->rows - row);
            t.k = trmi_pieces(trmi_attention_row_reads(p, row + rows - 1), a->lane);
            t.a = weights + row * a->stride;
            t.c = to + row * a->s.width + at;
            a->isa->all_rows(&t, rows);
        }
    }
}

/* Puts numbers of neighbouring rows of weights side by side, as pairs of k. */
static void turn_weights(const trmi_attention_blocks *a, const trmi_attention_part *p,
                         const float *weights, float *turned) {
    static const uint16_t zeros[TRMI_TILE_NR_MAX];
    const int width = TRMI_TILE_COLS;
    for (int64_t r = 0; r < p->rows; r += 2, turned += a->stride) {
        const uint16_t *even = (const uint16_t *)(const void *)(weights + r * a->stride),
                       *odd = even + 2 * a->stride;
        int64_t room = trmi_attention_row_room(a, p, r + 1);
        for (int64_t at = 0; at < room; at += width) {
            a->pack->deal(turned + at, width, width, width, even + at,
                          r + 1 < p->rows ? odd + at : zeros, trmi_min_i64(width, room - at));
        }
    }
}

/* Contract in attention_blocks.h. Products for dK and dV: their rows are keys, so the tile reads
 * the weights by columns, from the first query on that reads one of its keys. With pairs, two
 * queries lie in each float, for which the weights are turned. */
void trmi_attention_apply_transposed(const trmi_attention_blocks *a, const trmi_attention_part *p,
                                     const float *weights, const float *packed, float *to,
                                     float *turned) {
    int64_t nr = a->isa->nr, mr = a->isa->mr, queries = trmi_pieces(p->rows, a->lane);
    if (a->pairs) {
        turn_weights(a, p, weights, turned);
        weights = turned;
    }
    for (int64_t row = 0; row < p->keys; row += mr) {
        int64_t first = find_reader(p, row) / a->lane;
        trmi_dense_tile t = {.rows = (int)trmi_min_i64(mr, p->keys - row),
                             .k = queries - first,
                             .a = weights + first * a->stride + row,
                             .a_stride = a->stride,
                             .c_stride = a->s.width,
                             .add = true};
        for (int64_t at = 0; at < a->s.width; at += nr) {
            t.columns = (int)trmi_min_i64(nr, a->s.width - at);
            t.b = packed + at * a->keys / a->lane + first * nr;
            t.c = to + row * a->s.width + at;
            a->isa->columns(&t);
        }
    }
}

const float *trmi_attention_hidden(const trmi_attention_blocks *a, const int32_t *mask, int64_t b,
                                   int64_t begin, int64_t count, float *room) {
    for (int64_t i = 0; mask != NULL && i < count; i++) {
        room[i] = mask[b * a->s.keys + begin + i] != 0 ? 0 : -INFINITY;
    }
    return mask != NULL ? room : NULL;
}
