/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/picture.h: decodes images to interleaved RGB: JPEG through libjpeg-turbo (jpeg.c), PNG
 * through libpng (png.c). The content decides, not the name: ImageNet has a PNG among its .JPEG
 * files. */
#ifndef TRMI_DATA_PICTURE_H
#define TRMI_DATA_PICTURE_H

#include "data/pipeline/source.h"

enum { TRMI_PICTURE_SIDE_MAX = 65500 }; /* pixels of a side, at most */

/* An image whose header has been read. */
typedef struct trmi_picture {
    const uint8_t *data; /* [bytes] the file, borrowed */
    size_t bytes;
    bool png;              /* else JPEG */
    int64_t height, width; /* in pixels */
    bool cmyk;             /* JPEG: CMYK or YCCK */
    bool inverted;         /* JPEG with an Adobe marker: 255 means no ink */
} trmi_picture;

/* Reads the header.
 *   errors  CORRUPT for other formats (which it names by their content), for damage, and for
 *   images of more than 65,500 pixels a side or 256 million pixels */
trm_status trmi_picture_open(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                             trmi_picture *out, trm_error *err);
/* A decoded image, interleaved RGB. */
typedef struct trmi_decoded {
    const uint8_t *pixels; /* in the scratch */
    int64_t row_bytes;     /* from one row to the next */
} trmi_decoded;
/* Decodes at 1/divisor of the size (1, 2, 4, 8; PNG: only 1) into ceil(height/divisor) rows. JPEG
 * uses simple chroma upsampling unless `exact`. An alpha channel is dropped, and 16-bit channels
 * become 8-bit.
 *   errors  CORRUPT if the data are damaged or end early */
trm_status trmi_picture_decode(trmi_picture_scratch *scratch, const trmi_picture *picture,
                               int divisor, bool exact, trmi_decoded *out, trm_error *err);
/* Frees the decoder of a scratch. */
void trmi_picture_close(trmi_picture_scratch *scratch);

/* ---- the two decoders, for picture.c only ---- */
/* Read a header, and decode, as described above. JPEG decodes into the scratch. */
trm_status trmi_jpeg_open(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                          trmi_picture *out, trm_error *err);
trm_status trmi_jpeg_decode(trmi_picture_scratch *scratch, const trmi_picture *jpeg, int divisor,
                            bool exact, trmi_decoded *out, trm_error *err);
/* Returns whether the data begin with PNG's signature. */
bool trmi_is_png(const uint8_t *data, size_t bytes);
trm_status trmi_png_open(const uint8_t *data, size_t bytes, trmi_picture *out, trm_error *err);
/* `pixels` has room for height rows of width * 3 bytes. */
trm_status trmi_png_decode(const trmi_picture *png, uint8_t *pixels, trm_error *err);

#endif
