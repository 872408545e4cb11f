/* SPDX-License-Identifier: Apache-2.0 */
/* Servers, workers and checkers of a simulated job (job.h): they use the public calls of
 * trireme/ps.h, as real roles do. */
#include "job.h"

#include "base/error.h"
#include "base/memory.h"
#include "ps/client/client.h"
#include "ps/client/life.h"
#include "ps/server/lease.h"
#include "ps/server/server.h"
#include "ps/table/row.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

const uint8_t sim_job_token[32] = {7}, sim_job_id[32] = {9};
const char sim_job_folder[] = "/job";

void sim_job_address(int server, char out[32]) { snprintf(out, 32, "10.0.0.%d:4000", server + 1); }

/* ---- a server -------------------------------------------------------------------------------- */

trm_status sim_job_start_server(int number, trm_ps_server **out, trm_error *err) {
    char address[32];
    sim_job_address(number, address);
    trm_ps_server_options o = {.server = number,
                               .servers = job.servers,
                               .shards = job.shards,
                               .listen = address,
                               .memory_bytes = 1 << 24,
                               .folder = sim_job_folder,
                               .mode = job.mode,
                               .staleness = job.staleness,
                               .workers = job.workers,
                               .sum_gradients = true,
                               .log_pushes = TRM_ON,
                               .log_sync = job.durable,
                               .worker_timeout_seconds = job.worker_timeout,
                               .token = sim_job_token,
                               .job_id = sim_job_id,
                               .job_origin = "simulation"};
    return trm_ps_server_start(&o, out, err);
}

int sim_server_main(void *argument) {
    int number = (int)(intptr_t)argument;
    const sim_process *self = sim.current->process;
    for (;;) {
        trm_ps_server *server;
        trm_error err;
        trm_status status = sim_job_start_server(number, &server, &err);
        if (status == TRM_IO || status == TRM_NOSPACE || status == TRM_NOMEM) {
            sim_trace(self, "does not start: %s", err.message);
            usleep(100000);
            continue;
        }
        if (status != TRM_OK) {
            sim_trace(self, "does not start: %s", err.message);
            sim_fail("server %d does not start: %s", number, err.message);
            return 3;
        }
        sim_trace(self, "serves");
        do {
            status = trm_ps_server_wait(server, 3600);
        } while (status == TRM_TIMEOUT);
        sim_trace(self, "stops: %d", (int)status);
        trm_ps_server_stop(server);
        /* or a connection that broke took a push with it */
        bool good = job.server_deaths > 0 || sim.data_lost;
        for (int k = 0; k < FAULT_KINDS; k++) {
            good = good || (job.comes[k] && k != FAULT_DEATH && k != FAULT_SLOW &&
                            k != FAULT_PAUSE && k != FAULT_CLOCK);
        }
        if (status == TRM_PENDING && !good) {
            sim_fail("server %d goes back by a step, although no server has died", number);
        }
        if (status != TRM_PENDING) {
            return status == TRM_OK ? 0 : 4;
        }
    }
}

/* ---- a worker -------------------------------------------------------------------------------- */

trm_status sim_job_reach(int worker, double timeout, const uint8_t *token, const uint8_t *id,
                         trm_ps_client **client, trm_error *err) {
    char text[JOB_SERVERS][32];
    const char *addresses[JOB_SERVERS];
    for (int s = 0; s < job.servers; s++) {
        sim_job_address(s, text[s]);
        addresses[s] = text[s];
    }
    trm_ps_client_options co = {.addresses = addresses,
                                .servers = job.servers,
                                .worker = worker,
                                .tcp_only = true,
                                .timeout_seconds = timeout,
                                .pushes_ahead = JOB_AHEAD,
                                .wire = job.halves ? TRM_FLOAT16 : TRM_DTYPE_NONE,
                                .cache_rows = worker < 0 ? 0 : job.cached,
                                .cache_staleness = 2,
                                .token = token,
                                .job_id = id,
                                .job_origin = "simulation"};
    return trm_ps_client_create(&co, client, err);
}

trm_status sim_job_connect(int worker, double timeout, trm_ps_client **client, int32_t *table,
                           trm_error *err) {
    trm_table_options o = {
        .name = "counts", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    TRMI_TRY(sim_job_reach(worker, timeout, sim_job_token, sim_job_id, client, err));
    return trm_ps_client_table(*client, &o, table, err);
}

typedef struct worker_state {
    int number;
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    int batches, pulls;
    int32_t others[2];    /* tables that are read only; 0: none */
    int32_t positions[8]; /* of the worker's blocks in the tree of all */
    int64_t heard;        /* when servers answered it, or it sent them a request, last */
    bool was_silent; /* before that, since its last pull, it had been silent for its time-out */
} worker_state;

static bool is_silent(const worker_state *w) {
    return sim.now - w->heard > (int64_t)(job.worker_timeout * 1e9);
}

/* Notes that the worker has an answer, or sends a request. One that stood still before was silent
 * for the servers, which its next pull shows. */
static void note_life(worker_state *w) {
    w->was_silent = w->was_silent || is_silent(w);
    w->heard = sim.now;
}

/* asked: when the worker sent its last request, after which servers hear nothing of it. */
static void compute_batch(int worker, int64_t asked) {
    usleep((useconds_t)(job.compute * job.pace[worker] * (0.5 + sim_unit(DRAW_ORDER)) * 1e6));
    sim_states_computed(worker, asked);
}

static void check_newest_snapshot(void);

trm_status __wrap_trmi_client_order(trm_ps_client *client, trmi_server_connection *peer,
                                    trmi_ps_kind kind, const trmi_ps_note *note,
                                    const trm_table_options *table, const void *trailer,
                                    size_t trailer_bytes, trm_error *err);
trm_status __real_trmi_client_order(trm_ps_client *client, trmi_server_connection *peer,
                                    trmi_ps_kind kind, const trmi_ps_note *note,
                                    const trm_table_options *table, const void *trailer,
                                    size_t trailer_bytes, trm_error *err);

/* The connection may break when a server holds pushes for this client; there may be no memory. */
trm_status __wrap_trmi_client_order(trm_ps_client *client, trmi_server_connection *peer,
                                    trmi_ps_kind kind, const trmi_ps_note *note,
                                    const trm_table_options *table, const void *trailer,
                                    size_t trailer_bytes, trm_error *err) {
    const bool holds = note != NULL && note->value[0] == TRMI_ORDER_HOLD;
    sim_states_order(peer->number, note != NULL ? note->value[0] : -1);
    TRMI_TRY(
        __real_trmi_client_order(client, peer, kind, note, table, trailer, trailer_bytes, err));
    if (holds) {
        sim_job_break_held(peer->number);
    }
    return TRM_OK;
}

/* The worker ends, well or with an error, which its client tells the servers, and has not been the
 * chief since. */
static bool says_goodbye[JOB_WORKERS];

/* Asks whether a worker is the chief. Another one was only if it has been silent since for as
 * long as its lease, or has left. */
static bool is_chief(trm_ps_client *client, int worker) {
    const int64_t asked = sim.now;
    trm_ps_chief chief;
    trm_error err;
    if (trm_ps_chief_request(client, worker == 0 ? TRM_PS_CHIEF_IS : TRM_PS_CHIEF_STANDS_IN, 0,
                             &chief, &err) != TRM_OK) {
        sim_trace(sim.current->process, "no answer who is the chief: %s", err.message);
        return false;
    }
    if (!chief.mine) {
        return false;
    }
    const double silent = (double)(sim.now - job.chief_asked) * 1e-9;
    if (job.chief >= 0 && job.chief != worker && !says_goodbye[job.chief] &&
        silent < job.worker_timeout) {
        sim_fail("worker %d is the chief %.3f s after worker %d, whose lease is %.3f s", worker,
                 silent, job.chief, job.worker_timeout);
    }
    job.chief = worker;
    job.chief_asked = asked;
    says_goodbye[worker] = false;
    return true;
}

/* A worker that is not the chief is refused a snapshot. */
static void try_without_lease(const worker_state *w) {
    trm_ps_checkpoint_result result;
    trm_error err;
    const int chief = job.chief;
    if (chief >= 0 && sim_random(DRAW_CHIEF, 8) == 0 && chief != w->number &&
        trm_ps_checkpoint(w->client, false, &result, &err) == TRM_OK) {
        sim_fail("worker %d takes a snapshot, although worker %d is the chief", w->number, chief);
    }
}

/* Log N has the pushes after snapshot N only: it began with that snapshot. */
static void check_logs(uint32_t snapshot, int newest) {
    for (int i = 0; i < job.servers * job.shards; i++) {
        char path[128];
        struct stat file;
        snprintf(path, sizeof path, "%s/log/server-%d-of-%d-shard-%d-of-%d-snapshot-%06u.log",
                 sim_job_folder, i / job.shards, job.servers, i % job.shards, job.shards, snapshot);
        if (stat(path, &file) == 0 && (int)file.st_ino <= newest) {
            sim_fail("%s had pushes before snapshot %u", path, snapshot);
        }
    }
}

/* Returns how often pushes may have reached some shards only: a worker that died or lost its lease
 * may have left those that were unanswered on some servers, and one that died with its server on
 * some shards. Their samples are lent again, and each shard learns from them once. */
static int count_parts(void) {
    return job.mode == TRM_PS_SYNC || job.servers * job.shards == 1 ? 0
                                                                    : job.kills + job.leases_lost;
}

/* Notes what may be in a snapshot that has been taken since `began`: nothing that happens later.
 * One that took as long as servers wait for a push may be without that of a worker that stands
 * still, which other servers have. */
static void note_confirmed(uint32_t snapshot, int64_t began) {
    if (sim.now - began >= (int64_t)(1e9 * JOB_HOLD)) {
        job.slow = snapshot;
    } else if (snapshot > job.confirmed) {
        job.confirmed = snapshot;
        job.parts_then = count_parts();
    }
}

/* Takes a snapshot now and then; what goes wrong with it is no fault of training. */
static void take_snapshot(worker_state *w) {
    trm_ps_checkpoint_result result;
    trm_error err;
    if ((w->number != 0 && !job.chiefs) || job.snapshot_batches == 0 ||
        ++w->batches % job.snapshot_batches != 0) {
        return;
    }
    if (job.chiefs && !is_chief(w->client, w->number)) {
        try_without_lease(w);
        return;
    }
    sim_job_plan_death_at_snapshot(w->number);
    const int newest = sim_disk_newest_inode();
    const int64_t began = sim.now;
    trm_status status = trm_ps_checkpoint(w->client, sim_random(DRAW_ORDER, 2) == 0, &result, &err);
    if (status != TRM_OK &&
        job.aim == AIM_STEPS) { /* the servers that it has reached may be back */
        status = trm_ps_checkpoint(w->client, false, &result, &err);
    }
    if (status == TRM_OK) {
        job.snapshots_made++;
        check_logs(result.snapshot, newest);
        sim_lies_note(result.snapshot);
        note_confirmed(result.snapshot, began);
        sim_trace(sim.current->process, "snapshot %u", result.snapshot);
        if (job.dies_at_snapshots || job.aim != AIM_NONE || sim_random(DRAW_ORDER, 4) == 0) {
            check_newest_snapshot();
        }
    } else {
        sim_trace(sim.current->process, "no snapshot: %s", err.message);
    }
}

/* A synchronous pull reads the rows of one step from all servers: the witnesses are equal.
 * Without leases they are of all the worker's batches before this one; only a new life may find
 * its batch in a step already. Of lent samples the others go on without a worker that has been
 * silent. */
static void check_pulled(worker_state *w, const float *rows, int64_t count) {
    const float *witness = rows + count;
    const int64_t batch = trm_ps_client_next_batch(w->client) - 1; /* this one */
    const bool first = w->pulls++ == 0;
    job.acked[w->number] = (int)batch;
    const bool silent = is_silent(w) || w->was_silent;
    w->was_silent = false;
    if (job.lent && silent) {
        return;
    }
    for (int i = 0; i < JOB_WITNESSES; i++) {
        float expected = job.lent || first ? witness[0] : (float)(batch * count);
        if (witness[i] != expected) {
            sim_fail("worker %d reads %g of a row before batch %lld, %g expected", w->number,
                     (double)witness[i], (long long)batch, (double)expected);
        }
    }
}

/* Notes that the push of the worker's batch begins. A new life may begin before batches that an
 * earlier life had pushed to all servers: one that stood still had not read these pushes when it
 * greeted the new life. The servers recognise the batches when they come again. */
static void note_started(const worker_state *w) {
    const int batches = (int)trm_ps_client_next_batch(w->client);
    job.started[w->number] = batches;
    if (job.most_started[w->number] < batches) {
        job.most_started[w->number] = batches;
    }
}

/* A bounded pull waits until no worker that is waited for is more than `staleness` batches
 * behind. */
static void check_bound(const worker_state *w) {
    const int batch = (int)trm_ps_client_next_batch(w->client) - 1;
    for (int v = 0; v < job.workers; v++) {
        if (!job.left[v] && job.most_started[v] < batch - job.staleness) {
            sim_fail(
                "worker %d begins batch %d, but worker %d has finished %d at most (staleness %d)",
                w->number, batch, v, job.most_started[v], job.staleness);
        }
    }
}

/* Strict determinism: where the workers are 2^k the sum of a worker's blocks is one node of the
 * tree, else each block is. */
static trm_status set_blocks(worker_state *w, trm_error *err) {
    const bool whole = (job.workers & (job.workers - 1)) == 0;
    const int nodes = whole ? 1 : job.blocks;
    if (job.blocks == 0) {
        return TRM_OK;
    }
    for (int i = 0; i < nodes; i++) {
        w->positions[i] = w->number * nodes + i;
    }
    const trmi_push_blocks blocks = {.blocks = job.blocks,
                                     .nodes = nodes,
                                     .positions = w->positions,
                                     .total = job.workers * nodes};
    return trmi_batch_set_blocks(w->batch, &blocks, err);
}

/* Keys of tables that are read only, so many that a pull has several parts. */
enum { OTHER_KEYS = 9000, OTHER_ROWS = 50, OTHER_WIDTH = 16 };
static float other_rows[OTHER_KEYS * OTHER_WIDTH];

/* Adds the gradients as a slice of their own, and rows of other tables, where pulls have parts. */
static trm_status add_slices(worker_state *w, const uint64_t *keys, int64_t count,
                             const float *gradients, trm_error *err) {
    static uint64_t others[OTHER_KEYS];
    for (uint64_t i = 0; i < OTHER_KEYS; i++) {
        others[i] = i * 7 % OTHER_ROWS;
    }
    for (int t = 0; t < 2 && job.mode != TRM_PS_SYNC; t++) {
        TRMI_TRY(
            trm_ps_batch_add(w->batch, w->others[t], others, OTHER_KEYS, other_rows, NULL, err));
    }
    return trm_ps_batch_add(w->batch, w->table, keys, count, NULL, gradients, err);
}

/* No batch pushes these rows: they are as they were at the beginning. */
static void check_others(void) {
    for (int i = 0; i < OTHER_KEYS * OTHER_WIDTH && job.slices && job.mode != TRM_PS_SYNC; i++) {
        if (other_rows[i] != 1) {
            sim_fail("value %d of rows that no batch pushes is %g", i, (double)other_rows[i]);
            return;
        }
    }
}

/* Reads rows outside of training while the pull of a batch is under way. */
static trm_status read_meanwhile(worker_state *w, const uint64_t *keys, trm_error *err) {
    float row;
    trm_ps_batch *batch;
    if (!job.slices || job.mode == TRM_PS_SYNC || sim_random(DRAW_TOOLS, 4) != 0) {
        return TRM_OK;
    }
    TRMI_TRY(trm_ps_batch_create(w->client, &batch, err));
    trm_status status = trm_ps_batch_add(batch, w->table, keys, 1, &row, NULL, err);
    status = status == TRM_OK ? trm_ps_read(batch, err) : status;
    trm_ps_batch_destroy(batch);
    return status;
}

/* Declares the tables that are read only. */
static trm_status declare_others(worker_state *w, trm_error *err) {
    for (int t = 0; t < 2 && job.slices; t++) {
        const trm_table_options o = {.name = t == 0 ? "wide" : "narrow",
                                     .width = t == 0 ? OTHER_WIDTH : 3,
                                     .init = {.value = 1}};
        TRMI_TRY(trm_ps_client_table(w->client, &o, &w->others[t], err));
    }
    return TRM_OK;
}

/* Adds 1 to each key, and to the witnesses as much as to all keys together. */
static trm_status push_batch(worker_state *w, uint64_t *keys, int64_t count, int64_t witness,
                             const trm_ps_push_options *o, trm_error *err) {
    float rows[JOB_KEYS + JOB_WITNESSES], gradients[JOB_KEYS + JOB_WITNESSES];
    for (int64_t i = 0; i < count + JOB_WITNESSES; i++) {
        gradients[i] = i < count ? -1 : -(float)count;
        if (i >= count) {
            keys[i] = (uint64_t)(witness + i - count);
        }
    }
    trm_ps_batch_clear(w->batch);
    TRMI_TRY(set_blocks(w, err));
    TRMI_TRY(trm_ps_batch_add(w->batch, w->table, keys, count + JOB_WITNESSES, rows,
                              job.slices ? NULL : gradients, err));
    TRMI_TRY(job.slices ? add_slices(w, keys, count + JOB_WITNESSES, gradients, err) : TRM_OK);
    TRMI_TRY(job.blocks > 0 ? trmi_batch_by_blocks(w->batch, err) : TRM_OK);
    const int64_t asked = sim.now;
    if (job.mode != TRM_PS_ASYNC || sim_random(DRAW_ORDER, 2) == 0) {
        TRMI_TRY(trm_ps_pull_start(w->batch, err));
        TRMI_TRY(read_meanwhile(w, keys, err));
        TRMI_TRY(trm_ps_pull_wait(w->batch, err));
        check_others();
        if (job.mode == TRM_PS_SYNC) {
            check_pulled(w, rows, count);
        } else if (job.mode == TRM_PS_BOUNDED && !job.lent) {
            check_bound(w);
        }
    }
    note_life(w);
    compute_batch(w->number, asked);
    if (job.dies_at_pushes) {
        sim_job_plan_death_in(sim.current->process, 12, 40);
    }
    note_started(w);
    TRMI_TRY(trm_ps_push(w->batch, o, err));
    sim_states_pushed(w->number);
    take_snapshot(w);
    return TRM_OK;
}

trm_status __real_trmi_lease_check(trmi_lease_book *book, int64_t id, uint32_t worker,
                                   int64_t position, double now, trm_error *err);
trm_status __wrap_trmi_lease_check(trmi_lease_book *book, int64_t id, uint32_t worker,
                                   int64_t position, double now, trm_error *err);

/* Notes a push that server 0 refuses because its lease is over: the other servers have it, and a
 * snapshot that is taken before the samples are lent again has a part of the batch. */
trm_status __wrap_trmi_lease_check(trmi_lease_book *book, int64_t id, uint32_t worker,
                                   int64_t position, double now, trm_error *err) {
    trm_status status = __real_trmi_lease_check(book, id, worker, position, now, err);
    job.leases_lost += status == TRM_CANCELLED;
    return status;
}

void __real_trmi_order_note_refused(trm_ps_server *server, const trmi_request *request);
void __wrap_trmi_order_note_refused(trm_ps_server *server, const trmi_request *request);

/* Notes a push that a server refuses for lack of memory: other servers have it, and its worker ends
 * with its next call. A server that cannot log pushes takes no snapshot either. */
void __wrap_trmi_order_note_refused(trm_ps_server *server, const trmi_request *request) {
    __real_trmi_order_note_refused(server, request);
    job.leases_lost += request->header.kind == TRMI_PS_PUSH && request->err.status == TRM_NOMEM;
}

/* Notes samples that were lent before: their batch may be on some servers only. */
static void note_lent(const trm_ps_lease *lease) {
    bool again = false;
    for (int64_t s = lease->begin; s < lease->end; s++) {
        again = again || job.was_lent[lease->epoch][s] != 0;
        job.was_lent[lease->epoch][s] = 1;
    }
    job.leases_lost += again;
}

/* Sample s adds 1 to key s % JOB_KEYS. */
static trm_status use_lent_samples(worker_state *w, trm_error *err) {
    trm_ps_lease_options lo = {job.samples, job.lease, job.epochs, job.lease_timeout, 0, JOB_BATCH};
    trm_ps_lease lease = {0};
    int64_t position = 0;
    for (;;) {
        if (lease.id == 0) {
            note_life(w);
            sim_job_plan_break_at_lease(w->number);
            trm_status status = trm_ps_lease_take(w->client, &lo, &lease, err);
            if (status == TRM_END) {
                return TRM_OK;
            }
            if (status == TRM_PENDING) {
                sim_states_idle(w->number);
                usleep(50000);
                lease.id = 0;
                continue;
            }
            TRMI_TRY(status);
            position = lease.begin;
            note_lent(&lease);
            sim_trace(sim.current->process, "has samples %d to %d of epoch %d", (int)lease.begin,
                      (int)lease.end, (int)lease.epoch);
        }
        uint64_t keys[JOB_KEYS + JOB_WITNESSES];
        int64_t count = lease.end - position < JOB_BATCH ? lease.end - position : JOB_BATCH;
        for (int64_t i = 0; i < count; i++) {
            keys[i] = (uint64_t)(position + i) % JOB_KEYS;
        }
        position += count;
        trm_ps_push_options po = {.lease = lease, .position = position};
        trm_status status = push_batch(w, keys, count, 1000, &po, err);
        if (status == TRM_CANCELLED) { /* other workers have its samples now */
            sim_trace(sim.current->process, "lost its lease");
            lease.id = 0;
            continue;
        }
        TRMI_TRY(status);
        job.pushes[w->number]++;
        lease.id = position == lease.end ? 0 : lease.id;
    }
}

/* Each batch adds 1 to all of the worker's own keys. */
static trm_status use_own_batches(worker_state *w, trm_error *err) {
    for (int64_t n = trm_ps_client_next_batch(w->client); n < job.batches_of[w->number]; n++) {
        uint64_t keys[JOB_KEYS + JOB_WITNESSES];
        for (uint64_t i = 0; i < JOB_KEYS; i++) {
            keys[i] = 10000 + (uint64_t)w->number * 1000 + i;
        }
        TRMI_TRY(push_batch(w, keys, JOB_KEYS, 20000 + 1000 * w->number, NULL, err));
    }
    return TRM_OK;
}

/* Returns whether an error is that of a full disk or one that fails, or of an allocation. */
static bool has_no_room(trm_status status) {
    return status == TRM_NOSPACE || (status == TRM_NOMEM && job.comes[FAULT_MEMORY]) ||
           (status == TRM_IO && job.comes[FAULT_IO]);
}

int sim_worker_main(void *argument) {
    worker_state w = {.number = (int)(intptr_t)argument};
    trm_error err = {0};
    trm_status status = sim_job_connect(w.number, JOB_TIMEOUT, &w.client, &w.table, &err);
    sim_states_joined(w.number);
    status = status == TRM_OK ? declare_others(&w, &err) : status;
    status = status == TRM_OK ? trm_ps_batch_create(w.client, &w.batch, &err) : status;
    if (status == TRM_OK) {
        status = job.lent ? use_lent_samples(&w, &err) : use_own_batches(&w, &err);
    }
    status = status == TRM_OK ? trm_ps_flush(w.client, &err) : status;
    job.left[w.number] = job.left[w.number] || status == TRM_OK;
    const bool vanishes = status != TRM_OK && job.vanishes;
    says_goodbye[w.number] = !vanishes;
    status = status == TRM_OK ? trm_ps_leave(w.client, &err) : status;
    trm_ps_batch_destroy(w.batch);
    vanishes ? trmi_client_vanish(w.client) : trm_ps_client_destroy(w.client);
    if (status != TRM_OK) {
        sim_trace(sim.current->process, "error %d: %s", (int)status, err.message);
        if (!has_no_room(status) && status != TRM_TIMEOUT && status != TRM_PEER) {
            sim_fail("worker %d: %s", w.number, err.message);
        }
    }
    return status == TRM_OK        ? 0
           : has_no_room(status)   ? JOB_NO_SPACE
           : status == TRM_TIMEOUT ? JOB_WAITED
                                   : JOB_AGAIN;
}

/* ---- checks ---------------------------------------------------------------------------------- */

int64_t sim_job_expected(uint64_t key) {
    if (!job.lent) {
        const int64_t batches = job.batches_of[(key - (key >= 20000 ? 20000 : 10000)) / 1000];
        return key >= 20000 ? batches * JOB_KEYS : batches;
    }
    int64_t expected = 0;
    for (int s = 0; s < job.samples; s++) {
        expected += s % JOB_KEYS == (int)key;
    }
    return job.epochs * (key >= 1000 ? job.samples : expected);
}

/* Of a silent worker the batches count that it knows to be in steps, and the one that it has pushed
 * last may. */
static bool is_expected(uint64_t key, float value) {
    const int worker = job.lent ? -1 : (int)(key - (key >= 20000 ? 20000 : 10000)) / 1000;
    const int each = key >= 20000 ? JOB_KEYS : 1;
    if (worker >= 0 && worker == job.silent) {
        return value == (float)(each * job.acked[worker]) ||
               value == (float)(each * job.started[worker]);
    }
    return value == (float)sim_job_expected(key);
}

uint64_t sim_job_key(int i) {
    if (job.lent) {
        return i < JOB_KEYS                   ? (uint64_t)i
               : i < JOB_KEYS + JOB_WITNESSES ? (uint64_t)(1000 + i - JOB_KEYS)
                                              : UINT64_MAX;
    }
    int each = JOB_KEYS + JOB_WITNESSES, w = i / each, k = i % each;
    return w >= job.workers ? UINT64_MAX
           : k < JOB_KEYS   ? (uint64_t)(10000 + 1000 * w + k)
                            : (uint64_t)(20000 + 1000 * w + k - JOB_KEYS);
}

/* A chief's last work: waits for the lease, where the job has one, and takes a snapshot that has
 * all pushes, where other servers load it. */
static trm_status end_as_chief(trm_ps_client *client, trm_error *err) {
    trm_ps_checkpoint_result result;
    while (job.chiefs && !is_chief(client, 0)) {
        usleep(200000);
    }
    TRMI_TRY(job.resizes ? trm_ps_checkpoint(client, true, &result, err) : TRM_OK);
    job.saved_all = job.resizes;
    return TRM_OK;
}

/* Returns the server that holds a key. */
static int server_of_key(uint64_t key) {
    return (int)trmi_shard_of_row(&(trm_placement){0}, key, (uint32_t)job.servers, 1);
}

int sim_check_main(void *argument) {
    (void)argument;
    trm_ps_client *reader = NULL;
    int32_t table;
    trm_error err = {0};
    /* only a worker can be the chief, which ends the job */
    trm_status status = sim_job_connect(job.chiefs ? 0 : -1, 60, &reader, &table, &err);
    status = status == TRM_OK ? end_as_chief(reader, &err) : status;
    for (int i = 0; status == TRM_OK && sim_job_key(i) != UINT64_MAX; i++) {
        float value = 0;
        trm_row_info info;
        uint64_t key = sim_job_key(i);
        trm_ps_writer writers[TRM_PS_WRITERS];
        int32_t count;
        status = job.chiefs ? trm_ps_audit_row(reader, table, key, &info, &value, NULL, writers,
                                               &count, &err)
                            : trm_ps_row(reader, table, key, &info, &value, NULL, &err);
        status = status == TRM_END ? TRM_OK : status; /* no row: 0 */
        if (status == TRM_OK && !is_expected(key, value)) {
            sim_fail("key %llu on server %d is %g, %lld expected", (unsigned long long)key,
                     server_of_key(key), (double)value, (long long)sim_job_expected(key));
            return 1;
        }
    }
    job.stopping = status == TRM_OK;
    status = status == TRM_OK ? trm_ps_stop_servers(reader, &err) : status;
    trm_ps_client_destroy(reader);
    if (status != TRM_OK) {
        sim_trace(sim.current->process, "error %d: %s", (int)status, err.message);
    }
    return status == TRM_OK                              ? 0
           : has_no_room(status)                         ? JOB_NO_SPACE
           : status == TRM_TIMEOUT || status == TRM_PEER ? JOB_AGAIN
                                                         : 2;
}

/* Reads a row of a snapshot; 0 if it has none. */
static double read_saved_row(const trm_ps_folder *files, uint64_t key) {
    float value = 0;
    trm_row_info info;
    trm_error err;
    trm_status status = trm_ps_folder_row(files, 0, key, &info, &value, NULL, &err);
    value = status == TRM_OK ? value : 0;
    sim_trace(sim.current->process, "snapshot: key %llu of server %d is %g, %u updates",
              (unsigned long long)key, server_of_key(key), (double)value,
              status == TRM_OK ? info.count : 0);
    return (double)value;
}

/* One moment: the witnesses are equal, and each is the sum of the keys that were pushed with it.
 * Where parts of pushes may be in the snapshot the witnesses of one shard are equal, and all differ
 * by those pushes at most. */
static void check_one_moment(const trm_ps_folder *files, uint32_t snapshot) {
    const int groups = job.lent ? 1 : job.workers;
    const int parts = snapshot == job.confirmed ? job.parts_then
                      : snapshot == job.slow    ? count_parts() + job.workers
                                                : count_parts();
    const double bound = (double)parts * JOB_AHEAD * (job.lent ? JOB_BATCH : JOB_KEYS);
    for (int g = 0; g < groups; g++) {
        double sum = 0, least = 0, most = 0, of_shard[JOB_SERVERS * JOB_SHARDS];
        bool has_witness[JOB_SERVERS * JOB_SHARDS] = {false};
        for (int i = 0; i < JOB_KEYS + JOB_WITNESSES; i++) {
            const uint64_t key = sim_job_key(g * (JOB_KEYS + JOB_WITNESSES) + i);
            const double value = read_saved_row(files, key);
            if (i < JOB_KEYS) {
                least = most = sum += value;
                continue;
            }
            const uint32_t shard = trmi_shard_of_row(&(trm_placement){0}, key,
                                                     (uint32_t)job.servers, (uint32_t)job.shards);
            const double expected = parts == 0 ? sum : has_witness[shard] ? of_shard[shard] : value;
            has_witness[shard] = true;
            of_shard[shard] = value;
            least = value < least ? value : least;
            most = value > most ? value : most;
            if (value != expected || most - least > bound) {
                sim_fail(
                    "snapshot %u: key %llu is %g, %g expected; the sum of keys is %g, %g to %g "
                    "with other witnesses, which may differ by %g",
                    snapshot, (unsigned long long)key, value, expected, sum, least, most, bound);
            }
        }
    }
}

static void check_newest_snapshot(void) {
    trm_error err;
    trm_ps_folder *files;
    trm_ps_folder_options o = {.logs = TRM_OFF};
    trmi_alloc_fail_after(0);
    sim.current->process->reads_snapshot = true;
    if (trm_ps_folder_open(sim_job_folder, &o, &files, &err) == TRM_OK) {
        trm_ps_folder_info info;
        trm_ps_folder_get_info(files, &info);
        sim_trace(sim.current->process, "snapshot %u loads", info.snapshot);
        if (info.tables > 0) {
            check_one_moment(files, info.snapshot);
        }
        trm_ps_folder_close(files);
    } else {
        sim_fail("the newest snapshot does not load: %s", err.message);
    }
    sim.current->process->reads_snapshot = false;
}

int sim_check_folder_main(void *argument) {
    (void)argument;
    if (job.snapshots_made > 0) {
        check_newest_snapshot();
    }
    return 0;
}
