/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/graph_events.h: a graph as TensorBoard shows it. */
#ifndef TRMI_TRAIN_GRAPH_EVENTS_H
#define TRMI_TRAIN_GRAPH_EVENTS_H

#include "trireme/graph.h"
#include "trireme/save_events.h"

/* One node an operator; scopes ("layer1.0.conv1") become groups. */
trm_status trmi_graph_event(const trm_graph *graph, trm_events *events, trm_error *err);

#endif
