/* SPDX-License-Identifier: Apache-2.0 */
/* Computes positions in the data from step numbers (contracts and drawing in dealt.h). Pure
 * arithmetic, except for trmi_dataset_deal, which changes how the dataset divides the current
 * epoch. */
#include "train/estimator/dealt.h"

#include "base/error.h"
#include "data/pipeline/dataset.h"

#include <string.h>

void trmi_stretch_at(const trmi_stretch *stretch, int64_t steps, int64_t *epoch, int64_t *batch) {
    const int64_t at = stretch->first + steps - stretch->step;
    *epoch = stretch->epoch + at / stretch->batches;
    *batch = at % stretch->batches;
}

/* Returns how many samples of `epoch` all workers together have used before `batch`. */
static int64_t used_before(const trmi_stretch *s, int64_t epoch, int64_t batch) {
    const bool first = epoch == s->epoch;
    return (first ? s->used : 0) + (batch - (first ? s->first : 0)) * s->workers * s->batch;
}

/* Removes stretches that begin after `steps`: the job was resumed from a checkpoint before them. */
static void forget_after(trmi_dealt *dealt, int64_t steps) {
    while (dealt->count > 0 && dealt->list[dealt->count - 1].step > steps) {
        dealt->count--;
    }
}

/* Appends a stretch. It replaces one that begins with the same step; the oldest of a full list
 * is dropped. */
static void append_stretch(trmi_dealt *dealt, const trmi_stretch *s) {
    if (dealt->count > 0 && dealt->list[dealt->count - 1].step == s->step) {
        dealt->count--; /* no step was made in it */
    }
    if (dealt->count == TRMI_STRETCHES) {
        memmove(dealt->list, dealt->list + 1, (TRMI_STRETCHES - 1) * sizeof *dealt->list);
        dealt->count--;
    }
    dealt->list[dealt->count++] = *s;
}

/* Contract in dealt.h. A worker that has made no step joins at the start of the last stretch. */
int64_t trmi_dealt_newcomer(const trmi_dealt *dealt, int64_t steps) {
    return steps == 0 && dealt->count > 0 ? dealt->list[dealt->count - 1].step : steps;
}

/* Contract in dealt.h. The last stretch goes on if workers, batch and length of an epoch are
 * unchanged. Otherwise a new one starts where the last one ends, and the dataset divides the
 * unused samples of the epoch among the new workers. */
trm_status trmi_dealt_begin(trmi_dealt *dealt, trm_dataset *data, int64_t batch, int64_t steps,
                            trmi_stretch *out, trm_error *err) {
    trmi_stretch s = {
        .workers = dealt->workers, .batch = batch, .batches = trm_dataset_epoch_batches(data)};
    forget_after(dealt, steps);
    const trmi_stretch *last = dealt->count > 0 ? &dealt->list[dealt->count - 1] : NULL;
    const bool same = last != NULL && last->workers == s.workers && last->batch == s.batch &&
                      last->batches == s.batches;
    if (same) {
        s = *last;
    } else if (last != NULL) {
        int64_t before;
        s.step = steps;
        trmi_stretch_at(last, steps, &s.epoch, &before);
        s.used = used_before(last, s.epoch, before);
    }
    TRMI_TRY(trmi_dataset_deal(data, s.epoch, s.used, &s.first, err));
    if (!same) {
        append_stretch(dealt, &s);
    }
    *out = s;
    return TRM_OK;
}
