/* SPDX-License-Identifier: Apache-2.0 */
/* Straggler detection; the method is in stragglers.h. Every 50th step the ranks exchange how long
 * they computed, waited for data and waited for each other; each rank judges all ranks by the same
 * numbers, so all have the same reports without a leader.
 *
 * A rank that is slow makes all others wait, so their steps take equally long: it is found by its
 * own time (the step without its waiting). The cause is guessed from the system's counters: page
 * faults from disk, time without a CPU (schedstat), time waiting for data. */
#include "comm/rendezvous/stragglers.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/api/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const double slow_ratio = 1.3, window_seconds = 1; /* times the median; shortest window */

/* What one rank knows of all ranks. */
struct trmi_stragglers {
    trm_comm *comm;
    trmi_straggler_sums mine, counters; /* the system's counters when the window began */
    double waited;                      /* trmi_bootstrap_waited at the end of the last step */
    trmi_straggler_sums *sums;          /* [n] */
    trmi_straggler_history *histories;  /* [n] */
    trmi_straggler_report *reports;     /* [n] */
};

/* --- the system's counters --- */

/* Returns the seconds that this thread has been runnable without a CPU. */
static double read_run_delay(void) {
    unsigned long long ran, delayed = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%llu %llu", &ran, &delayed) != 2) {
        delayed = 0;
    }
    fclose(file);
    return 1e-9 * (double)delayed;
}

/* Reads what the system counts for this thread and process. */
static void read_counters(trmi_straggler_sums *own) {
    struct rusage usage;
    own->delayed = read_run_delay();
    own->faults = getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_majflt : 0;
}

/* --- judging --- */

/* Returns the seconds of a step that the rank itself is responsible for. */
static double own_seconds(const trmi_straggler_sums *own) {
    return own->steps > 0 ? (own->computing + own->data) / own->steps : 0;
}

/* Returns the median of own_seconds(), the lower one of the two in the middle, so that with two
 * ranks the slower one can be found. */
static double median_own_seconds(const trmi_straggler_sums *sums, int32_t n) {
    for (int32_t r = 0; r < n; r++) {
        int32_t below = 0, equal = 0;
        double value = own_seconds(&sums[r]);
        for (int32_t i = 0; i < n; i++) {
            below += own_seconds(&sums[i]) < value;
            equal += own_seconds(&sums[i]) == value;
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + equal) {
            return value;
        }
    }
    return 0;
}

/* Contract in stragglers.h. A rank is reported after several slow windows in a row, once, and again
 * when it has recovered: a single slow window is chance. */
void trmi_stragglers_judge(const trmi_straggler_sums *sums, int32_t n,
                           trmi_straggler_history *histories, trmi_straggler_report *reports) {
    double limit = slow_ratio * median_own_seconds(sums, n);
    for (int32_t r = 0; r < n; r++) {
        trmi_straggler_history *history = &histories[r];
        reports[r] = TRMI_STRAGGLER_NOTHING;
        if (own_seconds(&sums[r]) <= limit) {
            reports[r] = history->reported ? TRMI_STRAGGLER_RECOVERED : TRMI_STRAGGLER_NOTHING;
            *history = (trmi_straggler_history){0};
        } else if (++history->slow_windows >= TRMI_STRAGGLER_WINDOWS && !history->reported) {
            history->reported = true;
            reports[r] = TRMI_STRAGGLER_SLOW;
        }
    }
}

/* Guesses why a rank is slow. excess: seconds above the median in each step. */
static void guess_cause(const trmi_straggler_sums *own, double excess, char *text, size_t size) {
    double steps = own->steps;
    if (own->faults > steps) {
        snprintf(text, size, "memory (%.0f pages a step come back from disk)", own->faults / steps);
    } else if (own->data > excess * steps / 2 && own->data > own->delayed) {
        snprintf(text, size, "data (it waits %.3g ms a step for its batches)",
                 1e3 * own->data / steps);
    } else if (own->delayed > excess * steps / 4) {
        snprintf(text, size, "cpu (others use its core: no CPU for %.0f %% of the time)",
                 100 * own->delayed / own->elapsed);
    } else {
        snprintf(text, size,
                 "cpu (it has its core and is slower: a CPU quota, frequency, memory bandwidth, or "
                 "more work)");
    }
}

const char *trmi_straggler_text(const trmi_straggler_sums *sums, int32_t n, int32_t r,
                                trmi_straggler_report report, char *text, size_t size) {
    const trmi_straggler_sums *own = &sums[r];
    double median = median_own_seconds(sums, n);
    char cause[120];
    if (report == TRMI_STRAGGLER_RECOVERED) {
        snprintf(text, size, "rank %d (%.31s pid %d) keeps up with the others again", r, own->host,
                 own->pid);
        return text;
    }
    guess_cause(own, own_seconds(own) - median, cause, sizeof cause);
    snprintf(text, size,
             "rank %d (%.31s pid %d) is slow and the others wait for it: %.3g ms a step, their "
             "median is %.3g, in %d windows of %d steps; cause: %s",
             r, own->host, own->pid, 1e3 * own_seconds(own), 1e3 * median, TRMI_STRAGGLER_WINDOWS,
             own->steps, cause);
    return text;
}

/* --- one rank's part --- */

/* Starts a new window of measurement. */
static void begin_window(trmi_stragglers *stragglers) {
    stragglers->mine.elapsed = stragglers->mine.computing = stragglers->mine.data = 0;
    stragglers->mine.steps = 0;
    read_counters(&stragglers->counters);
}

/* Contract in stragglers.h. One rank has none to compare with, and gets NULL. */
trm_status trmi_stragglers_create(trm_comm *comm, trmi_stragglers **out, trm_error *err) {
    *out = NULL;
    if (comm == NULL || comm->group.size < 2) {
        return TRM_OK;
    }
    size_t n = (size_t)comm->group.size;
    trmi_stragglers *stragglers;
    TRMI_TRY(TRMI_NEW(err, stragglers, 1, "to compare the times of ranks"));
    /* From here on, an error frees everything. */
    stragglers->comm = comm;
    stragglers->sums = trmi_alloc(n * sizeof *stragglers->sums);
    stragglers->histories = trmi_alloc(n * sizeof *stragglers->histories);
    stragglers->reports = trmi_alloc(n * sizeof *stragglers->reports);
    if (stragglers->sums == NULL || stragglers->histories == NULL || stragglers->reports == NULL) {
        trmi_stragglers_destroy(stragglers);
        return TRMI_NO_MEMORY(err, "for the times of %zu ranks", n);
    }
    /* The name of this rank in reports of the other ranks. */
    stragglers->mine.pid = (int32_t)getpid();
    gethostname(stragglers->mine.host, sizeof stragglers->mine.host - 1);
    stragglers->waited = trmi_bootstrap_waited(comm->bootstrap);
    begin_window(stragglers);
    *out = stragglers;
    return TRM_OK;
}

void trmi_stragglers_destroy(trmi_stragglers *stragglers) {
    if (stragglers != NULL) {
        trmi_free(stragglers->sums);
        trmi_free(stragglers->histories);
        trmi_free(stragglers->reports);
        trmi_free(stragglers);
    }
}

/* Logs the reports of all ranks. */
static void log_reports(const trmi_stragglers *stragglers) {
    char text[400];
    for (int32_t r = 0; r < stragglers->comm->group.size; r++) {
        if (stragglers->reports[r] != TRMI_STRAGGLER_NOTHING) {
            trmi_log(stragglers->reports[r] == TRMI_STRAGGLER_SLOW ? TRM_LOG_WARN : TRM_LOG_INFO,
                     "comm", "%s",
                     trmi_straggler_text(stragglers->sums, stragglers->comm->group.size, r,
                                         stragglers->reports[r], text, sizeof text));
        }
    }
}

/* Contract in stragglers.h. Only every 50th step exchanges anything. A rank's own computing time
 * is the step without waiting for data and for other ranks: by that, not by the step's time, a
 * slow rank differs from those that wait for it. */
trm_status trmi_stragglers_step(trmi_stragglers *stragglers, double step_seconds,
                                double data_seconds, trm_error *err) {
    if (stragglers == NULL) {
        return TRM_OK;
    }
    trmi_straggler_sums *mine = &stragglers->mine;
    double waited = trmi_bootstrap_waited(stragglers->comm->bootstrap);
    double computing = step_seconds - data_seconds - (waited - stragglers->waited);
    stragglers->waited = waited;
    /* sums of this window */
    mine->elapsed += step_seconds;
    mine->computing += computing > 0 ? computing : 0;
    mine->data += data_seconds;
    if (++mine->steps % TRMI_STRAGGLER_STEPS != 0) {
        return TRM_OK;
    }
    trmi_straggler_sums now;
    /* The ranks exchange the sums in the 50th step. */
    read_counters(&now);
    mine->delayed = now.delayed - stragglers->counters.delayed;
    mine->faults = now.faults - stragglers->counters.faults;
    trm_collective gather = {.kind = TRM_ALLGATHER,
                             .send = mine,
                             .recv = stragglers->sums,
                             .count = sizeof *mine,
                             .dtype = TRM_UINT8,
                             .tag = "stragglers"};
    TRMI_TRY(trm_comm_run(stragglers->comm, &gather, err));
    stragglers->waited = trmi_bootstrap_waited(stragglers->comm->bootstrap);
    /* rank 0's time decides, so that all ranks begin the next window together */
    if (stragglers->sums[0].elapsed >= window_seconds) {
        trmi_stragglers_judge(stragglers->sums, stragglers->comm->group.size, stragglers->histories,
                              stragglers->reports);
        if (stragglers->comm->group.rank == 0) {
            log_reports(stragglers);
        }
        begin_window(stragglers);
    }
    return TRM_OK;
}
