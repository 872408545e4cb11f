/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/plan.h: how a graph becomes a program. The program itself is shown by trm_exec_explain
 * (trireme/exec.h) and by `trireme plan MODEL --explain`. */
#ifndef TRIREME_PLAN_H
#define TRIREME_PLAN_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The types that a program computes with. */
typedef enum trm_precision {
    TRM_PRECISION_FP32 = 0,
    /* allow_mix_precision: bf16 where it is safe, fp32 masters and statistics */
    TRM_PRECISION_MIXED,
    TRM_PRECISION_ORIGIN /* must_keep_origin_dtype: each operator in the dtype of its inputs */
} trm_precision;

#ifdef __cplusplus
}
#endif
#endif
