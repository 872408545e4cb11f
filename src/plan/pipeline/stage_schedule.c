/* SPDX-License-Identifier: Apache-2.0 */
/* Makes schedules of pipelines (contracts and a picture in stage_schedule.h).
 *
 *      GPipe         all forwards, then all backwards
 *      1F1B          stages - 1 - rank forwards ahead, then one forward and one backward in turn
 *      interleaved   the same with several chunks a rank: groups of `stages` micro-batches go through
 *                    all chunks in turn
 *
 * Sources: Huang et al. 2019 (GPipe), Narayanan et al. 2021 (1F1B and interleaved; Megatron-LM). */
#include "plan/pipeline/stage_schedule.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

const char *trmi_pipeline_order_name(trmi_pipeline_order order) {
    static const char *const names[] = {
        [TRMI_ORDER_1F1B] = "1f1b",
        [TRMI_ORDER_GPIPE] = "gpipe",
        [TRMI_ORDER_INTERLEAVED] = "interleaved",
    };
    return names[order];
}

/* Returns forward number `k` of a rank: groups of `group` micro-batches go through all chunks, one
 * chunk after the other. Backwards go through the chunks from the last to the first. */
static trmi_pipeline_action numbered_action(const trmi_pipeline *p, int32_t group, int32_t k,
                                            bool backward) {
    int32_t chunk = k / group % p->chunks;
    return (trmi_pipeline_action){.backward = backward,
                                  .chunk = backward ? p->chunks - 1 - chunk : chunk,
                                  .micro = k / (group * p->chunks) * group + k % group};
}

/* Writes the actions of one rank: `ahead` forwards, then forward and backward in turn, then the
 * backwards that are left. The last group of micro-batches is scheduled as a full one; actions of
 * micro-batches that do not exist are left out, which breaks no dependency. */
static void fill_rank(const trmi_pipeline *p, int32_t ahead, int32_t group,
                      trmi_pipeline_action *out) {
    int32_t total = (p->micros + group - 1) / group * group * p->chunks, count = 0;
    ahead = ahead < total ? ahead : total;
    for (int32_t i = 0; i < 2 * total; i++) {
        /* Find, for the i-th action, the forwards before it, then whether it is a backward. */
        int32_t pairs = i - ahead > 0 ? i - ahead : 0;
        int32_t forwards = i < ahead ? i : ahead + (pairs + 1) / 2;
        bool backward = i >= ahead && (pairs % 2 == 1 || forwards >= total);
        int32_t done = forwards < total ? forwards : total;
        trmi_pipeline_action a = numbered_action(p, group, backward ? i - done : done, backward);
        if (a.micro < p->micros) {
            out[count++] = a;
        }
    }
}

/* Returns how many forwards a rank runs before its first pair of forward and backward. */
static int32_t forwards_ahead(const trmi_pipeline *p, int32_t rank) {
    int32_t after = p->stages - 1 - rank;
    switch (p->order) {
    case TRMI_ORDER_GPIPE: return p->micros;
    case TRMI_ORDER_INTERLEAVED:
        return p->chunks == 1 ? after : 2 * after + (p->chunks - 1) * p->stages;
    default: return after;
    }
}

/* Contract in stage_schedule.h. Every rank has 2 * chunks * micros actions, so that the schedule
 * is one array with rows of equal length. */
trm_status trmi_pipeline_create(trmi_pipeline_order order, int32_t stages, int32_t chunks,
                                int32_t micros, trmi_pipeline *out, trm_error *err) {
    if (stages < 1 || stages > TRMI_STAGES_MAX || chunks < 1 ||
        chunks > TRMI_VIRTUAL_STAGES_MAX / stages || micros < 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "pipeline of %d stages with %d chunks each and %d micro-batches: 1 to %d "
                         "stages, at most %d chunks in all, 1 micro-batch or more",
                         stages, chunks, micros, TRMI_STAGES_MAX, TRMI_VIRTUAL_STAGES_MAX);
    }
    if (order != TRMI_ORDER_INTERLEAVED && chunks > 1) {
        return TRMI_FAIL(err, TRM_INVALID, "schedule %s has one chunk a rank (found %d)",
                         trmi_pipeline_order_name(order), chunks);
    }
    trmi_pipeline p = {.stages = stages,
                       .chunks = chunks,
                       .micros = micros,
                       .order = order,
                       .count = 2 * chunks * micros};
    TRMI_TRY(TRMI_NEW(err, p.actions, (int64_t)stages * p.count, "for a schedule"));
    /* ranks differ in how many forwards they run ahead */
    for (int32_t r = 0; r < stages; r++) {
        fill_rank(&p, forwards_ahead(&p, r), chunks > 1 ? stages : micros, p.actions + r * p.count);
    }
    *out = p;
    return TRM_OK;
}

void trmi_pipeline_free(trmi_pipeline *pipeline) {
    trmi_free(pipeline->actions);
    pipeline->actions = NULL;
}
