/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/cluster_claim.h: what one source says about this process. All sources that speak are
 * asked; cluster.c takes the first in order of precedence and holds the others against it.
 *
 *   flags, TF_CONFIG, rank table, CM_*, trireme run, torchrun, Open MPI, PMI, PMIx, MVAPICH,
 *   Slurm step, MindSpore  ->  claims[]  ->  winner, or "A says ..., B says ..." */
#ifndef TRMI_COMM_CLUSTER_CLAIM_H
#define TRMI_COMM_CLUSTER_CLAIM_H

#include "trireme/cluster.h"

#include "base/memory.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/cluster/tfconfig.h"

enum { TRMI_CLAIMS_MAX = 16, TRMI_ENV_RANKS_MAX = 1 << 20 };

typedef struct trmi_environment {
    trm_lookup lookup; /* never NULL */
    void *context;
} trmi_environment;

typedef struct trmi_claim {
    char source[112];
    int32_t rank;       /* -1: not said */
    int32_t size;       /* 0: not said */
    int32_t local_rank; /* -1: not said */
    int32_t local_size; /* 0: not said */
    int32_t nodes;      /* 0: not said */
    int32_t agents;     /* of torchrun: one per node; 0 otherwise */
    int32_t total;      /* with roles: all tasks; otherwise 0 */
    trm_role role;
    bool launcher;      /* starts processes, so it may carry another launcher */
    bool one_console;   /* shows what all its processes print as one text */
    bool one_per_node;  /* Slurm: a step of one task per node, as agents are started */
    bool needs_company; /* RANK_ID and RANK_SIZE alone say nothing about where peers are */
    bool rank_later;
    bool watched;       /* a scheduler waits for the end of the job */
    bool first_is_root; /* no rank has a number: the first one at the address becomes rank 0 */
    int32_t port;       /* rank 0's address on several hosts; 0: none */
    int32_t ports;
    char address[256];
    char key[192]; /* the same on all ranks of this job, different for other jobs */
} trmi_claim;

typedef struct trmi_claims {
    trmi_claim items[TRMI_CLAIMS_MAX];
    int32_t count;
} trmi_claims;

/* HCCL_* variables (cluster_hccl.c). */
typedef struct trmi_hccl {
    double connect_seconds; /* for all ranks to meet; 0: not said */
    double exec_seconds;    /* of one collective; 0: not said */
    int32_t deterministic;  /* trm_deterministic */
    char address[64];       /* on which peers reach this rank; "": that of its route to rank 0 */
} trmi_hccl;

struct trm_cluster {
    trm_cluster_info info;
    trmi_arena arena;
    trmi_tfconfig roles;
    trm_rank_table *table;
    char algorithm[TRMI_ALGORITHM_BYTES]; /* HCCL_ALGO, checked; "" without */
    trmi_hccl hccl;
    bool first_is_root, watched; /* as in the claim */
    const char **rank_hosts;     /* [size], or NULL */
    uint8_t key[32];             /* hash of the job's key: peers of another job are told apart */
    const char *warnings[8];
    int32_t warning_count;
};

/* A variable's text, NULL if it is not set or empty. */
const char *trmi_env_text(const trmi_environment *env, const char *name);
/* A whole number from `low` to `high`; *out is untouched and *set false when it is not there. */
trm_status trmi_env_integer(const trmi_environment *env, const char *name, int64_t low,
                            int64_t high, bool *set, int32_t *out, trm_error *err);
/* A new claim that says nothing yet. */
trmi_claim *trmi_claim_add(trmi_claims *claims, const char *format, ...) TRM_PRINTF(2, 3);

/* Ascend's ways (rank table, CM_*, RANK_ID alone) and those of the launchers, in order. */
trm_status trmi_claim_ascend(const trm_cluster_flags *flags, const trmi_environment *env,
                             trm_cluster *cluster, trmi_claims *claims, trm_error *err);
trm_status trmi_claim_launchers(const trmi_environment *env, trmi_claims *claims, trm_error *err);

/* HCCL_* for a cluster whose size is known.   error INVALID */
trm_status trmi_take_hccl(const trmi_environment *env, trm_cluster *cluster, trm_error *err);

void trmi_cluster_warn(trm_cluster *cluster, const char *format, ...) TRM_PRINTF(2, 3);

#endif
