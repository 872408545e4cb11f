/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that end a text, as transformers reads them (contracts in language.h): "eos_token_id"
 * of generation_config.json, or of config.json where that file is not there. A number or a list.
 *
 *      Hugging Face folder --(train --init, import)--> OUTPUT/tokenizer --(export)--> folder
 *
 * Without such a file a text ends with the token that the tokenizer puts between documents, so
 * that a file is written only where it says something else. */
#include "app/models/models.h"

#include "trireme/data.h"

#include <stdio.h>
#include <string.h>

/* Reads the ids of "eos_token_id".
 *   errors  UNSUPPORTED: too many */
static trm_status read_ids(const char *path, const json_t *root, app_ends *out, trm_error *err) {
    const json_t *value = json_object_get(root, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    *out = (app_ends){0};
    if (count > APP_ENDS_MOST) {
        return app_fail(err, TRM_UNSUPPORTED,
                        "%.200s: %zu values of eos_token_id, at most %d can "
                        "be read here",
                        path, count, APP_ENDS_MOST);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (json_is_integer(id) && json_integer_value(id) >= 0 &&
            json_integer_value(id) <= INT32_MAX) {
            out->ids[out->count++] = (int32_t)json_integer_value(id);
        }
    }
    return TRM_OK;
}

/* Contract in language.h. A file that is no JSON is as one that is not there: config.json is read,
 * with its errors, before. */
trm_status app_ends_read(const char *folder, app_ends *out, trm_error *err) {
    static const char *const files[] = {"generation_config.json", "config.json"};
    *out = (app_ends){0};
    for (size_t i = 0; folder != NULL && i < sizeof files / sizeof files[0]; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        json_t *root = length < (int)sizeof path ? json_load_file(path, 0, NULL) : NULL;
        if (root != NULL) {
            trm_status status = read_ids(path, root, out, err);
            json_decref(root);
            return status;
        }
    }
    return TRM_OK;
}

/* Returns whether two lists are the same. */
static bool are_equal(const app_ends *a, const app_ends *b) {
    return a->count == b->count && memcmp(a->ids, b->ids, (size_t)a->count * sizeof a->ids[0]) == 0;
}

/* Contract in language.h. */
trm_status app_ends_keep(const char *from, const trm_tokenizer *tokenizer, const char *folder,
                         trm_error *err) {
    app_ends ends, there, usual = {.ids = {trm_tokenizer_end(tokenizer)}, .count = 1};
    char path[4096];
    trm_status status = app_ends_read(from, &ends, err);
    status = status == TRM_OK ? app_ends_read(folder, &there, err) : status;
    if (status != TRM_OK || ends.count == 0 || are_equal(&ends, &there) ||
        (there.count == 0 && are_equal(&ends, &usual))) {
        return status;
    }
    json_t *ids = json_array();
    for (int32_t i = 0; i < ends.count; i++) {
        json_array_append_new(ids, json_integer(ends.ids[i]));
    }
    json_t *root = json_pack("{s:o}", "eos_token_id", ids);
    int length = snprintf(path, sizeof path, "%s/generation_config.json", folder);
    bool written = root != NULL && length < (int)sizeof path &&
                   json_dump_file(root, path, JSON_INDENT(2)) == 0;
    json_decref(root);
    return written ? TRM_OK : app_fail(err, TRM_IO, "%.200s cannot be written", path);
}

/* Contract in language.h. */
bool app_ends_have(const app_ends *ends, int32_t id) {
    bool found = false;
    for (int32_t i = 0; i < ends->count; i++) {
        found = found || ends->ids[i] == id;
    }
    return found;
}
