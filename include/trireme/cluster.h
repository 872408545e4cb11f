/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/cluster.h: who am I? Rank, size, hosts and roles of this process, from whatever started
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
#ifndef TRIREME_CLUSTER_H
#define TRIREME_CLUSTER_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
