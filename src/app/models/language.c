/* SPDX-License-Identifier: Apache-2.0 */
/* Language models on the command line: flags, network, and the part of checkpoints that describes
 * them (contracts in app.h).
 *
 *      flags --> trm_text_options --> dataset --> its fields --> app_language_network --> graph
 *
 * A number of the network comes from the first of these that is there: a flag, the checkpoint or
 * folder, the data (their tokenizer), the model. Each key that describe_language puts is read back
 * by recall_language. */
#include "app/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns what the model has where neither flag, checkpoint nor data gives a vocabulary or
 * positions. */
static trm_language_options defaults_of(const app_model *model) {
    trm_language_options o = {0};
    trm_error unknown; /* there is such a model: it is in the table */
    (void)!trm_language_complete(model->name, &o, &unknown);
    return o;
}

/* Returns `given`, or `otherwise` where it is 0. */
static int64_t value_or(int64_t given, int64_t otherwise) { return given > 0 ? given : otherwise; }

/* ---- flags ----------------------------------------------------------------------------------- */

/* Contract in app.h. In commands with options of ranks --context has both: the number comes
 * first. */
trm_status app_take_context_tokens(app_context *app, trm_error *err) {
    enum { MOST = 1 << 24 };
    app_options *o = &app->o;
    if (o->context == NULL ||
        (strchr(o->context, '=') != NULL && (o->context[0] < '0' || o->context[0] > '9'))) {
        return TRM_OK;
    }
    char *end;
    long long number = strtoll(o->context, &end, 10);
    if (end == o->context || (*end != '\0' && *end != ';') || number < 1 || number > MOST) {
        return app_fail(err, TRM_INVALID,
                        "--context %.60s: a number of tokens from 1 to %d, options NAME=VALUE, or "
                        "both, with ; between, expected",
                        o->context, MOST);
    }
    o->context_tokens = number;
    o->context = *end == ';' ? end + 1 : NULL;
    return TRM_OK;
}

/* Sets the options of a language model that were not given. */
static void settle_language_model(app_context *app, const app_model *model) {
    enum { TOKENS = 256, CHARACTERS = 65 /* of tiny Shakespeare */ };
    app_options *o = &app->o;
    const app_parsed *p = &app->parsed;
    const trm_language_options usual = defaults_of(model);
    double masking = o->transformer.masking > 0 ? o->transformer.masking : 0.15;
    o->transformer.masking = trm_language_is_masked(model->name) ? masking : 0;
    if (!app_given(p, "optimizer")) {
        o->optimizer = model->optimizer;
    }
    if (!app_given(p, "learning-rate") && strncmp(o->optimizer, "adam", 4) == 0) {
        o->learning_rate = model->learning_rate;
    }
    if (o->click.preset != NULL) { /* peers/gpt_torch.py: the published models, and tiny */
        bool tiny = !trm_language_is_masked(model->name) && o->transformer.size != NULL &&
                    strcmp(o->transformer.size, "tiny") == 0;
        trm_language_options size = {0};
        trm_error unknown; /* describing the network reports a size that there is not */
        if (o->transformer.size != NULL &&
            trm_language_size(p->arguments[0], o->transformer.size, &size, &unknown) != TRM_OK) {
            size.vocabulary = 0;
        }
        int64_t known = tiny ? CHARACTERS : value_or(size.vocabulary, usual.vocabulary);
        o->transformer.vocabulary = value_or(o->transformer.vocabulary, known);
        o->transformer.positions =
            o->context_tokens > usual.context ? o->context_tokens : usual.context;
        o->betas = app_given(p, "betas") ? o->betas : "0.9,0.95";
        o->weight_decay = app_given(p, "weight-decay") ? o->weight_decay : 0.1;
        o->clip_norm = app_given(p, "clip-norm") ? o->clip_norm : 1;
        o->batch_size = value_or(o->batch_size, 4);
    }
    o->batch_size = o->batch_size == 0 ? model->batch_size : o->batch_size;
    if (o->context_tokens == 0) { /* a network that a file describes may have fewer positions */
        int64_t most = o->transformer.positions;
        o->context_tokens = most > 0 && most < TOKENS ? most : TOKENS;
    }
    /* Ids without a tokenizer are those of the published model. */
    if (o->transformer.vocabulary == 0 && o->tokenizer == NULL && o->tokens == NULL) {
        o->transformer.vocabulary = usual.vocabulary;
    }
}

/* ---- data ------------------------------------------------------------------------------------ */

/* The size of generated samples. */
typedef struct random_tokens {
    int64_t context, vocabulary;
    int64_t masked; /* of its own tokens, as many are targets; 0: the next ones are */
} random_tokens;

/* Writes sample `index`: ids that are a function of the index, and as targets the next ones, or
 * some of its own, spread evenly. A trm_sample_read. */
static trm_status read_random(void *context, int64_t index, const trm_tensor *fields,
                              trm_error *err) {
    enum { IGNORED = -100 };
    (void)err;
    const random_tokens *r = context;
    int32_t *tokens = fields[0].data, *targets = fields[1].data;
    int32_t *mask = r->masked > 0 ? fields[2].data : NULL;
    uint64_t state = (uint64_t)index * 0x9E3779B97F4A7C15u + 1;
    for (int64_t i = 0; i <= r->context; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int32_t id = (int32_t)((state >> 33) % (uint64_t)r->vocabulary);
        if (i < r->context) {
            tokens[i] = id;
        }
        if (i > 0 && r->masked == 0) {
            targets[i - 1] = id;
        } else if (i < r->context && r->masked > 0) {
            targets[i] = (r->masked * i + index) % r->context < r->masked ? id : IGNORED;
            mask[i] = 1;
        }
    }
    return TRM_OK;
}

/* Creates samples of random tokens. */
static trm_status make_random_tokens(const app_context *app, int64_t samples, trm_dataset **out,
                                     trm_error *err) {
    const app_options *o = &app->o;
    random_tokens *r = malloc(sizeof *r);
    if (r == NULL) {
        return app_no_memory(err, "for random tokens");
    }
    /* as many different tokens as the model would have */
    int64_t own = o->tokens != NULL ? 256 : defaults_of(app->model).vocabulary;
    *r = (random_tokens){.context = o->context_tokens,
                         .vocabulary = value_or(o->transformer.vocabulary, own)};
    if (trm_language_is_masked(app->model->name)) { /* as many as trm_text_options.masking says */
        r->masked = (int64_t)((double)r->context * o->transformer.masking + 0.5);
        r->masked = r->masked > 0 ? r->masked : 1;
    }
    const trm_tensor ids = {.dtype = TRM_INT32, .shape = trm_shape_of(r->context)};
    const trm_data_source source = {.samples = samples,
                                    .field_count = r->masked > 0 ? 3 : 2,
                                    .fields = {{"tokens", ids}, {"targets", ids}, {"mask", ids}},
                                    .read = read_random,
                                    .context = r,
                                    .destroy = free};
    trm_status status = trm_dataset_callback(&source, out, err);
    if (status != TRM_OK) {
        free(r);
    }
    return status;
}

/* ---- networks -------------------------------------------------------------------------------- */

/* Contract in language.h. */
trm_status app_read_lora(const char *text, trm_lora_options *out, trm_error *err) {
    static char targets[512]; /* a process has one network */
    const char *form = "r=N[,alpha=X][,dropout=X][,targets=NAME+...] expected";
    *out = (trm_lora_options){0};
    for (const char *item = text; text != NULL; item++) {
        /* Read one KEY=VALUE; a comma or nothing must follow it. */
        size_t length = strcspn(item, ",");
        char key[16] = "", value[512] = "", rest;
        int read = length < sizeof value
                       ? sscanf(item, "%15[a-z]=%511[A-Za-z0-9_.+-]%c", key, value, &rest)
                       : 0;
        bool whole = read == 2 || (read == 3 && rest == ',');
        char *end = value;
        double number = strtod(value, &end);
        bool is_number = end != value && *end == '\0';
        if (whole && strcmp(key, "r") == 0 && is_number && out->rank == 0 && number >= 1 &&
            number <= 65536 && number == (double)(int64_t)number) {
            out->rank = (int64_t)number;
        } else if (whole && strcmp(key, "alpha") == 0 && is_number && number > 0) {
            out->alpha = number;
        } else if (whole && strcmp(key, "dropout") == 0 && is_number && number >= 0 && number < 1) {
            out->dropout = number;
        } else if (whole && strcmp(key, "targets") == 0 && out->targets == NULL) {
            snprintf(targets, sizeof targets, "%s", value);
            out->targets = targets;
        } else {
            return app_fail(err, TRM_INVALID, "--lora %.80s: '%.*s': %s", text,
                            (int)(length < 60 ? length : 60), item, form);
        }
        item += length;
        if (*item == '\0') {
            break;
        }
    }
    return text != NULL && out->rank == 0
               ? app_fail(err, TRM_INVALID, "--lora %.80s: r is missing: %s", text, form)
               : TRM_OK;
}

/* Determines the sizes of the network from flags, checkpoint and data.
 *   errors  INVALID */
static trm_status settle_language_network(const app_context *app, trm_dataset *data,
                                          app_network *network, trm_error *err) {
    const app_transformer_flags *f = &app->o.transformer;
    app_language_network *n = &network->language;
    trm_batch_field field;
    *n = (app_language_network){.tokenizer = app->o.tokens,
                                .keeps_logits = strcmp(app->command->name, "export") == 0,
                                .is_masked = trm_language_is_masked(network->model->name),
                                .masking = f->masking,
                                .mask_token = f->mask_token,
                                .documents = f->documents,
                                .boundary_tokens = f->boundary_tokens};
    for (int32_t i = 0; trm_dataset_field(data, i, &field); i++) {
        if (strcmp(field.name, "tokens") == 0 && field.tensor.shape.rank == 2) {
            n->tokens = field.tensor.shape.dim[1];
        }
    }
    if (n->tokens == 0) {
        return app_fail(err, TRM_INVALID,
                        "the data has no tokens; a language model needs them (--dataset tokens, "
                        "text or jsonl)");
    }
    trm_language_options *o = &n->options;
    const char *model = network->model->name;
    trm_status status = f->size != NULL ? trm_language_size(model, f->size, o, err) : TRM_OK;
    const trm_tokenizer *tokenizer = trm_dataset_tokenizer(data);
    o->layers = value_or(f->layers, o->layers);
    o->width = value_or(f->width, o->width);
    o->heads = value_or(f->heads, o->heads);
    o->kv_heads = value_or(f->kv_heads, o->kv_heads);
    o->hidden = value_or(f->hidden, o->hidden);
    o->context = value_or(f->positions, n->tokens);
    /* masked tokens may have an id after those of the tokenizer */
    int64_t own = n->is_masked            ? trm_dataset_class_count(data)
                  : tokenizer != NULL     ? trm_tokenizer_vocabulary(tokenizer)
                  : app->o.tokens != NULL ? 256
                                          : 0;
    o->vocabulary = value_or(value_or(f->vocabulary, own), defaults_of(network->model).vocabulary);
    o->dropout = f->dropout;
    o->epsilon = f->epsilon;
    o->rotary_theta = f->rotary_theta > 0 ? f->rotary_theta : o->rotary_theta;
    o->untied = o->untied || f->untied;
    o->lazy_embedding = f->lazy_embedding;
    if (f->lazy_embedding && !o->untied && strcmp(model, "llama") == 0 && app_rank(app) == 0) {
        app_warn("--lazy-embedding has no effect here: it is for --untied; the output layer reads "
                 "all rows");
    }
    o->experts = f->experts;
    o->top_experts = f->top_experts;
    o->balance = f->balance;
    network->lora = f->lora;
    status = status == TRM_OK ? app_read_lora(f->lora, &o->lora, err) : status;
    return status == TRM_OK ? trm_language_complete(model, o, err) : status;
}

/* Builds the graph of a language model up to its loss, for export up to its logits. A trm_network.
 * The value is the mean cross-entropy, without logits: those of all tokens are
 * larger than the rest of the program. */
static trm_node build_language_model(trm_graph *graph, const trm_inputs *inputs, void *context) {
    const app_network *network = context;
    const app_language_network *n = &network->language;
    trm_node tokens = trm_inputs_get(inputs, "tokens");
    trm_language_options options = n->options;
    options.mask = n->is_masked ? trm_inputs_get(inputs, "mask") : TRM_NO_NODE;
    options.masking = n->is_masked ? n->masking : 0;
    return n->keeps_logits ? trm_language_build(graph, network->model->name, tokens, &options)
                           : trm_language_loss(graph, network->model->name, tokens,
                                               trm_inputs_get(inputs, "targets"), &options);
}

/* Returns the loss that the network has computed, or adds that of the logits. A trm_loss. */
static trm_node take_loss(trm_graph *graph, trm_node value, const trm_inputs *inputs,
                          void *context) {
    const app_language_network *n = &((const app_network *)context)->language;
    if (!n->keeps_logits) {
        return value;
    }
    trm_node targets = trm_inputs_get(inputs, "targets");
    trm_shape shape = trm_node_shape(graph, targets);
    int64_t rows = trm_shape_count(&shape);
    return trm_softmax_cross_entropy(
        graph, trm_reshape(graph, value, trm_shape_of(rows, n->options.vocabulary)),
        trm_reshape(graph, targets, trm_shape_of(rows)),
        &(trm_xent_options){.use_ignore_index = true, .ignore_index = -100});
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Returns "" for NULL. */
static const char *or_empty(const char *text) { return text != NULL ? text : ""; }

/* Puts the members of the object "language". Every key is read back by recall_language, unless its
 * flag is given. */
static void describe_language(const app_network *network) {
    const app_language_network *n = &network->language;
    const trm_language_options *o = &n->options;
    app_put(app_int("context", n->tokens, NULL), app_int("positions", o->context, NULL),
            app_int("layers", o->layers, NULL), app_int("width", o->width, NULL),
            app_int("heads", o->heads, NULL), app_int("kv_heads", o->kv_heads, NULL),
            app_int("hidden", o->hidden, NULL), app_int("vocabulary", o->vocabulary, NULL),
            app_exact("epsilon", o->epsilon), app_exact("rotary_theta", o->rotary_theta),
            app_bool("untied", o->untied, NULL), app_int("experts", o->experts, NULL),
            app_int("top_experts", o->top_experts, NULL), app_exact("masking", n->masking),
            app_int("mask_token", n->mask_token, NULL), app_bool("documents", n->documents, NULL),
            app_text("boundary_tokens", or_empty(n->boundary_tokens), NULL),
            app_text("tokens", or_empty(n->tokenizer), NULL),
            app_text("lora", or_empty(network->lora), NULL));
}

/* Returns a whole number of the description; 0 if it has none. */
static int64_t number_of(const json_t *root, const char *key) {
    return json_integer_value(json_object_get(root, key));
}

/* Takes the options of a network that a file describes, unless flags give them. */
static void take_network(app_context *app, const trm_language_options *o) {
    const app_parsed *p = &app->parsed;
    app_transformer_flags *f = &app->o.transformer;
    if (f->size != NULL && app_rank(app) == 0) {
        app_warn("--size has no effect here: the file that has the weights gives the network");
    }
    f->layers = app_given(p, "layers") ? f->layers : o->layers;
    f->width = app_given(p, "width") ? f->width : o->width;
    f->heads = app_given(p, "heads") ? f->heads : o->heads;
    f->kv_heads = app_given(p, "kv-heads") ? f->kv_heads : o->kv_heads;
    f->hidden = app_given(p, "hidden") ? f->hidden : o->hidden;
    f->vocabulary = app_given(p, "vocabulary") ? f->vocabulary : o->vocabulary;
    f->rotary_theta = app_given(p, "rotary-theta") ? f->rotary_theta : o->rotary_theta;
    f->untied = f->untied || o->untied;
    f->experts = app_given(p, "experts") ? f->experts : o->experts;
    f->top_experts = app_given(p, "top-experts") ? f->top_experts : o->top_experts;
    f->epsilon = o->epsilon;
    f->positions = o->context;
}

bool app_is_huggingface(const char *path) {
    char file[4096];
    struct stat about;
    int length = path != NULL ? snprintf(file, sizeof file, "%s/config.json", path) : -1;
    return length > 0 && length < (int)sizeof file && stat(file, &about) == 0;
}

/* Takes the options of the network and the tokenizer from a Hugging Face folder.
 *   errors  INVALID if it is of another model; those of trm_huggingface_read */
static trm_status recall_language_folder(app_context *app, const char *name, const char *folder,
                                         trm_error *err) {
    static const char *const files[] = {"tokenizer.json", "vocab.json"};
    const char *model = NULL;
    trm_language_options network;
    trm_status status = trm_huggingface_read(folder, &model, &network, err);
    if (status != TRM_OK) {
        return status;
    }
    if (strcmp(model, name) != 0) {
        return app_fail(err, TRM_INVALID, "%.100s is of %.40s, not of %.40s", folder, model, name);
    }
    take_network(app, &network);
    for (int i = 0; i < 2 && app->o.tokenizer == NULL && app->o.tokens == NULL; i++) {
        char file[4096];
        struct stat about;
        snprintf(file, sizeof file, "%s/%s", folder, files[i]);
        app->o.tokenizer = stat(file, &about) == 0 ? folder : NULL;
    }
    return TRM_OK;
}

/* Sets the options that a Hugging Face folder of this model needs beside the weights. */
static void set_language_folder(const app_network *network, trm_huggingface_options *out) {
    out->network = &network->language.options;
}

/* Sets --tokenizer to the folder beside --checkpoint. Returns false if there is none. */
static bool recall_tokenizer(app_context *app) {
    static char found[4096];
    struct stat about;
    int length = snprintf(found, sizeof found, "%s/../tokenizer", app->o.checkpoint);
    if (length < (int)sizeof found && stat(found, &about) == 0 && S_ISDIR(about.st_mode)) {
        app->o.tokenizer = found;
        return true;
    }
    return false;
}

/* Contract in language.h. */
void app_recall_lora(app_transformer_flags *flags, const char *adapters) {
    static char lora[1024]; /* a process has one network */
    if (adapters != NULL && adapters[0] != '\0' && flags->lora == NULL) {
        snprintf(lora, sizeof lora, "%s", adapters);
        flags->lora = lora;
    }
}

/* Takes the options of the network from the description of a checkpoint. --tokenizer becomes the
 * one beside --checkpoint, unless the flags give another. */
static trm_status recall_language(app_context *app, const json_t *language, trm_error *err) {
    (void)err;
    const trm_language_options network = {
        .layers = number_of(language, "layers"),
        .width = number_of(language, "width"),
        .heads = number_of(language, "heads"),
        .kv_heads = number_of(language, "kv_heads"),
        .hidden = number_of(language, "hidden"),
        .context = number_of(language, "positions"),
        .vocabulary = number_of(language, "vocabulary"),
        .epsilon = json_number_value(json_object_get(language, "epsilon")),
        .rotary_theta = json_number_value(json_object_get(language, "rotary_theta")),
        .untied = json_is_true(json_object_get(language, "untied")),
        .experts = number_of(language, "experts"),
        .top_experts = number_of(language, "top_experts")};
    take_network(app, &network);
    /* options of the data, unless flags give them */
    app_transformer_flags *f = &app->o.transformer;
    if (!app_given(&app->parsed, "masking")) {
        f->masking = json_number_value(json_object_get(language, "masking"));
    }
    if (!app_given(&app->parsed, "mask-token")) {
        f->mask_token = number_of(language, "mask_token");
    }
    f->documents = f->documents || json_is_true(json_object_get(language, "documents"));
    const char *boundary = json_string_value(json_object_get(language, "boundary_tokens"));
    if (f->boundary_tokens == NULL && boundary != NULL) {
        f->boundary_tokens = strcmp(boundary, "on") == 0    ? "on"
                             : strcmp(boundary, "off") == 0 ? "off"
                                                            : NULL;
    }
    if (app->o.context_tokens == 0) {
        app->o.context_tokens = number_of(language, "context");
    }
    /* adapters, and how text becomes tokens */
    app_recall_lora(f, json_string_value(json_object_get(language, "lora")));
    const char *tokens = json_string_value(json_object_get(language, "tokens"));
    if (app->o.tokens == NULL && app->o.tokenizer == NULL && !recall_tokenizer(app) &&
        tokens != NULL) {
        app->o.tokens = strcmp(tokens, "characters") == 0 ? "characters"
                        : strcmp(tokens, "bytes") == 0    ? "bytes"
                                                          : NULL;
    }
    return TRM_OK;
}

/* Contract in app.h. */
trm_status app_language_keep_tokenizer(const app_context *app, const char *folder,
                                       trm_dataset *data, trm_error *err) {
    char path[4096];
    const trm_tokenizer *tokenizer = trm_dataset_tokenizer(data);
    if (folder == NULL || app->o.dry_run || tokenizer == NULL) {
        return TRM_OK;
    }
    snprintf(path, sizeof path, "%s/tokenizer", folder);
    const char *from = app_is_huggingface(app->o.init) ? app->o.init : app->o.tokenizer;
    trm_status status = trm_tokenizer_save(tokenizer, path, err);
    return status == TRM_OK ? app_ends_keep(from, tokenizer, path, err) : status;
}

/* Returns the tokens of a sample that --context gives; 0: not given. */
static int64_t context_of(const app_options *o) { return o->context_tokens; }

/* Adds the sizes to the event "start". */
static void put_language_sizes(const app_context *app, const app_network *network) {
    (void)app;
    app_put(app_int("context", network->language.tokens, NULL),
            app_int("vocabulary", network->language.options.vocabulary, NULL));
}

const app_model_kind app_language_kind = {.title = "text",
                                          .key = "language",
                                          .unit = "tokens",
                                          .rate_key = "tokens_per_second",
                                          .input_key = "context",
                                          .input_text = ", %d tokens",
                                          .counts_inputs = true,
                                          .has_blocks = true,
                                          .is_for = "language models",
                                          .build = build_language_model,
                                          .loss = take_loss,
                                          .input_size = context_of,
                                          .settle = settle_language_model,
                                          .random = make_random_tokens,
                                          .network_of = settle_language_network,
                                          .describe = describe_language,
                                          .recall = recall_language,
                                          .recall_folder = recall_language_folder,
                                          .export_folder = set_language_folder,
                                          .put_sizes = put_language_sizes};
