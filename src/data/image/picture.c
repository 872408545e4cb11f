/* SPDX-License-Identifier: Apache-2.0 */
/* Images of any supported format: recognises the format by its first bytes and calls its decoder.
 * Other known formats are named in the error. */
#include "data/image/picture.h"

#include "base/error.h"

#include <string.h>

/* a larger image is refused, because a small file can describe it */
static const int64_t PIXELS_MAX = (int64_t)256 << 20;

/* Returns the name of what the data are, for the error message. */
static const char *name_format(const uint8_t *data, size_t bytes) {
    static const struct {
        const char *name;
        const char *magic;
        size_t length;
    } formats[] = {{"a GIF image", "GIF8", 4},
                   {"a BMP image", "BM", 2},
                   {"a WebP image or other RIFF file", "RIFF", 4},
                   {"a TIFF image", "II*\0", 4},
                   {"a TIFF image", "MM\0*", 4},
                   {"an HTML page", "<", 1},
                   {"a gzip archive", "\x1f\x8b", 2}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (bytes >= formats[i].length && memcmp(data, formats[i].magic, formats[i].length) == 0) {
            return formats[i].name;
        }
    }
    return bytes == 0 ? "an empty file" : "no image that we know";
}

/* Returns whether the bytes begin as each JPEG file does. */
static bool is_jpeg(const uint8_t *data, size_t bytes) {
    return bytes >= 3 && data[0] == 0xFF && data[1] == 0xD8 && data[2] == 0xFF;
}

/* Contract in picture.h. Sizes are limited before memory is taken for the pixels. */
trm_status trmi_picture_open(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                             trmi_picture *out, trm_error *err) {
    if (trmi_is_png(data, bytes)) {
        TRMI_TRY(trmi_png_open(data, bytes, out, err));
    } else if (is_jpeg(data, bytes)) {
        TRMI_TRY(trmi_jpeg_open(scratch, data, bytes, out, err));
    } else {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "expected a JPEG or PNG image, found %s; convert it to JPEG",
                         name_format(data, bytes));
    }
    out->data = data;
    out->bytes = bytes;
    if (out->width < 1 || out->height < 1 || out->width > TRMI_PICTURE_SIDE_MAX ||
        out->height > TRMI_PICTURE_SIDE_MAX || out->width * out->height > PIXELS_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a %s image of %lld x %lld, at most %d a side expected",
                         out->png ? "PNG" : "JPEG", (long long)out->width, (long long)out->height,
                         TRMI_PICTURE_SIDE_MAX);
    }
    return TRM_OK;
}

trm_status trmi_picture_decode(trmi_picture_scratch *scratch, const trmi_picture *picture,
                               int divisor, bool exact, trmi_decoded *out, trm_error *err) {
    if (!picture->png) {
        return trmi_jpeg_decode(scratch, picture, divisor, exact, out, err);
    }
    /* PNG is decoded into the worker's scratch. */
    uint8_t *buffer = trmi_scratch_get(scratch, TRMI_SCRATCH_SOURCE,
                                       (size_t)(picture->width * picture->height * 3));
    if (buffer == NULL) {
        return TRMI_NO_MEMORY(err, "for an image of %lld x %lld", (long long)picture->width,
                              (long long)picture->height);
    }
    TRMI_TRY(trmi_png_decode(picture, buffer, err));
    *out = (trmi_decoded){.pixels = buffer, .row_bytes = picture->width * 3};
    return TRM_OK;
}
