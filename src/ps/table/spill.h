/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/spill.h: cold rows of a table in a file. The file has no name and vanishes with the
 * process. A row there keeps its place in an index in memory, so that a push brings it back
 * complete. */
#ifndef TRMI_PS_SPILL_H
#define TRMI_PS_SPILL_H

#include "ps/table/account.h"

typedef struct trmi_spill trmi_spill;

/* Creates a file in `folder` for records of `record_bytes`, at most `limit_bytes` long (0: no
 * limit).
 *   errors  IO, NOMEM */
trm_status trmi_spill_create(const char *folder, uint32_t record_bytes, int64_t limit_bytes,
                             trmi_account *account, trmi_spill **out, trm_error *err);
/* Closes the file. NULL is accepted. */
void trmi_spill_destroy(trmi_spill *spill);
/* Writes a record; *slot: its place.
 *   errors  NOSPACE: the file is full; IO */
trm_status trmi_spill_put(trmi_spill *spill, const void *record, uint32_t *slot, trm_error *err);
/* Reads a record.
 *   errors  IO */
trm_status trmi_spill_get(trmi_spill *spill, uint32_t slot, void *record, trm_error *err);
/* Frees a place. */
void trmi_spill_drop(trmi_spill *spill, uint32_t slot);

#endif
