/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and checks the parts of the inputs that ranks feed, and joins parts (contracts in
 * input_cuts.h).
 *
 *      text --read_tuples--> cuts --check_one, for each input--> the shapes divide by the parts
 *
 * Invariants: tuples belong to the inputs in the order of the graph; at most one dimension of an
 * input is cut, into parts of equal size. */
#include "exec/distributed/input_cuts.h"

#include "base/error.h"
#include "graph/graph_ir.h"

#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

/* Returns the next character that is no blank. */
static const char *skip_spaces(const char *at) { return at + strspn(at, " \t"); }

/* Reads one tuple such as "(1, 4)": the parts of each dimension, of which at most one is above 1.
 * Returns the place after it, or NULL if the text is no such tuple. */
static const char *read_tuple(const char *at, trmi_input_cut *out) {
    *out = (trmi_input_cut){.parts = 1};
    if (*at++ != '(') {
        return NULL;
    }
    for (at = skip_spaces(at); *at != ')'; at = skip_spaces(at)) {
        char *end;
        long parts = strtol(at, &end, 10);
        if (end == at || parts < 1 || parts > 4096 || out->dimensions == TRM_MAX_RANK ||
            (parts > 1 && out->parts > 1)) {
            return NULL;
        }
        if (parts > 1) {
            out->dimension = out->dimensions;
            out->parts = (int32_t)parts;
        }
        out->dimensions++;
        at = skip_spaces(end);
        if (*at == ',') {
            at++;
        } else if (*at != ')') {
            return NULL;
        }
    }
    return out->dimensions > 0 ? at + 1 : NULL;
}

/* Parses "((1,1,1,2),(2,))", a tuple for each input. Returns false for other text. */
static bool read_tuples(const char *at, trmi_input_cuts *out) {
    out->count = 0;
    at = skip_spaces(at);
    if (*at++ != '(') {
        return false;
    }
    for (at = skip_spaces(at); *at != ')'; at = skip_spaces(at)) {
        if (out->count == TRMI_INPUT_CUTS_MAX ||
            (at = read_tuple(at, &out->inputs[out->count])) == NULL) {
            return false;
        }
        out->count++;
        at = skip_spaces(at);
        if (*at == ',') {
            at++;
        } else if (*at != ')') {
            return false;
        }
    }
    return out->count > 0 && *skip_spaces(at + 1) == '\0';
}

trm_status trmi_input_cuts_parse(const char *text, trmi_input_cuts *out, trm_error *err) {
    if (!read_tuples(text, out)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "dataset_strategy '%.60s': expected data_parallel, full_batch, or a tuple "
                         "for each input with the parts of each dimension, of which at most one is "
                         "cut, as in ((1,1,1,2),(2,))",
                         text);
    }
    return TRM_OK;
}

bool trmi_input_cuts_by_samples(const trmi_input_cuts *cuts, int32_t ranks) {
    bool all = true;
    for (int32_t i = 0; i < cuts->count; i++) {
        all = all && cuts->inputs[i].parts == ranks && cuts->inputs[i].dimension == 0;
    }
    return all;
}

/* ---- the inputs of a graph ------------------------------------------------------------------- */

/* Checks that a tuple fits its input and the number of ranks.
 *   errors  INVALID */
static trm_status check_one(const trmi_input_cut *cut, const char *input, const trm_shape *shape,
                            int32_t ranks, trm_error *err) {
    char text[96];
    if (cut->dimensions != shape->rank) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "dataset_strategy: %d numbers for input '%s', whose shape is %s; one number for "
            "each dimension expected",
            cut->dimensions, input, trm_shape_format(shape, text, sizeof text));
    }
    if (ranks % cut->parts != 0 || shape->dim[cut->dimension] % cut->parts != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "dataset_strategy: input '%s' of shape %s cannot be cut into %d parts of "
                         "dimension %d for %d ranks; the parts must divide both",
                         input, trm_shape_format(shape, text, sizeof text), cut->parts,
                         cut->dimension, ranks);
    }
    return TRM_OK;
}

/* Contract in input_cuts.h. The tuples belong to the inputs of the graph in their order. */
trm_status trmi_input_cuts_check(const char *text, const trm_graph *graph, int32_t ranks,
                                 trm_error *err) {
    trmi_input_cuts cuts;
    int32_t inputs = 0;
    TRMI_TRY(trmi_input_cuts_parse(text, &cuts, err));
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        if (op->kind != TRMI_OP_INPUT) {
            continue;
        }
        if (inputs < cuts.count) {
            TRMI_TRY(check_one(&cuts.inputs[inputs], op->name, &trmi_output_of(graph, op, 0)->shape,
                               ranks, err));
        }
        inputs++;
    }
    if (inputs != cuts.count) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "dataset_strategy '%.60s': %d tuples for %d inputs; one tuple for each input "
            "expected",
            text, cuts.count, inputs);
    }
    return TRM_OK;
}

trm_shape trmi_input_cut_shape(const trmi_input_cut *cut, const trm_shape *whole) {
    trm_shape shape = *whole;
    if (cut->parts > 1) {
        shape.dim[cut->dimension] /= cut->parts;
    }
    return shape;
}

void trmi_input_cut_join(const trmi_input_cut *cut, const trm_shape *whole, size_t element,
                         int32_t ranks, const char *all, char *out) {
    int64_t before = 1, length = whole->dim[cut->dimension], count = trm_shape_count(whole);
    for (int32_t d = 0; d < cut->dimension; d++) {
        before *= whole->dim[d];
    }
    size_t row = count > 0 ? (size_t)(count / (before * length)) * element : 0;
    int64_t run = length / cut->parts, copies = ranks / cut->parts;
    size_t part_bytes = (size_t)(before * run) * row;
    for (int64_t b = 0; b < before; b++) {
        for (int64_t i = 0; i < length; i++) {
            int64_t part = cut->dimension == 0 ? i % cut->parts : i / run;
            int64_t place = cut->dimension == 0 ? i / cut->parts : i % run;
            memcpy(out + (size_t)(b * length + i) * row,
                   all + (size_t)(part * copies) * part_bytes + (size_t)(b * run + place) * row,
                   row);
        }
    }
}
