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
    float min_score;      /* score = 1 an update, times score_decay a tick */
    float score_decay;    /* 0 = 1 (never decays) */
    int64_t max_rows;     /* whole table; then the worst of a sample of 16 leaves first */
    trm_cap_policy cap;   /* who is worst: least recently or least often updated */
} trm_expiry;

typedef struct trm_table_options {
    const char *name;      /* unique among the tables of a job; copied */
    int32_t width;         /* values a row, 1..1048576 */
    trm_dtype dtype;       /* of the values: 0 = float32; bfloat16, float16 */
    bool round_to_nearest; /* 16-bit rows: instead of stochastic rounding */
    uint64_t seed;         /* of initial values, rounding and admission */
    trm_row_optimizer optimizer;
    trm_row_init init;
    trm_admission admission;
    trm_expiry expiry;
} trm_table_options;

/* What a table holds and has done since its creation, summed over shards. */
typedef struct trm_table_stats {
    int64_t rows, spilled_rows;
    int64_t bytes;              /* memory of rows, index, admission */
    int64_t reads, read_misses; /* keys */
    int64_t updates;            /* gradients applied to rows */
    int64_t created, refused;   /* new keys let in, not (yet) let in */
    int64_t expired, evicted;   /* left by a rule, by the cap or the budget */
    int64_t spilled, unspilled; /* moved to the file, moved back */
    int64_t no_room;            /* gradients dropped because the budget gave no row */
    int32_t admission_level;    /* how often the budget has doubled min_count */
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

/* ---- benchmark ------------------------------------------------------------------------------ */

typedef struct trm_ps_bench_options {
    int64_t rows;       /* 0 = as many 16 x float32 rows as half the memory, at most 16 Mi */
    int64_t batch;      /* keys a call; 0 = 65536 */
    int32_t repeats;    /* 0 = 7 */
    const char *folder; /* for checkpoints; NULL = the table part only */
} trm_ps_bench_options;

/* Called once per measurement.   name  "read", "update.rowwise_adagrad", ...
 *   median, minimum, maximum of `repeats` runs in `unit` ("rows/s", "GB/s", "ratio", ...) */
typedef void (*trm_ps_bench_report)(void *context, const char *name, const char *unit,
                                    double median, double minimum, double maximum, int32_t repeats);

/* Measures this machine: plain prefetched gather, keyed reads and updates of a table far larger
 * than the cache, and their ratios to the gather of the same run.
 *   errors  NOMEM, IO   thread  one; uses one core */
TRM_API TRM_MUST_USE trm_status trm_ps_bench(const trm_ps_bench_options *options,
                                             trm_ps_bench_report report, void *context,
                                             trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
