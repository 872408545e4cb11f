/* SPDX-License-Identifier: Apache-2.0 */
/* Tests servers and clients together: modes, pushes that are applied exactly once on a bad network,
 * restarts, checkpoints. */
#include "servers.h"

#include "base/memory.h"
#include "base/rng.h"
#include "ps/client/client.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum { WIDTH = 4, KEYS = 300 };
static char folder[64];

static int make_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/ps-server-XXXXXX");
    return mkdtemp(folder) == NULL;
}
static int remove_folder(void **state) { return trmi_os_remove_tree(NULL, folder, NULL) != TRM_OK; }

/* The servers of a job, in this process. */
typedef struct cluster {
    int servers;
    trm_ps_server *server[4];
    trm_ps_server_options options; /* the same for all, but for the number */
    bool tcp;                      /* clients connect over TCP */
} cluster;

static void start_server(cluster *c, int number) {
    trm_ps_server_options o = c->options;
    o.server = number;
    o.servers = c->servers;
    o.listen = c->tcp ? "127.0.0.1:0" : NULL;
    c->server[number] = server_start(o);
}

static void start_servers(cluster *c) {
    for (int s = 0; s < c->servers; s++) {
        start_server(c, s);
    }
}

static void stop_servers(cluster *c) {
    for (int s = 0; s < c->servers; s++) {
        trm_ps_server_stop(c->server[s]);
        c->server[s] = NULL;
    }
}

static trm_ps_client *connect_worker(cluster *c, trm_ps_client_options o, int worker) {
    trm_error err;
    trm_ps_client *client;
    const char *addresses[4];
    for (int s = 0; s < c->servers; s++) {
        addresses[s] = trm_ps_server_address(c->server[s]);
    }
    o.worker = worker;
    o.servers = c->servers;
    o.addresses = c->tcp ? addresses : NULL;
    o.local = c->tcp ? NULL : c->server;
    o.ring_bytes = o.ring_bytes == 0 ? 1 << 20 : o.ring_bytes;
    CHECK_OK(trm_ps_client_create(&o, &client, &err), err);
    return client;
}

static const trm_table_options users = {.name = "users",
                                        .width = WIDTH,
                                        .learning_rate = 0.1f,
                                        .optimizer = {.kind = TRM_ADAGRAD},
                                        .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1}};
static const trm_table_options items = {
    .name = "items", .width = 1, .learning_rate = 0.1f, .optimizer = {.kind = TRM_SGD}};

static void declare_table(trm_ps_client *client, int32_t table[2]) {
    trm_error err;
    CHECK_OK(trm_ps_client_table(client, &users, &table[0], &err), err);
    CHECK_OK(trm_ps_client_table(client, &items, &table[1], &err), err);
}

/* Batch `number` of a worker: 60 look-ups of users in two slices (with repeats), 20 of items. */
typedef struct work {
    uint64_t users[60], items[20];
    float user_rows[60 * WIDTH], item_rows[20], user_grads[60 * WIDTH], item_grads[20];
} work;

static void make_work(work *w, int worker, int64_t number) {
    for (int i = 0; i < 60; i++) {
        uint32_t r = trmi_random_u32((uint64_t)worker, TRMI_STREAM_TEST,
                                     (uint64_t)number * 64 + (uint64_t)i);
        w->users[i] = trmi_mix(9, r % KEYS);
        w->items[i % 20] = r % 50;
    }
}

static void add_work(trm_ps_batch *batch, const int32_t table[2], work *w) {
    trm_error err;
    trm_ps_batch_clear(batch);
    CHECK_OK(trm_ps_batch_add(batch, table[0], w->users, 25, w->user_rows, w->user_grads, &err),
             err);
    CHECK_OK(trm_ps_batch_add(batch, table[1], w->items, 20, w->item_rows, w->item_grads, &err),
             err);
    CHECK_OK(trm_ps_batch_add(batch, table[0], w->users + 25, 35, w->user_rows + 25 * WIDTH,
                              w->user_grads + 25 * WIDTH, &err),
             err);
}

/* Returns a gradient that depends on the row, so that a wrong row changes all later ones. */
static void compute_batch(work *w) {
    for (int i = 0; i < 60 * WIDTH; i++) {
        w->user_grads[i] = 0.3f * w->user_rows[i] + 0.01f * (float)(i % 7 - 3);
    }
    for (int i = 0; i < 20; i++) {
        w->item_grads[i] = w->item_rows[i] - (float)(i % 3);
    }
}

static void one_step(trm_ps_client *client, trm_ps_batch *batch, const int32_t table[2], work *w,
                     int worker, int64_t number) {
    trm_error err;
    make_work(w, worker, number);
    add_work(batch, table, w);
    CHECK_OK(trm_ps_pull_start(batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(batch, &err), err);
    compute_batch(w);
    CHECK_OK(trm_ps_push(batch, NULL, &err), err);
}

/* Reads all rows of both tables as a client. */
typedef struct view {
    float users[KEYS][WIDTH], items[50];
} view;

static void read_view(trm_ps_client *client, const int32_t table[2], view *v) {
    trm_error err;
    trm_ps_batch *batch;
    uint64_t user_keys[KEYS], item_keys[50];
    for (uint64_t i = 0; i < KEYS; i++) {
        user_keys[i] = trmi_mix(9, i);
        item_keys[i % 50] = i % 50;
    }
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    CHECK_OK(trm_ps_batch_add(batch, table[0], user_keys, KEYS, v->users[0], NULL, &err), err);
    CHECK_OK(trm_ps_batch_add(batch, table[1], item_keys, 50, v->items, NULL, &err), err);
    CHECK_OK(trm_ps_pull_start(batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(batch, &err), err);
    trm_ps_batch_destroy(batch);
}

/* ---- the reference: one map, plain loops, float32 as the kernels, sums in order of workers --- */

typedef struct reference {
    float users[KEYS][WIDTH], sums[KEYS][WIDTH], items[50];
} reference;

static int user_index(uint64_t key) {
    for (int i = 0; i < KEYS; i++) {
        if (trmi_mix(9, (uint64_t)i) == key) {
            return i;
        }
    }
    return -1;
}

static void reference_start(reference *r) {
    memset(r, 0, sizeof *r);
    for (uint64_t i = 0; i < KEYS; i++) {
        trmi_row_init_values(&users.init, 0, trmi_mix(9, i), WIDTH, r->users[i]);
    }
}

static void reference_step(reference *r, int workers, int64_t number) {
    static double g[KEYS][WIDTH], gi[50];
    static work w;
    memset(g, 0, sizeof g);
    memset(gi, 0, sizeof gi);
    for (int worker = 0; worker < workers; worker++) {
        make_work(&w, worker, number);
        for (int i = 0; i < 60; i++) {
            memcpy(w.user_rows + i * WIDTH, r->users[user_index(w.users[i])], sizeof r->users[0]);
        }
        for (int i = 0; i < 20; i++) {
            w.item_rows[i] = r->items[w.items[i]];
        }
        compute_batch(&w);
        for (int i = 0; i < 60; i++) {
            for (int j = 0; j < WIDTH; j++) {
                g[user_index(w.users[i])][j] += (double)w.user_grads[i * WIDTH + j] / workers;
            }
        }
        for (int i = 0; i < 20; i++) {
            gi[w.items[i]] += (double)w.item_grads[i] / workers;
        }
    }
    for (int k = 0; k < KEYS; k++) {
        for (int j = 0; j < WIDTH; j++) {
            r->sums[k][j] += (float)(g[k][j] * g[k][j]);
            r->users[k][j] -=
                g[k][j] == 0 ? 0 : 0.1f * (float)g[k][j] / (sqrtf(r->sums[k][j]) + 1e-10f);
        }
    }
    for (int k = 0; k < 50; k++) {
        r->items[k] -= 0.1f * (float)gi[k];
    }
}

static void assert_close_to(const view *v, const reference *r) {
    for (int k = 0; k < KEYS; k++) {
        for (int j = 0; j < WIDTH; j++) {
            CHECK_CLOSE(v->users[k][j], r->users[k][j], 1e-6);
        }
    }
    for (int k = 0; k < 50; k++) {
        CHECK_CLOSE(v->items[k], r->items[k], 1e-6);
    }
}

/* ---- one worker ------------------------------------------------------------------------------ */

/* A schedule may reach a rate of 0; rows then do not change. */
static void a_rate_of_zero_changes_no_row(void **state) {
    trm_error err;
    cluster c = {.servers = 2};
    start_servers(&c);
    trm_ps_client *client = connect_worker(&c, (trm_ps_client_options){0}, 0);
    int32_t table[2];
    declare_table(client, table);
    static view before, after;
    static work w;
    trm_ps_batch *batch;
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    one_step(client, batch, table, &w, 0, 0);
    read_view(client, table, &before);
    make_work(&w, 0, 1);
    add_work(batch, table, &w);
    CHECK_OK(trm_ps_pull_start(batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(batch, &err), err);
    compute_batch(&w);
    CHECK_OK(trm_ps_push(batch, &(trm_ps_push_options){.rate_scale = TRM_NONE}, &err), err);
    CHECK_OK(trm_ps_flush(client, &err), err);
    read_view(client, table, &after);
    assert_memory_equal(&before, &after, sizeof before);
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    stop_servers(&c);
}

static void one_worker_equals_plain_loops(void **state) {
    for (int form = 0; form < 4; form++) {
        cluster c = {.servers = 1 + form % 2, .options = {.shards = 1 + form}, .tcp = form >= 2};
        start_servers(&c);
        trm_ps_client *client =
            connect_worker(&c, (trm_ps_client_options){.tcp_only = form == 3}, 0);
        int32_t table[2];
        declare_table(client, table);
        trm_error err;
        trm_ps_batch *batch;
        CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
        static work w;
        static reference r;
        static view v;
        reference_start(&r);
        for (int64_t n = 0; n < 12; n++) {
            one_step(client, batch, table, &w, 0, n);
            reference_step(&r, 1, n);
        }
        CHECK_OK(trm_ps_flush(client, &err), err);
        read_view(client, table, &v);
        assert_close_to(&v, &r);
        trm_table_stats stats;
        CHECK_OK(trm_ps_table_get_stats(client, table[0], &stats, &err), err);
        assert_true(stats.rows > 100 && stats.rows <= KEYS && stats.created == stats.rows);
        trm_row_info info;
        float values[WIDTH], slots[WIDTH];
        make_work(&w, 0, 0);
        CHECK_OK(trm_ps_row(client, table[0], w.users[0], &info, values, slots, &err), err);
        assert_true(info.count >= 1 && info.key == w.users[0]);
        assert_memory_equal(values, v.users[user_index(w.users[0])], sizeof values);
        assert_true(slots[0] > 0);
        assert_int_equal(trm_ps_row(client, table[0], 12345, &info, NULL, NULL, &err), TRM_END);
        trm_ps_client_stats cs;
        trm_ps_client_get_stats(client, &cs);
        assert_int_equal(cs.pushes, 12);
        assert_int_equal(cs.global_step, 12);
        assert_true(cs.unique_keys < cs.lookups);
        CHECK_OK(trm_ps_stop_servers(client, &err), err);
        assert_int_equal(trm_ps_server_wait(c.server[0], 5), TRM_OK);
        trm_ps_batch_destroy(batch);
        trm_ps_client_destroy(client);
        stop_servers(&c);
    }
}

/* ---- several workers ------------------------------------------------------------------------- */

typedef struct worker_thread {
    cluster *c;
    trm_ps_client_options options;
    int worker, steps;
    int pause_us;
    pthread_t thread;
    int64_t seen_ahead; /* largest lead over the slowest at a pull */
} worker_thread;

static _Atomic int64_t progress[8];

static void *work_on(void *context) {
    worker_thread *t = context;
    trm_ps_client *client = connect_worker(t->c, t->options, t->worker);
    int32_t table[2];
    declare_table(client, table);
    trm_error err;
    trm_ps_batch *batch;
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    work *w = calloc(1, sizeof *w);
    for (int64_t n = 0; n < t->steps; n++) {
        make_work(w, t->worker, n);
        add_work(batch, table, w);
        CHECK_OK(trm_ps_pull_start(batch, &err), err);
        CHECK_OK(trm_ps_pull_wait(batch, &err), err);
        for (int other = 0; other < t->c->options.workers; other++) {
            int64_t lead = n - atomic_load(&progress[other]);
            t->seen_ahead = lead > t->seen_ahead ? lead : t->seen_ahead;
        }
        compute_batch(w);
        if (t->pause_us > 0) {
            usleep((useconds_t)t->pause_us);
        }
        atomic_store(&progress[t->worker], n + 1);
        CHECK_OK(trm_ps_push(batch, NULL, &err), err);
    }
    CHECK_OK(trm_ps_flush(client, &err), err);
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    free(w);
    return NULL;
}

static void run_workers(cluster *c, trm_ps_client_options options, int workers, int steps,
                        int slow_us, worker_thread *threads) {
    for (int i = 0; i < workers; i++) {
        atomic_store(&progress[i], 0);
        threads[i] = (worker_thread){.c = c,
                                     .options = options,
                                     .worker = i,
                                     .steps = steps,
                                     .pause_us = i == workers - 1 ? slow_us : 0};
    }
    for (int i = 0; i < workers; i++) {
        pthread_create(&threads[i].thread, NULL, work_on, &threads[i]);
    }
    for (int i = 0; i < workers; i++) {
        pthread_join(threads[i].thread, NULL);
    }
}

static void synchronous_equals_one_device(void **state) {
    for (int form = 0; form < 3; form++) {
        cluster c = {.servers = 2,
                     .options = {.shards = 2, .mode = TRM_PS_SYNC, .workers = 3},
                     .tcp = form == 2};
        worker_thread threads[3];
        start_servers(&c);
        run_workers(&c, (trm_ps_client_options){0}, 3, 15, form == 1 ? 3000 : 0, threads);
        trm_ps_client *reader = connect_worker(&c, (trm_ps_client_options){0}, -1);
        int32_t table[2];
        declare_table(reader, table);
        static reference r;
        static view v;
        reference_start(&r);
        for (int64_t n = 0; n < 15; n++) {
            reference_step(&r, 3, n);
        }
        read_view(reader, table, &v);
        assert_close_to(&v, &r);
        trm_ps_client_destroy(reader);
        stop_servers(&c);
    }
}

static void staleness_is_bounded(void **state) {
    for (int k = 0; k <= 2; k++) {
        cluster c = {
            .servers = 2,
            .options = {.shards = 1, .mode = TRM_PS_BOUNDED, .workers = 3, .staleness = k}};
        worker_thread threads[3];
        start_servers(&c);
        run_workers(&c, (trm_ps_client_options){0}, 3, 25, 1500, threads);
        for (int i = 0; i < 3; i++) {
            assert_true(threads[i].seen_ahead <= k);
        }
        assert_int_equal(threads[0].seen_ahead, k); /* and the bound is used */
        stop_servers(&c);
    }
}

static void backup_workers_are_not_waited_for(void **state) {
    cluster c = {.servers = 2,
                 .options = {.shards = 2, .mode = TRM_PS_SYNC, .workers = 3, .backup_workers = 1}};
    worker_thread threads[3];
    start_servers(&c);
    run_workers(&c, (trm_ps_client_options){0}, 3, 20, 4000, threads);
    int64_t applied = 0;
    for (int s = 0; s < 2; s++) {
        /* 20 batches, and for every late push a mark that is no tick. */
        assert_true(c.server[s]->runners[0].shard->tick >= 20);
        applied += c.server[s]->step;
    }
    assert_true(applied >= 40);
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < c.server[s]->runners[0].shard->window_count; i++) {
            assert_int_equal(c.server[s]->runners[0].shard->windows[i].base, 20);
        }
    }
    stop_servers(&c);
}

static void a_wait_names_whom_it_waits_for(void **state) {
    cluster c = {.servers = 1, .options = {.shards = 1, .mode = TRM_PS_BOUNDED, .workers = 2}};
    start_servers(&c);
    trm_ps_client *client =
        connect_worker(&c, (trm_ps_client_options){.timeout_seconds = 0.5 * check_patience()}, 0);
    int32_t table[2];
    declare_table(client, table);
    trm_error err;
    trm_ps_batch *batch;
    static work w;
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    one_step(client, batch, table, &w, 0, 0);
    add_work(batch, table, &w);
    CHECK_OK(trm_ps_pull_start(batch, &err), err);
    CHECK_FAILS(trm_ps_pull_wait(batch, &err), TRM_TIMEOUT, err,
                "to begin batch 1: a worker not yet seen has finished 0");
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    stop_servers(&c);
}

/* ---- exactly once on a bad network ----------------------------------------------------------- */

/* A layer between client and channel that drops, doubles or delays (until the next one) outgoing
 * messages, and drops answers. It is inserted after HELLO. */
typedef struct bad_channel {
    trmi_channel base;
    trmi_channel *inner;
    uint64_t seed, count;
    uint8_t *held;
    size_t held_bytes;
} bad_channel;

static _Atomic int64_t harm[4];

static uint32_t roll_dice(bad_channel *c) {
    return trmi_random_u32(c->seed, TRMI_STREAM_TEST, c->count++) % 100;
}

static trm_status bad_reserve(trmi_channel *channel, size_t bytes, double timeout,
                              trmi_message *out, trm_error *err) {
    /* Messages are written to the layer's own memory, because they may be sent later or never. */
    (void)timeout;
    (void)err;
    (void)channel;
    *out = (trmi_message){trmi_alloc(bytes), bytes, (void *)1};
    return TRM_OK;
}

static trm_status send_copy(bad_channel *c, const uint8_t *data, size_t bytes, double timeout,
                            trm_error *err) {
    trmi_message m;
    trm_status status = c->inner->table->reserve(c->inner, bytes, timeout, &m, err);
    if (status != TRM_OK) {
        return status;
    }
    memcpy(m.data, data, bytes);
    return c->inner->table->commit(c->inner, &m, timeout, err);
}

static trm_status bad_commit(trmi_channel *channel, trmi_message *m, double timeout,
                             trm_error *err) {
    bad_channel *c = (bad_channel *)channel;
    trmi_ps_header h;
    bool data_message = trmi_ps_decode_header(m->data, m->bytes, &h, NULL) == TRM_OK &&
                        (h.kind == TRMI_PS_PUSH || h.kind == TRMI_PS_PULL);
    uint32_t d = data_message ? roll_dice(c) : 99;
    trm_status status = TRM_OK;
    if (d < 15) {
        atomic_fetch_add(&harm[0], 1); /* lost */
    } else if (d < 30 && c->held == NULL) {
        atomic_fetch_add(&harm[1], 1); /* overtaken by the next one */
        c->held = m->data;
        c->held_bytes = m->bytes;
        m->data = NULL;
    } else {
        status = send_copy(c, m->data, m->bytes, timeout, err);
        if (d < 45 && status == TRM_OK) {
            atomic_fetch_add(&harm[2], 1); /* doubled */
            status = send_copy(c, m->data, m->bytes, timeout, err);
        }
        if (c->held != NULL && status == TRM_OK) {
            status = send_copy(c, c->held, c->held_bytes, timeout, err);
            trmi_free(c->held);
            c->held = NULL;
        }
    }
    trmi_free(m->data);
    *m = (trmi_message){0};
    return status;
}

static trm_status bad_receive(trmi_channel *channel, double timeout, trmi_message *out,
                              trm_error *err) {
    bad_channel *c = (bad_channel *)channel;
    for (;;) {
        trm_status status = c->inner->table->receive(c->inner, timeout, out, err);
        trmi_ps_header h;
        if (status != TRM_OK || trmi_ps_decode_header(out->data, out->bytes, &h, NULL) != TRM_OK ||
            (h.kind == TRMI_PS_DONE && h.flags != TRMI_PS_PUSH) || roll_dice(c) >= 15) {
            return status;
        }
        atomic_fetch_add(&harm[3], 1);
        c->inner->table->release(c->inner, out);
    }
}
static void bad_release(trmi_channel *channel, trmi_message *m) {
    bad_channel *c = (bad_channel *)channel;
    c->inner->table->release(c->inner, m);
}
static void bad_shut(trmi_channel *channel) {
    bad_channel *c = (bad_channel *)channel;
    c->inner->table->shut(c->inner);
}
static void bad_destroy(trmi_channel *channel) {
    bad_channel *c = (bad_channel *)channel;
    c->inner->table->destroy(c->inner);
    trmi_free(c->held);
    free(c);
}
static const trmi_channel_table bad_table = {"bad",       bad_reserve, bad_commit,  bad_receive,
                                             bad_release, bad_shut,    bad_destroy, NULL};

static trmi_channel *make_bad(void *context, trmi_channel *inner) {
    bad_channel *c = calloc(1, sizeof *c);
    c->base = *inner;
    c->base.table = &bad_table;
    c->inner = inner;
    c->seed = *(uint64_t *)context;
    return &c->base;
}

static void pushes_count_once_on_a_bad_network(void **state) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        cluster c = {.servers = 2, .options = {.shards = 2}};
        start_servers(&c);
        trm_error err;
        trm_ps_client *client;
        trm_ps_client_options o = {.local = c.server,
                                   .servers = 2,
                                   .ring_bytes = 1 << 20,
                                   .retry_seconds = 0.01,
                                   .pushes_ahead = 8};
        CHECK_OK(trmi_client_create_wrapped(&o, make_bad, &seed, &client, &err), err);
        int32_t table[2];
        declare_table(client, table);
        trm_ps_batch *batch;
        CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
        /* Gradients do not depend on rows, so that the sum of SGD steps is the same in any
         * order. */
        static work w;
        static double expected[50];
        memset(expected, 0, sizeof expected);
        for (int64_t n = 0; n < 60; n++) {
            make_work(&w, 0, n);
            trm_ps_batch_clear(batch);
            CHECK_OK(
                trm_ps_batch_add(batch, table[1], w.items, 20, w.item_rows, w.item_grads, &err),
                err);
            CHECK_OK(trm_ps_pull_start(batch, &err), err);
            CHECK_OK(trm_ps_pull_wait(batch, &err), err);
            for (int i = 0; i < 20; i++) {
                w.item_grads[i] = (float)(1 << (n % 4));
                expected[w.items[i]] -= 0.1 * (double)w.item_grads[i];
            }
            CHECK_OK(trm_ps_push(batch, NULL, &err), err);
        }
        CHECK_OK(trm_ps_flush(client, &err), err);
        static view v;
        read_view(client, table, &v);
        for (int k = 0; k < 50; k++) {
            CHECK_CLOSE(v.items[k], expected[k], 1e-5);
        }
        for (int s = 0; s < 2; s++) {
            for (uint32_t k = 0; k < 2; k++) {
                const trmi_shard *shard = c.server[s]->runners[k].shard;
                assert_int_equal(shard->applied, 60);
                assert_int_equal(shard->windows[0].base, 60);
            }
        }
        trm_ps_batch_destroy(batch);
        trm_ps_client_destroy(client);
        stop_servers(&c);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(atomic_load(&harm[i]) > 20);
    }
}

/* ---- checkpoints and restarts ---------------------------------------------------------------- */

static void a_restarted_server_loses_nothing(void **state) {
    char path[128];
    snprintf(path, sizeof path, "%s/restart", folder);
    cluster c = {.servers = 2, .options = {.shards = 2, .folder = path, .log_pushes = TRM_ON}};
    start_servers(&c);
    trm_error err;
    static work w;
    static reference r;
    static view v;
    int32_t table[2];
    reference_start(&r);
    int64_t n = 0;
    uint32_t snapshot = 0;
    for (int life = 0; life < 8; life++) {
        trm_ps_client *client = connect_worker(&c, (trm_ps_client_options){0}, 0);
        declare_table(client, table);
        trm_ps_batch *batch;
        CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
        read_view(client, table, &v);
        assert_close_to(&v, &r);
        for (int i = 0; i < 5; i++, n++) {
            one_step(client, batch, table, &w, 0, n);
            reference_step(&r, 1, n);
            if (life % 3 == 1 && i == 2) {
                trm_ps_checkpoint_result result;
                CHECK_OK(trm_ps_checkpoint(client, life > 1, &result, &err), err);
                assert_int_equal(result.snapshot, ++snapshot);
                assert_int_equal(result.differential, life > 1);
                assert_true(result.rows > 0 && result.bytes > 0);
            }
        }
        CHECK_OK(trm_ps_flush(client, &err), err);
        trm_ps_batch_destroy(batch);
        trm_ps_client_destroy(client);
        stop_servers(&c);
        start_servers(&c);
        assert_int_equal(c.server[0]->runners[0].shard->tick, n);
    }
    /* The same rows on one server with three shards: from a checkpoint, without newer logs. */
    trm_ps_client *client = connect_worker(&c, (trm_ps_client_options){0}, 0);
    declare_table(client, table);
    trm_ps_checkpoint_result result;
    CHECK_OK(trm_ps_checkpoint(client, true, &result, &err), err);
    /* A push after the snapshot is only in the log, which servers with other shards cannot read. */
    trm_ps_batch *batch;
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    one_step(client, batch, table, &w, 0, n);
    CHECK_OK(trm_ps_flush(client, &err), err);
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    stop_servers(&c);
    cluster other = {.servers = 1, .options = {.shards = 3, .folder = path}};
    trm_ps_server_options o = other.options;
    o.servers = 1;
    o.memory_bytes = 1 << 26;
    CHECK_FAILS(trm_ps_server_start(&o, &other.server[0], &err), TRM_INVALID, err,
                "a log of 2 servers with 2 shards");
    char log[160];
    snprintf(log, sizeof log, "%s/log", path);
    CHECK_OK(trmi_os_remove_tree(NULL, log, &err), err);
    start_servers(&other);
    client = connect_worker(&other, (trm_ps_client_options){0}, 0);
    declare_table(client, table);
    read_view(client, table, &v);
    assert_close_to(&v, &r);
    trm_ps_client_destroy(client);
    stop_servers(&other);
}

static void checkpoints_are_one_moment_for_all_servers(void **state) {
    /* Every push adds 1 to key 0..19 of items and to users: in any snapshot all rows have had the
     * same number of pushes, although two workers push and the snapshot comes to one server after
     * the other. */
    char path[128];
    snprintf(path, sizeof path, "%s/moment", folder);
    cluster c = {.servers = 2, .options = {.shards = 2, .folder = path, .workers = 2}};
    start_servers(&c);
    worker_thread threads[2];
    for (int i = 0; i < 2; i++) {
        threads[i] = (worker_thread){.c = &c, .worker = i, .steps = 150};
    }
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i].thread, NULL, work_on, &threads[i]);
    }
    trm_error err;
    trm_ps_client *chief = connect_worker(&c, (trm_ps_client_options){0}, -1);
    int32_t table[2];
    declare_table(chief, table);
    trm_ps_checkpoint_result result = {0};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(trm_ps_checkpoint(chief, i > 0, &result, &err), err);
        assert_int_equal(result.differential, i > 0);
        usleep(5000);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i].thread, NULL);
    }
    trm_ps_client_destroy(chief);
    stop_servers(&c);
    start_servers(&c);
    /* Checks that the windows of all shards of all servers agree: every shard has applied the same
     * pushes. */
    const trmi_shard *first = c.server[0]->runners[0].shard;
    assert_int_equal(first->window_count, 2);
    for (int s = 0; s < 2; s++) {
        for (uint32_t k = 0; k < 2; k++) {
            const trmi_shard *shard = c.server[s]->runners[k].shard;
            assert_int_equal(shard->tick, first->tick);
            for (int64_t i = 0; i < 2; i++) {
                for (int64_t j = 0; j < 2; j++) {
                    if (shard->windows[i].worker == first->windows[j].worker) {
                        assert_int_equal(shard->windows[i].base, first->windows[j].base);
                        assert_int_equal(shard->windows[i].bits, 0);
                    }
                }
            }
        }
    }
    stop_servers(&c);
}

static void hot_rows_come_from_the_cache(void **state) {
    cluster c = {.servers = 1, .options = {.shards = 1}};
    start_servers(&c);
    trm_ps_client *client =
        connect_worker(&c, (trm_ps_client_options){.cache_rows = 1000, .cache_staleness = 3}, 0);
    int32_t table[2];
    declare_table(client, table);
    trm_error err;
    trm_ps_batch *batch;
    uint64_t keys[10];
    float rows[10], grads[10];
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    for (int n = 0; n < 20; n++) {
        trm_ps_batch_clear(batch);
        for (int i = 0; i < 10; i++) {
            keys[i] = (uint64_t)i;
            grads[i] = 1;
        }
        CHECK_OK(trm_ps_batch_add(batch, table[1], keys, 10, rows, grads, &err), err);
        CHECK_OK(trm_ps_pull_start(batch, &err), err);
        CHECK_OK(trm_ps_pull_wait(batch, &err), err);
        for (int i = 0; i < 10; i++) {
            /* Fetched at batch n - n % 4: never older than three batches. */
            CHECK_CLOSE(rows[i], -0.1 * (double)(n - n % 4), 1e-6);
        }
        CHECK_OK(trm_ps_push(batch, NULL, &err), err);
        CHECK_OK(trm_ps_flush(client, &err), err);
    }
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(client, &stats);
    assert_int_equal(stats.cached_keys, 150);
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    stop_servers(&c);
}

/* A second process with the same number does not touch the logs of the first. */
static void a_folder_has_one_server_of_a_number(void **state) {
    trm_error err;
    char path[80];
    snprintf(path, sizeof path, "%s/one", folder);
    trm_ps_server_options o = {.shards = 1, .folder = path, .log_pushes = TRM_ON};
    trm_ps_server *first = server_start(o), *second = NULL;
    assert_int_equal(trm_ps_server_start(&o, &second, &err), TRM_INVALID);
    assert_non_null(strstr(err.message, "another process is server 0 of this folder"));
    trm_ps_server_stop(first);
    trm_ps_server_stop(server_start(o));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_equals_plain_loops),
        cmocka_unit_test(a_rate_of_zero_changes_no_row),
        cmocka_unit_test(synchronous_equals_one_device),
        cmocka_unit_test(staleness_is_bounded),
        cmocka_unit_test(backup_workers_are_not_waited_for),
        cmocka_unit_test(a_wait_names_whom_it_waits_for),
        cmocka_unit_test(pushes_count_once_on_a_bad_network),
        cmocka_unit_test(a_restarted_server_loses_nothing),
        cmocka_unit_test(checkpoints_are_one_moment_for_all_servers),
        cmocka_unit_test(a_folder_has_one_server_of_a_number),
        cmocka_unit_test(hot_rows_come_from_the_cache),
    };
    return cmocka_run_group_tests_name("ps server", tests, make_folder, remove_folder);
}
