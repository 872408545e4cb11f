/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/conv.h: convolution problems, and the algorithms that solve them.
 *
 *      step --problem--> key --tuning--> algorithm --create--> state --run (every step)-->
 *
 * All directions share one problem: `image` is x or dx, `weights` w or dw, `result` y or dy.
 */
#ifndef TRMI_EXEC_CPU_CONV_H
#define TRMI_EXEC_CPU_CONV_H

#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/gemm/gemm_isa.h"

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

/* The operands of a run. The direction of the problem determines which of the three is the
 * output. */
typedef struct trmi_conv_args {
    void *image, *weights, *result;
    const float *bias;
    /* 64-byte aligned; as many bytes as `create` returned, or scratch_bytes if that is more */
    char *scratch;
    int64_t scratch_bytes;
} trmi_conv_args;

typedef struct trmi_conv_algorithm trmi_conv_algorithm;
struct trmi_conv_algorithm {
    const char *name; /* as the tuning file and --explain print it */
    /* Returns the loops of its products: trmi_gemm or trmi_gemm_pairs; NULL = has others. */
    const trmi_gemm_isa *(*tile)(void);
    /* Returns whether it can solve the problem on this CPU. Cheap. */
    bool (*can)(const trmi_conv_problem *problem);
    /* Returns the seconds that the built-in model predicts; ranks algorithms without
     * measurement. */
    double (*guess)(const trmi_conv_problem *problem, int threads);
    /* Returns its FLOPs, if fewer than trmi_conv_work (Winograd); NULL = trmi_conv_work. */
    double (*work)(const trmi_conv_problem *problem);
    /* Makes the state of a problem; *scratch: bytes that a run needs. `self`: this algorithm.
     *   errors  UNSUPPORTED: it cannot solve the problem after all; NOMEM */
    trm_status (*create)(const trmi_conv_algorithm *self, trmi_onednn *backend,
                         const trmi_conv_problem *problem, void **state, int64_t *scratch,
                         trm_error *err);
    trm_status (*run)(const void *state, const trmi_conv_args *args, trm_error *err);
    void (*destroy)(void *state);
};

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

/* A tensor of a convolution operator. trmi_conv_problem_of sets *problem from a convolution
 * operator of any direction, with the tensors in the order of its inputs and output. Returns false
 * if it is no convolution, or no algorithm supports its types or shapes. */
typedef struct trmi_conv_tensor {
    trm_dtype dtype;
    trm_shape shape;
    trmi_layout layout;
} trmi_conv_tensor;
bool trmi_conv_problem_of(trmi_op_kind kind, const trmi_attrs *attrs, const trmi_conv_tensor *in0,
                          const trmi_conv_tensor *in1, const trmi_conv_tensor *out, bool bias,
                          trmi_conv_problem *problem);
/* Returns the FLOPs, with padding (two for each multiply-add), as tables in papers count. */
double trmi_conv_flops(const trmi_conv_problem *problem);
/* Returns the FLOPs without products with padding. */
double trmi_conv_work(const trmi_conv_problem *problem);
/* Creates the weight gradient by matrix products for rows [begin, end) of dW [taps * c, o] (HWIO);
 * a few neighbouring rows may be written, too.   errors  NOMEM */
trm_status trmi_conv_gradw_rows(trmi_onednn *backend, const trmi_conv_problem *problem,
                                int64_t begin, int64_t end, const trmi_conv_algorithm **algorithm,
                                void **state, int64_t *scratch, trm_error *err);
/* Writes the key of the problem in the tuning file, and returns `text`. */
const char *trmi_conv_key(const trmi_conv_problem *problem, char *text, size_t size);
/* Return the numbers of elements of the three tensors. */
int64_t trmi_conv_image_count(const trmi_conv_problem *problem);
int64_t trmi_conv_weights_count(const trmi_conv_problem *problem);
int64_t trmi_conv_result_count(const trmi_conv_problem *problem);

/* ---- choice (conv_choice.c) ------------------------------------------------------------------ */

/* Chooses an algorithm (conv_choice.c), by measurement if the back-end may measure, and creates its
 * state.
 *   errors  UNSUPPORTED: none, NOMEM */
trm_status trmi_conv_choose(trmi_onednn *backend, const trmi_conv_problem *problem,
                            const trmi_conv_algorithm **algorithm, void **state, int64_t *scratch,
                            trm_error *err);
/* Returns the seconds of the choice, measured or by the model; negative if no algorithm can. */
double trmi_conv_seconds(trmi_onednn *backend, const trmi_conv_problem *problem);
/* Returns whether there is an algorithm. Cheap, unless only oneDNN is left to try. */
bool trmi_conv_possible(trmi_onednn *backend, const trmi_conv_problem *problem);

/* Sets the problem of a convolution's program step; false as above. */
bool trmi_conv_problem_of_step(const trm_program *program, const trmi_step *step,
                               trmi_conv_problem *problem);

/* Functions of the convolutions' rows in the back-end's table (exec/cpu/dnnl/onednn.h). */
trm_status trmi_onednn_bind_conv(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
bool trmi_onednn_conv_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout);
double trmi_onednn_conv_seconds(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                trmi_layout layout);
int64_t trmi_onednn_conv_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step);

#endif
