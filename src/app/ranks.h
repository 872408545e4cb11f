/* SPDX-License-Identifier: Apache-2.0 */
/* app/ranks.h: what commands that start and join ranks share beyond app.h. */
#ifndef TRIREME_APP_RANKS_H
#define TRIREME_APP_RANKS_H

#include "trireme/launch.h"

#include "app/app.h"

/* Starts `command` as the flags of app_group_launch say; *code is the job's exit code. INVALID, IO.
 */
TRM_MUST_USE trm_status app_launch(const app_context *app, const char *const *command, int *code,
                                   trm_error *err);

/* This command again: program and arguments, ended by NULL; static. IO. */
TRM_MUST_USE trm_status app_self(const app_context *app, const char *const **out, trm_error *err);
/* Where processes that this command starts have their logs: --launch-dir, OUTPUT/logs, or ".". */
const char *app_log_directory(const app_context *app);
/* A launcher's output, to ours. */
void app_write_through(void *context, trm_launch_stream stream, const char *data, size_t bytes);

#endif
