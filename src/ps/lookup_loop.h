/* ps/lookup_loop.h: the loop of trmi_locate. Included once by each of lookup.c, lookup_avx2.c and
 * lookup_avx512.c, which define LOCATE (the name) and MATCH(bucket, key) (a mask of equal keys,
 * free slots and bit 7 included). No guard. */

void LOCATE(const trmi_rows *rows, uint32_t lines, const uint64_t *keys, int64_t count,
            const trmi_bucket *const *heads, char **records) {
    const size_t stride = rows->stride;
    for (int64_t i = 0; i < count; i++) {
        const trmi_bucket *bucket = heads[i];
        unsigned found = MATCH(bucket, keys[i]) & bucket->used;
        char *record;
        if (found != 0) {
            record = (char *)(uintptr_t)bucket + TRMI_BUCKET_HEAD +
                     (size_t)__builtin_ctz(found) * stride;
        } else {
            record = bucket->passed == 0 ? NULL : trmi_rows_find(rows, keys[i]);
        }
        records[i] = record;
        for (uint32_t line = 0; line < lines && record != NULL; line++) {
            __builtin_prefetch(record + 64 * (size_t)line, 0, 2);
        }
    }
}
