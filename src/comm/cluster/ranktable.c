/* SPDX-License-Identifier: Apache-2.0 */
/* Rank tables: recognising the form, reading a file, access to the rows, and the digest by which
 * ranks compare their tables.
 *
 *   text --> JSON --> read_form --> reader of the form --> trmi_table_check --> rows by rank
 *                                   (ranktable_server.c, ranktable_lab.c, ranktable_v2.c)
 *
 * The "lab form" is the table of guide 002: a group_list without a version (trireme/dist.h lists
 * all forms). A table that was returned is complete: ranks are 0 to size - 1 without gaps, and it
 * does not change. Any thread may read it. */
#include "comm/cluster/ranktable.h"

#include "base/arguments.h"
#include "base/hash/digest.h"
#include "base/error.h"
#include "base/os.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* Limits of a table's JSON; a larger file is not a rank table. */
static const trmi_cjson_limits table_limits = {
    .bytes = (size_t)64 << 20, .values = 2000000, .depth = 16};

/* Checks `status`. "initializing" returns PENDING: the program that writes the table is not done,
 * and the caller may read the file again later. */
static trm_status check_status_field(trm_rank_table *table, const json_t *root, bool required,
                                     trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const char *text;
    char part[40];
    TRMI_TRY(trmi_cjson_string(&top, root, "status", required, &text, err));
    if (text == NULL || strcmp(text, "completed") == 0) {
        return TRM_OK;
    }
    if (strcmp(text, "initializing") == 0) {
        return TRMI_FAIL(err, TRM_PENDING,
                         "%s: status is \"initializing\": its generator has not finished it; wait "
                         "until it says \"completed\"",
                         table->name);
    }
    return TRMI_FAIL(err, TRM_INVALID, "%s: status: \"completed\" expected, found \"%s\"",
                     table->name, trmi_printable(text, part, sizeof part));
}

/* Recognises the form, by `version` or by the list that the table has, and reads it into rows.
 *   errors  INVALID, PENDING (not finished), NOMEM */
static trm_status read_form(trm_rank_table *table, const json_t *root, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const char *version;
    char part[40];
    TRMI_TRY(trmi_cjson_string(&top, root, "version", false, &version, err));
    /* Of the forms without a version only the lab form and template 2 have group_list. */
    if (version == NULL) {
        table->version = "";
        if (json_object_get(root, "group_list") != NULL) {
            table->form = TRM_RANK_TABLE_GROUPS;
            TRMI_TRY(check_status_field(table, root, true, err));
            return trmi_table_read_groups(table, root, err);
        }
        if (json_object_get(root, "server_list") != NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: version is missing; a table with server_list needs \"version\": "
                             "\"1.0\" (or \"1.2\")",
                             table->name);
        }
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: neither version nor group_list; this is no rank table (trireme "
                         "cluster make writes one)",
                         table->name);
    }
    table->version = trmi_arena_strdup(&table->arena, version);
    if (table->version == NULL) {
        return TRMI_NO_MEMORY(err, "for %s", table->name);
    }
    /* Version 1.2 is version 1.0 with super pods. */
    if (strcmp(version, "1.0") == 0 || strcmp(version, "1.2") == 0) {
        table->form = TRM_RANK_TABLE_V1;
        TRMI_TRY(check_status_field(table, root, true, err));
        return trmi_table_read_servers(table, root, err);
    }
    if (strcmp(version, "2.0") == 0) {
        table->form = TRM_RANK_TABLE_V2;
        TRMI_TRY(check_status_field(table, root, false, err));
        return trmi_table_read_v2(table, root, err);
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: version: \"1.0\", \"1.2\" or \"2.0\" expected, found \"%s\"", table->name,
                     trmi_printable(version, part, sizeof part));
}

/* Contract in ranktable.h. `name` is shortened for messages. */
trm_status trmi_table_parse(const char *name, const char *text, size_t bytes, trm_rank_table **out,
                            trm_error *err) {
    json_t *root = NULL;
    trm_status status;
    trm_rank_table *table;
    TRMI_TRY(TRMI_NEW(err, table, 1, "for a rank table"));
    /* From here on, an error frees the table and the document. */
    trmi_short_name(name, table->name);
    TRMI_TRY_GOTO(status, trmi_cjson_load(table->name, text, bytes, &table_limits, &root, err),
                  failed);
    TRMI_TRY_GOTO(status, read_form(table, root, err), failed);
    TRMI_TRY_GOTO(status, trmi_table_check(table, err), failed);
    json_decref(root);
    *out = table;
    return TRM_OK;
failed:
    json_decref(root);
    trm_rank_table_destroy(table);
    return status;
}

/* A file that cannot be read is INVALID, not IO: the user's setting is wrong. */
trm_status trm_rank_table_read(const char *path, trm_rank_table **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    uint8_t *text;
    size_t bytes;
    trm_error cause;
    char name[48];
    trm_status status = trmi_os_read_file(path, table_limits.bytes, &text, &bytes, &cause);
    if (status == TRM_NOMEM) {
        return TRMI_NO_MEMORY(err, "to read %s", trmi_short_name(path, name));
    }
    if (status != TRM_OK) {
        return TRMI_FAIL(
            err, TRM_INVALID, "rank table %s: cannot be read (%s)", trmi_short_name(path, name),
            cause.sys_errno ? strerror(cause.sys_errno) : "not a file of at most 64 MB");
    }
    status = trmi_table_parse(path, (const char *)text, bytes, out, err);
    trmi_free(text);
    return status;
}

void trm_rank_table_destroy(trm_rank_table *table) {
    if (table == NULL) {
        return;
    }
    trmi_free(table->rows);
    trmi_free(table->servers);
    trmi_hash_index_free(&table->by_id);
    trmi_free(table->pods);
    trmi_arena_free(&table->arena);
    trmi_free(table);
}

int32_t trm_rank_table_size(const trm_rank_table *table) {
    TRMI_NEED_OR(0, NULL, table);
    return table->size;
}

trm_rank_entry trm_rank_table_entry(const trm_rank_table *table, int32_t rank) {
    TRMI_NEED_OR((trm_rank_entry){0}, NULL, table);
    if (rank < 0 || rank >= table->size) {
        return (trm_rank_entry){.rank = -1, .server_id = "", .host = "", .device_ip = ""};
    }
    const trmi_table_row *row = &table->rows[rank];
    const trmi_table_server *server = &table->servers[row->server];
    return (trm_rank_entry){.rank = rank,
                            .device_id = row->device_id,
                            .server = row->server,
                            .server_id = server->id,
                            .host = server->host_ip ? server->host_ip : server->id,
                            .device_ip = row->device_ip};
}

bool trmi_table_pod(const trm_rank_table *table, const char *pod_name, int32_t *first_rank,
                    int32_t *count) {
    for (int32_t p = 0; p < table->pod_count; p++) {
        if (strcmp(table->pods[p].pod, pod_name) == 0) {
            *first_rank = table->pods[p].first_rank;
            *count = table->pods[p].count;
            return true;
        }
    }
    return false;
}

/* The digest covers what all ranks must agree on: rank, device, port, server, host and device
 * address. It does not depend on the form or on the order in the file. */
void trmi_table_digest(const trm_rank_table *table, uint8_t digest[32]) {
    /* Without memory for the hash, the digest is 0. */
    EVP_MD_CTX *context = trmi_sha256_begin();
    memset(digest, 0, 32);
    if (context == NULL) {
        return;
    }
    for (int32_t r = 0; r < table->size; r++) {
        const trmi_table_row *row = &table->rows[r];
        const trmi_table_server *server = &table->servers[row->server];
        char head[64];
        int length = snprintf(head, sizeof head, "%d %d %d\n", r, row->device_id, row->device_port);
        EVP_DigestUpdate(context, head, (size_t)length);
        EVP_DigestUpdate(context, server->id, strlen(server->id) + 1);
        /* the host as trm_rank_entry returns it */
        const char *host = server->host_ip ? server->host_ip : server->id;
        EVP_DigestUpdate(context, host, strlen(host) + 1);
        EVP_DigestUpdate(context, row->device_ip, strlen(row->device_ip) + 1);
    }
    EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
}
