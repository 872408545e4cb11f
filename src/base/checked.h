/* SPDX-License-Identifier: Apache-2.0 */
/* base/checked.h: arithmetic on sizes that come from files, peers and users. */
#ifndef TRMI_BASE_CHECKED_H
#define TRMI_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a op b; false (and *out undefined) when it does not fit. */
static inline bool trmi_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool trmi_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool trmi_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool trmi_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline int64_t trmi_round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
/* How many pieces of at most `most` hold `count`. */
static inline int64_t trmi_pieces(int64_t count, int64_t most) { return (count + most - 1) / most; }
/* Where part `i` of `parts` nearly equal ones begins; part `parts` begins at the end. */
static inline int64_t trmi_cut_at(int64_t count, int64_t parts, int64_t i) {
    return count * i / parts;
}
static inline int64_t trmi_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t trmi_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
