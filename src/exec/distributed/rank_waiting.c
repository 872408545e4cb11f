/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long ranks wait for each other, and which part of that is communication:
 *
 *      rank 0   --backward--------|wait|              the last rank waits for communication only;
 *      rank 1   --backward---|wait     |              what it waits beyond that is imbalance
 *
 * All ranks come to the same meetings in the same order, so the shortest wait of each meeting over
 * the ranks can be found afterwards without a common clock, also between hosts. TRMI_WAITS_MOST
 * meetings are kept; the older half is dropped first. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"

#include <string.h>

const char trmi_ranks_key = 0; /* here, because this file calls no other one of the way */

/* Meetings of a step that are kept, at most; meetings of earlier steps that may be kept when a step
 * begins, so that its own ones find room. */
enum { STEP_MOST = 64, KEPT = TRMI_WAITS_MOST - STEP_MOST };

void trmi_parallel_waited(trmi_parallel *p, double begin) {
    trmi_waits *w = &p->waits;
    double seconds = trmi_os_now() - begin;
    w->total_seconds += seconds;
    if (w->count < TRMI_WAITS_MOST) {
        w->seconds[w->count++] = (float)seconds;
    }
}

void trmi_parallel_note_step(trm_exec *exec) {
    trmi_waits *w = &trmi_parallel_of(exec)->waits;
    if (w->half == 0 && w->count >= KEPT / 2) {
        w->half = w->count;
        w->half_seconds = exec->step_seconds;
    }
    if (w->count > KEPT) {
        memmove(w->seconds, w->seconds + w->half,
                (size_t)(w->count - w->half) * sizeof *w->seconds);
        w->count -= w->half;
        w->begin_seconds = w->half_seconds;
        w->half = 0;
    }
}

void trm_exec_begin_waiting(trm_exec *exec) {
    TRMI_NEED_OR(, NULL, exec);
    if (trmi_parallel_of(exec) != NULL) {
        trmi_parallel_of(exec)->waits.count = trmi_parallel_of(exec)->waits.half = 0;
        trmi_parallel_of(exec)->waits.begin_seconds = exec->step_seconds;
    }
}

double trm_exec_waiting_seconds(const trm_exec *exec) {
    TRMI_NEED_OR(0, NULL, exec);
    const trmi_parallel *p = trmi_parallel_of(exec);
    return p != NULL ? p->waits.total_seconds : 0;
}

/* Contract in trireme/exec.h. The shortest wait of any rank at a meeting is communication, and
 * the rest of each rank's wait is imbalance. That needs the same meetings on all ranks; where
 * their numbers differ, everything counts as communication. */
trm_status trm_exec_get_waiting(trm_exec *exec, trm_waiting *out, trm_error *err) {
    TRMI_NEED(err, exec, out);
    trmi_parallel *p = trmi_parallel_of(exec);
    *out = (trm_waiting){0};
    if (p == NULL) {
        return TRM_OK;
    }
    const trmi_waits *w = &p->waits;
    double sums[2] = {0, exec->step_seconds - w->begin_seconds}, least = 0;
    int32_t ends[2] = {w->count, -w->count};
    float shortest[TRMI_WAITS_MOST];
    memcpy(shortest, w->seconds, sizeof shortest);
    /* Find the minimum of count and of -count: they agree if all ranks have the same count. */
    TRMI_TRY(trm_comm_allreduce(p->comm, ends, 2, TRM_INT32, TRM_REDUCTION_MIN, err));
    TRMI_TRY(trm_comm_allreduce(p->comm, shortest, TRMI_WAITS_MOST, TRM_FLOAT32, TRM_REDUCTION_MIN,
                                err));
    /* parts of split programs may differ: then it is unknown for which rank a rank has waited */
    bool alike = ends[0] == -ends[1];
    for (int32_t i = 0; i < w->count; i++) {
        sums[0] += (double)w->seconds[i];
        least += (double)shortest[i];
    }
    TRMI_TRY(trm_comm_allreduce(p->comm, sums, 2, TRM_FLOAT64, TRM_REDUCTION_MEAN, err));
    *out = (trm_waiting){.meetings = w->count,
                         .step_seconds = sums[1],
                         .communication_seconds = alike ? least : sums[0],
                         .imbalance_seconds = alike ? sums[0] - least : 0};
    return TRM_OK;
}
