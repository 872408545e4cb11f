/* SPDX-License-Identifier: Apache-2.0 */
/* Writing rank tables: made from a list of hosts, merged from one file for each server, and the
 * text of `trireme cluster check`. Also reads /etc/hccn.conf, the source of device addresses.
 *
 *   hosts (make) ---+
 *                   +--> trm_rank_table --> trmi_table_check --> version 1.0 or lab form
 *   files (merge) --+
 *
 * A table is always checked before it is written, so the output can be read again. */
#include "comm/cluster/ranktable.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/format/report.h"
#include "base/os.h"
#include "comm/cluster/cluster_addr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Puts a number as a table has it: as text. */
static void put_number(trmi_report *r, const char *key, int32_t value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    trmi_report_put(r, trmi_string(key, text));
}

/* Puts the members of a device that both forms have. `ip`: "" if it has none. */
static void put_device(trmi_report *r, int32_t id, const char *ip) {
    put_number(r, "device_id", id);
    if (ip[0] != '\0') {
        trmi_report_put(r, trmi_string("device_ip", ip));
    }
}

/* Puts version 1.0. Ranks of one server follow each other, so a new server starts a new object. */
static void put_v1(trmi_report *r, const trm_rank_table *table) {
    trmi_report_put(r, trmi_string("version", "1.0"));
    put_number(r, "server_count", table->server_count);
    trmi_report_open_array(r, "server_list");
    trmi_report_set_rows(r);
    for (int32_t rank = 0; rank < table->size; rank++) {
        const trmi_table_row *row = &table->rows[rank];
        const trmi_table_server *server = &table->servers[row->server];
        if (rank == 0 || row->server != row[-1].server) {
            trmi_report_open_object(r, NULL);
            trmi_report_put(r, trmi_string("server_id", server->id));
            if (server->host_ip != NULL) {
                trmi_report_put(r, trmi_string("host_ip", server->host_ip));
            }
            trmi_report_open_array(r, "device");
            trmi_report_set_rows(r);
        }
        trmi_report_open_object(r, NULL);
        put_device(r, row->device_id, row->device_ip);
        if (row->device_port != 0) {
            put_number(r, "device_port", row->device_port);
        }
        put_number(r, "rank_id", rank);
        trmi_report_close(r);
        if (rank + 1 == table->size || row[1].server != row->server) {
            trmi_report_close(r); /* the devices, and their server */
            trmi_report_close(r);
        }
    }
    trmi_report_close(r);
}

/* Puts the group of the lab form: an instance for each rank. */
static void put_group(trmi_report *r, const trm_rank_table *table) {
    trmi_report_open_object(r, NULL);
    trmi_report_set_rows(r);
    put_number(r, "device_num", table->size);
    put_number(r, "server_num", table->server_count);
    trmi_report_put(r, trmi_string("group_name", ""));
    put_number(r, "instance_count", table->size);
    trmi_report_open_array(r, "instance_list");
    trmi_report_set_rows(r);
    for (int32_t rank = 0; rank < table->size; rank++) {
        const trmi_table_row *row = &table->rows[rank];
        trmi_report_open_object(r, NULL);
        trmi_report_open_array(r, "devices");
        trmi_report_open_object(r, NULL);
        put_device(r, row->device_id, row->device_ip);
        trmi_report_close(r);
        trmi_report_close(r);
        put_number(r, "rank_id", rank);
        trmi_report_put(r, trmi_string("server_id", table->servers[row->server].id));
        trmi_report_close(r);
    }
    trmi_report_close(r);
    trmi_report_close(r);
}

/* Puts the lab form. para_plane_nic_*: interfaces eth0, eth1, ..., one for each device of the first
 * server. */
static void put_lab(trmi_report *r, const trm_rank_table *table) {
    trmi_report_put(r, trmi_string("board_id", "0x0000"),
                    trmi_string("chip_info", table->chip_910 ? "910" : "cpu"),
                    trmi_string("deploy_mode", "lab"), trmi_string("group_count", "1"));
    trmi_report_open_array(r, "group_list");
    trmi_report_set_rows(r);
    put_group(r, table);
    trmi_report_close(r);
    int32_t nics = table->servers[0].count;
    trmi_report_put(r, trmi_string("para_plane_nic_location", table->chip_910 ? "device" : "host"));
    trmi_report_open_array(r, "para_plane_nic_name");
    for (int32_t n = 0; n < nics; n++) {
        char name[16];
        snprintf(name, sizeof name, "eth%d", n);
        trmi_report_put(r, trmi_string(NULL, name));
    }
    trmi_report_close(r);
    put_number(r, "para_plane_nic_num", nics);
}

/* Writes the table in one of the two forms that can be written. */
static trm_status write_table(const trm_rank_table *table, trm_rank_table_form form, char **json,
                              trm_error *err) {
    trmi_report r;
    trmi_report_begin(&r, true);
    trmi_report_set_rows(&r);
    r.spaced = true;
    if (form == TRM_RANK_TABLE_GROUPS) {
        put_lab(&r, table);
    } else {
        put_v1(&r, table);
    }
    trmi_report_put(&r, trmi_string("status", "completed"));
    return trmi_report_give(&r, "for the text of a rank table", json, err);
}

/* Adds a host of the list with all its devices, 0 to devices - 1; ranks are numbered in order.
 *   errors  INVALID, NOMEM */
static trm_status add_host(trm_rank_table *table, const trm_rank_table_host *host, int32_t index,
                           trm_error *err) {
    trmi_table_row row = {.at = {index, 0}};
    bool exists;
    char part[48];
    /* Check the host. */
    if (host->host == NULL || host->host[0] == '\0' || strlen(host->host) > TRMI_TABLE_ID_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "host %d: a name of 1 to %d characters expected", index,
                         TRMI_TABLE_ID_MAX);
    }
    trmi_printable(host->host, part, sizeof part);
    if (host->devices < 1 || host->devices > TRMI_TABLE_DEVICE_MAX + 1) {
        return TRMI_FAIL(err, TRM_INVALID, "host %s: 1 to %d devices expected, found %d", part,
                         TRMI_TABLE_DEVICE_MAX + 1, host->devices);
    }
    /* A host that is named by its address gets host_ip as well. */
    const char *ip = trmi_ip_family(host->host) != 0 ? host->host : NULL;
    TRMI_TRY(trmi_table_server_index(table, host->host, ip, &row.server, &exists, err));
    if (exists) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "host %s is listed twice; each host once, with all its "
                         "devices",
                         part);
    }
    /* Make one rank for each device. */
    for (int32_t d = 0; d < host->devices; d++) {
        row.rank = table->size;
        row.device_id = d;
        row.at[1] = d;
        row.device_ip = host->device_ips != NULL ? host->device_ips[d] : NULL;
        TRMI_TRY(trmi_table_add_row(table, &row, err));
    }
    return TRM_OK;
}

/* Contract in trireme/dist.h. The table is checked as one that was read from a file, so that a
 * table which this function writes is one that it accepts. */
trm_status trm_rank_table_make(const trm_rank_table_host *hosts, int32_t count,
                               trm_rank_table_form form, char **json, trm_error *err) {
    TRMI_NEED(err, json);
    if (count > 0) {
        TRMI_NEED(err, hosts);
    }
    if (count < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "a rank table needs at least one host");
    }
    /* The other forms can only be read. */
    if (form != TRM_RANK_TABLE_V1 && form != TRM_RANK_TABLE_GROUPS) {
        return TRMI_FAIL(err, TRM_INVALID, "form %d cannot be made; version 1.0 or lab expected",
                         (int)form);
    }
    trm_rank_table *table;
    TRMI_TRY(TRMI_NEW(err, table, 1, "for a rank table"));
    strcpy(table->name, "new rank table");
    table->form = TRM_RANK_TABLE_V1;
    trm_status status = TRM_OK;
    for (int32_t h = 0; h < count && status == TRM_OK; h++) {
        status = add_host(table, &hosts[h], h, err);
    }
    if (status == TRM_OK) {
        status = trmi_table_check(table, err);
    }
    /* A table with addresses on devices 0 to 7 is for Ascend 910. */
    if (status == TRM_OK) {
        bool eight = true;
        for (int32_t r = 0; r < table->size; r++) {
            eight &= table->rows[r].device_id <= 7 && table->rows[r].device_ip[0] != '\0';
        }
        table->chip_910 = eight;
        status = write_table(table, form, json, err);
    }
    trm_rank_table_destroy(table);
    return status;
}

/* Appends the ranks of `from` after those of `into`, renumbered. A server may occur in only one of
 * the files. */
static trm_status merge_one(trm_rank_table *into, const trm_rank_table *from, trm_error *err) {
    for (int32_t r = 0; r < from->size; r++) {
        trmi_table_row row = from->rows[r];
        const trmi_table_server *server = &from->servers[row.server];
        bool exists;
        int32_t before = into->size;
        TRMI_TRY(
            trmi_table_server_index(into, server->id, server->host_ip, &row.server, &exists, err));
        /* The server exists because an earlier row of this file has added it, or because it is in
         * an earlier file. The first row of a server distinguishes the two. */
        if (exists && (r == 0 || from->rows[r - 1].server != from->rows[r].server)) {
            char part[40];
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: server \"%s\" is in an earlier file too; one file per server",
                             from->name, trmi_printable(server->id, part, sizeof part));
        }
        row.rank = before;
        row.at[0] = row.server;
        row.at[1] = r;
        TRMI_TRY(trmi_table_add_row(into, &row, err));
    }
    return TRM_OK;
}

/* Contract in trireme/dist.h. */
trm_status trm_rank_table_merge(const char *const *paths, int32_t count, char **json,
                                trm_error *err) {
    TRMI_NEED(err, json);
    if (count > 0) {
        TRMI_NEED(err, paths);
    }
    if (count < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "merge needs at least one rank table file");
    }
    trm_rank_table *into = trmi_alloc(sizeof *into), *from = NULL;
    if (into == NULL) {
        return TRMI_NO_MEMORY(err, "for a rank table");
    }
    strcpy(into->name, "merged rank table");
    trm_status status = TRM_OK;
    for (int32_t f = 0; f < count && status == TRM_OK; f++) {
        TRMI_TRY_GOTO(status, trm_rank_table_read(paths[f], &from, err), done);
        /* The first file determines the form. */
        if (f == 0) {
            into->form = from->form;
            into->chip_910 = from->chip_910;
        }
        if (from->form != into->form || from->form == TRM_RANK_TABLE_TEMPLATE2 ||
            from->form == TRM_RANK_TABLE_V2) {
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: only tables of one form are merged, all version 1.0 or all lab",
                               from->name);
            goto done;
        }
        TRMI_TRY_GOTO(status, merge_one(into, from, err), done);
        trm_rank_table_destroy(from);
        from = NULL;
    }
    TRMI_TRY_GOTO(status, trmi_table_check(into, err), done);
    status = write_table(into, into->form, json, err);
done:
    trm_rank_table_destroy(from);
    trm_rank_table_destroy(into);
    return status;
}

/* Parses a line of hccn.conf: "address_3=192.168.100.104" returns 3 and *ip; -1 for other lines, -2
 * for a wrong address line. It changes the line. */
static int hccn_line(char *line, char **ip) {
    while (*line == ' ' || *line == '\t') {
        line++;
    }
    if (strncmp(line, "address_", 8) != 0) {
        return -1;
    }
    /* Cut the line into key and value, both without blanks. */
    char *equals = strchr(line, '=');
    int64_t index;
    if (equals == NULL) {
        return -2;
    }
    *equals = '\0';
    line[8 + strcspn(line + 8, " \t")] = '\0';
    *ip = equals + 1 + strspn(equals + 1, " \t");
    (*ip)[strcspn(*ip, " \t\r")] = '\0';
    if (!trmi_decimal(line + 8, &index) || index > TRMI_TABLE_DEVICE_MAX ||
        trmi_ip_family(*ip) == 0) {
        return -2;
    }
    return (int)index;
}

/* Parses the text of hccn.conf, which it changes: ips[device] for all devices, numbered without
 * gaps, as pointers into the text. Lines of other kinds are skipped.
 *   errors  INVALID */
static trm_status hccn_parse(const char *name, char *text, const char *ips[], int32_t *count,
                             trm_error *err) {
    /* Enter each address; a device may have only one. */
    int32_t line_number = 0, highest = -1;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *ip = NULL;
        int index = hccn_line(line, &ip);
        line_number++;
        if (index == -2 || (index >= 0 && ips[index] != NULL)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: line %d: \"address_N=IP\" expected, each device once", name,
                             line_number);
        }
        if (index >= 0) {
            ips[index] = ip;
            highest = index > highest ? index : highest;
        }
    }
    /* All devices up to the highest must have one. */
    for (int32_t i = 0; i <= highest; i++) {
        if (ips[i] == NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: address_%d is missing; devices are numbered "
                             "without gaps",
                             name, i);
        }
    }
    if (highest < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: no \"address_N=IP\" line found", name);
    }
    *count = highest + 1;
    return TRM_OK;
}

trm_status trm_hccn_conf_read(const char *path, const char *const **ips, int32_t *count,
                              trm_error *err) {
    TRMI_NEED(err, path, ips, count);
    char name[48];
    uint8_t *text;
    size_t bytes;
    trmi_short_name(path, name);
    trm_status status = trmi_os_read_file(path, 1 << 20, &text, &bytes, err);
    if (status != TRM_OK) {
        return status;
    }
    /* The caller gets one block: the pointers, then the text that they point into. */
    size_t head = (TRMI_TABLE_DEVICE_MAX + 1) * sizeof(char *);
    char *block = trmi_alloc(head + bytes + 1);
    if (block == NULL) {
        trmi_free(text);
        return TRMI_NO_MEMORY(err, "for %s", name);
    }
    memcpy(block + head, text, bytes);
    trmi_free(text);
    status = hccn_parse(name, block + head, (const char **)(void *)block, count, err);
    if (status != TRM_OK) {
        trmi_free(block);
        return status;
    }
    *ips = (const char *const *)(void *)block;
    return TRM_OK;
}

/* Returns the name of a form, for messages. */
static const char *form_name(const trm_rank_table *table) {
    return table->form == TRM_RANK_TABLE_GROUPS      ? "lab"
           : table->form == TRM_RANK_TABLE_TEMPLATE2 ? "template 2"
           : table->form == TRM_RANK_TABLE_V2        ? "version 2.0"
           : strcmp(table->version, "1.2") == 0      ? "version 1.2"
                                                     : "version 1.0";
}

/* Puts the table. */
static void put_table(const trm_rank_table *table, trmi_report *r) {
    uint8_t digest[32];
    char hex[65];
    trmi_table_digest(table, digest);
    for (int i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    trmi_report_put(r, trmi_string("event", "rank_table"), trmi_bool("valid", true),
                    trmi_string("form", form_name(table)), trmi_int("ranks", table->size));
    trmi_report_open_array(r, "servers");
    for (int32_t s = 0; s < table->server_count; s++) {
        const trmi_table_server *server = &table->servers[s];
        trmi_report_open_object(r, NULL);
        trmi_report_put(r, trmi_string("server_id", server->id),
                        trmi_int("first_rank", server->first_rank),
                        trmi_int("ranks", server->count));
        trmi_report_close(r);
    }
    trmi_report_close(r);
    trmi_report_open_array(r, "warnings");
    for (int32_t w = 0; w < table->warnings.count; w++) {
        trmi_report_put(r, trmi_string(NULL, table->warnings.lines[w]));
    }
    trmi_report_close(r);
    trmi_report_put(r, trmi_string("digest", hex));
}

/* Says the table: a line for each server with its ranks and devices. */
static void say_table(const trm_rank_table *table, trmi_report *r) {
    trmi_report_tell(r,
                     "[name]%s: valid, [form]%s, [ranks]%d rank[one]?{|s} on [servers]%d "
                     "server[single]?{|s}\n",
                     trmi_string("name", table->name), trmi_bool("one", table->size == 1),
                     trmi_int("servers", table->server_count),
                     trmi_bool("single", table->server_count == 1));
    for (int32_t s = 0; s < table->server_count; s++) {
        const trmi_table_server *server = &table->servers[s];
        bool elsewhere = server->host_ip != NULL && strcmp(server->host_ip, server->id) != 0;
        trmi_report_tell(r,
                         elsewhere ? "  [id]%s at [ip]%s: ranks [first]%d to [last]%d, devices"
                                   : "  [id]%s: ranks [first]%d to [last]%d, devices",
                         trmi_string("id", server->id), trmi_string("ip", server->host_ip),
                         trmi_int("first", server->first_rank),
                         trmi_int("last", server->first_rank + server->count - 1));
        for (int32_t rank = 0; rank < server->count; rank++) {
            trmi_report_tell(r, " [device]%d",
                             trmi_int("device", table->rows[server->first_rank + rank].device_id));
        }
        trmi_report_say(r, "\n");
    }
    trmi_report_say_each(r, "warnings", "  warning: []%s\n", NULL);
    trmi_report_say(r, "  digest [digest]%.16s\n");
}

/* Contract in trireme/dist.h. The text is what `trireme cluster check` prints. */
trm_status trm_rank_table_text(const trm_rank_table *table, bool json, char **out, trm_error *err) {
    TRMI_NEED(err, table, out);
    trmi_report r;
    trmi_report_begin(&r, json);
    r.spaced = true;
    put_table(table, &r);
    say_table(table, &r);
    return trmi_report_give(&r, "for the text of a rank table", out, err);
}
