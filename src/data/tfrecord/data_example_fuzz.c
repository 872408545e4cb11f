/* SPDX-License-Identifier: Apache-2.0 */
/* TFRecord framing, tf.Example, and JPEG headers as far as they are ours. */
#include "fuzz_seed.h"

#include "base/format/crc32c.h"
#include "data/image/picture.h"
#include "data/tfrecord/tfrecord.h"

#include <png.h>
#include <string.h>
#include <turbojpeg.h>

static const uint8_t example[] = {10,   46,  10,  14, 10, 5,   'l', 'a', 'b', 'e', 'l', 18,
                                  5,    26,  3,   10, 1,  1,   10,  17,  10,  5,   'p', 'r',
                                  'i',  'c', 'e', 18, 8,  18,  6,   10,  4,   0,   0,   0x20,
                                  0x40, 10,  9,   10, 1,  'u', 18,  4,   10,  2,   10,  0};

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    /* Make a tf.Example, the same as a TFRecord, and images in PNG and JPEG. */
    if (index % 3 == 0) {
        memcpy(data, example, sizeof example);
        return sizeof example;
    }
    if (index % 3 == 1) { /* framed */
        uint64_t bytes = sizeof example;
        uint32_t crc = trmi_crc32c_mask(trmi_crc32c(0, &bytes, 8));
        memcpy(data, &bytes, 8);
        memcpy(data + 8, &crc, 4);
        memcpy(data + 12, example, sizeof example);
        crc = trmi_crc32c_mask(trmi_crc32c(0, example, sizeof example));
        memcpy(data + 12 + sizeof example, &crc, 4);
        return sizeof example + 16;
    }
    static const uint8_t pixels[16 * 16 * 4] = {9, 200, 30, 77};
    if (index % 6 == 5) {
        png_image png = {
            .version = PNG_IMAGE_VERSION, .width = 16, .height = 16, .format = PNG_FORMAT_RGBA};
        png_alloc_size_t room = capacity;
        return png_image_write_to_memory(&png, data, &room, 0, pixels, 0, NULL) ? room : 0;
    }
    unsigned char *jpeg = data;
    unsigned long bytes = capacity;
    tjhandle handle = tjInitCompress();
    bool cmyk = index % 2;
    if (tjCompress2(handle, pixels, 16, 0, 16, cmyk ? TJPF_CMYK : TJPF_RGB, &jpeg, &bytes,
                    TJSAMP_420, 80, TJFLAG_NOREALLOC) != 0) {
        bytes = 0;
    }
    tjDestroy(handle);
    return bytes;
}

static void walk_feature(const trmi_feature *feature) {
    trmi_feature_walk bytes = trmi_feature_begin(feature), floats = bytes, whole = bytes;
    const uint8_t *data;
    size_t length, sum = 0;
    float real;
    int64_t number;
    while (trmi_feature_next_bytes(&bytes, &data, &length)) {
        for (size_t i = 0; i < length; i++) {
            sum += data[i];
        }
    }
    while (trmi_feature_next_float(&floats, &real)) {
        sum += real > 0;
    }
    while (trmi_feature_next_int64(&whole, &number)) {
        sum += number > 0;
    }
    __asm__ volatile("" : : "r"(sum)); /* so that the reads stay */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const names[] = {"label", "price", "u"};
    trm_error err;
    trmi_feature features[3];
    if (trmi_example_find(data, bytes, names, 3, features, &err) == TRM_OK) {
        for (int i = 0; i < 3; i++) {
            walk_feature(&features[i]);
        }
    }
    /* the same bytes as a file of records, and as an image */
    trmi_tfrecord_reader reader = {.name = "fuzz", .file = data, .bytes = bytes};
    const uint8_t *body;
    size_t length;
    while (trmi_tfrecord_next(&reader, &body, &length, &err) == TRM_OK) {
        (void)trmi_example_find(body, length, names, 3, features, &err);
    }
    static trmi_picture_scratch scratch;
    trmi_picture picture;
    if (trmi_picture_open(&scratch, data, bytes, &picture, &err) == TRM_OK &&
        picture.height * picture.width < 1 << 20) {
        trmi_decoded decoded;
        (void)trmi_picture_decode(&scratch, &picture, 1, true, &decoded, &err);
    }
    return 0;
}
