/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 at the rendezvous: a connection that has proved the token becomes a guest, and a guest
 * becomes the link of its rank once all ranks are here.
 *
 *   acceptor (base/net/net.h) -> examine -> guest --all here--> rank numbers --> WELCOME to all
 *                               (a guest that leaves before that may come again)
 *
 * In an elastic job the lowest rank that lives listens, and ranks that have died before
 * (side_place.h) are not waited for: the others get the numbers of a smaller job, in their order.
 * So do those of several hosts where enough are here and the others do not come (join->least).
 *
 * A connection of another job is refused with PENDING; a rank with another size or cluster
 * description fails the rendezvous on both sides. */
#include "comm/rendezvous/side.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* interval of log messages; longest wait for a scheduler; for what a member of a running job
 * brings; for its visit (two a second) before a job of one rank begins */
static const double say_seconds = 10, watcher_seconds = 5, herald_seconds = 10, alone_seconds = 2;

/* A rank that has come. */
typedef struct guest {
    trmi_link link;   /* with the keys of its session */
    trmi_hello hello; /* what the rank has declared */
} guest;

/* The state of the meeting. */
typedef struct forming {
    trmi_side *side;          /* gets the links and peers at the end */
    trmi_join *join;          /* rank 0's own input */
    trmi_reception reception; /* the open place */
    /* [size - 1] in order of arrival; the rank is in hello, -1 if it has no number */
    guest *guests;
    int32_t guest_count;  /* length of `guests` */
    double came_time;     /* when the last of them came */
    trmi_link watcher;    /* the scheduler's link; fd -1: none */
    char refused[128];    /* the last rank of another job, for the final message */
    struct pollfd *polls; /* scratch */
} forming;

/* Contract in side.h. Runs of ranks are joined, "3 to 7"; a long list is cut off. */
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

/* The acceptor's question: returns the reason to refuse a connection, or NULL. Without a token,
 * only processes of this host are accepted, and at unix sockets and files only those of this
 * user. */
static const char *refusal_reason(void *context, bool is_local) {
    const trmi_join *join = context;
    if (!is_local && join->place.kind != TRMI_PLACE_TCP) {
        return "another user";
    }
    return is_local || join->has_token || join->options.insecure
               ? NULL
               : "another host, and this job has no token (TRIREME_TOKEN_FILE)";
}

/* Contract in side.h. The refused rank gets the reason, so that its own log has it. */
void trmi_side_refuse(trmi_link *link, trm_status status, const char *format, ...) {
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
    trmi_link_put(link, TRMI_FRAME_POISON, 0, wire, sizeof wire);
    trmi_link_flush(link);
    trmi_link_close(link);
}

/* Returns the guest with this rank, or NULL. */
static guest *guest_of(forming *form, int32_t rank) {
    for (int32_t g = 0; g < form->guest_count; g++) {
        if (form->guests[g].hello.rank == rank) {
            return &form->guests[g];
        }
    }
    return NULL;
}

/* Logs the rank of another job. It tries again and again, so the same text is logged once. */
static void log_other_job(forming *form, const trmi_hello *peer) {
    char text[sizeof form->refused];
    snprintf(text, sizeof text, "rank %d (%.24s pid %d), of another job or rank table", peer->rank,
             peer->host, peer->pid);
    if (strcmp(text, form->refused) != 0) {
        strcpy(form->refused, text);
        trmi_log(TRM_LOG_WARN, "comm", "rendezvous: turned away: %s", text);
    }
}

/* Hears a member of a job that runs already: where its doors are. Returns END once join->running
 * has been told; PENDING where the member has not said it: this process has to ask. In a job that
 * is not elastic there is nothing to hear. */
static trm_status hear_herald(forming *form, trmi_link *link, trm_error *err) {
    const trmi_join *join = form->join;
    const double deadline = trmi_os_now() + herald_seconds;
    trmi_frame frame;
    trm_status status = join->running != NULL ? TRM_END : TRM_OK;
    for (bool closed = false; status == TRM_END && !closed && trmi_os_now() < deadline;) {
        struct pollfd wait = {.fd = link->fd, .events = POLLIN};
        poll(&wait, 1, 100);
        closed = trmi_link_fill(link) < 0;
        status = trmi_link_next(link, &frame, err);
    }
    const bool told = status == TRM_OK && join->running != NULL && frame.type == TRMI_FRAME_RUNNING;
    status = told ? join->running(join->running_context, join, link, &frame, err) : status;
    trmi_side_refuse(link, TRM_PENDING, "heard");
    if (join->running == NULL) {
        return TRM_OK;
    }
    TRMI_FAIL(err, TRM_PENDING, "the job at %s runs already", join->place.text);
    return told && status == TRM_END ? TRM_END : TRM_PENDING;
}

/* Checks a proven connection: same job, same size, same cluster description, a rank that is free.
 * If so it becomes a guest. Errors end the rendezvous (INVALID; hear_herald); other misfits are
 * only refused. */
static trm_status check_candidate(forming *form, guest *who, trm_error *err) {
    const trmi_hello *own = &form->join->hello, *peer = &who->hello;
    /* The peer is of another job: it tries again until its own job meets. */
    if (memcmp(peer->key, own->key, 32) != 0) {
        log_other_job(form, peer);
        trmi_side_refuse(
            &who->link, TRM_PENDING,
            "another job meets at %s, or one with another rank table: rank 0 is %s pid %d",
            form->join->place.text, own->host, own->pid);
        return TRM_OK;
    }
    /* The processes that meet here belong to the running job: each asks for it again. */
    if (peer->rank == TRMI_HERALD) {
        return hear_herald(form, &who->link, err);
    }
    /* A rank that begins alone meets no other: those that come join when the job runs. */
    if (form->join->holds != NULL) {
        trmi_side_refuse(&who->link, TRM_PENDING, "the job begins");
        return TRM_OK;
    }
    /* The same job, described differently: no rank could work with both, so the rendezvous ends. */
    if (peer->size != own->size) {
        TRMI_FAIL(err, TRM_INVALID,
                  "rank %d (%s pid %d) was told of %d ranks, rank 0 (%s pid %d) of %d; start all "
                  "with the same size",
                  peer->rank, peer->host, peer->pid, peer->size, own->host, own->pid, own->size);
        trmi_side_refuse(&who->link, TRM_INVALID, "%s", err->message);
        return TRM_INVALID;
    }
    if (memcmp(peer->digest, own->digest, 32) != 0) {
        TRMI_FAIL(err, TRM_INVALID,
                  "rank %d (%s pid %d) has another rank table (or host list) than rank 0 (%s); all "
                  "must have the same",
                  peer->rank, peer->host, peer->pid, own->host);
        trmi_side_refuse(&who->link, TRM_INVALID, "%s", err->message);
        return TRM_INVALID;
    }
    /* A scheduler is no rank; its link is kept until the job ends. */
    if (peer->rank == TRMI_WATCHER) {
        trmi_link_close(&form->watcher);
        form->watcher = who->link;
        return TRM_OK;
    }
    /* In an elastic job a process with a rank that is taken joins when the job runs: it comes
     * again. */
    const trm_status taken = form->join->running != NULL ? TRM_PENDING : TRM_INVALID;
    const guest *before = peer->rank > 0 ? guest_of(form, peer->rank) : NULL;
    const bool is_own = peer->rank >= 0 && peer->rank == own->rank;
    if (is_own || before != NULL) {
        const trmi_hello *here = is_own ? own : &before->hello;
        trmi_side_refuse(&who->link, taken, "rank %d is already here (%s pid %d); each rank once",
                         peer->rank, here->host, here->pid);
        return TRM_OK;
    }
    /* Ranks that cannot be added: only they are refused. */
    if ((peer->rank >= 0 && peer->rank < own->rank) || peer->rank < -1 || peer->rank >= own->size) {
        trmi_side_refuse(&who->link, TRM_INVALID,
                         "rank %d cannot join: %d to %d expected (rank %d is %s pid %d)",
                         peer->rank, own->rank + 1, own->size - 1, own->rank, own->host, own->pid);
        return TRM_OK;
    }
    if (form->guest_count == own->size - 1) {
        trmi_side_refuse(&who->link, taken, "all %d ranks are here already", own->size);
        return TRM_OK;
    }
    /* The peer is a guest. */
    who->link.heard_time = form->came_time = trmi_os_now();
    form->guests[form->guest_count++] = *who;
    return TRM_OK;
}

/* Turns a connection that has proved the token into a guest. */
static trm_status take_guest(forming *form, const trmi_session *session, trm_error *err) {
    guest who = {.link = {.fd = session->fd}};
    if (!trmi_hello_decode(session->detail, session->detail_bytes, &who.hello)) {
        close(session->fd);
        return TRM_OK;
    }
    memcpy(who.link.send_key, session->down_key, sizeof who.link.send_key);
    memcpy(who.link.recv_key, session->up_key, sizeof who.link.recv_key);
    return check_candidate(form, &who, err);
}

/* Removes a guest that has closed its connection (or sends data too early); it may come again. */
static void hear_guest(forming *form, int32_t index) {
    guest *who = &form->guests[index];
    if (trmi_link_fill(&who->link) < 0 || who->link.in_bytes > 0) {
        trmi_log(TRM_LOG_WARN, "comm", "rendezvous: rank %d (%s pid %d) left again",
                 who->hello.rank, who->hello.host, who->hello.pid);
        trmi_link_close(&who->link);
        form->guests[index] = form->guests[--form->guest_count];
    }
}

/* Writes "waited 20 s at host:port for ranks 1, 3 of 4". */
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

/* Returns how many ranks are still waited for: all that have neither come nor been lost. */
static int32_t count_missing(forming *form) {
    const trmi_join *join = form->join;
    int32_t n = join->hello.size, missing = n - 1 - form->guest_count;
    bool *lost = missing > 0 && join->running != NULL ? trmi_alloc((size_t)n * sizeof *lost) : NULL;
    if (lost != NULL && trmi_place_read_lost(&join->place, lost, n) > 0) {
        for (int32_t r = 0; r < n; r++) {
            missing -= lost[r] && r != join->hello.rank && guest_of(form, r) == NULL;
        }
    }
    trmi_free(lost);
    return missing;
}

/* Serves guests and new connections once, for 0.2 s at most. Goes through the guests backwards,
 * because the last guest replaces one that leaves. */
static trm_status serve_round(forming *form, trm_error *err) {
    int32_t guests = form->guest_count;
    trmi_session session;
    form->polls[0] =
        (struct pollfd){.fd = trmi_acceptor_fd(form->reception.acceptor), .events = POLLIN};
    for (int32_t g = 0; g < guests; g++) {
        form->polls[1 + g] = (struct pollfd){.fd = form->guests[g].link.fd, .events = POLLIN};
    }
    if (poll(form->polls, (nfds_t)guests + 1, 200) < 0 && errno != EINTR) {
        return TRMI_FAIL_SYS(err, "rendezvous: poll");
    }
    for (int32_t g = guests - 1; g >= 0; g--) {
        if (form->polls[1 + g].revents != 0) {
            hear_guest(form, g);
        }
    }
    trm_status status = trmi_acceptor_next(form->reception.acceptor, 0, &session, err);
    if (status == TRM_OK) {
        return take_guest(form, &session, err);
    }
    return status == TRM_TIMEOUT ? TRM_OK : status;
}

/* Returns whether the ranks that are here begin without the others, and says so. */
static bool begins_without(const forming *form, double start) {
    const trmi_join *join = form->join;
    const double now = trmi_os_now(), quiet = now - form->came_time;
    char text[224];
    if (join->least == 0 || form->guest_count + 1 < join->least || quiet < join->quiet_seconds) {
        return false;
    }
    say_missing(form, now - start, text, sizeof text);
    trmi_log(TRM_LOG_WARN, "comm",
             "rendezvous: %s; none came in the last %.0f s: the elastic job begins with %d of %d "
             "ranks, and one that comes later joins it",
             text, quiet, form->guest_count + 1, join->hello.size);
    return true;
}

/* Waits until all ranks are here that are not lost, or enough of them; TIMEOUT with the missing
 * ranks. */
static trm_status wait_for_all(forming *form, trm_error *err) {
    double start = trmi_os_now(), said = start;
    double limit = form->join->options.timeout_seconds;
    char text[224], enough[64] = "";
    form->came_time = start;
    if (form->join->least > 0) {
        snprintf(enough, sizeof enough, "; the elastic job begins with %d of them",
                 form->join->least);
    }
    for (int32_t rounds = 0; count_missing(form) > 0 && !begins_without(form, start); rounds++) {
        TRMI_TRY(trmi_side_check_abandoned(form->join, err));
        TRMI_TRY(trmi_side_check_ended(form->join, rounds, err));
        TRMI_TRY(serve_round(form, err));
        double now = trmi_os_now();
        if (now - start >= limit && count_missing(form) > 0) {
            say_missing(form, now - start, text, sizeof text);
            const char *refused =
                form->refused[0] ? form->refused : trmi_acceptor_refused(form->reception.acceptor);
            return TRMI_FAIL(err, TRM_TIMEOUT, "%.130s%s%s%.70s", text, enough,
                             refused[0] ? "; turned away: " : "; start them, or look at their logs",
                             refused);
        }
        if (now - said >= say_seconds) {
            said = now;
            say_missing(form, now - start, text, sizeof text);
            trmi_log(TRM_LOG_WARN, "comm", "rendezvous: %s%s%s", text, enough, form->join->hint);
        }
    }
    return TRM_OK;
}

/* Waits some seconds for msrun's scheduler, which is started together with the workers. A job
 * without a scheduler continues after that time. */
static trm_status wait_for_watcher(forming *form, trm_error *err) {
    double start = trmi_os_now();
    while (form->join->watched && form->watcher.fd < 0 && trmi_os_now() - start < watcher_seconds) {
        TRMI_TRY(serve_round(form, err));
    }
    return TRM_OK;
}

/* Waits some seconds for a member of a job that runs already, on another host: a rank that is to
 * begin alone would begin it a second time. */
static trm_status wait_for_herald(forming *form, bool may_run, trm_error *err) {
    const double start = trmi_os_now();
    while (may_run && trmi_os_now() - start < alone_seconds) {
        TRMI_TRY(serve_round(form, err));
    }
    return TRM_OK;
}

/* Sorts ranks with numbers first, then by address, host, device and pid, so that ranks without
 * numbers are numbered in a reproducible order, ranks of one host next to each other. */
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

/* Gives numbers to ranks that came without: in sorted order, into the gaps. */
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

/* Numbers the ranks anew, in their order, where some are lost. */
static void close_gaps(forming *form) {
    qsort(form->guests, (size_t)form->guest_count, sizeof *form->guests, by_place);
    for (int32_t g = 0; g < form->guest_count; g++) {
        form->guests[g].hello.rank = g + 1;
    }
    trmi_log(TRM_LOG_INFO, "comm",
             "the job begins with %d of %d ranks: the others have died, or have not come",
             form->guest_count + 1, form->side->base.size);
    form->side->base.size = form->side->link_count = form->guest_count + 1;
}

/* Copies what a HELLO declares. */
static void take_peer(trmi_peer *peer, const trmi_hello *hello) {
    peer->pid = hello->pid;
    peer->device = hello->device;
    memcpy(peer->host_id, hello->host_id, 32);
    memcpy(peer->host, hello->host, sizeof peer->host);
    memcpy(peer->address, hello->address, sizeof peer->address);
}

/* Completes the meeting: assigns ranks, turns guests into links, derives the job's secret from the
 * token and a nonce, and sends the WELCOME to all. */
static trm_status send_welcome(forming *form, trm_error *err) {
    trmi_side *side = form->side;
    uint8_t nonce[32];
    assign_ranks(form);
    if (form->guest_count + 1 < side->base.size) {
        close_gaps(form);
    }
    size_t bytes = TRMI_WELCOME_HEAD + (size_t)side->base.size * TRMI_WELCOME_ENTRY;
    uint8_t *wire = trmi_alloc(bytes);
    if (wire == NULL || trmi_net_random(nonce, sizeof nonce, NULL) != TRM_OK) {
        trmi_free(wire);
        return TRMI_NO_MEMORY(err, "to welcome %d ranks", side->base.size);
    }
    take_peer(&side->peers[0], &form->join->hello);
    for (int32_t g = 0; g < form->guest_count; g++) {
        take_peer(&side->peers[form->guests[g].hello.rank], &form->guests[g].hello);
        side->links[form->guests[g].hello.rank] = form->guests[g].link;
    }
    form->guest_count = 0;
    side->watcher = form->watcher;
    form->watcher.fd = -1;
    trmi_net_mac(form->join->token, "data", nonce, sizeof nonce, NULL, 0, side->secret);
    trm_status status = TRM_OK;
    for (int32_t r = 1; r < side->base.size && status == TRM_OK; r++) {
        trmi_welcome_encode(side, r, nonce, wire);
        if (!trmi_link_put(&side->links[r], TRMI_FRAME_WELCOME, 0, wire, bytes)) {
            status = TRMI_NO_MEMORY(err, "to welcome %d ranks", side->base.size);
        }
        trmi_link_flush(&side->links[r]); /* the service thread sends the rest */
    }
    trmi_free(wire);
    return status;
}

/* Chooses the token if no token file is given: none where only processes of this user can connect
 * ("unix:"), the published secret ("file:"), otherwise a random one that processes of this user
 * find by the address that they reach. */
static trm_status make_token(trmi_join *join, trmi_reception *reception, trm_error *err) {
    const trmi_listener *listener = &reception->listener;
    if (join->has_token || join->options.insecure || join->place.kind == TRMI_PLACE_UNIX) {
        return TRM_OK;
    }
    if (join->place.kind == TRMI_PLACE_FILE) {
        memcpy(join->token, listener->secret, TRM_TOKEN_BYTES);
        return TRM_OK;
    }
    TRMI_TRY(trmi_net_random(join->token, TRM_TOKEN_BYTES, err));
    for (int l = 0; l < listener->count; l++) {
        char name[TRMI_NET_NAME_BYTES];
        trmi_net_own(listener->fds[l], name);
        TRMI_TRY(trmi_token_publish(name, join->token, reception->published[l], err));
    }
    return TRM_OK;
}

/* Creates the acceptor of base/net/net.h, which does the proofs. It takes over the sockets. */
static trm_status open_acceptor(trmi_join *join, trmi_reception *reception, trm_error *err) {
    trmi_acceptor_options options = {
        .credentials = {.service = TRMI_SERVICE_RENDEZVOUS, .version = TRMI_SIDE_VERSION},
        .room = "comm",
        .name = "rendezvous",
        .refuses = refusal_reason,
        .context = join};
    int count = reception->listener.count;
    memcpy(options.credentials.token, join->token, sizeof options.credentials.token);
    reception->listener.count = 0; /* the acceptor closes them */
    trm_status status =
        trmi_acceptor_create(reception->listener.fds, count, &options, &reception->acceptor, err);
    explicit_bzero(&options, sizeof options);
    return status;
}

/* Contract in side.h. A socket that the launcher has opened before it started the ranks is used, so
 * that no other process can take the port in between. */
trm_status trmi_reception_open(trmi_join *join, double deadline, trmi_reception *out,
                               trm_error *err) {
    *out = TRMI_RECEPTION_CLOSED;
    if (join->listens) {
        out->listener = join->listener;
        join->listens = false;
    } else {
        TRMI_TRY(trmi_listen(&join->place, deadline, &out->listener, err));
    }
    trm_status status = make_token(join, out, err);
    status = status == TRM_OK ? open_acceptor(join, out, err) : status;
    if (status != TRM_OK) {
        trmi_reception_close(out, join);
    }
    return status;
}

void trmi_reception_close(trmi_reception *reception, const trmi_join *join) {
    for (int l = 0; l < TRMI_LISTENERS_MAX; l++) {
        trmi_token_withdraw(reception->published[l], join->token);
    }
    trmi_acceptor_destroy(reception->acceptor);
    trmi_listener_close(&reception->listener);
    *reception = TRMI_RECEPTION_CLOSED;
}

/* Contract in side.h. Rank 0: opens the place, receives a guest from each rank, waits for the
 * watcher of the launcher if there is one, and sends WELCOME with the addresses of all. When it
 * fails, each guest that is here gets the reason. */
trm_status trmi_side_root(trmi_side *side, trmi_join *join, trm_error *err) {
    int32_t n = side->base.size;
    forming *form = trmi_alloc(sizeof *form);
    trmi_join *opens = join->holds != NULL ? join->lasting : join;
    trm_error local;
    err = err != NULL ? err : &local;
    if (form == NULL) {
        return TRMI_NO_MEMORY(err, "for the rendezvous");
    }
    *form = (forming){
        .side = side, .join = join, .reception = TRMI_RECEPTION_CLOSED, .watcher = {.fd = -1}};
    form->guests = trmi_alloc((size_t)n * sizeof *form->guests);
    form->polls = trmi_alloc((size_t)n * sizeof *form->polls);
    trm_status status;
    if (form->guests == NULL || form->polls == NULL) {
        status = TRMI_NO_MEMORY(err, "for the rendezvous");
        goto done;
    }
    double deadline = trmi_os_now() + join->options.timeout_seconds;
    const bool may_run = join->holds != NULL && trmi_place_may_have_met(&join->place);
    TRMI_TRY_GOTO(status, trmi_reception_open(opens, deadline, &form->reception, err), done);
    snprintf(join->hello.address, sizeof join->hello.address, "%.47s",
             join->address[0] != '\0' ? join->address : form->reception.listener.address);
    if (join->options.insecure && !join->has_token) {
        trmi_log(TRM_LOG_WARN, "comm",
                 "rendezvous at %s lets every host in without a token "
                 "(insecure)",
                 join->place.text);
    }
    status = wait_for_all(form, err);
    status = status == TRM_OK ? wait_for_watcher(form, err) : status;
    status = status == TRM_OK ? wait_for_herald(form, may_run, err) : status;
    if (status == TRM_OK) {
        if (join->running != NULL) {
            trmi_place_end_lost(&join->place);
        }
        status = send_welcome(form, err);
    }
    /* On failure, the guests are still here and get the reason. */
    for (int32_t g = 0; g < form->guest_count; g++) {
        trmi_side_refuse(&form->guests[g].link, status == TRM_END ? TRM_PENDING : status, "%s",
                         err->message);
    }
    if (status == TRM_OK && join->holds != NULL) {
        *join->holds = form->reception;
        form->reception = TRMI_RECEPTION_CLOSED;
    }
done:
    trmi_link_close(&form->watcher);
    trmi_reception_close(&form->reception, opens);
    trmi_free(form->guests);
    trmi_free(form->polls);
    trmi_free(form);
    return status;
}
