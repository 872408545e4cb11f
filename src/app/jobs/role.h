/* SPDX-License-Identifier: Apache-2.0 */
/* app/jobs/role.h: one role (server, worker, chief, evaluator) of a job with parameter servers. */
#ifndef TRIREME_APP_ROLE_H
#define TRIREME_APP_ROLE_H

#include "trireme/train.h"

#include "app/app.h"

/* Fills in the synchronisation mode from --mode and from the bounds in --tables.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_check_strategy(const app_options *o, trm_ps_strategy *out,
                                           trm_error *err);
/* Runs the role that the environment or the flags name, to its end. Returns the exit code. */
int app_run_role(app_context *app);

#endif
