/* SPDX-License-Identifier: Apache-2.0 */
/* Data of one's own: training samples from arrays, test samples from a function, a metric that the
 * library does not have, predictions. The network learns which points lie in a circle. */
#include <stdio.h>
#include <stdlib.h>
#include <trireme/trireme.h>

enum { TRAIN = 8000, TEST = 1000 };

/* Writes sample `index` of those from *context on: the same one on each thread and rank. */
static trm_status read_point(void *context, int64_t index, const trm_tensor *fields,
                             trm_error *err) {
    uint32_t bits = (uint32_t)(*(const int *)context + index + 1) * 2654435761u;
    float *point = (float *)fields[0].data;
    point[0] = (float)(bits >> 16) / 32768 - 1;
    point[1] = (float)(bits * 40503u >> 16) / 32768 - 1;
    *(int32_t *)fields[1].data = point[0] * point[0] + point[1] * point[1] < 0.64f;
    return (void)err, TRM_OK;
}

/* The share of points outside that are taken for inside: sums[0] those, sums[1] all outside. */
static trm_status add_alarms(void *context, const trm_tensor *logits, int64_t samples,
                             const trm_batch *batch, double *sums, trm_error *err) {
    const int32_t *label = (const int32_t *)trm_batch_tensor(batch, "label")->data;
    const float *l = (const float *)logits->data; /* [samples, 2] */
    for (int64_t i = 0; i < samples; i++) {
        sums[0] += label[i] == 0 && l[2 * i + 1] > l[2 * i];
        sums[1] += label[i] == 0;
    }
    return (void)context, (void)err, TRM_OK;
}

static trm_status count_inside(void *count, const trm_tensor *logits, int64_t samples,
                               const trm_batch *batch, trm_error *err) {
    for (const float *l = (const float *)logits->data; samples > 0; samples--, l += 2) {
        *(int *)count += l[1] > l[0];
    }
    return (void)batch, (void)err, TRM_OK;
}

static trm_node network(trm_graph *g, const trm_inputs *batch, void *context) {
    const int64_t hidden[] = {32, 32};
    return (void)context, trm_mlp(g, trm_inputs_get(batch, "point"), hidden, 2, 2);
}

int main(void) {
    static float points[TRAIN][2];
    static int32_t labels[TRAIN];
    int begin = 0, inside = 0;
    trm_dataset *train, *test;
    trm_model *model;
    trm_evaluation result;
    for (int i = 0; i < TRAIN; i++) {
        trm_tensor row[] = {{.data = points[i]}, {.data = &labels[i]}};
        TRM_OR_EXIT(read_point(&begin, i, row, &err));
    }
    begin = TRAIN;
    trm_batch_field arrays[] = {{"point", {points, TRM_FLOAT32, trm_shape_of(TRAIN, 2)}},
                                {"label", {labels, TRM_INT32, trm_shape_of(TRAIN)}}};
    trm_data_source source = {.samples = TEST, .classes = 2, .field_count = 2, .read = read_point, .context = &begin};
    source.fields[0] = (trm_batch_field){"point", {NULL, TRM_FLOAT32, trm_shape_of(2)}};
    source.fields[1] = (trm_batch_field){"label", {NULL, TRM_INT32, trm_shape_make(0, NULL)}};
    TRM_OR_EXIT(trm_dataset_arrays(arrays, 2, 2, &train, &err));
    TRM_OR_EXIT(trm_dataset_shuffle(train, 0, &err));
    TRM_OR_EXIT(trm_dataset_batch(train, 50, true, &err));
    TRM_OR_EXIT(trm_dataset_callback(&source, &test, &err));
    TRM_OR_EXIT(trm_dataset_batch(test, 64, false, &err));
    trm_model_options options = {.network = network, .data = train, .learning_rate = {.base = 0.1}};
    options.metrics[0] = (trm_metric){.name = "alarms", .sum_count = 2, .add = add_alarms};
    TRM_OR_EXIT(trm_model_create(&options, &model, &err));
    TRM_OR_EXIT(trm_model_train(model, &(trm_train_options){.data = train, .until_epoch = 5}, &err));
    TRM_OR_EXIT(trm_model_predict(model, test, count_inside, &inside, &result, &err));
    printf("accuracy %.3f, %s %.3f, %d of %d points taken for inside\n", result.top1,
           result.metrics[0].name, result.metrics[0].value, inside, (int)result.samples);
    trm_model_destroy(model);
    trm_dataset_destroy(test);
    trm_dataset_destroy(train);
    return 0;
}
