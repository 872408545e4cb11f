/* SPDX-License-Identifier: Apache-2.0 */
/* A click model's first layer, made once for each id (KEYED_LINEAR), against the layer made for
 * each sample: the same losses and the same parameters after some steps, with few ids in a batch
 * and with many. */
#include "check.h"

#include "exec/exec.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 300, FIELDS = 3, WIDTH = 5, DENSE = 4, ROWS = 900, STEPS = 4 };

static trm_node build_network(trm_graph *g, bool with_dense) {
    trm_node keys = trm_input(g, "keys", TRM_INT64, trm_shape_of(SAMPLES, FIELDS));
    trm_node dense = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(SAMPLES, DENSE));
    trm_node label = trm_input(g, "label", TRM_FLOAT32, trm_shape_of(SAMPLES));
    trm_node table = trm_parameter(g, "table", trm_shape_of(ROWS, WIDTH), TRM_INIT_NORMAL_001);
    trm_node x = trm_reshape(g, trm_embedding(g, table, keys), trm_shape_of(SAMPLES, -1));
    x = with_dense ? trm_concat(g, (trm_node[]){x, dense}, 2, 1) : x;
    int64_t width = trm_node_shape(g, x).dim[1];
    x = trm_relu(g, trm_linear(g, x,
                               trm_parameter(g, "a.weight", trm_shape_of(40, width),
                                             TRM_INIT_GLOROT_UNIFORM),
                               trm_parameter(g, "a.bias", trm_shape_of(40), TRM_INIT_ZERO)));
    x = trm_linear(g, x, trm_parameter(g, "b.weight", trm_shape_of(1, 40), TRM_INIT_GLOROT_UNIFORM),
                   TRM_NO_NODE);
    return trm_bce_with_logits(g, trm_reshape(g, x, trm_shape_of(SAMPLES)), label);
}

static void feed_ids(trm_exec *exec, const char *name, int64_t limit) {
    trm_error err;
    trm_tensor to;
    if (trm_exec_input(exec, name, &to, &err) != TRM_OK || to.data == NULL) {
        return; /* this network has none */
    }
    for (int64_t i = 0; i < trm_shape_count(&to.shape); i++) {
        uint32_t bits = trmi_random_u32((uint64_t)limit, TRMI_STREAM_TEST, (uint64_t)i);
        if (to.dtype == TRM_INT64) {
            ((int64_t *)to.data)[i] = (int64_t)trmi_bounded(bits, (uint32_t)limit);
        } else {
            ((float *)to.data)[i] = limit == 2 ? (float)(bits & 1) : trmi_unit_float(bits);
        }
    }
}

static bool has_step(const trm_exec *exec, trmi_op_kind kind) {
    bool found = false;
    for (int32_t i = 0; i < exec->program->steps_count; i++) {
        found = found || (exec->program->steps[i].kind == TRMI_STEP_OP &&
                          exec->program->steps[i].op_kind == kind);
    }
    return found;
}

static trm_exec *make_exec(const char *backend, bool with_dense, bool plain, int64_t ids,
                           trm_optimizer_kind kind) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    const trm_exec_options options = {.loss = build_network(g, with_dense),
                                      .backend = backend,
                                      .threads = 2,
                                      .seed = 3,
                                      .optimizer = {.kind = kind, .initial_accumulator = 0.1},
                                      .fusion = plain ? TRM_OFF : TRM_DEFAULT};
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    feed_ids(exec, "keys", ids);
    feed_ids(exec, "dense", 1);
    feed_ids(exec, "label", 2);
    assert_true(has_step(exec, TRMI_OP_KEYED_LINEAR) == !plain);
    assert_true(has_step(exec, TRMI_OP_KEYED_LINEAR_GRAD) == !plain);
    return exec;
}

static void compare_variables(const trm_exec *a, const trm_exec *b) {
    for (int32_t i = 0; i < trm_exec_variable_count(a); i++) {
        trm_variable v = trm_exec_variable(a, i);
        size_t count = (size_t)trm_shape_count(&v.shape);
        float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
        if (v.dtype == TRM_FLOAT32) {
            trm_exec_read(a, i, x);
            trm_exec_read(b, trm_exec_find(b, v.name), y);
            for (size_t k = 0; k < count; k++) {
                CHECK_CLOSE(x[k], y[k], 1e-5);
            }
        }
        free(x);
        free(y);
    }
}

static void train_both(const char *backend, bool with_dense, int64_t ids, trm_optimizer_kind kind) {
    trm_error err;
    trm_exec *fused = make_exec(backend, with_dense, false, ids, kind),
             *plain = make_exec(backend, with_dense, true, ids, kind);
    for (uint64_t step = 0; step < STEPS; step++) {
        CHECK_OK(trm_exec_forward_backward(fused, &err), err);
        CHECK_OK(trm_exec_forward_backward(plain, &err), err);
        CHECK_CLOSE(trm_exec_loss(fused), trm_exec_loss(plain), 2e-6);
        CHECK_OK(trm_exec_update(fused, 0.05, &err), err);
        CHECK_OK(trm_exec_update(plain, 0.05, &err), err);
    }
    compare_variables(fused, plain);
    trm_exec_destroy(fused);
    trm_exec_destroy(plain);
}

static void training_is_the_same(void **state) {
    static const int64_t ids[] = {1, 40, ROWS};
    for (int i = 0; i < 3; i++) {
        train_both(NULL, true, ids[i], TRM_ADAGRAD);
        train_both(NULL, false, ids[i], TRM_SGD);
    }
    train_both("ref", true, 40, TRM_ADAM);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
