/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the memory that the planner predicts for a program with the growth of a process that
 * runs it. */
#include "check.h"

#include "exec/exec.h"
#include "exec/exec_memory.h"

#include "base/memory.h"
#include "base/os.h"
#include "base/sanitizers.h"
#include "plan/partition/partition.h"

#include <math.h>

enum { SAMPLES = 64, WIDE = 1500, LAYERS = 3, OWN = 16 };

static trm_node build_network(trm_graph *g) {
    static const char *const names[LAYERS] = {"w0", "w1", "w2"};
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(SAMPLES, WIDE));
    for (int i = 0; i < LAYERS; i++) {
        trm_node w = trm_parameter(g, names[i], trm_shape_of(WIDE, WIDE), TRM_INIT_NORMAL_001);
        x = trm_relu(g, trm_linear(g, x, w, TRM_NO_NODE));
    }
    return trm_reduce_mean(g, x, NULL, 0, false);
}

static void grows_as_predicted(void **state) {
    (void)state;
#if TRMI_ADDRESS_SANITIZER || TRMI_THREAD_SANITIZER
    print_message("[  note  ] skipped: a sanitizer keeps memory of its own\n");
    skip();
#endif
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    trmi_os_trim();
    int64_t before = trmi_os_own_bytes();
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    const trm_exec_options options = {.loss = build_network(g),
                                      .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
                                      .threads = 1,
                                      /* what else this machine has measured takes memory, too */
                                      .tuning_file = ""};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_tensor x;
    CHECK_OK(trm_exec_input(exec, "x", &x, &err), err);
    for (int i = 0; i < SAMPLES * WIDE; i++) {
        ((float *)x.data)[i] = (float)(i % 7);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        CHECK_OK(trm_exec_update(exec, 1e-3, &err), err);
    }
    double grown = (double)(trmi_os_own_bytes() - before),
           predicted = (double)trmi_program_resident(exec->program,
                                                     &(trmi_training){.slots = 1, .ranks = 1});
    print_message("[  note  ] grew by %.2f MB, predicted %.2f MB\n", grown / 1e6, predicted / 1e6);
    assert_true(fabs(predicted / grown - 1) < 0.03);
    trm_exec_destroy(exec);
    trm_graph_destroy(g);
}

/* A batch that every rank feeds whole is copied directly to the buffer that kernels read; a rank's
 * own samples are collected in another buffer first. Both are counted. */
static void fed_batches_count(void **state) {
    (void)state;
    char name[] = "x";
    trmi_buffer buffers[2] = {
        {.name = NULL},
        {.name = name, .dtype = TRM_FLOAT32, .shape = {.rank = 2, .dim = {SAMPLES / 4, OWN}}}};
    trmi_partition_leaf leaf = {.name = name, .global = {.rank = 2, .dim = {SAMPLES, OWN}}};
    int32_t inputs[1] = {1};
    trm_program p = {.buffers = buffers,
                     .buffers_count = 2,
                     .inputs = inputs,
                     .inputs_count = 1,
                     .leaves = &leaf,
                     .leaves_count = 1};
    assert_int_equal(trmi_program_fed_bytes(&p, 4, false), 0);
    assert_int_equal(trmi_program_fed_bytes(&p, 4, true), SAMPLES * OWN * 4 + SAMPLES * OWN);
    p.leaves_count = 0;
    assert_int_equal(trmi_program_fed_bytes(&p, 4, true), 0);
}

static void shared_memory_is_whole_pages(void **state) {
    (void)state;
    trm_program p = {.arena_bytes = {0}};
    p.arena_bytes[TRMI_ARENA_PARAM] = 5000;
    assert_int_equal(trmi_program_arena_resident(&p, TRMI_ARENA_PARAM, true), 8192);
    /* an end that fills less than half of a huge page is in small ones */
    p.arena_bytes[TRMI_ARENA_PARAM] = (4 << 20) + 1;
    assert_int_equal(trmi_program_arena_resident(&p, TRMI_ARENA_PARAM, true), (4 << 20) + 4096);
    p.arena_bytes[TRMI_ARENA_PARAM] = (5 << 20) + 1;
    assert_int_equal(trmi_program_arena_resident(&p, TRMI_ARENA_PARAM, true), 6 << 20);
    assert_int_equal(trmi_program_arena_resident(&p, TRMI_ARENA_GRAD, true), 0);
}

/* Casts of parameters move out of ACTIVATION. Of their two pages, another buffer writes to one;
 * only the other page is saved. */
static void casts_leave_the_room_that_nobody_else_uses(void **state) {
    (void)state;
    /* Without huge pages all of their memory is saved except the small page to which another buffer
     * writes. */
    int64_t page = TRMI_HUGE_PAGE_BYTES, kept = trmi_map_huge((size_t)page) > 0 ? page : 4096;
    trmi_buffer buffers[4] = {{.arena = 0},
                              {.arena = TRMI_ARENA_PARAM, .bytes = 4 * page},
                              {.arena = TRMI_ARENA_ACTIVATION, .bytes = 2 * page},
                              {.arena = TRMI_ARENA_ACTIVATION, .offset = 2 * page - 8, .bytes = 8}};
    int32_t input = 1, output = 2;
    trmi_step step = {.kind = TRMI_STEP_OP,
                      .op_kind = TRMI_OP_CAST,
                      .inputs = &input,
                      .inputs_count = 1,
                      .outputs = &output};
    trm_program p = {.buffers = buffers, .buffers_count = 4, .steps = &step, .steps_count = 1};
    p.arena_bytes[TRMI_ARENA_ACTIVATION] = 2 * page;
    assert_int_equal(trmi_program_shared_casts(&p), kept);
    step.op_kind = TRMI_OP_RELU;
    assert_int_equal(trmi_program_shared_casts(&p), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(grows_as_predicted),
                                       cmocka_unit_test(fed_batches_count),
                                       cmocka_unit_test(casts_leave_the_room_that_nobody_else_uses),
                                       cmocka_unit_test(shared_memory_is_whole_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
