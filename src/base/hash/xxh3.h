/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash/xxh3.h: XXH3 of many bytes (messages, files, logs) by the widest vectors of this CPU.
 * States and hashes are those of xxhash.h, which compiles for the vectors that each x86-64 has;
 * short data are hashed with it. */
#ifndef TRMI_BASE_XXH3_H
#define TRMI_BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

/* The functions for one instruction set. */
typedef struct trmi_xxh3_kernels {
    void (*update)(void *state, const void *data, size_t bytes);
    uint64_t (*hash)(const void *data, size_t bytes, uint64_t seed);
} trmi_xxh3_kernels;
extern const trmi_xxh3_kernels trmi_xxh3_plain;
#if defined(__x86_64__)
extern const trmi_xxh3_kernels trmi_xxh3_avx2, trmi_xxh3_avx512;
#endif

/* Adds bytes to a state (XXH3_state_t) of 64 or of 128 bits. */
void trmi_xxh3_update(void *state, const void *data, size_t bytes);
/* Returns XXH3_64bits_withSeed. */
uint64_t trmi_xxh3(const void *data, size_t bytes, uint64_t seed);

#endif
