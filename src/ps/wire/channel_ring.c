/* SPDX-License-Identifier: Apache-2.0 */
/* Channels of two rings in memory.
 *
 *   end A --[ ring 0 ]--> end B        ring: tail (reserved) ... head (released)
 *         <--[ ring 1 ]--              block: 64 bytes of state, then the message
 *
 * A block goes EMPTY -> RESERVED -> COMMITTED -> RELEASED. The consumer looks at the block at its
 * read position only below `tail`; space comes back when the oldest blocks are released. Sleepers
 * wait on `bell` (news for the consumer) and `space` (room for the producer).
 *
 * Where all blocks are released (head = tail) the producer begins again at the start of the memory,
 * by moving both to the next multiple of its size, `head` first: messages lie where the last ones
 * lay, in the caches, and a ring is as large as what is under way. The consumer, which alone moves
 * `head` otherwise, reads `tail` before `head`, so that it never sees the old head below the new
 * tail; its own position follows. */
#define _GNU_SOURCE
#include "ps/wire/channel.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/futex.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RESERVED = 1, COMMITTED = 2, RELEASED = 3, HEAD_BYTES = 256, BLOCK_HEAD = 64 };
static const uint64_t ring_magic = 0x32676E6972737074u; /* "tpsring2" */
static const double slice_seconds = 0.05;               /* between looks whether the peer lives */
/* about what it costs to sleep, and to wake a CPU that has gone to sleep, too */
static const double patience_most = 50e-6;

typedef struct block {
    _Atomic uint32_t state;
    uint32_t empty; /* 1: no message, skip */
    uint64_t block_bytes;
    uint64_t bytes;
    uint8_t pad[BLOCK_HEAD - 24];
} block;

typedef struct ring {
    uint64_t magic, data_bytes;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint32_t bell;
    _Atomic uint32_t consumer_sleeps;
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t space;
    _Atomic uint32_t producer_sleeps;
    _Atomic uint32_t shut; /* by the producer */
    _Atomic uint32_t gone; /* the consumer has left */
} ring;
_Static_assert(sizeof(ring) <= HEAD_BYTES, "the head of a ring fits its place");

typedef struct ring_channel {
    trmi_channel base;
    ring *out, *in;
    uint64_t read;           /* next block to receive */
    double patience_seconds; /* for news before it sleeps */
    pthread_mutex_t release_mutex;
    void *memory;
    size_t memory_bytes;
    _Atomic int32_t *users; /* of memory shared within the process; NULL = mine alone */
    trmi_channel *tcp;      /* liveness, NULL within a process */
    char path[128];         /* of the file, until sealed */
} ring_channel;

static char *data_of(ring *r) { return (char *)r + HEAD_BYTES; }
static block *block_at(ring *r, uint64_t position) {
    return (block *)(void *)(data_of(r) + (position & (r->data_bytes - 1)));
}
static size_t ring_memory(size_t ring_bytes) { return HEAD_BYTES + ring_bytes; }

static void ring_init(ring *r, size_t ring_bytes) {
    r->data_bytes = ring_bytes;
    r->magic = ring_magic;
}

static trm_status peer_lives(const ring_channel *c, trm_error *err) {
    if (atomic_load(&c->out->gone) != 0 || (c->tcp != NULL && trmi_tcp_gone(c->tcp))) {
        return TRMI_FAIL(err, TRM_PEER, "%s is gone", c->base.peer);
    }
    return TRM_OK;
}

/* Sleeps on *word, which was `seen`, until it changes, the slice ends or the deadline passes. */
static bool doze(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleeps, double deadline) {
    double left = deadline - trmi_os_now();
    if (left <= 0) {
        return false;
    }
    atomic_store(sleeps, 1);
    if (atomic_load(word) == seen) {
        trmi_futex_wait((uint32_t *)(void *)word, seen,
                        left < slice_seconds ? left : slice_seconds);
    }
    atomic_store(sleeps, 0);
    return true;
}

/* Looks for news for a while before it sleeps; others have the CPU if they want it. Where looking
 * has brought nothing, it looks half as long next time; where news came as soon as that, as long as
 * it may. False when the deadline has passed. */
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
    bool waited = doze(&r->bell, seen, &r->consumer_sleeps, deadline);
    c->patience_seconds =
        trmi_os_now() - began < patience_most ? patience_most : c->patience_seconds / 2;
    return waited;
}

static void ring_bell(_Atomic uint32_t *word, _Atomic uint32_t *sleeps) {
    atomic_fetch_add(word, 1);
    if (atomic_load(sleeps) != 0) {
        trmi_futex_wake((uint32_t *)(void *)word, 1);
    }
}

/* Where the next block goes: an empty ring begins at its start again. */
static uint64_t start_again(ring *r) {
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed),
             past = tail & (r->data_bytes - 1);
    if (past != 0 && atomic_load(&r->head) == tail) {
        tail += r->data_bytes - past;
        atomic_store(&r->head, tail);
    }
    return tail;
}

static trm_status ring_reserve(trmi_channel *channel, size_t bytes, double timeout_seconds,
                               trmi_message *out, trm_error *err) {
    ring_channel *c = (ring_channel *)channel;
    ring *r = c->out;
    uint64_t need = BLOCK_HEAD + (uint64_t)trmi_round_up((int64_t)bytes, BLOCK_HEAD);
    if (bytes > r->data_bytes / 2 - BLOCK_HEAD) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a message of %zu bytes to %s: at most %llu fit the shared-memory ring: "
                         "raise ring_bytes or send smaller batches",
                         bytes, channel->peer,
                         (unsigned long long)(r->data_bytes / 2 - BLOCK_HEAD));
    }
    double deadline = trmi_os_now() + timeout_seconds;
    uint64_t tail = start_again(r);
    uint64_t to_end = r->data_bytes - (tail & (r->data_bytes - 1));
    uint64_t pad = to_end < need ? to_end : 0;
    for (;;) {
        uint32_t seen = atomic_load(&r->space);
        if (r->data_bytes - (tail - atomic_load(&r->head)) >= pad + need) {
            break;
        }
        TRMI_TRY(peer_lives(c, err));
        if (!doze(&r->space, seen, &r->producer_sleeps, deadline)) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "%s has not taken its messages for %.1f s",
                             channel->peer, timeout_seconds);
        }
    }
    if (pad > 0) {
        block *skip = block_at(r, tail);
        skip->empty = 1;
        skip->block_bytes = pad;
        atomic_store(&skip->state, COMMITTED);
        tail += pad;
    }
    block *b = block_at(r, tail);
    b->empty = 0;
    b->block_bytes = need;
    b->bytes = bytes;
    atomic_store(&b->state, RESERVED);
    atomic_store(&r->tail, tail + need);
    *out = (trmi_message){.data = (uint8_t *)(b + 1), .bytes = bytes, .block = b};
    return TRM_OK;
}

static trm_status ring_commit(trmi_channel *channel, trmi_message *message, double timeout_seconds,
                              trm_error *err) {
    ring_channel *c = (ring_channel *)channel;
    block *b = message->block;
    (void)timeout_seconds;
    (void)err;
    b->bytes = message->bytes;
    b->empty = message->bytes == 0;
    atomic_store(&b->state, COMMITTED);
    ring_bell(&c->out->bell, &c->out->consumer_sleeps);
    *message = (trmi_message){0};
    return TRM_OK;
}

static void give_space(ring_channel *c) {
    ring *r = c->in;
    uint64_t tail = atomic_load(&r->tail), head = atomic_load(&r->head), start = head;
    while (head < tail && atomic_load(&block_at(r, head)->state) == RELEASED) {
        block *b = block_at(r, head);
        uint64_t bytes = b->block_bytes;
        atomic_store(&b->state, 0);
        head += bytes;
    }
    if (head != start) {
        atomic_store(&r->head, head);
        ring_bell(&r->space, &r->producer_sleeps);
    }
}

static void ring_release(trmi_channel *channel, trmi_message *message) {
    ring_channel *c = (ring_channel *)channel;
    pthread_mutex_lock(&c->release_mutex);
    atomic_store(&((block *)message->block)->state, RELEASED);
    give_space(c);
    pthread_mutex_unlock(&c->release_mutex);
    *message = (trmi_message){0};
}

/* The peer may be another process: a block that does not fit its ring is its error, not our crash.
 */
static bool block_fits(const ring *r, uint64_t read, const block *b) {
    uint64_t at = read & (r->data_bytes - 1);
    return b->block_bytes >= BLOCK_HEAD && b->block_bytes % BLOCK_HEAD == 0 &&
           b->block_bytes <= r->data_bytes - at &&
           (b->empty || b->bytes <= b->block_bytes - BLOCK_HEAD);
}

/* To the start of the memory, where the producer has begun again. False: a head that is no start.
 */
static bool follow(ring_channel *c) {
    uint64_t head = atomic_load(&c->in->head);
    if (head <= c->read) {
        return true;
    }
    if ((head & (c->in->data_bytes - 1)) != 0) {
        return false;
    }
    c->read = head;
    return true;
}

static trm_status ring_receive(trmi_channel *channel, double timeout_seconds, trmi_message *out,
                               trm_error *err) {
    ring_channel *c = (ring_channel *)channel;
    ring *r = c->in;
    double deadline = trmi_os_now() + timeout_seconds;
    for (;;) {
        uint32_t seen = atomic_load(&r->bell);
        /* before the tail: what was sent before the end is below it */
        const bool shut = atomic_load(&r->shut) != 0;
        uint64_t tail = atomic_load(&r->tail);
        if (!follow(c)) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s wrote over the head of its ring", channel->peer);
        }
        block *b = block_at(r, c->read);
        if (c->read < tail && atomic_load(&b->state) == COMMITTED) {
            if (!block_fits(r, c->read, b)) {
                return TRMI_FAIL(err, TRM_CORRUPT, "%s wrote a block of %llu bytes into its ring",
                                 channel->peer, (unsigned long long)b->block_bytes);
            }
            trmi_message m = {(uint8_t *)(b + 1), b->bytes, b};
            c->read += b->block_bytes;
            if (!b->empty) {
                *out = m;
                return TRM_OK;
            }
            ring_release(channel, &m);
            continue;
        }
        if (c->read >= tail && shut) {
            return TRM_END;
        }
        trm_status alive = peer_lives(c, err);
        if (alive != TRM_OK) {
            /* What it has sent is taken; a block that it was still filling will never come. */
            if (follow(c) && c->read < atomic_load(&r->tail) &&
                atomic_load(&block_at(r, c->read)->state) == COMMITTED) {
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

static void ring_destroy(trmi_channel *channel) {
    ring_channel *c = (ring_channel *)channel;
    if (c->in != NULL) {
        ring_shut(channel);
        atomic_store(&c->in->gone, 1);
        ring_bell(&c->in->space, &c->in->producer_sleeps);
        ring_bell(&c->out->bell, &c->out->consumer_sleeps);
    }
    if (c->users == NULL) {
        if (c->memory != NULL) {
            munmap(c->memory, c->memory_bytes);
        }
    } else if (atomic_fetch_sub(c->users, 1) == 1) {
        munmap(c->memory, c->memory_bytes);
        trmi_free((void *)c->users);
    }
    if (c->tcp != NULL) {
        c->tcp->table->destroy(c->tcp);
    }
    pthread_mutex_destroy(&c->release_mutex);
    trmi_free(c);
}

static const trmi_channel_table ring_table = {
    "ring", ring_reserve, ring_commit, ring_receive, ring_release, ring_shut, ring_destroy, NULL};

static ring_channel *new_end(const char *peer) {
    ring_channel *c = trmi_alloc(sizeof *c);
    if (c != NULL) {
        c->base.table = &ring_table;
        snprintf(c->base.peer, sizeof c->base.peer, "%s", peer);
        pthread_mutex_init(&c->release_mutex, NULL);
    }
    return c;
}

/* Ends of memory that holds two rings: `side` 0 sends through the first. */
static void attach(ring_channel *c, void *memory, size_t ring_bytes, int side) {
    ring *first = memory;
    ring *second = (ring *)(void *)((char *)memory + ring_memory(ring_bytes));
    c->memory = memory;
    c->memory_bytes = 2 * ring_memory(ring_bytes);
    c->out = side == 0 ? first : second;
    c->in = side == 0 ? second : first;
}

static bool usable_size(size_t ring_bytes) {
    return ring_bytes >= 4096 && ring_bytes <= TRMI_MESSAGE_BYTES_MAX &&
           (ring_bytes & (ring_bytes - 1)) == 0;
}

trm_status trmi_channel_pair(size_t ring_bytes, trmi_channel **a, trmi_channel **b,
                             trm_error *err) {
    TRMI_ASSERT(usable_size(ring_bytes));
    size_t bytes = 2 * ring_memory(ring_bytes);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ring_channel *ends[2] = {new_end("worker in this process"), new_end("server in this process")};
    _Atomic int32_t *users = trmi_alloc(sizeof *users);
    if (memory == MAP_FAILED || ends[0] == NULL || ends[1] == NULL || users == NULL) {
        if (memory != MAP_FAILED) {
            munmap(memory, bytes);
        }
        for (int i = 0; i < 2; i++) {
            trmi_free(ends[i]);
        }
        trmi_free((void *)users);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for two rings of %zu bytes", ring_bytes);
    }
    atomic_store(users, 2);
    ring_init(memory, ring_bytes);
    ring_init((ring *)(void *)((char *)memory + ring_memory(ring_bytes)), ring_bytes);
    for (int i = 0; i < 2; i++) {
        attach(ends[i], memory, ring_bytes, i);
        ends[i]->users = users;
    }
    *a = &ends[0]->base;
    *b = &ends[1]->base;
    return TRM_OK;
}

/* ---- across processes ------------------------------------------------------------------------ */

trm_status trmi_shm_offer(trmi_channel *tcp, size_t ring_bytes, trmi_channel **out, char path[128],
                          trm_error *err) {
    TRMI_ASSERT(usable_size(ring_bytes));
    ring_channel *c = new_end(tcp->peer);
    if (c == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a channel to %s", tcp->peer);
    }
    trm_status status = TRM_OK;
    size_t bytes = 2 * ring_memory(ring_bytes);
    snprintf(c->path, sizeof c->path, "/dev/shm/trireme-ps-XXXXXX");
    int fd = mkstemp(c->path);
    if (fd < 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot make shared memory", c->path);
        goto failed;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    void *memory = ftruncate(fd, (off_t)bytes) != 0
                       ? MAP_FAILED
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        status = TRMI_FAIL_SYS(err, "%s: cannot map %zu bytes", c->path, bytes);
        unlink(c->path);
        close(fd);
        goto failed;
    }
    close(fd);
    ring_init(memory, ring_bytes);
    ring_init((ring *)(void *)((char *)memory + ring_memory(ring_bytes)), ring_bytes);
    attach(c, memory, ring_bytes, 0);
    c->tcp = tcp;
    memcpy(path, c->path, sizeof c->path);
    *out = &c->base;
    return TRM_OK;
failed:
    pthread_mutex_destroy(&c->release_mutex);
    trmi_free(c);
    return status;
}

void trmi_shm_seal(trmi_channel *offer, bool accepted) {
    ring_channel *c = (ring_channel *)offer;
    unlink(c->path);
    if (!accepted) {
        c->tcp = NULL;
        ring_destroy(offer);
    }
}

trm_status trmi_shm_accept(trmi_channel *tcp, const char *path, size_t ring_bytes,
                           trmi_channel **out, trm_error *err) {
    static const char prefix[] = "/dev/shm/trireme-ps-";
    if (!usable_size(ring_bytes) || strncmp(path, prefix, sizeof prefix - 1) != 0 ||
        strchr(path + sizeof prefix - 1, '/') != NULL) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s offers shared memory '%.60s' of %zu bytes",
                         tcp->peer, path, ring_bytes);
    }
    size_t bytes = 2 * ring_memory(ring_bytes);
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &info) != 0 || (uint64_t)info.st_size != bytes) {
        trm_status status =
            TRMI_FAIL_SYS(err, "%s: cannot use the shared memory of %s", path, tcp->peer);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ring_channel *c = memory == MAP_FAILED ? NULL : new_end(tcp->peer);
    if (c == NULL) {
        if (memory != MAP_FAILED) {
            munmap(memory, bytes);
        }
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory to map %zu bytes", path, bytes);
    }
    attach(c, memory, ring_bytes, 1);
    if (c->in->magic != ring_magic || c->in->data_bytes != ring_bytes ||
        c->out->data_bytes != ring_bytes) {
        munmap(memory, bytes);
        pthread_mutex_destroy(&c->release_mutex);
        trmi_free(c);
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: not the rings that %s announced", path, tcp->peer);
    }
    c->tcp = tcp;
    *out = &c->base;
    return TRM_OK;
}
