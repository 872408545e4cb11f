/* SPDX-License-Identifier: Apache-2.0 */
/* Checks costs that are measured again: the same plans, other predictions, on all ranks
 * together. */
#include "check.h"

#include "trireme/plan.h"

#include "folder.h"
#include "ranks.h"

#include <math.h>

enum { RANKS = 2, BATCH = 16, SIZE = 8, CLASSES = 200, PLANS = 200, ROUNDS = 9 };

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    (void)context;
    trm_node x = trm_inputs_get(inputs, "image");
    x = trm_reshape(g, x, trm_shape_of(trm_node_shape(g, x).dim[0], 3 * SIZE * SIZE));
    x = trm_relu(g, trm_linear(g, x,
                               trm_parameter(g, "first", trm_shape_of(128, 3 * SIZE * SIZE),
                                             TRM_INIT_LINEAR),
                               TRM_NO_NODE));
    return trm_linear(g, x, trm_parameter(g, "last", trm_shape_of(CLASSES, 128), TRM_INIT_LINEAR),
                      TRM_NO_NODE);
}

/* Plans that the leading rank knows. */
typedef struct known {
    char *plans[PLANS];
    double first[PLANS];
    int count;
} known;

static void note_predictions(const trm_planner *p, known *k) {
    trm_planner_candidate about;
    for (k->count = 0;
         k->count < PLANS && (k->plans[k->count] = trm_planner_plan(p, k->count, &about)) != NULL;
         k->count++) {
        k->first[k->count] = about.step_seconds;
    }
}

static void free_predictions(known *k) {
    for (int i = 0; i < k->count; i++) {
        trm_free(k->plans[i]);
    }
    k->count = 0;
}

/* Checks on the leading rank after a second measurement that the plans and the search's predictions
 * have not changed. Adds to *others the number of later predictions that differ. */
static void check_unchanged(rank_context *context, const trm_planner *p, const known *before,
                            int *others) {
    for (int i = 0; i < before->count; i++) {
        trm_planner_candidate about;
        char *plan = trm_planner_plan(p, i, &about);
        EXPECT(plan != NULL && strcmp(plan, before->plans[i]) == 0, "plan %d", i);
        EXPECT(about.first_seconds == before->first[i] && about.step_seconds > 0 &&
                   isfinite(about.step_seconds),
               "plan %d: %g, %g", i, about.first_seconds, about.step_seconds);
        *others += about.step_seconds != about.first_seconds;
        trm_free(plan);
    }
}

static void rank_main(rank_context *context, trm_comm *comm) {
    trm_error err;
    trm_dataset *data;
    trm_planner *p;
    known before = {.count = 0};
    int others = 0;
    const trm_random_options random = {
        .count = BATCH * 8, .channels = 3, .height = SIZE, .width = SIZE, .classes = CLASSES};
    EXPECT_OK(trm_dataset_random(&random, &data, &err), err);
    EXPECT_OK(trm_dataset_batch(data, BATCH, true, &err), err);
    const trm_model_options model = {
        .network = build_network,
        .data = data,
        .exec = {.threads = 1,
                 .tuning_file = "",
                 .memory_bytes = 32 << 20,
                 .parallel = {.comm = comm, .split = {.trials = TRM_OFF}}}};
    const trm_planner_options options = {.ranks = RANKS, .refresh = true, .remeasures = true};
    EXPECT_OK(trm_planner_create(&model, &options, &p, &err), err);
    EXPECT(p != NULL, "a planner on every rank");
    if (context->rank == 0) {
        note_predictions(p, &before);
    }
    for (int round = 0; round < ROUNDS; round++) { /* more than are kept */
        EXPECT_OK(trm_planner_remeasure(p, &err), err);
        if (context->rank == 0) {
            check_unchanged(context, p, &before, &others);
        }
    }
    if (context->rank == 0) {
        trm_planner_info info;
        trm_planner_get_info(p, &info);
        EXPECT(before.count > 1 && others > 0, "%d of %d predictions changed", others,
               before.count);
        EXPECT(info.measurements > 1 && info.measurements <= 8, "%d measurements",
               (int)info.measurements);
    }
    if (context->rank == 0) { /* a second report is of the same simulation: its seconds, too */
        char *first, *second;
        const trm_simulation_options simulation = {.largest = 2 * RANKS, .json = true};
        EXPECT_OK(trm_planner_simulate(p, &simulation, &first, &err), err);
        EXPECT_OK(trm_planner_simulate(p, &simulation, &second, &err), err);
        EXPECT(strstr(first, "\"simulate_seconds\":") != NULL && strcmp(first, second) == 0,
               "another simulation");
        trm_free(first);
        trm_free(second);
    }
    free_predictions(&before);
    trm_planner_destroy(p);
    trm_dataset_destroy(data);
}

static void predictions_are_of_all_measurements(void **state) {
    (void)state;
    ranks_run_joined(RANKS, false, rank_main, NULL, "measurements");
}

static int begin_test(void **state) {
    /* curves of messages are kept there */
    return make_folder(state) != 0 || setenv("XDG_CACHE_HOME", folder, 1) != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        predictions_are_of_all_measurements, begin_test, remove_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
