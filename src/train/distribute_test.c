/* SPDX-License-Identifier: Apache-2.0 */
/* The three calls of guide 001 (trm_distribute_all_reduce, trm_distribute_broadcast,
 * trm_distribute_shard_and_rebatch) on plain arrays and a dataset.
 *
 * Ranks are threads or processes (tests/ranks.h). Values are small whole numbers, so that sums
 * are exact. Lists that differ between ranks must be refused on all of them. */
#include "check.h"

#include "trireme/dist.h"

#include "base/format/half.h"
#include "ranks.h"

enum { LARGE = 3 << 20 };

static trm_tensor vector_of(void *data, trm_dtype dtype, int64_t count) {
    return (trm_tensor){.data = data, .dtype = dtype, .shape = trm_shape_of(count)};
}

static void check_values(rank_context *context, trm_ranks *d) {
    trm_error err;
    int n = context->size, r = context->rank;
    float a[3] = {(float)r, 1, (float)-r}, b[2] = {(float)(r + 1), 2};
    int32_t c[2] = {r, 7};
    float *large = malloc(LARGE * sizeof *large);
    for (int i = 0; i < LARGE; i++) {
        large[i] = (float)(r + i % 5);
    }
    const trm_tensor all[] = {vector_of(a, TRM_FLOAT32, 3), vector_of(NULL, TRM_FLOAT32, 9),
                              vector_of(b, TRM_FLOAT32, 2), vector_of(c, TRM_INT32, 2),
                              vector_of(large, TRM_FLOAT32, LARGE)};
    EXPECT_OK(trm_distribute_all_reduce(d, all, 5, TRM_REDUCTION_SUM, &err), err);
    float ranks = (float)(n * (n - 1) / 2);
    EXPECT(a[0] == ranks && a[1] == (float)n && a[2] == -ranks, "%g %g", (double)a[0],
           (double)a[1]);
    EXPECT(b[0] == ranks + (float)n && b[1] == 2 * (float)n, "%g", (double)b[0]);
    EXPECT(c[0] == n * (n - 1) / 2 && c[1] == 7 * n, "%d", c[0]);
    for (int i = 0; i < LARGE; i++) {
        EXPECT(large[i] == ranks + (float)(n * (i % 5)), "%d: %g", i, (double)large[i]);
    }
    free(large);
    a[0] = (float)r;
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCTION_MAX, &err), err);
    EXPECT(a[0] == (float)(n - 1), "%g", (double)a[0]);
    a[0] = (float)r;
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCTION_MEAN, &err), err);
    EXPECT(a[0] == ranks / (float)n, "%g", (double)a[0]);
    a[0] = (float)(r + 5);
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCTION_MIN, &err), err);
    EXPECT(a[0] == 5, "%g", (double)a[0]);
    a[0] = 2;
    EXPECT_OK(trm_distribute_all_reduce(d, all, 1, TRM_REDUCTION_PROD, &err), err);
    EXPECT(a[0] == (float)(1 << n), "%g", (double)a[0]);
    a[0] = (float)r, c[1] = r;
    EXPECT_OK(trm_distribute_broadcast(d, all, 4, n - 1, &err), err);
    EXPECT(a[0] == (float)(n - 1) && c[1] == n - 1, "%g %d", (double)a[0], c[1]);
    EXPECT(trm_distribute_broadcast(d, all, 4, n, &err) == TRM_INVALID, "root");
    EXPECT(trm_distribute_all_reduce(d, all, 4, (trm_reduction)9, &err) == TRM_INVALID,
           "reduction");
}

/* Neighbours of several types with gaps between them, by every reduction. */
static void check_types(rank_context *context, trm_ranks *d) {
    trm_error err;
    static const trm_reduction kinds[] = {TRM_REDUCTION_SUM, TRM_REDUCTION_MEAN, TRM_REDUCTION_MAX,
                                          TRM_REDUCTION_MIN, TRM_REDUCTION_PROD};
    int n = context->size, r = context->rank, product = 1;
    for (int i = 2; i <= n; i++) {
        product *= i;
    }
    int sum = n * (n + 1) / 2; /* of 1 to n */
    const int expected[] = {sum, sum / n, n, 1, product};
    for (int k = 0; k < 5; k++) {
        double f64[2] = {r + 1, r + 1};
        int64_t i64 = r + 1;
        int8_t i8[3] = {(int8_t)(r + 1), 1, (int8_t)(r + 1)};
        uint8_t u8 = (uint8_t)(r + 1);
        uint16_t bf16 = trmi_float_to_bf16((float)(r + 1)), f16 = trmi_float_to_f16((float)(r + 1));
        float f32 = (float)(r + 1);
        const trm_tensor all[] = {
            vector_of(f64, TRM_FLOAT64, 2),  vector_of(&i64, TRM_INT64, 1),
            vector_of(NULL, TRM_INT8, 4),    vector_of(i8, TRM_INT8, 3),
            vector_of(&u8, TRM_UINT8, 1),    vector_of(&bf16, TRM_BFLOAT16, 1),
            vector_of(&f16, TRM_FLOAT16, 1), vector_of(NULL, TRM_FLOAT32, 11),
            vector_of(&f32, TRM_FLOAT32, 1)};
        EXPECT_OK(trm_distribute_all_reduce(d, all, 9, kinds[k], &err), err);
        float wanted = kinds[k] == TRM_REDUCTION_MEAN ? (float)sum / (float)n : (float)expected[k];
        EXPECT(f64[1] == (double)sum / n ||
                   (kinds[k] != TRM_REDUCTION_MEAN && f64[1] == (double)wanted),
               "%d: %g", k, f64[1]);
        EXPECT(i64 == expected[k] && i8[2] == expected[k] && u8 == expected[k], "%d: %d %d %d", k,
               (int)i64, i8[2], u8);
        EXPECT(trmi_bf16_to_float(bf16) == wanted && trmi_f16_to_float(f16) == wanted &&
                   f32 == wanted,
               "%d: %g", k, (double)f32);
    }
}

static void check_data(rank_context *context, trm_ranks *d) {
    trm_error err;
    trm_dataset *data;
    int64_t batch = 0;
    const trm_batch *first;
    trm_batch_field field;
    EXPECT(context->size == 1 || trm_distribute_shard_and_rebatch(d, NULL, 12 * context->size + 1,
                                                                  &batch, &err) == TRM_INVALID,
           "%d does not divide", 12 * context->size + 1);
    EXPECT_OK(trm_dataset_random(
                  &(trm_random_options){
                      .count = 50, .channels = 1, .height = 2, .width = 2, .classes = 3},
                  &data, &err),
              err);
    EXPECT_OK(trm_distribute_shard_and_rebatch(d, data, 12, &batch, &err), err);
    EXPECT(batch == 12 / context->size, "%d", (int)batch);
    EXPECT_OK(trm_dataset_next(data, &first, &err), err);
    EXPECT(trm_dataset_field(data, 0, &field) && field.tensor.shape.dim[0] == batch, "shape");
    EXPECT(first->samples == batch, "samples");
    trm_dataset_destroy(data);
}

/* Rows to the ranks: together the batches of one process; a count that does not come out even wraps
 * round. */
static void check_arrays(rank_context *context, trm_ranks *d) {
    trm_error err;
    int n = context->size, r = context->rank;
    for (int64_t total = 1; total <= 25; total++) {
        float rows[25][2];
        int64_t labels[25], samples = total, batch = 2 * n;
        for (int i = 0; i < total; i++) {
            rows[i][0] = (float)i, rows[i][1] = (float)-i, labels[i] = 100 + i;
        }
        const trm_tensor arrays[] = {TRM_FLOATS(rows, 2 * total),
                                     vector_of(labels, TRM_INT64, total)};
        EXPECT_OK(trm_distribute_shard_arrays(d, arrays, 2, &samples, &batch, &err), err);
        EXPECT(batch == 2 && samples == (total + n - 1) / n, "%d rows, %d", (int)samples,
               (int)batch);
        for (int64_t i = 0; i < samples; i++) {
            int64_t from = (r + n * i) % total;
            EXPECT(rows[i][0] == (float)from && rows[i][1] == (float)-from &&
                       labels[i] == 100 + from,
                   "row %d of %d is %g", (int)i, (int)total, (double)rows[i][0]);
        }
    }
    float odd[5];
    int64_t samples = 2, batch = n;
    EXPECT(trm_distribute_shard_arrays(d, &TRM_FLOATS(odd, 5), 1, &samples, &batch, &err) ==
                   TRM_INVALID &&
               strstr(err.message, "array 0 has 5 elements") != NULL && samples == 2 && batch == n,
           "5 elements in 2 rows");
    samples = 5, batch = n + 1;
    EXPECT(n == 1 || trm_distribute_shard_arrays(d, &TRM_FLOATS(odd, 5), 1, &samples, &batch,
                                                 &err) == TRM_INVALID,
           "batch of %d", n + 1);
}

static void rank_main(rank_context *context, trm_comm *comm) {
    trm_ranks *d;
    trm_error err;
    EXPECT_OK(trm_distribute_over(comm, &d, &err), err);
    EXPECT(trm_distribute_rank(d) == context->rank && trm_distribute_size(d) == context->size,
           "who");
    check_values(context, d);
    if (context->failure[0] == '\0') {
        check_types(context, d);
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

/* Rank 1's list is shorter by an element, or has no gradient where the others have one: all are
 * told, nothing is summed. */
static void other_list(rank_context *context, trm_comm *comm) {
    trm_ranks *d;
    trm_error err;
    float a[3] = {1, 1, 1}, b[2] = {1, 1};
    bool short_one = context->arg != NULL, other = context->rank == 1;
    EXPECT_OK(trm_distribute_over(comm, &d, &err), err);
    const trm_tensor all[] = {
        vector_of(other && !short_one ? NULL : a, TRM_FLOAT32, other && short_one ? 2 : 3),
        vector_of(b, TRM_FLOAT32, 2)};
    EXPECT(trm_distribute_all_reduce(d, all, 2, TRM_REDUCTION_SUM, &err) == TRM_INVALID,
           "lists differ");
    EXPECT(strstr(err.message, "ranks disagree") != NULL &&
               strstr(err.message, "of 5 float32") != NULL &&
               strstr(err.message, short_one ? "of 4 float32" : "of 2 float32") != NULL,
           "%s", err.message);
    EXPECT(a[0] == 1 && b[1] == 1, "something was summed: %g %g", (double)a[0], (double)b[1]);
    trm_distribute_end(d);
}

static void lists_that_differ_are_refused(void **state) {
    int yes = 1;
    ranks_run_joined(3, false, other_list, NULL, "differ");
    ranks_run_joined(3, false, other_list, &yes, "differ");
}

static void one_device_changes_nothing(void **state) {
    trm_error err;
    trm_ranks *d;
    rank_context context = {.size = 1};
    float a[2] = {3, 4};
    const trm_tensor values = vector_of(a, TRM_FLOAT32, 2);
    CHECK_OK(trm_distribute_over(NULL, &d, &err), err);
    assert_int_equal(trm_distribute_size(d), 1);
    CHECK_OK(trm_distribute_broadcast(d, &values, 1, 0, &err), err);
    CHECK_OK(trm_distribute_all_reduce(d, &values, 1, TRM_REDUCTION_SUM, &err), err);
    assert_true(a[0] == 3 && a[1] == 4);
    check_data(&context, d);
    check_arrays(&context, d);
    assert_string_equal(context.failure, "");
    trm_distribute_end(d);
}

/* A single process has ranks without joining any: one. */
static void null_is_the_process(void **state) {
    trm_error err;
    float a[2] = {3, 4};
    int64_t samples = 2, batch = 7;
    CHECK_OK(trm_distribute_broadcast(NULL, &TRM_FLOATS(a, 2), 1, 0, &err), err);
    CHECK_OK(trm_distribute_all_reduce(NULL, &TRM_FLOATS(a, 2), 1, TRM_REDUCTION_SUM, &err), err);
    CHECK_OK(trm_distribute_shard_arrays(NULL, &TRM_FLOATS(a, 2), 1, &samples, &batch, &err), err);
    assert_true(a[0] == 3 && a[1] == 4 && samples == 2 && batch == 7);
    assert_true(trm_distribute_rank(NULL) == 0 && trm_distribute_size(NULL) == 1);
    CHECK_FAILS(trm_distribute_broadcast(NULL, &TRM_FLOATS(a, 2), 1, 1, &err), TRM_INVALID, err,
                "rank 1 of 1");
}

/* A rank of a job, for tests/guide_001_test.sh: rank 1 ends by itself with this status, the others
 * go on. */
static int a_rank_that_ends(int status) {
    float a = 1;
    TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(&a, 1), 1, 0, &err));
    if (trm_distribute_rank(NULL) == 1) {
        return status;
    }
    TRM_OR_EXIT(trm_distribute_all_reduce(NULL, &TRM_FLOATS(&a, 1), 1, TRM_REDUCTION_SUM, &err));
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) {
        return a_rank_that_ends(atoi(argv[1]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_calls_on_many_ranks),
        cmocka_unit_test(lists_that_differ_are_refused),
        cmocka_unit_test(one_device_changes_nothing),
        cmocka_unit_test(null_is_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
