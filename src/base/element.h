/* SPDX-License-Identifier: Apache-2.0 */
/* base/element.h: classes of element types, and one element of a dense array as a number. Elements
 * of any type are for code that is not performance critical; trmi_element_id is for loops too. */
#ifndef TRMI_BASE_ELEMENT_H
#define TRMI_BASE_ELEMENT_H

#include "trireme/base.h"

#include "base/format/half.h"

/* Returns whether a type has a fraction: such values have gradients, and their mean is one of
 * them. */
static inline bool trmi_dtype_is_float(trm_dtype dtype) {
    return dtype == TRM_FLOAT32 || dtype == TRM_FLOAT64 || dtype == TRM_BFLOAT16 ||
           dtype == TRM_FLOAT16;
}
/* Returns whether fast kernels compute with a type: float32, and bfloat16, which they widen. */
static inline bool trmi_dtype_is_fast(trm_dtype dtype) {
    return dtype == TRM_FLOAT32 || dtype == TRM_BFLOAT16;
}

/* Returns the id at `index`: int64 where `wide`, else int32. */
static inline int64_t trmi_element_id(const void *ids, bool wide, int64_t index) {
    return wide ? ((const int64_t *)ids)[index] : ((const int32_t *)ids)[index];
}

/* Returns element `index` of `data`. Integers beyond 2^53 are rounded. */
static inline double trmi_element(const void *data, trm_dtype dtype, int64_t index) {
    switch (dtype) {
    case TRM_FLOAT32: return (double)((const float *)data)[index];
    case TRM_FLOAT64: return ((const double *)data)[index];
    case TRM_BFLOAT16: return (double)trmi_bf16_to_float(((const uint16_t *)data)[index]);
    case TRM_FLOAT16: return (double)trmi_f16_to_float(((const uint16_t *)data)[index]);
    case TRM_INT64: return (double)((const int64_t *)data)[index];
    case TRM_INT32: return (double)((const int32_t *)data)[index];
    case TRM_INT8: return (double)((const int8_t *)data)[index];
    case TRM_UINT8:
    case TRM_DTYPE_NONE: break;
    }
    return (double)((const uint8_t *)data)[index];
}

/* Writes element `index` of `data`. Rounds to the nearest number of a floating type; truncates
 * towards zero for an integer type, where values out of range wrap around. */
static inline void trmi_element_set(void *data, trm_dtype dtype, int64_t index, double value) {
    switch (dtype) {
    case TRM_FLOAT32: ((float *)data)[index] = (float)value; break;
    case TRM_FLOAT64: ((double *)data)[index] = value; break;
    case TRM_BFLOAT16: ((uint16_t *)data)[index] = trmi_float_to_bf16((float)value); break;
    case TRM_FLOAT16: ((uint16_t *)data)[index] = trmi_float_to_f16((float)value); break;
    case TRM_INT64: ((int64_t *)data)[index] = (int64_t)value; break;
    case TRM_INT32: ((int32_t *)data)[index] = (int32_t)(int64_t)value; break;
    case TRM_INT8: ((int8_t *)data)[index] = (int8_t)(int64_t)value; break;
    case TRM_UINT8:
    case TRM_DTYPE_NONE: ((uint8_t *)data)[index] = (uint8_t)(int64_t)value; break;
    }
}

#endif
