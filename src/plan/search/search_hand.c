/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by rules, with which the search compares its own: baselines as people write them by hand,
 * and two searches that never take a decision back:
 *
 *   recursive      mesh axis by axis, largest operators first: each takes the cheapest letter
 *   propagation    from pinned operators to their neighbours: each takes the strategy that moves
 *                  the fewest data
 *
 * All of them write strategies of a given space (plan/search/search.h): a node is an operator, an
 * edge is a value that a second operator reads. */
#include "plan/search/search.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

/* Names of the baselines. */
static const char *const names[TRMI_BASELINES] = {"data parallel",
                                                  "data parallel, head by classes",
                                                  "data parallel, optimiser in parts",
                                                  "tensor parallel",
                                                  "spatial",
                                                  "replicated"};
const char *trmi_baseline_name(trmi_baseline baseline) { return names[baseline]; }

/* Returns the seconds of the edges between node n in strategy i and decided nodes (strategy >= 0).
 */
static double sum_edges(const trmi_space *s, int32_t n, int32_t i, const int32_t *strategy) {
    double sum = 0;
    for (int64_t k = 0; k < s->edges_count; k++) {
        const trmi_space_edge *e = &s->edges[k];
        int32_t other = e->from == n ? e->to : e->to == n ? e->from : -1;
        if (other >= 0 && strategy[other] >= 0) {
            int64_t a = e->from == n ? i : strategy[other], b = e->from == n ? strategy[other] : i;
            sum += (double)s->tables[e->table][a * trmi_space_class_of(s, e->to)->count + b];
        }
    }
    return sum;
}

/* Returns the seconds of a node without its edges. */
static double sum_own_cost(const trmi_space_class *c, int32_t i) {
    return c->forward[i] + c->backward[i] + c->exchange[i] + c->stores[TRMI_STORES * i].gradient;
}

/* Uses the edges to inputs only, not to readers: the partition treats operators without a line in
 * the plan the same way. */
int32_t trmi_space_choose_strategy(const trmi_space *s, int32_t n, const int32_t *strategy) {
    const trmi_space_class *c = trmi_space_class_of(s, n);
    double least = INFINITY;
    int32_t best = 0;
    for (int32_t i = 0; i < c->count; i++) {
        double sum = c->forward[i] + c->backward[i] + c->exchange[i];
        for (int64_t k = 0; k < s->edges_count; k++) {
            const trmi_space_edge *e = &s->edges[k];
            if (e->to == n && e->from < n) {
                sum += (double)s->tables[e->table][(int64_t)strategy[e->from] * c->count + i];
            }
        }
        if (sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}

/* ---- by hand ---- */

/* Returns the strategy with these letters; -1: none. */
static int32_t find_letters(const trmi_space_class *c, const char *letters) {
    for (int32_t i = 0; i < c->count; i++) {
        if (strcmp(c->strategies[i].letters, letters) == 0) {
            return i;
        }
    }
    return -1;
}

/* Returns the strategy that cuts all axes by the first possible letter of `wishes`; otherwise as
 * many of the outer axes as possible. */
static int32_t find_wished(const trmi_space *s, int32_t n, const char *wishes) {
    const trmi_space_class *c = trmi_space_class_of(s, n);
    char letters[TRMI_MESH_AXES + 1] = "";
    for (int32_t axes = s->mesh.axes; axes >= 0; axes--) {
        for (const char *w = wishes; *w != '\0' || axes == 0; w++) {
            memset(letters, '.', (size_t)s->mesh.axes);
            memset(letters, *w, (size_t)axes);
            letters[s->mesh.axes] = '\0';
            int32_t found = find_letters(c, letters);
            if (found >= 0 || axes == 0) {
                return found >= 0 ? found : 0;
            }
        }
    }
    return 0;
}

/* Returns whether a node belongs to the classifier: a loss over classes, or a linear operator that
 * only such losses read. */
static bool is_in_head(const trmi_space *s, int32_t n) {
    trmi_op_kind kind = trmi_space_op(s, n)->kind;
    if (kind == TRMI_OP_SOFTMAX_XENT || kind == TRMI_OP_LINEAR_XENT) {
        return true;
    }
    bool any = false;
    for (int64_t k = 0; k < s->edges_count; k++) {
        if (s->edges[k].from == n) {
            any = true;
            if (kind != TRMI_OP_LINEAR ||
                trmi_space_op(s, s->edges[k].to)->kind != TRMI_OP_SOFTMAX_XENT) {
                return false;
            }
        }
    }
    return any && kind == TRMI_OP_LINEAR;
}

/* Returns whether the columns of a node's output are those of products that are cut by columns:
 * it is one, or it computes each column, or head, from such ones by itself. */
static bool has_cut_columns(const trmi_space *s, const trmi_choice *c, int32_t n) {
    bool any = false;
    switch (trmi_space_op(s, n)->kind) {
    case TRMI_OP_LINEAR:
        return trmi_space_class_of(s, n)->strategies[c->strategy[n]].letters[0] == 'k';
    case TRMI_OP_ATTENTION:
    case TRMI_OP_ROTARY:
    case TRMI_OP_RESHAPE:
    case TRMI_OP_DROPOUT:
    case TRMI_OP_RELU:
    case TRMI_OP_GELU:
    case TRMI_OP_SILU:
    case TRMI_OP_SWIGLU:
        for (int64_t k = 0; !any && k < s->edges_count; k++) {
            any = s->edges[k].to == n && s->edges[k].from < n &&
                  has_cut_columns(s, c, s->edges[k].from);
        }
        return any;
    default: return false;
    }
}

/* Writes the plan TRMI_BASELINE_TENSOR. False: no product follows another one in this way. */
static bool choose_tensor_parallel(const trmi_space *s, trmi_choice *out) {
    bool pairs = false;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        bool second = false;
        for (int64_t k = 0; k < s->edges_count && trmi_space_op(s, n)->kind == TRMI_OP_LINEAR;
             k++) {
            second = second || (s->edges[k].to == n && s->edges[k].from < n &&
                                has_cut_columns(s, out, s->edges[k].from));
        }
        out->strategy[n] = find_wished(s, n, second ? "c" : "k");
        out->stores[n] = TRMI_STORE_AS_READ;
        out->again[n] = 0;
        pairs = pairs || second;
    }
    for (int32_t n = 0; pairs && n < s->nodes_count; n++) {
        out->strategy[n] = trmi_space_op(s, n)->kind == TRMI_OP_LINEAR
                               ? out->strategy[n]
                               : trmi_space_choose_strategy(s, n, out->strategy);
    }
    return pairs;
}

/* Contract in search.h. Returns whether the rule has made a plan of its own: else it is the plan of
 * data parallel again, and is not listed twice. */
bool trmi_space_baseline(const trmi_space *s, trmi_baseline baseline, trmi_choice *out) {
    if (baseline == TRMI_BASELINE_TENSOR) {
        return choose_tensor_parallel(s, out);
    }
    bool special = baseline == TRMI_BASELINE_SAMPLES || baseline == TRMI_BASELINE_REPLICATED ||
                   (baseline == TRMI_BASELINE_OPTIMIZER && s->costs.shard_stores);
    for (int32_t n = 0; n < s->nodes_count; n++) {
        bool head = baseline == TRMI_BASELINE_HEAD && is_in_head(s, n);
        const char *wishes = baseline == TRMI_BASELINE_REPLICATED ? ""
                             : baseline == TRMI_BASELINE_SPATIAL  ? "hn"
                             : head                               ? "kn"
                                                                  : "n";
        out->strategy[n] = find_wished(s, n, wishes);
        out->stores[n] =
            baseline == TRMI_BASELINE_OPTIMIZER ? TRMI_STORE_PARTS : TRMI_STORE_AS_READ;
        out->again[n] = 0;
        char first = trmi_space_class_of(s, n)->strategies[out->strategy[n]].letters[0];
        special = special || (head && first == 'k') ||
                  (baseline == TRMI_BASELINE_SPATIAL && first == 'h');
    }
    return special;
}

/* ---- recursive programming ---- */

/* Sorts the nodes by the seconds of their operators, largest first. */
static void sort_by_seconds(const trmi_space *s, int32_t *order) {
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(s, n);
        int32_t at = n;
        for (; at > 0; at--) {
            const trmi_space_class *o = trmi_space_class_of(s, order[at - 1]);
            if (o->forward[0] + o->backward[0] >= c->forward[0] + c->backward[0]) {
                break;
            }
            order[at] = order[at - 1];
        }
        order[at] = n;
    }
}

/* Returns whether a strategy has the letters of `now` on the axes before `axis` and no cut on the
 * axes after it. */
static bool extends_letters(const trmi_space *s, const char *letters, const char *now,
                            int32_t axis) {
    for (int32_t i = 0; i < s->mesh.axes; i++) {
        if ((i < axis && letters[i] != now[i]) || (i > axis && letters[i] != '.')) {
            return false;
        }
    }
    return true;
}

/* Decides one mesh axis after the other, in each the costliest operators first: an operator
 * takes the letter that is cheapest beside the neighbours already decided. As MindSpore's
 * recursive programming; fast, not optimal. */
trm_status trmi_space_recursive(const trmi_space *s, trmi_choice *out, trm_error *err) {
    int32_t *order = trmi_alloc(((size_t)s->nodes_count + 1) * sizeof *order);
    int32_t *before = trmi_alloc(((size_t)s->nodes_count + 1) * sizeof *before);
    if (order == NULL || before == NULL) {
        trmi_free(order);
        trmi_free(before);
        return TRMI_NO_MEMORY(err, "to search a plan");
    }
    sort_by_seconds(s, order);
    memset(out->stores, TRMI_STORE_AS_READ, (size_t)s->nodes_count);
    memset(out->again, 0, (size_t)s->nodes_count);
    memset(out->strategy, 0, (size_t)s->nodes_count * sizeof *out->strategy);
    /* Decide one axis after the other: each operator gets the cheapest letter given the decided
     * operators. */
    for (int32_t axis = 0; axis < s->mesh.axes; axis++) {
        memcpy(before, out->strategy, (size_t)s->nodes_count * sizeof *before);
        /* no operator is decided on this axis yet */
        for (int32_t n = 0; n < s->nodes_count; n++) {
            out->strategy[n] = -1;
        }
        for (int32_t k = 0; k < s->nodes_count; k++) {
            int32_t n = order[k], best = before[n];
            const trmi_space_class *c = trmi_space_class_of(s, n);
            const char *now = c->strategies[before[n]].letters;
            double least = INFINITY;
            for (int32_t i = 0; i < c->count; i++) {
                double cost = extends_letters(s, c->strategies[i].letters, now, axis)
                                  ? sum_own_cost(c, i) + sum_edges(s, n, i, out->strategy)
                                  : INFINITY;
                if (cost < least) {
                    least = cost;
                    best = i;
                }
            }
            out->strategy[n] = best;
        }
    }
    trmi_free(order);
    trmi_free(before);
    return TRM_OK;
}

/* ---- sharding propagation ---- */

/* Returns the strategy with the least redistribution given the decided neighbours; of equal ones
 * the one with the least work. */
static int32_t find_least_moved(const trmi_space *s, int32_t n, const int32_t *strategy) {
    const trmi_space_class *c = trmi_space_class_of(s, n);
    double least = INFINITY, least_own = INFINITY;
    int32_t best = 0;
    for (int32_t i = 0; i < c->count; i++) {
        double moved = sum_edges(s, n, i, strategy) + c->exchange[i],
               own = c->forward[i] + c->backward[i];
        if (moved < least || (moved == least && own < least_own)) {
            least = moved;
            least_own = own;
            best = i;
        }
    }
    return best;
}

/* Returns whether a node has a decided neighbour. */
static bool has_decided_neighbour(const trmi_space *s, int32_t n, const int32_t *strategy) {
    for (int64_t k = 0; k < s->edges_count; k++) {
        const trmi_space_edge *e = &s->edges[k];
        int32_t other = e->from == n ? e->to : e->to == n ? e->from : -1;
        if (other >= 0 && strategy[other] >= 0) {
            return true;
        }
    }
    return false;
}

/* Spreads the decisions of pinned operators to their neighbours, breadth first: each takes the
 * strategy that moves the least data. As MindSpore's sharding propagation. Without pins, the
 * first operators are cut by samples. */
trm_status trmi_space_propagate(const trmi_space *s, trmi_choice *out, trm_error *err) {
    uint8_t *next;
    TRMI_TRY(TRMI_NEW(err, next, (size_t)s->nodes_count + 1, "to search a plan"));
    int32_t decided = 0;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        bool pinned = s->nodes[n].pinned >= 0;
        out->strategy[n] = pinned ? 0 : -1;
        out->stores[n] = TRMI_STORE_AS_READ;
        out->again[n] = 0;
        decided += pinned;
    }
    for (int32_t n = 0; decided == 0 && n < s->nodes_count; n++) {
        /* Without pins the first operators are cut by samples. */
        if (!has_decided_neighbour(s, n, out->strategy)) {
            out->strategy[n] = find_wished(s, n, "n");
            decided++;
        }
    }
    /* Go breadth first: decide all neighbours of the decided nodes. */
    while (decided < s->nodes_count) {
        int32_t count = 0;
        for (int32_t n = 0; n < s->nodes_count; n++) {
            next[n] = out->strategy[n] < 0 && has_decided_neighbour(s, n, out->strategy);
            count += next[n];
        }
        for (int32_t n = 0; n < s->nodes_count; n++) {
            if (next[n] || (count == 0 && out->strategy[n] < 0)) {
                out->strategy[n] =
                    count == 0 ? find_wished(s, n, "n") : find_least_moved(s, n, out->strategy);
                decided++;
                if (count == 0) {
                    break; /* start the next component of the graph */
                }
            }
        }
    }
    trmi_free(next);
    return TRM_OK;
}
