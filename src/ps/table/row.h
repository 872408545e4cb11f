/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/row.h: the layout of one row in memory, and small functions shared by the files of
 * src/ps/table.
 *
 *     record   | values | pad | slots (float32) | pad | header | guide (ps/table/rows.h) |   padded to a stride
 *                64-byte aligned where values fill cache lines: a read of 16 floats touches one
 *
 * The record up to the guide is also what files contain. */
#ifndef TRMI_PS_ROW_H
#define TRMI_PS_ROW_H

#include "trireme/ps.h"

#include <string.h>

/* The state of a row besides values and slots. */
typedef struct trmi_row_header {
    uint64_t key;
    uint32_t last_tick;
    uint32_t last_time;  /* seconds since 1970 */
    uint32_t count;      /* updates; stays at its maximum */
    uint32_t version;    /* changes; never 0 in a row, 0: a free record */
    float score;         /* as of last_tick */
    uint32_t generation; /* number of the last snapshot before the last change */
} trmi_row_header;

/* Offsets and sizes in bytes of a record. */
typedef struct trmi_row_layout {
    int32_t width;
    trm_dtype dtype;
    int32_t slot_count; /* floats */
    uint32_t value_bytes, slot_offset, header_offset, record_bytes, guide_offset, stride;
} trmi_row_layout;

/* Computes the layout of rows with these (checked) options. */
void trmi_row_layout_make(const trm_table_options *options, trmi_row_layout *out);

/* Return the parts of a record. */
static inline trmi_row_header *trmi_row_header_of(const trmi_row_layout *layout, void *record) {
    return (trmi_row_header *)(void *)((char *)record + layout->header_offset);
}
static inline float *trmi_row_slots_of(const trmi_row_layout *layout, void *record) {
    return (float *)(void *)((char *)record + layout->slot_offset);
}

/* Returns the hash of a key (the finaliser of splitmix64, a bijection). Each bit has one use:
 *     63..52 virtual bucket (which shard)   51..32 directory, from the top   31..0 home in the page, from the top;
 *     the guide distinguishes keys by the lowest 7 */
static inline uint64_t trmi_key_hash(uint64_t key) {
    uint64_t z = key + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Returns how many batches old the rows of a table may be, from its own staleness and the job's. */
static inline int32_t trmi_table_bound(int32_t staleness, int32_t of_job) {
    return staleness == 0 ? of_job : staleness < 0 ? 0 : staleness;
}

/* Returns the shard of a key: shards own equal ranges of virtual buckets. */
enum { TRMI_VIRTUAL_BUCKETS_LOG2 = 12 };
/* Returns the shard of a key. Keys go to virtual buckets, and runs of buckets to shards, so that a
 * job with another number of shards moves few keys. */
static inline uint32_t trmi_shard_of_key(uint64_t key, uint32_t shards) {
    uint64_t bucket = trmi_key_hash(key) >> (64 - TRMI_VIRTUAL_BUCKETS_LOG2);
    return (uint32_t)(bucket * shards >> TRMI_VIRTUAL_BUCKETS_LOG2);
}

/* Returns the shard of the job (counted server by server) that holds a row of a table with this
 * placement. */
uint32_t trmi_shard_of_row(const trm_placement *placement, uint64_t key, uint32_t servers,
                           uint32_t shards_of_a_server);
/* Checks a placement.
 *   errors  INVALID */
trm_status trmi_placement_check(const trm_placement *placement, const char *table, trm_error *err);

/* Computes the initial values[width] of a row: a pure function of (seed, key). */
void trmi_row_init_values(const trm_row_init *init, uint64_t seed, uint64_t key, int32_t width,
                          float *values);

#endif
