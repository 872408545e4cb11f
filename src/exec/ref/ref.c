/* SPDX-License-Identifier: Apache-2.0 */
/* Access to elements as double, and index arithmetic, for the reference kernels (ref.h). */
#include "exec/ref/ref.h"

#include "base/element.h"

double trmi_ref_get(const trm_tensor *t, int64_t i) { return trmi_element(t->data, t->dtype, i); }

/* Contract in ref.h. Not by way of double, which has 53 bits. */
int64_t trmi_ref_get_int(const trm_tensor *t, int64_t i) {
    switch (t->dtype) {
    case TRM_INT64: return ((const int64_t *)t->data)[i];
    case TRM_INT32: return ((const int32_t *)t->data)[i];
    case TRM_INT8: return ((const int8_t *)t->data)[i];
    case TRM_UINT8: return ((const uint8_t *)t->data)[i];
    default: return (int64_t)trmi_ref_get(t, i);
    }
}

void trmi_ref_set(const trm_tensor *t, int64_t i, double value) {
    if (t->data != NULL) {
        trmi_element_set(t->data, t->dtype, i, value);
    }
}

void trmi_ref_unravel(const trm_shape *shape, int64_t index, int64_t *at) {
    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        at[i] = index % shape->dim[i];
        index /= shape->dim[i];
    }
}

/* Contract in ref.h. Row-major: the last dimension changes fastest. */
int64_t trmi_ref_ravel(const trm_shape *shape, const int64_t *at) {
    int64_t index = 0;
    for (int32_t i = 0; i < shape->rank; i++) {
        index = index * shape->dim[i] + at[i];
    }
    return index;
}

/* Contract in ref.h. Dimensions are aligned at the end; one of size 1 is read again and again. */
int64_t trmi_ref_broadcast_index(const trm_shape *shape, const trm_shape *wide, const int64_t *at) {
    int64_t index = 0;
    for (int32_t i = 0; i < shape->rank; i++) {
        int64_t coordinate = at[i + wide->rank - shape->rank];
        index = index * shape->dim[i] + (shape->dim[i] == 1 ? 0 : coordinate);
    }
    return index;
}
