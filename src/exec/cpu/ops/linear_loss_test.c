/* SPDX-License-Identifier: Apache-2.0 */
/* The output layer on pairs of bfloat16 against its definition in double, with x, W and the logits'
 * gradients rounded to bfloat16 where the kernel rounds them. memory_test.c has the other cases. */
#include "kernel_run.h"

#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/gemm/dense.h"
#include "exec/cpu/ops/ops.h"

#include "base/rng.h"

#include <math.h>

enum { IGNORED = 0, INPUTS = 4, BUFFERS = 9 };

/* One size, with its operands, results and scratch as a program would have them. */
typedef struct bench {
    int64_t rows, classes, width;
    trmi_buffer buffers[BUFFERS];
    char *memory;
    trmi_attrs attrs;
    trm_program program;
    trmi_step step;
} bench;

static void *data_of(const bench *b, int32_t buffer) {
    return b->memory + b->buffers[buffer].offset;
}
static double round_value(double value) {
    return (double)trmi_bf16_to_float(trmi_float_to_bf16((float)value));
}

/* Buffers 1 to 4: x, W, labels, bias; 5 to 8: loss and the gradients of x, W, bias. */
static void lay_out(bench *b) {
    static const int32_t inputs[] = {1, 2, 3, 4}, outputs[] = {5, 6, 7, 8};
    const trm_shape shapes[] = {{0},
                                trm_shape_of(b->rows, b->width),
                                trm_shape_of(b->classes, b->width),
                                trm_shape_of(b->rows),
                                trm_shape_of(b->classes),
                                {0}};
    int64_t bytes = 0;
    for (int32_t i = 1; i < BUFFERS; i++) {
        trm_dtype dtype = i == 1 || i == 6 ? TRM_BFLOAT16 : i == 3 ? TRM_INT32 : TRM_FLOAT32;
        const trm_shape *shape = &shapes[i < 6 ? i : i == 8 ? 4 : i - 5];
        bytes = kernel_place(&b->buffers[i], dtype, shape, bytes);
    }
    b->memory = kernel_memory(bytes);
    b->attrs.xent.use_ignore_index = true;
    b->attrs.xent.ignore_index = IGNORED;
    b->program.buffers = b->buffers;
    b->program.buffers_count = BUFFERS;
    b->step = (trmi_step){.kind = TRMI_STEP_OP,
                          .op_kind = TRMI_OP_LINEAR_XENT,
                          .name = "loss",
                          .attrs = &b->attrs,
                          .inputs = inputs,
                          .outputs = outputs,
                          .inputs_count = INPUTS,
                          .outputs_count = INPUTS};
}

/* Draws the operands; one label in `labels` is ignored. */
static void fill_inputs(const bench *b, uint32_t labels) {
    uint64_t drawn = 0;
    for (int64_t i = 0; i < b->rows * b->width; i++) {
        float u = trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, drawn++));
        ((uint16_t *)data_of(b, 1))[i] = trmi_float_to_bf16(2 * u - 1);
    }
    for (int64_t i = 0; i < b->classes * (b->width + 1); i++) { /* W, then the bias */
        float u = trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, drawn++));
        int64_t at = i - b->classes * b->width;
        ((float *)data_of(b, at < 0 ? 2 : 4))[at < 0 ? i : at] = 2 * u - 1;
    }
    for (int64_t i = 0; i < b->rows; i++) {
        uint32_t bits = trmi_random_u32(1, TRMI_STREAM_TEST, drawn++);
        int64_t label = 1 + (int64_t)trmi_bounded(bits, (uint32_t)b->classes - 1);
        ((int32_t *)data_of(b, 3))[i] = (int32_t)(i > 0 && bits % labels == 0 ? IGNORED : label);
    }
}

static void run_loss(bench *b) {
    trm_error err;
    CHECK_OK(kernel_run(&b->program, &b->step, b->memory,
                        (trmi_kernel_env){.threads = KERNEL_THREADS}, &err),
             err);
}

/* A sum, and the most by which a kernel's float32 sum may differ. */
typedef struct bounded {
    double sum, slack;
} bounded;

/* Adds dz * by. A kernel's dz is float32, at most `off` from this one: where the two may be rounded
 * to different numbers the product is uncertain by so much. */
static void add_product(bounded *to, double dz, double off, double by) {
    double d = round_value(dz), low = round_value(dz - off), high = round_value(dz + off);
    to->sum += d * by;
    to->slack += (2e-6 * fabs(d) + fmax(high - d, d - low)) * fabs(by);
}

static void check_value(const bounded *wanted, double found, bool half, const char *what,
                        int64_t at) {
    double unit = wanted->slack + (half ? fabs(wanted->sum) / 256 : 0) + 1e-12;
    if (!(fabs(found - wanted->sum) <= unit)) {
        fail_msg("%s %ld: fast %.9g, expected %.9g within %.3g", what, (long)at, found, wanted->sum,
                 unit);
    }
}

/* Computes a row's logits of rounded operands. Returns the largest sum of absolute terms. */
static double compute_logits(const bench *b, int64_t row, double *z) {
    const float *w = data_of(b, 2), *bias = data_of(b, 4);
    double largest = 0;
    for (int64_t k = 0; k < b->classes; k++) {
        double size = fabs(z[k] = (double)bias[k]);
        for (int64_t i = 0; i < b->width; i++) {
            double term = round_value((double)w[k * b->width + i]) *
                          half_number(data_of(b, 1), row * b->width + i);
            z[k] += term;
            size += fabs(term);
        }
        largest = fmax(largest, size);
    }
    return largest;
}

/* Checks the loss and all gradients against the definition. */
static void check_results(const bench *b) {
    const int32_t *labels = data_of(b, 3);
    const float *w = data_of(b, 2);
    double *z = malloc((size_t)b->classes * sizeof *z), counted = 0;
    bounded *dw = calloc((size_t)(b->classes * b->width), sizeof *dw),
            *dbias = calloc((size_t)b->classes, sizeof *dbias),
            *dx = malloc((size_t)b->width * sizeof *dx), loss = {.slack = 0};
    for (int64_t r = 0; r < b->rows; r++) {
        counted += labels[r] != IGNORED;
    }
    for (int64_t r = 0; r < b->rows; r++) {
        memset(dx, 0, (size_t)b->width * sizeof *dx);
        double largest = labels[r] != IGNORED ? compute_logits(b, r, z) : 0, sum = 0;
        int64_t classes = labels[r] != IGNORED ? b->classes : 0;
        for (int64_t k = 0; k < classes; k++) {
            sum += exp(z[k]);
        }
        for (int64_t k = 0; k < classes; k++) {
            bool is_label = labels[r] == k;
            double part = exp(z[k]) / sum / counted, dz = part - (is_label ? 1 / counted : 0),
                   off = (4e-6 + 6e-7 * largest) * part + 2e-7 * fabs(dz);
            loss.sum += is_label ? (log(sum) - z[k]) / counted : 0;
            loss.slack += is_label ? (1e-6 + 6e-7 * largest) / counted : 0;
            dbias[k].sum += dz;
            dbias[k].slack += off + 1e-6 * fabs(dz);
            for (int64_t i = 0; i < b->width; i++) {
                add_product(&dx[i], dz, off, round_value((double)w[k * b->width + i]));
                add_product(&dw[k * b->width + i], dz, off,
                            half_number(data_of(b, 1), r * b->width + i));
            }
        }
        for (int64_t i = 0; i < b->width; i++) {
            int64_t at = r * b->width + i;
            check_value(&dx[i], half_number(data_of(b, 6), at), true, "gradient of x", at);
        }
    }
    check_value(&loss, (double)*(const float *)data_of(b, 5), false, "loss", 0);
    for (int64_t k = 0; k < b->classes; k++) {
        check_value(&dbias[k], (double)((const float *)data_of(b, 8))[k], false, "bias", k);
    }
    for (int64_t i = 0; i < b->classes * b->width; i++) {
        check_value(&dw[i], (double)((const float *)data_of(b, 7))[i], false, "gradient of W", i);
    }
    free(z);
    free(dw);
    free(dbias);
    free(dx);
}

/* Odd and even inner lengths of all three products: width, classes, rows. Many blocks of classes:
 * each thread takes its own. Many classes: two chunks of rows. */
static void rounded_operands_are_the_definition(void **state) {
    static const struct {
        int64_t rows, classes, width;
        uint32_t labels; /* one of so many is ignored */
    } sizes[] = {{1, 2, 1, 9},      {2, 3, 2, 9},      {37, 513, 17, 5},   {90, 1299, 40, 5},
                 {33, 700, 39, 7},  {300, 65, 5, 1},   {301, 66, 65, 2},   {129, 1025, 7, 3},
                 {70, 7001, 33, 4}, {61, 6500, 12, 9}, {65, 270000, 3, 99}};
    (void)state;
    if (trmi_dense_pairs() == NULL) {
        skip();
    }
    trmi_onednn_of(backend)->pairs = true; /* on CPUs where they are slower, too */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bench b = {.rows = sizes[i].rows, .classes = sizes[i].classes, .width = sizes[i].width};
        lay_out(&b);
        fill_inputs(&b, sizes[i].labels);
        run_loss(&b);
        check_results(&b);
        trmi_free(b.memory);
    }
}

/* Scratch is for the rows that are expected to count; more of them go through it in chunks. */
static void memory_is_for_the_rows_that_count(void **state) {
    (void)state;
    bench b = {.rows = 400, .classes = 3000, .width = 24};
    lay_out(&b);
    fill_inputs(&b, 9);
    trmi_onednn *onednn = trmi_onednn_of(backend);
    int64_t all = trmi_onednn_linear_loss_scratch(onednn, &b.program, &b.step),
            logits = b.rows * b.classes * 4;
    b.attrs.xent.counted_share = 0.15;
    int64_t some = trmi_onednn_linear_loss_scratch(onednn, &b.program, &b.step);
    print_message("[  note  ] scratch %.2f MB, of 15 %% of the rows %.2f MB\n", (double)all / 1e6,
                  (double)some / 1e6);
    assert_true(all > logits && all - some > 8 * (logits / 10));
    if (trmi_dense_pairs() != NULL) {
        onednn->pairs = true;
        run_loss(&b);
        check_results(&b);
    }
    trmi_free(b.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounded_operands_are_the_definition),
                                       cmocka_unit_test(memory_is_for_the_rows_that_count)};
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
