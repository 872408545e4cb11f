/* SPDX-License-Identifier: Apache-2.0 */
/* A small network learns ten classes of generated shapes: the whole program. */
#include <stdio.h>
#include <trireme/trireme.h>

static trm_node network(trm_graph *g, const trm_inputs *batch, void *context) {
    const int64_t hidden[] = {256, 128};
    return (void)context, trm_mlp(g, trm_inputs_get(batch, "image"), hidden, 2, 10);
}

int main(void) {
    trm_dataset *train, *test;
    trm_model *model;
    trm_evaluation result;
    TRM_OR_EXIT(trm_dataset_open(&(trm_dataset_spec){.path = "synth", .batch_size = 64}, &train, &err));
    TRM_OR_EXIT(trm_dataset_open(&(trm_dataset_spec){.path = "synth", .usage = TRM_USAGE_TEST}, &test, &err));
    TRM_OR_EXIT(trm_model_create(&(trm_model_options){.network = network, .data = train,
        .learning_rate = {.base = 0.01}, .exec = {.optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}}}, &model, &err));
    TRM_OR_EXIT(trm_model_train(model, &(trm_train_options){.data = train, .until_epoch = 3,
        .callbacks = {trm_loss_monitor(0, puts)}}, &err));
    TRM_OR_EXIT(trm_model_evaluate(model, test, &result, &err));
    printf("accuracy on %lld new images: %.3f\n", (long long)result.samples, result.top1);
    trm_model_destroy(model);
    trm_dataset_destroy(test);
    trm_dataset_destroy(train);
    return 0;
}
