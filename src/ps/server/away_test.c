/* SPDX-License-Identifier: Apache-2.0 */
/* A restarted server does not wait for workers that had left or were inactive before the restart,
 * and waits for workers that have come back. */
#include "servers.h"

#include "base/os.h"
#include "ps/client/client.h"
#include "ps/client/life.h"
#include "ps/server/server.h"

#include <fcntl.h>
#include <unistd.h>

enum { KEYS = 16, PATIENCE = 4 };

/* A server that can be started again with the same folder and address. */
typedef struct fixture {
    char folder[64], address[64]; /* folder "": the server keeps nothing */
    trm_ps_server *server;
    trm_ps_server_options options; /* of the next start */
} fixture;

static void start_server(fixture *f) {
    f->server = server_start(f->options);
    snprintf(f->address, sizeof f->address, "%s", trm_ps_server_address(f->server));
    f->options.listen = f->address;
}

/* Starts a server of a job, the only one unless the options say more, and with `kept` a folder of
 * its own that has logs. */
static void begin_job(fixture *f, bool kept, trm_ps_server_options options) {
    *f = (fixture){.options = options};
    f->options.servers = options.servers == 0 ? 1 : options.servers;
    f->options.listen = "127.0.0.1:0";
    f->options.memory_bytes = 1 << 24;
    if (kept) {
        snprintf(f->folder, sizeof f->folder, "/tmp/ps-away-XXXXXX");
        assert_non_null(mkdtemp(f->folder));
        f->options.folder = f->folder;
        f->options.log_pushes = TRM_ON;
    }
    start_server(f);
}

static void end_job(fixture *f) {
    trm_error err;
    trm_ps_server_stop(f->server);
    if (f->options.folder != NULL) {
        CHECK_OK(trmi_os_remove_tree(NULL, f->folder, &err), err);
    }
}

static void restart_server(fixture *f) {
    trm_ps_server_stop(f->server);
    start_server(f);
}

/* A worker whose batches have all keys; each push adds 1 to each row. */
typedef struct worker {
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    uint64_t keys[KEYS];
    float rows[KEYS], gradients[KEYS];
} worker;

static void declare_table(worker *w, trm_ps_client *client) {
    const trm_table_options table = {
        .name = "t", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    trm_error err;
    for (uint64_t i = 0; i < KEYS; i++) {
        w->keys[i] = i;
        w->gradients[i] = -1;
    }
    w->client = client;
    CHECK_OK(trm_ps_client_table(w->client, &table, &w->table, &err), err);
    CHECK_OK(trm_ps_batch_create(w->client, &w->batch, &err), err);
}

/* Lets a worker join the job of the servers f[0], f[1] ... */
static void join_worker(const fixture *f, worker *w, int number) {
    const char *addresses[2];
    const trm_ps_client_options o = {.addresses = addresses,
                                     .servers = f->options.servers,
                                     .worker = number,
                                     .timeout_seconds = PATIENCE,
                                     .ring_bytes = 1 << 20};
    trm_ps_client *client;
    trm_error err;
    for (int s = 0; s < f->options.servers; s++) {
        addresses[s] = f[s].address;
    }
    CHECK_OK(trm_ps_client_create(&o, &client, &err), err);
    declare_table(w, client);
}

/* Lets workers 0 to count - 1 join. */
static void join_all(const fixture *f, worker *w, int count) {
    for (int i = 0; i < count; i++) {
        join_worker(f, &w[i], i);
    }
}

static void leave_job(worker *w) {
    trm_ps_batch_destroy(w->batch);
    trm_ps_client_destroy(w->client);
}

static void start_pull(worker *w, trm_error *err) {
    trm_ps_batch_clear(w->batch);
    CHECK_OK(trm_ps_batch_add(w->batch, w->table, w->keys, KEYS, w->rows, w->gradients, err), *err);
    CHECK_OK(trm_ps_pull_start(w->batch, err), *err);
}

static trm_status pull_rows(worker *w, trm_error *err) {
    start_pull(w, err);
    return trm_ps_pull_wait(w->batch, err);
}

/* Makes one batch of all active workers. All pulls precede the pushes; otherwise the first worker
 * would wait for the others. */
static void run_batch(worker *const *w, int count) {
    trm_error err;
    for (int i = 0; i < count; i++) {
        CHECK_OK(pull_rows(w[i], &err), err);
    }
    for (int i = 0; i < count; i++) {
        CHECK_OK(trm_ps_push(w[i]->batch, NULL, &err), err);
    }
}

/* Waits until the server has received the worker's BYE. */
static void until_away(trm_ps_server *server, uint32_t worker) {
    for (bool active = true; active;) {
        usleep(1000);
        pthread_mutex_lock(&server->mutex);
        active = trmi_front_find(server, worker)->active;
        pthread_mutex_unlock(&server->mutex);
    }
}

static void with_mode(trm_ps_mode mode) {
    fixture f;
    worker w[3];
    trm_error err;
    begin_job(&f, true,
              (trm_ps_server_options){.shards = 2, .mode = mode, .staleness = 1, .workers = 3});
    join_all(&f, w, 3);
    for (int n = 0; n < 4; n++) {
        run_batch((worker *[]){&w[0], &w[1], &w[2]}, 3);
    }
    /* Worker 2 has finished; worker 1 is inactive: it has no samples. */
    for (int i = 1; i < 3; i++) {
        CHECK_OK(trm_ps_flush(w[i].client, &err), err);
    }
    leave_job(&w[2]);
    until_away(f.server, 2);
    CHECK_OK(trmi_client_rest(w[1].client, &err), err);
    for (int life = 0; life < 2; life++) {
        restart_server(&f);
        for (int n = 0; n < 4; n++) {
            run_batch((worker *[]){&w[0]}, 1);
        }
    }
    /* The next push of worker 1 makes it active again: the server waits for it, also after a
     * restart. */
    CHECK_OK(trm_ps_flush(w[0].client, &err), err);
    CHECK_OK(pull_rows(&w[1], &err), err);
    CHECK_OK(trm_ps_push(w[1].batch, NULL, &err), err);
    CHECK_OK(trm_ps_flush(w[1].client, &err), err);
    restart_server(&f);
    trm_status status = TRM_OK;
    for (int n = 0; n < 8 && status == TRM_OK; n++) {
        status = pull_rows(&w[0], &err);
        if (status == TRM_OK) {
            CHECK_OK(trm_ps_push(w[0].batch, NULL, &err), err);
        }
    }
    assert_int_equal(status, TRM_TIMEOUT);
    assert_non_null(
        strstr(err.message, mode == TRM_PS_SYNC ? "worker 0 waited" : "worker 1 has finished"));
    leave_job(&w[1]);
    leave_job(&w[0]);
    end_job(&f);
}

static void bounded_workers_wait_for_nobody_who_left(void **state) { with_mode(TRM_PS_BOUNDED); }
static void synchronous_workers_wait_for_nobody_who_left(void **state) { with_mode(TRM_PS_SYNC); }

/* Worker 1 leaves, comes back and gets samples: a server that is started again waits for it. */
static void a_new_life_with_samples_is_waited_for(void **state) {
    fixture f;
    const trm_ps_lease_options lo = {100, 10, 1, 60 * check_patience(), 0, 10};
    trm_ps_lease lease;
    worker w[2];
    trm_error err;
    (void)state;
    begin_job(&f, true, (trm_ps_server_options){.shards = 1, .mode = TRM_PS_SYNC, .workers = 2});
    for (int i = 0; i < 2; i++) {
        join_worker(&f, &w[i], i);
        CHECK_OK(trm_ps_lease_take(w[i].client, &lo, &lease, &err), err);
    }
    leave_job(&w[1]);
    until_away(f.server, 1);
    join_worker(&f, &w[1], 1);
    CHECK_OK(trm_ps_lease_take(w[1].client, &lo, &lease, &err), err);
    restart_server(&f);
    assert_true(trmi_front_find(f.server, 1)->active);
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    end_job(&f);
}

/* Worker 1 cannot reach server 1 yet and stops for now; server 0 continues to wait for it. */
static void a_worker_that_could_not_begin_is_waited_for(void **state) {
    char folder[] = "/tmp/ps-away-XXXXXX";
    trm_error err;
    trm_ps_server *servers[2];
    trm_ps_client *clients[2], *none;
    assert_non_null(mkdtemp(folder));
    for (int life = 0; life < 2; life++) {
        const char *addresses[2];
        int32_t there = life == 0 ? 2 : 1;
        for (int i = 0; i < there; i++) {
            const trm_ps_server_options o = {.server = i,
                                             .servers = 2,
                                             .shards = 1,
                                             .listen = "127.0.0.1:0",
                                             .folder = folder,
                                             .memory_bytes = 1 << 24,
                                             .mode = TRM_PS_SYNC,
                                             .workers = 2,
                                             .log_pushes = TRM_ON};
            CHECK_OK(trm_ps_server_start(&o, &servers[i], &err), err);
            addresses[i] = trm_ps_server_address(servers[i]);
        }
        if (life == 1) {
            addresses[1] = "127.0.0.1:1";
            const trm_ps_client_options o = {
                .addresses = addresses, .servers = 2, .worker = 1, .timeout_seconds = 0.3};
            assert_int_not_equal(trm_ps_client_create(&o, &none, &err), TRM_OK);
            usleep(100000);
            for (int64_t i = 0; i < servers[0]->worker_count; i++) {
                assert_true(servers[0]->workers[i].active);
            }
            assert_int_equal(servers[0]->worker_count, 2);
        }
        for (int i = 0; i < 2 && life == 0; i++) {
            worker w;
            const trm_ps_client_options o = {.addresses = addresses,
                                             .servers = 2,
                                             .worker = i,
                                             .timeout_seconds = 30,
                                             .ring_bytes = 1 << 20};
            CHECK_OK(trm_ps_client_create(&o, &clients[i], &err), err);
            declare_table(&w, clients[i]);
            CHECK_OK(trm_ps_batch_add(w.batch, w.table, w.keys, KEYS, w.rows, w.gradients, &err),
                     err);
            CHECK_OK(trm_ps_push(w.batch, NULL, &err), err);
            trm_ps_batch_destroy(w.batch);
        }
        for (int i = 0; i < 2 && life == 0; i++) {
            CHECK_OK(trm_ps_flush(clients[i], &err), err);
        }
        for (int i = 0; i < there; i++) { /* the server is killed before its workers leave */
            trm_ps_server_stop(servers[i]);
        }
        for (int i = 0; i < 2 && life == 0; i++) {
            trm_ps_client_destroy(clients[i]);
        }
    }
    CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
}

/* The servers of a job of three workers start again for a job of two: they do not wait for the
 * third. */
static void a_job_goes_on_with_fewer_workers(void **state) {
    for (trm_ps_mode mode = TRM_PS_ASYNC; mode <= TRM_PS_SYNC; mode++) {
        fixture f;
        worker w[3];
        trm_ps_worker there[4];
        int32_t count;
        trm_error err;
        begin_job(&f, true, (trm_ps_server_options){.shards = 2, .mode = mode, .workers = 3});
        for (int life = 0; life < 2; life++) {
            const int workers = 3 - life;
            join_all(&f, w, workers);
            for (int n = 0; n < 4; n++) {
                run_batch((worker *[]){&w[0], &w[1], &w[2]}, workers);
            }
            for (int i = 0; i < workers; i++) {
                CHECK_OK(trm_ps_flush(w[i].client, &err), err);
            }
            CHECK_OK(trm_ps_workers(w[0].client, there, 4, &count, &err), err);
            assert_int_equal(count, 3);
            for (int i = 0; i < count; i++) {
                assert_true(there[i].active == (there[i].worker < workers));
            }
            trm_ps_server_stop(f.server); /* before they leave */
            for (int i = 0; i < workers; i++) {
                leave_job(&w[i]);
            }
            f.options.workers = 2;
            start_server(&f);
        }
        end_job(&f);
    }
}

/* A worker that gives up after a time-out owes its batch: it is not taken for one that has
 * finished. */
static void a_worker_that_failed_is_waited_for(void **state) {
    fixture f;
    worker w[2];
    trm_error err;
    (void)state;
    begin_job(&f, false, (trm_ps_server_options){.shards = 1, .mode = TRM_PS_SYNC, .workers = 2});
    for (int i = 0; i < 2; i++) {
        join_worker(&f, &w[i], i);
        trmi_client_set_timeout(w[i].client, 2);
        CHECK_OK(pull_rows(&w[i], &err), err);
    }
    CHECK_OK(trm_ps_push(w[0].batch, NULL, &err), err);
    CHECK_FAILS(pull_rows(&w[0], &err), TRM_TIMEOUT, err, "to begin batch 1");
    leave_job(&w[0]);
    CHECK_OK(trm_ps_push(w[1].batch, NULL, &err), err); /* makes step 1 with the push that waits */
    CHECK_OK(pull_rows(&w[1], &err), err);
    CHECK_OK(trm_ps_push(w[1].batch, NULL, &err), err);
    CHECK_FAILS(pull_rows(&w[1], &err), TRM_TIMEOUT, err, "to begin batch 2");
    trmi_client_set_timeout(w[1].client, PATIENCE);
    join_worker(&f, &w[0], 0);
    assert_int_equal(trm_ps_client_next_batch(w[0].client), 1);
    CHECK_OK(pull_rows(&w[0], &err), err);
    CHECK_OK(trm_ps_push(w[0].batch, NULL, &err), err);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_ps_flush(w[i].client, &err), err);
    }
    leave_job(&w[1]); /* has pushed all: it is announced as finished although a pull had failed */
    until_away(f.server, 1);
    CHECK_OK(pull_rows(&w[0], &err), err);
    leave_job(&w[0]);
    end_job(&f);
}

/* So does one that gives up because it cannot read rows outside of training. */
static void a_worker_that_failed_to_read_is_waited_for(void **state) {
    fixture f;
    worker w[2];
    trm_error err;
    (void)state;
    begin_job(&f, false, (trm_ps_server_options){.shards = 1, .mode = TRM_PS_SYNC, .workers = 2});
    join_all(&f, w, 2);
    run_batch((worker *[]){&w[0], &w[1]}, 2);
    CHECK_OK(trm_ps_flush(w[0].client, &err), err);
    pthread_mutex_lock(&f.server->mutex); /* it answers nothing */
    trmi_client_set_timeout(w[0].client, 0.2);
    CHECK_FAILS(trm_ps_read(w[0].batch, &err), TRM_TIMEOUT, err, "no answer from server 0");
    pthread_mutex_unlock(&f.server->mutex);
    leave_job(&w[0]);
    trmi_client_set_timeout(w[1].client, 2);
    CHECK_OK(pull_rows(&w[1], &err), err);
    CHECK_OK(trm_ps_push(w[1].batch, NULL, &err), err);
    CHECK_FAILS(pull_rows(&w[1], &err), TRM_TIMEOUT, err, "to begin batch 2");
    trmi_client_set_timeout(w[1].client, PATIENCE);
    join_worker(&f, &w[0], 0);
    CHECK_OK(pull_rows(&w[0], &err), err);
    CHECK_OK(trm_ps_push(w[0].batch, NULL, &err), err);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_ps_flush(w[i].client, &err), err);
        leave_job(&w[i]);
    }
    end_job(&f);
}

/* A bounded worker that had no samples for a while counts its batches from those of the others,
 * which would else wait until it has made as many. */
static void a_worker_that_rested_does_not_hold_others_up(void **state) {
    fixture f;
    const trm_ps_lease_options lo = {100, 90, 1, 5 * check_patience(), 0, 10};
    trm_ps_lease lease, rest, none;
    worker w[2];
    trm_error err;
    (void)state;
    begin_job(
        &f, false,
        (trm_ps_server_options){.shards = 1, .mode = TRM_PS_BOUNDED, .staleness = 1, .workers = 2});
    join_all(&f, w, 2);
    CHECK_OK(trm_ps_lease_take(w[0].client, &lo, &lease, &err), err);
    CHECK_OK(trm_ps_lease_take(w[1].client, &lo, &rest, &err), err);
    for (int64_t n = 1; n <= 8; n++) {
        CHECK_OK(pull_rows(&w[0], &err), err);
        const trm_ps_push_options po = {.lease = lease, .position = lease.begin + 10 * n};
        CHECK_OK(trm_ps_push(w[0].batch, &po, &err), err);
        if (n == 1) {
            const trm_ps_push_options last = {.lease = rest, .position = rest.end};
            CHECK_OK(pull_rows(&w[1], &err), err);
            CHECK_OK(trm_ps_push(w[1].batch, &last, &err), err);
            CHECK_OK(trm_ps_flush(w[1].client, &err), err);
            assert_int_equal(trm_ps_lease_take(w[1].client, &lo, &none, &err), TRM_PENDING);
        }
    }
    CHECK_OK(trm_ps_flush(w[0].client, &err), err);
    trm_ps_batch_destroy(w[0].batch);
    trmi_client_vanish(w[0].client); /* its last samples go to worker 1 */
    join_worker(&f, &w[0], 0);
    while (trm_ps_lease_take(w[1].client, &lo, &lease, &err) == TRM_PENDING) {
        usleep(1000);
    }
    assert_int_equal(lease.begin, 80);
    assert_int_equal(trm_ps_client_next_batch(w[1].client), 8);
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    end_job(&f);
}

/* Makes batch n, from 1 on, of a lease. */
static void make_batch(worker *w, const trm_ps_lease *lease, int64_t n) {
    const trm_ps_push_options po = {.lease = *lease, .position = lease->begin + 10 * n};
    trm_error err;
    CHECK_OK(pull_rows(w, &err), err);
    CHECK_OK(trm_ps_push(w->batch, &po, &err), err);
    CHECK_OK(trm_ps_flush(w->client, &err), err);
}

/* Begins a bounded job of two workers with a staleness of 1: each takes a lease and makes its first
 * batch, then worker 1 rests. */
static void begin_and_rest(fixture *f, worker w[2], const trm_ps_lease_options *lo,
                           trm_ps_lease lease[2]) {
    trm_error err;
    begin_job(
        f, true,
        (trm_ps_server_options){.shards = 1, .mode = TRM_PS_BOUNDED, .staleness = 1, .workers = 2});
    join_all(f, w, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_ps_lease_take(w[i].client, lo, &lease[i], &err), err);
        make_batch(&w[i], &lease[i], 1);
    }
    CHECK_OK(trmi_client_rest(w[1].client, &err), err);
}

/* A server that is started again does not wait for the new life of a worker that had rested, and
 * its clock catches up with its next push. When the server is started once more, the other worker
 * does not wait until the worker itself has counted as many batches. */
static void a_clock_that_has_caught_up_outlasts_its_server(void **state) {
    fixture f;
    const trm_ps_lease_options lo = {200, 100, 1, 60 * check_patience(), 0, 10};
    trm_ps_lease lease[2];
    worker w[2];
    trm_error err;
    (void)state;
    begin_and_rest(&f, w, &lo, lease);
    trm_ps_batch_destroy(w[1].batch);
    trmi_client_vanish(w[1].client);
    join_worker(&f, &w[1], 1);
    CHECK_OK(trm_ps_lease_take(w[1].client, &lo, &lease[1], &err), err);
    restart_server(&f);
    for (int64_t n = 2; n <= 8; n++) {
        make_batch(&w[0], &lease[0], n);
    }
    make_batch(&w[1], &lease[1], 1);
    assert_true(trm_ps_client_next_batch(w[1].client) < 8);
    restart_server(&f);
    make_batch(&w[0], &lease[0], 9);
    make_batch(&w[0], &lease[0], 10);
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    end_job(&f);
}

/* Waits until a pull waits in the server. No message says so. */
static void until_parked(trm_ps_server *server) {
    const double end = trmi_os_now() + 60 * check_patience();
    for (bool parked = false; !parked;) {
        assert_true(trmi_os_now() < end);
        usleep(1000);
        pthread_mutex_lock(&server->mutex);
        parked = server->parked != NULL;
        pthread_mutex_unlock(&server->mutex);
    }
}

/* A worker that has rested is waited for from its next pull on: its gradients are of those rows. */
static void a_worker_that_rested_is_waited_for_from_its_pull_on(void **state) {
    fixture f;
    const trm_ps_lease_options lo = {300, 100, 1, 60 * check_patience(), 0, 10};
    trm_ps_lease lease[2];
    worker w[2];
    trm_error err;
    (void)state;
    begin_and_rest(&f, w, &lo, lease);
    until_away(f.server, 1);
    CHECK_OK(trm_ps_lease_take(w[1].client, &lo, &lease[1], &err), err);
    CHECK_OK(pull_rows(&w[1], &err), err);
    /* the pull of batch n, from 1 on, waits for n - 2 batches of the other worker */
    const int64_t made = trmi_front_find(f.server, 1)->clock;
    for (int64_t n = 2; n <= made + 2; n++) {
        make_batch(&w[0], &lease[0], n);
    }
    start_pull(&w[0], &err);
    until_parked(f.server);
    const trm_ps_push_options po = {.lease = lease[1], .position = lease[1].begin + 10};
    CHECK_OK(trm_ps_push(w[1].batch, &po, &err), err);
    CHECK_OK(trm_ps_pull_wait(w[0].batch, &err), err);
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    end_job(&f);
}

/* Makes the batches of leases until there are no samples; with `whole` one batch of each lease. */
static void use_leases(worker *w, const trm_ps_lease_options *lo, trm_ps_lease lease, bool whole) {
    trm_error err;
    trm_status status = TRM_OK;
    while (status == TRM_OK) {
        for (int64_t at = lease.begin; at < lease.end;) {
            at = whole || at + lo->batch > lease.end ? lease.end : at + lo->batch;
            const trm_ps_push_options po = {.lease = lease, .position = at};
            CHECK_OK(pull_rows(w, &err), err);
            CHECK_OK(trm_ps_push(w->batch, &po, &err), err);
        }
        CHECK_OK(trm_ps_flush(w->client, &err), err);
        status = trm_ps_lease_take(w->client, lo, &lease, &err);
    }
    assert_int_equal(status, TRM_PENDING);
}

/* Two bounded workers rest, and samples come: the one that has made fewer batches, or its next
 * life, counts them from those of the other one, which may go on in the same moment and would wait
 * for it. */
static void check_that_both_count_alike(bool next_life) {
    enum { ALL = 3 };
    fixture f;
    const trm_ps_lease_options lo = {100, 30, 1, 60 * check_patience(), 0, 10};
    trm_ps_lease lease[ALL];
    worker w[ALL];
    trm_error err;
    begin_job(&f, false,
              (trm_ps_server_options){
                  .shards = 1, .mode = TRM_PS_BOUNDED, .staleness = 100, .workers = ALL});
    for (int i = 0; i < ALL; i++) {
        join_worker(&f, &w[i], i);
        CHECK_OK(trm_ps_lease_take(w[i].client, &lo, &lease[i], &err), err);
    }
    use_leases(&w[0], &lo, lease[0], false);
    use_leases(&w[1], &lo, lease[1], true);
    assert_true(trm_ps_client_next_batch(w[1].client) < trm_ps_client_next_batch(w[0].client));
    leave_job(&w[2]);
    until_away(f.server, 2); /* its samples are free */
    if (next_life) {
        trm_ps_batch_destroy(w[1].batch);
        trmi_client_vanish(w[1].client);
        join_worker(&f, &w[1], 1);
    }
    while (trm_ps_lease_take(w[1].client, &lo, &lease[1], &err) == TRM_PENDING) {
        usleep(1000);
    }
    assert_int_equal(trm_ps_client_next_batch(w[1].client), trm_ps_client_next_batch(w[0].client));
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    end_job(&f);
}

static void workers_that_rested_together_do_not_wait(void **state) {
    (void)state;
    check_that_both_count_alike(false);
    check_that_both_count_alike(true);
}

/* Gives the server the log of workers `fd`; returns the one before. */
static int swap_log(trm_ps_server *server, int fd) {
    pthread_mutex_lock(&server->mutex);
    int before = server->away_fd;
    server->away_fd = fd;
    pthread_mutex_unlock(&server->mutex);
    return before;
}

/* A server whose disk is full cannot log that worker 1 has left: the worker is told, and when it
 * says goodbye again, a server that is started again knows it. */
static void a_goodbye_that_cannot_be_logged_is_an_error(void **state) {
    fixture f;
    worker w[2];
    trm_error err;
    (void)state;
    begin_job(
        &f, true,
        (trm_ps_server_options){.shards = 1, .mode = TRM_PS_BOUNDED, .staleness = 1, .workers = 2});
    join_all(&f, w, 2);
    run_batch((worker *[]){&w[0], &w[1]}, 2);
    CHECK_OK(trm_ps_flush(w[1].client, &err), err);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    int log = swap_log(f.server, full);
    CHECK_FAILS(trm_ps_leave(w[1].client, &err), TRM_NOSPACE, err, "log of workers");
    assert_int_equal(swap_log(f.server, log), full);
    close(full);
    CHECK_OK(trm_ps_leave(w[1].client, &err), err);
    leave_job(&w[1]);
    restart_server(&f);
    for (int n = 0; n < 4; n++) {
        run_batch((worker *[]){&w[0]}, 1);
    }
    leave_job(&w[0]);
    end_job(&f);
}

/* Begins a job of two bounded servers and two workers, of which worker 1 has used all its samples;
 * *lease: those of worker 0. */
static void begin_bounded_job(fixture *f, worker *w, const trm_ps_lease_options *lo,
                              trm_ps_lease *lease) {
    trm_ps_lease other;
    trm_error err;
    for (int s = 0; s < 2; s++) {
        begin_job(&f[s], true,
                  (trm_ps_server_options){.server = s,
                                          .servers = 2,
                                          .shards = 1,
                                          .mode = TRM_PS_BOUNDED,
                                          .staleness = 1,
                                          .workers = 2});
    }
    for (int i = 0; i < 2; i++) {
        join_worker(f, &w[i], i);
        CHECK_OK(trm_ps_lease_take(w[i].client, lo, i == 0 ? lease : &other, &err), err);
    }
    const trm_ps_push_options last = {.lease = other, .position = other.end};
    CHECK_OK(pull_rows(&w[1], &err), err);
    CHECK_OK(trm_ps_push(w[1].batch, &last, &err), err);
    CHECK_OK(trm_ps_flush(w[1].client, &err), err);
}

/* Lets worker 1 find no samples while this server has no room to log that. */
static void rest_unlogged(fixture *f, worker *w, const trm_ps_lease_options *lo) {
    trm_ps_lease none;
    trm_error err;
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    const int log = swap_log(f->server, full);
    assert_int_equal(trm_ps_lease_take(w->client, lo, &none, &err), TRM_PENDING);
    assert_int_equal(swap_log(f->server, log), full);
    close(full);
    assert_false(trmi_front_find(f->server, 1)->active);
}

/* Makes batches of worker 0 alone, and ends the job. */
static void end_bounded_job(fixture *f, worker *w, trm_ps_lease lease) {
    trm_error err;
    for (int64_t n = 1; n <= 8; n++) {
        const trm_ps_push_options po = {.lease = lease, .position = lease.begin + 10 * n};
        CHECK_OK(pull_rows(&w[0], &err), err);
        CHECK_OK(trm_ps_push(w[0].batch, &po, &err), err);
    }
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    for (int s = 0; s < 2; s++) {
        end_job(&f[s]);
    }
}

/* A server has no room to log that worker 1 has no samples, and is started again: it waits for the
 * worker only until that asks for samples again. */
static void check_that_a_rest_is_repeated(int victim) {
    const trm_ps_lease_options lo = {100, 90, 1, 60 * check_patience(), 0, 10};
    fixture f[2];
    trm_ps_lease lease, none;
    worker w[2];
    trm_error err;
    begin_bounded_job(f, w, &lo, &lease);
    rest_unlogged(&f[victim], &w[1], &lo);
    restart_server(&f[victim]);
    assert_true(trmi_front_find(f[victim].server, 1)->active);
    assert_int_equal(trm_ps_lease_take(w[1].client, &lo, &none, &err), TRM_PENDING);
    end_bounded_job(f, w, lease);
}

static void a_rest_is_repeated(void **state) {
    (void)state;
    check_that_a_rest_is_repeated(0);
    check_that_a_rest_is_repeated(1);
}

/* A worker without samples says so again each second at most, however often it asks for some. */
static void a_rest_is_not_repeated_each_time(void **state) {
    enum { ASKED = 200 };
    const trm_ps_lease_options lo = {100, 90, 1, 60 * check_patience(), 0, 10};
    fixture f[2];
    trm_ps_lease lease, none;
    worker w[2];
    trm_error err;
    (void)state;
    begin_bounded_job(f, w, &lo, &lease);
    assert_int_equal(trm_ps_lease_take(w[1].client, &lo, &none, &err), TRM_PENDING);
    const uint64_t before = w[1].client->next_request;
    const double began = trmi_os_now();
    for (int i = 0; i < ASKED; i++) {
        assert_int_equal(trm_ps_lease_take(w[1].client, &lo, &none, &err), TRM_PENDING);
    }
    const double seconds = trmi_os_now() - began;
    const uint64_t repeated = w[1].client->next_request - before - ASKED;
    assert_true((double)repeated <= 2 * (seconds + 1)); /* of two servers */
    end_bounded_job(f, w, lease);
}

/* Server 1 is away: a worker without samples asks server 0 for some all the same, and tells server
 * 1 when that is back. */
static void who_rests_does_not_wait_for_a_server_that_is_away(void **state) {
    const trm_ps_lease_options lo = {100, 90, 1, 60 * check_patience(), 0, 10};
    fixture f[2];
    trm_ps_lease lease, none;
    worker w[2];
    trm_error err;
    (void)state;
    begin_bounded_job(f, w, &lo, &lease);
    rest_unlogged(&f[1], &w[1], &lo);
    trm_ps_server_stop(f[1].server);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(trm_ps_lease_take(w[1].client, &lo, &none, &err), TRM_PENDING);
    }
    start_server(&f[1]);
    assert_true(trmi_front_find(f[1].server, 1)->active);
    assert_int_equal(trm_ps_lease_take(w[1].client, &lo, &none, &err), TRM_PENDING);
    end_bounded_job(f, w, lease);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_workers_wait_for_nobody_who_left),
        cmocka_unit_test(synchronous_workers_wait_for_nobody_who_left),
        cmocka_unit_test(a_new_life_with_samples_is_waited_for),
        cmocka_unit_test(a_worker_that_could_not_begin_is_waited_for),
        cmocka_unit_test(a_job_goes_on_with_fewer_workers),
        cmocka_unit_test(a_worker_that_failed_is_waited_for),
        cmocka_unit_test(a_worker_that_failed_to_read_is_waited_for),
        cmocka_unit_test(a_worker_that_rested_does_not_hold_others_up),
        cmocka_unit_test(a_clock_that_has_caught_up_outlasts_its_server),
        cmocka_unit_test(a_worker_that_rested_is_waited_for_from_its_pull_on),
        cmocka_unit_test(workers_that_rested_together_do_not_wait),
        cmocka_unit_test(a_goodbye_that_cannot_be_logged_is_an_error),
        cmocka_unit_test(a_rest_is_repeated),
        cmocka_unit_test(a_rest_is_not_repeated_each_time),
        cmocka_unit_test(who_rests_does_not_wait_for_a_server_that_is_away),
    };
    return cmocka_run_group_tests_name("ps away", tests, NULL, NULL);
}
