/* SPDX-License-Identifier: Apache-2.0 */
/* Tests rank 0's report of a search: when it prints lines, and how it describes plans in words. */
#include "check.h"

#include "exec/autoparallel/progress.h"

static trm_error err;

static void plans_have_the_fields_words(void **state) {
    (void)state;
    trm_graph *g;
    trm_program *program;
    trmi_space *space;
    trmi_choice choice;
    trmi_arena arena = {0};
    trmi_mesh mesh;
    char text[256];
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(8, 16));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(8));
    x = trm_relu(g, trm_linear(g, x, trm_parameter(g, "a", trm_shape_of(32, 16), TRM_INIT_LINEAR),
                               TRM_NO_NODE));
    x = trm_linear(g, x, trm_parameter(g, "b", trm_shape_of(4, 32), TRM_INIT_LINEAR), TRM_NO_NODE);
    const trmi_plan_options options = {.loss = trm_softmax_cross_entropy(g, x, label, NULL)};
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    CHECK_OK(trmi_mesh_parse("2", &mesh, &err), err);
    CHECK_OK(trmi_space_create(program->graph, &mesh, NULL, NULL, &space, &err), err);
    assert_true(trmi_choice_open(&choice, space, &arena));
    assert_true(trmi_space_baseline(space, TRMI_BASELINE_SAMPLES, &choice));
    trmi_plan_words(space, &choice, text, sizeof text);
    assert_string_equal(text, "data parallel, mesh 2: 4 operators by samples");
    assert_true(trmi_space_baseline(space, TRMI_BASELINE_REPLICATED, &choice));
    trmi_plan_words(space, &choice, text, sizeof text);
    assert_string_equal(text, "not cut, mesh 2: 4 operators the same on every rank");
    assert_true(trmi_space_baseline(space, TRMI_BASELINE_HEAD, &choice));
    trmi_plan_words(space, &choice, text, sizeof text);
    if (strncmp(text, "mesh 2: 2 operators by ", 23) != 0) {
        fail_msg("the head by classes: %s", text);
    }
    trmi_arena_free(&arena);
    trmi_space_destroy(space);
    trmi_plan_destroy(program);
    trm_graph_destroy(g);
}

static void keep_line(void *context, trm_log_level level, const char *room, const char *line) {
    (void)level;
    (void)room;
    char *kept = context;
    strcat(kept, line);
    strcat(kept, "|");
}

/* Nothing in the first second; one line when it is due, and no second one at once. */
static void lines_keep_their_distance(void **state) {
    (void)state;
    char kept[256] = "";
    trmi_progress p = {0};
    trm_log_set_sink(keep_line, kept, TRM_LOG_INFO);
    trmi_progress_note(&p, 1, 7, -1, "early");
    p.next = p.begin;
    trmi_progress_note(&p, 3, 7, 1.5, "measuring");
    trmi_progress_note(&p, 4, 7, 1, "too soon");
    p.next = p.begin;
    trmi_progress_note(&p, 0, 0, -1, "searching");
    trm_log_set_sink(NULL, NULL, TRM_LOG_WARN);
    assert_string_equal(kept, "measuring: 3 of 7, 2 s left at most|searching|");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_have_the_fields_words),
                                       cmocka_unit_test(lines_keep_their_distance)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
