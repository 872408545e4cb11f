/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/elastic.h: an elastic job: how membership.h's decision travels between processes,
 * how the ranks of the next epoch meet, and how a process finds a job that runs.
 *
 *   main thread    trains | recover: decide (elastic_decide.c) -> meet -> communicator (elastic.c)
 *   door thread    hears JOIN for ever: answers members of older epochs with the present list,
 *                  keeps the others as guests for the ballot that this process may coordinate;
 *                  tells rank 0 that this process wants to leave
 *   gate thread    one process of the job listens where the job met first, and tells processes that
 *                  come later where the doors are (elastic_gate.c)
 *
 * Each process has a door: a TCP socket at which it hears JOIN, from the first epoch until it
 * leaves. Its address is in the list of members, so the death of any process, also of rank 0,
 * leaves the others a place to meet. Connections prove a key that is made of the first epoch's
 * secret; the meeting of an epoch proves that key mixed with the epoch's number. */
#ifndef TRMI_COMM_ELASTIC_H
#define TRMI_COMM_ELASTIC_H

#include "trireme/dist.h"

#include "base/net/net.h"
#include "comm/rendezvous/membership.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/side.h"

#include <pthread.h>
#include <stdatomic.h>

/* A process that has sent JOIN and waits for a list. */
typedef struct trmi_join_guest {
    trmi_link link;
    trmi_member entry;
    int64_t epoch;         /* that it wants to end */
    int32_t ballot;        /* of which it takes this process for the coordinator */
    trmi_members accepted; /* the list that it has accepted for the next epoch */
    bool asked;            /* the coordinator has sent it PROPOSE */
} trmi_join_guest;

/* An elastic job as one process has it. `lock` protects what the door's thread uses, too. */
struct trm_elastic {
    trm_elastic_options options; /* with defaults */
    trm_bootstrap *bootstrap;    /* of the present epoch; NULL while there is none */
    trm_comm *comm;              /* of the present epoch; NULL while there is none */
    trmi_join *place; /* where the job met first, its token, and settings of each epoch */
    trm_membership membership;
    uint8_t key[32];
    trmi_member me;
    trmi_listener meeting; /* where the next epoch meets if this process is its rank 0 */
    /* the place of a job that began with one rank, until the gate's thread has it */
    trmi_reception held;
    trmi_acceptor *door;
    pthread_t thread, gate;
    bool started, gate_started;
    atomic_bool leaving; /* this process wants to leave the job */
    bool wished;         /* it did when the last decision began */
    uint64_t suspect;    /* id of the member whose loss made this process stand alone; 0: none */
    trmi_members base;   /* with which trmi_elastic_begin_change began; list NULL: none has */

    pthread_mutex_t lock;    /* protects the members below */
    pthread_cond_t changed;  /* a guest has come, the epoch has changed, or `stop` is set */
    trmi_members now;        /* the present epoch; `leaves` of members that want to leave */
    trmi_vote vote;          /* for the next one */
    trmi_join_guest *guests; /* [guest_count] */
    int32_t guest_count;
    int64_t guest_capacity;
    trmi_acceptor *gate_acceptor; /* where the gate's thread listens; NULL: it does not */
    bool stop;
};

/* elastic_process.c: describes this process: pid, start time, place. */
void trmi_process_describe(const trm_join_options *options, trmi_member *out);
/* Returns whether the death of the process is proven: it ran at this place and is gone. */
bool trmi_process_is_dead(const trmi_member *me, const trmi_member *other);
/* Returns whether the process is of this place, and neither dead nor stopped. */
bool trmi_process_is_running(const trmi_member *me, const trmi_member *other);
/* Ends a process of this place for good, so that its death is proven. Returns false elsewhere. */
bool trmi_process_end(const trmi_member *me, const trmi_member *other);

/* elastic_door.c: opens the door and starts its thread.
 *   errors  IO, NOMEM */
trm_status trmi_door_open(trm_elastic *elastic, const char *address, trm_error *err);
void trmi_door_close(trm_elastic *elastic);
/* Binds a socket at a free port of `address`.
 *   errors  IO */
trm_status trmi_door_bind(const char *address, int *fd, int32_t *port, trm_error *err);
/* Replaces the present list by a later one; older lists are ignored. Called with the lock held. */
trm_status trmi_elastic_adopt(trm_elastic *elastic, const trmi_members *list, trm_error *err);
/* Tells members that wait for a ballot which this process no longer serves, because it has promised
 * a later one. Called with the lock held. */
void trmi_door_refuse_late(trm_elastic *elastic);
/* Sends a list, and frees a guest. */
void trmi_guest_send(trmi_join_guest *guest, trmi_frame_type type, const trmi_members *list);
void trmi_guest_free(trmi_join_guest *guest);

/* elastic_gate.c: opens the gate and starts its thread.
 *   errors  NOMEM */
trm_status trmi_gate_open(trm_elastic *elastic, trm_error *err);
void trmi_gate_close(trm_elastic *elastic);
/* Reads RUNNING: the job's key, and the present list.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_gate_read(const trmi_link *link, const trmi_frame *frame, uint8_t key[32],
                          trmi_members *list, trm_error *err);

/* Connects to the door of a member and proves the key.
 *   errors  PEER, INVALID, IO */
trm_status trmi_door_call(const trm_elastic *elastic, const trmi_member *to, trmi_link *link,
                          trm_error *err);
/* Sends JOIN with ballot `ballot`, -1: only the wish to leave. Called with the lock held.
 *   errors  PEER */
trm_status trmi_door_send_join(const trm_elastic *elastic, trmi_link *link, int32_t ballot,
                               const trmi_members *present, trm_error *err);

/* Returns how many ranks want to leave, as far as this one knows: itself, and the ranks from
 * `first` on that have told it. */
int32_t trmi_elastic_count_leavers(trm_elastic *elastic, int32_t first);
/* Returns how many ranks the present epoch would have if none had died before the first one
 * began. */
int32_t trmi_elastic_first_ranks(const trm_elastic *elastic);
/* Returns options.least. */
int32_t trmi_elastic_least(const trm_elastic *elastic);
/* Returns whether the job may lose so many of its present ranks (options.least). */
bool trmi_elastic_may_lose(const trm_elastic *elastic, int64_t ranks);

/* A change of the ranks may take several epochs, because one of them fails before all have its
 * state. Between these calls trm_elastic_recover says what differs from the epoch of the first.
 *   errors  NOMEM */
trm_status trmi_elastic_begin_change(trm_elastic *elastic, trm_error *err);
void trmi_elastic_end_change(trm_elastic *elastic);

/* Returns PEER in place of `status`, also in err->status, where err->rank names another process
 * that has come since the change began and has failed by itself, for want of memory or descriptors:
 * the others go on without it. Otherwise returns `status`. */
trm_status trmi_elastic_excuse_newcomer(trm_elastic *elastic, trm_status status, trm_error *err);

/* Leaves the present epoch after an error `cause`; until trm_elastic_recover this process is a
 * member of the job with a communicator of its own (membership.rank is -1).
 *   errors  as trm_comm_create */
trm_status trmi_elastic_stand_alone(trm_elastic *elastic, const trm_error *cause, trm_error *err);

/* elastic_decide.c: decides with the other members of the present epoch on the next one. Afterwards
 * elastic->now is a later epoch, which contains this process. suspect: id of a member that the
 * failed operation has named, 0: none. Errors as trm_elastic_recover; END: it has left. */
trm_status trmi_elastic_decide(trm_elastic *elastic, uint64_t suspect, trm_error *err);

#endif
