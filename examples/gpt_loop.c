/* SPDX-License-Identifier: Apache-2.0 */
/* The network of gpt.c with a training loop of its own, on as many processes as it is started on:
 * the three lines marked + are all that many need, and have no effect in one.
 *     gpt_loop TEXT.txt [STEPS]
 *     trireme run -n 4 -- gpt_loop TEXT.txt [STEPS] */
#include <stdio.h>
#include <stdlib.h>
#include <trireme/trireme.h>

static trm_language_options network = {.layers = 4, .width = 128, .heads = 4, .context = 64};

/* Returns a program that trains the network on `batch` samples a step. */
static trm_exec *compile(int64_t batch) {
    trm_graph *graph;
    trm_exec *exec;
    TRM_OR_EXIT(trm_graph_create(&(trm_graph_options){.training = true}, &graph, &err));
    trm_shape shape = trm_shape_of(batch, network.context);
    trm_node tokens = trm_input(graph, "tokens", TRM_INT32, shape), targets = trm_input(graph, "targets", TRM_INT32, shape);
    TRM_OR_EXIT(trm_exec_create(graph, &(trm_exec_options){.optimizer = {.kind = TRM_ADAM, .weight_decay = 0.1, .decoupled = true},
        .loss = trm_language_loss(graph, "gpt2", tokens, targets, &network), .whole_gradients = true}, &exec, &err));
    trm_graph_destroy(graph);
    return exec;
}

int main(int argc, char **argv) {
    trm_dataset *data;
    const trm_batch *next;
    float *parameters, *gradients, loss;
    int64_t batch = 12, count;
    int steps = argc > 2 ? atoi(argv[2]) : 2000;
    trm_text_options text = {.tokens = "characters", .context = network.context};
    TRM_OR_EXIT(trm_dataset_open(&(trm_dataset_spec){.kind = "text", .path = argc > 1 ? argv[1] : "input.txt",
        .batch_size = batch, .text = &text}, &data, &err));
    TRM_OR_EXIT(trm_dataset_repeat(data, 0, &err)); /* epoch after epoch */
    network.vocabulary = trm_tokenizer_vocabulary(trm_dataset_tokenizer(data));
    TRM_OR_EXIT(trm_distribute_shard_and_rebatch(NULL, data, batch, &batch, &err)); /* + */
    trm_exec *exec = compile(batch);
    trm_exec_ranges(exec, &parameters, &gradients, &count);
    TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(parameters, count), 1, 0, &err)); /* + */
    for (int step = 1; step <= steps; step++) {
        TRM_OR_EXIT(trm_dataset_next(data, &next, &err));
        for (int i = 0; i < next->field_count; i++) {
            TRM_OR_EXIT(trm_exec_feed(exec, next->fields[i].name, &next->fields[i].tensor, &err));
        }
        TRM_OR_EXIT(trm_exec_forward_backward(exec, &err));
        TRM_OR_EXIT(trm_distribute_all_reduce(NULL, &TRM_FLOATS(gradients, count), 1, TRM_REDUCTION_MEAN, &err)); /* + */
        TRM_OR_EXIT(trm_exec_update(exec, 1e-3, &err));
        loss = trm_exec_loss(exec);
        TRM_OR_EXIT(trm_distribute_all_reduce(NULL, &TRM_FLOATS(&loss, 1), 1, TRM_REDUCTION_MEAN, &err)); /* to print it */
        if (trm_distribute_rank(NULL) == 0 && (step % 100 == 0 || step == steps)) {
            printf("step %d, loss is %.5f\n", step, (double)loss);
        }
    }
    trm_exec_destroy(exec);
    trm_dataset_destroy(data);
    return 0;
}
