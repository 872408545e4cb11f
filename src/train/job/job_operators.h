/* SPDX-License-Identifier: Apache-2.0 */
/* train/job/job_operators.h: the settings inside of a network that no shape and no operator's kind
 * shows, as keys of the description of a job (train/job/job.h): rates of dropout, heads, angles,
 * epsilons. */
#ifndef TRMI_TRAIN_JOB_JOB_OPERATORS_H
#define TRMI_TRAIN_JOB_JOB_OPERATORS_H

#include "base/format/report.h"
#include "graph/graph_ir.h"

/* Puts "dropout.rate": 0.1 and the like for each setting that operators of the forward phase
 * have: a number if all have the same one, else a hash of all in their order; of a flag the number
 * of operators that have it. */
void trmi_job_put_operators(trmi_report *report, const trm_graph *graph);

#endif
