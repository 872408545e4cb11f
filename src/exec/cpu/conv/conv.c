/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution steps of the fast back-end. Binding derives a problem (conv_problem.c) from the step,
 * chooses an algorithm (conv_choice.c) and creates its state; running maps the step's buffers to
 * image, weights and result by the direction. All three directions go through this file:
 *
 *   forward   image, weights [, bias] -> result        data      result, weights -> image
 *   weights   image, result -> weights
 *
 * The planner asks the same questions before there is a step (problem_of_op): is there a kernel,
 * how long does it take, how much scratch does it need. The scratch that was planned is all there
 * is: an algorithm that needs more is a defect, not a larger allocation. */
#include "exec/cpu/conv/conv.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>

/* The state of a bound kernel. */
typedef struct bound {
    const trmi_conv_algorithm *algorithm;
    void *state;
    trmi_conv_direction direction;
} bound;

/* ---- the problem of a step or an operator ---------------------------------------------------- */

/* Returns what the problem needs to know of a buffer of the program. */
static trmi_conv_tensor tensor_of_buffer(const trmi_buffer *b) {
    return (trmi_conv_tensor){.dtype = b->dtype, .shape = b->shape, .layout = b->layout};
}

/* Contract in conv.h. Returns false for steps that are no convolution of two tensors. */
bool trmi_conv_problem_of_step(const trm_program *program, const trmi_step *step,
                               trmi_conv_problem *problem) {
    if (step->inputs_count < 2 || step->outputs_count < 1) {
        return false;
    }
    trmi_conv_tensor in0 = tensor_of_buffer(&program->buffers[step->inputs[0]]);
    trmi_conv_tensor in1 = tensor_of_buffer(&program->buffers[step->inputs[1]]);
    trmi_conv_tensor out = tensor_of_buffer(&program->buffers[step->outputs[0]]);
    bool bias = step->inputs_count > 2 && step->inputs[2] != 0;
    return trmi_conv_problem_of(step->op_kind, step->attrs, &in0, &in1, &out, bias, problem);
}

/* Sets the problem of an operator of a graph, as if its tensors had `layout`. The planner asks
 * before a layout is chosen. */
static bool problem_of_op(const trm_graph *graph, const trmi_op *op, trmi_layout layout,
                          trmi_conv_problem *problem) {
    const trmi_value *a = trmi_input_of(graph, op, 0), *b = trmi_input_of(graph, op, 1);
    const trmi_value *y = trmi_output_of(graph, op, 0);
    if (a == NULL || b == NULL) {
        return false;
    }
    trmi_conv_tensor in0 = {a->dtype, a->shape, layout}, in1 = {b->dtype, b->shape, layout};
    trmi_conv_tensor out = {y->dtype, y->shape, layout};
    return trmi_conv_problem_of(op->kind, &op->attrs, &in0, &in1, &out,
                                trmi_input_of(graph, op, 2) != NULL, problem);
}

/* Strict determinism: the blocks of samples of a sum over samples, or one by itself where blocks
 * are summed apart; other sums are of one sample each. step NULL: it is not known yet. */
static void set_blocks(const trmi_onednn *state, const trmi_step *step, trmi_conv_problem *p) {
    bool sums = step != NULL && step->over_samples;
    p->blocks = !state->strict ? 0 : sums && !state->single_blocks ? step->blocks : 1;
    p->n /= sums && state->single_blocks ? step->blocks : 1;
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Runs the algorithm on the step's buffers. */
static trm_status conv_run(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const bound *b = k->state;
    void *in0 = trmi_kernel_input(k, env, 0), *in1 = trmi_kernel_input(k, env, 1);
    void *out = trmi_kernel_output(k, env, 0);
    trmi_conv_args args = {.scratch = trmi_kernel_scratch(k, env),
                           .scratch_bytes = trmi_kernel_scratch_bytes(k)};
    if (out == NULL) {
        return TRM_OK;
    }
    switch (b->direction) {
    case TRMI_CONV_FORWARD:
        args.image = in0, args.weights = in1, args.result = out;
        args.bias = trmi_kernel_input(k, env, 2);
        break;
    case TRMI_CONV_DATA: args.result = in0, args.weights = in1, args.image = out; break;
    default: args.result = in0, args.image = in1, args.weights = out;
    }
    return b->algorithm->run(b->state, &args, err);
}

/* Frees the algorithm's state, which only the algorithm knows. */
static void conv_destroy(trmi_kernel *k) {
    bound *b = k->state;
    if (b != NULL) {
        b->algorithm->destroy(b->state);
    }
    trmi_free(b);
    k->state = NULL;
}

/* ---- for the back-end's table ---------------------------------------------------------------- */

/* Contract in conv.h. Chooses an algorithm for the shape and keeps its state in the kernel. The
 * scratch memory was planned when the program was compiled; a choice that needs more is an
 * internal error, not a larger allocation. */
trm_status trmi_onednn_bind_conv(trmi_backend *backend, trmi_kernel *k, trm_error *err) {
    trmi_conv_problem problem;
    if (!trmi_conv_problem_of_step(k->program, k->step, &problem)) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: no fast convolution of these types or layouts",
                         k->step->name);
    }
    bound *b;
    TRMI_TRY(TRMI_NEW(err, b, 1, "for %s", k->step->name));
    int64_t scratch = 0;
    trmi_onednn *state = trmi_onednn_of(backend);
    set_blocks(state, k->step, &problem);
    trm_status status = trmi_conv_choose(state, &problem, &b->algorithm, &b->state, &scratch, err);
    if (status != TRM_OK) {
        trmi_free(b);
        return status;
    }
    b->direction = problem.direction;
    /* --explain shows these. The program is not const; only the kernel's pointer to it is. */
    trmi_step *shown = (trmi_step *)(uintptr_t)k->step;
    shown->algorithm = b->algorithm->name;
    /* Winograd needs fewer multiplications than the definition of a convolution, and makes them in
     * float32 whatever the types are: reports of efficiency need both numbers. */
    double work = trmi_conv_work(&problem);
    double less = b->algorithm->work != NULL ? b->algorithm->work(&problem) : work;
    shown->work_flops = work;
    shown->work_float32 = less < work ? less : 0;
    k->state = b;
    k->by_block = k->step->over_samples && state->single_blocks;
    k->run = conv_run;
    k->destroy = conv_destroy;
    if (scratch > k->step->scratch_bytes) {
        conv_destroy(k);
        return TRMI_FAIL(err, TRM_INTERNAL,
                         "%s: %" PRId64 " bytes of scratch planned, %" PRId64 " needed",
                         k->step->name, k->step->scratch_bytes, scratch);
    }
    return TRM_OK;
}

bool trmi_onednn_conv_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout) {
    trmi_conv_problem problem;
    if (!problem_of_op(graph, op, layout, &problem)) {
        return layout == TRMI_PLAIN;
    }
    set_blocks(state, NULL, &problem);
    return layout == TRMI_PLAIN || trmi_conv_possible(state, &problem);
}

double trmi_onednn_conv_seconds(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                trmi_layout layout) {
    trmi_conv_problem problem;
    if (!problem_of_op(graph, op, layout, &problem)) {
        return -1;
    }
    set_blocks(state, NULL, &problem);
    return trmi_conv_seconds(state, &problem);
}

/* Contract in conv.h. The algorithm is chosen and made as bind will do it, because only it knows
 * what it needs; the tuning file makes sure that both calls choose the same. */
int64_t trmi_onednn_conv_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step) {
    trmi_conv_problem problem;
    bound b = {0};
    int64_t scratch = 0;
    if (!trmi_conv_problem_of_step(program, step, &problem)) {
        return 0;
    }
    set_blocks(state, step, &problem);
    if (trmi_conv_choose(state, &problem, &b.algorithm, &b.state, &scratch, NULL) != TRM_OK) {
        return 0;
    }
    b.algorithm->destroy(b.state);
    return scratch;
}
