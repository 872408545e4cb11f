/* SPDX-License-Identifier: Apache-2.0 */
/* Checks UTF-8: lengths by the first byte; overlong forms, surrogates and code points beyond
 * U+10FFFF are invalid. */
#include "base/format/utf8.h"

/* Contract in utf8.h. Follows RFC 3629: no code point in more bytes than needed, no surrogates
 * (U+D800 to U+DFFF), nothing above U+10FFFF. */
int trmi_utf8_length(const char *text, size_t bytes) {
    const unsigned char *s = (const unsigned char *)text;
    if (bytes == 0) {
        return 0;
    }
    if (s[0] < 0x80) {
        return 1;
    }
    int length = s[0] >= 0xC2 && s[0] < 0xE0   ? 2
                 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                               : 0;
    if (length == 0 || (size_t)length > bytes) {
        return 0;
    }
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xED && s[1] >= 0xA0;
    bool too_large = s[0] == 0xF4 && s[1] >= 0x90;
    return overlong || surrogate || too_large ? 0 : length;
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
