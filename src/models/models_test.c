/* SPDX-License-Identifier: Apache-2.0 */
/* The networks of trireme/nn.h: parameter counts and names are those of the literature and of
 * other frameworks (torchvision, transformers), so that their weights can be loaded.
 *
 * Only graphs are built, none is run. Options that cannot be must be answered by an error of the
 * graph that names them. */
#include "check.h"

#include "graph/graph_ir.h"
#include "trireme/nn.h"

/* The parameters of a network, and the shape of its logits. */
typedef struct network_size {
    int64_t elements, tensors;
    trm_shape logits;
} network_size;

/* Builds a network for images of size x size and measures it. */
static network_size measure_network(const char *name, int64_t classes, int64_t size,
                                    trm_stem stem) {
    network_size found = {0};
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(2, 3, size, size));
    trm_node y =
        trm_network_build(g, name, x, &(trm_network_options){.classes = classes, .stem = stem});
    CHECK_OK(trm_graph_check(g, &err), err);
    found.logits = trm_node_shape(g, y);
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_PARAMETER) {
            found.elements += trm_shape_count(&g->values[g->ops[i].outputs[0]].shape);
            found.tensors++;
        }
    }
    trm_graph_destroy(g);
    return found;
}

static void counts_are_torchvisions(void **state) {
    static const struct {
        const char *name;
        int64_t elements, tensors;
    } known[] = {{"resnet18", 11689512, 62},   {"resnet34", 21797672, 110},
                 {"resnet50", 25557032, 161},  {"resnet101", 44549160, 314},
                 {"resnet152", 60192808, 467}, {"vit", 86567656, 200}}; /* vit_b_16 */
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        network_size found = measure_network(known[i].name, 1000, 224, TRM_STEM_IMAGENET);
        assert_int_equal(found.elements, known[i].elements);
        assert_int_equal(found.tensors, known[i].tensors);
        assert_int_equal(found.logits.dim[1], 1000);
    }
}

static void small_models_take_small_images(void **state) {
    /* the usual LeNet-5 with three input channels */
    assert_int_equal(measure_network("lenet", 10, 32, TRM_STEM_IMAGENET).elements, 62006);
    assert_int_equal(measure_network("mlp", 7, 8, TRM_STEM_IMAGENET).logits.dim[1], 7);
    assert_int_equal(measure_network("vit", 10, 32, TRM_STEM_IMAGENET).logits.dim[1], 10);
    assert_int_equal(measure_network("resnet18", 10, 32, TRM_STEM_CIFAR).elements, 11173962);
}

/* Every layer counts; an unknown name is reported together with the known ones. */
static void depth_and_names_are_taken_as_given(void **state) {
    trm_error err;
    trm_graph *g;
    static const int64_t hidden[12] = {9, 8, 7, 6, 5, 4, 3, 2, 9, 8, 7, 6};
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(2, 5));
    trm_mlp(g, x, hidden, 12, 3);
    CHECK_OK(trm_graph_check(g, &err), err);
    char *text = trm_graph_to_string(g);
    assert_non_null(strstr(text, "fc11.weight [6, 7]"));
    assert_non_null(strstr(text, "fc12.weight [3, 6]"));
    trm_free(text);
    trm_network_build(g, "resnet51", x, &(trm_network_options){0});
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err,
                "no model 'resnet51'; there are resnet18, resnet34,");
    assert_non_null(strstr(err.message, "mlp, lenet, vit"));
    trm_graph_destroy(g);
}

static void names_are_torchvisions(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(1, 3, 64, 64));
    trm_resnet(g, x, &(trm_resnet_options){.depth = 50});
    char *text = trm_graph_to_string(g);
    static const char *const expected[] = {"conv1.weight [64, 3, 7, 7]",
                                           "bn1.running_var [64]",
                                           "layer1.0.downsample.0.weight [256, 64, 1, 1]",
                                           "layer1.0.downsample.1.bias [256]",
                                           "layer3.5.conv2.weight [256, 256, 3, 3]",
                                           "layer4.2.bn3.running_mean [2048]",
                                           "fc.weight [1000, 2048]",
                                           "fc.bias [1000]"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        if (strstr(text, expected[i]) == NULL) {
            fail_msg("no '%s' in the graph", expected[i]);
        }
    }
    trm_free(text);
    trm_graph_destroy(g);
}

/* ---- vit ---- */

static void vit_is_transformers(void **state) {
    trm_error err;
    trm_graph *g;
    static const char *const names[] = {
        "vit.embeddings.cls_token [1, 1, 192]",
        "vit.embeddings.position_embeddings [1, 50, 192]",
        "vit.embeddings.patch_embeddings.projection.weight [192, 3, 32, 32]",
        "vit.encoder.layer.0.layernorm_before.weight [192]",
        "vit.encoder.layer.11.attention.attention.key.bias [192]",
        "vit.encoder.layer.11.attention.output.dense.weight [192, 192]",
        "vit.encoder.layer.3.layernorm_after.bias [192]",
        "vit.encoder.layer.3.intermediate.dense.weight [768, 192]",
        "vit.encoder.layer.3.output.dense.weight [192, 768]",
        "vit.layernorm.weight [192]",
        "classifier.weight [7, 192]"};
    trm_vit_options o;
    CHECK_OK(trm_vit_size("tiny", &o, &err), err);
    o.patch = 32;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(2, 3, 224, 224));
    trm_node y = trm_vit(g, x, 7, &o);
    CHECK_OK(trm_graph_check(g, &err), err);
    trm_shape found = trm_node_shape(g, y), expected = trm_shape_of(2, 7);
    assert_true(trm_shape_equal(&found, &expected));
    char *text = trm_graph_to_string(g);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strstr(text, names[i]) == NULL) {
            fail_msg("vit: no '%s' in the graph", names[i]);
        }
    }
    trm_free(text);
    trm_graph_destroy(g);
}

static void wrong_vit_options_are_answered(void **state) {
    static const struct {
        trm_vit_options options;
        const char *message;
    } cases[] = {{{.width = 770}, "a width of 770 with 12 heads"},
                 {{.patch = 5}, "images of 32x32 with patches of 5x5: the patch must divide"},
                 {{.layers = -1}, "of at least 1 expected"}};
    trm_error err;
    trm_graph *g;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_OK(trm_graph_create(NULL, &g, &err), err);
        trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(2, 3, 32, 32));
        trm_vit(g, x, 10, &cases[i].options);
        CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, cases[i].message);
        trm_graph_destroy(g);
    }
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_vit(g, trm_input(g, "image", TRM_FLOAT32, trm_shape_of(2, 3)), 10, NULL);
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, "images [N, C, H, W] expected");
    trm_graph_destroy(g);
    trm_vit_options o;
    CHECK_FAILS(trm_vit_size("huge", &o, &err), TRM_INVALID, err,
                "no vit of size 'huge'; there are tiny, small, base, large");
}

/* ---- recommendation models ---- */

/* Builds a recommendation model; checks its logits, the expected parameters and the number of
 * elements. */
static void click_model(const char *name, const trm_recommender_options *options, bool bags,
                        int64_t dense, const char *const *expected, int64_t *elements) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_click_inputs in = {.batch = 8};
    in.keys = trm_input(g, "keys", TRM_INT64, bags ? trm_shape_of(40) : trm_shape_of(8, 4));
    if (bags) {
        in.offsets = trm_input(g, "offsets", TRM_INT64, trm_shape_of(33));
    }
    if (dense > 0) {
        in.dense = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(8, dense));
    }
    trm_node y = trm_recommender_build(g, name, &in, options);
    CHECK_OK(trm_graph_check(g, &err), err);
    trm_shape shape = trm_node_shape(g, y);
    assert_int_equal(shape.rank, 1);
    assert_int_equal(shape.dim[0], 8);
    char *text = trm_graph_to_string(g);
    for (; *expected != NULL; expected++) {
        if (strstr(text, *expected) == NULL) {
            fail_msg("%s: no '%s' in the graph", name, *expected);
        }
    }
    trm_free(text);
    *elements = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_PARAMETER) {
            *elements += trm_shape_count(&g->values[g->ops[i].outputs[0]].shape);
        }
    }
    trm_graph_destroy(g);
}

/* Counted by hand: 100 rows of 16, 4 fields, 3 dense inputs. */
static void click_models_are_the_papers(void **state) {
    const trm_recommender_options plain = {.rows = 100};
    int64_t n, in = 4 * 16 + 3, small[] = {8};
    click_model("widedeep", &plain, false, 3,
                (const char *[]){"embedding.weight [100, 16]", "wide.weight [100, 1]",
                                 "wide_dense.weight [1, 3]", "deep.0.weight [256, 67]",
                                 "deep.1.weight [128, 256]", "out.weight [1, 128]", NULL},
                &n);
    assert_int_equal(n, 1600 + 100 + 3 + in * 256 + 256 + 256 * 128 + 128 + 129);
    click_model("widedeep", &(trm_recommender_options){.rows = 100, .wide_dense = TRM_OFF}, true, 3,
                (const char *[]){"bag_pool", "deep.0.weight [256, 67]", NULL}, &n);
    assert_int_equal(n, 1600 + 100 + in * 256 + 256 + 256 * 128 + 128 + 129);
    click_model(
        "deepfm",
        &(trm_recommender_options){.rows = 100, .width = 4, .hidden = small, .hidden_count = 1},
        false, 0, (const char *[]){"deep.0.weight [8, 16]", NULL}, &n);
    assert_int_equal(n, 400 + 100 + 16 * 8 + 8 + 9);
    click_model("dcnv2",
                &(trm_recommender_options){
                    .rows = 100, .hidden = small, .hidden_count = 1, .cross_layers = 2},
                false, 3, (const char *[]){"cross.1.weight [67, 67]", "out.weight [1, 75]", NULL},
                &n);
    assert_int_equal(n, 1600 + 2 * (in * in + in) + in * 8 + 8 + in + 8 + 1);
    click_model(
        "dcnv2",
        &(trm_recommender_options){.rows = 100,
                                   .hidden = small,
                                   .hidden_count = 1,
                                   .cross_layers = 2,
                                   .cross_rank = 5,
                                   .stacked = true},
        false, 3,
        (const char *[]){"cross.0.v [5, 67]", "cross.0.u [67, 5]", "out.weight [1, 8]", NULL}, &n);
    assert_int_equal(n, 1600 + 2 * (2 * 5 * in + in) + in * 8 + 8 + 9);
    click_model("dlrm", &plain, false, 3,
                (const char *[]){"bottom.0.weight [512, 3]", "bottom.2.weight [64, 256]",
                                 "bottom.out.weight [16, 64]", "top.0.weight [512, 26]",
                                 "top.1.weight [256, 512]", "out.weight [1, 256]", NULL},
                &n);
    assert_int_equal(n,
                     1600 + 4 * 512 + 513 * 256 + 257 * 64 + 65 * 16 + 27 * 512 + 513 * 256 + 257);
    click_model("dlrm", &plain, true, 0,
                (const char *[]){"bag_pool", "top.0.weight [512, 6]", NULL}, &n);
}

/* 4 fields: 0 and 2 share 50 rows of 4, 1 and 3 have rows of their own. */
static const int32_t click_fields[] = {0, 2, 1, 3};

static void fields_have_tables(void **state) {
    const trm_field_table tables[] = {
        {.name = "user", .fields = click_fields, .count = 2, .rows = 50, .width = 4},
        {.name = "b", .fields = click_fields + 2, .count = 1, .init = TRM_INIT_NORMAL_002},
        {.name = "c", .fields = click_fields + 3, .count = 1, .rows = 7}};
    const int64_t small[] = {8};
    int64_t n, in = 2 * 4 + 2 * 16;
    trm_recommender_options o = {
        .rows = 100, .tables = tables, .tables_count = 3, .hidden = small, .hidden_count = 1};
    click_model("widedeep", &o, false, 0,
                (const char *[]){"embedding.user.weight [50, 4]", "embedding.b.weight [100, 16]",
                                 "embedding.c.weight [7, 16]", "wide.user.weight [50, 1]",
                                 "wide.c.weight [7, 1]", "deep.0.weight [8, 40]", NULL},
                &n);
    assert_int_equal(n, 50 * 4 + 107 * 16 + 157 + in * 8 + 8 + 9);
    o.width = 4;
    trm_field_table alike[3];
    memcpy(alike, tables, sizeof alike);
    alike[1].width = alike[2].width = 4;
    o.tables = alike;
    click_model("dlrm", &o, false, 3,
                (const char *[]){"bottom.out.weight [4, 64]", "top.0.weight [8, 14]", NULL}, &n);
    click_model("deepfm", &o, false, 3, (const char *[]){"deep.0.weight [8, 19]", NULL}, &n);
}

/* Wrong tables of fields are reported. */
static void wrong_tables_of_fields_are_answered(void **state) {
    static const int32_t fields[] = {0, 1, 2, 3, 4, 2};
    static const struct {
        trm_field_table tables[2];
        const char *model, *says;
        bool bags;
    } cases[] = {
        {{{.name = "a", .fields = fields, .count = 5}}, "widedeep", "that the data has not", false},
        {{{.name = "a", .fields = fields + 2, .count = 4}},
         "widedeep",
         "that the data has not",
         false},
        {{{.name = "a", .fields = fields, .count = 3}},
         "widedeep",
         "a field is in no table",
         false},
        {{{.name = "a", .fields = fields, .count = 3},
          {.name = "a", .fields = fields + 3, .count = 1}},
         "widedeep",
         "two of this name",
         false},
        {{{.name = "a", .fields = fields, .count = 3, .width = 8},
          {.name = "b", .fields = fields + 3, .count = 1}},
         "dlrm",
         "rows of one width",
         false},
        {{{.name = "a", .fields = fields, .count = 0}}, "widedeep", "at least one field", false},
        {{{.name = "a", .fields = fields, .count = 4}}, "widedeep", "bags are of one table", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trm_error err;
        trm_graph *g;
        CHECK_OK(trm_graph_create(NULL, &g, &err), err);
        trm_click_inputs in = {.batch = 8};
        in.keys =
            trm_input(g, "keys", TRM_INT64, cases[i].bags ? trm_shape_of(40) : trm_shape_of(8, 4));
        in.offsets =
            cases[i].bags ? trm_input(g, "offsets", TRM_INT64, trm_shape_of(33)) : TRM_NO_NODE;
        trm_recommender_build(
            g, cases[i].model, &in,
            &(trm_recommender_options){.rows = 9,
                                       .tables = cases[i].tables,
                                       .tables_count = cases[i].tables[1].name != NULL ? 2 : 1});
        CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, cases[i].says);
        trm_graph_destroy(g);
    }
}

static void wrong_click_models_are_answered(void **state) {
    trm_error err;
    static const char *const said[] = {"widedeep, deepfm", "no keys", "at least one row",
                                       "keys [N, F]"};
    for (int i = 0; i < 4; i++) {
        trm_graph *g;
        CHECK_OK(trm_graph_create(NULL, &g, &err), err);
        trm_click_inputs in = {
            .keys = trm_input(g, "keys", TRM_INT64, i == 3 ? trm_shape_of(8) : trm_shape_of(8, 4))};
        in.keys = i == 1 ? TRM_NO_NODE : in.keys;
        trm_recommender_build(g, i == 0 ? "deepwide" : "dlrm", &in,
                              &(trm_recommender_options){.rows = i == 2 ? 0 : 9});
        CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, said[i]);
        trm_graph_destroy(g);
    }
}

static void unknown_names_are_answered(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(1, 3, 64, 64));
    trm_network_build(g, "resnet51", x, &(trm_network_options){0});
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, "resnet50");
    trm_graph_destroy(g);
}

/* ---- language models ---- */

static int64_t language_elements(const char *model, const trm_language_options *options,
                                 const char *const *expected) {
    trm_error err;
    trm_graph *g;
    int64_t elements = 0;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node ids = trm_input(g, "tokens", TRM_INT32, trm_shape_of(2, 16)),
             targets = trm_input(g, "targets", TRM_INT32, trm_shape_of(2, 16));
    trm_node loss = trm_language_loss(g, model, ids, targets, options);
    CHECK_OK(trm_graph_check(g, &err), err);
    assert_int_equal(trm_node_shape(g, loss).rank, 0);
    char *text = trm_graph_to_string(g);
    for (; expected != NULL && *expected != NULL; expected++) {
        if (strstr(text, *expected) == NULL) {
            fail_msg("%s: no '%s' in the graph", model, *expected);
        }
    }
    trm_free(text);
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_PARAMETER) {
            elements += trm_shape_count(&g->values[g->ops[i].outputs[0]].shape);
        }
    }
    trm_graph_destroy(g);
    return elements;
}

static void gpt2_is_transformers(void **state) {
    trm_error err;
    trm_language_options o = {0};
    static const char *const names[] = {"wte.weight [50257, 768]",
                                        "wpe.weight [1024, 768]",
                                        "h.0.ln_1.weight [768]",
                                        "h.11.attn.c_attn.weight [768, 2304]",
                                        "h.11.attn.c_attn.bias [2304]",
                                        "h.11.attn.c_proj.weight [768, 768]",
                                        "h.3.ln_2.bias [768]",
                                        "h.3.mlp.c_fc.weight [768, 3072]",
                                        "h.3.mlp.c_proj.weight [3072, 768]",
                                        "ln_f.bias [768]",
                                        NULL};
    assert_int_equal(language_elements("gpt2", NULL, names), 124439808);
    static const struct {
        const char *name;
        int64_t elements;
    } known[] = {
        {"small", 124439808}, {"medium", 354823168}, {"large", 774030080}, {"xl", 1557611200}};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(trm_language_size("gpt2", known[i].name, &o, &err), err);
        assert_int_equal(language_elements("gpt2", &o, NULL), known[i].elements);
    }
    CHECK_FAILS(trm_language_size("gpt2", "huge", &o, &err), TRM_INVALID, err,
                "no gpt2 of size 'huge'; there are small, gpt2, medium, large, xl, tiny");
    /* two key heads for four query heads, another hidden width */
    o = (trm_language_options){.layers = 1,
                               .width = 64,
                               .heads = 4,
                               .kv_heads = 2,
                               .hidden = 100,
                               .context = 16,
                               .vocabulary = 65};
    static const char *const grouped[] = {"h.0.attn.c_attn.weight [64, 128]",
                                          "h.0.mlp.c_fc.weight [64, 100]", NULL};
    language_elements("gpt2", &o, grouped);
}

static void bert_is_transformers(void **state) {
    trm_error err;
    trm_language_options o = {0};
    static const char *const names[] = {
        "bert.embeddings.word_embeddings.weight [30522, 768]",
        "bert.embeddings.position_embeddings.weight [512, 768]",
        "bert.embeddings.token_type_embeddings.weight [2, 768]",
        "bert.embeddings.LayerNorm.bias [768]",
        "bert.encoder.layer.11.attention.self.query.weight [768, 768]",
        "bert.encoder.layer.11.attention.output.dense.bias [768]",
        "bert.encoder.layer.0.attention.output.LayerNorm.weight [768]",
        "bert.encoder.layer.0.intermediate.dense.weight [3072, 768]",
        "bert.encoder.layer.0.output.LayerNorm.weight [768]",
        "cls.predictions.transform.dense.weight [768, 768]",
        "cls.predictions.transform.LayerNorm.weight [768]",
        "cls.predictions.bias [30522]",
        NULL};
    assert_int_equal(language_elements("bert", NULL, names), 109514298);
    CHECK_OK(trm_language_size("bert", "tiny", &o, &err), err);
    assert_int_equal(language_elements("bert", &o, NULL), 4416698);
    assert_true(trm_language_is_masked("bert") && !trm_language_is_masked("gpt2"));
    assert_false(trm_language_is_masked("lenet"));
}

/* Returns the share of the rows that the loss of a bert on samples of 16 tokens expects to count.
 */
static double counted_share(double masking) {
    trm_error err;
    trm_graph *g;
    double share = -1;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node ids = trm_input(g, "tokens", TRM_INT32, trm_shape_of(2, 16)),
             targets = trm_input(g, "targets", TRM_INT32, trm_shape_of(2, 16));
    trm_language_loss(g, "bert", ids, targets, &(trm_language_options){.masking = masking});
    CHECK_OK(trm_graph_check(g, &err), err);
    for (int64_t i = 1; i < g->ops_count; i++) {
        share = g->ops[i].kind == TRMI_OP_LINEAR_XENT ? g->ops[i].attrs.xent.counted_share : share;
    }
    trm_graph_destroy(g);
    return share;
}

/* As many tokens of a sample count as the data chooses: rounded, at least one. */
static void loss_expects_masked_tokens(void **state) {
    (void)state;
    assert_true(counted_share(0) == 0);
    assert_true(counted_share(0.15) == 2.0 / 16);
    assert_true(counted_share(0.01) == 1.0 / 16);
}

/* Only models of masked tokens have a mask of keys. */
static void masks_are_answered(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node ids = trm_input(g, "tokens", TRM_INT32, trm_shape_of(2, 16)),
             mask = trm_input(g, "mask", TRM_INT32, trm_shape_of(2, 16));
    const trm_language_options o = {.mask = mask};
    assert_int_equal(trm_node_shape(g, trm_language_build(g, "bert", ids, &o)).dim[2], 30522);
    CHECK_OK(trm_graph_check(g, &err), err);
    trm_language_build(g, "gpt2", ids, &o);
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, "gpt2: a mask of keys");
    trm_graph_destroy(g);
}

static void wrong_gpt2_options_are_answered(void **state) {
    static const struct {
        trm_language_options options;
        const char *message;
    } cases[] = {{{.width = 770}, "a width of 770 with 12 heads and 12 key heads"},
                 {{.kv_heads = 5}, "with 12 heads and 5 key heads"},
                 {{.context = 8}, "16 tokens of a sample, a context of at most 8 expected"},
                 {{.masking = 1}, "masking 1, 0 <= masking < 1 expected"},
                 {{.layers = -1}, "of at least 1 expected"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trm_error err;
        trm_graph *g;
        CHECK_OK(trm_graph_create(NULL, &g, &err), err);
        trm_language_build(g, "gpt2", trm_input(g, "tokens", TRM_INT32, trm_shape_of(2, 16)),
                           &cases[i].options);
        CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, cases[i].message);
        trm_graph_destroy(g);
    }
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_language_build(g, "gpt2", trm_input(g, "tokens", TRM_INT32, trm_shape_of(16)), NULL);
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err,
                "token ids [batch, context] expected, found [16]");
    trm_graph_destroy(g);
}

static void only_parameters_are_excluded_from_decay(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node w = trm_parameter(g, "w", trm_shape_of(2, 3), TRM_INIT_ZERO);
    assert_int_equal(trm_exclude_from_decay(g, w).id, w.id);
    CHECK_OK(trm_graph_check(g, &err), err);
    assert_int_equal(trm_exclude_from_decay(g, trm_add(g, w, w)).id, 0);
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, "is no parameter");
    trm_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_torchvisions),
        cmocka_unit_test(small_models_take_small_images),
        cmocka_unit_test(depth_and_names_are_taken_as_given),
        cmocka_unit_test(names_are_torchvisions),
        cmocka_unit_test(vit_is_transformers),
        cmocka_unit_test(wrong_vit_options_are_answered),
        cmocka_unit_test(unknown_names_are_answered),
        cmocka_unit_test(click_models_are_the_papers),
        cmocka_unit_test(wrong_click_models_are_answered),
        cmocka_unit_test(fields_have_tables),
        cmocka_unit_test(wrong_tables_of_fields_are_answered),
        cmocka_unit_test(gpt2_is_transformers),
        cmocka_unit_test(bert_is_transformers),
        cmocka_unit_test(loss_expects_masked_tokens),
        cmocka_unit_test(masks_are_answered),
        cmocka_unit_test(wrong_gpt2_options_are_answered),
        cmocka_unit_test(only_parameters_are_excluded_from_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
