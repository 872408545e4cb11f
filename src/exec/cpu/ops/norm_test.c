/* SPDX-License-Identifier: Apache-2.0 */
/* The fast norms of the onednn back-end against the reference kernels: every kind and form,
 * dtype, many shapes and thread counts.
 *
 * A case is one step over buffers in channels-last layout (`bench`); the reference runs on
 * plain copies. Shapes are drawn from a fixed seed; results may differ by rounding. */
#include "kernel_run.h"

#include "exec/convert.h"

#include "base/rng.h"

#include <math.h>

typedef struct setup {
    trm_shape shape;
    trm_dtype dtype;
    bool relu, residual;
} setup;

static uint64_t counter;
static double draw_uniform(void) {
    return (double)trmi_unit_float(trmi_random_u32(3, TRMI_STREAM_TEST, counter++)) * 2 - 1;
}

static void fill_values(void *data, trm_dtype dtype, int64_t count, double middle, double spread) {
    for (int64_t i = 0; i < count; i++) {
        float v = (float)(middle + spread * draw_uniform());
        if (dtype == TRM_BFLOAT16) {
            ((uint16_t *)data)[i] = trmi_float_to_bf16(v);
        } else {
            ((float *)data)[i] = v;
        }
    }
}

/* One step over buffers of one arena each: inputs in[], outputs out[], channels-last where rank 4.
 */
typedef struct bench {
    trm_program program;
    trmi_step step;
    trmi_attrs attrs;
    trmi_buffer buffers[16];
    int32_t in[8], out[4];
    char *memory; /* both arenas of the fast run */
    int64_t bytes;
} bench;

static int32_t add_buffer(bench *b, const trm_shape *shape, trm_dtype dtype) {
    int32_t i = ++b->program.buffers_count;
    trmi_buffer *buffer = &b->buffers[i];
    b->bytes = kernel_place(buffer, dtype, shape, b->bytes);
    buffer->layout = shape->rank == 4 ? TRMI_CHANNELS_LAST : TRMI_PLAIN;
    return i;
}

static void run_fast(const bench *b, char *memory, int threads) {
    trm_error err;
    CHECK_OK(kernel_run(&b->program, &b->step, memory, (trmi_kernel_env){.threads = threads}, &err),
             err);
}

/* Runs the reference kernel on plain copies, and brings its results back to the fast layout. */
static void run_reference(bench *b, char *memory) {
    trm_error err;
    trm_tensor in[8] = {{0}}, out[4] = {{0}};
    for (int i = 0; i < b->step.inputs_count + b->step.outputs_count; i++) {
        bool input = i < b->step.inputs_count;
        int32_t index = input ? b->in[i] : b->out[i - b->step.inputs_count];
        if (index == 0) {
            continue;
        }
        const trmi_buffer *f = &b->buffers[index];
        trm_tensor *t = input ? &in[i] : &out[i - b->step.inputs_count];
        *t = (trm_tensor){
            .data = malloc((size_t)f->bytes + 1), .dtype = f->dtype, .shape = f->shape};
        trmi_convert_to_plain(f, memory + f->offset, t->data);
    }
    trmi_ref_args args = {.attrs = &b->attrs,
                          .inputs = in,
                          .outputs = out,
                          .inputs_count = b->step.inputs_count,
                          .outputs_count = b->step.outputs_count};
    CHECK_OK(trmi_ref_table[b->step.op_kind](&args, &err), err);
    for (int i = 0; i < 8; i++) {
        bool state = i == 3 || i == 4; /* running statistics change in place */
        if (in[i].data != NULL && state) {
            memcpy(memory + b->buffers[b->in[i]].offset, in[i].data,
                   (size_t)b->buffers[b->in[i]].bytes);
        }
        free(in[i].data);
    }
    for (int i = 0; i < 4; i++) {
        if (out[i].data != NULL) {
            const trmi_buffer *f = &b->buffers[b->out[i]];
            trmi_convert_from_plain(f, out[i].data, memory + f->offset);
            free(out[i].data);
        }
    }
}

static void compare_arenas(const bench *b, const char *fast, const char *slow, double tolerance) {
    for (int32_t i = 1; i <= b->program.buffers_count; i++) {
        const trmi_buffer *f = &b->buffers[i];
        int64_t count = trm_shape_count(&f->shape);
        float *x = malloc(((size_t)count + 1) * 2 * sizeof *x), *y = x + count;
        trmi_convert_to_float(fast + f->offset, f->dtype, x, count);
        trmi_convert_to_float(slow + f->offset, f->dtype, y, count);
        double scale = 1;
        for (int64_t k = 0; k < count; k++) {
            scale = fmax(scale, fabs((double)y[k]));
        }
        for (int64_t k = 0; k < count; k++) {
            double d = fabs((double)x[k] - (double)y[k]);
            if (!(d <= tolerance * scale)) {
                fail_msg("kind %s buffer %d element %ld: fast %.9g, reference %.9g",
                         trmi_op_table[b->step.op_kind]->name, i, (long)k, (double)x[k],
                         (double)y[k]);
            }
        }
        free(x);
    }
}

static void check_norm(trmi_op_kind kind, const setup *s, bool two) {
    bench b = {.step = {.kind = TRMI_STEP_OP, .op_kind = kind, .name = "norm"}};
    trm_shape channels = trm_shape_of(s->shape.dim[1]);
    bool grad = kind == TRMI_OP_NORM_ACT_GRAD || kind == TRMI_OP_BATCH_NORM_GRAD;
    bool plain = kind == TRMI_OP_BATCH_NORM_GRAD;
    b.attrs.norm.epsilon = 1e-5;
    b.attrs.norm.momentum = 0.1;
    b.attrs.norm.relu = s->relu;
    b.attrs.norm.residual = s->residual;
    b.attrs.norm.from_y = grad && s->relu && s->residual;
    int n = 0;
    if (grad) {
        b.in[n++] = add_buffer(&b, &s->shape, s->dtype);
        b.in[n++] = add_buffer(&b, &s->shape, s->dtype);
        if (!plain) {
            b.in[n++] = b.attrs.norm.from_y ? add_buffer(&b, &s->shape, s->dtype) : 0;
        }
        for (int i = 0; i < (plain ? 3 : 4); i++) {
            b.in[n++] = add_buffer(&b, &channels, TRM_FLOAT32);
        }
        if (b.attrs.norm.from_y && two) {
            b.in[n++] = add_buffer(&b, &s->shape, s->dtype);
        }
    } else {
        b.in[n++] = add_buffer(&b, &s->shape, s->dtype);
        for (int i = 0; i < 4; i++) {
            b.in[n++] = add_buffer(&b, &channels, TRM_FLOAT32);
        }
        if (s->residual) {
            b.in[n++] = add_buffer(&b, &s->shape, s->dtype);
        }
    }
    b.step.inputs_count = n;
    int outs = 0;
    b.out[outs++] = add_buffer(&b, &s->shape, s->dtype);
    bool vectors = grad || kind == TRMI_OP_NORM_ACT || kind == TRMI_OP_BATCH_NORM;
    for (int i = 0; i < 2 && vectors; i++) {
        b.out[outs++] = add_buffer(&b, &channels, TRM_FLOAT32);
    }
    if (grad && s->residual && !plain) {
        b.out[outs++] = add_buffer(&b, &s->shape, s->dtype);
    }
    b.step.outputs_count = outs;
    b.step.inputs = b.in;
    b.step.outputs = b.out;
    b.step.attrs = &b.attrs;
    b.program.buffers = b.buffers;
    char *fast = trmi_alloc((size_t)b.bytes), *slow = trmi_alloc((size_t)b.bytes),
         *again = trmi_alloc((size_t)b.bytes);
    for (int i = 0; i < n; i++) {
        const trmi_buffer *f = &b.buffers[b.in[i]];
        if (b.in[i] != 0) {
            bool positive = f->shape.rank == 1;
            fill_values(fast + f->offset, f->dtype, trm_shape_count(&f->shape),
                        positive ? 1.2 : 0.3, positive ? 0.5 : 2);
        }
    }
    memcpy(slow, fast, (size_t)b.bytes);
    memcpy(again, fast, (size_t)b.bytes);
    run_fast(&b, fast, 2);
    run_fast(&b, again, 3);
    assert_memory_equal(fast, again, (size_t)b.bytes);
    run_reference(&b, slow);
    compare_arenas(&b, fast, slow, s->dtype == TRM_BFLOAT16 ? 1e-2 : 3e-5);
    trmi_free(fast);
    trmi_free(slow);
    trmi_free(again);
}

static void all_kinds_equal_the_reference(void **state) {
    static const trmi_op_kind kinds[] = {
        TRMI_OP_BATCH_NORM,     TRMI_OP_BATCH_NORM_INFER, TRMI_OP_BATCH_NORM_GRAD, TRMI_OP_NORM_ACT,
        TRMI_OP_NORM_ACT_INFER, TRMI_OP_NORM_ACT_APPLY,   TRMI_OP_NORM_ACT_GRAD};
    static const int64_t shapes[][4] = {{1, 1, 1, 2},  {2, 3, 5, 7},    {4, 16, 3, 3},
                                        {3, 70, 9, 4}, {128, 40, 1, 1}, {5, 256, 12, 12}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            for (int form = 0; form < 8; form++) {
                bool bare = kinds[k] == TRMI_OP_BATCH_NORM ||
                            kinds[k] == TRMI_OP_BATCH_NORM_INFER ||
                            kinds[k] == TRMI_OP_BATCH_NORM_GRAD;
                setup s = {.shape = trm_shape_make(4, shapes[i]),
                           .relu = form & 1,
                           .residual = form & 2,
                           .dtype = form & 4 ? TRM_BFLOAT16 : TRM_FLOAT32};
                bool legal = !(bare && (s.relu || s.residual)) &&
                             !(kinds[k] == TRMI_OP_NORM_ACT_APPLY && s.residual) &&
                             !(s.residual && !s.relu);
                if (legal) {
                    check_norm(kinds[k], &s, false);
                    check_norm(kinds[k], &s, true);
                }
            }
        }
    }
}

/* Outputs that are too large for the caches are stored past them. */
static void large_outputs(void **state) {
    setup s = {
        .shape = trm_shape_of(9, 64, 87, 90), .relu = true, .residual = true, .dtype = TRM_FLOAT32};
    check_norm(TRMI_OP_NORM_ACT, &s, false);
    check_norm(TRMI_OP_NORM_ACT_GRAD, &s, true);
    s.shape = trm_shape_of(18, 64, 87, 90);
    s.dtype = TRM_BFLOAT16;
    check_norm(TRMI_OP_NORM_ACT_GRAD, &s, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_kinds_equal_the_reference),
                                       cmocka_unit_test(large_outputs)};
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
