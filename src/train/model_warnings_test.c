/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings when a model is made: options that have no effect. */
#include "check.h"

#include "trireme/nn.h"
#include "trireme/train.h"

static char warning[512];
static int warnings;

static void note_warning(void *context, trm_log_level level, const char *room, const char *line) {
    if (level == TRM_LOG_WARN) {
        snprintf(warning, sizeof warning, "%s", line);
        warnings++;
    }
}

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    return trm_mlp(g, trm_inputs_get(inputs, "x"), NULL, 0, 2);
}

/* Makes a model with this optimiser. Returns how many warnings that gave. */
static int make_model(trm_optimizer_options optimizer, bool evaluation_only) {
    static float x[4][3];
    static int32_t label[4];
    trm_error err;
    trm_dataset *data;
    trm_model *model;
    const trm_batch_field arrays[] = {{"x", {x, TRM_FLOAT32, trm_shape_of(4, 3)}},
                                      {"label", {label, TRM_INT32, trm_shape_of(4)}}};
    warnings = 0;
    CHECK_OK(trm_dataset_arrays(arrays, 2, 2, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, 2, true, &err), err);
    const trm_model_options options = {.network = build_network,
                                       .data = data,
                                       .evaluation_only = evaluation_only,
                                       .learning_rate = {.base = 0.1},
                                       .exec = {.optimizer = optimizer, .tuning_file = ""}};
    CHECK_OK(trm_model_create(&options, &model, &err), err);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return warnings;
}

/* A momentum that the rule does not use is named: the program has forgotten `kind`, and would train
 * without momentum. */
static void unused_momentum_is_named(void **state) {
    assert_int_equal(make_model((trm_optimizer_options){.momentum = 0.9}, false), 1);
    assert_non_null(strstr(warning, "momentum 0.9 has no effect with the rule sgd"));
    assert_non_null(strstr(warning, "set kind to TRM_MOMENTUM"));
    assert_int_equal(make_model((trm_optimizer_options){.kind = TRM_ADAM, .momentum = 0.5}, false),
                     1);
    assert_non_null(strstr(warning, "momentum 0.5 has no effect with the rule adam"));
    assert_int_equal(make_model((trm_optimizer_options){.momentum = 0.9}, true), 0);
    static const trm_optimizer_kind kinds[] = {TRM_MOMENTUM, TRM_NESTEROV, TRM_LARS};
    for (int i = 0; i < 3; i++) {
        const trm_optimizer_options used = {.kind = kinds[i], .momentum = 0.9};
        assert_int_equal(make_model(used, false), 0);
    }
    assert_int_equal(make_model((trm_optimizer_options){.kind = TRM_SGD}, false), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(unused_momentum_is_named)};
    trm_log_set_sink(note_warning, NULL, TRM_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
