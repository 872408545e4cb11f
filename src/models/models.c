/* SPDX-License-Identifier: Apache-2.0 */
/* Small networks (MLP, LeNet) and the registry of image networks by name. Parameter names follow
 * PyTorch's ("fc1.weight").
 *
 * The registry is the library's only list of these names: trm_network_build finds the builder in
 * it, and its error message prints it. A builder adds to the graph and reports no error itself; the
 * graph keeps the first one. */
#include "trireme/nn.h"

#include "graph/graph_ir.h"

#include "graph/arguments.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Returns x as [N, features]. */
static trm_node flatten_features(trm_graph *g, trm_node x) {
    trm_shape shape = trm_node_shape(g, x);
    return shape.rank == 2 ? x : trm_reshape(g, x, trm_shape_of(shape.dim[0], -1));
}

/* Adds a linear layer with parameters name.weight and name.bias. */
static trm_node add_linear(trm_graph *g, const char *name, trm_node x, int64_t out) {
    int64_t in = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    trm_node y =
        trm_linear(g, x, trm_parameter(g, "weight", trm_shape_of(out, in), TRM_INIT_LINEAR),
                   trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_LINEAR));
    trm_graph_pop_scope(g);
    return y;
}

/* Contract in trireme/nn.h. Layers are fc0, fc1, ...; the last one has no ReLU. */
trm_node trm_mlp(trm_graph *g, trm_node x, const int64_t *hidden, int32_t count, int64_t classes) {
    if (count > 0) {
        TRMI_NEED_IN(g, TRM_NO_NODE, hidden);
    }
    char name[16];
    x = flatten_features(g, x);
    for (int32_t i = 0; i <= count; i++) {
        snprintf(name, sizeof name, "fc%d", (int)i);
        x = i < count ? trm_relu(g, add_linear(g, name, x, hidden[i]))
                      : add_linear(g, name, x, classes);
    }
    return x;
}

/* Adds a 5x5 convolution with bias. */
static trm_node conv_5x5(trm_graph *g, const char *name, trm_node x, int64_t out, int64_t pad) {
    int64_t in = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    trm_node y = trm_conv2d(
        g, x, trm_parameter(g, "weight", trm_shape_of(out, in, 5, 5), TRM_INIT_HE_UNIFORM),
        trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_ZERO),
        &(trm_conv_options){.pad = {pad, pad, pad, pad}});
    trm_graph_pop_scope(g);
    return y;
}

/* Contract in trireme/nn.h. LeNet-5 with ReLU and maximum pooling, as it is taught today. */
trm_node trm_lenet(trm_graph *g, trm_node image, int64_t classes) {
    const trm_pool_options pool = {.kernel = {2, 2}};
    /* 28x28 images are padded to the 32x32 of the paper; larger images need no padding */
    int64_t pad = trm_node_shape(g, image).dim[2] < 32 ? 2 : 0;
    trm_node x = trm_max_pool(g, trm_relu(g, conv_5x5(g, "conv1", image, 6, pad)), &pool);
    x = trm_max_pool(g, trm_relu(g, conv_5x5(g, "conv2", x, 16, 0)), &pool);
    x = flatten_features(g, x);
    x = trm_relu(g, add_linear(g, "fc1", x, 120));
    x = trm_relu(g, add_linear(g, "fc2", x, 84));
    return add_linear(g, "fc3", x, classes);
}

/* ---- by name ---- */

/* Builders of the registry: each passes on the options that its network has. `depth` is part of the
 * name ("resnet50"). */
static trm_node build_resnet(trm_graph *g, trm_node image, const trm_network_options *o,
                             int32_t depth) {
    return trm_resnet(g, image,
                      &(trm_resnet_options){.depth = depth,
                                            .classes = o->classes,
                                            .stem = o->stem,
                                            .zero_init_residual = o->zero_init_residual});
}

static trm_node build_mlp(trm_graph *g, trm_node image, const trm_network_options *o,
                          int32_t depth) {
    (void)depth;
    return trm_mlp(g, image, (const int64_t[]){512, 256}, 2, o->classes);
}

static trm_node build_lenet(trm_graph *g, trm_node image, const trm_network_options *o,
                            int32_t depth) {
    (void)depth;
    return trm_lenet(g, image, o->classes);
}

static trm_node build_vit(trm_graph *g, trm_node image, const trm_network_options *o,
                          int32_t depth) {
    (void)depth;
    return trm_vit(g, image, o->classes, &o->vit);
}

/* The image networks by name. */
static const struct {
    const char *name;
    trm_node (*build)(trm_graph *g, trm_node image, const trm_network_options *options,
                      int32_t depth);
    int32_t depth; /* depth of a resnet */
} registry[] = {{"resnet18", build_resnet, 18},   {"resnet34", build_resnet, 34},
                {"resnet50", build_resnet, 50},   {"resnet101", build_resnet, 101},
                {"resnet152", build_resnet, 152}, {"mlp", build_mlp, 0},
                {"lenet", build_lenet, 0},        {"vit", build_vit, 0}};
enum { NAMES = sizeof registry / sizeof registry[0] };

/* Contract in trireme/nn.h. The error lists all names. */
trm_node trm_network_build(trm_graph *g, const char *name, trm_node image,
                           const trm_network_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, name);
    trm_network_options o = options != NULL ? *options : (trm_network_options){0};
    char known[160] = "";
    o.classes = o.classes == 0 ? 10 : o.classes;
    for (int i = 0; i < NAMES; i++) {
        if (strcmp(name, registry[i].name) == 0) {
            return registry[i].build(g, image, &o, registry[i].depth);
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", registry[i].name);
    }
    trm_error err;
    TRMI_FAIL(&err, TRM_INVALID, "no model '%.40s'; there are %s", name, known);
    trmi_graph_fail(g, &err);
    return TRM_NO_NODE;
}
