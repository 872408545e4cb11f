/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/lookup.h: finds the records of many keys at a time.
 *
 *     key i + 96   hash, prefetch its home; eight keys at once
 *     key i + 48   not at home? then prefetch the place that the home's guide names
 *     key i        the caller's work, if it is the right record: its cache lines have arrived
 *
 * The cost of a table compared with a plain array is the number of cache lines that a core
 * requests from memory: a core can have only so many requests outstanding (AMD family 26: a
 * plain gather takes 5.1 ns a row, two lines 512 bytes apart 8 ns, two adjacent lines 5.8 ns).
 * Next come instructions, and work that comes in bursts. Therefore all three stages are one loop
 * over keys (lookup_loop.h), into which the caller's work is inlined. Whether a key is at home
 * is deliberately a branch: when it is predicted, the rest of the loop does not depend on the
 * line that confirms it. The few keys without a record, and those that the seven bits of a guide
 * confuse, are handled afterwards. Prefetches go to the second-level cache where that can have
 * more requests outstanding than the first level (Intel), else to the first level.
 *
 * Measured limits. 8 million rows of 64 bytes take 1.6 GB (201 bytes a row; plain: 0.5 GB), and
 * a lookup visits 1.26 places. One run, million rows/s: plain gather 206 (32 ahead; 265 with 96
 * ahead), one line a key anywhere in the 1.6 GB 174, the two lines of a home 161, this loop 115;
 * with all keys at home 131. Homes and tags of eight keys cost 1 ns a key. By stage, ns a row:
 * homes, both lines requested, row copied, nothing verified 5.0; with key and guide read 6.3;
 * with a quarter of the keys elsewhere (one branch in four mispredicted) 7.9. Updates: all in
 * the second-level cache 8.6 ns a row, without keys elsewhere and verification 5.0, without
 * hashing too 2.6; in memory 16, 10 and 6.
 *
 * Tried without gain: other distances; blocks of 16 to 256 keys with a branch-free list of
 * misses; all three stages in vectors; requesting only the key's line of a home first (0.49 to
 * 0.51 of a gather instead of 0.61); records of 192 bytes (the same speed). Fewer keys away from
 * home would help most. A byte for each 16 places that permutes the homes among them, so that
 * few keys collide, was simulated: with that byte requested one stage earlier, reads were 1.3 to
 * 1.5 times and updates 1.6 times as fast in a table of 8 million rows (0.8 MB of such bytes; a
 * byte for each 4 places or for each place loses more than it gains). Implemented with the byte
 * read where homes are found, it was slower (reads 0.69 -> 0.50 of a gather, updates 0.46 ->
 * 0.30), so it is not used. */
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
