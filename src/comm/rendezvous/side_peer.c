/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks other than 0 at the rendezvous: find rank 0, prove the token, wait for the WELCOME.
 * Also the form of the WELCOME frame.
 *
 *   trmi_side_peer: attempt = trmi_connect -> trmi_side_introduce -> wait_for_welcome
 *                   again after a pause, until the deadline
 *
 * An attempt that fails because rank 0 is not there yet, or belongs to another job, returns
 * TRM_PENDING and is repeated; any other failure is final. Nothing that rank 0 sends is used before
 * it has proved the token too. */
#include "comm/rendezvous/side.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/os.h"
#include "comm/rendezvous/token.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* rank 0 answers a proof within this time; interval of log messages */
static const double answer_seconds = 5, say_seconds = 10;
/* attempts in a row, five a second, that find no rank of a job that has ended; attempts since one
 * has found another token than this rank's, until that is final */
enum { ENDED_ATTEMPTS = 30, TOKEN_ATTEMPTS = 30 };

/* Contract in side.h. Each rank gets its own number and nonce; the list of ranks is the same for
 * all. */
size_t trmi_welcome_encode(const trmi_side *side, int32_t rank, const uint8_t nonce[32],
                           uint8_t *wire) {
    memset(wire, 0, TRMI_WELCOME_HEAD);
    trmi_put32(wire, (uint32_t)rank);
    trmi_put32(wire + 4, (uint32_t)side->base.size);
    memcpy(wire + 16, nonce, 32);
    uint8_t *entry = wire + TRMI_WELCOME_HEAD;
    for (int32_t r = 0; r < side->base.size; r++, entry += TRMI_WELCOME_ENTRY) {
        const trmi_peer *peer = &side->peers[r];
        trmi_put32(entry, (uint32_t)peer->pid);
        trmi_put32(entry + 4, (uint32_t)peer->device);
        memcpy(entry + 8, peer->host_id, 32);
        memcpy(entry + 40, peer->host, TRMI_HOST_NAME_BYTES);
        memcpy(entry + 88, peer->address, TRMI_HOST_NAME_BYTES);
    }
    return (size_t)(entry - wire);
}

trm_status trmi_welcome_decode(trmi_side *side, const uint8_t *wire, size_t bytes, int32_t least,
                               uint8_t nonce[32], trm_error *err) {
    /* The size must be that of the cluster description, or less where ranks may be lost, and the
     * entries must fill the frame. */
    if (bytes < TRMI_WELCOME_HEAD) {
        return TRMI_FAIL(err, TRM_CORRUPT, "rank 0's welcome has %zu bytes", bytes);
    }
    int32_t rank = (int32_t)trmi_get32(wire), size = (int32_t)trmi_get32(wire + 4);
    if (size < least || size > side->base.size || rank < 1 || rank >= size ||
        bytes != TRMI_WELCOME_HEAD + (size_t)size * TRMI_WELCOME_ENTRY) {
        return TRMI_FAIL(err, TRM_CORRUPT, "rank 0's welcome is malformed (rank %d of %d)", rank,
                         size);
    }
    memcpy(nonce, wire + 16, 32);
    side->base.rank = rank;
    side->base.size = size;
    /* Read each entry. Each name gets a final 0, even if the sender left it out. */
    const uint8_t *entry = wire + TRMI_WELCOME_HEAD;
    for (int32_t r = 0; r < size; r++, entry += TRMI_WELCOME_ENTRY) {
        trmi_peer *peer = &side->peers[r];
        peer->pid = (int32_t)trmi_get32(entry);
        peer->device = (int32_t)trmi_get32(entry + 4);
        memcpy(peer->host_id, entry + 8, 32);
        memcpy(peer->host, entry + 40, TRMI_HOST_NAME_BYTES);
        memcpy(peer->address, entry + 88, TRMI_HOST_NAME_BYTES);
        peer->host[TRMI_HOST_NAME_BYTES - 1] = peer->address[TRMI_HOST_NAME_BYTES - 1] = '\0';
    }
    return TRM_OK;
}

/* Fills join->token with the token that this rank has to prove. A token file has priority. Without
 * one, a unix socket needs none, because only its user reaches it; "file:" has its own secret;
 * otherwise rank 0 has published a random token for processes of this user on this host. */
static trm_status find_token(trmi_join *join, const char *reached, bool here,
                             const uint8_t published[32], bool *wrong_token, trm_error *err) {
    if (join->has_token || join->options.insecure || join->place.kind == TRMI_PLACE_UNIX) {
        return TRM_OK;
    }
    if (join->place.kind == TRMI_PLACE_FILE) {
        memcpy(join->token, published, TRM_TOKEN_BYTES);
        return TRM_OK;
    }
    if (!here) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "rank 0 is on another host (%s) and this job has no token; give every "
                         "rank the same 32-byte file (--token-file or TRIREME_TOKEN_FILE, mode "
                         "0600)",
                         reached);
    }
    if (trmi_token_find(reached, join->token, NULL) == TRM_OK) {
        return TRM_OK;
    }
    *wrong_token = true;
    return TRMI_FAIL(err, TRM_PENDING,
                     "rank 0 (%s) has another token than this rank, which has no file of it "
                     "(--token-file or TRIREME_TOKEN_FILE), and has published none on this host",
                     reached);
}

/* See side.h. The detail of the proof is this rank's HELLO. */
trm_status trmi_side_introduce(trmi_join *join, int fd, const uint8_t published[32],
                               trmi_link *link, bool *wrong_token, trm_error *err) {
    uint8_t hello[TRMI_HELLO_BYTES];
    char where[TRMI_NET_NAME_BYTES];
    trmi_credentials mine = {.service = TRMI_SERVICE_RENDEZVOUS,
                             .version = TRMI_SIDE_VERSION,
                             .detail = hello,
                             .detail_bytes = sizeof hello};
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + answer_seconds};
    trmi_session session;
    /* At a socket file or a rendezvous file, only a process of this user on this host can be rank
     * 0. */
    bool here = trmi_net_peer(fd, where);
    if (!here && join->place.kind != TRMI_PLACE_TCP) {
        return TRMI_FAIL(err, TRM_INVALID, "the rendezvous %s belongs to another user (%s)",
                         join->place.text, where);
    }
    TRMI_TRY(find_token(join, where, here, published, wrong_token, err));
    /* The address on which peers reach this rank: HCCL's, or that of this connection. */
    if (join->address[0] != '\0') {
        snprintf(join->hello.address, sizeof join->hello.address, "%.47s", join->address);
    } else {
        trmi_local_address(fd, join->hello.address, sizeof join->hello.address);
    }
    trmi_hello_encode(&join->hello, hello);
    memcpy(mine.token, join->token, sizeof mine.token);
    trm_status status = trmi_net_prove_token(fd, &mine, &patience, &session, err);
    explicit_bzero(&mine, sizeof mine);
    /* Refused: the tokens differ. No answer, or a wrong one: the peer is no rank 0. */
    if (status == TRM_INVALID) {
        *wrong_token = true;
        return TRMI_FAIL(err, TRM_PENDING,
                         "rank 0 (%s) has another token than this rank (--token-file or "
                         "TRIREME_TOKEN_FILE)",
                         where);
    }
    if (status == TRM_PEER) {
        return TRMI_FAIL(err, TRM_PENDING, "%s does not answer as rank 0 would", where);
    }
    TRMI_TRY(status);
    /* The link starts with the keys of the session. */
    *link = (trmi_link){.fd = fd, .heard_time = trmi_os_now()};
    memcpy(link->send_key, session.up_key, sizeof link->send_key);
    memcpy(link->recv_key, session.down_key, sizeof link->recv_key);
    return TRM_OK;
}

/* Waits for the WELCOME; side NULL: there will be none. A refusal arrives as a POISON frame; status
 * TRM_PENDING in it means that rank 0 belongs to another job, so that a later attempt may succeed.
 */
static trm_status wait_for_welcome(trmi_side *side, trmi_join *join, trmi_link *link,
                                   double deadline, trm_error *err) {
    double start = trmi_os_now(), said = start;
    trmi_frame frame;
    uint8_t nonce[32];
    for (bool closed = false;;) {
        /* All frames that have arrived, and then the socket. */
        trm_status status = trmi_link_next(link, &frame, err);
        if (status == TRM_OK && frame.type == TRMI_FRAME_POISON && frame.bytes == 256) {
            trmi_error_decode(err, frame.payload);
            return err->status < 0 || err->status == TRM_PENDING ? (trm_status)err->status
                                                                 : TRM_PEER;
        }
        if (status == TRM_OK && frame.type == TRMI_FRAME_RUNNING) {
            return join->running != NULL
                       ? join->running(join->running_context, join, link, &frame, err)
                       : TRMI_FAIL(err, TRM_INVALID,
                                   "an elastic job runs already at %s; a process that joins it "
                                   "needs --elastic, too",
                                   join->place.text);
        }
        if (status == TRM_OK && side != NULL && frame.type == TRMI_FRAME_WELCOME) {
            TRMI_TRY(trmi_welcome_decode(side, frame.payload, frame.bytes,
                                         join->running != NULL ? 2 : join->hello.size, nonce, err));
            /* The nonce of the WELCOME and the token give the job's secret. */
            trmi_net_mac(join->token, "data", nonce, sizeof nonce, NULL, 0, side->secret);
            return TRM_OK;
        }
        if (status != TRM_END) {
            return status == TRM_OK ? TRMI_FAIL(err, TRM_CORRUPT,
                                                "rank 0 sent frame type %u "
                                                "before the welcome",
                                                frame.type)
                                    : status;
        }
        /* checked last: a refusal may have arrived before the end of the connection */
        if (closed) {
            return TRMI_FAIL(err, TRM_PENDING, "rank 0 (%s) left again", join->place.text);
        }
        TRMI_TRY(trmi_side_check_abandoned(join, err));
        struct pollfd wait = {.fd = link->fd, .events = POLLIN};
        poll(&wait, 1, 200);
        closed = trmi_link_fill(link) < 0;
        double now = trmi_os_now();
        /* rank 0 reports the missing ranks a little earlier */
        if (now >= deadline + answer_seconds) {
            return TRMI_FAIL(err, TRM_TIMEOUT,
                             "rank %d waited %.0f s at %s for the other ranks; rank 0 has not "
                             "reported the missing ranks",
                             join->hello.rank, now - start, join->place.text);
        }
        if (now - said >= say_seconds) {
            said = now;
            trmi_log(TRM_LOG_WARN, "comm", "rank %d waited %.0f s at %s for the other ranks%s",
                     join->hello.rank, now - start, join->place.text, join->hint);
        }
    }
}

trm_status trmi_side_check_abandoned(const trmi_join *join, trm_error *err) {
    return join->abandoned != NULL && join->abandoned(join->abandoned_context)
               ? TRMI_FAIL(err, TRM_PEER,
                           "the meeting of %d ranks at %.60s was given up: a rank of it has died",
                           join->hello.size, join->place.text)
               : TRM_OK;
}

trm_status trmi_side_check_ended(const trmi_join *join, int32_t attempts, trm_error *err) {
    return join->running != NULL && attempts >= ENDED_ATTEMPTS && trmi_place_has_ended(&join->place)
               ? TRMI_FAIL(err, TRM_PEER,
                           "rank %d has come to an elastic job that has ended: a rank of it has "
                           "ended well, and none was at %.60s in %d attempts",
                           join->hello.rank, join->place.text, attempts)
               : TRM_OK;
}

/* The findings of one attempt to join. */
typedef struct attempt {
    bool reached;     /* the place has let this rank in */
    bool wrong_token; /* rank 0 has another one */
    bool refused;     /* rank 0 of another job has refused this rank */
} attempt;

/* Makes one attempt. Returns TRM_PENDING if another one may succeed. */
static trm_status try_to_join(trmi_side *side, trmi_join *join, int32_t number, double deadline,
                              attempt *shown, trm_error *err) {
    int fd;
    uint8_t secret[32];
    *shown = (attempt){false};
    TRMI_TRY(trmi_connect(&join->place, number, &fd, secret, err));
    shown->reached = true;
    trmi_link *link = &side->links[0];
    trm_status status = trmi_side_introduce(join, fd, secret, link, &shown->wrong_token, err);
    if (status != TRM_OK) {
        close(fd);
        return status;
    }
    status = wait_for_welcome(side, join, link, deadline, err);
    if (status != TRM_OK) {
        shown->refused = status == TRM_PENDING && err->rank == 0;
        trmi_link_close(link);
    }
    return status;
}

/* Contract in side.h. One attempt: if no process listens there, no job runs. */
trm_status trmi_side_ask_running(trmi_join *join, void (*brings)(void *context, trmi_link *link),
                                 void *context, trm_error *err) {
    trmi_link link = {.fd = -1};
    uint8_t secret[32];
    bool wrong_token = false;
    int fd;
    if (trmi_connect(&join->place, 0, &fd, secret, err) != TRM_OK) {
        return TRM_OK;
    }
    trm_status status = trmi_side_introduce(join, fd, secret, &link, &wrong_token, err);
    if (status != TRM_OK) {
        close(fd);
    } else {
        if (brings != NULL) {
            brings(context, &link);
        }
        status = wait_for_welcome(NULL, join, &link, trmi_os_now(), err);
        trmi_link_close(&link);
    }
    return status == TRM_END ? TRM_END : TRM_OK;
}

bool trmi_side_leads(const trmi_join *join) {
    const int32_t rank = join->hello.rank;
    if (join->running == NULL || rank < 1) {
        return false;
    }
    bool *lost = trmi_alloc((size_t)rank * sizeof *lost);
    const bool leads = lost != NULL && trmi_place_read_lost(&join->place, lost, rank) == rank;
    trmi_free(lost);
    return leads;
}

/* Repeats attempts with pauses of 10 ms to 200 ms, until one succeeds, fails for good, or the
 * deadline passes. PENDING: this rank has to listen itself (trmi_side_leads). */
trm_status trmi_side_peer(trmi_side *side, trmi_join *join, trm_error *err) {
    double start = trmi_os_now(), said = start, deadline = start + join->options.timeout_seconds;
    double pause = 0.01;
    bool reached = false;
    int32_t absent = 0;       /* attempts in a row that have found no process */
    int32_t since_wrong = -1; /* attempts since the first that found another token; -1: none has */
    trm_error why, wrong_why = {0}, refusal = {0};
    for (int32_t number = 0;; number++) {
        attempt shown;
        TRMI_TRY(trmi_side_check_abandoned(join, err));
        TRMI_TRY(trmi_side_check_ended(join, absent, err));
        trm_status status = try_to_join(side, join, number, deadline, &shown, &why);
        double now = trmi_os_now();
        reached = reached || shown.reached;
        absent = shown.reached ? 0 : absent + 1;
        if (join->once && reached && !shown.reached && why.sys_errno == ECONNREFUSED) {
            return TRMI_FAIL(err, TRM_PEER, "rank 0 has ended the meeting of %d ranks at %.60s",
                             join->hello.size, join->place.text);
        }
        if (status != TRM_PENDING) {
            if (status != TRM_OK && err != NULL) {
                *err = why;
            }
            return status;
        }
        if (trmi_side_leads(join)) {
            return TRMI_FAIL(err, TRM_PENDING, "the ranks below rank %d are lost",
                             join->hello.rank);
        }
        /* A wrong token is final if it is still wrong after TOKEN_ATTEMPTS, about 5 s: until then
         * it may be the file of a job that has just ended. */
        since_wrong += since_wrong >= 0 || shown.wrong_token;
        if (shown.wrong_token) {
            wrong_why = why;
        }
        if (since_wrong >= 0 &&
            (now >= deadline || (shown.wrong_token && since_wrong >= TOKEN_ATTEMPTS))) {
            return TRMI_FAIL(err, TRM_INVALID, "%s; give all ranks the same file",
                             wrong_why.message);
        }
        if (shown.refused) {
            refusal = why;
        }
        if (now >= deadline) { /* a refusal explains more than a connection that fails now */
            return TRMI_FAIL(err, TRM_TIMEOUT, "rank %d waited %.0f s for rank 0 at %.60s: %.120s",
                             join->hello.rank, now - start, join->place.text,
                             refusal.message[0] != '\0' ? refusal.message : why.message);
        }
        if (now - said >= say_seconds) {
            said = now;
            trmi_log(TRM_LOG_WARN, "comm", "rank %d waited %.0f s for rank 0: %s%s",
                     join->hello.rank, now - start, why.message, join->hint);
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)(pause * 1e9)}, NULL);
        pause = pause < 0.2 ? pause * 1.5 : 0.2;
    }
}
