/* auto_parallel without a plan: links measured between these ranks, operators by the machine's rates, every mesh of
 * so many ranks searched on rank 0, and its plan sent to all. (trireme plan measures operators one by one; its
 * file is given with the option plan.) */
#include "exec/exec.h"
#include "exec/shard.h"
#include "plan/search.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

enum { SMALL = 1024, LARGE = 1 << 18, TURNS = 5 };

static trm_status time_sum(trmi_parallel *p, float *data, int64_t count, double *best, trm_error *err) {
    *best = 1e9;
    for (int i = 0; i < TURNS; i++) {
        TRMI_TRY(trm_comm_barrier(p->comm, err));
        double begin = trmi_os_now();
        TRMI_TRY(trm_comm_allreduce(p->comm, data, count, TRM_FLOAT32, TRM_REDUCE_SUM, err));
        double seconds = trmi_os_now() - begin;
        *best = i > 0 && seconds < *best ? seconds : *best;
    }
    return TRM_OK;
}

/* Start-up and seconds a byte of these ranks, as a ring's all-reduce shows them. */
static trm_status measure(trm_exec *exec, trmi_prices *prices, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    const trmi_target *target = &exec->backend->target;
    float *data = trm_comm_alloc_shared(p->comm, LARGE * sizeof *data, err);
    if (data == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure links");
    }
    double small = 0, large = 0, n = p->size;
    trm_status status = time_sum(p, data, SMALL, &small, err);
    status = status == TRM_OK ? time_sum(p, data, LARGE, &large, err) : status;
    trm_comm_free_shared(p->comm, data);
    TRMI_TRY(status);
    double alpha = small / (2 * (n - 1)), beta = (large - small) / ((LARGE - SMALL) * 4.0 * 2 * (n - 1) / n);
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        prices->alpha[i] = alpha > 1e-7 ? alpha : 1e-7;
        prices->beta[i] = beta > 1e-12 ? beta : 1e-12;
    }
    double crowd = (double)exec->env.threads * trm_comm_local_size(p->comm) / trmi_os_cpu_count();
    crowd = crowd > 1 ? crowd : 1; /* ranks that share CPUs */
    prices->flop = target->flops_per_second > 0 ? crowd / target->flops_per_second : 0;
    prices->byte = target->bytes_per_second > 0 ? crowd / target->bytes_per_second : 0;
    prices->copy = prices->byte;
    return TRM_OK;
}

/* The best plan of one mesh, if it is better than *best. */
static trm_status search_mesh(const trm_graph *training, const trmi_mesh *mesh, const trmi_shard_plan *pins,
                              const trmi_search_costs *costs, double *best, trmi_shard_plan **plan, trm_error *err) {
    trmi_space *space;
    trmi_arena arena = {0};
    trmi_found found;
    TRMI_TRY(trmi_space_create(training, mesh, costs, pins, &space, err));
    trm_status status = trmi_search(space, &(trmi_search_options){.mode = TRMI_SEARCH_OPTIMAL}, &arena, &found, err);
    if (status == TRM_OK && found.objective < *best) {
        trmi_shard_plan *better;
        status = trmi_space_plan(space, &found.best.choice, &better, err);
        if (status == TRM_OK) {
            trmi_shard_plan_destroy(*plan);
            *plan = better;
            *best = found.objective;
        }
    }
    trmi_space_destroy(space);
    trmi_arena_free(&arena);
    return status;
}

static trm_status search_all(trm_exec *exec, const trm_graph *training, const trmi_prices *prices,
                             trmi_shard_plan **plan, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    const trmi_shard_plan *given = p->shard->plan;
    const trmi_search_costs costs = {.prices = prices, .overlap = 0.5, .fuse = true,
                                     .slots = exec->optimizer.kind == TRM_SGD    ? 0
                                              : exec->optimizer.kind == TRM_ADAM ? 2
                                                                                 : 1};
    trmi_mesh list[TRMI_MESH_LIST];
    int32_t count = trmi_mesh_list(1, p->size, list);
    bool fixed = p->options.mesh != NULL || given->choices_count > 0;
    if (fixed) {
        list[0] = given->mesh;
        count = 1;
    }
    double best = 1e30;
    for (int32_t i = 0; i < count; i++) {
        TRMI_TRY(search_mesh(training, &list[i], given->choices_count > 0 ? given : NULL, &costs, &best, plan, err));
    }
    return TRM_OK;
}

trm_status trmi_shard_search(trm_exec *exec, const trm_graph *training, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    trmi_prices prices = {.seconds = NULL};
    trmi_shard_plan *plan = NULL;
    TRMI_TRY(measure(exec, &prices, err));
    trm_error own;
    trm_status status = p->rank == 0 ? search_all(exec, training, &prices, &plan, &own) : TRM_OK;
    char *text = plan != NULL ? trmi_shard_plan_text(plan) : NULL;
    trmi_shard_plan_destroy(plan);
    int64_t head[2] = {status, text != NULL ? (int64_t)strlen(text) : 0};
    trm_status sent = trm_comm_broadcast(p->comm, head, 2, TRM_INT64, 0, err);
    if (sent != TRM_OK || head[0] != TRM_OK || head[1] == 0) {
        trm_string_free(text);
        TRMI_TRY(sent);
        return TRMI_FAIL(err, head[0] != TRM_OK ? (trm_status)head[0] : TRM_NOMEM, "rank 0 found no plan%s%s",
                         status != TRM_OK ? ": " : "", status != TRM_OK ? own.message : "");
    }
    char *copy = trmi_alloc((size_t)head[1] + 1);
    if (copy == NULL) {
        trm_string_free(text);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a plan");
    }
    if (text != NULL) {
        memcpy(copy, text, (size_t)head[1]);
    }
    trm_string_free(text);
    status = trm_comm_broadcast(p->comm, copy, head[1], TRM_UINT8, 0, err);
    trmi_shard_plan *shared = NULL;
    status = status == TRM_OK ? trmi_shard_plan_parse(copy, (size_t)head[1], "the plan of rank 0", &shared, err) : status;
    trmi_free(copy);
    if (status == TRM_OK) {
        trmi_shard_plan_destroy(p->shard->plan);
        p->shard->plan = shared;
    }
    return status;
}
