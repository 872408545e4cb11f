/* SPDX-License-Identifier: Apache-2.0 */
/* ps/server/server.h: the parts of a parameter server, shared by the files of src/ps/server.
 *
 *     link thread (one for each connection): receive, check, decode
 *          |  front: under one mutex, decides what may go on now, so that all shards see the same order
 *          v
 *     queue of each shard --> owner thread of the shard: pull, push, order --> the last shard sends the answer
 *
 *   server.c          shards and their threads, start and stop  server_link.c       connections
 *   server_order.c    control messages                          server_snapshot.c   snapshots of all servers
 *   server_request.c  life of a request, its runs on a shard    server_restore.c    start from a folder
 *   server_front.c, server_push.c    order of pulls, of pushes  server_last_step.c  the last step of the logs
 *   server_step.c     steps of leased samples                   server_lease.c, lease.c   which worker uses which samples
 *   server_workers.c  workers and their lives                   server_kept.c     pushes of ended lives
 *   server_away.c, server_chief.c, server_lag.c
 *
 * A push is applied in this order: server_link.c handle_rows -> trmi_front_push -> queue ->
 * trmi_run_push (server_request.c) -> trmi_shard_push (shard/shard.c) -> trmi_row_table_update
 * (table/table_write.c).
 *
 *   worker       a client that pushes, numbered by the job
 *   incarnation  the number of a worker's life: a process that takes a worker's place gets a higher one
 *   sequence     the number of a push within an incarnation, from 1
 *   clock        the number of batches that a worker has finished (synchronous: the step)
 *   snapshot     in messages and names of files: its number
 *
 * Threads: "front mutex held" means server->mutex. A shard's rows are touched by its owner
 * thread only. */
#ifndef TRMI_PS_SERVER_H
#define TRMI_PS_SERVER_H

#include "base/queue.h"
#include "ps/wire/channel.h"
#include "ps/snapshot/snapshot.h"
#include "ps/server/lease.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct trmi_request trmi_request;
typedef struct trmi_shard_thread trmi_shard_thread;

/* One connection. Freed by reap_links when it has ended and no request refers to it. */
typedef struct trmi_ps_link {
    trm_ps_server *server;
    trmi_channel *channel;
    pthread_t thread;
    pthread_mutex_t send_mutex;   /* over the channel's reserve and commit, and over `late` */
    trmi_request *late;           /* answers waiting for room in the client's ring, oldest first */
    int32_t worker;               /* -1 before HELLO */
    _Atomic uint32_t incarnation; /* incarnation of its latest message */
    /* HELLO has been answered */
    bool welcome;
    _Atomic int32_t requests; /* requests of this link that have no answer yet */
    _Atomic bool ended;       /* the thread has ended */
    struct trmi_ps_link *next;
} trmi_ps_link;

/* Orders of control messages, note.value[0]. The comments list the other values of the note: of
 * the request, then of the answer. */
typedef enum trmi_order {
    TRMI_ORDER_STATS = 1, /* 1: table                    answer: trm_table_stats */
    TRMI_ORDER_ROW,       /* 1: table, 2: key            answer: trm_row_info, floats, writers */
    /* answer: 1: newest snapshot, 2: needs a full one, 3: step; trmi_push_id of every worker */
    TRMI_ORDER_HOLD,
    /* 1: number, 2: differential, 3: step   trailer: ids; answer: trmi_snapshot_file[] */
    TRMI_ORDER_SNAPSHOT,
    /* 1: the snapshot that is complete, 0 = none, 2: differential   trailer: manifest */
    TRMI_ORDER_RELEASE,
    /* 1: not 0 = only for a while; it keeps its leases; 2: its last push */
    TRMI_ORDER_BYE,
    TRMI_ORDER_STOP,
    TRMI_ORDER_LEASE, /* 1: samples, 2: of a lease, 3: epochs, 4: timeout in ms, 5: last one known,
                         6: samples_max, 7: batch, 8: not 0 = the worker rests
                             answer: 1: id, 2: epoch, 3: begin, 4: end, 5: END or PENDING,
                             6: book, 7: BOUNDED, has rested or begins: its first batch */
    TRMI_ORDER_WORKERS, /* answer: trm_ps_worker[] */
    TRMI_ORDER_TABLES,  /* 1: number               answer: 1: how many; trmi_ps_wire_table, name */
    /* 1: own pushes that are in a step; trailer: steps   answer of server 0: steps */
    TRMI_ORDER_STEPS,
    /* 1: trm_ps_chief_claim   answer: 1: granted, 2: the chief + 1, 3: silent ms, 4: lease ms */
    TRMI_ORDER_CHIEF,
    /* 1: this push and those before it are on all servers, 2: batches that all servers had when
     * this life began; 0: not said */
    TRMI_ORDER_PUSHED,
    TRMI_ORDER_BEGINS /* SYNC, of a worker's new life, 1: 0, 3: not 0 = at once
                           answer: 1: the last batch that may be in a step here, or 2: 1 = ask again, because a
                           connection of the earlier life is open
                           1: the last one of all servers       answer: 1: trmi_here
                           1: a batch that all servers have, 2: 1
                           1: one that not all have, 2: 2      answer: 1: the server goes back to the rows before it */
} trmi_order;

/* Answers of BEGINS: what a server has of a batch. */
typedef enum trmi_here {
    TRMI_HERE_NOT,
    TRMI_HERE_KEPT, /* a restart keeps it */
    TRMI_HERE_SOON  /* a step is being logged, this one or the one before: ask again */
} trmi_here;

/* A message under way. It is owned by one part at a time: link thread, list of the front, shard
 * queues, `late` of a link. */
struct trmi_request {
    trmi_ps_link *link; /* NULL: made by the server itself */
    trm_ps_server *server;
    trmi_message message;
    trmi_ps_header header;
    trmi_ps_note note;
    trmi_ps_section *sections;
    uint32_t *first; /* sections of shard s are [first[s], first[s + 1]) */
    void (*run)(trmi_shard_thread *runner, trmi_request *request);
    bool (*send)(trmi_request *request); /* in a link's `late`: sends; false: no room yet */
    /* called by the last shard instead of sending an answer; NULL: answer */
    void (*finish)(trmi_request *request);
    /* called before the answer if no shard had an error; NULL: nothing */
    void (*on_applied)(const trmi_request *request);
    _Atomic int32_t pending; /* shards that have not finished */
    trmi_message reply;      /* ROWS: the answer, reserved in the client's ring */
    double deadline;
    pthread_mutex_t mutex; /* over the members below, while shards work */
    trm_error err;
    bool applied, dropped, later; /* dropped: only fills windows; later: `run` finishes elsewhere */
    bool partial;                 /* SYNC: other servers may not have this push */
    bool kept;                    /* SYNC: of an ended life, to be found again after a restart */
    bool again;                   /* of a group: repeats the last step of the logs */
    uint8_t *trailer;             /* of the answer */
    size_t trailer_bytes;
    trmi_request **members; /* SYNC: the pushes that are summed, by worker number */
    uint32_t member_count;
    trmi_push_id *ids; /* of a step: the staged pushes that it sums */
    uint32_t id_count;
    double started, late_since; /* times; late_since 0: never late */
    trmi_request *next;
};

/* Places in the queue of a shard when it is made. */
enum { TRMI_QUEUE_PLACES = 1024 };

/* A shard with its queue and owner thread, which alone touches shard and snapshot while it runs. */
struct trmi_shard_thread {
    trm_ps_server *server; /* that it belongs to */
    trmi_shard *shard;
    trmi_snapshot *snapshot; /* the snapshot writer; NULL without a folder */
    trmi_queue
        *queue; /* of trmi_request, filled by the links' threads; closing it ends the thread */
    pthread_t thread;
    bool started; /* `thread` runs, or has to be joined */
};

/* The latest incarnation of each worker that this server has given out. */
typedef struct trmi_life {
    uint32_t worker, incarnation; /* incarnation: the latest given out */
} trmi_life;

/* Server 0: the worker that may take checkpoints and end the job (server_chief.c). */
typedef struct trmi_chief {
    bool held, gone; /* gone: the holder has signed off */
    uint32_t worker, incarnation;
    double heard; /* time of the holder's latest message, or of the server's start */
} trmi_chief;

/* server_lag.c: update counts of all tables at the time when one batch of a worker read them. */
enum { TRMI_READS = 4 }; /* batches of a worker that may be under way, and one */
typedef struct trmi_reads {
    int64_t clock;
    int64_t *updates; /* [count] by table; -1: the batch did not read it */
    int64_t capacity;
    uint32_t count;
} trmi_reads;
/* Histogram of lags of one table, and their sum. */
typedef struct trmi_lag_counts {
    int64_t of[TRM_PS_LAGS], sum;
} trmi_lag_counts;
/* Arrays by table: declared staleness, update counts, lags. */
typedef struct trmi_lag {
    int32_t *staleness; /* as declared; 0: the job's staleness */
    bool *declared;     /* declared since this process started */
    int64_t *updates;   /* pushes with rows of the table */
    int64_t *last_push; /* number of the latest such push */
    int64_t push;       /* number of the current push */
    trmi_lag_counts *counts;
} trmi_lag;

/* The front's state of one worker. */
typedef struct trmi_worker {
    uint32_t worker, incarnation;
    uint64_t dispatched; /* sequence of the last push given to the shards */
    uint64_t begun;      /* last push that only some shards had when the server started; 0: none */
    int64_t clock;       /* batches whose pushes were given to the shards */
    int64_t done;        /* batches that all shards have logged: kept by a restart */
    bool active;         /* other workers wait for it (BOUNDED, SYNC) */
    bool away;           /* left or resting, according to the log of workers */
    bool log_failed;     /* the last attempt to log a change failed */
    bool log_is_old;     /* the log of workers has an earlier life of it */
    /* sent BYE. A worker without a lease is inactive but still connected. */
    bool left;
    double seen;    /* when it was heard last */
    double greeted; /* when its newest process connected, which may not have pushed yet */
    trmi_reads reads[TRMI_READS];
} trmi_worker;

/* The members of one synchronous step of leased samples: decided by server 0, carried by workers
 * to the other servers. */
typedef struct trmi_sync_step {
    int64_t step;
    uint32_t count;
    trmi_push_id *ids; /* by worker number */
    int64_t *leases;   /* [count][2] lease, position; only while a server starts */
} trmi_sync_step;

/* server_last_step.c: a member of the step that the logs end with. */
typedef struct trmi_last_member {
    trmi_push_id id;
    bool is_final; /* its worker will not push this batch again */
    uint32_t life; /* incarnation after that of `id` whose push or pull has shown that; 0: none */
} trmi_last_member;
/* The step that the logs end with, while it is undecided whether it counts. */
typedef struct trmi_last_step {
    int64_t step;  /* 0: none is undecided */
    bool together; /* workers compute together: none is waited for once one keeps the step */
    uint32_t count;
    trmi_last_member *members;
} trmi_last_step;

/* A server. Members without another remark belong to the front and its mutex. */
struct trm_ps_server {
    trm_ps_server_options options;
    char folder[256], spill_folder[256];
    uint8_t token[32];
    char token_path[160]; /* file of the published token, "": none */
    trmi_job_mark job;
    char address[96];
    trmi_shard_thread *runners;
    uint32_t shards;
    struct trmi_acceptor *gate; /* listener; NULL: only clients in this process */
    pthread_t acceptor;
    bool acceptor_runs;
    _Atomic bool stopping, stop_asked;
    _Atomic bool goes_back; /* to be started again, without the last step; nothing is answered */
    _Atomic uint32_t global_step; /* pushes that shard 0 has applied */
    _Atomic int64_t requests;     /* requests that have a place in the queues of the shards */

    pthread_mutex_t mutex; /* the front mutex */
    pthread_cond_t changed;
    trmi_ps_link *links;
    int64_t links_ever;
    int32_t widths[TRMI_PS_TABLES_MAX];
    trm_table_options *tables; /* declared tables; names owned */
    uint32_t table_count;
    bool declares; /* the shards create a table, of which a link's thread waits for the end */
    trmi_lag lag;
    trm_error failed; /* status TRM_OK, or the error with which all requests are refused */
    bool book_ends;   /* a step could not mark its samples: the book changes no more */
    trmi_worker *workers;
    int64_t worker_count, worker_capacity;
    bool counted;      /* options.workers was given: workers 0 .. workers - 1 are the job's */
    int64_t step;      /* SYNC: last step given to the shards */
    int64_t done_step; /* SYNC: last step that all shards have */
    int64_t
        summed_step;    /* SYNC: last step that is a sum in the logs, so that a start can void it */
    uint16_t sum_dtype; /* SYNC: dtype of all gradients, from the first push on */
    trmi_request *parked;  /* list of pulls that must wait */
    trmi_request *waiting; /* SYNC: pushes of later steps; else: pushes held by a snapshot */
    /* a snapshot holds pushes back */
    bool held;
    const trmi_ps_link *holder; /* the link that takes the snapshot */
    trmi_request *later_steps;  /* list of orders STEPS that other links sent during the hold */
    const trmi_push_id
        *until; /* while a snapshot collects pushes: the last push of each worker in it */
    uint32_t until_count;
    trmi_push_id *given_up; /* by worker: the push without which a snapshot has gone on */
    int64_t given_up_count, given_up_capacity;
    int64_t until_step;    /* SYNC: while a snapshot holds pushes: the last step in it */
    trmi_request *staged;  /* server 0: pushes kept by all its shards, in no step yet */
    trmi_last_step last;   /* SYNC: last step of the logs, while undecided */
    bool staging;          /* SYNC: samples are leased, pushes are staged */
    trmi_sync_step *steps; /* server 0: decided steps that other servers may lack */
    int64_t step_count, step_capacity;
    int64_t others_done_step; /* server 0: last step that all other servers have finished */
    int lock_fd;              /* of the folder, -1: none */
    int steps_fd;             /* log of the steps, -1: none */
    int64_t steps_bytes;      /* length of that log */
    trmi_chief chief;         /* server 0: state of the chief */
    trmi_lease_book *leases;  /* server 0: leases of samples */
    int lease_fd;             /* server 0: log of the leases, -1: none */
    trmi_life *lives;
    int64_t life_count, life_capacity;
    int away_fd;               /* log of away workers, lives and chief, -1: none */
    uint32_t last_snapshot;    /* latest snapshot, begun or loaded */
    bool last_snapshot_failed; /* it is incomplete: the next one must be full */
    /* Highest snapshot number in use: that of last_snapshot, or of a later one that was given up
     * after its log began. The next snapshot gets a higher number, because log N may only have
     * pushes after snapshot N. */
    uint32_t newest_number;
    /* newest one with a manifest; the logs since the complete one before it are kept */
    uint32_t complete_snapshot;
    uint32_t oldest_log; /* no log of this server has a lower number */
    /* shards that are still writing their part of it */
    _Atomic int32_t writing;
    uint32_t full_snapshot, older_full_snapshot,
        oldest_snapshot; /* complete snapshots in the folder; 0: none */
};

/* ---- requests (server_request.c) ------------------------------------------------------------- */
/* Creates an empty request of the server itself. From here until it is freed it has a place in the
 * queue of each shard: a request that some shards only could take would be a hole in the order of
 * pushes. NULL without memory. */
trmi_request *trmi_request_create(trm_ps_server *server);
/* Creates a request from a received message, which it takes over. NULL without memory; the
 * message then stays the caller's. */
trmi_request *trmi_request_new(trmi_ps_link *link, trmi_message *message,
                               const trmi_ps_header *header);
/* Decodes the sections of a pull or push and counts them by shard.
 *   errors  CORRUPT, INVALID, NOMEM */
trm_status trmi_request_decode(trm_ps_server *server, trmi_request *request, trm_error *err);
/* Appends a request to the queues of all shards. For pushes the front mutex must be held, so
 * that all shards get the same order. */
void trmi_request_dispatch(trm_ps_server *server, trmi_request *request);
/* Starts a list of pulls that the front has released: reserves their answers and dispatches
 * them. Front mutex not held. */
void trmi_request_start_pulls(trmi_request *list);
/* Sets the request's error unless it has one. Replaces a refusal: a refusal tells the worker to go
 * on, so it may be the answer only if all shards have logged it.
 *   threads  any */
void trmi_request_fail(trmi_request *request, const trm_error *err);
/* Counts a shard that has finished; the call of the last one answers and frees the request. */
void trmi_request_finish(trmi_request *request);
/* Frees a request without an answer: its sender has sent it again. */
void trmi_request_forget(trmi_request *request);
/* Sends the answer (error, or note and trailer) and frees the request. Never waits: if the
 * client's ring has no room, the link's thread sends it later. */
void trmi_request_answer(trmi_request *request);
/* Sends answers that found no room; the link's thread calls it regularly. *rest: some still wait.
 *   errors  PEER: the client has made no room for too long; logged */
trm_status trmi_request_send_late(trmi_ps_link *link, bool *rest);
/* Frees the waiting answers of a link that has ended. */
void trmi_request_drop_late(trmi_ps_link *link);
/* Runs of a request on a shard, by the shard's owner thread: a push, a synchronous sum, staging
 * a push, a step of staged pushes. */
void trmi_run_push(trmi_shard_thread *runner, trmi_request *request);
void trmi_run_group(trmi_shard_thread *runner, trmi_request *request);
/* A shard has not carried out a step that others may have: the server must serve no rows of two
 * steps, and apply no later one. It refuses everything from then on; started again, it decides by
 * its logs. */
void trmi_server_fail(trmi_shard_thread *runner, const trm_error *err);
void trmi_run_stage(trmi_shard_thread *runner, trmi_request *request);
void trmi_run_step(trmi_shard_thread *runner, trmi_request *request);

/* --- workers (server_workers.c): with the front mutex held ------------------------------------ */
/* Finds or creates the entry of a worker that has sent a message, and marks it active. A new
 * incarnation ends the worker's earlier life.   errors (NULL)  CANCELLED: an older incarnation;
 * NOMEM */
trmi_worker *trmi_front_worker(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                               trm_error *err);
/* Returns the push of a worker without which a snapshot has gone on; NULL: none. */
trmi_push_id *trmi_front_find_given_up(const trm_ps_server *server, uint32_t worker);
/* Makes room for what a server keeps of this worker and of each one that is connected: a push that
 * found no room would be refused here, while other servers may have it, and snapshots would wait
 * for it. Returns false if there is no memory. */
bool trmi_front_reserve_room(trm_ps_server *server, uint32_t worker);
/* BOUNDED: returns the clock of a worker that had no samples for a while, or was silent: that of
 * the slowest active one; if all others rest, that of the one with the most batches. So no worker
 * waits for it to catch up. */
int64_t trmi_front_caught_up(const trm_ps_server *server, const trmi_worker *worker);
/* Ends the worker's earlier life if `incarnation` is newer: its leases are free again.
 *   errors  those of the lease log */
trm_status trmi_front_life(trm_ps_server *server, trmi_worker *worker, uint32_t incarnation,
                           trm_error *err);
/* Restores from the log that a worker was away before the server died, or came back: a worker
 * that is away is not waited for. */
void trmi_front_restore_away(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                             bool away);
/* Returns the entry of a worker, NULL if it has not been seen. */
trmi_worker *trmi_front_find(const trm_ps_server *server, uint32_t worker);
/* Returns the number of workers that are waited for, with those that have not connected yet. */
int64_t trmi_front_expected_workers(const trm_ps_server *server);

/* --- the front (server_front.c): all with the front mutex held -------------------------------- */
/* Passes a push to the shards without its gradients: it only fills the worker's window. */
void trmi_front_refuse(trm_ps_server *server, trmi_request *request);
/* Server 0: returns the worker's next staged push that is in no step; NULL: none is here. */
trmi_request *trmi_front_staged(const trm_ps_server *server, const trmi_worker *worker);
/* Returns whether the push has the same wire dtype as the pushes before; if not, sets r->err. */
bool trmi_front_same_dtype(trm_ps_server *server, trmi_request *request);
/* Returns whether the pull must wait, and then puts it on the list of parked pulls. */
bool trmi_front_pull_must_wait(trm_ps_server *server, trmi_request *request);
/* Takes a push: passes it to the shards, or lets it wait for its step or a snapshot. */
void trmi_front_push(trm_ps_server *server, trmi_request *request);
/* Passes on all waiting pushes that may go: groups in SYNC mode, released pushes in others. */
void trmi_front_dispatch_pushes(trm_ps_server *server);
/* Handle the orders PUSHED and BEGINS: which pushes are on all servers (see server_front.c). */
void trmi_front_pushed(trm_ps_server *server, const trmi_request *request);
void trmi_front_begins(trm_ps_server *server, trmi_request *request);
/* Passes on the pushes that may go, and returns the list of pulls that may go, after clocks,
 * workers or the hold have changed. */
trmi_request *trmi_front_advance(trm_ps_server *server);
/* Stops waiting for silent workers, and advances. Pulls whose deadline has passed get an error and
 * are returned with the others. */
trmi_request *trmi_front_tick(trm_ps_server *server, double now);

/* Returns whether a snapshot holds this push back: it is later than the pushes that belong to
 * the snapshot.
 *   clock  SYNC: the step of the push; the other modes ignore it */
bool trmi_front_holds(const trm_ps_server *server, const trmi_push_id *id, int64_t clock);

/* --- pushes of ended lives (server_kept.c): with the front mutex held ------------------------- */
/* Writes the waiting pushes that are marked `kept` to a file of their own, which replaces the one
 * before. Nothing without a log.
 *   errors  IO, NOSPACE, NOMEM */
trm_status trmi_kept_write(const trm_ps_server *server, trm_error *err);
/* Removes the pushes of a worker's batch from the file. Nothing without a log.
 *   errors  IO, NOSPACE, CORRUPT, NOMEM */
trm_status trmi_kept_remove(const trm_ps_server *server, uint32_t worker, int64_t batch,
                            trm_error *err);
/* Lets the pushes of the file wait again. Called after trmi_server_restore.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_kept_open(trm_ps_server *server, trm_error *err);
/* Removes the file if the job is over. */
void trmi_kept_close(const trm_ps_server *server);

/* --- the last step of the logs (server_last_step.c): with the front mutex held ---------------- */
/* Applies the last step, voids it, or keeps it undecided, after the logs are read. *pushes counts
 * those applied.
 *   errors  CORRUPT, IO, NOMEM */
trm_status trmi_last_step_open(trm_ps_server *server, int64_t *pushes, trm_error *err);
/* Frees the undecided step. */
void trmi_last_step_close(trm_ps_server *server);
/* Notes that a worker's life that is in the step is still alive, or that a later life goes on after
 * the step: it will not push again what it has pushed. */
void trmi_last_step_note_message(trm_ps_server *server, const trmi_request *request);
/* trmi_last_step_new_life: notes that a new life of a worker has begun.
 * trmi_last_step_note_complete: notes that this life goes on after `batch`: all servers have it. */
void trmi_last_step_new_life(trm_ps_server *server, uint32_t worker, uint32_t incarnation);
void trmi_last_step_note_complete(trm_ps_server *server, uint32_t worker, int64_t batch);
/* Not all servers have this batch of a worker that begins a new life, so the worker makes it again,
 * from the rows of the step before. Returns whether this server has applied it and therefore has to
 * be started again. */
bool trmi_last_step_restart_before(trm_ps_server *server, uint32_t worker, int64_t batch);
/* Notes that the worker had signed off before the server died, with all its pushes answered. */
void trmi_last_step_left(trm_ps_server *server, uint32_t worker, uint32_t incarnation);
/* Applies the undecided step when no member can be pushed again. */
void trmi_last_step_advance(trm_ps_server *server);
/* Returns whether the undecided step permits forming the next group from new pushes. */
bool trmi_last_step_allows_group(const trm_ps_server *server);
/* Returns whether a read outside of training may take the rows of the step before: the reader is a
 * new life of a member and no member keeps, so the step is made again or never. A job that is
 * resumed at or after its last step saves and ends without another step. */
bool trmi_last_step_allows_read(const trm_ps_server *server, const trmi_request *request);

/* --- how far tables run behind (server_lag.c): with the front mutex held ---------------------- */
/* Allocates the counters of all tables.
 *   errors  NOMEM */
trm_status trmi_lag_create(trm_ps_server *server, trm_error *err);
/* Frees the counters. */
void trmi_lag_destroy(trm_ps_server *server);
/* Notes the staleness with which a worker declares a table.
 *   errors  INVALID: another worker declared another one */
trm_status trmi_lag_declare(trm_ps_server *server, int32_t table, int32_t staleness,
                            trm_error *err);
/* BOUNDED: returns how many batches old the rows of this pull may be: the least of its tables. */
int64_t trmi_lag_bound(const trm_ps_server *server, const trmi_request *request);
/* Record a pull, and a push, of this worker (NULL: it has pushed nothing yet). trmi_lag_push
 * returns the largest lag of the push's tables; where it is not known, the number of others. */
void trmi_lag_pull(trm_ps_server *server, trmi_worker *worker, const trmi_request *request);
int64_t trmi_lag_push(trm_ps_server *server, trmi_worker *worker, const trmi_request *request);
/* Copies the lags of a table to out->lags and out->lag_sum. */
void trmi_lag_add_stats(const trm_ps_server *server, int64_t table, trm_table_stats *out);

/* --- steps of samples that are lent (server_step.c): with the front mutex held ---------------- */
/* Takes a push of kind STAGE: the shards log and keep it. */
void trmi_step_stage(trm_ps_server *server, trmi_request *request);
/* Server 0: decides as many steps as there are pushes for. Then as trmi_front_advance. */
trmi_request *trmi_step_advance(trm_ps_server *server);
/* Handles the order STEPS: a worker brings decided steps, or (server 0) fetches them. */
void trmi_step_order(trm_ps_server *server, trmi_request *request);
/* Server 0: adds the steps that other servers may lack to the answer. */
void trmi_step_append_decided(const trm_ps_server *server, trmi_request *request);
/* Frees the decided steps.   returns  the waiting pushes, to be answered */
trmi_request *trmi_step_close(trm_ps_server *server);
/* Server 0: repeats the steps of its log on shards that lack them. Called after
 * trmi_server_restore, before the logs of away workers and leases are read.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_step_open(trm_ps_server *server, trm_error *err);
/* Marks the samples of these steps as used, after the leases are read.
 *   errors  IO, NOSPACE */
trm_status trmi_step_settle(trm_ps_server *server, trm_error *err);

/* --- orders (server_order.c) ------------------------------------------------------------------ */
/* Adds the statistics of another shard or server. */
void trmi_table_stats_add(trm_table_stats *to, const trm_table_stats *from);
/* Carries out a control message and answers it. Called by link threads, front mutex not held. */
void trmi_order_handle(trm_ps_server *server, trmi_request *request);
/* Declares a table on all shards, or finds it. Front mutex held; it is released while the shards
 * finish what is queued before the table. *number: its number.
 *   errors  INVALID: declared differently before; NOMEM: the server then serves nothing any more */
trm_status trmi_server_add_table(trm_ps_server *server, const trm_table_options *options,
                                 int32_t *number, trm_error *err);

/* --- snapshots (server_snapshot.c), front mutex held ------------------------------------------ */
/* Carry out HOLD, SNAPSHOT and RELEASE, and return the requests that are released. */
void trmi_order_hold(trm_ps_server *server, trmi_request *request);
trmi_request *trmi_order_snapshot(trm_ps_server *server, trmi_request *request);
trmi_request *trmi_order_end_snapshot(trm_ps_server *server, trmi_request *request);
/* Releases the pushes that were held back for a snapshot, unless that has begun. Returns as
 * trmi_front_advance. */
trmi_request *trmi_order_release(trm_ps_server *server);
/* Notes a push that this server has refused before any shard had it. Its worker does not send it
 * again, so snapshots do not wait for it. */
void trmi_order_note_refused(trm_ps_server *server, const trmi_request *request);
/* Returns whether a push that another server has applied is to come here. A server that was started
 * again may not know its worker, or only an earlier life of it. No push of a life comes after one
 * of a later life. */
bool trmi_order_is_missing(const trm_ps_server *server, const trmi_push_id *push);

/* --- leases (server_lease.c), front mutex held ------------------------------------------------ */
/* Opens the book of leases and replays its log: all of it, or up to the last snapshot if pushes are
 * not logged.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_server_lease_open(trm_ps_server *server, trm_error *err);
void trmi_server_lease_close(trm_ps_server *server);
/* Handles the order LEASE: grants a range of samples to the worker. */
void trmi_server_lease_take(trm_ps_server *server, trmi_request *request);
/* Checks, before a push goes on, that its lease is still valid, and extends the lease.
 *   errors  CANCELLED, INVALID */
trm_status trmi_server_lease_push(trm_ps_server *server, const trmi_request *request,
                                  trm_error *err);
/* Marks the samples of a push as used; called when all shards have it. */
void trmi_server_lease_pushed(trm_ps_server *server, const trmi_request *request);
/* Returns the position of the push's last sample within its epoch. */
int64_t trmi_server_lease_position(const trm_ps_server *server, const trmi_request *request);

/* --- absent workers (server_away.c), front mutex held ----------------------------------------- */
/* After restore, before the leases: reads the log of away workers and calls `visit` for each
 * record; the last record of a worker counts.
 *   errors  IO, NOMEM */
typedef void (*trmi_away_visit)(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                                bool away);
trm_status trmi_server_away_open(trm_ps_server *server, trmi_away_visit visit, trm_error *err);
/* Closes the log; removes it if the job is over. */
void trmi_server_away_close(trm_ps_server *server);
/* Gives a process that begins as `worker` an incarnation above `seen` and above all that this
 * server has given out, also before a restart. The client uses the highest one of all servers,
 * which no other process has.
 *   errors  NOMEM, IO */
trm_status trmi_server_new_life(trm_ps_server *server, uint32_t worker, uint32_t seen,
                                uint32_t *incarnation, trm_error *err);
/* Logs that a worker has left or has no samples (`away`), or pushes again. What could not be
 * logged is tried again by the next call.
 *   err     may be NULL
 *   errors  IO, NOSPACE: a server that is started again would not know it */
trm_status trmi_server_away_set(trm_ps_server *server, trmi_worker *worker, bool away,
                                trm_error *err);
/* Logs the chief in the same file, or that it has left.
 *   errors  IO, NOSPACE */
trm_status trmi_server_chief_log(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                                 bool left, trm_error *err);

/* --- the chief (server_chief.c), server 0, front mutex held ----------------------------------- */
/* Handles the order CHIEF; returns true if another worker has become the chief. */
bool trmi_chief_order(trm_ps_server *server, trmi_request *request);
/* Notes that the chief is alive, if it sent this request. */
void trmi_chief_note_message(trm_ps_server *server, const trmi_request *request);
/* Notes and logs that the chief has signed off, if it sent this request: another worker may follow.
 *   errors  IO, NOSPACE: it is not noted */
trm_status trmi_chief_left(trm_ps_server *server, const trmi_request *request, trm_error *err);
/* Returns whether the sender may do what only the chief may; if not, sets r->err. */
bool trmi_chief_allows(const trm_ps_server *server, trmi_request *request);

/* --- connections (server_link.c) -------------------------------------------------------------- */
/* Runs the acceptor thread of server `context`: connections, and every 50 ms the periodic work. */
void *trmi_server_accept_links(void *context);
/* Joins and frees the links that have ended and that no request refers to; with `all` every one. */
void trmi_server_reap_links(trm_ps_server *server, bool all);
/* Connects a client within the process: *out is the client's end.
 *   errors  NOMEM */
trm_status trmi_server_connect_local(trm_ps_server *server, size_t ring_bytes, trmi_channel **out,
                                     trm_error *err);

/* --- starting from a folder (server_restore.c) ------------------------------------------------ */
/* Loads the newest complete snapshot, replays the logs and opens new ones. Before the threads
 * start.
 *   errors  those of trm_ps_server_start */
trm_status trmi_server_restore(trm_ps_server *server, trm_error *err);
/* Gives back the folder's lock, which trmi_server_restore has taken. */
void trmi_server_unlock_folder(trm_ps_server *server);
/* With log_sync: flushes the names of new logs and folders to the disk, because a flushed file
 * without a name is lost with the power. Called when all logs are open, and for a new log.
 *   errors  IO */
trm_status trmi_server_flush_names(const trm_ps_server *server, trm_error *err);
/* Writes the path of a shard's log: "FOLDER/log/server-0-of-1-shard-1-of-2-snapshot-000002.log". */
void trmi_log_path(const trm_ps_server *server, uint32_t shard, uint32_t snapshot, char *path,
                   size_t size);
/* Writes the manifest of a complete snapshot, the list of all servers' files that the client has
 * collected. It is written last of all files; then the files that no restart can need are
 * removed.
 *   errors  IO, NOSPACE */
trm_status trmi_manifest_write(trm_ps_server *server, uint32_t snapshot, bool differential,
                               const char *text, size_t bytes, trm_error *err);

#endif
