/* exec/onednn/fuse_isa_body.h: the functions of a trmi_fuse_isa, written once. Included by
 * fuse_isa_*.c, which define VL, NAME, STREAM and FENCE. */
#include "exec/onednn/fuse_isa.h"

#include "exec/onednn/vec_body.h"

enum { WIDE = 4 /* vectors of columns that go down a block together */ };

/* ---- before ---------------------------------------------------------------------------------- */

INLINE void affine_as(float *to, int64_t to_stride, const void *from, const trm_dtype type,
                      int64_t from_stride, int64_t rows, int64_t count, const trmi_affine *affine) {
    const char *row = from;
    int64_t step = from_stride * (type == TRM_BFLOAT16 ? 2 : 4);
    const float *scale = affine->scale, *shift = affine->shift;
    bool relu = affine->relu;
    for (int64_t r = 0; r < rows; r++, row += step, to += to_stride) {
        int64_t i = 0;
        for (; i + VL <= count; i += VL) {
            vec v = load_any(row, type, i) * *(const vec_memory *)(scale + i) +
                    *(const vec_memory *)(shift + i);
            *(vec_memory *)(to + i) = relu ? positive(v) : v;
        }
        for (; i < count; i++) {
            float v = load_one(row, type, i) * scale[i] + shift[i];
            to[i] = relu && !(v > 0) ? 0 : v;
        }
    }
}

static void affine_rows(float *to, int64_t to_stride, const void *from, trm_dtype type,
                        int64_t from_stride, int64_t rows, int64_t count,
                        const trmi_affine *affine) {
    if (type == TRM_BFLOAT16) {
        affine_as(to, to_stride, from, TRM_BFLOAT16, from_stride, rows, count, affine);
    } else {
        affine_as(to, to_stride, from, TRM_FLOAT32, from_stride, rows, count, affine);
    }
}

/* ---- after ------------------------------------------------------------------------------------- */

/* Stores one vector in the output's type; returns what a reader will see. */
INLINE vec leave(const trmi_fuse_block *b, const trm_dtype type, int64_t at, vec v) {
    if (type == TRM_BFLOAT16) {
        store_half((uint16_t *)b->out + at, v);
        vec_bits bits = (vec_bits)v;
        vec_bits rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
        return (vec)rounded;
    }
    if (b->stream) {
        STREAM((float *)b->out + at, v);
    } else {
        *(vec_memory *)((float *)b->out + at) = v;
    }
    return v;
}

INLINE float leave_one(const trmi_fuse_block *b, int64_t at, float v) {
    if (b->type == TRM_BFLOAT16) {
        uint16_t half = trmi_float_to_bf16(v);
        ((uint16_t *)b->out)[at] = half;
        return trmi_bf16_to_float(half);
    }
    ((float *)b->out)[at] = v;
    return v;
}

INLINE void statistics_columns(const trmi_fuse_block *b, const trm_dtype type, const int vectors,
                               int64_t c, float *first, float *sum, float *square) {
    vec f[WIDE], s[WIDE], q[WIDE];
    for (int j = 0; j < vectors; j++) {
        f[j] = s[j] = q[j] = (vec){0};
    }
    for (int64_t r = 0; r < b->rows; r++) {
        const float *from = b->sums + r * b->ld + c;
        int64_t at = b->offsets[r] + b->column + c;
        for (int j = 0; j < vectors; j++) {
            vec v = leave(b, type, at + j * VL, (vec) * (const vec_memory *)(from + j * VL));
            if (r == 0) {
                f[j] = v;
            }
            v -= f[j];
            s[j] += v;
            q[j] += v * v;
        }
    }
    for (int j = 0; j < vectors; j++) {
        *(vec_memory *)(first + c + j * VL) = f[j];
        *(vec_memory *)(sum + c + j * VL) = s[j];
        *(vec_memory *)(square + c + j * VL) = q[j];
    }
}

INLINE void statistics_as(const trmi_fuse_block *b, const trm_dtype type, float *first, float *sum,
                          float *square) {
    int64_t c = 0;
    for (; c + WIDE * VL <= b->count; c += WIDE * VL) {
        statistics_columns(b, type, WIDE, c, first, sum, square);
    }
    for (; c + VL <= b->count; c += VL) {
        statistics_columns(b, type, 1, c, first, sum, square);
    }
    for (; c < b->count; c++) {
        first[c] = sum[c] = square[c] = 0;
        for (int64_t r = 0; r < b->rows; r++) {
            float v = leave_one(b, b->offsets[r] + b->column + c, b->sums[r * b->ld + c]);
            first[c] = r == 0 ? v : first[c];
            v -= first[c];
            sum[c] += v;
            square[c] += v * v;
        }
    }
}

static void statistics(const trmi_fuse_block *b, float *first, float *sum, float *square) {
    if (b->type == TRM_BFLOAT16) {
        statistics_as(b, TRM_BFLOAT16, first, sum, square);
    } else {
        statistics_as(b, TRM_FLOAT32, first, sum, square);
    }
    FENCE();
}

INLINE void gradient_columns(const trmi_fuse_block *b, const trmi_fuse_gradient *g,
                             const trm_dtype type, const int vectors, int64_t c, float *sum,
                             float *sum_x) {
    int64_t channel = b->column + c;
    vec s[WIDE], sx[WIDE], mean[WIDE], scale[WIDE], shift[WIDE];
    bool by_x = g->relu && g->y == NULL;
    for (int j = 0; j < vectors; j++) {
        s[j] = sx[j] = scale[j] = shift[j] = (vec){0};
        mean[j] = (vec) * (const vec_memory *)(g->mean + channel + j * VL);
        if (by_x) {
            scale[j] = (vec) * (const vec_memory *)(g->scale + channel + j * VL);
            shift[j] = (vec) * (const vec_memory *)(g->shift + channel + j * VL);
        }
    }
    for (int64_t r = 0; r < b->rows; r++) {
        const float *from = b->sums + r * b->ld + c;
        int64_t row = b->offsets[r] + channel;
        for (int j = 0; j < vectors; j++) {
            int64_t at = row + j * VL;
            vec v = (vec) * (const vec_memory *)(from + j * VL), x = load_any(g->x, type, at);
            if (g->dy2 != NULL) {
                v += load_any(g->dy2, type, at);
            }
            if (g->relu) {
                vec decides = x * scale[j] + shift[j];
                if (g->y != NULL) {
                    decides = load_any(g->y, type, at);
                }
                v = (vec)((vec_int)v & (vec_int)(decides > (vec){0}));
            }
            v = leave(b, type, at, v);
            s[j] += v;
            sx[j] += v * (x - mean[j]);
        }
    }
    for (int j = 0; j < vectors; j++) {
        *(vec_memory *)(sum + c + j * VL) = s[j];
        *(vec_memory *)(sum_x + c + j * VL) = sx[j];
    }
}

INLINE void gradient_one(const trmi_fuse_block *b, const trmi_fuse_gradient *g, int64_t c,
                         float *sum, float *sum_x) {
    int64_t channel = b->column + c;
    sum[c] = sum_x[c] = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t at = b->offsets[r] + channel;
        float v = b->sums[r * b->ld + c], x = load_one(g->x, b->type, at);
        v += g->dy2 != NULL ? load_one(g->dy2, b->type, at) : 0;
        if (g->relu) {
            float decides = g->y != NULL ? load_one(g->y, b->type, at)
                                         : x * g->scale[channel] + g->shift[channel];
            v = decides > 0 ? v : 0;
        }
        v = leave_one(b, at, v);
        sum[c] += v;
        sum_x[c] += v * (x - g->mean[channel]);
    }
}

INLINE void gradient_as(const trmi_fuse_block *b, const trmi_fuse_gradient *g, const trm_dtype type,
                        float *sum, float *sum_x) {
    int64_t c = 0;
    for (; c + WIDE * VL <= b->count; c += WIDE * VL) {
        gradient_columns(b, g, type, WIDE, c, sum, sum_x);
    }
    for (; c + VL <= b->count; c += VL) {
        gradient_columns(b, g, type, 1, c, sum, sum_x);
    }
    for (; c < b->count; c++) {
        gradient_one(b, g, c, sum, sum_x);
    }
}

static void gradient(const trmi_fuse_block *b, const trmi_fuse_gradient *g, float *sum,
                     float *sum_x) {
    if (b->type == TRM_BFLOAT16) {
        gradient_as(b, g, TRM_BFLOAT16, sum, sum_x);
    } else {
        gradient_as(b, g, TRM_FLOAT32, sum, sum_x);
    }
    FENCE();
}

const trmi_fuse_isa PASTE(trmi_fuse_, NAME) = {.name = STRING(NAME),
                                               .affine_rows = affine_rows,
                                               .statistics = statistics,
                                               .gradient = gradient};
