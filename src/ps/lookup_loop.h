/* ps/lookup_loop.h: the loop of trmi_locate. Included once by each of lookup.c, lookup_avx2.c and
 * lookup_avx512.c, which define LOCATE (the name) and MATCH(bucket, key) (a mask of equal keys,
 * free slots and bit 7 included). No guard. */

/* The few keys that are not in their first bucket, and those that are nowhere. */
static __attribute__((noinline)) char *locate_far(const trmi_rows *rows, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_directory_entry *entry = trmi_rows_entry(rows, hash);
    uint32_t at = trmi_rows_first(hash, entry->buckets);
    for (uint32_t probe = 0; probe < TRMI_WINDOW_BUCKETS; probe++) {
        const trmi_bucket *bucket = trmi_bucket_at(entry->base, at, rows->bucket_bytes);
        unsigned found = MATCH(bucket, key) & bucket->used;
        if (found != 0) {
            return (char *)(uintptr_t)bucket + TRMI_BUCKET_HEAD +
                   (size_t)__builtin_ctz(found) * rows->stride;
        }
        if (bucket->passed == 0) {
            break;
        }
        at = at + 1 == entry->buckets ? 0 : at + 1;
    }
    return NULL;
}

/* Inlined for one line, for two, and for any number. */
static inline __attribute__((always_inline)) void
locate_lines(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
             const trmi_bucket *const *heads, char **records) {
    const size_t stride = rows->stride;
    for (int64_t i = 0; i < count; i++) {
        const trmi_bucket *bucket = heads[i];
        unsigned found = MATCH(bucket, keys[i]) & bucket->used;
        char *record = (char *)(uintptr_t)bucket + TRMI_BUCKET_HEAD +
                       (size_t)__builtin_ctz(found | 0x80) * stride;
        if (__builtin_expect(found == 0, 0)) {
            record = bucket->passed == 0 ? NULL : locate_far(rows, keys[i]);
        }
        records[i] = record;
        /* A prefetch of NULL and what follows it is harmless. */
        for (uint32_t line = 0; line < lines; line++) {
            __builtin_prefetch((char *)((uintptr_t)record + 64 * (uintptr_t)line), 0, 2);
        }
    }
}

void LOCATE(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
            const trmi_bucket *const *heads, char **records) {
    if (lines == 1) {
        locate_lines(rows, 1, keys, count, heads, records);
    } else if (lines == 2) {
        locate_lines(rows, 2, keys, count, heads, records);
    } else {
        locate_lines(rows, lines, keys, count, heads, records);
    }
}
