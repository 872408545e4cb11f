/* SPDX-License-Identifier: Apache-2.0 */
/* Generators (trireme/nn.h): two programs of a language model, which share its parameters.
 *
 *       a prompt: CHUNK_ROWS tokens at a time --> [chunk] --\
 *                                                  keys, values --> logits --> choice (choose.c)
 *       each chosen token ----------------------> [single] --/
 *
 * Both programs run the network on new tokens only: attention reads the keys and values of all
 * tokens before them from the cache (cache.c), which the programs share. The rows of a chunk that
 * have no token are padding, which the cache ignores.
 *
 *       ids[0, count)   the tokens whose keys and values are in the cache, at most `context`
 *       read            all tokens since the last reset, also those that have left the cache; the
 *                       random numbers of a choice are numbered by it
 *
 * When the cache is full, its older half is forgotten (forget_half). The parameters are the
 * model's own memory: trm_generator_reset after more training makes the programs read the new
 * values. */
#include "trireme/nn.h"

#include "exec/exec.h"
#include "models/language/language.h"
#include "train/generate/cache.h"
#include "train/generate/choose.h"
#include "train/model.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

enum { SINGLE, CHUNK, PROGRAMS };
enum { CHUNK_ROWS = 32 };

/* A program of the network for a number of new tokens. */
typedef struct program {
    trm_exec *exec;
    int64_t rows;
    int32_t *tokens, *positions, *last; /* inputs */
} program;

/* A generator; the public type. The arena has the cache, its operators and ids. */
struct trm_generator {
    trmi_arena arena;
    trmi_cache_state state;
    trmi_cache_layer *layers;
    trm_custom_op *attend;
    program programs[PROGRAMS];
    int32_t *ids;        /* [context]: tokens in the cache */
    int64_t count, read; /* of these; all since the last reset */
    const float *logits; /* NULL before the first token */
};

/* ---- creation -------------------------------------------------------------------------------- */

/* Takes memory for the cache of each block.
 *   errors  NOMEM */
static trm_status make_cache(trm_generator *g, trm_error *err) {
    const trm_language_options *o = &g->state.network;
    /* width: of a head; each: floats of the keys, or of the values, of one block */
    int64_t width = o->width / o->heads, each = o->kv_heads * o->context * width;
    size_t layers = (size_t)o->layers, floats = sizeof(float);
    g->layers = trmi_arena_alloc(&g->arena, layers * sizeof *g->layers);
    g->attend = trmi_arena_alloc(&g->arena, layers * sizeof *g->attend);
    g->ids = trmi_arena_alloc(&g->arena, (size_t)o->context * sizeof *g->ids);
    g->state.scores = trmi_arena_alloc(&g->arena, (size_t)(g->state.threads * o->context) * floats);
    float *memory = trmi_arena_alloc(&g->arena, (size_t)(2 * o->layers * each) * floats);
    if (o->rotary_theta != 0) {
        g->state.turns = trmi_arena_alloc(&g->arena, (size_t)(o->context * width) * floats);
    }
    if (g->layers == NULL || g->attend == NULL || g->ids == NULL || g->state.scores == NULL ||
        memory == NULL || (o->rotary_theta != 0 && g->state.turns == NULL)) {
        return TRMI_NO_MEMORY(err, "for the keys and values of %lld tokens (%.1f MB)",
                              (long long)o->context, (double)(2 * o->layers * each) * 4e-6);
    }
    if (g->state.turns != NULL) {
        trmi_cache_prepare_turns(&g->state);
    }
    /* Each block has two halves of its part: keys, then values. */
    for (int64_t i = 0; i < o->layers; i++) {
        g->layers[i] =
            (trmi_cache_layer){&g->state, memory + 2 * i * each, memory + (2 * i + 1) * each};
        g->attend[i] = trmi_cache_operator(&g->layers[i]);
    }
    return TRM_OK;
}

/* Compiles the program for `rows` new tokens; its parameters and kept casts are those of `base`. */
static trm_status make_program(trm_generator *g, trm_model *model, const trm_exec *base,
                               const char *name, int64_t rows, program *out, trm_error *err) {
    trm_graph *graph;
    TRMI_TRY(trm_graph_create(NULL, &graph, err));
    trm_shape shape = trm_shape_of(1, rows);
    out->rows = rows;
    trm_node ids = trm_input(graph, "tokens", TRM_INT32, shape);
    const trmi_language_cache cache = {.positions = trm_input(graph, "positions", TRM_INT32, shape),
                                       .last = trm_input(graph, "last", TRM_INT32, trm_shape_of(1)),
                                       .attend = g->attend};
    trm_node logits = trmi_language_next(graph, name, ids, &g->state.network, &cache);
    const trm_model_options *o = &model->options;
    const trm_exec_options options = {.outputs = &logits,
                                      .outputs_count = 1,
                                      .backend = o->exec.backend,
                                      .precision = o->exec.precision,
                                      .tuning_file = o->exec.tuning_file,
                                      .keep_casts = true,
                                      .parameters_of = base};
    trm_status status = trm_graph_check(graph, err);
    status = status == TRM_OK ? trm_exec_create(graph, &options, &out->exec, err) : status;
    trm_graph_destroy(graph);
    TRMI_TRY(status);
    /* Where the generator writes tokens, positions and the row whose logits it wants. */
    trm_tensor input;
    int32_t **const places[] = {&out->tokens, &out->positions, &out->last};
    static const char *const names[] = {"tokens", "positions", "last"};
    for (int i = 0; i < 3; i++) {
        if (i != 1 || g->state.turns == NULL) { /* rotary positions are the cache's */
            TRMI_TRY(trm_exec_input(out->exec, names[i], &input, err));
            *places[i] = input.data;
        }
    }
    return TRM_OK;
}

/* Contract in trireme/nn.h. Two programs have one cache: one reads many tokens of a prompt at
 * a time, one a single token. */
trm_status trm_generator_create(trm_model *model, const trm_generator_options *options,
                                trm_generator **out, trm_error *err) {
    TRMI_NEED(err, model, options, out);
    TRMI_NEED(err, options->model);
    trm_language_options network =
        options->network != NULL ? *options->network : (trm_language_options){0};
    TRMI_TRY(trm_language_complete(options->model, &network, err));
    if (trm_language_is_masked(options->model)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s predicts masked tokens, not the next one: it generates no text",
                         options->model);
    }
    trm_generator *g;
    TRMI_TRY(TRMI_NEW(err, g, 1, "for a generator"));
    /* generating is no training: no value is dropped */
    network.dropout = 0;
    trm_exec_info info;
    trm_exec_get_info(trm_model_exec(model), &info);
    g->state = (trmi_cache_state){.network = network, .threads = info.threads};
    trm_status status = make_cache(g, err);
    /* the prompt's program runs first: its casts serve the tokens after it */
    program *chunk = &g->programs[CHUNK], *single = &g->programs[SINGLE];
    if (status == TRM_OK) {
        int64_t rows = trmi_min_i64(CHUNK_ROWS, network.context);
        status = make_program(g, model, trm_model_exec(model), options->model, rows, chunk, err);
    }
    if (status == TRM_OK) {
        status = make_program(g, model, chunk->exec, options->model, 1, single, err);
    }
    if (status != TRM_OK) {
        trm_generator_destroy(g);
        return status;
    }
    *out = g;
    return TRM_OK;
}

void trm_generator_destroy(trm_generator *generator) {
    if (generator == NULL) {
        return;
    }
    trm_exec_destroy(generator->programs[SINGLE].exec); /* reads memory of the other's */
    trm_exec_destroy(generator->programs[CHUNK].exec);
    trmi_arena_free(&generator->arena);
    trmi_free(generator);
}

/* ---- reading --------------------------------------------------------------------------------- */

void trm_generator_reset(trm_generator *generator) {
    TRMI_NEED_OR(, NULL, generator);
    generator->count = generator->read = 0;
    generator->logits = NULL;
    for (int i = 0; i < PROGRAMS; i++) {
        /* casts of the parameters that the programs keep are made again from their present
         * values */
        trmi_exec_parameters_changed(generator->programs[i].exec);
    }
}

/* Runs one program on `count` tokens after those of the cache. */
static trm_status run_program(trm_generator *g, const program *p, const int32_t *ids, int64_t count,
                              trm_error *err) {
    g->state.first = g->count;
    g->state.count = count;
    for (int64_t i = 0; i < p->rows; i++) { /* padding repeats the last token */
        int64_t row = trmi_min_i64(i, count - 1);
        p->tokens[i] = ids[row];
        if (p->positions != NULL) {
            p->positions[i] = (int32_t)(g->count + row);
        }
    }
    p->last[0] = (int32_t)count - 1;
    trm_tensor logits;
    TRMI_TRY(trm_exec_forward(p->exec, err));
    TRMI_TRY(trm_exec_output(p->exec, 0, &logits, err));
    g->logits = logits.data;
    memmove(g->ids + g->count, ids, (size_t)count * sizeof *ids);
    g->count += count;
    return TRM_OK;
}

/* Reads tokens that fit after those of the cache: in chunks, or if there are few one by one. */
static trm_status read_fitting(trm_generator *g, const int32_t *ids, int64_t count,
                               trm_error *err) {
    /* for so few, single tokens cost less than the CHUNK_ROWS rows of a chunk */
    enum { FEW = 3 };
    while (count > 0) {
        const program *p = &g->programs[count > FEW ? CHUNK : SINGLE];
        int64_t now = trmi_min_i64(p->rows, count);
        TRMI_TRY(run_program(g, p, ids, now, err));
        ids += now;
        count -= now;
    }
    return TRM_OK;
}

/* Makes room in a full cache: its last half is read again, from position 0. */
static trm_status forget_half(trm_generator *g, trm_error *err) {
    int64_t kept = g->state.network.context / 2, begin = g->count - kept;
    g->count = 0;
    memmove(g->ids, g->ids + begin, (size_t)kept * sizeof *g->ids);
    return read_fitting(g, g->ids, kept, err);
}

trm_status trm_generator_read(trm_generator *generator, const int32_t *ids, int64_t count,
                              trm_error *err) {
    TRMI_NEED(err, generator, ids);
    const trm_language_options *o = &generator->state.network;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= o->vocabulary) {
            return TRMI_FAIL(err, TRM_INVALID, "token %lld: id %d, at most %lld expected",
                             (long long)i, (int)ids[i], (long long)o->vocabulary - 1);
        }
    }
    while (count > 0) {
        if (generator->count == o->context) {
            TRMI_TRY(forget_half(generator, err));
        }
        int64_t now = trmi_min_i64(count, o->context - generator->count);
        TRMI_TRY(read_fitting(generator, ids, now, err));
        ids += now;
        count -= now;
        generator->read += now;
    }
    return TRM_OK;
}

const float *trm_generator_logits(const trm_generator *generator) {
    TRMI_NEED_OR(NULL, NULL, generator);
    return generator->logits;
}

/* Contract in trireme/nn.h. Counts the weights of the products in the program of one token:
 * generation is bound by reading them. */
int64_t trm_generator_weight_bytes(const trm_generator *generator) {
    TRMI_NEED_OR(0, NULL, generator);
    const trm_program *p = generator->programs[SINGLE].exec->program;
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        const trmi_buffer *weights = s->inputs_count > 1 ? &p->buffers[s->inputs[1]] : NULL;
        if (s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_LINEAR) {
            bytes += weights->bytes;
            /* of experts, only those that one token is sent to are read */
        } else if (s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_EXPERT_LINEAR) {
            const trm_shape *chosen = &p->buffers[s->inputs[2]].shape;
            bytes += weights->bytes / weights->shape.dim[0] *
                     trmi_min_i64(weights->shape.dim[0], trm_shape_count(chosen));
        }
    }
    return bytes;
}

/* Contract in trireme/nn.h. -1: no token has been read. */
int32_t trm_generator_choose(const trm_generator *generator, const trm_sampling *sampling) {
    TRMI_NEED_OR(-1, NULL, generator);
    const trm_sampling s = sampling != NULL ? *sampling : (trm_sampling){0};
    return generator->logits == NULL
               ? -1
               : trmi_choose(generator->logits, generator->state.network.vocabulary, &s,
                             (uint64_t)generator->read);
}
