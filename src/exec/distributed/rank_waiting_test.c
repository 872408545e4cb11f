/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that two kinds of waiting are separate: the wait of the last rank to arrive, and the wait
 * of the other ranks for it. */
#include "check.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "ranks.h"

#include <math.h>

enum { RANKS = 2, MEETINGS = 4, STEP_SECONDS = 32 };

typedef struct outcome {
    trm_waiting first, anew;
} outcome;

typedef struct shared {
    int steps;
    outcome of[RANKS];
} shared;

/* Rank 0 waits 2 s and 6 s in turn, rank 1 4 s and 2 s: of each meeting 2 s are communication. */
static void wait_in_turns(rank_context *context, trm_comm *comm) {
    static const double waits[RANKS][2] = {{2, 6}, {4, 2}};
    shared *all = context->arg;
    trm_error err;
    trmi_parallel *parallel = calloc(1, sizeof *parallel);
    trm_exec *exec = calloc(1, sizeof *exec);
    parallel->comm = comm;
    trmi_distribution_keep(exec, &trmi_ranks_key, parallel);
    for (int step = 0; step < all->steps; step++) {
        trmi_parallel_note_step(exec);
        for (int i = 0; i < MEETINGS; i++) {
            trmi_parallel_waited(parallel, trmi_os_now() - waits[context->rank][i % 2]);
        }
        exec->step_seconds += STEP_SECONDS;
    }
    trm_status status = trm_exec_get_waiting(exec, &all->of[context->rank].first, &err);
    trm_exec_begin_waiting(exec);
    trmi_parallel_waited(parallel, trmi_os_now() - waits[context->rank][0]);
    exec->step_seconds += STEP_SECONDS;
    status =
        status == TRM_OK ? trm_exec_get_waiting(exec, &all->of[context->rank].anew, &err) : status;
    free(exec);
    free(parallel);
    EXPECT_OK(status, err);
}

static void check_waiting(const trm_waiting *w, int64_t meetings, double communication,
                          double imbalance) {
    double step = (double)meetings / MEETINGS * STEP_SECONDS;
    assert_int_equal(w->meetings, meetings);
    assert_true(fabs(w->step_seconds - (meetings < MEETINGS ? STEP_SECONDS : step)) < 1e-6 * step);
    assert_true(fabs(w->communication_seconds - communication) < 0.01 * step);
    assert_true(fabs(w->imbalance_seconds - imbalance) < 0.01 * step);
}

static void waiting_is_communication_or_for_another_rank(void **state) {
    static const int steps[] = {1, 7, 1000};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        shared *all =
            mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        all->steps = steps[i];
        ranks_run_joined(RANKS, true, wait_in_turns, all, "waits");
        int64_t kept = all->of[0].first.meetings; /* of many, the last ones: whole steps */
        assert_true(steps[i] < 100 ? kept == MEETINGS * steps[i]
                                   : kept > 400 && kept <= TRMI_WAITS_MOST && kept % MEETINGS == 0);
        for (int r = 0; r < RANKS; r++) {
            check_waiting(&all->of[r].first, kept, 2.0 * (double)kept, 1.5 * (double)kept);
            check_waiting(&all->of[r].anew, 1, 2, 1);
        }
        munmap(all, sizeof *all);
    }
}

static void one_rank_waits_for_nobody(void **state) {
    trm_error err;
    trm_exec *exec = calloc(1, sizeof *exec);
    trm_waiting waiting = {.meetings = 7};
    trm_exec_begin_waiting(exec);
    CHECK_OK(trm_exec_get_waiting(exec, &waiting, &err), err);
    assert_true(waiting.meetings == 0 && waiting.step_seconds == 0);
    free(exec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_is_communication_or_for_another_rank),
        cmocka_unit_test(one_rank_waits_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
