/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/dist.h: a job of many ranks. Choose this door if the training program is your own, with
 * any framework: the three calls at the end shard its data, broadcast its weights and all-reduce
 * its gradients.
 *
 * A program of trireme/train.h trains on many ranks after one call, `trm_join(&err)`, before it
 * creates its model. An executor (trireme/exec.h) gets the ranks as parallel.comm
 * (trm_distribute_comm).
 *
 *     trm_distribute_shard_and_rebatch(NULL, data, 256, &batch, &err);     data of this rank
 *     trm_distribute_broadcast(NULL, weights, count, 0, &err);             equal initial weights
 *     ... in each step, after the gradients of `batch` samples and before the update:
 *     trm_distribute_all_reduce(NULL, gradients, count, TRM_REDUCTION_MEAN, &err);
 *
 * Sections:
 *
 *   cluster       rank, size, hosts and roles of this process; rank tables; the job's token
 *   launching     the processes of a job on this host
 *   collectives   communicators, and operations on them
 *   elastic jobs  ranks that die, leave or join while the others go on
 *   three calls   data, weights and gradients of a program of your own */
#ifndef TRIREME_DIST_H
#define TRIREME_DIST_H

#include "trireme/base.h"
#include "trireme/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== cluster =============================================================================== */

/* Rank, size, hosts and roles of this process, from the environment that its launcher made; rank
 * tables; the token that processes on other hosts must have.
 *
 *     trm_cluster *cluster;
 *     trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err);
 *     const trm_cluster_info *me = trm_cluster_get(cluster);
 *     printf("rank %d of %d, from %s\n", me->rank, me->size, me->source);
 *
 * Sources, the first that is there counts: flags, TF_CONFIG, rank table (RANK_TABLE_FILE), CM_*,
 * trireme run, torchrun (also PyTorchJob), Open MPI, MPICH/PMI, PMIx, MVAPICH, Slurm step,
 * MindSpore's MS_*; else a single process. Two that disagree are an error that names both. */

/* Role of a process in a job. */
typedef enum trm_role {
    TRM_ROLE_WORKER = 0,
    TRM_ROLE_CHIEF = 1,
    TRM_ROLE_PS = 2,
    TRM_ROLE_EVALUATOR = 3,
    TRM_ROLE_SCHEDULER = 4 /* MindSpore's MS_SCHED: trm_cluster_join waits for the job's end */
} trm_role;
/* Returns the name of a role: "worker", "chief", "ps", "evaluator", "scheduler".
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_role_name(trm_role role);

/* Options of a command line. Zero means not given. Strings are borrowed for the call. Lists of
 * hosts are "host:port,host:port"; blanks around commas are allowed. */
typedef struct trm_cluster_flags {
    int32_t rank, size;             /* used when size > 0 */
    int32_t local_rank, local_size; /* used when local_size > 0 */
    const char *job_name;           /* ps, worker, chief or evaluator */
    const char *task_index;         /* number within the role, as text */
    const char *ps_hosts;           /* addresses of the servers */
    const char *worker_hosts;       /* addresses of the workers */
    const char *chief_hosts;        /* address of the chief */
    const char *evaluator_hosts;    /* address of the evaluator */
    const char *rank_table;         /* file, in place of RANK_TABLE_FILE */
    const char *rendezvous;         /* "host:port", "unix:PATH" or "file:PATH" */
    const char *token_file;         /* 32 bytes, mode 0600 */
    bool needs_ps;                  /* refuses a cluster without servers */
    bool any_address;               /* accepts a table that has no address of this host */
    double table_wait_seconds;      /* for a table still "initializing"; 0 = 300, < 0 = none */
} trm_cluster_flags;

/* The place of this process in its job, and the job's tasks. */
typedef struct trm_cluster trm_cluster;

/* The place of this process in its job. Strings live as long as the cluster. */
typedef struct trm_cluster_info {
    const char *source; /* "rank table /a/b.json (RANK_TABLE_FILE)" */
    /* place in the world that trains together, chief first, then workers by index: 0 to size - 1;
     * -1 for ps, evaluator and scheduler */
    int32_t rank;
    /* ranks of that world; 1 without a cluster; 0 = unknown (TFJob's sparse worker map) */
    int32_t size;
    int32_t local_rank; /* among the ranks of this host; -1 = known after the rendezvous only */
    int32_t local_size; /* ranks of this host; 0 = known after the rendezvous only */
    int32_t device_id;  /* from the table or DEVICE_ID, else the local rank, else 0 */
    trm_role role;      /* worker in a world without roles */
    int32_t task_index; /* within the role */
    bool has_roles;     /* TF_CONFIG or the flags describe roles */
    /* the chief, or worker 0 where no chief is listed: saves and writes summaries */
    bool is_chief;
    bool also_evaluates; /* TF1's "master": evaluates after each save itself */
    bool sparse_workers; /* TFJob's enableDynamicWorker: other workers come and go */
    bool one_console;    /* mpirun, srun, torchrun: the output of all ranks is shown as one text */
    bool rank_later;     /* CM_* without RANK_ID: rank is -1 until the rendezvous assigns it */
    const char *model_dir; /* TF_CONFIG's model_dir; NULL = none */
    /* address on which rank 0 listens: "host:port", "unix:PATH", "file:PATH"; NULL where no source
     * names one (for one rank: no flag and no TRIREME_RENDEZVOUS) */
    const char *rendezvous;
    int32_t rendezvous_ports; /* consecutive ports to try, from the one in `rendezvous` */
    bool others_may_join;     /* one rank with a rendezvous: an elastic job can grow from it */
    const char *token_file;   /* NULL = none */
    const char *algorithm;    /* HCCL_ALGO, default of trm_comm_options.algorithm; NULL = none */
    /* [warning_count] something unusual, but not wrong, each in one sentence */
    const char *const *warnings;
    int32_t warning_count;
} trm_cluster_info;

/* Returns the value of an environment variable; NULL = not set. */
typedef const char *(*trm_lookup)(void *context, const char *name);

/* Finds the place of this process from flags and the environment.
 *   param    flags: options of a command line; NULL = none
 *            lookup: called for every variable; NULL = getenv
 *            context: for `lookup`
 *   errors   INVALID (anything wrong in flags, variables or files, with the place), TIMEOUT (a
 *            table stayed "initializing"), NOMEM
 *   owns     caller: trm_cluster_destroy(*out)
 *   threads  any, while no thread changes the environment */
TRM_API TRM_MUST_USE trm_status trm_cluster_from_env(const trm_cluster_flags *flags,
                                                     trm_lookup lookup, void *context,
                                                     trm_cluster **out, trm_error *err);
/* Finds the place of this process from flags alone.
 *   param    flags: NULL = a single process
 *   errors   as trm_cluster_from_env
 *   owns     caller: trm_cluster_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_cluster_create(const trm_cluster_flags *flags,
                                                   trm_cluster **out, trm_error *err);
/* Frees the cluster. NULL is accepted. */
TRM_API void trm_cluster_destroy(trm_cluster *cluster);

/* Returns the place of this process.
 *   owns     the cluster */
TRM_API const trm_cluster_info *trm_cluster_get(const trm_cluster *cluster);
/* Returns the number of tasks of a role. */
TRM_API int32_t trm_cluster_task_count(const trm_cluster *cluster, trm_role role);
/* Returns the "host:port" of a task; NULL if there is no such task, or a sparse map does not say.
 *   param    index: number within the role, from 0
 *   owns     the cluster */
TRM_API const char *trm_cluster_task_address(const trm_cluster *cluster, trm_role role,
                                             int32_t index);
/* Returns true if a chief, worker or server listens where other hosts can connect. Such a job needs
 * a token. */
TRM_API bool trm_cluster_beyond_loopback(const trm_cluster *cluster);

/* Describes the cluster as `trireme cluster show` prints it: lines for people, or one JSON object.
 *   errors   NOMEM
 *   owns     caller: trm_free(*out) */
TRM_API TRM_MUST_USE trm_status trm_cluster_text(const trm_cluster *cluster, bool json, char **out,
                                                 trm_error *err);

/* ---- joining --------------------------------------------------------------------------------- */

/* A place among the joined ranks of a job, from which trm_comm_create makes a communicator. */
typedef struct trm_bootstrap trm_bootstrap;

/* Options of joining. Zero means the default. */
typedef struct trm_join_options {
    double timeout_seconds;   /* until all ranks have joined; 0 = HCCL_CONNECT_TIMEOUT, or 120 */
    double heartbeat_seconds; /* between heartbeats; 0 = 1 */
    double host_seconds;      /* a host that acknowledges nothing for so long is lost; 0 = 4.5 */
    /* a process without a heartbeat for so long is lost; 0 = 120. A warning is logged after 10 s */
    double stall_seconds;
    const char *host_name; /* for tests, in place of the real one; NULL = the real one */
    bool insecure; /* accepts processes of other hosts without a token, with a warning for each */
} trm_join_options;

/* Meets the other ranks: rank 0 listens at the rendezvous, the others connect, with the token if
 * they come from another host. Every 10 s the missing ranks are logged. Afterwards a thread
 * exchanges heartbeats; when a rank dies, stops or is cut off, all ranks receive the first cause.
 * With size 1 there is no socket and no thread.
 *   param    cluster: may be destroyed afterwards
 *            options: NULL = defaults
 *   errors   TIMEOUT (naming the missing ranks), INVALID (ranks disagree on size, table or token,
 *            two have one rank, or the address cannot be used), PEER (another protocol version),
 *            END (in MindSpore's scheduler, TRM_ROLE_SCHEDULER, at the job's end: the program may
 *            exit with 0)
 *   owns     caller: trm_cluster_leave(*out), after destroying its communicators */
TRM_API TRM_MUST_USE trm_status trm_cluster_join(const trm_cluster *cluster,
                                                 const trm_join_options *options,
                                                 trm_bootstrap **out, trm_error *err);
/* Leaves the job, so that the other ranks do not count this one as dead, and frees the bootstrap.
 * NULL is accepted. */
TRM_API void trm_cluster_leave(trm_bootstrap *bootstrap);

/* ---- rank tables ---------------------------------------------------------------------------- */

/* Forms of rank tables. */
typedef enum trm_rank_table_form {
    TRM_RANK_TABLE_GROUPS = 1,    /* group_list with instance_list */
    TRM_RANK_TABLE_TEMPLATE2 = 2, /* group_list with pod_name, no rank_id */
    TRM_RANK_TABLE_V1 = 3,        /* version "1.0", and "1.2" with super pods */
    TRM_RANK_TABLE_V2 = 4         /* version "2.0", rank_list */
} trm_rank_table_form;

/* A rank table: which rank runs on which device of which server. */
typedef struct trm_rank_table trm_rank_table;

/* One rank of a rank table. */
typedef struct trm_rank_entry {
    int32_t rank;          /* from 0 */
    int32_t device_id;     /* on its server */
    int32_t server;        /* index of its server, in the order of the file */
    const char *server_id; /* borrowed from the table, as the other strings */
    const char *host;      /* host_ip if given, else server_id */
    const char *device_ip; /* "" if not given */
} trm_rank_entry;

/* Reads and checks a rank table of any form.
 *   errors   INVALID (file, field, expected, found, what to do), PENDING (status is
 *            "initializing"), NOMEM
 *   owns     caller: trm_rank_table_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_rank_table_read(const char *path, trm_rank_table **out,
                                                    trm_error *err);
/* Frees the table. NULL is accepted. */
TRM_API void trm_rank_table_destroy(trm_rank_table *table);
/* Returns the number of ranks. */
TRM_API int32_t trm_rank_table_size(const trm_rank_table *table);
/* Returns the entry of a rank.
 *   param    rank: 0 to size - 1; the entry of another one has rank -1 and empty strings
 *   owns     strings: the table */
TRM_API trm_rank_entry trm_rank_table_entry(const trm_rank_table *table, int32_t rank);
/* Describes the table as `trireme cluster check FILE` prints it: lines for people, or one JSON
 * object.
 *   errors   NOMEM
 *   owns     caller: trm_free(*out) */
TRM_API TRM_MUST_USE trm_status trm_rank_table_text(const trm_rank_table *table, bool json,
                                                    char **out, trm_error *err);

/* One host of trm_rank_table_make. */
typedef struct trm_rank_table_host {
    const char *host;              /* name or address, becomes server_id */
    int32_t devices;               /* device_id 0 to devices - 1 */
    const char *const *device_ips; /* [devices] addresses; NULL = none */
} trm_rank_table_host;

/* Makes the text of a table: ranks in the order of the hosts, then of the devices.
 *   param    hosts: [count]
 *            form: TRM_RANK_TABLE_V1 or TRM_RANK_TABLE_GROUPS
 *   errors   INVALID (no hosts, a host twice, 0 or more than 4096 devices, a bad address), NOMEM
 *   owns     caller: trm_free(*json) */
TRM_API TRM_MUST_USE trm_status trm_rank_table_make(const trm_rank_table_host *hosts, int32_t count,
                                                    trm_rank_table_form form, char **json,
                                                    trm_error *err);
/* Reads the device addresses of an Ascend host ("address_0=192.168.100.101" lines) for
 * trm_rank_table_make.
 *   param    ips: [*count], written
 *   errors   IO, INVALID (with the line), NOMEM
 *   owns     caller: trm_free((void *)*ips), one block */
TRM_API TRM_MUST_USE trm_status trm_hccn_conf_read(const char *path, const char *const **ips,
                                                   int32_t *count, trm_error *err);
/* Makes one table from a file of each server: in the order of the files, ranks renumbered from 0.
 * All files have the form of the first.
 *   param    paths: [count]
 *   errors   INVALID (naming the files), NOMEM
 *   owns     caller: trm_free(*json) */
TRM_API TRM_MUST_USE trm_status trm_rank_table_merge(const char *const *paths, int32_t count,
                                                     char **json, trm_error *err);

/* ---- the job's token ------------------------------------------------------------------------ */

enum { TRM_TOKEN_BYTES = 32 }; /* of the secret by which processes prove that they are of a job */

/* Reads the token at `path`, after creating it, with its folder, if there is none. Processes that
 * share a folder get the same token, whichever is first.
 *   param    token: written
 *   errors   IO, NOSPACE, those of trm_token_read */
TRM_API TRM_MUST_USE trm_status trm_token_share(const char *path, uint8_t token[32],
                                                trm_error *err);
/* Reads a token: a regular file of exactly 32 bytes that only its owner can read (or root and a
 * group of this process, as a Kubernetes Secret).
 *   param    token: written
 *   errors   INVALID (with the chmod that repairs it), IO */
TRM_API TRM_MUST_USE trm_status trm_token_read(const char *path, uint8_t token[32], trm_error *err);

/* ==== launching ============================================================================= */

/* Starts the processes of a job on this host, one for each rank or role, and ends them together.
 * Over several hosts another launcher starts them: docs/guides/launchers.md.
 *
 *     trm_launch(&(trm_launch_options){.ranks = 8, .command = argv + 3, .environment = environ,
 *                                      .write = print}, &result, &err);
 *     return result.exit_code;
 *
 * Each rank i has a directory device<i> with train.log<i> (its output) and env<i>.log (its
 * environment). The launcher waits for all ranks, ends the others if one fails, and leaves no
 * process behind, even if it is killed. */

/* Kinds of output of a job. */
typedef enum trm_launch_stream {
    TRM_LAUNCH_OUT = 1,    /* standard output of rank 0 (chief or worker 0), as it comes */
    TRM_LAUNCH_ERR = 2,    /* its standard error */
    TRM_LAUNCH_NOTE = 3,   /* a line of the launcher itself, without newline */
    TRM_LAUNCH_FAILURE = 4 /* such a line about a failure: rank, cause, the end of its log */
} trm_launch_stream;

/* Receives output of a job.
 *   param    data: [bytes], not terminated; valid during the call */
typedef void (*trm_launch_write)(void *context, trm_launch_stream stream, const char *data,
                                 size_t bytes);

/* Processes of one role. */
typedef struct trm_launch_role {
    trm_role role;              /* chief, worker, ps or evaluator, each at most once */
    int32_t count;              /* chief and evaluator: at most 1 */
    const char *const *command; /* as that of the options; NULL = that one */
    /* how often a failed process of this role is started again; not after exit code 1: the job has
     * failed, its loss diverged */
    int32_t restarts;
} trm_launch_role;

/* Options of a job on this host. Zero means the default. */
typedef struct trm_launch_options {
    int32_t ranks;              /* processes; unused with roles */
    const char *const *command; /* program and arguments, ended by NULL; looked up in PATH */
    /* variables that the processes inherit, ended by NULL, without those of other launchers; NULL =
     * none */
    const char *const *environment;
    const char *const *extra; /* "NAME=value" added last, ended by NULL; NULL = none */
    const char *directory;    /* of device<i>; NULL = "." */
    const char *rank_table;   /* becomes RANK_TABLE_FILE; is for `ranks` ranks; NULL = none */
    /* [role_count] in place of ranks: each process gets its TF_CONFIG */
    const trm_launch_role *roles;
    int32_t role_count; /* 0 = no roles */
    /* OMP_NUM_THREADS of each; 0 = the cores divided evenly, unless the environment has
     * OMP_NUM_THREADS */
    int32_t threads;
    trm_switch bind;        /* binds each process to its CPUs. Default: on */
    double timeout_seconds; /* after this the job is ended and has failed; 0 = none */
    double grace_seconds;   /* from SIGTERM to SIGKILL; 0 = 10 */
    /* servers that still run so long after all others have ended get SIGTERM; 0 = 10 */
    double drain_seconds;
    /* ranks that die do not end the job while so many are left; 0 = each death ends it. The
     * launcher passes on the output of the lowest rank that is left */
    int32_t elastic_least;
    /* how often each rank that has died is started again, to join the ranks that are left; with
     * elastic_least */
    int32_t elastic_restarts;
    bool dry_run;           /* prints what would run; starts nothing, makes no directory */
    trm_launch_write write; /* receives output; NULL = no output */
    void *context;          /* for `write` */
} trm_launch_options;

/* Result of a job. */
typedef struct trm_launch_result {
    /* 0 all succeeded; 2 a process failed; 5 timeout; 128 + n a process died of signal n, or exited
     * with that code, or the launcher was stopped by signal n */
    int32_t exit_code;
    int32_t failed_rank;   /* rank or task index of the first failure; -1 = none */
    trm_role failed_role;  /* its role */
    int32_t failed_signal; /* that ended it; 0 if it exited */
    int32_t failed_code;   /* its exit code */
    double seconds;        /* that the job ran */
} trm_launch_result;

/* Runs a job to its end. The last line is "training success", "training failed", or "training
 * stopped by signal N" if the launcher was stopped.
 *   returns  TRM_OK also for a job that failed: see result->exit_code
 *   errors   INVALID (options, program not found, table of another size), IO, NOMEM: the job did
 *            not start, no process is left running
 *   threads  the main thread, before other threads are started: the call handles SIGINT, SIGTERM,
 *            SIGHUP, SIGUSR1 and SIGUSR2 (forwarded; the first two also end the job, the second
 *            time at once) and SIGCHLD */
TRM_API TRM_MUST_USE trm_status trm_launch(const trm_launch_options *options,
                                           trm_launch_result *result, trm_error *err);

/* ==== collectives =========================================================================== */

/* Numbers between ranks. A communicator joins `size` ranks (processes or threads, on one host or
 * many). All its ranks call collectives in the same order:
 *
 *     float *gradient = trm_comm_alloc_shared(comm, bytes, &err);     peers reach it without copies
 *     trm_comm_allreduce(comm, gradient, count, TRM_FLOAT32, TRM_REDUCTION_MEAN, &err);
 *
 * All other operations, out of place or asynchronous, are described as data:
 *
 *     trm_collective op = {.kind = TRM_ALLGATHER, .send = mine, .recv = all, .count = k,
 *                          .dtype = TRM_INT64};
 *     trm_request *request;
 *     trm_comm_start(comm, &op, &request, &err);                      ... compute ...
 *     trm_request_wait(request, -1, &err);
 *
 * Operations of one communicator run in the order in which they were started. Each carries a
 * signature (sequence, kind, type, count, reduction, root) that all ranks compare before summing:
 * if they differ, every rank gets an error that shows both. Every wait ends: by a dead rank, a
 * stopped one or a deadline. The communicator is then poisoned: all later calls return the first
 * cause, and recovery needs a new communicator.
 *
 *   threads  one thread at a time per communicator, requests included; communicators are
 *            independent */

/* A communicator: ranks that run collectives together. */
typedef struct trm_comm trm_comm;
/* An asynchronous operation. */
typedef struct trm_request trm_request;

/* The operation that combines the values of ranks. Part of the wire format: append only. The mean
 * of integers is rounded towards zero. */
typedef enum trm_reduction {
    TRM_REDUCTION_NONE = 0,
    TRM_REDUCTION_SUM = 1,
    TRM_REDUCTION_MEAN = 2,
    TRM_REDUCTION_PROD = 3,
    TRM_REDUCTION_MAX = 4,
    TRM_REDUCTION_MIN = 5
} trm_reduction;
/* Returns the name of a reduction ("sum").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_reduction_name(trm_reduction reduce);

/* Kinds of collective. n is the size of the communicator, r the rank; counts are elements.
 *
 *                              send            recv                     uses
 *   TRM_ALLREDUCE              [count]         [count]                  reduce
 *   TRM_BROADCAST              root: [count]   [count]                  root
 *   TRM_REDUCE                 [count]         root: [count]            reduce, root
 *   TRM_ALLGATHER              [count]         [n * count]
 *   TRM_ALLGATHERV             [counts[r]]     [sum(counts)]            counts (equal on all ranks)
 *   TRM_REDUCE_SCATTER         [n * count]     [count]                  reduce
 *   TRM_REDUCE_SCATTERV        [sum(counts)]   [counts[r]]              reduce, counts (equal)
 *   TRM_SCATTER                root: [n*count] [count]                  root
 *   TRM_GATHER                 [count]         root: [n * count]        root
 *   TRM_ALLTOALL               [n * count]     [n * count]
 *   TRM_ALLTOALLV              see counts      see recv_counts          counts, recv_counts
 *   TRM_BARRIER                -               -                        count: see there
 *
 * In place (send == NULL): the rank's own data are in recv, at their place. That is all of recv for
 * all-reduce, broadcast, reduce and all-to-all; for all-gather, gather, scatter and reduce-scatter
 * it is this rank's block of the full [n * count] or [sum(counts)] vector (reduce-scatter leaves
 * the reduced block there). Otherwise send and recv must not overlap. */
typedef enum trm_collective_kind {
    TRM_COLLECTIVE_NONE = 0,
    TRM_ALLREDUCE = 1,
    TRM_BROADCAST = 2,
    TRM_REDUCE = 3,
    TRM_ALLGATHER = 4,
    TRM_ALLGATHERV = 5,
    TRM_REDUCE_SCATTER = 6,
    TRM_REDUCE_SCATTERV = 7,
    TRM_SCATTER = 8,
    TRM_GATHER = 9,
    TRM_ALLTOALL = 10,
    TRM_ALLTOALLV = 11,
    TRM_BARRIER = 12
} trm_collective_kind;
/* Returns the name of a kind ("all-reduce").
 *   owns     static string
 *   threads  any */
TRM_API const char *trm_collective_name(trm_collective_kind kind);

/* One collective, described as data. Zero where a kind does not use a member. */
typedef struct trm_collective {
    trm_collective_kind kind; /* the operation */
    const void *send;         /* read; NULL = in place */
    void *recv;               /* written */
    /* elements, as in the table above; unused by kinds that take counts. TRM_BARRIER: 0, or the
     * step after which the ranks stop: a rank that goes on with another call is then told so */
    int64_t count;
    trm_dtype dtype;      /* of the elements */
    trm_reduction reduce; /* how values are combined */
    int32_t root;         /* rank that sends to, or receives from, all */
    /* [size] elements for each rank; read before the call returns. Blocks lie packed in rank order
     * unless displacements say otherwise */
    const int64_t *counts;
    /* TRM_ALLTOALLV: [size] elements that each rank sends to this one */
    const int64_t *recv_counts;
    /* TRM_ALLTOALLV: [size] begins of blocks in send, in elements; NULL = packed */
    const int64_t *displacements;
    const int64_t *recv_displacements; /* the same in recv */
    /* names the tensor in errors and reports; the first 39 bytes are kept; NULL = none */
    const char *tag;
} trm_collective;

/* The order in which values are summed. FALSE: the fastest. TRUE: equal bits from run to run with
 * equal ranks and hosts. STRICT: element by element in rank order, whatever the algorithm, chunks,
 * hosts or buffers. */
typedef enum trm_deterministic {
    TRM_DETERMINISTIC_FALSE = 0,
    TRM_DETERMINISTIC_TRUE = 1,
    TRM_DETERMINISTIC_STRICT = 2
} trm_deterministic;

/* Options of a communicator. Zero means the default. Equal on all ranks, which creation checks. */
typedef struct trm_comm_options {
    /* "auto" (shared memory inside a host, the network between hosts), "shm", "tcp" (sockets even
     * inside a host), "ucx", "sim", "mpi" (in processes that mpirun or srun started); ucx and mpi
     * are plug-ins. NULL = auto */
    const char *engine;
    /* folder of trireme_comm_*.so; NULL = beside the program, then the system's */
    const char *plugin_dir;
    /* overrides the choice by cost, in HCCL_ALGO's form: "ring" for all operations, or a list
     * "allreduce=ring/allgather=level0:NA;level1:bruck/others=NB", or "level0:NA;level1:ring".
     * Algorithms: direct (mesh), ring, halving (H-D_R), nhr, bruck (NB), pairwise, tree, pipeline;
     * NA = by cost. An algorithm that an operation does not have is chosen by cost. NULL =
     * HCCL_ALGO when the job joined (trm_cluster_info.algorithm) */
    const char *algorithm;
    trm_deterministic deterministic; /* order of sums */
    double timeout_seconds;          /* deadline of an operation; 0 = HCCL_EXEC_TIMEOUT, or 120 */
    double report_seconds;           /* a warning names operation and ranks after this; 0 = 30 */
    size_t staging_bytes;            /* for each rank, for buffers that are not shared; 0 = 1 MB */
    /* a waiting rank spins at most so long before it sleeps; 0 = 200 (yields meanwhile if there are
     * more ranks than CPUs); TRM_NONE = no spinning */
    int32_t spin_microseconds;
    trm_switch direct; /* expert: reads peers' buffers without staging. Default: on */
    const char *name;  /* in reports; NULL = "world" */
} trm_comm_options;

/* Checks engine and algorithm as far as possible before ranks are started.
 *   errors   INVALID */
TRM_API TRM_MUST_USE trm_status trm_comm_check(const trm_comm_options *options, trm_error *err);

/* Creates a communicator of the ranks of a bootstrap (trm_cluster_join). Starts no thread until the
 * first asynchronous operation. Collective.
 *   param    options: NULL = defaults
 *   errors   INVALID (options differ between ranks, unknown engine or algorithm), UNSUPPORTED
 *            (plug-in missing), NOMEM, IO, TIMEOUT, PEER
 *   owns     caller: trm_comm_destroy(*out), before the bootstrap
 *   threads  any */
TRM_API TRM_MUST_USE trm_status trm_comm_create(trm_bootstrap *bootstrap,
                                                const trm_comm_options *options, trm_comm **out,
                                                trm_error *err);
/* Waits for this rank's started operations and frees the communicator. NULL is accepted. Not
 * collective: a rank that still waits for this one gets TRM_PEER. */
TRM_API void trm_comm_destroy(trm_comm *comm);

/* Returns this process's rank. */
TRM_API int32_t trm_comm_rank(const trm_comm *comm);
/* Returns the number of ranks. */
TRM_API int32_t trm_comm_size(const trm_comm *comm);
/* Returns this rank's place among the communicator's ranks on this host. */
TRM_API int32_t trm_comm_local_rank(const trm_comm *comm);
/* Returns the number of the communicator's ranks on this host. */
TRM_API int32_t trm_comm_local_size(const trm_comm *comm);
/* Returns the order of sums with which the communicator was created. */
TRM_API trm_deterministic trm_comm_deterministic(const trm_comm *comm);
/* Returns the engine in use: "shm", "shm+tcp", "tcp", ...
 *   owns     the communicator */
TRM_API const char *trm_comm_engine(const trm_comm *comm);

/* Creates a communicator of the ranks that pass the same colour, ordered by key, then rank. It
 * shares registered memory with `comm`. Collective over `comm`.
 *   param    colour: >= 0; negative: *out is NULL
 *   errors   as trm_comm_create
 *   owns     caller: trm_comm_destroy(*out), before `comm` */
TRM_API TRM_MUST_USE trm_status trm_comm_split(trm_comm *comm, int32_t colour, int32_t key,
                                               trm_comm **out, trm_error *err);

/* Allocates memory that all ranks of the host read and write in place: collectives on it need no
 * copies. Zeroed, 64-byte aligned, from 2 MB on in huge pages where the kernel has them. The kernel
 * frees it when its processes die. Takes up to three system calls. Not collective.
 *   returns  NULL when memory is out: err says so
 *   threads  any, also while another thread runs a collective of `comm`
 *   owns     caller: trm_comm_free_shared, else the last communicator */
TRM_API void *trm_comm_alloc_shared(trm_comm *comm, size_t bytes, trm_error *err);
/* Frees shared memory. No operation on it may be running on any rank. NULL is accepted. */
TRM_API void trm_comm_free_shared(trm_comm *comm, void *memory);
/* Takes shared memory from the communicator without freeing it, so that its values can be used
 * after the communicator is destroyed. Collectives treat it as ordinary memory from then on. No
 * operation on it may be running on any rank.
 *   returns  its size in bytes, as mapped; 0 if it is not from trm_comm_alloc_shared
 *   owns     caller: munmap(memory, returned size) */
TRM_API size_t trm_comm_keep_shared(trm_comm *comm, void *memory);

/* Runs one collective and returns when this rank's buffers are free. Algorithms and costs:
 * docs/internals/collectives.md.
 *   errors   INVALID (arguments, or ranks that disagree), PEER, TIMEOUT, NOMEM. Disagreement, PEER
 *            and TIMEOUT poison the communicator */
TRM_API TRM_MUST_USE trm_status trm_comm_run(trm_comm *comm, const trm_collective *op,
                                             trm_error *err);
/* Starts one collective and returns at once. The caller must not touch its buffers until the
 * request is done.
 *   errors   as trm_comm_run
 *   owns     caller: trm_request_wait(*request), again after TRM_PENDING */
TRM_API TRM_MUST_USE trm_status trm_comm_start(trm_comm *comm, const trm_collective *op,
                                               trm_request **request, trm_error *err);

/* Combines buffers of all ranks in place and gives every rank the result.
 *   param    buffer: [count] elements
 *   errors   as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_allreduce(trm_comm *comm, void *buffer, int64_t count,
                                                   trm_dtype dtype, trm_reduction reduce,
                                                   trm_error *err);
/* Copies rank `root`'s buffer to all ranks.
 *   param    buffer: [count] elements
 *   errors   as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_broadcast(trm_comm *comm, void *buffer, int64_t count,
                                                   trm_dtype dtype, int32_t root, trm_error *err);
/* Waits until all ranks have called it.
 *   errors   as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_barrier(trm_comm *comm, trm_error *err);

/* One side of a point-to-point message. Messages between two ranks arrive in order; count and type
 * must agree on both sides. */
typedef struct trm_message {
    bool receive;    /* direction; false: send */
    int32_t peer;    /* the other rank */
    void *buffer;    /* [count] elements; only read when sending */
    int64_t count;   /* elements */
    trm_dtype dtype; /* of the elements */
    const char *tag; /* names the tensor in errors; NULL = none */
} trm_message;

/* Sends and receives messages. All progress together, so that any pattern whose sends and receives
 * pair up completes. A send may return before it is received.
 *   param    messages: [count]
 *   errors   as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_exchange(trm_comm *comm, const trm_message *messages,
                                                  int32_t count, trm_error *err);
/* Starts to send and receive messages and returns at once. Consecutive exchanges progress together;
 * collectives started after them wait.
 *   param    messages: [count]
 *   errors   as trm_comm_run
 *   owns     caller: trm_request_wait(*request), again after TRM_PENDING */
TRM_API TRM_MUST_USE trm_status trm_comm_start_exchange(trm_comm *comm, const trm_message *messages,
                                                        int32_t count, trm_request **request,
                                                        trm_error *err);
/* Sends one message.
 *   param    buffer: [count] elements
 *            peer: the rank that receives
 *   errors   as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_send(trm_comm *comm, const void *buffer, int64_t count,
                                              trm_dtype dtype, int32_t peer, trm_error *err);
/* Receives one message.
 *   param    buffer: [count] elements
 *            peer: the rank that sends
 *   errors   as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_recv(trm_comm *comm, void *buffer, int64_t count,
                                              trm_dtype dtype, int32_t peer, trm_error *err);

/* Waits until a request is done, frees it and returns the operation's status.
 *   param    timeout_seconds: >= 0: the call may return TRM_PENDING after this time, and the
 *            request stays the caller's; negative: until the operation's deadline
 *   errors   PENDING, those of the operation (trm_comm_run) */
TRM_API trm_status trm_request_wait(trm_request *request, double timeout_seconds, trm_error *err);
/* Returns true if the request is done: trm_request_wait then returns at once. Never blocks. */
TRM_API bool trm_request_test(const trm_request *request);

/* Returns TRM_OK, or the first cause that poisoned the communicator. Never blocks.
 *   errors   PEER, TIMEOUT, INVALID (ranks that disagreed), or the cause of trm_comm_abort */
TRM_API TRM_MUST_USE trm_status trm_comm_health(trm_comm *comm, trm_error *err);
/* Poisons the communicator on all ranks: their operations fail with `cause`.
 *   param    cause: NULL = CANCELLED */
TRM_API void trm_comm_abort(trm_comm *comm, const trm_error *cause);

/* ==== elastic jobs =========================================================================== */

/* A job that goes on when ranks die, leave or join. A model of trireme/train.h needs only
 * trm_model_options.elastic; the calls below are for training loops of your own. The ranks of the
 * job form *epochs*: in each epoch the ranks are numbered anew, in their old order, and have a
 * communicator of their own.
 *
 *     trm_elastic_create(cluster, &options, &job, &err);
 *     status = membership.epoch > 0 ? TRM_OK : trm_elastic_recover(job, NULL, &err);   joins a job
 *     while (status == TRM_OK && step < steps) {
 *         status = one_step(trm_elastic_comm(job), ..., &err);
 *         if (trm_elastic_can_recover(status) || (all ranks have agreed that one wants a change)) {
 *             status = trm_elastic_recover(job, &err, &err);    a new communicator, other ranks
 *             ... END: this rank has left, else agree on the step, hand over the state, go on ...
 *         }
 *     } */

/* A process's place in an elastic job. */
typedef struct trm_elastic trm_elastic;

/* Options of an elastic job. */
typedef struct trm_elastic_options {
    int32_t least; /* the job fails with PEER when fewer ranks are left; 0 = 1 */
    int32_t most;  /* no process joins while the job has so many ranks; 0 = 1024 */
    /* a rank that does not come to the decision about the next epoch is given up after so long, or
     * after join.stall_seconds if its process is stopped or its host silent, and ended with SIGKILL
     * if it is on this host; 0 = 120 */
    double decision_seconds;
    trm_join_options join; /* of each epoch; its texts are borrowed until trm_elastic_destroy */
    trm_comm_options comm; /* of each epoch; borrowed as `join` */
} trm_elastic_options;

/* The ranks of an epoch. */
typedef struct trm_membership {
    int64_t epoch; /* 1 = the first, 0 = this process has not joined yet */
    int32_t rank;  /* of this process; -1 = it is in no epoch */
    int32_t ranks; /* of the epoch */
    /* numbers of the ranks that the last epoch had and this one has not, because they were lost or
     * have left in order, and of those that are new: a number is the rank in the first epoch, and
     * stays the same. Texts "2, 5" */
    char lost[96], left[96], joined[96];
    int32_t lost_count, left_count, joined_count;
    double seconds; /* that the last trm_elastic_recover took; of a model, until it could go on */
    /* of a model: steps that were computed again; ranks at the end without samples, which wait */
    int32_t redone_steps, spare_ranks;
    /* of a model: step of the checkpoint from which the ranks went on, because a part of the state
     * was lost; 0 = none */
    int64_t restored_step;
    /* whether this process has asked to leave and had to stay, because fewer than `least` ranks
     * would have been left */
    bool stays;
} trm_membership;

/* Meets the other ranks of an elastic job (trm_cluster_join). Where the job runs already, this
 * process comes later: it is alone, with a communicator of its own, until trm_elastic_recover has
 * made it a member. It needs what the first ranks had: the rendezvous, and the token if it is on
 * another host. Where more than half of the ranks have come to a TCP address or a file, and
 * `least`, and no other one for 10 s (a quarter of join.timeout_seconds, if that is less), the job
 * begins without the others, which join when they come.
 *   param    cluster: may be destroyed afterwards
 *            options: NULL = defaults
 *   errors   INVALID (least above most), those of trm_cluster_join and trm_comm_create
 *   owns     caller: trm_elastic_destroy(*out) */
TRM_API TRM_MUST_USE trm_status trm_elastic_create(const trm_cluster *cluster,
                                                   const trm_elastic_options *options,
                                                   trm_elastic **out, trm_error *err);
/* Leaves the job in order and frees it. NULL is accepted. */
TRM_API void trm_elastic_destroy(trm_elastic *elastic);
/* Returns the communicator of the present epoch; NULL while there is none, after a failed recovery.
 *   owns     the elastic job, until the next trm_elastic_recover */
TRM_API trm_comm *trm_elastic_comm(const trm_elastic *elastic);
/* Describes the present epoch. */
TRM_API void trm_elastic_get_membership(const trm_elastic *elastic, trm_membership *out);
/* Returns whether an operation failed for a reason that a new epoch removes: a rank that died or
 * does not answer (PEER, TIMEOUT). */
TRM_API bool trm_elastic_can_recover(trm_status status);
/* Makes this process leave the job with the next trm_elastic_recover, which then returns END. Where
 * fewer than `least` ranks would be left, it stays, and its wish is over: trm_membership has
 * `stays`, and the program may end the job on all ranks.
 *   threads  any; may be called from a signal handler */
TRM_API void trm_elastic_request_leave(trm_elastic *elastic);
/* Returns whether a process wants to leave or to join, as far as this rank knows. The ranks agree
 * on it between two steps, and all call trm_elastic_recover.
 *   threads  any */
TRM_API bool trm_elastic_wants_change(trm_elastic *elastic);
/* Decides with the other survivors on the ranks of the next epoch and makes its communicator. Every
 * communicator of the old epoch is gone: those split from it must be destroyed before the call.
 *   param    cause: error of the operation that failed; NULL = not known, or none failed
 *   errors   END (this process has left: trm_elastic_request_leave), TIMEOUT (no place became free
 *            in join.timeout_seconds), PEER (fewer than `least` ranks; the survivors are no
 *            majority and the death of the others is not proven; this rank was given up by the
 *            others), INVALID (this process has come with other options of the communicator than
 *            the ranks have, which go on without it: it calls trm_elastic_destroy), NOMEM, IO */
TRM_API TRM_MUST_USE trm_status trm_elastic_recover(trm_elastic *elastic, const trm_error *cause,
                                                    trm_error *err);

/* ==== three calls =========================================================================== */

/* Three calls that make a training program of any framework run on many ranks, as the example at
 * the beginning of this header. On one device they have no effect.
 *
 * NULL in the place of trm_ranks means the process's own ranks, which trm_join, or else the
 * first call with NULL, joins. This rank leaves them when the process ends: after exit(0) it has
 * left in order, after any other end the other ranks receive that it failed. A program that decides
 * itself when to leave, or has several jobs in one process, holds trm_ranks of its own
 * between begin and end.
 *
 * Values are plain tensors anywhere in memory; one whose data is NULL (a variable without a
 * gradient) is skipped. Sizes and types of a list are the same on every rank.
 *
 *   threads  one thread at a time per trm_ranks; NULL counts as one */

/* Joins the ranks that a launcher has started (trireme run, mpirun, srun, torchrun, ...): finds
 * this process's rank in the environment and meets the others. Models of this process, and the
 * calls below with NULL, then use them. Without a launcher there is one rank. Further calls have no
 * effect.
 *   errors   those of trm_distribute_begin */
TRM_API TRM_MUST_USE trm_status trm_join(trm_error *err);

/* The ranks of a job, for the three calls. */
typedef struct trm_ranks trm_ranks;

/* Finds this process's rank in the environment (trm_cluster_from_env) and meets the other ranks.
 *   param    flags: options of a command line; NULL = none
 *   errors   INVALID (sources that disagree), TIMEOUT and PEER (ranks that do not come), NOMEM
 *   owns     caller: trm_distribute_end(*out) */
TRM_API TRM_MUST_USE trm_status trm_distribute_begin(const trm_cluster_flags *flags,
                                                     trm_ranks **out, trm_error *err);
/* Uses an existing communicator, which is borrowed.
 *   param    comm: NULL = one device
 *   errors   NOMEM
 *   owns     caller: trm_distribute_end(*out) */
TRM_API TRM_MUST_USE trm_status trm_distribute_over(trm_comm *comm, trm_ranks **out,
                                                    trm_error *err);
/* Leaves the job and frees the object. NULL has no effect. */
TRM_API void trm_distribute_end(trm_ranks *ranks);

/* Returns this process's rank. With NULL, if joining fails: 0, and the next call that can fail
 * returns the error. */
TRM_API int32_t trm_distribute_rank(const trm_ranks *ranks);
/* Returns the number of ranks. With NULL, if joining fails: 1, as trm_distribute_rank. */
TRM_API int32_t trm_distribute_size(const trm_ranks *ranks);

/* Gives the communicator, for trm_exec_options.parallel.comm; NULL on one device.
 *   errors   those of trm_distribute_begin, with NULL in a first call; INVALID in a forked child
 *   owns     ranks: valid until trm_distribute_end; with NULL until the process ends */
TRM_API TRM_MUST_USE trm_status trm_distribute_comm(trm_ranks *ranks, trm_comm **out,
                                                    trm_error *err);

/* Copies the values of rank `root` to every rank.
 *   param    values: [count], of any type
 *   errors   INVALID, those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_distribute_broadcast(trm_ranks *ranks, const trm_tensor *values,
                                                         int32_t count, int32_t root,
                                                         trm_error *err);
/* Replaces every value by the sum, mean, product, maximum or minimum over the ranks. Neighbours of
 * one type are sent together, up to 4 MB at a time. The mean of integers is rounded towards zero.
 *   param    values: [count]
 *   errors   INVALID (no such reduction; lists that differ between ranks), those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_distribute_all_reduce(trm_ranks *ranks,
                                                          const trm_tensor *values, int32_t count,
                                                          trm_reduction reduce, trm_error *err);
/* Shards a dataset by rank and sets its batch to global_batch / size. A rank gets every size-th
 * element; the first ones come twice where the count is no multiple of size, so that all ranks have
 * equally many steps.
 *   param    dataset: not read yet; NULL = only the local batch size is wanted
 *            global_batch: samples of all ranks
 *            local_batch: samples of this rank, written
 *   errors   INVALID (the number of ranks does not divide global_batch) */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_and_rebatch(trm_ranks *ranks,
                                                                 trm_dataset *dataset,
                                                                 int64_t global_batch,
                                                                 int64_t *local_batch,
                                                                 trm_error *err);
/* Shards data in plain arrays: moves this rank's rows (every size-th, wrapped as above) to the
 * front of each array, in their order, so that the batches k of all ranks together are batch k of
 * one process.
 *   param    arrays: [count], each of *samples rows of any shape; written
 *            samples, batch: of all ranks; replaced by those of this rank
 *   errors   INVALID (the number of ranks does not divide *batch, or an array is not *samples equal
 *            rows) */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_arrays(trm_ranks *ranks,
                                                            const trm_tensor *arrays, int32_t count,
                                                            int64_t *samples, int64_t *batch,
                                                            trm_error *err);

/* An array of floats as a tensor, for calls of one line:
 *     TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(weights, 100), 1, 0, &err)); */
#define TRM_FLOATS(pointer, count)                                                                 \
    ((trm_tensor){.data = (pointer), .dtype = TRM_FLOAT32, .shape = {.rank = 1, .dim = {(count)}}})

#ifdef __cplusplus
}
#endif
#endif
