/* ps/lookup_loop.h: the loop of ps/lookup.h, for the instruction set of the file that includes it.
 * All of it is inlined into its callers there. */
#ifndef TRMI_PS_LOOKUP_LOOP_H
#define TRMI_PS_LOOKUP_LOOP_H

#include "ps/lookup.h"

#include "base/cpu.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define TRMI_ALWAYS static inline __attribute__((always_inline))

enum {
    TRMI_GROUP = 8,         /* keys whose buckets are found together */
    TRMI_AHEAD = 64,        /* keys between two stages, */
    TRMI_AHEAD_LINES = 256, /* fewer when records between them would fill the first-level cache */
    TRMI_RING = 2 * TRMI_AHEAD,
    TRMI_FAR_KEYS = 64,
    TRMI_LINES_MAX = 32 /* of a record: the rest of a longer one is a stream that the core sees */
};

/* The slots whose keys are equal. */
TRMI_ALWAYS unsigned trmi_match(const trmi_bucket *bucket, uint64_t key) {
    unsigned mask = 0;
#if defined(__AVX512F__)
    mask = _mm512_cmpeq_epi64_mask(_mm512_load_si512(bucket), _mm512_set1_epi64((long long)key));
#elif defined(__AVX2__)
    const __m256i wanted = _mm256_set1_epi64x((long long)key);
    for (int i = 0; i < 2; i++) {
        __m256i four = _mm256_loadu_si256((const __m256i *)(const void *)bucket + i);
        __m256i equal = _mm256_cmpeq_epi64(four, wanted);
        mask |= (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(equal)) << 4 * i;
    }
#else
    for (int i = 0; i < TRMI_BUCKET_SLOTS; i++) {
        mask |= (unsigned)(bucket->key[i] == key) << i;
    }
#endif
    return mask & bucket->used;
}

/* What the loop needs of the rows, in registers. */
typedef struct trmi_look {
    const trmi_directory_entry *directory;
    uint32_t shift; /* of a hash without its virtual bucket, to a directory entry */
    size_t bucket_bytes, stride;
    bool near; /* prefetches aim at the first-level cache */
} trmi_look;

TRMI_ALWAYS trmi_look trmi_look_at(const trmi_rows *rows) {
    return (trmi_look){rows->directory, 63 - rows->depth, rows->bucket_bytes, rows->stride, trmi_cpu()->amd};
}

TRMI_ALWAYS const trmi_directory_entry *trmi_look_entry(trmi_look l, uint64_t hash) {
    return &l.directory[hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> l.shift];
}

TRMI_ALWAYS const trmi_bucket *trmi_look_head(trmi_look l, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_directory_entry *entry = trmi_look_entry(l, hash);
    return trmi_bucket_at(entry->base, trmi_rows_first(hash, entry->buckets), l.bucket_bytes);
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

TRMI_ALWAYS char *trmi_look_record(trmi_look l, const trmi_bucket *bucket, unsigned found) {
    return (char *)(uintptr_t)bucket + TRMI_BUCKET_HEAD + (size_t)__builtin_ctz(found) * l.stride;
}

/* First stage: the heads of TRMI_GROUP keys. */
TRMI_ALWAYS void trmi_aim(trmi_look l, const uint64_t *keys, const trmi_bucket **heads) {
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
    page = _mm512_slli_epi64(page, 1); /* an entry is two words: base; buckets and page */
    __m512i base = _mm512_i64gather_epi64(page, (const void *)l.directory, 8);
    __m512i buckets = _mm512_i64gather_epi64(page, (const void *)&l.directory->buckets, 8);
    __m512i bucket = _mm512_srli_epi64(_mm512_mul_epu32(z, buckets), 32);
    __m512i offset = _mm512_mul_epu32(bucket, _mm512_set1_epi64((long long)l.bucket_bytes));
    _mm512_storeu_si512((void *)heads, _mm512_add_epi64(base, offset));
#else
    for (int k = 0; k < TRMI_GROUP; k++) {
        heads[k] = trmi_look_head(l, keys[k]);
    }
#endif
    for (int k = 0; k < TRMI_GROUP; k++) {
        trmi_ask_line(l, heads[k]);
    }
}

/* Second stage: the record of a key in its first bucket, else `elsewhere` and false. */
TRMI_ALWAYS bool trmi_look_locate(trmi_look l, uint32_t lines, uint64_t key,
                                  const trmi_bucket *bucket, char *elsewhere, char **out) {
    unsigned found = trmi_match(bucket, key);
    char *record = trmi_look_record(l, bucket, found | 1u << TRMI_BUCKET_SLOTS);
    char *there = found != 0 ? record : elsewhere;
    __asm__("" : "+r"(there)); /* chosen without a branch: which keys are elsewhere, nobody foresees */
    trmi_ask_lines(l, record, lines); /* of such a key: the bucket behind, where it mostly is */
    *out = there;
    return found != 0;
}

/* Third stage: work on one record. */
typedef void (*trmi_visit)(void *context, int64_t i, char *record);

/* Visits all keys in order; those that are not in their first bucket visit `elsewhere`, and are listed in
 * absent[count]. Returns how many they are. */
TRMI_ALWAYS int64_t trmi_fly(trmi_look l, uint32_t lines, const uint64_t *keys, int64_t count,
                             char *elsewhere, int32_t *absent, trmi_visit visit, void *context) {
    const trmi_bucket *head[TRMI_RING];
    char *record[TRMI_RING];
    const int64_t fitting = TRMI_AHEAD_LINES / lines / TRMI_GROUP * TRMI_GROUP;
    const int64_t ahead = fitting < TRMI_AHEAD ? fitting : TRMI_AHEAD;
    int64_t absent_count = 0;
    for (int64_t first = -2 * ahead; first < count; first += TRMI_GROUP) {
        const int64_t aim = first + 2 * ahead, locate = first + ahead;
        if (aim + TRMI_GROUP <= count) {
            trmi_aim(l, keys + aim, &head[(uint64_t)aim % TRMI_RING]);
        } else {
            for (int64_t i = aim; i < count; i++) {
                head[(uint64_t)i % TRMI_RING] = trmi_look_head(l, keys[i]);
                trmi_ask_line(l, head[(uint64_t)i % TRMI_RING]);
            }
        }
        for (int64_t k = 0; k < TRMI_GROUP; k++) {
            const int64_t i = first + k, to = locate + k;
            if (to >= 0 && to < count) {
                absent[absent_count] = (int32_t)to;
                absent_count += !trmi_look_locate(l, lines, keys[to], head[(uint64_t)to % TRMI_RING], elsewhere,
                                                  &record[(uint64_t)to % TRMI_RING]);
            }
            if (i >= 0 && i < count) {
                visit(context, i, record[(uint64_t)i % TRMI_RING]);
            }
        }
    }
    return absent_count;
}

/* The bucket behind; after the last of a page its first. */
TRMI_ALWAYS const trmi_bucket *trmi_look_behind(trmi_look l, const trmi_directory_entry *entry,
                                                const trmi_bucket *bucket) {
    const char *next = (const char *)bucket + l.bucket_bytes;
    bool last = next == entry->base + entry->buckets * l.bucket_bytes;
    return (const trmi_bucket *)(const void *)(last ? entry->base : next);
}

/* A key that is not in its first bucket, from the one behind. */
TRMI_ALWAYS char *trmi_look_far(trmi_look l, uint32_t lines, uint64_t key,
                                const trmi_bucket *bucket) {
    const trmi_directory_entry *entry = trmi_look_entry(l, trmi_key_hash(key));
    for (uint32_t probe = 1; probe < TRMI_WINDOW_BUCKETS; probe++) {
        unsigned found = trmi_match(bucket, key);
        if (found != 0) {
            char *record = trmi_look_record(l, bucket, found);
            trmi_ask_lines(l, record, lines);
            return record;
        }
        if (bucket->passed == 0) {
            break;
        }
        bucket = trmi_look_behind(l, entry, bucket);
    }
    return NULL;
}

/* keys[positions[k]] that are not in their first buckets: visits those that are in others. Returns
 * how many are nowhere; positions[] then has theirs. */
TRMI_ALWAYS int64_t trmi_fly_far(trmi_look l, uint32_t lines, const uint64_t *keys,
                                 int32_t *positions, int64_t count, trmi_visit visit,
                                 void *context) {
    int64_t absent = 0;
    for (int64_t first = 0; first < count; first += TRMI_FAR_KEYS) {
        const trmi_bucket *head[TRMI_FAR_KEYS];
        char *record[TRMI_FAR_KEYS];
        int64_t some = count - first < TRMI_FAR_KEYS ? count - first : TRMI_FAR_KEYS;
        for (int64_t k = 0; k < some; k++) {
            uint64_t key = keys[positions[first + k]];
            const trmi_bucket *home = trmi_look_head(l, key);
            head[k] = home->passed == 0
                          ? NULL
                          : trmi_look_behind(l, trmi_look_entry(l, trmi_key_hash(key)), home);
            trmi_ask_line(l, head[k]);
        }
        for (int64_t k = 0; k < some; k++) {
            record[k] = head[k] == NULL
                            ? NULL
                            : trmi_look_far(l, lines, keys[positions[first + k]], head[k]);
        }
        for (int64_t k = 0; k < some; k++) {
            int32_t position = positions[first + k];
            if (record[k] != NULL) {
                visit(context, position, record[k]);
            } else {
                positions[absent++] = position;
            }
        }
    }
    return absent;
}

#endif
