/* SPDX-License-Identifier: Apache-2.0 */
/* Finds plans to run beside the best one, to validate predictions. The marginals give, for each
 * operator and strategy, the cost of the best plan with it; the plans chosen from these have evenly
 * spaced costs. */
#include "plan/search/search.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

/* One operator in one strategy, and the cost of the best plan with it. */
typedef struct wish {
    float cost;
    int32_t node, strategy;
} wish;

/* Compares by cost, then by node and strategy, so that equal costs have a fixed order. */
static int by_cost(const void *a, const void *b) {
    const wish *x = a, *y = b;
    return x->cost != y->cost   ? (x->cost > y->cost) - (x->cost < y->cost)
           : x->node != y->node ? x->node - y->node
                                : x->strategy - y->strategy;
}

/* Lists all possible pairs of operator and strategy, cheapest first. Returns their number. */
static int64_t list_wishes(const trmi_space *s, float *const *marginals, wish *list) {
    int64_t count = 0;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        for (int32_t i = 0; i < trmi_space_class_of(s, n)->count; i++) {
            if (marginals[n][i] < INFINITY) {
                list[count++] = (wish){marginals[n][i], n, i};
            }
        }
    }
    qsort(list, (size_t)count, sizeof *list, by_cost);
    return count;
}

/* Solves and measures up to `wanted` plans, each at least `apart` times as expensive as the one
 * before, up to six times the cheapest. */
static trm_status pick_plans(const trmi_space *s, const trmi_objective *weights, const wish *list,
                             int64_t total, int32_t wanted, trmi_arena *arena, trmi_candidate *out,
                             int32_t *count, trm_error *err) {
    double least = total > 0 ? (double)list[0].cost : 0,
           most = total > 0 ? fmin((double)list[total - 1].cost, 6 * least) : 0;
    /* costs in equal ratios, so that the plans differ visibly */
    double apart = fmax(1.03, pow(fmax(1, most / fmax(least, 1e-12)), 1.0 / (wanted + 1))),
           next = least * apart;
    for (int64_t i = 0; i < total && *count < wanted; i++) {
        trmi_solution solution;
        trmi_candidate c = {.name = "another plan", .fits = true};
        if ((double)list[i].cost < next) {
            continue;
        }
        if (!trmi_choice_open(&c.choice, s, arena)) {
            return TRMI_NO_MEMORY(err, "to search a plan");
        }
        /* the best plan that has this strategy */
        TRMI_TRY(trmi_space_solve_with(s, weights, list[i].node, list[i].strategy, &c.choice,
                                       &solution, err));
        TRMI_TRY(trmi_space_measure(s, &c.choice, &c.measure, err));
        out[(*count)++] = c;
        next = (double)list[i].cost * apart;
    }
    return TRM_OK;
}

/* Contract in search.h. The marginal of a strategy is the least cost of any whole plan that has
 * it; sorted, they name the plans that differ from the best at the least cost. */
trm_status trmi_search_others(const trmi_space *s, const trmi_found *found, int32_t wanted,
                              trmi_arena *arena, trmi_candidate *out, int32_t *count,
                              trm_error *err) {
    trmi_choice choice;
    trmi_solution solution;
    float **marginals;
    size_t total = 0;
    *count = 0;
    if (!trmi_choice_open(&choice, s, arena)) {
        return TRMI_NO_MEMORY(err, "to search a plan");
    }
    /* Compute the marginals of all plans, at the weights of the search's bound. */
    const trmi_objective weights = {.gradient = found->weights.gradient,
                                    .memory = found->weights.memory};
    TRMI_TRY(trmi_space_solve(s, &weights, &choice, &solution, &marginals, arena, err));
    for (int32_t n = 0; n < s->nodes_count; n++) {
        total += (size_t)trmi_space_class_of(s, n)->count;
    }
    wish *list;
    TRMI_TRY(TRMI_NEW(err, list, total + 1, "to search a plan"));
    trm_status status = pick_plans(s, &weights, list, list_wishes(s, marginals, list), wanted,
                                   arena, out, count, err);
    trmi_free(list);
    return status;
}
