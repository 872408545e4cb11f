/* SPDX-License-Identifier: Apache-2.0 */
/* From files to images: resize against numbers of PyTorch (tests/golden/resize_torch.h), JPEG and
 * PNG by content, class folders, TFRecords, the pipelines of the guides by name.
 *
 * Images are made by the test, or are real ones where TRIREME_DATA has them. A decode at a smaller
 * size must look like the full decode made smaller. Damage is a change of the compressed bytes; a
 * damaged scan must be refused. */
#include "folder.h"
#include "real_data.h"

#include "golden/resize_torch.h"

#include "bench/bench.h"

#include "base/format/crc32c.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/image/picture.h"
#include "data/tfrecord/tfrecord.h"
#include "data/image/transform.h"

#include <math.h>
#include <sys/stat.h>
#include <png.h>
#include <turbojpeg.h>
#include <unistd.h>

/* ---- resize ---------------------------------------------------------------------------------- */

static void resize_agrees_with_pytorch(void **state) {
    enum { H = 12, W = 17 };
    static uint8_t image[H * W * 3 + 16], out[64 * 64 * 3];
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            for (int c = 0; c < 3; c++) {
                image[(y * W + x) * 3 + c] =
                    (uint8_t)((y * 37 + x * 11 + c * 71 + (x * y * (c + 3)) % 29 * 5) % 256);
            }
        }
    }
    static const struct {
        int height, width;
        const float *golden[3];
    } cases[] = {{20, 23, {golden_up_half_pixel, golden_up_original, golden_up_antialias}},
                 {5, 7, {golden_down_half_pixel, golden_down_original, golden_down_antialias}},
                 {30, 4, {golden_mixed_half_pixel, golden_mixed_original, golden_mixed_antialias}}};
    trmi_picture_scratch scratch = {0};
    trm_error err;
    for (int k = 0; k < 3; k++) {
        for (int align = 0; align < 3; align++) {
            trmi_resize_plan plan = {.rect = {0, 0, H, W},
                                     .align = (trm_resize_align)align,
                                     .full_height = cases[k].height,
                                     .full_width = cases[k].width,
                                     .height = cases[k].height,
                                     .width = cases[k].width};
            CHECK_OK(trmi_resize(&scratch, image, H, W, W * 3, &plan, out, &err), err);
            for (int i = 0; i < cases[k].height * cases[k].width * 3; i++) {
                double expected = (double)cases[k].golden[align][i];
                if (fabs(out[i] - expected) > 0.502) {
                    fail_msg("case %d align %d element %d: %d, PyTorch %g", k, align, i, out[i],
                             expected);
                }
            }
        }
    }
    trmi_scratch_free(&scratch);
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

/* A smooth picture of `channels` samples a pixel, as JPEG. The caller frees with tjFree. */
static unsigned char *make_jpeg(int height, int width, int format, int subsampling, int phase,
                                unsigned long *bytes) {
    int channels = tjPixelSize[format];
    uint8_t *pixels = malloc((size_t)(height * width * channels));
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < channels; c++) {
                pixels[(y * width + x) * channels + c] =
                    (uint8_t)(127 + 100 * sin(0.05 * (x + phase) + c) * cos(0.04 * y));
            }
        }
    }
    unsigned char *jpeg = NULL;
    tjhandle handle = tjInitCompress();
    assert_int_equal(
        tjCompress2(handle, pixels, width, 0, height, format, &jpeg, bytes, subsampling, 95, 0), 0);
    tjDestroy(handle);
    free(pixels);
    return jpeg;
}

static const trmi_source_ops test_ops = {.kind = "test"};
static float result[256 * 256 * 3];

static trm_status run_jpeg(const trm_transform *steps, int count, const void *data, size_t bytes,
                           trm_error *err) {
    trmi_chain chain;
    trmi_picture_scratch scratch = {0};
    trmi_source source = {.ops = &test_ops, .form = TRMI_FORM_ENCODED};
    CHECK_OK(trmi_chain_build(steps, count, &source, &chain, err), *err);
    uint8_t *exact = malloc(bytes ? bytes : 1); /* so that a sanitizer sees the end */
    memcpy(exact, data, bytes);
    trmi_sample sample = {.form = TRMI_FORM_ENCODED, .data = exact, .bytes = bytes};
    trm_status status = trmi_chain_run(&chain, &scratch, &sample, 1, 1, result, err);
    free(exact);
    trmi_scratch_free(&scratch);
    return status;
}

static void jpeg_is_decoded_by_content(void **state) {
    trm_error err;
    unsigned long bytes;
    trm_transform steps[] = {trm_transform_decode(true), trm_transform_center_crop(40, 60),
                             trm_transform_type_cast(TRM_FLOAT32)};
    unsigned char *rgb = make_jpeg(40, 60, TJPF_RGB, TJSAMP_444, 0, &bytes);
    CHECK_OK(run_jpeg(steps, 3, rgb, bytes, &err), err);
    for (int i = 0; i < 40 * 60 * 3; i++) {
        double x = i / 3 % 60, y = (double)(i / 180);
        CHECK_CLOSE(result[i] / 255, (127 + 100 * sin(0.05 * x + i % 3) * cos(0.04 * y)) / 255,
                    0.03);
    }
    /* Cut in the middle, and in the header. */
    CHECK_FAILS(run_jpeg(steps, 3, rgb, bytes / 2, &err), TRM_CORRUPT, err, "damaged JPEG data");
    CHECK_FAILS(run_jpeg(steps, 3, rgb, 100, &err), TRM_CORRUPT, err, "damaged JPEG header");
    tjFree(rgb);
    unsigned char *gray = make_jpeg(40, 60, TJPF_GRAY, TJSAMP_GRAY, 0, &bytes);
    CHECK_OK(run_jpeg(steps, 3, gray, bytes, &err), err);
    for (int i = 0; i < 40 * 60; i++) {
        assert_true(result[3 * i] == result[3 * i + 1] && result[3 * i] == result[3 * i + 2]);
        double x = i % 60, y = (double)(i / 60);
        CHECK_CLOSE(result[3 * i] / 255, (127 + 100 * sin(0.05 * x) * cos(0.04 * y)) / 255, 0.03);
    }
    tjFree(gray);
    /* TurboJPEG writes an Adobe marker: stored values are inverted, 255 = no ink. */
    unsigned char *cmyk = make_jpeg(40, 60, TJPF_CMYK, TJSAMP_444, 0, &bytes);
    CHECK_OK(run_jpeg(steps, 3, cmyk, bytes, &err), err);
    for (int i = 0; i < 40 * 60 * 3; i++) {
        double x = i / 3 % 60, y = (double)(i / 180);
        double color = 127 + 100 * sin(0.05 * x + i % 3) * cos(0.04 * y);
        double black = 127 + 100 * sin(0.05 * x + 3) * cos(0.04 * y);
        CHECK_CLOSE(result[i] / 255, color * black / 255 / 255, 0.04);
    }
    tjFree(cmyk);
    CHECK_FAILS(run_jpeg(steps, 3, "GIF89a......", 12, &err), TRM_CORRUPT, err,
                "found a GIF image");
    CHECK_FAILS(run_jpeg(steps, 3, "", 0, &err), TRM_CORRUPT, err, "found an empty file");
}

/* Puts `count` bytes before the end marker. */
static void *pad_jpeg(const unsigned char *jpeg, unsigned long bytes, int count) {
    uint8_t *longer = calloc(1, bytes + (size_t)count);
    memcpy(longer, jpeg, bytes - 2);
    memcpy(longer + bytes - 2 + count, jpeg + bytes - 2, 2);
    return longer;
}

/* Damage of which the decoder only warns is an error. JPEG has no checksum: damage without a
 * warning stays undetected. */
static void damaged_scans_are_refused(void **state) {
    trm_error err;
    unsigned long bytes;
    trm_transform steps[] = {trm_transform_decode(true), trm_transform_center_crop(40, 60),
                             trm_transform_type_cast(TRM_FLOAT32)};
    unsigned char *jpeg = make_jpeg(200, 200, TJPF_RGB, TJSAMP_420, 0, &bytes);
    void *few = pad_jpeg(jpeg, bytes, 3), *many = pad_jpeg(jpeg, bytes, 40);
    CHECK_OK(run_jpeg(steps, 3, few, bytes + 3, &err), err);
    CHECK_FAILS(run_jpeg(steps, 3, many, bytes + 40, &err), TRM_CORRUPT, err,
                " extraneous bytes before marker 0xd9");
    CHECK_FAILS(run_jpeg(steps, 3, jpeg, bytes - 40, &err), TRM_CORRUPT, err,
                "damaged JPEG data: ");
    enum { TRIALS = 200, SPAN = 200, HEADER_BYTES = 700 };
    int refused = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        uint8_t *copy = malloc(bytes);
        memcpy(copy, jpeg, bytes);
        size_t at = HEADER_BYTES + (bytes - HEADER_BYTES - SPAN - 2) * (size_t)trial / TRIALS;
        for (uint32_t i = 0; i < SPAN; i++) {
            copy[at + i] =
                (uint8_t)trmi_random_u32(1, TRMI_STREAM_TEST, (uint64_t)(trial * SPAN) + i);
        }
        trm_status status = run_jpeg(steps, 3, copy, bytes, &err);
        assert_true(status == TRM_OK || status == TRM_CORRUPT);
        refused += status == TRM_CORRUPT;
        free(copy);
    }
    print_message("of %d damaged scans %d are refused\n", TRIALS, refused);
    assert_true(refused > TRIALS * 3 / 4);
    free(few);
    free(many);
    tjFree(jpeg);
}

/* A form of PNG that must be read. */
typedef struct png_case {
    const char *name;
    int color, depth, channels; /* libpng's colour type; bits of a channel; channels in the file */
    bool interlaced;
} png_case;

typedef struct png_sink {
    uint8_t *data;
    size_t bytes;
} png_sink;

static void sink_write(png_structp png, png_bytep data, size_t count) {
    png_sink *sink = png_get_io_ptr(png);
    sink->data = realloc(sink->data, sink->bytes + count);
    memcpy(sink->data + sink->bytes, data, count);
    sink->bytes += count;
}

/* Sample `c` of the stored picture: 8 bits of it. */
static uint8_t png_sample(int y, int x, int c) { return (uint8_t)(y * 7 + x * 3 + c * 50); }

static png_sink make_png(const png_case *test, int height, int width) {
    png_sink sink = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    int bytes = test->depth / 8;
    uint8_t *pixels = malloc((size_t)(height * width * test->channels * bytes));
    png_bytep *rows = malloc((size_t)height * sizeof *rows);
    for (int y = 0; y < height; y++) {
        rows[y] = pixels + y * width * test->channels * bytes;
        for (int i = 0; i < width * test->channels; i++) {
            rows[y][i * bytes] = png_sample(y, i / test->channels, i % test->channels);
            if (bytes == 2) { /* big-endian: the low byte is lost */
                rows[y][i * bytes + 1] = (uint8_t)i;
            }
        }
    }
    png_set_write_fn(png, &sink, sink_write, NULL);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, test->depth, test->color,
                 test->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    png_color palette[256];
    for (int i = 0; i < 256; i++) {
        palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i ^ 0x55)};
    }
    if (test->color == PNG_COLOR_TYPE_PALETTE) {
        png_set_PLTE(png, info, palette, 256);
    }
    png_write_info(png, info);
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(rows);
    free(pixels);
    return sink;
}

/* The expected value of a sample for each colour type; alpha is dropped. */
static int png_expected(const png_case *test, int y, int x, int c) {
    if (test->color == PNG_COLOR_TYPE_PALETTE) {
        int i = png_sample(y, x, 0);
        return c == 0 ? i : c == 1 ? 255 - i : (i ^ 0x55);
    }
    return png_sample(y, x, test->channels < 3 ? 0 : c);
}

static void png_is_decoded_exactly(void **state) {
    static const png_case cases[] = {{"rgb", PNG_COLOR_TYPE_RGB, 8, 3, false},
                                     {"gray", PNG_COLOR_TYPE_GRAY, 8, 1, false},
                                     {"rgba", PNG_COLOR_TYPE_RGBA, 8, 4, false},
                                     {"gray+alpha", PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2, false},
                                     {"palette", PNG_COLOR_TYPE_PALETTE, 8, 1, false},
                                     {"rgb of 16 bits", PNG_COLOR_TYPE_RGB, 16, 3, false},
                                     {"interlaced rgb", PNG_COLOR_TYPE_RGB, 8, 3, true}};
    trm_error err;
    trm_transform steps[] = {trm_transform_decode(true), trm_transform_center_crop(30, 41),
                             trm_transform_type_cast(TRM_FLOAT32)};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        png_sink png = make_png(&cases[k], 30, 41);
        CHECK_OK(run_jpeg(steps, 3, png.data, png.bytes, &err), err);
        for (int i = 0; i < 30 * 41 * 3; i++) {
            int expected = png_expected(&cases[k], i / (41 * 3), i / 3 % 41, i % 3);
            if ((int)result[i] != expected) {
                fail_msg("%s, element %d: %g, expected %d", cases[k].name, i, (double)result[i],
                         expected);
            }
        }
        CHECK_FAILS(run_jpeg(steps, 3, png.data, png.bytes - 30, &err), TRM_CORRUPT, err,
                    "damaged PNG data");
        CHECK_FAILS(run_jpeg(steps, 3, png.data, 20, &err), TRM_CORRUPT, err, "damaged PNG header");
        png.data[png.bytes - 40] ^= 0x40; /* a checksum does not fit */
        CHECK_FAILS(run_jpeg(steps, 3, png.data, png.bytes, &err), TRM_CORRUPT, err,
                    "damaged PNG data");
        free(png.data);
    }
}

static void small_decodes_look_like_full_ones(void **state) {
    static float full[64 * 64 * 3];
    trm_error err;
    unsigned long bytes;
    unsigned char *rgb = make_jpeg(601, 803, TJPF_RGB, TJSAMP_420, 3, &bytes);
    trm_transform ways[] = {trm_transform_resize(64, 64, TRM_RESIZE_ANTIALIAS),
                            trm_transform_random_resized_crop(64, 64),
                            trm_transform_resize_shorter(70, TRM_RESIZE_HALF_PIXEL)};
    for (int w = 0; w < 3; w++) {
        for (int exact = 1; exact >= 0; exact--) {
            trm_transform steps[] = {trm_transform_decode(exact), ways[w],
                                     trm_transform_center_crop(64, 64),
                                     trm_transform_rescale(1 / 255.0, 0)};
            CHECK_OK(run_jpeg(steps, 4, rgb, bytes, &err), err);
            if (exact) {
                memcpy(full, result, sizeof full);
            }
        }
        double difference = 0;
        for (int i = 0; i < 64 * 64 * 3; i++) {
            difference += fabs((double)(result[i] - full[i])) / (64 * 64 * 3);
        }
        assert_true(difference > 0 && difference < 0.012);
    }
    tjFree(rgb);
}

/* ---- class folders --------------------------------------------------------------------------- */

static void class_folders_are_read(void **state) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    unsigned long bytes;
    static const char *const names[] = {"train/b/2.JPEG", "train/b/1.jpg", "train/a/x.jpeg",
                                        "val/b/9.jpeg",   "train/c/q.JPG", "train/c/note.txt"};
    for (int i = 0; i < 6; i++) {
        unsigned char *jpeg = make_jpeg(30 + i, 50, TJPF_RGB, TJSAMP_420, i * 9, &bytes);
        write_in_folder(names[i], jpeg, bytes);
        tjFree(jpeg);
    }
    static const int32_t expected[3][5] = {{0, 1, 1, 2, -1}, {1, -1}, {0, 1, 1, 2, 1}};
    static const int counts[] = {4, 1, 5};
    for (int usage = 0; usage < 3; usage++) {
        CHECK_OK(trm_dataset_image_folder(folder, (trm_usage)usage, &data, &err), err);
        assert_int_equal(trm_dataset_sample_count(data), counts[usage]);
        trm_transform steps[] = {trm_transform_decode(false), trm_transform_resize(16, 16, 0)};
        CHECK_OK(trm_dataset_map(data, steps, 2, &err), err);
        CHECK_OK(trm_dataset_batch(data, 5, false, &err), err);
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        assert_int_equal(batch->samples, counts[usage]);
        const int32_t *label = trm_batch_tensor(batch, "label")->data;
        for (int i = 0; i < counts[usage]; i++) {
            assert_int_equal(label[i], expected[usage][i]);
        }
        trm_dataset_destroy(data);
    }
    /* One of them is damaged: the file is named, and the position stays. */
    write_in_folder("train/b/1.jpg", "GIF89a12345", 11);
    CHECK_OK(trm_dataset_image_folder(folder, 0, &data, &err), err);
    trm_transform steps[] = {trm_transform_decode(false), trm_transform_resize(16, 16, 0)};
    CHECK_OK(trm_dataset_map(data, steps, 2, &err), err);
    CHECK_OK(trm_dataset_prefetch(data, 3, 2, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    for (int again = 0; again < 2; again++) {
        int64_t epoch, index;
        CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err, "train/b/1.jpg");
        assert_non_null(strstr(err.message, "a GIF image"));
        trm_dataset_position(data, &epoch, &index);
        assert_int_equal(index, 1);
    }
    CHECK_OK(trm_dataset_seek(data, 0, 2, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    trm_dataset_destroy(data);
    unlink(in_folder("val/b/9.jpeg"));
    CHECK_FAILS(trm_dataset_image_folder(folder, TRM_USAGE_TEST, &data, &err), TRM_IO, err,
                "without JPEG or PNG");
    write_in_folder("train/c/z.webp", "x", 1);
    CHECK_FAILS(trm_dataset_image_folder(folder, 0, &data, &err), TRM_UNSUPPORTED, err, "z.webp");
    CHECK_FAILS(trm_dataset_image_folder(in_folder("val/b"), 0, &data, &err), TRM_IO, err,
                "no class folders");
    CHECK_FAILS(trm_dataset_image_folder("/not/there", 0, &data, &err), TRM_IO, err, "/not/there");
}

static void lack_of_memory_is_an_error(void **state) {
    trm_error err;
    unsigned long bytes;
    unsigned char *jpeg = make_jpeg(30, 50, TJPF_RGB, TJSAMP_420, 0, &bytes);
    write_in_folder("a/1.jpg", jpeg, bytes);
    write_in_folder("b/2.jpg", jpeg, bytes);
    tjFree(jpeg);
    trm_dataset_spec spec = {
        .path = folder, .batch_size = 2, .image_size = 32, .prefetch_depth = -1};
    for (int64_t k = 1; k < 500; k++) {
        trm_dataset *data = NULL;
        const trm_batch *batch;
        trmi_alloc_fail_after(k);
        trm_status status = trm_dataset_open(&spec, &data, &err);
        if (status == TRM_OK) {
            status = trm_dataset_next(data, &batch, &err);
        }
        trmi_alloc_fail_after(0);
        trm_dataset_destroy(data);
        if (status == TRM_OK) {
            assert_true(k > 8);
            return;
        }
        assert_int_equal(status, TRM_NOMEM);
    }
    fail_msg("still out of memory");
}

/* ---- TFRecord -------------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t data[1 << 17];
    size_t count;
} bytes;

static void put_bytes(bytes *b, const void *data, size_t count) {
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static void put_varint(bytes *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        b->data[b->count++] = (uint8_t)(value | 0x80);
    }
    b->data[b->count++] = (uint8_t)value;
}

static void put_message(bytes *b, int field, const void *data, size_t count) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, count);
    put_bytes(b, data, count);
}

static void put_feature(bytes *features, const char *name, int kind, const void *list,
                        size_t list_bytes) {
    static bytes feature, entry;
    feature.count = entry.count = 0;
    put_message(&feature, kind, list, list_bytes);
    put_message(&entry, 1, name, strlen(name));
    put_message(&entry, 2, feature.data, feature.count);
    put_message(features, 1, entry.data, entry.count);
}

static void put_record(bytes *file, const bytes *record) {
    uint64_t length = record->count;
    uint32_t crc = trmi_crc32c_mask(trmi_crc32c(0, &length, 8));
    put_bytes(file, &length, 8);
    put_bytes(file, &crc, 4);
    put_bytes(file, record->data, record->count);
    crc = trmi_crc32c_mask(trmi_crc32c(0, record->data, record->count));
    put_bytes(file, &crc, 4);
}

static void make_example(bytes *example, const void *jpeg, size_t jpeg_bytes, int64_t label,
                         bool packed) {
    static bytes features, list;
    features.count = list.count = example->count = 0;
    put_message(&list, 1, jpeg, jpeg_bytes);
    put_feature(&features, "image/encoded", 1, list.data, list.count);
    put_feature(&features, "image/format", 1, "\x0a\x04JPEG", 6);
    list.count = 0;
    if (packed) {
        static bytes run;
        run.count = 0;
        put_varint(&run, (uint64_t)label);
        put_message(&list, 1, run.data, run.count);
    } else {
        put_varint(&list, 1 << 3);
        put_varint(&list, (uint64_t)label);
    }
    put_feature(&features, "image/class/label", 3, list.data, list.count);
    put_message(example, 1, features.data, features.count);
}

static void tfrecords_are_read_and_checked(void **state) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    static bytes file, example;
    unsigned long jpeg_bytes;
    size_t third = 0;
    for (int f = 0; f < 2; f++) {
        file.count = 0;
        for (int i = 0; i < 3; i++) {
            third = i == 2 ? file.count : third;
            unsigned char *jpeg =
                make_jpeg(40, 50, TJPF_RGB, TJSAMP_420, f * 30 + i * 10, &jpeg_bytes);
            make_example(&example, jpeg, jpeg_bytes, f * 500 + i * 100 + 1, i & 1);
            put_record(&file, &example);
            tjFree(jpeg);
        }
        write_in_folder(f ? "train-00001-of-00002" : "train-00000-of-00002", file.data, file.count);
    }
    CHECK_OK(trm_dataset_tfrecord_imagenet(folder, 0, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 6);
    assert_int_equal(trm_dataset_class_count(data), 1000);
    trm_transform steps[] = {trm_transform_decode(false), trm_transform_resize(16, 16, 0)};
    CHECK_OK(trm_dataset_map(data, steps, 2, &err), err);
    CHECK_OK(trm_dataset_batch(data, 6, true, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    const int32_t *label = trm_batch_tensor(batch, "label")->data;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(label[i], i / 3 * 500 + i % 3 * 100);
    }
    trm_dataset_destroy(data);
    CHECK_FAILS(trm_dataset_tfrecord_imagenet(folder, TRM_USAGE_TEST, &data, &err), TRM_IO, err,
                "validation-");
    /* A flipped bit in the image: found when it is read. */
    file.data[third + 200] ^= 4;
    write_in_folder("train-00001-of-00002", file.data, file.count);
    CHECK_OK(trm_dataset_tfrecord_imagenet(folder, 0, &data, &err), err);
    CHECK_OK(trm_dataset_map(data, steps, 2, &err), err);
    CHECK_OK(trm_dataset_batch(data, 6, true, &err), err);
    CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err,
                "train-00001-of-00002: record 2 at offset");
    assert_non_null(strstr(err.message, "the checksum of its data is"));
    trm_dataset_destroy(data);
    /* In a length, and a truncated file: found when it is opened. */
    file.data[third + 2] ^= 1;
    write_in_folder("train-00001-of-00002", file.data, file.count);
    CHECK_FAILS(trm_dataset_tfrecord_imagenet(folder, 0, &data, &err), TRM_CORRUPT, err,
                "checksum of its length");
    write_in_folder("train-00001-of-00002", file.data, third - 10);
    CHECK_FAILS(trm_dataset_tfrecord_imagenet(folder, 0, &data, &err), TRM_CORRUPT, err,
                "cut off?");
    /* Label 0, and no label. */
    for (int bad = 0; bad < 2; bad++) {
        file.count = example.count = 0;
        if (bad == 0) {
            make_example(&example, "x", 1, 0, false);
        }
        put_record(&file, &example);
        write_in_folder("train-00001-of-00002", file.data, file.count);
        CHECK_OK(trm_dataset_tfrecord_imagenet(in_folder("train-00001-of-00002"), 0, &data, &err),
                 err);
        CHECK_OK(trm_dataset_map(data, steps, 2, &err), err);
        CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err,
                    bad == 0 ? "label 0" : "no image/encoded");
        trm_dataset_destroy(data);
    }
}

static void real_imagenet_sample_is_read(void **state) {
    const char *path = real_data("imagenet-sample");
    if (path == NULL) {
        skip();
    }
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    for (int usage = 0; usage < 2; usage++) {
        trm_dataset_spec spec = {.path = path,
                                 .usage = (trm_usage)usage,
                                 .batch_size = 25,
                                 .threads = 2,
                                 .prefetch_depth = 2};
        CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
        assert_int_equal(trm_dataset_sample_count(data), 125);
        assert_int_equal(trm_dataset_class_count(data), 125);
        bool seen[125] = {false};
        double sum = 0, squares = 0;
        for (int b = 0; b < 5; b++) {
            CHECK_OK(trm_dataset_next(data, &batch, &err), err);
            const trm_tensor *image = trm_batch_tensor(batch, "image");
            const int32_t *label = trm_batch_tensor(batch, "label")->data;
            assert_int_equal(image->shape.dim[3], 224);
            for (int i = 0; i < 25; i++) {
                assert_false(seen[label[i]]);
                seen[label[i]] = true;
            }
            const float *values = image->data;
            for (int64_t i = 0; i < trm_shape_count(&image->shape); i += 101) {
                sum += (double)values[i];
                squares += (double)values[i] * (double)values[i];
            }
        }
        double count = 5 * 25 * 3 * 224 * 224 / 101.0;
        assert_true(fabs(sum / count) < 0.25 && squares / count > 0.7 && squares / count < 1.5);
        trm_dataset_destroy(data);
    }
}

/* ---- named pipelines ------------------------------------------------------------------------- */

static void has_text(trm_dataset *data, const char *part) {
    char *text = trm_dataset_json(data);
    assert_non_null(text);
    if (strstr(text, part) == NULL) {
        fail_msg("no %s in %s", part, text);
    }
    trm_free(text);
}

static void open_builds_the_guides_pipelines(void **state) {
    trm_error err;
    trm_dataset *data;
    trm_batch_field field;
    CHECK_OK(
        trm_shapes_write(&(trm_shapes_options){.train_count = 100, .test_count = 20}, folder, &err),
        err);
    trm_dataset_spec spec = {.path = folder, .seed = 5, .shard_count = 2, .shard_index = 1};
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    CHECK_OK(trm_dataset_repeat(data, 3, &err), err); /* it can still be refined */
    assert_int_equal(trm_dataset_sample_count(data), 100);
    has_text(data, "\"mean\":[0.4914,0.4822,0.4465]");
    has_text(data, "\"shard\":{\"count\":2,\"index\":1,\"mode\":\"wrap\"}");
    has_text(data, "\"epoch_batches\":1");
    has_text(data, "RandomCrop");
    trm_dataset_destroy(data);
    spec.fixed_recipe = true;
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 120); /* all files */
    has_text(data, "\"mean\":[0.4465,0.4822,0.4914],\"std\":[0.201,0.1994,0.2023]");
    has_text(data, "\"window\":10");
    assert_true(trm_dataset_field(data, 0, &field));
    assert_int_equal(field.tensor.shape.dim[2], 224);
    trm_dataset_destroy(data);
    spec = (trm_dataset_spec){.kind = "cifar10",
                              .path = folder,
                              .usage = TRM_USAGE_TEST,
                              .channels_last = true,
                              .batch_size = 16};
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 20);
    assert_int_equal(trm_dataset_epoch_batches(data), 2);
    has_text(data, "\"shuffle\":false");
    assert_true(trm_dataset_field(data, 0, &field));
    assert_int_equal(field.tensor.shape.dim[3], 3);
    trm_dataset_destroy(data);
    spec = (trm_dataset_spec){.path = "synth"};
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 50000);
    trm_dataset_destroy(data);
    spec = (trm_dataset_spec){.kind = "random", .image_size = 48, .classes = 7};
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    assert_int_equal(trm_dataset_class_count(data), 7);
    trm_dataset_destroy(data);
    spec = (trm_dataset_spec){.path = "/not/there"};
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), TRM_IO, err, "/not/there");
    spec.path = NULL;
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), TRM_INVALID, err, "no data");
    spec = (trm_dataset_spec){.kind = "cifar", .path = folder};
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), TRM_INVALID, err, "unknown dataset cifar");
    spec = (trm_dataset_spec){.path = folder, .batch_size = 1000};
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), TRM_INVALID, err, "no batch");
    spec = (trm_dataset_spec){.path = "random", .fixed_recipe = true};
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), TRM_INVALID, err, "exact pipeline");
    CHECK_OK(trmi_os_make_dirs(NULL, in_folder("empty"), &err), err);
    spec = (trm_dataset_spec){.path = in_folder("empty")};
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), TRM_INVALID, err, "unknown kind of data");
}

static void bench_measures(void **state) {
    trm_error err;
    trm_dataset *data;
    bench_data_rate rate;
    trm_dataset_spec spec = {.path = "synth", .batch_size = 16};
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    CHECK_OK(bench_dataset(data, 0.05, &rate, &err), err);
    assert_true(rate.samples >= 16 && rate.microseconds_per_sample > 0);
    assert_true(rate.decode_microseconds_per_sample == 0);
    trm_dataset_destroy(data);
    const char *path = real_data("imagenet-sample");
    if (path != NULL) {
        spec = (trm_dataset_spec){.path = path, .batch_size = 8};
        CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
        CHECK_OK(bench_dataset(data, 0.2, &rate, &err), err);
        assert_true(rate.decode_microseconds_per_sample > 100);
        trm_dataset_destroy(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resize_agrees_with_pytorch),
        cmocka_unit_test(jpeg_is_decoded_by_content),
        cmocka_unit_test(damaged_scans_are_refused),
        cmocka_unit_test(png_is_decoded_exactly),
        cmocka_unit_test(small_decodes_look_like_full_ones),
        cmocka_unit_test_setup_teardown(class_folders_are_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(lack_of_memory_is_an_error, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tfrecords_are_read_and_checked, make_folder, remove_folder),
        cmocka_unit_test(real_imagenet_sample_is_read),
        cmocka_unit_test_setup_teardown(open_builds_the_guides_pipelines, make_folder,
                                        remove_folder),
        cmocka_unit_test(bench_measures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
