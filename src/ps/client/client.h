/* SPDX-License-Identifier: Apache-2.0 */
/* ps/client/client.h: a worker's side.
 *
 *   batch: lookups --dedup--> unique keys --arrange--> sections per server, shard and table
 *   pull:  sections out, values back, scattered to every lookup; a large one in parts of whole tables:
 *            worker  dedup 1 | dedup 2 | dedup 3 | scatter 1 | scatter 2 | scatter 3
 *            server            read 1  | read 2    | read 3
 *   push:  gradients of equal keys summed into a message, which is kept until it is answered
 *
 * No threads: messages are taken in whenever the caller waits for something.
 */
#ifndef TRMI_PS_CLIENT_H
#define TRMI_PS_CLIENT_H

#include "ps/wire/channel.h"
#include "ps/server/server.h"

enum { TRMI_PUSHES_AHEAD_MAX = 32, TRMI_BATCHES_MAX = 16, TRMI_PARTS_MAX = 8 };

/* A push that is not answered. */
typedef struct trmi_pending {
    uint64_t sequence; /* 0 = free */
    int64_t lease;     /* 0 = none */
    uint8_t *data;
    size_t bytes, capacity;
    double sent;
} trmi_pending;

typedef struct trmi_server_connection {
    int32_t number;
    char address[80];
    trmi_channel *channel; /* NULL = not connected */
    int64_t reconnects;
    bool ordered;            /* an order: its answer will be waited for */
    int64_t step;            /* SYNC: that it has finished, as far as it has said */
    int64_t carried;         /* the last step it was told of through this connection, */
    uint64_t carried_pushes; /* and how many of this worker's pushes were settled */
    trmi_pending pending[TRMI_PUSHES_AHEAD_MAX];
} trmi_server_connection;

/* Unique keys in sections: of (server, shard, table) in this order, those that are wanted. */
typedef struct trmi_arrangement {
    trmi_ps_section *sections;
    uint32_t *first; /* [servers + 1] sections of a server */
    int64_t count;
    uint32_t mask, match; /* arranged are uniques with wanted & mask == match */
    /* of the job's only shard: sections are runs of batch->distinct, and there are no others: */
    bool in_order;
    uint64_t *keys;  /* [count] */
    uint32_t *place; /* [uniques arranged] where a key is in `keys` */
    int64_t key_capacity, place_capacity, section_capacity;
} trmi_arrangement;

typedef struct trmi_slice {
    int32_t table;
    const uint64_t *keys;
    int64_t count;
    float *rows;
    const float *gradients;
    int64_t first; /* of its look-ups, in the batch's */
    int64_t next;  /* slice of the same table, -1 = none */
    bool is_first; /* of its table */
    int32_t part;
    /* of the first one of a table: its distinct keys, and what they are wanted for, if that is the
     * same for all */
    int64_t unique_first, unique_end;
    uint32_t wanted;
    /* alone, and its keys ascend: its look-ups are its distinct keys, in order */
    bool straight;
    int64_t section; /* of the last arrangement, if that is in order; -1 = not in it */
    /* of every slice, as trmi_batch_locate leaves it: row u lies u rows from here; 0 = see row_of
     */
    uintptr_t row_zero;
} trmi_slice;

enum { TRMI_WANT_PULL = 1, TRMI_WANT_PUSH = 2, TRMI_CACHED = 4, TRMI_WANT_DIFFER = 8 };

typedef struct trmi_unique {
    uint64_t key;
    uint32_t table, shard; /* shard of the job */
    uint32_t wanted;       /* TRMI_WANT_ and TRMI_CACHED */
} trmi_unique;

/* What the search for distinct keys works in. */
typedef struct trmi_unique_scratch {
    uint64_t *keys;    /* of a table that several slices ask */
    uint32_t *inverse; /* and their numbers */
    uint32_t *map;     /* places: the last look-up of each */
    uint32_t *number;  /* of the keys whose last look-up this is */
    uint32_t *left;    /* look-ups whose place another key has */
    uint32_t *last_of; /* last slice of a table so far */
    int64_t key_capacity, inverse_capacity, map_capacity, number_capacity, left_capacity,
        last_capacity;
} trmi_unique_scratch;

/* A server's answer to a part. */
typedef struct trmi_reply {
    bool here;
    trmi_message message; /* where it lies in the channel */
    uint8_t *kept;        /* out of the channel's way, NULL = there */
    double asked;         /* when */
} trmi_reply;

/* Tables that are asked for together, while the keys of the next part are still being searched. */
typedef struct trmi_part {
    int64_t first, end; /* of the uniques */
    trmi_arrangement pull;
    uint64_t request;    /* 0 = not asked yet */
    bool done;           /* its rows are where they are wanted */
    size_t bytes;        /* of the answers */
    trmi_reply *replies; /* [servers] */
} trmi_part;

struct trm_ps_batch {
    trm_ps_client *client;
    trmi_slice *slices;
    int64_t slice_count, slice_capacity, lookups;
    uint64_t *distinct; /* [uniques] their keys */
    uint32_t *inverse;  /* [lookups] */
    /* [uniques] if described: where one shard has all and nobody asks key by key, they are not */
    trmi_unique *uniques;
    bool described;
    uint64_t *touched; /* a bit for each unique, while gradients are summed */
    trmi_unique_scratch unique;
    /* [uniques] where its row is, in an answer, or its sum of gradients, in a push */
    uint8_t **row_of;
    float *sums;
    int64_t unique_count, unique_capacity, distinct_capacity, inverse_capacity, row_capacity,
        sum_capacity, touched_capacity;
    /* copies of cached rows: the cache may give their place away before they are wanted */
    uint8_t *hot;
    int64_t hot_bytes, hot_capacity;
    bool cut;     /* into parts; no more slices */
    bool outside; /* of the order of batches: trm_ps_read */
    trmi_part parts[TRMI_PARTS_MAX];
    int32_t part_count, numbered, asked; /* parts: of the batch; whose keys have numbers; sent */
    trmi_arrangement push;
    int64_t index; /* of the batch in this worker's life; -1 = none yet */
    bool pulling;
    double deadline; /* of the pull, however often it is asked again */
    trm_error err;
};

typedef struct trmi_cache trmi_cache;

struct trm_ps_client {
    trm_ps_client_options options;
    uint8_t token[32];
    bool has_token; /* from the caller */
    trmi_server_connection *peers;
    uint32_t servers, shards; /* shards of one server */
    trm_ps_mode mode;
    uint32_t worker, incarnation;
    bool reader;
    bool reading;      /* trm_ps_read: answers of other batches must not block the channel */
    bool resting;      /* BOUNDED: the servers do not wait for this worker's clock */
    bool staging;      /* SYNC, samples are lent: see ps/server/server_step.c */
    bool wants_rows;   /* waits for a batch's */
    double stop_seen;  /* when it was first found that the caller wants to stop, 0 = never */
    bool refused_here; /* a server has said no: trying again is of no use */
    trm_table_options *tables; /* names owned */
    int32_t widths[TRMI_PS_TABLES_MAX];
    trmi_cache **caches; /* by table */
    uint32_t table_count;
    uint64_t next_sequence, next_request;
    uint64_t delivered; /* the last push that went to all servers, server 0 among them */
    int64_t next_batch;
    trm_ps_batch *batches[TRMI_BATCHES_MAX]; /* with a pull under way */
    trm_error push_err;
    int64_t refused_lease; /* lost to others: only pushes under it need to know */
    trm_error refused;
    int64_t last_lease;           /* the newest that this worker was told of */
    uint32_t lease_book;          /* whose samples they are */
    int64_t lease_samples;        /* of an epoch */
    int64_t pushed_lease, pushed; /* the last push under a lease, and its position */
    int64_t joined;               /* the first batch of this life */
    int64_t most_batches;         /* that any server has seen; next_batch begins with the fewest */
    uint8_t *steps;               /* what server 0 has told of steps last, for the others */
    size_t steps_bytes;
    int64_t steps_last; /* the last of them, 0 = none */
    /* 0: this worker is not the chief; when it last said that it lives */
    double chief_lease, chief_said;
    /* the one control request under way */
    uint64_t order;
    bool order_answered;
    trmi_ps_header order_header;
    trmi_ps_note order_note;
    uint8_t *order_trailer;
    size_t order_trailer_bytes;
    trm_ps_client_stats stats;
    /* Puts a channel of a test's own between: called with each new one. */
    trmi_channel *(*wrap)(void *context, trmi_channel *channel);
    void *wrap_context;
};

/* --- connections (client.c) ------------------------------------------------------------------- */
/* Pushes that this server has not answered. */
int trmi_client_pushes_pending(const trmi_server_connection *peer);
/* Takes in one message from this server, or mends its connection: pushes and pulls are then sent
 * again, an order is its asker's to repeat.
 *   errors  TIMEOUT, PEER (at the deadline), CANCELLED (replaced), INVALID */
trm_status trmi_client_progress(trm_ps_client *client, trmi_server_connection *peer,
                                double deadline, trm_error *err);
/* Sends bytes as one message; a broken connection is mended first. */
trm_status trmi_client_send(trm_ps_client *client, trmi_server_connection *peer,
                            const uint8_t *data, size_t bytes, double deadline, trm_error *err);
/* An order that nobody waits for. A connection that breaks here is mended by whoever waits for its
 * server. */
trm_status trmi_client_tell(trm_ps_client *client, trmi_server_connection *peer,
                            const trmi_ps_note *note, const void *trailer, size_t trailer_bytes,
                            double deadline);
/* First words on a new connection; `joining`: of a new life.   errors  TIMEOUT, PEER, CANCELLED, INVALID
 */
trm_status trmi_client_connect(trm_ps_client *client, trmi_server_connection *peer, bool joining,
                               double deadline, trm_error *err);
/* Forgets a connection, with the answers that lie in it. */
void trmi_client_drop(trm_ps_client *client, trmi_server_connection *peer);
/* Whether the caller wants to stop; and the error that says so. */
bool trmi_client_is_stopped(trm_ps_client *client);
trm_status trmi_client_stopped(const trmi_server_connection *peer, trm_error *err);
/* Waits until all servers have been told of the steps that this worker knows.   errors  as an order
 */
trm_status trmi_client_steps_confirm(trm_ps_client *client, trm_error *err);
/* BOUNDED: nobody waits for this worker, until its next push. */
trm_status trmi_client_rest(trm_ps_client *client, trm_error *err);
/* One control request to one server; the answer is in client->order_*. */
trm_status trmi_client_order(trm_ps_client *client, trmi_server_connection *peer, trmi_ps_kind kind,
                             const trmi_ps_note *note, const trm_table_options *table,
                             const void *trailer, size_t trailer_bytes, trm_error *err);
/* An order in two steps, so that several servers work at once. */
trm_status trmi_client_order_send(trm_ps_client *client, trmi_server_connection *peer,
                                  trmi_ps_kind kind, const trmi_ps_note *note,
                                  const trm_table_options *table, const void *trailer,
                                  size_t trailer_bytes, uint64_t *number, trm_error *err);
trm_status trmi_client_order_wait(trm_ps_client *client, trmi_server_connection *peer,
                                  uint64_t number, trm_error *err);
/* --- steps (client_step.c) -------------------------------------------------------------------- */
/* Server 0 has told of steps.   errors  CORRUPT, NOMEM */
trm_status trmi_client_steps_learn(trm_ps_client *client, const uint8_t *data, size_t bytes,
                                   trm_error *err);
/* Whether this server has not been told of all that this worker knows through this connection. */
bool trmi_client_steps_untold(const trm_ps_client *client, const trmi_server_connection *peer);
/* The last push of this worker up to which server 0 has answered all. */
uint64_t trmi_client_steps_settled(const trm_ps_client *client);
/* The step that all servers but the first have finished. */
int64_t trmi_client_steps_finished(const trm_ps_client *client);

double trmi_client_deadline(const trm_ps_client *client);
trm_status trmi_client_create_wrapped(const trm_ps_client_options *options,
                                      trmi_channel *(*wrap)(void *context, trmi_channel *channel),
                                      void *context, trm_ps_client **out, trm_error *err);

/* --- distinct keys (client_unique.c) ---------------------------------------------------------- */
/* Cuts the batch into parts, once.   errors  NOMEM */
trm_status trmi_batch_cut(trm_ps_batch *batch, trm_error *err);
/* Numbers the distinct keys of the next part. */
void trmi_batch_number_part(trm_ps_batch *batch);
/* Fills batch->uniques for all keys that have numbers, and from then on. */
void trmi_batch_describe(trm_ps_batch *batch);
/* Both, for all parts. */
trm_status trmi_batch_deduplicate(trm_ps_batch *batch, trm_error *err);

/* --- batches (client_batch.c) ----------------------------------------------------------------- */
/* Arranges the uniques from `first` to `end` (of whole tables) with `wanted & mask` equal to
 * `match`. A counting sort, unless there is one shard and nobody's wishes differ: then nothing
 * moves. */
trm_status trmi_batch_arrange(trm_ps_batch *batch, trmi_arrangement *to, int64_t first, int64_t end,
                              uint32_t mask, uint32_t match, trm_error *err);
/* The same as a counting sort, always: what the above is compared with. */
trm_status trmi_batch_arrange_by_shard(trm_ps_batch *batch, trmi_arrangement *to, int64_t first,
                                       int64_t end, uint32_t mask, uint32_t match, trm_error *err);
/* Where the row of each unique that was arranged is, of `element` bytes a number: in its section's
 * values or, with `base`,
 * where all sections' rows lie one after the other from there on. batch->row_of[u] has its address,
 * or its slices' row_zero
 * says where to count from.   errors  NOMEM */
trm_status trmi_batch_locate(trm_ps_batch *batch, const trmi_arrangement *from, int64_t first,
                             int64_t end, size_t element, uint8_t *base, trm_error *err);
/* Writes sections and keys as a message of header->kind; the sections' values then point into it.   errors  NOMEM
 */
trm_status trmi_batch_encode(const trm_ps_client *client, const trmi_ps_header *header,
                             trmi_ps_section *sections, uint8_t *data, trm_error *err);
void trmi_batch_release(trm_ps_batch *batch);
/* Where a row is, of `row` bytes. */
static inline uint8_t *trmi_batch_row(const trm_ps_batch *b, const trmi_slice *slice, size_t row,
                                      uint32_t unique) {
    return slice->row_zero != 0 ? (uint8_t *)(slice->row_zero + unique * row) : b->row_of[unique];
}
/* Gives the answers to a part back to their channels. */
void trmi_part_release(trm_ps_client *client, trmi_part *part);

/* --- pulls (client_pull.c) -------------------------------------------------------------------- */
/* Copies an answer that will be wanted later: in its place it keeps the channel from later ones. */
void trmi_batch_keep_answer(const trm_ps_client *client, trmi_part *part, uint32_t server);
/* client_answer.c: sends the pull of a part to one server (again). */
trm_status trmi_batch_ask(trm_ps_batch *batch, trmi_part *part, trmi_server_connection *peer,
                          double deadline, trm_error *err);
/* Sends what this server has been asked for and has not answered, again. */
trm_status trmi_batch_ask_again(trm_ps_batch *batch, trmi_server_connection *peer, double deadline,
                                trm_error *err);
/* When the oldest pull was sent that this server owes an answer; 0 = it owes none. */
double trmi_batch_owed_since(const trm_ps_batch *batch, const trmi_server_connection *peer);
/* Its channel goes, and with it the answers that lie there. */
void trmi_batch_forget(trm_ps_batch *batch, const trmi_server_connection *peer);
/* An answer to one of the batch's pulls has come: takes the message. Others are left alone. */
void trmi_batch_answer(trm_ps_batch *batch, trmi_server_connection *peer,
                       const trmi_ps_header *header, trmi_message *message);
/* The same for a server's refusal. */
void trmi_batch_refused(trm_ps_batch *batch, const trmi_server_connection *peer, uint64_t request,
                        const trm_error *why);

/* --- hot rows (client_cache.c) ---------------------------------------------------------------- */
/* errors NOMEM */
trm_status trmi_cache_create(int64_t rows, size_t row_bytes, trmi_cache **out, trm_error *err);
void trmi_cache_destroy(trmi_cache *cache);
/* Whether any table has one. */
bool trmi_client_has_cache(const trm_ps_client *client);
/* The row of a key if it was fetched at batch `oldest` or later. */
const uint8_t *trmi_cache_get(trmi_cache *cache, uint64_t key, int64_t oldest);
void trmi_cache_put(trmi_cache *cache, uint64_t key, const uint8_t *row, int64_t batch);

#endif
