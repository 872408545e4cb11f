/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/ranktable.h: a rank table in memory. Four spellings are read (ranktable_lab.c: lab
 * and template 2; ranktable_server.c: 1.0, 1.2; ranktable_v2.c: 2.0) into the same rows, which
 * ranktable_check.c holds against the rules that all of them share.
 *
 *   bytes -> json -> read_X: rows in file order -> check: rows in rank order -> trm_rank_table */
#ifndef TRMI_COMM_RANKTABLE_H
#define TRMI_COMM_RANKTABLE_H

#include "trireme/cluster.h"

#include "base/hash_index.h"
#include "base/memory.h"
#include "comm/cluster/cluster_json.h"

enum {
    TRMI_TABLE_RANKS_MAX = 65536,
    TRMI_TABLE_ID_MAX = 64, /* characters of a server_id */
    TRMI_TABLE_DEVICE_MAX = 4095,
    TRMI_TABLE_WARNINGS_MAX = 16
};

typedef struct trmi_table_row {
    int32_t rank, server, device_id, device_port;
    int32_t at[2];         /* place in the file, see trmi_table_place */
    const char *device_ip; /* "" if not given; several are separated by commas */
} trmi_table_row;

typedef struct trmi_table_server {
    const char *id;
    const char *host_ip; /* NULL if not given */
    const char *pod;     /* template 2 */
    int32_t first_rank, count;
} trmi_table_server;

struct trm_rank_table {
    trmi_arena arena;
    char name[48]; /* of the file, for messages */
    trm_rank_table_form form;
    const char *version; /* "1.0", ... or "" */
    bool chip_910;       /* the table says so: its rules are warned about */
    trmi_table_row *rows;
    int32_t size;
    int64_t row_capacity;
    trmi_table_server *servers;
    int32_t server_count;
    int64_t server_capacity;
    trmi_hash_index by_id;   /* of servers */
    trmi_table_server *pods; /* template 2: one per instance, in rank order */
    int32_t pod_count;
    int64_t pod_capacity;
    const char *warnings[TRMI_TABLE_WARNINGS_MAX];
    int32_t warning_count;
};

trm_status trmi_table_read_groups(trm_rank_table *table, const json_t *root, trm_error *err);
trm_status trmi_table_read_servers(trm_rank_table *table, const json_t *root, trm_error *err);
trm_status trmi_table_read_v2(trm_rank_table *table, const json_t *root, trm_error *err);

/* Shared by the readers. Strings are copied into the table. */
trm_status trmi_table_add_row(trm_rank_table *table, const trmi_table_row *row, trm_error *err);
/* Index of a server, added if it is new; `exists` says which. */
trm_status trmi_table_server_index(trm_rank_table *table, const char *id, const char *host_ip,
                                   int32_t *index, bool *exists, trm_error *err);
/* server_id: not empty, at most 64 characters. */
trm_status trmi_table_server_id(const trmi_cjson_at *at, const json_t *object, const char **id,
                                trm_error *err);
/* The length of a list is what a count field says (given as a string, or missing and optional). */
trm_status trmi_table_count(const trmi_cjson_at *at, const json_t *object, const char *key,
                            bool required, int64_t found, const char *what, trm_error *err);
void trmi_table_warn(trm_rank_table *table, const char *format, ...) TRM_PRINTF(2, 3);
/* "server_list[0].device[1]" of a row. */
const char *trmi_table_place(const trm_rank_table *table, const trmi_table_row *row, char *text,
                             size_t size);

/* All rules that do not depend on the spelling; sorts the rows by rank. */
trm_status trmi_table_check(trm_rank_table *table, trm_error *err);

#endif
