/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/spill.h: cold rows in a file. The file has no name (it goes with the process); a row
 * there keeps its place in the index, so that a push brings it back whole. */
#ifndef TRMI_PS_SPILL_H
#define TRMI_PS_SPILL_H

#include "ps/table/account.h"

typedef struct trmi_spill trmi_spill;

/* A file in `folder` for records of `record_bytes`, at most `limit_bytes` long (0 = no limit).
 *   errors  IO, NOMEM */
trm_status trmi_spill_create(const char *folder, uint32_t record_bytes, int64_t limit_bytes,
                             trmi_account *account, trmi_spill **out, trm_error *err);
void trmi_spill_destroy(trmi_spill *spill);
/* Writes a record; its place in *slot. NOSPACE when the file is full, NOMEM when the budget cannot
 * hold the list of places. */
trm_status trmi_spill_put(trmi_spill *spill, const void *record, uint32_t *slot, trm_error *err);
trm_status trmi_spill_get(trmi_spill *spill, uint32_t slot, void *record, trm_error *err);
void trmi_spill_drop(trmi_spill *spill, uint32_t slot);

#endif
