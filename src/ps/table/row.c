/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of rows and their initial values (contracts in row.h). */
#include "ps/table/row.h"

#include "base/checked.h"
#include "base/optimizer_rule.h"
#include "base/rng.h"

/* Returns the slots of a row in floats. */
static int32_t count_slots(const trm_table_options *options) {
    const trm_optimizer_kind kind = options->optimizer.kind;
    return kind == TRM_ROWWISE_ADAGRAD ? 1 : options->width * trmi_optimizer_of(kind)->slots;
}

/* Returns the stride: a record of up to 64 bytes lies in one cache line, and values of whole
 * lines begin at a line. */
static int64_t stride_of(int64_t bytes, int64_t value_bytes) {
    return trmi_round_up(bytes, bytes <= 64 || value_bytes % 64 == 0 ? 64 : 32);
}

/* Contract in row.h. Slots are aligned to 4 bytes, the header to 8; the guide of rows.c follows
 * the record. */
void trmi_row_layout_make(const trm_table_options *options, trmi_row_layout *out) {
    int64_t value_bytes = (int64_t)trm_dtype_bytes(options->dtype) * options->width;
    int32_t slot_count = count_slots(options);
    int64_t slot_offset = trmi_round_up(value_bytes, 4);
    int64_t header_offset = trmi_round_up(slot_offset + 4 * (int64_t)slot_count, 8);
    int64_t record_bytes = header_offset + (int64_t)sizeof(trmi_row_header);
    *out = (trmi_row_layout){
        .width = options->width,
        .dtype = options->dtype,
        .slot_count = slot_count,
        .value_bytes = (uint32_t)value_bytes,
        .slot_offset = (uint32_t)slot_offset,
        .header_offset = (uint32_t)header_offset,
        .record_bytes = (uint32_t)record_bytes,
        .guide_offset = (uint32_t)record_bytes,
        .stride = (uint32_t)stride_of(record_bytes + (int64_t)sizeof(uint64_t), value_bytes)};
}

/* Initial values as elements key * width + i of one random array, four numbers for each block of
 * the counter. A table so begins with the bits that the same parameter has on one device. */
static void init_from_stream(const trm_row_init *init, uint64_t seed, uint64_t key, int32_t width,
                             float *values) {
    uint64_t element = key * (uint64_t)width, block = ~(element / 4);
    float numbers[4];
    for (int32_t i = 0; i < width; i++, element++) {
        if (element / 4 != block) {
            uint32_t bits[4];
            block = element / 4;
            trmi_philox(seed, init->stream, block, bits);
            if (init->kind == TRM_ROW_INIT_NORMAL) {
                trmi_normal_pair(bits, numbers);
                trmi_normal_pair(bits + 2, numbers + 2);
            }
            for (int k = 0; k < 4 && init->kind == TRM_ROW_INIT_UNIFORM; k++) {
                numbers[k] = 2 * trmi_unit_float(bits[k]) - 1;
            }
        }
        values[i] = init->value + init->scale * numbers[element % 4];
    }
}

/* Contract in row.h. The numbers depend on seed, key and position only, so a row has the same
 * values on any shard and at any time. */
void trmi_row_init_values(const trm_row_init *init, uint64_t seed, uint64_t key, int32_t width,
                          float *values) {
    if (init->stream != 0 && init->kind != TRM_ROW_INIT_CONSTANT) {
        init_from_stream(init, seed, key, width, values);
        return;
    }
    for (int32_t first = 0; first < width; first += 4) {
        float block[4] = {0};
        if (init->kind != TRM_ROW_INIT_CONSTANT) {
            uint32_t bits[4];
            trmi_philox(seed, TRMI_STREAM_ROW_INIT | (uint64_t)first << 8, key, bits);
            if (init->kind == TRM_ROW_INIT_UNIFORM) {
                for (int i = 0; i < 4; i++) {
                    block[i] = 2.0f * trmi_unit_float(bits[i]) - 1.0f;
                }
            } else {
                trmi_normal_pair(bits, block);
                trmi_normal_pair(bits + 2, block + 2);
            }
        }
        for (int32_t i = 0; i < 4 && first + i < width; i++) {
            values[first + i] = init->value + init->scale * block[i];
        }
    }
}
