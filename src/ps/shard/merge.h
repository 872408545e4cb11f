/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/merge.h: sums the gradients of several workers by key.
 *
 *      plain             in the order of the sections, which is that of the workers
 *      nodes of a tree   in the order of the tree of all workers' blocks (base/tree.h): the bits do not
 *                        depend on how many workers there are */
#ifndef TRMI_PS_MERGE_H
#define TRMI_PS_MERGE_H

#include "ps/table/account.h"
#include "ps/wire/codec.h"

typedef struct trmi_merge trmi_merge;
/* Creates the working memory, within the budget of `account`.
 *   errors  NOMEM */
trm_status trmi_merge_create(trmi_account *account, trmi_merge **out, trm_error *err);
void trmi_merge_destroy(trmi_merge *merge);
/* Sections of one table. */
typedef struct trmi_merge_parts {
    trmi_ps_section *sections;
    uint32_t count;
    trm_dtype dtype; /* of the values */
    int32_t width;
    int64_t nodes; /* of the tree in which sections with a node are added */
} trmi_merge_parts;
/* Sums gradients by key over sections of one table. With nodes of a tree (all sections have one,
 * and values are float32) the sections are sorted, and a key whose sum is zero is left out, as the
 * optimiser of one device leaves a row without a gradient alone.
 *   shape  out: keys[count], values[count][width], valid until the next call
 *   errors  NOMEM, INVALID (some sections have a node and others not, or two have the same) */
trm_status trmi_merge_sum(trmi_merge *merge, const trmi_merge_parts *parts, trmi_ps_section *out,
                          trm_error *err);

#endif
