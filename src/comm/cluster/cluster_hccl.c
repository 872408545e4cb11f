/* SPDX-License-Identifier: Apache-2.0 */
/* The HCCL_* variables, which configure the collectives library of Ascend. Those with a meaning
 * here become the job's defaults; one warning names the others.
 *
 *   HCCL_ALGO              algorithms of collectives                trm_comm_options.algorithm
 *   HCCL_CONNECT_TIMEOUT   seconds for all ranks to meet            trm_join_options.timeout_seconds
 *   HCCL_EXEC_TIMEOUT      seconds of one collective, 0: no limit   trm_comm_options.timeout_seconds
 *   HCCL_DETERMINISTIC     false, true, strict                      trm_comm_options.deterministic
 *   HCCL_IF_IP, HCCL_SOCKET_IFNAME, HCCL_SOCKET_FAMILY    address on which peers reach this rank
 *
 * HCCL_IF_BASE_PORT is read together with the rank table (cluster_ascend.c). The options of the
 * program's own calls have priority. */
#include "comm/cluster/cluster_claim.h"

#include "trireme/dist.h"

#include "base/error.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/cluster/cluster_json.h"
#include "comm/net/engines.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* stands for "no limit": poll() takes milliseconds in an int, which holds 24 days */
enum { NEVER_SECONDS = 20 * 86400 };

/* Reads and checks HCCL_ALGO, which is used when a communicator is created. */
static trm_status take_algorithm(const trmi_environment *env, trm_cluster *cluster,
                                 trm_error *err) {
    trmi_algorithms checked;
    const char *text = trmi_env_text(env, "HCCL_ALGO");
    if (text == NULL) {
        return TRM_OK;
    }
    if (strlen(text) >= sizeof cluster->algorithm) {
        return TRMI_FAIL(err, TRM_INVALID, "HCCL_ALGO: %zu characters, at most %zu expected",
                         strlen(text), sizeof cluster->algorithm - 1);
    }
    TRMI_TRY(trmi_algorithms_parse(text, "HCCL_ALGO", &checked, err));
    strcpy(cluster->algorithm, text);
    cluster->info.algorithm = cluster->algorithm;
    return TRM_OK;
}

/* Reads HCCL_CONNECT_TIMEOUT and HCCL_EXEC_TIMEOUT; 0 stays for a variable that is not set. */
static trm_status take_timeouts(const trmi_environment *env, trmi_hccl *hccl, trm_error *err) {
    int32_t connect = 0, seconds = -1; /* not set */
    TRMI_TRY(trmi_env_integer(env, "HCCL_CONNECT_TIMEOUT", 1, 7200, &connect, err));
    hccl->connect_seconds = connect;
    TRMI_TRY(trmi_env_integer(env, "HCCL_EXEC_TIMEOUT", 0, INT32_MAX, &seconds, err));
    if (seconds >= 0) {
        hccl->exec_seconds = seconds == 0 || seconds > NEVER_SECONDS ? NEVER_SECONDS : seconds;
    }
    return TRM_OK;
}

/* Reads HCCL_DETERMINISTIC, in any case of letters. */
static trm_status take_deterministic(const trmi_environment *env, trmi_hccl *hccl, trm_error *err) {
    static const char *const words[] = {"false", "true", "strict"}; /* by trm_deterministic */
    const char *text = trmi_env_text(env, "HCCL_DETERMINISTIC");
    char part[40];
    if (text == NULL) {
        return TRM_OK;
    }
    for (int32_t w = 0; w < 3; w++) {
        if (strcasecmp(text, words[w]) == 0) {
            hccl->deterministic = w;
            return TRM_OK;
        }
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "HCCL_DETERMINISTIC: false, true or strict expected, found \"%s\"",
                     trmi_printable(text, part, sizeof part));
}

/* Returns whether the interface fits HCCL_SOCKET_IFNAME. "eth,ib": names that begin so; "=eth0":
 * exactly these names; a "^" in front: all names but those. */
static bool is_wanted(const char *spec, const char *name) {
    bool without = spec[0] == '^', found = false;
    spec += without;
    bool whole = spec[0] == '=';
    spec += whole;
    while (*spec != '\0' && !found) {
        size_t length = strcspn(spec, ",");
        found = length > 0 && strncmp(name, spec, length) == 0 && (!whole || name[length] == '\0');
        spec += length + (spec[length] == ',');
    }
    return found != without;
}

/* Writes the first address of the interface with the smallest name that fits. Returns false if
 * there is none. */
static bool find_interface(const char *spec, int family, char *address, size_t size) {
    struct ifaddrs *all = NULL;
    const struct ifaddrs *best = NULL;
    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        int its_family = one->ifa_addr != NULL ? one->ifa_addr->sa_family : AF_UNSPEC;
        bool fits = (one->ifa_flags & IFF_UP) != 0 &&
                    (its_family == AF_INET || its_family == AF_INET6) &&
                    (family == AF_UNSPEC || its_family == family) && is_wanted(spec, one->ifa_name);
        int order = best == NULL ? -1 : strcmp(one->ifa_name, best->ifa_name);
        if (fits && (order < 0 || (order == 0 && its_family == AF_INET &&
                                   best->ifa_addr->sa_family == AF_INET6))) {
            best = one; /* IPv4 before IPv6 on the same interface */
        }
    }
    bool found = best != NULL &&
                 getnameinfo(best->ifa_addr,
                             best->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                  : sizeof(struct sockaddr_in6),
                             address, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0;
    freeifaddrs(all);
    return found;
}

/* Finds the address on which peers reach this rank: HCCL_IF_IP, else that of the interface in
 * HCCL_SOCKET_IFNAME, of the family HCCL_SOCKET_FAMILY. */
static trm_status take_interface(const trmi_environment *env, trmi_hccl *hccl, trm_error *err) {
    char part[64];
    const char *ip = trmi_env_text(env, "HCCL_IF_IP"),
               *spec = trmi_env_text(env, "HCCL_SOCKET_IFNAME");
    const char *word = trmi_env_text(env, "HCCL_SOCKET_FAMILY");
    /* Family, address and interface are checked even if one has priority. */
    int family = word == NULL                    ? AF_UNSPEC
                 : strcmp(word, "AF_INET") == 0  ? AF_INET
                 : strcmp(word, "AF_INET6") == 0 ? AF_INET6
                                                 : -1;
    if (family < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "HCCL_SOCKET_FAMILY: AF_INET or AF_INET6 expected, found \"%s\"",
                         trmi_printable(word, part, sizeof part));
    }
    if (ip != NULL &&
        (strlen(ip) >= sizeof hccl->address || trmi_ip_family(ip) == 0 || !trmi_is_local_ip(ip))) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "HCCL_IF_IP: an IP address of this host expected, found \"%s\"; correct it or leave it "
            "away",
            trmi_printable(ip, part, sizeof part));
    }
    if (ip != NULL) {
        snprintf(hccl->address, sizeof hccl->address, "%s", ip);
    } else if (spec != NULL && !find_interface(spec, family, hccl->address, sizeof hccl->address)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "HCCL_SOCKET_IFNAME: no interface of this host that is up and has an address fits "
            "\"%s\"%s%s; `ip address` lists them",
            trmi_printable(spec, part, sizeof part), word != NULL ? " and " : "",
            word != NULL ? word : "");
    }
    return TRM_OK;
}

/* Warns about variables without effect here: they configure Ascend's devices and network adapters,
 * or another mechanism takes their place. */
static void warn_of_unused(const trmi_environment *env, trm_cluster *cluster) {
    static const char *const names[] = {"HCCL_BUFFSIZE",
                                        "HCCL_WHITELIST_DISABLE",
                                        "HCCL_WHITELIST_FILE",
                                        "HCCL_HOST_SOCKET_PORT_RANGE",
                                        "HCCL_NPU_SOCKET_PORT_RANGE",
                                        "HCCL_OP_RETRY_ENABLE",
                                        "HCCL_OP_RETRY_PARAMS",
                                        "HCCL_DFS_CONFIG",
                                        "HCCL_DIAGNOSE_ENABLE",
                                        "HCCL_ENTRY_LOG_ENABLE",
                                        "HCCL_DEBUG_CONFIG",
                                        "HCCL_RDMA_TC",
                                        "HCCL_RDMA_SL",
                                        "HCCL_RDMA_TIMEOUT",
                                        "HCCL_RDMA_RETRY_CNT",
                                        "HCCL_RDMA_QPS_PER_CONNECTION",
                                        "HCCL_RDMA_QP_PORT_CONFIG_PATH",
                                        "HCCL_MULTI_QP_THRESHOLD",
                                        "HCCL_INTRA_PCIE_ENABLE",
                                        "HCCL_INTRA_ROCE_ENABLE",
                                        "HCCL_INTER_HCCS_DISABLE",
                                        "HCCL_LOGIC_SUPERPOD_ID",
                                        "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO",
                                        "HCCL_OP_EXPANSION_MODE",
                                        "HCCL_CONCURRENT_ENABLE",
                                        "HCCL_OP_BASE_FFTS_MODE_ENABLE"};
    char list[400] = "";
    int count = 0;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        size_t used = strlen(list);
        if (trmi_env_text(env, names[n]) != NULL && used < sizeof list - 48) {
            snprintf(list + used, sizeof list - used, "%s%s", count++ > 0 ? ", " : "", names[n]);
        }
    }
    if (count > 0) {
        bool white = strstr(list, "HCCL_WHITELIST") != NULL;
        trmi_warnings_add(
            &cluster->warnings, &cluster->arena,
            "%s: without effect here, %s of Ascend's devices and network%s", list,
            count > 1 ? "they are" : "it is",
            white ? "; the job's token decides which hosts may join (TRIREME_TOKEN_FILE)" : "");
    }
}

trm_status trmi_take_hccl(const trmi_environment *env, trm_cluster *cluster, trm_error *err) {
    if (cluster->info.size == 1) {
        return TRM_OK; /* a single process has no peers */
    }
    TRMI_TRY(take_algorithm(env, cluster, err));
    TRMI_TRY(take_timeouts(env, &cluster->hccl, err));
    TRMI_TRY(take_deterministic(env, &cluster->hccl, err));
    TRMI_TRY(take_interface(env, &cluster->hccl, err));
    warn_of_unused(env, cluster);
    return TRM_OK;
}
