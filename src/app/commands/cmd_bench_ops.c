/* SPDX-License-Identifier: Apache-2.0 */
/* bench ops: each distinct operator of a program compared with what the machine reaches.
 *
 *     bound = max(flops that must be done / peak, time of moving the bytes)        fraction = bound / time
 *
 * The machine is measured with multiply-adds on registers and with loops that read and write
 * working sets of the operator's size, sampled in turns with the operators. Both sides are
 * medians; the same bounds from the machine's best samples are printed beside them.
 *
 * Flops: those of the definition, without padding, at the rate of the operator's type; or those
 * of its algorithm where they are fewer, at the rate of float32, because Winograd's products are
 * computed in float32 even between bfloat16 images.
 *
 * Bytes: at the bandwidth of a working set as large as what the program moved since the
 * operator's inputs were last touched. Inputs from long ago come from memory; recent ones may be
 * in a cache. Where a first pass must end before the rest begins (statistics of a norm), the
 * rest finds in the caches what that pass left.
 *
 * A simpler bound stands beside it, the roofline of Williams et al. 2009: the definition's flops
 * at the rate of the type and bytes from main memory, whatever the algorithm saves and the
 * caches hold.
 *
 * The optimiser is one of the operators. The sum of all bounds is compared with measured whole
 * steps. */
#include "app/app.h"
#include "app/commands/bench.h"

#include "trireme/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the seconds of moving the operator's bytes: the first pass from the working set since
 * its inputs were touched, the rest from what that pass left in the caches. */
static double memory_bound(const trm_step_profile *s, const trm_machine_peak *p) {
    double held = s->bytes > s->reuse_bytes ? s->bytes : s->reuse_bytes,
           rest = s->bytes - s->first_bytes;
    double first = trm_machine_memory_seconds(p, s->first_bytes, s->first_written_bytes, held);
    double own = s->first_bytes > rest ? s->first_bytes : rest;
    return first + trm_machine_memory_seconds(p, rest, s->written_bytes - s->first_written_bytes,
                                              s->first_bytes > 0 ? own : held);
}

/* Returns the seconds of the definition's flops at the rate of the operator's type. */
static double defined_compute(const trm_step_profile *s, const trm_machine_peak *p) {
    bool pairs = s->bfloat16 && p->bfloat16_flops > p->float32_flops;
    return s->work_flops / (pairs ? p->bfloat16_flops : p->float32_flops);
}

/* Returns the roofline: the definition's flops, bytes from main memory. */
static double roofline_of(const trm_step_profile *s, const trm_machine_peak *p) {
    double compute = defined_compute(s, p),
           memory = trm_machine_memory_seconds(p, s->bytes, s->written_bytes, INFINITY);
    return compute > memory ? compute : memory;
}

/* Returns the bound of the opening comment: the fewest flops, bytes from where they are. */
static double bound_of(const trm_step_profile *s, const trm_machine_peak *p) {
    double compute = defined_compute(s, p), instead = s->work_float32 / p->float32_flops;
    compute = instead > 0 && instead < compute ? instead : compute;
    double memory = memory_bound(s, p);
    return compute > memory ? compute : memory;
}

/* Prints one distinct operator beside its bound. */
static void tell_step(const app_context *app, const trm_step_profile *s,
                      const trm_machine_peak *p) {
    double bound = bound_of(s, p), seconds = s->seconds;
    double rate = seconds > 0 ? 1 / seconds : 0;
    app_tell(APP_RESULT, "bench", "ops", app_text("name", s->name, "%-28.28s"),
             app_text("kind", s->kind, " %-20.20s"), app_text("phase", s->phase, NULL),
             app_text("algorithm", s->algorithm, " %-14.14s"), app_int("same", s->same, " %3dx"),
             app_real("median_seconds", seconds, " %9.3f{1e3} ms"),
             app_int("repeats", app->o.repeats, NULL),
             app_real("gflops_per_second", s->flops * rate / 1e9, " %9.1f GFLOP/s"),
             app_real("work_gflops_per_second", s->work_flops * rate / 1e9, NULL),
             app_real("gb_per_second", s->bytes * rate / 1e9, " %7.1f GB/s"),
             app_real("reuse_bytes", s->reuse_bytes, NULL), app_real("bound_seconds", bound, NULL),
             app_real("roofline_seconds", roofline_of(s, p), NULL),
             app_real("peak_fraction", bound * rate, " %6.2f"));
}

/* Prints the machine's peak: arithmetic, and bandwidth by size of the working set. */
static void tell_peak(const trm_machine_peak *p, const char *which) {
    app_put(app_int(NULL, p->threads, "machine, %d threads"), app_text(NULL, which, ", %s"),
            app_real(NULL, p->float32_flops, ": %.1f{1e-9} GFLOP/s float32"));
    if (p->bfloat16_flops > 0) {
        app_put(app_real(NULL, p->bfloat16_flops, ", %.1f{1e-9} bfloat16 pairs"));
    }
    app_put(app_words("; GB/s of reading, triad, copying, writing"));
    for (int32_t i = 0; i < p->memory_count; i++) {
        const double *rate = p->memory[i].bytes_per_second;
        app_put(app_words(i > 0 ? "," : ""), app_real(NULL, rate[TRM_PEAK_READ], " %.0f{1e-9}"),
                app_real(NULL, rate[TRM_PEAK_TRIAD], " %.0f{1e-9}"),
                app_real(NULL, rate[TRM_PEAK_COPY], " %.0f{1e-9}"),
                app_real(NULL, rate[TRM_PEAK_WRITE], " %.0f{1e-9}"),
                app_int(NULL, p->memory[i].bytes, " in %b"));
    }
    app_put(app_words("\n"));
}

/* Returns the sum of a bound over all operators. */
static double sum_of(double (*bound)(const trm_step_profile *, const trm_machine_peak *),
                     const trm_program_profile *profile, const trm_machine_peak *p) {
    double sum = 0;
    for (int32_t i = 0; i < profile->count; i++) {
        sum += bound(&profile->steps[i], p);
    }
    return sum;
}

/* Prints the sums over all operators and the whole step, with bounds from the machine's median
 * (`p`) and best (`best`) samples. */
static void tell_total(const app_context *app, const char *name, const trm_program_profile *profile,
                       const trm_machine_peak *p, const trm_machine_peak *best) {
    double seconds = 0, step = profile->seconds, bound = sum_of(bound_of, profile, p),
           least = sum_of(bound_of, profile, best);
    double roofline = sum_of(roofline_of, profile, p);
    for (int32_t i = 0; i < profile->count; i++) {
        seconds += profile->steps[i].seconds;
    }
    const double *memory = p->memory[p->memory_count - 1].bytes_per_second;
    app_begin(APP_RESULT, "bench", "ops_total");
    tell_peak(p, "median");
    tell_peak(best, "best");
    app_put(app_text("model", name, NULL), app_text("precision", app->o.precision, NULL),
            app_int("steps", profile->count, "all %d operators"),
            app_real("sum_seconds", seconds, ": %.2f{1e3} ms"),
            app_real("bound_seconds", bound, "; sum of their bounds: %.2f{1e3} ms"),
            app_real("bound_fraction", bound / seconds, "; fraction %.3f"),
            app_real("bound_fraction_of_best", least / seconds, " (%.3f of the machine's best)\n"),
            app_real("step_seconds", step, "the whole step: %.2f{1e3} ms"),
            app_real("step_fraction", bound / step, "; fraction %.3f"),
            app_real("roofline_seconds", roofline, NULL),
            app_real("roofline_fraction", roofline / step,
                     "; of the operators' rooflines (defined FLOPs, main memory) %.3f"));
    app_put(app_real("peak_gflops_per_second", p->float32_flops / 1e9, NULL),
            app_real("best_gflops_per_second", best->float32_flops / 1e9, NULL),
            app_real("peak_bfloat16_gflops_per_second", p->bfloat16_flops / 1e9, NULL),
            app_real("peak_gb_per_second", memory[TRM_PEAK_TRIAD] / 1e9, NULL),
            app_real("peak_read_gb_per_second", memory[TRM_PEAK_READ] / 1e9, NULL),
            app_real("peak_copy_gb_per_second", memory[TRM_PEAK_COPY] / 1e9, NULL),
            app_real("peak_write_gb_per_second", memory[TRM_PEAK_WRITE] / 1e9, NULL),
            app_real("peak_cache_gb_per_second",
                     p->memory[0].bytes_per_second[TRM_PEAK_TRIAD] / 1e9, NULL));
    app_put_machine(app->o.threads);
    app_end();
}

/* Measures operators and machine in turns, and prints each distinct operator once. */
static trm_status measure_operators(const app_context *app, trm_model *model, const char *name,
                                    trm_error *err) {
    trm_program_profile profile;
    trm_meter *machine;
    trm_machine_peak peak, best;
    trm_status status = trm_meter_create((int)app->o.threads, &machine, err);
    if (status != TRM_OK) {
        return status;
    }
    /* Sample the machine first; the profile takes one sample after each run. */
    trm_meter_sample(machine);
    const trm_profile_options options = {
        .repeats = (int32_t)app->o.repeats, .beside = machine, .update = true};
    status = trm_exec_profile(trm_model_exec(model), &options, &profile, err);
    trm_meter_get_peaks(machine, &peak, &best);
    trm_meter_destroy(machine);
    if (status != TRM_OK) {
        return status;
    }
    app_print("%-28s %-20s %-14s %4s %12s %17s %12s %8s\n", "operator", "kind", "algorithm", "same",
              "median", "arithmetic", "memory", "of peak");
    for (int32_t i = 0; i < profile.count; i++) {
        if (profile.steps[i].first_same == i) {
            tell_step(app, &profile.steps[i], &peak);
        }
    }
    tell_total(app, name, &profile, &peak, &best);
    return TRM_OK;
}

/* Runs `bench ops`. Compiling may take long, so that the fastest algorithms are measured. */
int app_run_bench_ops(app_context *app) {
    trm_error err;
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    const char *name = app->parsed.arguments[0];
    if (app->o.dry_run) {
        return app_dry_run_model(app, "nothing was measured");
    }
    app_settle_data(app);
    app->o.retune_seconds = 20; /* enough to try every algorithm of a model */
    trm_status status = app_dataset_random(app, &data, &err);
    if (status == TRM_OK) {
        status = app_make_model(app, data, false, &network, &model, &err);
    }
    if (status == TRM_OK) {
        status = measure_operators(app, model, name, &err);
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
