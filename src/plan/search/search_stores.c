/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of a plan's parameters beside the operators that read them: storage whole, in parts or
 * updated in slices; casts; reduction of gradients; the optimiser.
 *
 * search_space.c adds these to the classes while it builds a space (trmi_space_add_parameter);
 * search_measure.c uses the same functions for the simulated step, so that sums and simulation
 * agree. */
#include "plan/search/search.h"

#include <math.h>

/* ---- spreads and bytes ---- */

double trmi_space_bytes(const trmi_space *s, int32_t value, const trmi_spread *spread) {
    const trmi_value *v = &s->graph->values[value];
    return (double)trmi_spread_most(&s->mesh, &v->shape, spread) *
           (double)trm_dtype_bytes(v->dtype);
}

/* Contract in search.h. On axes that cut nothing all ranks compute the same gradient, which needs
 * no sum. */
trmi_spread trmi_space_gradient(const trmi_mesh *mesh, const trmi_spread *read,
                                const char *letters) {
    trmi_spread g = trmi_spread_adjoint(mesh, read);
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (letters[i] == '.') {
            g.at[i] = read->at[i];
            g.place[i] = read->place[i];
        }
    }
    return g;
}

trmi_spread trmi_space_wanted(const trmi_mesh *mesh, const trmi_spread *made) {
    trmi_spread g = *made;
    for (int32_t i = 0; i < mesh->axes; i++) {
        g.at[i] = trmi_is_partial(g.at[i]) ? TRMI_WHOLE : g.at[i];
    }
    return g;
}

trmi_spread trmi_space_source(const trmi_space *s, const trmi_space_edge *edge, int32_t i) {
    const trmi_strategy *from = &trmi_space_class_of(s, edge->from)->strategies[i];
    return edge->tied > 0 ? trmi_space_wanted(&s->mesh, &from->inputs[edge->tied - 1])
                          : from->outputs[s->graph->values[edge->value].output];
}

trmi_spread trmi_space_sent_back(const trmi_space *s, const trmi_space_edge *edge, int32_t k) {
    const trmi_strategy *to = &trmi_space_class_of(s, edge->to)->strategies[k];
    const trmi_spread *read = &to->inputs[edge->input];
    return edge->tied > 0 ? trmi_space_made(&s->mesh, read, to->letters)
                          : trmi_space_gradient(&s->mesh, read, to->letters);
}

trmi_spread trmi_space_returned(const trmi_space *s, const trmi_space_edge *edge, int32_t i) {
    const trmi_strategy *from = &trmi_space_class_of(s, edge->from)->strategies[i];
    trmi_spread source = trmi_space_source(s, edge, i);
    return edge->tied > 0 ? trmi_space_made(&s->mesh, &from->inputs[edge->tied - 1], from->letters)
                          : trmi_space_wanted(&s->mesh, &source);
}

trmi_spread trmi_space_made(const trmi_mesh *mesh, const trmi_spread *read, const char *letters) {
    trmi_spread made = trmi_space_gradient(mesh, read, letters);
    for (int32_t i = 0; i < mesh->axes; i++) {
        made.at[i] = trmi_is_partial(read->at[i]) ? TRMI_WHOLE : made.at[i];
    }
    return made;
}

/* Contract in search.h. A parameter that several operators read is priced once, at its owner. */
bool trmi_space_owns(const trmi_space *s, const trmi_op *op, int32_t value) {
    const trmi_op *parameter = trmi_parameter_of(s->graph, value);
    if (s->foreign == NULL || !s->foreign[parameter->outputs[0]]) {
        return s->owners[value] == (int32_t)(op - s->graph->ops);
    }
    /* the owner is in another stage: the first reader here */
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_op *reader = trmi_space_op(s, n);
        for (int32_t i = 0; i < reader->inputs_count; i++) {
            if (reader->inputs[i] == value ||
                trmi_parameter_of(s->graph, reader->inputs[i]) == parameter) {
                return reader == op;
            }
        }
    }
    return true;
}

double trmi_space_joined(const trmi_space *s, const trmi_op *op, int32_t input,
                         const trmi_spread *read) {
    const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[input]);
    int32_t value = parameter->outputs[0];
    trmi_spread whole = trmi_space_wanted(&s->mesh, read);
    bool in_place =
        s->graph->ops[s->owners[value]].kind == TRMI_OP_EMBEDDING && s->costs.blocks == 0;
    return !trmi_space_trains(s, parameter) || in_place ? 0 : trmi_space_bytes(s, value, &whole);
}

/* Contract in search.h. A table that other operators read as well gets a dense gradient, which
 * lives until both are added. */
double trmi_space_held(const trmi_space *s, const trmi_op *op, int32_t input,
                       const trmi_spread *read) {
    const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[input]);
    if (op->kind != TRMI_OP_EMBEDDING || s->costs.blocks > 0) {
        return 0; /* each reader has its own, trmi_space_joined() */
    }
    for (int64_t o = 1; o < s->graph->ops_count; o++) {
        const trmi_op *other = &s->graph->ops[o];
        const bool reads =
            other != op && other->phase == TRMI_FORWARD && other->kind != TRMI_OP_CAST;
        for (int32_t i = 0; reads && i < other->inputs_count; i++) {
            if (trmi_parameter_of(s->graph, other->inputs[i]) == parameter) {
                trmi_spread whole = trmi_space_wanted(&s->mesh, read);
                return trmi_space_bytes(s, parameter->outputs[0], &whole);
            }
        }
    }
    return 0;
}

/* Returns the n-th dimension to try for cutting a parameter. Of convolution weights it is the input
 * channels first: output channels are innermost in memory, and cutting them would scatter each
 * part. */
static int32_t nth_dimension(const trm_shape *shape, int32_t n) {
    return shape->rank == 4 && n < 2 ? 1 - n : n;
}

/* Computes how a parameter is stored in parts: cut along the first dimension that allows it, over
 * all axes on which its gradient is a partial sum. read: spread in which it is read; made: spread
 * of its gradient. A bias that is added to a partial sum is stored whole on that axis. False: it
 * cannot be cut. */
static bool parts_of(const trmi_space *s, const trm_shape *shape, const trmi_spread *read,
                     const trmi_spread *made, trmi_spread *out) {
    for (int32_t n = 0; n < shape->rank; n++) {
        int32_t d = nth_dimension(shape, n);
        bool any = false;
        *out = trmi_space_wanted(&s->mesh, read);
        /* cut along d where the gradient is a partial sum */
        for (int32_t i = 0; i < s->mesh.axes; i++) {
            if (made->at[i] == TRMI_PARTIAL_SUM && read->at[i] == TRMI_WHOLE) {
                out->at[i] = (uint8_t)(TRMI_SPLIT + d);
                any = true;
            }
        }
        /* The place says how many earlier axes cut the same dimension. */
        for (int32_t i = 0; i < s->mesh.axes; i++) {
            out->place[i] = 0;
            for (int32_t j = 0; j < i && out->at[i] >= TRMI_SPLIT; j++) {
                out->place[i] = (uint8_t)(out->place[i] + (out->at[j] == out->at[i]));
            }
        }
        if (any && trmi_spread_fits(&s->mesh, shape, out)) {
            return true;
        }
    }
    return false;
}

/* Contract in search.h. Only parameters that are trained are kept in parts. */
bool trmi_space_parts(const trmi_space *s, int32_t node, int32_t input, int32_t i,
                      trmi_spread *out) {
    const trmi_op *op = trmi_space_op(s, node),
                  *parameter = trmi_parameter_of(s->graph, op->inputs[input]);
    const trmi_value *v = trmi_input_of(s->graph, op, input);
    const trmi_strategy *strategy = &trmi_space_class_of(s, node)->strategies[i];
    trmi_spread made = trmi_space_gradient(&s->mesh, &strategy->inputs[input], strategy->letters);
    return parameter != NULL && trmi_space_trains(s, parameter) &&
           trmi_space_owns(s, op, parameter->outputs[0]) &&
           parts_of(s, &v->shape, &strategy->inputs[input], &made, out);
}

/* ---- the optimiser ---- */

/* Returns the line below an optimiser curve, tightest at `bytes`; without a curve, update_byte
 * seconds per byte. */
static trmi_update_line line_of(const trmi_space *s, const trmi_curve *curve, double bytes) {
    double byte = s->prices.byte > 0 ? s->prices.byte : 1 / 2e10;
    trmi_update_line line = {.byte = s->costs.update_byte > 0 ? s->costs.update_byte : 5 * byte};
    if (curve != NULL) {
        trmi_curve_below(curve, bytes, &line.byte, &line.offset);
    }
    return line;
}

/* Returns the measured optimiser curve; NULL: not measured. */
static const trmi_curve *curve_of(const trmi_space *s, bool sliced) {
    return sliced && s->costs.sliced != NULL ? s->costs.sliced : s->costs.update;
}

/* Contract in search.h. The curves of the optimiser are measured by bytes of a rank; near the size
 * of this network a line is close enough, and sums of lines are what the solver can add. */
void trmi_space_find_update_lines(trmi_space *s) {
    const trm_graph *g = s->graph;
    double bytes = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        bool trained = op->kind == TRMI_OP_PARAMETER && op->attrs.leaf.trainable;
        bytes +=
            trained ? (double)trm_shape_count(&trmi_output_of(g, op, 0)->shape) * sizeof(float) : 0;
    }
    s->update = line_of(s, curve_of(s, false), bytes / trmi_mesh_ranks(&s->mesh));
    s->sliced = line_of(s, curve_of(s, true), bytes / trmi_mesh_ranks(&s->mesh));
}

double trmi_space_update(const trmi_space *s, double bytes, bool sliced) {
    const trmi_update_line *of = sliced ? &s->sliced : &s->update;
    const trmi_curve *curve = curve_of(s, sliced);
    double line = fmax(0, of->offset + bytes * of->byte);
    return curve != NULL ? fmax(trmi_curve_at(curve, bytes), line) : line;
}

/* ---- messages ---- */

double trmi_space_bucket(const trmi_space *s, trmi_move move, uint32_t axes, double bytes) {
    double wire = s->costs.wire > 0 ? s->costs.wire : 1;
    /* packing reads all and writes what is sent; unpacking handles all of it, or a slice */
    double passes = 1 + (move == TRMI_MOVE_SLICES ? 1.0 / trmi_mesh_ranks(&s->mesh) : 1);
    double pack = wire < 1 ? passes * (1 + wire) * bytes * s->prices.byte : 0;
    return trmi_price(&s->prices, &s->mesh, move, axes, wire * bytes) + pack;
}

/* Contract in search.h. Fused into buckets, a gradient costs its bytes at the slope of large
 * messages; the starts belong to the buckets. */
double trmi_space_reduce_seconds(const trmi_space *s, int32_t value, const trmi_spread *made,
                                 const trmi_spread *stored) {
    uint32_t axes = 0;
    for (int32_t i = 0; i < s->mesh.axes; i++) {
        axes |= trmi_is_partial(made->at[i]) ? 1u << i : 0;
    }
    if (axes == 0) {
        return 0;
    }
    if (!s->costs.fuse) {
        return trmi_space_move_seconds(s, value, made, stored);
    }
    double small = trmi_space_bucket(s, TRMI_MOVE_GRADIENTS, axes, TRMI_SMALL_MESSAGE);
    double large = trmi_space_bucket(s, TRMI_MOVE_GRADIENTS, axes, TRMI_LARGE_MESSAGE);
    return trmi_space_bytes(s, value, made) * (large - small) /
           (TRMI_LARGE_MESSAGE - TRMI_SMALL_MESSAGE);
}

/* Returns the seconds of reducing `bytes` of gradient into slices, for a parameter that is whole on
 * all ranks. */
static double slices_of(const trmi_space *s, double bytes) {
    uint32_t all = (1u << s->mesh.axes) - 1;
    double small = trmi_space_bucket(s, TRMI_MOVE_SLICES, all, TRMI_SMALL_MESSAGE);
    double large = trmi_space_bucket(s, TRMI_MOVE_SLICES, all, TRMI_LARGE_MESSAGE);
    return s->costs.fuse ? bytes * (large - small) / (TRMI_LARGE_MESSAGE - TRMI_SMALL_MESSAGE)
                         : trmi_space_bucket(s, TRMI_MOVE_SLICES, all, bytes);
}

double trmi_space_meetings(const trmi_space *s) {
    uint32_t all = (1u << s->mesh.axes) - 1;
    return s->costs.gathers
               ? trmi_price(&s->prices, &s->mesh, TRMI_MOVE_ALL_GATHER, all, TRMI_SMALL_MESSAGE)
               : (s->casts ? 3 : 2) *
                     trmi_price(&s->prices, &s->mesh, TRMI_MOVE_ALL_REDUCE, all, sizeof(float));
}

double trmi_space_gathered(const trmi_space *s, double bytes) {
    uint32_t all = (1u << s->mesh.axes) - 1;
    double small = trmi_price(&s->prices, &s->mesh, TRMI_MOVE_ALL_GATHER, all, TRMI_SMALL_MESSAGE);
    double large = trmi_price(&s->prices, &s->mesh, TRMI_MOVE_ALL_GATHER, all, TRMI_LARGE_MESSAGE);
    return s->costs.gathers ? bytes * (large - small) / (TRMI_LARGE_MESSAGE - TRMI_SMALL_MESSAGE)
                            : 0;
}

/* Contract in search.h. All axes on which the two spreads differ move at once. */
double trmi_space_store_move(const trmi_space *s, int32_t value, const trmi_spread *parts,
                             const trmi_spread *whole, bool scatter) {
    uint32_t axes = 0;
    for (int32_t i = 0; i < s->mesh.axes; i++) {
        axes |= parts->at[i] != whole->at[i] ? 1u << i : 0;
    }
    return axes == 0 ? 0
                     : trmi_price(&s->prices, &s->mesh,
                                  scatter ? TRMI_MOVE_SCATTER_STORE : TRMI_MOVE_GATHER_STORE, axes,
                                  trmi_space_bytes(s, value, whole));
}

double trmi_space_ahead(const trmi_space *s) { return fmin(s->costs.ahead, s->costs.overlap); }

/* ---- one parameter ---- */

/* Adds the cost of a parameter that is whole on every rank and updated in slices. Requires that its
 * gradient is a sum over all ranks or whole on each of them; otherwise blocking becomes INFINITY.
 * in_factors: the gradient stays in factors; whole: bytes of the parameter. */
static void add_slices(const trmi_space *s, bool trained, bool in_factors,
                       const trmi_spread *stored, const trmi_spread *made, double whole,
                       trmi_store_cost *slices) {
    double ranks = trmi_mesh_ranks(&s->mesh);
    bool fits = !in_factors, sums = trained;
    for (int32_t i = 0; i < s->mesh.axes; i++) {
        sums = sums && made->at[i] == TRMI_PARTIAL_SUM;
    }
    for (int32_t i = 0; i < s->mesh.axes; i++) {
        fits =
            fits && stored->at[i] == TRMI_WHOLE && (!trained || sums || made->at[i] == TRMI_WHOLE);
    }
    double once = trained ? s->sliced.byte * whole / ranks + trmi_space_gathered(s, whole) : 0;
    slices->once += once;
    slices->blocking += !fits ? INFINITY : once + (trained ? s->costs.accumulate_byte * whole : 0);
    slices->gradient += fits && sums ? slices_of(s, whole) : 0;
    slices->bytes += whole * (1 + (trained ? trmi_space_gradients(s) + s->costs.slots / ranks : 0));
}

/* Contract in search.h. A cast reads the parameter and writes the copy; kernels that round by
 * themselves need none. */
double trmi_space_cast(const trmi_space *s, int32_t value, const trmi_spread *read, bool sliced,
                       double *seconds) {
    const trmi_op *cast = trmi_made_by(s->graph, value, TRMI_OP_CAST);
    trmi_spread whole = trmi_space_wanted(&s->mesh, read);
    *seconds = 0;
    if (cast == NULL || (s->rounded != NULL && s->rounded[value])) {
        return 0;
    }
    double bytes = trmi_space_bytes(s, value, &whole),
           byte = s->prices.byte > 0 ? s->prices.byte : 1 / 2e10;
    *seconds = byte * (bytes + trmi_space_bytes(s, cast->inputs[0], &whole)) /
               (sliced && !s->costs.gathers ? trmi_mesh_ranks(&s->mesh) : 1);
    return bytes;
}

/* Adds the cost of a parameter's cast to its stores and slices. parts: how it is stored in parts,
 * or NULL; then each rank casts its part, and once more where the whole is gathered again. */
static void add_cast(const trmi_space *s, int32_t value, const trmi_spread *read,
                     const trmi_spread *parts, trmi_store_cost stores[TRMI_STORES],
                     trmi_store_cost *slices) {
    double seconds;
    slices->bytes += trmi_space_cast(s, value, read, true, &seconds);
    slices->blocking += seconds;
    for (int k = 0; k < TRMI_STORES; k++) {
        const bool divided = parts != NULL && k != TRMI_STORE_AS_READ;
        const double bytes = trmi_space_cast(s, value, divided ? parts : read, false, &seconds);
        stores[k].bytes += divided ? 0 : bytes;
        stores[k].blocking += divided && k == TRMI_STORE_AGAIN ? 2 * seconds : seconds;
    }
}

/* Contract in search.h. Adds the cost of one parameter to a strategy of the operator that reads it,
 * for each store, and for updates in slices. A parameter that several operators read is counted at
 * its owner; the other readers pay only for what joins their gradients. */
void trmi_space_add_parameter(const trmi_space *s, const trmi_op *op, int32_t input,
                              trmi_space_class *c, int32_t i) {
    const trmi_strategy *strategy = &c->strategies[i];
    trmi_store_cost *stores = &c->stores[TRMI_STORES * i], *slices = &c->slices[i];
    const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[input]);
    int32_t value = parameter->outputs[0];
    const trmi_value *v = &s->graph->values[value];
    bool trained = trmi_space_trains(s, parameter), owned = trmi_space_owns(s, op, value);
    const trmi_spread *read = &strategy->inputs[input];
    trmi_spread stored = *read, parts, made = trmi_space_made(&s->mesh, read, strategy->letters);
    for (int32_t a = 0; a < s->mesh.axes; a++) {
        /* a bias that is added to a partial sum is stored whole */
        stored.at[a] = trmi_is_partial(stored.at[a]) ? TRMI_WHOLE : stored.at[a];
    }
    const bool divides =
        owned && trained && s->costs.shard_stores && parts_of(s, &v->shape, read, &made, &parts);
    if (trmi_space_owns(s, op, op->inputs[input])) {
        add_cast(s, op->inputs[input], read, divides ? &parts : NULL, stores, slices);
    }
    if (!owned) {
        double joined = trmi_space_joined(s, op, input, read);
        for (int k = 0; k < TRMI_STORES; k++) {
            stores[k].bytes += joined;
        }
        slices->bytes += joined;
        return;
    }
    bool in_factors = trained && trmi_partition_in_factors(s->graph, op, strategy, input);
    double copies = trained ? 1 + trmi_space_gradients(s) + s->costs.slots : 1,
           whole = trmi_space_bytes(s, value, &stored);
    double gradient = trained ? trmi_space_reduce_seconds(s, value, &made, &stored) : 0;
    double update = trained ? s->update.byte : 0,
           sum = trained ? s->costs.accumulate_byte : 0; /* a byte, each micro-batch */
    double once = in_factors ? c->factors[i] : update * whole;
    /* updated in slices, with cooperative gradients where these exist */
    add_slices(s, trained, in_factors, &stored, &made, whole, slices);
    if (trained && input == 1 && c->cooperative[i].made) {
        slices->gradient -= slices_of(s, whole);
        slices->blocking += c->cooperative[i].seconds;
        slices->bytes += c->cooperative[i].bytes;
    }
    for (int k = 0; k < TRMI_STORES; k++) {
        if (k == TRMI_STORE_AS_READ || !divides) {
            stores[k].once += once;
            stores[k].blocking += once + sum * whole;
            stores[k].gradient += gradient;
            stores[k].bytes += (copies - in_factors) * whole;
            continue;
        }
        /* In parts: the program gathers the parameter, or its cast, before use and scatters its
         * gradient to the parts, which blocks. A gather that begins ahead is traffic like
         * gradients, of which `overlap` can be hidden: the part that gives `ahead` of it. */
        const bool again = k == TRMI_STORE_AGAIN;
        double part = trmi_space_bytes(s, value, &parts),
               gathered = trmi_space_bytes(s, op->inputs[input], &stored),
               gather = (again ? 2 : 1) *
                        trmi_space_store_move(s, op->inputs[input], &parts, &stored, false),
               beside = s->costs.overlap > 0 ? trmi_space_ahead(s) / s->costs.overlap : 0;
        stores[k].once += update * part;
        stores[k].blocking += (1 - beside) * gather +
                              trmi_space_store_move(s, value, &parts, &stored, true) +
                              (update + sum) * part;
        stores[k].gradient += beside * gather;
        stores[k].bytes +=
            copies * part + (again ? 0 : gathered) + trmi_space_held(s, op, input, read);
    }
}
