/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the snapshot file of a shard: a chain of blocks, each with a digest, in a fixed order. The
 * digest of the whole file is checked before anything is changed, so that a damaged file never
 * leaves half of its rows.
 *
 * Blocks are the head, tables, rows, removed keys, admission, windows and spans; their order and
 * form are in docs/reference/server-snapshot.md.
 *
 * A file may be loaded into other shards than wrote it, when the number of servers has changed: the
 * filter selects the rows whose keys belong here, and of admission counters and windows the maximum
 * over the old shards counts. Sizes in the file are limited by its length before memory is taken.
 */
#include "ps/snapshot/snapshot.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/mapping.h"
#include "ps/snapshot/snapshot_format.h"

#include <stddef.h>

/* Rows whose places are prefetched before they are inserted. */
enum { LOAD_AHEAD = 8 };

/* A file that is being read. */
typedef struct reader {
    const char *path;
    trmi_mapping map;
    size_t at;
    uint32_t blocks, snapshot, shards;
    bool fresh; /* first full file: none of its rows exists yet */
    trmi_block block;
    const uint8_t *body;
} reader;

/* Reads and checks the next block.
 *   errors  TRM_END after the last; CORRUPT with block and offset */
static trm_status next_block(reader *r, trm_error *err) {
    if (r->blocks > 0 && r->block.kind == TRMI_BLOCK_END) {
        return r->at == r->map.bytes ? TRM_END
                                     : TRMI_FAIL(err, TRM_CORRUPT, "%s: %zu bytes after the end",
                                                 r->path, r->map.bytes - r->at);
    }
    /* A block has a head, then its size, then its digest. */
    size_t left = r->map.bytes - r->at;
    if (left < sizeof r->block) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: block %u: the file is cut off at offset %zu",
                         r->path, r->blocks, r->map.bytes);
    }
    memcpy(&r->block, r->map.data + r->at, sizeof r->block);
    left -= sizeof r->block;
    if (r->block.magic != trmi_block_magic || r->block.bytes > left ||
        (uint64_t)trmi_round_up((int64_t)r->block.bytes, 8) > left) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: block %u at offset %zu: %llu bytes announced, %zu there", r->path,
                         r->blocks, r->at, (unsigned long long)r->block.bytes, left);
    }
    r->body = r->map.data + r->at + sizeof r->block;
    if (trmi_xxh3(r->body, r->block.bytes, trmi_block_seed(&r->block)) != r->block.digest) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: block %u at offset %zu: the digest is wrong",
                         r->path, r->blocks, r->at);
    }
    if (r->block.kind == TRMI_BLOCK_END && r->block.count != r->blocks) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: ends after %u of %u blocks", r->path, r->blocks,
                         r->block.count);
    }
    r->at += sizeof r->block + (size_t)trmi_round_up((int64_t)r->block.bytes, 8);
    r->blocks++;
    return TRM_OK;
}

/* Returns CORRUPT for the current block. */
static trm_status bad_block(const reader *r, const char *what, trm_error *err) {
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: block %u: %s of %llu bytes, %u items", r->path,
                     r->blocks - 1, what, (unsigned long long)r->block.bytes, r->block.count);
}

/* Declares a table of the file, or checks that the shard's table is the same one. */
static trm_status load_table(reader *r, trmi_shard *shard, trm_error *err) {
    trmi_ps_header header;
    trmi_ps_note note;
    trm_table_options options;
    TRMI_TRY(trmi_ps_decode_header(r->body, r->block.bytes, &header, err));
    if (header.kind != TRMI_PS_TABLE) {
        return bad_block(r, "a table", err);
    }
    TRMI_TRY(trmi_ps_decode_note(r->body, r->block.bytes, &header, &note, &options, err));
    options.staleness = 0; /* staleness belongs to the job, not to its files */
    /* a table that the shard does not have yet */
    if (r->block.table == shard->table_count) {
        TRMI_TRY(trmi_shard_add_table(shard, &options, err));
        /* no more rows than the file can contain, whatever it claims */
        int64_t expected =
            trmi_min_i64((int64_t)(r->block.size & INT64_MAX), (int64_t)r->map.bytes / 32);
        expected = (int64_t)((double)expected * r->shards / shard->place.shards);
        trmi_rows_reserve(&shard->tables[r->block.table]->rows, expected);
        return TRM_OK;
    }
    if (r->block.table > shard->table_count) {
        return bad_block(r, "a table out of order", err);
    }
    /* it exists: rows of another shape cannot be loaded into it */
    const trm_table_options *have = &shard->tables[r->block.table]->options;
    if (strcmp(have->name, options.name) != 0 || have->width != options.width ||
        have->dtype != options.dtype || have->optimizer.kind != options.optimizer.kind) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: table %u is '%s' of width %d, here it is '%s' of width %d: load "
                         "into the same tables (name, width, dtype, optimizer)",
                         r->path, r->block.table, options.name, options.width, have->name,
                         have->width);
    }
    return TRM_OK;
}

/* Stores the rows of a block that the filter selects; prefetches the homes of later ones. */
static trm_status load_rows(reader *r, trmi_shard *shard, const trmi_snapshot_filter *filter,
                            int64_t *rows, trm_error *err) {
    trmi_row_table *table = shard->tables[r->block.table];
    size_t record = table->layout.record_bytes;
    if (r->block.bytes != r->block.count * record) {
        return bad_block(r, "rows", err);
    }
    for (uint32_t i = 0; i < r->block.count; i++) {
        const uint8_t *from = r->body + i * record;
        trmi_row_header head;
        if (i + LOAD_AHEAD < r->block.count) {
            memcpy(&head, from + LOAD_AHEAD * record + table->layout.header_offset, sizeof head);
            trmi_rows_prefetch(&table->rows, head.key);
        }
        memcpy(&head, from + table->layout.header_offset, sizeof head);
        if (head.version == 0) {
            return bad_block(r, "a dead row among rows", err);
        }
        if (filter->wants(filter->context, r->block.table, head.key)) {
            *rows += trmi_row_table_restore(table, from, r->fresh);
        }
    }
    return TRM_OK;
}

/* Removes the keys of a block. */
static trm_status load_removed(reader *r, trmi_shard *shard, trm_error *err) {
    if (r->block.bytes != r->block.count * sizeof(uint64_t)) {
        return bad_block(r, "removed keys", err);
    }
    for (uint32_t i = 0; i < r->block.count; i++) {
        uint64_t key;
        memcpy(&key, r->body + i * sizeof key, sizeof key);
        trmi_row_table_remove(shard->tables[r->block.table], key);
    }
    return TRM_OK;
}

/* Loads admission counters, exact counts or a Bloom filter. */
static trm_status load_admission(reader *r, trmi_shard *shard, const trmi_snapshot_filter *filter,
                                 trm_error *err) {
    trmi_admitter *a = &shard->tables[r->block.table]->admitter;
    /* Exact counts come key by key: take only those of this shard. */
    if (r->block.kind == TRMI_BLOCK_WAITING) {
        if (r->block.bytes != r->block.count * sizeof(trmi_counted_key)) {
            return bad_block(r, "keys in waiting", err);
        }
        for (uint32_t i = 0; i < r->block.count; i++) {
            trmi_counted_key w;
            memcpy(&w, r->body + i * sizeof w, sizeof w);
            if (w.count > 0 && filter->wants(filter->context, r->block.table, w.key)) {
                trmi_admitter_restore(a, &w);
            }
        }
        return TRM_OK;
    }
    /* Bloom counters do not name their keys: all of them are taken */
    if (r->block.bytes != r->block.count || r->block.first > r->block.size ||
        r->block.count > r->block.size - r->block.first) {
        return bad_block(r, "counters", err);
    }
    /* The maximum over several old shards: a key may be admitted early, never late. Filters of
     * another size start empty. */
    if (a->counters != NULL && (int64_t)r->block.size == a->size) {
        for (uint32_t i = 0; i < r->block.count; i++) {
            uint8_t *counter = &a->counters[r->block.first + i];
            *counter = r->body[i] > *counter ? r->body[i] : *counter;
        }
    }
    return TRM_OK;
}

/* Loads windows; files of earlier versions have them without clocks. */
static trm_status load_windows(reader *r, trmi_shard *shard, trm_error *err) {
    const size_t before = offsetof(trmi_window, clock); /* files of earlier versions */
    size_t item = r->block.bytes == r->block.count * before ? before : sizeof(trmi_window);
    if (r->block.bytes != r->block.count * item) {
        return bad_block(r, "windows", err);
    }
    for (uint32_t i = 0; i < r->block.count; i++) {
        trmi_window w = {0};
        memcpy(&w, r->body + i * item, item);
        TRMI_TRY(trmi_shard_set_window(shard, &w, err));
    }
    return TRM_OK;
}

/* Loads the samples whose gradients the shard has applied. */
static trm_status load_spans(reader *r, trmi_shard *shard, trm_error *err) {
    if (r->block.bytes != r->block.count * sizeof(trmi_span)) {
        return bad_block(r, "samples", err);
    }
    for (uint32_t i = 0; i < r->block.count; i++) {
        trmi_span s;
        memcpy(&s, r->body + i * sizeof s, sizeof s);
        trmi_push_mark mark = {s.begin, s.end, r->block.table, 0};
        if (s.begin < 0 || s.begin >= s.end) {
            return bad_block(r, "samples out of order", err);
        }
        TRMI_TRY(trmi_spans_add(shard, &mark, err));
    }
    return TRM_OK;
}

/* Loads the header.
 *   errors  UNSUPPORTED: another version */
static trm_status load_head(reader *r, trmi_shard *shard, trm_error *err) {
    trmi_snapshot_header head;
    if (r->block.bytes != sizeof head) {
        return bad_block(r, "a header", err);
    }
    memcpy(&head, r->body, sizeof head);
    if (head.version != TRMI_SNAPSHOT_VERSION) {
        return TRMI_FAIL(
            err, TRM_UNSUPPORTED,
            "%s: a table's file of version %u, this program reads version %d: continue with the "
            "program that wrote it, or begin in another folder",
            r->path, head.version, TRMI_SNAPSHOT_VERSION);
    }
    shard->tick = head.tick;
    shard->clock = head.clock;
    r->snapshot = head.snapshot;
    r->fresh = !head.differential && shard->table_count == 0;
    r->shards = head.shards;
    return TRM_OK;
}

/* Begins the generation after the snapshot, with empty lists of removed keys. */
static void start_generation(const reader *r, trmi_shard *shard) {
    for (uint32_t i = 0; i < shard->table_count; i++) {
        trmi_row_table *table = shard->tables[i];
        uint64_t *keys;
        int64_t count, capacity;
        trmi_row_table_take_removed(table, &keys, &count, &capacity);
        trmi_account_free(table->account, keys, (size_t)capacity * sizeof *keys);
        trmi_row_table_begin_snapshot(table, r->snapshot, NULL);
    }
}

/* Loads one block; the order of blocks is checked. */
static trm_status load_block(reader *r, trmi_shard *shard, const trmi_snapshot_filter *filter,
                             int64_t *rows, trm_error *err) {
    bool of_table = r->block.kind >= TRMI_BLOCK_REMOVED && r->block.kind <= TRMI_BLOCK_BLOOM;
    if ((r->blocks == 1) != (r->block.kind == TRMI_BLOCK_HEADER) ||
        (of_table && r->block.table >= shard->table_count)) {
        return bad_block(r, "a block out of order", err);
    }
    switch ((trmi_block_kind)r->block.kind) {
    case TRMI_BLOCK_HEADER: return load_head(r, shard, err);
    case TRMI_BLOCK_TABLE: return load_table(r, shard, err);
    case TRMI_BLOCK_WINDOWS: return load_windows(r, shard, err);
    case TRMI_BLOCK_SPANS: return load_spans(r, shard, err);
    case TRMI_BLOCK_REMOVED: return load_removed(r, shard, err);
    case TRMI_BLOCK_ROWS: return load_rows(r, shard, filter, rows, err);
    case TRMI_BLOCK_WAITING:
    case TRMI_BLOCK_BLOOM: return load_admission(r, shard, filter, err);
    case TRMI_BLOCK_END: start_generation(r, shard); return TRM_OK;
    }
    return bad_block(r, "a block of unknown kind", err);
}

/* Checks the digest of the whole file; if it is wrong, finds the damaged block for the message. */
static trm_status verify_digest(reader *r, uint64_t digest, trm_error *err) {
    if (trmi_xxh3(r->map.data, r->map.bytes, 0) != digest) {
        /* find the damaged block: that is a better message */
        trm_status status;
        while ((status = next_block(r, err)) == TRM_OK) {
        }
        return status != TRM_END ? status
                                 : TRMI_FAIL(err, TRM_CORRUPT,
                                             "%s: not the file that the manifest names", r->path);
    }
    return TRM_OK;
}

/* Contract in snapshot.h. A file that is loaded into several shards is verified once (use). */
trm_status trmi_snapshot_load(trmi_shard *shard, const char *path, uint64_t digest,
                              const trmi_snapshot_filter *filter, trmi_snapshot_use use,
                              int64_t *rows, trm_error *err) {
    reader r = {.path = path};
    TRMI_TRY(trmi_mapping_open(path, &r.map, err));
    trm_status status =
        use == TRMI_SNAPSHOT_LOAD_VERIFIED ? TRM_OK : verify_digest(&r, digest, err);
    while (status == TRM_OK && use != TRMI_SNAPSHOT_VERIFY) {
        status = next_block(&r, err);
        if (status == TRM_OK) {
            status = load_block(&r, shard, filter, rows, err);
        }
    }
    status = trmi_mapping_check(&r.map, status == TRM_END ? TRM_OK : status, err);
    trmi_mapping_close(&r.map);
    return status;
}
