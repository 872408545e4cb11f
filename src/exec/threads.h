/* SPDX-License-Identifier: Apache-2.0 */
/* exec/threads.h: how many threads a program computes with, and how they wait for each other.
 *
 *      asked for (options.threads)  --------------------------------------------> so many
 *      else: OMP_NUM_THREADS, or this process's share of the CPUs --> at most what the step is worth
 *
 * Bits depend on the number of threads. So it follows from the graph, the options and the CPUs alone: nothing is timed.
 */
#ifndef TRMI_EXEC_THREADS_H
#define TRMI_EXEC_THREADS_H

#include "trireme/exec.h"

/* Threads that this process may use where `processes` of the job share its host: OMP_NUM_THREADS if that is set, else
 * the CPUs of its affinity mask and cgroup divided by `processes`, at least 1. */
int trmi_threads_usable(int32_t processes);

/* Threads for a step of `graph`: options->threads if given; else the number, up to trmi_threads_usable, with which the
 * step is predicted to take the least time by fixed rates of work and of meeting (threads.c). */
int trmi_threads_choose(const trm_graph *graph, const trm_exec_options *options);

/* From now on the calling thread's parallel regions have so many threads. Also looks, ten times a second at most,
 * whether the calling thread waits for CPUs: then threads sleep at barriers instead of spinning, for a spinning thread
 * holds the CPU that another one needs to arrive. */
void trmi_threads_use(int threads);

#endif
