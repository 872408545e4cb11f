/* Small networks and the registry of names. */
#include "trireme/models.h"

#include "graph/graph_ir.h"

#include "base/error.h"

#include <string.h>

static trm_node flatten(trm_graph *g, trm_node x) {
    trm_shape shape = trm_node_shape(g, x);
    return shape.rank == 2 ? x : trm_reshape(g, x, trm_shape_of(shape.dim[0], -1));
}

static trm_node dense(trm_graph *g, const char *name, trm_node x, int64_t out) {
    int64_t in = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    trm_node y = trm_linear(g, x, trm_parameter(g, "weight", trm_shape_of(out, in), TRM_INIT_LINEAR),
                            trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_LINEAR));
    trm_graph_pop_scope(g);
    return y;
}

trm_node trm_mlp(trm_graph *g, trm_node x, const int64_t *hidden, int32_t count, int64_t classes) {
    char name[16] = "fc0";
    x = flatten(g, x);
    for (int32_t i = 0; i < count && i < 9; i++) {
        name[2] = (char)('0' + i);
        x = trm_relu(g, dense(g, name, x, hidden[i]));
    }
    name[2] = (char)('0' + count);
    return dense(g, name, x, classes);
}

static trm_node conv5(trm_graph *g, const char *name, trm_node x, int64_t out, int64_t pad) {
    int64_t in = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    trm_node y = trm_conv2d(g, x, trm_parameter(g, "weight", trm_shape_of(out, in, 5, 5), TRM_INIT_HE_UNIFORM),
                            trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_ZERO),
                            &(trm_conv_options){.pad = {pad, pad, pad, pad}});
    trm_graph_pop_scope(g);
    return y;
}

trm_node trm_lenet(trm_graph *g, trm_node image, int64_t classes) {
    const trm_pool_options pool = {.kernel = {2, 2}};
    /* 28x28 as in the paper's 32x32 frame; larger images need no padding. */
    int64_t pad = trm_node_shape(g, image).dim[2] < 32 ? 2 : 0;
    trm_node x = trm_max_pool(g, trm_relu(g, conv5(g, "conv1", image, 6, pad)), &pool);
    x = trm_max_pool(g, trm_relu(g, conv5(g, "conv2", x, 16, 0)), &pool);
    x = flatten(g, x);
    x = trm_relu(g, dense(g, "fc1", x, 120));
    x = trm_relu(g, dense(g, "fc2", x, 84));
    return dense(g, "fc3", x, classes);
}

static const char *const names[] = {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "mlp", "lenet"};
enum { NAMES = sizeof names / sizeof names[0] };

const char *trm_model_name(int32_t index) {
    return index >= 0 && index < NAMES ? names[index] : NULL;
}

trm_node trm_model_build(trm_graph *g, const char *name, trm_node image,
                         const trm_network_options *options) {
    static const int32_t depths[] = {18, 34, 50, 101, 152};
    int64_t classes = options->classes == 0 ? 10 : options->classes;
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) == 0) {
            return trm_resnet(g, image,
                              &(trm_resnet_options){.depth = depths[i], .classes = classes, .stem = options->stem,
                                                    .zero_init_residual = options->zero_init_residual});
        }
    }
    if (strcmp(name, "mlp") == 0) {
        return trm_mlp(g, image, (const int64_t[]){512, 256}, 2, classes);
    }
    if (strcmp(name, "lenet") == 0) {
        return trm_lenet(g, image, classes);
    }
    trm_error err;
    TRMI_FAIL(&err, TRM_INVALID, "no model '%.40s'; there are resnet18, resnet34, resnet50, resnet101, resnet152, mlp, lenet", name);
    trmi_graph_fail(g, &err);
    return TRM_NO_NODE;
}
