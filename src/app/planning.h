/* app/planning.h: what the commands of the planner share. */
#ifndef TRIREME_APP_PLANNING_H
#define TRIREME_APP_PLANNING_H

#include "app/app.h"

#include "trireme/planner.h"

/* Runs the planner's plans on ranks of this machine and prints predictions beside measurements. */
trm_status app_validate(app_context *app, const trm_planner *planner, trm_error *err);

#endif
