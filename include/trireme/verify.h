/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/verify.h: is a split model the model of one device? The same weights and batches go
 * through both.
 *
 *     split:        the ranks of `parallel`, by its plan      loss, operators' outputs, gradients, variables
 *     one device:   rank 0 by itself                          the same
 *     rounding:     rank 0 again, weights moved by one unit in the last place: how far that alone moves everything
 *
 * A tensor agrees when it is no further from one device than `tolerance`, or than a few times what
 * rounding moves. Networks differ in how they grow rounding (a fresh ResNet-50 by a million in
 * three steps), so that no fixed number can tell a wrong sum from an unlucky one; the third run
 * can.
 */
#ifndef TRIREME_VERIFY_H
#define TRIREME_VERIFY_H

#include "trireme/base.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_verify_options {
    int32_t steps;    /* of training; 0 = 3 */
    double tolerance; /* relative, always allowed; 0 = 1e-5 (mixed precision: 2e-3) */
    double factor;    /* times rounding, allowed too; 0 = 16 */
    bool bitwise;     /* instead: every bit must be the same */
} trm_verify_options;

typedef enum trm_verify_kind {
    TRM_VERIFY_LOSS,     /* one a step */
    TRM_VERIFY_FORWARD,  /* what an operator makes of the first batch, before any update */
    TRM_VERIFY_GRADIENT, /* of a parameter, of the first step */
    TRM_VERIFY_VARIABLE, /* parameter, state or slot after the last step */
    TRM_VERIFY_KINDS
} trm_verify_kind;
TRM_API const char *trm_verify_kind_name(trm_verify_kind kind); /* "gradient" */

typedef struct trm_verify_tensor {
    trm_verify_kind kind;
    const char *name;
    int64_t count;
    double error;    /* |split - one device| / |one device|, euclidean */
    double largest;  /* difference of an element */
    double rounding; /* as error, of the third run against one device; 0 with `bitwise` */
    bool same_bits, agrees;
} trm_verify_tensor;

typedef struct trm_verification {
    trm_verify_tensor *tensors; /* in the order of kinds, then of the graph */
    int32_t count;
    bool agrees, same_bits; /* all of them */
    /* the largest `rounding` of a loss: from about 0.01 on later steps say little */
    double chaos;
} trm_verification;

/* Collective over model->parallel.comm, with its split, plan and mesh (or the context's). `model`
 * is as for
 * trm_model_create, with whole batches in model->data on every rank; optimiser, schedule,
 * accumulation, clipping,
 * loss scale and precision are those of the options. Only rank 0 gets a result, and works on alone
 * for it: the
 * others return with NULL in *out as soon as the split job is done.
 *   owns   *out by the caller, trm_verification_destroy
 *   error  INVALID (one rank, or nothing is split), and those of trm_model_create and trm_model_train; a
 *          difference is no error
 *   cost   three trainings of `steps` and as many forward passes that keep operators' outputs
 */
TRM_API TRM_MUST_USE trm_status trm_verify(const trm_model_options *model,
                                           const trm_verify_options *options,
                                           trm_verification **out, trm_error *err);
TRM_API void trm_verification_destroy(trm_verification *verification);

#ifdef __cplusplus
}
#endif
#endif
