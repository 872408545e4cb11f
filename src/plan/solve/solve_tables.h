/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve_tables.h: cost tables by number, made once. The result of an operation on tables
 * 3 and 7 is looked up before it is computed; that is how sixteen equal blocks of a network cost
 * one.
 *
 *      number  what            data
 *      0       leaf            the caller's
 *      1       transpose(0)    own          hash of (what, operands) -> number
 *      2       product(0,5,1)  own
 *
 * Numbers are a stack: a branch of the search releases what it made. */
#ifndef TRMI_PLAN_SOLVE_TABLES_H
#define TRMI_PLAN_SOLVE_TABLES_H

#include "plan/solve/solve.h"

typedef enum trmi_table_kind {
    TRMI_TABLE_LEAF,      /* operands: rows and columns; the address is compared too */
    TRMI_TABLE_TRANSPOSE, /* a */
    TRMI_TABLE_ADD,       /* a + b, equal sizes */
    TRMI_TABLE_PRODUCT,   /* C[i][k] = min_j a[i][j] + u[j] + b[j][k]; operands a, u, b */
    TRMI_TABLE_FOLD,      /* v[i] = w[i] + min_j a[i][j] + u[j]; operands a, u, w */
    TRMI_TABLE_ROW,       /* row b of a, plus vector c */
    TRMI_TABLE_SINGLE     /* vector a with all but state b illegal */
} trmi_table_kind;

typedef struct trmi_table {
    trmi_table_kind kind;
    int32_t a, b, c;
    int32_t rows, columns; /* a vector is one row */
    const float *data;
    float *own;         /* NULL: the caller's */
    int32_t next;       /* in the chain of its hash */
    int32_t generation; /* operations above the leaves */
} trmi_table;

enum { TRMI_TABLE_CHAINS = 1024 };

typedef struct trmi_tables {
    trmi_table *items;
    int64_t count, capacity;
    int32_t chains[TRMI_TABLE_CHAINS]; /* number + 1, 0 = empty */
    trmi_minplus *minplus;
    float *scratch; /* a + u of a product, and compacted b */
    int64_t scratch_capacity;
    int32_t products, shared;
} trmi_tables;

void trmi_tables_open(trmi_tables *tables);
void trmi_tables_close(trmi_tables *tables);
/* Forgets everything from number `count` on. */
void trmi_tables_release(trmi_tables *tables, int64_t count);
static inline const float *trmi_tables_data(const trmi_tables *tables, int32_t number) {
    return tables->items[number].data;
}
/* Numbers; -1 = no memory. */
int32_t trmi_tables_leaf(trmi_tables *tables, const float *data, int32_t rows, int32_t columns);
int32_t trmi_tables_make(trmi_tables *tables, trmi_table_kind kind, int32_t a, int32_t b,
                         int32_t c);

#endif
