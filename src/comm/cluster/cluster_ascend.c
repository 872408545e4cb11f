/* SPDX-License-Identifier: Apache-2.0 */
/* Claims from the variables of Ascend's collectives library. A user describes the job in one of
 * three ways, which exclude each other:
 *
 *   RANK_TABLE_FILE or --rank-table, RANK_ID   the table says everything but this process's rank
 *   CM_CHIEF_IP, CM_WORKER_SIZE, ...           the chief's address; the rendezvous gives ranks
 *   RANK_ID, RANK_SIZE                         no address: another source must give it
 *
 * A claim is what one source says about the job; cluster.c compares the claims of all sources. */
#include "comm/cluster/cluster_claim.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/cluster/cluster_json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Reads the table; while its status is "initializing", reads it again every 0.2 s. wait_seconds:
 * limit, 0 means 300 s, negative means no wait. */
static trm_status read_when_complete(const char *path, double wait_seconds, trm_rank_table **out,
                                     trm_error *err) {
    enum { WAIT_SECONDS = 300, LOG_SECONDS = 10 }; /* default limit; between two log lines */
    double limit = wait_seconds == 0 ? WAIT_SECONDS : wait_seconds < 0 ? 0 : wait_seconds;
    double start = trmi_os_now(), logged = start - LOG_SECONDS;
    char name[48];
    for (;;) {
        trm_status status = trm_rank_table_read(path, out, err);
        double waited = trmi_os_now() - start;
        if (status != TRM_PENDING) {
            return status;
        }
        if (waited >= limit) {
            return TRMI_FAIL(err, TRM_TIMEOUT,
                             "%s: status is still \"initializing\" after %.0f s; see to the "
                             "program that writes the table",
                             trmi_short_name(path, name), waited);
        }
        if (trmi_os_now() - logged >= LOG_SECONDS) {
            logged = trmi_os_now();
            trmi_log(TRM_LOG_WARN, "comm",
                     "rank table %s is \"initializing\": waiting for the program that "
                     "writes it, %.0f of %.0f s so far",
                     trmi_short_name(path, name), waited, limit);
        }
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
    }
}

/* Finds this process's rank: RANK_ID, or in template 2 the pod's name (with DEVICE_ID if the pod
 * has several devices). *rank is -1 if neither is set. */
static trm_status find_rank_in_table(const trmi_environment *env, const trm_rank_table *table,
                                     int32_t *rank, trm_error *err) {
    const bool set = trmi_env_text(env, "RANK_ID") != NULL;
    int32_t size = trm_rank_table_size(table), first, count, device = -1;
    char part[48];
    /* A table with one rank needs no RANK_ID. */
    *rank = size == 1 ? 0 : -1;
    TRMI_TRY(trmi_env_integer(env, "RANK_ID", 0, INT32_MAX, rank, err));
    if (set && *rank >= size) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "RANK_ID=%d, but the rank table has %d ranks; 0 to %d expected", *rank,
                         size, size - 1);
    }
    /* In template 2, each device is in a pod, and POD_NAME is the pod of this process. */
    const char *pod = trmi_env_text(env, "POD_NAME");
    if (set || pod == NULL || table->form != TRM_RANK_TABLE_TEMPLATE2) {
        return TRM_OK;
    }
    if (!trmi_table_pod(table, pod, &first, &count)) {
        return TRMI_FAIL(err, TRM_INVALID, "POD_NAME=%s is no pod_name of the rank table",
                         trmi_printable(pod, part, sizeof part));
    }
    TRMI_TRY(trmi_env_integer(env, "DEVICE_ID", 0, INT32_MAX, &device, err));
    for (int32_t r = first; r < first + count; r++) {
        if (count == 1 || trm_rank_table_entry(table, r).device_id == device) {
            *rank = r;
            return TRM_OK;
        }
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "pod %s has %d devices in the rank table; set RANK_ID, or DEVICE_ID to one "
                     "of them",
                     trmi_printable(pod, part, sizeof part), count);
}

/* Checks that the other variables agree with the table: RANK_SIZE, DEVICE_ID, and that this host
 * has the address of the rank's server (unless flags->any_address). */
static trm_status check_other_variables(const trm_cluster_flags *flags, const trmi_environment *env,
                                        trm_cluster *cluster, int32_t rank, trm_error *err) {
    int32_t size = trm_rank_table_size(cluster->table), said = size; /* of variables not set, too */
    TRMI_TRY(trmi_env_integer(env, "RANK_SIZE", 1, INT32_MAX, &said, err));
    if (said != size) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "RANK_SIZE=%d, but the rank table has %d ranks; make them equal", said,
                         size);
    }
    if (rank < 0) {
        return TRM_OK;
    }
    trm_rank_entry own = trm_rank_table_entry(cluster->table, rank);
    said = own.device_id;
    TRMI_TRY(trmi_env_integer(env, "DEVICE_ID", 0, INT32_MAX, &said, err));
    if (said != own.device_id) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "DEVICE_ID=%d, but rank %d has device_id %d in the rank table; set "
                         "DEVICE_ID=%d",
                         said, rank, own.device_id, own.device_id);
    }
    TRMI_TRY(trmi_env_integer(env, "ASCEND_DEVICE_ID", 0, INT32_MAX, &said, err));
    if (said != own.device_id) {
        trmi_warnings_add(&cluster->warnings, &cluster->arena,
                          "ASCEND_DEVICE_ID=%d, but the rank table gives rank %d device "
                          "%d; the table counts",
                          said, rank, own.device_id);
    }
    /* With one server, every process is on the right one. */
    if (cluster->table->server_count > 1 && !flags->any_address && trmi_ip_family(own.host) != 0 &&
        !trmi_is_local_ip(own.host)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "rank %d is on %s in the rank table, but this host has no such address; "
                         "start it there, or correct server_id (host_ip)",
                         rank, own.host);
    }
    return TRM_OK;
}

/* Adds the claim of a rank table. Rank 0 listens on its server's address, at HCCL_IF_BASE_PORT or
 * one of the 31 ports above. JOB_ID distinguishes jobs that use the same table. */
static trm_status claim_table(const trm_cluster_flags *flags, const trmi_environment *env,
                              const char *path, const char *origin, trm_cluster *cluster,
                              trmi_claims *claims, trm_error *err) {
    char name[48];
    int32_t base = 60000;
    TRMI_TRY(read_when_complete(path, flags->table_wait_seconds, &cluster->table, err));
    /* Rank and size. */
    trmi_claim *claim =
        trmi_claim_add(claims, "rank table %s (%s)", trmi_short_name(path, name), origin);
    TRMI_TRY(find_rank_in_table(env, cluster->table, &claim->rank, err));
    TRMI_TRY(check_other_variables(flags, env, cluster, claim->rank, err));
    claim->size = trm_rank_table_size(cluster->table);
    claim->nodes = cluster->table->server_count;
    /* Read address and ports of the rendezvous. */
    TRMI_TRY(trmi_env_integer(env, "HCCL_IF_BASE_PORT", 1024, 65520, &base, err));
    snprintf(claim->address, sizeof claim->address, "%s",
             trm_rank_table_entry(cluster->table, 0).host);
    claim->port = base;
    claim->ports = 65536 - base < 32 ? 65536 - base : 32;
    /* The key: ranks with different tables must not meet. */
    uint8_t digest[32];
    trmi_table_digest(cluster->table, digest);
    const char *job = trmi_env_text(env, "JOB_ID");
    snprintf(claim->key, sizeof claim->key, "table %02x%02x%02x%02x%02x%02x%02x%02x %.80s",
             digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
             job ? job : "");
    return TRM_OK;
}

/* Adds the claim of CM_*: the chief is rank 0, and the other ranks are numbered at the
 * rendezvous. */
static trm_status claim_cm(const trmi_environment *env, trmi_claims *claims, trm_error *err) {
    static const char *const excluded[] = {"RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE"};
    int32_t port = 0, chief_device = 0, device = 0, size = 0;
    const char *chief = trmi_env_text(env, "CM_CHIEF_IP");
    char part[64];
    for (int i = 0; i < 3; i++) {
        if (trmi_env_text(env, excluded[i]) != NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "CM_CHIEF_IP and %s are both set; use the CM_* variables or a rank "
                             "table, not both",
                             excluded[i]);
        }
    }
    if (trmi_ip_family(chief) == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "CM_CHIEF_IP: an IP address expected, found \"%s\"",
                         trmi_printable(chief, part, sizeof part));
    }
    /* All of these variables must be set together. */
    const struct {
        const char *name;
        int64_t low, high;
        int32_t *out;
    } needed[] = {{"CM_WORKER_SIZE", 1, TRMI_ENV_RANKS_MAX, &size},
                  {"CM_CHIEF_PORT", 0, 65520, &port},
                  {"CM_CHIEF_DEVICE", 0, INT32_MAX, &chief_device}};
    for (int i = 0; i < 3; i++) {
        if (trmi_env_text(env, needed[i].name) == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "CM_CHIEF_IP is set, but %s is not", needed[i].name);
        }
        TRMI_TRY(trmi_env_integer(env, needed[i].name, needed[i].low, needed[i].high, needed[i].out,
                                  err));
    }
    const char *own = trmi_env_text(env, "CM_WORKER_IP");
    if (own == NULL || trmi_ip_family(own) == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "CM_WORKER_IP: this host's IP address expected, found \"%s\"",
                         own ? trmi_printable(own, part, sizeof part) : "");
    }
    /* The process on the chief's device is rank 0; the others have no rank yet. */
    TRMI_TRY(trmi_env_integer(env, "ASCEND_DEVICE_ID", 0, INT32_MAX, &device, err));
    trmi_claim *claim = trmi_claim_add(claims, "CM_CHIEF_IP, CM_WORKER_SIZE");
    claim->size = size;
    claim->rank = strcmp(chief, own) == 0 && device == chief_device ? 0 : -1;
    claim->rank_later = true;
    snprintf(claim->address, sizeof claim->address, "%s", chief);
    claim->port = port;
    claim->ports = 1;
    snprintf(claim->key, sizeof claim->key, "cm %.60s %d %d", chief, port, size);
    return TRM_OK;
}

/* See cluster_claim.h. The flag --rank-table has priority over RANK_TABLE_FILE but must agree with
 * it. */
trm_status trmi_claim_ascend(const trm_cluster_flags *flags, const trmi_environment *env,
                             trm_cluster *cluster, trmi_claims *claims, trm_error *err) {
    int32_t rank = -1, size = 0; /* not set */
    const char *path = trmi_env_text(env, "RANK_TABLE_FILE");
    const char *origin = "RANK_TABLE_FILE";
    if (flags->rank_table != NULL) {
        if (path != NULL && strcmp(path, flags->rank_table) != 0) {
            char a[48], b[48];
            return TRMI_FAIL(err, TRM_INVALID,
                             "--rank-table says %s, RANK_TABLE_FILE says %s; give one of them",
                             trmi_short_name(flags->rank_table, a), trmi_short_name(path, b));
        }
        path = flags->rank_table;
        origin = "--rank-table";
    }
    if (trmi_env_text(env, "CM_CHIEF_IP") != NULL) {
        if (flags->rank_table != NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "--rank-table is given and CM_CHIEF_IP is set; use one of them");
        }
        return claim_cm(env, claims, err);
    }
    if (trmi_env_text(env, "CM_WORKER_SIZE") != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "CM_WORKER_SIZE is set, but CM_CHIEF_IP is not");
    }
    if (path != NULL) {
        return claim_table(flags, env, path, origin, cluster, claims, err);
    }
    /* RANK_SIZE and RANK_ID alone need another source for rank 0's address. */
    TRMI_TRY(trmi_env_integer(env, "RANK_SIZE", 1, TRMI_ENV_RANKS_MAX, &size, err));
    TRMI_TRY(trmi_env_integer(env, "RANK_ID", 0, TRMI_ENV_RANKS_MAX, &rank, err));
    if (size > 0 && rank >= size) {
        return TRMI_FAIL(err, TRM_INVALID, "RANK_ID=%d, but RANK_SIZE=%d; 0 to %d expected", rank,
                         size, size - 1);
    }
    if (size > 1) {
        trmi_claim *claim = trmi_claim_add(claims, "RANK_SIZE%s", rank >= 0 ? ", RANK_ID" : "");
        claim->rank = rank;
        claim->size = size;
        claim->lacks_address = true;
    }
    return TRM_OK;
}
