/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side.h: the control channel: a connection from each rank to rank 0 that lasts as
 * long as the job. The ranks meet over it (rendezvous), and afterwards it carries heartbeats, the
 * first cause of a failure, and slow all-gathers. Names of files and functions call it *side*.
 *
 *   rank 1 --\                      every rank: one service thread (side_serve.c)
 *   rank 2 ---+-- rank 0            rank 0: one link for each rank; collects exchanges, decides which
 *   rank n --/                      cause was first and sends it to all
 *
 *   forming --all ranks have come--> joined --leave--> gone
 *                                       \--a death, silence or poison--> poisoned (for ever)
 *
 * Files: rendezvous_tcp.c (trm_cluster_join), side_root.c and side_peer.c (the meeting),
 * side_place.c (addresses), side_hello.c (what a rank declares), side_link.c (frames), side_serve.c
 * (the thread), side_exchange.c (all-gather), side_watch.c (a process that waits for the job's
 * end).
 *
 * Invariants: 1. `lock` protects the members below it. The service thread does not hold it while it
 * polls. 2. `alarm` becomes 1 after `cause` is complete. 3. Rank 0's cause is the job's: another
 * rank replaces its own cause by the one that rank 0 sends. */
#ifndef TRMI_COMM_SIDE_H
#define TRMI_COMM_SIDE_H

#include "trireme/dist.h"

#include "base/net/net.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/side_hello.h"
#include "comm/rendezvous/side_place.h"
#include "comm/rendezvous/token.h"

#include <pthread.h>

enum { TRMI_SIDE_RANKS_MAX = 16384 }; /* ranks of a job, at most */

/* The description of one rank that all ranks get with the WELCOME. */
typedef struct trmi_peer {
    int32_t pid, device;                /* device: number from the rank table, or -1 */
    uint8_t host_id[32];                /* equal for ranks that can share memory */
    char host[TRMI_HOST_NAME_BYTES];    /* name, for messages */
    char address[TRMI_HOST_NAME_BYTES]; /* numeric address of its data connections */
} trmi_peer;

/* The present all-gather: rank 0 collects the blobs of all ranks, and every rank may wait for its
 * own call. There is at most one at a time. */
typedef struct trmi_exchange_state {
    int64_t id;       /* rank 0: number of the exchange that is being collected; 0: none */
    size_t bytes;     /* length of one rank's blob */
    uint8_t *blobs;   /* rank 0: [size * bytes] */
    int64_t capacity; /* capacity of `blobs`, in bytes */
    bool *arrived;    /* rank 0: [size] ranks whose blob is here */
    int32_t count;    /* ranks whose blob is here */
    double began_time, said_time; /* when it began; when the missing ranks were last logged */
    int64_t waiting_id;           /* number of this rank's own call; 0: none */
    size_t waiting_bytes;         /* length of this rank's blob */
    void *waiting_all;            /* where this rank's result goes */
    bool done;                    /* `result` is valid */
    trm_error result;             /* of this rank's call; status TRM_OK if it succeeded */
    char missing[160];            /* rank 0's answer to a WHO frame: the missing ranks as text */
    int64_t missing_id;           /* the exchange that `missing` is about */
} trmi_exchange_state;

/* The control channel of one rank. */
typedef struct trmi_side {
    trm_bootstrap base;                   /* must be the first member */
    trm_join_options options;             /* with the defaults filled in */
    trmi_peer *peers;                     /* [size] */
    int32_t *host_of;                     /* [size] */
    char address[TRMI_HOST_NAME_BYTES];   /* of this rank; base.address points here */
    uint8_t secret[32];                   /* the key of sign(), the same on all ranks */
    char algorithm[TRMI_ALGORITHM_BYTES]; /* HCCL_ALGO; base.algorithm points here */
    uint32_t alarm;    /* futex word: 1 once the job has failed; read without the lock */
    trmi_link watcher; /* rank 0: link to the process that waits for the job's end; fd -1: none */
    pthread_t thread;  /* the service thread */
    bool started;      /* `thread` exists */
    int wake_fd;       /* eventfd that wakes the service thread */
    struct pollfd *polls; /* [link_count + 1] used by the service thread only */

    pthread_mutex_t lock;   /* protects the members below */
    pthread_cond_t changed; /* signalled when a waiting call may continue */
    trmi_link *links;       /* rank 0: [size], links[0] unused; other ranks: one link, to rank 0 */
    int32_t link_count;     /* length of `links` */
    bool stop;              /* the rank leaves the job */
    trm_error cause;        /* the job's failure, once `alarm` is 1 */
    int64_t last_id;        /* number of the last exchange that this rank began */
    trmi_exchange_state exchange; /* the present all-gather */
} trmi_side;

/* The input of one rank to the rendezvous. */
typedef struct trmi_join {
    trmi_hello hello; /* rank, size, digest, key, host, ... of this rank */
    /* address on which peers are to reach this rank; "": that of its route to rank 0 */
    char address[64];
    /* Rank 0: sockets that are already open. In a job whose ranks have no numbers, the process that
     * could open them is rank 0. */
    trmi_listener listener;
    bool listens;             /* `listener` is open */
    bool watched;             /* rank 0 also waits for a scheduler process, for some seconds */
    bool leads;               /* all ranks below this one are lost: it listens in place of rank 0 */
    trmi_place place;         /* where rank 0 listens */
    bool has_token;           /* the job has a token file */
    uint8_t token[32];        /* overwritten after the rendezvous */
    trm_join_options options; /* with the defaults filled in */
    const char *hint;         /* appended to messages about missing ranks, or "" */
    /* Rank 0 begins without ranks that have not come where at least `least` have, and none came in
     * the last quiet_seconds: the first meeting of an elastic job. least 0: it waits for all. */
    int32_t least;
    double quiet_seconds;
    /* A job of one rank that others may join opens its place before it begins, so that no second
     * process begins the job: `holds` gets the open place, which uses `lasting`, the same job for
     * as long as it is open. NULL: a rank that is alone opens none. */
    struct trmi_reception *holds;
    struct trmi_join *lasting;
    /* Ends the meeting before its deadline, with PEER, once it returns true: the list of ranks is
     * no longer valid. Called a few times a second. NULL: never. */
    bool (*abandoned)(void *context);
    void *abandoned_context;
    /* The place is for this meeting alone: where it has let this rank in once, and then refuses
     * connections, rank 0 has ended the meeting: PEER. */
    bool once;
    /* The place belongs to an elastic job that runs already: gets its frame RUNNING and returns
     * END.
     * NULL: this is an error. */
    trm_status (*running)(void *context, const struct trmi_join *join, const trmi_link *link,
                          const trmi_frame *frame, trm_error *err);
    void *running_context;
    /* settings that communicators read from the bootstrap: HCCL_EXEC_TIMEOUT, HCCL_DETERMINISTIC,
     * HCCL_ALGO ("": none) */
    double exec_seconds;
    int32_t deterministic;
    char algorithm[TRMI_ALGORITHM_BYTES];
} trmi_join;

/* Fills in what this rank sends to the meeting of a cluster description. Errors as
 * trm_cluster_join. */
trm_status trmi_side_prepare(const trm_cluster *cluster, const trm_join_options *options,
                             trmi_join *join, trm_error *err);
/* Fills in the place where the job meets, and its token. trmi_side_prepare does so where there are
 * other ranks to meet.
 *   errors  INVALID, those of trm_token_read */
trm_status trmi_side_find_place(const trm_cluster *cluster, trmi_join *join, trm_error *err);
/* Meets the other ranks. Overwrites the secrets in *join. Errors as trm_cluster_join; END:
 * join->running has been called. */
trm_status trmi_side_join(const trm_cluster *cluster, trmi_join *join, trm_bootstrap **out,
                          trm_error *err);

/* Meet the other ranks: side_root.c on rank 0, side_peer.c on the others. They fill side->links,
 * peers, base.rank and secret. Errors as trm_cluster_join. */
trm_status trmi_side_root(trmi_side *side, trmi_join *join, trm_error *err);
trm_status trmi_side_peer(trmi_side *side, trmi_join *join, trm_error *err);
/* Asks the process that listens at the place whether the elastic job runs already. END: it does,
 * and join->running has been called; OK: it does not, or no process listens. send_first:
 * called with the connection before the question; NULL: nothing. */
trm_status trmi_side_ask_running(trmi_join *join,
                                 void (*send_first)(void *context, trmi_link *link), void *context,
                                 trm_error *err);
/* Elastic jobs: returns whether all ranks below this one have died before the meeting
 * (side_place.h). */
bool trmi_side_leads(const trmi_join *join);
/* An open place: its sockets, what proves connections there, and the files of a published token. */
typedef struct trmi_reception {
    trmi_listener listener;
    trmi_acceptor *acceptor;
    char published[TRMI_LISTENERS_MAX][TRMI_TOKEN_PATH_BYTES]; /* one for each address */
} trmi_reception;
#define TRMI_RECEPTION_CLOSED ((trmi_reception){.listener = {.lock_fd = -1}})
/* Opens join->place (or takes join->listener), chooses the token if none is given, and accepts
 * connections.
 *   errors  as trmi_listen, NOMEM, IO */
trm_status trmi_reception_open(trmi_join *join, double deadline, trmi_reception *out,
                               trm_error *err);
void trmi_reception_close(trmi_reception *reception, const trmi_join *join);
/* Sends a refusal that the peer can read and closes the link. The peer has proved the token, so the
 * text may describe the job. */
void trmi_side_refuse(trmi_link *link, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);
/* Fails with PEER once join->abandoned says so. */
trm_status trmi_side_check_abandoned(const trmi_join *join, trm_error *err);
/* Fails with PEER where an elastic job has ended: one of its ranks has ended well, and the last
 * `attempts` attempts (five a second) have found no other. Attempts are counted, not seconds,
 * because a process that was stopped has not looked for any. */
trm_status trmi_side_check_ended(const trmi_join *join, int32_t attempts, trm_error *err);
/* rendezvous_tcp.c: a job whose ranks need no cluster description to meet, because each knows its
 * rank, the size, the token and where rank 0 listens (join->hello, token, place or listener): an
 * epoch of an elastic job. Errors as trm_cluster_join. */
trm_status trmi_side_meet(trmi_join *join, trm_bootstrap **out, trm_error *err);
/* side_watch.c: a process outside the ranks waits for the end of their job. It returns END when the
 * job has ended or was not found in time, else errors as trm_cluster_join. */
trm_status trmi_side_watch(trmi_join *join, trm_error *err);
/* Proves to rank 0, at `fd`, which rank this is, and receives rank 0's proof. `secret` is what a
 * rendezvous file contained. On success *link is ready. Returns PENDING if the process at `fd` is
 * not rank 0 or not ready; *wrong_token is then set if it has another token. */
trm_status trmi_side_introduce(trmi_join *join, int fd, const uint8_t secret[32], trmi_link *link,
                               bool *wrong_token, trm_error *err);

/* The frame WELCOME from rank 0: rank, size, nonce, and one entry for each rank. `wire` must have
 * room for all entries. Returns the length. */
enum { TRMI_WELCOME_HEAD = 48, TRMI_WELCOME_ENTRY = 136 };
size_t trmi_welcome_encode(const trmi_side *side, int32_t rank, const uint8_t nonce[32],
                           uint8_t *wire);
/* Reads a WELCOME into size, peers and rank; of at least `least` ranks, and at most
 * side->base.size.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_welcome_decode(trmi_side *side, const uint8_t *wire, size_t bytes, int32_t least,
                               uint8_t nonce[32], trm_error *err);

/* side_serve.c: starts the service thread on the links that the meeting has made. */
trm_status trmi_side_start(trmi_side *side, trm_error *err);
/* Sends BYE to the peers, ends the thread once its data are sent, and closes the links. */
void trmi_side_stop(trmi_side *side);
/* Interrupts the poll of the service thread. The caller holds the lock, also in the calls below. */
void trmi_side_wake(trmi_side *side);
/* Poisons the job: stores the first cause and wakes all sleepers; rank 0 also sends it to all
 * ranks. */
void trmi_side_raise(trmi_side *side, const trm_error *cause);
/* Writes "rank 3 (host pid 42)"; returns text. */
const char *trmi_side_name(const trmi_side *side, int32_t rank, char text[112]);

/* side_exchange.c, with the lock held: takes, on rank 0, a blob of `rank` for exchange `id`. */
void trmi_exchange_arrive(trmi_side *side, int32_t rank, int64_t id, const void *blob,
                          size_t bytes);
/* Sends the missing ranks of exchange `id` to rank `rank`, which has requested them (rank 0). */
void trmi_exchange_send_missing(trmi_side *side, int32_t rank, int64_t id);
/* Ends this rank's own call `id`, with the blobs of all ranks or an error. */
void trmi_exchange_finish(trmi_side *side, int64_t id, const trm_error *result, const void *all,
                          size_t bytes);
/* Fails the exchanges that wait for `rank`, which has left. */
void trmi_exchange_left(trmi_side *side, int32_t rank);
/* Logs an exchange that waits long (rank 0). */
void trmi_exchange_tick(trmi_side *side, double now);
/* Run the bootstrap's all-gather and barrier; called without the lock. */
trm_status trmi_side_allgather(trm_bootstrap *bootstrap, const void *mine, size_t bytes, void *all,
                               double timeout_seconds, trm_error *err);
trm_status trmi_side_barrier(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err);

/* Writes the ranks for which `here` is false as "1, 2, 5 to 7", shortened after a few; returns
 * text. */
const char *trmi_missing_ranks(const bool *here, int32_t size, char text[96]);

#endif
