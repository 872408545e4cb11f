/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of text, language models and tokenizers; their defaults are in options.c. */
#include "app/app.h"

#define OPTION(member) offsetof(app_options, member)
#define GROUP(name, title, table)                                                                  \
    const app_group app_group_##name = {title, table, sizeof(table) / sizeof((table)[0])}

static const app_flag TEXT_DATA[] = {
    {"tokenizer", APP_TEXT, OPTION(tokenizer), "DIR",
     "text, jsonl: a tokenizer's folder (trireme tokenizer train)", 0, 0},
    {"tokens", APP_CHOICE, OPTION(tokens), "characters|bytes",
     "text, jsonl: instead of a tokenizer", 0, 0},
    {"stride", APP_INT, OPTION(stride), "N",
     "tokens from one sample's begin to the next one's (the context)", 1, 1 << 24},
    {"text-field", APP_TEXT, OPTION(text_field), "NAME", "jsonl: the field with the text (text)", 0,
     0},
};
GROUP(text_data, "Text", TEXT_DATA);

/* for commands without options of ranks; in the other ones --context has both meanings */
static const app_flag TEXT_CONTEXT[] = {
    {"context", APP_TEXT, OPTION(context), "N", "tokens a sample (256)", 0, 0},
};
GROUP(text_context, NULL, TEXT_CONTEXT);

/* --hidden and --vocabulary are flags of click models too (options_click.c) */
static const app_flag LANGUAGE[] = {
    {"size", APP_CHOICE, OPTION(language.size), "small|medium|large|xl|tiny",
     "published size: layers, width and heads (small); tiny: 4, 128, 4", 0, 0},
    {"layers", APP_INT, OPTION(language.layers), "N", "number of blocks (12)", 1, 4096},
    {"width", APP_INT, OPTION(language.width), "N", "values of a position (768)", 1, 1 << 20},
    {"heads", APP_INT, OPTION(language.heads), "N", "heads of attention (12)", 1, 1 << 16},
    {"kv-heads", APP_INT, OPTION(language.kv_heads), "N",
     "heads of keys and values (as many as --heads)", 1, 1 << 16},
    {"dropout", APP_REAL, OPTION(language.dropout), "X", "rate of dropout (0)", 0, 0.99},
};
GROUP(language, "Language models", LANGUAGE);

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
