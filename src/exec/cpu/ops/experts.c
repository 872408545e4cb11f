/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers of experts: rows are put in the order of their experts, so that each expert's are
 * one matrix, multiplied by all threads, and what comes out goes back to the rows' places. Of
 * bfloat16 rows, where the CPU multiplies pairs of bfloat16 faster, the weights are rounded to that
 * type, as those of other layers are; sums and gradients of the weights are float32.
 *
 *   scratch:  [ begins of the experts | order of the rows | rows in | rows out, or other rows in | of products ] */
#include "exec/cpu/gemm/dense.h"
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"

#include <inttypes.h>
#include <string.h>

enum { LONGEST_DEPTH = 256 }; /* of dense.c's chunks, which need the most scratch */

typedef struct expert_state {
    const trmi_memory_kernels *kernels;
    int64_t rows, experts, outs, ins;
    bool half[2]; /* the two tensors of rows: x and y, or dy and x */
    bool transposed, weights;
    bool pairs;    /* products of pairs of bfloat16 */
    bool any_rows; /* strict determinism (dense.h) */
    int threads;
    int64_t order_bytes, first_bytes, second_bytes, product_bytes;
} expert_state;

/* Numbers of a row in the first and the second tensor of rows. */
static int64_t first_width(const expert_state *s) {
    return s->weights || s->transposed ? s->outs : s->ins;
}
static int64_t second_width(const expert_state *s) {
    return s->weights || s->transposed ? s->ins : s->outs;
}

/* Bytes of a number of gathered rows. */
static int64_t operand_bytes(const expert_state *s) { return s->pairs ? 2 : 4; }

/* Describes the product of an expert with that many rows. Weight gradients are added to zeros, so
 * that no number of rows makes the product split along them. */
static trmi_dense_problem problem_of(const expert_state *s, int64_t rows) {
    trm_dtype type = s->pairs ? TRM_BFLOAT16 : TRM_FLOAT32;
    if (s->weights) {
        return (trmi_dense_problem){.m = s->outs,
                                    .n = s->ins,
                                    .k = rows,
                                    .transpose_a = true,
                                    .b_stride = s->ins,
                                    .a_type = type,
                                    .b_type = type,
                                    .pairs = s->pairs,
                                    .add = true};
    }
    return (trmi_dense_problem){.m = rows,
                                .n = second_width(s),
                                .k = first_width(s),
                                .transpose_b = !s->transposed,
                                .b_stride = s->ins,
                                .a_type = type,
                                .b_type = TRM_FLOAT32,
                                .pairs = s->pairs,
                                .any_rows = s->any_rows};
}

/* Fills the state of an expert kernel and lays out its scratch: the order of rows by expert,
 * then two copies of the rows in that order (operands, and a result in float32), then the memory of
 * the products. */
static void size_memory(expert_state *s, const trm_program *program, const trmi_step *step,
                        const trmi_onednn *backend) {
    const trmi_buffer *in[3], *out = &program->buffers[step->outputs[0]];
    for (int i = 0; i < 3; i++) {
        in[i] = &program->buffers[step->inputs[i]];
    }
    bool weights = step->op_kind == TRMI_OP_EXPERT_GRAD_WEIGHTS;
    const trm_shape *w = weights ? &out->shape : &in[1]->shape;
    *s = (expert_state){
        .kernels = trmi_memory_kernels_best(),
        .rows = trmi_of_block(step, trm_shape_count(&in[2]->shape)),
        .experts = w->dim[0],
        .outs = w->dim[1],
        .ins = w->dim[2],
        .half = {in[0]->dtype == TRM_BFLOAT16, (weights ? in[1] : out)->dtype == TRM_BFLOAT16},
        .transposed = step->attrs->expert.transposed,
        .weights = weights,
        .any_rows = backend->strict,
        .threads = backend->threads};
    s->pairs = backend->pairs && s->half[0] && (s->half[1] || !weights);
    s->order_bytes = trmi_round_up((s->experts + 2 + s->rows) * (int64_t)sizeof(int64_t), 64);
    s->first_bytes = trmi_round_up(s->rows * first_width(s) * operand_bytes(s), 64);
    s->second_bytes =
        trmi_round_up(s->rows * second_width(s) * (weights ? operand_bytes(s) : 4), 64);
    /* The number of rows of an expert is known only in a step: take the scratch of the largest
     * product. */
    for (int i = 0; i < 2; i++) {
        trmi_dense_plan plan;
        trmi_dense_problem p =
            problem_of(s, i == 0 ? s->rows : trmi_min_i64(s->rows, LONGEST_DEPTH));
        s->product_bytes = trmi_max_i64(
            s->product_bytes, s->rows > 0 ? trmi_dense_prepare(&p, s->threads, &plan) : 0);
    }
}

/* Lists the rows of each expert, in their order: expert e has order[begins[e] .. begins[e + 1]).
 * Rows whose expert is on another rank come last.   errors  INVALID: there is no such expert */
static trm_status sort_rows(const expert_state *s, const trmi_attrs *a, const int32_t *ids,
                            int64_t *begins, int64_t *order, trm_error *err) {
    const trmi_op_part *part = trmi_part_of(a);
    int64_t all = part->extent > 0 ? part->extent : s->experts;
    memset(begins, 0, (size_t)(s->experts + 2) * sizeof *begins);
    /* This is a counting sort. Pass 0 counts the rows of each expert, pass 1 enters them. Expert
     * number `experts` collects the rows of experts on other ranks. */
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t r = 0; r < s->rows; r++) {
            int64_t at = (int64_t)ids[r] - part->begin;
            if (ids[r] < 0 || ids[r] >= all) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "expert %d of row %" PRId64 ": 0 to %" PRId64 " expected", ids[r],
                                 r, all - 1);
            }
            at = at >= 0 && at < s->experts ? at : s->experts;
            if (pass == 0) {
                begins[at + 1]++;
            } else {
                order[begins[at]++] = r;
            }
        }
        for (int64_t e = 0; pass == 0 && e < s->experts + 1; e++) {
            begins[e + 1] += begins[e];
        }
    }
    /* Pass 1 has advanced each begin to the begin of the next expert: shift them back. */
    memmove(begins + 1, begins, (size_t)(s->experts + 1) * sizeof *begins);
    begins[0] = 0;
    return TRM_OK;
}

/* Copies the rows of `from` in that order, as float32, or bfloat16 with pairs. */
static void gather_rows(const expert_state *s, char *to, const char *from, bool half, int64_t width,
                        const int64_t *order) {
    int64_t bytes = width * operand_bytes(s);
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t i = 0; i < s->rows; i++) {
        s->kernels->unary[TRMI_UNARY_COPY](from + order[i] * width * (half ? 2 : 4), to + i * bytes,
                                           width, half, s->pairs, 1);
    }
}

/* Multiplies each expert with the rows that the router sent to it: rows are gathered in the order
 * of their experts, each expert runs one dense product, and results go back to the places of their
 * rows. Rows that no expert of this rank takes become 0. With `weights` it computes the gradient of
 * the experts' weights: the product of two gathered lists. */
static trm_status run_experts(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const expert_state *s = k->state;
    char *scratch = trmi_kernel_scratch(k, env), *out = trmi_kernel_output(k, env, 0);
    int64_t *begins = (int64_t *)(void *)scratch, *order = begins + s->experts + 2;
    char *first = scratch + s->order_bytes, *second = first + s->first_bytes;
    float *results = (float *)(void *)second; /* without `weights` */
    char *products = second + s->second_bytes;
    int64_t weights = s->outs * s->ins;
    /* Sort the rows: expert e has rows order[begins[e] .. begins[e + 1]); rows of no expert here
     * come last. */
    TRMI_TRY(sort_rows(s, k->step->attrs, trmi_kernel_input(k, env, 2), begins, order, err));
    gather_rows(s, first, trmi_kernel_input(k, env, 0), s->half[0], first_width(s), order);
    if (s->weights) {
        gather_rows(s, second, trmi_kernel_input(k, env, 1), s->half[1], s->ins, order);
        memset(out, 0, (size_t)(s->experts * weights) * sizeof(float));
    }
    /* One product for each expert that has rows. */
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t begin = begins[e], rows = begins[e + 1] - begin;
        if (rows == 0) {
            continue;
        }
        trmi_dense_problem p = problem_of(s, rows);
        trmi_dense_plan plan;
        trmi_dense_prepare(&p, s->threads, &plan);
        const char *a = first + begin * first_width(s) * operand_bytes(s);
        if (s->weights) {
            trmi_dense_run(&plan, a, second + begin * s->ins * operand_bytes(s), NULL, NULL,
                           (float *)(void *)out + e * weights, products);
        } else {
            const float *w = (const float *)trmi_kernel_input(k, env, 1) + e * weights;
            trmi_dense_run(&plan, a, w, NULL, NULL, results + begin * second_width(s), products);
        }
    }
    /* Results return to the places of their rows. */
    int64_t width = second_width(s), bytes = width * (s->half[1] ? 2 : 4);
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t i = 0; i < (s->weights ? 0 : s->rows); i++) {
        char *to = out + order[i] * bytes;
        if (i < begins[s->experts]) {
            s->kernels->unary[TRMI_UNARY_COPY](results + i * width, to, width, false, s->half[1],
                                               1);
        } else {
            memset(to, 0, (size_t)bytes);
        }
    }
    return TRM_OK;
}

int64_t trmi_onednn_experts_scratch(trmi_onednn *state, const trm_program *program,
                                    const trmi_step *step) {
    expert_state s;
    size_memory(&s, program, step, state);
    return s.order_bytes + s.first_bytes + s.second_bytes + s.product_bytes;
}

/* Binds the layer or one of its gradients; weights and their gradients are float32. */
trm_status trmi_onednn_bind_experts(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    bool weights = kernel->step->op_kind == TRMI_OP_EXPERT_GRAD_WEIGHTS;
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, 0),
                      *y = trmi_kernel_input_buffer(kernel, 1),
                      *out = trmi_kernel_output_buffer(kernel, 0);
    if (!trmi_dtype_is_fast(x->dtype) || !trmi_dtype_is_fast((weights ? y : out)->dtype) ||
        (weights ? out : y)->dtype != TRM_FLOAT32) {
        return trmi_memory_unsupported(kernel, err);
    }
    expert_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    size_memory(s, kernel->program, kernel->step, trmi_onednn_of(backend));
    kernel->by_block = kernel->step->over_samples;
    kernel->run = run_experts;
    return TRM_OK;
}
