/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli; RFC 3720, appendix B.4) by table, one byte at a time, and by the SSE4.2
 * instruction, 8 bytes at a time. Both compute the same. */
#include "base/format/crc32c.h"

#include "base/cpu.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static uint32_t table[256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* Fills the table for one byte; the polynomial is reflected. */
static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) {
            value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
        }
        table[i] = value;
    }
}

/* Continues a checksum, whose bits are inverted, over more bytes. */
static uint32_t crc_by_table(uint32_t crc, const uint8_t *data, size_t bytes) {
    pthread_once(&table_once, make_table);
    for (size_t i = 0; i < bytes; i++) {
        crc = table[(crc ^ data[i]) & 0xFF] ^ crc >> 8;
    }
    return crc;
}

#if defined(__x86_64__)
/* Computes the CRC by the instruction, 8 bytes at a time and then the rest one by one. */
__attribute__((target("sse4.2"))) static uint32_t crc_by_sse42(uint32_t crc, const uint8_t *data,
                                                               size_t bytes) {
    uint64_t wide = crc;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; bytes--) {
        crc = __builtin_ia32_crc32qi(crc, *data++);
    }
    return crc;
}
#endif

uint32_t trmi_crc32c(uint32_t crc, const void *data, size_t bytes) {
    crc = ~crc;
#if defined(__x86_64__)
    if (trmi_cpu()->sse42) {
        return ~crc_by_sse42(crc, data, bytes);
    }
#endif
    return ~crc_by_table(crc, data, bytes);
}
