/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/rows.h: all rows of a table in memory, found by key. Extendible hashing over pages;
 * every key has a home in its page, and its record lies there (three of four) or in a place close
 * by, which its home's guide names:
 *
 *   directory (2^depth) --> page --> place  | record, its key in it | guide |     stride each
 *
 *   guide   63..32  how far away four keys lie whose home this is, -127 .. 127 places, 0 = none
 *           31..0   7 bits of the hash of each; the top bits of these bytes: how far others may lie (3), and
 *                   whether this place is taken (1)
 *
 * Most look-ups so touch the record and nothing else. Where it takes two lines they lie side by
 * side, which costs memory little more than one: a list of keys elsewhere, be it in the same small
 * page, would cost as much as the record.
 *
 * A page grows by halves up to 8 MB, then splits, so that growth never moves more than one page; it
 * does so at 80 % full. Records move when their page grows, and when another key comes whose home
 * they have: addresses are good until the next insert.
 */
#ifndef TRMI_PS_ROWS_H
#define TRMI_PS_ROWS_H

#include "ps/table/account.h"
#include "ps/table/row.h"

enum {
    TRMI_GUIDE_KEYS = 4,
    TRMI_REACH = 127,       /* places between a record and its home */
    TRMI_SAMPLE_PLACES = 8, /* one after the other, from one that is picked at random */
    TRMI_WINDOW_PLACES = 57 /* about a home */
};

typedef struct trmi_rows_page {
    char *base;
    uint32_t places;
    uint32_t depth;
    uint32_t count;
    uint32_t walked; /* by a cut: places below are done */
} trmi_rows_page;

typedef struct trmi_directory_entry {
    char *base;
    uint32_t places;
    uint32_t page;
} trmi_directory_entry;

typedef struct trmi_rows {
    trmi_account *account;
    uint32_t stride; /* bytes a place */
    uint32_t key_offset, guide_offset;
    trmi_directory_entry *directory;
    uint32_t depth;
    trmi_rows_page *pages;
    uint32_t page_count, page_capacity;
    int64_t count;
    /* Called before the records of a page move. */
    void (*before_move)(void *context, trmi_rows_page *page);
    void *context;
} trmi_rows;

/* A few places; false when the budget has no room. */
bool trmi_rows_init(trmi_rows *rows, trmi_account *account, const trmi_row_layout *layout);
void trmi_rows_free(trmi_rows *rows);
/* The record of a key, NULL if absent. */
char *trmi_rows_find(const trmi_rows *rows, uint64_t key);
/* A record (contents undefined but for the key) for an absent key; NULL when its page is full and
 * the budget lets it not grow: remove a row of trmi_rows_window and try again. */
char *trmi_rows_insert(trmi_rows *rows, uint64_t key);
bool trmi_rows_erase(trmi_rows *rows, uint64_t key);
/* Records that lie where this key would: out[TRMI_WINDOW_PLACES]; how many. */
int trmi_rows_window(const trmi_rows *rows, uint64_t key, char **out);
/* Records where `random` says: out[TRMI_SAMPLE_PLACES]; how many. */
int trmi_rows_sample(const trmi_rows *rows, const uint32_t random[2], char **out);
/* The record in a place of a page, NULL where there is none. */
char *trmi_rows_at(const trmi_rows *rows, const trmi_rows_page *page, uint32_t place);
/* The page of a key, and the place in which a record of it lies. */
trmi_rows_page *trmi_rows_page_of(const trmi_rows *rows, uint64_t key);
static inline uint32_t trmi_rows_place_of(const trmi_rows *rows, const trmi_rows_page *page,
                                          const char *record) {
    return (uint32_t)((size_t)(record - page->base) / rows->stride);
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
/* The home of a hash among the places of its page: its low 32 bits, scaled. */
static inline uint32_t trmi_rows_home(uint64_t hash, uint32_t places) {
    return (uint32_t)((hash & 0xFFFFFFFFu) * places >> 32);
}
/* The home of a key will be wanted soon. */
static inline void trmi_rows_prefetch(const trmi_rows *rows, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_directory_entry *entry = trmi_rows_entry(rows, hash);
    const char *home = entry->base + trmi_rows_home(hash, entry->places) * (size_t)rows->stride;
    __builtin_prefetch(home + rows->key_offset, 1);
}

/* --- guides ---------------------------------------------------------------------------------- */

#define TRMI_GUIDE_TAKEN 0x80000000u

/* How far from its home a key of this hash lies, if the guide names it; else 0. */
static inline int64_t trmi_guide_look(uint64_t guide, uint64_t hash) {
    uint32_t tags = ((uint32_t)guide & 0x7F7F7F7Fu) ^ (uint32_t)(hash & 0x7F) * 0x01010101u;
    uint32_t equal = (tags - 0x01010101u) & ~tags & 0x80808080u; /* the lowest is right */
    int shift = __builtin_ctz(equal | 0x80000000u) & 24;
    return (int8_t)(guide >> (32 + shift)) & -(int64_t)(equal != 0);
}
/* Whether this place holds a record of this key. */
static inline bool trmi_place_holds(const char *place, uint32_t key_offset, uint32_t guide_offset,
                                    uint64_t key) {
    uint64_t found, guide;
    memcpy(&found, place + key_offset, sizeof found);
    memcpy(&guide, place + guide_offset, sizeof guide);
    return found == key && (guide & TRMI_GUIDE_TAKEN) != 0;
}

#endif
