/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small gpt2, llama, bert, vit, llama-untied, or NAME-lora and writes all that
 * transformers needs to repeat it:
 *     transformer_dump MODEL STEPS PRECISION DIR
 * -> DIR/init.safetensors (transformers' names), sgd.safetensors (after one step of SGD with
 * learning rate
 *    4096: the gradients are the differences by that, and what the weights lose to rounding does
 *    not show), batches.safetensors (the inputs of every step), losses.txt (Adam, learning rate
 *    0.001).
 */
#include "trireme/trireme.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 4,
    CONTEXT = 40,
    VOCABULARY = 307,
    IMAGE = 24,
    CLASSES = 7,
    RATE = 4096,
    INPUTS = 3
};

/* heads of llama share keys, two by two */
static trm_language_options network = {
    .layers = 3, .width = 96, .heads = 6, .context = 48, .vocabulary = VOCABULARY};
static trm_vit_options patches = {.layers = 3, .width = 48, .heads = 4, .patch = 6};
static const char *model;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != TRM_OK) {                                                                    \
            fprintf(stderr, "transformer_dump: %s\n", err.message);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void write_tensors(trm_exec *exec, const char *dir, const char *name) {
    trm_error err;
    char path[512];
    trm_named_tensor tensors[256];
    int64_t count = 0;
    for (int32_t i = 0; i < trm_exec_variable_count(exec) && count < 256; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind != TRM_VARIABLE_PARAMETER) {
            continue;
        }
        void *data = malloc((size_t)trm_shape_count(&v.shape) * sizeof(float));
        trm_exec_read(exec, i, data);
        tensors[count++] = (trm_named_tensor){
            .name = v.name, .tensor = {.data = data, .dtype = TRM_FLOAT32, .shape = v.shape}};
    }
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, name);
    TRY(trm_safetensors_write(path, tensors, count, NULL, 0, &err));
    for (int64_t i = 0; i < count; i++) {
        free(tensors[i].tensor.data);
    }
}

/* ---- inputs: of all steps, one behind the other ---------------------------------------------- */

static uint32_t draw_id(int64_t i) { return trmi_random_u32(6, TRMI_STREAM_TEST, (uint64_t)i); }

static bool is_model(const char *name) { return strcmp(model, name) == 0; }
static int inputs_of_model(void) { return is_model("bert") ? 3 : 2; }

/* Makes the inputs of `steps` steps; the first dimension of each is the step. bert: the last eight
 * tokens of every second sample are padding. */
static void make_inputs(int64_t steps, trm_named_tensor *inputs) {
    enum { PADDING = 8 };
    bool image = is_model("vit");
    const trm_tensor ids = {NULL, TRM_INT32, trm_shape_of(steps, BATCH, CONTEXT)};
    const trm_tensor shapes[2][INPUTS] = {
        {ids, ids, ids},
        {{NULL, TRM_FLOAT32, trm_shape_of(steps, BATCH, 3, IMAGE, IMAGE)},
         {NULL, TRM_INT32, trm_shape_of(steps, BATCH)}}};
    static const char *const names[2][INPUTS] = {{"tokens", "targets", "mask"}, {"image", "label"}};
    for (int i = 0; i < inputs_of_model(); i++) {
        inputs[i] = (trm_named_tensor){.name = names[image][i], .tensor = shapes[image][i]};
        inputs[i].tensor.data = malloc((size_t)trm_tensor_bytes(&inputs[i].tensor));
    }
    int64_t count = trm_shape_count(&inputs[1].tensor.shape);
    int32_t *labels = inputs[1].tensor.data;
    if (image) {
        float *pixels = inputs[0].tensor.data;
        for (int64_t i = 0; i < trm_shape_count(&inputs[0].tensor.shape); i++) {
            pixels[i] = (float)trmi_bounded(draw_id(i), 2001) / 1000 - 1;
        }
        for (int64_t i = 0; i < count; i++) {
            labels[i] = (int32_t)(i * 5 % CLASSES);
        }
        return;
    }
    int32_t *tokens = inputs[0].tensor.data;
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)trmi_bounded(draw_id(i), VOCABULARY);
        labels[i] = i % 13 == 5 ? -100 : (tokens[i] * 3 + 1) % VOCABULARY;
    }
    for (int64_t i = 0; is_model("bert") && i < count; i++) {
        int32_t *mask = inputs[2].tensor.data;
        mask[i] = i / CONTEXT % 2 == 0 || i % CONTEXT < CONTEXT - PADDING;
        labels[i] = mask[i] && i % 7 == 3 ? labels[i] : -100;
    }
}

/* Returns the inputs of one step. */
static trm_tensor input_of(const trm_named_tensor *input, int64_t step) {
    trm_tensor t = input->tensor;
    memmove(t.shape.dim, t.shape.dim + 1, (size_t)--t.shape.rank * sizeof t.shape.dim[0]);
    t.data = (char *)t.data + step * trm_tensor_bytes(&t);
    return t;
}

/* ---- training -------------------------------------------------------------------------------- */

static trm_node loss_of(trm_graph *g, const trm_named_tensor *inputs) {
    trm_node x[INPUTS] = {TRM_NO_NODE};
    for (int i = 0; i < inputs_of_model(); i++) {
        trm_tensor t = input_of(&inputs[i], 0);
        x[i] = trm_input(g, inputs[i].name, t.dtype, t.shape);
    }
    network.mask = x[2];
    return is_model("vit")
               ? trm_softmax_cross_entropy(g, trm_vit(g, x[0], CLASSES, &patches), x[1], NULL)
               : trm_language_loss(g, model, x[0], x[1], &network);
}

static trm_exec *create_exec(trm_optimizer_kind kind, const char *precision,
                             const trm_named_tensor *inputs) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err));
    trm_exec_options options = {.loss = loss_of(g, inputs),
                                .seed = 11,
                                .backend = getenv("PARITY_BACKEND"),
                                .tuning_file = "",
                                .precision = strcmp(precision, "mixed") == 0 ? TRM_PRECISION_MIXED
                                                                             : TRM_PRECISION_FP32,
                                .optimizer = {.kind = kind}};
    TRY(trm_exec_create(g, &options, &exec, &err));
    trm_graph_destroy(g);
    return exec;
}

static double train_step(trm_exec *exec, const trm_named_tensor *inputs, int64_t step,
                         double rate) {
    trm_error err;
    for (int i = 0; i < inputs_of_model(); i++) {
        trm_tensor t = input_of(&inputs[i], step);
        TRY(trm_exec_feed(exec, inputs[i].name, &t, &err));
    }
    TRY(trm_exec_forward_backward(exec, &err));
    double loss = (double)trm_exec_loss(exec);
    TRY(trm_exec_update(exec, rate, &err));
    return loss;
}

int main(int argc, char **argv) {
    trm_error err;
    if (argc != 5) {
        fprintf(stderr, "transformer_dump MODEL STEPS PRECISION DIR\n");
        return 2;
    }
    int64_t steps = atoi(argv[2]);
    const char *dir = argv[4];
    trm_named_tensor inputs[INPUTS];
    char path[512];
    model = argv[1];
    network.untied = strcmp(model, "llama-untied") == 0;
    if (strstr(model, "-lora") != NULL) {
        network.lora = patches.lora = (trm_lora_options){.rank = 4, .alpha = 8, .targets = "all"};
    }
    model = strncmp(model, "llama", 5) == 0  ? "llama"
            : strncmp(model, "gpt2", 4) == 0 ? "gpt2"
            : strncmp(model, "bert", 4) == 0 ? "bert"
            : strncmp(model, "vit", 3) == 0  ? "vit"
                                             : model;
    network.kv_heads = is_model("llama") ? 3 : 0;
    make_inputs(steps, inputs);
    snprintf(path, sizeof path, "%s/batches.safetensors", dir);
    TRY(trm_safetensors_write(path, inputs, inputs_of_model(), NULL, 0, &err));
    trm_exec *exec = create_exec(TRM_SGD, argv[3], inputs);
    write_tensors(exec, dir, "init");
    train_step(exec, inputs, 0, RATE);
    write_tensors(exec, dir, "sgd");
    trm_exec_destroy(exec);
    snprintf(path, sizeof path, "%s/losses.txt", dir);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        perror(path);
        return 1;
    }
    exec = create_exec(TRM_ADAM, argv[3], inputs);
    for (int64_t s = 0; s < steps; s++) {
        fprintf(out, "%.9g\n", train_step(exec, inputs, s, 0.001));
    }
    fclose(out);
    trm_exec_destroy(exec);
    for (int i = 0; i < inputs_of_model(); i++) {
        free(inputs[i].tensor.data);
    }
    return 0;
}
