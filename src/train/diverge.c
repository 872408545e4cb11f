/* SPDX-License-Identifier: Apache-2.0 */
/* Detects a growing loss: compares an exponential mean of the last steps with the loss of the first
 * step (contracts in diverge.h). */
#include "train/diverge.h"

#include "base/error.h"

#include <math.h>

/* Steps of the mean, about; the loss grows, or is lost, when the mean is so many times the first
 * loss. */
static const double LAST_STEPS = 16, GROWN = 4, LOST = 1e6;
enum { FIRST_STEPS = 8 }; /* steps at the beginning in which the loss may jump */

/* Contract in diverge.h. Growth is reported once, and a lost loss after every step. */
trmi_course trmi_divergence_note(trmi_divergence *d, double loss) {
    loss = fabs(loss);
    if (d->steps++ == 0) {
        d->first = d->average = loss;
    }
    d->average += (loss - d->average) / LAST_STEPS;
    if (d->average > LOST * (d->first + 1)) {
        return TRMI_COURSE_LOST;
    }
    /* The + 1 lets a loss near zero jump. */
    if (d->said || d->steps < FIRST_STEPS || d->average < GROWN * d->first + 1) {
        return TRMI_COURSE_FINE;
    }
    d->said = true;
    return TRMI_COURSE_GROWS;
}

trm_status trmi_divergence_fail(const trm_progress *progress, trm_error *err) {
    return TRMI_FAIL(err, TRM_DIVERGED,
                     "epoch %lld, step %lld: the loss is %g; a lower learning rate or gradient "
                     "clipping may help",
                     (long long)progress->epoch, (long long)progress->step, (double)progress->loss);
}
