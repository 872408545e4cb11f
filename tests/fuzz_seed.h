/* SPDX-License-Identifier: Apache-2.0 */
/* The seeds of a fuzz target: well-formed inputs from which the driver starts. */
#ifndef TRIREME_FUZZ_SEED_H
#define TRIREME_FUZZ_SEED_H

#include <stddef.h>
#include <stdint.h>

/* Writes seed number `index` (0..15; repeat if there are fewer) and returns its length. */
size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
