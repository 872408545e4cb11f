/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates as a function of the step: linear warm-up, then one of five decays
 * (trireme/train.h). Without state, so that a resumed run continues its schedule from the step
 * number alone. */
#include "trireme/train.h"

#include "base/arguments.h"

#include <math.h>

/* Returns x, at least 0 and at most 1. */
static double clamp_to_unit(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

/* Returns the rate of TRM_DECAY_STEP: base * gamma^floor(step / every). Defaults: three stages,
 * gamma 0.1. */
static double rate_of_step(const trm_learning_rate *rate, double step) {
    double every = (double)rate->every_steps;
    if (every <= 0) {
        every = (double)(rate->total_steps / 3 > 0 ? rate->total_steps / 3 : 1);
    }
    double gamma = rate->gamma != 0 ? rate->gamma : 0.1;
    return rate->base * pow(gamma, floor(step / every));
}

/* Returns the rate of TRM_DECAY_WSD with `left` steps to go. Default: the decay takes a tenth of
 * all steps. */
static double rate_of_wsd(const trm_learning_rate *rate, double left) {
    double decay = (double)rate->every_steps;
    if (decay <= 0) {
        decay = (double)(rate->total_steps / 10);
    }
    return rate->end + (rate->base - rate->end) * (decay > 0 ? clamp_to_unit(left / decay) : 1);
}

/* Returns the rate of step `step` (from 0). Warm-up rises linearly from warmup_start to base;
 * the decay then spans the steps from the end of the warm-up to total_steps, and stays at its
 * end value after that. */
double trm_learning_rate_at(const trm_learning_rate *rate, uint64_t step) {
    TRMI_NEED_OR(0, NULL, rate);
    double warmup = (double)(rate->warmup_steps > 0 ? rate->warmup_steps : 0);
    double at = (double)step;
    if (at < warmup) {
        return rate->warmup_start + (rate->base - rate->warmup_start) * (at + 1) / warmup;
    }
    at -= warmup;
    double span = (double)rate->total_steps - warmup;
    double progress = span > 0 ? clamp_to_unit(at / span) : 1;
    switch (rate->decay) {
    case TRM_DECAY_STEP: return rate_of_step(rate, at);
    case TRM_DECAY_COSINE:
        return rate->end + (rate->base - rate->end) * 0.5 * (1 + cos(acos(-1.0) * progress));
    case TRM_DECAY_POLYNOMIAL: {
        double power = rate->power != 0 ? rate->power : 1;
        return rate->end + (rate->base - rate->end) * pow(1 - progress, power);
    }
    case TRM_DECAY_WSD: return rate_of_wsd(rate, span - at);
    case TRM_DECAY_CONSTANT: break;
    }
    return rate->base;
}
