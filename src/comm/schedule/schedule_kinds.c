/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives without a root, composed of the parts of schedule_parts.c:
 *
 *   all-reduce       scatter part, then gather part; tree and chain: reduce to rank 0, broadcast
 *   reduce-scatter   scatter part            all-gather   gather part
 *   all-to-all       direct, pairwise, Bruck
 *   barrier          dissemination: log2 n rounds, no data
 *
 * A vector that is summed step by step must be writable: it is in the receive buffer, or in
 * temporary memory if the receive buffer is shorter than the vector. Every function appends the
 * steps of one rank (b->rank) only; the ranks' schedules fit together because all make the same
 * rounds. */
#include "comm/schedule/schedule.h"

/* Returns the whole vector, at element `at` of `place`. */
static trmi_schedule_range whole_vector(const trmi_builder *b, trmi_schedule_place place,
                                        int64_t at) {
    return (trmi_schedule_range){place, at, b->request->count};
}

/* --- all-reduce --- */

/* Returns the largest power of two that is at most n. */
static int32_t largest_power(int32_t n) {
    int32_t power = 1;
    while (power * 2 <= n) {
        power *= 2;
    }
    return power;
}

/* Makes halving and doubling for any n. With e ranks more than a power of two, the odd ones of the
 * first 2e ranks first send their vector to the rank below, and receive the result at the end. The
 * remaining ranks are renumbered without them. */
static void make_folded(trmi_builder *b) {
    int32_t n = b->size, power = largest_power(n), extra = n - power, r = b->rank;
    trmi_schedule_range all = whole_vector(b, TRMI_RECV_BUFFER, 0);
    bool folded = r < 2 * extra && r % 2 == 1, host = r < 2 * extra && r % 2 == 0;
    if (extra > 0) {
        if (folded) {
            trmi_add_send(b, r - 1, all);
        } else if (host) {
            int64_t temp = trmi_take_temp(b, all.count);
            trmi_add_receive(b, r + 1, (trmi_schedule_range){TRMI_TEMP_BUFFER, temp, all.count});
            trmi_add_reduce(b, all, TRMI_TEMP_BUFFER, temp);
        }
        b->round++;
    }
    /* The inner algorithm runs among `power` ranks; then its peers are renumbered back. */
    trmi_schedule_request inner = *b->request;
    inner.size = power;
    inner.rank = r < 2 * extra ? r / 2 : r - extra;
    trmi_builder core = {
        .request = &inner, .out = b->out, .rank = inner.rank, .size = power, .round = b->round};
    int64_t before = b->out->count;
    if (!folded) {
        trmi_halving_scatter(&core, TRMI_RECV_BUFFER, 0);
        trmi_doubling_gather(&core, TRMI_RECV_BUFFER, 0);
    }
    for (int64_t i = before; i < b->out->count; i++) {
        int32_t *peer = &b->out->steps[i].peer;
        *peer = *peer < 0 ? *peer : *peer < extra ? 2 * *peer : *peer + extra;
    }
    b->round += 2 * trmi_ceil_log2(power);
    if (extra > 0) {
        if (folded) {
            trmi_add_receive(b, r - 1, all);
        } else if (host) {
            trmi_add_send(b, r + 1, all);
        }
        b->round++;
    }
}

/* Makes one scatter part, then one gather part. A tree or a chain reduces to rank 0, which then
 * broadcasts. */
void trmi_make_allreduce(trmi_builder *b) {
    trmi_schedule_range all = whole_vector(b, TRMI_RECV_BUFFER, 0);
    if (b->request->algorithm == TRMI_DIRECT) {
        trmi_direct_scatter(b, TRMI_SEND_BUFFER, 0,
                            trmi_blocks(b, TRMI_RECV_BUFFER, 0, b->rank, 1));
        trmi_direct_gather(b, TRMI_RECV_BUFFER, 0);
        return;
    }
    trmi_add_copy(b, all, TRMI_SEND_BUFFER, 0);
    switch (b->request->algorithm) {
    case TRMI_RING:
        trmi_ring_scatter(b, TRMI_RECV_BUFFER, 0);
        trmi_ring_gather(b, TRMI_RECV_BUFFER, 0);
        break;
    case TRMI_BRUCK:
        trmi_bruck_scatter(b, TRMI_RECV_BUFFER, 0);
        trmi_bruck_gather(b, TRMI_RECV_BUFFER, 0);
        break;
    case TRMI_HALVING: make_folded(b); break;
    default:
        trmi_tree_or_chain_reduce(b, TRMI_RECV_BUFFER, 0, 0);
        trmi_tree_or_chain_broadcast(b, 0);
    }
}

/* --- reduce-scatter, all-gather --- */

/* Contract in schedule.h. Direct sums arrive in the receive buffer; the other algorithms sum
 * vectors of all blocks, for which the receive buffer is too short. */
void trmi_make_reduce_scatter(trmi_builder *b) {
    trmi_schedule_range mine = {TRMI_RECV_BUFFER, 0, trmi_block_count(b, b->rank)};
    if (b->request->algorithm == TRMI_DIRECT) {
        trmi_direct_scatter(b, TRMI_SEND_BUFFER, 0, mine);
        return;
    }
    int64_t work = trmi_take_temp(b, b->request->total);
    trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, work, b->request->total},
                  TRMI_SEND_BUFFER, 0);
    if (b->request->algorithm == TRMI_RING) {
        trmi_ring_scatter(b, TRMI_TEMP_BUFFER, work);
    } else if (b->request->algorithm == TRMI_BRUCK) {
        trmi_bruck_scatter(b, TRMI_TEMP_BUFFER, work);
    } else {
        trmi_halving_scatter(b, TRMI_TEMP_BUFFER, work);
    }
    trmi_add_copy(b, mine, TRMI_TEMP_BUFFER, work + trmi_block_at(b, b->rank));
}

void trmi_make_allgather(trmi_builder *b) {
    trmi_add_copy(b, trmi_blocks(b, TRMI_RECV_BUFFER, 0, b->rank, 1), TRMI_SEND_BUFFER, 0);
    switch (b->request->algorithm) {
    case TRMI_DIRECT: trmi_direct_gather(b, TRMI_RECV_BUFFER, 0); break;
    case TRMI_RING: trmi_ring_gather(b, TRMI_RECV_BUFFER, 0); break;
    case TRMI_BRUCK: trmi_bruck_gather(b, TRMI_RECV_BUFFER, 0); break;
    default: trmi_doubling_gather(b, TRMI_RECV_BUFFER, 0);
    }
}

/* --- all-to-all, barrier --- */

/* Returns this rank's block for `peer`, and below its block from `peer`. */
static trmi_schedule_range to_peer(const trmi_builder *b, int32_t peer) {
    const trmi_schedule_request *r = b->request;
    if (r->kind == TRM_ALLTOALLV) {
        return (trmi_schedule_range){TRMI_SEND_BUFFER, r->send_offsets[peer], r->send_counts[peer]};
    }
    return (trmi_schedule_range){TRMI_SEND_BUFFER, r->count * peer, r->count};
}

/* Returns where the block of a peer is received. */
static trmi_schedule_range from_peer(const trmi_builder *b, int32_t peer) {
    const trmi_schedule_request *r = b->request;
    if (r->kind == TRM_ALLTOALLV) {
        return (trmi_schedule_range){TRMI_RECV_BUFFER, r->recv_offsets[peer], r->recv_counts[peer]};
    }
    return (trmi_schedule_range){TRMI_RECV_BUFFER, r->count * peer, r->count};
}

/* Bruck's all-to-all: slot j of `work` holds a block that has to move j ranks on. In round k, the
 * blocks whose j has bit k set move 2^k ranks on, packed into one message. log2 n messages instead
 * of n-1. */
static void make_bruck_alltoall(trmi_builder *b) {
    int32_t n = b->size, r = b->rank;
    int64_t c = b->request->count, work = trmi_take_temp(b, n * c);
    int64_t packed = trmi_take_temp(b, n * c), arrived = trmi_take_temp(b, n * c);
    /* Slot j begins with the block for the rank j further on. */
    for (int32_t j = 0; j < n; j++) {
        trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, work + j * c, c}, TRMI_SEND_BUFFER,
                      trmi_modulo(r + j, n) * c);
    }
    for (int32_t bit = 1; bit < n; bit *= 2, b->round++) {
        /* Pack the blocks that move in this round. */
        int32_t moved = 0;
        for (int32_t j = 0; j < n; j++) {
            if ((j & bit) != 0) {
                trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, packed + moved++ * c, c},
                              TRMI_TEMP_BUFFER, work + j * c);
            }
        }
        /* All ranks send the same distance, so each receives from the other side. */
        trmi_add_send(b, trmi_modulo(r + bit, n),
                      (trmi_schedule_range){TRMI_TEMP_BUFFER, packed, moved * c});
        trmi_add_receive(b, trmi_modulo(r - bit, n),
                         (trmi_schedule_range){TRMI_TEMP_BUFFER, arrived, moved * c});
        /* Unpack into the same slots. */
        moved = 0;
        for (int32_t j = 0; j < n; j++) {
            if ((j & bit) != 0) {
                trmi_add_copy(b, (trmi_schedule_range){TRMI_TEMP_BUFFER, work + j * c, c},
                              TRMI_TEMP_BUFFER, arrived + moved++ * c);
            }
        }
    }
    /* Slot j now has the block from the rank j before this one. */
    for (int32_t j = 0; j < n; j++) {
        trmi_add_copy(b, (trmi_schedule_range){TRMI_RECV_BUFFER, trmi_modulo(r - j, n) * c, c},
                      TRMI_TEMP_BUFFER, work + j * c);
    }
}

/* Exchanges blocks between all pairs of ranks. direct: all pairs in one round; pairwise: in round s
 * with the ranks at distance s. */
void trmi_make_alltoall(trmi_builder *b) {
    int32_t n = b->size, r = b->rank;
    if (b->request->algorithm == TRMI_BRUCK) {
        make_bruck_alltoall(b);
        return;
    }
    bool one_round = b->request->algorithm == TRMI_DIRECT;
    trmi_add_copy(b, from_peer(b, r), TRMI_SEND_BUFFER, to_peer(b, r).at);
    for (int32_t s = 1; s < n; s++) {
        trmi_add_send(b, trmi_modulo(r + s, n), to_peer(b, trmi_modulo(r + s, n)));
        trmi_add_receive(b, trmi_modulo(r - s, n), from_peer(b, trmi_modulo(r - s, n)));
        b->round += !one_round;
    }
    b->round += one_round;
}

/* Dissemination barrier: after round k, a rank has heard (directly or not) from 2^(k+1) ranks. */
void trmi_make_barrier(trmi_builder *b) {
    int64_t token = trmi_take_temp(b, 2);
    for (int32_t d = 1; d < b->size; d *= 2, b->round++) {
        trmi_add_send(b, trmi_modulo(b->rank + d, b->size),
                      (trmi_schedule_range){TRMI_TEMP_BUFFER, token, 1});
        trmi_add_receive(b, trmi_modulo(b->rank - d, b->size),
                         (trmi_schedule_range){TRMI_TEMP_BUFFER, token + 1, 1});
    }
}
