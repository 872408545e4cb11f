/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of an elastic job: the place at which its ranks met first (TRIREME_RENDEZVOUS), where a
 * process that comes later, with the token, learns that the job runs.
 *
 *   newcomer                                     the process of the job that holds the place
 *     HELLO, proof of the token -------------->    proof
 *          <------------------------- RUNNING      the job's key and the present list
 *     JOIN to the door of a member (elastic_decide.c)
 *
 * One process holds the place: the first that can. When it dies or leaves, another one opens it
 * within open_seconds; where its file is removed, it is opened anew. Where a newcomer that takes
 * itself for rank 0 of a new job has been quicker, or no member is on the host of the place, rank 0
 * of the running job goes there (TRMI_HERALD) and brings RUNNING: 32 bytes, the key XOR HMAC(the
 * session's key for frames to the newcomer, "job key\0"), then the list. The session's key is
 * fresh, so the mask is used once. */
#include "comm/rendezvous/elastic.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/rendezvous/side.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* between two attempts to open the place; a newcomer takes its RUNNING within send_seconds */
static const double open_seconds = 0.1, send_seconds = 1;
/* between two visits of rank 0 to a place that another process holds */
static const double visit_seconds = 0.5;
/* after so long the process that holds the place opens it anew where its file was removed */
static const double file_seconds = 1;

/* Bytes of the job's key. */
enum { KEY_BYTES = 32 };

/* Masks or unmasks the job's key for one session. */
static void mask_key(const uint8_t session_key[32], const uint8_t *from, uint8_t *to) {
    uint8_t mask[KEY_BYTES];
    trmi_net_mac(session_key, "job key", NULL, 0, NULL, 0, mask);
    for (int i = 0; i < KEY_BYTES; i++) {
        to[i] = from[i] ^ mask[i];
    }
    explicit_bzero(mask, sizeof mask);
}

trm_status trmi_gate_read(const trmi_link *link, const trmi_frame *frame, uint8_t key[32],
                          trmi_members *list, trm_error *err) {
    size_t used;
    if (frame->bytes < KEY_BYTES) {
        return TRMI_FAIL(err, TRM_CORRUPT, "the answer of a running job has %u bytes",
                         frame->bytes);
    }
    mask_key(link->recv_key, frame->payload, key);
    return trmi_members_decode(frame->payload + KEY_BYTES, frame->bytes - KEY_BYTES, list, &used,
                               err);
}

/* Sends RUNNING. context: the elastic job */
static void send_running(void *context, trmi_link *link) {
    trm_elastic *e = context;
    pthread_mutex_lock(&e->lock);
    size_t bytes = KEY_BYTES + trmi_members_bytes(&e->now);
    uint8_t *wire = trmi_alloc(bytes);
    if (wire != NULL) {
        mask_key(link->send_key, e->key, wire);
        trmi_members_encode(&e->now, wire + KEY_BYTES);
    }
    pthread_mutex_unlock(&e->lock);
    double deadline = trmi_os_now() + send_seconds;
    bool good = wire != NULL && trmi_link_put(link, TRMI_FRAME_RUNNING, 0, wire, bytes);
    while (good && trmi_link_flush(link) && link->out_sent < link->out_bytes &&
           trmi_os_now() < deadline) {
        struct pollfd wait = {.fd = link->fd, .events = POLLOUT};
        poll(&wait, 1, 100);
    }
    trmi_free(wire);
}

/* Answers a process that has proved the token. */
static void answer_newcomer(trm_elastic *e, const trmi_session *session) {
    trmi_link link = {.fd = session->fd};
    trmi_hello hello;
    memcpy(link.send_key, session->down_key, sizeof link.send_key);
    memcpy(link.recv_key, session->up_key, sizeof link.recv_key);
    if (trmi_hello_decode(session->detail, session->detail_bytes, &hello) &&
        memcmp(hello.key, e->place->hello.key, sizeof hello.key) == 0) {
        send_running(e, &link);
    } else {
        trmi_side_refuse(&link, TRM_PENDING, "another job runs at %s", e->place->place.text);
    }
    trmi_link_close(&link);
}

/* Returns this process's rank in the present epoch; -1: it is no member, and does not hold the
 * place. */
static int32_t find_rank(trm_elastic *e, bool *stop) {
    pthread_mutex_lock(&e->lock);
    int32_t rank = trmi_members_find(&e->now, e->me.id);
    *stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return rank;
}

/* Tells the process that holds the place that the job runs, and where its doors are. */
static void visit_place(trm_elastic *e, const trmi_join *place) {
    trmi_join join = *place;
    trm_error ignored;
    join.hello.rank = TRMI_HERALD;
    (void)!trmi_side_ask_running(&join, send_running, e, &ignored);
    explicit_bzero(&join, sizeof join);
}

/* Waits `seconds`, or until the job ends for this process. */
static void wait_closed(trm_elastic *e, double seconds) {
    const double until = trmi_os_now() + seconds;
    pthread_mutex_lock(&e->lock);
    while (!e->stop && trmi_os_wait(&e->changed, &e->lock, until)) {
    }
    pthread_mutex_unlock(&e->lock);
}

/* Opens the place, or takes the one that is open since the job began, or closes it; trmi_gate_close
 * finds the acceptor. */
static trm_status open_place(trm_elastic *e, trmi_join *place, trmi_reception *reception,
                             trm_error *err) {
    if (e->held.acceptor != NULL) {
        *reception = e->held;
        e->held = TRMI_RECEPTION_CLOSED;
    } else {
        TRMI_TRY(trmi_reception_open(place, trmi_os_now(), reception, err));
    }
    pthread_mutex_lock(&e->lock);
    e->gate_acceptor = reception->acceptor;
    pthread_mutex_unlock(&e->lock);
    return TRM_OK;
}
/* Closes the place. The pointer goes first, under the lock, so that no other thread stops an
 * acceptor that is gone. */
static void close_place(trm_elastic *e, const trmi_join *place, trmi_reception *reception) {
    pthread_mutex_lock(&e->lock);
    e->gate_acceptor = NULL;
    pthread_mutex_unlock(&e->lock);
    trmi_reception_close(reception, place);
}

/* The gate's thread: listens at the rendezvous of the job, so that processes that come later
 * learn that it runs and can ask for admission. One rank holds the gate; the others try from
 * time to time, because the holder may have died. */
static void *gate_main(void *context) {
    trm_elastic *e = context;
    trmi_join place = *e->place; /* its token is chosen anew each time */
    trmi_reception reception = TRMI_RECEPTION_CLOSED;
    trmi_session session;
    trm_error err;
    bool stop;
    uint64_t file = 0; /* that of the place, when it was opened */
    double visited = trmi_os_now(), compared = visited;
    for (;;) {
        int32_t rank = find_rank(e, &stop);
        if (stop) {
            break;
        }
        trm_status status = TRM_OK;
        if (reception.acceptor == NULL) {
            status = rank >= 0 ? open_place(e, &place, &reception, &err) : TRM_PENDING;
            file = trmi_listener_file(&reception.listener);
        }
        if (status != TRM_OK) { /* another process holds it */
            if (rank == 0 && trmi_os_now() - visited > visit_seconds) {
                visit_place(e, &place);
                visited = trmi_os_now();
            }
            wait_closed(e, open_seconds);
            continue;
        }
        status = trmi_acceptor_next(reception.acceptor, open_seconds, &session, &err);
        if (status == TRM_OK) {
            answer_newcomer(e, &session);
        }
        bool lost = false;
        if (trmi_os_now() - compared > file_seconds) {
            compared = trmi_os_now();
            lost = trmi_listener_file(&reception.listener) != file;
        }
        if (rank < 0 || lost || (status != TRM_OK && status != TRM_TIMEOUT)) {
            close_place(e, &place, &reception);
        }
    }
    close_place(e, &place, &reception);
    explicit_bzero(&place, sizeof place);
    return NULL;
}

trm_status trmi_gate_open(trm_elastic *e, trm_error *err) {
    if (e->place->place.text[0] == '\0') { /* a job of one rank may have no place */
        return TRM_OK;
    }
    int problem = pthread_create(&e->gate, NULL, gate_main, e);
    if (problem != 0) {
        return TRMI_FAIL(err, TRM_NOMEM, "no thread for the place of an elastic job (%s)",
                         strerror(problem));
    }
    e->gate_started = true;
    return TRM_OK;
}

void trmi_gate_close(trm_elastic *e) {
    if (e->gate_started) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        if (e->gate_acceptor != NULL) {
            trmi_acceptor_stop(e->gate_acceptor);
        }
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->gate, NULL);
        e->gate_started = false;
    }
}
