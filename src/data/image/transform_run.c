/* SPDX-License-Identifier: Apache-2.0 */
/* Running a chain on one sample. Crops and flips only move a window over pixels that stay where
 * they are; a resize or the finishing pass then reads through the window.
 *
 *   decode_image --> crop_window, flip: move the window --> resize_window: new pixels --> ...
 *                --> finish_pixels: float, layout
 *
 * Random numbers are functions of (epoch seed, sample, step), so that the result does not depend on
 * threads or order. Each thread has a scratch of its own, and each copy of pixels goes to the
 * buffer that the previous one does not use. */
#include "data/image/transform.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/format/half.h"
#include "base/memory.h"
#include "base/rng.h"
#include "data/image/picture.h"
#include "data/image/pixels.h"

#include <math.h>
#include <string.h>

/* Readable bytes behind an image for vector loads; pixels of a side and of an image, at most. */
enum { SLACK_BYTES = 16, SIDE_MAX = 65500, PIXELS_MAX = 256 << 20 };

/* The image during the chain: pixels, and the window that counts. */
typedef struct view {
    const uint8_t *data;         /* address of pixel (0, 0) */
    int64_t rows, columns;       /* size of the image; the window is zero outside of it */
    int64_t row, pixel, channel; /* distances in bytes between rows, pixels, channels */
    int64_t top, left;           /* of the window */
    int64_t height, width;       /* of the window */
    bool flipped;                /* the window is read right to left */
    const uint8_t *encoded;      /* the encoded file, before it is decoded */
    int next_buffer;             /* the scratch buffer for the next copy */
} view;

/* Random words of a step: block `attempt` (< 16) of one step of one sample. */
typedef struct dice {
    uint64_t seed, counter;
} dice;
/* Draws four random numbers for a step's n-th attempt, of the sample's own stream. */
static void throw_dice(const dice *d, uint32_t attempt, uint32_t out[4]) {
    trmi_philox(d->seed, TRMI_STREAM_AUGMENT, d->counter + attempt, out);
}

/* Returns whether the window is inside the image. */
static bool is_inside_image(const view *v) {
    return v->top >= 0 && v->left >= 0 && v->top + v->height <= v->rows &&
           v->left + v->width <= v->columns;
}

/* Copies the window to an image of its own: interleaved, not flipped, zeros outside included. */
static trm_status materialize_window(view *v, trmi_picture_scratch *scratch, trm_error *err) {
    int64_t row_bytes = v->width * 3;
    int which = v->next_buffer;
    uint8_t *copy = trmi_scratch_get(scratch, which, (size_t)(row_bytes * v->height) + SLACK_BYTES);
    if (copy == NULL) {
        return TRMI_NO_MEMORY(err, "for an image of %lld x %lld", (long long)v->height,
                              (long long)v->width);
    }
    /* Write row by row; rows and pixels outside the image are zero. */
    for (int64_t y = 0; y < v->height; y++) {
        int64_t source_y = v->top + y;
        uint8_t *out = copy + y * row_bytes;
        if (source_y < 0 || source_y >= v->rows) {
            memset(out, 0, (size_t)row_bytes);
            continue;
        }
        for (int64_t x = 0; x < v->width; x++) {
            int64_t source_x = v->left + (v->flipped ? v->width - 1 - x : x);
            bool real = source_x >= 0 && source_x < v->columns;
            const uint8_t *in = v->data + source_y * v->row + source_x * v->pixel;
            for (int c = 0; c < 3; c++) {
                out[3 * x + c] = real ? in[c * v->channel] : 0;
            }
        }
    }
    /* The copy is now the whole image. */
    *v = (view){.data = copy,
                .rows = v->height,
                .columns = v->width,
                .row = row_bytes,
                .pixel = 3,
                .channel = 1,
                .height = v->height,
                .width = v->width,
                .next_buffer =
                    which == TRMI_SCRATCH_PIXELS_A ? TRMI_SCRATCH_PIXELS_B : TRMI_SCRATCH_PIXELS_A};
    return TRM_OK;
}

/* Narrows the window to height x width at (top, left), as seen in a flipped image. */
static void narrow_window(view *v, int64_t top, int64_t left, int64_t height, int64_t width) {
    v->top += top;
    v->left += v->flipped ? v->width - left - width : left;
    v->height = height;
    v->width = width;
}

/* Moves the window to a random or centre crop of it. With padding, the window may reach beyond the
 * image, where pixels are zero.
 *   errors  INVALID if the image is too small, NOMEM */
static trm_status crop_window(view *v, trmi_picture_scratch *scratch, const trm_transform *step,
                              const dice *d, trm_error *err) {
    bool random = step->kind == TRM_TRANSFORM_RANDOM_CROP;
    int64_t padding = random ? step->padding : 0;
    /* Places for the window in the padded image. */
    int64_t room_y = v->height + 2 * padding - step->height;
    int64_t room_x = v->width + 2 * padding - step->width;
    if (room_y < 0 || room_x < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s of %lld x %lld from an image of %lld x %lld with padding %lld: the "
                         "image is too small; "
                         "resize it first, or cut out less",
                         trmi_transform_name(step->kind), (long long)step->height,
                         (long long)step->width, (long long)v->height, (long long)v->width,
                         (long long)padding);
    }
    /* Padding means zeros, not the pixels around an earlier crop. */
    if (padding > 0 && (v->height != v->rows || v->width != v->columns || v->top || v->left)) {
        TRMI_TRY(materialize_window(v, scratch, err));
    }
    /* Crop at the centre, or at a random place. */
    int64_t top = room_y / 2, left = room_x / 2;
    if (random) {
        uint32_t bits[4];
        throw_dice(d, 0, bits);
        top = trmi_bounded(bits[0], (uint32_t)room_y + 1);
        left = trmi_bounded(bits[1], (uint32_t)room_x + 1);
    }
    narrow_window(v, top - padding, left - padding, step->height, step->width);
    return TRM_OK;
}

/* Returns the window of a RandomResizedCrop in an image of height x width. As in torchvision: up to
 * ten random areas and ratios, then a centre crop with the nearest allowed ratio. */
static trmi_rect random_window(const trm_transform *step, int64_t height, int64_t width,
                               const dice *d) {
    enum { TRIES = 10 };
    double log_low = log(step->ratio[0]), log_high = log(step->ratio[1]);
    for (uint32_t attempt = 0; attempt < TRIES; attempt++) {
        uint32_t bits[4];
        throw_dice(d, attempt, bits);
        /* Area and ratio are random, the ratio on a logarithmic scale. */
        double part = step->area[0] + (step->area[1] - step->area[0]) * bits[0] * 0x1p-32;
        double ratio = exp(log_low + (log_high - log_low) * bits[1] * 0x1p-32);
        double area = part * (double)height * (double)width;
        int64_t w = llround(sqrt(area * ratio)), h = llround(sqrt(area / ratio));
        if (w >= 1 && h >= 1 && w <= width && h <= height) {
            return (trmi_rect){trmi_bounded(bits[2], (uint32_t)(height - h) + 1),
                               trmi_bounded(bits[3], (uint32_t)(width - w) + 1), (double)h,
                               (double)w};
        }
    }
    /* Ten attempts failed. */
    double ratio = (double)width / (double)height;
    int64_t h = height, w = width;
    if (ratio < step->ratio[0]) {
        h = trmi_max_i64(1, llround((double)width / step->ratio[0]));
    } else if (ratio > step->ratio[1]) {
        w = trmi_max_i64(1, llround((double)height * step->ratio[1]));
    }
    return (trmi_rect){(double)((height - h) / 2), (double)((width - w) / 2), (double)h, (double)w};
}

/* Returns what a resizing step computes of an image of height x width. If a centre crop follows,
 * only its part is computed, and *step moves on to it. */
static trmi_resize_plan plan_resize(const trmi_chain *chain, int32_t *step, int64_t height,
                                    int64_t width, const dice *d) {
    const trm_transform *t = &chain->steps[*step];
    trmi_resize_plan plan = {.rect = {0, 0, (double)height, (double)width},
                             .align = t->align,
                             .full_height = t->height,
                             .full_width = t->width};
    /* The part of the image that is read, and the size that it gets. */
    if (t->kind == TRM_TRANSFORM_RANDOM_RESIZED_CROP) {
        plan.rect = random_window(t, height, width, d);
    } else if (t->kind == TRM_TRANSFORM_RESIZE_SHORTER) {
        bool tall = height > width;
        int64_t longer = tall ? t->height * height / width : t->height * width / height;
        plan.full_height = tall ? longer : t->height;
        plan.full_width = tall ? t->height : longer;
    }
    /* The part of the result that is necessary. */
    plan.height = plan.full_height;
    plan.width = plan.full_width;
    const trm_transform *next = t + 1;
    if (*step + 1 < chain->count && next->kind == TRM_TRANSFORM_CENTER_CROP &&
        next->height <= plan.full_height && next->width <= plan.full_width) {
        plan.height = next->height;
        plan.width = next->width;
        plan.top = (plan.full_height - plan.height) / 2;
        plan.left = (plan.full_width - plan.width) / 2;
        ++*step;
    }
    return plan;
}

/* Returns whether a step makes new pixels. */
static bool is_resizing(const trm_transform *step) {
    return step->kind == TRM_TRANSFORM_RESIZE || step->kind == TRM_TRANSFORM_RESIZE_SHORTER ||
           step->kind == TRM_TRANSFORM_RANDOM_RESIZED_CROP;
}

/* Resizes the window by the plan, which is relative to the window; the view is then the result. */
static trm_status resize_window(view *v, trmi_picture_scratch *scratch,
                                const trmi_resize_plan *plan, trm_error *err) {
    /* The resize reads interleaved pixels from left to right. */
    if (v->flipped || v->pixel != 3 || !is_inside_image(v)) {
        TRMI_TRY(materialize_window(v, scratch, err));
    }
    /* The size of ResizeShorter depends on the image. */
    if (plan->height > SIDE_MAX || plan->width > SIDE_MAX ||
        plan->height * plan->width > PIXELS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "Resize of an image of %lld x %lld would give %lld x %lld, at most %d a "
                         "side",
                         (long long)v->height, (long long)v->width, (long long)plan->height,
                         (long long)plan->width, SIDE_MAX);
    }
    int64_t row_bytes = plan->width * 3;
    size_t bytes = (size_t)(row_bytes * plan->height) + SLACK_BYTES;
    int which = v->next_buffer;
    uint8_t *out = trmi_scratch_get(scratch, which, bytes);
    if (out == NULL) {
        return TRMI_NO_MEMORY(err, "for an image of %lld x %lld", (long long)plan->height,
                              (long long)plan->width);
    }
    /* Resize into the other buffer, which becomes the image. */
    const uint8_t *origin = v->data + v->top * v->row + v->left * 3;
    TRMI_TRY(trmi_resize(scratch, origin, v->height, v->width, v->row, plan, out, err));
    *v = (view){.data = out,
                .rows = plan->height,
                .columns = plan->width,
                .row = row_bytes,
                .pixel = 3,
                .channel = 1,
                .height = plan->height,
                .width = plan->width,
                .next_buffer =
                    which == TRMI_SCRATCH_PIXELS_A ? TRMI_SCRATCH_PIXELS_B : TRMI_SCRATCH_PIXELS_A};
    return TRM_OK;
}

/* Decodes. If a resizing step follows it is done as well, because a smaller decode may then be
 * enough (libjpeg-turbo scales by 1/2, 1/4, 1/8). Advances *step to the last step that is done. */
static trm_status decode_image(const trmi_chain *chain, view *v, trmi_picture_scratch *scratch,
                               const trmi_sample *sample, dice d, int32_t *step, trm_error *err) {
    bool exact = chain->steps[*step].exact;
    bool resizing = *step + 1 < chain->count && is_resizing(&chain->steps[*step + 1]);
    trmi_resize_plan plan = {.height = 0};
    trmi_picture picture;
    int divisor = 1;
    /* The head of the file gives the size. */
    TRMI_TRY(trmi_picture_open(scratch, sample->data, sample->bytes, &picture, err));
    if (resizing) {
        d.counter += 16;
        ++*step;
        plan = plan_resize(chain, step, picture.height, picture.width, &d);
        /* The largest divisor after which the resize still reduces the size. */
        while (!exact && !picture.png && divisor < 8 &&
               plan.rect.height / (divisor * 2) >= (double)plan.full_height &&
               plan.rect.width / (divisor * 2) >= (double)plan.full_width) {
            divisor *= 2;
        }
    }
    trmi_decoded decoded;
    TRMI_TRY(trmi_picture_decode(scratch, &picture, divisor, exact, &decoded, err));
    v->data = decoded.pixels;
    v->row = decoded.row_bytes;
    v->pixel = 3;
    v->channel = 1;
    v->rows = v->height = (picture.height + divisor - 1) / divisor;
    v->columns = v->width = (picture.width + divisor - 1) / divisor;
    if (!resizing) {
        return TRM_OK;
    }
    /* Write the plan in the pixels of the smaller image. */
    const trmi_rect *full = &plan.rect;
    plan.rect = (trmi_rect){full->top / divisor, full->left / divisor, full->height / divisor,
                            full->width / divisor};
    return resize_window(v, scratch, &plan, err);
}

/* ---- the finishing pass --------------------------------------------------------------------- */

/* Writes planar results of a planar image: each row is zeros, a part of the source (perhaps
 * mirrored), zeros. */
static void finish_planar(const trmi_chain *chain, const view *v, float *out) {
    const trmi_pixels *pixels = trmi_pixels_best();
    int64_t begin = trmi_min_i64(trmi_max_i64(0, -v->left), v->width);
    /* [begin, end) is the part of the window inside the image, horizontally. */
    int64_t end = trmi_min_i64(v->width, v->columns - v->left);
    end = trmi_max_i64(begin, end);
    int64_t run = end - begin;
    int64_t before = v->flipped ? v->width - end : begin;
    for (int c = 0; c < 3; c++) {
        /* zeros of the image become `shift`: they are scaled and shifted, too */
        float scale = chain->scale[c], zero = chain->shift[c];
        const uint8_t *plane = v->data + c * v->channel + v->left + begin;
        for (int64_t y = 0; y < v->height; y++, out += v->width) {
            int64_t source_y = v->top + y;
            bool real = source_y >= 0 && source_y < v->rows;
            int64_t filled = real ? run : 0, lead = real ? before : v->width;
            for (int64_t x = 0; x < lead; x++) {
                out[x] = zero;
            }
            if (filled > 0) {
                (v->flipped ? pixels->affine_mirror : pixels->affine)(
                    plane + source_y * v->row, filled, scale, zero, out + lead);
            }
            for (int64_t x = lead + filled; x < v->width; x++) {
                out[x] = zero;
            }
        }
    }
}

/* Reverses the pixels of an interleaved row. */
static void mirror_rgb(float *row, int64_t pixels) {
    for (float *a = row, *b = row + 3 * (pixels - 1); a < b; a += 3, b -= 3) {
        for (int c = 0; c < 3; c++) {
            float swap = a[c];
            a[c] = b[c];
            b[c] = swap;
        }
    }
}

/* Writes planar or interleaved results of an interleaved image. The window is inside the image. */
static void finish_rgb(const trmi_chain *chain, const view *v, float *out) {
    const trmi_pixels *pixels = trmi_pixels_best();
    int64_t area = v->height * v->width;
    for (int64_t y = 0; y < v->height; y++) {
        const uint8_t *in = v->data + (v->top + y) * v->row + v->left * 3;
        if (chain->channels_first) {
            float *red = out + y * v->width;
            pixels->affine_split(in, v->width, v->flipped, chain->scale, chain->shift, red,
                                 red + area, red + 2 * area);
            continue;
        }
        float *row = out + y * v->width * 3;
        pixels->affine_rgb(in, v->width, chain->scale, chain->shift, row);
        if (v->flipped) {
            mirror_rgb(row, v->width);
        }
    }
}

/* Writes uint8 results: only the layout changes. */
static void finish_bytes(const trmi_chain *chain, const view *v, uint8_t *out) {
    int64_t area = v->height * v->width;
    for (int64_t i = 0; i < area; i++) {
        const uint8_t *in = v->data + i * 3;
        for (int c = 0; c < 3; c++) {
            out[chain->channels_first ? c * area + i : 3 * i + c] = in[c];
        }
    }
}

/* Runs the finishing pass: affine function, layout and type in one pass over the pixels. */
static trm_status finish_pixels(const trmi_chain *chain, view *v, trmi_picture_scratch *scratch,
                                void *out, trm_error *err) {
    bool planar = v->pixel == 1 && chain->channels_first;
    /* Bring the pixels into a form that a loop can read. */
    if (chain->dtype == TRM_UINT8 || (!planar && (v->pixel != 3 || !is_inside_image(v)))) {
        TRMI_TRY(materialize_window(v, scratch, err));
    }
    if (chain->dtype == TRM_UINT8) {
        finish_bytes(chain, v, out);
        return TRM_OK;
    }
    int64_t count = v->height * v->width * 3;
    /* 16-bit results are computed as floats first. */
    float *floats = out;
    if (chain->dtype != TRM_FLOAT32) {
        floats = trmi_scratch_get(scratch, TRMI_SCRATCH_RESIZE, (size_t)count * sizeof *floats);
        if (floats == NULL) {
            return TRMI_NO_MEMORY(err, "to convert an image");
        }
    }
    /* Compute, then convert to 16 bits. */
    (planar ? finish_planar : finish_rgb)(chain, v, floats);
    uint16_t *halves = out;
    for (int64_t i = 0; chain->dtype != TRM_FLOAT32 && i < count; i++) {
        halves[i] = chain->dtype == TRM_BFLOAT16 ? trmi_float_to_bf16(floats[i])
                                                 : trmi_float_to_f16(floats[i]);
    }
    return TRM_OK;
}

/* Contract in transform.h. Each step of geometry moves, cuts or resizes a window of the image; the
 * last pass writes the window as the batch wants it (finish_pixels). */
trm_status trmi_chain_run(const trmi_chain *chain, trmi_picture_scratch *scratch,
                          const trmi_sample *sample, uint64_t epoch_seed, int64_t sample_key,
                          void *out, trm_error *err) {
    /* the whole image is the first window; its strides are those of its form */
    bool planar = sample->form == TRMI_FORM_PLANAR;
    view v = {.data = sample->data,
              .rows = sample->height,
              .columns = sample->width,
              .row = planar ? sample->width : sample->width * 3,
              .pixel = planar ? 1 : 3,
              .channel = planar ? sample->height * sample->width : 1,
              .height = sample->height,
              .width = sample->width,
              .next_buffer = TRMI_SCRATCH_PIXELS_A};
    for (int32_t i = 0; i < chain->count; i++) {
        const trm_transform *step = &chain->steps[i];
        /* Each step has 16 random blocks. */
        dice d = {epoch_seed, (uint64_t)sample_key << 8 | (uint64_t)i << 4};
        if (step->kind == TRM_TRANSFORM_DECODE) {
            TRMI_TRY(decode_image(chain, &v, scratch, sample, d, &i, err));
        } else if (is_resizing(step)) {
            trmi_resize_plan plan = plan_resize(chain, &i, v.height, v.width, &d);
            TRMI_TRY(resize_window(&v, scratch, &plan, err));
        } else if (step->kind == TRM_TRANSFORM_RANDOM_FLIP) {
            uint32_t bits[4];
            throw_dice(&d, 0, bits);
            v.flipped ^= (double)bits[0] * 0x1p-32 < step->probability;
        } else {
            TRMI_TRY(crop_window(&v, scratch, step, &d, err));
        }
    }
    /* All images of a batch have the same size. */
    if (v.height != chain->height || v.width != chain->width) {
        return TRMI_FAIL(err, TRM_INTERNAL, "an image of %lld x %lld where %lld x %lld was planned",
                         (long long)v.height, (long long)v.width, (long long)chain->height,
                         (long long)chain->width);
    }
    return finish_pixels(chain, &v, scratch, out, err);
}
