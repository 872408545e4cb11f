/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the operator table: shape rules, what they refuse with one sentence that has both
 * shapes, costs; scopes and initial values.
 *
 * Each refusal is a case with the words that its message must have. Gradients are checked in
 * exec/ref/ref_gradient_test.c, values in ref_golden_test.c. */
#include "check.h"

#include "base/rng.h"
#include "graph/graph_ir.h"

static trm_graph *graph;
static int named;

static trm_node add_input(trm_dtype dtype, trm_shape shape) {
    char name[16];
    snprintf(name, sizeof name, "in%d", named++);
    return trm_input(graph, name, dtype, shape);
}
static trm_node add_float(trm_shape shape) { return add_input(TRM_FLOAT32, shape); }

static trm_custom_op custom;
static trm_status no_shape(const trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                           trm_tensor *outputs, trm_error *err) {
    return TRM_OK;
}
static trm_status run_nothing(const trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                              trm_tensor *outputs, trm_error *err) {
    return TRM_INVALID;
}
static trm_status no_run(const trm_custom_op *self, const trm_tensor *inputs, int32_t count,
                         trm_tensor *outputs, trm_error *err) {
    return TRM_OK;
}

/* Builds the wrong expression number `index` of the operators of transformers. */
static void build_transformer(int index) {
    trm_node none = TRM_NO_NODE;
    /* clang-format off */
    switch (index) {
    case 52: trm_matmul(graph, add_float(trm_shape_of(2, 3, 4, 6)), add_float(trm_shape_of(2, 2, 6, 4)), false, false); break;
    case 53: trm_linear_by_inputs(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(5, 6)), none); break;
    case 54: trm_layer_norm(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(6)), add_float(trm_shape_of(5)), 0); break;
    case 55: trm_rms_norm(graph, add_float((trm_shape){0}), add_float(trm_shape_of(6)), 0); break;
    case 56: trm_layer_norm(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(6)), add_float(trm_shape_of(6)), -1); break;
    case 57: trm_swiglu(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(4, 5))); break;
    case 58:
        trm_attention(graph, add_float(trm_shape_of(2, 5, 4, 8)), add_float(trm_shape_of(2, 5, 3, 8)), add_float(trm_shape_of(2, 5, 3, 8)), none, NULL);
        break;
    case 59:
        trm_attention(graph, add_float(trm_shape_of(2, 5, 4, 8)), add_float(trm_shape_of(2, 3, 4, 8)), add_float(trm_shape_of(2, 3, 4, 8)), none,
                      &(trm_attention_options){.causal = true});
        break;
    case 60:
        trm_attention(graph, add_float(trm_shape_of(2, 5, 4, 8)), add_float(trm_shape_of(2, 3, 4, 8)), add_float(trm_shape_of(2, 3, 4, 8)),
                      add_input(TRM_INT32, trm_shape_of(2, 5)), NULL);
        break;
    case 61: trm_attention(graph, add_float(trm_shape_of(2, 5, 4, 8)), none, none, none, NULL); break;
    case 62: trm_attention_packed(graph, add_float(trm_shape_of(2, 5, 25)), 4, 2, none, NULL); break;
    case 63: trm_attention_packed(graph, add_float(trm_shape_of(2, 5, 24)), 0, 0, none, NULL); break;
    case 64: trm_rotary(graph, add_float(trm_shape_of(2, 5, 7)), 0, 0); break;
    case 65: trm_rotary(graph, add_float(trm_shape_of(2, 5, 8)), -1, 0); break;
    case 66:
        trm_linear_cross_entropy(graph, add_float(trm_shape_of(2, 5, 8)), add_float(trm_shape_of(11, 8)), add_input(TRM_INT32, trm_shape_of(10)), NULL);
        break;
    case 67:
        trm_linear_cross_entropy(graph, add_float(trm_shape_of(5, 8)), add_float(trm_shape_of(11, 8)), add_input(TRM_INT32, trm_shape_of(5)),
                                 &(trm_xent_options){.label_smoothing = 0.1});
        break;
    case 68: trm_top_values(graph, add_float(trm_shape_of(2, 5)), 6, &none); break;
    case 69:
        trm_expert_linear(graph, add_float(trm_shape_of(2, 5, 8)), add_float(trm_shape_of(3, 4, 8)), add_input(TRM_INT32, trm_shape_of(2, 4)));
        break;
    case 70:
        trm_linear_cross_entropy(graph, add_float(trm_shape_of(5, 8)), add_float(trm_shape_of(11, 8)), add_input(TRM_INT32, trm_shape_of(5)),
                                 &(trm_xent_options){.counted_share = 1.5});
        break;
    default: fail();
    }
    /* clang-format on */
}

/* Builds the wrong expression number `index`. */
static void build_wrong(int index) {
    trm_node none = TRM_NO_NODE, out[4];
    trm_shape x4 = trm_shape_of(2, 3, 5, 5);
    trm_conv_options conv = {.groups = 2};
    trm_pool_options pool = {.kernel = {2, 2}, .pad = {2, 0, 0, 0}};
    int64_t begin[] = {1, 0}, size[] = {2, 3}, minus[] = {-1, 0};
    int32_t axis = 2, order[] = {0, 0};
    trm_norm_options norm = {.momentum = 1.5};
    trm_node pair[2];
    /* clang-format off */
    switch (index) {
    case 0: trm_add(graph, add_float(trm_shape_of(2, 3)), add_float(trm_shape_of(2, 4))); break;
    case 1: trm_add(graph, add_float(trm_shape_of(2)), add_input(TRM_INT32, trm_shape_of(2))); break;
    case 2: trm_mul(graph, add_float(trm_shape_of(2)), none); break;
    case 3: trm_conv2d(graph, add_float(x4), add_float(trm_shape_of(8, 3, 3, 3)), none, &conv); break;
    case 4: trm_conv2d(graph, add_float(x4), add_float(trm_shape_of(8, 4, 3, 3)), none, NULL); break;
    case 5: trm_conv2d(graph, add_float(x4), add_float(trm_shape_of(8, 3, 7, 7)), none, NULL); break;
    case 6: trm_conv2d(graph, add_float(x4), add_float(trm_shape_of(8, 3, 3, 3)), add_float(trm_shape_of(7)), NULL); break;
    case 7: trm_conv2d(graph, add_float(trm_shape_of(3, 5, 5)), add_float(trm_shape_of(8, 3, 3, 3)), none, NULL); break;
    case 8:
        conv = (trm_conv_options){.stride = {-1, 1}};
        trm_conv2d(graph, add_float(x4), add_float(trm_shape_of(8, 3, 3, 3)), none, &conv);
        break;
    case 9: trm_linear(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(5, 7)), none); break;
    case 10: trm_linear(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(5, 6)), add_float(trm_shape_of(4))); break;
    case 11: trm_matmul(graph, add_float(trm_shape_of(4, 6)), add_float(trm_shape_of(4, 6)), false, false); break;
    case 12: trm_matmul(graph, add_float(trm_shape_of(2, 4, 6)), add_float(trm_shape_of(3, 6, 4)), false, false); break;
    case 13:
        trm_batch_norm(graph, add_float(x4), add_float(trm_shape_of(3)), add_float(trm_shape_of(4)), add_float(trm_shape_of(3)),
                       add_float(trm_shape_of(3)), NULL);
        break;
    case 14:
        trm_batch_norm(graph, add_float(x4), add_float(trm_shape_of(3)), add_float(trm_shape_of(3)), add_float(trm_shape_of(3)),
                       add_float(trm_shape_of(3)), &norm);
        break;
    case 15: trm_max_pool(graph, add_float(x4), &pool); break;
    case 16: trm_avg_pool(graph, add_float(trm_shape_of(2, 3)), &(trm_pool_options){.kernel = {2, 2}}); break;
    case 17: trm_max_pool(graph, add_float(x4), &(trm_pool_options){.kernel = {9, 1}}); break;
    case 18: trm_global_avg_pool(graph, add_float(trm_shape_of(2, 3, 0, 5))); break;
    case 19: trm_reshape(graph, add_float(trm_shape_of(4, 6)), trm_shape_of(5, -1)); break;
    case 20: trm_reshape(graph, add_float(trm_shape_of(4, 6)), trm_shape_of(-1, -1)); break;
    case 21: trm_reshape(graph, add_float(trm_shape_of(4, 6)), trm_shape_of(INT64_MAX, 3, -1)); break;
    case 22: trm_transpose(graph, add_float(trm_shape_of(4, 6)), order); break;
    case 23:
        pair[0] = add_float(trm_shape_of(4, 6));
        pair[1] = add_float(trm_shape_of(5, 6));
        trm_concat(graph, pair, 2, 1);
        break;
    case 24:
        pair[0] = add_float(trm_shape_of(4, 6));
        trm_concat(graph, pair, 1, 5);
        break;
    case 25: trm_slice(graph, add_float(trm_shape_of(2, 3)), begin, size); break;
    case 26: trm_pad(graph, add_float(trm_shape_of(2, 3)), minus, begin, 0); break;
    case 27: trm_one_hot(graph, add_float(trm_shape_of(4)), 10, 1, 0); break;
    case 28: trm_one_hot(graph, add_input(TRM_INT32, trm_shape_of(4)), 0, 1, 0); break;
    case 29: trm_reduce_sum(graph, add_float(trm_shape_of(4, 5)), &axis, 1, false); break;
    case 30: trm_reduce_max(graph, add_float(trm_shape_of(4, 0)), NULL, 0, false); break;
    case 31: trm_softmax(graph, add_float((trm_shape){0})); break;
    case 32:
        trm_softmax_cross_entropy(graph, add_float(trm_shape_of(4, 10)), add_input(TRM_INT32, trm_shape_of(5)), NULL);
        break;
    case 33:
        trm_softmax_cross_entropy(graph, add_float(trm_shape_of(4, 10)), add_input(TRM_INT32, trm_shape_of(4)),
                                  &(trm_xent_options){.label_smoothing = 1});
        break;
    case 34: trm_bce_with_logits(graph, add_float(trm_shape_of(4)), add_float(trm_shape_of(5))); break;
    case 35: trm_embedding(graph, add_float(trm_shape_of(4, 5)), add_float(trm_shape_of(4))); break;
    case 36: trm_embedding(graph, add_float(trm_shape_of(4)), add_input(TRM_INT64, trm_shape_of(4))); break;
    case 37: trm_dropout(graph, add_float(trm_shape_of(4)), 1); break;
    case 38: trm_cast(graph, add_float(trm_shape_of(4)), (trm_dtype)99); break;
    case 39: trm_custom(graph, &custom, NULL, 0, out); break;
    case 40:
        custom = (trm_custom_op){.name = "c", .outputs = 1, .infer = no_shape, .run = no_run};
        trm_custom(graph, &custom, pair, 0, out);
        break;
    case 41: {
        custom = (trm_custom_op){.name = "c", .outputs = 9, .infer = no_shape, .run = no_run};
        trm_custom(graph, &custom, pair, 0, out);
        break;
    }
    case 42: trm_gradients(graph, add_float(trm_shape_of(4)), pair, 0, out); break;
    case 43: trm_add(graph, (trm_node){77}, add_float(trm_shape_of(4))); break;
    case 44: trm_pad(graph, add_float(trm_shape_of(2)), (int64_t[]){INT64_MAX}, (int64_t[]){1}, 0); break;
    case 45: trm_add(graph, add_float(trm_shape_of(1LL << 31, 1)), add_float(trm_shape_of(1LL << 31))); break;
    case 46:
        conv = (trm_conv_options){.pad = {INT64_MAX, 0, 0, 0}};
        trm_conv2d(graph, add_float(x4), add_float(trm_shape_of(8, 3, 3, 3)), none, &conv);
        break;
    case 47: trm_max_pool(graph, add_float(x4), &(trm_pool_options){.kernel = {INT64_MAX, 1}, .pad = {INT64_MAX - 1, 0, 0, 0}}); break;
    case 48: trm_reshape(graph, add_float(trm_shape_of(4, 6)), trm_shape_of(1, 1, 1, 1, 1, 1, 24)); break;
    case 49: add_float(trm_shape_of(1, 1, 1, 1, 1, 1, 24)); break;
    case 50: trm_gradients(graph, trm_reduce_sum(graph, add_float(x4), NULL, 0, false), (trm_node[]){{1 << 20}}, 1, out); break;
    case 51:
        custom = (trm_custom_op){.name = "mute", .outputs = 1, .infer = run_nothing, .run = no_run};
        trm_custom(graph, &custom, pair, 0, out);
        break;
    default: build_transformer(index);
    }
    /* clang-format on */
}

static const char *const sentences[] = {
    "[2, 3] float32 and in [2, 4] float32 do not broadcast",
    "float32 and int32 differ",
    "needs two inputs",
    "in [2, 3, 5, 5] float32 do not fit in [8, 3, 3, 3] float32 in 2 groups",
    "do not fit in [8, 4, 3, 3] float32 in 1 groups",
    "larger than the padded image in [2, 3, 5, 5]",
    "a bias of [8] expected, found in [7]",
    "found in [3, 5, 5] float32 and in [8, 3, 3, 3]",
    "strides and dilations of at least 1",
    "found in [4, 6] float32 and in [5, 7] float32",
    "a bias of [5] expected, found in [4]",
    "cannot multiply in [4, 6] float32 by in [4, 6] float32",
    "cannot multiply in [2, 4, 6] float32 by in [3, 6, 4] float32",
    "input 2: [3] float32 expected, found in [4]",
    "momentum 1.5",
    "pads 2 and 0 do not fit in [2, 3, 5, 5]",
    "[N,C,H,W] expected, found in [2, 3]",
    "kernel 9",
    "at least one pixel",
    "[4, 6] does not reshape to [5, -1]",
    "[4, 6] does not reshape to",
    "does not reshape to",
    "no permutation of 2",
    "in [4, 6] float32 and in [5, 6] float32 do not join along dimension 1",
    "axis 5 of 2",
    "2 elements from 1 on of dimension 0 are outside [2, 3]",
    "around dimension 0; 0 or more expected",
    "found float32 and 10",
    "found int32 and 0",
    "an axis is outside in [4, 5]",
    "maximum of no elements",
    "[..., K] expected",
    "found in [4, 10] float32 and in [5] int32",
    "label smoothing 1",
    "found in [4] float32 and in [5] float32",
    "found in [4, 5] float32 and in [4] float32",
    "found in [4] float32 and in [4] int64",
    "rate 1",
    "unknown dtype 99",
    "1 to 4 outputs, infer and run expected",
    "infer set no usable shape or dtype for output 0",
    "1 to 4 outputs",
    "gradients need a scalar loss",
    "input 0 is not a node of this graph",
    "and 1 elements around dimension 0",
    "[2147483648, 2147483648] has more elements than any memory",
    "beyond 2^31",
    "pads 9223372036854775806 and 0 do not fit",
    "[4, 6] does not reshape to",
    "impossible shape",
    "node 0 of those to differentiate by is not a node of this graph",
    "custom operator 'mute': infer failed and left no message",
    "cannot multiply in [2, 3, 4, 6] float32 by in [2, 2, 6, 4] float32",
    "[..., I] and [I, O] of one dtype expected, found in [4, 6] float32 and in [5, 6] float32",
    "input 2: [6] expected, found in [5]",
    "[..., C] with C of at least 1 expected, found in []",
    "epsilon -1, a positive number expected",
    "in [4, 6] float32 and in [4, 5] float32 must have one shape",
    "a multiple of G expected, found in [2, 5, 4, 8] float32, in [2, 5, 3, 8] float32 and",
    "5 queries of 3 keys: a causal attention has no more queries than keys",
    "a mask int32 [2, 3] expected, found in [2, 5]",
    "found no keys",
    "found in [2, 5, 25] float32 with 4 heads and 2 key heads",
    "with 0 heads and 0 key heads",
    "D even expected, found in [2, 5, 7]",
    "theta -1, a positive number expected",
    "found in [2, 5, 8] float32, in [11, 8] float32 and in [10] int32",
    "label smoothing 0.1: this loss has none",
    "the largest 6 of each row of in [2, 5]",
    "found in [2, 5, 8] float32, in [3, 4, 8] float32 and in [2, 4] int32",
    "a share 1.5 of the rows that count, 0 <= share <= 1 expected",
};

/* Removes numbers of inputs from a message, "in3 [2]" -> "in [2]": C does not define the order in
 * which arguments are evaluated. */
static void strip_numbers(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        bool name = to > text + 1 && to[-1] == 'n' && to[-2] == 'i';
        while (name && *from >= '0' && *from <= '9') {
            from++;
        }
        *to++ = *from;
        from += *from != '\0';
    }
    *to = '\0';
}

static void impossible_shapes_get_one_clear_sentence(void **state) {
    trm_error err;
    int count = (int)(sizeof sentences / sizeof sentences[0]);
    for (int i = 0; i < count; i++) {
        CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &graph, &err), err);
        named = 0;
        custom = (trm_custom_op){.name = NULL};
        build_wrong(i);
        trm_status status = trm_graph_check(graph, &err);
        trm_error first = err;
        strip_numbers(err.message);
        if (status != TRM_INVALID || strstr(err.message, sentences[i]) == NULL) {
            fail_msg("case %d: '%s', expected '...%s...'", i, err.message, sentences[i]);
        }
        /* the first error remains, and nodes built on broken ones are broken */
        trm_node after = trm_add(graph, TRM_NO_NODE, TRM_NO_NODE);
        assert_int_equal(after.id, 0);
        trm_error again;
        assert_int_equal(trm_graph_check(graph, &again), TRM_INVALID);
        assert_string_equal(again.message, first.message);
        trm_graph_destroy(graph);
    }
}

/* Shapes of valid expressions. */
static void shapes_follow_the_rules(void **state) {
    trm_error err;
    CHECK_OK(trm_graph_create(NULL, &graph, &err), err);
    named = 0;
    struct {
        trm_node node;
        trm_shape expected;
    } all[] = {
        {trm_add(graph, add_float(trm_shape_of(4, 1, 3)), add_float(trm_shape_of(2, 1))),
         trm_shape_of(4, 2, 3)},
        {trm_conv2d(graph, add_float(trm_shape_of(2, 4, 9, 8)), add_float(trm_shape_of(6, 2, 3, 1)),
                    TRM_NO_NODE,
                    &(trm_conv_options){
                        .stride = {2, 3}, .dilation = {2, 1}, .pad = {1, 2, 0, 1}, .groups = 2}),
         trm_shape_of(2, 6, 4, 3)},
        {trm_linear(graph, add_float(trm_shape_of(5, 2, 7)), add_float(trm_shape_of(3, 7)),
                    TRM_NO_NODE),
         trm_shape_of(5, 2, 3)},
        {trm_matmul(graph, add_float(trm_shape_of(5, 2, 7)), add_float(trm_shape_of(5, 3, 2)), true,
                    true),
         trm_shape_of(5, 7, 3)},
        {trm_matmul(graph, add_float(trm_shape_of(5, 1, 2, 7)), add_float(trm_shape_of(4, 7, 3)),
                    false, false),
         trm_shape_of(5, 4, 2, 3)},
        {trm_matmul(graph, add_float(trm_shape_of(5, 4, 2, 7)), add_float(trm_shape_of(3, 7)),
                    false, true),
         trm_shape_of(5, 4, 2, 3)},
        {trm_linear_by_inputs(graph, add_float(trm_shape_of(5, 2, 7)),
                              add_float(trm_shape_of(7, 3)), TRM_NO_NODE),
         trm_shape_of(5, 2, 3)},
        {trm_attention(graph, add_float(trm_shape_of(2, 5, 4, 8)),
                       add_float(trm_shape_of(2, 9, 2, 8)), add_float(trm_shape_of(2, 9, 2, 8)),
                       TRM_NO_NODE, NULL),
         trm_shape_of(2, 5, 4, 8)},
        {trm_attention_packed(graph, add_float(trm_shape_of(2, 5, 64)), 4, 2, TRM_NO_NODE, NULL),
         trm_shape_of(2, 5, 32)},
        {trm_linear_cross_entropy(graph, add_float(trm_shape_of(2, 5, 8)),
                                  add_float(trm_shape_of(11, 8)),
                                  add_input(TRM_INT32, trm_shape_of(2, 5)), NULL),
         (trm_shape){0}},
        {trm_max_pool(graph, add_float(trm_shape_of(1, 2, 7, 7)),
                      &(trm_pool_options){.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}}),
         trm_shape_of(1, 2, 4, 4)},
        {trm_reduce_sum(graph, add_float(trm_shape_of(2, 3, 4)), (int32_t[]){-1, 0}, 2, false),
         trm_shape_of(3)},
        {trm_reduce_mean(graph, add_float(trm_shape_of(2, 3, 4)), (int32_t[]){1}, 1, true),
         trm_shape_of(2, 1, 4)},
        {trm_embedding(graph, add_float(trm_shape_of(9, 4)),
                       add_input(TRM_INT64, trm_shape_of(2, 3))),
         trm_shape_of(2, 3, 4)},
        {trm_one_hot(graph, add_input(TRM_INT64, trm_shape_of(2)), 10, 1, 0), trm_shape_of(2, 10)},
        {trm_softmax_cross_entropy(graph, add_float(trm_shape_of(4, 10)),
                                   add_input(TRM_INT32, trm_shape_of(4)), NULL),
         (trm_shape){0}},
        {trm_pad(graph, add_float(trm_shape_of(2, 3)), (int64_t[]){1, 0}, (int64_t[]){0, 4}, 0),
         trm_shape_of(3, 7)},
    };
    CHECK_OK(trm_graph_check(graph, &err), err);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        trm_shape shape = trm_node_shape(graph, all[i].node);
        char text[96];
        if (!trm_shape_equal(&shape, &all[i].expected)) {
            fail_msg("case %d: %s", (int)i, trm_shape_format(&shape, text, sizeof text));
        }
    }
    /* dropout is the identity in evaluation; a cast to the same dtype adds no operator */
    trm_node x = add_float(trm_shape_of(3));
    assert_int_equal(trm_dropout(graph, x, 0.5).id, x.id);
    assert_int_equal(trm_cast(graph, x, TRM_FLOAT32).id, x.id);
    trm_graph_destroy(graph);
}

/* Two operations for each multiply-add in every direction; pooling and arithmetic count their
 * bytes. */
static void costs_are_counted(void **state) {
    trm_error err;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &graph, &err), err);
    named = 0;
    trm_node x = add_float(trm_shape_of(2, 4, 8, 8)), w = add_float(trm_shape_of(6, 4, 3, 3));
    trm_node y = trm_conv2d(graph, x, w, TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
    trm_node loss = trm_reduce_sum(graph, trm_mul(graph, y, y), NULL, 0, false), grads[2];
    trm_gradients(graph, loss, (trm_node[]){x, w}, 2, grads);
    CHECK_OK(trm_graph_check(graph, &err), err);
    int convs = 0;
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        trmi_cost cost = trmi_op_cost(graph, op);
        if (op->kind == TRMI_OP_CONV2D || op->kind == TRMI_OP_CONV2D_GRAD_DATA ||
            op->kind == TRMI_OP_CONV2D_GRAD_WEIGHTS) {
            assert_true(cost.flops == 2.0 * 2 * 6 * 8 * 8 * 4 * 3 * 3);
            assert_true(cost.bytes == 4.0 * (2 * 4 * 64 + 6 * 4 * 9 + 2 * 6 * 64));
            convs++;
        }
        if (op->kind == TRMI_OP_REDUCE_SUM) {
            assert_true(cost.bytes == 4.0 * (2 * 6 * 64 + 1));
        }
    }
    assert_int_equal(convs, 3);
    trm_graph_destroy(graph);
}

static void gradients_of_another_dtype_start_as_that_dtype(void **state) {
    trm_error err;
    CHECK_OK(trm_graph_create(NULL, &graph, &err), err);
    named = 0;
    trm_node x = add_input(TRM_FLOAT64, trm_shape_of(3)), grad;
    trm_node loss = trm_reduce_sum(graph, trm_mul(graph, x, x), NULL, 0, false);
    trm_gradients(graph, loss, &x, 1, &grad);
    CHECK_OK(trm_graph_check(graph, &err), err);
    assert_int_equal(trm_node_dtype(graph, grad), TRM_FLOAT64);
    trm_graph_destroy(graph);
}

/* A pop removes exactly what its push added; a pop without a push and too many pushes are errors.
 */
static void scopes_close_what_their_push_opened(void **state) {
    trm_error err;
    CHECK_OK(trm_graph_create(NULL, &graph, &err), err);
    trm_graph_push_scope(graph, "model");
    trm_graph_push_scope(graph, "layer%d.%d", 3, 1);
    trm_parameter(graph, "weight", trm_shape_of(2), TRM_INIT_ZERO);
    trm_graph_pop_scope(graph);
    trm_parameter(graph, "bias", trm_shape_of(2), TRM_INIT_ZERO);
    trm_graph_pop_scope(graph);
    trm_parameter(graph, "gain", trm_shape_of(2), TRM_INIT_ZERO);
    CHECK_OK(trm_graph_check(graph, &err), err);
    static const char *const names[] = {"model.layer3.1.weight", "model.bias", "gain"};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(graph->ops[i + 1].name, names[i]);
    }
    trm_graph_pop_scope(graph);
    CHECK_FAILS(trm_graph_check(graph, &err), TRM_INVALID, err, "no scope is open");
    trm_graph_destroy(graph);
    CHECK_OK(trm_graph_create(NULL, &graph, &err), err);
    for (int i = 0; i <= TRMI_SCOPES_MAX; i++) {
        trm_graph_push_scope(graph, "s");
    }
    CHECK_FAILS(trm_graph_check(graph, &err), TRM_INVALID, err, "at most 32 scopes");
    trm_graph_destroy(graph);
}

/* Vector loops fill long runs, single blocks short ones: every element has the number of its block,
 * in leaves of any length and in parts that begin anywhere; nothing behind the last is written. */
static void normal_values_are_those_of_their_blocks(void **state) {
    enum { MOST = 2400, SEED = 7 };
    static const int64_t counts[] = {1, 15, 16, 17, 63, 64, 65, 100, 1023, 1024, 1025, 1056, 2100};
    static const int64_t begins[] = {0, 3, 4, 256};
    trm_shape whole = trm_shape_of(MOST);
    trmi_init_rule rule = trmi_init_rule_of(TRM_INIT_NORMAL_002, "w", &whole);
    float expected[MOST], filled[MOST + 1];
    for (uint32_t i = 0; i < MOST; i += 2) {
        uint32_t bits[4];
        trmi_philox(SEED, rule.stream, i / 4, bits);
        trmi_normal_pair(bits + i % 4, expected + i);
        expected[i] *= 0.02f;
        expected[i + 1] *= 0.02f;
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (size_t k = 0; k < sizeof begins / sizeof begins[0]; k++) {
            trmi_box part = {.rank = 1, .begin = {begins[k]}, .end = {begins[k] + counts[i]}};
            filled[counts[i]] = -1;
            trmi_init_fill_box(TRM_INIT_NORMAL_002, SEED, "w", &whole, &part, TRM_FLOAT32, filled);
            assert_memory_equal(filled, expected + begins[k], (size_t)counts[i] * sizeof(float));
            assert_true(filled[counts[i]] == -1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_shapes_get_one_clear_sentence),
        cmocka_unit_test(shapes_follow_the_rules),
        cmocka_unit_test(costs_are_counted),
        cmocka_unit_test(scopes_close_what_their_push_opened),
        cmocka_unit_test(normal_values_are_those_of_their_blocks),
        cmocka_unit_test(gradients_of_another_dtype_start_as_that_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
