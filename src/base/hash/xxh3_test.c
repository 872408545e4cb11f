/* SPDX-License-Identifier: Apache-2.0 */
/* Each instruction set of this CPU computes the hashes of xxhash.h, in pieces of any size. */
#include "check.h"

#include "base/cpu.h"
#include "base/hash/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BYTES = 5000 };

static void all_instruction_sets_have_one_hash(void **state) {
    (void)state;
    const trmi_xxh3_kernels *all[] = {
        &trmi_xxh3_plain,
#if defined(__x86_64__)
        trmi_cpu()->avx2 ? &trmi_xxh3_avx2 : NULL,
        trmi_cpu()->avx512 ? &trmi_xxh3_avx512 : NULL
#endif
    };
    static uint8_t data[BYTES];
    for (int i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)(i * i + 3 * i);
    }
    const size_t sizes[] = {0, 1, 16, 240, 241, 1024, 4097, BYTES};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        for (size_t s = 0; all[k] != NULL && s < sizeof sizes / sizeof sizes[0]; s++) {
            const size_t bytes = sizes[s];
            XXH3_state_t of_64, of_128;
            XXH3_64bits_reset(&of_64);
            XXH3_128bits_reset(&of_128);
            for (size_t at = 0, piece = 1; at < bytes; at += piece, piece = 3 * piece + 1) {
                piece = piece < bytes - at ? piece : bytes - at;
                all[k]->update(&of_64, data + at, piece);
                all[k]->update(&of_128, data + at, piece);
            }
            assert_true(XXH3_64bits_digest(&of_64) == XXH3_64bits(data, bytes));
            assert_true(all[k]->hash(data, bytes, 7) == XXH3_64bits_withSeed(data, bytes, 7));
            assert_true(XXH128_isEqual(XXH3_128bits_digest(&of_128), XXH3_128bits(data, bytes)));
        }
    }
    assert_true(trmi_xxh3(data, BYTES, 1) == XXH3_64bits_withSeed(data, BYTES, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_instruction_sets_have_one_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
