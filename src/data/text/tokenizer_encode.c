/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids and back:
 *
 *   text --added tokens--> runs between them --trmi_split_next--> pieces --merges--> ids
 *
 * Added tokens are found first, those of the raw text before those of the normalized one. The runs
 * between them are split into pieces (words with their space), and each piece is encoded by itself;
 * short pieces come from a cache, because a text consists mostly of the same words.
 *
 * A piece begins as one symbol a byte, in a doubly linked list. Its merges are made in the order of
 * their ranks, the leftmost of equal ranks first: a heap of (rank, symbol) gives the next one. An
 * entry is out of date when its symbol's pair has another rank by now. So a piece of n bytes takes
 * O(n log n), also where it is a whole book without a space.
 *
 * Invariants: encoding in parts (trmi_encode_some) gives the ids of encoding at once. The heap, the
 * symbols and the cache belong to the tokenizer: one thread encodes with it at a time. */
#include "data/text/tokenizer.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format/utf8.h"
#include "data/text/unicode.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* no neighbour; no merge of a symbol with the next one */
enum { NO_SYMBOL = UINT32_MAX, NO_RANK = UINT32_MAX };

void trm_tokens_free(trm_tokens *tokens) {
    if (tokens != NULL) {
        trmi_free(tokens->ids);
        *tokens = (trm_tokens){0};
    }
}

/* Appends ids to a list. */
static trm_status append_ids(trm_tokens *tokens, const int32_t *ids, int64_t count,
                             trm_error *err) {
    if (tokens->count + count > tokens->capacity) {
        TRMI_TRY(TRMI_GROW(err, tokens->ids, tokens->capacity, tokens->count + count,
                           "for the tokens of a text"));
    }
    memcpy(tokens->ids + tokens->count, ids, (size_t)count * sizeof *ids);
    tokens->count += count;
    return TRM_OK;
}

/* ---- merges of a piece ---- */

/* Adds an entry to the heap, which has room. */
static void push_entry(trm_tokenizer *t, uint64_t entry) {
    int64_t at = t->heap_count++;
    while (at > 0 && t->heap[(at - 1) / 2] > entry) {
        t->heap[at] = t->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->heap[at] = entry;
}

/* Takes the smallest entry. */
static uint64_t pop_entry(trm_tokenizer *t) {
    uint64_t first = t->heap[0], last = t->heap[--t->heap_count];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < t->heap_count) {
        child += child + 1 < t->heap_count && t->heap[child + 1] < t->heap[child];
        if (last <= t->heap[child]) {
            break;
        }
        t->heap[at] = t->heap[child];
        at = child;
    }
    t->heap[at] = last;
    return first;
}

/* Looks up the merge of a symbol with the next one, and puts it into the heap. */
static void offer_pair(trm_tokenizer *t, uint32_t at) {
    trmi_symbol *s = &t->symbols[at];
    s->rank = NO_RANK;
    if (s->next == NO_SYMBOL) {
        return;
    }
    const trmi_merge_place *place = trmi_merge_find(t, s->id, t->symbols[s->next].id);
    if (place->result >= 0) {
        s->rank = place->rank;
        s->result = place->result;
        push_entry(t, (uint64_t)place->rank << 32 | at);
    }
}

/* Makes all merges of t->symbols[0 .. count). */
static void merge_symbols(trm_tokenizer *t, int64_t count) {
    t->heap_count = 0;
    for (int64_t i = 0; i < count; i++) {
        offer_pair(t, (uint32_t)i);
    }
    /* The pair of lowest rank first, as byte-pair encoding defines it. Entries are not removed from
     * the heap when a merge uses up one of their symbols, so stale ones are recognised here. */
    while (t->heap_count > 0) {
        uint64_t entry = pop_entry(t);
        uint32_t at = (uint32_t)entry;
        trmi_symbol *s = &t->symbols[at];
        if (s->id < 0 || s->rank != (uint32_t)(entry >> 32)) {
            continue;
        }
        /* The left symbol becomes the result, the right one leaves the list; both neighbours may
         * form new pairs. */
        trmi_symbol *right = &t->symbols[s->next];
        s->id = s->result;
        s->next = right->next;
        right->id = -1;
        if (s->next != NO_SYMBOL) {
            t->symbols[s->next].previous = at;
        }
        if (s->previous != NO_SYMBOL) {
            offer_pair(t, s->previous);
        }
        offer_pair(t, at);
    }
}

/* Makes room for the symbols of a piece, and for its heap: an entry for each pair at the start, and
 * two for each merge. */
static trm_status reserve_symbols(trm_tokenizer *t, size_t bytes, trm_error *err) {
    if (bytes >= NO_SYMBOL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a piece of text of %zu bytes without a place to split, at most %u "
                         "expected; insert spaces or line ends",
                         bytes, NO_SYMBOL - 1);
    }
    TRMI_TRY(
        TRMI_GROW(err, t->symbols, t->symbol_capacity, (int64_t)bytes, "to merge a piece of text"));
    return TRMI_GROW(err, t->heap, t->heap_capacity, 3 * (int64_t)bytes,
                     "to merge a piece of text");
}

/* Sets t->symbols to the bytes of a piece; `offset` is the piece's place in the text, for
 * messages. */
static trm_status set_symbols(trm_tokenizer *t, const char *piece, size_t bytes, size_t offset,
                              trm_error *err) {
    TRMI_TRY(reserve_symbols(t, bytes, err));
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = t->byte_ids[(unsigned char)piece[i]];
        if (id < 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "byte %zu: the tokenizer has no token for byte 0x%02X; use one whose "
                             "vocabulary has all 256 bytes",
                             offset + i, (unsigned char)piece[i]);
        }
        t->symbols[i] = (trmi_symbol){.id = id,
                                      .previous = i > 0 ? (uint32_t)i - 1 : NO_SYMBOL,
                                      .next = i + 1 < bytes ? (uint32_t)i + 1 : NO_SYMBOL};
    }
    return TRM_OK;
}

/* Finds the token that is the whole piece; -1: none. The symbols serve as a buffer for its text. */
static trm_status find_whole(trm_tokenizer *t, const char *piece, size_t bytes, int32_t *id,
                             trm_error *err) {
    TRMI_TRY(reserve_symbols(t, bytes, err));
    char *text = (char *)t->symbols; /* 20 bytes a symbol */
    text[trmi_bytes_to_text(piece, bytes, text)] = '\0';
    *id = trm_tokenizer_find(t, text);
    return TRM_OK;
}

/* Appends the tokens of a piece, by its merges. */
static trm_status encode_piece(trm_tokenizer *t, const char *piece, size_t bytes, size_t offset,
                               trm_tokens *tokens, trm_error *err) {
    int32_t whole = -1;
    if (t->ignore_merges) {
        TRMI_TRY(find_whole(t, piece, bytes, &whole, err));
    }
    if (whole >= 0) {
        return append_ids(tokens, &whole, 1, err);
    }
    TRMI_TRY(set_symbols(t, piece, bytes, offset, err));
    merge_symbols(t, (int64_t)bytes);
    for (uint32_t at = 0; at != NO_SYMBOL; at = t->symbols[at].next) {
        TRMI_TRY(append_ids(tokens, &t->symbols[at].id, 1, err));
    }
    return TRM_OK;
}

/* Appends the tokens of a piece. Short pieces are looked up in a cache of one place for each hash,
 * because a text consists mostly of the same words. */
static trm_status encode_cached(trm_tokenizer *t, const char *piece, size_t bytes, size_t offset,
                                trm_tokens *tokens, trm_error *err) {
    if (bytes > TRMI_PIECE_BYTES) {
        return encode_piece(t, piece, bytes, offset, tokens, err);
    }
    trmi_piece *place = &t->cache[XXH3_64bits(piece, bytes) & (TRMI_PIECE_PLACES - 1)];
    int64_t first = tokens->count;
    if (place->byte_count == bytes && memcmp(place->bytes, piece, bytes) == 0) {
        int64_t count = 0;
        while (count < TRMI_PIECE_IDS && place->ids[count] >= 0) {
            count++;
        }
        return append_ids(tokens, place->ids, count, err);
    }
    /* The new piece takes the place, if its ids fit. */
    TRMI_TRY(encode_piece(t, piece, bytes, offset, tokens, err));
    int64_t count = tokens->count - first;
    if (count <= TRMI_PIECE_IDS) {
        place->byte_count = (uint8_t)bytes;
        memcpy(place->bytes, piece, bytes);
        for (int64_t i = 0; i < TRMI_PIECE_IDS; i++) {
            place->ids[i] = i < count ? tokens->ids[first + i] : -1;
        }
    }
    return TRM_OK;
}

/* ---- added tokens ---- */

/* An added token in a text. */
typedef struct added_match {
    size_t begin, end;
    int32_t id; /* -1: there is none, begin and end are the text's end */
} added_match;

/* Returns the longest added token, normalized or not, that begins at `at`; NULL: none. */
static const trmi_added_token *find_longest_added(const trm_tokenizer *t, const char *at,
                                                  size_t bytes, bool normalized) {
    const trmi_added_token *best = NULL;
    for (int32_t i = 0; i < t->added_count; i++) {
        const trmi_added_token *a = &t->added[i];
        if (a->normalized == normalized && a->bytes <= bytes &&
            (best == NULL || a->bytes > best->bytes) && memcmp(a->text, at, a->bytes) == 0) {
            best = a;
        }
    }
    return best;
}

/* Returns whether the first character is white space. *length: its bytes. */
static bool is_space_at(const char *text, size_t bytes, size_t *length) {
    uint32_t point;
    *length = trmi_char_read(text, bytes, &point);
    return trmi_char_class_of(point) == TRMI_CHAR_SPACE;
}

/* Returns `begin` moved back over white space, but not before `from`. */
static size_t strip_left(const char *text, size_t from, size_t begin) {
    while (begin > from) {
        size_t at = begin - 1, length;
        while (at > from && begin - at < 4 && ((unsigned char)text[at] & 0xC0) == 0x80) {
            at--;
        }
        if (!is_space_at(text + at, begin - at, &length) || at + length != begin) {
            break;
        }
        begin = at;
    }
    return begin;
}

/* Returns the first added token of text[from .. to). */
static added_match find_added(const trm_tokenizer *t, const char *text, size_t from, size_t to,
                              bool normalized) {
    for (size_t at = from; t->added_count > 0 && at < to; at++) {
        const trmi_added_token *a = t->added_first[(unsigned char)text[at]]
                                        ? find_longest_added(t, text + at, to - at, normalized)
                                        : NULL;
        if (a == NULL) {
            continue;
        }
        /* Spaces beside the token belong to it, if it says so. */
        added_match match = {at, at + a->bytes, a->id};
        size_t length;
        if (a->strip_left) {
            match.begin = strip_left(text, from, at);
        }
        while (a->strip_right && match.end < to &&
               is_space_at(text + match.end, to - match.end, &length)) {
            match.end += length;
        }
        return match;
    }
    return (added_match){to, to, -1};
}

/* Finds the next normalized added token before encoding->raw_end. */
static void find_next_normalized(const trm_tokenizer *t, trmi_encoding *e) {
    added_match match = find_added(t, e->text, e->at, e->raw_end, true);
    e->begin = e->at;
    e->end = match.begin;
    e->token_end = match.end;
    e->token = match.id;
}

/* Finds the next added token that is not normalized, then the normalized one before it. */
static void find_next_raw(const trm_tokenizer *t, trmi_encoding *e) {
    added_match match = find_added(t, e->text, e->at, e->bytes, false);
    e->raw_end = match.begin;
    e->raw_token_end = match.end;
    e->raw_token = match.id;
    find_next_normalized(t, e);
}

void trmi_encoding_begin(const trm_tokenizer *t, const char *text, size_t bytes,
                         trmi_encoding *encoding) {
    *encoding = (trmi_encoding){.text = text, .bytes = bytes};
    find_next_raw(t, encoding);
}

/* Appends the added token at encoding->end, up to which the text is encoded, and finds the next
 * one. */
static trm_status take_added(const trm_tokenizer *t, trmi_encoding *e, trm_tokens *tokens,
                             trm_error *err) {
    bool inner = e->token >= 0;
    int32_t id = inner ? e->token : e->raw_token;
    e->at = inner ? e->token_end : e->raw_token_end;
    if (inner) {
        find_next_normalized(t, e);
    } else {
        find_next_raw(t, e);
    }
    return id < 0 ? TRM_OK : append_ids(tokens, &id, 1, err);
}

/* ---- pieces ---- */

/* Encodes all of the text before the next added token, with a space before it. Offsets in messages
 * count the space. */
static trm_status encode_prefixed(trm_tokenizer *t, trmi_encoding *e, trm_tokens *tokens,
                                  trm_error *err) {
    size_t bytes = e->end - e->at + 1;
    char *copy;
    TRMI_TRY(TRMI_NEW(err, copy, bytes, "to encode a text"));
    copy[0] = ' ';
    memcpy(copy + 1, e->text + e->at, bytes - 1);
    trm_status status = TRM_OK;
    for (size_t at = 0; at < bytes && status == TRM_OK;) {
        size_t length = trmi_split_next(t->style, copy + at, bytes - at);
        status = encode_cached(t, copy + at, length, e->at + at, tokens, err);
        at += length;
    }
    trmi_free(copy);
    e->at = e->end;
    return status;
}

/* Appends the token of the next character. */
static trm_status encode_character(const trm_tokenizer *t, trmi_encoding *e, trm_tokens *tokens,
                                   trm_error *err) {
    uint32_t point;
    size_t length = trmi_char_read(e->text + e->at, e->end - e->at, &point);
    bool valid = trmi_utf8_length(e->text + e->at, e->end - e->at) > 0;
    int32_t id = valid ? trmi_character_id(t, point) : -1;
    if (id < 0) {
        return valid ? TRMI_FAIL(err, TRM_INVALID,
                                 "byte %zu: the tokenizer has no token for the character U+%04X",
                                 e->at, point)
                     : TRMI_FAIL(err, TRM_INVALID,
                                 "byte %zu: 0x%02X is not UTF-8, a character expected; use "
                                 "byte-level tokens",
                                 e->at, (unsigned char)e->text[e->at]);
    }
    e->at += length;
    return append_ids(tokens, &id, 1, err);
}

/* Contract in tokenizer.h. It ends with a whole piece, so there may be more tokens than `limit`. */
trm_status trmi_encode_some(trm_tokenizer *t, trmi_encoding *e, int64_t limit, trm_tokens *tokens,
                            trm_error *err) {
    while (e->at < e->bytes && tokens->count < limit) {
        if (e->at == e->end) {
            TRMI_TRY(take_added(t, e, tokens, err));
        } else if (t->characters) {
            TRMI_TRY(encode_character(t, e, tokens, err));
        } else if (t->prefix_space && e->at == e->begin && e->text[e->at] != ' ') {
            TRMI_TRY(encode_prefixed(t, e, tokens, err));
        } else {
            size_t length = trmi_split_next(t->style, e->text + e->at, e->end - e->at);
            TRMI_TRY(encode_cached(t, e->text + e->at, length, e->at, tokens, err));
            e->at += length;
        }
    }
    return TRM_OK;
}

trm_status trm_tokenizer_encode(trm_tokenizer *tokenizer, const char *text, size_t bytes,
                                trm_tokens *tokens, trm_error *err) {
    TRMI_NEED(err, tokenizer, text, tokens);
    trmi_encoding encoding;
    trmi_encoding_begin(tokenizer, text, bytes, &encoding);
    return trmi_encode_some(tokenizer, &encoding, INT64_MAX, tokens, err);
}

/* ---- decoding ---- */

/* Contract in trireme/data.h. The bytes of the tokens, joined; part of a character may stand at
 * either end. */
trm_status trm_tokenizer_decode(const trm_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                char **out, size_t *bytes, trm_error *err) {
    TRMI_NEED(err, tokenizer, out, bytes);
    if (count > 0) {
        TRMI_NEED(err, ids);
    }
    size_t length = 0;
    /* check the ids and add up the bytes */
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer->vocabulary ||
            tokenizer->tokens[ids[i]].text == NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "token %lld: id %d is not in the vocabulary of %lld ids", (long long)i,
                             (int)ids[i], (long long)tokenizer->vocabulary);
        }
        if (!trmi_add_size(length, (size_t)tokenizer->tokens[ids[i]].byte_count, &length)) {
            return TRMI_NO_MEMORY(err, "to decode %lld tokens", (long long)count);
        }
    }
    char *text;
    TRMI_TRY(TRMI_NEW(err, text, length + 1, "to decode %lld tokens", (long long)count));
    *out = text;
    *bytes = length;
    for (int64_t i = 0; i < count; i++) {
        const trmi_token *token = &tokenizer->tokens[ids[i]];
        memcpy(text, token->bytes, (size_t)token->byte_count);
        text += token->byte_count;
    }
    return TRM_OK;
}
