/* SPDX-License-Identifier: Apache-2.0 */
/* Image transforms: the public constructors, and building a chain of them.
 *
 *   steps before Rescale: kept one by one          add_geometry --> chain->steps
 *   Rescale, Normalize, HWC2CHW, TypeCast: merged  add_finish   --> chain->scale, shift, ...
 *
 * The build checks sizes and types step by step, so a wrong pipeline fails before any image is
 * read. value = pixel * scale + shift, for each channel, with all Rescale and Normalize steps in
 * one function. */
#include "data/image/transform.h"

#include "base/arguments.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* Pixels of a side at most, as of pictures. */
enum { SIDE_MAX = 65500 };

/* ---- the public constructors ------------------------------------------------------------- */

/* Returns the width of an image; 0 = as its height. */
static int64_t choose_width(int64_t height, int64_t width) { return width != 0 ? width : height; }

trm_transform trm_transform_decode(bool exact) {
    return (trm_transform){.kind = TRM_TRANSFORM_DECODE, .exact = exact};
}
trm_transform trm_transform_random_crop(int64_t height, int64_t width, int64_t padding) {
    return (trm_transform){.kind = TRM_TRANSFORM_RANDOM_CROP,
                           .height = height,
                           .width = choose_width(height, width),
                           .padding = padding};
}
trm_transform trm_transform_random_resized_crop(int64_t height, int64_t width) {
    return (trm_transform){.kind = TRM_TRANSFORM_RANDOM_RESIZED_CROP,
                           .height = height,
                           .width = choose_width(height, width),
                           .area = {0.08, 1.0},
                           .ratio = {3.0 / 4.0, 4.0 / 3.0}};
}
trm_transform trm_transform_center_crop(int64_t height, int64_t width) {
    return (trm_transform){
        .kind = TRM_TRANSFORM_CENTER_CROP, .height = height, .width = choose_width(height, width)};
}
trm_transform trm_transform_random_flip(double probability) {
    return (trm_transform){.kind = TRM_TRANSFORM_RANDOM_FLIP, .probability = probability};
}
trm_transform trm_transform_resize(int64_t height, int64_t width, trm_resize_align align) {
    return (trm_transform){.kind = TRM_TRANSFORM_RESIZE,
                           .height = height,
                           .width = choose_width(height, width),
                           .align = align};
}
trm_transform trm_transform_resize_shorter(int64_t size, trm_resize_align align) {
    return (trm_transform){
        .kind = TRM_TRANSFORM_RESIZE_SHORTER, .height = size, .width = size, .align = align};
}
trm_transform trm_transform_rescale(double scale, double shift) {
    return (trm_transform){.kind = TRM_TRANSFORM_RESCALE, .scale = scale, .shift = shift};
}
trm_transform trm_transform_normalize(const double mean[3], const double std[3]) {
    TRMI_NEED_OR((trm_transform){0}, NULL, mean, std);
    trm_transform transform = {.kind = TRM_TRANSFORM_NORMALIZE};
    memcpy(transform.mean, mean, sizeof transform.mean);
    memcpy(transform.std, std, sizeof transform.std);
    return transform;
}
trm_transform trm_transform_hwc2chw(void) { return (trm_transform){.kind = TRM_TRANSFORM_HWC2CHW}; }
trm_transform trm_transform_type_cast(trm_dtype dtype) {
    return (trm_transform){.kind = TRM_TRANSFORM_TYPE_CAST, .dtype = dtype};
}

const char *trmi_transform_name(trm_transform_kind kind) {
    static const char *const names[] = {"",           "Decode",
                                        "RandomCrop", "RandomResizedCrop",
                                        "CenterCrop", "RandomHorizontalFlip",
                                        "Resize",     "ResizeShorter",
                                        "Rescale",    "Normalize",
                                        "HWC2CHW",    "TypeCast"};
    return kind >= TRM_TRANSFORM_DECODE && kind <= TRM_TRANSFORM_TYPE_CAST ? names[kind]
                                                                           : "unknown transform";
}

/* ---- building a chain ---- */

/* The state of the build: what the samples look like after the steps so far. */
typedef struct build {
    trmi_chain *chain;
    bool encoded, floating;    /* the samples are encoded; they are floating-point */
    int64_t height, width;     /* 0: differs between samples */
    double scale[3], shift[3]; /* the affine function so far, by channel */
} build;

/* Returns whether an image can have such a side. */
static bool side_ok(int64_t side) { return side >= 1 && side <= SIDE_MAX; }

/* Checks the parameters of a step with a size. */
static trm_status check_sizes(const trm_transform *step, trm_error *err) {
    const char *name = trmi_transform_name(step->kind);
    if (!side_ok(step->height) || !side_ok(step->width) || step->padding < 0 ||
        step->padding > SIDE_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: size %lld x %lld, padding %lld: sides are 1..%d",
                         name, (long long)step->height, (long long)step->width,
                         (long long)step->padding, SIDE_MAX);
    }
    if (step->kind == TRM_TRANSFORM_RANDOM_RESIZED_CROP &&
        !(step->area[0] > 0 && step->area[0] <= step->area[1] && step->area[1] <= 1 &&
          step->ratio[0] > 0 && step->ratio[0] <= step->ratio[1] && isfinite(step->ratio[1]))) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: area %g..%g, ratio %g..%g: 0 < area <= 1 and 0 < ratio expected",
                         name, step->area[0], step->area[1], step->ratio[0], step->ratio[1]);
    }
    return TRM_OK;
}

/* Computes the size after ResizeShorter. As in torchvision, the longer side is rounded down. */
static void shorter_size(int64_t size, int64_t height, int64_t width, int64_t *out_height,
                         int64_t *out_width) {
    bool tall = height > width;
    int64_t longer = tall ? size * height / width : size * width / height;
    *out_height = tall ? longer : size;
    *out_width = tall ? size : longer;
}

/* Adds a decoding or geometry step and tracks the size of the images.
 *   errors  INVALID for a step at a wrong place, and for sizes that are impossible or do not fit */
static trm_status add_geometry(build *b, const trm_transform *step, trm_error *err) {
    const char *name = trmi_transform_name(step->kind);
    /* Geometry works on bytes. */
    if (b->floating) {
        return TRMI_FAIL(err, TRM_INVALID, "%s after Rescale, Normalize or TypeCast: put it before",
                         name);
    }
    /* Decode comes exactly once, and first. */
    if (b->encoded != (step->kind == TRM_TRANSFORM_DECODE)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         b->encoded ? "%s: the samples are encoded, the first transform must be "
                                      "Decode"
                                    : "%s: the samples are pixels already; leave it out",
                         name);
    }
    bool sized = step->kind != TRM_TRANSFORM_DECODE && step->kind != TRM_TRANSFORM_RANDOM_FLIP;
    if (sized) {
        TRMI_TRY(check_sizes(step, err));
    }
    /* The size after this step, as far as it is known before an image is read. */
    int64_t height = b->height, width = b->width;
    switch (step->kind) {
    case TRM_TRANSFORM_DECODE: b->encoded = false; break;
    case TRM_TRANSFORM_RANDOM_FLIP:
        if (!(step->probability >= 0 && step->probability <= 1)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: probability %g, 0..1 expected", name,
                             step->probability);
        }
        break;
    case TRM_TRANSFORM_RESIZE_SHORTER:
        if (height > 0) {
            shorter_size(step->height, height, width, &b->height, &b->width);
        }
        break;
    case TRM_TRANSFORM_RANDOM_CROP:
    case TRM_TRANSFORM_CENTER_CROP:
        if (height > 0 && (step->height > height + 2 * step->padding ||
                           step->width > width + 2 * step->padding)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %lld x %lld does not fit images of %lld x %lld with padding %lld",
                             name, (long long)step->height, (long long)step->width,
                             (long long)height, (long long)width, (long long)step->padding);
        }
        /* fall through */
    default: b->height = step->height; b->width = step->width;
    }
    b->chain->steps[b->chain->count++] = *step;
    return TRM_OK;
}

/* Merges a step of the finishing pass into scale, shift, layout or type.
 *   errors  INVALID for numbers that are not finite, a layout that is changed twice, and other
 *   types */
static trm_status add_finish(build *b, const trm_transform *step, trm_error *err) {
    switch (step->kind) {
    case TRM_TRANSFORM_RESCALE:
        if (!isfinite(step->scale) || !isfinite(step->shift)) {
            return TRMI_FAIL(err, TRM_INVALID, "Rescale: scale %g, shift %g must be finite",
                             step->scale, step->shift);
        }
        /* Compute (p * scale + shift) * step->scale + step->shift. */
        for (int c = 0; c < 3; c++) {
            b->scale[c] *= step->scale;
            b->shift[c] = b->shift[c] * step->scale + step->shift;
        }
        b->floating = true;
        break;
    case TRM_TRANSFORM_NORMALIZE:
        for (int c = 0; c < 3; c++) {
            if (!isfinite(step->mean[c]) || !(step->std[c] > 0) || !isfinite(step->std[c])) {
                return TRMI_FAIL(err, TRM_INVALID, "Normalize: mean %g, std %g: std must be > 0",
                                 step->mean[c], step->std[c]);
            }
            /* (p * scale + shift - mean) / std */
            b->scale[c] /= step->std[c];
            b->shift[c] = (b->shift[c] - step->mean[c]) / step->std[c];
        }
        b->floating = true;
        break;
    case TRM_TRANSFORM_HWC2CHW:
        if (b->chain->channels_first) {
            return TRMI_FAIL(err, TRM_INVALID, "HWC2CHW twice: leave one out");
        }
        b->chain->channels_first = true;
        break;
    default:
        if (step->dtype != TRM_FLOAT32 && step->dtype != TRM_FLOAT16 &&
            step->dtype != TRM_BFLOAT16) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "TypeCast to %s: float32, float16 and bfloat16 are possible",
                             trm_dtype_name(step->dtype));
        }
        b->floating = true;
        b->chain->dtype = step->dtype;
    }
    return TRM_OK;
}

/* Contract in transform.h. Scale and shift are collected in double and rounded once. */
trm_status trmi_chain_build(const trm_transform *transforms, int32_t count,
                            const trmi_source *source, trmi_chain *out, trm_error *err) {
    *out = (trmi_chain){0};
    build b = {.chain = out,
               .encoded = source->form == TRMI_FORM_ENCODED,
               .height = source->height,
               .width = source->width,
               .scale = {1, 1, 1}};
    /* Go step by step; the kinds are in the order geometry, finish. */
    for (int32_t i = 0; i < count; i++) {
        const trm_transform *step = &transforms[i];
        bool finish = step->kind >= TRM_TRANSFORM_RESCALE;
        TRMI_TRY(finish ? add_finish(&b, step, err) : add_geometry(&b, step, err));
    }
    /* A batch needs images of one known size. */
    if (b.encoded || b.height == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         b.encoded ? "%s: the samples are encoded, add Decode"
                                   : "%s: images of different sizes make no batch, add "
                                     "RandomResizedCrop, Resize or CenterCrop",
                         source->ops->kind);
    }
    /* Without TypeCast the output is float if a step computes, otherwise the bytes themselves. */
    if (out->dtype == TRM_DTYPE_NONE) {
        out->dtype = b.floating ? TRM_FLOAT32 : TRM_UINT8;
    }
    out->height = b.height;
    out->width = b.width;
    for (int c = 0; c < 3; c++) {
        out->scale[c] = (float)b.scale[c];
        out->shift[c] = (float)b.shift[c];
    }
    return TRM_OK;
}
