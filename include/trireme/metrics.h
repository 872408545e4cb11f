/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/metrics.h: figures of merit that add up, so that batches, threads and ranks can each have
 * a part and merge them: the merged value is the value of all samples together.
 *
 *     trm_top_k top = {0};
 *     for each batch: trm_top_k_add(&top, logits, labels, rows, classes);
 *     printf("%.4f\n", trm_top_k_value(&top, 1));
 *
 *   thread  one thread at a time per object; alloc: only trm_auc_create
 */
#ifndef TRIREME_METRICS_H
#define TRIREME_METRICS_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Top-k accuracy for k = 1 .. 5. A row counts for k when fewer than k classes have a greater logit
 * (of equal ones the lower class wins). A NaN anywhere at the label loses. */
typedef struct trm_top_k {
    int64_t hits[5]; /* by rank of the true class */
    int64_t samples;
} trm_top_k;
/* logits [rows, classes]; labels [rows], those < 0 or >= classes are left out. */
TRM_API void trm_top_k_add(trm_top_k *top, const float *logits, const int32_t *labels, int64_t rows,
                           int64_t classes);
TRM_API void trm_top_k_merge(trm_top_k *into, const trm_top_k *from);
/* 0 .. 1; 0 without samples. k is 1 .. 5. */
TRM_API double trm_top_k_value(const trm_top_k *top, int k);

/* Binary predictions: area under the ROC curve, log loss, calibration. The logits are sorted into
 * 2^16 bins that are exact in sign, exponent and the upper 7 bits of the mantissa (bfloat16), so
 * the AUC is that of the logits rounded towards zero to bfloat16, ties counting one half, and
 * merging is exact. */
typedef struct trm_auc trm_auc;
/* owns  caller, trm_auc_destroy    error  NOMEM (1 MB) */
TRM_API TRM_MUST_USE trm_status trm_auc_create(trm_auc **out, trm_error *err);
TRM_API void trm_auc_destroy(trm_auc *auc);
TRM_API void trm_auc_reset(trm_auc *auc);
/* logits [rows]; labels [rows]: > 0.5 is positive. NaN logits are counted apart (trm_auc_nan). */
TRM_API void trm_auc_add(trm_auc *auc, const float *logits, const float *labels, int64_t rows);
TRM_API void trm_auc_merge(trm_auc *into, const trm_auc *from);
/* 0.5 when one class is missing. */
TRM_API double trm_auc_value(const trm_auc *auc);
/* Mean of -log p(label); logits are taken in float64, so that it never overflows. */
TRM_API double trm_auc_logloss(const trm_auc *auc);
/* Mean prediction / mean label: 1 is calibrated; 0 without positives. */
TRM_API double trm_auc_calibration(const trm_auc *auc);
TRM_API int64_t trm_auc_samples(const trm_auc *auc);
TRM_API int64_t trm_auc_nan(const trm_auc *auc);

#ifdef __cplusplus
}
#endif
#endif
