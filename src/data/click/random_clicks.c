/* SPDX-License-Identifier: Apache-2.0 */
/* Random rows of click data without any meaning, kept in memory, so that a batch costs only the
 * copy; benchmarks use it.
 *
 *     row i:  label 0 or 1    dense numbers in [0, 1)    one key a field, by Zipf's law
 *
 * Keys follow Zipf's law (a few occur often, most seldom), because caches and servers behave then
 * as with real data. A row depends on the seed and its number only, so all ranks and any number of
 * threads draw the same rows. In one shared table the keys of field f lie in [f v, (f + 1) v), for
 * v keys a field. */
#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/click/click.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rows unless the options say otherwise; batches repeat them. */
enum { DEFAULT_COUNT = 32768 };

/* The source. */
typedef struct random_clicks {
    trmi_click_source click; /* must be the first member */
    int64_t vocabulary;      /* keys of each field */
    double zipf;             /* exponent of the keys' distribution */
    int64_t *keys;           /* [count][fields] */
    float *dense, *labels;   /* [count][dense], [count] */
} random_clicks;

/* The random numbers of one seed, in order. */
typedef struct draws {
    uint64_t seed, next;
} draws;

/* Returns the next random number, uniform in [0, 1). */
static double draw_unit(draws *d) {
    uint64_t i = d->next++;
    return (double)trmi_random_u32(d->seed, TRMI_STREAM_SYNTH, i) * 0x1p-32;
}

/* Returns x = 1, 2, ... with P(x) ~ x^-a. Source: Devroye, Non-Uniform Random Variate Generation
 * (1986), section X.6.1. */
static int64_t draw_zipf(draws *d, double a) {
    double b = pow(2, a - 1);
    for (;;) {
        double x = floor(pow(1 - draw_unit(d), -1 / (a - 1))), v = draw_unit(d);
        if (!(x >= 1 && x < 9e15)) {
            continue;
        }
        double t = pow(1 + 1 / x, a - 1);
        if (v * x * (t - 1) / (b - 1) <= t / b) {
            return (int64_t)x;
        }
    }
}

/* Copies the rows of a batch; padding rows are zero. */
static trm_status fill_random_clicks(const trmi_source *source, trmi_picture_scratch *scratch,
                                     const trmi_batch_work *work, trm_error *err) {
    (void)scratch, (void)err;
    const random_clicks *set = (const random_clicks *)source;
    /* The tensors, in the order of trmi_click_fields: labels, dense numbers (if any), keys. */
    size_t dense = (size_t)set->click.dense_count, fields = (size_t)set->click.field_count;
    float *labels = work->tensors[0].data;
    float *numbers = dense > 0 ? work->tensors[1].data : NULL;
    int64_t *keys = work->tensors[dense > 0 ? 2 : 1].data;
    for (int64_t i = 0; i < work->slots; i++) {
        /* This row is padding. */
        if (i >= work->count) {
            labels[i] = 0;
            memset(keys + (size_t)i * fields, 0, fields * sizeof *keys);
            if (numbers != NULL) {
                memset(numbers + (size_t)i * dense, 0, dense * sizeof *numbers);
            }
            continue;
        }
        size_t row = (size_t)work->indices[i];
        labels[i] = set->labels[row];
        memcpy(keys + (size_t)i * fields, set->keys + row * fields, fields * sizeof *keys);
        if (numbers != NULL) {
            memcpy(numbers + (size_t)i * dense, set->dense + row * dense, dense * sizeof *numbers);
        }
    }
    return TRM_OK;
}

/* The functions of a source (data/pipeline/source.h) that say what it is. */
static void write_random_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    (void)source;
    snprintf(text, size, "random row %lld", (long long)index);
}

static void describe_random_clicks(const trmi_source *source, trmi_report *report) {
    const random_clicks *set = (const random_clicks *)source;
    trmi_report_put(report, trmi_bool("generated", true), trmi_int("vocabulary", set->vocabulary),
                    trmi_real("zipf", set->zipf), trmi_int("dense", set->click.dense_count),
                    trmi_int("key_fields", set->click.field_count));
}

static void destroy_random_clicks(trmi_source *source) {
    random_clicks *set = (random_clicks *)source;
    trmi_free(set->keys);
    trmi_free(set->dense);
    trmi_free(set->labels);
    trmi_free(set);
}

static const trmi_source_ops random_clicks_ops = {.kind = "random-clicks",
                                                  .fields = trmi_click_fields,
                                                  .fill = fill_random_clicks,
                                                  .place = write_random_place,
                                                  .describe = describe_random_clicks,
                                                  .destroy = destroy_random_clicks};

/* Returns the number of threads that draw rows. */
static int count_threads(const trm_click_random_options *o) {
    int asked = o->threads > 0 ? o->threads : trmi_os_openmp_threads();
    return asked > 0 ? asked : trmi_os_cpu_count();
}

/* Draws all rows. With a shared table each field's keys have an offset. */
static trm_status draw_rows(random_clicks *set, const trm_click_random_options *o, trm_error *err) {
    int64_t count = set->click.base.count, fields = set->click.field_count;
    int64_t dense = set->click.dense_count;
    TRMI_TRY(TRMI_NEW(err, set->keys, count * fields, "for %lld random rows", (long long)count));
    TRMI_TRY(TRMI_NEW(err, set->dense, count * dense, "for %lld random rows", (long long)count));
    TRMI_TRY(TRMI_NEW(err, set->labels, count, "for %lld random rows", (long long)count));
    int64_t stride = o->own_tables ? 0 : set->vocabulary;
    int threads = count_threads(o);
    (void)threads; /* without OpenMP */
    /* Row i depends on (seed, i) only. */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i++) {
        draws d = {.seed = trmi_mix(o->seed, (uint64_t)i)};
        set->labels[i] = draw_unit(&d) < o->click_rate ? 1.0f : 0.0f;
        for (int64_t k = 0; k < dense; k++) {
            set->dense[i * dense + k] = (float)draw_unit(&d);
        }
        for (int64_t f = 0; f < fields; f++) {
            set->keys[i * fields + f] = draw_zipf(&d, set->zipf) % set->vocabulary + f * stride;
        }
    }
    return TRM_OK;
}

/* Contract in trireme/data.h. Rows are drawn here, so that the first batch is as fast as the
 * others. */
trm_status trm_dataset_random_clicks(const trm_click_random_options *options, trm_dataset **out,
                                     trm_error *err) {
    TRMI_NEED(err, out);
    trm_click_random_options o = options != NULL ? *options : (trm_click_random_options){0};
    /* Defaults for what is 0; dense < 0 means none. */
    o.count = o.count == 0 ? DEFAULT_COUNT : o.count;
    o.fields = o.fields == 0 ? 26 : o.fields;
    o.dense = o.dense == 0 ? 13 : o.dense < 0 ? 0 : o.dense;
    o.vocabulary = o.vocabulary == 0 ? 100000 : o.vocabulary;
    o.zipf = o.zipf == 0 ? 1.2 : o.zipf;
    o.click_rate = o.click_rate == 0 ? 0.25 : o.click_rate;
    if (o.count < 1 || o.count > (int64_t)1 << 30 || o.fields < 1 || o.fields > 512 ||
        o.dense > 4096 || o.vocabulary < 1 || o.vocabulary > (int64_t)1 << 40 ||
        !(o.zipf > 1 && o.zipf < 10) || !(o.click_rate > 0 && o.click_rate < 1)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "random clicks: %lld rows (1 to 2^30 expected), %d fields (1 to 512) of %lld keys (1 "
            "to "
            "2^40), %d dense (at most 4096), zipf %g (above 1, below 10), click rate %g (between 0 "
            "and 1)",
            (long long)o.count, (int)o.fields, (long long)o.vocabulary, (int)o.dense, o.zipf,
            o.click_rate);
    }
    if (o.threads < 0 || o.threads > 1024) {
        return TRMI_FAIL(err, TRM_INVALID, "random clicks: %d threads (expected 0 to 1024)",
                         (int)o.threads);
    }
    random_clicks *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "for a dataset"));
    set->click.base = (trmi_source){.ops = &random_clicks_ops, .count = o.count, .classes = 2};
    set->click.dense_count = o.dense;
    set->click.field_count = o.fields;
    set->click.entries_max = o.fields;
    set->vocabulary = o.vocabulary;
    set->zipf = o.zipf;
    trm_status status = draw_rows(set, &o, err);
    if (status != TRM_OK) {
        destroy_random_clicks(&set->click.base);
        return status;
    }
    return trmi_dataset_create(&set->click.base, out, err);
}
