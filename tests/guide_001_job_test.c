/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the mathematics of examples/resnet50_imagenet.c: its functions, one by one. */
#define main example_main
#include "../examples/resnet50_imagenet.c" /* NOLINT: its functions are static */
#undef main

#include "check.h"

#include <math.h>

enum { GLOBAL = 8 };

static const flags small = {.dtype = "fp32",
                            .batch_size = GLOBAL,
                            .image_size = 32,
                            .num_classes = 10,
                            .warmup_epochs = 5,
                            .base_learning_rate = 0.1};

static void feed_samples(trm_exec *exec, int64_t first, int64_t samples) {
    static float pixels[GLOBAL * 3 * 32 * 32];
    static int32_t labels[GLOBAL];
    trm_error err;
    for (int64_t i = 0; i < samples * 3 * 32 * 32; i++) {
        pixels[i] = sinf((float)(first * 3 * 32 * 32 + i) * 0.37f);
    }
    for (int64_t i = 0; i < samples; i++) {
        labels[i] = (int32_t)((first + i) * 7 % 10);
    }
    const trm_tensor image = {pixels, TRM_FLOAT32, trm_shape_of(samples, 3, 32, 32)};
    const trm_tensor label = {labels, TRM_INT32, trm_shape_of(samples)};
    CHECK_OK(trm_exec_feed(exec, "image", &image, &err), err);
    CHECK_OK(trm_exec_feed(exec, "label", &label, &err), err);
}

static bool is_batch_norm(const trm_exec *exec, const char *name) {
    char statistic[160];
    snprintf(statistic, sizeof statistic, "%.*s.running_mean", (int)(strrchr(name, '.') - name),
             name);
    return trm_exec_find(exec, statistic) >= 0;
}

/* Without a gradient an update is weight decay alone: `times` 2e-4 of all parameters except those
 * of batch norm. */
static void check_decay(const flags *f, int32_t replicas, double times) {
    trm_error err;
    trm_exec *exec;
    float *parameters, *gradients;
    int64_t count;
    int decayed = 0, left = 0;
    CHECK_OK(make_model(f, 2, replicas, &exec, &err), err);
    trm_exec_ranges(exec, &parameters, &gradients, &count);
    for (int64_t i = 0; i < count; i++) {
        parameters[i] = 1;
    }
    feed_samples(exec, 0, 2);
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    memset(gradients, 0, (size_t)count * sizeof *gradients);
    CHECK_OK(trm_exec_update(exec, 0.5, &err), err);
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind != TRM_VARIABLE_PARAMETER) {
            continue;
        }
        float *value = malloc((size_t)trm_shape_count(&v.shape) * sizeof *value);
        assert_non_null(value);
        trm_exec_read(exec, i, value);
        bool norm = is_batch_norm(exec, v.name);
        CHECK_CLOSE(value[0], norm ? 1 : 1 - 0.5 * 2e-4 * times, 2e-7);
        decayed += !norm;
        left += norm;
        free(value);
    }
    assert_int_equal(decayed, 53 + 2); /* convolutions; the last layer's weights and bias */
    assert_int_equal(left, 2 * 53);
    trm_exec_destroy(exec);
}

static void decay_is_added_once_and_not_to_batch_norm(void **state) {
    flags guide = small;
    guide.guide_l2 = true;
    check_decay(&small, 1, 1);
    check_decay(&small, 4, 1);
    check_decay(&guide, 4, 4);
}

/* Losses of parts are divided by the batch of all ranks, so that their sum is the mean. */
static void losses_of_parts_add_up_to_the_mean(void **state) {
    trm_error err;
    trm_exec *whole, *part;
    flags own = small;
    own.batch_size = 2;
    CHECK_OK(make_model(&own, 2, 1, &whole, &err), err);
    CHECK_OK(make_model(&small, 2, 4, &part, &err), err);
    double sum = 0, mean = 0;
    for (int64_t rank = 0; rank < 4; rank++) {
        feed_samples(whole, rank * 2, 2);
        feed_samples(part, rank * 2, 2);
        CHECK_OK(trm_exec_forward_backward(whole, &err), err);
        CHECK_OK(trm_exec_forward_backward(part, &err), err);
        mean += (double)trm_exec_loss(whole) / 4;
        sum += (double)trm_exec_loss(part);
    }
    CHECK_CLOSE(sum, mean, 1e-6);
    trm_exec_destroy(whole);
    trm_exec_destroy(part);
}

static void rates_are_tensorflows(void **state) {
    flags f = small;
    f.batch_size = 1024; /* four times 0.1 */
    const struct {
        int64_t step;
        double rate;
    } wanted[] = {{0, 0},       {1, 0.4 / 50}, {25, 0.2},     {49, 0.4 * 49 / 50},
                  {50, 0.4},    {299, 0.4},    {300, 0.04},   {599, 0.04},
                  {600, 0.004}, {799, 0.004},  {800, 0.0004}, {899, 0.0004}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        CHECK_CLOSE(learning_rate(&f, 10, wanted[i].step) * 1e3, wanted[i].rate * 1e3, 1e-12);
    }
    f.warmup_epochs = 0;
    CHECK_CLOSE(learning_rate(&f, 10, 0), 0.4, 1e-12);
}

static void synthetic_data_have_the_shape_of_images(void **state) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    flags f = small;
    f.use_synthetic_data = true;
    CHECK_OK(input_fn(&f, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, GLOBAL, true, &err), err);
    assert_int_equal(trm_dataset_epoch_batches(data), 100);
    CHECK_OK(next(data, &batch, &err), err);
    const trm_shape shape = trm_shape_of(GLOBAL, 3, 32, 32);
    assert_true(trm_shape_equal(&field(batch, "image")->shape, &shape));
    for (int i = 0; i < GLOBAL; i++) {
        int32_t label = ((const int32_t *)field(batch, "label")->data)[i];
        assert_true(label >= 0 && label < 10);
    }
    trm_dataset_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decay_is_added_once_and_not_to_batch_norm),
        cmocka_unit_test(losses_of_parts_add_up_to_the_mean),
        cmocka_unit_test(rates_are_tensorflows),
        cmocka_unit_test(synthetic_data_have_the_shape_of_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
