/* ps/lookup.h: from keys to records, many at a time.
 *
 *   key i + 128   hash, prefetch its bucket's head; eight keys at once
 *   key i + 64    compare the bucket's 7 keys at once, prefetch the record
 *   key i         the caller's work: its lines have arrived
 *
 * What a table costs beside a plain array is not the second line, which lies in the same page as the
 * first, but what keeps the core from asking memory for more: waiting, instructions, work that comes in
 * bursts, and translations of addresses, more in a larger table (where a virtual machine's host has
 * small pages, two thirds of the time at 1.6 GB). So all three stages are one loop over keys
 * (lookup_loop.h), into which the work is inlined, without a branch that cannot be foreseen; the few
 * keys that are not in their first bucket come afterwards, 64 at a time. Prefetches aim at the
 * second-level cache where that can wait for many more lines at once than the first (Intel's), else at
 * the first. */
#ifndef TRMI_PS_LOOKUP_H
#define TRMI_PS_LOOKUP_H

#include "ps/rows.h"

enum { TRMI_LOOKUP_KEYS = 4096 }; /* at most, of one call */

/* What one instruction set has. */
typedef struct trmi_lookup {
    /* records[count] of keys[count], NULL for absent keys. Prefetches `lines` lines of each. */
    void (*find)(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
                 char **records);
    /* out[count][bytes] = the first bytes of each record. Returns how many keys are absent; their
     * positions are in absent[count], in order, and their rows in `out` undefined. */
    int64_t (*read)(const trmi_rows *rows, uint32_t bytes, const uint64_t *keys, int64_t count,
                    char *out, int32_t *absent);
} trmi_lookup;

extern const trmi_lookup trmi_lookup_plain;
#if defined(__x86_64__)
extern const trmi_lookup trmi_lookup_avx2, trmi_lookup_avx512;
#endif
/* The best that this CPU has. */
const trmi_lookup *trmi_lookup_here(void);

#endif
