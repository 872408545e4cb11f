/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/conv.h: a convolution as a problem, and the algorithms that can solve it.
 *
 *      step --problem--> key --tuning--> algorithm --create--> state --run (every step)-->
 *
 * All directions share one problem: `image` is x or dx, `weights` w or dw, `result` y or dy.
 */
#ifndef TRMI_EXEC_ONEDNN_CONV_H
#define TRMI_EXEC_ONEDNN_CONV_H

#include "exec/cpu/dnnl/onednn.h"

enum { TRMI_STREAM_BYTES = 16 << 20 }; /* larger outputs are stored past the caches */

typedef struct trmi_conv_problem {
    trmi_conv_direction direction;
    trm_dtype image_type, weights_type, result_type; /* FLOAT32 or BFLOAT16 */
    trmi_layout layout, weights_layout;              /* PLAIN or CHANNELS_LAST (weights: HWIO) */
    int64_t n, c, h, w;                              /* image */
    int64_t o, oh, ow, kh, kw, groups;
    int64_t stride[2], dilation[2], pad[4]; /* dilation 1 = dense; pad: top, bottom, left, right */
    bool bias;                              /* forward, float32 [O] */
    /* strict determinism: the images are so many blocks of samples, and sums do not depend on how
     * many; 0 = no blocks */
    int32_t blocks;
} trmi_conv_problem;

/* What a run reads and writes. The direction says which of the three is the output. */
typedef struct trmi_conv_args {
    void *image, *weights, *result;
    const float *bias;
    /* 64-byte aligned, as many bytes as `create` asked, or `scratch_bytes`, if they are more */
    char *scratch;
    int64_t scratch_bytes;
} trmi_conv_args;

typedef struct trmi_conv_algorithm {
    const char *name; /* as the tuning file and --explain print it */
    /* Can it solve the problem on this CPU? Cheap. */
    bool (*can)(const trmi_conv_problem *problem);
    /* Expected seconds by the built-in model: the ranking without measurement. */
    double (*guess)(const trmi_conv_problem *problem, int threads);
    /* Flops that it does, when fewer than trmi_conv_work; NULL = that. */
    double (*work)(const trmi_conv_problem *problem);
    /* UNSUPPORTED when it cannot after all. `scratch` is what run needs. */
    trm_status (*create)(trmi_onednn *backend, const trmi_conv_problem *problem, void **state,
                         int64_t *scratch, trm_error *err);
    trm_status (*run)(const void *state, const trmi_conv_args *args, trm_error *err);
    void (*destroy)(void *state);
} trmi_conv_algorithm;

extern const trmi_conv_algorithm trmi_conv_dnnl;         /* conv_dnnl.c */
extern const trmi_conv_algorithm trmi_conv_gather_gemm;  /* conv_gather.c */
extern const trmi_conv_algorithm trmi_conv_gradw_gemm;   /* conv_gradw.c */
extern const trmi_conv_algorithm trmi_conv_gather_pairs; /* the same on pairs of bfloat16 */
extern const trmi_conv_algorithm trmi_conv_gradw_pairs;
extern const trmi_conv_algorithm trmi_conv_winograd; /* winograd.c */
/* of 2x2 outputs, on pairs of bfloat16 */
extern const trmi_conv_algorithm trmi_conv_winograd_pairs;
extern const trmi_conv_algorithm trmi_conv_winograd_gradw; /* winograd_gradw.c */
extern const trmi_conv_algorithm trmi_conv_winograd_gradw_pairs;

/* In the order in which ties are broken; NULL at the end. */
extern const trmi_conv_algorithm *const trmi_conv_algorithms[];

/* The problem of a convolution operator of any direction; false when it is none, or has dtypes or
 * shapes that no algorithm here takes. Tensors in the order of the op's inputs, output last. */
typedef struct trmi_conv_tensor {
    trm_dtype dtype;
    trm_shape shape;
    trmi_layout layout;
} trmi_conv_tensor;
bool trmi_conv_problem_of(trmi_op_kind kind, const trmi_attrs *attrs, const trmi_conv_tensor *in0,
                          const trmi_conv_tensor *in1, const trmi_conv_tensor *out, bool bias,
                          trmi_conv_problem *problem);
/* Multiply-adds times two, padding counted (the convention of every table). */
double trmi_conv_flops(const trmi_conv_problem *problem);
/* What any algorithm of the definition must do: padding not counted. */
double trmi_conv_work(const trmi_conv_problem *problem);
/* Rows [begin, end) of dW [taps * c, o], and perhaps some beside them, in HWIO, by matrix products.
 * NOMEM */
trm_status trmi_conv_gradw_rows(trmi_onednn *backend, const trmi_conv_problem *problem,
                                int64_t begin, int64_t end, const trmi_conv_algorithm **algorithm,
                                void **state, int64_t *scratch, trm_error *err);
/* The text under which the tuning file knows it. */
const char *trmi_conv_key(const trmi_conv_problem *problem, char *text, size_t size);
/* Elements of the three tensors. */
int64_t trmi_conv_image_count(const trmi_conv_problem *problem);
int64_t trmi_conv_weights_count(const trmi_conv_problem *problem);
int64_t trmi_conv_result_count(const trmi_conv_problem *problem);

/* ---- choice (conv_choice.c)
 *  ------------------------------------------------------------------------ */

/* The best algorithm for the problem, created; measured first where the back-end may.
 *   error  UNSUPPORTED: none, NOMEM */
trm_status trmi_conv_choose(trmi_onednn *backend, const trmi_conv_problem *problem,
                            const trmi_conv_algorithm **algorithm, void **state, int64_t *scratch,
                            trm_error *err);
/* Seconds that the choice takes: measured, or by the model; negative when there is none. */
double trmi_conv_seconds(trmi_onednn *backend, const trmi_conv_problem *problem);
/* Is there any algorithm? Cheap unless only oneDNN can tell. */
bool trmi_conv_possible(trmi_onednn *backend, const trmi_conv_problem *problem);

/* The problem of a convolution's step; false as above. */
bool trmi_conv_problem_of_step(const trm_program *program, const trmi_step *step,
                               trmi_conv_problem *problem);

/* Rows of the back-end's table. */
trm_status trmi_onednn_bind_conv(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
bool trmi_onednn_conv_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout);
double trmi_onednn_conv_seconds(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                trmi_layout layout);
int64_t trmi_onednn_conv_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step);

#endif
