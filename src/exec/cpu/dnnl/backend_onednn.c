/* SPDX-License-Identifier: Apache-2.0 */
/* The fast back-end (`onednn`): a table from operator kind to kernel functions, the answers to the
 * planner's questions, creation and destruction. A new kernel needs a file and a row here. The name
 * is historical: oneDNN solves only some convolutions; all other kernels are Trireme's.
 *
 *   bind       makes the kernel of a step
 *   supports   whether there is one for these types and this layout; else `ref` computes the step
 *   seconds    how long it takes, where that depends on a choice of algorithms; else the planner
 *              estimates it
 *   scratch    bytes that a run needs beside its inputs and outputs
 *   in_place   whether the output may lie where an input does
 *
 * Measurements (rates of the machine, whether pairs of bfloat16 are faster) are kept in the tuning
 * file, so that a later process, and a resumed run, decides the same. With blocks (strict mode) no
 * measurement decides. */
#include "exec/cpu/conv/conv.h"
#include "exec/cpu/gemm/gemm_isa.h"
#include "exec/cpu/gemm/cooperative_gradient.h"
#include "exec/cpu/ops/keyed.h"
#include "exec/cpu/gemm/matmul.h"
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/tuning/rates.h"
#include "exec/cpu/tuning/tuning.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

/* ---- the table ----------------------------------------------------------------------------- */

static const trmi_onednn_row rows[TRMI_OP_KINDS] = {
/* conv.c */
#define CONV_ROW                                                                                   \
    {                                                                                              \
        trmi_onednn_bind_conv, trmi_onednn_conv_supports, trmi_onednn_conv_seconds,                \
            trmi_onednn_conv_scratch, NULL                                                         \
    }
    [TRMI_OP_CONV2D] = CONV_ROW,
    [TRMI_OP_CONV2D_GRAD_DATA] = CONV_ROW,
    [TRMI_OP_CONV2D_GRAD_WEIGHTS] = CONV_ROW,
    /* matmul.c */
    [TRMI_OP_LINEAR] = {trmi_onednn_bind_matmul, trmi_onednn_matmul_supports, NULL,
                        trmi_onednn_matmul_scratch, NULL},
    [TRMI_OP_MATMUL] = {trmi_onednn_bind_matmul, trmi_onednn_matmul_supports, NULL,
                        trmi_onednn_matmul_scratch, NULL},
/* norm.c */
#define NORM_ROW                                                                                   \
    {                                                                                              \
        trmi_onednn_bind_norm, trmi_onednn_norm_supports, NULL, trmi_onednn_norm_scratch,          \
            trmi_onednn_norm_in_place                                                              \
    }
    [TRMI_OP_BATCH_NORM] = NORM_ROW,
    [TRMI_OP_BATCH_NORM_INFER] = NORM_ROW,
    [TRMI_OP_BATCH_NORM_GRAD] = NORM_ROW,
    [TRMI_OP_NORM_ACT] = NORM_ROW,
    [TRMI_OP_NORM_ACT_APPLY] = NORM_ROW,
    [TRMI_OP_NORM_ACT_INFER] = NORM_ROW,
    [TRMI_OP_NORM_ACT_GRAD] = NORM_ROW,
/* eltwise.c */
#define ELTWISE_ROW                                                                                \
    {                                                                                              \
        trmi_onednn_bind_eltwise, trmi_onednn_eltwise_supports, NULL, NULL,                        \
            trmi_onednn_eltwise_in_place                                                           \
    }
    [TRMI_OP_ADD] = ELTWISE_ROW,
    [TRMI_OP_SUB] = ELTWISE_ROW,
    [TRMI_OP_MUL] = ELTWISE_ROW,
    [TRMI_OP_DIV] = ELTWISE_ROW,
    [TRMI_OP_RELU] = ELTWISE_ROW,
    [TRMI_OP_RELU_GRAD] = ELTWISE_ROW,
    [TRMI_OP_SIGMOID] = ELTWISE_ROW,
    [TRMI_OP_SIGMOID_GRAD] = ELTWISE_ROW,
    [TRMI_OP_TANH] = ELTWISE_ROW,
    [TRMI_OP_TANH_GRAD] = ELTWISE_ROW,
    [TRMI_OP_GELU] = ELTWISE_ROW,
    [TRMI_OP_GELU_GRAD] = ELTWISE_ROW,
    [TRMI_OP_SILU] = ELTWISE_ROW,
    [TRMI_OP_SILU_GRAD] = ELTWISE_ROW,
    [TRMI_OP_SWIGLU] = ELTWISE_ROW,
    [TRMI_OP_EXP] = ELTWISE_ROW,
    [TRMI_OP_LOG] = ELTWISE_ROW,
    [TRMI_OP_SQRT] = ELTWISE_ROW,
    [TRMI_OP_SCALE] = ELTWISE_ROW,
    [TRMI_OP_CAST] = ELTWISE_ROW,
    [TRMI_OP_DROPOUT] = {trmi_onednn_bind_dropout, trmi_onednn_plain_supports, NULL, NULL,
                         trmi_onednn_eltwise_in_place},
    /* reorder.c */
    [TRMI_OP_TRANSPOSE] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_CONCAT] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_SLICE] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_PAD] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_BROADCAST] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_ONE_HOT] = {trmi_onednn_bind_one_hot, trmi_onednn_plain_supports, NULL, NULL, NULL},
/* reduce.c */
#define REDUCE_ROW                                                                                 \
    { trmi_onednn_bind_reduce, trmi_onednn_float_supports, NULL, trmi_onednn_reduce_scratch, NULL }
    [TRMI_OP_REDUCE_SUM] = REDUCE_ROW,
    [TRMI_OP_REDUCE_MEAN] = REDUCE_ROW,
    [TRMI_OP_REDUCE_MAX] = REDUCE_ROW,
    [TRMI_OP_REDUCE_MAX_GRAD] = REDUCE_ROW,
    [TRMI_OP_GLOBAL_AVG_POOL] = REDUCE_ROW,
    [TRMI_OP_GLOBAL_AVG_POOL_GRAD] = {trmi_onednn_bind_global_pool_grad, trmi_onednn_float_supports,
                                      NULL, NULL, NULL},
    /* pool.c */
    [TRMI_OP_MAX_POOL] = {trmi_onednn_bind_pool, trmi_onednn_pool_supports, NULL, NULL, NULL},
    [TRMI_OP_AVG_POOL] = {trmi_onednn_bind_pool, trmi_onednn_pool_supports, NULL, NULL, NULL},
    [TRMI_OP_MAX_POOL_GRAD] = {trmi_onednn_bind_pool_grad, trmi_onednn_pool_supports, NULL,
                               trmi_onednn_pool_grad_scratch, NULL},
    [TRMI_OP_AVG_POOL_GRAD] = {trmi_onednn_bind_pool_grad, trmi_onednn_pool_supports, NULL,
                               trmi_onednn_pool_grad_scratch, NULL},
/* loss.c */
#define LOSS_ROW                                                                                   \
    {                                                                                              \
        trmi_onednn_bind_loss, trmi_onednn_plain_supports, NULL, trmi_onednn_loss_scratch,         \
            trmi_onednn_loss_in_place                                                              \
    }
    [TRMI_OP_SOFTMAX] = LOSS_ROW,
    [TRMI_OP_SOFTMAX_GRAD] = LOSS_ROW,
    [TRMI_OP_SOFTMAX_XENT] = LOSS_ROW,
    [TRMI_OP_SOFTMAX_XENT_GRAD] = LOSS_ROW,
    [TRMI_OP_BCE_LOGITS] = LOSS_ROW,
    [TRMI_OP_BCE_LOGITS_GRAD] = LOSS_ROW,
/* rows.c */
#define ROW_NORM_ROW                                                                               \
    {                                                                                              \
        trmi_onednn_bind_row_norm, trmi_onednn_plain_supports, NULL, trmi_onednn_row_norm_scratch, \
            trmi_onednn_row_norm_in_place                                                          \
    }
    [TRMI_OP_LAYER_NORM] = ROW_NORM_ROW,
    [TRMI_OP_LAYER_NORM_GRAD] = ROW_NORM_ROW,
    [TRMI_OP_RMS_NORM] = ROW_NORM_ROW,
    [TRMI_OP_RMS_NORM_GRAD] = ROW_NORM_ROW,
    [TRMI_OP_ROTARY] = {trmi_onednn_bind_rotary, trmi_onednn_plain_supports, NULL, NULL, NULL},
    [TRMI_OP_SWIGLU_GRAD] = {trmi_onednn_bind_swiglu_grad, trmi_onednn_plain_supports, NULL, NULL,
                             NULL},
    /* linear_loss.c */
    [TRMI_OP_LINEAR_XENT] = {trmi_onednn_bind_linear_loss, trmi_onednn_plain_supports, NULL,
                             trmi_onednn_linear_loss_scratch, NULL},
    /* experts.c */
    [TRMI_OP_EXPERT_LINEAR] = {trmi_onednn_bind_experts, trmi_onednn_plain_supports, NULL,
                               trmi_onednn_experts_scratch, NULL},
    [TRMI_OP_EXPERT_GRAD_WEIGHTS] = {trmi_onednn_bind_experts, trmi_onednn_plain_supports, NULL,
                                     trmi_onednn_experts_scratch, NULL},
    /* attention*.c */
    [TRMI_OP_ATTENTION] = {trmi_onednn_bind_attention, trmi_onednn_plain_supports, NULL,
                           trmi_onednn_attention_scratch, NULL},
    [TRMI_OP_ATTENTION_GRAD] = {trmi_onednn_bind_attention_grad, trmi_onednn_plain_supports, NULL,
                                trmi_onednn_attention_grad_scratch, NULL},
    [TRMI_OP_ATTENTION_JOIN] = {trmi_onednn_bind_attention_join, trmi_onednn_plain_supports, NULL,
                                NULL, trmi_onednn_attention_join_in_place},
    /* embed.c */
    [TRMI_OP_EMBEDDING] = {trmi_onednn_bind_embedding, trmi_onednn_plain_supports, NULL, NULL,
                           NULL},
    [TRMI_OP_EMBEDDING_GRAD] = {trmi_onednn_bind_embedding_grad, trmi_onednn_plain_supports, NULL,
                                NULL, trmi_onednn_embedding_grad_in_place},
    /* keyed.c */
    [TRMI_OP_KEYED_LINEAR] = {trmi_onednn_bind_keyed, trmi_onednn_plain_supports, NULL,
                              trmi_onednn_keyed_scratch, NULL},
    [TRMI_OP_KEYED_LINEAR_GRAD] = {trmi_onednn_bind_keyed, trmi_onednn_plain_supports, NULL,
                                   trmi_onednn_keyed_scratch, NULL},
    /* bags_and_pairs.c */
    [TRMI_OP_PAIR_DOTS] = {trmi_onednn_bind_pairs, trmi_onednn_plain_supports, NULL, NULL, NULL},
    [TRMI_OP_PAIR_DOTS_GRAD] = {trmi_onednn_bind_pairs, trmi_onednn_plain_supports, NULL, NULL,
                                NULL},
    [TRMI_OP_BAG_POOL] = {trmi_onednn_bind_bags, trmi_onednn_plain_supports, NULL, NULL, NULL},
    [TRMI_OP_BAG_POOL_GRAD] = {trmi_onednn_bind_bags, trmi_onednn_plain_supports, NULL, NULL, NULL},
    /* exec/distributed/communication.c: bound before the back-end is asked */
    [TRMI_OP_ALL_REDUCE] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_EXCHANGE] = {.bind = trmi_onednn_bind_move},
    [TRMI_OP_NONE] = {NULL, NULL, NULL, NULL, NULL},
};

/* ---- for the planner ----------------------------------------------------------------------- */

/* Answers the planner: is there a kernel for this operator, its types and this layout? */
static bool target_supports(void *context, const trm_graph *graph, const trmi_op *op,
                            trmi_layout layout) {
    const trmi_onednn_row *row = &rows[op->kind];
    if (row->bind == NULL) {
        return layout == TRMI_PLAIN;
    }
    if (row->supports == NULL) {
        return layout == TRMI_PLAIN || layout == TRMI_CHANNELS_LAST;
    }
    return row->supports(context, graph, op, layout);
}

/* The functions of trmi_target (plan/lower/program.h), which the planner calls: each looks up the
 * row of the operator, and answers for itself where the row has no function. */
static double target_seconds(void *context, const trm_graph *graph, const trmi_op *op,
                             trmi_layout layout) {
    const trmi_onednn_row *row = &rows[op->kind];
    return row->seconds == NULL ? -1 : row->seconds(context, graph, op, layout);
}

static int64_t target_scratch(void *context, const trm_program *program, const trmi_step *step) {
    if (step->kind != TRMI_STEP_OP) {
        return 0;
    }
    if (step->cooperative) {
        return trmi_onednn_cooperative_scratch(context, program, step);
    }
    const trmi_onednn_row *row = &rows[step->op_kind];
    return row->scratch == NULL ? 0 : row->scratch(context, program, step);
}

static bool target_in_place(void *context, const trm_graph *graph, const trmi_op *op, int input) {
    const trmi_onednn_row *row = &rows[op->kind];
    return row->in_place != NULL && row->in_place(context, graph, op, input);
}

/* Returns whether the kernel rounds this input to bfloat16 by itself, so that no cast is needed. */
static bool target_rounds(void *context, const trm_graph *graph, const trmi_op *op, int input) {
    return trmi_onednn_matmul_rounds(context, graph, op, input);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Makes the kernel of a step by its row of the table. UNSUPPORTED: there is none, the reference
 * computes the step. */
static trm_status backend_bind(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    const trmi_step *step = kernel->step;
    trmi_onednn_trials_done(backend->state);
    if (step->kind == TRMI_STEP_REORDER) {
        return trmi_onednn_bind_move(backend, kernel, err);
    }
    if (rows[step->op_kind].bind == NULL) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: the onednn back-end has no kernel", step->name);
    }
    return rows[step->op_kind].bind(backend, kernel, err);
}

/* Saves and frees the tuning tables, which may be larger than all kernels of a small model. */
static void backend_settle(trmi_backend *backend) {
    trmi_onednn *state = backend->state;
    if (state->tuning != NULL) {
        trmi_onednn_trials_done(state);
    }
    trmi_tuning_destroy(state->tuning);
    trmi_tuning_destroy(state->kept);
    state->tuning = state->kept = NULL;
}

/* Saves what was measured, then frees. Kernels must be destroyed before. */
static void backend_destroy(trmi_backend *backend) {
    if (backend == NULL) {
        return;
    }
    trmi_onednn *state = backend->state;
    if (state != NULL) {
        backend_settle(backend);
        trmi_dnnl_destroy(state->dnnl);
    }
    trmi_free(state);
    trmi_free(backend);
}

/* Keys of the machine's rates, kept as the seconds of 1e12 FLOPs or bytes. */
static const char flops_key[] = "machine flops", bytes_key[] = "machine bytes",
                  pairs_key[] = "machine pairs";

/* Reads the machine's rates from the tuning file. Returns false if one is missing. */
static bool find_rates(trmi_target *target, const trmi_tuning *tuning) {
    const char *name;
    double flops, bytes;
    if (!trmi_tuning_find(tuning, flops_key, &name, &flops) ||
        !trmi_tuning_find(tuning, bytes_key, &name, &bytes) || flops <= 0 || bytes <= 0) {
        return false;
    }
    target->flops_per_second = 1e12 / flops;
    target->bytes_per_second = 1e12 / bytes;
    return true;
}

/* Adds the rates to the tuning table, which is saved with it. */
static void add_rates(const trmi_target *target, trmi_tuning *tuning) {
    trmi_tuning_add(tuning, flops_key, "tile", 1e12 / target->flops_per_second);
    trmi_tuning_add(tuning, bytes_key, "copy", 1e12 / target->bytes_per_second);
}

/* Decides whether layers multiply pairs of bfloat16: as `tuning` says, or by what is measured now,
 * which is added to it. Kept as the seconds of 1e12 FLOPs of pairs. */
static void decide_pairs(trmi_onednn *state, double flops_per_second, trmi_tuning *tuning,
                         bool measured) {
    const char *name;
    double seconds;
    if (trmi_gemm_pairs() == NULL) {
        return;
    }
    if (trmi_tuning_find(tuning, pairs_key, &name, &seconds)) {
        state->pairs = strcmp(name, "pairs") == 0;
        return;
    }
    state->pairs = measured ? trmi_onednn_pairs_gain() > 1 : state->pairs;
    trmi_tuning_add(tuning, pairs_key, state->pairs ? "pairs" : "widened",
                    1e12 / (flops_per_second * trmi_onednn_pairs_gain()));
}

/* Sets the rates of the target: from the tuning file, or measured now and added to it. */
static void fill_rates(trmi_target *target, trmi_onednn *state) {
    if (!find_rates(target, state->tuning)) {
        trmi_onednn_rates(state->threads, &target->flops_per_second, &target->bytes_per_second);
        add_rates(target, state->tuning);
        (void)find_rates(target, state->tuning); /* rounded as the next process reads them */
    }
}

void trmi_backend_onednn_retune(trmi_backend *backend, double seconds) {
    trmi_onednn_of(backend)->retune_seconds = seconds;
}

trm_status trmi_backend_onednn_keep(trmi_backend *backend, const char *file, trm_error *err) {
    trmi_onednn *state = trmi_onednn_of(backend);
    TRMI_TRY(trmi_tuning_create(file, state->threads, trmi_dnnl_version(), trmi_gemm()->name,
                                &state->kept, err));
    if (!find_rates(&backend->target, state->kept)) {
        add_rates(&backend->target, state->kept);
    }
    decide_pairs(state, backend->target.flops_per_second, state->kept, false);
    return TRM_OK;
}

void trmi_backend_onednn_blocks(trmi_backend *backend, bool single_blocks) {
    trmi_onednn *state = trmi_onednn_of(backend);
    state->strict = true;
    state->pairs = false; /* bits do not depend on what was measured */
    state->single_blocks = single_blocks;
    backend->target.fuse_keyed = backend->target.cooperative = false;
    /* never measured: the program depends on them */
    backend->target.flops_per_second = 1e11;
    backend->target.bytes_per_second = 1e10;
}

/* Starts the OpenMP threads, which the runtime then keeps. It aborts the process if it cannot start
 * one, so their memory is checked first. */
static trm_status start_threads(int threads, trm_error *err) {
    if (threads > 1 && !trmi_os_has_room((size_t)(threads - 1) * trmi_os_thread_bytes())) {
        return TRMI_NO_MEMORY(err, "for %d threads of the onednn back-end", threads);
    }
    int started = 0;
#pragma omp parallel num_threads(threads) reduction(+ : started)
    { started++; /* an empty region is compiled to nothing */ }
    TRMI_ASSERT(started > 0);
    return TRM_OK;
}

/* Contract in exec/backend.h. `target` says what the compiler may rely on: which fusions have
 * kernels, and how long a step takes and how much scratch it needs. The threads are started
 * here, so that no training step pays for it. */
trm_status trmi_backend_onednn(int threads, const char *cache_file, trmi_backend **out,
                               trm_error *err) {
    trmi_backend *backend = trmi_alloc(sizeof *backend);
    trmi_onednn *state = trmi_alloc(sizeof *state);
    if (backend == NULL || state == NULL) {
        trmi_free(backend);
        trmi_free(state);
        return TRMI_NO_MEMORY(err, "for the onednn back-end");
    }
    *state = (trmi_onednn){.threads = threads < 1 ? 1 : threads};
    *backend = (trmi_backend){.name = "onednn",
                              .state = state,
                              .bind = backend_bind,
                              .bind_cooperative = trmi_onednn_bind_cooperative,
                              .settle = backend_settle,
                              .destroy = backend_destroy};
    backend->target = (trmi_target){.context = state,
                                    .name = "onednn",
                                    .threads = state->threads,
                                    .fuse_norm_act = true,
                                    .recompute_cheap = true,
                                    .fuse_xent = true,
                                    .fuse_product = true,
                                    .fuse_keyed = true,
                                    .channels_last = true,
                                    .cooperative = true,
                                    .supports = target_supports,
                                    .seconds = target_seconds,
                                    .scratch = target_scratch,
                                    .in_place = target_in_place,
                                    .rounds = target_rounds};
    trm_status status = start_threads(state->threads, err);
    status = status == TRM_OK ? trmi_dnnl_create(&state->dnnl, err) : status;
    if (status == TRM_OK) {
        status = trmi_tuning_create(cache_file, state->threads, trmi_dnnl_version(),
                                    trmi_gemm()->name, &state->tuning, err);
    }
    if (status != TRM_OK) {
        backend_destroy(backend);
        return status;
    }
    fill_rates(&backend->target, state);
    decide_pairs(state, backend->target.flops_per_second, state->tuning, true);
    *out = backend;
    return TRM_OK;
}
