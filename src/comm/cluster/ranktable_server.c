/* SPDX-License-Identifier: Apache-2.0 */
/* Versions 1.0 and 1.2 of rank tables: server_list, in which each server has a device list; 1.2
 * adds super pods. Ports and addresses that only Ascend uses are checked and not stored.
 *
 * Every mistake is an error with the path of the member ("server_list[1].device[0].rank_id"): a
 * server that stands there twice, a rank that is missing, a super pod that names no server.
 * trmi_table_read_ functions of the other versions give the same table. */
#include "comm/cluster/ranktable.h"

#include "base/error.h"
#include "comm/cluster/cluster_addr.h"

#include <stdio.h>
#include <string.h>

/* Reads an optional IP address; "" counts as missing. */
static trm_status optional_ip(const trmi_cjson_at *at, const json_t *object, const char *key,
                              const char **out, trm_error *err) {
    char path[128], part[48];
    TRMI_TRY(trmi_cjson_string(at, object, key, false, out, err));
    if (*out != NULL && (*out)[0] == '\0') {
        *out = NULL;
    }
    if (*out != NULL && trmi_ip_family(*out) == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: an IPv4 or IPv6 address expected, found \"%s\"",
                         at->name, trmi_cjson_path(at, key, path, sizeof path),
                         trmi_printable(*out, part, sizeof part));
    }
    return TRM_OK;
}

/* Reads one device, which is one rank, and adds its row. `row` has server and position already.
 *   errors  INVALID, NOMEM */
static trm_status read_device(trm_rank_table *table, const trmi_cjson_at *at, const json_t *device,
                              trmi_table_row *row, trm_error *err) {
    int64_t id, rank, port = 0, ignored = 0;
    const char *backup, *super_id;
    char found[64];
    if (!json_is_object(device)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s: an object with device_id and rank_id expected, found %s",
                         at->name, at->path, trmi_cjson_found(device, found, sizeof found));
    }
    /* Members that are stored: the device, its rank, address and port. */
    const trmi_cjson_range ids = {.high = TRMI_TABLE_DEVICE_MAX},
                           ranks = {.high = TRMI_TABLE_RANKS_MAX - 1},
                           ports = {.low = 1, .high = 65535, .optional = true};
    TRMI_TRY(trmi_cjson_integer(at, device, "device_id", ids, &id, err));
    TRMI_TRY(trmi_cjson_integer(at, device, "rank_id", ranks, &rank, err));
    TRMI_TRY(trmi_cjson_string(at, device, "device_ip", false, &row->device_ip, err));
    TRMI_TRY(trmi_cjson_integer(at, device, "device_port", ports, &port, err));
    /* Only Ascend uses these members. They are checked, so that a mistake is reported here, too. */
    TRMI_TRY(trmi_cjson_integer(at, device, "host_port", ports, &ignored, err));
    TRMI_TRY(trmi_cjson_integer(at, device, "backup_device_port", ports, &ignored, err));
    TRMI_TRY(optional_ip(at, device, "backup_device_ip", &backup, err));
    TRMI_TRY(trmi_cjson_string(at, device, "super_device_id", false, &super_id, err));
    row->device_id = (int32_t)id;
    row->rank = (int32_t)rank;
    row->device_port = (int32_t)port;
    return trmi_table_add_row(table, row, err);
}

/* Reads one server with its devices. Each server occurs once, with all of its devices.
 *   errors  INVALID, NOMEM */
static trm_status read_server(trm_rank_table *table, const json_t *server, int32_t index,
                              trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    trmi_cjson_at at = trmi_cjson_below(&top, "server_list", index);
    const char *id, *host_ip, *ignored;
    const json_t *devices;
    trmi_table_row row = {.at = {index, 0}};
    bool exists;
    char part[40], found[64];
    if (!json_is_object(server)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s: an object with server_id and device expected, found %s",
                         table->name, at.path, trmi_cjson_found(server, found, sizeof found));
    }
    /* The server, which must be new. */
    TRMI_TRY(trmi_table_server_id(&at, server, &id, err));
    TRMI_TRY(optional_ip(&at, server, "host_ip", &host_ip, err));
    TRMI_TRY(trmi_cjson_string(&at, server, "host_nic_ip", false, &ignored, err));
    TRMI_TRY(trmi_table_server_index(table, id, host_ip, &row.server, &exists, err));
    if (exists) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.server_id: \"%s\" is already server_list[%d]; each server once, "
                         "with all its devices",
                         table->name, at.path, trmi_printable(id, part, sizeof part), row.server);
    }
    /* Read its devices. */
    TRMI_TRY(trmi_cjson_list(&at, server, "device", true, &devices, err));
    if (json_array_size(devices) == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s.device is empty; at least one device expected",
                         table->name, at.path);
    }
    for (size_t d = 0; d < json_array_size(devices); d++) {
        trmi_cjson_at place = trmi_cjson_below(&at, "device", (int64_t)d);
        row.at[1] = (int32_t)d;
        TRMI_TRY(read_device(table, &place, json_array_get(devices, d), &row, err));
    }
    return TRM_OK;
}

/* Reads one super pod. seen[server] is its index + 1 once a super pod has named the server; each
 * server must be in exactly one super pod. */
static trm_status read_super_pod(trm_rank_table *table, const json_t *pod, int32_t index,
                                 int32_t *seen, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    trmi_cjson_at at = trmi_cjson_below(&top, "super_pod_list", index);
    const char *id;
    const json_t *servers;
    char part[40];
    if (!json_is_object(pod)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: an object with super_pod_id expected",
                         table->name, at.path);
    }
    TRMI_TRY(trmi_cjson_string(&at, pod, "super_pod_id", true, &id, err));
    TRMI_TRY(trmi_cjson_list(&at, pod, "server_list", true, &servers, err));
    for (size_t s = 0; s < json_array_size(servers); s++) {
        trmi_cjson_at place = trmi_cjson_below(&at, "server_list", (int64_t)s);
        int32_t server, before = table->server_count;
        bool exists;
        TRMI_TRY(trmi_table_server_id(&place, json_array_get(servers, s), &id, err));
        TRMI_TRY(trmi_table_server_index(table, id, NULL, &server, &exists, err));
        trmi_printable(id, part, sizeof part);
        /* The search has added the unknown server: remove it again. */
        if (!exists) {
            table->server_count = before;
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s.server_id: \"%s\" is not in server_list",
                             table->name, place.path, part);
        }
        if (seen[server] != 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %s.server_id: \"%s\" is already in super_pod_list[%d]",
                             table->name, place.path, part, seen[server] - 1);
        }
        seen[server] = index + 1;
    }
    return TRM_OK;
}

/* Reads super_pod_list, if there is one, and checks that it names every server. */
static trm_status read_super_pods(trm_rank_table *table, const json_t *root, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const json_t *pods;
    TRMI_TRY(trmi_cjson_list(&top, root, "super_pod_list", false, &pods, err));
    if (pods == NULL) {
        return TRM_OK;
    }
    if (strcmp(table->version, "1.2") != 0) {
        trmi_warnings_add(&table->warnings, &table->arena,
                          "%s: super_pod_list belongs to version 1.2, the table says %s",
                          table->name, table->version);
    }
    int32_t *seen;
    TRMI_TRY(TRMI_NEW(err, seen, (size_t)table->server_count + 1, "for the super pods of %s",
                      table->name));
    trm_status status = TRM_OK;
    for (size_t p = 0; p < json_array_size(pods) && status == TRM_OK; p++) {
        status = read_super_pod(table, json_array_get(pods, p), (int32_t)p, seen, err);
    }
    /* With super pods, each server must be in one. */
    for (int32_t s = 0; s < table->server_count && status == TRM_OK; s++) {
        if (seen[s] == 0) {
            char part[40];
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: super_pod_list: server \"%s\" is in none of its super pods",
                               table->name, trmi_printable(table->servers[s].id, part, 40));
        }
    }
    trmi_free(seen);
    return status;
}

/* Contract in ranktable.h. Super pods are read last, since they name servers. */
trm_status trmi_table_read_servers(trm_rank_table *table, const json_t *root, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const json_t *servers;
    TRMI_TRY(trmi_cjson_list(&top, root, "server_list", true, &servers, err));
    if (json_array_size(servers) == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: server_list is empty; at least one server expected",
                         table->name);
    }
    /* server_count is required by Ascend, but a table without it is clear. */
    if (json_object_get(root, "server_count") == NULL) {
        trmi_warnings_add(&table->warnings, &table->arena,
                          "%s: server_count is missing; %zu servers are taken from the list",
                          table->name, json_array_size(servers));
    }
    TRMI_TRY(trmi_table_count(&top, root, "server_count", false, (int64_t)json_array_size(servers),
                              "server_list", err));
    for (size_t s = 0; s < json_array_size(servers); s++) {
        TRMI_TRY(read_server(table, json_array_get(servers, s), (int32_t)s, err));
    }
    return read_super_pods(table, root, err);
}
