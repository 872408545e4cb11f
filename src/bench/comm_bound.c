/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of an all-reduce within one host (contract in comm_bound.h).
 *
 *   a rank's region in shared memory    here | ready | vector
 *
 *   each run   write `here`, wait for all that meet | sum the own slice | write `ready`, wait for all
 *
 * Flags count the runs, so that none is ever cleared. */
#include "bench/comm_bound.h"

#include "comm/api/communicator.h"
#include "comm/api/reduce.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <sched.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() ((void)0)
#endif

enum { POLLS = 1000 }; /* polls of a flag before a rank gives its CPU away */
/* Places in a rank's region: the flag "ready" and the vector; the flag "here" is at 0. */
enum { READY_AT = 128, VECTOR_AT = 4096 };

/* A bound, as one rank runs it. Flags count the runs: a rank writes the number of the run. */
struct bench_bound {
    bool works, comes;              /* this rank is one of those that sum; of those that meet */
    int32_t n;                      /* ranks */
    int32_t workers, worker;        /* worker number `worker` is rank worker * n / workers */
    const void **sources;           /* [n] this rank's slice of each rank's vector */
    void **targets;                 /* [n] the same addresses */
    _Atomic uint64_t **come;        /* [meeting] flags of the ranks that meet */
    _Atomic uint64_t **done;        /* [workers] flags of the workers: the slice is summed */
    _Atomic uint64_t *here, *ready; /* this rank's own flags of both kinds */
    int32_t meeting;                /* ranks that meet: the workers, or all */
    uint64_t turn;                  /* number of the run */
    int64_t first, beyond;          /* this rank's slice: elements [first, beyond) */
    trmi_reduce_fn *reduce;
    trmi_reduction what;
    bool far;     /* sums go by blocks (trmi_reduce_needs_blocks) */
    char *region; /* shared memory: flags, then the vector; owned */
};

/* Waits until the first `count` flags have reached the present run. */
static void wait_for_all(const bench_bound *b, _Atomic uint64_t *const *flags, int32_t count) {
    int patience = b->meeting > b->workers ? 0 : POLLS; /* an awaited rank may need this CPU */
    for (int32_t i = 0; i < count; i++) {
        for (int polls = 0; atomic_load_explicit(flags[i], memory_order_acquire) < b->turn;
             polls++) {
            if (polls < patience) {
                RELAX();
            } else { /* or the awaited rank has lost its CPU to another process and can use this one */
                sched_yield();
            }
        }
    }
}

/* Contract in comm_bound.h. */
void bench_run_bound(bench_bound *b, int64_t times) {
    for (int64_t i = 0; i < times && b->comes; i++) {
        b->turn++;
        atomic_store_explicit(b->here, b->turn, memory_order_release);
        wait_for_all(b, b->come, b->meeting);
        if (b->works) {
            if (b->beyond > b->first && b->far) {
                trmi_reduce_in_blocks(&b->what, b->targets, b->n, b->sources, b->n,
                                      b->beyond - b->first);
            } else if (b->beyond > b->first) {
                b->reduce(b->targets, b->n, b->sources, b->n, b->beyond - b->first, b->n);
            }
            atomic_store_explicit(b->ready, b->turn, memory_order_release);
        }
        wait_for_all(b, b->done, b->workers);
    }
}

void bench_free_bound(trm_comm *comm, bench_bound *b) {
    if (b == NULL) {
        return;
    }
    trm_comm_free_shared(comm, b->region);
    trmi_free(b->sources);
    trmi_free(b->targets);
    trmi_free(b->come);
    trmi_free(b->done);
    trmi_free(b);
}

/* Returns whether a rank is a worker; *worker: its number. */
static bool is_worker(const bench_bound *b, int32_t rank, int32_t *worker) {
    for (*worker = 0; *worker < b->workers; ++*worker) {
        if ((int32_t)((int64_t)*worker * b->n / b->workers) == rank) {
            return true;
        }
    }
    return false;
}

/* Sets the pointers into the region of a rank: a cache line for "here", one for "ready", and the
 * vector from VECTOR_AT on. */
static void place_rank(bench_bound *b, int32_t rank, char *at, int64_t element) {
    int32_t worker;
    bool works = is_worker(b, rank, &worker);
    if (works) {
        b->done[worker] = (_Atomic uint64_t *)(void *)(at + READY_AT);
    }
    if (works || b->meeting == b->n) {
        b->come[b->meeting == b->n ? rank : worker] = (_Atomic uint64_t *)(void *)at;
    }
    b->targets[rank] = at + VECTOR_AT + b->first * element;
    b->sources[rank] = b->targets[rank];
}

/* Returns whether the bound applies, and fills in which ranks meet and sum. */
static bool choose_ranks(bench_bound *b, const trm_comm *comm, const trm_collective *op,
                         bench_bound_kind kind) {
    const trmi_shm *shm = (const trmi_shm *)(void *)comm->shm;
    if (op->kind != TRM_ALLREDUCE || comm->net != NULL || comm->group.size < 2) {
        return false;
    }
    b->n = comm->group.size;
    b->workers = shm->cpus < b->n ? shm->cpus : b->n;
    b->meeting = kind == BENCH_BARRIER ? b->n : b->workers;
    b->works = is_worker(b, comm->group.rank, &b->worker);
    b->comes = b->works || b->meeting == b->n;
    return kind == BENCH_SUMMING || b->workers < b->n;
}

/* Exchanges where each rank's region is, so that each rank can reach all of them. */
static trm_status exchange_places(trm_comm *comm, bench_bound *b, size_t region_bytes,
                                  int64_t element, trm_error *err) {
    const trmi_shm *shm = (const trmi_shm *)(void *)comm->shm;
    trmi_shm_place *places;
    TRMI_TRY(TRMI_NEW(err, places, b->n, "for a bound of %d ranks", (int)b->n));
    trmi_shm_place mine = trmi_shm_find(comm->host, b->region, region_bytes, shm->one_process);
    trm_collective gather = {.kind = TRM_ALLGATHER,
                             .send = &mine,
                             .recv = places,
                             .count = sizeof mine,
                             .dtype = TRM_UINT8};
    trm_status status = trm_comm_run(comm, &gather, err);
    for (int32_t r = 0; status == TRM_OK && r < b->n; r++) {
        char *at = NULL;
        status = trmi_shm_reach(comm->host, comm->host_rank[r], places[r], region_bytes, &at, err);
        if (status == TRM_OK) {
            place_rank(b, r, at, element);
        }
    }
    trmi_free(places);
    return status;
}

/* Contract in comm_bound.h. A slice is whole cache lines, the same number for each worker. */
trm_status bench_make_bound(trm_comm *comm, const trm_collective *op, int64_t vector,
                            bench_bound_kind kind, bench_bound **out, trm_error *err) {
    bench_bound chosen = {0}, *b;
    *out = NULL;
    if (!choose_ranks(&chosen, comm, op, kind)) {
        return TRM_OK;
    }
    size_t n = (size_t)chosen.n;
    TRMI_TRY(TRMI_NEW(err, b, 1, "for a bound"));
    *b = chosen;
    *out = b;
    vector = kind == BENCH_SUMMING ? vector : 0;
    int64_t bytes = (int64_t)trm_dtype_bytes(op->dtype), unit = 64 / bytes,
            units = (vector + unit - 1) / unit;
    b->first = trmi_min_i64(vector, units * b->worker / b->workers * unit);
    b->beyond = trmi_min_i64(vector, units * (b->worker + 1) / b->workers * unit);
    b->reduce = trmi_reduce_find(op->dtype, op->reduce);
    b->what = (trmi_reduction){op->dtype, op->reduce, b->n};
    b->far = trmi_reduce_needs_blocks(&b->what, b->n, vector);
    b->sources = trmi_alloc(n * sizeof *b->sources);
    b->targets = trmi_alloc(n * sizeof *b->targets);
    b->come = trmi_alloc(n * sizeof *b->come);
    b->done = trmi_alloc(n * sizeof *b->done);
    size_t region_bytes = VECTOR_AT + (size_t)(vector * bytes);
    b->region = trm_comm_alloc_shared(comm, region_bytes, err);
    if (b->sources == NULL || b->targets == NULL || b->come == NULL || b->done == NULL ||
        b->region == NULL) {
        return TRMI_NO_MEMORY(err, "for the bound of %zu bytes", region_bytes);
    }
    memset(b->region, 0, region_bytes);
    b->here = (_Atomic uint64_t *)(void *)b->region;
    b->ready = (_Atomic uint64_t *)(void *)(b->region + READY_AT);
    return exchange_places(comm, b, region_bytes, bytes, err);
}
