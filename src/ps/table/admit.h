/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/admit.h: which new keys get a row. One of these per table and shard. */
#ifndef TRMI_PS_ADMIT_H
#define TRMI_PS_ADMIT_H

#include "ps/table/account.h"
#include "ps/table/row.h"

typedef struct trmi_waiting {
    uint64_t key;
    uint32_t tick;  /* when last seen */
    uint32_t count; /* 0 = a free place */
} trmi_waiting;

typedef struct trmi_admitter {
    trmi_account *account;
    trm_admission rule; /* defaults filled in */
    uint64_t seed;
    int32_t level;         /* the budget's pressure: asks for 2^level as much */
    trmi_waiting *waiting; /* COUNT: sets of 8 */
    uint8_t *counters;     /* BLOOM */
    int64_t size;          /* sets or counters, a power of two */
} trmi_admitter;

/* Checks the rule; `capacity` is divided among `shards`.   errors  INVALID, NOMEM (the budget) */
trm_status trmi_admitter_init(trmi_admitter *admitter, trmi_account *account,
                              const trm_admission *rule, uint64_t seed, uint32_t shards,
                              const char *table, trm_error *err);
void trmi_admitter_free(trmi_admitter *admitter);
int64_t trmi_admitter_bytes(const trmi_admitter *admitter);
/* A push names an absent key: counts it, and says whether it gets a row now. */
bool trmi_admit(trmi_admitter *admitter, uint64_t key, uint32_t tick);
/* A count from a checkpoint. */
void trmi_admitter_restore(trmi_admitter *admitter, const trmi_waiting *entry);

#endif
