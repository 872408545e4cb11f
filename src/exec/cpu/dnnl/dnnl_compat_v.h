/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/dnnl/dnnl_compat_v.h: the difference between oneDNN's C API v2 and v3, and nothing else.
 * Memory descriptors are structs in v2, objects in v3; operation descriptors are gone in v3.
 *
 * Only the files dnnl_compat*.c include it; all other code sees dnnl_compat.h, which is the same
 * for both. Each function exists twice with one meaning; trmi_md_free is called in both. */
#ifndef TRMI_EXEC_CPU_DNNL_COMPAT_V_H
#define TRMI_EXEC_CPU_DNNL_COMPAT_V_H

#include "exec/cpu/dnnl/dnnl_compat.h"

#include <oneapi/dnnl/dnnl.h>

#include <string.h>

struct trmi_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* The API's arrays have a fixed length of which only the rank is read. */
typedef struct trmi_dims {
    dnnl_dims_t v;
} trmi_dims;
/* Returns sizes in oneDNN's array of fixed length. */
static inline trmi_dims trmi_dims_of(const int64_t *from, int count) {
    trmi_dims d = {{0}};
    memcpy(d.v, from, (size_t)count * sizeof *from);
    return d;
}

#if DNNL_VERSION_MAJOR >= 3
/* v3: a descriptor is an object that must be destroyed. */
typedef struct trmi_md {
    dnnl_memory_desc_t md; /* NULL = none */
} trmi_md;
typedef const_dnnl_memory_desc_t trmi_md_ref;
static inline trmi_md_ref trmi_md_of(const trmi_md *box) { return box->md; }
static inline void trmi_md_free(trmi_md *box) {
    if (box->md != NULL) {
        dnnl_memory_desc_destroy(box->md);
    }
}
static inline dnnl_status_t trmi_md_strides(trmi_md *box, int rank, const int64_t *dim,
                                            dnnl_data_type_t type, const int64_t *stride) {
    return dnnl_memory_desc_create_with_strides(&box->md, rank, trmi_dims_of(dim, rank).v, type,
                                                trmi_dims_of(stride, rank).v);
}
static inline dnnl_status_t trmi_md_any(trmi_md *box, int rank, const int64_t *dim,
                                        dnnl_data_type_t type) {
    return dnnl_memory_desc_create_with_tag(&box->md, rank, trmi_dims_of(dim, rank).v, type,
                                            dnnl_format_tag_any);
}
#else
/* v2: a descriptor is a plain struct; 0 dimensions: none. */
typedef struct trmi_md {
    dnnl_memory_desc_t md;
} trmi_md;
typedef const dnnl_memory_desc_t *trmi_md_ref;
static inline trmi_md_ref trmi_md_of(const trmi_md *box) {
    return box->md.ndims == 0 ? NULL : &box->md;
}
static inline void trmi_md_free(trmi_md *box) { (void)box; }
static inline dnnl_status_t trmi_md_strides(trmi_md *box, int rank, const int64_t *dim,
                                            dnnl_data_type_t type, const int64_t *stride) {
    return dnnl_memory_desc_init_by_strides(&box->md, rank, trmi_dims_of(dim, rank).v, type,
                                            trmi_dims_of(stride, rank).v);
}
static inline dnnl_status_t trmi_md_any(trmi_md *box, int rank, const int64_t *dim,
                                        dnnl_data_type_t type) {
    return dnnl_memory_desc_init_by_tag(&box->md, rank, trmi_dims_of(dim, rank).v, type,
                                        dnnl_format_tag_any);
}
#endif

/* The operands of a convolution as descriptors; absent ones are NULL. */
typedef struct trmi_conv_mds {
    trmi_md_ref image, weights, bias, result;
    dnnl_dims_t stride, dilation, pad_begin, pad_end; /* dilation 0 = dense */
} trmi_conv_mds;

#if DNNL_VERSION_MAJOR >= 3
static inline dnnl_status_t trmi_conv_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                         trmi_conv_direction direction, const trmi_conv_mds *m,
                                         dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr) {
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    switch (direction) {
    case TRMI_CONV_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            out, engine, dnnl_forward_training, direct, m->image, m->weights, m->bias, m->result,
            m->stride, m->dilation, m->pad_begin, m->pad_end, attr);
    case TRMI_CONV_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, direct, m->image, m->weights, m->result, m->stride, m->dilation,
            m->pad_begin, m->pad_end, hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            out, engine, direct, m->image, m->weights, NULL, m->result, m->stride, m->dilation,
            m->pad_begin, m->pad_end, hint, attr);
    }
}
#else
static inline dnnl_status_t trmi_conv_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                         trmi_conv_direction direction, const trmi_conv_mds *m,
                                         dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr) {
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t d;
    dnnl_status_t s;
    switch (direction) {
    case TRMI_CONV_FORWARD:
        s = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, direct, m->image,
                                                       m->weights, m->bias, m->result, m->stride,
                                                       m->dilation, m->pad_begin, m->pad_end);
        break;
    case TRMI_CONV_DATA:
        s = dnnl_dilated_convolution_backward_data_desc_init(&d, direct, m->image, m->weights,
                                                             m->result, m->stride, m->dilation,
                                                             m->pad_begin, m->pad_end);
        break;
    default:
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            &d, direct, m->image, m->weights, NULL, m->result, m->stride, m->dilation, m->pad_begin,
            m->pad_end);
    }
    return s != dnnl_success ? s : dnnl_primitive_desc_create(out, &d, attr, engine, hint);
}
#endif

#endif
