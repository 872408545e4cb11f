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

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ------------------------------------------------------------------------------- */

/* How a row learns from a gradient g; lr is the learning rate, n the number of ticks. All state is
 * float32, whatever the row's own dtype. Values are part of the file format: append only. */
typedef enum trm_row_rule {
    TRM_ROW_SGD = 1,         /* w -= lr g */
    TRM_ROW_MOMENTUM,        /* m = momentum m + g; w -= lr m   (lazy: untouched rows rest) */
    TRM_ROW_ADAGRAD,         /* a += g^2; w -= lr g / (sqrt(a) + epsilon) */
    TRM_ROW_ROWWISE_ADAGRAD, /* a += mean(g^2), one number a row; else as Adagrad */
    TRM_ROW_ADAM,            /* moments of a row that rested k ticks decay by beta^k first */
    TRM_ROW_LAZY_ADAM,       /* moments decay only when touched (torch.optim.SparseAdam) */
    TRM_ROW_FTRL             /* FTRL-proximal: l1, l2, beta; McMahan et al., KDD'13 */
} trm_row_rule;

/* Zero in a field means the default named beside it. */
typedef struct trm_row_optimizer {
    trm_row_rule rule;         /* TRM_ROW_ADAGRAD */
    float learning_rate;       /* 0.01 */
    float momentum;            /* 0 */
    bool nesterov;             /* w -= lr (g + momentum m) */
    float beta1, beta2;        /* 0.9, 0.999 */
    float epsilon;             /* 1e-10; Adam 1e-8 */
    float initial_accumulator; /* 0 (TensorFlow's Adagrad and FTRL: 0.1) */
    float l1, l2, beta;        /* FTRL: 0, 0, 0 */
    float weight_decay;        /* g += weight_decay w, on touched rows; 0 */
} trm_row_optimizer;

typedef enum trm_row_init_kind {
    TRM_ROW_INIT_CONSTANT, /* value */
    TRM_ROW_INIT_UNIFORM,  /* value +- scale */
    TRM_ROW_INIT_NORMAL    /* mean value, standard deviation scale */
} trm_row_init_kind;

typedef struct trm_row_init {
    trm_row_init_kind kind;
    float value, scale;
    /* Not 0: the rows are those of a [.., width] array that was filled element by element from this
     * stream of random numbers, as parameters of a network are (so that a table begins with the
     * same values here as on one device). */
    uint64_t stream;
} trm_row_init;

/* Which new keys get a row. Until then their gradients are dropped whole and pulls see the initial
 * value. Counts survive checkpoints. */
typedef enum trm_admission_kind {
    TRM_ADMIT_ALL,
    TRM_ADMIT_COUNT,      /* from the min_count-th push on, counted exactly for `capacity` keys */
    TRM_ADMIT_BLOOM,      /* the same in a counting Bloom filter: may admit early, never late */
    TRM_ADMIT_PROBABILITY /* each push of an absent key admits it with `probability` */
} trm_admission_kind;

typedef struct trm_admission {
    trm_admission_kind kind;
    int32_t min_count;  /* 1..255; 0 = 2 */
    int64_t capacity;   /* keys in waiting, whole table; 0 = 1 << 20 */
    double probability; /* (0, 1] */
} trm_admission;

typedef enum trm_cap_policy { TRM_CAP_LRU, TRM_CAP_LFU } trm_cap_policy;

/* When rows leave. Each rule is off at 0. A few rows are looked at with every push. */
typedef struct trm_expiry {
    double after_seconds; /* without an update */
    int64_t after_ticks;  /* pushes of any row without an update of this one */
    /* score = 1 an update, times score_decay a tick; above 1 where nothing decays */
    float min_score;
    float score_decay;  /* 0 = 1 (never decays) */
    int64_t max_rows;   /* whole table; then the worst of a sample of 16 leaves first */
    trm_cap_policy cap; /* who is worst: least recently or least often updated */
    /* of a row's values, Euclidean; where rows begin at 0, also of new ones */
    float min_norm;
} trm_expiry;

/* Where rows live. Never a question of how many servers there were when they were made: a
 * checkpoint loads at any number of servers. */
typedef enum trm_placement_kind {
    TRM_PLACE_BY_HASH,     /* any keys */
    TRM_PLACE_ROUND_ROBIN, /* part p on server (first + p) % servers */
    TRM_PLACE_BY_SIZE      /* equal bytes to all: servers share the bytes of all variables */
} trm_placement_kind;

/* A dense variable is a table of keys 0 .. rows - 1 whose parts, ranges of rows of (nearly) equal
 * length, each live on one server. Filled by trm_ps_place. */
typedef struct trm_placement {
    trm_placement_kind kind;
    int32_t parts, first; /* 0 = 1; ROUND_ROBIN: parts before this variable's */
    int64_t rows;
    double begin, end; /* BY_SIZE: this variable's share of all bytes, within [0, 1] */
} trm_placement;

/* Where rows begin, instead of at their table's initialiser: a warm start. */
typedef struct trm_ps_source {
    /* Row `key` of `table` into values[width]; false: it has none. NULL: no table has any.   thread any
     */
    bool (*read)(void *context, const char *table, uint64_t key, int32_t width, float *values);
    void *context;
} trm_ps_source;

enum { TRM_STALENESS_NONE = -1 };
#define TRM_STALENESS_ANY INT32_MAX /* no bound; of a job: only those of its tables */

typedef struct trm_table_options {
    const char *name;      /* unique among the tables of a job; copied */
    int32_t width;         /* values a row, 1..1048576 */
    trm_dtype dtype;       /* of the values: 0 = float32; bfloat16, float16 */
    bool round_to_nearest; /* 16-bit rows, gradients on a 16-bit wire: not stochastically */
    /* Where servers are BOUNDED: how many batches old rows of this table may be when they are used;
     * a pull that asks for any waits for that, and a worker keeps hot ones no longer. 0 = as the
     * job's, TRM_STALENESS_NONE = none at all. */
    int32_t staleness;
    uint64_t seed; /* of initial values, rounding and admission */
    trm_row_optimizer optimizer;
    trm_row_init init;
    trm_admission admission;
    trm_expiry expiry;
    trm_placement placement;
} trm_table_options;

/* Into how many parts a variable is cut, along its rows: TensorFlow's rules. */
typedef enum trm_partition_kind {
    TRM_PARTITION_NONE,
    TRM_PARTITION_FIXED,    /* max_parts of them */
    TRM_PARTITION_MIN_SIZE, /* as many as possible of at least part_bytes, at most max_parts */
    TRM_PARTITION_MAX_SIZE  /* as few as possible of at most part_bytes; max_parts wins */
} trm_partition_kind;

typedef struct trm_partition {
    trm_partition_kind kind;
    int32_t max_parts;  /* 0 = 1; MAX_SIZE: 0 = no limit */
    int64_t part_bytes; /* 0 = 256 KiB */
} trm_partition;

typedef struct trm_ps_variable {
    int64_t rows, row_bytes;
} trm_ps_variable;

/* Places variables, in the order of their creation: out[count] for their tables' options.
 *   errors  INVALID   thread  any */
TRM_API TRM_MUST_USE trm_status trm_ps_place(const trm_ps_variable *variables, int32_t count,
                                             const trm_partition *partition,
                                             trm_placement_kind kind, trm_placement *out,
                                             trm_error *err);
/* The server of a row.   thread  any */
TRM_API int32_t trm_ps_server_of(const trm_placement *placement, uint64_t key, int32_t servers);

/* What a table holds and has done since its creation, summed over shards; lags are of this life of
 * its servers. */
enum { TRM_PS_LAGS = 12 };
typedef struct trm_table_stats {
    int64_t rows, spilled_rows;
    int64_t bytes;              /* memory of rows, index, admission */
    int64_t reads, read_misses; /* keys */
    int64_t updates;            /* gradients applied to rows */
    int64_t created, refused;   /* new keys let in, not (yet) let in */
    int64_t expired, evicted;   /* left by a rule, by the cap or the budget */
    int64_t spilled, unspilled; /* moved to the file, moved back */
    int64_t no_room;            /* gradients dropped because the budget gave no row */
    /* Pushes (each server counts its own part) by lag, the table's updates between reading and
     * pushing: 0, 1, 2, up to 4, 8, 16 ... 512, more; and the sum of all lags. None are counted
     * where the mode is SYNC: there is no lag. */
    int64_t lags[TRM_PS_LAGS], lag_sum;
    int32_t admission_level; /* how often the budget has doubled min_count */
} trm_table_stats;

/* One row as an audit shows it. */
typedef struct trm_row_info {
    uint64_t key;
    uint32_t last_tick, last_time; /* of the last update: tick, wall-clock second */
    uint32_t count, version;       /* updates since creation; changes of the record */
    float score;
    bool spilled;
} trm_row_info;

/* ---- pooling and hashing ------------------------------------------------------------------- */

typedef enum trm_pooling { TRM_POOL_SUM, TRM_POOL_MEAN, TRM_POOL_SQRTN } trm_pooling;

/* Pools the rows of bags: out[b] = scale_b * sum over i in [offsets[b], offsets[b + 1]) of
 * weight_i * rows[i]; scale_b is 1, 1 / sum(weights) or 1 / sqrt(sum(weights^2)) (TensorFlow's
 * definitions); an empty bag gives zeros.
 *   shape   rows[offsets[bags]][width], weights[offsets[bags]] or NULL for ones, out[bags][width]
 *   thread  any */
TRM_API void trm_pool_rows(trm_pooling pooling, const float *rows, const float *weights,
                           const int64_t *offsets, int64_t bags, int32_t width, float *out);
/* Its gradient: d_rows[i] = scale_b * weight_i * d_out[b]; d_weights (NULL = not wanted) is the
 * exact derivative, also through scale_b. `rows` may be NULL without d_weights. */
TRM_API void trm_pool_rows_gradient(trm_pooling pooling, const float *rows, const float *weights,
                                    const int64_t *offsets, int64_t bags, int32_t width,
                                    const float *d_out, float *d_rows, float *d_weights);

/* The key of a categorical value: a 64-bit hash (XXH3) of the bytes, seeded by the feature's
 * number, so that equal texts of two features differ. `buckets` > 0 folds it into [0, buckets).
 * thread any */
TRM_API uint64_t trm_feature_key(uint32_t feature, const void *value, size_t bytes,
                                 uint64_t buckets);

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
    /* Refuses clients of another job: 32 bytes that all processes of the job have, and where this
     * one has them from, for the message ("ps 0 has model_dir /data/run"). Zeros: it has none. Not
     * compared if either end gives no job_origin. */
    const void *job_id;
    const char *job_origin;
} trm_ps_server_options;

/* Starts a server; what its folder holds (newest complete checkpoint, then the logs) is loaded
 * first.
 *   errors  INVALID, NOMEM, IO, CORRUPT */
TRM_API TRM_MUST_USE trm_status trm_ps_server_start(const trm_ps_server_options *options,
                                                    trm_ps_server **out, trm_error *err);
/* "127.0.0.1:41234", "" without a listener. */
TRM_API const char *trm_ps_server_address(const trm_ps_server *server);
/* Waits until a client has sent STOP. TRM_TIMEOUT otherwise; TRM_PENDING: the caller must stop the
 * server and start it again with the same options and address. A worker and another server died in
 * the middle of a synchronous step that this server has applied; started again it reads its logs
 * without that step, so that all servers have the rows of the step before.   thread any */
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
    const void *job_id;      /* as the server's; another one: INVALID */
    const char *job_origin;
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

/* ==== tools ================================================================================= */

/* Looking into parameter servers' tables, and measuring them. */

/* ---- a job's folder ------------------------------------------------------------------------- */

/* What servers have kept: a checkpoint, its digests checked, and the pushes of the logs since. Only
 * read: a running job is not disturbed. */
typedef struct trm_ps_folder trm_ps_folder;

typedef struct trm_ps_folder_options {
    uint32_t cut;        /* 0 = the newest */
    bool no_logs;        /* the checkpoint alone */
    const char *table;   /* loads only its rows; NULL = all */
    const uint64_t *key; /* and only this row, with its last writers */
    /* what the job's rows began with: trm_ps_initial_open (trireme/estimator.h) */
    trm_ps_source initial;
} trm_ps_folder_options;

typedef struct trm_ps_folder_info {
    uint32_t cut;
    bool differential;
    int32_t servers, shards; /* shards of a server */
    int32_t tables;
    int64_t global_step, logged; /* pushes; those of them that the logs added */
} trm_ps_folder_info;

/* Of a push that changed a row. */
typedef struct trm_ps_writer {
    uint32_t worker, incarnation;
    uint64_t sequence;
    uint32_t tick, time; /* of the shard; wall-clock second */
} trm_ps_writer;
enum { TRM_PS_WRITERS = 16 };

/* errors  INVALID (no checkpoint, no such table), IO, CORRUPT (file, block, offset), NOMEM
 *   owns  caller, by trm_ps_folder_close */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_open(const char *path,
                                                   const trm_ps_folder_options *options,
                                                   trm_ps_folder **out, trm_error *err);
TRM_API void trm_ps_folder_close(trm_ps_folder *folder);
TRM_API void trm_ps_folder_get_info(const trm_ps_folder *folder, trm_ps_folder_info *out);
/* Its options, and the numbers of rows and slots of those rows that were loaded. */
TRM_API const trm_table_options *trm_ps_folder_table(const trm_ps_folder *folder, int32_t table,
                                                     int64_t *rows, int32_t *slots);
/* As trm_ps_row.   errors  TRM_END if there is none */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_row(const trm_ps_folder *folder, int32_t table,
                                                  uint64_t key, trm_row_info *info, float *values,
                                                  float *slots, trm_error *err);
/* The pushes of the logs that changed `options.key`, the last first; how many of *total. */
TRM_API int32_t trm_ps_folder_writers(const trm_ps_folder *folder,
                                      trm_ps_writer out[TRM_PS_WRITERS], int64_t *total);
/* Calls for every loaded row of a table, in no order, until `see` returns anything but TRM_OK.
 *   errors  INVALID (no such table), NOMEM, what `see` returned */
typedef trm_status (*trm_ps_see_row)(void *context, const trm_row_info *info, const float *values,
                                     const float *slots);
TRM_API TRM_MUST_USE trm_status trm_ps_folder_each(const trm_ps_folder *folder, int32_t table,
                                                   trm_ps_see_row see, void *context,
                                                   trm_error *err);

/* ---- running servers ------------------------------------------------------------------------ */

/* Takes over the tables that the servers have been told of, so that a client that knows none (of
 * worker -1, say) can ask about them: 0 to *count - 1.   errors  as trm_ps_client_table */
TRM_API TRM_MUST_USE trm_status trm_ps_client_adopt(trm_ps_client *client, int32_t *count,
                                                    trm_error *err);
/* Options and number of slots of a table of this client; NULL if there is none. */
TRM_API const trm_table_options *trm_ps_client_table_options(const trm_ps_client *client,
                                                             int32_t table, int32_t *slots);
/* As trm_ps_row, and whose push changed the row last (several when their sum did; none when that
 * was more than 2048 pushes ago, or in the server's life before, without logs). `writers` may be
 * NULL, then writer_count too. */
TRM_API TRM_MUST_USE trm_status trm_ps_audit_row(trm_ps_client *client, int32_t table, uint64_t key,
                                                 trm_row_info *info, float *values, float *slots,
                                                 trm_ps_writer writers[TRM_PS_WRITERS],
                                                 int32_t *writer_count, trm_error *err);

/* ---- forecast ------------------------------------------------------------------------------- */

/* Memory that a table of so many rows will need, index and free places included, on all shards.
 *   errors  INVALID   thread  any */
TRM_API TRM_MUST_USE trm_status trm_ps_forecast(const trm_table_options *table, int64_t rows,
                                                int32_t shards, int64_t *bytes, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
