/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rates of the machine: FLOP/s of the matrix kernels, bytes/s of a copy, and the gain
 * of bfloat16 pairs. Times are CPU times of each thread, which other processes do not disturb.
 * Results are kept for the life of the process. */
#define _GNU_SOURCE
#include "exec/cpu/tuning/rates.h"

#include "exec/cpu/gemm/gemm_isa.h"

#include "base/memory.h"
#include "base/os.h"

#include <pthread.h>
#include <string.h>

/* Tiles of a timed run, runs (the best counts), and numbers of threads whose rates are kept. */
enum { TILES = 400, TRIALS = 3, THREADS_MAX = 1024 };
/* Bytes that a timed copy moves for each thread, beyond any L2; more than four threads together
 * copy no more than four do, which is beyond any L3 that they share. */
enum { COPY_BYTES = 24 << 20, COPY_THREADS_MAX = 4 };
/* Seconds of a run that has not been timed, for lack of memory: the rate is then far too low, which
 * makes plans slower but no less correct. */
static const double untimed = 1;

/* Returns the seconds of TILES products of the register tile, by the CPU's thread clock: the
 * best of TRIALS runs of each thread, the mean over the threads. The first run warms up and does
 * not count. All threads run together, because the clock frequency depends on that. */
static double tile_seconds(const trmi_gemm_isa *isa, int threads) {
    double seconds = 0;
#pragma omp parallel num_threads(threads) reduction(+ : seconds)
    {
        enum { A = TRMI_TILE_ROWS_MAX * TRMI_TILE_STRIDE, B = TRMI_TILE_K * TRMI_TILE_NR_MAX };
        float *a = trmi_alloc((A + B + TRMI_TILE_ROWS_MAX * TRMI_TILE_NR_MAX) * sizeof *a);
        int64_t offsets[TRMI_TILE_ROWS_MAX];
        double best = untimed;
        for (int i = 0; i < TRMI_TILE_ROWS_MAX; i++) {
            offsets[i] = i * TRMI_TILE_NR_MAX;
        }
        trmi_tile tile = {.a = a,
                          .b = a + A,
                          .k = TRMI_TILE_K,
                          .c = a + A + B,
                          .row_offset = offsets,
                          .rows = isa->mr,
                          .columns = isa->nr,
                          .store = TRMI_TILE_SET};
        for (int t = 0; a != NULL && t <= TRIALS; t++) {
            double begin = trmi_os_thread_now();
            for (int i = 0; i < TILES; i++) {
                isa->tile_rows(&tile, NULL);
            }
            double took = trmi_os_thread_now() - begin;
            best = t > 0 && took < best ? took : best;
        }
        seconds += best;
        trmi_free(a);
    }
    return seconds / threads;
}

/* Returns the seconds in which all threads together copy `bytes`, each its part: the best of
 * TRIALS. */
static double copy_seconds(int threads, int64_t bytes) {
    char *from = trmi_alloc((size_t)bytes), *to = trmi_alloc((size_t)bytes);
    double best = untimed;
    for (int t = 0; from != NULL && to != NULL && t <= TRIALS; t++) {
        double took = 0; /* seconds of the slowest thread */
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : took)
        for (int i = 0; i < threads; i++) {
            int64_t part = bytes / threads;
            if (t == 0) {
                memset(from + i * part, 1, (size_t)part); /* trial 0 touches the pages */
            }
            double begin = trmi_os_thread_now();
            memcpy(to + i * part, from + i * part, (size_t)part);
            took = trmi_os_thread_now() - begin;
        }
        best = t > 0 && took < best ? took : best;
    }
    trmi_free(from);
    trmi_free(to);
    return best;
}

/* Contract in rates.h. Measured once for each number of threads. The tile runs on data in L1, so
 * its rate is a peak; the copy is larger than any L2. */
void trmi_onednn_rates(int threads, double *flops_per_second, double *bytes_per_second) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double known_flops[THREADS_MAX], known_bytes[THREADS_MAX];
    const trmi_gemm_isa *isa = trmi_gemm();
    int cpus = trmi_os_cpu_count(); /* more threads than CPUs have the rate of the CPUs */
    threads = threads < cpus ? threads : cpus;
    int slot = threads < THREADS_MAX ? threads : THREADS_MAX - 1;
    pthread_mutex_lock(&lock);
    if (known_flops[slot] == 0) {
        double flops = 2.0 * isa->mr * isa->nr * TRMI_TILE_K * TILES;
        int64_t bytes =
            (int64_t)(threads < COPY_THREADS_MAX ? threads : COPY_THREADS_MAX) * COPY_BYTES;
        known_flops[slot] = flops * threads / tile_seconds(isa, threads);
        known_bytes[slot] = 2.0 * (double)bytes / copy_seconds(threads, bytes);
    }
    *flops_per_second = known_flops[slot];
    *bytes_per_second = known_bytes[slot];
    pthread_mutex_unlock(&lock);
}

/* Contract in rates.h. The measured gain is rounded to 0.5, 1, 2 or 4, so that small differences
 * from run to run choose no other algorithm. */
double trmi_onednn_pairs_gain(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double known;
    if (trmi_gemm_pairs() == NULL) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    if (known == 0) {
        double gain = 2 * tile_seconds(trmi_gemm(), 1) / tile_seconds(trmi_gemm_pairs(), 1);
        known = gain < 0.7 ? 0.5 : gain < 1.4 ? 1 : gain < 2.8 ? 2 : 4;
    }
    double gain = known;
    pthread_mutex_unlock(&lock);
    return gain;
}
