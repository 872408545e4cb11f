/* SPDX-License-Identifier: Apache-2.0 */
/* Separable resampling: first along rows (only the rows that are needed, each once), then down the
 * columns of the resized rows.
 *
 *     input row    --resize_row: weights across-->  a row of floats, in the ring
 *     ring of `taps` rows  --blend_rows: weights down-->  an output row of bytes
 *
 *     output rows        0      1      2
 *     input rows      [0 1 2]
 *                         [2 3 4]            a row that two output rows need is resized once
 *                              [4 5 6]
 *
 * A window of weights never reads outside the rectangle that is resized: at an edge it is cut, and
 * the rest is scaled to the sum 1. Memory comes from the scratch of the thread, so images are
 * resized by any number of threads. */
#include "data/image/transform.h"

#include "base/checked.h"
#include "base/memory.h"
#include "data/image/pixels.h"

#include <math.h>

/* The weights of one direction. */
typedef struct axis {
    int32_t taps;
    int32_t *first; /* [outputs] first input pixel of each output */
    float *weights; /* [outputs][taps] */
} axis;

/* Returns the input pixels that an output may need. With antialiasing the triangle is 2 * in / out
 * wide, but never wider than the rectangle; at least two (the second may have weight 0). */
static int32_t axis_taps(double start, double extent, int64_t out, trm_resize_align align) {
    double reduction = extent / (double)out;
    if (align != TRM_RESIZE_ANTIALIAS) {
        return 2;
    }
    int64_t span = (int64_t)(ceil(start + extent) - floor(start));
    int64_t support = reduction <= 1 ? 3 : (int64_t)ceil(reduction) * 2 + 1;
    return (int32_t)trmi_max_i64(trmi_min_i64(support, span), 2);
}

/* Computes the weights of a triangle filter around `centre`, clipped to [low, high]. */
static void compute_triangle(double centre, double support, int64_t low, int64_t high, int32_t taps,
                             int32_t *first, float *weights) {
    int64_t begin = trmi_max_i64((int64_t)floor(centre - support + 0.5), low);
    int64_t end = trmi_min_i64((int64_t)floor(centre + support + 0.5), high + 1);
    end = trmi_min_i64(end, begin + taps);
    double sum = 0;
    for (int64_t j = begin; j < end; j++) {
        double distance = fabs(((double)j + 0.5 - centre) / support);
        sum += distance < 1 ? 1 - distance : 0;
    }
    for (int32_t t = 0; t < taps; t++) {
        double distance = fabs(((double)(begin + t) + 0.5 - centre) / support);
        double weight = begin + t < end && distance < 1 ? 1 - distance : 0;
        weights[t] = (float)(sum > 0 ? weight / sum : 0);
    }
    /* A window that would read past the end is moved back, together with its weights. */
    int64_t moved = trmi_max_i64(trmi_min_i64(begin, high + 1 - taps), low);
    for (int32_t t = taps - 1; moved < begin && t >= 0; t--) {
        int64_t from = t - (begin - moved);
        weights[t] = from >= 0 ? weights[from] : 0;
    }
    *first = (int32_t)moved;
}

/* Computes the weights of outputs [skip, skip + count) of the `full` ones that the interval [start,
 * start + extent) is scaled to. */
static void axis_fill(axis *a, double start, double extent, int64_t in, int64_t full, int64_t skip,
                      int64_t count, trm_resize_align align) {
    /* pixels [low, high] may be read */
    int64_t low = trmi_max_i64((int64_t)floor(start), 0);
    int64_t high = trmi_min_i64((int64_t)ceil(start + extent) - 1, in - 1);
    double step = extent / (double)full;
    for (int64_t i = 0; i < count; i++) {
        float *weights = a->weights + i * a->taps;
        double place = (double)(skip + i);
        /* a triangle filter whose half width is an output pixel, at least an input pixel */
        if (align == TRM_RESIZE_ANTIALIAS) {
            double support = step > 1 ? step : 1;
            compute_triangle(start + (place + 0.5) * step, support, low, high, a->taps,
                             &a->first[i], weights);
            continue;
        }
        /* Interpolate linearly between two pixels; the two conventions differ in where pixel
         * centres are. */
        double at = align == TRM_RESIZE_ORIGINAL ? start + place * step
                                                 : start + (place + 0.5) * step - 0.5;
        at = fmin(fmax(at, (double)low), (double)high);
        int64_t first = trmi_max_i64(trmi_min_i64((int64_t)floor(at), high - 1), low);
        a->first[i] = (int32_t)first;
        weights[1] = (float)(at - (double)first);
        weights[0] = 1 - weights[1];
    }
}

/* Contract in transform.h. Resizes rows first, then columns: each input row that an output row
 * needs is resized once, into a ring of as many rows as an output row has taps. */
trm_status trmi_resize(trmi_picture_scratch *scratch, const uint8_t *image, int64_t height,
                       int64_t width, int64_t row_bytes, const trmi_resize_plan *plan, uint8_t *out,
                       trm_error *err) {
    const trmi_pixels *pixels = trmi_pixels_best();
    const trmi_rect *rect = &plan->rect;
    const int64_t rows_out = plan->height, pixels_out = plan->width;
    /* One buffer for the weights, one for the ring of resized rows (4 floats a pixel). */
    axis across = {.taps = axis_taps(rect->left, rect->width, plan->full_width, plan->align)};
    axis down = {.taps = axis_taps(rect->top, rect->height, plan->full_height, plan->align)};
    size_t across_words = (size_t)pixels_out * (size_t)(across.taps + 1);
    size_t down_words = (size_t)rows_out * (size_t)(down.taps + 1);
    int32_t *words = trmi_scratch_get(scratch, TRMI_SCRATCH_WEIGHTS,
                                      (across_words + down_words) * 4 +
                                          (size_t)down.taps * (sizeof(float *) + 8) + 64);
    float *ring =
        trmi_scratch_get(scratch, TRMI_SCRATCH_RESIZE, (size_t)down.taps * (size_t)pixels_out * 16);
    if (words == NULL || ring == NULL) {
        return TRMI_NO_MEMORY(err, "to resize an image to %lld x %lld", (long long)rows_out,
                              (long long)pixels_out);
    }
    /* One scratch buffer has these parts: pointers, held rows, then first and weights of both
     * directions. */
    const float **rows = (const float **)words;
    int64_t *held = (int64_t *)(rows + down.taps);
    across.first = (int32_t *)(held + down.taps);
    across.weights = (float *)(across.first + pixels_out);
    down.first = (int32_t *)(across.weights + pixels_out * across.taps);
    down.weights = (float *)(down.first + rows_out);
    axis_fill(&across, rect->left, rect->width, width, plan->full_width, plan->left, pixels_out,
              plan->align);
    axis_fill(&down, rect->top, rect->height, height, plan->full_height, plan->top, rows_out,
              plan->align);
    /* no row is in the ring yet */
    for (int32_t t = 0; t < down.taps; t++) {
        held[t] = -1;
    }
    /* For each output row: resize the input rows that the ring lacks, then blend them. */
    for (int64_t y = 0; y < rows_out; y++) {
        for (int32_t t = 0; t < down.taps; t++) {
            int64_t row = trmi_min_i64(down.first[y] + t, height - 1);
            int64_t slot = row % down.taps;
            float *resized = ring + slot * pixels_out * 4;
            if (held[slot] != row) {
                pixels->resize_row(image + row * row_bytes, across.first, across.weights,
                                   across.taps, pixels_out, resized);
                held[slot] = row;
            }
            rows[t] = resized;
        }
        pixels->blend_rows(rows, down.weights + y * down.taps, down.taps, pixels_out,
                           out + y * pixels_out * 3);
    }
    return TRM_OK;
}
