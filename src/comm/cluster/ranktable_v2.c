/* SPDX-License-Identifier: Apache-2.0 */
/* Version 2.0 of rank tables: rank_list with network levels. Only the grouping matters here: ranks
 * with the same net_instance_id on net_layer 0 are on one server. Addresses are checked and not
 * used. Numbers may be plain or in quotes.
 *
 *   rank_list[i]: rank_id, local_id, device_id?, device_port?, level_list[]
 *   level_list[l]: net_layer, net_instance_id, net_type?, rank_addr_list[]?
 */
#include "comm/cluster/ranktable.h"

#include "base/error.h"
#include "comm/cluster/cluster_addr.h"

#include <stdio.h>
#include <string.h>

enum { LEVELS_MAX = 8, ADDRESSES_MAX = 24 }; /* levels of a rank, addresses of a level, at most */

/* Checks one address of a level. */
static trm_status read_address(const trmi_cjson_at *at, const json_t *address, trm_error *err) {
    const char *type, *text;
    char part[48];
    if (!json_is_object(address)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: an object with addr_type and addr expected",
                         at->name, at->path);
    }
    TRMI_TRY(trmi_cjson_string(at, address, "addr_type", true, &type, err));
    TRMI_TRY(trmi_cjson_string(at, address, "addr", true, &text, err));
    int family = strcmp(type, "IPV4") == 0 ? 4 : strcmp(type, "IPV6") == 0 ? 6 : 0;
    if (family == 0 && strcmp(type, "EID") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.addr_type: EID, IPV4 or IPV6 expected, found \"%s\"", at->name,
                         at->path, trmi_printable(type, part, sizeof part));
    }
    if (family != 0 && trmi_ip_family(text) != family) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s.addr: an %s address expected, found \"%s\"",
                         at->name, at->path, type, trmi_printable(text, part, sizeof part));
    }
    return TRM_OK;
}

/* Reads one level. *previous is the layer of the level before; *server becomes the instance on
 * layer 0. */
static trm_status read_level(const trmi_cjson_at *at, const json_t *level, int64_t *previous,
                             const char **server, trm_error *err) {
    int64_t layer;
    const char *id, *type;
    const json_t *addresses;
    char part[40];
    if (!json_is_object(level)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: an object with net_layer expected", at->name,
                         at->path);
    }
    const trmi_cjson_range layers = {.high = 7, .plain = true};
    TRMI_TRY(trmi_cjson_integer(at, level, "net_layer", layers, &layer, err));
    if (layer <= *previous) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s.net_layer: layers ascend, found %lld after %lld",
                         at->name, at->path, (long long)layer, (long long)*previous);
    }
    *previous = layer;
    TRMI_TRY(trmi_cjson_string(at, level, "net_instance_id", true, &id, err));
    if (id[0] == '\0' || strlen(id) > TRMI_TABLE_ID_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.net_instance_id: 1 to %d characters expected, found %zu", at->name,
                         at->path, TRMI_TABLE_ID_MAX, strlen(id));
    }
    TRMI_TRY(trmi_cjson_string(at, level, "net_type", false, &type, err));
    if (type != NULL && strcmp(type, "TOPO_FILE_DESC") != 0 && strcmp(type, "CLOS") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.net_type: TOPO_FILE_DESC or CLOS expected, found \"%s\"", at->name,
                         at->path, trmi_printable(type, part, sizeof part));
    }
    TRMI_TRY(trmi_cjson_list(at, level, "rank_addr_list", false, &addresses, err));
    size_t count = addresses != NULL ? json_array_size(addresses) : 0;
    if (count > ADDRESSES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s.rank_addr_list: at most %d expected, found %zu",
                         at->name, at->path, ADDRESSES_MAX, count);
    }
    for (size_t a = 0; a < count; a++) {
        trmi_cjson_at place = trmi_cjson_below(at, "rank_addr_list", (int64_t)a);
        TRMI_TRY(read_address(&place, json_array_get(addresses, a), err));
    }
    /* Layer 0 is inside a server, so its id is that of the server. */
    if (layer == 0) {
        *server = id;
    }
    return TRM_OK;
}

/* Reads one rank into a row. Its server is named by the level with net_layer 0. *without_levels
 * counts ranks without levels.
 *   errors  INVALID, NOMEM */
static trm_status read_rank(trm_rank_table *table, const json_t *entry, int32_t index,
                            size_t *without_levels, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    trmi_cjson_at at = trmi_cjson_below(&top, "rank_list", index);
    int64_t rank, local, device, port = 0, ignored = 0, previous = -1;
    const json_t *levels;
    const char *server = NULL;
    bool exists;
    trmi_table_row row = {.at = {index, 0}};
    if (!json_is_object(entry)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: an object with rank_id expected", table->name,
                         at.path);
    }
    /* Read rank, device and port. */
    const trmi_cjson_range ids = {.high = TRMI_TABLE_RANKS_MAX - 1, .plain = true};
    const trmi_cjson_range locals = {.high = TRMI_TABLE_DEVICE_MAX, .plain = true};
    const trmi_cjson_range devices = {
        .high = TRMI_TABLE_DEVICE_MAX, .optional = true, .plain = true};
    const trmi_cjson_range ports = {.low = 1, .high = 65535, .optional = true, .plain = true};
    TRMI_TRY(trmi_cjson_integer(&at, entry, "rank_id", ids, &rank, err));
    TRMI_TRY(trmi_cjson_integer(&at, entry, "local_id", locals, &local, err));
    device = local;
    TRMI_TRY(trmi_cjson_integer(&at, entry, "device_id", devices, &device, err));
    TRMI_TRY(trmi_cjson_integer(&at, entry, "device_port", ports, &port, err));
    TRMI_TRY(trmi_cjson_integer(&at, entry, "host_port", ports, &ignored, err));
    /* The levels, of which the first names the server. */
    TRMI_TRY(trmi_cjson_list(&at, entry, "level_list", true, &levels, err));
    size_t count = json_array_size(levels);
    if (count > LEVELS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.level_list: at most %d levels expected, found %zu", table->name,
                         at.path, LEVELS_MAX, count);
    }
    for (size_t l = 0; l < count; l++) {
        trmi_cjson_at place = trmi_cjson_below(&at, "level_list", (int64_t)l);
        TRMI_TRY(read_level(&place, json_array_get(levels, l), &previous, &server, err));
    }
    if (count == 0) {
        server = "localhost"; /* no rank has levels: all are on one server */
        (*without_levels)++;
    }
    if (server == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.level_list has no net_layer 0, which names the server",
                         table->name, at.path);
    }
    TRMI_TRY(trmi_table_server_index(table, server, NULL, &row.server, &exists, err));
    row.rank = (int32_t)rank;
    row.device_id = (int32_t)device;
    row.device_port = (int32_t)port;
    return trmi_table_add_row(table, &row, err);
}

trm_status trmi_table_read_v2(trm_rank_table *table, const json_t *root, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const json_t *ranks;
    size_t without_levels = 0;
    int64_t said;
    TRMI_TRY(trmi_cjson_list(&top, root, "rank_list", true, &ranks, err));
    const trmi_cjson_range counts = {.low = 1, .high = TRMI_TABLE_RANKS_MAX, .plain = true};
    TRMI_TRY(trmi_cjson_integer(&top, root, "rank_count", counts, &said, err));
    if (said != (int64_t)json_array_size(ranks)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: rank_count says %lld, but rank_list has %zu; make them equal",
                         table->name, (long long)said, json_array_size(ranks));
    }
    /* Either all ranks have levels or none. */
    for (size_t r = 0; r < json_array_size(ranks); r++) {
        TRMI_TRY(read_rank(table, json_array_get(ranks, r), (int32_t)r, &without_levels, err));
    }
    if (without_levels != 0 && without_levels != json_array_size(ranks)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: level_list is empty for %zu of %zu ranks; give all ranks levels that "
                         "name their server, or none",
                         table->name, without_levels, json_array_size(ranks));
    }
    return TRM_OK;
}
