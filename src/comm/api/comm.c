/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: creation from a bootstrap or from a parent, and the public functions of
 * trireme/dist.h that are not in comm_op.c, comm_run.c, comm_async.c or comm_split.c. The drawing
 * is in communicator.h.
 *
 * A communicator has an engine for the members on this host (shared memory) and one for messages
 * between hosts; trmi_net_choose decides which. The first communicator of a job owns the host's
 * registered memory, its children hold a reference to it.
 *
 * Invariants: creation is a collective, so all members run its stages in the same order, and a rank
 * that fails poisons the job instead of letting the others wait. Blocking operations use the one
 * request comm->blocking; started ones take requests from a list and run in the progress thread, in
 * the order in which they were started. A blocking operation behind pending ones runs there, too,
 * so that all ranks see one order. */
#include "comm/api/world.h"
#include "comm/api/communicator.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/net/exchange.h"
#include "comm/net/engines.h"
#include "comm/shm/shared_buffers.h"

#include <stdio.h>
#include <string.h>

/* --- options --- */

/* Copies `text` to `to` (`size` bytes; a longer text is cut), or `otherwise` if it is NULL or
 * empty. */
static void keep_text(char *to, size_t size, const char *text, const char *otherwise) {
    snprintf(to, size, "%s", text != NULL && text[0] != '\0' ? text : otherwise);
}

/* Returns the deadline of an operation: the caller's option, else HCCL_EXEC_TIMEOUT, else 120 s. */
static double operation_seconds(const trm_bootstrap *bootstrap, const trm_comm_options *options) {
    return options != NULL && options->timeout_seconds > 0 ? options->timeout_seconds
           : bootstrap->exec_seconds > 0                   ? bootstrap->exec_seconds
                                                           : 120;
}

/* Copies the caller's options, with texts, and fills in the defaults. */
static void keep_options(trm_comm *comm, const trm_comm_options *from) {
    trm_comm_options *o = &comm->options;
    *o = from != NULL ? *from : (trm_comm_options){0};
    keep_text(comm->engine_name, sizeof comm->engine_name, o->engine, "auto");
    const char *environment = comm->bootstrap->algorithm;
    keep_text(comm->algorithm, sizeof comm->algorithm, o->algorithm,
              environment != NULL ? environment : "");
    keep_text(comm->name, sizeof comm->name, o->name, "world");
    keep_text(comm->plugin_dir, sizeof comm->plugin_dir, o->plugin_dir, "");
    o->engine = comm->engine_name;
    o->algorithm = comm->algorithm;
    o->name = comm->name;
    o->plugin_dir = comm->plugin_dir;
    /* The caller's options have priority over the environment, the environment over the
     * defaults. */
    o->timeout_seconds = operation_seconds(comm->bootstrap, o);
    if (o->deterministic == TRM_DETERMINISTIC_FALSE) {
        o->deterministic = (trm_deterministic)comm->bootstrap->deterministic;
    }
    o->report_seconds = o->report_seconds > 0 ? o->report_seconds : 30;
    o->staging_bytes = o->staging_bytes > 0 ? o->staging_bytes : 1 << 20;
    /* Of the polling time 0 means the default, a negative number means none. */
    o->spin_microseconds = o->spin_microseconds == 0 ? 200 : o->spin_microseconds;
    o->spin_microseconds = o->spin_microseconds < 0 ? 0 : o->spin_microseconds;
}

/* The options that must be equal on all ranks, in a form that can be compared byte by byte. */
typedef struct card {
    uint64_t staging_bytes; /* see trm_comm_options */
    /* a trm_deterministic; 1: no direct reading; not used */
    int32_t deterministic, no_direct, host;
    char engine[96], algorithm[TRMI_ALGORITHM_BYTES]; /* filled with zeros after the text */
} card;

/* Fails with INVALID if the ranks' options differ. */
static trm_status compare_options(trm_comm *comm, const trmi_exchange *exchange, trm_error *err) {
    /* trmi_alloc fills a new communicator with zeros, so the bytes after the end of each text are
     * equal on all ranks too. */
    card mine = {.staging_bytes = comm->options.staging_bytes,
                 .deterministic = (int32_t)comm->options.deterministic,
                 .no_direct = comm->options.direct == TRM_OFF};
    memcpy(mine.engine, comm->engine_name, sizeof mine.engine);
    memcpy(mine.algorithm, comm->algorithm, sizeof mine.algorithm);
    card *all;
    TRMI_TRY(TRMI_NEW(err, all, comm->group.size, "for %d ranks", comm->group.size));
    trm_status status = exchange->allgather(exchange->context, &mine, sizeof mine, all, err);
    for (int32_t r = 0; status == TRM_OK && r < comm->group.size; r++) {
        if (memcmp(&all[r], &mine, sizeof mine) != 0) {
            status = TRMI_FAIL(
                err, TRM_INVALID,
                "ranks disagree about the communicator's options: rank %d has engine %.12s, "
                "algorithm '%.20s', deterministic %d, staging_bytes %llu, direct %s, rank %d "
                "%.12s, "
                "'%.20s', %d, %llu, %s; give all the same",
                comm->members[comm->group.rank], mine.engine, mine.algorithm, mine.deterministic,
                (unsigned long long)mine.staging_bytes, mine.no_direct ? "off" : "on",
                comm->members[r], all[r].engine, all[r].algorithm, all[r].deterministic,
                (unsigned long long)all[r].staging_bytes, all[r].no_direct ? "off" : "on");
            if (err != NULL) {
                err->rank = comm->members[r];
            }
        }
    }
    trmi_free(all);
    return status;
}

/* --- creation --- */

/* Fills the tables that say which members run on this host, and counts the hosts. members:
 * [group.size] ranks of the job.
 *   errors  NOMEM; the tables then belong to the communicator, which is destroyed */
static trm_status find_places(trm_comm *comm, const int32_t *members, trm_error *err) {
    trm_bootstrap *boot = comm->bootstrap;
    size_t n = (size_t)comm->group.size;
    /* Each table has room for all members, because all may run on this host. */
    comm->members = trmi_alloc(n * sizeof(int32_t));
    comm->local_index = trmi_alloc(n * sizeof(int32_t));
    comm->local_members = trmi_alloc(n * sizeof(int32_t));
    comm->local_job_ranks = trmi_alloc(n * sizeof(int32_t));
    comm->host_rank = trmi_alloc(n * sizeof(int32_t));
    bool *seen = trmi_alloc((size_t)boot->size * sizeof(bool));
    if (comm->members == NULL || comm->local_index == NULL || comm->local_members == NULL ||
        comm->local_job_ranks == NULL || comm->host_rank == NULL || seen == NULL) {
        trmi_free(seen);
        return TRMI_NO_MEMORY(err, "for a communicator of %zu ranks", n);
    }
    /* Enter each member. The tables of this host are in the order of the members. */
    for (int32_t r = 0; r < comm->group.size; r++) {
        int32_t job_rank = members[r], host = boot->host_of[job_rank];
        comm->members[r] = job_rank;
        comm->local_index[r] = -1;
        comm->host_count += !seen[host];
        seen[host] = true;
        if (host == boot->host) {
            comm->local_rank = r == comm->group.rank ? comm->local_size : comm->local_rank;
            comm->local_members[comm->local_size] = r;
            comm->local_job_ranks[comm->local_size] = job_rank;
            /* Count the index among all ranks of the job on this host, in rank order: the root
             * communicator's numbering, which `host` uses. */
            for (int32_t j = 0; j < job_rank; j++) {
                comm->host_rank[comm->local_size] += boot->host_of[j] == boot->host;
            }
            comm->local_index[r] = comm->local_size++;
        }
    }
    trmi_free(seen);
    return TRM_OK;
}

/* Creates the engine for the ranks of this host. The first communicator also creates the host's
 * registered memory; children share it. */
static trm_status make_shm(trm_comm *comm, const trmi_exchange *exchange, trm_error *err) {
    /* An exchange among the members on this host only. */
    trmi_subset subset;
    trmi_exchange local;
    trmi_subset_make(&subset, exchange, comm->group.size, comm->local_members, comm->local_size,
                     &local);
    trm_status status = TRM_OK;
    /* The host's registered memory is counted: children hold the memory of the root
     * communicator. */
    if (comm->root != comm) {
        comm->host = comm->root->host;
        atomic_fetch_add(&comm->host->references, 1);
    } else {
        status = trmi_shm_host_create(comm->local_size, comm->local_rank, &local, &comm->host, err);
    }
    /* The engine sees a group of its own: the members on this host. */
    if (status == TRM_OK) {
        trmi_group group = comm->group;
        group.size = comm->local_size;
        group.rank = comm->local_rank;
        group.members = comm->local_job_ranks;
        trmi_shm_options options = {.staging_bytes = comm->options.staging_bytes,
                                    .spin_microseconds = comm->options.spin_microseconds,
                                    .no_direct = comm->options.direct == TRM_OFF};
        status =
            trmi_shm_create(&group, comm->host, comm->host_rank, &options, &local, &comm->shm, err);
    }
    comm->crowded = status == TRM_OK && ((const trmi_shm *)(void *)comm->shm)->counted;
    trmi_subset_free(&subset);
    return status;
}

/* Stages: state of this rank, places of the members, comparison of the options, engine of this
 * host, engine between hosts. The last three use the exchange, so all ranks run them in this
 * order. */
trm_status trmi_comm_make(const trmi_comm_members *members, const trm_comm_options *options,
                          const trmi_exchange *exchange, trm_comm **out, trm_error *err) {
    const int32_t size = members->size;
    trm_comm *comm;
    TRMI_TRY(TRMI_NEW(err, comm, 1, "for a communicator"));
    pthread_mutex_init(&comm->mutex, NULL);
    pthread_cond_init(&comm->changed, NULL);
    comm->queue_tail = &comm->queue_head;
    comm->blocking.comm = comm;
    comm->bootstrap = members->bootstrap;
    keep_options(comm, options);
    comm->root = members->root != NULL ? members->root : comm;
    comm->group = (trmi_group){.bootstrap = members->bootstrap,
                               .size = size,
                               .rank = members->rank,
                               .timeout_seconds = comm->options.timeout_seconds,
                               .report_seconds = comm->options.report_seconds,
                               .deterministic = comm->options.deterministic,
                               .name = comm->name};
    /* From here on, an error destroys what has been made so far. */
    trm_status status;
    TRMI_TRY_GOTO(status, find_places(comm, members->ranks, err), fail);
    comm->group.members = comm->members;
    comm->turn_sent = trmi_alloc((size_t)size * sizeof(uint32_t));
    comm->turn_received = trmi_alloc((size_t)size * sizeof(uint32_t));
    comm->missing = trmi_alloc((size_t)size * sizeof(bool));
    if (comm->turn_sent == NULL || comm->turn_received == NULL || comm->missing == NULL) {
        status = TRMI_NO_MEMORY(err, "for a communicator of %d ranks", size);
        goto fail;
    }
    TRMI_TRY_GOTO(status, compare_options(comm, exchange, err), fail);
    TRMI_TRY_GOTO(status, make_shm(comm, exchange, err), fail);
    TRMI_TRY_GOTO(status, trmi_net_choose(comm, exchange, err), fail);
    *out = comm;
    return TRM_OK;
fail:
    trm_comm_destroy(comm);
    return status;
}

/* Creates the communicator of all ranks of the job. A failure on one rank poisons the job, so that
 * the other ranks fail with the same error. */
trm_status trm_comm_create(trm_bootstrap *bootstrap, const trm_comm_options *options,
                           trm_comm **out, trm_error *err) {
    TRMI_NEED(err, bootstrap, out);
    double timeout = operation_seconds(bootstrap, options);
    trmi_job_exchange job = {.bootstrap = bootstrap, .timeout_seconds = timeout};
    trmi_exchange exchange = {.context = &job, .allgather = trmi_job_allgather};
    int32_t *ranks;
    TRMI_TRY(TRMI_NEW(err, ranks, bootstrap->size, "for %d ranks", bootstrap->size));
    for (int32_t r = 0; r < bootstrap->size; r++) {
        ranks[r] = r;
    }
    /* The name of an algorithm is kept in an array of fixed size (communicator.h). */
    trm_error cause = {.status = TRM_OK};
    if (options != NULL && options->algorithm != NULL &&
        strlen(options->algorithm) >= TRMI_ALGORITHM_BYTES) {
        trmi_free(ranks);
        return TRMI_FAIL(err, TRM_INVALID, "algorithm: %zu characters, at most %d expected",
                         strlen(options->algorithm), TRMI_ALGORITHM_BYTES - 1);
    }
    const trmi_comm_members all = {
        .bootstrap = bootstrap, .ranks = ranks, .size = bootstrap->size, .rank = bootstrap->rank};
    trm_status status = trmi_comm_make(&all, options, &exchange, out, &cause);
    trmi_free(ranks);
    if (status == TRM_OK) {
        trmi_world_note(bootstrap, *out);
    }
    if (status != TRM_OK) { /* the peers would wait for this rank until their deadline */
        cause.rank = cause.rank < 0 ? bootstrap->rank : cause.rank;
        bootstrap->table->poison(bootstrap, &cause);
        if (err != NULL) {
            *err = cause;
        }
    }
    return status;
}

/* The order matters: the progress thread uses the engines, so it stops first, and the engines use
 * the host memory, so they are destroyed before it. */
void trm_comm_destroy(trm_comm *comm) {
    if (comm == NULL) {
        return;
    }
    trmi_world_forget(comm);
    trmi_comm_stop_thread(comm);
    trmi_net_release(comm);
    if (comm->shm != NULL) {
        comm->shm->table->destroy(comm->shm);
    }
    trmi_shm_host_release(comm->host);
    while (comm->free_requests != NULL) {
        trm_request *next = comm->free_requests->next;
        trmi_comm_free_request(comm->free_requests);
        comm->free_requests = next;
    }
    trmi_free(comm->blocking.counts);
    trmi_free(comm->blocking.messages);
    pthread_mutex_destroy(&comm->mutex);
    pthread_cond_destroy(&comm->changed);
    trmi_free(comm->members);
    trmi_free(comm->local_index);
    trmi_free(comm->local_members);
    trmi_free(comm->local_job_ranks);
    trmi_free(comm->host_rank);
    trmi_free(comm->turn_sent);
    trmi_free(comm->turn_received);
    trmi_free(comm->missing);
    trmi_free(comm->scratch);
    trmi_free(comm);
}

/* --- queries --- */
int32_t trm_comm_rank(const trm_comm *comm) {
    TRMI_NEED_OR(0, NULL, comm);
    return comm->group.rank;
}
int32_t trm_comm_size(const trm_comm *comm) {
    TRMI_NEED_OR(1, NULL, comm);
    return comm->group.size;
}
int32_t trm_comm_local_rank(const trm_comm *comm) {
    TRMI_NEED_OR(0, NULL, comm);
    return comm->local_rank;
}
int32_t trm_comm_local_size(const trm_comm *comm) {
    TRMI_NEED_OR(1, NULL, comm);
    return comm->local_size;
}
trm_deterministic trm_comm_deterministic(const trm_comm *comm) {
    TRMI_NEED_OR((trm_deterministic)0, NULL, comm);
    return comm->options.deterministic;
}
const char *trm_comm_engine(const trm_comm *comm) {
    TRMI_NEED_OR(NULL, NULL, comm);
    return comm->engine_text;
}

double trmi_comm_start_seconds(const trm_comm *comm) { return comm->bootstrap->start_seconds; }

void trmi_comm_wait_long(trm_comm *comm) {
    trmi_group *groups[] = {&comm->group, comm->shm != NULL ? &comm->shm->group : NULL,
                            comm->net != NULL ? &comm->net->group : NULL};
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        if (groups[g] != NULL) {
            groups[g]->timeout_seconds = groups[g]->report_seconds = 1e9;
        }
    }
}

trm_status trm_comm_health(trm_comm *comm, trm_error *err) {
    TRMI_NEED(err, comm);
    return comm->bootstrap->table->check(comm->bootstrap, err);
}

void trm_comm_abort(trm_comm *comm, const trm_error *cause) {
    TRMI_NEED_OR(, NULL, comm);
    trm_error asked;
    if (cause == NULL) {
        TRMI_FAIL(&asked, TRM_CANCELLED, "the communicator was aborted (trm_comm_abort)");
        asked.rank = comm->group.rank;
        cause = &asked;
    }
    comm->bootstrap->table->poison(comm->bootstrap, cause);
}

void *trmi_comm_reserve_shared(trm_comm *comm, size_t bytes, trm_error *err) {
    return trmi_shm_host_alloc(comm->host, bytes, err);
}

void *trm_comm_alloc_shared(trm_comm *comm, size_t bytes, trm_error *err) {
    TRMI_NEED_OR(NULL, err, comm);
    if (bytes > (uint64_t)trmi_os_memory_bytes()) { /* to fill it would end this process */
        TRMI_FAIL(err, TRM_NOMEM, "%zu bytes of shared memory, of %lld bytes in all", bytes,
                  (long long)trmi_os_memory_bytes());
        return NULL;
    }
    void *memory = trmi_comm_reserve_shared(comm, bytes, err);
    if (memory != NULL) {
        trmi_comm_fill_shared(memory, trmi_shared_resident(bytes));
    }
    return memory;
}

void trm_comm_free_shared(trm_comm *comm, void *memory) {
    TRMI_NEED_OR(, NULL, comm);
    trmi_shm_host_free(comm->host, memory);
}

size_t trm_comm_keep_shared(trm_comm *comm, void *memory) {
    TRMI_NEED_OR(0, NULL, comm, memory);
    return trmi_shm_host_keep(comm->host, memory);
}

/* --- operations --- */

bool trmi_comm_in_call(const trm_comm *comm) {
    return atomic_load(&comm->pending) != 0 || atomic_load(&comm->blocked);
}

/* Runs comm->blocking in this thread, or after the pending operations in the progress thread. */
static trm_status run_blocking(trm_comm *comm, trm_error *err) {
    trm_request *request = &comm->blocking;
    if (atomic_load_explicit(&comm->pending, memory_order_acquire) == 0) {
        atomic_store_explicit(&comm->root->blocked, true, memory_order_relaxed);
        trm_status status = trmi_comm_execute(comm, request, false, err);
        atomic_store_explicit(&comm->root->blocked, false, memory_order_relaxed);
        return status;
    }
    TRMI_TRY(trmi_comm_enqueue(comm, request, err));
    trmi_comm_join_request(request);
    if (request->status != TRM_OK && err != NULL) {
        *err = request->error;
    }
    return request->status;
}

trm_status trm_comm_run(trm_comm *comm, const trm_collective *op, trm_error *err) {
    TRMI_NEED(err, comm, op);
    /* A training loop calls the same operation again and again, and comm->blocking is still
     * resolved. Not with counts, because the array behind the pointer may have changed, and not for
     * an all-to-all, because in place it must move its input aside each time. */
    if (memcmp(op, &comm->last, sizeof *op) != 0) {
        comm->last = (trm_collective){.kind = TRM_COLLECTIVE_NONE};
        TRMI_TRY(trmi_comm_resolve(comm, op, &comm->blocking, err));
        if (op->counts == NULL && op->kind != TRM_ALLTOALL) {
            memcpy(&comm->last, op, sizeof *op);
        }
    }
    comm->blocking.op.sequence = ++comm->sequence;
    return run_blocking(comm, err);
}

/* Starts a collective in the progress thread. The request comes from the list of free requests, and
 * goes back to it after an error. Only an accepted operation gets a sequence number. */
trm_status trm_comm_start(trm_comm *comm, const trm_collective *op, trm_request **request,
                          trm_error *err) {
    TRMI_NEED(err, comm, op, request);
    trm_request *taken = NULL;
    TRMI_TRY(trmi_comm_take_request(comm, &taken, err));
    trm_status status = trmi_comm_resolve(comm, op, taken, err);
    if (status == TRM_OK) {
        taken->op.sequence = comm->sequence + 1;
        status = trmi_comm_enqueue(comm, taken, err);
    }
    if (status != TRM_OK) {
        taken->next = comm->free_requests;
        comm->free_requests = taken;
        return status;
    }
    comm->sequence++;
    *request = taken;
    return TRM_OK;
}

trm_status trm_comm_allreduce(trm_comm *comm, void *buffer, int64_t count, trm_dtype dtype,
                              trm_reduction reduce, trm_error *err) {
    TRMI_NEED(err, comm);
    if (count > 0) {
        TRMI_NEED(err, buffer);
    }
    trm_collective op = {
        .kind = TRM_ALLREDUCE, .recv = buffer, .count = count, .dtype = dtype, .reduce = reduce};
    return trm_comm_run(comm, &op, err);
}

trm_status trm_comm_broadcast(trm_comm *comm, void *buffer, int64_t count, trm_dtype dtype,
                              int32_t root, trm_error *err) {
    TRMI_NEED(err, comm);
    if (count > 0) {
        TRMI_NEED(err, buffer);
    }
    trm_collective op = {
        .kind = TRM_BROADCAST, .recv = buffer, .count = count, .dtype = dtype, .root = root};
    return trm_comm_run(comm, &op, err);
}

trm_status trm_comm_barrier(trm_comm *comm, trm_error *err) {
    TRMI_NEED(err, comm);
    trm_collective op = {.kind = TRM_BARRIER};
    return trm_comm_run(comm, &op, err);
}

trm_status trm_comm_exchange(trm_comm *comm, const trm_message *messages, int32_t count,
                             trm_error *err) {
    TRMI_NEED(err, comm);
    if (count > 0) {
        TRMI_NEED(err, messages);
    }
    /* comm->blocking is overwritten, so the fast path of trm_comm_run must not use it again. */
    comm->last = (trm_collective){.kind = TRM_COLLECTIVE_NONE};
    TRMI_TRY(trmi_comm_resolve_messages(comm, messages, count, &comm->blocking, err));
    return run_blocking(comm, err);
}

/* Contract in trireme/dist.h. An error gives the request back, so that the number of requests does
 * not grow. */
trm_status trm_comm_start_exchange(trm_comm *comm, const trm_message *messages, int32_t count,
                                   trm_request **request, trm_error *err) {
    TRMI_NEED(err, comm, request);
    if (count > 0) {
        TRMI_NEED(err, messages);
    }
    trm_request *taken = NULL;
    TRMI_TRY(trmi_comm_take_request(comm, &taken, err));
    trm_status status = trmi_comm_resolve_messages(comm, messages, count, taken, err);
    if (status == TRM_OK) {
        status = trmi_comm_enqueue(comm, taken, err);
    }
    if (status != TRM_OK) {
        taken->next = comm->free_requests;
        comm->free_requests = taken;
        return status;
    }
    *request = taken;
    return TRM_OK;
}

trm_status trm_comm_send(trm_comm *comm, const void *buffer, int64_t count, trm_dtype dtype,
                         int32_t peer, trm_error *err) {
    TRMI_NEED(err, comm);
    if (count > 0) {
        TRMI_NEED(err, buffer);
    }
    trm_message message = {
        .peer = peer, .buffer = (void *)(uintptr_t)buffer, .count = count, .dtype = dtype};
    return trm_comm_exchange(comm, &message, 1, err);
}

trm_status trm_comm_recv(trm_comm *comm, void *buffer, int64_t count, trm_dtype dtype, int32_t peer,
                         trm_error *err) {
    TRMI_NEED(err, comm);
    if (count > 0) {
        TRMI_NEED(err, buffer);
    }
    trm_message message = {
        .receive = true, .peer = peer, .buffer = buffer, .count = count, .dtype = dtype};
    return trm_comm_exchange(comm, &message, 1, err);
}
