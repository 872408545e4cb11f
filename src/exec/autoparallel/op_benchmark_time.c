/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of a measurement: clock, sweep of the caches, median and spread of times, maximum over
 * the ranks, number of CPUs that the ranks have. Callers: op_benchmark.c, link_benchmark.c.
 *
 * One thread is timed by its CPU time, which other processes do not disturb; several by the wall
 * clock. The memory of a sweep stays within the limit of the executor together with what is
 * measured. Functions with `comm` are collective: all ranks call them, in the same order. */
#define _GNU_SOURCE
#include "exec/autoparallel/op_benchmark.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"

#include <sched.h>
#include <string.h>

/* Bytes of a sweep: if the footprint of a step is unknown; at least, if it is known; at most. */
enum { SWEEP = 8 << 20, SWEEP_LEAST = 1 << 20, SWEEP_MAX = 512 << 20 };

double trmi_op_benchmark_clock(const trmi_op_benchmark *probe) {
    return probe->threads > 1 ? trmi_os_now() : trmi_os_thread_now();
}

void trmi_op_benchmark_close(trmi_op_benchmark *probe) {
    trmi_free((void *)(uintptr_t)probe->block);
    probe->block = NULL;
    probe->block_bytes = 0;
}

/* Returns how many threads of ranks share a core of this host and take long turns on it; 1: none.
 * Ranks of stages wait for a message after each action, so that the data of all ranks of the core
 * lie between two uses of an operator's. */
static int64_t ranks_of_core(const trmi_op_benchmark *probe) {
    const int64_t threads = probe->comm != NULL && probe->micros == 0
                                ? (int64_t)trm_comm_local_size(probe->comm) * probe->threads
                                : 1;
    return probe->cores > 0 && threads > probe->cores ? threads / probe->cores : 1;
}

/* Empties the caches as the rest of a training step would: reads a block as large as the data
 * that a step touches between two uses of the measured operator. Ranks that share a core take turns
 * of many operators (cpu_turns.c), so that the data of one of them lie between two uses, and not
 * those of all: together they read as much. The block stays allocated between calls, and is made
 * again when it is too small or when it leaves too little of the memory limit for the operator. */
void trmi_op_benchmark_sweep(trmi_op_benchmark *probe, int64_t own_bytes, int part) {
    /* Forward and backward touch an operator's data: on average half a step lies between two
     * uses. */
    const int64_t sharing = ranks_of_core(probe), parts = trmi_max_i64(part, sharing);
    int64_t others = trmi_min_i64((probe->footprint - own_bytes) / 2 / parts, SWEEP_MAX);
    int64_t least = probe->footprint > 0 ? SWEEP_LEAST : SWEEP / sharing;
    size_t bytes = (size_t)(others > least ? others : least);
    /* The operator's own bytes count twice, because kernels have tables beside their data. */
    size_t rest = probe->limit > 2 * own_bytes ? (size_t)(probe->limit - 2 * own_bytes) : 0;
    bytes = probe->limit > 0 && rest < bytes ? rest : bytes;
    bool beyond = probe->limit > 0 && probe->block_bytes > rest;
    if (probe->block == NULL || probe->block_bytes < bytes || beyond) {
        trmi_op_benchmark_close(probe);
        char *block = trmi_alloc(bytes);
        if (block != NULL) {
            memset(block, 1, bytes); /* else all reads would hit the one shared zero page */
        }
        probe->block = block;
        probe->block_bytes = bytes;
    }
    /* Read once for each cache line. */
    volatile long kept = 0;
    long sum = 0;
    for (size_t i = 0; probe->block != NULL && i < bytes; i += 64) {
        sum += probe->block[i];
    }
    kept += sum;
    (void)kept;
}

int trmi_op_benchmark_affords(const trmi_op_benchmark *probe, const int64_t *bytes, int count,
                              int least, int copies) {
    int64_t sum = 0;
    int some = 0;
    while (some < count &&
           (probe->limit == 0 || some < least || (sum + bytes[some]) * copies <= probe->limit)) {
        sum += bytes[some++];
    }
    return some;
}

double trmi_op_benchmark_usual(double *times, int32_t count, double *spread) {
    double middle = trmi_median(times, count);
    if (spread != NULL) {
        *spread = middle > 0 ? (times[count * 3 / 4] - times[count / 4]) / middle : 0;
    }
    return middle;
}

trm_status trmi_op_benchmark_largest(const trmi_op_benchmark *probe, double *values, int32_t count,
                                     trm_error *err) {
    return probe->comm == NULL ? TRM_OK
                               : trm_comm_allreduce(probe->comm, values, count, TRM_FLOAT64,
                                                    TRM_REDUCTION_MAX, err);
}

/* Gives the number of different CPUs that all ranks may use. Each rank marks its own CPUs in an
 * array, and the maximum over the ranks is their union. Ranks that are bound to separate CPUs
 * have more together than one has alone; ranks of one set share it. */
trm_status trmi_op_benchmark_cores(trm_comm *comm, int *cores, trm_error *err) {
    enum { CPUS = 1024 };
    int32_t *used;
    cpu_set_t set;
    int own = trmi_os_cpu_count(), any = 0, mine = 0;
    *cores = own;
    TRMI_TRY(TRMI_NEW(err, used, CPUS, "to measure"));
    CPU_ZERO(&set);
    if (comm == NULL || sched_getaffinity(0, sizeof set, &set) != 0) {
        trmi_free(used);
        return TRM_OK;
    }
    for (int i = 0; i < CPUS && i < CPU_SETSIZE; i++) {
        used[i] = CPU_ISSET(i, &set);
        mine += used[i];
    }
    /* Join the CPUs of all ranks. */
    trm_status status = trm_comm_allreduce(comm, used, CPUS, TRM_INT32, TRM_REDUCTION_MAX, err);
    for (int i = 0; i < CPUS; i++) {
        any += used[i];
    }
    trmi_free(used);
    *cores = own < mine ? own : any; /* fewer CPUs than the mask: a quota, which all ranks share */
    return status;
}
