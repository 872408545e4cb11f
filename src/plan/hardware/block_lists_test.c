/* SPDX-License-Identifier: Apache-2.0 */
/* Least prices of blocks, and lower bounds of them, against complete enumeration. */
#include "plan/hardware/block_lists.h"

#include "check.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>

enum { ITEMS = 6, BLOCKS = 5 };

static uint64_t counter;

/* Returns a number from 0 to 1. */
static double draw_number(void) {
    return (double)(trmi_random_u64(7, 0, counter++) >> 11) * 0x1p-53;
}

/* Returns a decision of random prices and bytes. */
static trmi_block_item draw_item(double work) {
    return (trmi_block_item){.price = draw_number(),
                             .bytes = draw_number(),
                             .once_price = draw_number(),
                             .once_bytes = draw_number(),
                             .work = work};
}

/* Returns the least price of `left` further blocks. work: the most of those so far. */
static double enumerate_lists(const trmi_block_choices *c, int64_t left, double bytes, double price,
                              double work) {
    if (left == 0) {
        return bytes + work <= c->limit ? price : INFINITY;
    }
    double best = INFINITY;
    for (int64_t i = 0; i < c->count; i++) {
        const trmi_block_item *d = &c->items[i];
        bool first = left == c->blocks;
        best = fmin(best,
                    enumerate_lists(c, left - 1, bytes + d->bytes + first * d->once_bytes,
                                    price + d->price + first * d->once_price, fmax(work, d->work)));
    }
    return best;
}

static void lists_agree_with_enumeration(void **state) {
    (void)state;
    int exact = 0, below = 0, none = 0;
    void *scratch = trmi_alloc(TRMI_BLOCK_SCRATCH);
    assert_non_null(scratch);
    for (int round = 0; round < 600; round++) {
        trmi_block_item items[ITEMS];
        int64_t work = 0;
        double recompute = draw_number();
        trmi_block_choices c = {.items = items,
                                .count = 1 + (int64_t)(draw_number() * ITEMS) % ITEMS,
                                .blocks = 1 + (int64_t)(draw_number() * BLOCKS) % BLOCKS,
                                .byte = 2 * draw_number() * draw_number(),
                                .enough = INFINITY,
                                .scratch = scratch};
        for (int64_t i = 0; i < c.count; i++) {
            items[i] = draw_item(draw_number() < 0.4 ? recompute : 0);
        }
        c.limit = (double)c.blocks * draw_number() + 1.2 * draw_number();
        double best = enumerate_lists(&c, c.blocks, 0, 0, 0),
               least = trmi_block_least(&c, 1000000, &work);
        assert_true(least == best || fabs(least - best) < 1e-9);
        exact += best < INFINITY;
        none += best == INFINITY;
        /* a price that is known, and little work: never above the least */
        c.enough = best < INFINITY ? best * (0.7 + 0.6 * draw_number()) : 3;
        work = 0;
        least = trmi_block_least(&c, round % 2 == 0 ? 1000000 : 5, &work);
        assert_true(least <= fmin(best, c.enough) + 1e-9);
        assert_true(round % 2 == 1 || fabs(least - fmin(best, c.enough)) < 1e-9);
        below += least < fmin(best, c.enough) - 1e-9;
    }
    trmi_free(scratch);
    print_message("%d least prices, %d impossible, %d bounds\n", exact, none, below);
    assert_true(exact > 300 && none > 20 && below > 20);
}

/* Recomputed blocks that differ in their work: a lower bound, and often the least price. */
static void other_works_have_a_bound(void **state) {
    (void)state;
    int exact = 0, below = 0;
    void *scratch = trmi_alloc(TRMI_BLOCK_SCRATCH);
    assert_non_null(scratch);
    for (int round = 0; round < 600; round++) {
        trmi_block_item items[ITEMS];
        int64_t work = 0;
        trmi_block_choices c = {.items = items,
                                .count = ITEMS,
                                .blocks = 1 + (int64_t)(draw_number() * BLOCKS) % BLOCKS,
                                .byte = 2 * draw_number() * draw_number(),
                                .enough = INFINITY,
                                .scratch = scratch};
        for (int64_t i = 0; i < c.count; i++) {
            items[i] = draw_item(draw_number() < 0.7 ? draw_number() : 0);
        }
        c.limit = (double)c.blocks * draw_number() + 1.2 * draw_number();
        double best = enumerate_lists(&c, c.blocks, 0, 0, 0),
               least = trmi_block_least(&c, 1000000, &work);
        assert_true(least <= best + 1e-9);
        exact += least < INFINITY && least > best - 1e-9;
        below += least <= best - 1e-9;
    }
    trmi_free(scratch);
    print_message("%d least prices, %d bounds\n", exact, below);
    assert_true(exact > 300 && below > 20);
}

/* More decisions than fit in the scratch memory, the only one that keeps the limit last: a lower
 * bound, although there are few for the first block. */
static void many_decisions_have_a_bound(void **state) {
    (void)state;
    const int64_t count = TRMI_BLOCK_SCRATCH / 24;
    void *scratch = trmi_alloc(TRMI_BLOCK_SCRATCH);
    trmi_block_item *items = trmi_alloc((size_t)count * sizeof *items);
    assert_true(scratch != NULL && items != NULL);
    for (int64_t i = 0; i < count; i++) {
        items[i] = i < count - 1 ? (trmi_block_item){.price = 1, .bytes = 100, .once_price = 100}
                                 : (trmi_block_item){.price = 1.5, .bytes = 0};
    }
    trmi_block_choices c = {
        .items = items, .count = count, .blocks = 2, .limit = 50, .enough = 10, .scratch = scratch};
    int64_t work = 0;
    double least = trmi_block_least(&c, 1000000000, &work);
    assert_true(least >= 2.5 && least <= 3);
    c.count = 2; /* the same with few decisions */
    items[1] = items[count - 1];
    work = 0;
    assert_true(fabs(trmi_block_least(&c, 1000000, &work) - 3) < 1e-9);
    trmi_free(items);
    trmi_free(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_agree_with_enumeration),
                                       cmocka_unit_test(other_works_have_a_bound),
                                       cmocka_unit_test(many_decisions_have_a_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
