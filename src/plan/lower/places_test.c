/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the placement of activations: buffers that live at the same time do not overlap; with
 * several threads the memory grows by next to nothing, and a buffer goes where its threads have
 * just been. */
#include "check.h"

#include "plan/passes/pass.h"

#include "base/rng.h"

#include <string.h>

enum { STEPS = 110, BUFFERS = 90, IMAGES = 8, PIXELS = 64 << 10 };

/* Buffer 1 is the input; each step reads one buffer and writes another. */
typedef struct sketch {
    trm_program program;
    trmi_buffer buffers[BUFFERS + 1];
    trmi_step steps[STEPS];
    int32_t read[STEPS], written[STEPS]; /* buffers of each step */
    int32_t input;
} sketch;

static void begin_sketch(sketch *s, int32_t steps, int32_t buffers) {
    memset(s, 0, sizeof *s);
    s->input = 1;
    s->program = (trm_program){.steps = s->steps,
                               .steps_count = steps,
                               .buffers = s->buffers,
                               .buffers_count = buffers + 1,
                               .inputs = &s->input,
                               .inputs_count = 1};
    for (int32_t i = 0; i < steps; i++) {
        s->read[i] = 1;
        s->steps[i] = (trmi_step){.inputs = &s->read[i],
                                  .inputs_count = 1,
                                  .outputs = &s->written[i],
                                  .outputs_count = 1,
                                  .cost = {.bytes = 1 << 20}};
    }
    s->buffers[1].shape = trm_shape_of(IMAGES);
    s->buffers[1].arena = TRMI_ARENA_INPUT;
}

static void add_life(sketch *s, int32_t buffer, int64_t units, int32_t first, int32_t last) {
    s->buffers[buffer] = (trmi_buffer){.shape = trm_shape_of(IMAGES, units),
                                       .arena = TRMI_ARENA_ACTIVATION,
                                       .bytes = units * PIXELS,
                                       .first_step = first,
                                       .last_step = last};
    s->written[first] = buffer;
}

static int64_t bytes_of(sketch *s, int threads) {
    trm_error err;
    s->program.arena_bytes[TRMI_ARENA_ACTIVATION] = 0;
    CHECK_OK(trmi_lower_places(&s->program, threads, &err), err);
    return s->program.arena_bytes[TRMI_ARENA_ACTIVATION];
}

static void check_apart(const sketch *s, int64_t bytes) {
    for (int32_t i = 2; i <= BUFFERS; i++) {
        const trmi_buffer *a = &s->buffers[i];
        assert_true(a->offset >= 0 && a->offset % 64 == 0 && a->offset + a->bytes <= bytes);
        for (int32_t j = 2; j < i; j++) {
            const trmi_buffer *b = &s->buffers[j];
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            assert_true(apart || a->last_step < b->first_step || b->last_step < a->first_step);
        }
    }
}

static int32_t draw_number(uint64_t *drawn, int32_t below) {
    return (int32_t)(trmi_random_u32(7, TRMI_STREAM_TEST, (*drawn)++) % (uint32_t)below);
}

static void lives_do_not_overlap(void **state) {
    sketch s;
    uint64_t drawn = 0;
    for (int round = 0; round < 50; round++) {
        begin_sketch(&s, STEPS, BUFFERS);
        for (int32_t i = 2; i <= BUFFERS; i++) {
            int32_t first = draw_number(&drawn, STEPS),
                    last = first + draw_number(&drawn, STEPS / 2);
            add_life(&s, i, 1 + draw_number(&drawn, 40), first, last < STEPS ? last : STEPS);
        }
        int64_t least = bytes_of(&s, 1);
        check_apart(&s, least);
        for (int threads = 2; threads <= 5; threads++) {
            int64_t bytes = bytes_of(&s, threads);
            check_apart(&s, bytes);
            assert_true(bytes <= least + least / 64);
        }
    }
}

/* 8 MB long before, then 4 | 2 | 2 | 4 MB one after another: a buffer of 2 MB is not placed where
 * the half of one thread lies in the other thread's half of 4 MB; the second of two equal ones goes
 * to the offset of the first. */
static void threads_stay_where_they_were(void **state) {
    sketch s;
    begin_sketch(&s, STEPS, 6);
    add_life(&s, 2, 128, 10, 10);
    add_life(&s, 3, 64, 60, 61);
    add_life(&s, 4, 32, 62, 63);
    add_life(&s, 5, 32, 64, 65);
    add_life(&s, 6, 64, 66, 66);
    bytes_of(&s, 1);
    assert_int_equal(s.buffers[4].offset, 0); /* lowest offset */
    bytes_of(&s, 2);
    assert_int_equal(s.buffers[3].offset, 0);
    assert_int_equal(s.buffers[6].offset, 0);
    assert_true(s.buffers[4].offset >= s.buffers[3].bytes);
    assert_int_equal(s.buffers[4].offset, s.buffers[5].offset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_do_not_overlap),
        cmocka_unit_test(threads_stay_where_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
