/* SPDX-License-Identifier: Apache-2.0 */
/* trireme-sim: runs the jobs of seeds in the simulator (sim.h).
 *
 *   trireme-sim --seed N [--trace]                  one seed
 *   trireme-sim --seeds FIRST:COUNT [--seconds S]   many, one process each; prints those that fail
 *   --jobs N                                        so many of them at a time (0: one for each core)
 *   trireme-sim --list FILE                         the seeds that begin the lines of a file
 *   --without K                                     leaves a kind of faults out (job.h)
 *   --memory                                        allocations fail in jobs of servers, too
 *   --only servers|elastic|checkpoints              passes over seeds of other jobs */
#include "job.h"

#include "base/cpu.h"
#include "base/hash/digest.h"
#include "base/log.h"

#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MOST = 256 };

/* There in a build for coverage only (tests/sim/coverage.py). */
void __gcov_dump(void) __attribute__((weak));

static void log_line(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context, (void)level;
    sim_trace(sim.current == NULL ? NULL : sim.current->process, "log %s: %s", room, line);
}

static double real_now(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct outcome {
    double simulated, cpu; /* seconds */
    uint64_t hash, switches;
    int faults, cuts;
    bool passed_over;
    char failure[256];
} outcome;

static outcome run_seed(uint64_t seed, sim_tracing tracing) {
    double began = real_now(CLOCK_PROCESS_CPUTIME_ID);
    trm_log_set_sink(log_line, NULL, TRM_LOG_INFO);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TOP_PAD, 8 << 20);
    sim_start(seed, tracing);
    sim_job_start();
    sim_run();
    outcome o = {(double)sim.now * 1e-9,
                 real_now(CLOCK_PROCESS_CPUTIME_ID) - began,
                 sim.hash,
                 sim.switches,
                 job.faults,
                 job.cuts_made,
                 job.passed_over,
                 ""};
    snprintf(o.failure, sizeof o.failure, "%.255s", sim.failure);
    return o;
}

/* A seed that runs in a process of its own. */
typedef struct run {
    uint64_t seed;
    pid_t process;
    int answer; /* the end of a pipe from which its outcome is read */
} run;

/* Starts a seed. Its trace is not read, so it has none. A run of 60 s ends as a crash does. */
static run start_seed(uint64_t seed) {
    int ends[2];
    if (pipe(ends) != 0) {
        perror("trireme-sim: pipe");
        exit(2);
    }
    run r = {seed, fork(), ends[0]};
    if (r.process < 0) {
        perror("trireme-sim: fork");
        exit(2);
    }
    if (r.process == 0) {
        alarm(60);
        outcome o = run_seed(seed, TRACE_NONE);
        if (__gcov_dump != NULL) {
            __gcov_dump();
        }
        _exit(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o ? 0 : 2);
    }
    close(ends[1]);
    return r;
}

/* Waits for the end of a seed; a crash is a failure. */
static outcome finish_seed(const run *r) {
    outcome o = {.failure = ""};
    int status;
    ssize_t got = read(r->answer, &o, sizeof o);
    close(r->answer);
    waitpid(r->process, &status, 0);
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

/* The totals over many seeds, and those of them that run. */
typedef struct total {
    double began, simulated;
    double *ratios; /* simulated over CPU time */
    uint64_t seeds, room, faults, cuts;
    int failed;
    run runs[JOBS_MOST];
    int running, jobs; /* jobs: most that run at a time */
} total;

static void add_outcome(total *t, uint64_t seed, const outcome *o) {
    if (o->passed_over) {
        return;
    }
    if (o->failure[0] != '\0') {
        t->failed++;
        printf("trireme-sim --seed %llu%s: %s\n", (unsigned long long)seed,
               job.memory ? " --memory" : "", o->failure);
        fflush(stdout);
    }
    if (t->seeds == t->room) {
        t->room = 2 * t->room + 1024;
        t->ratios = realloc(t->ratios, t->room * sizeof *t->ratios);
    }
    t->ratios[t->seeds++] = o->cpu > 0 ? o->simulated / o->cpu : 0;
    t->simulated += o->simulated;
    t->faults += (uint64_t)o->faults;
    t->cuts += (uint64_t)o->cuts;
}

/* Waits until at most `most` seeds run. */
static void finish_seeds(total *t, int most) {
    while (t->running > most) {
        struct pollfd polls[JOBS_MOST];
        for (int i = 0; i < t->running; i++) {
            polls[i] = (struct pollfd){.fd = t->runs[i].answer, .events = POLLIN};
        }
        poll(polls, (nfds_t)t->running, -1);
        for (int i = t->running - 1; i >= 0; i--) {
            if (polls[i].revents != 0) {
                run r = t->runs[i];
                t->runs[i] = t->runs[--t->running];
                outcome o = finish_seed(&r);
                add_outcome(t, r.seed, &o);
            }
        }
    }
}

static void add_seed(total *t, uint64_t seed) {
    t->runs[t->running++] = start_seed(seed);
    finish_seeds(t, t->jobs - 1);
}

static int end_total(total *t) {
    finish_seeds(t, 0);
    double wall = real_now(CLOCK_MONOTONIC) - t->began;
    qsort(t->ratios, t->seeds, sizeof *t->ratios, compare_doubles);
    printf(
        "%llu seeds, %d failed, %llu faults, %llu snapshots; %.0f s simulated in %.1f s; simulated "
        "over CPU time: median %.0f; %.0f seeds an hour\n",
        (unsigned long long)t->seeds, t->failed, (unsigned long long)t->faults,
        (unsigned long long)t->cuts, t->simulated, wall, t->seeds > 0 ? t->ratios[t->seeds / 2] : 0,
        3600 * (double)t->seeds / wall);
    free(t->ratios);
    return t->failed > 0;
}

/* Begins many seeds. What libcrypto and trmi_cpu make at their first use is made here once, and not
 * by each seed. */
static total begin_total(int jobs) {
    static const uint8_t key[32];
    uint8_t out[32];
    trmi_hmac_sha256(key, "", 0, out);
    trmi_cpu();
    return (total){.began = real_now(CLOCK_MONOTONIC), .jobs = jobs};
}

static int run_range(const char *range, double seconds, int failures_most, int jobs) {
    total t = begin_total(jobs);
    char *colon;
    uint64_t first = strtoull(range, &colon, 10),
             count = *colon == ':' ? strtoull(colon + 1, NULL, 10) : 1;
    for (uint64_t n = 0; n < count && t.failed < failures_most &&
                         (seconds == 0 || real_now(CLOCK_MONOTONIC) - t.began < seconds);
         n++) {
        add_seed(&t, first + n);
    }
    return end_total(&t);
}

static int run_list(const char *path, int jobs) {
    total t = begin_total(jobs);
    char line[512];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return 2;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] >= '0' && line[0] <= '9') {
            add_seed(&t, strtoull(line, NULL, 10));
        }
    }
    fclose(file);
    return end_total(&t);
}

static int run_one(uint64_t seed, bool trace) {
    outcome o = run_seed(seed, trace ? TRACE_PRINTED : TRACE_HASHED);
    printf(
        "seed %llu: %s; %.1f s simulated in %.3f s, %d faults, %d snapshots, %llu switches, trace "
        "%016llx\n",
        (unsigned long long)seed, o.failure[0] == '\0' ? "good" : o.failure, o.simulated, o.cpu,
        o.faults, o.cuts, (unsigned long long)o.switches, (unsigned long long)o.hash);
    return o.failure[0] != '\0';
}

int main(int argc, char **argv) {
    const char *range = NULL, *list = NULL;
    uint64_t seed = 1;
    bool trace = false;
    double seconds = 0;
    int failures_most = 10, jobs = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--trace") == 0) {
            trace = true;
            continue;
        }
        if (strcmp(argv[i], "--memory") == 0) {
            job.memory = true;
            continue;
        }
        if (value == NULL) {
            fprintf(stderr,
                    "usage: trireme-sim --seed N [--trace] | --seeds FIRST:COUNT [--seconds "
                    "S] [--failures N] | --list FILE; --jobs N, --without K, --memory, --only "
                    "servers|elastic|checkpoints\n");
            return 2;
        }
        seed = strcmp(argv[i], "--seed") == 0 ? strtoull(value, NULL, 10) : seed;
        range = strcmp(argv[i], "--seeds") == 0 ? value : range;
        list = strcmp(argv[i], "--list") == 0 ? value : list;
        seconds = strcmp(argv[i], "--seconds") == 0 ? atof(value) : seconds;
        failures_most = strcmp(argv[i], "--failures") == 0 ? atoi(value) : failures_most;
        jobs = strcmp(argv[i], "--jobs") == 0 ? atoi(value) : jobs;
        job.only = strcmp(argv[i], "--only") == 0 ? value[0] : job.only;
        job.without |= strcmp(argv[i], "--without") == 0 ? 1u << atoi(value) : 0;
        i++;
    }
    jobs = jobs > 0 ? jobs : (int)sysconf(_SC_NPROCESSORS_ONLN);
    jobs = jobs < JOBS_MOST ? jobs : JOBS_MOST;
    return list != NULL    ? run_list(list, jobs)
           : range != NULL ? run_range(range, seconds, failures_most, jobs)
                           : run_one(seed, trace);
}
