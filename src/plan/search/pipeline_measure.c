/* SPDX-License-Identifier: Apache-2.0 */
/* Prices one plan with stages (contracts in pipeline_search.h).
 *
 *      nodes of a run --trmi_space_measure--> forward, backward, gradients, update, memory
 *      edges that leave the run             > messages, forward and back, of each micro-batch
 *      parameter of several stages          > its gradient to the first of them, its values back
 *      all of these --trmi_pipeline_run-->    ends of all actions, meetings, updates: the step
 *
 * The program redistributes a value where it is made, and sends it in the form in which it is
 * read. */
#include "plan/search/pipeline_search.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

/* The plan that is priced, and its costs. */
typedef struct pricing {
    const trmi_pipe_costs *costs;
    trmi_pipe_plan *plan;
    const trmi_space *s;
    int32_t runs;
    int32_t *run_of; /* [nodes] */
    trmi_pipeline_edge *edges;
    double *bytes; /* [edges] */
    int32_t edges_count;
    double *sends; /* [stages] seconds in which a rank sends values of shared parameters */
    trmi_arena *arena;
    trm_error *err;
} pricing;

static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to price a pipeline"); }

/* Returns the seconds of one meeting of all stages; 0 where they do not meet. */
static double meeting_seconds(const trmi_pipe_costs *costs, int32_t stages) {
    return costs->meeting != NULL ? costs->meeting(costs->context, stages) : 0;
}

/* Contract in pipeline_search.h. */
double trmi_pipe_overhead(const trmi_pipe_costs *costs, int32_t stages) {
    const int32_t meetings = TRMI_MEETINGS_BEFORE + TRMI_MEETINGS_AFTER;
    return costs->overhead + meetings * meeting_seconds(costs, stages);
}

/* Contract in pipeline_search.h. */
int32_t trmi_pipe_meetings(const trmi_pipe_plan *plan, double (*out)[2]) {
    const double before = TRMI_MEETINGS_BEFORE * plan->meeting,
                 after = TRMI_MEETINGS_AFTER * plan->meeting;
    out[0][0] = plan->met - before;
    out[0][1] = plan->met;
    out[1][0] = plan->updated;
    out[1][1] = plan->updated + after;
    return plan->meeting > 0 ? TRMI_STAGE_MEETINGS : 0;
}

/* Contract in pipeline_search.h. A cut is possible where one value, and not more, crosses it. */
int32_t trmi_pipe_cuts(const trmi_space *s, int32_t *out) {
    int32_t count = 0;
    for (int32_t n = 1; n < s->nodes_count; n++) {
        int32_t value = 0;
        bool one = true;
        for (int64_t e = 0; e < s->edges_count && one; e++) {
            const trmi_space_edge *edge = &s->edges[e];
            if (edge->tied == 0 && edge->from < n && edge->to >= n) {
                one = value == 0 || value == edge->value;
                value = edge->value;
            }
        }
        if (one && value != 0) {
            out[count++] = n;
        }
    }
    return count;
}

/* Contract in pipeline_search.h. A parameter that an earlier node reads is updated by the stage of
 * that node. */
bool trmi_pipe_foreign(const trmi_space *s, int32_t begin, bool *foreign) {
    bool any = false;
    memset(foreign, 0, (size_t)s->graph->values_count * sizeof *foreign);
    for (int32_t n = 0; n < begin; n++) {
        const trmi_op *op = trmi_space_op(s, n);
        for (int32_t i = 0; i < op->inputs_count; i++) {
            const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[i]);
            if (parameter != NULL) {
                foreign[parameter->outputs[0]] = true;
                any = true;
            }
        }
    }
    return any;
}

/* Returns the spread in which node `n` reads input `input`, partial sums reduced. */
static trmi_spread read_as(const pricing *p, int32_t n, int32_t input) {
    trmi_spread read =
        trmi_space_class_of(p->s, n)->strategies[p->plan->choice.strategy[n]].inputs[input];
    for (int32_t i = 0; i < p->s->mesh.axes; i++) {
        read.at[i] = trmi_is_partial(read.at[i]) ? TRMI_WHOLE : read.at[i];
    }
    return read;
}

/* Adds a message; both virtual stages copy it, also where one rank has both. Its two ends work for
 * it where they are of two ranks. */
static void add_edge(pricing *p, int32_t from, int32_t to, bool backward, double bytes) {
    int32_t stages = p->plan->shape.stages;
    p->edges[p->edges_count] =
        (trmi_pipeline_edge){.from = from,
                             .to = to,
                             .from_backward = backward,
                             .to_backward = backward,
                             .seconds = from % stages == to % stages
                                            ? 0
                                            : p->costs->message(p->costs->context, stages,
                                                                from % stages, to % stages, bytes)};
    p->bytes[p->edges_count++] = bytes;
    double copy = trmi_price(&p->s->prices, &p->s->mesh, TRMI_MOVE_LOCAL, 0, bytes) +
                  (from % stages == to % stages ? 0 : p->costs->handover);
    trmi_pipe_run *sender = &p->plan->runs[from], *receiver = &p->plan->runs[to];
    sender->sent += from % stages == to % stages ? 0 : bytes;
    *(backward ? &sender->backward : &sender->forward) += copy;
    *(backward ? &receiver->backward : &receiver->forward) += copy;
}

/* Prices the values that cross from run to run: redistribution, and one message for each run that
 * reads it. `done`: [nodes][runs], the value of a node went there. */
static void price_crossings(pricing *p, uint8_t *done) {
    const trmi_space *s = p->s;
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *edge = &s->edges[e];
        int32_t from = p->run_of[edge->from], to = p->run_of[edge->to];
        uint8_t *seen = &done[(int64_t)edge->from * p->runs + to];
        if (from == to || *seen == 1 || edge->tied > 0) {
            continue;
        }
        /* A run gets a value once, however many of its operators read it. */
        *seen = 1;
        /* Forward the maker redistributes the value to the reader's form, and sends it; ... */
        const trmi_strategy *reader = &trmi_space_class_of(s, edge->to)
                                           ->strategies[p->plan->choice.strategy[edge->to]],
                            *maker = &trmi_space_class_of(s, edge->from)
                                          ->strategies[p->plan->choice.strategy[edge->from]];
        const trmi_spread *made = &maker->outputs[s->graph->values[edge->value].output];
        trmi_spread read = read_as(p, edge->to, edge->input);
        double bytes = trmi_space_bytes(s, edge->value, &read);
        p->plan->runs[from].forward += trmi_space_move_seconds(s, edge->value, made, &read);
        add_edge(p, from, to, false, bytes);
        /* ... backward the gradient takes the way back. */
        if (edge->gradient) {
            trmi_spread gradient =
                trmi_space_gradient(&s->mesh, &reader->inputs[edge->input], reader->letters);
            trmi_spread wanted = trmi_space_wanted(&s->mesh, made);
            p->plan->runs[from].backward +=
                trmi_space_move_seconds(s, edge->value, &gradient, &wanted);
            add_edge(p, to, from, true, bytes);
        }
    }
}

/* Prices a parameter that several runs read: each micro-batch sends its gradient to the first run,
 * and each step its values to the others. `first`: [values] first run that reads a parameter, plus
 * 1. */
static void price_shared(pricing *p, int32_t *first) {
    const trmi_space *s = p->s;
    int32_t stages = p->plan->shape.stages;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_op *op = trmi_space_op(s, n);
        for (int32_t i = 0; i < op->inputs_count; i++) {
            const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[i]);
            int32_t *owner = parameter != NULL ? &first[parameter->outputs[0]] : NULL,
                    run = p->run_of[n];
            if (owner == NULL || !parameter->attrs.leaf.trainable || *owner == run + 1) {
                continue;
            }
            /* The first run that reads a parameter owns it. */
            if (*owner == 0) {
                *owner = run + 1;
                continue;
            }
            /* another run reads it */
            trmi_spread read = read_as(p, n, i);
            double bytes = trmi_space_bytes(s, parameter->outputs[0], &read);
            add_edge(p, run, *owner - 1, true, bytes);
            int32_t of = (*owner - 1) % stages;
            p->sends[of] += of == run % stages ? 0
                                               : p->costs->message(p->costs->context, stages, of,
                                                                   run % stages, bytes);
        }
    }
}

/* Measures the nodes of each run. */
static trm_status measure_runs(pricing *p) {
    trmi_pipe_plan *plan = p->plan;
    const trmi_space *s = p->s;
    bool *foreign =
        trmi_arena_alloc(p->arena, (size_t)s->graph->values_count * sizeof *foreign + 1);
    if (foreign == NULL) {
        return no_memory(p->err);
    }
    for (int32_t v = 0; v < p->runs; v++) {
        trmi_pipe_run *run = &plan->runs[v];
        trmi_space part;
        *run = (trmi_pipe_run){.begin = plan->begins[v],
                               .end = v + 1 < p->runs ? plan->begins[v + 1] : s->nodes_count};
        /* parameters that another run owns are not paid for here */
        bool any = trmi_pipe_foreign(s, run->begin, foreign);
        TRMI_TRY(trmi_space_part(s, run->begin, run->end, any ? foreign : NULL, p->arena, &part,
                                 p->err));
        const trmi_choice own = {plan->choice.strategy + run->begin,
                                 plan->choice.stores + run->begin, plan->choice.again + run->begin};
        TRMI_TRY(trmi_space_measure(&part, &own, &run->measure, p->err));
        /* the update happens once a step, not for each micro-batch */
        run->forward = run->measure.forward;
        run->backward = run->measure.blocking - run->measure.forward - run->measure.once;
    }
    return TRM_OK;
}

/* Adds up the memory of each stage's rank. */
static void add_memory(pricing *p, const int32_t *kept, const int32_t *waiting) {
    trmi_pipe_plan *plan = p->plan;
    const trm_graph *g = p->s->graph;
    double inputs = 0, ranks = trmi_mesh_ranks(&p->s->mesh);
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_INPUT) {
            const trmi_value *v = trmi_output_of(g, &g->ops[i], 0);
            inputs +=
                (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype) / ranks;
        }
    }
    /* batches of all micro-batches are kept, and the one that is read */
    for (int32_t r = 0; r < plan->shape.stages; r++) {
        plan->ranks[r].staging_bytes = inputs * (plan->shape.micros + 1);
    }
    /* messages, on both sides */
    for (int32_t e = 0; e < p->edges_count; e++) {
        for (int32_t r = 0; r < plan->shape.stages; r++) {
            plan->ranks[r].staging_bytes +=
                p->bytes[e] *
                trmi_pipeline_slots(&plan->pipeline, &p->edges[e], r, kept[e], waiting[e]);
        }
    }
    /* Add each run; activations count once for each micro-batch in flight. */
    for (int32_t v = 0; v < p->runs; v++) {
        trmi_pipe_stage *r = &plan->ranks[v % plan->shape.stages];
        const trmi_measure *m = &plan->runs[v].measure;
        r->weight_bytes += m->weight_bytes;
        r->gradient_bytes += m->gradient_bytes;
        r->slot_bytes += m->slot_bytes;
        r->kept_bytes += m->kept_bytes + (plan->runs[v].in_flight - 1) * m->flight_bytes;
    }
    plan->bytes = 0;
    for (int32_t i = 0; i < plan->shape.stages; i++) {
        trmi_pipe_stage *r = &plan->ranks[i];
        r->bytes =
            r->weight_bytes + r->gradient_bytes + r->slot_bytes + r->kept_bytes + r->staging_bytes;
        plan->bytes = fmax(plan->bytes, r->bytes);
    }
    plan->fits = p->costs->memory_bytes <= 0 || plan->bytes <= p->costs->memory_bytes * (1 + 1e-9);
}

/* Plays the schedule; sets step, bubble and memory. */
static trm_status play_schedule(pricing *p) {
    trmi_pipe_plan *plan = p->plan;
    const trmi_pipe_shape *shape = &plan->shape;
    size_t stages = (size_t)shape->stages;
    double work = 0,
           *seconds = trmi_arena_alloc(p->arena, 2 * ((size_t)p->runs + stages) * sizeof *seconds);
    int32_t *counts = trmi_arena_alloc(
        p->arena, (2 * (size_t)p->edges_count + (size_t)p->runs + 1) * sizeof *counts);
    trmi_pipeline made;
    TRMI_TRY(trmi_pipeline_create(shape->order, shape->stages, shape->chunks, shape->micros, &made,
                                  p->err));
    size_t actions = stages * (size_t)made.count;
    plan->pipeline = made;
    plan->pipeline.actions = trmi_arena_alloc(p->arena, actions * sizeof *made.actions);
    plan->starts = trmi_arena_alloc(p->arena, 2 * actions * sizeof *plan->starts);
    if (seconds == NULL || counts == NULL || plan->pipeline.actions == NULL ||
        plan->starts == NULL) {
        trmi_pipeline_free(&made);
        return no_memory(p->err);
    }
    plan->ends = plan->starts + actions;
    memcpy(plan->pipeline.actions, made.actions, actions * sizeof *made.actions);
    trmi_pipeline_free(&made);
    /* Seconds of each run, of all work, and of each rank's update. */
    double *after = seconds + 2 * p->runs, *done = after + stages;
    for (int32_t v = 0; v < p->runs; v++) {
        seconds[v] = plan->runs[v].forward;
        seconds[p->runs + v] = plan->runs[v].backward;
        trmi_pipe_stage *r = &plan->ranks[v % shape->stages];
        work += shape->micros * (seconds[v] + seconds[p->runs + v]);
        r->update += plan->runs[v].measure.once + plan->runs[v].measure.exposed;
        after[v % shape->stages] = r->update;
    }
    /* play, and see when each rank ends */
    trmi_pipeline_play found = {.forward = seconds,
                                .backward = seconds + p->runs,
                                .after = after,
                                .meets = p->costs->meeting != NULL,
                                .meeting = meeting_seconds(p->costs, shape->stages),
                                .behind = p->sends,
                                .crowding = p->costs->crowding,
                                .in_flight = counts,
                                .kept = counts + p->runs,
                                .waiting = counts + p->runs + p->edges_count,
                                .starts = plan->starts,
                                .ends = plan->ends,
                                .done = done};
    TRMI_TRY(trmi_pipeline_run(&plan->pipeline, p->edges, p->edges_count, &found, p->err));
    /* A step ends when the last rank has made its update. */
    double last = 0;
    plan->updated = 0;
    for (int32_t r = 0; r < shape->stages; r++) {
        trmi_pipe_stage *rank = &plan->ranks[r];
        for (int32_t i = r * made.count; i < (r + 1) * made.count; i++) {
            rank->busy += plan->ends[i] - plan->starts[i];
            rank->ends = plan->ends[i];
        }
        rank->update = done[r] - (found.meets ? found.met : rank->ends);
        plan->updated = fmax(plan->updated, done[r]);
        last = fmax(last, rank->ends);
    }
    plan->bubble = last > 0 ? 1 - work / (last * shape->stages) : 0;
    plan->met = found.meets ? found.met : 0;
    plan->meeting = found.meets ? found.meeting : 0;
    plan->step = found.seconds + p->costs->overhead;
    for (int32_t v = 0; v < p->runs; v++) {
        plan->runs[v].in_flight = found.in_flight[v];
    }
    add_memory(p, found.kept, found.waiting);
    return TRM_OK;
}

/* Contract in pipeline_search.h. Prices each run by itself, then the values that cross between
 * runs and parameters that several runs share, and plays the schedule with these times. */
trm_status trmi_pipe_measure(const trmi_pipe_costs *costs, trmi_pipe_plan *plan, trmi_arena *arena,
                             trm_error *err) {
    const trmi_space *s = plan->space;
    pricing p = {.costs = costs,
                 .plan = plan,
                 .s = s,
                 .runs = plan->shape.stages * plan->shape.chunks,
                 .arena = arena,
                 .err = err};
    /* Make room for every value to cross, forward and backward. */
    size_t nodes = (size_t)s->nodes_count, runs = (size_t)p.runs, inputs = 0;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        inputs += (size_t)trmi_space_op(s, n)->inputs_count;
    }
    plan->runs = trmi_arena_alloc(arena, runs * sizeof *plan->runs);
    plan->ranks = trmi_arena_alloc(arena, (size_t)plan->shape.stages * sizeof *plan->ranks);
    p.run_of = trmi_arena_alloc(arena, (nodes + 1) * sizeof *p.run_of);
    p.edges = trmi_arena_alloc(arena, 2 * (inputs + 1) * sizeof *p.edges);
    p.bytes = trmi_arena_alloc(arena, 2 * (inputs + 1) * sizeof *p.bytes);
    uint8_t *done = trmi_arena_alloc(arena, nodes * runs + 1);
    int32_t *first = trmi_arena_alloc(arena, (size_t)s->graph->values_count * sizeof *first);
    p.sends = trmi_arena_alloc(arena, (size_t)plan->shape.stages * sizeof *p.sends);
    if (plan->runs == NULL || plan->ranks == NULL || p.run_of == NULL || p.edges == NULL ||
        p.bytes == NULL || p.sends == NULL || done == NULL || first == NULL) {
        return no_memory(err);
    }
    TRMI_TRY(measure_runs(&p));
    for (int32_t v = 0; v < p.runs; v++) {
        for (int32_t n = plan->runs[v].begin; n < plan->runs[v].end; n++) {
            p.run_of[n] = v;
        }
    }
    price_crossings(&p, done);
    price_shared(&p, first);
    return play_schedule(&p);
}
