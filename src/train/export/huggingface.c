/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face folders (trireme/io.h): how options and names translate.
 *
 *      options  <-->  config.json              the tables below
 *      weights   -->  model*.safetensors       "h.0.ln_1.weight" is "transformer.h.0.ln_1.weight" of
 *                                              GPT2LMHeadModel; the others' names are the same */
#include "trireme/io.h"

#include "train/export/adapters.h"
#include "train/export/gather.h"
#include "train/export/weights.h"
#include "train/model.h"

#include "data/pipeline/folder_names.h"

#include "graph/graph_ir.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* The settings of a config.json. */
typedef struct settings {
    trm_language_options language;
    trm_vit_options vit;
    int64_t image_size, classes; /* of an image model */
} settings;

#define AT(member) offsetof(settings, member)

/* A whole number of config.json and its member of the settings. */
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
    bool reads_images;
    const char *epsilon; /* key */
    size_t epsilon_at;
    double epsilon_default; /* transformers' where config.json has none */
    number numbers[10];
    fixed fixed[8];
} dialect;

/* The models of transformers that are translated. gpt2 is the first one: its layers keep weights
 * as [in, out], and settle_dialect and trm_export_huggingface know it by dialects[0]. */
static const dialect dialects[] = {
    {"gpt2",
     "GPT2LMHeadModel",
     "transformer.",
     false,
     "layer_norm_epsilon",
     AT(language.epsilon),
     1e-5,
     {{"n_layer", AT(language.layers), true},
      {"n_embd", AT(language.width), true},
      {"n_head", AT(language.heads), true},
      {"n_inner", AT(language.hidden), false},
      {"n_positions", AT(language.context), true},
      {"vocab_size", AT(language.vocabulary), true}},
     {{"activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""},
      {"scale_attn_weights", "true", NULL},
      {"scale_attn_by_inverse_layer_idx", "false", NULL},
      {"add_cross_attention", "false", NULL},
      {"tie_word_embeddings", "true", NULL}}},
    {"llama",
     "LlamaForCausalLM",
     "",
     false,
     "rms_norm_eps",
     AT(language.epsilon),
     1e-6,
     {{"num_hidden_layers", AT(language.layers), true},
      {"hidden_size", AT(language.width), true},
      {"num_attention_heads", AT(language.heads), true},
      {"num_key_value_heads", AT(language.kv_heads), false},
      {"intermediate_size", AT(language.hidden), true},
      {"max_position_embeddings", AT(language.context), true},
      {"vocab_size", AT(language.vocabulary), true}},
     {{"hidden_act", "\"silu\"", NULL},
      {"attention_bias", "false", NULL},
      {"mlp_bias", "false", NULL},
      {"rope_scaling", "null", NULL}}},
    {"bert",
     "BertForMaskedLM",
     "",
     false,
     "layer_norm_eps",
     AT(language.epsilon),
     1e-12,
     {{"num_hidden_layers", AT(language.layers), true},
      {"hidden_size", AT(language.width), true},
      {"num_attention_heads", AT(language.heads), true},
      {"intermediate_size", AT(language.hidden), true},
      {"max_position_embeddings", AT(language.context), true},
      {"vocab_size", AT(language.vocabulary), true}},
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
     "layer_norm_eps",
     AT(vit.epsilon),
     1e-12,
     {{"num_hidden_layers", AT(vit.layers), true},
      {"hidden_size", AT(vit.width), true},
      {"num_attention_heads", AT(vit.heads), true},
      {"intermediate_size", AT(vit.hidden), true},
      {"patch_size", AT(vit.patch), true},
      {"image_size", AT(image_size), true}},
     {{"hidden_act", "\"gelu\"", NULL}, {"qkv_bias", "true", NULL}, {"num_channels", "3", NULL}}},
};
enum { DIALECTS = sizeof dialects / sizeof dialects[0] };

/* Return the member of the settings that a row of a dialect names by its offset. */
static int64_t *number_at(settings *s, size_t at) { return (int64_t *)(void *)((char *)s + at); }
static double *epsilon_of(settings *s, const dialect *d) {
    return (double *)(void *)((char *)s + d->epsilon_at);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Refuses settings that the models here do not have.
 *   errors  UNSUPPORTED */
static trm_status check_fixed(const char *path, const json_t *root, const dialect *d,
                              trm_error *err) {
    static const char *const absent[] = {"quantization_config", "sliding_window"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        const json_t *value = json_object_get(root, absent[i]);
        if (value != NULL && !json_is_null(value)) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "%s: %s is set; only models without it can be read here", path,
                             absent[i]);
        }
    }
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
    if (json_is_integer(given) && json_integer_value(given) != width) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: head_dim is %lld; only hidden_size / num_attention_heads, %lld, can "
                         "be read here",
                         path, (long long)json_integer_value(given), (long long)width);
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

/* Reads the settings of a config.json.
 *   errors  CORRUPT, UNSUPPORTED */
static trm_status read_config(const char *path, const json_t *root, const dialect *d, settings *out,
                              trm_error *err) {
    enum { MOST = 1 << 24, LAYERS_MOST = 4096 }; /* no graph is built of a billion layers */
    settings s = {0};
    for (const number *n = d->numbers; n->key != NULL; n++) {
        const json_t *value = json_object_get(root, n->key);
        bool absent = value == NULL || json_is_null(value);
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
static trm_status read_folder(const char *folder, bool images, const char **model, settings *out,
                              trm_error *err) {
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
    const dialect *found = NULL;
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
    settings s;
    TRMI_TRY(read_folder(folder, false, model, &s, err));
    *network = s.language;
    return TRM_OK;
}

trm_status trm_huggingface_read_image(const char *folder, const char **model,
                                      trm_network_options *network, int64_t *image_size,
                                      trm_error *err) {
    TRMI_NEED(err, folder, model, network, image_size);
    settings s;
    TRMI_TRY(read_folder(folder, true, model, &s, err));
    *network = (trm_network_options){.classes = s.classes, .vit = s.vit};
    *image_size = s.image_size;
    return TRM_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes JSON as a file of the folder and releases it.
 *   errors  NOMEM (also where `root` is NULL), IO, NOSPACE */
static trm_status write_json(json_t *root, const char *folder, const char *name, trm_error *err) {
    char path[4096];
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    trm_status status = text == NULL ? TRMI_NO_MEMORY(err, "for %s", path)
                                     : trm_file_write(path, text, strlen(text), err);
    free(text);
    json_decref(root);
    return status;
}

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

/* Returns the config.json of a model; NULL: no memory. */
static json_t *make_config(const dialect *d, const settings *given,
                           const trm_tokenizer *tokenizer) {
    settings s = *given;
    json_t *root = json_object();
    json_object_set_new(root, "architectures", json_pack("[s]", d->architecture));
    json_object_set_new(root, "model_type", json_string(d->model));
    /* the tables of the dialect: numbers of the network, then the values that never differ */
    for (const number *n = d->numbers; n->key != NULL; n++) {
        json_object_set_new(root, n->key, json_integer(*number_at(&s, n->at)));
    }
    for (const fixed *f = d->fixed; f->key != NULL; f++) {
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

/* Writes tensors [begin, end) as one file. */
static trm_status write_shard(const trm_named_tensor *tensors, int64_t begin, int64_t end,
                              const char *folder, const char *name, trm_error *err) {
    static const trm_text_pair metadata[] = {{"format", "pt"}};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return trm_safetensors_write(path, tensors + begin, end - begin, metadata, 1, err);
}

/* Returns after which tensor the file that begins with tensor `begin` ends. */
static int64_t shard_end(const trm_named_tensor *tensors, int64_t count, int64_t begin,
                         int64_t most) {
    int64_t end = begin, bytes = 0;
    do {
        bytes += trm_tensor_bytes(&tensors[end++].tensor);
    } while (end < count && bytes + trm_tensor_bytes(&tensors[end].tensor) <= most);
    return end;
}

/* Returns whether a file's name is that of a shard of another number of shards than *context. */
static bool is_stale_shard(const void *context, const char *name) {
    int shard, shards, end = 0;
    return sscanf(name, "model-%5d-of-%5d.safetensors%n", &shard, &shards, &end) == 2 && end > 0 &&
           name[end] == '\0' && shards != *(const int64_t *)context;
}

/* Removes what an earlier export of another form, or in other shards, left in the folder: programs
 * would read it in place of what is written now, or besides. */
static trm_status remove_other_forms(const char *folder, int64_t shards, trm_error *err) {
    const char *others[] = {shards == 1 ? "model.safetensors.index.json" : "model.safetensors",
                            "adapter_config.json", "adapter_model.safetensors"};
    const int64_t forms = sizeof others / sizeof others[0];
    trmi_arena arena = {0};
    char **stale = NULL;
    int64_t count = 0;
    trm_status status =
        trmi_folder_list(folder, &(trmi_folder_choice){.wants = is_stale_shard, .context = &shards},
                         &arena, &stale, &count, err);
    for (int64_t i = 0; i < forms + count && status == TRM_OK; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, i < forms ? others[i] : stale[i - forms]);
        status = trmi_os_remove_tree(NULL, path, err);
    }
    trmi_free(stale);
    trmi_arena_free(&arena);
    return status;
}

/* Writes the weights: one file, or several of at most `most` bytes (a tensor is never cut) and
 * their index. */
static trm_status write_weights(const trm_named_tensor *tensors, int64_t count, int64_t most,
                                const char *folder, trm_error *err) {
    int64_t shards = 0, total = 0;
    /* each file's name has the number of files, so they are counted first */
    for (int64_t at = 0; at < count; at = shard_end(tensors, count, at, most)) {
        shards++;
    }
    if (shards == 1) {
        TRMI_TRY(write_shard(tensors, 0, count, folder, "model.safetensors", err));
        return remove_other_forms(folder, 1, err);
    }
    /* the index says which file has which tensor */
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
    /* Before the index: where this process ends in between, readers find no weights, and not old
     * ones. */
    status = status == TRM_OK ? remove_other_forms(folder, shards, err) : status;
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
    static const trm_text_pair special[] = {{"[MASK]", "mask_token"}, {"<mask>", "mask_token"},
                                            {"[PAD]", "pad_token"},   {"[UNK]", "unk_token"},
                                            {"[CLS]", "cls_token"},   {"[SEP]", "sep_token"}};
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
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if (trm_tokenizer_find(tokenizer, special[i].key) >= 0) {
            json_object_set_new(root, special[i].value, json_string(special[i].key));
        }
    }
    return write_json(root, folder, "tokenizer_config.json", err);
}

/* Writes what AutoImageProcessor needs: images are scaled to the network's size as a whole. */
static trm_status write_processor(const trm_huggingface_options *options, int64_t size,
                                  const char *folder, trm_error *err) {
    enum { BILINEAR = 2 }; /* PIL's number */
    const double *m = options->image_mean, *d = options->image_std;
    json_t *root = json_pack(
        "{s:s,s:b,s:b,s:b,s:i,s:f,s:{s:I,s:I},s:[f,f,f],s:[f,f,f]}", "image_processor_type",
        "ViTImageProcessor", "do_resize", 1, "do_rescale", 1, "do_normalize", 1, "resample",
        BILINEAR, "rescale_factor", 1 / 255.0, "size", "height", (json_int_t)size, "width",
        (json_int_t)size, "image_mean", m[0], m[1], m[2], "image_std", d[0], d[1], d[2]);
    return write_json(root, folder, "preprocessor_config.json", err);
}

/* Gathers the parameters, under the names of transformers.
 *   errors  NOMEM */
static trm_status gather_named(trm_model *model, const dialect *d, trmi_arena *arena,
                               trm_named_tensor **out, int64_t *count, trm_error *err) {
    TRMI_TRY(trmi_gather(trm_model_exec(model), false, arena, out, count, err));
    for (int64_t i = 0; i < *count; i++) {
        trm_named_tensor *t = &(*out)[i];
        t->name = trmi_arena_printf(arena, "%s%s", d->prefix, t->name);
        if (t->name == NULL) {
            return TRMI_NO_MEMORY(err, "for names of tensors");
        }
    }
    return TRM_OK;
}

/* Determines the dialect and the settings of a model from its options, of an image model also from
 * its graph.
 *   errors  INVALID, UNSUPPORTED */
static trm_status settle_dialect(trm_model *model, const trm_huggingface_options *options,
                                 const dialect **out, settings *s, trm_error *err) {
    *s = (settings){0};
    *out = NULL;
    for (int i = 0; i < DIALECTS; i++) {
        *out = strcmp(dialects[i].model, options->model) == 0 ? &dialects[i] : *out;
    }
    if (*out != NULL && (*out)->reads_images) {
        const trm_graph *graph = trmi_model_owner(model)->graph;
        s->vit = options->vit != NULL ? *options->vit : (trm_vit_options){0};
        trm_vit_complete(&s->vit);
        /* Take the size of images from the input, classes from the last layer. */
        for (int64_t i = 1; i < graph->ops_count; i++) {
            const trmi_op *op = &graph->ops[i];
            const trm_shape *shape = &graph->values[op->outputs[0]].shape;
            if (op->kind == TRMI_OP_INPUT && shape->rank == 4) {
                s->image_size = shape->dim[2] == shape->dim[3] ? shape->dim[2] : 0;
            } else if (op->kind == TRMI_OP_PARAMETER && strcmp(op->name, "classifier.bias") == 0) {
                s->classes = shape->dim[0];
            }
        }
        return s->image_size > 0 && s->classes > 0
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_UNSUPPORTED,
                               "%s: a classifier of square images expected, for transformers",
                               options->model);
    }
    /* This is a language model. */
    s->language = options->network != NULL ? *options->network : (trm_language_options){0};
    TRMI_TRY(trm_language_complete(options->model, &s->language, err));
    bool grouped = s->language.kv_heads != s->language.heads;
    return *out != NULL && !(grouped && *out == &dialects[0])
               ? TRM_OK
               : TRMI_FAIL(err, TRM_UNSUPPORTED,
                           "%s: transformers has no %s%s: safetensors and ONNX files take it",
                           options->model, options->model,
                           *out == NULL ? " (blocks of GPT-2 with experts; Mixtral's are Llama's)"
                           : grouped    ? " with fewer key heads"
                                        : "");
}

/* Contract in trireme/io.h. Writes the weights first, then tokenizer and image processor, and
 * config.json last. */
trm_status trm_export_huggingface(trm_model *model, const trm_huggingface_options *options,
                                  const char *folder, trm_error *err) {
    /* room for the names of the files behind the folder's */
    enum { PATH_MOST = 4000 };
    TRMI_NEED(err, model, options, folder);
    TRMI_NEED(err, options->model);
    const dialect *d = NULL;
    settings s;
    TRMI_TRY(settle_dialect(model, options, &d, &s, err));
    if (strlen(folder) > PATH_MOST) {
        return TRMI_FAIL(err, TRM_INVALID, "a path of at most %d bytes expected", PATH_MOST);
    }
    TRMI_TRY(trmi_os_make_dirs(NULL, folder, err));
    const trm_lora_options *lora = d->reads_images ? &s.vit.lora : &s.language.lora;
    bool transposed = d == &dialects[0], adapters_alone = lora->rank > 0 && !options->merge;
    if (options->merge && lora->rank == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "merge: this %s has no adapters", options->model);
    }
    char path[PATH_MOST + 96];
    const char *whole = trmi_weights_file(folder, path, sizeof path);
    if (adapters_alone && whole != NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%.120s: %s of another export is there, and would pass for the weights "
                         "of these adapters; give them a folder of their own",
                         folder, whole);
    }
    trmi_arena arena = {0};
    trm_named_tensor *tensors = NULL;
    /* Write the weights; adapters are added to them, or written to files of their own. */
    int64_t count = 0;
    trm_status status = gather_named(model, d, &arena, &tensors, &count, err);
    if (status == TRM_OK && options->merge) {
        status = trmi_adapters_merge(lora, transposed, tensors, &count, err);
    }
    if (status == TRM_OK && adapters_alone) {
        status = trmi_adapters_write(options->model, lora, transposed, tensors, count, folder, err);
    } else if (status == TRM_OK) {
        /* bytes of a file, at most; the default is that of transformers */
        int64_t most = options->shard_bytes > 0 ? options->shard_bytes : 5000000000;
        status = write_weights(tensors, count, most, folder, err);
    }
    trmi_arena_free(&arena);
    if (status == TRM_OK && options->tokenizer != NULL) {
        status = write_tokenizer(options->tokenizer, s.language.context, folder, err);
    }
    const double *deviation = options->image_std;
    if (status == TRM_OK && d->reads_images && deviation[0] * deviation[1] * deviation[2] > 0) {
        status = write_processor(options, s.image_size, folder, err);
    }
    return status == TRM_OK && !adapters_alone
               ? write_json(make_config(d, &s, options->tokenizer), folder, "config.json", err)
               : status;
}
