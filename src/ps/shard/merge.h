/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/merge.h: sums the gradients of several workers by key. */
#ifndef TRMI_PS_MERGE_H
#define TRMI_PS_MERGE_H

#include "ps/table/account.h"
#include "ps/wire/codec.h"

typedef struct trmi_merge trmi_merge;
/* Creates the working memory, within the budget of `account`.
 *   errors  NOMEM */
trm_status trmi_merge_create(trmi_account *account, trmi_merge **out, trm_error *err);
void trmi_merge_destroy(trmi_merge *merge);
/* Sums gradients by key over sections of one table, in the order of the sections.
 *   shape  *keys[*count], *values[*count][width], valid until the next call
 *   errors  NOMEM */
trm_status trmi_merge_sum(trmi_merge *merge, const trmi_ps_section *sections,
                          uint32_t section_count, trm_dtype dtype, int32_t width, uint64_t **keys,
                          float **values, int64_t *count, trm_error *err);

#endif
