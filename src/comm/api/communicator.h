/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/communicator.h: internals of a communicator.
 *
 *   trm_comm                      one on every rank of it
 *     host -> registered memory   shared with its children
 *     shm  -> engine              the ranks of this host (all ranks, if there is one host)
 *     net  -> engine              all ranks, over the network; NULL if there is one host
 *
 *   caller --- run -----------------------------> engine      nothing pending: in the caller's thread
 *          \-- start --> queue --> progress thread --> engine  created by the first start
 *
 * Invariants: 1. An operation gets its sequence number when it is started, and operations run in
 * that order. 2. At most one thread runs engines at any time: the progress thread while `pending` >
 * 0, otherwise the caller. 3. A communicator has one calling thread. Only trm_request_test, the
 * abort and the trace may come from other threads. */
#ifndef TRMI_COMM_COMMUNICATOR_H
#define TRMI_COMM_COMMUNICATOR_H

#include "comm/api/comm_trace.h"
#include "comm/api/engine.h"
#include "comm/shm/shm.h"

#include <pthread.h>
#include <stdatomic.h>

/* Kind of a request: a collective, or an exchange of messages. */
typedef enum trmi_work_kind { TRMI_WORK_COLLECTIVE, TRMI_WORK_MESSAGES } trmi_work_kind;

/* One operation: a collective or an exchange of messages, blocking or asynchronous. */
struct trm_request {
    trm_comm *comm;      /* to which the request belongs */
    trm_request *next;   /* in the queue, in the list of active requests, or among the free ones */
    trmi_work_kind kind; /* which of the members below are used */
    trmi_engine_call op; /* the collective, resolved and signed */
    int64_t *counts;     /* the arrays of `op`: 4 x [size], allocated when first needed */
    trmi_engine_message *messages;           /* [message_count] the messages of an exchange */
    trmi_wait wait;                          /* the clock of the exchange's wait */
    int64_t message_count, message_capacity; /* length and capacity of `messages` */
    /* name of an exchange in errors and traces; the name of a collective is op.tag */
    const char *tag;
    char kept_tag[40];     /* copy of the name for a started operation, whose caller may free it */
    _Atomic uint32_t done; /* futex word: 1 once `status` and `error` are final */
    trm_status status;     /* result, once `done` */
    trm_error error;       /* of a failure */
};

/* A communicator of one rank. */
struct trm_comm {
    trm_bootstrap *bootstrap; /* the job, borrowed */
    /* the communicator from which this one was split, in the end; itself for a first one */
    trm_comm *root;
    trmi_group group;       /* the ranks, as engines get them */
    int32_t *members;       /* [size] each rank's number in the job */
    int32_t *local_members; /* [local_size] the ranks on this host, as ranks of this communicator */
    int32_t *local_job_ranks; /* [local_size] the same ranks, as ranks of the job */
    /* [size] index among the ranks of this host, -1 for ranks of other hosts */
    int32_t *local_index;
    int32_t *host_rank; /* [local_size] index of each rank of this host in `host` */
    /* ranks on this host, this rank among them, hosts */
    int32_t local_size, local_rank, host_count;
    int32_t split_count;      /* number of children made so far, for their names */
    trm_comm_options options; /* with defaults; its texts are the arrays below */
    /* the options' texts */
    char engine_name[96], name[48], algorithm[TRMI_ALGORITHM_BYTES], plugin_dir[256];
    char engine_text[40];   /* the engines in use, as text: "shm", "shm+tcp" */
    trmi_shm_host *host;    /* registered memory, counted */
    trmi_engine *shm, *net; /* owned; net: NULL without a network */
    /* comm/net/levels.c: sub-engines of the two-level collectives; NULL without them */
    void *levels;
    bool net_only;          /* messages inside the host use the network engine, too */
    bool crowded;           /* more ranks than CPUs on this host */
    double next_check_time; /* when an idle exchange next checks for failure and deadline */
    uint64_t sequence;      /* number of collectives started so far */
    /* [size] messages: turn in which each peer's messages were last blocked */
    uint32_t turn, *turn_sent, *turn_received;
    bool *missing;        /* [size] scratch: the peers that an exchange waits for */
    char *scratch;        /* input of an all-to-all in place, moved aside */
    size_t scratch_bytes; /* length of `scratch` */
    trm_request blocking; /* the request that blocking calls use, so that they allocate nothing */
    trm_collective last;  /* the caller's arguments of `blocking`, if it can be reused unchanged */
    /* Asynchronous operations. */
    trm_request *free_requests;    /* list of requests for reuse */
    pthread_mutex_t mutex;         /* protects the queue and `stopping` */
    pthread_cond_t changed;        /* signalled when the queue or `stopping` changes */
    pthread_t thread;              /* the progress thread */
    bool thread_started, stopping; /* the thread exists; it must end once the queue is empty */
    trm_request *queue_head, **queue_tail; /* requests that the thread has not taken yet */
    _Atomic int32_t pending;               /* number of queued and active requests */
    atomic_bool blocked;                   /* a thread is in a blocking call */
    _Atomic(trmi_trace *) trace; /* of the root: records its operations and those of its children */
};

/* Returns whether a thread is in a blocking call of the communicator, or requests are under way.
 *   threads  any */
bool trmi_comm_in_call(const trm_comm *comm);

/* comm_op.c: checks a caller's collective against the rules of trireme/dist.h and writes the
 * resolved form to request->op; its arrays go to request->counts.
 *   errors  INVALID, NOMEM */
trm_status trmi_comm_resolve(trm_comm *comm, const trm_collective *from, trm_request *request,
                             trm_error *err);
/* Checks `count` messages of one exchange and writes their resolved form to request->messages. */
trm_status trmi_comm_resolve_messages(trm_comm *comm, const trm_message *messages, int32_t count,
                                      trm_request *request, trm_error *err);

/* comm_run.c: runs a resolved request to its end, in this thread. background: this is the progress
 * thread, which sleeps earlier than a caller. */
trm_status trmi_comm_execute(trm_comm *comm, trm_request *request, bool background, trm_error *err);
/* Returns the failure of the job (OK if there is none), and appends to the message which operation
 * of this rank has not been done because of it. */
trm_status trmi_comm_report_failure(trm_comm *comm, const trm_request *request, trm_error *err);
/* Moves the messages of one request as far as possible without waiting; sets *moved if any moved.
 * It is called for all active requests in order with the same `turn`, so that a message never
 * overtakes an earlier one to or from the same peer. Returns PENDING while some messages are not
 * done. */
trm_status trmi_comm_move_messages(trm_comm *comm, trm_request *request, uint32_t turn, bool *moved,
                                   trm_error *err);
/* Sleeps until messages may move; checks for the job's failure and the deadline of `request`. */
trm_status trmi_comm_idle_messages(trm_comm *comm, trm_request *request, trm_error *err);

/* Removes the deadline of this communicator's operations, not of those of its children: its ranks
 * may wait for hours. Deaths still end a wait. */
void trmi_comm_wait_long(trm_comm *comm);
/* Returns the seconds in which the ranks of the job had to meet; 0: no limit is known. */
double trmi_comm_start_seconds(const trm_comm *comm);

/* Adds the time from `begin` (trmi_os_now) until now to the trace, if there is one. Operations of
 * the progress thread go to the communicator's own track, others to track 0. */
void trmi_comm_record(trm_comm *comm, const trm_request *request, bool background,
                      const char *category, double begin);

/* comm_map_root.c: makes `bytes` of zeroed memory that all ranks map, and that stays mapped when
 * ranks die or the communicator is destroyed. out->data is NULL where trmi_comm_can_map_root is
 * false. Collective.   owns  trmi_shm_segment_release
 *   errors   NOMEM, IO, those of trm_comm_run */
trm_status trmi_comm_make_segment(trm_comm *comm, size_t bytes, trmi_shm_segment *out,
                                  trm_error *err);

/* comm_map_root.c: returns whether all other ranks can map `memory`: trmi_comm_can_map_root, and it
 * is of a buffer from trm_comm_alloc_shared, of this rank or of another one. */
bool trmi_comm_reaches(trm_comm *comm, const void *memory, size_t bytes);
/* Maps the memory that each rank passes (NULL: none) on all ranks. The mappings stay valid when
 * ranks die, and when memory or communicator are gone. out[rank].data is NULL for ranks that have
 * passed none. Collective; all ranks on one host (trmi_comm_can_map_root).
 *   param    memory: trmi_comm_reaches is true
 *   owns     trmi_shm_segment_release of each
 *   errors   IO, NOMEM, those of trm_comm_run */
trm_status trmi_comm_map_each(trm_comm *comm, const void *memory, size_t bytes,
                              trmi_shm_segment *out, trm_error *err);

/* comm_async.c: ends the progress thread once the queue is empty. */
void trmi_comm_stop_thread(trm_comm *comm);
/* Frees a request with its arrays. */
void trmi_comm_free_request(trm_request *request);
/* Queues a resolved request after the pending ones and starts the progress thread if necessary.
 * Fails if the thread cannot be created. */
trm_status trmi_comm_enqueue(trm_comm *comm, trm_request *request, trm_error *err);
/* Returns a free request, from the free list or newly allocated.
 *   errors  NOMEM */
trm_status trmi_comm_take_request(trm_comm *comm, trm_request **out, trm_error *err);
/* Waits for a queued request, without a deadline of its own, and does not free it. The operation's
 * own deadline ends it. */
void trmi_comm_join_request(trm_request *request);

/* comm_split.c: runs an all-gather on `context`, a communicator (trmi_exchange). */
trm_status trmi_comm_allgather(void *context, const void *mine, size_t bytes, void *all,
                               trm_error *err);

/* The members of a communicator. */
typedef struct trmi_comm_members {
    trm_bootstrap *bootstrap; /* of the job */
    trm_comm *root;           /* the job's first communicator; NULL: it is being made */
    const int32_t *ranks;     /* [size] ranks of the job */
    int32_t size, rank;       /* rank: index of this rank among them */
} trmi_comm_members;
/* comm.c: creates a communicator. All members call it together over `exchange`. *out is destroyed
 * with trm_comm_destroy. */
trm_status trmi_comm_make(const trmi_comm_members *members, const trm_comm_options *options,
                          const trmi_exchange *exchange, trm_comm **out, trm_error *err);

#endif
