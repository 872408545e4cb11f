/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/ps_tools.h: looking into parameter servers' tables, and measuring them. */
#ifndef TRIREME_PS_TOOLS_H
#define TRIREME_PS_TOOLS_H

#include "trireme/ps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a job's folder ------------------------------------------------------------------------- */

/* What servers have kept: a checkpoint, its digests checked, and the pushes of the logs since. Only
 * read: a running job is not disturbed. */
typedef struct trm_ps_folder trm_ps_folder;

typedef struct trm_ps_folder_options {
    uint32_t cut;        /* 0 = the newest */
    bool no_logs;        /* the checkpoint alone */
    const char *table;   /* loads only its rows; NULL = all */
    const uint64_t *key; /* and only this row, with its last writers */
    /* what the job's rows began with: trm_ps_initial_open (trireme/estimator.h) */
    trm_ps_source initial;
} trm_ps_folder_options;

typedef struct trm_ps_folder_info {
    uint32_t cut;
    bool differential;
    int32_t servers, shards; /* shards of a server */
    int32_t tables;
    int64_t global_step, logged; /* pushes; those of them that the logs added */
} trm_ps_folder_info;

/* Of a push that changed a row. */
typedef struct trm_ps_writer {
    uint32_t worker, incarnation;
    uint64_t sequence;
    uint32_t tick, time; /* of the shard; wall-clock second */
} trm_ps_writer;
enum { TRM_PS_WRITERS = 16 };

/* errors  INVALID (no checkpoint, no such table), IO, CORRUPT (file, block, offset), NOMEM
 *   owns  caller, by trm_ps_folder_close */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_open(const char *path,
                                                   const trm_ps_folder_options *options,
                                                   trm_ps_folder **out, trm_error *err);
TRM_API void trm_ps_folder_close(trm_ps_folder *folder);
TRM_API void trm_ps_folder_get_info(const trm_ps_folder *folder, trm_ps_folder_info *out);
/* Its options, and the numbers of rows and slots of those rows that were loaded. */
TRM_API const trm_table_options *trm_ps_folder_table(const trm_ps_folder *folder, int32_t table,
                                                     int64_t *rows, int32_t *slots);
/* As trm_ps_row.   errors  TRM_END if there is none */
TRM_API TRM_MUST_USE trm_status trm_ps_folder_row(const trm_ps_folder *folder, int32_t table,
                                                  uint64_t key, trm_row_info *info, float *values,
                                                  float *slots, trm_error *err);
/* The pushes of the logs that changed `options.key`, the last first; how many of *total. */
TRM_API int32_t trm_ps_folder_writers(const trm_ps_folder *folder,
                                      trm_ps_writer out[TRM_PS_WRITERS], int64_t *total);
/* Calls for every loaded row of a table, in no order, until `see` returns anything but TRM_OK.
 *   errors  INVALID (no such table), NOMEM, what `see` returned */
typedef trm_status (*trm_ps_see_row)(void *context, const trm_row_info *info, const float *values,
                                     const float *slots);
TRM_API TRM_MUST_USE trm_status trm_ps_folder_each(const trm_ps_folder *folder, int32_t table,
                                                   trm_ps_see_row see, void *context,
                                                   trm_error *err);

/* ---- running servers ------------------------------------------------------------------------ */

/* Takes over the tables that the servers have been told of, so that a client that knows none (of
 * worker -1, say) can ask about them: 0 to *count - 1.   errors  as trm_ps_client_table */
TRM_API TRM_MUST_USE trm_status trm_ps_client_adopt(trm_ps_client *client, int32_t *count,
                                                    trm_error *err);
/* Options and number of slots of a table of this client; NULL if there is none. */
TRM_API const trm_table_options *trm_ps_client_table_options(const trm_ps_client *client,
                                                             int32_t table, int32_t *slots);
/* As trm_ps_row, and whose push changed the row last (several when their sum did; none when that
 * was more than 2048 pushes ago, or in the server's life before, without logs). `writers` may be
 * NULL, then writer_count too. */
TRM_API TRM_MUST_USE trm_status trm_ps_audit_row(trm_ps_client *client, int32_t table, uint64_t key,
                                                 trm_row_info *info, float *values, float *slots,
                                                 trm_ps_writer writers[TRM_PS_WRITERS],
                                                 int32_t *writer_count, trm_error *err);

/* ---- forecast ------------------------------------------------------------------------------- */

/* Memory that a table of so many rows will need, index and free places included, on all shards.
 *   errors  INVALID   thread  any */
TRM_API TRM_MUST_USE trm_status trm_ps_forecast(const trm_table_options *table, int64_t rows,
                                                int32_t shards, int64_t *bytes, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
