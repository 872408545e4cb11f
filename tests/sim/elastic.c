/* SPDX-License-Identifier: Apache-2.0 */
/* An elastic job in the simulator: ranks that die, stand still and are cut off, with the real rendezvous, side
 * channel and membership of src/comm/rendezvous.
 *
 *   rank:  meet -> step: a sum over the ranks -> ... -> the last step
 *                    | a rank is lost: the next epoch, the newest state, the same step again
 *
 * The communicator is simulated by the control channel's all-gather, because engines have threads that spin. A step adds
 * the numbers of its samples, which the ranks divide; so the sum of all steps does not depend on who lived when.
 *
 * Checked: all processes that are in an epoch have the same list of its members; a rank that ends well has the sum of
 * an undisturbed job; no process hangs; where one rank dies, or any number on one host, the others end well. */
#include "job.h"

#include "base/error.h"
#include "comm/rendezvous/elastic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EPOCHS_MAX = 64, SAMPLES = 60, LOST = 7 };

/* The state of a rank between steps. */
typedef struct state {
    int64_t step, sum;
} state;

static struct {
    int begun, ended, good;
    bool seen[EPOCHS_MAX];
    uint64_t list[EPOCHS_MAX]; /* digest of the members of an epoch */
} watch;

/* ---- the communicator ------------------------------------------------------------------------- */

trm_status __wrap_trm_comm_create(trm_bootstrap *bootstrap, const trm_comm_options *options,
                                  trm_comm **out, trm_error *err);
void __wrap_trm_comm_destroy(trm_comm *comm);

trm_status __wrap_trm_comm_create(trm_bootstrap *bootstrap, const trm_comm_options *options,
                                  trm_comm **out, trm_error *err) {
    (void)options;
    *out = NULL;
    TRMI_TRY(bootstrap->table->barrier(bootstrap, 60, err));
    *out = malloc(1);
    return TRM_OK;
}

void __wrap_trm_comm_destroy(trm_comm *comm) { free(comm); }

/* ---- a rank ----------------------------------------------------------------------------------- */

/* Compares the list of an epoch with that of the other processes that are in it. */
static void check_list(const trm_elastic *e) {
    uint64_t digest = 1469598103934665603u;
    for (int32_t i = 0; i < e->now.count; i++) {
        digest = (digest ^ e->now.list[i].id) * 1099511628211u;
    }
    int64_t epoch = e->now.epoch;
    if (epoch < 1 || epoch >= EPOCHS_MAX) {
        return;
    }
    if (watch.seen[epoch] && watch.list[epoch] != digest) {
        sim_fail("epoch %lld has two lists of members", (long long)epoch);
    }
    watch.seen[epoch] = true;
    watch.list[epoch] = digest;
}

/* Takes the newest state of the ranks of an epoch that begins. */
static trm_status share_state(trm_elastic *e, state *mine, trm_error *err) {
    state all[JOB_RANKS];
    TRMI_TRY(e->bootstrap->table->allgather(e->bootstrap, mine, sizeof *mine, all, 60, err));
    for (int32_t r = 0; r < e->bootstrap->size; r++) {
        *mine = all[r].step > mine->step ? all[r] : *mine;
    }
    return TRM_OK;
}

static int64_t sum_of_step(int64_t step) {
    int64_t sum = 0;
    for (int64_t s = 0; s < SAMPLES; s++) {
        sum += (step * SAMPLES + s) % 1009;
    }
    return sum;
}

/* One step: the ranks divide its samples. */
static trm_status make_step(trm_elastic *e, state *mine, trm_error *err) {
    int64_t part = 0, all[JOB_RANKS];
    for (int64_t s = e->bootstrap->rank; s < SAMPLES; s += e->bootstrap->size) {
        part += (mine->step * SAMPLES + s) % 1009;
    }
    usleep((useconds_t)(job.compute * (0.5 + sim_unit(DRAW_ORDER)) * 1e6));
    TRMI_TRY(e->bootstrap->table->allgather(e->bootstrap, &part, sizeof part, all, 60, err));
    for (int32_t r = 0; r < e->bootstrap->size; r++) {
        mine->sum += all[r];
    }
    mine->step++;
    return TRM_OK;
}

static trm_status train(trm_elastic *e, state *mine, trm_error *err) {
    trm_status status = TRM_OK;
    check_list(e);
    while (mine->step < job.batches) {
        status = status == TRM_OK ? make_step(e, mine, err) : status;
        if (trm_elastic_can_recover(status)) {
            sim_trace(sim.current->process, "step %d: %s", (int)mine->step, err->message);
            TRMI_TRY(trm_elastic_recover(e, err, err));
            check_list(e);
            sim_trace(sim.current->process, "epoch %d of %d ranks", (int)e->membership.epoch,
                      (int)e->membership.ranks);
            status = share_state(e, mine, err);
        }
        if (status != TRM_OK && !trm_elastic_can_recover(status)) {
            return status;
        }
    }
    return TRM_OK;
}

static int run_rank(void *argument) {
    int number = (int)(intptr_t)argument;
    char place[32], host[16];
    trm_error err = {0};
    trm_cluster *cluster;
    trm_elastic *e;
    state mine = {0};
    const sim_process *self = sim.current->process;
    snprintf(place, sizeof place, "10.0.0.%d:5000", JOB_FIRST_WORKER + 1);
    snprintf(host, sizeof host, "host%d", self->host);
    const trm_cluster_flags flags = {.rank = number, .size = job.workers, .rendezvous = place};
    const trm_elastic_options options = {.least = 1,
                                         .decision_seconds = 60,
                                         .join = {.timeout_seconds = 60,
                                                  .heartbeat_seconds = 0.5,
                                                  .stall_seconds = job.worker_timeout,
                                                  .host_name = host,
                                                  .insecure = true}};
    trm_status status = trm_cluster_create(&flags, &cluster, &err);
    status = status == TRM_OK ? trm_elastic_create(cluster, &options, &e, &err) : status;
    if (status == TRM_OK) { /* from here on the death of a rank does not end the job */
        watch.begun++;
        if (sim_random(DRAW_PLAN, 2) == 0) {
            sim_job_plan_death(sim.current->process);
        }
        status = train(e, &mine, &err);
    }
    if (status != TRM_OK) {
        sim_trace(self, "error %d: %s", (int)status, err.message);
        return LOST;
    }
    int64_t expected = 0;
    for (int64_t s = 0; s < job.batches; s++) {
        expected += sum_of_step(s);
    }
    if (mine.sum != expected) {
        sim_fail("rank %d has the sum %lld, %lld expected", number, (long long)mine.sum,
                 (long long)expected);
    }
    trm_elastic_destroy(e);
    return 0;
}

/* ---- the job ---------------------------------------------------------------------------------- */

/* Returns whether all ranks have met, and nothing disturbed them afterwards but one death, or deaths on one host, where
 * each is proven to the others. */
static bool is_little_disturbed(void) {
    const unsigned harmless = 1u << FAULT_DEATH | 1u << FAULT_CLOCK | 1u << FAULT_DISK;
    unsigned kinds = 0;
    for (int k = 0; k < FAULT_KINDS; k++) {
        kinds |= (unsigned)job.comes[k] << k;
    }
    return watch.begun == job.workers && (kinds & ~(job.without | harmless)) == 0 &&
           (job.kills == 0 || (job.kills == 1 && job.workers > 2) ||
            job.ranks_of_host >= job.workers);
}

static void rank_ended(sim_process *p, int code) {
    job.kills += code < 0;
    watch.good += code == 0;
    job.worker[(intptr_t)p->argument] = NULL;
    sim_job_plan_another_death(code);
    if (++watch.ended < job.workers) {
        return;
    }
    if (watch.good + job.kills < job.workers && is_little_disturbed()) {
        sim_fail("%d of %d ranks end well, %d were killed", watch.good, job.workers, job.kills);
    }
    sim.over = true;
}

void sim_elastic_start(void) {
    sim_trace(NULL, "elastic, %d ranks, %d to a host, %d steps", job.workers, job.ranks_of_host,
              job.batches);
    for (int r = 0; r < job.workers; r++) {
        char name[16];
        snprintf(name, sizeof name, "rank%d", r);
        job.worker[r] = sim_spawn(name, JOB_FIRST_WORKER + r / job.ranks_of_host, run_rank,
                                  (void *)(intptr_t)r, rank_ended);
    }
}
