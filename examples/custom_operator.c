/* SPDX-License-Identifier: Apache-2.0 */
/* An operator of your own, and a training loop of your own: a network with x * sigmoid(x) between
 * its layers learns y = sin(3 x1) + x2^2 from points that the loop makes. */
#include "trireme/exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, HIDDEN = 32, STEPS = 1200 };

/* ---- the operator: shapes, numbers, gradient ------------------------------------------------------ */

static trm_status swish_infer(const trm_custom_op *self, const trm_tensor *in, int32_t count, trm_tensor *out,
                              trm_error *err) {
    (void)self, (void)count, (void)err;
    out[0].dtype = in[0].dtype;
    out[0].shape = in[0].shape;
    return TRM_OK;
}

static trm_status swish_run(const trm_custom_op *self, const trm_tensor *in, int32_t count, trm_tensor *out,
                            trm_error *err) {
    (void)self, (void)count, (void)err;
    const float *x = (const float *)in[0].data;
    float *y = (float *)out[0].data;
    for (int64_t i = 0, n = trm_shape_count(&in[0].shape); i < n; i++) {
        y[i] = x[i] / (1 + expf(-x[i]));
    }
    return TRM_OK;
}

/* d(x s(x))/dx = s + x s (1 - s) = s + y (1 - s), in operators that are there already. */
static void swish_gradient(const trm_custom_op *self, trm_graph *g, const trm_node *in, int32_t count,
                           const trm_node *out, const trm_node *d_out, trm_node *d_in) {
    (void)self, (void)count;
    trm_node s = trm_sigmoid(g, in[0]);
    trm_node slope = trm_add(g, s, trm_mul(g, out[0], trm_sub(g, trm_scalar(g, 1), s)));
    d_in[0] = trm_mul(g, d_out[0], slope);
}

static const trm_custom_op swish = {
    .name = "swish", .outputs = 1, .infer = swish_infer, .run = swish_run, .gradient = swish_gradient};

/* ---- the network ------------------------------------------------------------------------------------- */

static trm_node layer(trm_graph *g, const char *name, trm_node x, int64_t in, int64_t out) {
    trm_graph_push_scope(g, "%s", name);
    trm_node weight = trm_parameter(g, "weight", trm_shape_of(out, in), TRM_INIT_LINEAR);
    trm_node bias = trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_ZERO);
    trm_node y = trm_linear(g, x, weight, bias);
    trm_graph_pop_scope(g);
    return y;
}

static trm_node build(trm_graph *g) {
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, 2));
    trm_node wanted = trm_input(g, "y", TRM_FLOAT32, trm_shape_of(BATCH, 1));
    trm_node h = layer(g, "first", x, 2, HIDDEN), active;
    trm_custom(g, &swish, &h, 1, &active);
    trm_node error = trm_sub(g, layer(g, "second", active, HIDDEN, 1), wanted);
    return trm_reduce_mean(g, trm_mul(g, error, error), NULL, 0, false);
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void make_points(int step, float *x, float *y) {
    for (int i = 0; i < BATCH; i++) { /* a low-discrepancy sequence: no generator to keep */
        double n = step * BATCH + i + 1;
        x[2 * i] = (float)(2 * fmod(n * 0.7548776662466927, 1) - 1);
        x[2 * i + 1] = (float)(2 * fmod(n * 0.5698402909980532, 1) - 1);
        y[i] = sinf(3 * x[2 * i]) + x[2 * i + 1] * x[2 * i + 1];
    }
}

static void train(trm_exec *exec) {
    trm_tensor x, y;
    TRM_OR_EXIT(trm_exec_input(exec, "x", &x, &err));
    TRM_OR_EXIT(trm_exec_input(exec, "y", &y, &err));
    for (int step = 0; step < STEPS; step++) {
        make_points(step, (float *)x.data, (float *)y.data); /* straight into the program's input */
        TRM_OR_EXIT(trm_exec_forward_backward(exec, &err));
        TRM_OR_EXIT(trm_exec_update(exec, 0.01, &err));
        if (step % 200 == 0 || step == STEPS - 1) {
            printf("step %4d: mean squared error %.5f\n", step, (double)trm_exec_loss(exec));
        }
    }
}

int main(void) {
    trm_graph *graph;
    trm_exec *exec;
    TRM_OR_EXIT(trm_graph_create(&(trm_graph_options){.training = true}, &graph, &err));
    trm_exec_options options = {.optimizer = {.kind = TRM_ADAM}, .seed = 1, .loss = build(graph)};
    TRM_OR_EXIT(trm_exec_create(graph, &options, &exec, &err));
    train(exec);
    trm_exec_destroy(exec);
    trm_graph_destroy(graph);
    return 0;
}
