/* SPDX-License-Identifier: Apache-2.0 */
/* ps/server/server.h: the parts of a server.
 *
 *   link thread (one a connection): receive, check, decode
 *        |  front: under one mutex, decides what may go on now, so that all shards see the same
 * order
 *        v
 *   queue of each shard --> owner thread: pull, push, order --> the last one sends the answer
 */
#ifndef TRMI_PS_SERVER_H
#define TRMI_PS_SERVER_H

#include "base/queue.h"
#include "ps/wire/channel.h"
#include "ps/snapshot/cut.h"
#include "ps/server/lease.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct trmi_request trmi_request;
typedef struct trmi_shard_thread trmi_shard_thread;

typedef struct trmi_ps_link {
    trm_ps_server *server;
    trmi_channel *channel;
    pthread_t thread;
    pthread_mutex_t send_mutex;   /* over reserve, late */
    trmi_request *late;           /* answers that its client has no room for yet, oldest first */
    int32_t worker;               /* -1 before HELLO */
    _Atomic uint32_t incarnation; /* of its last message */
    bool welcome;
    _Atomic int32_t requests; /* under way */
    _Atomic bool ended;       /* the thread has left */
    struct trmi_ps_link *next;
} trmi_ps_link;

/* Orders of control messages: note.value[0]. */
typedef enum trmi_order {
    TRMI_ORDER_STATS = 1, /* 1: table                    answer: trm_table_stats */
    TRMI_ORDER_ROW,       /* 1: table, 2: key            answer: trm_row_info, floats, writers */
    TRMI_ORDER_HOLD,      /* 1: cut                      answer: trmi_push_id of every worker */
    TRMI_ORDER_CUT,       /* 1: cut, 2: differential     trailer: ids; answer: trmi_cut_file[] */
    /* 1: the cut that is complete, 0 = none, 2: differential   trailer: manifest */
    TRMI_ORDER_RELEASE,
    TRMI_ORDER_BYE, /* 1: only for a while; it keeps its leases */
    TRMI_ORDER_STOP,
    TRMI_ORDER_LEASE, /* 1: samples, 2: of a lease, 3: epochs, 4: timeout in ms, 5: last one known,
                         6: samples_max, 7: batch
                             answer: 1: id, 2: epoch, 3: begin, 4: end, 5: END or PENDING,
                             6: book */
    TRMI_ORDER_WORKERS, /* answer: trm_ps_worker[] */
    TRMI_ORDER_TABLES,  /* 1: number               answer: 1: how many; trm_table_options, name */
    /* 1: own pushes that are settled; trailer: steps   answer: server 0: steps */
    TRMI_ORDER_STEPS,
    /* 1: trm_ps_chief_wish   answer: 1: granted, 2: whose + 1, 3: silent ms, 4: lease ms */
    TRMI_ORDER_CHIEF,
    TRMI_ORDER_PUSHED, /* 1: this push and those before it are on all servers */
    TRMI_ORDER_BEGINS /* SYNC, of a worker's new life, 1: 0   answer: 1: the last batch that may be in a step here
                           1: the last one of all servers       answer: 1: it is here, or done
                           1: a batch that all servers have, 2: 1 */
} trmi_order;

struct trmi_request {
    trmi_ps_link *link;    /* NULL: of the server itself */
    trm_ps_server *server; /* of steps */
    trmi_message message;
    trmi_ps_header header;
    trmi_ps_note note;
    trmi_ps_section *sections;
    uint32_t *first; /* sections of shard s are [first[s], first[s + 1]) */
    void (*run)(trmi_shard_thread *runner, trmi_request *request);
    bool (*send)(trmi_request *request); /* in a link's `late`: tries again; false = no room */
    /* by the last shard, instead of an answer; NULL = answer */
    void (*finish)(trmi_request *request);
    /* before the answer, when all shards have it without an error; NULL = nothing */
    void (*landed)(const trmi_request *request);
    _Atomic int32_t pending; /* shards that have not finished */
    trmi_message reply;      /* ROWS: reserved */
    double deadline;
    pthread_mutex_t mutex; /* over the rest, while shards work */
    trm_error err;
    bool applied, dropped, later; /* later: its run finishes it elsewhere */
    bool partial;                 /* SYNC: a push that other servers may not have */
    bool again;                   /* of a group: the step that the logs end with is made again */
    uint8_t *trailer;             /* of the answer */
    size_t trailer_bytes;
    trmi_request **members; /* SYNC: pushes summed, in order of workers */
    uint32_t member_count;
    trmi_push_id *ids; /* of a step: whose staged pushes it sums */
    uint32_t id_count;
    double started, late_since; /* late_since: 0 = never */
    trmi_request *next;
};

struct trmi_shard_thread {
    trm_ps_server *server;
    trmi_shard *shard;
    trmi_cut *cut;
    trmi_queue *queue;
    pthread_t thread;
    bool started;
};

typedef struct trmi_life {
    uint32_t worker, incarnation; /* the last that was given to a process of this worker */
} trmi_life;

/* Server 0: who may take checkpoints and end the job. */
typedef struct trmi_chief {
    bool held, gone; /* gone: the holder has said that it leaves */
    uint32_t worker, incarnation;
    double heard; /* the holder's last word, or when this server began */
} trmi_chief;

/* server_lag.c: how often the tables of a batch had been updated when it read them. */
enum { TRMI_READS = 4 }; /* batches of a worker under way, and one more */
typedef struct trmi_reads {
    int64_t clock;
    int64_t *updates; /* [count], -1 = not read */
    int64_t capacity;
    uint32_t count;
} trmi_reads;
typedef struct trmi_lag_counts {
    int64_t of[TRM_PS_LAGS], sum;
} trmi_lag_counts;
/* By table. */
typedef struct trmi_lag {
    int32_t *staleness; /* as declared; 0 = the job's */
    bool *declared;     /* in this life */
    int64_t *updates;   /* pushes that had rows of it */
    int64_t *last_push; /* the last of them */
    int64_t push;       /* the number of this one */
    trmi_lag_counts *counts;
} trmi_lag;

/* What the front knows of a worker. */
typedef struct trmi_worker {
    uint32_t worker, incarnation;
    uint64_t dispatched; /* last push given to the shards */
    int64_t clock;       /* batches finished, as far as they were given to the shards */
    int64_t done;        /* and as far as all shards have them: no restart forgets these */
    bool active;         /* waited for in BOUNDED and SYNC mode */
    bool away;           /* has left, or rests: as its file says */
    /* has said that it is done; who has no samples just now is not active, but here */
    bool left;
    double seen;
    trmi_reads reads[TRMI_READS];
} trmi_worker;

/* Who is in a step: decided by server 0, told by the workers to the other servers. */
typedef struct trmi_sync_step {
    int64_t step;
    uint32_t count;
    trmi_push_id *ids; /* in order of workers */
    int64_t *leases;   /* [count][2] lease, position; while a server starts, else NULL */
} trmi_sync_step;

/* server_last_step.c: a member of the last step of the logs. */
typedef struct trmi_last_member {
    trmi_push_id id;
    bool keeps; /* its worker does not push this batch again */
} trmi_last_member;
typedef struct trmi_last_step {
    int64_t step; /* 0 = none is held */
    uint32_t count;
    trmi_last_member *members;
} trmi_last_step;

struct trm_ps_server {
    trm_ps_server_options options;
    char folder[256], spill_folder[256];
    uint8_t token[32];
    char token_path[160]; /* where it is published, "" = nowhere */
    char address[96];
    trmi_shard_thread *runners;
    uint32_t shards;
    struct trmi_acceptor *gate; /* its listener, NULL = local clients only */
    pthread_t acceptor;
    bool acceptor_runs;
    _Atomic bool stopping, stop_asked;
    _Atomic uint32_t global_step; /* pushes that the first shard has applied */

    pthread_mutex_t mutex; /* the front */
    pthread_cond_t changed;
    trmi_ps_link *links;
    int64_t links_ever;
    int32_t widths[TRMI_PS_TABLES_MAX];
    trm_table_options *tables; /* names owned */
    uint32_t table_count;
    trmi_lag lag;
    trm_error failed; /* status TRM_OK, or why nothing is served any more */
    trmi_worker *workers;
    int64_t worker_count, worker_capacity;
    bool counted;          /* options.workers was given: these, from 0 on, are the job's */
    int64_t step;          /* SYNC: batches given to the shards */
    int64_t done_step;     /* and that all shards have */
    uint16_t sum_dtype;    /* SYNC: of everybody's gradients, from the first push on */
    trmi_request *parked;  /* pulls that wait for clocks */
    trmi_request *waiting; /* SYNC: pushes of batches >= step; else: pushes held by a cut */
    bool held;
    const trmi_ps_link *holder; /* who asked for that, NULL = nobody */
    const trmi_push_id *until;  /* while a cut collects pushes: how far each worker's go */
    uint32_t until_count;
    trmi_request *staged;  /* server 0: pushes that all its shards keep, in no step yet */
    trmi_last_step last;   /* SYNC: of the logs, until it is known whether all servers have it */
    bool staging;          /* SYNC: samples are lent, pushes are staged */
    trmi_sync_step *steps; /* server 0: decided, and perhaps not yet everywhere */
    int64_t step_count, step_capacity;
    /* the step that all other servers have finished */
    int64_t told;
    int steps_fd;            /* log of the steps, -1 = none */
    int64_t steps_bytes;     /* in it */
    trmi_chief chief;        /* server 0's */
    trmi_lease_book *leases; /* server 0's */
    int lease_fd;            /* their log, -1 = none */
    trmi_life *lives;
    int64_t life_count, life_capacity;
    int away_fd;          /* log of who is away, and of lives, -1 = none */
    uint32_t last_cut;    /* begun or loaded */
    bool last_cut_failed; /* then the next one is full */
    /* shards that have their part of it still to write */
    _Atomic int32_t writing;
    uint32_t full_cut, older_full_cut, oldest_cut; /* complete; 0 = none */
};

/* --- requests (server_request.c) -----------------------------------------------------------------
 */
trmi_request *trmi_request_new(trmi_ps_link *link, trmi_message *message,
                               const trmi_ps_header *header);
/* Hands a request to all shards. Pushes: front mutex held, so that all shards see the same order.
 */
void trmi_request_dispatch(trm_ps_server *server, trmi_request *request);
/* Pulls that the front has let go (a list), without its mutex. */
void trmi_request_pulls_go(trmi_request *list);
/* Keeps the first error. */
void trmi_request_fail(trmi_request *request, const trm_error *err);
/* A shard is done with it; the last one answers and frees. */
void trmi_request_finish(trmi_request *request);
/* Frees without an answer: its sender has sent it again. */
void trmi_request_forget(trmi_request *request);
/* Answers at once (err or note and trailer) and frees; waits for nobody: where the client has no
 * room, its link answers later. */
void trmi_request_answer(trmi_request *request);
/* By the link's thread, often: answers that found no room. *rest: some still do not.   errors  PEER: for too long, which it has
 * logged
 */
trm_status trmi_request_late(trmi_ps_link *link, bool *rest);
/* The link has ended: forgets them. */
void trmi_request_drop_late(trmi_ps_link *link);
void trmi_run_push(trmi_shard_thread *runner, trmi_request *request);
void trmi_run_group(trmi_shard_thread *runner, trmi_request *request);
void trmi_run_stage(trmi_shard_thread *runner, trmi_request *request);
void trmi_run_step(trmi_shard_thread *runner, trmi_request *request);

/* --- workers (server_workers.c): with the front mutex held ------------------------------------ */
/* One that says something: with a new incarnation its last life is over.   errors (NULL)  CANCELLED, NOMEM
 */
trmi_worker *trmi_front_worker(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                               trm_error *err);
/* A newer incarnation than the last: that life is over, its leases are others'.   errors (NULL)  those of the lease log
 */
trm_status trmi_front_life(trm_ps_server *server, trmi_worker *worker, uint32_t incarnation,
                           trm_error *err);
/* A worker that was away before the server died is not waited for. */
void trmi_front_was_away(trm_ps_server *server, uint32_t worker, uint32_t incarnation, bool away);
/* NULL: not seen. */
trmi_worker *trmi_front_find(const trm_ps_server *server, uint32_t worker);

/* --- the front (server_front.c): all with the front mutex held -------------------------------- */
/* A push goes to the shards, here: refused, to fill its window. */
void trmi_front_refuse(trm_ps_server *server, trmi_request *request);
/* Server 0: the first push of this worker that no step has, NULL = none is here. */
trmi_request *trmi_front_staged(const trm_ps_server *server, const trmi_worker *worker);
/* False: another wire dtype than the others', r->err says so. */
bool trmi_front_same_dtype(trm_ps_server *server, trmi_request *request);
/* Parks the pull (true), or says that it may go now. */
bool trmi_front_parks(trm_ps_server *server, trmi_request *request);
void trmi_front_push(trm_ps_server *server, trmi_request *request);
/* The orders PUSHED and BEGINS. */
void trmi_front_pushed(trm_ps_server *server, const trmi_request *request);
void trmi_front_begins(trm_ps_server *server, trmi_request *request);
/* Clocks, workers or the hold have changed: lets pushes go, and returns the pulls that may. */
trmi_request *trmi_front_advance(trm_ps_server *server);
/* Silent workers; pulls whose deadline has passed get their error and are returned with the others.
 */
trmi_request *trmi_front_tick(trm_ps_server *server, double now);

/* A cut holds back pushes of this worker from behind those that another server has let through. */
bool trmi_front_holds(const trm_ps_server *server, const trmi_push_id *id);

/* --- the last step of the logs (server_last_step.c): with the front mutex held ---------------- */
/* After the logs are read: applies it, lets it not count, or holds it.   errors  CORRUPT, IO, NOMEM
 */
trm_status trmi_last_step_open(trm_ps_server *server, int64_t *pushes, trm_error *err);
void trmi_last_step_close(trm_ps_server *server);
/* A message of this life of a worker has come: what it pushed in this life it does not push again.
 */
void trmi_last_step_heard(trm_ps_server *server, const trmi_request *request);
/* This worker's new life has begun; it goes on behind this batch, which all servers have. */
void trmi_last_step_new_life(trm_ps_server *server, uint32_t worker);
void trmi_last_step_is_everywhere(trm_ps_server *server, uint32_t worker, int64_t batch);
/* Before the server died this worker had left, after all servers had answered its pushes. */
void trmi_last_step_left(trm_ps_server *server, uint32_t worker, uint32_t incarnation);
/* Applies it when no worker can push it again. */
void trmi_last_step_advance(trm_ps_server *server);
/* Whether a group may be formed of the pushes of the next step, as far as this one goes. */
bool trmi_last_step_allows_group(const trm_ps_server *server);

/* --- how far tables run behind (server_lag.c): with the front mutex held ---------------------- */
trm_status trmi_lag_create(trm_ps_server *server, trm_error *err);
void trmi_lag_destroy(trm_ps_server *server);
/* A worker has declared a table.   errors  INVALID: another one did so differently */
trm_status trmi_lag_declare(trm_ps_server *server, int32_t table, int32_t staleness,
                            trm_error *err);
/* BOUNDED: how many batches the rows of this pull may be old: as few as the strictest of its tables
 * wants. */
int64_t trmi_lag_bound(const trm_ps_server *server, const trmi_request *request);
/* A pull, a push of this worker goes on; NULL: it has pushed nothing yet.   returns (push) the lag of the table that has the
 * most; as many as there are other workers where that is not known
 */
void trmi_lag_pull(trm_ps_server *server, trmi_worker *worker, const trmi_request *request);
int64_t trmi_lag_push(trm_ps_server *server, trmi_worker *worker, const trmi_request *request);
/* Into lags and lag_sum. */
void trmi_lag_tell(const trm_ps_server *server, int64_t table, trm_table_stats *out);

/* --- steps of samples that are lent (server_step.c): with the front mutex held ---------------- */
/* A push of kind STAGE has come. */
void trmi_step_stage(trm_ps_server *server, trmi_request *request);
/* Server 0: decides as many steps as there are pushes for; then as trmi_front_advance. */
trmi_request *trmi_step_advance(trm_ps_server *server);
/* The order STEPS. */
void trmi_step_order(trm_ps_server *server, trmi_request *request);
/* Server 0: what other servers may lack goes into the answer. */
void trmi_step_tell(const trm_ps_server *server, trmi_request *request);
/* Forgets all that waits.   returns the requests, for an answer */
trmi_request *trmi_step_close(trm_ps_server *server);
/* Server 0, after restore, before who is away and the book of leases: what its log has decided is
 * done by all shards.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_step_open(trm_ps_server *server, trm_error *err);
/* And after the book: leases of these steps have gone on. */
void trmi_step_settle(trm_ps_server *server);

/* --- orders (server_order.c) ------------------------------------------------------------------ */
void trmi_table_stats_add(trm_table_stats *to, const trm_table_stats *from);
void trmi_order_handle(trm_ps_server *server, trmi_request *request);
/* Front mutex held: pushes that were held back for a cut go on without it, unless it has begun; as
 * trmi_front_advance. */
trmi_request *trmi_order_release(trm_ps_server *server);
trm_status trmi_server_add_table(trm_ps_server *server, const trm_table_options *options,
                                 int32_t *number, trm_error *err);

/* --- leases (server_lease.c), front mutex held ------------------------------------------------ */
/* Opens the book and what its log says: all of it, or up to the last cut when pushes are not
 * logged.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_server_lease_open(trm_ps_server *server, trm_error *err);
void trmi_server_lease_close(trm_ps_server *server);
void trmi_server_lease_take(trm_ps_server *server, trmi_request *request);
/* Before a push goes on: what its lease says to it; keeps the lease alive.   errors  CANCELLED, INVALID
 */
trm_status trmi_server_lease_push(trm_ps_server *server, const trmi_request *request,
                                  trm_error *err);
/* All shards have it: its samples are used. */
void trmi_server_lease_pushed(trm_ps_server *server, const trmi_request *request);
/* In its epoch, of the last sample's epoch. */
int64_t trmi_server_lease_position(const trm_ps_server *server, const trmi_request *request);

/* --- who is away (server_away.c), front mutex held -------------------------------------------- */
/* After restore, before the book of leases: tells `see` of each record, the last one of a worker counts.   errors  IO, NOMEM
 */
typedef void (*trmi_away_see)(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                              bool away);
trm_status trmi_server_away_open(trm_ps_server *server, trmi_away_see see, trm_error *err);
/* Removes the file when the job is over. */
void trmi_server_away_close(trm_ps_server *server);
/* A process begins as this worker: an incarnation above `seen` and all that this server has given,
 * and gives again
 * after no restart. The highest of all servers' is then nobody else's.   errors  NOMEM, IO */
trm_status trmi_server_new_life(trm_ps_server *server, uint32_t worker, uint32_t seen,
                                uint32_t *incarnation, trm_error *err);
/* A worker has left or begun to rest; or it has pushed again. */
void trmi_server_away_set(trm_ps_server *server, trmi_worker *worker, bool away);
/* The same file remembers the chief.   errors  IO, NOSPACE */
trm_status trmi_server_chief_log(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                                 trm_error *err);

/* --- the chief (server_chief.c), server 0, front mutex held ----------------------------------- */
/* The order CHIEF; true when another worker has become the chief. */
bool trmi_chief_order(trm_ps_server *server, trmi_request *request);
/* A message of this request's sender: the chief lives. */
void trmi_chief_heard(trm_ps_server *server, const trmi_request *request);
/* It has left: anybody may follow. */
void trmi_chief_left(trm_ps_server *server, const trmi_request *request);
/* Whether the sender may do what only the chief may; else r->err says who is it. */
bool trmi_chief_allows(const trm_ps_server *server, trmi_request *request);

/* --- connections (server.c) ------------------------------------------------------------------- */
/* A client's end of a connection within the process.   errors NOMEM */
trm_status trmi_server_connect_local(trm_ps_server *server, size_t ring_bytes, trmi_channel **out,
                                     trm_error *err);

/* --- starting from a folder (server_restore.c) ------------------------------------------------ */
/* Newest complete checkpoint, then logs; opens the log. Before the threads start.   errors as start
 */
trm_status trmi_server_restore(trm_ps_server *server, trm_error *err);
/* "FOLDER/log/server-0-of-1-shard-1-of-2-cut-000002.log" */
void trmi_log_path(const trm_ps_server *server, uint32_t shard, uint32_t cut, char *path,
                   size_t size);
/* The list of a complete cut's files, of all servers, as the client made it: writes it to the
 * folder, last of all; then removes what no restart can need.   errors  IO, NOSPACE */
trm_status trmi_manifest_write(trm_ps_server *server, uint32_t cut, bool differential,
                               const char *text, size_t bytes, trm_error *err);

#endif
