/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/ranktable.h: a rank table in memory. Four forms are read into the same rows:
 * ranktable_lab.c reads lab and template 2, ranktable_server.c versions 1.0 and 1.2, ranktable_v2.c
 * version 2.0. ranktable_check.c then checks the rules that all forms share.
 *
 *   bytes -> json -> trmi_table_read_...: rows in file order -> trmi_table_check: rows in rank order
 */
#ifndef TRMI_COMM_RANKTABLE_H
#define TRMI_COMM_RANKTABLE_H

#include "trireme/dist.h"

#include "base/hash/hash_index.h"
#include "base/memory.h"
#include "comm/cluster/cluster_json.h"
#include "comm/cluster/warnings.h"

/* Limits of a table, compared before memory is taken. */
enum {
    TRMI_TABLE_RANKS_MAX = 65536, /* ranks of a table, at most */
    TRMI_TABLE_ID_MAX = 64,       /* longest server_id */
    TRMI_TABLE_DEVICE_MAX = 4095  /* largest device_id */
};

/* One rank. */
typedef struct trmi_table_row {
    int32_t rank, server, device_id, device_port; /* server: index in `servers` */
    int32_t at[2];                                /* position in the file, see trmi_table_place */
    const char *device_ip; /* "" if not given; several addresses are separated by commas */
} trmi_table_row;

/* One server (host), or one pod of template 2. */
typedef struct trmi_table_server {
    const char *id;            /* server_id */
    const char *host_ip;       /* NULL: not given */
    const char *pod;           /* template 2: name of the pod */
    int32_t first_rank, count; /* its ranks are first_rank .. first_rank + count - 1 */
} trmi_table_server;

/* A rank table. All texts are in the arena. */
struct trm_rank_table {
    trmi_arena arena;         /* all texts of the table */
    char name[48];            /* of the file, shortened for messages */
    trm_rank_table_form form; /* of the file */
    const char *version;      /* "1.0", "1.2", "2.0", or "" for the forms without a version */
    bool chip_910; /* the table is for Ascend 910: breaches of that chip's rules are warned about */
    trmi_table_row *rows;       /* [size] */
    int32_t size;               /* number of ranks */
    int64_t row_capacity;       /* capacity of `rows` */
    trmi_table_server *servers; /* [server_count] */
    int32_t server_count;       /* length of `servers` */
    int64_t server_capacity;    /* capacity of `servers` */
    trmi_hash_index by_id;      /* finds a server by its id */
    trmi_table_server *pods;    /* template 2: one for each instance, in rank order */
    int32_t pod_count;          /* length of `pods` */
    int64_t pod_capacity;       /* capacity of `pods` */
    trmi_warnings warnings;     /* in the arena */
};

/* Read the forms.
 *   errors  INVALID with the position, NOMEM */
trm_status trmi_table_read_groups(trm_rank_table *table, const json_t *root, trm_error *err);
trm_status trmi_table_read_servers(trm_rank_table *table, const json_t *root, trm_error *err);
trm_status trmi_table_read_v2(trm_rank_table *table, const json_t *root, trm_error *err);

/* The readers share these functions. trmi_table_add_row appends a row and copies its text. */
trm_status trmi_table_add_row(trm_rank_table *table, const trmi_table_row *row, trm_error *err);
/* Returns the index of the server with this id, and adds it if it is new; *exists says which. */
trm_status trmi_table_server_index(trm_rank_table *table, const char *id, const char *host_ip,
                                   int32_t *index, bool *exists, trm_error *err);
/* Reads server_id: 1 to 64 characters. */
trm_status trmi_table_server_id(const trmi_cjson_at *at, const json_t *object, const char **id,
                                trm_error *err);
/* Checks that a count field (given as a string, perhaps optional) equals `found`, the length of the
 * list `what`. */
trm_status trmi_table_count(const trmi_cjson_at *at, const json_t *object, const char *key,
                            bool required, int64_t found, const char *what, trm_error *err);
/* Writes the position of a row in the file: "server_list[0].device[1]". Returns text. */
const char *trmi_table_place(const trm_rank_table *table, const trmi_table_row *row, char *text,
                             size_t size);

/* Reads and checks a rank table in memory, text[bytes]; `name` stands for the file in messages.
 *   errors  those of trm_rank_table_read */
trm_status trmi_table_parse(const char *name, const char *text, size_t bytes, trm_rank_table **out,
                            trm_error *err);
/* Gives the first rank and the number of devices of a pod (template 2). Returns false if there is
 * no such pod. */
bool trmi_table_pod(const trm_rank_table *table, const char *pod_name, int32_t *first_rank,
                    int32_t *count);
/* Computes the SHA-256 of ranks, servers, devices and addresses: the same for every spelling of a
 * table. */
void trmi_table_digest(const trm_rank_table *table, uint8_t digest[32]);

/* Checks the rules that all forms share, adds warnings, and sorts the rows by rank. */
trm_status trmi_table_check(trm_rank_table *table, trm_error *err);

#endif
