/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/ways.h: the table of ways of training, one line for each in ways.c. */
#ifndef TRMI_EXEC_DISTRIBUTED_WAYS_H
#define TRMI_EXEC_DISTRIBUTED_WAYS_H

#include "exec/distributed/distribution.h"

extern const trmi_distribution *const trmi_ways[];
extern const int32_t trmi_ways_count;

#endif
