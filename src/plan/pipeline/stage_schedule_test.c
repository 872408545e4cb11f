/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of pipelines (stage_schedule.h): every order of up to STAGES stages and MICROS
 * micro-batches is played to its end; broken ones are refused with the words of their fault.
 *
 * Micro-batches in flight are compared with theory, and times with sums that can be done by
 * hand. Nothing is measured: seconds are numbers of the test. */
#include "check.h"

#include "plan/pipeline/stage_schedule.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { STAGES = 8, MICROS = 16, CHUNKS = 4, EDGES = 2 * STAGES * CHUNKS + 4 };

/* Micro-batches in flight of a virtual stage, at most, by theory. */
static int32_t bound_in_flight(const trmi_pipeline *p, int32_t rank) {
    int32_t most = p->micros;
    switch (p->order) {
    case TRMI_ORDER_1F1B: most = p->stages - rank; break;
    case TRMI_ORDER_INTERLEAVED: most = p->chunks == 1 ? p->stages - rank : 2 * p->stages; break;
    default: break;
    }
    return most < p->micros ? most : p->micros;
}

static void play_one(trmi_pipeline_order order, int32_t stages, int32_t micros, int32_t chunks) {
    trm_error err;
    trmi_pipeline p;
    int32_t in_flight[STAGES * CHUNKS], waiting[EDGES];
    trmi_pipeline_edge edges[EDGES];
    CHECK_OK(trmi_pipeline_create(order, stages, chunks, micros, &p, &err), err);
    int32_t count = trmi_pipeline_chain(&p, edges), last = stages * chunks - 1;
    /* a value that skips stages, and the gradient of a tied parameter, which goes to the first */
    edges[count++] = (trmi_pipeline_edge){.from = 0, .to = last};
    edges[count++] =
        (trmi_pipeline_edge){.from = last, .to = 0, .from_backward = true, .to_backward = true};
    trmi_pipeline_play play = {.in_flight = in_flight, .waiting = waiting};
    CHECK_OK(trmi_pipeline_run(&p, edges, last > 0 ? count : 0, &play, &err), err);
    for (int32_t v = 0; v < stages * chunks; v++) {
        assert_in_range(in_flight[v], 1, bound_in_flight(&p, v % stages));
    }
    /* Forward 1 and backward 2 a virtual stage: each rank is busy 3 * micros * chunks, and the
     * first micro-batch alone needs 3 a virtual stage. */
    assert_true(play.seconds >= 3.0 * micros * chunks && play.seconds >= 3.0 * (last + 1));
    if (order != TRMI_ORDER_INTERLEAVED) {
        assert_true(play.seconds == 3.0 * (micros + stages - 1));
    } else if (micros % stages == 0) { /* the bubble is divided by the chunks */
        assert_true(play.seconds == 3.0 * (micros * chunks + stages - 1));
    }
    trmi_pipeline_free(&p);
}

static void all_schedules_end(void **state) {
    (void)state;
    for (int32_t stages = 1; stages <= STAGES; stages++) {
        for (int32_t micros = 1; micros <= MICROS; micros++) {
            play_one(TRMI_ORDER_GPIPE, stages, micros, 1);
            play_one(TRMI_ORDER_1F1B, stages, micros, 1);
            for (int32_t chunks = 1; chunks <= CHUNKS; chunks++) {
                play_one(TRMI_ORDER_INTERLEAVED, stages, micros, chunks);
            }
        }
    }
}

/* Plays a random schedule with random seconds; returns the seconds of the whole. `how`: crowding,
 * whether ranks meet, and whether the first one sends after that; *work: of all ranks, their mean;
 * *most: the longest time of an action, of its own seconds; *longest: the longest work after the
 * last action. */
static double play_random(uint64_t k, trmi_pipeline_play how, double *work, double *most,
                          double *longest) {
    enum { RUNS = STAGES * 2 };
    trm_error err;
    trmi_pipeline p;
    trmi_pipeline_edge edges[EDGES];
    const double behind[STAGES] = {0.5}; /* of the first rank */
    double seconds[2 * RUNS], after[STAGES], starts[4 * STAGES * MICROS], ends[4 * STAGES * MICROS];
    int32_t order = (int32_t)(k % 3), stages = 1 + (int32_t)(k / 3 % STAGES),
            micros = 1 + (int32_t)(k / 5 % MICROS),
            chunks = order == TRMI_ORDER_INTERLEAVED ? 2 : 1;
    for (uint64_t i = 0; i < 2 * RUNS; i++) {
        seconds[i] = 1e-3 * (1 + trmi_random_u32(3, TRMI_STREAM_TEST, k * 64 + i) % 1000);
    }
    memcpy(after, seconds + 7, sizeof after);
    CHECK_OK(trmi_pipeline_create((trmi_pipeline_order)order, stages, chunks, micros, &p, &err),
             err);
    how.forward = seconds;
    how.backward = seconds + RUNS;
    how.after = after;
    how.behind = how.behind != NULL ? behind : NULL;
    how.starts = starts;
    how.ends = ends;
    CHECK_OK(trmi_pipeline_run(&p, edges, trmi_pipeline_chain(&p, edges), &how, &err), err);
    *work = *most = *longest = 0;
    for (int32_t v = 0; v < stages * chunks; v++) {
        *work += micros * (seconds[v] + seconds[RUNS + v]) / stages;
    }
    for (int32_t r = 0; r < stages; r++) {
        *work += after[r] / stages;
        *longest = fmax(*longest, after[r]);
    }
    for (int32_t i = 0; i < stages * p.count; i++) {
        const trmi_pipeline_action *a = &p.actions[i];
        double own = seconds[(a->backward ? RUNS : 0) + a->chunk * stages + i / p.count];
        *most = fmax(*most, (ends[i] - starts[i]) / own);
    }
    double last = 0;
    for (int32_t r = 0; r < stages; r++) {
        last = fmax(last, ends[(r + 1) * p.count - 1]);
    }
    if (how.meets) {
        double later = TRMI_MEETINGS_AFTER * how.meeting + (how.behind != NULL ? behind[0] : 0);
        CHECK_CLOSE(how.met / (last + TRMI_MEETINGS_BEFORE * how.meeting), 1, 1e-9);
        assert_true(how.crowding > 1 || fabs(how.seconds - how.met - *longest - later) < 1e-9);
    }
    trmi_pipeline_free(&p);
    return how.seconds;
}

/* Where ranks share cores, no action takes longer than while all compute, and the whole is neither
 * shorter than the mean of all work nor than the crowding allows. One core of all is always
 * busy. */
static void ranks_that_wait_leave_cores_to_others(void **state) {
    (void)state;
    int faster = 0;
    for (uint64_t k = 0; k < 400; k++) {
        double work, most, longest,
            alone = play_random(k, (trmi_pipeline_play){.crowding = 1}, &work, &most, &longest);
        int32_t stages = 1 + (int32_t)(k / 3 % STAGES);
        CHECK_CLOSE(most, 1, 1e-9);
        double shared =
            play_random(k, (trmi_pipeline_play){.crowding = 1.5}, &work, &most, &longest);
        assert_true(most <= 1 + 1e-9);
        assert_true(shared >= alone / 1.5 * (1 - 1e-9) && shared >= work * (1 - 1e-9));
        faster += shared < alone * 0.9;
        const trmi_pipeline_play all = {.crowding = stages};
        CHECK_CLOSE(play_random(k, all, &work, &most, &longest) / work, 1, 1e-9);
    }
    assert_true(faster > 100);
}

/* Ranks that meet begin the work after their last actions together, and a step is longer by the
 * meetings, and by the messages after the last of them. With cores of their own it takes the
 * longest of that work after the first meetings. */
static void ranks_that_meet_go_on_together(void **state) {
    (void)state;
    int later = 0;
    for (uint64_t k = 0; k < 400; k++) {
        double work, most, longest;
        for (int32_t i = 0; i < 2; i++) {
            const double crowding = i == 0 ? 1 : 1.5;
            trmi_pipeline_play how = {.crowding = crowding};
            double apart = play_random(k, how, &work, &most, &longest);
            how.meets = true;
            double first = play_random(k, how, &work, &most, &longest);
            how.meeting = 0.25;
            double second = play_random(k, how, &work, &most, &longest);
            CHECK_CLOSE(second, first + 0.25 * (TRMI_MEETINGS_BEFORE + TRMI_MEETINGS_AFTER), 1e-9);
            how.behind = &how.meeting;
            CHECK_CLOSE(play_random(k, how, &work, &most, &longest), second + 0.5, 1e-9);
            /* with shared cores early updates may have been in the way of late actions */
            assert_true(first >= (i == 0 ? apart : work) * (1 - 1e-9));
            later += first > apart * 1.01;
        }
    }
    assert_true(later > 200);
}

static trm_status run_chain(const trmi_pipeline *p, trm_error *err) {
    trmi_pipeline_edge edges[EDGES];
    trmi_pipeline_play play = {.in_flight = NULL};
    return trmi_pipeline_run(p, edges, trmi_pipeline_chain(p, edges), &play, err);
}

static void broken_schedules_are_refused(void **state) {
    trm_error err;
    trmi_pipeline p;
    (void)state;
    /* Two actions of a rank change places: every pair of them, of every rank. */
    int32_t refused = 0;
    CHECK_OK(trmi_pipeline_create(TRMI_ORDER_1F1B, 3, 1, 4, &p, &err), err);
    for (int32_t r = 0; r < p.stages; r++) {
        for (int32_t i = 0; i < p.count; i++) {
            for (int32_t j = i + 1; j < p.count; j++) {
                trmi_pipeline_action *a = p.actions + r * p.count, kept = a[i];
                a[i] = a[j];
                a[j] = kept;
                bool same = a[i].backward == a[j].backward;
                trm_status status = run_chain(&p, &err);
                assert_true(!same || status == TRM_INVALID);
                refused += status == TRM_INVALID;
                a[j] = a[i];
                a[i] = kept;
            }
        }
    }
    assert_true(refused > 60);
    CHECK_OK(run_chain(&p, &err), err);
    /* Rank 1 waits for a forward that rank 0 runs after a backward that rank 1 runs later. */
    trmi_pipeline_action *a = p.actions;
    memcpy(a,
           (const trmi_pipeline_action[]){{.micro = 0},
                                          {.backward = true, .micro = 0},
                                          {.micro = 1},
                                          {.backward = true, .micro = 1},
                                          {.micro = 2},
                                          {.backward = true, .micro = 2},
                                          {.micro = 3},
                                          {.backward = true, .micro = 3}},
           8 * sizeof *a);
    CHECK_FAILS(run_chain(&p, &err), TRM_INVALID, err, "wait for each other");
    a[1].micro = 1;
    CHECK_FAILS(run_chain(&p, &err), TRM_INVALID, err, "backward 1 of chunk 0");
    trmi_pipeline_free(&p);
    CHECK_FAILS(trmi_pipeline_create(TRMI_ORDER_GPIPE, 2, 2, 4, &p, &err), TRM_INVALID, err,
                "one chunk");
    CHECK_FAILS(trmi_pipeline_create(TRMI_ORDER_1F1B, 0, 1, 4, &p, &err), TRM_INVALID, err,
                "0 stages");
    CHECK_FAILS(trmi_pipeline_create(TRMI_ORDER_1F1B, 2, 1, 0, &p, &err), TRM_INVALID, err,
                "0 micro-batches");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_schedules_end),
                                       cmocka_unit_test(ranks_that_wait_leave_cores_to_others),
                                       cmocka_unit_test(ranks_that_meet_go_on_together),
                                       cmocka_unit_test(broken_schedules_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
