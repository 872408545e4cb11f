/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/account.h: the hard memory budget of a shard. All memory of its tables is charged here
 * before it is taken; what does not fit is refused and the caller makes room or does without. */
#ifndef TRMI_PS_ACCOUNT_H
#define TRMI_PS_ACCOUNT_H

#include "trireme/base.h"

typedef struct trmi_account {
    int64_t limit; /* bytes; INT64_MAX = none */
    int64_t used, peak;
    int64_t refusals;
} trmi_account;

/* Zeroed memory, NULL when the budget or the machine has none.   thread  the shard's owner */
void *trmi_account_alloc(trmi_account *account, size_t bytes);
/* `bytes` as given to alloc; NULL memory is fine. */
void trmi_account_free(trmi_account *account, void *memory, size_t bytes);
/* What a block really takes: rounded to 64 bytes, and to a page for large ones. */
int64_t trmi_account_charge(size_t bytes);

#endif
