/* SPDX-License-Identifier: Apache-2.0 */
/* The language models by name, and their options (language.h). gpt2.c (gpt2 and moe), llama.c and
 * bert.c have a row for each: defaults, published sizes, checks, and the function that builds the
 * states.
 *
 *   options of the caller --complete_options--> all numbers --check_options--> add_states
 *      network      logits of all tokens
 *      loss         the output layer and the loss in one operator, without logits
 *      next         one token after a cache of keys and values (generation)
 *
 * A new model is a row of `models`; nothing else here names one. */
#include "models/language/language.h"

#include "models/lora.h"

#include "graph/arguments.h"
#include "graph/graph_ir.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* All language models. Their order is that of lists in messages. */
static const trmi_language *const models[] = {&trmi_language_gpt2, &trmi_language_llama,
                                              &trmi_language_moe, &trmi_language_bert};
enum { MODELS = sizeof models / sizeof models[0] };

const trmi_language *trmi_language_of(const char *name) {
    for (int i = 0; i < MODELS; i++) {
        if (strcmp(name, models[i]->name) == 0) {
            return models[i];
        }
    }
    return NULL;
}

/* Finds the model of this name.
 *   errors  INVALID, with the names */
static trm_status find_model(const char *name, const trmi_language **out, trm_error *err) {
    char known[160] = "";
    *out = trmi_language_of(name);
    for (int i = 0; *out == NULL && i < MODELS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", models[i]->name);
    }
    return *out != NULL ? TRM_OK
                        : TRMI_FAIL(err, TRM_INVALID, "no language model '%.40s'; there are %s",
                                    name, known);
}

bool trm_language_is_masked(const char *model) {
    TRMI_NEED_OR(false, NULL, model);
    const trmi_language *m = NULL;
    trm_error unknown;
    return find_model(model, &m, &unknown) == TRM_OK && m->masked;
}

/* Contract in trireme/nn.h. The error lists all sizes of the model. */
trm_status trm_language_size(const char *model, const char *size, trm_language_options *options,
                             trm_error *err) {
    TRMI_NEED(err, model, size, options);
    const trmi_language *m = NULL;
    char known[160] = "";
    TRMI_TRY(find_model(model, &m, err));
    for (const trmi_language_size *s = m->sizes; s->name != NULL; s++) {
        if (strcmp(size, s->name) == 0) {
            *options = s->values;
            return TRM_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "", s->name);
    }
    return TRMI_FAIL(err, TRM_INVALID, "no %s of size '%.40s'; there are %s", model, size, known);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Returns the options with the model's defaults in place of zeros. */
static trm_language_options complete_options(const trmi_language *model,
                                             const trm_language_options *given) {
    trm_language_options o = given != NULL ? *given : (trm_language_options){0};
    o.layers = o.layers == 0 ? 12 : o.layers;
    o.width = o.width == 0 ? 768 : o.width;
    o.heads = o.heads == 0 ? 12 : o.heads;
    o.kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
    int64_t context = model->context > 0 ? model->context : 1024;
    int64_t vocabulary = model->vocabulary > 0 ? model->vocabulary : 50257;
    double epsilon = model->epsilon > 0 ? model->epsilon : 1e-5;
    o.context = o.context == 0 ? context : o.context;
    o.vocabulary = o.vocabulary == 0 ? vocabulary : o.vocabulary;
    o.epsilon = o.epsilon == 0 ? epsilon : o.epsilon;
    model->complete(&o);
    return o;
}

trm_status trm_language_complete(const char *model, trm_language_options *options, trm_error *err) {
    TRMI_NEED(err, model, options);
    const trmi_language *m = NULL;
    TRMI_TRY(find_model(model, &m, err));
    *options = complete_options(m, options);
    return TRM_OK;
}

/* Checks that a model can have these complete options, for ids of this shape.
 *   errors  INVALID */
static trm_status check_options(const trmi_language *model, const trm_language_options *o,
                                const trm_shape *ids, trm_error *err) {
    const char *name = model->name;
    if (!model->masked && o->mask.id != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a mask of keys, of which only models of masked tokens have one",
                         name);
    }
    if (model->masked && o->kv_heads != o->heads) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %lld key heads for %lld heads: as many expected",
                         name, (long long)o->kv_heads, (long long)o->heads);
    }
    if (ids->rank != 2) {
        char text[96];
        return TRMI_FAIL(err, TRM_INVALID, "%s: token ids [batch, context] expected, found %s",
                         name, trm_shape_format(ids, text, sizeof text));
    }
    if (o->layers < 1 || o->width < 1 || o->heads < 1 || o->kv_heads < 1 || o->hidden < 1 ||
        o->context < 1 || o->vocabulary < 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: layers, widths, heads, context and vocabulary of at least 1 expected",
                         name);
    }
    if (o->width % o->heads != 0 || o->heads % o->kv_heads != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: a width of %lld with %lld heads and %lld key heads: the width must be a "
            "multiple of the heads, and these of the key heads",
            name, (long long)o->width, (long long)o->heads, (long long)o->kv_heads);
    }
    if (o->experts < 0 || o->top_experts < 0 || o->top_experts > o->experts) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %lld of %lld experts compute a token: at most all can", name,
                         (long long)o->top_experts, (long long)o->experts);
    }
    if (o->rotary_theta != 0 && o->width / o->heads % 2 != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: heads of %lld values: rotary positions need an even number", name,
                         (long long)(o->width / o->heads));
    }
    if (!(o->masking >= 0 && o->masking < 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: masking %g, 0 <= masking < 1 expected", name,
                         o->masking);
    }
    if (ids->dim[1] > o->context) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %lld tokens of a sample, a context of at most %lld expected", name,
                         (long long)ids->dim[1], (long long)o->context);
    }
    return TRM_OK;
}

/* ---- networks -------------------------------------------------------------------------------- */

/* Adds the model up to the last norm; *out becomes its complete options. */
static trmi_language_states add_states(trm_graph *graph, const char *name, trm_node ids,
                                       const trm_language_options *options,
                                       const trmi_language_cache *cache,
                                       trm_language_options *out) {
    const trmi_language *model = NULL;
    trm_shape shape = trm_node_shape(graph, ids);
    trm_error err;
    const trmi_language_states none = {.x = TRM_NO_NODE};
    *out = (trm_language_options){0};
    if (trm_graph_check(graph, NULL) != TRM_OK) {
        return none;
    }
    trm_status status = find_model(name, &model, &err);
    if (status == TRM_OK) {
        *out = complete_options(model, options);
        status = check_options(model, out, &shape, &err);
        status = status == TRM_OK ? trmi_lora_check(name, model->layers, &out->lora, &err) : status;
    }
    if (status != TRM_OK) {
        trmi_graph_fail(graph, &err);
        return none;
    }
    int64_t first = graph->ops_count;
    trmi_language_states states = model->states(graph, ids, out, cache);
    trmi_lora_freeze_others(graph, first, &out->lora);
    return states;
}

trm_node trm_language_build(trm_graph *graph, const char *model, trm_node ids,
                            const trm_language_options *options) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, model);
    trm_language_options o;
    trmi_language_states s = add_states(graph, model, ids, options, NULL, &o);
    return trm_linear(graph, s.x, s.output, s.bias);
}

/* Returns the share of the tokens that are targets, exactly: those of a sample are a whole number,
 * as trm_text_options.masking says. 0: unknown. */
static double share_of_targets(const trm_graph *graph, trm_node ids, double masking) {
    trm_shape shape = trm_node_shape(graph, ids);
    if (masking == 0 || shape.rank != 2 || shape.dim[1] == 0) {
        return 0;
    }
    double tokens = (double)shape.dim[1];
    return fmax(1, floor(tokens * masking + 0.5)) / tokens;
}

trm_node trm_language_loss(trm_graph *graph, const char *model, trm_node ids, trm_node targets,
                           const trm_language_options *options) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, model);
    trm_language_options o;
    trmi_language_states s = add_states(graph, model, ids, options, NULL, &o);
    trm_node loss = trm_linear_cross_entropy(
        graph, s.x, s.output, targets,
        &(trm_xent_options){.use_ignore_index = true,
                            .ignore_index = -100,
                            .bias = s.bias,
                            .counted_share = share_of_targets(graph, ids, o.masking)});
    return s.balance.id == 0 ? loss : trm_add(graph, loss, trm_scale(graph, s.balance, o.balance));
}

trm_node trmi_language_next(trm_graph *graph, const char *model, trm_node ids,
                            const trm_language_options *options, const trmi_language_cache *cache) {
    trm_language_options o;
    trmi_language_states s = add_states(graph, model, ids, options, cache, &o);
    trm_node row =
        trm_embedding(graph, trm_reshape(graph, s.x, trm_shape_of(-1, o.width)), cache->last);
    return trm_linear(graph, row, s.output, TRM_NO_NODE);
}
