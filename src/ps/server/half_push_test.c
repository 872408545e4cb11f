/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes that one of two synchronous servers does not get, or refuses. A worker is killed at each
 * message of a push: whichever messages the servers have received, the job ends with the rows of an
 * undisturbed job. A push that one server refuses ends the wait for the other one. A push of an
 * ended life that is in a step stays in the file of kept pushes until the step is logged. */
#include "folder.h"
#include "servers.h"
#include "table_worker.h"
#include "wrapped_channel.h"

#include "base/error.h"
#include "base/memory.h"
#include "ps/client/life.h"
#include "ps/server/server.h"

#include <unistd.h>

enum { SERVERS = 2, WORKERS = 2, STEPS = 6, FATAL_STEP = 3 };

typedef struct job {
    trm_ps_server *server[SERVERS];
    table_worker workers[WORKERS];
} job;

/* ---- a process that dies before it sends a message ------------------------------------------- */

typedef struct fate {
    bool awaits, told,
        dead; /* told: die at the message that all servers have the push, else at the push */
    int server;
} fate;
static fate ahead;

static bool is_fatal(const wrapped_channel *channel, const trmi_message *m) {
    return ahead.awaits && server_of(channel) == ahead.server &&
           (ahead.told ? is_order(m, TRMI_ORDER_PUSHED) : is_kind(m, TRMI_PS_PUSH));
}

static trm_status die_at_the_message(wrapped_channel *channel, const trmi_message *m,
                                     trm_error *err) {
    if (ahead.dead || is_fatal(channel, m)) {
        ahead.dead = true;
        return TRMI_FAIL(err, TRM_CANCELLED, "this process is dead");
    }
    return TRM_OK;
}

static trmi_channel *watch_channel(void *context, trmi_channel *channel) {
    const channel_hooks hooks = {.before_send = die_at_the_message};
    return &wrap_channel(channel, hooks, context)->base;
}

/* ---- a job ----------------------------------------------------------------------------------- */

static void join_worker(job *j, int number) {
    const trm_ps_client_options o = {
        .local = j->server, .servers = SERVERS, .worker = number, .ring_bytes = 1 << 18};
    table_worker *w = &j->workers[number];
    trm_error err;
    CHECK_OK(
        trmi_client_create_wrapped(&o, number == 0 ? watch_channel : NULL, NULL, &w->client, &err),
        err);
    worker_open(w);
}

/* Worker 0 dies in its push, starts again, and repeats the batch unless the servers have it. */
static void die_and_come_back(job *j, int64_t step) {
    table_worker *w = &j->workers[0];
    trm_error err;
    ahead.awaits = true;
    (void)!trm_ps_push(w->batch, NULL, &err);
    assert_true(ahead.dead);
    ahead.awaits = ahead.dead = false;
    usleep(20000); /* messages under way arrive */
    worker_die(w);
    join_worker(j, 0);
    assert_in_range(trm_ps_client_next_batch(w->client), step, step + 1);
    if (trm_ps_client_next_batch(w->client) == step) {
        worker_compute(w, 0, step);
        CHECK_OK(trm_ps_push(w->batch, NULL, &err), err);
    }
}

static void start_in(job *j, const char *path) {
    *j = (job){0};
    servers_start(j->server, SERVERS,
                  (trm_ps_server_options){.shards = 2,
                                          .mode = TRM_PS_SYNC,
                                          .workers = WORKERS,
                                          .folder = path,
                                          .log_pushes = path == NULL ? TRM_OFF : TRM_ON});
    for (int n = 0; n < WORKERS; n++) {
        join_worker(j, n);
    }
}

static void start_servers(job *j) { start_in(j, NULL); }

static void stop_servers(job *j) {
    for (int n = 0; n < WORKERS; n++) {
        worker_leave(&j->workers[n]);
    }
    for (int s = 0; s < SERVERS; s++) {
        trm_ps_server_stop(j->server[s]);
    }
}

static void run_job(bool dies, bool told, int server, float rows[KEYS * WIDTH]) {
    static job j;
    trm_error err;
    ahead = (fate){.told = told, .server = server};
    start_servers(&j);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int n = WORKERS - 1; n >= 0; n--) {
            worker_compute(&j.workers[n], n, step);
        }
        CHECK_OK(trm_ps_push(j.workers[1].batch, NULL, &err), err);
        if (dies && step == FATAL_STEP) {
            die_and_come_back(&j, step);
        } else {
            CHECK_OK(trm_ps_push(j.workers[0].batch, NULL, &err), err);
        }
    }
    CHECK_OK(trm_ps_flush(j.workers[0].client, &err), err);
    CHECK_OK(trm_ps_flush(j.workers[1].client, &err), err);
    worker_read_all(&j.workers[1], rows);
    stop_servers(&j);
}

static void steps_are_of_the_same_pushes_everywhere(void **state) {
    static float rows[KEYS * WIDTH], expected[KEYS * WIDTH];
    run_job(false, false, 0, expected);
    for (int server = 0; server < SERVERS; server++) {
        run_job(true, false, server, rows);
        assert_memory_equal(rows, expected, sizeof rows);
        run_job(true, true, server, rows);
        assert_memory_equal(rows, expected, sizeof rows);
    }
}

/* ---- a server that refuses a push ------------------------------------------------------------ */

static void set_held(trm_ps_server *server, bool held) {
    pthread_mutex_lock(&server->mutex);
    server->held = held;
    pthread_mutex_unlock(&server->mutex);
}

/* Returns whether a pull waits on the server. */
static bool holds_a_pull(trm_ps_server *server) {
    pthread_mutex_lock(&server->mutex);
    const bool holds = server->parked != NULL;
    pthread_mutex_unlock(&server->mutex);
    return holds;
}

/* One server cannot log the step, the other one holds it back and says nothing: the error of the
 * first one ends a pull and a flush that wait for the second one. */
static void a_refused_push_ends_the_wait_for_the_other_server(void **state) {
    static job j;
    trm_error err;
    for (int refusing = 0; refusing < SERVERS; refusing++) {
        ahead = (fate){0};
        start_servers(&j);
        for (int n = 0; n < WORKERS; n++) {
            trmi_client_set_timeout(j.workers[n].client, 20);
            worker_compute(&j.workers[n], n, 0);
        }
        trm_ps_server *other = j.server[1 - refusing];
        TRMI_FAIL(&j.server[refusing]->runners[0].shard->broken, TRM_NOSPACE, "the disk is full");
        set_held(other, true);
        for (int n = 0; n < WORKERS; n++) {
            CHECK_OK(trm_ps_push(j.workers[n].batch, NULL, &err), err);
        }
        worker_pull(&j.workers[0], 0, 1);
        while (!holds_a_pull(other)) {
            usleep(1000);
        }
        CHECK_FAILS(trm_ps_pull_wait(j.workers[0].batch, &err), TRM_NOSPACE, err, "full");
        assert_true(holds_a_pull(other)); /* has not answered, not even that it waited too long */
        CHECK_FAILS(trm_ps_flush(j.workers[1].client, &err), TRM_NOSPACE, err, "full");
        set_held(other, false);
        stop_servers(&j);
    }
}

/* Server 1 refuses a pull, and server 0 waits for worker 1 before it answers it. */
static void a_refused_pull_ends_the_wait_for_the_other_server(void **state) {
    static job j;
    trm_error err, failure;
    (void)state;
    ahead = (fate){0};
    start_servers(&j);
    for (int n = 0; n < WORKERS; n++) {
        worker_compute(&j.workers[n], n, 0);
    }
    CHECK_OK(trm_ps_push(j.workers[0].batch, NULL, &err), err);
    TRMI_FAIL(&failure, TRM_NOMEM, "no memory for this pull");
    pthread_mutex_lock(&j.server[1]->mutex);
    j.server[1]->failed = failure;
    pthread_mutex_unlock(&j.server[1]->mutex);
    worker_pull(&j.workers[0], 0, 1);
    CHECK_FAILS(trm_ps_pull_wait(j.workers[0].batch, &err), TRM_NOMEM, err, "for this pull");
    stop_servers(&j);
}

/* One of two shards has no memory for a step, which the other one has applied: the server gives no
 * rows any more, also not those of the other shard. */
static void a_step_without_memory_ends_the_service(void **state) {
    static job j;
    trm_error err;
    float row[WIDTH];
    uint64_t key = 0;
    ahead = (fate){0};
    start_servers(&j);
    while (trmi_shard_of_row(&(trm_placement){0}, key, SERVERS, 2) != 0) {
        key++;
    }
    for (int n = 0; n < WORKERS; n++) {
        worker_compute(&j.workers[n], n, 0);
    }
    j.server[0]->runners[1].shard->account.limit = 0;
    for (int n = 0; n < WORKERS; n++) {
        CHECK_OK(trm_ps_push(j.workers[n].batch, NULL, &err), err);
    }
    for (int n = 0; n < WORKERS; n++) {
        CHECK_FAILS(trm_ps_flush(j.workers[n].client, &err), TRM_NOMEM, err, "");
    }
    trm_ps_batch_clear(j.workers[1].batch);
    CHECK_OK(trm_ps_batch_add(j.workers[1].batch, j.workers[1].table, &key, 1, row, NULL, &err),
             err);
    CHECK_FAILS(trm_ps_read(j.workers[1].batch, &err), TRM_NOMEM, err, "");
    stop_servers(&j);
}

/* ---- a kept push whose step is being logged -------------------------------------------------- */

/* A request of one shard that stands still until it may go on. */
typedef struct hold_up {
    trmi_request request;
    _Atomic bool goes_on;
} hold_up;

static void stand_still(trmi_shard_thread *runner, trmi_request *r) {
    const hold_up *p = (const hold_up *)(const void *)r;
    (void)runner;
    while (!atomic_load(&p->goes_on)) {
        usleep(1000);
    }
}

/* A server's answer to worker 1's next life, which asks what the server has of a batch. */
static trmi_here ask_for_batch(trm_ps_server *server, int64_t batch) {
    trmi_request r = {.header = {.worker = 1, .incarnation = 2},
                      .note = {.value = {TRMI_ORDER_BEGINS, batch}}};
    pthread_mutex_lock(&server->mutex);
    trmi_front_begins(server, &r);
    pthread_mutex_unlock(&server->mutex);
    assert_int_equal(r.err.status, TRM_OK);
    return (trmi_here)r.note.value[1];
}

static bool has_waiting(trm_ps_server *server, uint32_t worker, int64_t batch) {
    bool has = false;
    pthread_mutex_lock(&server->mutex);
    for (const trmi_request *r = server->waiting; r != NULL; r = r->next) {
        has = has || (r->header.worker == worker && r->header.clock == batch && !r->partial);
    }
    pthread_mutex_unlock(&server->mutex);
    return has;
}

static void read_kept(uint8_t **data, size_t *bytes) {
    trm_error err;
    CHECK_OK(trmi_os_read_file(in_folder("log/kept-server-1.log"), 1 << 20, data, bytes, &err),
             err);
}

/* Server 1 keeps batch 1 of worker 0, and then logs its step. Meanwhile worker 1 dies with batch 2,
 * which all servers have: server 1 writes it to the file when no record of batch 1 is needed. */
static void a_kept_push_stays_until_its_step_is_logged(void **state) {
    static job j;
    static hold_up still;
    trm_error err;
    uint8_t *before, *data;
    size_t bytes_before, bytes;
    (void)state;
    ahead = (fate){.told = true, .server = 1};
    start_in(&j, in_folder(""));
    worker_compute(&j.workers[0], 0, 0);
    worker_compute(&j.workers[1], 1, 0);
    CHECK_OK(trm_ps_push(j.workers[1].batch, NULL, &err), err);
    still.request.run = stand_still;
    atomic_store(&still.request.pending, 2); /* no shard finishes it */
    assert_int_equal(trmi_queue_append(j.server[1]->runners[0].queue, &still.request), TRM_OK);
    die_and_come_back(&j, 0);
    assert_int_equal(trm_ps_client_next_batch(j.workers[0].client), 1);
    read_kept(&before, &bytes_before);
    assert_true(bytes_before > 0);
    /* worker 1 pushes without reading rows of server 1, which has not logged the step */
    trm_ps_batch_clear(j.workers[1].batch);
    CHECK_OK(trm_ps_batch_add(j.workers[1].batch, j.workers[1].table, j.workers[1].keys, BATCH,
                              NULL, j.workers[1].gradients, &err),
             err);
    CHECK_OK(trm_ps_push(j.workers[1].batch, NULL, &err), err);
    while (!has_waiting(j.server[1], 1, 2)) {
        usleep(1000);
    }
    assert_int_equal(ask_for_batch(j.server[1], 2), TRMI_HERE_SOON);
    read_kept(&data, &bytes);
    assert_int_equal(bytes, bytes_before);
    assert_memory_equal(data, before, bytes);
    trmi_free(data);
    atomic_store(&still.goes_on, true);
    while (ask_for_batch(j.server[1], 2) == TRMI_HERE_SOON) {
        usleep(1000);
    }
    assert_int_equal(ask_for_batch(j.server[1], 2), TRMI_HERE_KEPT);
    read_kept(&data, &bytes);
    assert_true(bytes > 0);
    assert_true(bytes != bytes_before || memcmp(data, before, bytes) != 0);
    trmi_free(data);
    trmi_free(before);
    j.workers[1].client->incarnation = 0;
    stop_servers(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_of_the_same_pushes_everywhere),
        cmocka_unit_test(a_refused_push_ends_the_wait_for_the_other_server),
        cmocka_unit_test(a_refused_pull_ends_the_wait_for_the_other_server),
        cmocka_unit_test(a_step_without_memory_ends_the_service),
        cmocka_unit_test_setup_teardown(a_kept_push_stays_until_its_step_is_logged, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests_name("ps pushes to several servers", tests, NULL, NULL);
}
