/* SPDX-License-Identifier: Apache-2.0 */
/* The table of models, and the kind "images" (contracts in models.h). */
#include "app/models.h"

#include "trireme/nn.h"

#include <stdio.h>
#include <string.h>

const app_model_kind *const app_model_kinds[] = {&app_image_kind, &app_click_kind,
                                                 &app_language_kind, NULL};

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
    {"widedeep", &app_click_kind, false, true, "adagrad", 0.05, 4096},
    {"deepfm", &app_click_kind, false, false, "adam", 0.001, 4096},
    {"dcnv2", &app_click_kind, false, false, "adam", 0.001, 4096},
    {"dlrm", &app_click_kind, false, false, "adagrad", 0.02, 4096},
    {"gpt2", &app_language_kind, false, true, "adamw", 6e-4, 12},
    {"llama", &app_language_kind, false, true, "adamw", 6e-4, 12},
    {"moe", &app_language_kind, false, true, "adamw", 6e-4, 12},
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
    const char *nearest = app_nearest(name, words, MODELS);
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

void app_print_input(const app_context *app, char *text, size_t size) {
    const app_model_kind *kind = own_kind(app);
    text[0] = '\0';
    if (kind->input_key != NULL) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)kind->input_size(&app->o));
        snprintf(text, size, ", %s%s%s", number, kind->input_form, kind->is_square ? number : "");
    }
}

void app_json_input(const app_context *app) {
    const app_model_kind *kind = own_kind(app);
    if (kind->input_key != NULL) {
        app_json_int(kind->input_key, kind->input_size(&app->o));
    }
}

/* ---- images ---------------------------------------------------------------------------------- */

static int64_t image_size_of(const app_options *o) { return o->image_size; }

/* Builds the graph of an image model. A trm_network. */
static trm_node build_image_model(trm_graph *graph, const trm_inputs *inputs, void *context) {
    const app_network *n = context;
    const trm_network_options options = {.classes = n->classes,
                                         .stem = strcmp(n->stem, "cifar") == 0 ? TRM_STEM_CIFAR
                                                                               : TRM_STEM_IMAGENET};
    return trm_network_build(graph, n->model->name, trm_inputs_get(inputs, "image"), &options);
}

/* Sets the number of classes: --classes, else the data's, else 10.
 *   error  INVALID if the data has more */
static trm_status settle_classes(const app_context *app, trm_dataset *data, app_network *network,
                                 trm_error *err) {
    int64_t present = trm_dataset_class_count(data), given = app->o.classes;
    network->classes = given > 0 ? given : present > 0 ? present : 10;
    if (network->classes < present) {
        return app_fail(err, TRM_INVALID, "the data has %lld classes, the network %lld (--classes)",
                        (long long)present, (long long)network->classes);
    }
    return TRM_OK;
}

/* Creates random images. */
static trm_status make_random_images(const app_context *app, int64_t samples, trm_dataset **out,
                                     trm_error *err) {
    const app_options *o = &app->o;
    const trm_random_options options = {.count = samples,
                                        .channels = 3,
                                        .height = o->image_size,
                                        .width = o->image_size,
                                        .classes = o->classes > 0 ? o->classes : 10};
    return trm_dataset_random(&options, out, err);
}

/* Adds the sizes to the JSON event "start". */
static void print_image_start(const app_context *app, const app_network *network) {
    app_json_int("image_size", app->o.image_size);
    app_json_int("classes", network->classes);
}

const app_model_kind app_image_kind = {.title = "images",
                                       .unit = "images",
                                       .rate_key = "images_per_second",
                                       .input_key = "image_size",
                                       .input_form = "x",
                                       .is_square = true,
                                       .computes_logits = true,
                                       .is_for = "models of images",
                                       .build = build_image_model,
                                       .input_size = image_size_of,
                                       .random = make_random_images,
                                       .network_of = settle_classes,
                                       .json_start = print_image_start};
