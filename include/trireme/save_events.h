/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/save_events.h: how a run went, for people and tools: TensorBoard event files, and metrics
 * as CSV or JSON lines.
 *
 * All of these are appended to a record at a time, each with one write(2): a reader, or a crash,
 * never sees half a record in the middle. When a write fails (full disk), the file is cut back to
 * its last whole record and the next call tries again; training need not stop for it.
 *   thread  one thread at a time per object
 */
#ifndef TRIREME_SAVE_EVENTS_H
#define TRIREME_SAVE_EVENTS_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number with its name: "loss", "accuracy/top1". Borrowed. */
typedef struct trm_named_scalar {
    const char *name;
    double value;
} trm_named_scalar;

/* ---- TensorBoard ----------------------------------------------------------------------- */

typedef struct trm_events trm_events;

typedef struct trm_events_options {
    bool resumed;        /* this run goes on from a checkpoint: */
    int64_t resume_step; /* points of older files after this step disappear from the charts */
} trm_events_options;

/* Makes <dir>/events.out.tfevents.<time>.<host>.<pid>.<n>, always a new file; `dir` is made if
 * missing. TensorBoard takes the directory's name for the run's.
 *   errors  TRM_IO, TRM_NOSPACE
 *   owns    close with trm_events_close */
TRM_API TRM_MUST_USE trm_status trm_events_open(const char *dir, const trm_events_options *options,
                                                trm_events **out, trm_error *err);
TRM_API const char *trm_events_path(const trm_events *events);

/* One point of each curve.   errors of this and the next two  TRM_IO, TRM_NOSPACE, TRM_NOMEM: the file is as before
 */
TRM_API TRM_MUST_USE trm_status trm_events_scalars(trm_events *events, int64_t step,
                                                   const trm_named_scalar *scalars, int64_t count,
                                                   trm_error *err);

/* The distribution of a tensor's values, of any type, over TensorFlow's buckets, which grow by 10
 * %. Infinite values and
 * NaN are left out.
 *   cost    one pass, about 10 ns an element */
TRM_API TRM_MUST_USE trm_status trm_events_histogram(trm_events *events, int64_t step,
                                                     const char *tag, const trm_tensor *values,
                                                     trm_error *err);

/* A node of the graph to show. Names with '/' become groups that can be opened. */
typedef struct trm_graph_event_node {
    const char *name;
    const char *op;            /* "Conv2D" */
    const char *const *inputs; /* names of nodes */
    int64_t input_count;
    const char *device;            /* "rank:0", or NULL */
    const trm_shape *output_shape; /* shown on the edges; NULL: unknown */
} trm_graph_event_node;
TRM_API TRM_MUST_USE trm_status trm_events_graph(trm_events *events,
                                                 const trm_graph_event_node *nodes, int64_t count,
                                                 trm_error *err);

/* To the disk (fsync). Readers see records without it.   errors  TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_events_flush(trm_events *events, trm_error *err);
/* Frees always. NULL is fine.   errors  as flush */
TRM_API TRM_MUST_USE trm_status trm_events_close(trm_events *events, trm_error *err);

/* ---- metrics --------------------------------------------------------------------------- */

typedef struct trm_metrics trm_metrics;

typedef struct trm_metrics_options {
    const char *const *columns; /* CSV: all names that will come; required there */
    int64_t column_count;
    bool resumed;        /* append to an existing file; otherwise it is emptied */
    int64_t resume_step; /* lines after this step are dropped: they will come again */
} trm_metrics_options;

/* Opens `path` for lines. The form follows its ending:
 *   .csv     global_step,event,<columns>; values that a line lacks stay empty
 *   .jsonl   {"time":..., "event":"step", "global_step":7, "loss":2.5}; NaN and infinities: null
 * A half line at the end of an existing file (from a crash) is cut off.
 *   errors  TRM_INVALID for another ending, or a CSV file with other columns; TRM_IO
 *   owns    close with trm_metrics_close */
TRM_API TRM_MUST_USE trm_status trm_metrics_open(const char *path,
                                                 const trm_metrics_options *options,
                                                 trm_metrics **out, trm_error *err);
/* One line. `event` says what it is about: "step" (also NULL), "epoch", "eval". A value that is a float prints
 * with 9 digits: equal bits print equal.
 *   errors  TRM_INVALID for a name without a column */
TRM_API TRM_MUST_USE trm_status trm_metrics_write(trm_metrics *metrics, const char *event,
                                                  int64_t global_step,
                                                  const trm_named_scalar *scalars, int64_t count,
                                                  trm_error *err);
/* Flushes to the disk and frees, always. NULL is fine.   errors  TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_metrics_close(trm_metrics *metrics, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
