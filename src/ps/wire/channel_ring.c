/* SPDX-License-Identifier: Apache-2.0 */
/* Channels of two rings in shared memory.
 *
 *     end A --[ ring 0 ]--> end B        ring: tail (reserved) ... head (released)
 *           <--[ ring 1 ]--              block: 64 bytes of state, then the message
 *
 * A block goes from RESERVED to COMMITTED; the consumer then hands its message out and notes in
 * `taken` that it is released. Space becomes free when the oldest blocks are released. Waiting
 * ends sleep on the futexes `bell` (news for the consumer) and `space` (room for the producer).
 *
 * When all blocks are released (head = tail) the producer starts over at the beginning of the
 * memory, by moving both to the next multiple of its size, `head` first: messages then lie in
 * memory that is in the caches, and only as much of a ring is touched as is under way. The
 * consumer, which alone moves `head` otherwise, reads `tail` before `head`, so that it never
 * sees the old head below the new tail; its own position follows.
 *
 * The peer may be hostile: it can write anything into the rings at any time. Each end therefore
 * keeps its own copy of all that its decisions depend on: the size of the rings, the producer
 * its tail, the consumer its positions and the sizes of the blocks that it has handed out. The
 * fields of a block are copied once, checked, and used from the copy. Positions are taken modulo
 * the ring, so that a wrong one leads to another place in the ring and never outside. Memory of
 * two processes is a sealed memory file (comm/shm/shared_memory.h), which cannot be truncated. */
#define _GNU_SOURCE
#include "ps/wire/channel.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/futex.h"
#include "comm/shm/shared_memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RESERVED = 1, COMMITTED = 2, HEAD_BYTES = 256, BLOCK_HEAD = 64 };
static const uint32_t RELEASED =
    1u << 31; /* bit in `taken`, beside the block's size in units of BLOCK_HEAD */
static const uint64_t ring_magic = 0x32676E6972737074u; /* "tpsring2" */
static const double slice_seconds = 0.05; /* between checks whether the peer is alive */
/* longest polling before sleeping: about the cost of sleeping and waking an idle CPU */
static const double patience_most = 50e-6;

/* The head of a block; written by the producer. */
typedef struct block {
    _Atomic uint32_t state;
    _Atomic uint32_t empty; /* 1: no message, to be skipped */
    _Atomic uint64_t block_bytes;
    _Atomic uint64_t bytes;
    uint8_t pad[BLOCK_HEAD - 24];
} block;

/* The head of a ring. Members of producer and consumer are on different cache lines. */
typedef struct ring {
    uint64_t magic, data_bytes;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint32_t bell;
    _Atomic uint32_t consumer_sleeps;
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t space;
    _Atomic uint32_t producer_sleeps;
    _Atomic uint32_t shut; /* the producer has closed the ring */
    _Atomic uint32_t gone; /* the consumer has left */
} ring;
_Static_assert(sizeof(ring) <= HEAD_BYTES, "the head of a ring fits its place");

/* One end of a channel: a ring for each direction. */
typedef struct ring_channel {
    trmi_channel base;
    ring *out, *in;
    size_t ring_bytes; /* bytes of data in each ring */
    uint64_t tail;     /* own copy of the tail of `out` */
    uint64_t read;     /* next block of `in` to receive */
    uint64_t head;     /* oldest block of `in` that is not released (under release_mutex) */
    _Atomic uint32_t
        *taken; /* [ring_bytes / BLOCK_HEAD] blocks of `in` that were handed out, by place */
    double patience_seconds; /* current polling time before sleeping */
    pthread_mutex_t release_mutex;
    void *memory;
    size_t memory_bytes;
    _Atomic int32_t *users; /* ends that use the memory within one process; NULL: only this one */
    trmi_channel *tcp;      /* the TCP connection, for detecting death; NULL within a process */
    int fd;                 /* memory file of an offer until it is settled, else -1 */
} ring_channel;

/* Return where things lie: data of a ring, the block at a position, the state that the consumer
 * keeps of it. Positions only grow; their lower bits are the place. */
static char *data_of(ring *r) { return (char *)r + HEAD_BYTES; }
static block *block_at(const ring_channel *c, ring *r, uint64_t position) {
    return (block *)(void *)(data_of(r) + (position & (c->ring_bytes - 1)));
}
static _Atomic uint32_t *taken_at(const ring_channel *c, uint64_t position) {
    return &c->taken[(position & (c->ring_bytes - 1)) / BLOCK_HEAD];
}
/* Returns the bytes of a ring with its head. */
static size_t ring_memory(size_t ring_bytes) { return HEAD_BYTES + ring_bytes; }

/* Makes an empty ring; memory is zero already. */
static void ring_init(ring *r, size_t ring_bytes) {
    r->data_bytes = ring_bytes;
    r->magic = ring_magic;
}

/* Checks that the other end exists: it has not left the ring, and its connection is open.
 *   errors  PEER */
static trm_status peer_lives(const ring_channel *c, trm_error *err) {
    if (atomic_load(&c->out->gone) != 0 || (c->tcp != NULL && trmi_tcp_gone(c->tcp))) {
        return TRMI_FAIL(err, TRM_PEER, "%s is gone", c->base.peer);
    }
    return TRM_OK;
}

/* Sleeps until *word differs from `seen`, a slice has passed, or the deadline. Returns false if
 * the deadline has passed. */
static bool wait_or_sleep(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleeps,
                          double deadline) {
    double left = deadline - trmi_os_now();
    if (left <= 0) {
        return false;
    }
    /* the flag first, then the check: a signal between them is not lost */
    atomic_store(sleeps, 1);
    if (atomic_load(word) == seen) {
        trmi_futex_wait((uint32_t *)(void *)word, seen,
                        left < slice_seconds ? left : slice_seconds);
    }
    atomic_store(sleeps, 0);
    return true;
}

/* Waits for news: polls for a while, yielding the CPU, before it sleeps. If polling was in vain
 * the next polling is half as long; after news within the polling time it is as long as
 * possible. Returns false if the deadline has passed. */
static bool wait_for_news(ring_channel *c, uint32_t seen, double deadline) {
    ring *r = c->in;
    const double began = trmi_os_now();
    while (trmi_os_now() - began < c->patience_seconds) {
        if (atomic_load(&r->bell) != seen) {
            c->patience_seconds = patience_most;
            return true;
        }
        sched_yield();
    }
    bool waited = wait_or_sleep(&r->bell, seen, &r->consumer_sleeps, deadline);
    c->patience_seconds =
        trmi_os_now() - began < patience_most ? patience_most : c->patience_seconds / 2;
    return waited;
}

/* Signals the other end and wakes it if it sleeps. */
static void ring_bell(_Atomic uint32_t *word, _Atomic uint32_t *sleeps) {
    atomic_fetch_add(word, 1);
    if (atomic_load(sleeps) != 0) {
        trmi_futex_wake((uint32_t *)(void *)word, 1);
    }
}

/* Returns where the next block goes; an empty ring starts over at its beginning. */
static uint64_t start_again(const ring_channel *c) {
    uint64_t tail = c->tail, past = tail & (c->ring_bytes - 1);
    if (past != 0 && atomic_load(&c->out->head) == tail) {
        tail += c->ring_bytes - past;
        atomic_store(&c->out->head, tail);
    }
    return tail;
}

/* Fills in a block's head; called before its state is set. */
static void describe_block(block *b, bool empty, uint64_t block_bytes, uint64_t bytes) {
    atomic_store_explicit(&b->empty, empty, memory_order_relaxed);
    atomic_store_explicit(&b->block_bytes, block_bytes, memory_order_relaxed);
    atomic_store_explicit(&b->bytes, bytes, memory_order_relaxed);
}

/* trmi_channel_table.reserve: takes the next block of the ring and waits for its room. A block
 * does not wrap around; the rest of the ring before its start becomes an empty block. */
static trm_status ring_reserve(trmi_channel *channel, size_t bytes, double timeout_seconds,
                               trmi_message *out, trm_error *err) {
    ring_channel *c = (ring_channel *)channel;
    ring *r = c->out;
    uint64_t need = BLOCK_HEAD + (uint64_t)trmi_round_up((int64_t)bytes, BLOCK_HEAD);
    if (bytes > c->ring_bytes / 2 - BLOCK_HEAD) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a message of %zu bytes to %s: at most %zu fit the shared-memory ring: "
                         "raise ring_bytes or send smaller batches",
                         bytes, channel->peer, c->ring_bytes / 2 - BLOCK_HEAD);
    }
    double deadline = trmi_os_now() + timeout_seconds;
    uint64_t tail = start_again(c);
    /* to the end of the ring there may be too little room in one piece */
    uint64_t to_end = c->ring_bytes - (tail & (c->ring_bytes - 1));
    uint64_t pad = to_end < need ? to_end : 0;
    for (;;) {
        uint32_t seen = atomic_load(&r->space);
        if (c->ring_bytes - (tail - atomic_load(&r->head)) >= pad + need) {
            break;
        }
        TRMI_TRY(peer_lives(c, err));
        if (!wait_or_sleep(&r->space, seen, &r->producer_sleeps, deadline)) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "%s has not taken its messages for %.1f s",
                             channel->peer, timeout_seconds);
        }
    }
    /* Fill the rest of the ring with an empty block. */
    if (pad > 0) {
        block *skip = block_at(c, r, tail);
        describe_block(skip, true, pad, 0);
        atomic_store(&skip->state, COMMITTED);
        tail += pad;
    }
    block *b = block_at(c, r, tail);
    describe_block(b, false, need, bytes);
    atomic_store(&b->state, RESERVED);
    c->tail = tail + need;
    /* The consumer sees the block only with its state set. */
    atomic_store(&r->tail, c->tail);
    *out = (trmi_message){.data = (uint8_t *)(b + 1), .bytes = bytes, .block = b};
    return TRM_OK;
}

/* trmi_channel_table.commit: a message of no bytes becomes an empty block, which the consumer
 * skips. */
static trm_status ring_commit(trmi_channel *channel, trmi_message *message, double timeout_seconds,
                              trm_error *err) {
    ring_channel *c = (ring_channel *)channel;
    block *b = message->block;
    (void)timeout_seconds;
    (void)err;
    atomic_store_explicit(&b->bytes, message->bytes, memory_order_relaxed);
    atomic_store_explicit(&b->empty, message->bytes == 0, memory_order_relaxed);
    atomic_store(&b->state, COMMITTED);
    ring_bell(&c->out->bell, &c->out->consumer_sleeps);
    *message = (trmi_message){0};
    return TRM_OK;
}

/* Returns the oldest released blocks to the producer. release_mutex held. */
static void give_space(ring_channel *c) {
    const uint64_t start = c->head;
    uint32_t units;
    while (((units = atomic_load_explicit(taken_at(c, c->head), memory_order_relaxed)) &
            RELEASED) != 0) {
        atomic_store_explicit(taken_at(c, c->head), 0, memory_order_relaxed);
        c->head += (uint64_t)(units & ~RELEASED) * BLOCK_HEAD;
    }
    if (c->head != start) {
        atomic_store(&c->in->head, c->head);
        ring_bell(&c->in->space, &c->in->producer_sleeps);
    }
}

/* The functions of the channel's table (contracts in channel.h). */
static void ring_release(trmi_channel *channel, trmi_message *message) {
    ring_channel *c = (ring_channel *)channel;
    uint64_t place = (uint64_t)((const char *)message->block - data_of(c->in));
    pthread_mutex_lock(&c->release_mutex);
    atomic_fetch_or_explicit(taken_at(c, place), RELEASED, memory_order_relaxed);
    give_space(c);
    pthread_mutex_unlock(&c->release_mutex);
    *message = (trmi_message){0};
}

/* Takes the next block of `in`: copies its head once and checks it. Returns false if it does not
 * fit the ring. */
static bool take_block(ring_channel *c, trmi_message *out, bool *empty) {
    block *b = block_at(c, c->in, c->read);
    const uint64_t place = c->read & (c->ring_bytes - 1);
    const uint64_t block_bytes = atomic_load_explicit(&b->block_bytes, memory_order_relaxed),
                   bytes = atomic_load_explicit(&b->bytes, memory_order_relaxed);
    *empty = atomic_load_explicit(&b->empty, memory_order_relaxed) != 0;
    if (block_bytes < BLOCK_HEAD || block_bytes % BLOCK_HEAD != 0 ||
        block_bytes > c->ring_bytes - place || (!*empty && bytes > block_bytes - BLOCK_HEAD)) {
        return false;
    }
    *out = (trmi_message){(uint8_t *)(b + 1), *empty ? 0 : (size_t)bytes, b};
    atomic_store_explicit(taken_at(c, c->read), (uint32_t)(block_bytes / BLOCK_HEAD),
                          memory_order_relaxed);
    c->read += block_bytes;
    return true;
}

/* Follows the producer to the beginning of the memory, if it has started over. Returns false for
 * an impossible head. */
static bool follow_producer(ring_channel *c) {
    uint64_t head = atomic_load(&c->in->head);
    if (head <= c->read) {
        return true;
    }
    if ((head & (c->ring_bytes - 1)) != 0) {
        return false;
    }
    pthread_mutex_lock(&c->release_mutex);
    c->read = c->head = head;
    pthread_mutex_unlock(&c->release_mutex);
    return true;
}

/* Returns whether the block at the read position, below `tail`, is committed. */
static bool has_block(const ring_channel *c, uint64_t tail) {
    return c->read < tail && atomic_load(&block_at(c, c->in, c->read)->state) == COMMITTED;
}

/* trmi_channel_table.receive: takes the next committed block, in the order of reservation. Order
 * of checks: a block, the end, a dead peer; then it waits. */
static trm_status ring_receive(trmi_channel *channel, double timeout_seconds, trmi_message *out,
                               trm_error *err) {
    ring_channel *c = (ring_channel *)channel;
    ring *r = c->in;
    double deadline = trmi_os_now() + timeout_seconds;
    for (;;) {
        uint32_t seen = atomic_load(&r->bell);
        /* read before the tail: all messages sent before the end are then below the tail */
        const bool shut = atomic_load(&r->shut) != 0;
        uint64_t tail = atomic_load(&r->tail);
        if (!follow_producer(c)) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s wrote over the head of its ring", channel->peer);
        }
        if (has_block(c, tail)) {
            bool empty;
            if (!take_block(c, out, &empty)) {
                return TRMI_FAIL(err, TRM_CORRUPT,
                                 "%s wrote a block into its ring that does not fit it",
                                 channel->peer);
            }
            if (!empty) {
                return TRM_OK;
            }
            ring_release(channel, out);
            continue;
        }
        if (c->read >= tail && shut) {
            return TRM_END;
        }
        trm_status alive = peer_lives(c, err);
        if (alive != TRM_OK) {
            /* Receive what the dead peer has committed; a block that it was filling will never
             * be. */
            if (follow_producer(c) && has_block(c, atomic_load(&r->tail))) {
                continue;
            }
            return atomic_load(&r->shut) != 0 ? TRM_END : alive;
        }
        if (!wait_for_news(c, seen, deadline)) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "no answer from %s for %.1f s", channel->peer,
                             timeout_seconds);
        }
    }
}

static void ring_shut(trmi_channel *channel) {
    ring_channel *c = (ring_channel *)channel;
    atomic_store(&c->out->shut, 1);
    ring_bell(&c->out->bell, &c->out->consumer_sleeps);
}

/* Frees one end; the rings belong to whichever end made them. */
static void free_end(ring_channel *c) {
    if (c->taken != NULL) {
        munmap((void *)c->taken, c->ring_bytes / BLOCK_HEAD * sizeof *c->taken);
    }
    if (c->fd >= 0) {
        close(c->fd);
    }
    pthread_mutex_destroy(&c->release_mutex);
    trmi_free(c);
}

/* Leaves the rings: the other end's waits end, and the last end unmaps the memory. */
static void ring_destroy(trmi_channel *channel) {
    ring_channel *c = (ring_channel *)channel;
    ring_shut(channel);
    atomic_store(&c->in->gone, 1);
    ring_bell(&c->in->space, &c->in->producer_sleeps);
    if (c->users == NULL) {
        munmap(c->memory, c->memory_bytes);
    } else if (atomic_fetch_sub(c->users, 1) == 1) {
        munmap(c->memory, c->memory_bytes);
        trmi_free((void *)c->users);
    }
    if (c->tcp != NULL) {
        c->tcp->table->destroy(c->tcp);
    }
    free_end(c);
}

static const trmi_channel_table ring_table = {
    "ring", ring_reserve, ring_commit, ring_receive, ring_release, ring_shut, ring_destroy, NULL};

/* Creates one end of memory with two rings; `side` 0 sends through the first. NULL without
 * memory; the memory then stays the caller's. */
static ring_channel *new_end(const char *peer, void *memory, size_t ring_bytes, int side) {
    ring *first = memory, *second = (ring *)(void *)((char *)memory + ring_memory(ring_bytes));
    ring_channel *c = trmi_alloc(sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    pthread_mutex_init(&c->release_mutex, NULL);
    c->base.table = &ring_table;
    snprintf(c->base.peer, sizeof c->base.peer, "%s", peer);
    c->memory = memory;
    c->memory_bytes = 2 * ring_memory(ring_bytes);
    c->ring_bytes = ring_bytes;
    c->out = side == 0 ? first : second;
    c->in = side == 0 ? second : first;
    c->fd = -1;
    void *taken = mmap(NULL, ring_bytes / BLOCK_HEAD * sizeof *c->taken, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (taken == MAP_FAILED) {
        free_end(c);
        return NULL;
    }
    c->taken = taken;
    return c;
}

/* Returns whether a ring may have this size: a power of two within limits. */
static bool usable_size(size_t ring_bytes) {
    return ring_bytes >= 4096 && ring_bytes <= TRMI_MESSAGE_BYTES_MAX &&
           (ring_bytes & (ring_bytes - 1)) == 0;
}

/* Initialises the two rings, one for each direction. */
static void init_rings(void *memory, size_t ring_bytes) {
    ring_init(memory, ring_bytes);
    ring_init((ring *)(void *)((char *)memory + ring_memory(ring_bytes)), ring_bytes);
}

/* Contract in channel.h. Both ends share one private mapping; the last end unmaps it. */
trm_status trmi_channel_pair(size_t ring_bytes, trmi_channel **a, trmi_channel **b,
                             trm_error *err) {
    TRMI_ASSERT(usable_size(ring_bytes));
    static const char *const names[2] = {"worker in this process", "server in this process"};
    size_t bytes = 2 * ring_memory(ring_bytes);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ring_channel *ends[2] = {NULL, NULL};
    _Atomic int32_t *users = trmi_alloc(sizeof *users);
    for (int i = 0; memory != MAP_FAILED && i < 2; i++) {
        ends[i] = new_end(names[i], memory, ring_bytes, i);
    }
    if (ends[0] == NULL || ends[1] == NULL || users == NULL) {
        for (int i = 0; i < 2; i++) {
            if (ends[i] != NULL) {
                free_end(ends[i]);
            }
        }
        if (memory != MAP_FAILED) {
            munmap(memory, bytes);
        }
        trmi_free((void *)users);
        return TRMI_NO_MEMORY(err, "for two rings of %zu bytes", ring_bytes);
    }
    atomic_store(users, 2);
    init_rings(memory, ring_bytes);
    ends[0]->users = ends[1]->users = users;
    *a = &ends[0]->base;
    *b = &ends[1]->base;
    return TRM_OK;
}

/* ---- across processes ------------------------------------------------------------------------ */

/* Maps the memory file and creates an end of its rings.
 *   errors  NOMEM */
static trm_status map_end(trmi_channel *tcp, int fd, size_t ring_bytes, int side,
                          ring_channel **out, trm_error *err) {
    size_t bytes = 2 * ring_memory(ring_bytes);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ring_channel *c = memory == MAP_FAILED ? NULL : new_end(tcp->peer, memory, ring_bytes, side);
    if (c == NULL) {
        if (memory != MAP_FAILED) {
            munmap(memory, bytes);
        }
        return TRMI_NO_MEMORY(err, "to map rings of %zu bytes to %s", bytes, tcp->peer);
    }
    *out = c;
    return TRM_OK;
}

/* Contract in channel.h. The file stays open until the offer is settled, so that the server can
 * open it by process and number. */
trm_status trmi_ring_offer(trmi_channel *tcp, size_t ring_bytes, trmi_channel **out,
                           trmi_ring_place *place, trm_error *err) {
    TRMI_ASSERT(usable_size(ring_bytes));
    ring_channel *c;
    int fd;
    TRMI_TRY(trmi_shared_create("trireme-ps", 2 * ring_memory(ring_bytes), &fd, err));
    trm_status status = map_end(tcp, fd, ring_bytes, 0, &c, err);
    if (status != TRM_OK) {
        close(fd);
        return status;
    }
    init_rings(c->memory, ring_bytes);
    c->fd = fd;
    *place = (trmi_ring_place){.pid = getpid(), .fd = fd};
    *out = &c->base;
    return TRM_OK;
}

void trmi_ring_settle(trmi_channel *offer, trmi_channel *tcp, bool accepted) {
    ring_channel *c = (ring_channel *)offer;
    if (!accepted) {
        ring_destroy(offer);
        return;
    }
    close(c->fd);
    c->fd = -1;
    c->tcp = tcp;
}

/* Contract in channel.h. The memory comes from another process: its size and head are checked
 * before use. */
trm_status trmi_ring_accept(trmi_channel *tcp, trmi_ring_place place, size_t ring_bytes,
                            trmi_channel **out, trm_error *err) {
    ring_channel *c;
    int fd;
    if (!usable_size(ring_bytes)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s offers shared memory of %zu bytes", tcp->peer,
                         ring_bytes);
    }
    TRMI_TRY(trmi_shared_open(place.pid, place.fd, 2 * ring_memory(ring_bytes), &fd, err));
    trm_status status = map_end(tcp, fd, ring_bytes, 1, &c, err);
    close(fd);
    TRMI_TRY(status);
    if (c->in->magic != ring_magic || c->in->data_bytes != ring_bytes ||
        c->out->data_bytes != ring_bytes) {
        ring_destroy(&c->base);
        return TRMI_FAIL(err, TRM_CORRUPT, "%s offers memory that holds no rings of %zu bytes",
                         tcp->peer, ring_bytes);
    }
    c->tcp = tcp;
    *out = &c->base;
    return TRM_OK;
}
