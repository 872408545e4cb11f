/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a group: arrive, ring whoever sleeps, wait for the others. The drawing is in shm.h. */
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

static const double slice_seconds = 0.05;
/* Polling that paid is doubled, polling that was in vain is cut to a quarter, and where the rank
 * that is missing was last seen on this CPU: ranks that find themselves on one CPU soon hand it
 * over instead of burning it. It is not in vain where the others came soon after its end: to be
 * woken takes as long (50 us here), and ranks that do the same work are tens of microseconds apart.
 */
/* store: until a store is seen everywhere */
static const double least_spin_seconds = 2e-6, store_seconds = 2e-6;
/* times the longest polling; events between looks at where this rank runs */
enum { SOON = 2, CPU_EVERY = 16 };

/* Everything stored before is visible before anything loaded after: 6 of the 150 ns that 1 KB
 * takes, so only where this rank waits anyway. At the end of an operation it looks for sleepers
 * without: who goes to sleep looks once more when every store that was made before it was counted
 * has arrived, and were it ever too early it would sleep for a slice, not for ever. */
static void full_fence(trmi_shm *shm) {
#if TRMI_THREAD_SANITIZER
    atomic_fetch_add(&shm->head->sleepers, 0); /* the sanitizer knows no fences */
#else
    (void)shm;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void ring(trmi_shm *shm) {
    if (atomic_load(&shm->head->sleepers) != 0) {
        atomic_fetch_add(&shm->head->bell, 1);
        trmi_futex_wake((uint32_t *)(void *)&shm->head->bell, INT32_MAX);
    }
}

/* In a counted group the last one to arrive rings, at once. Otherwise ringing is owed until the end
 * of the operation, or until this rank has to wait itself: a fence right behind the store would put
 * the store's latency on the critical path. */
static void arrived(trmi_shm *shm) {
    shm->events++;
    if (shm->events % CPU_EVERY == 1) {
        atomic_store_explicit(&shm->lines[shm->me].cpu, sched_getcpu(), memory_order_relaxed);
    }
    if (shm->counted &&
        atomic_fetch_add(&shm->head->arrivals, 1) + 1 == shm->events * (uint64_t)shm->n) {
        ring(shm);
    }
}

void trmi_shm_post(trmi_shm *shm) {
    shm->posts++;
    atomic_store_explicit(&trmi_shm_slot_of(shm, shm->me, shm->posts)->sequence, shm->posts,
                          memory_order_release);
    arrived(shm);
}

static void arrive(trmi_shm *shm) {
    shm->phases++;
    atomic_store_explicit(&shm->lines[shm->me].phase, shm->phases, memory_order_release);
    arrived(shm);
}

static bool has_posted(const trmi_shm *shm, int32_t rank) {
    return atomic_load_explicit(&trmi_shm_slot_of(shm, rank, shm->posts)->sequence,
                                memory_order_acquire) >= shm->posts;
}

static bool has_arrived(const trmi_shm *shm, int32_t rank) {
    return atomic_load_explicit(&shm->lines[rank].phase, memory_order_acquire) >= shm->phases;
}

/* Has no part of the sum in hand, or nobody has. */
static bool has_no_part(const trmi_shm *shm, int32_t rank) {
    return has_arrived(shm, rank) || trmi_shm_parts_over(shm);
}

typedef bool rank_test(const trmi_shm *shm, int32_t rank);

/* True once all have come; *next is the first rank not yet seen. */
static inline bool all_here(const trmi_shm *shm, rank_test *test, int32_t *next) {
    while (*next < shm->n && test(shm, *next)) {
        ++*next;
    }
    return *next == shm->n;
}

static bool event_complete(trmi_shm *shm, rank_test *test, int32_t *next) {
    if (shm->counted && (atomic_load(&shm->head->arrivals) < shm->events * (uint64_t)shm->n ||
                         !trmi_shm_parts_over(shm))) {
        return false;
    }
    return all_here(shm, test, next);
}

/* A rank that left in order while others wait for it is an error like a death, but ours to find.
 * Who left because the job had failed did so after that was to be seen: the wait's check tells the
 * failure, and what this rank was in. */
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

/* Threads of the communicator may wait as long as they like: only callers are held up. */
static void note_wait(const trmi_shm *shm, double start) {
    if (!shm->base.background) {
        trmi_bootstrap_add_waited(shm->base.group.bootstrap, trmi_os_now() - start);
    }
}

static trm_status sleep_until(trmi_shm *shm, rank_test *test, int32_t next,
                              const trmi_engine_call *op, trm_error *err) {
    trm_status status = TRM_OK;
    trmi_wait wait = {.start = trmi_os_now()};
    double next_check = wait.start + slice_seconds;
    atomic_fetch_add(&shm->head->sleepers, 1);
    while (!shm->counted && !all_here(shm, test, &next) &&
           trmi_os_now() - wait.start < store_seconds) {
        RELAX();
    }
    for (;;) {
        uint32_t bell = atomic_load(&shm->head->bell);
        if (event_complete(shm, test, &next)) {
            break;
        }
        trmi_futex_wait((uint32_t *)(void *)&shm->head->bell, bell, slice_seconds);
        if (trmi_bootstrap_healthy(shm->base.group.bootstrap) && trmi_os_now() < next_check) {
            continue;
        }
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

/* Only of callers: threads of the communicator do not poll. */
static void note_spin(trmi_shm *shm, double spin, bool paid) {
    double most = 1e-6 * shm->spin_microseconds, next = paid ? 2 * spin : spin / 4;
    shm->spin_seconds = next > most ? most : next < least_spin_seconds ? least_spin_seconds : next;
}

/* More ranks than CPUs: whoever waits hands its CPU to the next at every look, for that one may be
 * who is waited for. A look and a change of hands cost less than a sleep and a call to wake. */
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

static inline trm_status wait_event(trmi_shm *shm, rank_test *test, const trmi_engine_call *op,
                                    trm_error *err) {
    int32_t next = 0;
    bool here = false;
    if (shm->counted) {
        return wait_crowded(shm, test, op, err);
    }
    for (int i = 0; i < TRMI_SHM_SPIN_LOOPS && !(here = all_here(shm, test, &next)); i++) {
        RELAX();
    }
    if (here) {
        shm->owes_ring = true;
        return TRM_OK;
    }
    full_fence(shm);
    ring(shm);
    double start = trmi_os_now();
    double spin = shm->base.background ? 0 : shm->spin_seconds;
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
        ring(shm);
    }
}

trm_status trmi_shm_wait_posts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err) {
    return wait_event(shm, has_posted, op, err);
}

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

/* Never beyond the last of a lane: who comes late must not take a part of the sum that follows. */
static bool take_from(trmi_shm *shm, int32_t lane, int64_t *part) {
    _Atomic uint64_t *taken = &shm->head->lanes[lane].taken;
    uint64_t next = atomic_load(taken), end = shm->lane_parts[lane];
    const uint64_t count = (uint64_t)(shm->lane_first[lane + 1] - shm->lane_first[lane]);
    while (next < end && end - next <= count) { /* else a peer has written nonsense there */
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
        ring(shm);
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
    arrive(shm);
    return wait_event(shm, has_arrived, op, err);
}
