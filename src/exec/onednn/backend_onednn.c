/* The fast back-end: one table from op kind to kernel. Adding a kernel is a file and a line here. */
#include "exec/onednn/conv.h"
#include "exec/onednn/gemm_isa.h"
#include "exec/onednn/matmul.h"
#include "exec/onednn/onednn.h"
#include "exec/onednn/tuning.h"

#include "base/error.h"
#include "base/memory.h"

/* ---- the table ----------------------------------------------------------------------------- */

static const trmi_onednn_row rows[TRMI_OP_KINDS] = {
    /* conv.c */
#define CONV_ROW                                                                                   \
    {trmi_onednn_bind_conv, trmi_onednn_conv_supports, trmi_onednn_conv_seconds,                   \
     trmi_onednn_conv_scratch, NULL}
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
    {trmi_onednn_bind_norm, trmi_onednn_norm_supports, NULL, trmi_onednn_norm_scratch,             \
     trmi_onednn_norm_in_place}
    [TRMI_OP_BATCH_NORM] = NORM_ROW,
    [TRMI_OP_BATCH_NORM_INFER] = NORM_ROW,
    [TRMI_OP_BATCH_NORM_GRAD] = NORM_ROW,
    [TRMI_OP_NORM_ACT] = NORM_ROW,
    [TRMI_OP_NORM_ACT_APPLY] = NORM_ROW,
    [TRMI_OP_NORM_ACT_INFER] = NORM_ROW,
    [TRMI_OP_NORM_ACT_GRAD] = NORM_ROW,
    /* pool*.c eltwise*.c loss*.c embed*.c */
    [TRMI_OP_NONE] = {NULL, NULL, NULL, NULL, NULL},
};

/* ---- what the plan asks -------------------------------------------------------------------- */

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

static double target_seconds(void *context, const trm_graph *graph, const trmi_op *op,
                             trmi_layout layout) {
    const trmi_onednn_row *row = &rows[op->kind];
    return row->seconds == NULL ? -1 : row->seconds(context, graph, op, layout);
}

static int64_t target_scratch(void *context, const trm_program *program, const trmi_step *step) {
    if (step->kind != TRMI_STEP_OP) {
        return 0;
    }
    const trmi_onednn_row *row = &rows[step->op_kind];
    return row->scratch == NULL ? 0 : row->scratch(context, program, step);
}

static bool target_in_place(void *context, const trm_graph *graph, const trmi_op *op, int input) {
    const trmi_onednn_row *row = &rows[op->kind];
    return row->in_place != NULL && row->in_place(context, graph, op, input);
}

/* ---- life ---------------------------------------------------------------------------------- */

static trm_status backend_bind(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    const trmi_step *step = kernel->step;
    trmi_onednn_trials_done(backend->state);
    if (step->kind != TRMI_STEP_OP || rows[step->op_kind].bind == NULL) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: the onednn back-end has no kernel", step->name);
    }
    return rows[step->op_kind].bind(backend, kernel, err);
}

static void backend_destroy(trmi_backend *backend) {
    if (backend == NULL) {
        return;
    }
    trmi_onednn *state = backend->state;
    if (state != NULL) {
        if (state->tuning != NULL) {
            trmi_onednn_trials_done(state);
        }
        trmi_tuning_destroy(state->tuning);
        trmi_dnnl_destroy(state->dnnl);
    }
    trmi_free(state);
    trmi_free(backend);
}

trm_status trmi_backend_onednn(int threads, const char *cache_file, trmi_backend **out,
                               trm_error *err) {
    trmi_backend *backend = trmi_alloc(sizeof *backend);
    trmi_onednn *state = trmi_alloc(sizeof *state);
    if (backend == NULL || state == NULL) {
        trmi_free(backend);
        trmi_free(state);
        return TRMI_FAIL(err, TRM_NOMEM, "onednn back-end: no memory");
    }
    *state = (trmi_onednn){.threads = threads < 1 ? 1 : threads};
    *backend = (trmi_backend){.name = "onednn",
                              .state = state,
                              .bind = backend_bind,
                              .destroy = backend_destroy};
    backend->target = (trmi_target){.context = state,
                                    .name = "onednn",
                                    .threads = state->threads,
                                    .fuse_norm_act = true,
                                    .recompute_norm_act = true,
                                    .fuse_xent = true,
                                    .channels_last = true,
                                    .supports = target_supports,
                                    .seconds = target_seconds,
                                    .scratch = target_scratch,
                                    .in_place = target_in_place};
    trm_status status = trmi_dnnl_create(&state->dnnl, err);
    if (status == TRM_OK) {
        status = trmi_tuning_create(cache_file, state->threads, trmi_dnnl_version(),
                                    trmi_gemm()->name, &state->tuning, err);
    }
    if (status != TRM_OK) {
        backend_destroy(backend);
        return status;
    }
    *out = backend;
    return TRM_OK;
}
