/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/exchange.h: all-gathers over the bootstrap, with which communicators are created. They
 * are slow and rarely used. */
#ifndef TRMI_COMM_EXCHANGE_H
#define TRMI_COMM_EXCHANGE_H

#include "comm/api/engine.h"

/* All-gather among all ranks of the job. `context` is a trmi_job_exchange. */
typedef struct trmi_job_exchange {
    trm_bootstrap *bootstrap; /* the job */
    double timeout_seconds;   /* deadline of each all-gather */
} trmi_job_exchange;
trm_status trmi_job_allgather(void *context, const void *mine, size_t bytes, void *all,
                              trm_error *err);

/* All-gather among a subset of the ranks of a wider exchange. Every rank of the wider exchange
 * takes part with a subset of its own, and all subsets exchange the same number of times. */
typedef struct trmi_subset {
    const trmi_exchange *wide; /* borrowed */
    int32_t wide_size, count;  /* ranks of the wide exchange, and of the subset */
    const int32_t *ranks;      /* [count] ranks of the wide exchange, borrowed */
    char *scratch;             /* values of all ranks of the wide exchange; grows */
    size_t scratch_bytes;      /* length of `scratch` */
} trmi_subset;
/* Makes `out` the exchange of this rank's subset: `count` of the `wide_size` ranks of `wide`. The
 * subset must outlive `out`; trmi_subset_free frees its scratch memory. */
void trmi_subset_make(trmi_subset *subset, const trmi_exchange *wide, int32_t wide_size,
                      const int32_t *ranks, int32_t count, trmi_exchange *out);
void trmi_subset_free(trmi_subset *subset);

#endif
