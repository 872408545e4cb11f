/* SPDX-License-Identifier: Apache-2.0 */
/* Checks UTF-8: lengths by the first byte; overlong forms, surrogates and code points beyond
 * U+10FFFF are invalid, which the second byte shows. */
#include "base/format/utf8.h"

/* Returns the bytes of a sequence that begins with this one; 0: none does. */
static int length_by_first(unsigned char first) {
    return first < 0x80                    ? 1
           : first >= 0xC2 && first < 0xE0 ? 2
           : first >= 0xE0 && first < 0xF0 ? 3
           : first >= 0xF0 && first < 0xF5 ? 4
                                           : 0;
}

/* Returns how many of the bytes at `text` could begin a valid sequence of `length` bytes, whose
 * first one fits. Follows RFC 3629: no code point in more bytes than needed, no surrogates (U+D800
 * to U+DFFF), nothing above U+10FFFF. */
static int count_fitting(const char *text, size_t bytes, int length) {
    const unsigned char *s = (const unsigned char *)text;
    int fitting = 1;
    for (; fitting < length && (size_t)fitting < bytes; fitting++) {
        const unsigned char least = fitting > 1    ? 0x80
                                    : s[0] == 0xE0 ? 0xA0
                                    : s[0] == 0xF0 ? 0x90
                                                   : 0x80;
        const unsigned char most = fitting > 1    ? 0xBF
                                   : s[0] == 0xED ? 0x9F
                                   : s[0] == 0xF4 ? 0x8F
                                                  : 0xBF;
        if (s[fitting] < least || s[fitting] > most) {
            break;
        }
    }
    return fitting;
}

int trmi_utf8_length(const char *text, size_t bytes) {
    const int length = bytes > 0 ? length_by_first((unsigned char)text[0]) : 0;
    return length > 1 && count_fitting(text, bytes, length) < length ? 0 : length;
}

int trmi_utf8_invalid_length(const char *text, size_t bytes) {
    const int length = bytes > 0 ? length_by_first((unsigned char)text[0]) : 0;
    return length > 0 ? count_fitting(text, bytes, length) : bytes > 0;
}

bool trmi_utf8_valid(const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        int length = trmi_utf8_length(text + at, bytes - at);
        if (length == 0) {
            return false;
        }
        at += (size_t)length;
    }
    return true;
}
