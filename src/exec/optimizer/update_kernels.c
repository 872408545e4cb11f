/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update_kernels.c: the loops of update_kernels.h, compiled for each instruction
 * set (base/simd/isa.h); update.c chooses the table of the present CPU.
 *
 * The rules are those of base/simd/optimizer_rules.h, in three forms: a pass over contiguous
 * elements, a pass over rows of a table that lie anywhere (RULE), and one that reads the slots in
 * one half of the memory and writes them to the other (turns). All three give an element the same
 * bits, on every instruction set. Loops are single-threaded: the caller cuts the ranges. */
#include "exec/optimizer/update_kernels.h"

#include "base/simd/isa.h"
#include "base/simd/optimizer_rules.h"
#include "base/simd/vec.h"

#include <stdatomic.h>

enum { ROWS_AHEAD = 16 }; /* rows are prefetched so far ahead */

/* Makes the pass over rows of a rule, with the next rows of parameters and slots prefetched: rows
 * of a table lie anywhere, so that the CPU does not foresee them. */
#define RULE(name)                                                                                 \
    static void name##_rows(const trmi_rule *r, float *w, const float *g, float *s0, float *s1,    \
                            const int64_t *at, int64_t rows, int64_t width) {                      \
        const int slots = SLOTS_OF_##name;                                                         \
        for (int64_t i = 0; i < rows; i++) {                                                       \
            int64_t next = at[i + ROWS_AHEAD < rows ? i + ROWS_AHEAD : rows - 1];                  \
            __builtin_prefetch(w + next, 1);                                                       \
            if (slots > 0) {                                                                       \
                __builtin_prefetch(s0 + next, 1);                                                  \
            }                                                                                      \
            if (slots > 1) {                                                                       \
                __builtin_prefetch(s1 + next, 1);                                                  \
            }                                                                                      \
            name##_pass(r, w + at[i], g + i * width, slots > 0 ? s0 + at[i] : s0,                  \
                        slots > 1 ? s1 + at[i] : s1, width);                                       \
        }                                                                                          \
    }

RULE(sgd)
RULE(momentum)
RULE(nesterov)
RULE(adam)
RULE(lars)
RULE(adagrad)
RULE(ftrl)

static inline void sum_row(const float *from, float *sum, int64_t width, bool first) {
    for (int64_t j = 0; j < width; j += VL) {
        int n = width - j < VL ? (int)(width - j) : VL;
        vf row = vf_lanes(from, j, 0, n);
        vf_put_lanes(sum, j, 0, n, first ? row : vf_add(vf_lanes(sum, j, 0, n), row));
    }
}

/* Sums rows by group (trmi_update_kernels.sum_rows). The first row of a group overwrites its sum,
 * so sums need not be zero before. */
static inline void sum_rows_of(const float *from, const uint64_t *keys, const uint32_t *group,
                               int64_t count, const int64_t width, float *sums) {
    uint32_t groups = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t ahead = i + ROWS_AHEAD < count ? i + ROWS_AHEAD : count - 1;
        __builtin_prefetch(from + (int64_t)(uint32_t)keys[ahead] * width);
        bool first = group[i] == groups;
        groups += first;
        sum_row(from + (int64_t)(uint32_t)keys[i] * width, sums + (int64_t)group[i] * width, width,
                first);
    }
}

/* Sums the rows of a bucket by group, in the order of the keys: the first row of a group is copied,
 * later ones are added. Groups are numbered in the order in which they begin. */
static void sum_rows(const float *from, const uint64_t *keys, const uint32_t *group, int64_t count,
                     int64_t width, float *sums) {
    uint32_t groups = 0;
    if (width == 16) { /* the usual width: one vector or a few */
        sum_rows_of(from, keys, group, count, 16, sums);
    } else if (width > 1) {
        sum_rows_of(from, keys, group, count, width, sums);
    } else {
        for (int64_t i = 0; i < count; i++) {
            bool first = group[i] == groups;
            groups += first;
            sums[group[i]] = from[(uint32_t)keys[i]] + (first ? 0 : sums[group[i]]);
        }
    }
}

/* Returns the inner product. Four independent sums hide the latency of multiply-adds; the rest is
 * added to the first. */
static inline float inner_of(const float *x, const float *y, int64_t count) {
    vf a = vf_zero(), b = vf_zero(), c = vf_zero(), d = vf_zero();
    int64_t i = 0;
    for (; i + 4 * VL <= count; i += 4 * VL) {
        a = vf_fma(vf_load(x + i), vf_load(y + i), a);
        b = vf_fma(vf_load(x + i + VL), vf_load(y + i + VL), b);
        c = vf_fma(vf_load(x + i + 2 * VL), vf_load(y + i + 2 * VL), c);
        d = vf_fma(vf_load(x + i + 3 * VL), vf_load(y + i + 3 * VL), d);
    }
    for (; i < count; i += VL) {
        int n = count - i < VL ? (int)(count - i) : VL;
        a = vf_fma(vf_lanes(x, i, 0, n), vf_lanes(y, i, 0, n), a);
    }
    return vf_sum(vf_add(vf_add(a, b), vf_add(c, d)));
}
/* Computes trmi_update_kernels.inner. */
static float inner_product(const float *x, const float *y, int64_t count) {
    return inner_of(x, y, count);
}
/* Computes trmi_update_kernels.squares. */
static float sum_squares(const float *x, int64_t count) { return inner_of(x, x, count); }

/* Computes trmi_update_kernels.accumulate; with `first` the sum need not be initialised. */
static void add_scaled(float *sum, const float *x, int64_t count, float scale, bool first) {
    vf factor = vf_set(scale);
    for (int64_t i = 0; i < count; i += VL) {
        int64_t left = count - i;
        int n = left < VL ? (int)left : VL;
        vf base = first ? vf_zero() : vf_lanes(sum, i, 0, n);
        vf_put_lanes(sum, i, 0, n, vf_fma(factor, vf_lanes(x, i, 0, n), base));
    }
}

/* Computes trmi_update_kernels.copy_aside: whole vectors by stores past the caches, the rest by
 * usual ones. */
static void copy_aside(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        vf_stream(to, i, 0, vf_lanes(from, i, 0, VL));
    }
    if (i < count) {
        vf_put_lanes(to, i, 0, (int)(count - i), vf_lanes(from, i, 0, (int)(count - i)));
    }
}

#include "exec/optimizer/update_product_body.h"

/* Elements whose old values are copied before the rule changes them: so few that the memory serves
 * all ranges at the same time, so many that writes of one range come in a row. */
enum { KEPT = 16 * VL };

/* Copies the next `n` elements of w, from `at` on, to their old values. Only the compiler must not
 * change the order of copies, count and changes: a process that is killed has made its writes in
 * the order of the program. */
TRMI_INLINE void keep_old(const trmi_update_old *old, const float *w, int64_t at, int64_t n) {
    copy_aside(old->place + at, w + at, n);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(old->count, at + n, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Applies a rule to `n` elements from `at` on, at most a vector. `past`: writes the slots past the
 * caches; their places are then those of whole vectors. */
TRMI_INLINE void turn_lanes(const trmi_rule *r, lane_rule rule, const int slots, float *w,
                            const float *g, const trmi_slot_turn *s, int64_t at, int n,
                            const bool past) {
    lane x = {vf_lanes(w, at, 0, n), vf_lanes(g, at, 0, n), vf_zero(), vf_zero()};
    x.s0 = slots > 0 ? vf_lanes(s->from[0], at, 0, n) : x.s0;
    x.s1 = slots > 1 ? vf_lanes(s->from[1], at, 0, n) : x.s1;
    x = rule(r, x);
    vf_put_lanes(w, at, 0, n, x.w);
    if (slots > 0 && past) {
        vf_stream(s->to[0], at, 0, x.s0);
    } else if (slots > 0) {
        vf_put_lanes(s->to[0], at, 0, n, x.s0);
    }
    if (slots > 1 && past) {
        vf_stream(s->to[1], at, 0, x.s1);
    } else if (slots > 1) {
        vf_put_lanes(s->to[1], at, 0, n, x.s1);
    }
}

/* Applies a rule that writes the slots elsewhere. A row of a table may begin between the places of
 * whole vectors; old values of such elements are all copied first. */
TRMI_INLINE void turn_slots(const trmi_rule *constants, lane_rule rule, const int slots, float *w,
                            const float *g, const trmi_slot_turn *slot, const trmi_update_old *kept,
                            int64_t count) {
    const trmi_rule own = *constants, *r = &own; /* these stay in registers */
    const trmi_slot_turn turn = *slot, *s = &turn;
    const trmi_update_old old = *kept;
    const int64_t over = slots > 0 ? (int64_t)((uintptr_t)s->to[0] / sizeof(float) % VL) : 0;
    int64_t i = 0;
    for (; old.place != NULL && over == 0 && i + KEPT <= count; i += KEPT) {
        keep_old(&old, w, i, KEPT);
        for (int k = 0; k < KEPT; k += VL) {
            turn_lanes(r, rule, slots, w, g, s, i + k, VL, true);
        }
    }
    if (old.place != NULL && i < count) {
        keep_old(&old, w, i, count - i);
    }
    if (over != 0) {
        i = VL - over < count ? VL - over : count;
        turn_lanes(r, rule, slots, w, g, s, 0, (int)i, false);
    }
    for (; i + VL <= count; i += VL) {
        turn_lanes(r, rule, slots, w, g, s, i, VL, true);
    }
    if (i < count) {
        turn_lanes(r, rule, slots, w, g, s, i, (int)(count - i), false);
    }
}

#define TURN(name)                                                                                 \
    static void name##_turn(const trmi_rule *r, float *w, const float *g, const trmi_slot_turn *s, \
                            const trmi_update_old *old, int64_t count) {                           \
        turn_slots(r, name##_lane, SLOTS_OF_##name, w, g, s, old, count);                          \
    }
TURN(sgd)
TURN(momentum)
TURN(nesterov)
TURN(adam)
TURN(lars)
TURN(adagrad)
TURN(ftrl)

/* The table of this instruction set; the rules of tables only (lazy Adam, row-wise Adagrad) are not
 * in it. */
const trmi_update_kernels TRMI_FOR_ISA(trmi_update_kernels) = {
    .rule = {[TRM_SGD] = sgd_pass,
             [TRM_MOMENTUM] = momentum_pass,
             [TRM_NESTEROV] = nesterov_pass,
             [TRM_ADAM] = adam_pass,
             [TRM_LARS] = lars_pass,
             [TRM_ADAGRAD] = adagrad_pass,
             [TRM_FTRL] = ftrl_pass},
    .rows = {[TRM_SGD] = sgd_rows,
             [TRM_MOMENTUM] = momentum_rows,
             [TRM_NESTEROV] = nesterov_rows,
             [TRM_ADAM] = adam_rows,
             [TRM_LARS] = lars_rows,
             [TRM_ADAGRAD] = adagrad_rows,
             [TRM_FTRL] = ftrl_rows},
    .turn = {[TRM_SGD] = sgd_turn,
             [TRM_MOMENTUM] = momentum_turn,
             [TRM_NESTEROV] = nesterov_turn,
             [TRM_ADAM] = adam_turn,
             [TRM_LARS] = lars_turn,
             [TRM_ADAGRAD] = adagrad_turn,
             [TRM_FTRL] = ftrl_turn},
    .sum_rows = sum_rows,
    .product = {[TRM_SGD] = sgd_product,
                [TRM_MOMENTUM] = momentum_product,
                [TRM_NESTEROV] = nesterov_product,
                [TRM_ADAM] = adam_product,
                [TRM_LARS] = lars_product,
                [TRM_ADAGRAD] = adagrad_product,
                [TRM_FTRL] = ftrl_product},
    .multiply = write_product,
    .inner = inner_product,
    .squares = sum_squares,
    .accumulate = add_scaled,
    .copy_aside = copy_aside,
};
