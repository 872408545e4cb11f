/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face folders of language models (trireme/language.h): how options and names translate.
 *
 *      options  <-->  config.json              the tables below
 *      weights   -->  model*.safetensors       "h.0.ln_1.weight" is "transformer.h.0.ln_1.weight" of
 *                                              GPT2LMHeadModel; Llama's names are the same */
#include "trireme/language.h"

#include "train/export/gather.h"
#include "train/export/weights.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(trm_language_options, member)

/* A whole number of config.json and its member of the options. */
typedef struct number {
    const char *key;
    size_t at;
    bool needed; /* else absent or null means the model's default */
} number;

/* A setting of which the models here have only one value: reading refuses others. */
typedef struct fixed {
    const char *key, *value; /* JSON; absent is the same */
    const char *also;        /* another value with the same meaning; NULL = none */
} fixed;

/* A model in the words of transformers. */
typedef struct dialect {
    const char *model, *architecture, *prefix; /* prefix of the names of parameters */
    const char *epsilon;                       /* key */
    number numbers[10];
    fixed fixed[8];
} dialect;

static const dialect dialects[] = {
    {"gpt2",
     "GPT2LMHeadModel",
     "transformer.",
     "layer_norm_epsilon",
     {{"n_layer", AT(layers), true},
      {"n_embd", AT(width), true},
      {"n_head", AT(heads), true},
      {"n_inner", AT(hidden), false},
      {"n_positions", AT(context), true},
      {"vocab_size", AT(vocabulary), true}},
     {{"activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""},
      {"scale_attn_weights", "true", NULL},
      {"scale_attn_by_inverse_layer_idx", "false", NULL},
      {"add_cross_attention", "false", NULL},
      {"tie_word_embeddings", "true", NULL}}},
    {"llama",
     "LlamaForCausalLM",
     "",
     "rms_norm_eps",
     {{"num_hidden_layers", AT(layers), true},
      {"hidden_size", AT(width), true},
      {"num_attention_heads", AT(heads), true},
      {"num_key_value_heads", AT(kv_heads), false},
      {"intermediate_size", AT(hidden), true},
      {"max_position_embeddings", AT(context), true},
      {"vocab_size", AT(vocabulary), true}},
     {{"hidden_act", "\"silu\"", NULL},
      {"attention_bias", "false", NULL},
      {"mlp_bias", "false", NULL},
      {"rope_scaling", "null", NULL}}},
};
enum { DIALECTS = sizeof dialects / sizeof dialects[0] };

static int64_t *member(trm_language_options *o, size_t at) {
    return (int64_t *)(void *)((char *)o + at);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Refuses settings that the models here do not have.
 *   error  UNSUPPORTED */
static trm_status check_fixed(const char *path, const json_t *root, const dialect *d,
                              trm_error *err) {
    for (const fixed *f = d->fixed; f->key != NULL; f++) {
        char *text = json_dumps(json_object_get(root, f->key), JSON_ENCODE_ANY);
        bool same = text == NULL || strcmp(text, f->value) == 0 ||
                    (f->also != NULL && strcmp(text, f->also) == 0);
        trm_status status =
            same ? TRM_OK
                 : TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: %s is %.60s; only %s can be read here",
                             path, f->key, text, f->value);
        free(text);
        TRMI_TRY(status);
    }
    return TRM_OK;
}

/* Reads the rotary positions: rope_theta of transformers 4, rope_parameters of 5.
 *   error  UNSUPPORTED: a scaling */
static trm_status read_rotary(const char *path, const json_t *root, trm_language_options *o,
                              trm_error *err) {
    const json_t *parameters = json_object_get(root, "rope_parameters");
    const char *type = json_string_value(json_object_get(parameters, "rope_type"));
    if (type != NULL && strcmp(type, "default") != 0) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: rope_type is '%.40s'; only default can be read here", path, type);
    }
    const json_t *theta = json_object_get(parameters, "rope_theta");
    theta = theta != NULL ? theta : json_object_get(root, "rope_theta");
    o->rotary_theta = json_is_number(theta) ? json_number_value(theta) : 0;
    int64_t width = o->heads > 0 ? o->width / o->heads : 0;
    const json_t *given = json_object_get(root, "head_dim");
    if (json_is_integer(given) && json_integer_value(given) != width) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: head_dim is %lld; only hidden_size / num_attention_heads, %lld, can "
                         "be read here",
                         path, (long long)json_integer_value(given), (long long)width);
    }
    return TRM_OK;
}

/* Reads the options of a config.json.
 *   error  CORRUPT, UNSUPPORTED */
static trm_status read_config(const char *path, const json_t *root, const dialect *d,
                              trm_language_options *out, trm_error *err) {
    trm_language_options o = {0};
    for (const number *n = d->numbers; n->key != NULL; n++) {
        const json_t *value = json_object_get(root, n->key);
        bool absent = value == NULL || json_is_null(value);
        if (absent ? n->needed : !json_is_integer(value) || json_integer_value(value) < 1) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: \"%s\": a whole number of at least 1 expected",
                             path, n->key);
        }
        *member(&o, n->at) = absent ? 0 : json_integer_value(value);
    }
    TRMI_TRY(check_fixed(path, root, d, err));
    o.epsilon = json_number_value(json_object_get(root, d->epsilon));
    if (strcmp(d->model, "llama") == 0) {
        o.untied = !json_is_true(json_object_get(root, "tie_word_embeddings"));
        TRMI_TRY(read_rotary(path, root, &o, err));
    }
    *out = o;
    return TRM_OK;
}

trm_status trm_huggingface_read(const char *folder, const char **model,
                                trm_language_options *network, trm_error *err) {
    TRMI_NEED(err, folder, model, network);
    char path[4096];
    json_error_t bad;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "a path of at most %zu bytes expected", sizeof path);
    }
    if (!trmi_is_huggingface(folder)) {
        return TRMI_FAIL(err, TRM_IO, "%s: no config.json there", folder);
    }
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &bad);
    const char *type = json_string_value(json_object_get(root, "model_type"));
    trm_status status =
        root == NULL ? TRMI_FAIL(err, TRM_CORRUPT, "%s: line %d: %s", path, bad.line, bad.text)
        : type == NULL
            ? TRMI_FAIL(err, TRM_CORRUPT, "%s: no \"model_type\"", path)
            : TRMI_FAIL(err, TRM_UNSUPPORTED,
                        "%s: model_type is '%.40s'; gpt2 and llama can be read here", path, type);
    for (int i = 0; type != NULL && i < DIALECTS; i++) {
        if (strcmp(type, dialects[i].model) == 0) {
            *model = dialects[i].model;
            status = read_config(path, root, &dialects[i], network, err);
        }
    }
    json_decref(root);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes JSON as a file of the folder and releases it.
 *   error  NOMEM (also where `root` is NULL), IO, NOSPACE */
static trm_status write_json(json_t *root, const char *folder, const char *name, trm_error *err) {
    char path[4096];
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    trm_status status = text == NULL ? TRMI_FAIL(err, TRM_NOMEM, "no memory for %s", path)
                                     : trm_file_write(path, text, strlen(text), err);
    free(text);
    json_decref(root);
    return status;
}

/* Returns the config.json of a model; NULL: no memory. */
static json_t *make_config(const dialect *d, const trm_language_options *network,
                           const trm_tokenizer *tokenizer) {
    trm_language_options o = *network;
    json_t *root = json_object();
    json_object_set_new(root, "architectures", json_pack("[s]", d->architecture));
    json_object_set_new(root, "model_type", json_string(d->model));
    for (const number *n = d->numbers; n->key != NULL; n++) {
        json_object_set_new(root, n->key, json_integer(*member(&o, n->at)));
    }
    for (const fixed *f = d->fixed; f->key != NULL; f++) {
        json_object_set_new(root, f->key, json_loads(f->value, JSON_DECODE_ANY, NULL));
    }
    json_object_set_new(root, d->epsilon, json_real(o.epsilon));
    if (o.rotary_theta != 0) {
        json_object_set_new(root, "rope_theta", json_real(o.rotary_theta));
        json_object_set_new(root, "tie_word_embeddings", json_boolean(!o.untied));
    }
    int32_t end = tokenizer != NULL ? trm_tokenizer_end(tokenizer) : -1;
    json_object_set_new(root, "bos_token_id", end >= 0 ? json_integer(end) : json_null());
    json_object_set_new(root, "eos_token_id", end >= 0 ? json_integer(end) : json_null());
    json_object_set_new(root, "torch_dtype", json_string("float32"));
    return root;
}

/* Writes tensors [begin, end) as one file. */
static trm_status write_shard(const trm_named_tensor *tensors, int64_t begin, int64_t end,
                              const char *folder, const char *name, trm_error *err) {
    static const trm_text_pair metadata[] = {{"format", "pt"}};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return trm_safetensors_write(path, tensors + begin, end - begin, metadata, 1, err);
}

/* Returns behind which tensor the file that begins with tensor `begin` ends. */
static int64_t shard_end(const trm_named_tensor *tensors, int64_t count, int64_t begin,
                         int64_t most) {
    int64_t end = begin, bytes = 0;
    do {
        bytes += trm_tensor_bytes(&tensors[end++].tensor);
    } while (end < count && bytes + trm_tensor_bytes(&tensors[end].tensor) <= most);
    return end;
}

/* Writes the weights: one file, or several of at most `most` bytes (a tensor is never cut) and their
 * index. */
static trm_status write_weights(const trm_named_tensor *tensors, int64_t count, int64_t most,
                                const char *folder, trm_error *err) {
    int64_t shards = 0, total = 0;
    for (int64_t at = 0; at < count; at = shard_end(tensors, count, at, most)) {
        shards++;
    }
    if (shards == 1) {
        return write_shard(tensors, 0, count, folder, "model.safetensors", err);
    }
    json_t *map = json_object();
    trm_status status = TRM_OK;
    for (int64_t at = 0, i = 1, end; at < count && status == TRM_OK; at = end, i++) {
        char name[64];
        end = shard_end(tensors, count, at, most);
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", (int)i, (int)shards);
        status = write_shard(tensors, at, end, folder, name, err);
        for (int64_t t = at; t < end; t++) {
            total += trm_tensor_bytes(&tensors[t].tensor);
            json_object_set_new(map, tensors[t].name, json_string(name));
        }
    }
    json_t *index =
        json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    if (status != TRM_OK) {
        json_decref(index);
        return status;
    }
    return write_json(index, folder, "model.safetensors.index.json", err);
}

/* Writes the tokenizer's files and what AutoTokenizer needs besides. */
static trm_status write_tokenizer(const trm_tokenizer *tokenizer, int64_t context,
                                  const char *folder, trm_error *err) {
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    TRMI_TRY(trm_tokenizer_save(tokenizer, folder, err));
    json_t *root = json_pack("{s:s,s:I}", "tokenizer_class", "PreTrainedTokenizerFast",
                             "model_max_length", (json_int_t)context);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int32_t id = trm_tokenizer_find(tokenizer, ends[i]);
        if (id >= 0 && id == trm_tokenizer_end(tokenizer)) {
            json_object_set_new(root, "eos_token", json_string(ends[i]));
            json_object_set_new(root, "bos_token", json_string(ends[i]));
        }
    }
    return write_json(root, folder, "tokenizer_config.json", err);
}

/* Gathers the parameters, under the names of transformers.
 *   error  NOMEM */
static trm_status gather_named(trm_model *model, const dialect *d, trmi_arena *arena,
                               trm_named_tensor **out, int64_t *count, trm_error *err) {
    TRMI_TRY(trmi_gather(trm_model_exec(model), false, arena, out, count, err));
    for (int64_t i = 0; i < *count; i++) {
        trm_named_tensor *t = &(*out)[i];
        t->name = trmi_arena_printf(arena, "%s%s", d->prefix, t->name);
        if (t->name == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for names of tensors");
        }
    }
    return TRM_OK;
}

trm_status trm_export_huggingface(trm_model *model, const trm_huggingface_options *options,
                                  const char *folder, trm_error *err) {
    enum { PATH_MOST = 4000 };
    TRMI_NEED(err, model, options, folder);
    TRMI_NEED(err, options->model);
    trm_language_options network =
        options->network != NULL ? *options->network : (trm_language_options){0};
    TRMI_TRY(trm_language_complete(options->model, &network, err));
    const dialect *d = NULL;
    for (int i = 0; i < DIALECTS; i++) {
        d = strcmp(dialects[i].model, options->model) == 0 ? &dialects[i] : d;
    }
    bool grouped = network.kv_heads != network.heads;
    if (d == NULL || (d == &dialects[0] && grouped) || strlen(folder) > PATH_MOST) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: transformers has no %s%s; a path of at most %d bytes expected",
                         options->model, options->model, grouped ? " with fewer key heads" : "",
                         PATH_MOST);
    }
    TRMI_TRY(trmi_os_make_dirs(NULL, folder, err));
    trmi_arena arena = {0};
    trm_named_tensor *tensors = NULL;
    int64_t count = 0;
    trm_status status = gather_named(model, d, &arena, &tensors, &count, err);
    if (status == TRM_OK) {
        int64_t most = options->shard_bytes > 0 ? options->shard_bytes : 5000000000;
        status = write_weights(tensors, count, most, folder, err);
    }
    trmi_arena_free(&arena);
    if (status == TRM_OK && options->tokenizer != NULL) {
        status = write_tokenizer(options->tokenizer, network.context, folder, err);
    }
    return status == TRM_OK ? write_json(make_config(d, &network, options->tokenizer), folder,
                                         "config.json", err)
                            : status;
}
