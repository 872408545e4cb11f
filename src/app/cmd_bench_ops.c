/* bench ops: each distinct operator of a program against what the machine reaches at best, which is
 * measured in the same run: a large matrix product for arithmetic, a large addition for memory. */
#include "app/app.h"
#include "app/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct peak {
    double flops, bytes; /* per second */
} peak;

static trm_status profile_graph(const app_options *o, trm_graph *graph, trm_node output,
                                trm_step_profile *out, trm_error *err) {
    trm_exec *exec = NULL;
    const trm_step_profile *steps;
    int32_t count;
    const trm_exec_options options = {.outputs = &output,
                                      .outputs_count = 1,
                                      .backend = o->backend,
                                      .precision = app_precision(o),
                                      .threads = (int)o->threads,
                                      .tuning_file = o->tuning_file};
    trm_status status = trm_exec_create(graph, &options, &exec, err);
    if (status == TRM_OK) {
        status = trm_exec_profile(exec, 7, &steps, &count, err);
    }
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; status == TRM_OK && i < count; i++) {
        if (steps[i].flops > out->flops) {
            *out = steps[i];
        }
    }
    if (status == TRM_OK && out->seconds <= 0) {
        status = app_fail(err, TRM_INTERNAL, "the machine's peak could not be measured");
    }
    trm_exec_destroy(exec);
    return status;
}

static trm_status measure_peak(const app_options *o, peak *out, trm_error *err) {
    enum { SIDE = 2048, LENGTH = 1 << 24 };
    trm_step_profile product, sum;
    trm_graph *g;
    const trm_graph_options options = {0};
    trm_status status = trm_graph_create(&options, &g, err);
    if (status != TRM_OK) {
        return status;
    }
    trm_node a = trm_input(g, "a", TRM_FLOAT32, trm_shape_of(SIDE, SIDE));
    trm_node b = trm_input(g, "b", TRM_FLOAT32, trm_shape_of(SIDE, SIDE));
    status = profile_graph(o, g, trm_matmul(g, a, b, false, false), &product, err);
    trm_graph_destroy(g);
    if (status != TRM_OK || (status = trm_graph_create(&options, &g, err)) != TRM_OK) {
        return status;
    }
    a = trm_input(g, "a", TRM_FLOAT32, trm_shape_of(LENGTH));
    b = trm_input(g, "b", TRM_FLOAT32, trm_shape_of(LENGTH));
    status = profile_graph(o, g, trm_add(g, a, b), &sum, err);
    trm_graph_destroy(g);
    if (status == TRM_OK) {
        *out = (peak){product.flops / product.seconds, sum.bytes / sum.seconds};
    }
    return status;
}

static double bound_of(const trm_step_profile *s, const peak *p) {
    double compute = s->flops / p->flops, memory = s->bytes / p->bytes;
    return compute > memory ? compute : memory;
}

static void tell_step(const app_context *app, const trm_step_profile *s, const peak *p) {
    double bound = bound_of(s, p);
    double fraction = s->seconds > 0 ? bound / s->seconds : 0;
    app_say("%-28.28s %-20.20s %-14.14s %3dx %9.3f ms %9.1f GFLOP/s %7.1f GB/s %6.2f\n", s->name, s->kind,
            s->algorithm != NULL ? s->algorithm : "", (int)s->same, s->seconds * 1e3,
            s->flops / s->seconds / 1e9, s->bytes / s->seconds / 1e9, fraction);
    app_json_open();
    app_json_text("bench", "ops");
    app_json_text("name", s->name);
    app_json_text("kind", s->kind);
    app_json_text("phase", s->phase);
    app_json_text("algorithm", s->algorithm);
    app_json_int("same", s->same);
    app_json_real("median_seconds", s->seconds);
    app_json_int("repeats", app->o.repeats);
    app_json_real("gflops_per_second", s->seconds > 0 ? s->flops / s->seconds / 1e9 : 0);
    app_json_real("gb_per_second", s->seconds > 0 ? s->bytes / s->seconds / 1e9 : 0);
    app_json_real("bound_seconds", bound);
    app_json_real("peak_fraction", fraction);
    app_json_close();
}

static void tell_total(const app_context *app, const char *name, const trm_step_profile *steps,
                       int32_t count, const peak *p) {
    double seconds = 0, bound = 0;
    for (int32_t i = 0; i < count; i++) {
        seconds += steps[i].seconds;
        bound += bound_of(&steps[i], p);
    }
    app_say("sum of all %d steps: %.2f ms; of their bounds: %.2f ms; ratio %.3f\n"
            "machine: %.1f GFLOP/s (matrix product of 2048), %.1f GB/s (addition of 16 million)\n",
            (int)count, seconds * 1e3, bound * 1e3, bound / seconds, p->flops / 1e9, p->bytes / 1e9);
    app_json_open();
    app_json_text("bench", "ops_total");
    app_json_text("model", name);
    app_json_int("steps", count);
    app_json_real("sum_seconds", seconds);
    app_json_real("bound_seconds", bound);
    app_json_real("bound_fraction", bound / seconds);
    app_json_real("peak_gflops_per_second", p->flops / 1e9);
    app_json_real("peak_gb_per_second", p->bytes / 1e9);
    app_json_machine(app->o.threads);
    app_json_close();
}

/* The first of equal operators stands for all: kind, work and algorithm tell them apart. */
static bool is_first(const trm_step_profile *steps, int32_t i) {
    for (int32_t j = 0; steps[i].same > 1 && j < i; j++) {
        if (strcmp(steps[j].kind, steps[i].kind) == 0 && steps[j].same == steps[i].same &&
            steps[j].flops == steps[i].flops && steps[j].bytes == steps[i].bytes) {
            return false;
        }
    }
    return true;
}

static trm_status measure(const app_context *app, trm_model *model, const char *name, trm_error *err) {
    const trm_step_profile *steps;
    int32_t count;
    peak p;
    trm_status status = measure_peak(&app->o, &p, err);
    if (status == TRM_OK) {
        status = trm_exec_profile(trm_model_exec(model), (int)app->o.repeats, &steps, &count, err);
    }
    if (status != TRM_OK) {
        return status;
    }
    app_say("%-28s %-20s %-14s %4s %12s %17s %12s %6s\n", "operator", "kind", "algorithm", "same", "median",
            "arithmetic", "memory", "peak");
    for (int32_t i = 0; i < count; i++) {
        if (is_first(steps, i)) {
            tell_step(app, &steps[i], &p);
        }
    }
    tell_total(app, name, steps, count, &p);
    return TRM_OK;
}

int app_run_bench_ops(app_context *app) {
    trm_error err;
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    const char *name = app->parsed.arguments[0];
    app_settle_data(app);
    trm_status status = app_dataset_random(&app->o, &data, &err);
    if (status == TRM_OK) {
        status = app_make_model(app, name, data, false, &network, &model, &err);
    }
    if (status == TRM_OK) {
        status = measure(app, model, name, &err);
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
