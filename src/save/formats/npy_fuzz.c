/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as .npy or .npz. */
#include "fuzz_seed.h"

#include "save/formats/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void make_file(int kind, uint8_t **file, size_t *bytes) {
    float values[4] = {1, 2, 3, 4};
    trm_named_tensor arrays[] = {{"a", {values, TRM_FLOAT32, trm_shape_of(4)}},
                                 {"b", {values, TRM_FLOAT32, trm_shape_of(2, 2)}}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/trireme_npy_fuzz_%ld", (long)getpid());
    trm_status status = kind == 0
                            ? trm_npy_write(path, &arrays[1].tensor, NULL)
                            : trmi_npz_write(path, arrays, 2, kind == 1 ? 0 : UINT32_MAX, NULL);
    if (status != TRM_OK || trmi_os_read_file(path, 60000, file, bytes, NULL) != TRM_OK) {
        abort();
    }
    unlink(path);
}

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static uint8_t *file[3];
    static size_t bytes[3];
    int kind = index % 3;
    if (file[kind] == NULL) {
        make_file(kind, &file[kind], &bytes[kind]);
    }
    (void)capacity;
    memcpy(data, file[kind], bytes[kind]);
    return bytes[kind];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_npz *file;
    trm_error err = {0};
    if (trmi_npz_parse(data, bytes, "fuzz", &file, &err) != TRM_OK) {
        if (err.message[0] == '\0') {
            abort();
        }
    } else {
        /* read every byte: the sanitiser reports those outside the file */
        unsigned sum = 0;
        for (int64_t i = 0; i < trm_npz_count(file); i++) {
            const trm_npz_entry *entry = trm_npz_at(file, i);
            for (int64_t b = 0; b < entry->bytes; b++) {
                sum += ((const uint8_t *)entry->tensor.data)[b];
            }
        }
        trm_npz_close(file);
        *(volatile unsigned *)&sum = sum;
    }
    /* After the archive's checksums: the header alone. */
    trmi_npy array;
    for (size_t start = 0; start < bytes && start < 512; start += 64) {
        (void)!trmi_npy_parse(data + start, bytes - start, "fuzz", &array, NULL);
    }
    return 0;
}
