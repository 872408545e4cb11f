/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of the engine for the ranks of one host: finding out how many CPUs the ranks share, the
 * layout of the group's shared segment, and the engine's table. The drawing is in shm.h.
 *
 *   exchange_cards -> lay_out -> the segment, mapped by all ranks -> pointers into it
 *
 * With fewer CPUs than ranks (`counted`) ranks wait asleep and take work in turns (shm_wait.c);
 * otherwise they poll. The layout is computed by each rank from the same numbers, so no offsets are
 * sent. */
#define _GNU_SOURCE
#include "comm/shm/shm.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

/* The values that each rank sends to the others before the segment exists. */
typedef struct card {
    uint8_t cpus[128]; /* cpu_set_t: the CPUs that the rank may run on */
    int32_t cpu_limit; /* CPUs that the cgroup's quota allows; INT32_MAX: no quota below the set */
    int32_t reserved;
} card;

/* Fills this rank's card from its CPU affinity and its cgroup quota. */
static void fill_card(card *mine) {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    memcpy(mine->cpus, &set, sizeof set < sizeof mine->cpus ? sizeof set : sizeof mine->cpus);
    mine->cpu_limit = trmi_os_cpu_count();
    mine->cpu_limit = mine->cpu_limit < CPU_COUNT(&set) ? mine->cpu_limit : INT32_MAX;
}

/* Returns the number of CPUs that the ranks share: the union of their sets, at most the lowest
 * quota. */
static int32_t cpus_of(const card *cards, int32_t n) {
    int32_t count = 0, limit = INT32_MAX;
    uint8_t any[sizeof cards->cpus] = {0};
    for (int32_t r = 0; r < n; r++) {
        limit = cards[r].cpu_limit < limit ? cards[r].cpu_limit : limit;
        for (size_t i = 0; i < sizeof any; i++) {
            any[i] |= cards[r].cpus[i];
        }
    }
    for (size_t i = 0; i < sizeof any; i++) {
        count += __builtin_popcount(any[i]);
    }
    return count < limit ? count : limit;
}

/* Exchanges the cards of all ranks, and sets `counted` where they, or all ranks of the host, share
 * fewer CPUs than they are: a rank that polls keeps its CPU from ranks of other groups, too. The
 * first communicator has all ranks. */
static trm_status exchange_cards(trmi_shm *shm, const trmi_exchange *exchange, trm_error *err) {
    card mine = {{0}, 0, 0}, *cards = trmi_alloc((size_t)shm->n * sizeof *cards);
    if (cards == NULL) {
        return TRMI_NO_MEMORY(err, "to meet %d ranks", shm->n);
    }
    fill_card(&mine);
    trm_status status = exchange->allgather(exchange->context, &mine, sizeof mine, cards, err);
    if (status == TRM_OK) {
        shm->cpus = cpus_of(cards, shm->n);
        const bool crowded = shm->n > shm->cpus;
        /* only all ranks together: those of another group must answer alike */
        shm->host->crowded = shm->n == shm->host->n ? crowded : shm->host->crowded;
        shm->counted = crowded || shm->host->crowded;
    }
    trmi_free(cards);
    return status;
}

/* Rounds `bytes` up to a multiple of `to`. */
static size_t align_bytes(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* Computes the offsets of the segment's areas, creates the segment on all ranks and sets the
 * pointers into it. */
static trm_status lay_out(trmi_shm *shm, const trmi_shm_options *options,
                          const trmi_exchange *exchange, trm_error *err) {
    size_t n = (size_t)shm->n;
    /* A slot must hold the TRM_ALLTOALLV table: offset and count for each destination. */
    size_t table = 2 * sizeof(int64_t) * n;
    shm->slot_payload_bytes = table > TRMI_SHM_SMALL_BYTES ? table : TRMI_SHM_SMALL_BYTES;
    /* Add one more cache line: with a power of two, the slots of all ranks would compete for the
     * same cache sets. */
    shm->slot_bytes = align_bytes(sizeof(trmi_shm_slot) + shm->slot_payload_bytes, 64) + 64;
    shm->stage_bytes = align_bytes(
        options->staging_bytes / 2 > 64 * n ? options->staging_bytes / 2 : 64 * n, 4096);
    size_t lines = align_bytes(sizeof(trmi_shm_head), 128);
    size_t slots = lines + n * sizeof(trmi_shm_line);
    size_t cells = align_bytes(slots + n * 2 * shm->slot_bytes, 4096);
    size_t stages = align_bytes(cells + n * n * TRMI_SHM_CELLS * sizeof(trmi_shm_cell), 4096);
    TRMI_TRY(trmi_shm_segment_create(shm->n, shm->me, stages + n * 2 * shm->stage_bytes, exchange,
                                     NULL, &shm->segment, err));
    shm->head = (trmi_shm_head *)(void *)shm->segment.data;
    shm->lines = (trmi_shm_line *)(void *)(shm->segment.data + lines);
    shm->slots = shm->segment.data + slots;
    shm->cells = (trmi_shm_cell *)(void *)(shm->segment.data + cells);
    shm->stages = shm->segment.data + stages;
    return TRM_OK;
}

/* Frees the arrays of the repeated operations; NULL is fine. */
static void free_repeats(trmi_shm_repeat *repeats) {
    for (int32_t i = 0; repeats != NULL && i < TRMI_SHM_REPEATS; i++) {
        trmi_free(repeats[i].said);
        trmi_free(repeats[i].sources);
        trmi_free(repeats[i].targets);
    }
    trmi_free(repeats);
}

/* Marks this rank as gone, so that peers that still wait for it fail, and frees the engine. Accepts
 * a partly created engine. */
static void shm_destroy(trmi_engine *engine) {
    trmi_shm *shm = (trmi_shm *)(void *)engine;
    if (shm->lines != NULL) {
        atomic_store(&shm->lines[shm->me].left, 1);
    }
    trmi_shm_segment_release(&shm->segment);
    trmi_shm_host_release(shm->host);
    trmi_free(shm->cells_written);
    trmi_free(shm->cells_read);
    trmi_free(shm->sources);
    trmi_free(shm->targets);
    trmi_free(shm->found);
    free_repeats(shm->repeats);
    trmi_free(shm->shares);
    trmi_free(shm->missing);
    trmi_free(shm);
}

/* The engine's functions. `start` is absent: progress gets a message under way by itself. */
static const trmi_engine_table shm_table = {
    .name = "shm",
    .run = trmi_shm_run,
    .progress = trmi_shm_progress,
    .idle = trmi_shm_idle,
    .destroy = shm_destroy,
};

/* Contract in shm.h. Makes the arrays of this rank, then the ranks exchange where their memory is
 * (exchange_cards) and agree on the layout of the common one (lay_out). */
trm_status trmi_shm_create(const trmi_group *group, trmi_shm_host *host, const int32_t *host_rank,
                           const trmi_shm_options *options, const trmi_exchange *exchange,
                           trmi_engine **out, trm_error *err) {
    trmi_shm *shm;
    TRMI_TRY(TRMI_NEW(err, shm, 1, "for a group of %d ranks", group->size));
    size_t n = (size_t)group->size;
    shm->base.table = &shm_table;
    shm->base.group = *group;
    shm->host = host;
    atomic_fetch_add(&host->references, 1);
    shm->host_rank = host_rank;
    shm->n = group->size;
    shm->me = group->rank;
    shm->no_direct = options->no_direct;
    shm->spin_microseconds = options->spin_microseconds;
    shm->spin_seconds = 1e-6 * options->spin_microseconds;
    shm->reduce = trmi_reduce_best();
    shm->one_process = true;
    /* one_process: every rank has the process of rank 0. */
    for (int32_t r = 0; r < shm->n; r++) {
        const trmi_shm_process *first = &host->processes[host_rank[0]];
        const trmi_shm_process *other = &host->processes[host_rank[r]];
        shm->one_process &=
            first->pid == other->pid && first->pid_namespace == other->pid_namespace;
    }
    /* Make arrays with an entry for each rank. */
    shm->cells_written = trmi_alloc(n * sizeof *shm->cells_written);
    shm->cells_read = trmi_alloc(n * sizeof *shm->cells_read);
    shm->sources = trmi_alloc(n * sizeof *shm->sources);
    shm->targets = trmi_alloc(n * sizeof *shm->targets);
    shm->found = trmi_alloc(2 * n * sizeof *shm->found);
    shm->shares = trmi_alloc(n * sizeof *shm->shares);
    shm->missing = trmi_alloc(n * sizeof *shm->missing);
    shm->repeats = trmi_alloc(TRMI_SHM_REPEATS * sizeof *shm->repeats);
    trm_status status = TRM_OK;
    if (shm->cells_written == NULL || shm->cells_read == NULL || shm->sources == NULL ||
        shm->targets == NULL || shm->found == NULL || shm->missing == NULL ||
        shm->repeats == NULL || shm->shares == NULL) {
        status = TRMI_NO_MEMORY(err, "for a group of %d ranks", group->size);
    }
    status = status == TRM_OK ? exchange_cards(shm, exchange, err) : status;
    status = status == TRM_OK ? lay_out(shm, options, exchange, err) : status;
    if (status != TRM_OK) {
        shm_destroy(&shm->base);
        return status;
    }
    *out = &shm->base;
    return TRM_OK;
}
