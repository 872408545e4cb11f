/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: the server and shard of a row: by hash, or, for dense variables, by the part of the
 * variable that it is in.
 *
 *     rows of a variable | part 0 | part 1 | part 2 |     13 rows in 5 parts: 3 3 3 2 2
 *     round robin          place    place+1  place+2      server = place % servers
 *     by size              |--- share of all bytes ---|   server = middle of the part * servers */
#include "ps/table/row.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"

static const int64_t part_bytes_default = 256 << 10;

/* Returns the part of a row; the first rows % parts parts have one row more. */
static int64_t part_of_row(const trm_placement *p, int64_t row) {
    int64_t parts = p->parts < 1 ? 1 : p->parts, rows = p->rows < parts ? parts : p->rows;
    int64_t least = rows / parts, longer = rows % parts;
    int64_t part = row < longer * (least + 1) ? row / (least + 1)
                                              : longer + (row - longer * (least + 1)) / least;
    return part < parts ? part : parts - 1;
}

/* Returns the first row of a part. */
static int64_t part_begin(const trm_placement *p, int64_t part) {
    int64_t parts = p->parts < 1 ? 1 : p->parts;
    return part * (p->rows / parts) + trmi_min_i64(part, p->rows % parts);
}

/* Contract in row.h. Rows beyond the variable belong to its last part. */
uint32_t trmi_shard_of_row(const trm_placement *p, uint64_t key, uint32_t servers,
                           uint32_t shards) {
    if (p->kind == TRM_PLACE_BY_HASH) {
        return trmi_shard_of_key(key, servers * shards);
    }
    int64_t row = key < (uint64_t)p->rows ? (int64_t)key : p->rows - 1;
    int64_t part = part_of_row(p, row < 0 ? 0 : row);
    if (p->kind == TRM_PLACE_ROUND_ROBIN) {
        uint64_t place = (uint64_t)p->first + (uint64_t)part;
        return (uint32_t)(place % servers * shards + place / servers % shards);
    }
    double middle = (double)(part_begin(p, part) + part_begin(p, part + 1)) / 2;
    double at = p->begin + (p->end - p->begin) * middle / (double)trmi_max_i64(1, p->rows);
    uint32_t shard = (uint32_t)(at * (double)(servers * shards));
    return shard < servers * shards ? shard : servers * shards - 1;
}

trm_status trmi_placement_check(const trm_placement *p, const char *table, trm_error *err) {
    if (p->kind == TRM_PLACE_BY_HASH) {
        return TRM_OK;
    }
    bool known = p->kind == TRM_PLACE_ROUND_ROBIN || p->kind == TRM_PLACE_BY_SIZE;
    return known && p->rows >= 1 && p->parts >= 0 && p->parts <= p->rows && p->first >= 0 &&
                   p->begin >= 0 && p->end >= p->begin && p->end <= 1
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "table '%s': placement %d of %lld rows in %d parts from place %d, bytes "
                           "%g to %g: let trm_ps_place fill it",
                           table, (int)p->kind, (long long)p->rows, p->parts, p->first, p->begin,
                           p->end);
}

/* Returns the number of parts of a variable under a partitioner. */
static int64_t parts_of(const trm_partition *p, const trm_ps_variable *v) {
    int64_t most = p->max_parts < 1 ? 1 : p->max_parts;
    int64_t bytes = p->part_bytes == 0 ? part_bytes_default : p->part_bytes;
    switch (p->kind) {
    case TRM_PARTITION_NONE: return 1;
    case TRM_PARTITION_FIXED: break;
    case TRM_PARTITION_MIN_SIZE:
        most = trmi_min_i64(most, trmi_max_i64(1, v->rows * v->row_bytes / bytes));
        break;
    case TRM_PARTITION_MAX_SIZE: {
        int64_t rows_a_part = trmi_max_i64(1, bytes / v->row_bytes);
        int64_t needed = (v->rows + rows_a_part - 1) / rows_a_part;
        most = p->max_parts < 1 ? needed : trmi_min_i64(most, needed);
        break;
    }
    }
    return trmi_min_i64(most, v->rows);
}

/* Contract in trireme/ps.h. Variables share the range 0 to 1 in proportion to their
 * bytes. */
trm_status trm_ps_place(const trm_ps_variable *variables, int32_t count,
                        const trm_partition *partition, trm_placement_kind kind, trm_placement *out,
                        trm_error *err) {
    TRMI_NEED(err, out);
    if (count > 0) {
        TRMI_NEED(err, variables);
    }
    const trm_partition none = {0}, *p = partition == NULL ? &none : partition;
    int64_t total = 0, before = 0, first = 0;
    if (p->kind < TRM_PARTITION_NONE || p->kind > TRM_PARTITION_MAX_SIZE || p->max_parts < 0 ||
        p->part_bytes < 0 || kind < TRM_PLACE_BY_HASH || kind > TRM_PLACE_BY_SIZE) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "partitioner %d (0 to %d expected), %d parts of %lld bytes (0 or more), placement %d "
            "(0 to %d)",
            (int)p->kind, TRM_PARTITION_MAX_SIZE, p->max_parts, (long long)p->part_bytes, (int)kind,
            TRM_PLACE_BY_SIZE);
    }
    /* Add up the bytes of all variables; a product or sum that overflows is refused. */
    for (int32_t i = 0; i < count; i++) {
        const trm_ps_variable *v = &variables[i];
        if (v->rows < 1 || v->row_bytes < 1 || v->rows > INT64_MAX / 2 / v->row_bytes ||
            total > INT64_MAX / 2 - v->rows * v->row_bytes) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "variable %d: %lld rows of %lld bytes; 1 or more of each expected, and less than "
                "2^62 bytes of all variables",
                i, (long long)v->rows, (long long)v->row_bytes);
        }
        total += v->rows * v->row_bytes;
    }
    for (int32_t i = 0; i < count; i++) {
        /* round robin continues with the part after the last one (first); by size uses the share
         * (begin, end) */
        int64_t bytes = variables[i].rows * variables[i].row_bytes;
        int64_t parts = trmi_min_i64(parts_of(p, &variables[i]), INT32_MAX);
        out[i] = (trm_placement){.kind = kind,
                                 .parts = (int32_t)parts,
                                 .first = (int32_t)(first & INT32_MAX),
                                 .rows = variables[i].rows,
                                 .begin = (double)before / (double)total,
                                 .end = (double)(before + bytes) / (double)total};
        before += bytes;
        first += parts;
    }
    return TRM_OK;
}
