/* SPDX-License-Identifier: Apache-2.0 */
/* Redistributes values between spreads: each move of a route becomes an operator of the local
 * graph. Every form of a value that arises on the way is recorded as a version, so that nothing is
 * sent twice.
 *
 * Both walks of the partition call trmi_redistribute(): the first only records versions, the second
 * also emits operators. Both must see the same versions in the same order. */
#include "plan/partition/partition_state.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Contract in partition_state.h. Only the walk that emits notes messages, else each would be there
 * twice. Without memory the note is dropped: it serves the report alone, the program is right
 * without it. */
void trmi_partition_note(trmi_partitioner *s, const trmi_partition_message *message) {
    trmi_partition_report *r = s->report;
    if (r == NULL || !s->emitting || message->move == TRMI_MOVE_LOCAL ||
        !trmi_grow((void **)&r->messages, &r->messages_capacity, r->messages_count + 1,
                   sizeof *r->messages)) {
        return;
    }
    trmi_partition_message own = *message;
    own.op = trmi_arena_strdup(&r->arena, message->op);
    own.what = trmi_arena_strdup(&r->arena, message->what != NULL ? message->what : "");
    if (own.op != NULL && own.what != NULL) {
        r->messages[r->messages_count++] = own;
        r->comm_seconds += own.seconds;
        r->gradient_seconds += own.gradient ? own.seconds : 0;
    }
}

/* ---- exchange ---- */

/* Contract in partition_state.h. Computes the boxes that each member of this rank's group has
 * and wants. They are stored in the operator's attributes, because they depend on mesh and plan
 * only. */
trm_status trmi_partition_exchange(trmi_partitioner *s, int32_t local,
                                   const trmi_exchange_plan *plan, int32_t *out, trm_error *err) {
    const uint32_t axes = plan->axes;
    const int32_t members = trmi_mesh_group(s->mesh, axes);
    size_t bytes = sizeof(trmi_box_exchange) + 2 * (size_t)members * sizeof(trmi_box);
    trmi_box_exchange *what = trmi_arena_alloc(&s->scratch, bytes);
    if (what == NULL) {
        return TRMI_NO_MEMORY(err, "to split %s", plan->name);
    }
    *what = (trmi_box_exchange){
        .head = {.bytes = bytes}, .axes = axes, .members = members, .combine = plan->combine};
    int32_t at[TRMI_MESH_AXES];
    trmi_mesh_coordinates(s->mesh, s->rank, at);
    /* boxes of all members of this rank's group, before and after */
    for (int32_t m = 0; m < members; m++) {
        /* Member m differs from this rank in the coordinates of the given axes only. */
        int32_t there[TRMI_MESH_AXES], rest = m;
        memcpy(there, at, sizeof there);
        for (int32_t i = s->mesh->axes - 1; i >= 0; i--) {
            if (axes >> i & 1) {
                there[i] = rest % s->mesh->size[i];
                rest /= s->mesh->size[i];
            }
        }
        int32_t rank = trmi_mesh_rank(s->mesh, there);
        what->self = rank == s->rank ? m : what->self;
        what->boxes[m] = plan->has(plan->had_by, rank);
        what->boxes[members + m] = plan->wants(plan->wanted_by, rank);
    }
    /* `held` is the box of the input itself; an empty box takes the extents of the input */
    const trm_shape *shape = &s->pass.to->values[local].shape;
    what->held = what->boxes[what->self];
    if (trmi_box_count(&what->held) == 0 && trm_shape_count(shape) > 0) {
        what->held = trmi_box_whole(shape);
    }
    const trmi_attrs attrs = {.attached = &what->head};
    *out = trmi_pass_emit_unary(&s->pass, TRMI_OP_EXCHANGE, plan->phase, plan->name, local, &attrs);
    return trm_graph_check(s->pass.to, err);
}

/* ---- one step ---- */

/* Context of part_of(): a spread of one value, and how its boxes differ from the spread's own. */
typedef struct part {
    const trmi_mesh *mesh;
    const trm_shape *shape;
    trmi_spread spread;
    uint32_t first_only;     /* axes on which only the rank with coordinate 0 holds data */
    const trmi_loops *loops; /* not NULL: boxes are widened by these windows */
    const trm_shape *out_shape;
    trmi_spread made;
} part;

/* Returns the box of a rank in a spread, with halo if the context has loops. */
static trmi_box part_of(const void *context, int32_t rank) {
    const part *p = context;
    int32_t at[TRMI_MESH_AXES];
    trmi_mesh_coordinates(p->mesh, rank, at);
    trmi_box box = p->loops == NULL ? trmi_spread_box(p->mesh, p->shape, &p->spread, rank)
                                    : trmi_window_box(p->loops, p->mesh, p->shape, p->out_shape,
                                                      &p->spread, &p->made, rank);
    for (int32_t i = 0; i < p->mesh->axes; i++) {
        if (p->first_only >> i & 1 && at[i] != 0) {
            box.rank = -1; /* nothing */
        }
    }
    return box;
}

/* Returns the operation that combines the partial results on `axes`; all of these are partial in
 * the same way. */
static trmi_combine combination_of(const trmi_mesh *mesh, const trmi_spread *from, uint32_t axes) {
    trmi_combine combine = TRMI_COMBINE_SUM;
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (axes >> i & 1) {
            combine = from->at[i] == TRMI_PARTIAL_MAX   ? TRMI_COMBINE_MAX
                      : from->at[i] == TRMI_PARTIAL_MIN ? TRMI_COMBINE_MIN
                                                        : TRMI_COMBINE_SUM;
        }
    }
    return combine;
}

/* Returns whether backward, which is cut or emitted, does not find the versions that forward has
 * moved. */
static bool is_brought_again(const trmi_partitioner *s, int32_t value) {
    return s->values[value].again && s->phase == TRMI_BACKWARD;
}

/* Emits one move of a route: an ALL_REDUCE or an EXCHANGE. */
static trm_status emit_step(trmi_partitioner *s, int32_t value, int32_t local,
                            const trmi_spread *from, const trmi_route_step *step, int32_t *out,
                            trm_error *err) {
    const trmi_value *v = &s->from->values[value];
    const trmi_op *maker = &s->from->ops[v->op];
    trmi_phase phase = is_brought_again(s, value) ? TRMI_BACKWARD : maker->phase;
    char text[64], name[300];
    snprintf(name, sizeof name, "%.200s -> %s", maker->name,
             trmi_spread_text(s->mesh, &step->to, text, sizeof text));
    if (step->move == TRMI_MOVE_ALL_REDUCE) {
        const trmi_box_exchange to = {.head = {.bytes = sizeof to},
                                      .axes = step->axes,
                                      .combine = combination_of(s->mesh, from, step->axes)};
        const trmi_attrs attrs = {.attached = &to.head};
        *out = trmi_pass_emit_unary(&s->pass, TRMI_OP_ALL_REDUCE, phase, name, local, &attrs);
        return trm_graph_check(s->pass.to, err);
    }
    /* Make an exchange: what each rank has in the old spread and wants in the new one. */
    part has = {.mesh = s->mesh, .shape = &v->shape, .spread = *from};
    part wants = {.mesh = s->mesh, .shape = &v->shape, .spread = step->to};
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        /* From R to P(sum) the rank with coordinate 0 keeps the data, other ranks have zeros. */
        bool demoted = from->at[i] == TRMI_WHOLE && step->to.at[i] == TRMI_PARTIAL_SUM;
        has.first_only |= demoted ? 1u << i : 0;
    }
    trmi_combine combine = step->move == TRMI_MOVE_REDUCE_SCATTER
                               ? combination_of(s->mesh, from, step->axes)
                               : TRMI_COMBINE_NONE;
    const trmi_exchange_plan plan = {.name = name,
                                     .phase = phase,
                                     .axes = step->axes,
                                     .combine = combine,
                                     .has = part_of,
                                     .had_by = &has,
                                     .wants = part_of,
                                     .wanted_by = &wants};
    return trmi_partition_exchange(s, local, &plan, out, err);
}

/* Contract in partition_state.h. A version with halo is larger than its spread says, and one that
 * forward has moved is not there in backward if the plan gathers it again. */
int32_t trmi_partition_source(trmi_partitioner *s, int32_t value, const trmi_spread *to,
                              double *seconds) {
    const trmi_value *v = &s->from->values[value];
    int32_t best = -1;
    *seconds = INFINITY;
    for (int32_t i = 0; i < s->values[value].count; i++) {
        const trmi_version *version = &s->values[value].versions[i];
        double one = version->halo || (version->forward && is_brought_again(s, value))
                         ? INFINITY
                         : trmi_route_seconds(s->router, &v->shape, v->dtype, &version->spread, to);
        if (one < *seconds) {
            *seconds = one;
            best = i;
        }
    }
    return best;
}

/* Records a version of a value.   errors  INVALID: too many versions */
static trm_status record_version(trmi_partitioner *s, int32_t value, const trmi_version *version,
                                 trm_error *err) {
    trmi_partition_value *v = &s->values[value];
    if (v->count == TRMI_PARTITION_VERSIONS) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s is wanted in more than %d forms; give its readers fewer",
                         s->from->ops[s->from->values[value].op].name, TRMI_PARTITION_VERSIONS);
    }
    v->versions[v->count++] = *version;
    return TRM_OK;
}

/* Makes the cast of a parameter once more in backward, as it is stored. */
static trm_status cast_again(trmi_partitioner *s, int32_t value, const char *what, trm_error *err) {
    const trmi_op *cast = &s->from->ops[s->from->values[value].op];
    trmi_version version = {.spread = s->stored[value]};
    int32_t input;
    TRMI_TRY(trmi_redistribute(s, cast->inputs[0], &version.spread, what, &input, err));
    if (s->emitting) {
        version.value = trmi_pass_emit_unary(&s->pass, TRMI_OP_CAST, TRMI_BACKWARD, cast->name,
                                             input, &cast->attrs);
        TRMI_TRY(trm_graph_check(s->pass.to, err));
    }
    return record_version(s, value, &version, err);
}

/* Contract in partition_state.h. A route is a list of moves; the value after each move is kept
 * as a version, so that a later reader can begin from the nearest one. */
trm_status trmi_redistribute(trmi_partitioner *s, int32_t value, const trmi_spread *to,
                             const char *what, int32_t *out, trm_error *err) {
    double seconds;
    const trmi_value *v = &s->from->values[value];
    const trmi_op *maker = &s->from->ops[v->op];
    int32_t source = trmi_partition_source(s, value, to, &seconds);
    if (source < 0 && maker->kind == TRMI_OP_CAST && is_brought_again(s, value)) {
        TRMI_TRY(cast_again(s, value, what, err));
        source = trmi_partition_source(s, value, to, &seconds);
    }
    if (source < 0) {
        char text[64];
        return TRMI_FAIL(err, TRM_INVALID, "%s cannot be brought to %s", maker->name,
                         trmi_spread_text(s->mesh, to, text, sizeof text));
    }
    trmi_version at = s->values[value].versions[source];
    trmi_route route;
    TRMI_TRY(trmi_route_find(s->router, &v->shape, v->dtype, &at.spread, to, 0, &route, err));
    /* every intermediate spread becomes a version */
    for (int32_t i = 0; i < route.count; i++) {
        const trmi_route_step *step = &route.steps[i];
        if (s->emitting) {
            TRMI_TRY(emit_step(s, value, at.value, &at.spread, step, &at.value, err));
        }
        trmi_partition_note(s, &(trmi_partition_message){.op = maker->name,
                                                         .what = what,
                                                         .phase = is_brought_again(s, value)
                                                                      ? TRMI_BACKWARD
                                                                      : maker->phase,
                                                         .move = step->move,
                                                         .axes = step->axes,
                                                         .bytes = step->bytes,
                                                         .seconds = step->seconds});
        at.spread = step->to;
        at.forward = s->phase == TRMI_FORWARD;
        TRMI_TRY(record_version(s, value, &at, err));
    }
    *out = at.value;
    return TRM_OK;
}

/* Contract in partition_state.h. A convolution whose rows are cut reads a few rows of its
 * neighbours. Versions with a halo are kept by their window, so that two convolutions with equal
 * windows exchange once. */
trm_status trmi_partition_widen(trmi_partitioner *s, int32_t value, const trmi_loops *loops,
                                const trm_shape *out_shape, const trmi_spread *own,
                                const trmi_spread *made, int32_t *out, trm_error *err) {
    trmi_partition_value *v = &s->values[value];
    const trmi_op *maker = &s->from->ops[s->from->values[value].op];
    /* an equal widened version may exist already */
    for (int32_t i = 0; i < v->count; i++) {
        const trmi_version *old = &v->versions[i];
        if (old->halo && trmi_spread_equal(&old->spread, own) &&
            memcmp(old->window, loops->window, sizeof old->window) == 0) {
            *out = old->value;
            return TRM_OK;
        }
    }
    /* Otherwise exchange halos along the axes that cut rows or columns. */
    part has = {.mesh = s->mesh, .shape = &s->from->values[value].shape, .spread = *own};
    part wants = has;
    wants.loops = loops;
    wants.out_shape = out_shape;
    wants.made = *made;
    uint32_t axes = 0;
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        axes |= own->at[i] == TRMI_SPLIT + 2 || own->at[i] == TRMI_SPLIT + 3 ? 1u << i : 0;
    }
    trmi_version version = {.spread = *own, .halo = true};
    memcpy(version.window, loops->window, sizeof version.window);
    for (int32_t i = 0; i < v->count; i++) {
        if (!v->versions[i].halo && trmi_spread_equal(&v->versions[i].spread, own)) {
            char name[300];
            snprintf(name, sizeof name, "%.200s with halo", maker->name);
            const trmi_exchange_plan plan = {.name = name,
                                             .phase = maker->phase,
                                             .axes = axes,
                                             .combine = TRMI_COMBINE_NONE,
                                             .has = part_of,
                                             .had_by = &has,
                                             .wants = part_of,
                                             .wanted_by = &wants};
            TRMI_TRY(trmi_partition_exchange(s, v->versions[i].value, &plan, &version.value, err));
            *out = version.value;
            return record_version(s, value, &version, err);
        }
    }
    return TRMI_FAIL(err, TRM_INTERNAL, "%s: no part to widen", maker->name);
}
