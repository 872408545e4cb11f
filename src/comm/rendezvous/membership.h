/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/membership.h: the decision which processes are the ranks of the next epoch. It is
 * a protocol without sockets, threads and clock: elastic*.c carry its messages.
 *
 *   epoch e: members 0 .. n-1       a failure: the members decide the list of epoch e + 1
 *
 *   member m                                   coordinator b (ballot b of epoch e)
 *     JOIN(own entry, list accepted) ------->    hears members until each has come or is dead
 *       promise: no ballot below b
 *          <------------------- PROPOSE(list)    the list accepted under the highest ballot that a
 *       accept, unless a higher                  member has named, else all that have come
 *       ballot was promised
 *     ACK ---------------------------------->    chosen once a quorum has accepted
 *          <-------------------- COMMIT(list)
 *
 * This is Paxos for one value, with ballot b owned by member b. A member goes to ballot b + 1 only
 * after it has lost coordinator b.
 *
 * A member that wants to leave votes like the others; a list without it names it after its
 * members, so that all of them know that it is not lost.
 *
 * A quorum is a set of members of epoch e that is either more than half of them, or all of them but
 * those whose death is proven. Two quorums have a member in common, or one of them is of dead
 * members only: so two different lists of one epoch are never both in use. */
#ifndef TRMI_COMM_MEMBERSHIP_H
#define TRMI_COMM_MEMBERSHIP_H

#include "trireme/base.h"

/* Members of a job at most, and bytes of a member and of the head of a list on the wire. */
enum { TRMI_MEMBERS_MAX = 1024, TRMI_MEMBER_BYTES = 128, TRMI_MEMBERS_HEAD = 24 };

/* One process of the job. */
typedef struct trmi_member {
    uint64_t id;         /* random: no two processes of a job have the same */
    uint64_t start_time; /* of the process, in ticks of its host: with pid it names one process */
    int32_t pid;
    int32_t number; /* stays the same in all epochs: the rank in the first, or the next free */
    int32_t port;   /* where it hears JOIN */
    int32_t meeting_port; /* where it listens if it is rank 0 of the next epoch */
    int32_t leaves;       /* 1: it leaves the job in order with the next epoch */
    uint8_t place[32];    /* equal for processes that see each other's pid */
    char address[48];     /* numeric */
} trmi_member;

/* The members of an epoch, in the order of their ranks. */
typedef struct trmi_members {
    int64_t epoch;
    int32_t ballot; /* under which the list was proposed; -1: there is no list */
    int32_t count;
    int32_t left;      /* members of the epoch before that have left in order */
    trmi_member *list; /* [count + left], owned: the members, then those that have left */
} trmi_members;

/* Returns the index of the member with this id; -1: none. */
int32_t trmi_members_find(const trmi_members *members, uint64_t id);
/* Returns whether the process with this id has left the epoch before in order. */
bool trmi_members_has_left(const trmi_members *members, uint64_t id);
/* Replaces `to` by a copy of `from`.
 *   errors  NOMEM; `to` is then unchanged */
trm_status trmi_members_copy(trmi_members *to, const trmi_members *from, trm_error *err);
void trmi_members_free(trmi_members *members);
/* Returns the length of a list on the wire. */
size_t trmi_members_bytes(const trmi_members *members);
/* Writes the list into trmi_members_bytes bytes. Returns their number. */
size_t trmi_members_encode(const trmi_members *members, uint8_t *wire);
/* Reads a list into `out`, whose old list is freed. *used: bytes read.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_members_decode(const uint8_t *wire, size_t bytes, trmi_members *out, size_t *used,
                               trm_error *err);
void trmi_member_encode(const trmi_member *member, uint8_t wire[TRMI_MEMBER_BYTES]);
void trmi_member_decode(const uint8_t wire[TRMI_MEMBER_BYTES], trmi_member *member);

/* The promise of a member, and the list that it has accepted, for the next epoch. */
typedef struct trmi_vote {
    int32_t promised; /* highest ballot; -1: none */
    trmi_members accepted;
} trmi_vote;
#define TRMI_VOTE_NONE ((trmi_vote){.promised = -1, .accepted = {.ballot = -1}})

/* Promises to accept nothing below `ballot`; false: a higher one is promised already. */
bool trmi_vote_promise(trmi_vote *vote, int32_t ballot);
/* Accepts a list, unless a higher ballot is promised: CANCELLED.
 *   errors  NOMEM */
trm_status trmi_vote_accept(trmi_vote *vote, const trmi_members *list, trm_error *err);

/* The state of a member, as a coordinator knows it. */
typedef enum trmi_member_state {
    TRMI_MEMBER_AWAITED, /* has not come */
    TRMI_MEMBER_CAME,    /* has promised this ballot */
    TRMI_MEMBER_ACKED,   /* has accepted this ballot's list */
    TRMI_MEMBER_LOST,    /* its connection is lost; it may live */
    TRMI_MEMBER_DEAD     /* its process is proven to have ended */
} trmi_member_state;

/* One ballot, at its coordinator. */
typedef struct trmi_ballot {
    const trmi_members *now; /* the present epoch, borrowed */
    int32_t number;          /* of the ballot: the coordinator's index in `now` */
    /* numbers of members of the next epoch: below, none may leave; above, none may join */
    int32_t least, most;
    trmi_member_state *states; /* [now->count] */
    trmi_member *entries;      /* [now->count + newcomers] as members have described themselves */
    bool *entered;             /* [now->count] entries[i] is filled */
    int32_t newcomers;         /* entries after those of `now` */
    int64_t entries_capacity;
    trmi_members list; /* to propose: ballot -1 until trmi_ballot_propose */
} trmi_ballot;

/* Begins a ballot. `now` is borrowed; `least` and `most` as in the struct.
 *   errors  NOMEM */
trm_status trmi_ballot_begin(const trmi_members *now, int32_t number, int32_t least, int32_t most,
                             trmi_ballot *out, trm_error *err);
/* Frees what trmi_ballot_begin has allocated. */
void trmi_ballot_end(trmi_ballot *ballot);
/* Notes that a member has come; `accepted` is the list that it has accepted (ballot -1: none). Has
 * no effect once the list is proposed.
 *   errors  NOMEM */
trm_status trmi_ballot_hear(trmi_ballot *ballot, int32_t index, const trmi_member *entry,
                            const trmi_members *accepted, trm_error *err);
/* Notes that a process that was no member asks to become one.
 *   errors  NOMEM */
trm_status trmi_ballot_hear_newcomer(trmi_ballot *ballot, const trmi_member *entry, trm_error *err);
/* Notes that the connection to such a process is lost: it may have gone, and a list with it could
 * need its vote. It asks again if it has not. Has no effect once the list is proposed. */
void trmi_ballot_lose_newcomer(trmi_ballot *ballot, uint64_t id);
/* Notes that the connection to a member is lost; it may have died. */
void trmi_ballot_lose(trmi_ballot *ballot, int32_t index);
/* Notes that the death of a member is proven. */
void trmi_ballot_bury(trmi_ballot *ballot, int32_t index);
/* Notes that a member has accepted the proposed list. */
void trmi_ballot_ack(trmi_ballot *ballot, int32_t index);
/* Returns whether no member is awaited. */
bool trmi_ballot_is_complete(const trmi_ballot *ballot);
/* Returns whether the members that have come (or, if `acked`, accepted) are a quorum. */
bool trmi_ballot_has_quorum(const trmi_ballot *ballot, bool acked);
/* Makes the list: of those that have come, but for those that leave, and of newcomers. Where fewer
 * than `least` would be left, no member leaves. The caller has seen a quorum come.
 *   errors  NOMEM */
trm_status trmi_ballot_propose(trmi_ballot *ballot, trm_error *err);

#endif
