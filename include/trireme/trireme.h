/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/trireme.h: all of the library. */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include "trireme/base.h"
#include "trireme/callbacks.h"
#include "trireme/cluster.h"
#include "trireme/comm.h"
#include "trireme/context.h"
#include "trireme/data.h"
#include "trireme/data_click.h"
#include "trireme/data_text.h"
#include "trireme/distribute.h"
#include "trireme/estimator.h"
#include "trireme/exec.h"
#include "trireme/export.h"
#include "trireme/graph.h"
#include "trireme/launch.h"
#include "trireme/machine.h"
#include "trireme/metrics.h"
#include "trireme/models.h"
#include "trireme/plan.h"
#include "trireme/planner.h"
#include "trireme/ps.h"
#include "trireme/ps_tables.h"
#include "trireme/ps_tools.h"
#include "trireme/save.h"
#include "trireme/save_events.h"
#include "trireme/save_files.h"
#include "trireme/save_onnx.h"
#include "trireme/train.h"
#include "trireme/verify.h"

#endif
