/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors by name, of one file or of the files of a Hugging Face folder (weights.h).
 *
 *     model.safetensors               the only file, if it is there
 *     model.safetensors.index.json    else: "weight_map" has the file of each tensor; each is opened
 *                                     once
 *
 * The index may come from anywhere: a file name with a slash is refused, because it could lead out
 * of the folder, and so are more than FILES_MAX names. */
#include "train/export/weights.h"

#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Files of a folder at most. */
enum { FILES_MAX = 4096 };

/* Returns whether the folder has a regular file of this name; `path`: where it is. */
static bool is_file(const char *folder, const char *name, char *path, size_t size) {
    struct stat about;
    int length = snprintf(path, size, "%s/%s", folder, name);
    return length < (int)size && stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

/* Contract in weights.h. A folder that has both kinds is read as one file, as transformers does. */
const char *trmi_weights_file(const char *folder, char *path, size_t size) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_file(folder, names[i], path, size)) {
            return names[i];
        }
    }
    return NULL;
}

bool trmi_is_huggingface(const char *path) {
    char file[4096];
    return is_file(path, "config.json", file, sizeof file);
}

bool trmi_is_weights(const char *path) {
    return trmi_is_huggingface(path) || trmi_ends_with(path, ".safetensors");
}

/* Opens one more file. */
static trm_status add_file(trmi_weights *w, const char *path, trm_error *err) {
    trm_safetensors *file;
    TRMI_TRY(trm_safetensors_open(path, &file, err));
    w->files[w->count++] = file;
    return TRM_OK;
}

/* Opens one more file of an index.
 *   errors  CORRUPT: a name with a slash, too many files */
static trm_status add_named_file(trmi_weights *w, const char *folder, const char *name,
                                 trm_error *err) {
    char path[4096];
    if (strchr(name, '/') != NULL || w->count == FILES_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s/model.safetensors.index.json: file '%.60s': at most %d names without "
                         "'/' expected",
                         folder, name, FILES_MAX);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return add_file(w, path, err);
}

/* Refuses a tensor that two files have: which of them counts, readers disagree on.
 *   errors  CORRUPT */
static trm_status check_names(const trmi_weights *w, const char *path, trm_error *err) {
    for (int32_t f = 1; f < w->count; f++) {
        for (int64_t i = 0; i < trm_safetensors_count(w->files[f]); i++) {
            const char *name = trm_safetensors_at(w->files[f], i)->name;
            for (int32_t before = 0; before < f; before++) {
                if (trm_safetensors_find(w->files[before], name) != NULL) {
                    return TRMI_FAIL(err, TRM_CORRUPT, "%s: two of its files have '%.200s'", path,
                                     name);
                }
            }
        }
    }
    return TRM_OK;
}

/* Opens each file of the index once. */
static trm_status open_index(trmi_weights *w, const char *folder, const char *path,
                             trm_error *err) {
    json_error_t bad;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &bad), *seen = json_object();
    json_t *map = json_object_get(root, "weight_map"), *value;
    const char *key;
    trm_status status = TRM_OK;
    if (!json_is_object(map) || seen == NULL) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: an object \"weight_map\" expected (%s)", path,
                           root == NULL ? bad.text : "absent");
    }
    /* each file is opened once: `seen` has those that are */
    json_object_foreach(map, key, value) {
        const char *name = json_string_value(value);
        if (status == TRM_OK && name == NULL) {
            status = TRMI_FAIL(err, TRM_CORRUPT, "%s: tensor '%.60s' has no file name", path, key);
        }
        if (status == TRM_OK && json_object_get(seen, name) == NULL) {
            json_object_set_new(seen, name, json_true());
            status = add_named_file(w, folder, name, err);
        }
    }
    json_decref(seen);
    json_decref(root);
    return status == TRM_OK ? check_names(w, path, err) : status;
}

/* Opens the weights of a Hugging Face folder. */
static trm_status open_folder(trmi_weights *w, const char *folder, trm_error *err) {
    char path[4096];
    const char *name = trmi_weights_file(folder, path, sizeof path);
    w->is_folder = true;
    char adapters[4096];
    if (is_file(folder, "adapter_config.json", adapters, sizeof adapters)) {
        return TRMI_FAIL(
            err, TRM_UNSUPPORTED,
            "%s: adapter_config.json is there, and transformers adds these adapters to "
            "the weights; merge them (merge_and_unload of peft), or take them out of "
            "the folder",
            folder);
    }
    if (name == NULL) {
        return TRMI_FAIL(err, TRM_IO,
                         "%s: neither model.safetensors nor model.safetensors.index.json is there",
                         folder);
    }
    return strstr(name, ".index.") != NULL ? open_index(w, folder, path, err)
                                           : add_file(w, path, err);
}

/* Contract in weights.h. */
trm_status trmi_weights_open(const char *path, trmi_weights *out, trm_error *err) {
    *out = (trmi_weights){0};
    TRMI_TRY(TRMI_NEW_IN(err, &out->arena, out->files, FILES_MAX, "to open %s", path));
    trm_status status =
        trmi_is_huggingface(path) ? open_folder(out, path, err) : add_file(out, path, err);
    if (status != TRM_OK) {
        trmi_weights_close(out);
    }
    return status;
}

/* Contract in weights.h. Also after a failed open. */
void trmi_weights_close(trmi_weights *weights) {
    for (int32_t i = 0; i < weights->count; i++) {
        trm_safetensors_close((trm_safetensors *)(uintptr_t)weights->files[i]);
    }
    trmi_arena_free(&weights->arena);
    *weights = (trmi_weights){0};
}

/* Writes the other name that a file may have for a tensor: below "transformer.", or, of the norms
 * of BERT's first files, gamma and beta. "" without one. */
static void write_other_name(const char *name, char *text, size_t size) {
    const char *norm = strstr(name, ".LayerNorm.");
    int length = norm == NULL ? snprintf(text, size, "transformer.%s", name)
                              : snprintf(text, size, "%.*s%s", (int)(norm - name) + 11, name,
                                         strcmp(norm + 11, "weight") == 0 ? "gamma" : "beta");
    if (length >= (int)size) {
        text[0] = '\0';
    }
}

/* Contract in weights.h. Names are looked up in each file: there are few. */
const trm_safetensors_entry *trmi_weights_find(const trmi_weights *weights, const char *name,
                                               const trm_safetensors **file) {
    char other[512];
    write_other_name(name, other, sizeof other);
    for (int32_t i = 0; i < weights->count; i++) {
        const trm_safetensors_entry *e = trm_safetensors_find(weights->files[i], name);
        e = e == NULL ? trm_safetensors_find(weights->files[i], other) : e;
        if (e != NULL) {
            *file = weights->files[i];
            return e;
        }
    }
    return NULL;
}

/* ---- what no variable takes ------------------------------------------------------------------ */

/* A second name that PyTorch's programs write for a tensor of a network with tied embeddings. */
typedef struct second_name {
    const char *copy, *name;
} second_name;
static const second_name second_names[] = {
    {"lm_head.weight", "wte.weight"},
    {"lm_head.weight", "model.embed_tokens.weight"},
    {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
enum { SECOND_NAMES = sizeof second_names / sizeof second_names[0] };

/* Compares two addresses of entries, for qsort and bsearch. */
static int compare_entries(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (const trm_safetensors_entry *const *)a,
                    y = (uintptr_t) * (const trm_safetensors_entry *const *)b;
    return x < y ? -1 : x > y;
}

/* Returns whether a tensor of PyTorch's programs holds nothing to learn, or is there under another
 * name, too. */
static bool is_computed(const char *name) {
    static const char *const ends[] = {".attn.bias", /* GPT-2's causal mask */
                                       ".attn.masked_bias", ".rotary_emb.inv_freq", ".position_ids",
                                       ".num_batches_tracked"};
    bool computed = false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        computed = computed || trmi_ends_with(name, ends[i]);
    }
    for (size_t i = 0; i < SECOND_NAMES; i++) {
        computed = computed || trmi_ends_with(name, second_names[i].copy);
    }
    return computed;
}

/* Returns whether a variable has taken the entry.
 *   param  taken: [count], sorted by compare_entries */
static bool is_taken(const trm_safetensors_entry *e, const trm_safetensors_entry **taken,
                     int64_t count) {
    return bsearch(&e, taken, (size_t)count, sizeof *taken, compare_entries) != NULL;
}

/* Contract in weights.h. transformers 4 reads such a file as tied, transformers 5 as untied. */
trm_status trmi_weights_check_copies(const trmi_weights *weights,
                                     const trm_safetensors_entry **taken, int64_t count,
                                     const char *where, trm_error *err) {
    qsort(taken, (size_t)count, sizeof *taken, compare_entries);
    for (size_t i = 0; i < SECOND_NAMES; i++) {
        const trm_safetensors *file;
        const trm_safetensors_entry *copy = trmi_weights_find(weights, second_names[i].copy, &file),
                                    *e = trmi_weights_find(weights, second_names[i].name, &file);
        if (copy == NULL || e == NULL || is_taken(copy, taken, count) ||
            !is_taken(e, taken, count)) {
            continue;
        }
        if (strcmp(copy->dtype, e->dtype) != 0 || copy->bytes != e->bytes ||
            memcmp(copy->tensor.data, e->tensor.data, (size_t)e->bytes) != 0) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "%s: '%s' differs from '%s', of which it is a copy in this network; "
                             "untie it in config.json (llama), or take it out of the file",
                             where, copy->name, e->name);
        }
    }
    return TRM_OK;
}

/* Contract in weights.h. */
void trmi_weights_warn_unused(const trmi_weights *weights, const trm_safetensors_entry **taken,
                              int64_t count, const char *where) {
    enum { NAMED = 3 }; /* names in the warning, at most */
    char names[320] = "";
    int64_t unused = 0, all = 0;
    qsort(taken, (size_t)count, sizeof *taken, compare_entries);
    for (int32_t f = 0; f < weights->count; f++) {
        for (int64_t i = 0; i < trm_safetensors_count(weights->files[f]); i++) {
            const trm_safetensors_entry *e = trm_safetensors_at(weights->files[f], i);
            all++;
            if (is_taken(e, taken, count) || is_computed(e->name)) {
                continue;
            }
            const size_t used = strlen(names);
            if (unused++ < NAMED) {
                snprintf(names + used, sizeof names - used, "%s%.96s", used > 0 ? ", " : "",
                         e->name);
            }
        }
    }
    if (unused > 0) {
        trmi_log(TRM_LOG_WARN, "train",
                 "%s: %" PRId64 " of %" PRId64 " tensors are not used, because the network has "
                 "none of these names: %s%s",
                 where, unused, all, names, unused > NAMED ? ", ..." : "");
    }
}
