/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the rings in memory: messages arrive complete and in order if the receiver holds some back,
 * if the ring wraps, and if it begins again. */
#include "ps/wire/channel.h"

#include "base/rng.h"
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { RING_BYTES = 1 << 16, LONGEST = RING_BYTES / 2 - 64, HELD = 24 };
static const double seconds = 20;

/* A message says its number and is filled with bytes that follow from it. */
static size_t bytes_of(uint64_t number, size_t longest) {
    return 8 + (size_t)(trmi_mix(3, number) % (longest - 7));
}

static void fill_message(uint8_t *data, size_t bytes, uint64_t number) {
    memcpy(data, &number, sizeof number);
    for (size_t i = sizeof number; i < bytes; i++) {
        data[i] = (uint8_t)(number * 31 + i);
    }
}

static void check_message(const trmi_message *m, uint64_t number, size_t longest) {
    uint64_t said;
    assert_int_equal(m->bytes, bytes_of(number, longest));
    memcpy(&said, m->data, sizeof said);
    assert_int_equal(said, number);
    for (size_t i = sizeof said; i < m->bytes; i++) {
        if (m->data[i] != (uint8_t)(number * 31 + i)) {
            fail_msg("message %llu, byte %zu", (unsigned long long)number, i);
        }
    }
}

static void send_one(trmi_channel *c, uint64_t number, size_t longest) {
    trm_error err;
    trmi_message m;
    size_t bytes = bytes_of(number, longest);
    CHECK_OK(c->table->reserve(c, bytes, seconds, &m, &err), err);
    fill_message(m.data, bytes, number);
    CHECK_OK(c->table->commit(c, &m, seconds, &err), err);
}

static void receive_one(trmi_channel *c, uint64_t number, size_t longest, trmi_message *out) {
    trm_error err;
    CHECK_OK(c->table->receive(c, seconds, out, &err), err);
    check_message(out, number, longest);
}

static size_t longest_of(uint64_t number) { return number % 7 == 0 ? LONGEST : 900; }

/* All messages arrive although the receiver releases them in another order, with any number of them
 * under way. */
static void all_arrive(void **state) {
    (void)state;
    trm_error err;
    trmi_channel *a, *b;
    trmi_message held[HELD];
    uint64_t sent = 0, received = 0;
    int holds = 0;
    CHECK_OK(trmi_channel_pair(RING_BYTES, &a, &b, &err), err);
    for (uint64_t turn = 0; turn < 20000; turn++) {
        uint64_t draw = trmi_mix(11, turn);
        trmi_message m;
        if (draw % 3 != 0 &&
            a->table->reserve(a, bytes_of(sent, longest_of(sent)), 0, &m, &err) == TRM_OK) {
            if (draw % 11 == 0) {
                m.bytes = 0; /* taken back */
            } else {
                fill_message(m.data, m.bytes, sent++);
            }
            CHECK_OK(a->table->commit(a, &m, 0, &err), err);
        }
        if (draw % 2 == 0 && received == sent) { /* what was taken back is passed over */
            trmi_message none;
            assert_int_equal(b->table->receive(b, 0, &none, &err), TRM_TIMEOUT);
        } else if (draw % 2 == 0 && holds < HELD) {
            receive_one(b, received, longest_of(received), &held[holds++]);
            received++;
        }
        while (holds > 0 && (draw >> 20) % 5 < 2) {
            int one = (int)((draw >> 24) % (uint64_t)holds);
            b->table->release(b, &held[one]);
            held[one] = held[--holds];
            draw = trmi_mix(12, draw);
        }
    }
    assert_true(received > 5000);
    a->table->destroy(a);
    b->table->destroy(b);
}

/* A ring that is empty begins again where it began: what is never under way is never touched. */
static void empty_rings_begin_again(void **state) {
    (void)state;
    trm_error err;
    trmi_channel *a, *b;
    trmi_message m[3];
    const uint8_t *first = NULL;
    CHECK_OK(trmi_channel_pair(RING_BYTES, &a, &b, &err), err);
    for (uint64_t round = 0; round < 100; round++) {
        for (uint64_t i = 0; i < 3; i++) {
            send_one(a, 3 * round + i, 5000);
        }
        for (uint64_t i = 0; i < 3; i++) {
            receive_one(b, 3 * round + i, 5000, &m[i]);
        }
        first = first == NULL ? m[0].data : first;
        assert_ptr_equal(m[0].data, first);
        for (int i = 2; i >= 0; i--) {
            b->table->release(b, &m[i]);
        }
    }
    assert_int_equal(b->table->receive(b, 0.01, &m[0], &err), TRM_TIMEOUT);
    a->table->destroy(a);
    b->table->destroy(b);
}

typedef struct stream {
    trmi_channel *end;
    uint64_t messages;
} stream;

static void *read_all(void *context) {
    stream *s = context;
    trmi_message before = {0};
    for (uint64_t n = 0; n < s->messages; n++) {
        trmi_message m;
        receive_one(s->end, n, 3000, &m);
        /* now and then two are held, and let go the other way round */
        if (n % 5 != 0 && before.block != NULL) {
            s->end->table->release(s->end, &before);
        }
        if (n % 5 == 0) {
            s->end->table->release(s->end, &m);
        } else {
            before = m;
        }
        if (n % 97 == 0 && before.block != NULL) {
            s->end->table->release(s->end, &before); /* empty, at times */
        }
    }
    if (before.block != NULL) {
        s->end->table->release(s->end, &before);
    }
    return NULL;
}

/* Producer and consumer at once: the one begins again while the other looks. */
static void two_threads(void **state) {
    (void)state;
    enum { MESSAGES = 200000 };
    trm_error err;
    trmi_channel *a, *b;
    pthread_t reader;
    CHECK_OK(trmi_channel_pair(RING_BYTES, &a, &b, &err), err);
    stream s = {b, MESSAGES};
    assert_int_equal(pthread_create(&reader, NULL, read_all, &s), 0);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        send_one(a, n, 3000);
    }
    pthread_join(reader, NULL);
    a->table->destroy(a);
    b->table->destroy(b);
}

/* ---- a hostile peer: another mapping of the rings, by which a test writes what an honest end
 * never would ---- */

/* As channel_ring.c lays them out. */
enum { HEAD = 256, BLOCK = 64, RING = HEAD + RING_BYTES };
typedef struct raw_block {
    _Atomic uint32_t state, empty;
    _Atomic uint64_t block_bytes, bytes; /* of the block in the ring; of the message in it */
} raw_block;
enum { DATA_BYTES_AT = 8, TAIL_AT = 64, HEAD_AT = 128 };

typedef struct hostile {
    trmi_channel *client, *server;
    uint8_t *rings; /* the client's is the first */
} hostile;

static trmi_channel *wrap_end(int fd) {
    trm_error err;
    trmi_channel *tcp;
    CHECK_OK(trmi_tcp_wrap(fd, "the other end", &tcp, &err), err);
    return tcp;
}

static void open_hostile(hostile *h) {
    trm_error err;
    trmi_ring_place place;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    trmi_channel *mine = wrap_end(ends[0]), *theirs = wrap_end(ends[1]);
    CHECK_OK(trmi_ring_offer(mine, RING_BYTES, &h->client, &place, &err), err);
    h->rings = mmap(NULL, 2 * RING, PROT_READ | PROT_WRITE, MAP_SHARED, place.fd, 0);
    assert_ptr_not_equal(h->rings, MAP_FAILED);
    errno = 0;
    assert_true(ftruncate(place.fd, 4096) != 0 && errno == EPERM); /* it cannot be cut short */
    CHECK_OK(trmi_ring_accept(theirs, place, RING_BYTES, &h->server, &err), err);
    trmi_ring_settle(h->client, mine, true);
}

static void close_hostile(hostile *h) {
    h->client->table->destroy(h->client);
    h->server->table->destroy(h->server);
    munmap(h->rings, 2 * RING);
}

static raw_block *first_block(const hostile *h) { return (raw_block *)(void *)(h->rings + HEAD); }
static _Atomic uint64_t *word_at(const hostile *h, size_t at) {
    return (_Atomic uint64_t *)(void *)(h->rings + at);
}

/* Rewritten after it was received and before it is released: what follows arrives all the same. */
static void sizes_are_used_as_they_were_checked(void **state) {
    (void)state;
    hostile h;
    open_hostile(&h);
    for (uint64_t n = 0; n < 200; n++) {
        trmi_message m;
        send_one(h.client, n, 900);
        receive_one(h.server, n, 900, &m);
        atomic_store(&first_block(&h)->block_bytes, n % 2 == 0 ? (uint64_t)1 << 40 : 0);
        atomic_store(&first_block(&h)->bytes, (uint64_t)1 << 40);
        atomic_store(word_at(&h, DATA_BYTES_AT), (uint64_t)1 << 60);
        check_message(&m, n, 900);
        h.server->table->release(h.server, &m);
    }
    close_hostile(&h);
}

/* A block that says too much of itself is the peer's error. */
static void sizes_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        uint64_t block_bytes, bytes;
    } cases[] = {{0, 8},
                 {BLOCK / 2, 8},
                 {2 * BLOCK + 1, 8},
                 {2 * RING_BYTES, 8},
                 {(uint64_t)1 << 63, 8},
                 {2 * BLOCK, BLOCK + 1},
                 {2 * BLOCK, UINT64_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trm_error err;
        trmi_message m;
        hostile h;
        open_hostile(&h);
        send_one(h.client, 0, 40);
        atomic_store(&first_block(&h)->block_bytes, cases[i].block_bytes);
        atomic_store(&first_block(&h)->bytes, cases[i].bytes);
        CHECK_FAILS(h.server->table->receive(h.server, 1, &m, &err), TRM_CORRUPT, err,
                    "does not fit");
        close_hostile(&h);
    }
}

typedef struct rewriter {
    const hostile *h;
    _Atomic bool stop;
} rewriter;

static void *rewrite_block(void *context) {
    rewriter *w = context;
    for (uint64_t i = 0; !atomic_load(&w->stop); i++) {
        raw_block *b = first_block(w->h);
        uint64_t large = i % 3 == 0 ? UINT64_MAX : (uint64_t)1 << (20 + i % 40);
        atomic_store(&b->bytes, i % 2 == 0 ? 64 : large);
        atomic_store(&b->block_bytes, i % 2 == 0 ? 128 : large);
        if (i % 16 == 0) {
            atomic_store(word_at(w->h, DATA_BYTES_AT), large);
            atomic_store(word_at(w->h, TAIL_AT), i % 32 == 0 ? large : 0);
            atomic_store(word_at(w->h, HEAD_AT), i % 64 == 0 ? large : 0);
        }
    }
    return NULL;
}

/* At any moment every message that the ring hands out lies inside it, and neither end crashes. */
static void sizes_may_change_at_any_time(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        trm_error err;
        trmi_message m;
        hostile h;
        pthread_t thread;
        open_hostile(&h);
        rewriter w = {.h = &h};
        assert_int_equal(pthread_create(&thread, NULL, rewrite_block, &w), 0);
        for (int n = 0; n < 2000; n++) {
            if (h.client->table->reserve(h.client, 64, 0, &m, &err) == TRM_OK) {
                memset(m.data, n, 64);
                (void)!h.client->table->commit(h.client, &m, 0, &err);
            }
            if (h.server->table->receive(h.server, 0, &m, &err) == TRM_OK) {
                assert_true(m.bytes <= RING_BYTES - BLOCK);
                volatile uint8_t last = m.data[m.bytes - 1];
                (void)last;
                h.server->table->release(h.server, &m);
            }
        }
        atomic_store(&w.stop, true);
        pthread_join(thread, NULL);
        close_hostile(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_arrive),
        cmocka_unit_test(empty_rings_begin_again),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(sizes_are_used_as_they_were_checked),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(sizes_may_change_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
