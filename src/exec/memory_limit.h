/* SPDX-License-Identifier: Apache-2.0 */
/* exec/memory_limit.h: the limit of a rank's memory (--memory). The search for a plan keeps it; a
 * single device recomputes activations in backward as far as the limit requires; every mode refuses
 * a program that exceeds it before memory is taken. */
#ifndef TRMI_EXEC_MEMORY_LIMIT_H
#define TRMI_EXEC_MEMORY_LIMIT_H

#include "plan/lower/program.h"

#include "trireme/exec.h"

struct trm_exec;
struct trmi_space;
struct trmi_choice;

/* Returns the number of slots of an optimiser: float32 arrays as large as the parameters. */
int32_t trmi_optimizer_slots(const trm_optimizer_options *optimizer);
/* Returns the bytes that a process takes with this program (exec_memory.h), including accumulated
 * gradients and this rank's slots. */
int64_t trmi_limit_bytes(const struct trm_exec *exec, const trm_program *program);
/* Compiles the plan of a choice of the search for rank 0 and writes the bytes that it takes to
 * *bytes. */
trm_status trmi_limit_choice(const struct trm_exec *exec, const trm_graph *graph,
                             const trmi_plan_options *options, const struct trmi_space *space,
                             const struct trmi_choice *choice, double *bytes, trm_error *err);
/* Finds the fastest plan of a single device within exec->memory_bytes: which activations to
 * recompute. *plan is NULL if the program fits without recomputation.
 *   owns  *plan: the caller    errors  NOMEM: no plan fits; the message has the least size */
trm_status trmi_limit_single_device(const struct trm_exec *exec, const trm_graph *graph,
                                    const trmi_plan_options *options,
                                    struct trmi_partition_plan **plan, trm_error *err);
/* Checks the compiled program against the limit.   errors  NOMEM, with its size and remedies */
trm_status trmi_limit_check(const struct trm_exec *exec, trm_error *err);

#endif
