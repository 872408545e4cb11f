/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates one step of one rank, event by event.
 *
 *      rank      forward ------------------> backward <------------------ update
 *                [in][halo][op] ...          [halo][op][out] ...
 *      link      [gather][gather] ...             | ready: [bucket 0]   [bucket 1]--exposed--|
 *
 * Operators and blocking messages follow one another on the rank. Gradients become ready in
 * backward, are fused into buckets and use one channel; the part of the channel's time that
 * operators do not hide is added to the step. Gathers of parameters in parts use it, too, where
 * they begin ahead (plan/lower/lower_ahead.c); the rank waits for each at its place.
 *
 * The rank has two clocks: `full`, as if all messages of the channel were hidden behind operators
 * as far as possible, and `now`, on which the part `overlap` of that is. With B the rank's own
 * seconds and G those of the channel, full >= B, full >= G, and now = overlap full + (1 - overlap)
 * (B + G): so no step is below the bound of the search. The simulation gives the step time, the
 * sums by kind and the memory of a choice; with a timeline it also records the events. Costs come
 * from the space, so that the simulation and the search agree. */
#include "plan/search/search.h"

#include "plan/lower/buckets.h"
#include "plan/passes/pass.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A gradient to be reduced; after fuse_gradients() a bucket of gradients with equal axes and
 * move. */
typedef struct gradient_item {
    uint32_t axes;         /* of the groups that reduce it, as bits */
    trmi_move move;        /* GRADIENTS or SLICES */
    double bytes;          /* of the largest part of a rank */
    double ready, seconds; /* when backward has made it, since the step began; of the move */
    int32_t node;          /* the operator; of a bucket: the number of gradients in it */
} gradient_item;

/* When the channel sends one message. */
typedef struct link_span {
    double begin, end;
} link_span;

/* State of one simulation. */
typedef struct step_simulation {
    const trmi_space *s;
    const trmi_choice *choice;
    /* finds routes for the events; NULL: one event for each redistribution */
    trmi_router *router;
    trmi_timeline *timeline;
    trmi_measure *m;
    gradient_item *items;
    int64_t items_count, items_capacity;
    bool sliced;      /* parameters are whole and updated in slices */
    bool cooperative; /* ranks compute cooperative gradients */
    /* what the channel sends for gathers, in the order of their beginnings, on the clock `full` */
    link_span *spans;
    int64_t spans_count, spans_capacity;
    double passed[TRMI_GATHERS_AHEAD]; /* when the rank passed the last gathers, on that clock */
    double factors;  /* seconds of updating weights whose gradients stay in factors */
    double gathered; /* bytes of parameters that are updated in slices */
    /* now, full: seconds since the start; updated: bytes of parameters that the optimiser updates,
     * without those whose gradients stay in factors */
    double now, full, updated;
    bool failed;
} step_simulation;

/* Returns the strategy of a node in the choice. */
static const trmi_strategy *strategy_of(const step_simulation *w, int32_t node) {
    return &trmi_space_class_of(w->s, node)->strategies[w->choice->strategy[node]];
}

/* Records an event if there is a timeline. */
static void record_event(step_simulation *w, trmi_simulated_event event) {
    trmi_timeline *t = w->timeline;
    if (t == NULL) {
        return;
    }
    if (!trmi_grow((void **)&t->events, &t->capacity, t->count + 1, sizeof *t->events)) {
        w->failed = true;
        return;
    }
    t->events[t->count++] = event;
}

/* Advances the time by a blocking event; adds its seconds to *sum and records it. */
static void simulate_event(step_simulation *w, double *sum, trmi_simulated_event event) {
    event.begin = w->now;
    w->now += event.seconds;
    w->full += event.seconds;
    *sum += event.seconds;
    if (event.seconds > 0) {
        record_event(w, event);
    }
}

/* Returns the cost of a node's cooperative gradient; NULL: none. */
static const trmi_cooperative_cost *cooperative_of(const step_simulation *w, int32_t node) {
    const trmi_cooperative_cost *cost =
        &trmi_space_class_of(w->s, node)->cooperative[w->choice->strategy[node]];
    return w->cooperative && cost->made ? cost : NULL;
}

/* Spends the time of redistributing a value from one spread to another. With a router it records
 * the moves of the route. */
static void simulate_redistribution(step_simulation *w, int32_t node, trmi_phase phase,
                                    int32_t value, const char *what, const trmi_spread *from,
                                    const trmi_spread *to) {
    const trmi_value *v = &w->s->graph->values[value];
    double seconds = trmi_space_move_seconds(w->s, value, from, to);
    trmi_route route;
    if (trmi_spread_equal(from, to) || seconds == 0) {
        return;
    }
    /* without a route the whole is one event */
    if (w->router == NULL ||
        trmi_route_find(w->router, &v->shape, v->dtype, from, to, 0, &route, NULL) != TRM_OK) {
        simulate_event(w, &w->m->redistribute,
                       (trmi_simulated_event){.kind = TRMI_EVENT_MOVE,
                                              .node = node,
                                              .phase = phase,
                                              .what = what,
                                              .move = TRMI_MOVE_EXCHANGE,
                                              .seconds = seconds});
        return;
    }
    for (int32_t i = 0; i < route.count; i++) {
        const trmi_route_step *step = &route.steps[i];
        /* the total is the price of the space; it differs from the route's where a route passes
         * through other orders of axes */
        double part =
            route.seconds > 0 ? seconds * step->seconds / route.seconds : seconds / route.count;
        simulate_event(w, &w->m->redistribute,
                       (trmi_simulated_event){.kind = TRMI_EVENT_MOVE,
                                              .node = node,
                                              .phase = phase,
                                              .what = what,
                                              .move = step->move,
                                              .axes = step->axes,
                                              .bytes = step->bytes,
                                              .seconds = part});
    }
}

/* Spends the time that a rank waits for a list of halo exchanges, statistics and rings of an
 * operator that computes for `seconds`. */
static void simulate_exchanges(step_simulation *w, int32_t node, trmi_phase phase, double seconds,
                               const trmi_partition_comm *list, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        simulate_event(w, &w->m->exchange,
                       (trmi_simulated_event){
                           .kind = TRMI_EVENT_MOVE,
                           .node = node,
                           .phase = phase,
                           .what = list[i].what,
                           .move = list[i].move,
                           .axes = list[i].axes,
                           .bytes = list[i].times * list[i].bytes,
                           .seconds = trmi_comm_waiting(&w->s->prices, &w->s->mesh, &list[i],
                                                        w->s->costs.ahead, seconds)});
    }
}

/* ---- parameters ---- */

/* Computes how parameter `input` is stored, and the spread of its gradient. Returns whether it is
 * stored in parts. */
static bool stored_as(const step_simulation *w, int32_t node, int32_t input, trmi_spread *stored,
                      trmi_spread *made) {
    const trmi_strategy *strategy = strategy_of(w, node);
    const trmi_spread *read = &strategy->inputs[input];
    *made = trmi_space_made(&w->s->mesh, read, strategy->letters);
    *stored = *read;
    for (int32_t i = 0; i < w->s->mesh.axes; i++) {
        stored->at[i] = trmi_is_partial(read->at[i]) ? TRMI_WHOLE : read->at[i];
    }
    return w->choice->stores[node] != TRMI_STORE_AS_READ &&
           trmi_space_parts(w->s, node, input, w->choice->strategy[node], stored);
}

/* Spends the time that the rank waits for a gather that begins ahead: when the rank has passed the
 * last but one and has made the cast that it sends, and the channel has sent the last one. */
static void simulate_ahead(step_simulation *w, trmi_simulated_event event, double cast) {
    double *passed = &w->passed[w->spans_count % TRMI_GATHERS_AHEAD];
    const double ahead = trmi_space_ahead(w->s), seconds = event.seconds,
                 slow = w->s->costs.slowdown > 1 ? w->s->costs.slowdown - 1 : 0;
    if (!trmi_grow((void **)&w->spans, &w->spans_capacity, w->spans_count + 1, sizeof *w->spans)) {
        w->failed = true;
        return;
    }
    double sent = w->spans_count > 0 ? w->spans[w->spans_count - 1].end : 0,
           begin = fmax(sent, *passed + cast), end = begin + seconds, late = fmax(0, end - w->full),
           waited = ahead * late + (1 - ahead) * seconds;
    waited += slow * (seconds - waited);
    w->spans[w->spans_count++] = (link_span){begin, end};
    w->full += late;
    w->now += waited;
    w->m->ahead += seconds;
    w->m->waited += waited;
    w->m->gather += waited;
    *passed = w->full;
    event.kind = TRMI_EVENT_AHEAD;
    event.waited = waited;
    event.begin = w->now - (w->full - begin);
    record_event(w, event);
}

/* Spends the time of gathering a parameter from its parts, of which a rank has made the cast in
 * `cast` seconds, or (scatter) of bringing its gradient to them. */
static void simulate_store(step_simulation *w, int32_t node, trmi_phase phase, int32_t value,
                           const trmi_spread *parts, const trmi_spread *read, bool scatter,
                           double cast) {
    trmi_spread whole = *read;
    uint32_t axes = 0;
    for (int32_t i = 0; i < w->s->mesh.axes; i++) {
        whole.at[i] = trmi_is_partial(read->at[i]) ? TRMI_WHOLE : read->at[i];
        axes |= parts->at[i] != whole.at[i] ? 1u << i : 0;
    }
    const trmi_simulated_event event = {
        .kind = TRMI_EVENT_MOVE,
        .node = node,
        .phase = phase,
        .what = scatter ? "gradient to its parts" : "parameter",
        .axes = axes,
        .move = scatter ? TRMI_MOVE_SCATTER_STORE : TRMI_MOVE_GATHER_STORE,
        .bytes = trmi_space_bytes(w->s, value, &whole),
        .seconds = trmi_space_store_move(w->s, value, parts, &whole, scatter)};
    if (!scatter && event.seconds > 0 && trmi_space_ahead(w->s) > 0) {
        simulate_ahead(w, event, cast);
    } else {
        simulate_event(w, &w->m->gather, event);
    }
}

/* Spends the time of casting a parameter. */
static void simulate_cast(step_simulation *w, int32_t node, trmi_phase phase, double seconds) {
    simulate_event(w, &w->m->compute,
                   (trmi_simulated_event){.kind = TRMI_EVENT_OP,
                                          .node = node,
                                          .phase = phase,
                                          .what = "cast",
                                          .seconds = seconds});
}

/* Adds the memory of a node's parameters, their slots and gradients; spends the time of gathering
 * and casting them. */
static void gather_parameters(step_simulation *w, int32_t node) {
    const trmi_op *op = trmi_space_op(w->s, node);
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_op *parameter = trmi_parameter_of(w->s->graph, op->inputs[i]);
        trmi_spread stored, made, read;
        if (parameter == NULL) {
            continue;
        }
        /* Count the memory of the parameter, its cast, its gradient and its slots. */
        bool parts = stored_as(w, node, i, &stored, &made),
             trained = trmi_space_trains(w->s, parameter);
        double bytes = trmi_space_bytes(w->s, parameter->outputs[0], &stored), cast = 0;
        const bool again = parts && w->choice->stores[node] == TRMI_STORE_AGAIN;
        read = strategy_of(w, node)->inputs[i];
        if (trmi_space_owns(w->s, op, op->inputs[i])) {
            double copy =
                trmi_space_cast(w->s, op->inputs[i], parts ? &stored : &read, w->sliced, &cast);
            w->m->kept_bytes += parts ? 0 : copy;
        }
        if (!trmi_space_owns(w->s, op, parameter->outputs[0])) {
            w->m->gradient_bytes += trmi_space_joined(w->s, op, i, &read);
            simulate_cast(w, node, TRMI_FORWARD, cast);
            continue;
        }
        w->m->weight_bytes += bytes;
        bool in_factors = trained && !parts &&
                          trmi_partition_in_factors(w->s->graph, op, strategy_of(w, node), i);
        w->m->gradient_bytes += trained && !in_factors ? bytes * trmi_space_gradients(w->s) : 0;
        w->m->gradient_bytes += parts ? trmi_space_held(w->s, op, i, &read) : 0;
        w->m->gradient_bytes += trained && i == 1 && cooperative_of(w, node) != NULL
                                    ? cooperative_of(w, node)->bytes
                                    : 0;
        double share = w->sliced ? 1.0 / trmi_mesh_ranks(&w->s->mesh) : 1;
        w->factors +=
            in_factors ? trmi_space_class_of(w->s, node)->factors[w->choice->strategy[node]] : 0;
        w->gathered += trained && w->sliced ? bytes : 0;
        w->updated += trained && !in_factors ? share * bytes : 0;
        w->m->slot_bytes += trained ? share * bytes * w->s->costs.slots : 0;
        /* Cast, then gather. */
        simulate_cast(w, node, TRMI_FORWARD, cast);
        if (parts) {
            w->m->kept_bytes += again ? 0 : trmi_space_bytes(w->s, op->inputs[i], &read);
            simulate_store(w, node, TRMI_FORWARD, op->inputs[i], &stored, &read, false, cast);
        }
    }
}

/* Spends the time of casting and gathering the parameters of a node once more in backward. */
static void gather_again(step_simulation *w, int32_t node) {
    const trmi_op *op = trmi_space_op(w->s, node);
    for (int32_t i = 0; w->choice->stores[node] == TRMI_STORE_AGAIN && i < op->inputs_count; i++) {
        const trmi_op *parameter = trmi_parameter_of(w->s->graph, op->inputs[i]);
        const trmi_spread *read = &strategy_of(w, node)->inputs[i];
        trmi_spread stored, made;
        double cast = 0;
        if (parameter == NULL || !stored_as(w, node, i, &stored, &made)) {
            continue;
        }
        if (trmi_space_owns(w->s, op, op->inputs[i])) {
            (void)trmi_space_cast(w->s, op->inputs[i], &stored, w->sliced, &cast);
        }
        simulate_cast(w, node, TRMI_BACKWARD, cast);
        simulate_store(w, node, TRMI_BACKWARD, op->inputs[i], &stored, read, false, cast);
    }
}

/* Spends the time of adding a gradient to the sum of the micro-batches. */
static void simulate_addition(step_simulation *w, int32_t node, int32_t value,
                              const trmi_spread *stored) {
    double bytes = trmi_space_bytes(w->s, value, stored);
    simulate_event(w, &w->m->compute,
                   (trmi_simulated_event){.kind = TRMI_EVENT_OP,
                                          .node = node,
                                          .phase = TRMI_BACKWARD,
                                          .what = "sum of gradients",
                                          .seconds = w->s->costs.accumulate_byte * bytes});
}

/* Lists the gradients of a node's parameters as ready now. Gradients of parameters in parts block;
 * cooperative gradients are not sent. */
static void queue_gradients(step_simulation *w, int32_t node) {
    const trmi_op *op = trmi_space_op(w->s, node);
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_op *parameter = trmi_parameter_of(w->s->graph, op->inputs[i]);
        if (parameter == NULL || !trmi_space_trains(w->s, parameter) ||
            !trmi_space_owns(w->s, op, parameter->outputs[0])) {
            continue;
        }
        /* where several operators read the parameter, their gradients are added first */
        trmi_spread stored, made;
        bool parts = stored_as(w, node, i, &stored, &made);
        simulate_addition(w, node, parameter->outputs[0], &stored);
        /* Of parameters in parts scatter the gradient now. */
        if (parts) {
            simulate_store(w, node, TRMI_BACKWARD, parameter->outputs[0], &stored,
                           &strategy_of(w, node)->inputs[i], true, 0);
            continue;
        }
        double seconds = trmi_space_reduce_seconds(w->s, parameter->outputs[0], &made, &stored);
        bool cooperative = i == 1 && cooperative_of(w, node) != NULL;
        w->m->cooperative_bytes +=
            cooperative ? trmi_space_bytes(w->s, parameter->outputs[0], &made) : 0;
        if (seconds == 0 || cooperative) {
            continue;
        }
        /* otherwise add it to the gradients that are reduced beside backward */
        if (!trmi_grow((void **)&w->items, &w->items_capacity, w->items_count + 1,
                       sizeof *w->items)) {
            w->failed = true;
            return;
        }
        double bytes = trmi_space_bytes(w->s, parameter->outputs[0], &made);
        seconds = w->sliced ? trmi_space_bucket(w->s, TRMI_MOVE_SLICES, (1u << w->s->mesh.axes) - 1,
                                                bytes)
                            : seconds;
        gradient_item *it = &w->items[w->items_count++];
        *it = (gradient_item){.move = w->sliced ? TRMI_MOVE_SLICES : TRMI_MOVE_GRADIENTS,
                              .ready = w->full,
                              .seconds = seconds,
                              .bytes = bytes,
                              .node = node};
        for (int32_t a = 0; a < w->s->mesh.axes; a++) {
            it->axes |= trmi_is_partial(made.at[a]) ? 1u << a : 0;
        }
    }
}

/* ---- the step ---- */

/* Forward: for each node gather parameters, redistribute inputs, exchange halos, compute. */
static void simulate_forward(step_simulation *w) {
    const trmi_space *s = w->s;
    for (int32_t n = 0, e = 0; n < s->nodes_count; n++) {
        const trmi_strategy *strategy = strategy_of(w, n);
        gather_parameters(w, n);
        /* Take the inputs, in the form that this node's strategy reads; edges are sorted by
         * reader. */
        for (; e < s->edges_count && s->edges[e].to == n; e++) {
            const trmi_space_edge *edge = &s->edges[e];
            trmi_spread source = trmi_space_source(s, edge, w->choice->strategy[edge->from]);
            const float *bytes = s->bytes[edge->table];
            int64_t at =
                (int64_t)w->choice->strategy[edge->from] * trmi_space_class_of(s, n)->count +
                w->choice->strategy[n];
            w->m->flight_bytes += bytes != NULL ? (double)bytes[at] : 0;
            simulate_redistribution(w, n, TRMI_FORWARD, edge->value, "input", &source,
                                    &strategy->inputs[edge->input]);
        }
        const trmi_space_class *c = trmi_space_class_of(s, n);
        simulate_exchanges(w, n, TRMI_FORWARD, c->forward[w->choice->strategy[n]], strategy->comms,
                           strategy->comms_count);
        simulate_event(w, &w->m->compute,
                       (trmi_simulated_event){.kind = TRMI_EVENT_OP,
                                              .node = n,
                                              .phase = TRMI_FORWARD,
                                              .seconds = c->forward[w->choice->strategy[n]]});
        w->m->flight_bytes += c->kept[w->choice->strategy[n]] -
                              (w->choice->again[n] ? c->saved[w->choice->strategy[n]] : 0);
    }
}

/* Spends the time of computing a sum with its layer again. */
static void simulate_sum(step_simulation *w, const trmi_space_edge *edge) {
    double seconds;
    if (trmi_space_sum(w->s, edge, w->choice->strategy[edge->from], w->choice->strategy[edge->to],
                       &seconds)) {
        simulate_event(w, &w->m->again,
                       (trmi_simulated_event){.kind = TRMI_EVENT_OP,
                                              .node = edge->to,
                                              .phase = TRMI_BACKWARD,
                                              .what = "again",
                                              .seconds = seconds});
    }
}

/* Backward, nodes in reverse: exchange halos, recompute, compute, send weight gradients,
 * redistribute input gradients. */
static void simulate_backward(step_simulation *w) {
    const trmi_space *s = w->s;
    int64_t e = s->edges_count;
    for (int32_t n = s->nodes_count - 1; n >= 0; n--) {
        const trmi_strategy *strategy = strategy_of(w, n);
        const trmi_space_class *c = trmi_space_class_of(s, n);
        if (s->nodes[n].backward_count > 0) {
            simulate_exchanges(w, n, TRMI_BACKWARD, c->backward[w->choice->strategy[n]],
                               strategy->backward, strategy->backward_count);
        }
        gather_again(w, n);
        /* This is an approximation: the first reader of the output in backward may run a little
         * earlier. */
        if (w->choice->again[n]) {
            simulate_event(w, &w->m->again,
                           (trmi_simulated_event){.kind = TRMI_EVENT_OP,
                                                  .node = n,
                                                  .phase = TRMI_BACKWARD,
                                                  .what = "again",
                                                  .seconds = c->again[w->choice->strategy[n]]});
        }
        const trmi_cooperative_cost *cooperative = cooperative_of(w, n);
        simulate_event(
            w, &w->m->compute,
            (trmi_simulated_event){.kind = TRMI_EVENT_OP,
                                   .node = n,
                                   .phase = TRMI_BACKWARD,
                                   .seconds = c->backward[w->choice->strategy[n]] +
                                              (cooperative != NULL ? cooperative->seconds : 0)});
        queue_gradients(w, n);
        /* Move the gradients of the inputs back to the producers' forms. */
        for (; e > 0 && s->edges[e - 1].to == n; e--) {
            const trmi_space_edge *edge = &s->edges[e - 1];
            simulate_sum(w, edge);
            if (edge->gradient) {
                trmi_spread made = trmi_space_sent_back(s, edge, w->choice->strategy[n]),
                            to = trmi_space_returned(s, edge, w->choice->strategy[edge->from]);
                simulate_redistribution(w, n, TRMI_BACKWARD, edge->value, "gradient of input",
                                        &made, &to);
            }
        }
    }
}

/* ---- gradients on the link ---- */

/* Compares gradients by the time at which they are ready. */
static int by_ready(const void *a, const void *b) {
    const gradient_item *x = a, *y = b;
    return (x->ready > y->ready) - (x->ready < y->ready);
}

/* Fuses gradients with equal axes and move into buckets, in the order in which they become ready.
 * from: `count` gradients; appends one gradient_item for each bucket to out. */
static void fuse_group(step_simulation *w, gradient_item *from, int64_t count, gradient_item *out,
                       int64_t *out_count) {
    trmi_bucket_item *items = trmi_alloc((size_t)count * sizeof *items);
    trmi_bucket *cut = trmi_alloc((size_t)count * sizeof *cut);
    const trmi_space *s = w->s;
    double small = trmi_space_bucket(s, from[0].move, from[0].axes, TRMI_SMALL_MESSAGE);
    double large = trmi_space_bucket(s, from[0].move, from[0].axes, TRMI_LARGE_MESSAGE);
    double beta = (large - small) / (TRMI_LARGE_MESSAGE - TRMI_SMALL_MESSAGE);
    double alpha = fmax(0, small - TRMI_SMALL_MESSAGE * beta);
    if (items == NULL || cut == NULL) {
        w->failed = true;
    }
    for (int64_t i = 0; !w->failed && i < count; i++) {
        items[i] =
            (trmi_bucket_item){.bytes = (int64_t)from[i].bytes, .ready_seconds = from[i].ready};
    }
    /* without overlap one bucket for all, as the executor does */
    int32_t buckets = w->failed ? 0
                      : s->costs.overlap > 0
                          ? trmi_buckets_optimal(items, (int32_t)count, alpha, beta, cut, NULL)
                          : trmi_buckets_fixed(items, (int32_t)count, INT64_MAX, cut);
    w->failed = w->failed || buckets < 0;
    for (int32_t i = 0; i < buckets; i++) {
        gradient_item *last = &from[cut[i].first + cut[i].count - 1], joined = *last;
        joined.bytes = (double)cut[i].bytes;
        joined.seconds = trmi_space_bucket(s, joined.move, joined.axes, joined.bytes);
        joined.node = cut[i].count; /* from here on: number of gradients in the bucket */
        out[(*out_count)++] = joined;
    }
    trmi_free(items);
    trmi_free(cut);
}

/* Replaces the gradients by buckets, sorted by the time at which they are ready. Only gradients
 * with equal axes and move share a bucket. */
static void fuse_gradients(step_simulation *w) {
    gradient_item *out = trmi_alloc(((size_t)w->items_count + 1) * sizeof *out),
                  *group = trmi_alloc(((size_t)w->items_count + 1) * sizeof *group);
    bool *done = trmi_alloc((size_t)w->items_count + 1);
    int64_t out_count = 0;
    w->failed = w->failed || out == NULL || group == NULL || done == NULL;
    for (int64_t i = 0; !w->failed && i < w->items_count; i++) {
        int64_t count = 0;
        /* all gradients that go the same way */
        for (int64_t k = i; !done[i] && k < w->items_count; k++) {
            if (!done[k] && w->items[k].axes == w->items[i].axes &&
                w->items[k].move == w->items[i].move && k != i) {
                group[++count] = w->items[k];
                done[k] = true;
            }
        }
        if (!done[i]) {
            group[0] = w->items[i];
            done[i] = true;
            if (w->s->costs.fuse) {
                fuse_group(w, group, count + 1, out, &out_count);
            } else {
                for (int64_t k = 0; k <= count; k++) {
                    group[k].node = 1;
                    out[out_count++] = group[k];
                }
            }
        }
    }
    if (!w->failed && out_count > 0) {
        qsort(out, (size_t)out_count, sizeof *out, by_ready);
        memcpy(w->items, out, (size_t)out_count * sizeof *out);
        w->items_count = out_count;
    }
    trmi_free(out);
    trmi_free(group);
    trmi_free(done);
}

/* Returns when the channel has sent a bucket that may begin at `begin`. Gathers go first. */
static double end_of_bucket(const step_simulation *w, double begin, double seconds) {
    double end = begin + seconds;
    for (int64_t i = 0; i < w->spans_count; i++) {
        const link_span *span = &w->spans[i];
        end += span->end > begin && span->begin < end ? span->end - fmax(begin, span->begin) : 0;
    }
    return end;
}

/* Sends the buckets over one channel, one after the other. Operators hide what is sent before they
 * end, in the ratio `overlap` (costs); the rest is exposed. */
static void send_buckets(step_simulation *w) {
    double end = 0, sum = 0, wire = w->s->costs.wire > 0 ? w->s->costs.wire : 1;
    for (int64_t i = 0; i < w->items_count; i++) {
        gradient_item *it = &w->items[i];
        double begin = fmax(end, it->ready);
        end = end_of_bucket(w, begin, it->seconds);
        begin = fmax(begin, end - it->seconds);
        sum += it->seconds;
        record_event(w, (trmi_simulated_event){.kind = TRMI_EVENT_BUCKET,
                                               .node = -1,
                                               .phase = TRMI_BACKWARD,
                                               .what = "gradients",
                                               .move = it->move,
                                               .axes = it->axes,
                                               .bytes = it->bytes * wire,
                                               .begin = begin + (w->now - w->full),
                                               .seconds = it->seconds,
                                               .count = it->node});
    }
    /* exposed: what is sent after the last operator, and without overlap all of it */
    double overlap = w->s->costs.overlap, after = fmax(0, end - w->full);
    w->m->gradient = sum;
    w->m->exposed = overlap * after + (1 - overlap) * sum;
    w->m->buckets = (int32_t)w->items_count;
    double slow = w->s->costs.slowdown > 1 ? w->s->costs.slowdown - 1 : 0;
    w->now += w->m->exposed + slow * (sum - w->m->exposed);
}

/* Simulates the step and fills in the measure. */
static trm_status simulate_step(step_simulation *w, trm_error *err) {
    *w->m = (trmi_measure){0};
    /* the operators, then what remains of the gradients' messages */
    simulate_forward(w);
    w->m->forward = w->now;
    simulate_backward(w);
    w->m->messages = (int32_t)w->items_count;
    fuse_gradients(w);
    send_buckets(w);
    /* Cooperative gradients need one barrier of all ranks. */
    if (w->m->cooperative_bytes > 0) {
        uint32_t all = (1u << w->s->mesh.axes) - 1;
        simulate_event(w, &w->m->exchange,
                       (trmi_simulated_event){.kind = TRMI_EVENT_MOVE,
                                              .node = -1,
                                              .phase = TRMI_BACKWARD,
                                              .what = "gradients of all ranks",
                                              .move = TRMI_MOVE_ALL_REDUCE,
                                              .axes = all,
                                              .bytes = sizeof(float),
                                              .seconds = trmi_price(&w->s->prices, &w->s->mesh,
                                                                    TRMI_MOVE_ALL_REDUCE, all,
                                                                    sizeof(float))});
    }
    /* Slices need barriers, or gather the updated parameters. */
    if (w->sliced) {
        simulate_event(
            w, &w->m->gather,
            (trmi_simulated_event){
                .kind = TRMI_EVENT_MOVE,
                .node = -1,
                .phase = TRMI_BACKWARD,
                .what = "parameters",
                .move = w->s->costs.gathers ? TRMI_MOVE_ALL_GATHER : TRMI_MOVE_ALL_REDUCE,
                .axes = (1u << w->s->mesh.axes) - 1,
                .bytes = w->s->costs.gathers ? w->gathered : sizeof(float),
                .seconds = trmi_space_meetings(w->s) + trmi_space_gathered(w->s, w->gathered)});
    }
    simulate_event(w, &w->m->update,
                   (trmi_simulated_event){
                       .kind = TRMI_EVENT_UPDATE,
                       .node = -1,
                       .phase = TRMI_BACKWARD,
                       .what = "update",
                       .bytes = w->updated,
                       .seconds = trmi_space_update(w->s, w->updated, w->sliced) + w->factors});
    /* sums of the step */
    trmi_measure *m = w->m;
    m->once = m->update + (w->sliced ? m->gather : 0);
    m->overhead = w->s->costs.overhead;
    w->now += m->overhead;
    m->blocking =
        m->compute + m->redistribute + m->exchange + m->gather + m->again + m->update + m->overhead;
    m->kept_bytes += m->flight_bytes;
    m->bytes = m->weight_bytes + m->gradient_bytes + m->slot_bytes + m->kept_bytes;
    m->step = w->now;
    trmi_free(w->items);
    trmi_free(w->spans);
    return TRMI_CHECK_MEMORY(err, w, "to simulate a step");
}

trm_status trmi_space_measure(const trmi_space *space, const trmi_choice *choice, trmi_measure *out,
                              trm_error *err) {
    step_simulation w = {.s = space,
                         .choice = choice,
                         .sliced = trmi_choice_sliced(space, choice),
                         .cooperative = trmi_choice_cooperative(space, choice),
                         .m = out};
    TRMI_TRY(trmi_space_go_on(space, err));
    return simulate_step(&w, err);
}

trm_status trmi_space_timeline(const trmi_space *space, const trmi_choice *choice,
                               trmi_router *router, trmi_timeline *timeline, trmi_measure *out,
                               trm_error *err) {
    memset(timeline, 0, sizeof *timeline);
    step_simulation w = {.s = space,
                         .choice = choice,
                         .sliced = trmi_choice_sliced(space, choice),
                         .cooperative = trmi_choice_cooperative(space, choice),
                         .router = router,
                         .timeline = timeline,
                         .m = out};
    return simulate_step(&w, err);
}

void trmi_timeline_free(trmi_timeline *timeline) {
    free(timeline->events);
    trmi_arena_free(&timeline->arena);
}
