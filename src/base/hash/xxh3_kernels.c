/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 for one instruction set (xxh3.h, base/simd/isa.h): xxhash.h chooses its vectors by the flags
 * of the compiler. */
#include "base/hash/xxh3.h"

#include "base/simd/isa.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void update_state(void *state, const void *data, size_t bytes) {
    XXH3_64bits_update(state, data, bytes); /* the same for 128 bits */
}

static uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed) {
    return XXH3_64bits_withSeed(data, bytes, seed);
}

const trmi_xxh3_kernels TRMI_FOR_ISA(trmi_xxh3) = {.update = update_state, .hash = hash_bytes};
