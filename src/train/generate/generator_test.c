/* SPDX-License-Identifier: Apache-2.0 */
/* Generators (trireme/nn.h): for every way of reading tokens the logits equal those of
 * the whole network, and choices equal those from a sorted list.
 *
 * Random choices are drawn often enough that their frequencies must be those of the
 * probabilities. A reset reads parameters that have changed since. */
#include "check.h"

#include "trireme/nn.h"
#include "trireme/train.h"

#include "base/rng.h"
#include "train/generate/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 48, VOCABULARY = 61 };

typedef struct setting {
    const char *model;
    trm_language_options network;
} setting;

static const setting settings[] = {
    {"gpt2", {.layers = 2, .width = 32, .heads = 4, .context = CONTEXT, .vocabulary = VOCABULARY}},
    {"gpt2",
     {.layers = 2,
      .width = 48,
      .heads = 6,
      .kv_heads = 2,
      .hidden = 40,
      .context = CONTEXT,
      .vocabulary = VOCABULARY}},
    {"llama",
     {.layers = 2,
      .width = 48,
      .heads = 4,
      .kv_heads = 2,
      .context = CONTEXT,
      .vocabulary = VOCABULARY,
      .rotary_theta = 100,
      .untied = true}},
    {"moe",
     {.layers = 2,
      .width = 32,
      .heads = 4,
      .context = CONTEXT,
      .vocabulary = VOCABULARY,
      .experts = 4}},
    {"llama", {.layers = 1, .width = 32, .heads = 2, .context = CONTEXT, .vocabulary = VOCABULARY}},
};

static int32_t token_at(int64_t i) {
    return (int32_t)trmi_bounded(trmi_random_u32(7, TRMI_STREAM_TEST, (uint64_t)i), VOCABULARY);
}

static trm_status read_sample(void *context, int64_t index, const trm_tensor *fields,
                              trm_error *err) {
    (void)context;
    (void)err;
    for (int i = 0; i < CONTEXT; i++) {
        ((int32_t *)fields[0].data)[i] = token_at(index + i);
        ((int32_t *)fields[1].data)[i] = token_at(index + i + 1);
    }
    return TRM_OK;
}

static trm_node build_network(trm_graph *graph, const trm_inputs *inputs, void *context) {
    const setting *s = context;
    return trm_language_loss(graph, s->model, trm_inputs_get(inputs, "tokens"),
                             trm_inputs_get(inputs, "targets"), &s->network);
}

static trm_node as_it_is(trm_graph *graph, trm_node value, const trm_inputs *inputs,
                         void *context) {
    (void)graph;
    (void)inputs;
    (void)context;
    return value;
}

/* A model that was trained for two steps, so that biases are no longer zero. */
static trm_model *trained_model(const setting *s, const char *backend, trm_precision precision) {
    trm_error err;
    trm_dataset *data;
    trm_model *model;
    const trm_tensor ids = {.dtype = TRM_INT32, .shape = trm_shape_of(CONTEXT)};
    const trm_data_source source = {.samples = 8,
                                    .field_count = 2,
                                    .fields = {{"tokens", ids}, {"targets", ids}},
                                    .read = read_sample};
    CHECK_OK(trm_dataset_callback(&source, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, 2, true, &err), err);
    const trm_model_options options = {.network = build_network,
                                       .network_context = (void *)(uintptr_t)s,
                                       .loss = as_it_is,
                                       .data = data,
                                       .exec.backend = backend,
                                       .exec.precision = precision,
                                       .exec.optimizer = {.kind = TRM_ADAM},
                                       .learning_rate = {.base = 0.01},
                                       .exec.threads = 2,
                                       .exec.tuning_file = "",
                                       .exec.seed = 5};
    CHECK_OK(trm_model_create(&options, &model, &err), err);
    CHECK_OK(trm_model_train(model, &(trm_train_options){.data = data, .until_step = 2}, &err),
             err);
    trm_dataset_destroy(data);
    return model;
}

/* The logits [CONTEXT, VOCABULARY] of tokens begin, begin + 1 ... by the whole network. */
static void expect_logits(const setting *s, trm_model *model, const char *backend,
                          trm_precision precision, int64_t begin, float *out) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    trm_tensor logits;
    int32_t ids[CONTEXT];
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_shape shape = trm_shape_of(1, CONTEXT);
    trm_node y =
        trm_language_build(g, s->model, trm_input(g, "tokens", TRM_INT32, shape), &s->network);
    const trm_exec_options options = {.outputs = &y,
                                      .outputs_count = 1,
                                      .backend = backend,
                                      .precision = precision,
                                      .tuning_file = "",
                                      .parameters_of = trm_model_exec(model)};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    for (int i = 0; i < CONTEXT; i++) {
        ids[i] = token_at(begin + i);
    }
    CHECK_OK(trm_exec_feed(exec, "tokens", &(trm_tensor){ids, TRM_INT32, shape}, &err), err);
    CHECK_OK(trm_exec_forward(exec, &err), err);
    CHECK_OK(trm_exec_output(exec, 0, &logits, &err), err);
    memcpy(out, logits.data, sizeof(float) * CONTEXT * VOCABULARY);
    trm_exec_destroy(exec);
    trm_graph_destroy(g);
}

static void compare_logits(const float *found, const float *expected, double tolerance,
                           const char *what, int64_t row) {
    assert_non_null(found);
    for (int i = 0; i < VOCABULARY; i++) {
        if (!(fabs((double)found[i] - (double)expected[i]) <= tolerance)) {
            fail_msg("%s, token %d, logit %d: %.8g, %.8g expected", what, (int)row, i,
                     (double)found[i], (double)expected[i]);
        }
    }
}

/* Reads the tokens one by one, and in pieces of several sizes. */
static void check_setting(const setting *s, const char *backend, trm_precision precision,
                          double tolerance) {
    static const int64_t pieces[] = {1, 2, 5, 31, 9};
    trm_error err;
    trm_generator *generator;
    float *expected = malloc(sizeof(float) * CONTEXT * VOCABULARY);
    trm_model *model = trained_model(s, backend, precision);
    expect_logits(s, model, backend, precision, 0, expected);
    const trm_generator_options options = {.model = s->model, .network = &s->network};
    CHECK_OK(trm_generator_create(model, &options, &generator, &err), err);
    assert_null(trm_generator_logits(generator));
    assert_int_equal(trm_generator_choose(generator, NULL), -1);
    for (int i = 0; i < CONTEXT; i++) {
        int32_t id = token_at(i);
        CHECK_OK(trm_generator_read(generator, &id, 1, &err), err);
        compare_logits(trm_generator_logits(generator), expected + i * VOCABULARY, tolerance,
                       s->model, i);
    }
    trm_generator_reset(generator);
    int32_t ids[CONTEXT];
    for (int64_t p = 0, at = 0; p < 5; at += pieces[p++]) {
        for (int64_t i = 0; i < pieces[p]; i++) {
            ids[i] = token_at(at + i);
        }
        CHECK_OK(trm_generator_read(generator, ids, pieces[p], &err), err);
        compare_logits(trm_generator_logits(generator),
                       expected + (at + pieces[p] - 1) * VOCABULARY, tolerance, "in pieces",
                       at + pieces[p] - 1);
    }
    /* beyond the context: the last half is read again, and then CONTEXT / 2 tokens behind it */
    for (int i = CONTEXT; i < CONTEXT + CONTEXT / 2; i++) {
        int32_t id = token_at(i);
        CHECK_OK(trm_generator_read(generator, &id, 1, &err), err);
    }
    expect_logits(s, model, backend, precision, CONTEXT / 2, expected);
    compare_logits(trm_generator_logits(generator), expected + (CONTEXT - 1) * VOCABULARY,
                   tolerance, "beyond the context", CONTEXT - 1);
    trm_generator_destroy(generator);
    trm_model_destroy(model);
    free(expected);
}

static void logits_are_those_of_training(void **state) {
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        check_setting(&settings[i], "ref", TRM_PRECISION_FP32, 1e-6);
#ifdef TRIREME_ONEDNN
        check_setting(&settings[i], "onednn", TRM_PRECISION_FP32, 1e-5);
        check_setting(&settings[i], "onednn", TRM_PRECISION_MIXED, 3e-2);
#endif
    }
}

/* A reset reads parameters that training has changed, in bfloat16 too: in the tokens of a
 * prompt, in those read one by one, and in these behind a prompt, which read what the prompt has
 * converted. */
static void a_reset_reads_new_parameters(void **state) {
    enum { FIRST = 7 };
    trm_error err;
    trm_generator *generator;
    static float expected[CONTEXT * VOCABULARY];
    trm_model *model = trained_model(&settings[0], NULL, TRM_PRECISION_MIXED);
    const trm_generator_options options = {.model = "gpt2", .network = &settings[0].network};
    CHECK_OK(trm_generator_create(model, &options, &generator, &err), err);
    trm_exec *exec = trm_model_exec(model);
    int32_t ids[] = {3, 4}, index = trm_exec_find(exec, "h.0.mlp.c_fc.weight");
    assert_true(index >= 0);
    CHECK_OK(trm_generator_read(generator, ids, 2, &err), err);
    float before = trm_generator_logits(generator)[0], weights[32 * 128];
    memset(weights, 0, sizeof weights);
    trm_exec_write(exec, index, weights);
    trm_generator_reset(generator);
    CHECK_OK(trm_generator_read(generator, ids, 2, &err), err);
    assert_true(before != trm_generator_logits(generator)[0]);
    for (int change = 0; change < 2; change++) {
        int32_t next[FIRST + 2];
        weights[5] = 1 + (float)change;
        trm_exec_write(exec, index, weights);
        trm_generator_reset(generator);
        expect_logits(&settings[0], model, NULL, TRM_PRECISION_MIXED, 0, expected);
        for (int i = 0; i < FIRST + 2; i++) {
            next[i] = token_at(i);
        }
        for (int i = 0, count = FIRST; i < FIRST + 2; i += count, count = 1) {
            CHECK_OK(trm_generator_read(generator, next + i, count, &err), err);
            compare_logits(trm_generator_logits(generator), expected + (i + count - 1) * VOCABULARY,
                           3e-2, "after a reset", i + count - 1);
        }
    }
    ids[1] = VOCABULARY;
    CHECK_FAILS(trm_generator_read(generator, ids, 2, &err), TRM_INVALID, err,
                "token 1: id 61, at most 60 expected");
    trm_generator_destroy(generator);
    trm_model_destroy(model);
}

static void the_network_must_be_the_models(void **state) {
    trm_error err;
    trm_generator *generator = NULL;
    trm_model *model = trained_model(&settings[0], NULL, TRM_PRECISION_FP32);
    trm_language_options other = settings[0].network;
    other.layers = 3;
    trm_generator_options options = {.model = "gpt2", .network = &other};
    CHECK_FAILS(trm_generator_create(model, &options, &generator, &err), TRM_INVALID, err,
                "the graph to share with has no such parameter");
    options.model = "gpt5";
    CHECK_FAILS(trm_generator_create(model, &options, &generator, &err), TRM_INVALID, err,
                "no language model 'gpt5'; there are gpt2, llama, moe");
    assert_null(generator);
    trm_model_destroy(model);
}

/* ---- choices --------------------------------------------------------------------------------- */

static void choices_have_the_wanted_frequencies(void **state) {
    enum { COUNT = 6, DRAWS = 40000 };
    const float logits[COUNT] = {1, -2, 3, 0.5f, 2.5f, NAN};
    static const struct {
        trm_sampling sampling;
        const char *kept; /* ids that may be chosen */
    } cases[] = {{{.temperature = 1}, "01234"},
                 {{.temperature = 1, .top_k = 2}, "24"},
                 {{.temperature = 0.5, .top_k = 3}, "024"},
                 {{.temperature = 1, .top_p = 0.5}, "2"},  /* 2 alone has 0.53 */
                 {{.temperature = 1, .top_p = 0.8}, "24"}, /* with 4: 0.86 */
                 {{.temperature = 1, .top_k = 3, .top_p = 0.95}, "024"},
                 {{.temperature = 2, .top_p = 0.4}, "24"}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double expected[COUNT] = {0}, all = 0;
        int counts[COUNT] = {0};
        for (const char *id = cases[c].kept; *id != '\0'; id++) {
            all += expected[*id - '0'] =
                exp((double)logits[*id - '0'] / cases[c].sampling.temperature);
        }
        for (int i = 0; i < DRAWS; i++) {
            counts[trmi_choose(logits, COUNT, &cases[c].sampling, (uint64_t)i)]++;
        }
        for (int i = 0; i < COUNT; i++) {
            double share = expected[i] / all, found = (double)counts[i] / DRAWS;
            if (!(fabs(found - share) <= 4 * sqrt(share * (1 - share) / DRAWS))) {
                fail_msg("case %d, token %d: share %g, %g expected", (int)c, i, found, share);
            }
        }
    }
    /* without a temperature: the first of the largest */
    const float equal[] = {1, 4, 4, NAN};
    assert_int_equal(trmi_choose(equal, 4, &(trm_sampling){.seed = 3}, 0), 1);
    /* the same arguments, the same token; another seed, other tokens */
    int same = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const trm_sampling a = {.temperature = 1, .seed = 1}, b = {.temperature = 1, .seed = 2};
        assert_int_equal(trmi_choose(logits, COUNT, &a, i), trmi_choose(logits, COUNT, &a, i));
        same += trmi_choose(logits, COUNT, &a, i) == trmi_choose(logits, COUNT, &b, i);
    }
    assert_true(same < 90);
}

enum { MANY = 3000 };

/* Orders numbers, the largest first. */
static int compare_down(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Returns the smallest logit that top_k and top_p leave, by sorting. */
static float find_smallest(const float *logits, const trm_sampling *o) {
    static float sorted[MANY];
    double all = 0, sum = 0;
    memcpy(sorted, logits, sizeof sorted);
    qsort(sorted, MANY, sizeof sorted[0], compare_down);
    int count = o->top_k > 0 ? o->top_k : MANY;
    for (; count < MANY && sorted[count] == sorted[count - 1]; count++) {
    }
    for (int i = 0; i < count; i++) {
        all += exp((double)(sorted[i] - sorted[0]) / o->temperature);
    }
    for (int i = 0; i < count && o->top_p > 0; i++) {
        sum += exp((double)(sorted[i] - sorted[0]) / o->temperature);
        if (sum >= o->top_p * all) {
            return sorted[i];
        }
    }
    return sorted[count - 1];
}

/* Compares the tokens that are drawn from many logits, of both signs and with equal ones among
 * them, with those that sorting leaves: no other is drawn, and the last of few is. */
static void choices_are_of_the_most_probable_tokens(void **state) {
    static float logits[MANY];
    static const trm_sampling cases[] = {{.temperature = 1, .top_k = 3},
                                         {.temperature = 5, .top_k = 40},
                                         {.temperature = 5, .top_k = 200, .top_p = 0.5},
                                         {.temperature = 0.7, .top_p = 0.9},
                                         {.temperature = 30, .top_p = 0.99}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (uint64_t i = 0; i < MANY; i++) { /* steps of 1/64 from -16 to 16 */
            logits[i] = (float)(trmi_random_u32(c, TRMI_STREAM_TEST, i) % 2048) / 64 - 16;
        }
        const float least = find_smallest(logits, &cases[c]);
        float lowest = INFINITY;
        for (uint64_t i = 0; i < 2000; i++) {
            lowest = fminf(lowest, logits[trmi_choose(logits, MANY, &cases[c], i)]);
        }
        assert_true(lowest >= least);
        assert_true(c > 0 || lowest == least);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_of_the_most_probable_tokens),
        cmocka_unit_test(logits_are_those_of_training),
        cmocka_unit_test(a_reset_reads_new_parameters),
        cmocka_unit_test(the_network_must_be_the_models),
        cmocka_unit_test(choices_have_the_wanted_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
