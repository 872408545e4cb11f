/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers leave in the environment of the processes that they start. */
#include "comm/cluster/cluster_claim.h"

#include "base/error.h"
#include "comm/cluster/cluster_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTEGER(name, low, set, out)                                                               \
    TRMI_TRY(trmi_env_integer(env, (name), (low), TRMI_ENV_RANKS_MAX, (set), (out), err))

/* RANK and SIZE together, or neither. */
static trm_status pair(const trmi_environment *env, const char *rank_name, const char *size_name,
                       bool *found, int32_t *rank, int32_t *size, trm_error *err) {
    bool has_rank, has_size;
    INTEGER(rank_name, 0, &has_rank, rank);
    INTEGER(size_name, 1, &has_size, size);
    *found = has_rank && has_size;
    if (*found && *rank >= *size) {
        return TRMI_FAIL(err, TRM_INVALID, "%s=%d, but %s=%d; a rank from 0 to %d expected",
                         rank_name, *rank, size_name, *size, *size - 1);
    }
    return TRM_OK;
}

static trm_status local_pair(const trmi_environment *env, const char *rank_name,
                             const char *size_name, trmi_claim *claim, trm_error *err) {
    bool set, size_set;
    INTEGER(rank_name, 0, &set, &claim->local_rank);
    INTEGER(size_name, 1, &size_set, &claim->local_size);
    if (set && size_set && claim->local_rank >= claim->local_size) {
        return TRMI_FAIL(err, TRM_INVALID, "%s=%d, but %s=%d; a local rank from 0 to %d expected",
                         rank_name, claim->local_rank, size_name, claim->local_size,
                         claim->local_size - 1);
    }
    if (size_set && claim->local_size == claim->size) {
        claim->nodes = 1;
    }
    return TRM_OK;
}

static trm_status trireme_run(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found;
    int32_t rank, size;
    TRMI_TRY(pair(env, "TRIREME_RANK", "TRIREME_SIZE", &found, &rank, &size, err));
    if (!found) {
        const char *one = trmi_env_text(env, "TRIREME_RANK")   ? "TRIREME_RANK"
                          : trmi_env_text(env, "TRIREME_SIZE") ? "TRIREME_SIZE"
                                                               : NULL;
        return one == NULL
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_INVALID, "%s is set, but %s is not; set both, or neither",
                               one, one[8] == 'R' ? "TRIREME_SIZE" : "TRIREME_RANK");
    }
    trmi_claim *claim = trmi_claim_add(claims, "trireme run");
    claim->rank = rank;
    claim->size = size;
    claim->launcher = true;
    return local_pair(env, "TRIREME_LOCAL_RANK", "TRIREME_LOCAL_SIZE", claim, err);
}

static const char *or_empty(const char *text) { return text != NULL ? text : ""; }

/* torchrun, and PyTorchJob's plain form. With an agent's store MASTER_PORT is taken already. */
static trm_status torchrun(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found, set;
    int32_t rank, size, port = 0;
    if (trmi_env_text(env, "MASTER_ADDR") == NULL) {
        return TRM_OK; /* RANK alone is anybody's variable */
    }
    if (trmi_env_text(env, "RANK") != NULL && trmi_env_text(env, "WORLD_SIZE") == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "RANK and MASTER_ADDR are set, but WORLD_SIZE is not; torchrun and "
                         "PyTorchJob set all three");
    }
    TRMI_TRY(pair(env, "RANK", "WORLD_SIZE", &found, &rank, &size, err));
    if (!found) {
        return TRM_OK;
    }
    const char *run = trmi_env_text(env, "TORCHELASTIC_RUN_ID");
    trmi_claim *claim = trmi_claim_add(claims, "%s",
                                       run ? "torchrun"
                                           : "PyTorchJob (RANK, "
                                             "WORLD_SIZE)");
    claim->rank = rank;
    claim->size = size;
    claim->launcher = true;
    claim->one_console = run != NULL; /* PyTorchJob's pods have logs of their own */
    TRMI_TRY(local_pair(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE", claim, err));
    INTEGER("GROUP_WORLD_SIZE", 1, &set, &claim->agents);
    TRMI_TRY(trmi_env_integer(env, "MASTER_PORT", 1, 65535, &set, &port, err));
    const char *address = trmi_env_text(env, "MASTER_ADDR");
    const char *store = trmi_env_text(env, "TORCHELASTIC_USE_AGENT_STORE");
    bool taken = store != NULL && strcmp(store, "True") == 0;
    snprintf(claim->address, sizeof claim->address, "%s", address);
    if (set && (!taken || port < 65535)) {
        claim->port = taken ? port + 1 : port;
        claim->ports = taken ? (int32_t)(65536 - claim->port < 16 ? 65536 - claim->port : 16) : 1;
    }
    snprintf(claim->key, sizeof claim->key, "torch %.60s %.60s %d %.20s", or_empty(run), address,
             port, or_empty(trmi_env_text(env, "TORCHELASTIC_RESTART_COUNT")));
    return TRM_OK;
}

static trm_status open_mpi(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found, set;
    int32_t rank, size;
    TRMI_TRY(pair(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &found, &rank, &size, err));
    if (!found) {
        return TRM_OK;
    }
    trmi_claim *claim = trmi_claim_add(claims, "Open MPI");
    claim->rank = rank;
    claim->size = size;
    claim->launcher = claim->one_console = true;
    INTEGER("OMPI_MCA_orte_num_nodes", 1, &set, &claim->nodes);
    const char *job = trmi_env_text(env, "PMIX_NAMESPACE");
    snprintf(claim->key, sizeof claim->key, "ompi %.60s %.60s",
             or_empty(job ? job : trmi_env_text(env, "OMPI_MCA_ess_base_jobid")),
             or_empty(trmi_env_text(env, "OMPI_MCA_orte_hnp_uri")));
    return local_pair(env, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", claim, err);
}

/* Name, parent and start time of a process, from /proc. */
static bool process_of(int pid, char name[32], int *parent, unsigned long long *start) {
    char path[48], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (open == NULL || close == NULL || close < open) {
        return false;
    }
    snprintf(name, 32, "%.*s", (int)(close - open - 1 < 31 ? close - open - 1 : 31), open + 1);
    /* Fields after the name: state, parent, ..., the 20th is the start time. */
    char *rest = close + 1;
    *start = 0;
    for (int field = 1; field <= 20; field++) {
        rest += strspn(rest, " ");
        if (field == 2) {
            *parent = atoi(rest);
        } else if (field == 20) {
            *start = strtoull(rest, NULL, 10);
        }
        rest += strcspn(rest, " ");
    }
    return true;
}

/* MPICH leaves no job id, but all ranks of a host descend from one proxy process. */
static void ancestor_key(const char *wanted, char *key, size_t size) {
    char name[32];
    int pid = (int)getppid(), parent = 0;
    unsigned long long start;
    for (int depth = 0; depth < 16 && pid > 1 && process_of(pid, name, &parent, &start); depth++) {
        if (strncmp(name, wanted, strlen(wanted)) == 0) {
            snprintf(key, size, "%s %d %llu", wanted, pid, start);
            return;
        }
        pid = parent;
    }
    if (process_of((int)getppid(), name, &parent, &start)) {
        snprintf(key, size, "parent %d %llu", (int)getppid(), start);
    }
}

static trm_status pmi(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found;
    int32_t rank, size;
    TRMI_TRY(pair(env, "PMI_RANK", "PMI_SIZE", &found, &rank, &size, err));
    if (!found) {
        return TRM_OK;
    }
    trmi_claim *claim = trmi_claim_add(claims, "MPICH (PMI_RANK, PMI_SIZE)");
    claim->rank = rank;
    claim->size = size;
    claim->launcher = claim->one_console = true;
    const char *slurm = trmi_env_text(env, "SLURM_STEP_ID");
    if (slurm != NULL && trmi_env_text(env, "HYDI_CONTROL_FD") == NULL) {
        snprintf(claim->key, sizeof claim->key, "pmi slurm %.40s.%.40s",
                 or_empty(trmi_env_text(env, "SLURM_JOB_ID")), slurm);
    } else {
        ancestor_key("hydra_pmi_proxy", claim->key, sizeof claim->key);
    }
    TRMI_TRY(local_pair(env, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", claim, err));
    if (claim->nodes != 1) { /* a process id means nothing on another host */
        strcpy(claim->key, "pmi");
    }
    return TRM_OK;
}

/* PMIx gives the rank; the size only where Open MPI or Slurm say it. */
static trm_status pmix(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool set;
    int32_t rank;
    INTEGER("PMIX_RANK", 0, &set, &rank);
    if (!set || trmi_env_text(env, "PMIX_NAMESPACE") == NULL) {
        return TRM_OK;
    }
    trmi_claim *claim = trmi_claim_add(claims, "PMIx (PMIX_RANK)");
    claim->rank = rank;
    claim->launcher = claim->one_console = true;
    snprintf(claim->key, sizeof claim->key, "pmix %.120s", trmi_env_text(env, "PMIX_NAMESPACE"));
    return TRM_OK;
}

static trm_status mvapich(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found;
    int32_t rank, size;
    TRMI_TRY(pair(env, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", &found, &rank, &size, err));
    if (!found) {
        return TRM_OK;
    }
    trmi_claim *claim = trmi_claim_add(claims, "MVAPICH");
    claim->rank = rank;
    claim->size = size;
    claim->launcher = claim->one_console = true;
    ancestor_key("mpispawn", claim->key, sizeof claim->key);
    TRMI_TRY(local_pair(env, "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", claim, err));
    if (claim->nodes != 1) {
        strcpy(claim->key, "mvapich");
    }
    return TRM_OK;
}

/* "2(x3),1": tasks on node `index`; 0 if the text is not of that form. */
static int32_t tasks_on_node(const char *text, int32_t index) {
    for (int32_t node = 0; *text != '\0';) {
        char *end;
        long tasks = strtol(text, &end, 10), repeat = 1;
        if (end == text || tasks < 1 || tasks > TRMI_ENV_RANKS_MAX) {
            return 0;
        }
        if (strncmp(end, "(x", 2) == 0) {
            repeat = strtol(end + 2, &end, 10);
            if (*end != ')' || repeat < 1 || repeat > TRMI_ENV_RANKS_MAX) {
                return 0;
            }
            end++;
        }
        if (index < node + repeat) {
            return (int32_t)tasks;
        }
        node += (int32_t)repeat;
        text = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\0') {
            return 0;
        }
    }
    return 0;
}

/* The first host of "node[03-05,9],login1" is node03. */
static void first_node(const char *list, char *out, size_t size) {
    size_t prefix = strcspn(list, "[,");
    size_t used = prefix < size - 1 ? prefix : size - 1;
    memcpy(out, list, used);
    if (list[prefix] == '[') {
        const char *digits = list + prefix + 1;
        size_t length = strspn(digits, "0123456789");
        for (size_t i = 0; i < length && used < size - 1; i++) {
            out[used++] = digits[i];
        }
        const char *close = strchr(digits, ']');
        for (close = close ? close + 1 : ""; *close != '\0' && *close != ',' && used < size - 1;) {
            out[used++] = *close++;
        }
    }
    out[used] = '\0';
}

/* Where no count of nodes was passed on: one, if all tasks are on it or the list has one name;
 * otherwise unknown. */
static bool is_one_node(const trmi_claim *claim, const char *list) {
    return claim->local_size == claim->size ||
           (list != NULL && list[0] != '\0' && strpbrk(list, "[,") == NULL);
}

static trm_status slurm_step(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found, set;
    int32_t rank, size, node = 0, job = 0, step = 0;
    /* A batch script or salloc's shell has an allocation, but is no step of several tasks. */
    if (trmi_env_text(env, "SLURM_STEP_ID") == NULL || trmi_env_text(env, "SLURM_PTY_PORT")) {
        return TRM_OK;
    }
    const char *size_name =
        trmi_env_text(env, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    TRMI_TRY(pair(env, "SLURM_PROCID", size_name, &found, &rank, &size, err));
    if (!found) {
        return TRM_OK;
    }
    trmi_claim *claim = trmi_claim_add(claims, "Slurm step");
    claim->rank = rank;
    claim->size = size;
    claim->launcher = claim->one_console = true;
    INTEGER("SLURM_STEP_NUM_NODES", 1, &set, &claim->nodes);
    INTEGER("SLURM_NODEID", 0, &set, &node);
    INTEGER("SLURM_LOCALID", 0, &set, &claim->local_rank);
    const char *per_node = trmi_env_text(env, "SLURM_STEP_TASKS_PER_NODE"),
               *nodes = trmi_env_text(env, "SLURM_STEP_NODELIST");
    claim->local_size = per_node != NULL ? tasks_on_node(per_node, node) : 0;
    if (claim->local_size <= claim->local_rank) {
        claim->local_size = 0;
    }
    if (claim->nodes == 0 && is_one_node(claim, nodes)) {
        claim->nodes = 1;
    }
    claim->one_per_node = claim->nodes == size;
    TRMI_TRY(trmi_env_integer(env, "SLURM_JOB_ID", 0, INT32_MAX, &set, &job, err));
    TRMI_TRY(trmi_env_integer(env, "SLURM_STEP_ID", 0, INT32_MAX, &set, &step, err));
    if (nodes != NULL) {
        first_node(nodes, claim->address, sizeof claim->address);
        claim->port = 15000 + (job % 1000) * 20 + (step % 4) * 4;
        claim->ports = 16;
    }
    snprintf(claim->key, sizeof claim->key, "slurm %d.%d %.16s", job, step,
             or_empty(trmi_env_text(env, "SLURM_RESTART_COUNT")));
    return TRM_OK;
}

/* MindSpore's dynamic cluster and msrun. The scheduler has nothing to do: rank 0 listens at its
 * address. */
static trm_status mindspore(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool has_size, has_id, set;
    int32_t size = 0, rank = -1, port = 0;
    char part[40];
    const char *role = trmi_env_text(env, "MS_ROLE");
    if (role == NULL) {
        return TRM_OK;
    }
    INTEGER("MS_WORKER_NUM", 1, &has_size, &size);
    if (!has_size) {
        return TRMI_FAIL(err, TRM_INVALID, "MS_ROLE is set, but MS_WORKER_NUM is not");
    }
    trmi_claim *claim = trmi_claim_add(claims, "MindSpore (MS_ROLE, MS_WORKER_NUM)");
    claim->size = size;
    if (strcmp(role, "MS_SCHED") == 0 || strcmp(role, "MS_PSERVER") == 0) {
        claim->role = strcmp(role, "MS_SCHED") == 0 ? TRM_ROLE_SCHEDULER : TRM_ROLE_PS;
        return TRM_OK;
    }
    if (strcmp(role, "MS_WORKER") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "MS_ROLE: MS_SCHED, MS_WORKER or MS_PSERVER expected, found \"%s\"",
                         trmi_printable(role, part, sizeof part));
    }
    INTEGER("MS_NODE_ID", 0, &has_id, &rank);
    if (!has_id) {
        INTEGER("RANK_ID", 0, &has_id, &rank);
    }
    if (!has_id) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "MS_ROLE=MS_WORKER without MS_NODE_ID; set MS_NODE_ID (or RANK_ID) to 0 "
                         "to %d, one per worker",
                         size - 1);
    }
    if (rank >= size) {
        return TRMI_FAIL(err, TRM_INVALID, "MS_NODE_ID=%d, but MS_WORKER_NUM=%d; 0 to %d expected",
                         rank, size, size - 1);
    }
    claim->rank = rank;
    const char *host = trmi_env_text(env, "MS_SCHED_HOST");
    TRMI_TRY(trmi_env_integer(env, "MS_SCHED_PORT", 1024, 65535, &set, &port, err));
    if (host != NULL && set) {
        snprintf(claim->address, sizeof claim->address, "%s", host);
        claim->port = port;
        claim->ports = 1;
    }
    snprintf(claim->key, sizeof claim->key, "mindspore %.100s %d", or_empty(host), port);
    return TRM_OK;
}

/* Kubeflow's Trainer v2 gives torchrun's flags as PET_*, without a torchrun: where a node has one
 * process, these say it all. */
static trm_status trainer(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    bool found, set;
    int32_t rank, size, port = 29500;
    const char *address = trmi_env_text(env, "PET_MASTER_ADDR"),
               *each = trmi_env_text(env, "PET_NPROC_PER_NODE");
    if (claims->count > 0 || address == NULL || trmi_env_text(env, "PET_NODE_RANK") == NULL) {
        return TRM_OK; /* under torchrun its own variables count */
    }
    TRMI_TRY(pair(env, "PET_NODE_RANK", "PET_NNODES", &found, &rank, &size, err));
    if (each != NULL && strcmp(each, "1") != 0) {
        char part[40];
        return TRMI_FAIL(
            err, TRM_INVALID,
            "PET_NPROC_PER_NODE=%s: such ranks are started by torchrun --no-python; without it 1 "
            "expected",
            trmi_printable(each, part, sizeof part));
    }
    if (!found) {
        return TRMI_FAIL(err, TRM_INVALID, "PET_NODE_RANK is set, but PET_NNODES is not");
    }
    trmi_claim *claim = trmi_claim_add(claims, "Trainer (PET_NODE_RANK, PET_NNODES)");
    claim->rank = rank;
    claim->size = size;
    claim->nodes = size;
    TRMI_TRY(trmi_env_integer(env, "PET_MASTER_PORT", 1, 65535, &set, &port, err));
    snprintf(claim->address, sizeof claim->address, "%s", address);
    claim->port = port;
    claim->ports = 1;
    snprintf(claim->key, sizeof claim->key, "trainer %.100s %d", address, port);
    return TRM_OK;
}

trm_status trmi_claim_launchers(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    TRMI_TRY(trireme_run(env, claims, err));
    TRMI_TRY(torchrun(env, claims, err));
    TRMI_TRY(open_mpi(env, claims, err));
    TRMI_TRY(pmi(env, claims, err));
    TRMI_TRY(pmix(env, claims, err));
    TRMI_TRY(mvapich(env, claims, err));
    TRMI_TRY(slurm_step(env, claims, err));
    TRMI_TRY(mindspore(env, claims, err));
    return trainer(env, claims, err);
}
