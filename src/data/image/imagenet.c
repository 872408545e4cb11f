/* SPDX-License-Identifier: Apache-2.0 */
/* ImageNet as TFRecord files, in the form that TensorFlow's models read. A record is a tf.Example:
 *
 *   image/encoded      bytes   the file of a picture (picture.h), decoded when a batch is made
 *   image/class/label  int64   1 to 1000; batches have 0 to 999
 *
 * Training images are in files train-*, test images in validation-*. Other features of a record are
 * passed over.
 *
 * Lengths of records are checked when the files are opened, their content when it is read. */
#include "base/arguments.h"
#include "base/error.h"
#include "data/tfrecord/tfrecord.h"

enum { IMAGENET_CLASSES = 1000 };

/* The source: records with image/encoded and image/class/label. */
typedef struct imagenet {
    trmi_source base;      /* must be the first member */
    trmi_tfrecord_set set; /* the files */
} imagenet;

/* Writes file and record of a sample. */
static void write_imagenet_place(const trmi_source *source, int64_t index, char *text,
                                 size_t size) {
    trmi_tfrecord_place(&((const imagenet *)source)->set, index, text, size);
}

/* Returns the encoded image inside the mapped file. Labels are 1 .. 1000 in the files, 0 .. 999
 * here. */
static trm_status load_imagenet(const trmi_source *source, trmi_picture_scratch *scratch,
                                int64_t index, trmi_sample *out, trm_error *err) {
    (void)scratch;
    static const char *const names[] = {"image/encoded", "image/class/label"};
    const uint8_t *data, *image;
    size_t bytes, image_bytes;
    TRMI_TRY(trmi_tfrecord_read(&((const imagenet *)source)->set, index, &data, &bytes, err));
    /* The two features of a sample. */
    char where[TRMI_PLACE_BYTES];
    trmi_feature features[2];
    if (trmi_example_find(data, bytes, names, 2, features, err) != TRM_OK) {
        write_imagenet_place(source, index, where, sizeof where);
        (void)trmi_error_append(err, " (%s)", where);
        return TRM_CORRUPT;
    }
    trmi_feature_walk encoded = trmi_feature_begin(&features[0]);
    trmi_feature_walk labels = trmi_feature_begin(&features[1]);
    /* Both must be there, and have their types. */
    int64_t label = -1;
    if (features[0].kind != TRMI_FEATURE_BYTES ||
        !trmi_feature_next_bytes(&encoded, &image, &image_bytes) ||
        features[1].kind != TRMI_FEATURE_INT64 || !trmi_feature_next_int64(&labels, &label)) {
        write_imagenet_place(source, index, where, sizeof where);
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: no image/encoded (bytes) and image/class/label (int64) found", where);
    }
    if (label < 1 || label > IMAGENET_CLASSES) {
        write_imagenet_place(source, index, where, sizeof where);
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: label %lld, 1..%d expected (0 is background)",
                         where, (long long)label, IMAGENET_CLASSES);
    }
    *out = (trmi_sample){.form = TRMI_FORM_ENCODED,
                         .data = image,
                         .bytes = image_bytes,
                         .label = (int32_t)(label - 1)};
    return TRM_OK;
}

/* The functions of a source (data/pipeline/source.h). */
static trm_status check_imagenet(const trmi_source *source, const trmi_batch_work *work,
                                 trm_status status, trm_error *err) {
    return trmi_tfrecord_check(&((const imagenet *)source)->set, work, status, err);
}

static void describe_imagenet(const trmi_source *source, trmi_report *report) {
    const trmi_tfrecord_set *set = &((const imagenet *)source)->set;
    trmi_report_put(report, trmi_int("files", set->file_count),
                    trmi_string("first", set->files[0].path));
}

/* Closes the files and frees the source. */
static void destroy_imagenet(trmi_source *source) {
    trmi_tfrecord_close(&((imagenet *)source)->set);
    trmi_free(source);
}

static const trmi_source_ops imagenet_ops = {.kind = "tfrecord",
                                             .load = load_imagenet,
                                             .check = check_imagenet,
                                             .place = write_imagenet_place,
                                             .describe = describe_imagenet,
                                             .destroy = destroy_imagenet};

/* Contract in trireme/data.h. Labels in the files go from 1 to 1000, those of batches from 0. */
trm_status trm_dataset_tfrecord_imagenet(const char *path, trm_usage usage, trm_dataset **out,
                                         trm_error *err) {
    TRMI_NEED(err, path, out);
    static const char *const prefixes[] = {"train-", "validation-"};
    imagenet *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    trm_status status = trmi_tfrecord_open(path, prefixes + (usage == TRM_USAGE_TEST),
                                           usage == TRM_USAGE_ALL ? 2 : 1, &set->set, err);
    if (status != TRM_OK) {
        trmi_free(set);
        return status;
    }
    set->base = (trmi_source){.ops = &imagenet_ops,
                              .count = set->set.records,
                              .classes = IMAGENET_CLASSES,
                              .form = TRMI_FORM_ENCODED};
    return trmi_dataset_create(&set->base, out, err);
}
