/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/dnnl/dnnl_compat.h: the little of oneDNN that we call, the same for its C API v2 and v3.
 * Only dnnl_compat*.c include dnnl.h. */
#ifndef TRMI_EXEC_CPU_DNNL_COMPAT_H
#define TRMI_EXEC_CPU_DNNL_COMPAT_H

#include "trireme/base.h"

/* Engine and stream of the CPU.
 *   owns  caller destroys      thread  one thread at a time; primitives use OpenMP inside */
typedef struct trmi_dnnl trmi_dnnl;
trm_status trmi_dnnl_create(trmi_dnnl **out, trm_error *err);
void trmi_dnnl_destroy(trmi_dnnl *dnnl);
/* Returns "oneDNN 2.6.3", a part of the tuning key.   owns  static */
const char *trmi_dnnl_version(void);

/* ---- convolution ---------------------------------------------------------------------------- */

typedef enum trmi_conv_direction {
    TRMI_CONV_FORWARD, /* image, weights [, bias] -> result */
    TRMI_CONV_DATA,    /* result's gradient, weights -> image's gradient */
    TRMI_CONV_WEIGHTS  /* image, result's gradient -> weights' gradient */
} trmi_conv_direction;

/* Where the elements of a tensor are: dimensions outermost first, strides in elements. */
typedef struct trmi_dnnl_tensor {
    trm_dtype dtype; /* FLOAT32 or BFLOAT16 */
    int rank;
    int64_t dim[5], stride[5];
} trmi_dnnl_tensor;

/* A convolution for oneDNN. */
typedef struct trmi_dnnl_conv_options {
    trmi_conv_direction direction;
    trmi_dnnl_tensor image;                 /* [N, C, H, W] */
    trmi_dnnl_tensor weights;               /* [O, I, KH, KW], with groups [G, O/G, I/G, KH, KW] */
    trmi_dnnl_tensor result;                /* [N, O, OH, OW] */
    bool bias;                              /* forward; float32 [O] */
    int64_t stride[2], dilation[2], pad[4]; /* dilation 1 = dense; pad: top, bottom, left, right */
} trmi_dnnl_conv_options;

/* One convolution with the weights reordered into the form that the library likes in each run.
 *   owns    caller destroys; `dnnl` must outlive it
 *   errors  UNSUPPORTED: the library has no kernel for it
 *   threads  one at a time */
typedef struct trmi_dnnl_conv trmi_dnnl_conv;
trm_status trmi_dnnl_conv_create(trmi_dnnl *dnnl, const trmi_dnnl_conv_options *options,
                                 trmi_dnnl_conv **out, trm_error *err);
void trmi_dnnl_conv_destroy(trmi_dnnl_conv *conv);
/* Returns the bytes of scratch that run needs, 64-byte aligned. */
int64_t trmi_dnnl_conv_scratch(const trmi_dnnl_conv *conv);
trm_status trmi_dnnl_conv_run(const trmi_dnnl_conv *conv, void *image, void *weights, void *bias,
                              void *result, void *scratch, trm_error *err);

#endif
