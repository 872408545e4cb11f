/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning file's parser on arbitrary bytes. */
#include "fuzz_seed.h"

#include "exec/cpu/tuning/tuning.h"

#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const char *const seeds[] = {
        "trireme tuning 1\nCPU, oneDNN 2.6.3, avx512, threads 2\tconv fwd\twinograd4x3\t1.5e-3\n",
        "trireme tuning 1\na\tb\tc\t1\na\tb\td\t0\nx\ty\tz\t9e5\n",
        "trireme tuning 1\n",
        "trireme tuning 2\na\tb\tc\t1\n",
    };
    const char *seed = seeds[index % 4];
    size_t bytes = strlen(seed) < capacity ? strlen(seed) : capacity;
    memcpy(data, seed, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trmi_tuning *t = NULL;
    if (trmi_tuning_create(NULL, 2, "library", "isa", &t, NULL) != TRM_OK) {
        return 0;
    }
    (void)trmi_tuning_parse(t, (const char *)data, bytes);
    const char *algorithm;
    double seconds;
    (void)trmi_tuning_find(t, "conv fwd", &algorithm, &seconds);
    trmi_tuning_destroy(t);
    return 0;
}
