/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the rings in memory: what is sent arrives whole and in order whatever is held back,
 * wraps or begins again. */
#include "ps/wire/channel.h"

#include "base/rng.h"
#include "check.h"

#include <pthread.h>

enum { RING_BYTES = 1 << 16, LONGEST = RING_BYTES / 2 - 64, HELD = 24 };
static const double seconds = 20;

/* A message says its number and is filled with bytes that follow from it. */
static size_t bytes_of(uint64_t number, size_t longest) {
    return 8 + (size_t)(trmi_mix(3, number) % (longest - 7));
}

static void fill(uint8_t *data, size_t bytes, uint64_t number) {
    memcpy(data, &number, sizeof number);
    for (size_t i = sizeof number; i < bytes; i++) {
        data[i] = (uint8_t)(number * 31 + i);
    }
}

static void check(const trmi_message *m, uint64_t number, size_t longest) {
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

static void send(trmi_channel *c, uint64_t number, size_t longest) {
    trm_error err;
    trmi_message m;
    size_t bytes = bytes_of(number, longest);
    CHECK_OK(c->table->reserve(c, bytes, seconds, &m, &err), err);
    fill(m.data, bytes, number);
    CHECK_OK(c->table->commit(c, &m, seconds, &err), err);
}

static void receive(trmi_channel *c, uint64_t number, size_t longest, trmi_message *out) {
    trm_error err;
    CHECK_OK(c->table->receive(c, seconds, out, &err), err);
    check(out, number, longest);
}

static size_t longest_of(uint64_t number) { return number % 7 == 0 ? LONGEST : 900; }

/* What is let go in another order than it came, with any number under way. */
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
                fill(m.data, m.bytes, sent++);
            }
            CHECK_OK(a->table->commit(a, &m, 0, &err), err);
        }
        if (draw % 2 == 0 && received == sent) { /* what was taken back is passed over */
            trmi_message none;
            assert_int_equal(b->table->receive(b, 0, &none, &err), TRM_TIMEOUT);
        } else if (draw % 2 == 0 && holds < HELD) {
            receive(b, received, longest_of(received), &held[holds++]);
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
            send(a, 3 * round + i, 5000);
        }
        for (uint64_t i = 0; i < 3; i++) {
            receive(b, 3 * round + i, 5000, &m[i]);
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
        receive(s->end, n, 3000, &m);
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
        send(a, n, 3000);
    }
    pthread_join(reader, NULL);
    a->table->destroy(a);
    b->table->destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_arrive),
        cmocka_unit_test(empty_rings_begin_again),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
