/* SPDX-License-Identifier: Apache-2.0 */
/* base/rng.h: counter-based random numbers (Philox4x32-10, Salmon et al., SC'11).
 *
 * A number is a pure function of (seed, stream, counter): no state, so that the same sample gets
 * the same augmentation and the same element the same dropout bit on any rank, thread or plan,
 * and after any resume. */
#ifndef TRMI_BASE_RNG_H
#define TRMI_BASE_RNG_H

#include <stdint.h>

/* Streams keep users of one seed apart; append only (they are part of what a seed means). */
enum {
    TRMI_STREAM_SHUFFLE = 1,
    TRMI_STREAM_AUGMENT = 2,
    TRMI_STREAM_INIT = 3,
    TRMI_STREAM_DROPOUT = 4,
    TRMI_STREAM_SYNTH = 5,
    TRMI_STREAM_ROW_INIT = 6,
    TRMI_STREAM_ROUNDING = 7,
    TRMI_STREAM_TEST = 99
};

/* Four independent 32-bit numbers for (seed, stream, counter). */
void trmi_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);

static inline uint32_t trmi_random_u32(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t out[4];
    trmi_philox(seed, stream, counter, out);
    return out[0];
}
static inline uint64_t trmi_random_u64(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t out[4];
    trmi_philox(seed, stream, counter, out);
    return (uint64_t)out[1] << 32 | out[0];
}
/* [0, 1), 24 bits: exact in float. */
static inline float trmi_unit_float(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }
/* [0, bound) without modulo bias worth naming (Lemire's multiply-shift). */
static inline uint32_t trmi_bounded(uint32_t bits, uint32_t bound) {
    return (uint32_t)((uint64_t)bits * bound >> 32);
}
/* Standard normal by Box-Muller on one block: two bits words, two numbers. */
void trmi_normal_pair(const uint32_t bits[2], float normal[2]);

/* A bijection of [0, count) keyed by (seed, stream): the place of index `index` in a permutation,
 * without storing the permutation. Feistel network with cycle walking. */
uint64_t trmi_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index);

/* Mixes two words into one seed (SplitMix64 finaliser): seed_of_epoch = trmi_mix(seed, epoch). */
uint64_t trmi_mix(uint64_t a, uint64_t b);

#endif
