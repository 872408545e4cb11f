/* Plan files without a model: for looking at them. */
#include "trireme/planner.h"

#include "base/error.h"
#include "plan/sharding.h"

#include <string.h>

trm_status trm_plan_read(const char *file, trm_plan_info *out, char **text, trm_error *err) {
    trmi_shard_plan *plan = NULL;
    TRMI_TRY(trmi_shard_plan_load(file, &plan, err));
    char *lines = text != NULL ? trmi_shard_plan_text(plan) : NULL;
    if (text != NULL && lines == NULL) {
        trmi_shard_plan_destroy(plan);
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for its text", file);
    }
    *out = (trm_plan_info){.ranks = trmi_mesh_ranks(&plan->mesh), .graph = plan->digest,
                           .operators = plan->choices_count, .stores = plan->stores_count};
    trmi_mesh_text(&plan->mesh, out->mesh, sizeof out->mesh);
    for (int64_t i = 0; i < plan->choices_count; i++) {
        const trmi_shard_choice *c = &plan->choices[i];
        out->cut += strspn(c->letters, ".") != strlen(c->letters);
        out->pinned += c->pinned;
    }
    if (text != NULL) {
        *text = lines;
    }
    trmi_shard_plan_destroy(plan);
    return TRM_OK;
}
