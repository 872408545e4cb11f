/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/crc32.h: the CRC-32 of zip (reflected 0xEDB88320), eight bytes at a time. */
#ifndef TRMI_SAVE_CRC32_H
#define TRMI_SAVE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of the empty string 0; chain with the previous value. "123456789" gives cbf43926. */
uint32_t trmi_crc32(uint32_t crc, const void *data, size_t bytes);

#endif
