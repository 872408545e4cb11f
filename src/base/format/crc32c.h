/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/crc32c.h: CRC-32C (Castagnoli, RFC 3720 appendix B.4), by the SSE4.2 instruction
 * where the CPU has it, otherwise by table. */
#ifndef TRMI_BASE_CRC32C_H
#define TRMI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of data that follows data with CRC `crc` (0 at the start). The CRC of "123456789"
 * is e3069283. */
uint32_t trmi_crc32c(uint32_t crc, const void *data, size_t bytes);
/* Returns the masked form that TFRecord and event files store. */
static inline uint32_t trmi_crc32c_mask(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
