/* SPDX-License-Identifier: Apache-2.0 */
/* A dataset that always returns the same random batch, for benchmarks: it is written once into each
 * buffer, so reading takes no time.
 *
 * Values depend on their place in the batch only, so that all runs train on the same numbers. The
 * dataset counts samples and epochs as any other does. */
#include "base/arguments.h"
#include "base/error.h"
#include "base/rng.h"
#include "data/pipeline/source.h"

#include <stdio.h>

/* Samples and classes unless the options say otherwise. */
enum { DEFAULT_COUNT = 50000, DEFAULT_CLASSES = 10 };

/* The source. */
typedef struct random_batch {
    trmi_source base;           /* must be the first member */
    trm_random_options options; /* with the defaults filled in */
} random_batch;

/* Lists image and label. */
static int32_t list_fields(const trmi_source *source, int64_t size, trmi_field *out) {
    const trm_random_options *o = &((const random_batch *)source)->options;
    out[0] = (trmi_field){.name = "image",
                          .dtype = TRM_FLOAT32,
                          .shape = o->channels_last
                                       ? trm_shape_of(size, o->height, o->width, o->channels)
                                       : trm_shape_of(size, o->channels, o->height, o->width)};
    out[1] = (trmi_field){.name = "label", .dtype = TRM_INT32, .shape = trm_shape_of(size)};
    return 2;
}

/* Writes the batch, once for each buffer. */
static void prepare_random_batch(const trmi_source *source, int64_t size, trm_tensor *tensors) {
    float *image = tensors[0].data;
    int32_t *label = tensors[1].data;
    int64_t count = trm_shape_count(&tensors[0].shape);
    /* Philox gives four words for each counter. */
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t bits[4];
        trmi_philox(0, TRMI_STREAM_SYNTH, (uint64_t)i, bits);
        for (int k = 0; k < 4 && i + k < count; k++) {
            /* The sum of four random bytes is close to a normal distribution with deviation
             * 147.8. */
            uint32_t sum =
                (bits[k] & 255) + (bits[k] >> 8 & 255) + (bits[k] >> 16 & 255) + (bits[k] >> 24);
            image[i + k] = ((float)sum - 510.0f) * (1.0f / 147.8f);
        }
    }
    for (int64_t i = 0; i < size; i++) {
        uint32_t bits = trmi_random_u32(1, TRMI_STREAM_SYNTH, (uint64_t)i);
        label[i] = (int32_t)trmi_bounded(bits, (uint32_t)source->classes);
    }
}

/* There is nothing to fill. */
static trm_status fill_nothing(const trmi_source *source, trmi_picture_scratch *scratch,
                               const trmi_batch_work *work, trm_error *err) {
    (void)source, (void)scratch, (void)work, (void)err;
    return TRM_OK;
}

/* Writes what a message calls a sample. */
static void write_random_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    (void)source;
    snprintf(text, size, "random sample %lld", (long long)index);
}

static void destroy_random_batch(trmi_source *source) { trmi_free(source); }

static const trmi_source_ops random_ops = {.kind = "random",
                                           .fields = list_fields,
                                           .fill = fill_nothing,
                                           .prepare = prepare_random_batch,
                                           .place = write_random_place,
                                           .destroy = destroy_random_batch};

trm_status trm_dataset_random(const trm_random_options *options, trm_dataset **out,
                              trm_error *err) {
    TRMI_NEED(err, options, out);
    trm_random_options o = *options;
    /* Defaults for what is 0. */
    o.count = o.count == 0 ? DEFAULT_COUNT : o.count;
    o.channels = o.channels == 0 ? 3 : o.channels;
    o.classes = o.classes == 0 ? DEFAULT_CLASSES : o.classes;
    if (o.count < 1 || o.channels < 1 || o.height < 1 || o.width < 1 || o.classes < 1 ||
        o.classes > INT32_MAX) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "random data: %lld samples of %lld x %lld x %lld in %lld classes (at least "
            "1 of each expected; height and width must be given)",
            (long long)o.count, (long long)o.channels, (long long)o.height, (long long)o.width,
            (long long)o.classes);
    }
    random_batch *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "for a dataset"));
    set->base = (trmi_source){.ops = &random_ops,
                              .count = o.count,
                              .classes = o.classes,
                              .form = TRMI_FORM_PLANAR,
                              .height = o.height,
                              .width = o.width};
    set->options = o;
    return trmi_dataset_create(&set->base, out, err);
}
