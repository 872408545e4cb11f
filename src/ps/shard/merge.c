/* SPDX-License-Identifier: Apache-2.0 */
/* Sums the gradients of several workers by key, with a hash map that is cleared for each call. The
 * sum of a key is made in the order of the sections or of their tree, so that its bits do not
 * depend on the order of arrival.
 *
 *   in order   the first gradient of a key is copied, later ones are added: one pass
 *   by tree    number the keys and count --> list the gradients of each key by node --> add them as
 *              the tree of blocks does on one device (strict determinism)
 *
 * Memory is kept from call to call and counted by the account of the server. One thread at a time:
 * a shard's owner. */
#include "ps/shard/merge.h"

#include "ps/table/apply.h"
#include "ps/table/row.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/key_numbers.h"
#include "base/tree_stack.h"

#include <stdlib.h>

/* A gradient of a key, in the order of the tree. */
typedef struct part_of_key {
    const float *values;
    int64_t position;
} part_of_key;

/* Memory of one call, kept for the next. */
struct trmi_merge {
    trmi_account *account;
    const trmi_apply_kernels *kernels;
    uint64_t *keys;
    float *values, *scratch;
    uint32_t *map; /* [capacity] cells of base/hash/key_numbers.h */
    /* of a tree: by gradient the number of its key; by key where its gradients begin; all
     * gradients */
    uint32_t *number;
    int64_t *begin;
    part_of_key *list;
    int64_t key_capacity, value_capacity, scratch_capacity, map_capacity, number_capacity,
        begin_capacity, list_capacity;
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
    trmi_account_free(m->account, m->number, (size_t)m->number_capacity * sizeof *m->number);
    trmi_account_free(m->account, m->begin, (size_t)m->begin_capacity * sizeof *m->begin);
    trmi_account_free(m->account, m->list, (size_t)m->list_capacity * sizeof *m->list);
    trmi_account_free(m->account, m, sizeof *m);
}

/* Makes room for `needed` items, without keeping the old contents. Returns false if the budget
 * has no room. */
static bool reserve_items(trmi_merge *m, void **memory, int64_t *capacity, int64_t needed,
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

/* Starts to number the keys of a call; the map is empty. */
static trmi_key_numbers begin_numbers(trmi_merge *m) {
    return (trmi_key_numbers){
        .cells = m->map, .mask = (uint64_t)m->map_capacity - 1, .keys = m->keys};
}

/* Makes room for `total` gradients, and empties the map. It is at most half full, so that a search
 * is short.
 *   errors  NOMEM */
static trm_status prepare_merge(trmi_merge *m, const trmi_merge_parts *p, int64_t total,
                                trm_error *err) {
    int64_t map = 64;
    while (map < 2 * total) {
        map *= 2;
    }
    const bool tree = p->count > 0 && p->sections[0].node > 0;
    bool fits = reserve_items(m, (void **)&m->keys, &m->key_capacity, total, sizeof *m->keys) &&
                reserve_items(m, (void **)&m->values, &m->value_capacity, total * p->width,
                              sizeof *m->values) &&
                reserve_items(m, (void **)&m->scratch, &m->scratch_capacity, p->width,
                              sizeof *m->scratch) &&
                reserve_items(m, (void **)&m->map, &m->map_capacity, map, sizeof *m->map);
    fits =
        fits &&
        (!tree ||
         (reserve_items(m, (void **)&m->number, &m->number_capacity, total, sizeof *m->number) &&
          reserve_items(m, (void **)&m->begin, &m->begin_capacity, total + 1, sizeof *m->begin) &&
          reserve_items(m, (void **)&m->list, &m->list_capacity, total, sizeof *m->list)));
    if (!fits) {
        return TRMI_FAIL(err, TRM_NOMEM,
                         "no room in the budget of %lld bytes to sum gradients of %lld rows",
                         (long long)m->account->limit, (long long)total);
    }
    memset(m->map, 0, (size_t)m->map_capacity * sizeof *m->map);
    return TRM_OK;
}

/* Sums in the order of the sections: the first gradient of a key is copied, further ones are added.
 * Returns the number of keys. */
static int64_t sum_in_order(trmi_merge *m, const trmi_merge_parts *p) {
    const int32_t width = p->width;
    size_t row = (size_t)width * trm_dtype_bytes(p->dtype);
    trmi_key_numbers numbers = begin_numbers(m);
    for (uint32_t s = 0; s < p->count; s++) {
        for (int64_t i = 0; i < p->sections[s].count; i++) {
            const uint64_t key = p->sections[s].keys[i];
            bool fresh;
            int64_t at = trmi_number_key(&numbers, 8, key, trmi_key_hash(key), &fresh);
            const uint8_t *from = p->sections[s].values + (size_t)i * row;
            if (fresh) {
                m->kernels->load[p->dtype](from, width, m->values + at * width);
                continue;
            }
            m->kernels->load[p->dtype](from, width, m->scratch);
            m->kernels->add_scaled(m->values + at * width, m->scratch, 1, width);
        }
    }
    return numbers.count;
}

/* ---- in the order of a tree ------------------------------------------------------------------ */

/* Compares sections by their node of the tree. */
static int compare_nodes(const void *a, const void *b) {
    uint32_t x = ((const trmi_ps_section *)a)->node, y = ((const trmi_ps_section *)b)->node;
    return (x > y) - (x < y);
}

/* Lists the gradients of each key, which begin at m->begin[key], by node. Returns the number of
 * keys. */
static int64_t list_by_key(trmi_merge *m, const trmi_merge_parts *p) {
    /* Number the keys, and count the gradients of each, one place further on. */
    trmi_key_numbers numbers = begin_numbers(m);
    int64_t item = 0;
    for (uint32_t s = 0; s < p->count; s++) {
        for (int64_t i = 0; i < p->sections[s].count; i++) {
            const uint64_t key = p->sections[s].keys[i];
            bool fresh;
            uint32_t at = trmi_number_key(&numbers, 8, key, trmi_key_hash(key), &fresh);
            m->begin[at + 1] = fresh ? 1 : m->begin[at + 1] + 1;
            m->number[item++] = at;
        }
    }
    /* Sum up, so that each entry says where a key's list begins. */
    const int64_t rows = numbers.count;
    m->begin[0] = 0;
    for (int64_t k = 0; k < rows; k++) {
        m->begin[k + 1] += m->begin[k];
    }
    /* fill the lists; begin[key] moves to the list's end */
    item = 0;
    for (uint32_t s = 0; s < p->count; s++) {
        const trmi_ps_section *from = &p->sections[s];
        for (int64_t i = 0; i < from->count; i++, item++) {
            const float *values = (const float *)(const void *)from->values + i * p->width;
            m->list[m->begin[m->number[item]]++] = (part_of_key){values, from->node - 1};
        }
    }
    return rows;
}

/* Sums the gradients of one key; returns whether the sum is not zero. -0 becomes 0, as in the sums
 * of one device. */
static bool sum_key(const part_of_key *list, int64_t count, const trmi_tree *tree, int32_t width,
                    float *out) {
    bool any = false;
    for (int32_t at = 0; at < width; at += TRMI_TREE_COLUMNS) {
        int64_t columns = trmi_min_i64(TRMI_TREE_COLUMNS, width - at);
        trmi_tree_stack stack;
        stack.depth = 0;
        for (int64_t i = 0; i < count; i++) {
            trmi_tree_stack_add(&stack, tree, list[i].position, list[i].values + at, columns);
        }
        const float *sum = trmi_tree_stack_finish(&stack, columns);
        for (int64_t i = 0; i < columns; i++) {
            out[at + i] = 0 + sum[i];
            any |= sum[i] != 0;
        }
    }
    return any;
}

/* Sums in the order of the tree. Returns the number of keys whose sum is not zero. */
static int64_t sum_by_tree(trmi_merge *m, const trmi_merge_parts *p) {
    const trmi_tree tree = trmi_tree_of(p->nodes);
    int64_t rows = list_by_key(m, p), kept = 0;
    for (int64_t k = 0, begin = 0; k < rows; begin = m->begin[k++]) {
        m->keys[kept] = m->keys[k];
        kept += sum_key(m->list + begin, m->begin[k] - begin, &tree, p->width,
                        m->values + kept * p->width);
    }
    return kept;
}

/* Sorts the sections by node and checks that each node of a shard has one.
 *   errors  INVALID */
static trm_status sort_sections(const trmi_merge_parts *p, trm_error *err) {
    qsort(p->sections, p->count, sizeof *p->sections, compare_nodes);
    for (uint32_t s = 0; s < p->count; s++) {
        uint32_t node = p->sections[s].node;
        if (node == 0 || node > p->nodes || (s > 0 && node == p->sections[s - 1].node)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "strict determinism: table %u has sums of node %u of %lld twice, or "
                             "some without a node; start all workers with the same options",
                             p->sections[s].table, node, (long long)p->nodes);
        }
    }
    return TRM_OK;
}

/* Contract in merge.h. */
trm_status trmi_merge_sum(trmi_merge *m, const trmi_merge_parts *p, trmi_ps_section *out,
                          trm_error *err) {
    int64_t total = 0;
    bool tree = false;
    for (uint32_t s = 0; s < p->count; s++) {
        total += p->sections[s].count;
        tree |= p->sections[s].node > 0;
    }
    if (tree) {
        TRMI_TRY(sort_sections(p, err));
    }
    TRMI_TRY(prepare_merge(m, p, total, err));
    out->count = tree ? sum_by_tree(m, p) : sum_in_order(m, p);
    out->keys = m->keys;
    out->values = (uint8_t *)m->values;
    return TRM_OK;
}
