/* SPDX-License-Identifier: Apache-2.0 */
/* The rules that all forms of a rank table share: ranks are 0 .. n-1, each once; device addresses
 * are valid, unique and equally many; ranks of one server follow each other; a device has one rank.
 * A breach is an error. Rules that only Ascend has are warnings here.
 *
 * Each rule is checked by sorting and comparing neighbours, in O(n log n) for n ranks. Messages
 * name the place in the file (trmi_table_place), not the position after sorting. */
#include "comm/cluster/ranktable.h"

#include "base/error.h"
#include "comm/cluster/cluster_addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sorts rows by rank, then by position in the file. */
static int by_rank(const void *a, const void *b) {
    const trmi_table_row *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->at[0] != y->at[0] ? x->at[0] - y->at[0] : x->at[1] - y->at[1];
}

/* Sorts the rows by rank and checks that ranks are 0 to n-1, each once. */
static trm_status check_ranks(trm_rank_table *table, trm_error *err) {
    char here[64], there[64];
    int32_t missing = -1; /* the first one */
    qsort(table->rows, (size_t)table->size, sizeof *table->rows, by_rank);
    for (int32_t r = 0; r < table->size; r++) {
        const trmi_table_row *row = &table->rows[r];
        /* After sorting, equal ranks are neighbours. Without equal ranks, a gap means that the last
         * rank is too large, perhaps long after the gap. */
        trmi_table_place(table, row, here, sizeof here);
        if (r > 0 && row[-1].rank == row->rank) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s.rank_id: %d is taken by %s; each rank once",
                             table->name, here, row->rank,
                             trmi_table_place(table, row - 1, there, sizeof there));
        }
        missing = missing < 0 && row->rank != r ? r : missing;
        if (row->rank >= table->size) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %s.rank_id: 0 to %d expected for %d devices, found %d; rank %d "
                             "is missing",
                             table->name, here, table->size - 1, table->size, row->rank, missing);
        }
    }
    return TRM_OK;
}

/* One address of a device, in binary form. */
typedef struct address {
    uint8_t bytes[16]; /* IPv4: the first four */
    int32_t family;    /* 4 or 6 */
    int32_t row;       /* index in `rows` */
} address;

/* Compares addresses, then rows, so that the message names the first of two equal ones. */
static int by_address(const void *a, const void *b) {
    int order = memcmp(((const address *)a)->bytes, ((const address *)b)->bytes, 16);
    return order != 0 ? order : ((const address *)a)->row - ((const address *)b)->row;
}

/* Parses one address of a device's list ("a" or "a,b") and advances *text past it. */
static trm_status take_address(const trm_rank_table *table, int32_t row, const char **text,
                               address *out, trm_error *err) {
    char part[64], here[64];
    size_t length = strcspn(*text, ",");
    /* A longer text is cut, and is then no address. */
    snprintf(part, sizeof part, "%.*s", (int)(length < 63 ? length : 63), *text);
    *out = (address){.row = row, .family = trmi_ip_family(part)};
    if (out->family == 0) {
        char shown[48];
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s.device_ip: an IPv4 or IPv6 address expected, found \"%s\"",
                         table->name, trmi_table_place(table, &table->rows[row], here, sizeof here),
                         trmi_printable(part, shown, sizeof shown));
    }
    inet_pton(out->family == 4 ? AF_INET : AF_INET6, part, out->bytes);
    *text += length + ((*text)[length] == ',' ? 1 : 0);
    return TRM_OK;
}

/* Returns the number of addresses in a list. */
static int32_t address_count(const char *text) {
    int32_t count = text[0] != '\0';
    for (; *text != '\0'; text++) {
        count += *text == ',';
    }
    return count;
}

/* Fills `all` (room for the sum of all lists) after checks: valid, one family, the same number for
 * each device. */
static trm_status gather_addresses(const trm_rank_table *table, address *all, trm_error *err) {
    int32_t filled = 0;
    char here[64], there[64];
    for (int32_t r = 0; r < table->size; r++) {
        const trmi_table_row *row = &table->rows[r];
        const char *text = row->device_ip;
        int32_t count = address_count(text), first = address_count(table->rows[0].device_ip);
        if (count != first) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %s.device_ip has %d addresses, %s has %d; equally many expected "
                             "on every device",
                             table->name, trmi_table_place(table, row, here, sizeof here), count,
                             trmi_table_place(table, table->rows, there, sizeof there), first);
        }
        for (int32_t i = 0; i < count; i++, filled++) {
            TRMI_TRY(take_address(table, r, &text, &all[filled], err));
            if (all[filled].family != all[0].family) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "%s: %s.device_ip is IPv%d, that of rank 0 IPv%d; one family "
                                 "expected everywhere",
                                 table->name, trmi_table_place(table, row, here, sizeof here),
                                 all[filled].family, all[0].family);
            }
        }
    }
    return TRM_OK;
}

/* Checks the addresses of all devices: gather_addresses, then sorts them to find duplicates. */
static trm_status check_addresses(const trm_rank_table *table, trm_error *err) {
    int64_t total = 0;
    for (int32_t r = 0; r < table->size; r++) {
        total += address_count(table->rows[r].device_ip);
    }
    if (total == 0) {
        return TRM_OK;
    }
    /* gather_addresses fails at a device with another number of addresses than the first, so it
     * cannot write beyond `all`. */
    address *all;
    TRMI_TRY(TRMI_NEW(err, all, total + 1, "for the addresses of %s", table->name));
    trm_status status = gather_addresses(table, all, err);
    if (status == TRM_OK) {
        qsort(all, (size_t)total, sizeof *all, by_address);
    }
    for (int64_t i = 1; i < total && status == TRM_OK; i++) {
        if (memcmp(all[i].bytes, all[i - 1].bytes, 16) == 0) {
            char here[64], there[64], part[48];
            const trmi_table_row *row = &table->rows[all[i].row];
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: %s.device_ip: %s is also that of %s; each address once",
                               table->name, trmi_table_place(table, row, here, sizeof here),
                               trmi_printable(row->device_ip, part, 40),
                               trmi_table_place(table, &table->rows[all[i - 1].row], there, 64));
        }
    }
    trmi_free(all);
    return status;
}

/* Checks that the ranks of a server follow each other; fills first_rank and count of the
 * servers. */
static trm_status check_blocks(trm_rank_table *table, trm_error *err) {
    for (int32_t r = 0; r < table->size; r++) {
        trmi_table_server *server = &table->servers[table->rows[r].server];
        if (server->count == 0) {
            server->first_rank = r;
        } else if (server->first_rank + server->count != r) {
            char part[40];
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: rank %d is on server \"%s\", whose ranks are %d to %d; ranks of "
                             "one server must follow each other",
                             table->name, r, trmi_printable(server->id, part, sizeof part),
                             server->first_rank, server->first_rank + server->count - 1);
        }
        server->count++;
    }
    return TRM_OK;
}

/* Sorts pointers to rows by server and device. */
static int by_server_device(const void *a, const void *b) {
    const trmi_table_row *x = *(const trmi_table_row *const *)a;
    const trmi_table_row *y = *(const trmi_table_row *const *)b;
    if (x->server != y->server) {
        return x->server - y->server;
    }
    return x->device_id != y->device_id ? x->device_id - y->device_id : x->rank - y->rank;
}

/* Checks that no two ranks have the same device of the same server.
 *   errors  INVALID, NOMEM */
static trm_status check_devices(const trm_rank_table *table, trm_error *err) {
    const trmi_table_row **order;
    TRMI_TRY(TRMI_NEW(err, order, table->size, "for %d ranks of %s", table->size, table->name));
    for (int32_t r = 0; r < table->size; r++) {
        order[r] = &table->rows[r];
    }
    qsort(order, (size_t)table->size, sizeof *order, by_server_device);
    trm_status status = TRM_OK;
    for (int32_t r = 1; r < table->size && status == TRM_OK; r++) {
        if (order[r]->server == order[r - 1]->server &&
            order[r]->device_id == order[r - 1]->device_id) {
            char here[64], part[40];
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: %s.device_id: device %d of server \"%s\" already has rank %d; "
                               "one rank per device",
                               table->name, trmi_table_place(table, order[r], here, sizeof here),
                               order[r]->device_id,
                               trmi_printable(table->servers[order[r]->server].id, part, 40),
                               order[r - 1]->rank);
        }
    }
    trmi_free(order);
    return status;
}

/* Warns about orders that work here but are slow or refused on Ascend. One warning of each kind. */
static void warn_order(trm_rank_table *table) {
    for (int32_t r = 1; r < table->size; r++) {
        const trmi_table_row *row = &table->rows[r];
        char a[40], b[40];
        if (row->server != row[-1].server &&
            strcmp(table->servers[row[-1].server].id, table->servers[row->server].id) > 0) {
            trmi_warnings_add(&table->warnings, &table->arena,
                              "%s: server \"%s\" (rank %d) comes before \"%s\" (rank %d); Ascend "
                              "wants ranks in dictionary order of server_id",
                              table->name,
                              trmi_printable(table->servers[row[-1].server].id, a, sizeof a), r - 1,
                              trmi_printable(table->servers[row->server].id, b, sizeof b), r);
            break;
        }
    }
    /* The devices of a server must rise. */
    for (int32_t r = 1; r < table->size; r++) {
        const trmi_table_row *row = &table->rows[r];
        if (row->server == row[-1].server && row->device_id < row[-1].device_id) {
            trmi_warnings_add(
                &table->warnings, &table->arena,
                "%s: rank %d is on device %d, rank %d on device %d; rank order should "
                "follow the physical order",
                table->name, r - 1, row[-1].device_id, r, row->device_id);
            break;
        }
    }
}

/* Warns about numbers of devices that servers with Ascend 910 do not allow. */
static void warn_910(trm_rank_table *table) {
    for (int32_t s = 0; s < table->server_count; s++) {
        const trmi_table_server *server = &table->servers[s];
        /* Devices 0 to 3 are one half of a 910 server, 4 to 7 the other. */
        int32_t low = 0;
        for (int32_t r = server->first_rank; r < server->first_rank + server->count; r++) {
            low += table->rows[r].device_id < 4;
        }
        char part[40];
        trmi_printable(server->id, part, sizeof part);
        if (server->count != 1 && server->count != 2 && server->count != 4 && server->count != 8) {
            trmi_warnings_add(&table->warnings, &table->arena,
                              "%s: server \"%s\" has %d devices; a 910 server uses 1, 2, 4 "
                              "or 8",
                              table->name, part, server->count);
        } else if ((server->count == 2 || server->count == 4) && low != 0 && low != server->count) {
            trmi_warnings_add(&table->warnings, &table->arena,
                              "%s: server \"%s\" takes devices from both halves (0-3 and "
                              "4-7); %d devices of a 910 must come from one",
                              table->name, part, server->count);
        }
        if (server->count != table->servers[0].count) {
            trmi_warnings_add(&table->warnings, &table->arena,
                              "%s: server \"%s\" has %d devices, the first %d; 910 servers "
                              "use equally many",
                              table->name, part, server->count, table->servers[0].count);
        }
    }
}

/* Errors first, in the order in which the checks rely on each other: check_ranks sorts the rows,
 * check_blocks numbers the servers' ranks, which warn_910 uses. */
trm_status trmi_table_check(trm_rank_table *table, trm_error *err) {
    TRMI_TRY(check_ranks(table, err));
    TRMI_TRY(check_addresses(table, err));
    TRMI_TRY(check_blocks(table, err));
    TRMI_TRY(check_devices(table, err));
    warn_order(table);
    if (table->chip_910) {
        warn_910(table);
    }
    if (table->server_count > 1 && table->form == TRM_RANK_TABLE_V1 &&
        table->rows[0].device_ip[0] == '\0') {
        trmi_warnings_add(&table->warnings, &table->arena,
                          "%s: no device_ip; Ascend needs it with several servers", table->name);
    }
    return TRM_OK;
}
