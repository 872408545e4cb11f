/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash/key_numbers.h: numbers the distinct keys of a list from 0 on, in the order in which
 * they first occur; equal keys get the same number (open addressing, linear probing). The caller
 * owns all memory and chooses the hash: a product where keys are rows of a table, a mixing function
 * where a stranger may have chosen the keys.
 *
 *     trmi_key_numbers n = {.cells = cells, .mask = 2^b - 1, .keys = keys};    cells: zero; more than keys
 *     for each key:  number = trmi_number_key(&n, 8, key, hash, &fresh);
 */
#ifndef TRMI_BASE_KEY_NUMBERS_H
#define TRMI_BASE_KEY_NUMBERS_H

#include "base/inline.h"

#include <stdbool.h>
#include <stdint.h>

/* Factor of Fibonacci hashing: the high bits of key * factor are the hash. */
#define TRMI_FIBONACCI UINT64_C(0x9E3779B97F4A7C15)

/* The table; all memory is the caller's. */
typedef struct trmi_key_numbers {
    uint32_t *cells; /* [mask + 1] number + 1 of the key with this hash or one before; 0: free */
    uint64_t mask;
    void *keys; /* [count] the distinct keys, of 4 or 8 bytes */
    uint32_t count;
} trmi_key_numbers;

/* Returns the number of a key, and appends a new one.
 *   bytes  of a key, a constant: 4 or 8
 *   hash   its lower bits choose the first cell
 *   fresh  whether the key is new */
TRMI_INLINE uint32_t trmi_number_key(trmi_key_numbers *n, const int bytes, uint64_t key,
                                     uint64_t hash, bool *fresh) {
    uint32_t *narrow = n->keys;
    uint64_t *wide = n->keys, at = hash & n->mask;
    for (uint32_t cell; (cell = n->cells[at]) != 0; at = (at + 1) & n->mask) {
        if ((bytes == 4 ? narrow[cell - 1] : wide[cell - 1]) == key) {
            *fresh = false;
            return cell - 1;
        }
    }
    if (bytes == 4) {
        narrow[n->count] = (uint32_t)key;
    } else {
        wide[n->count] = key;
    }
    n->cells[at] = ++n->count;
    *fresh = true;
    return n->count - 1;
}

#endif
