/* SPDX-License-Identifier: Apache-2.0 */
/* A network in memory for ranks that are threads of one process. The engine option is "sim" or
 * "sim:seed=N,delay=MICROSECONDS,reorder=PERMILLE,flip=PERMILLE,close=RANK@TRANSFERS,
 * stall=RANK@TRANSFERS".
 *
 *   world (the first rank's, shared by address)
 *     pair[from][to][channel]   queue of copies in flight, each with the time at which it arrives
 *
 * Delays and faults are pure functions of (seed, from, to, channel, number), so a seed is a replay.
 * Frames of one pair stay in order (as on TCP) unless `reorder` says otherwise; that, `flip`,
 * `close` and `stall` are faults that must be noticed. */
#include "comm/net/transport.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A frame on its way. */
typedef struct frame {
    struct frame *next; /* in the queue of its pair */
    double arrival;     /* time at which it may be received */
    trmi_tag tag;
    uint64_t bytes; /* of data */
    uint64_t sum;   /* checksum of the data before bits were flipped */
    char data[];
} frame;

/* The frames from one rank to another, in the order in which they arrive. */
typedef struct pair {
    frame *first, **last;
    uint64_t sent;
    double latest; /* arrival of the last frame: none overtakes it */
} pair;

/* The faults that are injected. */
typedef struct faults {
    double delay_seconds;                     /* of a frame, at most */
    uint32_t reorder_permille, flip_permille; /* of the frames */
    int32_t close_rank, stall_rank;           /* ranks that close, or stop; -1: none */
    uint64_t seed;
    uint64_t close_after, stall_after; /* transfers that the rank starts before */
} faults;

typedef struct world {
    pthread_mutex_t mutex;
    _Atomic int32_t users;
    int32_t size;
    faults faults;
    bool *closed; /* [size] */
    pair *pairs;
} world;

typedef struct sim {
    trmi_transport base;
    world *world;
    uint64_t started; /* transfers of this rank */
    trmi_net_transfer *receives, **receives_tail;
} sim;

static pair *pair_of(world *w, int32_t from, int32_t to, int32_t channel) {
    return &w->pairs[((size_t)from * (size_t)w->size + (size_t)to) * TRMI_CHANNELS +
                     (size_t)channel];
}

/* ---- sending --------------------------------------------------------------------------------- */
static void put_in_flight(world *w, pair *p, frame *f, uint64_t stream) {
    uint64_t number = p->sent++;
    uint32_t draw[4];
    trmi_philox(w->faults.seed, stream, number, draw);
    double now = trmi_os_now();
    f->arrival = now + w->faults.delay_seconds * trmi_unit_float(draw[0]);
    f->arrival = f->arrival > p->latest ? f->arrival : p->latest;
    p->latest = f->arrival;
    if (f->bytes > 0 && trmi_bounded(draw[2], 1000) < w->faults.flip_permille) {
        f->data[draw[3] % f->bytes] ^= 1;
    }
    if (p->first != NULL && trmi_bounded(draw[1], 1000) < w->faults.reorder_permille) {
        f->next = p->first; /* overtakes all that wait */
        p->first = f;
        return;
    }
    *p->last = f;
    p->last = &f->next;
}

static trm_status send_frame(sim *self, trmi_net_transfer *t, trm_error *err) {
    world *w = self->world;
    frame *f = malloc(sizeof *f + t->bytes);
    if (f == NULL) {
        return TRMI_NO_MEMORY(err, "for a simulated frame");
    }
    *f = (frame){.tag = t->tag, .bytes = t->bytes};
    if (t->bytes > 0) {
        memcpy(f->data, t->data, t->bytes);
    }
    f->sum = trmi_hash(TRMI_HASH_BEGIN, f->data, f->bytes);
    int32_t me = self->base.group.rank;
    pthread_mutex_lock(&w->mutex);
    pair *p = pair_of(w, me, t->peer, t->channel);
    put_in_flight(w, p, f, (uint64_t)(p - w->pairs));
    pthread_mutex_unlock(&w->mutex);
    t->moved = t->bytes;
    t->done = true;
    return TRM_OK;
}

static bool is_stalled(const sim *self) {
    const faults *f = &self->world->faults;
    return f->stall_rank == self->base.group.rank && self->started > f->stall_after;
}

static trm_status sim_start(trmi_transport *transport, trmi_net_transfer *t, trm_error *err) {
    sim *self = (sim *)(void *)transport;
    const faults *f = &self->world->faults;
    t->next = NULL;
    t->done = false;
    t->moved = 0;
    self->started++;
    if (f->close_rank == self->base.group.rank && self->started > f->close_after) {
        pthread_mutex_lock(&self->world->mutex);
        self->world->closed[f->close_rank] = true;
        pthread_mutex_unlock(&self->world->mutex);
    }
    if (t->receive) {
        *self->receives_tail = t;
        self->receives_tail = &t->next;
        return TRM_OK;
    }
    return is_stalled(self) ? TRM_OK : send_frame(self, t, err);
}

/* ---- receiving ------------------------------------------------------------------------------- */
static trm_status deliver_frame(sim *self, trmi_net_transfer *t, const frame *f, trm_error *err) {
    const trmi_group *group = &self->base.group;
    self->base.culprit = t->peer;
    if (f->bytes != t->bytes || memcmp(&f->tag, &t->tag, sizeof f->tag) != 0) {
        self->base.expected = t;
        self->base.found = f->tag;
        self->base.found_bytes = f->bytes;
        return TRMI_FAIL(err, TRM_INVALID, "unexpected frame");
    }
    if (f->sum != trmi_hash(TRMI_HASH_BEGIN, f->data, f->bytes)) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "rank %d received damaged bytes from rank %d in operation "
                         "%llu",
                         group->members[group->rank], group->members[t->peer],
                         (unsigned long long)t->tag.sequence);
    }
    if (f->bytes > 0) {
        memcpy(t->data, f->data, f->bytes);
    }
    t->moved = t->bytes;
    t->done = true;
    return TRM_OK;
}

static frame *take_arrived(sim *self, const trmi_net_transfer *t, bool *closed) {
    world *w = self->world;
    int32_t me = self->base.group.rank;
    pthread_mutex_lock(&w->mutex);
    pair *p = pair_of(w, t->peer, me, t->channel);
    frame *f = p->first;
    /* Messages under way arrive before the end of their sender is seen. */
    *closed = w->closed[me] || (f == NULL && w->closed[t->peer]);
    if (f != NULL && f->arrival <= trmi_os_now()) {
        p->first = f->next;
        if (p->first == NULL) {
            p->last = &p->first;
        }
    } else {
        f = NULL;
    }
    pthread_mutex_unlock(&w->mutex);
    return f;
}

static bool is_behind(const sim *self, const trmi_net_transfer *t) {
    for (const trmi_net_transfer *other = self->receives; other != t; other = other->next) {
        if (other->peer == t->peer && other->channel == t->channel) {
            return true;
        }
    }
    return false;
}

static trm_status sim_progress(trmi_transport *transport, bool *moved, trm_error *err) {
    sim *self = (sim *)(void *)transport;
    const trmi_group *group = &self->base.group;
    for (trmi_net_transfer **at = &self->receives; *at != NULL && !is_stalled(self);) {
        trmi_net_transfer *t = *at;
        bool closed = false;
        frame *f = is_behind(self, t) ? NULL : take_arrived(self, t, &closed);
        if (f == NULL) {
            if (closed) {
                self->base.culprit = t->peer;
                return TRMI_FAIL(err, TRM_PEER, "rank %d lost its connection to rank %d: closed",
                                 group->members[group->rank], group->members[t->peer]);
            }
            at = &t->next;
            continue;
        }
        *at = t->next;
        if (self->receives_tail == &t->next) {
            self->receives_tail = at;
        }
        *moved = true;
        trm_status status = deliver_frame(self, t, f, err);
        free(f);
        TRMI_TRY(status);
    }
    return TRM_OK;
}

static void sim_wait(trmi_transport *transport, double seconds) {
    (void)transport;
    struct timespec pause = {.tv_nsec = seconds < 0.0001 ? (long)(seconds * 1e9) : 100000};
    nanosleep(&pause, NULL);
}

/* ---- life ------------------------------------------------------------------------------------ */
static void free_world(world *w) {
    for (size_t i = 0; w->pairs != NULL && i < (size_t)w->size * (size_t)w->size * TRMI_CHANNELS;
         i++) {
        while (w->pairs[i].first != NULL) {
            frame *next = w->pairs[i].first->next;
            free(w->pairs[i].first);
            w->pairs[i].first = next;
        }
    }
    pthread_mutex_destroy(&w->mutex);
    trmi_free(w->pairs);
    trmi_free(w->closed);
    trmi_free(w);
}

static void sim_destroy(trmi_transport *transport) {
    sim *self = (sim *)(void *)transport;
    world *w = self->world;
    if (w != NULL) {
        pthread_mutex_lock(&w->mutex);
        w->closed[self->base.group.rank] = true;
        pthread_mutex_unlock(&w->mutex);
        if (atomic_fetch_sub(&w->users, 1) == 1) {
            free_world(w);
        }
    }
    trmi_free(self);
}

static trm_status parse_faults(const char *text, faults *out, trm_error *err) {
    *out = (faults){.close_rank = -1, .stall_rank = -1};
    const char *at = strchr(text, ':');
    while (at != NULL && at[1] != '\0') {
        unsigned value;
        int rank, used = 0;
        unsigned long after;
        at++;
        if (sscanf(at, "delay=%u%n", &value, &used) == 1 && used > 0) {
            out->delay_seconds = 1e-6 * value;
        } else if (sscanf(at, "reorder=%u%n", &value, &used) == 1 && used > 0) {
            out->reorder_permille = value;
        } else if (sscanf(at, "flip=%u%n", &value, &used) == 1 && used > 0) {
            out->flip_permille = value;
        } else if (sscanf(at, "seed=%u%n", &value, &used) == 1 && used > 0) {
            out->seed = value;
        } else if (sscanf(at, "close=%d@%lu%n", &rank, &after, &used) == 2 && used > 0) {
            out->close_rank = rank, out->close_after = after;
        } else if (sscanf(at, "stall=%d@%lu%n", &rank, &after, &used) == 2 && used > 0) {
            out->stall_rank = rank, out->stall_after = after;
        } else {
            return TRMI_FAIL(err, TRM_INVALID,
                             "engine '%s': '%s' is not a fault of the simulated "
                             "network (seed, delay, reorder, flip, close, stall)",
                             text, at);
        }
        at = strchr(at, ',');
    }
    return TRM_OK;
}

static trm_status make_world(sim *self, const char *text, trm_error *err) {
    size_t n = (size_t)self->base.group.size;
    world *w;
    TRMI_TRY(TRMI_NEW(err, w, 1, "for a simulated network"));
    pthread_mutex_init(&w->mutex, NULL);
    w->size = (int32_t)n;
    w->closed = trmi_alloc(n * sizeof *w->closed);
    w->pairs = trmi_alloc(n * n * TRMI_CHANNELS * sizeof *w->pairs);
    atomic_store(&w->users, 1);
    trm_status status = w->closed != NULL && w->pairs != NULL
                            ? parse_faults(text, &w->faults, err)
                            : TRMI_NO_MEMORY(err, "for a simulated network");
    for (size_t i = 0; w->pairs != NULL && i < n * n * TRMI_CHANNELS; i++) {
        w->pairs[i].last = &w->pairs[i].first;
    }
    if (status != TRM_OK) {
        free_world(w);
        return status;
    }
    self->world = w;
    return TRM_OK;
}

typedef struct card {
    int64_t pid;
    uint64_t world;
} card;

static const trmi_transport_table sim_table = {
    .name = "sim",
    .start = sim_start,
    .progress = sim_progress,
    .wait = sim_wait,
    .destroy = sim_destroy,
};

trm_status trmi_sim_create(const trmi_group *group, const char *text, const trmi_exchange *exchange,
                           trmi_transport **out, trm_error *err) {
    sim *self = trmi_alloc(sizeof *self);
    card mine = {.pid = getpid()}, *cards = trmi_alloc((size_t)group->size * sizeof *cards);
    trm_status status = TRM_OK;
    if (self == NULL || cards == NULL) {
        status = TRMI_NO_MEMORY(err, "for a simulated network");
        goto done;
    }
    self->base.table = &sim_table;
    self->base.group = *group;
    self->base.culprit = -1;
    self->receives_tail = &self->receives;
    if (group->rank == 0) {
        TRMI_TRY_GOTO(status, make_world(self, text, err), done);
        mine.world = (uint64_t)(uintptr_t)self->world;
    }
    TRMI_TRY_GOTO(status, exchange->allgather(exchange->context, &mine, sizeof mine, cards, err),
                  done);
    for (int32_t r = 0; status == TRM_OK && r < group->size; r++) {
        if (cards[r].pid != mine.pid || cards[0].world == 0) {
            status = TRMI_FAIL(err, TRM_UNSUPPORTED,
                               "engine sim needs ranks that are threads of one "
                               "process; ranks 0 and %d are not",
                               r);
        }
    }
    if (status == TRM_OK && group->rank != 0) {
        self->world = (world *)(uintptr_t)cards[0].world;
        atomic_fetch_add(&self->world->users, 1);
    }
    /* no rank leaves before all have arrived */
    status = status == TRM_OK
                 ? exchange->allgather(exchange->context, &mine, sizeof mine, cards, err)
                 : status;
done:
    trmi_free(cards);
    if (status != TRM_OK) {
        if (self != NULL) {
            sim_destroy(&self->base);
        }
        return status;
    }
    *out = &self->base;
    return TRM_OK;
}
