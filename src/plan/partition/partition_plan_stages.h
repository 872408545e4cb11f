/* SPDX-License-Identifier: Apache-2.0 */
/* plan/partition/partition_plan_stages.h: the lines of a plan file that state its stages, for
 * partition_plan.c. */
#ifndef TRMI_PLAN_PARTITION_PLAN_STAGES_H
#define TRMI_PLAN_PARTITION_PLAN_STAGES_H

#include "plan/partition/partition.h"

/* Appends the lines of the stages; none if there are no stages. */
void trmi_plan_stages_write(const trmi_plan_stages *stages, trmi_text *text);
/* Reads the words of a line "pipeline". False: not such a line. */
bool trmi_plan_stages_read(trmi_plan_stages *out, char *const *words, int count);
/* Appends `length` letters of a name as plan files write it. */
void trmi_plan_name_write(trmi_text *text, const char *name, size_t length);

#endif
