/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a model on fixed random batches and writes the files with which another framework can
 * repeat the training:
 *     parity_dump MODEL SIZE BATCH CLASSES STEPS PRECISION DIR
 * -> DIR/init.safetensors, final.safetensors (torchvision's names), batches.safetensors (image,
 *  label of
 * every step), losses.txt. Momentum 0.9, learning rate 0.001, weight decay 1e-4 on everything. The
 * last norm of each block begins at zero: a default ResNet-50 multiplies an error of
 * 1e-6 by ten thousand in one step (PyTorch in float32 and in float64 are 2e-2 apart after two),
 * this one
 * does not. */
#include "trireme/trireme.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_and_exit(const trm_error *err) {
    fprintf(stderr, "parity_dump: %s\n", err->message);
    exit(1);
}
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != TRM_OK) {                                                                    \
            print_and_exit(&err);                                                                  \
        }                                                                                          \
    } while (0)

static void write_weights(trm_exec *exec, const char *dir, const char *name) {
    trm_error err;
    char path[512];
    trm_named_tensor tensors[1024];
    int64_t count = 0;
    for (int32_t i = 0; i < trm_exec_variable_count(exec) && count < 1024; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind == TRM_VARIABLE_SLOT) {
            continue;
        }
        void *data = malloc((size_t)trm_shape_count(&v.shape) * trm_dtype_bytes(v.dtype));
        trm_exec_read(exec, i, data);
        tensors[count++] = (trm_named_tensor){
            .name = v.name, .tensor = {.data = data, .dtype = v.dtype, .shape = v.shape}};
    }
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, name);
    TRY(trm_safetensors_write(path, tensors, count, NULL, 0, &err));
    for (int64_t i = 0; i < count; i++) {
        free(tensors[i].tensor.data);
    }
}

int main(int argc, char **argv) {
    trm_error err;
    if (argc != 8) {
        fprintf(stderr, "parity_dump MODEL SIZE BATCH CLASSES STEPS PRECISION DIR\n");
        return 2;
    }
    int64_t size = atoi(argv[2]), batch = atoi(argv[3]), classes = atoi(argv[4]),
            steps = atoi(argv[5]);
    const char *dir = argv[7];
    trm_graph *g;
    TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err));
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, size, size));
    trm_node y = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    trm_node logits = trm_network_build(
        g, argv[1], x, &(trm_network_options){.classes = classes, .zero_init_residual = true});
    trm_node loss = trm_softmax_cross_entropy(g, logits, y, NULL);
    trm_exec_options options = {
        .loss = loss,
        .seed = 11,
        .backend = getenv("PARITY_BACKEND"),
        .tuning_file = "",
        .precision = strcmp(argv[6], "mixed") == 0 ? TRM_PRECISION_MIXED : TRM_PRECISION_FP32,
        .optimizer = {
            .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-4, .decay_all = true}};
    trm_exec *exec;
    TRY(trm_exec_create(g, &options, &exec, &err));
    trm_graph_destroy(g);
    write_weights(exec, dir, "init");

    int64_t pixels = batch * 3 * size * size;
    float *images = malloc((size_t)(steps * pixels) * sizeof *images);
    int32_t *labels = malloc((size_t)(steps * batch) * sizeof *labels);
    for (int64_t i = 0; i < steps * pixels; i += 2) {
        uint32_t bits[4];
        trmi_philox(5, TRMI_STREAM_TEST, (uint64_t)i, bits);
        trmi_normal_pair(bits, images + i);
    }
    /* Makes data that a model can learn, so that losses fall and rounding errors do not grow: one
     * picture for each class, with noise. */
    for (int64_t i = 0; i < steps * batch; i++) {
        labels[i] = (int32_t)trmi_bounded(trmi_random_u32(6, TRMI_STREAM_TEST, (uint64_t)i),
                                          (uint32_t)classes);
        for (int64_t k = 0; k < pixels / batch; k++) {
            int64_t row = k / size % size, column = k % size;
            float picture = (float)(((row / 8 + column / 8 * (labels[i] + 1)) % (labels[i] + 2)) -
                                    labels[i] / 2);
            images[i * (pixels / batch) + k] =
                0.5f * images[i * (pixels / batch) + k] + picture / (float)(labels[i] + 1);
        }
    }
    trm_named_tensor batches[] = {
        {.name = "image",
         .tensor = {images, TRM_FLOAT32, trm_shape_of(steps, batch, 3, size, size)}},
        {.name = "label", .tensor = {labels, TRM_INT32, trm_shape_of(steps, batch)}}};
    char path[512];
    snprintf(path, sizeof path, "%s/batches.safetensors", dir);
    TRY(trm_safetensors_write(path, batches, 2, NULL, 0, &err));

    snprintf(path, sizeof path, "%s/losses.txt", dir);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        perror(path);
        return 1;
    }
    for (int64_t s = 0; s < steps; s++) {
        trm_tensor image = {images + s * pixels, TRM_FLOAT32, trm_shape_of(batch, 3, size, size)};
        trm_tensor label = {labels + s * batch, TRM_INT32, trm_shape_of(batch)};
        TRY(trm_exec_feed(exec, "image", &image, &err));
        TRY(trm_exec_feed(exec, "label", &label, &err));
        TRY(trm_exec_forward_backward(exec, &err));
        fprintf(out, "%.9g\n", (double)trm_exec_loss(exec));
        TRY(trm_exec_update(exec, 0.001, &err));
    }
    fclose(out);
    write_weights(exec, dir, "final");
    trm_exec_destroy(exec);
    free(images);
    free(labels);
    return 0;
}
