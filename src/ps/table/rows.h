/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/rows.h: all rows of a table in memory, found by key. Extendible hashing over pages.
 * Every key has a home place in its page; its record lies there (three of four records) or in a
 * place near it, which the home's guide names:
 *
 *     directory (2^depth) --> page --> place  | record, its key in it | guide |     stride each
 *
 *     guide   63..32  distances of four keys whose home this is, -127 .. 127 places, 0 = none
 *             31..0   7 bits of the hash of each; the top bits of these bytes: how far other keys may lie (3 bits), and
 *                     whether this place is taken (1 bit)
 *
 * Most lookups so touch the record and nothing else. If it takes two cache lines they are
 * adjacent, which costs memory little more than one. A separate list of displaced keys would
 * cost as much as the record, even in the same small page.
 *
 * A page that is 80 % full grows by half, up to 4.5 to 8 MB, then it splits: growth never moves
 * more than one page. The largest size depends on the first bits of the hashes (places_max in
 * rows.c), so that pages, which are all filled alike, do not grow at the same time. Records move
 * when their page grows, and when a key arrives whose home they occupy: addresses are valid until
 * the next insert. */
#ifndef TRMI_PS_ROWS_H
#define TRMI_PS_ROWS_H

#include "ps/table/account.h"
#include "ps/table/row.h"

enum {
    TRMI_GUIDE_KEYS = 4,
    TRMI_REACH = 127,       /* largest distance of a record from its home, in places */
    TRMI_SAMPLE_PLACES = 8, /* consecutive places of a sample */
    TRMI_WINDOW_PLACES = 57 /* places around a home */
};

/* A page of places. */
typedef struct trmi_rows_page {
    char *base;
    uint32_t places;
    uint32_t depth;
    uint32_t count;
    uint32_t walked; /* places below have been saved by the snapshot under way */
} trmi_rows_page;

/* An entry of the directory: the page of the hashes with these upper bits. */
typedef struct trmi_directory_entry {
    char *base;
    uint32_t places;
    uint32_t page;
} trmi_directory_entry;

/* The rows of one table on one shard. */
typedef struct trmi_rows {
    trmi_account *account;
    uint32_t stride; /* bytes of a place */
    uint32_t key_offset, guide_offset;
    trmi_directory_entry *directory;
    uint32_t depth;
    trmi_rows_page *pages;
    uint32_t page_count, page_capacity;
    int64_t count;
    /* Called before the records of a page move; NULL: nothing. */
    void (*before_move)(void *context, trmi_rows_page *page);
    void *context;
} trmi_rows;

/* Allocates a first small page; returns false if the budget has no room. */
bool trmi_rows_init(trmi_rows *rows, trmi_account *account, const trmi_row_layout *layout);
/* Frees all pages. */
void trmi_rows_free(trmi_rows *rows);
/* Returns the record of a key, NULL if absent. */
char *trmi_rows_find(const trmi_rows *rows, uint64_t key);
/* Returns a record (contents undefined except for the key) for an absent key. NULL if its page
 * is full and the budget does not let it grow: the caller removes a row of trmi_rows_window and
 * tries again. */
char *trmi_rows_insert(trmi_rows *rows, uint64_t key);
/* Removes a key; returns whether it was there. */
bool trmi_rows_erase(trmi_rows *rows, uint64_t key);
/* Writes the records around this key's home to out[TRMI_WINDOW_PLACES]; returns how many. */
int trmi_rows_window(const trmi_rows *rows, uint64_t key, char **out);
/* Writes the records at a random position to out[TRMI_SAMPLE_PLACES]; returns how many. */
int trmi_rows_sample(const trmi_rows *rows, const uint32_t random[2], char **out);
/* Returns the record in a place of a page, NULL if the place is free. */
char *trmi_rows_at(const trmi_rows *rows, const trmi_rows_page *page, uint32_t place);
/* Return the page of a key, and the place in which a record of the page lies. */
trmi_rows_page *trmi_rows_page_of(const trmi_rows *rows, uint64_t key);
/* Returns the number of a record's place in its page. */
static inline uint32_t trmi_rows_place_of(const trmi_rows *rows, const trmi_rows_page *page,
                                          const char *record) {
    return (uint32_t)((size_t)(record - page->base) / rows->stride);
}
/* Shrinks a page that is less than a third full. */
void trmi_rows_shrink(trmi_rows *rows, uint32_t page);
/* Returns the bytes of pages and directory. */
int64_t trmi_rows_bytes(const trmi_rows *rows);
/* Makes an empty table as large as `count` rows will make it, if the budget allows. */
void trmi_rows_reserve(trmi_rows *rows, int64_t count);
/* Returns the bytes that `count` rows will need. */
int64_t trmi_rows_forecast(const trmi_row_layout *layout, int64_t count);

/* Returns the directory entry of a hash. */
static inline const trmi_directory_entry *trmi_rows_entry(const trmi_rows *rows, uint64_t hash) {
    return &rows->directory[hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> (63 - rows->depth)];
}
/* Returns the home of a hash among the places of its page: its low 32 bits, scaled. */
static inline uint32_t trmi_rows_home(uint64_t hash, uint32_t places) {
    return (uint32_t)((hash & 0xFFFFFFFFu) * places >> 32);
}
/* Prefetches the home of a key. */
static inline void trmi_rows_prefetch(const trmi_rows *rows, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_directory_entry *entry = trmi_rows_entry(rows, hash);
    const char *home = entry->base + trmi_rows_home(hash, entry->places) * (size_t)rows->stride;
    __builtin_prefetch(home + rows->key_offset, 1);
}

/* --- guides ---------------------------------------------------------------------------------- */

#define TRMI_GUIDE_TAKEN 0x80000000u

/* Returns how far from its home a key of this hash lies, if the guide names it; else 0. */
static inline int64_t trmi_guide_look(uint64_t guide, uint64_t hash) {
    uint32_t tags = ((uint32_t)guide & 0x7F7F7F7Fu) ^ (uint32_t)(hash & 0x7F) * 0x01010101u;
    uint32_t equal = (tags - 0x01010101u) & ~tags & 0x80808080u; /* the lowest is right */
    int shift = __builtin_ctz(equal | 0x80000000u) & 24;
    return (int8_t)(guide >> (32 + shift)) & -(int64_t)(equal != 0);
}
/* Returns whether this place holds the record of this key. */
static inline bool trmi_place_holds(const char *place, uint32_t key_offset, uint32_t guide_offset,
                                    uint64_t key) {
    uint64_t found, guide;
    memcpy(&found, place + key_offset, sizeof found);
    memcpy(&guide, place + guide_offset, sizeof guide);
    return found == key && (guide & TRMI_GUIDE_TAKEN) != 0;
}

#endif
