/* SPDX-License-Identifier: Apache-2.0 */
#include "save/formats/crc32.h"

#include <pthread.h>
#include <string.h>

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (int k = 1; k < 8; k++) {
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xFF];
        }
    }
}

uint32_t trmi_crc32(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *next = data;
    pthread_once(&once, make_table);
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, next += 8) {
        uint32_t low, high;
        memcpy(&low, next, 4);
        memcpy(&high, next + 4, 4);
        low ^= crc;
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
              table[4][low >> 24] ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^
              table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; bytes > 0; bytes--, next++) {
        crc = crc >> 8 ^ table[0][(crc ^ *next) & 0xFF];
    }
    return ~crc;
}
