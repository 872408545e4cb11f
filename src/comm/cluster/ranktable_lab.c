/* SPDX-License-Identifier: Apache-2.0 */
/* The two forms of rank tables with group_list: the "lab" table of guide 002, and the container
 * table (template 2).
 *
 *   lab          one device for each instance; the instance has rank_id
 *   template 2   several devices for each instance (a pod); ranks in the order of the list
 *
 * A table is template 2 if its group has device_count or its first instance has pod_name. */
#include "comm/cluster/ranktable.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

static trm_status no_memory(trm_rank_table *table, trm_error *err) {
    return TRMI_NO_MEMORY(err, "for %d ranks of %s", table->size, table->name);
}

/* Checks that a member, if present, has one of two words (`one` == `other`: only that one). */
static trm_status fixed_word(const trmi_cjson_at *at, const json_t *object, const char *key,
                             bool required, const char *one, const char *other, trm_error *err) {
    const char *text;
    char path[128], part[40];
    TRMI_TRY(trmi_cjson_string(at, object, key, required, &text, err));
    if (text != NULL && strcmp(text, one) != 0 && strcmp(text, other) != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: \"%s\"%s%s%s expected, found \"%s\"", at->name,
                         trmi_cjson_path(at, key, path, sizeof path), one,
                         other == one ? "" : " or \"", other == one ? "" : other,
                         other == one ? "" : "\"", trmi_printable(text, part, sizeof part));
    }
    return TRM_OK;
}

/* Checks para_plane_nic_*: the number of names equals the count. */
static trm_status check_nics(const trmi_cjson_at *top, const json_t *root, trm_error *err) {
    const json_t *names;
    TRMI_TRY(fixed_word(top, root, "para_plane_nic_location", false, "device", "host", err));
    TRMI_TRY(trmi_cjson_list(top, root, "para_plane_nic_name", false, &names, err));
    if (names == NULL) {
        return TRM_OK;
    }
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *name = json_array_get(names, i);
        if (!json_is_string(name) || json_string_length(name) == 0) {
            char found[64];
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: para_plane_nic_name[%zu]: the name of a network interface "
                             "expected, found %s",
                             top->name, i, trmi_cjson_found(name, found, sizeof found));
        }
    }
    return trmi_table_count(top, root, "para_plane_nic_num", true, (int64_t)json_array_size(names),
                            "para_plane_nic_name", err);
}

/* Reads the members outside the groups: board_id, chip_info, deploy_mode, network interfaces. */
static trm_status read_head(trm_rank_table *table, const json_t *root, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const char *board, *chip;
    char part[40];
    /* A wrong value of these members would matter only on Ascend: a warning. */
    TRMI_TRY(trmi_cjson_string(&top, root, "board_id", false, &board, err));
    if (board != NULL && strcmp(board, "0x0000") != 0 && strcmp(board, "0x0020") != 0) {
        trmi_warnings_add(&table->warnings, &table->arena,
                          "%s: board_id \"%s\" is neither 0x0000 (x86) nor 0x0020 (ARM)",
                          table->name, trmi_printable(board, part, sizeof part));
    }
    TRMI_TRY(trmi_cjson_string(&top, root, "chip_info", false, &chip, err));
    table->chip_910 = chip != NULL && strcmp(chip, "910") == 0;
    /* `trireme cluster make` writes "cpu", not for Ascend. */
    if (chip != NULL && !table->chip_910 && strcmp(chip, "cpu") != 0) {
        trmi_warnings_add(&table->warnings, &table->arena,
                          "%s: chip_info is \"%s\"; Ascend reads \"910\" only", table->name,
                          trmi_printable(chip, part, sizeof part));
    }
    TRMI_TRY(fixed_word(&top, root, "deploy_mode", false, "lab", "lab", err));
    return check_nics(&top, root, err);
}

/* Reads one device, {device_id, device_ip}. Tables for Ascend 910 need device_ip. */
static trm_status read_device(trm_rank_table *table, const trmi_cjson_at *at, const json_t *device,
                              trmi_table_row *row, trm_error *err) {
    int64_t id;
    char path[128];
    if (!json_is_object(device)) {
        char found[64];
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: an object with device_id expected, found %s",
                         at->name, at->path, trmi_cjson_found(device, found, sizeof found));
    }
    /* A 910 server has devices 0 to 7, and each needs the address of its network interface. */
    const trmi_cjson_range ids = {.high = table->chip_910 ? 7 : TRMI_TABLE_DEVICE_MAX};
    TRMI_TRY(trmi_cjson_integer(at, device, "device_id", ids, &id, err));
    row->device_id = (int32_t)id;
    TRMI_TRY(trmi_cjson_string(at, device, "device_ip", table->chip_910, &row->device_ip, err));
    if (table->chip_910 && row->device_ip[0] == '\0') {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s is empty; the NIC's address from /etc/hccn.conf expected",
                         at->name, trmi_cjson_path(at, "device_ip", path, sizeof path));
    }
    return TRM_OK;
}

/* Adds a pod of template 2; its ranks are the next `count` ones. */
static trm_status add_pod(trm_rank_table *table, const char *pod, int32_t server, int32_t count,
                          int32_t index, trm_error *err) {
    for (int32_t p = 0; p < table->pod_count; p++) {
        if (strcmp(table->pods[p].pod, pod) == 0) {
            char part[40];
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: group_list[0].instance_list[%d].pod_name: \"%s\" is already "
                             "instance_list[%d]; each pod once",
                             table->name, index, trmi_printable(pod, part, sizeof part), p);
        }
    }
    if (!trmi_grow((void **)&table->pods, &table->pod_capacity, table->pod_count + 1,
                   sizeof *table->pods)) {
        return no_memory(table, err);
    }
    trmi_table_server *copy = &table->pods[table->pod_count++];
    *copy = (trmi_table_server){
        .pod = trmi_arena_strdup(&table->arena, pod), .first_rank = table->size, .count = count};
    (void)server;
    return copy->pod != NULL ? TRM_OK : no_memory(table, err);
}

/* Reads one instance: server, then its devices, each of which is a rank. A pod's ranks follow each
 * other.
 *   errors  INVALID, NOMEM */
static trm_status read_instance(trm_rank_table *table, const trmi_cjson_at *group,
                                const json_t *instance, int32_t index, trm_error *err) {
    trmi_cjson_at at = trmi_cjson_below(group, "instance_list", index);
    const char *id, *pod;
    const json_t *devices;
    int64_t rank = 0;
    bool exists, lab = table->form == TRM_RANK_TABLE_GROUPS;
    trmi_table_row row = {.at = {index, 0}};
    char found[64];
    if (!json_is_object(instance)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s: an object with devices and server_id expected, found %s", at.name,
                         at.path, trmi_cjson_found(instance, found, sizeof found));
    }
    /* The server, which may have other instances. */
    TRMI_TRY(trmi_table_server_id(&at, instance, &id, err));
    TRMI_TRY(trmi_table_server_index(table, id, NULL, &row.server, &exists, err));
    TRMI_TRY(trmi_cjson_list(&at, instance, "devices", true, &devices, err));
    size_t count = json_array_size(devices);
    if (count == 0 || (lab && count > 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s.devices: %s expected, found %zu", at.name,
                         at.path, lab ? "exactly one device per instance" : "at least one device",
                         count);
    }
    /* In the lab form the instance has the rank's number. In template 2 ranks follow from the
     * order, and the instance has the name of a pod. */
    if (lab) {
        const trmi_cjson_range ids = {.high = TRMI_TABLE_RANKS_MAX - 1};
        TRMI_TRY(trmi_cjson_integer(&at, instance, "rank_id", ids, &rank, err));
    } else {
        TRMI_TRY(trmi_cjson_string(&at, instance, "pod_name", true, &pod, err));
        if (pod[0] == '\0') {
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s.pod_name is empty; the pod's name expected",
                             at.name, at.path);
        }
        TRMI_TRY(add_pod(table, pod, row.server, (int32_t)count, index, err));
    }
    for (size_t d = 0; d < count; d++) {
        trmi_cjson_at place = trmi_cjson_below(&at, "devices", (int64_t)d);
        row.rank = lab ? (int32_t)rank : table->size;
        row.at[1] = (int32_t)d;
        TRMI_TRY(read_device(table, &place, json_array_get(devices, d), &row, err));
        TRMI_TRY(trmi_table_add_row(table, &row, err));
    }
    return TRM_OK;
}

/* Checks that the group's own server_list (host network interfaces), if it has one, names only
 * servers of the instances. */
static trm_status check_group_servers(trm_rank_table *table, const trmi_cjson_at *at,
                                      const json_t *group, trm_error *err) {
    const json_t *servers;
    TRMI_TRY(trmi_cjson_list(at, group, "server_list", false, &servers, err));
    /* The search adds an unknown server, so remove it again before the error. */
    for (size_t s = 0; servers != NULL && s < json_array_size(servers); s++) {
        trmi_cjson_at place = trmi_cjson_below(at, "server_list", (int64_t)s);
        const char *id;
        int32_t index, before = table->server_count;
        bool exists;
        TRMI_TRY(trmi_table_server_id(&place, json_array_get(servers, s), &id, err));
        TRMI_TRY(trmi_table_server_index(table, id, NULL, &index, &exists, err));
        if (!exists) {
            char part[40];
            table->server_count = before;
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %s.server_id: \"%s\" is the server of no instance", at->name,
                             place.path, trmi_printable(id, part, sizeof part));
        }
    }
    return TRM_OK;
}

/* Contract in ranktable.h. Two forms have a group_list: the lab's form, with one instance for
 * each device, and template 2, with one for each pod. Counts that the file repeats are checked
 * against the lists. */
trm_status trmi_table_read_groups(trm_rank_table *table, const json_t *root, trm_error *err) {
    trmi_cjson_at top = {.name = table->name};
    const json_t *groups, *instances;
    const char *name;
    char found[64];
    /* Members outside the group, then the one group. */
    TRMI_TRY(read_head(table, root, err));
    TRMI_TRY(trmi_cjson_list(&top, root, "group_list", true, &groups, err));
    TRMI_TRY(trmi_table_count(&top, root, "group_count", true, (int64_t)json_array_size(groups),
                              "group_list", err));
    if (json_array_size(groups) != 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: group_list: one group with all devices expected, found %zu",
                         table->name, json_array_size(groups));
    }
    const json_t *group = json_array_get(groups, 0);
    trmi_cjson_at at = trmi_cjson_below(&top, "group_list", 0);
    if (!json_is_object(group)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: group_list[0]: an object expected, found %s",
                         table->name, trmi_cjson_found(group, found, sizeof found));
    }
    TRMI_TRY(trmi_cjson_string(&at, group, "group_name", false, &name, err));
    TRMI_TRY(trmi_cjson_list(&at, group, "instance_list", true, &instances, err));
    size_t count = json_array_size(instances);
    if (count == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: group_list[0].instance_list is empty; one instance per %s expected",
                         table->name, json_object_get(group, "device_count") ? "pod" : "device");
    }
    /* Distinguish the two forms before the instances are read. */
    if (json_object_get(group, "device_count") != NULL ||
        json_object_get(json_array_get(instances, 0), "pod_name") != NULL) {
        table->form = TRM_RANK_TABLE_TEMPLATE2;
    }
    TRMI_TRY(
        trmi_table_count(&at, group, "instance_count", true, (int64_t)count, "instance_list", err));
    for (size_t i = 0; i < count; i++) {
        TRMI_TRY(read_instance(table, &at, json_array_get(instances, i), (int32_t)i, err));
    }
    /* The counts of the group must fit what was read. */
    bool lab = table->form == TRM_RANK_TABLE_GROUPS;
    TRMI_TRY(trmi_table_count(&at, group, lab ? "device_num" : "device_count", true, table->size,
                              lab ? "instance_list" : "all devices lists together", err));
    TRMI_TRY(trmi_table_count(&at, group, "server_num", lab, table->server_count,
                              "the instances' server_id", err));
    return check_group_servers(table, &at, group, err);
}
