/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on pairs of bfloat16 against its definition in double: results differ by no more than
 * weights that are rounded to bfloat16 explain. cpu/ops/memory_test.c has the other cases. */
#include "kernel_run.h"

#include "exec/attention.h"
#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/gemm/dense.h"

#include "base/rng.h"

#include <math.h>

/* Buffers: the operands and results of both operators. */
enum { Q = 1, K, V, MASK, Y, LSE, DY, DQ, DK, DV, BUFFERS };

/* A rounded number is so much of itself off at most, and a float32 sum so much of its terms. */
static const double ROUNDED = 1.0 / 256, SUMMED = 2e-6;

/* One size, with its operands, results and memory as a program would have them. */
typedef struct bench {
    int64_t batch, queries, keys, heads, kv_heads, width;
    bool causal, masked;
    trmi_buffer buffers[BUFFERS];
    char *memory;
    trmi_attrs attrs;
    trm_program program;
} bench;

static void *data_of(const bench *b, int32_t buffer) {
    return b->memory + b->buffers[buffer].offset;
}

/* Returns number d of a row of a tensor of bfloat16. */
static double read_number(const bench *b, int32_t buffer, int64_t row, int64_t d) {
    return half_number(data_of(b, buffer), row * b->width + d);
}

/* Returns the rows of a query and of a key. */
static int64_t query_row(const bench *b, int64_t n, int64_t t, int64_t h) {
    return (n * b->queries + t) * b->heads + h;
}
static int64_t key_row(const bench *b, int64_t n, int64_t s, int64_t h) {
    return (n * b->keys + s) * b->kv_heads + h / (b->heads / b->kv_heads);
}

static void lay_out(bench *b) {
    const trm_shape q = trm_shape_of(b->batch, b->queries, b->heads, b->width),
                    k = trm_shape_of(b->batch, b->keys, b->kv_heads, b->width);
    int64_t bytes = 0;
    for (int32_t i = 1; i < BUFFERS; i++) {
        bool keys = i == K || i == V || i == DK || i == DV;
        trm_shape shape = i == MASK  ? trm_shape_of(b->batch, b->keys)
                          : i == LSE ? trm_shape_of(b->batch, b->heads, b->queries)
                          : keys     ? k
                                     : q;
        trm_dtype dtype = i == MASK ? TRM_INT32 : i == LSE ? TRM_FLOAT32 : TRM_BFLOAT16;
        bytes = kernel_place(&b->buffers[i], dtype, &shape, bytes);
    }
    b->memory = kernel_memory(bytes);
    b->attrs.attention.causal = b->causal;
    b->attrs.attention.scale = 1 / sqrt((double)b->width);
    b->program.buffers = b->buffers;
    b->program.buffers_count = BUFFERS;
}

static void fill_inputs(const bench *b) {
    static const int32_t drawn_ones[] = {Q, K, V, DY};
    uint64_t drawn = 0;
    for (size_t n = 0; n < sizeof drawn_ones / sizeof drawn_ones[0]; n++) {
        int32_t i = drawn_ones[n];
        for (int64_t at = 0; at < trm_shape_count(&b->buffers[i].shape); at++) {
            float v = 4 * trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, drawn++)) - 2;
            ((uint16_t *)data_of(b, i))[at] = trmi_float_to_bf16(v);
        }
    }
    for (int64_t i = 0; i < b->batch * b->keys; i++) {
        ((int32_t *)data_of(b, MASK))[i] = trmi_random_u32(1, TRMI_STREAM_TEST, drawn++) % 3 != 0;
    }
}

static void run_operator(bench *b, trmi_op_kind kind, const int32_t *inputs, int32_t inputs_count,
                         const int32_t *outputs, int32_t outputs_count) {
    trm_error err;
    trmi_step step = {.kind = TRMI_STEP_OP,
                      .op_kind = kind,
                      .name = "attention",
                      .attrs = &b->attrs,
                      .inputs = inputs,
                      .outputs = outputs,
                      .inputs_count = inputs_count,
                      .outputs_count = outputs_count};
    CHECK_OK(kernel_run(&b->program, &step, b->memory, (trmi_kernel_env){.threads = KERNEL_THREADS},
                        &err),
             err);
}

static void run_both(bench *b) {
    int32_t mask = b->masked ? MASK : 0;
    const int32_t forward[] = {Q, K, V, mask}, made[] = {Y, LSE};
    const int32_t backward[] = {DY, Q, K, V, mask, Y, LSE}, gradients[] = {DQ, DK, DV};
    run_operator(b, TRMI_OP_ATTENTION, forward, 4, made, 2);
    run_operator(b, TRMI_OP_ATTENTION_GRAD, backward, 7, gradients, 3);
}

/* A sum, and the most by which the kernel's may differ. */
typedef struct bounded {
    double sum, slack;
} bounded;

/* Adds a product whose first factor is `off` off at most, beside what all sums lose. */
static void add_product(bounded *to, double a, double off, double by) {
    to->sum += a * by;
    to->slack += (off + SUMMED * fabs(a)) * fabs(by);
}

static void check_row(const bench *b, int32_t buffer, int64_t row, const bounded *wanted,
                      double factor) {
    for (int64_t d = 0; d < b->width; d++) {
        double found = read_number(b, buffer, row, d), sum = wanted[d].sum * factor;
        double most = wanted[d].slack * factor + ROUNDED * fabs(sum) + 1e-9;
        if (!(fabs(found - sum) <= most)) {
            fail_msg("buffer %d, %ld queries, %ld keys, width %ld: row %ld, number %ld is %.9g, "
                     "expected %.9g within %.3g",
                     buffer, (long)b->queries, (long)b->keys, (long)b->width, (long)row, (long)d,
                     found, sum, most);
        }
    }
}

/* Returns the dot product of two rows; *size grows by the sum of the absolute terms. */
static double multiply_rows(const bench *b, int32_t x, int64_t x_row, int32_t y, int64_t y_row,
                            double *size) {
    double sum = 0;
    for (int64_t d = 0; d < b->width; d++) {
        double term = read_number(b, x, x_row, d) * read_number(b, y, y_row, d);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* Computes the scores of a query, -infinity where it does not read a key, and the most by which a
 * kernel's score is off. */
static double compute_scores(const bench *b, int64_t n, int64_t t, int64_t h, double *scores) {
    double most = 0;
    for (int64_t s = 0; s < b->keys; s++) {
        double size = 0, scale = b->attrs.attention.scale;
        bool hidden = (b->causal && s > t) ||
                      (b->masked && ((const int32_t *)data_of(b, MASK))[n * b->keys + s] == 0);
        scores[s] = hidden ? -INFINITY
                           : scale * multiply_rows(b, Q, query_row(b, n, t, h), K,
                                                   key_row(b, n, s, h), &size);
        most = fmax(most, SUMMED * (1 + scale * size + (hidden ? 0 : fabs(scores[s]))));
    }
    return most;
}

/* Checks the result of a query. Returns its log of the sum of exponentials. */
static double check_forward(const bench *b, int64_t n, int64_t t, int64_t h, const double *scores,
                            double off, bounded *y) {
    double most = -INFINITY, sum = 0;
    for (int64_t s = 0; s < b->keys; s++) {
        most = fmax(most, scores[s]);
    }
    memset(y, 0, (size_t)b->width * sizeof *y);
    for (int64_t s = 0; s < b->keys && most > -INFINITY; s++) {
        double p = exp(scores[s] - most);
        sum += p;
        for (int64_t d = 0; d < b->width; d++) {
            add_product(&y[d], p, (ROUNDED + 2 * off) * p,
                        read_number(b, V, key_row(b, n, s, h), d));
        }
    }
    check_row(b, Y, query_row(b, n, t, h), y, sum > 0 ? 1 / sum : 0);
    double found = (double)((const float *)data_of(b, LSE))[(n * b->heads + h) * b->queries + t];
    double wanted = sum > 0 ? most + log(sum) : TRMI_ATTENTION_NO_KEYS;
    assert_true(sum > 0 ? fabs(found - wanted) <= 2 * off + SUMMED : found == wanted);
    return wanted;
}

/* Adds what a query gives to the gradients of the keys that it reads, and checks its own. */
static void check_backward(const bench *b, int64_t n, int64_t t, int64_t h, const double *scores,
                           double off, double lse, bounded *dq, bounded *dk, bounded *dv) {
    int64_t row = query_row(b, n, t, h);
    double size = 0, e = multiply_rows(b, DY, row, Y, row, &size);
    memset(dq, 0, (size_t)b->width * sizeof *dq);
    for (int64_t s = 0; s < b->keys; s++) {
        int64_t other = key_row(b, n, s, h);
        double both = size, p = scores[s] > -INFINITY ? exp(scores[s] - lse) : 0,
               dp = multiply_rows(b, DY, row, V, other, &both), ds = p * (dp - e);
        double lost = ROUNDED * fabs(ds) + p * (3 * off * fabs(dp - e) + SUMMED * both);
        for (int64_t d = 0; d < b->width; d++) {
            add_product(&dv[other * b->width + d], p, (ROUNDED + 3 * off) * p,
                        read_number(b, DY, row, d));
            add_product(&dk[other * b->width + d], ds, lost, read_number(b, Q, row, d));
            add_product(&dq[d], ds, lost, read_number(b, K, other, d));
        }
    }
    check_row(b, DQ, row, dq, b->attrs.attention.scale);
}

static void check_results(const bench *b) {
    int64_t numbers = b->batch * b->keys * b->kv_heads * b->width;
    double *scores = malloc((size_t)b->keys * sizeof *scores);
    bounded *dk = calloc((size_t)numbers, sizeof *dk), *dv = calloc((size_t)numbers, sizeof *dv),
            *own = malloc((size_t)b->width * sizeof *own);
    for (int64_t i = 0; i < b->batch * b->queries * b->heads; i++) {
        int64_t h = i % b->heads, t = i / b->heads % b->queries, n = i / b->heads / b->queries;
        double off = compute_scores(b, n, t, h, scores);
        double lse = check_forward(b, n, t, h, scores, off, own);
        check_backward(b, n, t, h, scores, off, lse, own, dk, dv);
    }
    for (int64_t row = 0; row < b->batch * b->keys * b->kv_heads; row++) {
        check_row(b, DK, row, dk + row * b->width, b->attrs.attention.scale);
        check_row(b, DV, row, dv + row * b->width, 1);
    }
    free(scores);
    free(dk);
    free(dv);
    free(own);
}

/* Odd and even numbers of queries and keys, several blocks of both, keys that several heads share,
 * queries without a key. */
static void rounded_weights_are_the_definition(void **state) {
    static const bench sizes[] = {
        {.batch = 1, .queries = 1, .keys = 1, .heads = 1, .kv_heads = 1, .width = 2},
        {.batch = 2,
         .queries = 37,
         .keys = 37,
         .heads = 2,
         .kv_heads = 1,
         .width = 64,
         .causal = true},
        {.batch = 1, .queries = 113, .keys = 258, .heads = 3, .kv_heads = 3, .width = 36},
        {.batch = 2,
         .queries = 15,
         .keys = 301,
         .heads = 4,
         .kv_heads = 2,
         .width = 6,
         .masked = true},
        {.batch = 1,
         .queries = 299,
         .keys = 299,
         .heads = 2,
         .kv_heads = 2,
         .width = 48,
         .causal = true,
         .masked = true},
        {.batch = 1,
         .queries = 256,
         .keys = 256,
         .heads = 1,
         .kv_heads = 1,
         .width = 64,
         .causal = true},
        {.batch = 1, .queries = 5, .keys = 3, .heads = 1, .kv_heads = 1, .width = 130},
    };
    (void)state;
    if (trmi_dense_pairs() == NULL) {
        skip();
    }
    trmi_onednn_of(backend)->pairs = true; /* on CPUs where they are slower, too */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bench b = sizes[i];
        lay_out(&b);
        fill_inputs(&b);
        run_both(&b);
        check_results(&b);
        trmi_free(b.memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounded_weights_are_the_definition)};
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
