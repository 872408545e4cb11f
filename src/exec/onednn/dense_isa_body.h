/* exec/onednn/dense_isa_body.h: the tiles of a trmi_dense_isa, written once with the compiler's vectors.
 * Included by dense_isa_*.c, which define VL, VN, MR and NAME as for gemm_isa_body.h. */
#include "exec/onednn/dense_isa.h"

#include "exec/onednn/tile_rows.h"
#include "exec/onednn/vec_body.h"

enum { NR = VL * VN, GROUP = 3, GROUPS = (MR + GROUP - 1) / GROUP };

typedef int32_t vec_mask __attribute__((vector_size(VL * 4)));

INLINE vec keep(vec value, vec_mask mask) { return (vec)((vec_mask)value & mask); }

/* What happens to the sums on their way out, whole vectors. */
INLINE void finish(const trmi_dense_tile *t, const int rows, const int vectors, vec sum[MR][VN]) {
    if (t->add) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < vectors; j++) {
                sum[i][j] += *(const vec_memory *)(t->c + i * t->c_stride + j * VL);
            }
        }
    }
    if (t->bias != NULL) {
        for (int j = 0; j < vectors; j++) {
            vec bias = *(const vec_memory *)(t->bias + j * VL);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                sum[i][j] += bias;
            }
        }
    }
    if (t->relu) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < vectors; j++) {
                sum[i][j] = keep(sum[i][j], ~(sum[i][j] < (vec){0}));
            }
        }
    }
    if (t->mask != NULL) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < vectors; j++) {
                vec y = *(const vec_memory *)(t->mask + i * t->mask_stride + j * VL);
                sum[i][j] = keep(sum[i][j], ~(y <= (vec){0}));
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++) {
            *(vec_memory *)(t->c + i * t->c_stride + j * VL) = sum[i][j];
        }
    }
}

/* The right edge: element by element. */
INLINE void finish_edge(const trmi_dense_tile *t, const int rows, vec sum[MR][VN]) {
    float values[MR][NR];
    memcpy(values, sum, sizeof values);
    for (int i = 0; i < rows; i++) {
        float *to = t->c + i * t->c_stride;
        for (int j = 0; j < t->columns; j++) {
            float v = values[i][j] + (t->add ? to[j] : 0);
            v += t->bias != NULL ? t->bias[j] : 0;
            v = t->relu && v < 0 ? 0 : v;
            to[j] = t->mask != NULL && t->mask[i * t->mask_stride + j] <= 0 ? 0 : v;
        }
    }
}

/* Rows of A are found from one pointer for each three of them: base, base + stride, base + 2 strides are what
 * one instruction can address. */
INLINE void tile(const trmi_dense_tile *t, const int rows, const int vectors, const bool packed) {
    vec sum[MR][VN];
    const float *a[GROUPS], *b = t->b;
    const int64_t stride = packed ? 1 : t->a_stride, k = t->k;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < VN; j++) {
            sum[i][j] = (vec){0};
        }
    }
    for (int g = 0; g < GROUPS; g++) {
        a[g] = t->a + g * GROUP * stride;
    }
    for (int64_t p = 0; p < k; p++, b += NR) {
        vec right[VN];
        const int64_t at = packed ? p * TRMI_TILE_COLS : p;
        for (int j = 0; j < vectors; j++) {
            right[j] = *(const vec_memory *)(b + j * VL);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const float left = a[i / GROUP][at + i % GROUP * stride];
            for (int j = 0; j < vectors; j++) {
                sum[i][j] += left * right[j];
            }
        }
    }
    if (t->columns == vectors * VL) {
        finish(t, rows, vectors, sum);
    } else {
        finish_edge(t, rows, sum);
    }
}

#define TILE(N)                                                                                    \
    static __attribute__((noinline)) void rows_##N(const trmi_dense_tile *t) {                     \
        if (t->columns <= NR / 2) {                                                                \
            tile(t, N, VN / 2, false);                                                             \
        } else {                                                                                   \
            tile(t, N, VN, false);                                                                 \
        }                                                                                          \
    }                                                                                              \
    static __attribute__((noinline)) void columns_##N(const trmi_dense_tile *t) {                  \
        if (t->columns <= NR / 2) {                                                                \
            tile(t, N, VN / 2, true);                                                              \
        } else {                                                                                   \
            tile(t, N, VN, true);                                                                  \
        }                                                                                          \
    }
TILE_EACH(TILE)
#undef TILE

typedef void tile_function(const trmi_dense_tile *tile);
static tile_function *const rows_tiles[MR] = {TILES(rows_)}, *const columns_tiles[MR] = {TILES(columns_)};

static void rows(const trmi_dense_tile *t) { rows_tiles[t->rows - 1](t); }
static void columns(const trmi_dense_tile *t) { columns_tiles[t->rows - 1](t); }

/* Whole tiles without a call each. */
INLINE int64_t whole_tiles(trmi_dense_tile *t, int64_t count, const int vectors) {
    int64_t done = 0;
    for (; done + MR <= count; done += MR) {
        tile(t, MR, vectors, false);
        t->a += MR * t->a_stride;
        t->c += MR * t->c_stride;
    }
    return done;
}

/* A mask would have to go along. */
static void all_rows(const trmi_dense_tile *given, int64_t count) {
    trmi_dense_tile t = *given;
    int64_t done = t.columns <= NR / 2 ? whole_tiles(&t, count, VN / 2) : whole_tiles(&t, count, VN);
    t.rows = (int)(count - done);
    if (t.rows > 0) {
        rows(&t);
    }
}

const trmi_dense_isa PASTE(trmi_dense_, NAME) = {
    .mr = MR, .nr = NR, .rows = rows, .columns = columns, .all_rows = all_rows};
