/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/dist.h: a job of many ranks: who this process is, how ranks start and meet, collectives, and
 * three calls that make a training program distributed.
 *
 *     cluster       rank, size, hosts and roles of this process, from whatever started it
 *     launching     the processes of a job on this host
 *     collectives   communicators, and operations on them
 *     three calls   shard the data, broadcast the weights, all-reduce the gradients */
#ifndef TRIREME_DIST_H
#define TRIREME_DIST_H

#include "trireme/base.h"
#include "trireme/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ==== cluster =============================================================================== */

/* Who am I? Rank, size, hosts and roles of this process, from whatever started
 * it; rank tables; the token that peers on other hosts must know.
 *
 *     trm_cluster *cluster;
 *     trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err);     // the only call that reads the environment
 *     const trm_cluster_info *me = trm_cluster_get(cluster);
 *     printf("rank %d of %d, from %s\n", me->rank, me->size, me->source);
 *
 * Sources, first match wins: flags, TF_CONFIG, rank table (RANK_TABLE_FILE), CM_*, trireme run,
 * torchrun (also PyTorchJob), Open MPI, MPICH/PMI, PMIx, MVAPICH, Slurm step, MindSpore MS_*;
 * otherwise one single process. Two sources that disagree are TRM_INVALID naming both.
 */

typedef enum trm_role {
    TRM_ROLE_WORKER = 0,
    TRM_ROLE_CHIEF = 1,
    TRM_ROLE_PS = 2,
    TRM_ROLE_EVALUATOR = 3,
    TRM_ROLE_SCHEDULER = 4 /* MindSpore's MS_SCHED: trm_cluster_join waits for the job's end */
} trm_role;
/* "worker", "chief", "ps", "evaluator", "scheduler". */
TRM_API const char *trm_role_name(trm_role role);

/* What the command line says. Zero means not given, everywhere. Strings are borrowed for the call.
 * Host lists are "host:port,host:port", blanks around the commas are fine. */
typedef struct trm_cluster_flags {
    int32_t rank, size;             /* looked at when size > 0 */
    int32_t local_rank, local_size; /* looked at when local_size > 0 */
    const char *job_name;           /* ps, worker, chief, evaluator */
    const char *task_index;         /* as written, "0" */
    const char *ps_hosts;
    const char *worker_hosts;
    const char *chief_hosts;
    const char *evaluator_hosts;
    const char *rank_table;    /* file; instead of RANK_TABLE_FILE */
    const char *rendezvous;    /* "host:port", "unix:PATH" or "file:PATH" */
    const char *token_file;    /* 32 bytes, mode 0600 */
    bool needs_ps;             /* refuse a cluster without parameter servers */
    bool any_address;          /* do not demand that this host has its address in the table */
    double table_wait_seconds; /* for a table that says "initializing"; 0 = 300, < 0 = none */
} trm_cluster_flags;

typedef struct trm_cluster trm_cluster;

/* What was found. Strings live as long as the cluster. */
typedef struct trm_cluster_info {
    const char *source; /* "rank table /a/b.json (RANK_TABLE_FILE)" */
    /* The world that trains together: chief first, then the workers by index. */
    int32_t rank;       /* 0 to size-1; -1 for ps, evaluator and scheduler, which are outside */
    int32_t size;       /* 1 without a cluster; 0 when unknown (TFJob's sparse worker map) */
    int32_t local_rank; /* among the ranks of this host; -1 when only the rendezvous will tell */
    int32_t local_size; /* 0 when only the rendezvous will tell */
    int32_t device_id;  /* from the table or DEVICE_ID, otherwise the local rank, otherwise 0 */
    /* Roles; a world without roles is `size` workers. */
    trm_role role;
    int32_t task_index;  /* within the role */
    bool has_roles;      /* described by TF_CONFIG or the flags above */
    bool is_chief;       /* the chief, or worker 0 where no chief is listed: saves and summarises */
    bool also_evaluates; /* TF1's "master": evaluates after each save itself */
    bool sparse_workers; /* TFJob's enableDynamicWorker: other workers come and go */
    bool one_console;    /* mpirun, srun, torchrun: what all ranks print is shown as one text */
    bool rank_later;     /* CM_* without RANK_ID: rank is -1 until the rendezvous assigns it */
    const char *model_dir;    /* TF_CONFIG's model_dir, or NULL */
    const char *rendezvous;   /* where rank 0 listens: "host:port", "unix:PATH", "file:PATH";
                               NULL when size is 1 or nothing names an address */
    int32_t rendezvous_ports; /* consecutive ports to try, from the one in `rendezvous` */
    const char *token_file;   /* or NULL */
    const char *algorithm;    /* HCCL_ALGO, or NULL: the default of trm_comm_options.algorithm */
} trm_cluster_info;

typedef const char *(*trm_lookup)(void *context, const char *name);

/* Resolves from `flags` (may be NULL) and the environment.
 *   in      lookup   NULL = getenv; otherwise asked for every variable, NULL = not set
 *   owns    caller destroys *out
 *   error   INVALID for anything wrong in flags, variables or files, one sentence that names the
 *           place; TIMEOUT if a table stayed "initializing"; NOMEM
 *   thread  any, while nobody changes the environment */
TRM_API TRM_MUST_USE trm_status trm_cluster_from_env(const trm_cluster_flags *flags,
                                                     trm_lookup lookup, void *context,
                                                     trm_cluster **out, trm_error *err);
/* The same from flags alone; the environment is not read. No flags: a single process. */
TRM_API TRM_MUST_USE trm_status trm_cluster_create(const trm_cluster_flags *flags,
                                                   trm_cluster **out, trm_error *err);
TRM_API void trm_cluster_destroy(trm_cluster *cluster);

/* owns: the cluster */
TRM_API const trm_cluster_info *trm_cluster_get(const trm_cluster *cluster);
/* Tasks of a role, and "host:port" of one (NULL if there is none, or a sparse map does not say). */
TRM_API int32_t trm_cluster_task_count(const trm_cluster *cluster, trm_role role);
TRM_API const char *trm_cluster_task_address(const trm_cluster *cluster, trm_role role,
                                             int32_t index);
/* Does a chief, worker or server listen where other hosts reach it? Such a job needs a token. */
TRM_API bool trm_cluster_beyond_loopback(const trm_cluster *cluster);
/* Host name or address of a rank; NULL when only the rendezvous will tell. */
TRM_API const char *trm_cluster_rank_host(const trm_cluster *cluster, int32_t rank);
/* Things that are odd but not wrong, one sentence each. */
TRM_API int32_t trm_cluster_warning_count(const trm_cluster *cluster);
TRM_API const char *trm_cluster_warning(const trm_cluster *cluster, int32_t index);
/* SHA-256 of what all ranks must agree on: size, tables, host lists; not of who this rank is. */
TRM_API void trm_cluster_digest(const trm_cluster *cluster, uint8_t digest[32]);

/* What `trireme cluster show` prints: lines for people, or one JSON object.
 *   owns   caller frees *out with trm_free     error NOMEM */
TRM_API TRM_MUST_USE trm_status trm_cluster_text(const trm_cluster *cluster, bool json, char **out,
                                                 trm_error *err);

/* ---- Joining ----------------------------------------------------------------------------------
 */

/* A place among the ranks of a job: what trm_comm_create takes. */
typedef struct trm_bootstrap trm_bootstrap;

typedef struct trm_join_options {
    double timeout_seconds;   /* for all ranks to come; 0 = HCCL_CONNECT_TIMEOUT, or 120 */
    double heartbeat_seconds; /* 0 = 1 */
    double host_seconds;      /* a host that acknowledges nothing for so long is lost; 0 = 4.5 */
    double stall_seconds;     /* a process without heartbeat for so long is lost; 0 = 120. Its
                                 silence is logged from 10 s on */
    const char *host_name;    /* pretend to be on this host, for tests; NULL = the real one */
    bool insecure;            /* let peers of other hosts in without a token; logged each time */
} trm_join_options;

/* Meets the other ranks: rank 0 listens at the rendezvous, the others come; all must know the
 * token if they come from another host. Every 10 s the missing ranks are logged. Afterwards a
 * thread keeps heartbeats and tells every rank the first cause when one dies, is stopped or is cut
 * off. With size 1 there is no socket and no thread.
 *   in      cluster   may be destroyed afterwards; options NULL = defaults
 *   owns    caller calls trm_cluster_leave(*out), after its communicators
 *   error   END in MindSpore's scheduler (TRM_ROLE_SCHEDULER): it has waited for the job's end, the
 *           program may exit with 0;
 *           TIMEOUT naming the ranks that are missing; INVALID when ranks disagree (size, table,
 *           rank twice, token) or the address is no use; PEER for another protocol version */
TRM_API TRM_MUST_USE trm_status trm_cluster_join(const trm_cluster *cluster,
                                                 const trm_join_options *options,
                                                 trm_bootstrap **out, trm_error *err);
/* Leaves in order, so that the others do not take it for a death. NULL is fine. */
TRM_API void trm_cluster_leave(trm_bootstrap *bootstrap);

/* ---- Rank tables ---------------------------------------------------------------------------- */

typedef enum trm_rank_table_form {
    TRM_RANK_TABLE_LAB = 1,       /* group_list/instance_list */
    TRM_RANK_TABLE_TEMPLATE2 = 2, /* group_list with pod_name, no rank_id */
    TRM_RANK_TABLE_V1 = 3,        /* version "1.0", and "1.2" with super pods */
    TRM_RANK_TABLE_V2 = 4         /* version "2.0", rank_list */
} trm_rank_table_form;

typedef struct trm_rank_table trm_rank_table;

typedef struct trm_rank_entry {
    int32_t rank;
    int32_t device_id;
    int32_t server;        /* index, in the order of the file */
    const char *server_id; /* borrowed from the table */
    const char *host;      /* host_ip if given, otherwise server_id */
    const char *device_ip; /* "" if not given */
} trm_rank_entry;

/* Reads and validates a table of any form.
 *   owns   caller destroys *out
 *   error  INVALID: file, field, expected, found, what to do; PENDING: status is "initializing";
 *          NOMEM */
TRM_API TRM_MUST_USE trm_status trm_rank_table_read(const char *path, trm_rank_table **out,
                                                    trm_error *err);
/* The same from memory; `name` stands for the file in messages. */
TRM_API TRM_MUST_USE trm_status trm_rank_table_parse(const char *name, const char *text,
                                                     size_t bytes, trm_rank_table **out,
                                                     trm_error *err);
TRM_API void trm_rank_table_destroy(trm_rank_table *table);
TRM_API trm_rank_table_form trm_rank_table_get_form(const trm_rank_table *table);
TRM_API int32_t trm_rank_table_size(const trm_rank_table *table);
TRM_API int32_t trm_rank_table_servers(const trm_rank_table *table);
/* Entry of rank 0 <= rank < size. */
TRM_API trm_rank_entry trm_rank_table_entry(const trm_rank_table *table, int32_t rank);
/* Template 2 only: the first rank of a pod and its number of devices; false if there is none. */
TRM_API bool trm_rank_table_pod(const trm_rank_table *table, const char *pod_name,
                                int32_t *first_rank, int32_t *count);
TRM_API int32_t trm_rank_table_warning_count(const trm_rank_table *table);
TRM_API const char *trm_rank_table_warning(const trm_rank_table *table, int32_t index);
/* SHA-256 of ranks, servers, devices and addresses, the same for every spelling of a table. */
TRM_API void trm_rank_table_digest(const trm_rank_table *table, uint8_t digest[32]);
/* What `trireme cluster check FILE` prints; owns and error as trm_cluster_text. */
TRM_API TRM_MUST_USE trm_status trm_rank_table_text(const trm_rank_table *table, bool json,
                                                    char **out, trm_error *err);

typedef struct trm_rank_table_host {
    const char *host;              /* name or address: becomes server_id */
    int32_t devices;               /* device_id 0 to devices-1 */
    const char *const *device_ips; /* `devices` addresses, or NULL */
} trm_rank_table_host;

/* Writes a table: ranks in the order of the hosts, then of the devices.
 *   in     form   TRM_RANK_TABLE_V1 or TRM_RANK_TABLE_LAB
 *   owns   caller frees *json with trm_free
 *   error  INVALID (no hosts, a host twice, 0 or more than 4096 devices, bad address), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_rank_table_make(const trm_rank_table_host *hosts, int32_t count,
                                                    trm_rank_table_form form, char **json,
                                                    trm_error *err);
/* Reads the device addresses of an Ascend host ("address_0=192.168.100.101" lines) for make.
 *   owns   caller frees (*ips) with trm_free((void *)ips): one block
 *   error  IO, INVALID with the line, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_hccn_conf_read(const char *path, const char *const **ips,
                                                   int32_t *count, trm_error *err);
/* One table from one file per server: files in argument order, ranks renumbered from 0. The form
 * is that of the first file; all must have it.   error  INVALID naming the file(s), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_rank_table_merge(const char *const *paths, int32_t count,
                                                     char **json, trm_error *err);

/* ---- The job's token ------------------------------------------------------------------------ */

enum { TRM_TOKEN_BYTES = 32 };

/* Makes a token file of mode 0600 with 32 random bytes; an existing file is an error. */
TRM_API TRM_MUST_USE trm_status trm_token_create(const char *path, trm_error *err);
/* The token at `path`, made first, with its folder, where there is none: processes that share a
 * folder come to the same one, whoever is
 * first.   error  as of both others */
TRM_API TRM_MUST_USE trm_status trm_token_share(const char *path, uint8_t token[32],
                                                trm_error *err);
/* Reads one: a regular file of exactly 32 bytes that nobody but its owner can read.
 *   error  INVALID with the chmod that repairs it */
TRM_API TRM_MUST_USE trm_status trm_token_read(const char *path, uint8_t token[32], trm_error *err);

/* ==== launching ============================================================================= */

/* Starts the processes of a job on this host, one per rank or one per role, and
 * ends them together. Over several hosts another launcher starts them: docs/guides/launchers.md.
 *
 *     trm_launch_options options = {.ranks = 8, .command = argv + 3, .environment = environ,
 *                                   .write = print, .directory = "."};
 *     trm_launch_result result;
 *     trm_launch(&options, &result, &err);
 *     return result.exit_code;
 *
 * Each rank i has a directory device<i> with train.log<i> (its output) and
 * env<i>.log (its environment). All ranks are waited for, one that fails ends the
 * others, and nothing is left behind, even if the launcher is killed.
 */

typedef enum trm_launch_stream {
    TRM_LAUNCH_OUT = 1,  /* standard output of rank 0 (chief or worker 0), as it comes */
    TRM_LAUNCH_ERR = 2,  /* its standard error */
    TRM_LAUNCH_SAY = 3,  /* a line of the launcher itself, without newline */
    TRM_LAUNCH_BLAME = 4 /* such a line about a failure: who, how, the end of its log */
} trm_launch_stream;

typedef void (*trm_launch_write)(void *context, trm_launch_stream stream, const char *data,
                                 size_t bytes);

/* Processes of one role. */
typedef struct trm_launch_role {
    trm_role role;              /* chief, worker, ps or evaluator, each at most once */
    int32_t count;              /* chief and evaluator: at most 1 */
    const char *const *command; /* NULL = the command of the options */
    /* so often a failed process of this role is started again; not one that ended with exit code 1:
     * the job has failed, its loss diverged */
    int32_t restarts;
} trm_launch_role;

typedef struct trm_launch_options {
    int32_t ranks;                  /* processes here; ignored with roles */
    const char *const *command;     /* program and arguments, ended by NULL; looked up in PATH */
    const char *const *environment; /* what the processes inherit, ended by NULL; NULL = nothing.
                                       What other launchers left in it is not passed on */
    const char *const *extra;       /* "NAME=value" added last, ended by NULL; may be NULL */
    const char *directory;          /* where device<i> are made; NULL = "." */
    const char *rank_table;         /* becomes RANK_TABLE_FILE; must be for `ranks` ranks */
    const trm_launch_role *roles;   /* instead of ranks: each process gets its TF_CONFIG */
    int32_t role_count;
    int32_t threads;        /* OMP_NUM_THREADS of each; 0 = the cores shared out evenly, unless
                                   the environment has OMP_NUM_THREADS */
    bool no_binding;        /* leave the affinity alone */
    double timeout_seconds; /* 0 = none; the job is then ended and has failed */
    double grace_seconds;   /* from SIGTERM to SIGKILL; 0 = 10 */
    /* ps still running after all others have ended get SIGTERM; 0 = 10 */
    double drain_seconds;
    bool dry_run;           /* say what would run, start nothing, make no directory */
    trm_launch_write write; /* NULL = silent */
    void *context;
} trm_launch_options;

typedef struct trm_launch_result {
    int32_t exit_code;   /* 0 all succeeded; 2 a process failed; 128 + n: it died of signal n, ended
                            with that code itself, or the
                            launcher was asked to stop by signal n; 5 timeout */
    int32_t failed_rank; /* rank or task index of the first failure, -1 if there is none */
    trm_role failed_role;
    int32_t failed_signal; /* 0 if it exited */
    int32_t failed_code;
    double seconds;
} trm_launch_result;

/* Runs the job to its end. The last line is "training success", "training failed", or "training
 * stopped by signal N" where the launcher was told to end.
 *   error   INVALID (options, program not found, table of another size), IO, NOMEM: the job could
 *           not be started, nothing is left running. A job that failed is TRM_OK with an exit code
 *   thread  from the main thread, before other threads are started: it takes SIGINT, SIGTERM,
 *           SIGHUP, SIGUSR1, SIGUSR2 (forwarded; the first two also end the job, the second time at
 *           once) and SIGCHLD while it runs */
TRM_API TRM_MUST_USE trm_status trm_launch(const trm_launch_options *options,
                                           trm_launch_result *result, trm_error *err);

/* ==== collectives =========================================================================== */

/* Numbers between ranks.
 *
 * A communicator joins `size` ranks (processes or threads, on one host or many). Collectives are
 * called by every rank of it in the same order:
 *
 *     float *gradient = trm_comm_alloc_shared(comm, bytes, &err);     peers reach it without copies
 *     trm_comm_allreduce(comm, gradient, count, TRM_FLOAT32, TRM_REDUCTION_MEAN, &err);
 *
 * Everything else, out of place or asynchronous, is an operation described as data:
 *
 *     trm_collective op = {.kind = TRM_ALLGATHER, .send = mine, .recv = all, .count = k,
 *                          .dtype = TRM_INT64};
 *     trm_request *request;
 *     trm_comm_start(comm, &op, &request, &err);                      ... compute ...
 *     trm_request_wait(request, -1, &err);
 *
 * Operations of one communicator run in the order in which they were started. Each carries a
 * signature (sequence, kind, type, count, reduction, root) that is compared on all ranks before
 * anything is summed: ranks that disagree all get an error that shows both sides. No wait is for
 * ever: a dead rank, a stopped one or a deadline ends it, and the communicator is then poisoned:
 * every later call returns the same first cause. Recovery is a new communicator.
 *
 * Threads: one thread at a time per communicator, requests included; communicators are independent.
 */

typedef struct trm_comm trm_comm;
typedef struct trm_request trm_request;

/* Part of the wire format: append only. The mean of integers is cut towards zero. */
typedef enum trm_reduction {
    TRM_REDUCTION_NONE = 0,
    TRM_REDUCTION_SUM = 1,
    TRM_REDUCTION_MEAN = 2,
    TRM_REDUCTION_PROD = 3,
    TRM_REDUCTION_MAX = 4,
    TRM_REDUCTION_MIN = 5
} trm_reduction;
TRM_API const char *trm_reduction_name(trm_reduction reduce); /* "sum" */

/* Kinds of collective. n = size of the communicator, r = rank; counts are elements.
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
 *   TRM_BARRIER                -               -
 * In place: send == NULL means that the rank's own data lie in recv, where they belong: all of it
 * (all-reduce, broadcast, reduce, all-to-all), or the full [n * count] or [sum(counts)] vector with
 * this rank's block at its place (all-gather, gather, scatter, reduce-scatter; the reduced block is
 * left
 * there). Otherwise send and recv must not overlap. */
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
TRM_API const char *trm_collective_name(trm_collective_kind kind); /* "all-reduce" */

typedef struct trm_collective {
    trm_collective_kind kind;
    const void *send;
    void *recv;
    int64_t count; /* unused by the kinds that take counts */
    trm_dtype dtype;
    trm_reduction reduce;
    int32_t root;
    /* [n] elements for each rank; read before the call returns. Blocks lie packed in rank order
     * unless the displacements (also [n], elements) say otherwise; only TRM_ALLTOALLV takes those.
     */
    const int64_t *counts;
    const int64_t *recv_counts; /* TRM_ALLTOALLV: what each rank sends to this one */
    const int64_t *displacements;
    const int64_t *recv_displacements;
    /* names the tensor in errors and reports; first 39 characters kept; may be NULL */
    const char *tag;
} trm_collective;

/* How sums are ordered. FALSE: fastest. TRUE: equal bits from run to run with equal ranks and
 * hosts. STRICT: element by element in rank order, whatever the algorithm, chunks, hosts or
 * buffers. */
typedef enum trm_deterministic {
    TRM_DETERMINISTIC_FALSE = 0,
    TRM_DETERMINISTIC_TRUE = 1,
    TRM_DETERMINISTIC_STRICT = 2
} trm_deterministic;

/* Zero means the default. Equal on all ranks (checked at creation). */
typedef struct trm_comm_options {
    /* "auto" (shm inside a host, the network between hosts), "shm", "tcp" (sockets even inside the
     * host), "ucx", "sim", "mpi" (only in processes that mpirun or srun started: theirs is taken).
     * ucx and mpi are plug-ins. */
    const char *engine;
    /* where trireme_comm_*.so lie; NULL: beside the program, then the system's */
    const char *plugin_dir;
    /* Overrides the choice by cost, in HCCL_ALGO's form: "ring" for everything, or a list
     * "allreduce=ring/allgather=level0:NA;level1:bruck/others=NB", or "level0:NA;level1:ring".
     * Algorithms: direct (mesh), ring, halving (H-D_R), nhr, bruck (NB), pairwise, tree, pipeline;
     * NA: by cost. One that does not apply to an operation falls back to the choice by cost. NULL:
     * what HCCL_ALGO said when the job joined (trm_cluster_info.algorithm). */
    const char *algorithm;
    trm_deterministic deterministic;
    double timeout_seconds; /* an operation fails after this; default HCCL_EXEC_TIMEOUT, or 120 */
    double report_seconds;  /* a warning names operation and ranks after this; default 30 */
    size_t staging_bytes;   /* per rank, for buffers that are not shared; default 1 MB */
    /* before a waiting rank sleeps, at most; default 200 (ranks > CPUs: yielding meanwhile); -1 off
     */
    int32_t spin_microseconds;
    bool no_direct;   /* tests: never touch peers' buffers, always stage */
    const char *name; /* for reports; default "world" */
} trm_comm_options;

/* Are engine and algorithm what there is? What can be known before ranks are started.   error INVALID
 */
TRM_API TRM_MUST_USE trm_status trm_comm_check(const trm_comm_options *options, trm_error *err);

/* Joins the ranks of a bootstrap (trm_cluster_join).
 * Collective.
 *   owns    caller destroys *out before the bootstrap
 *   error   INVALID (options differ between ranks, unknown engine or algorithm), UNSUPPORTED
 *           (plug-in missing), NOMEM, IO, TIMEOUT, PEER
 *   thread  any; no thread is started until the first asynchronous operation */
TRM_API TRM_MUST_USE trm_status trm_comm_create(trm_bootstrap *bootstrap,
                                                const trm_comm_options *options, trm_comm **out,
                                                trm_error *err);
/* Waits for this rank's started operations, leaves, frees. NULL is fine. Not collective: a rank
 * that still waits for this one gets TRM_PEER. */
TRM_API void trm_comm_destroy(trm_comm *comm);

TRM_API int32_t trm_comm_rank(const trm_comm *comm);
TRM_API int32_t trm_comm_size(const trm_comm *comm);
TRM_API int32_t trm_comm_local_rank(const trm_comm *comm); /* among this host's ranks of it */
TRM_API int32_t trm_comm_local_size(const trm_comm *comm);
/* in the first communicator */
TRM_API int32_t trm_comm_world_rank(const trm_comm *comm, int32_t rank);
TRM_API trm_deterministic trm_comm_deterministic(const trm_comm *comm); /* as it was created */
TRM_API const char *trm_comm_engine(const trm_comm *comm); /* "shm", "shm+tcp", "tcp", ... */

/* Ranks that pass the same colour (>= 0) form a communicator, ordered by key, then rank; a negative
 * colour gives *out == NULL. Collective over `comm`. The child shares registered memory with it and
 * must be destroyed first. Errors and ownership as trm_comm_create. */
TRM_API TRM_MUST_USE trm_status trm_comm_split(trm_comm *comm, int32_t colour, int32_t key,
                                               trm_comm **out, trm_error *err);
/* The communicator of `ranks[count]` (of `comm`) in that order; *out == NULL on others. Collective
 * over `comm`; every rank passes the same list. */
TRM_API TRM_MUST_USE trm_status trm_comm_group(trm_comm *comm, const int32_t *ranks, int32_t count,
                                               trm_comm **out, trm_error *err);

/* Memory that all ranks of the host read and write in place: collectives on it need no copies.
 * Zeroed, 64-byte aligned, from 2 MB on in huge pages where the kernel has them. Nothing remains of
 * it after any death. Not collective.
 *   owns  freed by trm_comm_free_shared or with the last communicator
 *   NULL on lack of memory, `err` then says so   cost a system call or three: not in a step */
TRM_API void *trm_comm_alloc_shared(trm_comm *comm, size_t bytes, trm_error *err);
/* No operation on it may be running anywhere. NULL is fine. */
TRM_API void trm_comm_free_shared(trm_comm *comm, void *memory);

/* Does every rank reach rank 0's memory? All are processes of one host then. The same answer on all
 * ranks. */
TRM_API bool trm_comm_reaches_first(const trm_comm *comm);
/* Rank 0's `memory` (from trm_comm_alloc_shared; looked at on rank 0 only), as every rank can read
 * and write it:
 * one copy of what all have alike. Ranks order their accesses themselves (trm_comm_barrier).
 * Collective.
 *   out    *out; NULL on all where ranks are on several hosts, or threads of one process
 *   owns   rank 0; on the others valid until rank 0 frees it, or this rank's last communicator goes
 *   error  INVALID (memory of another kind), IO (this host's ranks cannot open each other's memory)
 */
TRM_API TRM_MUST_USE trm_status trm_comm_reach_first(trm_comm *comm, void *memory, size_t bytes,
                                                     void **out, trm_error *err);

/* Runs one collective and returns when this rank's buffers are free to use.
 *   error   INVALID (bad arguments, or ranks that disagree), PEER, TIMEOUT, NOMEM; PEER, TIMEOUT and
 *           disagreement poison the communicator
 *   cost    docs/internals/collectives.md
 */
TRM_API TRM_MUST_USE trm_status trm_comm_run(trm_comm *comm, const trm_collective *op,
                                             trm_error *err);
/* Starts it and returns at once. Buffers stay untouched by the caller until the request is done.
 *   owns  every request is given to trm_request_wait once more after TRM_PENDING or TIMEOUT */
TRM_API TRM_MUST_USE trm_status trm_comm_start(trm_comm *comm, const trm_collective *op,
                                               trm_request **request, trm_error *err);

/* The common three, in place, blocking.   error  as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_allreduce(trm_comm *comm, void *buffer, int64_t count,
                                                   trm_dtype dtype, trm_reduction reduce,
                                                   trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_broadcast(trm_comm *comm, void *buffer, int64_t count,
                                                   trm_dtype dtype, int32_t root, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_barrier(trm_comm *comm, trm_error *err);

/* One side of a point-to-point message: count elements to or from `peer`. Messages between two
 * ranks arrive in order; count and type must agree on both sides. */
typedef struct trm_message {
    bool receive;
    int32_t peer;
    void *buffer; /* only read when sending */
    int64_t count;
    trm_dtype dtype;
    const char *tag;
} trm_message;

/* All messages of a batch progress together, so any pattern that pairs up completes. A send may
 * return before it is received. Errors as trm_comm_run. */
TRM_API TRM_MUST_USE trm_status trm_comm_exchange(trm_comm *comm, const trm_message *messages,
                                                  int32_t count, trm_error *err);
/* The same, asynchronous; consecutive batches progress together, collectives after them wait. */
TRM_API TRM_MUST_USE trm_status trm_comm_start_exchange(trm_comm *comm, const trm_message *messages,
                                                        int32_t count, trm_request **request,
                                                        trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_send(trm_comm *comm, const void *buffer, int64_t count,
                                              trm_dtype dtype, int32_t peer, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_recv(trm_comm *comm, void *buffer, int64_t count,
                                              trm_dtype dtype, int32_t peer, trm_error *err);

/* Waits until the request is done, then frees it and returns the operation's status. With
 * timeout_seconds >= 0 it may return TRM_PENDING first: the request is then still the caller's. */
TRM_API trm_status trm_request_wait(trm_request *request, double timeout_seconds, trm_error *err);
/* True once done (trm_request_wait then returns at once). Never blocks. */
TRM_API bool trm_request_test(const trm_request *request);

/* TRM_OK, or the first cause that poisoned the communicator. Never blocks. */
TRM_API TRM_MUST_USE trm_status trm_comm_health(trm_comm *comm, trm_error *err);
/* Poisons it on purpose, on all ranks: their operations fail with `cause` (NULL: CANCELLED). */
TRM_API void trm_comm_abort(trm_comm *comm, const trm_error *cause);

/* ==== three calls =========================================================================== */

/* Three calls that make a training program of one's own, with or without our
 * graph, run on many ranks. On one device they have no effect.
 *
 *     trm_distribute_shard_and_rebatch(NULL, data, 256, &batch, &err);     data of this rank
 *     trm_distribute_broadcast(NULL, weights, count, 0, &err);             begin alike
 *     for (...) {
 *         ... gradients of `batch` samples ...
 *         trm_distribute_all_reduce(NULL, gradients, count, TRM_REDUCTION_MEAN, &err);
 *         ... update ...
 *     }
 *
 * NULL in the place of a trm_distribute stands for the process's own ranks. The first call with it
 * finds out from the environment which rank this is and meets the others, as trm_distribute_begin
 * does; the end of the process ends them: after exit(0) this rank has left, after any other end the
 * others are told that it failed. Programs that want to say when, or have several jobs in one
 * process, hold a trm_distribute of their own between begin and end.
 *
 * Values are plain tensors anywhere in memory; one with data NULL (a variable without a gradient)
 * is
 * passed over and stays NULL. The sizes and types of a list are the same on every rank.
 *   thread  one at a time per trm_distribute, NULL counting as one */

typedef struct trm_distribute trm_distribute;

/* Finds out from the environment which rank this is (trm_cluster_from_env), and meets the others.
 *   in     flags  what a command line says, or NULL
 *   owns   caller: trm_distribute_end
 *   error  INVALID (sources that disagree), TIMEOUT and PEER (others that do not come), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_distribute_begin(const trm_cluster_flags *flags,
                                                     trm_distribute **out, trm_error *err);
/* The same on a communicator that there is already (borrowed); NULL is one device. */
TRM_API TRM_MUST_USE trm_status trm_distribute_over(trm_comm *comm, trm_distribute **out,
                                                    trm_error *err);
/* NULL is accepted and does nothing. */
TRM_API void trm_distribute_end(trm_distribute *distribute);

/* With NULL where the process's ranks cannot begin: 0 of 1, and the next call that can fail says
 * why. */
TRM_API int32_t trm_distribute_rank(const trm_distribute *distribute);
TRM_API int32_t trm_distribute_size(const trm_distribute *distribute);

/* What is beneath, for what takes a communicator (trm_model_options.parallel.comm); *out is NULL on
 * one device.
 *   owns   distribute: valid until its end; with NULL until the process's
 *   error  those of trm_distribute_begin, with NULL in a first call */
TRM_API TRM_MUST_USE trm_status trm_distribute_comm(trm_distribute *distribute, trm_comm **out,
                                                    trm_error *err);

/* Every value of rank `root` on every rank, of any type.   error  INVALID, and those of trm_comm_run
 */
TRM_API TRM_MUST_USE trm_status trm_distribute_broadcast(trm_distribute *distribute,
                                                         const trm_tensor *values, int32_t count,
                                                         int32_t root, trm_error *err);
/* Replaces every value by the sum, mean, product, maximum or minimum over the ranks. Neighbours of
 * one type travel together, up to 4 MB at a time. The mean of integers is cut towards zero.
 *   error  INVALID (a reduction that there is not; lists that differ between ranks), those of
 *          trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_distribute_all_reduce(trm_distribute *distribute,
                                                          const trm_tensor *values, int32_t count,
                                                          trm_reduction reduce, trm_error *err);
/* This rank's part of a dataset: every size-th element (the first come twice where that does not
 * come
 * out even, so that no rank waits for a step that another lacks), in batches of global_batch /
 * size.
 *   in     dataset  not read yet; NULL: only the local batch size is wanted (other people's loaders)
 *   out    *local_batch
 *   error  INVALID: the number of ranks does not divide global_batch
 */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_and_rebatch(trm_distribute *distribute,
                                                                 trm_dataset *dataset,
                                                                 int64_t global_batch,
                                                                 int64_t *local_batch,
                                                                 trm_error *err);
/* The same for data in plain arrays. Of `*samples` rows of each array, those of this rank (every
 * size-th,
 * wrapped round as above) are moved to its front, in their order, so that the ranks' batches k
 * together
 * are the batch k of one process.
 *   in     arrays  each of *samples rows, in any shape; written
 *   out    *samples, *batch  in: of all ranks; out: of this rank
 *   error  INVALID: the number of ranks does not divide *batch; an array that is no *samples equal rows
 */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_arrays(trm_distribute *distribute,
                                                            const trm_tensor *arrays, int32_t count,
                                                            int64_t *samples, int64_t *batch,
                                                            trm_error *err);

/* An array as a tensor, so that a call in a program of plain arrays is one line:
 *     TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(weights, 100), 1, 0, &err)); */
#define TRM_FLOATS(pointer, count)                                                                 \
    ((trm_tensor){.data = (pointer), .dtype = TRM_FLOAT32, .shape = {.rank = 1, .dim = {(count)}}})

#ifdef __cplusplus
}
#endif
#endif
