/* SPDX-License-Identifier: Apache-2.0 */
/* Tests synchronous steps with leased samples, one interleaving at a time: a worker that dies
 * between two servers, the last step of a job, a checkpoint before a step is known everywhere,
 * lives that overlap, a connection that breaks during a pull. */
#include "servers.h"
#include "wrapped_channel.h"

#include "base/error.h"
#include "base/os.h"
#include "ps/client/client.h"
#include "ps/server/server.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SERVERS = 2, SAMPLES = 20, PATIENCE = 8 };

typedef struct cluster {
    char folder[64], address[SERVERS][64];
    trm_ps_server *server[SERVERS];
    trm_ps_server_options options;
    int servers;
} cluster;

static void start_server(cluster *c, int number) {
    trm_ps_server_options o = c->options;
    o.server = number;
    o.servers = c->servers;
    o.folder = c->folder;
    o.log_pushes = TRM_ON;
    o.listen = c->address[number];
    c->server[number] = server_start(o);
    snprintf(c->address[number], sizeof c->address[number], "%s",
             trm_ps_server_address(c->server[number]));
}

static void restart_server(cluster *c, int number) {
    trm_ps_server_stop(c->server[number]);
    start_server(c, number);
}

static void begin_job(cluster *c, trm_ps_mode mode, int workers) {
    *c = (cluster){
        .servers = SERVERS,
        .options = {.shards = 2, .mode = mode, .workers = workers, .sum_gradients = true}};
    snprintf(c->folder, sizeof c->folder, "/tmp/ps-step-XXXXXX");
    assert_non_null(mkdtemp(c->folder));
    for (int s = 0; s < SERVERS; s++) {
        snprintf(c->address[s], sizeof c->address[s], "127.0.0.1:0");
        start_server(c, s);
    }
}

static void end_job(cluster *c) {
    trm_error err;
    for (int s = 0; s < c->servers; s++) {
        trm_ps_server_stop(c->server[s]);
    }
    CHECK_OK(trmi_os_remove_tree(NULL, c->folder, &err), err);
}

/* ---- a connection whose process dies before it sends a push, or that breaks on request --- */

static _Atomic bool breaks;
static _Atomic int idle; /* pulls at server 1 that had to wait */

/* A worker with leased samples. */
typedef struct worker {
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    trm_ps_lease lease;
    int64_t position; /* samples of the lease before it are pushed */
    bool dies;        /* its next push fails as if the process had died */
    int channels;     /* connections made so far */
} worker;

static trm_status die_before_a_push(wrapped_channel *channel, const trmi_message *m,
                                    trm_error *err) {
    (void)channel;
    return is_kind(m, TRMI_PS_PUSH) || is_kind(m, TRMI_PS_STAGE)
               ? TRMI_FAIL(err, TRM_INTERNAL, "here its process dies")
               : TRM_OK;
}

static trm_status break_on_request(wrapped_channel *channel, trm_error *err) {
    (void)channel;
    (void)err;
    return atomic_load(&breaks) ? TRM_END : TRM_OK;
}

static void count_idle(wrapped_channel *channel, double timeout, trm_status status) {
    (void)channel;
    atomic_fetch_add(&idle, status == TRM_TIMEOUT && timeout > 0);
}

/* The process dies at the first connection, to server 0; the second connection, to server 1,
 * breaks. */
static trmi_channel *watch_channel(void *context, trmi_channel *inner) {
    worker *w = context;
    const int number = w->channels++;
    if (w->dies && number == 0) {
        return &wrap_channel(inner, (channel_hooks){.before_send = die_before_a_push}, NULL)->base;
    }
    if (!w->dies && number == 1) {
        const channel_hooks hooks = {.before_receive = break_on_request,
                                     .after_receive = count_idle};
        return &wrap_channel(inner, hooks, NULL)->base;
    }
    return inner;
}

/* ---- workers --------------------------------------------------------------------------------- */

static const trm_table_options counts = {
    .name = "counts", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};

static void join_worker(cluster *c, worker *w, int number, bool dies) {
    trm_error err;
    const char *addresses[SERVERS] = {c->address[0], c->address[1]};
    const trm_ps_client_options o = {.addresses = addresses,
                                     .servers = c->servers,
                                     .worker = number,
                                     .timeout_seconds = PATIENCE * check_slack(),
                                     .ring_bytes = 1 << 20};
    *w = (worker){.dies = dies};
    CHECK_OK(trmi_client_create_wrapped(&o, watch_channel, w, &w->client, &err), err);
    CHECK_OK(trm_ps_client_table(w->client, &counts, &w->table, &err), err);
    CHECK_OK(trm_ps_batch_create(w->client, &w->batch, &err), err);
}

static void leave_job(worker *w) {
    trm_ps_batch_destroy(w->batch);
    trm_ps_client_destroy(w->client);
}

/* Ends a client as if its process were killed: without BYE. */
static void kill_worker(worker *w) {
    w->client->incarnation = 0;
    leave_job(w);
}

static trm_status borrow_lease(worker *w, trm_error *err) {
    trm_ps_lease_options o = {SAMPLES, SAMPLES / 2, 1, 60, 0, 0};
    trm_status status = trm_ps_lease_take(w->client, &o, &w->lease, err);
    w->position = status == TRM_OK ? w->lease.begin : w->position;
    return status;
}

/* Sample s adds 1 to row s. */
static trm_status use_lease(worker *w, int count, trm_error *err) {
    uint64_t keys[SAMPLES];
    float rows[SAMPLES], gradients[SAMPLES];
    for (int i = 0; i < count; i++) {
        keys[i] = (uint64_t)(w->position + i);
        gradients[i] = -1;
    }
    trm_ps_batch_clear(w->batch);
    CHECK_OK(trm_ps_batch_add(w->batch, w->table, keys, count, rows, gradients, err), *err);
    CHECK_OK(trm_ps_pull_start(w->batch, err), *err);
    CHECK_OK(trm_ps_pull_wait(w->batch, err), *err);
    w->position += count;
    const trm_ps_push_options o = {.lease = w->lease, .position = w->position};
    return trm_ps_push(w->batch, &o, err);
}

static void check_rows(cluster *c, int64_t used) {
    worker reader;
    trm_error err;
    join_worker(c, &reader, -1, false);
    for (uint64_t key = 0; key < SAMPLES; key++) {
        trm_row_info info;
        float value = 0;
        trm_status status = trm_ps_row(reader.client, reader.table, key, &info, &value, NULL, &err);
        assert_int_equal(status, (int64_t)key < used ? TRM_OK : TRM_END);
        assert_true(value == ((int64_t)key < used ? 1.0f : 0.0f));
    }
    leave_job(&reader);
}

/* A request that reads a shard's counters on the thread that owns it. */
typedef struct look {
    trmi_request request;
    int64_t clock, tick; /* written by the shard's thread before `done` */
    _Atomic bool done;
} look;

static void take_look(trmi_shard_thread *runner, trmi_request *r) {
    look *l = (look *)r;
    l->clock = runner->shard->clock;
    l->tick = runner->shard->tick;
}
static void end_look(trmi_request *r) { atomic_store(&((look *)r)->done, true); }

/* Reads the rows through the threads that own the shards. */
static void check_steps(const cluster *c, int64_t step) {
    for (int s = 0; s < c->servers; s++) {
        for (uint32_t i = 0; i < c->server[s]->shards; i++) {
            look l = {.request = {.run = take_look, .finish = end_look, .pending = 1}};
            assert_int_equal(trmi_queue_push(c->server[s]->runners[i].queue, &l.request), TRM_OK);
            while (!atomic_load(&l.done)) {
                usleep(1000);
            }
            assert_int_equal(l.clock, step);
            assert_int_equal(l.tick, step);
        }
    }
}

static int64_t step_of(trm_ps_server *server) {
    pthread_mutex_lock(&server->mutex);
    int64_t step = server->done_step;
    pthread_mutex_unlock(&server->mutex);
    return step;
}

/* ---- the interleavings ----------------------------------------------------------------------- */

/* Worker 1 dies when server 1 has its push, and server 0 has not. It comes back before worker 0
 * pushes. Without common steps server 1 would apply the dead worker's push, server 0 would not, and
 * the two would wait for each other. */
static void a_push_that_not_all_keep_is_in_no_step(void **state) {
    cluster c;
    worker w[2], dead;
    trm_error err;
    begin_job(&c, TRM_PS_SYNC, 2);
    join_worker(&c, &w[0], 0, false);
    CHECK_OK(borrow_lease(&w[0], &err), err);
    join_worker(&c, &dead, 1, true);
    CHECK_OK(borrow_lease(&dead, &err), err);
    assert_int_equal(use_lease(&dead, 2, &err), TRM_INTERNAL);
    kill_worker(&dead);
    join_worker(&c, &w[1], 1, false);
    CHECK_OK(use_lease(&w[0], 2, &err), err);
    CHECK_OK(borrow_lease(&w[1], &err), err);
    CHECK_OK(use_lease(&w[1], 2, &err), err);
    for (int n = 1; n < 5; n++) {
        CHECK_OK(use_lease(&w[0], 2, &err), err);
        CHECK_OK(use_lease(&w[1], 2, &err), err);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_ps_flush(w[i].client, &err), err);
        assert_int_equal(borrow_lease(&w[i], &err), TRM_END);
        leave_job(&w[i]);
    }
    check_rows(&c, SAMPLES);
    check_steps(&c, 5); /* all servers have the same sums */
    end_job(&c);
}

/* Rows of server 0 may overtake its message that the step is decided. A worker that then waited at
 * server 1, which waits for that message, would wait for its next poll: 0.2 s a step. */
static void the_step_is_heard_of_before_its_rows_are_waited_for(void **state) {
    cluster c;
    worker w;
    trm_error err;
    begin_job(&c, TRM_PS_SYNC, 1);
    join_worker(&c, &w, 0, false);
    atomic_store(&idle, 0);
    for (int n = 0; n < SAMPLES; n++) {
        if (n % (SAMPLES / 2) == 0) {
            CHECK_OK(borrow_lease(&w, &err), err);
        }
        CHECK_OK(use_lease(&w, 1, &err), err);
    }
    CHECK_OK(trm_ps_flush(w.client, &err), err);
    assert_in_range(atomic_load(&idle), 0, SAMPLES / 4); /* none on an idle machine */
    leave_job(&w);
    check_rows(&c, SAMPLES);
    end_job(&c);
}

/* The only worker dies before it has told server 1 of the step, and both servers die, too. The next
 * worker that requests samples learns that there are none, and brings the step. */
static void the_last_step_gets_everywhere(void **state) {
    cluster c;
    worker w;
    trm_error err;
    begin_job(&c, TRM_PS_SYNC, 1);
    join_worker(&c, &w, 0, false);
    for (int n = 0; n < 2; n++) {
        CHECK_OK(borrow_lease(&w, &err), err);
        CHECK_OK(use_lease(&w, SAMPLES / 2, &err), err);
    }
    while (step_of(c.server[0]) < 2) {
        usleep(1000);
    }
    kill_worker(&w);
    assert_int_equal(step_of(c.server[1]), 1);
    restart_server(&c, 0);
    restart_server(&c, 1);
    join_worker(&c, &w, 0, false);
    assert_int_equal(borrow_lease(&w, &err), TRM_END);
    leave_job(&w);
    check_rows(&c, SAMPLES);
    check_steps(&c, 2);
    end_job(&c);
}

/* Replaces the file that a server writes the log of leases to, and returns the one before. */
static int exchange_lease_log(trm_ps_server *server, int fd) {
    pthread_mutex_lock(&server->mutex);
    const int before = server->lease_fd;
    server->lease_fd = fd;
    pthread_mutex_unlock(&server->mutex);
    return before;
}

/* Server 0 decides a step while the log of leases has no room, and then has room again: the lease
 * of the step, whose samples are not marked as used, is not taken back, and a restart marks
 * them. */
static void samples_of_a_step_are_lent_once(void **state) {
    cluster c;
    worker w;
    trm_error err;
    (void)state;
    begin_job(&c, TRM_PS_SYNC, 1);
    join_worker(&c, &w, 0, false);
    CHECK_OK(borrow_lease(&w, &err), err);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    const int file = exchange_lease_log(c.server[0], full);
    CHECK_OK(use_lease(&w, SAMPLES / 2, &err), err);
    while (step_of(c.server[0]) < 1) {
        usleep(1000);
    }
    close(exchange_lease_log(c.server[0], file));
    pthread_mutex_lock(&c.server[0]->mutex);
    CHECK_FAILS(trmi_lease_drop_worker(c.server[0]->leases, 0, &err), TRM_NOSPACE, err,
                "leases.log");
    pthread_mutex_unlock(&c.server[0]->mutex);
    kill_worker(&w);
    restart_server(&c, 0);
    join_worker(&c, &w, 0, false);
    CHECK_OK(borrow_lease(&w, &err), err);
    assert_int_equal(w.lease.begin, SAMPLES / 2);
    CHECK_OK(use_lease(&w, SAMPLES / 2, &err), err);
    while (step_of(c.server[0]) < 2) {
        usleep(1000);
    }
    assert_int_equal(borrow_lease(&w, &err), TRM_END);
    leave_job(&w);
    check_rows(&c, SAMPLES);
    check_steps(&c, 2);
    end_job(&c);
}

/* The snapshot contains the step on all servers, even on a server that has not received the
 * message. */
static void a_checkpoint_brings_the_steps(void **state) {
    cluster c;
    worker w, chief;
    trm_error err;
    trm_ps_checkpoint_result result;
    begin_job(&c, TRM_PS_SYNC, 1);
    join_worker(&c, &w, 0, false);
    CHECK_OK(borrow_lease(&w, &err), err);
    CHECK_OK(use_lease(&w, SAMPLES / 2, &err), err);
    while (step_of(c.server[0]) < 1) {
        usleep(1000);
    }
    assert_int_equal(step_of(c.server[1]), 0);
    join_worker(&c, &chief, -1, false);
    CHECK_OK(trm_ps_checkpoint(chief.client, false, &result, &err), err);
    leave_job(&chief);
    kill_worker(&w);
    trm_ps_server_stop(c.server[1]);
    trm_ps_server_stop(c.server[0]);
    /* Loads the snapshot alone on one server. */
    c.servers = 1;
    c.options.shards = 3;
    start_server(&c, 0);
    check_rows(&c, SAMPLES / 2);
    join_worker(&c, &w, 0, false);
    CHECK_OK(borrow_lease(&w, &err), err);
    assert_int_equal(w.lease.begin, SAMPLES / 2);
    CHECK_OK(use_lease(&w, SAMPLES / 2, &err), err);
    CHECK_OK(trm_ps_flush(w.client, &err), err);
    assert_int_equal(borrow_lease(&w, &err), TRM_END);
    leave_job(&w);
    check_rows(&c, SAMPLES);
    end_job(&c);
}

/* The servers do not wait for a worker without samples, and wait for it as soon as it has some,
 * also after deaths of workers and servers. */
static void who_has_no_samples_is_not_waited_for(void **state) {
    cluster c;
    worker w[2];
    trm_error err;
    begin_job(&c, TRM_PS_SYNC, 2);
    for (int i = 0; i < 2; i++) {
        join_worker(&c, &w[i], i, false);
        CHECK_OK(borrow_lease(&w[i], &err), err);
    }
    CHECK_OK(use_lease(&w[0], 1, &err), err);
    CHECK_OK(use_lease(&w[1], SAMPLES / 2, &err), err);
    assert_int_equal(borrow_lease(&w[1], &err), TRM_PENDING);
    for (int life = 0; life < 3; life++) {
        CHECK_OK(use_lease(&w[0], 1, &err), err);
        CHECK_OK(trm_ps_flush(w[0].client, &err), err);
        restart_server(&c, 0);
        restart_server(&c, 1);
    }
    /* its six other samples go to worker 1; its connection is older than the restart */
    CHECK_OK(trm_ps_leave(w[0].client, &err), err);
    leave_job(&w[0]);
    CHECK_OK(borrow_lease(&w[1], &err), err);
    assert_int_equal(w[1].lease.begin, 4);
    restart_server(&c, 0);
    join_worker(&c, &w[0], 0, false);
    assert_int_equal(borrow_lease(&w[0], &err), TRM_PENDING);
    CHECK_OK(use_lease(&w[1], 6, &err), err);
    CHECK_OK(trm_ps_flush(w[1].client, &err), err);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(borrow_lease(&w[i], &err), TRM_END);
        leave_job(&w[i]);
    }
    check_rows(&c, SAMPLES);
    end_job(&c);
}

/* Of two workers the slower one is a backup: the other makes its steps alone. Later steps contain
 * the slow worker's samples exactly once. A server that restarts in between remembers its
 * decisions. */
static void backup_workers_push_late(void **state) {
    cluster c;
    worker w[2];
    trm_error err;
    begin_job(&c, TRM_PS_SYNC, 2);
    c.options.backup_workers = 1;
    for (int s = 0; s < SERVERS; s++) {
        restart_server(&c, s);
    }
    for (int i = 0; i < 2; i++) {
        join_worker(&c, &w[i], i, false);
        CHECK_OK(borrow_lease(&w[i], &err), err);
    }
    CHECK_OK(use_lease(&w[0], SAMPLES / 4, &err), err);
    CHECK_OK(use_lease(&w[1], 1, &err), err);
    restart_server(&c, 1);
    CHECK_OK(use_lease(&w[0], SAMPLES / 4, &err), err);
    CHECK_OK(trm_ps_flush(w[0].client, &err), err);
    restart_server(&c, 0);
    CHECK_OK(use_lease(&w[1], SAMPLES / 2 - 1, &err), err);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_ps_flush(w[i].client, &err), err);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(borrow_lease(&w[i], &err), TRM_END);
        leave_job(&w[i]);
    }
    check_rows(&c, SAMPLES);
    end_job(&c);
}

/* A process starts while a message of its predecessor is still under way. With equal incarnations
 * the server would take the new push for the old one. */
static void no_two_lives_are_the_same(void **state) {
    cluster c;
    worker life[4];
    trm_error err;
    begin_job(&c, TRM_PS_ASYNC, 1);
    for (int i = 0; i < 4; i++) {
        if (i > 1) { /* no push yet: only the granted lease shows that there was a life */
            restart_server(&c, 0);
            restart_server(&c, 1);
        }
        join_worker(&c, &life[i], 0, false);
        assert_int_equal(life[i].client->incarnation, i + 1);
    }
    for (int i = 0; i < 4; i++) { /* the last messages of the old life arrive first */
        uint64_t key = (uint64_t)i;
        const float gradient = -1;
        CHECK_OK(trm_ps_batch_add(life[i].batch, life[i].table, &key, 1, NULL, &gradient, &err),
                 err);
        CHECK_OK(trm_ps_push(life[i].batch, NULL, &err), err);
        CHECK_OK(trm_ps_flush(life[i].client, &err), err);
    }
    check_rows(&c, 4);
    for (int i = 0; i < 4; i++) {
        kill_worker(&life[i]);
    }
    end_job(&c);
}

typedef struct waiting {
    worker *w;
    trm_status status;
    trm_error err;
} waiting;

static void *pull_next(void *context) {
    waiting *p = context;
    uint64_t key = 1;
    float row;
    trm_ps_batch_clear(p->w->batch);
    p->status = trm_ps_batch_add(p->w->batch, p->w->table, &key, 1, &row, NULL, &p->err);
    p->status = p->status == TRM_OK ? trm_ps_pull_start(p->w->batch, &p->err) : p->status;
    p->status = p->status == TRM_OK ? trm_ps_pull_wait(p->w->batch, &p->err) : p->status;
    return NULL;
}

/* The connection to server 1 breaks while worker 0 waits at server 0: the repeated request to
 * server 1 has the full deadline again. */
static void a_pull_keeps_its_time(void **state) {
    cluster c;
    worker w[2];
    trm_error err;
    waiting p;
    pthread_t thread;
    const uint64_t key = 1;
    const float gradient = -1; /* read when it is pushed */
    float row;
    begin_job(&c, TRM_PS_SYNC, 2);
    for (int i = 0; i < 2; i++) {
        join_worker(&c, &w[i], i, false);
        CHECK_OK(trm_ps_batch_add(w[i].batch, w[i].table, &key, 1, &row, &gradient, &err), err);
        CHECK_OK(trm_ps_pull_start(w[i].batch, &err), err);
        CHECK_OK(trm_ps_pull_wait(w[i].batch, &err), err);
    }
    CHECK_OK(trm_ps_push(w[0].batch, NULL, &err), err);
    p = (waiting){.w = &w[0]};
    assert_int_equal(pthread_create(&thread, NULL, pull_next, &p), 0);
    usleep(300000);
    atomic_store(&breaks, true);
    usleep(2000000);
    CHECK_OK(trm_ps_push(w[1].batch, NULL, &err), err);
    CHECK_OK(trm_ps_flush(w[1].client, &err), err);
    pthread_join(thread, NULL);
    atomic_store(&breaks, false);
    CHECK_OK(p.status, p.err);
    assert_int_equal(w[0].client->peers[1].reconnects, 1);
    for (int i = 0; i < 2; i++) {
        leave_job(&w[i]);
    }
    end_job(&c);
}

/* ---- one shard ------------------------------------------------------------------------------- */

static trmi_shard *new_shard(const char *log) {
    trm_error err;
    trmi_shard *shard;
    CHECK_OK(trmi_shard_create(1 << 22, &(trmi_row_table_place){.shards = 1}, 0, &shard, &err),
             err);
    if (log == NULL) {
        return shard;
    }
    CHECK_OK(trmi_shard_log_open(shard, NULL, log, false, &err), err);
    CHECK_OK(trmi_shard_add_table(shard, &counts, &err), err);
    return shard;
}

static void stage_push(trmi_shard *shard, trmi_push_id id, uint64_t key, float gradient) {
    trm_error err;
    trmi_ps_section section = {.count = 1, .keys = &key, .values = (uint8_t *)&gradient};
    trmi_push push = {.ids = &id,
                      .id_count = 1,
                      .rate_scale = 1,
                      .dtype = TRM_FLOAT32,
                      .sections = &section,
                      .section_count = 1,
                      .form = TRMI_PUSH_STAGED};
    CHECK_OK(trmi_shard_stage(shard, &push, &err), err);
}

static trm_status run_step(trmi_shard *shard, int64_t number, const trmi_push_id *ids,
                           uint32_t count, trm_error *err) {
    trmi_push push = {
        .ids = ids, .id_count = count, .time = 1, .clock = number, .gradient_scale = 1};
    return trmi_shard_step(shard, &push, err);
}

static float row_of(const trmi_shard *shard, uint64_t key) {
    trm_row_info info;
    float value = 0;
    (void)!trmi_row_table_peek(shard->tables[0], key, &info, &value, NULL);
    return value;
}

/* A new generation of the log begins with the staged pushes. A step is applied once, obsolete
 * pushes are removed, and a step with a push that is missing is an error. */
static void a_shard_keeps_what_is_staged(void **state) {
    char folder[] = "/tmp/ps-step-XXXXXX", path[2][96];
    const trmi_push_id old = {1, 1, 1}, ids[2] = {{0, 1, 1}, {1, 2, 1}}, late = {0, 1, 2};
    trm_error err;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/log-%d", folder, i);
    }
    trmi_shard *shard = new_shard(path[0]);
    stage_push(shard, old, 5, -100);
    for (int i = 0; i < 2; i++) {
        stage_push(shard, ids[i], 5, -1 - (float)i);
        stage_push(shard, ids[i], 5, -50); /* the same push again */
    }
    stage_push(shard, late, 6, -1);
    CHECK_OK(trmi_shard_log_open(shard, NULL, path[1], false, &err), err);
    CHECK_OK(run_step(shard, 1, ids, 2, &err), err);
    CHECK_OK(run_step(shard, 1, ids, 2, &err), err);
    stage_push(shard, ids[0], 5, -50); /* and after its step */
    for (int life = 0; life < 2; life++) {
        assert_true(row_of(shard, 5) == 3);
        assert_int_equal(shard->clock, 1);
        assert_int_equal(shard->tick, 1);
        assert_non_null(shard->staged); /* the late push, alone */
        assert_null(shard->staged->next);
        assert_int_equal(shard->staged->id.sequence, 2);
        trmi_shard_destroy(shard);
        shard = new_shard(NULL);
        int64_t pushes = 0, valid;
        CHECK_OK(trmi_shard_replay(shard, path[1], &pushes, &valid, &err), err);
        CHECK_OK(trmi_shard_apply_held(shard, &pushes, &err), err);
        assert_int_equal(pushes, 1);
    }
    CHECK_OK(run_step(shard, 2, &late, 1, &err), err);
    assert_true(row_of(shard, 6) == 1);
    CHECK_FAILS(run_step(shard, 3, &(trmi_push_id){1, 2, 2}, 1, &err), TRM_CORRUPT, err,
                "is missing");
    /* it serves no more */
    CHECK_FAILS(run_step(shard, 3, &late, 1, &err), TRM_CORRUPT, err, "is missing");
    trmi_shard_destroy(shard);
    CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_keeps_what_is_staged),
        cmocka_unit_test(a_push_that_not_all_keep_is_in_no_step),
        cmocka_unit_test(the_step_is_heard_of_before_its_rows_are_waited_for),
        cmocka_unit_test(the_last_step_gets_everywhere),
        cmocka_unit_test(samples_of_a_step_are_lent_once),
        cmocka_unit_test(a_checkpoint_brings_the_steps),
        cmocka_unit_test(who_has_no_samples_is_not_waited_for),
        cmocka_unit_test(backup_workers_push_late),
        cmocka_unit_test(no_two_lives_are_the_same),
        cmocka_unit_test(a_pull_keeps_its_time),
    };
    return cmocka_run_group_tests_name("ps steps", tests, NULL, NULL);
}
