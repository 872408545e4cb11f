/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of one host. All of them are one of two motions:
 *
 *   pull     every rank copies (or sums) its blocks out of the senders' vectors into its own
 *   slice    every rank sums its slice of all vectors and stores it into all of them (all-reduce, reduce)
 *
 * and take one of three ways, the same on every rank:
 *
 *   small    vectors lie in the slots of the post itself: one event
 *   direct   vectors lie in memory that peers reach: post, motion, one more event
 *   staged   vectors go through the stages chunk by chunk: one event a chunk
 *
 *   staged, chunk k:   [motion k][copy in k+1] event [copy out k] [motion k+1][copy in k+2] event ...
 *   stage k%2 is filled before an event, used after it, and filled again only after the next one.
 */
#include "comm/shm/shm.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* What flows from rank src to rank dst: places in elements of src's send and dst's recv vector. */
typedef struct flow {
    int64_t from, to, count;
} flow;

static bool is_per_destination(trm_collective_kind kind) {
    return kind == TRM_SCATTER || kind == TRM_ALLTOALL || kind == TRM_ALLTOALLV ||
           kind == TRM_REDUCE_SCATTER || kind == TRM_REDUCE_SCATTERV;
}
static bool is_slice_kind(trm_collective_kind kind) {
    return kind == TRM_ALLREDUCE || kind == TRM_REDUCE;
}
static bool sends(const trmi_engine_call *op, int32_t rank) {
    return (op->kind != TRM_BROADCAST && op->kind != TRM_SCATTER) || rank == op->root;
}
static bool receives(const trmi_engine_call *op, int32_t rank) {
    return (op->kind != TRM_REDUCE && op->kind != TRM_GATHER) || rank == op->root;
}

/* ALLTOALLV: `share` is what src sends to dst. */
static flow flow_of(const trmi_engine_call *op, int32_t src, int32_t dst,
                    const trmi_shm_share *share) {
    flow f = {0};
    if (op->kind == TRM_BARRIER || !sends(op, src) || !receives(op, dst)) {
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

static trmi_reduce_fn *kernel_of(const trmi_shm *shm, const trmi_engine_call *op) {
    return (*shm->reduce)[op->dtype - 1][op->reduce - 1];
}

/* `count` elements of the vectors, which have `length` in all. */
static void sum_vectors(const trmi_shm *shm, const trmi_engine_call *op, int64_t length,
                        void *const *targets, int32_t target_count, const void *const *sources,
                        int64_t count) {
    trmi_reduction what = {op->dtype, op->reduce, op->divisor};
    if (trmi_reduce_is_far(&what, shm->n, length)) {
        trmi_reduce_far(&what, targets, target_count, sources, shm->n, count);
    } else {
        kernel_of(shm, op)(targets, target_count, sources, shm->n, count, op->divisor);
    }
}

/* The part of every flow that is at hand: elements [start, start + limit) of each block. bases[src]
 * is src's vector, or its stage, where the parts lie packed (per destination: `limit` apart). */
typedef struct window {
    int64_t start, limit;
    bool packed;
} window;

/* TRM_ALLTOALLV: what each rank has said of its blocks, in the slot, by destination. */
static const trmi_shm_share *shares_in_slot(const trmi_shm *shm, int32_t src) {
    return (const trmi_shm_share *)(const void *)trmi_shm_slot_of(shm, src, shm->posts)->payload;
}

static const char *part_of(const trmi_shm *shm, const trmi_engine_call *op, int32_t src,
                           const flow *f, const window *w) {
    int64_t element =
        w->packed ? (is_per_destination(op->kind) ? shm->me * w->limit : 0) : f->from + w->start;
    return (const char *)shm->sources[src] + element * (int64_t)trm_dtype_bytes(op->dtype);
}

static void pull(trmi_shm *shm, const trmi_engine_call *op, const window *w) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
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
        int32_t src = (shm->me + i) % shm->n; /* spread over the senders */
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

/* sources[] and targets[] hold the vectors; sums this rank's slice of their first `count` elements.
 * Vectors that a core's caches hold in part are taken in blocks, from the front and from the back
 * in turn: what the operation before left there last is met first. A block of all vectors together
 * is a part of a core's own cache, and long enough that it is still fetched ahead. Longer vectors
 * in one go; and with more ranks than CPUs the caches hold what another rank left. */
enum { TURN_BLOCK_BYTES = 256 << 10, TURN_LEAST_BYTES = 32768, TURN_MOST_BYTES = 16 << 20 };

/* Returns the slice's length where it was taken in one go, otherwise 0. */
static int64_t slice(trmi_shm *shm, const trmi_engine_call *op, int64_t count,
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

/* --- small
 *  ---------------------------------------------------------------------------------------- */
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

static uint8_t *carried_data(trmi_shm_slot *slot, int64_t bytes) {
    return bytes <= (int64_t)sizeof slot->said.tiny ? slot->said.tiny : slot->payload;
}

static void sum_carried(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes,
                        trmi_reduce_fn *kernel) {
    void *target = op->recv;
    for (int32_t r = 0; r < shm->n; r++) {
        shm->sources[r] = carried_data(trmi_shm_slot_of(shm, r, shm->posts), bytes);
    }
    kernel(&target, 1, shm->sources, shm->n, op->count, op->divisor);
}

static void run_small(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes) {
    if (op->kind == TRM_BARRIER || !receives(op, shm->me)) {
        return;
    }
    if (is_slice_kind(op->kind)) {
        sum_carried(shm, op, bytes, kernel_of(shm, op));
        if (op->kind == TRM_ALLREDUCE && bytes > 0) {
            trmi_shm_remember_carried(shm, op, bytes);
        }
    } else {
        for (int32_t r = 0; r < shm->n; r++) {
            shm->sources[r] = carried_data(trmi_shm_slot_of(shm, r, shm->posts), bytes);
        }
        pull(shm, op, &(window){.limit = INT64_MAX});
    }
}

/* --- direct
 *  --------------------------------------------------------------------------------------- */
static const trmi_shm_references *references_of(const trmi_shm *shm, int32_t rank) {
    return &trmi_shm_slot_of(shm, rank, shm->posts)->said.at;
}

static bool can_go_direct(const trmi_shm *shm, const trmi_engine_call *op) {
    for (int32_t r = 0; r < shm->n; r++) {
        const trmi_shm_references *at = references_of(shm, r);
        if ((sends(op, r) && at->send.region == TRMI_SHM_NOWHERE) ||
            (is_slice_kind(op->kind) && receives(op, r) && at->recv.region == TRMI_SHM_NOWHERE)) {
            return false;
        }
    }
    return true;
}

static inline bool same_place(const trmi_shm_place *a, const trmi_shm_place *b) {
    return a->region == b->region && a->generation == b->generation && a->offset == b->offset;
}

/* Mostly where it was in the operation before: a buffer that was freed since has another
 * generation. */
static inline trm_status reach(trmi_shm *shm, int32_t r, const trmi_shm_place *told, size_t bytes,
                               trmi_shm_found *found, trm_error *err) {
    const trmi_shm_place place = *told; /* it lies in shared memory: the copy is checked and used */
    if (found->bytes < bytes || !same_place(&found->place, &place)) {
        TRMI_TRY(trmi_shm_reach(shm->host, shm->host_rank[r], place, bytes, &found->at, err));
        found->place = place;
        found->bytes = bytes;
    }
    return TRM_OK;
}

/* Of the ranks that send into sources[], of those that a sum goes to into targets[]. This rank's
 * own are not looked up: reading the slot that it has just written would wait until peers have let
 * go of the line. */
static trm_status reach_all(trmi_shm *shm, const trmi_engine_call *op, size_t send_bytes,
                            int32_t *target_count, trm_error *err) {
    size_t element = trm_dtype_bytes(op->dtype), bytes = (size_t)op->count * element;
    *target_count = 0;
    for (int32_t r = 0; r < shm->n; r++) {
        const trmi_shm_references *at = references_of(shm, r);
        trmi_shm_found *found = &shm->found[2 * r];
        bool target = is_slice_kind(op->kind) && receives(op, r), own = r == shm->me;
        if (sends(op, r)) {
            /* of an all-to-allv's vector, up to the end of this rank's block */
            const trmi_shm_share *share = &shm->shares[r];
            size_t length = op->kind == TRM_ALLGATHERV ? (size_t)op->counts[r] * element
                            : op->kind == TRM_ALLTOALLV
                                ? (size_t)(share->offset + share->count) * element
                                : send_bytes;
            if (!own) {
                TRMI_TRY(reach(shm, r, &at->send, length, &found[0], err));
            }
            shm->sources[r] = own ? op->send : found[0].at;
        }
        if (target && !own) {
            TRMI_TRY(reach(shm, r, &at->recv, bytes, &found[1], err));
        }
        if (target) {
            shm->targets[(*target_count)++] = own ? op->recv : found[1].at;
        }
    }
    return TRM_OK;
}

static trm_status fail_to_reach(const trmi_shm *shm, const trmi_engine_call *op, trm_error *cause,
                                trm_error *err) {
    char what[112];
    return trmi_group_unreachable(&shm->base.group, cause, trmi_op_format(op, what, sizeof what),
                                  err);
}

/* Who slept until this rank came is woken before the work, unless the work is as short as the
 * waking: otherwise the last one to come would do its part alone, and the others theirs when it is
 * done. */
enum { WORTH_RINGING = 16384 };

/* More ranks than CPUs: each would have to get a CPU for its slice, and another time to learn that
 * all are done. So whoever has one takes the next part. */
enum { PART_BYTES = 16384, PARTS = 64 };

static trm_status sum_in_parts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype), line = 64 / bytes;
    int64_t length =
        trmi_max_i64(PART_BYTES / bytes, trmi_round_up((op->count + PARTS - 1) / PARTS, line));
    int64_t parts = (op->count + length - 1) / length, part, at = 0;
    int32_t target_count = 0;
    trm_error cause;
    trmi_shm_begin_parts(shm, parts);
    /* Once it is over, peers may have taken their buffers back. */
    if (!trmi_shm_parts_over(shm) &&
        reach_all(shm, op, (size_t)(op->count * bytes), &target_count, &cause) != TRM_OK &&
        !trmi_shm_parts_over(shm)) {
        return fail_to_reach(shm, op, &cause, err);
    }
    while (trmi_shm_take_part(shm, &part)) {
        sum_part(shm, op, (part * length - at) * bytes,
                 trmi_min_i64(length, op->count - part * length), target_count);
        at = part * length;
        trmi_shm_end_part(shm);
    }
    return trmi_shm_wait_parts(shm, op, err);
}

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
    if (published > WORTH_RINGING) {
        trmi_shm_settle(shm);
    }
    if (reach_all(shm, op, send_bytes, &target_count, &cause) != TRM_OK) {
        return fail_to_reach(shm, op, &cause, err);
    }
    if (is_slice_kind(op->kind)) {
        int64_t mine = slice(shm, op, op->count, target_count);
        if (mine > 0 && published <= WORTH_RINGING) {
            trmi_shm_remember(shm, op, target_count, mine);
        }
    } else if (receives(op, shm->me)) {
        pull(shm, op, &(window){.limit = INT64_MAX});
    }
    return trmi_shm_meet(shm, op, err);
}

/* --- staged
 *  --------------------------------------------------------------------------------------- */
static void copy_in(trmi_shm *shm, const trmi_engine_call *op, const window *w, int64_t round) {
    if (!sends(op, shm->me)) {
        return;
    }
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    char *stage = trmi_shm_stage_of(shm, shm->me, round);
    int32_t blocks = is_per_destination(op->kind) ? shm->n : 1;
    for (int32_t b = 0; b < blocks; b++) {
        /* where every destination gets the same, any that receives at all will do */
        int32_t dst = blocks > 1 ? b : receives(op, shm->me) ? shm->me : op->root;
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

static void stage_motion(trmi_shm *shm, const trmi_engine_call *op, const window *w,
                         int64_t round) {
    int32_t target_count = 0;
    for (int32_t r = 0; r < shm->n; r++) {
        shm->sources[r] = trmi_shm_stage_of(shm, r, round);
        if (is_slice_kind(op->kind) && receives(op, r)) {
            shm->targets[target_count++] = trmi_shm_stage_of(shm, r, round);
        }
    }
    if (is_slice_kind(op->kind)) {
        slice(shm, op, trmi_min_i64(op->count - w->start, w->limit), target_count);
    } else if (receives(op, shm->me)) {
        pull(shm, op, w);
    }
}

static trm_status run_staged(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype);
    int64_t limit = (int64_t)shm->stage_bytes / bytes;
    limit = is_per_destination(op->kind) ? limit / shm->n : limit;
    int64_t rounds = (longest_block(shm, op) + limit - 1) / limit;
    window w = {.limit = limit, .packed = true};
    copy_in(shm, op, &w, 0);
    TRMI_TRY(trmi_shm_meet(shm, op, err));
    for (int64_t round = 0; round < rounds; round++) {
        window next = {.start = w.start + limit, .limit = limit, .packed = true};
        trmi_shm_settle(shm);
        stage_motion(shm, op, &w, round);
        copy_in(shm, op, &next, round + 1);
        TRMI_TRY(trmi_shm_meet(shm, op, err));
        if (is_slice_kind(op->kind) && receives(op, shm->me)) {
            int64_t count = trmi_min_i64(op->count - w.start, limit);
            memcpy((char *)op->recv + w.start * bytes, trmi_shm_stage_of(shm, shm->me, round),
                   (size_t)(count * bytes));
        }
        w = next;
    }
    return TRM_OK;
}

/* --- all together
 *  --------------------------------------------------------------------------------- */
static bool carries(trmi_shm *shm, const trmi_engine_call *op, bool reachable, int64_t bytes) {
    if (bytes > TRMI_SHM_SMALL_BYTES) {
        return false;
    }
    return op->kind != TRM_ALLREDUCE || bytes <= TRMI_SHM_CARRY_BYTES || shm->counted || !reachable;
}

/* Written from registers: a copy by way of memory would wait until all stores before it are done,
 * and those into the slot take a cache line from the peers. */
static void find_buffers(trmi_shm *shm, const trmi_engine_call *op, int64_t send_count,
                         trmi_shm_references *out) {
    size_t bytes = trm_dtype_bytes(op->dtype);
    trmi_shm_place send = {.region = TRMI_SHM_NOWHERE}, recv = send;
    if (!shm->no_direct && sends(op, shm->me)) {
        send = trmi_shm_find(shm->host, op->send, (size_t)send_count * bytes, shm->one_process);
    }
    if (!shm->no_direct && is_slice_kind(op->kind) && receives(op, shm->me)) {
        recv = op->recv == op->send ? send
                                    : trmi_shm_find(shm->host, op->recv, (size_t)op->count * bytes,
                                                    shm->one_process);
    }
    out->send = send;
    out->recv = recv;
}

static void fill_slot(trmi_shm *shm, const trmi_engine_call *op, int64_t published) {
    trmi_shm_slot *slot = trmi_shm_slot_of(shm, shm->me, shm->posts + 1);
    trmi_shm_said *said = &slot->said;
    said->signature[0] = op->signature[0];
    said->signature[1] = op->signature[1];
    int64_t send_count = op->kind == TRM_ALLGATHERV     ? op->counts[shm->me]
                         : is_per_destination(op->kind) ? op->total
                                                        : op->count;
    bool reachable = false;
    if (published > TRMI_SHM_CARRY_BYTES) {
        find_buffers(shm, op, send_count, &said->at);
        reachable =
            said->at.send.region != TRMI_SHM_NOWHERE && said->at.recv.region != TRMI_SHM_NOWHERE;
    }
    if (carries(shm, op, reachable, published)) {
        said->way = TRMI_SHM_CARRIES;
        if (op->kind != TRM_BARRIER && sends(op, shm->me) && send_count > 0) {
            memcpy(carried_data(slot, published), op->send,
                   (size_t)send_count * trm_dtype_bytes(op->dtype));
        }
        return;
    }
    said->way = TRMI_SHM_POINTS;
    for (int32_t r = 0; op->kind == TRM_ALLTOALLV && r < shm->n; r++) {
        trmi_shm_share *shares = (trmi_shm_share *)(void *)slot->payload;
        shares[r] = (trmi_shm_share){op->send_offsets[r], op->send_counts[r]};
    }
}

/* Copies what rank r says of its block for this rank, before it is checked and used. */
static trm_status take_share(trmi_shm *shm, const trmi_engine_call *op, int32_t r, trm_error *err) {
    const volatile trmi_shm_share *told = &shares_in_slot(shm, r)[shm->me];
    trmi_shm_share *share = &shm->shares[r];
    *share = r == shm->me ? (trmi_shm_share){op->send_offsets[r], op->send_counts[r]}
                          : (trmi_shm_share){told->offset, told->count};
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

static trm_status run_posted(trmi_shm *shm, const trmi_engine_call *op, int64_t published,
                             trm_error *err) {
    TRMI_TRY(check_posts(shm, op, err));
    int32_t carrying = 0;
    for (int32_t r = 0; r < shm->n; r++) {
        carrying += trmi_shm_slot_of(shm, r, shm->posts)->said.way == TRMI_SHM_CARRIES;
    }
    if (carrying == shm->n) {
        run_small(shm, op, published);
        return TRM_OK;
    }
    return carrying == 0 && can_go_direct(shm, op) ? run_direct(shm, op, published, err)
                                                   : run_staged(shm, op, err);
}

/* Posts what is in the slot, and waits for the others' posts. Fetching the lines of the next
 * arrivals ahead, of which peers hold copies, costs more than it saves: they then come before what
 * peers have posted. */
static trm_status post(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    trmi_shm_post(shm);
    return trmi_shm_wait_posts(shm, op, err);
}

static trm_status run_first(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    int64_t published = published_bytes(shm, op);
    fill_slot(shm, op, published);
    TRMI_TRY(post(shm, op, err));
    return run_posted(shm, op, published, err);
}

static trm_status run_again(trmi_shm *shm, const trmi_engine_call *op, const trmi_shm_repeat *last,
                            trm_error *err) {
    trmi_shm_slot *slot = trmi_shm_slot_of(shm, shm->me, shm->posts + 1);
    slot->said = last->said[shm->me];
    if (last->carried > 0) {
        memcpy(carried_data(slot, last->carried), op->send, (size_t)last->carried);
    }
    TRMI_TRY(post(shm, op, err));
    if (!trmi_shm_says_the_same(shm, last)) {
        return run_posted(shm, op, published_bytes(shm, op), err);
    }
    if (last->carried > 0) {
        sum_carried(shm, op, last->carried, last->kernel);
        return TRM_OK;
    }
    last->kernel(last->targets, last->target_count, last->sources, shm->n, last->count,
                 op->divisor);
    return trmi_shm_meet(shm, op, err);
}

trm_status trmi_shm_run(trmi_engine *engine, const trmi_engine_call *op, trm_error *err) {
    trmi_shm *shm = (trmi_shm *)(void *)engine;
    const trmi_shm_repeat *last = trmi_shm_recall(shm, op);
    trm_status status = last != NULL ? run_again(shm, op, last, err) : run_first(shm, op, err);
    trmi_shm_settle(shm);
    return status;
}
