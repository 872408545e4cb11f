/* SPDX-License-Identifier: Apache-2.0 */
/* A synchronous worker and a server die together in the middle of a step, which another server has
 * applied. The live server goes back to the rows of the step before, and the final rows are those
 * of an undisturbed job. */
#include "folder.h"
#include "servers.h"
#include "table_worker.h"
#include "wrapped_channel.h"

#include "base/error.h"
#include "ps/server/server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SHARDS = 2, SERVERS = 2, SERVERS_MAX = 3, WORKERS_MAX = 2, STEPS = 6 };

/* A server and the thread that starts it again when it has to go back. */
typedef struct keeper {
    trm_ps_server_options options; /* of the next start */
    char address[96];              /* chosen at the first start, then kept */
    pthread_t thread;
    _Atomic bool kill;    /* the test asks for the server's death */
    _Atomic int restarts; /* starts, the first one included */
} keeper;

typedef struct worker {
    struct job *job;
    int number;
    table_worker of;
} worker;

typedef struct job {
    int workers, server_count;
    bool together; /* workers compute together */
    keeper servers[SERVERS_MAX];
    worker worker[WORKERS_MAX];
} job;

/* ---- servers ---- */

static void *keep_server(void *context) {
    keeper *k = context;
    for (;;) {
        trm_ps_server *server = server_start(k->options);
        if (k->options.listen != k->address) { /* the first life: the port stays */
            snprintf(k->address, sizeof k->address, "%s", trm_ps_server_address(server));
            k->options.listen = k->address;
        }
        atomic_fetch_add(&k->restarts, 1);
        trm_status status;
        do {
            status = trm_ps_server_wait(server, 0.01);
        } while (status == TRM_TIMEOUT && !atomic_load(&k->kill));
        atomic_store(&server->goes_back, true); /* a process that is killed answers nothing */
        trm_ps_server_stop(server);
        if (status != TRM_PENDING) {
            return NULL;
        }
    }
}

static void start_keeper(keeper *k) {
    const int before = atomic_load(&k->restarts);
    atomic_store(&k->kill, false);
    assert_int_equal(pthread_create(&k->thread, NULL, keep_server, k), 0);
    while (atomic_load(&k->restarts) == before) {
        usleep(1000);
    }
}

static void stop_keeper(keeper *k) {
    atomic_store(&k->kill, true);
    pthread_join(k->thread, NULL);
}

/* ---- messages that are lost ---- */

/* A worker dies before it tells a server that all have its push. */

typedef struct fate {
    bool awaits, dead; /* awaits: it dies at the next PUSHED to a server other than 0 */
} fate;
static fate ahead;

static trm_status die_before_others_are_told(wrapped_channel *channel, const trmi_message *m,
                                             trm_error *err) {
    if (ahead.dead || (ahead.awaits && server_of(channel) != 0 && is_order(m, TRMI_ORDER_PUSHED))) {
        ahead.dead = true;
        return TRMI_FAIL(err, TRM_CANCELLED, "this process is dead");
    }
    return TRM_OK;
}

/* Of the two servers' answers to worker n that of server n is lost: nothing arrives from it, and
 * then both connections break. */
static _Atomic bool loses_answers;
static _Atomic int breaks; /* connections made before the last break are broken */

static trm_status lose_answer(wrapped_channel *channel, trm_error *err) {
    const worker *w = channel->context;
    if (channel->left < atomic_load(&breaks)) {
        return TRMI_FAIL(err, TRM_PEER, "this connection is broken");
    }
    if (atomic_load(&loses_answers) && server_of(channel) == w->number) {
        usleep(1000);
        return TRMI_FAIL(err, TRM_TIMEOUT, "nothing arrives");
    }
    return TRM_OK;
}

static trmi_channel *watch_channel(void *context, trmi_channel *channel) {
    const worker *w = context;
    const channel_hooks hooks = {.before_send = w->number == 0 ? die_before_others_are_told : NULL,
                                 .before_receive = lose_answer};
    wrapped_channel *watched = wrap_channel(channel, hooks, context);
    watched->left = atomic_load(&breaks);
    return &watched->base;
}

/* ---- workers ---- */

static bool none_is_lost(void *context) {
    (void)context;
    return false;
}

static void join_worker(worker *w) {
    const char *addresses[SERVERS_MAX];
    const int servers = w->job->server_count;
    trm_error err;
    for (int s = 0; s < servers; s++) {
        addresses[s] = w->job->servers[s].address;
    }
    const trm_ps_client_options o = {.addresses = addresses,
                                     .servers = servers,
                                     .worker = w->number,
                                     .tcp_only = true,
                                     .lost = w->job->together ? none_is_lost : NULL,
                                     .timeout_seconds = 60 * check_patience()};
    CHECK_OK(trmi_client_create_wrapped(&o, watch_channel, w, &w->of.client, &err), err);
    worker_open(&w->of);
}

/* Returns the batch that the worker makes next. */
static int64_t next_batch(const worker *w) { return trm_ps_client_next_batch(w->of.client); }

static void compute_batch(worker *w) { worker_compute(&w->of, w->number, next_batch(w)); }

static void make_steps(worker *w, int64_t until) {
    trm_error err;
    while (next_batch(w) < until) {
        compute_batch(w);
        CHECK_OK(trm_ps_push(w->of.batch, NULL, &err), err);
    }
    CHECK_OK(trm_ps_flush(w->of.client, &err), err);
}

/* Pushes, and dies when server 0 has the push and before another server is told. The servers then
 * have `seconds` for what they have received. */
static void push_and_die(worker *w, double seconds) {
    trm_error err;
    ahead.awaits = true;
    (void)!trm_ps_push(w->of.batch, NULL, &err);
    assert_true(ahead.dead);
    ahead.awaits = ahead.dead = false;
    usleep((useconds_t)(1e6 * seconds * check_patience()));
    worker_die(&w->of);
}

static void restart_keeper(keeper *k) {
    stop_keeper(k);
    start_keeper(k);
}

static void *run_worker_1(void *context) {
    make_steps(context, STEPS);
    return NULL;
}

static void *flush_worker(void *context) {
    trm_error err;
    CHECK_OK(trm_ps_flush(((worker *)context)->of.client, &err), err);
    return NULL;
}

/* ---- jobs ---- */

static void begin_job(job *j, int servers, int workers, bool together) {
    *j = (job){.workers = workers, .server_count = servers, .together = together};
    ahead = (fate){0};
    for (int s = 0; s < servers; s++) {
        j->servers[s].options = (trm_ps_server_options){.server = s,
                                                        .servers = servers,
                                                        .shards = SHARDS,
                                                        .listen = "127.0.0.1:0",
                                                        .folder = in_folder("job"),
                                                        .log_pushes = TRM_ON,
                                                        .mode = TRM_PS_SYNC,
                                                        .workers = workers};
        start_keeper(&j->servers[s]);
    }
    for (int n = 0; n < workers; n++) {
        j->worker[n].job = j;
        j->worker[n].number = n;
        join_worker(&j->worker[n]);
    }
}

static void begin_usual_job(job *j, int workers) { begin_job(j, SERVERS, workers, false); }

static void end_job(job *j, float rows[KEYS * WIDTH]) {
    trm_error err;
    worker_read_all(&j->worker[0].of, rows);
    for (int n = 0; n < j->workers; n++) {
        worker_die(&j->worker[n].of);
    }
    for (int s = 0; s < j->server_count; s++) {
        stop_keeper(&j->servers[s]);
    }
    CHECK_OK(trmi_os_remove_tree(NULL, in_folder("job"), &err), err);
}

/* Worker 0 dies in step `fatal`, which server 0 has applied; server 1 dies with it. Worker 0 makes
 * the step again, and server 0 goes back by it. */
static void lose_step(job *j, int fatal) {
    worker *w = &j->worker[0];
    make_steps(w, fatal - 1);
    compute_batch(w);
    push_and_die(w, 0.3); /* server 0 applies the step */
    restart_keeper(&j->servers[1]);
    join_worker(w);
    assert_int_equal(next_batch(w), fatal - 1);
    assert_int_equal(atomic_load(&j->servers[0].restarts), 2);
}

/* Checks that jobs with a failure in one of the steps `first`, first + 2, ... end with the rows of
 * one without (step `calm`). */
static void compare_with_calm_job(void (*run)(int fatal, float rows[KEYS * WIDTH]), int calm,
                                  int first) {
    static float rows[KEYS * WIDTH], expected[KEYS * WIDTH];
    run(calm, expected);
    for (int fatal = first; fatal < STEPS; fatal += 2) {
        run(fatal, rows);
        assert_memory_equal(rows, expected, sizeof rows);
    }
}

/* Runs a job of one worker: it and server `dead` die after step `fatal`, which the shards of that
 * server whose bit is set in `lost` have not logged. */
static void run_alone(int fatal, int dead, unsigned lost, float rows[KEYS * WIDTH]) {
    static job j;
    begin_usual_job(&j, 1);
    if (fatal > 0) {
        make_steps(&j.worker[0], fatal);
        worker_die(&j.worker[0].of);
        stop_keeper(&j.servers[dead]);
        for (int shard = 0; shard < SHARDS; shard++) {
            if ((lost >> shard & 1) != 0) {
                lose_last_push(in_folder("job"), (job_shard){dead, SERVERS, shard, SHARDS});
            }
        }
        start_keeper(&j.servers[dead]);
        join_worker(&j.worker[0]);
        assert_int_equal(next_batch(&j.worker[0]), fatal - 1);
        assert_int_equal(atomic_load(&j.servers[!dead].restarts), 2);
    }
    make_steps(&j.worker[0], STEPS);
    end_job(&j, rows);
}

static void the_only_worker_and_a_server(void **state) {
    static float rows[KEYS * WIDTH], expected[KEYS * WIDTH];
    (void)state;
    run_alone(0, 0, 0, expected);
    for (int fatal = 1; fatal < STEPS; fatal += 2) {
        for (int dead = 0; dead < SERVERS; dead++) {
            for (unsigned lost = 1; lost < 1u << SHARDS; lost++) {
                run_alone(fatal, dead, lost, rows);
                assert_memory_equal(rows, expected, sizeof rows);
            }
        }
    }
}

/* Two workers: worker 0 dies when server 0 has its push of step `fatal` and forms the step, and
 * server 1, which does not know that, dies with it. Worker 1 lives on, its push unanswered. */
static void run_together(int fatal, float rows[KEYS * WIDTH]) {
    static job j;
    pthread_t other;
    begin_usual_job(&j, 2);
    assert_int_equal(pthread_create(&other, NULL, run_worker_1, &j.worker[1]), 0);
    if (fatal > 0) {
        lose_step(&j, fatal);
    }
    make_steps(&j.worker[0], STEPS);
    pthread_join(other, NULL);
    end_job(&j, rows);
}

static void a_worker_and_a_server_while_others_live(void **state) {
    (void)state;
    compare_with_calm_job(run_together, 0, 2);
}

/* The same, but no server has worker 1's push of that step yet, so that no step is formed. It comes
 * when worker 0 lives again, and before worker 0 reads rows: it must not form the step with the
 * push of worker 0's earlier life. */
static void run_with_late_push(int fatal, float rows[KEYS * WIDTH]) {
    static job j;
    trm_error err;
    begin_usual_job(&j, 2);
    worker *dies = &j.worker[0], *lives = &j.worker[1];
    for (int64_t step = 0; step < STEPS; step++) {
        compute_batch(dies);
        compute_batch(lives);
        if (step == fatal) {
            push_and_die(dies, 0.1); /* server 0 reads what was sent */
            restart_keeper(&j.servers[1]);
            join_worker(dies);
            assert_int_equal(next_batch(dies), step);
        }
        CHECK_OK(trm_ps_push(lives->of.batch, NULL, &err), err);
        if (step == fatal) {
            pthread_t other; /* connects to the server that was started again */
            assert_int_equal(pthread_create(&other, NULL, flush_worker, lives), 0);
            usleep((useconds_t)(300000 * check_patience())); /* a step could be formed */
            compute_batch(dies);
            CHECK_OK(trm_ps_push(dies->of.batch, NULL, &err), err);
            pthread_join(other, NULL);
            continue;
        }
        CHECK_OK(trm_ps_push(dies->of.batch, NULL, &err), err);
    }
    CHECK_OK(trm_ps_flush(lives->of.client, &err), err);
    CHECK_OK(trm_ps_flush(dies->of.client, &err), err);
    end_job(&j, rows);
}

static void a_push_of_an_earlier_life_forms_no_step(void **state) {
    (void)state;
    compare_with_calm_job(run_with_late_push, -1, 1);
}

/* Worker 1 has its rows and waits for worker 0, which needs rows of a server that has been started
 * again: that server must not wait for worker 1 to say whether it keeps the last step. */
static void run_with_silent_worker(int fatal, float rows[KEYS * WIDTH]) {
    static job j;
    trm_error err;
    begin_job(&j, SERVERS, 2, true);
    for (int64_t step = 0; step < STEPS; step++) {
        compute_batch(&j.worker[1]);
        if (step == fatal) {
            restart_keeper(&j.servers[1]);
        }
        compute_batch(&j.worker[0]);
        for (int n = 0; n < 2; n++) {
            CHECK_OK(trm_ps_push(j.worker[n].of.batch, NULL, &err), err);
        }
        pthread_t other; /* finds that its connection is broken */
        assert_int_equal(pthread_create(&other, NULL, flush_worker, &j.worker[1]), 0);
        CHECK_OK(trm_ps_flush(j.worker[0].of.client, &err), err);
        pthread_join(other, NULL);
    }
    end_job(&j, rows);
}

static void a_worker_that_others_wait_for_is_not_waited_for(void **state) {
    (void)state;
    compare_with_calm_job(run_with_silent_worker, -1, 1);
}

/* Worker 0 dies when all servers have its push and no step has it yet; its next life goes on
 * with the next batch. A server that is then started again must still have the push: no process
 * repeats it. */
static void run_with_kept_push(int fatal, int dead, float rows[KEYS * WIDTH]) {
    static job j;
    pthread_t other;
    trm_error err;
    begin_usual_job(&j, 2);
    worker *dies = &j.worker[0], *lives = &j.worker[1];
    for (int64_t step = 0; step < STEPS; step++) {
        compute_batch(dies);
        compute_batch(lives);
        CHECK_OK(trm_ps_push(dies->of.batch, NULL, &err), err);
        if (step == fatal) {
            usleep((useconds_t)(100000 * check_patience())); /* the servers read what was sent */
            worker_die(&dies->of);
            join_worker(dies);
            assert_int_equal(next_batch(dies), step + 1);
            restart_keeper(&j.servers[dead]);
        }
        CHECK_OK(trm_ps_push(lives->of.batch, NULL, &err), err);
        assert_int_equal(pthread_create(&other, NULL, flush_worker, lives), 0);
        CHECK_OK(trm_ps_flush(dies->of.client, &err), err);
        pthread_join(other, NULL);
    }
    end_job(&j, rows);
}

static void a_push_of_a_dead_worker_outlasts_its_server(void **state) {
    static float rows[KEYS * WIDTH], expected[KEYS * WIDTH];
    (void)state;
    run_with_kept_push(-1, 0, expected);
    for (int fatal = 1; fatal < STEPS; fatal += 2) {
        run_with_kept_push(fatal, fatal / 2 % SERVERS, rows);
        assert_memory_equal(rows, expected, sizeof rows);
    }
}

/* The only worker dies when server 0 has a step with its push and servers 1 and 2 do not know that
 * all have it. Server 1 dies with it. Its next life lets server 2 keep the push, which forms the
 * step there, and learns that server 1 has nothing: servers 0 and 2 go back by the step, once. */
static void run_with_given_up_push(int fatal, float rows[KEYS * WIDTH]) {
    static job j;
    begin_job(&j, SERVERS_MAX, 1, false);
    if (fatal > 0) {
        lose_step(&j, fatal);
        assert_int_equal(atomic_load(&j.servers[2].restarts), 2);
    }
    make_steps(&j.worker[0], STEPS);
    end_job(&j, rows);
}

static void a_kept_push_that_is_made_again_is_forgotten(void **state) {
    (void)state;
    compare_with_calm_job(run_with_given_up_push, 0, 1);
}

/* Computes a batch on a thread of its own. */
static void *compute_in_thread(void *context) {
    compute_batch(context);
    return NULL;
}

/* Each worker waits for the rows of another server when both servers die, and has those of the
 * other one. Each server, started again, waits for a report of both workers before it decides on
 * its last step, and so before it serves rows. */
static void run_with_two_dead_servers(int fatal, float rows[KEYS * WIDTH]) {
    static job j;
    pthread_t threads[2];
    trm_error err;
    begin_usual_job(&j, 2);
    for (int64_t step = 0; step < STEPS; step++) {
        atomic_store(&loses_answers, step == fatal);
        for (int n = 0; n < 2; n++) {
            assert_int_equal(pthread_create(&threads[n], NULL, compute_in_thread, &j.worker[n]), 0);
        }
        if (step == fatal) {
            usleep((useconds_t)(300000 * check_patience())); /* the other answers arrive */
            stop_keeper(&j.servers[0]);
            stop_keeper(&j.servers[1]);
            start_keeper(&j.servers[0]);
            start_keeper(&j.servers[1]);
            atomic_fetch_add(&breaks, 1);
            atomic_store(&loses_answers, false);
        }
        for (int n = 0; n < 2; n++) {
            pthread_join(threads[n], NULL);
            CHECK_OK(trm_ps_push(j.worker[n].of.batch, NULL, &err), err);
        }
    }
    for (int n = 0; n < 2; n++) {
        CHECK_OK(trm_ps_flush(j.worker[n].of.client, &err), err);
    }
    end_job(&j, rows);
}

static void two_dead_servers_do_not_wait_for_each_other(void **state) {
    (void)state;
    compare_with_calm_job(run_with_two_dead_servers, -1, 1);
}

/* Waits until a server has answered all pushes of a worker. */
static void await_answers(const worker *w, int server) {
    trmi_server_connection *peer = &w->of.client->peers[server];
    const double deadline = trmi_os_now() + 60 * check_patience();
    trm_error err;
    while (trmi_client_pushes_pending(peer) > 0) {
        CHECK_OK(trmi_client_progress(w->of.client, peer, deadline, &err), err);
    }
}

/* Waits until a worker has found that its connections are broken, and has told both servers on new
 * ones what it keeps. A message that had come before may be read first. */
static void await_reconnects(const worker *w, const int64_t before[SERVERS]) {
    const double deadline = trmi_os_now() + 60 * check_patience();
    trm_error err;
    for (int n = 0; n < SERVERS; n++) {
        trmi_server_connection *peer = &w->of.client->peers[n];
        while (peer->reconnects == before[n]) {
            CHECK_OK(trmi_client_progress(w->of.client, peer, deadline, &err), err);
        }
    }
}

/* Both workers have pushed the last step, which server 1 loses with its process. Server 0, started
 * again, learns that worker 0 keeps it and that worker 1, in a new life, has pushed it again: it
 * applies the step and answers worker 1. Then worker 0 and server 1 die, and server 0 goes back by
 * the step. Worker 1, which has its answer, does not push it to server 0 a third time, and
 * leaves. */
static void lose_answered_push(job *j) {
    worker *keeps = &j->worker[0], *repeats = &j->worker[1];
    pthread_t other;
    trm_error err;
    int64_t reconnects[SERVERS];
    for (int n = 0; n < SERVERS; n++) {
        reconnects[n] = keeps->of.client->peers[n].reconnects;
    }
    worker_die(&repeats->of);
    stop_keeper(&j->servers[1]);
    for (int shard = 0; shard < SHARDS; shard++) {
        lose_last_push(in_folder("job"), (job_shard){1, SERVERS, shard, SHARDS});
    }
    start_keeper(&j->servers[1]);
    restart_keeper(&j->servers[0]);
    await_reconnects(keeps, reconnects);
    join_worker(repeats);
    assert_int_equal(next_batch(repeats), STEPS - 1);
    compute_batch(repeats);
    CHECK_OK(trm_ps_push(repeats->of.batch, NULL, &err), err);
    await_answers(repeats, 0);

    worker_die(&keeps->of);
    restart_keeper(&j->servers[1]);
    join_worker(keeps);
    assert_int_equal(next_batch(keeps), STEPS - 1);
    assert_int_equal(atomic_load(&j->servers[0].restarts), 3);
    assert_int_equal(pthread_create(&other, NULL, flush_worker, repeats), 0);
    compute_batch(keeps);
    CHECK_OK(trm_ps_push(keeps->of.batch, NULL, &err), err);
    pthread_join(other, NULL);
    CHECK_OK(trm_ps_leave(repeats->of.client, &err), err);
    CHECK_OK(trm_ps_flush(keeps->of.client, &err), err);
}

static void an_answered_push_is_in_the_step(void **state) {
    static float rows[2][KEYS * WIDTH];
    static job j;
    trm_error err;
    (void)state;
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        begin_usual_job(&j, 2);
        for (int64_t step = 0; step < STEPS; step++) {
            for (int n = 0; n < 2; n++) {
                compute_batch(&j.worker[n]);
            }
            for (int n = 0; n < 2; n++) {
                CHECK_OK(trm_ps_push(j.worker[n].of.batch, NULL, &err), err);
            }
        }
        for (int n = 0; n < 2; n++) {
            CHECK_OK(trm_ps_flush(j.worker[n].of.client, &err), err);
        }
        if (disturbed) {
            lose_answered_push(&j);
        }
        end_job(&j, rows[disturbed]);
    }
    assert_memory_equal(rows[1], rows[0], sizeof rows[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_worker_and_a_server),
        cmocka_unit_test(a_worker_and_a_server_while_others_live),
        cmocka_unit_test(a_push_of_an_earlier_life_forms_no_step),
        cmocka_unit_test(a_worker_that_others_wait_for_is_not_waited_for),
        cmocka_unit_test(a_push_of_a_dead_worker_outlasts_its_server),
        cmocka_unit_test(a_kept_push_that_is_made_again_is_forgotten),
        cmocka_unit_test(two_dead_servers_do_not_wait_for_each_other),
        cmocka_unit_test(an_answered_push_is_in_the_step),
    };
    return cmocka_run_group_tests_name("ps servers that go back by a step", tests, make_folder,
                                       remove_folder);
}
