/* SPDX-License-Identifier: Apache-2.0 */
/* Writes networks as ONNX, with images and the logits that they give here, for
 * tests/onnx_export_test.sh
 * to compare with a runtime that we did not write:
 *     onnx_export_test DIR        without DIR: into a folder that is removed, read back by our reader
 */
#include "check.h"

#include "trireme/data.h"
#include "trireme/train.h"
#include "trireme/nn.h"
#include "trireme/io.h"

#include "base/os.h"
#include "base/rng.h"
#include "save/formats/onnx.h"

#include <unistd.h>

enum { BATCH = 4, SIZE = 32, CLASSES = 10, FIELDS = 5, ROWS = 100 };
static char folder[128];

/* ---- networks -------------------------------------------------------------------------------- */

static trm_node build_named(trm_graph *g, const trm_inputs *in, void *context) {
    return trm_network_build(g, context, trm_inputs_get(in, "image"),
                             &(trm_network_options){.classes = CLASSES});
}

/* Each operator that has a form in ONNX, once at least. */
static trm_node build_everything(trm_graph *g, const trm_inputs *in, void *context) {
    trm_node x = trm_inputs_get(in, "image");
    trm_node w = trm_parameter(g, "conv.weight", trm_shape_of(8, 3, 3, 5), TRM_INIT_HE_UNIFORM);
    trm_node b = trm_parameter(g, "conv.bias", trm_shape_of(8), TRM_INIT_LINEAR);
    x = trm_conv2d(g, x, w, b,
                   &(trm_conv_options){.stride = {2, 1}, .dilation = {1, 2}, .pad = {1, 0, 3, 2}});
    trm_node depth =
        trm_parameter(g, "depth.weight", trm_shape_of(8, 2, 3, 3), TRM_INIT_HE_UNIFORM);
    x = trm_conv2d(g, x, depth, TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}, .groups = 4});
    x = trm_max_pool(g, x,
                     &(trm_pool_options){.kernel = {3, 2}, .stride = {2, 2}, .pad = {1, 0, 0, 1}});
    trm_node padded = trm_avg_pool(
        g, x,
        &(trm_pool_options){
            .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1, 1, 1}, .count_padding = true});
    trm_node plain = trm_avg_pool(
        g, x, &(trm_pool_options){.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1, 1, 1}});
    trm_node both[] = {padded, trm_sigmoid(g, plain)};
    x = trm_concat(g, both, 2, 1);
    x = trm_slice(g, x, (int64_t[]){0, 2, 0, 1}, (int64_t[]){BATCH, 12, 6, 14});
    x = trm_pad(g, x, (int64_t[]){0, 1, 0, 0}, (int64_t[]){0, 3, 2, 0}, 0.25);
    x = trm_transpose(g, x, (int32_t[]){0, 2, 3, 1});
    trm_node mean = trm_reduce_mean(g, x, (int32_t[]){1, 2}, 2, false);
    trm_node high = trm_reduce_max(g, x, (int32_t[]){1, 2}, 2, false);
    trm_node sum =
        trm_reshape(g, trm_reduce_sum(g, x, (int32_t[]){1, 2}, 2, true), trm_shape_of(BATCH, 16));
    trm_node y = trm_add(g, trm_mul(g, mean, high), trm_tanh(g, trm_scale(g, sum, 0.01)));
    y = trm_div(g, y, trm_sqrt(g, trm_exp(g, trm_relu(g, trm_sub(g, y, mean)))));
    y = trm_dropout(g, y, 0.5);
    trm_node m = trm_parameter(g, "m", trm_shape_of(CLASSES, 16), TRM_INIT_LINEAR);
    trm_node table = trm_parameter(g, "table", trm_shape_of(CLASSES, CLASSES), TRM_INIT_LINEAR);
    const int32_t ids[1] = {3};
    trm_node id = trm_constant(g, &(trm_tensor){(void *)ids, TRM_INT32, trm_shape_of(1)});
    trm_node rows = trm_add(g, trm_embedding(g, table, id), trm_one_hot(g, id, CLASSES, 2, -1));
    trm_node logits = trm_add(g, trm_matmul(g, y, m, false, true), rows);
    return trm_log(g, trm_softmax(g, trm_cast(g, logits, TRM_FLOAT32)));
}

/* The operators of transformers, on an image as 48 tokens of 64 numbers. */
static trm_node build_transformer(trm_graph *g, const trm_inputs *in, void *context) {
    trm_shape c = trm_shape_of(64);
    trm_node x = trm_reshape(g, trm_inputs_get(in, "image"), trm_shape_of(BATCH, 48, 64));
    x = trm_layer_norm(g, x, trm_parameter(g, "ln.weight", c, TRM_INIT_LINEAR),
                       trm_parameter(g, "ln.bias", c, TRM_INIT_LINEAR), 0);
    trm_node qkv = trm_linear_by_inputs(
        g, x, trm_parameter(g, "qkv.weight", trm_shape_of(64, 128), TRM_INIT_LINEAR),
        trm_parameter(g, "qkv.bias", trm_shape_of(128), TRM_INIT_LINEAR));
    const trm_attention_options causal = {.causal = true};
    trm_node y = trm_attention_packed(g, qkv, 4, 2, TRM_NO_NODE, &causal);
    trm_node q = trm_rotary(g, trm_reshape(g, y, trm_shape_of(BATCH, 48, 4, 16)), 100, 3);
    trm_node k = trm_reshape(
        g,
        trm_linear(g, x, trm_parameter(g, "k.weight", trm_shape_of(32, 64), TRM_INIT_LINEAR),
                   trm_parameter(g, "k.bias", trm_shape_of(32), TRM_INIT_LINEAR)),
        trm_shape_of(BATCH, 48, 2, 16));
    y = trm_attention(g, q, k, trm_tanh(g, k), TRM_NO_NODE, NULL);
    trm_node scores = trm_matmul(g, y, q, false, true); /* [B, 48, 4, 4] */
    y = trm_add(g, y, trm_matmul(g, scores, q, true, false));
    y = trm_rms_norm(g, trm_reshape(g, y, trm_shape_of(BATCH, 48, 64)),
                     trm_parameter(g, "rms.weight", c, TRM_INIT_LINEAR), 0);
    y = trm_add(g, trm_gelu(g, y, TRM_GELU_ERF), trm_gelu(g, x, TRM_GELU_TANH));
    y = trm_add(g, trm_silu(g, y), trm_swiglu(g, y, x));
    const trm_experts experts = {
        .router = trm_parameter(g, "router", trm_shape_of(4, 64), TRM_INIT_LINEAR),
        .gate = trm_parameter(g, "gate", trm_shape_of(4, 24, 64), TRM_INIT_LINEAR),
        .up = trm_parameter(g, "up", trm_shape_of(4, 24, 64), TRM_INIT_LINEAR),
        .down = trm_parameter(g, "down", trm_shape_of(4, 64, 24), TRM_INIT_LINEAR)};
    y = trm_add(g, y, trm_mixture_of_experts(g, y, &experts, NULL));
    y = trm_reduce_mean(g, y, (int32_t[]){1}, 1, false);
    return trm_linear(g, y, trm_parameter(g, "out", trm_shape_of(CLASSES, 64), TRM_INIT_LINEAR),
                      TRM_NO_NODE);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void fill_random(float *values, int64_t count, uint64_t stream, float low, float high) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = low + (high - low) * trmi_unit_float(trmi_random_u32(stream, TRMI_STREAM_TEST,
                                                                         (uint64_t)i));
    }
}

/* Running statistics as after training, so that batch norm is no identity. */
static void randomise_states(trm_exec *exec) {
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind == TRM_VARIABLE_STATE && v.dtype == TRM_FLOAT32) {
            int64_t count = trm_shape_count(&v.shape);
            float *values = malloc((size_t)count * sizeof *values);
            bool mean = strstr(v.name, "mean") != NULL;
            fill_random(values, count, (uint64_t)i, mean ? -0.2f : 0.5f, mean ? 0.2f : 1.5f);
            trm_exec_write(exec, i, values);
            free(values);
        }
    }
}

static trm_node build_clicks(trm_graph *g, const trm_inputs *in, void *context) {
    const trm_click_inputs inputs = {
        .keys = trm_inputs_get(in, "keys"), .dense = trm_inputs_get(in, "dense"), .batch = BATCH};
    return trm_recommender_build(
        g, context, &inputs,
        &(trm_recommender_options){.rows = ROWS, .width = 8, .table_init = TRM_INIT_LINEAR});
}

static void fill_input(trm_tensor *t, uint64_t stream) {
    int64_t count = trm_shape_count(&t->shape);
    for (int64_t i = 0; t->dtype == TRM_INT64 && i < count; i++) {
        ((int64_t *)t->data)[i] =
            trmi_random_u32(stream, TRMI_STREAM_TEST, (uint64_t)i) % (uint32_t)ROWS;
    }
    if (t->dtype == TRM_FLOAT32) {
        fill_random(t->data, count, stream, -2, 2);
    }
}

/* Writes NAME.onnx, each of its inputs as NAME.in.INPUT.npy and the logits as NAME.logits.npy.
 * `inputs`: the names that the file must have. Takes the dataset. */
static void write_model(const char *name, const trm_model_options *options,
                        const char *const *inputs, int32_t count) {
    trm_error err;
    trm_model *model;
    trm_tensor t;
    char path[256], file[256];
    CHECK_OK(trm_dataset_batch(options->data, BATCH, true, &err), err);
    CHECK_OK(trm_model_create(options, &model, &err), err);
    trm_exec *exec = trm_model_exec(model);
    randomise_states(exec);
    snprintf(file, sizeof file, "%s/%s.onnx", folder, name);
    CHECK_OK(trm_export_onnx(model, file, &err), err);
    trmi_onnx_model *read;
    CHECK_OK(trmi_onnx_open(file, &read, &err), err);
    assert_int_equal(read->input_count, count);
    for (int32_t i = 0; i < count; i++) {
        assert_string_equal(read->inputs[i].name, inputs[i]);
        assert_string_equal(read->inputs[i].dims[0].symbol, "N");
        CHECK_OK(trm_exec_input(exec, inputs[i], &t, &err), err);
        fill_input(&t, 99 + (uint64_t)i);
        snprintf(path, sizeof path, "%s/%s.in.%s.npy", folder, name, inputs[i]);
        CHECK_OK(trm_npy_write(path, &t, &err), err);
    }
    assert_string_equal(read->outputs[0].name, "logits");
    trmi_onnx_destroy(read);
    CHECK_OK(trm_exec_forward(exec, &err), err);
    CHECK_OK(trm_exec_output(exec, 0, &t, &err), err);
    snprintf(path, sizeof path, "%s/%s.logits.npy", folder, name);
    CHECK_OK(trm_npy_write(path, &t, &err), err);
    trm_model_destroy(model);
    trm_dataset_destroy(options->data);
}

static void write_case(const char *name, trm_network network, void *context) {
    trm_error err;
    trm_model_options options = {
        .network = network, .network_context = context, .evaluation_only = true, .exec.seed = 5};
    const trm_random_options random = {.count = BATCH, .height = SIZE, .width = SIZE};
    CHECK_OK(trm_dataset_random(&random, &options.data, &err), err);
    write_model(name, &options, (const char *const[]){"image"}, 1);
}

static void write_clicks(const char *name) {
    trm_error err;
    trm_model_options options = {.network = build_clicks,
                                 .network_context = (void *)(uintptr_t)name,
                                 .loss = trm_loss_logistic,
                                 .evaluation_only = true,
                                 .exec.seed = 5};
    const trm_click_random_options random = {
        .count = BATCH, .fields = FIELDS, .dense = 3, .vocabulary = ROWS / FIELDS};
    CHECK_OK(trm_dataset_random_clicks(&random, &options.data, &err), err);
    write_model(name, &options, (const char *const[]){"keys", "dense"}, 2);
}

static void models_are_written(void **state) {
    write_case("lenet", build_named, "lenet");
    write_case("mlp", build_named, "mlp");
    write_case("resnet18", build_named, "resnet18");
    write_case("resnet50", build_named, "resnet50");
}

static void recommenders_are_written(void **state) {
    static const char *const names[] = {"widedeep", "deepfm", "dcnv2", "dlrm"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        write_clicks(names[i]);
    }
}

static void every_operator_is_written(void **state) {
    write_case("everything", build_everything, NULL);
    write_case("transformer", build_transformer, NULL);
}

/* Defines an operator without a form in ONNX: the export's error must name it, and no file may
 * appear. */
static trm_status same_shape(const trm_custom_op *self, const trm_tensor *in, int32_t count,
                             trm_tensor *out, trm_error *err) {
    out[0] = in[0];
    return TRM_OK;
}
static trm_status copy_values(const trm_custom_op *self, const trm_tensor *in, int32_t count,
                              trm_tensor *out, trm_error *err) {
    memcpy(out[0].data, in[0].data, (size_t)trm_tensor_bytes(&in[0]));
    return TRM_OK;
}
static const trm_custom_op identity = {
    .name = "mine", .outputs = 1, .infer = same_shape, .run = copy_values};
static trm_node with_custom(trm_graph *g, const trm_inputs *in, void *context) {
    trm_node x = trm_global_avg_pool(g, trm_inputs_get(in, "image")), y;
    trm_custom(g, &identity, &x, 1, &y);
    return y;
}
static void other_operators_are_named(void **state) {
    trm_error err;
    trm_dataset *data;
    trm_model *model;
    char path[256];
    const trm_random_options random = {.count = BATCH, .height = SIZE, .width = SIZE, .classes = 3};
    CHECK_OK(trm_dataset_random(&random, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, BATCH, true, &err), err);
    trm_model_options options = {.network = with_custom, .data = data, .evaluation_only = true};
    CHECK_OK(trm_model_create(&options, &model, &err), err);
    snprintf(path, sizeof path, "%s/custom.onnx", folder);
    CHECK_FAILS(trm_export_onnx(model, path, &err), TRM_UNSUPPORTED, err, "no form in ONNX");
    assert_int_not_equal(access(path, F_OK), 0);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_written),
        cmocka_unit_test(recommenders_are_written),
        cmocka_unit_test(every_operator_is_written),
        cmocka_unit_test(other_operators_are_named),
    };
    if (argc > 1) {
        snprintf(folder, sizeof folder, "%s", argv[1]);
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    trm_error err;
    strcpy(folder, "/tmp/trireme_onnx_XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + (trmi_os_remove_tree(NULL, folder, &err) != TRM_OK);
}
