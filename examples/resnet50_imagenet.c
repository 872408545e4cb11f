/* SPDX-License-Identifier: Apache-2.0 */
/* Guide 001's program: ResNet-50 on ImageNet with a training loop of its own, on one device or,
 * with three added calls, on many. The flags are those of TensorFlow's
 * official/vision/image_classification/resnet.
 *
 *     resnet50_imagenet --data_dir imagenet --batch_size 256             one process
 *     trireme run -n 8 -- resnet50_imagenet --data_dir imagenet --batch_size 256     8 ranks, 32 images each
 *     resnet50_imagenet --help                                           all flags
 */
#include "trireme/trireme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct flags {
    const char *data_dir, *dtype;
    bool use_synthetic_data, guide_l2;
    int64_t batch_size, train_steps, log_steps, image_size, num_classes;
    double train_epochs, warmup_epochs, base_learning_rate;
} flags;

/* ---- flags ------------------------------------------------------------------------------------------ */

static const char usage[] =
    "resnet50_imagenet [--flag VALUE]; on many ranks: trireme run -n 8 -- resnet50_imagenet ...\n"
    "  --use_synthetic_data    random images; else\n"
    "  --data_dir DIR          folders train/CLASS/NAME.JPEG, or TFRecords train-*-of-*\n"
    "  --batch_size N          of all ranks together (256)\n"
    "  --train_steps N         (90 epochs)\n"
    "  --train_epochs N        (90)\n"
    "  --log_steps N           (100)\n"
    "  --base_learning_rate X  for 256 images a step; scaled with --batch_size (0.1)\n"
    "  --warmup_epochs X       (5)\n"
    "  --image_size N          (224)\n"
    "  --num_classes N         (1000)\n"
    "  --dtype fp32|bf16       (fp32)\n"
    "  --guide_l2              decay as the guide's own code has it: not divided by the number of replicas,\n"
    "                          so that the sum over N ranks makes it N times as strong\n";

static bool take(const char *name, const char *value, flags *f) {
    const struct {
        const char *name;
        int64_t *integer;
        double *real;
        const char **text;
    } table[] = {{"--data_dir", NULL, NULL, &f->data_dir},        {"--dtype", NULL, NULL, &f->dtype},
                 {"--batch_size", &f->batch_size, NULL, NULL},    {"--train_steps", &f->train_steps, NULL, NULL},
                 {"--log_steps", &f->log_steps, NULL, NULL},      {"--image_size", &f->image_size, NULL, NULL},
                 {"--num_classes", &f->num_classes, NULL, NULL},  {"--train_epochs", NULL, &f->train_epochs, NULL},
                 {"--warmup_epochs", NULL, &f->warmup_epochs, NULL},
                 {"--base_learning_rate", NULL, &f->base_learning_rate, NULL}};
    char none[] = "", *end = none;
    for (size_t i = 0; value != NULL && i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].name, name) != 0) {
            continue;
        }
        if (table[i].text != NULL) {
            *table[i].text = value;
        } else if (table[i].integer != NULL) {
            *table[i].integer = strtoll(value, &end, 10);
        } else {
            *table[i].real = strtod(value, &end);
        }
        return *end == '\0' && (table[i].integer == NULL || *table[i].integer > 0);
    }
    return false;
}

static void parse(int argc, char **argv, flags *f) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else if (strcmp(argv[i], "--use_synthetic_data") == 0) {
            f->use_synthetic_data = true;
        } else if (strcmp(argv[i], "--guide_l2") == 0) {
            f->guide_l2 = true;
        } else if (take(argv[i], argv[i + 1], f)) {
            i++;
        } else {
            fprintf(stderr, "resnet50_imagenet: %s: not a flag with a value it can have\n%s", argv[i], usage);
            exit(2);
        }
    }
    if (strcmp(f->dtype, "fp32") != 0 && strcmp(f->dtype, "bf16") != 0) {
        fprintf(stderr, "resnet50_imagenet: --dtype %s: fp32 or bf16\n", f->dtype);
        exit(2);
    }
    if (!f->use_synthetic_data && f->data_dir == NULL) {
        fprintf(stderr, "resnet50_imagenet: --data_dir or --use_synthetic_data is needed\n");
        exit(2);
    }
}

/* ---- data ------------------------------------------------------------------------------------------- */

/* TFRecords where there are such files, else folders of classes. */
static trm_status open_images(const flags *f, trm_dataset **data, trm_error *err) {
    trm_status status = trm_dataset_tfrecord_imagenet(f->data_dir, TRM_USAGE_TRAIN, data, err);
    return status == TRM_IO ? trm_dataset_image_folder(f->data_dir, TRM_USAGE_TRAIN, data, err) : status;
}

static trm_status read_images(const flags *f, trm_dataset **data, trm_error *err) {
    static const double mean[3] = {123.68, 116.78, 103.94}, one[3] = {1, 1, 1}; /* the guide's channel means */
    const trm_transform transforms[] = {
        trm_transform_decode(false),
        trm_transform_random_resized_crop(f->image_size, f->image_size),
        trm_transform_random_flip(0.5),
        trm_transform_rescale(1, 0),
        trm_transform_normalize(mean, one),
        trm_transform_hwc2chw(),
    };
    trm_status status = open_images(f, data, err);
    if (status != TRM_OK || (status = trm_dataset_shuffle(*data, 0, err)) != TRM_OK ||
        (status = trm_dataset_map(*data, transforms, 6, err)) != TRM_OK) {
        return status;
    }
    return trm_dataset_prefetch(*data, 4, 1, err);
}

static trm_status input_fn(const flags *f, trm_dataset **data, trm_error *err) {
    const trm_random_options random = {.count = 100 * f->batch_size, .height = f->image_size, .width = f->image_size,
                                       .classes = f->num_classes};
    return f->use_synthetic_data ? trm_dataset_random(&random, data, err) : read_images(f, data, err);
}

/* ---- model ------------------------------------------------------------------------------------------ */

/* loss = reduce_sum(prediction_loss) / batch_size, the batch size of all ranks: gradients are then
 * summed. L2, 1e-4 * 2 * l2_loss(v), has the gradient 2e-4 * v; it is left to the optimiser, which
 * adds it once, after the sum over ranks. */
static trm_status make_model(const flags *f, int64_t local_batch, int32_t replicas, trm_exec **exec, trm_error *err) {
    trm_graph *g;
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &g, err);
    if (status != TRM_OK) {
        return status;
    }
    trm_node image = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(local_batch, 3, f->image_size, f->image_size));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(local_batch));
    trm_node logits = trm_resnet(g, image, &(trm_resnet_options){.depth = 50, .classes = f->num_classes});
    trm_node mean_loss = trm_softmax_cross_entropy(g, logits, label, NULL);
    trm_node loss = trm_scale(g, mean_loss, (double)local_batch / (double)f->batch_size);
    const trm_exec_options options = {
        .precision = strcmp(f->dtype, "bf16") == 0 ? TRM_PRECISION_MIXED : TRM_PRECISION_FP32,
        .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9,
                      .weight_decay = 2e-4 * (f->guide_l2 ? replicas : 1), .decay_biases = true},
        .loss = loss};
    status = trm_exec_create(g, &options, exec, err);
    trm_graph_destroy(g);
    return status;
}

/* runnable.model.variables; the guide broadcasts the trainable ones only, which leaves the running
 * statistics of batch norm as each rank has them. */
static trm_status broadcast_variables(trm_ranks *ranks, trm_exec *exec, trm_error *err) {
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < trm_exec_variable_count(exec) && status == TRM_OK; i++) {
        trm_variable v = trm_exec_variable(exec, i);
        trm_tensor value = {.dtype = v.dtype, .shape = v.shape};
        value.data = malloc((size_t)trm_tensor_bytes(&value) + 1);
        if (value.data == NULL) {
            abort();
        }
        trm_exec_read(exec, i, value.data);
        status = trm_distribute_broadcast(ranks, &value, 1, 0, err); /* + */
        trm_exec_write(exec, i, value.data);
        free(value.data);
    }
    return status;
}

/* TensorFlow's: in proportion to the batch, from 0 over the first epochs, a tenth from epochs 30,
 * 60 and 80. */
static double learning_rate(const flags *f, int64_t epoch_steps, int64_t step) {
    double rate = f->base_learning_rate * (double)f->batch_size / 256;
    double epoch = (double)step / (double)epoch_steps;
    if (epoch < f->warmup_epochs) {
        return rate * epoch / f->warmup_epochs;
    }
    return epoch < 30 ? rate : epoch < 60 ? rate * 0.1 : epoch < 80 ? rate * 0.01 : rate * 0.001;
}

/* ---- the loop --------------------------------------------------------------------------------------- */

static trm_status next(trm_dataset *data, const trm_batch **batch, trm_error *err) {
    trm_status status = trm_dataset_next(data, batch, err);
    return status == TRM_END ? trm_dataset_next(data, batch, err) : status;
}

static const trm_tensor *field(const trm_batch *batch, const char *name) {
    int32_t i = 0;
    while (strcmp(batch->fields[i].name, name) != 0) {
        i++;
    }
    return &batch->fields[i].tensor;
}

int main(int argc, char **argv) {
    flags f = {.dtype = "fp32", .batch_size = 256, .log_steps = 100, .image_size = 224, .num_classes = 1000,
               .train_epochs = 90, .warmup_epochs = 5, .base_learning_rate = 0.1};
    parse(argc, argv, &f);
    trm_ranks *ranks;
    trm_dataset *data;
    trm_exec *exec;
    int64_t local_batch;
    TRM_OR_EXIT(trm_distribute_begin(NULL, &ranks, &err));
    TRM_OR_EXIT(input_fn(&f, &data, &err));
    TRM_OR_EXIT(trm_distribute_shard_and_rebatch(ranks, data, f.batch_size, &local_batch, &err)); /* + */
    TRM_OR_EXIT(make_model(&f, local_batch, trm_distribute_size(ranks), &exec, &err));
    TRM_OR_EXIT(broadcast_variables(ranks, exec, &err));
    int64_t epoch_steps = trm_dataset_epoch_batches(data);
    if (epoch_steps == 0) {
        fprintf(stderr, "resnet50_imagenet: an epoch has fewer than --batch_size %lld images\n",
                (long long)f.batch_size);
        return 2;
    }
    int64_t steps = f.train_steps > 0 ? f.train_steps : (int64_t)(f.train_epochs * (double)epoch_steps);
    trm_tensor gradients = {.dtype = TRM_FLOAT32, .shape = {.rank = 1}};
    float *unused;
    trm_exec_ranges(exec, &unused, (float **)&gradients.data, &gradients.shape.dim[0]);
    double begin = trm_now_seconds();
    for (int64_t step = 1; step <= steps; step++) {
        const trm_batch *batch;
        TRM_OR_EXIT(next(data, &batch, &err));
        TRM_OR_EXIT(trm_exec_feed(exec, "image", field(batch, "image"), &err));
        TRM_OR_EXIT(trm_exec_feed(exec, "label", field(batch, "label"), &err));
        TRM_OR_EXIT(trm_exec_forward_backward(exec, &err));
        TRM_OR_EXIT(trm_distribute_all_reduce(ranks, &gradients, 1, TRM_REDUCTION_SUM, &err)); /* + */
        TRM_OR_EXIT(trm_exec_update(exec, learning_rate(&f, epoch_steps, step - 1), &err));
        if (step % f.log_steps == 0 || step == steps) {
            float loss = trm_exec_loss(exec);
            trm_tensor value = {.data = &loss, .dtype = TRM_FLOAT32, .shape = {.rank = 0}};
            TRM_OR_EXIT(trm_distribute_all_reduce(ranks, &value, 1, TRM_REDUCTION_SUM, &err));
            if (trm_distribute_rank(ranks) == 0) {
                printf("step %lld of %lld: loss %.6f, learning rate %.6f, %.1f images/s\n", (long long)step,
                       (long long)steps, (double)loss, learning_rate(&f, epoch_steps, step - 1),
                       (double)(step * f.batch_size) / (trm_now_seconds() - begin));
            }
        }
    }
    trm_exec_destroy(exec);
    trm_dataset_destroy(data);
    trm_distribute_end(ranks);
    return 0;
}
