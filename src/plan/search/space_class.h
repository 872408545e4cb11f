/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/space_class.h: the parts of building a space of plans (search_space.c): its classes
 * (space_class.c). */
#ifndef TRMI_PLAN_SPACE_CLASS_H
#define TRMI_PLAN_SPACE_CLASS_H

#include "plan/search/search.h"

/* State while a space is built. */
typedef struct trmi_space_building {
    trmi_space *s;
    bool *repeats; /* [ops] its first output may be recomputed */
    bool *dropped; /* [ops] the rule of the back-end recomputes its first output */
    bool *read;    /* [values] backward reads the value */
    trm_error *err;
} trmi_space_building;

/* Finds the class of a node by the key of its operator, or makes a new one, with the costs of each
 * strategy.
 *   errors  NOMEM, those of trmi_partition_strategies */
trm_status trmi_space_find_class(trmi_space_building *b, trmi_space_node *node);
/* Returns the price table of a shape and dtype, made on first use; NULL: error in b->err. */
trmi_price_table *trmi_space_find_prices(trmi_space_building *b, const trm_shape *shape,
                                         trm_dtype dtype);

#endif
