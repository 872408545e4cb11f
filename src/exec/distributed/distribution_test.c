/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of distribution.h, with two ways of training and one that the options do not ask
 * for. Each hook only notes a letter, so that `calls` has the order in which hooks, actions and
 * program steps were called. */
#include "check.h"

#include "exec/exec.h"

#include "base/error.h"

#include <string.h>

static char calls[256]; /* a letter for each call */

static void note_call(const char *what) { strncat(calls, what, sizeof calls - strlen(calls) - 1); }
static void forget_calls(void) { calls[0] = '\0'; }

/* ---- two ways, and one that the options do not ask for --------------------------------------- */

static trm_status open_a(trm_exec *exec, trm_exec_options *o, bool *active, trm_error *err) {
    *active = true;
    return TRM_OK;
}
static trm_status open_b(trm_exec *exec, trm_exec_options *o, bool *active, trm_error *err) {
    *active = true;
    return o->blocks > 0 ? TRMI_FAIL(err, TRM_INVALID, "refused") : TRM_OK;
}
static trm_status open_idle(trm_exec *exec, trm_exec_options *o, bool *active, trm_error *err) {
    return TRM_OK;
}
static void close_a(trm_exec *exec) { note_call("a"); }
static void close_b(trm_exec *exec) { note_call("b"); }
static trm_status before_a(trm_exec *exec, bool training, trm_error *err) {
    note_call(training ? "A" : "a");
    return TRM_OK;
}
static trm_status before_b(trm_exec *exec, bool training, trm_error *err) {
    note_call(training ? "B" : "b");
    return TRM_OK;
}
static trm_status before_idle(trm_exec *exec, bool training, trm_error *err) {
    note_call("?");
    return TRM_OK;
}
static trm_status finish_a(trm_exec *exec, bool training, trm_status status, trm_error *err) {
    note_call(status == TRM_OK ? "a" : "x");
    return status;
}
static trm_status finish_b(trm_exec *exec, bool training, trm_status status, trm_error *err) {
    note_call(status == TRM_OK ? "b" : "y");
    return status;
}
static trm_status memory_a(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                           trm_error *err) {
    note_call("a");
    return arena == TRMI_ARENA_GRAD ? TRM_OK : TRM_UNSUPPORTED;
}
static trm_status memory_b(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                           trm_error *err) {
    note_call("b");
    return arena == TRMI_ARENA_PARAM ? TRM_OK : TRM_UNSUPPORTED;
}

static trm_status note_action(trm_exec *exec, int32_t item, trm_error *err) {
    const char name[2] = {(char)('0' + item), '\0'};
    note_call(name);
    return item == 9 ? TRMI_FAIL(err, TRM_PEER, "action 9") : TRM_OK;
}

static bool fails; /* does way b add an action that fails? */

static trm_status begin_a(trm_exec *exec, trm_error *err) {
    trmi_distribution_add(exec, (trmi_action){.before = 4, .run = note_action, .item = 1});
    trmi_distribution_add(
        exec, (trmi_action){.before = 2, .run = note_action, .item = 2, .last_only = true});
    return TRM_OK;
}
static trm_status begin_b(trm_exec *exec, trm_error *err) {
    trmi_distribution_add(exec, (trmi_action){.before = 2, .run = note_action, .item = 3});
    trmi_distribution_add(exec, (trmi_action){.before = 0, .run = note_action, .item = 4});
    trmi_distribution_add(exec,
                          (trmi_action){.before = 6, .run = note_action, .item = fails ? 9 : 5});
    return TRM_OK;
}

static const trmi_distribution way_a = {.name = "a",
                                        .open = open_a,
                                        .close = close_a,
                                        .before_step = before_a,
                                        .finish = finish_a,
                                        .memory = memory_a,
                                        .begin = begin_a};
static const trmi_distribution way_idle = {
    .name = "idle", .open = open_idle, .before_step = before_idle};
static const trmi_distribution way_b = {.name = "b",
                                        .open = open_b,
                                        .close = close_b,
                                        .before_step = before_b,
                                        .finish = finish_b,
                                        .memory = memory_b,
                                        .begin = begin_b};
static const trmi_distribution *const table[] = {&way_a, &way_idle, &way_b};

/* Steps are noted as "[begin-end)". */
static trm_status note_walk(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    char text[16];
    snprintf(text, sizeof text, "[%d-%d)", (int)begin, (int)end);
    note_call(text);
    return TRM_OK;
}

/* An action that a way adds later, in place of others of its own. */
static trm_status note_later(trm_exec *exec, int32_t item, trm_error *err) {
    note_call("L");
    return TRM_OK;
}

typedef struct fixture {
    trm_exec exec;
    trm_program program;
} fixture;

static void open_fixture(fixture *f) {
    trm_error err;
    memset(f, 0, sizeof *f);
    f->program.steps_count = 6;
    f->exec.program = &f->program;
    f->exec.walk = note_walk;
    f->exec.accumulate = 2;
    CHECK_OK(trmi_distribution_open(&f->exec, table, 3, &(trm_exec_options){0}, &err), err);
    CHECK_OK(trmi_distribution_begin(&f->exec, &err), err);
    trmi_distribution_add(&f->exec,
                          (trmi_action){.before = 6, .own = true, .run = note_action, .item = 7});
    forget_calls();
}

static void close_fixture(fixture *f) {
    trmi_distribution_close(&f->exec);
    trmi_arena_free(&f->exec.memory);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void active_ways_are_called_in_order(void **state) {
    fixture f;
    trm_error err;
    open_fixture(&f);
    assert_int_equal(f.exec.ways_count, 2);
    CHECK_OK(trmi_distribution_before_step(&f.exec, true, &err), err);
    CHECK_OK(trmi_distribution_before_step(&f.exec, false, &err), err);
    assert_string_equal(calls, "ABab");
    forget_calls();
    close_fixture(&f);
    assert_string_equal(calls, "ba");
}

static void the_last_way_that_takes_an_arena_has_it(void **state) {
    fixture f;
    trm_error err;
    open_fixture(&f);
    void *memory;
    CHECK_OK(trmi_distribution_memory(&f.exec, TRMI_ARENA_PARAM, 1, &memory, &err), err);
    assert_string_equal(calls, "b");
    forget_calls();
    CHECK_OK(trmi_distribution_memory(&f.exec, TRMI_ARENA_GRAD, 1, &memory, &err), err);
    assert_string_equal(calls, "ba");
    assert_int_equal(trmi_distribution_memory(&f.exec, TRMI_ARENA_STATE, 1, &memory, &err),
                     TRM_UNSUPPORTED);
    assert_int_equal(trmi_distribution_memory(&f.exec, TRMI_ARENA_NONE, 1, &memory, &err),
                     TRM_UNSUPPORTED);
    close_fixture(&f);
}

/* Actions run before their step, in the order of the table; some with the last batch only. */
static void actions_run_between_steps(void **state) {
    fixture f;
    trm_error err;
    open_fixture(&f);
    CHECK_OK(trmi_exec_walk_program(&f.exec, &err), err);
    assert_string_equal(calls, "4[0-2)3[2-4)1[4-6)57");
    f.exec.accumulated = 1;
    forget_calls();
    CHECK_OK(trmi_exec_walk_program(&f.exec, &err), err);
    assert_string_equal(calls, "4[0-2)23[2-4)1[4-6)57");
    assert_int_equal(f.exec.actions_count, 6);
    close_fixture(&f);
}

/* An action that a way adds later runs before the executor's own action of the same step. */
static void actions_are_replaced(void **state) {
    fixture f;
    trm_error err;
    open_fixture(&f);
    trmi_distribution_add(&f.exec, (trmi_action){.before = 6, .run = note_later});
    trmi_distribution_add(&f.exec, (trmi_action){.before = 2, .run = note_later});
    CHECK_OK(trmi_exec_walk_program(&f.exec, &err), err);
    assert_string_equal(calls, "4[0-2)3L[2-4)1[4-6)5L7");
    trmi_distribution_remove(&f.exec, note_later);
    forget_calls();
    CHECK_OK(trmi_exec_walk_program(&f.exec, &err), err);
    assert_string_equal(calls, "4[0-2)3[2-4)1[4-6)57");
    assert_int_equal(f.exec.actions_count, 6);
    close_fixture(&f);
}

/* A failed step is finished by all ways, with its error. */
static void failures_reach_every_way(void **state) {
    fixture f;
    trm_error err;
    fails = true;
    open_fixture(&f);
    trm_status status = trmi_exec_walk_program(&f.exec, &err);
    assert_int_equal(status, TRM_PEER);
    forget_calls();
    assert_int_equal(trmi_distribution_finish(&f.exec, true, status, &err), TRM_PEER);
    assert_string_equal(calls, "xy");
    assert_string_equal(err.message, "action 9");
    close_fixture(&f);
    fails = false;
}

/* An outer way, last in the table, chooses the ranks that the others see. */
static trm_status open_outer(trm_exec *exec, trm_exec_options *o, bool *active, trm_error *err) {
    *active = true;
    o->threads = 7;
    note_call("O");
    return TRM_OK;
}
static trm_status open_seeing(trm_exec *exec, trm_exec_options *o, bool *active, trm_error *err) {
    *active = true;
    note_call(o->threads == 7 ? "s" : "?");
    return TRM_OK;
}
static void close_outer(trm_exec *exec) { note_call("o"); }

static void outer_ways_are_opened_first_and_closed_last(void **state) {
    static const trmi_distribution seeing = {
        .name = "seeing", .open = open_seeing, .close = close_b, .before_step = before_b};
    static const trmi_distribution outer = {.name = "outer",
                                            .outer = true,
                                            .open = open_outer,
                                            .close = close_outer,
                                            .before_step = before_a};
    static const trmi_distribution *const both[] = {&seeing, &outer};
    fixture f;
    trm_error err;
    memset(&f, 0, sizeof f);
    forget_calls();
    CHECK_OK(trmi_distribution_open(&f.exec, both, 2, &(trm_exec_options){0}, &err), err);
    assert_string_equal(calls, "Os");
    forget_calls();
    CHECK_OK(trmi_distribution_before_step(&f.exec, true, &err), err);
    close_fixture(&f);
    assert_string_equal(calls, "BAbo");
}

/* A way whose `open` failed is closed, too. */
static void a_refused_way_is_closed(void **state) {
    fixture f;
    trm_error err;
    memset(&f, 0, sizeof f);
    assert_int_equal(
        trmi_distribution_open(&f.exec, table, 3, &(trm_exec_options){.blocks = 1}, &err),
        TRM_INVALID);
    forget_calls();
    close_fixture(&f);
    assert_string_equal(calls, "ba");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(active_ways_are_called_in_order),
        cmocka_unit_test(the_last_way_that_takes_an_arena_has_it),
        cmocka_unit_test(actions_run_between_steps),
        cmocka_unit_test(actions_are_replaced),
        cmocka_unit_test(outer_ways_are_opened_first_and_closed_last),
        cmocka_unit_test(failures_reach_every_way),
        cmocka_unit_test(a_refused_way_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
