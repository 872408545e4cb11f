/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution by oneDNN's direct kernels: one row of the table of algorithms (conv.h). It can solve
 * every problem, so there is always an algorithm.
 *
 * The guess of its time is compared only with those of the other algorithms, and orders them before
 * any is timed. Images stay in our layouts: oneDNN gets their strides. Weights are converted in
 * each run where oneDNN prefers another layout (dnnl_compat_conv.c). */
#include "exec/cpu/conv/conv.h"

#include "exec/cpu/tuning/rates.h"

#include "base/cpu.h"

/* Describes image or result to oneDNN: sizes in its order (n, c, h, w), strides of our layout. */
static trmi_dnnl_tensor image_tensor(const trmi_conv_problem *p, bool result) {
    int64_t c = result ? p->o : p->c, h = result ? p->oh : p->h, w = result ? p->ow : p->w;
    trmi_dnnl_tensor t = {
        .dtype = result ? p->result_type : p->image_type, .rank = 4, .dim = {p->n, c, h, w}};
    if (p->layout == TRMI_CHANNELS_LAST) {
        t.stride[0] = c * h * w, t.stride[1] = 1, t.stride[2] = c * w, t.stride[3] = c;
    } else {
        t.stride[0] = c * h * w, t.stride[1] = h * w, t.stride[2] = w, t.stride[3] = 1;
    }
    return t;
}

/* Returns the weights as oneDNN describes them: [O, I, KH, KW], or [G, O/G, I/G, KH, KW]. */
static trmi_dnnl_tensor weights_tensor(const trmi_conv_problem *p) {
    int64_t i = p->c / p->groups, o = p->o / p->groups, area = p->kh * p->kw;
    int64_t dim[5] = {p->groups, o, i, p->kh, p->kw}, stride[5];
    if (p->weights_layout == TRMI_CHANNELS_LAST) { /* [KH, KW, I/G, O] */
        stride[0] = o, stride[1] = 1, stride[2] = p->o;
        stride[3] = p->kw * i * p->o, stride[4] = i * p->o;
    } else {
        stride[0] = o * i * area, stride[1] = i * area, stride[2] = area;
        stride[3] = p->kw, stride[4] = 1;
    }
    int skip = p->groups == 1 ? 1 : 0;
    trmi_dnnl_tensor t = {.dtype = p->weights_type, .rank = 5 - skip};
    for (int k = skip; k < 5; k++) {
        t.dim[k - skip] = dim[k];
        t.stride[k - skip] = stride[k];
    }
    return t;
}

/* Returns true: oneDNN solves every problem, so there is always an algorithm. */
static bool dnnl_can(const trmi_conv_problem *p) {
    (void)p;
    return true;
}

/* Returns how many times faster than float32 oneDNN multiplies bfloat16 here. */
static double bfloat16_gain(void) {
    double pairs = trmi_onednn_pairs_gain();
    return trmi_cpu()->amx_bf16 ? 4 : pairs > 0 ? pairs : 1;
}

/* Limits of the cost model: numbers of weights, bytes of images that caches hold, and pixels of a
 * large image. */
enum { MANY_WEIGHTS = 1 << 19, CACHED_BYTES = 12 << 20, LARGE = 100 };

/* Returns the speed of oneDNN's bfloat16 kernels relative to that of our tile of pairs. On large
 * images the forward kernels, and those of dense data gradients with many channels, are a tenth
 * faster than the other ones. */
static double pairs_share(const trmi_conv_problem *p) {
    bool ahead = p->direction == TRMI_CONV_FORWARD ||
                 (p->direction == TRMI_CONV_DATA && p->stride[0] == 1 && p->c >= 128);
    return ahead && p->h * p->w >= LARGE ? 0.93 : 0.85;
}

/* Predicts the seconds from rates of a core, measured on AVX-512 machines with 180 GFLOP/s a core;
 * only the ratios between algorithms matter. bfloat16 gains as our tile of pairs does, more with
 * AMX; with neither, only a trial gives the rate.
 *
 * The 1x1 forward and data kernels read images and weights in place, which is fastest while they
 * fit in the caches; data gradients with many channels are slower. Weight gradients are stored
 * through the caches, also large ones. */
static double dnnl_guess(const trmi_conv_problem *p, int threads) {
    double pixels = (double)(p->oh * p->ow), stored = 0, rate = 165e9;
    int64_t images = 4 * (trmi_conv_image_count(p) + trmi_conv_result_count(p)),
            weights = p->c * p->o;
    bool one = p->kh * p->kw == 1;
    if (p->direction == TRMI_CONV_WEIGHTS) {
        rate = one && weights >= 2 * MANY_WEIGHTS   ? 122e9
               : one && 2 * weights >= MANY_WEIGHTS ? 130e9
                                                    : 140e9;
        stored = (double)trmi_conv_weights_count(p) * 4 / 10e9;
    } else if (one && images <= CACHED_BYTES) {
        rate = 182e9;
    } else if (one && p->direction == TRMI_CONV_DATA && weights >= MANY_WEIGHTS) {
        rate = 150e9;
    }
    rate *= pixels >= 16 ? 1 : pixels >= 4 ? 0.6 : 0.1;
    rate *= p->image_type == TRM_BFLOAT16 ? pairs_share(p) * bfloat16_gain() : 1;
    return (trmi_conv_flops(p) / rate + stored) / threads + 20e-6;
}

/* Makes oneDNN's convolution for the problem, as one of the algorithms that are timed. */
static trm_status create_dnnl(const trmi_conv_algorithm *self, trmi_onednn *backend,
                              const trmi_conv_problem *p, void **state, int64_t *scratch,
                              trm_error *err) {
    (void)self;
    trmi_dnnl_conv_options options = {
        .direction = p->direction,
        .image = image_tensor(p, false),
        .weights = weights_tensor(p),
        .result = image_tensor(p, true),
        .bias = p->bias,
        .stride = {p->stride[0], p->stride[1]},
        .dilation = {p->dilation[0], p->dilation[1]},
        .pad = {p->pad[0], p->pad[1], p->pad[2], p->pad[3]},
    };
    trmi_dnnl_conv *conv = NULL;
    trm_status status = trmi_dnnl_conv_create(backend->dnnl, &options, &conv, err);
    if (status == TRM_OK) {
        *scratch = trmi_dnnl_conv_scratch(conv);
        *state = conv;
    }
    return status;
}

static trm_status dnnl_run(const void *state, const trmi_conv_args *a, trm_error *err) {
    return trmi_dnnl_conv_run(state, a->image, a->weights, (void *)(uintptr_t)a->bias, a->result,
                              a->scratch, err);
}

static void dnnl_free(void *state) { trmi_dnnl_conv_destroy(state); }

const trmi_conv_algorithm trmi_conv_dnnl = {.name = "direct",
                                            .can = dnnl_can,
                                            .guess = dnnl_guess,
                                            .create = create_dnnl,
                                            .run = dnnl_run,
                                            .destroy = dnnl_free};
