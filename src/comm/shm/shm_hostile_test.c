/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that writes nonsense into memory which it shares: the others may get wrong sums or an
 * error, but they neither crash nor read or write outside of what was shared.
 *
 * The hostile rank takes part in every operation as usual, while a thread of it rewrites what its
 * slots and cells say: places, offsets, sizes. */
#include "ranks.h"

#include "comm/api/communicator.h"

enum { ROUNDS = 2000, FLOATS = 3000, PAIR = 2 };

typedef enum attack { PLACES, REGIONS, CELLS, SHARES, ATTACKS } attack;

typedef struct attacker {
    trmi_shm *shm;
    attack what;
    _Atomic bool stop;
} attacker;

static void rewrite_slot(trmi_shm *shm, attack what, uint64_t i) {
    trmi_shm_slot *slot = trmi_shm_slot_of(shm, shm->me, i);
    volatile trmi_shm_place *places[2] = {&slot->said.at.send, &slot->said.at.recv};
    for (int p = 0; p < 2 && what == PLACES; p++) {
        places[p]->offset = i % 3 == 0 ? UINT64_MAX - 64 : (uint64_t)1 << (i % 60);
        places[p]->region = i % 5 == 0 ? TRMI_SHM_ADDRESS : i % 7 == 0 ? 300 : 0;
    }
    volatile trmi_shm_share *shares = (volatile trmi_shm_share *)(void *)slot->payload;
    for (int r = 0; r < shm->n && what == SHARES; r++) {
        shares[r].offset = i % 3 == 0 ? INT64_MAX - 1 : (int64_t)1 << (i % 60);
        shares[r].count = i % 4 == 0 ? FLOATS : i % 4 == 1 ? INT64_MAX : -1;
    }
}

static void *rewrite_post(void *context) {
    attacker *a = context;
    trmi_shm *shm = a->shm;
    for (uint64_t i = 0; !atomic_load(&a->stop); i++) {
        rewrite_slot(shm, a->what, i);
        for (int r = 0; r < TRMI_SHM_REGIONS && a->what == REGIONS; r++) {
            volatile trmi_shm_region *region =
                &shm->host->regions[(size_t)(1 - shm->me) * TRMI_SHM_REGIONS + (size_t)r];
            region->address = i << 12; /* of the other rank: it must not decide by them */
            region->bytes = (uint64_t)1 << (i % 50);
            region->fd = (int32_t)(i % 20);
        }
        for (int c = 0; c < TRMI_SHM_CELLS && a->what == CELLS; c++) {
            volatile trmi_shm_cell *cell =
                &shm->cells[(size_t)(shm->me * shm->n + 1 - shm->me) * TRMI_SHM_CELLS + (size_t)c];
            cell->inline_bytes = i % 2 == 0 ? (uint64_t)-4096 : (uint64_t)1 << (i % 40);
            cell->place.region = i % 3 == 0 ? TRMI_SHM_ADDRESS : TRMI_SHM_NOWHERE;
        }
    }
    return NULL;
}

/* One operation of each kind that the attack is about.   errors  those of the communicator */
static trm_status play_attack(trm_comm *comm, attack what, float *send, float *recv,
                              trm_error *err) {
    const int64_t counts[PAIR] = {FLOATS / 2, FLOATS / 2};
    const trm_collective sum = {.kind = TRM_ALLREDUCE,
                                .send = send,
                                .recv = recv,
                                .count = FLOATS,
                                .dtype = TRM_FLOAT32,
                                .reduce = TRM_REDUCTION_SUM};
    const trm_collective all = {.kind = TRM_ALLTOALLV,
                                .send = send,
                                .recv = recv,
                                .dtype = TRM_FLOAT32,
                                .counts = counts,
                                .recv_counts = counts};
    if (what != CELLS) {
        return trm_comm_run(comm, what == SHARES ? &all : &sum, err);
    }
    return trm_comm_rank(comm) == 1 ? trm_comm_send(comm, send, FLOATS, TRM_FLOAT32, 0, err)
                                    : trm_comm_recv(comm, recv, FLOATS, TRM_FLOAT32, 1, err);
}

static void run_rank(rank_context *context) {
    OPEN_COMM();
    const attack what = (attack)given->mode;
    attacker a = {.shm = (trmi_shm *)(void *)comm->shm, .what = what};
    pthread_t thread;
    float *send = trm_comm_alloc_shared(comm, FLOATS * sizeof *send, &err);
    float *recv = trm_comm_alloc_shared(comm, FLOATS * sizeof *recv, &err);
    EXPECT(send != NULL && recv != NULL, "%s", err.message);
    memset(send, 0, FLOATS * sizeof *send);
    EXPECT(rank == 0 || pthread_create(&thread, NULL, rewrite_post, &a) == 0, "no thread");
    trm_status status = TRM_OK;
    for (int i = 0; i < ROUNDS && status == TRM_OK; i++) {
        status = play_attack(comm, what, send, recv, &err);
    }
    if (rank == 1) {
        atomic_store(&a.stop, true);
        pthread_join(thread, NULL);
    }
    EXPECT(status == TRM_OK || err.message[0] != '\0', "an error without a message");
    if (what == REGIONS) {
        float *more = trm_comm_alloc_shared(comm, FLOATS * sizeof *more, &err);
        EXPECT(more != NULL, "%s", err.message);
        trm_comm_free_shared(comm, more);
        trm_comm_free_shared(comm, send);
    }
    CLOSE_COMM();
}

static void nobody_crashes(void **state) {
    (void)state;
    if (TRMI_THREAD_SANITIZER) {
        skip(); /* the attack is a data race */
    }
    static const char *const names[ATTACKS] = {"places", "regions", "cells", "shares"};
    for (int what = 0; what < ATTACKS; what++) {
        rank_setup given = {.options = {.engine = "shm", .timeout_seconds = 5}, .mode = what};
        ranks_run(PAIR, 0, true, run_rank, &given, names[what]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_crashes)};
    return cmocka_run_group_tests_name("hostile rank", tests, NULL, NULL);
}
