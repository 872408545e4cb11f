#include "base/rng.h"

#include "base/error.h"

#include <math.h>

void trmi_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    enum { ROUNDS = 10 };
    const uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
    const uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product0 = (uint64_t)multiplier0 * c0;
        uint64_t product1 = (uint64_t)multiplier1 * c2;
        uint32_t next0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
        uint32_t next2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)product1;
        c3 = (uint32_t)product0;
        c0 = next0;
        c2 = next2;
        key0 += weyl0;
        key1 += weyl1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void trmi_normal_pair(const uint32_t bits[2], float normal[2]) {
    /* (0, 1]: the logarithm never sees zero. */
    double u = ((double)bits[0] + 1.0) * 0x1p-32;
    double angle = (double)bits[1] * (0x1p-32 * 6.283185307179586);
    double radius = sqrt(-2.0 * log(u));
    normal[0] = (float)(radius * cos(angle));
    normal[1] = (float)(radius * sin(angle));
}

uint64_t trmi_mix(uint64_t a, uint64_t b) {
    uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

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
