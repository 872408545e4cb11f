/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the report of a planner: gather the figures, then print them as text or JSON. */
#include "train/planner/planner_report.h"

#include "base/arguments.h"

/* Contract in trireme/plan.h. NULL without memory or if gathering failed. */
char *trm_planner_report(const trm_planner *p, bool json) {
    TRMI_NEED_OR(NULL, NULL, p);
    trmi_figures *r = trmi_alloc(sizeof *r);
    trm_error err;
    if (r == NULL) {
        return NULL;
    }
    bool ok = trmi_figures_gather(r, p, &err) == TRM_OK;
    if (ok) {
        (json ? trmi_figures_print_json : trmi_figures_print)(r);
    }
    trmi_figures_free(r);
    char *text = ok && !r->text.failed ? r->text.data : NULL;
    if (text == NULL) {
        trmi_text_free(&r->text);
    }
    trmi_free(r);
    return text;
}
