/* SPDX-License-Identifier: Apache-2.0 */
/* A server's disk that lies (job.h): it confirms what it has not written, and its host then loses
 * its power. Writes are lost, torn or damaged. The whole job ends in that moment, and is looked at:
 *
 *     snapshots   each one that was confirmed opens with the rows that it had then, or is refused
 *     folder      the newest snapshot with the logs has no row with more than the workers have pushed,
 *                 or with a part of a push
 *     servers     each starts, with such rows, or refuses to with an error that names a file
 *
 * Pushes that were confirmed may be missing, and rows of two servers may be of two moments: that is
 * what fsync is for. */
#include "job.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SNAPSHOTS_MOST = 16, KEYS_MOST = JOB_WORKERS * (JOB_KEYS + JOB_WITNESSES) };

/* The rows of a snapshot when it was confirmed. */
typedef struct known_snapshot {
    uint32_t number;
    float values[KEYS_MOST];
} known_snapshot;

static known_snapshot known[SNAPSHOTS_MOST];
static int known_count;
static bool server_ended[JOB_SERVERS], server_serves[JOB_SERVERS];

/* Opens a snapshot and reads all rows. Returns the error of opening it. */
static trm_status read_snapshot(uint32_t number, float values[KEYS_MOST], trm_error *err) {
    const trm_ps_folder_options o = {.snapshot = number, .logs = number == 0 ? TRM_ON : TRM_OFF};
    trm_ps_folder *files;
    trm_ps_folder_info info;
    TRMI_TRY(trm_ps_folder_open(sim_job_folder, &o, &files, err));
    trm_ps_folder_get_info(files, &info);
    memset(values, 0, KEYS_MOST * sizeof *values);
    for (int i = 0; info.tables > 0 && sim_job_key(i) != UINT64_MAX; i++) {
        trm_row_info row;
        if (trm_ps_folder_row(files, 0, sim_job_key(i), &row, &values[i], NULL, err) != TRM_OK) {
            values[i] = 0;
        }
    }
    trm_ps_folder_close(files);
    return TRM_OK;
}

void sim_lies_note(uint32_t snapshot) {
    trm_error err;
    if (job.lies && known_count < SNAPSHOTS_MOST) {
        known[known_count].number = snapshot;
        known_count += read_snapshot(snapshot, known[known_count].values, &err) == TRM_OK;
    }
}

/* What a disk has lost is told as a damaged or missing file. */
static void check_refusal(const char *what, trm_status status, const trm_error *err) {
    sim_trace(sim.current->process, "%s: %s", what, err->message);
    if (status != TRM_CORRUPT && status != TRM_IO && status != TRM_INVALID) {
        sim_fail("after a lying disk, %s: error %d: %s", what, (int)status, err->message);
    }
}

static void check_values(const char *what, const float *values) {
    for (int i = 0; sim_job_key(i) != UINT64_MAX; i++) {
        const float most = (float)sim_job_expected(sim_job_key(i));
        if (!(values[i] >= 0 && values[i] <= most) || values[i] != (float)(int64_t)values[i]) {
            sim_fail("after a lying disk, %s: key %llu is %g, at most %lld were pushed", what,
                     (unsigned long long)sim_job_key(i), (double)values[i],
                     (long long)sim_job_expected(sim_job_key(i)));
        }
    }
}

static void check_snapshots(void) {
    float values[KEYS_MOST];
    trm_error err;
    for (int i = 0; i < known_count; i++) {
        trm_status status = read_snapshot(known[i].number, values, &err);
        if (status != TRM_OK) {
            check_refusal("a snapshot", status, &err);
        } else if (memcmp(values, known[i].values, sizeof values) != 0) {
            sim_fail("after a lying disk, snapshot %u opens with other rows", known[i].number);
        }
    }
    trm_status status = read_snapshot(0, values, &err);
    if (status == TRM_OK) {
        check_values("the folder", values);
    } else {
        check_refusal("the folder", status, &err);
    }
}

/* ---- servers that start again ---------------------------------------------------------------- */

static int run_server(void *argument) {
    const int number = (int)(intptr_t)argument;
    trm_ps_server *server;
    trm_error err;
    trm_status status = sim_job_start_server(number, &server, &err);
    if (status != TRM_OK) {
        check_refusal("a server", status, &err);
        return 1;
    }
    server_serves[number] = true;
    while (trm_ps_server_wait(server, 3600) == TRM_TIMEOUT) {
    }
    trm_ps_server_stop(server);
    return 0;
}

static void note_end(sim_process *p, int code) {
    (void)code;
    server_ended[(intptr_t)p->argument] = true;
}

/* Reads the rows of the servers, where all have started. */
static void check_servers(void) {
    float values[KEYS_MOST] = {0};
    trm_ps_client *client;
    trm_error err;
    int32_t tables = 0;
    int ended = 0, serve = 0;
    for (int i = 0; i < 600 && ended + serve < job.servers; i++) {
        usleep(100000);
        for (int s = ended = serve = 0; s < job.servers; s++) {
            ended += server_ended[s];
            serve += server_serves[s] && !server_ended[s];
        }
    }
    if (ended + serve < job.servers) {
        sim_fail("after a lying disk, a server has neither started nor refused to for 60 s");
    }
    if (ended > 0) {
        return;
    }
    trm_status status = sim_job_reach(-1, 30, sim_job_token, sim_job_id, &client, &err);
    if (status != TRM_OK) {
        sim_fail("after a lying disk, the servers do not answer: %s", err.message);
        return;
    }
    status = trm_ps_client_adopt(client, &tables, &err);
    for (int i = 0; status == TRM_OK && tables > 0 && sim_job_key(i) != UINT64_MAX; i++) {
        trm_row_info info;
        status = trm_ps_row(client, 0, sim_job_key(i), &info, &values[i], NULL, &err);
        status = status == TRM_END ? TRM_OK : status; /* no row: 0 */
    }
    if (status != TRM_OK) {
        sim_trace(sim.current->process, "rows of the servers: %s", err.message);
    }
    check_values("a server", values);
    trm_ps_client_destroy(client);
}

static int run_check(void *argument) {
    (void)argument;
    check_snapshots();
    for (int s = 0; s < job.servers; s++) {
        char name[24];
        snprintf(name, sizeof name, "server%d", s);
        sim_spawn(name, s, run_server, (void *)(intptr_t)s, note_end);
    }
    check_servers();
    return 0;
}

static void check_ended(sim_process *p, int code) {
    (void)p, (void)code;
    sim.over = true;
}

/* ---- the job --------------------------------------------------------------------------------- */

static void all_end(void *a, uint64_t host) {
    (void)a;
    if (job.checking) {
        return;
    }
    job.lied = true;
    sim_trace(NULL, "fault: host %d loses its power, and the job ends", (int)host);
    sim_network_lose((int)host);
    sim_disk_damage((int)host);
    sim_disk_lose((int)host);
    for (sim_process *p = sim.processes; p != NULL; p = p->next) {
        if (!p->dead) {
            sim_kill(p);
        }
    }
    for (int h = 0; h < SIM_HOSTS; h++) {
        sim.hosts[h].up = true;
        sim.hosts[h].disk_full = sim.hosts[h].disk_lies = false;
    }
    memset(sim.blocked_until, 0, sizeof sim.blocked_until);
    sim_spawn("folder", JOB_READER, run_check, NULL, check_ended);
}

static void disk_lies(void *a, uint64_t host) {
    (void)a;
    sim.hosts[host].disk_lies = true;
    sim_trace(NULL, "fault: the disk of host %d lies", (int)host);
    sim_at(sim.now + (int64_t)(1e9 * 12 * job.compute * sim_unit(DRAW_LIES)), all_end, NULL, host);
}

void sim_lies_start(void) {
    const uint64_t host = sim_random(DRAW_LIES, (uint64_t)job.servers);
    job.comes[FAULT_LIES] = true;
    job.faults++;
    sim_at((int64_t)(1e9 * (0.5 + 12 * job.compute * sim_unit(DRAW_LIES))), disk_lies, NULL, host);
}
