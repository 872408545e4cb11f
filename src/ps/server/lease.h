/* SPDX-License-Identifier: Apache-2.0 */
/* ps/server/lease.h: who uses which samples. Pure: time comes in, events go out.
 *
 *   fresh range --grant--> lent to a worker --progress--> used
 *        ^                      |
 *        +------- rest --lost---+         an epoch ends when all of it is used
 *
 * Every change is an event; the book is what its events say, so that a log of them restores it. */
#ifndef TRMI_PS_LEASE_H
#define TRMI_PS_LEASE_H

#include "trireme/ps.h"

typedef enum trmi_lease_kind {
    /* the book, or how a job that is continued asks it: id = the book's number, begin = samples,
     * end = lease_samples, position = epochs */
    TRMI_LEASE_OPEN = 1,
    TRMI_LEASE_GRANT,    /* id, worker, epoch, begin, end */
    TRMI_LEASE_PROGRESS, /* id, position */
    TRMI_LEASE_LOST,     /* id: [position, end) is free again */
    TRMI_LEASE_CUT       /* id = the checkpoint: what comes later is not in it */
} trmi_lease_kind;

typedef struct trmi_lease_event {
    uint32_t kind, worker;
    int64_t id, epoch, begin, end, position;
    uint64_t check; /* of the rest, in files */
} trmi_lease_event;

typedef struct trmi_lease_book trmi_lease_book;

/* `record` is called with every event before it takes effect; if it fails, nothing changes.
 *   errors  NOMEM */
trm_status trmi_lease_book_create(trm_status (*record)(void *context, const trmi_lease_event *event,
                                                       trm_error *err),
                                  void *context, trmi_lease_book **out, trm_error *err);
void trmi_lease_book_destroy(trmi_lease_book *book);
/* Repeats an event of a log (not recorded again).   errors  CORRUPT, NOMEM */
trm_status trmi_lease_replay(trmi_lease_book *book, const trmi_lease_event *event, trm_error *err);
/* errors  as trm_ps_lease_take */
trm_status trmi_lease_take(trmi_lease_book *book, const trm_ps_lease_options *options,
                           uint32_t worker, double now, trm_ps_lease *out, trm_error *err);
/* The number of the book, and the samples of its epochs: 0 while it is not open. Books of one job
 * are numbered by the time when they were opened. */
uint32_t trmi_lease_number(const trmi_lease_book *book, int64_t *samples);
/* Whether a push up to `position` may go on, without noting it; keeps the lease alive.
 *   errors  as progress */
trm_status trmi_lease_check(trmi_lease_book *book, int64_t id, uint32_t worker, int64_t position,
                            double now, trm_error *err);
/* TRM_OK, also for a position that was reported before.   errors  CANCELLED (lost), INVALID */
trm_status trmi_lease_progress(trmi_lease_book *book, int64_t id, uint32_t worker, int64_t position,
                               double now, trm_error *err);
/* Takes back all of one worker (its next incarnation is here). */
trm_status trmi_lease_drop_worker(trmi_lease_book *book, uint32_t worker, trm_error *err);
/* Only those with a number above `id`: their worker never heard of them. */
trm_status trmi_lease_drop_after(trmi_lease_book *book, uint32_t worker, int64_t id,
                                 trm_error *err);
trm_status trmi_lease_cut(trmi_lease_book *book, uint32_t cut, trm_error *err);

#endif
