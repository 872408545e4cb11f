/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/spreads.h: all spreads of a tensor on a mesh, for exhaustive tests. */
#ifndef TRMI_TESTS_SPREADS_H
#define TRMI_TESTS_SPREADS_H

#include "plan/partition/partition.h"

/* All spreads of a shape without partials (sums too, with `sums`), several axes on a dimension in
 * mesh order only (`orders`: in every order), without dimensions that are smaller than their cut.
 * The first is "R,R..".
 *   owns  *out is in the arena */
trm_status trmi_spread_list(const trmi_mesh *mesh, const trm_shape *shape, bool sums, bool orders,
                            trmi_arena *arena, trmi_spread **out, int32_t *count, trm_error *err);

#endif
