/* SPDX-License-Identifier: Apache-2.0 */
/* Types, shapes and tensors (trireme/base.h): sizes with overflow checks, comparisons, names and
 * texts for messages. Pure functions, which any thread may call; nothing is allocated.
 *
 * A shape has at most TRM_MAX_RANK dimensions, and dimensions beyond its rank mean nothing. A
 * count of elements or bytes that does not fit in 63 bits is -1. */
#include "trireme/base.h"

#include "base/arguments.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>

size_t trm_dtype_bytes(trm_dtype dtype) {
    switch (dtype) {
#define TRMI_DTYPE_BYTES(name, value, bytes, text)                                                 \
    case name: return bytes;
        TRM_DTYPE_LIST(TRMI_DTYPE_BYTES)
#undef TRMI_DTYPE_BYTES
    case TRM_DTYPE_NONE: break;
    }
    return 0;
}

const char *trm_dtype_name(trm_dtype dtype) {
    switch (dtype) {
#define TRMI_DTYPE_NAME(name, value, bytes, text)                                                  \
    case name: return text;
        TRM_DTYPE_LIST(TRMI_DTYPE_NAME)
#undef TRMI_DTYPE_NAME
    case TRM_DTYPE_NONE: break;
    }
    return "none";
}

trm_shape trm_shape_make(int32_t rank, const int64_t *dim) {
    if (rank > 0) {
        TRMI_NEED_OR((trm_shape){0}, NULL, dim);
    }
    trm_shape shape = {.rank = rank};
    for (int32_t i = 0; i < rank && i < TRM_MAX_RANK; i++) {
        shape.dim[i] = dim[i];
    }
    return shape;
}

/* Contract in trireme/base.h. Returns -1 if the product overflows or the shape is invalid. */
int64_t trm_shape_count(const trm_shape *shape) {
    TRMI_NEED_OR(-1, NULL, shape);
    int64_t count = 1;
    if (shape->rank < 0 || shape->rank > TRM_MAX_RANK) {
        return -1;
    }
    for (int32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0 || !trmi_mul_i64(count, shape->dim[i], &count)) {
            return -1;
        }
    }
    return count;
}

/* Contract in trireme/base.h. Dimensions beyond the rank are not compared. */
bool trm_shape_equal(const trm_shape *a, const trm_shape *b) {
    TRMI_NEED_OR(false, NULL, a, b);
    if (a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank && i < TRM_MAX_RANK; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}

/* Contract in trireme/base.h. A text that is too short ends in the middle, with its '\0'. */
const char *trm_shape_format(const trm_shape *shape, char *text, size_t size) {
    TRMI_NEED_OR(NULL, NULL, shape, text);
    size_t used = 0;
    int wrote = snprintf(text, size, "[");
    for (int32_t i = 0; i < shape->rank && i < TRM_MAX_RANK; i++) {
        used += wrote > 0 ? (size_t)wrote : 0;
        if (used >= size) {
            return text;
        }
        wrote = snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
    }
    used += wrote > 0 ? (size_t)wrote : 0;
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
    return text;
}

int64_t trm_tensor_bytes(const trm_tensor *tensor) {
    TRMI_NEED_OR(-1, NULL, tensor);
    int64_t bytes = trm_shape_count(&tensor->shape);
    if (bytes < 0 || !trmi_mul_i64(bytes, (int64_t)trm_dtype_bytes(tensor->dtype), &bytes)) {
        return -1;
    }
    return bytes;
}
