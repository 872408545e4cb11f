/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: messages of an untrusted peer. Every view that the decoder returns must stay
 * within the bytes that arrived; reading all of them lets the sanitiser find one that does not. */
#include "fuzz_seed.h"

#include "ps/wire/codec.h"
#include "ps/table/table.h"

#include <stdlib.h>
#include <string.h>

static const int32_t widths[] = {1, 16, 5};
static const trmi_ps_shape shape = {.shards = 3, .tables = 3, .widths = widths};

/* Writes a valid message of one of four kinds. */
size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const uint16_t kinds[] = {TRMI_PS_PULL, TRMI_PS_PUSH, TRMI_PS_HELLO, TRMI_PS_TABLE};
    trmi_ps_header header = {.kind = kinds[index % 4], .dtype = TRM_FLOAT32, .section_count = 3};
    trmi_ps_section sections[3] = {{.shard = 0, .table = 1, .count = 4},
                                   {.shard = 0, .table = 2, .count = (int64_t)index},
                                   {.shard = 2, .table = 0, .count = 9}};
    if (index % 4 >= 2) {
        trm_table_options table = {.name = "users", .width = 16};
        trmi_ps_encode_note(&header, NULL, index % 4 == 3 ? &table : NULL, data);
        return trmi_ps_note_size((trmi_ps_kind)header.kind);
    }
    size_t bytes = trmi_ps_size((trmi_ps_kind)header.kind, TRM_FLOAT32, sections, 3, widths);
    if (bytes == 0 || bytes > capacity) {
        return 0;
    }
    memset(data, 0, bytes);
    trmi_ps_encode(&header, sections, widths, data);
    return bytes;
}

static volatile uint64_t sink;

/* Decodes a message as a server would and reads everything that it returns. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trmi_ps_header header;
    trm_error err;
    if (trmi_ps_decode_header(data, bytes, &header, &err) != TRM_OK) {
        return 0;
    }
    trmi_ps_note note;
    trm_table_options table, checked;
    if (trmi_ps_decode_note(data, bytes, &header, &note, &table, &err) == TRM_OK &&
        header.kind == TRMI_PS_TABLE) {
        sink += trmi_row_table_check(&table, &checked, &err) == TRM_OK;
    }
    if (header.section_count > bytes / sizeof(trmi_ps_wire_section)) {
        return 0;
    }
    trmi_ps_section *sections = malloc((header.section_count + 1) * sizeof *sections);
    if (trmi_ps_decode(data, bytes, &header, &shape, sections, &err) == TRM_OK) {
        for (uint32_t i = 0; i < header.section_count; i++) {
            for (int64_t k = 0; k < sections[i].count; k++) {
                uint64_t key;
                memcpy(&key, sections[i].keys + k, sizeof key);
                sink += key;
            }
            int64_t values = header.kind == TRMI_PS_PUSH
                                 ? sections[i].count * widths[sections[i].table] *
                                       (int64_t)trm_dtype_bytes((trm_dtype)header.dtype)
                                 : 0;
            for (int64_t k = 0; k < values; k++) {
                sink += sections[i].values[k];
            }
        }
    }
    free(sections);
    return 0;
}
