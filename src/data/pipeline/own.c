/* SPDX-License-Identifier: Apache-2.0 */
/* Data of the caller's own: samples that a callback writes, and arrays, which are read by such a
 * callback.
 *
 *   trm_dataset_arrays --> copy_rows --+
 *   trm_dataset_callback --> read -----+--> load_own_image (and its label: image transforms apply)
 *                                      +--> fill_own_batch (any fields)
 *
 * Invariants: rows after the last sample are zeros, with -1 as class labels, as in every dataset.
 * The context belongs to the dataset from the moment at which the creation has succeeded. */
#include "data/pipeline/dataset.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Bytes of a field's name, at most. */
enum { NAME_MAX_BYTES = 64 };

/* The source around a callback. */
typedef struct own_source {
    trmi_source base;                                 /* must be the first member */
    trm_data_source source;                           /* the caller's description */
    int64_t bytes[TRM_MAX_BATCH_FIELDS];              /* of one sample, by field */
    char names[TRM_MAX_BATCH_FIELDS][NAME_MAX_BYTES]; /* copies of the fields' names */
} own_source;

/* ---- reading --------------------------------------------------------------------------------- */

/* The functions of a source (source.h) that say what it is. */
static void write_own_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    (void)source;
    snprintf(text, size, "sample %lld", (long long)index);
}

/* Calls the callback for one sample and completes its error. */
static trm_status read_sample(const own_source *own, int64_t index, const trm_tensor *fields,
                              trm_error *err) {
    trm_error theirs = {.rank = -1};
    trm_status status = own->source.read(own->source.context, index, fields, &theirs);
    status = trmi_name_sample(status, index, "the dataset's read function", &theirs);
    if (status != TRM_OK && err != NULL) {
        *err = theirs;
    }
    return status;
}

/* Lists the fields of a batch: those of a sample with one more dimension in front. */
static int32_t list_fields(const trmi_source *source, int64_t size, trmi_field *out) {
    const own_source *own = (const own_source *)source;
    for (int32_t i = 0; i < own->source.field_count; i++) {
        const trm_tensor *one = &own->source.fields[i].tensor;
        trm_shape shape = {.rank = one->shape.rank + 1, .dim = {size}};
        memcpy(shape.dim + 1, one->shape.dim, (size_t)one->shape.rank * sizeof *shape.dim);
        out[i] = (trmi_field){.name = own->names[i], .dtype = one->dtype, .shape = shape};
    }
    return own->source.field_count;
}

/* Fills the rows after the last sample: zeros, and -1 for class labels, as in every dataset. */
static void pad_rows(const own_source *own, const trmi_batch_work *work) {
    for (int32_t i = 0; i < own->source.field_count; i++) {
        const trm_batch_field *field = &own->source.fields[i];
        bool label = strcmp(own->names[i], "label") == 0 && field->tensor.dtype == TRM_INT32;
        memset((char *)work->tensors[i].data + work->count * own->bytes[i], label ? 0xFF : 0,
               (size_t)((work->slots - work->count) * own->bytes[i]));
    }
}

/* Fills a batch: the callback writes directly into the batch's rows. */
static trm_status fill_own_batch(const trmi_source *source, trmi_picture_scratch *scratch,
                                 const trmi_batch_work *work, trm_error *err) {
    (void)scratch;
    const own_source *own = (const own_source *)source;
    for (int64_t row = 0; row < work->count; row++) {
        trm_tensor fields[TRM_MAX_BATCH_FIELDS];
        for (int32_t i = 0; i < own->source.field_count; i++) {
            fields[i] = own->source.fields[i].tensor;
            fields[i].data = (char *)work->tensors[i].data + row * own->bytes[i];
        }
        TRMI_TRY(read_sample(own, work->indices[row], fields, err));
    }
    pad_rows(own, work);
    return TRM_OK;
}

/* Loads one image into the worker's scratch. */
static trm_status load_own_image(const trmi_source *source, trmi_picture_scratch *scratch,
                                 int64_t index, trmi_sample *out, trm_error *err) {
    const own_source *own = (const own_source *)source;
    int32_t label = 0;
    trm_tensor fields[2] = {own->source.fields[0].tensor, own->source.fields[1].tensor};
    fields[0].data = trmi_scratch_get(scratch, TRMI_SCRATCH_FILE, (size_t)own->bytes[0]);
    fields[1].data = &label;
    if (fields[0].data == NULL) {
        return TRMI_NO_MEMORY(err, "for an image of %lld bytes", (long long)own->bytes[0]);
    }
    TRMI_TRY(read_sample(own, index, fields, err));
    *out = (trmi_sample){.form = TRMI_FORM_HWC,
                         .data = fields[0].data,
                         .bytes = (size_t)own->bytes[0],
                         .height = source->height,
                         .width = source->width,
                         .label = label};
    return TRM_OK;
}

static void describe_own(const trmi_source *source, trmi_report *report) {
    trmi_report_put(report,
                    trmi_int("own_fields", ((const own_source *)source)->source.field_count));
}

/* Calls the caller's destroy function, if there is one. */
static void destroy_own(trmi_source *source) {
    own_source *own = (own_source *)source;
    if (own->source.destroy != NULL) {
        own->source.destroy(own->source.context);
    }
    trmi_free(own);
}

static const trmi_source_ops rows_ops = {.kind = "own",
                                         .fields = list_fields,
                                         .fill = fill_own_batch,
                                         .place = write_own_place,
                                         .describe = describe_own,
                                         .destroy = destroy_own};
static const trmi_source_ops images_ops = {.kind = "own",
                                           .load = load_own_image,
                                           .place = write_own_place,
                                           .describe = describe_own,
                                           .destroy = destroy_own};

/* ---- making ---------------------------------------------------------------------------------- */

/* Checks name, type and shape of field `at` of a source of the program, and copies the name.
 *   errors  INVALID */
static trm_status check_field(own_source *own, int32_t at, trm_error *err) {
    const trm_batch_field *field = &own->source.fields[at];
    int64_t count = trm_shape_count(&field->tensor.shape);
    size_t width = trm_dtype_bytes(field->tensor.dtype);
    if (field->name == NULL || field->name[0] == '\0' || strlen(field->name) >= NAME_MAX_BYTES) {
        return TRMI_FAIL(err, TRM_INVALID, "field %d: a name of 1 to %d letters expected", (int)at,
                         NAME_MAX_BYTES - 1);
    }
    /* names are unique, and sizes known */
    for (int32_t i = 0; i < at; i++) {
        if (strcmp(own->names[i], field->name) == 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "field '%s' is there twice; each field needs a name of its own",
                             field->name);
        }
    }
    if (width == 0 || field->tensor.shape.rank < 0 || field->tensor.shape.rank >= TRM_MAX_RANK ||
        count < 1 || !trmi_mul_i64(count, (int64_t)width, &own->bytes[at])) {
        char text[96];
        return TRMI_FAIL(
            err, TRM_INVALID,
            "field '%s': a type, at most %d dimensions a sample and sizes of 1 or more "
            "expected, found %s %s",
            field->name, TRM_MAX_RANK - 1, trm_dtype_name(field->tensor.dtype),
            trm_shape_format(&field->tensor.shape, text, sizeof text));
    }
    memcpy(own->names[at], field->name, strlen(field->name) + 1);
    return TRM_OK;
}

/* Returns true for an image of three uint8 channels with an int32 class label: image transforms
 * apply to it. */
static bool is_image(const own_source *own) {
    const trm_tensor *image = &own->source.fields[0].tensor, *label = &own->source.fields[1].tensor;
    return own->source.field_count == 2 && strcmp(own->names[0], "image") == 0 &&
           strcmp(own->names[1], "label") == 0 && image->dtype == TRM_UINT8 &&
           image->shape.rank == 3 && image->shape.dim[2] == 3 && label->dtype == TRM_INT32 &&
           label->shape.rank == 0;
}

/* Checks the callback and all fields. */
static trm_status check_source(own_source *own, trm_error *err) {
    const trm_data_source *s = &own->source;
    if (s->read == NULL || s->samples < 1 || s->classes < 0 || s->classes > INT32_MAX ||
        s->field_count < 1 || s->field_count > TRM_MAX_BATCH_FIELDS) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "data of the program (trm_dataset_callback): %lld samples of %d fields, "
                         "%lld classes%s; a read "
                         "function, at least one sample and 1 to %d fields expected",
                         (long long)s->samples, (int)s->field_count, (long long)s->classes,
                         s->read == NULL ? ", no read function" : "", TRM_MAX_BATCH_FIELDS);
    }
    for (int32_t i = 0; i < s->field_count; i++) {
        TRMI_TRY(check_field(own, i, err));
    }
    return TRM_OK;
}

trm_status trm_dataset_callback(const trm_data_source *source, trm_dataset **out, trm_error *err) {
    TRMI_NEED(err, source, out);
    own_source *own;
    TRMI_TRY(TRMI_NEW(err, own, 1, "for a dataset"));
    own->source = *source;
    trm_status status = check_source(own, err);
    if (status != TRM_OK) {
        trmi_free(own); /* on failure the context still belongs to the caller */
        return status;
    }
    own->base = (trmi_source){.ops = is_image(own) ? &images_ops : &rows_ops,
                              .count = source->samples,
                              .classes = source->classes,
                              .form = TRMI_FORM_HWC,
                              .in_order = source->in_order};
    if (is_image(own)) {
        own->base.height = source->fields[0].tensor.shape.dim[0];
        own->base.width = source->fields[0].tensor.shape.dim[1];
    }
    return trmi_dataset_create(&own->base, out, err);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* The context of copy_rows: the caller's arrays. */
typedef struct arrays {
    int32_t count;                          /* number of arrays */
    const char *data[TRM_MAX_BATCH_FIELDS]; /* the caller's memory */
    int64_t bytes[TRM_MAX_BATCH_FIELDS];    /* of a row */
} arrays;

/* Copies one row of each array to the fields of a sample. */
static trm_status copy_rows(void *context, int64_t index, const trm_tensor *fields,
                            trm_error *err) {
    (void)err;
    const arrays *a = context;
    for (int32_t i = 0; i < a->count; i++) {
        memcpy(fields[i].data, a->data[i] + index * a->bytes[i], (size_t)a->bytes[i]);
    }
    return TRM_OK;
}

/* Checks an array and describes its rows as a field. All arrays must have the same first
 * dimension. */
static trm_status take_array(const trm_batch_field *array, int32_t at, arrays *a,
                             trm_data_source *source, trm_error *err) {
    const trm_tensor *t = &array->tensor;
    char text[96];
    if (t->data == NULL || t->shape.rank < 1 || t->shape.rank > TRM_MAX_RANK ||
        trm_tensor_bytes(t) < 1 || (at > 0 && t->shape.dim[0] != source->samples)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "array %d (%s): data, and in the first dimension as many samples as in the "
            "first array, expected; found %s%s",
            (int)at, array->name != NULL ? array->name : "without a name",
            trm_shape_format(&t->shape, text, sizeof text), t->data == NULL ? " without data" : "");
    }
    source->samples = t->shape.dim[0];
    source->fields[at] = *array;
    source->fields[at].tensor.shape = trm_shape_make(t->shape.rank - 1, t->shape.dim + 1);
    a->data[at] = t->data;
    a->bytes[at] = trm_tensor_bytes(t) / source->samples;
    return TRM_OK;
}

trm_status trm_dataset_arrays(const trm_batch_field *list, int32_t count, int64_t classes,
                              trm_dataset **out, trm_error *err) {
    TRMI_NEED(err, list, out);
    if (count < 1 || count > TRM_MAX_BATCH_FIELDS) {
        return TRMI_FAIL(err, TRM_INVALID, "%d arrays: 1 to %d expected", (int)count,
                         TRM_MAX_BATCH_FIELDS);
    }
    /* arrays are a source whose callback copies rows */
    arrays *a;
    TRMI_TRY(TRMI_NEW(err, a, 1, "for a dataset"));
    a->count = count;
    trm_data_source source = {.classes = classes,
                              .field_count = count,
                              .read = copy_rows,
                              .context = a,
                              .destroy = trmi_free};
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < count && status == TRM_OK; i++) {
        status = take_array(&list[i], i, a, &source, err);
    }
    status = status == TRM_OK ? trm_dataset_callback(&source, out, err) : status;
    if (status != TRM_OK) {
        trmi_free(a);
    }
    return status;
}
