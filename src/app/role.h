/* SPDX-License-Identifier: Apache-2.0 */
/* app/role.h: one role of a job with parameter servers. */
#ifndef TRIREME_APP_ROLE_H
#define TRIREME_APP_ROLE_H

#include "trireme/estimator.h"

#include "app/app.h"

/* What --mode and --tables say. INVALID. */
TRM_MUST_USE trm_status app_check_strategy(const app_options *o, trm_ps_strategy *out,
                                           trm_error *err);
/* The role that the environment or the flags name; the exit code. */
int app_run_role(app_context *app);

#endif
