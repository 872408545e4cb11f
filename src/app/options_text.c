/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of text and tokenizers; their defaults are in options.c. */
#include "app/app.h"

#define OPTION(member) offsetof(app_options, member)
#define GROUP(name, title, table)                                                                  \
    const app_group app_group_##name = {title, table, sizeof(table) / sizeof((table)[0])}

static const app_flag TEXT_DATA[] = {
    {"tokenizer", APP_TEXT, OPTION(tokenizer), "DIR",
     "text, jsonl: a tokenizer's folder (trireme tokenizer train)", 0, 0},
    {"tokens", APP_CHOICE, OPTION(tokens), "characters|bytes",
     "text, jsonl: instead of a tokenizer", 0, 0},
    {"context", APP_INT, OPTION(context_tokens), "N", "tokens a sample (256)", 1, 1 << 24},
    {"stride", APP_INT, OPTION(stride), "N",
     "tokens from one sample's begin to the next one's (the context)", 1, 1 << 24},
    {"text-field", APP_TEXT, OPTION(text_field), "NAME", "jsonl: the field with the text (text)", 0,
     0},
};
GROUP(text_data, "Text", TEXT_DATA);

static const app_flag TOKENIZER_TRAIN[] = {
    {"vocabulary", APP_INT, OPTION(token_vocabulary), "N",
     "tokens: special ones, 256 bytes and merges (needed)", 256, 1 << 24},
    {"output", APP_TEXT, OPTION(output), "DIR", "the folder to write (needed)", 0, 0},
    {"min-count", APP_INT, OPTION(token_min_count), "N",
     "pairs that come less often are not merged (2)", 1, 1e12},
    {"special-tokens", APP_TEXT, OPTION(special_tokens), "A,B,...",
     "never split, e.g. '<|endoftext|>'", 0, 0},
};
GROUP(tokenizer_train, "Tokenizer", TOKENIZER_TRAIN);

static const app_flag TOKENIZER[] = {
    {"tokenizer", APP_TEXT, OPTION(tokenizer), "DIR",
     "with tokenizer.json, or vocab.json and merges.txt (needed)", 0, 0},
    {"output", APP_TEXT, OPTION(output), "FILE", "write there instead of stdout", 0, 0},
    {"lines", APP_BOOL, OPTION(by_line), NULL,
     "encode: each line for itself, without its end; its ids on a line", 0, 0},
};
GROUP(tokenizer, "Tokenizer", TOKENIZER);
