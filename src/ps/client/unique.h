/* SPDX-License-Identifier: Apache-2.0 */
/* ps/client/unique.h: the passes over the look-ups of one table that find its distinct keys
 * (client_unique.c). */
#ifndef TRMI_PS_UNIQUE_H
#define TRMI_PS_UNIQUE_H

#include "ps/table/row.h"

enum { TRMI_UNIQUE_SLACK = 16 }; /* elements that vectors may write beyond what they keep */

/* Where the keys of one batch meet first: their products with it, bits 32 and up (Fibonacci
 * hashing). Good enough for keys that nobody has chosen, and half the work of trmi_key_hash, by
 * which those are told apart that met here. */
#define TRMI_UNIQUE_FACTOR 0x9E3779B97F4A7C15u

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

/* What one instruction set has. */
typedef struct trmi_unique_kernels {
    /* inverse[i] = the last look-up at the same place; left[] = those whose key that is not. How
     * many are left. */
    int64_t (*meet)(const trmi_lookups *l);
    /* inverse[i], the last look-up of key i, becomes its key's number, from `first` on; distinct[]
     * = the keys in the order of their numbers. Returns how many there are. */
    uint32_t (*number)(const trmi_lookups *l, uint32_t first);
} trmi_unique_kernels;

extern const trmi_unique_kernels trmi_unique_plain;
#if defined(__x86_64__)
extern const trmi_unique_kernels trmi_unique_avx512;
#endif

#endif
