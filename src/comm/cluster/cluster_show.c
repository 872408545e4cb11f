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
#include "base/hash/digest.h"
#include "base/memory.h"

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

/* Writes a JSON member with a text value or null. */
static void put_member(trmi_text *text, const char *key, const char *value) {
    trmi_text_printf(text, ", \"%s\": ", key);
    if (value == NULL) {
        trmi_text_printf(text, "null");
    } else {
        trmi_text_json_string(text, value);
    }
}

/* Writes the roles with their addresses. */
static void roles_json(const trm_cluster *cluster, trmi_text *text) {
    trmi_text_printf(text, ", \"cluster\": {");
    for (int r = 0, shown = 0; r <= TRM_ROLE_EVALUATOR; r++) {
        const trmi_job_tasks *job = &cluster->roles.jobs[r];
        if (job->count == 0) {
            continue;
        }
        trmi_text_printf(text, "%s\"%s\": [", shown++ ? ", " : "", trm_role_name((trm_role)r));
        for (int32_t t = 0; t < job->count; t++) {
            trmi_text_printf(text, t ? ", " : "");
            trmi_text_json_string(text, job->tasks[t].address);
        }
        trmi_text_printf(text, "]");
    }
    trmi_text_printf(text, "}");
}

/* Writes the cluster as one JSON event. */
static void cluster_json(const trm_cluster *cluster, trmi_text *text) {
    const trm_cluster_info *info = &cluster->info;
    uint8_t digest[32];
    /* Print this process: rank and role. */
    trmi_text_printf(text, "{\"event\": \"cluster\"");
    put_member(text, "source", info->source);
    trmi_text_printf(text,
                     ", \"rank\": %d, \"size\": %d, \"local_rank\": %d, \"local_size\": %d, "
                     "\"device_id\": %d",
                     info->rank, info->size, info->local_rank, info->local_size, info->device_id);
    put_member(text, "role", trm_role_name(info->role));
    trmi_text_printf(text, ", \"task_index\": %d, \"is_chief\": %s, \"sparse_workers\": %s",
                     info->task_index, info->is_chief ? "true" : "false",
                     info->sparse_workers ? "true" : "false");
    put_member(text, "model_dir", info->model_dir);
    put_member(text, "rendezvous", info->rendezvous);
    /* Print the settings of the rendezvous. */
    put_member(text, "token_file", info->token_file);
    put_member(text, "algorithm", info->algorithm);
    if (info->has_roles) {
        roles_json(cluster, text);
    }
    /* Print the other ranks and tasks. */
    trmi_text_printf(text, ", \"hosts\": [");
    for (int32_t r = 0; cluster->rank_hosts != NULL && r < info->size; r++) {
        trmi_text_printf(text, r ? ", " : "");
        trmi_text_json_string(text, cluster->rank_hosts[r]);
    }
    trmi_text_printf(text, "], \"warnings\": [");
    for (int32_t w = 0; w < cluster->info.warning_count; w++) {
        trmi_text_printf(text, w ? ", " : "");
        trmi_text_json_string(text, cluster->info.warnings[w]);
    }
    trmi_cluster_digest(cluster, digest);
    trmi_text_printf(text, "], \"digest\": \"");
    for (int i = 0; i < 32; i++) {
        trmi_text_printf(text, "%02x", digest[i]);
    }
    trmi_text_printf(text, "\"}\n");
}

/* Writes the roles as lines, in the order chief, worker, ps, evaluator. */
static void roles_text(const trm_cluster *cluster, trmi_text *text) {
    static const trm_role order[] = {TRM_ROLE_CHIEF, TRM_ROLE_WORKER, TRM_ROLE_PS,
                                     TRM_ROLE_EVALUATOR};
    for (int o = 0; o < 4; o++) {
        const trmi_job_tasks *job = &cluster->roles.jobs[order[o]];
        for (int32_t t = 0; t < job->count; t++) {
            const trm_cluster_info *info = &cluster->info;
            bool own = info->role == order[o] && info->task_index == job->tasks[t].index;
            bool chief = order[o] == TRM_ROLE_WORKER && job->tasks[t].index == 0 &&
                         cluster->roles.jobs[TRM_ROLE_CHIEF].count == 0;
            trmi_text_printf(text, "  %-9s %-3d %s%s%s\n", trm_role_name(order[o]),
                             job->tasks[t].index, job->tasks[t].address,
                             chief ? "  (acts as chief)" : "", own ? "  <- this process" : "");
        }
    }
}

/* Writes the ranks of each host, in runs: "  hostA: ranks 0 to 7". */
static void hosts_text(const trm_cluster *cluster, trmi_text *text) {
    for (int32_t r = 0; r < cluster->info.size;) {
        int32_t end = r + 1;
        while (end < cluster->info.size &&
               strcmp(cluster->rank_hosts[end], cluster->rank_hosts[r]) == 0) {
            end++;
        }
        trmi_text_printf(text, "  %s: rank%s %d", cluster->rank_hosts[r], end - r > 1 ? "s" : "",
                         r);
        trmi_text_printf(text, end - r > 1 ? " to %d\n" : "\n", end - 1);
        r = end;
    }
}

/* Contract in trireme/dist.h. */
trm_status trm_cluster_text(const trm_cluster *cluster, bool json, char **out, trm_error *err) {
    TRMI_NEED(err, cluster, out);
    const trm_cluster_info *info = &cluster->info;
    trmi_text text = {0};
    if (json) {
        cluster_json(cluster, &text);
    } else {
        /* One line for each fact that is known. */
        trmi_text_printf(&text, "source      %s\n", info->source);
        if (info->has_roles) {
            trmi_text_printf(&text, "task        %s %d%s\n", trm_role_name(info->role),
                             info->task_index, info->is_chief ? " (saves and summarises)" : "");
        }
        if (info->rank >= 0 && info->size > 0) {
            trmi_text_printf(&text, "rank        %d of %d\n", info->rank, info->size);
        } else if (info->size > 0) {
            trmi_text_printf(&text, "rank        %s of %d that train\n",
                             info->rank_later ? "given at the rendezvous," : "none", info->size);
        }
        if (info->local_size > 0) {
            trmi_text_printf(&text, "local rank  %d of %d\n", info->local_rank, info->local_size);
        }
        trmi_text_printf(&text, "device      %d\n", info->device_id);
        if (info->rendezvous != NULL) {
            trmi_text_printf(&text, "rendezvous  %s\n", info->rendezvous);
        } else if (info->size != 1 && !info->has_roles) {
            trmi_text_printf(&text, "rendezvous  not known; set TRIREME_RENDEZVOUS=host:port\n");
        }
        if (info->algorithm != NULL) {
            trmi_text_printf(&text, "algorithm   %s (HCCL_ALGO)\n", info->algorithm);
        }
        /* Print the other tasks, or the hosts of the ranks. */
        if (info->has_roles) {
            roles_text(cluster, &text);
        } else if (cluster->rank_hosts != NULL) {
            hosts_text(cluster, &text);
        }
        for (int32_t w = 0; w < cluster->info.warning_count; w++) {
            trmi_text_printf(&text, "warning: %s\n", cluster->info.warnings[w]);
        }
    }
    if (text.failed || text.data == NULL) {
        trmi_text_free(&text);
        return TRMI_NO_MEMORY(err, "for the text of a cluster");
    }
    *out = text.data;
    return TRM_OK;
}
