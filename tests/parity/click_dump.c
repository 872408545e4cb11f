/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a recommendation model on generated clicks and writes the files with which another
 * framework can repeat the training:
 *     click_dump MODEL OPTIMIZER STEPS DIR [bags|stacked|rank]
 * -> DIR/init.safetensors, final.safetensors, batches.safetensors (label, dense, keys and with bags
 * offsets and values of every step), losses.txt. */
#include "trireme/data.h"
#include "trireme/trireme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, FIELDS = 6, DENSE = 4, ROWS = 50, WIDTH = 8, BAG_KEYS = BATCH * FIELDS * 2 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != TRM_OK) {                                                                    \
            fprintf(stderr, "click_dump: %s\n", err.message);                                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void write_weights(trm_exec *exec, const char *dir, const char *name) {
    trm_error err;
    char path[512];
    trm_named_tensor tensors[64];
    int64_t count = 0;
    for (int32_t i = 0; i < trm_exec_variable_count(exec) && count < 64; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind == TRM_VARIABLE_PARAMETER) {
            void *data = malloc((size_t)trm_shape_count(&v.shape) * sizeof(float));
            trm_exec_read(exec, i, data);
            tensors[count++] = (trm_named_tensor){v.name, {data, v.dtype, v.shape}};
        }
    }
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, name);
    TRY(trm_safetensors_write(path, tensors, count, NULL, 0, &err));
    for (int64_t i = 0; i < count; i++) {
        free(tensors[i].tensor.data);
    }
}

/* The batches of all steps, one after the other. */
typedef struct batches {
    int64_t steps;
    bool bags;                       /* several keys a field, with weights `values` */
    float *label, *dense, *values;   /* of all steps */
    int64_t *keys, *offsets;         /* of all steps */
    int64_t keys_step, offsets_step; /* numbers from one step to the next */
} batches;

/* Bags of 0 to 3 of the batch's own keys, some weights 0. */
static void make_bags(batches *b, int64_t step, const int64_t *keys) {
    int64_t *to = b->keys + step * b->keys_step, *offsets = b->offsets + step * b->offsets_step,
            used = 0;
    float *values = b->values + step * b->keys_step;
    uint64_t state = (uint64_t)step + 99;
    offsets[0] = 0;
    for (int64_t i = 0; i < BATCH * FIELDS; i++) {
        int64_t wanted =
            (int64_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % 4;
        for (int64_t k = 0; k < wanted && used < b->keys_step; k++) {
            values[used] = (float)((state >> (40 + k)) % 8) / 4;
            to[used++] = (keys[i] + k * 7) % (FIELDS * ROWS);
        }
        offsets[i + 1] = used;
    }
}

static void read_batches(batches *b) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    TRY(trm_dataset_clicks(&(trm_click_generator_options){.rows = BATCH * b->steps,
                                                          .fields = FIELDS,
                                                          .dense = DENSE,
                                                          .vocabulary = ROWS,
                                                          .shared_table = true,
                                                          .seed = 5},
                           TRM_USAGE_TRAIN, &data, &err));
    TRY(trm_dataset_batch(data, BATCH, true, &err));
    b->keys_step = b->bags ? BAG_KEYS : BATCH * FIELDS;
    b->offsets_step = BATCH * FIELDS + 1;
    b->label = calloc((size_t)(b->steps * BATCH), sizeof *b->label);
    b->dense = calloc((size_t)(b->steps * BATCH * DENSE), sizeof *b->dense);
    b->keys = calloc((size_t)(b->steps * b->keys_step), sizeof *b->keys);
    b->values = calloc((size_t)(b->steps * b->keys_step), sizeof *b->values);
    b->offsets = calloc((size_t)(b->steps * b->offsets_step), sizeof *b->offsets);
    for (int64_t s = 0; s < b->steps; s++) {
        TRY(trm_dataset_next(data, &batch, &err));
        const int64_t *keys = trm_batch_tensor(batch, "keys")->data;
        memcpy(b->label + s * BATCH, trm_batch_tensor(batch, "label")->data, BATCH * sizeof(float));
        memcpy(b->dense + s * BATCH * DENSE, trm_batch_tensor(batch, "dense")->data,
               BATCH * DENSE * sizeof(float));
        if (b->bags) {
            make_bags(b, s, keys);
        } else {
            memcpy(b->keys + s * b->keys_step, keys, BATCH * FIELDS * sizeof *keys);
        }
    }
    trm_dataset_destroy(data);
}

static void write_batches(const batches *b, const char *dir) {
    trm_error err;
    char path[512];
    trm_named_tensor tensors[] = {
        {"label", {b->label, TRM_FLOAT32, trm_shape_of(b->steps, BATCH)}},
        {"dense", {b->dense, TRM_FLOAT32, trm_shape_of(b->steps, BATCH, DENSE)}},
        {"keys", {b->keys, TRM_INT64, trm_shape_of(b->steps, b->keys_step)}},
        {"values", {b->values, TRM_FLOAT32, trm_shape_of(b->steps, b->keys_step)}},
        {"offsets", {b->offsets, TRM_INT64, trm_shape_of(b->steps, b->offsets_step)}}};
    snprintf(path, sizeof path, "%s/batches.safetensors", dir);
    TRY(trm_safetensors_write(path, tensors, b->bags ? 5 : 3, NULL, 0, &err));
}

static trm_exec *build_exec(const char *model, const char *optimizer, const char *variant,
                            bool bags) {
    static const int64_t hidden[] = {32, 16}, bottom[] = {16};
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err));
    trm_click_inputs in = {
        .keys = trm_input(g, "keys", TRM_INT64,
                          bags ? trm_shape_of(BAG_KEYS) : trm_shape_of(BATCH, FIELDS)),
        .offsets = bags ? trm_input(g, "offsets", TRM_INT64, trm_shape_of(BATCH * FIELDS + 1))
                        : TRM_NO_NODE,
        .values = bags ? trm_input(g, "values", TRM_FLOAT32, trm_shape_of(BAG_KEYS)) : TRM_NO_NODE,
        .dense = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(BATCH, DENSE)),
        .batch = BATCH};
    const trm_recommender_options o = {.rows = FIELDS * ROWS,
                                       .width = WIDTH,
                                       .hidden = hidden,
                                       .hidden_count = 2,
                                       .bottom = bottom,
                                       .bottom_count = 1,
                                       .cross_layers = 2,
                                       .cross_rank = strcmp(variant, "rank") == 0 ? 5 : 0,
                                       .stacked = strcmp(variant, "stacked") == 0,
                                       .pooling = bags ? TRM_BAG_MEAN : TRM_BAG_SUM,
                                       .table_init = TRM_INIT_LINEAR};
    trm_node logits = trm_recommender_build(g, model, &in, &o);
    trm_node loss =
        trm_bce_with_logits(g, logits, trm_input(g, "label", TRM_FLOAT32, trm_shape_of(BATCH)));
    trm_optimizer_options update = {.kind = strcmp(optimizer, "adam") == 0      ? TRM_ADAM
                                            : strcmp(optimizer, "adagrad") == 0 ? TRM_ADAGRAD
                                                                                : TRM_SGD,
                                    .initial_accumulator = 0.1,
                                    .epsilon = strcmp(optimizer, "adam") == 0 ? 1e-5 : 0};
    TRY(trm_exec_create(g,
                        &(trm_exec_options){.loss = loss,
                                            .seed = 11,
                                            .tuning_file = "",
                                            .optimizer = update,
                                            .backend = getenv("PARITY_BACKEND")},
                        &exec, &err));
    trm_graph_destroy(g);
    return exec;
}

int main(int argc, char **argv) {
    trm_error err;
    if (argc < 5) {
        fprintf(stderr, "click_dump MODEL OPTIMIZER STEPS DIR [bags|stacked|rank]\n");
        return 2;
    }
    const char *variant = argc > 5 ? argv[5] : "", *dir = argv[4];
    batches b = {.steps = atoi(argv[3]), .bags = strcmp(variant, "bags") == 0};
    read_batches(&b);
    write_batches(&b, dir);
    trm_exec *exec = build_exec(argv[1], argv[2], variant, b.bags);
    write_weights(exec, dir, "init");
    char path[512];
    snprintf(path, sizeof path, "%s/losses.txt", dir);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        perror(path);
        return 1;
    }
    trm_shape keys = b.bags ? trm_shape_of(BAG_KEYS) : trm_shape_of(BATCH, FIELDS);
    for (int64_t s = 0; s < b.steps; s++) {
        const trm_named_tensor fed[] = {
            {"label", {b.label + s * BATCH, TRM_FLOAT32, trm_shape_of(BATCH)}},
            {"dense", {b.dense + s * BATCH * DENSE, TRM_FLOAT32, trm_shape_of(BATCH, DENSE)}},
            {"keys", {b.keys + s * b.keys_step, TRM_INT64, keys}},
            {"values", {b.values + s * b.keys_step, TRM_FLOAT32, trm_shape_of(b.keys_step)}},
            {"offsets", {b.offsets + s * b.offsets_step, TRM_INT64, trm_shape_of(b.offsets_step)}}};
        for (int i = 0; i < (b.bags ? 5 : 3); i++) {
            TRY(trm_exec_feed(exec, fed[i].name, &fed[i].tensor, &err));
        }
        TRY(trm_exec_forward_backward(exec, &err));
        fprintf(out, "%.9g\n", (double)trm_exec_loss(exec));
        TRY(trm_exec_update(exec, strcmp(argv[2], "adam") == 0 ? 0.01 : 0.05, &err));
    }
    fclose(out);
    write_weights(exec, dir, "final");
    trm_exec_destroy(exec);
    free(b.label), free(b.dense), free(b.keys), free(b.values), free(b.offsets);
    return 0;
}
