/* SPDX-License-Identifier: Apache-2.0 */
/* Gives every rank a pointer to one buffer of rank 0, without a copy, or to memory of all. It is
 * possible only where all ranks are processes of one host that communicate through shared memory;
 * elsewhere the result is NULL, and the caller sends the data instead. All ranks call
 * trmi_comm_map_root together (contracts in comm/shm/shared_buffers.h). */
#include "comm/api/communicator.h"
#include "comm/shm/shared_buffers.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

bool trmi_comm_can_map_root(const trm_comm *comm) {
    const trmi_shm *shm = (const trmi_shm *)(void *)comm->shm;
    return shm != NULL && comm->net == NULL && !comm->net_only && !shm->one_process &&
           comm->local_size == comm->group.size;
}

/* Returns `status` of a mapping that has failed, `why`; where the job fails, so that a peer has
 * freed its memory, the failure of the job, which may come later than the peer's memory goes. */
static trm_status explain_failure(trm_comm *comm, trm_status status, trm_error *why,
                                  trm_error *err) {
    if (status == TRM_INVALID) {
        return trmi_group_unreachable(&comm->group, why, "the memory of a peer", err);
    }
    if (status != TRM_OK && err != NULL) {
        *err = *why;
    }
    return status;
}

trm_status trmi_comm_map_root(trm_comm *comm, void *memory, size_t bytes, void **out,
                              trm_error *err) {
    *out = NULL;
    if (!trmi_comm_can_map_root(comm)) {
        return TRM_OK;
    }
    /* Rank 0 broadcasts the place of its buffer; each other rank maps it. */
    trmi_shm_place place = trmi_shm_find(comm->host, memory, bytes, false);
    TRMI_TRY(trm_comm_broadcast(comm, &place, (int64_t)sizeof place, TRM_UINT8, 0, err));
    if (place.region == TRMI_SHM_NOWHERE) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "rank 0's memory of %zu bytes is not from trm_comm_alloc_shared", bytes);
    }
    char *at = memory;
    trm_error why;
    if (comm->group.rank != 0) {
        trm_status status = trmi_shm_reach(comm->host, comm->host_rank[comm->local_index[0]], place,
                                           bytes, &at, &why);
        TRMI_TRY(explain_failure(comm, status, &why, err));
    }
    *out = at;
    return TRM_OK;
}

trm_status trmi_comm_make_segment(trm_comm *comm, size_t bytes, trmi_shm_segment *out,
                                  trm_error *err) {
    const trmi_exchange exchange = {.context = comm, .allgather = trmi_comm_allgather};
    *out = (trmi_shm_segment){0};
    return trmi_comm_can_map_root(comm)
               ? trmi_shm_segment_create(comm->group.size, comm->group.rank, bytes, &exchange, NULL,
                                         out, err)
               : TRM_OK;
}

bool trmi_comm_reaches(trm_comm *comm, const void *memory, size_t bytes) {
    int32_t owner;
    trmi_shm_place place;
    return trmi_comm_can_map_root(comm) &&
           trmi_shm_find_owner(comm->host, memory, bytes, &owner, &place);
}

/* Place and size of a rank's memory, which the rank sends to all others. */
typedef struct memory_card {
    trmi_shm_place place;
    uint64_t bytes;
    int32_t owner; /* index in `host`; -1: it has none */
} memory_card;

/* Contract in communicator.h. Each rank states where its memory lies (a card); then each maps what
 * the others have stated. A rank without memory takes part and is not mapped. */
trm_status trmi_comm_map_each(trm_comm *comm, const void *memory, size_t bytes,
                              trmi_shm_segment *out, trm_error *err) {
    const int32_t size = comm->group.size;
    memory_card *cards, mine = {.bytes = bytes, .owner = -1};
    if (memory != NULL &&
        !trmi_shm_find_owner(comm->host, memory, bytes, &mine.owner, &mine.place)) {
        return TRMI_FAIL(err, TRM_INVALID, "memory of %zu bytes is not of a shared buffer", bytes);
    }
    memset(out, 0, (size_t)size * sizeof *out);
    TRMI_TRY(TRMI_NEW(err, cards, size, "for the memory of %d ranks", size));
    trm_error why;
    trm_status status = trmi_comm_allgather(comm, &mine, sizeof mine, cards, &why);
    for (int32_t r = 0; status == TRM_OK && r < size; r++) {
        if (cards[r].owner >= 0) {
            status = trmi_shm_map_place(comm->host, cards[r].owner, cards[r].place,
                                        (size_t)cards[r].bytes, &out[r], &why);
        }
    }
    status = explain_failure(comm, status, &why, err);
    trmi_free(cards);
    if (status != TRM_OK) {
        for (int32_t r = 0; r < size; r++) {
            trmi_shm_segment_release(&out[r]);
        }
    }
    return status;
}
