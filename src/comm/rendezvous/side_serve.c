/* SPDX-License-Identifier: Apache-2.0 */
/* The service thread of the control channel: sends and checks heartbeats, notices deaths,
 * distributes the first cause, and serves exchanges (side_exchange.c). Deaths are noticed in three
 * ways: a closed connection (the process ended), TCP_USER_TIMEOUT (its host does not answer), and
 * missing heartbeats (the process is stopped or hung).
 *
 *   service_main: poll -> serve_link (flush, fill, frames -> handle_frame)
 *                      -> send_heartbeats -> trmi_exchange_tick
 *   a loss -> close_lost_link -> trmi_side_raise -> rank 0 sends POISON to all -> every wait ends
 *
 * The functions above service_main are called with the lock held. */
#include "comm/rendezvous/side.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/futex.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends a frame to all peers: rank 0 to all other ranks, the others to rank 0. */
static void send_to_all(trmi_side *side, trmi_frame_type type, const void *payload, size_t bytes) {
    for (int32_t l = 0; l < side->link_count; l++) {
        trmi_link *link = &side->links[l];
        if (link->fd >= 0 && trmi_link_put(link, type, 0, payload, bytes)) {
            trmi_link_flush(link); /* the service thread notices a broken connection */
        }
    }
}

/* Contract in side.h. Only the first call has an effect. The cause is complete before the alarm is
 * set. */
void trmi_side_raise(trmi_side *side, const trm_error *cause) {
    uint8_t wire[256];
    uint64_t one = 1;
    bool first = __atomic_load_n(&side->alarm, __ATOMIC_ACQUIRE) == 0;
    if (!first) {
        return;
    }
    side->cause = *cause;
    if (side->cause.status >= 0) {
        side->cause.status = TRM_PEER;
    }
    /* Rank 0 distributes the cause; the other ranks report theirs to it (side_poison in
     * rendezvous_tcp.c). */
    if (side->base.rank == 0) {
        trmi_error_encode(&side->cause, wire);
        send_to_all(side, TRMI_FRAME_POISON, wire, sizeof wire);
    }
    /* The alarm ends waits of every kind: on its word, on its descriptor, on the condition. */
    __atomic_store_n(&side->alarm, 1, __ATOMIC_RELEASE);
    trmi_futex_wake(&side->alarm, INT32_MAX);
    if (write(side->base.alarm_fd, &one, sizeof one) < 0) {
        trmi_log(TRM_LOG_DEBUG, "comm", "alarm already raised");
    }
    pthread_cond_broadcast(&side->changed);
}

/* Returns the rank at the other end of link `index`. */
static int32_t rank_of(const trmi_side *side, int32_t index) {
    return side->base.rank == 0 ? index : 0;
}

/* Closes a link that is lost or useless. Unless the peer has left in order, this poisons the job.
 * problem: errno of the failure, 0: closed; detail: a more precise error, or NULL. */
static void close_lost_link(trmi_side *side, int32_t index, int problem, const trm_error *detail) {
    trmi_link *link = &side->links[index];
    int32_t rank = rank_of(side, index);
    char name[112];
    trm_error cause;
    bool orderly = link->bye || side->stop;
    trmi_link_close(link);
    if (orderly) {
        trmi_exchange_left(side, rank);
        return;
    }
    /* Take the most precise description of the loss. */
    trmi_side_name(side, rank, name);
    if (detail != NULL) {
        TRMI_FAIL(&cause, TRM_PEER, "control channel to %s: %.100s", name, detail->message);
    } else if (problem == ETIMEDOUT || problem == EHOSTUNREACH || problem == ENETUNREACH) {
        TRMI_FAIL(&cause, TRM_PEER, "%s: no answer from its host for %.1f s (%s)", name,
                  side->options.host_seconds, strerror(problem));
    } else {
        TRMI_FAIL(&cause, TRM_PEER, "%s died: its connection %s", name,
                  problem == 0 || problem == ECONNRESET || problem == EPIPE ? "closed"
                                                                            : strerror(problem));
    }
    cause.rank = rank;
    trmi_side_raise(side, &cause);
}

/* Acts on one frame. A frame that this rank must not receive closes the link, which poisons the
 * job: the peer runs another version, or is broken. */
static void handle_frame(trmi_side *side, int32_t index, const trmi_frame *frame) {
    trmi_link *link = &side->links[index];
    int32_t rank = rank_of(side, index);
    bool root = side->base.rank == 0;
    trm_error error;
    /* the peer leaves in order, or the job is poisoned */
    if (frame->type == TRMI_FRAME_BYE) {
        link->bye = true;
        trmi_exchange_left(side, rank);
        pthread_cond_broadcast(&side->changed);
    } else if (frame->type == TRMI_FRAME_POISON && frame->bytes == 256) {
        trmi_error_decode(&error, frame->payload);
        if (!root && __atomic_load_n(&side->alarm, __ATOMIC_ACQUIRE) != 0) {
            side->cause = error; /* rank 0's cause replaces this rank's own */
        }
        trmi_side_raise(side, &error);
    } else if (frame->type == TRMI_FRAME_GATHER && root) {
        trmi_exchange_arrive(side, rank, frame->id, frame->payload, frame->bytes);
    } else if (frame->type == TRMI_FRAME_WHO && root) {
        trmi_exchange_send_missing(side, rank, frame->id);
    } else if (frame->type == TRMI_FRAME_RESULT && !root) {
        /* an exchange has ended well */
        static const trm_error fine;
        trmi_exchange_finish(side, frame->id, &fine, frame->payload, frame->bytes);
    } else if (frame->type == TRMI_FRAME_FAILED && !root && frame->bytes == 256) {
        trmi_error_decode(&error, frame->payload);
        error.status = error.status < 0 ? error.status : TRM_PEER;
        trmi_exchange_finish(side, frame->id, &error, NULL, 0);
    } else if (frame->type == TRMI_FRAME_MISSING && !root) {
        /* the names of ranks that an exchange waits for, for the message of a time-out */
        size_t bytes = frame->bytes < sizeof side->exchange.missing - 1
                           ? frame->bytes
                           : sizeof side->exchange.missing - 1;
        memcpy(side->exchange.missing, frame->payload, bytes);
        side->exchange.missing[bytes] = '\0';
        side->exchange.missing_id = frame->id;
        pthread_cond_broadcast(&side->changed);
    } else if (frame->type != TRMI_FRAME_PING) {
        TRMI_FAIL(&error, TRM_PEER, "frame type %u of %u bytes is not expected here", frame->type,
                  frame->bytes);
        close_lost_link(side, index, 0, &error);
    }
}

/* Sends and receives on one link, and acts on the frames that have arrived. Frames that came before
 * the end of a connection still count, so the loss is handled last. */
static void serve_link(trmi_side *side, int32_t index, short events, double now) {
    trmi_link *link = &side->links[index];
    trm_error error;
    trmi_frame frame;
    int filled = 0, problem = 0;
    /* Send what is waiting. */
    if ((events & POLLOUT) && !trmi_link_flush(link)) {
        filled = -1;
        problem = errno;
    }
    /* Receive what has come; any byte counts as a sign of life. */
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        int received = trmi_link_fill(link);
        if (received < 0) {
            filled = -1;
            problem = errno;
        } else if (received > 0) {
            link->heard_time = now;
            link->warned_at = 0;
        }
    }
    /* Act on the complete frames. */
    for (trm_status status = TRM_OK; status == TRM_OK && link->fd >= 0;) {
        status = trmi_link_next(link, &frame, &error);
        if (status == TRM_OK) {
            handle_frame(side, index, &frame);
        } else if (status != TRM_END) {
            close_lost_link(side, index, 0, &error);
        }
    }
    if (filled < 0 && link->fd >= 0) {
        close_lost_link(side, index, problem, NULL);
    }
}

/* Checks a peer's silence: warns after 10 s and every 30 s, poisons the job after stall_seconds.
 * The host of such a peer answers, so its process is stopped, starved or hung. */
static void watch_silence(trmi_side *side, int32_t index, double now) {
    trmi_link *link = &side->links[index];
    double silence = now - link->heard_time;
    char name[112];
    trmi_side_name(side, rank_of(side, index), name);
    if (silence >= side->options.stall_seconds) {
        trm_error cause;
        TRMI_FAIL(&cause, TRM_PEER, "%s sent no heartbeat for %.1f s; it is stopped or hung", name,
                  silence);
        cause.rank = rank_of(side, index);
        trmi_side_raise(side, &cause);
        trmi_link_close(link);
        return;
    }
    /* Steps of warnings: 10 s, 30 s, 60 s, ... */
    int step = silence >= 30 ? (int)(silence / 30) * 30 : silence >= 10 ? 10 : 0;
    if (step > link->warned_at) {
        link->warned_at = step;
        trmi_log(TRM_LOG_WARN, "comm",
                 "%s has sent no heartbeat for %.0f s; stopped, starved or "
                 "hung?",
                 name, silence);
    }
}

/* Sends the heartbeats that are due and checks all peers' silence. */
static void send_heartbeats(trmi_side *side, double now) {
    for (int32_t l = 0; l < side->link_count; l++) {
        trmi_link *link = &side->links[l];
        if (link->fd < 0 || link->bye) {
            continue;
        }
        if (now - link->said_time >= side->options.heartbeat_seconds) {
            link->said_time = now;
            trmi_link_put(link, TRMI_FRAME_PING, 0, NULL, 0);
            if (!trmi_link_flush(link)) {
                close_lost_link(side, l, errno, NULL);
                continue;
            }
        }
        watch_silence(side, l, now);
    }
}

/* Returns true once everything is sent and (on rank 0) all ranks have left, or 2 s have passed (0.5
 * s if the job has failed). */
static bool may_end(trmi_side *side, double now, double stop_time) {
    bool quiet = true, poisoned = __atomic_load_n(&side->alarm, __ATOMIC_ACQUIRE) != 0;
    double patience = poisoned ? 0.5 : 2;
    for (int32_t l = 0; l < side->link_count; l++) {
        trmi_link *link = &side->links[l];
        if (link->fd >= 0) {
            quiet = quiet && link->out_sent == link->out_bytes &&
                    (link->bye || side->base.rank != 0 || poisoned);
        }
    }
    return quiet || now - stop_time > patience;
}

/* Runs the service thread: polls all links and wake_fd, then serves them under the lock. */
static void *service_main(void *context) {
    trmi_side *side = context;
    double last_time = trmi_os_now(), stop_time = 0;
    double tick =
        side->options.heartbeat_seconds < 0.5 ? side->options.heartbeat_seconds / 2 : 0.25;
    for (;;) {
        /* Prepare the poll: receive always, send if bytes are waiting. */
        pthread_mutex_lock(&side->lock);
        for (int32_t l = 0; l < side->link_count; l++) {
            trmi_link *link = &side->links[l];
            short out = link->out_sent < link->out_bytes ? POLLOUT : 0;
            side->polls[l] = (struct pollfd){.fd = link->fd, .events = (short)(POLLIN | out)};
        }
        bool stopping = side->stop;
        pthread_mutex_unlock(&side->lock);
        /* Wait without the lock. */
        side->polls[side->link_count] = (struct pollfd){.fd = side->wake_fd, .events = POLLIN};
        poll(side->polls, (nfds_t)side->link_count + 1, stopping ? 20 : (int)(tick * 1000) + 1);

        double now = trmi_os_now();
        /* Serve the links with events. */
        pthread_mutex_lock(&side->lock);
        uint64_t count;
        if (side->polls[side->link_count].revents != 0 &&
            read(side->wake_fd, &count, sizeof count) < 0) {
            trmi_log(TRM_LOG_DEBUG, "comm", "wake-up already taken");
        }
        double pause = now - last_time - tick;
        for (int32_t l = 0; l < side->link_count; l++) {
            if (pause > 1) { /* this process was stopped itself: the peers were not silent */
                side->links[l].heard_time += pause;
            }
            if (side->links[l].fd >= 0 && side->polls[l].revents != 0 &&
                side->polls[l].fd == side->links[l].fd) {
                serve_link(side, l, side->polls[l].revents, now);
            }
        }
        /* Send heartbeats and warnings. */
        last_time = now;
        send_heartbeats(side, now);
        trmi_exchange_tick(side, now);
        /* After trmi_side_stop wait for the end. */
        stop_time = side->stop && stop_time == 0 ? now : stop_time;
        bool end = side->stop && may_end(side, now, stop_time);
        pthread_mutex_unlock(&side->lock);
        if (end) {
            return NULL;
        }
    }
}

/* Lets the kernel close the connection to a host that no longer acknowledges. Unix sockets ignore
 * this. */
static void set_socket_timeout(const trmi_side *side, int fd) {
    unsigned milliseconds = (unsigned)(side->options.host_seconds * 1000);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/* Contract in side.h. From here on the service thread and callers share the state under its
 * lock. */
trm_status trmi_side_start(trmi_side *side, trm_error *err) {
    double now = trmi_os_now();
    side->polls = trmi_alloc(((size_t)side->link_count + 1) * sizeof *side->polls);
    side->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    side->base.alarm_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (side->polls == NULL || side->wake_fd < 0 || side->base.alarm_fd < 0) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory or descriptors for the control channel");
    }
    for (int32_t l = 0; l < side->link_count; l++) {
        side->links[l].heard_time = now;
        if (side->links[l].fd >= 0) {
            set_socket_timeout(side, side->links[l].fd);
        }
    }
    int problem = pthread_create(&side->thread, NULL, service_main, side);
    if (problem != 0) {
        return TRMI_FAIL(err, TRM_NOMEM, "no thread for the control channel (%s)",
                         strerror(problem));
    }
    side->started = true;
    return TRM_OK;
}

/* Leaves the job: sends BYE to all peers, ends the service thread, which sends the rest, and closes
 * all links. */
void trmi_side_stop(trmi_side *side) {
    if (side->started) {
        pthread_mutex_lock(&side->lock);
        /* After BYE, the peers do not treat the closed link as a death. */
        send_to_all(side, TRMI_FRAME_BYE, NULL, 0);
        side->stop = true;
        trmi_side_wake(side);
        pthread_mutex_unlock(&side->lock);
        pthread_join(side->thread, NULL);
        side->started = false;
    }
    for (int32_t l = 0; l < side->link_count; l++) {
        trmi_link_close(&side->links[l]);
    }
}
