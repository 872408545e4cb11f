/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sim/job.h: a job of parameter servers, or an elastic job, in the simulator: what it is,
 * its faults, its processes, its checks. */
#ifndef TRIREME_TESTS_SIM_JOB_H
#define TRIREME_TESTS_SIM_JOB_H

#include "sim.h"

#include "trireme/ps.h"

enum {
    JOB_SERVERS = 3,
    JOB_SHARDS = 2, /* of a server, at most */
    JOB_WORKERS = 4,
    JOB_RANKS = 6,      /* of an elastic job */
    JOB_PROCESSES = 12, /* of an elastic job, with those that join */
    JOB_BATCH = 10,
    JOB_AHEAD = 4,    /* pushes of a worker that are unanswered, at most */
    JOB_HOLD = 30,    /* seconds that a snapshot waits for a push that other servers have */
    JOB_BATCHES = 32, /* of an epoch, at most */
    JOB_EPOCHS = 3,
    JOB_KEYS = 24,
    JOB_WITNESSES =
        8, /* keys that every batch pushes, on all shards: half a push in a snapshot shows there */
    JOB_FIRST_WORKER = 4,
    JOB_READER = 12, /* hosts */
    JOB_EVALUATOR = 13,
    JOB_TOOL = 14,
    JOB_AGAIN = 7,    /* exit code of a worker or reader that faults have ended: it starts again */
    JOB_WAITED = 9,   /* exit code of a worker whose wait reached its time-out */
    JOB_TIMEOUT = 60, /* seconds of that wait */
    JOB_NO_SPACE =
        8 /* exit code of a worker or reader that ends because a server had no room on its disk, or no
             memory, and of a rank whose last save a full disk ends */
};

/* Kinds of faults, as --without counts them: a process is killed, a connection is reset, a link
 * between two hosts is cut in both or in one direction, a process is slow, the network is split,
 * a process stands still, a host loses its power, a wall clock jumps, a disk is full, a disk
 * confirms what a power cut then takes, an allocation fails, calls of a disk fail (EIO). */
typedef enum sim_fault {
    FAULT_DEATH,
    FAULT_RESET,
    FAULT_LINK,
    FAULT_ONE_WAY,
    FAULT_SLOW,
    FAULT_SPLIT,
    FAULT_PAUSE,
    FAULT_POWER,
    FAULT_CLOCK,
    FAULT_DISK,
    FAULT_LIES,
    FAULT_MEMORY,
    FAULT_IO,
    FAULT_KINDS
} sim_fault;

/* Faults that follow a state of the protocol instead of a moment (states.c). */
typedef enum sim_aim {
    AIM_NONE,
    AIM_STEPS,  /* processes die when some servers can form a step, and others cannot */
    AIM_FIRST,  /* a server dies at the first push of a worker */
    AIM_IDLE,   /* a worker without samples dies, then a server */
    AIM_SILENT, /* a worker pushes and is never heard again, another one comes back late */
    AIM_MEMORY, /* an allocation fails */
    AIM_FULL,   /* a shard cannot log a push, and a snapshot comes before the server has died */
    AIM_LATE,   /* a worker dies while its push to one server is under way */
    AIM_AGAIN,  /* a last push is repeated and answered before the server goes back by its step */
    AIM_HOSTS,  /* two hosts lose their power when each has answered other workers */
    AIM_REST    /* a server cannot log that a worker rests, and is started again */
} sim_aim;

/* A job, drawn from the seed. */
typedef struct sim_job {
    sim_aim aim;
    trm_ps_mode mode;
    int servers, workers, shards, staleness;
    bool elastic; /* workers are the ranks of an elastic job, there are no servers */
    bool saves;   /* ranks write checkpoints (saves.c) */
    bool meets;   /* ranks of a job that is not elastic (meet.c); elastic is set, too */
    bool quiet;   /* no faults come */
    int busy; /* of an elastic job: a rank whose steps take seconds, while connections break; 0: none */
    int ranks_of_host, most, leavers;
    int restarts_most, restarts[JOB_PROCESSES]; /* of an elastic rank that has died */
    bool
        chiefs; /* the workers have a chief, which takes snapshots; other workers stand in for it */
    int cached; /* rows that a worker keeps; 0: none */
    int blocks; /* of samples in a batch, of which each has a sum (strict determinism); 0: none */
    bool visits;        /* a process looks at the job, or must be refused (tools.c) */
    bool slices;        /* a batch has several slices, and tables that are read only */
    bool halves;        /* rows and gradients have 16 bits on the way */
    bool vanishes;      /* a worker that fails goes without a word */
    bool lies;          /* the disk of a server's host lies (lies.c) */
    bool resizes;       /* at the end other numbers of servers load the last snapshot */
    bool lent, durable; /* leases of samples; log_sync, and hosts may lose their power */
    int samples, lease, epochs, batches;
    int snapshot_batches;        /* a snapshot after so many batches of a worker; 0: none */
    int batches_of[JOB_WORKERS]; /* own batches of each worker; some leave early */
    bool dies_at_snapshots;      /* servers, or the worker, die while snapshots are taken */
    bool dies_at_pushes;         /* workers die while they push */
    bool spares_servers;         /* no server dies or loses its power */
    bool keeps_leases;           /* no lease ends by time: each is used or given back */
    double compute, worker_timeout, lease_timeout; /* seconds */
    double patience;          /* seconds after the last fault in which the job must end */
    double pace[JOB_WORKERS]; /* of a worker's computing: factor */
    int64_t faults_end, disturbed_until; /* the end of what the latest faults do */
    bool comes[FAULT_KINDS];
    unsigned without; /* bits of kinds of faults that are left out */
    char
        only; /* 'e', 's', 'c': other jobs than elastic ones, with servers, with checkpoints are passed over */
    bool passed_over;
    bool memory; /* --memory: allocations fail in all jobs of servers */
    /* state */
    sim_process *server[JOB_SERVERS], *worker[JOB_PROCESSES]; /* worker: ranks, too */
    bool done[JOB_WORKERS];
    int pushes[JOB_WORKERS];       /* of leased samples */
    int started[JOB_WORKERS];      /* own batches of which the push has begun */
    int most_started[JOB_WORKERS]; /* the same of all the worker's lives */
    bool left[JOB_WORKERS];
    int chief;                        /* worker that was the chief last; -1: none */
    int64_t chief_asked;              /* when it sent the request that made it the chief last */
    bool saved_all;                   /* the newest snapshot has all pushes */
    int silent;                       /* worker that stays away for good; -1: none */
    int acked[JOB_WORKERS];           /* own batches that are in a step, as the worker knows */
    int64_t waits_until[JOB_WORKERS]; /* a worker that has died does not start again before */
    bool checking, stopping, gone, stopped[JOB_SERVERS];
    bool lied;                              /* a disk has lied, and the job has ended with it */
    bool starts[JOB_SERVERS + JOB_WORKERS]; /* a start is planned */
    uint8_t was_lent[JOB_EPOCHS][JOB_BATCH * JOB_BATCHES]; /* samples that a worker has had */
    int faults, kills, leases_lost, snapshots_made; /* kills: ends of workers before their work */
    int server_deaths;
    uint32_t confirmed; /* newest snapshot that a worker has noted */
    uint32_t slow;      /* the last one that took as long as servers wait for a push */
    int parts_then;     /* how often parts of pushes may have come into it (roles.c) */
} sim_job;

extern sim_job job;

/* Draws the job and its faults, and starts its processes. */
void sim_job_start(void);
void sim_job_plan_faults(void);
/* Draws whether and when a process dies that begins. */
void sim_job_plan_death(sim_process *p);
/* One time in `share` it dies at one of its next `calls` calls. */
void sim_job_plan_death_in(sim_process *p, uint64_t share, uint64_t calls);
/* After a death (code -1), draws whether another process dies soon. */
void sim_job_plan_another_death(int code);
/* A worker begins a snapshot: draws whether a server dies, or a connection breaks, while it is
 * taken. */
void sim_job_plan_death_at_snapshot(int worker);
/* A server has begun to hold pushes for this process: draws whether the connection breaks now. */
void sim_job_break_held(int server);
/* A worker asks for a lease of samples: draws whether the connection breaks before it has the
 * answer. */
void sim_job_plan_break_at_lease(int worker);
/* A server dies in `wait` seconds, if it is still the process that it is now. */
void sim_job_plan_server_death(int server, double wait);
/* Notes that something disturbs the job until a time. */
void sim_job_disturb_until(int64_t time);
/* Draws the aim of a job of servers (states.c), and makes it a job in which the states come. */
void sim_states_draw(double *slowest);
/* A worker sends a request to a server: draws whether it finds no memory for it. */
void sim_states_order(int server, int64_t order);
/* A worker has joined; has got no samples; has computed its batch; has pushed it.
 *   asked  when it had sent the last request before it computed */
void sim_states_joined(int worker);
void sim_states_idle(int worker);
void sim_states_computed(int worker, int64_t asked);
void sim_states_pushed(int worker);
/* Plans the failing allocations of a job that aims at them. Returns whether other faults come. */
bool sim_states_plan_faults(void);
/* Draws and starts the ranks of a job that is not elastic (meet.c). */
void sim_meet_draw(void);
void sim_meet_start(void);
/* Starts the ranks of an elastic job (elastic.c). */
void sim_elastic_start(void);
/* Main functions of processes; `argument` is a number. */
int sim_server_main(void *argument);
int sim_worker_main(void *argument);
/* Compares rows and newest snapshot with what was pushed, then ends the servers. */
int sim_check_main(void *argument);
int sim_check_folder_main(void *argument);
/* Ends what runs on a host with its power; processes start again later. */
void sim_job_cut_power(int host);
/* Does so with the host of a server, which has power again soon, in jobs whose logs are flushed. */
void sim_job_lose_power(int host);
void sim_job_address(int server, char out[32]);
extern const uint8_t sim_job_token[32], sim_job_id[32];
extern const char sim_job_folder[];
/* Returns the i-th key that the job pushes; 0xffff... after the last one. */
uint64_t sim_job_key(int i);
/* Returns what a key has when all workers have pushed all. */
int64_t sim_job_expected(uint64_t key);
/* Starts a process that looks at the job while it runs (tools.c). */
void sim_tools_start(void);
/* Plans that a server's disk lies; notes the rows of a snapshot that was confirmed (lies.c). */
void sim_lies_start(void);
void sim_lies_note(uint32_t snapshot);
trm_status sim_job_start_server(int number, trm_ps_server **out, trm_error *err);
/* Connects to the servers, as a process with this token and job. */
trm_status sim_job_reach(int worker, double timeout, const uint8_t *token, const uint8_t *id,
                         trm_ps_client **client, trm_error *err);
trm_status sim_job_connect(int worker, double timeout, trm_ps_client **client, int32_t *table,
                           trm_error *err);

#endif
