/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ways of training. The order matters: a way may use what earlier ways have opened,
 * and its functions run after theirs; only `close` goes the other way round. */
#include "exec/distributed/ways.h"

extern const trmi_distribution trmi_way_ranks, trmi_way_strict_blocks, trmi_way_split,
    trmi_way_slices, trmi_way_cooperative, trmi_way_stages;

const trmi_distribution *const trmi_ways[] = {
    &trmi_way_ranks,         /* the same program on every rank, gradients summed in buckets */
    &trmi_way_strict_blocks, /* the same bits on any number of ranks, under any plan */
    &trmi_way_split,         /* a program of its own on every rank: the graph cut by a plan */
    &trmi_way_slices,        /* each rank updates a slice of the parameters */
    &trmi_way_cooperative,   /* each rank computes rows of large gradients from all samples */
    &trmi_way_stages,        /* a pipeline; the ways above act within one stage */
};
const int32_t trmi_ways_count = sizeof trmi_ways / sizeof trmi_ways[0];
_Static_assert(sizeof trmi_ways / sizeof trmi_ways[0] <= (size_t)TRMI_DISTRIBUTIONS_MAX,
               "trm_exec has room for all ways");
