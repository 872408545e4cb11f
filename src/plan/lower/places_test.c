/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the placement of activations: buffers that live at the same time do not overlap; with
 * several threads the memory grows by next to nothing, and a buffer goes where its threads have
 * just been; bytes of GRAD are used until the gradient there is made. */
#include "check.h"

#include "plan/passes/pass.h"

#include "base/rng.h"

#include <string.h>

enum { STEPS = 110, BUFFERS = 90, IMAGES = 8, PIXELS = 64 << 10, PARAMS = 20 };

/* Buffer 1 is the input; each step reads one buffer and writes another. */
typedef struct sketch {
    trm_program program;
    trmi_buffer buffers[BUFFERS + 1];
    trmi_step steps[STEPS];
    int32_t read[STEPS], written[STEPS]; /* buffers of each step */
    int32_t input;
    trmi_param params[PARAMS];
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
    CHECK_OK(trmi_lower_places(&s->program, threads, s->program.params_count > 0, &err), err);
    return s->program.arena_bytes[TRMI_ARENA_ACTIVATION];
}

static void check_apart(const sketch *s, int64_t bytes) {
    for (int32_t i = 2; i <= BUFFERS; i++) {
        const trmi_buffer *a = &s->buffers[i];
        int64_t end = a->arena == TRMI_ARENA_GRAD ? s->program.arena_bytes[a->arena] : bytes;
        assert_true(a->offset >= 0 && a->offset % 64 == 0 && a->offset + a->bytes <= end);
        for (int32_t j = 2; j < i; j++) {
            const trmi_buffer *b = &s->buffers[j];
            bool apart = a->arena != b->arena || a->offset + a->bytes <= b->offset ||
                         b->offset + b->bytes <= a->offset;
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

/* Makes buffers from `first` on gradients, each from a step on; every fifth has none, as that of a
 * table. */
static void add_gradients(sketch *s, int32_t first, uint64_t *drawn) {
    s->program.params = s->params;
    s->program.params_count = s->program.trained_count = PARAMS;
    int64_t *end = &s->program.arena_bytes[TRMI_ARENA_GRAD];
    *end = 0;
    for (int32_t i = 0; i < PARAMS; i++) {
        add_life(s, first + i, 1 + draw_number(drawn, 10), 0, STEPS);
        trmi_buffer *b = &s->buffers[first + i];
        bool dense = i % 5 != 0;
        b->first_step = dense ? draw_number(drawn, STEPS) : 0;
        b->bytes -= 4 * draw_number(drawn, 16);
        b->arena = TRMI_ARENA_GRAD;
        b->offset = *end;
        *end += (b->bytes + 63) / 64 * 64;
        s->params[i] =
            (trmi_param){.param_buffer = first + i, .grad_buffer = dense ? first + i : 0};
    }
}

static void activations_lie_in_grad_before_gradients(void **state) {
    sketch s;
    uint64_t drawn = 0;
    int64_t saved = 0;
    for (int round = 0; round < 50; round++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            int64_t alone = 0;
            uint64_t from = drawn;
            for (int shared = 0; shared < 2; shared++, drawn = shared == 1 ? from : drawn) {
                begin_sketch(&s, STEPS, BUFFERS);
                add_gradients(&s, BUFFERS - PARAMS + 1, &drawn);
                for (int32_t i = 2; i <= BUFFERS - PARAMS; i++) {
                    int32_t first = draw_number(&drawn, STEPS),
                            last = first + draw_number(&drawn, STEPS / 2);
                    add_life(&s, i, 1 + draw_number(&drawn, 10), first,
                             last < STEPS ? last : STEPS);
                }
                s.program.params_count = shared ? PARAMS : 0;
                int64_t bytes = bytes_of(&s, threads);
                check_apart(&s, bytes);
                saved += shared ? alone - bytes : 0;
                alone = bytes;
            }
            assert_true(saved >= 0);
        }
    }
    assert_true(saved > 0);
}

/* A buffer that is read by the step which makes the gradient does not lie there; one that dies
 * before does. */
static void gradients_are_made_beside_what_they_read(void **state) {
    sketch s;
    uint64_t drawn = 0;
    for (int32_t last = 49; last <= 51; last++) {
        begin_sketch(&s, STEPS, PARAMS + 2);
        add_gradients(&s, 3, &drawn);
        for (int32_t i = 0; i < PARAMS; i++) {
            s.params[i].grad_buffer = 3 + i;
            s.buffers[3 + i].first_step = 50;
        }
        add_life(&s, 2, 3, 10, last);
        int64_t bytes = bytes_of(&s, 1);
        assert_int_equal(s.buffers[2].arena, last < 50 ? TRMI_ARENA_GRAD : TRMI_ARENA_ACTIVATION);
        assert_int_equal(bytes, last < 50 ? 0 : 3 * PIXELS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_do_not_overlap),
        cmocka_unit_test(threads_stay_where_they_were),
        cmocka_unit_test(activations_lie_in_grad_before_gradients),
        cmocka_unit_test(gradients_are_made_beside_what_they_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
