/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a token from logits (choose.h). The k most probable tokens, and the fewest tokens of a
 * probability, are those whose logit reaches a limit. The limit is found digit by digit of the 2^32
 * patterns of a float, so that nothing is sorted and nothing is allocated:
 *
 *     pass 1   weights of the tokens by the upper 11 bits of their key: the digit in which the wanted
 *              weight is reached, from the largest key down
 *     pass 2   the same by the next 11 bits, of the keys with that digit only
 *     pass 3   the same by the last 10 bits
 *
 * Sums are made in double and in the order of the tokens. NaN is not chosen unless all logits are
 * NaN. */
#include "train/generate/choose.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Returns a number that orders floats: a < b exactly if its key is less. */
static uint32_t key_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* Weighs a token: its part of the probability, or 1 where tokens are counted. */
typedef struct weights {
    double most, temperature; /* temperature 0: each token counts 1 */
} weights;

/* Returns the weight of a token with this logit. The largest logit is subtracted first, so that
 * exp() does not overflow. */
static double weight_of(const weights *w, float logit) {
    return w->temperature == 0 ? 1 : exp(((double)logit - w->most) / w->temperature);
}

/* Returns the weight of all tokens whose key is at least `limit`. */
static double sum_from(const float *logits, int64_t count, uint32_t limit, const weights *w) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isnan(logits[i]) && key_of(logits[i]) >= limit) {
            sum += weight_of(w, logits[i]);
        }
    }
    return sum;
}

/* Returns the largest limit, from `least` on, above which the tokens have at least this weight;
 * `least` if all of them have less. Each pass finds the next digit of the limit, from the weights
 * of the tokens by that digit: three passes, of which the later ones weigh few tokens. */
static uint32_t find_limit(const float *logits, int64_t count, uint32_t least, const weights *w,
                           double weight) {
    enum { KEY_BITS = 32, DIGIT_BITS = 11 };
    uint32_t low = 0, high = UINT32_MAX; /* keys that have the digits found so far */
    double above = 0;                    /* weight of the keys beyond `high` */
    for (int bits = KEY_BITS, shift; bits > 0; bits = shift) {
        double sums[1 << DIGIT_BITS] = {0};
        shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
        for (int64_t i = 0; i < count; i++) {
            uint32_t key = key_of(logits[i]);
            if (key >= least && key >= low && key <= high && !isnan(logits[i])) {
                sums[(key - low) >> shift] += weight_of(w, logits[i]);
            }
        }
        uint32_t digit = (high - low) >> shift;
        for (; digit > 0 && above + sums[digit] < weight; digit--) {
            above += sums[digit];
        }
        if (bits == KEY_BITS && digit == 0 && above + sums[0] < weight) {
            return least;
        }
        low += digit << shift;
        high = low + (((uint32_t)1 << shift) - 1);
    }
    return low > least ? low : least;
}

/* Returns the token with the largest logit, the first of equal ones. */
static int32_t most_probable(const float *logits, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++) {
        best = logits[i] > logits[best] || isnan(logits[best]) ? i : best;
    }
    return (int32_t)best;
}

/* Contract in choose.h. `limit` is the smallest key (an order of floats as integers) that may be
 * chosen: top_k and top_p raise it. Then the inverse distribution function of a uniform number
 * picks one of the rest. */
int32_t trmi_choose(const float *logits, int64_t count, const trm_sampling *options,
                    uint64_t number) {
    int32_t best = most_probable(logits, count);
    if (!(options->temperature > 0)) {
        return best;
    }
    const weights one = {0}, probability = {(double)logits[best], options->temperature};
    uint32_t limit = 0;
    if (options->top_k > 0 && options->top_k < count) {
        limit = find_limit(logits, count, limit, &one, (double)options->top_k);
    }
    if (options->top_p > 0 && options->top_p < 1) {
        double all = sum_from(logits, count, limit, &probability);
        limit = find_limit(logits, count, limit, &probability, options->top_p * all);
    }
    double rest = sum_from(logits, count, limit, &probability) * 0x1p-53 *
                  (double)(trmi_random_u64(options->seed, TRMI_STREAM_GENERATE, number) >> 11);
    int32_t chosen = best;
    for (int64_t i = 0; i < count && rest >= 0; i++) {
        if (!isnan(logits[i]) && key_of(logits[i]) >= limit) {
            rest -= weight_of(&probability, logits[i]);
            chosen = (int32_t)i;
        }
    }
    return chosen;
}
