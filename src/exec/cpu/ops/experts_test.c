/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers of experts on pairs of bfloat16 against their definition in double, with weights
 * rounded to bfloat16 where the kernel rounds them. memory_test.c has the other cases. */
#include "kernel_run.h"

#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/gemm/dense.h"

#include "base/rng.h"

#include <math.h>

enum { BUFFERS = 5 };

/* The three products: rows by weights, by their transpose, and the gradient of the weights. */
typedef enum form { FORWARD, BACKWARD, WEIGHTS, FORMS } form;

/* One size, with its operands, result and scratch as a program would have them. */
typedef struct bench {
    int64_t rows, experts, outs, ins;
    form form;
    trmi_buffer buffers[BUFFERS];
    char *memory;
    trmi_attrs attrs;
    trm_program program;
    trmi_step step;
} bench;

static void *data_of(const bench *b, int32_t buffer) {
    return b->memory + b->buffers[buffer].offset;
}

/* Buffers 1 to 4: the first rows, the weights or other rows, experts, the result. */
static void lay_out(bench *b) {
    static const int32_t inputs[] = {1, 2, 3}, outputs[] = {4};
    const trm_shape of_outs = trm_shape_of(b->rows, b->outs),
                    of_ins = trm_shape_of(b->rows, b->ins),
                    weights = trm_shape_of(b->experts, b->outs, b->ins);
    bool forward = b->form == FORWARD;
    const trm_shape shapes[] = {{0},
                                forward ? of_ins : of_outs,
                                b->form == WEIGHTS ? of_ins : weights,
                                trm_shape_of(b->rows),
                                b->form == WEIGHTS ? weights
                                : forward          ? of_outs
                                                   : of_ins};
    int64_t bytes = 0;
    for (int32_t i = 1; i < BUFFERS; i++) {
        trm_dtype dtype = i == 3 ? TRM_INT32 : shapes[i].rank == 3 ? TRM_FLOAT32 : TRM_BFLOAT16;
        bytes = kernel_place(&b->buffers[i], dtype, &shapes[i], bytes);
    }
    b->memory = kernel_memory(bytes);
    b->attrs.expert.transposed = b->form == BACKWARD;
    b->attrs.expert.experts = b->experts;
    b->program.buffers = b->buffers;
    b->program.buffers_count = BUFFERS;
    b->step = (trmi_step){.kind = TRMI_STEP_OP,
                          .op_kind = b->form == WEIGHTS ? TRMI_OP_EXPERT_GRAD_WEIGHTS
                                                        : TRMI_OP_EXPERT_LINEAR,
                          .name = "experts",
                          .attrs = &b->attrs,
                          .inputs = inputs,
                          .outputs = outputs,
                          .inputs_count = 3,
                          .outputs_count = 1};
}

/* Draws the operands; the last expert has no row. */
static void fill_inputs(const bench *b) {
    uint64_t drawn = 0;
    for (int32_t i = 1; i < 3; i++) {
        for (int64_t k = 0; k < trm_shape_count(&b->buffers[i].shape); k++) {
            float v = 2 * trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, drawn++)) - 1;
            if (b->buffers[i].dtype == TRM_FLOAT32) {
                ((float *)data_of(b, i))[k] = v;
            } else {
                ((uint16_t *)data_of(b, i))[k] = trmi_float_to_bf16(v);
            }
        }
    }
    for (int64_t r = 0; r < b->rows; r++) {
        uint32_t bits = trmi_random_u32(1, TRMI_STREAM_TEST, drawn++);
        int64_t expert = b->experts > 1 ? trmi_bounded(bits, (uint32_t)b->experts - 1) : 0;
        ((int32_t *)data_of(b, 3))[r] = (int32_t)expert;
    }
}

static void run_experts(bench *b) {
    trm_error err;
    CHECK_OK(kernel_run(&b->program, &b->step, b->memory,
                        (trmi_kernel_env){.threads = KERNEL_THREADS}, &err),
             err);
}

/* Compares a number of the result with a sum, whose terms have the absolute sum `size`. */
static void check_sum(const bench *b, int64_t at, double sum, double size) {
    bool half = b->form != WEIGHTS;
    double found =
        half ? half_number(data_of(b, 4), at) : (double)((const float *)data_of(b, 4))[at];
    if (!(fabs(found - sum) <= 2e-6 * size + (half ? fabs(sum) / 256 : 0) + 1e-12)) {
        fail_msg("form %d, %ld rows, weights %ld x %ld: number %ld is %.9g, expected %.9g", b->form,
                 (long)b->rows, (long)b->outs, (long)b->ins, (long)at, found, sum);
    }
}

/* Checks number o of the result of a row: the row times the weights of its expert. */
static void check_row(const bench *b, int64_t row, int64_t o) {
    const float *w =
        (const float *)data_of(b, 2) + ((const int32_t *)data_of(b, 3))[row] * b->outs * b->ins;
    bool turned = b->form == BACKWARD;
    int64_t from = turned ? b->outs : b->ins, to = turned ? b->ins : b->outs;
    double sum = 0, size = 0;
    for (int64_t i = 0; i < from; i++) {
        float weight = w[turned ? i * b->ins + o : o * b->ins + i];
        double term = half_number(data_of(b, 1), row * from + i) *
                      (double)trmi_bf16_to_float(trmi_float_to_bf16(weight));
        sum += term;
        size += fabs(term);
    }
    check_sum(b, row * to + o, sum, size);
}

/* Checks one number of the gradient of an expert's weights: a sum over its rows. */
static void check_weight(const bench *b, int64_t expert, int64_t o, int64_t i) {
    double sum = 0, size = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        double term = half_number(data_of(b, 1), r * b->outs + o) *
                      half_number(data_of(b, 2), r * b->ins + i);
        bool own = ((const int32_t *)data_of(b, 3))[r] == expert;
        sum += own ? term : 0;
        size += own ? fabs(term) : 0;
    }
    check_sum(b, (expert * b->outs + o) * b->ins + i, sum, size);
}

static void check_results(const bench *b) {
    int64_t to = b->form == FORWARD ? b->outs : b->ins;
    for (int64_t i = 0; i < (b->form == WEIGHTS ? 0 : b->rows * to); i++) {
        check_row(b, i / to, i % to);
    }
    int64_t weights = b->outs * b->ins;
    for (int64_t i = 0; i < (b->form == WEIGHTS ? b->experts * weights : 0); i++) {
        check_weight(b, i / weights, i % weights / b->ins, i % b->ins);
    }
}

/* Odd and even inner lengths of all three products, more than a block of each, and an expert
 * without rows. */
static void rounded_weights_are_the_definition(void **state) {
    static const struct {
        int64_t rows, experts, outs, ins;
    } sizes[] = {{1, 1, 1, 1},   {2, 2, 3, 2},     {40, 3, 17, 33},  {301, 2, 34, 7},
                 {90, 4, 7, 34}, {700, 2, 40, 39}, {31, 2, 300, 65}, {64, 3, 33, 301}};
    (void)state;
    if (trmi_dense_pairs() == NULL) {
        skip();
    }
    trmi_onednn_of(backend)->pairs = true; /* on CPUs where they are slower, too */
    for (size_t i = 0; i < FORMS * sizeof sizes / sizeof sizes[0]; i++) {
        bench b = {.rows = sizes[i / FORMS].rows,
                   .experts = sizes[i / FORMS].experts,
                   .outs = sizes[i / FORMS].outs,
                   .ins = sizes[i / FORMS].ins,
                   .form = (form)(i % FORMS)};
        lay_out(&b);
        fill_inputs(&b);
        run_experts(&b);
        check_results(&b);
        trmi_free(b.memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounded_weights_are_the_definition)};
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
