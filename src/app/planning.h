/* SPDX-License-Identifier: Apache-2.0 */
/* app/planning.h: what the commands of the planner share. */
#ifndef TRIREME_APP_PLANNING_H
#define TRIREME_APP_PLANNING_H

#include "app/app.h"

#include "trireme/planner.h"

/* --wire, --sync-batch-norm and what training does by itself, for commands that plan. */
void app_split_options(const app_context *app, trm_model_options *model);
/* Runs the planner's plans on the ranks that have joined and prints predictions beside
 * measurements. Collective; every rank has a planner (trm_planner_options.looks). */
trm_status app_validate(app_context *app, trm_planner *planner, const trm_model_options *model,
                        trm_error *err);

#endif
