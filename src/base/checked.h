/* SPDX-License-Identifier: Apache-2.0 */
/* base/checked.h: checked arithmetic, for sizes that come from files, peers and users. */
#ifndef TRMI_BASE_CHECKED_H
#define TRMI_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Computes *out = a op b. False: the result does not fit; *out is then undefined. */
static inline bool trmi_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool trmi_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
/* Compute *out = a op b for size_t. False: the result does not fit; *out is then undefined. */
static inline bool trmi_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool trmi_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Returns the smallest multiple of `multiple` that is at least `value`. Not checked for overflow.
 */
static inline int64_t trmi_round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
/* Returns how many pieces of at most `most` hold `count`. */
static inline int64_t trmi_pieces(int64_t count, int64_t most) { return (count + most - 1) / most; }
/* Returns the begin of part `i` when `count` is divided into `parts` nearly equal parts; part
 * `parts` begins at the end. */
static inline int64_t trmi_cut_at(int64_t count, int64_t parts, int64_t i) {
    return count * i / parts;
}
static inline int64_t trmi_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t trmi_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
