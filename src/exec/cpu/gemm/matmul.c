/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers and matrix products of the fast back-end. A product is solved as a 1x1 convolution
 * on images of one pixel:
 *
 *   A  [M, K] B  [K, N]     forward            image A, weights B (HWIO)
 *   A  [M, K] B^T [N, K]    data gradient      result A, weights B; LINEAR, with bias
 *   A^T [K, M] B [K, N]     weight gradient    image A, result B
 *   A^T [K, M] B^T [N, K]   forward of C^T = B A, then turned
 *
 * Linear layers with very few rows use narrow.h. Products with many rows, gradients of weights over
 * many samples, and products that the planner has fused use dense.h instead. A batch of those is
 * distributed over the threads, one product each; other batches run one product after the other,
 * each on all threads.
 *
 * With blocks of samples (strict determinism) the form does not depend on the number of samples: a
 * sum over samples is always the weight gradient, and a fused product uses dense.h. */
#include "exec/cpu/gemm/matmul.h"

#include "exec/cpu/gemm/dense.h"
#include "exec/cpu/gemm/narrow.h"

#include "graph/rows.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"
#include "base/format/half.h"
#include "base/memory.h"

#include <inttypes.h>
#include <omp.h>

typedef struct product {
    trmi_conv_problem problem;
    const trmi_conv_algorithm *algorithm;
    void *state;
    int64_t batch, m, n, k;
    trm_dtype type_a, type_b, type_c;
    bool batched, transpose_a, transpose_b, bias;
    bool dense, is_narrow;
    trmi_dense_plan plan;          /* where dense */
    trmi_narrow narrow;            /* where is_narrow */
    int64_t begin;                 /* dense: the first column of B that is used */
    int64_t scratch, turned_bytes; /* of the algorithm; of C^T */
    int threads;                   /* dense batches: that run at once, each with its scratch */
    bool by_block;                 /* a sum over one block of samples */
} product;

/* Reads sizes and form of a product from the step's operands. Returns false if the types or shapes
 * are not supported. */
static bool read_step(const trm_program *program, const trmi_step *step, product *p) {
    if (step->inputs_count < 2 || step->outputs_count < 1) {
        return false;
    }
    const trmi_buffer *a = &program->buffers[step->inputs[0]],
                      *b = &program->buffers[step->inputs[1]];
    const trmi_buffer *c = &program->buffers[step->outputs[0]];
    bool linear = step->op_kind == TRMI_OP_LINEAR;
    *p = (product){.batch = 1,
                   .type_a = a->dtype,
                   .type_b = b->dtype,
                   .type_c = c->dtype,
                   .transpose_a = !linear && step->attrs->matmul.transpose_a,
                   .transpose_b =
                       linear ? !step->attrs->matmul.inputs_first : step->attrs->matmul.transpose_b,
                   .bias = linear && step->inputs_count > 2 && step->inputs[2] != 0};
    int32_t rank = a->shape.rank;
    /* m, k and n depend on the form: a layer on rows, rows of both operands, or a batch of
     * matrices. */
    if (linear) {
        p->k = b->shape.dim[p->transpose_b ? 1 : 0];
        p->n = p->k > 0 ? trm_shape_count(&b->shape) / p->k : 0;
        p->m = p->k > 0 ? trm_shape_count(&a->shape) / p->k : 0;
    } else if (step->attrs->matmul.rows) {
        trmi_matmul_extents all = trmi_rows_of(step->attrs, &a->shape, &b->shape);
        p->m = all.m, p->k = all.k, p->n = all.n;
    } else {
        p->batched = rank > 2;
        for (int32_t i = 0; i < rank - 2; i++) {
            p->batch *= a->shape.dim[i];
        }
        p->m = a->shape.dim[rank - (p->transpose_a ? 1 : 2)];
        p->k = a->shape.dim[rank - (p->transpose_a ? 2 : 1)];
        p->n = b->shape.dim[rank - (p->transpose_b ? 2 : 1)];
    }
    return trmi_dtype_is_fast(p->type_a) && trmi_dtype_is_fast(p->type_b) &&
           trmi_dtype_is_fast(p->type_c) && p->m > 0 && p->n > 0 && p->k > 0 && p->batch > 0;
}

/* Returns a convolution of `rows` images of one pixel with 1x1 weights [c, o]. */
static trmi_conv_problem one_pixel(trmi_conv_direction direction, int64_t rows, int64_t c,
                                   int64_t o) {
    return (trmi_conv_problem){.direction = direction,
                               .layout = TRMI_CHANNELS_LAST,
                               .weights_layout = TRMI_CHANNELS_LAST,
                               .n = rows,
                               .c = c,
                               .h = 1,
                               .w = 1,
                               .o = o,
                               .oh = 1,
                               .ow = 1,
                               .kh = 1,
                               .kw = 1,
                               .groups = 1,
                               .stride = {1, 1},
                               .dilation = {1, 1}};
}

/* Sets the convolution problem by the table above. */
static void set_conv_problem(product *p) {
    trmi_conv_problem *q = &p->problem;
    if (p->transpose_a && !p->transpose_b) {
        *q = one_pixel(TRMI_CONV_WEIGHTS, p->k, p->m, p->n);
        q->image_type = p->type_a, q->result_type = p->type_b, q->weights_type = p->type_c;
    } else if (p->transpose_a) {
        *q = one_pixel(TRMI_CONV_FORWARD, p->n, p->k, p->m);
        q->image_type = p->type_b, q->weights_type = p->type_a, q->result_type = TRM_FLOAT32;
        p->turned_bytes = trmi_round_up(p->m * p->n * 4, 64);
    } else if (p->transpose_b) {
        *q = one_pixel(TRMI_CONV_DATA, p->m, p->n, p->k);
        q->result_type = p->type_a, q->weights_type = p->type_b, q->image_type = p->type_c;
        q->bias = p->bias;
    } else {
        *q = one_pixel(TRMI_CONV_FORWARD, p->m, p->k, p->n);
        q->image_type = p->type_a, q->weights_type = p->type_b, q->result_type = p->type_c;
        q->bias = p->bias;
    }
}

/* Returns the algorithm of the product; `by_pairs`: of pairs of bfloat16 if it can be
 * (trmi_onednn.pairs). */
static const trmi_conv_algorithm *choose_algorithm(const trmi_conv_problem *q, bool by_pairs) {
    bool weights = q->direction == TRMI_CONV_WEIGHTS;
    const trmi_conv_algorithm *pairs = weights ? &trmi_conv_gradw_pairs : &trmi_conv_gather_pairs;
    if (by_pairs && pairs->can(q)) {
        return pairs;
    }
    return weights ? &trmi_conv_gradw_gemm : &trmi_conv_gather_gemm;
}

bool trmi_matmul_problem_of_step(const trm_program *program, const trmi_step *step,
                                 trmi_conv_problem *problem) {
    product p;
    if (!read_step(program, step, &p) || p.batch != 1 || !p.transpose_a || p.transpose_b) {
        return false;
    }
    set_conv_problem(&p);
    *problem = p.problem;
    return true;
}

/* Returns whether dense.h computes the product, and sets its problem. The planner fuses only
 * products that it can: float32, no A^T, one batch. */
static bool is_dense(const trmi_step *step, product *p, bool blocks) {
    const trmi_attrs *attrs = step->attrs;
    bool linear = step->op_kind == TRMI_OP_LINEAR;
    bool fused = linear ? attrs->matmul.relu : attrs->matmul.columns > 0 || step->inputs_count > 2;
    int64_t width = p->transpose_b ? p->k : p->n; /* of B as it lies */
    /* The product is with a part of B's columns. */
    if (!linear && attrs->matmul.columns > 0) {
        p->n = attrs->matmul.columns;
        p->begin = p->transpose_b ? attrs->matmul.begin * p->k : attrs->matmul.begin;
    }
    trmi_dense_problem q = {.m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .transpose_a = p->transpose_a,
                            .transpose_b = p->transpose_b,
                            .b_stride = width,
                            .relu = linear && attrs->matmul.relu};
    /* under strict determinism single products that are not fused are left to the convolutions,
     * which can sum by blocks */
    bool several = p->batch > 1 || (blocks && p->batched);
    bool batches = several && !(p->transpose_a && p->transpose_b);
    if (blocks && !p->batched && (!fused || p->transpose_a)) {
        return false;
    }
    if (p->type_a != TRM_FLOAT32 || p->type_b != TRM_FLOAT32 || p->type_c != TRM_FLOAT32 ||
        !(fused || batches || (!p->batched && trmi_dense_fits(&q)))) {
        return false;
    }
    p->plan.problem = q;
    return true;
}

/* Returns whether narrow.h computes the product, and sets its problem: linear layers of few rows
 * whose weights are read from memory. */
static bool is_narrow(const trmi_step *step, product *p, int threads) {
    enum { LEAST = 1 << 14 }; /* weights: fewer are soon packed */
    p->narrow = (trmi_narrow){.m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .transposed = p->transpose_b,
                              .half_x = p->type_a == TRM_BFLOAT16,
                              .half_w = p->type_b == TRM_BFLOAT16,
                              .half_y = p->type_c == TRM_BFLOAT16,
                              .threads = threads};
    return step->op_kind == TRMI_OP_LINEAR && !step->attrs->matmul.relu &&
           p->m <= TRMI_NARROW_ROWS && p->n * p->k >= LEAST;
}

/* Returns whether dense.h computes the product by pairs of bfloat16, and sets its problem. Of
 * layers and gradients of inputs it copies rows for each group of columns, so that a convolution,
 * which takes all columns with the same rows, is as fast where A and C do not stay in the caches;
 * with few rows it packs as little. */
static bool is_dense_pairs(const trmi_onednn *backend, product *p) {
    enum { FEW = 256, MANY = 2048, LEAST = 256 }; /* rows; samples of a gradient of weights */
    bool fits = p->transpose_a ? !p->transpose_b && p->type_b == TRM_BFLOAT16 &&
                                     p->type_c == TRM_FLOAT32 && p->k >= LEAST
                               : p->m > FEW && p->m <= MANY && p->k % 2 == 0;
    if (backend->strict || !backend->pairs || p->batched || p->type_a != TRM_BFLOAT16 || !fits) {
        return false;
    }
    p->plan.problem = (trmi_dense_problem){.m = p->m,
                                           .n = p->n,
                                           .k = p->k,
                                           .transpose_a = p->transpose_a,
                                           .transpose_b = p->transpose_b,
                                           .b_stride = p->transpose_b ? p->k : p->n,
                                           .a_type = p->type_a,
                                           .b_type = p->type_b,
                                           .c_type = p->type_c,
                                           .pairs = true};
    return true;
}

/* Reads a step and prepares its product: dense plan or algorithm, and the bytes of scratch. */
static trm_status prepare_product(trmi_onednn *backend, const trm_program *program,
                                  const trmi_step *step, product *p, trm_error *err) {
    if (!read_step(program, step, p)) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: no fast product of these types or shapes",
                         step->name);
    }
    bool blocks = backend->strict;
    /* Few rows meet a large matrix. */
    p->is_narrow = !blocks && is_narrow(step, p, backend->threads);
    if (p->is_narrow) {
        p->scratch = trmi_narrow_scratch(&p->narrow);
        return TRM_OK;
    }
    p->dense = is_dense(step, p, blocks) || is_dense_pairs(backend, p);
    /* Run one product on all threads, or a batch with a product for each thread. */
    if (p->dense) {
        trmi_dense_problem problem = p->plan.problem;
        problem.any_rows = blocks;
        bool batches = p->batch > 1;
        p->threads = batches ? backend->threads : 1;
        p->scratch =
            trmi_round_up(trmi_dense_prepare(&problem, batches ? 1 : backend->threads, &p->plan),
                          64) *
            p->threads;
        return TRM_OK;
    }
    /* Otherwise the product is a 1x1 convolution; with `by_block` each block of samples is a
     * product of its own. */
    p->by_block = step->over_samples && backend->single_blocks;
    p->k /= p->by_block ? step->blocks : 1;
    set_conv_problem(p);
    p->problem.blocks = !blocks ? 0 : step->over_samples && !p->by_block ? step->blocks : 1;
    p->algorithm = choose_algorithm(&p->problem, !blocks && backend->pairs);
    return p->algorithm->create(p->algorithm, backend, &p->problem, &p->state, &p->scratch, err);
}

/* Transposes: c[i, j] = t[j, i], converted to the type of C. */
static void transpose_result(const product *p, const float *t, void *c) {
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            float v = t[j * p->m + i];
            if (p->type_c == TRM_BFLOAT16) {
                ((uint16_t *)c)[i * p->n + j] = trmi_float_to_bf16(v);
            } else {
                ((float *)c)[i * p->n + j] = v;
            }
        }
    }
}

/* Runs a product by dense.h. Input 2 is the bias of LINEAR, or the mask of a gradient. */
static trm_status dense_run(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const product *p = k->state;
    const float *third = trmi_kernel_input(k, env, 2);
    const char *b = trmi_kernel_input(k, env, 1);
    bool linear = k->step->op_kind == TRMI_OP_LINEAR;
    void *c = trmi_kernel_output(k, env, 0);
    if (c != NULL) {
        trmi_dense_run(&p->plan, trmi_kernel_input(k, env, 0),
                       b + p->begin * (int64_t)trm_dtype_bytes(p->type_b), linear ? third : NULL,
                       linear ? NULL : third, c, trmi_kernel_scratch(k, env));
    }
    return TRM_OK;
}

/* Runs a product of very few rows. A step whose output is not wanted here has none. */
static trm_status narrow_run(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const product *p = k->state;
    void *c = trmi_kernel_output(k, env, 0);
    if (c != NULL) {
        trmi_narrow_run(&p->narrow, trmi_kernel_input(k, env, 0), trmi_kernel_input(k, env, 1),
                        p->bias ? trmi_kernel_input(k, env, 2) : NULL, c,
                        trmi_kernel_scratch(k, env));
    }
    return TRM_OK;
}

/* Runs a batch of products, one a thread at a time. */
static trm_status batch_run(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const product *p = k->state;
    const float *a = trmi_kernel_input(k, env, 0), *b = trmi_kernel_input(k, env, 1);
    float *c = trmi_kernel_output(k, env, 0);
    char *scratch = trmi_kernel_scratch(k, env);
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t i = 0; i < (c != NULL ? p->batch : 0); i++) {
        trmi_dense_run(&p->plan, a + i * p->m * p->k, b + i * p->k * p->n, NULL, NULL,
                       c + i * p->m * p->n,
                       scratch + omp_get_thread_num() * (p->scratch / p->threads));
    }
    return TRM_OK;
}

/* Runs the products of a batch one after the other, as convolutions. */
static trm_status product_run(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const product *p = k->state;
    char *a = trmi_kernel_input(k, env, 0), *b = trmi_kernel_input(k, env, 1);
    char *c = trmi_kernel_output(k, env, 0), *scratch = trmi_kernel_scratch(k, env);
    for (int64_t i = 0; c != NULL && i < p->batch; i++) {
        trmi_conv_args args = {.scratch = scratch + p->turned_bytes,
                               .scratch_bytes = trmi_kernel_scratch_bytes(k) - p->turned_bytes};
        /* which operand plays the image, the weights and the result of the convolution */
        if (p->transpose_a && !p->transpose_b) {
            args.image = a, args.result = b, args.weights = c;
        } else if (p->transpose_a) {
            args.image = b, args.weights = a, args.result = scratch;
        } else if (p->transpose_b) {
            args.result = a, args.weights = b, args.image = c;
            args.bias = p->bias ? trmi_kernel_input(k, env, 2) : NULL;
        } else {
            args.image = a, args.weights = b, args.result = c;
            args.bias = p->bias ? trmi_kernel_input(k, env, 2) : NULL;
        }
        TRMI_TRY(p->algorithm->run(p->state, &args, err));
        if (p->turned_bytes > 0) {
            transpose_result(p, (const float *)scratch, c);
        }
        a += p->m * p->k * (int64_t)trm_dtype_bytes(p->type_a);
        b += p->k * p->n * (int64_t)trm_dtype_bytes(p->type_b);
        c += p->m * p->n * (int64_t)trm_dtype_bytes(p->type_c);
    }
    return TRM_OK;
}

static void product_destroy(trmi_kernel *k) {
    product *p = k->state;
    if (p != NULL && !p->dense && !p->is_narrow) {
        p->algorithm->destroy(p->state);
    }
    trmi_free(p);
    k->state = NULL;
}

/* Contract in matmul.h. prepare_product has chosen the form: `narrow` (narrow.h), `dense`
 * (dense.h, one product or a batch of them), or a 1x1 convolution. */
trm_status trmi_onednn_bind_matmul(trmi_backend *backend, trmi_kernel *k, trm_error *err) {
    product *p;
    TRMI_TRY(TRMI_NEW(err, p, 1, "for %s", k->step->name));
    trm_status status = prepare_product(trmi_onednn_of(backend), k->program, k->step, p, err);
    if (status != TRM_OK) {
        trmi_free(p);
        return status;
    }
    k->state = p;
    k->by_block = p->by_block;
    k->run = p->is_narrow   ? narrow_run
             : !p->dense    ? product_run
             : p->batch > 1 ? batch_run
                            : dense_run;
    k->destroy = product_destroy;
    if (p->scratch + p->turned_bytes > k->step->scratch_bytes) {
        int64_t needed = p->scratch + p->turned_bytes;
        product_destroy(k);
        return TRMI_FAIL(err, TRM_INTERNAL,
                         "%s: %" PRId64 " bytes of scratch planned, %" PRId64 " needed",
                         k->step->name, k->step->scratch_bytes, needed);
    }
    ((trmi_step *)(uintptr_t)k->step)->algorithm = p->is_narrow ? "narrow"
                                                   : p->dense   ? "dense"
                                                                : p->algorithm->name;
    return TRM_OK;
}

/* Contract in matmul.h. The product is prepared as bind will do it, and dropped. */
int64_t trmi_onednn_matmul_scratch(trmi_onednn *state, const trm_program *program,
                                   const trmi_step *step) {
    product p = {0};
    if (prepare_product(state, program, step, &p, NULL) != TRM_OK) {
        return 0;
    }
    if (!p.dense && !p.is_narrow) {
        p.algorithm->destroy(p.state);
    }
    return p.scratch + p.turned_bytes;
}

/* Matrices of rank 4 are always plain; other layouts are for images. */
bool trmi_onednn_matmul_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                 trmi_layout layout) {
    (void)state;
    (void)graph;
    (void)op;
    return layout == TRMI_PLAIN;
}

/* Pairs of bfloat16 are rounded as the weights are packed, once each if they are read once. Few
 * rows read weights as they lie: those in bfloat16 are half of the bytes. */
bool trmi_onednn_matmul_rounds(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               int input) {
    bool linear = op->kind == TRMI_OP_LINEAR;
    if ((!linear && op->kind != TRMI_OP_MATMUL) || input != 1 || !state->pairs) {
        return false;
    }
    const trmi_value *a = trmi_input_of(graph, op, 0), *b = trmi_input_of(graph, op, 1);
    bool by_columns = linear ? !op->attrs.matmul.inputs_first : op->attrs.matmul.transpose_b;
    /* folded heads (plan/passes/pass_fold_heads.c) lie as the matrix of two dimensions does */
    bool folded = linear ? !by_columns : op->attrs.matmul.rows;
    int64_t k = b->shape.dim[by_columns ? 1 : 0];
    if (!linear && op->attrs.matmul.rows) {
        k = trmi_rows_of(&op->attrs, &a->shape, &b->shape).k;
    }
    return a->dtype == TRM_BFLOAT16 && (b->shape.rank == 2 || folded) &&
           !op->attrs.matmul.transpose_a && !op->attrs.matmul.relu &&
           op->attrs.matmul.columns == 0 && k > 0 && k % 2 == 0 &&
           trm_shape_count(&a->shape) / k > TRMI_NARROW_ROWS;
}
