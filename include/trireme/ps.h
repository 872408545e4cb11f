/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/ps.h: parameter servers. Embedding tables and dense variables live in host memory on
 * servers; workers pull rows by 64-bit key, compute, and push gradients.
 *
 *      worker --pull keys--> [ server: shard | shard | ... ]   one owner thread a shard
 *             <--- rows ----   each shard: tables of rows, a row and its optimiser slots
 *             --push grads->   in one record
 *             <--- done ----
 *
 * A pull changes nothing. A push creates rows (when admission lets them in) and applies the
 * optimiser. Rows start from a pure function of (seed, key), so that tables are the same whatever
 * the number of servers, shards or workers and whatever the order in which keys appear.
 */
#ifndef TRIREME_PS_H
#define TRIREME_PS_H

#include "trireme/base.h"
#include "trireme/ps_tables.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- servers -------------------------------------------------------------------------------- */

typedef struct trm_ps_server trm_ps_server;

/* How far workers may run apart. */
typedef enum trm_ps_mode {
    TRM_PS_ASYNC,   /* every push is applied as it comes */
    TRM_PS_BOUNDED, /* the same, but a pull of batch t waits until every worker has pushed t -
                       staleness */
    TRM_PS_SYNC     /* gradients of batch t are summed over the workers and applied once */
} trm_ps_mode;

typedef struct trm_ps_server_options {
    int32_t server, servers; /* which one this is, of how many; servers 0 = 1 */
    int32_t shards;          /* owner threads; 0 = CPUs of this process, at most 16 */
    /* never exceeded by tables and logs' buffers; 0 = 80 % of the machine's */
    int64_t memory_bytes;
    const char *listen; /* "127.0.0.1:4000"; port 0 = any; NULL = this process only */
    const char *folder; /* checkpoints and logs; NULL = nothing is kept */
    bool log_pushes;    /* to the folder: a killed server loses nothing that was answered */
    bool log_sync;      /* flush each push to the disk: a killed machine does not, either */
    /* for rows beyond the memory, made if it is not there; NULL = cold rows are evicted */
    const char *spill_folder;
    int64_t spill_bytes; /* 0 = as much as the disk has */
    trm_ps_mode mode;
    int32_t workers; /* expected in BOUNDED and SYNC mode; 0 = 1 */
    /* BOUNDED: 0 = every worker finishes batch t before any starts t + 1; tables may have their
     * own, and with TRM_STALENESS_ANY only they bind */
    int32_t staleness;
    int32_t backup_workers; /* SYNC: the slowest so many of each batch are not waited for; what they
                               push is dropped, of samples that were lent in the next sum */
    bool sum_gradients;     /* SYNC: instead of their mean */
    /* not SYNC: the learning rate of a push is divided by 1 + the updates since its rows were read
     * (Zhang et al. 2016), so that k workers move as far as one: for large dense networks */
    bool staleness_aware;
    /* pure, and the same in every life of the server: what nobody has pushed to begins so */
    trm_ps_source initial;
    double worker_timeout_seconds; /* a silent worker is no longer waited for; 0 = 60 */
    /* 32 bytes, the job's token, without which no process is let in. NULL: a random one. Either way
     * processes of this user on this host find it, in /tmp/trireme-UID/token-ADDRESS (mode 0600), as
     * long as the server runs. A server that listens beyond loopback needs one. */
    const void *token;
} trm_ps_server_options;

/* Starts a server; what its folder holds (newest complete checkpoint, then the logs) is loaded
 * first.
 *   errors  INVALID, NOMEM, IO, CORRUPT */
TRM_API TRM_MUST_USE trm_status trm_ps_server_start(const trm_ps_server_options *options,
                                                    trm_ps_server **out, trm_error *err);
/* "127.0.0.1:41234", "" without a listener. */
TRM_API const char *trm_ps_server_address(const trm_ps_server *server);
/* Waits until a client has sent STOP. TRM_TIMEOUT otherwise.   thread any */
TRM_API trm_status trm_ps_server_wait(trm_ps_server *server, double timeout_seconds);
/* Ends all connections and threads. NULL is fine. */
TRM_API void trm_ps_server_stop(trm_ps_server *server);

/* ---- clients --------------------------------------------------------------------------------- */

typedef struct trm_ps_client trm_ps_client;
typedef struct trm_ps_batch trm_ps_batch;

typedef struct trm_ps_client_options {
    const char *const *addresses; /* [servers] in order of their numbers; or */
    trm_ps_server *const *local;  /* [servers] of this process */
    int32_t servers;
    int32_t worker; /* 0..65534, unique among those that push; -1: one that only reads */
    /* of rows and gradients under way: 0 = float32. To 16 bits gradients are rounded stochastically
     * (seeded: again the same), rows to nearest */
    trm_dtype wire;
    int32_t pushes_ahead;    /* unanswered pushes before a push waits; 0 = 4, at most 32 */
    int64_t cache_rows;      /* of hot rows per table; 0 = none */
    int32_t cache_staleness; /* own batches that a cached row may be old; 0 = 1 */
    size_t ring_bytes;       /* shared memory each way, a power of two; 0 = 32 MB */
    bool tcp_only;           /* no shared memory even on one host */
    double timeout_seconds;  /* for every wait, restarts of servers included; 0 = 60 */
    double retry_seconds;    /* without an answer a push is sent again; 0 = 5 */
    const void *token;       /* as the server's; NULL: the one that it has published on this host */
    /* Asked while servers are waited for: true ends a wait for one that is not there at once, for
     * other workers' pushes after five seconds, with CANCELLED. NULL = never. */
    bool (*stopped)(void *context);
    /* Polled while servers are waited for: true = what they wait for does not come (a worker that
     * keeps step has died); the call fails with PEER. NULL = that is found out by time */
    bool (*lost)(void *context);
    /* Polled while a server that has gone is tried again: true = none will come back, the call
     * fails with PEER. NULL = that is found out by time */
    bool (*over)(void *context);
    void *context;
} trm_ps_client_options;

/* Connects to all servers.   errors  INVALID, TIMEOUT and PEER (naming the server), NOMEM
 *   thread  a client and its batches: one thread at a time */
TRM_API TRM_MUST_USE trm_status trm_ps_client_create(const trm_ps_client_options *options,
                                                     trm_ps_client **out, trm_error *err);
/* Tells the servers that this worker has finished; unanswered pushes are lost (flush first). */
TRM_API void trm_ps_client_destroy(trm_ps_client *client);
/* How the servers run, and the number of the batch that comes next in this worker's life: when it
 * was started again, behind those that the servers have seen from it. */
TRM_API trm_ps_mode trm_ps_client_mode(const trm_ps_client *client);
TRM_API int64_t trm_ps_client_next_batch(const trm_ps_client *client);
/* Declares a table on all servers. Workers declare the same tables in the same order.
 *   errors  INVALID (options; or another worker declared it differently) */
TRM_API TRM_MUST_USE trm_status trm_ps_client_table(trm_ps_client *client,
                                                    const trm_table_options *options,
                                                    int32_t *table, trm_error *err);

/* Keeps so many hot rows of this table here, beside what cache_rows of the options said for all;
 * each is used for
 * cache_staleness batches. 0, and a table that has a cache: nothing changes.   errors  INVALID, NOMEM
 */
TRM_API TRM_MUST_USE trm_status trm_ps_client_cache(trm_ps_client *client, int32_t table,
                                                    int64_t rows, trm_error *err);

/* One batch: slices of keys of any tables, pulled with one request per server and pushed with one.
 * Keys may repeat, within and across slices of a table: each goes over the wire once.
 *
 *     trm_ps_batch_clear(batch);
 *     trm_ps_batch_add(batch, users, keys, 4096, rows, gradients, &err);     a few times
 *     trm_ps_pull_start(batch, &err);        e.g. while the batch before is computed
 *     trm_ps_pull_wait(batch, &err);         rows[i] is the row of keys[i]
 *     ... gradients[i] = d loss / d rows[i]
 *     trm_ps_push(batch, NULL, &err);        does not wait, unless pushes_ahead are unanswered
 *
 *   owns  caller, before the client    error  NOMEM */
TRM_API TRM_MUST_USE trm_status trm_ps_batch_create(trm_ps_client *client, trm_ps_batch **out,
                                                    trm_error *err);
TRM_API void trm_ps_batch_destroy(trm_ps_batch *batch);
TRM_API void trm_ps_batch_clear(trm_ps_batch *batch);
/* shape  keys[count], rows[count][width] written by the pull (NULL = not wanted), gradients
 *        [count][width] read by the push (NULL = none); all borrowed until the push or clear
 * errors INVALID, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_ps_batch_add(trm_ps_batch *batch, int32_t table,
                                                 const uint64_t *keys, int64_t count, float *rows,
                                                 const float *gradients, trm_error *err);
/* errors  TIMEOUT (naming the server, or the workers that a bound waits for), PEER, INVALID, NOMEM
 */
TRM_API TRM_MUST_USE trm_status trm_ps_pull_start(trm_ps_batch *batch, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_ps_pull_wait(trm_ps_batch *batch, trm_error *err);

/* Reads what is there now, in no worker's order: waits for no bound, is no batch. For saving and
 * looking.   errors  as pull */
TRM_API TRM_MUST_USE trm_status trm_ps_read(trm_ps_batch *batch, trm_error *err);

/* A range of samples of one epoch, lent to one worker. */
typedef struct trm_ps_lease {
    int64_t id; /* 0 = none */
    int64_t epoch, begin, end;
} trm_ps_lease;

typedef struct trm_ps_push_options {
    float rate_scale; /* times the tables' learning rates: a schedule; 0 = 1 */
    /* This push used the samples of `lease`, from where the push before it under this lease ended,
     * up to `position` (exclusive); id 0 = none. Its samples name the batch: when this worker dies,
     * and others make the batch again, no row of any server learns from it twice, and none misses
     * it. Workers of a job use one batch size. A push under a lease that was lost is refused: the
     * next one under it says CANCELLED. With several servers such a push waits for the answers of
     * all but server 0, which then marks the samples as used; synchronous, it decides then who is
     * in a step, and a pull has the step with the push before it. */
    trm_ps_lease lease;
    int64_t position;
} trm_ps_push_options;
/* Finishes the batch: its clock goes on even if no slice has gradients.   errors  as pull */
TRM_API TRM_MUST_USE trm_status trm_ps_push(trm_ps_batch *batch, const trm_ps_push_options *options,
                                            trm_error *err);
/* Waits until all pushes are answered.   errors  as pull */
TRM_API TRM_MUST_USE trm_status trm_ps_flush(trm_ps_client *client, trm_error *err);

/* Samples lent by server 0, so that each is used once per epoch although workers come and go: what
 * a silent worker has not used goes to others. All workers ask with the same numbers. */
typedef struct trm_ps_lease_options {
    int64_t samples, lease_samples; /* of an epoch; of one lease */
    int64_t epochs;                 /* 0 = no end */
    double timeout_seconds;         /* without a push under it a lease is lost; 0 = 60 */
    /* lent and used, of all epochs together: then no more are there; 0 = no limit */
    int64_t samples_max;
    /* near samples_max leases are small, but of whole batches of so many; 0 = 1 */
    int64_t batch;
} trm_ps_lease_options;
/* errors  TRM_END: all epochs are used; TRM_PENDING: others still work on the last leases of the
 * epoch, ask again; INVALID: other numbers than before */
TRM_API TRM_MUST_USE trm_status trm_ps_lease_take(trm_ps_client *client,
                                                  const trm_ps_lease_options *options,
                                                  trm_ps_lease *lease, trm_error *err);

typedef struct trm_ps_client_stats {
    int64_t lookups, unique_keys, cached_keys; /* of pulls */
    int64_t pushes, resent, repeated;          /* repeated: the server had applied them before */
    int64_t reconnects;
    int64_t bytes_sent, bytes_received;
    int64_t global_step; /* pushes (synchronous: batches) applied, as of the last answer */
} trm_ps_client_stats;
TRM_API void trm_ps_client_get_stats(const trm_ps_client *client, trm_ps_client_stats *out);
/* Sums over all servers and shards.   errors  as pull */
TRM_API TRM_MUST_USE trm_status trm_ps_table_get_stats(trm_ps_client *client, int32_t table,
                                                       trm_table_stats *out, trm_error *err);
/* The row of a key: audit. info, values[width] and slots (as many as the rule has) may be NULL.
 *   errors  TRM_END if there is none */
TRM_API TRM_MUST_USE trm_status trm_ps_row(trm_ps_client *client, int32_t table, uint64_t key,
                                           trm_row_info *info, float *values, float *slots,
                                           trm_error *err);

/* A worker as server 0 knows it. */
typedef struct trm_ps_worker {
    int32_t worker, incarnation; /* incarnation: how often it has begun */
    int64_t batches;             /* finished */
    /* neither has it said that it is done, nor was it silent for too long */
    bool active;
    double silent_seconds;
} trm_ps_worker;
/* Those that have come so far; *count is how many there are, at most `capacity` are written.
 *   errors  as pull */
TRM_API TRM_MUST_USE trm_status trm_ps_workers(trm_ps_client *client, trm_ps_worker *workers,
                                               int32_t capacity, int32_t *count, trm_error *err);

/* The chief's duties, checkpoints and the end of the job, are one worker's at a time. Server 0
 * keeps a lease: who holds it and is silent for worker_timeout_seconds loses it to the next that
 * asks, and is then refused a checkpoint and the end. Everything that the holder sends counts, and
 * while it waits for servers it says that it lives. */
typedef enum trm_ps_chief_wish {
    TRM_PS_CHIEF_STANDS_IN, /* only when the chief is silent, or has not come for as long */
    TRM_PS_CHIEF_IS         /* the one that the job names: also when nobody is yet */
} trm_ps_chief_wish;
typedef struct trm_ps_chief {
    bool mine;
    int32_t worker; /* whose it is; -1 = nobody's */
    double silent_seconds, lease_seconds;
} trm_ps_chief;
/* Asks to be chief, or to stay it. `timeout_seconds`: for this question; 0 = the client's.
 *   errors  as pull; CANCELLED (another process is this worker) */
TRM_API TRM_MUST_USE trm_status trm_ps_chief_ask(trm_ps_client *client, trm_ps_chief_wish wish,
                                                 double timeout_seconds, trm_ps_chief *out,
                                                 trm_error *err);
/* This worker pushes no more, nobody waits for it, its samples are others'. It may still read, and
 * be the chief.
 *   errors  as pull */
TRM_API TRM_MUST_USE trm_status trm_ps_leave(trm_ps_client *client, trm_error *err);

typedef struct trm_ps_checkpoint_result {
    uint32_t cut;
    bool differential;
    int64_t rows, bytes;
    double seconds, hold_seconds; /* in all; and that pushes were held back */
} trm_ps_checkpoint_result;
/* A consistent cut of all shards of all servers, taken while workers go on: every push is in it on
 * all servers or on none. Files go to each server's folder; the list of them, written last, to
 * `folder`/MANIFEST-<cut>.json (the same folder when servers share one). `differential` holds what
 * changed since the cut before (and becomes full when there is none).
 *   errors  INVALID, IO, NOSPACE, TIMEOUT, PEER: then the cut does not exist; CANCELLED: another worker is the chief
 */
TRM_API TRM_MUST_USE trm_status trm_ps_checkpoint(trm_ps_client *client, bool differential,
                                                  trm_ps_checkpoint_result *result, trm_error *err);
/* Tells all servers to end (trm_ps_server_wait returns).   errors  as pull; CANCELLED: another worker is the chief
 */
TRM_API TRM_MUST_USE trm_status trm_ps_stop_servers(trm_ps_client *client, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
