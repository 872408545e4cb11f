/* SPDX-License-Identifier: Apache-2.0 */
/* Straggler detection; the method is in the header. The cause is guessed from the system's
 * counters: page faults from disk, time without a CPU (schedstat), time waiting for data. */
#include "comm/rendezvous/pace.h"

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

struct trmi_pace {
    trm_comm *comm;
    trmi_pace_card mine, counters; /* the system's counters when the window began */
    double waited;                 /* trmi_bootstrap_waited at the end of the last step */
    trmi_pace_card *cards;         /* [n] */
    trmi_pace_watch *watches;      /* [n] */
    trmi_pace_news *news;          /* [n] */
};

/* --- the system's counters --- */
/* Returns the seconds that this thread has been runnable without a CPU. */
static double run_delay(void) {
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
static void read_counters(trmi_pace_card *card) {
    struct rusage usage;
    card->delayed = run_delay();
    card->faults = getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_majflt : 0;
}

/* --- judging --- */
/* Seconds of a step that the rank itself is responsible for. */
static double own_seconds(const trmi_pace_card *card) {
    return card->steps > 0 ? (card->computing + card->data) / card->steps : 0;
}

/* Returns the median of own_seconds(), the lower one of the two in the middle, so that with two ranks the
 * slower one can be found. */
static double median_busy(const trmi_pace_card *cards, int32_t n) {
    for (int32_t r = 0; r < n; r++) {
        int32_t below = 0, equal = 0;
        double value = own_seconds(&cards[r]);
        for (int32_t i = 0; i < n; i++) {
            below += own_seconds(&cards[i]) < value;
            equal += own_seconds(&cards[i]) == value;
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + equal) {
            return value;
        }
    }
    return 0;
}

void trmi_pace_judge(const trmi_pace_card *cards, int32_t n, trmi_pace_watch *watches,
                     trmi_pace_news *news) {
    double limit = slow_ratio * median_busy(cards, n);
    for (int32_t r = 0; r < n; r++) {
        trmi_pace_watch *watch = &watches[r];
        news[r] = TRMI_PACE_NOTHING;
        if (own_seconds(&cards[r]) <= limit) {
            news[r] = watch->told ? TRMI_PACE_AGAIN : TRMI_PACE_NOTHING;
            *watch = (trmi_pace_watch){0};
        } else if (++watch->slow_windows >= TRMI_PACE_WINDOWS && !watch->told) {
            watch->told = true;
            news[r] = TRMI_PACE_SLOW;
        }
    }
}

/* Guesses why a rank is slow. excess: seconds above the median in each step. */
static void cause_of(const trmi_pace_card *card, double excess, char *text, size_t size) {
    double steps = card->steps;
    if (card->faults > steps) {
        snprintf(text, size, "memory (%.0f pages a step come back from disk)",
                 card->faults / steps);
    } else if (card->data > excess * steps / 2 && card->data > card->delayed) {
        snprintf(text, size, "data (it waits %.3g ms a step for its batches)",
                 1e3 * card->data / steps);
    } else if (card->delayed > excess * steps / 4) {
        snprintf(text, size, "cpu (others use its core: no CPU for %.0f %% of the time)",
                 100 * card->delayed / card->elapsed);
    } else {
        snprintf(text, size,
                 "cpu (it has its core and is slower: a CPU quota, frequency, memory bandwidth, or "
                 "more work)");
    }
}

const char *trmi_pace_sentence(const trmi_pace_card *cards, int32_t n, int32_t r,
                               trmi_pace_news news, char *text, size_t size) {
    const trmi_pace_card *card = &cards[r];
    double median = median_busy(cards, n);
    char cause[120];
    if (news == TRMI_PACE_AGAIN) {
        snprintf(text, size, "rank %d (%.31s pid %d) keeps up with the others again", r, card->host,
                 card->pid);
        return text;
    }
    cause_of(card, own_seconds(card) - median, cause, sizeof cause);
    snprintf(text, size,
             "rank %d (%.31s pid %d) is slow and the others wait for it: %.3g ms a step, their "
             "median is %.3g, in %d windows of %d steps; cause: %s",
             r, card->host, card->pid, 1e3 * own_seconds(card), 1e3 * median, TRMI_PACE_WINDOWS,
             card->steps, cause);
    return text;
}

/* --- one rank's part --- */
/* Starts a new window of measurement. */
static void begin_window(trmi_pace *pace) {
    pace->mine.elapsed = pace->mine.computing = pace->mine.data = 0;
    pace->mine.steps = 0;
    read_counters(&pace->counters);
}

trm_status trmi_pace_create(trm_comm *comm, trmi_pace **out, trm_error *err) {
    *out = NULL;
    if (comm == NULL || comm->group.size < 2) {
        return TRM_OK;
    }
    size_t n = (size_t)comm->group.size;
    trmi_pace *pace = trmi_alloc(sizeof *pace);
    if (pace == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory");
    }
    /* From here on, an error frees everything. */
    pace->comm = comm;
    pace->cards = trmi_alloc(n * sizeof *pace->cards);
    pace->watches = trmi_alloc(n * sizeof *pace->watches);
    pace->news = trmi_alloc(n * sizeof *pace->news);
    if (pace->cards == NULL || pace->watches == NULL || pace->news == NULL) {
        trmi_pace_destroy(pace);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %zu ranks", n);
    }
    /* The name of this rank in reports of the other ranks. */
    pace->mine.pid = (int32_t)getpid();
    gethostname(pace->mine.host, sizeof pace->mine.host - 1);
    pace->waited = trmi_bootstrap_waited(comm->bootstrap);
    begin_window(pace);
    *out = pace;
    return TRM_OK;
}

void trmi_pace_destroy(trmi_pace *pace) {
    if (pace != NULL) {
        trmi_free(pace->cards);
        trmi_free(pace->watches);
        trmi_free(pace->news);
        trmi_free(pace);
    }
}

/* Logs the news of all ranks. */
static void log_findings(const trmi_pace *pace) {
    char text[400];
    for (int32_t r = 0; r < pace->comm->group.size; r++) {
        if (pace->news[r] != TRMI_PACE_NOTHING) {
            trmi_log(pace->news[r] == TRMI_PACE_SLOW ? TRM_LOG_WARN : TRM_LOG_INFO, "comm", "%s",
                     trmi_pace_sentence(pace->cards, pace->comm->group.size, r, pace->news[r], text,
                                        sizeof text));
        }
    }
}

trm_status trmi_pace_step(trmi_pace *pace, double step_seconds, double data_seconds,
                          trm_error *err) {
    if (pace == NULL) {
        return TRM_OK;
    }
    trmi_pace_card *mine = &pace->mine;
    double waited = trmi_bootstrap_waited(pace->comm->bootstrap);
    double computing = step_seconds - data_seconds - (waited - pace->waited);
    pace->waited = waited;
    mine->elapsed += step_seconds;
    mine->computing += computing > 0 ? computing : 0;
    mine->data += data_seconds;
    if (++mine->steps % TRMI_PACE_STEPS != 0) {
        return TRM_OK;
    }
    trmi_pace_card now;
    /* The 50th step: exchange the sums. */
    read_counters(&now);
    mine->delayed = now.delayed - pace->counters.delayed;
    mine->faults = now.faults - pace->counters.faults;
    trm_collective gather = {.kind = TRM_ALLGATHER,
                             .send = mine,
                             .recv = pace->cards,
                             .count = sizeof *mine,
                             .dtype = TRM_UINT8,
                             .tag = "pace"};
    TRMI_TRY(trm_comm_run(pace->comm, &gather, err));
    pace->waited = trmi_bootstrap_waited(pace->comm->bootstrap);
    if (pace->cards[0].elapsed >= window_seconds) {
        trmi_pace_judge(pace->cards, pace->comm->group.size, pace->watches, pace->news);
        if (pace->comm->group.rank == 0) {
            log_findings(pace);
        }
        begin_window(pace);
    }
    return TRM_OK;
}
