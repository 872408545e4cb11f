/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the snapshot file of a shard (cut_load.c reads it). The owner thread of the shard fills
 * buffers with blocks; the writer thread computes digests and writes.
 *
 *      owner:  reserve_bytes -> block -> buffer --filled--> writer: digest, write
 *                                       buffer <--free_buffers--
 *
 * Four buffers go round between the two; the owner waits if the disk is slow. A file is written
 * under a temporary name, flushed and renamed, so that an incomplete file never has a valid
 * name. */
#include "ps/snapshot/cut.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/queue.h"
#include "ps/snapshot/cut_format.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    BUFFERS = 4,
    BUFFER_BYTES = 1 << 20,
    PADDING_BYTES = 16,  /* of a block and of the next one, 8 at most each */
    OVERHEAD_BYTES = 256 /* of a buffer: at least what a block's head and padding take */
};

/* A buffer of complete blocks. */
typedef struct buffer {
    size_t used;
    bool last;
    uint8_t *data;
} buffer;

/* The state of one snapshot file. The members from `current` on belong to the owner thread. */
struct trmi_cut {
    trmi_shard *shard;
    trmi_queue *filled, *free_buffers;
    buffer buffers[BUFFERS];
    uint8_t *memory;
    size_t buffer_bytes;
    pthread_t writer;
    bool writer_runs;
    _Atomic bool busy;
    trmi_cut_options options;
    char folder[400], path[512], temporary[512];
    void (*done)(void *context, trm_status status, const trmi_cut_file *file, const trm_error *err);
    void *context;
    double started;

    /* owner thread: the block under construction */
    buffer *current;
    trmi_block *block;
    uint32_t block_count;
    uint32_t walked_table; /* table that is being walked */
    trmi_cut_sink *sinks;
    struct table_sink {
        trmi_cut *cut;
        uint32_t table;
    } * contexts;
    size_t sink_bytes, context_bytes;
    trm_error walk_error; /* error of the walk; status TRM_OK: none */
    int64_t rows;
};

/* ---- the owner's side ------------------------------------------------------------------------ */

/* Ends the block under construction and pads it to 8 bytes. */
static void close_block(trmi_cut *cut) {
    if (cut->block != NULL) {
        cut->current->used = (size_t)trmi_round_up((int64_t)cut->current->used, 8);
        cut->block = NULL;
        cut->block_count++;
    }
}

/* Passes the current buffer to the writer; `last`: the file is complete. */
static void submit_buffer(trmi_cut *cut, bool last) {
    close_block(cut);
    if (cut->current != NULL) {
        cut->current->last = last;
        trmi_queue_push(cut->filled, cut->current);
        cut->current = NULL;
    }
}

/* Appends `bytes` to a block's body and returns their address, for the caller to fill; begins a
 * block, and takes a buffer, where necessary. Waits for the writer, which always returns
 * buffers. */
static uint8_t *reserve_bytes(trmi_cut *cut, trmi_block_kind kind, uint32_t table, size_t bytes) {
    /* records of one table share a block as long as the buffer has room */
    bool same = cut->block != NULL && cut->block->kind == kind && cut->block->table == table;
    size_t wanted = bytes + PADDING_BYTES + (same ? 0 : sizeof(trmi_block));
    if (cut->current != NULL && cut->current->used + wanted > cut->buffer_bytes) {
        submit_buffer(cut, false);
        same = false;
    }
    if (cut->current == NULL) {
        void *item = NULL;
        trmi_queue_pop(cut->free_buffers, -1, &item);
        cut->current = item;
        cut->current->used = 0;
    }
    if (!same) {
        close_block(cut);
        cut->block = (trmi_block *)(void *)(cut->current->data + cut->current->used);
        *cut->block = (trmi_block){.magic = trmi_block_magic, .kind = kind, .table = table};
        cut->current->used += sizeof *cut->block;
    }
    uint8_t *to = cut->current->data + cut->current->used;
    cut->current->used += bytes;
    cut->block->bytes += bytes;
    return to;
}

/* Appends an array, divided into blocks. */
static void append_array(trmi_cut *cut, trmi_block_kind kind, uint32_t table, const void *items,
                         int64_t count, size_t item_bytes) {
    int64_t block_items = (int64_t)((cut->buffer_bytes - OVERHEAD_BYTES) / item_bytes);
    for (int64_t first = 0; first < count; first += block_items) {
        int64_t piece_items = trmi_min_i64(block_items, count - first);
        close_block(cut);
        memcpy(reserve_bytes(cut, kind, table, (size_t)piece_items * item_bytes),
               (const char *)items + (size_t)first * item_bytes, (size_t)piece_items * item_bytes);
        cut->block->count = (uint32_t)piece_items;
        cut->block->first = (uint64_t)first;
        cut->block->size = (uint64_t)count;
    }
    close_block(cut);
}

/* Appends a record (trmi_cut_sink.save); NULL: a spilled row could not be read, and the snapshot
 * fails. */
static void save_row(void *context, const void *record) {
    struct table_sink *sink = context;
    trmi_cut *cut = sink->cut;
    if (record == NULL) {
        TRMI_FAIL(&cut->walk_error, TRM_IO, "table '%s': a spilled row could not be read",
                  cut->shard->tables[sink->table]->name);
        return;
    }
    size_t bytes = cut->shard->tables[sink->table]->layout.record_bytes;
    memcpy(reserve_bytes(cut, TRMI_BLOCK_ROWS, sink->table, bytes), record, bytes);
    cut->block->count++;
    cut->rows++;
}

/* Appends the declaration and the admission counters of a table. */
static void save_table(trmi_cut *cut, uint32_t number) {
    trmi_row_table *table = cut->shard->tables[number];
    trmi_ps_header header = {.kind = TRMI_PS_TABLE};
    size_t bytes = trmi_ps_note_size(TRMI_PS_TABLE);
    close_block(cut);
    trmi_ps_encode_note(&header, NULL, &table->options,
                        reserve_bytes(cut, TRMI_BLOCK_TABLE, number, bytes));
    cut->block->count = 1;
    cut->block->size = (uint64_t)table->rows.count;
    close_block(cut);
    /* counters of admission: exact ones key by key, a Bloom filter as an array */
    const trmi_admitter *a = &table->admitter;
    if (a->rule.kind == TRM_ADMIT_COUNT) {
        int64_t places = trmi_admitter_bytes(a) / (int64_t)sizeof(trmi_counted_key);
        for (int64_t i = 0; i < places; i++) {
            if (a->waiting[i].count > 0) {
                memcpy(reserve_bytes(cut, TRMI_BLOCK_WAITING, number, sizeof a->waiting[i]),
                       &a->waiting[i], sizeof a->waiting[i]);
                cut->block->count++;
            }
        }
    } else if (a->rule.kind == TRM_ADMIT_BLOOM) {
        append_array(cut, TRMI_BLOCK_BLOOM, number, a->counters, a->size, 1);
    }
}

/* Appends the keys removed since the previous cut.
 *   error  NOMEM: the list was lost, only a full snapshot is possible */
static trm_status save_removed(trmi_cut *cut, uint32_t number, trm_error *err) {
    trmi_row_table *table = cut->shard->tables[number];
    uint64_t *keys;
    int64_t count, capacity;
    bool complete = trmi_row_table_take_removed(table, &keys, &count, &capacity);
    if (complete && cut->options.differential) {
        append_array(cut, TRMI_BLOCK_REMOVED, number, keys, count, sizeof *keys);
    }
    trmi_account_free(table->account, keys, (size_t)capacity * sizeof *keys);
    return complete || !cut->options.differential
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM,
                           "table '%s': the list of removed keys outgrew the budget: take a full "
                           "checkpoint",
                           table->name);
}

/* Appends header, windows and spans. */
static void save_head(trmi_cut *cut) {
    trmi_shard *shard = cut->shard;
    trmi_cut_header head = {.version = TRMI_CUT_VERSION,
                            .cut = cut->options.number,
                            .base_cut = cut->options.number - cut->options.differential,
                            .differential = cut->options.differential,
                            .server = cut->options.server,
                            .servers = cut->options.servers,
                            .shard = shard->number,
                            .shards = shard->place.shards,
                            .tick = shard->tick,
                            .table_count = shard->table_count,
                            .clock = shard->clock};
    memcpy(reserve_bytes(cut, TRMI_BLOCK_HEADER, 0, sizeof head), &head, sizeof head);
    cut->block->count = 1;
    append_array(cut, TRMI_BLOCK_WINDOWS, 0, shard->windows, shard->window_count,
                 sizeof *shard->windows);
    append_array(cut, TRMI_BLOCK_SPANS, shard->book, shard->spans, shard->span_count,
                 sizeof *shard->spans);
}

/* ---- the writer's side ----------------------------------------------------------------------- */

/* Computes the digests of a buffer's blocks and zeroes their padding. */
static void seal_blocks(buffer *b) {
    for (size_t at = 0; at < b->used;) {
        trmi_block *block = (trmi_block *)(void *)(b->data + at);
        size_t padded = (size_t)trmi_round_up((int64_t)block->bytes, 8);
        memset(b->data + at + sizeof *block + block->bytes, 0, padded - block->bytes);
        block->digest = XXH3_64bits_withSeed(b->data + at + sizeof *block, block->bytes,
                                             trmi_block_seed(block));
        at += sizeof *block + padded;
    }
}

/* Flushes the file, renames it to its final name and flushes the folder. */
static trm_status finish_file(trmi_cut *cut, int fd, trm_error *err) {
    const trmi_os *os = cut->options.os;
    if (os->fsync(os->context, fd) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot flush", cut->temporary);
        os->close(os->context, fd);
        return status;
    }
    if (os->close(os->context, fd) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot close", cut->temporary);
    }
    if (os->rename(os->context, cut->temporary, cut->path) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot rename from %s", cut->path, cut->temporary);
    }
    return trmi_os_fsync_dir(os, cut->options.folder, err);
}

/* Writer thread: writes one file, buffer by buffer. After an error buffers are only returned, so
 * that the owner never blocks. */
static void write_file(trmi_cut *cut) {
    const trmi_os *os = cut->options.os;
    trmi_cut_file file = {0};
    trm_error err = {0};
    trm_status status = TRM_OK;
    int fd = os->open(os->context, cut->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = TRMI_FAIL_SYS(&err, "%s: cannot make the file", cut->temporary);
    }
    XXH3_state_t digest;
    XXH3_64bits_reset(&digest);
    /* buffers come from the owner until the one that is marked as the last */
    for (bool last = false; !last;) {
        void *item;
        if (trmi_queue_pop(cut->filled, -1, &item) != TRM_OK) {
            break;
        }
        buffer *b = item;
        last = b->last;
        if (status == TRM_OK) {
            seal_blocks(b);
            XXH3_64bits_update(&digest, b->data, b->used);
            status = trmi_os_write_all(os, fd, b->data, b->used, cut->temporary, &err);
            file.bytes += (int64_t)b->used;
        }
        trmi_queue_push(cut->free_buffers, b);
    }
    /* an error of the owner (a spilled row could not be read) makes the file invalid, too */
    if (status == TRM_OK && cut->walk_error.status != TRM_OK) {
        err = cut->walk_error;
        status = (trm_status)err.status;
    }
    if (status == TRM_OK) {
        status = finish_file(cut, fd, &err);
    } else if (fd >= 0) {
        os->close(os->context, fd);
    }
    if (status != TRM_OK) {
        os->unlink(os->context, cut->temporary);
    }
    /* report the file; the next snapshot may begin from here on */
    file.rows = cut->rows;
    file.digest = XXH3_64bits_digest(&digest);
    file.seconds = trmi_os_now() - cut->started;
    const char *slash = strrchr(cut->path, '/');
    snprintf(file.name, sizeof file.name, "%s", slash + 1);
    atomic_store(&cut->busy, false);
    cut->done(cut->context, status, &file, &err);
}

/* Writer thread: waits for the beginning of a snapshot and writes its file. */
static void *write_files(void *context) {
    trmi_cut *cut = context;
    for (;;) {
        void *item;
        if (trmi_queue_pop(cut->filled, -1, &item) != TRM_OK) {
            return NULL;
        }
        if (item == cut) { /* begin */
            write_file(cut);
        }
    }
}

/* ---- the cut --------------------------------------------------------------------------------- */

/* Contract in cut.h. The buffers are charged to the shard's budget. */
trm_status trmi_cut_create(trmi_shard *shard, trmi_cut **out, trm_error *err) {
    trmi_cut *cut = trmi_alloc(sizeof *cut);
    trm_status status = cut == NULL ? TRMI_FAIL(err, TRM_NOMEM, "no memory for a cut") : TRM_OK;
    if (status != TRM_OK) {
        return status;
    }
    cut->shard = shard;
    /* small budgets get small buffers */
    cut->buffer_bytes = BUFFER_BYTES;
    while (cut->buffer_bytes > 64 << 10 &&
           (int64_t)cut->buffer_bytes * BUFFERS > shard->account.limit / 16) {
        cut->buffer_bytes /= 2;
    }
    TRMI_TRY_GOTO(status, trmi_queue_create(BUFFERS + 2, &cut->filled, err), failed);
    TRMI_TRY_GOTO(status, trmi_queue_create(BUFFERS, &cut->free_buffers, err), failed);
    cut->memory = trmi_account_alloc(&shard->account, BUFFERS * cut->buffer_bytes);
    if (cut->memory == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM,
                           "shard %u: the budget of %lld bytes has no room for checkpoint buffers",
                           shard->number, (long long)shard->account.limit);
        goto failed;
    }
    for (int i = 0; i < BUFFERS; i++) {
        cut->buffers[i].data = cut->memory + (size_t)i * cut->buffer_bytes;
        trmi_queue_push(cut->free_buffers, &cut->buffers[i]);
    }
    if (pthread_create(&cut->writer, NULL, write_files, cut) != 0) {
        status = TRMI_FAIL(err, TRM_NOMEM, "cannot start the checkpoint writer");
        goto failed;
    }
    cut->writer_runs = true;
    *out = cut;
    return TRM_OK;
failed:
    trmi_cut_destroy(cut);
    return status;
}

void trmi_cut_destroy(trmi_cut *cut) {
    if (cut == NULL) {
        return;
    }
    if (cut->writer_runs) {
        trmi_queue_close(cut->filled);
        pthread_join(cut->writer, NULL);
    }
    trmi_queue_destroy(cut->filled);
    trmi_queue_destroy(cut->free_buffers);
    trmi_account_free(&cut->shard->account, cut->memory, BUFFERS * cut->buffer_bytes);
    trmi_account_free(&cut->shard->account, cut->sinks, cut->sink_bytes);
    trmi_account_free(&cut->shard->account, cut->contexts, cut->context_bytes);
    trmi_free(cut);
}

/* Creates a sink for each table.
 *   error  NOMEM: no room, or a record larger than a buffer */
static trm_status make_sinks(trmi_cut *cut, trm_error *err) {
    trmi_shard *shard = cut->shard;
    trmi_account_free(&shard->account, cut->sinks, cut->sink_bytes);
    trmi_account_free(&shard->account, cut->contexts, cut->context_bytes);
    cut->sink_bytes = shard->table_count * sizeof *cut->sinks;
    cut->context_bytes = shard->table_count * sizeof *cut->contexts;
    cut->sinks = trmi_account_alloc(&shard->account, cut->sink_bytes);
    cut->contexts = trmi_account_alloc(&shard->account, cut->context_bytes);
    if (cut->sinks == NULL || cut->contexts == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "shard %u: no room for a checkpoint", shard->number);
    }
    for (uint32_t i = 0; i < shard->table_count; i++) {
        size_t record = shard->tables[i]->layout.record_bytes;
        if (record + OVERHEAD_BYTES > cut->buffer_bytes) {
            return TRMI_FAIL(err, TRM_NOMEM,
                             "table '%s': a row of %zu bytes does not fit the checkpoint buffers "
                             "of %zu: raise the memory budget",
                             shard->tables[i]->name, record, cut->buffer_bytes);
        }
        cut->contexts[i] = (struct table_sink){cut, i};
        cut->sinks[i] = (trmi_cut_sink){save_row, &cut->contexts[i],
                                        cut->options.differential ? cut->options.number - 1 : 0};
    }
    return TRM_OK;
}

/* Contract in cut.h. Runs on the owner thread between two pushes: this moment is the state that
 * the snapshot has. */
trm_status trmi_cut_begin(trmi_cut *cut, const trmi_cut_options *options,
                          void (*done)(void *context, trm_status status, const trmi_cut_file *file,
                                       const trm_error *err),
                          void *context, trm_error *err) {
    trmi_shard *shard = cut->shard;
    if (trmi_cut_busy(cut)) {
        return TRMI_FAIL(err, TRM_INVALID, "shard %u is still writing cut %u", shard->number,
                         cut->options.number);
    }
    cut->options = *options;
    cut->options.os = options->os == NULL ? trmi_os_real() : options->os;
    snprintf(cut->folder, sizeof cut->folder, "%s", options->folder);
    cut->options.folder = cut->folder;
    TRMI_TRY(make_sinks(cut, err));
    int length = snprintf(cut->path, sizeof cut->path, "%s/server-%u-shard-%u.%s", options->folder,
                          options->server, shard->number, options->differential ? "delta" : "full");
    if (length < 0 || (size_t)length + 5 > sizeof cut->path) {
        return TRMI_FAIL(err, TRM_INVALID, "%.100s...: the path is too long", options->folder);
    }
    snprintf(cut->temporary, sizeof cut->temporary, "%.500s.tmp", cut->path);
    /* the walk begins at the first table */
    cut->done = done;
    cut->context = context;
    cut->started = trmi_os_now();
    cut->block_count = 0;
    cut->rows = 0;
    cut->walked_table = 0;
    cut->walk_error = (trm_error){0};
    /* wakes the writer; its first item is the cut itself */
    atomic_store(&cut->busy, true);
    trmi_queue_push(cut->filled, cut);
    save_head(cut);
    /* For each table its description, and the keys removed since the snapshot before. Its rows
     * follow: before a push changes a row, and in the walk. */
    trm_status status = TRM_OK;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        save_table(cut, i);
        /* after an error nothing more is saved, and the writer discards the file */
        status = status == TRM_OK ? save_removed(cut, i, &cut->walk_error) : status;
        trmi_row_table_cut(shard->tables[i], options->number,
                           status == TRM_OK ? &cut->sinks[i] : NULL);
    }
    return TRM_OK;
}

bool trmi_cut_busy(const trmi_cut *cut) { return cut != NULL && atomic_load(&cut->busy); }

/* Contract in cut.h. */
bool trmi_cut_walk(trmi_cut *cut, int64_t rows) {
    trmi_shard *shard = cut->shard;
    if (cut->contexts == NULL || cut->walked_table > shard->table_count) {
        return true;
    }
    while (cut->walked_table < shard->table_count) {
        if (!trmi_row_table_cut_walk(shard->tables[cut->walked_table], rows)) {
            return false;
        }
        cut->walked_table++;
    }
    close_block(cut);
    reserve_bytes(cut, TRMI_BLOCK_END, 0, 0);
    cut->block->count = cut->block_count;
    submit_buffer(cut, true);
    cut->walked_table = UINT32_MAX;
    return true;
}
