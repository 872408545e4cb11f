/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/tokenizer.h: the tokenizer object, shared by the files that make, read, write and use
 * it.
 *
 *   text --> added tokens cut out --> pieces (pre_tokenizer.h) --> cache of pieces
 *                                                              | not there
 *                                                              v
 *                                            bytes --> merges, lowest rank first --> ids
 *
 * A token has two spellings: its bytes, and its text in files, where each byte is one printable
 * character (the space is U+0120) so that JSON and merges.txt can hold any bytes.
 */
#ifndef TRMI_DATA_TOKENIZER_H
#define TRMI_DATA_TOKENIZER_H

#include "trireme/data.h"

#include "base/hash/hash_index.h"
#include "base/memory.h"
#include "data/text/pre_tokenizer.h"

#include <jansson.h>

/* A token; text NULL: there is no token of this id. */
typedef struct trmi_token {
    const char *text;  /* in files, terminated */
    const char *bytes; /* decoded */
    int32_t byte_count;
    bool outside; /* an added token that is not in the vocabulary of the model */
} trmi_token;

/* A token that is cut out of the text before it is split. */
typedef struct trmi_added_token {
    const char *text;
    size_t bytes;
    int32_t id;
    bool strip_left, strip_right; /* takes the white space beside it, too */
    bool normalized;              /* found after those that are not */
} trmi_added_token;

/* Two tokens become one. The index in the array of merges is the rank. */
typedef struct trmi_token_merge {
    int32_t left, right, result;
} trmi_token_merge;

/* The merges by pair: open addressing. */
typedef struct trmi_merge_place {
    uint64_t pair; /* left * 2^32 + right */
    uint32_t rank;
    int32_t result; /* -1: the place is free */
} trmi_merge_place;

/* The ids of a short piece, in a table that keeps the last one of each hash. */
enum { TRMI_PIECE_BYTES = 27, TRMI_PIECE_IDS = 9, TRMI_PIECE_PLACES = 1 << 15 };
/* An entry of the cache of pieces: its bytes and its ids. */
typedef struct trmi_piece {
    char bytes[TRMI_PIECE_BYTES];
    uint8_t byte_count; /* 0: free */
    int32_t ids[TRMI_PIECE_IDS];
} trmi_piece;

/* A symbol of a piece while its pairs are merged. */
typedef struct trmi_symbol {
    int32_t id; /* -1: merged into the one before */
    uint32_t previous, next;
    uint32_t rank; /* of the pair with the next symbol */
    int32_t result;
} trmi_symbol;

/* The tokenizer. Encoding uses the cache, the symbols and the heap, so one thread at a time
 * encodes. */
struct trm_tokenizer {
    trmi_arena arena;
    trmi_token *tokens;      /* by id */
    int64_t vocabulary;      /* ids are below it */
    trmi_hash_index by_text; /* ids of tokens by their bytes */
    /* pairs of ids that become one, in the order of their ranks; places: hash table of them by
     * pair, of place_mask + 1 places */
    trmi_token_merge *merges;
    int64_t merge_count;
    trmi_merge_place *places;
    uint64_t place_mask;
    int32_t byte_ids[256]; /* -1: no token */
    /* tokens that are looked for in the text before it is cut into pieces */
    trmi_added_token *added;
    int32_t added_count;
    bool added_first[256];  /* bytes with which an added token begins */
    trmi_split_style style; /* how text is cut into pieces */
    bool prefix_space;      /* text that begins without a space gets one */
    bool ignore_merges;     /* a piece that is a token is that token */
    bool characters;        /* one token a character */
    int32_t begin;          /* the token that the post-processor puts before a text; -1: none */
    int32_t ascii_ids[128]; /* of characters; -1: none */
    uint32_t *points;       /* code points of the characters, ascending, and their ids */
    int32_t *point_ids;
    int64_t point_count;
    json_t *settings; /* tokenizer.json but vocab and merges, to write it again */

    /* while encoding */
    /* pieces that were encoded lately, by hash */
    trmi_piece *cache;
    trmi_symbol *symbols; /* of the piece that is encoded */
    int64_t symbol_capacity;
    uint64_t *heap; /* rank * 2^32 + symbol */
    int64_t heap_count, heap_capacity;
};

/* ---- spelling (tokenizer_table.c) ---- */

/* Writes the text of bytes: at most twice as many, without a zero byte. Returns the length. */
size_t trmi_bytes_to_text(const char *bytes, size_t count, char *text);
/* Makes an empty tokenizer.   owns  *out: caller, trm_tokenizer_destroy */
trm_status trmi_tokenizer_new(trm_tokenizer **out, trm_error *err);
/* Makes room for ids below `vocabulary`; once, before tokens are set. */
trm_status trmi_tokenizer_reserve(trm_tokenizer *t, int64_t vocabulary, trm_error *err);
/* Sets token `id` < vocabulary, which had none. `plain`: its bytes are its text; else the text
 * spells them (a text that spells no bytes is plain).   errors NOMEM */
trm_status trmi_tokenizer_set(trm_tokenizer *t, int32_t id, const char *text, bool plain,
                              trm_error *err);
/* Indexes merges, bytes and added tokens, once all tokens are set. */
trm_status trmi_tokenizer_index(trm_tokenizer *t, trm_error *err);
/* Returns the place of a pair in the table of merges; result -1: none. */
const trmi_merge_place *trmi_merge_find(const trm_tokenizer *t, int32_t left, int32_t right);
/* Indexes the characters of a tokenizer that has one for each token. */
trm_status trmi_tokenizer_index_characters(trm_tokenizer *t, trm_error *err);
/* Adds the characters of a text to a set: a bit for each code point.   errors CORRUPT (not UTF-8)
 */
enum { TRMI_CHARACTER_SET_BYTES = 0x110000 / 8 };
trm_status trmi_characters_survey(const char *text, size_t bytes, uint8_t *seen, trm_error *err);
/* Makes a tokenizer with a token for each character of a set.   errors INVALID (none), NOMEM */
trm_status trmi_tokenizer_of_characters(const uint8_t *seen, trm_tokenizer **out, trm_error *err);
/* Returns the id of a character; -1: none. */
int32_t trmi_character_id(const trm_tokenizer *t, uint32_t point);

/* ---- files (tokenizer_json.c, tokenizer_files.c) ---- */

/* Returns the members of tokenizer.json other than vocabulary, merges and added tokens, for
 * byte-level BPE as GPT-2's or for characters. NULL: no memory. */
json_t *trmi_tokenizer_settings(bool characters);
/* Makes a tokenizer of the bytes of tokenizer.json, or of vocab.json and merges.txt. `name` is for
 * messages.   errors CORRUPT, UNSUPPORTED, NOMEM */
trm_status trmi_tokenizer_parse(const char *name, const char *json, size_t bytes,
                                trm_tokenizer **out, trm_error *err);
trm_status trmi_tokenizer_parse_pair(const char *vocabulary, size_t vocabulary_bytes,
                                     const char *merges, size_t merge_bytes, trm_tokenizer **out,
                                     trm_error *err);
/* Read parts of a file that both forms share: {"token": id}, and the merge of "left right". */
trm_status trmi_tokenizer_read_vocabulary(trm_tokenizer *t, const char *name, json_t *vocabulary,
                                          json_t *added, trm_error *err);
trm_status trmi_tokenizer_add_merge(trm_tokenizer *t, const char *left, const char *right,
                                    const char *name, int64_t number, trm_error *err);

/* ---- encoding in portions (tokenizer_encode.c) ---- */

/* Where an encoding stands. */
typedef struct trmi_encoding {
    const char *text;
    size_t bytes;
    size_t at;                     /* the next byte */
    size_t begin, end;             /* the text between two added tokens */
    size_t token_end;              /* end of the added token after it */
    size_t raw_end, raw_token_end; /* the same of tokens that are not normalized */
    int32_t token, raw_token;      /* ids; -1: none, it is the text's end */
} trmi_encoding;

void trmi_encoding_begin(const trm_tokenizer *t, const char *text, size_t bytes,
                         trmi_encoding *encoding);
/* Appends tokens until there are `limit` of them or more, or the text ends (encoding->at ==
 * encoding->bytes). */
trm_status trmi_encode_some(trm_tokenizer *t, trmi_encoding *encoding, int64_t limit,
                            trm_tokens *tokens, trm_error *err);

#endif
