/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve_tables.h: cost tables with numbers. An operation on tables that was already
 * computed returns the number of the existing result; so sixteen equal blocks of a network take the
 * time of one.
 *
 *      number  kind            data
 *      0       leaf            the caller's
 *      1       transpose(0)    own          hash of (kind, operands) -> number
 *      2       product(0,5,1)  own
 *
 * Table numbers are a stack: branch and bound releases the tables of a branch when it leaves the
 * branch (trmi_tables_release). Numbers above the released count are invalid afterwards. */
#ifndef TRMI_PLAN_SOLVE_TABLES_H
#define TRMI_PLAN_SOLVE_TABLES_H

#include "plan/solve/solve.h"

/* How a table was made; the meaning of its operands a, b, c. */
typedef enum trmi_table_kind {
    /* a caller's table; a, b: rows and columns; equal leaves have equal addresses */
    TRMI_TABLE_LEAF,
    TRMI_TABLE_TRANSPOSE, /* a */
    TRMI_TABLE_ADD,       /* a + b, equal sizes */
    TRMI_TABLE_PRODUCT,   /* C[i][k] = min_j a[i][j] + u[j] + b[j][k]; operands a, u, b */
    TRMI_TABLE_FOLD,      /* v[i] = w[i] + min_j a[i][j] + u[j]; operands a, u, w */
    TRMI_TABLE_ROW,       /* row b of a, plus vector c */
    TRMI_TABLE_SINGLE     /* vector a with all but state b illegal */
} trmi_table_kind;

/* One table. */
typedef struct trmi_table {
    trmi_table_kind kind;
    int32_t a, b, c;
    int32_t rows, columns; /* a vector is one row */
    const float *data;
    float *own;         /* memory of the table; NULL: the caller owns it */
    int32_t next;       /* number + 1 of the next table with the same hash, 0 = end */
    int32_t generation; /* depth of the expression that made it; 0 = leaf */
} trmi_table;

/* Chains of the hash by which tables are found. */
enum { TRMI_TABLE_CHAINS = 1024 };

/* All tables of one solve. */
typedef struct trmi_tables {
    trmi_table *items;
    int64_t count, capacity;
    int32_t chains[TRMI_TABLE_CHAINS]; /* number + 1, 0 = empty */
    trmi_minplus *minplus;
    float *scratch; /* work memory of a product: a + u, and b without illegal states */
    int64_t scratch_capacity;
    /* products computed; products found among the existing tables */
    int32_t products, shared;
} trmi_tables;

/* Initialises an empty set of tables and selects the (min,+) kernel of this CPU. */
void trmi_tables_open(trmi_tables *tables);
/* Frees all tables and their memory. */
void trmi_tables_close(trmi_tables *tables);
/* Frees all tables with numbers of at least `count`. */
void trmi_tables_release(trmi_tables *tables, int64_t count);
/* Returns the entries of a table, row-major. */
static inline const float *trmi_tables_data(const trmi_tables *tables, int32_t number) {
    return tables->items[number].data;
}
/* Returns the number of the caller's table `data` [rows][columns]; -1 = no memory. The data must
 * stay valid as long as the tables. */
int32_t trmi_tables_leaf(trmi_tables *tables, const float *data, int32_t rows, int32_t columns);
/* Returns the number of the result of operation `kind` on the tables a, b, c; computes it unless
 * the same operation on the same tables was computed before. -1 = no memory. */
int32_t trmi_tables_make(trmi_tables *tables, trmi_table_kind kind, int32_t a, int32_t b,
                         int32_t c);

#endif
