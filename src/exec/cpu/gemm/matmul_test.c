/* SPDX-License-Identifier: Apache-2.0 */
/* LINEAR and MATMUL steps against the definition in double precision: all transposes, batches,
 * bias, float32 and bfloat16, random sizes; what the plan fuses into them.
 *
 * Sizes are chosen so that each kernel is met: many rows, few, one to four, and products of
 * bfloat16 pairs. In strict mode a product of several blocks of samples must be the sum of the
 * blocks' products, bit by bit. */
#define KERNEL_THREADS 2
#include "kernel_run.h"

#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/gemm/dense.h"

#include "base/format/half.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>

static uint32_t counter;

static int64_t draw_between(int64_t low, int64_t high) {
    uint32_t r = trmi_random_u32(3, TRMI_STREAM_TEST, counter++);
    return low + trmi_bounded(r, (uint32_t)(high - low + 1));
}

static void *draw_values(int64_t count, trm_dtype type) {
    float *v = trmi_alloc((size_t)count * 4);
    for (int64_t i = 0; i < count; i++) {
        float f = trmi_unit_float(trmi_random_u32(4, TRMI_STREAM_TEST, counter++)) * 2 - 1;
        if (type == TRM_BFLOAT16) {
            ((uint16_t *)v)[i] = trmi_float_to_bf16(f);
        } else {
            v[i] = f;
        }
    }
    return v;
}

static double value_at(const void *v, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? (double)trmi_bf16_to_float(((const uint16_t *)v)[i])
                                : (double)((const float *)v)[i];
}

typedef struct shape {
    int64_t batch, m, n, k;
    bool ta, tb, linear, bias, relu, mask;
    bool inputs_first; /* linear: weights are [k, n] */
    int64_t width;     /* of B where [begin, begin + n) of its columns are used; 0 = n */
    int64_t begin;
    trm_dtype type; /* 0 = float32 */
    bool whole_b;   /* B is float32, and the product rounds it to the type of A */
} shape;

static double relative_error(const shape *s, const void *a, const void *b, const void *bias,
                             const float *mask, const void *c) {
    double difference = 0, size = 0;
    int64_t width = s->width > 0 ? s->width : s->n;
    for (int64_t q = 0; q < s->batch; q++) {
        for (int64_t i = 0; i < s->m; i++) {
            for (int64_t j = 0; j < s->n; j++) {
                double sum = s->bias ? value_at(bias, TRM_FLOAT32, j) : 0;
                for (int64_t p = 0; p < s->k; p++) {
                    int64_t ia = q * s->m * s->k + (s->ta ? p * s->m + i : i * s->k + p);
                    int64_t ib = q * s->k * width +
                                 (s->tb ? (s->begin + j) * s->k + p : p * width + s->begin + j);
                    double right = value_at(b, s->whole_b ? TRM_FLOAT32 : s->type, ib);
                    sum += value_at(a, s->type, ia) * right;
                }
                sum = s->relu && sum < 0 ? 0 : sum;
                sum = s->mask && mask[i * s->n + j] <= 0 ? 0 : sum;
                double d = value_at(c, s->type, (q * s->m + i) * s->n + j) - sum;
                difference += d * d;
                size += sum * sum;
            }
        }
    }
    return sqrt(difference / size);
}

static void check_product(const shape *given) {
    shape filled = *given, *s = &filled;
    s->type = s->type == TRM_DTYPE_NONE ? TRM_FLOAT32 : s->type;
    int64_t width = s->width > 0 ? s->width : s->n;
    void *a = draw_values(s->batch * s->m * s->k, s->type),
         *b = draw_values(s->batch * s->k * width, s->whole_b ? TRM_FLOAT32 : s->type);
    float *mask = draw_values(s->m * s->n, TRM_FLOAT32);
    void *bias = draw_values(s->n, TRM_FLOAT32), *c = draw_values(s->batch * s->m * s->n, s->type);
    trm_shape sa = trm_shape_of(s->batch, s->ta ? s->k : s->m, s->ta ? s->m : s->k);
    trm_shape sb = trm_shape_of(s->batch, s->tb ? width : s->k, s->tb ? s->k : width);
    trm_shape sc = trm_shape_of(s->batch, s->m, s->n);
    if (s->linear) {
        sb = s->inputs_first ? trm_shape_of(s->k, s->n) : trm_shape_of(s->n, s->k);
    } else if (s->batch == 1) {
        sa = trm_shape_of(sa.dim[1], sa.dim[2]);
        sb = trm_shape_of(sb.dim[1], sb.dim[2]);
        sc = trm_shape_of(s->m, s->n);
    }
    void *data[] = {NULL, a, b, s->mask ? (void *)mask : bias, c};
    trm_shape shapes[] = {sa, sa, sb, s->mask ? sc : trm_shape_of(s->n), sc};
    /* Each tensor is an arena of its own. */
    static const trmi_arena_id arenas[] = {TRMI_ARENA_NONE, TRMI_ARENA_INPUT, TRMI_ARENA_PARAM,
                                           TRMI_ARENA_CONSTANT, TRMI_ARENA_ACTIVATION};
    trmi_buffer buffers[5] = {{0}};
    for (int i = 1; i < 5; i++) {
        bool whole = i == 3 || (i == 2 && s->whole_b);
        buffers[i] = (trmi_buffer){
            .dtype = whole ? TRM_FLOAT32 : s->type, .shape = shapes[i], .arena = arenas[i]};
    }
    static const int32_t inputs[] = {1, 2, 3}, output = 4;
    trmi_attrs attrs = {.matmul = {.transpose_a = s->ta,
                                   .transpose_b = s->tb,
                                   .relu = s->relu,
                                   .inputs_first = s->inputs_first,
                                   .begin = s->begin,
                                   .columns = s->width > 0 ? s->n : 0}};
    trmi_step step = {.kind = TRMI_STEP_OP,
                      .op_kind = s->linear ? TRMI_OP_LINEAR : TRMI_OP_MATMUL,
                      .name = "product",
                      .attrs = &attrs,
                      .inputs_count = s->bias || s->mask ? 3 : 2,
                      .outputs_count = 1,
                      .inputs = inputs,
                      .outputs = &output};
    trm_program program = {
        .steps = &step, .steps_count = 1, .buffers = buffers, .buffers_count = 5};
    step.scratch_bytes = backend->target.scratch(backend->target.context, &program, &step);
    trmi_kernel kernel = {.program = &program, .step = &step};
    trmi_kernel_env env = {.threads = 2};
    for (int i = 1; i < 5; i++) {
        env.arena[arenas[i]] = data[i];
    }
    trm_error err;
    CHECK_OK(backend->bind(backend, &kernel, &err), err);
    env.arena[TRMI_ARENA_SCRATCH] = trmi_alloc((size_t)step.scratch_bytes);
    memset(env.arena[TRMI_ARENA_SCRATCH], 0xFF, (size_t)step.scratch_bytes);
    CHECK_OK(kernel.run(&kernel, &env, &err), err);
    double error = relative_error(s, a, b, bias, mask, c);
    if (!(error <= (s->type == TRM_BFLOAT16 ? 5e-3 : 2e-6))) {
        fail_msg("batch %d m %d n %d k %d %d%d: relative error %g", (int)s->batch, (int)s->m,
                 (int)s->n, (int)s->k, s->ta, s->tb, error);
    }
    kernel.destroy(&kernel);
    trmi_free(env.arena[TRMI_ARENA_SCRATCH]);
    trmi_free(a);
    trmi_free(b);
    trmi_free(bias);
    trmi_free(mask);
    trmi_free(c);
}

static void products_are_the_definition(void **state) {
    for (int i = 0; i < 64; i++) {
        check_product(&(shape){.batch = draw_between(1, 3),
                               .m = draw_between(1, 70),
                               .n = draw_between(1, 70),
                               .k = draw_between(1, i % 8 == 0 ? 700 : 70),
                               .ta = i & 1,
                               .tb = i >> 1 & 1,
                               .type = i >> 2 & 1 ? TRM_BFLOAT16 : TRM_FLOAT32});
    }
}

static void linear_layers_are_the_definition(void **state) {
    for (int i = 0; i < 24; i++) {
        check_product(&(shape){.batch = 1,
                               .m = draw_between(1, 400),
                               .n = draw_between(1, 100),
                               .k = draw_between(1, 300),
                               .tb = true,
                               .linear = true,
                               .bias = i & 1,
                               .type = i >> 1 & 1 ? TRM_BFLOAT16 : TRM_FLOAT32});
    }
}

/* Weights that a product rounds as it packs them (trmi_target.rounds): odd sizes, several blocks of
 * k. */
static void rounded_weights(void **state) {
    for (int i = 0; i < 24; i++) {
        check_product(&(shape){.batch = 1,
                               .m = draw_between(5, i % 3 == 0 ? 700 : 90),
                               .n = draw_between(1, 100),
                               .k = 2 * draw_between(1, i % 4 == 0 ? 400 : 60),
                               .tb = i & 1,
                               .linear = i & 1,
                               .bias = i >> 1 & i & 1,
                               .type = TRM_BFLOAT16,
                               .whole_b = true});
    }
}

/* The values that a kernel rounds, as a CAST rounds them. */
static void round_to_bf16(float *v, int64_t count, uint16_t *to) {
    for (int64_t i = 0; i < count; i++) {
        to[i] = trmi_float_to_bf16(v[i]);
        v[i] = trmi_bf16_to_float(to[i]);
    }
}

/* dense.c on pairs of bfloat16, beside the same product of float32 operands that are bfloat16
 * numbers: rows and weights, B and C of either type, odd depths, sums that are added, several
 * blocks of rows whose sums wait for the last block of k. */
static void pairs_are_products_of_floats(void **state) {
    if (trmi_dense_pairs() == NULL) {
        print_message("[  note  ] skipped: this CPU does not multiply pairs of bfloat16\n");
        skip();
    }
    for (int i = 0; i < 48; i++) {
        bool weights = i & 1, half_b = i >> 1 & 1, half_c = i >= 32 && !weights;
        trmi_dense_problem p = {.m = draw_between(1, i % 16 == 0 ? 2500 : 90),
                                .n = draw_between(1, 140),
                                .k = draw_between(1, i % 8 < 2 ? 1400 : 90),
                                .transpose_a = weights,
                                .transpose_b = !weights && (i >> 2 & 1),
                                .add = i < 32 && (i >> 3 & 1)};
        p.b_stride = p.transpose_b ? p.k : p.n;
        float *a = draw_values(p.m * p.k, TRM_FLOAT32), *b = draw_values(p.k * p.n, TRM_FLOAT32);
        float *c = draw_values(p.m * p.n, TRM_FLOAT32), *d = draw_values(p.m * p.n, TRM_FLOAT32);
        uint16_t *small_a = draw_values(p.m * p.k, TRM_BFLOAT16),
                 *small_b = draw_values(p.k * p.n, TRM_BFLOAT16);
        memcpy(d, c, (size_t)(p.m * p.n) * sizeof *c);
        round_to_bf16(a, p.m * p.k, small_a);
        round_to_bf16(b, p.k * p.n, small_b);
        trmi_dense_plan whole, half;
        int64_t bytes = trmi_dense_prepare(&p, 2, &whole);
        p.pairs = true;
        p.a_type = TRM_BFLOAT16;
        p.b_type = half_b ? TRM_BFLOAT16 : TRM_FLOAT32;
        p.c_type = half_c ? TRM_BFLOAT16 : TRM_FLOAT32;
        int64_t more = trmi_dense_prepare(&p, 2, &half);
        void *scratch = trmi_alloc((size_t)(bytes > more ? bytes : more) + 64);
        trmi_dense_run(&whole, a, b, NULL, NULL, c, scratch);
        memset(scratch, 0xFF, (size_t)more);
        trmi_dense_run(&half, small_a, half_b ? (const void *)small_b : b, NULL, NULL, d, scratch);
        for (int64_t j = 0; j < p.m * p.n; j++) {
            double got = half_c ? (double)trmi_bf16_to_float(((uint16_t *)(void *)d)[j]) : d[j];
            CHECK_CLOSE(got, c[j], half_c ? 5e-3 : 5e-5);
        }
        void *all[] = {a, b, c, d, small_a, small_b, scratch};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) {
            trmi_free(all[j]);
        }
    }
}

/* dense.c: A in blocks of k has the bits of a product for each block, added to C. */
static void blocks_are_sums_of_products(void **state) {
    enum { BLOCK = 64 };
    for (int i = 0; i < 16; i++) {
        bool pairs = i & 1 && trmi_dense_pairs() != NULL;
        int64_t each = i & 2 ? BLOCK : 8 * BLOCK;
        trmi_dense_problem p = {.m = draw_between(1, 90),
                                .n = draw_between(1, 140),
                                .k = draw_between(1, i & 4 ? 2000 : 80),
                                .a_block = each,
                                .pairs = pairs,
                                .a_type = pairs ? TRM_BFLOAT16 : TRM_FLOAT32};
        int64_t bytes = pairs ? 2 : 4, blocks = (p.k + each - 1) / each;
        p.b_stride = p.n;
        p.a_step = each * p.m + draw_between(0, 9);
        char *a = draw_values(blocks * p.a_step, p.a_type);
        float *b = draw_values(p.k * p.n, TRM_FLOAT32), *c = draw_values(p.m * p.n, TRM_FLOAT32),
              *d = draw_values(p.m * p.n, TRM_FLOAT32);
        trmi_dense_plan plan;
        void *scratch = trmi_alloc((size_t)trmi_dense_prepare(&p, 2, &plan) + 64);
        trmi_dense_run(&plan, a, b, NULL, NULL, c, scratch);
        trmi_free(scratch);
        for (int64_t j = 0; j < blocks; j++) {
            trmi_dense_problem part = p;
            part.k = p.k - j * each < each ? p.k - j * each : each;
            part.a_block = part.a_step = 0;
            part.add = j > 0;
            scratch = trmi_alloc((size_t)trmi_dense_prepare(&part, 2, &plan) + 64);
            trmi_dense_run(&plan, a + j * p.a_step * bytes, b + j * each * p.n, NULL, NULL, d,
                           scratch);
            trmi_free(scratch);
        }
        assert_memory_equal(c, d, (size_t)(p.m * p.n) * sizeof *c);
        trmi_free(a), trmi_free(b), trmi_free(c), trmi_free(d);
    }
}

/* dense.c: however C is cut for the threads, by rows or by columns, each number has the same
 * bits. */
static void bits_do_not_depend_on_threads(void **state) {
    static const int threads[] = {2, 3, 5, 8};
    for (int i = 0; i < 32; i++) {
        bool pairs = i & 1 && trmi_dense_pairs() != NULL, weights = i >> 1 & 1;
        trm_dtype small = pairs ? TRM_BFLOAT16 : TRM_FLOAT32;
        trmi_dense_problem p = {.m = draw_between(1, i % 8 < 2 ? 20 : 300),
                                .n = draw_between(1, i % 16 < 4 ? 1500 : 200),
                                .k = draw_between(1, 700),
                                .transpose_a = weights,
                                .transpose_b = !weights && (i >> 2 & 1),
                                .pairs = pairs,
                                .a_type = small,
                                .b_type = weights ? small : TRM_FLOAT32};
        p.b_stride = p.transpose_b ? p.k : p.n;
        void *a = draw_values(p.m * p.k, small), *b = draw_values(p.k * p.n, p.b_type);
        float *c = draw_values(p.m * p.n, TRM_FLOAT32), *d = draw_values(p.m * p.n, TRM_FLOAT32);
        trmi_dense_plan plan;
        void *scratch = trmi_alloc((size_t)trmi_dense_prepare(&p, 1, &plan) + 64);
        trmi_dense_run(&plan, a, b, NULL, NULL, c, scratch);
        trmi_free(scratch);
        for (size_t j = 0; j < sizeof threads / sizeof threads[0]; j++) {
            scratch = trmi_alloc((size_t)trmi_dense_prepare(&p, threads[j], &plan) + 64);
            memset(d, 0xFF, (size_t)(p.m * p.n) * sizeof *d);
            trmi_dense_run(&plan, a, b, NULL, NULL, d, scratch);
            assert_memory_equal(c, d, (size_t)(p.m * p.n) * sizeof *c);
            trmi_free(scratch);
        }
        trmi_free(a), trmi_free(b), trmi_free(c), trmi_free(d);
    }
}

/* dense.c: many rows, or a large batch summed over (of bfloat16 by conv_gradw.c); splits, blocks
 * and chunks of k; edges of panels. */
static void many_rows_are_the_definition(void **state) {
    for (int i = 0; i < 16; i++) {
        check_product(&(shape){.batch = 1,
                               .m = draw_between(256, 700),
                               .n = draw_between(1, 140),
                               .k = draw_between(1, i % 8 == 0 ? 1700 : 90),
                               .tb = true,
                               .linear = true,
                               .bias = i & 1,
                               .relu = i >> 1 & 1});
        int64_t n = draw_between(1, 70), width = n + draw_between(0, 40);
        check_product(&(shape){.batch = 1,
                               .m = draw_between(1, 400),
                               .n = n,
                               .k = draw_between(1, 300),
                               .tb = i & 1,
                               .mask = i >> 1 & 1,
                               .width = i >> 2 & 1 ? width : 0,
                               .begin = i >> 2 & 1 ? draw_between(0, width - n) : 0});
        check_product(&(shape){.batch = 1,
                               .m = draw_between(1, i % 8 == 1 ? 1200 : 60),
                               .n = draw_between(1, i % 8 == 3 ? 1100 : 60),
                               .k = draw_between(256, i % 8 == 5 ? 5000 : 1300),
                               .ta = true,
                               .type = i >> 1 & 1 ? TRM_BFLOAT16 : TRM_FLOAT32});
    }
    /* several groups of panels, several blocks of k, B as rows and as columns */
    for (int i = 0; i < 2; i++) {
        check_product(&(shape){.batch = 1,
                               .m = draw_between(256, 280),
                               .n = draw_between(2100, 2200),
                               .k = draw_between(257, 600),
                               .tb = i == 0,
                               .linear = true,
                               .inputs_first = i == 1,
                               .bias = true});
    }
}

/* dense.c: few rows by much, as it lies; a mask; edges of vectors and of strips; not so wide that
 * threads share it. */
static void few_rows_are_the_definition(void **state) {
    for (int i = 0; i < 24; i++) {
        int64_t n = i % 6 == 0 ? draw_between(64, 100) : draw_between(100, 700);
        check_product(&(shape){.batch = 1,
                               .m = draw_between(8, 32),
                               .n = n,
                               .k = (1 << 18) / n + draw_between(1, 200),
                               .mask = i & 1});
    }
}

/* narrow.c: one to four rows, weights of both forms, sizes that are no multiples of anything. */
static void one_to_four_rows_are_the_definition(void **state) {
    for (int i = 0; i < 48; i++) {
        check_product(&(shape){.batch = 1,
                               .m = draw_between(1, 4),
                               .n = draw_between(128, 500),
                               .k = draw_between(i % 6 == 0 ? 1 : 128, 500),
                               .tb = i & 1,
                               .inputs_first = !(i & 1),
                               .linear = true,
                               .bias = i >> 1 & 1,
                               .type = i >> 2 & 1 ? TRM_BFLOAT16 : TRM_FLOAT32});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_the_definition),
                                       cmocka_unit_test(linear_layers_are_the_definition),
                                       cmocka_unit_test(many_rows_are_the_definition),
                                       cmocka_unit_test(few_rows_are_the_definition),
                                       cmocka_unit_test(one_to_four_rows_are_the_definition),
                                       cmocka_unit_test(rounded_weights),
                                       cmocka_unit_test(blocks_are_sums_of_products),
                                       cmocka_unit_test(bits_do_not_depend_on_threads),
                                       cmocka_unit_test(pairs_are_products_of_floats)};
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
