/* SPDX-License-Identifier: Apache-2.0 */
/* Ten classes of shapes in CIFAR-10's form, drawn when they are read. A picture has one shape of
 * random class, place, size, angle and colour, on a gradient with a wavy texture, some thin lines,
 * and noise. Picture i is a function of (seed, i).
 *
 *   trmi_shape_draw: paint_background, paint_lines, paint_shape, noise --> bytes, channels first
 *
 * The set is for tests and first steps without a download: its classes can be learned, but not by
 * colour or place. */
#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/image/cifar10.h"
#include "data/pipeline/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORDS "records.txt"

/* Sizes: pixels, samples unless the options say otherwise and at most, files of the training set
 * (as CIFAR-10 has them). */
enum {
    SIDE = TRMI_CIFAR10_SIDE,
    AREA = SIDE * SIDE,
    DEFAULT_TRAIN = 50000,
    DEFAULT_TEST = 10000,
    COUNT_MAX = 100000000,
    TRAIN_FILES = 5
};
/* Samples of the test set have numbers from here on. */
static const int64_t test_origin = (int64_t)1 << 40;

/* Names of the classes, by label. */
static const char *const NAMES[10] = {"disc",  "ring", "square",    "frame",    "triangle",
                                      "cross", "star", "half-disc", "crescent", "bars"};

int32_t trmi_shape_label(uint64_t seed, int64_t index) {
    /* Any ten neighbours, from a multiple of ten on, have all ten classes. */
    return (int32_t)((trmi_mix(seed, (uint64_t)(index / 10)) + (uint64_t)index) % 10);
}

/* Returns whether (u, v), in units of the shape's radius, is inside a star. */
static bool in_star(float u, float v) {
    /* Five points. Within a tenth of a turn of a point's axis, the edge runs from the point (radius
     * 1) to the notch (radius 0.42). */
    const float turn = 6.28318531f / 5;
    float radius = sqrtf(u * u + v * v);
    float angle = fabsf(remainderf(atan2f(v, u), turn));
    const float notch = 0.42f;
    float ex = notch * cosf(turn / 2) - 1, ey = notch * sinf(turn / 2);
    float px = radius * cosf(angle) - 1, py = radius * sinf(angle);
    return ex * py - ey * px > 0;
}

/* Returns whether (u, v), in units of the shape's radius, is inside the shape of class `label`. */
static bool is_inside_shape(int32_t label, float u, float v) {
    float square = u * u + v * v;
    /* Measure distances from the centre: round (squared), and along the axes. */
    float box = fmaxf(fabsf(u), fabsf(v));
    switch (label) {
    case 0: return square < 0.81f;
    case 1: return square < 1 && square > 0.36f;
    case 2: return box < 0.78f;
    case 3: return box < 0.85f && box > 0.52f;
    case 4: return v > -0.5f && v < 1 - 1.732f * fabsf(u);
    case 5: return box < 0.95f && fminf(fabsf(u), fabsf(v)) < 0.27f;
    case 6: return square < 1.1f && in_star(u, v);
    case 7: return square < 1 && v > -0.1f;
    case 8: return square < 1 && (u - 0.5f) * (u - 0.5f) + v * v > 0.64f;
    default: return fabsf(u) < 0.85f && fabsf(v) < 0.75f && fabsf(v) > 0.25f;
    }
}

/* The random numbers of one picture, in order. */
typedef struct deck {
    uint64_t seed, counter; /* of the picture; next block of Philox */
    uint32_t bits[4];       /* the present block */
    int used;               /* words of it that are used */
} deck;

/* Returns the next 32 random bits. */
static uint32_t draw_bits(deck *d) {
    if (d->used == 4) {
        trmi_philox(d->seed, TRMI_STREAM_SYNTH, d->counter++, d->bits);
        d->used = 0;
    }
    return d->bits[d->used++];
}

/* Returns a random number, uniform in [low, high). */
static float draw_uniform(deck *d, float low, float high) {
    return low + (high - low) * trmi_unit_float(draw_bits(d));
}

/* Paints a gradient with a wavy texture, different in each channel. */
static void paint_background(deck *d, float canvas[3][AREA]) {
    float wave_x[SIDE], wave_y[SIDE];
    float frequency_x = draw_uniform(d, 0.05f, 0.9f), frequency_y = draw_uniform(d, 0.05f, 0.9f);
    float phase_x = draw_uniform(d, 0, 6.283f), phase_y = draw_uniform(d, 0, 6.283f);
    for (int i = 0; i < SIDE; i++) {
        wave_x[i] = sinf(frequency_x * (float)i + phase_x);
        wave_y[i] = sinf(frequency_y * (float)i + phase_y);
    }
    for (int c = 0; c < 3; c++) {
        float base = draw_uniform(d, 40, 215), slope_x = draw_uniform(d, -1.5f, 1.5f),
              slope_y = draw_uniform(d, -1.5f, 1.5f);
        float wave = draw_uniform(d, 0, 14);
        for (int y = 0; y < SIDE; y++) {
            for (int x = 0; x < SIDE; x++) {
                canvas[c][y * SIDE + x] = base + slope_x * (float)(x - SIDE / 2) +
                                          slope_y * (float)(y - SIDE / 2) +
                                          wave * wave_x[x] * wave_y[y];
            }
        }
    }
}

/* Paints up to two thin lines across the picture. */
static void paint_lines(deck *d, float canvas[3][AREA]) {
    int lines = (int)trmi_bounded(draw_bits(d), 3);
    for (int i = 0; i < lines; i++) {
        /* Draw angle and distance from the centre, half the width, colour. */
        float angle = draw_uniform(d, 0, 3.1416f), offset = draw_uniform(d, -14, 14),
              width = draw_uniform(d, 0.4f, 0.9f);
        float nx = cosf(angle), ny = sinf(angle);
        float color[3] = {draw_uniform(d, 0, 255), draw_uniform(d, 0, 255),
                          draw_uniform(d, 0, 255)};
        /* Colour each pixel by its distance from the line; the edge is one pixel wide. */
        for (int p = 0; p < AREA; p++) {
            float x = (float)(p % SIDE) - 15.5f, y = (float)(p / SIDE) - 15.5f;
            float distance = fabsf(nx * x + ny * y - offset);
            float cover = fminf(fmaxf(width + 0.5f - distance, 0), 1);
            for (int c = 0; c < 3; c++) {
                canvas[c][p] += cover * (color[c] - canvas[c][p]);
            }
        }
    }
}

/* Paints the shape with a colour that differs from the background. Size, place, angle and stretch
 * are random too. */
static void paint_shape(deck *d, int32_t label, float canvas[3][AREA]) {
    /* Size and place, so that most of the shape is inside the picture. */
    float radius = draw_uniform(d, 8, 13);
    float reach = 0.8f * (16 - 0.75f * radius);
    float cx = 15.5f + draw_uniform(d, -1, 1) * reach, cy = 15.5f + draw_uniform(d, -1, 1) * reach;
    float angle = draw_uniform(d, -0.5f, 0.5f), stretch = draw_uniform(d, 0.85f, 1.18f);
    float cosine = cosf(angle) / radius, sine = sinf(angle) / radius;
    int centre = (int)fminf(fmaxf(cy, 0), SIDE - 1) * SIDE + (int)fminf(fmaxf(cx, 0), SIDE - 1);
    float color[3], contrast = 0;
    /* Draw a colour with enough contrast to the background at the shape's centre. */
    for (int attempt = 0; attempt < 16 && contrast < 150; attempt++) {
        contrast = 0;
        for (int c = 0; c < 3; c++) {
            color[c] = draw_uniform(d, 0, 255);
            contrast += fabsf(color[c] - canvas[c][centre]);
        }
    }
    /* four samples for each pixel give smooth edges */
    for (int p = 0; p < AREA; p++) {
        int covered = 0;
        for (int s = 0; s < 4; s++) {
            float x = (float)(p % SIDE) + (s & 1 ? 0.25f : -0.25f) - cx;
            float y = (float)(p / SIDE) + (s & 2 ? 0.25f : -0.25f) - cy;
            float u = (cosine * x + sine * y) * stretch, v = (cosine * y - sine * x) / stretch;
            covered += is_inside_shape(label, u, v);
        }
        for (int c = 0; c < 3 && covered > 0; c++) {
            canvas[c][p] += 0.25f * (float)covered * (color[c] - canvas[c][p]);
        }
    }
}

/* Contract in source.h. Random numbers are taken from one deck in a fixed order, so each picture
 * can be drawn by itself, on any thread. */
void trmi_shape_draw(uint64_t seed, int64_t index, uint8_t *planar) {
    deck d = {.seed = trmi_mix(seed ^ 0x5a6e5u, (uint64_t)index), .used = 4};
    float canvas[3][AREA];
    paint_background(&d, canvas);
    paint_lines(&d, canvas);
    paint_shape(&d, trmi_shape_label(seed, index), canvas);
    float noise = draw_uniform(&d, 2, 12) * (1.0f / 147.8f);
    for (int i = 0; i < 3 * AREA; i++) {
        /* The sum of four random bytes is close to a normal distribution with deviation 147.8. */
        uint32_t bits = draw_bits(&d);
        uint32_t sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
        float value = canvas[i / AREA][i % AREA] + noise * ((float)sum - 510.0f);
        planar[i] = (uint8_t)lrintf(fminf(fmaxf(value, 0), 255));
    }
}

/* ---- the source --------------------------------------------------------------------------- */

/* The source. */
typedef struct shapes {
    trmi_source base; /* must be the first member */
    uint64_t seed;    /* of the whole set */
    int64_t train;    /* number of samples of the training set */
    bool with_train;  /* training pictures come before the test pictures */
} shapes;

/* Returns the number of the picture at `index`: training pictures first, then test pictures. */
static int64_t number_of(const shapes *set, int64_t index) {
    int64_t train = set->with_train ? set->train : 0;
    return index < train ? index : test_origin + index - train;
}

/* Draws a picture into the worker's scratch. */
static trm_status load_shape(const trmi_source *source, trmi_picture_scratch *scratch,
                             int64_t index, trmi_sample *out, trm_error *err) {
    const shapes *set = (const shapes *)source;
    uint8_t *pixels = trmi_scratch_get(scratch, TRMI_SCRATCH_SOURCE, TRMI_CIFAR10_PIXELS);
    if (pixels == NULL) {
        return TRMI_NO_MEMORY(err, "for a shape");
    }
    int64_t number = number_of(set, index);
    trmi_shape_draw(set->seed, number, pixels);
    *out = (trmi_sample){.form = TRMI_FORM_PLANAR,
                         .data = pixels,
                         .bytes = TRMI_CIFAR10_PIXELS,
                         .height = SIDE,
                         .width = SIDE,
                         .label = trmi_shape_label(set->seed, number)};
    return TRM_OK;
}

/* The functions of a source (data/pipeline/source.h) that say what it is. */
static void write_shape_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    (void)source;
    snprintf(text, size, "shape %lld", (long long)index);
}

static void describe_shapes(const trmi_source *source, trmi_report *report) {
    trmi_report_put(report, trmi_bool("generated", true),
                    trmi_unsigned("seed", ((const shapes *)source)->seed));
}

static void destroy_shapes(trmi_source *source) { trmi_free(source); }

static const trmi_source_ops shapes_ops = {.kind = "shapes",
                                           .load = load_shape,
                                           .place = write_shape_place,
                                           .describe = describe_shapes,
                                           .destroy = destroy_shapes};

/* Fills in the defaults and checks them. */
static trm_status settle_counts(const trm_shapes_options *options, int64_t *train, int64_t *test,
                                uint64_t *seed, trm_error *err) {
    *train = options != NULL && options->train_count != 0 ? options->train_count : DEFAULT_TRAIN;
    *test = options != NULL && options->test_count != 0 ? options->test_count : DEFAULT_TEST;
    *seed = options != NULL ? options->seed : 0;
    if (*train < 1 || *test < 1 || *train > COUNT_MAX || *test > COUNT_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "shapes: %lld and %lld samples, 1..%d expected",
                         (long long)*train, (long long)*test, COUNT_MAX);
    }
    return TRM_OK;
}

trm_status trm_dataset_shapes(const trm_shapes_options *options, trm_usage usage, trm_dataset **out,
                              trm_error *err) {
    TRMI_NEED(err, out);
    int64_t train, test;
    uint64_t seed;
    TRMI_TRY(settle_counts(options, &train, &test, &seed, err));
    shapes *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "for a dataset"));
    set->seed = seed;
    set->train = train;
    set->with_train = usage != TRM_USAGE_TEST;
    set->base = (trmi_source){.ops = &shapes_ops,
                              .count = usage == TRM_USAGE_TRAIN  ? train
                                       : usage == TRM_USAGE_TEST ? test
                                                                 : train + test,
                              .classes = TRMI_CIFAR10_CLASSES,
                              .form = TRMI_FORM_PLANAR,
                              .height = SIDE,
                              .width = SIDE};
    return trmi_dataset_create(&set->base, out, err);
}

/* ---- writing as files ---- */

/* Writes one file of records. */
static trm_status write_file(const char *path, const char *name, uint64_t seed, int64_t first,
                             int64_t count, trm_error *err) {
    char full[4096];
    if (snprintf(full, sizeof full, "%s/%s", path, name) >= (int)sizeof full) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", path);
    }
    size_t bytes = (size_t)count * TRMI_CIFAR10_RECORD;
    uint8_t *records;
    TRMI_TRY(TRMI_NEW(err, records, bytes, "for %lld records of %s", (long long)count, full));
    for (int64_t i = 0; i < count; i++) {
        uint8_t *record = records + i * TRMI_CIFAR10_RECORD;
        record[0] = (uint8_t)trmi_shape_label(seed, first + i);
        trmi_shape_draw(seed, first + i, record + 1);
    }
    trm_status status = trmi_os_replace_file(NULL, full, records, bytes, err);
    trmi_free(records);
    return status;
}

/* Writes a text file and frees the text. */
static trm_status write_text(const char *path, const char *name, trmi_text *text, trm_error *err) {
    char full[4096];
    trm_status status;
    if (snprintf(full, sizeof full, "%s/%s", path, name) >= (int)sizeof full) {
        status = TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", path);
    } else if (text->failed) {
        status = TRMI_NO_MEMORY(err, "for %s", full);
    } else {
        status = trmi_os_replace_file(NULL, full, text->data, text->length, err);
    }
    trmi_text_free(text);
    return status;
}

/* Returns whether the folder has a file of this name. */
static bool has_file(const char *path, const char *name) {
    char full[4096];
    return snprintf(full, sizeof full, "%s/%s", path, name) < (int)sizeof full &&
           access(full, F_OK) == 0;
}

/* Returns the records of training file number `file`. */
static int64_t records_of(int64_t train, int file) {
    return train / TRAIN_FILES + (file < train % TRAIN_FILES);
}

/* Writes how many records each file has. It is written first, because a folder of shapes is
 * recognised by it and so is not mistaken for CIFAR-10 itself. */
static trm_status write_list(const char *path, int64_t train, int64_t test, trm_error *err) {
    trmi_text list = {0};
    for (int f = 0; f < TRAIN_FILES; f++) {
        trmi_text_printf(&list, "data_batch_%d.bin %lld\n", f + 1, (long long)records_of(train, f));
    }
    trmi_text_printf(&list, "test_batch.bin %lld\n", (long long)test);
    return write_text(path, RECORDS, &list, err);
}

/* Contract in trireme/data.h. The list of lengths is written first: it marks the folder as made by
 * this function, also if writing the files is interrupted. */
trm_status trm_shapes_write(const trm_shapes_options *options, const char *path, trm_error *err) {
    TRMI_NEED(err, path);
    int64_t train, test, first = 0;
    uint64_t seed;
    TRMI_TRY(settle_counts(options, &train, &test, &seed, err));
    TRMI_TRY(trmi_os_make_dirs(NULL, path, err));
    /* never overwrite a real data set */
    if (!has_file(path, RECORDS) &&
        (has_file(path, "data_batch_1.bin") || has_file(path, "test_batch.bin"))) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s has other data (batch files without " RECORDS
                         "), which would be lost: give another folder",
                         path);
    }
    /* Write the list first, then the records, then the names of the classes. */
    TRMI_TRY(write_list(path, train, test, err));
    for (int f = 0; f < TRAIN_FILES; f++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", f + 1);
        TRMI_TRY(write_file(path, name, seed, first, records_of(train, f), err));
        first += records_of(train, f);
    }
    TRMI_TRY(write_file(path, "test_batch.bin", seed, test_origin, test, err));
    trmi_text names = {0};
    for (int c = 0; c < TRMI_CIFAR10_CLASSES; c++) {
        trmi_text_printf(&names, "%s\n", NAMES[c]);
    }
    return write_text(path, "batches.meta.txt", &names, err);
}
