/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/picture.h: image bytes to interleaved RGB: JPEG through libjpeg-turbo (jpeg.c), PNG
 * through libpng (png.c). The content says which; ImageNet has a PNG among its .JPEG files. */
#ifndef TRMI_DATA_PICTURE_H
#define TRMI_DATA_PICTURE_H

#include "data/pipeline/source.h"

enum { TRMI_PICTURE_SIDE_MAX = 65500 };

typedef struct trmi_picture {
    bool png;
    int64_t height, width; /* as the header says */
    bool cmyk;             /* JPEG: CMYK or YCCK */
    bool inverted;         /* JPEG: an Adobe marker: 255 means no ink */
} trmi_picture;

/* Reads the header. TRM_CORRUPT for other formats (named by content), for damage, and for images
 * over 65,500 a side or 256 million pixels. */
trm_status trmi_picture_open(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                             trmi_picture *out, trm_error *err);
/* Decodes at 1/divisor (1, 2, 4, 8; PNG: 1 only), JPEG with plain chroma upsampling unless `exact`,
 * into the scratch: ceil(height/divisor) rows of *row_bytes. An alpha channel is dropped, 16 bits
 * a channel become 8. TRM_CORRUPT if the data ends early or is damaged. */
trm_status trmi_picture_decode(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                               const trmi_picture *picture, int divisor, bool exact,
                               const uint8_t **pixels, int64_t *row_bytes, trm_error *err);
void trmi_picture_close(trmi_picture_scratch *scratch);

/* ---- the two decoders, for picture.c alone ----------------------------------------------------
 */
trm_status trmi_jpeg_open(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                          trmi_picture *out, trm_error *err);
trm_status trmi_jpeg_decode(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                            const trmi_picture *jpeg, int divisor, bool exact,
                            const uint8_t **pixels, int64_t *row_bytes, trm_error *err);
bool trmi_is_png(const uint8_t *data, size_t bytes);
trm_status trmi_png_open(const uint8_t *data, size_t bytes, trmi_picture *out, trm_error *err);
/* `pixels`: room for height rows of width * 3 bytes. */
trm_status trmi_png_decode(const uint8_t *data, size_t bytes, const trmi_picture *png,
                           uint8_t *pixels, trm_error *err);

#endif
