/* SPDX-License-Identifier: Apache-2.0 */
/* ps/server/lease.h: the book of leases: which worker uses which samples. No clock and no files:
 * time is an argument, and changes go out as events.
 *
 *     fresh range --grant--> lent to a worker --progress--> used
 *          ^                      |
 *          +---- returned --lost--+         an epoch ends when all of it is used
 *
 * Every change is an event that is recorded before it takes effect, so that a log of the events
 * restores the book. A book is used under one mutex (the server's front). */
#ifndef TRMI_PS_LEASE_H
#define TRMI_PS_LEASE_H

#include "trireme/ps.h"

/* Kinds of events. */
typedef enum trmi_lease_kind {
    /* the book is opened, or continued with other numbers: id = number of the book, begin =
     * samples, end = lease_samples, position = epochs */
    TRMI_LEASE_OPEN = 1,
    TRMI_LEASE_GRANT,    /* id, worker, epoch, begin, end */
    TRMI_LEASE_PROGRESS, /* id, position */
    TRMI_LEASE_LOST,     /* id: [position, end) is free again */
    TRMI_LEASE_SNAPSHOT  /* id = number of the snapshot: later events are not in it */
} trmi_lease_kind;

/* A change of the book, as it is logged. */
typedef struct trmi_lease_event {
    uint32_t kind, worker;
    int64_t id, epoch, begin, end, position;
    uint64_t check; /* in files: digest of the members before it */
} trmi_lease_event;

typedef struct trmi_lease_book trmi_lease_book;

/* Creates an empty book. `record` is called with every event before it takes effect; if it
 * fails, nothing changes.
 *   errors  NOMEM */
trm_status trmi_lease_book_create(trm_status (*record)(void *context, const trmi_lease_event *event,
                                                       trm_error *err),
                                  void *context, trmi_lease_book **out, trm_error *err);
void trmi_lease_book_destroy(trmi_lease_book *book);
/* Repeats an event that was read from a log; it is not recorded again.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_lease_replay(trmi_lease_book *book, const trmi_lease_event *event, trm_error *err);
/* Grants a range of samples to `worker`; expired leases are taken back first. *out: the lease.
 *   errors  as trm_ps_lease_take */
trm_status trmi_lease_take(trmi_lease_book *book, const trm_ps_lease_options *options,
                           uint32_t worker, double now, trm_ps_lease *out, trm_error *err);
/* Returns the number of the book and the samples of an epoch; 0 while it is not open. A book is
 * numbered by the time at which it was opened. */
uint32_t trmi_lease_number(const trmi_lease_book *book, int64_t *samples);
/* Checks whether a push up to sample `position` may go on, and extends the lease; the position
 * is not noted.
 *   errors  as trmi_lease_progress */
trm_status trmi_lease_check(trmi_lease_book *book, int64_t id, uint32_t worker, int64_t position,
                            double now, trm_error *err);
/* Returns whether a push that is applied, of samples from `begin` on, follows one that has failed.
 * The lease is then lost, so that the samples from the gap on are lent again. */
bool trmi_lease_give_up_gap(trmi_lease_book *book, int64_t id, int64_t begin);
/* Marks the samples up to `position` as used; a position that was reported before is OK.
 *   errors  CANCELLED: the lease was lost or used up; INVALID: a position outside it */
trm_status trmi_lease_progress(trmi_lease_book *book, int64_t id, uint32_t worker, int64_t position,
                               double now, trm_error *err);
/* Takes back all leases of a worker, whose next life has begun. */
trm_status trmi_lease_drop_worker(trmi_lease_book *book, uint32_t worker, trm_error *err);
/* Takes back the worker's leases with a number above `id`: it never received them. */
trm_status trmi_lease_drop_after(trmi_lease_book *book, uint32_t worker, int64_t id,
                                 trm_error *err);
/* Records that a snapshot is taken here. */
trm_status trmi_lease_mark_snapshot(trmi_lease_book *book, uint32_t snapshot, trm_error *err);

#endif
