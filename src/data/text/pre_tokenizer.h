/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/pre_tokenizer.h: cuts text into the pieces in which byte-level BPE merges: words with
 * the space before them, numbers, punctuation, white space. */
#ifndef TRMI_DATA_PRE_TOKENIZER_H
#define TRMI_DATA_PRE_TOKENIZER_H

#include <stddef.h>

/* The regular expression whose matches are the pieces.
 *   none    all of the text is one piece
 *   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   llama3  Llama 3 and GPT-4 (as Hugging Face writes it): any case of 's, a letter run takes any one
 *           character before it, at most three digits, line ends stay with what is before them
 *   qwen2   as llama3, with single digits */
typedef enum trmi_split_style {
    TRMI_SPLIT_NONE,
    TRMI_SPLIT_GPT2,
    TRMI_SPLIT_LLAMA3,
    TRMI_SPLIT_QWEN2
} trmi_split_style;

/* Returns the style whose regular expression this is; -1: none of them. */
int trmi_split_style_of(const char *pattern);
/* Returns the length of the first piece of a text of `bytes` > 0 bytes. A byte that is not UTF-8
 * counts as a character that is neither letter, number nor space. */
size_t trmi_split_next(trmi_split_style style, const char *text, size_t bytes);

#endif
