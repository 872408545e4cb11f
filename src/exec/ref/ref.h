/* exec/ref/ref.h: reading and writing elements of any dtype as double, and walking shapes. The
 * reference kernels are meant to be obviously right; nothing here is meant to be fast. */
#ifndef TRMI_EXEC_REF_REF_H
#define TRMI_EXEC_REF_REF_H

#include "exec/backend.h"

double trmi_ref_get(const trm_tensor *tensor, int64_t index);
/* Rounds to the tensor's dtype; does nothing when data is NULL. */
void trmi_ref_set(const trm_tensor *tensor, int64_t index, double value);
int64_t trmi_ref_get_int(const trm_tensor *tensor, int64_t index);

/* The coordinates of element `index` of a row-major shape, and back. */
void trmi_ref_unravel(const trm_shape *shape, int64_t index, int64_t *at);
int64_t trmi_ref_ravel(const trm_shape *shape, const int64_t *at);
/* The element of `shape` that broadcasting reads at position `at` of `wide`. */
int64_t trmi_ref_broadcast_index(const trm_shape *shape, const trm_shape *wide, const int64_t *at);

#define X(KIND, row) trm_status trmi_ref_##row(const trmi_ref_args *args, trm_error *err);
#include "graph/ops.def"
#undef X

#endif
