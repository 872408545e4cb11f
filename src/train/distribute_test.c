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

/* Rows to the ranks: together the batches of one process; a count that does not come out even wraps round. */
static void check_arrays(rank_context *context, trm_distribute *d) {
    trm_error err;
    int n = context->size, r = context->rank;
    for (int64_t total = 1; total <= 25; total++) {
        float rows[25][2];
        int64_t labels[25], samples = total, batch = 2 * n;
        for (int i = 0; i < total; i++) {
            rows[i][0] = (float)i, rows[i][1] = (float)-i, labels[i] = 100 + i;
        }
        const trm_tensor arrays[] = {TRM_FLOATS(rows, 2 * total), vector(labels, TRM_INT64, total)};
        EXPECT_OK(trm_distribute_shard_arrays(d, arrays, 2, &samples, &batch, &err), err);
        EXPECT(batch == 2 && samples == (total + n - 1) / n, "%d rows, %d", (int)samples, (int)batch);
        for (int64_t i = 0; i < samples; i++) {
            int64_t from = (r + n * i) % total;
            EXPECT(rows[i][0] == (float)from && rows[i][1] == (float)-from && labels[i] == 100 + from,
                   "row %d of %d is %g", (int)i, (int)total, (double)rows[i][0]);
        }
    }
    float odd[5];
    int64_t samples = 2, batch = n;
    EXPECT(trm_distribute_shard_arrays(d, &TRM_FLOATS(odd, 5), 1, &samples, &batch, &err) == TRM_INVALID &&
               strstr(err.message, "array 0 has 5 elements") != NULL && samples == 2 && batch == n,
           "5 elements in 2 rows");
    samples = 5, batch = n + 1;
    EXPECT(n == 1 || trm_distribute_shard_arrays(d, &TRM_FLOATS(odd, 5), 1, &samples, &batch, &err) == TRM_INVALID,
           "batch of %d", n + 1);
}

static void rank_main(rank_context *context, trm_comm *comm) {
    trm_distribute *d;
    trm_error err;
    EXPECT_OK(trm_distribute_over(comm, &d, &err), err);
    EXPECT(trm_distribute_rank(d) == context->rank && trm_distribute_size(d) == context->size, "who");
    check_values(context, d);
    if (context->failure[0] == '\0') {
        check_data(context, d);
        check_arrays(context, d);
    }
    trm_distribute_end(d);
}

static void three_calls_on_many_ranks(void **state) {
    for (int n = 2; n <= 4; n++) {
        ranks_run_joined(n, n == 3, rank_main, NULL, "distribute");
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
    check_arrays(&context, d);
    assert_string_equal(context.failure, "");
    trm_distribute_end(d);
}

/* Of its own accord a single process has ranks, too: one. */
static void null_is_the_process(void **state) {
    trm_error err;
    float a[2] = {3, 4};
    int64_t samples = 2, batch = 7;
    CHECK_OK(trm_distribute_broadcast(NULL, &TRM_FLOATS(a, 2), 1, 0, &err), err);
    CHECK_OK(trm_distribute_all_reduce(NULL, &TRM_FLOATS(a, 2), 1, TRM_REDUCE_SUM, &err), err);
    CHECK_OK(trm_distribute_shard_arrays(NULL, &TRM_FLOATS(a, 2), 1, &samples, &batch, &err), err);
    assert_true(a[0] == 3 && a[1] == 4 && samples == 2 && batch == 7);
    assert_true(trm_distribute_rank(NULL) == 0 && trm_distribute_size(NULL) == 1);
    CHECK_FAILS(trm_distribute_broadcast(NULL, &TRM_FLOATS(a, 2), 1, 1, &err), TRM_INVALID, err, "rank 1 of 1");
}

/* A rank of a job, for tests/guide_001_test.sh: rank 1 ends by itself with this status, the others go on. */
static int a_rank_that_ends(int status) {
    float a = 1;
    TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(&a, 1), 1, 0, &err));
    if (trm_distribute_rank(NULL) == 1) {
        return status;
    }
    TRM_OR_EXIT(trm_distribute_all_reduce(NULL, &TRM_FLOATS(&a, 1), 1, TRM_REDUCE_SUM, &err));
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) {
        return a_rank_that_ends(atoi(argv[1]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_calls_on_many_ranks),
        cmocka_unit_test(one_device_changes_nothing),
        cmocka_unit_test(null_is_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
