/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/data_text.h: text for language models: tokenizers and files of tokens.
 *
 *     trm_tokenizer *tokenizer;
 *     trm_tokenizer_train((const char *[]){"input.txt"}, 1,
 *                         &(trm_tokenizer_options){.vocabulary = 8192}, &tokenizer, &err);
 *     trm_tokenizer_save(tokenizer, "tokenizer", &err);
 *     trm_tokenizer_encode(tokenizer, text, bytes, &tokens, &err);
 *
 * A tokenizer is byte-level BPE as Hugging Face's `tokenizers` package writes it, or one token for
 * each character of a text. It gives the ids that the package gives (its `encode` without the tokens
 * that a post-processor adds). Bytes that are not UTF-8 are encoded as they are, so that decoding
 * returns every text bit for bit; the package has no such texts.
 */
#ifndef TRIREME_DATA_TEXT_H
#define TRIREME_DATA_TEXT_H

#include "trireme/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenizers ---------------------------------------------------------------------------- */

typedef struct trm_tokenizer trm_tokenizer;

typedef struct trm_tokenizer_options {
    int64_t vocabulary;                /* tokens at most: the special ones, 256 bytes, and merges */
    int64_t min_count;                 /* pairs that come less often are not merged; 0 = 2 */
    const char *const *special_tokens; /* "<|endoftext|>": never split; they have the first ids */
    int32_t special_count;
} trm_tokenizer_options;

/* Learns byte-level BPE from text files, line by line: the merges, in the order, of the package's
 * ByteLevelBPETokenizer. At least one line is expected.
 *   owns    *out: caller, trm_tokenizer_destroy
 *   errors  IO, INVALID (a vocabulary below 256 + special_count), NOMEM
 *   cost    memory of the distinct words of the files, not of the files */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_train(const char *const *paths, int32_t count,
                                                    const trm_tokenizer_options *options,
                                                    trm_tokenizer **out, trm_error *err);

/* Reads `path`: a tokenizer.json, or a folder with tokenizer.json, or else with vocab.json and
 * merges.txt (then as GPT-2's: its regular expression, and <|endoftext|> is special if no merge makes
 * it). TRM_UNSUPPORTED names what is not byte-level BPE of GPT-2's, Llama 3's or Qwen 2's form.
 *   errors  IO, CORRUPT, UNSUPPORTED, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_open(const char *path, trm_tokenizer **out,
                                                   trm_error *err);
/* 256 tokens: id is the byte. */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_bytes(trm_tokenizer **out, trm_error *err);
/* One token for each character that the text has, in the order of code points (nanoGPT's
 * character recipe).   errors  INVALID (an empty text), CORRUPT (not UTF-8), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_characters(const char *text, size_t bytes,
                                                         trm_tokenizer **out, trm_error *err);
/* Writes tokenizer.json, which the package and `transformers` load, vocab.json and merges.txt; makes
 * the folder.   errors  IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_save(const trm_tokenizer *tokenizer,
                                                   const char *folder, trm_error *err);
/* NULL is fine. */
TRM_API void trm_tokenizer_destroy(trm_tokenizer *tokenizer);

/* One more than the largest id. */
TRM_API int64_t trm_tokenizer_vocabulary(const trm_tokenizer *tokenizer);
/* The id of a token, as tokenizer.json spells it ("<|endoftext|>"); -1: there is none. */
TRM_API int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token);

/* A list of ids. Starts as {0}. */
typedef struct trm_tokens {
    int32_t *ids;
    int64_t count, capacity;
} trm_tokens;
TRM_API void trm_tokens_free(trm_tokens *tokens);

/* Appends the tokens of a text. Special tokens in the text become their ids.
 *   thread  one at a time per tokenizer (it remembers the tokens of words)
 *   errors  INVALID (a byte or character without a token, with its offset; `tokens` then has those
 *           before it), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_encode(trm_tokenizer *tokenizer, const char *text,
                                                     size_t bytes, trm_tokens *tokens,
                                                     trm_error *err);
/* The text of `count` ids, special ones included: bytes, with a zero byte after them.
 *   owns    *out: caller, trm_free
 *   errors  INVALID (an id without a token), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokenizer_decode(const trm_tokenizer *tokenizer,
                                                     const int32_t *ids, int64_t count, char **out,
                                                     size_t *bytes, trm_error *err);

/* ---- files of tokens ----------------------------------------------------------------------- */

/* Writes ids below 65536 as nanoGPT does: uint16, little-endian, no header.
 *   errors  INVALID (an id that does not fit), IO, NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_tokens_write(const trm_tokens *tokens, const char *path,
                                                 trm_error *err);
/* Reads a file of tokens, nanoGPT's or llm.c's.   errors  IO, CORRUPT, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_tokens_read(const char *path, trm_tokens *tokens,
                                                trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
