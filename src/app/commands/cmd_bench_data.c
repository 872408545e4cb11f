/* SPDX-License-Identifier: Apache-2.0 */
/* bench data: batches per second with --workers threads; the time of one sample on one thread;
 * and, where the samples are JPEG, the time of libjpeg-turbo's own decoder on the same files.
 *
 * The rate counts batches after as many as the workers prefetch, so that buffers filled before the
 * clock began are not counted. The time of one thread is measured on a second dataset, without
 * workers. */
#include "app/app.h"
#include "app/commands/bench.h"

#include "bench/bench.h"

#include "trireme/base.h"

#include <stdlib.h>

/* Most batches of one measurement; seconds that the single thread is measured for. */
enum { BATCHES_MOST = 20 };
static const double thread_seconds = 1;

/* Reads `count` batches, across epochs, and returns the seconds. */
static trm_status read_batches(trm_dataset *data, int64_t count, double *seconds, trm_error *err) {
    double begin = trm_now_seconds();
    for (int64_t i = 0; i < count;) {
        const trm_batch *batch;
        trm_status status = trm_dataset_next(data, &batch, err);
        if (status == TRM_OK) {
            i++;
        } else if (status != TRM_END) {
            return status;
        }
    }
    *seconds = trm_now_seconds() - begin;
    return TRM_OK;
}

/* Measures the seconds per batch --repeats times, after reading as many batches as the workers
 * prefetch. */
static trm_status measure_data(const app_options *o, trm_dataset *data, double *seconds,
                               trm_error *err) {
    int64_t batches = trm_dataset_epoch_batches(data);
    batches = batches > BATCHES_MOST ? BATCHES_MOST : batches;
    double ignored;
    trm_status status = read_batches(data, 2 + 2 * o->workers, &ignored, err);
    for (int64_t r = 0; status == TRM_OK && r < o->repeats; r++) {
        status = read_batches(data, batches, &seconds[r], err);
        seconds[r] /= (double)batches;
    }
    return status;
}

/* Prints the rates. */
static void tell_data(const app_options *o, const app_sample *s, const bench_data_rate *rate) {
    app_begin(APP_RESULT, "bench", "data");
    app_put(app_text("data", o->data, "%s: "), app_int("batch_size", o->batch_size, NULL),
            app_int("image_size", o->image_size, NULL),
            app_real("samples_per_second", (double)o->batch_size / s->median, "%.0f samples/s"),
            app_int("workers", o->workers, " with %d workers"));
    app_put_sample(s, " (median of %d measurements)", NULL, NULL, NULL);
    app_put(app_real("thread_microseconds_per_sample", rate->microseconds_per_sample,
                     "\none thread: %.1f us a sample to read, decode and transform"));
    if (rate->decode_ratio > 0) { /* only where all samples are JPEG */
        app_put(app_real("libjpeg_microseconds_per_sample", rate->decode_microseconds_per_sample,
                         "; libjpeg-turbo's own decode of the same files to RGB: %.1f us"),
                app_real("libjpeg_ratio", rate->decode_ratio, ", %.2f of that"));
    }
    app_put_machine(o->workers);
    app_end();
}

/* Runs `bench data`. It opens the dataset twice: with its workers for the rate, and again for the
 * time of one thread. */
int app_run_bench_data(app_context *app) {
    trm_error err;
    app_options *o = &app->o;
    trm_dataset *data = NULL;
    double *seconds = calloc((size_t)o->repeats, sizeof *seconds);
    const trm_usage usage = app_usage(o, TRM_USAGE_TRAIN);
    const bool training = usage != TRM_USAGE_TEST;
    app_settle_data(app);
    trm_status status =
        seconds != NULL ? TRM_OK : app_no_memory(&err, "for %lld times", (long long)o->repeats);
    if (status == TRM_OK) {
        status = app_dataset(app, usage, training, &data, &err);
    }
    /* A dry run ends here: all checks have passed. */
    if (status == TRM_OK && o->dry_run) {
        trm_dataset_destroy(data);
        free(seconds);
        return app_print_dry_run(app, "nothing was measured");
    }
    if (status == TRM_OK) {
        status = measure_data(o, data, seconds, &err);
    }
    trm_dataset_destroy(data);
    /* Open the same data again for one thread, from its first sample. */
    data = NULL;
    if (status == TRM_OK) {
        status = app_dataset(app, usage, training, &data, &err);
    }
    bench_data_rate rate;
    if (status == TRM_OK) {
        status = bench_dataset(data, thread_seconds, &rate, &err);
    }
    if (status == TRM_OK) {
        app_sample s = app_summarise(seconds, o->repeats);
        tell_data(o, &s, &rate);
    }
    trm_dataset_destroy(data);
    free(seconds);
    return status == TRM_OK ? 0 : app_report(&err);
}
