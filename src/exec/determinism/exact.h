/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/exact.h: results that do not depend on the cut (plan/shard/shard_exact.c):
 * kernels of LARGEST, EXACT_SUM and EXACT_ROUND, and the optimiser's norms. */
#ifndef TRMI_EXEC_EXACT_H
#define TRMI_EXEC_EXACT_H

#include "exec/backend.h"

struct trm_exec;

/* UNSUPPORTED for other operators. */
trm_status trmi_exact_bind(trmi_kernel *kernel, trm_error *err);
/* What is added to a value below 2^exponent, and taken off again, to round it to a unit so coarse
 * that a float64 holds the sum of `count` of them exactly. */
double trmi_exact_anchor(double largest, double count);
/* Sums of squares by parameter, the same bits on any number of ranks: trmi_update_exchange.
 * `context`: the exec. Collective. */
trm_status trmi_exact_norms(void *context, double *sums, int64_t count, trm_error *err);
#endif
