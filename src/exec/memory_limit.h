/* SPDX-License-Identifier: Apache-2.0 */
/* exec/memory_limit.h: --memory: what a rank's part of training may take. Plans that are searched keep
 * within it; one device makes results again in backward as far as it must; every mode refuses a
 * program beyond it before memory is taken. */
#ifndef TRMI_EXEC_LIMIT_H
#define TRMI_EXEC_LIMIT_H

#include "plan/lower/program.h"

#include "trireme/exec.h"

struct trm_exec;
struct trmi_mesh;

/* Slots of an optimiser: float32 copies of each parameter. */
int32_t trmi_optimizer_slots(const trm_optimizer_options *optimizer);
/* What a process takes with this program (exec_memory.h), gradients twice where they are
 * accumulated, slots as far as they are this rank's. `mesh`: of a split program, NULL: the
 * executor's. */
int64_t trmi_limit_bytes(const struct trm_exec *exec, const trm_program *program,
                         const struct trmi_mesh *mesh);
/* Of `plan` for these options on rank 0, by compiling it. */
trm_status trmi_limit_compiled(const struct trm_exec *exec, const trm_graph *graph,
                               const trmi_plan_options *options, const struct trmi_shard_plan *plan,
                               int64_t *bytes, trm_error *err);
/* One device beyond exec->memory_bytes: *plan says what is made again instead of kept (owned by the
 * caller), NULL where
 * nothing need be. Not beyond it: the fastest such plan.   error  NOMEM: none fits, with what the least takes
 */
trm_status trmi_limit_alone(const struct trm_exec *exec, const trm_graph *graph,
                            const trmi_plan_options *options, struct trmi_shard_plan **plan,
                            trm_error *err);
/* The compiled program against the limit.   error  NOMEM, with what it takes and what to do */
trm_status trmi_limit_check(const struct trm_exec *exec, trm_error *err);

#endif
