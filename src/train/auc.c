/* SPDX-License-Identifier: Apache-2.0 */
/* AUC of click models from histograms: counts of positives and negatives in 2^16 bins that are
 * ordered like the logits.
 *
 *        bits of the float, made monotonic (negative: all flipped; else: sign flipped), top 16
 *        -inf ... -1 ... -0 | +0 ... 1 ... +inf
 *
 * A bin is 1/128 of its value wide (7 bits of the mantissa), so that the AUC is exact up to ties
 * within a bin. Counts can be added over batches, threads and ranks in any order with the same
 * result, and no sample has to be kept. */
#include "trireme/train.h"

#include "train/model.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { BINS = 1 << 16 };

/* The histograms of one evaluation, 1 MB. One thread adds to it at a time. */
struct trm_auc {
    int64_t positives[BINS], negatives[BINS]; /* samples by label and bin of the logit */
    int64_t nans;                             /* samples whose logit is NaN; in no bin */
    double loss_sum, prediction_sum;          /* log losses; predicted probabilities */
};

trm_status trm_auc_create(trm_auc **out, trm_error *err) {
    TRMI_NEED(err, out);
    *out = trmi_alloc(sizeof **out);
    if (*out == NULL) {
        return TRMI_NO_MEMORY(err, "for %zu bytes of AUC bins", sizeof **out);
    }
    return TRM_OK;
}

void trm_auc_destroy(trm_auc *auc) { trmi_free(auc); }

void trm_auc_reset(trm_auc *auc) {
    TRMI_NEED_OR(, NULL, auc);
    memset(auc, 0, sizeof *auc);
}

/* Returns the bin of a logit: the top 16 bits of a monotonic mapping of floats to unsigned
 * integers. */
static uint32_t bin_of(float logit) {
    uint32_t bits;
    logit = logit == 0 ? 0 : logit; /* -0 and +0 go into one bin */
    memcpy(&bits, &logit, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return bits >> 16;
}

/* Adds samples: counts them by bin, and sums log loss and predicted probability in forms that do
 * not overflow. Labels above 0.5 are positive; NaN logits are only counted. */
void trm_auc_add(trm_auc *auc, const float *logits, const float *labels, int64_t rows) {
    TRMI_NEED_OR(, NULL, auc);
    if (rows > 0) {
        TRMI_NEED_OR(, NULL, logits, labels);
    }
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

/* Adds the counts of all ranks, on every rank (contract in model.h). */
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
    TRMI_NEED_OR(, NULL, into, from);
    for (int i = 0; i < BINS; i++) {
        into->positives[i] += from->positives[i];
        into->negatives[i] += from->negatives[i];
    }
    into->nans += from->nans;
    into->loss_sum += from->loss_sum;
    into->prediction_sum += from->prediction_sum;
}

/* The area is the probability that a random positive has a greater logit than a random negative
 * (Mann-Whitney U). */
void trm_auc_get(const trm_auc *auc, trm_auc_values *out) {
    TRMI_NEED_OR(, NULL, auc, out);
    double wins = 0; /* pairs with the greater logit on the positive, ties one half */
    int64_t positives = 0, negatives = 0;
    for (int i = 0; i < BINS; i++) {
        wins += (double)auc->positives[i] * ((double)negatives + 0.5 * (double)auc->negatives[i]);
        positives += auc->positives[i];
        negatives += auc->negatives[i];
    }
    int64_t samples = positives + negatives;
    *out = (trm_auc_values){
        .auc =
            positives == 0 || negatives == 0 ? 0.5 : wins / ((double)positives * (double)negatives),
        .logloss = samples > 0 ? auc->loss_sum / (double)samples : 0,
        .calibration = positives > 0 ? auc->prediction_sum / (double)positives : 0,
        .samples = samples,
        .nans = auc->nans};
}
