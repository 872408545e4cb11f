/* SPDX-License-Identifier: Apache-2.0 */
/* PNG through libpng: any depth and colour type becomes 8-bit RGB. libpng reports errors by
 * longjmp; they are converted to errors of ours inside the two functions that call setjmp.
 *
 * Values that must survive a jump are in png_source, outside of the function that jumps. Files come
 * from strangers: limits of size are set before the header is read, and reading stays inside the
 * bytes of the file. */
#include "data/image/picture.h"

#include "base/error.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* The state of reading. libpng leaves by longjmp, so everything that must survive a jump is
 * here. */
typedef struct png_source {
    const uint8_t *data; /* the encoded file */
    size_t bytes, at;    /* length, and position of reading */
    png_structp png;     /* libpng's state */
    png_infop info;      /* libpng's header */
    png_bytep *rows;     /* [height] places of the rows */
    char message[96];    /* of the error, set before the jump */
} png_source;

/* Stores the message of libpng's error and jumps back to setjmp. */
static void on_error(png_structp png, png_const_charp message) {
    png_source *source = png_get_error_ptr(png);
    snprintf(source->message, sizeof source->message, "%s", message);
    png_longjmp(png, 1);
}

/* Ignores libpng's warnings. */
static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

/* Reads from memory. */
static void on_read(png_structp png, png_bytep out, size_t count) {
    png_source *source = png_get_io_ptr(png);
    if (count > source->bytes - source->at) {
        png_error(png, "the data ends early");
    }
    memcpy(out, source->data + source->at, count);
    source->at += count;
}

bool trmi_is_png(const uint8_t *data, size_t bytes) {
    return bytes >= 8 && png_sig_cmp(data, 0, 8) == 0;
}

/* Creates libpng's structs with the limits of size. */
static trm_status begin_png(png_source *source, trm_error *err) {
    source->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, source, on_error, on_warning);
    source->info = source->png != NULL ? png_create_info_struct(source->png) : NULL;
    if (source->info == NULL) {
        png_destroy_read_struct(&source->png, NULL, NULL);
        return TRMI_NO_MEMORY(err, "for a PNG decoder");
    }
    png_set_read_fn(source->png, source, on_read);
    png_set_user_limits(source->png, TRMI_PICTURE_SIDE_MAX, TRMI_PICTURE_SIDE_MAX);
    return TRM_OK;
}

trm_status trmi_png_open(const uint8_t *data, size_t bytes, trmi_picture *out, trm_error *err) {
    png_source source = {.data = data, .bytes = bytes};
    TRMI_TRY(begin_png(&source, err));
    if (setjmp(png_jmpbuf(source.png))) {
        png_destroy_read_struct(&source.png, &source.info, NULL);
        return TRMI_FAIL(err, TRM_CORRUPT, "damaged PNG header: %s", source.message);
    }
    png_read_info(source.png, source.info);
    *out = (trmi_picture){.png = true,
                          .height = png_get_image_height(source.png, source.info),
                          .width = png_get_image_width(source.png, source.info)};
    png_destroy_read_struct(&source.png, &source.info, NULL);
    return TRM_OK;
}

/* Converts every colour type to 8-bit RGB. The stored values are kept (no gamma correction), as
 * Pillow and TensorFlow do. */
static void to_rgb(png_source *source) {
    png_set_expand(source->png);
    png_set_strip_16(source->png);
    png_set_strip_alpha(source->png);
    png_set_gray_to_rgb(source->png);
    (void)png_set_interlace_handling(source->png);
    png_read_update_info(source->png, source->info);
}

/* Contract in picture.h. Members of `source` are set before setjmp, or by libpng's callbacks
 * through its address, so that they have their values after a jump. */
trm_status trmi_png_decode(const trmi_picture *png, uint8_t *pixels, trm_error *err) {
    /* From setjmp on, libpng may jump back at every call. */
    png_source source = {.data = png->data, .bytes = png->bytes};
    TRMI_TRY(begin_png(&source, err));
    source.rows = trmi_alloc((size_t)png->height * sizeof *source.rows);
    if (source.rows == NULL) {
        png_destroy_read_struct(&source.png, &source.info, NULL);
        return TRMI_NO_MEMORY(err, "for %lld rows of an image", (long long)png->height);
    }
    /* libpng writes the rows directly to their places. */
    for (int64_t y = 0; y < png->height; y++) {
        source.rows[y] = pixels + y * png->width * 3;
    }
    if (setjmp(png_jmpbuf(source.png))) {
        png_destroy_read_struct(&source.png, &source.info, NULL);
        trmi_free(source.rows);
        return TRMI_FAIL(err, TRM_CORRUPT, "damaged PNG data: %s", source.message);
    }
    png_read_info(source.png, source.info);
    to_rgb(&source);
    if (png_get_rowbytes(source.png, source.info) != (size_t)png->width * 3) {
        png_error(source.png, "its rows are not of three channels");
    }
    png_read_image(source.png, source.rows);
    png_destroy_read_struct(&source.png, &source.info, NULL);
    trmi_free(source.rows);
    return TRM_OK;
}
