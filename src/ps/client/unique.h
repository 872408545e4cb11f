/* SPDX-License-Identifier: Apache-2.0 */
/* ps/client/unique.h: the passes over the lookups of one table that find its distinct keys
 * (client_unique.c), so that AVX-512 can replace two of them. */
#ifndef TRMI_PS_UNIQUE_H
#define TRMI_PS_UNIQUE_H

#include "ps/table/row.h"

#include "base/hash/key_numbers.h"

enum { TRMI_UNIQUE_SLACK = 16 }; /* elements that vector stores may write beyond the end */

/* The arrays of one table's lookups. */
typedef struct trmi_lookups {
    const uint64_t *keys; /* [count] */
    uint32_t *inverse;    /* [count + slack] */
    int64_t count;
    uint64_t mask; /* places - 1 */
    uint32_t *map; /* [places] */
    /* [count + slack]: scratch; look-ups whose place another key has */
    uint32_t *number, *left;
    uint64_t *distinct; /* [count + slack] */
} trmi_lookups;

/* The passes of one instruction set. */
typedef struct trmi_unique_kernels {
    /* Passes 1 and 2: inverse[i] = the last lookup at the same place; left[] = the lookups whose
     * key differs from that one's. Returns how many are left. */
    int64_t (*meet)(const trmi_lookups *l);
    /* Passes 3 and 4: replaces inverse[i], the last lookup of the same key, by the key's number,
     * from `first` on; distinct[] = the keys in the order of their numbers. Returns how many
     * there are. */
    uint32_t (*number)(const trmi_lookups *l, uint32_t first);
} trmi_unique_kernels;

extern const trmi_unique_kernels trmi_unique_plain;
#if defined(__x86_64__)
extern const trmi_unique_kernels trmi_unique_avx512;
#endif

#endif
