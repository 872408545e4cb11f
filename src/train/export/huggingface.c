/* SPDX-License-Identifier: Apache-2.0 */
/* Writes Hugging Face folders (trireme/io.h).
 *
 *      weights     model*.safetensors      "h.0.ln_1.weight" is "transformer.h.0.ln_1.weight" of
 *                                          GPT2LMHeadModel; the others' names are the same
 *      adapters    adapter_*               (adapters.c)
 *      tokenizer, image processor
 *      settings    config.json             (huggingface_config.c)
 *
 * Invariant: config.json is written last, so that a folder without it is no export. */
#include "train/export/huggingface_config.h"

#include "train/export/adapters.h"
#include "train/export/gather.h"
#include "train/export/weights.h"
#include "train/model.h"

#include "data/pipeline/folder_names.h"

#include "graph/graph_ir.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static trm_status gather_named(trm_model *model, const trmi_huggingface_dialect *d,
                               trmi_arena *arena, trm_named_tensor **out, int64_t *count,
                               trm_error *err) {
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
                                 const trmi_huggingface_dialect **out, trmi_huggingface_settings *s,
                                 trm_error *err) {
    *s = (trmi_huggingface_settings){0};
    *out = trmi_huggingface_find(options->model);
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
    return *out != NULL && !(grouped && !trmi_huggingface_shares_keys(*out))
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
    const trmi_huggingface_dialect *d = NULL;
    trmi_huggingface_settings s;
    TRMI_TRY(settle_dialect(model, options, &d, &s, err));
    if (strlen(folder) > PATH_MOST) {
        return TRMI_FAIL(err, TRM_INVALID, "a path of at most %d bytes expected", PATH_MOST);
    }
    TRMI_TRY(trmi_os_make_dirs(NULL, folder, err));
    const trm_lora_options *lora = d->reads_images ? &s.vit.lora : &s.language.lora;
    bool transposed = d->inputs_first, adapters_alone = lora->rank > 0 && !options->merge;
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
               ? write_json(trmi_huggingface_config(d, &s, options->tokenizer), folder,
                            "config.json", err)
               : status;
}
