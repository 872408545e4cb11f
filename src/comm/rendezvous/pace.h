/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/pace.h: which rank holds the others up, and why.
 *
 *   every step     computing = step - waiting for data - waiting for ranks       (nothing is exchanged)
 *   every 50       the ranks gather what they have added up; once rank 0 has spent a second on it that is a
 *                  window: judged, and begun anew
 *   3 windows      in a row beyond 1.3 times the ranks' (lower) median: a line that names the rank and the cause
 *
 * Means and not medians of steps: a CPU quota takes its time from one step in ten, not from each.
 */
#ifndef TRMI_COMM_PACE_H
#define TRMI_COMM_PACE_H

#include "trireme/comm.h"

enum { TRMI_PACE_STEPS = 50, TRMI_PACE_WINDOWS = 3 };

/* What one rank has added up since the window began; travels. */
typedef struct trmi_pace_card {
    double elapsed, computing, data; /* seconds; data: waiting for batches */
    double delayed;                  /* runnable without a CPU */
    double faults;                   /* pages read back from disk */
    int32_t steps, pid;
    char host[32];
} trmi_pace_card;

typedef struct trmi_pace_watch {
    int32_t slow_windows;
    bool told;
} trmi_pace_watch;

typedef enum trmi_pace_news { TRMI_PACE_NOTHING, TRMI_PACE_SLOW, TRMI_PACE_AGAIN } trmi_pace_news;

/* Judges a window: news[n] is what there is to say of each rank (AGAIN: it keeps up again). Pure
 * but for `watches`. */
void trmi_pace_judge(const trmi_pace_card *cards, int32_t n, trmi_pace_watch *watches,
                     trmi_pace_news *news);
/* The sentence about rank r; returns text. */
const char *trmi_pace_sentence(const trmi_pace_card *cards, int32_t n, int32_t r,
                               trmi_pace_news news, char *text, size_t size);

typedef struct trmi_pace trmi_pace;

/* Collective with the steps; *out is NULL with one rank or no communicator.   error NOMEM */
trm_status trmi_pace_create(trm_comm *comm, trmi_pace **out, trm_error *err);
/* After each step, on every rank: how long it took, and how much of this went into waiting for
 * data. Rank 0
 * logs what there is to say.   error as trm_comm_run */
trm_status trmi_pace_step(trmi_pace *pace, double step_seconds, double data_seconds,
                          trm_error *err);
void trmi_pace_destroy(trmi_pace *pace);

#endif
