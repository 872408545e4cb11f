/* SPDX-License-Identifier: Apache-2.0 */
/* Sums the gradients of several workers by key, with a hash map that is cleared for each call.
 * The sum of a key is made in the order of the sections, so that its bits do not depend on the
 * order of arrival. */
#include "ps/shard/merge.h"

#include "ps/table/apply.h"
#include "ps/table/row.h"

#include "base/checked.h"
#include "base/error.h"

/* Memory of one call, kept for the next. */
struct trmi_merge {
    trmi_account *account;
    const trmi_apply_kernels *kernels;
    uint64_t *keys;
    float *values, *scratch;
    uint32_t *map; /* [capacity] position + 1 of a key, 0: free */
    int64_t key_capacity, value_capacity, scratch_capacity, map_capacity;
};

trm_status trmi_merge_create(trmi_account *account, trmi_merge **out, trm_error *err) {
    trmi_merge *m = trmi_account_alloc(account, sizeof *m);
    if (m == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no room in the budget to sum gradients");
    }
    m->account = account;
    m->kernels = trmi_apply_kernels_here();
    *out = m;
    return TRM_OK;
}

void trmi_merge_destroy(trmi_merge *m) {
    if (m == NULL) {
        return;
    }
    trmi_account_free(m->account, m->keys, (size_t)m->key_capacity * sizeof *m->keys);
    trmi_account_free(m->account, m->values, (size_t)m->value_capacity * sizeof *m->values);
    trmi_account_free(m->account, m->scratch, (size_t)m->scratch_capacity * sizeof *m->scratch);
    trmi_account_free(m->account, m->map, (size_t)m->map_capacity * sizeof *m->map);
    trmi_account_free(m->account, m, sizeof *m);
}

/* Makes room for `needed` items, without keeping the old contents. Returns false if the budget
 * has no room. */
static bool reserve(trmi_merge *m, void **memory, int64_t *capacity, int64_t needed,
                    size_t item_bytes) {
    if (needed <= *capacity) {
        return true;
    }
    trmi_account_free(m->account, *memory, (size_t)*capacity * item_bytes);
    *capacity = 0;
    *memory = trmi_account_alloc(m->account, (size_t)needed * item_bytes);
    *capacity = *memory == NULL ? 0 : needed;
    return *memory != NULL;
}

/* Returns the position of a key in m->keys, and appends a new one; *fresh: it is new. */
static int64_t position_of(trmi_merge *m, uint64_t key, int64_t *count, bool *fresh) {
    uint64_t at = trmi_key_hash(key) & (uint64_t)(m->map_capacity - 1);
    while (m->map[at] != 0 && m->keys[m->map[at] - 1] != key) {
        at = (at + 1) & (uint64_t)(m->map_capacity - 1);
    }
    *fresh = m->map[at] == 0;
    if (*fresh) {
        m->keys[*count] = key;
        m->map[at] = (uint32_t)++ * count;
    }
    return m->map[at] - 1;
}

/* Contract in merge.h. The map is at most half full, so that a search is short. */
trm_status trmi_merge_sum(trmi_merge *m, const trmi_ps_section *sections, uint32_t section_count,
                          trm_dtype dtype, int32_t width, uint64_t **keys, float **values,
                          int64_t *count, trm_error *err) {
    int64_t total = 0, map = 64;
    for (uint32_t s = 0; s < section_count; s++) {
        total += sections[s].count;
    }
    while (map < 2 * total) {
        map *= 2;
    }
    if (!reserve(m, (void **)&m->keys, &m->key_capacity, total, sizeof *m->keys) ||
        !reserve(m, (void **)&m->values, &m->value_capacity, total * width, sizeof *m->values) ||
        !reserve(m, (void **)&m->scratch, &m->scratch_capacity, width, sizeof *m->scratch) ||
        !reserve(m, (void **)&m->map, &m->map_capacity, map, sizeof *m->map)) {
        return TRMI_FAIL(err, TRM_NOMEM,
                         "no room in the budget of %lld bytes to sum gradients of %lld rows",
                         (long long)m->account->limit, (long long)total);
    }
    /* the first gradient of a key is copied, further ones are added */
    memset(m->map, 0, (size_t)m->map_capacity * sizeof *m->map);
    size_t row = (size_t)width * trm_dtype_bytes(dtype);
    int64_t rows = 0;
    for (uint32_t s = 0; s < section_count; s++) {
        for (int64_t i = 0; i < sections[s].count; i++) {
            bool fresh;
            int64_t at = position_of(m, sections[s].keys[i], &rows, &fresh);
            const uint8_t *from = sections[s].values + (size_t)i * row;
            if (fresh) {
                m->kernels->load[dtype](from, width, m->values + at * width);
                continue;
            }
            m->kernels->load[dtype](from, width, m->scratch);
            m->kernels->add_scaled(m->values + at * width, m->scratch, 1, width);
        }
    }
    *keys = m->keys;
    *values = m->values;
    *count = rows;
    return TRM_OK;
}
