/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/base.h: the words that every room uses: status and error record, data types, shapes,
 * tensor views, and the log sink.
 *
 * Every fallible function returns a trm_status and takes a caller-owned trm_error as its last
 * argument (NULL if uninterested):
 *
 *     trm_error err;
 *     if (trm_model_train(model, &options, &err) != TRM_OK) {
 *         fprintf(stderr, "%s\n", err.message);
 *         return trm_status_exit_code(err.status);
 *     }
 *
 * The error is written once, by the function that first knows; callers propagate it unchanged. A
 * program that ends at its first error writes TRM_OR_EXIT(trm_model_train(model, &options, &err)).
 */
#ifndef TRIREME_BASE_H
#define TRIREME_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_VERSION_MAJOR 0
#define TRM_VERSION_MINOR 1
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

/* One code per decision that a caller can take. TRM_END and TRM_PENDING are not errors. */
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

typedef enum trm_status {
#define TRM_STATUS_ENUM(name, value, text) name = value,
    TRM_STATUS_LIST(TRM_STATUS_ENUM)
#undef TRM_STATUS_ENUM
} trm_status;

/* The error record: plain data, exactly 256 bytes, so that it can cross threads, languages and the
 * wire (rank 3's cause is what the user reads on rank 0). Nothing in it needs to be freed. */
typedef struct trm_error {
    int32_t status;    /* a trm_status */
    int32_t rank;      /* the rank where it was decided, -1 when there is only one */
    int32_t sys_errno; /* errno at that moment, 0 if none */
    int32_t line;      /* source line of the decision */
    char file[24];     /* source file of the decision, tail of its path */
    char message[216]; /* one sentence: what was expected, what was found, what to do */
} trm_error;

/* Name ("TRM_IO") and sentence ("a file could not be read or written") of a status.
 *   owns  static strings   thread any */
TRM_API const char *trm_status_name(trm_status status);
TRM_API const char *trm_status_text(trm_status status);

/* The process exit code of a status: 0 done, 1 job failed, 2 wrong use, 3 bad data or file,
 * 4 out of memory or disk, 5 a peer failed or timed out. */
TRM_API int trm_status_exit_code(trm_status status);

/* For programs: writes the error's sentence to stderr and ends the process with the exit code of
 * its status. */
TRM_API TRM_NO_RETURN void trm_error_exit(const trm_error *err);

/* For programs: the call, in which `err` is a trm_error that is declared here; trm_error_exit unless
 * it gives TRM_OK. */
#define TRM_OR_EXIT(call)                                                                          \
    do {                                                                                           \
        trm_error err;                                                                             \
        err.message[0] = '\0';                                                                     \
        err.status = TRM_OK;                                                                       \
        if ((call) != TRM_OK) {                                                                    \
            trm_error_exit(&err);                                                                  \
        }                                                                                          \
    } while (0)

/* Frees text and arrays that a function has handed out to its caller. NULL is fine. */
TRM_API void trm_free(void *memory);

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

typedef enum trm_dtype {
    TRM_DTYPE_NONE = 0,
#define TRM_DTYPE_ENUM(name, value, bytes, text) name = value,
    TRM_DTYPE_LIST(TRM_DTYPE_ENUM)
#undef TRM_DTYPE_ENUM
} trm_dtype;

/* Bytes of one element (0 for an unknown dtype) and the name ("float32"). */
TRM_API size_t trm_dtype_bytes(trm_dtype dtype);
TRM_API const char *trm_dtype_name(trm_dtype dtype);

#define TRM_MAX_RANK 6

/* A shape: `rank` dimensions, outermost first. Rank 0 is a scalar of one element. */
typedef struct trm_shape {
    int32_t rank;
    int64_t dim[TRM_MAX_RANK];
} trm_shape;

/* trm_shape_of(2, 3, 4): a shape from its dimensions. */
#define trm_shape_of(...)                                                                          \
    trm_shape_make((int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
                   (const int64_t[]){__VA_ARGS__})
TRM_API trm_shape trm_shape_make(int32_t rank, const int64_t *dim);
/* Number of elements; -1 if a dimension is negative, there are too many, or the product does not
 * fit int64. */
TRM_API int64_t trm_shape_count(const trm_shape *shape);
TRM_API bool trm_shape_equal(const trm_shape *a, const trm_shape *b);
/* Writes "[2, 3, 4]" (truncated to `size`, always terminated) and returns `text`. */
TRM_API const char *trm_shape_format(const trm_shape *shape, char *text, size_t size);

/* A view of dense row-major elements. Borrowed: the view owns nothing. */
typedef struct trm_tensor {
    void *data;
    trm_dtype dtype;
    trm_shape shape;
} trm_tensor;
TRM_API int64_t trm_tensor_bytes(const trm_tensor *tensor);

/* Until a sink is set (NULL: none), warnings and errors go to stderr. One call a line, no newline.
 *   thread  the sink may be called from any thread; set it before the first other call */
typedef enum trm_log_level {
    TRM_LOG_ERROR,
    TRM_LOG_WARN,
    TRM_LOG_INFO,
    TRM_LOG_DEBUG
} trm_log_level;
typedef void (*trm_log_sink)(void *context, trm_log_level level, const char *room,
                             const char *line);
TRM_API void trm_log_set_sink(trm_log_sink sink, void *context, trm_log_level most_verbose);

/* "0.2.0". */
TRM_API const char *trm_version(void);

/* ==== this machine ========================================================================== */

/* What this machine and this build have, for programs that report it. */

typedef struct trm_machine {
    char cpu[64];
    char isa[32];  /* "avx512_bf16", "avx512", "avx2", "plain": what our kernels use */
    int32_t cores; /* that this process may use: affinity and cgroup quota */
    int32_t cores_online;
    int64_t memory_bytes; /* that this process may use: RAM and cgroup limit */
    int64_t memory_free_bytes;
    char onednn[32];                   /* "2.6.3", "" when built without */
    int32_t omp_threads;               /* OpenMP's default, 0 when built without */
    char huge_pages[16];               /* "always", "madvise", "never", "" unknown */
    int64_t shm_bytes, shm_free_bytes; /* /dev/shm; -1 = none */
    char cache[256];                   /* the cache directory, "" when there is none */
    char host[64];
    char kernel[64];
} trm_machine;
/* Asks the machine; microseconds. thread: any */
TRM_API void trm_machine_ask(trm_machine *out);

/* Peak and present resident bytes of this process, what other processes count for of the latter
 * (memory that ranks share is in all of them), and monotonic seconds. */
TRM_API int64_t trm_peak_bytes(void);
TRM_API int64_t trm_resident_bytes(void);
TRM_API int64_t trm_shared_bytes(void);
TRM_API double trm_now_seconds(void);

#ifdef __cplusplus
}
#endif
#endif
