/* SPDX-License-Identifier: Apache-2.0 */
/* Access to a resolved cluster: getters, the digest that ranks compare at the rendezvous, and the
 * output of `trireme cluster`, as text or JSON. Nothing here changes a cluster, so any thread may
 * call it.
 *
 * The digest is over what all processes of a job must agree on (size, rank table, roles with their
 * addresses), not over what differs by process (its own rank and role). An evaluator may be listed
 * by some and not by others, so it is left out. */
#include "comm/cluster/cluster_claim.h"
#include "comm/cluster/cluster_addr.h"

#include "base/arguments.h"
#include "base/format/report.h"
#include "base/hash/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

const trm_cluster_info *trm_cluster_get(const trm_cluster *cluster) {
    TRMI_NEED_OR(NULL, NULL, cluster);
    return &cluster->info;
}

/* Contract in trireme/dist.h. Without roles, all ranks count as workers. */
int32_t trm_cluster_task_count(const trm_cluster *cluster, trm_role role) {
    TRMI_NEED_OR(0, NULL, cluster);
    if (!cluster->info.has_roles) {
        return role == TRM_ROLE_WORKER ? cluster->info.size : 0;
    }
    return role >= TRM_ROLE_WORKER && role <= TRM_ROLE_EVALUATOR ? cluster->roles.jobs[role].count
                                                                 : 0;
}

const char *trm_cluster_task_address(const trm_cluster *cluster, trm_role role, int32_t index) {
    TRMI_NEED_OR(NULL, NULL, cluster);
    if (role < TRM_ROLE_WORKER || role > TRM_ROLE_EVALUATOR) {
        return NULL;
    }
    const trmi_task *task = trmi_tfconfig_task(&cluster->roles, role, index);
    return task != NULL ? task->address : NULL;
}

/* Returns whether a task listens on an address other than loopback, so that the job needs a
 * token. */
bool trm_cluster_beyond_loopback(const trm_cluster *cluster) {
    TRMI_NEED_OR(false, NULL, cluster);
    static const trm_role listens[] = {TRM_ROLE_CHIEF, TRM_ROLE_WORKER, TRM_ROLE_PS};
    for (size_t k = 0; k < sizeof listens / sizeof listens[0]; k++) {
        for (int32_t i = 0; i < trm_cluster_task_count(cluster, listens[k]); i++) {
            const char *address = trm_cluster_task_address(cluster, listens[k], i);
            trmi_host_port at;
            if (address != NULL && trmi_host_port_parse(address, true, &at) == NULL &&
                !trmi_is_loopback(at.host)) {
                return true;
            }
        }
    }
    return false;
}

/* The digest covers the size, the rank table, and roles with addresses. */
void trmi_cluster_digest(const trm_cluster *cluster, uint8_t digest[32]) {
    EVP_MD_CTX *context = trmi_sha256_begin();
    char head[48];
    int length = snprintf(head, sizeof head, "size %d\n", cluster->info.size);
    memset(digest, 0, 32);
    if (context == NULL) {
        return;
    }
    EVP_DigestUpdate(context, head, (size_t)length);
    if (cluster->table != NULL) {
        uint8_t table[32];
        trmi_table_digest(cluster->table, table);
        EVP_DigestUpdate(context, table, sizeof table);
    }
    /* The evaluator, which may be listed or not, is left out, and so is a sparse map, which differs
     * between tasks. */
    for (int r = 0; cluster->info.has_roles && !cluster->roles.sparse && r < TRM_ROLE_EVALUATOR;
         r++) {
        const trmi_job_tasks *job = &cluster->roles.jobs[r];
        for (int32_t t = 0; t < job->count; t++) {
            length = snprintf(head, sizeof head, "%d %d ", r, job->tasks[t].index);
            EVP_DigestUpdate(context, head, (size_t)length);
            EVP_DigestUpdate(context, job->tasks[t].address, strlen(job->tasks[t].address) + 1);
        }
    }
    EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
}

/* Puts the roles with their addresses. */
static void put_roles(const trm_cluster *cluster, trmi_report *r) {
    trmi_report_open_object(r, "cluster");
    for (int role = 0; role <= TRM_ROLE_EVALUATOR; role++) {
        const trmi_job_tasks *job = &cluster->roles.jobs[role];
        if (job->count == 0) {
            continue;
        }
        trmi_report_open_array(r, trm_role_name((trm_role)role));
        for (int32_t t = 0; t < job->count; t++) {
            trmi_report_put(r, trmi_string(NULL, job->tasks[t].address));
        }
        trmi_report_close(r);
    }
    trmi_report_close(r);
}

/* Puts what is known of the cluster, from the view of this process. */
static void put_cluster(const trm_cluster *cluster, trmi_report *r) {
    const trm_cluster_info *info = &cluster->info;
    uint8_t digest[32];
    char hex[65];
    trmi_report_put(
        r, trmi_string("event", "cluster"), trmi_string("source", info->source),
        trmi_int("rank", info->rank), trmi_int("size", info->size),
        trmi_int("local_rank", info->local_rank), trmi_int("local_size", info->local_size),
        trmi_int("device_id", info->device_id), trmi_string("role", trm_role_name(info->role)),
        trmi_int("task_index", info->task_index), trmi_bool("is_chief", info->is_chief),
        trmi_bool("sparse_workers", info->sparse_workers),
        trmi_string("model_dir", info->model_dir), trmi_string("rendezvous", info->rendezvous),
        trmi_string("token_file", info->token_file), trmi_string("algorithm", info->algorithm));
    if (info->has_roles) {
        put_roles(cluster, r);
    }
    /* the other ranks and tasks */
    trmi_report_open_array(r, "hosts");
    for (int32_t i = 0; cluster->rank_hosts != NULL && i < info->size; i++) {
        trmi_report_put(r, trmi_string(NULL, cluster->rank_hosts[i]));
    }
    trmi_report_close(r);
    trmi_report_open_array(r, "warnings");
    for (int32_t w = 0; w < info->warning_count; w++) {
        trmi_report_put(r, trmi_string(NULL, info->warnings[w]));
    }
    trmi_report_close(r);
    trmi_cluster_digest(cluster, digest);
    for (int i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    trmi_report_put(r, trmi_string("digest", hex));
}

/* Says the roles, in the order chief, worker, ps, evaluator. */
static void say_roles(const trm_cluster *cluster, trmi_report *r) {
    static const trm_role order[] = {TRM_ROLE_CHIEF, TRM_ROLE_WORKER, TRM_ROLE_PS,
                                     TRM_ROLE_EVALUATOR};
    const trm_cluster_info *info = &cluster->info;
    for (int o = 0; o < 4; o++) {
        const trmi_job_tasks *job = &cluster->roles.jobs[order[o]];
        for (int32_t t = 0; t < job->count; t++) {
            const trmi_task *task = &job->tasks[t];
            trmi_report_tell(
                r,
                "  [role]%-9s [index]%-3d [address]%s[chief]?{  (acts as chief)|}"
                "[own]?{  <- this process|}\n",
                trmi_string("role", trm_role_name(order[o])), trmi_int("index", task->index),
                trmi_string("address", task->address),
                trmi_bool("chief", order[o] == TRM_ROLE_WORKER && task->index == 0 &&
                                       cluster->roles.jobs[TRM_ROLE_CHIEF].count == 0),
                trmi_bool("own", info->role == order[o] && info->task_index == task->index));
        }
    }
}

/* Says the ranks of each host, in runs: "  hostA: ranks 0 to 7". */
static void say_hosts(const trm_cluster *cluster, trmi_report *r) {
    for (int32_t begin = 0, end; begin < cluster->info.size; begin = end) {
        const char *host = cluster->rank_hosts[begin];
        end = begin + 1;
        while (end < cluster->info.size && strcmp(cluster->rank_hosts[end], host) == 0) {
            end++;
        }
        trmi_report_tell(r,
                         end - begin > 1 ? "  [host]%s: ranks [first]%d to [last]%d\n"
                                         : "  [host]%s: rank [first]%d\n",
                         trmi_string("host", host), trmi_int("first", begin),
                         trmi_int("last", end - 1));
    }
}

/* Says one line for each fact that is known. */
static void say_cluster(const trm_cluster *cluster, trmi_report *r) {
    const trm_cluster_info *info = &cluster->info;
    trmi_report_say(r, "source      [source]%s\n");
    if (info->has_roles) {
        trmi_report_say(
            r, "task        [role]%s [task_index]%d[is_chief]?{ (saves and summarises)|}\n");
    }
    if (info->rank >= 0 && info->size > 0) {
        trmi_report_say(r, "rank        [rank]%d of [size]%d\n");
    } else if (info->size > 0) {
        trmi_report_say(r, info->rank_later
                               ? "rank        given at the rendezvous, of [size]%d that train\n"
                               : "rank        none of [size]%d that train\n");
    }
    if (info->local_size > 0) {
        trmi_report_say(r, "local rank  [local_rank]%d of [local_size]%d\n");
    }
    trmi_report_say(r, "device      [device_id]%d\n");
    if (info->rendezvous != NULL) {
        trmi_report_say(r, "rendezvous  [rendezvous]%s\n");
    } else if (info->size != 1 && !info->has_roles) {
        trmi_report_say(r, "rendezvous  not known; set TRIREME_RENDEZVOUS=host:port\n");
    }
    if (info->algorithm != NULL) {
        trmi_report_say(r, "algorithm   [algorithm]%s (HCCL_ALGO)\n");
    }
    /* the other tasks, or the hosts of the ranks */
    if (info->has_roles) {
        say_roles(cluster, r);
    } else if (cluster->rank_hosts != NULL) {
        say_hosts(cluster, r);
    }
    trmi_report_say_each(r, "warnings", "warning: []%s\n", NULL);
}

/* Contract in trireme/dist.h. */
trm_status trm_cluster_text(const trm_cluster *cluster, bool json, char **out, trm_error *err) {
    TRMI_NEED(err, cluster, out);
    trmi_report r;
    trmi_report_begin(&r, json);
    r.spaced = true;
    put_cluster(cluster, &r);
    say_cluster(cluster, &r);
    return trmi_report_give(&r, "for the text of a cluster", out, err);
}
