/* SPDX-License-Identifier: Apache-2.0 */
/* The decision about the next epoch, as one member sees it (membership.h is the protocol).
 *
 *   for each ballot b in order:   b is this process    coordinate
 *                                 b is dead            next
 *                                 otherwise            ask: JOIN, wait for PROPOSE, ACK, wait for COMMIT
 *   until elastic->now is a later epoch, or no ballot is left
 *
 * A process that has never been a member waits at the door of the lowest member that answers, until
 * a list has it; from then on it decides as a member, also while it has not met the others yet. The
 * members hear of it by trm_elastic_wants_change.
 *
 * A member that neither comes nor dies is given up: after a short time one that the failure has
 * named (if it is stopped, or on another host and its door does not answer), and one of another
 * host whose door refuses connections; after the deadline of heartbeats another one that is
 * stopped, or whose door does not answer; any other after decision_seconds. On this host its
 * process is then ended, so that its death is proven and it cannot write into memory that it shares
 * with the others.
 *
 * The list may have reached some members only when its coordinator goes. So a member that waits
 * asks the others whether the epoch is over, and a process that leaves goes only when the members
 * of the next epoch have its list. */
#include "comm/rendezvous/elastic.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* a member that the failure has named comes within this time, if it lives: if its process is seen
 * to run, or its door answers, within the second; interval in which deaths are looked for */
static const double suspect_seconds = 1, running_seconds = 10, look_seconds = 0.01;
/* a member that has waited so long asks others whether the epoch is over, and gives each so long to
 * answer */
static const double ask_seconds = 0.25, over_seconds = 0.2;
/* a process that leaves waits so long for the last members to answer, once most of them have the
 * list */
static const double farewell_seconds = 2;
/* a job none of whose doors has answered for so long has ended */
static const double gone_seconds = 3;

/* The last answer of a member's door. The door has its own thread, which answers while the process
 * computes a step. */
typedef enum door_state { DOOR_SILENT, DOOR_ANSWERS, DOOR_REFUSES } door_state;

/* One decision. */
typedef struct decision {
    trm_elastic *e;
    trmi_members now; /* a copy: the present epoch of the decision */
    int32_t mine;     /* this process's index in `now` */
    uint64_t suspect; /* id, 0: none */
    double begin;     /* of the present wait, trmi_os_now */
    trmi_ballot ballot;
    trmi_join_guest *guests; /* [now.count] of the ballot, by index; link.fd -1: not here */
    door_state *doors;       /* [now.count] of the members */
    double asked;            /* when this member has asked another one whether the epoch is over */
    int32_t asks;            /* index of that one */
    double heard;            /* of a process that is no member: when a door was open to it */
} decision;

/* Returns whether the epoch of the decision has ended, because a list of a later epoch has
 * arrived. */
static bool is_decided(const decision *d) {
    pthread_mutex_lock(&d->e->lock);
    bool over = d->e->now.epoch > d->now.epoch;
    pthread_mutex_unlock(&d->e->lock);
    return over;
}

/* Adopts a list that was chosen. */
static trm_status adopt_list(decision *d, const trmi_members *list, trm_error *err) {
    pthread_mutex_lock(&d->e->lock);
    trm_status status = trmi_elastic_adopt(d->e, list, err);
    pthread_mutex_unlock(&d->e->lock);
    return status;
}

/* Returns whether member `index`, which has not come or not answered, is given up by now. Sets
 * *dead if its process has ended; a silent process of this host is ended first. */
static bool is_given_up(decision *d, int32_t index, bool *dead) {
    const trmi_member *member = &d->now.list[index];
    double waited = trmi_os_now() - d->begin;
    double limit = d->e->options.decision_seconds;
    if (member->id == d->suspect) { /* it has been silent for the deadline of heartbeats already */
        bool runs = trmi_process_is_running(&d->e->me, member) || d->doors[index] == DOOR_ANSWERS;
        limit = runs ? running_seconds : suspect_seconds;
    } else if (d->doors[index] != DOOR_ANSWERS && !trmi_process_is_running(&d->e->me, member)) {
        /* a process has its door open as long as it is in the job; a door that is silent says as
         * much as heartbeats that do not come: two ranks may have stopped at once */
        const double silent = fmax(d->e->options.join.stall_seconds, suspect_seconds);
        limit = d->doors[index] == DOOR_REFUSES ? suspect_seconds : fmin(silent, limit);
    }
    *dead = trmi_process_is_dead(&d->e->me, member);
    if (*dead || waited < limit) {
        return *dead;
    }
    if (trmi_process_end(&d->e->me, member)) {
        trmi_log(TRM_LOG_WARN, "comm",
                 "elastic: rank %d (pid %d) did not answer for %.1f s and was ended (SIGKILL)",
                 member->number, member->pid, waited);
        *dead = trmi_process_is_dead(&d->e->me, member);
        return *dead; /* it may take a moment until it is gone */
    }
    return true;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Acts on a frame of the coordinator. Returns PENDING until the decision is there. */
static trm_status take_answer(decision *d, trmi_link *link, const trmi_frame *frame,
                              trm_error *err) {
    trmi_members list = {.ballot = -1};
    size_t used;
    trm_status status = trmi_members_decode(frame->payload, frame->bytes, &list, &used, err);
    if (status == TRM_OK && frame->type == TRMI_FRAME_COMMIT) {
        status = adopt_list(d, &list, err);
    } else if (status == TRM_OK && frame->type == TRMI_FRAME_PROPOSE &&
               list.epoch == d->now.epoch + 1) {
        /* accept the proposal, unless the epoch is decided by now */
        pthread_mutex_lock(&d->e->lock);
        bool over = d->e->now.epoch > d->now.epoch;
        status = over ? TRM_OK : trmi_vote_accept(&d->e->vote, &list, err);
        pthread_mutex_unlock(&d->e->lock);
        if (!over && status == TRM_OK) {
            bool sent =
                trmi_link_put(link, TRMI_FRAME_ACK, list.epoch, NULL, 0) && trmi_link_flush(link);
            status = sent ? TRM_PENDING : TRMI_FAIL(err, TRM_PEER, "ACK could not be sent");
        }
    } else if (status == TRM_OK && frame->type == TRMI_FRAME_OVER) {
        status = TRMI_FAIL(err, TRM_CANCELLED, "its coordinator has gone to a later ballot");
    } else if (status == TRM_OK) {
        status = TRMI_FAIL(err, TRM_PEER, "frame type %u is not expected here", frame->type);
    }
    trmi_members_free(&list);
    return status;
}

/* Notes what the door of member `index` did: `err` is the error where a call of it failed. */
static void note_door(decision *d, int32_t index, trm_status status, const trm_error *err) {
    d->doors[index] = status == TRM_OK                 ? DOOR_ANSWERS
                      : err->sys_errno == ECONNREFUSED ? DOOR_REFUSES
                                                       : d->doors[index];
}

/* Sends the list `mine` to the door of a process, which takes it if it is later than its own and
 * has the process. *theirs: the list that the process has then; *open: the door has proved the key,
 * so that its process lives, also if the list comes too late; NULL: not wanted.
 *   errors  PEER if it does not answer */
static trm_status exchange_lists(trm_elastic *e, const trmi_member *with, const trmi_members *mine,
                                 trmi_members *theirs, bool *open, trm_error *err) {
    trmi_link link = {.fd = -1};
    trmi_frame frame;
    size_t used;
    trm_status status = trmi_door_call(e, with, &link, err);
    if (open != NULL) {
        *open = status == TRM_OK;
    }
    TRMI_TRY(status);
    pthread_mutex_lock(&e->lock);
    status = trmi_door_send_join(e, &link, -1, mine, err);
    pthread_mutex_unlock(&e->lock);
    /* poll in short turns: the door may close without a word */
    const double deadline = trmi_os_now() + over_seconds;
    bool closed = false;
    while (status == TRM_OK && (status = trmi_link_next(&link, &frame, err)) == TRM_END) {
        if (closed || trmi_os_now() >= deadline) {
            status = TRMI_FAIL(err, TRM_PEER, "the door of rank %d does not answer", with->number);
            break;
        }
        struct pollfd wait = {.fd = link.fd, .events = POLLIN};
        poll(&wait, 1, 20);
        closed = trmi_link_fill(&link) < 0;
        status = TRM_OK;
    }
    if (status == TRM_OK) {
        status = frame.type == TRMI_FRAME_COMMIT
                     ? trmi_members_decode(frame.payload, frame.bytes, theirs, &used, err)
                     : TRMI_FAIL(err, TRM_CORRUPT, "frame type %u, COMMIT expected", frame.type);
    }
    trmi_link_close(&link);
    return status;
}

/* Asks a member whether the epoch is over: the last coordinator may have died after it had told
 * some members of its list, but not this one. They would wait for this process, and it for them. */
static void ask_whether_over(decision *d, int32_t index) {
    trmi_members theirs = {.ballot = -1};
    trm_error err = {0};
    bool open;
    trm_status status = exchange_lists(d->e, &d->now.list[index], &d->now, &theirs, &open, &err);
    note_door(d, index, open ? TRM_OK : status, &err);
    if (status == TRM_OK) {
        (void)adopt_list(d, &theirs, &err);
    }
    trmi_members_free(&theirs);
}

/* Asks the next of the members but for the coordinator, ask_seconds after the one before. */
static void ask_another(decision *d, int32_t coordinator) {
    if (trmi_os_now() - d->asked < ask_seconds) {
        return;
    }
    for (int32_t n = 0; n < d->now.count; n++) {
        d->asks = (d->asks + 1) % d->now.count;
        if (d->asks != d->mine && d->asks != coordinator &&
            !trmi_process_is_dead(&d->e->me, &d->now.list[d->asks])) {
            ask_whether_over(d, d->asks);
            break;
        }
    }
    d->asked = trmi_os_now();
}

/* ---- coordinating ---------------------------------------------------------------------------- */

/* Takes the guests of this ballot from the door; waits at most `seconds` for a change. */
static trm_status take_guests(decision *d, double seconds, trm_error *err) {
    trm_elastic *e = d->e;
    trm_status status = TRM_OK;
    pthread_mutex_lock(&e->lock);
    for (int32_t g = e->guest_count - 1; g >= 0 && status == TRM_OK; g--) {
        trmi_join_guest *guest = &e->guests[g];
        int32_t index = trmi_members_find(&d->now, guest->entry.id);
        if (guest->epoch == d->now.epoch && index < 0) { /* stays a guest until it gets the list */
            if (trmi_link_fill(&guest->link) >= 0) {
                status = trmi_ballot_hear_newcomer(&d->ballot, &guest->entry, err);
            } else {
                trmi_ballot_lose_newcomer(&d->ballot, guest->entry.id);
                trmi_guest_free(guest);
                e->guests[g] = e->guests[--e->guest_count];
            }
            continue;
        }
        if (guest->epoch != d->now.epoch || guest->ballot != d->mine) {
            continue;
        }
        status = trmi_ballot_hear(&d->ballot, index, &guest->entry, &guest->accepted, err);
        if (status == TRM_OK) {
            d->suspect = d->suspect == guest->entry.id ? 0 : d->suspect;
            d->doors[index] = DOOR_ANSWERS;
            if (d->guests[index].link.fd >= 0) {
                trmi_guest_free(&d->guests[index]); /* it has come again */
            }
            d->guests[index] = *guest;
            e->guests[g] = e->guests[--e->guest_count];
        }
    }
    if (status == TRM_OK) { /* until a guest comes or a death is to be looked for */
        (void)trmi_os_wait(&e->changed, &e->lock, trmi_os_now() + seconds);
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* Gives member `index` up if its time is over. */
static bool give_up_late(decision *d, int32_t index) {
    bool dead = false;
    if (!is_given_up(d, index, &dead)) {
        return false;
    }
    if (dead) {
        trmi_ballot_bury(&d->ballot, index);
    } else {
        trmi_ballot_lose(&d->ballot, index);
    }
    return true;
}

/* Waits until each member has come or is given up. */
static trm_status hear_members(decision *d, trm_error *err) {
    double asked = d->begin;
    TRMI_TRY(take_guests(d, 0, err)); /* newcomers, also where no member is awaited */
    while (!trmi_ballot_is_complete(&d->ballot) && !is_decided(d)) {
        TRMI_TRY(take_guests(d, look_seconds, err));
        for (int32_t i = 0; i < d->now.count; i++) {
            if (d->ballot.states[i] == TRMI_MEMBER_AWAITED) {
                (void)give_up_late(d, i);
            }
        }
        bool ask = trmi_os_now() - asked > ask_seconds;
        for (int32_t i = 0; ask && i < d->now.count && !is_decided(d); i++) {
            if (d->ballot.states[i] == TRMI_MEMBER_AWAITED) {
                ask_whether_over(d, i);
            }
        }
        asked = ask ? trmi_os_now() : asked;
    }
    return TRM_OK;
}

/* Looks for the ACK of a guest. A guest whose connection is lost may come again. */
static void hear_ack(decision *d, int32_t index) {
    trmi_join_guest *guest = &d->guests[index];
    trmi_frame frame;
    trm_error err;
    int filled = trmi_link_fill(&guest->link);
    trm_status status = trmi_link_next(&guest->link, &frame, &err);
    if (status == TRM_OK && frame.type == TRMI_FRAME_ACK) {
        trmi_ballot_ack(&d->ballot, index);
    } else if (filled < 0 || (status != TRM_OK && status != TRM_END)) {
        trmi_guest_free(guest);
        guest->link.fd = -1;
    }
}

/* Sends the list to all guests, also to those that come again, and waits until a quorum has
 * accepted it. A coordinator that lives never leaves its own ballot to others for lack of time:
 * they wait for it as long as it lives, so it would wait for them, and they for it. */
static trm_status collect_acks(decision *d, trm_error *err) {
    d->begin = trmi_os_now();
    while (!trmi_ballot_has_quorum(&d->ballot, true)) {
        if (!trmi_ballot_has_quorum(&d->ballot, false)) {
            return TRMI_FAIL(err, TRM_PEER, "the ranks that are left are no majority of epoch %lld",
                             (long long)d->now.epoch);
        }
        /* send the list once to each guest, then wait for its ACK */
        for (int32_t i = 0; i < d->now.count; i++) {
            if (d->ballot.states[i] != TRMI_MEMBER_CAME) {
                continue;
            }
            if (give_up_late(d, i)) {
                continue;
            }
            if (d->guests[i].link.fd >= 0 && !d->guests[i].asked) {
                trmi_guest_send(&d->guests[i], TRMI_FRAME_PROPOSE, &d->ballot.list);
                d->guests[i].asked = true;
            } else if (d->guests[i].link.fd >= 0) {
                hear_ack(d, i);
            }
        }
        if (!trmi_ballot_has_quorum(&d->ballot, true)) {
            TRMI_TRY(take_guests(d, 0.001, err));
        }
    }
    return TRM_OK;
}

/* Runs the ballot of this process. */
static trm_status run_ballot(decision *d, trm_error *err) {
    trm_elastic *e = d->e;
    d->begin = trmi_os_now();
    TRMI_TRY(
        trmi_ballot_begin(&d->now, d->mine, e->options.least, e->options.most, &d->ballot, err));
    /* Its own promise and vote are those of a member. */
    pthread_mutex_lock(&e->lock);
    bool promised = trmi_vote_promise(&e->vote, d->mine);
    trm_status status = promised
                            ? trmi_ballot_hear(&d->ballot, d->mine, &e->me, &e->vote.accepted, err)
                            : TRMI_FAIL(err, TRM_CANCELLED, "ballot %d is over", d->mine);
    pthread_mutex_unlock(&e->lock);
    status = status == TRM_OK ? hear_members(d, err) : status;
    if (status == TRM_OK && !is_decided(d) && !trmi_ballot_has_quorum(&d->ballot, false)) {
        status = TRMI_FAIL(err, TRM_PEER,
                           "the ranks that are left are no majority of the %d of epoch %lld, and "
                           "that the others are dead is not proven",
                           d->now.count, (long long)d->now.epoch);
    }
    /* The list is proposed, and accepted here first; with a quorum of ACKs it is the next epoch,
     * and the guests are told. */
    if (status == TRM_OK && !is_decided(d)) {
        status = trmi_ballot_propose(&d->ballot, err);
        pthread_mutex_lock(&e->lock);
        if (status == TRM_OK && e->now.epoch == d->now.epoch) {
            status = trmi_vote_accept(&e->vote, &d->ballot.list, err);
        }
        pthread_mutex_unlock(&e->lock);
        trmi_ballot_ack(&d->ballot, d->mine);
        status = status == TRM_OK ? collect_acks(d, err) : status;
        if (status == TRM_OK) {
            status = adopt_list(d, &d->ballot.list, err);
            for (int32_t i = 0; i < d->now.count; i++) {
                if (d->guests[i].link.fd >= 0) {
                    trmi_guest_send(&d->guests[i], TRMI_FRAME_COMMIT, &d->ballot.list);
                }
            }
        }
    }
    for (int32_t i = 0; i < d->now.count; i++) {
        trmi_guest_free(&d->guests[i]);
        d->guests[i].link.fd = -1;
    }
    trmi_ballot_end(&d->ballot);
    return status;
}

/* ---- asking another coordinator -------------------------------------------------------------- */

/* Sends JOIN for ballot `index`, with the list that this member has accepted. */
static trm_status send_join(decision *d, int32_t index, trmi_link *link, trm_error *err) {
    trm_elastic *e = d->e;
    pthread_mutex_lock(&e->lock);
    trm_status status =
        trmi_vote_promise(&e->vote, index)
            ? trmi_door_send_join(e, link, index, &d->now, err)
            : TRMI_FAIL(err, TRM_CANCELLED, "ballot %d is over: a higher one is promised", index);
    trmi_door_refuse_late(e);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* Waits for the answers of the coordinator. OK: the epoch is decided. */
static trm_status wait_for_answer(decision *d, int32_t index, trmi_link *link, trm_error *err) {
    trmi_frame frame;
    bool closed = false, dead;
    while (!is_decided(d)) {
        trm_status status = trmi_link_next(link, &frame, err);
        if (status == TRM_OK) {
            status = take_answer(d, link, &frame, err);
        }
        if (status != TRM_END && status != TRM_PENDING) {
            TRMI_TRY(status);
            continue;
        }
        /* Without a frame the coordinator has gone, or is given up. */
        if (closed || is_given_up(d, index, &dead)) {
            return TRMI_FAIL(err, TRM_PEER, "rank %d left the decision", d->now.list[index].number);
        }
        struct pollfd wait = {.fd = link->fd, .events = POLLIN};
        poll(&wait, 1, 20);
        closed = trmi_link_fill(link) < 0;
        /* another member may know more */
        if (trmi_os_now() - d->begin > suspect_seconds) {
            ask_another(d, index);
        }
    }
    return TRM_OK;
}

/* Takes part in the ballot of member `index`, again if the connection is lost while the member
 * lives. OK: the epoch is decided; CANCELLED: the ballot is over; else the coordinator is lost. */
static trm_status ask_coordinator(decision *d, int32_t index, trm_error *err) {
    bool dead;
    trm_status status = TRM_OK;
    d->begin = trmi_os_now();
    while (!is_decided(d)) {
        trmi_link link = {.fd = -1};
        status = trmi_door_call(d->e, &d->now.list[index], &link, err);
        note_door(d, index, status, err);
        status = status == TRM_OK ? send_join(d, index, &link, err) : status;
        status = status == TRM_OK ? wait_for_answer(d, index, &link, err) : status;
        trmi_link_close(&link);
        if (status == TRM_OK || status == TRM_CANCELLED || is_given_up(d, index, &dead)) {
            return status;
        }
        poll(NULL, 0, 10);
        ask_another(d, index); /* the coordinator may have told it and be gone */
    }
    return TRM_OK;
}

/* ---- a process that is no member ------------------------------------------------------------- */

/* Waits at the door of a member for a list. OK: a later list is here. */
static trm_status wait_at_door(decision *d, int32_t index, double deadline, trm_error *err) {
    trm_elastic *e = d->e;
    trmi_link link = {.fd = -1};
    trmi_frame frame;
    trm_status status = trmi_door_call(e, &d->now.list[index], &link, err);
    if (status == TRM_OK) {
        pthread_mutex_lock(&e->lock);
        status = trmi_door_send_join(e, &link, index, &d->now, err);
        pthread_mutex_unlock(&e->lock);
    }
    const bool open = status == TRM_OK;
    /* First all frames that have arrived, then a wait of at most 0.1 s for more: `closed` is set
     * once the member has closed, and counts only after its last frames were read. */
    for (bool closed = false; status == TRM_OK && !is_decided(d);) {
        status = trmi_link_next(&link, &frame, err);
        if (status == TRM_OK) {
            status = take_answer(d, &link, &frame, err);
            continue;
        }
        if (status != TRM_END) {
            break;
        }
        status = TRM_OK;
        if (closed || trmi_os_now() >= deadline || atomic_load(&e->leaving)) {
            status =
                TRMI_FAIL(err, TRM_PEER, "rank %d has closed its door", d->now.list[index].number);
            break;
        }
        struct pollfd wait = {.fd = link.fd, .events = POLLIN};
        poll(&wait, 1, 100);
        closed = trmi_link_fill(&link) < 0;
    }
    d->heard = open ? trmi_os_now() : d->heard;
    trmi_link_close(&link);
    return status;
}

/* Whether this process is a member of the present list, which it copies. */
static trm_status look_for_place(decision *d, bool *member, trm_error *err) {
    pthread_mutex_lock(&d->e->lock);
    trm_status status = trmi_members_copy(&d->now, &d->e->now, err);
    *member = trmi_members_find(&d->e->now, d->e->me.id) >= 0;
    pthread_mutex_unlock(&d->e->lock);
    return status;
}

/* Asks to become a member, until a list has this process. */
static trm_status apply_for_membership(decision *d, trm_error *err) {
    trm_elastic *e = d->e;
    const double limit = e->options.join.timeout_seconds, deadline = d->begin + limit;
    d->heard = d->begin;
    for (;;) {
        bool member, answered = false;
        TRMI_TRY(look_for_place(d, &member, err));
        if (member) {
            return TRM_OK;
        }
        /* any member that answers will do */
        for (int32_t i = 0; i < d->now.count && !answered && !atomic_load(&e->leaving); i++) {
            answered = !trmi_process_is_dead(&e->me, &d->now.list[i]) &&
                       wait_at_door(d, i, deadline, err) == TRM_OK;
        }
        double now = trmi_os_now();
        if (atomic_load(&e->leaving)) {
            return TRMI_FAIL(err, TRM_END, "this process left before it had joined the job");
        }
        if (now >= deadline) {
            return TRMI_FAIL(err, TRM_TIMEOUT,
                             "waited %.0f s to join the job: epoch %lld has %d of at most %d ranks",
                             limit, (long long)d->now.epoch, d->now.count, e->options.most);
        }
        if (now - d->heard > gone_seconds) {
            return TRMI_FAIL(err, TRM_PEER,
                             "the job has ended before this process could join it: no rank of "
                             "epoch %lld answers",
                             (long long)d->now.epoch);
        }
        poll(NULL, 0, 10);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Goes through the ballots. */
static trm_status run_ballots(decision *d, trm_error *err) {
    trm_status status =
        TRMI_FAIL(err, TRM_PEER, "no rank of epoch %lld answers", (long long)d->now.epoch);
    for (int32_t b = 0; b < d->now.count && !is_decided(d); b++) {
        if (b == d->mine) {
            status = run_ballot(d, err);
        } else if (!trmi_process_is_dead(&d->e->me, &d->now.list[b])) {
            status = ask_coordinator(d, b, err);
        } else {
            continue;
        }
        if (status != TRM_OK) {
            trmi_log(TRM_LOG_DEBUG, "comm", "elastic: ballot %d of epoch %lld: %s", b,
                     (long long)d->now.epoch + 1, err->message);
        }
    }
    if (status == TRM_CANCELLED && !is_decided(d)) {
        status =
            TRMI_FAIL(err, TRM_PEER, "no ballot about the ranks after epoch %lld had a majority",
                      (long long)d->now.epoch);
    }
    return is_decided(d) ? TRM_OK : status;
}

/* Gives the members of the next epoch its list, which this process, that leaves, has decided on
 * with others: after it has gone they may find no one that has it, and then decide on another, or
 * not have a majority. Ends when each member has the list or has gone, or the time is over. */
static void tell_members(trm_elastic *e) {
    trmi_members list = {.ballot = -1}, theirs = {.ballot = -1};
    trm_error err = {0};
    pthread_mutex_lock(&e->lock);
    trm_status status = trmi_members_copy(&list, &e->now, &err);
    pthread_mutex_unlock(&e->lock);
    bool *told = trmi_alloc((size_t)list.count * sizeof *told);
    const double begin = trmi_os_now();
    for (int32_t count = 0, left = 1; status == TRM_OK && told != NULL && left > 0;) {
        left = 0;
        for (int32_t i = 0; i < list.count; i++) {
            if (told[i] || trmi_process_is_dead(&e->me, &list.list[i])) {
                continue;
            }
            err.sys_errno = 0;
            trm_status answer = exchange_lists(e, &list.list[i], &list, &theirs, NULL, &err);
            /* a member that refuses the connection has gone */
            told[i] = answer == TRM_OK && theirs.epoch >= list.epoch;
            count += told[i];
            left += !told[i] && err.sys_errno != ECONNREFUSED;
        }
        /* when most have the list, no other list can be decided: the rest get little time */
        const double waited = trmi_os_now() - begin;
        const bool most = 2 * count > list.count;
        if (waited > (most ? farewell_seconds : e->options.decision_seconds)) {
            break;
        }
        poll(NULL, 0, left > 0 ? 20 : 0);
    }
    trmi_free(told);
    trmi_members_free(&list);
    trmi_members_free(&theirs);
}

/* Fails unless this process is a member of the new epoch: END if it has left, as it wanted to. */
static trm_status check_own_place(trm_elastic *e, trm_error *err) {
    pthread_mutex_lock(&e->lock);
    int32_t index = trmi_members_find(&e->now, e->me.id);
    bool is_member = index >= 0, leaves = e->me.leaves != 0;
    int64_t epoch = e->now.epoch;
    e->me.number = is_member ? e->now.list[index].number : e->me.number;
    pthread_mutex_unlock(&e->lock);
    if (!is_member && leaves) {
        tell_members(e);
        return TRMI_FAIL(err, TRM_END, "rank %d has left the job; epoch %lld goes on without it",
                         e->me.number, (long long)epoch);
    }
    return is_member ? TRM_OK
                     : TRMI_FAIL(err, TRM_PEER,
                                 "the other ranks have given up this one (rank %d): it did not "
                                 "answer in time; epoch %lld goes on without it",
                                 e->me.number, (long long)epoch);
}

/* Decides as a member. A list without this process is no decision of its own. */
static trm_status decide_as_member(decision *d, trm_error *err) {
    d->mine = trmi_members_find(&d->now, d->e->me.id);
    if (d->mine < 0) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_NEW(err, d->guests, d->now.count, "for a decision"));
    TRMI_TRY(TRMI_NEW(err, d->doors, d->now.count, "for a decision"));
    for (int32_t i = 0; i < d->now.count; i++) {
        d->guests[i].link.fd = -1;
        d->guests[i].accepted.ballot = -1;
    }
    return run_ballots(d, err);
}

/* Contract in elastic.h. Works on a copy of the present list, because the door may learn of a later
 * one meanwhile. */
trm_status trmi_elastic_decide(trm_elastic *e, uint64_t suspect, trm_error *err) {
    decision d = {.e = e, .now = {.ballot = -1}, .suspect = suspect, .begin = trmi_os_now()};
    trm_error own;
    err = err != NULL ? err : &own;
    pthread_mutex_lock(&e->lock);
    trm_status status = trmi_members_copy(&d.now, &e->now, err);
    e->me.leaves = e->wished = atomic_load(&e->leaving);
    pthread_mutex_unlock(&e->lock);
    /* A process whose first list is here already is a member, also if its ranks have not met. */
    if (status == TRM_OK && e->membership.epoch == 0 && trmi_members_find(&d.now, e->me.id) < 0) {
        status = apply_for_membership(&d, err);
    } else if (status == TRM_OK) {
        status = decide_as_member(&d, err);
    }
    status = status == TRM_OK ? check_own_place(e, err) : status;
    trmi_free(d.guests);
    trmi_free(d.doors);
    trmi_members_free(&d.now);
    return status;
}
