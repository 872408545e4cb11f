/* SPDX-License-Identifier: Apache-2.0 */
/* ps/wire/table_wire.h: the options of a table as messages, logs and snapshots have them
 * (docs/reference/server-snapshot.md). Offsets and meanings of members never change, whatever the
 * public struct looks like; new members go into a new version. */
#ifndef TRMI_PS_TABLE_WIRE_H
#define TRMI_PS_TABLE_WIRE_H

#include "trireme/ps.h"

/* Options of a table, little-endian; padding is zero. */
typedef struct trmi_ps_wire_table {
    uint64_t name; /* 0: the name stands elsewhere */
    int32_t width, dtype;
    uint8_t round_to_nearest, pad1[3];
    int32_t staleness;
    uint64_t seed;
    /* rule: trm_optimizer_kind; NESTEROV is MOMENTUM with `nesterov`; l2: McMahan's lambda2 */
    int32_t rule;
    float learning_rate, momentum;
    uint8_t nesterov, decoupled, pad2[2];
    float beta1, beta2, epsilon, initial_accumulator, l1, l2, beta, weight_decay;
    int32_t init;
    float init_value, init_scale;
    int32_t pad3;
    uint64_t init_stream;
    int32_t admission, min_count;
    int64_t capacity;
    double probability;
    double after_seconds;
    int64_t after_ticks;
    float min_score, score_decay;
    int64_t max_rows;
    int32_t cap;
    float min_norm;
    int32_t placement, parts, first, pad4;
    int64_t variable_rows;
    double begin, end;
} trmi_ps_wire_table;
_Static_assert(sizeof(trmi_ps_wire_table) == 208, "part of the formats");

/* Writes the options of a table; the name does not go along. */
void trmi_ps_put_table(const trm_table_options *table, trmi_ps_wire_table *out);
/* Reads them. Values are not checked (trmi_row_table_check does); out->name is NULL. */
void trmi_ps_get_table(const trmi_ps_wire_table *wire, trm_table_options *out);

#endif
