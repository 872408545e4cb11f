/* SPDX-License-Identifier: Apache-2.0 */
/* app/output/page.h: self-contained HTML pages that draw a report.
 *
 *      report as JSON + page/base.css, page/base.js, page/KIND.js --> one HTML file
 *
 * CMake embeds the files of src/app/output/page in the program (cmake/embed.cmake). base.js draws
 * curves, timelines, bars and tables; KIND.js says which of them a report has. A page loads
 * nothing: its policy forbids every request. */
#ifndef TRIREME_APP_PAGE_H
#define TRIREME_APP_PAGE_H

#include "trireme/base.h"

/* The kinds of pages. */
typedef enum app_page_kind {
    APP_PAGE_RUN,    /* report of runs (run.h) */
    APP_PAGE_PLAN,   /* reports of plan and simulate */
    APP_PAGE_CLUSTER /* report of plan --hardware */
} app_page_kind;

/* Writes the page of a report.
 *   param  json: one object
 *   errors  IO, NOSPACE, NOMEM */
TRM_MUST_USE trm_status app_write_page(const char *path, app_page_kind kind, const char *title,
                                       const char *json, trm_error *err);

#endif
