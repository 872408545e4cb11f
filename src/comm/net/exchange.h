/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/exchange.h: the slow all-gathers with which communicators are made. */
#ifndef TRMI_COMM_EXCHANGE_H
#define TRMI_COMM_EXCHANGE_H

#include "comm/api/engine.h"

/* Among all ranks of the job, over the bootstrap. */
typedef struct trmi_job_exchange {
    trm_bootstrap *bootstrap;
    double timeout_seconds;
} trmi_job_exchange;
trm_status trmi_job_allgather(void *context, const void *mine, size_t bytes, void *all,
                              trm_error *err);

/* Among `count` ranks out of those of a wider exchange. Every rank of the wider one takes part with
 * a subset of its own, as often as all others: subsets exchange in lockstep. */
typedef struct trmi_subset {
    const trmi_exchange *wide;
    int32_t wide_size, count;
    const int32_t *ranks; /* [count] ranks of the wide exchange, borrowed */
    char *scratch;
    size_t scratch_bytes;
} trmi_subset;
void trmi_subset_make(trmi_subset *subset, const trmi_exchange *wide, int32_t wide_size,
                      const int32_t *ranks, int32_t count, trmi_exchange *out);
void trmi_subset_free(trmi_subset *subset);

#endif
