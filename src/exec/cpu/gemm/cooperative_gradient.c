/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of cooperative gradients: some rows of dW = x^T dy, summed over the samples of all ranks
 * of a host. Each rank computes other rows, so no gradient is reduced afterwards. The samples of
 * rank 0 come first:
 *
 *      arena COOPERATIVE   [ x of rank 0 | x of rank 1 | ... ]   [ dy of rank 0 | dy of rank 1 | ... ]
 *                                  ^ where this rank's step has its own */
#include "exec/cpu/gemm/cooperative_gradient.h"

#include "exec/cpu/gemm/matmul.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>

typedef struct slice {
    const trmi_conv_algorithm *algorithm;
    void *state;
    int64_t image_before, result_before; /* bytes from the first rank's to this one's */
} slice;

/* Sets the weight-gradient problem over the samples of all ranks. Returns false if no kernel here
 * can solve it. */
static bool cooperative_problem(const trm_program *program, const trmi_step *step,
                                trmi_conv_problem *problem) {
    bool known = step->op_kind == TRMI_OP_MATMUL
                     ? trmi_matmul_problem_of_step(program, step, problem)
                     : trmi_conv_problem_of_step(program, step, problem);
    problem->n *= program->cooperative_ranks;
    return known && trmi_conv_gradw_gemm.can(problem);
}

/* Returns which input of the step has the samples x: MATMUL has them first, the weight gradient of
 * a convolution after dy. */
static int image_input(const trmi_step *step) { return step->op_kind == TRMI_OP_MATMUL ? 0 : 1; }

/* Runs the kernel on the samples of all ranks; addresses begin at rank 0's part of the shared
 * arena. */
static trm_status cooperative_run(const trmi_kernel *k, const trmi_kernel_env *env,
                                  trm_error *err) {
    const slice *s = k->state;
    int image = image_input(k->step);
    const trmi_conv_args args = {
        .image = (char *)trmi_kernel_input(k, env, image) - s->image_before,
        .result = (char *)trmi_kernel_input(k, env, 1 - image) - s->result_before,
        .weights = trmi_kernel_output(k, env, 0),
        .scratch = trmi_kernel_scratch(k, env),
        .scratch_bytes = trmi_kernel_scratch_bytes(k)};
    return s->algorithm->run(s->state, &args, err);
}

/* Frees the algorithm's state, which only the algorithm knows. */
static void cooperative_destroy(trmi_kernel *k) {
    slice *s = k->state;
    if (s != NULL) {
        s->algorithm->destroy(s->state);
    }
    trmi_free(s);
    k->state = NULL;
}

/* Contract in cooperative_gradient.h. Binds the rows [begin, end) of a weight gradient that this
 * rank computes from the samples of all ranks. The ranks' images and result gradients lie one
 * after the other in shared memory; the kernel gets this rank's address, and `*_before` leads back
 * to rank 0's. */
trm_status trmi_onednn_bind_cooperative(trmi_backend *backend, trmi_kernel *k,
                                        const trmi_cooperative_part *part, trm_error *err) {
    trmi_conv_problem problem;
    int64_t scratch = 0;
    if (!cooperative_problem(k->program, k->step, &problem)) {
        return TRMI_FAIL(err, TRM_INTERNAL, "%s: no kernel for a gradient of all ranks",
                         k->step->name);
    }
    slice *s;
    TRMI_TRY(TRMI_NEW(err, s, 1, "for %s", k->step->name));
    /* Multiply whole rows of the weights that cover this rank's elements. */
    int64_t begin = part->begin / problem.o,
            end = (part->begin + part->count + problem.o - 1) / problem.o;
    trm_status status = trmi_conv_gradw_rows(trmi_onednn_of(backend), &problem, begin, end,
                                             &s->algorithm, &s->state, &scratch, err);
    if (status != TRM_OK) {
        trmi_free(s);
        return status;
    }
    /* how many bytes before this rank's part the memory of rank 0 begins */
    int image = image_input(k->step);
    s->image_before = part->rank * trmi_kernel_input_buffer(k, image)->bytes;
    s->result_before = part->rank * trmi_kernel_input_buffer(k, 1 - image)->bytes;
    k->state = s;
    k->run = cooperative_run;
    k->destroy = cooperative_destroy;
    ((trmi_step *)(uintptr_t)k->step)->algorithm = "gemm, of all ranks";
    if (scratch > k->step->scratch_bytes) {
        cooperative_destroy(k);
        return TRMI_FAIL(err, TRM_INTERNAL,
                         "%s: %" PRId64 " bytes of scratch planned, %" PRId64 " needed",
                         k->step->name, k->step->scratch_bytes, scratch);
    }
    return TRM_OK;
}

/* Contract in cooperative_gradient.h. It is that of one row of dW, because it does not depend on
 * how many rows a rank computes (bind checks this). */
int64_t trmi_onednn_cooperative_scratch(trmi_onednn *state, const trm_program *program,
                                        const trmi_step *step) {
    trmi_conv_problem problem;
    const trmi_conv_algorithm *algorithm;
    void *made;
    int64_t scratch = 0;
    if (cooperative_problem(program, step, &problem) &&
        trmi_conv_gradw_rows(state, &problem, 0, 1, &algorithm, &made, &scratch, NULL) == TRM_OK) {
        algorithm->destroy(made);
    }
    return scratch;
}
