/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on two levels: inside each host over shared memory, across hosts over the network.
 *
 *   all-reduce, equal hosts     shm reduce-scatter | net all-reduce of slice i among the ranks with
 *                               local index i | shm all-gather
 *   all-reduce, unequal hosts   shm reduce to the leader | net all-reduce among leaders | shm broadcast
 *   broadcast                   net broadcast among leaders, the root being one | shm broadcast
 *   reduce                      shm reduce to the leader | net reduce among leaders, the root being one
 *   barrier                     shm barrier | net barrier among leaders | shm barrier
 *
 * The leader of a host is its first rank, or the operation's root if that is on the host. Partial
 * sums keep the partial type (float for 16-bit floats) until they are complete. Less data cross the
 * network than in a flat collective: each host sends one vector instead of one for each rank. */
#include "comm/net/engines.h"
#include "comm/shm/shared_buffers.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* The tables and buffers of a communicator whose hosts have several ranks (comm->levels). */
typedef struct levels {
    bool even;       /* every host has the same number of ranks of the communicator */
    int32_t my_host; /* index of this host among the communicator's hosts */
    /* [hosts] the rank on each host that has this rank's local index (only if `even`) */
    int32_t *same_index;
    int32_t *firsts;           /* [hosts] first rank on each host */
    int32_t *host_of;          /* [size] host index of each rank */
    int32_t *leaders;          /* [hosts] scratch: leaders of the present operation */
    int64_t *counts, *offsets; /* [local size] slices of the present all-reduce */
    /* shared memory: this rank's input and its partial sums, in the partial type */
    char *input, *output;
    size_t input_bytes, output_bytes;
} levels;

/* Returns what this file keeps for a communicator. */
static levels *levels_of(const trm_comm *comm) { return comm->levels; }

/* Contract in engines.h. A collective in two levels runs inside the hosts and between ranks of
 * equal place on different hosts (same_index). `even`: all hosts have equally many ranks. */
trm_status trmi_levels_create(trm_comm *comm, trm_error *err) {
    if (comm->net == NULL || comm->group.size == comm->host_count) {
        return TRM_OK; /* one rank on each host: the flat collective is the same */
    }
    size_t hosts = (size_t)comm->host_count, local = (size_t)comm->local_size;
    size_t size = (size_t)comm->group.size;
    levels *l;
    TRMI_TRY(TRMI_NEW(err, l, 1, "for two levels"));
    comm->levels = l;
    l->same_index = trmi_alloc(hosts * sizeof(int32_t));
    l->firsts = trmi_alloc(hosts * sizeof(int32_t));
    l->leaders = trmi_alloc(hosts * sizeof(int32_t));
    l->host_of = trmi_alloc(size * sizeof(int32_t));
    l->counts = trmi_alloc(local * sizeof(int64_t));
    l->offsets = trmi_alloc(local * sizeof(int64_t));
    int32_t *seen = trmi_alloc(hosts * sizeof(int32_t)),
            *host_id = trmi_alloc(hosts * sizeof(int32_t));
    if (l->same_index == NULL || l->firsts == NULL || l->leaders == NULL || l->host_of == NULL ||
        l->counts == NULL || l->offsets == NULL || seen == NULL || host_id == NULL) {
        trmi_free(seen);
        trmi_free(host_id);
        return TRMI_NO_MEMORY(err, "for two levels of %zu ranks", size);
    }
    /* Number the hosts in the order of their first ranks, and count the ranks of each. */
    int32_t found = 0;
    for (int32_t r = 0; r < comm->group.size; r++) {
        int32_t id = comm->bootstrap->host_of[comm->members[r]], h = 0;
        while (h < found && host_id[h] != id) {
            h++;
        }
        if (h == found) {
            host_id[found] = id;
            l->firsts[found++] = r;
        }
        if (seen[h] == comm->local_rank) {
            l->same_index[h] = r;
        }
        seen[h]++;
        l->host_of[r] = h;
    }
    l->even = true;
    for (int32_t h = 0; h < found; h++) {
        l->even = l->even && seen[h] == seen[0];
    }
    l->my_host = l->host_of[comm->group.rank];
    trmi_free(seen);
    trmi_free(host_id);
    return TRM_OK;
}

void trmi_levels_destroy(trm_comm *comm) {
    levels *l = levels_of(comm);
    if (l == NULL) {
        return;
    }
    trmi_shm_host_free(comm->host, l->input);
    trmi_shm_host_free(comm->host, l->output);
    trmi_free(l->same_index);
    trmi_free(l->firsts);
    trmi_free(l->leaders);
    trmi_free(l->host_of);
    trmi_free(l->counts);
    trmi_free(l->offsets);
    trmi_free(l);
    comm->levels = NULL;
}

bool trmi_levels_can_run(const trm_comm *comm, const trmi_engine_call *op) {
    bool sums = op->kind == TRM_ALLREDUCE || op->kind == TRM_REDUCE;
    bool known = sums || op->kind == TRM_BROADCAST || op->kind == TRM_BARRIER;
    bool strict = comm->group.deterministic == TRM_DETERMINISTIC_STRICT;
    return comm->levels != NULL && known && !(sums && strict);
}

/* Makes *buffer at least `bytes` of shared memory. A failure poisons the job: the peers wait. */
static trm_status grow_buffer(trm_comm *comm, char **buffer, size_t *have, size_t bytes,
                              trm_error *err) {
    if (bytes > *have) {
        trmi_shm_host_free(comm->host, *buffer);
        *have = 0;
        trm_error cause;
        *buffer = trmi_shm_host_alloc(comm->host, bytes, &cause);
        if (*buffer == NULL) {
            return trmi_group_poison(&comm->group, &cause, err);
        }
        trmi_comm_fill_shared(*buffer, bytes);
        *have = bytes;
    }
    return TRM_OK;
}

/* --- the three stages --- */

/* The part of an operation that a stage does. */
typedef struct stage {
    trm_collective_kind kind;
    const void *send;
    void *recv;
    trm_dtype dtype;
    int32_t root; /* inside the host: a local index; across hosts: the number of a host */
    /* across hosts only: one rank of each host, and the elements of the buffers */
    const int32_t *ranks;
    int64_t count;
} stage;

/* Runs a stage inside the host. Signature and sequence number stay those of the whole operation,
 * so a mismatch shows in the first stage. */
static trm_status run_local(trm_comm *comm, const trmi_engine_call *op, const stage *s,
                            trm_error *err) {
    levels *l = levels_of(comm);
    trmi_engine_call local = *op;
    bool blocks = s->kind == TRM_REDUCE_SCATTERV || s->kind == TRM_ALLGATHERV;
    local.kind = s->kind;
    local.send = s->send;
    local.recv = s->recv;
    local.dtype = s->dtype;
    local.root = s->root;
    local.reduce = op->reduce == TRM_REDUCTION_MEAN ? TRM_REDUCTION_SUM : op->reduce;
    local.divisor = 1;
    local.counts = blocks ? l->counts : NULL;
    local.offsets = blocks ? l->offsets : NULL;
    local.total = op->count;
    local.count = blocks ? l->counts[comm->local_rank] : op->count;
    return comm->shm->table->run(comm->shm, &local, err);
}

/* Runs a stage across hosts. Sums are left undivided. */
static trm_status run_across(trm_comm *comm, const trmi_engine_call *op, const stage *s,
                             bool background, trm_error *err) {
    levels *l = levels_of(comm);
    trmi_net_part part = {.op = op,
                          .kind = s->kind,
                          .ranks = s->ranks,
                          .size = comm->host_count,
                          .rank = l->my_host,
                          .root = s->root,
                          .count = s->count,
                          .total = s->count,
                          .send = s->send,
                          .recv = s->recv,
                          .dtype = s->dtype,
                          .reduce =
                              op->reduce == TRM_REDUCTION_MEAN ? TRM_REDUCTION_SUM : op->reduce,
                          .background = background,
                          .part = 1};
    return trmi_net_run_part((trmi_net *)(void *)comm->net, &part, err);
}

/* Returns the leader of every host. *my_leader is the local index of this host's leader. */
static const int32_t *find_leaders(trm_comm *comm, int32_t root, int32_t *my_leader) {
    levels *l = levels_of(comm);
    memcpy(l->leaders, l->firsts, (size_t)comm->host_count * sizeof(int32_t));
    l->leaders[l->host_of[root]] = root;
    *my_leader = comm->local_index[l->leaders[l->my_host]];
    return l->leaders;
}

/* Sets *send to this rank's input in the type of partial sums, converted if that is another
 * type. */
static trm_status widen_input(trm_comm *comm, const trmi_engine_call *op, trm_dtype wide,
                              const void **send, trm_error *err) {
    levels *l = levels_of(comm);
    *send = op->send;
    if (wide != op->dtype) {
        TRMI_TRY(grow_buffer(comm, &l->input, &l->input_bytes,
                             (size_t)op->count * trm_dtype_bytes(wide), err));
        trmi_reduce_widen(op->send, op->dtype, l->input, wide, op->count);
        *send = l->input;
    }
    return TRM_OK;
}

/* Gives the other ranks of the host the result that the rank with local index `leader` has. */
static trm_status broadcast_inside(trm_comm *comm, const trmi_engine_call *op, int32_t leader,
                                   trm_error *err) {
    const stage s = {.kind = TRM_BROADCAST,
                     .send = op->recv,
                     .recv = op->recv,
                     .dtype = op->dtype,
                     .root = leader};
    return run_local(comm, op, &s, err);
}

/* --- the operations --- */

/* Runs an all-reduce where all hosts have the same number of ranks: every rank sends its slice
 * across hosts. */
static trm_status allreduce_by_slices(trm_comm *comm, const trmi_engine_call *op, bool background,
                                      trm_error *err) {
    levels *l = levels_of(comm);
    trm_dtype wide = trmi_reduce_partial_dtype(op->dtype, op->reduce);
    int32_t divisor = op->reduce == TRM_REDUCTION_MEAN ? op->divisor : 1, me = comm->local_rank;
    for (int32_t i = 0; i < comm->local_size; i++) {
        l->offsets[i] = op->count * i / comm->local_size;
        l->counts[i] = op->count * (i + 1) / comm->local_size - l->offsets[i];
    }
    size_t bytes = (size_t)l->counts[me] * trm_dtype_bytes(wide);
    const void *send;
    TRMI_TRY(widen_input(comm, op, wide, &send, err));
    TRMI_TRY(grow_buffer(comm, &l->output, &l->output_bytes, bytes > 0 ? bytes : 1, err));
    const stage scatter = {
        .kind = TRM_REDUCE_SCATTERV, .send = send, .recv = l->output, .dtype = wide};
    TRMI_TRY(run_local(comm, op, &scatter, err));
    const stage across = {.kind = TRM_ALLREDUCE,
                          .send = l->output,
                          .recv = l->output,
                          .dtype = wide,
                          .ranks = l->same_index,
                          .count = l->counts[me]};
    TRMI_TRY(run_across(comm, op, &across, background, err));
    char *slice = (char *)op->recv + l->offsets[me] * (int64_t)trm_dtype_bytes(op->dtype);
    trmi_reduce_finish(l->output, wide, slice, op->dtype, l->counts[me], divisor);
    const stage gather = {
        .kind = TRM_ALLGATHERV, .send = slice, .recv = op->recv, .dtype = op->dtype};
    return run_local(comm, op, &gather, err);
}

/* Runs an all-reduce (across == TRM_ALLREDUCE) or a reduce through the leaders of the hosts. */
static trm_status sum_to_leaders(trm_comm *comm, const trmi_engine_call *op,
                                 trm_collective_kind across, int32_t root, bool background,
                                 trm_error *err) {
    levels *l = levels_of(comm);
    trm_dtype wide = trmi_reduce_partial_dtype(op->dtype, op->reduce);
    int32_t divisor = op->reduce == TRM_REDUCTION_MEAN ? op->divisor : 1, leader;
    const int32_t *leaders = find_leaders(comm, root, &leader);
    bool leads = leader == comm->local_rank;
    const void *send;
    /* Sum inside each host, in the partial type, at the leader. */
    TRMI_TRY(widen_input(comm, op, wide, &send, err));
    if (leads) {
        size_t bytes = (size_t)op->count * trm_dtype_bytes(wide);
        TRMI_TRY(grow_buffer(comm, &l->output, &l->output_bytes, bytes > 0 ? bytes : 1, err));
    }
    const stage inside = {
        .kind = TRM_REDUCE, .send = send, .recv = l->output, .dtype = wide, .root = leader};
    TRMI_TRY(run_local(comm, op, &inside, err));
    /* Sum across hosts; divide and convert at the end. */
    if (leads) {
        const stage between = {.kind = across,
                               .send = l->output,
                               .recv = l->output,
                               .dtype = wide,
                               .root = l->host_of[root],
                               .ranks = leaders,
                               .count = op->count};
        TRMI_TRY(run_across(comm, op, &between, background, err));
        if (across == TRM_ALLREDUCE || comm->group.rank == root) {
            trmi_reduce_finish(l->output, wide, op->recv, op->dtype, op->count, divisor);
        }
    }
    /* Give the other ranks of the host the result. */
    return across == TRM_ALLREDUCE ? broadcast_inside(comm, op, leader, err) : TRM_OK;
}

/* Broadcasts from the root among the leaders, then inside each host. The root's leader is the root
 * itself. */
static trm_status run_broadcast(trm_comm *comm, const trmi_engine_call *op, bool background,
                                trm_error *err) {
    levels *l = levels_of(comm);
    int32_t leader;
    const int32_t *leaders = find_leaders(comm, op->root, &leader);
    if (leader == comm->local_rank) {
        const stage between = {.kind = TRM_BROADCAST,
                               .send = op->send,
                               .recv = op->recv,
                               .dtype = op->dtype,
                               .root = l->host_of[op->root],
                               .ranks = leaders,
                               .count = op->count};
        TRMI_TRY(run_across(comm, op, &between, background, err));
    }
    return broadcast_inside(comm, op, leader, err);
}

/* Runs a barrier: all ranks of a host have arrived, then all hosts have, and then the hosts' ranks
 * may go on. */
static trm_status run_barrier(trm_comm *comm, const trmi_engine_call *op, bool background,
                              trm_error *err) {
    int32_t leader;
    const int32_t *leaders = find_leaders(comm, levels_of(comm)->firsts[0], &leader);
    const stage s = {.kind = TRM_BARRIER, .dtype = TRM_UINT8, .ranks = leaders};
    TRMI_TRY(run_local(comm, op, &s, err));
    if (leader == comm->local_rank) {
        TRMI_TRY(run_across(comm, op, &s, background, err));
    }
    return run_local(comm, op, &s, err);
}

trm_status trmi_levels_run(trm_comm *comm, const trmi_engine_call *op, bool background,
                           trm_error *err) {
    levels *l = levels_of(comm);
    switch (op->kind) {
    case TRM_ALLREDUCE:
        return l->even ? allreduce_by_slices(comm, op, background, err)
                       : sum_to_leaders(comm, op, TRM_ALLREDUCE, l->firsts[0], background, err);
    case TRM_REDUCE: return sum_to_leaders(comm, op, TRM_REDUCE, op->root, background, err);
    case TRM_BROADCAST: return run_broadcast(comm, op, background, err);
    default: return run_barrier(comm, op, background, err);
    }
}
