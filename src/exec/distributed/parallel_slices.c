/* SPDX-License-Identifier: Apache-2.0 */
/* More threads of ranks than CPUs: they take turns, and in longer ones than others do.
 *
 *      1.4 ms each    0 1 2 3 0 1 2 3 0 1 ...     who is on again finds its caches full of what the others had there: 100 us
 *      20 ms each     0.............. 1 .....
 *
 * Nobody's share of the CPUs changes, and who has slept still comes before whoever runs; only
 * ranks do not interrupt each other. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/os.h"

static const double slice_seconds = 0.02;

static void ask(const trm_exec *exec, double seconds) {
#pragma omp parallel num_threads(exec->env.threads)
    (void)trmi_os_set_slice(seconds); /* else they are as they were */
}

void trmi_parallel_take_slices(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    double own = trmi_os_slice();
    if (trm_comm_local_size(p->comm) * exec->env.threads > p->cores && own > 0 &&
        own < slice_seconds) {
        p->own_slice = own;
        ask(exec, slice_seconds);
    }
}

void trmi_parallel_leave_slices(trm_exec *exec) {
    if (trmi_parallel_of(exec)->own_slice > 0) {
        ask(exec, trmi_parallel_of(exec)->own_slice);
    }
}
