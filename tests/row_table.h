/* SPDX-License-Identifier: Apache-2.0 */
/* Short functions that create row tables and push to them, for tests. */
#ifndef TRMI_TESTS_ROW_TABLE_H
#define TRMI_TESTS_ROW_TABLE_H

#include "check.h"

#include "ps/table/table.h"

static const trmi_row_table_place one_shard = {.shards = 1};

static inline trmi_row_table *make_at(const trm_table_options *options,
                                      const trmi_row_table_place *place, trmi_account *account) {
    trm_error err;
    trmi_row_table *table = NULL;
    trm_table_options o = *options;
    o.name = "t";
    CHECK_OK(trmi_row_table_create(&o, place, account, &table, &err), err);
    return table;
}

static inline void push_rows(trmi_row_table *table, const uint64_t *keys, int64_t count,
                             const float *gradients, uint32_t tick) {
    trm_error err;
    CHECK_OK(trmi_row_table_update(table, keys, count, TRM_FLOAT32, gradients,
                                   &(trmi_tick){tick, tick, 1, 1}, &err),
             err);
}

static inline void push_one(trmi_row_table *table, uint64_t key, float gradient, uint32_t tick) {
    float g[64];
    for (int i = 0; i < table->options.width; i++) {
        g[i] = gradient;
    }
    push_rows(table, &key, 1, g, tick);
}

#endif
