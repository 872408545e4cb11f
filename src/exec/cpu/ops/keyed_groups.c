/* SPDX-License-Identifier: Apache-2.0 */
/* Groups the ids of a batch by equal ids, field by field, and copies the rows of the groups side by
 * side (keyed.h). */
#include "exec/cpu/ops/keyed.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/hash/key_numbers.h"

#include <string.h>

int64_t trmi_keyed_room(int64_t samples, int32_t bits) {
    return 2 * samples + ((int64_t)1 << bits);
}

/* Contract in keyed.h. Groups are numbered in the order of their first samples, so the numbering
 * does not depend on the hash. */
void trmi_keyed_group(const void *ids, bool wide, int64_t samples, int64_t fields, int64_t field,
                      int32_t bits, int32_t *out, void *room) {
    int32_t *of = out + 1, *first = of + samples;
    uint64_t *distinct = room;
    trmi_key_numbers numbers = {.cells = (uint32_t *)(void *)(distinct + samples),
                                .mask = ((uint64_t)1 << bits) - 1,
                                .keys = distinct};
    memset(numbers.cells, 0, (numbers.mask + 1) * sizeof *numbers.cells);
    for (int64_t n = 0; n < samples; n++) {
        uint64_t id = (uint64_t)trmi_element_id(ids, wide, n * fields + field);
        bool fresh;
        of[n] =
            (int32_t)trmi_number_key(&numbers, 8, id, id * TRMI_FIBONACCI >> (64 - bits), &fresh);
        if (fresh) {
            first[of[n]] = (int32_t)n;
        }
    }
    const int64_t count = numbers.count;
    memset(first + count, 0, (size_t)(samples - count) * sizeof *first);
    out[0] = (int32_t)count;
}

void trmi_keyed_begins(const trmi_keyed *q, const int32_t *groups, int64_t *begin) {
    begin[0] = 0;
    for (int64_t f = 0; f < q->fields; f++) {
        begin[f + 1] = begin[f] + trmi_keyed_groups(q, groups, f)[0];
    }
}

/* Contract in keyed.h. The last chunk of a row is filled up with zeros, so that all chunks have one
 * size. */
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
