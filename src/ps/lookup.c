#include "ps/lookup.h"

#include "base/cpu.h"

static inline unsigned match(const trmi_bucket *bucket, uint64_t key) {
    unsigned mask = 0;
    for (int i = 0; i < TRMI_BUCKET_SLOTS; i++) {
        mask |= (unsigned)(bucket->key[i] == key) << i;
    }
    return mask;
}

#define LOCATE trmi_locate_plain
#define MATCH match
#include "ps/lookup_loop.h"

void trmi_aim(const trmi_rows *rows, const uint64_t *keys, int64_t count,
              const trmi_bucket **heads) {
    const size_t bucket_bytes = rows->bucket_bytes;
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = trmi_key_hash(keys[i]);
        const trmi_directory_entry *entry = trmi_rows_entry(rows, hash);
        const trmi_bucket *head =
            trmi_bucket_at(entry->base, trmi_rows_first(hash, entry->buckets), bucket_bytes);
        __builtin_prefetch(head, 0, 2);
        heads[i] = head;
    }
}

static int64_t chunk_count(int64_t total, int64_t chunk) {
    int64_t left = total - chunk * TRMI_LOOKUP_CHUNK;
    return left < 0 ? 0 : left < TRMI_LOOKUP_CHUNK ? left : TRMI_LOOKUP_CHUNK;
}

int64_t trmi_flight_next(trmi_flight *flight, const trmi_rows *rows, trmi_locate locate,
                         uint32_t lines, const uint64_t *keys, int64_t total, int64_t chunk) {
    for (int64_t c = chunk == 0 ? 0 : chunk + 2; c <= chunk + 2; c++) {
        trmi_aim(rows, keys + c * TRMI_LOOKUP_CHUNK, chunk_count(total, c), flight->head[c % 3]);
    }
    for (int64_t c = chunk == 0 ? 0 : chunk + 1; c <= chunk + 1; c++) {
        locate(rows, lines, keys + c * TRMI_LOOKUP_CHUNK, chunk_count(total, c),
               flight->head[c % 3], flight->record[c & 1]);
    }
    return chunk_count(total, chunk);
}

trmi_locate trmi_locate_here(void) { return TRMI_CPU_CHOICE(trmi_locate); }
