/* SPDX-License-Identifier: Apache-2.0 */
/* Control requests to all servers: tables, statistics, leases, workers, snapshots, the end of the
 * job.
 *
 *   HOLD (all servers) -> carry_steps -> SNAPSHOT (all servers) -> pushes flow again -> manifest
 *                                                                   -> RELEASE, the files are there
 *
 * Server 0 decides what must be one for all: numbers of tables, leases, steps. SNAPSHOT goes to all
 * servers before the first answer is awaited, so that they write at the same time.
 *
 * Invariant: a snapshot is of one moment. While servers hold, no push is applied that others lack;
 * a server that holds is released, also after an error or when this client dies, as its connection
 * ends.
 */
#include "ps/client/client.h"
#include "ps/snapshot/snapshot_manifest.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format/report.h"
#include "base/memory.h"
#include "base/os.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LEAVE_AGAIN_MS = 200, REST_AGAIN_SECONDS = 1 };

/* Declares a table, which must get the same number on every server. */
static trm_status declare_table(trm_ps_client *client, const trm_table_options *options,
                                int32_t *table, trm_error *err) {
    trm_table_options checked;
    TRMI_TRY(trmi_row_table_check(options, &checked, err));
    /* server 0 determines the number, the other servers must agree */
    uint32_t number = client->table_count;
    for (uint32_t s = 0; s < client->servers; s++) {
        TRMI_TRY(trmi_client_order(client, &client->peers[s], TRMI_PS_TABLE, NULL, &checked, NULL,
                                   0, err));
        int64_t theirs = client->answer.note.value[1];
        if (s == 0 && theirs >= 0 && theirs <= TRMI_PS_TABLES_MAX) {
            number = (uint32_t)theirs;
        }
        if (theirs != number || number > client->table_count) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "table '%s' is number %lld on server %u, %u expected: declare the "
                             "same tables in the same order everywhere",
                             checked.name, (long long)theirs, s,
                             s == 0 ? client->table_count : number);
        }
    }
    /* a table that this client did not have yet */
    if (number == client->table_count) {
        size_t length = strlen(checked.name) + 1;
        char *name = trmi_alloc(length);
        if (name == NULL) {
            return TRMI_NO_MEMORY(err, "for table '%s'", checked.name);
        }
        memcpy(name, checked.name, length);
        client->tables[number] = checked;
        client->tables[number].name = name;
        client->widths[number] = checked.width;
        client->table_count++;
        TRMI_TRY(trm_ps_client_cache(client, (int32_t)number, client->options.cache_rows, err));
    }
    *table = (int32_t)number;
    return TRM_OK;
}

/* Contract in trireme/ps.h. A worker that fails here owes its batches as one that fails in a pull:
 * the others wait for its next life. */
trm_status trm_ps_client_table(trm_ps_client *client, const trm_table_options *options,
                               int32_t *table, trm_error *err) {
    TRMI_NEED(err, client, options, table);
    return trmi_client_note(client, declare_table(client, options, table, err));
}

trm_status trm_ps_client_cache(trm_ps_client *client, int32_t table, int64_t rows, trm_error *err) {
    TRMI_NEED(err, client);
    if (table < 0 || (uint32_t)table >= client->table_count || rows < 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "a cache of %lld rows for table %d of %u: rows of a declared table expected",
            (long long)rows, table, client->table_count);
    }
    if (rows == 0 || client->caches[table] != NULL) {
        return TRM_OK;
    }
    size_t row = (size_t)client->widths[table] * trm_dtype_bytes(client->options.wire);
    return trmi_cache_create(rows, row, &client->caches[table], err);
}

/* Contract in trireme/ps.h: the sum over all servers. */
trm_status trm_ps_table_get_stats(trm_ps_client *client, int32_t table, trm_table_stats *out,
                                  trm_error *err) {
    TRMI_NEED(err, client, out);
    trm_table_stats sum = {0};
    for (uint32_t s = 0; s < client->servers; s++) {
        trmi_ps_note note = {.value = {TRMI_ORDER_STATS, table}};
        trm_table_stats one;
        TRMI_TRY(trmi_client_order(client, &client->peers[s], TRMI_PS_CONTROL, &note, NULL, NULL, 0,
                                   err));
        if (client->answer.trailer_bytes != sizeof one) {
            return TRMI_FAIL(err, TRM_CORRUPT, "server %u: statistics of %zu bytes", s,
                             client->answer.trailer_bytes);
        }
        memcpy(&one, client->answer.trailer, sizeof one);
        trmi_table_stats_add(&sum, &one);
    }
    *out = sum;
    return TRM_OK;
}

/* Sends a server the steps until it has applied them: it answers with the last one that is in all
 * its shards. */
static trm_status confirm_steps(trm_ps_client *c, trmi_server_connection *peer, trm_error *err) {
    const double deadline = trmi_client_deadline(c);
    while (peer->step < c->steps_last) {
        int64_t settled = c->staging ? (int64_t)trmi_client_steps_settled(c) : 0;
        trmi_ps_note note = {.value = {TRMI_ORDER_STEPS, settled}};
        TRMI_TRY(trmi_client_order(c, peer, TRMI_PS_CONTROL, &note, NULL, c->steps, c->steps_bytes,
                                   err));
        peer->step = trmi_max_i64(peer->step, c->answer.note.value[2]);
        if (peer->step < c->steps_last && trmi_os_now() >= deadline) {
            return TRMI_FAIL(err, TRM_TIMEOUT,
                             "server %d has applied step %lld of %lld at the end of the time limit",
                             peer->number, (long long)peer->step, (long long)c->steps_last);
        }
        if (peer->step < c->steps_last) {
            poll(NULL, 0, 1);
        }
    }
    return TRM_OK;
}

/* Contract in client.h. */
trm_status trmi_client_steps_confirm(trm_ps_client *c, trm_error *err) {
    for (uint32_t s = 1; s < c->servers; s++) {
        TRMI_TRY(confirm_steps(c, &c->peers[s], err));
    }
    return TRM_OK;
}

/* Returns a BYE: the servers no longer wait for this worker, for a while (`rests`) or for good. */
static trmi_ps_note make_bye(const trm_ps_client *client, bool rests) {
    return (trmi_ps_note){.value = {TRMI_ORDER_BYE, rests, (int64_t)client->next_sequence}};
}

/* Sends BYE to all servers and waits for their answers. Returns the first error; the other servers
 * are told nevertheless. */
static trm_status send_bye(trm_ps_client *client, bool rests, trm_error *err) {
    const trmi_ps_note note = make_bye(client, rests);
    trm_status status = TRM_OK;
    for (uint32_t s = 0; s < client->servers; s++) {
        trm_status one = trmi_client_order(client, &client->peers[s], TRMI_PS_CONTROL, &note, NULL,
                                           NULL, 0, status == TRM_OK ? err : NULL);
        status = status == TRM_OK ? one : status;
    }
    return status;
}

/* Contract in trireme/ps.h. A server whose disk is full cannot log the goodbye: it is said again,
 * because the server, started again, would wait for this worker. */
trm_status trm_ps_leave(trm_ps_client *client, trm_error *err) {
    TRMI_NEED(err, client);
    double deadline = trmi_os_now() + client->options.timeout_seconds;
    trm_status status = send_bye(client, false, err);
    while (status == TRM_NOSPACE && trmi_os_now() < deadline) {
        poll(NULL, 0, LEAVE_AGAIN_MS);
        status = send_bye(client, false, err);
    }
    return status;
}

/* Notes when, and over which connection, a server was told that this worker has no samples. */
static void note_rest_said(trmi_server_connection *peer) {
    peer->rest_said = trmi_os_now();
    peer->rest_reconnects = peer->reconnects;
}

/* Says again that this worker rests: at once over a new connection, because a server that was
 * started again, or to which a push came again, would wait for this worker from then on; over an
 * old one each second, because such a push may come later. No answer is awaited: the worker needs
 * server 0 only, and a server that is away gets it when it is back. */
static trm_status say_rest_again(trm_ps_client *client, trm_error *err) {
    const double deadline = trmi_client_deadline(client);
    const trmi_ps_note note = make_bye(client, true);
    for (uint32_t s = 0; s < client->servers; s++) {
        trmi_server_connection *peer = &client->peers[s];
        TRMI_TRY(trmi_client_serve(client, peer, deadline, err));
        const bool knows = peer->rest_reconnects == peer->reconnects &&
                           trmi_os_now() - peer->rest_said < REST_AGAIN_SECONDS;
        if (!knows && peer->channel != NULL &&
            trmi_client_send_order(client, peer, &note, NULL, 0, deadline) == TRM_OK) {
            note_rest_said(peer);
        }
    }
    return TRM_OK;
}

/* Contract in client.h. */
trm_status trmi_client_rest(trm_ps_client *client, trm_error *err) {
    if (client->resting) {
        return say_rest_again(client, err);
    }
    TRMI_TRY(send_bye(client, true, err));
    for (uint32_t s = 0; s < client->servers; s++) {
        note_rest_said(&client->peers[s]);
    }
    client->resting = true;
    return TRM_OK;
}

/* Contract in trireme/ps.h. The request names the newest lease that this worker has received, so
 * that server 0 takes back a lease whose answer was lost, and says whether the worker rests, which
 * a server that was started again may not know. */
trm_status trm_ps_lease_take(trm_ps_client *client, const trm_ps_lease_options *options,
                             trm_ps_lease *lease, trm_error *err) {
    TRMI_NEED(err, client, options, lease);
    trmi_ps_note note = {.value = {TRMI_ORDER_LEASE, options->samples, options->lease_samples,
                                   options->epochs, (int64_t)(options->timeout_seconds * 1e3),
                                   client->last_lease, options->samples_max, options->batch,
                                   client->resting}};
    if (client->reader) {
        return TRMI_FAIL(err, TRM_INVALID, "worker -1 only reads: it gets no samples");
    }
    TRMI_TRY(
        trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, err));
    const trmi_ps_note answer = client->answer.note;
    const int64_t *v = answer.value;
    client->staging = client->mode == TRM_PS_SYNC;
    TRMI_TRY(
        trmi_client_steps_merge(client, client->answer.trailer, client->answer.trailer_bytes, err));
    /* the worker that made the last step may be dead: carry the step in its place */
    if (v[5] == TRM_END) {
        TRMI_TRY(trmi_client_steps_confirm(client, err));
        return TRM_END;
    }
    if (v[5] != TRM_OK) {
        TRMI_TRY(client->mode == TRM_PS_BOUNDED ? trmi_client_rest(client, err) : TRM_OK);
        return TRM_PENDING; /* synchronous: server 0 has set this worker inactive itself */
    }
    /* A lease was granted. A worker that has rested, or begins, counts its batches from those of
     * the slowest one: else that one would wait until this worker has made as many. */
    if ((client->resting || client->next_batch == client->joined) && v[7] > client->next_batch) {
        client->next_batch = client->joined = v[7];
    }
    client->resting = false;
    *lease = (trm_ps_lease){v[1], v[2], v[3], v[4]};
    client->last_lease = lease->id;
    client->lease_book = (uint32_t)v[6];
    client->lease_samples = options->samples;
    /* Batches are recognised by their samples, not by clocks: begin after the last clock that
     * any server has. */
    if (client->next_batch == client->joined) {
        client->next_batch = client->joined = trmi_max_i64(client->joined, client->most_batches);
    }
    return TRM_OK;
}

/* Contract in trireme/ps.h. Server 0 has the list. */
trm_status trm_ps_workers(trm_ps_client *client, trm_ps_worker *workers, int32_t capacity,
                          int32_t *count, trm_error *err) {
    TRMI_NEED(err, client, count);
    if (capacity > 0) {
        TRMI_NEED(err, workers);
    }
    trmi_ps_note note = {.value = {TRMI_ORDER_WORKERS}};
    TRMI_TRY(
        trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, err));
    if (client->answer.trailer_bytes % sizeof *workers != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "server 0: a list of workers of %zu bytes",
                         client->answer.trailer_bytes);
    }
    client->stats.global_step =
        trmi_max_i64(client->stats.global_step, client->answer.note.value[1]);
    *count = (int32_t)(client->answer.trailer_bytes / sizeof *workers);
    int32_t shown = *count < capacity ? *count : capacity;
    memcpy(workers, client->answer.trailer, (size_t)shown * sizeof *workers);
    return TRM_OK;
}

trm_status trm_ps_stop_servers(trm_ps_client *client, trm_error *err) {
    TRMI_NEED(err, client);
    for (uint32_t s = 0; s < client->servers; s++) {
        trmi_ps_note note = {.value = {TRMI_ORDER_STOP}};
        TRMI_TRY(trmi_client_order(client, &client->peers[s], TRMI_PS_CONTROL, &note, NULL, NULL, 0,
                                   err));
    }
    return TRM_OK;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* What the servers have together: the last push of each worker, and the last synchronous step. */
typedef struct vector {
    trmi_push_id *ids;
    int64_t count, capacity;
    int64_t step;
} vector;

/* Merges the last pushes of one server into the maximum over all servers. Returns false without
 * memory. */
static bool take_maximum(vector *v, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        trmi_push_id id;
        memcpy(&id, bytes + i * sizeof id, sizeof id);
        int64_t at = 0;
        while (at < v->count && v->ids[at].worker != id.worker) {
            at++;
        }
        if (at == v->count) {
            if (!trmi_grow((void **)&v->ids, &v->capacity, v->count + 1, sizeof *v->ids)) {
                return false;
            }
            v->ids[v->count++] = id;
        }
        trmi_push_id *have = &v->ids[at];
        if (id.incarnation > have->incarnation ||
            (id.incarnation == have->incarnation && id.sequence > have->sequence)) {
            *have = id;
        }
    }
    return true;
}

/* Sends RELEASE to the first `servers` servers; keeps the first error. Where there is no memory for
 * the request, the end of the connection releases the server. */
static void release_servers(trm_ps_client *client, uint32_t servers, const trmi_ps_note *note,
                            const trmi_text *manifest, trm_status *status, trm_error *err) {
    for (uint32_t s = 0; s < servers; s++) {
        trm_status one = trmi_client_order(client, &client->peers[s], TRMI_PS_CONTROL, note, NULL,
                                           manifest == NULL ? NULL : manifest->data,
                                           manifest == NULL ? 0 : manifest->length,
                                           *status == TRM_OK ? err : NULL);
        *status = *status == TRM_OK ? one : *status;
        if (one == TRM_NOMEM) {
            trmi_client_drop(client, &client->peers[s]);
        }
    }
}

/* Carries the steps that server 0 had decided when it was held to all servers, so that they are
 * in the snapshot. */
static trm_status carry_steps(trm_ps_client *client, trm_error *err) {
    trmi_ps_note note = {.value = {TRMI_ORDER_STEPS}};
    if (client->mode != TRM_PS_SYNC || client->servers == 1) {
        return TRM_OK;
    }
    TRMI_TRY(
        trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, err));
    TRMI_TRY(
        trmi_client_steps_merge(client, client->answer.trailer, client->answer.trailer_bytes, err));
    return trmi_client_steps_confirm(client, err);
}

/* Sends HOLD to all servers and collects their last pushes. *held: servers that hold. A full
 * snapshot is taken if a server needs it, or if the servers do not have the same last snapshot
 * because one was restarted. */
static trm_status hold_all(trm_ps_client *client, trm_ps_checkpoint_result *result, vector *v,
                           uint32_t *held, trm_error *err) {
    for (; *held < client->servers; ++*held) {
        trmi_ps_note note = {.value = {TRMI_ORDER_HOLD}};
        TRMI_TRY(trmi_client_order(client, &client->peers[*held], TRMI_PS_CONTROL, &note, NULL,
                                   NULL, 0, err));
        const int64_t next = client->answer.note.value[1] + 1;
        bool needs_full =
            client->answer.note.value[2] != 0 || (*held > 0 && next != (int64_t)result->snapshot);
        result->snapshot = (uint32_t)trmi_max_i64(result->snapshot, next);
        result->differential = result->differential && !needs_full;
        v->step = trmi_max_i64(v->step, client->answer.note.value[3]);
        if (!take_maximum(v, client->answer.trailer,
                          client->answer.trailer_bytes / sizeof(trmi_push_id))) {
            ++*held;
            return TRMI_NO_MEMORY(err, "for a checkpoint");
        }
    }
    return TRM_OK;
}

/* Holds all servers. If a server is still busy with another snapshot, all are released and the
 * attempt is repeated until the deadline. */
static trm_status hold_when_ready(trm_ps_client *client, trm_ps_checkpoint_result *result,
                                  vector *v, uint32_t *held, trm_error *err) {
    const trm_ps_checkpoint_result wanted = *result;
    const double deadline = trmi_client_deadline(client);
    for (;;) {
        trm_status status = hold_all(client, result, v, held, err);
        if (status != TRM_TIMEOUT || trmi_os_now() >= deadline) {
            return status;
        }
        const trmi_ps_note nothing = {.value = {TRMI_ORDER_RELEASE}};
        release_servers(client, *held, &nothing, NULL, &status, NULL);
        *result = wanted;
        *held = 0;
        v->count = 0;
        v->step = 0;
        usleep(20000);
    }
}

/* Adds the files of one server, from its answer, to the manifest. */
static void put_files(trm_ps_client *client, uint32_t server, trmi_report *manifest,
                      trm_ps_checkpoint_result *result) {
    for (size_t i = 0; i < client->answer.trailer_bytes / sizeof(trmi_snapshot_file); i++) {
        trmi_snapshot_file file;
        uint32_t from, shard;
        char digest[24];
        memcpy(&file, client->answer.trailer + i * sizeof file, sizeof file);
        file.name[sizeof file.name - 1] = '\0';
        if (sscanf(file.name, "server-%u-shard-%u.", &from, &shard) != 2) {
            manifest->into->failed = true;
            return;
        }
        snprintf(digest, sizeof digest, "%016" PRIx64, file.digest);
        trmi_report_break(manifest, 4);
        trmi_report_open_object(manifest, NULL);
        trmi_report_put(manifest, trmi_int("server", server), trmi_int("shard", shard),
                        trmi_int("bytes", file.bytes), trmi_int("rows", file.rows),
                        trmi_string("digest", digest));
        trmi_report_close(manifest);
        result->rows += file.rows;
        result->bytes += file.bytes;
    }
}

/* Sends SNAPSHOT to all servers before waiting for any, so that they collect pushes and write at
 * the same time; writes the manifest. */
static trm_status snapshot_all(trm_ps_client *client, const vector *v,
                               trm_ps_checkpoint_result *result, double started,
                               trmi_text *manifest, trm_error *err) {
    trm_status status = TRM_OK;
    /* all orders go out first */
    for (uint32_t s = 0; s < client->servers && status == TRM_OK; s++) {
        trmi_ps_note note = {
            .value = {TRMI_ORDER_SNAPSHOT, result->snapshot, result->differential, v->step}};
        status = trmi_client_order_send(client, &client->peers[s], TRMI_PS_CONTROL, &note, NULL,
                                        v->ids, (size_t)v->count * sizeof *v->ids, err);
    }
    /* pushes flow again from here on, while the files are written */
    result->hold_seconds = trmi_os_now() - started;
    /* the manifest lists the files of each server as it answers */
    trmi_report r;
    trmi_report_begin_json(&r, manifest);
    r.spaced = true;
    trmi_report_break(&r, 2);
    trmi_report_put(&r, trmi_int("format", TRMI_SNAPSHOT_FORMAT),
                    trmi_int("snapshot", result->snapshot),
                    trmi_bool("differential", result->differential),
                    trmi_int("servers", client->servers), trmi_int("shards", client->shards));
    trmi_report_break(&r, 2);
    trmi_report_open_array(&r, "files");
    for (uint32_t s = 0; s < client->servers && status == TRM_OK; s++) {
        status = trmi_client_order_wait(client, &client->peers[s], err);
        if (status == TRM_OK) {
            put_files(client, s, &r, result);
        }
    }
    trmi_report_break(&r, 2);
    trmi_report_close(&r);
    trmi_report_break(&r, 0);
    (void)trmi_report_end(&r);
    TRMI_TRY(status);
    return manifest->failed ? TRMI_NO_MEMORY(err, "for a manifest") : TRM_OK;
}

/* Returns the error of a push of this worker that a server has refused, which stays for the next
 * call that trains: other servers may have the push, so that no snapshot is of one moment before
 * the worker's next life makes its batch again. A server answers a push before the HOLD after
 * it. */
static trm_status find_refused_push(const trm_ps_client *client, trm_error *err) {
    if (client->push_err.status != TRM_OK && err != NULL) {
        *err = client->push_err;
    }
    return (trm_status)client->push_err.status;
}

/* Contract in trireme/ps.h. HOLD, SNAPSHOT and RELEASE are described in server/server_order.c. */
trm_status trm_ps_checkpoint(trm_ps_client *client, bool differential,
                             trm_ps_checkpoint_result *result, trm_error *err) {
    TRMI_NEED(err, client, result);
    trm_ps_checkpoint_result r = {.differential = differential};
    vector v = {0};
    trmi_text manifest = {0};
    uint32_t held = 0;
    double started = trmi_os_now();
    trm_status status = hold_when_ready(client, &r, &v, &held, err);
    status = status == TRM_OK ? find_refused_push(client, err) : status;
    status = status == TRM_OK ? carry_steps(client, err) : status;
    if (status == TRM_OK) {
        status = snapshot_all(client, &v, &r, started, &manifest, err);
    }
    trmi_ps_note note = {
        .value = {TRMI_ORDER_RELEASE, status == TRM_OK ? (int64_t)r.snapshot : 0, r.differential}};
    release_servers(client, held, &note, status == TRM_OK ? &manifest : NULL, &status, err);
    free(v.ids);
    trmi_text_free(&manifest);
    if (status == TRM_OK) {
        r.seconds = trmi_os_now() - started;
        *result = r;
    }
    return status;
}
