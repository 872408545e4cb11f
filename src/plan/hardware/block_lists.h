/* SPDX-License-Identifier: Apache-2.0 */
/* plan/hardware/block_lists.h: the least price of a number of blocks within a limit of bytes, each
 * block with one of the same decisions. Lagrange's bound (block_bound.c) counts parts of blocks;
 * this one counts whole blocks, and what a stage needs once.
 *
 *      decisions --sums of 1, 2, 4, ... blocks--> lists of (bytes, price) --first block--> the least
 */
#ifndef TRMI_PLAN_BLOCK_LISTS_H
#define TRMI_PLAN_BLOCK_LISTS_H

#include <stdint.h>

/* Bytes of scratch memory. */
enum { TRMI_BLOCK_SCRATCH = 8 << 20 };

/* A decision of one block. */
typedef struct trmi_block_item {
    double price, bytes;
    double once_price, once_bytes; /* of what the first block's decision settles for the stage */
    /* bytes while a block is recomputed: of a stage the most of them once; 0: it is not
     * recomputed */
    double work;
} trmi_block_item;

/* Decisions to choose from, and how many blocks choose. */
typedef struct trmi_block_choices {
    const trmi_block_item *items;
    int64_t count, blocks;
    double limit; /* of bytes */
    double
        byte; /* a price of bytes, by which decisions are left out that cannot be among the least */
    double enough; /* a price from which on the least does not matter */
    void *scratch; /* TRMI_BLOCK_SCRATCH bytes */
} trmi_block_choices;

/* Returns the least price of all blocks that keep the limit, or a lower bound of it if the lists
 * grow too long, or if recomputed blocks differ in their `work`; `enough`, if it is above that.
 * *work: grows by the pairs that were added, which are limited to *work < most. */
double trmi_block_least(const trmi_block_choices *choices, int64_t most, int64_t *work);

#endif
