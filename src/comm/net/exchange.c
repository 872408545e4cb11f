/* SPDX-License-Identifier: Apache-2.0 */
/* All-gathers with which communicators are created; see the header. */
#include "comm/net/exchange.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

trm_status trmi_job_allgather(void *context, const void *mine, size_t bytes, void *all,
                              trm_error *err) {
    trmi_job_exchange *job = context;
    return job->bootstrap->table->allgather(job->bootstrap, mine, bytes, all, job->timeout_seconds,
                                            err);
}

/* All-gathers on the wide exchange and picks the values of the subset's ranks. */
static trm_status subset_allgather(void *context, const void *mine, size_t bytes, void *all,
                                   trm_error *err) {
    trmi_subset *subset = context;
    size_t needed;
    if (!trmi_mul_size(bytes, (size_t)subset->wide_size, &needed)) {
        return TRMI_NO_MEMORY(err, "to exchange %zu bytes among %d ranks", bytes,
                              subset->wide_size);
    }
    if (needed > subset->scratch_bytes) {
        trmi_free(subset->scratch);
        subset->scratch = trmi_alloc(needed);
        subset->scratch_bytes = subset->scratch != NULL ? needed : 0;
        if (subset->scratch == NULL) {
            return TRMI_NO_MEMORY(err, "to exchange %zu bytes among %d ranks", bytes,
                                  subset->wide_size);
        }
    }
    TRMI_TRY(subset->wide->allgather(subset->wide->context, mine, bytes, subset->scratch, err));
    for (int32_t i = 0; i < subset->count; i++) {
        memcpy((char *)all + (size_t)i * bytes, subset->scratch + (size_t)subset->ranks[i] * bytes,
               bytes);
    }
    return TRM_OK;
}

void trmi_subset_make(trmi_subset *subset, const trmi_exchange *wide, int32_t wide_size,
                      const int32_t *ranks, int32_t count, trmi_exchange *out) {
    *subset = (trmi_subset){.wide = wide, .wide_size = wide_size, .ranks = ranks, .count = count};
    *out = (trmi_exchange){.context = subset, .allgather = subset_allgather};
}

void trmi_subset_free(trmi_subset *subset) { trmi_free(subset->scratch); }
