/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/lookup.h: finds the records of many keys at a time.
 *
 *     key i + 96   hash, prefetch its home; eight keys at once
 *     key i + 48   not at home? then prefetch the place that the home's guide names
 *     key i        the caller's work, if it is the right record: its cache lines have arrived
 *
 * A lookup costs as many cache lines as a core requests from memory, and a core can have only so
 * many requests outstanding. Therefore all three stages are one loop over keys (lookup_loop.h),
 * into which the caller's work is inlined. Whether a key is at home is deliberately a branch: when
 * it is predicted, the rest of the loop does not depend on the line that confirms it. The few keys
 * without a record, and those that the seven bits of a guide confuse, are handled afterwards.
 * Prefetches go to the second-level cache where that can have more requests outstanding than the
 * first level (Intel), else to the first level. docs/internals/notes/row-tables.md has the measured
 * limits, and what was tried. */
#ifndef TRMI_PS_LOOKUP_H
#define TRMI_PS_LOOKUP_H

#include "ps/table/rows.h"

enum { TRMI_LOOKUP_KEYS = 4096 }; /* largest number of keys of one call */

/* The lookups of one instruction set. */
typedef struct trmi_lookup {
    /* Finds records[count] of keys[count], NULL for absent keys. Prefetches `lines` cache lines
     * of each. */
    void (*find)(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
                 char **records);
    /* Copies the first `bytes` bytes of each record to out[count][bytes]. Returns how many keys
     * are absent; their positions are in absent[count], in order, and their rows in `out` are
     * undefined. */
    int64_t (*read)(const trmi_rows *rows, uint32_t bytes, const uint64_t *keys, int64_t count,
                    char *out, int32_t *absent);
} trmi_lookup;

extern const trmi_lookup trmi_lookup_plain;
#if defined(__x86_64__)
extern const trmi_lookup trmi_lookup_avx2, trmi_lookup_avx512;
#endif
/* Returns the best lookups for this CPU. */
const trmi_lookup *trmi_lookup_here(void);

#endif
