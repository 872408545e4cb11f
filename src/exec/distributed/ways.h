/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/ways.h: the table of ways of training, one line for each in ways.c. */
#ifndef TRMI_EXEC_DISTRIBUTED_WAYS_H
#define TRMI_EXEC_DISTRIBUTED_WAYS_H

#include "exec/distributed/distribution.h"

extern const trmi_distribution *const trmi_ways[];
extern const int32_t trmi_ways_count;

/* Returns the bytes that all ways together add to a process that trains the program so. */
int64_t trmi_ways_resident(const trm_program *program, const struct trmi_training *training);

#endif
