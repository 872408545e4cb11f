/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/stragglers.h: straggler detection: which rank delays the others, and why.
 *
 *   every step      computing = step - waiting for data - waiting for ranks    (nothing is exchanged)
 *   every 50 steps  the ranks gather their sums; once rank 0's window has lasted a second the
 *                   window is judged and a new one begins
 *   3 windows in a row above 1.3 times the (lower) median of the ranks: rank 0 logs a line that
 *                   names the rank and the probable cause
 *
 * It uses means, not medians, over steps: a CPU quota takes its time from one step in ten, not from
 * all. */
#ifndef TRMI_COMM_STRAGGLERS_H
#define TRMI_COMM_STRAGGLERS_H

#include "trireme/dist.h"

/* steps between two exchanges; slow windows before a rank is reported */
enum { TRMI_STRAGGLER_STEPS = 50, TRMI_STRAGGLER_WINDOWS = 3 };

/* The sums of one rank since the window began. They are exchanged between the ranks. */
typedef struct trmi_straggler_sums {
    double elapsed, computing, data; /* seconds; data: spent waiting for batches */
    double delayed;                  /* seconds in which the thread was runnable without a CPU */
    double faults;                   /* major page faults: pages read back from disk */
    int32_t steps, pid;
    char host[32];
} trmi_straggler_sums;

/* The history of one rank. */
typedef struct trmi_straggler_history {
    int32_t slow_windows; /* slow windows in a row */
    bool reported;        /* the rank has been reported */
} trmi_straggler_history;

/* The report about a rank: none, it has become slow, or it keeps up again. */
typedef enum trmi_straggler_report {
    TRMI_STRAGGLER_NOTHING,
    TRMI_STRAGGLER_SLOW,
    TRMI_STRAGGLER_RECOVERED
} trmi_straggler_report;

/* Judges a window and writes the report about each rank to reports[n]. Apart from `histories` it
 * has no state. */
void trmi_stragglers_judge(const trmi_straggler_sums *sums, int32_t n,
                           trmi_straggler_history *histories, trmi_straggler_report *reports);
/* Writes the sentence about rank r; returns text. */
const char *trmi_straggler_text(const trmi_straggler_sums *sums, int32_t n, int32_t r,
                                trmi_straggler_report report, char *text, size_t size);

typedef struct trmi_stragglers trmi_stragglers;

/* Creates the detection. All ranks of `comm` call it together. *out is NULL for one rank or no
 * communicator.
 *   errors  NOMEM */
trm_status trmi_stragglers_create(trm_comm *comm, trmi_stragglers **out, trm_error *err);
/* Counts a step: its seconds, and those of them in which it waited for data. Every rank calls it
 * after each step; every 50th call is a collective, after which rank 0 logs the reports. Errors as
 * trm_comm_run. */
trm_status trmi_stragglers_step(trmi_stragglers *stragglers, double step_seconds,
                                double data_seconds, trm_error *err);
void trmi_stragglers_destroy(trmi_stragglers *stragglers);

#endif
