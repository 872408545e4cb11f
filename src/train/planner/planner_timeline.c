/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated step of a plan, event by event: as a file for Perfetto, and as the member
 * "timeline" of reports in JSON, which pages draw.
 *
 *      trmi_space_timeline --> events of one of the equal ranks --> Chrome trace (base/trace.h)
 *                                                               --> "timeline":[...] */
#include "train/planner/planner.h"

#include "base/error.h"
#include "base/os.h"
#include "base/trace.h"

#include <stdio.h>

enum { EVENTS_MOST = 20000 }; /* of a report */

/* Writes the name of an event (operator, kind of work or message) and returns it. */
static const char *event_name(const trmi_space *s, const trmi_simulated_event *e, char *name,
                              size_t size) {
    const char *op = e->node >= 0 ? trmi_space_op(s, e->node)->name : "";
    if (e->kind == TRMI_EVENT_OP) {
        snprintf(name, size, "%s", op);
    } else if (e->kind == TRMI_EVENT_MOVE || e->kind == TRMI_EVENT_AHEAD) {
        snprintf(name, size, "%s: %s of %s", op, trmi_move_name(e->move), e->what);
    } else if (e->kind == TRMI_EVENT_BUCKET) {
        snprintf(name, size, "%s of %d gradients", trmi_move_name(e->move), (int)e->count);
    } else {
        snprintf(name, size, "%s", e->what);
    }
    return name;
}

/* Returns the kind of an event in reports. */
static const char *event_category(const trmi_simulated_event *e) {
    return e->kind == TRMI_EVENT_OP       ? "operator"
           : e->kind == TRMI_EVENT_UPDATE ? "optimiser"
                                          : "message";
}

/* Returns whether an event is on the track of messages that operators hide. */
static bool is_hidden(const trmi_simulated_event *e) {
    return e->kind == TRMI_EVENT_BUCKET || e->kind == TRMI_EVENT_AHEAD;
}

/* Simulates the best plan.
 *   owns  *out: trmi_timeline_free */
static trm_status simulate_step(const trm_planner *p, trmi_timeline *out, trm_error *err) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    trmi_router *router;
    trmi_measure measure;
    *out = (trmi_timeline){0};
    TRMI_TRY(trmi_router_create(&m->mesh, &m->space->prices, &router, err));
    trm_status status =
        trmi_space_timeline(m->space, &m->found.best.choice, router, out, &measure, err);
    trmi_router_destroy(router);
    return status;
}

/* Contract in planner.h. Track 0 has the operators, track 1 what travels beside them;
 * tests/perfetto_test.sh reads the file. */
trm_status trmi_planner_write_trace(const trm_planner *p, const char *path, trm_error *err) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    trmi_timeline timeline;
    trmi_text list = {0}, file = {0};
    char rank[64];
    trm_status status = simulate_step(p, &timeline, err);
    snprintf(rank, sizeof rank, "one of %d equal ranks", (int)p->ranks);
    trmi_trace_put_process(&list, 0, rank);
    trmi_trace_put_track(&list, 0, 0, "operators");
    trmi_trace_put_track(&list, 0, 1, "gradients");
    for (int64_t i = 0; status == TRM_OK && i < timeline.count; i++) {
        const trmi_simulated_event *e = &timeline.events[i];
        char name[256];
        const trmi_trace_event event = {.category = event_category(e),
                                        .name = event_name(m->space, e, name, sizeof name),
                                        .phase = e->phase == TRMI_FORWARD ? "forward" : "backward",
                                        .begin = e->begin,
                                        .end = e->begin + e->seconds,
                                        .bytes = e->bytes,
                                        .track = is_hidden(e)};
        trmi_trace_put_event(&list, 0, &event);
    }
    trmi_trace_put_file(&file, &list);
    if (status == TRM_OK && file.failed) {
        status = TRMI_NO_MEMORY(err, "for the trace");
    }
    status =
        status == TRM_OK ? trmi_os_replace_file(NULL, path, file.data, file.length, err) : status;
    trmi_text_free(&list);
    trmi_text_free(&file);
    trmi_timeline_free(&timeline);
    return status;
}

/* Contract in planner.h. Without memory for the timeline the report has none, and a plan with
 * stages has its actions instead. */
void trmi_planner_put_timeline(const trm_planner *p, trmi_report *t) {
    const trmi_space *s = trmi_planner_best(p)->space;
    trmi_timeline timeline;
    trm_error ignored;
    if (p->pipe.chosen) {
        return;
    }
    if (simulate_step(p, &timeline, &ignored) != TRM_OK) {
        trmi_timeline_free(&timeline);
        return;
    }
    int64_t count = timeline.count < EVENTS_MOST ? timeline.count : EVENTS_MOST;
    trmi_report_put(t, trmi_int("timeline_events", timeline.count));
    trmi_report_open_array(t, "timeline");
    for (int64_t i = 0; i < count; i++) {
        const trmi_simulated_event *e = &timeline.events[i];
        char name[256];
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_string("name", event_name(s, e, name, sizeof name)),
                        trmi_string("kind", event_category(e)),
                        trmi_string("phase", e->phase == TRMI_FORWARD ? "forward" : "backward"),
                        trmi_bool("hidden", is_hidden(e)), trmi_nine("begin", e->begin),
                        trmi_nine("end", e->begin + e->seconds), trmi_whole("bytes", e->bytes));
        trmi_report_close(t);
    }
    trmi_report_close(t);
    trmi_timeline_free(&timeline);
}
