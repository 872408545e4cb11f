/* SPDX-License-Identifier: Apache-2.0 */
/* exec/ref/ref.h: access to elements of any type as double, and index arithmetic. Reference kernels
 * must be obviously correct; speed does not matter. */
#ifndef TRMI_EXEC_REF_REF_H
#define TRMI_EXEC_REF_REF_H

#include "exec/backend.h"

/* Returns element `index` (row-major) as double. */
double trmi_ref_get(const trm_tensor *tensor, int64_t index);
/* Writes an element, rounded to the tensor's type; does nothing if data is NULL. */
void trmi_ref_set(const trm_tensor *tensor, int64_t index, double value);
int64_t trmi_ref_get_int(const trm_tensor *tensor, int64_t index);

/* Converts the index of an element of a row-major shape to coordinates; ravel: back. */
void trmi_ref_unravel(const trm_shape *shape, int64_t index, int64_t *at);
int64_t trmi_ref_ravel(const trm_shape *shape, const int64_t *at);
/* Returns the index of the element of `shape` that broadcasting reads at position `at` of
 * `wide`. */
int64_t trmi_ref_broadcast_index(const trm_shape *shape, const trm_shape *wide, const int64_t *at);

#define X(KIND, row) trm_status trmi_ref_##row(const trmi_ref_args *args, trm_error *err);
#include "graph/ops.def"
#undef X

#endif
