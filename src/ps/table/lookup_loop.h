/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/lookup_loop.h: the loop of lookup.h, whose three stages are drawn there, for the
 * instruction set of the file that includes it. All functions are inlined into their callers there.
 *
 * The loop only reads, unless the caller's visit writes to the record that it gets. Absent keys are
 * listed in rising order of their positions. Keys are worked on in groups; the last few that fill
 * no group, and those that a guide confused, go through trmi_fly_far. */
#ifndef TRMI_PS_LOOKUP_LOOP_H
#define TRMI_PS_LOOKUP_LOOP_H

#include "ps/table/lookup.h"

#include "base/cpu.h"
#include "base/inline.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

enum {
    TRMI_GROUP = 8,         /* keys whose homes are computed together */
    TRMI_AHEAD = 48,        /* keys between two stages; */
    TRMI_AHEAD_LINES = 192, /* fewer if their records would fill the first-level cache */
    TRMI_RING = 128,        /* ring of places under way, for both stages */
    TRMI_FAR_KEYS = 64,
    TRMI_LINES_MAX = 32, /* prefetched lines of a record; the hardware prefetches the rest */
    TRMI_LARGE_BYTES = 16 << 20, /* rows in larger tables are in no cache */
    TRMI_NEAR_LINES =
        2 /* records of at most so many lines are requested before the key is verified */
};
_Static_assert((TRMI_RING & (TRMI_RING - 1)) == 0 && TRMI_RING >= 2 * TRMI_AHEAD + TRMI_GROUP,
               "the ring holds what is under way");

/* Members of trmi_rows that the loop needs, in registers. */
typedef struct trmi_look {
    const trmi_directory_entry *directory;
    uint32_t shift; /* of a hash without its virtual bucket, to a directory entry */
    size_t stride;
    uint32_t key_offset, guide_offset;
    uint32_t record_lines;
    bool large; /* table larger than the caches: "at home" is a predicted branch */
    bool near;  /* prefetches aim at the first-level cache */
} trmi_look;

/* Returns `l` with constant values, so that the most common forms get specialised loops. */
TRMI_INLINE trmi_look trmi_look_as(trmi_look l, uint32_t record_lines, bool large) {
    l.record_lines = record_lines;
    l.large = large;
    return l;
}

/* Returns the members for these rows. */
TRMI_INLINE trmi_look trmi_look_at(const trmi_rows *rows) {
    return (trmi_look){.directory = rows->directory,
                       .shift = 63 - rows->depth,
                       .stride = rows->stride,
                       .key_offset = rows->key_offset,
                       .guide_offset = rows->guide_offset,
                       .record_lines = (rows->stride + 63) / 64,
                       .large = rows->count * rows->stride > TRMI_LARGE_BYTES,
                       .near = trmi_cpu()->amd};
}

/* Returns the home place of a hash. */
TRMI_INLINE char *trmi_look_home(trmi_look l, uint64_t hash) {
    const trmi_directory_entry *entry =
        &l.directory[hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> l.shift];
    return entry->base + trmi_rows_home(hash, entry->places) * l.stride;
}

/* Prefetches one cache line. */
TRMI_INLINE void trmi_prefetch_line(trmi_look l, const void *line) {
    if (l.near) {
        __builtin_prefetch(line, 0, 3);
    } else {
        __builtin_prefetch(line, 0, 2);
    }
}

/* Prefetches the first lines of a record. */
TRMI_INLINE void trmi_prefetch_lines(trmi_look l, const char *record, uint32_t lines) {
    for (uint32_t line = 0; line < lines; line++) {
        trmi_prefetch_line(l, record + 64 * (size_t)line);
    }
}

/* Prefetches the lines with key and guide; all lines of a short record. */
TRMI_INLINE void trmi_prefetch_place(trmi_look l, const char *place) {
    if (l.record_lines <= TRMI_NEAR_LINES) {
        trmi_prefetch_lines(l, place, l.record_lines);
    } else {
        trmi_prefetch_line(l, place + l.key_offset);
        trmi_prefetch_line(l, place + l.guide_offset);
    }
}

/* Finds, as the first stage, the homes of TRMI_GROUP keys, and the low byte of their hashes. */
TRMI_INLINE void trmi_prefetch_group(trmi_look l, const uint64_t *keys, char **places,
                                     uint8_t *tags) {
#if defined(__AVX512F__)
    __m512i z = _mm512_loadu_si512(keys); /* as trmi_key_hash */
    z = _mm512_add_epi64(z, _mm512_set1_epi64((long long)0x9E3779B97F4A7C15u));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 30)),
                           _mm512_set1_epi64((long long)0xBF58476D1CE4E5B9u));
    z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 27)),
                           _mm512_set1_epi64((long long)0x94D049BB133111EBu));
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
    __m512i page = _mm512_srli_epi64(_mm512_slli_epi64(z, TRMI_VIRTUAL_BUCKETS_LOG2), 1);
    page = _mm512_srl_epi64(page, _mm_cvtsi32_si128((int)l.shift));
    page = _mm512_slli_epi64(page, 1); /* an entry is two words: base; places and page */
    __m512i base = _mm512_i64gather_epi64(page, (const void *)l.directory, 8);
    __m512i count = _mm512_i64gather_epi64(page, (const void *)&l.directory->places, 8);
    __m512i place = _mm512_srli_epi64(_mm512_mul_epu32(z, count), 32);
    __m512i offset = _mm512_mul_epu32(place, _mm512_set1_epi64((long long)l.stride));
    _mm512_storeu_si512((void *)places, _mm512_add_epi64(base, offset));
    _mm_storel_epi64((__m128i *)(void *)tags, _mm512_cvtepi64_epi8(z));
#else
    for (int k = 0; k < TRMI_GROUP; k++) {
        uint64_t hash = trmi_key_hash(keys[k]);
        places[k] = trmi_look_home(l, hash);
        tags[k] = (uint8_t)hash;
    }
#endif
    for (int k = 0; k < TRMI_GROUP; k++) {
        trmi_prefetch_place(l, places[k]);
    }
}

/* Second stage: the probable place of a key: its home, or the one that the home's guide names.
 * In a large table the test "at home" is a branch: when predicted, the rest of the loop does not
 * depend on the line that confirms it. In a small table the line is in a cache, and
 * mispredictions would cost more. */
TRMI_INLINE char *trmi_look_locate(trmi_look l, uint32_t lines, uint64_t key, uint8_t tag,
                                   char *home) {
    uint64_t found, guide;
    char *place = home;
    memcpy(&found, home + l.key_offset, sizeof found);
    if (!l.large || __builtin_expect(found != key, 0)) {
        memcpy(&guide, home + l.guide_offset, sizeof guide);
        place += (trmi_guide_look(guide, tag) & -(int64_t)(found != key)) * (int64_t)l.stride;
        trmi_prefetch_place(l, place);
    }
    if (l.record_lines > TRMI_NEAR_LINES) {
        trmi_prefetch_lines(l, place, lines);
    }
    return place;
}

/* Third stage: work on one record. */
typedef void (*trmi_visit)(void *context, int64_t i, char *record);

/* Visits the records of keys in order, by whole groups. A key whose record is neither at home
 * nor at the first place that the guide suggests visits `elsewhere` and is listed in
 * absent[count], as are the last keys that fill no group. Returns how many are listed. */
TRMI_INLINE int64_t trmi_lookup_run(trmi_look l, uint32_t lines, const uint64_t *keys,
                                    int64_t count, char *elsewhere, int32_t *absent,
                                    trmi_visit visit, void *context) {
    char *places[TRMI_RING];
    uint8_t tags[TRMI_RING];
    const uint32_t prefetched = l.record_lines <= TRMI_NEAR_LINES ? l.record_lines : lines + 1;
    const int64_t fitting = TRMI_AHEAD_LINES / prefetched / TRMI_GROUP * TRMI_GROUP;
    const int64_t ahead = fitting < TRMI_GROUP   ? TRMI_GROUP
                          : fitting < TRMI_AHEAD ? fitting
                                                 : TRMI_AHEAD;
    const int64_t end = count / TRMI_GROUP * TRMI_GROUP;
    int64_t absent_count = 0;
    for (int64_t first = -2 * ahead; first < end; first += TRMI_GROUP) {
        const int64_t aim = first + 2 * ahead, locate = first + ahead;
        if (aim < end) {
            trmi_prefetch_group(l, keys + aim, &places[(uint64_t)aim % TRMI_RING],
                                &tags[(uint64_t)aim % TRMI_RING]);
        }
        char **place = &places[(uint64_t)locate % TRMI_RING];
        for (int k = 0; locate >= 0 && locate < end && k < TRMI_GROUP; k++) {
            place[k] = trmi_look_locate(l, lines, keys[locate + k],
                                        tags[(uint64_t)locate % TRMI_RING + (uint64_t)k], place[k]);
        }
        place = &places[(uint64_t)first % TRMI_RING];
        for (int k = 0; first >= 0 && k < TRMI_GROUP; k++) {
            bool right = trmi_place_holds(place[k], l.key_offset, l.guide_offset, keys[first + k]);
            char *record = right ? place[k] : elsewhere;
            __asm__("" : "+r"(record)); /* keeps the selection free of branches */
            absent[absent_count] = (int32_t)first + k;
            absent_count += !right;
            visit(context, first + k, record);
        }
    }
    for (int64_t i = end; i < count; i++) {
        absent[absent_count++] = (int32_t)i;
    }
    return absent_count;
}

/* Visits the records of keys[positions[k]], which trmi_lookup_run did not find. Returns how many
 * keys have none; positions[] then lists those. */
TRMI_INLINE int64_t trmi_fly_far(trmi_look l, const trmi_rows *rows, const uint64_t *keys,
                                 int32_t *positions, int64_t count, trmi_visit visit,
                                 void *context) {
    int64_t absent = 0;
    for (int64_t first = 0; first < count; first += TRMI_FAR_KEYS) {
        int64_t end = count - first < TRMI_FAR_KEYS ? count : first + TRMI_FAR_KEYS;
        for (int64_t k = first; k < end; k++) {
            trmi_prefetch_place(l, trmi_look_home(l, trmi_key_hash(keys[positions[k]])));
        }
        for (int64_t k = first; k < end; k++) {
            const int32_t position = positions[k];
            char *record = trmi_rows_find(rows, keys[position]);
            if (record != NULL) {
                visit(context, position, record);
            } else {
                positions[absent++] = position;
            }
        }
    }
    return absent;
}

#endif
