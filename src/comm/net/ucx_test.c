/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective over the UCX plug-in, where it was built. */
#include "collective_cases.h"

#include "base/os.h"

#include <sys/time.h>

#define PLUGINS TRIREME_BUILD_DIR "/plugins"

static bool has_ucx(void) { return access(PLUGINS "/trireme_comm_ucx.so", R_OK) == 0; }

static const int64_t counts[] = {0, 1, 1000, 20011, -1};

static void collectives_over_ucx(void **state) {
    if (!has_ucx()) {
        print_message("skipped: no UCX when this was configured\n");
        skip();
    }
    static const int sizes[] = {2, 3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        case_run run = {
            .counts = counts, .quick = true, .options = {.engine = "ucx", .plugin_dir = PLUGINS}};
        ranks_run(sizes[i], sizes[i] == 4 ? 2 : 1, true, case_body, &run, "ucx");
    }
}

enum { LARGE = 4 << 20 }; /* 16 MB: by rendezvous */

static void send_wrongly(rank_context *context) {
    const rank_setup *given = context->arg;
    trm_error err = {.status = 0};
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL;
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);
    EXPECT_OK(trm_comm_create(boot, &given->options, &comm, &err), err);
    int64_t count = given->mode == 2 ? LARGE : 5000;
    float *data = calloc(LARGE, sizeof *data);
    EXPECT(data != NULL, "memory");
    trm_status status = trm_comm_allreduce(comm, data, count, TRM_FLOAT32, TRM_REDUCTION_SUM, &err);
    if (given->mode == 0) {
        EXPECT(status == TRM_OK, "%s", err.message);
        status = trm_comm_allreduce(comm, data, context->rank == 1 ? 4999 : 5000, TRM_FLOAT32,
                                    TRM_REDUCTION_SUM, &err);
        EXPECT(status == TRM_INVALID && strstr(err.message, "4999") != NULL &&
                   strstr(err.message, "5000") != NULL,
               "%s", err.message);
    } else {
        if (context->rank == 1 && given->mode == 1) {
            raise(SIGKILL);              /* others may still be in the first one */
        } else if (context->rank == 1) { /* dies of a timer, in the middle of a large transfer */
            setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 50000}, NULL);
        }
        double start = trmi_os_now();
        while (status == TRM_OK) {
            start = given->mode == 2 ? trmi_os_now() : start;
            status = trm_comm_allreduce(comm, data, count, TRM_FLOAT32, TRM_REDUCTION_SUM, &err);
        }
        EXPECT(status == TRM_PEER && strstr(err.message, "rank 1") != NULL, "%s", err.message);
        EXPECT(trmi_os_now() - start < 1.5 * check_patience() + 2, "%g s", trmi_os_now() - start);
    }
    free(data);
    trm_comm_destroy(comm);
    boot->table->destroy(boot);
}

static void faults_over_ucx(void **state) {
    if (!has_ucx()) {
        print_message("skipped: no UCX when this was configured\n");
        skip();
    }
    rank_setup given = {.options = {.engine = "ucx", .plugin_dir = PLUGINS}};
    ranks_run(2, 1, true, send_wrongly, &given, "disagreement");
    setenv("UCX_TLS", "tcp", 1); /* as between hosts: not the memory that these ranks could share */
    for (given.mode = 1; given.mode <= 2; given.mode++) {
        trm_error err;
        trmi_job *job = NULL;
        CHECK_OK(trmi_job_create(3, 1, &job, &err), err);
        rank_context *contexts = ranks_fork(job, 3, send_wrongly, &given);
        for (int r = 0; r < 3; r++) {
            waitpid(contexts[r].pid, NULL, 0);
        }
        ranks_report(contexts, 3, given.mode == 1 ? "killed" : "killed in a large transfer");
        munmap(contexts, 3 * sizeof *contexts);
        trmi_job_destroy(job);
    }
    unsetenv("UCX_TLS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_over_ucx),
        cmocka_unit_test(faults_over_ucx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
