/* Parameter counts and names are those of the field. */
#include "check.h"

#include "graph/graph_ir.h"
#include "trireme/models.h"

static void count(const char *name, int64_t classes, int64_t size, trm_stem stem, int64_t *elements,
                  int64_t *tensors, trm_shape *out) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(2, 3, size, size));
    trm_node y = trm_model_build(g, name, x, &(trm_network_options){.classes = classes, .stem = stem});
    CHECK_OK(trm_graph_check(g, &err), err);
    *out = trm_node_shape(g, y);
    *elements = *tensors = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_PARAMETER) {
            *elements += trm_shape_count(&g->values[g->ops[i].outputs[0]].shape);
            ++*tensors;
        }
    }
    trm_graph_destroy(g);
}

static void counts_are_torchvisions(void **state) {
    static const struct { const char *name; int64_t elements, tensors; } known[] = {
        {"resnet18", 11689512, 62},   {"resnet34", 21797672, 110}, {"resnet50", 25557032, 161},
        {"resnet101", 44549160, 314}, {"resnet152", 60192808, 467}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int64_t elements, tensors;
        trm_shape out;
        count(known[i].name, 1000, 224, TRM_STEM_IMAGENET, &elements, &tensors, &out);
        assert_int_equal(elements, known[i].elements);
        assert_int_equal(tensors, known[i].tensors);
        assert_int_equal(out.dim[1], 1000);
    }
}

static void small_models_take_small_images(void **state) {
    int64_t elements, tensors;
    trm_shape out;
    count("lenet", 10, 32, TRM_STEM_IMAGENET, &elements, &tensors, &out);
    assert_int_equal(elements, 62006); /* the usual LeNet-5 with three input channels */
    count("mlp", 7, 8, TRM_STEM_IMAGENET, &elements, &tensors, &out);
    assert_int_equal(out.dim[1], 7);
    count("resnet18", 10, 32, TRM_STEM_CIFAR, &elements, &tensors, &out);
    assert_int_equal(elements, 11173962);
}

static void names_are_torchvisions(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(1, 3, 64, 64));
    trm_resnet(g, x, &(trm_resnet_options){.depth = 50});
    char *text = trm_graph_print(g);
    static const char *const expected[] = {
        "conv1.weight [64, 3, 7, 7]", "bn1.running_var [64]", "layer1.0.downsample.0.weight [256, 64, 1, 1]",
        "layer1.0.downsample.1.bias [256]", "layer3.5.conv2.weight [256, 256, 3, 3]",
        "layer4.2.bn3.running_mean [2048]", "fc.weight [1000, 2048]", "fc.bias [1000]"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        if (strstr(text, expected[i]) == NULL) {
            fail_msg("no '%s' in the graph", expected[i]);
        }
    }
    trm_string_free(text);
    trm_graph_destroy(g);
}

static void unknown_names_are_answered(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(1, 3, 64, 64));
    trm_model_build(g, "resnet51", x, &(trm_network_options){0});
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, "resnet50");
    trm_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_torchvisions),
        cmocka_unit_test(small_models_take_small_images),
        cmocka_unit_test(names_are_torchvisions),
        cmocka_unit_test(unknown_names_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
