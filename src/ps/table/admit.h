/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/admit.h: admission: which new keys get a row. One admitter for each table and shard. */
#ifndef TRMI_PS_ADMIT_H
#define TRMI_PS_ADMIT_H

#include "ps/table/account.h"
#include "ps/table/row.h"

/* A key that has been counted but has no row yet. */
typedef struct trmi_counted_key {
    uint64_t key;
    uint32_t tick;  /* tick at which it was last seen */
    uint32_t count; /* 0: a free place */
} trmi_counted_key;

/* The rule of a table and its counters. */
typedef struct trmi_admitter {
    trmi_account *account;
    trm_admission rule; /* defaults filled in */
    uint64_t seed;
    int32_t level; /* pressure of the budget: 2^level times as many occurrences are required */
    trmi_counted_key *waiting; /* COUNT: sets of 8 */
    uint8_t *counters;         /* BLOOM */
    int64_t size;              /* sets or counters, a power of two */
} trmi_admitter;

/* Replaces zeros by the defaults of trireme/ps.h. */
void trmi_admission_defaults(trm_admission *rule);
/* Checks the rule and allocates the counters; the rule's capacity is divided among `shards`.
 *   errors  INVALID, NOMEM (the budget) */
trm_status trmi_admitter_init(trmi_admitter *admitter, trmi_account *account,
                              const trm_admission *rule, uint64_t seed, uint32_t shards,
                              const char *table, trm_error *err);
/* Frees the counters. */
void trmi_admitter_free(trmi_admitter *admitter);
/* Returns the bytes of the counters. */
int64_t trmi_admitter_bytes(const trmi_admitter *admitter);
/* Counts an absent key that a push names, and returns whether it gets a row now. */
bool trmi_admit(trmi_admitter *admitter, uint64_t key, uint32_t tick);
/* Restores a count from a snapshot. */
void trmi_admitter_restore(trmi_admitter *admitter, const trmi_counted_key *entry);

#endif
