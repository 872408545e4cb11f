/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the snapshot file of a shard (snapshot_load.c reads it). The owner thread of the shard
 * fills buffers with blocks; the writer thread computes digests and writes.
 *
 *      owner:  reserve_bytes -> block -> buffer --filled--> writer: digest, write
 *                                       buffer <--free_buffers--
 *
 * Four buffers go round between the two; the owner waits if the disk is slow. A file is written
 * under a temporary name, flushed and renamed, so that an incomplete file never has a valid name.
 */
#include "ps/snapshot/snapshot.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/memory.h"
#include "base/queue.h"
#include "ps/snapshot/snapshot_format.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Buffers between the two threads, and their sizes. */
enum {
    BUFFERS = 4,
    BUFFER_BYTES = 1 << 20,
    PADDING_BYTES = 16,  /* of a block and of the next one, 8 at most each */
    OVERHEAD_BYTES = 256 /* of a buffer: at least what a block's head and padding take */
};

/* A buffer of complete blocks. */
typedef struct buffer {
    size_t used;
    bool last; /* no buffer follows: the writer ends the file */
    uint8_t *data;
} buffer;

/* The state of one snapshot file. The members from `current` on belong to the owner thread. */
struct trmi_snapshot {
    trmi_shard *shard;
    /* from the owner thread to the writer, and back; owned, as are the memory of the buffers and
     * the arrays below */
    trmi_queue *filled, *free_buffers;
    buffer buffers[BUFFERS];
    uint8_t *memory;
    size_t buffer_bytes;
    pthread_t writer;
    bool writer_runs;
    _Atomic bool busy;
    /* what is written, and where: the folder, the file's final name, and that under which it is
     * written */
    trmi_snapshot_options options;
    char folder[400], path[512], temporary[512];
    void (*done)(void *context, trm_status status, const trmi_snapshot_file *file,
                 const trm_error *err);
    void *context;
    double started; /* clock at which the snapshot began, seconds */

    /* owner thread: the block under construction */
    buffer *current;
    trmi_block *block;
    uint32_t block_count;
    uint32_t walked_table; /* table that is being walked */
    trmi_snapshot_sink *sinks;
    struct table_sink {
        trmi_snapshot *snapshot;
        uint32_t table;
    } * contexts;
    size_t sink_bytes, context_bytes;
    trm_error walk_error; /* error of the walk; status TRM_OK: none */
    int64_t rows;
};

/* ---- the owner's side ------------------------------------------------------------------------ */

/* Ends the block under construction and pads it to 8 bytes. */
static void close_block(trmi_snapshot *snapshot) {
    if (snapshot->block != NULL) {
        snapshot->current->used = (size_t)trmi_round_up((int64_t)snapshot->current->used, 8);
        snapshot->block = NULL;
        snapshot->block_count++;
    }
}

/* Passes the current buffer to the writer; `last`: the file is complete. */
static void submit_buffer(trmi_snapshot *snapshot, bool last) {
    close_block(snapshot);
    if (snapshot->current != NULL) {
        snapshot->current->last = last;
        trmi_queue_push(snapshot->filled, snapshot->current);
        snapshot->current = NULL;
    }
}

/* Appends `bytes` to a block's body and returns their address, for the caller to fill; begins a
 * block, and takes a buffer, where necessary. Waits for the writer, which always returns
 * buffers. */
static uint8_t *reserve_bytes(trmi_snapshot *snapshot, trmi_block_kind kind, uint32_t table,
                              size_t bytes) {
    /* records of one table share a block as long as the buffer has room */
    bool same =
        snapshot->block != NULL && snapshot->block->kind == kind && snapshot->block->table == table;
    size_t wanted = bytes + PADDING_BYTES + (same ? 0 : sizeof(trmi_block));
    if (snapshot->current != NULL && snapshot->current->used + wanted > snapshot->buffer_bytes) {
        submit_buffer(snapshot, false);
        same = false;
    }
    if (snapshot->current == NULL) {
        void *item = NULL;
        trmi_queue_pop(snapshot->free_buffers, -1, &item);
        snapshot->current = item;
        snapshot->current->used = 0;
    }
    if (!same) {
        close_block(snapshot);
        snapshot->block = (trmi_block *)(void *)(snapshot->current->data + snapshot->current->used);
        *snapshot->block = (trmi_block){.magic = trmi_block_magic, .kind = kind, .table = table};
        snapshot->current->used += sizeof *snapshot->block;
    }
    uint8_t *to = snapshot->current->data + snapshot->current->used;
    snapshot->current->used += bytes;
    snapshot->block->bytes += bytes;
    return to;
}

/* Appends an array, divided into blocks. */
static void append_array(trmi_snapshot *snapshot, trmi_block_kind kind, uint32_t table,
                         const void *items, int64_t count, size_t item_bytes) {
    int64_t block_items = (int64_t)((snapshot->buffer_bytes - OVERHEAD_BYTES) / item_bytes);
    for (int64_t first = 0; first < count; first += block_items) {
        int64_t piece_items = trmi_min_i64(block_items, count - first);
        close_block(snapshot);
        memcpy(reserve_bytes(snapshot, kind, table, (size_t)piece_items * item_bytes),
               (const char *)items + (size_t)first * item_bytes, (size_t)piece_items * item_bytes);
        snapshot->block->count = (uint32_t)piece_items;
        snapshot->block->first = (uint64_t)first;
        snapshot->block->size = (uint64_t)count;
    }
    close_block(snapshot);
}

/* Appends a record (trmi_snapshot_sink.save); NULL: a spilled row could not be read, and the
 * snapshot fails. */
static void save_row(void *context, const void *record) {
    struct table_sink *sink = context;
    trmi_snapshot *snapshot = sink->snapshot;
    if (record == NULL) {
        TRMI_FAIL(&snapshot->walk_error, TRM_IO, "table '%s': a spilled row could not be read",
                  snapshot->shard->tables[sink->table]->name);
        return;
    }
    size_t bytes = snapshot->shard->tables[sink->table]->layout.record_bytes;
    memcpy(reserve_bytes(snapshot, TRMI_BLOCK_ROWS, sink->table, bytes), record, bytes);
    snapshot->block->count++;
    snapshot->rows++;
}

/* Appends the declaration and the admission counters of a table. */
static void save_table(trmi_snapshot *snapshot, uint32_t number) {
    trmi_row_table *table = snapshot->shard->tables[number];
    trmi_ps_header header = {.kind = TRMI_PS_TABLE};
    size_t bytes = trmi_ps_note_size(TRMI_PS_TABLE);
    close_block(snapshot);
    trmi_ps_encode_note(&header, NULL, &table->options,
                        reserve_bytes(snapshot, TRMI_BLOCK_TABLE, number, bytes));
    snapshot->block->count = 1;
    snapshot->block->size = (uint64_t)table->rows.count;
    close_block(snapshot);
    /* Save the counters of admission: exact ones key by key, a Bloom filter as an array. */
    const trmi_admitter *a = &table->admitter;
    if (a->rule.kind == TRM_ADMIT_COUNT) {
        int64_t places = trmi_admitter_bytes(a) / (int64_t)sizeof(trmi_counted_key);
        for (int64_t i = 0; i < places; i++) {
            if (a->waiting[i].count > 0) {
                memcpy(reserve_bytes(snapshot, TRMI_BLOCK_WAITING, number, sizeof a->waiting[i]),
                       &a->waiting[i], sizeof a->waiting[i]);
                snapshot->block->count++;
            }
        }
    } else if (a->rule.kind == TRM_ADMIT_BLOOM) {
        append_array(snapshot, TRMI_BLOCK_BLOOM, number, a->counters, a->size, 1);
    }
}

/* Appends the keys removed since the previous snapshot.
 *   errors  NOMEM: the list was lost, only a full snapshot is possible */
static trm_status save_removed(trmi_snapshot *snapshot, uint32_t number, trm_error *err) {
    trmi_row_table *table = snapshot->shard->tables[number];
    uint64_t *keys;
    int64_t count, capacity;
    bool complete = trmi_row_table_take_removed(table, &keys, &count, &capacity);
    if (complete && snapshot->options.differential) {
        append_array(snapshot, TRMI_BLOCK_REMOVED, number, keys, count, sizeof *keys);
    }
    trmi_account_free(table->account, keys, (size_t)capacity * sizeof *keys);
    return complete || !snapshot->options.differential
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM,
                           "table '%s': the list of removed keys outgrew the budget: take a full "
                           "checkpoint",
                           table->name);
}

/* Appends header, windows and spans. */
static void save_head(trmi_snapshot *snapshot) {
    trmi_shard *shard = snapshot->shard;
    trmi_snapshot_header head = {.version = TRMI_SNAPSHOT_VERSION,
                                 .snapshot = snapshot->options.number,
                                 .base_snapshot =
                                     snapshot->options.number - snapshot->options.differential,
                                 .differential = snapshot->options.differential,
                                 .server = snapshot->options.server,
                                 .servers = snapshot->options.servers,
                                 .shard = shard->number,
                                 .shards = shard->place.shards,
                                 .tick = shard->tick,
                                 .table_count = shard->table_count,
                                 .clock = shard->clock};
    memcpy(reserve_bytes(snapshot, TRMI_BLOCK_HEADER, 0, sizeof head), &head, sizeof head);
    snapshot->block->count = 1;
    append_array(snapshot, TRMI_BLOCK_WINDOWS, 0, shard->windows, shard->window_count,
                 sizeof *shard->windows);
    append_array(snapshot, TRMI_BLOCK_SPANS, shard->book, shard->spans, shard->span_count,
                 sizeof *shard->spans);
}

/* ---- the writer's side ----------------------------------------------------------------------- */

/* Computes the digests of a buffer's blocks and zeroes their padding. */
static void seal_blocks(buffer *b) {
    for (size_t at = 0; at < b->used;) {
        trmi_block *block = (trmi_block *)(void *)(b->data + at);
        size_t padded = (size_t)trmi_round_up((int64_t)block->bytes, 8);
        memset(b->data + at + sizeof *block + block->bytes, 0, padded - block->bytes);
        block->digest =
            trmi_xxh3(b->data + at + sizeof *block, block->bytes, trmi_block_seed(block));
        at += sizeof *block + padded;
    }
}

/* Flushes the file, renames it to its final name and flushes the folder. */
static trm_status finish_file(trmi_snapshot *snapshot, int fd, trm_error *err) {
    const trmi_os *os = snapshot->options.os;
    if (os->fsync(os->context, fd) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot flush", snapshot->temporary);
        os->close(os->context, fd);
        return status;
    }
    if (os->close(os->context, fd) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot close", snapshot->temporary);
    }
    if (os->rename(os->context, snapshot->temporary, snapshot->path) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot rename from %s", snapshot->path, snapshot->temporary);
    }
    return trmi_os_fsync_dir(os, snapshot->options.folder, err);
}

/* Writer thread: writes one file, buffer by buffer. After an error buffers are only returned, so
 * that the owner never blocks. */
static void write_file(trmi_snapshot *snapshot) {
    const trmi_os *os = snapshot->options.os;
    trmi_snapshot_file file = {0};
    trm_error err = {0};
    trm_status status = TRM_OK;
    int fd =
        os->open(os->context, snapshot->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = TRMI_FAIL_SYS(&err, "%s: cannot make the file", snapshot->temporary);
    }
    XXH3_state_t digest;
    XXH3_64bits_reset(&digest);
    /* buffers come from the owner until the one that is marked as the last */
    for (bool last = false; !last;) {
        void *item;
        if (trmi_queue_pop(snapshot->filled, -1, &item) != TRM_OK) {
            break;
        }
        buffer *b = item;
        last = b->last;
        if (status == TRM_OK) {
            seal_blocks(b);
            trmi_xxh3_update(&digest, b->data, b->used);
            status = trmi_os_write_all(os, fd, b->data, b->used, snapshot->temporary, &err);
            file.bytes += (int64_t)b->used;
        }
        trmi_queue_push(snapshot->free_buffers, b);
    }
    /* an error of the owner (a spilled row could not be read) makes the file invalid, too */
    if (status == TRM_OK && snapshot->walk_error.status != TRM_OK) {
        err = snapshot->walk_error;
        status = (trm_status)err.status;
    }
    if (status == TRM_OK) {
        status = finish_file(snapshot, fd, &err);
    } else if (fd >= 0) {
        os->close(os->context, fd);
    }
    if (status != TRM_OK) {
        os->unlink(os->context, snapshot->temporary);
    }
    /* Report the file; the next snapshot may begin from here on. */
    file.rows = snapshot->rows;
    file.digest = XXH3_64bits_digest(&digest);
    file.seconds = trmi_os_now() - snapshot->started;
    const char *slash = strrchr(snapshot->path, '/');
    snprintf(file.name, sizeof file.name, "%s", slash + 1);
    atomic_store(&snapshot->busy, false);
    snapshot->done(snapshot->context, status, &file, &err);
}

/* Writer thread: waits for the beginning of a snapshot and writes its file. */
static void *write_files(void *context) {
    trmi_snapshot *snapshot = context;
    for (;;) {
        void *item;
        if (trmi_queue_pop(snapshot->filled, -1, &item) != TRM_OK) {
            return NULL;
        }
        if (item == snapshot) { /* begin */
            write_file(snapshot);
        }
    }
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

/* Contract in snapshot.h. The buffers are charged to the shard's budget. */
trm_status trmi_snapshot_create(trmi_shard *shard, trmi_snapshot **out, trm_error *err) {
    trmi_snapshot *snapshot = trmi_alloc(sizeof *snapshot);
    trm_status status = snapshot == NULL ? TRMI_NO_MEMORY(err, "for a snapshot") : TRM_OK;
    if (status != TRM_OK) {
        return status;
    }
    snapshot->shard = shard;
    /* small budgets get small buffers */
    snapshot->buffer_bytes = BUFFER_BYTES;
    while (snapshot->buffer_bytes > 64 << 10 &&
           (int64_t)snapshot->buffer_bytes * BUFFERS > shard->account.limit / 16) {
        snapshot->buffer_bytes /= 2;
    }
    TRMI_TRY_GOTO(status, trmi_queue_create(BUFFERS + 2, &snapshot->filled, err), failed);
    TRMI_TRY_GOTO(status, trmi_queue_create(BUFFERS, &snapshot->free_buffers, err), failed);
    snapshot->memory = trmi_account_alloc(&shard->account, BUFFERS * snapshot->buffer_bytes);
    if (snapshot->memory == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM,
                           "shard %u: the budget of %lld bytes has no room for checkpoint buffers",
                           shard->number, (long long)shard->account.limit);
        goto failed;
    }
    for (int i = 0; i < BUFFERS; i++) {
        snapshot->buffers[i].data = snapshot->memory + (size_t)i * snapshot->buffer_bytes;
        trmi_queue_push(snapshot->free_buffers, &snapshot->buffers[i]);
    }
    if (pthread_create(&snapshot->writer, NULL, write_files, snapshot) != 0) {
        status = TRMI_FAIL(err, TRM_NOMEM, "cannot start the checkpoint writer");
        goto failed;
    }
    snapshot->writer_runs = true;
    *out = snapshot;
    return TRM_OK;
failed:
    trmi_snapshot_destroy(snapshot);
    return status;
}

/* Contract in snapshot.h. Closing the queue ends the writer; a file that is not complete keeps its
 * temporary name. */
void trmi_snapshot_destroy(trmi_snapshot *snapshot) {
    if (snapshot == NULL) {
        return;
    }
    if (snapshot->writer_runs) {
        trmi_queue_close(snapshot->filled);
        pthread_join(snapshot->writer, NULL);
    }
    trmi_queue_destroy(snapshot->filled);
    trmi_queue_destroy(snapshot->free_buffers);
    trmi_account_free(&snapshot->shard->account, snapshot->memory,
                      BUFFERS * snapshot->buffer_bytes);
    trmi_account_free(&snapshot->shard->account, snapshot->sinks, snapshot->sink_bytes);
    trmi_account_free(&snapshot->shard->account, snapshot->contexts, snapshot->context_bytes);
    trmi_free(snapshot);
}

/* Creates a sink for each table.
 *   errors  NOMEM: no room, or a record larger than a buffer */
static trm_status make_sinks(trmi_snapshot *snapshot, trm_error *err) {
    trmi_shard *shard = snapshot->shard;
    trmi_account_free(&shard->account, snapshot->sinks, snapshot->sink_bytes);
    trmi_account_free(&shard->account, snapshot->contexts, snapshot->context_bytes);
    snapshot->sink_bytes = shard->table_count * sizeof *snapshot->sinks;
    snapshot->context_bytes = shard->table_count * sizeof *snapshot->contexts;
    snapshot->sinks = trmi_account_alloc(&shard->account, snapshot->sink_bytes);
    snapshot->contexts = trmi_account_alloc(&shard->account, snapshot->context_bytes);
    if (snapshot->sinks == NULL || snapshot->contexts == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "shard %u: no room for a checkpoint", shard->number);
    }
    for (uint32_t i = 0; i < shard->table_count; i++) {
        size_t record = shard->tables[i]->layout.record_bytes;
        if (record + OVERHEAD_BYTES > snapshot->buffer_bytes) {
            return TRMI_FAIL(err, TRM_NOMEM,
                             "table '%s': a row of %zu bytes does not fit the checkpoint buffers "
                             "of %zu: raise the memory budget",
                             shard->tables[i]->name, record, snapshot->buffer_bytes);
        }
        snapshot->contexts[i] = (struct table_sink){snapshot, i};
        snapshot->sinks[i] =
            (trmi_snapshot_sink){save_row, &snapshot->contexts[i],
                                 snapshot->options.differential ? snapshot->options.number - 1 : 0};
    }
    return TRM_OK;
}

/* Contract in snapshot.h. Runs on the owner thread between two pushes: this moment is the state
 * that the snapshot has. */
trm_status trmi_snapshot_begin(trmi_snapshot *snapshot, const trmi_snapshot_options *options,
                               void (*done)(void *context, trm_status status,
                                            const trmi_snapshot_file *file, const trm_error *err),
                               void *context, trm_error *err) {
    trmi_shard *shard = snapshot->shard;
    if (trmi_snapshot_busy(snapshot)) {
        return TRMI_FAIL(err, TRM_INVALID, "shard %u is still writing snapshot %u", shard->number,
                         snapshot->options.number);
    }
    snapshot->options = *options;
    snapshot->options.os = options->os == NULL ? trmi_os_real() : options->os;
    snprintf(snapshot->folder, sizeof snapshot->folder, "%s", options->folder);
    snapshot->options.folder = snapshot->folder;
    TRMI_TRY(make_sinks(snapshot, err));
    int length =
        snprintf(snapshot->path, sizeof snapshot->path, "%s/server-%u-shard-%u.%s", options->folder,
                 options->server, shard->number, options->differential ? "delta" : "full");
    if (length < 0 || (size_t)length + 5 > sizeof snapshot->path) {
        return TRMI_FAIL(err, TRM_INVALID, "%.100s...: the path is too long", options->folder);
    }
    snprintf(snapshot->temporary, sizeof snapshot->temporary, "%.500s.tmp", snapshot->path);
    /* the walk begins at the first table */
    snapshot->done = done;
    snapshot->context = context;
    snapshot->started = trmi_os_now();
    snapshot->block_count = 0;
    snapshot->rows = 0;
    snapshot->walked_table = 0;
    snapshot->walk_error = (trm_error){0};
    /* wakes the writer; its first item is the snapshot itself */
    atomic_store(&snapshot->busy, true);
    trmi_queue_push(snapshot->filled, snapshot);
    save_head(snapshot);
    /* For each table its description, and the keys removed since the snapshot before. Its rows
     * follow: before a push changes a row, and in the walk. */
    trm_status status = TRM_OK;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        save_table(snapshot, i);
        /* after an error nothing more is saved, and the writer discards the file */
        status = status == TRM_OK ? save_removed(snapshot, i, &snapshot->walk_error) : status;
        trmi_row_table_begin_snapshot(shard->tables[i], options->number,
                                      status == TRM_OK ? &snapshot->sinks[i] : NULL);
    }
    return TRM_OK;
}

bool trmi_snapshot_busy(const trmi_snapshot *snapshot) {
    return snapshot != NULL && atomic_load(&snapshot->busy);
}

/* Contract in snapshot.h. */
bool trmi_snapshot_walk(trmi_snapshot *snapshot, int64_t rows) {
    trmi_shard *shard = snapshot->shard;
    if (snapshot->contexts == NULL || snapshot->walked_table > shard->table_count) {
        return true;
    }
    while (snapshot->walked_table < shard->table_count) {
        if (!trmi_row_table_walk_snapshot(shard->tables[snapshot->walked_table], rows)) {
            return false;
        }
        snapshot->walked_table++;
    }
    close_block(snapshot);
    reserve_bytes(snapshot, TRMI_BLOCK_END, 0, 0);
    snapshot->block->count = snapshot->block_count;
    submit_buffer(snapshot, true);
    snapshot->walked_table = UINT32_MAX;
    return true;
}
