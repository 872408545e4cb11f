/* SPDX-License-Identifier: Apache-2.0 */
/* The three calls on trm_ranks: broadcast, all-reduce and sharding for a program that has its own
 * training loop (trireme/dist.h).
 *
 * Many small values anywhere in memory are packed into a few large operations:
 *
 *        [w0] [w1] NULL [w2]  --copy-->  [w0 w1 w2] in memory that peers reach  --reduce-->  copied back
 *
 * A value above STAGING_BYTES is reduced in place by an operation of its own. Without a handle
 * (NULL) the functions use the ranks of the process, which are joined at the first call and left
 * at exit (`own`); this is the only global state. */
#include "trireme/dist.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/api/communicator.h"
#include "comm/cluster/cluster_claim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of memory through which small values pass. */
enum { STAGING_BYTES = 4 << 20 };

/* A handle on the ranks, for one thread at a time. */
struct trm_ranks {
    trm_bootstrap *bootstrap; /* owned; NULL: the communicator is borrowed */
    trm_comm *comm;           /* NULL: one process */
    /* STAGING_BYTES of memory that the ranks of a host share */
    char *staging;
    pid_t process; /* the rank: not a child that it forked */
};

/* ---- creation and destruction ---------------------------------------------------------------- */

/* Allocates the staging buffer if there is more than one rank. */
static trm_status make_staging(trm_ranks *d, trm_error *err) {
    if (d->comm == NULL || trm_comm_size(d->comm) == 1) {
        return TRM_OK;
    }
    trm_error own = {.status = TRM_NOMEM};
    err = err != NULL ? err : &own;
    d->staging = trm_comm_alloc_shared(d->comm, STAGING_BYTES, err);
    return d->staging != NULL ? TRM_OK : (trm_status)err->status;
}

/* Joins the ranks that environment and flags describe, and makes a communicator; a job of one
 * process joins nothing. */
static trm_status join_ranks(const trm_cluster_flags *flags, trm_ranks *d, trm_error *err) {
    trm_cluster *cluster;
    TRMI_TRY(trm_cluster_from_env(flags, NULL, NULL, &cluster, err));
    trm_status status = TRM_OK;
    if (trm_cluster_get(cluster)->size > 1) {
        status = trm_cluster_join(cluster, NULL, &d->bootstrap, err);
        if (status == TRM_OK) {
            status = trm_comm_create(d->bootstrap, NULL, &d->comm, err);
        }
    } else {
        trmi_cluster_log_warnings(cluster); /* a launcher may have meant several ranks */
    }
    trm_cluster_destroy(cluster);
    return status == TRM_OK ? make_staging(d, err) : status;
}

/* Contract in trireme/dist.h. */
trm_status trm_distribute_begin(const trm_cluster_flags *flags, trm_ranks **out, trm_error *err) {
    TRMI_NEED(err, out);
    trm_ranks *d;
    TRMI_TRY(TRMI_NEW(err, d, 1, "for the ranks of the three calls"));
    d->process = getpid();
    trm_status status = join_ranks(flags, d, err);
    if (status != TRM_OK) {
        trm_comm_destroy(d->comm);
        trm_cluster_leave(d->bootstrap);
        trmi_free(d);
        return status;
    }
    *out = d;
    return TRM_OK;
}

/* Contract in trireme/dist.h. Collective where `comm` is not NULL, because staging memory is
 * shared. */
trm_status trm_distribute_over(trm_comm *comm, trm_ranks **out, trm_error *err) {
    TRMI_NEED(err, out);
    trm_ranks *d;
    TRMI_TRY(TRMI_NEW(err, d, 1, "for the ranks of the three calls"));
    d->comm = comm;
    d->process = getpid();
    trm_status status = make_staging(d, err);
    if (status != TRM_OK) {
        trmi_free(d);
        return status;
    }
    *out = d;
    return TRM_OK;
}

/* Returns whether this process is a rank of `d`. A child that a rank has forked is none: it has
 * neither the rank's threads nor a place among the ranks. */
static bool is_rank(const trm_ranks *d) { return getpid() == d->process; }

/* Contract in trireme/dist.h. A process that was forked from a rank frees only its own memory:
 * communicator and shared memory belong to its parent. */
void trm_distribute_end(trm_ranks *d) {
    if (d == NULL) {
        return;
    }
    if (d->staging != NULL && is_rank(d)) {
        trm_comm_free_shared(d->comm, d->staging);
    }
    if (d->bootstrap != NULL && is_rank(d)) {
        trm_comm_destroy(d->comm);
        trm_cluster_leave(d->bootstrap);
    }
    trmi_free(d);
}

/* ---- default ranks of the process ------------------------------------------------------------ */

/* The ranks that the handle NULL stands for. If joining failed, the error is kept and returned
 * by every later call. */
static struct {
    trm_ranks *ranks; /* NULL: not joined, or ended */
    trm_error err;    /* of joining */
    bool begun;       /* joining has been tried */
} own;

/* Leaves the ranks at exit. While another thread of the process waits for the ranks it uses their
 * memory: then the other ranks are told, and the memory stays until the process is gone. */
static void end_own(void) {
    trm_ranks *d = own.ranks;
    own.ranks = NULL;
    if (d != NULL && d->comm != NULL && is_rank(d) && trmi_comm_in_call(d->comm)) {
        trm_error cause;
        (void)TRMI_FAIL(&cause, TRM_PEER,
                        "rank %d has ended while one of its threads was in a collective; end such "
                        "threads before the process",
                        trm_comm_rank(d->comm));
        cause.rank = trm_comm_rank(d->comm);
        trm_comm_abort(d->comm, &cause);
        return;
    }
    trm_distribute_end(d);
}

#ifdef __GLIBC__
/* A process that ends with an error status does not leave in an orderly way, so that the other
 * ranks see the connection break at once and fail too. */
static void end_well(int status, void *unused) {
    (void)unused;
    if (status == 0) {
        end_own();
    }
}
static int at_exit(void) { return on_exit(end_well, NULL); }
#else
static int at_exit(void) { return atexit(end_own); }
#endif

/* Joins the ranks that NULL stands for, and arranges that they are left at exit. */
static void begin_own(void) {
    own.begun = true;
    own.err.status = TRM_OK;
    if (trm_distribute_begin(NULL, &own.ranks, &own.err) == TRM_OK) {
        /* if registering fails, the other ranks only see a broken connection at the end */
        (void)at_exit();
    }
}

/* Replaces the handle NULL by the process's own ranks, which the first call joins. */
static trm_status resolve_handle(trm_ranks **d, trm_error *err) {
    if (*d != NULL) {
        return TRM_OK;
    }
    if (!own.begun) {
        begin_own();
    }
    if (own.ranks == NULL) {
        if (err != NULL) {
            *err = own.err;
        }
        return (trm_status)own.err.status;
    }
    *d = own.ranks;
    return TRM_OK;
}

/* Returns INVALID in a child that a rank has forked; `what`: the call. */
static trm_status check_is_rank(const trm_ranks *d, const char *what, trm_error *err) {
    return d->comm == NULL || is_rank(d)
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "%s: process %d was forked by rank %d and is no rank itself (its parent "
                           "is); let the parent call, or start a process by exec",
                           what, (int)getpid(), trm_comm_rank(d->comm));
}

trm_status trm_join(trm_error *err) {
    trm_ranks *d = NULL;
    return resolve_handle(&d, err);
}

trm_status trm_distribute_comm(trm_ranks *d, trm_comm **out, trm_error *err) {
    TRMI_NEED(err, out);
    TRMI_TRY(resolve_handle(&d, err));
    TRMI_TRY(check_is_rank(d, "trm_distribute_comm", err));
    *out = d->comm;
    return TRM_OK;
}

int32_t trm_distribute_rank(const trm_ranks *ranks) {
    trm_ranks *d = (trm_ranks *)ranks;
    return resolve_handle(&d, NULL) == TRM_OK && d->comm != NULL ? trm_comm_rank(d->comm) : 0;
}

int32_t trm_distribute_size(const trm_ranks *ranks) {
    trm_ranks *d = (trm_ranks *)ranks;
    return resolve_handle(&d, NULL) == TRM_OK && d->comm != NULL ? trm_comm_size(d->comm) : 1;
}

/* ---- fused operations ------------------------------------------------------------------------ */

/* Sets *end so that values [first, *end) have one dtype and fit into the staging buffer together
 * (at least one value); returns their bytes. NULL values are skipped. */
static int64_t choose_group(const trm_tensor *values, int32_t count, int32_t first, int32_t *end) {
    int64_t bytes = 0;
    int32_t i = first;
    for (; i < count; i++) {
        int64_t more = values[i].data != NULL ? trm_tensor_bytes(&values[i]) : 0;
        bool other = values[i].data != NULL && values[i].dtype != values[first].dtype;
        if (i > first && (other || bytes + more > STAGING_BYTES)) {
            break;
        }
        bytes += more;
    }
    *end = i;
    return bytes;
}

/* Copies the values into the staging buffer, or with `back` from it. */
static void copy_group(const trm_tensor *values, int32_t first, int32_t end, char *staging,
                       bool back) {
    for (int32_t i = first; i < end; i++) {
        if (values[i].data == NULL) {
            continue;
        }
        size_t bytes = (size_t)trm_tensor_bytes(&values[i]);
        memcpy(back ? values[i].data : staging, back ? staging : values[i].data, bytes);
        staging += bytes;
    }
}

/* Runs `op` over all values, group by group. recv, count and dtype of `op` are set here; a
 * broadcast moves bytes, so that it works for every dtype. */
static trm_status each_group(trm_ranks *d, const trm_tensor *values, int32_t count,
                             trm_collective op, trm_error *err) {
    TRMI_TRY(check_is_rank(d, op.tag, err));
    for (int32_t first = 0, end; first < count; first = end) {
        if (values[first].data == NULL) {
            end = first + 1;
            continue;
        }
        /* a single or a large value is reduced in place */
        int64_t bytes = choose_group(values, count, first, &end);
        bool whole = bytes > STAGING_BYTES || end == first + 1;
        op.dtype = op.kind == TRM_BROADCAST ? TRM_UINT8 : values[first].dtype;
        op.count = bytes / (int64_t)trm_dtype_bytes(op.dtype);
        op.recv = whole ? values[first].data : d->staging;
        if (!whole) {
            copy_group(values, first, end, d->staging, false);
        }
        TRMI_TRY(trm_comm_run(d->comm, &op, err));
        if (!whole) {
            copy_group(values, first, end, d->staging, true);
        }
    }
    return TRM_OK;
}

/* Contract in trireme/dist.h. Arguments are checked on one rank as on many, so that a program's
 * mistake shows before it runs on a cluster. */
trm_status trm_distribute_broadcast(trm_ranks *d, const trm_tensor *values, int32_t count,
                                    int32_t root, trm_error *err) {
    if (count > 0) {
        TRMI_NEED(err, values);
    }
    TRMI_TRY(resolve_handle(&d, err));
    if (root < 0 || root >= trm_distribute_size(d)) {
        return TRMI_FAIL(err, TRM_INVALID, "broadcast from rank %d of %d: 0 to %d expected", root,
                         trm_distribute_size(d), trm_distribute_size(d) - 1);
    }
    if (trm_distribute_size(d) == 1) {
        return TRM_OK;
    }
    const trm_collective op = {.kind = TRM_BROADCAST, .root = root, .tag = "distribute broadcast"};
    return each_group(d, values, count, op, err);
}

trm_status trm_distribute_all_reduce(trm_ranks *d, const trm_tensor *values, int32_t count,
                                     trm_reduction reduce, trm_error *err) {
    if (count > 0) {
        TRMI_NEED(err, values);
    }
    TRMI_TRY(resolve_handle(&d, err));
    if (reduce < TRM_REDUCTION_SUM || reduce > TRM_REDUCTION_MIN) {
        return TRMI_FAIL(err, TRM_INVALID, "reduction %d; there are sum, mean, prod, max and min",
                         (int)reduce);
    }
    if (trm_distribute_size(d) == 1) {
        return TRM_OK;
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE, .reduce = reduce, .tag = "distribute reduce"};
    return each_group(d, values, count, op, err);
}

/* ---- dividing batches ------------------------------------------------------------------------ */

/* Divides a global batch among the ranks.
 *   errors  INVALID: it does not divide evenly */
static trm_status divide_batch(const trm_ranks *d, int64_t global_batch, int64_t *local_batch,
                               trm_error *err) {
    int32_t size = trm_distribute_size(d);
    if (global_batch < 1 || global_batch % size != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "a global batch of %lld does not divide among %d ranks",
                         (long long)global_batch, size);
    }
    *local_batch = global_batch / size;
    return TRM_OK;
}

/* Contract in trireme/dist.h. The batch is divided even without a dataset. */
trm_status trm_distribute_shard_and_rebatch(trm_ranks *d, trm_dataset *dataset,
                                            int64_t global_batch, int64_t *local_batch,
                                            trm_error *err) {
    TRMI_NEED(err, local_batch);
    TRMI_TRY(resolve_handle(&d, err));
    int32_t size = trm_distribute_size(d);
    int64_t batch = 0;
    TRMI_TRY(divide_batch(d, global_batch, &batch, err));
    if (dataset != NULL) {
        if (size > 1) {
            TRMI_TRY(trm_dataset_shard(dataset, size, trm_distribute_rank(d), TRM_SHARD_WRAP, err));
        }
        TRMI_TRY(trm_dataset_batch(dataset, batch, true, err));
    }
    *local_batch = batch;
    return TRM_OK;
}

/* Moves every `size`-th row of `array`, from row `rank` on, to the front: this rank's samples.
 * The last row may have wrapped around to a row that has been overwritten by then, so it is
 * saved first. `saved`: room for one row. */
static void keep_rows(const trm_tensor *array, int64_t samples, int32_t size, int32_t rank,
                      char *saved) {
    size_t row = (size_t)(trm_tensor_bytes(array) / samples);
    int64_t count = (samples + size - 1) / size, last = (rank + size * (count - 1)) % samples;
    char *data = array->data;
    memcpy(saved, data + (size_t)last * row, row);
    for (int64_t i = 0; i + 1 < count; i++) {
        memmove(data + (size_t)i * row, data + (size_t)(rank + size * i) * row, row);
    }
    memcpy(data + (size_t)(count - 1) * row, saved, row);
}

/* Contract in trireme/dist.h. All arrays are checked before one is changed. */
trm_status trm_distribute_shard_arrays(trm_ranks *d, const trm_tensor *arrays, int32_t count,
                                       int64_t *samples, int64_t *batch, trm_error *err) {
    TRMI_NEED(err, samples, batch);
    if (count > 0) {
        TRMI_NEED(err, arrays);
    }
    int64_t widest = 0, local = 0;
    TRMI_TRY(resolve_handle(&d, err));
    TRMI_TRY(divide_batch(d, *batch, &local, err));
    for (int32_t i = 0; i < count; i++) {
        /* The first dimension need not be the samples' number, but the elements must be that many
         * equal rows. */
        int64_t elements = trm_shape_count(&arrays[i].shape);
        if (*samples < 1 || elements < 0 || elements % *samples != 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "array %d has %lld elements, expected a multiple of the %lld samples",
                             i, (long long)elements, (long long)*samples);
        }
        widest = trmi_max_i64(widest, trm_tensor_bytes(&arrays[i]) / *samples);
    }
    int32_t size = trm_distribute_size(d);
    if (size > 1) {
        char *saved;
        TRMI_TRY(
            TRMI_NEW(err, saved, (size_t)widest + 1, "for a row of %lld bytes", (long long)widest));
        for (int32_t i = 0; i < count; i++) {
            keep_rows(&arrays[i], *samples, size, trm_distribute_rank(d), saved);
        }
        trmi_free(saved);
        *samples = (*samples + size - 1) / size;
    }
    *batch = local;
    return TRM_OK;
}
