/* SPDX-License-Identifier: Apache-2.0 */
/* Least prices of blocks against complete enumeration. */
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
            items[i] = (trmi_block_item){.price = draw_number(),
                                         .bytes = draw_number(),
                                         .once_price = draw_number(),
                                         .once_bytes = draw_number(),
                                         .work = draw_number() < 0.4 ? recompute : 0};
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_agree_with_enumeration)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
