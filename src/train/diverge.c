/* SPDX-License-Identifier: Apache-2.0 */
#include "train/diverge.h"

#include <math.h>

static const double LAST_STEPS = 16, GROWN = 4, LOST = 1e6;
enum { FIRST_STEPS = 8 }; /* in which a loss may jump */

trmi_course trmi_divergence_note(trmi_divergence *d, double loss) {
    loss = fabs(loss);
    if (d->steps++ == 0) {
        d->first = d->average = loss;
    }
    d->average += (loss - d->average) / LAST_STEPS;
    if (d->average > LOST * (d->first + 1)) {
        return TRMI_COURSE_LOST;
    }
    /* + 1: a loss near zero has room to jump. */
    if (d->said || d->steps < FIRST_STEPS || d->average < GROWN * d->first + 1) {
        return TRMI_COURSE_FINE;
    }
    d->said = true;
    return TRMI_COURSE_GROWS;
}
