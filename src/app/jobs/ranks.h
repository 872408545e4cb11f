/* SPDX-License-Identifier: Apache-2.0 */
/* app/jobs/ranks.h: functions of the commands that start and join ranks, beyond those in app.h. */
#ifndef TRIREME_APP_RANKS_H
#define TRIREME_APP_RANKS_H

#include "trireme/dist.h"

#include "app/app.h"

/* Starts `command` on ranks as the flags of app_group_launch specify, and waits. *code: the exit
 * code of the job.
 *   errors  INVALID, IO */
TRM_MUST_USE trm_status app_launch(const app_context *app, const char *const *command, int *code,
                                   trm_error *err);

/* Returns this program and its arguments as a command, ended by NULL, in static memory.
 *   errors  IO */
TRM_MUST_USE trm_status app_self(const app_context *app, const char *const **out, trm_error *err);
/* Returns the folder of the logs of processes that this command starts: --launch-dir,
 * OUTPUT/logs, or ".". */
const char *app_log_directory(const app_context *app);
/* Writes a launcher's output to this program's streams: a trm_launch_options.write. */
void app_write_through(void *context, trm_launch_stream stream, const char *data, size_t bytes);

#endif
