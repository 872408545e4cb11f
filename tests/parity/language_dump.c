/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small gpt2 or llama and writes all that transformers needs to repeat it:
 *     language_dump MODEL STEPS PRECISION DIR
 * -> DIR/init.safetensors (transformers' names), sgd.safetensors (after one step of SGD with learning rate
 *    1: the gradients are the differences), batches.safetensors (tokens, targets of every step), losses.txt
 *    (Adam, learning rate 0.001). */
#include "trireme/trireme.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, CONTEXT = 40, VOCABULARY = 307 };

/* heads of llama share keys, two by two */
static trm_language_options network = {
    .layers = 3, .width = 96, .heads = 6, .context = 48, .vocabulary = VOCABULARY};
static const char *model;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != TRM_OK) {                                                                    \
            fprintf(stderr, "language_dump: %s\n", err.message);                                   \
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

static trm_exec *create(trm_optimizer_kind kind, const char *precision) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err));
    trm_shape shape = trm_shape_of(BATCH, CONTEXT);
    trm_node ids = trm_input(g, "tokens", TRM_INT32, shape),
             targets = trm_input(g, "targets", TRM_INT32, shape);
    trm_exec_options options = {.loss = trm_language_loss(g, model, ids, targets, &network),
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

static double step(trm_exec *exec, int32_t *tokens, int32_t *labels, double rate) {
    trm_error err;
    trm_shape shape = trm_shape_of(BATCH, CONTEXT);
    trm_tensor a = {tokens, TRM_INT32, shape}, b = {labels, TRM_INT32, shape};
    TRY(trm_exec_feed(exec, "tokens", &a, &err));
    TRY(trm_exec_feed(exec, "targets", &b, &err));
    TRY(trm_exec_forward_backward(exec, &err));
    double loss = (double)trm_exec_loss(exec);
    TRY(trm_exec_update(exec, rate, &err));
    return loss;
}

int main(int argc, char **argv) {
    trm_error err;
    if (argc != 5) {
        fprintf(stderr, "language_dump MODEL STEPS PRECISION DIR\n");
        return 2;
    }
    int64_t steps = atoi(argv[2]), count = BATCH * CONTEXT;
    const char *dir = argv[4];
    model = argv[1];
    if (strcmp(model, "llama") == 0) {
        network.kv_heads = 3;
    }
    int32_t *tokens = malloc((size_t)(2 * steps * count) * sizeof *tokens),
            *labels = tokens + steps * count;
    for (int64_t i = 0; i < steps * count; i++) {
        tokens[i] =
            (int32_t)trmi_bounded(trmi_random_u32(6, TRMI_STREAM_TEST, (uint64_t)i), VOCABULARY);
        labels[i] = i % 13 == 5 ? -100 : (tokens[i] * 3 + 1) % VOCABULARY;
    }
    trm_named_tensor batches[] = {
        {.name = "tokens", .tensor = {tokens, TRM_INT32, trm_shape_of(steps, BATCH, CONTEXT)}},
        {.name = "targets", .tensor = {labels, TRM_INT32, trm_shape_of(steps, BATCH, CONTEXT)}}};
    char path[512];
    snprintf(path, sizeof path, "%s/batches.safetensors", dir);
    TRY(trm_safetensors_write(path, batches, 2, NULL, 0, &err));
    trm_exec *exec = create(TRM_SGD, argv[3]);
    write_tensors(exec, dir, "init");
    step(exec, tokens, labels, 1);
    write_tensors(exec, dir, "sgd");
    trm_exec_destroy(exec);
    snprintf(path, sizeof path, "%s/losses.txt", dir);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        perror(path);
        return 1;
    }
    exec = create(TRM_ADAM, argv[3]);
    for (int64_t s = 0; s < steps; s++) {
        fprintf(out, "%.9g\n", step(exec, tokens + s * count, labels + s * count, 0.001));
    }
    fclose(out);
    trm_exec_destroy(exec);
    free(tokens);
    return 0;
}
