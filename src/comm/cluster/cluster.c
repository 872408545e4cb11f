/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which rank of which job this process is. A claim is what one source (flags, a
 * launcher's variables, a rank table) states about that. The resolver collects the claims of all
 * sources, takes the first one, compares the others with it, and derives the rest: hosts, local
 * ranks, device, role, rendezvous.
 *
 *   trm_cluster_from_env -> create_cluster -> resolve_cluster:
 *     claims       claim_flags, claim_roles, trmi_claim_ascend, trmi_claim_launchers
 *     winner       choose_claim
 *     consequences place_ranks, place_device, place_role, trmi_take_hccl, place_rendezvous
 *
 * Two claims that contradict each other are an error, not a matter of precedence: a job that starts
 * with a wrong number of ranks would wait until its deadline. The exception is a launcher that
 * started another launcher (starts_launcher_of). */
#include "comm/cluster/cluster_claim.h"

#include "base/arguments.h"
#include "base/hash/digest.h"
#include "base/error.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/cluster/cluster_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *trm_role_name(trm_role role) {
    static const char *const names[] = {"worker", "chief", "ps", "evaluator", "scheduler"};
    return role >= TRM_ROLE_WORKER && role <= TRM_ROLE_SCHEDULER ? names[role] : "?";
}

/* Adds the claim of --rank and --world-size, and of the local rank if it is given.
 *   errors  INVALID */
static trm_status claim_flags(const trm_cluster_flags *flags, trmi_claims *claims, trm_error *err) {
    if (flags->size <= 0) {
        return TRM_OK;
    }
    if (flags->rank < 0 || flags->rank >= flags->size) {
        return TRMI_FAIL(err, TRM_INVALID, "--rank %d, but --world-size %d; 0 to %d expected",
                         flags->rank, flags->size, flags->size - 1);
    }
    trmi_claim *claim = trmi_claim_add(claims, "flags (--rank, --world-size)");
    claim->rank = flags->rank;
    claim->size = flags->size;
    /* The launcher of this host may pass local ranks as well. */
    if (flags->local_size > 0) {
        if (flags->local_rank < 0 || flags->local_rank >= flags->local_size) {
            return TRMI_FAIL(err, TRM_INVALID, "local rank %d, but local size %d; 0 to %d expected",
                             flags->local_rank, flags->local_size, flags->local_size - 1);
        }
        claim->local_rank = flags->local_rank;
        claim->local_size = flags->local_size;
        claim->nodes = flags->local_size == flags->size ? 1 : 0;
    }
    return TRM_OK;
}

/* Checks that flags and TF_CONFIG, which may both describe the roles, say the same. */
static trm_status compare_roles(const trmi_tfconfig *flags, const trmi_tfconfig *config,
                                trm_error *err) {
    /* Both name this task. */
    if (flags->has_task && config->has_task &&
        (flags->role != config->role || flags->index != config->index)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "flags (--job_name, --task_index) say %s %d, TF_CONFIG says %s %d; give "
                         "one of them",
                         trm_role_name(flags->role), flags->index, trm_role_name(config->role),
                         config->index);
    }
    /* Both list the cluster. */
    for (int r = 0; flags->has_cluster && config->has_cluster && r < 4; r++) {
        const trmi_job_tasks *a = &flags->jobs[r], *b = &config->jobs[r];
        if (a->count != b->count) {
            return TRMI_FAIL(
                err, TRM_INVALID, "flags list %d %s task%s, TF_CONFIG lists %d; give one of them",
                a->count, trm_role_name((trm_role)r), a->count == 1 ? "" : "s", b->count);
        }
        for (int32_t t = 0; t < a->count; t++) {
            if (strcmp(a->tasks[t].address, b->tasks[t].address) != 0) {
                char one[64], other[64];
                return TRMI_FAIL(err, TRM_INVALID,
                                 "%s %d is %s in --%s_hosts, but %s in TF_CONFIG; give one of them",
                                 trm_role_name((trm_role)r), t,
                                 trmi_printable(a->tasks[t].address, one, sizeof one),
                                 trm_role_name((trm_role)r),
                                 trmi_printable(b->tasks[t].address, other, sizeof other));
            }
        }
    }
    return TRM_OK;
}

/* Finds the roles: from flags, from TF_CONFIG, or the task from one and the cluster from the other.
 * *source names the origin for messages. The result is in cluster->roles. */
static trm_status find_roles(const trm_cluster_flags *flags, const trmi_environment *env,
                             trm_cluster *cluster, const char **source, trm_error *err) {
    const char *text = trmi_env_text(env, "TF_CONFIG");
    trmi_tfconfig from_flags, from_env = {0};
    /* Parse both sources. */
    trm_status status = trmi_tfconfig_flags(flags, &from_flags, err);
    bool any_flag = from_flags.has_cluster || from_flags.has_task;
    if (status == TRM_OK && text != NULL) {
        status = trmi_tfconfig_parse(text, &from_env, err);
    }
    if (status == TRM_OK && any_flag && text != NULL) {
        status = compare_roles(&from_flags, &from_env, err);
    }
    if (status != TRM_OK) {
        trmi_tfconfig_free(&from_env);
        trmi_tfconfig_free(&from_flags);
        return status;
    }
    /* The flags have the cluster, or there is only a task from flags. */
    if (from_flags.has_cluster || (any_flag && !from_env.has_cluster)) {
        if (!from_flags.has_task && from_env.has_task) {
            from_flags.has_task = true;
            from_flags.role = from_env.role;
            from_flags.index = from_env.index;
        }
        if (from_env.model_dir != NULL) {
            from_flags.model_dir = trmi_arena_strdup(&from_flags.arena, from_env.model_dir);
        }
        *source = from_flags.has_cluster ? "flags (--ps_hosts, --worker_hosts, --job_name)"
                                         : "flags (--job_name)";
        cluster->roles = from_flags;
        trmi_tfconfig_free(&from_env);
    } else {
        /* TF_CONFIG has the cluster; the task may come from the flags. */
        *source = "TF_CONFIG";
        if (any_flag && !from_env.has_task) {
            from_env.has_task = true;
            from_env.role = from_flags.role;
            from_env.index = from_flags.index;
            from_env.master |= from_flags.master;
            *source = "TF_CONFIG (task from --job_name)";
        }
        cluster->roles = from_env;
        trmi_tfconfig_free(&from_flags);
    }
    return trmi_tfconfig_check(&cluster->roles, *source, err);
}

/* Adds the claim of the roles. Ranks are the chief (if listed) and the workers; servers and
 * evaluators are tasks without a rank. */
static trm_status claim_roles(const trm_cluster_flags *flags, const trmi_environment *env,
                              trm_cluster *cluster, trmi_claims *claims, trm_error *err) {
    const char *source;
    trmi_tfconfig *roles = &cluster->roles;
    TRMI_TRY(find_roles(flags, env, cluster, &source, err));
    /* Warnings of the description are those of the cluster. */
    for (int32_t w = 0; w < roles->warnings.count; w++) {
        trmi_warnings_add(&cluster->warnings, &cluster->arena, "%s", roles->warnings.lines[w]);
    }
    bool trains = !roles->has_task || roles->role != TRM_ROLE_EVALUATOR;
    if (flags->needs_ps && roles->jobs[TRM_ROLE_PS].count == 0 && trains) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: no parameter server is listed; add \"ps\" to the cluster (or "
                         "--ps_hosts)",
                         roles->has_cluster ? source : "cluster description");
    }
    if (!roles->has_cluster) {
        return TRM_OK;
    }
    /* Claim rank, and the number of ranks and of all tasks. */
    trmi_claim *claim = trmi_claim_add(claims, "%s", source);
    int32_t chiefs = roles->jobs[TRM_ROLE_CHIEF].count;
    claim->role = roles->role;
    claim->total = roles->jobs[TRM_ROLE_WORKER].count + chiefs + roles->jobs[TRM_ROLE_PS].count +
                   roles->jobs[TRM_ROLE_EVALUATOR].count;
    claim->size = chiefs + roles->jobs[TRM_ROLE_WORKER].count;
    if (roles->role == TRM_ROLE_CHIEF) {
        claim->rank = 0;
    } else if (roles->role == TRM_ROLE_WORKER) {
        claim->rank = roles->index + chiefs;
    }
    /* Rank 0's address is that of the chief, or of worker 0. */
    const trmi_task *first =
        trmi_tfconfig_task(roles, chiefs ? TRM_ROLE_CHIEF : TRM_ROLE_WORKER, 0);
    trmi_host_port parsed;
    if (first != NULL && trmi_host_port_parse(first->address, false, &parsed) == NULL) {
        memcpy(claim->address, parsed.host, sizeof claim->address);
        claim->port = parsed.port;
        claim->ports = 1;
        snprintf(claim->key, sizeof claim->key, "roles %.150s", first->address);
    }
    /* a sparse map lists only some of the workers */
    if (roles->sparse) {
        claim->size = 0;
        claim->port = 0;
    }
    return TRM_OK;
}

/* Fails because two claims contradict each other. */
static trm_status fail_contradiction(const trmi_claim *a, const trmi_claim *b, trm_error *err) {
    char x[64], y[64];
    const trmi_claim *pair[] = {a, b};
    char *text[] = {x, y};
    for (int i = 0; i < 2; i++) {
        if (pair[i]->rank < 0) {
            snprintf(text[i], 64, pair[i]->total ? "%d tasks" : "%d ranks",
                     pair[i]->total ? pair[i]->total : pair[i]->size);
        } else if (pair[i]->size == 0) {
            snprintf(text[i], 64, "rank %d", pair[i]->rank);
        } else {
            snprintf(text[i], 64, "rank %d of %d", pair[i]->rank, pair[i]->size);
        }
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: %s, but %s: %s; start the job in one way, or make them agree", a->source,
                     x, b->source, y);
}

/* Returns whether `outer` is a launcher that has started the launcher of `winner` (srun starts
 * torchrun, mpirun starts one `trireme run`): its numbers count agents, not ranks, and need not
 * agree. */
static bool starts_launcher_of(const trmi_claim *outer, const trmi_claim *winner) {
    if (!outer->launcher) {
        return false;
    }
    return outer->size == 1 || (winner->agents > 0 && outer->size == winner->agents) ||
           (outer->one_per_node && winner->launcher && outer->size < winner->size);
}

/* Compares size and rank of another claim with the winner's. With roles, a launcher counts all
 * tasks. */
static trm_status compare_claims(const trmi_claim *winner, const trmi_claim *other,
                                 trm_error *err) {
    if (starts_launcher_of(other, winner)) {
        return TRM_OK;
    }
    bool roles = winner->total > winner->size && other->total == 0;
    /* A launcher such as mpirun starts parameter servers too, and numbers all tasks. */
    int32_t size = roles ? winner->total : winner->size;
    if (size > 0 && other->size > 0 && size != other->size) {
        return fail_contradiction(winner, other, err);
    }
    if (!roles && winner->rank >= 0 && other->rank >= 0 && winner->rank != other->rank) {
        return fail_contradiction(winner, other, err);
    }
    return TRM_OK;
}

/* Chooses the first claim and completes it with statements of agreeing claims. *out is unchanged if
 * there is no claim.
 *   errors  INVALID for claims that contradict each other, and for RANK_ID and RANK_SIZE alone */
static trm_status choose_claim(trmi_claims *claims, trmi_claim **out, trm_error *err) {
    trmi_claim *winner = NULL;
    /* The first claim that can stand alone is the winner. */
    for (int32_t c = 0; c < claims->count; c++) {
        if (!claims->items[c].lacks_address) {
            winner = winner ? winner : &claims->items[c];
        }
    }
    if (winner == NULL) {
        return claims->count == 0
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_INVALID,
                               "RANK_SIZE=%d, but neither RANK_TABLE_FILE nor CM_CHIEF_IP says "
                               "where the other ranks are; set one of them",
                               claims->items[0].size);
    }
    /* Take over what the winner does not state. */
    for (int32_t c = 0; c < claims->count; c++) {
        trmi_claim *other = &claims->items[c];
        if (other == winner) {
            continue;
        }
        TRMI_TRY(compare_claims(winner, other, err));
        if (starts_launcher_of(other, winner) || winner->total > 0) {
            continue;
        }
        if (winner->rank < 0 && !winner->rank_later && other->rank >= 0) {
            /* Under mpirun with a rank table the table has no rank, mpirun states it. */
            winner->rank = other->rank;
        }
        winner->one_console |= other->one_console;
        winner->size = winner->size ? winner->size : other->size;
        winner->nodes = winner->nodes ? winner->nodes : other->nodes;
        if (winner->local_size == 0 && other->local_size > 0) {
            winner->local_rank = other->local_rank;
            winner->local_size = other->local_size;
        }
        if (winner->port == 0 && other->port != 0) {
            memcpy(winner->address, other->address, sizeof winner->address);
            winner->port = other->port;
            winner->ports = other->ports;
        }
    }
    *out = winner;
    return TRM_OK;
}

/* Computes the SHA-256 of a text. */
static void hash_text(const char *text, uint8_t out[32]) {
    (void)trmi_sha256(text, strlen(text), out);
}

/* Decides where rank 0 listens, unless a flag or TRIREME_RENDEZVOUS says it: at a unix socket for a
 * job on one host, otherwise at the address that the source names. Also computes the job's key and
 * finds the token file. claimed: a source makes this process a rank. */
static trm_status place_rendezvous(const trm_cluster_flags *flags, const trmi_environment *env,
                                   const trmi_claim *claim, bool claimed, trm_cluster *cluster,
                                   trm_error *err) {
    trm_cluster_info *info = &cluster->info;
    /* A flag has priority over the variable. */
    const char *stated =
        flags->rendezvous ? flags->rendezvous : trmi_env_text(env, "TRIREME_RENDEZVOUS");
    const char *token =
        flags->token_file ? flags->token_file : trmi_env_text(env, "TRIREME_TOKEN_FILE");
    hash_text(claim->key, cluster->key);
    if (stated != NULL && cluster->table != NULL) {
        /* With an explicit place, ranks with different tables shall meet there, so that the
         * rendezvous can name the rank whose table differs. The key must then not contain the
         * table. */
        const char *job = trmi_env_text(env, "JOB_ID");
        hash_text(job != NULL ? job : "a job of a rank table", cluster->key);
    }
    info->rendezvous_ports = 1;
    if (token != NULL && (info->token_file = trmi_arena_strdup(&cluster->arena, token)) == NULL) {
        return TRMI_NO_MEMORY(err, "for the cluster description");
    }
    /* One rank meets no other, but processes may join an elastic job of it. */
    if (info->size == 1 && (stated == NULL || !claimed)) {
        return TRM_OK;
    }
    if (stated != NULL) {
        info->rendezvous = trmi_arena_strdup(&cluster->arena, stated);
    } else if (claim->nodes == 1 && claim->key[0] != '\0' && claim->total == 0) {
        /* On one host the place is a socket whose name contains the job's key. */
        const uint8_t *k = cluster->key;
        info->rendezvous = trmi_arena_printf(
            &cluster->arena, "unix:/tmp/trireme-%u/%02x%02x%02x%02x%02x%02x%02x%02x",
            (unsigned)geteuid(), k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7]);
    } else if (claim->port != 0) {
        bool is_ipv6 = strchr(claim->address, ':') != NULL;
        info->rendezvous = trmi_arena_printf(&cluster->arena, "%s%s%s:%d", is_ipv6 ? "[" : "",
                                             claim->address, is_ipv6 ? "]" : "", claim->port);
        info->rendezvous_ports = claim->ports > 0 ? claim->ports : 1;
    } else {
        return TRM_OK;
    }
    return info->rendezvous != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "for the cluster description");
}

/* Finds the host of each rank from the table or the roles, and derives the local ranks from equal
 * host names. rank_hosts is not filled if neither is known.
 *   errors  NOMEM */
static trm_status place_ranks(const trmi_claim *claim, trm_cluster *cluster, trm_error *err) {
    trm_cluster_info *info = &cluster->info;
    bool roles = claim->total > 0 && !cluster->roles.sparse;
    info->local_rank = claim->local_rank;
    info->local_size = claim->local_size;
    /* On one host, local ranks are ranks. */
    if (info->local_size == 0 && claim->nodes == 1 && claim->rank >= 0) {
        info->local_rank = claim->rank;
        info->local_size = claim->size;
    }
    if (info->size < 1 || (cluster->table == NULL && !roles)) {
        return TRM_OK;
    }
    /* Find the host of each rank. */
    TRMI_TRY(TRMI_NEW(err, cluster->rank_hosts, info->size, "for %d ranks", info->size));
    int32_t chiefs = cluster->roles.jobs[TRM_ROLE_CHIEF].count;
    for (int32_t r = 0; r < info->size; r++) {
        cluster->rank_hosts[r] = !roles ? trm_rank_table_entry(cluster->table, r).host
                                 : r < chiefs
                                     ? cluster->roles.jobs[TRM_ROLE_CHIEF].tasks[r].host
                                     : cluster->roles.jobs[TRM_ROLE_WORKER].tasks[r - chiefs].host;
    }
    if (info->rank < 0) {
        return TRM_OK;
    }
    /* Count the ranks on this rank's host, in rank order. */
    info->local_rank = info->local_size = 0;
    for (int32_t r = 0; r < info->size; r++) {
        if (strcmp(cluster->rank_hosts[r], cluster->rank_hosts[info->rank]) == 0) {
            info->local_rank += r < info->rank;
            info->local_size++;
        }
    }
    return TRM_OK;
}

/* Finds the device: from the table, DEVICE_ID or ASCEND_DEVICE_ID, else the local rank. */
static trm_status place_device(const trmi_environment *env, trm_cluster *cluster, trm_error *err) {
    trm_cluster_info *info = &cluster->info;
    info->device_id = info->local_rank > 0 ? info->local_rank : 0;
    if (cluster->table != NULL && info->rank >= 0) {
        info->device_id = trm_rank_table_entry(cluster->table, info->rank).device_id;
        return TRM_OK;
    }
    TRMI_TRY(trmi_env_integer(env, "ASCEND_DEVICE_ID", 0, 65535, &info->device_id, err));
    return trmi_env_integer(env, "DEVICE_ID", 0, 65535, &info->device_id, err);
}

/* Derives role, task index and "is chief". Without a listed chief, worker 0 is the chief. */
static void place_role(const trmi_claim *claim, trm_cluster *cluster) {
    trm_cluster_info *info = &cluster->info;
    const trmi_tfconfig *roles = &cluster->roles;
    bool chief_listed = roles->jobs[TRM_ROLE_CHIEF].count > 0;
    bool evaluates = roles->has_task && roles->role == TRM_ROLE_EVALUATOR;
    info->role = evaluates ? TRM_ROLE_EVALUATOR : claim->role;
    info->has_roles = roles->has_cluster || evaluates;
    info->sparse_workers = roles->sparse;
    info->model_dir = roles->model_dir;
    info->task_index = info->has_roles ? roles->index : info->rank;
    info->is_chief = info->has_roles
                         ? info->role == TRM_ROLE_CHIEF ||
                               (info->role == TRM_ROLE_WORKER && !chief_listed && roles->index == 0)
                         : info->rank == 0;
    info->also_evaluates = info->role == TRM_ROLE_CHIEF && roles->master;
    if (info->role >= TRM_ROLE_PS) {
        info->rank = -1;
    }
}

/* Warns about variables that a launcher sets only together, if one of them is missing. The process
 * runs alone, but the user may have intended otherwise. RANK alone is too common a name. */
static void warn_of_incomplete_pairs(const trmi_environment *env, trm_cluster *cluster) {
    static const struct {
        const char *rank, *partner;
        const char *size; /* must say more than one rank; NULL: need not be there */
    } pairs[] = {{"RANK_ID", "RANK_TABLE_FILE", NULL},
                 {"RANK", "MASTER_ADDR", "WORLD_SIZE"},
                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
                 {"PMI_RANK", "PMI_SIZE", NULL},
                 {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", NULL}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *rank = trmi_env_text(env, pairs[i].rank);
        const char *size = pairs[i].size != NULL ? trmi_env_text(env, pairs[i].size) : "";
        if (rank != NULL && size != NULL && strcmp(size, "1") != 0 &&
            trmi_env_text(env, pairs[i].partner) == NULL) {
            trmi_warnings_add(&cluster->warnings, &cluster->arena,
                              "%s=%.20s is set, but %s is not: this is a single process",
                              pairs[i].rank, rank, pairs[i].partner);
        }
    }
}

/* Resolves the description; the order of the claims is the order of precedence. */
static trm_status resolve_cluster(const trm_cluster_flags *flags, const trmi_environment *env,
                                  trm_cluster *cluster, trm_error *err) {
    trmi_claims claims = {.count = 0};
    trmi_claim single = {.source = "single process", .size = 1, .local_size = 1, .nodes = 1};
    trmi_claim *winner = &single;
    trm_cluster_info *info = &cluster->info;
    /* Collect all claims, in the order of precedence. */
    TRMI_TRY(claim_flags(flags, &claims, err));
    TRMI_TRY(claim_roles(flags, env, cluster, &claims, err));
    TRMI_TRY(trmi_claim_ascend(flags, env, cluster, &claims, err));
    TRMI_TRY(trmi_claim_launchers(env, &claims, err));
    TRMI_TRY(choose_claim(&claims, &winner, err));
    if (winner == &single) {
        warn_of_incomplete_pairs(env, cluster);
    }
    /* The winner must state the size, and the rank unless this task has none (a server, an
     * evaluator) or gets it at the rendezvous. */
    bool is_ranked = winner->role == TRM_ROLE_WORKER || winner->role == TRM_ROLE_CHIEF;
    if (winner->size == 0 && !cluster->roles.sparse) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s gives rank %d, but no size; add --world-size (and --rank)",
                         winner->source, winner->rank);
    }
    if (winner->rank < 0 && is_ranked && !winner->rank_later) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s has %d ranks, but no variable gives this process's rank; set RANK_ID (0 to "
            "%d)",
            winner->source, winner->size, winner->size - 1);
    }
    if (winner->rank >= winner->size && winner->size > 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: rank %d of %d; 0 to %d expected", winner->source,
                         winner->rank, winner->size, winner->size - 1);
    }
    /* Take the statements of the winner. */
    info->source = trmi_arena_strdup(&cluster->arena, winner->source);
    if (info->source == NULL) {
        return TRMI_NO_MEMORY(err, "for the cluster description");
    }
    info->rank = winner->rank;
    info->size = winner->size;
    info->one_console = winner->one_console && winner->size > 1;
    info->rank_later = winner->rank_later && winner->size > 1;
    cluster->watched = winner->watched;
    cluster->first_is_root = winner->first_is_root && winner->size > 1;
    if (winner->rank_later && winner->size == 1) {
        info->rank = 0;
    }
    /* Draw the consequences: places of the ranks, device, role, rendezvous. */
    TRMI_TRY(place_ranks(winner, cluster, err));
    TRMI_TRY(place_device(env, cluster, err));
    place_role(winner, cluster);
    TRMI_TRY(trmi_take_hccl(env, cluster, err));
    TRMI_TRY(place_rendezvous(flags, env, winner, winner != &single, cluster, err));
    info->others_may_join = info->size == 1 && info->rendezvous != NULL;
    return TRM_OK;
}

/* Lists the warnings of the rank table after those of the description. */
static void list_warnings(trm_cluster *cluster) {
    trm_cluster_info *info = &cluster->info;
    const trmi_warnings *lists[] = {&cluster->warnings,
                                    cluster->table != NULL ? &cluster->table->warnings : NULL};
    for (int i = 0; i < 2 && lists[i] != NULL; i++) {
        memcpy(cluster->all_warnings + info->warning_count, lists[i]->lines,
               (size_t)lists[i]->count * sizeof lists[i]->lines[0]);
        info->warning_count += lists[i]->count;
    }
    info->warnings = cluster->all_warnings;
}

/* Allocates and resolves a description; flags may be NULL.
 *   errors  those of resolve_cluster, NOMEM */
static trm_status create_cluster(const trm_cluster_flags *flags, const trmi_environment *env,
                                 trm_cluster **out, trm_error *err) {
    static const trm_cluster_flags none;
    trm_cluster *cluster;
    TRMI_TRY(TRMI_NEW(err, cluster, 1, "for the cluster description"));
    trm_status status = resolve_cluster(flags != NULL ? flags : &none, env, cluster, err);
    if (status != TRM_OK) {
        trm_cluster_destroy(cluster);
        return status;
    }
    list_warnings(cluster);
    *out = cluster;
    return TRM_OK;
}

/* Look a variable up (trm_lookup) in the environment of the process, or nowhere. A program that
 * passes all facts as flags uses the second. */
static const char *lookup_in_process(void *context, const char *name) {
    (void)context;
    return getenv(name);
}

/* Is an environment without variables, for descriptions that come from arguments alone. */
static const char *lookup_nothing(void *context, const char *name) {
    (void)context;
    (void)name;
    return NULL;
}

trm_status trm_cluster_from_env(const trm_cluster_flags *flags, trm_lookup lookup, void *context,
                                trm_cluster **out, trm_error *err) {
    TRMI_NEED(err, out);
    trmi_environment env = {.lookup = lookup ? lookup : lookup_in_process, .context = context};
    return create_cluster(flags, &env, out, err);
}

trm_status trm_cluster_create(const trm_cluster_flags *flags, trm_cluster **out, trm_error *err) {
    TRMI_NEED(err, out);
    trmi_environment env = {.lookup = lookup_nothing};
    return create_cluster(flags, &env, out, err);
}

void trm_cluster_destroy(trm_cluster *cluster) {
    if (cluster == NULL) {
        return;
    }
    trm_rank_table_destroy(cluster->table);
    trmi_tfconfig_free(&cluster->roles);
    trmi_free(cluster->rank_hosts);
    trmi_arena_free(&cluster->arena);
    trmi_free(cluster);
}
