/* SPDX-License-Identifier: Apache-2.0 */
/* tests/ranks.h, for tests only: runs a body on n ranks, as threads or as forked processes, and
 * collects their errors. Bodies use EXPECT instead of cmocka's assertions, because they do not run
 * in cmocka's thread. */
#ifndef TRMI_TESTS_RANKS_H
#define TRMI_TESTS_RANKS_H

#include "tests/lib/shared_job.h"
#include "trireme/dist.h"

#include "check.h"

#include "base/os.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a body knows of its rank, and its error. Of forked ranks it lies in shared memory. */
typedef struct rank_context {
    trmi_job *job; /* through which the ranks find each other (lib/shared_job.h) */
    int rank, size;
    void *arg;          /* of the test; the same for all ranks */
    char failure[640];  /* empty: no error */
    int pid;            /* of a forked rank */
    _Atomic int rounds; /* rounds that the rank has completed: ranks_wait */
} rank_context;

/* What one rank of a test does. */
typedef void rank_body(rank_context *context);

/* Ends the body, with a message of printf, unless the condition holds. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            int expect_used_ = snprintf(context->failure, sizeof context->failure,                 \
                                        "%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
            expect_used_ = expect_used_ < 240 ? expect_used_ : 240;                                \
            snprintf(context->failure + expect_used_, 400, "" __VA_ARGS__);                        \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define EXPECT_OK(call, err)                                                                       \
    EXPECT((call) == TRM_OK, "%s (%s:%d)", (err).message, (err).file, (err).line)

/* The options of a test for its bodies. Each body begins and ends with its rank's communicator. */
typedef struct rank_setup {
    trm_comm_options options;
    int mode;
} rank_setup;

#define OPEN_COMM()                                                                                \
    const rank_setup *given = context->arg;                                                        \
    trm_error err = {.status = 0};                                                                 \
    trm_bootstrap *boot = NULL;                                                                    \
    trm_comm *comm = NULL;                                                                         \
    const int rank = context->rank, size = context->size;                                          \
    (void)rank, (void)size, (void)given;                                                           \
    EXPECT_OK(trmi_bootstrap_shared(context->job, rank, &boot, &err), err);                        \
    EXPECT_OK(trm_comm_create(boot, &given->options, &comm, &err), err)
#define CLOSE_COMM()                                                                               \
    trm_comm_destroy(comm);                                                                        \
    boot->table->destroy(boot)

/* The argument of a rank's thread. */
typedef struct rank_start {
    rank_context *context;
    rank_body *body;
} rank_start;

static void *rank_thread(void *argument) {
    rank_start *start = argument;
    start->body(start->context);
    return NULL;
}

/* Starts without waiting: for tests that kill ranks. Returns shared contexts [size]. */
static inline rank_context *ranks_fork(trmi_job *job, int size, rank_body *body, void *arg) {
    rank_context *contexts = mmap(NULL, (size_t)size * sizeof *contexts, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < size; r++) {
        contexts[r] = (rank_context){.job = job, .rank = r, .size = size, .arg = arg};
        fflush(NULL);
        int pid = fork();
        if (pid == 0) {
            body(&contexts[r]);
            _exit(contexts[r].failure[0] != '\0');
        }
        contexts[r].pid = pid;
    }
    return contexts;
}

/* Waits until every rank has completed `rounds` rounds, so that a test disturbs a rank that is at
 * work on machines of any speed. */
static inline void ranks_wait(rank_context *contexts, int size, int rounds) {
    double deadline = trmi_os_now() + 60 * check_patience();
    for (int r = 0; r < size; r++) {
        while (atomic_load(&contexts[r].rounds) < rounds && trmi_os_now() < deadline) {
            usleep(2000);
        }
    }
}

/* Fails the test with the error of the first rank that has one. */
static inline void ranks_report(const rank_context *contexts, int size, const char *what) {
    for (int r = 0; r < size; r++) {
        if (contexts[r].failure[0] != '\0') {
            fail_msg("%s: rank %d of %d: %s", what, r, size, contexts[r].failure);
        }
    }
}

/* Runs the body on `size` ranks and waits for all of them. ranks_per_host: 0 = all on one host;
 * `forked`: each rank is a process, else a thread; `what` names the case in a failure. */
static inline void ranks_run(int size, int ranks_per_host, bool forked, rank_body *body, void *arg,
                             const char *what) {
    trm_error err;
    trmi_job *job = NULL;
    CHECK_OK(trmi_job_create(size, ranks_per_host, &job, &err), err);
    rank_context *contexts;
    if (forked) {
        contexts = ranks_fork(job, size, body, arg);
        for (int r = 0; r < size; r++) {
            int status = 0;
            waitpid(contexts[r].pid, &status, 0);
            if (WIFSIGNALED(status) || (WEXITSTATUS(status) != 0 && !contexts[r].failure[0])) {
                snprintf(contexts[r].failure, sizeof contexts[r].failure,
                         "ended with wait status 0x%x", status);
            }
        }
    } else {
        contexts = mmap(NULL, (size_t)size * sizeof *contexts, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_t threads[64];
        rank_start starts[64];
        for (int r = 0; r < size; r++) {
            contexts[r] = (rank_context){.job = job, .rank = r, .size = size, .arg = arg};
            starts[r] = (rank_start){&contexts[r], body};
            pthread_create(&threads[r], NULL, rank_thread, &starts[r]);
        }
        for (int r = 0; r < size; r++) {
            pthread_join(threads[r], NULL);
        }
    }
    ranks_report(contexts, size, what);
    munmap(contexts, (size_t)size * sizeof *contexts);
    trmi_job_destroy(job);
}

/* A body of a rank that has a communicator, created before it and destroyed after it. */
typedef void joined_body(rank_context *context, trm_comm *comm);
/* The argument of ranks_run for a joined_body. */
typedef struct joined_start {
    joined_body *body;
    void *arg;
} joined_start;

/* The body around a joined_body. */
static inline void rank_joined(rank_context *context) {
    const joined_start *start = context->arg;
    rank_setup with_patience = {.options = {.timeout_seconds = 120 * check_patience()}};
    context->arg = &with_patience;
    OPEN_COMM();
    context->arg = start->arg;
    start->body(context, comm);
    CLOSE_COMM();
}

/* Runs such a body, on ranks of one host (ranks_run). */
static inline void ranks_run_joined(int size, bool forked, joined_body *body, void *arg,
                                    const char *what) {
    joined_start start = {body, arg};
    ranks_run(size, 0, forked, rank_joined, &start, what);
}

#endif
