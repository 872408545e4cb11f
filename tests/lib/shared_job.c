/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap of ranks that share memory from the beginning: threads of one process, or processes
 * that it has forked.
 *
 *   job (anonymous shared mapping)
 *     gate      arrivals and generation of the barrier under every exchange
 *     alarm     0 healthy, 1 poisoned (futex word)     cause   written by the one that claims it
 *     seat[n]   pid of each rank, 0 before it came, -1 after it left
 *     blob[n]   EXCHANGE_BYTES each: an all-gather goes through them piece by piece
 *
 * 1. A rank writes its blob only between two barriers, while no rank reads it. 2. alarm becomes 1
 * after cause is complete, and stays 1. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/lib/shared_job.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/futex.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

enum { EXCHANGE_BYTES = 8192, SIZE_MAX_RANKS = 4096 };
static const double slice_seconds = 0.05;

typedef struct seat {
    _Atomic int32_t pid;
    char pad[60];
} seat;

/* A job in memory that all its processes have mapped at the same address. */
struct trmi_job {
    int32_t size, ranks_per_host;
    size_t mapped_bytes;                   /* of the whole mapping */
    _Atomic uint32_t arrivals, generation; /* of the barrier: ranks that have come; its number */
    _Atomic uint32_t claimed;              /* 1: a rank has written `cause`, or is doing so */
    uint32_t alarm;                        /* futex: set when the job is poisoned */
    trm_error cause;                       /* the first error of the job */
    uint8_t secret[32];
    int32_t *host_of; /* [size] */
    seat *seats;      /* [size] processes of the ranks */
    uint8_t *blobs;   /* [size][EXCHANGE_BYTES] what each rank contributes to an exchange */
};

typedef struct shared_bootstrap {
    trm_bootstrap base;
    trmi_job *job;
    int *pidfd;            /* [size] -1 until first looked at, -2 for ranks of this process */
    double next_look_time; /* dead peers are looked for at most every slice */
    _Atomic bool looking;
} shared_bootstrap;

trm_status trmi_job_create(int32_t size, int32_t ranks_per_host, trmi_job **out, trm_error *err) {
    if (size < 1 || size > SIZE_MAX_RANKS || ranks_per_host < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "a job of %d ranks, %d per host: 1 to %d ranks expected",
                         size, ranks_per_host, SIZE_MAX_RANKS);
    }
    size_t head = (sizeof(trmi_job) + 63) / 64 * 64;
    size_t hosts = ((size_t)size * sizeof(int32_t) + 63) / 64 * 64;
    size_t seats = (size_t)size * sizeof(seat);
    size_t bytes = head + hosts + seats + (size_t)size * EXCHANGE_BYTES;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return TRMI_FAIL(err, TRM_NOMEM, "no shared memory for a job of %d ranks (%zu bytes)", size,
                         bytes);
    }
    trmi_job *job = (trmi_job *)(void *)memory;
    job->size = size;
    job->ranks_per_host = ranks_per_host > 0 ? ranks_per_host : size;
    job->mapped_bytes = bytes;
    job->host_of = (int32_t *)(void *)(memory + head);
    job->seats = (seat *)(void *)(memory + head + hosts);
    job->blobs = memory + head + hosts + seats;
    for (int32_t i = 0; i < size; i++) {
        job->host_of[i] = i / job->ranks_per_host;
    }
    if (getrandom(job->secret, sizeof job->secret, 0) != (ssize_t)sizeof job->secret) {
        munmap(memory, bytes);
        return TRMI_FAIL_SYS(err, "no random secret for the job");
    }
    *out = job;
    return TRM_OK;
}

void trmi_job_destroy(trmi_job *job) {
    if (job != NULL) {
        munmap(job, job->mapped_bytes);
    }
}

static shared_bootstrap *self_of(trm_bootstrap *bootstrap) {
    return (shared_bootstrap *)(void *)bootstrap;
}

static void shared_poison(trm_bootstrap *bootstrap, const trm_error *cause) {
    trmi_job *job = self_of(bootstrap)->job;
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong(&job->claimed, &expected, 1)) {
        return;
    }
    job->cause = *cause;
    if (job->cause.rank < 0) {
        job->cause.rank = bootstrap->rank;
    }
    __atomic_store_n(&job->alarm, 1, __ATOMIC_RELEASE);
    trmi_futex_wake(&job->alarm, INT32_MAX);
    trmi_futex_wake((uint32_t *)(void *)&job->generation, INT32_MAX);
}

/* Opens a pidfd for a peer on first sight; true if it has died without leaving. */
static bool is_dead(shared_bootstrap *self, int32_t rank) {
    int32_t pid = atomic_load(&self->job->seats[rank].pid);
    if (pid <= 0) {
        return false;
    }
    if (pid == getpid()) {
        return false;
    }
    if (self->pidfd[rank] < 0) {
        self->pidfd[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (self->pidfd[rank] < 0) {
            return errno == ESRCH;
        }
    }
    struct pollfd look = {.fd = self->pidfd[rank], .events = POLLIN};
    if (poll(&look, 1, 0) <= 0) {
        return false;
    }
    return atomic_load(&self->job->seats[rank].pid) == pid; /* -1 if it left before it ended */
}

static void look_for_dead(shared_bootstrap *self) {
    if (atomic_exchange(&self->looking, true)) {
        return;
    }
    double now = trmi_os_now();
    if (now >= self->next_look_time) {
        self->next_look_time = now + slice_seconds;
        for (int32_t r = 0; r < self->base.size; r++) {
            if (r != self->base.rank && is_dead(self, r)) {
                trm_error cause;
                TRMI_FAIL(&cause, TRM_PEER, "rank %d (pid %d) died", r,
                          atomic_load(&self->job->seats[r].pid));
                cause.rank = r;
                shared_poison(&self->base, &cause);
                break;
            }
        }
    }
    atomic_store(&self->looking, false);
}

static trm_status first_cause(shared_bootstrap *self, trm_error *err) {
    if (__atomic_load_n(&self->job->alarm, __ATOMIC_ACQUIRE) == 0) {
        return TRM_OK;
    }
    if (err != NULL) {
        *err = self->job->cause;
    }
    return (trm_status)self->job->cause.status;
}

static trm_status shared_check(trm_bootstrap *bootstrap, trm_error *err) {
    shared_bootstrap *self = self_of(bootstrap);
    trm_status status = first_cause(self, err);
    if (status == TRM_OK) {
        look_for_dead(self);
        status = first_cause(self, err);
    }
    return status;
}

static trm_status describe_missing(shared_bootstrap *self, double seconds, trm_error *err) {
    char list[96] = "";
    size_t used = 0;
    for (int32_t r = 0; r < self->base.size && used < sizeof list - 8; r++) {
        if (atomic_load(&self->job->seats[r].pid) == 0) {
            used += (size_t)snprintf(list + used, sizeof list - used, " %d", r);
        }
    }
    return TRMI_FAIL(err, TRM_TIMEOUT, "rank %d waited %.1f s for all %d ranks%s%s",
                     self->base.rank, seconds, self->base.size,
                     used > 0 ? "; never seen:" : "; all had come before", list);
}

static trm_status await_ranks(shared_bootstrap *self, double timeout_seconds, trm_error *err) {
    trmi_job *job = self->job;
    TRMI_TRY(first_cause(self, err));
    uint32_t generation = atomic_load(&job->generation);
    if (atomic_fetch_add(&job->arrivals, 1) + 1 == (uint32_t)job->size) {
        atomic_store(&job->arrivals, 0);
        atomic_fetch_add(&job->generation, 1);
        trmi_futex_wake((uint32_t *)(void *)&job->generation, INT32_MAX);
        return TRM_OK;
    }
    double start = trmi_os_now();
    while (atomic_load(&job->generation) == generation) {
        trmi_futex_wait((uint32_t *)(void *)&job->generation, generation, slice_seconds);
        if (atomic_load(&job->generation) != generation) {
            break;
        }
        TRMI_TRY(shared_check(&self->base, err));
        if (timeout_seconds >= 0 && trmi_os_now() - start > timeout_seconds) {
            return describe_missing(self, timeout_seconds, err);
        }
    }
    return TRM_OK;
}

static trm_status shared_barrier(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err) {
    return await_ranks(self_of(bootstrap), timeout_seconds, err);
}

static trm_status shared_allgather(trm_bootstrap *bootstrap, const void *mine, size_t bytes,
                                   void *all, double timeout_seconds, trm_error *err) {
    shared_bootstrap *self = self_of(bootstrap);
    trmi_job *job = self->job;
    for (size_t done = 0; done < bytes || done == 0;) {
        size_t piece = bytes - done < EXCHANGE_BYTES ? bytes - done : EXCHANGE_BYTES;
        memcpy(job->blobs + (size_t)bootstrap->rank * EXCHANGE_BYTES, (const char *)mine + done,
               piece);
        TRMI_TRY(await_ranks(self, timeout_seconds, err));
        for (int32_t r = 0; r < bootstrap->size; r++) {
            memcpy((char *)all + (size_t)r * bytes + done, job->blobs + (size_t)r * EXCHANGE_BYTES,
                   piece);
        }
        TRMI_TRY(await_ranks(self, timeout_seconds, err));
        done += piece;
        if (piece == 0) {
            break;
        }
    }
    return TRM_OK;
}

static void shared_sign(trm_bootstrap *bootstrap, const void *data, size_t bytes, uint8_t mac[32]) {
    unsigned length = 0;
    HMAC(EVP_sha256(), self_of(bootstrap)->job->secret, 32, data, bytes, mac, &length);
}

static void shared_destroy(trm_bootstrap *bootstrap) {
    if (bootstrap == NULL) {
        return;
    }
    shared_bootstrap *self = self_of(bootstrap);
    atomic_store(&self->job->seats[bootstrap->rank].pid, -1);
    for (int32_t r = 0; r < bootstrap->size; r++) {
        if (self->pidfd[r] >= 0) {
            close(self->pidfd[r]);
        }
    }
    trmi_free(self->pidfd);
    trmi_free(self);
}

static const trmi_bootstrap_table shared_table = {
    .name = "shared",
    .allgather = shared_allgather,
    .barrier = shared_barrier,
    .poison = shared_poison,
    .check = shared_check,
    .sign = shared_sign,
    .destroy = shared_destroy,
};

trm_status trmi_bootstrap_shared(trmi_job *job, int32_t rank, trm_bootstrap **out, trm_error *err) {
    if (rank < 0 || rank >= job->size) {
        return TRMI_FAIL(err, TRM_INVALID, "rank %d of a job of %d ranks", rank, job->size);
    }
    shared_bootstrap *self = trmi_alloc(sizeof *self);
    int *pidfd = trmi_alloc((size_t)job->size * sizeof *pidfd);
    if (self == NULL || pidfd == NULL) {
        trmi_free(self);
        trmi_free(pidfd);
        return TRMI_NO_MEMORY(err, "for the bootstrap of rank %d", rank);
    }
    for (int32_t r = 0; r < job->size; r++) {
        pidfd[r] = -1;
    }
    int32_t host = rank / job->ranks_per_host, first = host * job->ranks_per_host;
    int32_t beyond =
        first + job->ranks_per_host < job->size ? first + job->ranks_per_host : job->size;
    self->job = job;
    self->pidfd = pidfd;
    self->base = (trm_bootstrap){
        .table = &shared_table,
        .rank = rank,
        .size = job->size,
        .local_rank = rank - first,
        .local_size = beyond - first,
        .host = host,
        .host_count = (job->size + job->ranks_per_host - 1) / job->ranks_per_host,
        .host_of = job->host_of,
        .address = "127.0.0.1",
        .alarm = &job->alarm,
        .alarm_fd = -1,
    };
    atomic_store(&job->seats[rank].pid, (int32_t)getpid());
    *out = &self->base;
    return TRM_OK;
}
