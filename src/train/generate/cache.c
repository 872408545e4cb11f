/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to tokens that were read before (cache.h). A graph of generation has this operator in
 * place of attention, so a new token costs one row and not the whole sequence.
 *
 *         run_cache:  keep_row (rotate q and k, copy k and v)  -->  attend, for each row and head
 *
 * Work is divided by heads and rows, and one thread computes a head of a row whole, so the bits do
 * not depend on the number of threads.
 *
 * D is the width of a head. Grouped queries: `heads` query heads share `kv_heads` heads of keys and
 * values, heads / kv_heads each. */
#include "train/generate/cache.h"

#include "train/generate/cache_attend.h"

#include "base/cpu.h"
#include "base/error.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Angles are computed in double, as position x theta^(-i / half): with float32 the error at the
 * last positions of a long context would be larger than that of the products. */
void trmi_cache_prepare_turns(trmi_cache_state *state) {
    const trm_language_options *o = &state->network;
    int64_t half = o->width / o->heads / 2;
    float *cosines = state->turns, *sines = state->turns + o->context * half;
    for (int64_t t = 0; t < o->context; t++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)t * pow(o->rotary_theta, -(double)i / (double)half);
            cosines[t * half + i] = (float)cos(angle);
            sines[t * half + i] = (float)sin(angle);
        }
    }
}

/* Rotates `heads` heads of one token at `position`, in place. Pairs are (i, half + i), the order of
 * Llama's checkpoints in the Hugging Face format, and not neighbours (2 i, 2 i + 1). */
static void rotate_heads(const trmi_cache_state *s, float *x, int64_t heads, int64_t position) {
    int64_t width = s->network.width / s->network.heads, half = width / 2;
    const float *cosines = s->turns + position * half, *sines = cosines + s->network.context * half;
    for (int64_t h = 0; h < heads; h++, x += width) {
        for (int64_t i = 0; i < half; i++) {
            float a = x[i], b = x[half + i];
            x[i] = a * cosines[i] - b * sines[i];
            x[half + i] = b * cosines[i] + a * sines[i];
        }
    }
}

/* Writes keys and values of token `row` to the cache. Its keys and queries are rotated first. */
static void keep_row(const trmi_cache_layer *layer, float *qkv, int64_t row) {
    const trmi_cache_state *s = layer->state;
    const trm_language_options *o = &s->network;
    int64_t width = o->width / o->heads, position = s->first + row;
    float *q = qkv + row * (o->heads + 2 * o->kv_heads) * width, *k = q + o->heads * width;
    const float *v = k + o->kv_heads * width;
    if (s->turns != NULL) {
        rotate_heads(s, q, o->heads + o->kv_heads, position);
    }
    for (int64_t h = 0; h < o->kv_heads; h++) {
        int64_t at = (h * o->context + position) * width;
        memcpy(layer->keys + at, k + h * width, (size_t)width * sizeof *k);
        memcpy(layer->values + at, v + h * width, (size_t)width * sizeof *v);
    }
}

/* Computes the shape of the output: that of the packed input, with the width of the queries
 * alone. */
static trm_status infer_cache(const trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                              trm_tensor *outputs, trm_error *err) {
    (void)count;
    (void)err;
    const trmi_cache_layer *layer = self->context;
    outputs[0] = (trm_tensor){.dtype = TRM_FLOAT32, .shape = inputs[0].shape};
    outputs[0].shape.dim[2] = layer->state->network.width;
    return TRM_OK;
}

/* Attention of new tokens over all tokens so far: keeps their keys and values, then computes each
 * head of each token. Rows after the last token become zeros. */
static trm_status run_cache(const trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                            trm_tensor *outputs, trm_error *err) {
    (void)count;
    (void)err;
    const trmi_cache_layer *layer = self->context;
    const trmi_cache_state *s = layer->state;
    const trm_language_options *o = &s->network;
    int64_t width = o->width / o->heads, all = (o->heads + 2 * o->kv_heads) * width;
    float *qkv = inputs[0].data, *y = outputs[0].data; /* no other operator reads qkv */
    float scale = (float)(1 / sqrt((double)width));
    trmi_cache_attend attend = TRMI_CPU_CHOICE(trmi_cache_attend);
    /* Keep all keys and values first, because a token reads those of the tokens before it in the
     * same call. */
    for (int64_t row = 0; row < s->count; row++) {
        keep_row(layer, qkv, row);
    }
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t i = 0; i < s->count * o->heads; i++) {
        /* Heads of a group read the same keys and values. */
        int64_t row = i / o->heads, head = i % o->heads;
        int64_t begin = head / (o->heads / o->kv_heads) * o->context * width;
        attend(qkv + row * all + head * width, layer->keys + begin, layer->values + begin,
               s->first + row + 1, width, scale, s->scores + omp_get_thread_num() * o->context,
               y + row * o->width + head * width);
    }
    size_t used = (size_t)(s->count * o->width) * sizeof *y;
    memset(y + s->count * o->width, 0, (size_t)trm_tensor_bytes(&outputs[0]) - used);
    return TRM_OK;
}

trm_custom_op trmi_cache_operator(trmi_cache_layer *layer) {
    return (trm_custom_op){.name = "cached_attention",
                           .outputs = 1,
                           .infer = infer_cache,
                           .run = run_cache,
                           .context = layer};
}
