/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the memory limit on one device, in a searched split, and in a job without a search. */
#include "check.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/memory_limit.h"

#include "base/error.h"
#include "base/rng.h"
#include "ranks.h"

#include <math.h>
#include <sys/mman.h>

enum {
    BATCH = 2048,
    WIDTH = 48,
    LAYERS = 8,
    STEPS = 2,
    PARAMETERS = 2 * LAYERS * (WIDTH * WIDTH + WIDTH)
};

/* Outputs of tanh and exp are read by backward, and can be made again. */
static trm_exec *make_exec(int64_t limit, trm_parallel_options parallel, trm_error *err) {
    trm_graph *g;
    trm_exec *exec = NULL;
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &g, err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, WIDTH));
    for (int i = 0; i < LAYERS; i++) {
        trm_graph_push_scope(g, "%d", i);
        x = trm_linear(g, x,
                       trm_parameter(g, "weight", trm_shape_of(WIDTH, WIDTH), TRM_INIT_LINEAR),
                       trm_parameter(g, "bias", trm_shape_of(WIDTH), TRM_INIT_LINEAR));
        x = trm_tanh(g, trm_scale(g, trm_exp(g, trm_tanh(g, x)), 0.5));
        trm_graph_pop_scope(g);
    }
    trm_node loss = trm_softmax_cross_entropy(
        g, x, trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH)), NULL);
    const trm_exec_options options = {.loss = loss,
                                      .backend = "ref",
                                      .threads = 1,
                                      .seed = 7,
                                      .tuning_file = "",
                                      .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
                                      .memory_bytes = limit,
                                      .parallel = parallel};
    status = status == TRM_OK ? trm_exec_create(g, &options, &exec, err) : status;
    trm_graph_destroy(g);
    return status == TRM_OK ? exec : NULL;
}

static int64_t bytes_of(const trm_exec *exec) { return trmi_limit_bytes(exec, exec->program); }

static void train_steps(trm_exec *exec, float *values) {
    trm_error err;
    trm_tensor x, label;
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(trm_exec_input(exec, "x", &x, &err), err);
        CHECK_OK(trm_exec_input(exec, "label", &label, &err), err);
        for (int i = 0; i < BATCH * WIDTH; i++) {
            ((float *)x.data)[i] =
                trmi_unit_float(trmi_random_u32((uint64_t)step, TRMI_STREAM_TEST, (uint64_t)i)) -
                0.5f;
        }
        for (int i = 0; i < BATCH; i++) {
            ((int32_t *)label.data)[i] = (i * 7 + step) % WIDTH;
        }
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        CHECK_OK(trm_exec_update(exec, 0.1, &err), err);
    }
    int64_t at = 0;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        assert_true(at + trm_shape_count(&v.shape) <= PARAMETERS);
        trm_exec_read(exec, i, values + at);
        at += trm_shape_count(&v.shape);
    }
}

static void one_device_makes_again_what_does_not_fit(void **state) {
    (void)state;
    trm_error err;
    static float free_values[PARAMETERS], tight_values[PARAMETERS];
    const trm_parallel_options none = {.comm = NULL};
    trm_exec *exec = make_exec(0, none, &err);
    assert_non_null(exec);
    int64_t whole = bytes_of(exec), kept = exec->program->arena_bytes[TRMI_ARENA_ACTIVATION];
    train_steps(exec, free_values);
    trm_exec_destroy(exec);
    exec = make_exec(whole, none, &err); /* fits as it is */
    assert_non_null(exec);
    assert_null(exec->alone);
    trm_exec_destroy(exec);
    int64_t limit = whole - kept / 9;
    exec = make_exec(limit, none, &err);
    if (exec == NULL) {
        fail_msg("%s", err.message);
    }
    assert_non_null(exec->alone);
    assert_true(bytes_of(exec) <= limit);
    train_steps(exec, tight_values);
    trm_exec_destroy(exec);
    assert_memory_equal(free_values, tight_values, sizeof free_values);
    exec = make_exec(100000, none, &err);
    assert_null(exec);
    assert_int_equal(err.status, TRM_NOMEM);
    assert_non_null(strstr(err.message, "the smallest plan"));
}

/* Two ranks that create an executor, in memory that they share with the test. */
typedef struct shared {
    trm_split_kind split;
    int64_t limit;        /* bytes */
    trm_status status[2]; /* by rank, like bytes (0: none was made) and message */
    int64_t bytes[2];
    char message[2][400];
} shared;

static void rank_main(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    trm_error err = {.status = TRM_OK};
    trm_exec *exec =
        make_exec(all->limit, (trm_parallel_options){.comm = comm, .split.kind = all->split}, &err);
    all->status[context->rank] = exec != NULL ? TRM_OK : err.status;
    all->bytes[context->rank] = exec != NULL ? bytes_of(exec) : 0;
    snprintf(all->message[context->rank], sizeof all->message[0], "%s",
             exec != NULL ? "" : err.message);
    trm_exec_destroy(exec);
}

static void check_ranks(trm_split_kind split, int64_t limit, trm_status expected,
                        const char *says) {
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(all, 0, sizeof *all);
    all->split = split;
    all->limit = limit;
    ranks_run_joined(2, false, rank_main, all, "limit");
    for (int r = 0; r < 2; r++) {
        if (all->status[r] != expected &&
            !(expected == TRM_NOMEM && r > 0 && all->status[r] != TRM_OK)) {
            fail_msg("rank %d: status %d, %s", r, (int)all->status[r], all->message[r]);
        }
        assert_true(all->bytes[r] <= limit || limit == 0);
    }
    if (expected != TRM_OK && strstr(all->message[0], says) == NULL) {
        fail_msg("'%s' expected, found: %s", says, all->message[0]);
    }
    munmap(all, sizeof *all);
}

static void many_ranks_keep_within_it_or_say_what_the_least_takes(void **state) {
    (void)state;
    trm_error err;
    trm_exec *exec = make_exec(0, (trm_parallel_options){.comm = NULL}, &err);
    assert_non_null(exec);
    int64_t whole = bytes_of(exec);
    trm_exec_destroy(exec);
    check_ranks(TRM_SPLIT_SEARCHED, whole * 7 / 10, TRM_OK, "");
    check_ranks(TRM_SPLIT_SEARCHED, 100000, TRM_NOMEM, "the one of least memory takes");
    check_ranks(TRM_SPLIT_NONE, whole / 2, TRM_NOMEM, "auto_parallel searches a plan within it");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_makes_again_what_does_not_fit),
        cmocka_unit_test(many_ranks_keep_within_it_or_say_what_the_least_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
