/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are run in turns (plan_benchmark.h): that every plan runs in every turn, what
 * their times say, and which plan is taken (near_ties.h).
 *
 * Real runs are on ranks as threads and only counted; decisions are tested on times that the
 * test makes up, so that no result depends on this machine. */
#include "ranks.h"

#include "exec/autoparallel/plan_benchmark.h"
#include "exec/autoparallel/near_ties.h"
#include "plan/partition/partition.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

enum { RANKS = 2, BATCH = 8, WIDTH = 24, CLASSES = 10 };

/* The options of a benchmark and its results, in memory that ranks share with the test. */
typedef struct shared {
    trmi_plan_times of[RANKS];
    double seconds, fine; /* as in trmi_plan_benchmark, like one_at_a_time */
    bool one_at_a_time;
    int32_t useful;
    trm_status status[RANKS];
    trm_error error;
} shared;

static const char samples[] = "trireme-plan 1\nmesh 2\nop linear0 n\nop linear1 n\n",
                  classes[] = "trireme-plan 1\nmesh 2\nop linear0 n\nop linear1 k\n",
                  hidden[] = "trireme-plan 1\nmesh 2\nop linear0 k\nop linear1 c\n";

static void run_rank(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(BATCH));
    trm_node x = trm_embedding(
        g, trm_parameter(g, "table", trm_shape_of(7, WIDTH), TRM_INIT_NORMAL_001), ids);
    x = trm_add(g, x, trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, WIDTH)));
    x = trm_linear(g, x, trm_parameter(g, "a", trm_shape_of(WIDTH, WIDTH), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    x = trm_linear(g, trm_relu(g, x),
                   trm_parameter(g, "b", trm_shape_of(CLASSES, WIDTH), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    trm_node loss = trm_softmax_cross_entropy(
        g, x, trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH)), NULL);
    const trm_exec_options options = {.loss = loss,
                                      .backend = "ref",
                                      .threads = 1,
                                      .tuning_file = "",
                                      .accumulate = 2,
                                      .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}};
    trmi_plan_benchmark benchmark = {.comm = comm,
                                     .graph = g,
                                     .options = &options,
                                     .count = 3,
                                     .steps = 2,
                                     .seconds = all->seconds,
                                     .fine = all->fine,
                                     .useful = all->useful,
                                     .one_at_a_time = all->one_at_a_time};
    if (context->rank == 0) {
        benchmark.plans[0] = samples;
        benchmark.plans[1] = classes;
        benchmark.plans[2] = hidden;
    }
    all->status[context->rank] =
        trmi_plan_benchmark_run(&benchmark, &all->of[context->rank], &all->error);
    trm_graph_destroy(g);
}

/* Runs the benchmark on all ranks. */
static shared *run_limited(double seconds, double fine, bool one_at_a_time, int32_t useful) {
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->seconds = seconds;
    all->fine = fine;
    all->one_at_a_time = one_at_a_time;
    all->useful = useful;
    ranks_run_joined(RANKS, false, run_rank, all, "benchmark");
    for (int r = 0; r < RANKS; r++) {
        CHECK_OK(all->status[r], all->error);
    }
    assert_memory_equal(&all->of[0], &all->of[1], sizeof all->of[0]); /* they all know the same */
    return all;
}

static shared *run_plans(double seconds, double fine, bool one_at_a_time) {
    return run_limited(seconds, fine, one_at_a_time, 0);
}

static void every_plan_runs_in_every_turn(void **state) {
    (void)state;
    /* where every difference is fine enough, a few turns will do */
    for (int alone = 0; alone < 2; alone++) {
        shared *all = run_plans(3600, alone ? 1e9 : 0, alone);
        int turns = all->of[0].turns;
        assert_true(alone ? turns > 2 && turns < 12 : turns == TRMI_BENCHMARK_TURNS);
        for (int p = 0; p < 3; p++) {
            assert_true(all->of[0].seconds[p] > 0 && all->of[0].ran[p] == turns);
            for (int t = 0; t < turns; t++) {
                assert_true(all->of[0].took[p][t] > 0);
            }
        }
        munmap(all, sizeof *all);
    }
}

static void time_that_is_up_ends_it(void **state) {
    (void)state;
    shared *all = run_plans(0, 0, false);
    assert_int_equal(all->of[0].turns, 0);
    munmap(all, sizeof *all);
    all = run_plans(1e-9, 0, false); /* the first turn is broken off */
    assert_int_equal(all->of[0].turns, 0);
    munmap(all, sizeof *all);
}

/* The limit has room for many turns, but not for as many as would be of use. */
static void turns_that_would_be_too_few_end_it(void **state) {
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        shared *all = run_limited(3600, 0, alone, INT32_MAX);
        assert_int_equal(all->of[0].turns, 1);
        munmap(all, sizeof *all);
    }
}

/* A slowdown of all plans in some turns does not change their difference; `resolution` says how
 * much of a difference is chance. */
static void differences_are_those_within_a_turn(void **state) {
    (void)state;
    trmi_plan_times r = {.turns = 8, .ran = {8, 8, 8}};
    for (int t = 0; t < 8; t++) {
        double machine = t < 4 ? 1 : 1.5;
        r.took[0][t] = machine * 1.04;
        r.took[1][t] = machine;
        r.took[2][t] = t % 2 == 0 ? machine * 0.9 : machine * 1.1;
    }
    double resolution;
    assert_true(fabs(trmi_plan_benchmark_behind(&r, 0, 1, &resolution) - 0.04) < 1e-12 &&
                resolution < 1e-12);
    assert_true(fabs(trmi_plan_benchmark_behind(&r, 2, 1, &resolution)) < 1e-12 &&
                resolution > 0.1 && resolution < 0.2);
}

/* One of three plans is 20 % behind, and one wavers. */
static void who_is_behind_rests_and_the_others_run_until_they_are_told_apart(void **state) {
    (void)state;
    trmi_plan_times r = {.turns = 12, .ran = {12, 12, 12}};
    bool running[3] = {true, true, true};
    for (int t = 0; t < 12; t++) {
        r.took[0][t] = 1;
        r.took[1][t] = t % 3 == 0 ? 1.201 : 1.199;
        r.took[2][t] = t % 2 == 0 ? 0.95 : 1.07;
    }
    assert_false(trmi_plan_benchmark_settle(&r, 3, 0.01, running));
    assert_true(running[0] && !running[1] && running[2]);
    r.turns = 20;
    r.ran[0] = r.ran[2] = 20;
    for (int t = 0; t < 20; t++) {
        r.took[0][t] = 1;
        r.took[2][t] = t % 2 == 0 ? 0.979 : 0.981;
    }
    assert_true(trmi_plan_benchmark_settle(&r, 3, 0.01, running));
    assert_true(trmi_plan_benchmark_fastest(&r, 3) == 2 && !running[0] && !running[1] &&
                running[2]);
    r.took[1][0] = 0.1; /* of a plan that rested only its own turns are compared */
    assert_true(trmi_plan_benchmark_fastest(&r, 3) == 2 &&
                fabs(trmi_plan_benchmark_behind(&r, 1, 2, NULL) - 0.224) < 0.005);
    r.turns = 2;
    r.ran[0] = r.ran[1] = r.ran[2] = 2;
    running[0] = running[1] = true;
    /* too few to conclude anything */
    assert_true(!trmi_plan_benchmark_settle(&r, 3, 0.01, running) && running[0] && running[1]);
}

static trmi_near_ties *make_selection(const double *predicted, const bool *simple, int count) {
    trmi_near_ties *t = calloc(1, sizeof *t);
    trm_error err;
    trmi_mesh mesh;
    CHECK_OK(trmi_mesh_parse("2", &mesh, &err), err);
    for (int i = 0; i < count; i++) {
        trmi_partition_plan *plan;
        char name[16];
        snprintf(name, sizeof name, "op%d", i);
        CHECK_OK(trmi_partition_plan_create(&mesh, &plan, &err), err);
        CHECK_OK(trmi_partition_plan_set(plan, name, "n", false, NULL, &err), err);
        const trmi_tied_plan about = {.predicted = predicted[i], .simple = simple[i]};
        CHECK_OK(trmi_ties_add(t, plan, &about, &err), err);
        CHECK_OK(trmi_ties_add(t, plan, &about, &err), err); /* once */
        trmi_partition_plan_destroy(plan);
    }
    assert_int_equal(t->count, count);
    return t;
}

static void a_few_near_the_best_are_run(void **state) {
    (void)state;
    static const double predicted[] = {0.0115, 0.010, 0.0101, 0.0105, 0.0108, 0.0112, 0.0114, 0.02};
    static const bool simple[] = {true, false, false, false, false, false, false, false};
    trmi_near_ties *t = make_selection(predicted, simple, 8);
    trmi_ties_narrow(t, 10);
    assert_true(t->count == 5 && t->list[0].predicted == 0.010 && t->list[1].predicted == 0.0105 &&
                t->list[4].simple);
    trmi_ties_narrow(t,
                     1.5 * 2 * (2 + 4 * 6) * 0.010); /* time for two: the best, and data parallel */
    assert_true(t->count == 2 && !t->list[0].simple && t->list[1].simple);
    trmi_ties_narrow(t, 0);
    assert_int_equal(t->count, 1);
    trmi_ties_free(t);
    free(t);
}

/* A plan by hand is run beside one of equal prediction; of long steps a turn has one. */
static void plans_by_hand_are_not_alike(void **state) {
    (void)state;
    static const double predicted[] = {2, 2.01, 2.01, 2.1};
    static const bool simple[] = {false, false, false, true};
    trmi_near_ties *t = make_selection(predicted, simple, 4);
    t->list[2].by_hand = true;
    trmi_ties_narrow(t, 1.5 * 3 * (2 + 4 * 2) * 2); /* time for three */
    assert_true(t->count == 3 && t->list[1].by_hand && t->list[2].simple);
    trmi_ties_narrow(t, 1.5 * 2 * (2 + 4 * 2) * 2);
    assert_true(t->count == 2 && t->list[1].simple);
    trmi_ties_free(t);
    free(t);
}

static int decide_plan(double best, double other, double parallel, double resolution) {
    static const double predicted[] = {1, 1.02, 1.1};
    static const bool simple[] = {false, false, true};
    trmi_near_ties *t = make_selection(predicted, simple, 3);
    t->list[0].behind = best;
    t->list[1].behind = other;
    t->list[2].behind = parallel;
    for (int i = 0; i < 3; i++) {
        t->list[i].resolution = resolution;
    }
    trmi_ties_choose(t);
    int chosen = t->chosen;
    trmi_ties_free(t);
    free(t);
    return chosen;
}

static void what_runs_cannot_tell_apart_is_decided_by_simplicity(void **state) {
    (void)state;
    assert_int_equal(decide_plan(0, 0.03, 0.05, 0.01), 0);
    /* another one is faster than was predicted */
    assert_int_equal(decide_plan(0.03, 0, 0.05, 0.01), 1);
    assert_int_equal(decide_plan(0.005, 0, 0.05, 0.01), 0); /* not by more than chance */
    assert_int_equal(decide_plan(0, 0.03, 0.005, 0.01), 2); /* data parallel is as fast */
    assert_int_equal(decide_plan(0.05, 0.04, 0, 0.01), 2);
    /* on a busy machine 5 % are not given away */
    assert_int_equal(decide_plan(0, 0.04, 0.05, 0.5), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_runs_in_every_turn),
        cmocka_unit_test(time_that_is_up_ends_it),
        cmocka_unit_test(turns_that_would_be_too_few_end_it),
        cmocka_unit_test(differences_are_those_within_a_turn),
        cmocka_unit_test(who_is_behind_rests_and_the_others_run_until_they_are_told_apart),
        cmocka_unit_test(a_few_near_the_best_are_run),
        cmocka_unit_test(plans_by_hand_are_not_alike),
        cmocka_unit_test(what_runs_cannot_tell_apart_is_decided_by_simplicity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
