/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (Devlin et al. 2018) without the prediction of the next sentence: it predicts masked tokens
 * from all others. Names, shapes and initial values of parameters are those of BertForMaskedLM of
 * Hugging Face's transformers; the output layer has the weights of the token embedding and a bias
 * of its own.
 *
 *      ids --tokens + first token type + positions, norm--> blocks: norm(x + attention(x)),
 *          norm(x + layers(x)) --dense, GELU, norm--> states --> output layer and its bias */
#include "models/language/language.h"

#include "models/blocks.h"

/* Published sizes (Devlin et al. 2018; Turc et al. 2019). */
static const trmi_language_size sizes[] = {
    {"base", {.layers = 12, .width = 768, .heads = 12, .vocabulary = 30522}},
    {"large", {.layers = 24, .width = 1024, .heads = 16, .vocabulary = 30522}},
    {"medium", {.layers = 8, .width = 512, .heads = 8, .vocabulary = 30522}},
    {"small", {.layers = 4, .width = 512, .heads = 8, .vocabulary = 30522}},
    {"mini", {.layers = 4, .width = 256, .heads = 4, .vocabulary = 30522}},
    {"tiny", {.layers = 2, .width = 128, .heads = 2, .vocabulary = 30522}},
    {NULL, {0}}};

/* Sets what follows from other options. */
static void complete_bert(trm_language_options *o) {
    o->hidden = o->hidden == 0 ? 4 * o->width : o->hidden;
}

/* Adds an embedding "name.weight" [rows, width], which has no weight decay. */
static trm_node add_table(trm_graph *g, const char *name, int64_t rows,
                          const trm_language_options *o) {
    trm_graph_push_scope(g, "%s", name);
    trm_node weight = trm_parameter(g, "weight", trm_shape_of(rows, o->width),
                                    trm_init_normal(TRMI_BLOCK_DEVIATION));
    trm_graph_pop_scope(g);
    return trm_exclude_from_decay(g, weight);
}

/* Returns the first rows of a table. */
static trm_node first_rows(trm_graph *g, trm_node rows, int64_t count) {
    trm_shape shape = trm_node_shape(g, rows);
    return count == shape.dim[0] ? rows
                                 : trm_slice(g, rows, (const int64_t[]){0, 0},
                                             (const int64_t[]){count, shape.dim[1]});
}

/* Adds a block: norm(x + attention(x)), then norm(x + layers(x)). */
static trm_node add_block(trm_graph *g, trm_node x, const trm_language_options *o) {
    const trmi_block_options options = {o->heads, o->hidden, &o->lora};
    trm_node y = trmi_block_attention(g, "self", x, x, o->mask, &options);
    x = trm_add(g, trmi_block_dropout(g, y, o->dropout), x);
    x = trmi_block_norm(g, "attention.output.LayerNorm", x, o->epsilon);
    y = trmi_block_layers(g, x, &options);
    x = trm_add(g, trmi_block_dropout(g, y, o->dropout), x);
    return trmi_block_norm(g, "output.LayerNorm", x, o->epsilon);
}

/* Adds embeddings of tokens, places and types, the encoder blocks, and the transform before the
 * output layer, whose weights are the token embedding. */
static trmi_language_states build_states(trm_graph *g, trm_node ids, const trm_language_options *o,
                                         const trmi_language_cache *cache) {
    enum { TOKEN_TYPES = 2 };
    (void)cache; /* masked models have none */
    trmi_language_states s = {.balance = TRM_NO_NODE};
    trm_graph_push_scope(g, "bert.embeddings");
    s.output = add_table(g, "word_embeddings", o->vocabulary, o);
    trm_node places = add_table(g, "position_embeddings", o->context, o);
    trm_node types = add_table(g, "token_type_embeddings", TOKEN_TYPES, o);
    trm_node x = trm_add(g, trm_embedding(g, s.output, ids), first_rows(g, types, 1));
    x = trm_add(g, x, first_rows(g, places, trm_node_shape(g, ids).dim[1]));
    x = trmi_block_dropout(g, trmi_block_norm(g, "LayerNorm", x, o->epsilon), o->dropout);
    trm_graph_pop_scope(g);
    for (int64_t i = 0; i < o->layers; i++) {
        trm_graph_push_scope(g, "bert.encoder.layer.%lld", (long long)i);
        trm_graph_mark_segment(g);
        x = add_block(g, x, o);
        trm_graph_pop_scope(g);
    }
    trm_graph_push_scope(g, "cls.predictions");
    x = trmi_block_linear(g, "transform.dense", x, o->width, NULL);
    s.x = trmi_block_norm(g, "transform.LayerNorm", trm_gelu(g, x, TRM_GELU_ERF), o->epsilon);
    s.bias = trm_parameter(g, "bias", trm_shape_of(o->vocabulary), TRM_INIT_ZERO);
    trm_graph_pop_scope(g);
    return s;
}

/* Linear layers of a block that adapters can be given for. */
static const char *const layers_of_block[] = {"attention.self.query",
                                              "attention.self.key",
                                              "attention.self.value",
                                              "attention.output.dense",
                                              "intermediate.dense",
                                              "output.dense",
                                              NULL};

const trmi_language trmi_language_bert = {.name = "bert",
                                          .sizes = sizes,
                                          .layers = layers_of_block,
                                          .vocabulary = 30522,
                                          .context = 512,
                                          .epsilon = 1e-12,
                                          .masked = true,
                                          .complete = complete_bert,
                                          .states = build_states};
