/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and makes the config.json of Hugging Face folders (trireme/io.h, huggingface_config.h) by a
 * table with one row a model:
 *
 *      numbers   keys of config.json  <-->  members of the settings
 *      fixed     settings of which the models here have one value
 *
 * Invariant: a setting that the models here do not have is refused by name. */
#include "train/export/huggingface_config.h"

#include "train/export/weights.h"

#include "base/arguments.h"
#include "base/error.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a member of the settings lies. */
#define AT(member) offsetof(trmi_huggingface_settings, member)

/* The models of transformers that are translated. */
static const trmi_huggingface_dialect dialects[] = {
    {"gpt2",
     "GPT2LMHeadModel",
     "transformer.",
     false,
     true,
     "layer_norm_epsilon",
     AT(language.epsilon),
     1e-5,
     {{"n_layer", AT(language.layers), true, "num_hidden_layers"},
      {"n_embd", AT(language.width), true, "hidden_size"},
      {"n_head", AT(language.heads), true, "num_attention_heads"},
      {"n_inner", AT(language.hidden), false, NULL},
      {"n_positions", AT(language.context), true, "max_position_embeddings"},
      {"vocab_size", AT(language.vocabulary), true, NULL}},
     {{"activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""},
      {"scale_attn_weights", "true", NULL},
      {"scale_attn_by_inverse_layer_idx", "false", NULL},
      {"add_cross_attention", "false", NULL},
      {"tie_word_embeddings", "true", NULL}}},
    {"llama",
     "LlamaForCausalLM",
     "",
     false,
     false,
     "rms_norm_eps",
     AT(language.epsilon),
     1e-6,
     {{"num_hidden_layers", AT(language.layers), true, NULL},
      {"hidden_size", AT(language.width), true, NULL},
      {"num_attention_heads", AT(language.heads), true, NULL},
      {"num_key_value_heads", AT(language.kv_heads), false, NULL},
      {"intermediate_size", AT(language.hidden), true, NULL},
      {"max_position_embeddings", AT(language.context), true, NULL},
      {"vocab_size", AT(language.vocabulary), true, NULL}},
     {{"hidden_act", "\"silu\"", NULL},
      {"attention_bias", "false", NULL},
      {"mlp_bias", "false", NULL},
      {"rope_scaling", "null", NULL}}},
    {"bert",
     "BertForMaskedLM",
     "",
     false,
     false,
     "layer_norm_eps",
     AT(language.epsilon),
     1e-12,
     {{"num_hidden_layers", AT(language.layers), true, NULL},
      {"hidden_size", AT(language.width), true, NULL},
      {"num_attention_heads", AT(language.heads), true, NULL},
      {"intermediate_size", AT(language.hidden), true, NULL},
      {"max_position_embeddings", AT(language.context), true, NULL},
      {"vocab_size", AT(language.vocabulary), true, NULL}},
     {{"hidden_act", "\"gelu\"", NULL},
      {"type_vocab_size", "2", NULL},
      {"position_embedding_type", "\"absolute\"", NULL},
      {"is_decoder", "false", NULL},
      {"add_cross_attention", "false", NULL},
      {"tie_word_embeddings", "true", NULL}}},
    {"vit",
     "ViTForImageClassification",
     "",
     true,
     false,
     "layer_norm_eps",
     AT(vit.epsilon),
     1e-12,
     {{"num_hidden_layers", AT(vit.layers), true, NULL},
      {"hidden_size", AT(vit.width), true, NULL},
      {"num_attention_heads", AT(vit.heads), true, NULL},
      {"intermediate_size", AT(vit.hidden), true, NULL},
      {"patch_size", AT(vit.patch), true, NULL},
      {"image_size", AT(image_size), true, NULL}},
     {{"hidden_act", "\"gelu\"", NULL}, {"qkv_bias", "true", NULL}, {"num_channels", "3", NULL}}},
};
enum { DIALECTS = sizeof dialects / sizeof dialects[0] };

/* Return the member of the settings that a row of a dialect names by its offset. */
static int64_t *number_at(trmi_huggingface_settings *s, size_t at) {
    return (int64_t *)(void *)((char *)s + at);
}
static double *epsilon_of(trmi_huggingface_settings *s, const trmi_huggingface_dialect *d) {
    return (double *)(void *)((char *)s + d->epsilon_at);
}

const trmi_huggingface_dialect *trmi_huggingface_find(const char *model) {
    const trmi_huggingface_dialect *found = NULL;
    for (int i = 0; i < DIALECTS; i++) {
        found = strcmp(dialects[i].model, model) == 0 ? &dialects[i] : found;
    }
    return found;
}

bool trmi_huggingface_shares_keys(const trmi_huggingface_dialect *d) {
    bool shares = false;
    for (const trmi_huggingface_number *n = d->numbers; n->key != NULL; n++) {
        shares = shares || n->at == AT(language.kv_heads);
    }
    return shares;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Refuses settings that the models here do not have.
 *   errors  UNSUPPORTED */
static trm_status check_fixed(const char *path, const json_t *root,
                              const trmi_huggingface_dialect *d, trm_error *err) {
    static const char *const absent[] = {"quantization_config", "sliding_window"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        const json_t *value = json_object_get(root, absent[i]);
        if (value != NULL && !json_is_null(value)) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "%s: %s is set; only models without it can be read here", path,
                             absent[i]);
        }
    }
    for (const trmi_huggingface_fixed *f = d->fixed; f->key != NULL; f++) {
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

/* Reads a positive number; `otherwise` if it is absent or null.
 *   errors  CORRUPT */
static trm_status read_positive(const char *path, const json_t *value, const char *key,
                                double otherwise, double *out, trm_error *err) {
    bool absent = value == NULL || json_is_null(value);
    if (!absent && !(json_number_value(value) > 0)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: \"%s\": a number above 0 expected", path, key);
    }
    *out = absent ? otherwise : json_number_value(value);
    return TRM_OK;
}

/* Reads the rotary positions: rope_theta of transformers 4, rope_parameters of 5.
 *   errors  CORRUPT, UNSUPPORTED: a scaling */
static trm_status read_rotary(const char *path, const json_t *root, trm_language_options *o,
                              trm_error *err) {
    const json_t *parameters = json_object_get(root, "rope_parameters");
    const char *type = json_string_value(json_object_get(parameters, "rope_type"));
    type = type != NULL ? type : json_string_value(json_object_get(parameters, "type"));
    if (type != NULL && strcmp(type, "default") != 0) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: rope_type is '%.40s'; only default can be read here", path, type);
    }
    const json_t *theta = json_object_get(parameters, "rope_theta");
    theta = theta != NULL ? theta : json_object_get(root, "rope_theta");
    TRMI_TRY(read_positive(path, theta, "rope_theta", 0, &o->rotary_theta, err));
    int64_t width = o->heads > 0 ? o->width / o->heads : 0;
    const json_t *given = json_object_get(root, "head_dim");
    if (json_is_number(given) && json_number_value(given) != (double)width) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: head_dim is %g; only hidden_size / num_attention_heads, %lld, can "
                         "be read here",
                         path, json_number_value(given), (long long)width);
    }
    return TRM_OK;
}

/* Returns the number of classes of an image model; transformers' is 2 where nothing gives it. */
static int64_t count_classes(const json_t *root) {
    const json_t *labels = json_object_get(root, "id2label");
    const json_t *count = json_object_get(root, "num_labels");
    return json_is_object(labels)   ? (int64_t)json_object_size(labels)
           : json_is_integer(count) ? json_integer_value(count)
                                    : 2;
}

/* Finds the value of a number, under either of its keys; NULL: absent or null.
 *   errors  CORRUPT: the keys have two values, of which transformers takes the second */
static trm_status find_number(const char *path, const json_t *root,
                              const trmi_huggingface_number *n, const json_t **out,
                              trm_error *err) {
    const json_t *value = json_object_get(root, n->key),
                 *also = n->also != NULL ? json_object_get(root, n->also) : NULL;
    value = value != NULL && !json_is_null(value) ? value : also;
    if (also != NULL && !json_equal(value, also)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: \"%s\" and \"%s\" differ, but name the same number",
                         path, n->key, n->also);
    }
    *out = value != NULL && !json_is_null(value) ? value : NULL;
    return TRM_OK;
}

/* Reads the settings of a config.json.
 *   errors  CORRUPT, UNSUPPORTED */
static trm_status read_config(const char *path, const json_t *root,
                              const trmi_huggingface_dialect *d, trmi_huggingface_settings *out,
                              trm_error *err) {
    enum { MOST = 1 << 24, LAYERS_MOST = 4096 }; /* no graph is built of a billion layers */
    trmi_huggingface_settings s = {0};
    for (const trmi_huggingface_number *n = d->numbers; n->key != NULL; n++) {
        const json_t *value = NULL;
        TRMI_TRY(find_number(path, root, n, &value, err));
        bool absent = value == NULL;
        bool is_layers = n->at == AT(language.layers) || n->at == AT(vit.layers);
        int most = is_layers ? LAYERS_MOST : MOST;
        if (absent ? n->needed
                   : !json_is_integer(value) || json_integer_value(value) < 1 ||
                         json_integer_value(value) > most) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: \"%s\": a whole number from 1 to %d expected",
                             path, n->key, most);
        }
        *number_at(&s, n->at) = absent ? 0 : json_integer_value(value);
    }
    TRMI_TRY(check_fixed(path, root, d, err));
    TRMI_TRY(read_positive(path, json_object_get(root, d->epsilon), d->epsilon, d->epsilon_default,
                           epsilon_of(&s, d), err));
    if (strcmp(d->model, "llama") == 0) {
        s.language.untied = !json_is_true(json_object_get(root, "tie_word_embeddings"));
        TRMI_TRY(read_rotary(path, root, &s.language, err));
    }
    s.classes = d->reads_images ? count_classes(root) : 0;
    *out = s;
    return TRM_OK;
}

/* Reads the model of images, or of tokens, and its settings from the config.json of a folder.
 *   errors  IO, CORRUPT, UNSUPPORTED */
static trm_status read_folder(const char *folder, bool images, const char **model,
                              trmi_huggingface_settings *out, trm_error *err) {
    char path[4096], known[80] = "";
    json_error_t bad;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "a path of at most %zu bytes expected", sizeof path);
    }
    if (!trmi_is_huggingface(folder)) {
        return TRMI_FAIL(err, TRM_IO, "%s: no config.json there", folder);
    }
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &bad);
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const trmi_huggingface_dialect *found = NULL;
    /* the model type, and the list of those that are known for the message */
    for (int i = 0; i < DIALECTS; i++) {
        if (dialects[i].reads_images == images) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "",
                     dialects[i].model);
            found = type != NULL && strcmp(type, dialects[i].model) == 0 ? &dialects[i] : found;
        }
    }
    trm_status status =
        root == NULL   ? TRMI_FAIL(err, TRM_CORRUPT, "%s: line %d: %s", path, bad.line, bad.text)
        : type == NULL ? TRMI_FAIL(err, TRM_CORRUPT, "%s: no \"model_type\"", path)
        : found == NULL
            ? TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: model_type is '%.40s'; %s can be read here",
                        path, type, known)
            : read_config(path, root, found, out, err);
    if (status == TRM_OK) {
        *model = found->model;
    }
    json_decref(root);
    return status;
}

/* Contract in trireme/io.h. Reads config.json alone; weights are read by trm_model_load. */
trm_status trm_huggingface_read(const char *folder, const char **model,
                                trm_language_options *network, trm_error *err) {
    TRMI_NEED(err, folder, model, network);
    trmi_huggingface_settings s;
    TRMI_TRY(read_folder(folder, false, model, &s, err));
    *network = s.language;
    return TRM_OK;
}

trm_status trm_huggingface_read_image(const char *folder, const char **model,
                                      trm_network_options *network, int64_t *image_size,
                                      trm_error *err) {
    TRMI_NEED(err, folder, model, network, image_size);
    trmi_huggingface_settings s;
    TRMI_TRY(read_folder(folder, true, model, &s, err));
    *network = (trm_network_options){.classes = s.classes, .vit = s.vit};
    *image_size = s.image_size;
    return TRM_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Adds the token that stands between documents, and the one for padding: transformers' BERT does
 * not train the embedding of the latter, so that no other token may be it. */
static void add_ends(json_t *root, const trm_tokenizer *tokenizer) {
    int32_t end = tokenizer != NULL ? trm_tokenizer_end(tokenizer) : -1;
    int32_t pad = tokenizer != NULL ? trm_tokenizer_find(tokenizer, "[PAD]") : -1;
    json_object_set_new(root, "bos_token_id", end >= 0 ? json_integer(end) : json_null());
    json_object_set_new(root, "eos_token_id", end >= 0 ? json_integer(end) : json_null());
    json_object_set_new(root, "pad_token_id", pad >= 0 ? json_integer(pad) : json_null());
}

/* Adds the classes by number, as transformers names those without a name. */
static void add_classes(json_t *root, int64_t classes) {
    json_t *names = json_object(), *numbers = json_object();
    for (int64_t i = 0; i < classes; i++) {
        char text[24], name[32];
        snprintf(text, sizeof text, "%lld", (long long)i);
        snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        json_object_set_new(names, text, json_string(name));
        json_object_set_new(numbers, name, json_integer(i));
    }
    json_object_set_new(root, "id2label", names);
    json_object_set_new(root, "label2id", numbers);
}

/* Contract in huggingface_config.h. The keys are those that read_config reads. */
json_t *trmi_huggingface_config(const trmi_huggingface_dialect *d,
                                const trmi_huggingface_settings *given,
                                const trm_tokenizer *tokenizer) {
    trmi_huggingface_settings s = *given;
    json_t *root = json_object();
    json_object_set_new(root, "architectures", json_pack("[s]", d->architecture));
    json_object_set_new(root, "model_type", json_string(d->model));
    /* the tables of the dialect: numbers of the network, then the values that never differ */
    for (const trmi_huggingface_number *n = d->numbers; n->key != NULL; n++) {
        json_object_set_new(root, n->key, json_integer(*number_at(&s, n->at)));
    }
    for (const trmi_huggingface_fixed *f = d->fixed; f->key != NULL; f++) {
        json_object_set_new(root, f->key, json_loads(f->value, JSON_DECODE_ANY, NULL));
    }
    json_object_set_new(root, d->epsilon, json_real(*epsilon_of(&s, d)));
    if (s.language.rotary_theta != 0) {
        json_object_set_new(root, "rope_theta", json_real(s.language.rotary_theta));
        json_object_set_new(root, "tie_word_embeddings", json_boolean(!s.language.untied));
    }
    if (d->reads_images) {
        add_classes(root, s.classes);
    } else {
        add_ends(root, tokenizer);
    }
    json_object_set_new(root, "torch_dtype", json_string("float32"));
    return root;
}
