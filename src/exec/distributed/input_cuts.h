/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/input_cuts.h: which part of each input a rank feeds (MindSpore's
 * dataset_strategy as tuples).
 *
 *      "((1,1,1,2),(2,))"  input 0: the last of four dimensions in two parts; input 1: its samples
 *
 * A tuple has one number for each dimension; at most one of them is above 1. Of 4 ranks and 2
 * parts, ranks 0 and 1 feed part 0. Samples (dimension 0) are dealt in turn, as the shards of a
 * dataset are: part k has the samples k, k + parts, ...; other dimensions are cut into runs. */
#ifndef TRMI_EXEC_INPUT_CUTS_H
#define TRMI_EXEC_INPUT_CUTS_H

#include "trireme/graph.h"

/* Inputs for which parts can be given. */
enum { TRMI_INPUT_CUTS_MAX = 64 };

/* How one input is cut. */
typedef struct trmi_input_cut {
    int32_t dimensions; /* of the input */
    int32_t dimension;  /* that is cut */
    int32_t parts;      /* 1: every rank feeds the whole input */
} trmi_input_cut;

/* How all inputs of a graph are cut. */
typedef struct trmi_input_cuts {
    int32_t count; /* one for each input of the graph, in the order in which they were made */
    trmi_input_cut inputs[TRMI_INPUT_CUTS_MAX];
} trmi_input_cuts;

/* Reads the text of a dataset strategy.
 *   errors  INVALID with the text and what was expected */
trm_status trmi_input_cuts_parse(const char *text, trmi_input_cuts *out, trm_error *err);
/* Returns whether every rank feeds its own samples of each input. */
bool trmi_input_cuts_by_samples(const trmi_input_cuts *cuts, int32_t ranks);
/* Checks that `ranks` ranks can feed the inputs of this graph in these parts.
 *   errors  INVALID */
trm_status trmi_input_cuts_check(const char *text, const trm_graph *graph, int32_t ranks,
                                 trm_error *err);
/* Returns the shape of the part that this rank feeds of an input of shape `whole`. */
trm_shape trmi_input_cut_shape(const trmi_input_cut *cut, const trm_shape *whole);
/* Writes the whole input to `out` from the parts of all ranks, which lie in `all` by rank. */
void trmi_input_cut_join(const trmi_input_cut *cut, const trm_shape *whole, size_t element,
                         int32_t ranks, const char *all, char *out);

#endif
