/* SPDX-License-Identifier: Apache-2.0 */
/* trireme-sim: runs the jobs of seeds in the simulator (sim.h). print_usage lists its
 * options. */
#include "job.h"

#include "base/cpu.h"
#include "base/hash/digest.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
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
    int faults, snapshots;
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
                 job.snapshots_made,
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
    uint64_t seeds, room, faults, snapshots;
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
    t->snapshots += (uint64_t)o->snapshots;
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
        (unsigned long long)t->snapshots, t->simulated, wall,
        t->seeds > 0 ? t->ratios[t->seeds / 2] : 0, 3600 * (double)t->seeds / wall);
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

static int run_range(uint64_t first, uint64_t count, double seconds, int failures_most, int jobs) {
    total t = begin_total(jobs);
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
        o.faults, o.snapshots, (unsigned long long)o.switches, (unsigned long long)o.hash);
    return o.failure[0] != '\0';
}

/* ---- the command line ------------------------------------------------------------------------ */

/* What the command line asks for. */
typedef struct request {
    uint64_t first, count; /* seeds */
    const char *list;      /* NULL: no file of seeds */
    bool one, trace;       /* one: the seed `first`, with the hash of its trace */
    double seconds;        /* 0: no limit */
    uint64_t failures_most, jobs;
} request;

static void print_usage(FILE *to) {
    fputs("usage: trireme-sim --seed N [--trace]       one seed\n"
          "       trireme-sim --seeds FIRST[:COUNT]    many; a line for each that fails, which "
          "replays it\n"
          "       trireme-sim --list FILE              the seeds that begin the lines of a file\n"
          "options: --jobs N        so many seeds at a time (1; 0: one for each core)\n"
          "         --seconds S     of --seeds: begins no more seeds after so long\n"
          "         --failures N    of --seeds: ends after N seeds that fail (10)\n"
          "         --without K     leaves a kind of faults out (docs/internals/simulation.md), "
          "also repeated\n"
          "         --memory        allocations fail in jobs of servers, too\n"
          "         --only servers|elastic|checkpoints   passes over seeds of other jobs\n",
          to);
}

/* Reads a whole number up to `most` that ends with `end`. Returns what follows; ends the program
 * if there is none. */
static const char *read_number(const char *option, const char *text, char end, uint64_t most,
                               uint64_t *out) {
    char *rest;
    errno = 0;
    *out = strtoull(text, &rest, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || *out > most ||
        (*rest != '\0' && *rest != end)) {
        fprintf(stderr, "trireme-sim: %s: %s: a whole number up to %llu is expected\n", option,
                text, (unsigned long long)most);
        exit(2);
    }
    return rest;
}

/* Reads an option with its value. Returns whether there is such an option. */
static bool read_option(request *r, const char *option, const char *value) {
    static const char *const jobs[] = {"servers", "elastic", "checkpoints"};
    uint64_t kind;
    if (strcmp(option, "--seed") == 0) {
        read_number(option, value, '\0', UINT64_MAX, &r->first);
        r->one = true;
    } else if (strcmp(option, "--seeds") == 0) {
        const char *rest = read_number(option, value, ':', UINT64_MAX, &r->first);
        r->count = 1;
        if (*rest == ':') {
            read_number(option, rest + 1, '\0', UINT64_MAX, &r->count);
        }
    } else if (strcmp(option, "--list") == 0) {
        r->list = value;
    } else if (strcmp(option, "--seconds") == 0) {
        char *rest;
        r->seconds = strtod(value, &rest);
        if (*rest != '\0' || !(r->seconds >= 0)) {
            fprintf(stderr, "trireme-sim: --seconds: %s: a number of seconds is expected\n", value);
            exit(2);
        }
    } else if (strcmp(option, "--failures") == 0) {
        read_number(option, value, '\0', INT_MAX, &r->failures_most);
    } else if (strcmp(option, "--jobs") == 0) {
        read_number(option, value, '\0', JOBS_MOST, &r->jobs);
    } else if (strcmp(option, "--without") == 0) {
        read_number(option, value, '\0', FAULT_KINDS - 1, &kind);
        job.without |= 1u << kind;
    } else if (strcmp(option, "--only") == 0) {
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            job.only = strcmp(value, jobs[i]) == 0 ? value[0] : job.only;
        }
        if (job.only == 0) {
            fprintf(stderr,
                    "trireme-sim: --only: %s: servers, elastic or checkpoints is expected\n",
                    value);
            exit(2);
        }
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv) {
    request r = {.failures_most = 10, .jobs = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0) {
            print_usage(stdout);
            return 0;
        }
        if (strcmp(argv[i], "--trace") == 0) {
            r.trace = true;
        } else if (strcmp(argv[i], "--memory") == 0) {
            job.memory = true;
        } else if (value != NULL && read_option(&r, argv[i], value)) {
            i++;
        } else {
            fprintf(stderr, "trireme-sim: %s: unknown, or without its value\n", argv[i]);
            print_usage(stderr);
            return 2;
        }
    }
    if (!r.one && r.count == 0 && r.list == NULL) {
        fputs("trireme-sim: no seeds are given\n", stderr);
        print_usage(stderr);
        return 2;
    }
    int jobs = r.jobs > 0 ? (int)r.jobs : (int)sysconf(_SC_NPROCESSORS_ONLN);
    jobs = jobs < JOBS_MOST ? jobs : JOBS_MOST;
    return r.list != NULL ? run_list(r.list, jobs)
           : r.one        ? run_one(r.first, r.trace)
                          : run_range(r.first, r.count, r.seconds, (int)r.failures_most, jobs);
}
