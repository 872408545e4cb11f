/* app/ranks.h: what commands that start and join ranks share beyond app.h. */
#ifndef TRIREME_APP_RANKS_H
#define TRIREME_APP_RANKS_H

#include "app/app.h"

/* Starts `command` as the flags of app_group_launch say; *code is the job's exit code. INVALID, IO. */
TRM_MUST_USE trm_status app_launch(const app_context *app, const char *const *command, int *code,
                                   trm_error *err);

#endif
