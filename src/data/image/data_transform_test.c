/* SPDX-License-Identifier: Apache-2.0 */
/* Every transform of images against an obvious scalar twin of this file, and the inner loops of
 * all instruction sets against each other.
 *
 * Images are noise that follows from a key (fill_noise), and crops and flips follow from the seed,
 * so that a twin throws the same dice as the transform. Twins compute in double from the
 * definition; results may differ from theirs by rounding, those of two instruction sets by no
 * bit. */
#include "check.h"

#include "base/cpu.h"
#include "base/format/half.h"
#include "base/rng.h"
#include "data/image/pixels.h"
#include "data/image/transform.h"

#include <math.h>

enum { SIDE_MAX = 96, SEED = 12345 };

/* The twin's picture: doubles, interleaved. */
typedef struct picture {
    int height, width;
    double at[SIDE_MAX][SIDE_MAX][3];
} picture;

static uint8_t byte_at(int key, int y, int x, int c) {
    return (uint8_t)trmi_random_u32((uint64_t)key, TRMI_STREAM_TEST,
                                    (uint64_t)((y * SIDE_MAX + x) * 3 + c));
}

static void fill_noise(picture *p, int key, int height, int width) {
    p->height = height;
    p->width = width;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < 3; c++) {
                p->at[y][x][c] = byte_at(key, y, x, c);
            }
        }
    }
}

static uint32_t throw_dice(int step, int64_t key, int word) {
    uint32_t bits[4];
    trmi_philox(SEED, TRMI_STREAM_AUGMENT, (uint64_t)key << 8 | (uint64_t)step << 4, bits);
    return bits[word];
}

static void twin_crop(picture *p, int top, int left, int height, int width) {
    static picture out;
    out.height = height;
    out.width = width;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < 3; c++) {
                int sy = top + y, sx = left + x;
                bool real = sy >= 0 && sy < p->height && sx >= 0 && sx < p->width;
                out.at[y][x][c] = real ? p->at[sy][sx][c] : 0;
            }
        }
    }
    *p = out;
}

static void twin_flip(picture *p) {
    static picture out;
    out = *p;
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            memcpy(out.at[y][x], p->at[y][p->width - 1 - x], sizeof out.at[y][x]);
        }
    }
    *p = out;
}

static double clamp_int(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

static void twin_resize(picture *p, int height, int width, trm_resize_align align) {
    static picture out;
    out.height = height;
    out.width = width;
    double sy = (double)p->height / height, sx = (double)p->width / width;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < 3; c++) {
                double sum = 0, total = 0;
                double cy = align == TRM_RESIZE_ORIGINAL ? y * sy : (y + 0.5) * sy - 0.5;
                double cx = align == TRM_RESIZE_ORIGINAL ? x * sx : (x + 0.5) * sx - 0.5;
                bool wide = align == TRM_RESIZE_ANTIALIAS;
                double ry = wide && sy > 1 ? sy : 1, rx = wide && sx > 1 ? sx : 1;
                if (!wide) { /* clamped coordinates; with the triangle, what is out has no weight */
                    cy = clamp_int(cy, 0, p->height - 1);
                    cx = clamp_int(cx, 0, p->width - 1);
                }
                for (int i = 0; i < p->height; i++) {
                    for (int j = 0; j < p->width; j++) {
                        double wy = 1 - fabs(i - cy) / ry, wx = 1 - fabs(j - cx) / rx;
                        double w = wy > 0 && wx > 0 ? wy * wx : 0;
                        sum += w * p->at[i][j][c];
                        total += w;
                    }
                }
                out.at[y][x][c] = rint(sum / total);
            }
        }
    }
    *p = out;
}

static const double mean[3] = {0.4914, 0.4822, 0.4465}, deviation[3] = {0.2023, 0.1994, 0.2010};

static void twin_finish(picture *p) {
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            for (int c = 0; c < 3; c++) {
                p->at[y][x][c] = (p->at[y][x][c] * (1 / 255.0) - mean[c]) / deviation[c];
            }
        }
    }
}

/* A source that the chain can be built for. */
static const trmi_source_ops test_ops = {.kind = "test"};

static uint8_t raw[SIDE_MAX * SIDE_MAX * 3 + 16];

static trmi_sample sample_of(int key, trmi_form form, int height, int width) {
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            for (int c = 0; c < 3; c++) {
                int at = form == TRMI_FORM_PLANAR ? (c * height + y) * width + x
                                                  : (y * width + x) * 3 + c;
                raw[at] = byte_at(key, y, x, c);
            }
        }
    }
    return (trmi_sample){.form = form, .data = raw, .height = height, .width = width};
}

static float result[SIDE_MAX * SIDE_MAX * 3];

static void run_chain(const trm_transform *steps, int count, trmi_form form, int key, int height,
                      int width, trmi_chain *chain) {
    trm_error err;
    trmi_picture_scratch scratch = {0};
    trmi_source source = {.ops = &test_ops, .form = form, .height = height, .width = width};
    CHECK_OK(trmi_chain_build(steps, count, &source, chain, &err), err);
    trmi_sample sample = sample_of(key, form, height, width);
    CHECK_OK(trmi_chain_run(chain, &scratch, &sample, SEED, key, result, &err), err);
    trmi_scratch_free(&scratch);
}

static void compare_pixels(const trmi_chain *chain, const picture *p, double tolerance, int key) {
    assert_int_equal(chain->height, p->height);
    assert_int_equal(chain->width, p->width);
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            for (int c = 0; c < 3; c++) {
                int at = chain->channels_first ? (c * p->height + y) * p->width + x
                                               : (y * p->width + x) * 3 + c;
                if (!(fabs(result[at] - p->at[y][x][c]) <= tolerance)) {
                    fail_msg("key %d (%d, %d, %d): %g, twin %g", key, y, x, c, (double)result[at],
                             p->at[y][x][c]);
                }
            }
        }
    }
}

static void guide_chain_matches_its_twin(void **state) {
    trm_transform steps[] = {trm_transform_random_crop(32, 32, 4), trm_transform_random_flip(0.5),
                             trm_transform_rescale(1 / 255.0, 0),
                             trm_transform_normalize(mean, deviation), trm_transform_hwc2chw()};
    static picture p;
    int flips = 0, tops = 0;
    for (int key = 0; key < 300; key++) {
        bool planar = key % 3 != 0, first = key % 2 == 0;
        trmi_chain chain;
        run_chain(steps, first ? 5 : 4, planar ? TRMI_FORM_PLANAR : TRMI_FORM_HWC, key, 32, 32,
                  &chain);
        fill_noise(&p, key, 32, 32);
        int top = (int)trmi_bounded(throw_dice(0, key, 0), 9);
        twin_crop(&p, top - 4, (int)trmi_bounded(throw_dice(0, key, 1), 9) - 4, 32, 32);
        if (throw_dice(1, key, 0) * 0x1p-32 < 0.5) {
            twin_flip(&p);
            flips++;
        }
        twin_finish(&p);
        compare_pixels(&chain, &p, 2e-6, key);
        tops |= 1 << top;
    }
    assert_true(flips > 110 && flips < 190);
    assert_int_equal(tops, 511);
}

static void crops_compose(void **state) {
    static picture p;
    trm_transform steps[] = {trm_transform_random_flip(1), trm_transform_center_crop(20, 14),
                             trm_transform_random_crop(40, 40, 16), trm_transform_random_flip(1),
                             trm_transform_type_cast(TRM_FLOAT32)};
    for (int key = 0; key < 40; key++) {
        trmi_chain chain;
        run_chain(steps, 5, key & 1 ? TRMI_FORM_PLANAR : TRMI_FORM_HWC, key, 32, 30, &chain);
        fill_noise(&p, key, 32, 30);
        twin_flip(&p);
        twin_crop(&p, 6, 8, 20, 14);
        twin_crop(&p, (int)trmi_bounded(throw_dice(2, key, 0), 13) - 16,
                  (int)trmi_bounded(throw_dice(2, key, 1), 7) - 16, 40, 40);
        twin_flip(&p);
        compare_pixels(&chain, &p, 0, key);
    }
    /* A window that can lie wholly in the padding. */
    trm_transform far[] = {trm_transform_random_crop(8, 8, 40), trm_transform_hwc2chw(),
                           trm_transform_type_cast(TRM_FLOAT32)};
    for (int key = 0; key < 60; key++) {
        trmi_chain chain;
        run_chain(far, 3, TRMI_FORM_PLANAR, key, 16, 16, &chain);
        fill_noise(&p, key, 16, 16);
        twin_crop(&p, (int)trmi_bounded(throw_dice(0, key, 0), 89) - 40,
                  (int)trmi_bounded(throw_dice(0, key, 1), 89) - 40, 8, 8);
        compare_pixels(&chain, &p, 0, key);
    }
}

static void resize_matches_its_twin(void **state) {
    static const int sizes[][4] = {{32, 32, 64, 64}, {32, 32, 17, 23}, {5, 7, 31, 2},
                                   {1, 1, 4, 4},     {60, 90, 8, 5},   {40, 3, 40, 3},
                                   {3, 50, 1, 1},    {31, 33, 32, 32}};
    static picture p;
    for (int s = 0; s < (int)(sizeof sizes / sizeof *sizes); s++) {
        for (int align = TRM_RESIZE_HALF_PIXEL; align <= TRM_RESIZE_ANTIALIAS; align++) {
            for (int flip = 0; flip < 2; flip++) {
                trm_transform steps[] = {
                    trm_transform_random_flip(flip),
                    trm_transform_resize(sizes[s][2], sizes[s][3], (trm_resize_align)align),
                    trm_transform_type_cast(TRM_FLOAT32)};
                trmi_chain chain;
                run_chain(steps, 3, s & 1 ? TRMI_FORM_PLANAR : TRMI_FORM_HWC, s, sizes[s][0],
                          sizes[s][1], &chain);
                fill_noise(&p, s, sizes[s][0], sizes[s][1]);
                if (flip) {
                    twin_flip(&p);
                }
                twin_resize(&p, sizes[s][2], sizes[s][3], (trm_resize_align)align);
                /* One grey level where rounding ties fall differently. */
                compare_pixels(&chain, &p, 1, s * 100 + align);
            }
        }
    }
}

static void resized_crops_match_their_twin(void **state) {
    static picture p;
    trm_transform steps[] = {trm_transform_random_resized_crop(24, 20),
                             trm_transform_type_cast(TRM_FLOAT32)};
    int fallbacks = 0;
    for (int key = 0; key < 60; key++) {
        trmi_chain chain;
        int height = 20 + key % 50, width = 90 - key;
        run_chain(steps, 2, key & 1 ? TRMI_FORM_PLANAR : TRMI_FORM_HWC, key, height, width, &chain);
        fill_noise(&p, key, height, width);
        int top = 0, left = 0, h = 0, w = 0;
        for (uint32_t attempt = 0; attempt < 10 && h == 0; attempt++) {
            uint32_t bits[4];
            trmi_philox(SEED, TRMI_STREAM_AUGMENT, (uint64_t)key << 8 | attempt, bits);
            double area = (0.08 + 0.92 * bits[0] * 0x1p-32) * height * width;
            double ratio = exp(log(0.75) + (log(4.0 / 3) - log(0.75)) * bits[1] * 0x1p-32);
            int try_w = (int)round(sqrt(area * ratio)), try_h = (int)round(sqrt(area / ratio));
            if (try_w >= 1 && try_w <= width && try_h >= 1 && try_h <= height) {
                h = try_h;
                w = try_w;
                top = (int)trmi_bounded(bits[2], (uint32_t)(height - h + 1));
                left = (int)trmi_bounded(bits[3], (uint32_t)(width - w + 1));
            }
        }
        if (h == 0) {
            fallbacks++; /* checked below */
            continue;
        }
        twin_crop(&p, top, left, h, w);
        twin_resize(&p, 24, 20, TRM_RESIZE_HALF_PIXEL);
        compare_pixels(&chain, &p, 1, key);
    }
    assert_true(fallbacks < 15);
    trmi_chain chain_of_sliver;
    /* No window of that ratio fits into a sliver: the largest central one is taken. */
    run_chain(steps, 2, TRMI_FORM_HWC, 1, 2, 90, &chain_of_sliver);
    fill_noise(&p, 1, 2, 90);
    twin_crop(&p, 0, 43, 2, 3);
    twin_resize(&p, 24, 20, TRM_RESIZE_HALF_PIXEL);
    compare_pixels(&chain_of_sliver, &p, 1, 1);
}

static void shorter_sides_match_their_twin(void **state) {
    static const int sizes[][4] = {
        {30, 45, 20, 30}, {45, 30, 30, 20}, {33, 50, 20, 30}, {10, 10, 20, 20}, {70, 31, 45, 20}};
    static picture p;
    for (int k = 0; k < 30; k++) { /* with and without a centre crop, which is merged */
        int s = k % 5, crop = k / 5 % 2, align = k / 10;
        trm_transform steps[] = {trm_transform_resize_shorter(20, (trm_resize_align)align),
                                 trm_transform_type_cast(TRM_FLOAT32),
                                 trm_transform_type_cast(TRM_FLOAT32)};
        if (crop) {
            steps[1] = trm_transform_center_crop(17, 20);
        }
        trmi_chain chain;
        run_chain(steps, 3, TRMI_FORM_HWC, k, sizes[s][0], sizes[s][1], &chain);
        fill_noise(&p, k, sizes[s][0], sizes[s][1]);
        twin_resize(&p, sizes[s][2], sizes[s][3], (trm_resize_align)align);
        if (crop) {
            twin_crop(&p, (p.height - 17) / 2, (p.width - 20) / 2, 17, 20);
        }
        compare_pixels(&chain, &p, 1, k);
    }
}

static void random_resized_crop_stays_in_bounds(void **state) {
    /* A picture whose value is its column: the result shows which window was taken. */
    enum { HEIGHT = 60, WIDTH = 90, OUT = 16 };
    trm_transform step = trm_transform_random_resized_crop(OUT, OUT);
    trm_transform steps[] = {step, trm_transform_type_cast(TRM_FLOAT32)};
    trm_error err;
    trmi_chain chain;
    trmi_source source = {
        .ops = &test_ops, .form = TRMI_FORM_HWC, .height = HEIGHT, .width = WIDTH};
    CHECK_OK(trmi_chain_build(steps, 2, &source, &chain, &err), err);
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            raw[(y * WIDTH + x) * 3] = (uint8_t)(2 * x);
            raw[(y * WIDTH + x) * 3 + 1] = (uint8_t)(3 * y);
            raw[(y * WIDTH + x) * 3 + 2] = 7;
        }
    }
    trmi_sample sample = {.form = TRMI_FORM_HWC, .data = raw, .height = HEIGHT, .width = WIDTH};
    trmi_picture_scratch scratch = {0};
    double smallest = 1, largest = 0;
    for (int key = 0; key < 500; key++) {
        CHECK_OK(trmi_chain_run(&chain, &scratch, &sample, SEED, key, result, &err), err);
        const float *low = result, *high = result + 3 * (OUT * OUT - 1);
        double width = (high[0] - low[0]) / 2 * OUT / (OUT - 1);
        double height = (high[1] - low[1]) / 3 * OUT / (OUT - 1);
        double area = width * height / (HEIGHT * WIDTH), ratio = width / height;
        assert_true(area > 0.05 && area < 1.05 && ratio > 0.68 && ratio < 1.47);
        assert_int_equal((int)low[2], 7);
        smallest = area < smallest ? area : smallest;
        largest = area > largest ? area : largest;
    }
    assert_true(smallest < 0.12 && largest > 0.75);
    trmi_scratch_free(&scratch);
}

static void results_can_be_bytes_and_halves(void **state) {
    static picture p;
    fill_noise(&p, 5, 20, 24);
    trmi_chain chain;
    for (int first = 0; first < 2; first++) {
        trm_transform steps[] = {trm_transform_center_crop(10, 12), trm_transform_hwc2chw()};
        run_chain(steps, 1 + first, TRMI_FORM_PLANAR, 5, 20, 24, &chain);
        assert_int_equal(chain.dtype, TRM_UINT8);
        const uint8_t *bytes = (const uint8_t *)result;
        for (int i = 0; i < 10 * 12 * 3; i++) {
            int c = first ? i / 120 : i % 3, at = first ? i % 120 : i / 3;
            assert_int_equal(bytes[i], (int)p.at[5 + at / 12][6 + at % 12][c]);
        }
    }
    static const trm_dtype halves[] = {TRM_BFLOAT16, TRM_FLOAT16};
    for (int h = 0; h < 2; h++) {
        trm_transform steps[] = {trm_transform_rescale(0.5, -1),
                                 trm_transform_type_cast(halves[h])};
        run_chain(steps, 2, TRMI_FORM_HWC, 5, 20, 24, &chain);
        const uint16_t *words = (const uint16_t *)result;
        for (int i = 0; i < 20 * 24 * 3; i++) {
            float value = (float)(p.at[i / 72][i / 3 % 24][i % 3] * 0.5 - 1);
            assert_int_equal(words[i], h ? trmi_float_to_f16(value) : trmi_float_to_bf16(value));
        }
    }
}

static void loops_of_all_instruction_sets_agree(void **state) {
#if defined(__x86_64__)
    if (!trmi_cpu()->avx2) {
        print_message("no AVX2 here\n");
        return;
    }
    enum { N = 200 };
    static uint8_t in[3 * N + 16], bytes[2][3 * N];
    static float out[2][4 * N], rows[3][4 * N];
    const float scale[3] = {0.1f, 0.2f, 0.3f}, shift[3] = {-1, 0.5f, 2};
    for (int i = 0; i < 3 * N + 16; i++) {
        in[i] = byte_at(77, 0, 0, i);
    }
    const trmi_pixels *set[2] = {&trmi_pixels_plain, &trmi_pixels_avx2};
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < 5; k++) {
            for (int s = 0; s < 2; s++) {
                memset(out[s], 0, sizeof out[s]);
                switch (k) {
                case 0: set[s]->affine(in, n, scale[0], shift[0], out[s]); break;
                case 1: set[s]->affine_mirror(in, n, scale[0], shift[0], out[s]); break;
                case 2:
                case 3:
                    set[s]->affine_split(in, n, k == 3, scale, shift, out[s], out[s] + n,
                                         out[s] + 2 * n);
                    break;
                default: set[s]->affine_rgb(in, n, scale, shift, out[s]);
                }
            }
            for (int i = 0; i < 3 * n; i++) {
                CHECK_CLOSE(out[1][i], out[0][i], 1e-6);
            }
        }
        int32_t first[N];
        float weights[3 * N];
        for (int i = 0; i < 3 * N; i++) {
            first[i % N] = i % N * 2 / 3;
            weights[i] = (float)(i % 7) / 10;
        }
        for (int taps = 2; taps <= 3; taps++) {
            set[0]->resize_row(in, first, weights, taps, n, out[0]);
            set[1]->resize_row(in, first, weights, taps, n, out[1]);
            for (int i = 0; i < 4 * n; i++) {
                if (i % 4 != 3) {
                    CHECK_CLOSE(out[1][i], out[0][i], 1e-6);
                }
            }
            for (int i = 0; i < 4 * N; i++) {
                for (int t = 0; t < 3; t++) {
                    rows[t][i] = (float)byte_at(t, 1, 0, i) * 1.3f - 30;
                }
            }
            const float *row[3] = {rows[0], rows[1], rows[2]};
            const float blend[3] = {0.25f, 0.5f, 0.25f};
            set[0]->blend_rows(row, blend, taps, n, bytes[0]);
            set[1]->blend_rows(row, blend, taps, n, bytes[1]);
            for (int i = 0; i < 3 * n; i++) {
                assert_in_range(bytes[1][i] + 1 - bytes[0][i], 0, 2);
            }
        }
    }
#endif
}

static void impossible_chains_are_refused(void **state) {
    trm_error err;
    trmi_chain chain;
    trmi_source pixels = {.ops = &test_ops, .form = TRMI_FORM_HWC, .height = 32, .width = 32};
    trmi_source encoded = {.ops = &test_ops, .form = TRMI_FORM_ENCODED};
    const double zero[3] = {0, 1, 1};
    trm_transform bad[] = {trm_transform_random_crop(41, 32, 4), trm_transform_decode(false),
                           trm_transform_random_flip(1.5),       trm_transform_resize(0, 3, 0),
                           trm_transform_normalize(mean, zero),  trm_transform_type_cast(TRM_INT32),
                           trm_transform_rescale(NAN, 0),        trm_transform_center_crop(33, 1)};
    const char *text[] = {"does not fit", "pixels already",    "probability", "sides are",
                          "std must",     "TypeCast to int32", "finite",      "does not fit"};
    for (int i = 0; i < 8; i++) {
        CHECK_FAILS(trmi_chain_build(&bad[i], 1, &pixels, &chain, &err), TRM_INVALID, err, text[i]);
    }
    trm_transform late[] = {trm_transform_rescale(1, 0), trm_transform_random_flip(0.5)};
    CHECK_FAILS(trmi_chain_build(late, 2, &pixels, &chain, &err), TRM_INVALID, err,
                "put it before");
    CHECK_FAILS(trmi_chain_build(late, 1, &encoded, &chain, &err), TRM_INVALID, err, "add Decode");
    CHECK_FAILS(trmi_chain_build(late + 1, 1, &encoded, &chain, &err), TRM_INVALID, err,
                "must be Decode");
    trm_transform open[] = {trm_transform_decode(true), trm_transform_resize_shorter(20, 0)};
    CHECK_FAILS(trmi_chain_build(open, 2, &encoded, &chain, &err), TRM_INVALID, err,
                "different sizes");
    trm_transform twice[] = {trm_transform_hwc2chw(), trm_transform_hwc2chw()};
    CHECK_FAILS(trmi_chain_build(twice, 2, &pixels, &chain, &err), TRM_INVALID, err, "twice");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guide_chain_matches_its_twin),
        cmocka_unit_test(crops_compose),
        cmocka_unit_test(resize_matches_its_twin),
        cmocka_unit_test(resized_crops_match_their_twin),
        cmocka_unit_test(shorter_sides_match_their_twin),
        cmocka_unit_test(random_resized_crop_stays_in_bounds),
        cmocka_unit_test(results_can_be_bytes_and_halves),
        cmocka_unit_test(loops_of_all_instruction_sets_agree),
        cmocka_unit_test(impossible_chains_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
