/* SPDX-License-Identifier: Apache-2.0 */
/* Claims from the variables that launchers leave in the environment of the processes that they
 * start.
 *
 * Each row of the table `launchers` names the variables of one launcher: rank, size, local rank,
 * local size, hosts, and the address of rank 0. A launcher whose variables need more than reading
 * has a function in its row ("refine"), which completes the claim. Rows are in order of
 * precedence. */
#include "comm/cluster/cluster_claim.h"

#include "base/error.h"
#include "base/process.h"
#include "comm/cluster/cluster_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* variables of a key, at most; parent processes that write_ancestor_key looks at */
enum { KEY_VARIABLES = 4, ANCESTORS_MAX = 16 };
/* Ports that rank 0 may try from its first one on, where the launcher leaves none to it alone. */
enum { PORTS = 16 };
/* Ports of Slurm jobs, which have no address: those of a job begin JOB_PORTS after the job before,
 * those of its steps STEP_PORTS apart; JOBS jobs and STEPS steps have different ones. */
enum { SLURM_PORT = 15000, JOBS = 1000, JOB_PORTS = 20, STEPS = 4, STEP_PORTS = 4 };

/* One launcher. NULL: it has no such variable. */
typedef struct launcher {
    const char *source; /* name of the launcher, for messages */
    const char *needs;  /* this variable must be set, too; NULL: rank and size are enough */
    const char *unless; /* the launcher is ignored if this variable is set */
    /* if this variable is set, the size must be set, too; NULL: an incomplete pair is ignored */
    const char *demands;
    /* variables with these numbers */
    const char *rank, *size, *older_size, *local_rank, *local_size, *nodes;
    const char *address, *port; /* host and port of rank 0 */
    int32_t default_port;       /* if `address` is set and `port` is not; 0: none */
    /* their values are equal on all ranks of a job and different for other jobs */
    const char *key[KEY_VARIABLES];
    /* if there are no such variables: name of the ranks' common ancestor process */
    const char *proxy;
    bool launches;    /* starts processes, so it may have started another launcher */
    bool one_console; /* see trmi_claim */
    bool last;        /* used only if no other launcher was found */
    /* reads what only this launcher has; NULL: nothing */
    trm_status (*refine)(const trmi_environment *env, trmi_claim *claim, trm_error *err);
} launcher;

/* Reads a number from `low` to TRMI_ENV_RANKS_MAX, if the variable is there. The caller returns on
 * an error. */
#define INTEGER(name, low, out)                                                                    \
    TRMI_TRY(trmi_env_integer(env, (name), (low), TRMI_ENV_RANKS_MAX, (out), err))

/* Writes a key from the common ancestor process of a host's ranks: MPICH has no variable with a
 * number of the job, but all ranks of a host descend from one proxy process. Pid and start time
 * identify it. */
static void write_ancestor_key(const char *wanted, char *key, size_t size) {
    trmi_process_stat stat;
    int32_t pid = getppid();
    for (int depth = 0; depth < ANCESTORS_MAX && pid > 1 && trmi_process_read_stat(pid, &stat);
         depth++) {
        if (strncmp(stat.name, wanted, strlen(wanted)) == 0) {
            snprintf(key, size, "%s %d %llu", wanted, (int)pid,
                     (unsigned long long)stat.start_ticks);
            return;
        }
        pid = stat.parent;
    }
    if (trmi_process_read_stat(getppid(), &stat)) {
        snprintf(key, size, "parent %d %llu", (int)getppid(), (unsigned long long)stat.start_ticks);
    }
}

/* Returns the tasks on node `index` from Slurm's form "2(x3),1"; 0 if the text has another form. */
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

/* Writes the first host of Slurm's form: of "node[03-05,9],login1" it is node03. */
static void write_first_node(const char *list, char *out, size_t size) {
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

/* Completes the claim of torchrun, or of PyTorchJob's plain variables. torchrun's agent occupies
 * MASTER_PORT, so rank 0 uses one of the ports above it. */
static trm_status refine_torchrun(const trmi_environment *env, trmi_claim *claim, trm_error *err) {
    if (trmi_env_text(env, "TORCHELASTIC_RUN_ID") != NULL) {
        snprintf(claim->source, sizeof claim->source, "torchrun");
        claim->one_console = true; /* PyTorchJob's pods have logs of their own */
    }
    INTEGER("GROUP_WORLD_SIZE", 1, &claim->agents);
    const char *store = trmi_env_text(env, "TORCHELASTIC_USE_AGENT_STORE");
    if (store == NULL || strcmp(store, "True") != 0) {
        return TRM_OK;
    }
    claim->port = claim->port > 0 && claim->port < 65535 ? claim->port + 1 : 0;
    claim->ports = 65536 - claim->port < PORTS ? 65536 - claim->port : PORTS;
    return TRM_OK;
}

/* Completes the claim of PMI. `srun --mpi=pmi2` sets PMI_*, too; the Slurm step is then the key of
 * the job. HYDI_CONTROL_FD is set by MPICH's own launcher only. */
static trm_status refine_pmi(const trmi_environment *env, trmi_claim *claim, trm_error *err) {
    (void)err;
    const char *step = trmi_env_text(env, "SLURM_STEP_ID"),
               *job = trmi_env_text(env, "SLURM_JOB_ID");
    if (step != NULL && trmi_env_text(env, "HYDI_CONTROL_FD") == NULL && claim->nodes == 1) {
        snprintf(claim->key, sizeof claim->key, "pmi slurm %.40s.%.40s", job != NULL ? job : "",
                 step);
    }
    return TRM_OK;
}

/* Returns true for a job on one node if Slurm does not state the number of nodes: all tasks are on
 * this node, or the list has one name. */
static bool is_one_node(const trmi_claim *claim, const char *list) {
    return claim->local_size == claim->size ||
           (list != NULL && list[0] != '\0' && strpbrk(list, "[,") == NULL);
}

/* Completes the claim of Slurm: tasks of this node, number of nodes, and a port that differs
 * between jobs and steps. */
static trm_status refine_slurm(const trmi_environment *env, trmi_claim *claim, trm_error *err) {
    int32_t node = 0, job = 0, step = 0;
    const char *per_node = trmi_env_text(env, "SLURM_STEP_TASKS_PER_NODE");
    const char *nodes = trmi_env_text(env, "SLURM_STEP_NODELIST");
    INTEGER("SLURM_NODEID", 0, &node);
    claim->local_size = per_node != NULL ? tasks_on_node(per_node, node) : 0;
    if (claim->local_size <= claim->local_rank) {
        claim->local_size = 0;
    }
    if (claim->nodes == 0 && is_one_node(claim, nodes)) {
        claim->nodes = 1;
    }
    claim->one_per_node = claim->nodes == claim->size;
    TRMI_TRY(trmi_env_integer(env, "SLURM_JOB_ID", 0, INT32_MAX, &job, err));
    TRMI_TRY(trmi_env_integer(env, "SLURM_STEP_ID", 0, INT32_MAX, &step, err));
    if (nodes != NULL) {
        write_first_node(nodes, claim->address, sizeof claim->address);
        claim->port = SLURM_PORT + (job % JOBS) * JOB_PORTS + (step % STEPS) * STEP_PORTS;
        claim->ports = PORTS;
    }
    return TRM_OK;
}

/* Completes the claim of MindSpore's dynamic cluster, as msrun starts it. Rank 0 listens at the
 * scheduler's address; the scheduler only waits for the end of the job. A worker without a number
 * gets one at the rendezvous, and then the first worker at the address is rank 0. */
static trm_status refine_mindspore(const trmi_environment *env, trmi_claim *claim, trm_error *err) {
    char part[40];
    const char *role = trmi_env_text(env, "MS_ROLE");
    const char *variable = trmi_env_text(env, "MS_NODE_ID") != NULL ? "MS_NODE_ID" : "RANK_ID";
    const bool has_rank = trmi_env_text(env, variable) != NULL;
    /* These tasks have no rank. */
    if (strcmp(role, "MS_SCHED") == 0 || strcmp(role, "MS_PSERVER") == 0) {
        claim->role = strcmp(role, "MS_SCHED") == 0 ? TRM_ROLE_SCHEDULER : TRM_ROLE_PS;
        return TRM_OK;
    }
    if (strcmp(role, "MS_WORKER") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "MS_ROLE: MS_SCHED, MS_WORKER or MS_PSERVER expected, found \"%s\"",
                         trmi_printable(role, part, sizeof part));
    }
    /* The worker's number, under either of two names. */
    INTEGER(variable, 0, &claim->rank);
    if (has_rank && claim->rank >= claim->size) {
        return TRMI_FAIL(err, TRM_INVALID, "%s=%d, but MS_WORKER_NUM=%d; 0 to %d expected",
                         variable, claim->rank, claim->size, claim->size - 1);
    }
    if (!has_rank && claim->port == 0 && claim->size > 1) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "MS_ROLE=MS_WORKER without MS_NODE_ID: the workers need MS_SCHED_HOST and "
            "MS_SCHED_PORT (1024 to 65535) to meet and get their numbers; set them, or "
            "MS_NODE_ID to 0 to %d",
            claim->size - 1);
    }
    /* With an address, the scheduler waits for the end of the job. */
    claim->watched = claim->port > 0;
    claim->rank_later = claim->first_is_root = !has_rank;
    return TRM_OK;
}

/* Completes the claim of Kubeflow's Trainer v2, which sets torchrun's flags as PET_* without
 * starting torchrun. With one process on each node these variables are enough. */
static trm_status refine_trainer(const trmi_environment *env, trmi_claim *claim, trm_error *err) {
    const char *each = trmi_env_text(env, "PET_NPROC_PER_NODE");
    char part[40];
    if (each != NULL && strcmp(each, "1") != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "PET_NPROC_PER_NODE=%s: such ranks are started by torchrun --no-python; without "
            "torchrun 1 expected",
            trmi_printable(each, part, sizeof part));
    }
    claim->nodes = claim->size;
    return TRM_OK;
}

/* The launchers in order of precedence. */
static const launcher launchers[] = {
    {.source = "trireme run",
     .demands = "TRIREME_RANK",
     .rank = "TRIREME_RANK",
     .size = "TRIREME_SIZE",
     .local_rank = "TRIREME_LOCAL_RANK",
     .local_size = "TRIREME_LOCAL_SIZE",
     .launches = true},
    {.source = "PyTorchJob (RANK, WORLD_SIZE)",
     .needs = "MASTER_ADDR", /* RANK alone is too common a name */
     .demands = "RANK",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .key = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
     .launches = true,
     .refine = refine_torchrun},
    {.source = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .nodes = "OMPI_MCA_orte_num_nodes",
     .key = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"},
     .launches = true,
     .one_console = true},
    {.source = "MPICH (PMI_RANK, PMI_SIZE)",
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .proxy = "hydra_pmi_proxy",
     .launches = true,
     .one_console = true,
     .refine = refine_pmi},
    {.source = "PMIx (PMIX_RANK)", /* the size is known only if Open MPI or Slurm states it */
     .needs = "PMIX_NAMESPACE",
     .rank = "PMIX_RANK",
     .key = {"PMIX_NAMESPACE"},
     .launches = true,
     .one_console = true},
    {.source = "MVAPICH",
     .rank = "MV2_COMM_WORLD_RANK",
     .size = "MV2_COMM_WORLD_SIZE",
     .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
     .local_size = "MV2_COMM_WORLD_LOCAL_SIZE",
     .proxy = "mpispawn",
     .launches = true,
     .one_console = true},
    /* the shell of a batch script or of salloc has an allocation, but no step */
    {.source = "Slurm step",
     .needs = "SLURM_STEP_ID",
     .unless = "SLURM_PTY_PORT",
     .rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .older_size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .nodes = "SLURM_STEP_NUM_NODES",
     .key = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     .launches = true,
     .one_console = true,
     .refine = refine_slurm},
    {.source = "MindSpore (MS_ROLE, MS_WORKER_NUM)",
     .needs = "MS_ROLE",
     .demands = "MS_ROLE",
     .size = "MS_WORKER_NUM",
     .address = "MS_SCHED_HOST",
     .port = "MS_SCHED_PORT",
     .key = {"MS_SCHED_HOST", "MS_SCHED_PORT"},
     .refine = refine_mindspore},
    {.source = "Trainer (PET_NODE_RANK, PET_NNODES)",
     .needs = "PET_MASTER_ADDR",
     .demands = "PET_NODE_RANK",
     .rank = "PET_NODE_RANK",
     .size = "PET_NNODES",
     .address = "PET_MASTER_ADDR",
     .port = "PET_MASTER_PORT",
     .default_port = 29500,
     .key = {"PET_MASTER_ADDR", "PET_MASTER_PORT"},
     .last = true, /* under torchrun its own variables count */
     .refine = refine_trainer},
};

/* Reads rank and size, which must be set together. *found: this launcher has started the
 * process. */
static trm_status read_place(const launcher *l, const trmi_environment *env, bool *found,
                             int32_t *rank, int32_t *size, trm_error *err) {
    const char *size_name = l->size;
    if (l->older_size != NULL && trmi_env_text(env, l->size) == NULL) {
        size_name = l->older_size;
    }
    const bool has_rank = l->rank == NULL || trmi_env_text(env, l->rank) != NULL;
    const bool has_size = size_name == NULL || trmi_env_text(env, size_name) != NULL;
    if (l->rank != NULL) {
        INTEGER(l->rank, 0, rank);
    }
    if (size_name != NULL) {
        INTEGER(size_name, 1, size);
    }
    /* Find the variable of an incomplete pair, unless the launcher ignores those. */
    const char *lone = l->demands == NULL                                    ? NULL
                       : trmi_env_text(env, l->demands) != NULL && !has_size ? l->demands
                       : l->needs == NULL && has_size && !has_rank           ? size_name
                                                                             : NULL;
    if (lone != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s is set, but %s is not; set both, or neither", lone,
                         lone == size_name ? l->rank : size_name);
    }
    *found = has_rank && has_size;
    if (*found && l->rank != NULL && size_name != NULL && *rank >= *size) {
        return TRMI_FAIL(err, TRM_INVALID, "%s=%d, but %s=%d; a rank from 0 to %d expected",
                         l->rank, *rank, size_name, *size, *size - 1);
    }
    return TRM_OK;
}

/* Reads local rank, local size and the number of nodes. */
static trm_status read_local_place(const launcher *l, const trmi_environment *env,
                                   trmi_claim *claim, trm_error *err) {
    const bool size_set = l->local_size != NULL && trmi_env_text(env, l->local_size) != NULL;
    if (l->local_rank != NULL) {
        INTEGER(l->local_rank, 0, &claim->local_rank);
    }
    if (l->local_size != NULL) {
        INTEGER(l->local_size, 1, &claim->local_size);
    }
    if (size_set && claim->local_rank >= claim->local_size) {
        return TRMI_FAIL(err, TRM_INVALID, "%s=%d, but %s=%d; a local rank from 0 to %d expected",
                         l->local_rank, claim->local_rank, l->local_size, claim->local_size,
                         claim->local_size - 1);
    }
    if (l->nodes != NULL) {
        INTEGER(l->nodes, 1, &claim->nodes);
    }
    if (size_set && claim->local_size == claim->size) {
        claim->nodes = 1;
    }
    return TRM_OK;
}

/* Reads the address of rank 0, with one port. */
static trm_status read_address(const launcher *l, const trmi_environment *env, trmi_claim *claim,
                               trm_error *err) {
    int32_t port = l->default_port;
    if (l->address == NULL) {
        return TRM_OK;
    }
    const char *address = trmi_env_text(env, l->address);
    TRMI_TRY(trmi_env_integer(env, l->port, 1, 65535, &port, err));
    if (address != NULL && port > 0) {
        snprintf(claim->address, sizeof claim->address, "%s", address);
        claim->port = port;
        claim->ports = 1;
    }
    return TRM_OK;
}

/* Makes the claim's key. A process id identifies nothing on another host, so jobs on several hosts
 * differ by their variables alone. */
static void make_key(const launcher *l, const trmi_environment *env, trmi_claim *claim) {
    if (l->proxy != NULL) {
        snprintf(claim->key, sizeof claim->key, "%s", l->proxy);
    }
    if (l->proxy != NULL && claim->nodes == 1) {
        write_ancestor_key(l->proxy, claim->key, sizeof claim->key);
    }
    size_t used = 0;
    for (int k = 0; k < KEY_VARIABLES && l->key[k] != NULL && used < sizeof claim->key; k++) {
        const char *text = trmi_env_text(env, l->key[k]);
        used += (size_t)snprintf(claim->key + used, sizeof claim->key - used, "%s=%.40s ",
                                 l->key[k], text != NULL ? text : "");
    }
}

/* Adds the claim of one launcher, if its variables are set. */
static trm_status read_launcher(const launcher *l, const trmi_environment *env, trmi_claims *claims,
                                trm_error *err) {
    bool found = false;
    int32_t rank = -1, size = 0;
    if ((l->needs != NULL && trmi_env_text(env, l->needs) == NULL) ||
        (l->last && claims->count > 0) ||
        (l->unless != NULL && trmi_env_text(env, l->unless) != NULL)) {
        return TRM_OK;
    }
    TRMI_TRY(read_place(l, env, &found, &rank, &size, err));
    if (!found) {
        return TRM_OK;
    }
    trmi_claim *claim = trmi_claim_add(claims, "%s", l->source);
    claim->rank = rank;
    claim->size = size;
    claim->launcher = l->launches;
    claim->one_console = l->one_console;
    TRMI_TRY(read_local_place(l, env, claim, err));
    TRMI_TRY(read_address(l, env, claim, err));
    make_key(l, env, claim);
    return l->refine != NULL ? l->refine(env, claim, err) : TRM_OK;
}

trm_status trmi_claim_launchers(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    for (size_t l = 0; l < sizeof launchers / sizeof launchers[0]; l++) {
        TRMI_TRY(read_launcher(&launchers[l], env, claims, err));
    }
    return TRM_OK;
}
