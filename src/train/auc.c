/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of positives and negatives by logit, in 2^16 bins in the order of the numbers:
 *
 *      bits of the float, made monotonic (negative: all flipped; else: sign flipped), top 16
 *      -inf ... -1 ... -0 | +0 ... 1 ... +inf
 */
#include "trireme/metrics.h"

#include "train/model.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { BINS = 1 << 16 };

struct trm_auc {
    int64_t positives[BINS], negatives[BINS];
    int64_t nans;
    double loss_sum, prediction_sum;
};

trm_status trm_auc_create(trm_auc **out, trm_error *err) {
    *out = trmi_alloc(sizeof **out);
    if (*out == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %zu bytes of AUC bins", sizeof **out);
    }
    return TRM_OK;
}

void trm_auc_destroy(trm_auc *auc) { trmi_free(auc); }

void trm_auc_reset(trm_auc *auc) { memset(auc, 0, sizeof *auc); }

static uint32_t bin_of(float logit) {
    uint32_t bits;
    logit = logit == 0 ? 0 : logit; /* -0 and +0 are one number */
    memcpy(&bits, &logit, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return bits >> 16;
}

void trm_auc_add(trm_auc *auc, const float *logits, const float *labels, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        if (isnan(logits[i])) {
            auc->nans++;
            continue;
        }
        bool positive = labels[i] > 0.5f;
        double z = logits[i];
        double tail = log1p(exp(-fabs(z)));
        auc->loss_sum += (positive ? (z < 0 ? -z : 0) : (z > 0 ? z : 0)) + tail;
        auc->prediction_sum += z >= 0 ? 1 / (1 + exp(-z)) : exp(z) / (1 + exp(z));
        (positive ? auc->positives : auc->negatives)[bin_of(logits[i])]++;
    }
}

trm_status trmi_auc_add_ranks(trm_auc *auc, const trm_model *model, trm_error *err) {
    double sums[2] = {auc->loss_sum, auc->prediction_sum};
    TRMI_TRY(trmi_model_add_counts(model, auc->positives, BINS, err));
    TRMI_TRY(trmi_model_add_counts(model, auc->negatives, BINS, err));
    TRMI_TRY(trmi_model_add_counts(model, &auc->nans, 1, err));
    TRMI_TRY(trmi_model_add(model, sums, 2, err));
    auc->loss_sum = sums[0];
    auc->prediction_sum = sums[1];
    return TRM_OK;
}

void trm_auc_merge(trm_auc *into, const trm_auc *from) {
    for (int i = 0; i < BINS; i++) {
        into->positives[i] += from->positives[i];
        into->negatives[i] += from->negatives[i];
    }
    into->nans += from->nans;
    into->loss_sum += from->loss_sum;
    into->prediction_sum += from->prediction_sum;
}

static void totals(const trm_auc *auc, int64_t *positives, int64_t *negatives) {
    *positives = *negatives = 0;
    for (int i = 0; i < BINS; i++) {
        *positives += auc->positives[i];
        *negatives += auc->negatives[i];
    }
}

double trm_auc_value(const trm_auc *auc) {
    int64_t positives, negatives, below = 0;
    totals(auc, &positives, &negatives);
    if (positives == 0 || negatives == 0) {
        return 0.5;
    }
    double wins = 0; /* pairs in which the positive has the greater logit, ties one half */
    for (int i = 0; i < BINS; i++) {
        wins += (double)auc->positives[i] * ((double)below + 0.5 * (double)auc->negatives[i]);
        below += auc->negatives[i];
    }
    return wins / ((double)positives * (double)negatives);
}

int64_t trm_auc_samples(const trm_auc *auc) {
    int64_t positives, negatives;
    totals(auc, &positives, &negatives);
    return positives + negatives;
}

double trm_auc_logloss(const trm_auc *auc) {
    int64_t samples = trm_auc_samples(auc);
    return samples ? auc->loss_sum / (double)samples : 0;
}

double trm_auc_calibration(const trm_auc *auc) {
    int64_t positives, negatives;
    totals(auc, &positives, &negatives);
    return positives ? auc->prediction_sum / (double)positives : 0;
}

int64_t trm_auc_nan(const trm_auc *auc) { return auc->nans; }
