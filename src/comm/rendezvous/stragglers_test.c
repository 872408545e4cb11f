/* SPDX-License-Identifier: Apache-2.0 */
/* Slow ranks: judged from made-up windows, then told by ranks that say how long their steps were.
 */
#include "comm/rendezvous/stragglers.h"

#include "ranks.h"

#include <time.h>

static trmi_straggler_sums make_card(double computing_ms, double data_ms) {
    return (trmi_straggler_sums){.elapsed = 2,
                                 .computing = 0.1 * computing_ms,
                                 .data = 0.1 * data_ms,
                                 .steps = 100,
                                 .pid = 7,
                                 .host = "h"};
}

static void judges_by_the_median(void **state) {
    (void)state;
    trmi_straggler_history histories[4] = {{0}};
    trmi_straggler_report reports[4];
    trmi_straggler_sums sums[4] = {make_card(10, 0), make_card(10.5, 1), make_card(14, 0),
                                   make_card(9, 0)};
    for (int window = 1; window <= 5; window++) { /* rank 2: 1.4 times the lower median of 10 */
        trmi_stragglers_judge(sums, 4, histories, reports);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(reports[r],
                             r == 2 && window == 3 ? TRMI_STRAGGLER_SLOW : TRMI_STRAGGLER_NOTHING);
        }
    }
    sums[2] = make_card(10, 0);
    trmi_stragglers_judge(sums, 4, histories, reports);
    assert_int_equal(reports[2], TRMI_STRAGGLER_RECOVERED);
    trmi_stragglers_judge(sums, 4, histories, reports);
    assert_int_equal(reports[2], TRMI_STRAGGLER_NOTHING);
}

static void one_bad_window_is_nothing(void **state) {
    (void)state;
    trmi_straggler_history histories[2] = {{0}};
    trmi_straggler_report reports[2];
    for (int window = 0; window < 30; window++) { /* a stop of seconds, a noisy pair of windows */
        trmi_straggler_sums sums[2] = {make_card(10, 0), make_card(window % 3 != 0 ? 300 : 10, 0)};
        trmi_stragglers_judge(sums, 2, histories, reports);
        assert_int_equal(reports[0] + reports[1], 2 * TRMI_STRAGGLER_NOTHING);
    }
}

static void says_the_cause(void **state) {
    (void)state;
    char text[400];
    trmi_straggler_sums sums[2] = {make_card(10, 0), make_card(30, 0)};
    trmi_straggler_text(sums, 2, 1, TRMI_STRAGGLER_SLOW, text, sizeof text);
    assert_non_null(strstr(text, "rank 1 (h pid 7) is slow"));
    assert_non_null(strstr(text, "30 ms a step, their median is 10"));
    assert_non_null(strstr(text, "cause: cpu (it has its core and is slower"));
    sums[1].delayed = 1.4;
    trmi_straggler_text(sums, 2, 1, TRMI_STRAGGLER_SLOW, text, sizeof text);
    assert_non_null(strstr(text, "cause: cpu (others use its core: no CPU for 70 %"));
    sums[1].faults = 500;
    trmi_straggler_text(sums, 2, 1, TRMI_STRAGGLER_SLOW, text, sizeof text);
    assert_non_null(strstr(text, "cause: memory (5 pages a step"));
    sums[1] = make_card(10, 20);
    trmi_straggler_text(sums, 2, 1, TRMI_STRAGGLER_SLOW, text, sizeof text);
    assert_non_null(strstr(text, "cause: data (it waits 20 ms a step"));
    trmi_straggler_text(sums, 2, 1, TRMI_STRAGGLER_RECOVERED, text, sizeof text);
    assert_non_null(strstr(text, "rank 1 (h pid 7) keeps up with the others again"));
}

/* ---- ranks ----------------------------------------------------------------------------------- */
static char said[2000];
static int lines;

static void keep_line(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context, (void)level, (void)room;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
    lines++;
}

#define OPEN()                                                                                     \
    trm_error err = {.status = TRM_OK};                                                            \
    trm_bootstrap *boot = NULL;                                                                    \
    trm_comm *comm = NULL;                                                                         \
    const int *slow = context->arg;                                                                \
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);               \
    EXPECT_OK(trm_comm_create(boot, NULL, &comm, &err), err)
#define CLOSE()                                                                                    \
    trm_comm_destroy(comm);                                                                        \
    boot->table->destroy(boot)

/* Steps are said to last 21 ms, so that a window is one gathering; those of the slow rank twice as
 * long. */
static void play_windows(rank_context *context) {
    OPEN();
    trmi_stragglers *stragglers = NULL;
    EXPECT_OK(trmi_stragglers_create(comm, &stragglers, &err), err);
    for (int step = 0; step < 5 * TRMI_STRAGGLER_STEPS; step++) {
        double waited = trmi_bootstrap_waited(boot);
        EXPECT_OK(trm_comm_barrier(comm, &err), err);
        waited = trmi_bootstrap_waited(boot) - waited;
        double computing = context->rank == *slow ? 0.042 : 0.021;
        EXPECT_OK(trmi_stragglers_step(stragglers, computing + waited, 0, &err), err);
    }
    trmi_stragglers_destroy(stragglers);
    CLOSE();
}

static void ranks_hear_of_slow_ones(void **state) {
    (void)state;
    for (int slow = -1; slow < 3; slow++) {
        char name[24];
        snprintf(name, sizeof name, "rank %d (", slow);
        said[0] = '\0';
        lines = 0;
        trm_log_set_sink(keep_line, NULL, TRM_LOG_WARN);
        ranks_run(3, 0, false, play_windows, &slow, "steps");
        trm_log_set_sink(NULL, NULL, TRM_LOG_WARN);
        assert_int_equal(lines, slow < 0 ? 0 : 1);
        assert_true(slow < 0 || strstr(said, name) != NULL);
    }
}

/* The time in which ranks wait for a late rank counts as waiting, in blocking and in nonblocking
 * calls; the late rank's own time does not. */
static void be_late(rank_context *context) {
    OPEN();
    float value = 1;
    double before = trmi_bootstrap_waited(boot);
    for (int turn = 0; turn < 20; turn++) {
        if (context->rank == *slow) {
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        if (turn % 2 == 0) {
            EXPECT_OK(trm_comm_barrier(comm, &err), err);
            continue;
        }
        trm_request *request = NULL;
        trm_collective op = {.kind = TRM_ALLREDUCE,
                             .recv = &value,
                             .count = 1,
                             .dtype = TRM_FLOAT32,
                             .reduce = TRM_REDUCTION_MAX};
        EXPECT_OK(trm_comm_start(comm, &op, &request, &err), err);
        EXPECT_OK(trm_request_wait(request, -1, &err), err);
    }
    double waited = trmi_bootstrap_waited(boot) - before;
    EXPECT(context->rank == *slow || waited > 0.05, "waited %g s for a rank that slept 100 ms",
           waited);
    CLOSE();
}

static void waits_are_counted(void **state) {
    (void)state;
    int slow = 1;
    ranks_run(3, 0, false, be_late, &slow, "a late rank");
    ranks_run(3, 1, false, be_late, &slow, "a late rank of another host");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_by_the_median), cmocka_unit_test(one_bad_window_is_nothing),
        cmocka_unit_test(says_the_cause),       cmocka_unit_test(ranks_hear_of_slow_ones),
        cmocka_unit_test(waits_are_counted),
    };
    return cmocka_run_group_tests_name("comm/stragglers", tests, NULL, NULL);
}
