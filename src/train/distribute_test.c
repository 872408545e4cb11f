/* The three calls of guide 001, on plain arrays and a dataset. */
#include "check.h"

#include "trireme/distribute.h"

#include "comm/ranks.h"

enum { LARGE = 3 << 20 };

static trm_tensor vector(void *data, trm_dtype dtype, int64_t count) {
    return (trm_tensor){.data = data, .dtype = dtype, .shape = trm_shape_of(count)};
}

static void check_values(rank_context *context, trm_distribute *d) {
    trm_error err;
    int n = context->size, r = context->rank;
    float a[3] = {(float)r, 1, (float)-r}, b[2] = {(float)(r + 1), 2};
    int32_t c[2] = {r, 7};
    float *large = malloc(LARGE * sizeof *large);
    for (int i = 0; i < LARGE; i++) {
        large[i] = (float)(r + i % 5);
    }
    const trm_tensor all[] = {vector(a, TRM_FLOAT32, 3), vector(NULL, TRM_FLOAT32, 9), vector(b, TRM_FLOAT32, 2),
                              vector(c, TRM_INT32, 2), vector(large, TRM_FLOAT32, LARGE)};
    EXPECT_OK(trm_distribute_all_reduce(d, all, 5, TRM_REDUCE_SUM, &err), err);
    float ranks = (float)(n * (n - 1) / 2);
    EXPECT(a[0] == ranks && a[1] == (float)n && a[2] == -ranks, "%g %g", (double)a[0], (double)a[1]);
    EXPECT(b[0] == ranks + (float)n && b[1] == 2 * (float)n, "%g", (double)b[0]);
    EXPECT(c[0] == n * (n - 1) / 2 && c[1] == 7 * n, "%d", c[0]);
    for (int i = 0; i < LARGE; i++) {
        EXPECT(large[i] == ranks + (float)(n * (i % 5)), "%d: %g", i, (double)large[i]);
    }
    free(large);
    a[0] = (float)r;
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCE_MAX, &err), err);
    EXPECT(a[0] == (float)(n - 1), "%g", (double)a[0]);
    a[0] = (float)r;
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCE_MEAN, &err), err);
    EXPECT(a[0] == ranks / (float)n, "%g", (double)a[0]);
    a[0] = (float)(r + 5);
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCE_MIN, &err), err);
    EXPECT(a[0] == 5, "%g", (double)a[0]);
    a[0] = 2;
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCE_PROD, &err), err);
    EXPECT(a[0] == (float)(1 << n), "%g", (double)a[0]);
    a[0] = (float)r, c[1] = r;
    EXPECT_OK(trm_distribute_broadcast(d, all, 4, n - 1, &err), err);
    EXPECT(a[0] == (float)(n - 1) && c[1] == n - 1, "%g %d", (double)a[0], c[1]);
    EXPECT(trm_distribute_broadcast(d, all, 4, n, &err) == TRM_INVALID, "root");
    EXPECT(trm_distribute_all_reduce(d, all, 4, (trm_reduce)9, &err) == TRM_INVALID, "reduction");
}

static void check_data(rank_context *context, trm_distribute *d) {
    trm_error err;
    trm_dataset *data;
    int64_t batch = 0;
    const trm_batch *first;
    trm_batch_field field;
    EXPECT(context->size == 1 ||
               trm_distribute_shard_and_rebatch(d, NULL, 12 * context->size + 1, &batch, &err) == TRM_INVALID,
           "%d does not divide", 12 * context->size + 1);
    EXPECT_OK(trm_dataset_random(&(trm_random_options){.count = 50, .channels = 1, .height = 2, .width = 2,
                                                       .classes = 3}, &data, &err), err);
    EXPECT_OK(trm_distribute_shard_and_rebatch(d, data, 12, &batch, &err), err);
    EXPECT(batch == 12 / context->size, "%d", (int)batch);
    EXPECT_OK(trm_dataset_next(data, &first, &err), err);
    EXPECT(trm_dataset_field(data, 0, &field) && field.tensor.shape.dim[0] == batch, "shape");
    EXPECT(first->samples == batch, "samples");
    trm_dataset_destroy(data);
}

static void rank_main(rank_context *context) {
    trmi_bootstrap *bootstrap;
    trm_comm *comm;
    trm_distribute *d;
    trm_error err;
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &bootstrap, &err), err);
    EXPECT_OK(trm_comm_create(bootstrap, NULL, &comm, &err), err);
    EXPECT_OK(trm_distribute_over(comm, &d, &err), err);
    EXPECT(trm_distribute_rank(d) == context->rank && trm_distribute_size(d) == context->size, "who");
    check_values(context, d);
    if (context->failure[0] == '\0') {
        check_data(context, d);
    }
    trm_distribute_end(d);
    trm_comm_destroy(comm);
    bootstrap->table->destroy(bootstrap);
}

static void three_calls_on_many_ranks(void **state) {
    for (int n = 2; n <= 4; n++) {
        ranks_run(n, 0, n == 3, rank_main, NULL, "distribute");
    }
}

static void one_device_changes_nothing(void **state) {
    trm_error err;
    trm_distribute *d;
    rank_context context = {.size = 1};
    float a[2] = {3, 4};
    const trm_tensor values = vector(a, TRM_FLOAT32, 2);
    CHECK_OK(trm_distribute_over(NULL, &d, &err), err);
    assert_int_equal(trm_distribute_size(d), 1);
    CHECK_OK(trm_distribute_broadcast(d, &values, 1, 0, &err), err);
    CHECK_OK(trm_distribute_all_reduce(d, &values, 1, TRM_REDUCE_SUM, &err), err);
    assert_true(a[0] == 3 && a[1] == 4);
    check_data(&context, d);
    assert_string_equal(context.failure, "");
    trm_distribute_end(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_calls_on_many_ranks),
        cmocka_unit_test(one_device_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
