/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without a fuzzer: seeded mutations of the seeds that the target names.
 *     target_fuzz [RUNS] [SEED]      or      target_fuzz FILE...   (replay)
 * A target defines LLVMFuzzerTestOneInput and trireme_fuzz_seed. */
#include "fuzz_seed.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_BYTES_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static size_t mutate_bytes(uint8_t *data, size_t bytes, uint64_t seed, uint64_t run) {
    uint32_t r[4];
    trmi_philox(seed, TRMI_STREAM_TEST, run, r);
    uint32_t edits = 1 + trmi_bounded(r[0], 8);
    for (uint32_t e = 0; e < edits; e++) {
        trmi_philox(seed ^ 0x5eed, run, e, r);
        if (bytes == 0) {
            data[bytes++] = (uint8_t)r[0];
            continue;
        }
        size_t at = trmi_bounded(r[1], (uint32_t)bytes);
        switch (r[0] % 6) {
        case 0: data[at] = (uint8_t)r[2]; break;
        case 1: data[at] ^= (uint8_t)(1u << (r[2] & 7)); break;
        case 2: bytes = at; break;
        case 3: {
            static const uint8_t nasty[] = {0, 0xFF, 0x7F, 0x80, '"', '{', '[', '\n', '-', '0'};
            data[at] = nasty[r[2] % sizeof nasty];
            break;
        }
        case 4: {
            size_t length = trmi_bounded(r[2], 16);
            if (at + length < bytes) {
                memset(data + at, r[3] & 1 ? 0xFF : 0, length);
            }
            break;
        }
        default: {
            size_t length = trmi_bounded(r[2], 32) + 1;
            if (bytes + length < INPUT_BYTES_MAX && at + length <= bytes) {
                memmove(data + at + length, data + at, bytes - at);
                bytes += length;
            }
        }
        }
    }
    return bytes;
}

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    static uint8_t data[INPUT_BYTES_MAX];
    size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(data, bytes);
}

int main(int argc, char **argv) {
    if (argc > 1 && strspn(argv[1], "0123456789") != strlen(argv[1])) {
        int bad = 0;
        for (int i = 1; i < argc; i++) {
            bad |= replay_file(argv[i]);
        }
        return bad;
    }
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static uint8_t seed_data[INPUT_BYTES_MAX];
    for (uint64_t run = 0; run < runs; run++) {
        size_t bytes = trireme_fuzz_seed((int)(run % 16), seed_data, INPUT_BYTES_MAX);
        /* An exact-size heap block, so that the address sanitizer sees a read past its end. */
        if (run >= 16) {
            bytes = mutate_bytes(seed_data, bytes, seed, run);
        }
        uint8_t *exact = malloc(bytes ? bytes : 1);
        memcpy(exact, seed_data, bytes);
        LLVMFuzzerTestOneInput(exact, bytes);
        free(exact);
    }
    printf("%llu runs, seed %llu\n", (unsigned long long)runs, (unsigned long long)seed);
    return 0;
}
