/* SPDX-License-Identifier: Apache-2.0 */
/* app/commands/planning.h: functions that the commands of the planner share. */
#ifndef TRIREME_APP_PLANNING_H
#define TRIREME_APP_PLANNING_H

#include "app/app.h"

#include "trireme/plan.h"

/* Plans with stages that were not asked for must be faster by so much: predictions that are nearer
 * have no known order. */
#define APP_LEAST_GAIN 0.15

/* Sets the options of a split that training would have by --wire, --sync-batch-norm and its
 * defaults, for commands that plan. */
void app_split_options(const app_context *app, trm_model_options *model);
/* Returns the word of a schedule in --pipeline-schedule. */
const char *app_schedule_name(trm_schedule schedule);
/* Takes the stages of a plan as if flags had given them. `plan` lives as long as the options. */
void app_take_plan(app_options *o, const trm_plan_info *plan);
/* Runs plan and simulate with --hardware and a language model. Returns the exit code. */
int app_run_hardware(app_context *app, bool simulate);
/* Refuses --preset of a model that is planned operator by operator.   errors  INVALID */
trm_status app_check_preset(const app_context *app, trm_error *err);
/* Runs the plans of the planner on the joined ranks and prints predictions beside measurements.
 * Collective: every rank has a planner (trm_planner_options.remeasures). */
trm_status app_validate(app_context *app, trm_planner *planner, const trm_model_options *model,
                        trm_error *err);

#endif
