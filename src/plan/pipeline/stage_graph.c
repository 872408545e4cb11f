/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the graph of one stage from the graph of all stages: the operators of this rank's chunks,
 * with SEND and RECEIVE for the values that other stages make or read.
 *
 *      all stages    x -- a -- b -- loss      db -- da -- dx      a in stage 0, b and loss in stage 1
 *      stage 0       x -- a -- SEND           RECEIVE -- da -- dx
 *      stage 1       RECEIVE -- b -- loss     db -- SEND
 *
 * A forward operator is in the virtual stage of its name in the training graph, no earlier than
 * what it reads. A backward operator is in the stage of its forward operator, no later than the
 * gradients that it reads; the sum of a parameter's gradients, which has no forward operator, is
 * where the last of them is made. Values that are made of parameters alone (casts) are computed
 * wherever they are read. A parameter that several stages read is updated by the stage in which
 * its gradient is complete; the others get its values after each update. All ranks decide from
 * the same graph. */
#include "plan/pipeline/stages.h"
#include "plan/partition/partition.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Values in place of a stage: a leaf, and what is made of parameters alone, which belong to no
 * stage. */
enum { LEAF = -1, DERIVED = -2 };

/* A value that a virtual stage reads and another makes. */
typedef struct crossing {
    int32_t value, to, edge;
    bool backward; /* first read in backward */
} crossing;

/* The state of the walk over the graph of all stages. */
typedef struct stager {
    const trm_graph *g;
    const trmi_stage_options *o;
    const trmi_roots *roots;
    trmi_staged *out;
    trmi_arena *arena;
    int32_t *stage;      /* [operators] virtual stage, LEAF or DERIVED */
    bool *backward;      /* [operators] */
    crossing *crossings; /* by value, then by stage: in the order of the edges */
    int32_t count;
    int32_t *first; /* [values + 1] first crossing of a value */
    trmi_block_marks marks;
    trmi_pass pass;
    int32_t *leaves; /* [values] leaf of `pass.to`; 0 = not emitted */
    int32_t **maps;  /* [chunks][values] */
} stager;

/* ---- stages of operators --------------------------------------------------------------------- */

/* Returns the virtual stage of a name; *at remembers where the last one was found. */
static int32_t stage_of_name(const trmi_stage_map *map, const char *name, int32_t *at) {
    for (int32_t i = 0; i < map->count; i++) {
        int32_t k =
            (*at + i) % map->count; /* operators keep their order: the next one, most often */
        if (strcmp(map->names[k], name) == 0) {
            *at = k + 1;
            return map->stages[k];
        }
    }
    return 0;
}

/* Returns whether an operator reads parameters and constants only. */
static bool is_derived(const stager *s, const trmi_op *op) {
    bool derived = op->inputs_count > 0 && op->phase == TRMI_FORWARD;
    for (int32_t j = 0; j < op->inputs_count; j++) {
        const trmi_op *maker = trmi_maker_of(s->g, op->inputs[j]);
        int32_t stage = op->inputs[j] != 0 ? s->stage[maker - s->g->ops] : LEAF;
        derived = derived && (stage == DERIVED || (stage == LEAF && maker->kind != TRMI_OP_INPUT &&
                                                   maker->kind != TRMI_OP_STATE));
    }
    return derived;
}

/* Finds the stages of the forward operators. *begin: first backward operator. */
static void place_forward(stager *s, const trmi_stage_map *map, int64_t *begin) {
    int32_t at = 0;
    *begin = s->g->ops_count;
    for (int64_t i = 1; i < s->g->ops_count; i++) {
        const trmi_op *op = &s->g->ops[i];
        /* inputs, parameters and states go where they are read */
        if (trmi_is_leaf(op)) {
            s->stage[i] = LEAF;
            continue;
        }
        *begin = op->phase == TRMI_BACKWARD && i < *begin ? i : *begin;
        s->backward[i] = i >= *begin;
        if (s->backward[i]) {
            continue;
        }
        s->stage[i] = stage_of_name(map, op->name, &at);
        /* a stage never reads from a later one */
        for (int32_t j = 0; j < op->inputs_count; j++) {
            int32_t before = s->stage[s->g->values[op->inputs[j]].op];
            s->stage[i] = op->inputs[j] != 0 && before > s->stage[i] ? before : s->stage[i];
        }
        s->stage[i] = is_derived(s, op) ? DERIVED : s->stage[i];
    }
}

/* Returns the stage of a backward operator's forward operator; -1: it names none. */
static int32_t stage_of_origin(const stager *s, const char *origin, int64_t begin, int64_t *at) {
    if (origin == NULL) {
        return -1;
    }
    for (int64_t n = 0; n < begin; n++) {
        int64_t i = (*at + begin - n) % begin; /* backward goes from the end to the beginning */
        if (s->stage[i] >= 0 && strcmp(s->g->ops[i].name, origin) == 0) {
            *at = i;
            return s->stage[i];
        }
    }
    return -1;
}

/* Returns the earliest stage of the gradients that a backward operator reads; `stage`: if that is
 * earlier, or -1, where it reads none. */
static int32_t earliest_gradient(const stager *s, const trmi_op *op, int32_t stage) {
    for (int32_t j = 0; j < op->inputs_count; j++) {
        int32_t maker = s->g->values[op->inputs[j]].op;
        bool gradient = op->inputs[j] != 0 && s->backward[maker] && s->stage[maker] >= 0;
        bool earlier = stage < 0 || s->stage[maker] < stage;
        stage = gradient && earlier ? s->stage[maker] : stage;
    }
    return stage;
}

/* Stages of the backward operators: no earlier than where they are read (what is computed again for
 * a later stage), and without a forward operator just there. A sum of gradients that nothing reads
 * must not draw what it adds to another stage. */
static trm_status place_backward(stager *s, int64_t begin, trm_error *err) {
    const trm_graph *g = s->g;
    int32_t *wanted; /* [values] latest stage that reads it */
    int64_t at = begin - 1;
    int32_t last = s->o->stages * s->o->chunks - 1;
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, wanted, g->values_count, "for stages"));
    /* First put each backward operator where its forward operator is. */
    for (int64_t i = begin; i < g->ops_count; i++) {
        s->stage[i] =
            trmi_is_leaf(&g->ops[i]) ? LEAF : stage_of_origin(s, g->ops[i].origin, begin, &at);
    }
    /* Go from the end: an operator belongs to the latest stage that reads one of its values, if
     * that is later (wanted: stage + 1; 0: not read). */
    for (int64_t i = g->ops_count - 1; i >= begin; i--) {
        const trmi_op *op = &g->ops[i];
        if (trmi_is_leaf(op)) {
            continue;
        }
        for (int32_t j = 0; j < op->outputs_count; j++) {
            int32_t reader = wanted[op->outputs[j]] - 1;
            s->stage[i] = reader > s->stage[i] ? reader : s->stage[i];
        }
        for (int32_t j = 0; s->stage[i] >= 0 && j < op->inputs_count; j++) {
            wanted[op->inputs[j]] =
                s->stage[i] + 1 > wanted[op->inputs[j]] ? s->stage[i] + 1 : wanted[op->inputs[j]];
        }
    }
    for (int64_t i = begin; i < g->ops_count; i++) {
        if (!trmi_is_leaf(&g->ops[i])) {
            int32_t stage = earliest_gradient(s, &g->ops[i], s->stage[i]);
            s->stage[i] = stage < 0 ? last : stage;
        }
    }
    return TRM_OK;
}

/* ---- what crosses ---------------------------------------------------------------------------- */

/* Notes that virtual stage `to` reads a value; values of derived operators are read through. */
static void note_reader(stager *s, int32_t value, int32_t to, bool backward, uint8_t *read) {
    int32_t maker = s->g->values[value].op;
    int32_t runs = s->o->stages * s->o->chunks;
    if (value == 0 || s->stage[maker] < 0 || s->stage[maker] == to) {
        return;
    }
    uint8_t *cell = &read[(int64_t)value * runs + to];
    *cell = *cell == 1 || !backward ? 1 : 2;
}

/* Lists the values that go from one stage to another. A value is sent once to each stage that
 * reads it, however many operators there read it, and it is marked if only backward does.
 * crossings[first[v]] to crossings[first[v + 1] - 1] are those of value v. */
static trm_status find_crossings(stager *s, trm_error *err) {
    const trm_graph *g = s->g;
    int32_t runs = s->o->stages * s->o->chunks;
    uint8_t *read; /* [values][runs] 1: in forward, 2: in backward only */
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, read, g->values_count * runs, "for stages"));
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->first, g->values_count + 1, "for stages"));
    for (int64_t i = 1; i < g->ops_count; i++) {
        for (int32_t j = 0; s->stage[i] >= 0 && j < g->ops[i].inputs_count; j++) {
            note_reader(s, g->ops[i].inputs[j], s->stage[i], s->backward[i], read);
        }
    }
    /* Count one crossing for each pair of a value and a run that reads it. */
    for (int64_t i = 0; i < g->values_count * runs; i++) {
        s->count += read[i] != 0;
    }
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->crossings, s->count + 1, "for stages"));
    s->count = 0;
    for (int32_t v = 0; v < g->values_count; v++) {
        s->first[v] = s->count;
        for (int32_t to = 0; to < runs; to++) {
            uint8_t how = read[(int64_t)v * runs + to];
            if (how != 0) {
                s->crossings[s->count] =
                    (crossing){.value = v, .to = to, .edge = s->count, .backward = how == 2};
                s->count++;
            }
        }
    }
    s->first[g->values_count] = s->count;
    return TRM_OK;
}

/* Fills in edges and messages, and plays the schedule with them. */
static trm_status make_edges(stager *s, trm_error *err) {
    trmi_staged *out = s->out;
    int32_t runs = s->o->stages * s->o->chunks;
    int32_t *kept, *waiting, in_flight[TRMI_VIRTUAL_STAGES_MAX];
    out->edges_count = s->count;
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, out->edges, s->count + 1, "for stages"));
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, out->messages, s->count + 1, "for stages"));
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, kept, 2 * s->count + 1, "for stages"));
    waiting = kept + s->count;
    /* Make an edge and a message for each value that crosses. */
    for (int32_t e = 0; e < s->count; e++) {
        const crossing *c = &s->crossings[e];
        const trmi_value *v = &s->g->values[c->value];
        out->edges[e] = (trmi_pipeline_edge){.from = s->stage[v->op],
                                             .to = c->to,
                                             .from_backward = s->backward[v->op],
                                             .to_backward = c->backward};
        out->messages[e] =
            (trmi_stage_message){.name = trmi_arena_strdup(s->arena, s->g->ops[v->op].name),
                                 .dtype = v->dtype,
                                 .count = trm_shape_count(&v->shape)};
    }
    /* Playing the schedule shows how many copies of each value are kept, and how many messages
     * wait. */
    trmi_pipeline_play play = {.in_flight = in_flight, .kept = kept, .waiting = waiting};
    TRMI_TRY(trmi_pipeline_run(&out->pipeline, out->edges, s->count, &play, err));
    for (int32_t e = 0; e < s->count; e++) {
        out->messages[e].kept = kept[e];
        out->messages[e].waiting = waiting[e];
    }
    for (int32_t v = s->o->stage; v < runs; v += s->o->stages) {
        out->chunks[v / s->o->stages].copies = in_flight[v];
    }
    return TRMI_CHECK_MEMORY(err, s->arena, "for stages");
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Returns whether a stage holds values of this kind between steps. */
static bool is_held(trmi_op_kind kind) {
    return kind == TRMI_OP_PARAMETER || kind == TRMI_OP_STATE;
}

/* Adds the stages that read a value, through derived operators. */
static void add_holders(const stager *s, int32_t value, uint64_t stages, uint64_t *holders) {
    const trmi_op *maker = trmi_maker_of(s->g, value);
    if (value == 0 || s->stage[maker - s->g->ops] >= 0) {
        return;
    }
    holders[value] |= stages;
    for (int32_t j = 0; j < maker->inputs_count; j++) {
        add_holders(s, maker->inputs[j], stages, holders);
    }
}

/* Lists parameters and states: which stages hold them, which one updates them. */
static trm_status list_leaves(stager *s, trm_error *err) {
    const trm_graph *g = s->g;
    uint64_t *holders;
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, holders, g->values_count, "for stages"));
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->out->leaves, g->ops_count, "for stages"));
    /* Find which stages read each leaf, as a set of bits. */
    for (int64_t i = 1; i < g->ops_count; i++) {
        for (int32_t j = 0; s->stage[i] >= 0 && j < g->ops[i].inputs_count; j++) {
            add_holders(s, g->ops[i].inputs[j], 1ull << s->stage[i] % s->o->stages, holders);
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        int32_t value = op->outputs[0], gradient = 0;
        if (!is_held(op->kind)) {
            continue;
        }
        for (int32_t p = 0; p < s->roots->params_count; p++) {
            gradient = s->roots->params[p] == value ? s->roots->grads[p] : gradient;
        }
        /* A leaf that no operator reads is held by the first stage. The stage that makes its
         * gradient updates a parameter. */
        uint64_t who = holders[value] != 0 ? holders[value] : 1;
        int32_t maker = s->g->values[gradient].op, owner = 0;
        while ((who >> owner & 1) == 0) {
            owner++;
        }
        owner = gradient != 0 && s->stage[maker] >= 0 ? s->stage[maker] % s->o->stages : owner;
        s->out->leaves[s->out->leaves_count++] =
            (trmi_stage_leaf){.name = trmi_arena_strdup(s->arena, op->name),
                              .dtype = g->values[value].dtype,
                              .shape = g->values[value].shape,
                              .state = op->kind == TRMI_OP_STATE,
                              .trained = gradient != 0,
                              .frozen = op->kind == TRMI_OP_PARAMETER && !op->attrs.leaf.trainable,
                              .owner = owner,
                              .holders = who | 1ull << owner};
    }
    return TRMI_CHECK_MEMORY(err, s->arena, "for stages");
}

/* Returns the leaf of a name; NULL: none. */
static const trmi_stage_leaf *leaf_named(const trmi_staged *staged, const char *name) {
    for (int32_t i = 0; i < staged->leaves_count; i++) {
        if (strcmp(staged->leaves[i].name, name) == 0) {
            return &staged->leaves[i];
        }
    }
    return NULL;
}

/* ---- the graph of this stage ----------------------------------------------------------------- */

/* Emits inputs, which every stage is fed, and the parameters and states that this stage holds. */
static void emit_leaves(stager *s) {
    for (int64_t i = 1; i < s->g->ops_count; i++) {
        const trmi_op *op = &s->g->ops[i];
        const trmi_stage_leaf *leaf = is_held(op->kind) ? leaf_named(s->out, op->name) : NULL;
        bool here = leaf != NULL ? (leaf->holders >> s->o->stage & 1) != 0
                                 : op->kind == TRMI_OP_INPUT || op->kind == TRMI_OP_CONSTANT;
        if (!here) {
            continue;
        }
        s->pass.map = s->leaves;
        int32_t index = trmi_pass_copy(&s->pass, op);
        if (index != 0 && leaf != NULL && !leaf->state && leaf->owner != s->o->stage) {
            s->pass.to->ops[index].attrs.leaf.trainable = false; /* its owner updates it */
        }
        for (int32_t c = 0; index != 0 && c < s->o->chunks; c++) {
            s->maps[c][op->outputs[0]] = s->leaves[op->outputs[0]];
        }
    }
}

/* Emits a SEND (of a value of `to`) or a RECEIVE for edge `e`. Returns the new value. */
static int32_t emit_transfer(stager *s, int32_t e, bool receive, int32_t value, trmi_phase phase) {
    const crossing *c = &s->crossings[e];
    const trmi_value *v = &s->g->values[c->value];
    const trmi_pipeline_edge *edge = &s->out->edges[e];
    trmi_transfer what = {.head = {.bytes = sizeof what},
                          .edge = e,
                          .from = edge->from % s->o->stages,
                          .to = edge->to % s->o->stages,
                          .dtype = v->dtype,
                          .shape = v->shape};
    if (s->marks.rows != NULL) {
        what.block_rows = s->marks.rows[c->value];
        what.block_dimension = s->marks.dimension[c->value];
    }
    const trmi_attrs attrs = {.attached = &what.head};
    char *name = trmi_arena_printf(&s->pass.to->arena, "%s.%s%d", s->g->ops[v->op].name,
                                   receive ? "from" : "to", receive ? edge->from : edge->to);
    int32_t index = name == NULL
                        ? 0
                        : trmi_pass_emit(&s->pass, receive ? TRMI_OP_RECEIVE : TRMI_OP_SEND, phase,
                                         name, &value, receive ? 0 : 1, 1, &attrs);
    return index != 0 ? s->pass.to->ops[index].outputs[0] : 0;
}

/* Makes a value available in chunk `c`: receives it, or computes what is derived of parameters. */
static void bring_value(stager *s, int32_t value, int32_t c, trmi_phase phase) {
    const trmi_op *maker = trmi_maker_of(s->g, value);
    int32_t run = c * s->o->stages + s->o->stage;
    if (value == 0 || s->maps[c][value] != 0) {
        return;
    }
    /* derived of parameters: each chunk computes its own */
    if (s->stage[maker - s->g->ops] == DERIVED) {
        for (int32_t j = 0; j < maker->inputs_count; j++) {
            bring_value(s, maker->inputs[j], c, phase);
        }
        s->pass.map = s->maps[c];
        int32_t index = trmi_pass_copy(&s->pass, maker);
        if (index != 0) {
            s->pass.to->ops[index].phase = phase;
        }
        return;
    }
    for (int32_t k = s->first[value]; k < s->first[value + 1]; k++) {
        if (s->crossings[k].to == run) {
            s->maps[c][value] = emit_transfer(s, k, true, 0, phase);
        }
    }
}

/* Emits the operators of one chunk's forward or backward. */
static void emit_chunk(stager *s, int32_t c, bool backward) {
    int32_t run = c * s->o->stages + s->o->stage;
    trmi_phase phase = backward ? TRMI_BACKWARD : TRMI_FORWARD;
    s->out->operators[c][backward][0] = (int32_t)s->pass.to->ops_count;
    for (int64_t i = 1; i < s->g->ops_count; i++) {
        const trmi_op *op = &s->g->ops[i];
        if (s->stage[i] != run || s->backward[i] != backward) {
            continue;
        }
        /* Sum what it reads, the operator, and what others read of it. */
        for (int32_t j = 0; j < op->inputs_count; j++) {
            bring_value(s, op->inputs[j], c, phase);
        }
        s->pass.map = s->maps[c];
        trmi_pass_copy(&s->pass, op);
        for (int32_t j = 0; j < op->outputs_count; j++) {
            int32_t value = op->outputs[j];
            for (int32_t k = s->first[value]; k < s->first[value + 1]; k++) {
                emit_transfer(s, k, false, s->maps[c][value], phase);
            }
        }
    }
    s->out->operators[c][backward][1] = (int32_t)s->pass.to->ops_count;
}

/* Returns the value of this stage's graph that a root is; 0: another stage makes it. */
static int32_t root_here(const stager *s, int32_t value) {
    int32_t run = s->stage[s->g->values[value].op];
    if (value == 0 || run < 0) {
        return s->leaves[value];
    }
    return run % s->o->stages == s->o->stage ? s->maps[run / s->o->stages][value] : 0;
}

/* Replaces the roots by the values of this stage's graph; parameters of other stages are left
 * out. */
static void map_roots(const stager *s, trmi_roots *roots) {
    int32_t count = 0;
    roots->loss = root_here(s, roots->loss);
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        roots->outputs[i] = root_here(s, roots->outputs[i]);
    }
    for (int32_t i = 0; i < roots->params_count; i++) {
        int32_t value = s->leaves[roots->params[i]];
        if (value == 0) {
            continue;
        }
        int32_t gradient = root_here(s, roots->grads[i]);
        if (roots->grad_axes != NULL) {
            roots->grad_axes[count] = gradient != 0 ? roots->grad_axes[i] : 0;
        }
        roots->params[count] = value;
        roots->grads[count++] = gradient;
    }
    roots->params_count = count;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Allocates the tables of the stager in its arena. */
static trm_status take_tables(stager *s, trm_error *err) {
    size_t chunks = (size_t)s->o->chunks;
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->stage, s->g->ops_count, "for stages"));
    s->stage[0] = LEAF; /* the unused operator */
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->backward, s->g->ops_count, "for stages"));
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->leaves, s->g->values_count, "for stages"));
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->maps, chunks, "for stages"));
    for (size_t c = 0; c < chunks; c++) {
        TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->maps[c], s->g->values_count, "for stages"));
    }
    TRMI_TRY(TRMI_NEW_IN(err, s->arena, s->out->chunks, chunks, "for stages"));
    return TRMI_NEW_IN(err, s->arena, s->out->operators, chunks, "for stages");
}

/* Leaves of a partition that this stage does not hold have no value here. */
static void renumber_parts(stager *s, trm_program *program) {
    for (int32_t i = 0; i < program->leaves_count; i++) {
        trmi_partition_leaf *leaf = &program->leaves[i];
        leaf->value = 0;
        for (int64_t k = 1; k < s->g->ops_count; k++) {
            const trmi_op *op = &s->g->ops[k];
            if (trmi_is_leaf(op) && strcmp(op->name, leaf->name) == 0) {
                leaf->value = s->leaves[op->outputs[0]];
            }
        }
    }
    for (int32_t i = 0; i < s->out->leaves_count; i++) {
        const trmi_partition_leaf *part = trmi_program_leaf(program, s->out->leaves[i].name);
        s->out->leaves[i].shape = part != NULL ? part->shape : s->out->leaves[i].shape;
    }
}

/* Contract in stages.h. Assigns each operator to a stage (backward goes where its forward is),
 * finds the values that cross, and copies this stage's operators into a graph of its own:
 * leaves, the chunks forward, then the chunks backward in reverse order. */
trm_status trmi_stage_graph(trm_program *program, const trmi_plan_options *options,
                            const trmi_stage_map *map, trmi_roots *roots, trm_error *err) {
    const trmi_stage_options *o = options->stages;
    stager s = {.g = program->graph, .o = o, .roots = roots, .arena = &program->arena};
    int64_t begin;
    TRMI_TRY(TRMI_NEW_IN(err, s.arena, s.out, 1, "for stages"));
    s.out->stage = o->stage;
    TRMI_TRY(
        trmi_pipeline_create(o->order, o->stages, o->chunks, o->micros, &s.out->pipeline, err));
    program->staged = s.out; /* trmi_plan_destroy frees the schedule */
    TRMI_TRY(take_tables(&s, err));
    if (options->blocks > 0) {
        TRMI_TRY(trmi_mark_blocks(s.g, program->block_samples, s.arena, &s.marks, err));
    }
    /* stages, what crosses between them, the schedule's needs */
    place_forward(&s, map, &begin);
    TRMI_TRY(place_backward(&s, begin, err));
    TRMI_TRY(find_crossings(&s, err));
    TRMI_TRY(make_edges(&s, err));
    TRMI_TRY(list_leaves(&s, err));
    /* Build this stage's graph. */
    TRMI_TRY(trmi_pass_begin(&s.pass, s.g, err));
    int32_t *own_map = s.pass.map;
    s.pass.to->rows = trmi_program_ops;
    emit_leaves(&s);
    for (int32_t c = 0; c < o->chunks; c++) {
        emit_chunk(&s, c, false);
    }
    for (int32_t c = o->chunks - 1; c >= 0; c--) {
        emit_chunk(&s, c, true);
    }
    s.pass.map = own_map;
    trm_graph *local;
    TRMI_TRY(trmi_pass_end(&s.pass, &local, err));
    map_roots(&s, roots);
    renumber_parts(&s, program);
    trm_graph_destroy(program->graph);
    program->graph = local;
    return TRM_OK;
}

void trmi_staged_free(trmi_staged *staged) {
    if (staged != NULL) {
        trmi_pipeline_free(&staged->pipeline);
    }
}
