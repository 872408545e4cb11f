/* SPDX-License-Identifier: Apache-2.0 */
/* The number of threads of a step, and how they wait for each other.
 *
 * How many: fixed rates of work and of meeting, so that the same graph on the same CPUs has the
 * same number of threads, and so the same bits. Measured on 2 CPUs of an EPYC: a parallel region
 * costs 2 us while its threads spin and 20 to 60 us when they have to be woken; Wide&Deep takes
 * as long with 1 thread as with 2 at 16 samples a step (0.8 ms, 60 regions).
 *
 * How they wait: libgomp spins for some milliseconds at a barrier before it sleeps. Where other
 * processes need the same CPUs, the spinning thread keeps the thread that it waits for from
 * running: regions of 0.13 ms take 3.3 ms, and 0.3 ms asleep (load 14 on 2 CPUs). libgomp reads
 * its environment before main, but spins 100 rounds only while a process has more OpenMP threads
 * than CPUs. So a helper thread makes a team, which sleeps, for as long as this process is kept
 * waiting for CPUs. LLVM's runtime has a call for it.
 */
#include "exec/threads.h"

#include "base/os.h"
#include "graph/graph_ir.h"

#include <math.h>
#include <pthread.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- how many ------------------------------------------------------------------------------- */

/* Rates of one core; the cost of a parallel region with two threads, and of each thread more. */
static const double core_flops = 2e10, core_bytes = 5e9, region_seconds = 20e-6,
                    more_seconds = 1e-6;
enum { BACKWARD = 2 }; /* times the work of forward */

int trmi_threads_usable(int32_t processes) {
    int asked = trmi_os_openmp_threads();
    int share = trmi_os_cpu_count() / (processes > 1 ? processes : 1);
    return asked > 0 ? asked : share > 1 ? share : 1;
}

/* Returns whether an operator computes nothing. */
static bool is_leaf(trmi_op_kind kind) {
    return kind == TRMI_OP_INPUT || kind == TRMI_OP_PARAMETER || kind == TRMI_OP_STATE ||
           kind == TRMI_OP_CONSTANT;
}

/* Predicts the time of a step: `work` seconds on one core, `regions` parallel regions. */
static double predict_seconds(double work, double regions, int threads) {
    double meeting = threads > 1 ? region_seconds + more_seconds * (threads - 2) : 0;
    return work / threads + regions * meeting;
}

/* Contract in threads.h. `parts`: ranks among which a graph is divided. */
int trmi_threads_choose(const trm_graph *graph, const trm_exec_options *options, int32_t parts) {
    if (options->threads > 0) {
        return options->threads;
    }
    trm_comm *comm = options->parallel.comm;
    int32_t here = comm != NULL ? trm_comm_local_size(comm) : 1;
    int usable = trmi_threads_usable(options->host_processes > 0 ? options->host_processes : here);
    double passes = options->loss.id != 0 && graph->training ? 1 + BACKWARD : 1;
    double work = 0, regions = 0;
    /* Work and parallel regions of a step: one region for each operator and pass. */
    for (int64_t i = 1; i < graph->ops_count && usable > 1; i++) {
        if (!is_leaf(graph->ops[i].kind)) {
            trmi_cost cost = trmi_op_cost(graph, &graph->ops[i]);
            work += passes / parts * fmax(cost.flops / core_flops, cost.bytes / core_bytes);
            regions += passes;
        }
    }
    int best = 1;
    for (int n = 2; n <= usable; n++) {
        best = predict_seconds(work, regions, n) < predict_seconds(work, regions, best) ? n : best;
    }
    return best;
}

/* ---- how they wait -------------------------------------------------------------------------- */

#ifdef _OPENMP

/* The part of its time that a thread waits for a CPU: above crowded_share threads sleep at
 * barriers, below quiet_share they spin again. It is sampled every look_seconds. */
static const double crowded_share = 0.10, quiet_share = 0.02, look_seconds = 0.1;

static pthread_mutex_t team_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t team_changed = PTHREAD_COND_INITIALIZER;
static bool team_held;

void kmp_set_blocktime(int milliseconds) __attribute__((weak));

/* Thread function: makes a team of so many OpenMP threads and holds it until team_held is false.
 * The team is freed when this thread ends. */
static void *hold_team(void *threads) {
    int count = (int)(intptr_t)threads, arrived = 0;
#pragma omp parallel num_threads(count) reduction(+ : arrived)
    arrived += 1;
    (void)arrived;
    pthread_mutex_lock(&team_mutex);
    while (team_held) {
        pthread_cond_wait(&team_changed, &team_mutex);
    }
    pthread_mutex_unlock(&team_mutex);
    return NULL;
}

/* Makes the threads of this process sleep at barriers, or spin. With LLVM's runtime by its call;
 * with libgomp by a team that makes more OpenMP threads than CPUs, or by releasing that team. */
static void set_barrier_sleep(bool sleep, int threads) {
    if (kmp_set_blocktime != NULL) {
        kmp_set_blocktime(sleep ? 0 : 200);
        return;
    }
    int more = omp_get_num_procs() - threads + 2;
    more = more > 2 ? more : 2;
    pthread_mutex_lock(&team_mutex);
    bool change = sleep != team_held;
    team_held = change ? sleep : team_held;
    pthread_cond_broadcast(&team_changed);
    pthread_mutex_unlock(&team_mutex);
    if (!change || !sleep) {
        return;
    }
    pthread_t helper;
    bool room = trmi_os_has_room((size_t)(more + 1) * trmi_os_thread_bytes());
    if (room && pthread_create(&helper, NULL, hold_team, (void *)(intptr_t)more) == 0) {
        pthread_detach(helper);
    } else {
        pthread_mutex_lock(&team_mutex);
        team_held = false; /* a later sample tries again */
        pthread_mutex_unlock(&team_mutex);
    }
}

/* Samples how long the calling thread has waited for CPUs, at most every look_seconds, and switches
 * between sleeping and spinning. */
static void watch_cpus(int threads) {
    static _Thread_local double looked, waited;
    static _Thread_local bool sleeping;
    double now = trmi_os_now();
    if (now - looked < look_seconds) {
        return;
    }
    double before = waited, since = now - looked;
    waited = trmi_os_cpu_wait();
    looked = now;
    if (since > 100 * look_seconds || waited < 0) {
        return; /* first sample, or too long after the last; or the kernel does not report it */
    }
    double share = (waited - before) / since;
    bool sleep = share > (sleeping ? quiet_share : crowded_share);
    if (sleep != sleeping) {
        sleeping = sleep;
        set_barrier_sleep(sleep, threads);
    }
}
#endif

void trmi_threads_use(int threads) {
#ifdef _OPENMP
    omp_set_num_threads(threads);
    if (threads > 1 && !trmi_os_openmp_waits()) {
        watch_cpus(threads);
    }
#else
    (void)threads;
#endif
}
