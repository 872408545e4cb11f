/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/transform.h: a chain of transforms, checked once, then run per sample.
 *
 *   sample --decode--> pixels --crop/flip: only a window moves--> [resize] --> one finishing pass:
 *                                                                 affine + layout + store
 */
#ifndef TRMI_DATA_TRANSFORM_H
#define TRMI_DATA_TRANSFORM_H

#include "data/pipeline/source.h"

typedef struct trmi_chain {
    trm_transform steps[TRMI_MAX_TRANSFORMS]; /* decode and geometry only */
    int32_t count;
    bool channels_first;
    trm_dtype dtype; /* of the result */
    float scale[3], shift[3];
    int64_t height, width; /* of the result */
} trmi_chain;

/* TRM_INVALID if the steps do not fit the source or each other, or leave the size open. */
trm_status trmi_chain_build(const trm_transform *transforms, int32_t count,
                            const trmi_source *source, trmi_chain *out, trm_error *err);
/* Writes height * width * 3 elements of chain->dtype. `sample_key` is the sample's global index. */
trm_status trmi_chain_run(const trmi_chain *chain, trmi_picture_scratch *scratch,
                          const trmi_sample *sample, uint64_t epoch_seed, int64_t sample_key,
                          void *out, trm_error *err);

/* A rectangle of an image of interleaved RGB rows, in pixels; fractions are fine. */
typedef struct trmi_rect {
    double top, left, height, width;
} trmi_rect;
/* What to compute: `rect` becomes full_height x full_width, of which the window of height x width
 * at (top, left) is wanted. */
typedef struct trmi_resize_plan {
    trmi_rect rect;
    trm_resize_align align;
    int64_t full_height, full_width;
    int64_t top, left, height, width;
} trmi_resize_plan;
/* Resizes a part of an image, whose rows are `row_bytes` apart and which is readable 16 bytes past
 * its end, to plan->height x plan->width interleaved uint8 RGB. */
trm_status trmi_resize(trmi_picture_scratch *scratch, const uint8_t *image, int64_t height,
                       int64_t width, int64_t row_bytes, const trmi_resize_plan *plan, uint8_t *out,
                       trm_error *err);

const char *trmi_transform_name(trm_transform_kind kind);

#endif
