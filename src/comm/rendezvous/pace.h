/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/pace.h: straggler detection: which rank delays the others, and why.
 *
 *   every step      computing = step - waiting for data - waiting for ranks    (nothing is exchanged)
 *   every 50 steps  the ranks gather their sums; once rank 0's window has lasted a second the
 *                   window is judged and a new one begins
 *   3 windows in a row above 1.3 times the (lower) median of the ranks: rank 0 logs a line that
 *                   names the rank and the probable cause
 *
 * It uses means, not medians, over steps: a CPU quota takes its time from one step in ten, not from
 * all. */
#ifndef TRMI_COMM_PACE_H
#define TRMI_COMM_PACE_H

#include "trireme/dist.h"

/* steps between two exchanges; slow windows before a rank is reported */
enum { TRMI_PACE_STEPS = 50, TRMI_PACE_WINDOWS = 3 };

/* The sums of one rank since the window began. It is exchanged between the ranks. */
typedef struct trmi_pace_card {
    double elapsed, computing, data; /* seconds; data: spent waiting for batches */
    double delayed;                  /* seconds in which the thread was runnable without a CPU */
    double faults;                   /* major page faults: pages read back from disk */
    int32_t steps, pid;
    char host[32];
} trmi_pace_card;

/* The history of one rank. */
typedef struct trmi_pace_watch {
    int32_t slow_windows; /* slow windows in a row */
    bool told;            /* the rank has been reported */
} trmi_pace_watch;

/* The report about a rank: none, it has become slow, or it keeps up again. */
typedef enum trmi_pace_news { TRMI_PACE_NOTHING, TRMI_PACE_SLOW, TRMI_PACE_AGAIN } trmi_pace_news;

/* Judges a window: news[n] is what to report of each rank. Apart from `watches` it has no state. */
void trmi_pace_judge(const trmi_pace_card *cards, int32_t n, trmi_pace_watch *watches,
                     trmi_pace_news *news);
/* Writes the sentence about rank r; returns text. */
const char *trmi_pace_sentence(const trmi_pace_card *cards, int32_t n, int32_t r,
                               trmi_pace_news news, char *text, size_t size);

typedef struct trmi_pace trmi_pace;

/* Creates the detection. All ranks of `comm` call it together. *out is NULL for one rank or no
 * communicator. Errors: NOMEM. */
trm_status trmi_pace_create(trm_comm *comm, trmi_pace **out, trm_error *err);
/* Counts a step: its seconds, and those of them in which it waited for data. Every rank calls it
 * after each step; every 50th call is a collective, after which rank 0 logs the reports. Errors as
 * trm_comm_run. */
trm_status trmi_pace_step(trmi_pace *pace, double step_seconds, double data_seconds,
                          trm_error *err);
void trmi_pace_destroy(trmi_pace *pace);

#endif
