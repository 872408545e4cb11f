/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that search a plan together and train by it: the same plan on every rank, with stages and
 * without, equal to one device; operators of a micro-batch are measured; a search that fails ends
 * on every rank. */
#include "check.h"

#include "trireme/plan.h"
#include "trireme/train.h"

#include "ranks.h"

#include <stdlib.h>

enum { RANKS = 4, BATCH = 16, SIZE = 6, CLASSES = 10, LAYERS = 5 };

typedef struct trial {
    trm_planner_options options;
    const char *backend;
    int64_t width; /* of a layer */
    int layers;    /* 0 = LAYERS */
    bool blocks;   /* layers are marked as segments */
    /* of rank 0 */
    trm_plan_info plan;
    bool agrees;
    int32_t tensors;
    double measured; /* part of the operators' seconds that was measured */
} trial;

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    const trial *t = context;
    trm_node x = trm_inputs_get(inputs, "image");
    int64_t batch = trm_node_shape(g, x).dim[0], in = 3 * SIZE * SIZE;
    x = trm_reshape(g, x, trm_shape_of(batch, in));
    int layers = t->layers > 0 ? t->layers : LAYERS;
    for (int i = 0; i < layers; i++) {
        int64_t out = i + 1 < layers ? t->width : CLASSES;
        trm_graph_push_scope(g, "layer%d", i);
        x = trm_linear(g, x, trm_parameter(g, "weight", trm_shape_of(out, in), TRM_INIT_LINEAR),
                       trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_ZERO));
        x = i + 1 < layers ? trm_gelu(g, x, false) : x;
        if (t->blocks) {
            trm_graph_mark_segment(g);
        }
        trm_graph_pop_scope(g);
        in = out;
    }
    return x;
}

/* Opens batches of so many samples of all ranks. */
static trm_status open_data(int64_t batch, trm_dataset **data, trm_error *err) {
    const trm_random_options random = {
        .count = BATCH * 8, .channels = 3, .height = SIZE, .width = SIZE, .classes = CLASSES};
    trm_status status = trm_dataset_random(&random, data, err);
    return status == TRM_OK ? trm_dataset_batch(*data, batch, true, err) : status;
}

static void search_and_compare(rank_context *context, trm_comm *comm) {
    trm_error err;
    trial own = *(const trial *)context->arg, *t = context->rank == 0 ? context->arg : &own;
    trm_planner *planner = NULL;
    trm_plan_info plan;
    trm_verification *v = NULL;
    trm_dataset *data;
    char *text;
    trm_model_options model = {.network = build_network,
                               .network_context = t,
                               .exec = {.threads = 1,
                                        .seed = 3,
                                        .tuning_file = "",
                                        .backend = t->backend,
                                        .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
                                        .parallel = {.comm = comm, .batch = TRM_BATCH_OF_JOB}},
                               .learning_rate = {.base = 0.05}};
    EXPECT_OK(open_data(BATCH, &data, &err), err);
    model.data = data;
    EXPECT_OK(trm_planner_create(&model, &t->options, &planner, &err), err);
    EXPECT_OK(trm_planner_share(planner, comm, &plan, &text, &err), err);
    if (planner != NULL) {
        char *report = trm_planner_report(planner, true);
        const char *at = strstr(report, "\"measured_share\":");
        EXPECT(at != NULL, "the report has no measured_share");
        t->measured = atof(at + strlen("\"measured_share\":"));
        trm_free(report);
    }
    trm_planner_destroy(planner);
    trm_dataset_destroy(data);
    trm_plan_follow(&plan, text, &model);
    EXPECT_OK(open_data(plan.stages > 0 ? BATCH / plan.micro_batches : BATCH, &data, &err), err);
    model.data = data;
    EXPECT_OK(trm_verify(&model, &(trm_verify_options){.steps = 3}, &v, &err), err);
    t->plan = plan;
    if (v != NULL) {
        t->agrees = v->agrees;
        t->tensors = v->count;
    }
    trm_verification_destroy(v);
    trm_dataset_destroy(data);
    trm_free(text);
}

static void a_job_trains_by_what_it_has_found(void **state) {
    (void)state;
    static const int32_t stages[] = {2, 4, 0, TRM_ALL};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        trial t = {.backend = "ref",
                   .width = 24,
                   .options = {.ranks = RANKS,
                               .stages = stages[i],
                               .micro_batches = stages[i] == 4 ? 8 : 0,
                               .schedule = stages[i] == 4 ? "gpipe" : NULL,
                               .guess_links = true,
                               .frontier = TRM_OFF,
                               .measure = TRM_OFF}};
        ranks_run_joined(RANKS, false, search_and_compare, &t, "a searched plan");
        assert_true(t.agrees && t.tensors > 4 * LAYERS);
        assert_int_equal(t.plan.ranks, RANKS);
        if (stages[i] != TRM_ALL) {
            assert_int_equal(t.plan.stages, stages[i]);
        }
        if (stages[i] == 4) {
            assert_int_equal(t.plan.micro_batches, 8);
            assert_int_equal(t.plan.schedule, TRM_SCHEDULE_GPIPE);
        }
    }
}

#ifdef TRIREME_ONEDNN
/* The batch of all ranks has other shapes than a micro-batch, so its operators say nothing here. */
static void operators_of_micro_batches_are_measured(void **state) {
    (void)state;
    trial t = {.width = 512,
               .options = {.ranks = RANKS,
                           .stages = 2,
                           .micro_batches = 4,
                           .guess_links = true,
                           .frontier = TRM_OFF}};
    ranks_run_joined(RANKS, false, search_and_compare, &t, "measured operators");
    assert_true(t.agrees);
    assert_true(t.measured > 0.5);
}
#endif

/* Plans for ranks that are far apart: each message takes so many seconds. */
static trm_planner_info plan_far_ranks(double gain, bool blocks, double seconds) {
    char links[64];
    trm_error err;
    trm_planner *planner;
    trm_planner_info info;
    trm_dataset *data;
    const trial t = {.width = 2000, .layers = 10, .blocks = blocks};
    const trm_planner_options options = {.ranks = 2,
                                         .links = links,
                                         .stages = TRM_ALL,
                                         .stages_gain = gain,
                                         .frontier = TRM_OFF,
                                         .measure = TRM_OFF};
    snprintf(links, sizeof links, "level host 2 %.0f 0.001\nflops 1e8\n", 1e6 * seconds);
    CHECK_OK(open_data(BATCH, &data, &err), err);
    const trm_model_options model = {.network = build_network,
                                     .network_context = (void *)(uintptr_t)&t,
                                     .data = data,
                                     .exec = {.threads = 1,
                                              .tuning_file = "",
                                              .backend = "ref",
                                              .parallel = {.batch = TRM_BATCH_OF_JOB}}};
    CHECK_OK(trm_planner_create(&model, &options, &planner, &err), err);
    trm_planner_get_info(planner, &info);
    trm_planner_destroy(planner);
    trm_dataset_destroy(data);
    return info;
}

/* Two stages of ranks that are far apart are the fastest plan, although they agree three times a
 * step, two messages each; twice as far apart that costs more than they gain.
 * The bound is that of all plans, also where stages are faster by less than is asked; a network
 * without segments is planned without stages. */
static void stages_are_chosen_where_they_gain(void **state) {
    (void)state;
    trm_planner_info gains = plan_far_ranks(0.1, true, 1), less = plan_far_ranks(0.9, true, 1),
                     none = plan_far_ranks(0.1, false, 1), any = plan_far_ranks(0, false, 1);
    assert_int_equal(gains.stages, 2);
    assert_int_equal(plan_far_ranks(0, true, 2).stages, 0);
    assert_int_equal(any.stages, 2);
    assert_int_equal(less.stages, 0);
    assert_int_equal(none.stages, 0);
    assert_true(gains.step_seconds < 0.9 * less.step_seconds);
    CHECK_CLOSE(gains.step_seconds / any.step_seconds, 1, 1e-9);
    CHECK_CLOSE(less.step_seconds / none.step_seconds, 1, 1e-9);
    CHECK_CLOSE(less.lower_bound / gains.lower_bound, 1, 1e-9);
    assert_true(less.lower_bound < none.lower_bound && none.lower_bound <= none.step_seconds);
}

static void fail_to_share(rank_context *context, trm_comm *comm) {
    trm_error err;
    trm_plan_info plan;
    char *text;
    EXPECT(trm_planner_share(NULL, comm, &plan, &text, &err) == TRM_INVALID,
           "a plan without a planner");
    EXPECT(strstr(err.message, "rank 0 found no plan") != NULL, "%s", err.message);
}

static void without_a_plan_every_rank_is_told(void **state) {
    (void)state;
    ranks_run_joined(2, false, fail_to_share, NULL, "no plan");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_trains_by_what_it_has_found),
#ifdef TRIREME_ONEDNN
        cmocka_unit_test(operators_of_micro_batches_are_measured),
#endif
        cmocka_unit_test(stages_are_chosen_where_they_gain),
        cmocka_unit_test(without_a_plan_every_rank_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
