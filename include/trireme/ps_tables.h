/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/ps_tables.h: tables of parameter servers: how rows begin, learn, come and go, and where
 * they live. */
#ifndef TRIREME_PS_TABLES_H
#define TRIREME_PS_TABLES_H

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

#ifdef __cplusplus
}
#endif
#endif
