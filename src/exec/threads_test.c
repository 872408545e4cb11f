/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the number of threads of a step, and that they sleep at barriers when other processes need
 * their CPUs. */
#include "check.h"
#include "threads_of_test.h"

#include "exec/threads.h"

#include "base/os.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static trm_graph *make_graph(int64_t batch, int64_t width, trm_node *loss) {
    trm_graph *g;
    trm_error err;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(batch, width));
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        trm_node w = trm_parameter(g, name, trm_shape_of(width, width), TRM_INIT_LINEAR);
        x = trm_relu(g, trm_linear(g, x, w, TRM_NO_NODE));
    }
    *loss = trm_reduce_mean(g, x, NULL, 0, false);
    CHECK_OK(trm_graph_check(g, &err), err);
    return g;
}

static int choose_threads(int64_t batch, int64_t width, trm_exec_options options) {
    trm_graph *g = make_graph(batch, width, &options.loss);
    int threads = trmi_threads_choose(g, &options, 1);
    trm_graph_destroy(g);
    return threads;
}

static void the_environment_and_the_host_limit_threads(void **state) {
    unsetenv("OMP_NUM_THREADS");
    int cpus = trmi_os_cpu_count();
    assert_int_equal(trmi_threads_usable(1), cpus);
    assert_int_equal(trmi_threads_usable(0), cpus);
    assert_int_equal(trmi_threads_usable(cpus), 1);
    assert_int_equal(trmi_threads_usable(10 * cpus), 1);
    assert_int_equal(trmi_threads_usable(2), cpus > 1 ? cpus / 2 : 1);
    setenv("OMP_NUM_THREADS", "3,2", 1);
    assert_int_equal(trmi_threads_usable(1), 3);
    assert_int_equal(trmi_threads_usable(64), 3);
    setenv("OMP_NUM_THREADS", "many", 1);
    assert_int_equal(trmi_threads_usable(1), cpus);
    unsetenv("OMP_NUM_THREADS");
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before)) {
        cpu++;
    }
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(trmi_threads_usable(1), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void a_step_has_the_threads_that_it_is_worth(void **state) {
    setenv("OMP_NUM_THREADS", "8", 1);
    assert_int_equal(choose_threads(16, 32, (trm_exec_options){0}), 1);
    assert_int_equal(choose_threads(512, 1024, (trm_exec_options){0}), 8);
    assert_int_equal(choose_threads(16, 32, (trm_exec_options){.threads = 5}), 5);
    int some = choose_threads(64, 256, (trm_exec_options){0});
    assert_in_range(some, 1, 8);
    assert_int_equal(choose_threads(64, 256, (trm_exec_options){0}), some);
    setenv("OMP_NUM_THREADS", "2", 1);
    assert_int_equal(choose_threads(512, 1024, (trm_exec_options){0}), 2);
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(choose_threads(512, 1024, (trm_exec_options){.host_processes = 1000}), 1);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static volatile double product;

/* Steps until this process has more (fewer) threads than `threads`; false after a minute. */
static bool step_until(bool more, int threads) {
    for (double begin = trmi_os_now(); trmi_os_now() - begin < 60;) {
        trmi_threads_use(2);
        for (int i = 0; i < 100000; i++) {
            product = product * 1.0000001 + 1e-9;
        }
        int now = count_threads();
        if (more ? now > threads : now <= threads) {
            return true;
        }
    }
    return false;
}

static void threads_sleep_while_cpus_are_wanted(void **state) {
    pid_t burners[3];
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    unsetenv("KMP_BLOCKTIME");
    if (trmi_os_cpu_wait() < 0) {
        print_message("skipped: the kernel does not say how long threads wait for CPUs\n");
        skip();
    }
#if defined(__clang__) || !defined(_OPENMP)
    print_message("skipped: the helper's team is for libgomp\n");
    skip();
#endif
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); /* all on one CPU, with burners */
    int threads = count_threads();
    for (int i = 0; i < 3; i++) {
        burners[i] = fork();
        if (burners[i] == 0) {
            for (;;) {
                product += 1;
            }
        }
    }
    bool slept = step_until(true, threads);
    for (int i = 0; i < 3; i++) {
        kill(burners[i], SIGKILL);
        waitpid(burners[i], NULL, 0);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_true(slept);
    setenv("OMP_WAIT_POLICY", "passive", 1); /* as the user says: no look any more */
    int held = count_threads();
    for (int i = 0; i < 20; i++) {
        trmi_threads_use(2);
        usleep(20000);
    }
    assert_int_equal(count_threads(), held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_and_the_host_limit_threads),
        cmocka_unit_test(a_step_has_the_threads_that_it_is_worth),
        cmocka_unit_test(threads_sleep_while_cpus_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
