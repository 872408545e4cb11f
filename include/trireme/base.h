/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/base.h: what all other headers use: status and error record, data types, shapes, tensor
 * views, the log, options of optimisers and facts about this machine.
 *
 * Three doors lead into the library. Open trireme/train.h for a model that the library trains
 * (network, loss, optimiser, callbacks); trireme/exec.h for a training loop of your own over a
 * compiled graph; trireme/dist.h to run a program of any framework on many ranks.
 *
 * A function that can fail returns a trm_status and takes, as its last argument, a trm_error that
 * belongs to the caller (NULL: the sentence is not wanted):
 *
 *     trm_error err;
 *     if (trm_model_train(model, &options, &err) != TRM_OK) {
 *         fprintf(stderr, "%s\n", err.message);
 *         return trm_status_exit_code(err.status);
 *     }
 *
 * The function that detects an error writes the record once; its callers pass it on unchanged. A
 * program that ends at its first error writes TRM_OR_EXIT(trm_model_train(model, &options, &err)).
 *
 * A NULL where a function needs a pointer is an error, too (INVALID, naming the argument);
 * functions that return no status then do nothing and return zero or NULL. A path that is too long
 * is INVALID, and a function for which there is no memory returns NOMEM. Comments of functions need
 * not repeat these.
 *
 * Comments of functions have one form: sentences first, then tags in this order, each only where it
 * adds something:
 *
 *   param    an argument: shape, unit, what zero or NULL means
 *   returns  the value; functions that return a trm_status return TRM_OK unless an error is named
 *   errors   statuses that the function returns, without TRM_, and when
 *   owns     what the caller must free, and how; or how long a borrowed pointer is valid
 *   threads  which threads may call; without it: one thread at a time per object
 *   source   paper or specification
 *   level    expert: few programs need it; unstable: a minor version may change it */
#ifndef TRIREME_BASE_H
#define TRIREME_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers; trm_version is that of the library. */
#define TRM_VERSION_MAJOR 0
#define TRM_VERSION_MINOR 2
#define TRM_VERSION_PATCH 0

#if defined(__GNUC__)
#define TRM_API __attribute__((visibility("default")))
#define TRM_MUST_USE __attribute__((warn_unused_result))
#define TRM_NO_RETURN __attribute__((noreturn))
#define TRM_PRINTF(fmt_index, first) __attribute__((format(printf, fmt_index, first)))
#else
#define TRM_API
#define TRM_MUST_USE
#define TRM_NO_RETURN
#define TRM_PRINTF(fmt_index, first)
#endif

/* One code for each decision that a caller can take. TRM_END and TRM_PENDING are not errors. */
#define TRM_STATUS_LIST(X)                                                                         \
    X(TRM_OK, 0, "ok")                                                                             \
    X(TRM_END, 1, "end of the data")                                                               \
    X(TRM_PENDING, 2, "not finished yet")                                                          \
    X(TRM_INVALID, -1, "wrong use or configuration")                                               \
    X(TRM_NOMEM, -2, "out of memory")                                                              \
    X(TRM_IO, -3, "a file could not be read or written")                                           \
    X(TRM_CORRUPT, -4, "damaged or malformed data")                                                \
    X(TRM_UNSUPPORTED, -5, "not supported here")                                                   \
    X(TRM_TIMEOUT, -6, "a deadline passed")                                                        \
    X(TRM_PEER, -7, "a peer failed")                                                               \
    X(TRM_CANCELLED, -8, "stopped on request")                                                     \
    X(TRM_INTERNAL, -9, "internal error (a defect of trireme)")                                    \
    X(TRM_NOSPACE, -10, "out of disk space")                                                       \
    X(TRM_DIVERGED, -11, "a value became NaN or infinite")

/* Result of a function: 0 is success, positive values are no errors, negative values are errors. */
typedef enum trm_status {
#define TRM_STATUS_ENUM(name, value, text) name = value,
    TRM_STATUS_LIST(TRM_STATUS_ENUM)
#undef TRM_STATUS_ENUM
} trm_status;

/* The error record: plain data of exactly 256 bytes without pointers, so that it can be copied
 * between threads, languages and processes (rank 0 shows the first cause, wherever it arose).
 * Nothing in it needs to be freed. */
typedef struct trm_error {
    int32_t status;    /* a trm_status */
    int32_t rank;      /* rank that detected the error; -1 when there is only one */
    int32_t sys_errno; /* errno at that moment; 0 = none */
    int32_t line;      /* source line that detected the error */
    char file[24];     /* its source file, the last part of the path */
    char message[216]; /* one sentence: what is wrong, found and expected, what to do */
} trm_error;

/* Returns the name of a status ("TRM_IO").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_status_name(trm_status status);
/* Returns the meaning of a status in words ("a file could not be read or written").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_status_text(trm_status status);

/* Returns the process exit code for a status: 0 done, 1 job failed, 2 wrong use, 3 bad data or
 * file, 4 out of memory or disk, 5 a peer failed or timed out.
 *   threads  any */
TRM_API int trm_status_exit_code(trm_status status);

/* Writes the error's sentence to stderr and ends the process with the exit code of its status. For
 * programs, not for libraries. */
TRM_API TRM_NO_RETURN void trm_error_exit(const trm_error *err);

/* Runs the call and ends the process by trm_error_exit unless the call returns TRM_OK. The macro
 * declares the trm_error `err` that the call names; it hides another `err` of the program. For
 * programs, not for libraries. */
#define TRM_OR_EXIT(call)                                                                          \
    do {                                                                                           \
        trm_error err;                                                                             \
        err.message[0] = '\0';                                                                     \
        err.status = TRM_OK;                                                                       \
        if ((call) != TRM_OK) {                                                                    \
            trm_error_exit(&err);                                                                  \
        }                                                                                          \
    } while (0)

/* Frees text or an array that a function of this library gave to its caller. NULL is accepted.
 *   threads  any */
TRM_API void trm_free(void *memory);

/* ---- options -------------------------------------------------------------------------------- */

/* In every options struct zero means the default, so {0} is a valid value. Where a default is on,
 * TRM_OFF turns it off. Where a number has a default, TRM_NONE means none of it, and TRM_ALL means
 * no limit. Members after a comment "expert" are at that level. */
typedef enum trm_switch {
    TRM_DEFAULT, /* as the member's comment says */
    TRM_ON,
    TRM_OFF
} trm_switch;
/* Values that numbers of options may have besides those of their range. */
enum {
    TRM_NONE = -1,       /* of a count, number or time: none, where 0 means a default */
    TRM_ALL = 2147483647 /* of a count: no limit */
};

/* How the rows of a bag are combined; each row is multiplied by its weight first. */
typedef enum trm_bag_pooling {
    TRM_BAG_SUM,
    TRM_BAG_MEAN,  /* the sum divided by the sum of the weights */
    TRM_BAG_SQRT_N /* the sum divided by the root of the sum of squared weights */
} trm_bag_pooling;

/* Data types. The numeric values are part of the wire and file formats: append only. */
#define TRM_DTYPE_LIST(X)                                                                          \
    X(TRM_FLOAT32, 1, 4, "float32")                                                                \
    X(TRM_FLOAT64, 2, 8, "float64")                                                                \
    X(TRM_BFLOAT16, 3, 2, "bfloat16")                                                              \
    X(TRM_FLOAT16, 4, 2, "float16")                                                                \
    X(TRM_INT8, 5, 1, "int8")                                                                      \
    X(TRM_UINT8, 6, 1, "uint8")                                                                    \
    X(TRM_INT32, 7, 4, "int32")                                                                    \
    X(TRM_INT64, 8, 8, "int64")

/* Type of the elements of a tensor. */
typedef enum trm_dtype {
    TRM_DTYPE_NONE = 0,
#define TRM_DTYPE_ENUM(name, value, bytes, text) name = value,
    TRM_DTYPE_LIST(TRM_DTYPE_ENUM)
#undef TRM_DTYPE_ENUM
} trm_dtype;

/* Returns the bytes of one element; 0 for an unknown type.
 *   threads  any */
TRM_API size_t trm_dtype_bytes(trm_dtype dtype);
/* Returns the name of a type ("float32").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_dtype_name(trm_dtype dtype);

/* The largest number of dimensions of a shape. */
#define TRM_MAX_RANK 6

/* A shape: `rank` dimensions, outermost first. Rank 0 is a scalar of one element. */
typedef struct trm_shape {
    int32_t rank;              /* number of dimensions, 0 to TRM_MAX_RANK */
    int64_t dim[TRM_MAX_RANK]; /* [rank] sizes, outermost first */
} trm_shape;

/* Makes a shape from an array of dimensions.
 *   param    dim: [rank] sizes, outermost first; with a rank above TRM_MAX_RANK the shape counts -1
 *            elements, and functions that take it refuse it
 *   threads  any */
TRM_API trm_shape trm_shape_make(int32_t rank, const int64_t *dim);
/* Makes a shape from its dimensions: trm_shape_of(2, 3, 4). A scalar has (trm_shape){0}. */
#ifndef __cplusplus
#define trm_shape_of(...)                                                                          \
    trm_shape_make((int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
                   (const int64_t[]){__VA_ARGS__})
#else
extern "C++" {
template <typename... D> inline trm_shape trm_shape_of(D... dim) {
    const int64_t all[] = {(int64_t)dim...};
    return trm_shape_make((int32_t)sizeof...(dim), all);
}
/* Gives &(trm_dataset_spec){.path = "synth"} the meaning that it has in C, as long as the statement
 * lasts. C++ has no address of a temporary; that of any other object is as always. */
template <typename T> struct trm_plain {
    static const bool value = __is_trivially_copyable(T); /* not of references */
};
template <bool plain, typename T> struct trm_literal {};
template <typename T> struct trm_literal<true, T> { typedef T type; };
template <typename T>
inline typename trm_literal<trm_plain<T>::value, T>::type *operator&(T &&literal) {
    return __builtin_addressof(literal);
}
}
#endif
/* Returns the number of elements; -1 if a dimension is negative, the rank is too high, or the
 * product does not fit int64.
 *   threads  any */
TRM_API int64_t trm_shape_count(const trm_shape *shape);
/* Returns true if both shapes have the same rank and dimensions.
 *   threads  any */
TRM_API bool trm_shape_equal(const trm_shape *a, const trm_shape *b);
/* Writes a shape as "[2, 3, 4]", cut off at `size` bytes and always terminated.
 *   param    text: [size], written
 *   returns  text
 *   threads  any */
TRM_API const char *trm_shape_format(const trm_shape *shape, char *text, size_t size);

/* A view of dense row-major elements. A view owns nothing. */
typedef struct trm_tensor {
    void *data;      /* first element; NULL where a comment allows a tensor without data */
    trm_dtype dtype; /* of the elements */
    trm_shape shape; /* of the elements; row-major, without gaps */
} trm_tensor;
/* Returns the bytes of all elements of a tensor; -1 where trm_shape_count gives -1.
 *   threads  any */
TRM_API int64_t trm_tensor_bytes(const trm_tensor *tensor);

/* Severity of a log line, from the most to the least severe. */
typedef enum trm_log_level {
    TRM_LOG_ERROR,
    TRM_LOG_WARN,
    TRM_LOG_INFO,
    TRM_LOG_DEBUG
} trm_log_level;
/* Receives one log line, without its newline. `room` names the part of the library that wrote it.
 *   threads  any, also several at the same time */
typedef void (*trm_log_sink)(void *context, trm_log_level level, const char *room,
                             const char *line);
/* Sends log lines up to level `most_verbose` to `sink`. Until the first call, warnings and errors
 * go to stderr.
 *   param    sink: NULL = lines are dropped
 *            context: for `sink`
 *   threads  call it before all other functions */
TRM_API void trm_log_set_sink(trm_log_sink sink, void *context, trm_log_level most_verbose);

/* Returns the version of the library ("0.2.0").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_version(void);

/* ==== optimisers ============================================================================= */

/* The rule that updates a parameter w, or a row of a servers' table, from its gradient g; lr is the
 * learning rate. "Models": parameters that a process updates itself. "Tables": rows of parameter
 * servers. Values are part of the wire and file formats: append only. */
typedef enum trm_optimizer_kind {
    TRM_OPTIMIZER_DEFAULT, /* models: SGD; tables: ADAGRAD */
    TRM_SGD,               /* w -= lr g */
    TRM_MOMENTUM,          /* m = momentum m + g; w -= lr m (PyTorch, MindSpore) */
    TRM_ADAGRAD,           /* a += g^2; w -= lr g / (sqrt(a) + epsilon); Duchi et al. 2011 */
    TRM_ROWWISE_ADAGRAD,   /* tables: a += mean(g^2), one number a row; else as ADAGRAD */
    /* Kingma and Ba 2015, bias-corrected. Tables: moments of a row that was in none of the last k
     * pushes decay by beta^k first */
    TRM_ADAM,
    TRM_LAZY_ADAM, /* tables: moments of a row decay only when pushed (torch.optim.SparseAdam) */
    /* FTRL-proximal: n' = n + g^2; z += g - (sqrt(n') - sqrt(n)) / lr w; w = 0 where |z| <= l1,
     * else -(z - sign(z) l1) / ((beta + sqrt(n')) / lr + 2 l2); McMahan et al. 2013 */
    TRM_FTRL,
    TRM_NESTEROV, /* as MOMENTUM with w -= lr (g + momentum m) */
    TRM_LARS      /* models: MOMENTUM with a trust ratio for each layer; You et al. 2017 */
} trm_optimizer_kind;

/* Options of the optimiser of a model (trireme/exec.h) or of a table (trireme/ps.h). Zero means the
 * default. Numbers are kept in float32. Rows are updated only when they have a gradient. */
typedef struct trm_optimizer_options {
    trm_optimizer_kind kind; /* the rule */
    double momentum;         /* MOMENTUM, NESTEROV, LARS; 0 = none. Unused by other rules */
    double beta1, beta2;     /* ADAM, LAZY_ADAM; 0 = 0.9, 0.999 */
    double epsilon;          /* 0 = ADAM, LAZY_ADAM 1e-8; LARS 1e-9; else 1e-10 */
    double weight_decay;     /* factor of w that is added to the gradient; 0 = none */
    bool decoupled;          /* ADAM, LAZY_ADAM: decay acts on w itself (AdamW) */
    /* models: parameters of rank 1 (norms, biases) and those of trm_exclude_from_decay are decayed;
     * false: they are not */
    bool decay_all;
    bool decay_biases;        /* models: biases are decayed, but not the vectors of a batch norm */
    double trust_coefficient; /* LARS; 0 = 0.001 */
    /* ADAGRAD, ROWWISE_ADAGRAD, FTRL: first value of a or n; 0 = 0 (TensorFlow's default is 0.1) */
    double initial_accumulator;
    /* FTRL: l1 |w| + l2 w^2 is added to the loss, as in TensorFlow (McMahan's lambda2 is 2 l2);
     * 0 = none */
    double l1, l2;
    double beta; /* FTRL: added to sqrt(n) in the rate of each element; 0 = none, TensorFlow's */
    double clip_norm; /* models: limit of the global norm of all gradients; 0 = none */
} trm_optimizer_options;

/* ==== messages ============================================================================== */

/* Returns the word of `words` that was probably meant by `word`: the one with the fewest letters to
 * insert, delete, replace or swap, or of which `word` is the beginning or the initials; NULL = none
 * is near.
 *   param    words: [count]
 *   owns     the caller of words
 *   threads  any
 *   level    expert */
TRM_API const char *trm_nearest_word(const char *word, const char *const *words, int32_t count);

/* ==== this machine ========================================================================== */

/* Hardware of this machine and features of this build, for programs that report them. */
typedef struct trm_machine {
    char cpu[64]; /* model name of the CPU */
    /* instruction set that the kernels use: "avx512_bf16", "avx512", "avx2", "plain" */
    char isa[32];
    int32_t cores;             /* CPUs that this process may use: affinity and cgroup quota */
    int32_t cores_online;      /* CPUs of the machine */
    int64_t memory_bytes;      /* RAM that this process may use: machine and cgroup limit */
    int64_t memory_free_bytes; /* of that, free now */
    char onednn[32];           /* version of oneDNN; "" when built without */
    int32_t omp_threads;       /* OpenMP's default thread count; 0 when built without */
    char huge_pages[16];       /* "always", "madvise", "never"; "" = unknown */
    int64_t shm_bytes, shm_free_bytes; /* of /dev/shm; -1 = none */
    char cache[256];                   /* the cache directory; "" = none */
    char host[64];                     /* host name */
    char kernel[64];                   /* release of the kernel */
} trm_machine;
/* Fills in what this machine and this build offer. Takes microseconds.
 *   threads  any */
TRM_API void trm_machine_get(trm_machine *out);

/* Returns the peak resident memory of this process in bytes.
 *   threads  any */
TRM_API int64_t trm_peak_bytes(void);
/* Returns the present resident memory of this process in bytes.
 *   threads  any */
TRM_API int64_t trm_resident_bytes(void);
/* Returns the part of the resident memory that other processes allocated, in bytes (memory that
 * ranks share is in the resident memory of each).
 *   threads  any */
TRM_API int64_t trm_shared_bytes(void);
/* Returns monotonic time in seconds.
 *   threads  any */
TRM_API double trm_now_seconds(void);

#ifdef __cplusplus
}
#endif
#endif
