/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/account.h: the hard memory budget of a shard. All memory of its tables is charged
 * before it is allocated. An allocation that does not fit is refused; the caller makes room or
 * works without it. */
#ifndef TRMI_PS_ACCOUNT_H
#define TRMI_PS_ACCOUNT_H

#include "trireme/base.h"

/* A budget and its use. */
typedef struct trmi_account {
    int64_t limit; /* bytes; INT64_MAX: no limit */
    int64_t used, peak;
    int64_t refusals;
} trmi_account;

/* Returns zeroed memory, NULL if budget or machine have none.
 *   threads  the shard's owner */
void *trmi_account_alloc(trmi_account *account, size_t bytes);
/* Frees memory and its charge; `bytes` as given to alloc. NULL memory is accepted. */
void trmi_account_free(trmi_account *account, void *memory, size_t bytes);
/* Returns what a block of `bytes` really uses: rounded up to 64 bytes, large blocks to pages. */
int64_t trmi_account_charge(size_t bytes);

#endif
