/* SPDX-License-Identifier: Apache-2.0 */
/* BOUNDED, own batches: a push that follows a refused one is refused, too, so that the next life of
 * its worker repeats both batches. Held pushes of a worker stay in their order. A refusal that is
 * not logged is an error. */
#include "servers.h"
#include "table_worker.h"

#include "base/error.h"
#include "ps/client/life.h"

enum { SHARDS = 2, BATCHES = 4 };

/* A job of one server, which can be started again, and one worker; each push adds 1 to each row. */
typedef struct fixture {
    char folder[64], address[64];
    trm_ps_server *server;
    trm_ps_server_options options; /* of the next start */
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    uint64_t keys[KEYS];
    float rows[KEYS], gradients[KEYS];
} fixture;

static void start_server(fixture *f) {
    f->server = server_start(f->options);
    snprintf(f->address, sizeof f->address, "%s", trm_ps_server_address(f->server));
    f->options.listen = f->address;
}

static void join_worker(fixture *f) {
    const trm_table_options table = {
        .name = "t", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    const char *addresses[] = {f->address};
    const trm_ps_client_options o = {
        .addresses = addresses, .servers = 1, .tcp_only = true, .ring_bytes = 1 << 20};
    trm_error err;
    CHECK_OK(trm_ps_client_create(&o, &f->client, &err), err);
    CHECK_OK(trm_ps_client_table(f->client, &table, &f->table, &err), err);
    CHECK_OK(trm_ps_batch_create(f->client, &f->batch, &err), err);
}

static void leave_job(fixture *f) {
    trm_ps_batch_destroy(f->batch);
    trm_ps_client_destroy(f->client);
}

static void begin_job(fixture *f) {
    *f = (fixture){.folder = "/tmp/ps-refused-XXXXXX"};
    assert_non_null(mkdtemp(f->folder));
    f->options = (trm_ps_server_options){.shards = SHARDS,
                                         .listen = "127.0.0.1:0",
                                         .folder = f->folder,
                                         .mode = TRM_PS_BOUNDED,
                                         .workers = 1,
                                         .log_pushes = TRM_ON};
    for (uint64_t k = 0; k < KEYS; k++) {
        f->keys[k] = k;
        f->gradients[k] = -1;
    }
    start_server(f);
    join_worker(f);
}

static void end_job(fixture *f) {
    trm_error err;
    leave_job(f);
    trm_ps_server_stop(f->server);
    CHECK_OK(trmi_os_remove_tree(NULL, f->folder, &err), err);
}

/* Pushes the next `count` batches. */
static void push_batches(fixture *f, int count) {
    trm_error err;
    for (int i = 0; i < count; i++) {
        trm_ps_batch_clear(f->batch);
        CHECK_OK(trm_ps_batch_add(f->batch, f->table, f->keys, KEYS, NULL, f->gradients, &err),
                 err);
        CHECK_OK(trm_ps_push(f->batch, NULL, &err), err);
    }
}

/* The worker begins a new life, which goes on behind `batches` batches, and makes the others: each
 * row has each batch once. */
static void check_next_life(fixture *f, int batches) {
    trm_error err;
    leave_job(f);
    join_worker(f);
    assert_int_equal(trm_ps_client_next_batch(f->client), batches);
    push_batches(f, BATCHES - batches);
    CHECK_OK(trm_ps_flush(f->client, &err), err);
    trm_ps_batch_clear(f->batch);
    CHECK_OK(trm_ps_batch_add(f->batch, f->table, f->keys, KEYS, f->rows, NULL, &err), err);
    CHECK_OK(trm_ps_read(f->batch, &err), err);
    for (int k = 0; k < KEYS; k++) {
        assert_float_equal(f->rows[k], BATCHES, 0);
    }
}

static void set_failure(trm_ps_server *server, trm_error failure) {
    pthread_mutex_lock(&server->mutex);
    server->failed = failure;
    pthread_mutex_unlock(&server->mutex);
}

/* The server has no memory for batch 2, and has some again when batch 3 comes. */
static void a_push_after_a_refused_one_is_refused(void **state) {
    fixture f;
    trm_error err, failure;
    (void)state;
    begin_job(&f);
    push_batches(&f, 2);
    CHECK_OK(trm_ps_flush(f.client, &err), err);
    TRMI_FAIL(&failure, TRM_NOMEM, "no memory for this push");
    set_failure(f.server, failure);
    push_batches(&f, 1);
    CHECK_FAILS(trm_ps_flush(f.client, &err), TRM_NOMEM, err, "for this push");
    set_failure(f.server, (trm_error){0});
    push_batches(&f, 1);
    CHECK_FAILS(trm_ps_flush(f.client, &err), TRM_PEER, err, "push 4 of worker 0 follows push 2");
    check_next_life(&f, 2);
    end_job(&f);
}

/* One shard could not log batch 2, and the server was started again before batch 3 comes. */
static void a_push_after_one_that_a_shard_lacks_is_refused(void **state) {
    fixture f;
    trm_error err;
    (void)state;
    for (int shard = 0; shard < SHARDS; shard++) {
        begin_job(&f);
        push_batches(&f, 3);
        CHECK_OK(trm_ps_flush(f.client, &err), err);
        trm_ps_server_stop(f.server);
        lose_last_push(f.folder, (job_shard){0, 1, shard, SHARDS});
        start_server(&f);
        push_batches(&f, 1);
        CHECK_FAILS(trm_ps_flush(f.client, &err), TRM_PEER, err, "follows push 2");
        check_next_life(&f, 2);
        end_job(&f);
    }
}

/* Returns a push that waits for the end of a hold; NULL: it does not wait. *before: how many wait
 * before it. */
static const trmi_request *find_waiting(trm_ps_server *server, uint64_t sequence, int *before) {
    pthread_mutex_lock(&server->mutex);
    const trmi_request *r = server->waiting;
    for (*before = 0; r != NULL && r->header.sequence != sequence; ++*before) {
        r = r->next;
    }
    pthread_mutex_unlock(&server->mutex);
    return r;
}

/* Sends the push with this number again, although its connection has not ended. */
static void send_push_again(fixture *f, uint64_t sequence) {
    trmi_server_connection *peer = &f->client->peers[0];
    trm_error err;
    int i = 0;
    while (peer->pending[i].sequence != sequence) {
        assert_true(++i < TRMI_PUSHES_AHEAD_MAX);
    }
    CHECK_OK(trmi_client_send(f->client, peer, peer->pending[i].data, peer->pending[i].bytes,
                              trmi_client_deadline(f->client), &err),
             err);
}

static void give_order(fixture *f, trmi_order order) {
    const trmi_ps_note note = {.value = {order}};
    trm_error err;
    CHECK_OK(trmi_client_order(f->client, &f->client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL,
                               0, &err),
             err);
}

/* A snapshot holds pushes 3 and 4, and push 3 comes again: it is still the first one. */
static void a_held_push_keeps_its_place(void **state) {
    fixture f;
    trm_error err;
    int before;
    (void)state;
    begin_job(&f);
    push_batches(&f, 2);
    CHECK_OK(trm_ps_flush(f.client, &err), err);
    give_order(&f, TRMI_ORDER_HOLD);
    push_batches(&f, 2);
    const double end = trmi_os_now() + 30 * check_patience();
    while (find_waiting(f.server, 4, &before) == NULL) {
        assert_true(trmi_os_now() < end);
        usleep(1000);
    }
    assert_int_equal(before, 1);
    const trmi_request *first = find_waiting(f.server, 3, &before), *again = first;
    send_push_again(&f, 3);
    while (again == first) {
        assert_true(trmi_os_now() < end);
        usleep(1000);
        again = find_waiting(f.server, 3, &before);
    }
    assert_int_equal(before, 0);
    give_order(&f, TRMI_ORDER_RELEASE);
    CHECK_OK(trm_ps_flush(f.client, &err), err);
    check_next_life(&f, BATCHES);
    end_job(&f);
}

/* The lease of a push is over, and a shard cannot log that: the worker is told of the disk. Told of
 * the lease it would go on, and after a restart of the server it would wait for that push. */
static void a_refusal_that_is_not_logged_is_the_error_of_the_log(void **state) {
    (void)state;
    for (int shard = -1; shard < SHARDS; shard++) { /* -1: all shards can log */
        fixture f;
        trm_error err;
        trm_ps_lease lease;
        const trm_ps_lease_options epoch = {.samples = 8, .lease_samples = 4};
        begin_job(&f);
        CHECK_OK(trm_ps_lease_take(f.client, &epoch, &lease, &err), err);
        pthread_mutex_lock(&f.server->mutex);
        CHECK_OK(trmi_lease_drop_worker(f.server->leases, 0, &err), err);
        pthread_mutex_unlock(&f.server->mutex);
        if (shard >= 0) { /* no push is under way */
            TRMI_FAIL(&f.server->runners[shard].shard->broken, TRM_IO, "the log cannot be written");
        }
        trm_ps_batch_clear(f.batch);
        CHECK_OK(trm_ps_batch_add(f.batch, f.table, f.keys, KEYS, NULL, f.gradients, &err), err);
        const trm_ps_push_options push = {.lease = lease, .position = lease.end};
        CHECK_OK(trm_ps_push(f.batch, &push, &err), err);
        if (shard >= 0) {
            CHECK_FAILS(trm_ps_flush(f.client, &err), TRM_IO, err, "cannot be written");
        } else {
            CHECK_OK(trm_ps_flush(f.client, &err), err);
            CHECK_FAILS(trm_ps_push(f.batch, &push, &err), TRM_CANCELLED, err, "lease");
        }
        end_job(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_after_a_refused_one_is_refused),
        cmocka_unit_test(a_push_after_one_that_a_shard_lacks_is_refused),
        cmocka_unit_test(a_held_push_keeps_its_place),
        cmocka_unit_test(a_refusal_that_is_not_logged_is_the_error_of_the_log),
    };
    return cmocka_run_group_tests_name("ps refused pushes", tests, NULL, NULL);
}
