/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side.h: the side channel, a star around rank 0 that outlives the rendezvous.
 *
 *   rank 1 --\                      each rank: one service thread, apart from progress
 *   rank 2 ---+-- rank 0            rank 0: one link per rank, gathers exchanges, decides the first
 *   rank n --/                      cause and tells it to all
 *
 *   forming --all ranks came--> joined --leave--> gone
 *                                 \--a death, silence or poison--> poisoned (for ever)
 *
 * 1. lock guards everything below it. The service thread polls without it.
 * 2. alarm becomes 1 after cause is complete.
 * 3. Rank 0's cause is the job's: another rank takes over what rank 0 broadcasts. */
#ifndef TRMI_COMM_SIDE_H
#define TRMI_COMM_SIDE_H

#include "trireme/cluster.h"

#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/side_hello.h"
#include "comm/rendezvous/side_place.h"

#include <pthread.h>

enum { TRMI_SIDE_RANKS_MAX = 16384 };

typedef struct trmi_peer {
    int32_t pid, device;
    uint8_t host_id[32];
    char host[TRMI_HOST_NAME_BYTES];
    char address[TRMI_HOST_NAME_BYTES];
} trmi_peer;

/* One all-gather in progress: rank 0 collects, every rank may wait. */
typedef struct trmi_exchange_state {
    int64_t id;     /* rank 0: being collected; 0 if none */
    size_t bytes;   /* of one blob */
    uint8_t *blobs; /* rank 0: [size * bytes] */
    int64_t capacity;
    bool *arrived; /* rank 0: [size] */
    int32_t count;
    double began_time, said_time;
    int64_t waiting_id; /* this rank's own call; 0 if none */
    size_t waiting_bytes;
    void *waiting_all;
    bool done;
    trm_error result;  /* status TRM_OK when it worked */
    char missing[160]; /* rank 0's answer to WHO */
    int64_t missing_id;
} trmi_exchange_state;

typedef struct trmi_side {
    trm_bootstrap base;
    trm_join_options options; /* defaults filled in */
    trmi_peer *peers;         /* [size] */
    int32_t *host_of;         /* [size] */
    char address[TRMI_HOST_NAME_BYTES];
    uint8_t secret[32]; /* sign() */
    char algorithm[TRMI_ALGORITHM_BYTES];
    uint32_t alarm;
    trmi_link watcher; /* rank 0: of the process that waits for the job's end; fd -1 without */
    pthread_t thread;
    bool started;
    int wake_fd;
    struct pollfd *polls; /* [link_count + 1] */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    trmi_link *links; /* rank 0: [size], links[0] unused; otherwise one */
    int32_t link_count;
    bool stop;
    trm_error cause;
    int64_t last_id;
    trmi_exchange_state exchange;
} trmi_side;

/* What a rank brings to the rendezvous. */
typedef struct trmi_join {
    trmi_hello hello; /* rank, size, digest, key, host, ... of this rank */
    char address[64]; /* on which peers are to reach this rank; "": that of its route to rank 0 */
    /* Rank 0's sockets, where they are open already: that the first one can open them makes it
     * rank 0. */
    trmi_listener listener;
    bool listens;
    bool watched; /* rank 0 waits for a scheduler, too, for some seconds */
    trmi_place place;
    bool has_token;
    uint8_t token[32];
    trm_join_options options;
    const char *hint; /* said behind who is missing, or "" */
} trmi_join;

/* side_root.c / side_peer.c: meet. Fill side->links, peers, base.rank, secret.
 *   error  as trm_cluster_join */
trm_status trmi_side_root(trmi_side *side, trmi_join *join, trm_error *err);
trm_status trmi_side_peer(trmi_side *side, trmi_join *join, trm_error *err);
/* side_watch.c: a process outside the ranks waits for the end of their job.   error  END, the job
 * has ended or was not met in time; as trm_cluster_join */
trm_status trmi_side_watch(trmi_join *join, trm_error *err);
/* Proves to rank 0 at `fd` who this is. PENDING: that is not rank 0, or not yet; *wrong_token: it
 * has another token. */
trm_status trmi_side_introduce(trmi_join *join, int fd, const uint8_t secret[32], trmi_link *link,
                               bool *wrong_token, trm_error *err);

/* The welcome that rank 0 sends: rank, size, nonce, one entry per rank. */
enum { TRMI_WELCOME_HEAD = 48, TRMI_WELCOME_ENTRY = 136 };
size_t trmi_welcome_encode(const trmi_side *side, int32_t rank, const uint8_t nonce[32],
                           uint8_t *wire);
/* Takes over size, peers and rank.   error  CORRUPT, NOMEM */
trm_status trmi_welcome_decode(trmi_side *side, const uint8_t *wire, size_t bytes,
                               int32_t expected_size, uint8_t nonce[32], trm_error *err);

/* side_serve.c: the service thread. */
trm_status trmi_side_start(trmi_side *side, trm_error *err);
void trmi_side_stop(trmi_side *side);
/* With the lock held. */
void trmi_side_wake(trmi_side *side);
void trmi_side_raise(trmi_side *side, const trm_error *cause);
const char *trmi_side_name(const trmi_side *side, int32_t rank, char text[112]);

/* side_exchange.c; with the lock held. */
void trmi_exchange_arrive(trmi_side *side, int32_t rank, int64_t id, const void *blob,
                          size_t bytes);
void trmi_exchange_who(trmi_side *side, int32_t rank, int64_t id);
void trmi_exchange_finish(trmi_side *side, int64_t id, const trm_error *result, const void *all,
                          size_t bytes);
/* Rank `rank` will never arrive again: exchanges that wait for it fail. */
void trmi_exchange_left(trmi_side *side, int32_t rank);
void trmi_exchange_tick(trmi_side *side, double now);
trm_status trmi_side_allgather(trm_bootstrap *bootstrap, const void *mine, size_t bytes, void *all,
                               double timeout_seconds, trm_error *err);
trm_status trmi_side_barrier(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err);

/* "1, 2, 5 to 7": the ranks for which `here` is false, cut after a few. */
const char *trmi_missing_ranks(const bool *here, int32_t size, char text[96]);

#endif
