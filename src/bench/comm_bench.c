/* SPDX-License-Identifier: Apache-2.0 */
/* bench_comm: times one collective of one size, checks its result, and compares its time with a
 * bound by this host's memory.
 *
 *   values (check_once) -> bound (make_bound) -> timing (take_samples: collective and bounds in turn)
 *
 * All ranks call it together; each result is that of the slowest rank. */
#include "bench/bench.h"

#include "comm/api/communicator.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"
#include "comm/api/reduce.h"

#include <sched.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() ((void)0)
#endif

enum {
    SAMPLES = 31, /* samples of a measurement, at most and at least */
    LEAST_SAMPLES = 5,
    SAMPLES_IN_A_ROW = 4, /* where one run is a sample: of the collective, then of each bound */
    WARMUP = 2,           /* runs before the first sample */
    POLLS = 1000,         /* polls of a flag before a rank gives its CPU away */
    TIMES_LONGER = 4      /* a measurement ends early when it takes so many times options.seconds */
};
#define TRIED_SECONDS 0.002 /* the trial runs that estimate the time of one run take so long */
/* Places in a bound's region: the flag "ready" and the vector; the flag "here" is at 0. */
enum { READY_AT = 128, VECTOR_AT = 4096 };

/* ---- values ---------------------------------------------------------------------------------- */

/* Returns element i that a rank contributes: a small integer, so that sums are exact in every type,
 * and for products 1 or 2, so that they do not overflow. */
static int value_of(int32_t rank, int64_t i, trm_reduction reduce) {
    int mix = (int)((i * 7 + rank * 3) % 5);
    return reduce == TRM_REDUCTION_PROD ? 1 + (mix == 0) : mix;
}

/* Returns element i of the reduction over `size` ranks. `whole`: of an integer type, whose mean is
 * truncated. */
static double reduced_value(int32_t size, int64_t i, trm_reduction reduce, bool whole) {
    double total = value_of(0, i, reduce);
    for (int32_t r = 1; r < size; r++) {
        double next = value_of(r, i, reduce);
        switch (reduce) {
        case TRM_REDUCTION_PROD: total *= next; break;
        case TRM_REDUCTION_MAX: total = next > total ? next : total; break;
        case TRM_REDUCTION_MIN: total = next < total ? next : total; break;
        default: total += next;
        }
    }
    if (reduce == TRM_REDUCTION_MEAN) {
        total = whole ? (double)((int64_t)total / size) : total / size;
    }
    return total;
}

/* ---- one benchmark --------------------------------------------------------------------------- */
typedef struct bench {
    trm_comm *comm;
    bench_comm_options options; /* with defaults filled in */
    trm_collective op;          /* the collective that is timed */
    int64_t count, vector;      /* elements of the operation and of each buffer */
    char *send, *recv;          /* [vector] */
    bool reduces, whole;        /* the collective reduces; the type is an integer */
} bench;

/* Returns whether the buffers have a block of `count` elements for each rank. */
static bool is_blocked(trm_collective_kind kind) {
    return kind == TRM_ALLGATHER || kind == TRM_REDUCE_SCATTER || kind == TRM_SCATTER ||
           kind == TRM_GATHER || kind == TRM_ALLTOALL;
}

/* Computes the expected element i of this rank's result; false if the rank has no such element. */
static bool expected_value(const bench *b, int64_t i, double *value) {
    int32_t me = b->comm->group.rank, n = b->comm->group.size;
    int64_t block = b->count > 0 ? b->count : 1;
    switch (b->op.kind) {
    case TRM_ALLREDUCE: *value = reduced_value(n, i, b->op.reduce, b->whole); return true;
    case TRM_REDUCE: *value = reduced_value(n, i, b->op.reduce, b->whole); return me == 0;
    case TRM_REDUCE_SCATTER:
        *value = reduced_value(n, me * block + i, b->op.reduce, b->whole);
        return i < b->count;
    case TRM_BROADCAST: *value = value_of(0, i, b->op.reduce); return true;
    case TRM_SCATTER: *value = value_of(0, me * block + i, b->op.reduce); return i < b->count;
    case TRM_ALLGATHER:
        *value = value_of((int32_t)(i / block), i % block, b->op.reduce);
        return true;
    case TRM_GATHER:
        *value = value_of((int32_t)(i / block), i % block, b->op.reduce);
        return me == 0;
    case TRM_ALLTOALL:
        *value = value_of((int32_t)(i / block), me * block + i % block, b->op.reduce);
        return true;
    default: return false;
    }
}

/* Runs the collective once. *wrong: elements of all ranks that differ from the expected ones. */
static trm_status check_once(bench *b, int64_t *wrong, trm_error *err) {
    int64_t bytes = (int64_t)trm_dtype_bytes(b->op.dtype);
    for (int64_t i = 0; i < b->vector; i++) {
        trmi_element_set(b->send, b->op.dtype, i, value_of(b->comm->group.rank, i, b->op.reduce));
    }
    memset(b->recv, 0xFF, (size_t)(b->vector * bytes));
    trm_collective op = b->op;
    op.send = b->send;
    TRMI_TRY(trm_comm_run(b->comm, &op, err));
    *wrong = 0;
    uint8_t expected[8];
    for (int64_t i = 0; i < b->vector; i++) {
        double value;
        if (expected_value(b, i, &value)) {
            trmi_element_set(expected, b->op.dtype, 0, value);
            *wrong += memcmp(b->recv + i * bytes, expected, (size_t)bytes) != 0;
        }
    }
    return trm_comm_allreduce(b->comm, wrong, 1, TRM_INT64, TRM_REDUCTION_SUM, err);
}

/* Runs the collective `times` times. */
static trm_status run_collective(bench *b, int64_t times, trm_error *err) {
    for (int64_t i = 0; i < times; i++) {
        TRMI_TRY(trm_comm_run(b->comm, &b->op, err));
    }
    return TRM_OK;
}

/* ---- the bound ------------------------------------------------------------------------------- */
/* SUMMING: between two bare barriers every rank sums its slice of all buffers into all buffers.
 * With more ranks than CPUs one rank per CPU does so for all, while the others sleep.
 * BARRIER: a bare barrier of all ranks. With more ranks than CPUs no sum can begin before each rank
 * has had a CPU, so the time of this barrier is added. */
typedef enum { SUMMING, BARRIER, BOUNDS } bound_kind;

/* A bound, as one rank runs it. Flags count the runs: a rank writes the number of the run. */
typedef struct bound {
    bool usable;                    /* the collective is an all-reduce within this host */
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
} bound;

/* Waits until the first `count` flags have reached the present run. */
static void wait_for_all(const bound *b, _Atomic uint64_t *const *flags, int32_t count) {
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

/* Runs the bound `times` times: meet, sum the own slice, wait for all slices. */
static void run_bound(bound *b, int64_t times) {
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

static void free_bound(trm_comm *comm, bound *b) {
    trm_comm_free_shared(comm, b->region);
    trmi_free(b->sources);
    trmi_free(b->targets);
    trmi_free(b->come);
    trmi_free(b->done);
}

/* Returns whether a rank is a worker; *worker: its number. */
static bool is_worker(const bound *b, int32_t rank, int32_t *worker) {
    for (*worker = 0; *worker < b->workers; ++*worker) {
        if ((int32_t)((int64_t)*worker * b->n / b->workers) == rank) {
            return true;
        }
    }
    return false;
}

/* Sets the pointers into the region of a rank: a cache line for "here", one for "ready", and the
 * vector from VECTOR_AT on. */
static void place_rank(bound *b, int32_t rank, char *at, int64_t element) {
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

/* Prepares a bound: which ranks meet and sum, the shared regions, and this rank's slice.
 * Collective. *out is not usable where the bound does not apply. */
static trm_status make_bound(bench *b, bound_kind kind, bound *out, trm_error *err) {
    trm_comm *comm = b->comm;
    const trmi_shm *shm = (const trmi_shm *)(void *)comm->shm;
    size_t n = (size_t)comm->group.size;
    int64_t bytes = (int64_t)trm_dtype_bytes(b->op.dtype), vector = kind == SUMMING ? b->vector : 0;
    *out = (bound){.n = (int32_t)n};
    out->workers = shm->cpus < out->n ? shm->cpus : out->n;
    out->meeting = kind == BARRIER ? out->n : out->workers;
    out->works = is_worker(out, comm->group.rank, &out->worker);
    out->comes = out->works || out->meeting == out->n;
    out->usable = b->op.kind == TRM_ALLREDUCE && comm->net == NULL && n > 1 &&
                  !b->options.no_roofline && (kind == SUMMING || out->workers < out->n);
    if (!out->usable) {
        return TRM_OK;
    }
    out->sources = trmi_alloc(n * sizeof *out->sources);
    out->targets = trmi_alloc(n * sizeof *out->targets);
    out->come = trmi_alloc(n * sizeof *out->come);
    out->done = trmi_alloc(n * sizeof *out->done);
    trmi_shm_place *places = trmi_alloc(n * sizeof *places);
    size_t region_bytes = VECTOR_AT + (size_t)(vector * bytes);
    out->region = trm_comm_alloc_shared(comm, region_bytes, err);
    if (out->sources == NULL || out->targets == NULL || out->come == NULL || out->done == NULL ||
        places == NULL || out->region == NULL) {
        trmi_free(places);
        return TRMI_NO_MEMORY(err, "for the bound of %zu bytes", region_bytes);
    }
    memset(out->region, 0, region_bytes);
    out->here = (_Atomic uint64_t *)(void *)out->region;
    out->ready = (_Atomic uint64_t *)(void *)(out->region + READY_AT);
    /* Exchange where each rank's region is, so that each rank can reach all of them. */
    trmi_shm_place mine = trmi_shm_find(comm->host, out->region, region_bytes, shm->one_process);
    trm_collective gather = {.kind = TRM_ALLGATHER,
                             .send = &mine,
                             .recv = places,
                             .count = sizeof mine,
                             .dtype = TRM_UINT8};
    trm_status status = trm_comm_run(comm, &gather, err);
    /* The slice: whole cache lines, the same number for each worker. */
    int64_t unit = 64 / bytes, units = (vector + unit - 1) / unit;
    out->first = trmi_min_i64(vector, units * out->worker / out->workers * unit);
    out->beyond = trmi_min_i64(vector, units * (out->worker + 1) / out->workers * unit);
    out->reduce = trmi_reduce_find(b->op.dtype, b->op.reduce);
    out->what = (trmi_reduction){b->op.dtype, b->op.reduce, out->n};
    out->far = trmi_reduce_needs_blocks(&out->what, out->n, vector);
    for (size_t r = 0; status == TRM_OK && r < n; r++) {
        char *at = NULL;
        status = trmi_shm_reach(comm->host, comm->host_rank[r], places[r], region_bytes, &at, err);
        if (status == TRM_OK) {
            place_rank(out, (int32_t)r, at, bytes);
        }
    }
    trmi_free(places);
    return status;
}

/* ---- timing ---------------------------------------------------------------------------------- */
/* The samples of one measurement. */
typedef struct samples {
    int64_t times; /* runs of a sample */
    int64_t row;   /* samples that follow each other before the next kind has its turn */
    int64_t count; /* samples of each kind */
    double ours[SAMPLES], bounds[BOUNDS][SAMPLES]; /* [count] seconds of a run */
} samples;

/* Chooses how many runs make a sample, so that a sample is long enough for the clock and all
 * samples last `seconds`. The trial runs last long enough to include the load of other
 * processes. */
static trm_status choose_times(bench *b, samples *out, trm_error *err) {
    TRMI_TRY(run_collective(b, WARMUP, err));
    double all = 0, each = 0;
    for (int64_t tried = 3; all < TRIED_SECONDS && tried < 20000; tried *= 4) {
        double start = trmi_os_now();
        TRMI_TRY(run_collective(b, tried, err));
        all = trmi_os_now() - start;
        TRMI_TRY(trm_comm_allreduce(b->comm, &all, 1, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
        each = all / (double)tried;
    }
    double per_sample = b->options.seconds / SAMPLES;
    out->times = trmi_max_i64(1, trmi_min_i64(20000, (int64_t)(per_sample / each)));
    out->row = out->times > 1 ? 1 : SAMPLES_IN_A_ROW;
    out->count =
        trmi_max_i64(LEAST_SAMPLES, trmi_min_i64(SAMPLES, (int64_t)(b->options.seconds / each)));
    return TRM_OK;
}

/* Times one sample of the collective (limit NULL) or of a bound; a barrier makes all ranks begin
 * together. */
static trm_status take_one(bench *b, bound *limit, int64_t times, double *seconds, trm_error *err) {
    TRMI_TRY(trm_comm_barrier(b->comm, err));
    double start = trmi_os_now();
    if (limit != NULL) {
        run_bound(limit, times);
    } else {
        TRMI_TRY(run_collective(b, times, err));
    }
    *seconds = (trmi_os_now() - start) / (double)times;
    return TRM_OK;
}

/* Takes a row of samples from number `s` on, of the collective or of a bound. */
static trm_status take_row(bench *b, bound *limit, const samples *of, int64_t s, double *to,
                           trm_error *err) {
    double ignored;
    if (of->row > 1) {
        TRMI_TRY(take_one(b, limit, 1, &ignored, err));
    }
    for (int64_t i = s; i < s + of->row && i < of->count; i++) {
        TRMI_TRY(take_one(b, limit, of->times, &to[i], err));
    }
    return TRM_OK;
}

/* Replaces each sample by that of its slowest rank, and sorts them. */
static trm_status combine_ranks(bench *b, double *seconds, int64_t count, trm_error *err) {
    TRMI_TRY(trm_comm_allreduce(b->comm, seconds, count, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
    trmi_sort(seconds, count);
    return TRM_OK;
}

/* Takes samples of the collective and of the bounds in turn. If one run is a sample, several follow
 * each other after one that is not counted: collective and bounds have different buffers, and those
 * of the other have just filled the caches. Takes fewer samples if a busy machine makes them
 * long. */
static trm_status take_samples(bench *b, bound limits[BOUNDS], samples *out, trm_error *err) {
    double begun = trmi_os_now();
    for (int64_t s = 0; s < out->count; s += out->row) {
        double spent = trmi_os_now() - begun;
        TRMI_TRY(trm_comm_allreduce(b->comm, &spent, 1, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
        if (s >= LEAST_SAMPLES && spent > TIMES_LONGER * b->options.seconds) {
            out->count = s;
            break;
        }
        TRMI_TRY(take_row(b, NULL, out, s, out->ours, err));
        for (int kind = 0; kind < BOUNDS; kind++) {
            if (limits[kind].usable) {
                TRMI_TRY(take_row(b, &limits[kind], out, s, out->bounds[kind], err));
            }
        }
    }
    TRMI_TRY(combine_ranks(b, out->ours, out->count, err));
    for (int kind = 0; kind < BOUNDS; kind++) {
        TRMI_TRY(combine_ranks(b, out->bounds[kind], out->count, err));
    }
    return TRM_OK;
}

/* Checks, prepares the bounds, takes the samples and computes the result. */
static trm_status measure_collective(bench *b, bench_comm_result *result, trm_error *err) {
    samples taken = {0};
    bound limits[BOUNDS] = {{0}};
    int64_t wrong = -1, n = b->comm->group.size;
    TRMI_TRY(check_once(b, &wrong, err));
    /* sums of zeros stay zero in all repetitions */
    memset(b->send, 0, (size_t)b->vector * trm_dtype_bytes(b->op.dtype));
    memset(b->recv, 0, (size_t)b->vector * trm_dtype_bytes(b->op.dtype));
    trm_status status = make_bound(b, SUMMING, &limits[SUMMING], err);
    status = status == TRM_OK ? make_bound(b, BARRIER, &limits[BARRIER], err) : status;
    if (status == TRM_OK && (status = choose_times(b, &taken, err)) == TRM_OK) {
        status = take_samples(b, limits, &taken, err);
    }
    if (status == TRM_OK) { /* no rank may free a buffer into which another rank still sums */
        status = trm_comm_barrier(b->comm, err);
    }
    for (int kind = 0; kind < BOUNDS; kind++) {
        free_bound(b->comm, &limits[kind]);
    }
    TRMI_TRY(status);
    double median = trmi_middle(taken.ours, taken.count), bus = 1;
    /* the least time of the bare barriers, because their ranks poll more often than necessary, and
     * a bound must not exceed the time that it bounds */
    double sum = trmi_middle(taken.bounds[SUMMING], taken.count),
           bare = sum + taken.bounds[BARRIER][0];
    /* bytes that cross a link of each rank, as a fraction of the vector (nccl-tests) */
    if (b->op.kind == TRM_ALLREDUCE) {
        bus = 2.0 * (double)(n - 1) / (double)n;
    } else if (b->op.kind == TRM_ALLGATHER || b->op.kind == TRM_REDUCE_SCATTER ||
               b->op.kind == TRM_ALLTOALL) {
        bus = (double)(n - 1) / (double)n;
    }
    int64_t bytes = b->vector * (int64_t)trm_dtype_bytes(b->op.dtype);
    *result = (bench_comm_result){
        .bytes = bytes,
        .repeats = taken.times * taken.count,
        .microseconds = median * 1e6,
        .minimum_microseconds = taken.ours[0] * 1e6,
        .maximum_microseconds = taken.ours[taken.count - 1] * 1e6,
        .algbw_gb_s = (double)bytes / median * 1e-9,
        .busbw_gb_s = (double)bytes / median * 1e-9 * bus,
        .roofline_microseconds = bare * 1e6,
        .roofline_fraction = bare / median,
        .roofline_sum_microseconds = sum * 1e6,
        .wrong = wrong,
    };
    return TRM_OK;
}

trm_status bench_comm(trm_comm *comm, int64_t bytes, const bench_comm_options *options,
                      bench_comm_result *result, trm_error *err) {
    bench b = {.comm = comm};
    b.options = options != NULL ? *options : (bench_comm_options){0};
    bench_comm_options *o = &b.options;
    o->kind = o->kind == TRM_COLLECTIVE_NONE ? TRM_ALLREDUCE : o->kind;
    o->dtype = o->dtype == TRM_DTYPE_NONE ? TRM_FLOAT32 : o->dtype;
    o->reduce = o->reduce == TRM_REDUCTION_NONE ? TRM_REDUCTION_SUM : o->reduce;
    o->seconds = o->seconds > 0 ? o->seconds : 0.3;
    int64_t element = (int64_t)trm_dtype_bytes(o->dtype), n = comm->group.size;
    bool blocked = is_blocked(o->kind);
    if (element == 0 || bytes < 0 ||
        (!blocked && o->kind != TRM_ALLREDUCE && o->kind != TRM_REDUCE &&
         o->kind != TRM_BROADCAST)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "bench of %s over %lld bytes of type %d: use a collective "
                         "without counts",
                         trm_collective_name(o->kind), (long long)bytes, (int)o->dtype);
    }
    b.reduces = o->kind == TRM_ALLREDUCE || o->kind == TRM_REDUCE || o->kind == TRM_REDUCE_SCATTER;
    b.whole = o->dtype >= TRM_INT8;
    b.count = bytes / element / (blocked ? n : 1);
    /* blocks without elements cannot be measured */
    b.count = blocked && bytes > 0 ? trmi_max_i64(1, b.count) : b.count;
    b.vector = b.count * (blocked ? n : 1);
    b.op = (trm_collective){.kind = o->kind,
                            .count = b.count,
                            .dtype = o->dtype,
                            .reduce = b.reduces ? o->reduce : TRM_REDUCTION_NONE,
                            .tag = "bench"};
    size_t size = (size_t)(b.vector * element + 64);
    b.send = o->private_buffers ? trmi_alloc(size) : trm_comm_alloc_shared(comm, size, err);
    b.recv = o->private_buffers ? trmi_alloc(size) : trm_comm_alloc_shared(comm, size, err);
    b.op.recv = b.recv;
    b.op.send = blocked ? b.send : NULL; /* the others are timed in place */
    trm_status status = b.send != NULL && b.recv != NULL
                            ? measure_collective(&b, result, err)
                            : TRMI_NO_MEMORY(err, "for %zu bytes", size);
    if (o->private_buffers) {
        trmi_free(b.send);
        trmi_free(b.recv);
    } else {
        trm_comm_free_shared(comm, b.send);
        trm_comm_free_shared(comm, b.recv);
    }
    return status;
}
