/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that feed parts of their inputs (dataset_strategy as tuples) have one device's losses; what
 * they write to cut variables arrives, or is an error. */
#include "check.h"

#include "trireme/exec.h"
#include "trireme/graph.h"

#include "exec/distributed/input_cuts.h"
#include "exec/exec.h"

#include "base/memory.h"
#include "base/rng.h"
#include "ranks.h"

#include <math.h>
#include <sys/mman.h>

enum { STEPS = 3, RANKS = 4, SAMPLES = 4, CLASSES = 5 };

typedef struct job {
    char cuts[64]; /* "" = one device */
    float loss[RANKS][STEPS];
} job;

static trm_node build_network(trm_graph *g) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(SAMPLES, 2, 6, 8));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(SAMPLES));
    trm_node w = trm_parameter(g, "conv", trm_shape_of(4, 2, 3, 3), TRM_INIT_HE_UNIFORM);
    x = trm_conv2d(g, x, w, TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
    x = trm_global_avg_pool(g, trm_relu(g, x));
    x = trm_linear(g, x, trm_parameter(g, "fc", trm_shape_of(CLASSES, 4), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    return trm_softmax_cross_entropy(g, x, label, NULL);
}

/* Writes the part of the whole input, element i of which is a function of (step, input, i). */
static void write_part(trm_tensor *t, const trm_shape *whole, int dimension, int32_t parts,
                       int32_t part, int step) {
    for (int64_t i = 0; i < trm_shape_count(&t->shape); i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int32_t d = whole->rank - 1; d >= 0; d--) {
            int64_t place = rest % t->shape.dim[d];
            rest /= t->shape.dim[d];
            if (d == dimension) {
                place = d == 0 ? place * parts + part : part * t->shape.dim[d] + place;
            }
            at += place * stride;
            stride *= whole->dim[d];
        }
        uint32_t bits = trmi_random_u32((uint64_t)(2 * step + (t->dtype == TRM_INT32)),
                                        TRMI_STREAM_TEST, (uint64_t)at);
        if (t->dtype == TRM_INT32) {
            ((int32_t *)t->data)[i] = (int32_t)(bits % CLASSES);
        } else {
            ((float *)t->data)[i] = 2 * trmi_unit_float(bits) - 1;
        }
    }
}

static trm_status run_steps(const job *all, trm_comm *comm, int32_t rank, float *loss,
                            trm_error *err) {
    static const char *const names[2] = {"image", "label"};
    const trm_shape whole[2] = {trm_shape_of(SAMPLES, 2, 6, 8), trm_shape_of(SAMPLES)};
    trmi_input_cuts cuts = {.inputs = {{.parts = 1}, {.parts = 1}}};
    trm_graph *g;
    trm_exec *exec = NULL;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, err), *err);
    trm_exec_options options = {.loss = build_network(g),
                                .threads = 1,
                                .seed = 3,
                                .tuning_file = "",
                                .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}};
    if (comm != NULL) {
        options.parallel = (trm_parallel_options){
            .comm = comm, .split.kind = TRM_SPLIT_PLANNED, .split.input_cuts = all->cuts};
        CHECK_OK(trmi_input_cuts_parse(all->cuts, &cuts, err), *err);
    }
    trm_status status = trm_exec_create(g, &options, &exec, err);
    trm_graph_destroy(g);
    for (int step = 0; status == TRM_OK && step < STEPS; step++) {
        for (int n = 0; n < 2; n++) {
            trm_tensor t;
            const trmi_input_cut *cut = &cuts.inputs[n];
            CHECK_OK(trm_exec_input(exec, names[n], &t, err), *err);
            assert_int_equal(trm_shape_count(&t.shape) * cut->parts, trm_shape_count(&whole[n]));
            write_part(&t, &whole[n], cut->dimension, cut->parts, rank / (RANKS / cut->parts),
                       step);
        }
        CHECK_OK(trm_exec_forward_backward(exec, err), *err);
        loss[step] = trm_exec_loss(exec);
        CHECK_OK(trm_exec_update(exec, 0.1, err), *err);
    }
    trm_exec_destroy(exec);
    return status;
}

static void rank_body_of(rank_context *context, trm_comm *comm) {
    trm_error err;
    job *all = context->arg;
    CHECK_OK(run_steps(all, comm, context->rank, all->loss[context->rank], &err), err);
}

static void parts_have_one_devices_losses(void **state) {
    (void)state;
    static const char *const cuts[] = {"((1,1,1,2),(4,))", "((1, 1, 2, 1), (1))",
                                       "((1,2,1,1),(2,))", "((4,1,1,1),(4,))", "((2,1,1,1),(1,))"};
    trm_error err;
    float alone[STEPS];
    CHECK_OK(run_steps(NULL, NULL, 0, alone, &err), err);
    assert_true(fabsf(alone[0] - alone[2]) > 1e-4f);
    job *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        *all = (job){.loss = {{0}}};
        snprintf(all->cuts, sizeof all->cuts, "%s", cuts[k]);
        ranks_run_joined(RANKS, false, rank_body_of, all, "input cuts");
        for (int i = 0; i < RANKS * STEPS; i++) {
            if (!(fabsf(all->loss[i / STEPS][i % STEPS] - alone[i % STEPS]) < 1e-5f)) {
                fail_msg("%s: rank %d, step %d: loss %g, one device has %g", cuts[k], i / STEPS,
                         i % STEPS, (double)all->loss[i / STEPS][i % STEPS],
                         (double)alone[i % STEPS]);
            }
        }
    }
    munmap(all, sizeof *all);
}

static void refuse_rank(rank_context *context, trm_comm *comm) {
    trm_error err;
    float loss[STEPS];
    job *all = context->arg;
    trm_status status = run_steps(all, comm, context->rank, loss, &err);
    EXPECT(status == TRM_INVALID && strstr(err.message, "dataset_strategy") != NULL, "%s",
           err.message);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"",        "(",     "()",      "((1,2)",
                                        "((2,2))", "((0))", "((1),)x", "((1,1,1,1,1,1,1,1,1,1,1))"};
    trm_error err;
    trmi_input_cuts cuts;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK_FAILS(trmi_input_cuts_parse(texts[i], &cuts, &err), TRM_INVALID, err,
                    "a tuple for each input");
    }
    CHECK_OK(trmi_input_cuts_parse(" ( ( 1 , 4 ) , (4,) ) ", &cuts, &err), err);
    assert_int_equal(cuts.count, 2);
    assert_false(trmi_input_cuts_by_samples(&cuts, 4));
    CHECK_OK(trmi_input_cuts_parse("((4,1),(4))", &cuts, &err), err);
    assert_true(trmi_input_cuts_by_samples(&cuts, 4));
    static const char *const wrong[] = {"((1,1,1,2))", "((1,1,2),(1,))", "((1,1,3,1),(1,))",
                                        "((1,1,1,8),(1,))"};
    job *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(all->cuts, sizeof all->cuts, "%s", wrong[i]);
        ranks_run_joined(RANKS, false, refuse_rank, all, wrong[i]);
    }
    munmap(all, sizeof *all);
}

/* Writes a parameter that a plan cuts, without memory for this part: the next step says so. */
static void write_without_memory(rank_context *context, trm_comm *comm) {
    enum { WIDTH = 8 };
    trm_error err;
    trm_graph *g;
    trm_exec *exec = NULL;
    char plan[128];
    const float values[WIDTH * WIDTH] = {1};
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_parameter(g, "x", trm_shape_of(SAMPLES, WIDTH), TRM_INIT_NORMAL_001);
    trm_node w = trm_parameter(g, "w", trm_shape_of(WIDTH, WIDTH), TRM_INIT_NORMAL_001);
    trm_node y = trm_linear(g, x, w, TRM_NO_NODE);
    trm_node loss = trm_reduce_mean(g, y, NULL, 0, false);
    snprintf(plan, sizeof plan, "trireme-plan 1\nmesh %d\nop %.40s k\n", context->size,
             g->ops[g->values[y.id].op].name);
    trm_exec_options options = {
        .loss = loss, .threads = 1, .tuning_file = "", .optimizer.kind = TRM_SGD};
    options.parallel =
        (trm_parallel_options){.comm = comm, .split.kind = TRM_SPLIT_PLANNED, .split.plan = plan};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    const int32_t index = trm_exec_find(exec, "w");
    EXPECT(trmi_exec_cut_of(exec, index) != NULL, "the plan does not cut %s", "w");
    trmi_alloc_fail_after(1);
    trm_exec_write(exec, index, values);
    trmi_alloc_fail_after(0);
    const trm_status status = trm_exec_forward_backward(exec, &err);
    EXPECT(status == TRM_NOMEM && strstr(err.message, "has its old values") != NULL, "%s",
           err.message);
    trm_exec_destroy(exec);
}

static void a_write_without_memory_is_told(void **state) {
    (void)state;
    ranks_run_joined(2, false, write_without_memory, NULL, "write");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_one_devices_losses),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_write_without_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
