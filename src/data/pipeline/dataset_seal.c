/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing a dataset: the checks that need all refining calls, the fields and the number of batches.
 * Also the getters that seal, and the JSON description that checkpoints store.
 *
 *   transforms --> trmi_chain_build --> image, label        (image sources)
 *   source ops --> fields                                   (row sources)
 *                  fields --> trmi_check_transforms (transforms of the program) --> sealed
 *
 * Nothing is changed if a check fails, except for values that the next attempt computes again. */
#include "data/pipeline/dataset.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"

/* ---- sealing ----------------------------------------------------------------------------- */

/* Computes the fields of an image dataset from its transforms. */
static trm_status image_fields(trm_dataset *dataset, trm_error *err) {
    trmi_chain *chain = &dataset->chain;
    TRMI_TRY(trmi_chain_build(dataset->transforms, dataset->transform_count, dataset->source, chain,
                              err));
    int64_t n = dataset->batch_size;
    dataset->fields[0] = (trmi_field){
        .name = "image",
        .dtype = chain->dtype,
        .shape = chain->channels_first ? trm_shape_of(n, 3, chain->height, chain->width)
                                       : trm_shape_of(n, chain->height, chain->width, 3)};
    dataset->fields[1] =
        (trmi_field){.name = "label", .dtype = TRM_INT32, .shape = trm_shape_of(n)};
    dataset->field_count = 2;
    return TRM_OK;
}

/* Contract in dataset.h. Everything that can be wrong with a pipeline is found here, before the
 * first batch: no samples, no batch in an epoch, an order that the source cannot deliver, fields of
 * an impossible size, transforms that do not fit. */
trm_status trmi_dataset_seal(trm_dataset *dataset, trm_error *err) {
    if (dataset->sealed) {
        return TRM_OK;
    }
    if (dataset->source->count < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "a dataset of kind %s without samples",
                         dataset->source->ops->kind);
    }
    if (dataset->source->in_order && (dataset->order.shuffled || dataset->threads > 1)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the dataset's samples can be read in order only (found %s, expected "
                         "neither shuffle nor more than one prefetch thread)",
                         dataset->order.shuffled ? "shuffle" : "several threads");
    }
    /* The number of batches must not be zero. */
    int64_t places = trmi_order_places(&dataset->order), size = dataset->batch_size;
    int64_t batches = dataset->drop_remainder ? places / size : (places + size - 1) / size;
    if (batches == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "an epoch has no batch: %lld samples in %lld shards, batches of %lld; "
                         "lower the batch size or keep the remainder",
                         (long long)dataset->source->count, (long long)dataset->order.shards,
                         (long long)size);
    }
    /* Image sources get their fields from the transforms, row sources list them. */
    if (dataset->source->ops->load != NULL) {
        TRMI_TRY(image_fields(dataset, err));
    } else {
        dataset->field_count = dataset->source->ops->fields(dataset->source, size, dataset->fields);
    }
    /* No field of a batch may exceed 1 TB: a wrong option, not a real batch. */
    for (int32_t i = 0; i < dataset->field_count; i++) {
        int64_t count = trm_shape_count(&dataset->fields[i].shape), bytes;
        int64_t width = (int64_t)trm_dtype_bytes(dataset->fields[i].dtype);
        if (count < 0 || !trmi_mul_i64(count, width, &bytes) || bytes > (int64_t)1 << 40) {
            char text[96];
            return TRMI_FAIL(err, TRM_INVALID, "a batch with %s of shape %s does not fit memory",
                             dataset->fields[i].name,
                             trm_shape_format(&dataset->fields[i].shape, text, sizeof text));
        }
    }
    TRMI_TRY(trmi_check_transforms(dataset, err));
    dataset->epoch_batches = batches;
    dataset->sealed = true;
    return TRM_OK;
}

trm_status trm_dataset_check(trm_dataset *dataset, trm_error *err) {
    TRMI_NEED(err, dataset);
    return trmi_dataset_seal(dataset, err);
}

int64_t trm_dataset_epoch_batches(trm_dataset *dataset) {
    TRMI_NEED_OR(0, NULL, dataset);
    return trmi_dataset_seal(dataset, NULL) == TRM_OK ? dataset->epoch_batches : 0;
}

int64_t trm_dataset_sample_count(const trm_dataset *dataset) {
    TRMI_NEED_OR(0, NULL, dataset);
    return dataset->source->count;
}

int64_t trm_dataset_class_count(const trm_dataset *dataset) {
    TRMI_NEED_OR(0, NULL, dataset);
    return dataset->source->classes;
}

bool trm_dataset_field(trm_dataset *dataset, int32_t index, trm_batch_field *out) {
    TRMI_NEED_OR(false, NULL, dataset, out);
    if (trmi_dataset_seal(dataset, NULL) != TRM_OK || index < 0 || index >= dataset->field_count) {
        return false;
    }
    const trmi_field *field = &dataset->fields[index];
    *out = (trm_batch_field){field->name, {.dtype = field->dtype, .shape = field->shape}};
    return true;
}

/* ---- describing --------------------------------------------------------------------------- */

/* Puts an array of three numbers, one for each channel of an image. */
static void put_channels(trmi_report *report, const char *key, const double values[3]) {
    trmi_report_open_array(report, key);
    trmi_report_put(report, trmi_real(NULL, values[0]), trmi_real(NULL, values[1]),
                    trmi_real(NULL, values[2]));
    trmi_report_close(report);
}

/* Describes one transform with its parameters. */
static void describe_transform(trmi_report *report, const trm_transform *t) {
    static const char *const aligns[] = {"half_pixel", "original", "antialias"};
    trmi_report_open_object(report, NULL);
    trmi_report_put(report, trmi_string("name", trmi_transform_name(t->kind)));
    /* size, for the kinds that have one */
    if (t->height > 0) {
        trmi_report_put(report, trmi_int("height", t->height), trmi_int("width", t->width));
    }
    switch (t->kind) {
    case TRM_TRANSFORM_RANDOM_CROP: trmi_report_put(report, trmi_int("padding", t->padding)); break;
    case TRM_TRANSFORM_RANDOM_FLIP:
        trmi_report_put(report, trmi_real("probability", t->probability));
        break;
    case TRM_TRANSFORM_RESIZE:
    case TRM_TRANSFORM_RESIZE_SHORTER:
    case TRM_TRANSFORM_RANDOM_RESIZED_CROP:
        trmi_report_put(
            report, trmi_string("align", (unsigned)t->align < 3 ? aligns[t->align] : "unknown"));
        break;
    case TRM_TRANSFORM_RESCALE:
        trmi_report_put(report, trmi_real("scale", t->scale), trmi_real("shift", t->shift));
        break;
    case TRM_TRANSFORM_NORMALIZE:
        put_channels(report, "mean", t->mean);
        put_channels(report, "std", t->std);
        break;
    case TRM_TRANSFORM_TYPE_CAST:
        trmi_report_put(report, trmi_string("dtype", trm_dtype_name(t->dtype)));
        break;
    default: break;
    }
    trmi_report_close(report);
}

/* Describes the fields of a batch. */
static void describe_fields(trmi_report *report, trm_dataset *dataset) {
    trm_batch_field field;
    trmi_report_open_array(report, "fields");
    for (int32_t i = 0; trm_dataset_field(dataset, i, &field); i++) {
        char shape[96];
        trmi_report_open_object(report, NULL);
        trmi_report_put(
            report, trmi_string("name", field.name),
            trmi_string("dtype", trm_dtype_name(field.tensor.dtype)),
            trmi_json_value("shape", trm_shape_format(&field.tensor.shape, shape, sizeof shape)));
        if (dataset->fields[i].ragged) {
            trmi_report_put(report, trmi_bool("ragged", true));
        }
        trmi_report_close(report);
    }
    trmi_report_close(report);
}

/* Contract in data.h. The members follow the pipeline: source, order of samples, transforms,
 * batches and epochs, fields of a batch. */
char *trm_dataset_json(trm_dataset *dataset) {
    TRMI_NEED_OR(NULL, NULL, dataset);
    static const char *const modes[] = {"wrap", "drop", "pad"};
    const trmi_sample_order *order = &dataset->order;
    trmi_report r;
    trmi_report_begin(&r, true);
    trmi_report_open_object(&r, "source");
    trmi_report_put(&r, trmi_string("kind", dataset->source->ops->kind),
                    trmi_int("samples", dataset->source->count),
                    trmi_int("classes", dataset->source->classes));
    if (dataset->source->ops->describe != NULL) {
        dataset->source->ops->describe(dataset->source, &r);
    }
    trmi_report_close(&r);
    trmi_report_put(&r, trmi_unsigned("seed", order->seed), trmi_bool("shuffle", order->shuffled),
                    trmi_int("window", order->window));
    trmi_report_open_object(&r, "shard");
    trmi_report_put(&r, trmi_int("count", order->shards), trmi_int("index", order->shard),
                    trmi_string("mode", modes[order->mode]));
    trmi_report_close(&r);
    trmi_report_open_array(&r, "transforms");
    for (int32_t i = 0; i < dataset->transform_count; i++) {
        describe_transform(&r, &dataset->transforms[i]);
    }
    trmi_report_close(&r);
    trmi_report_put(&r, trmi_int("own_transforms", dataset->own_count));
    trmi_report_open_object(&r, "batch");
    trmi_report_put(&r, trmi_int("size", dataset->batch_size),
                    trmi_bool("drop_remainder", dataset->drop_remainder));
    trmi_report_close(&r);
    trmi_report_put(&r, trmi_int("repeat", dataset->passes));
    trmi_report_open_object(&r, "prefetch");
    trmi_report_put(&r, trmi_int("depth", dataset->depth), trmi_int("threads", dataset->threads));
    trmi_report_close(&r);
    trmi_report_put(&r, trmi_int("epoch_batches", trm_dataset_epoch_batches(dataset)));
    describe_fields(&r, dataset);
    return trmi_report_end(&r);
}
