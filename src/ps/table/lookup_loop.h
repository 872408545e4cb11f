/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/lookup_loop.h: the loop of ps/table/lookup.h, for the instruction set of the file that
 * includes it. All of it is inlined into its callers there. */
#ifndef TRMI_PS_LOOKUP_LOOP_H
#define TRMI_PS_LOOKUP_LOOP_H

#include "ps/table/lookup.h"

#include "base/cpu.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define TRMI_ALWAYS static inline __attribute__((always_inline))

enum {
    TRMI_GROUP = 8,         /* keys whose homes are found together */
    TRMI_AHEAD = 48,        /* keys between two stages, */
    TRMI_AHEAD_LINES = 192, /* fewer when records between them would fill the first-level cache */
    TRMI_RING = 128,        /* places that are known and not yet read, of both stages */
    TRMI_FAR_KEYS = 64,
    TRMI_LINES_MAX = 32, /* of a record: the rest of a longer one is a stream that the core sees */
    TRMI_LARGE_BYTES = 16 << 20, /* not in any cache */
    TRMI_NEAR_LINES =
        2 /* a record of so many lines is asked for before it is known to be the right one */
};
_Static_assert((TRMI_RING & (TRMI_RING - 1)) == 0 && TRMI_RING >= 2 * TRMI_AHEAD + TRMI_GROUP,
               "the ring holds what is under way");

/* What the loop needs of the rows, in registers. */
typedef struct trmi_look {
    const trmi_directory_entry *directory;
    uint32_t shift; /* of a hash without its virtual bucket, to a directory entry */
    size_t stride;
    uint32_t key_offset, guide_offset;
    uint32_t record_lines;
    bool large; /* than caches: a key that is not at home is a surprise worth its price */
    bool near;  /* prefetches aim at the first-level cache */
} trmi_look;

/* The commonest forms have loops of their own: of records of so many lines, in large tables and in
 * others. */
TRMI_ALWAYS trmi_look trmi_look_as(trmi_look l, uint32_t record_lines, bool large) {
    l.record_lines = record_lines;
    l.large = large;
    return l;
}

TRMI_ALWAYS trmi_look trmi_look_at(const trmi_rows *rows) {
    return (trmi_look){.directory = rows->directory,
                       .shift = 63 - rows->depth,
                       .stride = rows->stride,
                       .key_offset = rows->key_offset,
                       .guide_offset = rows->guide_offset,
                       .record_lines = (rows->stride + 63) / 64,
                       .large = rows->count * rows->stride > TRMI_LARGE_BYTES,
                       .near = trmi_cpu()->amd};
}

TRMI_ALWAYS char *trmi_look_home(trmi_look l, uint64_t hash) {
    const trmi_directory_entry *entry =
        &l.directory[hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> l.shift];
    return entry->base + trmi_rows_home(hash, entry->places) * l.stride;
}

TRMI_ALWAYS void trmi_ask_line(trmi_look l, const void *line) {
    if (l.near) {
        __builtin_prefetch(line, 0, 3);
    } else {
        __builtin_prefetch(line, 0, 2);
    }
}

TRMI_ALWAYS void trmi_ask_lines(trmi_look l, const char *record, uint32_t lines) {
    for (uint32_t line = 0; line < lines; line++) {
        trmi_ask_line(l, record + 64 * (size_t)line);
    }
}

/* What says whose record it is: of a short one all. */
TRMI_ALWAYS void trmi_ask_place(trmi_look l, const char *place) {
    if (l.record_lines <= TRMI_NEAR_LINES) {
        trmi_ask_lines(l, place, l.record_lines);
    } else {
        trmi_ask_line(l, place + l.key_offset);
        trmi_ask_line(l, place + l.guide_offset);
    }
}

/* First stage: the homes of TRMI_GROUP keys, and the last bits of their hashes. */
TRMI_ALWAYS void trmi_aim(trmi_look l, const uint64_t *keys, char **places, uint8_t *tags) {
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
        trmi_ask_place(l, places[k]);
    }
}

/* Second stage: the place of a key, perhaps: its home, or the one that its home names. In a large
 * table whether it is at home is a branch: foreseen, it makes the rest of the loop independent of
 * the line that has to say so. In a small one the line is there, and mistakes would cost more. */
TRMI_ALWAYS char *trmi_look_locate(trmi_look l, uint32_t lines, uint64_t key, uint8_t tag,
                                   char *home) {
    uint64_t found, guide;
    char *place = home;
    memcpy(&found, home + l.key_offset, sizeof found);
    if (!l.large || __builtin_expect(found != key, 0)) {
        memcpy(&guide, home + l.guide_offset, sizeof guide);
        place += (trmi_guide_look(guide, tag) & -(int64_t)(found != key)) * (int64_t)l.stride;
        trmi_ask_place(l, place);
    }
    if (l.record_lines > TRMI_NEAR_LINES) {
        trmi_ask_lines(l, place, lines);
    }
    return place;
}

/* Third stage: work on one record. */
typedef void (*trmi_visit)(void *context, int64_t i, char *record);

/* Visits keys in order, by whole groups; those whose records are neither at home nor where the
 * first name that looks right says visit `elsewhere`, and are listed in absent[count], as are the
 * last ones that fill no group. Returns how many they are. */
TRMI_ALWAYS int64_t trmi_fly(trmi_look l, uint32_t lines, const uint64_t *keys, int64_t count,
                             char *elsewhere, int32_t *absent, trmi_visit visit, void *context) {
    char *places[TRMI_RING];
    uint8_t tags[TRMI_RING];
    const uint32_t asked = l.record_lines <= TRMI_NEAR_LINES ? l.record_lines : lines + 1;
    const int64_t fitting = TRMI_AHEAD_LINES / asked / TRMI_GROUP * TRMI_GROUP;
    const int64_t ahead = fitting < TRMI_GROUP   ? TRMI_GROUP
                          : fitting < TRMI_AHEAD ? fitting
                                                 : TRMI_AHEAD;
    const int64_t end = count / TRMI_GROUP * TRMI_GROUP;
    int64_t absent_count = 0;
    for (int64_t first = -2 * ahead; first < end; first += TRMI_GROUP) {
        const int64_t aim = first + 2 * ahead, locate = first + ahead;
        if (aim < end) {
            trmi_aim(l, keys + aim, &places[(uint64_t)aim % TRMI_RING],
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
            __asm__("" : "+r"(record)); /* chosen without a branch */
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

/* keys[positions[k]] that trmi_fly did not meet: visits those that have records. Returns how many
 * have none; positions[] then has theirs. */
TRMI_ALWAYS int64_t trmi_fly_far(trmi_look l, const trmi_rows *rows, const uint64_t *keys,
                                 int32_t *positions, int64_t count, trmi_visit visit,
                                 void *context) {
    int64_t absent = 0;
    for (int64_t first = 0; first < count; first += TRMI_FAR_KEYS) {
        int64_t end = count - first < TRMI_FAR_KEYS ? count : first + TRMI_FAR_KEYS;
        for (int64_t k = first; k < end; k++) {
            trmi_ask_place(l, trmi_look_home(l, trmi_key_hash(keys[positions[k]])));
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
