/* SPDX-License-Identifier: Apache-2.0 */
/* A split program needs, beside its kernels, a communicator for each set of mesh axes over which it
 * communicates, memory in which kernels exchange statistics, and staging for EXCHANGE.
 *
 *   mesh 2x4, axes mask   01: ranks that differ in axis 0    10: in axis 1    11: all
 *   groups[mask]          communicator, numbers of each rank, room for the largest exchange
 *
 * Making a communicator is collective, so a group exists where any rank needs it, and its room is
 * the largest that any rank needs: parts of programs may differ by a row. */
#include "exec/distributed/split.h"

#include "exec/exchange_form.h"
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

/* Gathers `count` numbers of each rank of a group, in rank order. *all is valid until the next
 * call. */
static trm_status gather_numbers(trmi_norm_sync *sync, const double *values, int64_t count,
                                 const double **all, trm_error *err) {
    trmi_split_group *g = (trmi_split_group *)(void *)sync;
    TRMI_ASSERT(count <= g->capacity);
    memcpy(g->all + trm_comm_rank(g->comm) * count, values, (size_t)count * sizeof *values);
    const trm_collective op = {.kind = TRM_ALLGATHER,
                               .recv = g->all,
                               .count = count,
                               .dtype = TRM_FLOAT64,
                               .tag = "statistics"};
    TRMI_TRY(trm_comm_run(g->comm, &op, err));
    *all = g->all;
    return TRM_OK;
}

/* Marks a group as used; its exchange has room for `numbers` numbers at least. */
static void reserve_group(trmi_split_run *run, bool used[TRMI_PARTITION_MASKS], uint32_t axes,
                          int64_t numbers) {
    if (axes != 0) {
        used[axes] = true;
        run->groups[axes].capacity =
            numbers > run->groups[axes].capacity ? numbers : run->groups[axes].capacity;
    }
}

/* Marks the groups of ranks (one for each set of mesh axes) that the program communicates in,
 * and the most values that norms and losses gather in each. */
static void find_needs(const trm_program *p, trmi_split_run *run, bool used[TRMI_PARTITION_MASKS]) {
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        if (s->kind != TRMI_STEP_OP) {
            continue;
        }
        switch (s->op_kind) {
        case TRMI_OP_ALL_REDUCE:
        case TRMI_OP_EXCHANGE: reserve_group(run, used, trmi_exchange_of(s->attrs)->axes, 0); break;
        case TRMI_OP_BATCH_NORM:
        case TRMI_OP_NORM_ACT:
        case TRMI_OP_BATCH_NORM_GRAD:
        case TRMI_OP_NORM_ACT_GRAD:
            /* Reserve two statistics of each channel, and the number of rows. */
            reserve_group(run, used, trmi_part_of(s->attrs)->sample_axes,
                          2 * p->buffers[s->inputs[0]].shape.dim[1] + 1);
            break;
        case TRMI_OP_SOFTMAX_XENT:
            /* Reserve, over classes, the numbers of each row; over samples, the loss and the labels
             * that count. */
            reserve_group(run, used, trmi_part_of(s->attrs)->class_axes,
                          3 * p->buffers[s->inputs[0]].shape.dim[0]);
            reserve_group(run, used, trmi_part_of(s->attrs)->sample_axes, 2);
            break;
        case TRMI_OP_LINEAR_XENT:
            reserve_group(run, used, trmi_part_of(s->attrs)->class_axes,
                          2 * trm_shape_count(&p->buffers[s->inputs[2]].shape));
            reserve_group(run, used, trmi_part_of(s->attrs)->sample_axes, 2);
            break;
        default: break;
        }
    }
    for (int32_t i = 0; i < p->params_count; i++) {
        reserve_group(run, used, p->params[i].grad_axes, 0);
    }
}

/* Makes the communicator of the ranks that differ from this one only along `axes`, and the
 * memory for the statistics that they gather. */
static trm_status open_group(trmi_split_run *run, trmi_parallel *p, uint32_t axes, trm_error *err) {
    trmi_split_group *g = &run->groups[axes];
    int32_t at[TRMI_MESH_AXES];
    trmi_mesh_coordinates(&run->plan->mesh, p->rank, at);
    for (int32_t i = 0; i < run->plan->mesh.axes; i++) {
        at[i] = axes >> i & 1 ? 0 : at[i];
    }
    TRMI_TRY(trm_comm_split(p->comm, trmi_mesh_rank(&run->plan->mesh, at), p->rank, &g->comm, err));
    int32_t size = trm_comm_size(g->comm);
    g->sync.size = size;
    g->sync.gather = gather_numbers;
    if (g->capacity > 0) {
        g->all = trmi_parallel_memory(p, (size_t)(size * g->capacity) * sizeof(double), err);
        g->sync.values = trmi_alloc((size_t)g->capacity * sizeof(double));
        if (g->all == NULL || g->sync.values == NULL) {
            return TRMI_NO_MEMORY(err, "for the groups of the mesh");
        }
    }
    return TRM_OK;
}

/* Contract in split.h. Makes the communicators of the groups and the staging memory. Creating a
 * communicator is collective, so all ranks must open the same groups, although the parts of
 * their programs may differ by one row and need different sizes: the maximum over the ranks is
 * taken. */
trm_status trmi_split_open(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    trmi_split_run *run = p->split;
    bool used[TRMI_PARTITION_MASKS] = {false};
    find_needs(exec->program, run, used);
    trmi_exchange_staging(exec->program, trm_comm_deterministic(p->comm) != TRM_DETERMINISTIC_FALSE,
                          &run->send_bytes, &run->recv_bytes);
    /* Parts differ by one: all ranks take the largest. */
    int64_t most[2 + TRMI_PARTITION_MASKS] = {run->send_bytes, run->recv_bytes};
    for (int i = 0; i < TRMI_PARTITION_MASKS; i++) {
        most[2 + i] = run->groups[i].capacity + used[i];
    }
    TRMI_TRY(trm_comm_allreduce(p->comm, most, 2 + TRMI_PARTITION_MASKS, TRM_INT64,
                                TRM_REDUCTION_MAX, err));
    /* A group exists if any rank needs it. */
    for (uint32_t axes = 1; axes < TRMI_PARTITION_MASKS; axes++) {
        run->groups[axes].capacity = most[2 + axes];
        if (most[2 + axes] > 0) {
            TRMI_TRY(open_group(run, p, axes, err));
            exec->env.sync[axes] = &run->groups[axes].sync;
        }
    }
    run->send_bytes = (most[0] + 63) / 64 * 64;
    run->recv_bytes = (most[1] + 63) / 64 * 64;
    run->staging = trmi_parallel_memory(p, (size_t)(run->send_bytes + run->recv_bytes), err);
    exec->env.split = run;
    return run->staging != NULL ? TRM_OK : err == NULL ? TRM_NOMEM : err->status;
}

/* Frees the memory in which parts of inputs are joined. */
static void free_whole_inputs(trm_exec *exec) {
    for (int32_t i = 0;
         trmi_parallel_of(exec)->split->whole_inputs != NULL && i < exec->program->inputs_count;
         i++) {
        trmi_unmap(trmi_parallel_of(exec)->split->whole_inputs[i].data,
                   trmi_parallel_of(exec)->split->whole_inputs[i].bytes);
        trmi_free(trmi_parallel_of(exec)->split->whole_inputs[i].own);
    }
}

void trmi_split_close(trm_exec *exec) {
    trmi_split_run *run = trmi_parallel_of(exec)->split;
    if (run == NULL) { /* `open` has failed */
        return;
    }
    for (int i = 0; i < TRMI_PARTITION_MASKS; i++) {
        trm_comm_destroy(run->groups[i].comm);
        trmi_free(run->groups[i].sync.values);
    }
    trmi_partition_report_free(&run->report);
    trmi_partition_plan_destroy(run->plan);
    free_whole_inputs(exec);
}
