/* SPDX-License-Identifier: Apache-2.0 */
/* Least price of blocks by lists of (bytes, price) (block_lists.h). With a price of bytes each
 * decision has a reduced price, by which it is above the least one. Sums of reduced prices above
 * what is between Lagrange's bound and `enough` are left out, and so are sums with more bytes and a
 * higher price than another one. */
#include "plan/hardware/block_lists.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* MOST_SUMS: sums of a list; MOST_ITEMS: decisions of a block that may be among the least; LISTS:
 * three for all blocks but one, and three for all but two. */
enum { MOST_SUMS = 512, MOST_ITEMS = 4096, LISTS = 6 };

/* The sum of some blocks. */
typedef struct block_sum {
    double bytes, price, reduced;
} block_sum;

_Static_assert(((size_t)MOST_SUMS * MOST_SUMS + LISTS * MOST_SUMS) * sizeof(block_sum) +
                       2 * MOST_ITEMS * sizeof(void *) <=
                   TRMI_BLOCK_SCRATCH,
               "the scratch suffices");

/* Sums of the same number of blocks, by rising bytes and falling price. */
typedef struct sum_list {
    block_sum *sums;
    int64_t count;
    bool too_long; /* more than MOST_SUMS: the list is not complete, and no least price follows */
} sum_list;

/* The lists that are being added up. */
typedef struct adding {
    const trmi_block_choices *c;
    double least, first; /* prices with that of bytes: of a block; of the first one */
    double budget;       /* of reduced prices */
    bool recomputes;     /* one block at least is recomputed; false: none is */
    block_sum *scratch;  /* [MOST_SUMS * MOST_SUMS] */
    /* the decisions of the first block, and of another one that is recomputed */
    const trmi_block_item **firsts, **others;
    int64_t firsts_count, others_count;
    int64_t most, *work; /* steps at most; steps so far, also of earlier calls */
} adding;

/* Returns the price of a block with its bytes at their price; first_price_of: with what is paid
 * once. */
static double price_of(const adding *a, const trmi_block_item *i) {
    return i->price + a->c->byte * i->bytes;
}

static double first_price_of(const adding *a, const trmi_block_item *i) {
    return price_of(a, i) + i->once_price + a->c->byte * i->once_bytes;
}

/* Returns whether a decision belongs to the blocks of this case: any, or one without recompute. */
static bool is_allowed(const adding *a, const trmi_block_item *i) {
    return a->recomputes || i->work == 0;
}

/* Compares sums by bytes, then by price, so that a walk finds the sums that no other one beats. */
static int by_bytes(const void *x, const void *y) {
    const block_sum *a = x, *b = y;
    return a->bytes != b->bytes ? (a->bytes > b->bytes) - (a->bytes < b->bytes)
                                : (a->price > b->price) - (a->price < b->price);
}

/* Sorts `count` sums of the scratch and keeps those that none of fewer bytes is cheaper than. */
static void keep_sums(adding *a, int64_t count, sum_list *out) {
    double price = INFINITY;
    int64_t kept = 0;
    qsort(a->scratch, (size_t)count, sizeof *a->scratch, by_bytes);
    for (int64_t i = 0; i < count && !out->too_long; i++) {
        if (a->scratch[i].price < price) {
            price = a->scratch[i].price;
            out->too_long = kept == MOST_SUMS;
            a->scratch[out->too_long ? 0 : kept++] = a->scratch[i];
        }
    }
    memcpy(out->sums, a->scratch, (size_t)kept * sizeof *out->sums);
    out->count = kept;
}

/* Lists the decisions of one block. */
static void list_one(adding *a, sum_list *out) {
    int64_t count = 0;
    out->too_long = false;
    for (int64_t i = 0; i < a->c->count && !out->too_long; i++) {
        const trmi_block_item *item = &a->c->items[i];
        double reduced = price_of(a, item) - a->least;
        if (is_allowed(a, item) && reduced <= a->budget) {
            out->too_long = count == (int64_t)MOST_SUMS * MOST_SUMS;
            a->scratch[out->too_long ? 0 : count++] =
                (block_sum){item->bytes, item->price, reduced};
        }
    }
    *a->work += a->c->count;
    keep_sums(a, count, out);
}

/* Lists the sums of two lists, without those above the budget. The scratch has room for all
 * pairs. */
static void add_lists(adding *a, const sum_list *x, const sum_list *y, sum_list *out) {
    int64_t count = 0;
    out->too_long = x->too_long || y->too_long || *a->work >= a->most;
    for (int64_t i = 0; i < x->count && !out->too_long; i++) {
        for (int64_t k = 0; k < y->count; k++) {
            const block_sum *p = &x->sums[i], *q = &y->sums[k];
            if (p->reduced + q->reduced <= a->budget) {
                a->scratch[count++] =
                    (block_sum){p->bytes + q->bytes, p->price + q->price, p->reduced + q->reduced};
            }
        }
    }
    *a->work += x->count * y->count + 8 * count;
    keep_sums(a, count, out);
}

/* Lists the sums of `blocks` blocks, by doubling, in one of the three lists: `power` has the sums
 * of 1, 2, 4, ... blocks, `sum` those of the binary digits of `blocks` so far; `next` is free. */
static const sum_list *list_blocks(adding *a, int64_t blocks, sum_list lists[3]) {
    sum_list *power = &lists[0], *sum = &lists[1], *next = &lists[2];
    sum->too_long = false;
    list_one(a, power);
    sum->sums[0] = (block_sum){0, 0, 0};
    sum->count = 1;
    for (int64_t left = blocks; left > 0; left /= 2) {
        if (left % 2 == 1) {
            add_lists(a, sum, power, next);
            sum_list *swap = sum;
            sum = next;
            next = swap;
        }
        if (left > 1) {
            add_lists(a, power, power, next);
            sum_list *swap = power;
            power = next;
            next = swap;
        }
    }
    return sum;
}

/* Returns the least price of a list within `room` bytes. */
static double least_within(const sum_list *list, double room) {
    int64_t low = 0, high = list->count; /* the first sum with more bytes */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (list->sums[middle].bytes <= room) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? list->sums[low - 1].price : INFINITY;
}

/* Notes the decisions that may be among the least: of the first block, and of a block that is
 * recomputed. Returns false if there are too many. */
static bool list_items(adding *a, double work) {
    const trmi_block_choices *c = a->c;
    a->firsts_count = a->others_count = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const trmi_block_item *item = &c->items[i];
        const bool can = a->firsts_count < MOST_ITEMS && a->others_count < MOST_ITEMS;
        if (is_allowed(a, item) && first_price_of(a, item) - a->first <= a->budget && can) {
            a->firsts[a->firsts_count++] = item;
        }
        if (item->work > 0 && can &&
            price_of(a, item) - a->least + c->byte * (item->work - work) <= a->budget) {
            a->others[a->others_count++] = item;
        }
    }
    return a->firsts_count < MOST_ITEMS && a->others_count < MOST_ITEMS;
}

/* Returns the least price of all blocks if the first one decides so. rest: sums of all blocks but
 * one, and of all but two. Where blocks are recomputed, the work of one of them counts: of the
 * first, or of another one. It is the most of all if all need as much, and else at most that. */
static double least_of_first(const adding *a, const trmi_block_item *f,
                             const sum_list *const rest[2]) {
    const trmi_block_choices *c = a->c;
    const double price = f->price + f->once_price, room = c->limit - f->bytes - f->once_bytes,
                 left = a->budget - (first_price_of(a, f) - a->first);
    if (!a->recomputes || f->work > 0) {
        return price + least_within(rest[0], room - f->work);
    }
    double best = INFINITY;
    for (int64_t i = 0; i < a->others_count && rest[1] != NULL; i++) {
        const trmi_block_item *w = a->others[i];
        ++*a->work;
        if (price_of(a, w) - a->least <= left) {
            best = fmin(best, price + w->price + least_within(rest[1], room - w->bytes - w->work));
        }
    }
    return best;
}

/* Returns the least price of the stages of which a block is recomputed, or of the others
 * (a->recomputes says which); `enough` if none is below it. Where lists or work become too long it
 * returns Lagrange's bound, which is at most the least price. */
static double least_of_case(adding *a, sum_list lists[2][3]) {
    const trmi_block_choices *c = a->c;
    const sum_list *rest[2] = {NULL, NULL};
    double work = INFINITY, best = c->enough;
    a->least = a->first = INFINITY;
    for (int64_t i = 0; i < c->count; i++) {
        const trmi_block_item *item = &c->items[i];
        if (is_allowed(a, item)) {
            a->least = fmin(a->least, price_of(a, item));
            a->first = fmin(a->first, first_price_of(a, item));
            work = a->recomputes && item->work == 0 ? work : fmin(work, item->work);
        }
    }
    *a->work += 3 * c->count;
    double bound = (double)(c->blocks - 1) * a->least + a->first + c->byte * (work - c->limit);
    a->budget = c->enough - bound;
    if (!(bound < c->enough)) { /* also if there is no decision of this case */
        return c->enough;
    }
    if (!list_items(a, work)) {
        return bound;
    }
    rest[0] = list_blocks(a, c->blocks - 1, lists[0]);
    if (a->recomputes && c->blocks > 1) {
        rest[1] = list_blocks(a, c->blocks - 2, lists[1]);
    }
    if (rest[0]->too_long || (rest[1] != NULL && rest[1]->too_long) || *a->work >= a->most) {
        return bound;
    }
    for (int64_t i = 0; i < a->firsts_count; i++) {
        best = fmin(best, least_of_first(a, a->firsts[i], rest));
    }
    return best;
}

/* Contract in block_lists.h. Stages of which no block is recomputed need no work. */
double trmi_block_least(const trmi_block_choices *choices, int64_t most, int64_t *work) {
    adding a = {.c = choices, .most = most, .work = work, .scratch = choices->scratch};
    sum_list lists[2][3];
    block_sum *sums = a.scratch + (int64_t)MOST_SUMS * MOST_SUMS;
    a.firsts = (const trmi_block_item **)(sums + (int64_t)LISTS * MOST_SUMS);
    a.others = a.firsts + MOST_ITEMS;
    for (int i = 0; i < LISTS; i++) {
        lists[i / 3][i % 3] = (sum_list){.sums = sums + (int64_t)i * MOST_SUMS};
    }
    double least = least_of_case(&a, lists);
    a.recomputes = true;
    return fmin(least, least_of_case(&a, lists));
}
