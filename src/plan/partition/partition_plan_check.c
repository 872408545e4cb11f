/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a plan belongs to a graph and that each of its lines is possible there, in this
 * order: the number of ranks, the digest of the graph, the lines of operators, the stores of
 * leaves.
 *
 * A plan may come from a file that a person has edited, or that was made for another model. So each
 * error says what the plan wants, what the graph has and, if known, file and line: "plan.txt: line
 * 7: the plan cuts 'fc1' ...". A plan that passes can be carried out without further checks. */
#include "plan/partition/partition.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns the operator with a name; NULL: none. */
static const trmi_op *op_named(const trm_graph *graph, const char *name) {
    for (int64_t i = 1; i < graph->ops_count; i++) {
        if (strcmp(graph->ops[i].name, name) == 0) {
            return &graph->ops[i];
        }
    }
    return NULL;
}

/* Bytes of the text "file: line" of messages. */
enum { PLACE = 100 };

/* Writes the start of an error, "plan.txt: line 7: ", or the known part of it. Of a long path the
 * end is kept. */
static const char *place_of(const trmi_partition_plan *plan, int32_t line, char text[PLACE]) {
    size_t length = plan->file != NULL ? strlen(plan->file) : 0;
    bool cut = length > PLACE - 30; /* keep the end of the path */
    int used = plan->file == NULL ? 0
                                  : snprintf(text, PLACE, "%s%s: ", cut ? "..." : "",
                                             plan->file + (cut ? length - (PLACE - 30) : 0));
    text[used] = '\0';
    if (plan->file != NULL && line > 0) {
        snprintf(text + used, (size_t)(PLACE - used), "line %d: ", (int)line);
    }
    return text;
}

/* Checks mesh, digest, all lines and all stores. can: operators that can be recomputed. */
static trm_status check_plan(const trmi_partition_plan *plan, const trm_graph *graph, int32_t ranks,
                             const bool *can, trm_error *err) {
    char text[64], at[PLACE];
    if (trmi_mesh_ranks(&plan->mesh) != ranks) {
        return TRMI_FAIL(err, TRM_INVALID, "%sthe plan is for mesh %s of %d ranks, this job has %d",
                         place_of(plan, 0, at), trmi_mesh_text(&plan->mesh, text, sizeof text),
                         trmi_mesh_ranks(&plan->mesh), ranks);
    }
    uint64_t digest = trmi_partition_digest(graph);
    if (plan->digest != 0 && plan->digest != digest) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%sthe plan was made for graph %016" PRIx64 ", this one is %016" PRIx64
                         ": another model, batch or image size, precision or fusion; make it "
                         "again, or remove its "
                         "line 'graph' to try it",
                         place_of(plan, 0, at), plan->digest, digest);
    }
    /* Check the lines of operators. */
    for (int64_t i = 0; i < plan->choices_count; i++) {
        const trmi_partition_choice *c = &plan->choices[i];
        const trmi_op *op = op_named(graph, c->op);
        trmi_strategy strategy;
        if (op == NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%sthe plan names operator '%.100s', which this graph does not have",
                             place_of(plan, c->line, at), c->op);
        }
        if (!trmi_partition_strategy(graph, op, &plan->mesh, c->letters, &strategy)) {
            char letters[TRMI_PARTITION_LETTERS];
            trmi_partition_loops(graph, op, letters, NULL);
            return TRMI_FAIL(err, TRM_INVALID,
                             "%sthe plan cuts '%.80s' (%s) by '%s' on mesh %s: not possible; its "
                             "loops are '%s' and '.', "
                             "no part may be empty",
                             place_of(plan, c->line, at), c->op, trmi_op_def_of(op)->name,
                             c->letters, trmi_mesh_text(&plan->mesh, text, sizeof text), letters);
        }
        /* The line's options: recomputation, and the spread of the result. */
        const trmi_value *v = trmi_output_of(graph, op, 0);
        if (c->recompute == TRMI_RECOMPUTE_YES && !can[op - graph->ops]) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%sthe plan recomputes '%.80s' (%s), which is not possible: backward "
                             "does not read it, "
                             "or its inputs are not kept, or it changes a state",
                             place_of(plan, c->line, at), c->op, trmi_op_def_of(op)->name);
        }
        if (c->has_output && !trmi_spread_fits(&plan->mesh, &v->shape, &c->output)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%sthe plan brings '%.80s' to %s, which its shape does not allow",
                             place_of(plan, c->line, at), c->op,
                             trmi_spread_text(&plan->mesh, &c->output, text, sizeof text));
        }
    }
    /* stores of leaves */
    for (int64_t i = 0; i < plan->stores_count; i++) {
        const trmi_partition_store *s = &plan->stores[i];
        const trmi_op *op = op_named(graph, s->name);
        bool leaf = op != NULL && (op->kind == TRMI_OP_PARAMETER || op->kind == TRMI_OP_STATE ||
                                   op->kind == TRMI_OP_INPUT);
        if (!leaf || trmi_spread_has_partial(&s->spread) ||
            !trmi_spread_fits(&plan->mesh, &trmi_output_of(graph, op, 0)->shape, &s->spread)) {
            return TRMI_FAIL(err, TRM_INVALID, "%sthe plan stores '%.80s' as %s: %s",
                             place_of(plan, s->line, at), s->name,
                             trmi_spread_text(&plan->mesh, &s->spread, text, sizeof text),
                             leaf ? "its shape does not allow that"
                                  : "no parameter, state or input of this graph");
        }
    }
    return TRM_OK;
}

/* Contract in partition.h. Meshes are compared whole: 2x4 is not 4x2. */
trm_status trmi_partition_plan_on(const trmi_partition_plan *plan, const trmi_mesh *mesh,
                                  trm_error *err) {
    char a[64], b[64], at[PLACE];
    return memcmp(mesh, &plan->mesh, sizeof *mesh) == 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "%smesh %s was asked for, the plan is for mesh %s",
                           place_of(plan, 0, at), trmi_mesh_text(mesh, a, sizeof a),
                           trmi_mesh_text(&plan->mesh, b, sizeof b));
}

/* Contract in partition.h. What can be recomputed is found once for all lines. */
trm_status trmi_partition_plan_check(const trmi_partition_plan *plan, const trm_graph *graph,
                                     int32_t ranks, trm_error *err) {
    bool *can;
    TRMI_TRY(TRMI_NEW(err, can, graph->ops_count, "to check a plan"));
    trmi_partition_repeatable(graph, can);
    trm_status status = check_plan(plan, graph, ranks, can, err);
    trmi_free(can);
    return status;
}
