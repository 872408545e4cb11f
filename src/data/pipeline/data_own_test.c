/* SPDX-License-Identifier: Apache-2.0 */
/* Data of one's own (callbacks, arrays, streams): the same batches as a source of the library's
 * gives, on shards, threads and after a seek; fields of any shape; transforms; and what is
 * refused.
 *
 * Samples are functions of their index, so that every batch can be computed beside the
 * pipeline. An error of the caller's function must name the sample. */
#include "check.h"

#include "data/pipeline/dataset.h"
#include "data/pipeline/source.h"

#include "trireme/data.h"

#include <stdatomic.h>

enum { SAMPLES = 150, PIXELS = 32 * 32 * 3, SEED = 3 };
static const double mean[3] = {0.4914, 0.4822, 0.4465}, deviation[3] = {0.2023, 0.1994, 0.2010};

/* ---- the same images through the library's source, arrays and a function --------------------- */

static void draw_image(int64_t index, uint8_t *pixels, int32_t *label) {
    uint8_t planar[PIXELS];
    trmi_shape_draw(SEED, index, planar);
    for (int i = 0; i < PIXELS; i++) {
        pixels[i] = planar[i % 3 * 1024 + i / 3];
    }
    *label = trmi_shape_label(SEED, index);
}

static trm_status read_image(void *context, int64_t index, const trm_tensor *fields,
                             trm_error *err) {
    atomic_fetch_add((atomic_int *)context, 1);
    draw_image(index, fields[0].data, fields[1].data);
    return TRM_OK;
}

static atomic_int reads;

static trm_dataset *open_images(int form) {
    static uint8_t pixels[SAMPLES][PIXELS];
    static int32_t labels[SAMPLES];
    trm_error err;
    trm_dataset *data;
    if (form == 0) {
        const trm_shapes_options options = {.train_count = SAMPLES, .seed = SEED};
        CHECK_OK(trm_dataset_shapes(&options, TRM_USAGE_TRAIN, &data, &err), err);
    } else if (form == 1) {
        for (int i = 0; i < SAMPLES; i++) {
            draw_image(i, pixels[i], &labels[i]);
        }
        const trm_batch_field arrays[] = {
            {"image", {pixels, TRM_UINT8, trm_shape_of(SAMPLES, 32, 32, 3)}},
            {"label", {labels, TRM_INT32, trm_shape_of(SAMPLES)}}};
        CHECK_OK(trm_dataset_arrays(arrays, 2, 10, &data, &err), err);
    } else {
        trm_data_source source = {SAMPLES, 10, 2, .read = read_image, .context = &reads};
        source.fields[0] = (trm_batch_field){"image", {NULL, TRM_UINT8, trm_shape_of(32, 32, 3)}};
        source.fields[1] = (trm_batch_field){"label", {NULL, TRM_INT32, trm_shape_make(0, NULL)}};
        CHECK_OK(trm_dataset_callback(&source, &data, &err), err);
    }
    return data;
}

/* A shard with all verbs; `threads` 0: the caller's thread fills. */
static trm_dataset *add_verbs(trm_dataset *data, int64_t shard, int64_t threads) {
    trm_error err;
    trm_transform steps[] = {trm_transform_random_crop(32, 32, 4), trm_transform_random_flip(0.5),
                             trm_transform_rescale(1 / 255.0, 0),
                             trm_transform_normalize(mean, deviation), trm_transform_hwc2chw()};
    CHECK_OK(trm_dataset_seed(data, 42, &err), err);
    CHECK_OK(trm_dataset_shuffle(data, 10, &err), err);
    CHECK_OK(trm_dataset_shard(data, 2, shard, TRM_SHARD_PAD, &err), err);
    CHECK_OK(trm_dataset_map(data, steps, 5, &err), err);
    CHECK_OK(trm_dataset_batch(data, 16, false, &err), err);
    CHECK_OK(trm_dataset_prefetch(data, 2 * threads, threads, &err), err);
    return data;
}

static const trm_batch *read_next(trm_dataset *data) {
    trm_error err;
    const trm_batch *batch;
    trm_status status = trm_dataset_next(data, &batch, &err);
    if (status == TRM_END) {
        status = trm_dataset_next(data, &batch, &err);
    }
    CHECK_OK(status, err);
    return batch;
}

static void check_equal(const trm_batch *a, const trm_batch *b) {
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->samples, b->samples);
    assert_int_equal(a->field_count, b->field_count);
    for (int i = 0; i < a->field_count; i++) {
        const trm_tensor *t = &a->fields[i].tensor, *u = &b->fields[i].tensor;
        assert_string_equal(a->fields[i].name, b->fields[i].name);
        assert_true(t->dtype == u->dtype && trm_shape_equal(&t->shape, &u->shape));
        assert_memory_equal(t->data, u->data, (size_t)trm_tensor_bytes(t));
    }
}

static void own_images_are_as_the_librarys(void **state) {
    for (int form = 1; form < 3; form++) {
        for (int shard = 0; shard < 2; shard++) {
            trm_dataset *theirs = add_verbs(open_images(0), shard, 0);
            trm_dataset *own = add_verbs(open_images(form), shard, 3);
            for (int i = 0; i < 12; i++) { /* into the third epoch of five batches */
                check_equal(read_next(theirs), read_next(own));
            }
            trm_error err;
            CHECK_OK(trm_dataset_seek(theirs, 1, 3, &err), err);
            CHECK_OK(trm_dataset_seek(own, 1, 3, &err), err);
            check_equal(read_next(theirs), read_next(own));
            trm_dataset_destroy(theirs);
            trm_dataset_destroy(own);
        }
    }
    assert_true(atomic_load(&reads) > 2 * 12 * 15);
}

/* ---- fields of any shape --------------------------------------------------------------------- */

static float values[7][2][3];
static int64_t weights[7];
static int32_t labels[7];

static trm_dataset *open_rows(void) {
    trm_error err;
    trm_dataset *data;
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < 6; k++) {
            values[i][k / 3][k % 3] = (float)(10 * i + k);
        }
        weights[i] = 100 + i;
        labels[i] = i % 3;
    }
    const trm_batch_field arrays[] = {{"x", {values, TRM_FLOAT32, trm_shape_of(7, 2, 3)}},
                                      {"weight", {weights, TRM_INT64, trm_shape_of(7)}},
                                      {"label", {labels, TRM_INT32, trm_shape_of(7)}}};
    CHECK_OK(trm_dataset_arrays(arrays, 3, 3, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, 4, false, &err), err);
    return data;
}

static void rows_are_batches_and_padding(void **state) {
    trm_dataset *data = open_rows();
    assert_int_equal(trm_dataset_sample_count(data), 7);
    assert_int_equal(trm_dataset_class_count(data), 3);
    const trm_batch *batch = read_next(data);
    assert_memory_equal(trm_batch_tensor(batch, "x")->data, values, 4 * sizeof values[0]);
    batch = read_next(data);
    const trm_tensor *x = trm_batch_tensor(batch, "x"), *w = trm_batch_tensor(batch, "weight");
    static const float zeros[6];
    assert_true(x->shape.rank == 3 && x->shape.dim[0] == 4 && x->shape.dim[2] == 3);
    assert_true(batch->samples == 3 && batch->last);
    assert_memory_equal(x->data, values[4], 3 * sizeof values[0]);
    assert_memory_equal((const float *)x->data + 18, zeros, sizeof zeros);
    assert_int_equal(((const int64_t *)w->data)[2], 106);
    assert_int_equal(((const int64_t *)w->data)[3], 0);
    assert_int_equal(((const int32_t *)trm_batch_tensor(batch, "label")->data)[3], -1);
    trm_dataset_destroy(data);
}

/* ---- transforms ------------------------------------------------------------------------------ */

static trm_status add_seed(void *context, int64_t index, uint64_t seed, const trm_tensor *fields,
                           trm_error *err) {
    assert_true(fields[0].shape.rank == 2 && fields[0].shape.dim[1] == 3);
    assert_int_equal(((const int64_t *)fields[1].data)[0], 100 + index);
    ((float *)fields[0].data)[5] = (float)(seed % 1000);
    ((float *)fields[0].data)[4] += *(const float *)context;
    return TRM_OK;
}

/* The random part is the same on any number of threads, another one in each epoch. */
static void transforms_change_samples(void **state) {
    static const float more = 0.5f;
    trm_error err;
    trm_dataset *one = open_rows(), *two = open_rows();
    CHECK_OK(trm_dataset_transform(one, add_seed, (void *)(uintptr_t)&more, &err), err);
    CHECK_OK(trm_dataset_transform(two, add_seed, (void *)(uintptr_t)&more, &err), err);
    CHECK_OK(trm_dataset_prefetch(two, 4, 3, &err), err);
    float seeds[3];
    for (int i = 0; i < 6; i++) {
        const trm_batch *batch = read_next(one);
        check_equal(batch, read_next(two));
        const float *x = trm_batch_tensor(batch, "x")->data;
        if (batch->index == 0) {
            assert_true(x[4] == values[0][1][1] + more);
            seeds[batch->epoch] = x[5];
        }
    }
    assert_true(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
    trm_dataset_destroy(one);
    trm_dataset_destroy(two);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static trm_status fail_at_five(void *context, int64_t index, const trm_tensor *fields,
                               trm_error *err) {
    memset(fields[0].data, 0, 4);
    if (index == 5 && context != NULL) {
        snprintf(err->message, sizeof err->message, "%s", (const char *)context);
    }
    return index == 5 ? TRM_CORRUPT : TRM_OK;
}

static trm_status refuse_sample(void *context, int64_t index, uint64_t seed,
                                const trm_tensor *fields, trm_error *err) {
    return TRM_UNSUPPORTED;
}

static void errors_name_the_sample(void **state) {
    static char why[] = "the sensor was off";
    trm_error err;
    const trm_batch *batch;
    for (int told = 0; told < 2; told++) {
        trm_dataset *data;
        trm_data_source source = {9, 0, 1, .read = fail_at_five, .context = told ? why : NULL};
        source.fields[0] = (trm_batch_field){"x", {NULL, TRM_FLOAT32, trm_shape_make(0, NULL)}};
        CHECK_OK(trm_dataset_callback(&source, &data, &err), err);
        CHECK_OK(trm_dataset_batch(data, 4, true, &err), err);
        CHECK_OK(trm_dataset_prefetch(data, 2 * told, told, &err), err);
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err,
                    told ? "the sensor was off (sample 5)"
                         : "sample 5: the dataset's read function");
        trm_dataset_destroy(data);
    }
    trm_dataset *data = open_rows();
    CHECK_OK(trm_dataset_transform(data, refuse_sample, NULL, &err), err);
    CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_UNSUPPORTED, err,
                "sample 0: a transform");
    trm_dataset_destroy(data);
}

/* Writes its index; refuses indices that do not rise within an epoch. */
static trm_status read_in_order(void *context, int64_t index, const trm_tensor *fields,
                                trm_error *err) {
    int64_t *next_index = context;
    if (index != 0 && index < *next_index) {
        snprintf(err->message, sizeof err->message, "index %d after %d", (int)index,
                 (int)*next_index - 1);
        return TRM_INVALID;
    }
    *next_index = index + 1;
    *(int64_t *)fields[0].data = index;
    return TRM_OK;
}

static void streams_are_read_in_order(void **state) {
    int64_t next_index = 0;
    uint64_t print;
    trm_error err;
    trm_data_source source = {.samples = 12,
                              .field_count = 1,
                              .read = read_in_order,
                              .context = &next_index,
                              .in_order = true};
    source.fields[0] = (trm_batch_field){"x", {NULL, TRM_INT64, trm_shape_make(0, NULL)}};
    for (int wrong = 0; wrong < 3; wrong++) {
        trm_dataset *data;
        CHECK_OK(trm_dataset_callback(&source, &data, &err), err);
        CHECK_OK(trm_dataset_batch(data, 4, true, &err), err);
        if (wrong == 1) {
            CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
        }
        CHECK_OK(trm_dataset_prefetch(data, 2, wrong == 2 ? 2 : 1, &err), err);
        assert_int_equal(trm_dataset_check(data, &err), wrong == 0 ? TRM_OK : TRM_INVALID);
        for (int batch = 0; wrong == 0 && batch < 6; batch++) {
            const trm_batch *got = read_next(data);
            assert_int_equal(*(int64_t *)got->fields[0].tensor.data, batch % 3 * 4);
            /* A fingerprint in the middle of an epoch reads nothing. */
            CHECK_OK(trmi_dataset_fingerprint(data, &print, &err), err);
        }
        trm_dataset_destroy(data);
    }
}

static void wrong_use_is_refused(void **state) {
    trm_error err;
    trm_dataset *data = NULL;
    float x[4];
    trm_batch_field two[] = {{"x", {x, TRM_FLOAT32, trm_shape_of(4)}},
                             {"y", {x, TRM_FLOAT32, trm_shape_of(3)}}};
    CHECK_FAILS(trm_dataset_arrays(two, 2, 0, &data, &err), TRM_INVALID, err, "array 1 (y)");
    two[1] = two[0];
    CHECK_FAILS(trm_dataset_arrays(two, 2, 0, &data, &err), TRM_INVALID, err, "'x' is there twice");
    two[0].tensor.data = NULL;
    CHECK_FAILS(trm_dataset_arrays(two, 1, 0, &data, &err), TRM_INVALID, err, "without data");
    CHECK_FAILS(trm_dataset_arrays(two, 7, 0, &data, &err), TRM_INVALID, err, "7 arrays");
    trm_data_source source = {.samples = 4, .field_count = 1};
    CHECK_FAILS(trm_dataset_callback(&source, &data, &err), TRM_INVALID, err, "no read function");
    source.read = fail_at_five;
    CHECK_FAILS(trm_dataset_callback(&source, &data, &err), TRM_INVALID, err, "field 0: a name");
    source.fields[0].name = "x";
    CHECK_FAILS(trm_dataset_callback(&source, &data, &err), TRM_INVALID, err, "a type");
    data = open_rows();
    for (int i = 0; i < 4; i++) {
        CHECK_OK(trm_dataset_transform(data, refuse_sample, NULL, &err), err);
    }
    CHECK_FAILS(trm_dataset_transform(data, refuse_sample, NULL, &err), TRM_INVALID, err,
                "at most 4");
    trm_dataset_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_images_are_as_the_librarys),
        cmocka_unit_test(rows_are_batches_and_padding),
        cmocka_unit_test(transforms_change_samples),
        cmocka_unit_test(errors_name_the_sample),
        cmocka_unit_test(streams_are_read_in_order),
        cmocka_unit_test(wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
