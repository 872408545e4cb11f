/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a table that the readers of all forms fill: servers, rows and warnings.
 *
 * A row is one device, which is one rank; it names its server by index. Rows are in the order of
 * the file until trmi_table_check sorts them by rank. Texts belong to the arena of the table, so a
 * row stays valid after the JSON document is freed. */
#include "comm/cluster/ranktable.h"

#include "base/error.h"
#include "base/hash/hash.h"

#include <stdio.h>
#include <string.h>

/* Writes the place of a row in the file, as the form names it, so that a message leads to the
 * line. */
const char *trmi_table_place(const trm_rank_table *table, const trmi_table_row *row, char *text,
                             size_t size) {
    switch (table->form) {
    case TRM_RANK_TABLE_GROUPS:
        snprintf(text, size, "group_list[0].instance_list[%d]", row->at[0]);
        break;
    case TRM_RANK_TABLE_TEMPLATE2:
        snprintf(text, size, "group_list[0].instance_list[%d].devices[%d]", row->at[0], row->at[1]);
        break;
    case TRM_RANK_TABLE_V2: snprintf(text, size, "rank_list[%d]", row->at[0]); break;
    default: snprintf(text, size, "server_list[%d].device[%d]", row->at[0], row->at[1]);
    }
    return text;
}

/* Contract in ranktable.h. A row without an address gets an empty one, so that readers need no
 * test. */
trm_status trmi_table_add_row(trm_rank_table *table, const trmi_table_row *row, trm_error *err) {
    if (table->size == TRMI_TABLE_RANKS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: more than %d devices; no table may have more",
                         table->name, TRMI_TABLE_RANKS_MAX);
    }
    TRMI_TRY(TRMI_GROW(err, table->rows, table->row_capacity, table->size + 1, "for %d ranks of %s",
                       table->size, table->name));
    trmi_table_row *copy = &table->rows[table->size];
    *copy = *row;
    copy->device_ip = trmi_arena_strdup(&table->arena, row->device_ip ? row->device_ip : "");
    if (copy->device_ip == NULL) {
        return TRMI_NO_MEMORY(err, "for %d ranks of %s", table->size, table->name);
    }
    table->size++;
    return TRM_OK;
}

/* Contract in ranktable.h. Files may name a server several times; `exists` lets each form decide
 * whether that is a mistake. */
trm_status trmi_table_server_index(trm_rank_table *table, const char *id, const char *host_ip,
                                   int32_t *index, bool *exists, trm_error *err) {
    /* Look up the id in the hash index; add the server if it is new. */
    uint64_t hash = trmi_hash(TRMI_HASH_BEGIN, id, strlen(id)), probe = 0;
    int64_t found;
    do {
        found = trmi_hash_index_next(&table->by_id, hash, &probe);
    } while (found >= 0 && strcmp(table->servers[found].id, id) != 0);
    *exists = found >= 0;
    if (!*exists) {
        found = table->server_count;
        if (!trmi_grow((void **)&table->servers, &table->server_capacity, found + 1,
                       sizeof *table->servers)) {
            goto no_memory;
        }
        trmi_table_server *server = &table->servers[found];
        memset(server, 0, sizeof *server);
        server->id = trmi_arena_strdup(&table->arena, id);
        server->host_ip = host_ip != NULL ? trmi_arena_strdup(&table->arena, host_ip) : NULL;
        if (server->id == NULL || (host_ip != NULL && server->host_ip == NULL) ||
            !trmi_hash_index_add(&table->by_id, hash, found)) {
            goto no_memory;
        }
        table->server_count++;
    }
    *index = (int32_t)found;
    return TRM_OK;
no_memory:
    return TRMI_NO_MEMORY(err, "for %d servers of %s", table->server_count, table->name);
}

trm_status trmi_table_server_id(const trmi_cjson_at *at, const json_t *object, const char **id,
                                trm_error *err) {
    char path[128];
    TRMI_TRY(trmi_cjson_string(at, object, "server_id", true, id, err));
    size_t length = strlen(*id);
    if (length == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s is empty; the host's name or address expected",
                         at->name, trmi_cjson_path(at, "server_id", path, sizeof path));
    }
    if (length > TRMI_TABLE_ID_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: %zu characters, at most %d expected", at->name,
                         trmi_cjson_path(at, "server_id", path, sizeof path), length,
                         TRMI_TABLE_ID_MAX);
    }
    return TRM_OK;
}

trm_status trmi_table_count(const trmi_cjson_at *at, const json_t *object, const char *key,
                            bool required, int64_t found, const char *what, trm_error *err) {
    /* A missing count equals what was found. */
    int64_t said = found;
    char path[128];
    const trmi_cjson_range counts = {.high = INT32_MAX, .optional = !required};
    TRMI_TRY(trmi_cjson_integer(at, object, key, counts, &said, err));
    if (said != found) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s says %lld, but %s has %lld; make them equal",
                         at->name, trmi_cjson_path(at, key, path, sizeof path), (long long)said,
                         what, (long long)found);
    }
    return TRM_OK;
}
