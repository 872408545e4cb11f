/* SPDX-License-Identifier: Apache-2.0 */
/* The network engine: chooses an algorithm, builds or finds its schedule, runs it (runner.c), and
 * finishes sums in partial types. Messages go directly to the transport.
 *
 *   net_run -> trmi_net_run_part: choose -> find_schedule -> play_reduction or trmi_runner_play
 *   net_start, net_progress -> transport
 *
 * All ranks choose the same algorithm, because the choice depends only on the operation, the
 * options and the model, which are equal on all ranks. One thread at a time uses the engine
 * (comm_run.c). */
#include "comm/net/engines.h"
#include "comm/schedule/calibration.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether a kind adds up vectors. */
static bool is_reduction(trm_collective_kind kind) {
    return kind == TRM_ALLREDUCE || kind == TRM_REDUCE || kind == TRM_REDUCE_SCATTER ||
           kind == TRM_REDUCE_SCATTERV;
}

/* --- choice of the algorithm --- */

/* Returns the algorithm for a collective: direct if bits must not depend on anything, else the one
 * that the user prescribes, else the cheapest one. It depends only on values that are equal on all
 * ranks, because all ranks must choose the same. */
static trmi_algorithm choose_algorithm(const trmi_net *net, trm_collective_kind kind, int32_t size,
                                       int64_t total, size_t element) {
    if (is_reduction(kind) && net->base.group.deterministic == TRM_DETERMINISTIC_STRICT) {
        return TRMI_DIRECT;
    }
    if (trmi_schedule_applies(net->algorithms.of[kind], kind, size)) {
        return net->algorithms.of[kind];
    }
    /* The model counts elements of a vector, or of a block for kinds with blocks. */
    bool full = kind == TRM_ALLREDUCE || kind == TRM_BROADCAST || kind == TRM_REDUCE;
    int64_t count = full ? total : total / size;
    trmi_algorithm best = TRMI_ALGORITHM_AUTO;
    double best_seconds = 0;
    for (int a = TRMI_DIRECT; a < TRMI_ALGORITHMS; a++) {
        if (trmi_schedule_applies((trmi_algorithm)a, kind, size)) {
            double seconds =
                trmi_model_seconds(&net->model, (trmi_algorithm)a, kind, size, count, element);
            if (best == TRMI_ALGORITHM_AUTO || seconds < best_seconds) {
                best = (trmi_algorithm)a;
                best_seconds = seconds;
            }
        }
    }
    return best;
}

/* Returns whether a cached schedule can serve the request. */
static bool same_key(const trmi_schedule_request *a, const trmi_schedule_request *b) {
    return a->size == b->size && a->rank == b->rank && a->kind == b->kind &&
           a->algorithm == b->algorithm && a->count == b->count && a->root == b->root;
}

/* Returns the schedule of a request: from the cache, or built in place of the least recently used
 * one. Requests with arrays of counts are always built, because the arrays are not part of the
 * key. */
static trm_status find_schedule(trmi_net *net, const trmi_schedule_request *request,
                                const trmi_schedule **out, trm_error *err) {
    if (request->counts != NULL || request->send_counts != NULL) {
        TRMI_TRY(trmi_schedule_make(request, &net->scratch, err));
        *out = &net->scratch;
        return TRM_OK;
    }
    trmi_cached_schedule *oldest = &net->cache[0];
    for (int i = 0; i < TRMI_CACHED_SCHEDULES; i++) {
        trmi_cached_schedule *entry = &net->cache[i];
        if (same_key(&entry->key, request)) {
            entry->used = ++net->uses;
            *out = &entry->schedule;
            return TRM_OK;
        }
        oldest = entry->used < oldest->used ? entry : oldest;
    }
    /* The entry has no key until its schedule is complete, so that an error leaves none that is
     * wrong. */
    oldest->key = (trmi_schedule_request){.size = 0};
    TRMI_TRY(trmi_schedule_make(request, &oldest->schedule, err));
    oldest->key = *request;
    oldest->used = ++net->uses;
    *out = &oldest->schedule;
    return TRM_OK;
}

/* --- running --- */

/* Makes *buffer at least `bytes` long. A failure poisons the job, because the peers wait. */
static trm_status grow_buffer(trmi_net *net, char **buffer, size_t *have, size_t bytes,
                              trm_error *err) {
    if (bytes > *have) {
        trmi_free(*buffer);
        *have = 0;
        *buffer = trmi_alloc(bytes);
        if (*buffer == NULL) {
            trm_error cause;
            TRMI_FAIL(&cause, TRM_NOMEM, "rank %d has no memory for %zu bytes of partial sums",
                      net->base.group.members[net->base.group.rank], bytes);
            return trmi_group_poison(&net->base.group, &cause, err);
        }
        *have = bytes;
    }
    return TRM_OK;
}

/* Returns the elements of this rank's input and output of a reduction. */
static void reduction_lengths(const trmi_net_part *p, int64_t *in, int64_t *out) {
    bool scattered = p->kind == TRM_REDUCE_SCATTER || p->kind == TRM_REDUCE_SCATTERV;
    *in = scattered ? p->total : p->count;
    *out = p->kind == TRM_REDUCE && p->rank != p->root ? 0 : p->count;
}

/* Runs a reduction. A schedule whose sums are complete in one step over all ranks divides and
 * rounds there. Otherwise the partial sums travel in the partial type (float for 16-bit floats),
 * and are divided and rounded once at the end. */
static trm_status play_reduction(trmi_net *net, const trmi_net_part *p, trmi_play *play,
                                 trm_error *err) {
    int64_t in, out;
    reduction_lengths(p, &in, &out);
    play->reduce = p->reduce == TRM_REDUCTION_MEAN ? TRM_REDUCTION_SUM : p->reduce;
    play->final_reduce = p->reduce;
    play->divisor = p->op->divisor;
    /* Complete sums: the last step divides and rounds. */
    if (play->schedule->sums_complete && p->size == p->op->divisor) {
        return trmi_runner_play(&net->runner, play, err);
    }
    play->final_reduce = play->reduce;
    trm_dtype wide = trmi_reduce_partial_dtype(p->dtype, p->reduce);
    int32_t divisor = p->reduce == TRM_REDUCTION_MEAN ? p->op->divisor : 1;
    /* The type itself is wide enough: sum in place, and divide once. */
    if (wide == p->dtype) {
        TRMI_TRY(trmi_runner_play(&net->runner, play, err));
        if (divisor > 1 && out > 0) {
            trmi_reduce_finish(p->recv, wide, p->recv, p->dtype, out, divisor);
        }
        return TRM_OK;
    }
    /* With a wider partial type: convert, run, convert back. */
    size_t bytes = trm_dtype_bytes(wide);
    TRMI_TRY(grow_buffer(net, &net->wide_in, &net->wide_in_bytes, (size_t)in * bytes, err));
    TRMI_TRY(grow_buffer(net, &net->wide_out, &net->wide_out_bytes, (size_t)out * bytes, err));
    trmi_reduce_widen(p->send, p->dtype, net->wide_in, wide, in);
    play->dtype = wide;
    play->send = net->wide_in;
    play->recv = net->wide_out;
    TRMI_TRY(trmi_runner_play(&net->runner, play, err));
    trmi_reduce_finish(net->wide_out, wide, p->recv, p->dtype, out, divisor);
    return TRM_OK;
}

/* Contract in engines.h. A part is a whole collective, or one level of a two-level one. Its
 * schedule depends on sizes only and is cached; playing it moves the data. */
trm_status trmi_net_run_part(trmi_net *net, const trmi_net_part *p, trm_error *err) {
    const trmi_engine_call *op = p->op;
    size_t element = p->kind == TRM_BARRIER ? 1 : trm_dtype_bytes(p->dtype);
    trmi_schedule_request request = {.kind = p->kind,
                                     .rank = p->rank,
                                     .size = p->size,
                                     .root = p->root,
                                     .count = p->count,
                                     .total = p->total,
                                     .counts = op->counts,
                                     .offsets = op->offsets,
                                     .send_counts = op->send_counts,
                                     .send_offsets = op->send_offsets,
                                     .recv_counts = op->recv_counts,
                                     .recv_offsets = op->recv_offsets};
    if (p->ranks != NULL) { /* a part of a two-level operation has whole vectors only */
        request.counts = request.offsets = request.send_counts = request.send_offsets = NULL;
        request.recv_counts = request.recv_offsets = NULL;
    }
    /* The total of an all-to-allv differs between ranks, so it must not influence the choice. */
    int64_t total = p->kind == TRM_ALLTOALLV ? 0 : p->total;
    request.algorithm = choose_algorithm(net, p->kind, p->size, total, element);
    trmi_play play = {.op = op,
                      .ranks = p->ranks,
                      .send = p->send,
                      .recv = p->recv,
                      .dtype = p->kind == TRM_BARRIER ? TRM_UINT8 : p->dtype,
                      .background = p->background,
                      .part = p->part};
    TRMI_TRY(find_schedule(net, &request, &play.schedule, err));
    return is_reduction(p->kind) ? play_reduction(net, p, &play, err)
                                 : trmi_runner_play(&net->runner, &play, err);
}

/* Runs a whole operation between hosts: one part, with all ranks of the group. Two-level
 * collectives (levels.c) run several parts. */
static trm_status net_run(trmi_engine *engine, const trmi_engine_call *op, trm_error *err) {
    trmi_net *net = (trmi_net *)(void *)engine;
    /* Run the whole operation as one part. */
    trmi_net_part part = {.op = op,
                          .kind = op->kind,
                          .size = engine->group.size,
                          .rank = engine->group.rank,
                          .root = op->root,
                          .count = op->count,
                          .total = op->total,
                          .send = op->send,
                          .recv = op->recv,
                          .dtype = op->dtype,
                          .reduce = op->reduce,
                          .background = engine->background};
    return trmi_net_run_part(net, &part, err);
}

/* --- messages --- */

/* Returns an unused transfer, or NULL without memory. A transfer outlives its request: it is kept
 * while the transport still has it. */
static trmi_net_transfer *take_transfer(trmi_net *net) {
    return net->free_count > 0 ? net->free_transfers[--net->free_count]
                               : trmi_alloc(sizeof(trmi_net_transfer));
}

/* Starts the transfer of a message; tags count messages for each peer and direction. */
static trm_status net_start(trmi_engine *engine, trmi_engine_message *m, trm_error *err) {
    trmi_net *net = (trmi_net *)(void *)engine;
    trmi_net_transfer *t = take_transfer(net);
    if (t == NULL) {
        return TRMI_NO_MEMORY(err, "for a message");
    }
    uint64_t *number = m->receive ? &net->messages_in[m->peer] : &net->messages_out[m->peer];
    *t = (trmi_net_transfer){
        .receive = m->receive,
        .peer = m->peer,
        .channel = TRMI_CHANNEL_MESSAGE,
        .data = m->buffer,
        .bytes = (uint64_t)m->bytes,
        .tag = {.sequence = (*number)++, .signature = {m->signature, (uint64_t)m->bytes}}};
    m->handle = t;
    m->started = true;
    return net->transport->table->start(net->transport, t, err);
}

/* Moves all transfers of the transport, then reports the progress of `m`. */
static trm_status net_progress(trmi_engine *engine, trmi_engine_message *m, trm_error *err) {
    trmi_net *net = (trmi_net *)(void *)engine;
    trm_error cause = {.status = TRM_OK};
    if (!m->started) {
        TRMI_TRY(net_start(engine, m, err));
    }
    const trmi_net_transfer *t = m->handle;
    bool moved = false;
    trm_status status = net->transport->table->progress(net->transport, &moved, &cause);
    if (status != TRM_OK) {
        return trmi_runner_explain(net->transport, status, NULL, &cause, err);
    }
    m->moved = (int64_t)t->moved;
    m->done = t->done;
    /* Keep the transfer for later messages. */
    if (m->done && trmi_grow((void **)&net->free_transfers, &net->free_capacity,
                             net->free_count + 1, sizeof *net->free_transfers)) {
        net->free_transfers[net->free_count++] = m->handle;
        m->handle = NULL;
    }
    return TRM_OK;
}

/* The functions of the engine's table (contracts in engine.h). */
static void net_idle(trmi_engine *engine, double seconds) {
    trmi_net *net = (trmi_net *)(void *)engine;
    net->transport->table->wait(net->transport, seconds);
}

/* --- creation and destruction --- */
static void net_destroy(trmi_engine *engine) {
    trmi_net *net = (trmi_net *)(void *)engine;
    if (net->transport != NULL) {
        net->transport->table->destroy(net->transport);
    }
    trmi_runner_free(&net->runner);
    for (int i = 0; i < TRMI_CACHED_SCHEDULES; i++) {
        trmi_schedule_free(&net->cache[i].schedule);
    }
    trmi_schedule_free(&net->scratch);
    for (int64_t i = 0; i < net->free_count; i++) {
        trmi_free(net->free_transfers[i]);
    }
    free(net->free_transfers);
    trmi_free(net->wide_in);
    trmi_free(net->wide_out);
    trmi_free(net->messages_out);
    trmi_free(net->messages_in);
    if (net->plugin != NULL) {
        dlclose(net->plugin);
    }
    trmi_free(net);
}

static const trmi_engine_table net_table = {
    .name = "net",
    .run = net_run,
    .progress = net_progress,
    .start = net_start,
    .idle = net_idle,
    .destroy = net_destroy,
};

/* Contract in engines.h. Takes ownership of transport and plug-in at once, also when it fails. */
trm_status trmi_net_create(const trmi_group *group, const trmi_net_options *o,
                           const trmi_exchange *exchange, trmi_engine **out, trm_error *err) {
    trmi_transport *transport = o->transport;
    trmi_net *net = trmi_alloc(sizeof *net);
    if (net == NULL) {
        transport->table->destroy(transport);
        if (o->plugin != NULL) {
            dlclose(o->plugin);
        }
        return TRMI_NO_MEMORY(err, "for a network of %d ranks", group->size);
    }
    /* From here on net_destroy frees everything, with transport and plug-in. */
    net->base.table = &net_table;
    net->base.group = *group;
    net->transport = transport;
    net->plugin = o->plugin;
    net->model = trmi_model_default();
    net->messages_out = trmi_alloc((size_t)group->size * sizeof(uint64_t));
    net->messages_in = trmi_alloc((size_t)group->size * sizeof(uint64_t));
    trm_status status = net->messages_out != NULL && net->messages_in != NULL
                            ? trmi_runner_init(&net->runner, transport, err)
                            : TRMI_NO_MEMORY(err, "for %d ranks", group->size);
    net->runner.spin_seconds = o->spin_seconds;
    status = status == TRM_OK
                 ? trmi_algorithms_parse(o->algorithm, "algorithm", &net->algorithms, err)
                 : status;
    /* A simulated network has nothing to measure, and with deterministic results the choice of the
     * algorithm must not depend on a clock. */
    if (o->known != NULL) {
        net->model = *o->known;
    } else if (status == TRM_OK && group->deterministic == TRM_DETERMINISTIC_FALSE &&
               strcmp(transport->table->name, "sim") != 0) {
        status = trmi_calibrate(transport, exchange, &net->model, err);
    }
    if (status != TRM_OK) {
        net_destroy(&net->base);
        return status;
    }
    *out = &net->base;
    return TRM_OK;
}
