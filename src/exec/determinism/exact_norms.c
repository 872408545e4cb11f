/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser's norms and the options of executors whose results do not depend on the cut. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/determinism/exact.h"
#include "exec/distributed/split.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static trm_status open_sums(trm_exec *exec, const trm_exec_options *options, bool *active,
                            trm_error *err) {
    const trm_parallel_options *o = &options->parallel;
    bool ranks = o->comm != NULL && trm_comm_size(o->comm) > 1;
    if (!o->exact) {
        return TRM_OK;
    }
    if (ranks && o->split.kind == TRM_SPLIT_NONE) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "exact is for split graphs and for one rank; data parallel ranks have lanes");
    }
    if (ranks && o->wire != 0 && o->wire != TRM_FLOAT32) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "strict determinism sends sums as they are: the wire must be float32, not %s",
            trm_dtype_name(o->wire));
    }
    *active = true;
    exec->env.exact = true;
    exec->kernels_from.backend = "ref";
    exec->norms = trmi_exact_norms;
    const trmi_mesh mesh = {.axes = 0};
    /* One rank by itself has the same operators. */
    return ranks ? TRM_OK : trmi_shard_plan_create(&mesh, &exec->alone, err);
}

static trm_status plan_sums(trm_exec *exec, const trm_graph *graph, const trm_exec_options *options,
                            trmi_plan_options *plan, trm_error *err) {
    (void)graph;
    (void)options;
    (void)err;
    plan->dense_gradients = true;
    plan->factored_gradients = false;
    if (exec->alone != NULL) {
        exec->alone->exact = true;
        plan->shard = exec->alone;
    }
    return TRM_OK;
}

static trm_status bind_sums(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    (void)exec;
    return trmi_exact_bind(kernel, err);
}

/* Of many ranks `split` and `slices` do it. */
static trm_status begin_sums(trm_exec *exec, trm_error *err) {
    (void)err;
    if (trmi_parallel_of(exec) == NULL && exec->update != NULL) {
        trmi_update_share(exec->update, NULL, exec->norms, exec);
    }
    return TRM_OK;
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct norms {
    trm_exec *exec;
    const trm_program *program;
    int64_t sets, blocks;
    float *largest; /* [sets * params] */
    int64_t *sums;  /* [sets * params] */
} norms;

/* Of those that hold the same part one speaks for it: another one for each parameter. */
static bool speaks(const norms *n, int32_t param) {
    const trm_exec *exec = n->exec;
    int32_t at[TRMI_MESH_AXES], turn = param;
    bool mine = true;
    if (trmi_parallel_of(exec) == NULL) {
        return true;
    }
    const trmi_shard_leaf *leaf = trmi_program_leaf(
        n->program, n->program->buffers[n->program->params[param].param_buffer].name);
    const trmi_mesh *mesh = &trmi_parallel_of(exec)->shard->plan->mesh;
    trmi_mesh_coordinates(mesh, trmi_parallel_of(exec)->rank, at);
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (leaf == NULL || leaf->spread.at[i] < TRMI_SPLIT) {
            mine = mine && at[i] == turn % mesh->size[i];
            turn /= mesh->size[i];
        }
    }
    return mine;
}

static const float *values_of(const norms *n, int64_t set, int32_t param, int64_t *count) {
    const trmi_buffer *b = &n->program->buffers[n->program->params[param].param_buffer];
    const char *gradients = n->exec->accumulator != NULL ? (const char *)n->exec->accumulator
                                                         : n->exec->env.arena[TRMI_ARENA_GRAD];
    *count = trm_shape_count(&b->shape);
    return (
        const float *)(const void *)((set == 0 ? gradients : n->exec->env.arena[TRMI_ARENA_PARAM]) +
                                     b->offset);
}

static void find_largest(const norms *n) {
    for (int64_t i = 0; i < n->sets * n->program->params_count; i++) {
        int64_t count;
        int32_t param = (int32_t)(i % n->program->params_count);
        const float *x = values_of(n, i / n->program->params_count, param, &count);
        float most = 0;
        count = speaks(n, param) ? count : 0;
        for (int64_t k = 0; k < count; k++) {
            most = isnan(x[k]) ? INFINITY : fmaxf(most, fabsf(x[k]));
        }
        n->largest[i] = most;
    }
}

/* Units of squares: 2^-50 of the largest one. */
static int unit_of(float largest) {
    int exponent;
    (void)frexp((double)largest * (double)largest, &exponent);
    return exponent - 32;
}

static void add_squares(const norms *n) {
    for (int64_t i = 0; i < n->sets * n->program->params_count; i++) {
        int64_t count, zero;
        int32_t param = (int32_t)(i % n->program->params_count);
        const float *x = values_of(n, i / n->program->params_count, param, &count);
        double anchor = ldexp(1.5, 52 + unit_of(n->largest[i]));
        bool counts = isfinite(n->largest[i]) && n->largest[i] > 0 && speaks(n, param);
        memcpy(&zero, &anchor, sizeof zero);
        n->sums[i] = 0;
        for (int64_t k = 0; counts && k < count; k++) {
            double square = (double)x[k] * (double)x[k] + anchor;
            int64_t bits;
            memcpy(&bits, &square, sizeof bits);
            n->sums[i] += bits - zero;
        }
    }
}

/* Totals rounded to a common unit, so that the order in which parameters lie adds up to the same
 * bits too. */
static double total_of(const norms *n, int64_t set, int32_t param) {
    double most = 0, mine = 0;
    for (int32_t i = 0; i < n->program->params_count; i++) {
        int64_t at = set * n->program->params_count + i;
        double total =
            isfinite(n->largest[at])
                ? ldexp((double)n->sums[at], n->largest[at] > 0 ? unit_of(n->largest[at]) : 0)
                : (double)INFINITY;
        most = fmax(most, total);
        mine = i == param ? total : mine;
    }
    double anchor = trmi_exact_anchor(most, n->program->params_count);
    return anchor != 0 ? (mine + anchor) - anchor : mine;
}

static void write_totals(const norms *n, double *sums) {
    int64_t block = 0;
    for (int32_t i = 0; i < n->program->params_count; i++) {
        const trmi_buffer *b = &n->program->buffers[n->program->params[i].param_buffer];
        int64_t end = (b->offset + b->bytes) / (int64_t)sizeof(float), first = block;
        for (; block < n->blocks && trmi_update_block_offset(n->exec->update, block) < end;
             block++) {
            for (int64_t set = 0; set < n->sets; set++) {
                sums[set * n->blocks + block] = block == first ? total_of(n, set, i) : 0;
            }
        }
    }
}

trm_status trmi_exact_norms(void *context, double *sums, int64_t count, trm_error *err) {
    trm_exec *exec = context;
    norms n = {
        .exec = exec, .program = exec->program, .blocks = trmi_update_block_count(exec->update)};
    n.sets = n.blocks > 0 ? count / n.blocks : 0;
    int64_t items = n.sets * n.program->params_count;
    n.largest = trmi_alloc((size_t)(items + 1) * sizeof *n.largest);
    n.sums = trmi_alloc((size_t)(items + 1) * sizeof *n.sums);
    trm_status status = n.largest != NULL && n.sums != NULL
                            ? TRM_OK
                            : TRMI_FAIL(err, TRM_NOMEM, "no memory for the optimiser's norms");
    trm_comm *comm = trmi_parallel_of(exec) != NULL ? trmi_parallel_of(exec)->comm : NULL;
    if (status == TRM_OK) {
        find_largest(&n);
        status = comm != NULL ? trm_comm_allreduce(comm, n.largest, items, TRM_FLOAT32,
                                                   TRM_REDUCTION_MAX, err)
                              : TRM_OK;
    }
    if (status == TRM_OK) {
        add_squares(&n);
        status = comm != NULL
                     ? trm_comm_allreduce(comm, n.sums, items, TRM_INT64, TRM_REDUCTION_SUM, err)
                     : TRM_OK;
    }
    if (status == TRM_OK) {
        write_totals(&n, sums);
    }
    trmi_free(n.largest);
    trmi_free(n.sums);
    return status;
}

const trmi_distribution trmi_way_strict_sums = {
    .name = "strict_sums",
    .open = open_sums,
    .plan = plan_sums,
    .bind = bind_sums,
    .begin = begin_sums,
};
