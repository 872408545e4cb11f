/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of several servers in which something goes wrong as one order goes out to one of
 * them. */
#include "folder.h"
#include "servers.h"
#include "table_worker.h"
#include "wrapped_channel.h"

#include "base/error.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a job of one worker, the chief ---------------------------------------------------------- */

typedef struct job {
    char path[128]; /* of the servers' folder */
    trm_ps_server_options options;
    trm_ps_server *server[2]; /* options.servers of them are used */
    int number;               /* of the worker */
    table_worker worker;
    int64_t steps; /* pushed so far */
} job;

static void start_server(job *j, int number) {
    trm_ps_server_options o = j->options;
    o.server = number;
    j->server[number] = server_start(o);
}

static void start_servers(job *j) {
    for (int s = 0; s < j->options.servers; s++) {
        start_server(j, s);
    }
}

static void stop_servers(job *j) {
    for (int s = 0; s < j->options.servers; s++) {
        trm_ps_server_stop(j->server[s]);
    }
}

static void join_worker(job *j, double timeout,
                        trmi_channel *(*wrap)(void *context, trmi_channel *channel)) {
    const trm_ps_client_options o = {.local = j->server,
                                     .servers = j->options.servers,
                                     .worker = j->number,
                                     .ring_bytes = 1 << 18,
                                     .timeout_seconds = timeout};
    trm_error err;
    CHECK_OK(trmi_client_create_wrapped(&o, wrap, NULL, &j->worker.client, &err), err);
    worker_open(&j->worker);
}

/* Begins a job whose servers keep a folder `name` and log pushes. */
static void begin_job(job *j, const char *name, trm_ps_server_options options,
                      trmi_channel *(*wrap)(void *context, trmi_channel *channel)) {
    *j = (job){.options = options};
    snprintf(j->path, sizeof j->path, "%s/%s", folder, name);
    j->options.folder = j->path;
    j->options.log_pushes = TRM_ON;
    start_servers(j);
    join_worker(j, 0, wrap);
}

static void end_job(job *j) {
    worker_leave(&j->worker);
    stop_servers(j);
}

static void take_steps(job *j) {
    trm_error err;
    for (int64_t end = j->steps + 3; j->steps < end; j->steps++) {
        worker_compute(&j->worker, 0, j->steps);
        CHECK_OK(trm_ps_push(j->worker.batch, NULL, &err), err);
    }
}

static void check_rows(job *j, const float expected[KEYS * WIDTH]) {
    static float rows[KEYS * WIDTH];
    worker_read_all(&j->worker, rows);
    assert_memory_equal(rows, expected, sizeof rows);
}

static void check_checkpoint(const job *j, bool differential) {
    trm_error err;
    trm_ps_checkpoint_result result;
    CHECK_OK(trm_ps_checkpoint(j->worker.client, true, &result, &err), err);
    assert_int_equal(result.differential, differential);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

typedef struct ambush {
    job *job;
    trmi_order order;
    int server; /* -1: none */
    bool lost;  /* the order is */
    trm_status (*strike)(struct ambush *a, trm_error *err);
} ambush;
static ambush ahead;

static trm_status strike_at_the_order(wrapped_channel *channel, const trmi_message *m,
                                      trm_error *err) {
    const bool ordered = server_of(channel) == ahead.server && is_order(m, (int64_t)ahead.order);
    return ordered ? ahead.strike(&ahead, err) : TRM_OK;
}

static trmi_channel *watch_channel(void *context, trmi_channel *channel) {
    const channel_hooks hooks = {.before_send = strike_at_the_order};
    return &wrap_channel(channel, hooks, context)->base;
}

/* The order is lost with the old server, or finds the new one. */
static trm_status start_again(ambush *a, trm_error *err) {
    const int server = a->server;
    a->server = -1;
    trm_ps_server_stop(a->job->server[server]);
    start_server(a->job, server);
    return a->lost ? TRM_OK : TRMI_FAIL(err, TRM_PEER, "the server has gone");
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A server is started again when all have written their files of a snapshot, and before the
 * manifest says so. The job goes on, its next checkpoint is whole, and so is what a later start
 * finds in it and in the logs. */
static void dies_as_a_snapshot_is_complete(int servers, int victim, bool lost) {
    char name[64];
    static job j, calm;
    static float expected[KEYS * WIDTH];
    trm_error err;
    trm_ps_checkpoint_result result;
    snprintf(name, sizeof name, "%d-%d-%d", servers, victim, lost);
    calm = (job){.options = {.servers = 1, .shards = 1}};
    ahead = (ambush){
        .job = &j, .order = TRMI_ORDER_RELEASE, .server = -1, .lost = lost, .strike = start_again};
    begin_job(&j, name, (trm_ps_server_options){.servers = servers, .shards = 2}, watch_channel);
    take_steps(&j);
    check_checkpoint(&j, false);
    take_steps(&j);
    ahead.server = victim;
    /* Server 0 is told first, and writes the manifest: server 1 then comes back with this snapshot.
     */
    assert_int_equal(trm_ps_checkpoint(j.worker.client, true, &result, &err),
                     victim == 1 && !lost ? TRM_OK : TRM_PEER);
    assert_int_equal(ahead.server, -1);
    take_steps(&j);
    /* otherwise snapshot 2 was given up, so the next one must be full */
    check_checkpoint(&j, victim == 1);
    take_steps(&j);
    check_checkpoint(&j, true);
    take_steps(&j);
    CHECK_OK(trm_ps_flush(j.worker.client, &err), err);
    worker_leave(&j.worker);
    start_servers(&calm);
    join_worker(&calm, 0, NULL);
    while (calm.steps < j.steps) {
        take_steps(&calm);
    }
    worker_read_all(&calm.worker, expected);
    end_job(&calm);
    for (int life = 0; life < 2; life++) {
        stop_servers(&j);
        start_servers(&j);
        assert_int_equal(j.server[victim]->table_count, 1);
        join_worker(&j, 0, NULL);
        check_rows(&j, expected);
        worker_leave(&j.worker);
    }
    stop_servers(&j);
}

static void who_dies_as_a_snapshot_is_complete_goes_on(void **state) {
    for (int lost = 0; lost < 2; lost++) {
        dies_as_a_snapshot_is_complete(1, 0, lost != 0);
        dies_as_a_snapshot_is_complete(2, 0, lost != 0);
        dies_as_a_snapshot_is_complete(2, 1, lost != 0);
    }
}

/* A server died while it wrote its first manifest, which has another name until it is whole: the
 * logs have everything. */
static void a_manifest_that_is_not_whole_is_none(void **state) {
    char part[256], alive[256];
    static job j;
    static float expected[KEYS * WIDTH];
    trm_error err;
    begin_job(&j, "part", (trm_ps_server_options){.servers = 1, .shards = 2}, NULL);
    take_steps(&j);
    CHECK_OK(trm_ps_flush(j.worker.client, &err), err);
    worker_read_all(&j.worker, expected);
    end_job(&j);
    pid_t dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    snprintf(part, sizeof part, "%s/MANIFEST-000001.json.tmp.%ld", j.path, (long)dead);
    snprintf(alive, sizeof alive, "%s/MANIFEST-000001.json.tmp.%ld", j.path, (long)getppid());
    CHECK_OK(trmi_os_replace_file(NULL, part, "{", 1, &err), err);
    CHECK_OK(trmi_os_replace_file(NULL, alive, "{", 1, &err), err);
    start_servers(&j);
    assert_int_equal(j.server[0]->table_count, 1);
    assert_int_not_equal(access(part, F_OK), 0); /* its writer is dead */
    assert_int_equal(access(alive, F_OK), 0);
    join_worker(&j, 0, NULL);
    check_rows(&j, expected);
    check_checkpoint(&j, false);
    end_job(&j);
}

static void *stand_still(void *context) {
    trm_ps_server *server = context;
    pthread_mutex_lock(&server->mutex);
    usleep(600000);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static pthread_t standing;

/* For longer than a client waits before it looks after other servers. */
static trm_status be_slow(ambush *a, trm_error *err) {
    (void)err;
    assert_int_equal(pthread_create(&standing, NULL, stand_still, a->job->server[a->server]), 0);
    a->server = -1;
    usleep(100000);
    return TRM_OK;
}

/* Server 1 has written its file long before server 0, and owes rows that wait for another worker.
 */
static void a_slow_snapshot_is_waited_for(void **state) {
    char path[128];
    static job j;
    trm_error err;
    trm_ps_checkpoint_result result;
    snprintf(path, sizeof path, "%s/slow", folder);
    j = (job){.options = {.servers = 2,
                          .shards = 1,
                          .folder = path,
                          .mode = TRM_PS_BOUNDED,
                          .staleness = 2,
                          .workers = 2}};
    ahead = (ambush){.job = &j, .order = TRMI_ORDER_SNAPSHOT, .server = -1, .strike = be_slow};
    start_servers(&j);
    join_worker(&j, 20, watch_channel);
    take_steps(&j); /* as far as may be without the other worker */
    worker_pull(&j.worker, 0, j.steps);
    ahead.server = 0;
    CHECK_OK(trm_ps_checkpoint(j.worker.client, false, &result, &err), err);
    assert_int_equal(pthread_join(standing, NULL), 0);
    worker_leave(&j.worker);
    stop_servers(&j);
}

/* Something reads what a shard writes into a pipe, but not at once. */
static void *read_late(void *context) {
    char bytes[4096];
    usleep(300000);
    int fd = open(context, O_RDONLY);
    while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0) {
    }
    close(fd);
    return NULL;
}

/* The chief has given a checkpoint up, or died in one, and a server is still busy with it: the next
 * one waits. */
static void a_snapshot_that_nobody_waits_for_is_let_end(void **state) {
    char path[128], pipe[256];
    static job j, next;
    trm_error err;
    trm_ps_checkpoint_result result;
    pthread_t reader;
    const trmi_ps_note hold = {.value = {TRMI_ORDER_HOLD}};
    snprintf(path, sizeof path, "%s/pipe", folder);
    snprintf(pipe, sizeof pipe, "%s/snapshot-000001", path);
    CHECK_OK(trmi_os_make_dirs(NULL, pipe, &err), err);
    snprintf(pipe, sizeof pipe, "%s/snapshot-000001/server-1-shard-1.full.tmp", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    j = (job){.options = {.servers = 2, .shards = 2, .folder = path}};
    start_servers(&j);
    join_worker(&j, 1, NULL);
    take_steps(&j);
    CHECK_FAILS(trm_ps_checkpoint(j.worker.client, false, &result, &err), TRM_TIMEOUT, err,
                "no answer from server 1");
    assert_int_equal(pthread_create(&reader, NULL, read_late, pipe), 0);
    j.worker.client->options.timeout_seconds = 60;
    check_checkpoint(&j, false);
    assert_int_equal(pthread_join(reader, NULL), 0);
    take_steps(&j);
    CHECK_OK(trmi_client_order(j.worker.client, &j.worker.client->peers[1], TRMI_PS_CONTROL, &hold,
                               NULL, NULL, 0, &err),
             err);
    worker_leave(&j.worker);
    next = (job){.options = j.options, .server = {j.server[0], j.server[1]}};
    join_worker(&next, 60, NULL);
    check_checkpoint(&next, true);
    worker_leave(&next.worker);
    stop_servers(&j);
}

static trm_status give_order(const job *j, int server, const trmi_ps_note *order, trm_error *err) {
    return trmi_client_order(j->worker.client, &j->worker.client->peers[server], TRMI_PS_CONTROL,
                             order, NULL, NULL, 0, err);
}

/* A server begins a snapshot, and its log with it, which is then given up. */
static void give_up(const job *j, int server, int64_t number) {
    trm_error err;
    const trmi_ps_note orders[] = {{.value = {TRMI_ORDER_HOLD}},
                                   {.value = {TRMI_ORDER_SNAPSHOT, number}},
                                   {.value = {TRMI_ORDER_RELEASE}}};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(give_order(j, server, &orders[i], &err), err);
    }
}

static void start_again_with(job *j, int servers) {
    end_job(j);
    j->options.servers = servers;
    start_servers(j);
    join_worker(j, 0, NULL);
}

/* Checks that the folder, with its logs or without, has the rows of the servers. */
static void check_folder(job *j, trm_switch logs, const float rows[KEYS * WIDTH]) {
    float values[WIDTH], slots[WIDTH];
    trm_row_info info;
    trm_ps_folder *f;
    trm_error err;
    int found = 0;
    CHECK_OK(trm_ps_flush(j->worker.client, &err), err);
    CHECK_OK(trm_ps_folder_open(j->path, &(trm_ps_folder_options){.logs = logs}, &f, &err), err);
    for (uint64_t key = 0; key < KEYS; key++) {
        if (trm_ps_folder_row(f, 0, key, &info, values, slots, &err) == TRM_OK) {
            assert_memory_equal(values, rows + key * WIDTH, sizeof values);
            found++;
        }
    }
    assert_true(found > KEYS / 2);
    trm_ps_folder_close(f);
}

/* Log N has the pushes after snapshot N only: the number of a snapshot that was given up, whose log
 * has pushes, is not used again. So after the next checkpoint other servers can load the folder. If
 * that checkpoint is damaged, the logs since the complete one before it have everything. */
static void a_number_that_was_given_up_is_not_used_again(void **state) {
    char manifest[256];
    static job j;
    static float expected[KEYS * WIDTH];
    trm_error err;
    trm_ps_checkpoint_result result;
    begin_job(&j, "given-up", (trm_ps_server_options){.servers = 2, .shards = 2}, NULL);
    take_steps(&j);
    check_checkpoint(&j, false);
    for (int server = 0; server < 2; server++) {
        take_steps(&j);
        CHECK_OK(trm_ps_flush(j.worker.client, &err), err);
        give_up(&j, server, 2 + server);
        take_steps(&j);
        worker_read_all(&j.worker, expected);
        check_folder(&j, TRM_ON, expected);
        start_again_with(&j, 2);
        check_rows(&j, expected);
    }
    CHECK_OK(trm_ps_checkpoint(j.worker.client, true, &result, &err), err);
    assert_int_equal(result.snapshot, 4);
    assert_false(result.differential);
    start_again_with(&j, 1);
    check_rows(&j, expected);
    start_again_with(&j, 2);
    take_steps(&j);
    worker_read_all(&j.worker, expected);
    snprintf(manifest, sizeof manifest, "%s/MANIFEST-000004.json", j.path);
    CHECK_OK(trmi_os_replace_file(NULL, manifest, "{", 1, &err), err);
    start_again_with(&j, 2);
    check_rows(&j, expected);
    end_job(&j);
}

/* The client lacks memory for one of its allocations: the checkpoint is whole, or there is none. */
static void a_checkpoint_without_memory_is_none(void **state) {
    static job j;
    static float rows[KEYS * WIDTH];
    trm_error err;
    int good = 0;
    begin_job(&j, "memory", (trm_ps_server_options){.servers = 2, .shards = 2}, NULL);
    take_steps(&j);
    check_checkpoint(&j, false);
    worker_read_all(&j.worker, rows);
    for (int64_t k = 1; good < 3; k++) {
        trm_ps_checkpoint_result result;
        trmi_alloc_fail_after(k);
        trm_status status = trm_ps_checkpoint(j.worker.client, true, &result, &err);
        trmi_alloc_fail_after(0);
        assert_true(status == TRM_OK || status == TRM_NOMEM);
        check_folder(&j, TRM_ON, rows);
        good = status == TRM_OK ? good + 1 : 0;
        assert_true(k < 1000);
    }
    end_job(&j);
}

/* A client that has been slow sends the rest of its checkpoint while another one holds the pushes:
 * it neither begins that one's snapshot nor ends its hold. */
static void a_late_order_changes_no_hold(void **state) {
    static job j, late;
    trm_error err;
    const trmi_ps_note hold = {.value = {TRMI_ORDER_HOLD}},
                       snapshot = {.value = {TRMI_ORDER_SNAPSHOT, 1}},
                       release = {.value = {TRMI_ORDER_RELEASE}};
    begin_job(&j, "late", (trm_ps_server_options){.servers = 1, .shards = 1, .workers = 2}, NULL);
    late = (job){.options = j.options, .server = {j.server[0]}, .number = 1};
    join_worker(&late, 0, NULL);
    CHECK_OK(give_order(&j, 0, &hold, &err), err);
    CHECK_FAILS(give_order(&late, 0, &snapshot, &err), TRM_PEER, err, "without hold");
    CHECK_OK(give_order(&late, 0, &release, &err), err);
    assert_true(j.server[0]->held);
    CHECK_OK(give_order(&j, 0, &snapshot, &err), err);
    CHECK_OK(give_order(&j, 0, &release, &err), err);
    worker_leave(&late.worker);
    end_job(&j);
}

/* A client gives its snapshot up while the server gathers the pushes of it, over a new connection:
 * the server takes none, also when they come. */
static void a_snapshot_that_is_given_up_is_not_taken(void **state) {
    static job j;
    trm_error err;
    const trmi_push_id missing = {.worker = 7, .incarnation = 1, .sequence = 1};
    const trmi_ps_note hold = {.value = {TRMI_ORDER_HOLD}},
                       snapshot = {.value = {TRMI_ORDER_SNAPSHOT, 1}},
                       release = {.value = {TRMI_ORDER_RELEASE}};
    begin_job(&j, "given", (trm_ps_server_options){.servers = 1, .shards = 1}, NULL);
    trmi_server_connection *peer = &j.worker.client->peers[0];
    CHECK_OK(give_order(&j, 0, &hold, &err), err);
    CHECK_OK(trmi_client_order_send(j.worker.client, peer, TRMI_PS_CONTROL, &snapshot, NULL,
                                    &missing, sizeof missing, &err),
             err);
    usleep(100000);
    trmi_client_drop(j.worker.client, peer);
    CHECK_OK(give_order(&j, 0, &release, &err), err);
    usleep(200000);
    assert_int_equal(j.server[0]->newest_number, 0);
    take_steps(&j);
    check_checkpoint(&j, false);
    end_job(&j);
}

static const double hold_seconds = 30; /* for which a snapshot waits for a push */

static void set_failure(trm_ps_server *server, trm_error failure) {
    pthread_mutex_lock(&server->mutex);
    server->failed = failure;
    pthread_mutex_unlock(&server->mutex);
}

/* The worker pushes a batch that server 1 refuses, and server 0 has. */
static void push_and_be_refused(job *j, double deadline) {
    trm_error err, failure;
    trmi_server_connection *peer = &j->worker.client->peers[1];
    worker_compute(&j->worker, 0, j->steps);
    TRMI_FAIL(&failure, TRM_NOMEM, "no memory for this push");
    set_failure(j->server[1], failure);
    CHECK_OK(trm_ps_push(j->worker.batch, NULL, &err), err);
    while (trmi_client_pushes_pending(peer) > 0) {
        CHECK_OK(trmi_client_progress(j->worker.client, peer, deadline, &err), err);
    }
    set_failure(j->server[1], (trm_error){0});
}

/* Server 1 has refused a push of the chief, server 0 has it: there is no checkpoint of one moment,
 * and no server waits for the push. The chief's next call that trains has the error. */
static void a_refused_push_is_in_no_checkpoint(void **state) {
    static job j;
    trm_error err;
    trm_ps_checkpoint_result result;
    const double began = trmi_os_now();
    begin_job(&j, "refused", (trm_ps_server_options){.servers = 2, .shards = 1}, NULL);
    take_steps(&j);
    CHECK_OK(trm_ps_flush(j.worker.client, &err), err);
    push_and_be_refused(&j, began + hold_seconds);
    CHECK_FAILS(trm_ps_checkpoint(j.worker.client, false, &result, &err), TRM_NOMEM, err,
                "for this push");
    assert_true(trmi_os_now() - began < hold_seconds);
    CHECK_FAILS(trm_ps_flush(j.worker.client, &err), TRM_NOMEM, err, "for this push");
    end_job(&j);
}

/* Server 1 has refused a push of another worker than the chief: it will not come, and no checkpoint
 * waits for it. */
static void a_refused_push_of_another_worker_is_not_awaited(void **state) {
    static job j, other;
    trm_error err;
    const double began = trmi_os_now();
    begin_job(&j, "other", (trm_ps_server_options){.servers = 2, .shards = 1, .workers = 2}, NULL);
    take_steps(&j);
    other = (job){.options = j.options, .server = {j.server[0], j.server[1]}, .number = 1};
    join_worker(&other, 0, NULL);
    take_steps(&other);
    CHECK_OK(trm_ps_flush(other.worker.client, &err), err);
    push_and_be_refused(&other, began + hold_seconds);
    check_checkpoint(&j, false);
    assert_true(trmi_os_now() - began < hold_seconds);
    CHECK_FAILS(trm_ps_flush(other.worker.client, &err), TRM_NOMEM, err, "for this push");
    worker_leave(&other.worker);
    end_job(&j);
}

/* A worker joins when the server has no room for another one: its first push, and that this is
 * refused, need no memory later. */
static void a_worker_that_has_joined_has_room(void **state) {
    static job j, other;
    begin_job(&j, "room", (trm_ps_server_options){.servers = 1, .shards = 1, .workers = 2}, NULL);
    take_steps(&j);
    trm_ps_server *server = j.server[0];
    pthread_mutex_lock(&server->mutex);
    server->worker_capacity = server->worker_count;
    server->given_up_capacity = server->given_up_count;
    pthread_mutex_unlock(&server->mutex);
    other = (job){.options = j.options, .server = {server}, .number = 1};
    join_worker(&other, 0, NULL);
    const trmi_request refused = {
        .header = {.kind = TRMI_PS_PUSH, .worker = 1, .incarnation = 1, .sequence = 1}};
    pthread_mutex_lock(&server->mutex);
    assert_null(trmi_front_find(server, 1));
    trmi_alloc_fail_after(1);
    const bool added = trmi_front_worker(server, 1, 1, NULL) != NULL;
    trmi_order_note_refused(server, &refused);
    trmi_alloc_fail_after(0);
    assert_true(added);
    assert_int_equal(server->given_up_count, 1);
    pthread_mutex_unlock(&server->mutex);
    worker_leave(&other.worker);
    end_job(&j);
    (void)state;
}

/* Notes that the server has refused a push of this worker, while it has no more memory. */
static void note_refused_without_memory(trm_ps_server *server, uint32_t worker) {
    const trmi_request refused = {
        .header = {.kind = TRMI_PS_PUSH, .worker = worker, .incarnation = 1, .sequence = 1}};
    trmi_alloc_fail_after(1);
    trmi_order_note_refused(server, &refused);
    trmi_alloc_fail_after(0);
}

/* The room of workers that have joined is not used for others, whose pushes have come to other
 * servers only, and readers need none. */
static void room_is_of_workers_that_have_joined(void **state) {
    static job j, other;
    trm_ps_client *reader;
    trm_error err;
    begin_job(&j, "kept", (trm_ps_server_options){.servers = 1, .shards = 1, .workers = 2}, NULL);
    trm_ps_server *server = j.server[0];
    other = (job){.options = j.options, .server = {server}, .number = 1};
    join_worker(&other, 0, NULL);
    pthread_mutex_lock(&server->mutex);
    server->given_up_capacity = 2; /* for workers 0 and 1 */
    const int64_t capacity = server->worker_capacity = 2;
    note_refused_without_memory(server, 7);
    assert_int_equal(server->given_up_count, 0);
    const trmi_request refused = {
        .header = {.kind = TRMI_PS_PUSH, .worker = 7, .incarnation = 1, .sequence = 1}};
    trmi_order_note_refused(server, &refused);
    assert_int_equal(server->given_up_count, 1);
    server->given_up_capacity = 3;
    note_refused_without_memory(server, 0);
    note_refused_without_memory(server, 1);
    assert_int_equal(server->given_up_count, 3);
    server->worker_capacity = capacity;
    pthread_mutex_unlock(&server->mutex);
    const trm_ps_client_options o = {.local = j.server, .servers = 1, .worker = -1};
    CHECK_OK(trm_ps_client_create(&o, &reader, &err), err);
    pthread_mutex_lock(&server->mutex);
    assert_int_equal(server->given_up_capacity, 3);
    assert_int_equal(server->worker_capacity, capacity);
    pthread_mutex_unlock(&server->mutex);
    trm_ps_client_destroy(reader);
    worker_leave(&other.worker);
    end_job(&j);
    (void)state;
}

/* Server 1 has refused a push of a worker's next life, and never gets the last one of its earlier
 * life: a checkpoint ends. */
static void a_refused_push_of_a_next_life_ends_the_wait_for_the_earlier(void **state) {
    static job j;
    trm_error err;
    begin_job(&j, "lives", (trm_ps_server_options){.servers = 2, .shards = 1, .workers = 2}, NULL);
    take_steps(&j);
    CHECK_OK(trm_ps_flush(j.worker.client, &err), err);
    trm_ps_server *server = j.server[1];
    const trmi_push_id earlier = {.worker = 1, .incarnation = 1, .sequence = 7};
    trmi_request refused = {.header = {.kind = TRMI_PS_PUSH, .worker = 1, .incarnation = 2}};
    pthread_mutex_lock(&server->mutex);
    refused.header.sequence = 5;
    trmi_order_note_refused(server, &refused);
    refused.header.sequence = 3; /* sent again after a reconnect: the later one stands */
    trmi_order_note_refused(server, &refused);
    assert_int_equal(server->given_up_count, 1);
    assert_int_equal(server->given_up[0].sequence, 5);
    trmi_push_id until[] = {earlier, {.worker = 1, .incarnation = 2, .sequence = 5}};
    assert_false(trmi_order_is_missing(server, &until[0]));
    assert_false(trmi_order_is_missing(server, &until[1]));
    until[1].sequence = 6;
    assert_true(trmi_order_is_missing(server, &until[1]));
    pthread_mutex_unlock(&server->mutex);
    check_checkpoint(&j, false);
    end_job(&j);
    (void)state;
}

/* Nothing arrives over the connections that were made before, and then they break. */
static _Atomic bool loses_answers;
static _Atomic int breaks; /* connections made before the last break are broken */

static trm_status lose_answer(wrapped_channel *channel, trm_error *err) {
    if (channel->left < atomic_load(&breaks)) {
        return TRMI_FAIL(err, TRM_PEER, "this connection is broken");
    }
    if (!atomic_load(&loses_answers)) {
        return TRM_OK;
    }
    usleep(1000);
    return TRMI_FAIL(err, TRM_TIMEOUT, "nothing arrives");
}

static trmi_channel *watch_answers(void *context, trmi_channel *channel) {
    const channel_hooks hooks = {.before_receive = lose_answer};
    wrapped_channel *watched = wrap_channel(channel, hooks, context);
    watched->left = atomic_load(&breaks);
    return &watched->base;
}

/* The worker sends its unanswered push again, when the snapshot has begun. */
static void *send_again_late(void *context) {
    trm_ps_client *client = context;
    trm_error err;
    usleep(300000);
    atomic_store(&loses_answers, false);
    atomic_fetch_add(&breaks, 1);
    CHECK_OK(trm_ps_flush(client, &err), err);
    return NULL;
}

/* Waits until a server knows that a worker has finished so many batches. */
static void await_push(trm_ps_server *server, uint32_t worker, int64_t batches) {
    const double deadline = trmi_os_now() + 60 * check_patience();
    for (bool has = false; !has; usleep(1000)) {
        pthread_mutex_lock(&server->mutex);
        const trmi_worker *w = trmi_front_find(server, worker);
        has = w != NULL && w->done == batches;
        pthread_mutex_unlock(&server->mutex);
        if (!has && trmi_os_now() > deadline) {
            fail_msg("worker %u: the server does not have its %lld batches after a minute",
                     (unsigned)worker, (long long)batches);
        }
    }
}

/* A server dies when one of its shards has a push, and the other one has not: started again, it
 * takes no snapshot before the worker has sent the push again. `pushes`: of the worker's life. */
static void a_half_push_is_in_no_snapshot(int64_t pushes, int shard) {
    char name[64];
    static job j, other;
    static float rows[KEYS * WIDTH];
    trm_error err;
    pthread_t thread;
    snprintf(name, sizeof name, "half-%d-%d", (int)pushes, shard);
    begin_job(&j, name, (trm_ps_server_options){.servers = 1, .shards = 2, .workers = 2}, NULL);
    take_steps(&j);
    CHECK_OK(trm_ps_flush(j.worker.client, &err), err);
    other = (job){.options = j.options, .server = {j.server[0]}, .number = 1};
    join_worker(&other, 0, watch_answers);
    for (; other.steps < pushes; other.steps++) {
        worker_compute(&other.worker, 1, other.steps);
        CHECK_OK(trm_ps_flush(other.worker.client, &err), err);
        atomic_store(&loses_answers, other.steps + 1 == pushes);
        CHECK_OK(trm_ps_push(other.worker.batch, NULL, &err), err);
    }
    await_push(j.server[0], 1, pushes);
    trm_ps_server_stop(j.server[0]);
    lose_last_push(j.path, (job_shard){.servers = 1, .shard = shard, .shards = 2});
    start_server(&j, 0);
    other.server[0] = j.server[0];
    worker_read_all(&j.worker, rows); /* connects again */
    assert_int_equal(pthread_create(&thread, NULL, send_again_late, other.worker.client), 0);
    check_checkpoint(&j, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    worker_read_all(&j.worker, rows);
    check_folder(&j, TRM_OFF, rows);
    worker_leave(&other.worker);
    end_job(&j);
}

static void half_pushes_are_in_no_snapshot(void **state) {
    (void)state;
    for (int shard = 0; shard < 2; shard++) {
        a_half_push_is_in_no_snapshot(1, shard);
        a_half_push_is_in_no_snapshot(3, shard);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_dies_as_a_snapshot_is_complete_goes_on),
        cmocka_unit_test(a_manifest_that_is_not_whole_is_none),
        cmocka_unit_test(a_slow_snapshot_is_waited_for),
        cmocka_unit_test(a_snapshot_that_nobody_waits_for_is_let_end),
        cmocka_unit_test(a_checkpoint_without_memory_is_none),
        cmocka_unit_test(a_late_order_changes_no_hold),
        cmocka_unit_test(a_snapshot_that_is_given_up_is_not_taken),
        cmocka_unit_test(a_refused_push_is_in_no_checkpoint),
        cmocka_unit_test(a_refused_push_of_another_worker_is_not_awaited),
        cmocka_unit_test(a_worker_that_has_joined_has_room),
        cmocka_unit_test(room_is_of_workers_that_have_joined),
        cmocka_unit_test(a_refused_push_of_a_next_life_ends_the_wait_for_the_earlier),
        cmocka_unit_test(a_number_that_was_given_up_is_not_used_again),
        cmocka_unit_test(half_pushes_are_in_no_snapshot),
    };
    return cmocka_run_group_tests_name("ps snapshots and deaths", tests, make_folder,
                                       remove_folder);
}
