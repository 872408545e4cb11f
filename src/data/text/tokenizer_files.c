/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in folders: tokenizer.json, or vocab.json and merges.txt; and tokenizers that are made
 * without files, of bytes or characters.
 *
 *   tokenizer.json             everything, in the form of the package `tokenizers`; preferred
 *   vocab.json + merges.txt    GPT-2's pair: ids, and merges by falling priority
 *   bytes                      256 tokens, one a byte; no merges
 *   characters                 one token for each character of a text, in the order of code points
 *
 * Saving writes both forms, so that older programs read the folder, too. Files come from outside:
 * what does not have the expected form is CORRUPT, with line or entry, and leaves no half-made
 * tokenizer. The settings of a tokenizer are kept as JSON (t->settings), so that saving writes back
 * what reading found, also members that this program does not use. */
#include "data/text/tokenizer.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "base/format/utf8.h"
#include "data/text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a file and of a path, at most. */
enum { FILE_BYTES_MAX = 1 << 28, PATH_BYTES = 4096 };
static const char end_of_text[] = "<|endoftext|>";

/* ---- vocab.json and merges.txt ---- */

/* Returns whether a token is the result of a merge. */
static bool is_made(const trm_tokenizer *t, int32_t id) {
    for (int64_t i = 0; i < t->merge_count; i++) {
        if (t->merges[i].result == id) {
            return true;
        }
    }
    return false;
}

/* Reads merges.txt: "left right" in each line, by falling priority. Lines of "#version" and empty
 * ones are skipped. */
static trm_status read_merge_lines(trm_tokenizer *t, const char *text, size_t bytes,
                                   trm_error *err) {
    int64_t lines = 1, number = 0;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->merges, lines, "for merges"));
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((line_end != NULL ? line_end : end) - at);
        char line[1024];
        number++;
        bool skipped = length == 0 || (length >= 8 && memcmp(at, "#version", 8) == 0);
        /* Copy the line, without its end. */
        size_t copied = length < sizeof line ? length : sizeof line - 1;
        memcpy(line, at, copied);
        line[copied] = '\0';
        at += length + 1;
        line[strcspn(line, "\r")] = '\0';
        char *space = strchr(line, ' ');
        if (skipped) {
            continue;
        }
        /* tokens have no spaces: exactly one separates the two */
        if (space == NULL || space == line || space[1] == '\0' || strchr(space + 1, ' ') != NULL ||
            copied < length) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "merges.txt: line %lld: '%.60s', two tokens with a space between "
                             "expected",
                             (long long)number, line);
        }
        *space = '\0';
        TRMI_TRY(trmi_tokenizer_add_merge(t, line, space + 1, "merges.txt", t->merge_count, err));
    }
    return TRM_OK;
}

/* GPT-2's files do not say that <|endoftext|> is special. */
static trm_status add_end_of_text(trm_tokenizer *t, trm_error *err) {
    int32_t id = trm_tokenizer_find(t, end_of_text);
    if (id < 0 || is_made(t, id)) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->added, 1, "for %s", end_of_text));
    t->added[0] = (trmi_added_token){
        .text = end_of_text, .bytes = sizeof end_of_text - 1, .id = id, .normalized = true};
    t->added_count = 1;
    json_t *entry =
        json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", end_of_text,
                  "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 1, "special", 1);
    return json_array_append_new(json_object_get(t->settings, "added_tokens"), entry) == 0
               ? TRM_OK
               : TRMI_NO_MEMORY(err, "for a tokenizer");
}

/* Reads a parsed vocab.json and the text of merges.txt. */
static trm_status read_pair(trm_tokenizer *t, json_t *vocabulary, const char *merges,
                            size_t merge_bytes, trm_error *err) {
    t->style = TRMI_SPLIT_GPT2;
    t->settings = trmi_tokenizer_settings(false);
    if (t->settings == NULL) {
        return TRMI_NO_MEMORY(err, "for a tokenizer");
    }
    TRMI_TRY(trmi_tokenizer_read_vocabulary(t, "vocab.json", vocabulary, NULL, err));
    TRMI_TRY(read_merge_lines(t, merges, merge_bytes, err));
    TRMI_TRY(add_end_of_text(t, err));
    return trmi_tokenizer_index(t, err);
}

/* Contract in tokenizer.h. The pair of files that GPT-2 has: vocab.json and merges.txt. */
trm_status trmi_tokenizer_parse_pair(const char *vocabulary, size_t vocabulary_bytes,
                                     const char *merges, size_t merge_bytes, trm_tokenizer **out,
                                     trm_error *err) {
    json_error_t wrong;
    json_t *root = json_loadb(vocabulary, vocabulary_bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (root == NULL) {
        return TRMI_FAIL(err, TRM_CORRUPT, "vocab.json: line %d, column %d: %s", wrong.line,
                         wrong.column, wrong.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return TRMI_FAIL(err, TRM_CORRUPT, "vocab.json: an array; {\"token\": id, ...} expected");
    }
    trm_tokenizer *t = NULL;
    trm_status status = trmi_tokenizer_new(&t, err);
    status = status == TRM_OK ? read_pair(t, root, merges, merge_bytes, err) : status;
    json_decref(root);
    if (status != TRM_OK) {
        trm_tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return TRM_OK;
}

/* ---- opening ---- */

/* Reads a file in a folder. */
static trm_status read_in(const char *folder, const char *name, uint8_t **out, size_t *bytes,
                          trm_error *err) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%.200s: the path is too long", folder);
    }
    return trmi_os_read_file(path, FILE_BYTES_MAX, out, bytes, err);
}

/* Returns whether a folder has a file of this name. */
static bool has_file(const char *folder, const char *name) {
    char path[PATH_BYTES];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* Opens vocab.json and merges.txt. */
static trm_status open_pair(const char *folder, trm_tokenizer **out, trm_error *err) {
    uint8_t *vocabulary = NULL, *merges = NULL;
    size_t vocabulary_bytes = 0, merge_bytes = 0;
    trm_status status = read_in(folder, "vocab.json", &vocabulary, &vocabulary_bytes, err);
    if (status == TRM_OK) {
        status = read_in(folder, "merges.txt", &merges, &merge_bytes, err);
    }
    if (status == TRM_OK) {
        status = trmi_tokenizer_parse_pair((char *)vocabulary, vocabulary_bytes, (char *)merges,
                                           merge_bytes, out, err);
        if (status != TRM_OK) {
            trmi_error_append(err, " (in %.200s)", folder);
        }
    }
    trmi_free(vocabulary);
    trmi_free(merges);
    return status;
}

/* Contract in trireme/data.h. tokenizer.json has everything, so it is preferred. */
trm_status trm_tokenizer_open(const char *path, trm_tokenizer **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    struct stat info;
    if (stat(path, &info) != 0) {
        return TRMI_FAIL_SYS(err, "%s: no such tokenizer", path);
    }
    bool folder = S_ISDIR(info.st_mode);
    if (folder && !has_file(path, "tokenizer.json")) {
        return has_file(path, "vocab.json")
                   ? open_pair(path, out, err)
                   : TRMI_FAIL(err, TRM_IO,
                               "%s: no tokenizer: tokenizer.json, or vocab.json and merges.txt, "
                               "expected; trireme tokenizer train makes one",
                               path);
    }
    uint8_t *json;
    size_t bytes;
    TRMI_TRY(folder ? read_in(path, "tokenizer.json", &json, &bytes, err)
                    : trmi_os_read_file(path, FILE_BYTES_MAX, &json, &bytes, err));
    trm_status status = trmi_tokenizer_parse(path, (char *)json, bytes, out, err);
    trmi_free(json);
    return status;
}

/* ---- bytes and characters ---- */

/* A step of ByteLevel, with the values that the package's ByteLevelBPETokenizer has. */
static json_t *make_byte_level(bool prefix, bool trim) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                     "trim_offsets", trim, "use_regex", 1);
}

/* Contract in tokenizer.h. These are the members that the package `tokenizers` expects; the
 * vocabulary is put in when the file is written. */
json_t *trmi_tokenizer_settings(bool characters) {
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:{}, s:[]}", "type", "BPE", "dropout",
                  "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", "merges");
    return json_pack("{s:s, s:n, s:n, s:[], s:n, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     characters ? json_null() : make_byte_level(false, true), "post_processor",
                     characters ? json_null() : make_byte_level(true, false), "decoder",
                     characters ? json_pack("{s:s}", "type", "Fuse") : make_byte_level(true, true),
                     "model", model);
}

/* Sets the 256 tokens of bytes. */
static trm_status fill_bytes(trm_tokenizer *t, trm_error *err) {
    t->settings = trmi_tokenizer_settings(false);
    t->style = TRMI_SPLIT_GPT2;
    if (t->settings == NULL) {
        return TRMI_NO_MEMORY(err, "for a tokenizer");
    }
    TRMI_TRY(trmi_tokenizer_reserve(t, 256, err));
    for (int32_t i = 0; i < 256; i++) {
        char byte = (char)i, text[5];
        text[trmi_bytes_to_text(&byte, 1, text)] = '\0';
        TRMI_TRY(trmi_tokenizer_set(t, i, text, false, err));
    }
    return trmi_tokenizer_index(t, err);
}

trm_status trm_tokenizer_bytes(trm_tokenizer **out, trm_error *err) {
    TRMI_NEED(err, out);
    trm_tokenizer *t = NULL;
    trm_status status = trmi_tokenizer_new(&t, err);
    status = status == TRM_OK ? fill_bytes(t, err) : status;
    if (status != TRM_OK) {
        trm_tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return TRM_OK;
}

/* Contract in tokenizer.h. One bit for each code point, so that surveys of several files add up. */
trm_status trmi_characters_survey(const char *text, size_t bytes, uint8_t *seen, trm_error *err) {
    for (size_t at = 0; at < bytes;) {
        uint32_t point;
        if (trmi_utf8_length(text + at, bytes - at) == 0) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "byte %zu: 0x%02X is not UTF-8; text of characters expected, for "
                             "other text use bytes",
                             at, (unsigned char)text[at]);
        }
        if (text[at] == '\0') { /* tokens are C strings */
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "byte %zu: a zero byte; text of characters expected, for other data "
                             "use bytes",
                             at);
        }
        at += trmi_char_read(text + at, bytes - at, &point);
        seen[point >> 3] |= (uint8_t)(1u << (point & 7));
    }
    return TRM_OK;
}

/* Sets a token for each character of a set. */
static trm_status fill_characters(trm_tokenizer *t, const uint8_t *seen, trm_error *err) {
    int64_t count = 0;
    for (int64_t i = 0; i < TRMI_CHARACTER_SET_BYTES; i++) {
        count += __builtin_popcount(seen[i]);
    }
    /* a tokenizer without merges */
    t->characters = true;
    t->settings = trmi_tokenizer_settings(true);
    if (count == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "an empty text has no characters to number");
    }
    if (t->settings == NULL) {
        return TRMI_NO_MEMORY(err, "for a tokenizer");
    }
    TRMI_TRY(trmi_tokenizer_reserve(t, count, err));
    /* Ids rise with the code points, so the same set of characters gives the same ids. */
    int32_t id = 0;
    for (uint32_t point = 0; point < 8 * TRMI_CHARACTER_SET_BYTES; point++) {
        char text[5];
        if ((seen[point >> 3] & 1u << (point & 7)) != 0) {
            text[trmi_char_write(point, text)] = '\0';
            TRMI_TRY(trmi_tokenizer_set(t, id++, text, true, err));
        }
    }
    TRMI_TRY(trmi_tokenizer_index_characters(t, err));
    return trmi_tokenizer_index(t, err);
}

trm_status trmi_tokenizer_of_characters(const uint8_t *seen, trm_tokenizer **out, trm_error *err) {
    trm_tokenizer *t = NULL;
    trm_status status = trmi_tokenizer_new(&t, err);
    status = status == TRM_OK ? fill_characters(t, seen, err) : status;
    if (status != TRM_OK) {
        trm_tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return TRM_OK;
}

trm_status trm_tokenizer_characters(const char *text, size_t bytes, trm_tokenizer **out,
                                    trm_error *err) {
    TRMI_NEED(err, text, out);
    uint8_t *seen;
    TRMI_TRY(TRMI_NEW(err, seen, TRMI_CHARACTER_SET_BYTES, "to number characters"));
    trm_status status = trmi_characters_survey(text, bytes, seen, err);
    status = status == TRM_OK ? trmi_tokenizer_of_characters(seen, out, err) : status;
    trmi_free(seen);
    return status;
}

/* ---- saving ---- */

/* Returns {"token": id} in the order of ids; NULL: no memory. */
static json_t *make_vocabulary_json(const trm_tokenizer *t) {
    json_t *vocabulary = json_object();
    for (int64_t id = 0; id < t->vocabulary; id++) {
        const trmi_token *token = &t->tokens[id];
        if (token->text != NULL && !token->outside &&
            json_object_set_new(vocabulary, token->text, json_integer(id)) != 0) {
            json_decref(vocabulary);
            return NULL;
        }
    }
    return vocabulary;
}

/* Returns the merges as pairs; NULL: no memory. */
static json_t *make_merges_json(const trm_tokenizer *t) {
    json_t *merges = json_array();
    for (int64_t i = 0; i < t->merge_count; i++) {
        const trmi_token_merge *m = &t->merges[i];
        if (json_array_append_new(merges, json_pack("[s, s]", t->tokens[m->left].text,
                                                    t->tokens[m->right].text)) != 0) {
            json_decref(merges);
            return NULL;
        }
    }
    return merges;
}

/* Writes a JSON file into a folder. */
static trm_status write_json(const json_t *root, size_t flags, const char *folder, const char *name,
                             trm_error *err) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%.200s: the path is too long", folder);
    }
    char *text = json_dumps(root, flags);
    if (text == NULL) {
        return TRMI_NO_MEMORY(err, "to write %s", path);
    }
    trm_status status = trmi_os_replace_file(NULL, path, text, strlen(text), err);
    free(text);
    return status;
}

/* Writes merges.txt. */
static trm_status write_merges(const trm_tokenizer *t, const char *folder, trm_error *err) {
    char path[PATH_BYTES];
    trmi_text text = {0};
    trmi_text_printf(&text, "#version: 0.2\n");
    for (int64_t i = 0; i < t->merge_count; i++) {
        trmi_text_printf(&text, "%s %s\n", t->tokens[t->merges[i].left].text,
                         t->tokens[t->merges[i].right].text);
    }
    snprintf(path, sizeof path, "%s/merges.txt", folder); /* shorter than tokenizer.json's */
    trm_status status = TRMI_CHECK_MEMORY(err, &text, "to write %s", path);
    status =
        status == TRM_OK ? trmi_os_replace_file(NULL, path, text.data, text.length, err) : status;
    trmi_text_free(&text);
    return status;
}

/* Contract in trireme/data.h. Writes both forms: tokenizer.json, and vocab.json with merges.txt for
 * older readers. */
trm_status trm_tokenizer_save(const trm_tokenizer *tokenizer, const char *folder, trm_error *err) {
    TRMI_NEED(err, tokenizer, folder);
    TRMI_TRY(trmi_os_make_dirs(NULL, folder, err));
    json_t *root = json_copy(tokenizer->settings), *vocabulary = make_vocabulary_json(tokenizer),
           *model = json_copy(json_object_get(tokenizer->settings, "model"));
    bool good = root != NULL && model != NULL && vocabulary != NULL &&
                json_object_set(model, "vocab", vocabulary) == 0 &&
                json_object_set_new(model, "merges", make_merges_json(tokenizer)) == 0 &&
                json_object_set(root, "model", model) == 0;
    trm_status status = good ? write_json(root, JSON_INDENT(2), folder, "tokenizer.json", err)
                             : TRMI_NO_MEMORY(err, "to write a tokenizer into %s", folder);
    if (status == TRM_OK) {
        status = write_json(vocabulary, JSON_COMPACT, folder, "vocab.json", err);
    }
    json_decref(root);
    json_decref(model);
    json_decref(vocabulary);
    return status == TRM_OK ? write_merges(tokenizer, folder, err) : status;
}
