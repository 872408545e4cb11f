/* SPDX-License-Identifier: Apache-2.0 */
/* From --data and its flags to a dataset: the kind of data at the path, the settings that follow
 * from it, the shard of this rank (contracts in app.h).
 *
 *   app_settle_data   flags that were not given get the numbers of the guide, model or data
 *   app_dataset       opens it; a role of a job takes its own shard, a rank that splits the graph
 *                     reads whole batches, every other rank reads its share
 *
 * Only the kind of data and the samples are decided here. How a sample becomes fields is the
 * library's. */
#include "app/models/models.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- location of the data -------------------------------------------------------------------- */

/* Returns whether the folder has a file of CIFAR-10. */
static bool has_batches(const char *path) {
    DIR *folder = opendir(path);
    struct dirent *entry;
    bool found = false;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        found |= strstr(entry->d_name, "batch") != NULL && app_ends_in(entry->d_name, ".bin");
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

/* Replaces the folder above cifar-10-batches-bin by that one. */
static void enter_batches_folder(app_options *o) {
    static char below[4096];
    struct stat info;
    snprintf(below, sizeof below, "%s/cifar-10-batches-bin", o->data);
    if (strcmp(o->data, "synth") != 0 && stat(below, &info) == 0 && !has_batches(o->data)) {
        o->data = below;
    }
}

/* Returns whether the images are of 32x32: generated, or CIFAR-10. */
static bool is_small(const app_options *o) {
    return o->data == NULL || strcmp(o->data, "synth") == 0 || strcmp(o->dataset, "cifar10") == 0 ||
           has_batches(o->data);
}

/* Sets guide 002's numbers where flags do not give them. */
static void settle_guide(app_context *app) {
    app_options *o = &app->o;
    const app_parsed *p = &app->parsed;
    o->image_size = app_given(p, "image-size") ? o->image_size : 224;
    o->batch_size = app_given(p, "batch-size") ? o->batch_size : 32;
    o->epochs = app_given(p, "epochs") || app_given(p, "steps") ? o->epochs : 10;
    o->loss = app_given(p, "loss") ? o->loss : "expand";
    o->sink = true;
}

/* Contract in app.h. Order: the guide's numbers, those of click and language models, then those of
 * the data. */
void app_settle_data(app_context *app) {
    app_options *o = &app->o;
    trm_error later; /* app_set_context reports it */
    if (app_take_stages(app, &later) != TRM_OK) {
        return;
    }
    if (o->fixed_recipe) {
        settle_guide(app);
    }
    const app_model *model = app->model;
    if (model != NULL && model->kind->settle != NULL) {
        model->kind->settle(app, model);
    }
    if (strcmp(o->optimizer, "adamw") == 0 && !app_given(&app->parsed, "weight-decay") &&
        o->click.preset == NULL) {
        o->weight_decay = 0.01; /* PyTorch's */
    }
    if (o->data != NULL) {
        enter_batches_folder(o);
    }
    if (o->image_size == 0) {
        o->image_size = is_small(o) ? 32 : 224;
    }
    if (o->batch_size == 0) {
        o->batch_size = o->image_size >= 128 ? 32 : 128;
    }
    app_settle_micro_batches(o);
}

/* ---- datasets -------------------------------------------------------------------------------- */

json_t *app_source_of(trm_dataset *data) {
    char *text = trm_dataset_json(data);
    json_t *root = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *source = json_incref(json_object_get(root, "source"));
    json_decref(root);
    trm_free(text);
    return source;
}

/* Contract in app.h. The description of the dataset shows its kind. */
bool app_has_one_folder(const app_options *o, trm_dataset *data) {
    char path[4096];
    struct stat info;
    json_t *source = app_source_of(data);
    const char *kind = json_string_value(json_object_get(source, "kind"));
    bool folders = kind != NULL && strcmp(kind, "imagefolder") == 0;
    bool clicks = json_object_get(source, "key_fields") != NULL;
    json_decref(source);
    snprintf(path, sizeof path, "%s/train", o->data);
    if (clicks && stat(o->data, &info) == 0 && S_ISREG(info.st_mode)) {
        return true;
    }
    return folders && !(stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

bool app_generates(const app_options *o) {
    return o->data != NULL && (strcmp(o->data, "synth") == 0 || strcmp(o->data, "clicks") == 0 ||
                               strcmp(o->dataset, "clicks") == 0);
}

trm_status app_check_data(const app_context *app, trm_error *err) {
    return app->o.data != NULL ? TRM_OK
                               : app_fail(err, TRM_INVALID,
                                          "--data is needed: a directory (or DATA_PATH), or synth");
}

/* Returns the value of --boundary-tokens. */
static trm_switch choose_boundary_tokens(const app_options *o) {
    const char *given = o->transformer.boundary_tokens;
    return given == NULL ? TRM_DEFAULT : strcmp(given, "on") == 0 ? TRM_ON : TRM_OFF;
}

/* Contract in app.h. Three cases: a role of a job has its own shard (app->shards), a rank that
 * splits the graph reads whole batches of unsharded data, every other rank reads its shard. */
trm_status app_dataset(const app_context *app, trm_usage usage, bool training, trm_dataset **out,
                       trm_error *err) {
    const app_options *o = &app->o;
    trm_status status = app_check_data(app, err);
    if (status != TRM_OK) {
        return status;
    }
    /* Settle which samples: whole batches of all, or the share of a rank. */
    app_context *shared = (app_context *)(uintptr_t)app; /* the questions may make the context */
    bool whole = training && app_splits(shared) && !app_reads_own(shared);
    int32_t ranks = training ? app_feeding_ranks(shared) : app_rank_count(app);
    /* The flags say which data, then what the kind of model makes of them. */
    const trm_text_options text = {.tokenizer = o->tokenizer,
                                   .tokens = o->tokens,
                                   .text_field = o->text_field,
                                   .context = o->context_tokens,
                                   .stride = o->stride,
                                   .vocabulary = o->transformer.vocabulary,
                                   .documents = o->transformer.documents,
                                   .boundary_tokens = choose_boundary_tokens(o),
                                   .masking = o->transformer.masking,
                                   .mask_token = o->transformer.mask_token};
    const trm_shapes_options shapes = {.train_count = o->synth_train, .test_count = o->synth_test};
    trm_dataset_spec spec = {.kind = o->dataset,
                             .path = o->data,
                             .usage = usage,
                             .batch_size = whole ? app_read_batch(shared) : o->batch_size,
                             .image_size = o->image_size,
                             .seed = (uint64_t)o->seed,
                             /* The model of an elastic job deals out the data, each time ranks
                              * change. */
                             .shard_count = app_elastic(app) != NULL ? 0
                                            : app->shards > 0        ? app->shards
                                            : whole                  ? 1
                                                                     : ranks,
                             .shard_index = app_elastic(app) != NULL ? 0
                                            : app->shards > 0        ? app->shard
                                            : whole                  ? 0
                                                                     : app_rank(app) % ranks,
                             .prefetch_depth = 2 + 2 * o->workers,
                             .threads = o->workers,
                             .augment = training ? TRM_DEFAULT : TRM_OFF,
                             .fixed_recipe = o->fixed_recipe,
                             .text = &text,
                             .shapes = &shapes};
    /* as the weights of a vit were trained */
    memcpy(spec.image_mean, o->transformer.image_mean, sizeof spec.image_mean);
    memcpy(spec.image_std, o->transformer.image_std, sizeof spec.image_std);
    const app_model *model = app->model;
    const app_model_kind *kind = model != NULL ? model->kind : &app_image_kind;
    if (kind->synth != NULL && strcmp(o->data, "synth") == 0) {
        spec.kind = kind->synth;
    } else if (kind->tfrecord != NULL && strcmp(o->dataset, "tfrecord") == 0) {
        spec.kind = kind->tfrecord;
    }
    status = app_click_data(app, &spec, err);
    return status == TRM_OK ? trm_dataset_open(&spec, out, err) : status;
}

/* Contract in app.h. The data is not sharded: it is random on every rank. */
trm_status app_dataset_random(const app_context *app, trm_dataset **out, trm_error *err) {
    enum { BATCHES = 64 };
    int64_t batch = app_read_batch((app_context *)(uintptr_t)app);
    const app_model *model = app->model;
    trm_dataset *data;
    trm_status status =
        (model != NULL ? model->kind : &app_image_kind)->random(app, batch * BATCHES, &data, err);
    if (status != TRM_OK) {
        return status;
    }
    status = trm_dataset_shard(data, 1, 0, TRM_SHARD_WRAP, err);
    status = status == TRM_OK ? trm_dataset_batch(data, batch, true, err) : status;
    if (status == TRM_OK) {
        status = trm_dataset_check(data, err);
    }
    if (status != TRM_OK) {
        trm_dataset_destroy(data);
        return status;
    }
    *out = data;
    return TRM_OK;
}

trm_status app_dataset_or_random(const app_context *app, trm_dataset **out, trm_error *err) {
    return app->o.data != NULL
               ? app_dataset(app, app_usage(&app->o, TRM_USAGE_TRAIN), true, out, err)
               : app_dataset_random(app, out, err);
}
