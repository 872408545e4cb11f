/* SPDX-License-Identifier: Apache-2.0 */
/* The begin and the end of the output of `trireme inspect`: lines of text, or one JSON object
 * (contracts in inspect.h). */
#include "save/inspect/inspect.h"

#include "save/path.h"

#include <string.h>

/* Contract in inspect.h. */
void trmi_inspect_begin(trmi_inspect_report *report, const char *kind, const trm_probe *probe,
                        bool json, trm_line_sink sink, void *context) {
    *report = (trmi_inspect_report){.probe = probe, .sink = sink, .context = context};
    trmi_report_begin(&report->report, json);
    report->report.printable = true;
    trmi_report_put(&report->report, trmi_string("kind", kind), trmi_string("path", probe->path));
}

/* Contract in inspect.h. The description ends in the same way after an error, so that JSON stays
 * one whole object, in which a program finds everything. */
trm_status trmi_inspect_end(trmi_inspect_report *report, trm_status status, trm_error *err) {
    enum { LINE_MOST = 1023 }; /* longer lines are cut off */
    trmi_report *r = &report->report;
    trmi_report_put(r, trmi_bool("valid", status == TRM_OK));
    if (status != TRM_OK && err != NULL) {
        trmi_report_put(r, trmi_string("error", err->message));
    }
    char *text = trmi_report_end(r);
    if (text == NULL) {
        return status != TRM_OK
                   ? status
                   : TRMI_NO_MEMORY(err, "to describe %s", trmi_path_tail(report->probe->path));
    }
    for (char *line = text, *end; !r->json && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *(end - line > LINE_MOST ? line + LINE_MOST : end) = '\0';
        report->sink(report->context, line);
    }
    if (r->json) {
        report->sink(report->context, text);
    }
    trm_free(text);
    return status;
}
