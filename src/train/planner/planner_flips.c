/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the factors from which another plan is the best: how far bandwidth, batch or classes can
 * change before the chosen plan loses 2 %.
 *
 *     factor of the bandwidth    0.2        1          3.5
 *                          ------|----------|----------|------>
 *                       another  |   the chosen plan   |  another plan is faster by 2 %
 *                                at                    at
 *
 * Each test is a new search at the changed value (still_best); find_flip brackets the factor by
 * multiplication and narrows it by bisection. A direction without a flip within STEPS
 * multiplications reports how far it has looked. The planner's graph, links and plan are as before
 * when a function returns. */
#include "train/planner/planner.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Searches of one direction: multiplications that bracket a factor, and halvings of the bracket. */
enum { STEPS = 5, HALVINGS = 5 };

/* ---- the cuts of a plan, by work ------------------------------------------------------------- */

/* Contract in planner.h. At most four cuts with more than 0.5 % of the work are listed, the
 * largest first. */
void trmi_planner_summary(const trmi_space *space, const trmi_choice *choice, char *text,
                          size_t size) {
    char letters[16][TRMI_MESH_AXES + 1];
    double work[16] = {0}, all = 0;
    int count = 0, parts = 0, gathered = 0, again = 0;
    for (int32_t n = 0; n < space->nodes_count; n++) {
        /* Work by letters of the cut, counted as if the operator were whole. */
        const trmi_space_class *c = trmi_space_class_of(space, n);
        double whole = c->forward[0] + c->backward[0];
        const char *own = c->strategies[choice->strategy[n]].letters;
        int at = 0;
        while (at < count && strcmp(letters[at], own) != 0) {
            at++;
        }
        if (at == count && count < 16) {
            memcpy(letters[count++], own, sizeof letters[0]);
        }
        if (at < count) {
            work[at] += whole;
        }
        all += whole;
        parts += choice->stores[n] != TRMI_STORE_AS_READ;
        gathered += choice->stores[n] == TRMI_STORE_AGAIN;
        again += choice->again[n];
    }
    /* The largest shares come first. */
    size_t used = 0;
    text[0] = '\0';
    for (int shown = 0; shown < 4 && used < size; shown++) {
        int best = -1;
        for (int i = 0; i < count; i++) {
            best = work[i] > 0.005 * all && (best < 0 || work[i] > work[best]) ? i : best;
        }
        if (best < 0) {
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s %.0f%%", shown ? ", " : "",
                                 letters[best], 100 * work[best] / all);
        work[best] = 0;
    }
    if (parts > 0 && used < size) {
        used += (size_t)snprintf(text + used, size - used, "; parameters of %d operators in parts",
                                 parts);
    }
    if (gathered > 0 && used < size) {
        used += (size_t)snprintf(text + used, size - used, ", %d of them gathered again", gathered);
    }
    if (again > 0 && used < size) {
        snprintf(text + used, size - used, "; %d made again", again);
    }
}

/* ---- flips ----------------------------------------------------------------------------------- */

/* The quantity that is changed. */
typedef enum quantity { BANDWIDTH, BATCH, CLASSES } quantity;

/* Sets *best if the chosen plan is within 2 % of the best one when `what` is multiplied by
 * `factor`; `to`: the cuts of the best plan there. For batch and classes the graph is built
 * anew, for bandwidth only the links are scaled. */
static trm_status still_best(trm_planner *p, quantity what, double factor, bool *best, char *to,
                             size_t size, trm_error *err) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    const trm_graph *graph = p->graph;
    trm_graph *other = NULL;
    trmi_space *space = NULL;
    trmi_found *found = trmi_alloc(sizeof *found);
    trmi_arena arena = {0};
    trmi_partition_plan *plan = NULL;
    trmi_choice old;
    trmi_measure measure;
    trm_status status = found != NULL ? trmi_space_plan(m->space, &m->found.best.choice, &plan, err)
                                      : TRMI_NO_MEMORY(err, "to plan");
    if (status == TRM_OK && what != BANDWIDTH) {
        int64_t scaled = (int64_t)llround((double)(what == BATCH ? p->batch : p->classes) * factor);
        scaled = scaled < 1 ? 1 : scaled;
        status = trmi_planner_graph(p, what == BATCH ? scaled : p->batch,
                                    what == CLASSES ? scaled : 0, &other, err);
        graph = status == TRM_OK ? other : graph;
    }
    /* a new space with the changed value; the links are restored at once */
    double kept = p->links.scale_beta;
    p->links.scale_beta = what == BANDWIDTH ? 1 / factor : kept;
    status = status == TRM_OK ? trmi_planner_space(p, graph, &m->mesh, &space, err) : status;
    p->links.scale_beta = kept;
    /* the best plan there, and the chosen plan measured there */
    const trmi_search_options options = {.memory_bytes = trmi_auto_limit(&p->drive)};
    status = status == TRM_OK ? trmi_search(space, &options, &arena, found, err) : status;
    if (status == TRM_OK && !trmi_choice_open(&old, space, &arena)) {
        status = TRMI_NO_MEMORY(err, "to plan");
    }
    if (status == TRM_OK) {
        trm_error no;
        *best = trmi_space_choice(space, plan, &old, &no) == TRM_OK &&
                trmi_space_measure(space, &old, &measure, &no) == TRM_OK &&
                measure.step <= found->objective * 1.02;
        trmi_planner_summary(space, &found->best.choice, to, size);
    }
    trmi_partition_plan_destroy(plan);
    trmi_space_destroy(space);
    trm_graph_destroy(other);
    trmi_arena_free(&arena);
    trmi_free(found);
    return status;
}

/* Returns whether the factor leaves at least one sample for each rank, or two classes. */
static bool is_possible(const trm_planner *p, quantity what, double factor) {
    double count = what == BATCH ? (double)p->batch : (double)p->classes;
    return what == BANDWIDTH ||
           (count * factor >= (what == BATCH ? p->ranks : 2) && count * factor < 1e8);
}

/* Multiplies by `step` up to STEPS times until the plan changes, then narrows the interval by
 * HALVINGS bisections. */
static trm_status find_flip(trm_planner *p, quantity what, double step, trmi_flip *flip,
                            trm_error *err) {
    double good = 1, bad = 0;
    bool best = true;
    char to[sizeof flip->to];
    for (int i = 0; i < STEPS && best && is_possible(p, what, pow(step, i + 1)); i++) {
        double factor = pow(step, i + 1);
        TRMI_TRY(still_best(p, what, factor, &best, to, sizeof to, err));
        *(best ? &good : &bad) = factor;
    }
    for (int i = 0; i < HALVINGS && bad > 0; i++) {
        /* Factors are compared as ratios, so the middle is the geometric mean. */
        double middle = sqrt(good * bad);
        bool ok;
        char other[sizeof to];
        TRMI_TRY(still_best(p, what, middle, &ok, other, sizeof other, err));
        *(ok ? &good : &bad) = middle;
        if (!ok) {
            memcpy(to, other, sizeof to);
        }
    }
    flip->at = bad;
    if (bad > 0) {
        memcpy(flip->to, to, sizeof to);
    } else if (step < 1) {
        flip->low = good;
    } else {
        flip->high = good;
    }
    return TRM_OK;
}

/* Contract in planner.h: tries each quantity upward and downward. */
trm_status trmi_planner_flips(trm_planner *p, trm_error *err) {
    static const struct {
        const char *what;
        quantity quantity;
        double step;
    } tries[] = {{"bandwidth", BANDWIDTH, 4}, {"bandwidth", BANDWIDTH, 0.25},
                 {"batch", BATCH, 4},         {"batch", BATCH, 0.25},
                 {"classes", CLASSES, 8},     {"classes", CLASSES, 0.125}};
    if (trmi_planner_best(p)->space->seconds > 0.05) {
        return TRM_OK; /* too slow: each factor needs a space of this size */
    }
    for (int i = 0; i < 6; i++) {
        if (tries[i].quantity == CLASSES && p->classes < 2) {
            continue;
        }
        trmi_flip *f = &p->flips[p->flips_count];
        *f = (trmi_flip){.what = tries[i].what,
                         .low = 1,
                         .high = 1,
                         .now = tries[i].quantity == BATCH     ? (double)p->batch
                                : tries[i].quantity == CLASSES ? (double)p->classes
                                                               : 0};
        TRMI_TRY(find_flip(p, tries[i].quantity, tries[i].step, f, err));
        p->flips_count++;
    }
    return TRM_OK;
}
