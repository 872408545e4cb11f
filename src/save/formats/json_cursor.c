/* SPDX-License-Identifier: Apache-2.0 */
/* A strict pull parser for JSON (RFC 8259): strings must be UTF-8 without NUL characters, and the
 * only numbers are integers without sign. The caller takes the elements that it expects one after
 * the other, so there is no recursion and no tree.
 *
 * The first fault is kept with its position, and from then on every function fails. So a caller may
 * check once at the end.
 *
 * It stands beside jansson, which reads all other JSON, for headers of safetensors alone: these
 * have up to 100 MB and come from strangers (json_cursor.h has the figures). */
#include "save/formats/json_cursor.h"

#include "base/format/utf8.h"

#include <string.h>

bool trmi_json_fault(trmi_json *json, const char *fault) {
    if (json->fault == NULL) {
        json->fault = fault;
        json->fault_at = json->at;
    }
    return false;
}

/* Skips the four blanks of JSON. */
static void skip_blanks(trmi_json *json) {
    while (json->at < json->bytes && memchr(" \t\r\n", json->text[json->at], 4) != NULL) {
        json->at++;
    }
}

bool trmi_json_peek(trmi_json *json, char c) {
    if (json->fault != NULL) {
        return false;
    }
    skip_blanks(json);
    return json->at < json->bytes && json->text[json->at] == c;
}

/* Consumes `c` if it is next; no fault otherwise. */
static bool accept_character(trmi_json *json, char c) {
    bool next = trmi_json_peek(json, c);
    json->at += next ? 1 : 0;
    return next;
}

bool trmi_json_take(trmi_json *json, char c) {
    if (accept_character(json, c)) {
        return true;
    }
    /* The fault names the expected characters. */
    switch (c) {
    case '{': return trmi_json_fault(json, "'{' expected");
    case '}': return trmi_json_fault(json, "',' or '}' expected");
    case ']': return trmi_json_fault(json, "',' or ']' expected");
    case '[': return trmi_json_fault(json, "'[' expected");
    case ':': return trmi_json_fault(json, "':' expected");
    default: return trmi_json_fault(json, "',' expected");
    }
}

/* Returns the value of a hexadecimal digit, -1 for other characters. */
static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Returns the value of the four digits after "\u", -1 if they are missing. */
static int32_t hex_four(const trmi_json *json, size_t at) {
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        int digit = i < json->bytes ? hex_digit(json->text[i]) : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Writes a code point as UTF-8: at most 4 bytes, never more than its escape has. */
static void put_code_point(trmi_json *json, uint32_t code) {
    char *out = json->strings + json->used;
    if (code < 0x80) {
        out[0] = (char)code;
        json->used += 1;
    } else if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        json->used += 2;
    } else if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        json->used += 3;
    } else {
        out[0] = (char)(0xF0 | code >> 18);
        out[1] = (char)(0x80 | (code >> 12 & 0x3F));
        out[2] = (char)(0x80 | (code >> 6 & 0x3F));
        out[3] = (char)(0x80 | (code & 0x3F));
        json->used += 4;
    }
}

/* Takes "\uXXXX", or two of them that form a surrogate pair. */
static bool take_unicode_escape(trmi_json *json) { /* the cursor is on the 'u' */
    int32_t high = hex_four(json, json->at + 1);
    if (high <= 0) {
        return trmi_json_fault(json, high < 0 ? "four hexadecimal digits expected after \\u"
                                              : "a NUL character in a string");
    }
    json->at += 5;
    if (high < 0xD800 || high > 0xDFFF) {
        put_code_point(json, (uint32_t)high);
        return true;
    }
    /* The first half of a surrogate pair must be followed by an escape with the second half. */
    int32_t low = high < 0xDC00 && json->at + 1 < json->bytes && json->text[json->at] == '\\' &&
                          json->text[json->at + 1] == 'u'
                      ? hex_four(json, json->at + 2)
                      : -1;
    if (low < 0xDC00 || low > 0xDFFF) {
        return trmi_json_fault(json, "half of a surrogate pair");
    }
    json->at += 6;
    put_code_point(json, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
    return true;
}

/* Takes an escape of two characters, or "\u". */
static bool take_escape(trmi_json *json) { /* the cursor is after the backslash */
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (json->at < json->bytes && json->text[json->at] == 'u') {
        return take_unicode_escape(json);
    }
    const char *found =
        json->at < json->bytes ? memchr(from, json->text[json->at], sizeof from - 1) : NULL;
    if (found == NULL) {
        return trmi_json_fault(json, "an unknown escape in a string");
    }
    json->strings[json->used++] = to[found - from];
    json->at++;
    return true;
}

/* Contract in json_cursor.h. Returns the text without escapes, in memory of the parser. */
const char *trmi_json_string(trmi_json *json) {
    if (!accept_character(json, '"')) {
        trmi_json_fault(json, "a string expected");
        return NULL;
    }
    /* The unescaped text is never longer than the text in the file, so `strings` needs no check. */
    const char *start = json->strings + json->used;
    while (json->at < json->bytes) {
        unsigned char c = (unsigned char)json->text[json->at];
        if (c == '"') {
            json->at++;
            json->strings[json->used++] = '\0'; /* in the space of the opening quote */
            return start;
        }
        if (c == '\\') {
            json->at++;
            if (!take_escape(json)) {
                return NULL;
            }
            continue;
        }
        /* One character of UTF-8, which may have several bytes. */
        int length = trmi_utf8_length(json->text + json->at, json->bytes - json->at);
        if (c < 0x20 || length == 0) {
            trmi_json_fault(json, c < 0x20 ? "a control character in a string" : "not UTF-8");
            return NULL;
        }
        memcpy(json->strings + json->used, json->text + json->at, (size_t)length);
        json->used += (size_t)length;
        json->at += (size_t)length;
    }
    trmi_json_fault(json, "a string without its end");
    return NULL;
}

/* Contract in json_cursor.h. Accepts what JSON accepts as an integer without sign; leading
 * zeros, fractions and exponents are faults. */
bool trmi_json_uint(trmi_json *json, int64_t *out) {
    if (json->fault != NULL) {
        return false;
    }
    skip_blanks(json);
    int64_t value = 0;
    size_t start = json->at;
    /* Read the digits, without overflow. */
    while (json->at < json->bytes && json->text[json->at] >= '0' && json->text[json->at] <= '9') {
        int digit = json->text[json->at] - '0';
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)digit, &value)) {
            return trmi_json_fault(json, "a number too large");
        }
        json->at++;
    }
    if (json->at == start) {
        return trmi_json_fault(json, "a number without sign expected");
    }
    /* JSON has no leading zeros, and fractions and exponents would not be integers. */
    if (json->at - start > 1 && json->text[start] == '0') {
        return trmi_json_fault(json, "a number with a leading zero");
    }
    if (json->at < json->bytes && memchr(".eE", json->text[json->at], 3) != NULL) {
        return trmi_json_fault(json, "an integer expected");
    }
    *out = value;
    return true;
}

bool trmi_json_end(trmi_json *json) {
    if (json->fault != NULL) {
        return false;
    }
    skip_blanks(json);
    return json->at == json->bytes || trmi_json_fault(json, "nothing more expected");
}
