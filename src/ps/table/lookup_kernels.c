/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/lookup_kernels.c: finding and reading records, with the loop of lookup_loop.h; compiled
 * for each instruction set (base/simd/isa.h). AVX-512 computes eight homes at a time. */
#include "ps/table/lookup_loop.h"

#include "base/simd/isa.h"

/* The work of `find`: records are noted. */
typedef struct finding {
    char **records;
} finding;

TRMI_INLINE void note_record(void *context, int64_t i, char *record) {
    ((finding *)context)->records[i] = record;
}

/* trmi_lookup.find: first the loop, then the keys that it did not find. */
static void find_records(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
                         char **records) {
    const trmi_look l = trmi_look_at(rows);
    finding f = {records};
    int32_t absent[TRMI_LOOKUP_KEYS];
    lines = lines < TRMI_LINES_MAX ? lines : TRMI_LINES_MAX;
    int64_t absent_count = trmi_lookup_run(l, lines, keys, count, NULL, absent, note_record, &f);
    absent_count = trmi_fly_far(l, rows, keys, absent, absent_count, note_record, &f);
    for (int64_t k = 0; k < absent_count; k++) {
        records[absent[k]] = NULL;
    }
}

/* The work of `read`: values are copied. */
typedef struct reading {
    char *out;
    uint32_t bytes;
} reading;

enum { OUT_AHEAD = 32 }; /* rows to prefetch for writing: another CPU may have read them last */

TRMI_INLINE void copy_record(void *context, int64_t i, char *record) {
    const reading *r = context;
    __builtin_prefetch(r->out + (i + OUT_AHEAD) * r->bytes, 1, 3);
    memcpy(r->out + i * r->bytes, record, r->bytes);
}

/* Copies records; a key that is not found at once gets the first bytes of `out`, until it is
 * found. */
TRMI_INLINE int64_t read_bytes(const trmi_rows *rows, trmi_look l, uint32_t bytes,
                               const uint64_t *keys, int64_t count, char *out, int32_t *absent) {
    const uint32_t all = (bytes + 63) / 64, lines = all < TRMI_LINES_MAX ? all : TRMI_LINES_MAX;
    reading r = {out, bytes};
    int64_t absent_count = trmi_lookup_run(l, lines, keys, count, out, absent, copy_record, &r);
    return trmi_fly_far(l, rows, keys, absent, absent_count, copy_record, &r);
}

/* trmi_lookup.read, with loops of their own for rows of 64 bytes in records of two lines. */
static int64_t read_records(const trmi_rows *rows, uint32_t bytes, const uint64_t *keys,
                            int64_t count, char *out, int32_t *absent) {
    const trmi_look l = trmi_look_at(rows);
    if (bytes == 64 && l.record_lines == 2) {
        return l.large ? read_bytes(rows, trmi_look_as(l, 2, true), 64, keys, count, out, absent)
                       : read_bytes(rows, trmi_look_as(l, 2, false), 64, keys, count, out, absent);
    }
    return read_bytes(rows, l, bytes, keys, count, out, absent);
}

const trmi_lookup TRMI_FOR_ISA(trmi_lookup) = {find_records, read_records};
