/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al. 2019), and GPT-2 with experts in its blocks (Fedus et al. 2021): two rows
 * of the registry in language.c, which checks the options and calls these functions.
 *
 *     tokens [B, T] --> embeddings + positions --> blocks --> norm --> hidden [B, T, width]
 *
 * Names, shapes and initial values of parameters are those of Hugging Face's transformers, whose
 * linear layers in GPT-2 have weights [inputs, outputs]; the experts' are [experts, outputs,
 * inputs]. With a cache of keys (generation) the tokens of a call do not begin at position 0. */
#include "models/language/language.h"

#include "models/blocks.h"
#include "models/lora.h"

#include <math.h>

/* Published sizes, and a small one. */
static const trmi_language_size sizes[] = {
    {"small", {.layers = 12, .width = 768, .heads = 12}},
    {"gpt2", {.layers = 12, .width = 768, .heads = 12}},
    {"medium", {.layers = 24, .width = 1024, .heads = 16}},
    {"large", {.layers = 36, .width = 1280, .heads = 20}},
    {"xl", {.layers = 48, .width = 1600, .heads = 25}},
    {"tiny", {.layers = 4, .width = 128, .heads = 4}}, /* nanoGPT's for CPUs */
    {NULL, {0}}};

/* Sets what follows from other options, for the network without and that with experts. */
static void complete_gpt2(trm_language_options *o) {
    o->hidden = o->hidden == 0 ? 4 * o->width : o->hidden;
    o->experts = o->top_experts = 0;
    o->balance = 0;
}

static void complete_moe(trm_language_options *o) {
    o->hidden = o->hidden == 0 ? 4 * o->width : o->hidden;
    o->experts = o->experts == 0 ? 8 : o->experts;
    o->top_experts = o->top_experts == 0 ? 2 : o->top_experts;
    o->balance = o->balance == 0 ? 0.01 : o->balance;
}

/* Adds a linear layer name.weight [inputs, outputs], name.bias. */
static trm_node add_linear(trm_graph *g, const char *name, trm_node x, int64_t outputs,
                           double deviation, const trm_language_options *o) {
    trm_shape shape = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(shape.dim[shape.rank - 1], outputs),
                               trm_init_normal(deviation));
    trm_node y = trm_linear_by_inputs(
        g, x, w, trm_parameter(g, "bias", trm_shape_of(outputs), TRM_INIT_ZERO));
    y = trmi_lora_add(g, x, y, &o->lora);
    trm_graph_pop_scope(g);
    return y;
}

/* Adds the layers after attention: two, or those of the experts, whose load balance is added to
 * *balance. */
static trm_node add_layers(trm_graph *g, trm_node x, const trm_language_options *o, double last,
                           trm_node *balance) {
    if (o->experts == 0) {
        x = trm_gelu(g, add_linear(g, "c_fc", x, o->hidden, TRMI_BLOCK_DEVIATION, o),
                     TRM_GELU_TANH);
        return add_linear(g, "c_proj", x, o->width, last, o);
    }
    trm_node load;
    const trm_experts experts = {
        .router = trm_parameter(g, "router.weight", trm_shape_of(o->experts, o->width),
                                trm_init_normal(TRMI_BLOCK_DEVIATION)),
        .up = trm_parameter(g, "experts.up", trm_shape_of(o->experts, o->hidden, o->width),
                            trm_init_normal(TRMI_BLOCK_DEVIATION)),
        .down = trm_parameter(g, "experts.down", trm_shape_of(o->experts, o->width, o->hidden),
                              trm_init_normal(last)),
        .top_k = o->top_experts};
    bool training = trm_graph_is_training(g);
    x = trm_mixture_of_experts(g, x, &experts, training ? &load : NULL);
    if (training) {
        load = trm_scale(g, load, 1 / (double)o->layers);
        *balance = balance->id == 0 ? load : trm_add(g, *balance, load);
    }
    return x;
}

/* Adds a block: x + attention(norm(x)), then x + layers(norm(x)). The more layers there are, the
 * smaller are the first values of the weights whose results are added to x. */
static trm_node add_block(trm_graph *g, trm_node x, const trm_language_options *o,
                          const trmi_language_cache *cache, int64_t layer, trm_node *balance) {
    double last = TRMI_BLOCK_DEVIATION / sqrt(2 * (double)o->layers);
    int64_t width = o->width / o->heads;
    trm_node y = trmi_block_norm(g, "ln_1", x, o->epsilon);
    trm_graph_push_scope(g, "attn");
    y = add_linear(g, "c_attn", y, (o->heads + 2 * o->kv_heads) * width, TRMI_BLOCK_DEVIATION, o);
    y = trmi_language_attend(g, &y, 1, o, cache, layer);
    y = add_linear(g, "c_proj", y, o->width, last, o);
    trm_graph_pop_scope(g);
    x = trm_add(g, x, trmi_block_dropout(g, y, o->dropout));
    y = trmi_block_norm(g, "ln_2", x, o->epsilon);
    trm_graph_push_scope(g, "mlp");
    y = add_layers(g, y, o, last, balance);
    trm_graph_pop_scope(g);
    return trm_add(g, x, trmi_block_dropout(g, y, o->dropout));
}

/* Adds embeddings, blocks and the last norm. With a cache (generation) the positions come from
 * the caller, because the tokens of a call do not begin at position 0. */
static trmi_language_states build_states(trm_graph *g, trm_node ids, const trm_language_options *o,
                                         const trmi_language_cache *cache) {
    trm_init init = trm_init_normal(TRMI_BLOCK_DEVIATION);
    int64_t tokens = trm_node_shape(g, ids).dim[1];
    trmi_language_states s = {.balance = TRM_NO_NODE};
    s.output = trm_exclude_from_decay(
        g, trm_parameter(g, "wte.weight", trm_shape_of(o->vocabulary, o->width), init));
    trm_node places = trm_exclude_from_decay(
        g, trm_parameter(g, "wpe.weight", trm_shape_of(o->context, o->width), init));
    if (cache != NULL) {
        places = trm_embedding(g, places, cache->positions);
    } else if (tokens < o->context) {
        places = trm_slice(g, places, (const int64_t[]){0, 0}, (const int64_t[]){tokens, o->width});
    }
    trm_node x = trm_add(g, trm_embedding(g, s.output, ids), places);
    x = trmi_block_dropout(g, x, o->dropout);
    for (int64_t i = 0; i < o->layers; i++) {
        trm_graph_push_scope(g, "h.%lld", (long long)i);
        trm_graph_mark_segment(g);
        x = add_block(g, x, o, cache, i, &s.balance);
        trm_graph_pop_scope(g);
    }
    s.x = trmi_block_norm(g, "ln_f", x, o->epsilon);
    return s;
}

/* Linear layers of a block that adapters can be given for; experts are none. */
static const char *const layers_of_block[] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc",
                                              "mlp.c_proj", NULL};
static const char *const layers_of_moe[] = {"attn.c_attn", "attn.c_proj", NULL};

const trmi_language trmi_language_gpt2 = {.name = "gpt2",
                                          .sizes = sizes,
                                          .layers = layers_of_block,
                                          .complete = complete_gpt2,
                                          .states = build_states};
const trmi_language trmi_language_moe = {.name = "moe",
                                         .sizes = sizes,
                                         .layers = layers_of_moe,
                                         .complete = complete_moe,
                                         .states = build_states};
