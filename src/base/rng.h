/* SPDX-License-Identifier: Apache-2.0 */
/* base/rng.h: counter-based random numbers (Philox4x32-10, Salmon et al., SC'11).
 *
 * A number is a function of (seed, stream, counter) without any state. So the same sample gets the
 * same augmentation, and the same element the same dropout bit, on any rank or thread, with any
 * plan, and after a resume. */
#ifndef TRMI_BASE_RNG_H
#define TRMI_BASE_RNG_H

#include <stdint.h>

/* Streams separate the users of one seed. Append only: the numbers are part of the meaning of a
 * seed. */
enum {
    TRMI_STREAM_SHUFFLE = 1,
    TRMI_STREAM_AUGMENT = 2,
    TRMI_STREAM_INIT = 3,
    TRMI_STREAM_DROPOUT = 4,
    TRMI_STREAM_SYNTH = 5,
    TRMI_STREAM_ROW_INIT = 6,
    TRMI_STREAM_ROUNDING = 7,
    TRMI_STREAM_GENERATE = 8,
    TRMI_STREAM_TEST = 99
};

/* Computes four independent 32-bit numbers for (seed, stream, counter). */
void trmi_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);

/* Return one number of 32 or 64 bits. */
static inline uint32_t trmi_random_u32(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t out[4];
    trmi_philox(seed, stream, counter, out);
    return out[0];
}
/* Returns 64 random bits. */
static inline uint64_t trmi_random_u64(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t out[4];
    trmi_philox(seed, stream, counter, out);
    return (uint64_t)out[1] << 32 | out[0];
}
/* Returns a number in [0, 1) with 24 bits, exact in float. */
static inline float trmi_unit_float(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }
/* Returns a number in [0, bound), by Lemire's multiply-shift; its bias is below bound / 2^32. */
static inline uint32_t trmi_bounded(uint32_t bits, uint32_t bound) {
    return (uint32_t)((uint64_t)bits * bound >> 32);
}
/* Computes two standard normal numbers from two words, by Box-Muller. */
void trmi_normal_pair(const uint32_t bits[2], float normal[2]);
/* Standard normals of many blocks, faster: `groups` times TRMI_NORMAL_GROUP numbers, four for each
 * Philox block from `block` on, with the bits of trmi_philox() and two calls of trmi_normal_pair().
 */
enum { TRMI_NORMAL_GROUP = 64 };
void trmi_normal_groups(uint64_t seed, uint64_t stream, uint64_t block, int64_t groups,
                        float *normal);
/* Numbers in [-1, 1) of many blocks, in the same way: 2 * trmi_unit_float() - 1 of each word. */
void trmi_uniform_groups(uint64_t seed, uint64_t stream, uint64_t block, int64_t groups,
                         float *uniform);

/* Returns the place of `index` in a permutation of [0, count) that is selected by (seed, stream),
 * without storing the permutation: a Feistel network with cycle walking. */
uint64_t trmi_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index);

/* Mixes two words into one seed (SplitMix64 finaliser), e.g. seed_of_epoch = trmi_mix(seed, epoch).
 */
uint64_t trmi_mix(uint64_t a, uint64_t b);

#endif
