/* SPDX-License-Identifier: Apache-2.0 */
/* app/commands/cmd_ps.h: functions that `ps inspect` of folders and of running servers share. */
#ifndef APP_CMD_PS_H
#define APP_CMD_PS_H

#include "app/app.h"

#include "trireme/ps.h"

/* cmd_ps_row.c */
/* A row with all that is known about it. */
typedef struct app_ps_row {
    const trm_table_options *table;
    const trm_row_info *info;
    const float *values; /* [table width] */
    const float *slots;  /* [slot_count] */
    int32_t slot_count;
    /* [writer_count] of a folder: the last pushes of the logs to this row; of a running server: the
     * push of the last change, if it is remembered */
    const trm_ps_writer *writers;
    int32_t writer_count;
    const int64_t *pushes; /* all pushes of the logs to this row; NULL: a running server */
} app_ps_row;
/* Prints one row as text or JSON. */
void app_ps_print_row(const app_ps_row *row);
/* Begins the report of a table; the caller adds to it and ends it. */
void app_ps_begin_table(const trm_table_options *table, int64_t rows, int32_t slots);
/* Returns the error for a key without a row.
 *   errors  INVALID */
trm_status app_ps_no_row(const char *table, uint64_t key, trm_error *err);
/* cmd_ps_live.c */
/* Prints the state of running servers, or with `key` of one row. `addresses`: all servers of the
 * job in order of their numbers, separated by commas. */
trm_status app_ps_inspect_servers(app_context *app, const char *addresses, const uint64_t *key,
                                  trm_error *err);

#endif
