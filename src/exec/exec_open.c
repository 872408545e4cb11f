/* SPDX-License-Identifier: Apache-2.0 */
/* The public trm_exec_create: trmi_exec_create together with the search for a plan. It is not in
 * exec_create.c because the search measures operators with executors of its own, and files must
 * not depend on each other in circles. */
#include "exec/exec.h"
#include "exec/autoparallel/auto_parallel.h"

#include "base/arguments.h"

trm_status trm_exec_create(const trm_graph *graph, const trm_exec_options *options, trm_exec **out,
                           trm_error *err) {
    TRMI_NEED(err, graph, options, out);
    return trmi_exec_create(graph, options, trmi_search_plan, NULL, out, err);
}
