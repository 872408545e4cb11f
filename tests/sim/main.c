/* SPDX-License-Identifier: Apache-2.0 */
/* trireme-sim: runs the jobs of seeds in the simulator (sim.h).
 *
 *   trireme-sim --seed N [--trace]        one seed
 *   trireme-sim --seeds FIRST:COUNT [--seconds S]   many, one process each; prints those that fail */
#include "job.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void log_line(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context, (void)level;
    sim_trace(sim.current == NULL ? NULL : sim.current->process, "log %s: %s", room, line);
}

static double real_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct outcome {
    double simulated, wall;
    uint64_t hash, switches;
    int faults, cuts;
    char failure[256];
} outcome;

static outcome run_seed(uint64_t seed, bool trace) {
    double began = real_now();
    trm_log_set_sink(log_line, NULL, TRM_LOG_INFO);
    sim_start(seed, trace);
    sim_job_start();
    sim_run();
    outcome o = {(double)sim.now * 1e-9, real_now() - began, sim.hash, sim.switches, job.faults,
                 job.cuts_made, ""};
    snprintf(o.failure, sizeof o.failure, "%.255s", sim.failure);
    return o;
}

/* Runs a seed in a process of its own; a crash or a run of 60 s is a failure. */
static outcome run_apart(uint64_t seed) {
    int ends[2];
    outcome o = {.failure = ""};
    if (pipe(ends) != 0) {
        perror("trireme-sim: pipe");
        exit(2);
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        o = run_seed(seed, false);
        _exit(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o ? 0 : 2);
    }
    close(ends[1]);
    int status;
    ssize_t got = read(ends[0], &o, sizeof o);
    close(ends[0]);
    waitpid(child, &status, 0);
    if (got != (ssize_t)sizeof o) {
        snprintf(o.failure, sizeof o.failure, "the simulator ends by signal %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return o;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_many(uint64_t first, uint64_t count, double seconds, int failures_most) {
    double began = real_now(), simulated = 0, wall = 0;
    double *ratios = calloc(count + 1, sizeof *ratios);
    uint64_t n = 0, faults = 0, cuts = 0;
    int failed = 0;
    for (; n < count && (seconds == 0 || real_now() - began < seconds) && failed < failures_most; n++) {
        outcome o = run_apart(first + n);
        if (o.failure[0] != '\0') {
            failed++;
            printf("trireme-sim --seed %llu: %s\n", (unsigned long long)(first + n), o.failure);
            fflush(stdout);
        }
        simulated += o.simulated;
        wall += o.wall;
        ratios[n] = o.wall > 0 ? o.simulated / o.wall : 0;
        faults += (uint64_t)o.faults;
        cuts += (uint64_t)o.cuts;
    }
    qsort(ratios, n, sizeof *ratios, compare_doubles);
    printf("%llu seeds, %d failed, %llu faults, %llu snapshots; %.0f s simulated in %.1f s; simulated "
           "over wall time: median %.0f; %.0f seeds an hour\n",
           (unsigned long long)n, failed, (unsigned long long)faults, (unsigned long long)cuts,
           simulated, real_now() - began, ratios[n / 2], 3600 * (double)n / (real_now() - began));
    free(ratios);
    return failed > 0;
}

int main(int argc, char **argv) {
    uint64_t first = 1, count = 1;
    bool trace = false, one = true;
    double seconds = 0;
    int failures_most = 10;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0) {
            trace = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            first = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0) {
            seconds = atof(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--failures") == 0) {
            failures_most = atoi(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
            char *colon;
            first = strtoull(argv[++i], &colon, 10);
            count = *colon == ':' ? strtoull(colon + 1, NULL, 10) : 1;
            one = false;
        } else {
            fprintf(stderr, "usage: trireme-sim --seed N [--trace] | --seeds FIRST:COUNT [--seconds "
                            "S] [--failures N]\n");
            return 2;
        }
    }
    if (!one) {
        return run_many(first, count, seconds, failures_most);
    }
    outcome o = run_seed(first, trace);
    printf("seed %llu: %s; %.1f s simulated in %.3f s, %d faults, %d snapshots, %llu switches, trace "
           "%016llx\n",
           (unsigned long long)first, o.failure[0] == '\0' ? "good" : o.failure, o.simulated, o.wall,
           o.faults, o.cuts, (unsigned long long)o.switches, (unsigned long long)o.hash);
    return o.failure[0] != '\0';
}
