/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the forward operators of a training graph into runs of neighbours, the virtual stages.
 *
 *      operators in order    e   a1 b1 c1   a2 b2 c2   a3 b3 c3   head
 *      cut after b2          values that cross: what an operator before reads after the cut
 *
 * The time of a run is that of its operators, forward and backward, by their FLOPs and bytes, and
 * of the values that cross its ends. The cut whose slowest run is fastest is found by dynamic
 * programming over (run, last operator). Between two equal blocks of a transformer only one value
 * crosses, so that runs end there. */
#include "plan/pipeline/stages.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

/* A rank of a common machine: only the relation of the three matters. */
static const double flops_a_second = 1e11, bytes_a_second = 2e10, sent_a_second = 4e9;

/* The state of one search for a cut. */
typedef struct cutter {
    const trm_graph *graph;
    int32_t *ops;      /* [count] forward operators in order */
    int32_t *position; /* [operators of the graph] of the forward operator, or of its origin */
    int32_t count;
    double *seconds; /* [count + 1] of the operators before */
    double *crosses; /* [count + 1] bytes that cross a cut before the operator */
} cutter;

/* Returns whether an operator is computed in forward; leaves are not. */
static bool is_forward(const trm_graph *g, int64_t index) {
    return g->ops[index].phase == TRMI_FORWARD && !trmi_is_leaf(&g->ops[index]);
}

/* Returns the last forward operator with a name before index `before`; 0: none. */
static int32_t find_named(const trm_graph *g, const char *name, int64_t before) {
    for (int64_t i = before - 1; i > 0; i--) {
        if (is_forward(g, i) && strcmp(g->ops[i].name, name) == 0) {
            return (int32_t)i;
        }
    }
    return 0;
}

/* Returns the forward operator that an operator belongs to; 0: none. `before`: that of the operator
 * before it, which is often the same. */
static int32_t forward_of(const trm_graph *g, int64_t index, int32_t before) {
    const char *origin = g->ops[index].origin;
    if (is_forward(g, index)) {
        return (int32_t)index;
    }
    if (origin == NULL) {
        return 0;
    }
    return before != 0 && strcmp(g->ops[before].name, origin) == 0 ? before
                                                                   : find_named(g, origin, index);
}

/* Returns the seconds of an operator by fixed rates: only their relation matters, since cuts are
 * compared with each other. */
static double seconds_of(const trm_graph *g, const trmi_op *op) {
    trmi_cost cost = trmi_op_cost(g, op);
    return fmax(cost.flops / flops_a_second, cost.bytes / bytes_a_second);
}

/* Returns the bytes of a value. */
static double bytes_of(const trmi_value *v) {
    return (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
}

/* Lists the forward operators, the seconds of each with its backward, and what crosses cuts. */
static trm_status measure_operators(cutter *c, trmi_arena *arena, trm_error *err) {
    const trm_graph *g = c->graph;
    int32_t before = 0;
    int32_t *last; /* [values] position of the last reader */
    TRMI_TRY(TRMI_NEW_IN(err, arena, c->ops, g->ops_count, "to cut stages"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, c->position, g->ops_count, "to cut stages"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, c->seconds, g->ops_count + 1, "to cut stages"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, c->crosses, g->ops_count + 1, "to cut stages"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, last, g->values_count, "to cut stages"));
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (is_forward(g, i)) {
            c->position[i] = c->count;
            c->ops[c->count++] = (int32_t)i;
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        /* The time of an operator includes its backward. A value crosses all cuts up to its last
         * forward reader. */
        const trmi_op *op = &g->ops[i];
        int32_t forward = trmi_is_leaf(op) ? 0 : forward_of(g, i, before);
        before = forward;
        if (forward != 0) {
            c->seconds[c->position[forward] + 1] += seconds_of(g, op);
        }
        for (int32_t j = 0; is_forward(g, i) && j < op->inputs_count; j++) {
            last[op->inputs[j]] = c->position[i];
        }
    }
    for (int32_t k = 0; k < c->count; k++) {
        const trmi_op *op = &g->ops[c->ops[k]];
        /* Prefix sums: seconds[k] are those of all operators before k. */
        c->seconds[k + 1] += c->seconds[k];
        for (int32_t j = 0; j < op->outputs_count; j++) {
            for (int32_t at = k + 1; at <= last[op->outputs[j]]; at++) {
                c->crosses[at] += bytes_of(&g->values[op->outputs[j]]);
            }
        }
    }
    return TRM_OK;
}

/* Cuts into `runs` runs so that the slowest is fastest: begins[run] is its first operator. */
static trm_status cut_evenly(const cutter *c, int32_t runs, int32_t *begins, trmi_arena *arena,
                             trm_error *err) {
    int32_t n = c->count + 1;
    double *best; /* [runs + 1][n] slowest of `run` runs that end before operator `end` */
    int32_t *from;
    TRMI_TRY(TRMI_NEW_IN(err, arena, best, (int64_t)(runs + 1) * n, "to cut stages"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, from, (int64_t)(runs + 1) * n, "to cut stages"));
    for (int32_t i = 0; i < n; i++) {
        best[i] = i == 0 ? 0 : INFINITY;
    }
    /* best[r][end]: the slowest of r runs that end before operator `end`, if they are cut well:
     * dynamic programming over the begin of the last one. A run also sends what crosses its two
     * ends, forward and backward. */
    for (int32_t r = 1; r <= runs; r++) {
        for (int32_t end = 0; end < n; end++) {
            double *at = &best[r * n + end];
            *at = INFINITY;
            for (int32_t begin = r - 1; begin < end; begin++) {
                double sent = 2 * (c->crosses[begin] + c->crosses[end]) / sent_a_second;
                double slowest =
                    fmax(best[(r - 1) * n + begin], c->seconds[end] - c->seconds[begin] + sent);
                if (slowest < *at) {
                    *at = slowest;
                    from[r * n + end] = begin;
                }
            }
        }
    }
    /* Walk back through the choices. */
    for (int32_t r = runs, end = c->count; r > 0; r--) {
        end = begins[r - 1] = from[r * n + end];
    }
    return TRM_OK;
}

/* Cuts where the option names the first operators of the second and further runs. */
static trm_status cut_by_names(const cutter *c, const char *text, int32_t runs, int32_t *begins,
                               trm_error *err) {
    begins[0] = 0;
    int32_t run = 1, at = 1;
    for (const char *name = text; run < runs; run++) {
        int length = (int)strcspn(name, ",");
        const trm_graph *g = c->graph;
        /* Find the next operator of this name. */
        while (at < c->count && (strncmp(g->ops[c->ops[at]].name, name, (size_t)length) != 0 ||
                                 g->ops[c->ops[at]].name[length] != '\0')) {
            at++;
        }
        if (at == c->count) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "pipeline begins '%.100s': '%.*s' is no forward operator after the "
                             "beginning of the run before; name %d operators in the order of the "
                             "graph",
                             text, length, name, runs - 1);
        }
        begins[run] = at++;
        name += length + (name[length] == ',');
    }
    return TRM_OK;
}

/* Contract in stages.h. Operators are in the order of the graph; a stage (with chunks: a run) is
 * a range of them, which begins at given names or so that all runs take about equal time. */
trm_status trmi_stage_cut(const trm_graph *training, const trmi_stage_options *options,
                          trmi_arena *arena, trmi_stage_map *out, trm_error *err) {
    cutter c = {.graph = training};
    int32_t runs = options->stages * options->chunks;
    int32_t begins[TRMI_VIRTUAL_STAGES_MAX];
    TRMI_TRY(measure_operators(&c, arena, err));
    if (c.count < runs) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "pipeline of %d stages with %d chunks each: the graph has %d forward "
                         "operators, at least %d are needed",
                         options->stages, options->chunks, c.count, runs);
    }
    TRMI_TRY(options->begins != NULL ? cut_by_names(&c, options->begins, runs, begins, err)
                                     : cut_evenly(&c, runs, begins, arena, err));
    TRMI_TRY(TRMI_NEW_IN(err, arena, out->names, c.count, "to cut stages"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, out->stages, c.count, "to cut stages"));
    /* Write the map: each operator's name and run. */
    out->count = c.count;
    for (int32_t k = 0, run = 0; k < c.count; k++) {
        run += run + 1 < runs && k == begins[run + 1];
        out->names[k] = trmi_arena_strdup(arena, training->ops[c.ops[k]].name);
        out->stages[k] = run;
        TRMI_TRY(TRMI_CHECK_MEMORY(err, arena, "to cut stages"));
    }
    return TRM_OK;
}
