/* SPDX-License-Identifier: Apache-2.0 */
/* ps/client/client.h: a worker's side of the parameter servers, shared by the files of
 * src/ps/client.
 *
 *     batch: lookups --dedup--> unique keys --arrange--> sections per server, shard and table
 *     pull:  sections out, values back, scattered to every lookup; a large one in parts of whole tables:
 *              worker  dedup 1 | dedup 2 | dedup 3 | scatter 1 | scatter 2 | scatter 3
 *              server            read 1  | read 2    | read 3
 *     push:  gradients of equal keys summed into a message, which is kept until it is answered
 *
 *   client.c         connections: mending, sending again, answers           client_push.c    pushes
 *   client_greet.c   connecting, first message                              client_request.c a control request
 *   client_message.c limits of waits, one message
 *   client_create.c  options, joining, end                                  client_pull.c    pulls
 *   client_batch.c   slices, sections, addresses of rows                    client_answer.c  requests and answers of a pull
 *   client_unique.c  distinct keys                                          client_order.c   control messages, snapshots
 *   client_blocks.c  sums of blocks of samples (strict determinism)
 *   client_cache.c   cached rows                                            client_step.c    steps of leased samples
 *
 * A client has no threads: messages are received whenever the caller waits for something. One
 * thread at a time uses a client and its batches. A broken connection is made anew until the
 * deadline; unanswered pushes and pulls are then sent again, and the server recognises repeated
 * pushes. */
#ifndef TRMI_PS_CLIENT_H
#define TRMI_PS_CLIENT_H

#include "ps/wire/channel.h"
#include "ps/server/server.h"

/* Pushes that wait for an answer, batches of a client, and parts of a pull, at most. */
enum { TRMI_PUSHES_AHEAD_MAX = 32, TRMI_BATCHES_MAX = 16, TRMI_PARTS_MAX = 8 };

/* A push that has not been answered; its message is kept for sending it again. */
typedef struct trmi_pending {
    uint64_t sequence; /* 0: free */
    int64_t lease;     /* 0 = none */
    uint8_t *data;
    size_t bytes, capacity;
    double sent;
} trmi_pending;

/* The answer to a control request. */
typedef struct trmi_order_answer {
    bool here;
    trmi_ps_header header;
    trmi_ps_note note;
    uint8_t *trailer; /* NULL: there was no memory for it, header.status says so */
    size_t trailer_bytes;
} trmi_order_answer;

/* The connection to one server. */
typedef struct trmi_server_connection {
    int32_t number;
    char address[80];
    trmi_channel *channel; /* NULL: not connected */
    int64_t reconnects;
    double lost, said; /* when it broke, 0: it has not; when a log line last said so */
    /* number of the control request whose answer is awaited, or will be, 0: none; `reconnects` when
     * it was sent; its answer */
    uint64_t order;
    int64_t order_reconnects;
    trmi_order_answer answer;
    int64_t step;            /* SYNC: last step that the server has reported as finished */
    int64_t carried;         /* last step that was carried through this connection, */
    uint64_t carried_pushes; /* and this worker's pushes that were in steps then */
    double rest_said;        /* BOUNDED: when it was told last that this worker rests; */
    int64_t rest_reconnects; /* `reconnects` then */
    trmi_pending pending[TRMI_PUSHES_AHEAD_MAX];
} trmi_server_connection;

/* Unique keys sorted into sections by server, shard and table; only those that a pull or push
 * needs. */
typedef struct trmi_arrangement {
    trmi_ps_section *sections;
    uint32_t *first; /* [servers + 1] first section of each server */
    int64_t count;
    uint32_t mask, match; /* contains the uniques with wanted & mask == match */
    /* A job with a single shard: sections are runs of batch->distinct, and the members below are
     * not used. */
    bool in_order;
    uint64_t *keys;  /* [count] */
    uint32_t *place; /* [uniques] place of a key in `keys` */
    int64_t key_capacity, place_capacity, section_capacity;
} trmi_arrangement;

/* One call of trm_ps_batch_add: keys of a table, where their rows go, where their gradients lie. */
typedef struct trmi_slice {
    int32_t table;
    const uint64_t *keys;
    int64_t count;
    float *rows;
    const float *gradients;
    int64_t first; /* number of its first lookup in the batch */
    int64_t next;  /* next slice of the same table, -1: none */
    bool is_first; /* first slice of its table */
    bool
        by_blocks; /* its lookups are those of equal blocks of samples, one block after the other */
    /* part of the batch that its table is in */
    int32_t part;
    /* In the first slice of a table: range of its distinct keys, and what they are needed for,
     * if that is the same for all. */
    int64_t unique_first, unique_end;
    uint32_t wanted;
    /* The only slice of its table, with ascending keys: its lookups are its distinct keys, in
     * order. */
    bool keys_in_order;
    int64_t section; /* section of the latest in-order arrangement; -1: not in it */
    /* Set by trmi_batch_locate: row u lies at row_zero + u * bytes of a row; 0: use
     * batch->row_of. */
    uintptr_t row_zero;
} trmi_slice;

/* Bits of what is wanted of a section of keys: its rows, its gradients, rows from the cache, or
 * other keys for the pull than for the push. */
enum { TRMI_WANT_PULL = 1, TRMI_WANT_PUSH = 2, TRMI_CACHED = 4, TRMI_WANT_DIFFER = 8 };

/* A distinct key of a batch. */
typedef struct trmi_unique {
    uint64_t key;
    uint32_t table, shard; /* shard: number in the whole job */
    uint32_t wanted;       /* bits TRMI_WANT_PULL, TRMI_WANT_PUSH, TRMI_CACHED */
    uint32_t node; /* of a push: 1 + which of the batch's nodes (trmi_push_blocks); 0: no tree */
} trmi_unique;

/* Strict determinism: how the gradients of a batch are summed (client_blocks.c). */
typedef struct trmi_push_blocks {
    int32_t blocks;           /* of samples that a slice has */
    int32_t nodes;            /* sums that are pushed: 1, of all blocks, or one of each block */
    const int32_t *positions; /* [nodes] of each sum in the tree of all workers; borrowed */
    int32_t total;            /* nodes of that tree; 0: not strict */
} trmi_push_blocks;

/* Scratch memory for finding distinct keys; names as in unique.h. */
typedef struct trmi_unique_scratch {
    uint64_t *keys;    /* keys of all slices of one table */
    uint32_t *inverse; /* numbers of these lookups' keys */
    uint32_t *map;     /* [places] last lookup that fell on each */
    uint32_t *number;  /* number of the key of which this is the last lookup */
    uint32_t *left;    /* lookups whose place has another key */
    uint32_t *last_of; /* [tables] last slice seen of each */
    int64_t key_capacity, inverse_capacity, map_capacity, number_capacity, left_capacity,
        last_capacity;
} trmi_unique_scratch;

/* One server's answer to a part of a pull. */
typedef struct trmi_reply {
    bool here;
    trmi_message message; /* the answer, in the channel's memory */
    uint8_t *kept;        /* a copy outside of the channel; NULL: not copied */
    double asked;         /* time of the request */
} trmi_reply;

/* A group of whole tables that is pulled with one request a server. While the servers read the
 * rows of one part, the client finds the distinct keys of the next one. */
typedef struct trmi_part {
    int64_t first, end; /* range of the batch's uniques */
    trmi_arrangement pull;
    uint64_t request;    /* number of the request; 0: not sent yet */
    bool done;           /* its rows have been scattered */
    size_t bytes;        /* bytes of its answers */
    trmi_reply *replies; /* [servers] */
} trmi_part;

/* The keys of one batch, and where their rows and gradients go. */
struct trm_ps_batch {
    trm_ps_client *client;
    trmi_slice *slices;
    int64_t slice_count, slice_capacity, lookups;
    uint64_t *distinct; /* [uniques] distinct keys */
    uint32_t *inverse;  /* [lookups] number of the lookup's distinct key */
    /* [uniques] filled only if `described`: a job with a single shard and the same needs for all
     * keys of a table works without */
    trmi_unique *uniques;
    bool described;
    uint64_t *touched; /* bit set of uniques already summed to, during a push */
    trmi_unique_scratch unique;
    /* [uniques] address of its row in an answer, or of its summed gradient in a push */
    uint8_t **row_of;
    float *sums;
    int64_t unique_count, unique_capacity, distinct_capacity, inverse_capacity, row_capacity,
        sum_capacity, touched_capacity;
    /* Copies of cached rows, because the cache may overwrite them before they are scattered. */
    uint8_t *hot;
    int64_t hot_bytes, hot_capacity;
    bool cut;                /* divided into parts: no more slices may be added */
    bool outside;            /* trm_ps_read: not one of the worker's numbered batches */
    trmi_push_blocks blocks; /* strict determinism; cleared with the batch */
    trmi_part parts[TRMI_PARTS_MAX];
    int32_t part_count, numbered, asked; /* parts: in all; with numbered keys; requested */
    trmi_arrangement push;
    int64_t index; /* number of the batch in this worker's life; -1: none yet */
    bool pulling;
    double deadline; /* deadline of the pull, also when it is sent again */
    trm_error err;
};

typedef struct trmi_cache trmi_cache;

/* A client; contracts of its functions in trireme/ps.h. */
struct trm_ps_client {
    trm_ps_client_options options;
    uint8_t token[32];
    trmi_job_mark job; /* sent in HELLO */
    bool has_token;    /* the token was given in the options */
    trmi_server_connection *peers;
    uint32_t servers, shards; /* shards: of one server */
    trm_ps_mode mode;
    uint32_t worker, incarnation;
    /* worker -1: reads only */
    bool reader;
    bool
        reading; /* trm_ps_read is running: answers of other batches are copied out of the channel */
    bool resting;                /* BOUNDED: the servers do not wait for this worker */
    bool staging;                /* SYNC with leased samples: see ps/server/server_step.c */
    const trm_ps_batch *awaited; /* batch whose rows are waited for; NULL: none */
    bool unfinished;             /* a pull or push has failed, and no flush has succeeded since */
    double stop_seen;            /* time at which a requested stop was first seen, 0: never */
    bool refused_here;           /* a server has refused this client: no further attempts */
    trm_table_options *tables;   /* declared tables; names owned */
    int32_t widths[TRMI_PS_TABLES_MAX];
    trmi_cache **caches; /* [tables] caches, NULL: none */
    uint32_t table_count;
    uint64_t next_sequence, next_request;
    uint64_t delivered; /* last push that was sent to all servers, server 0 included */
    int64_t next_batch;
    trm_ps_batch *batches[TRMI_BATCHES_MAX]; /* batches with a pull under way */
    trm_error push_err;
    int64_t refused_lease; /* lease that was lost: later pushes under it are refused here */
    trm_error refused;
    int64_t last_lease;           /* newest lease that this worker has received */
    uint32_t lease_book;          /* book of the leases */
    int64_t lease_samples;        /* samples of an epoch */
    int64_t pushed_lease, pushed; /* lease and position of the latest push under a lease */
    int64_t joined;               /* first batch of this life */
    int64_t
        most_batches; /* batches that any server has from this worker (next_batch: those that all have) */
    uint8_t *steps; /* the steps that server 0 has sent last, to carry to the other servers */
    size_t steps_bytes;
    int64_t steps_last; /* last step of them, 0: none */
    /* chief_lease 0: not the chief; chief_said: time of the latest sign of life */
    double chief_lease, chief_said;
    trmi_order_answer answer; /* to the control request that was awaited last */
    trm_ps_client_stats stats;
    /* For tests: called with each new channel; returns the channel to use instead. */
    trmi_channel *(*wrap)(void *context, trmi_channel *channel);
    void *wrap_context;
};

/* --- connections ------------------------------------------------------------------------------ */
/* Returns how many pushes this server has not answered. */
int trmi_client_pushes_pending(const trmi_server_connection *peer);
/* Receives one message from this server and handles it, or repairs the connection: pushes and pulls
 * are then sent again; an order must be repeated by its caller. Returns without a message, too,
 * while the error of a push has not been taken, or a pull is refused, because the caller may end
 * its wait then.
 *   errors  TIMEOUT, PEER (at the deadline), CANCELLED (replaced), INVALID */
trm_status trmi_client_progress(trm_ps_client *client, trmi_server_connection *peer,
                                double deadline, trm_error *err);
/* Takes the messages of a server that is not waited for, repairs its connection for a moment, and
 * sends again what it has owed for too long. A server that is away is no error.
 *   errors  CANCELLED (replaced), INVALID, PEER (stopped) */
trm_status trmi_client_serve(trm_ps_client *client, trmi_server_connection *peer, double deadline,
                             trm_error *err);
/* Waits as trmi_client_progress does, where the wait depends on this worker's pushes (SYNC,
 * BOUNDED): a push that any server has refused is in no step there and advances no clock, so its
 * error ends the wait.
 *   errors  that of the push; those of trmi_client_progress */
trm_status trmi_client_await_step(trm_ps_client *client, trmi_server_connection *peer,
                                  double deadline, trm_error *err);
/* Sends one message on the existing connection.
 *   errors  PEER, TIMEOUT */
trm_status trmi_client_send_now(trm_ps_client *client, trmi_server_connection *peer,
                                const uint8_t *data, size_t bytes, double deadline, trm_error *err);
/* Sends one message; a broken connection is repaired first. */
trm_status trmi_client_send(trm_ps_client *client, trmi_server_connection *peer,
                            const uint8_t *data, size_t bytes, double deadline, trm_error *err);
/* Sends an order whose answer is not awaited. If the connection breaks here, the next function
 * that waits for this server repairs it. */
trm_status trmi_client_send_order(trm_ps_client *client, trmi_server_connection *peer,
                                  const trmi_ps_note *note, const void *trailer,
                                  size_t trailer_bytes, double deadline);
/* Encodes an order with a new number, *number; NULL without memory.   owns  the caller */
uint8_t *trmi_client_encode_order(trm_ps_client *client, trmi_ps_kind kind,
                                  const trmi_ps_note *note, const trm_table_options *table,
                                  const void *trailer, size_t trailer_bytes, size_t *bytes,
                                  uint64_t *number);
/* Forgets the answer to an order. */
void trmi_client_forget_answer(trmi_order_answer *answer);
/* Keeps the answer to an order that is awaited now, or will be. */
void trmi_client_take_answer(trmi_server_connection *peer, const trmi_ps_header *header,
                             const trmi_ps_note *note, const uint8_t *trailer);
/* Connects to a server and exchanges HELLO. `joining`: as a new life of this worker.
 *   errors  TIMEOUT, PEER, CANCELLED, INVALID */
trm_status trmi_client_connect(trm_ps_client *client, trmi_server_connection *peer, bool joining,
                               double deadline, trm_error *err);
/* Closes a connection; answers in its memory are lost and will be requested again. */
void trmi_client_drop(trm_ps_client *client, trmi_server_connection *peer);
/* Returns the error of an earlier push and clears it, so that it is reported once. */
trm_status trmi_client_take_push_error(trm_ps_client *client, trm_error *err);
/* Notes the status of a call that trains, and returns it: after an error this worker owes its
 * batch. */
static inline trm_status trmi_client_note(trm_ps_client *client, trm_status status) {
    client->unfinished =
        client->unfinished || (status < 0 && status != TRM_CANCELLED && status != TRM_INVALID);
    return status;
}
/* Returns whether the caller has requested a stop; trmi_client_stopped returns the error for
 * that. */
bool trmi_client_is_stopped(trm_ps_client *client);
trm_status trmi_client_stopped(const trmi_server_connection *peer, trm_error *err);
/* Carries the steps that this worker has to all servers that lack them, and waits for their
 * answers.
 *   errors  as trmi_client_order */
trm_status trmi_client_steps_confirm(trm_ps_client *client, trm_error *err);
/* BOUNDED: declares this worker inactive, until its next push. All servers answer the first time;
 * while it rests, servers that are away do not hold it up. */
trm_status trmi_client_rest(trm_ps_client *client, trm_error *err);
/* Sends one control request to one server and waits for the answer, which is in client->answer
 * afterwards. */
trm_status trmi_client_order(trm_ps_client *client, trmi_server_connection *peer, trmi_ps_kind kind,
                             const trmi_ps_note *note, const trm_table_options *table,
                             const void *trailer, size_t trailer_bytes, trm_error *err);
/* A control request in two steps, so that several servers can work at the same time: one request a
 * server. The answers of servers that are awaited later are kept, and their connections repaired,
 * as those of others are.
 *   errors  of the wait: PEER (the connection broke, the server may have carried the order out),
 *           those of trmi_client_progress, that of the server */
trm_status trmi_client_order_send(trm_ps_client *client, trmi_server_connection *peer,
                                  trmi_ps_kind kind, const trmi_ps_note *note,
                                  const trm_table_options *table, const void *trailer,
                                  size_t trailer_bytes, trm_error *err);
trm_status trmi_client_order_wait(trm_ps_client *client, trmi_server_connection *peer,
                                  trm_error *err);
/* --- steps (client_step.c) -------------------------------------------------------------------- */
/* Keeps the steps that server 0 has sent.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_client_steps_merge(trm_ps_client *client, const uint8_t *data, size_t bytes,
                                   trm_error *err);
/* Returns whether this server lacks steps, or pushes in steps, that this worker has not yet
 * carried through this connection. */
bool trmi_client_steps_missing(const trm_ps_client *client, const trmi_server_connection *peer);
/* Returns the last push up to which server 0 has answered all. */
uint64_t trmi_client_steps_settled(const trm_ps_client *client);
/* Returns the last step that all servers other than 0 have finished. */
int64_t trmi_client_steps_finished(const trm_ps_client *client);

/* Returns the time at which a wait that begins now must end. */
double trmi_client_deadline(const trm_ps_client *client);
/* Does trm_ps_client_create with a function that replaces each new channel, for tests. */
trm_status trmi_client_create_wrapped(const trm_ps_client_options *options,
                                      trmi_channel *(*wrap)(void *context, trmi_channel *channel),
                                      void *context, trm_ps_client **out, trm_error *err);

/* --- distinct keys (client_unique.c) ---------------------------------------------------------- */
/* Divides the batch into parts, once.
 *   errors  NOMEM */
trm_status trmi_batch_cut(trm_ps_batch *batch, trm_error *err);
/* Finds and numbers the distinct keys of the next part. */
void trmi_batch_number_part(trm_ps_batch *batch);
/* Fills batch->uniques for all numbered keys, and from now on for later ones too. */
void trmi_batch_describe(trm_ps_batch *batch);
/* Divides the batch and numbers the keys of all parts. */
trm_status trmi_batch_deduplicate(trm_ps_batch *batch, trm_error *err);

/* --- strict determinism (client_blocks.c) ----------------------------------------------------- */
/* Sums the gradients of this batch, which has no slices yet, by blocks of samples.
 *   errors  INVALID: servers that are not synchronous or lend samples, or a narrow wire */
trm_status trmi_batch_set_blocks(trm_ps_batch *batch, const trmi_push_blocks *blocks,
                                 trm_error *err);
/* Marks the slice that was added last: its lookups lie by blocks.
 *   errors  INVALID: their number is no multiple of the blocks; another slice has the same table */
trm_status trmi_batch_by_blocks(trm_ps_batch *batch, trm_error *err);
/* Makes a unique for each key of each block, in place of one for each key, before a push with a sum
 * of each block.
 *   errors  NOMEM */
trm_status trmi_batch_split_blocks(trm_ps_batch *batch, trm_error *err);
/* Writes the sums of a slice's blocks to the rows of its uniques, in the order of the tree. */
void trmi_batch_sum_tree(trm_ps_batch *batch, const trmi_slice *slice);

/* --- batches (client_batch.c) ----------------------------------------------------------------- */
/* Arranges uniques [first, end) (of whole tables) with wanted & mask == match into sections: a
 * counting sort, or without moving anything if there is a single shard and all keys of a table
 * have the same needs.
 *   errors  NOMEM */
trm_status trmi_batch_arrange(trm_ps_batch *batch, trmi_arrangement *to, int64_t first, int64_t end,
                              uint32_t mask, uint32_t match, trm_error *err);
/* Does the same, always by the counting sort. Tests compare the two. */
trm_status trmi_batch_arrange_by_shard(trm_ps_batch *batch, trmi_arrangement *to, int64_t first,
                                       int64_t end, uint32_t mask, uint32_t match, trm_error *err);
/* Finds the address of each arranged unique's row (`element` bytes a number): in its section's
 * values or, with `base`, where the rows of all sections lie one after the other from there on.
 * Sets batch->row_of, or row_zero of the slices.
 *   errors  NOMEM */
trm_status trmi_batch_locate(trm_ps_batch *batch, const trmi_arrangement *from, int64_t first,
                             int64_t end, size_t element, uint8_t *base, trm_error *err);
/* Writes sections and keys as a message of header->kind; the sections' values then point into
 * the message.
 *   errors  NOMEM */
trm_status trmi_batch_encode(const trm_ps_client *client, const trmi_ps_header *header,
                             trmi_ps_section *sections, uint8_t *data, trm_error *err);
/* Releases all answers and ends the pull. */
void trmi_batch_release(trm_ps_batch *batch);
/* Returns the address of a unique's row of `row` bytes. */
static inline uint8_t *trmi_batch_row(const trm_ps_batch *b, const trmi_slice *slice, size_t row,
                                      uint32_t unique) {
    return slice->row_zero != 0 ? (uint8_t *)(slice->row_zero + unique * row) : b->row_of[unique];
}
/* Releases the answers of a part to their channels. */
void trmi_part_release(trm_ps_client *client, trmi_part *part);

/* --- pulls (client_pull.c) -------------------------------------------------------------------- */
/* Copies an answer that will be used later out of the channel, where it would block later
 * answers. */
void trmi_batch_keep_answer(const trm_ps_client *client, trmi_part *part, uint32_t server);
/* client_answer.c: sends the pull of a part to one server, for the first time or again. */
trm_status trmi_batch_ask(trm_ps_batch *batch, trmi_part *part, trmi_server_connection *peer,
                          double deadline, trm_error *err);
/* Sends all requests again that this server has not answered. */
trm_status trmi_batch_ask_again(trm_ps_batch *batch, trmi_server_connection *peer, double deadline,
                                trm_error *err);
/* Returns the time at which the oldest unanswered request was sent to this server; 0: all are
 * answered. */
double trmi_batch_owed_since(const trm_ps_batch *batch, const trmi_server_connection *peer);
/* Forgets the answers that lie in this server's channel, which is about to be closed. */
void trmi_batch_forget(trm_ps_batch *batch, const trmi_server_connection *peer);
/* Takes the message if it answers a pull of this batch; leaves other messages alone. */
void trmi_batch_answer(trm_ps_batch *batch, trmi_server_connection *peer,
                       const trmi_ps_header *header, trmi_message *message);
/* Notes the server's error if it answers a pull of this batch. */
void trmi_batch_refused(trm_ps_batch *batch, const trmi_server_connection *peer, uint64_t request,
                        const trm_error *why);

/* --- hot rows (client_cache.c) ---------------------------------------------------------------- */
/* errors NOMEM */
trm_status trmi_cache_create(int64_t rows, size_t row_bytes, trmi_cache **out, trm_error *err);
void trmi_cache_destroy(trmi_cache *cache);
/* Returns whether any table has a cache. */
bool trmi_client_has_cache(const trm_ps_client *client);
/* Returns the row of a key if it was fetched at batch `oldest` or later, else NULL. */
const uint8_t *trmi_cache_get(trmi_cache *cache, uint64_t key, int64_t oldest);
/* Offers a fetched row to the cache, which keeps it or not. */
void trmi_cache_put(trmi_cache *cache, uint64_t key, const uint8_t *row, int64_t batch);

#endif
