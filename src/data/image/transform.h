/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/transform.h: a chain of image transforms, checked once and then run for each sample.
 *
 *   sample --decode--> pixels --crop/flip: only a window moves--> [resize] --> one finishing pass:
 *                                                                 affine + layout + store
 */
#ifndef TRMI_DATA_TRANSFORM_H
#define TRMI_DATA_TRANSFORM_H

#include "data/pipeline/source.h"

/* A chain in executable form: rescale, normalise, layout and type are merged into the finishing
 * pass. */
typedef struct trmi_chain {
    trm_transform steps[TRMI_MAX_TRANSFORMS]; /* decoding and geometry only */
    int32_t count;                            /* length of `steps` */
    bool channels_first;      /* layout of the result: planes instead of interleaved pixels */
    trm_dtype dtype;          /* of the result */
    float scale[3], shift[3]; /* of the finishing pass, by channel */
    int64_t height, width;    /* of the result */
} trmi_chain;

/* Builds the chain.
 *   errors  INVALID if the transforms do not fit the source or each other, or if the size of the
 *   result is not fixed */
trm_status trmi_chain_build(const trm_transform *transforms, int32_t count,
                            const trmi_source *source, trmi_chain *out, trm_error *err);
/* Runs the chain and writes height * width * 3 elements of chain->dtype. `sample_key` is the
 * sample's global index: together with epoch_seed it determines the random transforms. */
trm_status trmi_chain_run(const trmi_chain *chain, trmi_picture_scratch *scratch,
                          const trmi_sample *sample, uint64_t epoch_seed, int64_t sample_key,
                          void *out, trm_error *err);

/* A rectangle in an image, in pixels; fractions are allowed. */
typedef struct trmi_rect {
    double top, left; /* distance of the edges from those of the image */
    double height, width;
} trmi_rect;
/* The task of trmi_resize: it scales `rect` to full_height x full_width, and writes only the window
 * of height x width at (top, left) of the result. */
typedef struct trmi_resize_plan {
    trmi_rect rect;                   /* part of the image that is scaled */
    trm_resize_align align;           /* how pixels of the two images correspond */
    int64_t full_height, full_width;  /* of the whole result */
    int64_t top, left, height, width; /* the window of it that is written */
} trmi_resize_plan;
/* Resizes a part of an image to plan->height x plan->width interleaved uint8 RGB. The rows of the
 * image are `row_bytes` apart, and it is readable 16 bytes past its end.
 *   errors  NOMEM */
trm_status trmi_resize(trmi_picture_scratch *scratch, const uint8_t *image, int64_t height,
                       int64_t width, int64_t row_bytes, const trmi_resize_plan *plan, uint8_t *out,
                       trm_error *err);

/* Returns the public name of a transform, for messages and descriptions. */
const char *trmi_transform_name(trm_transform_kind kind);

#endif
