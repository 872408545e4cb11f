/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks in the order of the tree; the method is drawn in tree_sum.h. */
#include "exec/determinism/tree_sum.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* Elements that one thread adds at a time. */
enum { PART = 1024 };

/* Adds from[count] to to[count]. */
static void add_floats(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

size_t trmi_tree_sum_bytes(int64_t ranks, int64_t nodes) {
    return (size_t)((2 * nodes + 1) * (TRMI_TREE_PIECE + ranks)) * sizeof(float);
}

/* Adds elements [at, at + count) of all nodes' parts in the order of the tree and writes the sum to
 * `out`. received: the parts of all nodes, `each` floats long. */
static void add_nodes(const trmi_tree_sum *s, const float *received, int64_t each, int64_t at,
                      int64_t count, float *out) {
    float levels[TRMI_TREE_LEVELS][PART];
    for (int64_t p = 0, depth = 0; p < trmi_tree_blocks(&s->tree); p++) {
        const float *node = received + (s->slots != NULL ? s->slots[p] : p) * each + at;
        if (trmi_tree_begins(&s->tree, p)) {
            memcpy(levels[depth++], node, (size_t)count * sizeof *node);
        } else {
            add_floats(levels[depth - 1], node, count);
        }
        for (int64_t joins = trmi_tree_joins(&s->tree, p); joins > 0; joins--, depth--) {
            add_floats(levels[depth - 2], levels[depth - 1], count);
        }
    }
    memcpy(out, levels[0], (size_t)count * sizeof *out);
}

/* Copies this rank's nodes, `count` floats each, to `to`: ordered by the rank that adds a part,
 * parts of `each` floats, the last ones filled up with zeros. */
static void pack_nodes(const trmi_tree_sum *s, const float *nodes, int64_t stride, int64_t each,
                       int64_t count, float *to) {
    int64_t ranks = trm_comm_size(s->comm);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < ranks * s->nodes; i++) {
        int64_t begin = trmi_min_i64(count, i / s->nodes * each);
        int64_t own = trmi_min_i64(each, count - begin);
        memcpy(to + i * each, nodes + i % s->nodes * stride + begin, (size_t)own * sizeof *to);
        memset(to + i * each + own, 0, (size_t)(each - own) * sizeof *to);
    }
}

/* Sums at most TRMI_TREE_PIECE floats of all ranks' nodes: all-to-all, add, all-gather. Without
 * packing where one node divides evenly among the ranks. */
static trm_status run_piece(const trmi_tree_sum *s, const float *nodes, int64_t stride, float *out,
                            int64_t count, const char *tag, trm_error *err) {
    int64_t ranks = trm_comm_size(s->comm), each = trmi_pieces(count, ranks);
    float *sent = s->pieces, *received = sent + s->nodes * ranks * each,
          *sums = received + s->nodes * ranks * each;
    bool as_it_lies = s->nodes == 1 && ranks * each == count;
    if (!as_it_lies) {
        pack_nodes(s, nodes, stride, each, count, sent);
    }
    /* Each rank gets its part of all nodes, ... */
    const trm_collective parts = {.kind = TRM_ALLTOALL,
                                  .send = as_it_lies ? nodes : sent,
                                  .recv = received,
                                  .count = s->nodes * each,
                                  .dtype = TRM_FLOAT32,
                                  .tag = tag};
    TRMI_TRY(trm_comm_run(s->comm, &parts, err));
    /* ... adds it in the order of the tree, ... */
    float *all = as_it_lies ? out : sums, *own = all + trm_comm_rank(s->comm) * each;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < each; at += PART) {
        add_nodes(s, received, each, at, trmi_min_i64(PART, each - at), own + at);
    }
    /* ... and gives the sum to all. */
    const trm_collective gather = {
        .kind = TRM_ALLGATHER, .recv = all, .count = each, .dtype = TRM_FLOAT32, .tag = tag};
    TRMI_TRY(trm_comm_run(s->comm, &gather, err));
    if (!as_it_lies) {
        memcpy(out, sums, (size_t)count * sizeof *out);
    }
    return TRM_OK;
}

trm_status trmi_tree_sum_run(const trmi_tree_sum *s, const float *nodes, int64_t stride, float *out,
                             int64_t count, const char *tag, trm_error *err) {
    for (int64_t begin = 0; begin < count; begin += TRMI_TREE_PIECE) {
        TRMI_TRY(run_piece(s, nodes + begin, stride, out + begin,
                           trmi_min_i64(TRMI_TREE_PIECE, count - begin), tag, err));
    }
    return TRM_OK;
}
