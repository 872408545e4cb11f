/* SPDX-License-Identifier: Apache-2.0 */
/* An elastic job: its creation, and the way from a failure to the next epoch (contracts in
 * trireme/dist.h, the parts in elastic.h).
 *
 *   create:   meet as the cluster description says -> the first epoch
 *             or the job runs already              -> alone, until recover
 *   recover:  leave the old epoch -> decide -> meet -> communicator
 *                                      ^-------- a member dies before all have met --'
 *   stand alone:  leave the old epoch; recover follows when this process trains
 *
 * Invariant: all members of an epoch decide on the next one only after they have left it, so that
 * no operation of an old epoch can complete in part. */
#include "comm/rendezvous/elastic.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/api/world.h"
#include "comm/rendezvous/side.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool trm_elastic_can_recover(trm_status status) {
    return status == TRM_PEER || status == TRM_TIMEOUT;
}

trm_comm *trm_elastic_comm(const trm_elastic *e) {
    TRMI_NEED_OR(NULL, NULL, e);
    return e->comm;
}

void trm_elastic_get_membership(const trm_elastic *e, trm_membership *out) {
    TRMI_NEED_OR(, NULL, e, out);
    *out = e->membership;
}

void trm_elastic_request_leave(trm_elastic *e) {
    TRMI_NEED_OR(, NULL, e);
    atomic_store(&e->leaving, true);
}

bool trm_elastic_wants_change(trm_elastic *e) {
    TRMI_NEED_OR(false, NULL, e);
    bool joins = false;
    pthread_mutex_lock(&e->lock);
    for (int32_t g = 0; g < e->guest_count && e->now.count < e->options.most; g++) {
        joins = joins || (e->guests[g].epoch == e->now.epoch &&
                          trmi_members_find(&e->now, e->guests[g].entry.id) < 0);
    }
    pthread_mutex_unlock(&e->lock);
    return joins || trmi_elastic_count_leavers(e, 0) > 0;
}

int32_t trmi_elastic_count_leavers(trm_elastic *e, int32_t first) {
    int32_t leavers = atomic_load(&e->leaving) ? 1 : 0;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = first; i < e->now.count; i++) {
        leavers += e->now.list[i].leaves != 0 && e->now.list[i].id != e->me.id;
    }
    pthread_mutex_unlock(&e->lock);
    return leavers;
}

int32_t trmi_elastic_first_ranks(const trm_elastic *e) {
    return e->membership.epoch == 1 ? e->place->hello.size : e->membership.ranks;
}

int32_t trmi_elastic_least(const trm_elastic *e) { return e->options.least; }

bool trmi_elastic_may_lose(const trm_elastic *e, int64_t ranks) {
    return e->membership.ranks - ranks >= e->options.least;
}

/* Opens the place where the next epoch meets if this process is its rank 0. */
static trm_status open_meeting(trm_elastic *e, trm_error *err) {
    int fd;
    if (e->meeting.count > 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_door_bind(e->me.address, &fd, &e->me.meeting_port, err));
    e->meeting = (trmi_listener){.fds = {fd}, .count = 1, .lock_fd = -1};
    snprintf(e->meeting.address, sizeof e->meeting.address, "%s", e->me.address);
    return TRM_OK;
}

/* Leaves the present epoch: its communicator and its control channel. */
static void leave_epoch(trm_elastic *e) {
    trm_comm_destroy(e->comm);
    e->comm = NULL;
    trm_cluster_leave(e->bootstrap);
    e->bootstrap = NULL;
}

/* The first ranks begin without the missing ones when none came for so long, and a quarter of the
 * limit of the meeting at most. */
static const double quiet_seconds = 10;

/* ---- creation -------------------------------------------------------------------------------- */

/* Exchanges the descriptions of all processes: the list of the first epoch. */
static trm_status exchange_members(trm_elastic *e, trm_error *err) {
    trm_bootstrap *b = e->bootstrap;
    uint8_t mine[TRMI_MEMBER_BYTES], *all;
    TRMI_TRY(TRMI_NEW(err, all, (size_t)b->size * TRMI_MEMBER_BYTES, "for %d members", b->size));
    trmi_member_encode(&e->me, mine);
    trm_status status =
        b->table->allgather(b, mine, sizeof mine, all, e->options.decision_seconds, err);
    trmi_members list = {.epoch = 1, .ballot = -1, .count = b->size};
    status =
        status == TRM_OK ? TRMI_NEW(err, list.list, b->size, "for %d members", b->size) : status;
    for (int32_t r = 0; status == TRM_OK && r < b->size; r++) {
        trmi_member_decode(all + (size_t)r * TRMI_MEMBER_BYTES, &list.list[r]);
    }
    trmi_free(all);
    if (status == TRM_OK) {
        pthread_mutex_lock(&e->lock);
        trmi_members_free(&e->now);
        e->now = list;
        pthread_mutex_unlock(&e->lock);
    }
    return status;
}

/* Makes the object; nothing is open. */
static trm_status create_elastic(const trm_cluster *cluster, const trm_elastic_options *options,
                                 trm_elastic **out, trm_error *err) {
    static const trm_elastic_options none;
    trm_elastic *e;
    TRMI_TRY(TRMI_NEW(err, e, 1, "for an elastic job"));
    e->options = options != NULL ? *options : none;
    e->options.least = e->options.least > 0 ? e->options.least : 1;
    e->options.most = e->options.most > 0 && e->options.most < TRMI_MEMBERS_MAX ? e->options.most
                                                                                : TRMI_MEMBERS_MAX;
    e->options.decision_seconds =
        e->options.decision_seconds > 0 ? e->options.decision_seconds : 120;
    e->now.ballot = -1;
    e->base.ballot = -1;
    e->vote = TRMI_VOTE_NONE;
    e->meeting.lock_fd = -1;
    e->held = TRMI_RECEPTION_CLOSED;
    pthread_mutex_init(&e->lock, NULL);
    trmi_os_make_condition(&e->changed);
    *out = e;
    TRMI_TRY(TRMI_NEW(err, e->place, 1, "for an elastic job"));
    TRMI_TRY(trmi_side_prepare(cluster, &e->options.join, e->place, err));
    const trm_cluster_info *info = trm_cluster_get(cluster);
    if (info->others_may_join) {
        TRMI_TRY(trmi_side_find_place(cluster, e->place, err));
    }
    e->options.join = e->place->options; /* with defaults */
    trmi_process_describe(&e->options.join, &e->me);
    return trmi_net_random(&e->me.id, sizeof e->me.id, err);
}

/* Answers as a process of a job that runs already. Returns END. */
static trm_status take_running(void *context, const trmi_join *join, const trmi_link *link,
                               const trmi_frame *frame, trm_error *err) {
    trm_elastic *e = context;
    TRMI_TRY(trmi_gate_read(link, frame, e->key, &e->now, err));
    snprintf(e->me.address, sizeof e->me.address, "%s", join->hello.address);
    return TRM_END;
}

/* Opens the door, and the socket of the next meeting. */
static trm_status open_door(trm_elastic *e, trm_error *err) {
    TRMI_TRY(trmi_door_open(e, e->me.address, err));
    return open_meeting(e, err);
}

/* The ranks of the cluster description are all here: the first epoch. */
static trm_status begin_first_epoch(trm_elastic *e, trm_error *err) {
    trm_bootstrap *b = e->bootstrap;
    snprintf(e->me.address, sizeof e->me.address, "%s", b->address);
    const int32_t number = e->place->hello.rank; /* -1: the meeting has given it */
    e->me.number = number >= 0 ? number : b->rank;
    b->table->sign(b, "elastic", 7, e->key);
    TRMI_TRY(open_door(e, err));
    TRMI_TRY(exchange_members(e, err));
    TRMI_TRY(trm_comm_create(b, &e->options.comm, &e->comm, err));
    e->membership = (trm_membership){.epoch = 1, .rank = b->rank, .ranks = b->size};
    return TRM_OK;
}

/* Makes a communicator of this process alone. */
static trm_status meet_nobody(trm_elastic *e, trm_error *err) {
    trmi_join alone = *e->place;
    alone.hello.rank = 0;
    alone.hello.size = 1;
    TRMI_TRY(trmi_side_meet(&alone, &e->bootstrap, err));
    return trm_comm_create(e->bootstrap, &e->options.comm, &e->comm, err);
}

/* The job runs already: this process is alone until it has joined. */
static trm_status stand_outside(trm_elastic *e, trm_error *err) {
    e->membership = (trm_membership){.rank = -1};
    e->me.number = e->place->hello.rank; /* until a list gives it one */
    TRMI_TRY(open_door(e, err));
    return meet_nobody(e, err);
}

/* Lets the ranks begin without those that do not come: more than half of them, so that two parts of
 * a cut network, or ranks of a job that runs and ranks that were started again, never both go on.
 * At a unix socket the launcher notes the ranks that do not come (side_place.h). */
static void begin_early(const trm_elastic *e, trmi_join *join) {
    const int32_t majority = join->hello.size / 2 + 1;
    if (join->hello.size > 1 && join->place.kind != TRMI_PLACE_UNIX) {
        join->least = majority > e->options.least ? majority : e->options.least;
        join->quiet_seconds = fmin(quiet_seconds, join->options.timeout_seconds / 4);
    }
}

/* Contract in trireme/dist.h. END of the rendezvous means that the job runs already: this
 * process then stands outside, with a communicator of its own, and knows where to ask for
 * admission. */
trm_status trm_elastic_create(const trm_cluster *cluster, const trm_elastic_options *options,
                              trm_elastic **out, trm_error *err) {
    TRMI_NEED(err, cluster, out);
    trm_elastic *e = NULL;
    trm_error own;
    if (options != NULL && options->most > 0 && options->least > options->most) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "elastic job: it needs more ranks than it may have (least %d, most %d); "
                         "raise most",
                         options->least, options->most);
    }
    err = err != NULL ? err : &own;
    trm_status status = create_elastic(cluster, options, &e, err);
    if (status == TRM_OK) {
        trmi_join join = *e->place;
        join.running = take_running;
        join.running_context = e;
        begin_early(e, &join);
        join.holds = trm_cluster_get(cluster)->others_may_join ? &e->held : NULL;
        join.lasting = e->place;
        status = trmi_side_join(cluster, &join, &e->bootstrap, err);
    }
    status = status == TRM_OK    ? begin_first_epoch(e, err)
             : status == TRM_END ? stand_outside(e, err)
                                 : status;
    status = status == TRM_OK ? trmi_gate_open(e, err) : status;
    if (status == TRM_OK) {
        *out = e;
        return TRM_OK;
    }
    if (e != NULL && e->bootstrap != NULL &&
        trmi_bootstrap_healthy(e->bootstrap)) { /* the peers would wait for this rank */
        e->bootstrap->table->poison(e->bootstrap, err);
    }
    trm_elastic_destroy(e);
    return status;
}

/* Contract in trireme/dist.h. Keys are overwritten before their memory is freed. */
void trm_elastic_destroy(trm_elastic *e) {
    if (e == NULL) {
        return;
    }
    leave_epoch(e);
    trmi_gate_close(e);
    trmi_door_close(e);
    trmi_listener_close(&e->meeting);
    trmi_members_free(&e->now);
    trmi_members_free(&e->base);
    trmi_members_free(&e->vote.accepted);
    trmi_free(e->guests);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    if (e->place != NULL) {
        trmi_reception_close(&e->held, e->place);
        explicit_bzero(e->place, sizeof *e->place);
    }
    trmi_free(e->place);
    explicit_bzero(e->key, sizeof e->key);
    trmi_free(e);
}

/* ---- the next epoch -------------------------------------------------------------------------- */

/* While members meet, one of them asks another one's door so often; a door that has refused
 * connections for so long belongs to a process that has gone. */
static const double ask_seconds = 0.1, refusing_seconds = 1;

/* The state of this rank while the ranks of an epoch meet. */
typedef struct epoch_meeting {
    trm_elastic *e;
    trmi_members now;
    int32_t asks; /* index of the member whose door is asked */
    double asked; /* when */
    double since; /* when this door first refused a connection; 0: it has not */
} epoch_meeting;

/* Returns whether a member of another host has gone. A process has its door open as long as it is
 * in the job. Asks one door at a time, and stays with one that refuses. */
static bool has_gone(epoch_meeting *m) {
    const trmi_member *member = &m->now.list[m->asks];
    const double now = trmi_os_now();
    trmi_link link;
    trm_error why = {0};
    if (now - m->asked < ask_seconds) {
        return false;
    }
    m->asked = now;
    if (member->id != m->e->me.id && !trmi_process_is_running(&m->e->me, member)) {
        if (trmi_door_call(m->e, member, &link, &why) == TRM_OK) {
            trmi_link_close(&link);
        } else if (why.sys_errno == ECONNREFUSED) {
            m->since = m->since > 0 ? m->since : now;
            return now - m->since >= refusing_seconds;
        }
    }
    m->since = 0;
    m->asks = (m->asks + 1) % m->now.count;
    return false;
}

/* Returns whether the meeting cannot succeed: a member has died, or the epoch has ended. */
static bool is_abandoned(void *context) {
    epoch_meeting *m = context;
    pthread_mutex_lock(&m->e->lock);
    bool over = m->e->now.epoch > m->now.epoch;
    pthread_mutex_unlock(&m->e->lock);
    for (int32_t i = 0; i < m->now.count && !over; i++) {
        over = trmi_process_is_dead(&m->e->me, &m->now.list[i]);
    }
    return over || has_gone(m);
}

/* Fills in what this rank brings to the meeting. The token is the key of this epoch alone, so that
 * no process of another epoch can take part. */
static trm_status prepare_meeting(epoch_meeting *m, trmi_join *join, trm_error *err) {
    trm_elastic *e = m->e;
    const trmi_member *root = &m->now.list[0];
    char place[80], epoch[32];
    *join = *e->place;
    join->has_token = true;
    join->watched = false;
    join->hint = "";
    join->abandoned = is_abandoned;
    join->abandoned_context = m;
    join->once = true;
    memset(join->hello.digest, 0, sizeof join->hello.digest);
    join->hello.rank = trmi_members_find(&m->now, e->me.id);
    join->hello.size = m->now.count;
    join->hello.device = -1;
    snprintf(join->address, sizeof join->address, "%s", e->me.address);
    snprintf(epoch, sizeof epoch, "epoch %lld", (long long)m->now.epoch);
    trmi_net_mac(e->key, epoch, NULL, 0, NULL, 0, join->token);
    trmi_net_mac(e->key, "members", epoch, strlen(epoch), NULL, 0, join->hello.key);
    snprintf(place, sizeof place, strchr(root->address, ':') != NULL ? "[%s]:%d" : "%s:%d",
             root->address, root->meeting_port);
    TRMI_TRY(trmi_place_parse(place, 1, &join->place, err));
    if (join->hello.rank == 0) {
        join->listener = e->meeting;
        join->listens = true;
        e->meeting = (trmi_listener){.lock_fd = -1};
    }
    return TRM_OK;
}

/* Returns the id of the process that a failure names and without which the ranks go on; 0: none.
 * That is one that has come since the change began, and has failed for want of memory or
 * descriptors. While the ranks meet, INVALID says that options differ: a member suspects the one
 * that is named; one that comes does so, too, unless that is rank 0, where it finds its own
 * difference first, because processes that come are behind the members. members: the ranks that
 * err->rank numbers. */
static uint64_t find_suspect(const trm_elastic *e, const trmi_members *members, bool meets,
                             trm_status status, const trm_error *err) {
    if (status == TRM_OK || e->base.list == NULL || err->rank < 0 || err->rank >= members->count) {
        return 0;
    }
    const uint64_t id = members->list[err->rank].id;
    const bool is_member = trmi_members_find(&e->base, e->me.id) >= 0;
    const bool came = trmi_members_find(&e->base, id) < 0 && status != TRM_PEER;
    const bool differs = meets && status == TRM_INVALID && (is_member || err->rank > 0);
    return id != e->me.id && ((is_member && came) || differs) ? id : 0;
}

trm_status trmi_elastic_excuse_newcomer(trm_elastic *e, trm_status status, trm_error *err) {
    pthread_mutex_lock(&e->lock);
    const bool excused = find_suspect(e, &e->now, false, status, err) != 0;
    pthread_mutex_unlock(&e->lock);
    err->status = excused ? TRM_PEER : err->status;
    return excused ? TRM_PEER : status;
}

/* Meets the ranks of the present epoch and makes their communicator. *suspect: id of the process
 * without which they go on (find_suspect); 0: none. */
static trm_status meet_members(trm_elastic *e, uint64_t *suspect, trm_error *err) {
    epoch_meeting m = {.e = e, .now = {.ballot = -1}, .asked = trmi_os_now()};
    trmi_join join;
    pthread_mutex_lock(&e->lock);
    trm_status status = trmi_members_copy(&m.now, &e->now, err);
    pthread_mutex_unlock(&e->lock);
    status = status == TRM_OK ? prepare_meeting(&m, &join, err) : status;
    status = status == TRM_OK ? trmi_side_meet(&join, &e->bootstrap, err) : status;
    status =
        status == TRM_OK ? trm_comm_create(e->bootstrap, &e->options.comm, &e->comm, err) : status;
    *suspect = find_suspect(e, &m.now, true, status, err);
    if (*suspect != 0) {
        status = err->status = TRM_PEER;
    }
    if (status == TRM_OK) {
        e->membership.epoch = m.now.epoch;
        e->membership.rank = e->bootstrap->rank;
        e->membership.ranks = e->bootstrap->size;
    }
    trmi_members_free(&m.now);
    return status;
}

/* Appends a number to a text "2, 5" of trm_membership. */
static void add_number(char text[96], int32_t *count, int32_t number) {
    const size_t used = strlen(text);
    (*count)++;
    if (used < 80) {
        snprintf(text + used, 96 - used, "%s%d", used > 0 ? ", " : "", number);
    }
}

/* Appends the numbers of the ranks of the job that have died before the first epoch began. Only its
 * members know how many there were to be. */
static void list_early(const trm_elastic *e, const trmi_members *first, trm_membership *m) {
    const bool knows = first->epoch == 1 && trmi_members_find(first, e->me.id) >= 0;
    for (int32_t number = 0; knows && number < e->place->hello.size; number++) {
        bool here = false;
        for (int32_t i = 0; i < first->count; i++) {
            here = here || first->list[i].number == number;
        }
        if (!here) {
            add_number(m->lost, &m->lost_count, number);
        }
    }
}

/* Describes what differs between the epoch `before` and the present one. before->list[].leaves: the
 * member has left in order, in this epoch or one in between. */
static void describe_change(trm_elastic *e, trmi_members *before) {
    trm_membership *m = &e->membership;
    m->lost[0] = m->left[0] = m->joined[0] = '\0';
    m->lost_count = m->left_count = m->joined_count = 0;
    pthread_mutex_lock(&e->lock);
    list_early(e, before, m);
    for (int32_t i = 0; i < before->count; i++) {
        trmi_member *member = &before->list[i];
        member->leaves = member->leaves != 0 || trmi_members_has_left(&e->now, member->id);
        if (trmi_members_find(&e->now, member->id) < 0) {
            add_number(member->leaves ? m->left : m->lost,
                       member->leaves ? &m->left_count : &m->lost_count, member->number);
        }
    }
    for (int32_t i = 0; i < e->now.count; i++) {
        if (trmi_members_find(before, e->now.list[i].id) < 0) {
            add_number(m->joined, &m->joined_count, e->now.list[i].number);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

/* Copies the present list. No member of the copy has left. */
static trm_status copy_present(trm_elastic *e, trmi_members *out, trm_error *err) {
    pthread_mutex_lock(&e->lock);
    trm_status status = trmi_members_copy(out, &e->now, err);
    pthread_mutex_unlock(&e->lock);
    for (int32_t i = 0; status == TRM_OK && i < out->count; i++) {
        out->list[i].leaves = 0;
    }
    return status;
}

trm_status trmi_elastic_begin_change(trm_elastic *e, trm_error *err) {
    return copy_present(e, &e->base, err);
}

void trmi_elastic_end_change(trm_elastic *e) { trmi_members_free(&e->base); }

/* Decides and meets until an epoch has begun. */
static trm_status begin_epoch(trm_elastic *e, uint64_t suspect, trm_error *err) {
    for (;;) {
        TRMI_TRY(open_meeting(e, err));
        TRMI_TRY(trmi_elastic_decide(e, suspect, err));
        pthread_mutex_lock(&e->lock);
        int32_t left = e->now.count;
        pthread_mutex_unlock(&e->lock);
        if (left < e->options.least) {
            return TRMI_FAIL(err, TRM_PEER,
                             "%d rank%s left, the job needs %d (--elastic); --resume continues it "
                             "from the newest checkpoint",
                             left, left == 1 ? " is" : "s are", e->options.least);
        }
        suspect = 0;
        trm_status status = meet_members(e, &suspect, err);
        if (!trm_elastic_can_recover(status)) {
            return status;
        }
        trmi_log(suspect != 0 ? TRM_LOG_WARN : TRM_LOG_DEBUG, "comm", "elastic: %s", err->message);
        leave_epoch(e);
    }
}

/* Leaves the present epoch, and makes the other ranks leave it, too. *why: the error of the
 * operation that has failed, then the first cause of the job. Returns the id of the rank that the
 * cause names as lost; 0: none. A rank that has left the epoch by itself is no suspect. */
static uint64_t abandon_epoch(trm_elastic *e, const trmi_members *members, trm_error *why) {
    if (e->bootstrap != NULL && e->bootstrap->size > 1) {
        (void)e->bootstrap->table->check(e->bootstrap, why);
        if (trmi_bootstrap_healthy(e->bootstrap)) {
            trm_error leaving;
            TRMI_FAIL(&leaving, TRM_PEER, "rank %d leaves epoch %lld", e->bootstrap->rank,
                      (long long)members->epoch);
            leaving.rank = e->bootstrap->rank;
            leaving.sys_errno = ESHUTDOWN;
            e->bootstrap->table->poison(e->bootstrap, &leaving);
        }
    }
    leave_epoch(e);
    bool named = why->status == TRM_PEER && why->sys_errno != ESHUTDOWN && why->rank >= 0 &&
                 why->rank < members->count && members->list[why->rank].id != e->me.id;
    return named ? members->list[why->rank].id : 0;
}

trm_status trmi_elastic_stand_alone(trm_elastic *e, const trm_error *cause, trm_error *err) {
    trmi_members members = {.ballot = -1};
    trm_error why = *cause;
    TRMI_TRY(copy_present(e, &members, err));
    e->suspect = abandon_epoch(e, &members, &why);
    e->membership.rank = -1;
    trmi_members_free(&members);
    return meet_nobody(e, err);
}

/* Ends the wish of a process that had to stay. A wish that came after the decision began stays. */
static void settle_wish(trm_elastic *e) {
    if (e->wished) {
        e->membership.stays = true;
        pthread_mutex_lock(&e->lock);
        atomic_store(&e->leaving, false);
        e->me.leaves = 0;
        pthread_mutex_unlock(&e->lock);
    }
}

/* Contract in trireme/dist.h. Abandons the old epoch, which makes every rank that still waits
 * in it fail and come here, decides with the survivors on the next epoch, and compares both
 * lists of members. */
trm_status trm_elastic_recover(trm_elastic *e, const trm_error *cause, trm_error *err) {
    TRMI_NEED(err, e);
    double begin = trmi_os_now();
    trmi_members before = {.ballot = -1};
    trm_error own;
    trm_error why = cause != NULL ? *cause : (trm_error){.rank = -1};
    err = err != NULL ? err : &own;
    TRMI_TRY(copy_present(e, &before, err));
    uint64_t suspect = abandon_epoch(e, &before, &why);
    suspect = suspect != 0 ? suspect : e->suspect;
    e->suspect = 0;
    const bool alone = e->base.list == NULL; /* this call is the whole change */
    trm_status status = alone ? trmi_members_copy(&e->base, &before, err) : TRM_OK;
    status = status == TRM_OK ? begin_epoch(e, suspect, err) : status;
    if (status == TRM_OK) {
        describe_change(e, &e->base);
        settle_wish(e);
        e->membership.seconds = trmi_os_now() - begin;
    } else {
        e->membership.rank = -1;
        if (status == TRM_END) { /* a launcher must not take its good end for that of the job */
            trmi_place_add_left(&e->place->place);
        }
    }
    if (alone) {
        trmi_elastic_end_change(e);
    }
    trmi_members_free(&before);
    return status;
}
