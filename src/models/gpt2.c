/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al. 2019). Names, shapes and initial values of parameters are those of Hugging
 * Face's transformers, whose linear layers in GPT-2 have weights [inputs, outputs]. */
#include "trireme/nn.h"

#include "graph/arguments.h"
#include "graph/graph_ir.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double DEVIATION = 0.02;

/* The published sizes by name. */
static const struct {
    const char *name;
    int64_t layers, width, heads;
} sizes[] = {{"small", 12, 768, 12},
             {"medium", 24, 1024, 16},
             {"large", 36, 1280, 20},
             {"xl", 48, 1600, 25}};

trm_status trm_gpt2_size(const char *name, trm_gpt2_options *options, trm_error *err) {
    TRMI_NEED(err, name, options);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcmp(name, sizes[i].name) == 0) {
            options->layers = sizes[i].layers;
            options->width = sizes[i].width;
            options->heads = sizes[i].heads;
            return TRM_OK;
        }
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "no gpt2 of size '%.40s'; there are small, medium, large, xl", name);
}

/* Returns the options with the defaults of the small model in the place of zeros. */
static trm_gpt2_options complete(const trm_gpt2_options *given) {
    trm_gpt2_options o = given != NULL ? *given : (trm_gpt2_options){0};
    o.layers = o.layers == 0 ? 12 : o.layers;
    o.width = o.width == 0 ? 768 : o.width;
    o.heads = o.heads == 0 ? 12 : o.heads;
    o.kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
    o.hidden = o.hidden == 0 ? 4 * o.width : o.hidden;
    o.context = o.context == 0 ? 1024 : o.context;
    o.vocabulary = o.vocabulary == 0 ? 50257 : o.vocabulary;
    return o;
}

/* Breaks the graph with a sentence if the options are impossible. Returns whether they are possible. */
static bool check(trm_graph *g, const trm_gpt2_options *o, const trm_shape *ids) {
    trm_error err;
    if (ids->rank != 2) {
        char text[96];
        TRMI_FAIL(&err, TRM_INVALID, "gpt2: token ids [batch, context] expected, found %s",
                  trm_shape_format(ids, text, sizeof text));
    } else if (o->layers < 1 || o->width < 1 || o->heads < 1 || o->kv_heads < 1 || o->hidden < 1 ||
               o->context < 1 || o->vocabulary < 1) {
        TRMI_FAIL(&err, TRM_INVALID,
                  "gpt2: layers, widths, heads, context and vocabulary of at least "
                  "1 expected");
    } else if (o->width % o->heads != 0 || o->heads % o->kv_heads != 0) {
        TRMI_FAIL(&err, TRM_INVALID,
                  "gpt2: a width of %lld with %lld heads and %lld key heads: the width must be a "
                  "multiple of the heads, and these of the key heads",
                  (long long)o->width, (long long)o->heads, (long long)o->kv_heads);
    } else if (ids->dim[1] > o->context) {
        TRMI_FAIL(&err, TRM_INVALID,
                  "gpt2: %lld tokens of a sample, a context of at most %lld expected",
                  (long long)ids->dim[1], (long long)o->context);
    } else {
        return true;
    }
    trmi_graph_fail(g, &err);
    return false;
}

/* Adds a linear layer name.weight [inputs, outputs], name.bias. */
static trm_node linear(trm_graph *g, const char *name, trm_node x, int64_t outputs,
                       double deviation) {
    trm_shape shape = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(shape.dim[shape.rank - 1], outputs),
                               trm_init_normal(deviation));
    trm_node y = trm_linear_by_inputs(
        g, x, w, trm_parameter(g, "bias", trm_shape_of(outputs), TRM_INIT_ZERO));
    trm_graph_pop_scope(g);
    return y;
}

/* Adds a layer norm name.weight, name.bias. */
static trm_node norm(trm_graph *g, const char *name, trm_node x) {
    trm_shape shape = trm_node_shape(g, x);
    trm_shape width = trm_shape_of(shape.dim[shape.rank - 1]);
    trm_graph_push_scope(g, "%s", name);
    trm_node y = trm_layer_norm(g, x, trm_parameter(g, "weight", width, TRM_INIT_ONE),
                                trm_parameter(g, "bias", width, TRM_INIT_ZERO), 1e-5);
    trm_graph_pop_scope(g);
    return y;
}

/* x + attention(norm(x)), then x + layers(norm(x)). What is added to x begins smaller the more layers
 * there are. */
static trm_node block(trm_graph *g, trm_node x, const trm_gpt2_options *o) {
    double last = DEVIATION / sqrt(2 * (double)o->layers);
    int64_t width = o->width / o->heads;
    trm_node y = norm(g, "ln_1", x);
    trm_graph_push_scope(g, "attn");
    y = linear(g, "c_attn", y, (o->heads + 2 * o->kv_heads) * width, DEVIATION);
    y = trm_attention_packed(g, y, o->heads, o->kv_heads, TRM_NO_NODE,
                             &(trm_attention_options){.causal = true});
    y = linear(g, "c_proj", y, o->width, last);
    trm_graph_pop_scope(g);
    x = trm_add(g, x, o->dropout > 0 ? trm_dropout(g, y, o->dropout) : y);
    y = norm(g, "ln_2", x);
    trm_graph_push_scope(g, "mlp");
    y = trm_gelu(g, linear(g, "c_fc", y, o->hidden, DEVIATION), TRM_GELU_TANH);
    y = linear(g, "c_proj", y, o->width, last);
    trm_graph_pop_scope(g);
    return trm_add(g, x, o->dropout > 0 ? trm_dropout(g, y, o->dropout) : y);
}

/* Adds the network up to the last norm; *table becomes the token embedding, which is also the output
 * layer. */
static trm_node hidden_states(trm_graph *g, trm_node ids, const trm_gpt2_options *options,
                              trm_node *table) {
    const trm_gpt2_options o = complete(options);
    trm_shape shape = trm_node_shape(g, ids);
    *table = TRM_NO_NODE;
    if (trm_graph_check(g, NULL) != TRM_OK || !check(g, &o, &shape)) {
        return TRM_NO_NODE;
    }
    trm_init init = trm_init_normal(DEVIATION);
    *table = trm_exclude_from_decay(
        g, trm_parameter(g, "wte.weight", trm_shape_of(o.vocabulary, o.width), init));
    trm_node places = trm_exclude_from_decay(
        g, trm_parameter(g, "wpe.weight", trm_shape_of(o.context, o.width), init));
    if (shape.dim[1] < o.context) {
        places =
            trm_slice(g, places, (const int64_t[]){0, 0}, (const int64_t[]){shape.dim[1], o.width});
    }
    trm_node x = trm_add(g, trm_embedding(g, *table, ids), places);
    x = o.dropout > 0 ? trm_dropout(g, x, o.dropout) : x;
    for (int64_t i = 0; i < o.layers; i++) {
        trm_graph_push_scope(g, "h.%lld", (long long)i);
        x = block(g, x, &o);
        trm_graph_pop_scope(g);
    }
    return norm(g, "ln_f", x);
}

trm_node trm_gpt2(trm_graph *g, trm_node ids, const trm_gpt2_options *options) {
    trm_node table, x = hidden_states(g, ids, options, &table);
    return trm_linear(g, x, table, TRM_NO_NODE);
}

trm_node trm_gpt2_loss(trm_graph *g, trm_node ids, trm_node targets,
                       const trm_gpt2_options *options) {
    trm_node table, x = hidden_states(g, ids, options, &table);
    return trm_linear_cross_entropy(
        g, x, table, targets, &(trm_xent_options){.use_ignore_index = true, .ignore_index = -100});
}
