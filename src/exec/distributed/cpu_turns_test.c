/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share CPUs run in longer slices while they have an executor, and those that have a CPU
 * each do not. */
#include "check.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "ranks.h"

enum { RANKS = 2 };

typedef struct outcome {
    double before, meanwhile, after;
} outcome;

typedef struct shared {
    int cores;
    outcome of[RANKS];
} shared;

static void take_and_leave(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    outcome *own = &all->of[context->rank];
    trmi_parallel *parallel = calloc(1, sizeof *parallel);
    trm_exec *exec = calloc(1, sizeof *exec);
    *parallel = (trmi_parallel){.comm = comm, .cores = all->cores};
    trmi_distribution_keep(exec, &trmi_ranks_key, parallel);
    exec->env.threads = 1;
    own->before = trmi_os_slice();
    trmi_parallel_take_turns(exec);
    own->meanwhile = trmi_os_slice();
    trmi_parallel_leave_turns(exec);
    own->after = trmi_os_slice();
    free(exec);
    free(parallel);
}

static void ranks_that_share_a_cpu_take_longer_turns(void **state) {
    for (int cores = 1; cores <= RANKS; cores++) {
        shared *all =
            mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        all->cores = cores;
        ranks_run_joined(RANKS, true, take_and_leave, all, "slices");
        for (int r = 0; r < RANKS; r++) {
            const outcome *o = &all->of[r];
            bool longer = cores < RANKS && o->before > 0; /* 0: nothing can be asked for */
            assert_true(longer ? o->meanwhile > o->before && o->meanwhile > 0.01
                               : o->meanwhile == o->before);
            assert_true(o->after == o->before);
        }
        munmap(all, sizeof *all);
    }
}

static void a_slice_is_what_was_asked_for(void **state) {
    double before = trmi_os_slice();
    if (before == 0) {
        assert_false(trmi_os_set_slice(0.005));
        assert_true(trmi_os_slice() == 0);
        return;
    }
    assert_true(trmi_os_set_slice(0.005));
    assert_true(trmi_os_slice() == 0.005);
    assert_true(trmi_os_set_slice(before));
    assert_true(trmi_os_slice() == before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_a_cpu_take_longer_turns),
        cmocka_unit_test(a_slice_is_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
