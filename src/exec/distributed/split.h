/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/split.h: one rank of a graph that is split over a mesh
 * (plan/partition/partition.h).
 *
 *      program: conv2d  EXCHANGE halo  conv2d  ALL_REDUCE  norm_act ...       the same steps on every rank
 *                           |                     |
 *      groups:   comm[mask]: the ranks that differ from this one only in the mesh axes of mask */
#ifndef TRMI_EXEC_SPLIT_H
#define TRMI_EXEC_SPLIT_H

#include "trireme/dist.h"
#include "trireme/exec.h"

#include "exec/distributed/distribution.h"
#include "exec/distributed/input_cuts.h"
#include "plan/partition/partition.h"

/* Sets of mesh axes. */
enum { TRMI_PARTITION_MASKS = 1 << TRMI_MESH_AXES };

typedef struct trmi_split_run trmi_split_run;

/* A group of ranks along mesh axes: its communicator, and an exchange of numbers for kernels. */
typedef struct trmi_split_group {
    trmi_norm_sync sync; /* first: the exchange's context is the group */
    trm_comm *comm;      /* owned */
    double *all;         /* shared memory */
    int64_t capacity;    /* numbers of one rank */
} trmi_split_group;

/* One input of the whole batch as the caller feeds it. This rank reads its part. */
typedef struct trmi_split_input {
    void *data; /* the whole input, a mapping of `bytes` */
    size_t bytes;
    void *own; /* samples that this rank feeds, if they are a part of the batch; else NULL */
    trmi_input_cut cut;
    bool taken; /* the last feed went to the program's input directly: `data` is stale */
    const trmi_partition_leaf *leaf;
} trmi_split_input;

/* State of an executor that exists only for a split graph. */
struct trmi_split_run {
    trmi_split_input *whole_inputs; /* [program->inputs_count]; NULL = none */
    trm_searched_plan info;         /* of a searched plan, on rank 0 */
    trm_comm *world;
    trmi_partition_plan *plan; /* owned */
    bool slices;               /* ranks update slices if the plan leaves every parameter whole */
    const trm_exec_options *options; /* that the executor is made by; while it is made */
    /* of the options; NULL = in the cache directory, "" = nothing is measured */
    trmi_partition_report report; /* of operators without a rule; until the program is made */
    const char *tuning_file;
    trmi_split_group groups[TRMI_PARTITION_MASKS];
    float *pieces; /* strict determinism: of sums over samples (exec/determinism/tree_sum.h) */
    char *staging; /* shared memory: what is sent, then what is received */
    int64_t send_bytes, recv_bytes;
};

/* split_plan.c: reads the options: mesh, plan. */
trm_status trmi_split_prepare(struct trm_exec *exec, trm_error *err);
/* Completes the plan for this graph, before the program is made. Collective when it is searched. */
trm_status trmi_split_complete(struct trm_exec *exec, const trm_graph *graph,
                               const trmi_plan_options *options, trm_error *err);
/* Logs the cost of the operators that have no rule and run whole on every rank. */
void trmi_split_warn(const struct trm_exec *exec, const trmi_partition_report *report);
/* Adds plan, seed and exchanges, which must agree between the ranks of a split program, to `hash`.
 */
uint64_t trmi_split_mix(const struct trm_exec *exec, uint64_t hash);
/* split_variables.c: sums of squares of cut parameters over all ranks: trmi_update_exchange.
 * `context`: the exec. */
trm_status trmi_split_norms(void *context, double *sums, int64_t count, trm_error *err);
/* Puts the parts of a cut variable, of all ranks, together on every rank: hook `gather`. */
trm_status trmi_split_gather(struct trm_exec *exec, int32_t index, const void *part, void *whole,
                             trm_error *err);
/* A cut variable is repeated where an axis of the mesh does not cut it. */
void trmi_split_hold(const struct trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold);
/* Takes this rank's parts of what was fed. Collective where ranks feed their own samples. */
trm_status trmi_split_take_inputs(struct trm_exec *exec, trm_error *err);
/* Copies this rank's part of a whole batch to where kernels read it: the rest is not copied. Or
 * says where a caller writes a whole batch: hook `feed`. */
bool trmi_split_feed(struct trm_exec *exec, int32_t index, trm_tensor *place, const void *whole);
trm_status trmi_split_make_inputs(struct trm_exec *exec, trm_error *err);
/* Makes groups and staging for all steps of the program, after it is made and before kernels run.
 * Collective. */
trm_status trmi_split_open(struct trm_exec *exec, trm_error *err);
void trmi_split_close(struct trm_exec *exec);
/* rank_groups.c: the file of trm_parallel_options.save_groups, by rank 0. */
trm_status trmi_split_save_groups(const struct trm_exec *exec, trm_error *err);
/* communication.c: binds kernels of ALL_REDUCE and EXCHANGE; returns UNSUPPORTED for all other
 * steps. */
trm_status trmi_split_bind(trmi_kernel *kernel, trm_error *err);
/* Adds the actions that start messages before the place of their steps (trmi_step.ahead). */
void trmi_split_add_messages(struct trm_exec *exec);
/* Waits, after a failed step, for the messages that have begun and for which no step has waited.
 * Returns `status`. */
trm_status trmi_split_finish(struct trm_exec *exec, bool training, trm_status status,
                             trm_error *err);

#endif
