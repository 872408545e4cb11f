/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode's classes of characters, by a table (unicode_table.c), and UTF-8. Only the three classes
 * that the expressions of pre-tokenizers name are distinguished. */
#include "data/text/unicode.h"

#include "base/format/utf8.h"

/* Contract in unicode.h. A range begins at its code point and ends where the next one begins; the
 * two lowest bits of an entry are the class. */
trmi_char_class trmi_char_class_of(uint32_t point) {
    int32_t low = 0, high = trmi_char_range_count; /* the range lies in [low, high) */
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (trmi_char_ranges[middle] >> 2 <= point) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (trmi_char_class)(trmi_char_ranges[low] & 3);
}

/* Contract in unicode.h. A byte that begins no character is read as U+FFFD, so that any bytes can
 * be split. */
size_t trmi_char_read(const char *text, size_t bytes, uint32_t *point) {
    const unsigned char *s = (const unsigned char *)text;
    int length = trmi_utf8_length(text, bytes);
    if (length <= 1) {
        *point = length == 1 ? s[0] : 0xFFFD;
        return 1;
    }
    uint32_t value = s[0] & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++) {
        value = value << 6 | (s[i] & 0x3F);
    }
    *point = value;
    return (size_t)length;
}

size_t trmi_char_write(uint32_t point, char *text) {
    if (point < 0x80) {
        text[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        text[i] = (char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    text[0] = (char)((0xF00u >> length) | point);
    return length;
}
