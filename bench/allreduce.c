/* SPDX-License-Identifier: Apache-2.0 */
/* Times all-reduce over shared memory from 4 B to 102 MB on ranks that this program forks;
 * bench/comm.sh runs it beside MPI. Usage: allreduce RANKS [BYTES...] */
#define _GNU_SOURCE
#include "bench/lib/bench.h"
#include "tests/lib/shared_job.h"
#include "trireme/dist.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_rank(trmi_job *job, int rank, int ranks, const long *sizes, int count) {
    trm_error err;
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL;
    if (trmi_bootstrap_shared(job, rank, &boot, &err) != TRM_OK ||
        trm_comm_create(boot, NULL, &comm, &err) != TRM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        bench_comm_result r;
        bench_comm_options options = {.private_buffers = getenv("PRIVATE") != NULL};
        if (getenv("BENCH_SECONDS") != NULL) {
            options.seconds = atof(getenv("BENCH_SECONDS"));
        }
        if (bench_comm(comm, sizes[i], &options, &r, &err) != TRM_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        if (rank == 0) {
            printf("{\"peer\":\"trireme\",\"n\":%d,\"bytes\":%ld,\"microseconds\":%.3f,"
                   "\"minimum\":%.3f,\"algbw_gb_s\":%.3f,\"roofline_microseconds\":%.3f,"
                   "\"roofline_fraction\":%.3f,\"wrong\":%ld}\n",
                   ranks, sizes[i], r.microseconds, r.minimum_microseconds, r.algbw_gb_s,
                   r.roofline_microseconds, r.roofline_fraction, (long)r.wrong);
            fflush(stdout);
        }
    }
    trm_comm_destroy(comm);
    boot->table->destroy(boot);
    return 0;
}

int main(int argc, char **argv) {
    int ranks = argc > 1 ? atoi(argv[1]) : 2, count = 0;
    long sizes[64] = {4, 1024, 65536, 1 << 20, 8 << 20, 102000000};
    for (int i = 2; i < argc && count < 64; i++) {
        sizes[count++] = atol(argv[i]);
    }
    trm_error err;
    trmi_job *job = NULL;
    if (trmi_job_create(ranks, 0, &job, &err) != TRM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() == 0) {
            /* one CPU each where there are enough, as mpiexec and trireme run bind them */
            cpu_set_t cpus;
            CPU_ZERO(&cpus);
            CPU_SET(rank, &cpus);
            if (ranks <= sysconf(_SC_NPROCESSORS_ONLN)) {
                sched_setaffinity(0, sizeof cpus, &cpus);
            }
            _exit(run_rank(job, rank, ranks, sizes, count > 0 ? count : 6));
        }
    }
    int failed = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int status = 0;
        wait(&status);
        failed |= status != 0;
    }
    return failed;
}
