/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/unicode.h: classes of code points that regular expressions of tokenizers name. */
#ifndef TRMI_DATA_UNICODE_H
#define TRMI_DATA_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Letter is \p{L}, number is \p{N}, space is \s (White_Space). */
typedef enum trmi_char_class {
    TRMI_CHAR_OTHER,
    TRMI_CHAR_LETTER,
    TRMI_CHAR_NUMBER,
    TRMI_CHAR_SPACE
} trmi_char_class;

/* Ranges of equal class, in order: the first code point times 4, plus the class. */
extern const uint32_t trmi_char_ranges[];
extern const int32_t trmi_char_range_count;

/* Returns the class of any code point. */
trmi_char_class trmi_char_class_of(uint32_t point);
/* Reads the character at `text`, of `bytes` > 0 bytes: its code point, and its length in bytes as
 * the result. A byte that begins no valid UTF-8 is a character of its own, of code point 0xFFFD. */
size_t trmi_char_read(const char *text, size_t bytes, uint32_t *point);
/* Writes a code point below 0x110000 as UTF-8 into 4 bytes; returns how many it takes. */
size_t trmi_char_write(uint32_t point, char *text);

#endif
