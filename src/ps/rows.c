#include "ps/rows.h"

#include "base/checked.h"

enum {
    PAGE_BYTES_MAX = 8 << 20,
    PAGE_BYTES_STEP = 2 << 20,
    BUCKET_BYTES_AIM = 64 << 10,
    DEPTH_MAX = 20 /* bits 51..32 of the hash; 31..0 choose the bucket */
};

static char *record_at(const trmi_rows *rows, const trmi_bucket *bucket, int slot) {
    return (char *)(uintptr_t)bucket + TRMI_BUCKET_HEAD + (size_t)slot * rows->stride;
}

static size_t page_bytes(const trmi_rows *rows, uint32_t buckets) {
    return buckets * rows->bucket_bytes;
}

static uint32_t buckets_max(const trmi_rows *rows) {
    return (uint32_t)trmi_max_i64(8, PAGE_BYTES_MAX / (int64_t)rows->bucket_bytes);
}

bool trmi_rows_init(trmi_rows *rows, trmi_account *account, const trmi_row_layout *layout) {
    int64_t slots = BUCKET_BYTES_AIM / layout->stride;
    slots = trmi_min_i64(TRMI_BUCKET_SLOTS, trmi_max_i64(1, slots));
    *rows = (trmi_rows){.account = account,
                        .stride = layout->stride,
                        .slots = (uint32_t)slots,
                        .bucket_bytes = TRMI_BUCKET_HEAD + (size_t)slots * layout->stride,
                        .page_capacity = 1};
    rows->directory = trmi_account_alloc(account, sizeof *rows->directory);
    rows->pages = trmi_account_alloc(account, sizeof *rows->pages);
    char *base = trmi_account_alloc(account, page_bytes(rows, 1));
    if (rows->directory == NULL || rows->pages == NULL || base == NULL) {
        trmi_account_free(account, base, page_bytes(rows, 1));
        trmi_rows_free(rows);
        return false;
    }
    rows->pages[0] = (trmi_rows_page){.base = base, .buckets = 1};
    rows->page_count = 1;
    rows->directory[0] = (trmi_directory_entry){.base = base, .buckets = 1};
    return true;
}

void trmi_rows_free(trmi_rows *rows) {
    trmi_account *account = rows->account;
    for (uint32_t i = 0; i < rows->page_count; i++) {
        trmi_account_free(account, rows->pages[i].base, page_bytes(rows, rows->pages[i].buckets));
    }
    trmi_account_free(account, rows->pages, rows->page_capacity * sizeof *rows->pages);
    trmi_account_free(account, rows->directory,
                      ((size_t)1 << rows->depth) * sizeof *rows->directory);
    *rows = (trmi_rows){.account = account};
}

/* ---- finding ----------------------------------------------------------------------------------
 */

static trmi_bucket *window_bucket(const trmi_rows *rows, const trmi_rows_page *page, uint64_t hash,
                                  uint32_t probe) {
    uint32_t at = trmi_rows_first(hash, page->buckets) + probe;
    at = at >= page->buckets ? at - page->buckets : at;
    return trmi_bucket_at(page->base, at, rows->bucket_bytes);
}

static uint32_t window_of(const trmi_rows_page *page) {
    return page->buckets < TRMI_WINDOW_BUCKETS ? page->buckets : TRMI_WINDOW_BUCKETS;
}

trmi_rows_page *trmi_rows_page_of(const trmi_rows *rows, uint64_t key) {
    return &rows->pages[trmi_rows_entry(rows, trmi_key_hash(key))->page];
}

static trmi_bucket *find(const trmi_rows *rows, uint64_t key, uint32_t *probe, int *slot) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
    uint32_t window = window_of(page);
    for (*probe = 0; *probe < window; ++*probe) {
        trmi_bucket *bucket = window_bucket(rows, page, hash, *probe);
        for (unsigned left = bucket->used; left != 0; left &= left - 1) {
            *slot = __builtin_ctz(left);
            if (bucket->key[*slot] == key) {
                return bucket;
            }
        }
        if (bucket->passed == 0) {
            break;
        }
    }
    return NULL;
}

char *trmi_rows_find(const trmi_rows *rows, uint64_t key) {
    uint32_t probe;
    int slot;
    trmi_bucket *bucket = find(rows, key, &probe, &slot);
    return bucket == NULL ? NULL : record_at(rows, bucket, slot);
}

static int records_of(const trmi_rows *rows, const trmi_bucket *bucket, char **out) {
    int count = 0;
    for (unsigned left = bucket->used; left != 0; left &= left - 1) {
        out[count++] = record_at(rows, bucket, __builtin_ctz(left));
    }
    return count;
}

int trmi_rows_window(const trmi_rows *rows, uint64_t key, char **out) {
    uint64_t hash = trmi_key_hash(key);
    const trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
    int count = 0;
    uint32_t window = window_of(page) < TRMI_SAMPLE_BUCKETS ? window_of(page) : TRMI_SAMPLE_BUCKETS;
    for (uint32_t probe = 0; probe < window; probe++) {
        count += records_of(rows, window_bucket(rows, page, hash, probe), out + count);
    }
    return count;
}

int trmi_rows_bucket(const trmi_rows *rows, const trmi_rows_page *page, uint32_t bucket,
                     char **out) {
    return records_of(rows, trmi_bucket_at(page->base, bucket, rows->bucket_bytes), out);
}

int trmi_rows_sample(const trmi_rows *rows, const uint32_t random[2], char **out) {
    const trmi_rows_page *page = &rows->pages[(uint64_t)random[0] * rows->page_count >> 32];
    return trmi_rows_bucket(rows, page, (uint32_t)((uint64_t)random[1] * page->buckets >> 32), out);
}

/* ---- growing ------------------------------------------------------------------------------------
 */

static char *place(const trmi_rows *rows, trmi_rows_page *page, uint64_t hash, uint64_t key) {
    for (uint32_t probe = 0; probe < window_of(page); probe++) {
        trmi_bucket *bucket = window_bucket(rows, page, hash, probe);
        unsigned free_slots = ~(unsigned)bucket->used & ((1u << rows->slots) - 1);
        if (free_slots == 0) {
            continue;
        }
        int slot = __builtin_ctz(free_slots);
        bucket->key[slot] = key;
        bucket->used |= (uint8_t)(1u << slot);
        page->count++;
        for (uint32_t before = 0; before < probe; before++) {
            trmi_bucket *passed = window_bucket(rows, page, hash, before);
            passed->passed += passed->passed < 255;
        }
        return record_at(rows, bucket, slot);
    }
    return NULL;
}

/* Copies the rows of a page into one or two empty ones; bit `depth` of the directory decides. */
static bool scatter(const trmi_rows *rows, const trmi_rows_page *from, trmi_rows_page *low,
                    trmi_rows_page *high) {
    for (uint32_t b = 0; b < from->buckets; b++) {
        const trmi_bucket *bucket = trmi_bucket_at(from->base, b, rows->bucket_bytes);
        for (unsigned left = bucket->used; left != 0; left &= left - 1) {
            int slot = __builtin_ctz(left);
            uint64_t hash = trmi_key_hash(bucket->key[slot]);
            bool up =
                high != NULL && (hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> (63 - from->depth) & 1) != 0;
            char *to = place(rows, up ? high : low, hash, bucket->key[slot]);
            if (to == NULL) {
                return false;
            }
            memcpy(to, record_at(rows, bucket, slot), rows->stride);
        }
    }
    return true;
}

/* Tells all directory entries of a page where it is. */
static void point_directory(trmi_rows *rows, uint32_t number, uint64_t first) {
    const trmi_rows_page *page = &rows->pages[number];
    uint64_t span = (uint64_t)1 << (rows->depth - page->depth);
    for (uint64_t i = 0; i < span; i++) {
        rows->directory[first + i] =
            (trmi_directory_entry){.base = page->base, .buckets = page->buckets, .page = number};
    }
}

static uint64_t first_entry(const trmi_rows *rows, uint64_t hash, uint32_t depth) {
    uint64_t at = hash << TRMI_VIRTUAL_BUCKETS_LOG2 >> 1 >> (63 - rows->depth);
    return at & ~(((uint64_t)1 << (rows->depth - depth)) - 1);
}

static bool empty_page(trmi_rows *rows, uint32_t buckets, uint32_t depth, trmi_rows_page *out) {
    *out = (trmi_rows_page){.buckets = buckets, .depth = depth};
    out->base = trmi_account_alloc(rows->account, page_bytes(rows, buckets));
    return out->base != NULL;
}

static void free_page(trmi_rows *rows, trmi_rows_page *page) {
    trmi_account_free(rows->account, page->base, page_bytes(rows, page->buckets));
    page->base = NULL;
}

/* The rows of a page, whose directory entries begin at `first`, into one of another size. A key
 * that finds no place (rare) asks for more. */
static bool resize_page(trmi_rows *rows, uint32_t number, uint64_t first, uint32_t buckets) {
    if (rows->before_move != NULL) {
        rows->before_move(rows->context, &rows->pages[number]);
    }
    for (int attempt = 0; attempt < 4; attempt++, buckets += buckets / 4 + 1) {
        trmi_rows_page *page = &rows->pages[number], fresh;
        if (!empty_page(rows, buckets, page->depth, &fresh)) {
            return false;
        }
        if (scatter(rows, page, &fresh, NULL)) {
            fresh.walked = page->walked > 0 ? fresh.buckets : 0;
            free_page(rows, page);
            *page = fresh;
            point_directory(rows, number, first);
            return true;
        }
        free_page(rows, &fresh);
    }
    return false;
}

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

/* Two pages of three quarters each: 80 % full becomes 53 %. */
static bool split_page(trmi_rows *rows, uint32_t number, uint64_t hash) {
    if ((rows->pages[number].depth == rows->depth && !double_directory(rows)) ||
        !reserve_page_number(rows)) {
        return false;
    }
    trmi_rows_page *page = &rows->pages[number], low, high;
    if (rows->before_move != NULL) {
        rows->before_move(rows->context, page);
    }
    uint32_t buckets = page->buckets / 4 * 3;
    if (!empty_page(rows, buckets, page->depth + 1, &low)) {
        return false;
    }
    if (!empty_page(rows, buckets, page->depth + 1, &high)) {
        free_page(rows, &low);
        return false;
    }
    if (!scatter(rows, page, &low, &high)) {
        free_page(rows, &low);
        free_page(rows, &high);
        return resize_page(rows, number, first_entry(rows, hash, page->depth),
                           page->buckets + page->buckets / 4);
    }
    low.walked = high.walked = page->walked > 0 ? buckets : 0;
    uint64_t first = first_entry(rows, hash, page->depth);
    free_page(rows, page);
    *page = low;
    rows->pages[rows->page_count++] = high;
    point_directory(rows, number, first);
    point_directory(rows, rows->page_count - 1, first + ((uint64_t)1 << (rows->depth - low.depth)));
    return true;
}

static uint32_t larger_size(const trmi_rows *rows, uint32_t buckets) {
    int64_t most = buckets_max(rows), bytes = (int64_t)page_bytes(rows, buckets);
    int64_t larger = buckets + (buckets + 1) / 2;
    if (bytes * 3 / 2 >= PAGE_BYTES_STEP && rows->bucket_bytes < PAGE_BYTES_STEP / 16) {
        /* Whole huge pages. */
        int64_t steps = (bytes + PAGE_BYTES_STEP / 2) / PAGE_BYTES_STEP + 1;
        larger = steps * PAGE_BYTES_STEP / (int64_t)rows->bucket_bytes;
    }
    return (uint32_t)trmi_min_i64(larger, most);
}

static bool grow_page(trmi_rows *rows, uint64_t hash) {
    uint32_t number = trmi_rows_entry(rows, hash)->page;
    uint32_t buckets = rows->pages[number].buckets;
    return buckets >= buckets_max(rows)
               ? split_page(rows, number, hash)
               : resize_page(rows, number, first_entry(rows, hash, rows->pages[number].depth),
                             larger_size(rows, buckets));
}

char *trmi_rows_insert(trmi_rows *rows, uint64_t key) {
    uint64_t hash = trmi_key_hash(key);
    bool may_grow = true;
    for (int attempt = 0; attempt < 8; attempt++) {
        trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
        bool full = page->count >= (uint64_t)page->buckets * rows->slots * 4 / 5;
        if (full && may_grow) {
            may_grow = grow_page(rows, hash);
            continue;
        }
        char *record = place(rows, page, hash, key);
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

bool trmi_rows_erase(trmi_rows *rows, uint64_t key) {
    uint32_t probe;
    int slot;
    trmi_bucket *bucket = find(rows, key, &probe, &slot);
    if (bucket == NULL) {
        return false;
    }
    uint64_t hash = trmi_key_hash(key);
    trmi_rows_page *page = &rows->pages[trmi_rows_entry(rows, hash)->page];
    bucket->used &= (uint8_t) ~(1u << slot);
    for (uint32_t before = 0; before < probe; before++) {
        trmi_bucket *passed = window_bucket(rows, page, hash, before);
        passed->passed -= passed->passed < 255;
    }
    page->count--;
    rows->count--;
    return true;
}

void trmi_rows_shrink(trmi_rows *rows, uint32_t number) {
    const trmi_rows_page *page = &rows->pages[number];
    uint64_t slots = (uint64_t)page->buckets * rows->slots;
    if (page->count >= slots / 3 || page->buckets < 8) {
        return;
    }
    uint64_t first = 0;
    while (rows->directory[first].page != number) {
        first++;
    }
    resize_page(rows, number, first, page->buckets / 2);
}

int64_t trmi_rows_bytes(const trmi_rows *rows) {
    size_t bytes = ((size_t)1 << rows->depth) * sizeof *rows->directory +
                   rows->page_capacity * sizeof *rows->pages;
    for (uint32_t i = 0; i < rows->page_count; i++) {
        bytes += page_bytes(rows, rows->pages[i].buckets);
    }
    return (int64_t)bytes;
}

/* How many pages of how many buckets hold so many rows: hashing fills all pages alike, they grow
 * and split together. */
static void shape_for(const trmi_rows *rows, int64_t count, uint32_t *depth, uint32_t *buckets) {
    *depth = 0;
    *buckets = 1;
    count += count / 64; /* nearly alike: the fullest pages are ahead */
    while ((int64_t)*buckets * rows->slots * 4 / 5 << *depth < count && *depth < DEPTH_MAX) {
        if (*buckets >= buckets_max(rows)) {
            ++*depth;
            *buckets = *buckets / 4 * 3;
        } else {
            *buckets = larger_size(rows, *buckets);
        }
    }
}

int64_t trmi_rows_forecast(const trmi_row_layout *layout, int64_t count) {
    trmi_rows rows = {.stride = layout->stride};
    int64_t slots = BUCKET_BYTES_AIM / layout->stride;
    uint32_t depth, buckets;
    rows.slots = (uint32_t)trmi_min_i64(TRMI_BUCKET_SLOTS, trmi_max_i64(1, slots));
    rows.bucket_bytes = TRMI_BUCKET_HEAD + (size_t)rows.slots * layout->stride;
    shape_for(&rows, count, &depth, &buckets);
    return (trmi_account_charge(page_bytes(&rows, buckets)) +
            (int64_t)(sizeof(trmi_directory_entry) + sizeof *rows.pages))
           << depth;
}

void trmi_rows_reserve(trmi_rows *rows, int64_t count) {
    uint32_t depth, buckets;
    shape_for(rows, count, &depth, &buckets);
    if (rows->count > 0 || rows->depth > 0 || (depth == 0 && buckets <= rows->pages[0].buckets)) {
        return;
    }
    size_t pages = (size_t)1 << depth;
    trmi_rows larger = *rows;
    larger.directory = trmi_account_alloc(rows->account, pages * sizeof *larger.directory);
    larger.pages = trmi_account_alloc(rows->account, pages * sizeof *larger.pages);
    larger.depth = depth;
    larger.page_count = 0;
    larger.page_capacity = (uint32_t)pages;
    bool ok = larger.directory != NULL && larger.pages != NULL;
    for (; ok && larger.page_count < pages; larger.page_count++) {
        trmi_rows_page *page = &larger.pages[larger.page_count];
        ok = empty_page(&larger, buckets, depth, page);
        if (!ok) {
            break;
        }
        larger.directory[larger.page_count] = (trmi_directory_entry){
            .base = page->base, .buckets = buckets, .page = larger.page_count};
    }
    trmi_rows *unused = ok ? rows : &larger; /* without room it grows as it goes */
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
