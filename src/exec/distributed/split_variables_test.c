/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that a plan cuts, read as wholes, where a rank has no memory for it: a read takes none,
 * and a gather fails on all ranks, with the name of the variable. */
#include "check.h"

#include "exec/box_walk.h"
#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"
#include "ranks.h"
#include "test_layers.h"

#include <sys/mman.h>

/* ---- a part is completed in place ------------------------------------------------------------ */

enum { MOST = 4096 };

static int64_t draw_number(uint64_t trial, uint64_t what, int64_t from, int64_t to) {
    return from +
           (int64_t)(trmi_random_u32(trial, TRMI_STREAM_TEST, what) % (uint32_t)(to - from + 1));
}

/* Completes a box drawn at random, of 1 to 4 dimensions and with any part of each. */
static void complete_one(uint64_t trial, bool zeros) {
    static uint8_t whole[MOST], expected[MOST], part[MOST], others[MOST];
    static const size_t elements[] = {1, 2, 4, 8};
    const size_t element = elements[trial % 4];
    trm_shape shape = {.rank = (int32_t)draw_number(trial, 0, 1, 4)};
    trmi_box box = {.rank = shape.rank};
    for (int32_t d = 0; d < shape.rank; d++) {
        const uint64_t at = 1 + 4 * (uint64_t)d;
        const bool all = draw_number(trial, at, 0, 2) == 0;
        shape.dim[d] = draw_number(trial, at + 1, 1, 4);
        box.begin[d] = all ? 0 : draw_number(trial, at + 2, 0, shape.dim[d]);
        box.end[d] = all ? shape.dim[d] : draw_number(trial, at + 3, box.begin[d], shape.dim[d]);
    }
    const size_t bytes = (size_t)trm_shape_count(&shape) * element;
    assert_true(bytes <= MOST);
    for (size_t i = 0; i < bytes; i++) {
        part[i] = (uint8_t)(1 + i % 100);
        others[i] = zeros ? 0 : (uint8_t)(101 + i % 100);
    }
    memcpy(expected, others, bytes);
    trmi_copy_box(expected, &shape, &box, part, element, true);
    memcpy(whole, part, bytes);
    trmi_complete_box(whole, &shape, &box, zeros ? NULL : others, element);
    if (memcmp(whole, expected, bytes) != 0) {
        fail_msg("trial %d", (int)trial);
    }
}

static void a_part_is_completed_in_place(void **state) {
    (void)state;
    for (uint64_t trial = 0; trial < 2000; trial++) {
        complete_one(trial, trial % 8 == 7);
    }
    uint8_t scalar = 5;
    const trm_shape none = {.rank = 0};
    const trmi_box box = {.rank = 0};
    trmi_complete_box(&scalar, &none, &box, NULL, 1);
    assert_int_equal(scalar, 5);
}

/* ---- on ranks -------------------------------------------------------------------------------- */

enum { BATCH = 4, WIDTH = 6, CLASSES = 8, COUNT = CLASSES * WIDTH };
static const char plan[] = "trireme-plan 1\nmesh 2\nop fc.linear0 k\n";

/* The test sets fails_at; each rank writes its own status and error. */
typedef struct shared {
    int fails_at; /* the allocation that fails on rank 1 */
    trm_status status[2];
    trm_error error[2];
} shared;

/* Makes one layer whose outputs the plan divides between two ranks. */
static trm_status make_exec(trm_comm *comm, trm_exec **out, trm_error *err) {
    trm_graph *g;
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, err));
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, WIDTH));
    const trm_exec_options options = {
        .loss =
            trm_softmax_cross_entropy(g, add_dense(g, "fc", x, CLASSES),
                                      trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH)), NULL),
        .backend = "ref",
        .threads = 1,
        .seed = 5,
        .tuning_file = "",
        .optimizer = {.kind = TRM_SGD},
        .parallel = {.comm = comm, .split.kind = TRM_SPLIT_PLANNED, .split.plan = plan}};
    trm_status status = trm_exec_create(g, &options, out, err);
    trm_graph_destroy(g);
    return status;
}

static void train_step(rank_context *context, trm_exec *exec) {
    trm_error err;
    trm_tensor t;
    EXPECT_OK(trm_exec_input(exec, "x", &t, &err), err);
    for (int i = 0; i < BATCH * WIDTH; i++) {
        ((float *)t.data)[i] = (float)(1 + i % 7);
    }
    EXPECT_OK(trm_exec_input(exec, "label", &t, &err), err);
    memset(t.data, 0, BATCH * sizeof(int32_t));
    EXPECT_OK(trm_exec_forward_backward(exec, &err), err);
    EXPECT_OK(trm_exec_update(exec, 0.1, &err), err);
}

static void read_after_step(rank_context *context, trm_comm *comm) {
    trm_error err;
    trm_exec *exec;
    float first[COUNT], without[COUNT], with[COUNT];
    EXPECT_OK(make_exec(comm, &exec, &err), err);
    const int32_t weight = trm_exec_find(exec, "fc.weight");
    EXPECT(trmi_exec_cut_of(exec, weight) != NULL, "the plan cuts nothing");
    EXPECT_OK(trm_exec_gather(exec, &err), err);
    trm_exec_read(exec, weight, first);
    train_step(context, exec);
    trmi_alloc_fail_after(1);
    trm_exec_read(exec, weight, without);
    trmi_alloc_fail_after(0);
    trm_exec_read(exec, weight, with);
    EXPECT(memcmp(without, with, sizeof with) == 0, "another value without memory");
    /* this rank's half is of the step, the other's of the gather */
    const int own = context->rank * COUNT / 2, other = COUNT / 2 - own;
    for (int i = 0; i < COUNT / 2; i++) {
        EXPECT(with[own + i] != first[own + i], "element %d is old", own + i);
        EXPECT(with[other + i] == first[other + i], "element %d is new", other + i);
    }
    trm_exec_destroy(exec);
}

static void a_read_takes_no_memory(void **state) {
    (void)state;
    ranks_run_joined(2, false, read_after_step, NULL, "read");
}

static void gather_without_memory(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    trm_error err = {.status = TRM_OK};
    trm_exec *exec;
    EXPECT_OK(make_exec(comm, &exec, &err), err);
    trmi_alloc_fail_after(context->rank == 1 ? all->fails_at : 0);
    all->status[context->rank] = trm_exec_gather(exec, &err);
    trmi_alloc_fail_after(0);
    all->error[context->rank] = err;
    trm_exec_destroy(exec);
}

static void without_memory_all_ranks_fail_and_name_the_variable(void **state) {
    (void)state;
    static shared all;
    int fails_at = 0;
    do {
        all = (shared){.fails_at = ++fails_at};
        ranks_run_joined(2, false, gather_without_memory, &all, "gather");
        const bool fails = all.status[1] != TRM_OK;
        if (fails && (all.status[1] != TRM_NOMEM || all.status[0] != TRM_NOMEM ||
                      strstr(all.error[0].message, "fc.") == NULL ||
                      strstr(all.error[1].message, "fc.") == NULL || all.error[0].rank != 1)) {
            fail_msg("allocation %d: rank 0: status %d, '%s' of rank %d; rank 1: status %d, '%s'",
                     fails_at, (int)all.status[0], all.error[0].message, (int)all.error[0].rank,
                     (int)all.status[1], all.error[1].message);
        }
    } while (all.status[1] != TRM_OK);
    assert_true(fails_at > 4); /* several allocations were tried */
    assert_int_equal(all.status[0], TRM_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_completed_in_place),
        cmocka_unit_test(a_read_takes_no_memory),
        cmocka_unit_test(without_memory_all_ranks_fail_and_name_the_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
