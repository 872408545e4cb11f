/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sim/sim.h: a cluster in one operating-system thread.
 *
 *   the product's objects --libc call--> __wrap_X (linker option --wrap=X) --> scheduler, network, disk below
 *
 *   scheduler   a thread of a simulated process is a coroutine; a seeded draw chooses the one that runs next at
 *               each call that could block. The clock moves by the cost of calls, and jumps when no
 *               task can run.
 *   network     hosts 10.0.0.1, 10.0.0.2 ...; streams with delays, cut links, resets (network.c)
 *   disk        files in memory with what a power cut would leave of them (disk.c)
 *   memory      large cleared blocks, of which most is never touched (memory.c)
 *
 * Calls from outside of a task (events, main) reach the real C library. A seed is run in a process
 * of its own, because the memory of a simulated process that dies is not given back. */
#ifndef TRIREME_TESTS_SIM_H
#define TRIREME_TESTS_SIM_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucontext.h>

enum { SIM_HOSTS = 16, SIM_FD = 1000, SIM_FILES = 1 << 16 };
#define SIM_SECOND ((int64_t)1000000000)
#define SIM_NEVER INT64_MAX

/* Returns the virtual time of so many seconds. */
static inline int64_t sim_nanoseconds(double seconds) { return (int64_t)(seconds * 1e9); }

typedef struct sim_process sim_process;
typedef struct sim_task sim_task;
typedef struct sim_file sim_file;
typedef struct sim_stream sim_stream;
typedef struct sim_inode sim_inode;

/* ---- scheduler (scheduler.c) ----------------------------------------------------------------- */

/* The kinds of waiting of a task. A kind and an address identify the wait, so that a mutex and a
 * condition at one address differ. */
typedef enum sim_wait {
    SIM_RUNS,
    SIM_SLEEPS,
    SIM_MUTEX,
    SIM_CONDITION,
    SIM_JOIN,
    SIM_POLL
} sim_wait;

/* A thread of a simulated process. */
struct sim_task {
    int number, saved_errno;
    sim_process *process;
    sim_task *next; /* of its process */
    bool entered, finished, ready, timed_out;
    sim_wait wait;
    const void *subject; /* mutex, condition, task */
    struct pollfd *polls;
    int poll_count;
    uint64_t wakes; /* number of the present wait: a timer of an earlier one is stale */
    void *(*run)(void *);
    void *argument, *result, *stack;
    ucontext_t first;
    jmp_buf context;
};

/* A simulated process. */
struct sim_process {
    char name[16];
    int pid, host, life;
    bool dead;
    bool reads_snapshot; /* a check of this program reads it: no allocation fails meanwhile */
    int64_t paused_from, paused_until; /* it stands still from and until then */
    uint64_t calls, dies_at; /* calls that can block so far; the one at which it dies, 0: none */
    double slow;             /* factor of the cost of its calls */
    sim_process *next;
    sim_task *tasks;
    int (*run)(void *argument); /* its main function */
    void *argument;
    void (*ended)(sim_process *process, int code); /* code -1: killed */
};

typedef struct sim_host {
    bool up;
    int64_t uptime, wall; /* added to the clock */
    int next_port;
    int boots;                             /* how often it has had power again */
    bool disk_full, disk_lies, disk_fails; /* faults of its disk now */
} sim_host;

/* What becomes of the lines of the trace. */
typedef enum sim_tracing {
    TRACE_NONE,   /* they are not made, which saves a tenth of the time */
    TRACE_HASHED, /* the hash of two runs of a seed is equal */
    TRACE_PRINTED /* and they are printed */
} sim_tracing;

typedef struct sim_world {
    uint64_t seed;
    int64_t now, ends; /* nanoseconds; the end of the run */
    bool over;
    sim_tracing tracing;
    uint64_t hash, events, switches;
    sim_task *current;
    sim_host hosts[SIM_HOSTS];
    int64_t blocked_until[SIM_HOSTS][SIM_HOSTS]; /* [from][to] */
    double delay[SIM_HOSTS][SIM_HOSTS];          /* seconds, without jitter */
    sim_process *processes;
    char failure[512];
    bool data_lost; /* a reset connection took with it what its reader had not read */
} sim_world;

extern sim_world sim;

/* Streams of random numbers, so that another draw of one does not change those of the others. */
typedef enum sim_draw {
    DRAW_ORDER,
    DRAW_NETWORK,
    DRAW_DISK,
    DRAW_PLAN,
    DRAW_BYTES,
    DRAW_AIMS,   /* of aims that were added later: the draws of the others stay */
    DRAW_SAVES,  /* of the checkpoints of ranks, and the evaluator */
    DRAW_CHIEF,  /* of jobs of servers with a chief */
    DRAW_STATES, /* of faults that follow a state of the protocol */
    DRAW_TOOLS,  /* of processes beside a job of servers, and of shapes of batches */
    DRAW_MEETS,  /* of jobs of ranks that are not elastic */
    DRAW_LIES,   /* of servers' disks that lie */
    DRAW_MEMORY, /* of allocations that fail in a state of the protocol */
    DRAW_LATER,  /* of aims and mistakes that came after all of these */
    DRAWS
} sim_draw;

void sim_start(uint64_t seed, sim_tracing tracing);
/* Runs until sim.over, or to the time `ends`. */
void sim_run(void);
uint64_t sim_random(sim_draw stream, uint64_t below);
double sim_unit(sim_draw stream);

/* Calls run(a, b) at a time; not in a task. */
void sim_at(int64_t time, void (*run)(void *a, uint64_t b), void *a, uint64_t b);
sim_process *sim_spawn(const char *name, int host, int (*run)(void *), void *argument,
                       void (*ended)(sim_process *, int));
/* Adds a thread to a process. */
sim_task *sim_add_task(sim_process *process, void *(*run)(void *), void *argument);
/* Ends a process as SIGKILL does. From one of its own tasks it does not return. */
void sim_kill(sim_process *process);
sim_process *sim_find(int pid);
/* Lets a process stand still from now on. A pause that it is in already gets no shorter. */
void sim_pause(sim_process *process, int64_t nanoseconds);

/* Begins a call that can block: counts it, lets the clock pass, lets the process die or another
 * task run. */
void sim_enter(void);
void sim_yield(void);
/* Blocks the current task until sim_wake, or the time `until`. Returns false: the time is up. */
bool sim_block(sim_wait wait, const void *subject, int64_t until);
void sim_wake(sim_task *task);
int64_t sim_monotonic(const sim_process *process);
int64_t sim_wall(const sim_process *process);

/* Adds a line to the trace: part of its hash; printed if asked for. */
__attribute__((format(printf, 2, 3))) void sim_trace(const sim_process *process, const char *format,
                                                     ...);
/* Ends the run with a failure. */
__attribute__((format(printf, 1, 2))) void sim_fail(const char *format, ...);

/* ---- files ----------------------------------------------------------------------------------- */

typedef enum sim_kind {
    KIND_DISK,
    KIND_SOCKET,
    KIND_LISTENER,
    KIND_STREAM,
    KIND_EVENT,
    KIND_EPOLL
} sim_kind;

/* An open descriptor. */
struct sim_file {
    sim_kind kind;
    int fd, flags;
    sim_process *owner;
    sim_file *next, *previous; /* open ones */
    uint64_t counter;          /* EVENT */
    sim_stream *stream;        /* STREAM */
    sim_inode *inode;          /* DISK */
    size_t offset;             /* DISK */
    int port;                  /* SOCKET, LISTENER */
    bool is_unix;              /* a socket at a path, whose port is its inode */
    sim_stream *backlog;       /* LISTENER */
    struct {
        int fd;
        uint64_t data;
    } watched[128]; /* EPOLL */
    int watched_count;
};

sim_file *sim_file_new(sim_kind kind, int flags);
/* Returns the file of a descriptor of the current process; NULL with errno EBADF. */
sim_file *sim_file_of(int fd);
/* Returns whether a descriptor is a simulated one. */
bool sim_is_simulated(int fd);
/* Closes a descriptor; `file` is freed. */
void sim_file_close(sim_file *file);
void sim_files_close_all(sim_process *process);
short sim_file_ready(const sim_file *file);
/* Wakes the tasks that poll this file. */
void sim_file_changed(const sim_file *file);

/* ---- network and disk ------------------------------------------------------------------------ */

void sim_stream_close(sim_stream *stream);
short sim_stream_ready(const sim_stream *stream);
ssize_t sim_stream_read(sim_file *file, void *data, size_t bytes, int flags);
ssize_t sim_stream_write(sim_file *file, const void *data, size_t bytes, int flags);
void sim_listener_close(sim_file *file);
/* Resets one of the connections between two hosts, drawn by seed. Returns false: there is none. */
bool sim_reset_connection(void);
/* Breaks a connection that `host` made to `peer` at the end of `host` only: the other end hears
 * of it when it sends. */
void sim_break_half(int host, int peer);
/* Ends the network of a host that lost its power: its streams vanish without a word. */
void sim_network_lose(int host);

ssize_t sim_disk_read(sim_file *file, void *data, size_t bytes, int64_t offset);
ssize_t sim_disk_write(sim_file *file, const void *data, size_t bytes, int64_t offset);
/* Returns the number of the newest inode: later ones are greater. */
int sim_disk_newest_inode(void);
/* Makes the file of a unix socket; returns its inode, 0: the path cannot be used (errno). */
int sim_disk_make_socket(const char *path);
/* Returns the inode at a path; 0: none (errno). */
int sim_disk_inode(const char *path);
/* Gives back the lock of a file that is closed. */
void sim_disk_close(sim_file *file);
/* Damages what a host wrote and did not flush: bytes within a write are zeros, or what was in their
 * place on the disk before. */
void sim_disk_damage(int host);
/* Undoes what a host wrote and did not flush. */
void sim_disk_lose(int host);

#endif
