/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/endian.h: reads and writes little-endian numbers in files and messages, at any
 * alignment and on any CPU. */
#ifndef TRMI_BASE_ENDIAN_H
#define TRMI_BASE_ENDIAN_H

#include <stdint.h>

/* Byte by byte, because the address may have any alignment; compilers make one load of it. */
static inline uint16_t trmi_get16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static inline uint32_t trmi_get32(const uint8_t *at) {
    return (uint32_t)trmi_get16(at) | (uint32_t)trmi_get16(at + 2) << 16;
}
static inline uint64_t trmi_get64(const uint8_t *at) {
    return (uint64_t)trmi_get32(at) | (uint64_t)trmi_get32(at + 4) << 32;
}

static inline void trmi_put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}
static inline void trmi_put32(uint8_t *at, uint32_t value) {
    trmi_put16(at, (uint16_t)value);
    trmi_put16(at + 2, (uint16_t)(value >> 16));
}
static inline void trmi_put64(uint8_t *at, uint64_t value) {
    trmi_put32(at, (uint32_t)value);
    trmi_put32(at + 4, (uint32_t)(value >> 32));
}

#endif
