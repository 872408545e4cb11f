/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/communicator.h: a communicator, inside.
 *
 *   trm_comm                      every rank of it
 *     host -> registered memory   shared with its children
 *     shm  -> engine              the ranks of this host (all of them, if there is one host)
 *     net  -> engine              all ranks, over the network; NULL if there is one host
 *
 *   caller --- run -----------------------------> engine      nothing pending: in the caller's thread
 *          \-- start --> queue --> progress thread --> engine  the thread begins with the first start
 *
 * 1. Operations take their sequence number when they are started and run in that order.
 * 2. At most one thread runs engines at any time: the progress thread while `pending` > 0,
 *    otherwise
 *    the caller.
 */
#ifndef TRMI_COMM_COMMUNICATOR_H
#define TRMI_COMM_COMMUNICATOR_H

#include "comm/api/comm_trace.h"
#include "comm/api/engine.h"
#include "comm/shm/shm.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum trmi_work_kind { TRMI_WORK_COLLECTIVE, TRMI_WORK_MESSAGES } trmi_work_kind;

struct trm_request {
    trm_comm *comm;
    trm_request *next;
    trmi_work_kind kind;
    trmi_engine_call op;
    int64_t *counts; /* the op's arrays: 5 x [size], made at first need */
    trmi_engine_message *messages;
    trmi_wait wait;
    int64_t message_count, message_capacity;
    const char *tag;       /* of messages, as op.tag of a collective */
    char kept_tag[40];     /* the copy of a started operation */
    _Atomic uint32_t done; /* futex word */
    trm_status status;
    trm_error error;
};

struct trm_comm {
    trm_bootstrap *bootstrap;
    trm_comm *root; /* the first communicator (itself, if it is) */
    trmi_group group;
    int32_t *members;         /* [size] rank in the job */
    int32_t *local_members;   /* [local_size] rank in this communicator of the ranks on this host */
    int32_t *local_job_ranks; /* [local_size] their ranks in the job */
    int32_t *local_index;     /* [size] index among the host's ranks, -1 elsewhere */
    int32_t *host_rank;       /* [local_size] index in `host` */
    int32_t local_size, local_rank, host_count;
    int32_t split_count; /* children so far */
    trm_comm_options options;
    char engine_name[96], name[48], algorithm[TRMI_ALGORITHM_BYTES], plugin_dir[256];
    char engine_text[40]; /* what it became: "shm", "shm+tcp" */
    trmi_shm_host *host;
    trmi_engine *shm, *net;
    void *levels;  /* comm_levels.c: sub-engines of the two-level collectives, NULL without */
    bool net_only; /* even messages inside the host take the network */
    bool crowded;  /* more ranks than CPUs on this host */
    double next_check_time;
    uint64_t sequence;
    uint32_t turn, *turn_sent, *turn_received; /* [size] messages: who was held up in which turn */
    bool *missing;                             /* [size] scratch of reports */
    char *scratch;                             /* for all-to-all in place */
    size_t scratch_bytes;
    trm_request blocking; /* the one that blocking calls use: no allocation */
    trm_collective last;  /* what it was last resolved from, if that may be reused as it is */
    /* asynchronous operations */
    trm_request *free_requests;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool thread_started, stopping;
    trm_request *queue_head, **queue_tail;
    _Atomic int32_t pending;
    _Atomic(trmi_trace *) trace; /* of the root: what records its operations and its children's */
};

/* comm_op.c: checks a caller's operation and resolves it; arrays go to request->counts. */
trm_status trmi_comm_resolve(trm_comm *comm, const trm_collective *from, trm_request *request,
                             trm_error *err);
trm_status trmi_comm_resolve_messages(trm_comm *comm, const trm_message *messages, int32_t count,
                                      trm_request *request, trm_error *err);

/* comm_run.c: runs what was resolved, in this thread. */
trm_status trmi_comm_execute(trm_comm *comm, trm_request *request, bool background, trm_error *err);
/* Why nothing goes on on a poisoned communicator, and what of `request` is not done. */
trm_status trmi_comm_refuse(trm_comm *comm, const trm_request *request, trm_error *err);
/* Moves the messages of one request as far as they go; *moved if any did. Called for all requests
 * of a list, in order, with one `turn`: a message never overtakes an earlier one to or from the
 * same peer. PENDING while some are not done. */
trm_status trmi_comm_move_messages(trm_comm *comm, trm_request *request, uint32_t turn, bool *moved,
                                   trm_error *err);
/* Sleeps until messages may move; checks deadlines of `request`. */
trm_status trmi_comm_idle_messages(trm_comm *comm, trm_request *request, trm_error *err);

/* Adds what lasted from `begin` until now: in the background on the communicator's track, else on
 * track 0. */
void trmi_comm_record(trm_comm *comm, const trm_request *request, bool background,
                      const char *category, double begin);

/* comm_async.c */
void trmi_comm_stop_thread(trm_comm *comm);
void trmi_comm_free_request(trm_request *request);
/* Queues a resolved request behind those that are pending; false if there is no thread for it. */
trm_status trmi_comm_enqueue(trm_comm *comm, trm_request *request, trm_error *err);
trm_status trmi_comm_take_request(trm_comm *comm, trm_request **out, trm_error *err);
/* Waits for a queued request without freeing it. */
void trmi_comm_join_request(trm_request *request);

/* comm.c: makes the communicator of `members` (of the job), exchanging over `exchange`. */
trm_status trmi_comm_make(trm_bootstrap *bootstrap, trm_comm *root, const int32_t *members,
                          int32_t size, int32_t rank, const trm_comm_options *options,
                          const trmi_exchange *exchange, trm_comm **out, trm_error *err);

#endif
