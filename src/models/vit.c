/* SPDX-License-Identifier: Apache-2.0 */
/* The vision transformer (Dosovitskiy et al. 2020). Names, shapes and initial values of parameters
 * are those of ViTForImageClassification of Hugging Face's transformers; torchvision's vit_b_16 is
 * the same network.
 *
 *      image --conv of patches--> [N, P, C] --class token, positions--> [N, 1 + P, C]
 *            --blocks: x + attention(norm(x)), x + layers(norm(x))--> norm of the class token --> logits
 *
 * The classifier reads the class token alone. So in the last block only its row is computed after
 * the keys and values: all others would be computed for nothing. */
#include "trireme/nn.h"

#include "models/blocks.h"
#include "models/lora.h"

#include "graph/arguments.h"
#include "graph/graph_ir.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

const char *const trmi_vit_layers[] = {"attention.attention.query",
                                       "attention.attention.key",
                                       "attention.attention.value",
                                       "attention.output.dense",
                                       "intermediate.dense",
                                       "output.dense",
                                       NULL};

/* The published sizes. */
static const struct {
    const char *name;
    trm_vit_options values;
} sizes[] = {{"tiny", {.layers = 12, .width = 192, .heads = 3}},
             {"small", {.layers = 12, .width = 384, .heads = 6}},
             {"base", {.layers = 12, .width = 768, .heads = 12}},
             {"large", {.layers = 24, .width = 1024, .heads = 16}}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Contract in trireme/nn.h. The error lists all sizes. */
trm_status trm_vit_size(const char *size, trm_vit_options *options, trm_error *err) {
    TRMI_NEED(err, size, options);
    char known[80] = "";
    for (int i = 0; i < SIZES; i++) {
        if (strcmp(size, sizes[i].name) == 0) {
            *options = sizes[i].values;
            return TRM_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", sizes[i].name);
    }
    return TRMI_FAIL(err, TRM_INVALID, "no vit of size '%.40s'; there are %s", size, known);
}

void trm_vit_complete(trm_vit_options *o) {
    TRMI_NEED_OR(, NULL, o);
    o->layers = o->layers == 0 ? 12 : o->layers;
    o->width = o->width == 0 ? 768 : o->width;
    o->heads = o->heads == 0 ? 12 : o->heads;
    o->hidden = o->hidden == 0 ? 4 * o->width : o->hidden;
    o->patch = o->patch == 0 ? 16 : o->patch;
    o->epsilon = o->epsilon == 0 ? 1e-12 : o->epsilon;
}

/* Checks that images of this shape can be read with these complete options.
 *   errors  INVALID */
static trm_status check_vit(const trm_vit_options *o, const trm_shape *image, int64_t classes,
                            trm_error *err) {
    char text[96];
    if (image->rank != 4) {
        return TRMI_FAIL(err, TRM_INVALID, "vit: images [N, C, H, W] expected, found %s",
                         trm_shape_format(image, text, sizeof text));
    }
    if (o->layers < 1 || o->width < 1 || o->heads < 1 || o->hidden < 1 || o->patch < 1 ||
        classes < 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "vit: layers, widths, heads, patch and classes of at least 1 expected");
    }
    if (o->width % o->heads != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "vit: a width of %lld with %lld heads: the width must be a multiple of the "
            "heads",
            (long long)o->width, (long long)o->heads);
    }
    if (image->dim[2] % o->patch != 0 || image->dim[3] % o->patch != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "vit: images of %lldx%lld with patches of %lldx%lld: the patch must divide "
            "height and width",
            (long long)image->dim[2], (long long)image->dim[3], (long long)o->patch,
            (long long)o->patch);
    }
    return trmi_lora_check("vit", trmi_vit_layers, &o->lora, err);
}

/* Adds a parameter that begins as N(0, 0.02^2) and has no weight decay. */
static trm_node add_embedding(trm_graph *g, const char *name, trm_shape shape) {
    return trm_exclude_from_decay(
        g, trm_parameter(g, name, shape, trm_init_normal(TRMI_BLOCK_DEVIATION)));
}

/* Adds the patches of the images after the class token, each with its position: [N, 1 + P, C]. */
static trm_node embed_patches(trm_graph *g, trm_node image, const trm_vit_options *o) {
    trm_shape shape = trm_node_shape(g, image);
    int64_t patches = (shape.dim[2] / o->patch) * (shape.dim[3] / o->patch);
    trm_graph_push_scope(g, "vit.embeddings");
    trm_node token = add_embedding(g, "cls_token", trm_shape_of(1, 1, o->width));
    trm_node places =
        add_embedding(g, "position_embeddings", trm_shape_of(1, 1 + patches, o->width));
    trm_graph_push_scope(g, "patch_embeddings.projection");
    trm_node x = trm_conv2d(g, image,
                            trm_parameter(g, "weight",
                                          trm_shape_of(o->width, shape.dim[1], o->patch, o->patch),
                                          trm_init_normal(TRMI_BLOCK_DEVIATION)),
                            trm_parameter(g, "bias", trm_shape_of(o->width), TRM_INIT_ZERO),
                            &(trm_conv_options){.stride = {o->patch, o->patch}});
    trm_graph_pop_scope(g);
    trm_graph_pop_scope(g);
    x = trm_reshape(g, x, trm_shape_of(shape.dim[0], o->width, patches));
    x = trm_transpose(g, x, (const int32_t[]){0, 2, 1});
    /* a row of zeros before the patches, and below the token */
    x = trm_pad(g, x, (const int64_t[]){0, 1, 0}, (const int64_t[]){0, 0, 0}, 0);
    token = trm_pad(g, token, (const int64_t[]){0, 0, 0}, (const int64_t[]){0, patches, 0}, 0);
    return trmi_block_dropout(g, trm_add(g, x, trm_add(g, places, token)), o->dropout);
}

/* Adds the row of the class token: [N, 1 + P, C] -> [N, 1, C]. */
static trm_node first_row(trm_graph *g, trm_node x) {
    trm_shape shape = trm_node_shape(g, x);
    return trm_slice(g, x, (const int64_t[]){0, 0, 0},
                     (const int64_t[]){shape.dim[0], 1, shape.dim[2]});
}

/* Adds a block; the last one computes the row of the class token only. */
static trm_node add_block(trm_graph *g, trm_node x, const trm_vit_options *o, bool last) {
    trm_node keys = trmi_block_norm(g, "layernorm_before", x, o->epsilon), queries = keys;
    if (last) {
        queries = first_row(g, keys);
        x = first_row(g, x);
    }
    const trmi_block_options options = {o->heads, o->hidden, &o->lora};
    trm_node y = trmi_block_attention(g, "attention", queries, keys, TRM_NO_NODE, &options);
    x = trm_add(g, x, trmi_block_dropout(g, y, o->dropout));
    y = trmi_block_layers(g, trmi_block_norm(g, "layernorm_after", x, o->epsilon), &options);
    return trm_add(g, x, trmi_block_dropout(g, y, o->dropout));
}

/* Contract in trireme/nn.h. Each block is a segment, so that it can be recomputed or begin a
 * stage. */
trm_node trm_vit(trm_graph *g, trm_node image, int64_t classes, const trm_vit_options *options) {
    trm_vit_options o = options != NULL ? *options : (trm_vit_options){0};
    trm_shape shape = trm_node_shape(g, image);
    trm_error err;
    if (trm_graph_check(g, NULL) != TRM_OK) {
        return TRM_NO_NODE;
    }
    trm_vit_complete(&o);
    if (check_vit(&o, &shape, classes, &err) != TRM_OK) {
        trmi_graph_fail(g, &err);
        return TRM_NO_NODE;
    }
    int64_t first = g->ops_count;
    trm_node x = embed_patches(g, image, &o);
    for (int64_t i = 0; i < o.layers; i++) {
        trm_graph_push_scope(g, "vit.encoder.layer.%lld", (long long)i);
        trm_graph_mark_segment(g);
        x = add_block(g, x, &o, i + 1 == o.layers);
        trm_graph_pop_scope(g);
    }
    x = trmi_block_norm(g, "vit.layernorm", x, o.epsilon);
    x = trm_reshape(g, x, trm_shape_of(shape.dim[0], o.width));
    x = trmi_block_linear(g, "classifier", x, classes, NULL);
    trmi_lora_freeze_others(g, first, &o.lora);
    return x;
}
