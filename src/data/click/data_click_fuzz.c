/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: click files end to end. The first byte chooses the reader (Criteo, CSV with bags,
 * libsvm, slots, a vocabulary), the others are the file.
 *
 * A reader may refuse any bytes, but a dataset that opens gives each batch or an error that names
 * the file, and neither crashes nor reads outside of its memory (address sanitizer). */
#include "fuzz_seed.h"

#include "trireme/data.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const char *const seeds[] = {
        "0"
        "1\t1\t-3\t\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t1\ta\tb\tc\td\te\tf\tg\th\ti\tj\tk\tl\tm\tn"
        "\to\tp\tq\tr\ts\tt\tu\tv\t\tx\ty\tz\n",
        "1"
        "hour,click,price,tags\n14102107,1,2.5,red|green\n08,0,,\n07,1,\"-1e1\",\"x|y\"\n",
        "2"
        "+1 3:0.5 10:2 # note\n-1 7:1\n0\n1 1:1 2:1 3:1\n",
        "2"
        "1 0:3:1 2:9:0.5\n0 1:4:1 1:5:1\n",
        "4"
        "click:0 dense:0.5 1:7 2:8 2:9\nclick:1 2:9 dense:1 1:3\n",
        "3"
        "trireme-vocabulary 1 3 77\n0 12ab\n2 ffff\n1 3\n"};
    const char *seed = seeds[index % 6];
    size_t bytes = strlen(seed);
    memcpy(data, seed, bytes < capacity ? bytes : capacity);
    return bytes;
}

static void read_all(trm_dataset *data) {
    trm_error err;
    const trm_batch *batch;
    if (trm_dataset_batch(data, 3, false, &err) == TRM_OK) {
        for (int i = 0; i < 50 && trm_dataset_next(data, &batch, &err) == TRM_OK; i++) {
            const trm_tensor *offsets = trm_batch_tensor(batch, "offsets");
            const trm_tensor *keys = trm_batch_tensor(batch, "keys");
            if (offsets != NULL) {
                const int64_t *at = offsets->data;
                for (int64_t b = 0; b + 1 < offsets->shape.dim[0]; b++) {
                    if (at[b] > at[b + 1] || at[b + 1] > keys->shape.dim[0]) {
                        __builtin_trap();
                    }
                }
            }
        }
    }
    trm_dataset_destroy(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const trm_column columns[] = {{"click", TRM_COLUMN_LABEL, 0},
                                         {"price", TRM_COLUMN_DENSE, 0},
                                         {"tags", TRM_COLUMN_BAG, 0},
                                         {"hour", TRM_COLUMN_KEY, 2}};
    static const trm_click_options csv = {.columns = columns, .column_count = 4, .bag_max = 4};
    static int file = -1;
    /* The readers take paths: the bytes become a file in memory. The first byte chooses the
     * reader. */
    if (file < 0) {
        file = memfd_create("fuzz", 0);
    }
    if (bytes == 0 || ftruncate(file, 0) != 0 ||
        pwrite(file, data + 1, bytes - 1, 0) != (ssize_t)bytes - 1) {
        return 0;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    trm_dataset *set;
    trm_vocabulary *vocabulary;
    trm_error err;
    switch (data[0]) {
    case '0':
        if (trm_dataset_click_file("criteo", path, NULL, &set, &err) == TRM_OK) {
            read_all(set);
        }
        break;
    case '1':
        if (trm_dataset_click_file("csv", path, &csv, &set, &err) == TRM_OK) {
            read_all(set);
        }
        if (trm_vocabulary_build("csv", path, &csv, 1, &vocabulary, &err) == TRM_OK) {
            trm_vocabulary_destroy(vocabulary);
        }
        break;
    case '2':
        if (trm_dataset_click_file("libsvm", path, NULL, &set, &err) == TRM_OK) {
            read_all(set);
        }
        break;
    case '4':
        if (trm_dataset_click_file("slots", path, NULL, &set, &err) == TRM_OK) {
            read_all(set);
        }
        break;
    default:
        if (trm_vocabulary_load(path, &vocabulary, &err) == TRM_OK) {
            trm_vocabulary_destroy(vocabulary);
        }
    }
    return 0;
}
