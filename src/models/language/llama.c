/* SPDX-License-Identifier: Apache-2.0 */
/* Llama (Touvron et al. 2023): RMS norm, rotary positions, SwiGLU, no biases, heads that share
 * keys (Ainslie et al. 2023): a row of the registry in language.c, which checks the options and
 * calls these functions.
 *
 *     tokens [B, T] --> embedding --> blocks --> norm --> hidden [B, T, width]
 *
 * Names, shapes and initial values of parameters are those of Hugging Face's transformers. The
 * output layer is the table of tokens, unless the options untie it. */
#include "models/language/language.h"

#include "models/blocks.h"
#include "models/lora.h"

/* llama15m and llama110m have the layers of llama2.c, 1b and 8b those of Llama 3. */
static const trmi_language_size sizes[] = {
    {"llama15m", {.layers = 6, .width = 288, .heads = 6, .vocabulary = 32000}},
    {"llama110m", {.layers = 12, .width = 768, .heads = 12, .vocabulary = 32000, .untied = true}},
    {"1b",
     {.layers = 16,
      .width = 2048,
      .heads = 32,
      .kv_heads = 8,
      .hidden = 8192,
      .vocabulary = 128256,
      .rotary_theta = 500000}},
    {"8b",
     {.layers = 32,
      .width = 4096,
      .heads = 32,
      .kv_heads = 8,
      .hidden = 14336,
      .vocabulary = 128256,
      .rotary_theta = 500000,
      .untied = true}},
    {NULL, {0}}};

/* A SwiGLU of 8/3 of the width has the weights of GPT-2's two layers. */
static void complete_llama(trm_language_options *o) {
    enum { MULTIPLE = 32 };
    int64_t hidden = (8 * o->width / 3 + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    o->hidden = o->hidden == 0 ? hidden : o->hidden;
    o->rotary_theta = o->rotary_theta == 0 ? 10000 : o->rotary_theta;
}

/* Adds a linear layer name.weight [outputs, inputs] without a bias. */
static trm_node add_linear(trm_graph *g, const char *name, trm_node x, int64_t outputs,
                           const trm_language_options *o) {
    trm_shape shape = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(outputs, shape.dim[shape.rank - 1]),
                               trm_init_normal(TRMI_BLOCK_DEVIATION));
    trm_node y = trmi_lora_add(g, x, trm_linear(g, x, w, TRM_NO_NODE), &o->lora);
    trm_graph_pop_scope(g);
    return y;
}

/* Adds an RMS norm name.weight. */
static trm_node add_norm(trm_graph *g, const char *name, trm_node x,
                         const trm_language_options *o) {
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(o->width), TRM_INIT_ONE);
    trm_graph_pop_scope(g);
    return trm_rms_norm(g, x, w, o->epsilon);
}

/* Adds a block: x + attention(norm(x)), then x + SwiGLU(norm(x)). */
static trm_node add_block(trm_graph *g, trm_node x, const trm_language_options *o,
                          const trmi_language_cache *cache, int64_t layer) {
    int64_t width = o->width / o->heads;
    trm_node y = add_norm(g, "input_layernorm", x, o);
    trm_graph_push_scope(g, "self_attn");
    trm_node parts[3] = {add_linear(g, "q_proj", y, o->heads * width, o),
                         add_linear(g, "k_proj", y, o->kv_heads * width, o),
                         add_linear(g, "v_proj", y, o->kv_heads * width, o)};
    y = trmi_language_attend(g, parts, 3, o, cache, layer);
    y = add_linear(g, "o_proj", y, o->width, o);
    trm_graph_pop_scope(g);
    x = trm_add(g, x, trmi_block_dropout(g, y, o->dropout));
    y = add_norm(g, "post_attention_layernorm", x, o);
    trm_graph_push_scope(g, "mlp");
    trm_node gate = add_linear(g, "gate_proj", y, o->hidden, o);
    y = trm_swiglu(g, gate, add_linear(g, "up_proj", y, o->hidden, o));
    y = add_linear(g, "down_proj", y, o->width, o);
    trm_graph_pop_scope(g);
    return trm_add(g, x, trmi_block_dropout(g, y, o->dropout));
}

/* Builds the model up to its last norm: embedding, blocks, norm. The output layer is the table of
 * tokens, unless it is untied. */
static trmi_language_states build_states(trm_graph *g, trm_node ids, const trm_language_options *o,
                                         const trmi_language_cache *cache) {
    trm_init init = trm_init_normal(TRMI_BLOCK_DEVIATION);
    trm_shape table = trm_shape_of(o->vocabulary, o->width);
    trm_node tokens =
        trm_exclude_from_decay(g, trm_parameter(g, "model.embed_tokens.weight", table, init));
    tokens = o->lazy_embedding ? tokens : trm_update_all_rows(g, tokens);
    trm_node output = o->untied ? trm_parameter(g, "lm_head.weight", table, init) : tokens;
    trm_node x = trmi_block_dropout(g, trm_embedding(g, tokens, ids), o->dropout);
    for (int64_t i = 0; i < o->layers; i++) {
        trm_graph_push_scope(g, "model.layers.%lld", (long long)i);
        trm_graph_mark_segment(g);
        x = add_block(g, x, o, cache, i);
        trm_graph_pop_scope(g);
    }
    return (trmi_language_states){.x = add_norm(g, "model.norm", x, o), .output = output};
}

/* Linear layers of a block that adapters can be given for. */
static const char *const layers_of_block[] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",    NULL};

const trmi_language trmi_language_llama = {.name = "llama",
                                           .sizes = sizes,
                                           .layers = layers_of_block,
                                           .complete = complete_llama,
                                           .states = build_states};
