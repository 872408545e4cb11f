/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rows and table declarations of running servers, for audits and for programs that do not
 * know the tables. Each function is one order (TRMI_PS_CONTROL) to one server and its answer;
 * training goes on meanwhile. The sizes of an answer are checked against the declared table before
 * anything is copied, because a server of another job or version may answer. */
#include "ps/client/client.h"
#include "ps/wire/table_wire.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"

/* Contract in trireme/ps.h. The answer has info, values, slots and the last writers, in
 * this order. */
trm_status trm_ps_audit_row(trm_ps_client *client, int32_t table, uint64_t key, trm_row_info *info,
                            float *values, float *slots, trm_ps_writer writers[TRM_PS_WRITERS],
                            int32_t *writer_count, trm_error *err) {
    TRMI_NEED(err, client);
    if (table < 0 || (uint32_t)table >= client->table_count) {
        return TRMI_FAIL(err, TRM_INVALID, "table %d: the client has %u tables, counted from 0",
                         table, client->table_count);
    }
    /* the server that has the row */
    uint32_t shard =
        trmi_shard_of_row(&client->tables[table].placement, key, client->servers, client->shards);
    trmi_ps_note note = {.value = {TRMI_ORDER_ROW, table, (int64_t)key}};
    trmi_row_layout layout;
    TRMI_TRY(trmi_client_order(client, &client->peers[shard / client->shards], TRMI_PS_CONTROL,
                               &note, NULL, NULL, 0, err));
    trmi_row_layout_make(&client->tables[table], &layout);
    /* the size of the answer follows from the layout */
    size_t value_bytes = 4 * (size_t)layout.width, slot_bytes = 4 * (size_t)layout.slot_count;
    size_t row_bytes = sizeof *info + value_bytes + slot_bytes, have = client->answer.trailer_bytes;
    if (have == 0) {
        return TRM_END;
    }
    if (have < row_bytes || (have - row_bytes) % sizeof *writers != 0 ||
        have - row_bytes > TRM_PS_WRITERS * sizeof *writers) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a row of %zu bytes", have);
    }
    /* copy the parts that the caller wants */
    const uint8_t *from = client->answer.trailer;
    if (info != NULL) {
        memcpy(info, from, sizeof *info);
    }
    if (values != NULL) {
        memcpy(values, from + sizeof *info, value_bytes);
    }
    if (slots != NULL) {
        memcpy(slots, from + sizeof *info + value_bytes, slot_bytes);
    }
    if (writers != NULL) {
        memcpy(writers, from + row_bytes, have - row_bytes);
        *writer_count = (int32_t)((have - row_bytes) / sizeof *writers);
    }
    return TRM_OK;
}

/* Contract in trireme/ps.h. The audit without the row's last writers. */
trm_status trm_ps_row(trm_ps_client *client, int32_t table, uint64_t key, trm_row_info *info,
                      float *values, float *slots, trm_error *err) {
    TRMI_NEED(err, client);
    return trm_ps_audit_row(client, table, key, info, values, slots, NULL, NULL, err);
}

/* Declares table `number` as server 0 has it; *count: how many tables it has. */
static trm_status adopt_table(trm_ps_client *client, int32_t number, int32_t *count,
                              trm_error *err) {
    trmi_ps_note note = {.value = {TRMI_ORDER_TABLES, number}};
    trm_table_options options;
    trmi_ps_wire_table wire;
    char name[TRMI_TABLE_NAME_MAX + 1];
    TRMI_TRY(
        trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, err));
    size_t bytes = client->answer.trailer_bytes;
    *count = (int32_t)client->answer.note.value[1];
    if (number >= *count) {
        return TRM_OK;
    }
    if (bytes <= sizeof wire || bytes > sizeof wire + sizeof name ||
        client->answer.trailer[bytes - 1] != '\0') {
        return TRMI_FAIL(err, TRM_CORRUPT, "server 0 describes table %d in %zu bytes", number,
                         bytes);
    }
    memcpy(&wire, client->answer.trailer, sizeof wire);
    memcpy(name, client->answer.trailer + sizeof wire, bytes - sizeof wire);
    trmi_ps_get_table(&wire, &options);
    options.name = name;
    int32_t same;
    return trm_ps_client_table(client, &options, &same, err);
}

/* Contract in trireme/ps.h. Each answer has the number of tables, so the loop needs no
 * request of its own. */
trm_status trm_ps_client_adopt(trm_ps_client *client, int32_t *count, trm_error *err) {
    TRMI_NEED(err, client, count);
    *count = 1;
    for (int32_t number = (int32_t)client->table_count; number < *count; number++) {
        TRMI_TRY(adopt_table(client, number, count, err));
    }
    *count = (int32_t)client->table_count;
    return TRM_OK;
}

/* Contract in trireme/ps.h. The number of slots follows from the table's rule. */
const trm_table_options *trm_ps_client_table_options(const trm_ps_client *client, int32_t table,
                                                     int32_t *slots) {
    TRMI_NEED_OR(NULL, NULL, client, slots);
    if (table < 0 || (uint32_t)table >= client->table_count) {
        return NULL;
    }
    trmi_row_layout layout;
    trmi_row_layout_make(&client->tables[table], &layout);
    *slots = layout.slot_count;
    return &client->tables[table];
}
