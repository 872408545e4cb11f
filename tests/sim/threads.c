/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, mutexes, conditions, clocks, process ids of simulated processes: the C library's calls,
 * bent here by the linker (sim.h). */
#include "sim.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WRAP(result, name, parameters)                                                             \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters

/* The contents of a pthread_mutex_t and a pthread_cond_t here; all zero is the initial state. */
typedef struct mutex {
    sim_task *owner;
    int waiters;
} mutex;
typedef struct condition {
    int clock, waiters;
} condition;
_Static_assert(sizeof(mutex) <= sizeof(pthread_mutex_t), "a mutex fits");
_Static_assert(sizeof(condition) <= sizeof(pthread_cond_t), "a condition fits");

/* Wakes one task that waits for `subject`, drawn by seed, or all. Returns how many. */
static int wake_waiting(sim_wait wait, const void *subject, bool all) {
    sim_task *found[256];
    int count = 0;
    for (sim_process *p = sim.processes; p != NULL; p = p->next) {
        for (sim_task *t = p->dead ? NULL : p->tasks; t != NULL && count < 256; t = t->next) {
            if (!t->finished && t->wait == wait && t->subject == subject) {
                found[count++] = t;
            }
        }
    }
    if (!all && count > 1) {
        found[0] = found[sim_random(DRAW_ORDER, (uint64_t)count)];
    }
    count = !all && count > 1 ? 1 : count;
    for (int i = 0; i < count; i++) {
        sim_wake(found[i]);
    }
    return count;
}

/* ---- mutexes --------------------------------------------------------------------------------- */

static void take_mutex(mutex *m) {
    while (m->owner != NULL && !m->owner->process->dead) {
        m->waiters++;
        sim_block(SIM_MUTEX, m, SIM_NEVER);
        m->waiters--;
    }
    m->owner = sim.current;
}

static void give_mutex(mutex *m) {
    m->owner = NULL;
    if (m->waiters > 0) {
        wake_waiting(SIM_MUTEX, m, false);
    }
}

WRAP(int, pthread_mutex_init, (pthread_mutex_t * m, const pthread_mutexattr_t *attributes)) {
    (void)attributes;
    memset(m, 0, sizeof *m);
    return 0;
}
WRAP(int, pthread_mutex_destroy, (pthread_mutex_t * m)) {
    (void)m;
    return 0;
}
WRAP(int, pthread_mutex_lock, (pthread_mutex_t * m)) {
    if (sim.current != NULL) {
        sim_enter();
        take_mutex((mutex *)m);
    }
    return 0;
}
WRAP(int, pthread_mutex_unlock, (pthread_mutex_t * m)) {
    if (sim.current != NULL) {
        give_mutex((mutex *)m);
    }
    return 0;
}

/* ---- conditions ------------------------------------------------------------------------------ */

WRAP(int, pthread_condattr_init, (pthread_condattr_t * a)) {
    *(int *)a = CLOCK_REALTIME;
    return 0;
}
WRAP(int, pthread_condattr_destroy, (pthread_condattr_t * a)) {
    (void)a;
    return 0;
}
WRAP(int, pthread_condattr_setclock, (pthread_condattr_t * a, clockid_t clock)) {
    *(int *)a = clock;
    return 0;
}
WRAP(int, pthread_cond_init, (pthread_cond_t * c, const pthread_condattr_t *a)) {
    memset(c, 0, sizeof *c);
    ((condition *)c)->clock = a == NULL ? CLOCK_REALTIME : *(const int *)a;
    return 0;
}
WRAP(int, pthread_cond_destroy, (pthread_cond_t * c)) {
    (void)c;
    return 0;
}

/* A wake-up without a signal, which POSIX allows, comes after 10 ms in one wait of 64. */
static int wait_condition(condition *c, mutex *m, int64_t until) {
    bool spurious = sim_random(DRAW_ORDER, 64) == 0 && until > sim.now + SIM_SECOND / 100;
    give_mutex(m);
    c->waiters++;
    bool woken = sim_block(SIM_CONDITION, c, spurious ? sim.now + SIM_SECOND / 100 : until);
    c->waiters--;
    take_mutex(m);
    return woken || spurious ? 0 : ETIMEDOUT;
}

WRAP(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m)) {
    sim_enter();
    return wait_condition((condition *)c, (mutex *)m, SIM_NEVER);
}
WRAP(int, pthread_cond_timedwait,
     (pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *at)) {
    sim_enter();
    const sim_process *p = sim.current->process;
    int64_t now = ((condition *)c)->clock == CLOCK_REALTIME ? sim_wall(p) : sim_monotonic(p);
    int64_t until = at->tv_sec * SIM_SECOND + at->tv_nsec - now;
    return wait_condition((condition *)c, (mutex *)m, sim.now + (until > 0 ? until : 0));
}
WRAP(int, pthread_cond_signal, (pthread_cond_t * c)) {
    if (sim.current != NULL && ((condition *)c)->waiters > 0) {
        wake_waiting(SIM_CONDITION, c, false);
    }
    return 0;
}
WRAP(int, pthread_cond_broadcast, (pthread_cond_t * c)) {
    if (sim.current != NULL && ((condition *)c)->waiters > 0) {
        wake_waiting(SIM_CONDITION, c, true);
    }
    return 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

WRAP(int, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)) {
    (void)attributes;
    sim_enter();
    *out = (pthread_t)(uintptr_t)sim_add_task(sim.current->process, run, argument);
    return 0;
}
WRAP(int, pthread_join, (pthread_t thread, void **result)) {
    sim_enter();
    sim_task *task = (sim_task *)(uintptr_t)thread;
    while (!task->finished) {
        sim_block(SIM_JOIN, task, SIM_NEVER);
    }
    if (result != NULL) {
        *result = task->result;
    }
    return 0;
}
WRAP(pthread_t, pthread_self, (void)) {
    return sim.current == NULL ? __real_pthread_self() : (pthread_t)(uintptr_t)sim.current;
}
WRAP(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old)) {
    return sim.current == NULL ? __real_pthread_sigmask(how, set, old) : 0;
}
WRAP(int, pthread_getschedparam, (pthread_t thread, int *policy, struct sched_param *out)) {
    (void)thread;
    *policy = SCHED_OTHER;
    memset(out, 0, sizeof *out);
    return 0;
}
WRAP(int, pthread_setschedparam, (pthread_t thread, int policy, const struct sched_param *p)) {
    (void)thread, (void)policy, (void)p;
    return 0;
}
WRAP(int, sched_yield, (void)) {
    if (sim.current != NULL) {
        sim_enter();
        sim_yield();
    }
    return 0;
}

/* ---- clocks, ids ----------------------------------------------------------------------------- */

WRAP(int, clock_gettime, (clockid_t clock, struct timespec *out)) {
    if (sim.current == NULL) {
        return __real_clock_gettime(clock, out);
    }
    sim.now += 50; /* a loop that only looks at the clock ends */
    const sim_process *p = sim.current->process;
    int64_t now = clock == CLOCK_REALTIME ? sim_wall(p) : sim_monotonic(p);
    *out = (struct timespec){.tv_sec = now / SIM_SECOND, .tv_nsec = now % SIM_SECOND};
    return 0;
}
WRAP(time_t, time, (time_t * out)) {
    time_t now = sim.current == NULL ? __real_time(NULL)
                                     : (time_t)(sim_wall(sim.current->process) / SIM_SECOND);
    if (out != NULL) {
        *out = now;
    }
    return now;
}

static void sleep_for(int64_t nanoseconds) {
    sim_enter();
    double slow = sim.current->process->slow;
    sim_block(SIM_SLEEPS, NULL,
              sim.now + nanoseconds + (int64_t)(slow * (double)sim_random(DRAW_ORDER, 60000)));
}

WRAP(int, usleep, (useconds_t microseconds)) {
    if (sim.current == NULL) {
        return __real_usleep(microseconds);
    }
    sleep_for((int64_t)microseconds * 1000);
    return 0;
}
WRAP(int, nanosleep, (const struct timespec *wanted, struct timespec *left)) {
    if (sim.current == NULL) {
        return __real_nanosleep(wanted, left);
    }
    sleep_for(wanted->tv_sec * SIM_SECOND + wanted->tv_nsec);
    return 0;
}
WRAP(pid_t, getpid, (void)) {
    return sim.current == NULL ? __real_getpid() : sim.current->process->pid;
}
WRAP(int, kill, (pid_t pid, int signal)) {
    if (sim.current == NULL) {
        return __real_kill(pid, signal);
    }
    sim_process *p = sim_find(pid);
    bool here = p != NULL && p->host == sim.current->process->host;
    if (here && signal == SIGKILL) {
        sim_kill(p);
    }
    errno = ESRCH;
    return here ? 0 : -1;
}
WRAP(int, gethostname, (char *name, size_t size)) {
    if (sim.current == NULL) {
        return __real_gethostname(name, size);
    }
    snprintf(name, size, "host%d", sim.current->process->host);
    return 0;
}
WRAP(ssize_t, getrandom, (void *data, size_t bytes, unsigned flags)) {
    if (sim.current == NULL) {
        return __real_getrandom(data, bytes, flags);
    }
    for (size_t i = 0; i < bytes; i++) {
        ((uint8_t *)data)[i] = (uint8_t)sim_random(DRAW_BYTES, 256);
    }
    return (ssize_t)bytes;
}

/* The code of a message is a mix of its key and its bytes: HMAC took an eighth of the time of a
 * run. No process here forges messages. */
WRAP(bool, trmi_hmac_sha256,
     (const uint8_t key[32], const void *data, size_t bytes, uint8_t out[32])) {
    if (sim.current == NULL) {
        return __real_trmi_hmac_sha256(key, data, bytes, out);
    }
    const uint8_t *p = data;
    uint64_t mix = 0xCBF29CE484222325u;
    for (size_t i = 0; i < 32 + bytes; i++) {
        mix = (mix ^ (i < 32 ? key[i] : p[i - 32])) * 0x100000001B3u; /* FNV-1a */
    }
    for (size_t i = 0; i < 32; i += sizeof mix) {
        mix = (mix ^ mix >> 29) * 0xBF58476D1CE4E5B9u;
        memcpy(out + i, &mix, sizeof mix);
    }
    return true;
}
