/* SPDX-License-Identifier: Apache-2.0 */
/* The job of a seed (job.h): its options, its supervisor, its faults. */
#include "saves.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

sim_job job;

/* Aims of a share of the jobs: orders of events that faults at random moments rarely make. A
 * worker leaves long before the others; a lease ends while its worker pauses, or never;
 * processes die in snapshots and pushes. */
static void draw_aims(double slowest) {
    bool uneven = sim_random(DRAW_PLAN, 3) == 0;
    for (int w = 0; w < JOB_WORKERS; w++) {
        job.batches_of[w] =
            uneven ? 1 + (int)sim_random(DRAW_PLAN, (uint64_t)job.batches) : job.batches;
    }
    uint64_t leases = sim_random(DRAW_PLAN, 4);
    job.keeps_leases = leases == 0;
    if (leases == 0) {
        job.lease_timeout = 1e6;
    } else if (leases == 1) {
        job.lease_timeout = 0.5 + 1.6 * slowest + sim_unit(DRAW_PLAN);
    }
    job.dies_at_snapshots = sim_random(DRAW_PLAN, 6) == 0;
    job.dies_at_pushes = sim_random(DRAW_PLAN, 6) == 0;
    job.spares_servers =
        !job.dies_at_snapshots && sim_random(DRAW_PLAN, job.dies_at_pushes ? 2 : 8) == 0;
    job.snapshot_batches =
        job.dies_at_snapshots ? 1 + (int)sim_random(DRAW_PLAN, 4) : job.snapshot_batches;
}

/* An aim that was added later. It draws from a stream of its own, so that the jobs without it
 * stay what they were: several batches come within a snapshot. */
static void draw_later_aim(void) {
    if (!job.elastic && sim_random(DRAW_AIMS, 12) == 0) {
        job.compute *= 0.01;
        job.snapshot_batches = 1 + (int)sim_random(DRAW_AIMS, 4);
    }
}

/* A share of the jobs of servers, in which no seed of seeds.txt is: one worker is the chief; hot
 * rows are kept, or gradients summed by blocks; other numbers of servers load the last snapshot. */
static void draw_chief(void) {
    job.chief = -1;
    job.chiefs = sim_random(DRAW_CHIEF, 18) / 7 == 1;
    if (!job.chiefs) {
        return;
    }
    job.snapshot_batches = 1 + (int)sim_random(DRAW_CHIEF, 8);
    job.resizes = sim_random(DRAW_CHIEF, 2) == 0;
    if (job.mode != TRM_PS_SYNC && sim_random(DRAW_CHIEF, 2) == 0) {
        job.cached = 4 << sim_random(DRAW_CHIEF, 4);
    }
    if (job.mode == TRM_PS_SYNC && !job.lent && sim_random(DRAW_CHIEF, 2) == 0) {
        job.blocks = 1 << sim_random(DRAW_CHIEF, 4);
        for (int w = 0; w < JOB_WORKERS; w++) { /* a step has the blocks of all workers */
            job.batches_of[w] = job.batches;
        }
    }
}

/* A share of the jobs of servers, in which no seed of seeds.txt is: a process looks at the job, or
 * must be refused; batches have several slices; rows have 16 bits on the way; workers that fail say
 * no goodbye. */
static void draw_visits(void) {
    static const bool shares[48] = {
        /* numbers that no seed of seeds.txt has drawn */
        [2] = true, [3] = true, [4] = true, [7] = true, [8] = true, [9] = true, [10] = true};
    const uint64_t share = sim_random(DRAW_TOOLS, 48);
    if (!shares[share]) {
        return;
    }
    job.visits = true;
    job.lies = job.durable && job.aim == AIM_NONE && share < 8;
    if (job.lies && (share == 3 || share == 7)) {
        job.snapshot_batches = 1 + (int)sim_random(DRAW_LIES, 4);
    }
    job.slices = job.blocks == 0 && sim_random(DRAW_TOOLS, 2) == 0;
    job.halves = job.blocks == 0 && sim_random(DRAW_TOOLS, 2) == 0;
    job.vanishes = sim_random(DRAW_TOOLS, 2) == 0;
}

/* A share of the jobs of ranks, in which no seed of seeds.txt is, is not elastic. */
static void draw_meeting(void) {
    job.meets = !job.saves && sim_random(DRAW_MEETS, 11) < 3;
    if (job.meets) {
        sim_meet_draw();
    }
}

/* A share of the elastic jobs without checkpoints, in which no seed of seeds.txt is: one rank, on a
 * host of its own, takes seconds for a step, and nothing but broken connections disturbs the job.
 * The others may not give this rank up, whose process answers. */
static void draw_busy(void) {
    if (job.saves || job.meets || sim_random(DRAW_MEETS, 16) != 1) {
        return;
    }
    job.workers = job.workers < 3 ? 3 : job.workers;
    job.busy = 1 + (int)sim_random(DRAW_MEETS, (uint64_t)job.workers - 1);
    job.ranks_of_host = 1;
    job.compute = 0.1 + 0.4 * sim_unit(DRAW_MEETS);
    job.worker_timeout = 60;
}

static void draw_job(void) {
    uint64_t (*draw)(sim_draw, uint64_t) = sim_random;
    job.mode = (trm_ps_mode)draw(DRAW_PLAN, 3);
    job.servers = 1 + (int)draw(DRAW_PLAN, JOB_SERVERS);
    job.workers = 1 + (int)draw(DRAW_PLAN, JOB_WORKERS);
    job.shards = 1 + (int)draw(DRAW_PLAN, JOB_SHARDS);
    job.staleness = (int)draw(DRAW_PLAN, 3);
    /* without leases an asynchronous worker that dies may leave half a push: documented */
    job.lent = job.mode == TRM_PS_ASYNC || draw(DRAW_PLAN, 2) == 0;
    job.durable = draw(DRAW_PLAN, 2) == 0;
    job.samples = JOB_BATCH * (8 + (int)draw(DRAW_PLAN, JOB_BATCHES - 8));
    job.lease = JOB_BATCH * (1 + (int)draw(DRAW_PLAN, 8));
    job.epochs = 1 + (int)draw(DRAW_PLAN, JOB_EPOCHS);
    job.batches = 10 + (int)draw(DRAW_PLAN, 40);
    job.snapshot_batches = (int)draw(DRAW_PLAN, 3) == 0 ? 0 : 3 + (int)draw(DRAW_PLAN, 12);
    job.compute = 0.1 + 2.4 * sim_unit(DRAW_PLAN);
    double slowest = 0; /* seconds of a batch */
    for (int w = 0; w < JOB_WORKERS; w++) {
        job.pace[w] = draw(DRAW_PLAN, 4) == 0 ? 1 + 5 * sim_unit(DRAW_PLAN) : 1;
        slowest = slowest > job.pace[w] * job.compute ? slowest : job.pace[w] * job.compute;
    }
    /* the slowest worker may have to compute all batches by itself, some of them twice */
    job.patience =
        900 + 2 * slowest * (job.lent ? job.epochs * job.samples / JOB_BATCH : job.batches);
    job.worker_timeout = 5 + 2 * slowest + 25 * sim_unit(DRAW_PLAN);
    /* a synchronous worker that is silent for longer is not waited for, and its batches are lost */
    job.worker_timeout += !job.lent ? 1000 : 0;
    job.lease_timeout = 2 + 2 * slowest + 20 * sim_unit(DRAW_PLAN);
    job.faults_end = sim_nanoseconds(10 + 190 * sim_unit(DRAW_PLAN));
    job.elastic = draw(DRAW_PLAN, 4) == 0;
    if (job.elastic) {
        job.servers = 0;
        job.workers = 2 + (int)draw(DRAW_PLAN, JOB_RANKS - 1);
        job.ranks_of_host = draw(DRAW_PLAN, 3) == 0 ? JOB_RANKS : 1 + (int)draw(DRAW_PLAN, 3);
    }
    for (int a = 0; a < SIM_HOSTS; a++) {
        sim.hosts[a].uptime = sim_nanoseconds(1e5 * sim_unit(DRAW_PLAN));
        sim.hosts[a].wall = sim_nanoseconds(100 * sim_unit(DRAW_PLAN) - 50);
        for (int b = 0; b < SIM_HOSTS; b++) {
            sim.delay[a][b] = 2e-5 + (draw(DRAW_PLAN, 4) == 0 ? 2e-2 : 5e-4) * sim_unit(DRAW_PLAN);
        }
    }
    draw_aims(slowest);
    draw_later_aim();
    if (job.elastic) {
        sim_saves_draw();
        draw_meeting();
        draw_busy();
    } else {
        draw_chief();
        sim_states_draw(&slowest);
        draw_visits();
    }
}

/* ---- supervisor ------------------------------------------------------------------------------ */

static void server_ended(sim_process *p, int code);
static void worker_ended(sim_process *p, int code);

static int number_of(const sim_process *p) { return (int)(intptr_t)p->argument; }

void sim_job_disturb_until(int64_t time) {
    job.disturbed_until = time > job.disturbed_until ? time : job.disturbed_until;
}

void sim_job_plan_death_in(sim_process *p, uint64_t share, uint64_t calls) {
    if (job.comes[FAULT_DEATH] && (job.without >> FAULT_DEATH & 1) == 0 &&
        sim.now < job.faults_end && sim_random(DRAW_PLAN, share) == 0) {
        p->dies_at = p->calls + 1 + sim_random(DRAW_PLAN, calls);
    }
}

/* A process dies at a call that the seed draws, in a life that begins while faults come. */
void sim_job_plan_death(sim_process *p) {
    sim_job_plan_death_in(p, 2, sim_random(DRAW_PLAN, 2) == 0 ? 300 : 8000);
    if (job.comes[FAULT_SLOW] && sim_random(DRAW_PLAN, 4) == 0) {
        p->slow = 1 + 200 * sim_unit(DRAW_PLAN);
    }
}

static void start_server(void *a, uint64_t number) {
    (void)a;
    char name[16];
    job.starts[number] = false;
    const sim_process *runs = job.server[number];
    if (job.lied || number >= (uint64_t)job.servers || !sim.hosts[number].up ||
        job.stopped[number] || (runs != NULL && !runs->dead)) {
        return;
    }
    snprintf(name, sizeof name, "server%d", (int)number);
    job.server[number] =
        sim_spawn(name, (int)number, sim_server_main, (void *)(intptr_t)number, server_ended);
    if (!job.spares_servers) {
        sim_job_plan_death(job.server[number]);
    }
}

static void start_worker(void *a, uint64_t number) {
    (void)a;
    char name[16];
    job.starts[JOB_SERVERS + number] = false;
    if (job.lied) {
        return;
    }
    snprintf(name, sizeof name, "worker%d", (int)number);
    job.worker[number] = sim_spawn(name, JOB_FIRST_WORKER + (int)number, sim_worker_main,
                                   (void *)(intptr_t)number, worker_ended);
    sim_job_plan_death(job.worker[number]);
}

/* Starts a process again, soon or late, not before a time. */
static void start_again(void (*start)(void *, uint64_t), int number, bool *planned,
                        int64_t earliest) {
    if (!*planned) {
        *planned = true;
        double wait =
            sim_random(DRAW_PLAN, 4) == 0 ? 4 * sim_unit(DRAW_PLAN) : 0.3 * sim_unit(DRAW_PLAN);
        const int64_t at =
            sim.now + sim_nanoseconds(wait) > earliest ? sim.now + sim_nanoseconds(wait) : earliest;
        sim_job_disturb_until(at);
        sim_at(at, start, NULL, (uint64_t)number);
    }
}

static void start_check(void *a, uint64_t b);
static void start_servers_again(void);

static bool all_stopped(void) {
    int left = 0;
    for (int s = 0; s < job.servers; s++) {
        left += !job.stopped[s];
    }
    return left == 0;
}

static void folder_check_ended(sim_process *p, int code) {
    (void)p;
    if (code != 0) {
        sim_fail("the check of the folder ended with %d", code);
    }
    sim.over = true;
}

static void end_if_stopped(void) {
    if (all_stopped() && !job.resizes) {
        sim_spawn("folder", JOB_READER, sim_check_folder_main, NULL, folder_check_ended);
    }
}

/* Another number of servers loads the snapshot that has all pushes. */
static void start_other_servers(void *a, uint64_t b) {
    if (!all_stopped()) {
        sim_at(sim.now + SIM_SECOND / 10, start_other_servers, a, b);
        return;
    }
    job.resizes = job.stopping = false;
    job.servers = 1 + (job.servers + (int)sim_random(DRAW_CHIEF, 2)) % JOB_SERVERS;
    sim_trace(NULL, "%d servers load the snapshot", job.servers);
    memset(job.stopped, 0, sizeof job.stopped);
    for (int s = 0; s < job.servers; s++) {
        start_server(a, (uint64_t)s);
    }
    start_check(a, b);
}

static void check_ended(sim_process *p, int code) {
    (void)p;
    const bool stopped = all_stopped();
    const bool again = code == JOB_AGAIN || code == JOB_NO_SPACE;
    if (again && !job.stopping && sim.now < job.faults_end + sim_nanoseconds(120)) {
        if (code == JOB_NO_SPACE) {
            start_servers_again();
        }
        sim_at(sim.now + sim_nanoseconds(1), start_check, NULL, 0);
    } else if (again && job.stopping) {
        const bool waited = job.resizes && stopped;
        job.resizes = false;
        for (int s = 0; s < job.servers; s++) {
            sim_kill(job.server[s]);
        }
        if (waited) {
            end_if_stopped();
        }
    } else if (code != 0) {
        sim_fail("the check of the rows ended with %d", code);
    } else if (job.resizes) {
        start_other_servers(NULL, 0);
    }
}

static void start_check(void *a, uint64_t b) {
    (void)a, (void)b;
    sim_spawn("reader", JOB_READER, sim_check_main, NULL, check_ended);
}

static sim_process *draw_victim(void);

/* Another process dies, which may be one that the death of the first one matters to. */
static void another_dies(void *a, uint64_t b) {
    (void)a, (void)b;
    sim_process *p = draw_victim();
    if (p != NULL && sim.now < job.faults_end) {
        sim_trace(p, "fault: is killed, soon after another one");
        sim_kill(p);
    }
}

/* Deaths that come together are drawn by themselves: two that are independent are rarely close. */
void sim_job_plan_another_death(int code) {
    if (code < 0 && job.comes[FAULT_DEATH] && sim_random(DRAW_PLAN, 3) == 0) {
        double wait = sim_unit(DRAW_PLAN) * (0.5 + 4 * job.compute);
        sim_at(sim.now + sim_nanoseconds(wait), another_dies, NULL, 0);
    }
}

static void server_ended(sim_process *p, int code) {
    int number = number_of(p);
    if (job.lied) {
        return;
    }
    if (code == 0 || job.stopping) { /* asked to stop, it need not come back */
        job.stopped[number] = true;
        end_if_stopped();
        return;
    }
    if (code > 0) {
        sim_fail("server %d ended with %d", number, code);
    }
    job.server_deaths++;
    sim_job_plan_another_death(code);
    start_again(start_server, number, &job.starts[number], 0);
}

/* Kills a server, if it is still the process that it was. */
static void server_dies(void *process, uint64_t pid) {
    if (sim_find((int)pid) == process) {
        sim_kill(process);
    }
}

void sim_job_plan_server_death(int number, double wait) {
    sim_process *server = job.server[number];
    if (server != NULL && !server->dead && !job.stopped[number]) {
        sim_job_disturb_until(sim.now + sim_nanoseconds(wait));
        sim_at(sim.now + sim_nanoseconds(wait), server_dies, server, (uint64_t)server->pid);
    }
}

/* A server with a log that it could not write must start again. */
static void start_servers_again(void) {
    for (int s = 0; s < job.servers; s++) {
        sim_job_plan_server_death(s, sim_random(DRAW_AIMS, 2) == 0 ? 0 : 4 * sim_unit(DRAW_AIMS));
    }
}

static void worker_ended(sim_process *p, int code) {
    int number = number_of(p), left = 0;
    if (job.lied) {
        return;
    }
    job.kills += code != 0;
    double undisturbed = (double)(sim.now - job.disturbed_until) * 1e-9;
    /* a slow batch takes 23 s */
    if (code == JOB_WAITED && undisturbed > JOB_TIMEOUT - 15) {
        sim_fail("worker %d waited to its time-out, although nothing disturbed the job for %.0f s",
                 number, undisturbed);
    }
    if (code == JOB_NO_SPACE) {
        start_servers_again();
    }
    /* what a worker had sent when it died, and its next life builds on, is in the memory of the
     * servers */
    if (code < 0 && job.dies_at_pushes && !job.spares_servers && sim.now < job.faults_end &&
        (job.without >> FAULT_DEATH & 1) == 0 && sim_random(DRAW_AIMS, 2) == 0) {
        sim_job_plan_server_death((int)sim_random(DRAW_AIMS, (uint64_t)job.servers),
                                  (0.5 + 3 * job.compute) * sim_unit(DRAW_AIMS));
    }
    /* where samples are lent, a worker may stay away for good: the others use its samples */
    bool goes = code < 0 && job.lent && job.workers > 1 && !job.gone && !job.keeps_leases &&
                job.pushes[number] > 8 && sim_random(DRAW_PLAN, 6) == 0;
    if (goes) {
        job.gone = true;
        sim_job_disturb_until(sim.now + sim_nanoseconds(job.worker_timeout + job.lease_timeout));
        sim_trace(p, "fault: stays away");
    } else if (code != 0 && number != job.silent) {
        if (code > 0 && sim.now > job.faults_end + sim_nanoseconds(120)) {
            sim_fail("worker %d fails although faults ended long ago", number);
        }
        sim_job_plan_another_death(code);
        start_again(start_worker, number, &job.starts[JOB_SERVERS + number],
                    job.waits_until[number]);
        return;
    }
    job.done[number] = true;
    for (int w = 0; w < job.workers; w++) {
        left += !job.done[w];
    }
    if (left == 0 && !job.checking) {
        job.checking = true;
        start_check(NULL, 0);
    }
}

void sim_job_cut_power(int host) {
    sim.hosts[host].up = false;
    sim_trace(NULL, "fault: host %d loses its power", host);
    sim_network_lose(host);
    sim_disk_lose(host);
    for (sim_process *p = sim.processes; p != NULL; p = p->next) {
        if (p->host == host) {
            sim_kill(p);
        }
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static sim_process *draw_process(void) {
    int n = (int)sim_random(DRAW_PLAN, (uint64_t)(job.servers + job.workers));
    sim_process *p = n < job.servers ? job.server[n] : job.worker[n - job.servers];
    return p == NULL || p->dead ? NULL : p;
}

/* Returns a process that may die; NULL: none. */
static sim_process *draw_victim(void) {
    sim_process *p = draw_process();
    bool spared = p != NULL && !job.elastic && job.spares_servers && p->host < JOB_SERVERS;
    return spared ? NULL : p;
}

static int draw_host(void) {
    int n = (int)sim_random(DRAW_PLAN, (uint64_t)(job.servers + job.workers));
    int worker = n - job.servers;
    return n < job.servers ? n : JOB_FIRST_WORKER + worker / (job.elastic ? job.ranks_of_host : 1);
}

/* Returns the host of a server, or of a rank. */
static int draw_disk_host(void) {
    return job.elastic ? draw_host() : (int)sim_random(DRAW_PLAN, (uint64_t)job.servers);
}

static void power_returns(void *a, uint64_t host) {
    (void)a;
    sim.hosts[host].up = true;
    sim.hosts[host].boots++;
    sim_job_disturb_until(sim.now);
    sim.hosts[host].uptime = -sim.now;
    sim_trace(NULL, "host %d has power again", (int)host);
    if (host < JOB_SERVERS) {
        start_server(NULL, host);
    }
}

void sim_job_lose_power(int host) {
    if (sim.hosts[host].disk_lies && job.lies) {
        return; /* the job would go on without what it has confirmed */
    }
    if (job.durable && !job.spares_servers && sim.hosts[host].up && !job.stopped[host]) {
        sim_job_cut_power(host);
        sim_at(sim.now + sim_nanoseconds(0.2 + 3 * sim_unit(DRAW_PLAN)), power_returns, NULL,
               (uint64_t)host);
    }
}

/* Ends a server, or worker 0, while a snapshot is taken. */
static void die_at_snapshot(void *a, uint64_t number) {
    (void)a;
    bool is_server = number < (uint64_t)job.servers;
    sim_process *p = is_server ? job.server[number] : job.worker[0];
    if (p == NULL || p->dead || sim.now >= job.faults_end) {
        return;
    }
    sim_trace(p, "fault: dies while a snapshot is taken");
    if (is_server && job.durable && job.comes[FAULT_POWER] && sim_random(DRAW_PLAN, 2) == 0) {
        sim_job_lose_power((int)number);
    } else {
        sim_kill(p);
    }
}

static void connection_is_lost(void *a, uint64_t hosts) {
    (void)a;
    if (sim.now < job.faults_end) {
        sim_break_half((int)(hosts / SIM_HOSTS), (int)(hosts % SIM_HOSTS));
    }
}

static void plan_break(int worker, int server, double most) {
    const uint64_t hosts = (uint64_t)(JOB_FIRST_WORKER + worker) * SIM_HOSTS + (uint64_t)server;
    if (job.chiefs && job.comes[FAULT_RESET] && (job.without >> FAULT_RESET & 1) == 0) {
        sim_job_disturb_until(sim.now);
        sim_at(sim.now + sim_nanoseconds(most * sim_unit(DRAW_CHIEF)), connection_is_lost, NULL,
               hosts);
    }
}

void sim_job_break_held(int server) {
    const int host = sim.current->process->host;
    if (job.chiefs && host != JOB_READER && job.comes[FAULT_RESET] &&
        (job.without >> FAULT_RESET & 1) == 0 && sim.now < job.faults_end &&
        sim_random(DRAW_CHIEF, 4) == 0) {
        sim_job_disturb_until(sim.now);
        sim_break_half(host, server);
    }
}

void sim_job_plan_break_at_lease(int worker) {
    if (job.chiefs && sim_random(DRAW_CHIEF, 6) == 0) {
        plan_break(worker, 0, 0.002);
    }
}

void sim_job_plan_death_at_snapshot(int worker) {
    if (job.chiefs && sim_random(DRAW_CHIEF, 2) == 0) {
        plan_break(worker, (int)sim_random(DRAW_CHIEF, (uint64_t)job.servers), 0.004);
    }
    if (job.dies_at_snapshots && (job.without >> FAULT_DEATH & 1) == 0 &&
        sim_random(DRAW_PLAN, 2) == 0) {
        double wait = (sim_random(DRAW_PLAN, 2) == 0 ? 0.005 : 0.1) * sim_unit(DRAW_PLAN);
        sim_at(sim.now + sim_nanoseconds(wait), die_at_snapshot, NULL,
               sim_random(DRAW_PLAN, (uint64_t)job.servers + 1));
    }
}

static void cut_link(bool one_way) {
    int a = draw_host(), b = draw_host();
    double wait =
        sim_random(DRAW_PLAN, 4) == 0 ? 25 * sim_unit(DRAW_PLAN) : 3 * sim_unit(DRAW_PLAN);
    int64_t until = sim.now + sim_nanoseconds(wait);
    sim_job_disturb_until(until);
    sim.blocked_until[a][b] = until;
    if (!one_way) {
        sim.blocked_until[b][a] = until;
    }
    sim_trace(NULL, "fault: link %d %s %d is cut for %.3f s", a, one_way ? "->" : "<->", b, wait);
}

static void split_network(void) {
    uint64_t side = sim_random(DRAW_PLAN, 1 << SIM_HOSTS);
    int64_t until = sim.now + sim_nanoseconds(8 * sim_unit(DRAW_PLAN));
    sim_job_disturb_until(until);
    sim_trace(NULL, "fault: the network is split, side %04x", (unsigned)side);
    for (int a = 0; a < SIM_HOSTS; a++) {
        for (int b = 0; b < SIM_HOSTS; b++) {
            if ((side >> a & 1) != (side >> b & 1)) {
                sim.blocked_until[a][b] = until;
            }
        }
    }
}

static void pause_process(void) {
    sim_process *p = draw_process();
    double wait =
        sim_random(DRAW_PLAN, 3) == 0 ? 30 * sim_unit(DRAW_PLAN) : 2 * sim_unit(DRAW_PLAN);
    if (p != NULL) {
        sim_pause(p, sim_nanoseconds(wait));
        sim_job_disturb_until(p->paused_until);
        sim_trace(p, "fault: stands still for %.3f s", wait);
    }
}

static void disk_has_room(void *a, uint64_t host) {
    (void)a;
    sim.hosts[host].disk_full = false;
    sim_job_disturb_until(sim.now);
    sim_trace(NULL, "the disk of host %d has room", (int)host);
}

static void fill_disk(void) {
    int host = draw_disk_host();
    sim.hosts[host].disk_full = true;
    sim_trace(NULL, "fault: the disk of host %d is full", host);
    sim_at(sim.now + sim_nanoseconds(3 * sim_unit(DRAW_PLAN)), disk_has_room, NULL, (uint64_t)host);
}

static void disk_answers(void *a, uint64_t host) {
    (void)a;
    sim.hosts[host].disk_fails = false;
    sim_job_disturb_until(sim.now);
    sim_trace(NULL, "the disk of host %d answers", (int)host);
}

/* Half of a disk's calls fail for a while. */
static void fail_disk(void) {
    const int host = draw_disk_host();
    sim.hosts[host].disk_fails = true;
    sim_trace(NULL, "fault: calls of the disk of host %d fail", host);
    sim_at(sim.now + sim_nanoseconds(sim_unit(DRAW_TOOLS)), disk_answers, NULL, (uint64_t)host);
}

static void host_loses_power(void *a, uint64_t host) {
    (void)a;
    sim.hosts[host].disk_lies = false;
    sim_job_lose_power((int)host);
}

/* A disk confirms what it has not written, until its host loses its power. */
static void let_disk_lie(void) {
    const int host = draw_disk_host();
    sim.hosts[host].disk_lies = true;
    sim_trace(NULL, "fault: the disk of host %d lies", host);
    sim_saves_disk_lies();
    sim_at(sim.now + sim_nanoseconds(10 * job.compute * sim_unit(DRAW_SAVES)), host_loses_power,
           NULL, (uint64_t)host);
}

static void fault_comes(void *a, uint64_t kind) {
    (void)a;
    if ((job.without >> kind & 1) != 0 || job.lied) {
        return;
    }
    job.faults++;
    sim_job_disturb_until(sim.now);
    sim_process *p = draw_victim();
    switch (kind) {
    case FAULT_DEATH:
        if (p != NULL) {
            sim_trace(p, "fault: is killed");
            sim_kill(p);
        }
        break;
    case FAULT_RESET: sim_reset_connection(); break;
    case FAULT_LINK: cut_link(false); break;
    case FAULT_ONE_WAY: cut_link(true); break;
    case FAULT_SPLIT: split_network(); break;
    case FAULT_PAUSE: pause_process(); break;
    case FAULT_POWER: sim_job_lose_power(draw_disk_host()); break;
    case FAULT_CLOCK:
        sim.hosts[draw_host()].wall += sim_nanoseconds(200 * sim_unit(DRAW_PLAN) - 100);
        break;
    case FAULT_DISK: fill_disk(); break;
    case FAULT_LIES: let_disk_lie(); break;
    case FAULT_IO: fail_disk(); break;
    default: break;
    }
}

void sim_job_plan_faults(void) {
    uint64_t kinds[FAULT_KINDS], count = 0, faults = sim_random(DRAW_PLAN, 24);
    for (uint64_t k = 0; k < FAULT_LIES; k++) {
        job.comes[k] = sim_random(DRAW_PLAN, 3) == 0;
        /* what a full disk does not write of the book of leases is found out when the lease ends */
        job.comes[k] |= k == FAULT_DEATH && (job.dies_at_snapshots || job.dies_at_pushes);
        job.comes[k] = job.comes[k] && (k != FAULT_DISK || !job.keeps_leases);
        job.comes[k] = job.busy > 0 ? k == FAULT_RESET : job.comes[k] && !job.quiet;
        if (job.comes[k] && k != FAULT_SLOW) {
            kinds[count++] = k;
        }
    }
    count = sim_states_plan_faults() ? count : 0;
    for (uint64_t i = 0; i < faults && count > 0; i++) {
        sim_at(SIM_SECOND + (int64_t)(sim_unit(DRAW_PLAN) * (double)(job.faults_end - SIM_SECOND)),
               fault_comes, NULL, kinds[sim_random(DRAW_PLAN, count)]);
    }
    job.comes[FAULT_IO] =
        job.visits && job.aim == AIM_NONE && !job.keeps_leases && sim_random(DRAW_TOOLS, 2) == 0;
    for (uint64_t i = 0; i < 4 && job.comes[FAULT_IO]; i++) {
        sim_at(SIM_SECOND + (int64_t)(sim_unit(DRAW_TOOLS) * (double)(job.faults_end - SIM_SECOND)),
               fault_comes, NULL, FAULT_IO);
    }
    for (uint64_t i = 0; i < 2 && job.comes[FAULT_LIES]; i++) {
        sim_at(SIM_SECOND + (int64_t)(sim_unit(DRAW_SAVES) * (double)(job.faults_end - SIM_SECOND)),
               fault_comes, NULL, FAULT_LIES);
    }
}

/* Nothing disturbs the job any more: links pass, hosts run. */
static void faults_end(void *a, uint64_t b) {
    (void)a, (void)b;
    memset(sim.blocked_until, 0, sizeof sim.blocked_until);
    trmi_alloc_fail_after(0);
    for (sim_process *p = sim.processes; p != NULL; p = p->next) {
        p->paused_until = p->dies_at = 0;
    }
    /* a process that died in the call that had no room has not made any */
    for (int h = 0; h < SIM_HOSTS; h++) {
        sim.hosts[h].disk_full = false;
    }
    sim_trace(NULL, "faults end");
}

static void time_is_over(void *a, uint64_t b) {
    (void)a, (void)b;
    sim_fail("the job has not ended %.0f s after the last fault",
             (double)(sim.now - job.faults_end) * 1e-9);
}

static void start_servers_and_workers(void) {
    static const char *const modes[] = {"asynchronous", "bounded", "synchronous"};
    sim_trace(NULL,
              "%s, %d servers of %d shards, %d workers, %s, %s, staleness %d, %d samples of %d, %d "
              "epochs, %d batches, %d snapshots, aim %d",
              modes[job.mode], job.servers, job.shards, job.workers,
              job.lent ? "leases" : "own batches", job.durable ? "flushed" : "logged",
              job.staleness, job.samples, job.lease, job.epochs, job.batches, job.snapshot_batches,
              (int)job.aim);
    for (int s = 0; s < job.servers; s++) {
        start_server(NULL, (uint64_t)s);
    }
    for (int w = 0; w < job.workers; w++) {
        start_worker(NULL, (uint64_t)w);
    }
}

void sim_job_start(void) {
    draw_job();
    job.passed_over =
        job.only != 0 && job.only != (job.elastic ? 'e' : 's') && !(job.only == 'c' && job.saves);
    if (job.passed_over) {
        sim.over = true;
        return;
    }
    sim_job_plan_faults();
    if (job.meets) {
        sim_meet_start();
    } else {
        job.elastic ? sim_elastic_start() : start_servers_and_workers();
    }
    if (job.visits) {
        sim_tools_start();
    }
    if (job.lies) {
        sim_lies_start();
    }
    sim_at(job.faults_end, faults_end, NULL, 0);
    sim_at(job.faults_end + sim_nanoseconds(job.patience), time_is_over, NULL, 0);
    sim.ends = job.faults_end + sim_nanoseconds(job.patience + 100);
}
