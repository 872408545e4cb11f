/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT-2 learns to write as a text is written, character by character:
 *     gpt TEXT.txt [STEPS [PROMPT]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

static trm_language_options network = {.layers = 4, .width = 128, .heads = 4, .context = 64};

static trm_node build(trm_graph *g, const trm_inputs *batch, void *context) {
    (void)context;
    return trm_language_loss(g, "gpt2", trm_inputs_get(batch, "tokens"), trm_inputs_get(batch, "targets"), &network);
}

/* The network ends in its loss, so that the logits of a batch never exist. */
static trm_node loss(trm_graph *g, trm_node value, const trm_inputs *batch, void *context) {
    (void)g, (void)batch, (void)context;
    return value;
}

static void print_tokens(trm_tokenizer *tokenizer, const int32_t *ids, int64_t count) {
    char *text;
    size_t bytes;
    TRM_OR_EXIT(trm_tokenizer_decode(tokenizer, ids, count, &text, &bytes, &err));
    fwrite(text, 1, bytes, stdout);
    trm_free(text);
}

int main(int argc, char **argv) {
    trm_dataset *data;
    trm_model *model;
    trm_generator *generator;
    trm_tokens prompt = {0};
    const char *begin = argc > 3 ? argv[3] : "\n";
    trm_text_options text = {.tokens = "characters", .context = network.context};
    TRM_OR_EXIT(trm_dataset_open(&(trm_dataset_spec){.kind = "text", .path = argc > 1 ? argv[1] : "input.txt",
        .batch_size = 12, .text = &text}, &data, &err));
    network.vocabulary = trm_tokenizer_vocabulary(trm_dataset_tokenizer(data));
    TRM_OR_EXIT(trm_model_create(&(trm_model_options){.network = build, .loss = loss, .data = data,
        .learning_rate = {.decay = TRM_DECAY_COSINE, .base = 1e-3, .warmup_steps = 100},
        .exec = {.optimizer = {.kind = TRM_ADAM, .weight_decay = 0.1, .decoupled = true, .clip_norm = 1}}}, &model, &err));
    TRM_OR_EXIT(trm_model_train(model, &(trm_train_options){.data = data, .until_step = argc > 2 ? atoi(argv[2]) : 2000,
        .callbacks = {trm_loss_monitor(100, puts)}}, &err));
    TRM_OR_EXIT(trm_generator_create(model, &(trm_generator_options){.model = "gpt2", .network = &network}, &generator, &err));
    TRM_OR_EXIT(trm_tokenizer_encode(trm_dataset_tokenizer(data), begin, strlen(begin), &prompt, &err));
    TRM_OR_EXIT(trm_generator_read(generator, prompt.ids, prompt.count, &err));
    print_tokens(trm_dataset_tokenizer(data), prompt.ids, prompt.count);
    for (int i = 0; i < 300; i++) {
        int32_t id = trm_generator_choose(generator, &(trm_sampling){.temperature = 0.8, .seed = 1});
        print_tokens(trm_dataset_tokenizer(data), &id, 1);
        TRM_OR_EXIT(trm_generator_read(generator, &id, 1, &err));
    }
    puts("");
    trm_tokens_free(&prompt);
    trm_generator_destroy(generator);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return 0;
}
