/* SPDX-License-Identifier: Apache-2.0 */
/* Measures two ranks in two network namespaces: bandwidth of messages and of all-reduce over tcp or
 * ucx, and CPU seconds of both ranks for a gigabyte. bench/link.sh compares the figures with
 * ucx_perftest on the same link. Usage: link ENGINE PLUGIN_DIR NETNS0 ADDRESS0 NETNS1 ADDRESS1 */
#define _GNU_SOURCE
#include "tests/lib/shared_job.h"
#include "trireme/dist.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double read_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int print_failure(const trm_error *err) {
    fprintf(stderr, "%s\n", err->message);
    return 1;
}

static int run_rank(trmi_job *job, int rank, char **argv) {
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s", argv[3 + 2 * rank]);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        perror(path);
        return 1;
    }
    close(fd);
    /* UCX looks for devices in /sys, which shows those of the namespace that mounted it */
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) != 0 ||
        umount2("/sys", MNT_DETACH) != 0 || mount("sysfs", "/sys", "sysfs", 0, NULL) != 0) {
        perror("/sys");
    }
    trm_error err;
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL;
    trm_comm_options options = {.engine = argv[1], .plugin_dir = argv[2]};
    if (trmi_bootstrap_shared(job, rank, &boot, &err) != TRM_OK) {
        return print_failure(&err);
    }
    boot->address = argv[4 + 2 * rank];
    if (trm_comm_create(boot, &options, &comm, &err) != TRM_OK) {
        return print_failure(&err);
    }
    enum { BYTES = 8 << 20, WINDOW = 8, TURNS = 10 };
    char *data = malloc(BYTES);
    memset(data, 0, BYTES);
    double start = 0, cpu = 0;
    for (int i = -1; i < TURNS; i++) {
        if (i == 0) {
            start = read_clock();
            cpu = cpu_seconds();
        }
        /* WINDOW at a time, as ucx_perftest keeps several under way */
        trm_message window[WINDOW];
        for (int k = 0; k < WINDOW; k++) {
            window[k] = (trm_message){.receive = rank == 1,
                                      .peer = 1 - rank,
                                      .buffer = data,
                                      .count = BYTES,
                                      .dtype = TRM_INT8};
        }
        if (trm_comm_exchange(comm, window, WINDOW, &err) != TRM_OK) {
            return print_failure(&err);
        }
    }
    if (trm_comm_barrier(comm, &err) != TRM_OK) {
        return print_failure(&err);
    }
    double message = (read_clock() - start) / (TURNS * WINDOW);
    cpu = (cpu_seconds() - cpu) / (TURNS * WINDOW);
    if (trm_comm_allreduce(comm, &cpu, 1, TRM_FLOAT64, TRM_REDUCTION_SUM, &err) != TRM_OK) {
        return print_failure(&err);
    }
    for (int i = -2; i < 2 * TURNS; i++) {
        start = i == 0 ? read_clock() : start;
        if (trm_comm_allreduce(comm, data, BYTES / 4, TRM_FLOAT32, TRM_REDUCTION_SUM, &err) !=
            TRM_OK) {
            return print_failure(&err);
        }
    }
    double allreduce = (read_clock() - start) / (2 * TURNS);
    if (rank == 0) {
        printf("{\"engine\":\"%s\",\"bytes\":%d,\"message_gb_s\":%.3f,\"cpu_s_per_gb\":%.3f,"
               "\"allreduce_gb_s\":%.3f}\n",
               trm_comm_engine(comm), BYTES, BYTES / message * 1e-9, cpu / BYTES * 1e9,
               BYTES / allreduce * 1e-9);
        fflush(stdout);
    }
    trm_comm_destroy(comm);
    boot->table->destroy(boot);
    return 0;
}

int main(int argc, char **argv) {
    trm_error err;
    trmi_job *job = NULL;
    if (argc != 7 || trmi_job_create(2, 1, &job, &err) != TRM_OK) {
        return 2;
    }
    for (int rank = 0; rank < 2; rank++) {
        if (fork() == 0) {
            _exit(run_rank(job, rank, argv));
        }
    }
    int failed = 0;
    for (int rank = 0; rank < 2; rank++) {
        int status = 0;
        wait(&status);
        failed |= status != 0;
    }
    return failed;
}
