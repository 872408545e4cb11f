/* SPDX-License-Identifier: Apache-2.0 */
/* Cost tables with numbers: storage, look-up by hash, and the operations on tables.
 *
 * A table is found by its kind and operands. Chains hold the newest table first, so that releasing
 * tables from the end only removes chain heads. Every operation returns the same bits on every CPU.
 */
#include "plan/solve/solve_tables.h"

#include "base/cpu.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void trmi_tables_open(trmi_tables *t) {
    memset(t, 0, sizeof *t);
    t->minplus = TRMI_CPU_CHOICE(trmi_minplus);
}

/* Returns the hash chain of a table: of the address for a leaf, of the operands otherwise. */
static uint32_t chain_of(const trmi_table *key) {
    uint64_t h = (uint64_t)(uintptr_t)(key->kind == TRMI_TABLE_LEAF ? key->data : NULL) >> 4;
    h = (h ^ (uint64_t)key->kind) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(uint32_t)key->a) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(uint32_t)key->b) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(uint32_t)key->c) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) % TRMI_TABLE_CHAINS;
}

void trmi_tables_release(trmi_tables *t, int64_t count) {
    while (t->count > count) {
        trmi_table *last = &t->items[--t->count];
        t->chains[chain_of(last)] = last->next; /* the newest table of a chain is its head */
        trmi_free(last->own);
    }
}

void trmi_tables_close(trmi_tables *t) {
    trmi_tables_release(t, 0);
    free(t->items);
    trmi_free(t->scratch);
}

/* Returns the number of the table with the same kind and operands; -1 = none. */
static int32_t find_table(const trmi_tables *t, const trmi_table *key) {
    for (int32_t n = t->chains[chain_of(key)]; n != 0; n = t->items[n - 1].next) {
        const trmi_table *at = &t->items[n - 1];
        bool same = at->kind == key->kind && at->a == key->a && at->b == key->b && at->c == key->c;
        if (same && (key->kind != TRMI_TABLE_LEAF || at->data == key->data)) {
            return n - 1;
        }
    }
    return -1;
}

/* Appends a table and takes over its memory. Returns its number; -1 = no memory. */
static int32_t add_table(trmi_tables *t, trmi_table key) {
    if (!trmi_grow((void **)&t->items, &t->capacity, t->count + 1, sizeof *t->items)) {
        trmi_free(key.own);
        return -1;
    }
    uint32_t chain = chain_of(&key);
    key.next = t->chains[chain];
    t->items[t->count] = key;
    t->chains[chain] = (int32_t)++t->count;
    return (int32_t)t->count - 1;
}

int32_t trmi_tables_leaf(trmi_tables *t, const float *data, int32_t rows, int32_t columns) {
    trmi_table key = {.kind = TRMI_TABLE_LEAF, .a = rows, .b = columns, .data = data};
    int32_t number = find_table(t, &key);
    key.rows = rows;
    key.columns = columns;
    return number >= 0 ? number : add_table(t, key);
}

/* ---- operations ---- */

/* Makes the work memory hold at least `count` floats. The old content is lost. */
static bool reserve_scratch(trmi_tables *t, int64_t count) {
    if (t->scratch_capacity < count) {
        trmi_free(t->scratch);
        t->scratch = trmi_alloc((size_t)count * sizeof *t->scratch);
        t->scratch_capacity = t->scratch != NULL ? count : 0;
    }
    return t->scratch != NULL;
}

/* Writes the transpose of a[rows][columns] to out, in tiles that stay in the L1 cache. */
static void transpose_entries(const float *a, int32_t rows, int32_t columns, float *out) {
    enum { TILE = 16 };
    for (int32_t r = 0; r < rows; r += TILE) {
        for (int32_t c = 0; c < columns; c += TILE) {
            for (int32_t i = r; i < rows && i < r + TILE; i++) {
                for (int32_t k = c; k < columns && k < c + TILE; k++) {
                    out[(int64_t)k * rows + i] = a[(int64_t)i * columns + k];
                }
            }
        }
    }
}

/* Computes out[i][k] = min_j a[i][j] + u[j] + b[j][k]. States j with u[j] = INFINITY are removed
 * before the product, because they cannot be the minimum. False: no memory. */
static bool minplus_product(trmi_tables *t, const trmi_table *a, const float *u,
                            const trmi_table *b, float *out) {
    int32_t m = a->rows, js = a->columns, n = b->columns, live = 0;
    if (!reserve_scratch(t, (int64_t)m * js + (int64_t)js * n)) {
        return false;
    }
    float *left = t->scratch, *right = t->scratch + (int64_t)m * js;
    for (int32_t j = 0; j < js; j++) {
        live += u[j] < INFINITY;
    }
    for (int32_t j = 0, at = 0; j < js; j++) {
        if (u[j] < INFINITY) {
            for (int32_t i = 0; i < m; i++) {
                left[(int64_t)i * live + at] = a->data[(int64_t)i * js + j] + u[j];
            }
            memcpy(right + (int64_t)at++ * n, b->data + (int64_t)j * n, (size_t)n * sizeof(float));
        }
    }
    t->minplus(left, right, out, m, live, n);
    return true;
}

/* Computes out[i] = w[i] + min_j a[i][j] + u[j]: eliminates a node with one neighbour. */
static void fold_node(const trmi_table *a, const float *u, const float *w, float *out) {
    for (int32_t i = 0; i < a->rows; i++) {
        const float *row = a->data + (int64_t)i * a->columns;
        float best = INFINITY;
        for (int32_t j = 0; j < a->columns; j++) {
            best = row[j] + u[j] < best ? row[j] + u[j] : best;
        }
        out[i] = w[i] + best;
    }
}

/* Sets rows, columns and generation of the result of an operation. */
static void set_sizes(const trmi_tables *t, trmi_table *key) {
    const trmi_table *a = &t->items[key->a];
    key->rows = a->rows;
    key->columns = a->columns;
    key->generation = a->generation + (key->kind != TRMI_TABLE_TRANSPOSE);
    if (key->kind == TRMI_TABLE_ADD || key->kind == TRMI_TABLE_PRODUCT ||
        key->kind == TRMI_TABLE_FOLD) {
        /* The table is one generation later than any operand. */
        const trmi_table *b = &t->items[key->b],
                         *c = &t->items[key->kind == TRMI_TABLE_ADD ? key->b : key->c];
        int32_t most = b->generation > c->generation ? b->generation : c->generation;
        key->generation = most >= key->generation ? most + 1 : key->generation;
    }
    switch (key->kind) {
    case TRMI_TABLE_TRANSPOSE:
        key->rows = a->columns;
        key->columns = a->rows;
        break;
    case TRMI_TABLE_PRODUCT: key->columns = t->items[key->c].columns; break;
    case TRMI_TABLE_FOLD:
        key->rows = 1;
        key->columns = a->rows;
        break;
    case TRMI_TABLE_ROW: key->rows = 1; break;
    default: break;
    }
}

/* Computes the entries of key->own. False: no memory, or the kind has no operation. */
static bool compute_table(trmi_tables *t, trmi_table *key) {
    const trmi_table *a = &t->items[key->a];
    int64_t count = (int64_t)key->rows * key->columns;
    switch (key->kind) {
    case TRMI_TABLE_TRANSPOSE:
        transpose_entries(a->data, a->rows, a->columns, key->own);
        return true;
    case TRMI_TABLE_ADD:
        for (int64_t i = 0; i < count; i++) {
            key->own[i] = a->data[i] + t->items[key->b].data[i];
        }
        return true;
    case TRMI_TABLE_PRODUCT:
        t->products++;
        return minplus_product(t, a, t->items[key->b].data, &t->items[key->c], key->own);
    case TRMI_TABLE_FOLD:
        fold_node(a, t->items[key->b].data, t->items[key->c].data, key->own);
        return true;
    case TRMI_TABLE_ROW:
        for (int64_t i = 0; i < count; i++) {
            key->own[i] = a->data[(int64_t)key->b * a->columns + i] + t->items[key->c].data[i];
        }
        return true;
    case TRMI_TABLE_SINGLE:
        for (int64_t i = 0; i < count; i++) {
            key->own[i] = i == key->b ? a->data[i] : INFINITY;
        }
        return true;
    default: return false;
    }
}

/* Contract in solve_tables.h. -1: no memory. */
int32_t trmi_tables_make(trmi_tables *t, trmi_table_kind kind, int32_t a, int32_t b, int32_t c) {
    trmi_table key = {.kind = kind, .a = a, .b = b, .c = c};
    int32_t number = find_table(t, &key);
    if (number >= 0) {
        t->shared += kind == TRMI_TABLE_PRODUCT;
        return number;
    }
    set_sizes(t, &key);
    key.own = trmi_alloc((size_t)key.rows * (size_t)key.columns * sizeof(float));
    if (key.own == NULL || !compute_table(t, &key)) {
        trmi_free(key.own);
        return -1;
    }
    key.data = key.own;
    return add_table(t, key);
}
