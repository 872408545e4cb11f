/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between layouts (contracts in convert.h).
 *
 * In every layout the position of element (a, b, y, x) is a sum of terms of a, of b, and of the
 * pixel y * W + x; those of a and b have one step within a block of 16 and one from block to block.
 * A tensor is copied by tiles of a block of a times a block of b times all pixels: both sides of a
 * tile of filters (3 x 3: 9 KB) stay in the first-level cache, whatever the order within them. */
#include "exec/convert.h"

#include "base/checked.h"
#include "base/format/half.h"

#include <string.h>

/* Channels of a block in blocked layouts. */
enum { BLOCK = 16 };

/* The position, in elements, of element (a, b, p), p a pixel:
 * a / 16 * a_block + a % 16 * a_one + b / 16 * b_block + b % 16 * b_one + p * pixel. */
typedef struct element_steps {
    int64_t a_block, a_one; /* from one block of 16 to the next; from one index to the next */
    int64_t b_block, b_one;
    int64_t pixel;
} element_steps;

/* Returns the steps of a tensor of rank 4 and shape `dim`. Activations are (sample, channel, y, x),
 * filters (output, input channel, y, x). BLOCKED16 has blocks of 16 channels; filters have blocks
 * of 16 x 16, with the output channel fastest. */
static element_steps steps_of(trmi_layout layout, bool weights, const int64_t *dim) {
    const int64_t A = dim[0], B = dim[1], pixels = dim[2] * dim[3];
    const int64_t padded = (B + BLOCK - 1) / BLOCK * BLOCK;
    switch (layout) {
    case TRMI_CHANNELS_LAST:
        return weights ? (element_steps){BLOCK, 1, BLOCK * A, A, B * A}
                       : (element_steps){BLOCK * pixels * B, pixels * B, BLOCK, 1, B};
    case TRMI_BLOCKED16:
        return weights ? (element_steps){padded * pixels * BLOCK, 1, BLOCK * pixels * BLOCK, BLOCK,
                                         BLOCK * BLOCK}
                       : (element_steps){BLOCK * padded * pixels, padded * pixels, BLOCK * pixels,
                                         1, BLOCK};
    case TRMI_PLAIN:
    case TRMI_LAYOUTS: break;
    }
    return (element_steps){BLOCK * B * pixels, B * pixels, BLOCK * pixels, pixels, 1};
}

/* Copies a tile of a_count x b_count x pixels elements of `bytes` bytes, which callers give as a
 * constant. Filters have b outside of a: in the layouts that are not plain up to 16 elements of one
 * pixel and one b are a cache line, which is touched once. */
static inline __attribute__((always_inline)) void copy_tile(const char *from,
                                                            const element_steps *f, char *to,
                                                            const element_steps *t, int64_t a_count,
                                                            int64_t b_count, int64_t pixels,
                                                            size_t bytes) {
    for (int64_t p = 0; p < pixels; p++) {
        for (int64_t b = 0; b < b_count; b++) {
            const char *source = from + (size_t)(p * f->pixel + b * f->b_one) * bytes;
            char *target = to + (size_t)(p * t->pixel + b * t->b_one) * bytes;
            for (int64_t a = 0; a < a_count; a++) {
                memcpy(target + (size_t)(a * t->a_one) * bytes,
                       source + (size_t)(a * f->a_one) * bytes, bytes);
            }
        }
    }
}

/* Copies all tiles of a tensor, see copy_tile. */
static inline __attribute__((always_inline)) void copy_tiles(const char *from,
                                                             const element_steps *f, char *to,
                                                             const element_steps *t,
                                                             const int64_t *dim, size_t bytes) {
    for (int64_t b = 0; b < dim[1]; b += BLOCK) {
        for (int64_t a = 0; a < dim[0]; a += BLOCK) {
            const int64_t source = a / BLOCK * f->a_block + b / BLOCK * f->b_block;
            const int64_t target = a / BLOCK * t->a_block + b / BLOCK * t->b_block;
            copy_tile(from + (size_t)source * bytes, f, to + (size_t)target * bytes, t,
                      trmi_min_i64(BLOCK, dim[0] - a), trmi_min_i64(BLOCK, dim[1] - b),
                      dim[2] * dim[3], bytes);
        }
    }
}

void trmi_convert_layout(const void *from, trmi_layout from_layout, void *to, trmi_layout to_layout,
                         trm_dtype dtype, const trm_shape *shape, bool weights) {
    if (shape->rank != 4 || from_layout == to_layout) {
        memcpy(to, from, (size_t)trmi_layout_bytes(dtype, shape, to_layout, weights));
        return;
    }
    /* Channels that pad the last block must be zero: kernels read them. */
    if (to_layout == TRMI_BLOCKED16) {
        memset(to, 0, (size_t)trmi_layout_bytes(dtype, shape, to_layout, weights));
    }
    const element_steps f = steps_of(from_layout, weights, shape->dim);
    const element_steps t = steps_of(to_layout, weights, shape->dim);
    switch (trm_dtype_bytes(dtype)) {
    case 1: copy_tiles(from, &f, to, &t, shape->dim, 1); break;
    case 2: copy_tiles(from, &f, to, &t, shape->dim, 2); break;
    case 4: copy_tiles(from, &f, to, &t, shape->dim, 4); break;
    default: copy_tiles(from, &f, to, &t, shape->dim, 8); break;
    }
}

/* One loop for each type: with the choice of the type inside, no compiler would vectorise it. */
#define CONVERT_EACH(type, convert)                                                                \
    for (int64_t i = 0; i < count; i++) {                                                          \
        to[i] = convert(((const type *)from)[i]);                                                  \
    }                                                                                              \
    break

void trmi_convert_to_float(const void *from, trm_dtype dtype, float *to, int64_t count) {
    switch (dtype) {
    case TRM_FLOAT32: memcpy(to, from, (size_t)count * sizeof *to); break;
    case TRM_FLOAT64: CONVERT_EACH(double, (float));
    case TRM_BFLOAT16: CONVERT_EACH(uint16_t, trmi_bf16_to_float);
    case TRM_FLOAT16: CONVERT_EACH(uint16_t, trmi_f16_to_float);
    case TRM_INT32: CONVERT_EACH(int32_t, (float));
    case TRM_INT64: CONVERT_EACH(int64_t, (float));
    case TRM_INT8: CONVERT_EACH(int8_t, (float));
    case TRM_UINT8:
    case TRM_DTYPE_NONE: CONVERT_EACH(uint8_t, (float));
    }
}
