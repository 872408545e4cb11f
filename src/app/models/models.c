/* SPDX-License-Identifier: Apache-2.0 */
/* The table of models (contracts in models.h). */
#include "app/models/models.h"

#include <stdio.h>
#include <string.h>

const app_model_kind *const app_model_kinds[] = {&app_image_kind, &app_click_kind,
                                                 &app_language_kind, &app_vit_kind, NULL};

/* Optimisers and rates of click models are those of the framework's own examples; their batch is
 * that of the field's benchmarks. */
static const app_model models[] = {
    {"resnet18", &app_image_kind, .is_resnet = true},
    {"resnet34", &app_image_kind, .is_resnet = true},
    {"resnet50", &app_image_kind, .is_resnet = true},
    {"resnet101", &app_image_kind, .is_resnet = true},
    {"resnet152", &app_image_kind, .is_resnet = true},
    {"mlp", &app_image_kind, .is_resnet = false},
    {"lenet", &app_image_kind, .is_resnet = false},
    {"vit", &app_vit_kind, false, false, "adamw", 5e-4, 0},
    {"widedeep", &app_click_kind, false, true, "adagrad", 0.05, 4096},
    {"deepfm", &app_click_kind, false, false, "adam", 0.001, 4096},
    {"dcnv2", &app_click_kind, false, false, "adam", 0.001, 4096},
    {"dlrm", &app_click_kind, false, false, "adagrad", 0.02, 4096},
    {"gpt2", &app_language_kind, false, true, "adamw", 6e-4, 12},
    {"llama", &app_language_kind, false, true, "adamw", 6e-4, 12},
    {"moe", &app_language_kind, false, true, "adamw", 6e-4, 12},
    {"bert", &app_language_kind, false, true, "adamw", 6e-4, 12},
};
enum { MODELS = sizeof models / sizeof models[0] };

const app_model *app_model_at(int32_t index) {
    return index >= 0 && index < MODELS ? &models[index] : NULL;
}

const app_model *app_model_of(const char *name) {
    for (int32_t i = 0; i < MODELS; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

/* Contract in app.h. */
trm_status app_check_model_name(const char *name, trm_error *err) {
    const char *words[MODELS];
    char list[160] = "";
    if (app_model_of(name) != NULL) {
        return TRM_OK;
    }
    for (int i = 0; i < MODELS; i++) {
        size_t at = strlen(list);
        words[i] = models[i].name;
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", words[i]);
    }
    const char *nearest = trm_nearest_word(name, words, MODELS);
    return nearest != NULL
               ? app_fail(err, TRM_INVALID, "no model '%.40s'; the nearest is %s", name, nearest)
               : app_fail(err, TRM_INVALID, "no model '%.40s'; there are: %s", name, list);
}

/* ---- what rates and reports say of the model ------------------------------------------------- */

/* Returns the kind of the command's MODEL; commands without one report as those of images do. */
static const app_model_kind *own_kind(const app_context *app) {
    return app->model != NULL ? app->model->kind : &app_image_kind;
}

const char *app_unit(const app_context *app) { return own_kind(app)->unit; }
const char *app_rate_key(const app_context *app) { return own_kind(app)->rate_key; }
double app_units_a_sample(const app_context *app) {
    const app_model_kind *kind = own_kind(app);
    return kind->counts_inputs ? (double)kind->input_size(&app->o) : 1;
}

void app_put_input(const app_context *app) {
    const app_model_kind *kind = own_kind(app);
    if (kind->input_key != NULL) {
        app_put(app_int(kind->input_key, kind->input_size(&app->o), kind->input_text));
    }
}
