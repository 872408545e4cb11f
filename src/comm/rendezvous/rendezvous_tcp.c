/* SPDX-License-Identifier: Apache-2.0 */
/* trm_cluster_join: a bootstrap (comm/rendezvous/rendezvous.h) for ranks anywhere, over the side
 * channel. The functions of its table are here; the meeting is in side_root.c and side_peer.c. A
 * job of one rank needs neither sockets nor a thread.
 *
 *   prepare -> create -> trmi_side_root or trmi_side_peer -> find_hosts -> trmi_side_start
 *
 * Until trmi_side_start there is one thread. Afterwards the service thread (side_serve.c) runs too,
 * and everything in trmi_side that both use is protected by its lock. Secrets (tokens, the job's
 * secret) are overwritten before their memory is freed. */
#define _GNU_SOURCE
#include "comm/api/world.h"
#include "comm/rendezvous/side.h"

#include "base/arguments.h"
#include "base/hash/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/process.h"
#include "comm/cluster/cluster_claim.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* attempts to find a running job or to open its place; of a job of one rank, where another process
 * may wait for seconds before it begins the job */
enum { ATTEMPTS = 5, LONE_ATTEMPTS = 15 };

/* Returns the control channel behind a bootstrap of this kind. */
static trmi_side *side_of(trm_bootstrap *bootstrap) { return (trmi_side *)(void *)bootstrap; }

/* Poisons the job. A rank other than 0 sends its cause to rank 0 and waits for the echo. */
static void side_poison(trm_bootstrap *bootstrap, const trm_error *cause) {
    trmi_side *side = side_of(bootstrap);
    trm_error own = *cause;
    uint8_t wire[256];
    own.rank = own.rank < 0 ? bootstrap->rank : own.rank;
    own.status = own.status < 0 ? own.status : TRM_PEER;
    pthread_mutex_lock(&side->lock);
    if (bootstrap->rank != 0 && trmi_bootstrap_healthy(bootstrap) && side->links[0].fd >= 0) {
        /* Rank 0 decides which cause was first and sends it back. 0.3 s is ample for that. */
        trmi_error_encode(&own, wire);
        trmi_link_put(&side->links[0], TRMI_FRAME_POISON, 0, wire, sizeof wire);
        trmi_link_flush(&side->links[0]);
        double deadline = trmi_os_now() + 0.3;
        while (trmi_bootstrap_healthy(bootstrap) && trmi_os_now() < deadline) {
            (void)trmi_os_wait(&side->changed, &side->lock, deadline);
        }
    }
    trmi_side_raise(side, &own);
    pthread_mutex_unlock(&side->lock);
}

/* Returns the first cause of the job's failure. Without a failure it takes no lock, so that waits
 * can call it often. */
static trm_status side_check(trm_bootstrap *bootstrap, trm_error *err) {
    trmi_side *side = side_of(bootstrap);
    if (trmi_bootstrap_healthy(bootstrap)) {
        return TRM_OK;
    }
    pthread_mutex_lock(&side->lock);
    trm_error cause = side->cause;
    pthread_mutex_unlock(&side->lock);
    if (err != NULL) {
        *err = cause;
    }
    return (trm_status)cause.status;
}

/* Computes the HMAC-SHA256 of `data` with the secret that all ranks of the job share. */
static void side_sign(trm_bootstrap *bootstrap, const void *data, size_t bytes, uint8_t mac[32]) {
    (void)trmi_hmac_sha256(side_of(bootstrap)->secret, data, bytes, mac);
}

/* Leaves the job and frees everything. Accepts a partly created control channel. */
static void side_destroy(trm_bootstrap *bootstrap) {
    if (bootstrap == NULL) {
        return;
    }
    /* The service thread first, because it uses all that follows. */
    trmi_side *side = side_of(bootstrap);
    if (side->links != NULL) {
        trmi_side_stop(side);
    }
    trmi_link_close(&side->watcher);
    if (bootstrap->alarm_fd >= 0) {
        close(bootstrap->alarm_fd);
    }
    if (side->wake_fd >= 0) {
        close(side->wake_fd);
    }
    pthread_cond_destroy(&side->changed);
    pthread_mutex_destroy(&side->lock);
    trmi_free(side->exchange.blobs);
    trmi_free(side->exchange.arrived);
    trmi_free(side->links);
    trmi_free(side->peers);
    trmi_free(side->polls);
    trmi_free(side->host_of);
    explicit_bzero(side->secret, sizeof side->secret);
    trmi_free(side);
}

/* Gathers for a job of one rank: its table needs no socket and no thread. */
static trm_status lone_allgather(trm_bootstrap *bootstrap, const void *mine, size_t bytes,
                                 void *all, double timeout_seconds, trm_error *err) {
    (void)timeout_seconds;
    TRMI_TRY(bootstrap->table->check(bootstrap, err));
    if (bytes > 0) {
        memmove(all, mine, bytes);
    }
    return TRM_OK;
}

/* The barrier of a job of one rank: only a failure ends it. */
static trm_status lone_barrier(trm_bootstrap *bootstrap, double timeout_seconds, trm_error *err) {
    (void)timeout_seconds;
    return bootstrap->table->check(bootstrap, err);
}

static const trmi_bootstrap_table tcp_table = {.name = "tcp",
                                               .allgather = trmi_side_allgather,
                                               .barrier = trmi_side_barrier,
                                               .poison = side_poison,
                                               .check = side_check,
                                               .sign = side_sign,
                                               .destroy = side_destroy};
static const trmi_bootstrap_table lone_table = {.name = "single",
                                                .allgather = lone_allgather,
                                                .barrier = lone_barrier,
                                                .poison = side_poison,
                                                .check = side_check,
                                                .sign = side_sign,
                                                .destroy = side_destroy};

/* Computes hello->host_id, which is equal for processes that can share memory: same boot, same
 * network, IPC and pid name spaces (shared memory is opened at /proc/PID/fd). A host_name in the
 * options replaces it (for tests on one machine). */
static void host_identity(const trm_join_options *options, trmi_hello *hello) {
    char text[TRMI_PLACE_BYTES + 64];
    trmi_process_write_place("net ipc pid", text);
    gethostname(hello->host, sizeof hello->host - 1); /* for messages */
    if (options->host_name != NULL) {
        snprintf(text, sizeof text, "named %.200s", options->host_name);
        snprintf(hello->host, sizeof hello->host, "%.47s", options->host_name);
    }
    (void)trmi_sha256(text, strlen(text), hello->host_id);
}

/* Computes base.cluster from the hosts' names, addresses and numbers of ranks. It does not use
 * host_id, because a host is the same cluster member after a reboot. */
static void digest_hosts(trmi_side *side, const int32_t *first) {
    char line[2 * TRMI_HOST_NAME_BYTES + 32];
    unsigned length = 32;
    EVP_MD_CTX *context = trmi_sha256_begin();
    bool good = context != NULL;
    for (int32_t h = 0; good && h < side->base.host_count; h++) {
        int32_t ranks = 0;
        for (int32_t r = 0; r < side->base.size; r++) {
            ranks += side->host_of[r] == h;
        }
        int bytes = snprintf(line, sizeof line, "%s %s %d\n", side->peers[first[h]].host,
                             side->peers[first[h]].address, ranks);
        good = EVP_DigestUpdate(context, line, (size_t)bytes) == 1;
    }
    if (!good || EVP_DigestFinal_ex(context, side->base.cluster, &length) != 1) {
        memset(side->base.cluster, 0, sizeof side->base.cluster);
    }
    EVP_MD_CTX_free(context);
}

/* Numbers the hosts in the order of their first ranks, and finds this rank's local rank and
 * address. All ranks compute the same from the same WELCOME. */
static trm_status find_hosts(trmi_side *side, trm_error *err) {
    trm_bootstrap *base = &side->base;
    int32_t *first;
    TRMI_TRY(TRMI_NEW(err, first, base->size, "for %d ranks", base->size));
    /* A rank without an earlier rank on its host begins a new host. */
    base->host_count = 0;
    for (int32_t r = 0; r < base->size; r++) {
        int32_t h = 0;
        while (h < base->host_count &&
               memcmp(side->peers[first[h]].host_id, side->peers[r].host_id, 32) != 0) {
            h++;
        }
        if (h == base->host_count) {
            first[base->host_count++] = r;
        }
        side->host_of[r] = h;
    }
    digest_hosts(side, first);
    trmi_free(first);
    /* Find this rank's place. */
    base->host = side->host_of[base->rank];
    base->local_rank = base->local_size = 0;
    for (int32_t r = 0; r < base->size; r++) {
        base->local_rank += r < base->rank && side->host_of[r] == base->host;
        base->local_size += side->host_of[r] == base->host;
    }
    memcpy(side->address, side->peers[base->rank].address, sizeof side->address);
    base->address = side->address;
    return TRM_OK;
}

/* Creates the control channel in the state before the meeting. */
static trm_status create_side(int32_t rank, int32_t size, const trm_join_options *options,
                              trmi_side **out, trm_error *err) {
    trmi_side *side;
    TRMI_TRY(TRMI_NEW(err, side, 1, "for the control channel"));
    /* Deadlines of waits are on the monotonic clock (trmi_os_now). */
    pthread_mutex_init(&side->lock, NULL);
    trmi_os_make_condition(&side->changed);
    /* No descriptor is open yet, so that side_destroy can follow an error at any time. */
    side->wake_fd = side->base.alarm_fd = side->watcher.fd = -1;
    side->options = *options;
    side->options.host_name = NULL;
    side->base.table = size == 1 ? &lone_table : &tcp_table;
    side->base.rank = rank;
    side->base.size = size;
    side->base.alarm = &side->alarm;
    side->base.address = "127.0.0.1";
    side->peers = trmi_alloc((size_t)size * sizeof *side->peers);
    side->host_of = trmi_alloc((size_t)size * sizeof *side->host_of);
    side->base.host_of = side->host_of;
    side->exchange.arrived = trmi_alloc((size_t)size * sizeof *side->exchange.arrived);
    /* Rank 0 has a link for each rank (its own stays unused), the others one to rank 0. */
    side->link_count = size == 1 ? 0 : rank == 0 ? size : 1;
    side->links = trmi_alloc((size_t)side->link_count * sizeof *side->links);
    for (int32_t l = 0; side->links != NULL && l < side->link_count; l++) {
        side->links[l].fd = -1;
    }
    *out = side;
    if (side->peers == NULL || side->host_of == NULL || side->exchange.arrived == NULL ||
        side->links == NULL) {
        return TRMI_NO_MEMORY(err, "for %d ranks", size);
    }
    return TRM_OK;
}

/* Contract in side.h. Deadlines, HELLO, place, token, settings of communicators. */
trm_status trmi_side_prepare(const trm_cluster *cluster, const trm_join_options *options,
                             trmi_join *join, trm_error *err) {
    const trm_cluster_info *info = trm_cluster_get(cluster);
    static const trm_join_options none;
    memset(join, 0, sizeof *join);
    /* Deadlines come from the caller's options, then HCCL_CONNECT_TIMEOUT, then defaults. */
    join->options = options != NULL ? *options : none;
    trm_join_options *o = &join->options;
    o->timeout_seconds = o->timeout_seconds > 0              ? o->timeout_seconds
                         : cluster->hccl.connect_seconds > 0 ? cluster->hccl.connect_seconds
                                                             : 120;
    o->heartbeat_seconds = o->heartbeat_seconds > 0 ? o->heartbeat_seconds : 1;
    o->host_seconds = o->host_seconds > 0 ? o->host_seconds : 4.5;
    o->stall_seconds = o->stall_seconds > 0 ? o->stall_seconds : 120;
    /* Tasks that cannot meet. */
    if (info->sparse_workers) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s lists workers sparsely (enableDynamicWorker); such workers come and "
                         "go and cannot form a world",
                         info->source);
    }
    if (info->rank < 0 && !info->rank_later && info->role != TRM_ROLE_SCHEDULER) {
        return TRMI_FAIL(err, TRM_INVALID, "this task (%s %d) is outside the world of %d ranks",
                         trm_role_name(info->role), info->task_index, info->size);
    }
    if (info->size > TRMI_SIDE_RANKS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%d ranks; at most %d can meet", info->size,
                         TRMI_SIDE_RANKS_MAX);
    }
    /* HELLO has what rank 0 checks and compares. */
    join->hello = (trmi_hello){.rank = info->rank,
                               .size = info->size,
                               .pid = (int32_t)getpid(),
                               .device = info->device_id};
    host_identity(o, &join->hello);
    join->exec_seconds = cluster->hccl.exec_seconds;
    join->deterministic = cluster->hccl.deterministic;
    snprintf(join->algorithm, sizeof join->algorithm, "%s",
             info->algorithm != NULL ? info->algorithm : "");
    if (info->size == 1) {
        return TRM_OK;
    }
    if (info->rendezvous == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s says rank %d of %d, but no address of rank 0 is set; set "
                         "TRIREME_RENDEZVOUS=host:port (or --rendezvous) on every rank",
                         info->source, info->rank, info->size);
    }
    return trmi_side_find_place(cluster, join, err);
}

trm_status trmi_side_find_place(const trm_cluster *cluster, trmi_join *join, trm_error *err) {
    const trm_cluster_info *info = trm_cluster_get(cluster);
    TRMI_TRY(trmi_place_parse(info->rendezvous, info->rendezvous_ports, &join->place, err));
    join->hint = cluster->table != NULL ? "; a job of another rank table meets elsewhere" : "";
    join->watched = cluster->watched;
    snprintf(join->address, sizeof join->address, "%s", cluster->hccl.address);
    trmi_cluster_digest(cluster, join->hello.digest);
    memcpy(join->hello.key, cluster->key, 32);
    if (info->token_file != NULL) {
        TRMI_TRY(trm_token_read(info->token_file, join->token, err));
        join->has_token = true;
    }
    return TRM_OK;
}

/* Tries to open the address: in a job whose ranks have no numbers, the first process that can do so
 * is rank 0. */
static void try_to_be_root(trmi_join *join) {
    trm_error ignored;
    join->listens = trmi_listen(&join->place, trmi_os_now() + join->options.timeout_seconds,
                                &join->listener, &ignored) == TRM_OK;
    join->hello.rank = join->listens ? 0 : join->hello.rank;
}

/* Settings that the communicator reads from the bootstrap. */
static void take_settings(trmi_side *side, const trmi_join *join) {
    side->base.start_seconds = join->options.timeout_seconds;
    side->base.exec_seconds = join->exec_seconds;
    side->base.deterministic = join->deterministic;
    memcpy(side->algorithm, join->algorithm, sizeof side->algorithm);
    side->base.algorithm = side->algorithm[0] != '\0' ? side->algorithm : NULL;
}

/* Makes a job of this rank alone. */
static trm_status form_alone(trmi_side *side, const trmi_join *join, trm_error *err) {
    side->base.table = &lone_table;
    side->link_count = 0;
    side->peers[0].pid = join->hello.pid;
    memcpy(side->peers[0].host, join->hello.host, sizeof side->peers[0].host);
    snprintf(side->peers[0].address, sizeof side->peers[0].address, "%.47s",
             join->holds != NULL ? join->hello.address : "127.0.0.1");
    if (getrandom(side->secret, 32, 0) != 32) {
        return TRMI_FAIL_SYS(err, "no random secret for the job");
    }
    return find_hosts(side, err);
}

/* Meets the other ranks and starts the control channel. A job of one rank needs no meeting, and a
 * rank that is left alone (the others are lost) continues without the channel. */
static trm_status form_side(trmi_side *side, trmi_join *join, trm_error *err) {
    if (join->hello.size == 1) {
        TRMI_TRY(join->holds != NULL ? trmi_side_root(side, join, err) : TRM_OK);
        return form_alone(side, join, err);
    }
    TRMI_TRY(side->base.rank == 0 ? trmi_side_root(side, join, err)
                                  : trmi_side_peer(side, join, err));
    if (side->base.size == 1) {
        return form_alone(side, join, err);
    }
    TRMI_TRY(find_hosts(side, err));
    TRMI_TRY(trmi_side_start(side, err));
    trmi_world_add(&side->base);
    return TRM_OK;
}

/* Overwrites the secrets of the meeting. On success *out is the bootstrap, otherwise all is freed.
 */
static trm_status end_join(trm_status status, trmi_side *side, trmi_join *join,
                           trm_bootstrap **out) {
    if (status != TRM_OK && join->listens) {
        trmi_listener_close(&join->listener);
    }
    explicit_bzero(join, sizeof *join);
    if (status == TRM_OK) {
        *out = &side->base;
    } else {
        side_destroy(side != NULL ? &side->base : NULL);
    }
    return status;
}

/* Joins the job: a scheduler waits for its end, a rank meets the others, and a process that comes
 * to a running job asks where its members listen. */
trm_status trmi_side_join(const trm_cluster *cluster, trmi_join *join, trm_bootstrap **out,
                          trm_error *err) {
    /* A scheduler is not a rank: it waits for the end of the job and gets END. */
    if (cluster->info.role == TRM_ROLE_SCHEDULER) {
        return end_join(trmi_side_watch(join, err), NULL, join, out);
    }
    /* A rank 0 that comes to a running job while no member listens begins a meeting, until a member
     * of the job tells it: where its doors are (END), or only that it runs (PENDING: this process
     * asks again). A member may also open the place between the question and the meeting, or a
     * question may be lost (INVALID). The same holds for a rank that takes the place of a lost rank
     * 0. */
    bool asks = false;
    trm_status status = TRM_PENDING;
    const int limit = join->holds != NULL ? LONE_ATTEMPTS : ATTEMPTS;
    for (int attempts = 0;
         status == TRM_PENDING || (asks && status == TRM_INVALID && attempts < limit); attempts++) {
        trmi_join attempt = *join;
        attempt.leads = trmi_side_leads(join);
        asks = join->running != NULL && (join->hello.size > 1 || join->holds != NULL) &&
               (join->hello.rank == 0 || attempt.leads);
        if (attempts > 0) {
            nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
        }
        status = asks ? trmi_side_ask_running(&attempt, NULL, NULL, err) : TRM_OK;
        if (status == TRM_OK) {
            if (cluster->first_is_root) {
                try_to_be_root(&attempt);
            }
            if (attempt.hello.rank == 0) {
                trmi_cluster_log_warnings(cluster);
            }
            status = trmi_side_meet(&attempt, out, err);
        }
        explicit_bzero(&attempt, sizeof attempt);
    }
    explicit_bzero(join, sizeof *join);
    return status;
}

trm_status trm_cluster_join(const trm_cluster *cluster, const trm_join_options *options,
                            trm_bootstrap **out, trm_error *err) {
    TRMI_NEED(err, cluster, out);
    trmi_join join;
    TRMI_TRY(trmi_side_prepare(cluster, options, &join, err));
    return trmi_side_join(cluster, &join, out, err);
}

trm_status trmi_side_meet(trmi_join *join, trm_bootstrap **out, trm_error *err) {
    trmi_side *side = NULL;
    trm_status status = create_side(join->leads ? 0 : join->hello.rank, join->hello.size,
                                    &join->options, &side, err);
    if (status == TRM_OK) {
        take_settings(side, join);
        status = form_side(side, join, err);
    }
    return end_join(status, side, join, out);
}

void trm_cluster_leave(trm_bootstrap *bootstrap) {
    if (bootstrap != NULL) {
        trm_comm_destroy(trmi_world_remove(bootstrap));
        bootstrap->table->destroy(bootstrap);
    }
}
