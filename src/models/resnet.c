/* SPDX-License-Identifier: Apache-2.0 */
/* Residual networks (He et al., 2015, arXiv:1512.03385) of depth 18 to 152: image [N, C, H, W] -->
 * logits [N, classes].
 *
 * Parameter names are those of torchvision, so that its checkpoints can be loaded. The stride of a
 * bottleneck is in its 3x3 convolution (ResNet v1.5), as in torchvision. Two stems: that of
 * ImageNet (7x7, stride 2, pooling) and that of small images (3x3). An unknown depth is an error
 * of the graph. */
#include "trireme/nn.h"

#include "graph/graph_ir.h"

#include "graph/arguments.h"
#include "base/error.h"

/* Returns the channels of x. */
static int64_t channels_of(const trm_graph *g, trm_node x) { return trm_node_shape(g, x).dim[1]; }

/* Adds a convolution without bias, padded to keep the extent at stride 1. */
static trm_node add_conv(trm_graph *g, const char *name, trm_node x, int64_t out, int64_t kernel,
                         int64_t stride) {
    int64_t pad = kernel / 2;
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(out, channels_of(g, x), kernel, kernel),
                               TRM_INIT_HE_NORMAL_FAN_OUT);
    trm_node y =
        trm_conv2d(g, x, w, TRM_NO_NODE,
                   &(trm_conv_options){.stride = {stride, stride}, .pad = {pad, pad, pad, pad}});
    trm_graph_pop_scope(g);
    return y;
}

/* Adds a batch norm with its parameters and running statistics. */
static trm_node add_norm(trm_graph *g, const char *name, trm_node x, trm_init gamma) {
    int64_t c = channels_of(g, x);
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(c), gamma);
    trm_node b = trm_parameter(g, "bias", trm_shape_of(c), TRM_INIT_ZERO);
    trm_node mean = trm_state(g, "running_mean", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ZERO);
    trm_node var = trm_state(g, "running_var", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ONE);
    trm_node y = trm_batch_norm(g, x, w, b, mean, var, NULL);
    trm_graph_pop_scope(g);
    return y;
}

/* Blocks of each stage by depth. */
typedef struct layout {
    int32_t depth, blocks[4];
    bool bottleneck;
} layout;

/* Depth, blocks of the four stages, and whether blocks are bottlenecks (Table 1 of the paper). */
static const layout layouts[] = {{18, {2, 2, 2, 2}, false},
                                 {34, {3, 4, 6, 3}, false},
                                 {50, {3, 4, 6, 3}, true},
                                 {101, {3, 4, 23, 3}, true},
                                 {152, {3, 8, 36, 3}, true}};

/* Returns the shortcut: the input itself, or a 1x1 projection if the shape changes. */
static trm_node add_shortcut(trm_graph *g, trm_node x, int64_t out, int64_t stride) {
    if (stride == 1 && channels_of(g, x) == out) {
        return x;
    }
    trm_graph_push_scope(g, "downsample");
    trm_node y = add_norm(g, "1", add_conv(g, "0", x, out, 1, stride), TRM_INIT_ONE);
    trm_graph_pop_scope(g);
    return y;
}

/* Adds a residual block: two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1. */
static trm_node add_block(trm_graph *g, trm_node x, int64_t width, int64_t stride, bool bottleneck,
                          trm_init last_gamma) {
    trm_node y = x;
    if (bottleneck) {
        y = trm_relu(g, add_norm(g, "bn1", add_conv(g, "conv1", y, width, 1, 1), TRM_INIT_ONE));
        y = trm_relu(g,
                     add_norm(g, "bn2", add_conv(g, "conv2", y, width, 3, stride), TRM_INIT_ONE));
        y = add_norm(g, "bn3", add_conv(g, "conv3", y, 4 * width, 1, 1), last_gamma);
    } else {
        y = trm_relu(g,
                     add_norm(g, "bn1", add_conv(g, "conv1", y, width, 3, stride), TRM_INIT_ONE));
        y = add_norm(g, "bn2", add_conv(g, "conv2", y, width, 3, 1), last_gamma);
    }
    return trm_relu(g, trm_add(g, y, add_shortcut(g, x, bottleneck ? 4 * width : width, stride)));
}

/* Contract in trireme/nn.h. Residual networks (He et al. 2015) with the names of torchvision;
 * depths of 50 and more have bottlenecks. */
trm_node trm_resnet(trm_graph *g, trm_node image, const trm_resnet_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, options);
    const layout *shape = NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        shape = layouts[i].depth == options->depth ? &layouts[i] : shape;
    }
    if (shape == NULL) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "resnet%d: a depth of 18, 34, 50, 101 or 152 expected",
                  options->depth);
        trmi_graph_fail(g, &err);
        return TRM_NO_NODE;
    }
    /* The stem has 7x7 and max pooling, or 3x3 for small images. */
    bool cifar = options->stem == TRM_STEM_CIFAR;
    trm_init last_gamma = options->zero_init_residual ? TRM_INIT_ZERO : TRM_INIT_ONE;
    trm_node x = add_conv(g, "conv1", image, 64, cifar ? 3 : 7, cifar ? 1 : 2);
    x = trm_relu(g, add_norm(g, "bn1", x, TRM_INIT_ONE));
    if (!cifar) {
        x = trm_max_pool(
            g, x, &(trm_pool_options){.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}});
    }
    /* There are four stages; each but the first halves the extent. */
    for (int stage = 0; stage < 4; stage++) {
        for (int32_t i = 0; i < shape->blocks[stage]; i++) {
            trm_graph_push_scope(g, "layer%d", stage + 1);
            trm_graph_push_scope(g, "%d", i);
            trm_graph_mark_segment(g);
            x = add_block(g, x, 64 << stage, stage > 0 && i == 0 ? 2 : 1, shape->bottleneck,
                          last_gamma);
            trm_graph_pop_scope(g);
            trm_graph_pop_scope(g);
        }
    }
    x = trm_global_avg_pool(g, x);
    int64_t classes = options->classes == 0 ? 1000 : options->classes;
    int64_t features = channels_of(g, x);
    return trm_linear(
        g, x, trm_parameter(g, "fc.weight", trm_shape_of(classes, features), TRM_INIT_LINEAR),
        trm_parameter(g, "fc.bias", trm_shape_of(classes), TRM_INIT_LINEAR));
}
