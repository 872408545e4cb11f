/* trireme/models.h: networks as functions that build graphs. Names of parameters are torchvision's, so
 * that checkpoints cross over.
 *
 *     trm_node logits = trm_resnet(graph, image, &(trm_resnet_options){.depth = 50, .classes = 10});
 */
#ifndef TRIREME_MODELS_H
#define TRIREME_MODELS_H

#include "trireme/base.h"
#include "trireme/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum trm_stem {
    TRM_STEM_IMAGENET, /* 7x7 stride 2 and a 3x3 stride 2 max-pool */
    TRM_STEM_CIFAR     /* 3x3 stride 1, no pool: images of 32x32 keep their size */
} trm_stem;

typedef struct trm_resnet_options {
    int32_t depth;   /* 18, 34, 50, 101, 152 */
    int64_t classes; /* 0 = 1000 */
    trm_stem stem;
    bool zero_init_residual; /* the last norm of each block begins at 0 */
} trm_resnet_options;
/* He et al. 2015, the "v1.5" form (stride on the 3x3 of a bottleneck), as torchvision's resnet*.
 *   image [N, 3, H, W] -> logits [N, classes] */
TRM_API trm_node trm_resnet(trm_graph *graph, trm_node image, const trm_resnet_options *options);

/* Layers of `hidden` widths with ReLU, then classes. Any image or feature shape is flattened.
 * Names "fc0.weight", "fc0.bias", ... */
TRM_API trm_node trm_mlp(trm_graph *graph, trm_node x, const int64_t *hidden, int32_t count,
                         int64_t classes);

/* LeCun et al. 1998 in its usual modern form: conv 5x5 (6), pool, conv 5x5 (16), pool, 120, 84.
 *   image [N, C, H, W], H and W at least 12 */
TRM_API trm_node trm_lenet(trm_graph *graph, trm_node image, int64_t classes);

typedef struct trm_network_options {
    int64_t classes; /* 0 = 10 */
    trm_stem stem;
    bool zero_init_residual;
} trm_network_options;
/* By name, as the command line has it: resnet18/34/50/101/152, mlp (hidden 512, 256), lenet. An
 * unknown name breaks the graph with the names there are. */
TRM_API trm_node trm_model_build(trm_graph *graph, const char *name, trm_node image,
                                 const trm_network_options *options);
/* The index-th name, NULL after the last. */
TRM_API const char *trm_model_name(int32_t index);

#ifdef __cplusplus
}
#endif
#endif
