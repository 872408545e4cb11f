/* ps/rows.h: all rows of a table in memory, found by key. Extendible hashing over pages; the
 * records lie inside the buckets, so that a lookup touches one place of memory, not two:
 *
 *   directory (2^depth) --> page --> bucket  | 7 keys, who is used, who passed by | 7 records |
 *                                              64 bytes: one line                   stride each
 *
 * A key lies in its bucket or in one of the next 31 of its page, mostly the first. A page grows by
 * halves up to 8 MB, then splits, so that growth never moves more than one page; it does so at 80 %
 * full. Records move when their page grows: addresses are good until the next insert. */
#ifndef TRMI_PS_ROWS_H
#define TRMI_PS_ROWS_H

#include "ps/account.h"
#include "ps/row.h"

enum {
    TRMI_BUCKET_SLOTS = 7,
    TRMI_BUCKET_HEAD = 64,
    TRMI_WINDOW_BUCKETS = 32,
    TRMI_SAMPLE_BUCKETS = 8
};

typedef struct trmi_bucket {
    uint64_t key[TRMI_BUCKET_SLOTS];
    uint8_t used;   /* bit i: slot i is taken */
    uint8_t passed; /* keys that start here or before and lie beyond; sticks at 255 */
    uint8_t pad[6];
} trmi_bucket;
_Static_assert(sizeof(trmi_bucket) == TRMI_BUCKET_HEAD, "a bucket's head is one cache line");

typedef struct trmi_rows_page {
    char *base;
    uint32_t buckets;
    uint32_t depth;
    uint32_t count;
    uint32_t walked; /* by a cut: buckets below are done */
} trmi_rows_page;

typedef struct trmi_directory_entry {
    char *base;
    uint32_t buckets;
    uint32_t page;
} trmi_directory_entry;

typedef struct trmi_rows {
    trmi_account *account;
    uint32_t stride, slots; /* bytes a record, records a bucket (fewer when they are huge) */
    size_t bucket_bytes;
    trmi_directory_entry *directory;
    uint32_t depth;
    trmi_rows_page *pages;
    uint32_t page_count, page_capacity;
    int64_t count;
    /* Called before the records of a page move. */
    void (*before_move)(void *context, trmi_rows_page *page);
    void *context;
} trmi_rows;

/* One bucket; false when the budget has no room. */
bool trmi_rows_init(trmi_rows *rows, trmi_account *account, const trmi_row_layout *layout);
void trmi_rows_free(trmi_rows *rows);
/* The record of a key, NULL if absent. */
char *trmi_rows_find(const trmi_rows *rows, uint64_t key);
/* A record (contents undefined) for an absent key; NULL when its page is full and the budget lets
 * it not grow: remove a row of trmi_rows_window and try again. */
char *trmi_rows_insert(trmi_rows *rows, uint64_t key);
bool trmi_rows_erase(trmi_rows *rows, uint64_t key);
/* Records that lie where this key would: out[TRMI_SAMPLE_BUCKETS * TRMI_BUCKET_SLOTS]; how many. */
int trmi_rows_window(const trmi_rows *rows, uint64_t key, char **out);
/* Records of the bucket that `random` picks. */
int trmi_rows_sample(const trmi_rows *rows, const uint32_t random[2], char **out);
/* Records of one bucket of a page: out[TRMI_BUCKET_SLOTS]; how many. */
int trmi_rows_bucket(const trmi_rows *rows, const trmi_rows_page *page, uint32_t bucket,
                     char **out);
/* The page of a key, and the bucket in which a record of it lies. */
trmi_rows_page *trmi_rows_page_of(const trmi_rows *rows, uint64_t key);
static inline uint32_t trmi_rows_bucket_of(const trmi_rows *rows, const trmi_rows_page *page,
                                           const char *record) {
    return (uint32_t)((size_t)(record - page->base) / rows->bucket_bytes);
}
/* Shrinks a page that is less than a third full. */
void trmi_rows_shrink(trmi_rows *rows, uint32_t page);
int64_t trmi_rows_bytes(const trmi_rows *rows);
/* Makes an empty table as large as so many rows will make it, if the budget allows. */
void trmi_rows_reserve(trmi_rows *rows, int64_t count);
/* What so many rows will need. */
int64_t trmi_rows_forecast(const trmi_row_layout *layout, int64_t count);

static inline const trmi_directory_entry *trmi_rows_entry(const trmi_rows *rows, uint64_t hash) {
    return &rows->directory[hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> (63 - rows->depth)];
}
/* The bucket of a key will be wanted soon. */
static inline void trmi_rows_prefetch(const trmi_rows *rows, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_directory_entry *entry = trmi_rows_entry(rows, hash);
    uint32_t bucket = (uint32_t)((hash & 0xFFFFFFFFu) * entry->buckets >> 32);
    __builtin_prefetch(entry->base + bucket * rows->bucket_bytes, 1);
}
/* The first bucket of a hash: its low 32 bits, scaled. */
static inline uint32_t trmi_rows_first(uint64_t hash, uint32_t buckets) {
    return (uint32_t)((hash & 0xFFFFFFFFu) * buckets >> 32);
}
static inline trmi_bucket *trmi_bucket_at(const char *base, uint32_t bucket, size_t bucket_bytes) {
    return (trmi_bucket *)(void *)((uintptr_t)base + bucket * bucket_bytes);
}

#endif
