/* SPDX-License-Identifier: Apache-2.0 */
/* Sums the sections of several workers on one shard, table by table, for a synchronous step. */
#include "ps/shard/shard.h"

#include "base/error.h"
#include "base/memory.h"

void trmi_sum_free(trmi_sum *sum) {
    for (uint32_t t = 0; sum->held != NULL && t < sum->count; t++) {
        trmi_free(sum->held[t]);
    }
    trmi_free(sum->held);
    trmi_free(sum->sections);
    *sum = (trmi_sum){0};
}

/* Copies one table's sum out of the merge's memory, which is reused for the next table. */
static trm_status keep_sum(trmi_sum *sum, const trmi_ps_section *found, int32_t width,
                           trm_error *err) {
    size_t key_bytes = (size_t)found->count * sizeof *found->keys;
    size_t value_bytes = (size_t)(found->count * width) * sizeof(float);
    uint8_t *held = trmi_alloc(key_bytes + value_bytes + 64);
    if (held == NULL) {
        return TRMI_NO_MEMORY(err, "to sum gradients");
    }
    trmi_ps_section *to = &sum->sections[sum->count];
    *to = *found;
    to->values = held;
    to->keys = (uint64_t *)(void *)(held + value_bytes + (-value_bytes & 7));
    memcpy(to->values, found->values, value_bytes);
    memcpy(to->keys, found->keys, key_bytes);
    sum->held[sum->count++] = held;
    return TRM_OK;
}

/* Contract in shard.h. Works table by table, because the merge has memory for one table at a
 * time. */
trm_status trmi_shard_sum(trmi_shard *shard, const trmi_sum_part *parts, uint32_t count,
                          trm_dtype dtype, trmi_sum *out, trm_error *err) {
    uint32_t most = 0;
    /* the most sections that one table can have */
    for (uint32_t p = 0; p < count; p++) {
        most += parts[p].count;
    }
    trmi_ps_section *of_table = trmi_alloc((most + 1) * sizeof *of_table);
    *out = (trmi_sum){.sections = trmi_alloc((shard->table_count + 1) * sizeof *out->sections),
                      .held = trmi_alloc((shard->table_count + 1) * sizeof *out->held)};
    trm_status status = of_table == NULL || out->sections == NULL || out->held == NULL
                            ? TRMI_NO_MEMORY(err, "to sum gradients")
                            : TRM_OK;
    for (uint32_t t = 0; t < shard->table_count && status == TRM_OK; t++) {
        /* Find the sections of this table, in the order of the parts. */
        uint32_t n = 0;
        for (uint32_t p = 0; p < count; p++) {
            for (uint32_t i = 0; i < parts[p].count; i++) {
                if (parts[p].sections[i].table == t) {
                    of_table[n++] = parts[p].sections[i];
                }
            }
        }
        const trmi_merge_parts sum = {.sections = of_table,
                                      .count = n,
                                      .dtype = dtype,
                                      .width = shard->tables[t]->options.width,
                                      .nodes = parts[0].nodes};
        trmi_ps_section found = {.table = t};
        if (n == 0) {
            continue;
        }
        status = trmi_merge_sum(shard->merge, &sum, &found, err);
        status = status == TRM_OK ? keep_sum(out, &found, sum.width, err) : status;
    }
    trmi_free(of_table);
    return status;
}
