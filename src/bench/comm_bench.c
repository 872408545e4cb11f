/* SPDX-License-Identifier: Apache-2.0 */
/* bench_comm: times one collective of one size, checks its result, and compares its time with a
 * bound by this host's memory.
 *
 *   values (check_once) -> bound (comm_bound.c) -> timing (take_samples: collective and bounds in turn)
 *
 * All ranks call it together; each result is that of the slowest rank. */
#include "bench/bench.h"
#include "bench/comm_bound.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"

#include <string.h>

enum {
    SAMPLES = 31, /* samples of a measurement, at most and at least */
    LEAST_SAMPLES = 5,
    SAMPLES_IN_A_ROW = 4, /* where one run is a sample: of the collective, then of each bound */
    WARMUP = 2,           /* runs before the first sample */
    TIMES_LONGER = 4      /* a measurement ends early when it takes so many times options.seconds */
};
#define TRIED_SECONDS 0.002 /* the trial runs that estimate the time of one run take so long */

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
    int32_t me = trm_comm_rank(b->comm), n = trm_comm_size(b->comm);
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
        trmi_element_set(b->send, b->op.dtype, i,
                         value_of(trm_comm_rank(b->comm), i, b->op.reduce));
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

/* ---- timing ---------------------------------------------------------------------------------- */
/* The samples of one measurement. */
typedef struct samples {
    int64_t times; /* runs of a sample */
    int64_t row;   /* samples that follow each other before the next kind has its turn */
    int64_t count; /* samples of each kind */
    double ours[SAMPLES], bounds[BENCH_BOUNDS][SAMPLES]; /* [count] seconds of a run */
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
static trm_status take_one(bench *b, bench_bound *limit, int64_t times, double *seconds,
                           trm_error *err) {
    TRMI_TRY(trm_comm_barrier(b->comm, err));
    double start = trmi_os_now();
    if (limit != NULL) {
        bench_run_bound(limit, times);
    } else {
        TRMI_TRY(run_collective(b, times, err));
    }
    *seconds = (trmi_os_now() - start) / (double)times;
    return TRM_OK;
}

/* Takes a row of samples from number `s` on, of the collective or of a bound. */
static trm_status take_row(bench *b, bench_bound *limit, const samples *of, int64_t s, double *to,
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
static trm_status take_samples(bench *b, bench_bound *const limits[BENCH_BOUNDS], samples *out,
                               trm_error *err) {
    double begun = trmi_os_now();
    for (int64_t s = 0; s < out->count; s += out->row) {
        double spent = trmi_os_now() - begun;
        TRMI_TRY(trm_comm_allreduce(b->comm, &spent, 1, TRM_FLOAT64, TRM_REDUCTION_MAX, err));
        if (s >= LEAST_SAMPLES && spent > TIMES_LONGER * b->options.seconds) {
            out->count = s;
            break;
        }
        TRMI_TRY(take_row(b, NULL, out, s, out->ours, err));
        for (int kind = 0; kind < BENCH_BOUNDS; kind++) {
            if (limits[kind] != NULL) {
                TRMI_TRY(take_row(b, limits[kind], out, s, out->bounds[kind], err));
            }
        }
    }
    TRMI_TRY(combine_ranks(b, out->ours, out->count, err));
    for (int kind = 0; kind < BENCH_BOUNDS; kind++) {
        TRMI_TRY(combine_ranks(b, out->bounds[kind], out->count, err));
    }
    return TRM_OK;
}

/* Checks, prepares the bounds, takes the samples and computes the result. */
static trm_status measure_collective(bench *b, bench_comm_result *result, trm_error *err) {
    samples taken = {0};
    bench_bound *limits[BENCH_BOUNDS] = {NULL};
    int64_t wrong = -1, n = trm_comm_size(b->comm);
    TRMI_TRY(check_once(b, &wrong, err));
    /* sums of zeros stay zero in all repetitions */
    memset(b->send, 0, (size_t)b->vector * trm_dtype_bytes(b->op.dtype));
    memset(b->recv, 0, (size_t)b->vector * trm_dtype_bytes(b->op.dtype));
    trm_status status = TRM_OK;
    for (int kind = 0; kind < BENCH_BOUNDS && status == TRM_OK && !b->options.no_roofline; kind++) {
        status = bench_make_bound(b->comm, &b->op, b->vector, kind, &limits[kind], err);
    }
    if (status == TRM_OK && (status = choose_times(b, &taken, err)) == TRM_OK) {
        status = take_samples(b, limits, &taken, err);
    }
    if (status == TRM_OK) { /* no rank may free a buffer into which another rank still sums */
        status = trm_comm_barrier(b->comm, err);
    }
    for (int kind = 0; kind < BENCH_BOUNDS; kind++) {
        bench_free_bound(b->comm, limits[kind]);
    }
    TRMI_TRY(status);
    double median = trmi_middle(taken.ours, taken.count), bus = 1;
    /* the least time of the bare barriers, because their ranks poll more often than necessary, and
     * a bound must not exceed the time that it bounds */
    double sum = trmi_middle(taken.bounds[BENCH_SUMMING], taken.count),
           bare = sum + taken.bounds[BENCH_BARRIER][0];
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
    int64_t element = (int64_t)trm_dtype_bytes(o->dtype), n = trm_comm_size(comm);
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
