/* SPDX-License-Identifier: Apache-2.0 */
/* Returns the plans of a planner as texts of plan files (contracts in trireme/plan.h). */
#include "train/planner/planner.h"

#include "base/arguments.h"
#include "base/error.h"

/* Contract in trireme/plan.h. With `measurements` the list is that of the first one, with present
 * times. */
char *trm_planner_plan(const trm_planner *p, int32_t index, trm_planner_candidate *about) {
    TRMI_NEED_OR(NULL, NULL, p);
    trmi_ranked own[TRMI_RANKED];
    const trmi_ranked *list = p->measurements != NULL ? p->measurements->plans : own;
    int32_t count =
        p->measurements != NULL ? p->measurements->plans_count : trmi_auto_list(&p->drive, own);
    trmi_partition_plan *plan;
    trm_error ignored;
    if (index < 0 || index >= count) {
        return NULL;
    }
    const trmi_candidate *c = list[index].candidate;
    const trmi_space *space = p->drive.meshes[list[index].mesh].space;
    if (trmi_space_plan(space, &c->choice, &plan, &ignored) != TRM_OK) {
        return NULL;
    }
    /* The bytes of the compiled program, 0 if it does not compile. */
    if (about != NULL) {
        *about = (trm_planner_candidate){
            .name = index == 0 ? "the chosen plan" : c->name,
            .step_seconds = p->measurements != NULL ? p->measurements->now[index] : c->measure.step,
            .first_seconds = c->measure.step};
        if (trmi_planner_compiled(p, space, &c->choice, &about->bytes, &ignored) != TRM_OK) {
            about->bytes = 0;
        }
    }
    char *text = trmi_partition_plan_text(plan);
    trmi_partition_plan_destroy(plan);
    return text;
}

trm_status trmi_planner_chosen(const trm_planner *p, trmi_partition_plan **out, trm_error *err) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    return p->pipe.chosen ? trmi_planner_staged_plan(p, &p->pipe.found.rows[0].plan, out, err)
                          : trmi_space_plan(m->space, &m->found.best.choice, out, err);
}

trm_status trm_planner_save(const trm_planner *p, const char *file, trm_error *err) {
    TRMI_NEED(err, p, file);
    trmi_partition_plan *plan;
    TRMI_TRY(trmi_planner_chosen(p, &plan, err));
    trm_status status = trmi_partition_plan_save(plan, file, err);
    trmi_partition_plan_destroy(plan);
    return status;
}
