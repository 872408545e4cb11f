/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys a client: options, first connections, the beginning of a life.
 *
 *   join_server (each)   connect, HELLO; a server that is not up yet is awaited and named
 *   begin_life           a synchronous worker whose earlier life died: do all servers have its last
 *                        batch?  yes: go on behind it    none, or not in a step: compute it again
 *                        some: those go back to the rows before it, and all join again
 *
 * A life is one process in the place of a worker; servers know it by its incarnation, and refuse
 * what an earlier one sent after a later one has come. No server is changed before all servers have
 * answered. */
#include "ps/client/client.h"
#include "ps/client/life.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <unistd.h>

static const double say_seconds = 10; /* between log lines about a server that is awaited */
/* for what a dead process had sent; its connection ends at once unless its host has gone, too */
static const double earlier_life_seconds = 2;

/* Checks the options and fills in defaults.
 *   errors  INVALID */
static trm_status check_options(const trm_ps_client_options *in, trm_ps_client_options *out,
                                trm_error *err) {
    trm_ps_client_options o = *in;
    /* 0 selects the default */
    o.wire = o.wire == TRM_DTYPE_NONE ? TRM_FLOAT32 : o.wire;
    o.pushes_ahead = o.pushes_ahead == 0 ? 4 : o.pushes_ahead;
    o.cache_staleness = o.cache_staleness == 0 ? 1 : o.cache_staleness;
    o.ring_bytes = o.ring_bytes == 0 ? (size_t)32 << 20 : o.ring_bytes;
    o.timeout_seconds = o.timeout_seconds == 0 ? 60 : o.timeout_seconds;
    o.retry_seconds = o.retry_seconds == 0 ? 5 : o.retry_seconds;
    if (o.servers < 1 || o.servers > TRMI_PS_SHARDS_MAX ||
        (o.addresses == NULL) == (o.local == NULL)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a client needs the addresses of 1 to %d servers, or servers of this "
                         "process; found %d",
                         TRMI_PS_SHARDS_MAX, o.servers);
    }
    /* numbers, wire dtype, size of rings */
    if (o.worker < -1 || o.worker >= TRMI_PS_WORKERS_MAX - 1 || o.pushes_ahead < 1 ||
        o.pushes_ahead > TRMI_PUSHES_AHEAD_MAX || o.cache_rows < 0 || o.cache_staleness < 0 ||
        !(o.timeout_seconds > 0) || !(o.retry_seconds > 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "worker %d, %d pushes ahead: worker 0 to %d (-1 only reads), 1 to %d "
                         "pushes, times above 0 expected",
                         o.worker, o.pushes_ahead, TRMI_PS_WORKERS_MAX - 2, TRMI_PUSHES_AHEAD_MAX);
    }
    if (o.wire != TRM_FLOAT32 && o.wire != TRM_BFLOAT16 && o.wire != TRM_FLOAT16) {
        return TRMI_FAIL(err, TRM_INVALID, "wire dtype %s: float32, bfloat16 or float16 expected",
                         trm_dtype_name(o.wire));
    }
    if (o.ring_bytes < 4096 || (o.ring_bytes & (o.ring_bytes - 1)) != 0 ||
        o.ring_bytes > TRMI_MESSAGE_BYTES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "ring_bytes is %zu: a power of two from 4096 to 1 GB expected",
                         o.ring_bytes);
    }
    *out = o;
    return TRM_OK;
}

/* Connects to one server for the first time, until the deadline. A server that is not up yet, or
 * dies during HELLO, is awaited; every ten seconds a log line names it. */
static trm_status join_server(trm_ps_client *client, trmi_server_connection *peer, double deadline,
                              trm_error *err) {
    const double start = trmi_os_now();
    for (;;) {
        double now = trmi_os_now(), slice = now + say_seconds;
        trm_status status =
            trmi_client_connect(client, peer, true, slice < deadline ? slice : deadline, err);
        bool gone = (status == TRM_PEER || status == TRM_TIMEOUT) && peer->address[0] != '\0';
        if (gone && trmi_client_is_stopped(client)) {
            return trmi_client_stopped(peer, err);
        }
        if (!gone || client->refused_here || trmi_os_now() >= deadline) {
            return status;
        }
        if (trmi_os_now() >= slice && err != NULL) {
            trmi_log(TRM_LOG_WARN, "ps", "waiting for server %d since %.0f s, until %.0f s: %s",
                     peer->number, trmi_os_now() - start, deadline - start, err->message);
        }
        usleep(50000);
    }
}

/* Sends all servers the order to give up a batch of the earlier life, which not all of them have.
 * PENDING: some have applied it and start again, to go back to the rows before it. */
static trm_status send_servers_back(trm_ps_client *client, int64_t batch, trm_error *err) {
    const trmi_ps_note note = {.value = {TRMI_ORDER_BEGINS, batch, 2}};
    bool some = false;
    for (uint32_t s = 0; s < client->servers; s++) {
        TRMI_TRY(trmi_client_order(client, &client->peers[s], TRMI_PS_CONTROL, &note, NULL, NULL, 0,
                                   err));
        some = some || client->answer.note.value[1] != 0;
    }
    return some ? TRM_PENDING : TRM_OK;
}

/* Requests from a server what it has of a batch of the earlier life, until the batch is in no step
 * that is being logged. With batch 0 the server first takes what the earlier life has sent: its
 * connection ends when the process does. Where its host has gone no end comes, so that the wait is
 * limited. */
static trm_status ask_for_batch(trm_ps_client *client, trmi_server_connection *peer, int64_t batch,
                                int64_t *here, trm_error *err) {
    trmi_ps_note note = {.value = {TRMI_ORDER_BEGINS, batch}};
    const double deadline = trmi_client_deadline(client);
    const double at_once = trmi_os_now() + earlier_life_seconds;
    for (;;) {
        note.value[3] = trmi_os_now() >= at_once || trmi_os_now() >= deadline;
        TRMI_TRY(trmi_client_order(client, peer, TRMI_PS_CONTROL, &note, NULL, NULL, 0, err));
        *here = client->answer.note.value[1];
        if (batch == 0 ? client->answer.note.value[2] == 0 : *here != TRMI_HERE_SOON) {
            return TRM_OK;
        }
        if (batch != 0 && trmi_os_now() >= deadline) {
            return TRMI_FAIL(err, TRM_TIMEOUT,
                             "server %d has not logged the step for %.0f s that batch %lld of this "
                             "worker waits for: its log says why",
                             peer->number, client->options.timeout_seconds, (long long)batch);
        }
        usleep(1000);
    }
}

/* SYNC with several servers: settles what the worker's earlier life has left. Two rounds of
 * BEGINS ask all servers for the last batch that may be in a step, and have all take what they
 * have of it (server_front.c). If some server lacks it because it has died too, the batch is
 * computed again: restarted servers then have the rows of the step before (server_last_step.c),
 * and those that live go back to them. PENDING: some go back; the worker must join again. All
 * servers have that earlier step, because its rows were read from all of them. */
static trm_status begin_life(trm_ps_client *client, trm_error *err) {
    int64_t last = 0, answer;
    bool everywhere = true;
    if (client->mode != TRM_PS_SYNC || client->servers == 1 || client->reader) {
        return TRM_OK;
    }
    /* Ask first for the last batch that any server has, ... */
    for (uint32_t s = 0; s < client->servers; s++) {
        TRMI_TRY(ask_for_batch(client, &client->peers[s], 0, &answer, err));
        last = trmi_max_i64(last, answer);
    }
    /* ... then whether all servers have that batch, ... */
    for (uint32_t s = 0; s < client->servers && last > 0; s++) {
        TRMI_TRY(ask_for_batch(client, &client->peers[s], last, &answer, err));
        everywhere = everywhere && answer != TRMI_HERE_NOT;
    }
    if (!everywhere) {
        TRMI_TRY(send_servers_back(client, last, err));
    }
    /* ... and let all servers know that they all have batch `known`. */
    const int64_t known = last - !everywhere;
    const trmi_ps_note note = {.value = {TRMI_ORDER_BEGINS, known, 1}};
    for (uint32_t s = 0; s < client->servers && known > 0; s++) {
        TRMI_TRY(trmi_client_order(client, &client->peers[s], TRMI_PS_CONTROL, &note, NULL, NULL, 0,
                                   err));
    }
    client->next_batch = trmi_max_i64(client->next_batch, known);
    return TRM_OK;
}

/* Joins all servers and begins this worker's life, again while servers go back by a step. */
static trm_status join_all(trm_ps_client *client, trm_error *err) {
    const double deadline = trmi_client_deadline(client);
    trm_status status;
    do {
        for (uint32_t s = 0; s < client->servers; s++) {
            trmi_client_drop(client, &client->peers[s]);
            TRMI_TRY(join_server(client, &client->peers[s], deadline, err));
        }
        status = begin_life(client, err);
        if (status == TRM_PENDING) {
            usleep(50000);
        }
    } while (status == TRM_PENDING && trmi_os_now() < deadline);
    return status != TRM_PENDING
               ? status
               : TRMI_FAIL(err, TRM_TIMEOUT,
                           "servers that go back by a step have not started again: start each "
                           "server again whose wait gives TRM_PENDING");
}

/* Contract in client.h. */
trm_status trmi_client_create_wrapped(const trm_ps_client_options *options,
                                      trmi_channel *(*wrap)(void *context, trmi_channel *channel),
                                      void *context, trm_ps_client **out, trm_error *err) {
    trm_ps_client_options checked;
    TRMI_TRY(check_options(options, &checked, err));
    trm_ps_client *client;
    TRMI_TRY(TRMI_NEW(err, client, 1, "for a client"));
    trm_status status = TRM_OK;
    /* a reader has a worker number that no worker can have */
    client->options = checked;
    client->servers = (uint32_t)checked.servers;
    client->reader = checked.worker < 0;
    client->worker = client->reader ? TRMI_PS_WORKERS_MAX - 1 : (uint32_t)checked.worker;
    client->wrap = wrap;
    client->wrap_context = context;
    trmi_ps_make_mark(checked.job_id, checked.job_origin, &client->job);
    if (checked.token != NULL) {
        memcpy(client->token, checked.token, sizeof client->token);
        client->has_token = true;
    }
    client->peers = trmi_alloc(client->servers * sizeof *client->peers);
    client->tables = trmi_alloc(TRMI_PS_TABLES_MAX * sizeof *client->tables);
    client->caches = trmi_alloc(TRMI_PS_TABLES_MAX * sizeof *client->caches);
    if (client->peers == NULL || client->tables == NULL || client->caches == NULL) {
        status = TRMI_NO_MEMORY(err, "for a client");
        goto failed;
    }
    for (uint32_t s = 0; s < client->servers; s++) {
        trmi_server_connection *peer = &client->peers[s];
        peer->number = (int32_t)s;
        if (checked.addresses != NULL) {
            snprintf(peer->address, sizeof peer->address, "%s", checked.addresses[s]);
        }
    }
    /* Greet all servers; they answer with the batch that this worker continues with. */
    TRMI_TRY_GOTO(status, join_all(client, err), failed);
    client->joined = client->next_batch;
    *out = client;
    return TRM_OK;
failed:
    client->incarnation = 0; /* the life has not begun: send no BYE */
    trm_ps_client_destroy(client);
    return status;
}

trm_status trm_ps_client_create(const trm_ps_client_options *options, trm_ps_client **out,
                                trm_error *err) {
    TRMI_NEED(err, options, out);
    return trmi_client_create_wrapped(options, NULL, NULL, out, err);
}

/* Contract in trireme/ps.h. BYE is sent without waiting for answers. Samples of leases go to other
 * workers with it; a batch of the worker's own would be in no step. */
void trm_ps_client_destroy(trm_ps_client *client) {
    if (client == NULL) {
        return;
    }
    const bool owes = client->unfinished && client->last_lease == 0;
    for (uint32_t s = 0; s < client->servers && client->peers != NULL; s++) {
        trmi_server_connection *peer = &client->peers[s];
        if (peer->channel != NULL && client->incarnation > 0 && !client->reader && !owes) {
            const trmi_ps_note bye = {.value = {TRMI_ORDER_BYE}};
            (void)!trmi_client_send_order(client, peer, &bye, NULL, 0, trmi_os_now() + 1);
        }
        trmi_client_drop(client, peer);
        trmi_free(peer->answer.trailer);
        for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
            trmi_free(peer->pending[i].data);
        }
    }
    for (uint32_t t = 0; t < client->table_count; t++) {
        trmi_free((void *)(uintptr_t)client->tables[t].name);
        trmi_cache_destroy(client->caches[t]);
    }
    trmi_free(client->answer.trailer);
    trmi_free(client->steps);
    trmi_free(client->tables);
    trmi_free(client->caches);
    trmi_free(client->peers);
    trmi_free(client);
}

void trm_ps_client_get_stats(const trm_ps_client *client, trm_ps_client_stats *out) {
    TRMI_NEED_OR(, NULL, client, out);
    *out = client->stats;
}

trm_ps_mode trmi_client_mode(const trm_ps_client *client) { return client->mode; }
int64_t trm_ps_client_next_batch(const trm_ps_client *client) {
    TRMI_NEED_OR(0, NULL, client);
    return client->next_batch;
}
