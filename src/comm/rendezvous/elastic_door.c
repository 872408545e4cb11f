/* SPDX-License-Identifier: Apache-2.0 */
/* The door of a process in an elastic job: the socket at which it hears JOIN, and its thread.
 *
 *   JOIN of an older epoch      COMMIT with the present list: its sender learns what was decided
 *   JOIN of the present epoch   a guest, for the ballot that this process coordinates or will; OVER if it has
 *                               promised a later one
 *   JOIN of a later epoch       its sender knows the list of that epoch and has sent it along
 *   JOIN with ballot -1         COMMIT with the present list; says whether its sender wants to leave, so that the
 *                               ranks end the epoch
 *
 * JOIN on the wire: i32 ballot, i32 0, the sender's entry, its present list, its accepted list. */
#include "comm/rendezvous/elastic.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/rendezvous/side_hello.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* a process that has proved the key sends its JOIN within this time */
static const double join_seconds = 5;
/* a door that lives answers within this time */
static const double call_seconds = 1;

void trmi_guest_free(trmi_join_guest *guest) {
    trmi_link_close(&guest->link);
    trmi_members_free(&guest->accepted);
}

void trmi_guest_send(trmi_join_guest *guest, trmi_frame_type type, const trmi_members *list) {
    uint8_t *wire = trmi_alloc(trmi_members_bytes(list));
    if (wire != NULL) {
        size_t bytes = trmi_members_encode(list, wire);
        /* A guest without its list asks the next coordinator. */
        if (trmi_link_put(&guest->link, type, list->epoch, wire, bytes)) {
            (void)trmi_link_flush(&guest->link);
        }
        trmi_free(wire);
    }
}

/* Contract in elastic.h. With a later list nothing of the old epoch counts any more: promises
 * and guests are for it. */
trm_status trmi_elastic_adopt(trm_elastic *e, const trmi_members *list, trm_error *err) {
    if (list->epoch <= e->now.epoch) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_members_copy(&e->now, list, err));
    trmi_members_free(&e->vote.accepted);
    e->vote = TRMI_VOTE_NONE;
    for (int32_t g = e->guest_count - 1; g >= 0; g--) {
        if (e->guests[g].epoch < list->epoch) {
            trmi_guest_send(&e->guests[g], TRMI_FRAME_COMMIT, &e->now);
            trmi_guest_free(&e->guests[g]);
            e->guests[g] = e->guests[--e->guest_count];
        }
    }
    pthread_cond_broadcast(&e->changed);
    return TRM_OK;
}

/* Reads a JOIN into `guest`; *present: the sender's list. */
static trm_status read_join(const trmi_frame *frame, trmi_join_guest *guest, trmi_members *present,
                            trm_error *err) {
    const size_t head = 8 + TRMI_MEMBER_BYTES;
    size_t used = 0;
    if (frame->type != TRMI_FRAME_JOIN || frame->bytes < head) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame type %u of %u bytes, a JOIN expected",
                         frame->type, frame->bytes);
    }
    guest->ballot = (int32_t)trmi_get32(frame->payload);
    trmi_member_decode(frame->payload + 8, &guest->entry);
    TRMI_TRY(trmi_members_decode(frame->payload + head, frame->bytes - head, present, &used, err));
    guest->epoch = present->epoch;
    return trmi_members_decode(frame->payload + head + used, frame->bytes - head - used,
                               &guest->accepted, &used, err);
}

/* Receives the JOIN of a connection that has proved the key. */
static trm_status receive_join(trmi_join_guest *guest, trmi_members *present, trm_error *err) {
    trmi_frame frame;
    double deadline = trmi_os_now() + join_seconds;
    for (bool closed = false;;) { /* what came before the end of the connection counts */
        trm_status status = trmi_link_next(&guest->link, &frame, err);
        if (status != TRM_END) {
            return status == TRM_OK ? read_join(&frame, guest, present, err) : status;
        }
        if (closed || trmi_os_now() >= deadline) {
            return TRMI_FAIL(err, TRM_PEER, "a process of the job has sent no JOIN");
        }
        struct pollfd wait = {.fd = guest->link.fd, .events = POLLIN};
        poll(&wait, 1, 100);
        closed = trmi_link_fill(&guest->link) < 0;
    }
}

/* Answers a JOIN of an older epoch, or keeps it. Called with the lock held. Returns whether the
 * guest was kept. */
static bool keep_guest(trm_elastic *e, trmi_join_guest *guest, const trmi_members *present) {
    trm_error err;
    if (present->epoch > e->now.epoch && trmi_members_find(present, e->me.id) >= 0 &&
        trmi_elastic_adopt(e, present, &err) != TRM_OK) {
        return false;
    }
    /* the guest is behind: it gets the present list */
    if (guest->epoch < e->now.epoch) {
        trmi_guest_send(guest, TRMI_FRAME_COMMIT, &e->now);
        return false;
    }
    /* it only exchanges lists, and says whether it leaves */
    if (guest->ballot < 0) {
        int32_t index = trmi_members_find(&e->now, guest->entry.id);
        if (index >= 0) {
            e->now.list[index].leaves = guest->entry.leaves;
        }
        trmi_guest_send(guest, TRMI_FRAME_COMMIT, &e->now);
        return false;
    }
    /* it takes part in a decision of this epoch */
    if (guest->epoch > e->now.epoch || e->guest_count >= TRMI_MEMBERS_MAX ||
        !trmi_grow((void **)&e->guests, &e->guest_capacity, e->guest_count + 1,
                   sizeof *e->guests)) {
        return false;
    }
    e->guests[e->guest_count++] = *guest;
    trmi_door_refuse_late(e);
    pthread_cond_broadcast(&e->changed);
    return true;
}

void trmi_door_refuse_late(trm_elastic *e) {
    for (int32_t g = e->guest_count - 1; g >= 0; g--) {
        trmi_join_guest *guest = &e->guests[g];
        if (guest->epoch == e->now.epoch && guest->ballot < e->vote.promised &&
            trmi_members_find(&e->now, guest->entry.id) >= 0) {
            trmi_guest_send(guest, TRMI_FRAME_OVER, &e->now);
            trmi_guest_free(guest);
            *guest = e->guests[--e->guest_count];
        }
    }
}

/* Serves one connection. */
static void serve_session(trm_elastic *e, const trmi_session *session) {
    trmi_join_guest guest = {.link = {.fd = session->fd}, .accepted = {.ballot = -1}};
    trmi_members present = {.ballot = -1};
    trm_error err;
    memcpy(guest.link.send_key, session->down_key, sizeof guest.link.send_key);
    memcpy(guest.link.recv_key, session->up_key, sizeof guest.link.recv_key);
    bool kept = false;
    if (receive_join(&guest, &present, &err) == TRM_OK) {
        pthread_mutex_lock(&e->lock);
        kept = keep_guest(e, &guest, &present);
        pthread_mutex_unlock(&e->lock);
    } else {
        trmi_log(TRM_LOG_DEBUG, "comm", "elastic: %s: %s", session->peer, err.message);
    }
    if (!kept) {
        trmi_guest_free(&guest);
    }
    trmi_members_free(&present);
}

/* Tells rank 0 once that this process wants to leave. It may be a spare rank, which no step
 * asks. */
static void tell_leaving(trm_elastic *e, int64_t *told_epoch) {
    trmi_link link = {.fd = -1};
    trm_error err;
    pthread_mutex_lock(&e->lock);
    bool told = *told_epoch == e->now.epoch || trmi_members_find(&e->now, e->me.id) <= 0;
    const trmi_member first = e->now.count > 0 ? e->now.list[0] : e->me;
    pthread_mutex_unlock(&e->lock);
    trm_status status = told ? TRM_END : trmi_door_call(e, &first, &link, &err);
    if (status == TRM_OK) {
        pthread_mutex_lock(&e->lock);
        e->me.leaves = 1;
        if (trmi_door_send_join(e, &link, -1, &e->now, &err) == TRM_OK) {
            *told_epoch = e->now.epoch;
        }
        pthread_mutex_unlock(&e->lock);
    }
    trmi_link_close(&link);
}

/* The thread of the door: serves one session after another until the job ends. It also tells rank 0
 * that this process wants to leave. */
static void *door_main(void *context) {
    trm_elastic *e = context;
    trmi_session session;
    trm_error err;
    int64_t told_epoch = -1; /* of which rank 0 knows that this process wants to leave */
    for (;;) {
        if (atomic_load(&e->leaving)) {
            tell_leaving(e, &told_epoch);
        }
        trm_status status = trmi_acceptor_next(e->door, 1, &session, &err);
        pthread_mutex_lock(&e->lock);
        bool stop = e->stop;
        pthread_mutex_unlock(&e->lock);
        if (status == TRM_OK && !stop) {
            serve_session(e, &session);
        } else if (status == TRM_OK) {
            close(session.fd);
        }
        if (stop || (status != TRM_OK && status != TRM_TIMEOUT)) {
            return NULL;
        }
    }
}

/* Contract in elastic.h. A door is called with a short deadline: the process behind it may be
 * dead. */
trm_status trmi_door_call(const trm_elastic *e, const trmi_member *to, trmi_link *link,
                          trm_error *err) {
    const trmi_wait_limit limit = {.deadline = trmi_os_now() + call_seconds};
    trmi_credentials mine = {.service = TRMI_SERVICE_RENDEZVOUS, .version = TRMI_SIDE_VERSION};
    trmi_session session;
    int fd;
    TRMI_TRY(trmi_net_connect(to->address, to->port, &limit, &fd, err));
    memcpy(mine.token, e->key, sizeof mine.token);
    trm_status status = trmi_net_prove_token(fd, &mine, &limit, &session, err);
    explicit_bzero(&mine, sizeof mine);
    if (status != TRM_OK) {
        close(fd);
        return status;
    }
    *link = (trmi_link){.fd = fd};
    memcpy(link->send_key, session.up_key, sizeof link->send_key);
    memcpy(link->recv_key, session.down_key, sizeof link->recv_key);
    return TRM_OK;
}

trm_status trmi_door_send_join(const trm_elastic *e, trmi_link *link, int32_t ballot,
                               const trmi_members *present, trm_error *err) {
    const trmi_members *accepted = &e->vote.accepted;
    size_t bytes = 8 + TRMI_MEMBER_BYTES;
    uint8_t *wire = trmi_alloc(bytes + trmi_members_bytes(present) + trmi_members_bytes(accepted));
    if (wire != NULL) {
        trmi_put32(wire, (uint32_t)ballot);
        trmi_member_encode(&e->me, wire + 8);
        bytes += trmi_members_encode(present, wire + bytes);
        bytes += trmi_members_encode(accepted, wire + bytes);
    }
    bool sent = wire != NULL && trmi_link_put(link, TRMI_FRAME_JOIN, 0, wire, bytes) &&
                trmi_link_flush(link);
    trmi_free(wire);
    return sent ? TRM_OK : TRMI_FAIL(err, TRM_PEER, "JOIN could not be sent");
}

trm_status trmi_door_bind(const char *address, int *fd, int32_t *port, trm_error *err) {
    char name[TRMI_NET_NAME_BYTES], host[64];
    TRMI_TRY(trmi_net_bind(address, 0, fd, name, err));
    trm_status status = trmi_net_split(name, host, port, err);
    if (status != TRM_OK) {
        close(*fd);
    }
    return status;
}

/* Contract in elastic.h. The port is free of choice; the list of members carries it to the
 * others. */
trm_status trmi_door_open(trm_elastic *e, const char *address, trm_error *err) {
    trmi_acceptor_options options = {
        .credentials = {.service = TRMI_SERVICE_RENDEZVOUS, .version = TRMI_SIDE_VERSION},
        .room = "comm",
        .name = "elastic"};
    int fd;
    TRMI_TRY(trmi_door_bind(address, &fd, &e->me.port, err));
    memcpy(options.credentials.token, e->key, sizeof options.credentials.token);
    trm_status status = trmi_acceptor_create(&fd, 1, &options, &e->door, err);
    explicit_bzero(&options, sizeof options);
    TRMI_TRY(status);
    int problem = pthread_create(&e->thread, NULL, door_main, e);
    if (problem != 0) {
        return TRMI_FAIL(err, TRM_NOMEM, "no thread for an elastic job (%s)", strerror(problem));
    }
    e->started = true;
    return TRM_OK;
}

/* Contract in elastic.h. The thread ends before guests are freed, since it adds them. */
void trmi_door_close(trm_elastic *e) {
    if (e->started) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_mutex_unlock(&e->lock);
        trmi_acceptor_stop(e->door);
        pthread_join(e->thread, NULL);
        e->started = false;
    }
    trmi_acceptor_destroy(e->door);
    e->door = NULL;
    for (int32_t g = 0; g < e->guest_count; g++) {
        trmi_guest_free(&e->guests[g]);
    }
    e->guest_count = 0;
}
