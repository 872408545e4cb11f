/* SPDX-License-Identifier: Apache-2.0 */
/* exec/threads.h: the number of threads of a program, and how they wait for each other.
 *
 *      asked for (options.threads)  --------------------------------------------> so many
 *      else: OMP_NUM_THREADS, or this process's share of the CPUs --> at most what the step is worth
 *
 * Results depend on the number of threads (bit for bit), so the number depends on the graph, the
 * options and the CPUs alone: nothing is timed.
 */
#ifndef TRMI_EXEC_THREADS_H
#define TRMI_EXEC_THREADS_H

#include "trireme/exec.h"

/* Returns the threads that this process may use if `processes` of the job share its host:
 * OMP_NUM_THREADS if that is set, else the CPUs of its affinity mask and cgroup divided by
 * `processes`, at least 1. */
int trmi_threads_usable(int32_t processes);

/* Returns the threads for a step of `graph`: options->threads if given; else the number, up to
 * trmi_threads_usable, with the least predicted time by fixed rates of work and of parallel regions
 * (threads.c). parts: ranks that share the work of the graph; 1 = none do. */
int trmi_threads_choose(const trm_graph *graph, const trm_exec_options *options, int32_t parts);

/* Sets the number of threads of the calling thread's parallel regions. Also samples, at most ten
 * times a second, whether the calling thread waits for CPUs. If so, threads sleep at barriers
 * instead of spinning: a spinning thread occupies the CPU that a late thread needs to reach the
 * barrier. */
void trmi_threads_use(int threads);

#endif
