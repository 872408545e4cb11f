/* SPDX-License-Identifier: Apache-2.0 */
/* The book of leases (drawing and contracts in lease.h). Every change goes through
 * record_and_apply(): it records the event, then applies it; a restart replays the events with
 * apply_event() alone. A range that a worker lost goes to the list `returned` and is granted before
 * fresh samples. The next epoch begins when no sample of this one is free or granted. */
#include "ps/server/lease.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdlib.h>

/* A granted lease. */
typedef struct granted_lease {
    int64_t id, epoch;
    int64_t begin, end,
        position; /* samples [begin, end) of the epoch; those before position are used */
    uint32_t worker;
    double deadline; /* time at which the samples are free again; 0: not known yet */
} granted_lease;

/* Samples that were lost by a worker and are free again. */
typedef struct returned_range {
    int64_t begin, end;
} returned_range;

/* Used-up leases that are remembered: a push may be repeated after its answer was lost. */
enum { DONE = 1024 };

/* The book. Ranges are of sample numbers of one epoch. */
struct trmi_lease_book {
    trm_status (*record)(void *context, const trmi_lease_event *event, trm_error *err);
    void *context;
    trm_ps_lease_options options; /* samples 0: not open yet */
    bool asked;                   /* options have been given since the book was created */
    int64_t number;               /* of the book */
    int64_t epoch, next, last_id;
    granted_lease *granted;
    int64_t granted_count, granted_capacity;
    returned_range *returned; /* of the current epoch */
    int64_t returned_count, returned_capacity;
    granted_lease done[DONE];
    int64_t done_count;
};

trm_status trmi_lease_book_create(trm_status (*record)(void *context, const trmi_lease_event *event,
                                                       trm_error *err),
                                  void *context, trmi_lease_book **out, trm_error *err) {
    trmi_lease_book *book;
    TRMI_TRY(TRMI_NEW(err, book, 1, "for a book of leases"));
    book->record = record;
    book->context = context;
    *out = book;
    return TRM_OK;
}

void trmi_lease_book_destroy(trmi_lease_book *book) {
    if (book != NULL) {
        free(book->granted);
        free(book->returned);
        trmi_free(book);
    }
}

/* Returns the granted lease `id`; NULL: there is none. */
static granted_lease *find_lease(trmi_lease_book *book, int64_t id) {
    for (int64_t i = 0; i < book->granted_count; i++) {
        if (book->granted[i].id == id) {
            return &book->granted[i];
        }
    }
    return NULL;
}

/* Removes a lease from the granted ones. */
static void drop_lease(trmi_lease_book *book, granted_lease *l) {
    *l = book->granted[--book->granted_count];
}

/* Begins the next epoch if no sample of this one is free or granted. */
static void maybe_next_epoch(trmi_lease_book *book) {
    if (book->next >= book->options.samples && book->granted_count == 0 &&
        book->returned_count == 0) {
        book->epoch++;
        book->next = 0;
    }
}

/* Applies a GRANT event: the range must be fresh, or the beginning of a
 * returned range.
 *   errors  CORRUPT */
static trm_status apply_grant(trmi_lease_book *book, const trmi_lease_event *e, trm_error *err) {
    if (e->epoch != book->epoch || e->begin < 0 || e->begin >= e->end ||
        e->end > book->options.samples || e->id <= book->last_id) {
        return TRMI_FAIL(err, TRM_CORRUPT, "lease %lld of samples %lld to %lld in epoch %lld",
                         (long long)e->id, (long long)e->begin, (long long)e->end,
                         (long long)e->epoch);
    }
    /* fresh samples, or the beginning of a returned range */
    if (e->begin == book->next) {
        book->next = e->end;
    } else {
        int64_t at = 0;
        while (at < book->returned_count &&
               (book->returned[at].begin != e->begin || book->returned[at].end < e->end)) {
            at++;
        }
        if (at == book->returned_count) {
            return TRMI_FAIL(err, TRM_CORRUPT, "lease %lld of samples %lld to %lld, not free",
                             (long long)e->id, (long long)e->begin, (long long)e->end);
        }
        book->returned[at].begin = e->end;
        if (book->returned[at].begin == book->returned[at].end) {
            book->returned[at] = book->returned[--book->returned_count];
        }
    }
    book->last_id = e->id;
    book->granted[book->granted_count++] = (granted_lease){.id = e->id,
                                                           .epoch = e->epoch,
                                                           .begin = e->begin,
                                                           .end = e->end,
                                                           .position = e->begin,
                                                           .worker = e->worker};
    return TRM_OK;
}

/* Makes room for one more lease and one more returned range: a recorded event must be applied. */
static trm_status reserve_room(trmi_lease_book *book, trm_error *err) {
    return trmi_grow((void **)&book->granted, &book->granted_capacity, book->granted_count + 1,
                     sizeof *book->granted) &&
                   trmi_grow((void **)&book->returned, &book->returned_capacity,
                             book->returned_count + 1, sizeof *book->returned)
               ? TRM_OK
               : TRMI_NO_MEMORY(err, "for a lease");
}

/* Applies an event to the book, which has room for it.
 *   errors  CORRUPT: it does not fit */
static trm_status apply_event(trmi_lease_book *book, const trmi_lease_event *e, trm_error *err) {
    granted_lease *l;
    switch ((trmi_lease_kind)e->kind) {
    case TRMI_LEASE_OPEN:
        book->number = e->id;
        book->options.samples = e->begin;
        book->options.lease_samples = e->end;
        book->options.epochs = e->position;
        return e->begin > 0 && e->end > 0 && e->position >= 0
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_CORRUPT, "a book of %lld samples", (long long)e->begin);
    case TRMI_LEASE_GRANT: return apply_grant(book, e, err);
    case TRMI_LEASE_PROGRESS:
        l = find_lease(book, e->id);
        if (l == NULL || e->position < l->position || e->position > l->end) {
            break;
        }
        /* a used-up lease is remembered for repeated pushes */
        l->position = e->position;
        if (l->position == l->end) {
            book->done[book->done_count++ % DONE] = *l;
            drop_lease(book, l);
            maybe_next_epoch(book);
        }
        return TRM_OK;
    case TRMI_LEASE_LOST:
        l = find_lease(book, e->id);
        if (l == NULL) {
            break;
        }
        book->returned[book->returned_count++] = (returned_range){l->position, l->end};
        drop_lease(book, l);
        return TRM_OK;
    case TRMI_LEASE_SNAPSHOT: return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_CORRUPT, "event %u of lease %lld at %lld does not fit", e->kind,
                     (long long)e->id, (long long)e->position);
}

trm_status trmi_lease_replay(trmi_lease_book *book, const trmi_lease_event *event, trm_error *err) {
    TRMI_TRY(reserve_room(book, err));
    return apply_event(book, event, err);
}

/* Records an event, then applies it. PROGRESS needs no room: it does not fail without memory,
 * because the step that uses the samples is decided already. */
static trm_status record_and_apply(trmi_lease_book *book, const trmi_lease_event *event,
                                   trm_error *err) {
    TRMI_TRY(event->kind == TRMI_LEASE_PROGRESS ? TRM_OK : reserve_room(book, err));
    TRMI_TRY(book->record(book->context, event, err));
    return apply_event(book, event, err);
}

/* Opens the book, or checks that a worker's numbers equal those of the book. A book read from
 * its log takes epochs and lease size of the first worker that sends them: a job may be
 * continued for more epochs. The samples must be the same. */
static trm_status open_book(trmi_lease_book *book, const trm_ps_lease_options *o, trm_error *err) {
    const trm_ps_lease_options *have = &book->options;
    if (o->samples < 1 || o->lease_samples < 1 || o->epochs < 0 || o->samples_max < 0 ||
        o->batch < 0 || !(o->timeout_seconds >= 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "leases of %lld of %lld samples, %lld epochs: numbers above 0 expected",
                         (long long)o->lease_samples, (long long)o->samples, (long long)o->epochs);
    }
    /* A new book, or one from a log whose job continues with other numbers: open it with these. */
    const bool other = have->lease_samples != o->lease_samples || have->epochs != o->epochs;
    if (have->samples == 0 || (!book->asked && have->samples == o->samples && other)) {
        trmi_lease_event e = {.kind = TRMI_LEASE_OPEN,
                              .id = have->samples == 0 ? (int64_t)trmi_os_wall() : book->number,
                              .begin = o->samples,
                              .end = o->lease_samples,
                              .position = o->epochs};
        TRMI_TRY(record_and_apply(book, &e, err));
    } else if (have->samples != o->samples || other) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "leases of %lld of %lld samples, %lld epochs; other workers asked for %lld of "
            "%lld, %lld",
            (long long)o->lease_samples, (long long)o->samples, (long long)o->epochs,
            (long long)have->lease_samples, (long long)have->samples, (long long)have->epochs);
    }
    book->options.timeout_seconds = o->timeout_seconds == 0 ? 60 : o->timeout_seconds;
    book->asked = true;
    return TRM_OK;
}

/* Returns how many fresh samples the next lease may have. Near a limit (samples_max) leases
 * shrink, so that all workers get some of the last samples. */
static int64_t fresh_samples(const trmi_lease_book *book, const trm_ps_lease_options *o) {
    enum { LAST_LEASES = 16 };
    int64_t left = book->options.samples - book->next, batch = trmi_max_i64(1, o->batch);
    int64_t most = trmi_min_i64(left, book->options.lease_samples);
    if (o->samples_max == 0) {
        return most;
    }
    /* samples until the limit; a lease has at most one of LAST_LEASES parts of them, in whole
     * batches */
    int64_t until = o->samples_max - book->epoch * book->options.samples - book->next;
    int64_t part = trmi_max_i64(batch, until / LAST_LEASES / batch * batch);
    return trmi_max_i64(0, trmi_min_i64(until, trmi_min_i64(most, part)));
}

/* Takes a lease back. */
static trm_status take_back(trmi_lease_book *book, int64_t id, trm_error *err) {
    trmi_lease_event e = {.kind = TRMI_LEASE_LOST, .id = id};
    return record_and_apply(book, &e, err);
}

/* Takes back the leases whose deadline has passed. */
static trm_status expire_leases(trmi_lease_book *book, double now, trm_error *err) {
    for (int64_t i = book->granted_count; i-- > 0;) {
        granted_lease *l = &book->granted[i];
        if (l->deadline == 0) {
            l->deadline =
                now + book->options.timeout_seconds; /* read from a log: its time begins now */
        } else if (now > l->deadline) {
            TRMI_TRY(take_back(book, l->id, err));
        }
    }
    return TRM_OK;
}

/* Contract in lease.h. Order: lost samples, fresh samples; otherwise the worker waits (PENDING)
 * or the job is over (END). */
trm_status trmi_lease_take(trmi_lease_book *book, const trm_ps_lease_options *options,
                           uint32_t worker, double now, trm_ps_lease *out, trm_error *err) {
    TRMI_TRY(open_book(book, options, err));
    TRMI_TRY(expire_leases(book, now, err));
    if (book->options.epochs > 0 && book->epoch >= book->options.epochs) {
        return TRM_END;
    }
    trmi_lease_event e = {
        .kind = TRMI_LEASE_GRANT, .worker = worker, .id = book->last_id + 1, .epoch = book->epoch};
    if (book->returned_count > 0) {
        e.begin = book->returned[0].begin;
        e.end = trmi_min_i64(book->returned[0].end, e.begin + book->options.lease_samples);
    } else if (fresh_samples(book, options) > 0) {
        e.begin = book->next;
        e.end = e.begin + fresh_samples(book, options);
    } else {
        bool last =
            book->next < book->options.samples && book->granted_count == 0; /* samples_max */
        return last ? TRM_END : TRM_PENDING;
    }
    TRMI_TRY(record_and_apply(book, &e, err));
    find_lease(book, e.id)->deadline = now + book->options.timeout_seconds;
    *out = (trm_ps_lease){e.id, e.epoch, e.begin, e.end};
    return TRM_OK;
}

uint32_t trmi_lease_number(const trmi_lease_book *book, int64_t *samples) {
    *samples = book->options.samples;
    return (uint32_t)book->number;
}

/* Contract in lease.h. A used-up lease is still valid for a repeated push. Each check moves the
 * deadline. */
trm_status trmi_lease_check(trmi_lease_book *book, int64_t id, uint32_t worker, int64_t position,
                            double now, trm_error *err) {
    granted_lease *l = find_lease(book, id);
    for (int64_t i = 0; l == NULL && i < DONE; i++) {
        const granted_lease *d = &book->done[i];
        if (d->id == id && d->worker == worker && position >= d->begin && position <= d->end) {
            return TRM_OK;
        }
    }
    if (id < 1 || l == NULL || l->worker != worker) {
        return TRMI_FAIL(err, TRM_CANCELLED,
                         "worker %u: lease %lld is over: it was lost to another worker, or used "
                         "up",
                         worker, (long long)id);
    }
    if (position < l->begin || position > l->end) {
        return TRMI_FAIL(err, TRM_INVALID, "worker %u: position %lld in a lease of %lld to %lld",
                         worker, (long long)position, (long long)l->begin, (long long)l->end);
    }
    /* A book read from a log gets the length of a lease only from the next trmi_lease_take. */
    l->deadline = book->options.timeout_seconds > 0 ? now + book->options.timeout_seconds : 0;
    return TRM_OK;
}

trm_status trmi_lease_progress(trmi_lease_book *book, int64_t id, uint32_t worker, int64_t position,
                               double now, trm_error *err) {
    TRMI_TRY(trmi_lease_check(book, id, worker, position, now, err));
    const granted_lease *l = find_lease(book, id);
    if (l == NULL || position <= l->position) {
        return TRM_OK;
    }
    trmi_lease_event e = {
        .kind = TRMI_LEASE_PROGRESS, .worker = worker, .id = id, .position = position};
    return record_and_apply(book, &e, err);
}

/* Contract in lease.h. */
bool trmi_lease_give_up_gap(trmi_lease_book *book, int64_t id, int64_t begin) {
    const granted_lease *l = find_lease(book, id);
    return l != NULL && begin > l->position && take_back(book, id, NULL) == TRM_OK;
}

trm_status trmi_lease_drop_worker(trmi_lease_book *book, uint32_t worker, trm_error *err) {
    return trmi_lease_drop_after(book, worker, 0, err);
}

trm_status trmi_lease_drop_after(trmi_lease_book *book, uint32_t worker, int64_t id,
                                 trm_error *err) {
    for (int64_t i = book->granted_count; i-- > 0;) {
        if (book->granted[i].worker == worker && book->granted[i].id > id) {
            TRMI_TRY(take_back(book, book->granted[i].id, err));
        }
    }
    return TRM_OK;
}

trm_status trmi_lease_mark_snapshot(trmi_lease_book *book, uint32_t snapshot, trm_error *err) {
    trmi_lease_event e = {.kind = TRMI_LEASE_SNAPSHOT, .id = snapshot};
    return record_and_apply(book, &e, err);
}
