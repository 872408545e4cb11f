/* SPDX-License-Identifier: Apache-2.0 */
/* An elastic job in the simulator: ranks that die, stand still, are cut off, leave and join, with
 * the real rendezvous, gate, doors, side channel and membership of src/comm/rendezvous.
 *
 *   rank:  meet -> step: a sum over the ranks -> ... -> the last step
 *                    | a rank is lost: the next epoch, the newest state, the same step again
 *                    | a rank wants to leave, a process waits to join: the next epoch after the
 *                    step
 *
 * Launchers start ranks again that have died; other processes come at random moments.
 *
 * The communicator is simulated by the control channel's all-gather, because engines have threads
 * that spin. A step adds the numbers of its samples, which the ranks divide; so the sum of all
 * steps does not depend on who lived when.
 *
 * Checked: all processes that are in an epoch have the same list of its members; a rank that ends
 * well or leaves has the sum of an undisturbed job; no process hangs; where one rank dies, or any
 * number on one host, the others end well, and processes that join do while the job runs. */
#include "saves.h"

#include "base/error.h"
#include "comm/rendezvous/elastic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTS_MAX = 256, HOLDERS_MAX = 32, SAMPLES = 60, LOST = 7 };

/* The state of a rank between steps. step -1: it has none. */
typedef struct state {
    int64_t step, sum;
    /* In a job that saves, as in the product (train/elastic_state.h): the newest step whose hooks,
     * which save checkpoints, have returned here, and on rank 0 as far as this rank knows; the
     * newest step that this rank has begun; whether it was rank 0 in that step. */
    int64_t hooked, told, reached;
    bool was_first;
} state;

/* The members of an epoch, and the processes that have this list. A job that all have left may
 * begin again, with another key. */
typedef struct epoch_list {
    uint64_t key, digest;
    int64_t epoch;
    int pids[HOLDERS_MAX], pid_count;
} epoch_list;

static struct {
    int begun, good, alive, left, failed;
    trm_elastic *elastic[JOB_PROCESSES]; /* of the processes that are in the job, by place */
    const state
        *states[JOB_PROCESSES];     /* of the processes in the job; a step of -1: it has no state */
    int64_t started[JOB_PROCESSES]; /* when the process began */
    int64_t gate_open; /* when a process of the job was last on the host of the rendezvous */
    /* of each process: whether others had the state of the job when it started, and not all of
     * them have died since. A process that was started again, or has come later, and finds no
     * state, or no job at the rendezvous, may end badly */
    bool has_peers[JOB_PROCESSES];
    /* more ranks wanted to leave than may: a real job stops then, so that processes which wait to
     * join end badly */
    bool stops;
    epoch_list lists[LISTS_MAX];
    int list_count;
} watch;

/* ---- the communicator ------------------------------------------------------------------------ */

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

/* ---- a rank ---------------------------------------------------------------------------------- */

/* Returns whether a process that has this list lives. */
static bool is_in_use(const epoch_list *list) {
    for (const sim_process *p = sim.processes; p != NULL; p = p->next) {
        for (int i = 0; i < list->pid_count && !p->dead; i++) {
            if (p->pid == list->pids[i]) {
                return true;
            }
        }
    }
    return false;
}

/* Notes that this process has a list. */
static void add_holder(epoch_list *list) {
    if (list->pid_count < HOLDERS_MAX) {
        list->pids[list->pid_count++] = sim.current->process->pid;
    }
}

/* Compares the list of an epoch with that of the other processes that have it. Where all that had
 * another list have died, a process that stood still decides without them, because their deaths
 * are proven. */
static void check_list(const trm_elastic *e, const trmi_members *list) {
    epoch_list mine = {.digest = 1469598103934665603u, .epoch = list->epoch};
    memcpy(&mine.key, e->key, sizeof mine.key);
    for (int32_t i = 0; i < list->count; i++) {
        mine.digest = (mine.digest ^ list->list[i].id) * 1099511628211u;
    }
    for (int i = 0; i < watch.list_count; i++) {
        epoch_list *other = &watch.lists[i];
        if (other->key == mine.key && other->epoch == mine.epoch) {
            if (other->digest != mine.digest && is_in_use(other)) {
                sim_fail("epoch %lld has two lists of members", (long long)mine.epoch);
            }
            if (other->digest != mine.digest) {
                *other = mine;
            }
            add_holder(other);
            return;
        }
    }
    if (watch.list_count < LISTS_MAX) {
        add_holder(&mine);
        watch.lists[watch.list_count++] = mine;
    }
}

/* Returns whether a process runs on the host of the rendezvous. While it is in the job, another one
 * finds the job there. */
static bool is_at_rendezvous(int place) { return place % job.workers < job.ranks_of_host; }

/* Notes that a process is no longer in the job. */
static void forget_rank(int place) {
    if (watch.elastic[place] != NULL && is_at_rendezvous(place)) {
        watch.gate_open = sim.now;
    }
    watch.elastic[place] = NULL;
}

/* Returns whether a process that has not found the job could: a process of the job has been on the
 * host of the rendezvous since it began. */
static bool could_find(int place) {
    bool open = watch.gate_open >= watch.started[place];
    for (int i = 0; i < JOB_PROCESSES; i++) {
        open = open || (watch.elastic[i] != NULL && is_at_rendezvous(i));
    }
    return open;
}

/* Ranks that leave are out with the list that says so: no rank gets a state from them any more. */
static void note_left(const trmi_members *list) {
    for (int i = 0; i < JOB_PROCESSES; i++) {
        if (watch.elastic[i] != NULL && trmi_members_has_left(list, watch.elastic[i]->me.id)) {
            forget_rank(i);
        }
    }
}

trm_status __wrap_trmi_elastic_adopt(trm_elastic *e, const trmi_members *list, trm_error *err);
trm_status __real_trmi_elastic_adopt(trm_elastic *e, const trmi_members *list, trm_error *err);

static void connection_breaks(void *a, uint64_t b) {
    (void)a, (void)b;
    sim_reset_connection();
}

/* A decision is there: a process may die before it has told the others, and what a process that
 * leaves has sent may be lost. */
trm_status __wrap_trmi_elastic_adopt(trm_elastic *e, const trmi_members *list, trm_error *err) {
    if (list->epoch > e->now.epoch) {
        check_list(e, list);
        note_left(list);
        sim_job_plan_death_in(sim.current->process, 8, 6);
        if (e->me.leaves != 0 && (job.without >> FAULT_RESET & 1) == 0 &&
            sim_random(DRAW_AIMS, 2) == 0) {
            sim_at(sim.now + (int64_t)(0.001 * sim_unit(DRAW_AIMS) * 1e9), connection_breaks, NULL,
                   0);
        }
    }
    return __real_trmi_elastic_adopt(e, list, err);
}

/* Takes the newest state of the ranks of an epoch that begins. *hooks_due: rank 0, which saves, has
 * not told that it has seen to the checkpoint, or a rank that made the step has not. */
static trm_status share_state(trm_elastic *e, state *mine, bool *hooks_due, trm_error *err) {
    const size_t bytes = job.saves ? sizeof *mine : offsetof(state, hooked);
    state all[JOB_PROCESSES] = {{0}};
    uint8_t packed[sizeof all];
    bool told = false, missed = false;
    mine->told = mine->was_first ? mine->hooked : mine->told;
    TRMI_TRY(e->bootstrap->table->allgather(e->bootstrap, mine, bytes, packed, 60, err));
    for (int32_t r = 0; r < e->bootstrap->size; r++) {
        memcpy(&all[r], packed + (size_t)r * bytes, bytes);
        if (all[r].step > mine->step) {
            mine->step = all[r].step;
            mine->sum = all[r].sum;
        }
    }
    for (int32_t r = 0; r < e->bootstrap->size; r++) {
        told = told || all[r].told == mine->step;
        missed = missed || (all[r].reached >= mine->step && all[r].hooked != mine->step);
    }
    *hooks_due = mine->step > 0 && (!told || missed);
    mine->hooked = mine->told = mine->step - *hooks_due;
    return mine->step >= 0 ? TRM_OK : TRMI_FAIL(err, TRM_IO, "no rank that is left has the state");
}

int64_t sim_elastic_sum(int64_t step) {
    int64_t sum = 0;
    for (int64_t s = 0; s < step * SAMPLES; s++) {
        sum += s % 1009;
    }
    return sum;
}

/* What a rank brings to a step: the sum of its samples, and whether a process wants to leave or
 * join. */
typedef struct part {
    int64_t sum;
    int32_t leaves, wishes;
} part;

/* One step: the ranks divide its samples. *change: the ranks are to decide on the next epoch. */
static trm_status make_step(trm_elastic *e, state *mine, bool *change, trm_error *err) {
    part own = {.leaves = trmi_elastic_count_leavers(e, INT32_MAX),
                .wishes = trm_elastic_wants_change(e)},
         all[JOB_PROCESSES];
    mine->reached = mine->step + 1;
    mine->was_first = e->bootstrap->rank == 0;
    for (int64_t s = e->bootstrap->rank; s < SAMPLES; s += e->bootstrap->size) {
        own.sum += (mine->step * SAMPLES + s) % 1009;
    }
    const bool busy = job.busy > 0 && e->bootstrap->rank == job.busy;
    usleep((useconds_t)((busy ? 4 : job.compute) * (0.5 + sim_unit(DRAW_ORDER)) * 1e6));
    TRMI_TRY(e->bootstrap->table->allgather(e->bootstrap, &own, sizeof own, all, 60, err));
    int32_t leaves = 0, wishes = 0;
    for (int32_t r = 0; r < e->bootstrap->size; r++) {
        mine->sum += all[r].sum;
        leaves += all[r].leaves;
        wishes += all[r].wishes;
    }
    mine->step++;
    /* where too few ranks would stay, a real job stops; this one goes on */
    watch.stops = watch.stops || !trmi_elastic_may_lose(e, leaves);
    *change = wishes > 0 && trmi_elastic_may_lose(e, leaves);
    return TRM_OK;
}

/* The hooks of a step: a checkpoint may be due. */
static trm_status call_hooks(sim_saver *saver, state *mine, trm_error *err) {
    TRMI_TRY(sim_saver_step(saver, mine->step, mine->sum, err));
    mine->hooked = mine->step;
    return TRM_OK;
}

/* Makes the next step, or ends the training after the last one, with the other ranks. *over: this
 * rank has ended it. */
static trm_status go_on(trm_elastic *e, sim_saver *saver, state *mine, bool *change, bool *over,
                        trm_error *err) {
    if (mine->step == job.batches) {
        TRMI_TRY(saver != NULL ? sim_saver_end(saver, err) : TRM_OK);
        *over = true;
        return e->bootstrap->table->barrier(e->bootstrap, 60, err);
    }
    TRMI_TRY(make_step(e, mine, change, err));
    return saver != NULL ? call_hooks(saver, mine, err) : TRM_OK;
}

/* The ranks have changed: takes the newest state, and does again what a failure has interrupted. */
static trm_status begin_epoch(trm_elastic *e, sim_saver *saver, state *mine, trm_error *err) {
    bool hooks_due = false;
    TRMI_TRY(share_state(e, mine, &hooks_due, err));
    if (saver == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(sim_saver_begin(saver, mine->step, mine->sum, true, err));
    return hooks_due ? call_hooks(saver, mine, err) : TRM_OK;
}

/* Trains to the last step. END: this rank has left. */
static trm_status train_rank(trm_elastic *e, sim_saver *saver, state *mine, trm_error *err) {
    bool change = e->membership.epoch == 0; /* it has come to a job that runs */
    bool over = false;
    trm_status status = TRM_OK;
    if (saver != NULL && !change) {
        status = sim_saver_begin(saver, mine->step, mine->sum, false, err);
    }
    while (!over) {
        status = status == TRM_OK && !change ? go_on(e, saver, mine, &change, &over, err) : status;
        if (trm_elastic_can_recover(status) || (status == TRM_OK && change)) {
            sim_trace(sim.current->process, "step %d: %s", (int)mine->step,
                      status == TRM_OK ? "a change" : err->message);
            status = trm_elastic_recover(e, status == TRM_OK ? NULL : err, err);
            if (status != TRM_OK) { /* a rank that has ended the training needs no others */
                return over ? TRM_OK : status;
            }
            over = false;
            sim_trace(sim.current->process, "epoch %d of %d ranks", (int)e->membership.epoch,
                      (int)e->membership.ranks);
            change = false;
            status = begin_epoch(e, saver, mine, err);
        }
        if (status != TRM_OK && !trm_elastic_can_recover(status)) {
            return status;
        }
    }
    return TRM_OK;
}

static int run_rank(void *argument) {
    const int place = (int)(intptr_t)argument, number = place % job.workers;
    char rendezvous[32], host[16];
    trm_error err = {0};
    trm_cluster *cluster;
    trm_elastic *e = NULL;
    sim_saver *saver = NULL;
    const sim_process *self = sim.current->process;
    snprintf(rendezvous, sizeof rendezvous, "10.0.0.%d:5000", JOB_FIRST_WORKER + 1);
    snprintf(host, sizeof host, "host%d", self->host);
    const trm_cluster_flags flags = {.rank = number, .size = job.workers, .rendezvous = rendezvous};
    const trm_elastic_options options = {.least = 1,
                                         .most = job.most,
                                         .decision_seconds = 60,
                                         .join = {.timeout_seconds = 60,
                                                  .heartbeat_seconds = 0.5,
                                                  .stall_seconds = job.worker_timeout,
                                                  .host_name = host,
                                                  .insecure = true}};
    trm_status status = trm_cluster_create(&flags, &cluster, &err);
    status = status == TRM_OK ? trm_elastic_create(cluster, &options, &e, &err) : status;
    state mine = {.step = -1};
    if (status == TRM_OK) { /* from here on the death of a rank does not end the job */
        watch.begun += job.restarts[place] == 0 && place < job.workers;
        watch.elastic[place] = e;
        watch.states[place] = &mine;
        mine.step = e->membership.epoch == 0 ? -1 : 0;
        if (sim_random(DRAW_PLAN, 2) == 0) {
            sim_job_plan_death(sim.current->process);
        }
        saver = job.saves ? sim_saver_create(e) : NULL;
        status = train_rank(e, saver, &mine, &err);
    }
    forget_rank(place);
    sim_saver_destroy(saver, status, &err);
    if (status != TRM_OK && status != TRM_END) {
        watch.has_peers[place] = watch.has_peers[place] && (e != NULL || could_find(place));
        sim_trace(self, "error %d: %s", (int)status, err.message);
        if (e != NULL && e->bootstrap != NULL) { /* the others end with it */
            e->bootstrap->table->poison(e->bootstrap, &err);
        }
        return status == TRM_NOSPACE ? JOB_NO_SPACE : LOST;
    }
    if (mine.step >= 0 && mine.sum != sim_elastic_sum(mine.step)) {
        sim_fail("rank %d has the sum %lld after step %lld, %lld expected", number,
                 (long long)mine.sum, (long long)mine.step, (long long)sim_elastic_sum(mine.step));
    }
    watch.left += status == TRM_END;
    trm_elastic_destroy(e);
    return 0;
}

/* ---- the job --------------------------------------------------------------------------------- */

static void rank_ended(sim_process *p, int code);

/* Returns whether a process in the job has its state. */
static bool has_state(void) {
    bool has = false;
    for (int i = 0; i < JOB_PROCESSES; i++) {
        has = has || (watch.elastic[i] != NULL && watch.states[i]->step >= 0);
    }
    return has;
}

/* Returns whether a process is one of the first ranks, in its first life. */
static bool is_first(int place) { return place < job.workers && job.restarts[place] == 0; }

/* Starts a rank: one of the first, one that has died, or one that joins. */
static void start_rank(void *a, uint64_t place) {
    (void)a;
    const int host = JOB_FIRST_WORKER + (int)place % job.workers / job.ranks_of_host;
    char name[16];
    if (!sim.hosts[host].up) { /* its launcher waits for the host */
        sim_at(sim.now + SIM_SECOND, start_rank, NULL, place);
        return;
    }
    snprintf(name, sizeof name, "rank%d", (int)place);
    watch.has_peers[place] = is_first((int)place) || has_state();
    watch.started[place] = sim.now;
    job.worker[place] = sim_spawn(name, host, run_rank, (void *)(intptr_t)place, rank_ended);
}

/* A process comes that was not among the first ranks. */
static void rank_comes(void *a, uint64_t place) {
    if (watch.begun == job.workers && watch.alive > 0) {
        watch.alive++;
        start_rank(a, place);
    }
}

/* A rank gets SIGTERM. */
static void rank_leaves(void *a, uint64_t place) {
    (void)a;
    if (watch.elastic[place] != NULL && sim.hosts[JOB_FIRST_WORKER].up) {
        sim_trace(job.worker[place], "gets SIGTERM");
        trm_elastic_request_leave(watch.elastic[place]);
    }
}

/* Returns whether all ranks have met, and nothing disturbed them afterwards but one death, or
 * deaths on one host, where each is proven to the others. */
static bool is_little_disturbed(void) {
    const unsigned harmless = 1u << FAULT_DEATH | 1u << FAULT_CLOCK | 1u << FAULT_DISK |
                              1u << FAULT_RESET | 1u << FAULT_SLOW;
    unsigned kinds = 0;
    for (int k = 0; k < FAULT_KINDS; k++) {
        kinds |= (unsigned)job.comes[k] << k;
    }
    return watch.begun == job.workers && (kinds & ~(job.without | harmless)) == 0 &&
           (job.kills == 0 || (job.kills == 1 && job.workers - watch.left > 2) ||
            job.ranks_of_host >= job.workers);
}

static void rank_ended(sim_process *p, int code) {
    const int place = (int)(intptr_t)p->argument;
    job.kills += code < 0;
    watch.good += code == 0;
    /* a process that comes too late finds no job; a full disk that the last checkpoint meets is
     * told at the end */
    watch.failed += code > 0 && code != JOB_NO_SPACE && (watch.good == 0 || is_first(place)) &&
                    watch.has_peers[place] && (is_first(place) || !watch.stops);
    job.worker[place] = NULL;
    forget_rank(place);
    for (int i = 0; i < JOB_PROCESSES && !has_state(); i++) {
        watch.has_peers[i] = watch.has_peers[i] && is_first(i);
    }
    sim_job_plan_another_death(code);
    if (code < 0 && job.restarts[place] < job.restarts_most && watch.begun == job.workers) {
        job.restarts[place]++;
        sim_at(sim.now + (int64_t)(2e9 * sim_unit(DRAW_PLAN)), start_rank, NULL, (uint64_t)place);
        return;
    }
    if (--watch.alive > 0) {
        return;
    }
    if (watch.failed > 0 && is_little_disturbed()) {
        sim_fail("%d processes end badly, %d well, %d were killed", watch.failed, watch.good,
                 job.kills);
    }
    if (job.saves) {
        sim_saves_ranks_ended();
    } else {
        sim.over = true;
    }
}

void sim_elastic_start(void) {
    job.restarts_most = (int)sim_random(DRAW_PLAN, 3);
    job.most = job.workers + (int)sim_random(DRAW_PLAN, 3);
    const int comers = sim_random(DRAW_PLAN, 2) == 0 ? 0 : job.most - job.workers;
    job.leavers = sim_random(DRAW_PLAN, 2) == 0 ? 0 : 1 + (int)sim_random(DRAW_PLAN, 3);
    sim_trace(NULL,
              "elastic, %d to %d ranks, %d to a host, %d steps, %d restarts, %d come, %d leave",
              job.workers, job.most, job.ranks_of_host, job.batches, job.restarts_most, comers,
              job.leavers);
    watch.alive = job.workers;
    if (job.saves) {
        sim_saves_start();
    }
    for (int r = 0; r < job.workers; r++) {
        start_rank(NULL, (uint64_t)r);
    }
    const double length = (double)job.batches * job.compute * 1e9; /* of the undisturbed job */
    for (int i = 0; i < comers; i++) {
        sim_at(sim.now + (int64_t)(length * sim_unit(DRAW_PLAN)), rank_comes, NULL,
               (uint64_t)(job.workers + i));
    }
    for (int i = 0; i < job.leavers; i++) {
        sim_at(sim.now + (int64_t)(length * sim_unit(DRAW_PLAN)), rank_leaves, NULL,
               sim_random(DRAW_PLAN, (uint64_t)job.workers + (uint64_t)comers));
    }
}
