/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a group: arrive, wake sleeping ranks, wait for the peers. The drawing and the rules
 * are in shm.h. A wait goes through three phases: a few polls without reading the clock, polling
 * (or yielding the CPU) for an adaptive time, then sleeping on the bell in slices of 50 ms, between
 * which the job's failure and the deadline are checked (trmi_wait_check). */
#define _GNU_SOURCE
#include "comm/shm/shm.h"

#include "base/error.h"
#include "base/os.h"
#include "base/sanitizers.h"
#include "comm/shm/futex.h"

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() ((void)0)
#endif

/* Longest sleep between two checks of the job's failure and of the deadline. */
static const double slice_seconds = 0.05;
/* Adaptive polling. Polling that succeeded is doubled, up to the configured limit; polling that
 * failed is cut to a quarter. Polling also counts as successful if the peers arrive soon after its
 * end, because waking up takes about as long (50 us on the development machine) and ranks that do
 * equal work arrive tens of microseconds apart. It counts as failed if the missing rank last ran on
 * this rank's CPU: ranks that share a CPU thus soon hand it over instead of polling. */
/* store_seconds: the time after which a store is visible on all CPUs */
static const double least_spin_seconds = 2e-6, store_seconds = 2e-6;
/* SOON: a multiple of the longest polling time. CPU_EVERY: a rank publishes its CPU once in so many
 * events. */
enum { SOON = 2, CPU_EVERY = 16 };

/* Makes everything stored before visible before anything loaded afterwards. The fence takes 6 ns of
 * the 150 ns of a 1 KB all-reduce, so it is used only where this rank waits anyway. At the end of
 * an operation, a rank checks for sleepers without a fence. That is safe: a rank that goes to sleep
 * first registers as a sleeper, then polls for store_seconds, until every earlier store must have
 * arrived. If a wake-up were missed nevertheless, the rank would sleep for one slice, not for
 * ever. */
static void full_fence(trmi_shm *shm) {
#if TRMI_THREAD_SANITIZER                      /* ThreadSanitizer does not model fences */
    atomic_fetch_add(&shm->head->sleepers, 0); /* the sanitizer knows no fences */
#else
    (void)shm;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Wakes all ranks that sleep on the bell. */
static void wake_waiters(trmi_shm *shm) {
    if (atomic_load(&shm->head->sleepers) != 0) {
        atomic_fetch_add(&shm->head->bell, 1);
        trmi_futex_wake((uint32_t *)(void *)&shm->head->bell, INT32_MAX);
    }
}

/* Counts an arrival of this rank. In a counted group the last rank to arrive rings the bell at
 * once. Otherwise the ring is owed until the end of the operation or until this rank has to wait
 * itself: a fence directly after the store would put the store's latency on the critical path. */
static void count_own_arrival(trmi_shm *shm) {
    shm->events++;
    if (shm->events % CPU_EVERY == 1) {
        atomic_store_explicit(&shm->lines[shm->me].cpu, sched_getcpu(), memory_order_relaxed);
    }
    if (shm->counted &&
        atomic_fetch_add(&shm->head->arrivals, 1) + 1 == shm->events * (uint64_t)shm->n) {
        wake_waiters(shm);
    }
}

void trmi_shm_post(trmi_shm *shm) {
    shm->posts++;
    atomic_store_explicit(&trmi_shm_slot_of(shm, shm->me, shm->posts)->sequence, shm->posts,
                          memory_order_release);
    count_own_arrival(shm);
}

/* Arrives at the next phase. */
static void publish_arrival(trmi_shm *shm) {
    shm->phases++;
    atomic_store_explicit(&shm->lines[shm->me].phase, shm->phases, memory_order_release);
    count_own_arrival(shm);
}

/* Return whether a rank has made the post, and the phase, that this rank waits for. The loads
 * acquire what the peer wrote before it arrived. */
static bool has_posted(const trmi_shm *shm, int32_t rank) {
    return atomic_load_explicit(&trmi_shm_slot_of(shm, rank, shm->posts)->sequence,
                                memory_order_acquire) >= shm->posts;
}

static bool has_arrived(const trmi_shm *shm, int32_t rank) {
    return atomic_load_explicit(&shm->lines[rank].phase, memory_order_acquire) >= shm->phases;
}

/* Returns whether `rank` has no unfinished part of the present sum, or all parts are summed. */
static bool has_no_part(const trmi_shm *shm, int32_t rank) {
    return has_arrived(shm, rank) || trmi_shm_parts_over(shm);
}

/* A test of one rank's flag: has it come to the present event? */
typedef bool rank_test(const trmi_shm *shm, int32_t rank);

/* Returns true once the test holds for all ranks. *next is the first rank for which it did not hold
 * yet; ranks before it are not tested again. */
static inline bool all_here(const trmi_shm *shm, rank_test *test, int32_t *next) {
    while (*next < shm->n && test(shm, *next)) {
        ++*next;
    }
    return *next == shm->n;
}

/* Returns true once the event is complete. A counted group first compares the common counter, which
 * is one cache line instead of n. */
static bool event_complete(trmi_shm *shm, rank_test *test, int32_t *next) {
    if (shm->counted && (atomic_load(&shm->head->arrivals) < shm->events * (uint64_t)shm->n ||
                         !trmi_shm_parts_over(shm))) {
        return false;
    }
    return all_here(shm, test, next);
}

/* Checks a wait that lasts: the failure of the job, the deadline, and peers that have destroyed
 * their communicator (PEER; poisons the job). A rank that left because the job had failed stored
 * that failure before it left, so trmi_wait_check reports the failure first. */
static trm_status check_missing(trmi_shm *shm, rank_test *test, const trmi_engine_call *op,
                                trmi_wait *wait, trm_error *err) {
    const trmi_group *group = &shm->base.group;
    char what[112];
    int32_t gone = -1;
    trmi_op_format(op, what, sizeof what);
    for (int32_t r = 0; r < shm->n; r++) {
        shm->missing[r] = !test(shm, r);
        if (shm->missing[r] && atomic_load(&shm->lines[r].left) && !test(shm, r)) {
            gone = r;
        }
    }
    TRMI_TRY(trmi_wait_check(wait, group, shm->missing, what, err));
    if (gone < 0) {
        return TRM_OK;
    }
    trm_error cause;
    TRMI_FAIL(&cause, TRM_PEER, "rank %d has left '%s', rank %d still waits for it in %s",
              group->members[gone], group->name, group->members[shm->me], what);
    return trmi_group_poison(group, &cause, err);
}

/* Adds a wait to the statistics. Only the caller's waits count: the progress thread waits without
 * delaying the program. */
static void note_wait(const trmi_shm *shm, double start) {
    if (!shm->base.background) {
        trmi_bootstrap_add_waited(shm->base.group.bootstrap, trmi_os_now() - start);
    }
}

/* Sleeps on the bell until the event is complete, the job fails or the deadline passes. `next` is
 * the first rank that is missing. */
static trm_status sleep_until(trmi_shm *shm, rank_test *test, int32_t next,
                              const trmi_engine_call *op, trm_error *err) {
    trm_status status = TRM_OK;
    trmi_wait wait = {.start = trmi_os_now()};
    double next_check = wait.start + slice_seconds;
    atomic_fetch_add(&shm->head->sleepers, 1);
    /* Wait for stores of peers that looked for sleepers just before this rank registered. */
    while (!shm->counted && !all_here(shm, test, &next) &&
           trmi_os_now() - wait.start < store_seconds) {
        RELAX();
    }
    for (;;) {
        /* Read the bell, test, sleep only if the bell has not been rung since. */
        uint32_t bell = atomic_load(&shm->head->bell);
        if (event_complete(shm, test, &next)) {
            break;
        }
        trmi_futex_wait((uint32_t *)(void *)&shm->head->bell, bell, slice_seconds);
        if (trmi_bootstrap_healthy(shm->base.group.bootstrap) && trmi_os_now() < next_check) {
            continue;
        }
        /* A time slice has passed, or the job has failed: check peers and deadline. */
        next_check = trmi_os_now() + slice_seconds;
        if (!event_complete(shm, test, &next) &&
            (status = check_missing(shm, test, op, &wait, err)) != TRM_OK) {
            break;
        }
    }
    atomic_fetch_sub(&shm->head->sleepers, 1);
    note_wait(shm, wait.start);
    return status;
}

/* Adapts the polling time. It changes only for waits of the caller: the progress thread never
 * polls. */
static void note_spin(trmi_shm *shm, double spin, bool paid) {
    double most = 1e-6 * shm->spin_microseconds, next = paid ? 2 * spin : spin / 4;
    shm->spin_seconds = next > most ? most : next < least_spin_seconds ? least_spin_seconds : next;
}

/* Waits in a group with more ranks than CPUs. Between tests the rank yields its CPU, because the
 * next rank to run may be the one that it waits for. A test and a context switch take less time
 * than a sleep and a wake-up. */
static trm_status wait_crowded(trmi_shm *shm, rank_test *test, const trmi_engine_call *op,
                               trm_error *err) {
    int32_t next = 0;
    double start = trmi_os_now(), spin = shm->base.background ? 0 : shm->spin_seconds;
    bool here = event_complete(shm, test, &next);
    if (here) {
        return TRM_OK;
    }
    while (!here && spin > 0 && trmi_os_now() - start < spin &&
           trmi_bootstrap_healthy(shm->base.group.bootstrap)) {
        sched_yield();
        here = event_complete(shm, test, &next);
    }
    if (spin > 0) {
        note_spin(shm, spin, here);
        note_wait(shm, start);
    }
    return here ? TRM_OK : sleep_until(shm, test, next, op, err);
}

/* Waits until `test` holds for all ranks. */
static inline trm_status wait_event(trmi_shm *shm, rank_test *test, const trmi_engine_call *op,
                                    trm_error *err) {
    int32_t next = 0;
    bool here = false;
    if (shm->counted) {
        return wait_crowded(shm, test, op, err);
    }
    /* Poll a few times without reading the clock. */
    for (int i = 0; i < TRMI_SHM_SPIN_LOOPS && !(here = all_here(shm, test, &next)); i++) {
        RELAX();
    }
    if (here) {
        shm->owes_ring = true;
        return TRM_OK;
    }
    /* This rank waits: ring the bell for its own arrivals now. */
    full_fence(shm);
    wake_waiters(shm);
    double start = trmi_os_now();
    double spin = shm->base.background ? 0 : shm->spin_seconds;
    /* Poll for the adaptive time. */
    do {
        for (int i = 0; i < TRMI_SHM_SPIN_LOOPS; i++) {
            if (all_here(shm, test, &next)) {
                note_spin(shm, shm->spin_seconds, true);
                note_wait(shm, start);
                return TRM_OK;
            }
            RELAX();
        }
    } while (trmi_os_now() - start < spin && trmi_bootstrap_healthy(shm->base.group.bootstrap));
    note_wait(shm, start);
    /* Sleep, then judge whether the polling was useful. */
    bool shared =
        atomic_load_explicit(&shm->lines[next].cpu, memory_order_relaxed) == sched_getcpu();
    trm_status status = sleep_until(shm, test, next, op, err);
    if (spin > 0) {
        note_spin(shm, spin,
                  !shared && trmi_os_now() - start < SOON * 1e-6 * shm->spin_microseconds);
    }
    return status;
}

void trmi_shm_settle(trmi_shm *shm) {
    if (shm->owes_ring) {
        shm->owes_ring = false;
        atomic_signal_fence(memory_order_seq_cst);
        wake_waiters(shm);
    }
}

trm_status trmi_shm_wait_posts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    return wait_event(shm, has_posted, op, err);
}

/* Returns the number of lanes: one for each CPU, up to TRMI_SHM_LANES. */
static int32_t lanes_of(const trmi_shm *shm) {
    return shm->cpus < TRMI_SHM_LANES ? shm->cpus : TRMI_SHM_LANES;
}

void trmi_shm_begin_parts(trmi_shm *shm, int64_t count) {
    int32_t lanes = lanes_of(shm);
    shm->parts += (uint64_t)count;
    for (int32_t i = 0; i < lanes; i++) {
        shm->lane_first[i + 1] = count * (i + 1) / lanes;
        shm->lane_parts[i] += (uint64_t)(shm->lane_first[i + 1] - shm->lane_first[i]);
    }
}

/* Takes the next part of `lane`, but none beyond the present sum: a rank that arrives late must not
 * take a part of the following sum. The counter lies in shared memory, so its distance from the end
 * is checked as well. */
static bool take_from(trmi_shm *shm, int32_t lane, int64_t *part) {
    _Atomic uint64_t *taken = &shm->head->lanes[lane].taken;
    uint64_t next = atomic_load(taken), end = shm->lane_parts[lane];
    const uint64_t count = (uint64_t)(shm->lane_first[lane + 1] - shm->lane_first[lane]);
    /* At a larger distance a peer has overwritten the counter. */
    while (next < end && end - next <= count) {
        if (atomic_compare_exchange_weak(taken, &next, next + 1)) {
            *part = shm->lane_first[lane + 1] - (int64_t)(end - next);
            return true;
        }
    }
    return false;
}

bool trmi_shm_take_part(trmi_shm *shm, int64_t *part) {
    int32_t lanes = lanes_of(shm), cpu = sched_getcpu(), own = cpu > 0 ? cpu % lanes : 0;
    for (int32_t i = 0; i < lanes; i++) {
        if (take_from(shm, (own + i) % lanes, part)) {
            return true;
        }
    }
    return false;
}

void trmi_shm_end_part(trmi_shm *shm) {
    if (atomic_fetch_add(&shm->head->summed, 1) + 1 == shm->parts) {
        wake_waiters(shm);
    }
}

bool trmi_shm_parts_over(const trmi_shm *shm) {
    return atomic_load(&shm->head->summed) >= shm->parts;
}

trm_status trmi_shm_wait_parts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    shm->phases++;
    atomic_store_explicit(&shm->lines[shm->me].phase, shm->phases, memory_order_release);
    return wait_event(shm, has_no_part, op, err);
}

trm_status trmi_shm_meet(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    publish_arrival(shm);
    return wait_event(shm, has_arrived, op, err);
}
