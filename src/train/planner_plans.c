/* The plans beside the best: of other meshes, baselines, points of the curve of time against memory. As files, and in turns on the
 * ranks where predictions cannot tell which is fastest. */
#include "train/planner.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    const trmi_candidate *candidate;
    int32_t mesh;
} ranked;
enum { RANKED = 3 * TRMI_CANDIDATES + 1 };

static const trmi_space *space_of(const trm_planner *p, const ranked *r) { return p->meshes[r->mesh].space; }

static int by_step(const void *a, const void *b) {
    double x = ((const ranked *)a)->candidate->measure.step, y = ((const ranked *)b)->candidate->measure.step;
    return (x > y) - (x < y);
}

static bool apart(const ranked *list, int32_t count, const ranked *from) {
    for (int32_t i = 0; i < count; i++) {
        if (fabs(list[i].candidate->measure.step / from->candidate->measure.step - 1) < 0.03) {
            return false;
        }
    }
    return true;
}

/* The chosen plan first, then the others by predicted time, each once. */
static int32_t collect(const trm_planner *p, ranked list[RANKED]) {
    const trmi_planned_mesh *m = trmi_planner_best(p);
    int32_t count = 0, kept = 1;
    list[count++] = (ranked){&m->found.best, p->best};
    for (int32_t i = 0; i < m->found.baselines_count; i++) {
        list[count++] = (ranked){&m->found.baselines[i], p->best};
    }
    for (int32_t i = 0; i < p->meshes_count && count < TRMI_CANDIDATES; i++) {
        if (i != p->best) {
            list[count++] = (ranked){&p->meshes[i].found.best, i};
        }
    }
    for (int32_t i = 0; i < m->found.frontier_count && count < 2 * TRMI_CANDIDATES; i++) {
        const ranked point = {&m->found.frontier[i], p->best};
        if (apart(list, count, &point)) { /* neighbours on the curve are alike: runs cannot tell them apart */
            list[count++] = point;
        }
    }
    for (int32_t i = 0; i < p->others_count; i++) {
        list[count++] = (ranked){&p->others[i], p->best};
    }
    for (int32_t i = 1; i < count; i++) {
        bool known = false;
        for (int32_t k = 0; k < kept && !known; k++) {
            known = list[k].mesh == list[i].mesh &&
                    trmi_choice_equal(&list[k].candidate->choice, &list[i].candidate->choice, space_of(p, &list[i]));
        }
        if (!known) {
            list[kept++] = list[i];
        }
    }
    qsort(list + 1, (size_t)kept - 1, sizeof *list, by_step);
    return kept;
}

/* ---- as files ------------------------------------------------------------------------------------------------- */

char *trm_planner_plan(const trm_planner *p, int32_t index, trm_planner_candidate *about) {
    ranked list[RANKED];
    int32_t count = collect(p, list);
    trmi_shard_plan *plan;
    trm_error ignored;
    if (index < 0 || index >= count ||
        trmi_space_plan(space_of(p, &list[index]), &list[index].candidate->choice, &plan, &ignored) != TRM_OK) {
        return NULL;
    }
    const trmi_candidate *c = list[index].candidate;
    if (about != NULL) {
        *about = (trm_planner_candidate){.name = index == 0 ? "the chosen plan" : c->name, .step_seconds = c->measure.step};
        if (trmi_planner_compiled(p, space_of(p, &list[index]), &c->choice, &about->bytes, &ignored) != TRM_OK) {
            about->bytes = 0;
        }
    }
    char *text = trmi_shard_plan_text(plan);
    trmi_shard_plan_destroy(plan);
    return text;
}

trm_status trm_planner_save(const trm_planner *p, const char *file, trm_error *err) {
    const trmi_planned_mesh *m = trmi_planner_best(p);
    trmi_shard_plan *plan;
    TRMI_TRY(trmi_space_plan(m->space, &m->found.best.choice, &plan, err));
    trm_status status = trmi_shard_plan_save(plan, file, err);
    trmi_shard_plan_destroy(plan);
    return status;
}

/* ---- in turns --------------------------------------------------------------------------------------------------- */

static trm_status add(trm_planner *p, ranked *r, trm_error *err) {
    const trmi_candidate *c = r->candidate;
    trmi_shard_plan *plan;
    TRMI_TRY(trmi_space_plan(space_of(p, r), &c->choice, &plan, err));
    trmi_trial_plan about = {.what = r, .group = r->mesh, .simple = strcmp(c->name, trmi_baseline_name(TRMI_BASELINE_SAMPLES)) == 0,
                                   .predicted = c->measure.step, .bytes = c->measure.bytes};
    char mesh[48];
    if (c == &p->meshes[r->mesh].found.best) {
        snprintf(about.name, sizeof about.name, "best on mesh %.24s", trmi_mesh_text(&p->meshes[r->mesh].mesh, mesh, sizeof mesh));
    } else {
        snprintf(about.name, sizeof about.name, "%s", strcmp(c->name, "frontier") == 0 ? "one of less memory" : c->name);
    }
    trm_status status = trmi_trial_add(&p->trial, plan, &about, err);
    trmi_shard_plan_destroy(plan);
    return status;
}

/* By their programs; what does not keep the limit does not run. */
static trm_status weigh(trm_planner *p, trm_error *err) {
    for (int32_t i = p->trial.count - 1; i >= 0; i--) {
        trmi_trial_plan *t = &p->trial.list[i];
        const ranked *r = t->what;
        TRMI_TRY(trmi_planner_compiled(p, space_of(p, r), &r->candidate->choice, &t->bytes, err));
        if (p->options.memory_bytes > 0 && t->bytes > (double)p->options.memory_bytes) {
            trmi_trial_drop(&p->trial, i);
        }
    }
    return TRM_OK;
}

trm_status trmi_planner_try(trm_planner *p, trm_error *err) {
    const trmi_found *best = &trmi_planner_best(p)->found;
    double seconds = trmi_trial_seconds(p->options.trial_seconds, best->objective), limit = (double)p->options.memory_bytes;
    if (p->costs.probe == NULL || p->probe.comm == NULL || p->mode != TRMI_SEARCH_OPTIMAL || best->infeasible || seconds <= 0) {
        return TRM_OK;
    }
    ranked list[RANKED];
    int32_t count = collect(p, list);
    for (int32_t i = 0; i < count; i++) {
        const trmi_candidate *c = list[i].candidate;
        if (c->fits && c->measure.step <= best->objective * (1 + TRMI_TRIAL_BAND)) {
            TRMI_TRY(add(p, &list[i], err));
        }
    }
    trmi_trial_narrow(&p->trial, seconds);
    TRMI_TRY(p->trial.count > 1 ? weigh(p, err) : TRM_OK);
    TRMI_TRY(trmi_trial_run(&p->trial, &p->probe, &p->costs, seconds, limit, err));
    if (p->trial.turns == 0) {
        return TRM_OK;
    }
    const ranked *chosen = p->trial.list[p->trial.chosen].what;
    trmi_choice *taken = trmi_arena_alloc(&p->arena, sizeof *taken); /* what is found is found again */
    if (taken == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a plan");
    }
    *taken = chosen->candidate->choice;
    p->best = chosen->mesh;
    p->meshes[p->best].taken = taken;
    return TRM_OK;
}
