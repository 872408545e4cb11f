/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the report of a planner: gathers the figures, puts them and says the lines. */
#include "train/planner/planner_report.h"

#include "base/arguments.h"

/* Contract in trireme/plan.h. NULL without memory or if gathering failed. */
char *trm_planner_report(const trm_planner *p, bool json) {
    TRMI_NEED_OR(NULL, NULL, p);
    trmi_figures *r = trmi_alloc(sizeof *r);
    trm_error err;
    char *text = NULL;
    if (r == NULL) {
        return NULL;
    }
    bool ok = trmi_figures_gather(r, p, &err) == TRM_OK;
    if (ok) {
        trmi_report_begin(&r->report, json);
        trmi_figures_put(r);
        if (!json) {
            trmi_figures_say(r);
        }
        text = trmi_report_end(&r->report);
    }
    trmi_figures_free(r);
    trmi_free(r);
    return text;
}
