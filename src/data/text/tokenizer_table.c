/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a tokenizer: tokens by id and by text, merges by pair, characters by code point.
 *
 *   by id      t->tokens[id]                    an array
 *   by text    base/hash/hash_index.h           for special tokens and whole words
 *   by pair    places of (left, right) -> rank  open addressing: encoding looks up each pair of
 *                                               neighbours and mostly finds none
 *   by point   sorted code points, and a table for ASCII
 *
 * Byte-level tokens spell bytes as printable characters (GPT-2): a byte that is printable in
 * Latin-1 stands for itself, the n-th other one for U+0100 + n. */
#include "data/text/tokenizer.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/hash/hash.h"
#include "data/text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Code points by which bytes are spelled that cannot be printed, and the number of byte values. */
enum { SPELLED_FROM = 256, SPELLED_TO = 324, BYTE_VALUES = 256 };

/* ---- bytes and their characters ---- */

/* Printable characters of Latin-1 stand for themselves, the other bytes for U+0100 onwards. */
static bool is_printable(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* Returns the character that stands for a byte. */
static uint32_t spell_byte(unsigned byte) {
    if (is_printable(byte)) {
        return byte;
    }
    return SPELLED_FROM + (byte <= 32 ? byte : byte <= 160 ? 33 + byte - 127 : 67);
}

/* Returns the byte that a character stands for; -1: none. */
static int find_byte(uint32_t point) {
    if (point < BYTE_VALUES) {
        return is_printable(point) ? (int)point : -1;
    }
    uint32_t n = point - SPELLED_FROM;
    return point >= SPELLED_TO ? -1 : n <= 32 ? (int)n : n <= 66 ? (int)(n - 33 + 127) : 173;
}

size_t trmi_bytes_to_text(const char *bytes, size_t count, char *text) {
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        length += trmi_char_write(spell_byte((unsigned char)bytes[i]), text + length);
    }
    return length;
}

/* Writes the bytes that a text spells; returns how many, -1: it has other characters. */
static int64_t text_to_bytes(const char *text, size_t length, char *bytes) {
    int64_t count = 0;
    for (size_t at = 0; at < length;) {
        uint32_t point;
        at += trmi_char_read(text + at, length - at, &point);
        int byte = find_byte(point);
        if (byte < 0) {
            return -1;
        }
        bytes[count++] = (char)byte;
    }
    return count;
}

/* ---- the object ---- */

trm_status trmi_tokenizer_new(trm_tokenizer **out, trm_error *err) {
    trm_tokenizer *t;
    TRMI_TRY(TRMI_NEW(err, t, 1, "for a tokenizer"));
    t->begin = -1;
    for (int i = 0; i < BYTE_VALUES; i++) {
        t->byte_ids[i] = -1;
        t->ascii_ids[i / 2] = -1;
    }
    *out = t;
    return TRM_OK;
}

void trm_tokenizer_destroy(trm_tokenizer *t) {
    if (t == NULL) {
        return;
    }
    trmi_hash_index_free(&t->by_text);
    trmi_free(t->cache);
    trmi_free(t->symbols);
    trmi_free(t->heap);
    trmi_arena_free(&t->arena);
    json_decref(t->settings);
    trmi_free(t);
}

trm_status trmi_tokenizer_reserve(trm_tokenizer *t, int64_t vocabulary, trm_error *err) {
    t->vocabulary = vocabulary;
    return TRMI_NEW_IN(err, &t->arena, t->tokens, vocabulary, "for the tokens of a tokenizer");
}

int64_t trm_tokenizer_vocabulary(const trm_tokenizer *tokenizer) {
    TRMI_NEED_OR(0, NULL, tokenizer);
    return tokenizer->vocabulary;
}

int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token) {
    TRMI_NEED_OR(-1, NULL, tokenizer, token);
    uint64_t hash = trmi_hash(TRMI_HASH_BEGIN, token, strlen(token)), probe = 0;
    int64_t i;
    while ((i = trmi_hash_index_next(&tokenizer->by_text, hash, &probe)) >= 0 &&
           strcmp(tokenizer->tokens[i].text, token) != 0) {
    }
    return (int32_t)i;
}

int32_t trm_tokenizer_begin(const trm_tokenizer *tokenizer) {
    TRMI_NEED_OR(-1, NULL, tokenizer);
    return tokenizer->begin;
}

int32_t trm_tokenizer_end(const trm_tokenizer *tokenizer) {
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    int32_t id = -1;
    TRMI_NEED_OR(-1, NULL, tokenizer);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && id < 0; i++) {
        id = trm_tokenizer_find(tokenizer, ends[i]);
    }
    return id;
}

/* Contract in tokenizer.h. A text that is no spelling of bytes stands for itself. */
trm_status trmi_tokenizer_set(trm_tokenizer *t, int32_t id, const char *text, bool plain,
                              trm_error *err) {
    size_t length = strlen(text);
    trmi_token *token = &t->tokens[id];
    char *copy = trmi_arena_strdup(&t->arena, text);
    char *bytes = plain ? copy : trmi_arena_alloc(&t->arena, length + 1);
    if (copy == NULL || bytes == NULL ||
        !trmi_hash_index_add(&t->by_text, trmi_hash(TRMI_HASH_BEGIN, text, length), id)) {
        return TRMI_NO_MEMORY(err, "for the %lld tokens of a tokenizer", (long long)t->vocabulary);
    }
    int64_t count = plain ? -1 : text_to_bytes(text, length, bytes);
    *token = (trmi_token){.text = copy,
                          .bytes = count < 0 ? copy : bytes,
                          .byte_count = (int32_t)(count < 0 ? (int64_t)length : count)};
    return TRM_OK;
}

/* ---- merges ---- */

/* Returns both ids as one key. */
static uint64_t join_pair(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Returns the first place of the table to look at for a key. */
static uint64_t hash_pair(const trm_tokenizer *t, uint64_t pair) {
    return (pair * UINT64_C(0x9E3779B97F4A7C15)) >> 20 & t->place_mask;
}

const trmi_merge_place *trmi_merge_find(const trm_tokenizer *t, int32_t left, int32_t right) {
    uint64_t pair = join_pair(left, right), at = hash_pair(t, pair);
    while (t->places[at].result >= 0 && t->places[at].pair != pair) {
        at = (at + 1) & t->place_mask;
    }
    return &t->places[at];
}

/* Enters the merges into the index. Of one that is there twice the later one counts, as in the
 * `tokenizers` package. */
static trm_status index_merges(trm_tokenizer *t, trm_error *err) {
    uint64_t count = 64;
    while (count < 2 * (uint64_t)t->merge_count + 2) {
        count *= 2;
    }
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->places, count, "for the merges of a tokenizer"));
    t->place_mask = count - 1;
    for (uint64_t i = 0; i < count; i++) {
        t->places[i].result = -1;
    }
    for (int64_t i = 0; i < t->merge_count; i++) {
        const trmi_token_merge *m = &t->merges[i];
        const trmi_merge_place *found = trmi_merge_find(t, m->left, m->right);
        t->places[found - t->places] = (trmi_merge_place){
            .pair = join_pair(m->left, m->right), .rank = (uint32_t)i, .result = m->result};
    }
    return TRM_OK;
}

/* Contract in tokenizer.h. Called once all tokens and merges are there. */
trm_status trmi_tokenizer_index(trm_tokenizer *t, trm_error *err) {
    for (int i = 0; i < BYTE_VALUES; i++) {
        char byte = (char)i, text[5];
        text[trmi_bytes_to_text(&byte, 1, text)] = '\0';
        t->byte_ids[i] = trm_tokenizer_find(t, text);
    }
    for (int32_t i = 0; i < t->added_count; i++) {
        t->added_first[(unsigned char)t->added[i].text[0]] = true;
    }
    TRMI_TRY(TRMI_NEW(err, t->cache, TRMI_PIECE_PLACES, "for a tokenizer's cache"));
    return index_merges(t, err);
}

/* ---- characters ---- */

/* Compares two code points for qsort. */
static int compare_points(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Contract in tokenizer.h. Sorted code points with their ids, for binary search, and a table for
 * ASCII. */
trm_status trmi_tokenizer_index_characters(trm_tokenizer *t, trm_error *err) {
    uint32_t *points;
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, points, t->vocabulary, "for characters"));
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->point_ids, t->vocabulary, "for characters"));
    for (int64_t id = 0; id < t->vocabulary; id++) {
        if (t->tokens[id].text != NULL) {
            trmi_char_read(t->tokens[id].text, (size_t)t->tokens[id].byte_count,
                           &points[t->point_count++]);
        }
    }
    qsort(points, (size_t)t->point_count, sizeof *points, compare_points);
    t->points = points;
    for (int64_t i = 0; i < t->point_count; i++) {
        char text[5];
        text[trmi_char_write(points[i], text)] = '\0';
        t->point_ids[i] = trm_tokenizer_find(t, text);
        if (points[i] < 128) {
            t->ascii_ids[points[i]] = t->point_ids[i];
        }
    }
    return TRM_OK;
}

int32_t trmi_character_id(const trm_tokenizer *t, uint32_t point) {
    if (point < 128) {
        return t->ascii_ids[point];
    }
    int64_t low = 0, high = t->point_count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->points[middle] < point) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < t->point_count && t->points[low] == point ? t->point_ids[low] : -1;
}
