#include "exec/ref/ref.h"

#include "base/half.h"

double trmi_ref_get(const trm_tensor *t, int64_t i) {
    switch (t->dtype) {
    case TRM_FLOAT32:
        return (double)((const float *)t->data)[i];
    case TRM_FLOAT64:
        return ((const double *)t->data)[i];
    case TRM_BFLOAT16:
        return (double)trmi_bf16_to_float(((const uint16_t *)t->data)[i]);
    case TRM_FLOAT16:
        return (double)trmi_f16_to_float(((const uint16_t *)t->data)[i]);
    default:
        return (double)trmi_ref_get_int(t, i);
    }
}

int64_t trmi_ref_get_int(const trm_tensor *t, int64_t i) {
    switch (t->dtype) {
    case TRM_INT64:
        return ((const int64_t *)t->data)[i];
    case TRM_INT32:
        return ((const int32_t *)t->data)[i];
    case TRM_INT8:
        return ((const int8_t *)t->data)[i];
    case TRM_UINT8:
        return ((const uint8_t *)t->data)[i];
    default:
        return (int64_t)trmi_ref_get(t, i);
    }
}

void trmi_ref_set(const trm_tensor *t, int64_t i, double value) {
    if (t->data == NULL) {
        return;
    }
    switch (t->dtype) {
    case TRM_FLOAT32:
        ((float *)t->data)[i] = (float)value;
        break;
    case TRM_FLOAT64:
        ((double *)t->data)[i] = value;
        break;
    case TRM_BFLOAT16:
        ((uint16_t *)t->data)[i] = trmi_float_to_bf16((float)value);
        break;
    case TRM_FLOAT16:
        ((uint16_t *)t->data)[i] = trmi_float_to_f16((float)value);
        break;
    case TRM_INT64:
        ((int64_t *)t->data)[i] = (int64_t)value;
        break;
    case TRM_INT32:
        ((int32_t *)t->data)[i] = (int32_t)value;
        break;
    case TRM_INT8:
        ((int8_t *)t->data)[i] = (int8_t)value;
        break;
    case TRM_UINT8:
    case TRM_DTYPE_NONE:
        ((uint8_t *)t->data)[i] = (uint8_t)value;
        break;
    }
}

void trmi_ref_unravel(const trm_shape *shape, int64_t index, int64_t *at) {
    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        at[i] = index % shape->dim[i];
        index /= shape->dim[i];
    }
}

int64_t trmi_ref_ravel(const trm_shape *shape, const int64_t *at) {
    int64_t index = 0;
    for (int32_t i = 0; i < shape->rank; i++) {
        index = index * shape->dim[i] + at[i];
    }
    return index;
}

int64_t trmi_ref_broadcast_index(const trm_shape *shape, const trm_shape *wide, const int64_t *at) {
    int64_t index = 0;
    for (int32_t i = 0; i < shape->rank; i++) {
        int64_t coordinate = at[i + wide->rank - shape->rank];
        index = index * shape->dim[i] + (shape->dim[i] == 1 ? 0 : coordinate);
    }
    return index;
}
