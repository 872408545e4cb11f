/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/lookup.h: from keys to records, many at a time.
 *
 *   key i + 96   hash, prefetch its home; eight keys at once
 *   key i + 48   not there? then prefetch the place that the home's guide names
 *   key i        the caller's work, if that is its record: its lines have arrived
 *
 * What a table costs beside a plain array is the number of lines that a core has to ask memory for:
 * it waits for so many at a time and no more (on AMD's family 26, where a plain gather takes 5.1 ns
 * a row, 8 ns for two lines of 512 bytes, but 5.8 ns for two that make 128), then instructions, and
 * work that comes in bursts. So all three stages are one loop over keys (lookup_loop.h), into which
 * the work is inlined. Whether a key is at home is a branch, on purpose: foreseen, it makes the
 * rest of the loop independent of the line that has to say so. The few keys that have no record, or
 * are taken for others by the seven bits of a guide, come afterwards. Prefetches aim at the
 * second-level cache where that can wait for many more lines at once than the first (Intel's), else
 * at the first.
 *
 * What is left is memory's, not the loop's: 8 million rows of 64 bytes are 1.6 GB here (201 bytes a
 * row), 0.5 GB plain, and a look-up visits 1.26 places. One run, rows/s: plain 206 M (as bench ps,
 * 32 ahead; 265 M 96 ahead), one line a key anywhere in these 1.6 GB 174 M, the two of a home 161
 * M, this loop 115 M; where all keys are at home 131 M. Homes and tags of eight keys cost 1 ns a
 * key. Tried in that run, and no better: other distances, blocks of 16 to 256 keys whose misses are
 * listed without a branch, all three stages in vectors, only the key's line of a home asked for
 * first (0.49 to 0.51 of a gather instead of 0.61). Fewer keys elsewhere would help most. Measured
 * stage by stage, ns a row in one run (a copying gather 5.1): homes, both lines asked for, the row
 * copied, nothing verified 5.0; its key and guide read 6.3; a quarter of the keys looked for
 * elsewhere, one in four a branch not foreseen, 7.9. Fewer bytes are no help (records of 192 bytes:
 * the same). Updates: all in the second-level cache 8.6 ns a row, without keys elsewhere and
 * without verifying 5.0, without hashing too 2.6; in memory 16, 10 and 6. A byte for each 16 places
 * that permutes the homes among them, so that few of their keys collide, and that is asked for one
 * stage earlier, was simulated beside it: reads 1.3 to 1.5 times as fast, updates 1.6 times, in a
 * table of 8 million rows (0.8 MB of such bytes); a byte for each 4 places (3 MB) or one (13 MB)
 * loses more than it gains. It is not in: made as pages grow (rows that come later lie where they
 * find room), and read where homes are found instead of one stage earlier, it was slower in turns
 * with this loop: reads 0.69 -> 0.50 of a gather, updates 0.46 -> 0.30. The byte has to be asked
 * for beforehand. */
#ifndef TRMI_PS_LOOKUP_H
#define TRMI_PS_LOOKUP_H

#include "ps/table/rows.h"

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
