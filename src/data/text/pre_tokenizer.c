/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a text into the pieces within which byte pairs are merged (contract in pre_tokenizer.h).
 * Each alternative of the published regular expressions is written by hand.
 *
 * An expression takes the first alternative that matches at a place, and repeats as often as it
 * can; \s+(?!\S) gives one character back where something follows the space. Every take_ function
 * returns the bytes of its match at the reader's place, 0 for none, and moves nothing; together
 * they match at any place, so that a text is cut without a gap. tests/tokenizer_test.sh compares
 * the pieces with those of the `tokenizers` package. */
#include "data/text/pre_tokenizer.h"

#include "data/text/unicode.h"

#include <stdbool.h>
#include <string.h>

/* The expressions, as tokenizer.json has them: read to recognise a style, and written. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

int trmi_split_style_of(const char *pattern) {
    return strcmp(pattern, gpt2_pattern) == 0     ? TRMI_SPLIT_GPT2
           : strcmp(pattern, llama3_pattern) == 0 ? TRMI_SPLIT_LLAMA3
           : strcmp(pattern, qwen2_pattern) == 0  ? TRMI_SPLIT_QWEN2
                                                  : -1;
}

/* A text and how far it was read. */
typedef struct reader {
    const char *text;
    size_t bytes;
} reader;

/* Class and length of the character at `at` < bytes. */
static inline trmi_char_class read_class(const reader *r, size_t at, size_t *length) {
    unsigned char c = (unsigned char)r->text[at];
    *length = 1;
    if (c < 0x80) {
        unsigned char lower = c | 0x20;
        return lower >= 'a' && lower <= 'z'      ? TRMI_CHAR_LETTER
               : c >= '0' && c <= '9'            ? TRMI_CHAR_NUMBER
               : c == ' ' || (c >= 9 && c <= 13) ? TRMI_CHAR_SPACE
                                                 : TRMI_CHAR_OTHER;
    }
    uint32_t point;
    *length = trmi_char_read(r->text + at, r->bytes - at, &point);
    return trmi_char_class_of(point);
}

/* End of the run of at most `most` characters of a class from `at` on. */
static size_t find_run_end(const reader *r, size_t at, trmi_char_class class, int64_t most) {
    size_t length;
    while (at < r->bytes && most-- > 0 && read_class(r, at, &length) == class) {
        at += length;
    }
    return at;
}

/* Returns whether `c` is a carriage return or a line feed. */
static bool is_line_end(char c) { return c == '\r' || c == '\n'; }

/* \s+(?!\S)|\s+: of several characters before something else, the last one stays. */
static size_t take_space(const reader *r) {
    size_t at = 0, last = 0, length;
    while (at < r->bytes && read_class(r, at, &length) == TRMI_CHAR_SPACE) {
        last = at;
        at += length;
    }
    return at == r->bytes || last == 0 ? at : last;
}

/* Takes 's 't 'm 'd 're 've 'll; returns the length, 0: none of them. */
static size_t take_contraction(const reader *r, bool any_case) {
    const unsigned char *s = (const unsigned char *)r->text;
    if (r->bytes < 2 || s[0] != '\'') {
        return 0;
    }
    unsigned char fold = any_case ? 0x20 : 0, a = s[1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if (any_case && r->bytes >= 3 && s[1] == 0xC5 && s[2] == 0xBF) {
        return 3; /* U+017F, the long s, is an s in another case */
    }
    unsigned char b = r->bytes >= 3 ? s[2] | fold : 0;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Returns the length of the first match of GPT-2's expression. */
static size_t take_gpt2(const reader *r) {
    size_t contraction = take_contraction(r, false), length, first = 0;
    if (contraction > 0) {
        return contraction;
    }
    trmi_char_class class = read_class(r, 0, &length);
    if (r->text[0] == ' ' && r->bytes > 1) {
        class = read_class(r, 1, &length);
        first = 1;
    }
    return class == TRMI_CHAR_SPACE ? take_space(r) : find_run_end(r, first, class, INT64_MAX);
}

/* Space: \s*[\r\n]+ to the last line end of the run, or as take_space. */
static size_t take_lines(const reader *r) {
    size_t end = find_run_end(r, 0, TRMI_CHAR_SPACE, INT64_MAX);
    for (size_t at = end; at > 0; at--) {
        if (is_line_end(r->text[at - 1])) {
            return at;
        }
    }
    return take_space(r);
}

/* Returns the length of the first match of Llama 3's expression, with at most `digits` digits. */
static size_t take_llama3(const reader *r, int digits) {
    size_t contraction = take_contraction(r, true), length, next, first = 0;
    if (contraction > 0) {
        return contraction;
    }
    /* The alternatives come in this order: numbers, letters with at most one other character before
     * them, a space and other characters, line ends and spaces, other characters with the line ends
     * that follow. */
    trmi_char_class class = read_class(r, 0, &length);
    if (class == TRMI_CHAR_NUMBER) {
        return find_run_end(r, 0, TRMI_CHAR_NUMBER, digits);
    }
    bool leads = class != TRMI_CHAR_LETTER && !is_line_end(r->text[0]) && length < r->bytes;
    trmi_char_class second = leads ? read_class(r, length, &next) : TRMI_CHAR_SPACE;
    if (class == TRMI_CHAR_LETTER || second == TRMI_CHAR_LETTER) {
        return find_run_end(r, leads ? length : 0, TRMI_CHAR_LETTER, INT64_MAX);
    }
    if (r->text[0] == ' ' && second == TRMI_CHAR_OTHER) {
        class = second;
        first = 1;
    }
    if (class == TRMI_CHAR_SPACE) {
        return take_lines(r);
    }
    size_t at = find_run_end(r, first, TRMI_CHAR_OTHER, INT64_MAX);
    while (at < r->bytes && is_line_end(r->text[at])) {
        at++;
    }
    return at;
}

size_t trmi_split_next(trmi_split_style style, const char *text, size_t bytes) {
    const reader r = {text, bytes};
    switch (style) {
    case TRMI_SPLIT_GPT2: return take_gpt2(&r);
    case TRMI_SPLIT_LLAMA3: return take_llama3(&r, 3);
    case TRMI_SPLIT_QWEN2: return take_llama3(&r, 1);
    default: return bytes;
    }
}
