/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/cluster_claim.h: what one source (flags, environment variables of one launcher, a
 * rank table) states about this process. cluster.c collects the claims of all sources that state
 * anything, takes the first one in order of precedence and compares the others with it.
 *
 *   flags, TF_CONFIG, rank table, CM_*, trireme run, torchrun, Open MPI, PMI, PMIx, MVAPICH,
 *   Slurm step, MindSpore  ->  claims[]  ->  winner, or the error "A: ..., but B: ..."
 */
#ifndef TRMI_COMM_CLUSTER_CLAIM_H
#define TRMI_COMM_CLUSTER_CLAIM_H

#include "trireme/dist.h"

#include "base/memory.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/cluster/ranktable.h"
#include "comm/cluster/tfconfig.h"

/* claims at most; largest number in a variable */
enum { TRMI_CLAIMS_MAX = 16, TRMI_ENV_RANKS_MAX = 1 << 20 };

/* Where variables come from: the process's environment, or a test's table. */
typedef struct trmi_environment {
    trm_lookup lookup; /* returns a variable's text or NULL; never NULL itself */
    void *context;
} trmi_environment;

/* The statements of one source. A field with its "not stated" value makes no statement. */
typedef struct trmi_claim {
    char source[112];   /* name of the source, for messages */
    int32_t rank;       /* -1: not stated */
    int32_t size;       /* number of ranks; 0: not stated */
    int32_t local_rank; /* -1: not stated */
    int32_t local_size; /* 0: not stated */
    int32_t nodes;      /* number of hosts; 0: not stated */
    int32_t agents;     /* number of torchrun's agents, one for each node; 0: not torchrun */
    int32_t total;      /* with roles: number of all tasks; otherwise 0 */
    trm_role role;      /* WORKER unless the source has roles */
    bool launcher;      /* the source starts processes, so it may have started another launcher */
    bool one_console;   /* the source shows the output of all its processes as one text */
    /* Slurm: the step has one task for each node, as agents of another launcher do */
    bool one_per_node;
    bool lacks_address; /* RANK_ID and RANK_SIZE alone do not say where the peers are */
    bool rank_later;    /* the rank is assigned at the rendezvous */
    bool watched;       /* a scheduler process waits for the end of the job */
    bool first_is_root; /* no rank has a number: the first process at the address becomes rank 0 */
    char address[TRMI_HOST_BYTES]; /* host of rank 0; "": not stated */
    int32_t port;                  /* port of rank 0's address; 0: not stated */
    int32_t ports; /* how many ports, from `port` on, rank 0 may take; 0: that one only */
    char key[192]; /* equal on all ranks of this job, different for other jobs */
} trmi_claim;

/* All claims, in order of precedence. */
typedef struct trmi_claims {
    trmi_claim items[TRMI_CLAIMS_MAX]; /* the first `count` are used */
    int32_t count;                     /* at most TRMI_CLAIMS_MAX */
} trmi_claims;

/* The values of HCCL_* variables (cluster_hccl.c). */
typedef struct trmi_hccl {
    double connect_seconds; /* deadline for all ranks to meet; 0: not stated */
    double exec_seconds;    /* deadline of one collective; 0: not stated */
    int32_t deterministic;  /* a trm_deterministic */
    char address[64]; /* address on which peers reach this rank; "": that of its route to rank 0 */
} trmi_hccl;

/* A resolved cluster description. */
struct trm_cluster {
    trm_cluster_info info;                /* what the public API shows */
    trmi_arena arena;                     /* holds the texts of `info` and the warnings */
    trmi_tfconfig roles;                  /* roles and their addresses, if the job has roles */
    trm_rank_table *table;                /* the rank table, or NULL */
    char algorithm[TRMI_ALGORITHM_BYTES]; /* HCCL_ALGO after its check, or "" */
    trmi_hccl hccl;                       /* values of HCCL_* variables */
    bool first_is_root, watched;          /* see trmi_claim */
    const char **rank_hosts;              /* [size] host of each rank, or NULL if unknown */
    uint8_t key[32];        /* hash of the winner's key: the rendezvous distinguishes jobs by it */
    trmi_warnings warnings; /* of the variables and flags, and of their roles */
    /* those, then those of the rank table; info.warning_count of them */
    const char *all_warnings[2 * TRMI_WARNINGS_MAX];
};

/* Returns the text of a variable, NULL if it is not set or empty. */
const char *trmi_env_text(const trmi_environment *env, const char *name);
/* Reads a whole number from `low` to `high`. If the variable is not set (trmi_env_text), *out keeps
 * its value.
 *   errors  INVALID */
trm_status trmi_env_integer(const trmi_environment *env, const char *name, int64_t low,
                            int64_t high, int32_t *out, trm_error *err);
/* Adds a claim that states nothing yet; the format makes its source. */
trmi_claim *trmi_claim_add(trmi_claims *claims, const char *format, ...) TRM_PRINTF(2, 3);

/* Add the claims of Ascend's variables (rank table, CM_*, RANK_ID alone) and of the launchers, in
 * order of precedence.
 *   errors  INVALID for values that cannot be right */
trm_status trmi_claim_ascend(const trm_cluster_flags *flags, const trmi_environment *env,
                             trm_cluster *cluster, trmi_claims *claims, trm_error *err);
trm_status trmi_claim_launchers(const trmi_environment *env, trmi_claims *claims, trm_error *err);

/* Reads HCCL_* for a cluster whose size is known.
 *   errors  INVALID */
trm_status trmi_take_hccl(const trmi_environment *env, trm_cluster *cluster, trm_error *err);

/* Computes the SHA-256 of all that ranks must agree on: size, tables and host lists, without the
 * rank itself. */
void trmi_cluster_digest(const trm_cluster *cluster, uint8_t digest[32]);

/* Logs the warnings: rank 0 and a process that has no other ranks, when the job starts. */
void trmi_cluster_log_warnings(const trm_cluster *cluster);

#endif
