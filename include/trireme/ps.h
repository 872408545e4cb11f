/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/ps.h: parameter servers. Servers hold embedding tables and dense variables in host
 * memory; workers pull rows by 64-bit key, compute, and push gradients.
 *
 *      worker --pull keys--> [ server: shard | shard | ... ]   one owner thread a shard
 *             <--- rows ----   each shard: tables of rows, a row and its optimiser slots
 *             --push grads->   in one record
 *             <--- done ----
 *
 * A pull changes nothing. A push creates rows (when admission accepts them) and applies the
 * optimiser. Rows start from a pure function of (seed, key), so that tables are the same for any
 * number of servers, shards or workers, and for any order in which keys appear.
 *
 * Models use servers through trm_ps_training, whole jobs through trm_estimator (trireme/train.h). A
 * loop of your own uses a client:
 *
 *     trm_ps_client_options options = {.addresses = addresses, .servers = 2};
 *     trm_ps_client_create(&options, &client, &err);
 *     trm_table_options table = {.name = "users", .width = 16};
 *     trm_ps_client_table(client, &table, &users, &err);
 *     trm_ps_batch_create(client, &batch, &err);      then as trm_ps_batch below
 *
 * Sections:
 *
 *   tables               options of a table: values, admission, expiry, placement; its figures
 *   pooling and hashing  bags of rows; keys of categorical values
 *   servers              a server of this process
 *   clients              pulls and pushes, leases of samples, the chief, checkpoints
 *   tools                a job's folder; tables of running servers */
#ifndef TRIREME_PS_H
#define TRIREME_PS_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ------------------------------------------------------------------------------- */

/* Distributions of initial values. */
typedef enum trm_row_init_kind {
    TRM_ROW_INIT_CONSTANT, /* value */
    TRM_ROW_INIT_UNIFORM,  /* value +- scale */
    TRM_ROW_INIT_NORMAL    /* mean value, standard deviation scale */
} trm_row_init_kind;

/* Initial values of rows. */
typedef struct trm_row_init {
    trm_row_init_kind kind; /* the distribution */
    float value, scale;     /* as the kind says */
    /* not 0: rows are those of a [.., width] array filled element by element from this stream of
     * random numbers, as parameters of a network are, so that a table begins with the values that
     * it has on one device */
    uint64_t stream;
} trm_row_init;

/* The rule by which a new key gets a row. Until it has one, its gradients are dropped whole, and
 * pulls read the initial value. Counts are kept in checkpoints. */
typedef enum trm_admission_kind {
    TRM_ADMIT_ALL,        /* every pushed key */
    TRM_ADMIT_COUNT,      /* from the min_count-th push on, counted exactly for `capacity` keys */
    TRM_ADMIT_BLOOM,      /* the same in a counting Bloom filter: may admit early, never late */
    TRM_ADMIT_PROBABILITY /* each push of an absent key admits it with `probability` */
} trm_admission_kind;

/* Options of admission. Zero means the default. */
typedef struct trm_admission {
    trm_admission_kind kind; /* the rule */
    int32_t min_count;       /* 1 to 255; 0 = 2 */
    int64_t capacity;        /* keys that are counted, whole table; 0 = 1 << 20 */
    double probability;      /* in (0, 1] */
} trm_admission;

/* The order in which rows leave a table that has max_rows: the least recently updated first, or the
 * least often updated first. */
typedef enum trm_cap_policy { TRM_CAP_LRU, TRM_CAP_LFU } trm_cap_policy;

/* The rules by which rows leave a table. Each rule is off at 0. Each push checks a few rows. */
typedef struct trm_expiry {
    double after_seconds; /* time without an update of the row */
    int64_t after_ticks;  /* pushes of any row without an update of this one */
    /* rows below leave. score = 1 an update, times score_decay a tick; above 1 where nothing decays
     */
    float min_score;
    float score_decay; /* 0 = 1 (no decay) */
    /* of the whole table; above it the worst of a sample of 16 rows leaves first */
    int64_t max_rows;
    trm_cap_policy cap; /* worst row: least recently or least often updated */
    /* Euclidean norm of a row's values below which it leaves; where rows begin at 0, also new ones
     */
    float min_norm;
} trm_expiry;

/* The rule that assigns rows to servers. Checkpoints load at any number of servers. */
typedef enum trm_placement_kind {
    TRM_PLACE_BY_HASH,     /* any keys */
    TRM_PLACE_ROUND_ROBIN, /* part p on server (first + p) % servers */
    TRM_PLACE_BY_SIZE      /* equal bytes on all servers */
} trm_placement_kind;

/* The placement of a table's rows; trm_ps_place fills it in. A dense variable is a table of keys 0
 * to rows - 1, cut into parts of (nearly) equal length; all rows of a part are on one server. */
typedef struct trm_placement {
    trm_placement_kind kind; /* the rule */
    /* parts; 0 = 1. ROUND_ROBIN: parts of the variables before this one */
    int32_t parts, first;
    int64_t rows;      /* of the variable */
    double begin, end; /* BY_SIZE: range of this variable in all bytes, within [0, 1] */
} trm_placement;

/* Initial values of rows other than their table's initialiser: a warm start. */
typedef struct trm_ps_source {
    /* copies row `key` of `table` to values[width]; returns false if there is none. Any thread may
     * call it. NULL = no table has any */
    bool (*read)(void *context, const char *table, uint64_t key, int32_t width, float *values);
    void *context; /* for `read` */
} trm_ps_source;

/* Values of a staleness besides its numbers: rows are never old; rows may be of any age. */
enum { TRM_STALENESS_NONE = -1 };
#define TRM_STALENESS_ANY INT32_MAX /* no bound; of a job: only those of its tables */

/* Options of a table. */
typedef struct trm_table_options {
    const char *name; /* unique among the tables of a job; copied */
    int32_t width;    /* values of a row, 1 to 1048576 */
    trm_dtype dtype;  /* of the values: 0 = float32; bfloat16, float16 */
    /* rounding of 16-bit rows and of gradients on a 16-bit wire; false: stochastic */
    bool round_to_nearest;
    /* BOUNDED mode: batches that rows of this table may be old when they are used: a pull that
     * reads any waits for that, and a worker's cache keeps rows no longer. 0 = the job's,
     * TRM_STALENESS_NONE = rows are never old */
    int32_t staleness;
    uint64_t seed;        /* of initial values, rounding and admission */
    double learning_rate; /* 0 = 0.01 */
    /* rule of the rows, whose slots are float32, whatever their dtype; zero = ADAGRAD */
    trm_optimizer_options optimizer;
    trm_row_init init;       /* initial values */
    trm_admission admission; /* rule for new keys */
    trm_expiry expiry;       /* when rows leave */
    trm_placement placement; /* 0 = by hash */
} trm_table_options;

/* The rule for the number of parts into which a variable's rows are cut, as in TensorFlow. */
typedef enum trm_partition_kind {
    TRM_PARTITION_NONE,     /* one part */
    TRM_PARTITION_FIXED,    /* max_parts */
    TRM_PARTITION_MIN_SIZE, /* as many as possible of at least part_bytes, at most max_parts */
    /* as few as possible of at most part_bytes; max_parts has precedence */
    TRM_PARTITION_MAX_SIZE
} trm_partition_kind;

/* Options of partitioning a variable. Zero means the default. */
typedef struct trm_partition {
    trm_partition_kind kind; /* the rule */
    int32_t max_parts;       /* 0 = 1; MAX_SIZE: 0 = no limit */
    int64_t part_bytes;      /* 0 = 256 KiB */
} trm_partition;

/* Size of a dense variable. */
typedef struct trm_ps_variable {
    int64_t rows, row_bytes; /* number of rows; bytes of one */
} trm_ps_variable;

/* Computes the placements of dense variables, in the order of their creation.
 *   param    variables: [count]
 *            out: [count] placements for trm_table_options, written
 *            partition: NULL = each variable is one part
 *            kind: rule of all placements
 *   errors   INVALID
 *   threads  any */
TRM_API TRM_MUST_USE trm_status trm_ps_place(const trm_ps_variable *variables, int32_t count,
                                             const trm_partition *partition,
                                             trm_placement_kind kind, trm_placement *out,
                                             trm_error *err);

/* Classes of lags that are counted. */
enum { TRM_PS_LAGS = 12 };
/* Content of a table and its work since creation, summed over shards. Lags are counted since its
 * servers started. */
typedef struct trm_table_stats {
    int64_t rows, spilled_rows; /* in memory; in the spill file */
    int64_t bytes;              /* memory of rows, index, admission */
    int64_t reads, read_misses; /* keys */
    int64_t updates;            /* gradients applied to rows */
    int64_t created, refused;   /* new keys admitted; not (yet) admitted */
    int64_t expired, evicted;   /* rows that left by a rule; by the cap or the memory limit */
    int64_t spilled, unspilled; /* rows moved to the file; moved back */
    int64_t no_room;            /* gradients dropped because the memory limit allowed no row */
    /* pushes (each server counts its part) by lag, the table's updates between reading and pushing:
     * 0, 1, 2, up to 4, 8, 16 ... 512, more; and the sum of all lags. Not counted in SYNC mode,
     * which has no lag */
    int64_t lags[TRM_PS_LAGS], lag_sum;
    int32_t admission_level; /* how often the memory limit has doubled min_count */
} trm_table_stats;

/* State of one row. */
typedef struct trm_row_info {
    uint64_t key;                  /* of the row */
    uint32_t last_tick, last_time; /* of the last update: tick, wall-clock second */
    uint32_t count, version;       /* updates since creation; changes of the record */
    float score;                   /* of expiry */
    bool spilled;                  /* the row is in the spill file */
} trm_row_info;

/* ---- pooling and hashing ------------------------------------------------------------------- */

/* Bags of rows: bag b is the rows offsets[b] to offsets[b + 1] - 1. All arrays are borrowed. */
typedef struct trm_bags {
    trm_bag_pooling pooling; /* how the rows of a bag are combined */
    const float *rows;       /* [offsets[count]][width] */
    const float *weights;    /* [offsets[count]]; NULL = all 1 */
    const int64_t *offsets;  /* [count + 1] */
    int64_t count;           /* of bags */
    int32_t width;           /* of a row */
} trm_bags;

/* Pools the rows of bags: out[b] = scale_b * sum over the rows i of bag b of weight_i * rows[i];
 * scale_b is 1, 1 / sum(weights) or 1 / sqrt(sum(weights^2)) (TensorFlow's definitions). An empty
 * bag gives zeros.
 *   param    out: [count][width], written
 *   threads  any */
TRM_API void trm_pool_rows(const trm_bags *bags, float *out);
/* Computes the gradient of trm_pool_rows: d_rows[i] = scale_b * weight_i * d_out[b].
 *   param    bags: without d_weights, `rows` may be NULL
 *            d_out: [count][width]
 *            d_rows: [offsets[count]][width], written
 *            d_weights: [offsets[count]] the exact derivative, also through scale_b, written;
 *            NULL = not wanted
 *   threads  any */
TRM_API void trm_pool_rows_gradient(const trm_bags *bags, const float *d_out, float *d_rows,
                                    float *d_weights);

/* Returns the key of a categorical value: a 64-bit hash (XXH3) of its bytes, seeded by the
 * feature's number, so that equal texts of two features differ.
 *   param    buckets: > 0: the key is folded into [0, buckets); 0: 64 bits
 *   threads  any */
TRM_API uint64_t trm_feature_key(uint32_t feature, const void *value, size_t bytes,
                                 uint64_t buckets);

/* ---- servers -------------------------------------------------------------------------------- */

/* A server of this process. */
typedef struct trm_ps_server trm_ps_server;

/* The rule by which servers apply pushes, and by which pulls wait for other workers. */
typedef enum trm_ps_mode {
    TRM_PS_ASYNC, /* every push is applied when it arrives */
    /* the same, but a pull of batch t waits until every worker has pushed batch t - staleness */
    TRM_PS_BOUNDED,
    TRM_PS_SYNC /* gradients of batch t are summed over the workers and applied once */
} trm_ps_mode;

/* Options of a server. Zero means the default. */
typedef struct trm_ps_server_options {
    int32_t server, servers; /* number of this one; of all; 0 = 1 */
    int32_t shards;          /* owner threads; 0 = CPUs of this process, at most 16 */
    /* limit of tables and logs' buffers, never exceeded; 0 = 80 % of the machine's */
    int64_t memory_bytes;
    const char *listen; /* "127.0.0.1:4000"; port 0 = any; NULL = this process only */
    const char *folder; /* of checkpoints and logs; NULL = nothing is kept */
    /* logs pushes to the folder: a killed server loses no answered push. Default: off (an
     * estimator's servers: on where there is a folder) */
    trm_switch log_pushes;
    bool log_sync; /* flushes each push to the disk: a machine that fails loses none either */
    /* for rows beyond the memory, made if it is missing; NULL = cold rows are evicted */
    const char *spill_folder;
    int64_t spill_bytes; /* 0 = as much as the disk has */
    trm_ps_mode mode;    /* when pushes are applied and pulls wait */
    int32_t workers;     /* BOUNDED, SYNC: expected workers; 0 = 1 */
    /* BOUNDED: batches; 0 = every worker finishes batch t before any starts t + 1. Tables may have
     * their own; TRM_STALENESS_ANY = only those count */
    int32_t staleness;
    /* SYNC: a step does not wait for the slowest so many; their pushes are dropped, or, with leased
     * samples, added to the next sum */
    int32_t backup_workers;
    bool sum_gradients; /* SYNC: applies the sum; false: the mean */
    /* not SYNC: divides the learning rate of a push by 1 + the updates since its rows were read
     * (Zhang et al. 2016), so that k workers move as far as one: for large dense networks */
    bool staleness_aware;
    /* pure, and the same whenever the server starts: values of rows without any push */
    trm_ps_source initial;
    /* a worker that is silent for so long is no longer waited for; 0 = 60 */
    double worker_timeout_seconds;
    /* 32 bytes, the job's token, without which no process may connect; NULL = a random one.
     * Processes of this user on this host find it in /tmp/trireme-UID/token-ADDRESS (mode 0600)
     * while the server runs. A server that listens beyond loopback needs one */
    const void *token;
    /* 32 bytes that all processes of the job have: clients of another job are refused; NULL = zeros
     */
    const void *job_id;
    /* source of job_id for the error ("ps 0 has model_dir /data/run"); ids are compared only if
     * both ends give one */
    const char *job_origin;
} trm_ps_server_options;

/* Starts a server, after loading its folder (newest complete checkpoint, then the logs).
 *   errors   INVALID, NOMEM, IO, CORRUPT, UNSUPPORTED (a folder of another version)
 *   owns     caller: trm_ps_server_stop(*out) */
TRM_API TRM_MUST_USE trm_status trm_ps_server_start(const trm_ps_server_options *options,
                                                    trm_ps_server **out, trm_error *err);
/* Returns the address, "127.0.0.1:41234"; "" without a listener.
 *   owns     the server */
TRM_API const char *trm_ps_server_address(const trm_ps_server *server);
/* Waits until a client has stopped the servers (trm_ps_stop_servers).
 *   param    timeout_seconds: limit of this wait; 0 = only asks
 *   returns  TRM_PENDING: the caller must stop the server and start it again with the same options
 *            and address: a worker and another server died in the middle of a synchronous step that
 *            this server has applied. Started again, it reads its logs without that step, so that
 *            all servers have the rows of the step before
 *   errors   TIMEOUT
 *   threads  any */
TRM_API trm_status trm_ps_server_wait(trm_ps_server *server, double timeout_seconds);
/* Ends all connections and threads and frees the server. NULL is accepted. */
TRM_API void trm_ps_server_stop(trm_ps_server *server);

/* ---- clients --------------------------------------------------------------------------------- */

/* A worker's connections to all servers. */
typedef struct trm_ps_client trm_ps_client;
/* The keys, rows and gradients of one batch. */
typedef struct trm_ps_batch trm_ps_batch;

/* Options of a client. Zero means the default. */
typedef struct trm_ps_client_options {
    const char *const *addresses; /* [servers] in the order of their numbers; or */
    trm_ps_server *const *local;  /* [servers] of this process */
    int32_t servers;              /* number of servers */
    int32_t worker;               /* 0 to 65534, unique among those that push; -1 = only reads */
    /* type of rows and gradients on the way; 0 = float32. To 16 bits gradients are rounded
     * stochastically (seeded, so reproducible), rows to nearest */
    trm_dtype wire;
    int32_t pushes_ahead;    /* unanswered pushes before a push waits; 0 = 4, at most 32 */
    int64_t cache_rows;      /* hot rows kept of each table; 0 = none */
    int32_t cache_staleness; /* own batches for which a cached row is used; 0 = 1 */
    size_t ring_bytes;       /* shared memory each way, a power of two; 0 = 32 MB */
    bool tcp_only;           /* no shared memory even on one host */
    double timeout_seconds;  /* limit of every wait, restarts of servers included; 0 = 60 */
    double retry_seconds;    /* time without an answer after which a push is sent again; 0 = 5 */
    /* as the server's; NULL = the one that the server keeps for this user on this host */
    const void *token;
    const void *job_id;     /* as the server's, another one is INVALID; NULL = zeros */
    const char *job_origin; /* as the server's */
    /* polled while waiting for a server: true ends a wait with CANCELLED (for other workers' pushes
     * after five seconds). NULL = never */
    bool (*stopped)(void *context);
    /* polled while waiting for a server: true if a synchronous worker has died: the call fails with
     * PEER. NULL = by timeouts */
    bool (*lost)(void *context);
    /* polled while reconnecting to a server: true if no server will come back: the call fails with
     * PEER. NULL = by timeouts */
    bool (*over)(void *context);
    void *context; /* for these functions */
} trm_ps_client_options;

/* Connects to all servers.
 *   errors   INVALID, TIMEOUT and PEER (naming the server), NOMEM
 *   owns     caller: trm_ps_client_destroy(*out)
 *   threads  one thread at a time per client, its batches included */
TRM_API TRM_MUST_USE trm_status trm_ps_client_create(const trm_ps_client_options *options,
                                                     trm_ps_client **out, trm_error *err);
/* Announces to the servers that this worker has finished, and frees the client. Unanswered pushes
 * are lost (trm_ps_flush first). A worker without leases whose latest pull, push or flush has
 * failed is not announced as finished: the servers wait for its next life. NULL is accepted. */
TRM_API void trm_ps_client_destroy(trm_ps_client *client);
/* Returns the number of this worker's next batch: after a restart, after those that the servers
 * have received. */
TRM_API int64_t trm_ps_client_next_batch(const trm_ps_client *client);
/* Declares a table on all servers. Workers declare the same tables in the same order, with the same
 * options, and so does a job that is resumed (only its staleness may be another one): a table that
 * is there keeps its options, and the servers name one that is declared differently.
 *   param    table: its number, written
 *   errors   INVALID (options; one differs from those that the table has), those of
 *            trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_client_table(trm_ps_client *client,
                                                    const trm_table_options *options,
                                                    int32_t *table, trm_error *err);

/* Keeps hot rows of one table in this client, each for cache_staleness batches. Without effect for
 * 0 rows, or if the table has a cache (cache_rows of the options).
 *   errors   INVALID, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_ps_client_cache(trm_ps_client *client, int32_t table,
                                                    int64_t rows, trm_error *err);

/* Creates a batch: slices of keys of any tables, pulled with one request a server and pushed with
 * one. Keys may repeat, within and across slices of a table: each is sent once.
 *
 *     trm_ps_batch_clear(batch);
 *     trm_ps_batch_add(batch, users, keys, 4096, rows, gradients, &err);     a few times
 *     trm_ps_pull_start(batch, &err);        for instance while the batch before is computed
 *     trm_ps_pull_wait(batch, &err);         rows[i] is the row of keys[i]
 *     ... gradients[i] = d loss / d rows[i]
 *     trm_ps_push(batch, NULL, &err);        does not wait, unless pushes_ahead are unanswered
 *
 *   errors   NOMEM
 *   owns     caller: trm_ps_batch_destroy(*out), before the client */
TRM_API TRM_MUST_USE trm_status trm_ps_batch_create(trm_ps_client *client, trm_ps_batch **out,
                                                    trm_error *err);
/* Frees the batch. NULL is accepted. */
TRM_API void trm_ps_batch_destroy(trm_ps_batch *batch);
/* Removes all slices of the batch. */
TRM_API void trm_ps_batch_clear(trm_ps_batch *batch);
/* Adds a slice of keys.
 *   param    keys: [count]
 *            rows: [count][width] written by the pull; NULL = not wanted
 *            gradients: [count][width] read by the push; NULL = none
 *   errors   INVALID, NOMEM
 *   owns     arrays are borrowed until the push or trm_ps_batch_clear */
TRM_API TRM_MUST_USE trm_status trm_ps_batch_add(trm_ps_batch *batch, int32_t table,
                                                 const uint64_t *keys, int64_t count, float *rows,
                                                 const float *gradients, trm_error *err);
/* Sends the requests of a pull and returns.
 *   errors   as trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_pull_start(trm_ps_batch *batch, trm_error *err);
/* Waits for a pull and writes the rows of all slices.
 *   errors   TIMEOUT (naming the server, or the workers that a bound waits for), PEER, INVALID,
 *            CORRUPT (a malformed answer), CANCELLED (options.stopped), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_ps_pull_wait(trm_ps_batch *batch, trm_error *err);

/* Reads the present rows, without waiting for a staleness bound and without counting as a batch.
 * For saving and inspection.
 *   errors   as trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_read(trm_ps_batch *batch, trm_error *err);

/* A range of samples of one epoch, leased to one worker. */
typedef struct trm_ps_lease {
    int64_t id;                /* 0 = none */
    int64_t epoch, begin, end; /* samples [begin, end) of the epoch */
} trm_ps_lease;

/* Options of a push. */
typedef struct trm_ps_push_options {
    /* factor of the tables' learning rates, for a schedule; 0 = 1, TRM_NONE = a rate of 0 */
    float rate_scale;
    /* this push used samples of this lease, from the end of the push before it up to `position`; id
     * 0 = none. The samples identify the batch: if this worker dies and others compute the batch
     * again, each row learns from it exactly once. Workers of a job use one batch size. A push
     * under a lost lease is refused: the next push under it returns CANCELLED. With several servers
     * the push waits for the answers of all but server 0, which then marks the samples as used; in
     * SYNC mode server 0 decides then which pushes a step has, and a pull waits for the step of the
     * push before it */
    trm_ps_lease lease;
    int64_t position; /* sample after the last one used */
} trm_ps_push_options;
/* Pushes the gradients and finishes the batch: the worker's clock rises even if no slice has
 * gradients. Waits only if pushes_ahead pushes are unanswered.
 *   param    options: NULL = no lease, rate 1
 *   errors   as trm_ps_pull_wait; CANCELLED (the lease is lost) */
TRM_API TRM_MUST_USE trm_status trm_ps_push(trm_ps_batch *batch, const trm_ps_push_options *options,
                                            trm_error *err);
/* Waits until all pushes are answered.
 *   errors   as trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_flush(trm_ps_client *client, trm_error *err);

/* How server 0 leases samples, so that each is used once per epoch although workers come and go:
 * the unused samples of a silent worker go to others. All workers use the same numbers. */
typedef struct trm_ps_lease_options {
    int64_t samples, lease_samples; /* of an epoch; of one lease */
    int64_t epochs;                 /* 0 = no end */
    double timeout_seconds;         /* a lease without a push for so long is lost; 0 = 60 */
    int64_t samples_max;            /* limit of samples of all epochs together; 0 = none */
    /* near samples_max leases are smaller, but whole batches of so many samples; 0 = 1 */
    int64_t batch;
} trm_ps_lease_options;
/* Takes the next lease of samples.
 *   param    lease: written
 *   errors   END (all epochs are used), PENDING (other workers still work on the last leases of the
 *            epoch: call again), INVALID (other numbers than before), those of trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_lease_take(trm_ps_client *client,
                                                  const trm_ps_lease_options *options,
                                                  trm_ps_lease *lease, trm_error *err);

/* Work of a client since its creation. */
typedef struct trm_ps_client_stats {
    /* keys of pulls; different ones; of these, found in the cache */
    int64_t lookups, unique_keys, cached_keys;
    /* pushes; sent again; of these, already applied by the server */
    int64_t pushes, resent, repeated;
    int64_t reconnects;                 /* to servers */
    int64_t bytes_sent, bytes_received; /* over all connections */
    int64_t global_step;                /* pushes (SYNC: steps) applied, as of the last answer */
} trm_ps_client_stats;
/* Gives the work of the client. */
TRM_API void trm_ps_client_get_stats(const trm_ps_client *client, trm_ps_client_stats *out);
/* Gives a table's content and work, summed over all servers and shards.
 *   errors   as trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_table_get_stats(trm_ps_client *client, int32_t table,
                                                       trm_table_stats *out, trm_error *err);
/* Reads one row with its state.
 *   param    info, values, slots: written: values [width], slots as many as the rule has; NULL =
 *            not wanted
 *   errors   END (there is none), those of trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_row(trm_ps_client *client, int32_t table, uint64_t key,
                                           trm_row_info *info, float *values, float *slots,
                                           trm_error *err);

/* A worker, by server 0's record. */
typedef struct trm_ps_worker {
    int32_t worker, incarnation; /* number; how often it has started */
    int64_t batches;             /* finished */
    bool active;                 /* it has not left, and was not silent for too long */
    double silent_seconds;       /* since its last message */
} trm_ps_worker;
/* Lists the workers that have connected so far.
 *   param    workers: [capacity], written
 *            count: number of workers, also if above capacity, written
 *   errors   as trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_workers(trm_ps_client *client, trm_ps_worker *workers,
                                               int32_t capacity, int32_t *count, trm_error *err);

/* How a process wants to be chief. One worker at a time has the chief's duties, checkpoints and the
 * end of the job. Server 0 keeps a lease of them: a holder that is silent for
 * worker_timeout_seconds loses it to the next worker that requests it, and is then refused a
 * checkpoint and the end. Every message of the holder renews the lease, also while it waits for
 * servers. */
typedef enum trm_ps_chief_claim {
    TRM_PS_CHIEF_STANDS_IN, /* only when the chief is silent, or has not come for as long */
    TRM_PS_CHIEF_IS         /* the one that the job names: also when there is no chief yet */
} trm_ps_chief_claim;
/* The lease of the chief's duties. */
typedef struct trm_ps_chief {
    bool mine;      /* this worker has it */
    int32_t worker; /* number of the worker that has it; -1 = none */
    /* since the holder's last message; after which it loses the lease */
    double silent_seconds, lease_seconds;
} trm_ps_chief;
/* Requests or renews the lease of the chief's duties.
 *   param    timeout_seconds: of this request; 0 = the client's
 *            wish: how the caller wants to be chief
 *   errors   as trm_ps_pull_wait; CANCELLED (another process has this worker's number) */
TRM_API TRM_MUST_USE trm_status trm_ps_chief_request(trm_ps_client *client, trm_ps_chief_claim wish,
                                                     double timeout_seconds, trm_ps_chief *out,
                                                     trm_error *err);
/* Ends this worker's part in training: it pushes no more, no process waits for it, and its samples
 * go to other workers. It may still read, and be the chief. If a server's disk is full, the
 * call repeats the goodbye until timeout_seconds of the client are over.
 *   errors   as trm_ps_pull_wait; IO, NOSPACE (a server that is started again would wait for this
 *            worker) */
TRM_API TRM_MUST_USE trm_status trm_ps_leave(trm_ps_client *client, trm_error *err);

/* A checkpoint of the servers. */
typedef struct trm_ps_checkpoint_result {
    uint32_t snapshot;            /* number of the snapshot */
    bool differential;            /* holds changes only */
    int64_t rows, bytes;          /* written by all servers */
    double seconds, hold_seconds; /* in all; of these, with pushes held back */
} trm_ps_checkpoint_result;
/* Writes a consistent snapshot of all shards of all servers, while workers go on: every push is in
 * it on all servers or on none. Files go to each server's folder; their list, written last, to
 * `folder`/MANIFEST-<number>.json (one folder when servers share it).
 *   param    differential: true = only changes since the snapshot before (full when there is none)
 *            result: written
 *   errors   INVALID, IO, NOSPACE, TIMEOUT, PEER: the snapshot does not exist; CANCELLED (another
 *            worker is the chief); NOMEM: it may exist */
TRM_API TRM_MUST_USE trm_status trm_ps_checkpoint(trm_ps_client *client, bool differential,
                                                  trm_ps_checkpoint_result *result, trm_error *err);
/* Ends all servers: trm_ps_server_wait returns.
 *   errors   as trm_ps_pull_wait; CANCELLED (another worker is the chief) */
TRM_API TRM_MUST_USE trm_status trm_ps_stop_servers(trm_ps_client *client, trm_error *err);

/* ==== tools ================================================================================= */

/* Inspection of servers' tables. */

/* ---- a job's folder ------------------------------------------------------------------------- */

/* The files of a job's servers: a checkpoint with verified digests, and the pushes of the logs
 * since. Read-only: a running job is not disturbed. */
typedef struct trm_ps_folder trm_ps_folder;

/* Options of opening a folder. Zero means the default. */
typedef struct trm_ps_folder_options {
    uint32_t snapshot; /* number of the snapshot; 0 = the newest */
    trm_switch logs;   /* adds the pushes of the logs. Default: on; TRM_OFF: the checkpoint alone */
    const char *table; /* loads only its rows; NULL = all */
    const uint64_t *key; /* and only this row, with its last writers; NULL = all */
    /* initial values of the job's rows: trm_ps_initial_open (trireme/train.h) */
    trm_ps_source initial;
} trm_ps_folder_options;

/* Summary of a folder. */
typedef struct trm_ps_folder_info {
    uint32_t snapshot;           /* number of the snapshot */
    bool differential;           /* the snapshot holds changes only */
    int32_t servers, shards;     /* of the job; of a server */
    int32_t tables;              /* number of tables */
    int64_t global_step, logged; /* pushes; of these, added from the logs */
} trm_ps_folder_info;

/* A push that changed a row. */
typedef struct trm_ps_writer {
    uint32_t worker, incarnation; /* of the push */
    uint64_t sequence;            /* of the push, within the incarnation */
    uint32_t tick, time;          /* of the shard; wall-clock second */
} trm_ps_writer;
/* The most pushes that are listed of one row. */
enum { TRM_PS_WRITERS = 16 };

/* Loads the folder of a job's servers.
 *   param    options: zero: newest snapshot with logs, all tables
 *   errors   INVALID (no checkpoint, no such table), IO, CORRUPT (file, block, offset), UNSUPPORTED
 *            (a folder of another version), NOMEM
 *   owns     caller: trm_ps_folder_close(*out) */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_open(const char *path,
                                                   const trm_ps_folder_options *options,
                                                   trm_ps_folder **out, trm_error *err);
/* Frees the folder. NULL is accepted. */
TRM_API void trm_ps_folder_close(trm_ps_folder *folder);
/* Gives a summary of the folder. */
TRM_API void trm_ps_folder_get_info(const trm_ps_folder *folder, trm_ps_folder_info *out);
/* Returns the options of a table.
 *   param    rows: number of loaded rows, written
 *            slots: values of slots of a row, written
 *   owns     the folder */
TRM_API const trm_table_options *trm_ps_folder_table(const trm_ps_folder *folder, int32_t table,
                                                     int64_t *rows, int32_t *slots);
/* Reads one row with its state; parameters as in trm_ps_row.
 *   errors   END (there is none), INVALID */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_row(const trm_ps_folder *folder, int32_t table,
                                                  uint64_t key, trm_row_info *info, float *values,
                                                  float *slots, trm_error *err);
/* Lists the pushes of the logs that changed the row `options.key`, the last first.
 *   param    total: number of such pushes, written
 *   returns  number of entries in out */
TRM_API int32_t trm_ps_folder_writers(const trm_ps_folder *folder,
                                      trm_ps_writer out[TRM_PS_WRITERS], int64_t *total);
/* Receives one row.
 *   returns  TRM_OK: go on; else the end of the listing */
typedef trm_status (*trm_ps_row_fn)(void *context, const trm_row_info *info, const float *values,
                                    const float *slots);
/* Calls `see` for every loaded row of a table, in no order, until it returns anything but TRM_OK.
 *   param    context: for `see`
 *   errors   INVALID (no such table), NOMEM, the error that `see` returned */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_each(const trm_ps_folder *folder, int32_t table,
                                                   trm_ps_row_fn see, void *context,
                                                   trm_error *err);

/* ---- running servers ------------------------------------------------------------------------ */

/* Adopts the tables that the servers have, so that a client that has declared none (worker -1) can
 * read them: 0 to *count - 1.
 *   param    count: number of tables, written
 *   errors   as trm_ps_client_table */
TRM_API TRM_MUST_USE trm_status trm_ps_client_adopt(trm_ps_client *client, int32_t *count,
                                                    trm_error *err);
/* Returns the options of a table of this client; NULL if there is none.
 *   param    slots: values of slots of a row, written
 *   owns     the client */
TRM_API const trm_table_options *trm_ps_client_table_options(const trm_ps_client *client,
                                                             int32_t table, int32_t *slots);
/* Reads one row with its state and the pushes that changed it last (several if their sum did; none
 * if that was more than 2048 pushes ago, or before the server started, without logs). Other
 * parameters as in trm_ps_row.
 *   param    writers, writer_count: written; both may be NULL
 *   errors   END (there is none), CORRUPT (an answer of another size), those of trm_ps_pull_wait */
TRM_API TRM_MUST_USE trm_status trm_ps_audit_row(trm_ps_client *client, int32_t table, uint64_t key,
                                                 trm_row_info *info, float *values, float *slots,
                                                 trm_ps_writer writers[TRM_PS_WRITERS],
                                                 int32_t *writer_count, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
