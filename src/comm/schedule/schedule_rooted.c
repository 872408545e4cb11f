/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives with a root: direct, over binomial trees, and over chains in pieces. Ranks are
 * counted from the root: v = (rank - root) modulo n, so the root is v = 0.
 *
 *   direct   1 round, the root sends or receives n - 1 vectors
 *   tree     ceil(log2 n) rounds; for short vectors
 *   chain    pieces + n - 2 rounds; for long vectors, because every link is busy in most rounds
 *
 * The generators of a send and of its receive must agree in round, length and order, because each
 * rank builds only its own steps. */
#include "comm/schedule/schedule.h"

#include "base/checked.h"

/* Translate a rank to v, and v to a rank. */
static int32_t relative_rank(const trmi_builder *b, int32_t root) {
    return trmi_modulo(b->rank - root, b->size);
}
/* Returns the rank that has number v, counted from the root. */
static int32_t absolute_rank(const trmi_builder *b, int32_t root, int32_t v) {
    return trmi_modulo(v + root, b->size);
}

/* Return, for a pipeline, the elements of a piece; the number of pieces; and the range of piece
 * k. */
static int64_t piece_of(const trmi_builder *b) {
    return b->request->piece_count > 0 ? b->request->piece_count : 65536;
}
/* Return the pieces of a vector in a chain, and the range of piece k. */
static int64_t pieces_of(const trmi_builder *b) {
    int64_t piece = piece_of(b);
    return trmi_max_i64(1, (b->request->count + piece - 1) / piece);
}
static trmi_schedule_range piece_range(const trmi_builder *b, trmi_schedule_place place,
                                       int64_t base, int64_t k) {
    int64_t piece = piece_of(b), count = b->request->count;
    return (trmi_schedule_range){place, base + k * piece,
                                 trmi_max_i64(0, trmi_min_i64(piece, count - k * piece))};
}

/* --- trees and chains --- */

/* Chain n-1 -> ... -> 1 -> 0: in round t, rank v sends piece t-(n-1-v) and receives piece
 * t-(n-2-v), which it adds to its own. */
static void chain_reduce(trmi_builder *b, trmi_schedule_place place, int64_t base, int32_t root) {
    int32_t n = b->size, v = relative_rank(b, root);
    int64_t pieces = pieces_of(b), temp = trmi_take_temp(b, piece_of(b));
    for (int64_t t = 0; n > 1 && t < pieces + n - 2; t++, b->round++) {
        int64_t out = t - (n - 1 - v), in = t - (n - 2 - v);
        if (v > 0 && out >= 0 && out < pieces) {
            trmi_add_send(b, absolute_rank(b, root, v - 1), piece_range(b, place, base, out));
        }
        if (v < n - 1 && in >= 0 && in < pieces) {
            trmi_schedule_range to = piece_range(b, place, base, in);
            trmi_add_receive(b, absolute_rank(b, root, v + 1),
                             (trmi_schedule_range){TRMI_TEMP_BUFFER, temp, to.count});
            trmi_add_reduce(b, to, TRMI_TEMP_BUFFER, temp);
        }
    }
}

/* Chain 0 -> 1 -> ... -> n-1: in round t, rank v sends piece t-v and receives piece t-(v-1). */
static void chain_broadcast(trmi_builder *b, int32_t root) {
    int32_t n = b->size, v = relative_rank(b, root);
    int64_t pieces = pieces_of(b);
    for (int64_t t = 0; n > 1 && t < pieces + n - 2; t++, b->round++) {
        int64_t out = t - v, in = t - (v - 1);
        if (v < n - 1 && out >= 0 && out < pieces) {
            trmi_add_send(b, absolute_rank(b, root, v + 1),
                          piece_range(b, TRMI_RECV_BUFFER, 0, out));
        }
        if (v > 0 && in >= 0 && in < pieces) {
            trmi_add_receive(b, absolute_rank(b, root, v - 1),
                             piece_range(b, TRMI_RECV_BUFFER, 0, in));
        }
    }
}

/* Reduces along a tree: in the round of distance d, a rank v with v % 2d == d sends its vector to
 * v-d, which adds it. */
static void tree_reduce(trmi_builder *b, trmi_schedule_place place, int64_t base, int32_t root) {
    int32_t n = b->size, v = relative_rank(b, root);
    trmi_schedule_range all = {place, base, b->request->count};
    int64_t temp = trmi_take_temp(b, all.count);
    for (int32_t d = 1; d < n; d *= 2, b->round++) {
        if (v % (2 * d) == d) {
            trmi_add_send(b, absolute_rank(b, root, v - d), all);
        } else if (v % (2 * d) == 0 && v + d < n) {
            trmi_add_receive(b, absolute_rank(b, root, v + d),
                             (trmi_schedule_range){TRMI_TEMP_BUFFER, temp, all.count});
            trmi_add_reduce(b, all, TRMI_TEMP_BUFFER, temp);
        }
    }
}

/* Broadcasts along a tree: in the round of distance d, the first d ranks have the vector and send
 * it to the rank d further on. */
static void tree_broadcast(trmi_builder *b, int32_t root) {
    int32_t n = b->size, v = relative_rank(b, root);
    trmi_schedule_range all = {TRMI_RECV_BUFFER, 0, b->request->count};
    for (int32_t d = 1; d < n; d *= 2, b->round++) {
        if (v < d && v + d < n) {
            trmi_add_send(b, absolute_rank(b, root, v + d), all);
        } else if (v >= d && v < 2 * d) {
            trmi_add_receive(b, absolute_rank(b, root, v - d), all);
        }
    }
}

void trmi_tree_or_chain_reduce(trmi_builder *b, trmi_schedule_place place, int64_t base,
                               int32_t root) {
    if (b->request->algorithm == TRMI_PIPELINE) {
        chain_reduce(b, place, base, root);
    } else {
        tree_reduce(b, place, base, root);
    }
}

void trmi_tree_or_chain_broadcast(trmi_builder *b, int32_t root) {
    if (b->request->algorithm == TRMI_PIPELINE) {
        chain_broadcast(b, root);
    } else {
        tree_broadcast(b, root);
    }
}

/* --- broadcast --- */

/* Sends block i from the root to rank i; a gather part then distributes the blocks. For long
 * vectors this takes less time than a tree, because the root sends each element only once. */
static void scatter_blocks(trmi_builder *b, int32_t root) {
    for (int32_t i = 1; i < b->size; i++) {
        int32_t peer = absolute_rank(b, root, i);
        if (b->rank == root) {
            trmi_add_send(b, peer, trmi_blocks(b, TRMI_RECV_BUFFER, 0, peer, 1));
        } else if (b->rank == peer) {
            trmi_add_receive(b, root, trmi_blocks(b, TRMI_RECV_BUFFER, 0, peer, 1));
        }
    }
    b->round++;
}

/* The root first copies its input, so that every rank sends from the receive buffer. */
void trmi_make_broadcast(trmi_builder *b) {
    int32_t root = b->request->root;
    trmi_schedule_range all = {TRMI_RECV_BUFFER, 0, b->request->count};
    if (b->rank == root) {
        trmi_add_copy(b, all, TRMI_SEND_BUFFER, 0);
    }
    switch (b->request->algorithm) {
    case TRMI_DIRECT:
        for (int32_t i = 1; i < b->size; i++) {
            if (b->rank == root) {
                trmi_add_send(b, absolute_rank(b, root, i), all);
            } else if (relative_rank(b, root) == i) {
                trmi_add_receive(b, root, all);
            }
        }
        b->round++;
        break;
    case TRMI_RING:
        scatter_blocks(b, root);
        trmi_ring_gather(b, TRMI_RECV_BUFFER, 0);
        break;
    case TRMI_BRUCK:
        scatter_blocks(b, root);
        trmi_bruck_gather(b, TRMI_RECV_BUFFER, 0);
        break;
    default: trmi_tree_or_chain_broadcast(b, root);
    }
}

/* --- reduce --- */

/* All ranks send their vectors to the root, which sums them in rank order in one step. */
static void direct_reduce(trmi_builder *b, int32_t root) {
    int64_t count = b->request->count;
    if (b->rank != root) {
        trmi_add_send(b, root, (trmi_schedule_range){TRMI_SEND_BUFFER, 0, count});
    } else {
        int64_t temp = trmi_take_temp(b, count * b->size);
        /* The blocks are in rank order, whatever the root is, so that the sum has the same
         * order. */
        for (int32_t i = 1; i < b->size; i++) {
            int32_t peer = absolute_rank(b, root, i);
            trmi_add_receive(b, peer,
                             (trmi_schedule_range){TRMI_TEMP_BUFFER, temp + peer * count, count});
        }
        trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, temp + root * count, count},
                      TRMI_SEND_BUFFER, 0);
        trmi_add_sum(b, (trmi_schedule_range){TRMI_RECV_BUFFER, 0, count}, TRMI_TEMP_BUFFER, temp,
                     b->size, count);
    }
    b->round++;
}

/* Contract in schedule.h. Ring and Bruck make blocks in parallel, tree and chain whole
 * vectors. */
void trmi_make_reduce(trmi_builder *b) {
    int32_t root = b->request->root;
    int64_t count = b->request->count;
    trmi_algorithm algorithm = b->request->algorithm;
    if (algorithm == TRMI_DIRECT) {
        direct_reduce(b, root);
        return;
    }
    /* Only the root's receive buffer may be written, so all ranks sum in temporary memory. */
    int64_t work = trmi_take_temp(b, count);
    trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, work, count}, TRMI_SEND_BUFFER, 0);
    if (algorithm == TRMI_RING || algorithm == TRMI_BRUCK) {
        if (algorithm == TRMI_RING) {
            trmi_ring_scatter(b, TRMI_TEMP_BUFFER, work);
        } else {
            trmi_bruck_scatter(b, TRMI_TEMP_BUFFER, work);
        }
        /* Each rank has one complete block: the root gathers them. */
        for (int32_t i = 1; i < b->size; i++) {
            int32_t peer = absolute_rank(b, root, i);
            if (b->rank == peer) {
                trmi_add_send(b, root, trmi_blocks(b, TRMI_TEMP_BUFFER, work, peer, 1));
            } else if (b->rank == root) {
                trmi_add_receive(b, peer, trmi_blocks(b, TRMI_TEMP_BUFFER, work, peer, 1));
            }
        }
    } else {
        trmi_tree_or_chain_reduce(b, TRMI_TEMP_BUFFER, work, root);
    }
    if (b->rank == root) {
        trmi_add_copy(b, (trmi_schedule_range){TRMI_RECV_BUFFER, 0, count}, TRMI_TEMP_BUFFER, work);
    }
    b->round++; /* the round of the last gather or of the last copy */
}

/* --- scatter, gather --- */

/* Returns the number of ranks in the subtree of v at distance d. A tree keeps the blocks of a
 * subtree (v, v+1, ...) together in temporary memory. */
static int32_t subtree_size(int32_t v, int32_t d, int32_t n) { return v + d <= n ? d : n - v; }

/* Tree: the root sorts the blocks by v; in the round of distance d, each rank sends the upper half
 * of its blocks d ranks on. */
void trmi_make_scatter(trmi_builder *b) {
    int32_t n = b->size, root = b->request->root, v = relative_rank(b, root);
    int64_t c = b->request->count;
    trmi_schedule_range mine = {TRMI_RECV_BUFFER, 0, c};
    if (b->request->algorithm == TRMI_DIRECT) {
        if (v != 0) {
            trmi_add_receive(b, root, mine);
        } else {
            trmi_add_copy(b, mine, TRMI_SEND_BUFFER, c * b->rank);
            for (int32_t i = 1; i < n; i++) {
                int32_t peer = absolute_rank(b, root, i);
                trmi_add_send(b, peer, (trmi_schedule_range){TRMI_SEND_BUFFER, c * peer, c});
            }
        }
        b->round++;
        return;
    }
    /* Put the root's blocks in the order of v: a subtree is then one range. */
    int64_t work = trmi_take_temp(b, c * n);
    for (int32_t i = 0; v == 0 && i < n; i++) {
        trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, work + i * c, c}, TRMI_SEND_BUFFER,
                      c * absolute_rank(b, root, i));
    }
    for (int32_t d = 1 << (trmi_ceil_log2(n) - (n > 1)); d >= 1 && n > 1; d /= 2, b->round++) {
        if (v % (2 * d) == 0 && v + d < n) {
            trmi_add_send(b, absolute_rank(b, root, v + d),
                          (trmi_schedule_range){TRMI_TEMP_BUFFER, work + d * c,
                                                c * subtree_size(v + d, d, n)});
        } else if (v % (2 * d) == d) {
            trmi_add_receive(
                b, absolute_rank(b, root, v - d),
                (trmi_schedule_range){TRMI_TEMP_BUFFER, work, c * subtree_size(v, d, n)});
        }
    }
    /* The first block is this rank's own. */
    trmi_add_copy(b, mine, TRMI_TEMP_BUFFER, work);
}

/* Tree: the same rounds backwards. v is the rank counted from the root. In the round of distance d
 * a rank whose v is an odd multiple of d sends its subtree, d blocks at most, to v - d and has
 * finished; the others append what they receive to their own blocks, so that `work` holds a
 * subtree in the order of v. The root puts the blocks into the order of ranks at the end. */
void trmi_make_gather(trmi_builder *b) {
    int32_t n = b->size, root = b->request->root, v = relative_rank(b, root);
    int64_t c = b->request->count;
    if (b->request->algorithm == TRMI_DIRECT) {
        if (v != 0) {
            trmi_add_send(b, root, (trmi_schedule_range){TRMI_SEND_BUFFER, 0, c});
        } else {
            trmi_add_copy(b, (trmi_schedule_range){TRMI_RECV_BUFFER, c * b->rank, c},
                          TRMI_SEND_BUFFER, 0);
            for (int32_t i = 1; i < n; i++) {
                int32_t peer = absolute_rank(b, root, i);
                trmi_add_receive(b, peer, (trmi_schedule_range){TRMI_RECV_BUFFER, c * peer, c});
            }
        }
        b->round++;
        return;
    }
    int64_t work = trmi_take_temp(b, c * n);
    trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, work, c}, TRMI_SEND_BUFFER, 0);
    for (int32_t d = 1; d < n; d *= 2, b->round++) {
        if (v % (2 * d) == d) {
            trmi_add_send(b, absolute_rank(b, root, v - d),
                          (trmi_schedule_range){TRMI_TEMP_BUFFER, work, c * subtree_size(v, d, n)});
        } else if (v % (2 * d) == 0 && v + d < n) {
            trmi_add_receive(b, absolute_rank(b, root, v + d),
                             (trmi_schedule_range){TRMI_TEMP_BUFFER, work + d * c,
                                                   c * subtree_size(v + d, d, n)});
        }
    }
    for (int32_t i = 0; v == 0 && i < n; i++) {
        trmi_add_copy(b, (trmi_schedule_range){TRMI_RECV_BUFFER, c * absolute_rank(b, root, i), c},
                      TRMI_TEMP_BUFFER, work + i * c);
    }
}
