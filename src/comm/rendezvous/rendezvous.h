/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/rendezvous.h: the interface between the way in which ranks find each other
 * (rendezvous, control channel, heartbeats) and the code that is built on it (communicators,
 * engines, parameter servers).
 *
 * A bootstrap is one rank's view of the job: which ranks there are, on which hosts, a slow but safe
 * all-gather, and one shared state: healthy, or poisoned with the first cause. Implementations:
 *
 *   tcp      ranks anywhere, over the authenticated control channel              side*.c
 *   shared   ranks that are threads of one process, for tests                 tests/lib/shared_job.c
 *
 *            poison(cause)           by any rank, any number of times: the first cause is kept
 *   healthy ---------------> poisoned, for ever; every rank has the same cause within 1 s
 */
#ifndef TRMI_COMM_RENDEZVOUS_H
#define TRMI_COMM_RENDEZVOUS_H

#include "trireme/base.h"
#include "trireme/dist.h"

enum { TRMI_ALGORITHM_BYTES = 512 }; /* longest text that chooses algorithms, with its '\0' */

/* The functions of an implementation. */
typedef struct trmi_bootstrap_table {
    const char *name; /* "shared", "tcp" */

    /* Gathers `bytes` from every rank, in rank order. All ranks pass the same number, which may be
     * 0. Shapes: mine[bytes], all[size * bytes].
     *   errors  PEER or the first cause if the job is poisoned; TIMEOUT, naming the missing ranks
     *           (the caller then poisons the job, this function does not)
     *   threads  one caller at a time for each bootstrap; all ranks call in the same order */
    trm_status (*allgather)(trm_bootstrap *bootstrap, const void *mine, size_t bytes, void *all,
                            double timeout_seconds, trm_error *err);

    /* Returns on every rank once every rank has called it. Errors and threads as allgather. */
    trm_status (*barrier)(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err);

    /* Reports to all ranks that the job has failed. If cause->rank is -1 it becomes this rank. Only
     * the first poison of a job is kept. It waits 0.3 s at most and never fails. Any thread. */
    void (*poison)(trm_bootstrap *bootstrap, const trm_error *cause);

    /* Returns TRM_OK while the job is healthy; otherwise copies the first cause to `err` and
     * returns its status. Where an implementation has no thread of its own, this function detects
     * dead peers. It is cheap enough for a call every 50 ms; hot loops read *alarm instead. Any
     * thread. */
    trm_status (*check)(trm_bootstrap *bootstrap, trm_error *err);

    /* Computes HMAC-SHA256 of `data` under the job's secret. Ranks prove with it that a data
     * connection belongs to this job. Any thread. */
    void (*sign)(trm_bootstrap *bootstrap, const void *data, size_t bytes, uint8_t mac[32]);

    /* Leaves the job in order, so that the peers do not report a death, and frees the bootstrap. */
    void (*destroy)(trm_bootstrap *bootstrap);
} trmi_bootstrap_table;

/* An implementation embeds this struct as its first member and fills it before it hands it out. */
struct trm_bootstrap {
    const trmi_bootstrap_table *table;
    int32_t rank, size;             /* this rank's number in the job; number of ranks */
    int32_t local_rank, local_size; /* the same among the ranks of this host, in rank order */
    /* this rank's host index; hosts are numbered in the order of their first ranks */
    int32_t host, host_count;
    const int32_t *host_of; /* [size] host index of each rank */
    const char *address;    /* numeric address on which peers reach this rank */
    /* 0 while healthy, 1 once poisoned. A futex word: implementations store it with release order
     * and wake all sleepers. The futex is not private, because the word may lie in shared
     * memory. */
    uint32_t *alarm;
    /* digest of the hosts in order (name, address, number of ranks); zeros: unknown */
    uint8_t cluster[32];
    double start_seconds; /* in which the ranks had to meet; 0: no limit */
    /* Defaults of communicators, from HCCL's environment variables; 0: none. */
    double exec_seconds;   /* deadline of an operation */
    int32_t deterministic; /* a trm_deterministic */
    /* algorithms of collectives, for communicators whose options name none; NULL: by cost */
    const char *algorithm;
    int alarm_fd; /* eventfd for poll loops, readable once poisoned; -1: none */
    /* time that threads of this rank have waited for other ranks inside calls; accessed relaxed */
    uint64_t waited_nanoseconds;
};

/* Returns the seconds that callers have waited for other ranks so far. comm/rendezvous/stragglers.h
 * subtracts them from the time of a step. */
static inline double trmi_bootstrap_waited(const trm_bootstrap *bootstrap) {
    return 1e-9 * (double)__atomic_load_n(&bootstrap->waited_nanoseconds, __ATOMIC_RELAXED);
}
/* Adds to the waited time. Any thread. */
static inline void trmi_bootstrap_add_waited(trm_bootstrap *bootstrap, double seconds) {
    __atomic_fetch_add(&bootstrap->waited_nanoseconds, (uint64_t)(1e9 * seconds), __ATOMIC_RELAXED);
}

/* Returns true while the job is healthy. One load, for hot loops. */
static inline bool trmi_bootstrap_healthy(const trm_bootstrap *bootstrap) {
    return __atomic_load_n(bootstrap->alarm, __ATOMIC_ACQUIRE) == 0;
}

#endif
