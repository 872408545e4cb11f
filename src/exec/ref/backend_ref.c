/* SPDX-License-Identifier: Apache-2.0 */
/* The reference back-end: runs every operator by its reference kernel, in plain layout. Tests
 * compare fast kernels with it; training uses it for operators without a fast kernel.
 *
 * The kernels (ref_*.c) are functions of tensors and attributes without any state; this file binds
 * a step of a program to one of them: shapes when the kernel is bound, addresses at each run. A
 * step over blocks of samples (strict determinism) is run once for each block, and its tensors have
 * the samples of one block. */
#include "exec/convert.h"
#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

/* Leaves of a graph: the executor fills their buffers, and no step runs them. Their rows exist so
 * that the table has one for each kind of ops.def. */
#define NO_KERNEL(row)                                                                             \
    trm_status trmi_ref_##row(const trmi_ref_args *args, trm_error *err) {                         \
        (void)args;                                                                                \
        return TRMI_FAIL(err, TRM_INTERNAL, "this operator is not run by the back-end");           \
    }
NO_KERNEL(input)
NO_KERNEL(parameter)
NO_KERNEL(state)
NO_KERNEL(constant)

const trmi_ref_kernel trmi_ref_table[TRMI_OP_KINDS] = {
#define X(KIND, row) [TRMI_OP_##KIND] = trmi_ref_##row,
#include "graph/ops.def"
#undef X
};

/* Views of the step's buffers; addresses are filled at each run. */
typedef struct bound {
    trm_tensor *inputs;
    trm_tensor outputs[TRMI_OP_OUTPUTS_MAX];
} bound;

/* Sets the addresses, which differ between runs: buffers may lie in other memory, and blocks of
 * samples follow each other. */
static void fill_views(const trmi_kernel *kernel, const trmi_kernel_env *env, bound *views) {
    const trmi_step *step = kernel->step;
    for (int32_t i = 0; i < step->inputs_count; i++) {
        views->inputs[i].data = trmi_kernel_input(kernel, env, i);
    }
    for (int32_t i = 0; i < step->outputs_count; i++) {
        views->outputs[i].data = trmi_kernel_output(kernel, env, i);
    }
}

/* Calls the reference function of the operator, with all that operators may need. */
static trm_status run_op(const trmi_kernel *kernel, const trmi_kernel_env *env, trm_error *err) {
    bound *views = kernel->state;
    const trmi_step *step = kernel->step;
    fill_views(kernel, env, views);
    trmi_ref_args args = {
        .row = trmi_op_table[step->op_kind],
        .attrs = step->attrs,
        .inputs_count = step->inputs_count,
        .outputs_count = step->outputs_count,
        .inputs = views->inputs,
        .outputs = views->outputs,
        .seed = env->seed,
        .step = trmi_dropout_step(env),
        .training = kernel->program->training,
        .norm_sync = env->norm_sync,
        .sync = env->sync,
        .block_sync = env->block_sync,
        .block_numbers = step->block_rows > 0 ? env->block_numbers : NULL,
        .block_rows = step->block_rows,
    };
    trm_status status = trmi_ref_table[step->op_kind](&args, err);
    return status == TRM_OK ? status : trmi_error_append(err, " (operator '%s')", step->name);
}

/* Converts a tensor between plain and another layout, for kernels of other back-ends in the same
 * program. */
static trm_status run_reorder(const trmi_kernel *kernel, const trmi_kernel_env *env,
                              trm_error *err) {
    (void)err;
    const trmi_buffer *from = trmi_kernel_input_buffer(kernel, 0);
    const trmi_buffer *to = trmi_kernel_output_buffer(kernel, 0);
    trmi_convert_layout(trmi_kernel_input(kernel, env, 0), from->layout,
                        trmi_kernel_output(kernel, env, 0), to->layout, from->dtype, &from->shape,
                        from->weights);
    return TRM_OK;
}

static void destroy_kernel(trmi_kernel *kernel) { trmi_free(kernel->state); }

/* Binds the reference kernel of a step: the kernel sees inputs and outputs as tensors in plain
 * layout. In blocks of samples (strict determinism) a tensor has the samples of one block, and the
 * step runs once for each. */
static trm_status bind_kernel(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    const trmi_step *step = kernel->step;
    if (step->kind == TRMI_STEP_REORDER) {
        kernel->run = run_reorder;
        return TRM_OK;
    }
    if (trmi_ref_table[step->op_kind] == NULL) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: no active way of training runs it", step->name);
    }
    size_t bytes = sizeof(bound) + (size_t)step->inputs_count * sizeof(trm_tensor);
    bound *views = trmi_alloc(bytes);
    if (views == NULL) {
        return TRMI_NO_MEMORY(err, "for the kernel of %s", step->name);
    }
    /* A step over blocks of samples sees one block: dimension 0 of what has samples is that of a
     * block. */
    views->inputs = (trm_tensor *)(views + 1);
    for (int32_t i = 0; i < step->inputs_count; i++) {
        const trmi_buffer *b = trmi_kernel_input_buffer(kernel, i);
        if (b != NULL) {
            TRMI_ASSERT(b->layout == TRMI_PLAIN || b->shape.rank != 4);
            views->inputs[i].dtype = b->dtype;
            views->inputs[i].shape = b->shape;
            bool part = step->over_samples && step->block_stride[i] > 0;
            views->inputs[i].shape.dim[0] /= part ? step->blocks : 1;
        }
    }
    kernel->by_block = step->over_samples;
    for (int32_t i = 0; i < step->outputs_count; i++) {
        const trmi_buffer *b = trmi_kernel_output_buffer(kernel, i);
        if (b != NULL) {
            views->outputs[i].dtype = b->dtype;
            views->outputs[i].shape = b->shape;
            bool part = step->over_samples && step->block_out_stride[i] > 0;
            views->outputs[i].shape.dim[0] /= part ? step->blocks : 1;
        }
    }
    kernel->state = views;
    kernel->run = run_op;
    kernel->destroy = destroy_kernel;
    return TRM_OK;
}

static void destroy_backend(trmi_backend *backend) { trmi_free(backend); }

/* Contract in exec/backend.h. The rates are guesses of plain C code; plans by them are correct, and
 * no speed is promised. */
trm_status trmi_backend_ref(int threads, trmi_backend **out, trm_error *err) {
    trmi_backend *backend;
    TRMI_TRY(TRMI_NEW(err, backend, 1, "for the reference back-end"));
    *backend = (trmi_backend){
        .name = "ref",
        /* It can run the fused operators too, so that it stands beside any program. */
        .target = {.name = "ref",
                   .threads = threads,
                   .fuse_norm_act = true,
                   .fuse_xent = true,
                   .fuse_product = true,
                   .fuse_keyed = true,
                   .recompute_cheap = true,
                   .flops_per_second = 5e7,
                   .bytes_per_second = 1e8},
        .bind = bind_kernel,
        .destroy = destroy_backend,
    };
    *out = backend;
    return TRM_OK;
}
