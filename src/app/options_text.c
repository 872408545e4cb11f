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
    {"size", APP_TEXT, OPTION(language.size), "NAME",
     "published size: layers, width and heads; gpt2: small, medium, large, xl, tiny (4, 128, 4);"
     " llama: llama15m, llama110m, 1b, 8b",
     0, 0},
    {"layers", APP_INT, OPTION(language.layers), "N", "number of blocks (12)", 1, 4096},
    {"width", APP_INT, OPTION(language.width), "N", "values of a position (768)", 1, 1 << 20},
    {"heads", APP_INT, OPTION(language.heads), "N", "heads of attention (12)", 1, 1 << 16},
    {"kv-heads", APP_INT, OPTION(language.kv_heads), "N",
     "heads of keys and values (as many as --heads)", 1, 1 << 16},
    {"rotary-theta", APP_REAL, OPTION(language.rotary_theta), "X",
     "llama: base of the rotary angles (10000)", 1, 1e12},
    {"untied", APP_BOOL, OPTION(language.untied), NULL,
     "llama: the output layer has weights of its own", 0, 0},
    {"dropout", APP_REAL, OPTION(language.dropout), "X", "rate of dropout (0)", 0, 0.99},
};
GROUP(language, "Language models", LANGUAGE);

static const app_flag GENERATE[] = {
    {"prompt", APP_TEXT, OPTION(prompt), "TEXT",
     "text to continue (the token between documents, or a line end)", 0, 0},
    {"prompt-file", APP_TEXT, OPTION(prompt_file), "FILE", "the prompt, at most 1 MB", 0, 0},
    {"tokens", APP_INT, OPTION(generate_tokens), "N",
     "most tokens to generate (200); the token that ends documents ends them earlier", 1, 1e9},
    {"temperature", APP_REAL, OPTION(temperature), "X",
     "divides the logits; 0: the most probable token (0; with --top-k or --top-p 1)", 0, 1000},
    {"top-k", APP_INT, OPTION(top_k), "N", "draw from the N most probable tokens only", 1, 1 << 24},
    {"top-p", APP_REAL, OPTION(top_p), "X",
     "draw from the fewest tokens that have probability X together", 1e-6, 1},
    {"tokenizer", APP_TEXT, OPTION(tokenizer), "DIR",
     "the tokenizer's folder (the one beside the checkpoint)", 0, 0},
};
GROUP(generate, "Text", GENERATE);

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
