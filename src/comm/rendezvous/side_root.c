/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 at the rendezvous: strangers come in, are bounded and examined, and become links.
 *
 *   accept -> half[64] --hello--> challenge --proof--> guest[rank] --all here--> welcome to all
 *               5 s, 288 bytes, no memory of its own               (EOF: may come again) */
#define _GNU_SOURCE /* accept4 */
#include "comm/rendezvous/side.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HALF_MAX = 64, SUSPECTS = 64, SUSPECT_LIMIT = 8 };
static const double half_seconds = 5, say_seconds = 10;

typedef struct half { /* a connection that has proved nothing yet */
    int fd;
    bool challenged;
    double since_time;
    size_t have;
    uint8_t hello[TRMI_HELLO_BYTES];
    uint8_t challenge[TRMI_CHALLENGE_BYTES];
    uint8_t proof[TRMI_PROOF_BYTES];
    uint32_t source;
    char text[80];
} half;

typedef struct guest {
    trmi_link link;
    trmi_hello hello;
} guest;

typedef struct suspect { /* addresses that failed lately are dropped at once for a second */
    uint32_t source;
    int32_t failures;
    double last_time;
} suspect;

typedef struct forming {
    trmi_side *side;
    trmi_join *join;
    trmi_listener listener;
    half halves[HALF_MAX];
    int32_t half_count;
    guest *guests; /* [size - 1], in order of arrival; rank in hello */
    int32_t guest_count;
    suspect suspects[SUSPECTS];
    char refused[128]; /* the last one turned away, for the final message */
    struct pollfd *polls;
} forming;

const char *trmi_missing_ranks(const bool *here, int32_t size, char text[96]) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t r = 0; r < size; r++) {
        int32_t end = r;
        if (here[r]) {
            continue;
        }
        while (end + 1 < size && !here[end + 1]) {
            end++;
        }
        if (used > 72) {
            snprintf(text + used, 96 - used, " ...");
            break;
        }
        used += (size_t)snprintf(text + used, 96 - used, end > r + 1 ? "%s%d to %d" : "%s%d",
                                 used ? ", " : "", r, end);
        r = end > r + 1 ? end : r;
    }
    return text;
}

static suspect *suspect_of(forming *form, uint32_t source) {
    return &form->suspects[source % SUSPECTS];
}

static void turn_away(forming *form, half *one, const char *why) {
    suspect *entry = suspect_of(form, one->source);
    double now = trmi_os_now();
    if (entry->source != one->source || now - entry->last_time > 1) {
        *entry = (suspect){.source = one->source};
    }
    entry->failures++;
    entry->last_time = now;
    snprintf(form->refused, sizeof form->refused, "%.60s: %.60s", one->text, why);
    if (entry->failures <= SUSPECT_LIMIT) {
        trmi_log(TRM_LOG_WARN, "comm", "rendezvous: %s turned away: %s", one->text, why);
    }
    close(one->fd);
    *one = form->halves[--form->half_count];
}

static uint32_t source_of(const char *text) {
    uint32_t hash = 2166136261u;
    size_t length = strcspn(text, " "); /* the address without its port */
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)text[i]) * 16777619u;
    }
    return hash | 1;
}

static void take_connection(forming *form, int listen_fd) {
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    half one = {.fd = fd, .since_time = trmi_os_now()};
    bool here = trmi_peer_is_here(fd, one.text, sizeof one.text);
    one.source = source_of(one.text);
    suspect *entry = suspect_of(form, one.source);
    bool noisy = entry->source == one.source && entry->failures > SUSPECT_LIMIT &&
                 one.since_time - entry->last_time < 1;
    if (noisy || form->half_count == HALF_MAX) {
        close(fd);
        return;
    }
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    form->halves[form->half_count++] = one;
    half *added = &form->halves[form->half_count - 1];
    if (!here && form->join->place.kind != TRMI_PLACE_TCP) {
        turn_away(form, added, "another user");
    } else if (!here && !form->join->has_token && !form->join->options.insecure) {
        turn_away(form, added, "another host, and this job has no token (TRIREME_TOKEN_FILE)");
    }
}

/* A refusal that the peer can read: it has proved that it knows the token. */
static void refuse(guest *who, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);
static void refuse(guest *who, trm_status status, const char *format, ...) {
    trm_error cause;
    char text[200];
    uint8_t wire[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    TRMI_FAIL(&cause, status, "%s", text);
    cause.rank = 0;
    trmi_error_encode(&cause, wire);
    trmi_link_put(&who->link, TRMI_FRAME_POISON, 0, wire, sizeof wire);
    trmi_link_flush(&who->link);
    trmi_link_close(&who->link);
}

static guest *guest_of(forming *form, int32_t rank) {
    for (int32_t g = 0; g < form->guest_count; g++) {
        if (form->guests[g].hello.rank == rank) {
            return &form->guests[g];
        }
    }
    return NULL;
}

/* It comes again and again: said once. */
static void note_stranger(forming *form, const trmi_hello *peer) {
    char text[sizeof form->refused];
    snprintf(text, sizeof text, "rank %d (%.24s pid %d), of another job or rank table", peer->rank,
             peer->host, peer->pid);
    if (strcmp(text, form->refused) != 0) {
        strcpy(form->refused, text);
        trmi_log(TRM_LOG_WARN, "comm", "rendezvous: turned away: %s", text);
    }
}

/* Same job, same size, same description, a free rank. Only then it becomes a guest. */
static trm_status examine(forming *form, guest *who, trm_error *err) {
    const trmi_hello *own = &form->join->hello, *peer = &who->hello;
    if (memcmp(peer->key, own->key, 32) != 0) {
        note_stranger(form, peer);
        refuse(who, TRM_PENDING,
               "another job meets at %s, or one with another rank table: rank 0 is %s pid %d",
               form->join->place.text, own->host, own->pid);
        return TRM_OK;
    }
    if (peer->size != own->size) {
        TRMI_FAIL(err, TRM_INVALID,
                  "rank %d (%s pid %d) was told of %d ranks, rank 0 (%s pid %d) of %d; start all "
                  "with the same size",
                  peer->rank, peer->host, peer->pid, peer->size, own->host, own->pid, own->size);
        refuse(who, TRM_INVALID, "%s", err->message);
        return TRM_INVALID;
    }
    if (memcmp(peer->digest, own->digest, 32) != 0) {
        TRMI_FAIL(err, TRM_INVALID,
                  "rank %d (%s pid %d) has another rank table (or host list) than rank 0 (%s); all "
                  "must have the same",
                  peer->rank, peer->host, peer->pid, own->host);
        refuse(who, TRM_INVALID, "%s", err->message);
        return TRM_INVALID;
    }
    if (peer->rank == 0 || peer->rank < -1 || peer->rank >= own->size) {
        refuse(who, TRM_INVALID, "rank %d cannot join: 1 to %d expected (rank 0 is %s pid %d)",
               peer->rank, own->size - 1, own->host, own->pid);
        return TRM_OK;
    }
    guest *before = peer->rank > 0 ? guest_of(form, peer->rank) : NULL;
    if (before != NULL) {
        refuse(who, TRM_INVALID, "rank %d is already here (%s pid %d); each rank once", peer->rank,
               before->hello.host, before->hello.pid);
        return TRM_OK;
    }
    if (form->guest_count == own->size - 1) {
        refuse(who, TRM_INVALID, "all %d ranks are here already", own->size);
        return TRM_OK;
    }
    who->link.heard_time = trmi_os_now();
    form->guests[form->guest_count++] = *who;
    return TRM_OK;
}

/* Continues with what a half-open connection has sent. */
static trm_status hear_half(forming *form, half *one, trm_error *err) {
    uint8_t *into = one->challenged ? one->proof : one->hello;
    size_t wanted = one->challenged ? TRMI_PROOF_BYTES : TRMI_HELLO_BYTES;
    ssize_t bytes = recv(one->fd, into + one->have, wanted - one->have, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        return TRM_OK;
    }
    if (bytes <= 0) {
        turn_away(form, one,
                  one->challenged ? "it left (it has another token?)"
                                  : "it left before it said who it is");
        return TRM_OK;
    }
    one->have += (size_t)bytes;
    if (!one->challenged && memcmp(one->hello, "TRIREME", one->have < 8 ? one->have : 8) != 0) {
        turn_away(form, one, "it does not speak our protocol");
        return TRM_OK;
    }
    if (one->have < wanted) {
        return TRM_OK;
    }
    trmi_hello hello;
    if (!trmi_hello_decode(one->hello, &hello)) {
        turn_away(form, one, "it does not speak our protocol");
        return TRM_OK;
    }
    if (!one->challenged) {
        uint8_t nonce[32];
        if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
            return TRMI_FAIL_SYS(err, "no random bytes for the rendezvous");
        }
        trmi_challenge_make(form->join->token, one->hello, nonce, one->challenge);
        ssize_t sent =
            send(one->fd, one->challenge, TRMI_CHALLENGE_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent != TRMI_CHALLENGE_BYTES || hello.version != TRMI_SIDE_VERSION) {
            char why[64];
            snprintf(why, sizeof why, "protocol version %u, version %d is needed", hello.version,
                     TRMI_SIDE_VERSION);
            turn_away(form, one, sent != TRMI_CHALLENGE_BYTES ? "it does not listen" : why);
            return TRM_OK;
        }
        one->challenged = true;
        one->have = 0;
        return TRM_OK;
    }
    if (!trmi_proof_check(form->join->token, one->hello, one->challenge, one->proof)) {
        turn_away(form, one, "wrong token");
        return TRM_OK;
    }
    guest who = {.link = {.fd = one->fd}, .hello = hello};
    trmi_link_key(&who.link, true, form->join->has_token, form->join->token, one->hello,
                  one->challenge);
    *one = form->halves[--form->half_count];
    return examine(form, &who, err);
}

/* A guest that goes before the job exists may come again. */
static void hear_guest(forming *form, int32_t index) {
    guest *who = &form->guests[index];
    if (trmi_link_fill(&who->link) < 0 || who->link.in_bytes > 0) {
        trmi_log(TRM_LOG_WARN, "comm", "rendezvous: rank %d (%s pid %d) left again",
                 who->hello.rank, who->hello.host, who->hello.pid);
        trmi_link_close(&who->link);
        form->guests[index] = form->guests[--form->guest_count];
    }
}

static void say_missing(const forming *form, double waited, char *text, size_t size) {
    int32_t n = form->join->hello.size, unnamed = 0;
    char list[96] = "";
    bool *here = trmi_alloc((size_t)n * sizeof *here);
    if (here != NULL) {
        here[0] = true;
        for (int32_t g = 0; g < form->guest_count; g++) {
            int32_t rank = form->guests[g].hello.rank;
            unnamed += rank < 0;
            if (rank >= 0) {
                here[rank] = true;
            }
        }
        trmi_missing_ranks(here, n, list);
        trmi_free(here);
    }
    if (unnamed > 0) {
        snprintf(list, sizeof list, "%d (numbers are given later)", n - 1 - form->guest_count);
    }
    snprintf(text, size, "waited %.0f s at %.60s for rank%s %s of %d", waited,
             form->join->place.text, form->guest_count + 2 == n ? "" : "s", list, n);
}

static int collect_polls(forming *form) {
    int count = 0;
    for (int l = 0; l < form->listener.count; l++) {
        form->polls[count++] = (struct pollfd){.fd = form->listener.fds[l], .events = POLLIN};
    }
    for (int32_t h = 0; h < form->half_count; h++) {
        form->polls[count++] = (struct pollfd){.fd = form->halves[h].fd, .events = POLLIN};
    }
    for (int32_t g = 0; g < form->guest_count; g++) {
        form->polls[count++] = (struct pollfd){.fd = form->guests[g].link.fd, .events = POLLIN};
    }
    return count;
}

/* One round: backwards, because a handled entry is replaced by the last one. */
static trm_status serve_round(forming *form, trm_error *err) {
    int listeners = form->listener.count;
    int32_t halves = form->half_count, guests = form->guest_count;
    int count = collect_polls(form);
    if (poll(form->polls, (nfds_t)count, 200) < 0 && errno != EINTR) {
        return TRMI_FAIL_SYS(err, "rendezvous: poll");
    }
    double now = trmi_os_now();
    for (int32_t g = guests - 1; g >= 0; g--) {
        if (form->polls[listeners + halves + g].revents != 0) {
            hear_guest(form, g);
        }
    }
    for (int32_t h = halves - 1; h >= 0; h--) {
        if (form->polls[listeners + h].revents != 0) {
            TRMI_TRY(hear_half(form, &form->halves[h], err));
        } else if (now - form->halves[h].since_time > half_seconds) {
            turn_away(form, &form->halves[h], "it said nothing for 5 s");
        }
    }
    for (int l = 0; l < listeners; l++) {
        for (int k = 0; k < 16 && form->polls[l].revents != 0; k++) {
            take_connection(form, form->listener.fds[l]);
        }
    }
    return TRM_OK;
}

static trm_status wait_for_all(forming *form, trm_error *err) {
    double start = trmi_os_now(), said = start;
    double limit = form->join->options.timeout_seconds;
    char text[224];
    while (form->guest_count < form->join->hello.size - 1) {
        TRMI_TRY(serve_round(form, err));
        double now = trmi_os_now();
        if (form->guest_count == form->join->hello.size - 1) {
            break;
        }
        if (now - start >= limit) {
            say_missing(form, now - start, text, sizeof text);
            return TRMI_FAIL(err, TRM_TIMEOUT, "%.130s%s%.70s", text,
                             form->refused[0] ? "; turned away: "
                                              : "; start them, or look at "
                                                "their logs",
                             form->refused);
        }
        if (now - said >= say_seconds) {
            said = now;
            say_missing(form, now - start, text, sizeof text);
            trmi_log(TRM_LOG_WARN, "comm", "rendezvous: %s%s", text, form->join->hint);
        }
    }
    return TRM_OK;
}

static int by_place(const void *a, const void *b) {
    const trmi_hello *x = &((const guest *)a)->hello, *y = &((const guest *)b)->hello;
    if ((x->rank < 0) != (y->rank < 0)) {
        return x->rank < 0 ? 1 : -1;
    }
    int order = x->rank >= 0 ? x->rank - y->rank : strcmp(x->address, y->address);
    order = order != 0 ? order : strcmp(x->host, y->host);
    order = order != 0 ? order : x->device - y->device;
    return order != 0 ? order : x->pid - y->pid;
}

/* Ranks for those who came without: by address, then device, into the gaps. */
static void assign_ranks(forming *form) {
    qsort(form->guests, (size_t)form->guest_count, sizeof *form->guests, by_place);
    int32_t next = 1;
    for (int32_t g = 0; g < form->guest_count; g++) {
        if (form->guests[g].hello.rank < 0) {
            while (guest_of(form, next) != NULL) {
                next++;
            }
            form->guests[g].hello.rank = next++;
        }
    }
}

static void take_peer(trmi_peer *peer, const trmi_hello *hello) {
    peer->pid = hello->pid;
    peer->device = hello->device;
    memcpy(peer->host_id, hello->host_id, 32);
    memcpy(peer->host, hello->host, sizeof peer->host);
    memcpy(peer->address, hello->address, sizeof peer->address);
}

static trm_status welcome(forming *form, trm_error *err) {
    trmi_side *side = form->side;
    uint8_t nonce[32];
    size_t bytes = TRMI_WELCOME_HEAD + (size_t)side->base.size * TRMI_WELCOME_ENTRY;
    uint8_t *wire = trmi_alloc(bytes);
    if (wire == NULL || getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce) {
        trmi_free(wire);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to welcome %d ranks", side->base.size);
    }
    assign_ranks(form);
    take_peer(&side->peers[0], &form->join->hello);
    for (int32_t g = 0; g < form->guest_count; g++) {
        take_peer(&side->peers[form->guests[g].hello.rank], &form->guests[g].hello);
        side->links[form->guests[g].hello.rank] = form->guests[g].link;
    }
    form->guest_count = 0;
    trmi_mac(form->join->token, "data", nonce, sizeof nonce, NULL, 0, side->secret);
    trm_status status = TRM_OK;
    for (int32_t r = 1; r < side->base.size && status == TRM_OK; r++) {
        trmi_welcome_encode(side, r, nonce, wire);
        if (!trmi_link_put(&side->links[r], TRMI_FRAME_WELCOME, 0, wire, bytes)) {
            status = TRMI_FAIL(err, TRM_NOMEM, "no memory to welcome %d ranks", side->base.size);
        }
        trmi_link_flush(&side->links[r]); /* what does not fit now, the service thread sends */
    }
    trmi_free(wire);
    return status;
}

trm_status trmi_side_root(trmi_side *side, trmi_join *join, trm_error *err) {
    int32_t n = side->base.size;
    forming *form = trmi_alloc(sizeof *form);
    trm_error local;
    err = err != NULL ? err : &local;
    if (form == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for the rendezvous");
    }
    *form = (forming){.side = side, .join = join, .listener = {.lock_fd = -1}};
    form->guests = trmi_alloc((size_t)n * sizeof *form->guests);
    form->polls = trmi_alloc(((size_t)n + HALF_MAX + TRMI_LISTENERS_MAX) * sizeof *form->polls);
    trm_status status;
    if (form->guests == NULL || form->polls == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "no memory for the rendezvous");
        goto done;
    }
    double deadline = trmi_os_now() + join->options.timeout_seconds;
    TRMI_TRY_GOTO(status, trmi_listen(&join->place, deadline, &form->listener, err), done);
    if (join->place.kind == TRMI_PLACE_FILE && !join->has_token) {
        memcpy(join->token, form->listener.secret, 32);
    }
    snprintf(join->hello.address, sizeof join->hello.address, "%.47s", form->listener.address);
    if (join->options.insecure && !join->has_token) {
        trmi_log(TRM_LOG_WARN, "comm",
                 "rendezvous at %s lets every host in without a token "
                 "(insecure)",
                 join->place.text);
    }
    status = wait_for_all(form, err);
    if (status == TRM_OK) {
        status = welcome(form, err);
    }
    for (int32_t g = 0; g < form->guest_count; g++) {
        refuse(&form->guests[g], status, "%s", err->message);
    }
done:
    for (int32_t h = 0; h < form->half_count; h++) {
        close(form->halves[h].fd);
    }
    trmi_listener_close(&form->listener);
    trmi_free(form->guests);
    trmi_free(form->polls);
    trmi_free(form);
    return status;
}
