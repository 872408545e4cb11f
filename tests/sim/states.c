/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that follow a state of the protocol (job.h, sim_aim). Some faults of a protocol show only
 * if several processes die in one order within milliseconds, which deaths at random moments do not
 * make. A share of the jobs of servers waits for the state in which such an order can begin: the
 * linker leads calls of the product's functions here (--wrap), and the processes die there.
 *
 *     steps     A worker dies between telling server 0 and the others that all servers have its
 *               push; with it another server dies, or server 0 a moment later. A server whose log
 *               marks a repeated push as done dies with all processes. A server dies soon after a
 *               snapshot that was taken while it had an undecided step.
 *     first     A server dies at the first push of a worker, while others have it and snapshots come.
 *     idle      A worker without samples dies, and so does its next life, or server 0 with it.
 *     silent    A worker pushes a batch and is never heard again; the other one, which died while it
 *               computed that batch, comes back so late that the first counts as silent when it
 *               pushes.
 *     full      A shard has no room to log a push of worker 0, which then takes a snapshot.
 *     late      A worker dies after it has pushed, and one link is slow: the servers hear of its next
 *               life before they have all of its push.
 *     again     Worker 1 dies with its last push, and server 1 with it. Its next life pushes the batch
 *               again, server 0 answers, and server 1 and worker 0 die: server 0 goes back by the
 *               step.
 *     hosts     Two workers have each a step from one of two servers only, and both servers' hosts lose
 *               their power.
 *     rest      A server has no room to log that a worker rests, and dies soon after.
 *     memory    The k-th next allocation fails, in whichever process it is (--memory only). In a third
 *               of these jobs no other faults come, and the allocations are chosen: those of the
 *               requests that give a snapshot up, or those of a server's answers. */
#include "job.h"

#include "base/memory.h"
#include "ps/client/client.h"
#include "ps/server/server.h"

#include <string.h>

enum { FAULTS_MOST = 12, SHARES = 48 };

static struct {
    int faults;   /* of this file so far */
    bool refuses; /* the push that is being told of: server 0 dies, the last one has no room */
    bool idle[JOB_WORKERS]; /* the worker's life before was ended here without samples */
    int life[JOB_WORKERS];  /* pid in which the worker was asked about last */
    int batch;              /* silent: the batch after which the worker is silent */
    bool died, back;        /* silent: the other worker has; it has joined again */
    enum { MEMORY_ANY, MEMORY_OF_RELEASE, MEMORY_OF_ANSWERS } memory; /* allocations that fail */
    int snapshot_fails; /* worker that gives a snapshot up for lack of memory, + 1; 0: none */
    int again;          /* again: deaths at worker 1's last push so far */
} states = {.batch = -1};

static double draw_unit(void) { return sim_unit(DRAW_STATES); }

/* Draws whether a fault comes now: one time in `share`. */
static bool draw_fault(sim_aim aim, uint64_t share) {
    const sim_fault kind = aim == AIM_MEMORY ? FAULT_MEMORY : FAULT_DEATH;
    if (job.aim != aim || sim.now >= job.faults_end || sim.current == NULL ||
        (job.without >> kind & 1) != 0 || states.faults >= FAULTS_MOST ||
        sim_random(DRAW_STATES, share) != 0) {
        return false;
    }
    states.faults++;
    job.faults++;
    sim_job_disturb_until(sim.now);
    return true;
}

/* Returns the number of the worker or server that the current process is; -1: another process. */
static int current_worker(void) {
    const int number = sim.current->process->host - JOB_FIRST_WORKER;
    return number >= 0 && number < job.workers ? number : -1;
}

static int current_server(void) {
    const int host = sim.current->process->host;
    return host < job.servers ? host : -1;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Aims that came later draw from a stream of their own. */
static sim_aim draw_later_aim(void) {
    /* numbers that no seed of seeds.txt has drawn */
    static const uint8_t aims[SHARES] = {[0] = AIM_AGAIN, [4] = AIM_HOSTS, [6] = AIM_REST};
    return (sim_aim)aims[sim_random(DRAW_LATER, SHARES)];
}

static sim_aim draw_aim(void) {
    /* numbers that no seed of seeds.txt has drawn */
    static const uint8_t aims[SHARES] = {
        [0] = AIM_STEPS,  [3] = AIM_STEPS, [5] = AIM_STEPS, [7] = AIM_STEPS,   [9] = AIM_FIRST,
        [11] = AIM_FIRST, [12] = AIM_IDLE, [13] = AIM_IDLE, [14] = AIM_SILENT, [15] = AIM_FULL,
        [16] = AIM_FULL,  [17] = AIM_LATE, [20] = AIM_LATE};
    const sim_aim aim = (sim_aim)aims[sim_random(DRAW_STATES, SHARES)];
    return aim == AIM_NONE ? draw_later_aim() : aim;
}

/* A job of one server, without leases: no push is on some servers only. The other worker computes
 * for longer than the silent one, and the time of silence is longer than that. */
static void shape_silent(void) {
    job.servers = 1;
    job.workers = 2;
    job.compute = 1.5 + draw_unit();
    job.pace[0] = 4;
    job.pace[1] = 1;
    job.batches_of[0] = job.batches_of[1] = job.batches;
    job.faults_end = sim_nanoseconds(300);
    states.batch = 1 + (int)sim_random(DRAW_STATES, 4);
}

/* Worker 1, which is slow, pushes its last batch when the other one has pushed that batch. */
static void shape_again(void) {
    job.servers = job.workers = 2;
    job.compute = 0.1 + 0.3 * draw_unit();
    job.pace[0] = 1;
    job.pace[1] = 4;
    job.batches_of[1] = 2 + (int)sim_random(DRAW_STATES, 8);
    job.batches_of[0] = job.batches_of[1] + (int)sim_random(DRAW_STATES, 3);
    job.faults_end = sim_nanoseconds(200);
}

/* Two sixths of the jobs in which allocations fail: workers take snapshots often, and nothing else
 * disturbs the job, because it would hide that a worker waits in vain. */
static void shape_memory(void) {
    const uint64_t share = sim_random(DRAW_MEMORY, 6);
    states.memory = share == 0 ? MEMORY_OF_RELEASE : share == 1 ? MEMORY_OF_ANSWERS : MEMORY_ANY;
    if (states.memory != MEMORY_ANY) {
        job.dies_at_pushes = job.dies_at_snapshots = false;
        job.snapshot_batches = 1 + (int)sim_random(DRAW_MEMORY, 4);
        job.servers = job.servers < 2 ? 2 : job.servers;
    }
}

void sim_states_draw(double *slowest) {
    /* a goodbye for which a server has no memory gives no samples back before their lease ends */
    job.aim = job.memory && !job.keeps_leases ? AIM_MEMORY : draw_aim();
    job.silent = -1;
    if (job.aim == AIM_MEMORY) {
        shape_memory();
    }
    if (job.aim == AIM_NONE || job.aim == AIM_MEMORY) {
        return;
    }
    job.chiefs = job.resizes = job.dies_at_pushes = job.dies_at_snapshots = job.spares_servers =
        job.keeps_leases = false;
    job.cached = job.blocks = 0;
    job.snapshot_batches = 1;
    job.servers = job.servers < 2 ? 2 : job.servers;
    job.workers = job.workers < 2 ? 2 : job.workers;
    job.lent = job.aim == AIM_IDLE || job.aim == AIM_REST || (job.aim == AIM_FIRST && job.lent);
    switch (job.aim) {
    case AIM_STEPS: job.mode = TRM_PS_SYNC; break;
    case AIM_FIRST: job.mode = job.lent ? TRM_PS_ASYNC : TRM_PS_BOUNDED; break;
    case AIM_IDLE:
    case AIM_REST:
        job.mode = TRM_PS_BOUNDED;
        job.keeps_leases = true;
        job.lease = 8 * JOB_BATCH;
        job.lease_timeout = 1e6;
        break;
    case AIM_SILENT:
        job.mode = TRM_PS_SYNC;
        shape_silent();
        break;
    case AIM_FULL: job.mode = TRM_PS_BOUNDED; break;
    case AIM_LATE: job.mode = TRM_PS_SYNC; break;
    case AIM_AGAIN:
        job.mode = TRM_PS_SYNC;
        shape_again();
        break;
    case AIM_HOSTS:
        job.mode = TRM_PS_SYNC;
        job.durable = true;
        break;
    default: break;
    }
    *slowest = 0;
    for (int w = 0; w < job.workers; w++) {
        *slowest = *slowest > job.pace[w] * job.compute ? *slowest : job.pace[w] * job.compute;
    }
    job.worker_timeout = 5 + 2 * *slowest + 25 * draw_unit();
    job.worker_timeout += !job.lent && job.aim != AIM_SILENT ? 1000 : 0;
    job.patience =
        900 + 2 * *slowest * (job.lent ? job.epochs * job.samples / JOB_BATCH : job.batches);
}

static bool reads_snapshot(void) {
    for (const sim_process *p = sim.processes; p != NULL; p = p->next) {
        if (p->reads_snapshot && !p->dead) {
            return true;
        }
    }
    return false;
}

static void allocation_fails(void *a, uint64_t number) {
    (void)a;
    if ((job.without >> FAULT_MEMORY & 1) == 0 && !reads_snapshot()) {
        sim_trace(NULL, "fault: allocation %llu from here on fails", (unsigned long long)number);
        job.faults++;
        sim_job_disturb_until(sim.now);
        trmi_alloc_fail_after((int64_t)number);
    }
}

bool sim_states_plan_faults(void) {
    if (job.aim == AIM_NONE) {
        return true;
    }
    if (job.aim != AIM_MEMORY) { /* other faults would hide that a worker waits in vain */
        const bool others = job.aim == AIM_STEPS && sim_random(DRAW_STATES, 3) == 0;
        for (int k = 0; k < FAULT_KINDS; k++) {
            job.comes[k] = job.comes[k] && others;
        }
        return others;
    }
    if (states.memory != MEMORY_ANY) {
        memset(job.comes, 0, sizeof job.comes);
        job.comes[FAULT_MEMORY] = true;
        return false;
    }
    job.comes[FAULT_MEMORY] = true;
    for (uint64_t i = 0, most = 1 + sim_random(DRAW_STATES, 24); i < most; i++) {
        sim_at(SIM_SECOND + (int64_t)(draw_unit() * (double)(job.faults_end - SIM_SECOND)),
               allocation_fails, NULL, 1 + sim_random(DRAW_STATES, 40));
    }
    return true;
}

/* The request that a worker sends next finds no memory: HOLD, when other servers hold already, and
 * then each RELEASE, with which the worker gives the snapshot up. */
void sim_states_order(int server, int64_t order) {
    const int worker = sim.current == NULL ? -1 : current_worker();
    if (worker < 0 || states.memory != MEMORY_OF_RELEASE) {
        return;
    }
    const bool holds = order == TRMI_ORDER_HOLD && server > 0 && draw_fault(AIM_MEMORY, 4);
    if (holds || (order == TRMI_ORDER_RELEASE && states.snapshot_fails == worker + 1)) {
        sim_trace(sim.current->process, "fault: has no memory for a request to server %d", server);
        trmi_alloc_fail_after(1);
    }
    if (holds) {
        states.snapshot_fails = worker + 1;
    } else if (order != TRMI_ORDER_RELEASE && states.snapshot_fails == worker + 1) {
        states.snapshot_fails = 0;
    }
}

void __wrap_trmi_request_answer(trmi_request *request);
void __real_trmi_request_answer(trmi_request *request);

/* A server has no memory for an answer. Most answers are written where an earlier one was. */
void __wrap_trmi_request_answer(trmi_request *request) {
    const bool fails = states.memory == MEMORY_OF_ANSWERS && sim.current != NULL &&
                       current_server() >= 0 && draw_fault(AIM_MEMORY, 4);
    if (fails) {
        sim_trace(sim.current->process, "fault: has no memory for a new answer");
        trmi_alloc_fail_after(1);
    }
    __real_trmi_request_answer(request);
    if (fails) {
        trmi_alloc_fail_after(0);
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef enum fate {
    WORKER_DIES,
    WORKER_AND_OTHER_SERVER_DIE,
    WORKER_AND_SERVER_0_DIE,
    PUSH_IS_REFUSED, /* by the last server, while server 0 has lost it, and the worker has died */
    FATES
} fate;

static void disk_has_room(void *a, uint64_t host) {
    (void)a;
    sim.hosts[host].disk_full = false;
    sim_job_disturb_until(sim.now);
    sim_trace(NULL, "the disk of host %d has room", (int)host);
}

/* The worker dies, and may come back long after the servers. */
static void end_worker(int worker) {
    if (sim_random(DRAW_STATES, 2) == 0) {
        job.waits_until[worker] = sim.now + sim_nanoseconds(1 + 5 * draw_unit());
        sim_job_disturb_until(job.waits_until[worker]);
    }
    sim_kill(sim.current->process);
}

/* Worker 1 has told server 0 that all servers have its push, and tells server 1 next. If the push
 * is its last one, server 1 dies with what it has in its memory: the first time with the worker,
 * the second time with the other worker, so that server 0, which answers the push, goes back. */
static void end_again(void) {
    if (job.started[1] < job.batches_of[1] || states.again == 2 || !draw_fault(AIM_AGAIN, 1)) {
        return;
    }
    sim_trace(sim.current->process, "fault: server 1 dies at its last push, time %d",
              ++states.again);
    sim_kill(job.server[1]);
    sim_kill(states.again == 1 ? sim.current->process : job.worker[0]);
}

trm_status __wrap_trmi_client_send_order(trm_ps_client *client, trmi_server_connection *peer,
                                         const trmi_ps_note *note, const void *trailer,
                                         size_t trailer_bytes, double deadline);
trm_status __real_trmi_client_send_order(trm_ps_client *client, trmi_server_connection *peer,
                                         const trmi_ps_note *note, const void *trailer,
                                         size_t trailer_bytes, double deadline);

/* A worker tells the servers, one after the other, that all have its push (PUSHED). */
trm_status __wrap_trmi_client_send_order(trm_ps_client *client, trmi_server_connection *peer,
                                         const trmi_ps_note *note, const void *trailer,
                                         size_t trailer_bytes, double deadline) {
    const int worker = note->value[0] == TRMI_ORDER_PUSHED ? current_worker() : -1;
    const int last = job.servers - 1;
    fate how = FATES;
    if (worker >= 0 && peer->number == 0) {
        states.refuses = false;
        how = draw_fault(AIM_STEPS, 6) ? (fate)sim_random(DRAW_STATES, FATES) : FATES;
    }
    if (how == PUSH_IS_REFUSED) {
        sim_trace(sim.current->process, "fault: its push is lost and refused");
        states.refuses = true;
        sim_kill(job.server[0]);
        sim.hosts[last].disk_full = true;
        sim_at(sim.now + sim_nanoseconds(0.03 + 0.05 * draw_unit()), disk_has_room, NULL,
               (uint64_t)last);
    }
    trm_status status =
        __real_trmi_client_send_order(client, peer, note, trailer, trailer_bytes, deadline);
    if (worker == 1 && peer->number == 0 && note->value[1] > 0) {
        end_again();
    }
    if (how == WORKER_AND_OTHER_SERVER_DIE) {
        sim_kill(job.server[1 + sim_random(DRAW_STATES, (uint64_t)last)]);
    } else if (how == WORKER_AND_SERVER_0_DIE) {
        sim_job_plan_server_death(0, 0.005 + 0.1 * draw_unit());
    }
    if (how < PUSH_IS_REFUSED) {
        sim_trace(sim.current->process, "fault: dies when one server can form its step");
        end_worker(worker);
    } else if (worker >= 0 && states.refuses && peer->number == last) {
        sim_trace(sim.current->process, "fault: dies when its push is refused");
        sim_kill(sim.current->process);
    }
    return status;
}

static void kill_process(void *process, uint64_t pid) {
    if (sim_find((int)pid) == process) {
        sim_kill(process);
    }
}

/* All servers and workers die within milliseconds. */
static void end_all(void) {
    sim_trace(sim.current->process, "fault: all processes die");
    for (int i = 0; i < job.servers + job.workers; i++) {
        sim_process *p = i < job.servers ? job.server[i] : job.worker[i - job.servers];
        if (p != NULL && !p->dead && !job.checking) {
            sim_at(sim.now + sim_nanoseconds(0.002 * draw_unit()), kill_process, p,
                   (uint64_t)p->pid);
        }
    }
}

trm_status __wrap_trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err);
trm_status __real_trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err);

/* A push that repeats one of a step is marked as done in the log. */
trm_status __wrap_trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    const bool full = current_server() >= 0 && shard->log.fd >= 0 && push->id_count == 1 &&
                      push->ids[0].worker == 0 && job.kills == 0 && draw_fault(AIM_FULL, 6);
    if (full) {
        sim_trace(sim.current->process, "fault: has no room to log a push of worker 0");
        sim.hosts[current_server()].disk_full = true;
    }
    trm_status status = __real_trmi_shard_log_push(shard, push, err);
    const int server = current_server();
    if (full) {
        sim.hosts[server].disk_full = false;
    }
    if (status != TRM_OK && states.refuses && server == job.servers - 1) {
        disk_has_room(NULL, (uint64_t)server); /* so that the worker can join again */
    }
    if (shard->log.fd >= 0 && push->marks != NULL &&
        (push->marks[0].flags & TRMI_MARK_FILLS) != 0 && draw_fault(AIM_STEPS, 2)) {
        end_all();
    }
    return status;
}

trm_status __wrap_trmi_shard_log_open(trmi_shard *shard, const trmi_os *os, const char *path,
                                      bool sync, trm_error *err);
trm_status __real_trmi_shard_log_open(trmi_shard *shard, const trmi_os *os, const char *path,
                                      bool sync, trm_error *err);

/* A snapshot begins a new log, while the last step of the log before is undecided. */
trm_status __wrap_trmi_shard_log_open(trmi_shard *shard, const trmi_os *os, const char *path,
                                      bool sync, trm_error *err) {
    const bool undecided = shard->log.fd >= 0 && shard->held_count > 0;
    trm_status status = __real_trmi_shard_log_open(shard, os, path, sync, err);
    if (undecided && current_server() >= 0 && draw_fault(AIM_STEPS, 2)) {
        sim_trace(sim.current->process, "fault: dies after a snapshot with an undecided step");
        sim_job_plan_server_death(current_server(), 0.01 + draw_unit());
    }
    return status;
}

/* ---- first pushes ---------------------------------------------------------------------------- */

void __wrap_trmi_front_push(trm_ps_server *server, trmi_request *request);
void __real_trmi_front_push(trm_ps_server *server, trmi_request *request);

void __wrap_trmi_front_push(trm_ps_server *server, trmi_request *request) {
    if (trmi_front_find(server, request->header.worker) == NULL && draw_fault(AIM_FIRST, 2)) {
        sim_trace(sim.current->process, "fault: dies at the first push of worker %u",
                  request->header.worker);
        sim_kill(sim.current->process);
    }
    __real_trmi_front_push(server, request);
}

/* ---- workers without samples, silent workers ------------------------------------------------- */

void sim_states_idle(int worker) {
    const int pid = sim.current->process->pid;
    if (states.life[worker] == pid) {
        return; /* it was asked before */
    }
    states.life[worker] = pid;
    if (!draw_fault(AIM_IDLE, 2)) {
        states.idle[worker] = false;
    } else if (states.idle[worker]) {
        sim_trace(sim.current->process, "fault: server 0 dies while two lives had no samples");
        states.idle[worker] = false;
        sim_job_plan_server_death(0, 0.05 + 0.3 * draw_unit());
    } else {
        sim_trace(sim.current->process, "fault: dies without samples");
        states.idle[worker] = true;
        sim_kill(sim.current->process);
    }
}

/* The other worker comes back just before it would count as silent, too. */
void sim_states_joined(int worker) {
    const int64_t latest = job.waits_until[0] + sim_nanoseconds(0.15);
    if (worker == 0 && states.died && job.aim == AIM_SILENT && !states.back) {
        states.back = true;
        if (sim.now > latest) { /* it counts as silent: its batches are lost by design */
            sim_trace(sim.current->process, "comes back too late");
            sim.over = true;
        }
    }
}

void sim_states_computed(int worker, int64_t asked) {
    if (worker == 0 && job.started[0] == states.batch && !states.died &&
        draw_fault(AIM_SILENT, 1)) {
        states.died = true;
        job.waits_until[0] = asked + sim_nanoseconds(job.worker_timeout - 0.3 - 0.4 * draw_unit());
        sim_trace(sim.current->process, "fault: dies before it pushes");
        sim_kill(sim.current->process);
    }
}

trm_status __wrap_trmi_server_away_set(trm_ps_server *server, trmi_worker *worker, bool away,
                                       trm_error *err);
trm_status __real_trmi_server_away_set(trm_ps_server *server, trmi_worker *worker, bool away,
                                       trm_error *err);

/* A worker rests, which the server is to log. */
trm_status __wrap_trmi_server_away_set(trm_ps_server *server, trmi_worker *worker, bool away,
                                       trm_error *err) {
    const bool full = away && !worker->left && draw_fault(AIM_REST, 2);
    const int number = full ? current_server() : -1;
    if (full) {
        sim_trace(sim.current->process, "fault: has no room to log that worker %u rests",
                  worker->worker);
        sim.hosts[number].disk_full = true;
        sim_job_plan_server_death(number, 0.3 * draw_unit());
    }
    trm_status status = __real_trmi_server_away_set(server, worker, away, err);
    if (full) {
        sim.hosts[number].disk_full = false;
    }
    return status;
}

/* ---- hosts that lose their power ------------------------------------------------------------- */

static void hosts_lose_power(void *a, uint64_t servers) {
    (void)a;
    sim_job_disturb_until(sim.now);
    sim_job_lose_power((int)(servers / JOB_SERVERS));
    sim_job_lose_power((int)(servers % JOB_SERVERS));
}

/* From here on one worker hears nothing of one server, and another one nothing of another server;
 * both servers lose their power when they have answered everything else. */
static void end_hosts(void) {
    const int last = job.servers - 1, one = (int)sim_random(DRAW_STATES, (uint64_t)last);
    const int64_t end = sim.now + sim_nanoseconds(0.5 + 4 * job.compute * draw_unit());
    sim_trace(sim.current->process, "fault: servers %d and %d lose their power in %.3f s", one,
              last, (double)(end - sim.now) * 1e-9);
    sim.blocked_until[one][JOB_FIRST_WORKER] = end;
    sim.blocked_until[last][JOB_FIRST_WORKER + 1] = end;
    sim_job_disturb_until(end);
    sim_at(end, hosts_lose_power, NULL, (uint64_t)(one * JOB_SERVERS + last));
}

/* ---- late pushes ----------------------------------------------------------------------------- */

/* What the worker has sent to one server arrives later than the end of its connections to the
 * others. */
static void end_late(int worker) {
    const int host = JOB_FIRST_WORKER + worker;
    const int server = (int)sim_random(DRAW_STATES, (uint64_t)job.servers);
    sim.blocked_until[host][server] = sim.now + sim_nanoseconds(0.4 * draw_unit());
    sim_job_disturb_until(sim.blocked_until[host][server]);
    sim_trace(sim.current->process, "fault: dies while its push to server %d is under way", server);
    sim_kill(sim.current->process);
}

void sim_states_pushed(int worker) {
    if (draw_fault(AIM_LATE, 3)) {
        end_late(worker);
    }
    if (draw_fault(AIM_HOSTS, 6)) {
        end_hosts();
    }
    if (worker == 1 && job.started[1] == states.batch + 1 && draw_fault(AIM_SILENT, 1)) {
        job.silent = 1;
        sim_trace(sim.current->process, "fault: is silent from here on");
        sim_kill(sim.current->process);
    }
}
