/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/autoparallel/line_state.h"

#include "base/os.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { CHUNKS = 5, TURNS = 100, LOOK = 4096, LOOKS = 12, LINE = 128 };
static const double patience = 0.01, near = 100e-9; /* seconds; of one way */

/* A line, and who plays with it. */
typedef struct game {
    _Alignas(LINE) atomic_int line;
    _Alignas(LINE) atomic_int stop;
    int cpu[2];
    double best; /* seconds of one way, in the fastest chunk; 0: none was finished */
    double end;
} game;

static bool move_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* Until the line has `value`; false: time is up. */
static bool await(game *g, int value) {
    for (int i = 1; atomic_load_explicit(&g->line, memory_order_acquire) != value; i++) {
        if (i % LOOK == 0 && (atomic_load(&g->stop) || trmi_os_now() > g->end)) {
            atomic_store(&g->stop, 1);
            return false;
        }
    }
    return true;
}

static void *serve(void *context) {
    game *g = context;
    bool on = move_to(g->cpu[0]);
    double begin = 0;
    /* the first chunk waits for the other thread */
    for (int i = 0; on && i < (CHUNKS + 1) * TURNS; i++) {
        begin = i % TURNS == 0 ? trmi_os_now() : begin;
        atomic_store_explicit(&g->line, 2 * i + 1, memory_order_release);
        on = await(g, 2 * i + 2);
        if (on && i % TURNS == TURNS - 1 && i >= TURNS) {
            double way = (trmi_os_now() - begin) / (2 * TURNS);
            g->best = g->best == 0 || way < g->best ? way : g->best;
        }
    }
    atomic_store(&g->stop, !on);
    return NULL;
}

static void *answer(void *context) {
    game *g = context;
    bool on = move_to(g->cpu[1]);
    for (int i = 0; on && i < (CHUNKS + 1) * TURNS; i++) {
        on = await(g, 2 * i + 1);
        if (on) {
            atomic_store_explicit(&g->line, 2 * i + 2, memory_order_release);
        }
    }
    if (!on) {
        atomic_store(&g->stop, 1);
    }
    return NULL;
}

/* Two CPUs: this thread's own, or of a thread that is held on one that and any other. */
static bool find_cpus(int cpu[2]) {
    cpu_set_t own, all;
    int found = 0;
    if (sched_getaffinity(0, sizeof own, &own) != 0) {
        return false;
    }
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++) {
        if (CPU_ISSET(i, &own)) {
            cpu[found++] = i;
        }
    }
    /* what the first process may use */
    if (found == 1 && sched_getaffinity(1, sizeof all, &all) == 0) {
        for (int i = 0; i < CPU_SETSIZE && found < 2; i++) {
            if (CPU_ISSET(i, &all) && i != cpu[0]) {
                cpu[found++] = i;
            }
        }
    }
    return found == 2;
}

trmi_lines trmi_lines_now(void) {
    game g;
    pthread_t threads[2];
    memset(&g, 0, sizeof g);
    if (!find_cpus(g.cpu)) {
        return TRMI_LINES_UNKNOWN;
    }
    g.end = trmi_os_now() + patience;
    if (pthread_create(&threads[0], NULL, answer, &g) != 0) {
        return TRMI_LINES_UNKNOWN;
    }
    bool both = pthread_create(&threads[1], NULL, serve, &g) == 0;
    if (both) {
        (void)pthread_join(threads[1], NULL);
    } else {
        atomic_store(&g.stop, 1);
    }
    (void)pthread_join(threads[0], NULL);
    return g.best == 0 ? TRMI_LINES_UNKNOWN : g.best < near ? TRMI_LINES_NEAR : TRMI_LINES_FAR;
}

trmi_lines trmi_lines_usual(void) {
    int count[3] = {0};
    for (int i = 0; i < LOOKS; i++) {
        count[trmi_lines_now()]++;
        (void)nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL);
    }
    return count[TRMI_LINES_UNKNOWN] > LOOKS / 2 ? TRMI_LINES_UNKNOWN
           : 4 * count[TRMI_LINES_NEAR] >= LOOKS ? TRMI_LINES_NEAR
                                                 : TRMI_LINES_FAR;
}
