/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps training within --memory (exec/memory_limit.h).
 *
 *      one device   compile without recomputation; if it does not fit, search the fastest plan that
 *                   recomputes activations in backward (trmi_limit_single_device)
 *      all modes    check the compiled program before memory is taken (trmi_limit_check)
 *
 * Sizes are the predictions of exec_memory.c. */
#include "exec/memory_limit.h"

#include "exec/exec.h"
#include "exec/exec_memory.h"
#include "plan/search/search.h"
#include "plan/partition/partition.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/optimizer_rule.h"

/* How often the search is repeated with a lower limit, at most. */
enum { ROUNDS = 12 };

int32_t trmi_optimizer_slots(const trm_optimizer_options *o) {
    const trmi_optimizer *rule = trmi_optimizer_of(o->kind);
    return rule == NULL ? 0 : rule->slots;
}

int64_t trmi_limit_bytes(const trm_exec *exec, const trm_program *p, const trmi_mesh *mesh) {
    trmi_training how = {
        .slots = exec->updated_elsewhere ? 0 : trmi_optimizer_slots(&exec->optimizer),
        .ranks = 1,
        .accumulates = exec->accumulate > 1,
    };
    trmi_distribution_count(exec, p, mesh, &how);
    return trmi_program_resident(p, &how);
}

trm_status trmi_limit_compiled(const trm_exec *exec, const trm_graph *graph,
                               const trmi_plan_options *options, const trmi_partition_plan *plan,
                               int64_t *bytes, trm_error *err) {
    trmi_plan_options own = *options;
    trm_program *program;
    own.partition = plan;
    own.rank = 0;
    own.report = NULL;
    TRMI_TRY(trmi_plan_create(graph, &own, &program, err));
    *bytes = trmi_limit_bytes(exec, program, plan != NULL ? &plan->mesh : NULL);
    trmi_plan_destroy(program);
    return TRM_OK;
}

/* ---- one device ------------------------------------------------------------------------------ */

/* Fails with NOMEM; `least` is the size in bytes of the smallest plan. */
static trm_status fail_over_limit(const trm_exec *exec, double least, trm_error *err) {
    char a[TRMI_BYTES_TEXT], b[TRMI_BYTES_TEXT];
    return TRMI_FAIL(
        err, TRM_NOMEM,
        "no plan fits %s; the smallest plan, which recomputes all activations, takes %s: "
        "a smaller batch, mixed precision, or more ranks with parallel_mode auto_parallel",
        trmi_bytes_text((double)exec->memory_bytes, a), trmi_bytes_text(least, b));
}

/* Searches the fastest plan whose compiled program fits the limit; *plan is the last one tried.
 * The search counts activations that are kept; a program also needs workspaces and short-lived
 * buffers, whose size is known only after compilation. So each round compiles the plan that was
 * found, and the next round searches with the limit lowered by the excess (`beyond`), plus 0.1 % of
 * the limit a round. It ends when a plan fits, or with NOMEM when the search is infeasible or the
 * excess no longer grows. */
static trm_status search_plan_within_limit(const trm_exec *exec, const trm_graph *graph,
                                           const trmi_plan_options *options,
                                           const trmi_space *space, trmi_partition_plan **plan,
                                           trm_error *err) {
    double limit = (double)exec->memory_bytes, beyond = 0, least = 0;
    trmi_found *found;
    trm_status status = TRMI_NEW(err, found, 1, "to search a plan");
    bool fits = false;
    for (int i = 0; status == TRM_OK && i < ROUNDS && !fits; i++) {
        trmi_arena arena = {0};
        int64_t bytes = 0;
        bool infeasible = false;
        trmi_partition_plan_destroy(*plan);
        *plan = NULL;
        status = trmi_search(
            space, &(trmi_search_options){.memory_bytes = limit > beyond ? limit - beyond : 1},
            &arena, found, err);
        if (status == TRM_OK) {
            infeasible = found->infeasible;
            status = trmi_space_plan(space, &found->best.choice, plan, err);
        }
        status = status == TRM_OK ? trmi_limit_compiled(exec, graph, options, *plan, &bytes, err)
                                  : status;
        least = (double)bytes;
        fits = least <= limit;
        /* The next limit is lower by the excess of this plan, and by a little more each round. */
        double more = least - found->best.measure.bytes + 1e-3 * i * limit;
        trmi_arena_free(&arena);
        if (status == TRM_OK && !fits && (infeasible || more <= beyond)) {
            break;
        }
        beyond = more;
    }
    trmi_free(found);
    return status == TRM_OK && !fits ? fail_over_limit(exec, least, err) : status;
}

/* Contract in memory_limit.h. Reuses the search of plans on a mesh without axes: what is left to
 * choose for each operator is whether its output is kept or computed again. */
trm_status trmi_limit_single_device(const trm_exec *exec, const trm_graph *graph,
                                    const trmi_plan_options *options, trmi_partition_plan **plan,
                                    trm_error *err) {
    int64_t bytes;
    *plan = NULL;
    TRMI_TRY(trmi_limit_compiled(exec, graph, options, NULL, &bytes, err));
    if (bytes <= exec->memory_bytes) {
        return TRM_OK;
    }
    /* The plan is too large: price operators by the measured rates and search what to recompute, on
     * a mesh without axes. */
    const trmi_target *target = options->target;
    const trmi_prices prices = {
        .flop = target->flops_per_second > 0 ? 1 / target->flops_per_second : 0,
        .byte = target->bytes_per_second > 0 ? 1 / target->bytes_per_second : 0};
    const trmi_search_costs costs = {
        .prices = &prices,
        .rules = {target->recompute_norm_act && !options->no_recompute, options->recompute},
        .slots = trmi_optimizer_slots(&exec->optimizer),
        .gradients = exec->accumulate > 1 ? 2 : 1};
    const trmi_mesh mesh = {.axes = 0};
    trmi_arena arena = {0};
    trmi_roots roots;
    trm_graph *training;
    trmi_space *space = NULL;
    trm_status status = trmi_training_graph(graph, options, &training, &roots, &arena, err);
    if (status == TRM_OK) {
        status = trmi_space_create(training, &mesh, &costs, NULL, &space, err);
        status = status == TRM_OK ? search_plan_within_limit(exec, graph, options, space, plan, err)
                                  : status;
        trmi_space_destroy(space);
        trm_graph_destroy(training);
    }
    trmi_arena_free(&arena);
    if (status != TRM_OK) {
        trmi_partition_plan_destroy(*plan);
        *plan = NULL;
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

trm_status trmi_limit_check(const trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (exec->memory_bytes <= 0 || !p->training) {
        return TRM_OK;
    }
    int64_t bytes = trmi_limit_bytes(exec, p, NULL);
    char a[TRMI_BYTES_TEXT], b[TRMI_BYTES_TEXT], c[TRMI_BYTES_TEXT], d[TRMI_BYTES_TEXT];
    return bytes <= exec->memory_bytes
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM,
                           "a rank takes %s (parameters %s, activations %s), its limit is %s: "
                           "parallel_mode auto_parallel searches a plan within it; or a smaller "
                           "batch, mixed precision, more ranks",
                           trmi_bytes_text((double)bytes, a),
                           trmi_bytes_text((double)p->arena_bytes[TRMI_ARENA_PARAM], b),
                           trmi_bytes_text((double)p->arena_bytes[TRMI_ARENA_ACTIVATION], c),
                           trmi_bytes_text((double)exec->memory_bytes, d));
}
