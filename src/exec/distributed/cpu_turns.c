/* SPDX-License-Identifier: Apache-2.0 */
/* Longer turns on a CPU, where the ranks of a host have more threads than it has CPUs.
 *
 *      1.4 ms each    0 1 2 3 0 1 2 3 0 1 ...     a thread that gets its CPU back finds the other threads' data in the caches: 100 us
 *      20 ms each     0.............. 1 .....
 *
 * The scheduler's turns of all threads of the ranks become longer. No thread's share of the CPUs
 * changes, and a thread that wakes up still runs before one that has used its turn; the ranks only
 * interrupt each other less often. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/os.h"

static const double turn_seconds = 0.02;

/* Sets the turns of all threads of this rank. A kernel that cannot do it leaves them as they
 * are. */
static void set_turns(const trm_exec *exec, double seconds) {
#pragma omp parallel num_threads(exec->env.threads)
    (void)trmi_os_set_slice(seconds); /* else they are as they were */
}

void trmi_parallel_take_turns(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    double own = trmi_os_slice();
    if (trm_comm_local_size(p->comm) * exec->env.threads > p->cores && own > 0 &&
        own < turn_seconds) {
        p->own_turn = own;
        set_turns(exec, turn_seconds);
    }
}

void trmi_parallel_leave_turns(trm_exec *exec) {
    if (trmi_parallel_of(exec)->own_turn > 0) {
        set_turns(exec, trmi_parallel_of(exec)->own_turn);
    }
}
