/* SPDX-License-Identifier: Apache-2.0 */
/* Models of images on the command line: the kinds "images" and "patches of images", and the part of
 * checkpoints that describes a vit (contracts in models.h).
 *
 * Where a number comes from, first to last: a flag, the checkpoint or the Hugging Face folder, the
 * data (classes, size of an image), the default. Each key that describe_vit writes is read back by
 * recall_vit, so that eval needs no flags. */
#include "app/models/models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- both kinds ------------------------------------------------------------------------------ */

/* Returns the side of images that --image-size gives; 0: not given. */
static int64_t image_size_of(const app_options *o) { return o->image_size; }

/* Builds the graph of an image model. A trm_network. */
static trm_node build_image_model(trm_graph *graph, const trm_inputs *inputs, void *context) {
    const app_network *n = context;
    const trm_network_options options = {.classes = n->classes,
                                         .stem = strcmp(n->stem, "cifar") == 0 ? TRM_STEM_CIFAR
                                                                               : TRM_STEM_IMAGENET,
                                         .vit = n->vit};
    return trm_network_build(graph, n->model->name, trm_inputs_get(inputs, "image"), &options);
}

/* Sets the number of classes: --classes, else the data's, else 10.
 *   errors  INVALID if the data has more */
static trm_status settle_classes(const app_context *app, trm_dataset *data, app_network *network,
                                 trm_error *err) {
    int64_t present = trm_dataset_class_count(data), given = app->o.classes;
    network->classes = given > 0 ? given : present > 0 ? present : 10;
    if (network->classes < present) {
        return app_fail(
            err, TRM_INVALID,
            "the data has %lld classes, the network %lld: --classes %lld or more expected",
            (long long)present, (long long)network->classes, (long long)present);
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

/* Adds the sizes to the event "start". */
static void put_image_sizes(const app_context *app, const app_network *network) {
    app_put(app_int("image_size", app->o.image_size, NULL),
            app_int("classes", network->classes, NULL));
}

#define IMAGE_KIND                                                                                 \
    .unit = "images", .rate_key = "images_per_second", .input_key = "image_size",                  \
    .input_text = ", %dx%d", .reads_images = true, .computes_logits = true,                        \
    .build = build_image_model, .input_size = image_size_of, .random = make_random_images,         \
    .put_sizes = put_image_sizes

const app_model_kind app_image_kind = {
    .title = "images", .is_for = "models of images", .network_of = settle_classes, IMAGE_KIND};

/* ---- vit ------------------------------------------------------------------------------------- */

/* Sets the options of a vit that were not given. */
static void settle_vit(app_context *app, const app_model *model) {
    app_options *o = &app->o;
    if (!app_given(&app->parsed, "optimizer")) {
        o->optimizer = model->optimizer;
    }
    if (!app_given(&app->parsed, "learning-rate") && strncmp(o->optimizer, "adam", 4) == 0) {
        o->learning_rate = model->learning_rate;
    }
}

/* Reads three numbers. Leaves them as they are if there are none. */
static void read_three(const json_t *list, double out[3]) {
    for (size_t i = 0; json_array_size(list) == 3 && i < 3; i++) {
        out[i] = json_number_value(json_array_get(list, i));
    }
}

/* Takes mean and deviation of the dataset's normalisation, else those of the checkpoint. */
static void settle_normalization(const app_context *app, trm_dataset *data, app_network *network) {
    char *text = trm_dataset_json(data);
    json_t *root = text != NULL ? json_loads(text, 0, NULL) : NULL, *step;
    size_t i;
    memcpy(network->image_mean, app->o.transformer.image_mean, sizeof network->image_mean);
    memcpy(network->image_std, app->o.transformer.image_std, sizeof network->image_std);
    json_array_foreach(json_object_get(root, "transforms"), i, step) {
        read_three(json_object_get(step, "mean"), network->image_mean);
        read_three(json_object_get(step, "std"), network->image_std);
    }
    json_decref(root);
    trm_free(text);
}

/* Determines the sizes of the network from flags, checkpoint and data.
 *   errors  INVALID */
static trm_status settle_vit_network(const app_context *app, trm_dataset *data,
                                     app_network *network, trm_error *err) {
    enum { SMALL = 64, SMALL_PATCH = 4 };
    const app_transformer_flags *f = &app->o.transformer;
    trm_vit_options *v = &network->vit;
    trm_status status = settle_classes(app, data, network, err);
    if (status == TRM_OK && f->size != NULL) {
        status = trm_vit_size(f->size, v, err);
    }
    v->layers = f->layers > 0 ? f->layers : v->layers;
    v->width = f->width > 0 ? f->width : v->width;
    v->heads = f->heads > 0 ? f->heads : v->heads;
    v->hidden = f->hidden > 0 ? f->hidden : v->hidden;
    v->patch = f->patch > 0 ? f->patch : app->o.image_size < SMALL ? SMALL_PATCH : 0;
    v->dropout = f->dropout;
    v->epsilon = f->epsilon;
    settle_normalization(app, data, network);
    trm_vit_complete(v);
    network->lora = f->lora;
    return status == TRM_OK ? app_read_lora(f->lora, &v->lora, err) : status;
}

/* Puts an array of three numbers, one for each channel of an image. */
static void put_channels(const char *key, const double values[3]) {
    app_open_array(key);
    app_put(app_exact("", values[0]), app_exact("", values[1]), app_exact("", values[2]));
    app_close();
}

/* Puts the members of the object "vit". Every key is read back by recall_vit, unless its flag is
 * given. */
static void describe_vit(const app_network *network) {
    const trm_vit_options *v = &network->vit;
    app_put(app_int("layers", v->layers, NULL), app_int("width", v->width, NULL),
            app_int("heads", v->heads, NULL), app_int("hidden", v->hidden, NULL),
            app_int("patch", v->patch, NULL), app_exact("epsilon", v->epsilon));
    put_channels("image_mean", network->image_mean);
    put_channels("image_std", network->image_std);
    app_put(app_text("lora", network->lora != NULL ? network->lora : "", NULL));
}

/* Takes the options of a network that a file describes, unless flags give them. */
static void take_vit(app_context *app, const trm_vit_options *v) {
    const app_parsed *p = &app->parsed;
    app_transformer_flags *f = &app->o.transformer;
    f->layers = app_given(p, "layers") ? f->layers : v->layers;
    f->width = app_given(p, "width") ? f->width : v->width;
    f->heads = app_given(p, "heads") ? f->heads : v->heads;
    f->hidden = app_given(p, "hidden") ? f->hidden : v->hidden;
    f->patch = app_given(p, "patch") ? f->patch : v->patch;
    f->epsilon = v->epsilon;
}

/* Takes the options of the network from the description of a checkpoint. */
static trm_status recall_vit(app_context *app, const json_t *vit, trm_error *err) {
    (void)err;
    const trm_vit_options v = {.layers = json_integer_value(json_object_get(vit, "layers")),
                               .width = json_integer_value(json_object_get(vit, "width")),
                               .heads = json_integer_value(json_object_get(vit, "heads")),
                               .hidden = json_integer_value(json_object_get(vit, "hidden")),
                               .patch = json_integer_value(json_object_get(vit, "patch")),
                               .epsilon = json_number_value(json_object_get(vit, "epsilon"))};
    take_vit(app, &v);
    app_recall_lora(&app->o.transformer, json_string_value(json_object_get(vit, "lora")));
    read_three(json_object_get(vit, "image_mean"), app->o.transformer.image_mean);
    read_three(json_object_get(vit, "image_std"), app->o.transformer.image_std);
    return TRM_OK;
}

/* Takes the normalisation that the weights were trained with from preprocessor_config.json, if it
 * is there. Pixels are read as numbers from 0 to 1 before it.
 *   errors  UNSUPPORTED: another range of pixels */
static trm_status take_processor(app_context *app, const char *folder, trm_error *err) {
    app_transformer_flags *f = &app->o.transformer;
    char path[4096];
    snprintf(path, sizeof path, "%s/preprocessor_config.json", folder);
    json_t *processor = json_load_file(path, 0, NULL);
    const json_t *rescale = json_object_get(processor, "do_rescale"),
                 *factor = json_object_get(processor, "rescale_factor");
    double scale = json_is_number(factor) ? json_number_value(factor) : 1.0 / 255;
    trm_status status = TRM_OK;
    if (json_is_false(rescale) || fabs(255 * scale - 1) > 1e-6) {
        status = app_fail(err, TRM_UNSUPPORTED,
                          "%.200s: pixels are read as numbers from 0 to 1 (do_rescale, "
                          "rescale_factor 1 / 255); another factor cannot be read here",
                          path);
    }
    if (json_is_false(json_object_get(processor, "do_normalize"))) {
        for (int i = 0; i < 3; i++) {
            f->image_mean[i] = 0;
            f->image_std[i] = 1;
        }
    } else {
        read_three(json_object_get(processor, "image_mean"), f->image_mean);
        read_three(json_object_get(processor, "image_std"), f->image_std);
    }
    json_decref(processor);
    return status;
}

/* Takes the options of the network, the classes and the size of images from a Hugging Face folder.
 *   errors  those of trm_huggingface_read_image */
static trm_status recall_vit_folder(app_context *app, const char *name, const char *folder,
                                    trm_error *err) {
    trm_network_options network;
    const char *model;
    int64_t image_size;
    trm_status status = trm_huggingface_read_image(folder, &model, &network, &image_size, err);
    if (status != TRM_OK) {
        return status;
    }
    if (strcmp(model, name) != 0) {
        return app_fail(err, TRM_INVALID, "%.100s is of %.40s, not of %.40s", folder, model, name);
    }
    app_options *o = &app->o;
    take_vit(app, &network.vit);
    status = take_processor(app, folder, err);
    o->classes = app_given(&app->parsed, "classes") ? o->classes : network.classes;
    o->image_size = app_given(&app->parsed, "image-size") ? o->image_size : image_size;
    return status;
}

/* Contract in app.h. A checkpoint that cannot be read is reported where it is resumed. */
void app_recall_normalization(app_context *app) {
    app_options *o = &app->o;
    trm_checkpoint *checkpoint;
    trm_error later;
    if (!o->resume || o->output == NULL || app->model == NULL ||
        app->model->kind != &app_vit_kind ||
        trm_checkpoint_open(o->output, NULL, &checkpoint, &later) != TRM_OK) {
        return;
    }
    json_t *root = json_loads(trm_checkpoint_get_info(checkpoint)->config_json, 0, NULL);
    const json_t *vit = json_object_get(root, "vit");
    read_three(json_object_get(vit, "image_mean"), o->transformer.image_mean);
    read_three(json_object_get(vit, "image_std"), o->transformer.image_std);
    json_decref(root);
    trm_checkpoint_close(checkpoint);
}

/* Sets the options that a Hugging Face folder of this model needs beside the weights. */
static void set_vit_folder(const app_network *network, trm_huggingface_options *out) {
    out->vit = &network->vit;
    memcpy(out->image_mean, network->image_mean, sizeof out->image_mean);
    memcpy(out->image_std, network->image_std, sizeof out->image_std);
}

const app_model_kind app_vit_kind = {.title = "patches of images",
                                     .has_blocks = true,
                                     .key = "vit",
                                     .is_for = "vit",
                                     .settle = settle_vit,
                                     .network_of = settle_vit_network,
                                     .describe = describe_vit,
                                     .recall = recall_vit,
                                     .recall_folder = recall_vit_folder,
                                     .export_folder = set_vit_folder,
                                     IMAGE_KIND};
