/* SPDX-License-Identifier: Apache-2.0 */
/* bench comm: collectives in the columns of nccl-tests. Every result is checked, and --min-busbw
 * makes a gate for scripts.
 *
 * All ranks measure and have the same results; rank 0 prints. Sizes are checked before ranks are
 * started, so that a wrong one costs no job. A result that is wrong ends the measurement with
 * INTERNAL; a missed gate is DIVERGED, exit code 1. */
#include "app/commands/bench.h"
#include "app/jobs/ranks.h"

#include "bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    trm_collective_kind kind;
} OPS[] = {{"allreduce", TRM_ALLREDUCE},
           {"broadcast", TRM_BROADCAST},
           {"reduce", TRM_REDUCE},
           {"allgather", TRM_ALLGATHER},
           {"reducescatter", TRM_REDUCE_SCATTER},
           {"alltoall", TRM_ALLTOALL},
           {"scatter", TRM_SCATTER},
           {"gather", TRM_GATHER}};
/* words of --redop: trm_reduction_name */
static const trm_reduction REDOPS[] = {TRM_REDUCTION_SUM, TRM_REDUCTION_MEAN, TRM_REDUCTION_PROD,
                                       TRM_REDUCTION_MAX, TRM_REDUCTION_MIN};
static const struct {
    const char *name;
    trm_dtype dtype;
} DTYPES[] = {{"fp32", TRM_FLOAT32}, {"bf16", TRM_BFLOAT16}, {"fp16", TRM_FLOAT16},
              {"fp64", TRM_FLOAT64}, {"int8", TRM_INT8},     {"int32", TRM_INT32},
              {"int64", TRM_INT64},  {"uint8", TRM_UINT8}};

/* Returns the bytes of an element of --dtype. */
static int64_t bytes_of(const char *type) {
    for (size_t i = 0; i < sizeof DTYPES / sizeof DTYPES[0]; i++) {
        if (strcmp(DTYPES[i].name, type) == 0) {
            return (int64_t)trm_dtype_bytes(DTYPES[i].dtype);
        }
    }
    return 1;
}

/* Parses the next size of --sizes ("64K", "102000000") and moves *at after it. K, M and G count
 * by 1024, as in hccl_test.
 *   errors  INVALID */
static trm_status next_size(const char **at, int64_t *bytes, trm_error *err) {
    char *end;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift > 0;
    if (errno != 0 || end == *at || value < 1 || value > (1ll << 40) >> shift ||
        (*end != ',' && *end != '\0')) {
        return app_fail(err, TRM_INVALID, "--sizes: '%.40s'; bytes expected, as in 4,1K,8M", *at);
    }
    *bytes = (int64_t)value << shift;
    *at = *end == ',' ? end + 1 : end;
    return TRM_OK;
}

/* Returns whether the collective adds. */
static bool is_reduction(const app_options *o) {
    return strcmp(o->op, "allreduce") == 0 || strcmp(o->op, "reduce") == 0 ||
           strcmp(o->op, "reducescatter") == 0;
}

/* Prints one size; rank 0 does. */
static void print_result(const app_context *app, const bench_comm_result *r) {
    if (app_rank(app) != 0) {
        return;
    }
    bool rooted = strcmp(app->o.op, "broadcast") == 0 || strcmp(app->o.op, "reduce") == 0 ||
                  strcmp(app->o.op, "scatter") == 0 || strcmp(app->o.op, "gather") == 0;
    const char *redop = is_reduction(&app->o) ? app->o.redop : "none";
    const char *type = app->o.dtype != NULL ? app->o.dtype : "fp32";
    bool bounded = r->roofline_microseconds > 0;
    double bound = r->roofline_fraction, sum = r->roofline_sum_microseconds / r->microseconds;
    app_begin(APP_RESULT, "bench", "comm");
    app_put(
        app_int("bytes", r->bytes, "%12d"), app_int(NULL, r->bytes / bytes_of(type), " %12d"),
        app_text("op", app->o.op, NULL), app_text("dtype", type, " %6s"),
        app_text("redop", redop, " %6s"), app_int(NULL, rooted ? 0 : -1, " %4d"),
        app_text("engine", trm_comm_engine(app_comm(app)), NULL),
        app_int("ranks", app_rank_count(app), NULL),
        app_real("microseconds", r->microseconds, " %10.2f"),
        app_real("minimum_microseconds", r->minimum_microseconds, NULL),
        app_real("maximum_microseconds", r->maximum_microseconds, NULL),
        app_int("repeats", r->repeats, NULL), app_real("algbw_gb_s", r->algbw_gb_s, " %9.3f"),
        app_real("busbw_gb_s", r->busbw_gb_s, " %9.3f"), app_int("wrong", r->wrong, " %8d"),
        /* NAN becomes null: there is no bound for collectives that are not sums, and for
             * messages */
        app_real("roofline_fraction", bounded ? bound : NAN, bounded ? " %9.2f" : "         -"),
        app_real("roofline_sum_fraction", bounded ? sum : NAN, bounded ? " %9.2f" : "         -"));
    app_put_machine(0);
    app_end();
}

/* Applies the gate after all sizes. All ranks have the same results and return the same status.
 *   errors  DIVERGED if it is missed */
static trm_status judge_bandwidth(const app_context *app, int sizes, int slow,
                                  const bench_comm_result *slowest, trm_error *err) {
    if (app->o.min_busbw <= 0) {
        return TRM_OK;
    }
    if (app_rank(app) == 0) {
        app_tell(APP_RESULT, "event", "gate", app_text("name", "min-busbw", NULL),
                 app_real("at_least", app->o.min_busbw, "bus bandwidth of at least %.4g GB/s"),
                 app_int("sizes", sizes, NULL), app_int("missed", slow, NULL),
                 app_bool("passed", slow == 0, ": reached"),
                 app_words(slow == 0 ? "" : ": missed"));
    }
    return slow == 0
               ? TRM_OK
               : app_fail(err, TRM_DIVERGED,
                          "gate missed (--min-busbw): %d of %d sizes are below %.4g GB/s of bus "
                          "bandwidth, at least that asked for; %s of %lld bytes has %.4g",
                          slow, sizes, app->o.min_busbw, app->o.op, (long long)slowest->bytes,
                          slowest->busbw_gb_s);
}

/* Measures all sizes. Collective.
 *   errors  INTERNAL for a wrong result */
static trm_status measure_sizes(app_context *app, trm_error *err) {
    bench_comm_result slowest = {.bytes = 0};
    int sizes = 0, slow = 0;
    bench_comm_options options = {.private_buffers = app->o.private_buffers};
    /* Compare with the words of the flags; options.c has refused others. */
    for (size_t i = 0; i < sizeof OPS / sizeof OPS[0]; i++) {
        options.kind = strcmp(OPS[i].name, app->o.op) == 0 ? OPS[i].kind : options.kind;
    }
    for (size_t i = 0; app->o.dtype != NULL && i < sizeof DTYPES / sizeof DTYPES[0]; i++) {
        options.dtype = strcmp(DTYPES[i].name, app->o.dtype) == 0 ? DTYPES[i].dtype : options.dtype;
    }
    for (size_t i = 0; i < sizeof REDOPS / sizeof REDOPS[0]; i++) {
        options.reduce =
            strcmp(trm_reduction_name(REDOPS[i]), app->o.redop) == 0 ? REDOPS[i] : options.reduce;
    }
    if (app_rank(app) == 0) {
        if (app_given(&app->parsed, "redop") && !is_reduction(&app->o)) {
            app_warn(
                "--redop has no effect here: it is for --op allreduce, reduce and reducescatter");
        }
        /* columns of nccl-tests (in hccl_test: data_size, aveg_time, alg_bandwidth,
         * check_result), then those of the bound */
        app_print("%12s %12s %6s %6s %4s %10s %9s %9s %8s %9s %9s\n%12s %12s %6s %6s %4s %10s %9s "
                  "%9s %8s %9s %9s\n",
                  "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
                  "of bound", "of sum", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)",
                  "", "", "alone");
    }
    /* Print one line for each size; a wrong result ends the measurement. */
    for (const char *at = app->o.sizes; *at != '\0';) {
        int64_t bytes = 0;
        bench_comm_result r;
        trm_status status = next_size(&at, &bytes, err);
        status = status == TRM_OK ? bench_comm(app_comm(app), bytes, &options, &r, err) : status;
        if (status != TRM_OK) {
            return status;
        }
        print_result(app, &r);
        if (r.wrong > 0) {
            return app_fail(err, TRM_INTERNAL, "%s of %lld bytes: %lld elements are wrong",
                            app->o.op, (long long)bytes, (long long)r.wrong);
        }
        if (r.busbw_gb_s < app->o.min_busbw) {
            slow++;
            slowest = slow == 1 || r.busbw_gb_s < slowest.busbw_gb_s ? r : slowest;
        }
        sizes++;
    }
    return judge_bandwidth(app, sizes, slow, &slowest, err);
}

/* Checks --sizes before ranks are started, so that a wrong size costs no job.
 *   errors  INVALID */
static trm_status check_sizes(const app_options *o, trm_error *err) {
    trm_status status = TRM_OK;
    const char *type = o->dtype != NULL ? o->dtype : "fp32";
    int64_t bytes;
    for (const char *at = o->sizes; status == TRM_OK && *at != '\0';) {
        status = next_size(&at, &bytes, err);
        if (status == TRM_OK && bytes < bytes_of(type)) {
            status =
                app_fail(err, TRM_INVALID, "--sizes: %lld bytes are less than one element of %s",
                         (long long)bytes, type);
        }
    }
    return status;
}

/* Runs `bench comm`: the launcher checks the sizes; the ranks measure. */
int app_run_bench_comm(app_context *app) {
    trm_error err;
    bool launched = false;
    int code = 0;
    trm_status status = check_sizes(&app->o, &err);
    if (status == TRM_OK) {
        status = app_launch_self(app, NULL, &launched, &code, &err);
    }
    if (launched && status == TRM_OK) {
        return code; /* the failing rank's own: 1 for a missed gate or wrong numbers */
    }
    status = status == TRM_OK ? app_join(app, &err) : status;
    if (status == TRM_OK && app->ranks == NULL) {
        status = app_fail(&err, TRM_INVALID, "bench comm needs ranks: -n 2");
    }
    status = status == TRM_OK ? measure_sizes(app, &err) : status;
    app_leave(app);
    return status == TRM_OK ? 0 : app_report(&err);
}
