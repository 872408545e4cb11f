/* SPDX-License-Identifier: Apache-2.0 */
/* A job of ranks that is not elastic, in the simulator: the real meeting at each kind of place
 * (host:port, unix:, file:), a scheduler that waits for the end, all-gathers over the control
 * channel, heartbeats, and the first cause of a failure.
 *
 *   rank:  meet -> step: a sum over the ranks -> ... -> the last step -> leave
 *                    | a rank is lost, or a program makes a mistake: all end with the cause
 *
 * Checked: without faults and mistakes all ranks end well, with the right sums; a mistake is told
 * to every rank, with its cause, and no rank takes a wrong sum; after a death the others end within
 * a time limit; the scheduler ends after rank 0; nothing hangs. */
#include "job.h"

#include "base/error.h"
#include "comm/cluster/cluster_claim.h"
#include "comm/rendezvous/side.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef enum place {
    PLACE_OPEN,      /* host:port without a token (insecure) */
    PLACE_TOKEN,     /* host:port and a token file */
    PLACE_PUBLISHED, /* host:port on one host: rank 0 leaves the token in a file */
    PLACE_FILE,
    PLACE_UNIX,
    PLACES
} place;

/* What one rank does wrong, or another process. */
typedef enum mistake {
    MISTAKE_NONE,
    MISTAKE_SIZE,   /* brings more bytes than the others */
    MISTAKE_LATE,   /* is later than the others wait */
    MISTAKE_CAUSE,  /* ends the job with a cause */
    MISTAKE_LEAVES, /* leaves before the last step */
    MISTAKE_RANKS,  /* was told of another number of ranks */
    MISTAKE_TABLE,  /* has another rank table */
    MISTAKE_KEY,    /* belongs to another job: it waits for its own */
    MISTAKE_NUMBER, /* another process has its number, too */
    MISTAKE_TOKEN,  /* has another token */
    MISTAKES,
    MISTAKE_AWAY /* the host of rank 0 has no power, so that nothing answers at its address */
} mistake;

enum { BAD = 7, STEP_BYTES = 16, start_seconds = 3 };
/* longest wait for the others; of a step, where a rank is late; from the end of a rank that dies or
 * leaves to the end of all */
static const double meet_seconds = 40, late_seconds = 5, end_seconds = 60;
static const char cause_text[] = "rank ends the job";

static struct {
    place place;
    mistake mistake;
    int wrong, at; /* the rank that makes the mistake, and its step */
    bool watched, unnumbered;
} plan;

static struct {
    int alive, good, told; /* told: ranks that ended with the cause of the mistake */
    int met;
    bool watcher_runs;
    int64_t first_end; /* of a rank that the others wait for */
} watch;

static uint64_t draw_below(uint64_t below) { return sim_random(DRAW_MEETS, below); }

/* A rank has died, or has left before the last step: the others end soon. */
static void note_end(void) { watch.first_end = watch.first_end == 0 ? sim.now : watch.first_end; }

/* A third of the jobs without a mistake: the host of rank 0 has no power, or a rank other than 0
 * leaves; no faults come, which would hide a wait without an end. */
static void draw_later_mistake(void) {
    const bool away = plan.place < PLACE_PUBLISHED && job.workers > job.ranks_of_host &&
                      sim_random(DRAW_LATER, 2) == 0;
    plan.mistake = away ? MISTAKE_AWAY : MISTAKE_LEAVES;
    plan.wrong = away ? 0 : 1 + (int)sim_random(DRAW_LATER, (uint64_t)job.workers - 1);
    plan.watched = plan.watched && !away;
    job.quiet = true;
}

void sim_meet_draw(void) {
    plan.place = (place)draw_below(PLACES);
    plan.mistake = (mistake)(draw_below(2) == 0 ? draw_below(MISTAKES) : MISTAKE_NONE);
    plan.watched = draw_below(2) == 0;
    plan.unnumbered = plan.mistake < MISTAKE_NUMBER && draw_below(3) == 0;
    job.batches = 2 + (int)draw_below(12);
    if (plan.place >= PLACE_PUBLISHED) {
        job.ranks_of_host = JOB_RANKS;
    }
    plan.wrong = (int)draw_below((uint64_t)job.workers);
    if (plan.mistake >= MISTAKE_RANKS && plan.wrong == 0) {
        plan.wrong = 1;
    }
    plan.at = (int)draw_below((uint64_t)job.batches);
    job.quiet = plan.mistake != MISTAKE_NONE && draw_below(2) == 0;
    if (plan.mistake == MISTAKE_NONE && sim_random(DRAW_LATER, 3) == 0) {
        draw_later_mistake();
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static bool makes_mistake(int rank, int64_t step, mistake what) {
    return plan.mistake == what && rank == plan.wrong && step == plan.at;
}

/* One step: each rank brings its number and the step; all get those of all. */
static trm_status make_step(trm_bootstrap *b, int64_t step, trm_error *err) {
    const size_t bytes = STEP_BYTES + (makes_mistake(b->rank, step, MISTAKE_SIZE) ? 8 : 0);
    int64_t own[3] = {b->rank, step, 0}, all[3 * (JOB_RANKS + 1)];
    if (makes_mistake(b->rank, step, MISTAKE_LATE)) {
        usleep((useconds_t)(1e6 * (2 * late_seconds + 4 * job.compute)));
    }
    if (makes_mistake(b->rank, step, MISTAKE_CAUSE)) {
        TRMI_FAIL(err, TRM_CORRUPT, "%s", cause_text);
        return TRM_CORRUPT;
    }
    usleep((useconds_t)(job.compute * (0.5 + sim_unit(DRAW_ORDER)) * 1e6));
    const double patience = plan.mistake == MISTAKE_LATE ? late_seconds + 3 * job.compute : 300;
    TRMI_TRY(b->table->allgather(b, own, bytes, all, patience, err));
    for (int r = 0; r < b->size; r++) {
        if (plan.mistake != MISTAKE_SIZE && (all[2 * r] != r || all[2 * r + 1] != step)) {
            sim_fail("rank %d gets %lld, %lld of rank %d in step %lld", b->rank,
                     (long long)all[2 * r], (long long)all[2 * r + 1], r, (long long)step);
        }
    }
    return b->table->check(b, err);
}

/* Makes all steps. The error of a step is told to the others, as a communicator does. */
static trm_status make_steps(trm_bootstrap *b, trm_error *err) {
    uint8_t mac[32];
    b->table->sign(b, "step", 4, mac);
    for (int64_t step = 0; step < job.batches; step++) {
        if (makes_mistake(b->rank, step, MISTAKE_LEAVES)) {
            note_end();
            return TRM_OK;
        }
        trm_status status = make_step(b, step, err);
        if (status != TRM_OK) {
            b->table->poison(b, err);
            trm_error first;
            status = b->table->check(b, &first);
            *err = status != TRM_OK ? first : *err;
            return (trm_status)err->status;
        }
    }
    return b->table->barrier(b, 300, err);
}

static void place_text(char out[32]) {
    static const char *const paths[] = {
        [PLACE_FILE] = "file:/tmp/meet", [PLACE_UNIX] = "unix:/tmp/meet"};
    snprintf(out, 32, "10.0.0.%d:5000", JOB_FIRST_WORKER + 1);
    if (plan.place >= PLACE_FILE) {
        snprintf(out, 32, "%s", paths[plan.place]);
    }
}

/* Fills in what a process brings to the meeting. */
static trm_status fill_join(int number, trm_cluster **cluster, trmi_join *join, trm_error *err) {
    char rendezvous[32], host[16];
    place_text(rendezvous);
    snprintf(host, sizeof host, "host%d", sim.current->process->host);
    const trm_cluster_flags flags = {
        .rank = number < 0 ? 0 : number, .size = job.workers, .rendezvous = rendezvous};
    const trm_join_options options = {.timeout_seconds = meet_seconds,
                                      .heartbeat_seconds = 0.5,
                                      .stall_seconds = job.worker_timeout,
                                      .host_name = host,
                                      .insecure = plan.place == PLACE_OPEN};
    TRMI_TRY(trm_cluster_create(&flags, cluster, err));
    TRMI_TRY(trmi_side_prepare(*cluster, &options, join, err));
    join->options.host_name = NULL; /* the name has been taken */
    join->watched = plan.watched;
    join->has_token = plan.place == PLACE_TOKEN;
    memset(join->token, 5, sizeof join->token);
    if (number < 0) {
        (*cluster)->info.role = TRM_ROLE_SCHEDULER;
    } else if (plan.unnumbered) {
        (*cluster)->first_is_root = true;
        join->hello.rank = -1;
    }
    return TRM_OK;
}

/* Makes the mistakes that show at the meeting. */
static void spoil_join(int number, trmi_join *join) {
    if (number != plan.wrong) {
        return;
    }
    switch (plan.mistake) {
    case MISTAKE_RANKS: join->hello.size++; break;
    case MISTAKE_TABLE: join->hello.digest[0] ^= 1; break;
    case MISTAKE_KEY: join->hello.key[0] ^= 1; break;
    case MISTAKE_TOKEN:
        join->token[0] ^= 1;
        join->has_token = true;
        break;
    default: break;
    }
}

static int run_rank(void *argument) {
    const int number = (int)(intptr_t)argument;
    trm_cluster *cluster;
    trm_bootstrap *b = NULL;
    trmi_join join;
    trm_error err = {0};
    trm_status status = fill_join(number, &cluster, &join, &err);
    if (status != TRM_OK) {
        sim_fail("rank %d: %s", number, err.message);
        return BAD;
    }
    spoil_join(number, &join);
    status = trmi_side_join(cluster, &join, &b, &err);
    trm_cluster_destroy(cluster);
    if (status == TRM_OK) {
        watch.met++;
        sim_trace(sim.current->process, "is rank %d of %d", b->rank, b->size);
        sim_job_plan_death(sim.current->process);
        status = make_steps(b, &err);
        trm_cluster_leave(b);
    }
    if (status != TRM_OK) {
        sim_trace(sim.current->process, "error %d: %s", (int)status, err.message);
        watch.told += strstr(err.message, cause_text) != NULL;
    }
    return status == TRM_OK ? 0 : BAD;
}

static int run_scheduler(void *argument) {
    trm_cluster *cluster;
    trm_bootstrap *b = NULL;
    trmi_join join;
    trm_error err = {0};
    (void)argument;
    trm_status status = fill_join(-1, &cluster, &join, &err);
    status = status == TRM_OK ? trmi_side_join(cluster, &join, &b, &err) : status;
    sim_trace(sim.current->process, "ends: %s", err.message);
    if (status != TRM_END && plan.mistake != MISTAKE_TOKEN) {
        sim_fail("the scheduler: %s", err.message);
    }
    return 0;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Returns whether no faults came but deaths and clocks that jump. */
static bool is_undisturbed(void) {
    unsigned kinds = 0;
    for (int k = 0; k < FAULT_KINDS; k++) {
        kinds |= (unsigned)job.comes[k] << k;
    }
    return (kinds & ~(job.without | 1u << FAULT_CLOCK | 1u << FAULT_DEATH)) == 0;
}

static void check_ends(void) {
    const bool goes_on = plan.mistake == MISTAKE_NONE || plan.mistake == MISTAKE_NUMBER;
    const bool disturbed = !is_undisturbed() || job.kills > 0;
    /* a rank that is to be late may be in time for others that faults delay */
    if (!goes_on && plan.mistake != MISTAKE_LEAVES && watch.good > 0 &&
        !(disturbed && plan.mistake == MISTAKE_LATE)) {
        sim_fail("%d ranks end well, although rank %d made a mistake", watch.good, plan.wrong);
    }
    if (disturbed) {
        return;
    }
    if (goes_on && watch.good < job.workers) {
        sim_fail("%d of %d ranks end well, although nothing disturbed them", watch.good,
                 job.workers);
    }
    if (plan.mistake == MISTAKE_CAUSE && watch.told < watch.met) {
        sim_fail("%d of %d ranks are told the cause", watch.told, watch.met);
    }
}

static void end_if_over(void) {
    if (watch.alive == 0 && !watch.watcher_runs) {
        check_ends();
        sim.over = true;
    }
}

static void rank_ended(sim_process *p, int code) {
    const int place = (int)(intptr_t)p->argument;
    watch.good += code == 0;
    if (code >= 0 && watch.first_end != 0 && is_undisturbed() &&
        sim.now > watch.first_end + (int64_t)(end_seconds * 1e9)) {
        sim_fail("rank %d ends %.1f s after another one, which it waited for", place,
                 (double)(sim.now - watch.first_end) * 1e-9);
    }
    if (code < 0) {
        job.kills++;
        note_end();
    }
    if (place < job.workers) {
        job.worker[place] = NULL;
    }
    watch.alive--;
    end_if_over();
}

static void scheduler_ended(sim_process *p, int code) {
    (void)p, (void)code;
    watch.watcher_runs = false;
    end_if_over();
}

static void start_rank(void *a, uint64_t number) {
    (void)a;
    const int host = JOB_FIRST_WORKER + (int)number % job.workers / job.ranks_of_host;
    char name[16];
    if (!sim.hosts[host].up) { /* its launcher waits for the host */
        sim_at(sim.now + SIM_SECOND, start_rank, NULL, number);
        return;
    }
    snprintf(name, sizeof name, "rank%d", (int)number);
    sim_process *p =
        sim_spawn(name, host, run_rank, (void *)(intptr_t)((int)number % job.workers), rank_ended);
    if ((int)number < job.workers) {
        job.worker[number] = p;
    }
}

void sim_meet_start(void) {
    sim_trace(NULL, "%d ranks, %d to a host, place %d, %d steps, mistake %d of rank %d at step %d",
              job.workers, job.ranks_of_host, (int)plan.place, job.batches, (int)plan.mistake,
              plan.wrong, plan.at);
    watch.alive = job.workers;
    int first = 0;
    if (plan.mistake == MISTAKE_AWAY) {
        sim.hosts[JOB_FIRST_WORKER].up = false;
        first = job.ranks_of_host;
        watch.alive -= first;
        watch.first_end = start_seconds * SIM_SECOND;
    }
    for (int r = first; r < job.workers; r++) {
        sim_at((int64_t)(start_seconds * 1e9 * sim_unit(DRAW_MEETS)), start_rank, NULL,
               (uint64_t)r);
    }
    if (plan.watched) {
        watch.watcher_runs = true;
        sim_spawn("scheduler", JOB_FIRST_WORKER, run_scheduler, NULL, scheduler_ended);
    }
    if (plan.mistake == MISTAKE_NUMBER) {
        watch.alive++;
        sim_at(SIM_SECOND, start_rank, NULL, (uint64_t)(job.workers + plan.wrong));
    }
}
