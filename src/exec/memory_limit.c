/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps training within --memory (exec/memory_limit.h).
 *
 *      one device   compile by the rules of the back-end; if it does not fit, search the fastest plan
 *                   that recomputes more activations in backward (trmi_limit_single_device)
 *      all modes    check the compiled program before memory is taken (trmi_limit_check)
 *
 * Sizes are the predictions of exec_memory.c. */
#include "exec/memory_limit.h"

#include "exec/autoparallel/auto_parallel.h"
#include "exec/exec.h"
#include "exec/exec_memory.h"
#include "plan/partition/partition.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/optimizer_rule.h"

int32_t trmi_optimizer_slots(const trm_optimizer_options *o) {
    const trmi_optimizer *rule = trmi_optimizer_of(o->kind);
    return rule == NULL ? 0 : rule->slots;
}

/* Contract in memory_limit.h. Of a partitioned program ranks have slices only where it leaves every
 * parameter whole. */
int64_t trmi_limit_bytes(const trm_exec *exec, const trm_program *p) {
    trmi_training how = exec->divided;
    how.sliced = how.sliced && (p->leaves_count == 0 || trmi_program_is_whole(p));
    how.one_copy = how.one_copy && how.sliced;
    return trmi_program_resident(p, &how);
}

/* Compiles `plan` for rank 0 and writes the bytes that it takes to *bytes. plan NULL: no plan. */
static trm_status count_compiled(const trm_exec *exec, const trm_graph *graph,
                                 const trmi_plan_options *options, const trmi_partition_plan *plan,
                                 int64_t *bytes, trm_error *err) {
    trmi_plan_options own = *options;
    trm_program *program;
    own.partition = plan;
    own.rank = 0;
    own.report = NULL;
    TRMI_TRY(trmi_plan_create(graph, &own, &program, err));
    *bytes = trmi_limit_bytes(exec, program);
    trmi_plan_destroy(program);
    return TRM_OK;
}

trm_status trmi_limit_choice(const trm_exec *exec, const trm_graph *graph,
                             const trmi_plan_options *options, const trmi_space *space,
                             const trmi_choice *choice, double *bytes, trm_error *err) {
    trmi_partition_plan *plan;
    int64_t taken;
    TRMI_TRY(trmi_space_plan(space, choice, &plan, err));
    trm_status status = count_compiled(exec, graph, options, plan, &taken, err);
    trmi_partition_plan_destroy(plan);
    *bytes = status == TRM_OK ? (double)taken : *bytes;
    return status;
}

/* ---- one device ------------------------------------------------------------------------------ */

/* Fails with NOMEM; `least` is the size in bytes of the smallest of the plans that were
 * compiled. */
static trm_status fail_over_limit(const trm_exec *exec, double least, trm_error *err) {
    char a[TRMI_BYTES_TEXT], b[TRMI_BYTES_TEXT];
    return TRMI_FAIL(
        err, TRM_NOMEM,
        "no plan fits %s; the smallest plan that was compiled takes %s: "
        "a smaller batch, mixed precision, or more ranks with parallel_mode auto_parallel",
        trmi_bytes_text((double)exec->memory_bytes, a), trmi_bytes_text(least, b));
}

/* The callbacks of one device's search read this. */
typedef struct device_search {
    const trm_exec *exec;
    const trm_graph *graph, *training;
    const trmi_plan_options *options;
    const trmi_search_costs *costs;
} device_search;

/* Is the search's callback: the space of one device. */
static trm_status make_space(void *context, const trmi_mesh *mesh, trmi_space **out,
                             trm_error *err) {
    const device_search *s = context;
    return trmi_space_create(s->training, mesh, s->costs, NULL, out, err);
}

/* Compiles a plan of one device and counts the bytes of its program, for the search within the
 * limit. */
static trm_status compile_choice(void *context, const trmi_space *space, const trmi_choice *choice,
                                 double *bytes, trm_error *err) {
    const device_search *s = context;
    return trmi_limit_choice(s->exec, s->graph, s->options, space, choice, bytes, err);
}

/* Searches the fastest plan whose compiled program keeps the limit, as jobs on many ranks do, on a
 * mesh without axes. */
static trm_status search_plan_within_limit(device_search *s, trmi_partition_plan **plan,
                                           trm_error *err) {
    trmi_auto_mesh mesh = {.mesh = {.axes = 0}};
    trmi_plan_search search = {.memory_bytes = s->exec->memory_bytes,
                               .make_space = make_space,
                               .compile = compile_choice,
                               .context = s,
                               .meshes = &mesh,
                               .meshes_count = 1};
    trm_status status = trmi_auto_search_meshes(&search, err);
    status = status == TRM_OK ? trmi_auto_respect_limit(&search, err) : status;
    if (status == TRM_OK && search.compiled_bytes > (double)s->exec->memory_bytes) {
        status = fail_over_limit(s->exec, search.compiled_bytes, err);
    }
    status =
        status == TRM_OK ? trmi_space_plan(mesh.space, &mesh.found.best.choice, plan, err) : status;
    trmi_auto_free_meshes(&search);
    return status;
}

/* Contract in memory_limit.h. Reuses the search of plans on a mesh without axes: what is left to
 * choose for each operator is whether its output is kept or computed again. */
trm_status trmi_limit_single_device(const trm_exec *exec, const trm_graph *graph,
                                    const trmi_plan_options *options, trmi_partition_plan **plan,
                                    trm_error *err) {
    int64_t bytes;
    *plan = NULL;
    TRMI_TRY(count_compiled(exec, graph, options, NULL, &bytes, err));
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
        .rules = {.cheap = target->recompute_cheap && !options->no_recompute,
                  .segments = options->recompute,
                  .sums = true},
        .slots = trmi_optimizer_slots(&exec->optimizer),
        .gradients = exec->accumulate > 1 ? 2 : 1,
        .rounding = options->readers_round ? target : NULL};
    trmi_arena arena = {0};
    trmi_roots roots;
    trm_graph *training;
    trm_status status = trmi_training_graph(graph, options, &training, &roots, &arena, err);
    if (status == TRM_OK) {
        device_search search = {exec, graph, training, options, &costs};
        status = search_plan_within_limit(&search, plan, err);
        trm_graph_destroy(training);
    }
    trmi_arena_free(&arena);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Contract in memory_limit.h. Checked after planning and before any arena is taken, so that a job
 * that would not fit ends with the sizes instead of being killed by the system. */
trm_status trmi_limit_check(const trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (exec->memory_bytes <= 0 || !p->training) {
        return TRM_OK;
    }
    int64_t bytes = trmi_limit_bytes(exec, p);
    char a[TRMI_BYTES_TEXT], b[TRMI_BYTES_TEXT], c[TRMI_BYTES_TEXT], d[TRMI_BYTES_TEXT];
    return bytes <= exec->memory_bytes
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM,
                           "a rank takes %s (parameters %s, activations %s), its limit is %s: "
                           "parallel_mode auto_parallel searches a plan within it; or a smaller "
                           "batch, mixed precision, more ranks",
                           trmi_bytes_text((double)bytes, a),
                           trmi_bytes_text((double)p->arena_bytes[TRMI_ARENA_PARAM], b),
                           trmi_bytes_text((double)trmi_program_activations(p), c),
                           trmi_bytes_text((double)exec->memory_bytes, d));
}
