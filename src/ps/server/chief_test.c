/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the chief's lease: which worker has it, when a worker loses it, and which requests of other
 * workers are refused. */
#include "servers.h"

#include "base/os.h"
#include "ps/client/client.h"
#include "ps/server/server.h"

#include <stdlib.h>
#include <unistd.h>

enum { KEYS = 8 };
static const double lease = 60;

typedef struct fixture {
    char folder[64];
    trm_ps_server *servers[2];
} fixture;

static void start_servers(fixture *f) {
    servers_start(f->servers, 2,
                  (trm_ps_server_options){.shards = 1,
                                          .folder = f->folder,
                                          .log_pushes = TRM_ON,
                                          .workers = 3,
                                          .worker_timeout_seconds = lease});
}

static void stop_servers(fixture *f) {
    for (int s = 0; s < 2; s++) {
        trm_ps_server_stop(f->servers[s]);
    }
}

static void begin_job(fixture *f) {
    snprintf(f->folder, sizeof f->folder, "/tmp/ps-chief-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    start_servers(f);
}

static void end_job(fixture *f) {
    trm_error err;
    stop_servers(f);
    CHECK_OK(trmi_os_remove_tree(NULL, f->folder, &err), err);
}

static trm_ps_client *join_worker(fixture *f, int worker) {
    const trm_ps_client_options o = {.local = f->servers,
                                     .servers = 2,
                                     .worker = worker,
                                     .timeout_seconds = 30,
                                     .ring_bytes = 1 << 16};
    trm_ps_client *client;
    trm_error err;
    CHECK_OK(trm_ps_client_create(&o, &client, &err), err);
    return client;
}

static trm_ps_chief ask_chief(trm_ps_client *client, trm_ps_chief_claim wish) {
    trm_ps_chief chief;
    trm_error err;
    CHECK_OK(trm_ps_chief_request(client, wish, 0, &chief, &err), err);
    return chief;
}

/* Sets all workers' last messages back by more than the length of a lease. */
static void be_silent(fixture *f) {
    trm_ps_server *server = f->servers[0];
    pthread_mutex_lock(&server->mutex);
    server->chief.heard -= 2 * lease;
    for (int64_t i = 0; i < server->worker_count; i++) {
        server->workers[i].seen -= 2 * lease;
    }
    pthread_mutex_unlock(&server->mutex);
}

/* The silence is long enough, although an answer to another worker may still be on its way. */
static void until_chief(trm_ps_client *client) {
    for (int i = 0; !ask_chief(client, TRM_PS_CHIEF_STANDS_IN).mine; i++) {
        assert_true(i < 30000);
        usleep(1000);
    }
}

static void one_batch(trm_ps_client *client) {
    const trm_table_options options = {
        .name = "t", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    uint64_t keys[KEYS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float rows[KEYS], gradients[KEYS] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int32_t table;
    trm_ps_batch *batch;
    trm_error err;
    CHECK_OK(trm_ps_client_table(client, &options, &table, &err), err);
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    CHECK_OK(trm_ps_batch_add(batch, table, keys, KEYS, rows, gradients, &err), err);
    CHECK_OK(trm_ps_pull_start(batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(batch, &err), err);
    CHECK_OK(trm_ps_push(batch, NULL, &err), err);
    CHECK_OK(trm_ps_flush(client, &err), err);
    trm_ps_batch_destroy(batch);
}

static void the_chief_is_the_one_that_the_job_names(void **state) {
    fixture f;
    begin_job(&f);
    trm_ps_client *first = join_worker(&f, 0), *second = join_worker(&f, 1);
    assert_int_equal(ask_chief(second, TRM_PS_CHIEF_STANDS_IN).worker,
                     -1); /* it may still be starting */
    assert_true(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    trm_ps_chief seen = ask_chief(second, TRM_PS_CHIEF_STANDS_IN);
    assert_true(!seen.mine && seen.worker == 0 && seen.lease_seconds == lease);
    /* A new process in the chief's place gets the lease at once. */
    trm_ps_client *again = join_worker(&f, 0);
    assert_true(ask_chief(again, TRM_PS_CHIEF_IS).mine);
    trm_error err;
    trm_ps_chief none;
    assert_int_equal(trm_ps_chief_request(first, TRM_PS_CHIEF_IS, 0, &none, &err), TRM_OK);
    assert_false(none.mine); /* of the previous life */
    trm_ps_client_destroy(first);
    trm_ps_client_destroy(again);
    trm_ps_client_destroy(second);
    end_job(&f);
}

static void a_chief_that_never_comes_is_replaced(void **state) {
    fixture f;
    begin_job(&f);
    trm_ps_client *second = join_worker(&f, 1);
    be_silent(&f);
    until_chief(second);
    trm_ps_client *late = join_worker(&f, 0);
    assert_int_equal(ask_chief(late, TRM_PS_CHIEF_IS).worker, 1);
    trm_ps_client_destroy(late);
    trm_ps_client_destroy(second);
    end_job(&f);
}

static void a_silent_chief_is_replaced_and_refused(void **state) {
    fixture f;
    trm_error err;
    trm_ps_checkpoint_result result;
    begin_job(&f);
    trm_ps_client *first = join_worker(&f, 0), *second = join_worker(&f, 1);
    assert_true(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    one_batch(first);
    one_batch(second);
    CHECK_OK(trm_ps_checkpoint(first, true, &result, &err), err);
    CHECK_FAILS(trm_ps_checkpoint(second, true, &result, &err), TRM_CANCELLED, err,
                "worker 1 is not the chief, worker 0 is");
    CHECK_FAILS(trm_ps_stop_servers(second, &err), TRM_CANCELLED, err, "is not the chief");
    be_silent(&f);
    until_chief(second);
    /* The old chief continues after its pause. */
    CHECK_FAILS(trm_ps_checkpoint(first, true, &result, &err), TRM_CANCELLED, err,
                "worker 0 is not the chief, worker 1 is");
    CHECK_FAILS(trm_ps_stop_servers(first, &err), TRM_CANCELLED, err, "is not the chief");
    one_batch(first); /* it may still train as a worker */
    assert_false(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    CHECK_OK(trm_ps_checkpoint(second, true, &result, &err), err);
    assert_int_equal(result.snapshot, 2);
    CHECK_OK(trm_ps_stop_servers(second, &err), err);
    CHECK_OK(trm_ps_server_wait(f.servers[1], 30), err);
    trm_ps_client_destroy(first);
    trm_ps_client_destroy(second);
    end_job(&f);
}

static void whoever_pushes_lives(void **state) {
    fixture f;
    begin_job(&f);
    trm_ps_client *first = join_worker(&f, 0), *second = join_worker(&f, 1);
    assert_true(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    be_silent(&f);
    one_batch(first);
    assert_int_equal(ask_chief(second, TRM_PS_CHIEF_STANDS_IN).worker, 0);
    be_silent(&f);
    until_chief(second);
    trm_ps_client_destroy(first);
    trm_ps_client_destroy(second);
    end_job(&f);
}

/* Pushes that its checkpoint held back continue, and the next chief can take a checkpoint. */
static void a_chief_that_dies_in_a_checkpoint_holds_nobody(void **state) {
    fixture f;
    trm_error err;
    trm_ps_checkpoint_result result;
    begin_job(&f);
    trm_ps_client *first = join_worker(&f, 0), *second = join_worker(&f, 1);
    assert_true(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    one_batch(second);
    for (uint32_t s = 0; s < 2; s++) {
        trmi_ps_note note = {.value = {TRMI_ORDER_HOLD}};
        CHECK_OK(
            trmi_client_order(first, &first->peers[s], TRMI_PS_CONTROL, &note, NULL, NULL, 0, &err),
            err);
    }
    first->incarnation = 0; /* it dies without BYE */
    trm_ps_client_destroy(first);
    one_batch(second);
    be_silent(&f);
    until_chief(second);
    CHECK_OK(trm_ps_checkpoint(second, true, &result, &err), err);
    trm_ps_client_destroy(second);
    end_job(&f);
}

static void who_has_left_is_waited_for_no_longer(void **state) {
    fixture f;
    trm_error err;
    trm_ps_worker workers[2];
    int32_t count;
    begin_job(&f);
    trm_ps_client *first = join_worker(&f, 0), *second = join_worker(&f, 1);
    assert_true(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    one_batch(first);
    one_batch(second);
    CHECK_OK(trm_ps_leave(second, &err), err);
    CHECK_OK(trm_ps_workers(first, workers, 2, &count, &err), err);
    assert_int_equal(count, 2);
    assert_true(workers[workers[0].worker == 1 ? 0 : 1].active == false);
    trm_ps_client_destroy(first); /* sends BYE: no worker waits for the lease to expire */
    until_chief(second);
    trm_ps_client_destroy(second);
    end_job(&f);
}

static void a_server_remembers_the_chief(void **state) {
    fixture f;
    begin_job(&f);
    trm_ps_client *second = join_worker(&f, 1);
    be_silent(&f);
    until_chief(second);
    stop_servers(&f); /* before it could send BYE */
    second->incarnation = 0;
    trm_ps_client_destroy(second);
    start_servers(&f);
    trm_ps_client *first = join_worker(&f, 0);
    assert_int_equal(ask_chief(first, TRM_PS_CHIEF_IS).worker, 1);
    be_silent(&f);
    until_chief(first);
    trm_ps_client_destroy(first);
    end_job(&f);
}

static void a_server_remembers_that_the_chief_has_left(void **state) {
    fixture f;
    trm_error err;
    begin_job(&f);
    trm_ps_client *first = join_worker(&f, 0);
    assert_true(ask_chief(first, TRM_PS_CHIEF_IS).mine);
    one_batch(first);
    CHECK_OK(trm_ps_leave(first, &err), err);
    trm_ps_client_destroy(first);
    stop_servers(&f);
    start_servers(&f);
    trm_ps_client *second = join_worker(&f, 1);
    assert_true(
        ask_chief(second, TRM_PS_CHIEF_STANDS_IN).mine); /* no lease of 60 s is waited for */
    trm_ps_client_destroy(second);
    end_job(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chief_is_the_one_that_the_job_names),
        cmocka_unit_test(a_chief_that_never_comes_is_replaced),
        cmocka_unit_test(a_silent_chief_is_replaced_and_refused),
        cmocka_unit_test(whoever_pushes_lives),
        cmocka_unit_test(a_chief_that_dies_in_a_checkpoint_holds_nobody),
        cmocka_unit_test(who_has_left_is_waited_for_no_longer),
        cmocka_unit_test(a_server_remembers_the_chief),
        cmocka_unit_test(a_server_remembers_that_the_chief_has_left),
    };
    return cmocka_run_group_tests_name("ps chief", tests, NULL, NULL);
}
