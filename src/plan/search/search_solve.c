/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the cheapest plan of a space for given weights, and converts choices to plans and back.
 *
 *       weights (trmi_objective) -> fill_tables: a cost graph -> trmi_solve: a strategy for each node
 *                                                             -> best_policy: how it keeps values
 *
 * The space becomes a cost graph (plan/solve/solve.h): a state is a strategy, its cost that of its
 * cheapest policy (parameters whole or in parts, output kept or recomputed). The policy of a node
 * does not matter to its neighbours, so it is chosen for each strategy beforehand and again at the
 * end. Costs are seconds; memory enters them at its price lambda (w->memory, seconds a byte). Nodes
 * of a class and equal edges share tables, which the solver exploits. */
#include "plan/search/search.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Writes the error for memory that is missing. */
static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search a plan"); }

/* ---- choices ---- */

bool trmi_choice_open(trmi_choice *c, const trmi_space *s, trmi_arena *arena) {
    c->strategy = trmi_arena_alloc(arena, ((size_t)s->nodes_count + 1) * sizeof *c->strategy);
    c->stores = trmi_arena_alloc(arena, (size_t)s->nodes_count + 1);
    c->again = trmi_arena_alloc(arena, (size_t)s->nodes_count + 1);
    return c->strategy != NULL && c->stores != NULL && c->again != NULL;
}

void trmi_choice_copy(trmi_choice *to, const trmi_choice *from, const trmi_space *s) {
    memcpy(to->strategy, from->strategy, (size_t)s->nodes_count * sizeof *to->strategy);
    memcpy(to->stores, from->stores, (size_t)s->nodes_count);
    memcpy(to->again, from->again, (size_t)s->nodes_count);
}

bool trmi_choice_equal(const trmi_choice *a, const trmi_choice *b, const trmi_space *s) {
    return memcmp(a->strategy, b->strategy, (size_t)s->nodes_count * sizeof *a->strategy) == 0 &&
           memcmp(a->stores, b->stores, (size_t)s->nodes_count) == 0 &&
           memcmp(a->again, b->again, (size_t)s->nodes_count) == 0;
}

/* Contract in search.h. Operators without loops to cut have no line in a plan. */
trm_status trmi_space_plan(const trmi_space *s, const trmi_choice *choice,
                           trmi_partition_plan **out, trm_error *err) {
    trmi_partition_plan *plan;
    TRMI_TRY(trmi_partition_plan_create(&s->mesh, &plan, err));
    plan->digest = trmi_partition_digest(s->graph);
    plan->blocks = s->costs.blocks;
    trm_status status = TRM_OK;
    for (int32_t n = 0; status == TRM_OK && n < s->nodes_count; n++) {
        const trmi_op *op = trmi_space_op(s, n);
        const trmi_strategy *strategy = &trmi_space_class_of(s, n)->strategies[choice->strategy[n]];
        char letters[TRMI_PARTITION_LETTERS];
        trmi_partition_loops(s->graph, op, letters, NULL);
        /* cut, and whether it is recomputed */
        if (letters[0] != '\0') {
            status = trmi_partition_plan_set(plan, op->name, strategy->letters,
                                             s->nodes[n].pinned >= 0, NULL, err);
            if (status == TRM_OK && s->nodes[n].repeats) {
                status = trmi_partition_plan_set_recompute(
                    plan, op->name, choice->again[n] ? TRMI_RECOMPUTE_YES : TRMI_RECOMPUTE_NO, err);
            }
        }
        /* Write a line for each parameter in parts. */
        for (int32_t i = 0;
             status == TRM_OK && choice->stores[n] != TRMI_STORE_AS_READ && i < op->inputs_count;
             i++) {
            const trmi_op *from = trmi_parameter_of(s->graph, op->inputs[i]);
            trmi_spread parts;
            if (from != NULL && trmi_space_parts(s, n, i, choice->strategy[n], &parts)) {
                status = trmi_partition_plan_store(plan, from->name, &parts,
                                                   choice->stores[n] == TRMI_STORE_AGAIN, err);
            }
        }
    }
    if (status != TRM_OK) {
        trmi_partition_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return TRM_OK;
}

/* Reads how a plan stores the parameters of node n: as its strategy reads them, or in the parts
 * of the space.
 *   errors  INVALID: stored in another way, which can run but has no price */
static trm_status read_stores(const trmi_space *s, const trmi_partition_plan *plan, int32_t n,
                              int32_t strategy, uint8_t *form, trm_error *err) {
    const trmi_op *op = trmi_space_op(s, n);
    *form = TRMI_STORE_AS_READ;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_op *from = trmi_parameter_of(s->graph, op->inputs[i]);
        const trmi_partition_store *store =
            from != NULL ? trmi_partition_plan_stored(plan, from->name) : NULL;
        trmi_spread parts, read = {{0}, {0}};
        if (store == NULL || !trmi_space_owns(s, op, from->outputs[0])) {
            continue;
        }
        /* Find how the strategy reads the parameter, as a form of storing it. */
        for (int32_t k = 0; k < s->mesh.axes; k++) {
            const trmi_spread *as = &trmi_space_class_of(s, n)->strategies[strategy].inputs[i];
            read.at[k] = trmi_is_partial(as->at[k]) ? TRMI_WHOLE : as->at[k];
            read.place[k] = read.at[k] == TRMI_WHOLE ? 0 : as->place[k];
        }
        if (trmi_space_parts(s, n, i, strategy, &parts) &&
            trmi_spread_equal(&parts, &store->spread)) {
            const trmi_store own = store->again ? TRMI_STORE_AGAIN : TRMI_STORE_PARTS;
            if (*form != TRMI_STORE_AS_READ && *form != own) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "the plan gathers some parameters of %s again in backward, and "
                                 "others not: such a plan runs, but has no price; write 'again' in "
                                 "all of their lines, or in none",
                                 op->name);
            }
            *form = (uint8_t)own;
        } else if (!trmi_spread_equal(&read, &store->spread)) {
            char has[64], wants[64];
            return TRMI_FAIL(
                err, TRM_INVALID,
                "the plan stores %s as %s, %s reads it as %s: such a plan runs, but has no price; "
                "remove the line",
                from->name, trmi_spread_text(&s->mesh, &store->spread, has, sizeof has), op->name,
                trmi_spread_text(&s->mesh, &read, wants, sizeof wants));
        }
    }
    return TRM_OK;
}

/* Contract in search.h. The inverse of writing a plan; operators without a line take what the
 * partition would choose. */
trm_status trmi_space_choice(const trmi_space *s, const trmi_partition_plan *plan, trmi_choice *out,
                             trm_error *err) {
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_op *op = trmi_space_op(s, n);
        const trmi_space_class *c = trmi_space_class_of(s, n);
        const trmi_partition_choice *line = trmi_partition_plan_find(plan, op->name);
        out->again[n] =
            line != NULL && line->recompute == TRMI_RECOMPUTE_YES && s->nodes[n].repeats;
        /* without a line the neighbours decide */
        out->strategy[n] = line == NULL ? trmi_space_choose_strategy(s, n, out->strategy) : -1;
        for (int32_t i = 0; line != NULL && i < c->count; i++) {
            out->strategy[n] =
                strcmp(c->strategies[i].letters, line->letters) == 0 ? i : out->strategy[n];
        }
        if (out->strategy[n] < 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "the plan cuts operator %s by '%s', which is not possible here",
                             op->name, line->letters);
        }
        TRMI_TRY(read_stores(s, plan, n, out->strategy[n], &out->stores[n], err));
    }
    return TRM_OK;
}

/* Contract in search.h. One parameter in parts, or one operator that slices cannot update, rules
 * slices out for the whole plan. */
bool trmi_choice_sliced(const trmi_space *s, const trmi_choice *choice) {
    bool sliced = s->costs.slices;
    for (int32_t n = 0; sliced && n < s->nodes_count; n++) {
        sliced = choice->stores[n] == TRMI_STORE_AS_READ &&
                 trmi_space_class_of(s, n)->slices[choice->strategy[n]].blocking < INFINITY;
    }
    return sliced;
}

/* ---- weights -> cost graph -> choice ---- */

/* Contract in search.h. Combinations that are impossible or useless are infinite, so that no solver
 * needs to know them. */
trmi_node_cost trmi_space_node_cost(const trmi_space *s, const trmi_space_class *c, int32_t i,
                                    int policy, const trmi_objective *w) {
    const trmi_store form = trmi_policy_store(policy);
    bool again = trmi_policy_again(policy), sliced = policy >= TRMI_POLICY_SLICED;
    const trmi_store_cost *store =
        sliced ? &c->slices[i] : &c->stores[TRMI_STORES * i + (int32_t)form];
    const trmi_store_cost *gathered_once = &c->stores[TRMI_STORES * i + TRMI_STORE_PARTS];
    if ((form != TRMI_STORE_AS_READ && (sliced || !s->costs.shard_stores)) ||
        (form == TRMI_STORE_AGAIN &&
         !(store->bytes < gathered_once->bytes)) || /* it saves nothing */
        (again && !(c->repeats && c->saved[i] > 0)) ||
        !(store->blocking < INFINITY)) {
        return (trmi_node_cost){INFINITY, 0};
    }
    /* a value that is kept counts once for each micro-batch in flight */
    double copies = 1 + w->others_kept;
    return (trmi_node_cost){c->forward[i] + c->backward[i] + c->exchange[i] + store->blocking -
                                w->away * store->once + w->gradient * store->gradient +
                                (again ? c->again[i] : 0),
                            store->bytes + copies * (c->kept[i] - (again ? c->saved[i] : 0))};
}

/* Contract in search.h. Every operator by itself at its cheapest, without messages: no plan is
 * below. */
double trmi_space_operator_bound(const trmi_space *s) {
    const trmi_objective micro = {.away = 1};
    double sum = 0;
    for (int64_t k = 0; k < s->classes_count; k++) {
        const trmi_space_class *c = &s->classes[k];
        double least = INFINITY;
        for (int32_t i = 0; i < c->count * TRMI_POLICIES; i++) {
            int policy = i % TRMI_POLICIES;
            least =
                fmin(least, trmi_space_node_cost(s, c, i / TRMI_POLICIES, policy, &micro).seconds);
            policy += TRMI_POLICY_SLICED;
            least =
                fmin(least, trmi_space_node_cost(s, c, i / TRMI_POLICIES, policy, &micro).seconds);
        }
        sum += c->members * least;
    }
    return sum;
}

/* Returns seconds + lambda x bytes of a policy. */
static double weigh_policy(const trmi_node_cost *policy, const trmi_objective *w) {
    return policy->seconds < INFINITY ? policy->seconds + w->memory * policy->bytes : INFINITY;
}

/* Returns the cheapest policy of strategy i; parts and recomputation only where they are cheaper.
 * *cost: its cost. */
static int best_policy(const trmi_space *s, const trmi_space_class *c, int32_t i,
                       const trmi_objective *w, double *cost) {
    int best = 0, sliced = w->sliced ? TRMI_POLICY_SLICED : 0;
    trmi_node_cost policy = trmi_space_node_cost(s, c, i, sliced, w);
    *cost = weigh_policy(&policy, w);
    for (int k = 1; k < TRMI_POLICIES; k++) {
        if (trmi_policy_store(k) == TRMI_STORE_AGAIN && w->memory == 0) {
            continue; /* a second gather takes time and saves memory */
        }
        policy = trmi_space_node_cost(s, c, i, k + sliced, w);
        double own = weigh_policy(&policy, w);
        best = own < *cost ? k : best;
        *cost = fmin(*cost, own);
    }
    return best;
}

/* A space as a cost graph. */
typedef struct tables {
    trmi_cost_graph graph;
    int32_t *states;
    const float **nodes;
    float **of_class; /* [classes][strategies] */
    trmi_cost_edge *edges;
} tables;

/* Returns the table of an edge with its bytes added at their price; NULL: no memory. */
static const float *with_bytes(const trmi_space *s, const trmi_space_edge *e,
                               const trmi_objective *w, trmi_arena *arena) {
    const float *seconds = s->tables[e->table], *bytes = s->bytes[e->table];
    if (w->memory == 0 || bytes == NULL) {
        return seconds;
    }
    size_t entries = (size_t)trmi_space_class_of(s, e->from)->count *
                     (size_t)trmi_space_class_of(s, e->to)->count;
    float *sum = trmi_arena_alloc(arena, entries * sizeof *sum);
    for (size_t i = 0; sum != NULL && i < entries; i++) {
        sum[i] = seconds[i] + (float)(w->memory * (1 + w->others_kept)) * bytes[i];
    }
    return sum;
}

/* Builds the cost graph. Nodes of a class and equal edges share tables. False: no memory. */
static bool fill_tables(const trmi_space *s, const trmi_objective *w, tables *t,
                        trmi_arena *arena) {
    t->states = trmi_arena_alloc(arena, ((size_t)s->nodes_count + 1) * sizeof *t->states);
    t->nodes = trmi_arena_alloc(arena, ((size_t)s->nodes_count + 1) * sizeof *t->nodes);
    t->of_class = trmi_arena_alloc(arena, ((size_t)s->classes_count + 1) * sizeof *t->of_class);
    t->edges = trmi_arena_alloc(arena, ((size_t)s->edges_count + 1) * sizeof *t->edges);
    if (t->states == NULL || t->nodes == NULL || t->of_class == NULL || t->edges == NULL) {
        return false;
    }
    /* costs of strategies, by class */
    for (int64_t k = 0; k < s->classes_count; k++) {
        const trmi_space_class *c = &s->classes[k];
        float *costs = t->of_class[k] = trmi_arena_alloc(arena, (size_t)c->count * sizeof *costs);
        for (int32_t i = 0; costs != NULL && i < c->count; i++) {
            double cost;
            (void)best_policy(s, c, i, w, &cost);
            costs[i] = (float)cost;
        }
        if (costs == NULL) {
            return false;
        }
    }
    for (int32_t n = 0; n < s->nodes_count; n++) {
        t->states[n] = trmi_space_class_of(s, n)->count;
        t->nodes[n] = t->of_class[s->nodes[n].group];
    }
    /* tables of edges, each priced once */
    const float **priced = trmi_arena_alloc(arena, ((size_t)s->tables_count + 1) * sizeof *priced);
    for (int64_t e = 0; priced != NULL && e < s->edges_count; e++) {
        const float **table = &priced[s->edges[e].table];
        *table = *table != NULL ? *table : with_bytes(s, &s->edges[e], w, arena);
        t->edges[e] = (trmi_cost_edge){s->edges[e].from, s->edges[e].to, *table};
        if (*table == NULL) {
            return false;
        }
    }
    if (priced == NULL) {
        return false;
    }
    t->graph = (trmi_cost_graph){.nodes_count = s->nodes_count,
                                 .edges_count = (int32_t)s->edges_count,
                                 .states = t->states,
                                 .nodes = t->nodes,
                                 .edges = t->edges};
    return true;
}

/* Reports that the pins leave no legal plan. */
static trm_status no_plan(const trmi_space *s, trm_error *err) {
    char mesh[48];
    return TRMI_FAIL(
        err, TRM_INVALID,
        "no plan on mesh %s: some operators cannot be cut in any way that fits the pinned ones",
        trmi_mesh_text(&s->mesh, mesh, sizeof mesh));
}

/* Computes the marginals of all nodes into the arena. */
static trm_status marginals_of(const trmi_space *s, const tables *t, float ***out,
                               trmi_arena *arena, trm_error *err) {
    float **rows = trmi_arena_alloc(arena, ((size_t)s->nodes_count + 1) * sizeof *rows);
    for (int32_t n = 0; rows != NULL && n < s->nodes_count; n++) {
        rows[n] = trmi_arena_alloc(arena, (size_t)t->states[n] * sizeof **rows);
        if (rows[n] == NULL) {
            return no_memory(err);
        }
    }
    if (rows == NULL) {
        return no_memory(err);
    }
    TRMI_TRY(trmi_solve_marginals(&t->graph, rows, err));
    *out = rows;
    return TRM_OK;
}

/* A node that must have a strategy. */
typedef struct forced {
    int32_t node, strategy; /* node -1: none */
} forced;

/* Gives all other strategies of the forced node the cost INFINITY. False: no memory. */
static bool force_strategy(const trmi_space *s, tables *t, const forced *f, trmi_arena *arena) {
    if (f->node < 0) {
        return true;
    }
    float *costs = trmi_arena_alloc(arena, (size_t)t->states[f->node] * sizeof *costs);
    for (int32_t i = 0; costs != NULL && i < t->states[f->node]; i++) {
        costs[i] = i == f->strategy ? t->of_class[s->nodes[f->node].group][i] : INFINITY;
    }
    t->nodes[f->node] = costs;
    return costs != NULL;
}

/* Solves the space, with a forced strategy or none. The data parallel plan is the first upper
 * bound. */
static trm_status solve_space(const trmi_space *s, const trmi_objective *weights, const forced *f,
                              trmi_choice *out, trmi_solution *solution, float ***marginals,
                              trmi_arena *arena, trm_error *err) {
    trmi_arena scratch = {0};
    tables t;
    TRMI_TRY(trmi_space_go_on(s, err));
    trm_status status = fill_tables(s, weights, &t, &scratch) && force_strategy(s, &t, f, &scratch)
                            ? TRM_OK
                            : no_memory(err);
    trmi_choice start;
    trmi_solve_options options = {0};
    if (status == TRM_OK && f->node < 0 && trmi_choice_open(&start, s, &scratch) &&
        trmi_space_baseline(s, TRMI_BASELINE_SAMPLES, &start)) {
        options.start = start.strategy;
    }
    if (status == TRM_OK) {
        status = trmi_solve(&t.graph, &options, out->strategy, solution, err);
    }
    if (status == TRM_OK && !(solution->objective < INFINITY)) {
        status = no_plan(s, err);
    }
    /* Find, of each strategy, the cheapest policy to store and recompute. */
    for (int32_t n = 0; status == TRM_OK && n < s->nodes_count; n++) {
        double cost;
        int policy = best_policy(s, trmi_space_class_of(s, n), out->strategy[n], weights, &cost);
        out->stores[n] = (uint8_t)trmi_policy_store(policy);
        out->again[n] = trmi_policy_again(policy);
    }
    if (status == TRM_OK && marginals != NULL) {
        status = marginals_of(s, &t, marginals, arena, err);
    }
    trmi_arena_free(&scratch);
    return status;
}

trm_status trmi_space_solve(const trmi_space *s, const trmi_objective *weights, trmi_choice *out,
                            trmi_solution *solution, float ***marginals, trmi_arena *arena,
                            trm_error *err) {
    return solve_space(s, weights, &(forced){-1, -1}, out, solution, marginals, arena, err);
}

trm_status trmi_space_solve_with(const trmi_space *s, const trmi_objective *weights, int32_t node,
                                 int32_t strategy, trmi_choice *out, trmi_solution *solution,
                                 trm_error *err) {
    return solve_space(s, weights, &(forced){node, strategy}, out, solution, NULL, NULL, err);
}
