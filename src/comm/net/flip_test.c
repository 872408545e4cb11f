/* SPDX-License-Identifier: Apache-2.0 */
/* Flips single bits anywhere in a frame of the control channel or of a plug-in; the receiver must
 * detect each.
 * Usage: flip_test [FLIPS]   of each kind; bench/faults.sh makes a million */
#define PLUGIN_FILE "flip_test.c"
#include "comm/plugins/frame.h"

#include "base/rng.h"
#include "comm/rendezvous/side_link.h"

#include "check.h"

static long flips = 20000;

static uint64_t random_at(uint64_t seed, uint64_t i) { return trmi_random_u64(seed, 0, i); }

static void side_frames(bool keyed) {
    static const uint8_t blob[300] = {9, 8, 7};
    long undetected = 0, wrong_words = 0;
    for (long i = 0; i < flips; i++) {
        trmi_link from = {.fd = 99}, to = {.fd = -1};
        trmi_frame frame;
        trm_error err;
        uint64_t random = random_at(1 + keyed, (uint64_t)i);
        memset(from.send_key, keyed ? 0x5A : 0, sizeof from.send_key);
        memcpy(to.recv_key, from.send_key, sizeof to.recv_key);
        size_t length = random % sizeof blob;
        trmi_link_put(&from, TRMI_FRAME_GATHER, i, blob, length);
        from.out[(random >> 20) % from.out_bytes] ^= (uint8_t)(1u << (random >> 60) % 8);
        /* a length that has grown waits for more: the next frame is there already */
        trmi_link_put(&from, TRMI_FRAME_PING, 0, blob, sizeof blob);
        trmi_link_put(&from, TRMI_FRAME_PING, 0, blob, sizeof blob);
        assert_true(trmi_link_feed(&to, from.out, from.out_bytes));
        trm_status status = trmi_link_next(&to, &frame, &err);
        undetected += status == TRM_OK;
        wrong_words += status == TRM_CORRUPT && strstr(err.message, "frame 0 ") == NULL;
        from.fd = -1;
        trmi_link_close(&from);
        trmi_link_close(&to);
    }
    assert_int_equal(undetected, 0);
    assert_int_equal(wrong_words, 0);
    printf("%ld flips in frames with %s key: %ld undetected\n", flips, keyed ? "a" : "a zero",
           undetected);
}

static void side_frames_with_key(void **state) {
    (void)state;
    side_frames(true);
}

static void side_frames_without_key(void **state) {
    (void)state;
    side_frames(false);
}

static void plugin_frames(void **state) {
    (void)state;
    const int32_t members[2] = {0, 1};
    trmi_transport base = {.group = {.size = 2, .rank = 1, .members = members}};
    static char data[SMALL], got[SMALL], bounce[HEAD_BYTES + SMALL];
    long undetected = 0, words = 0;
    for (long i = 0; i < flips; i++) {
        uint64_t random = random_at(3, (uint64_t)i), key = random_at(4, (uint64_t)i);
        trmi_net_transfer out = {
            .data = data, .bytes = random % 600, .tag = {.sequence = 5, .step = 2}};
        trmi_net_transfer in = out;
        trm_error err = {.status = TRM_OK};
        in.data = got;
        in.peer = 0;
        size_t bytes = frame_seal(key, &out, bounce);
        bounce[(random >> 20) % bytes] ^= (char)(1u << (random >> 60) % 8);
        trm_status status = frame_open(key, &base, &in, bounce, &err);
        undetected += status == TRM_OK;
        words += strstr(err.message,
                        "operation 5, step 2: rank 1 received damaged bytes from rank 0") != NULL;
    }
    assert_int_equal(undetected, 0);
    assert_int_equal(words, flips);
    printf("%ld flips in frames of plug-ins: %ld undetected\n", flips, undetected);
}

int main(int argc, char **argv) {
    flips = argc > 1 ? atol(argv[1]) : flips;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(side_frames_with_key),
        cmocka_unit_test(side_frames_without_key),
        cmocka_unit_test(plugin_frames),
    };
    return cmocka_run_group_tests_name("comm/flip", tests, NULL, NULL);
}
