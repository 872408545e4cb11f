/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a network in a checkpoint: eval and export take the options from it instead
 * of from flags. */
#include "app/models/models.h"

#include <stdio.h>
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
