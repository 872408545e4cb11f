/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10 record files and the records.txt beside generated ones. */
#include "fuzz_seed.h"

#include "data/image/cifar10.h"

#include <stdlib.h>
#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const char list[] = "data_batch_1.bin 20\ntest_batch.bin 3\n";
    if (index % 2 == 0) {
        memcpy(data, list, sizeof list - 1);
        return sizeof list - 1;
    }
    size_t bytes = (size_t)(index % 3 + 1) * TRMI_CIFAR10_RECORD;
    if (bytes > capacity) {
        abort();
    }
    memset(data, index % 10, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_error err;
    size_t records = bytes / TRMI_CIFAR10_RECORD;
    if (trmi_cifar10_check("fuzz", data, bytes, (int64_t)records, &err) == TRM_OK) {
        for (size_t i = 0; i < records; i++) {
            if (data[i * TRMI_CIFAR10_RECORD] > 9) {
                abort();
            }
        }
    }
    char *text = malloc(bytes + 1);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    int64_t count = -1;
    if (trmi_cifar10_listed(text, "test_batch.bin", &count, &err) == TRM_OK && count < -1) {
        abort();
    }
    free(text);
    return 0;
}
