/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of ps row optimisers: scalar twins in double, PyTorch's frozen numbers, all instruction
 * sets, 16-bit rows, initial values, pooling and hashing. */
#include "check.h"

#include "base/cpu.h"
#include "base/format/half.h"
#include "base/rng.h"
#include "ps/table/apply.h"

#include <math.h>

enum { WIDTH_MAX = 67, STEPS = 5 };

static const trmi_apply_kernels *kernels[3];
static int kernel_count;

static int find_kernels(void **state) {
    kernels[kernel_count++] = &trmi_apply_plain;
#if defined(__x86_64__)
    if (trmi_cpu()->avx2) {
        kernels[kernel_count++] = &trmi_apply_avx2;
    }
    if (trmi_cpu()->avx512) {
        kernels[kernel_count++] = &trmi_apply_avx512;
    }
#endif
    return 0;
}

/* Applies the rule in the obvious way: one row, double precision, no shared code. */
static void apply_twin(const trm_optimizer_options *o, double lr, int t, int width, double *w,
                       double *s, const double *gradient) {
    double mean = 0, g[WIDTH_MAX];
    for (int i = 0; i < width; i++) {
        g[i] = gradient[i] + (o->decoupled ? 0 : o->weight_decay * w[i]);
        mean += g[i] * g[i] / width;
    }
    if (o->kind == TRM_ROWWISE_ADAGRAD) {
        s[0] += mean;
    }
    for (int i = 0; i < width; i++) {
        double *a = s + i, *b = s + width + i;
        switch (o->kind) {
        case TRM_SGD: w[i] -= lr * g[i]; break;
        case TRM_MOMENTUM:
        case TRM_NESTEROV:
            *a = o->momentum * *a + g[i];
            w[i] -= lr * (o->kind == TRM_NESTEROV ? g[i] + o->momentum * *a : *a);
            break;
        case TRM_ADAGRAD:
            *a += g[i] * g[i];
            w[i] -= lr * g[i] / (sqrt(*a) + o->epsilon);
            break;
        case TRM_ROWWISE_ADAGRAD: w[i] -= lr * g[i] / (sqrt(s[0]) + o->epsilon); break;
        case TRM_ADAM:
        case TRM_LAZY_ADAM: {
            *a = o->beta1 * *a + (1 - o->beta1) * g[i];
            *b = o->beta2 * *b + (1 - o->beta2) * g[i] * g[i];
            w[i] -= o->decoupled ? lr * o->weight_decay * w[i] : 0;
            double c1 = 1 - pow(o->beta1, t), c2 = 1 - pow(o->beta2, t);
            w[i] -= o->kind == TRM_ADAM ? lr / c1 * *a / (sqrt(*b / c2) + o->epsilon)
                                        : lr * sqrt(c2) / c1 * *a / (sqrt(*b) + o->epsilon);
            break;
        }
        case TRM_FTRL: {
            double n = *a + g[i] * g[i];
            *b += g[i] - (sqrt(n) - sqrt(*a)) / lr * w[i];
            *a = n;
            w[i] = fabs(*b) <= o->l1
                       ? 0
                       : -(*b - (*b < 0 ? -1 : 1) * o->l1) / ((o->beta + sqrt(n)) / lr + 2 * o->l2);
            break;
        }
        case TRM_OPTIMIZER_DEFAULT:
        case TRM_LARS: fail_msg("a table has no such rule");
        }
    }
}

static float gradient_at(int t, int i) { return (float)((7 * t + 3 * i) % 11 - 5) / 10; }
static float start_at(int i) { return (float)(i % 5 - 2) / 4; }

static void rules_match_their_twins(void **state) {
    static const int widths[] = {1, 3, 8, 16, 17, 64, 67};
    for (int kind = TRM_SGD; kind <= TRM_NESTEROV; kind++) {
        const double rate = 0.07;
        trm_optimizer_options o = {.kind = (trm_optimizer_kind)kind,
                                   .momentum = 0.9,
                                   .decoupled = kind == TRM_LAZY_ADAM,
                                   .l1 = 0.05,
                                   .l2 = 0.05,
                                   .beta = 1,
                                   .weight_decay = 0.01};
        trm_error err;
        CHECK_OK(trmi_optimizer_check(&o, true, "t", &o, &err), err);
        for (int k = 0; k < kernel_count; k++) {
            for (size_t n = 0; n < sizeof widths / sizeof widths[0]; n++) {
                int width = widths[n];
                float w[WIDTH_MAX], s[2 * WIDTH_MAX] = {0}, g[WIDTH_MAX];
                double dw[WIDTH_MAX], ds[2 * WIDTH_MAX] = {0}, dg[WIDTH_MAX];
                for (int i = 0; i < width; i++) {
                    dw[i] = w[i] = start_at(i);
                }
                for (int t = 1; t <= STEPS; t++) {
                    for (int i = 0; i < width; i++) {
                        g[i] = gradient_at(t, i);
                        dg[i] = (double)g[i] * 0.5;
                    }
                    trmi_rule r =
                        trmi_row_rule_of(&o, (float)rate, &(trmi_tick){(uint32_t)t, 0, 1, 0.5f});
                    kernels[k]->apply[o.kind](&r, w, g, s, s + width, width);
                    apply_twin(&o, rate, t, width, dw, ds, dg);
                }
                for (int i = 0; i < width; i++) {
                    CHECK_CLOSE(w[i], dw[i], 2e-6);
                }
            }
        }
    }
}

static void rules_match_pytorch(void **state) {
    static const struct {
        const char *name;
        float rate;
        trm_optimizer_options o;
    } cases[] = {
        {"sgd", 0.1f, {.kind = TRM_SGD, .weight_decay = 0.01}},
        {"momentum", 0.1f, {.kind = TRM_MOMENTUM, .momentum = 0.9}},
        {"nesterov", 0.1f, {.kind = TRM_NESTEROV, .momentum = 0.9}},
        {"adagrad", 0.1f, {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1}},
        {"adam",
         0.05f,
         {.kind = TRM_ADAM, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.02}},
        {"adamw",
         0.05f,
         {.kind = TRM_ADAM,
          .beta1 = 0.8,
          .beta2 = 0.95,
          .epsilon = 1e-6,
          .decoupled = true,
          .weight_decay = 0.02}},
        {"sparse_adam",
         0.05f,
         {.kind = TRM_LAZY_ADAM, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6}}};
    FILE *file = fopen(TRIREME_SOURCE_DIR "/tests/golden/ps_row_optimizers.txt", "r");
    assert_non_null(file);
    char name[32];
    int t, lines = 0;
    float w[6], s[12], g[6];
    double expected[6];
    while (fscanf(file, "%31s %d %lf %lf %lf %lf %lf %lf", name, &t, expected, expected + 1,
                  expected + 2, expected + 3, expected + 4, expected + 5) == 8) {
        size_t c = 0;
        while (c < sizeof cases / sizeof cases[0] && strcmp(cases[c].name, name) != 0) {
            c++;
        }
        assert_true(c < sizeof cases / sizeof cases[0]);
        trm_optimizer_options o;
        trm_error err;
        CHECK_OK(trmi_optimizer_check(&cases[c].o, true, name, &o, &err), err);
        for (int i = 0; i < 6; i++) {
            g[i] = gradient_at(t, i);
            if (t == 1) {
                w[i] = start_at(i);
                s[i] = s[6 + i] = o.kind == TRM_ADAGRAD ? (float)o.initial_accumulator : 0;
            }
        }
        if (strcmp(name, "sparse_adam") != 0 || t == 1 || t == 2 || t == 5) {
            trmi_rule r = trmi_row_rule_of(&o, cases[c].rate, &(trmi_tick){(uint32_t)t, 0, 1, 1});
            trmi_apply_kernels_here()->apply[o.kind](&r, w, g, s, s + 6, 6);
        }
        for (int i = 0; i < 6; i++) {
            CHECK_CLOSE(w[i], expected[i], 1e-6);
        }
        lines++;
    }
    fclose(file);
    assert_int_equal(lines, 35);
}

/* Models and tables check their options alike; each refuses the rules of the other. */
static void options_out_of_range_are_named(void **state) {
    trm_error err;
    trm_optimizer_options o = {.kind = (trm_optimizer_kind)99}, out = {.momentum = 7};
    CHECK_FAILS(trmi_optimizer_check(&o, true, "table 'users'", &out, &err), TRM_INVALID, err,
                "table 'users': rule 99");
    o = (trm_optimizer_options){.momentum = NAN};
    CHECK_FAILS(trmi_optimizer_check(&o, true, "t", &out, &err), TRM_INVALID, err, "momentum");
    o = (trm_optimizer_options){.kind = TRM_LARS};
    CHECK_FAILS(trmi_optimizer_check(&o, true, "t", &out, &err), TRM_INVALID, err,
                "t: lars needs whole layers");
    o = (trm_optimizer_options){.kind = TRM_SGD, .clip_norm = 1};
    CHECK_FAILS(trmi_optimizer_check(&o, true, "t", &out, &err), TRM_INVALID, err, "clip_norm");
    o = (trm_optimizer_options){.kind = TRM_ROWWISE_ADAGRAD};
    CHECK_FAILS(trmi_optimizer_check(&o, false, "m", &out, &err), TRM_INVALID, err,
                "m: rowwise_adagrad is a rule of parameter servers' tables");
    o = (trm_optimizer_options){.kind = TRM_SGD, .decoupled = true};
    CHECK_FAILS(trmi_optimizer_check(&o, false, "m", &out, &err), TRM_INVALID, err,
                "decoupled weight decay is of Adam, not of sgd");
    assert_true(out.kind == TRM_OPTIMIZER_DEFAULT && out.momentum == 7);
}

/* Zero means one documented value each: SGD for models, Adagrad for tables, whose options are
 * float32 in both. */
static void zero_is_the_default_of_models_and_tables(void **state) {
    trm_error err;
    trm_optimizer_options o = {.weight_decay = 0.1, .clip_norm = 0.3}, model, table;
    CHECK_OK(trmi_optimizer_check(&o, false, "m", &model, &err), err);
    o.clip_norm = 0;
    CHECK_OK(trmi_optimizer_check(&o, true, "t", &table, &err), err);
    assert_int_equal(model.kind, TRM_SGD);
    assert_int_equal(table.kind, TRM_ADAGRAD);
    assert_true(model.weight_decay == (double)0.1f && table.weight_decay == (double)0.1f);
    assert_true(model.beta1 == (double)0.9f && model.beta2 == (double)0.999f);
    assert_true(table.epsilon == (double)1e-10f && model.clip_norm == (double)0.3f);
}

/* ---- 16-bit rows ---------------------------------------------------------------------------- */

static void nearest_rounding_is_base_half(void **state) {
    float in[WIDTH_MAX], back[WIDTH_MAX];
    uint16_t b[WIDTH_MAX], h[WIDTH_MAX];
    for (int i = 0; i < WIDTH_MAX; i++) {
        uint32_t bits = trmi_random_u32(1, TRMI_STREAM_TEST, (uint64_t)i);
        memcpy(in + i, &bits, 4);
        in[i] = i % 3 == 0 ? in[i] : ldexpf((float)(int32_t)bits, -31 - i % 30);
        in[i] = isnan(in[i]) ? 1 : in[i];
    }
    in[1] = INFINITY;
    in[2] = -0.0f;
    for (int k = 0; k < kernel_count; k++) {
        kernels[k]->store[TRM_BFLOAT16](in, WIDTH_MAX, 0, b);
        kernels[k]->store[TRM_FLOAT16](in, WIDTH_MAX, 0, h);
        for (int i = 0; i < WIDTH_MAX; i++) {
            assert_int_equal(b[i], trmi_float_to_bf16(in[i]));
            assert_int_equal(h[i], trmi_float_to_f16(in[i]));
        }
        kernels[k]->load[TRM_FLOAT16](h, WIDTH_MAX, back);
        for (int i = 0; i < WIDTH_MAX; i++) {
            float expected = trmi_f16_to_float(h[i]);
            assert_memory_equal(&back[i], &expected, 4);
        }
    }
    in[0] = NAN;
    trmi_apply_kernels_here()->store[TRM_BFLOAT16](in, 1, 5, b);
    assert_true(isnan(trmi_bf16_to_float(b[0])));
    trmi_apply_kernels_here()->store[TRM_FLOAT16](in, 1, 5, h);
    assert_true(isnan(trmi_f16_to_float(h[0])));
}

static void stochastic_rounding_is_unbiased_and_a_counter(void **state) {
    static const float values[] = {1.00123f, -3.7771f, 1e-3f, 3e-6f, 6e-8f, 1000.3f};
    enum { TRIALS = 20000 };
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (int dtype = TRM_BFLOAT16; dtype <= TRM_FLOAT16; dtype++) {
            double sum = 0, spread = 0;
            for (int t = 0; t < TRIALS; t++) {
                uint16_t out[3][2];
                float in[2] = {values[v], values[v]}, back[2];
                uint64_t noise = trmi_mix(7, (uint64_t)t) | 1;
                for (int k = 0; k < kernel_count; k++) {
                    kernels[k]->store[dtype](in, 2, noise, out[k]);
                    assert_memory_equal(out[k], out[0], sizeof out[0]);
                }
                kernels[0]->load[dtype](out[0], 2, back);
                sum += (double)back[0];
                spread = fmax(spread, fabs((double)back[0] - (double)values[v]));
            }
            /* The mean of TRIALS coins between two neighbours less than `spread` away. */
            double error = fabs(sum / TRIALS - (double)values[v]);
            assert_true(spread > 0 && error < 4 * spread / sqrt(TRIALS));
        }
    }
}

/* ---- initial values -------------------------------------------------------------------------- */

static void initial_values_have_their_moments(void **state) {
    enum { KEYS = 5000, WIDTH = 7 };
    static const trm_row_init inits[] = {{TRM_ROW_INIT_CONSTANT, 0.25f, 9, 0},
                                         {TRM_ROW_INIT_UNIFORM, 0.5f, 2, 0},
                                         {TRM_ROW_INIT_NORMAL, -1, 0.1f, 0}};
    static const double deviations[] = {0, 2 / 1.7320508, 0.1};
    for (int k = 0; k < 3; k++) {
        double sum = 0, squares = 0;
        for (uint64_t key = 0; key < KEYS; key++) {
            float v[WIDTH], again[16];
            trmi_row_init_values(&inits[k], 3, key, WIDTH, v);
            trmi_row_init_values(&inits[k], 3, key, 16, again);
            assert_memory_equal(v, again, sizeof v);
            for (int i = 0; i < WIDTH; i++) {
                sum += (double)v[i];
                squares += (double)v[i] * (double)v[i];
            }
        }
        double mean = sum / (KEYS * WIDTH), n = KEYS * WIDTH;
        assert_true(fabs(mean - (double)inits[k].value) <= 5 * deviations[k] / sqrt(n));
        assert_true(fabs(sqrt(fmax(0, squares / n - mean * mean)) - deviations[k]) <=
                    0.02 * deviations[k] + 1e-6);
    }
}

/* ---- pooling and hashing --------------------------------------------------------------------- */

static double pooled_loss(const trm_bags *bags, const float *d_out) {
    float out[64];
    trm_pool_rows(bags, out);
    double loss = 0;
    for (int i = 0; i < bags->count * bags->width; i++) {
        loss += (double)out[i] * (double)d_out[i];
    }
    return loss;
}

static void pooling_gradients_match_differences(void **state) {
    enum { WIDTH = 5, BAGS = 4, ITEMS = 7 };
    const int64_t offsets[BAGS + 1] = {0, 3, 3, 4, ITEMS};
    float rows[ITEMS * WIDTH], weights[ITEMS], d_out[BAGS * WIDTH];
    float d_rows[ITEMS * WIDTH], d_weights[ITEMS];
    for (int i = 0; i < ITEMS * WIDTH; i++) {
        rows[i] = gradient_at(i, 1);
        d_out[i % (BAGS * WIDTH)] = gradient_at(i, 2) + 0.05f;
    }
    for (int i = 0; i < ITEMS; i++) {
        weights[i] = 0.5f + 0.25f * (float)i;
    }
    trm_bags bags = {
        .rows = rows, .weights = weights, .offsets = offsets, .count = BAGS, .width = WIDTH};
    for (int p = TRM_BAG_SUM; p <= TRM_BAG_SQRT_N; p++) {
        bags.pooling = (trm_bag_pooling)p;
        trm_pool_rows_gradient(&bags, d_out, d_rows, d_weights);
        for (int i = 0; i < ITEMS * WIDTH + ITEMS; i++) {
            float *x = i < ITEMS * WIDTH ? rows + i : weights + i - ITEMS * WIDTH;
            float kept = *x, h = 1e-2f;
            *x = kept + h;
            double up = pooled_loss(&bags, d_out);
            *x = kept - h;
            double down = pooled_loss(&bags, d_out);
            *x = kept;
            double expected = (up - down) / (2 * (double)h);
            CHECK_CLOSE(i < ITEMS * WIDTH ? d_rows[i] : d_weights[i - ITEMS * WIDTH], expected,
                        2e-4);
        }
    }
    /* Without weights: mean of three rows; the empty bag is zero. */
    float out[BAGS * WIDTH];
    bags.pooling = TRM_BAG_MEAN;
    bags.weights = NULL;
    trm_pool_rows(&bags, out);
    CHECK_CLOSE(out[0], (rows[0] + rows[WIDTH] + rows[2 * WIDTH]) / 3, 1e-6);
    CHECK_CLOSE(out[WIDTH], 0, 0);
}

static void feature_keys_spread_and_separate(void **state) {
    int64_t bucket[10] = {0};
    for (int i = 0; i < 10000; i++) {
        char text[16];
        int length = snprintf(text, sizeof text, "%x", i);
        uint64_t key = trm_feature_key(3, text, (size_t)length, 10);
        assert_true(key < 10);
        bucket[key]++;
        assert_true(trm_feature_key(3, text, (size_t)length, 0) !=
                    trm_feature_key(4, text, (size_t)length, 0));
    }
    for (int i = 0; i < 10; i++) {
        assert_true(bucket[i] > 850 && bucket[i] < 1150);
    }
    /* Frozen: keys are part of checkpoints. */
    assert_int_equal(trm_feature_key(0, "", 0, 0), 0x2d06800538d394c2u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_match_their_twins),
        cmocka_unit_test(rules_match_pytorch),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(zero_is_the_default_of_models_and_tables),
        cmocka_unit_test(nearest_rounding_is_base_half),
        cmocka_unit_test(stochastic_rounding_is_unbiased_and_a_counter),
        cmocka_unit_test(initial_values_have_their_moments),
        cmocka_unit_test(pooling_gradients_match_differences),
        cmocka_unit_test(feature_keys_spread_and_separate),
    };
    return cmocka_run_group_tests_name("ps apply", tests, find_kernels, NULL);
}
