/* SPDX-License-Identifier: Apache-2.0 */
/* bench ps: prints what the benchmark library measures of embedding tables, servers and
 * checkpoints (bench/bench.h). */
#include "app/app.h"
#include "app/commands/bench.h"

#include "bench/bench.h"

#include "trireme/dist.h"
#include "trireme/ps.h"

#include <string.h>

/* Prints one result. */
static void print_result(void *context, const char *name, const char *unit, double median,
                         double minimum, double maximum, int32_t repeats) {
    (void)context;
    app_begin(APP_RESULT, "bench", "ps");
    app_put(app_text("name", name, "%-36s"), app_real("median", median, " %14.6g"),
            app_text("unit", unit, " %-8s"), app_real("minimum", minimum, " (%.6g"),
            app_real("maximum", maximum, " to %.6g"), app_int("repeats", repeats, ", %d times)"));
    app_put_machine(1);
    app_end();
}

/* Runs `bench ps`: the library's benchmark, with options from the flags. */
int app_run_bench_ps(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    bool given = app_given(&app->parsed, "repeats");
    uint8_t token[32];
    if (o->token_file != NULL && trm_token_read(o->token_file, token, &err) != TRM_OK) {
        return app_report(&err);
    }
    if (o->dry_run) {
        return app_print_dry_run(app, "nothing was measured");
    }
    const char *wire = o->wire == NULL ? "fp32" : o->wire;
    const bench_ps_options options = {.rows = o->rows,
                                      .batch = o->batch_size,
                                      .repeats = given ? (int32_t)o->repeats : 0,
                                      .shards = (int32_t)o->ps_shards,
                                      .folder = o->output,
                                      .table_bytes = o->table_bytes,
                                      .memory_bytes = o->ps_memory,
                                      .width = (int32_t)o->row_width,
                                      .listen = o->listen,
                                      .connect = o->connect,
                                      .token = o->token_file != NULL ? token : NULL,
                                      .wire = strcmp(wire, "bf16") == 0   ? TRM_BFLOAT16
                                              : strcmp(wire, "fp16") == 0 ? TRM_FLOAT16
                                                                          : TRM_FLOAT32,
                                      .tcp_only = o->tcp_only};
    return bench_ps(&options, print_result, NULL, &err) == TRM_OK ? 0 : app_report(&err);
}
