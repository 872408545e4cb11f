/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for machines that are not here: the search against complete enumeration, prices against
 * played schedules, sizes of published models, words of plans. */
#include "plan/hardware/parallelism.h"

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char machine[] =
    "{\"name\":\"test\",\"device\":{\"memory_bytes\":80e9,\"bytes_per_second\":3e12,"
    "\"memory_efficiency\":0.8,\"flops\":{\"bf16\":1e15,\"fp8\":2e15},"
    "\"efficiency\":[[1e-5,0.3],[1e-3,0.7]],\"attention_forward\":0.5,\"attention_backward\":0.4},"
    "\"links\":[{\"name\":\"node\",\"devices\":8,\"bytes_per_second\":4e11,\"latency_seconds\":5e-"
    "6},"
    "{\"name\":\"net\",\"devices\":65536,\"bytes_per_second\":5e10,\"latency_seconds\":1e-5}],"
    "\"overlap\":{\"tensor\":0.5,\"data\":0.9,\"pipeline\":0.5}}";

static trmi_hardware read_machine(void) {
    trmi_hardware h;
    trm_error err;
    CHECK_OK(trmi_hardware_parse("test", machine, &h, &err), err);
    return h;
}

static trmi_transformer find_model(const char *model, const char *preset) {
    trmi_transformer t;
    char known[160];
    assert_true(trmi_transformer_preset(model, preset, &t, known));
    return t;
}

/* Published parameters, in billions. */
static void test_models(void **state) {
    static const struct {
        const char *model, *preset;
        double billions, active;
    } known[] = {{"llama", "8b", 8.03, 0},
                 {"llama", "70b", 70.6, 0},
                 {"llama", "405b", 405.9, 0},
                 {"llama", "2-7b", 6.74, 0},
                 {"gpt2", "175b", 174.6, 0},
                 {"gpt2", "1t", 1008, 0},
                 {"moe", "deepseek-v3-shape", 671, 37},
                 {"moe", "mixtral-8x7b", 46.7, 12.9}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        trmi_transformer t = find_model(known[i].model, known[i].preset);
        double found = trmi_transformer_parameters(&t) * 1e-9;
        assert_true(fabs(found / known[i].billions - 1) < 0.005);
        assert_true(known[i].active == 0 ||
                    fabs(trmi_transformer_active(&t) * 1e-9 / known[i].active - 1) < 0.02);
    }
}

/* Efficiency lies between its points; a group over nodes is as fast as its links to the network. */
static void test_prices(void **state) {
    trmi_hardware h = read_machine();
    const double large[3] = {1e5, 1e4, 1e4}, small[3] = {64, 64, 64};
    double seconds = trmi_hardware_product(&h, TRMI_PRODUCT_BF16, 1, large);
    assert_true(fabs(seconds / (2e13 / 1e15 / 0.7) - 1) < 1e-9);
    assert_true(trmi_hardware_product(&h, TRMI_PRODUCT_BF16, 1, small) >=
                2 * 64.0 * 64 * 64 / 3e14);
    assert_true(trmi_hardware_product(&h, TRMI_PRODUCT_FP8, 1, large) < 0.51 * seconds);
    const trmi_device_group node = {8, 1}, nodes = {16, 1}, apart = {16, 8};
    double in = trmi_hardware_gather(&h, node, 8e9), out = trmi_hardware_gather(&h, nodes, 8e9),
           far = trmi_hardware_gather(&h, apart, 8e9);
    assert_true(fabs(in - (1.5e-5 + 7e9 / 4e11)) < 1e-9);
    assert_true(out >= in && fabs(out - (2.5e-5 + 7.5e9 / 4e11)) < 1e-9); /* 8 links of 5e10 */
    assert_true(fabs(far - (4e-5 + 7.5e9 / 5e10)) < 1e-9);
    assert_true(trmi_hardware_send(&h, 4, 1e9) < trmi_hardware_send(&h, 8, 1e9));
}

/* Prices all ways to store and recompute of one plan. Returns the seconds of the best that fits. */
static double find_best_stores(const trmi_plan_problem *q, const trmi_parallelism *plan) {
    double best = INFINITY;
    for (int zero = 0; zero <= 3; zero++) {
        enum { BY_STAGE = 9 * 9 };
        for (int again = 0; again <= BY_STAGE; again++) {
            trmi_parallelism p = *plan;
            trmi_step_cost cost;
            trm_error err;
            if (again < BY_STAGE && again / 9 + again % 9 > q->model->layers) {
                continue;
            }
            p.zero = zero;
            p.by_stage = again == BY_STAGE; /* block_bound_test.c prices these anew */
            p.blocks = again / 9;
            p.selective = again % 9;
            p.recompute = p.blocks > 0      ? TRMI_RECOMPUTE_FULL
                          : p.selective > 0 ? TRMI_RECOMPUTE_SELECTIVE
                                            : TRMI_RECOMPUTE_NONE;
            if (trmi_parallelism_complete(q, &p, &err) == TRM_OK) {
                trmi_step_price(q, &p, &cost);
                best = cost.bytes <= q->memory ? fmin(best, cost.seconds) : best;
            }
        }
    }
    return best;
}

/* Prices all plans of a small space by plain loops. Returns the seconds of the best. */
static double find_best_plainly(const trmi_plan_problem *q) {
    double best = INFINITY;
    trmi_parallelism p = {0};
    for (p.tensor = 1; p.tensor <= 16; p.tensor *= 2) {
        for (p.stages = 1; p.stages <= 8; p.stages++) {
            for (p.context = 1; p.context <= 16 / p.tensor; p.context *= 2) {
                for (p.experts = 1; p.experts <= (q->model->experts > 0 ? 8 : 1); p.experts *= 2) {
                    for (p.micro_batch = 1; p.micro_batch <= 64; p.micro_batch *= 2) {
                        for (p.chunks = 1; p.chunks <= 4; p.chunks++) {
                            best = fmin(best, find_best_stores(q, &p));
                        }
                    }
                }
            }
        }
    }
    return best;
}

/* The search finds the optimum of complete enumeration, under several limits of memory. */
static void test_search(void **state) {
    static const struct {
        const char *model, *preset;
        int64_t layers;
    } models[] = {{"llama", "8b", 8}, {"gpt2", "5b", 6}, {"moe", "mixtral-8x7b", 4}};
    trmi_hardware h = read_machine();
    int cases = 0, fitting = 0;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        trmi_transformer t = find_model(models[m].model, models[m].preset);
        t.layers = models[m].layers;
        for (int64_t devices = 2; devices <= 16; devices *= 2) {
            for (double memory = 10e9; memory <= 160e9; memory *= 2) {
                trmi_plan_problem q = {&t, &h, devices, 16, TRMI_PRODUCT_BF16, 4, memory, 3};
                trmi_parallelism_found found;
                trm_error err;
                CHECK_OK(trmi_parallelism_search(&q, &found, &err), err);
                double best = find_best_plainly(&q);
                assert_true(found.fits == isfinite(best));
                assert_true(!found.fits || fabs(found.best.cost.seconds / best - 1) < 1e-9);
                fitting += found.fits;
                cases++;
            }
        }
    }
    assert_true(cases == 60 && fitting >= 30);
}

/* It does so where the last stage has fewer blocks than the others and is the busiest: what a mix
 * of recompute costs there is not what it costs in the others. */
static void test_uneven_stages(void **state) {
    (void)state;
    trmi_hardware h = read_machine();
    trmi_transformer t = find_model("llama", "8b");
    int fitting = 0;
    for (t.layers = 5; t.layers <= 7; t.layers += 2) {
        for (t.vocabulary = 128256; t.vocabulary <= 1026048; t.vocabulary *= 8) {
            for (double memory = 9e9; memory <= 90e9; memory *= 1.5) {
                trmi_plan_problem q = {&t, &h, 8, 16, TRMI_PRODUCT_BF16, 4, memory, 3};
                trmi_parallelism_found found;
                trm_error err;
                CHECK_OK(trmi_parallelism_search(&q, &found, &err), err);
                double best = find_best_plainly(&q);
                assert_true(found.fits == isfinite(best));
                assert_true(!found.fits || fabs(found.best.cost.seconds / best - 1) < 1e-9);
                fitting += found.fits;
            }
        }
    }
    assert_true(fitting >= 12);
}

/* The formula of a step agrees with its schedule, played action by action. */
static void test_schedules(void **state) {
    trmi_hardware h = read_machine();
    trmi_transformer t = find_model("gpt2", "175b");
    h.hide_stage = 1; /* without messages the formula is exact for equal stages */
    trmi_plan_problem q = {&t, &h, 64, 64, TRMI_PRODUCT_BF16, 4, 1e15, 3};
    static const char *const plans[] = {
        "tp=8,pp=8",       "tp=8,pp=8,schedule=gpipe",
        "tp=8,pp=8,vp=4",  "tp=4,pp=16,recompute=full",
        "tp=8,pp=2,vp=16", "tp=8,pp=4,recompute=full:5+selective:7"};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        trmi_parallelism p;
        trmi_step_cost cost;
        trm_error err;
        trmi_played_step played;
        CHECK_OK(trmi_parallelism_parse(plans[i], &p, &err), err);
        CHECK_OK(trmi_parallelism_complete(&q, &p, &err), err);
        trmi_step_price(&q, &p, &cost);
        CHECK_OK(trmi_step_play(&q, &p, &cost, &played, &err), err);
        assert_true(fabs(played.seconds / cost.seconds - 1) < 0.01);
        trmi_played_step_free(&played);
    }
}

/* Each stage of a played step has its own gradients and update after its actions. Of four
 * stages here the last one has the most work, in the output layer, but fewer blocks to update. */
static void test_own_updates(void **state) {
    (void)state;
    trmi_hardware h = read_machine();
    trmi_transformer t = find_model("llama", "8b");
    t.layers = 30;
    h.hide_stage = 1;
    trmi_plan_problem q = {&t, &h, 64, 64, TRMI_PRODUCT_BF16, 4, 1e15, 3};
    int other = 0;
    for (int stages = 1; stages <= 8; stages *= 2) {
        trmi_parallelism p;
        trmi_step_cost cost;
        trm_error err;
        trmi_played_step played;
        char words[64];
        snprintf(words, sizeof words, "pp=%d,zero=0", stages);
        CHECK_OK(trmi_parallelism_parse(words, &p, &err), err);
        CHECK_OK(trmi_parallelism_complete(&q, &p, &err), err);
        trmi_step_price(&q, &p, &cost);
        CHECK_OK(trmi_step_play(&q, &p, &cost, &played, &err), err);
        double actions = 0, all = 0;
        for (int s = 0; s < stages; s++) {
            double end = played.ends[(s + 1) * played.pipeline.count - 1];
            assert_true(played.after[s] > 0);
            actions = fmax(actions, end);
            all = fmax(all, end + played.after[s]);
        }
        all += cost.part[TRMI_PART_OTHER];
        assert_true(fabs(played.seconds / all - 1) < 1e-9);
        actions +=
            cost.part[TRMI_PART_DATA] + cost.part[TRMI_PART_UPDATE] + cost.part[TRMI_PART_OTHER];
        other += fabs(actions / all - 1) > 1e-3;
        print_message("%d stages: %.6f s played, %.6f by the formula\n", stages, played.seconds,
                      cost.seconds);
        trmi_played_step_free(&played);
    }
    assert_true(other > 0);
}

/* Words that are written are read as the same plan; wrong words name themselves. */
static void test_words(void **state) {
    trmi_hardware h = read_machine();
    trmi_transformer t = find_model("llama", "70b");
    trmi_plan_problem q = {&t, &h, 64, 128, TRMI_PRODUCT_BF16, 4, 80e9, 3};
    trmi_parallelism p, again;
    trm_error err;
    char words[256];
    static const char *const right[] = {
        "full:3", "full",    "selective", "selective:2", "full:3+selective", "full:3+selective:2",
        "none",   "by-stage"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        snprintf(words, sizeof words, "tp=4,pp=4,vp=5,zero=1,recompute=%s,overlap-tp=off",
                 right[i]);
        CHECK_OK(trmi_parallelism_parse(words, &p, &err), err);
        CHECK_OK(trmi_parallelism_complete(&q, &p, &err), err);
        trmi_parallelism_words(&p, words, sizeof words);
        CHECK_OK(trmi_parallelism_parse(words, &again, &err), err);
        CHECK_OK(trmi_parallelism_complete(&q, &again, &err), err);
        assert_memory_equal(&p, &again, sizeof p);
    }
    static const char *const wrong[] = {"tp",
                                        "tp=",
                                        "tp=0",
                                        "t=1",
                                        "zero=4",
                                        "tp=2x",
                                        "recompute=x",
                                        "vp=2,schedule=1f1b",
                                        "recompute=full:3+full",
                                        "recompute=full:0",
                                        "recompute=selective:2+full",
                                        "recompute=full+",
                                        "recompute=fully",
                                        ",",
                                        "tp=2,tp=2",
                                        "overlap-tp=x",
                                        "schedule=x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_FAILS(trmi_parallelism_parse(wrong[i], &p, &err), TRM_INVALID, err, "plan: ");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),    cmocka_unit_test(test_prices),
        cmocka_unit_test(test_search),    cmocka_unit_test(test_uneven_stages),
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_own_updates),
        cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
