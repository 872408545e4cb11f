/* SPDX-License-Identifier: Apache-2.0 */
/* ps/snapshot/snapshot_format.h: the blocks of a shard's snapshot file. */
#ifndef TRMI_PS_SNAPSHOT_FORMAT_H
#define TRMI_PS_SNAPSHOT_FORMAT_H

#include <stdint.h>

static const uint32_t trmi_block_magic = 0x43535054u; /* "TPSC" */
enum { TRMI_SNAPSHOT_VERSION = 1 };

/* Kinds are in files: append only. */
typedef enum trmi_block_kind {
    TRMI_BLOCK_HEADER = 1, /* trmi_snapshot_header */
    TRMI_BLOCK_TABLE,      /* a TABLE message: options; block.table is its number */
    TRMI_BLOCK_WINDOWS,    /* trmi_window[]; in older files without its clocks */
    TRMI_BLOCK_REMOVED,    /* keys that left since the base */
    TRMI_BLOCK_ROWS,       /* records without the padding of the stride */
    TRMI_BLOCK_WAITING,    /* trmi_counted_key[]: admission by count */
    TRMI_BLOCK_BLOOM,      /* counters; `first` is the place of the first */
    TRMI_BLOCK_END,        /* nothing; `count` is the number of blocks before */
    TRMI_BLOCK_SPANS       /* trmi_span[]; block.table is the number of their book */
} trmi_block_kind;

/* The head of a block. */
typedef struct trmi_block {
    uint32_t magic, kind, table, count;
    uint64_t bytes;  /* of the body, which is padded to 8 */
    uint64_t digest; /* XXH3 of the body, seeded by the rest of this head */
    uint64_t first;
    uint64_t size; /* BLOOM: counters in all; TABLE: rows, a hint */
    uint8_t pad[16];
} trmi_block;
_Static_assert(sizeof(trmi_block) == 64, "a block's head is one line");

/* Returns the seed of a block's digest, computed from its head, so that a damaged head is
 * detected too. */
static inline uint64_t trmi_block_seed(const trmi_block *block) {
    uint64_t seed = (uint64_t)block->kind << 32 | block->table;
    seed = seed * 0x9E3779B97F4A7C15u + block->count;
    seed = seed * 0x9E3779B97F4A7C15u + block->first;
    return seed * 0x9E3779B97F4A7C15u + block->size;
}

/* The body of the first block. */
typedef struct trmi_snapshot_header {
    uint32_t version, snapshot, base_snapshot, differential;
    uint32_t server, servers, shard, shards; /* shards: of the job */
    uint32_t tick, table_count;
    int64_t clock;
} trmi_snapshot_header;

#endif
