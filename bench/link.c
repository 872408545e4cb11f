/* SPDX-License-Identifier: Apache-2.0 */
/* Measures two ranks on two hosts: bandwidth of messages and of all-reduce over tcp or ucx, and CPU
 * seconds of both ranks for a gigabyte. bench/link.sh runs one rank in each of two network
 * namespaces and compares the figures with ucx_perftest on the same link.
 * Usage: link ENGINE PLUGIN_DIR RANK RENDEZVOUS TOKEN_FILE */
#define _POSIX_C_SOURCE 200809L
#include "trireme/dist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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

/* Joins the other rank. The ranks name different hosts, so that they use the link and not shared
 * memory. */
static trm_status join_ranks(char **argv, trm_bootstrap **boot, trm_error *err) {
    int rank = atoi(argv[3]);
    trm_cluster_flags flags = {
        .rank = rank, .size = 2, .rendezvous = argv[4], .token_file = argv[5]};
    trm_join_options options = {.host_name = rank == 0 ? "host-a" : "host-b"};
    trm_cluster *cluster;
    trm_status status = trm_cluster_create(&flags, &cluster, err);
    if (status == TRM_OK) {
        status = trm_cluster_join(cluster, &options, boot, err);
        trm_cluster_destroy(cluster);
    }
    return status;
}

int main(int argc, char **argv) {
    trm_error err;
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL;
    if (argc != 6) {
        return 2;
    }
    trm_comm_options options = {.engine = argv[1], .plugin_dir = argv[2]};
    int rank = atoi(argv[3]);
    if (join_ranks(argv, &boot, &err) != TRM_OK ||
        trm_comm_create(boot, &options, &comm, &err) != TRM_OK) {
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
    trm_cluster_leave(boot);
    return 0;
}
