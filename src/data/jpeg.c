#include "data/jpeg.h"

#include "base/error.h"

#include <string.h>
#include <turbojpeg.h>

enum { SIDE_MAX = 65500, SLACK_BYTES = 16 };
static const int64_t pixels_max = (int64_t)256 << 20;

static const char *format_of(const uint8_t *data, size_t bytes) {
    static const struct {
        const char *name;
        const char *magic;
        size_t length;
    } formats[] = {{"a PNG image", "\x89PNG", 4},  {"a GIF image", "GIF8", 4},
                   {"a BMP image", "BM", 2},       {"a WebP image or other RIFF file", "RIFF", 4},
                   {"a TIFF image", "II*\0", 4},   {"a TIFF image", "MM\0*", 4},
                   {"an HTML page", "<", 1},       {"a gzip archive", "\x1f\x8b", 2}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (bytes >= formats[i].length && memcmp(data, formats[i].magic, formats[i].length) == 0) {
            return formats[i].name;
        }
    }
    return bytes == 0 ? "an empty file" : "no image that we know";
}

/* Looks for an APP14 "Adobe" segment before the scan. */
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

trm_status trmi_jpeg_open(trmi_scratch *scratch, const uint8_t *data, size_t bytes, trmi_jpeg *out,
                          trm_error *err) {
    if (bytes < 3 || data[0] != 0xFF || data[1] != 0xD8 || data[2] != 0xFF) {
        return TRMI_FAIL(err, TRM_CORRUPT, "expected a JPEG image, found %s; convert it to JPEG",
                         format_of(data, bytes));
    }
    if (scratch->decoder == NULL) {
        scratch->decoder = tjInitDecompress();
        if (scratch->decoder == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for a JPEG decoder");
        }
    }
    /* A header without an image in it succeeds and writes nothing. */
    int width = 0, height = 0, subsampling = 0, space = 0;
    int failed = tjDecompressHeader3(scratch->decoder, data, bytes, &width, &height, &subsampling,
                                     &space);
    if (failed || (width == 0 && height == 0)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "damaged JPEG header: %s",
                         failed ? tjGetErrorStr2(scratch->decoder) : "no image follows");
    }
    if (width < 1 || height < 1 || width > SIDE_MAX || height > SIDE_MAX ||
        (int64_t)width * height > pixels_max) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a JPEG image of %d x %d, at most %d a side expected",
                         width, height, SIDE_MAX);
    }
    bool cmyk = space == TJCS_CMYK || space == TJCS_YCCK;
    *out = (trmi_jpeg){.height = height,
                       .width = width,
                       .cmyk = cmyk,
                       .inverted = cmyk && has_adobe_marker(data, bytes)};
    return TRM_OK;
}

/* In place, four bytes a pixel to three, as most decoders do it: ink multiplies. */
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

/* libjpeg-turbo goes on after damage with a warning; ImageNet has files with a few harmless bytes
 * between markers, everything else is lost image data. */
static bool harmless(const char *warning) { return strstr(warning, "extraneous bytes") != NULL; }

trm_status trmi_jpeg_decode(trmi_scratch *scratch, const uint8_t *data, size_t bytes,
                            const trmi_jpeg *jpeg, int divisor, bool exact,
                            const uint8_t **pixels, int64_t *row_bytes, trm_error *err) {
    int64_t width = (jpeg->width + divisor - 1) / divisor;
    int64_t height = (jpeg->height + divisor - 1) / divisor;
    size_t needed = (size_t)(width * height * (jpeg->cmyk ? 4 : 3)) + SLACK_BYTES;
    uint8_t *buffer = trmi_scratch_get(scratch, TRMI_SCRATCH_SOURCE, needed);
    if (buffer == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for an image of %lld x %lld",
                         (long long)width, (long long)height);
    }
    int failed = tjDecompress2(scratch->decoder, data, bytes, buffer, (int)width, 0, (int)height,
                               jpeg->cmyk ? TJPF_CMYK : TJPF_RGB,
                               exact ? 0 : TJFLAG_FASTUPSAMPLE);
    if (failed && (tjGetErrorCode(scratch->decoder) != TJERR_WARNING ||
                   !harmless(tjGetErrorStr2(scratch->decoder)))) {
        return TRMI_FAIL(err, TRM_CORRUPT, "damaged JPEG data: %s",
                         tjGetErrorStr2(scratch->decoder));
    }
    if (jpeg->cmyk) {
        cmyk_to_rgb(buffer, width * height, jpeg->inverted);
    }
    *pixels = buffer;
    *row_bytes = width * 3;
    return TRM_OK;
}

void trmi_jpeg_close(trmi_scratch *scratch) {
    if (scratch->decoder != NULL) {
        tjDestroy(scratch->decoder);
        scratch->decoder = NULL;
    }
}
