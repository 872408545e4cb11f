/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG through libjpeg-turbo, which scales while it decodes. CMYK as Adobe writes it (inverted)
 * becomes RGB.
 *
 * A decoder belongs to the scratch of one worker and is kept from image to image. Files come from
 * strangers: sizes are checked before memory is taken, and warnings of the library that mean lost
 * pixels are errors (is_harmless_warning). */
#include "data/image/picture.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <turbojpeg.h>

enum { SLACK_BYTES = 16 }; /* readable past the image, for vector loads */

/* Returns whether there is an APP14 "Adobe" segment before the scan. */
static bool has_adobe_marker(const uint8_t *data, size_t bytes) {
    size_t at = 2;
    while (at + 4 <= bytes && data[at] == 0xFF) {
        uint8_t marker = data[at + 1];
        size_t length = (size_t)data[at + 2] << 8 | data[at + 3];
        if (marker == 0xFF) {
            at++;
            continue;
        }
        if (marker == 0xDA || length < 2) {
            return false;
        }
        if (marker == 0xEE && length >= 7 && at + 9 <= bytes &&
            memcmp(data + at + 4, "Adobe", 5) == 0) {
            return true;
        }
        at += 2 + length;
    }
    return false;
}

/* Contract in picture.h. The decoder belongs to the scratch of a worker and is used again for the
 * next image. */
trm_status trmi_jpeg_open(trmi_picture_scratch *scratch, const uint8_t *data, size_t bytes,
                          trmi_picture *out, trm_error *err) {
    if (scratch->decoder == NULL) {
        scratch->decoder = tjInitDecompress();
        if (scratch->decoder == NULL) {
            return TRMI_NO_MEMORY(err, "for a JPEG decoder");
        }
    }
    /* For a header without an image libjpeg-turbo reports success and writes nothing. */
    int width = 0, height = 0, subsampling = 0, space = 0;
    int failed =
        tjDecompressHeader3(scratch->decoder, data, bytes, &width, &height, &subsampling, &space);
    if (failed || (width == 0 && height == 0)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "damaged JPEG header: %s",
                         failed ? tjGetErrorStr2(scratch->decoder) : "no image follows");
    }
    bool cmyk = space == TJCS_CMYK || space == TJCS_YCCK;
    *out = (trmi_picture){.height = height,
                          .width = width,
                          .cmyk = cmyk,
                          .inverted = cmyk && has_adobe_marker(data, bytes)};
    return TRM_OK;
}

/* Converts in place, four bytes for each pixel to three. Most decoders use the same simple
 * formula. */
static void cmyk_to_rgb(uint8_t *pixels, int64_t count, bool inverted) {
    for (int64_t i = 0; i < count; i++) {
        int ink[4];
        for (int c = 0; c < 4; c++) {
            ink[c] = inverted ? pixels[4 * i + c] : 255 - pixels[4 * i + c];
        }
        for (int c = 0; c < 3; c++) {
            pixels[3 * i + c] = (uint8_t)((ink[c] * ink[3] + 127) / 255);
        }
    }
}

/* Returns true for warnings that do not mean damage. libjpeg-turbo continues after damage with a
 * warning, and reports only the first one of an image. A few bytes between the last block and the
 * end marker are padding by an encoder. More bytes are left over where damaged data needed fewer
 * bytes for the blocks: of 476 damaged files with only this warning, none had fewer than 5. About
 * one damaged file in twelve decodes without any warning and cannot be recognised, because JPEG has
 * no checksum. */
static bool is_harmless_warning(const char *warning) {
    enum { PADDING_BYTES = 4, END_MARKER = 0xD9 };
    unsigned bytes, marker;
    return sscanf(warning, "Corrupt JPEG data: %u extraneous bytes before marker %x", &bytes,
                  &marker) == 2 &&
           bytes <= PADDING_BYTES && marker == END_MARKER;
}

/* Removes libjpeg-turbo's own prefix from a warning. */
static const char *without_prefix(const char *warning) {
    static const char prefix[] = "Corrupt JPEG data: ";
    return strncmp(warning, prefix, sizeof prefix - 1) == 0 ? warning + sizeof prefix - 1 : warning;
}

/* Contract in picture.h. Warnings of libjpeg-turbo mean that pixels are missing or wrong, but for a
 * few kinds (is_harmless_warning): a training on such pixels would go unnoticed, so they are
 * errors. */
trm_status trmi_jpeg_decode(trmi_picture_scratch *scratch, const trmi_picture *jpeg, int divisor,
                            bool exact, trmi_decoded *out, trm_error *err) {
    /* libjpeg-turbo scales while it decodes and rounds the size up. */
    int64_t width = (jpeg->width + divisor - 1) / divisor;
    int64_t height = (jpeg->height + divisor - 1) / divisor;
    size_t needed = (size_t)(width * height * (jpeg->cmyk ? 4 : 3)) + SLACK_BYTES;
    uint8_t *buffer = trmi_scratch_get(scratch, TRMI_SCRATCH_SOURCE, needed);
    if (buffer == NULL) {
        return TRMI_NO_MEMORY(err, "for an image of %lld x %lld", (long long)width,
                              (long long)height);
    }
    /* Decode. Only a harmless warning is no error. */
    int failed =
        tjDecompress2(scratch->decoder, jpeg->data, jpeg->bytes, buffer, (int)width, 0, (int)height,
                      jpeg->cmyk ? TJPF_CMYK : TJPF_RGB, exact ? 0 : TJFLAG_FASTUPSAMPLE);
    if (failed && (tjGetErrorCode(scratch->decoder) != TJERR_WARNING ||
                   !is_harmless_warning(tjGetErrorStr2(scratch->decoder)))) {
        return TRMI_FAIL(err, TRM_CORRUPT, "damaged JPEG data: %s; replace or remove the image",
                         without_prefix(tjGetErrorStr2(scratch->decoder)));
    }
    if (jpeg->cmyk) {
        cmyk_to_rgb(buffer, width * height, jpeg->inverted);
    }
    *out = (trmi_decoded){.pixels = buffer, .row_bytes = width * 3};
    return TRM_OK;
}

void trmi_picture_close(trmi_picture_scratch *scratch) {
    if (scratch->decoder != NULL) {
        tjDestroy(scratch->decoder);
        scratch->decoder = NULL;
    }
}
