/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/convert.h"

#include "base/checked.h"
#include "base/format/half.h"

#include <string.h>

/* Returns the position, in elements, of element (a, b, y, x) of a tensor of rank 4 and shape `dim`.
 * Activations are (sample, channel, y, x), weights (output, input channel, y, x). BLOCKED16 has
 * blocks of 16 channels, for weights 16 x 16 blocks with the output channel fastest. */
static int64_t element_position(trmi_layout layout, bool weights, const int64_t *dim, int64_t a,
                                int64_t b, int64_t y, int64_t x) {
    int64_t A = dim[0], B = dim[1], H = dim[2], W = dim[3];
    switch (layout) {
    case TRMI_CHANNELS_LAST:
        return weights ? ((y * W + x) * B + b) * A + a : ((a * H + y) * W + x) * B + b;
    case TRMI_BLOCKED16: {
        int64_t blocks = (B + 15) / 16;
        if (!weights) {
            return (((a * blocks + b / 16) * H + y) * W + x) * 16 + b % 16;
        }
        return ((((a / 16 * blocks + b / 16) * H + y) * W + x) * 16 + b % 16) * 16 + a % 16;
    }
    case TRMI_PLAIN:
    case TRMI_LAYOUTS: break;
    }
    return ((a * B + b) * H + y) * W + x;
}

void trmi_convert_layout(const void *from, trmi_layout from_layout, void *to, trmi_layout to_layout,
                         trm_dtype dtype, const trm_shape *shape, bool weights) {
    size_t bytes = trm_dtype_bytes(dtype);
    if (shape->rank != 4 || from_layout == to_layout) {
        memcpy(to, from, (size_t)trmi_layout_bytes(dtype, shape, to_layout, weights));
        return;
    }
    /* Channels that pad the last block must be zero: kernels read them. */
    if (to_layout == TRMI_BLOCKED16) {
        memset(to, 0, (size_t)trmi_layout_bytes(dtype, shape, to_layout, weights));
    }
    const int64_t *dim = shape->dim;
    for (int64_t a = 0; a < dim[0]; a++) {
        for (int64_t b = 0; b < dim[1]; b++) {
            for (int64_t y = 0; y < dim[2]; y++) {
                for (int64_t x = 0; x < dim[3]; x++) {
                    memcpy(
                        (char *)to +
                            (size_t)element_position(to_layout, weights, dim, a, b, y, x) * bytes,
                        (const char *)from +
                            (size_t)element_position(from_layout, weights, dim, a, b, y, x) * bytes,
                        bytes);
                }
            }
        }
    }
}

void trmi_convert_to_float(const void *from, trm_dtype dtype, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case TRM_FLOAT32: to[i] = ((const float *)from)[i]; break;
        case TRM_FLOAT64: to[i] = (float)((const double *)from)[i]; break;
        case TRM_BFLOAT16: to[i] = trmi_bf16_to_float(((const uint16_t *)from)[i]); break;
        case TRM_FLOAT16: to[i] = trmi_f16_to_float(((const uint16_t *)from)[i]); break;
        case TRM_INT32: to[i] = (float)((const int32_t *)from)[i]; break;
        case TRM_INT64: to[i] = (float)((const int64_t *)from)[i]; break;
        case TRM_INT8: to[i] = (float)((const int8_t *)from)[i]; break;
        case TRM_UINT8:
        case TRM_DTYPE_NONE: to[i] = (float)((const uint8_t *)from)[i]; break;
        }
    }
}
