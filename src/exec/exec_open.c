/* SPDX-License-Identifier: Apache-2.0 */
/* An executor for any program: one whose plan is to be searched, too. Apart from exec_create.c
 * because the search measures operators with executors of its own. */
#include "exec/exec.h"
#include "exec/distributed/split.h"

#include "base/arguments.h"

trm_status trm_exec_create(const trm_graph *graph, const trm_exec_options *options, trm_exec **out,
                           trm_error *err) {
    TRMI_NEED(err, graph, options, out);
    return trmi_exec_create(graph, options, trmi_shard_search, out, err);
}
