/* SPDX-License-Identifier: Apache-2.0 */
/* Translates a caller's operation into the form that engines run (trmi_engine_call). Every rule of
 * trireme/dist.h about arguments is checked here, and only here: engines rely on it.
 *
 *   check_scalars --> resolve_counts (kinds with counts) --> resolve_buffers --> trmi_op_sign
 *
 * Invariant: after a success every count, offset and root that an engine reads is in range, and the
 * bytes of the whole vector fit into int64. Lengths are in elements. For a kind with blocks,
 * `count` is this rank's block and `total` is the vector of all blocks; for other kinds the two are
 * equal. */
#include "comm/api/communicator.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/api/reduce.h"

#include <inttypes.h>
#include <string.h>

/* No data type is longer. */
enum { ELEMENT_BYTES_MAX = 8 };

/* Properties of a kind: it reduces, it has a root, each rank has a count of its own, its vector has
 * a block for each rank. */
static bool is_reduction(trm_collective_kind kind) {
    return kind == TRM_ALLREDUCE || kind == TRM_REDUCE || kind == TRM_REDUCE_SCATTER ||
           kind == TRM_REDUCE_SCATTERV;
}
/* Return what a kind has: a root; counts for each rank; a vector of blocks, one for each rank. */
static bool is_rooted(trm_collective_kind kind) {
    return kind == TRM_BROADCAST || kind == TRM_REDUCE || kind == TRM_SCATTER || kind == TRM_GATHER;
}
static bool has_counts(trm_collective_kind kind) {
    return kind == TRM_ALLGATHERV || kind == TRM_REDUCE_SCATTERV || kind == TRM_ALLTOALLV;
}
static bool has_blocks(trm_collective_kind kind) {
    return kind != TRM_ALLREDUCE && kind != TRM_BROADCAST && kind != TRM_REDUCE;
}

/* Checks kind, type, reduction, root and count. The bytes of all ranks together must fit into
 * int64. */
static trm_status check_scalars(const trm_comm *comm, const trm_collective *from, trm_error *err) {
    int32_t size = comm->group.size;
    const char *name = trm_collective_name(from->kind);
    if (from->kind < TRM_ALLREDUCE || from->kind > TRM_BARRIER) {
        return TRMI_FAIL(err, TRM_INVALID, "collective kind %d: 1 to %d expected", (int)from->kind,
                         (int)TRM_BARRIER);
    }
    if (from->kind == TRM_BARRIER) {
        return from->count >= 0
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_INVALID, "%s: step %" PRId64 ": 0 or more expected", name,
                               from->count);
    }
    if (trm_dtype_bytes(from->dtype) == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: data type %d is not known; a trm_dtype expected",
                         name, (int)from->dtype);
    }
    if (is_reduction(from->kind) && trmi_reduce_find(from->dtype, from->reduce) == NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: reduction %d is not known; a trm_reduction from TRM_REDUCTION_SUM on expected",
            name, (int)from->reduce);
    }
    if (is_rooted(from->kind) && (from->root < 0 || from->root >= size)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: root %d: 0 to %d expected", name, from->root,
                         size - 1);
    }
    int64_t bytes;
    if (!has_counts(from->kind) &&
        (from->count < 0 || !trmi_mul_i64(from->count, ELEMENT_BYTES_MAX, &bytes) ||
         !trmi_mul_i64(bytes, size, &bytes))) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: count %" PRId64
            " is not possible: 0 or more expected, and all ranks together at most 2^63 - 1 bytes",
            name, from->count);
    }
    return TRM_OK;
}

/* Copies counts and displacements (NULL: packed) of all ranks to counts_out and offsets_out, after
 * a check. *total becomes the length of the vector in elements. */
static trm_status take_counts(const trm_comm *comm, const char *name, const int64_t *counts,
                              const int64_t *displacements, int64_t *counts_out,
                              int64_t *offsets_out, int64_t *total, trm_error *err) {
    if (counts == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: counts of %d ranks expected, none given", name,
                         comm->group.size);
    }
    int64_t next = 0, longest = 0, bytes;
    for (int32_t r = 0; r < comm->group.size; r++) {
        int64_t at = displacements != NULL ? displacements[r] : next, end;
        if (counts[r] < 0 || at < 0 || !trmi_add_i64(at, counts[r], &end) ||
            !trmi_mul_i64(end, ELEMENT_BYTES_MAX, &bytes)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: count %" PRId64 " at %" PRId64 " for rank %d is "
                             "not possible",
                             name, counts[r], at, r);
        }
        counts_out[r] = counts[r];
        offsets_out[r] = at;
        next = end;
        longest = trmi_max_i64(longest, end);
    }
    *total = longest;
    return TRM_OK;
}

/* Fills the arrays of a collective with counts: request->counts holds 4 arrays of [size]. They are
 * copies, so the caller may change its own arrays.
 *   errors  INVALID, NOMEM */
static trm_status resolve_counts(trm_comm *comm, const trm_collective *from, trm_request *request,
                                 trm_error *err) {
    size_t n = (size_t)comm->group.size;
    trmi_engine_call *op = &request->op;
    const char *name = trm_collective_name(op->kind);
    if (request->counts == NULL) {
        request->counts = trmi_alloc(4 * n * sizeof(int64_t));
        if (request->counts == NULL) {
            return TRMI_NO_MEMORY(err, "for the counts of %zu ranks in %s", n, name);
        }
    }
    int64_t *at = request->counts, received;
    /* All-gatherv and reduce-scatterv have one array of counts; the blocks are packed. */
    if (op->kind != TRM_ALLTOALLV) {
        TRMI_TRY(take_counts(comm, name, from->counts, NULL, at, at + n, &op->total, err));
        op->counts = at, op->offsets = at + n;
        op->count = at[comm->group.rank];
        return TRM_OK;
    }
    /* All-to-allv has counts and displacements for both directions. */
    TRMI_TRY(
        take_counts(comm, name, from->counts, from->displacements, at, at + n, &op->total, err));
    TRMI_TRY(take_counts(comm, name, from->recv_counts, from->recv_displacements, at + 2 * n,
                         at + 3 * n, &received, err));
    op->send_counts = at, op->send_offsets = at + n;
    op->recv_counts = at + 2 * n, op->recv_offsets = at + 3 * n;
    op->count = received;
    return TRM_OK;
}

/* Returns whether the two ranges of bytes have a byte in common. */
static bool ranges_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + (uint64_t)b_bytes && y < x + (uint64_t)a_bytes;
}

/* Prepares an all-to-all in place: copies the input to scratch memory, because the output
 * overwrites it. There is one scratch buffer, so no other operation may be pending. */
static trm_status copy_input_aside(trm_comm *comm, trmi_engine_call *op, trm_error *err) {
    size_t bytes = (size_t)op->total * trm_dtype_bytes(op->dtype);
    if (atomic_load(&comm->pending) > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "all-to-all in place while operations are pending: wait "
                         "for them, or give it two buffers");
    }
    if (bytes > comm->scratch_bytes) {
        trmi_free(comm->scratch);
        comm->scratch_bytes = 0;
        comm->scratch = trmi_alloc(bytes);
        if (comm->scratch == NULL) {
            return TRMI_NO_MEMORY(err, "for %zu bytes of an all-to-all in place", bytes);
        }
        comm->scratch_bytes = bytes;
    }
    if (bytes > 0) {
        memcpy(comm->scratch, op->recv, bytes);
    }
    op->send = comm->scratch;
    return TRM_OK;
}

/* Returns the elements of this rank's input and output, 0 if the kind has none for this rank. */
static void find_vector_lengths(const trm_comm *comm, const trmi_engine_call *op, int64_t *send,
                                int64_t *recv) {
    bool root = comm->group.rank == op->root;
    bool scatters = op->kind == TRM_REDUCE_SCATTER || op->kind == TRM_REDUCE_SCATTERV ||
                    op->kind == TRM_ALLTOALL || op->kind == TRM_ALLTOALLV;
    bool gathers =
        op->kind == TRM_ALLGATHER || op->kind == TRM_ALLGATHERV || op->kind == TRM_ALLTOALL;
    *send = scatters ? op->total : op->count;
    *recv = gathers ? op->total : op->count;
    switch (op->kind) {
    case TRM_BROADCAST: *send = root ? op->count : 0; break;
    case TRM_REDUCE: *recv = root ? op->count : 0; break;
    case TRM_SCATTER: *send = root ? op->total : 0; break;
    case TRM_GATHER: *recv = root ? op->total : 0; break;
    default: break;
    }
}

/* Sets op->send and op->recv. send == NULL means "in place": the input is then this rank's block of
 * the output vector, or the whole vector, depending on the kind. Otherwise the two must not
 * overlap. */
static trm_status resolve_buffers(trm_comm *comm, const trm_collective *from, trmi_engine_call *op,
                                  trm_error *err) {
    const char *name = trm_collective_name(op->kind);
    int64_t send, recv, bytes = (int64_t)trm_dtype_bytes(op->dtype);
    find_vector_lengths(comm, op, &send, &recv);
    op->send = from->send;
    op->recv = from->recv;
    bool in_place = false;
    if (op->send == NULL && op->recv != NULL && send > 0) { /* in place */
        int64_t at = trmi_op_offset(op, comm->group.rank) * bytes;
        in_place = true;
        op->send = op->recv;
        if (op->kind == TRM_ALLGATHER || op->kind == TRM_ALLGATHERV || op->kind == TRM_GATHER) {
            if (op->kind == TRM_GATHER && comm->group.rank != op->root) {
                at = 0; /* the vector of a rank that is not the root is its own block */
            }
            op->send = (char *)op->recv + at;
        } else if (op->kind == TRM_SCATTER || op->kind == TRM_REDUCE_SCATTER ||
                   op->kind == TRM_REDUCE_SCATTERV) {
            op->recv = (char *)op->recv + at;
        } else if (op->kind == TRM_ALLTOALL) {
            return copy_input_aside(comm, op, err);
        } else if (op->kind == TRM_ALLTOALLV) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: send is NULL (in place): two buffers expected",
                             name);
        }
    }
    /* A buffer is necessary if it has elements, and two different buffers must not overlap. */
    if ((send > 0 && op->send == NULL) || (recv > 0 && op->recv == NULL)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s of rank %d: no %s buffer for %" PRId64 " elements",
                         name, comm->group.rank, op->recv == NULL ? "receive" : "send",
                         op->recv == NULL && recv > 0 ? recv : send);
    }
    bool same_place = op->send == op->recv && !has_blocks(op->kind);
    if (!in_place && !same_place &&
        ranges_overlap(op->send, send * bytes, op->recv, recv * bytes)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: send and receive buffers overlap; pass send = NULL "
                         "for in place",
                         name);
    }
    return TRM_OK;
}

/* Contract in communicator.h. The signature is made last, from the resolved form: ranks that pass
 * the same operation in different words agree. */
trm_status trmi_comm_resolve(trm_comm *comm, const trm_collective *from, trm_request *request,
                             trm_error *err) {
    TRMI_TRY(check_scalars(comm, from, err));
    request->kind = TRMI_WORK_COLLECTIVE;
    trmi_engine_call *op = &request->op;
    *op = (trmi_engine_call){.kind = from->kind, .divisor = comm->group.size};
    /* A barrier has no data: everything else stays 0. */
    if (from->kind != TRM_BARRIER) {
        op->dtype = from->dtype;
        op->reduce = is_reduction(from->kind) ? from->reduce : TRM_REDUCTION_NONE;
        op->root = is_rooted(from->kind) ? from->root : 0;
        op->count = from->count;
        op->total = has_blocks(from->kind) ? from->count * comm->group.size : from->count;
        if (has_counts(from->kind)) {
            TRMI_TRY(resolve_counts(comm, from, request, err));
        }
        TRMI_TRY(resolve_buffers(comm, from, op, err));
    }
    op->tag = from->tag;
    trmi_op_sign(op, comm->group.size);
    if (from->kind == TRM_BARRIER) {
        op->signature[1] = (uint64_t)from->count;
    }
    return TRM_OK;
}

/* Contract in communicator.h. Everything that can be wrong with a message is found here, before
 * the first one is sent: an exchange that fails half-way would leave peers waiting. */
trm_status trmi_comm_resolve_messages(trm_comm *comm, const trm_message *messages, int32_t count,
                                      trm_request *request, trm_error *err) {
    if (count < 0 || (count > 0 && messages == NULL)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "an exchange of %d messages: 0 or more expected, and a list unless it is 0", count);
    }
    TRMI_TRY(TRMI_GROW(err, request->messages, request->message_capacity, count,
                       "for an exchange of %d messages", count));
    for (int32_t i = 0; i < count; i++) {
        const trm_message *m = &messages[i];
        int64_t bytes = (int64_t)trm_dtype_bytes(m->dtype);
        if (m->peer < 0 || m->peer >= comm->group.size) {
            return TRMI_FAIL(err, TRM_INVALID, "message %d: peer %d: 0 to %d expected", i, m->peer,
                             comm->group.size - 1);
        }
        /* A message without elements needs no buffer. */
        if (bytes == 0 || m->count < 0 || !trmi_mul_i64(bytes, m->count, &bytes) ||
            (m->buffer == NULL && bytes > 0)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "message %d: %" PRId64
                             " elements of type %d at %p: a known type, 0 or more elements, and a "
                             "buffer unless it is 0 expected",
                             i, m->count, (int)m->dtype, m->buffer);
        }
        request->messages[i] = (trmi_engine_message){
            .receive = m->receive,
            .rank = m->peer,
            .peer = m->peer,
            .buffer = m->buffer,
            .bytes = bytes,
            .signature = (uint64_t)m->dtype,
        };
    }
    request->message_count = count;
    request->wait = (trmi_wait){0};
    request->kind = TRMI_WORK_MESSAGES;
    request->tag = count > 0 ? messages[0].tag : NULL;
    return TRM_OK;
}
