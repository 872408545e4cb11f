/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/graph_events.h: a graph as TensorBoard shows it. */
#ifndef TRMI_TRAIN_GRAPH_EVENTS_H
#define TRMI_TRAIN_GRAPH_EVENTS_H

#include "trireme/graph.h"
#include "trireme/io.h"

/* Writes `graph` as an event of TensorBoard's graph tab: one node for each operator, scopes
 * ("layer1.0.conv1") become groups.
 *   errors  NOMEM, those of trm_events_graph */
trm_status trmi_graph_event(const trm_graph *graph, trm_events *events, trm_error *err);

#endif
