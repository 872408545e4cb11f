/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers (base/rng.h): Philox 4x32-10 of (seed, stream, counter). There is no
 * state, so any thread, rank or resumed run computes any number by itself.
 *
 *   trmi_philox          four words of 32 bits
 *   trmi_normal_groups   normal numbers by the Box-Muller transform, many at a time
 *   trmi_permute         the place of an index in a random order, without the order in memory
 *
 * Invariant: every function returns the same bits on every CPU and with every C library; floating
 * point operations are written out in a fixed order for that reason, and no fused multiply-add is
 * used. */
#include "base/rng.h"

#include "base/error.h"
#include "base/inline.h"

#include <math.h>
#include <string.h>

/* Words of 32 bits are held in 64, so that vector loops multiply them without moving lanes. */
TRMI_INLINE void compute_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    enum { ROUNDS = 10 };
    const uint64_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u, word = 0xFFFFFFFFu;
    /* The two words of the seed are the key, which is advanced by a constant in each round. */
    const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint64_t c0 = counter & word, c1 = counter >> 32;
    uint64_t c2 = stream & word, c3 = stream >> 32;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product0 = multiplier0 * c0;
        uint64_t product1 = multiplier1 * c2;
        c0 = (product1 >> 32) ^ c1 ^ key0;
        c2 = (product0 >> 32) ^ c3 ^ key1;
        c1 = product1 & word;
        c3 = product0 & word;
        key0 += weyl0;
        key1 += weyl1;
    }
    out[0] = (uint32_t)c0;
    out[1] = (uint32_t)c1;
    out[2] = (uint32_t)c2;
    out[3] = (uint32_t)c3;
}

void trmi_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    compute_philox(seed, stream, counter, out);
}

/* Own logarithm, sine and cosine: additions, products and a quotient in a fixed order, so that a
 * seed gives the same bits with any C library (whose functions differ by CPU). Without special
 * cases they take a fifth of the time. Errors are below 1e-15; the result differs from the
 * correctly rounded float in about one of ten million numbers. */

/* Returns log(n / 2^32), n from 1 to 2^32: n = m 2^k, m from sqrt(1/2) to sqrt(2), log m = 2
 * artanh((m - 1) / (m + 1)). */
TRMI_INLINE double log_of_unit(double n) {
    const uint64_t one = (uint64_t)0x3FF00000 << 32, root_half = (uint64_t)0x3FE6A09E << 32,
                   mantissa = ((uint64_t)1 << 52) - 1;
    uint64_t bits;
    memcpy(&bits, &n, sizeof bits);
    bits += one - root_half;
    const double k = (double)((int32_t)(bits >> 52) - 0x3FF - 32);
    bits = (bits & mantissa) + root_half;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double low = 1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11))));
    const double high =
        1.0 / 13 + z * (1.0 / 15 + z * (1.0 / 17 + z * (1.0 / 19 + z * (1.0 / 21))));
    const double z2 = z * z, series = low + z2 * z2 * z * high;
    /* k ln2_high is exact */
    const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    return k * ln2_high + (2.0 * s + (2.0 * s * (z * series) + k * ln2_low));
}

/* Computes cosine and sine of turn / 2^32 turns: reduces to a quarter and an angle of at most an
 * eighth of a turn. */
TRMI_INLINE void compute_circle(uint32_t turn, double *cosine_out, double *sine_out) {
    const uint32_t quarter = (turn + ((uint32_t)1 << 29)) >> 30;
    const double x = (double)(int32_t)(turn - (quarter << 30)) * (0x1p-32 * 6.283185307179586),
                 z = x * x;
    const double sine =
        x + x * z *
                (-1.0 / 6 +
                 z * (1.0 / 120 +
                      z * (-1.0 / 5040 +
                           z * (1.0 / 362880 + z * (-1.0 / 39916800 +
                                                    z * (1.0 / 6227020800.0 +
                                                         z * (-1.0 / 1307674368000.0 +
                                                              z * (1.0 / 355687428096000.0))))))));
    const double cosine =
        1.0 +
        z * (-0.5 + z * (1.0 / 24 +
                         z * (-1.0 / 720 +
                              z * (1.0 / 40320 + z * (-1.0 / 3628800 +
                                                      z * (1.0 / 479001600.0 +
                                                           z * (-1.0 / 87178291200.0 +
                                                                z * (1.0 / 20922789888000.0))))))));
    /* Exchange them in odd quarters and set signs without branches, because the quarter is random
     * and branches would be mispredicted. */
    uint64_t both[2], exchange = -(uint64_t)(quarter & 1);
    memcpy(&both[0], &cosine, sizeof cosine);
    memcpy(&both[1], &sine, sizeof sine);
    exchange &= both[0] ^ both[1];
    both[0] ^= exchange ^ (uint64_t)((quarter + 1) & 2) << 62;
    both[1] ^= exchange ^ (uint64_t)(quarter & 2) << 62;
    memcpy(cosine_out, &both[0], sizeof both[0]);
    memcpy(sine_out, &both[1], sizeof both[1]);
}

void trmi_normal_pair(const uint32_t bits[2], float normal[2]) {
    double at[2];
    compute_circle(bits[1], &at[0], &at[1]);
    /* The value lies in (0, 1]: the logarithm of zero never occurs. */
    const double radius = sqrt(-2.0 * log_of_unit((double)bits[0] + 1.0));
    normal[0] = (float)(radius * at[0]);
    normal[1] = (float)(radius * at[1]);
}

/* GCC makes a vector loop of the lanes for each instruction set; every lane has the operations of
 * trmi_philox and trmi_normal_pair in their order, so the bits are equal. Files named *_avx2.c are
 * compiled with fused multiply-adds, which would give other bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define FOR_EACH_ISA
#endif

/* Makes groups of normal numbers: the Box-Muller transform of pairs of words of Philox, in double.
 * Two loops over lanes, which the compiler turns into vectors. */
FOR_EACH_ISA
/* Writes normal numbers group by group. Lanes are computed side by side and written in the order of
 * the counter, so that one number alone has the same bits. */
static void make_normals(uint64_t seed, uint64_t stream, uint64_t block, int64_t groups,
                         float *normal) {
    enum { LANES = TRMI_NORMAL_GROUP / 4 };
    for (int64_t g = 0; g < groups; g++, block += LANES, normal += TRMI_NORMAL_GROUP) {
        uint32_t bits[4][LANES];
        float made[4][LANES];
        for (int l = 0; l < LANES; l++) {
            uint32_t words[4];
            compute_philox(seed, stream, block + (uint64_t)l, words);
            for (int k = 0; k < 4; k++) {
                bits[k][l] = words[k];
            }
        }
        for (int half = 0; half < 4; half += 2) {
            for (int l = 0; l < LANES; l++) {
                double cosine, sine;
                compute_circle(bits[half + 1][l], &cosine, &sine);
                const double radius = sqrt(-2.0 * log_of_unit((double)bits[half][l] + 1.0));
                made[half][l] = (float)(radius * cosine);
                made[half + 1][l] = (float)(radius * sine);
            }
        }
        for (int l = 0; l < LANES; l++) {
            for (int k = 0; k < 4; k++) {
                normal[4 * l + k] = made[k][l];
            }
        }
    }
}

void trmi_normal_groups(uint64_t seed, uint64_t stream, uint64_t block, int64_t groups,
                        float *normal) {
    make_normals(seed, stream, block, groups, normal);
}

/* Makes groups of numbers in [-1, 1), one of each word of Philox. */
FOR_EACH_ISA
/* Writes uniform numbers in [-1, 1) group by group, in the same order. */
static void make_uniforms(uint64_t seed, uint64_t stream, uint64_t block, int64_t groups,
                          float *uniform) {
    enum { LANES = TRMI_NORMAL_GROUP / 4 };
    for (int64_t g = 0; g < groups; g++, block += LANES, uniform += TRMI_NORMAL_GROUP) {
        float made[4][LANES];
        for (int l = 0; l < LANES; l++) {
            uint32_t words[4];
            compute_philox(seed, stream, block + (uint64_t)l, words);
            for (int k = 0; k < 4; k++) {
                /* 24 bits: int32_t has a conversion instruction on every CPU */
                made[k][l] = 2 * ((float)(int32_t)(words[k] >> 8) * 0x1p-24f) - 1;
            }
        }
        for (int l = 0; l < LANES; l++) {
            for (int k = 0; k < 4; k++) {
                uniform[4 * l + k] = made[k][l];
            }
        }
    }
}

void trmi_uniform_groups(uint64_t seed, uint64_t stream, uint64_t block, int64_t groups,
                         float *uniform) {
    make_uniforms(seed, stream, block, groups, uniform);
}

uint64_t trmi_mix(uint64_t a, uint64_t b) {
    uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Contract in rng.h. Format-preserving encryption by cycle walking (Black and Rogaway 2002): a
 * permutation of a slightly larger range is applied until the value lies in [0, count). */
uint64_t trmi_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index) {
    TRMI_ASSERT(index < count);
    /* The smallest even number of bits that holds [0, count): at most 4 * count values, so the
     * walk below ends after fewer than four steps on average. */
    int half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < count) {
        half_bits++;
    }
    uint64_t half_mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t value = index;
    do {
        /* six rounds of a Feistel network are a bijection of all numbers of 2 * half_bits bits */
        uint64_t left = value >> half_bits, right = value & half_mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t f = trmi_mix(seed ^ (stream * 0xD6E8FEB86659FD93u), right * 8 + round);
            uint64_t next = left ^ (f & half_mask);
            left = right;
            right = next;
        }
        value = left << half_bits | right;
    } while (value >= count);
    return value;
}
