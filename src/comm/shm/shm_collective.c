/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the ranks of one host, which share memory (shm.h: slot, post, event, stage).
 *
 * A rank *posts* an operation: it writes a header into its slot and arrives at an event. The data
 * are moved in one of two patterns:
 *
 *   pull     each rank copies (or sums) its blocks from the senders' vectors into its own vector
 *   slice    each rank sums its slice of all vectors and stores it into all of them
 *            (all-reduce, reduce)
 *
 * and by one of three methods, the same on every rank:
 *
 *   small    the vectors are in the slots of the post itself: one event
 *   direct   the vectors are in memory that peers can map: post, movement, one more event
 *   staged   the vectors pass through the stages chunk by chunk: one event for each chunk
 *
 *   staged, chunk k:   [move k][copy in k+1] event [copy out k] [move k+1][copy in k+2] event ...
 *   Stage k%2 is filled before an event, used after it, and filled again only after the next event.
 *
 * A sum through the stages moves as few bytes between the cores as it can. More than two ranks work
 * by slices (sum_staged_slices): a rank stages only the slices that other ranks sum, reads its own
 * slice of its own vector in place, and writes the sum once into its result and once into its
 * stage, where the peers fetch it. Two ranks exchange their vectors (exchange_pieces): each stages
 * its whole vector and sums all of both. As many bytes pass between the cores, but no sum has to
 * come back. The first chunk is staged before the post where possible, which saves an event.
 *
 * trmi_shm_run is the entry: fill_slot, post, then run_small, run_direct, run_staged_sum or
 * run_staged_move. Ranks choose the method from the posted headers alone, so they all choose the
 * same one. All offsets, counts and places that a peer posts are copied and checked before use. */
#include "comm/shm/shm.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* The block that flows from rank src to rank dst: first element in src's send vector, first element
 * in dst's recv vector, number of elements. */
typedef struct flow {
    int64_t from, to, count;
} flow;

/* Returns whether a sender's vector has a block of its own for each destination. */
static bool is_per_destination(trm_collective_kind kind) {
    return kind == TRM_SCATTER || kind == TRM_ALLTOALL || kind == TRM_ALLTOALLV ||
           kind == TRM_REDUCE_SCATTER || kind == TRM_REDUCE_SCATTERV;
}
/* Returns whether the collective is a `slice` movement. */
static bool is_slice_kind(trm_collective_kind kind) {
    return kind == TRM_ALLREDUCE || kind == TRM_REDUCE;
}
/* Returns whether `rank` has input, and below: whether it has output. */
static bool rank_has_input(const trmi_engine_call *op, int32_t rank) {
    return (op->kind != TRM_BROADCAST && op->kind != TRM_SCATTER) || rank == op->root;
}
/* Returns whether a rank's receive buffer is written. */
static bool rank_has_output(const trmi_engine_call *op, int32_t rank) {
    return (op->kind != TRM_REDUCE && op->kind != TRM_GATHER) || rank == op->root;
}

/* Returns the block from src to dst. `share`: for TRM_ALLTOALLV, what src declares to send to
 * dst. */
static flow flow_of(const trmi_engine_call *op, int32_t src, int32_t dst,
                    const trmi_shm_share *share) {
    flow f = {0};
    if (op->kind == TRM_BARRIER || !rank_has_input(op, src) || !rank_has_output(op, dst)) {
        return f;
    }
    if (op->kind == TRM_ALLTOALLV) {
        f = (flow){share->offset, op->recv_offsets[src], share->count};
        return f;
    }
    bool per_destination = is_per_destination(op->kind);
    bool per_source = op->kind == TRM_ALLGATHER || op->kind == TRM_ALLGATHERV ||
                      op->kind == TRM_GATHER || op->kind == TRM_ALLTOALL;
    f.from = per_destination ? trmi_op_offset(op, dst) : 0;
    f.to = per_source ? trmi_op_offset(op, src) : 0;
    f.count = per_destination ? trmi_op_count(op, dst)
              : per_source    ? trmi_op_count(op, src)
                              : op->count;
    return f;
}

/* Returns the function that reduces vectors of the operation's type by its reduction. */
static trmi_reduce_fn *kernel_of(const trmi_shm *shm, const trmi_engine_call *op) {
    return (*shm->reduce)[op->dtype - 1][op->reduce - 1];
}

/* Sums `count` elements of all ranks' vectors. `length` is the length of the whole vectors: long
 * vectors from many ranks take the blocked function (comm/api/reduce.h). */
static void sum_vectors(const trmi_shm *shm, const trmi_engine_call *op, int64_t length,
                        void *const *targets, int32_t target_count, const void *const *sources,
                        int64_t count) {
    trmi_reduction what = {op->dtype, op->reduce, op->divisor};
    if (trmi_reduce_needs_blocks(&what, shm->n, length)) {
        trmi_reduce_in_blocks(&what, targets, target_count, sources, shm->n, count);
    } else {
        kernel_of(shm, op)(targets, target_count, sources, shm->n, count, op->divisor);
    }
}

/* The part of every block that is available now: its elements [start, start + limit). sources[src]
 * is then src's vector or, if `packed`, src's stage, in which the parts of the blocks lie `limit`
 * elements apart, one for each destination. */
typedef struct block_range {
    int64_t start, limit;
    bool packed;
} block_range;

/* TRM_ALLTOALLV: the table that rank `src` has posted: its blocks by destination. */
static const trmi_shm_share *shares_in_slot(const trmi_shm *shm, int32_t src) {
    return (const trmi_shm_share *)(const void *)trmi_shm_slot_of(shm, src, shm->posts)->payload;
}

/* Returns the address of the range's part of the block `f` that comes from rank `src`. */
static const char *part_of(const trmi_shm *shm, const trmi_engine_call *op, int32_t src,
                           const flow *f, const block_range *w) {
    int64_t element =
        w->packed ? (is_per_destination(op->kind) ? shm->me * w->limit : 0) : f->from + w->start;
    return (const char *)shm->sources[src] + element * (int64_t)trm_dtype_bytes(op->dtype);
}

/* Moves the range's part of all blocks for this rank into its receive vector. The sources are in
 * shm->sources. */
static void move_blocks(trmi_shm *shm, const trmi_engine_call *op, const block_range *w) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    /* A reduce-scatter sums the blocks of all ranks in rank order. */
    if (op->kind == TRM_REDUCE_SCATTER || op->kind == TRM_REDUCE_SCATTERV) {
        flow f = flow_of(op, 0, shm->me, NULL);
        int64_t count = trmi_min_i64(f.count - w->start, w->limit);
        if (count > 0) {
            void *target = (char *)op->recv + w->start * bytes;
            for (int32_t src = 0; src < shm->n; src++) {
                shm->targets[src] = (void *)(uintptr_t)part_of(shm, op, src, &f, w);
            }
            sum_vectors(shm, op, op->total, &target, 1, (const void *const *)shm->targets, count);
        }
        return;
    }
    for (int32_t i = 0; i < shm->n; i++) {
        /* start with itself, so that ranks read from different senders */
        int32_t src = (shm->me + i) % shm->n;
        flow f = flow_of(op, src, shm->me, &shm->shares[src]);
        int64_t count = trmi_min_i64(f.count - w->start, w->limit);
        if (count > 0) {
            char *to = (char *)op->recv + (f.to + w->start) * bytes;
            const char *from = part_of(shm, op, src, &f, w);
            if (to != from) {
                memcpy(to, from, (size_t)(count * bytes));
            }
        }
    }
}

/* Moves sources[] and targets[] on by `moved` bytes and sums `count` elements of them. */
static void sum_part(trmi_shm *shm, const trmi_engine_call *op, int64_t moved, int64_t count,
                     int32_t target_count) {
    for (int32_t r = 0; r < shm->n; r++) {
        shm->sources[r] = (const char *)shm->sources[r] + moved;
    }
    for (int32_t t = 0; t < target_count; t++) {
        shm->targets[t] = (char *)shm->targets[t] + moved;
    }
    sum_vectors(shm, op, op->count, shm->targets, target_count, shm->sources, count);
}

/* Sizes for summing a slice in blocks. A slice that fits into a core's caches at least in part is
 * summed in blocks, in ascending order in one operation and in descending order in the next, so
 * that an operation begins with the data that the one before left in the cache. A block of all
 * vectors together fits into a core's own cache and is still long enough for the prefetcher. Longer
 * slices are summed in one piece. So are all slices where there are more ranks than CPUs, because
 * there the caches hold another rank's data. */
enum { TURN_BLOCK_BYTES = 256 << 10, TURN_LEAST_BYTES = 32768, TURN_MOST_BYTES = 16 << 20 };

/* Sums this rank's slice of the first `count` elements of sources[] into targets[]. Slices are
 * whole cache lines, so that no two ranks write one line. Returns the slice's length if it was
 * summed in one piece, otherwise 0. */
static int64_t sum_own_slice(trmi_shm *shm, const trmi_engine_call *op, int64_t count,
                             int32_t target_count) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    int shift = 6 - __builtin_ctz((unsigned)bytes); /* elements of a cache line */
    int64_t lines = (count + (1 << shift) - 1) >> shift;
    int64_t first = trmi_min_i64(count, lines * shm->me / shm->n << shift);
    int64_t mine = trmi_min_i64(count, lines * (shm->me + 1) / shm->n << shift) - first;
    int64_t touched = mine * bytes * shm->n, block = mine;
    if (mine == 0) {
        return 0;
    }
    if (!shm->counted && touched > TURN_LEAST_BYTES && touched <= TURN_MOST_BYTES) {
        block = (TURN_BLOCK_BYTES / shm->n / bytes + 1) >> shift << shift;
        block = trmi_max_i64(block, 1 << shift);
    }
    int64_t blocks = (mine + block - 1) / block, at = -first;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t next = block * (shm->posts % 2 ? i : blocks - 1 - i);
        sum_part(shm, op, (next - at) * bytes, trmi_min_i64(block, mine - next), target_count);
        at = next;
    }
    return blocks == 1 ? mine : 0;
}

/* --- small: the vectors are in the slots --- */

/* Returns the number of bytes that a rank has to publish, the same on all ranks. It is INT64_MAX
 * for TRM_ALLTOALLV, whose counts only the two ranks of a pair know. */
static int64_t published_bytes(const trmi_shm *shm, const trmi_engine_call *op) {
    if (op->kind == TRM_BARRIER) {
        return 0;
    }
    if (op->kind == TRM_ALLTOALLV) {
        return INT64_MAX;
    }
    int64_t count = is_per_destination(op->kind) ? op->total : op->count;
    for (int32_t r = 0; op->kind == TRM_ALLGATHERV && r < shm->n; r++) {
        count = trmi_max_i64(count, op->counts[r]);
    }
    return count * (int64_t)trm_dtype_bytes(op->dtype);
}

/* Returns the place of `bytes` of data inside a slot. */
static uint8_t *slot_data(trmi_shm_slot *slot, int64_t bytes) {
    return bytes <= (int64_t)sizeof slot->said.tiny ? slot->said.tiny : slot->payload;
}

/* Sums the data of all slots into op->recv. */
static void sum_slots(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes,
                      trmi_reduce_fn *kernel) {
    void *target = op->recv;
    for (int32_t r = 0; r < shm->n; r++) {
        shm->sources[r] = slot_data(trmi_shm_slot_of(shm, r, shm->posts), bytes);
    }
    kernel(&target, 1, shm->sources, shm->n, op->count, op->divisor);
}

/* Completes an operation whose data all ranks have posted in their slots. */
static void run_small(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes) {
    if (op->kind == TRM_BARRIER || !rank_has_output(op, shm->me)) {
        return;
    }
    if (is_slice_kind(op->kind)) {
        sum_slots(shm, op, bytes, kernel_of(shm, op));
        if (op->kind == TRM_ALLREDUCE && bytes > 0) {
            trmi_shm_store_slot_repeat(shm, op, bytes);
        }
    } else {
        for (int32_t r = 0; r < shm->n; r++) {
            shm->sources[r] = slot_data(trmi_shm_slot_of(shm, r, shm->posts), bytes);
        }
        move_blocks(shm, op, &(block_range){.limit = INT64_MAX});
    }
}

/* --- direct: the vectors are in memory that peers can map --- */

/* Returns the places that `rank` has posted. */
static const trmi_shm_references *references_of(const trmi_shm *shm, int32_t rank) {
    return &trmi_shm_slot_of(shm, rank, shm->posts)->said.at;
}

/* Returns whether the peers can reach the vectors that `rank` has posted as `at`. */
static bool is_reachable(const trmi_engine_call *op, int32_t rank, const trmi_shm_references *at) {
    bool writes = is_slice_kind(op->kind) && rank_has_output(op, rank);
    return !(rank_has_input(op, rank) && at->send.region == TRMI_SHM_NOWHERE) &&
           !(writes && at->recv.region == TRMI_SHM_NOWHERE);
}

/* Returns whether every rank's posted vectors can be reached by the peers. */
static bool can_go_direct(const trmi_shm *shm, const trmi_engine_call *op) {
    for (int32_t r = 0; r < shm->n; r++) {
        if (!is_reachable(op, r, references_of(shm, r))) {
            return false;
        }
    }
    return true;
}

/* Returns whether two posts name the same buffer. */
static inline bool is_same_place(const trmi_shm_place *a, const trmi_shm_place *b) {
    return a->region == b->region && a->generation == b->generation && a->offset == b->offset;
}

/* Resolves a peer's place into a pointer. Usually the buffer is where the previous operation found
 * it; the generation of the region detects a buffer that was freed in between. */
static inline trm_status map_peer_memory(trmi_shm *shm, int32_t r,
                                         const trmi_shm_place *posted_place, size_t bytes,
                                         trmi_shm_found *found, trm_error *err) {
    const trmi_shm_place place = *posted_place; /* shared memory: check and use the copy */
    if (found->bytes < bytes || !is_same_place(&found->place, &place)) {
        TRMI_TRY(trmi_shm_reach(shm->host, shm->host_rank[r], place, bytes, &found->at, err));
        found->place = place;
        found->bytes = bytes;
    }
    return TRM_OK;
}

/* Sets sources[] to the vectors of the ranks that send and targets[0 .. *target_count) to those
 * that receive the sum. For this rank it takes the pointers from `op`: reading back the slot that
 * this rank has just written would wait until the peers release the cache line. send_bytes: length
 * of a sender's vector. */
static trm_status find_vectors(trmi_shm *shm, const trmi_engine_call *op, size_t send_bytes,
                               int32_t *target_count, trm_error *err) {
    size_t element = trm_dtype_bytes(op->dtype), bytes = (size_t)op->count * element;
    *target_count = 0;
    for (int32_t r = 0; r < shm->n; r++) {
        const trmi_shm_references *at = references_of(shm, r);
        trmi_shm_found *found = &shm->found[2 * r];
        bool target = is_slice_kind(op->kind) && rank_has_output(op, r), own = r == shm->me;
        if (rank_has_input(op, r)) {
            /* Of TRM_ALLTOALLV only the range up to the end of the block for this rank is
             * checked. */
            const trmi_shm_share *share = &shm->shares[r];
            size_t length = op->kind == TRM_ALLGATHERV ? (size_t)op->counts[r] * element
                            : op->kind == TRM_ALLTOALLV
                                ? (size_t)(share->offset + share->count) * element
                                : send_bytes;
            if (!own) {
                TRMI_TRY(map_peer_memory(shm, r, &at->send, length, &found[0], err));
            }
            shm->sources[r] = own ? op->send : found[0].at;
        }
        /* each slice of a sum is written into all vectors that receive it */
        if (target && !own) {
            TRMI_TRY(map_peer_memory(shm, r, &at->recv, bytes, &found[1], err));
        }
        if (target) {
            shm->targets[(*target_count)++] = own ? op->recv : found[1].at;
        }
    }
    return TRM_OK;
}

/* Fails because a peer's memory could not be reached, and poisons the job. */
static trm_status report_unreachable(const trmi_shm *shm, const trmi_engine_call *op,
                                     trm_error *cause, trm_error *err) {
    char what[112];
    return trmi_group_unreachable(&shm->base.group, cause, trmi_op_format(op, what, sizeof what),
                                  err);
}

/* Operations that publish more than this ring the bell before the work, not after it. A rank that
 * slept until this rank arrived then works at the same time as this rank. For shorter operations
 * waking takes as long as the work. */
enum { WORTH_RINGING = 16384 };

/* Size and number of the parts of a sum in a counted group (more ranks than CPUs). With fixed
 * slices, each rank would have to be scheduled once for its slice and once more to see the end.
 * With parts, the ranks that are running do all the work. */
enum { PART_BYTES = 16384, PARTS = 64 };

/* Sums op->count elements in parts of at least PART_BYTES, about PARTS of them. */
static trm_status sum_in_parts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype), line = 64 / bytes;
    int64_t length =
        trmi_max_i64(PART_BYTES / bytes, trmi_round_up((op->count + PARTS - 1) / PARTS, line));
    int64_t parts = (op->count + length - 1) / length, part, at = 0;
    int32_t target_count = 0;
    trm_error cause;
    trmi_shm_begin_parts(shm, parts);
    /* Once all parts are summed, peers may have freed their buffers: an error does not matter
     * then. */
    if (!trmi_shm_parts_over(shm) &&
        find_vectors(shm, op, (size_t)(op->count * bytes), &target_count, &cause) != TRM_OK &&
        !trmi_shm_parts_over(shm)) {
        return report_unreachable(shm, op, &cause, err);
    }
    while (trmi_shm_take_part(shm, &part)) {
        sum_part(shm, op, (part * length - at) * bytes,
                 trmi_min_i64(length, op->count - part * length), target_count);
        at = part * length;
        trmi_shm_end_part(shm);
    }
    return trmi_shm_wait_parts(shm, op, err);
}

/* Completes an operation whose vectors all ranks can reach. published: as from
 * published_bytes(). */
static trm_status run_direct(trmi_shm *shm, const trmi_engine_call *op, int64_t published,
                             trm_error *err) {
    size_t send_bytes = op->kind == TRM_ALLTOALLV
                            ? 0
                            : (size_t)(is_per_destination(op->kind) ? op->total : op->count) *
                                  trm_dtype_bytes(op->dtype);
    int32_t target_count = 0;
    trm_error cause;
    if (shm->counted && is_slice_kind(op->kind)) {
        return sum_in_parts(shm, op, err);
    }
    /* Long operations wake sleeping peers first; the sum of a short one is over before they
     * wake. */
    if (published > WORTH_RINGING) {
        trmi_shm_settle(shm);
    }
    if (find_vectors(shm, op, send_bytes, &target_count, &cause) != TRM_OK) {
        return report_unreachable(shm, op, &cause, err);
    }
    /* Reductions: this rank sums its slice of all vectors into all targets, and a short operation
     * is kept for its repetition. Other kinds: this rank copies the blocks that it receives. */
    if (is_slice_kind(op->kind)) {
        int64_t mine = sum_own_slice(shm, op, op->count, target_count);
        if (mine > 0 && published <= WORTH_RINGING) {
            trmi_shm_store_repeat(shm, op, target_count, mine);
        }
    } else if (rank_has_output(op, shm->me)) {
        move_blocks(shm, op, &(block_range){.limit = INT64_MAX});
    }
    return trmi_shm_meet(shm, op, err);
}

/* --- staged: the vectors pass through the stages --- */

/* Copies the range's part of this rank's input into its stage for `round`. */
static void copy_in(trmi_shm *shm, const trmi_engine_call *op, const block_range *w,
                    int64_t round) {
    if (!rank_has_input(op, shm->me)) {
        return;
    }
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    char *stage = trmi_shm_stage_of(shm, shm->me, round);
    int32_t blocks = is_per_destination(op->kind) ? shm->n : 1;
    for (int32_t b = 0; b < blocks; b++) {
        /* Without blocks for each destination, the flow to any receiving rank has the right
         * range. */
        int32_t dst = blocks > 1 ? b : rank_has_output(op, shm->me) ? shm->me : op->root;
        trmi_shm_share mine = {0};
        if (op->kind == TRM_ALLTOALLV) {
            mine = (trmi_shm_share){op->send_offsets[dst], op->send_counts[dst]};
        }
        flow f = flow_of(op, shm->me, dst, &mine);
        int64_t count = trmi_min_i64(f.count - w->start, w->limit);
        if (count > 0) {
            memcpy(stage + b * w->limit * bytes,
                   (const char *)op->send + (f.from + w->start) * bytes, (size_t)(count * bytes));
        }
    }
}

/* Returns the length of the longest block, in elements; it determines the number of rounds. It is
 * the same on all ranks. */
static int64_t longest_block(const trmi_shm *shm, const trmi_engine_call *op) {
    int64_t longest = op->counts == NULL && op->kind != TRM_ALLTOALLV ? op->count : 0;
    for (int32_t r = 0; r < shm->n; r++) {
        for (int32_t dst = 0; op->kind == TRM_ALLTOALLV && dst < shm->n; dst++) {
            longest = trmi_max_i64(longest, shares_in_slot(shm, r)[dst].count);
        }
        if (op->counts != NULL) {
            longest = trmi_max_i64(longest, op->counts[r]);
        }
    }
    return longest;
}

/* Completes a pull movement chunk by chunk through the stages. */
static trm_status run_staged_move(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t limit = (int64_t)shm->stage_bytes / (int64_t)trm_dtype_bytes(op->dtype);
    limit = is_per_destination(op->kind) ? limit / shm->n : limit;
    int64_t rounds = (longest_block(shm, op) + limit - 1) / limit;
    block_range w = {.limit = limit, .packed = true};
    /* A round moves one chunk from the stages of all ranks. Each rank has two stages, used in turn,
     * so it fills one for the next round while peers may still read the other. */
    copy_in(shm, op, &w, 0);
    TRMI_TRY(trmi_shm_meet(shm, op, err));
    for (int64_t round = 0; round < rounds; round++) {
        block_range next = {.start = w.start + limit, .limit = limit, .packed = true};
        trmi_shm_settle(shm);
        for (int32_t r = 0; r < shm->n; r++) {
            shm->sources[r] = trmi_shm_stage_of(shm, r, round);
        }
        if (rank_has_output(op, shm->me)) {
            move_blocks(shm, op, &w);
        }
        copy_in(shm, op, &next, round + 1);
        TRMI_TRY(trmi_shm_meet(shm, op, err));
        w = next;
    }
    return TRM_OK;
}

/* One chunk of a staged sum. Stages are divided into one region for each rank, always at the same
 * place: slice r of the chunk lies in region r, so that a rank that still fetches the sums of chunk
 * k from a stage is not disturbed by chunk k+2, which may be shorter. */
typedef struct chunk {
    int64_t start, count; /* elements of the vector */
    int64_t slice;        /* elements of each rank's slice; the last slices may be shorter */
    int64_t region;       /* bytes from one region of a stage to the next: whole cache lines */
    int64_t round;        /* number of the chunk */
} chunk;

/* Returns the chunk number `round`; its count is 0 after the last one. */
static chunk chunk_of(const trmi_shm *shm, const trmi_engine_call *op, int64_t round) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    chunk c = {.region = (int64_t)shm->stage_bytes / shm->n / 64 * 64, .round = round};
    int64_t most = c.region / bytes * shm->n;
    c.start = trmi_min_i64(op->count, most * round);
    c.count = trmi_min_i64(op->count - c.start, most);
    c.slice = trmi_round_up((c.count + shm->n - 1) / shm->n, 64 / bytes);
    return c;
}

/* Returns the number of elements of rank r's slice of the chunk. */
static int64_t slice_count(const chunk *c, int32_t r) {
    return trmi_max_i64(0, trmi_min_i64(c->slice, c->count - r * c->slice));
}

/* Returns slice r of the chunk in `stager`'s stage, and below: in one of this rank's vectors. */
static char *staged_slice(const trmi_shm *shm, const chunk *c, int32_t stager, int32_t r) {
    return trmi_shm_stage_of(shm, stager, c->round) + r * c->region;
}
/* Returns the address of rank r's slice of a chunk. */
static char *slice_in(const void *vector, const trmi_engine_call *op, const chunk *c, int32_t r) {
    return (char *)(uintptr_t)vector +
           (c->start + r * c->slice) * (int64_t)trm_dtype_bytes(op->dtype);
}

/* Copies the slices that peers sum from this rank's input into its stage. */
static void stage_slices(trmi_shm *shm, const trmi_engine_call *op, const chunk *c) {
    for (int32_t r = 0; r < shm->n; r++) {
        size_t bytes = (size_t)slice_count(c, r) * trm_dtype_bytes(op->dtype);
        if (r != shm->me && bytes > 0) {
            memcpy(staged_slice(shm, c, shm->me, r), slice_in(op->send, op, c, r), bytes);
        }
    }
}

/* Sums this rank's slice into its result, if it has one, and into its stage, if a peer has one. */
static void sum_staged_slice(trmi_shm *shm, const trmi_engine_call *op, const chunk *c) {
    int64_t count = slice_count(c, shm->me);
    int32_t targets = 0;
    if (count == 0) {
        return;
    }
    for (int32_t r = 0; r < shm->n; r++) {
        shm->sources[r] =
            r == shm->me ? slice_in(op->send, op, c, r) : staged_slice(shm, c, r, shm->me);
    }
    if (rank_has_output(op, shm->me)) {
        shm->targets[targets++] = slice_in(op->recv, op, c, shm->me);
    }
    if (op->kind == TRM_ALLREDUCE || shm->me != op->root) {
        shm->targets[targets++] = staged_slice(shm, c, shm->me, shm->me);
    }
    sum_vectors(shm, op, op->count, shm->targets, targets, shm->sources, count);
}

/* Copies the sums that the peers have made into this rank's result. */
static void fetch_slices(trmi_shm *shm, const trmi_engine_call *op, const chunk *c) {
    for (int32_t i = 1; rank_has_output(op, shm->me) && i < shm->n; i++) {
        /* start with the next rank, so that ranks read from different stages */
        int32_t r = (shm->me + i) % shm->n;
        size_t bytes = (size_t)slice_count(c, r) * trm_dtype_bytes(op->dtype);
        if (bytes > 0) {
            memcpy(slice_in(op->recv, op, c, r), staged_slice(shm, c, r, r), bytes);
        }
    }
}

/* Sums chunk by chunk, each rank its slice of each chunk. The first chunk is staged already. */
static trm_status sum_staged_slices(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    chunk now = chunk_of(shm, op, 0);
    while (now.count > 0) {
        chunk next = chunk_of(shm, op, now.round + 1);
        trmi_shm_settle(shm);
        sum_staged_slice(shm, op, &now);
        stage_slices(shm, op, &next);
        TRMI_TRY(trmi_shm_meet(shm, op, err));
        fetch_slices(shm, op, &now);
        now = next;
    }
    return TRM_OK;
}

/* Returns the number of elements of the piece of an exchange that begins at element `start`. It is
 * 0 after the last piece. */
static int64_t piece_count(const trmi_shm *shm, const trmi_engine_call *op, int64_t start) {
    return trmi_min_i64((int64_t)shm->stage_bytes / (int64_t)trm_dtype_bytes(op->dtype),
                        op->count - start);
}

/* Copies the piece that begins at `start` into this rank's stage, if the other rank sums it. Pieces
 * of all exchanges take the two stages in turn: while this rank stages the first piece of an
 * exchange, its peer may still read the last piece of the exchange before. */
static void stage_piece(trmi_shm *shm, const trmi_engine_call *op, int64_t start) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    shm->pieces++;
    if (rank_has_output(op, 1 - shm->me)) {
        memcpy(trmi_shm_stage_of(shm, shm->me, shm->pieces), (const char *)op->send + start * bytes,
               (size_t)(piece_count(shm, op, start) * bytes));
    }
}

/* Sums the vectors of two ranks, piece by piece; each rank sums all of both vectors. The first
 * piece is staged already. */
static trm_status exchange_pieces(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype), start = 0;
    while (start < op->count) {
        int64_t count = piece_count(shm, op, start);
        trmi_shm_settle(shm);
        if (rank_has_output(op, shm->me)) {
            void *target = (char *)op->recv + start * bytes;
            shm->sources[shm->me] = (const char *)op->send + start * bytes;
            shm->sources[1 - shm->me] = trmi_shm_stage_of(shm, 1 - shm->me, shm->pieces);
            sum_vectors(shm, op, op->count, &target, 1, shm->sources, count);
        }
        start += count;
        if (start < op->count) {
            stage_piece(shm, op, start);
            TRMI_TRY(trmi_shm_meet(shm, op, err));
        }
    }
    return TRM_OK;
}

/* Writes this rank's first chunk of a sum to its stage, where the other ranks read it. */
static void stage_first(trmi_shm *shm, const trmi_engine_call *op) {
    if (shm->n == 2) {
        stage_piece(shm, op, 0);
    } else {
        chunk first = chunk_of(shm, op, 0);
        stage_slices(shm, op, &first);
    }
}

/* Returns whether `rank` fills its stage before it posts `said`: it knows then that the sum will be
 * staged, because peers cannot reach its vectors. So the post announces the first chunk, and if all
 * ranks do this, no further event has to. Peers may still read the sums or the piece of the
 * operation before, but these lie in another region or in the other stage. */
static bool stages_early(const trmi_engine_call *op, int32_t rank, const trmi_shm_said *said) {
    return is_slice_kind(op->kind) && said->delivery == TRMI_SHM_POINTS &&
           !is_reachable(op, rank, &said->at);
}

/* Completes an all-reduce or a reduce through the stages. */
static trm_status run_staged_sum(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int32_t early = 0;
    for (int32_t r = 0; r < shm->n; r++) {
        bool staged = stages_early(op, r, &trmi_shm_slot_of(shm, r, shm->posts)->said);
        early += staged;
        if (r == shm->me && !staged) {
            stage_first(shm, op);
        }
    }
    if (early < shm->n) {
        TRMI_TRY(trmi_shm_meet(shm, op, err));
    }
    return shm->n == 2 ? exchange_pieces(shm, op, err) : sum_staged_slices(shm, op, err);
}

/* --- choice of the method --- */

/* Returns whether this rank posts its data in the slot. An all-reduce of 1 to 4 KB is faster in
 * place, if peers can reach the buffers. */
static bool uses_slot(trmi_shm *shm, const trmi_engine_call *op, bool reachable, int64_t bytes) {
    if (bytes > TRMI_SHM_SMALL_BYTES) {
        return false;
    }
    return op->kind != TRM_ALLREDUCE || bytes <= TRMI_SHM_CARRY_BYTES || shm->counted || !reachable;
}

/* Finds the places of this rank's vectors. The results are built in registers and then stored: a
 * copy through memory would wait for all earlier stores, and those into the slot first fetch a
 * cache line from the peers. */
static void find_buffers(trmi_shm *shm, const trmi_engine_call *op, int64_t send_count,
                         trmi_shm_references *out) {
    size_t bytes = trm_dtype_bytes(op->dtype);
    trmi_shm_place send = {.region = TRMI_SHM_NOWHERE}, recv = send;
    if (!shm->no_direct && rank_has_input(op, shm->me)) {
        send = trmi_shm_find(shm->host, op->send, (size_t)send_count * bytes, shm->one_process);
    }
    if (!shm->no_direct && is_slice_kind(op->kind) && rank_has_output(op, shm->me)) {
        recv = op->recv == op->send ? send
                                    : trmi_shm_find(shm->host, op->recv, (size_t)op->count * bytes,
                                                    shm->one_process);
    }
    out->send = send;
    out->recv = recv;
}

/* Fills this rank's slot of the next post: signature, delivery, and either the data or their
 * places. */
static void fill_slot(trmi_shm *shm, const trmi_engine_call *op, int64_t published) {
    trmi_shm_slot *slot = trmi_shm_slot_of(shm, shm->me, shm->posts + 1);
    trmi_shm_said *said = &slot->said;
    said->signature[0] = op->signature[0];
    said->signature[1] = op->signature[1];
    int64_t send_count = op->kind == TRM_ALLGATHERV     ? op->counts[shm->me]
                         : is_per_destination(op->kind) ? op->total
                                                        : op->count;
    /* Small data travel in the slot; for larger ones the peers must reach the memory. */
    bool reachable = false;
    if (published > TRMI_SHM_CARRY_BYTES) {
        find_buffers(shm, op, send_count, &said->at);
        reachable =
            said->at.send.region != TRMI_SHM_NOWHERE && said->at.recv.region != TRMI_SHM_NOWHERE;
    }
    if (uses_slot(shm, op, reachable, published)) {
        said->delivery = TRMI_SHM_CARRIES;
        if (op->kind != TRM_BARRIER && rank_has_input(op, shm->me) && send_count > 0) {
            memcpy(slot_data(slot, published), op->send,
                   (size_t)send_count * trm_dtype_bytes(op->dtype));
        }
        return;
    }
    /* The post names the places of the vectors; for TRM_ALLTOALLV also each receiver's block. */
    said->delivery = TRMI_SHM_POINTS;
    for (int32_t r = 0; op->kind == TRM_ALLTOALLV && r < shm->n; r++) {
        trmi_shm_share *shares = (trmi_shm_share *)(void *)slot->payload;
        shares[r] = (trmi_shm_share){op->send_offsets[r], op->send_counts[r]};
    }
}

/* Copies what rank r declares about its block for this rank, then checks it. The sum of offset and
 * count must stay far below INT64_MAX, because it is multiplied by the element size later. */
static trm_status take_share(trmi_shm *shm, const trmi_engine_call *op, int32_t r, trm_error *err) {
    const volatile trmi_shm_share *posted = &shares_in_slot(shm, r)[shm->me];
    trmi_shm_share *share = &shm->shares[r];
    *share = r == shm->me ? (trmi_shm_share){op->send_offsets[r], op->send_counts[r]}
                          : (trmi_shm_share){posted->offset, posted->count};
    if (share->count == 0) {
        share->offset = 0;
    }
    if (share->offset >= 0 && share->count >= 0 &&
        share->offset <= (INT64_MAX >> 4) - share->count) {
        return TRM_OK;
    }
    trm_error cause;
    TRMI_FAIL(&cause, TRM_CORRUPT, "rank %d says that it sends %lld elements from offset %lld",
              shm->base.group.members[r], (long long)share->count, (long long)share->offset);
    return trmi_group_poison(&shm->base.group, &cause, err);
}

/* Compares the signatures of all posts with this rank's, and for TRM_ALLTOALLV each sender's count
 * with the count that this rank expects. Fails with INVALID on a difference. */
static trm_status check_posts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    for (int32_t r = 0; r < shm->n; r++) {
        const uint64_t *signature = trmi_shm_slot_of(shm, r, shm->posts)->said.signature;
        if (r != shm->me &&
            (signature[0] != op->signature[0] || signature[1] != op->signature[1])) {
            return trmi_op_mismatch(&shm->base.group, op, r, op->sequence, signature, err);
        }
        if (op->kind == TRM_ALLTOALLV) {
            TRMI_TRY(take_share(shm, op, r, err));
            int64_t sent = shm->shares[r].count;
            if (sent != op->recv_counts[r]) {
                const int32_t *members = shm->base.group.members;
                trm_error cause;
                char what[112];
                TRMI_FAIL(&cause, TRM_INVALID,
                          "ranks disagree: rank %d sends %lld elements to "
                          "rank %d, which expects %lld, in %s",
                          members[r], (long long)sent, members[shm->me],
                          (long long)op->recv_counts[r], trmi_op_format(op, what, sizeof what));
                return trmi_group_poison(&shm->base.group, &cause, err);
            }
        }
    }
    return TRM_OK;
}

/* Completes an operation that all ranks have posted. */
static trm_status run_posted(trmi_shm *shm, const trmi_engine_call *op, int64_t published,
                             trm_error *err) {
    TRMI_TRY(check_posts(shm, op, err));
    int32_t carrying = 0;
    for (int32_t r = 0; r < shm->n; r++) {
        carrying += trmi_shm_slot_of(shm, r, shm->posts)->said.delivery == TRMI_SHM_CARRIES;
    }
    if (carrying == shm->n) {
        run_small(shm, op, published);
        return TRM_OK;
    }
    if (carrying == 0 && can_go_direct(shm, op)) {
        return run_direct(shm, op, published, err);
    }
    return is_slice_kind(op->kind) ? run_staged_sum(shm, op, err) : run_staged_move(shm, op, err);
}

/* Posts this rank's slot and waits for the posts of all peers. Prefetching the cache lines of the
 * next arrivals, of which peers hold copies, was tried and is slower: those lines then arrive
 * before the peers' posts. */
static trm_status post_header(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    trmi_shm_post(shm);
    return trmi_shm_wait_posts(shm, op, err);
}

/* Runs an operation that the cache does not contain. */
static trm_status run_first(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t published = published_bytes(shm, op);
    fill_slot(shm, op, published);
    if (stages_early(op, shm->me, &trmi_shm_slot_of(shm, shm->me, shm->posts + 1)->said)) {
        stage_first(shm, op);
    }
    TRMI_TRY(post_header(shm, op, err));
    return run_posted(shm, op, published, err);
}

/* Runs an operation that the cache contains. If a peer has posted another header than last time, it
 * continues on the general path. */
static trm_status run_again(trmi_shm *shm, const trmi_engine_call *op, const trmi_shm_repeat *last,
                            trm_error *err) {
    trmi_shm_slot *slot = trmi_shm_slot_of(shm, shm->me, shm->posts + 1);
    slot->said = last->said[shm->me];
    if (last->carried > 0) {
        memcpy(slot_data(slot, last->carried), op->send, (size_t)last->carried);
    }
    TRMI_TRY(post_header(shm, op, err));
    if (!trmi_shm_headers_equal(shm, last)) {
        return run_posted(shm, op, published_bytes(shm, op), err);
    }
    if (last->carried > 0) {
        sum_slots(shm, op, last->carried, last->kernel);
        return TRM_OK;
    }
    last->kernel(last->targets, last->target_count, last->sources, shm->n, last->count,
                 op->divisor);
    return trmi_shm_meet(shm, op, err);
}

trm_status trmi_shm_run(trmi_engine *engine, const trmi_engine_call *op, trm_error *err) {
    trmi_shm *shm = (trmi_shm *)(void *)engine;
    const trmi_shm_repeat *last = trmi_shm_find_repeat(shm, op);
    trm_status status = last != NULL ? run_again(shm, op, last, err) : run_first(shm, op, err);
    trmi_shm_settle(shm);
    return status;
}
