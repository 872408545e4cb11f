/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a table: guides, finding, inserting, growing and splitting pages (structure and
 * contracts in rows.h).
 *
 *   hash --first bits--> directory --> page --other bits--> home: the place where a key belongs
 *   place = guide (where the keys of this home lie) | record (key, values, slots)
 *
 *   full page below its largest size    a page of half as much again      resize_page
 *   full page of the largest size       two pages                         split_page
 *
 * Invariants: a key lies at its home or within its guide's reach of it, so that a missing key is
 * known without a search of the page. Records keep their places while a snapshot reads a page
 * (may_move). All memory comes from the account; without room the table keeps what it has, and
 * inserting fails cleanly. One thread owns a table. */
#include "ps/table/rows.h"

#include "base/checked.h"

/* Sizes of pages and limits of their growth. */
enum {
    PAGE_BYTES_MAX =
        8 << 20, /* of a page in part 0 of the hashes; 512 KB less with each further part */
    PART_BYTES_LESS = 512 << 10,
    PARTS_LOG2 = 3,
    PARTS =
        1 << PARTS_LOG2, /* of the hashes, by their first bits after those that choose the shard */
    PAGE_BYTES_STEP = 2 << 20,
    FIRST_PLACES = 8, /* fewer when records are huge */
    FIRST_BYTES = 64 << 10,
    SHRINK_PLACES = 56,
    MOVES = 64,    /* records whose new homes are prefetched together when a page grows */
    DEPTH_MAX = 20 /* bits 51..32 of the hash */
};

/* Returns the bytes of a page. */
static size_t page_bytes(const trmi_rows *rows, uint32_t places) {
    return places * (size_t)rows->stride;
}

/* Returns the places of the largest page of a depth that has the hashes of `part`. A page of a
 * small depth has several parts, of which the first counts. The parts differ so that their pages
 * split at different times: hashing fills all pages alike, and if all split together, the whole
 * table would need half as much memory again at once. */
static uint32_t places_max(const trmi_rows *rows, uint32_t depth, uint32_t part) {
    const uint32_t first =
        depth >= PARTS_LOG2 ? part : part >> (PARTS_LOG2 - depth) << (PARTS_LOG2 - depth);
    return (uint32_t)trmi_max_i64(8, (PAGE_BYTES_MAX - (int64_t)first * PART_BYTES_LESS) /
                                         (int64_t)rows->stride);
}

/* Returns the places of the first page. */
static uint32_t places_first(uint32_t stride) {
    return (uint32_t)trmi_min_i64(FIRST_PLACES, trmi_max_i64(1, FIRST_BYTES / (int64_t)stride));
}

/* Contract in rows.h. The first page is small, so that thousands of tables are cheap. */
bool trmi_rows_init(trmi_rows *rows, trmi_account *account, const trmi_row_layout *layout) {
    uint32_t places = places_first(layout->stride);
    *rows = (trmi_rows){.account = account,
                        .stride = layout->stride,
                        .key_offset = layout->header_offset,
                        .guide_offset = layout->guide_offset,
                        .page_capacity = 1};
    rows->directory = trmi_account_alloc(account, sizeof *rows->directory);
    rows->pages = trmi_account_alloc(account, sizeof *rows->pages);
    char *base = trmi_account_alloc(account, page_bytes(rows, places));
    if (rows->directory == NULL || rows->pages == NULL || base == NULL) {
        trmi_account_free(account, base, page_bytes(rows, places));
        trmi_rows_free(rows);
        return false;
    }
    rows->pages[0] = (trmi_rows_page){.base = base, .places = places};
    rows->page_count = 1;
    rows->directory[0] = (trmi_directory_entry){.base = base, .places = places};
    return true;
}

void trmi_rows_free(trmi_rows *rows) {
    trmi_account *account = rows->account;
    for (uint32_t i = 0; i < rows->page_count; i++) {
        trmi_account_free(account, rows->pages[i].base, page_bytes(rows, rows->pages[i].places));
    }
    trmi_account_free(account, rows->pages, rows->page_capacity * sizeof *rows->pages);
    trmi_account_free(account, rows->directory,
                      ((size_t)1 << rows->depth) * sizeof *rows->directory);
    *rows = (trmi_rows){.account = account};
}

/* ---- guides ---------------------------------------------------------------------------------- */

/* Returns the guide of a place: for the keys whose home it is, where they lie (bit layout in
 * rows.h). */
static uint64_t guide_at(const trmi_rows *rows, const char *place) {
    uint64_t guide;
    memcpy(&guide, place + rows->guide_offset, sizeof guide);
    return guide;
}

/* Writes the guide of a place. Guides have no alignment of their own, so they are copied. */
static void set_guide(const trmi_rows *rows, char *place, uint64_t guide) {
    memcpy(place + rows->guide_offset, &guide, sizeof guide);
}

/* Returns whether a place has a record. */
static bool is_taken(const trmi_rows *rows, const char *place) {
    return (guide_at(rows, place) & TRMI_GUIDE_TAKEN) != 0;
}

/* Read entry `n` of a guide: the signed distance from the home, 0 if the entry is free; and 7 bits
 * of the hash. */
static int64_t distance_of(uint64_t guide, int n) { return (int8_t)(guide >> (32 + 8 * n)); }

/* Returns the seven bits of the hash of key n of a guide. */
static uint32_t tag_of(uint64_t guide, int n) { return guide >> 8 * n & 0x7F; }

/* Returns the distance within which keys may lie that the guide does not name: 0, 2, 4, .. 64 or
 * the whole reach. */
static int64_t reach_of(uint64_t guide) {
    int level = (int)((guide >> 7 & 1) | (guide >> 14 & 2) | (guide >> 21 & 4));
    return level == 0 ? 0 : level == 7 ? TRMI_REACH : (int64_t)1 << level;
}

/* Returns the guide with a reach of at least `distance`. */
static uint64_t with_reach(uint64_t guide, int64_t distance) {
    while (reach_of(guide) < distance) {
        /* add one to the level, whose three bits are spread */
        guide ^= 1u << 7;
        guide ^= (guide >> 7 & 1) == 0 ? 1u << 15 : 0;
        guide ^= (guide >> 7 & 1) == 0 && (guide >> 15 & 1) == 0 ? 1u << 23 : 0;
    }
    return guide;
}

/* Returns the guide with a key of this home that lies `distance` places away: named if one of
 * four entries is free, else covered by the reach. */
static uint64_t with_key(uint64_t guide, uint64_t hash, int64_t distance) {
    for (int n = 0; n < TRMI_GUIDE_KEYS; n++) {
        if (distance_of(guide, n) == 0) {
            return guide | (hash & 0x7F) << 8 * n | (uint64_t)(uint8_t)distance << (32 + 8 * n);
        }
    }
    return with_reach(guide, distance < 0 ? -distance : distance);
}

/* Returns the guide without that key. The last entry fills the gap, because a lookup stops at
 * the first entry with the right tag. A key that was covered by the reach only leaves the reach
 * as it is. */
static uint64_t without_key(uint64_t guide, uint64_t hash, int64_t distance) {
    int last = TRMI_GUIDE_KEYS - 1;
    while (last >= 0 && distance_of(guide, last) == 0) {
        last--;
    }
    for (int n = 0; n <= last; n++) {
        if (distance_of(guide, n) == distance && tag_of(guide, n) == (hash & 0x7F)) {
            uint64_t tag = tag_of(guide, last), far = (uint8_t)distance_of(guide, last);
            guide &= ~((uint64_t)0x7F << 8 * n | (uint64_t)0xFF << (32 + 8 * n));
            guide |= tag << 8 * n | far << (32 + 8 * n);
            return guide & ~((uint64_t)0x7F << 8 * last | (uint64_t)0xFF << (32 + 8 * last));
        }
    }
    return guide;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Returns the address of a place. */
static char *place_at(const trmi_rows *rows, const trmi_rows_page *page, int64_t place) {
    return page->base + (size_t)place * rows->stride;
}

/* Returns whether a place has a record with this key. */
static bool holds_key(const trmi_rows *rows, const char *place, uint64_t key) {
    return trmi_place_holds(place, rows->key_offset, rows->guide_offset, key);
}

trmi_rows_page *trmi_rows_page_of(const trmi_rows *rows, uint64_t key) {
    return &rows->pages[trmi_rows_entry(rows, trmi_key_hash(key))->page];
}

/* Returns the distance of a key's record from its home; more than the reach if it is absent. */
static int64_t find_distance(const trmi_rows *rows, const trmi_rows_page *page, uint64_t hash,
                             uint64_t key) {
    const int64_t home = trmi_rows_home(hash, page->places), end = page->places;
    /* first the home, then the four named places, last both sides within the reach */
    const uint64_t guide = guide_at(rows, place_at(rows, page, home));
    if (holds_key(rows, place_at(rows, page, home), key)) {
        return 0;
    }
    for (int n = 0; n < TRMI_GUIDE_KEYS; n++) {
        int64_t distance = distance_of(guide, n);
        if (distance != 0 && tag_of(guide, n) == (hash & 0x7F) &&
            holds_key(rows, place_at(rows, page, home + distance), key)) {
            return distance;
        }
    }
    for (int64_t d = 1, reach = reach_of(guide); d <= reach; d++) {
        if (home + d < end && holds_key(rows, place_at(rows, page, home + d), key)) {
            return d;
        }
        if (home >= d && holds_key(rows, place_at(rows, page, home - d), key)) {
            return -d;
        }
    }
    return TRMI_REACH + 1;
}

char *trmi_rows_find(const trmi_rows *rows, uint64_t key) {
    const uint64_t hash = trmi_key_hash(key);
    const trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
    const int64_t distance = find_distance(rows, page, hash, key);
    return distance > TRMI_REACH
               ? NULL
               : place_at(rows, page, trmi_rows_home(hash, page->places) + distance);
}

char *trmi_rows_at(const trmi_rows *rows, const trmi_rows_page *page, uint32_t place) {
    char *record = place_at(rows, page, place);
    return is_taken(rows, record) ? record : NULL;
}

/* Writes the records in places [first, end) to `out`; returns how many. */
static int records_of(const trmi_rows *rows, const trmi_rows_page *page, int64_t first, int64_t end,
                      char **out) {
    int count = 0;
    for (int64_t i = trmi_max_i64(first, 0); i < trmi_min_i64(end, page->places); i++) {
        out[count] = trmi_rows_at(rows, page, (uint32_t)i);
        count += out[count] != NULL;
    }
    return count;
}

int trmi_rows_window(const trmi_rows *rows, uint64_t key, char **out) {
    const uint64_t hash = trmi_key_hash(key);
    const trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
    const int64_t home = trmi_rows_home(hash, page->places), side = TRMI_WINDOW_PLACES / 2;
    return records_of(rows, page, home - side, home + side + 1, out);
}

int trmi_rows_sample(const trmi_rows *rows, const uint32_t random[2], char **out) {
    const trmi_rows_page *page = &rows->pages[(uint64_t)random[0] * rows->page_count >> 32];
    const int64_t first = (int64_t)((uint64_t)random[1] * page->places >> 32);
    return records_of(rows, page, first, first + TRMI_SAMPLE_PLACES, out);
}

/* ---- growing --------------------------------------------------------------------------------- */

/* Returns the distance from a home to the nearest free place; more than the reach if there is
 * none. */
static int64_t free_place(const trmi_rows *rows, const trmi_rows_page *page, int64_t home) {
    for (int64_t d = 0; d <= TRMI_REACH; d++) {
        if (home + d < page->places && !is_taken(rows, place_at(rows, page, home + d))) {
            return d;
        }
        if (home >= d && !is_taken(rows, place_at(rows, page, home - d))) {
            return -d;
        }
    }
    return TRMI_REACH + 1;
}

/* Copies a record without its guide, which belongs to the place. */
static void copy_record(const trmi_rows *rows, char *to, const char *from) {
    memcpy(to, from, rows->guide_offset);
}

/* Returns whether records of a page may move. While a snapshot has saved only a part of the page
 * they must stay, or it would miss a record or save it twice. */
static bool may_move(const trmi_rows_page *page) {
    return page->walked == 0 || page->walked >= page->places;
}

/* Moves the record in this place nearer to its own home, if that is another place. Returns false
 * if it stays. */
static bool move_to_own_home(const trmi_rows *rows, const trmi_rows_page *page, int64_t place) {
    char *from = place_at(rows, page, place);
    uint64_t key;
    memcpy(&key, from + rows->key_offset, sizeof key);
    const uint64_t hash = trmi_key_hash(key);
    const int64_t home = trmi_rows_home(hash, page->places);
    const int64_t distance =
        home == place || !may_move(page) ? TRMI_REACH + 1 : free_place(rows, page, home);
    if (distance > TRMI_REACH) {
        return false;
    }
    /* copy, exchange the marks of the two places, then replace the entry in the guide of its
     * home */
    char *guide = place_at(rows, page, home), *to = place_at(rows, page, home + distance);
    copy_record(rows, to, from);
    set_guide(rows, to, guide_at(rows, to) | TRMI_GUIDE_TAKEN);
    set_guide(rows, from, guide_at(rows, from) & ~(uint64_t)TRMI_GUIDE_TAKEN);
    set_guide(rows, guide, without_key(guide_at(rows, guide), hash, place - home));
    if (distance != 0) {
        set_guide(rows, guide, with_key(guide_at(rows, guide), hash, distance));
    }
    return true;
}

/* Inserts a key at its home, moving away a record that is not at its own home there: as many
 * keys as possible are at home. Returns NULL if no place within reach is free. */
static char *place_key(const trmi_rows *rows, trmi_rows_page *page, uint64_t hash, uint64_t key) {
    const int64_t home = trmi_rows_home(hash, page->places);
    char *from = place_at(rows, page, home);
    const bool at_home = !is_taken(rows, from) || move_to_own_home(rows, page, home);
    const int64_t distance = at_home ? 0 : free_place(rows, page, home);
    if (distance > TRMI_REACH) {
        return NULL;
    }
    char *to = place_at(rows, page, home + distance);
    if (distance != 0) {
        set_guide(rows, from, with_key(guide_at(rows, from), hash, distance));
    }
    set_guide(rows, to, guide_at(rows, to) | TRMI_GUIDE_TAKEN);
    memcpy(to + rows->key_offset, &key, sizeof key);
    page->count++;
    return to;
}

/* A record that moves to another page. */
typedef struct move {
    const char *record; /* where it is now */
    uint64_t key, hash; /* hash: trmi_key_hash of the key */
    trmi_rows_page *to;
} move;

/* Lists the next records of a page, from place *at on, at most MOVES, and prefetches their new
 * homes. */
static int next_moves(const trmi_rows *rows, const trmi_rows_page *from, trmi_rows_page *low,
                      trmi_rows_page *high, uint32_t *at, move *moves) {
    int count = 0;
    for (; *at < from->places && count < MOVES; ++*at) {
        move *m = &moves[count];
        m->record = trmi_rows_at(rows, from, *at);
        if (m->record == NULL) {
            continue;
        }
        memcpy(&m->key, m->record + rows->key_offset, sizeof m->key);
        m->hash = trmi_key_hash(m->key);
        bool up =
            high != NULL && (m->hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> (63 - from->depth) & 1) != 0;
        m->to = up ? high : low;
        const char *home = place_at(rows, m->to, trmi_rows_home(m->hash, m->to->places));
        __builtin_prefetch(home, 1);
        __builtin_prefetch(home + rows->guide_offset, 1);
        count++;
    }
    return count;
}

/* Copies the records of a page into one or two empty pages; bit `depth` of the directory index
 * decides. Returns false if a key finds no place. */
static bool scatter_page(const trmi_rows *rows, const trmi_rows_page *from, trmi_rows_page *low,
                         trmi_rows_page *high) {
    move moves[MOVES];
    for (uint32_t at = 0; at < from->places;) {
        const int count = next_moves(rows, from, low, high, &at, moves);
        for (int i = 0; i < count; i++) {
            char *to = place_key(rows, moves[i].to, moves[i].hash, moves[i].key);
            if (to == NULL) {
                return false;
            }
            copy_record(rows, to, moves[i].record);
        }
    }
    return true;
}

/* Sets all directory entries of a page, from `first` on. */
static void point_directory(trmi_rows *rows, uint32_t number, uint64_t first) {
    const trmi_rows_page *page = &rows->pages[number];
    uint64_t span = (uint64_t)1 << (rows->depth - page->depth);
    for (uint64_t i = 0; i < span; i++) {
        rows->directory[first + i] =
            (trmi_directory_entry){.base = page->base, .places = page->places, .page = number};
    }
}

/* Returns the first directory entry of the page of this hash. */
static uint64_t first_entry(const trmi_rows *rows, uint64_t hash, uint32_t depth) {
    uint64_t at = hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> (63 - rows->depth);
    return at & ~(((uint64_t)1 << (rows->depth - depth)) - 1);
}

/* Allocates an empty page; returns false if the budget has no room. */
static bool empty_page(trmi_rows *rows, uint32_t places, uint32_t depth, trmi_rows_page *out) {
    *out = (trmi_rows_page){.places = places, .depth = depth};
    out->base = trmi_account_alloc(rows->account, page_bytes(rows, places));
    return out->base != NULL;
}

/* Returns a page to the account. */
static void free_page(trmi_rows *rows, trmi_rows_page *page) {
    trmi_account_free(rows->account, page->base, page_bytes(rows, page->places));
    page->base = NULL;
}

/* Moves the records of a page, whose directory entries begin at `first`, into one of another
 * size. If a key finds no place (rare), a larger size is tried. */
static bool resize_page(trmi_rows *rows, uint32_t number, uint64_t first, uint32_t places) {
    if (rows->before_move != NULL) {
        rows->before_move(rows->context, &rows->pages[number]);
    }
    for (int attempt = 0; attempt < 4; attempt++, places += places / 4 + 1) {
        trmi_rows_page *page = &rows->pages[number], fresh;
        if (!empty_page(rows, places, page->depth, &fresh)) {
            return false;
        }
        if (scatter_page(rows, page, &fresh, NULL)) {
            fresh.walked = page->walked > 0 ? fresh.places : 0;
            free_page(rows, page);
            *page = fresh;
            point_directory(rows, number, first);
            return true;
        }
        free_page(rows, &fresh);
    }
    return false;
}

/* Doubles the directory; returns false at its largest depth or without room. */
static bool double_directory(trmi_rows *rows) {
    size_t entries = (size_t)1 << rows->depth;
    if (rows->depth == DEPTH_MAX) {
        return false;
    }
    trmi_directory_entry *larger = trmi_account_alloc(rows->account, 2 * entries * sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    for (size_t i = 0; i < 2 * entries; i++) {
        larger[i] = rows->directory[i / 2];
    }
    trmi_account_free(rows->account, rows->directory, entries * sizeof *larger);
    rows->directory = larger;
    rows->depth++;
    return true;
}

/* Makes room for one more page. */
static bool reserve_page_number(trmi_rows *rows) {
    if (rows->page_count < rows->page_capacity) {
        return true;
    }
    uint32_t capacity = 2 * rows->page_capacity;
    trmi_rows_page *pages = trmi_account_alloc(rows->account, capacity * sizeof *pages);
    if (pages == NULL) {
        return false;
    }
    memcpy(pages, rows->pages, rows->page_count * sizeof *pages);
    trmi_account_free(rows->account, rows->pages, rows->page_capacity * sizeof *pages);
    rows->pages = pages;
    rows->page_capacity = capacity;
    return true;
}

/* Splits a page into two of three quarters of its size each: 80 % full becomes 53 %. */
static bool split_page(trmi_rows *rows, uint32_t number, uint64_t hash) {
    if ((rows->pages[number].depth == rows->depth && !double_directory(rows)) ||
        !reserve_page_number(rows)) {
        return false;
    }
    trmi_rows_page *page = &rows->pages[number], low, high;
    /* the snapshot saves the page's places before they move */
    if (rows->before_move != NULL) {
        rows->before_move(rows->context, page);
    }
    uint32_t places = page->places / 4 * 3;
    if (!empty_page(rows, places, page->depth + 1, &low)) {
        return false;
    }
    if (!empty_page(rows, places, page->depth + 1, &high)) {
        free_page(rows, &low);
        return false;
    }
    /* Keys that do not fit even so, because their hashes crowd: enlarge the page instead. */
    if (!scatter_page(rows, page, &low, &high)) {
        free_page(rows, &low);
        free_page(rows, &high);
        return resize_page(rows, number, first_entry(rows, hash, page->depth),
                           page->places + page->places / 4);
    }
    /* what the snapshot has of the old page, it has of both */
    low.walked = high.walked = page->walked > 0 ? places : 0;
    uint64_t first = first_entry(rows, hash, page->depth);
    free_page(rows, page);
    *page = low;
    rows->pages[rows->page_count++] = high;
    point_directory(rows, number, first);
    point_directory(rows, rows->page_count - 1, first + ((uint64_t)1 << (rows->depth - low.depth)));
    return true;
}

/* Returns the next size of a page: half as much again, large pages in whole huge pages, at most
 * `most` places. */
static uint32_t larger_size(const trmi_rows *rows, uint32_t places, uint32_t most) {
    int64_t bytes = (int64_t)page_bytes(rows, places);
    int64_t larger = places + (places + 1) / 2;
    if (bytes * 3 / 2 >= PAGE_BYTES_STEP && rows->stride < PAGE_BYTES_STEP / 16) {
        /* Whole huge pages. */
        int64_t steps = (bytes + PAGE_BYTES_STEP / 2) / PAGE_BYTES_STEP + 1;
        larger = steps * PAGE_BYTES_STEP / (int64_t)rows->stride;
    }
    return (uint32_t)trmi_min_i64(larger, most);
}

/* Grows or splits the page of a hash. */
static bool grow_page(trmi_rows *rows, uint64_t hash) {
    /* the largest pages split, smaller ones grow */
    uint32_t number = trmi_rows_entry(rows, hash)->page;
    const trmi_rows_page *page = &rows->pages[number];
    uint32_t part = (uint32_t)(hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> (64 - PARTS_LOG2));
    uint32_t most = places_max(rows, page->depth, part);
    return page->places >= most ? split_page(rows, number, hash)
                                : resize_page(rows, number, first_entry(rows, hash, page->depth),
                                              larger_size(rows, page->places, most));
}

/* Contract in rows.h. A page grows when it is 80 % full, or when a key finds no place within
 * reach. Without room for a larger page, keys are inserted as long as they find a place. */
char *trmi_rows_insert(trmi_rows *rows, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    bool may_grow = true;
    for (int attempt = 0; attempt < 8; attempt++) {
        trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
        bool full = page->count >= (uint64_t)page->places * 4 / 5;
        if (full && may_grow) {
            may_grow = grow_page(rows, hash);
            continue;
        }
        char *record = place_key(rows, page, hash, key);
        if (record != NULL) {
            rows->count++;
            return record;
        }
        if (!may_grow || !grow_page(rows, hash)) {
            return NULL;
        }
    }
    return NULL;
}

/* Contract in rows.h. The record is not moved or cleared; only the marks change. */
bool trmi_rows_erase(trmi_rows *rows, uint64_t key) {
    const uint64_t hash = trmi_key_hash(key);
    trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
    const int64_t home = trmi_rows_home(hash, page->places),
                  distance = find_distance(rows, page, hash, key);
    if (distance > TRMI_REACH) {
        return false;
    }
    char *from = place_at(rows, page, home), *at = place_at(rows, page, home + distance);
    set_guide(rows, at, guide_at(rows, at) & ~(uint64_t)TRMI_GUIDE_TAKEN);
    set_guide(rows, from, without_key(guide_at(rows, from), hash, distance));
    page->count--;
    rows->count--;
    return true;
}

/* Contract in rows.h. A page less than a third full is halved. */
void trmi_rows_shrink(trmi_rows *rows, uint32_t number) {
    const trmi_rows_page *page = &rows->pages[number];
    if (page->count >= page->places / 3 || page->places < SHRINK_PLACES) {
        return;
    }
    uint64_t first = 0;
    while (rows->directory[first].page != number) {
        first++;
    }
    resize_page(rows, number, first, page->places / 2);
}

int64_t trmi_rows_bytes(const trmi_rows *rows) {
    size_t bytes = ((size_t)1 << rows->depth) * sizeof *rows->directory +
                   rows->page_capacity * sizeof *rows->pages;
    for (uint32_t i = 0; i < rows->page_count; i++) {
        bytes += page_bytes(rows, rows->pages[i].places);
    }
    return (int64_t)bytes;
}

/* The pages of one part of the hashes: all are alike, because hashing fills them alike, and grow
 * and split together. */
typedef struct part_shape {
    uint32_t depth, places;
} part_shape;

/* Computes the pages that `count` rows lead to, for each part. */
static void shape_for(const trmi_rows *rows, int64_t count, part_shape parts[PARTS]) {
    count += count / 64; /* margin for the fullest pages */
    for (uint32_t part = 0; part < PARTS; part++) {
        part_shape s = {.places = places_first(rows->stride)};
        while ((int64_t)s.places * 4 / 5 << s.depth < count && s.depth < DEPTH_MAX) {
            uint32_t most = places_max(rows, s.depth, part);
            if (s.places >= most) {
                s.depth++;
                s.places = s.places / 4 * 3;
            } else {
                s.places = larger_size(rows, s.places, most);
            }
        }
        parts[part] = s;
    }
}

/* Returns how many pages begin in a part: a page of a small depth begins in the first of its
 * parts. */
static uint32_t pages_of_part(const part_shape *shape, uint32_t part) {
    if (shape->depth >= PARTS_LOG2) {
        return (uint32_t)1 << (shape->depth - PARTS_LOG2);
    }
    return part % (PARTS >> shape->depth) == 0;
}

/* Returns the depth of the directory. */
static uint32_t largest_depth(const part_shape parts[PARTS]) {
    uint32_t depth = 0;
    for (uint32_t part = 0; part < PARTS; part++) {
        depth = parts[part].depth > depth ? parts[part].depth : depth;
    }
    return depth;
}

int64_t trmi_rows_forecast(const trmi_row_layout *layout, int64_t count) {
    trmi_rows rows = {.stride = layout->stride};
    part_shape parts[PARTS];
    shape_for(&rows, count, parts);
    int64_t bytes = (int64_t)sizeof(trmi_directory_entry) << largest_depth(parts);
    for (uint32_t part = 0; part < PARTS; part++) {
        bytes += pages_of_part(&parts[part], part) *
                 (trmi_account_charge(page_bytes(&rows, parts[part].places)) +
                  (int64_t)sizeof *rows.pages);
    }
    return bytes;
}

/* Allocates the pages of a part and points their directory entries to them. Returns false if the
 * budget has no room. */
static bool make_part(trmi_rows *rows, const part_shape *shape, uint32_t part) {
    const uint64_t entries = (uint64_t)1 << (rows->depth - shape->depth); /* of a page */
    uint64_t first = ((uint64_t)part << rows->depth) >> PARTS_LOG2;
    for (uint32_t i = pages_of_part(shape, part); i > 0; i--, first += entries) {
        trmi_rows_page *page = &rows->pages[rows->page_count];
        if (!empty_page(rows, shape->places, shape->depth, page)) {
            return false;
        }
        for (uint64_t e = first; e < first + entries; e++) {
            rows->directory[e] = (trmi_directory_entry){
                .base = page->base, .places = page->places, .page = rows->page_count};
        }
        rows->page_count++;
    }
    return true;
}

/* Contract in rows.h. Allocates the pages of the final shape at once; without room the table
 * stays as it is and grows as usual. */
void trmi_rows_reserve(trmi_rows *rows, int64_t count) {
    part_shape parts[PARTS];
    shape_for(rows, count, parts);
    /* only an empty table, and only if it becomes larger */
    uint32_t depth = largest_depth(parts), pages = 0;
    if (rows->count > 0 || rows->depth > 0 ||
        (depth == 0 && parts[0].places <= rows->pages[0].places)) {
        return;
    }
    for (uint32_t part = 0; part < PARTS; part++) {
        pages += pages_of_part(&parts[part], part);
    }
    /* Build the new table beside the old one. */
    trmi_rows larger = *rows;
    larger.directory =
        trmi_account_alloc(rows->account, ((size_t)1 << depth) * sizeof *larger.directory);
    larger.pages = trmi_account_alloc(rows->account, pages * sizeof *larger.pages);
    larger.depth = depth;
    larger.page_count = 0;
    larger.page_capacity = pages;
    bool ok = larger.directory != NULL && larger.pages != NULL;
    for (uint32_t part = 0; part < PARTS && ok; part++) {
        ok = make_part(&larger, &parts[part], part);
    }
    trmi_rows *unused = ok ? rows : &larger; /* without room: keep the small table */
    for (uint32_t i = 0; unused->pages != NULL && i < unused->page_count; i++) {
        free_page(unused, &unused->pages[i]);
    }
    trmi_account_free(rows->account, unused->pages, unused->page_capacity * sizeof *rows->pages);
    trmi_account_free(rows->account, unused->directory,
                      ((size_t)1 << unused->depth) * sizeof *rows->directory);
    if (ok) {
        *rows = larger;
    }
}
