/* SPDX-License-Identifier: Apache-2.0 */
/* The halves of an all-reduce, of which the other collectives consist, too: scatter parts sum each
 * block to its rank, gather parts distribute the blocks. n is the number of ranks, r this rank.
 *
 *   part      rounds      elements that a rank sends
 *   ring      n - 1       (n - 1) / n of the vector, to one neighbour
 *   Bruck     log2 n      (n - 1) / n, in messages that double or halve
 *   halving   log2 n      (n - 1) / n; n a power of two (doubling is its way back)
 *   direct    1           (n - 1) / n, to all ranks at once
 *
 * All send the same; they differ in the number of messages and in who receives them
 * (schedule_cost.c). Sums of `direct` are in rank order; those of the others in the order of the
 * rounds, which is fixed, too. */
#include "comm/schedule/schedule.h"

#include "base/checked.h"

/* Returns the elements of the longest block, the size of a temporary buffer for any block. */
static int64_t longest_block(const trmi_builder *b) {
    int64_t longest = 0;
    for (int32_t i = 0; i < b->size; i++) {
        longest = trmi_max_i64(longest, trmi_block_count(b, i));
    }
    return longest;
}

/* Receives into temporary memory what is to be added to `to`. */
static void receive_aside(trmi_builder *b, int32_t peer, trmi_schedule_range to, int64_t temp) {
    trmi_add_receive(b, peer, (trmi_schedule_range){TRMI_TEMP_BUFFER, temp, to.count});
}

/* --- ring --- */
/* Round s: this rank sends block r-1-s to the right and receives block r-2-s from the left, which
 * it adds to its own. After n-1 rounds, block r has passed all ranks and is complete on rank r. */
void trmi_ring_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank;
    int64_t temp = trmi_take_temp(b, longest_block(b));
    for (int32_t s = 0; s < n - 1; s++, b->round++) {
        trmi_schedule_range out = trmi_blocks(b, place, base, trmi_modulo(r - 1 - s, n), 1);
        trmi_schedule_range in = trmi_blocks(b, place, base, trmi_modulo(r - 2 - s, n), 1);
        trmi_add_send(b, trmi_modulo(r + 1, n), out);
        receive_aside(b, trmi_modulo(r - 1, n), in, temp);
        trmi_add_reduce(b, in, TRMI_TEMP_BUFFER, temp);
    }
}

/* Round s: this rank passes block r-s to the right, which it received in the round before. */
void trmi_ring_gather(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank;
    for (int32_t s = 0; s < n - 1; s++, b->round++) {
        trmi_add_send(b, trmi_modulo(r + 1, n),
                      trmi_blocks(b, place, base, trmi_modulo(r - s, n), 1));
        trmi_add_receive(b, trmi_modulo(r - 1, n),
                         trmi_blocks(b, place, base, trmi_modulo(r - s - 1, n), 1));
    }
}

/* --- Bruck --- */
/* Returns `blocks` blocks from `first` on, counted cyclically, as one or two ranges (*runs). */
static int32_t cyclic_runs(const trmi_builder *b, trmi_schedule_place place, int64_t base,
                           int32_t first, int32_t blocks, trmi_schedule_range runs[2]) {
    int32_t start = trmi_modulo(first, b->size);
    int32_t head = start + blocks <= b->size ? blocks : b->size - start;
    runs[0] = trmi_blocks(b, place, base, start, head);
    runs[1] = trmi_blocks(b, place, base, 0, blocks - head);
    return blocks > head ? 2 : 1;
}

/* Gathers as Bruck et al., "Efficient algorithms for all-to-all communications" (1997). In the
 * round in which this rank has blocks r .. r+have-1, it sends those that are new to rank r-have,
 * which are all of them but in the last round. */
void trmi_bruck_gather(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank;
    for (int32_t have = 1; have < n; have *= 2, b->round++) {
        int32_t blocks = have < n - have ? have : n - have;
        trmi_schedule_range out[2], in[2];
        int32_t outs = cyclic_runs(b, place, base, r, blocks, out);
        int32_t ins = cyclic_runs(b, place, base, r + have, blocks, in);
        for (int32_t i = 0; i < outs; i++) {
            trmi_add_send(b, trmi_modulo(r - have, n), out[i]);
        }
        for (int32_t i = 0; i < ins; i++) {
            trmi_add_receive(b, trmi_modulo(r + have, n), in[i]);
        }
    }
}

/* Contract in schedule.h. The rounds of the gather (above) backwards: blocks that were
 * received are sent, and blocks that were sent are received and added. */
void trmi_bruck_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank, top = 1;
    while (top * 2 < n) {
        top *= 2;
    }
    int64_t temp = trmi_take_temp(b, longest_block(b) * (n - n / 2));
    for (int32_t have = top; have >= 1 && n > 1; have /= 2, b->round++) {
        int32_t blocks = have < n - have ? have : n - have;
        trmi_schedule_range out[2], in[2];
        int32_t outs = cyclic_runs(b, place, base, r + have, blocks, out);
        int32_t ins = cyclic_runs(b, place, base, r, blocks, in);
        int64_t at = temp;
        for (int32_t i = 0; i < outs; i++) {
            trmi_add_send(b, trmi_modulo(r + have, n), out[i]);
        }
        for (int32_t i = 0; i < ins; i++) {
            receive_aside(b, trmi_modulo(r - have, n), in[i], at);
            at += in[i].count;
        }
        at = temp;
        for (int32_t i = 0; i < ins; i++) {
            trmi_add_reduce(b, in[i], TRMI_TEMP_BUFFER, at);
            at += in[i].count;
        }
    }
}

/* --- halving and doubling, for a power of two --- */
/* Recursive halving: in the round of distance d, ranks that differ in bit d exchange halves of the
 * range that both still hold. The rank with bit d set keeps the upper half. */
void trmi_halving_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank, first = 0;
    int64_t temp =
        trmi_take_temp(b, trmi_max_i64(trmi_blocks(b, place, 0, 0, n / 2).count,
                                       trmi_blocks(b, place, 0, n / 2, n - n / 2).count));
    for (int32_t d = n / 2; d >= 1; d /= 2, b->round++) {
        bool upper = (r & d) != 0;
        trmi_schedule_range keep = trmi_blocks(b, place, base, first + (upper ? d : 0), d);
        trmi_schedule_range give = trmi_blocks(b, place, base, first + (upper ? 0 : d), d);
        trmi_add_send(b, r ^ d, give);
        receive_aside(b, r ^ d, keep, temp);
        trmi_add_reduce(b, keep, TRMI_TEMP_BUFFER, temp);
        first += upper ? d : 0;
    }
}

/* Recursive doubling: the same rounds backwards, without sums. */
void trmi_doubling_gather(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank;
    for (int32_t d = 1; d < n; d *= 2, b->round++) {
        int32_t mine = r / d * d, theirs = mine ^ d;
        trmi_add_send(b, r ^ d, trmi_blocks(b, place, base, mine, d));
        trmi_add_receive(b, r ^ d, trmi_blocks(b, place, base, theirs, d));
    }
}

/* --- direct --- */
/* One round: every rank sends each block to its rank. The sum over all n vectors is one step in
 * rank order, so its bits do not depend on which message arrived first. */
void trmi_direct_scatter(trmi_builder *b, trmi_schedule_place from_place, int64_t from,
                         trmi_schedule_range to) {
    int32_t n = b->size, r = b->rank;
    int64_t temp = trmi_take_temp(b, to.count * n);
    for (int32_t i = 1; i < n; i++) {
        trmi_add_send(b, trmi_modulo(r + i, n),
                      trmi_blocks(b, from_place, from, trmi_modulo(r + i, n), 1));
    }
    for (int32_t i = 1; i < n; i++) {
        int32_t peer = trmi_modulo(r - i, n);
        trmi_add_receive(b, peer,
                         (trmi_schedule_range){TRMI_TEMP_BUFFER, temp + peer * to.count, to.count});
    }
    trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, temp + r * to.count, to.count},
                  from_place, from + trmi_block_at(b, r));
    trmi_add_sum(b, to, TRMI_TEMP_BUFFER, temp, n, to.count);
    b->round++;
}

/* One round: every rank sends its block to all other ranks. */
void trmi_direct_gather(trmi_builder *b, trmi_schedule_place place, int64_t base) {
    int32_t n = b->size, r = b->rank;
    for (int32_t i = 1; i < n; i++) {
        trmi_add_send(b, trmi_modulo(r + i, n), trmi_blocks(b, place, base, r, 1));
    }
    for (int32_t i = 1; i < n; i++) {
        int32_t peer = trmi_modulo(r - i, n);
        trmi_add_receive(b, peer, trmi_blocks(b, place, base, peer, 1));
    }
    b->round++;
}
