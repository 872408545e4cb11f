/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that sends signs of life; signs_of_life.h has the drawing.
 *
 * The mutex `turn` is held by whichever of caller and thread uses the communicator, so their
 * messages never mix. The thread ends by itself when a send fails or when it has given up;
 * trmi_signs_stop joins it in each case. Nothing is sent less than `between` seconds after the last
 * message of either. */
#include "exec/autoparallel/signs_of_life.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <pthread.h>

/* The thread and what it shares with the caller. `turn` belongs to whichever of the two uses the
 * communicator; the caller takes it in trmi_signs_begin and gives it back in trmi_signs_end. */
struct trmi_signs {
    pthread_t thread;
    pthread_mutex_t turn; /* held by the one that communicates */
    pthread_cond_t stops; /* `stopped` has become true */
    bool stopped;
    double last; /* time of the last message of either */
    trmi_signs_options o;
    _Atomic(const char *) doing; /* names the caller's work, for the error */
    unsigned long long seen;     /* the thread: the last count, */
    double moved;                /* and the time since which it stands still */
};

/* Waits until the next sign is due, without the turn. Returns false if it is to end. */
static bool wait_until_due(trmi_signs *s) {
    for (;;) {
        const double due = s->last + s->o.between;
        if (s->stopped || trmi_os_now() >= due) {
            return !s->stopped;
        }
        (void)trmi_os_wait(&s->stops, &s->turn, due);
    }
}

/* Returns whether the caller has done nothing for too long, and gives up then. */
static bool is_stuck(trmi_signs *s) {
    const double now = trmi_os_now();
    const unsigned long long count = atomic_load(s->o.count);
    trm_error cause;
    if (count != s->seen) {
        s->seen = count;
        s->moved = now;
    }
    if (now - s->moved <= s->o.patience) {
        return false;
    }
    TRMI_FAIL(&cause, TRM_TIMEOUT, "rank 0 has made no progress for %.0f s while %s",
              now - s->moved, atomic_load(&s->doing));
    s->o.give_up(s->o.context, &cause);
    return true;
}

/* Runs the thread: sends a sign whenever one is due, until it is stopped, the caller's count stands
 * still for too long, or a send fails. Errors are ignored: the caller's next call meets them
 * itself. */
static void *send_signs(void *argument) {
    trmi_signs *s = argument;
    trm_error ignored;
    pthread_mutex_lock(&s->turn);
    while (wait_until_due(s) && !is_stuck(s) && s->o.send(s->o.context, &ignored) == TRM_OK) {
        s->last = trmi_os_now();
    }
    pthread_mutex_unlock(&s->turn);
    return NULL;
}

/* Contract in signs_of_life.h. The condition waits by the monotonic clock, because a change of the
 * date must not delay a sign. */
trm_status trmi_signs_start(const trmi_signs_options *options, trmi_signs **out, trm_error *err) {
    trmi_signs *s;
    TRMI_TRY(TRMI_NEW(err, s, 1, "for signs of life"));
    s->o = *options;
    s->last = s->moved = trmi_os_now();
    s->seen = atomic_load(s->o.count);
    atomic_init(&s->doing, "searching a plan");
    pthread_mutex_init(&s->turn, NULL);
    trmi_os_make_condition(&s->stops);
    if (pthread_create(&s->thread, NULL, send_signs, s) != 0) {
        pthread_cond_destroy(&s->stops);
        pthread_mutex_destroy(&s->turn);
        trmi_free(s);
        return TRMI_NO_MEMORY(err, "for the thread of signs of life");
    }
    *out = s;
    return TRM_OK;
}

/* Contract in signs_of_life.h. `what` is kept as a pointer, so it must be a text that stays. */
void trmi_signs_note(trmi_signs *s, const char *what) {
    if (s != NULL) {
        atomic_store(&s->doing, what);
        atomic_fetch_add(s->o.count, 1);
    }
}

void trmi_signs_begin(trmi_signs *s) {
    if (s != NULL) {
        pthread_mutex_lock(&s->turn);
    }
}

/* Contract in signs_of_life.h. What the caller has sent is a sign of life too. */
void trmi_signs_end(trmi_signs *s) {
    if (s != NULL) {
        s->last = trmi_os_now();
        atomic_fetch_add(s->o.count, 1);
        pthread_mutex_unlock(&s->turn);
    }
}

/* Contract in signs_of_life.h. Joins the thread, so that no send is under way when this returns. */
void trmi_signs_stop(trmi_signs *s) {
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->turn);
    s->stopped = true;
    pthread_cond_signal(&s->stops);
    pthread_mutex_unlock(&s->turn);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->stops);
    pthread_mutex_destroy(&s->turn);
    trmi_free(s);
}
