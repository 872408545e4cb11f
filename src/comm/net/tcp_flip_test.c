/* SPDX-License-Identifier: Apache-2.0 */
/* Single flipped bits in vectors that travel over TCP: every one is noticed, and the link and the
 * place are named.
 * Usage: tcp_flip_test [FLIPS]   bench/faults.sh makes a million */
#undef _GNU_SOURCE
#include "comm/net/tcp.c" /* the reading side, with its statics */

#include "base/rng.h"

#include "check.h"

enum { PAYLOAD = 200 };
static long flips = 20000;

/* The frame as tcp_start and write_some send it. */
static size_t make_frame(const trmi_net_transfer *t, uint8_t *out) {
    encode_head(t, out);
    memcpy(out + TRMI_FRAME_HEAD_BYTES, t->data, t->bytes);
    trmi_put64(out + TRMI_FRAME_HEAD_BYTES + t->bytes, XXH3_64bits(t->data, t->bytes));
    return TRMI_FRAME_HEAD_BYTES + t->bytes + TRMI_FRAME_TAIL_BYTES;
}

static trm_status read_frame(tcp *self, int fds[2], const uint8_t *frame, size_t bytes,
                             trmi_net_transfer *in, trm_error *err) {
    trmi_tcp_link link = {.fd = fds[1], .peer = 0, .receives = in, .in_hash = XXH3_createState()};
    link.receives_tail = &in->next;
    bool moved = false;
    assert_int_equal(write(fds[0], frame, bytes), (ssize_t)bytes);
    trm_status status = read_some(self, &link, &moved, err);
    XXH3_freeState(link.in_hash);
    char rest[512];
    while (recv(fds[1], rest, sizeof rest, MSG_DONTWAIT) > 0) {
    }
    return status;
}

static void none_passes(void **state) {
    (void)state;
    const int32_t members[2] = {3, 8};
    tcp self = {.base = {.group = {.size = 2, .rank = 1, .members = members}}};
    int fds[2];
    char data[PAYLOAD], got[PAYLOAD];
    uint8_t frame[TRMI_FRAME_HEAD_BYTES + PAYLOAD + TRMI_FRAME_TAIL_BYTES];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    long undetected = 0, named = 0;
    for (long i = -1; i < flips; i++) {
        uint32_t random[4];
        trmi_philox(11, 0, (uint64_t)(i + 1), random);
        trmi_net_transfer out = {.data = data,
                                 .bytes = random[0] % PAYLOAD,
                                 .tag = {.sequence = 12, .signature = {1, 2}, .step = 4}};
        trmi_net_transfer in = out;
        trm_error err = {.status = TRM_OK};
        in.receive = true;
        in.data = got;
        for (int k = 0; k < PAYLOAD; k++) {
            data[k] = (char)(i + k);
        }
        size_t bytes = make_frame(&out, frame);
        if (i < 0) { /* as it is, it passes */
            assert_int_equal(read_frame(&self, fds, frame, bytes, &in, &err), TRM_OK);
            assert_memory_equal(got, data, out.bytes);
            continue;
        }
        frame[random[1] % bytes] ^= (uint8_t)(1u << random[2] % 8);
        trm_status status = read_frame(&self, fds, frame, bytes, &in, &err);
        undetected += status == TRM_OK || in.done;
        named += status == TRM_CORRUPT && self.base.culprit == 0 &&
                 strstr(err.message, "rank 8 received damaged bytes from rank 3") != NULL &&
                 strstr(err.message, "in operation 12, step 4: the connection is given up") != NULL;
    }
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(undetected, 0);
    assert_int_equal(named, flips);
    printf("%ld flips in frames over tcp: %ld undetected, all named\n", flips, undetected);
}

int main(int argc, char **argv) {
    flips = argc > 1 ? atol(argv[1]) : flips;
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_passes)};
    return cmocka_run_group_tests_name("comm/tcp_flip", tests, NULL, NULL);
}
