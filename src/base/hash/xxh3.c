/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 by the instruction set of this CPU (xxh3.h). */
#include "base/hash/xxh3.h"

#include "base/cpu.h"

void trmi_xxh3_update(void *state, const void *data, size_t bytes) {
    TRMI_CPU_CHOICE(&trmi_xxh3)->update(state, data, bytes);
}

uint64_t trmi_xxh3(const void *data, size_t bytes, uint64_t seed) {
    return TRMI_CPU_CHOICE(&trmi_xxh3)->hash(data, bytes, seed);
}
