/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file: refused with a sentence, or every tensor lies within them. */
#include "fuzz_seed.h"

#include "save/formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const char *const headers[] = {
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],"
        "\"data_offsets\":[0,8]},\"b\\u00e9\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]"
        "}}",
        "{\"x\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"y\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
        "\"z\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[8,9]}}   ",
    };
    const char *header = headers[index % 2];
    uint64_t length = strlen(header);
    (void)capacity;
    memcpy(data, &length, 8);
    memcpy(data + 8, header, length);
    memset(data + 8 + length, 0x40, 9);
    return 8 + length + 9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_safetensors *file = NULL;
    trm_error err = {0};
    if (trmi_safetensors_parse(data, bytes, "fuzz", &file, &err) != TRM_OK) {
        if (err.message[0] == '\0') {
            abort();
        }
        return 0;
    }
    /* read everything: the sanitiser reports what lies outside the file */
    uint64_t sum = 0;
    for (int64_t i = 0; i < trm_safetensors_count(file); i++) {
        const trm_safetensors_entry *entry = trm_safetensors_at(file, i);
        if (trm_safetensors_find(file, entry->name) != entry) {
            abort();
        }
        for (int64_t b = 0; b < entry->bytes; b++) {
            sum += ((const uint8_t *)entry->tensor.data)[b];
        }
        for (int32_t d = 0; d < entry->rank; d++) {
            sum += (uint64_t)entry->dims[d];
        }
    }
    trm_safetensors_close(file);
    return sum == UINT64_MAX ? 0 : 0;
}
