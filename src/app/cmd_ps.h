/* SPDX-License-Identifier: Apache-2.0 */
/* app/cmd_ps.h: what `ps inspect` of folders and of running servers share. */
#ifndef APP_CMD_PS_H
#define APP_CMD_PS_H

#include "app/app.h"

#include "trireme/ps_tools.h"

/* cmd_ps_row.c */
/* One row as text or JSON. `writers` are those of the logs, *total in all; or, when `total` is
 * NULL, those of the row's last change. */
void app_ps_say_row(const trm_table_options *table, int32_t slot_count, const trm_row_info *info,
                    const float *values, const float *slots, const trm_ps_writer *writers,
                    int32_t count, const int64_t *total);
/* A table's line and JSON object, both left open: for what the caller adds. */
void app_ps_begin_table(const trm_table_options *table, int64_t rows, int32_t slots);
trm_status app_ps_no_row(const char *table, uint64_t key, trm_error *err);
/* cmd_ps_live.c */
/* Asks running servers, `addresses` separated by commas, in order of their numbers; with a key
 * about one row. */
trm_status app_ps_inspect_servers(app_context *app, const char *addresses, const uint64_t *key,
                                  trm_error *err);

#endif
