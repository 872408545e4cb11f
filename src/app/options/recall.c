/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a network in a checkpoint: eval and export take the options from it instead
 * of from flags, and a training that begins with the weights (--init) is compared with it. */
#include "app/models/models.h"

#include "trireme/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes a positive number from the description unless the flag is given. */
static void recall_int(const app_context *app, const json_t *root, const char *key,
                       const char *flag, int64_t *into) {
    const json_t *value = json_object_get(root, key);
    if (json_is_integer(value) && json_integer_value(value) > 0 && !app_given(&app->parsed, flag)) {
        *into = json_integer_value(value);
    }
}

/* Contract in app.h. */
trm_status app_recall_folder(app_context *app, const char *folder, bool *found, trm_error *err) {
    const app_model *model = app->model;
    *found = model != NULL && model->kind->recall_folder != NULL && app_is_huggingface(folder);
    return *found ? model->kind->recall_folder(app, model->name, folder, err) : TRM_OK;
}

/* Contract in app.h. Weights alone (.safetensors) have no description. */
trm_status app_recall(app_context *app, const char *name, trm_error *err) {
    static char found[4096];
    trm_checkpoint *checkpoint;
    const char *path = app->o.checkpoint;
    if (app_ends_in(path, ".safetensors")) {
        return TRM_OK;
    }
    bool is_folder;
    trm_status status = app_recall_folder(app, path, &is_folder, err);
    if (status != TRM_OK || is_folder) {
        return status;
    }
    status = trm_checkpoint_open(path, NULL, &checkpoint, err);
    if (status == TRM_END) {
        return app_fail(
            err, TRM_IO,
            "%.140s: no checkpoint there; the --output of a training, a checkpoint in it or a "
            ".safetensors file expected",
            path);
    }
    if (status != TRM_OK) {
        return status;
    }
    /* what the checkpoint says, unless a flag says it */
    json_t *root = json_loads(trm_checkpoint_get_info(checkpoint)->config_json, 0, NULL);
    const char *model = json_string_value(json_object_get(root, "model"));
    const char *stem = json_string_value(json_object_get(root, "stem"));
    app_options *o = &app->o;
    if (model != NULL && strcmp(model, name) != 0) {
        status = app_fail(err, TRM_INVALID, "%.100s is of %.40s, not of %.40s", path, model, name);
    }
    if (stem != NULL && !app_given(&app->parsed, "stem")) {
        o->stem = strcmp(stem, "cifar") == 0 ? "cifar" : "imagenet";
    }
    recall_int(app, root, "classes", "classes", &o->classes);
    recall_int(app, root, "image_size", "image-size", &o->image_size);
    /* the checkpoint that was found becomes --checkpoint */
    if (status == TRM_OK && strlen(trm_checkpoint_get_info(checkpoint)->path) < sizeof found) {
        snprintf(found, sizeof found, "%s", trm_checkpoint_get_info(checkpoint)->path);
        o->checkpoint = found;
    }
    /* then what only this kind of model has */
    for (int k = 0; status == TRM_OK && app_model_kinds[k] != NULL; k++) {
        const char *key = app_model_kinds[k]->key;
        const json_t *object = key != NULL ? json_object_get(root, key) : NULL;
        status = json_is_object(object) ? app_model_kinds[k]->recall(app, object, err) : TRM_OK;
    }
    json_decref(root);
    trm_checkpoint_close(checkpoint);
    return status;
}

/* Returns whether two tokenizers have the same tokens. */
static bool have_same_tokens(const trm_tokenizer *a, const trm_tokenizer *b) {
    int64_t count = trm_tokenizer_vocabulary(a);
    bool same = count == trm_tokenizer_vocabulary(b);
    for (int32_t id = 0; same && id < count; id++) {
        char *there = NULL, *here = NULL;
        size_t x = 0, y = 0;
        bool known = trm_tokenizer_decode(a, &id, 1, &there, &x, NULL) == TRM_OK;
        same = known == (trm_tokenizer_decode(b, &id, 1, &here, &y, NULL) == TRM_OK) &&
               (!known || (x == y && memcmp(there, here, x) == 0));
        trm_free(there);
        trm_free(here);
    }
    return same;
}

/* Warns if the data's tokenizer has other tokens than the one in a folder, if both are there. */
static void compare_tokenizers(const char *init, const char *folder, const trm_dataset *data) {
    const trm_tokenizer *ours = trm_dataset_tokenizer(data);
    trm_tokenizer *theirs;
    if (ours == NULL || trm_tokenizer_open(folder, &theirs, NULL) != TRM_OK) {
        return;
    }
    if (!have_same_tokens(theirs, ours)) {
        app_warn(
            "--init %.100s: its tokenizer has other tokens than that of the data: the ids of its "
            "embedding mean other texts (--tokenizer %.200s)",
            init, folder);
    }
    trm_tokenizer_destroy(theirs);
}

/* Warns of settings that differ from those of a checkpoint, and that no shape of a weight shows. */
static void compare_settings(const char *init, const char *kind, const trm_checkpoint *checkpoint,
                             const app_network *network) {
    static const char *const keys[] = {"heads",       "epsilon",    "rotary_theta",
                                       "top_experts", "image_mean", "image_std"};
    json_t *theirs = json_loads(trm_checkpoint_get_info(checkpoint)->config_json, 0, NULL),
           *ours = json_loads(network->description, 0, NULL);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *a = json_object_get(json_object_get(theirs, kind), keys[i]),
                     *b = json_object_get(json_object_get(ours, kind), keys[i]);
        char *there = json_dumps(a, JSON_ENCODE_ANY), *here = json_dumps(b, JSON_ENCODE_ANY);
        if (there != NULL && here != NULL && !json_equal(a, b)) {
            app_warn(
                "--init %.100s: %s is %.60s there and %.60s here: the weights compute something "
                "else in this network",
                init, keys[i], there, here);
        }
        free(there);
        free(here);
    }
    json_decref(theirs);
    json_decref(ours);
}

/* Contract in app.h. */
void app_compare_start(const app_context *app, const app_network *network,
                       const trm_dataset *data) {
    const char *kind = network->model->kind->key, *init = app->o.init;
    trm_checkpoint *checkpoint;
    trm_error missing; /* loading the weights reports it */
    if (kind == NULL || init == NULL || app_rank(app) != 0 || app_ends_in(init, ".safetensors")) {
        return;
    }
    if (app_is_huggingface(init)) {
        compare_tokenizers(init, init, data);
    } else if (trm_checkpoint_open(init, NULL, &checkpoint, &missing) == TRM_OK) {
        char folder[4096];
        const char *path = trm_checkpoint_get_info(checkpoint)->path;
        if (snprintf(folder, sizeof folder, "%s/../tokenizer", path) < (int)sizeof folder) {
            compare_tokenizers(init, folder, data);
        }
        compare_settings(init, kind, checkpoint, network);
        trm_checkpoint_close(checkpoint);
    }
}
