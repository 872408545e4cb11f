/* SPDX-License-Identifier: Apache-2.0 */
/* Groups the ids of a batch by equal ids, field by field, with a hash table (linear probing), and
 * copies the rows of the groups side by side (keyed.h). */
#include "exec/cpu/ops/keyed.h"

#include "base/checked.h"

#include <string.h>

int64_t trmi_keyed_room(int64_t samples, int32_t bits) {
    return 2 * samples + ((int64_t)1 << bits);
}

static int64_t id_at(const void *ids, bool wide, int64_t i) {
    return wide ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}

void trmi_keyed_group(const void *ids, bool wide, int64_t samples, int64_t fields, int64_t field,
                      int32_t bits, int32_t *out, void *room) {
    int32_t *of = out + 1, *first = of + samples, count = 0;
    int64_t *id_of = room;
    uint32_t *cells = (uint32_t *)(void *)(id_of + samples); /* group + 1; 0 = free */
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    memset(cells, 0, (mask + 1) * sizeof *cells);
    for (int64_t n = 0; n < samples; n++) {
        int64_t id = id_at(ids, wide, n * fields + field);
        uint64_t at = (uint64_t)id * 0x9E3779B97F4A7C15u >> (64 - bits);
        while (cells[at] != 0 && id_of[cells[at] - 1] != id) {
            at = (at + 1) & mask;
        }
        if (cells[at] == 0) {
            id_of[count] = id;
            first[count] = (int32_t)n;
            cells[at] = (uint32_t)++count;
        }
        of[n] = (int32_t)cells[at] - 1;
    }
    memset(first + count, 0, (size_t)(samples - count) * sizeof *first);
    out[0] = count;
}

void trmi_keyed_begins(const trmi_keyed *q, const int32_t *groups, int64_t *begin) {
    begin[0] = 0;
    for (int64_t f = 0; f < q->fields; f++) {
        begin[f + 1] = begin[f] + trmi_keyed_groups(q, groups, f)[0];
    }
}

void trmi_keyed_take_rows(const trmi_keyed *q, const int32_t *groups, const int64_t *begin,
                          const float *rows, float *out) {
#pragma omp for schedule(dynamic, 1)
    for (int64_t f = 0; f < q->fields; f++) {
        const int32_t *first = trmi_keyed_groups(q, groups, f) + 1 + q->samples;
        int64_t count = begin[f + 1] - begin[f];
        for (int64_t c = 0; c < q->chunks; c++) {
            float *to = trmi_keyed_rows_of(q, out, begin, f) + c * count * TRMI_TILE_COLS;
            int64_t width = trmi_min_i64(TRMI_TILE_COLS, q->width - c * TRMI_TILE_COLS);
            for (int64_t g = 0; g < count; g++) {
                const float *from =
                    rows + (first[g] * q->fields + f) * q->width + c * TRMI_TILE_COLS;
                if (width == TRMI_TILE_COLS) {
                    memcpy(to + g * TRMI_TILE_COLS, from, TRMI_TILE_COLS * sizeof *to);
                } else {
                    memset(to + g * TRMI_TILE_COLS, 0, TRMI_TILE_COLS * sizeof *to);
                    memcpy(to + g * TRMI_TILE_COLS, from, (size_t)width * sizeof *to);
                }
            }
        }
    }
}
