/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json: what Hugging Face's `tokenizers` package writes.
 *
 *   read_settings    normalizer, pre_tokenizer, decoder, ...: what changes ids and is not
 *                    implemented is refused by name, since ignoring it would give other ids
 *   vocabulary       "token": id, and the list of added tokens
 *   merges           pairs by falling priority
 *   keep_settings    the rest is kept as it is, to be written again
 *
 * Invariants: the file comes from outside. Memory follows the number of its entries, not its
 * largest id, so that a small file cannot ask for a huge table; an id or a key that stands there
 * twice is an error. */
#include "data/text/tokenizer.h"

#include "base/checked.h"
#include "base/error.h"
#include "data/text/unicode.h"

#include <stdio.h>
#include <string.h>

/* Ids lie close together; so many of them may be missing, beside as many as there are tokens. */
enum { IDS_MISSING = 4096 };

/* Returns a string member; "" if there is none. */
static const char *get_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Returns whether a member is true. */
static bool is_true(const json_t *object, const char *key) {
    return json_is_true(json_object_get(object, key));
}

/* Returns whether a value is absent, null, false, 0 or "". */
static bool is_nothing(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

/* Reports a setting that is not implemented. */
static trm_status refuse_value(const char *name, const char *what, const char *found,
                               const char *expected, trm_error *err) {
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: %s '%.60s' is not supported; %s expected", name,
                     what, found, expected);
}

/* ---- how text is split ---- */

/* Takes the style from the expression of a Split. */
static trm_status read_split(trm_tokenizer *t, const char *name, const json_t *split,
                             trm_error *err) {
    const char *pattern = get_text(json_object_get(split, "pattern"), "Regex");
    int style = trmi_split_style_of(pattern);
    if (style < 0) {
        return refuse_value(name, "the regular expression", pattern,
                            "that of GPT-2, Llama 3 or Qwen 2", err);
    }
    if (strcmp(get_text(split, "behavior"), "Isolated") != 0 || is_true(split, "invert")) {
        return refuse_value(name, "a split with behavior", get_text(split, "behavior"),
                            "Isolated, not inverted,", err);
    }
    t->style = (trmi_split_style)style;
    return TRM_OK;
}

/* Takes a ByteLevel step. */
static trm_status read_byte_level(trm_tokenizer *t, const char *name, const json_t *step,
                                  trm_error *err) {
    if (strcmp(get_text(step, "type"), "ByteLevel") != 0) {
        return refuse_value(name, "the pre-tokenizer", get_text(step, "type"), "ByteLevel", err);
    }
    const json_t *regex = json_object_get(step, "use_regex"), /* added later: without it true */
        *prefix = json_object_get(step, "add_prefix_space");
    if (regex == NULL || json_is_true(regex)) {
        if (t->style != TRMI_SPLIT_NONE) {
            return refuse_value(name, "the pre-tokenizer", "Split, then ByteLevel with use_regex",
                                "one split", err);
        }
        t->style = TRMI_SPLIT_GPT2;
    }
    t->prefix_space = prefix == NULL || json_is_true(prefix);
    return TRM_OK;
}

/* Takes ByteLevel, alone or after a Split. */
static trm_status read_pre_tokenizer(trm_tokenizer *t, const char *name, const json_t *root,
                                     trm_error *err) {
    const json_t *step = json_object_get(root, "pre_tokenizer");
    if (strcmp(get_text(step, "type"), "Sequence") != 0) {
        return read_byte_level(t, name, step, err);
    }
    const json_t *steps = json_object_get(step, "pretokenizers");
    if (json_array_size(steps) != 2 ||
        strcmp(get_text(json_array_get(steps, 0), "type"), "Split") != 0) {
        return refuse_value(name, "the pre-tokenizer", "Sequence", "a Split and ByteLevel in it",
                            err);
    }
    TRMI_TRY(read_split(t, name, json_array_get(steps, 0), err));
    TRMI_TRY(read_byte_level(t, name, json_array_get(steps, 1), err));
    return t->prefix_space ? refuse_value(name, "Split, then", "add_prefix_space", "no prefix", err)
                           : TRM_OK;
}

/* Reads all settings that influence ids, besides the vocabulary. What this tokenizer cannot do is
 * refused, because ignoring it would give other ids. */
static trm_status read_settings(trm_tokenizer *t, const char *name, const json_t *root,
                                trm_error *err) {
    static const char *const model_keys[] = {"dropout", "continuing_subword_prefix",
                                             "end_of_word_suffix", "byte_fallback"};
    const json_t *model = json_object_get(root, "model");
    const char *type = get_text(model, "type"),
               *decoder = get_text(json_object_get(root, "decoder"), "type");
    if (strcmp(type, "BPE") != 0) {
        return refuse_value(name, "the model", type, "BPE", err);
    }
    for (size_t i = 0; i < sizeof model_keys / sizeof model_keys[0]; i++) {
        if (!is_nothing(model, model_keys[i])) {
            return refuse_value(name, "the model's", model_keys[i], "none", err);
        }
    }
    if (!is_nothing(root, "normalizer")) {
        return refuse_value(name, "the normalizer",
                            get_text(json_object_get(root, "normalizer"), "type"), "none", err);
    }
    /* a tokenizer of characters has no pre-tokenizer, and joins its tokens without change */
    t->ignore_merges = is_true(model, "ignore_merges");
    t->characters = is_nothing(root, "pre_tokenizer") && strcmp(decoder, "Fuse") == 0;
    if (!t->characters && strcmp(decoder, "ByteLevel") != 0) {
        return refuse_value(name, "the decoder", decoder, "ByteLevel", err);
    }
    return t->characters ? TRM_OK : read_pre_tokenizer(t, name, root, err);
}

/* ---- vocabulary ---- */

/* Checks that an id is an integer from 0 to limit - 1. */
static trm_status check_id(const char *name, const char *token, const json_t *value, int64_t limit,
                           trm_error *err) {
    if (!json_is_integer(value)) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: token '%.60s': the id is no whole number; 0 to %lld expected", name,
                         token, (long long)limit - 1);
    }
    if (json_integer_value(value) < 0 || json_integer_value(value) >= limit) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: token '%.60s': id %lld, 0 to %lld expected", name,
                         token, (long long)json_integer_value(value), (long long)limit - 1);
    }
    return TRM_OK;
}

/* Sets a token, unless another one has its id. */
static trm_status set_token(trm_tokenizer *t, const char *name, const char *token, int64_t id,
                            bool plain, trm_error *err) {
    if (t->tokens[id].text != NULL) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: tokens '%.60s' and '%.60s' have the same id %lld",
                         name, t->tokens[id].text, token, (long long)id);
    }
    return trmi_tokenizer_set(t, (int32_t)id, token, plain, err);
}

/* Adds an entry of added_tokens: its id, its text, and whether it takes the spaces beside it. */
static trm_status read_added_token(trm_tokenizer *t, const char *name, const json_t *entry,
                                   int64_t limit, trm_error *err) {
    const char *token = get_text(entry, "content");
    const json_t *id = json_object_get(entry, "id");
    TRMI_TRY(check_id(name, token, id, limit, err));
    if (token[0] == '\0') {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: the added token %lld has no content", name,
                         (long long)json_integer_value(id));
    }
    if (is_true(entry, "single_word")) {
        return refuse_value(name, "single_word of the added token", token, "false", err);
    }
    const json_t *normalized = json_object_get(entry, "normalized");
    trmi_added_token *a = &t->added[t->added_count++];
    *a = (trmi_added_token){.text = trmi_arena_strdup(&t->arena, token),
                            .bytes = strlen(token),
                            .id = (int32_t)json_integer_value(id),
                            .strip_left = is_true(entry, "lstrip"),
                            .strip_right = is_true(entry, "rstrip"),
                            .normalized = normalized == NULL || json_is_true(normalized)};
    if (a->text == NULL) {
        return TRMI_NO_MEMORY(err, "for the added tokens of %s", name);
    }
    if (t->tokens[a->id].text != NULL && strcmp(t->tokens[a->id].text, token) == 0) {
        t->tokens[a->id].bytes = a->text; /* also in the vocabulary: it spells no bytes */
        t->tokens[a->id].byte_count = (int32_t)a->bytes;
        return TRM_OK;
    }
    /* The token is only in the list, outside of the vocabulary. */
    TRMI_TRY(set_token(t, name, token, a->id, true, err));
    t->tokens[a->id].outside = true;
    return TRM_OK;
}

/* Returns the largest id of vocabulary and added tokens; -1: there are none. */
static int64_t find_largest_id(json_t *vocabulary, const json_t *added) {
    const char *token;
    json_t *id;
    const json_t *entry;
    size_t i;
    int64_t largest = -1;
    json_object_foreach(vocabulary, token, id) {
        largest = trmi_max_i64(largest, json_integer_value(id));
    }
    json_array_foreach(added, i, entry) {
        largest = trmi_max_i64(largest, json_integer_value(json_object_get(entry, "id")));
    }
    return largest;
}

/* Contract in tokenizer.h. Memory follows the number of entries, not the largest id: a file with a
 * huge id cannot ask for a huge table. */
trm_status trmi_tokenizer_read_vocabulary(trm_tokenizer *t, const char *name, json_t *vocabulary,
                                          json_t *added, trm_error *err) {
    size_t count = json_object_size(vocabulary), added_count = json_array_size(added), i;
    int64_t limit = 2 * (int64_t)(count + added_count) + IDS_MISSING;
    const char *token;
    json_t *id;
    const json_t *entry;
    if (count == 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: no vocabulary: {\"token\": id, ...} expected",
                         name);
    }
    TRMI_TRY(trmi_tokenizer_reserve(t, trmi_min_i64(find_largest_id(vocabulary, added) + 1, limit),
                                    err));
    limit = t->vocabulary;
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->added, added_count, "for added tokens"));
    json_object_foreach(vocabulary, token, id) {
        TRMI_TRY(check_id(name, token, id, limit, err));
        TRMI_TRY(set_token(t, name, token, json_integer_value(id), t->characters, err));
    }
    json_array_foreach(added, i, entry) { TRMI_TRY(read_added_token(t, name, entry, limit, err)); }
    return TRM_OK;
}

/* ---- merges ---- */

/* Contract in tokenizer.h. Both parts and the whole must be tokens: a merge to an unknown token
 * would make text that has no id. */
trm_status trmi_tokenizer_add_merge(trm_tokenizer *t, const char *left, const char *right,
                                    const char *name, int64_t number, trm_error *err) {
    char whole[1024];
    int length = snprintf(whole, sizeof whole, "%s%s", left, right);
    int32_t a = trm_tokenizer_find(t, left), b = trm_tokenizer_find(t, right),
            result = length < (int)sizeof whole ? trm_tokenizer_find(t, whole) : -1;
    if (a < 0 || b < 0 || result < 0) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: merge %lld: '%.40s' and '%.40s' to '%.80s': '%.40s' is not in the "
                         "vocabulary",
                         name, (long long)number, left, right, whole,
                         a < 0   ? left
                         : b < 0 ? right
                                 : whole);
    }
    t->merges[t->merge_count++] = (trmi_token_merge){a, b, result};
    return TRM_OK;
}

/* Reads one merge: "left right", as files until 2024 have it, or ["left", "right"]. */
static trm_status read_merge(trm_tokenizer *t, const char *name, const json_t *entry,
                             trm_error *err) {
    const char *left = json_string_value(json_array_get(entry, 0)),
               *right = json_string_value(json_array_get(entry, 1)),
               *line = json_string_value(entry);
    const char *space = line != NULL ? strchr(line, ' ') : NULL;
    char first[512];
    if (space != NULL && space - line < (int)sizeof first && strchr(space + 1, ' ') == NULL) {
        memcpy(first, line, (size_t)(space - line));
        first[space - line] = '\0';
        left = first;
        right = space + 1;
    }
    if (left == NULL || right == NULL || left[0] == '\0' || right[0] == '\0') {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: merge %lld: [\"left\", \"right\"] or \"left right\" expected", name,
                         (long long)t->merge_count);
    }
    return trmi_tokenizer_add_merge(t, left, right, name, t->merge_count, err);
}

/* Reads all merges. */
static trm_status read_merges(trm_tokenizer *t, const char *name, const json_t *merges,
                              trm_error *err) {
    const json_t *entry;
    size_t i;
    TRMI_TRY(TRMI_NEW_IN(err, &t->arena, t->merges, json_array_size(merges), "for merges"));
    json_array_foreach(merges, i, entry) { TRMI_TRY(read_merge(t, name, entry, err)); }
    return TRM_OK;
}

/* ---- characters ---- */

/* Tokens of one character each, and no merges: their order by code point. */
static trm_status read_characters(trm_tokenizer *t, const char *name, trm_error *err) {
    for (int64_t id = 0; id < t->vocabulary; id++) {
        const char *text = t->tokens[id].text;
        uint32_t point = 0;
        size_t length = text != NULL ? strlen(text) : 0;
        if (text == NULL) {
            continue;
        }
        if (length == 0 || trmi_char_read(text, length, &point) != length || t->merge_count > 0) {
            return refuse_value(name, "without a pre-tokenizer, the token", text,
                                "one character a token and no merges", err);
        }
    }
    return trmi_tokenizer_index_characters(t, err);
}

/* ---- what stands around a text ---- */

/* Returns the value whose token a processor puts before a text: an id, or a list of ids. NULL: it
 * puts none there. *count is the number of tokens of a template before the text. */
static const json_t *find_before(const json_t *processor, size_t *count) {
    const char *type = get_text(processor, "type");
    const json_t *single = json_object_get(processor, "single"), *piece, *first = NULL;
    size_t i;
    *count = 1;
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        return json_array_get(json_object_get(processor, "cls"), 1);
    }
    *count = 0;
    json_array_foreach(single, i, piece) {
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (special == NULL) {
            break;
        }
        const json_t *entry =
            json_object_get(json_object_get(processor, "special_tokens"), get_text(special, "id"));
        first = first == NULL ? json_object_get(entry, "ids") : first;
        *count += 1;
    }
    return first;
}

/* Takes the token before a text from the post-processor, or from the first of several that has
 * one.
 *   errors  CORRUPT, UNSUPPORTED: more than one token */
static trm_status read_begin(trm_tokenizer *t, const char *name, const json_t *root,
                             trm_error *err) {
    const json_t *processor = json_object_get(root, "post_processor"), *before = NULL,
                 *several = json_object_get(processor, "processors");
    size_t count = 0, steps = json_is_array(several) ? json_array_size(several) : 1;
    for (size_t i = 0; i < steps && before == NULL; i++) {
        before =
            find_before(json_is_array(several) ? json_array_get(several, i) : processor, &count);
    }
    if (before == NULL) {
        return TRM_OK;
    }
    if (json_is_array(before)) {
        count = json_array_size(before) == 1 ? count : 2;
        before = json_array_get(before, 0);
    }
    if (count > 1) {
        return refuse_value(name, "the post-processor", "several tokens before a text", "one", err);
    }
    TRMI_TRY(check_id(name, "before a text", before, t->vocabulary, err));
    t->begin = (int32_t)json_integer_value(before);
    return TRM_OK;
}

/* ---- the file ---- */

/* Drops what is kept as tables. */
static bool keep_settings(trm_tokenizer *t, json_t *root) {
    json_t *model = json_object_get(root, "model");
    t->settings = json_incref(root);
    return json_object_set_new(model, "vocab", json_object()) == 0 &&
           json_object_set_new(model, "merges", json_array()) == 0;
}

/* Reads the parsed file. */
static trm_status read_root(trm_tokenizer *t, const char *name, json_t *root, trm_error *err) {
    json_t *model = json_object_get(root, "model");
    TRMI_TRY(read_settings(t, name, root, err));
    TRMI_TRY(trmi_tokenizer_read_vocabulary(t, name, json_object_get(model, "vocab"),
                                            json_object_get(root, "added_tokens"), err));
    TRMI_TRY(read_begin(t, name, root, err));
    TRMI_TRY(read_merges(t, name, json_object_get(model, "merges"), err));
    if (t->characters) {
        TRMI_TRY(read_characters(t, name, err));
    }
    if (!keep_settings(t, root)) {
        return TRMI_NO_MEMORY(err, "to read %s", name);
    }
    return trmi_tokenizer_index(t, err);
}

/* Contract in tokenizer.h. A key given twice is an error: jansson would keep the last one only. */
trm_status trmi_tokenizer_parse(const char *name, const char *json, size_t bytes,
                                trm_tokenizer **out, trm_error *err) {
    json_error_t wrong;
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (root == NULL) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %d, column %d: %s; a tokenizer.json expected",
                         name, wrong.line, wrong.column, wrong.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: an array; a tokenizer.json expected", name);
    }
    trm_tokenizer *t = NULL;
    trm_status status = trmi_tokenizer_new(&t, err);
    status = status == TRM_OK ? read_root(t, name, root, err) : status;
    json_decref(root);
    if (status != TRM_OK) {
        trm_tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return TRM_OK;
}
