/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sim/job.h: a job of parameter servers in the simulator: what it is, its faults, its processes, its checks. */
#ifndef TRIREME_TESTS_SIM_JOB_H
#define TRIREME_TESTS_SIM_JOB_H

#include "sim.h"

#include "trireme/ps.h"

enum {
    JOB_SERVERS = 3,
    JOB_WORKERS = 4,
    JOB_BATCH = 10,
    JOB_KEYS = 24,
    JOB_WITNESSES = 8, /* keys that every batch pushes, on all shards: a cut through a push shows there */
    JOB_FIRST_WORKER = 4,
    JOB_READER = 12, /* hosts */
    JOB_NO_SPACE = 8 /* exit code of a worker that a full disk of a server ends */
};

/* A job, drawn from the seed. */
typedef struct sim_job {
    trm_ps_mode mode;
    int servers, workers, shards, staleness;
    bool lent, durable; /* leases of samples; log_sync, and hosts may lose their power */
    int samples, lease, epochs, batches, cuts;
    double compute, worker_timeout, lease_timeout; /* seconds */
    int64_t faults_end;
    bool tells_fault[16];
    /* state */
    sim_process *server[JOB_SERVERS], *worker[JOB_WORKERS];
    bool done[JOB_WORKERS], checking, stopped[JOB_SERVERS];
    bool starts[JOB_SERVERS + JOB_WORKERS]; /* a start is planned */
    int ended, faults, kills, cuts_made;
} sim_job;

extern sim_job job;

/* Draws the job and its faults, and starts its processes. */
void sim_job_start(void);
void sim_job_plan_faults(void);
/* Main functions of processes; `argument` is a number. */
int sim_server_main(void *argument);
int sim_worker_main(void *argument);
/* Compares rows and newest snapshot with what was pushed, then ends the servers. */
int sim_check_main(void *argument);
int sim_check_folder_main(void *argument);
/* Ends what runs on a host with its power; processes start again later. */
void sim_job_cut_power(int host);
void sim_job_address(int server, char out[32]);
trm_status sim_job_connect(int worker, double timeout, trm_ps_client **client, int32_t *table,
                           trm_error *err);

#endif
