/* ps/lookup.h: from keys to records, many at a time.
 *
 *   aim (chunk c + 2)  hash, prefetch the bucket's head
 *   locate (c + 1)     compare 7 keys at once, prefetch the record
 *   caller (c)         works on records whose lines have arrived
 *
 * Prefetches aim at the second-level cache: it can wait for many more lines at once than the first.
 */
#ifndef TRMI_PS_LOOKUP_H
#define TRMI_PS_LOOKUP_H

#include "ps/rows.h"

enum { TRMI_LOOKUP_CHUNK = 32 };

/* Heads and records of the chunks in flight; on the caller's stack. */
typedef struct trmi_flight {
    const trmi_bucket *head[3][TRMI_LOOKUP_CHUNK];
    char *record[2][TRMI_LOOKUP_CHUNK];
} trmi_flight;

/* records[count] of keys[count] (at most a chunk) whose buckets are in heads[count]; NULL for
 * absent keys. Prefetches the first `lines` lines of each. */
typedef void (*trmi_locate)(const trmi_rows *rows, uint32_t lines, const uint64_t *keys,
                            int64_t count, const trmi_bucket *const *heads, char **records);

void trmi_locate_plain(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
                       const trmi_bucket *const *heads, char **records);
#if defined(__x86_64__)
void trmi_locate_avx2(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
                      const trmi_bucket *const *heads, char **records);
void trmi_locate_avx512(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
                        const trmi_bucket *const *heads, char **records);
#endif
trmi_locate trmi_locate_here(void);

/* Finds and prefetches the buckets of keys[count]. */
void trmi_aim(const trmi_rows *rows, const uint64_t *keys, int64_t count,
              const trmi_bucket **heads);

/* Chunk number `chunk` of keys[total]: its records, in flight->record[chunk & 1]. Call with 0, 1, 2
 * ...; returns how many, 0 at the end. */
int64_t trmi_flight_next(trmi_flight *flight, const trmi_rows *rows, trmi_locate locate,
                         uint32_t lines, const uint64_t *keys, int64_t total, int64_t chunk);

#endif
