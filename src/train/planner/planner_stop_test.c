/* SPDX-License-Identifier: Apache-2.0 */
/* A search of plans ends at its caller's request, wherever it is: before its first price, and in
 * the middle, which the network function asks for when the search builds a later graph. */
#include "check.h"

#include "trireme/plan.h"

/* The request, and after how many graphs the network function makes it. */
typedef struct request {
    int32_t stop, graphs;
} request;

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    request *r = context;
    r->stop |= --r->graphs == 0;
    const int64_t hidden[] = {16};
    return trm_mlp(g, trm_inputs_get(inputs, "image"), hidden, 1, 10);
}

/* Plans for two ranks; returns the status. */
static trm_status plan_model(request *r, trm_planner **out, trm_error *err) {
    trm_dataset *data;
    const trm_dataset_spec spec = {.path = "synth", .batch_size = 8};
    CHECK_OK(trm_dataset_open(&spec, &data, err), *err);
    const trm_model_options model = {.network = build_network,
                                     .network_context = r,
                                     .loss = trm_loss_softmax,
                                     .data = data,
                                     .exec.tuning_file = ""};
    const trm_planner_options options = {.ranks = 2, .measure = TRM_OFF, .stop = &r->stop};
    trm_status status = trm_planner_create(&model, &options, out, err);
    if (status == TRM_OK) {
        trm_planner_destroy(*out);
    }
    trm_dataset_destroy(data);
    return status;
}

static void a_search_ends_on_request(void **state) {
    trm_error err;
    trm_planner *planner = NULL;
    for (int32_t graphs = 0; graphs <= 2; graphs++) {
        request r = {.stop = graphs == 0, .graphs = graphs};
        CHECK_FAILS(plan_model(&r, &planner, &err), TRM_CANCELLED, err,
                    "search of plans: stopped on request");
        assert_null(planner);
    }
    request none = {.graphs = 0};
    CHECK_OK(plan_model(&none, &planner, &err), err);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_search_ends_on_request)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
