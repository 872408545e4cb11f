/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash/hash.h: FNV-1a hash, 64 bits, for digests that ranks compare and for hash tables. Not
 * secure: an attacker can construct collisions. */
#ifndef TRMI_BASE_HASH_H
#define TRMI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static const uint64_t TRMI_HASH_BEGIN = UINT64_C(0xCBF29CE484222325);

/* Returns the hash of `data` after bytes with hash `hash` (TRMI_HASH_BEGIN at the start). */
static inline uint64_t trmi_hash(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *byte = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}
/* Returns the hash of a number after `hash` in one multiplication, for tables whose keys are a few
 * numbers. A digest takes the bytes with trmi_hash. */
static inline uint64_t trmi_hash_number(uint64_t hash, uint64_t number) {
    return (hash ^ number) * UINT64_C(0x100000001B3);
}

#endif
