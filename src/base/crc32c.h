/* SPDX-License-Identifier: Apache-2.0 */
/* base/crc32c.h: CRC-32C (Castagnoli, RFC 3720 appendix B.4), by SSE4.2 or ARMv8 instruction
 * where the CPU has it, by table otherwise. */
#ifndef TRMI_BASE_CRC32C_H
#define TRMI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc of the empty string is 0; chain with trmi_crc32c(previous, ...). "123456789" gives e3069283.
 */
uint32_t trmi_crc32c(uint32_t crc, const void *data, size_t bytes);
/* The masked form of TFRecord and event files. */
static inline uint32_t trmi_crc32c_mask(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
