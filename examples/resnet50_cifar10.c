/* SPDX-License-Identifier: Apache-2.0 */
/* Guide 002's program: ResNet-50 on CIFAR-10, with its data pipeline, its loss made of small
 * operators, and its training call, on one rank or many.
 * Usage: [trireme run -n 8 --] resnet50_cifar10 DIR [IMAGE_SIZE [EPOCHS [PARALLEL_MODE]]] */
#include "trireme/train.h"
#include "trireme/dist.h"
#include "trireme/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static trm_dataset *create_dataset(const char *path, int64_t size) {
    /* The guide reads all files, test set included; here the training set. Its mean and deviation
     * are in the order B, G, R; here R, G, B. */
    static const double mean[3] = {0.4914, 0.4822, 0.4465}, deviation[3] = {0.2023, 0.1994, 0.2010};
    const trm_transform transforms[] = {
        trm_transform_random_crop(32, 32, 4),
        trm_transform_random_flip(0.5),
        trm_transform_resize(size, size, TRM_RESIZE_HALF_PIXEL),
        trm_transform_rescale(1.0 / 255.0, 0.0),
        trm_transform_normalize(mean, deviation),
        trm_transform_hwc2chw(),
    };
    trm_dataset *data;
    int32_t ranks = trm_distribute_size(NULL), rank = trm_distribute_rank(NULL);
    TRM_OR_EXIT(trm_dataset_cifar10(path, TRM_USAGE_TRAIN, &data, &err));
    TRM_OR_EXIT(trm_dataset_shard(data, ranks, rank, TRM_SHARD_WRAP, &err));
    TRM_OR_EXIT(trm_dataset_shuffle(data, 10, &err));
    TRM_OR_EXIT(trm_dataset_map(data, transforms, 6, &err));
    TRM_OR_EXIT(trm_dataset_batch(data, 32, true, &err));
    TRM_OR_EXIT(trm_dataset_prefetch(data, 4, 1, &err));
    return data;
}

static trm_node network(trm_graph *g, const trm_inputs *batch, void *context) {
    (void)context;
    const trm_resnet_options options = {.depth = 50, .classes = 10};
    return trm_resnet(g, trm_inputs_get(batch, "image"), &options);
}

static trm_node softmax_cross_entropy_expand(trm_graph *g, trm_node logit, const trm_inputs *batch,
                                             void *context) {
    (void)context;
    const int32_t last = -1;
    trm_node label = trm_inputs_get(batch, "label");
    trm_node logit_max = trm_reduce_max(g, logit, &last, 1, true);
    trm_node exp = trm_exp(g, trm_sub(g, logit, logit_max));
    trm_node exp_sum = trm_reduce_sum(g, exp, &last, 1, true);
    trm_node softmax_result = trm_div(g, exp, exp_sum);
    label = trm_one_hot(g, label, trm_node_shape(g, logit).dim[1], 1.0, 0.0);
    trm_node softmax_result_log = trm_log(g, softmax_result);
    trm_node loss = trm_reduce_sum(g, trm_mul(g, softmax_result_log, label), &last, 1, false);
    loss = trm_mul(g, trm_scalar(g, -1.0), loss);
    return trm_reduce_mean(g, loss, &last, 1, false);
}

/* Each rank reads its own samples, also where operators are split. */
static void set_parallel(trm_context *context, const char *mode) {
    TRM_OR_EXIT(trm_context_set(context, "parallel_mode", mode, &err));
    if (strcmp(mode, "stand_alone") != 0) {
        TRM_OR_EXIT(trm_context_set(context, "mirror_mean", "true", &err));
    }
    if (strstr(mode, "auto_parallel") != NULL) {
        TRM_OR_EXIT(trm_context_set(context, "full_batch", "false", &err));
    }
}

int main(int argc, char **argv) {
    trm_context *context;
    trm_model *model;
    trm_model_options options = {
        .network = network,
        .loss = softmax_cross_entropy_expand,
        .learning_rate = {.base = 0.01},
        .exec = {.optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}},
    };
    TRM_OR_EXIT(trm_join(&err));
    TRM_OR_EXIT(trm_context_create(&context, &err));
    set_parallel(context, argc > 4 ? argv[4] : "auto_parallel");
    const char *path = argc > 1 ? argv[1] : "cifar-10-batches-bin";
    trm_dataset *dataset = create_dataset(path, argc > 2 ? atol(argv[2]) : 224);
    options.data = dataset;
    options.context = context;
    TRM_OR_EXIT(trm_model_create(&options, &model, &err));
    TRM_OR_EXIT(trm_model_train(model, &(trm_train_options){.data = dataset, .until_epoch = argc > 3 ? atol(argv[3]) : 10,
        .sink = true, .callbacks = {trm_loss_monitor(1, puts)}}, &err));
    trm_model_destroy(model);
    trm_dataset_destroy(dataset);
    trm_context_destroy(context);
    return 0;
}
