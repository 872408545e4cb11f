/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/rendezvous.h: the contract between the way ranks find each other (rendezvous,
 * side channel, heartbeats) and everything that is built on it (communicators, engines, parameter
 * servers).
 *
 * A bootstrap is one rank's view of the job: who is there, on which host, a slow but safe
 * all-gather, and one shared fact: healthy, or poisoned with the first cause. Implementations:
 *
 *   shared   ranks are threads of one process or processes forked from it     bootstrap.c
 *   tcp      ranks anywhere, over the authenticated side channel              side*.c
 *
 *            poison(cause)           any rank, once or often: the first cause wins
 *   healthy ---------------> poisoned, for ever; every rank knows the same cause within 1 s */
#ifndef TRMI_COMM_RENDEZVOUS_H
#define TRMI_COMM_RENDEZVOUS_H

#include "trireme/base.h"
#include "trireme/cluster.h"

enum { TRMI_ALGORITHM_BYTES = 512 }; /* of a choice of algorithms, with its end */

typedef struct trmi_bootstrap_table {
    const char *name; /* "shared", "tcp" */

    /* Gathers `bytes` (equal on all ranks, 0 is fine) from every rank, in rank order.
     *   shape   mine[bytes], all[size * bytes]
     *   error   PEER or the first cause if the job is poisoned; TIMEOUT naming the ranks that are
     *           missing (the job is then poisoned by the caller, not here)
     *   thread  one caller at a time per bootstrap; all ranks call in the same order */
    trm_status (*allgather)(trm_bootstrap *bootstrap, const void *mine, size_t bytes, void *all,
                            double timeout_seconds, trm_error *err);

    /* Returns on every rank once every rank has called. Errors and threads as allgather. */
    trm_status (*barrier)(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err);

    /* Tells every rank that the job has failed. `cause->rank` is filled with this rank if it is -1.
     * Only the first poison of a job is kept. Never blocks long, never fails.   thread any */
    void (*poison)(trm_bootstrap *bootstrap, const trm_error *cause);

    /* TRM_OK while healthy; otherwise copies the first cause into `err` and returns its status.
     * Looks for dead peers itself where no thread of the implementation does. Cheap enough to be
     * called every 50 ms; hot loops look at *alarm instead.   thread any */
    trm_status (*check)(trm_bootstrap *bootstrap, trm_error *err);

    /* mac = HMAC-SHA256 of `data` under the job's secret: data connections between ranks prove
     * with it that they belong to this job.   thread any */
    void (*sign)(trm_bootstrap *bootstrap, const void *data, size_t bytes, uint8_t mac[32]);

    /* Leaves the job in order: peers do not take it for a death. */
    void (*destroy)(trm_bootstrap *bootstrap);
} trmi_bootstrap_table;

/* Implementations embed this as their first member and fill it before anyone sees it. */
struct trm_bootstrap {
    const trmi_bootstrap_table *table;
    int32_t rank, size;             /* in the job */
    int32_t local_rank, local_size; /* among the ranks of this host, in rank order */
    int32_t host, host_count;       /* this rank's host index; hosts are numbered by first rank */
    const int32_t *host_of;         /* [size] host index of each rank */
    const char *address;            /* numeric address on which peers reach this rank */
    /* 0 while healthy, 1 once poisoned. A futex word: implementations store with release order and
     * FUTEX_WAKE all (not private: it may lie in shared memory), so that sleepers learn at once. */
    uint32_t *alarm;
    uint8_t cluster[32]; /* digest of the hosts in order: name, address, ranks; zero: not known */
    /* Defaults of communicators, from HCCL's variables; 0: none. */
    double exec_seconds;   /* of an operation */
    int32_t deterministic; /* trm_deterministic */
    /* of collectives, where the options of a communicator name none; NULL: by cost */
    const char *algorithm;
    int alarm_fd; /* eventfd, readable once poisoned, for poll loops; -1 if there is none */
    /* that threads of this rank have waited for others in calls; relaxed */
    uint64_t waited_nanoseconds;
};

/* Seconds that callers have spent waiting for other ranks so far: what comm/rendezvous/pace.h takes
 * off their steps. */
static inline double trmi_bootstrap_waited(const trm_bootstrap *bootstrap) {
    return 1e-9 * (double)__atomic_load_n(&bootstrap->waited_nanoseconds, __ATOMIC_RELAXED);
}
static inline void trmi_bootstrap_add_waited(trm_bootstrap *bootstrap, double seconds) {
    __atomic_fetch_add(&bootstrap->waited_nanoseconds, (uint64_t)(1e9 * seconds), __ATOMIC_RELAXED);
}

/* A cheap glance at the alarm, for hot loops. */
static inline bool trmi_bootstrap_healthy(const trm_bootstrap *bootstrap) {
    return __atomic_load_n(bootstrap->alarm, __ATOMIC_ACQUIRE) == 0;
}

#endif
