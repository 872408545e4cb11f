/* SPDX-License-Identifier: Apache-2.0 */
/* A synchronous job is killed as a whole in the middle of a step, so that some shards have logged
 * it and others have not: after a restart the rows are those of a job that was not killed. */
#include "folder.h"
#include "servers.h"
#include "table_worker.h"

#include "base/error.h"
#include "ps/server/server.h"

#include <unistd.h>

enum { SHARDS = 2, SERVERS_MAX = 2, WORKERS_MAX = 2, STEPS = 7 };

typedef struct job {
    int servers, workers;
    trm_dtype wire;
    const char *folder;
    trm_ps_server *server[SERVERS_MAX];
    table_worker worker[WORKERS_MAX];
} job;

static void start_server(job *j) {
    servers_start(j->server, j->servers,
                  (trm_ps_server_options){.shards = SHARDS,
                                          .mode = TRM_PS_SYNC,
                                          .workers = j->workers,
                                          .folder = j->folder,
                                          .log_pushes = TRM_ON});
}

static void join_worker(job *j, int number) {
    const trm_ps_client_options o = {.local = j->server,
                                     .servers = j->servers,
                                     .worker = number,
                                     .wire = j->wire,
                                     .ring_bytes = 1 << 18};
    table_worker *w = &j->worker[number];
    trm_error err;
    *w = (table_worker){0};
    CHECK_OK(trm_ps_client_create(&o, &w->client, &err), err);
    worker_open(w);
}

/* Batches of all workers, until each has made `steps`. */
static void train_steps(job *j, int64_t steps) {
    trm_error err;
    for (int64_t step = 0; step < steps; step++) {
        bool makes[WORKERS_MAX] = {false};
        for (int n = 0; n < j->workers; n++) {
            makes[n] = trm_ps_client_next_batch(j->worker[n].client) == step;
            if (makes[n]) {
                worker_compute(&j->worker[n], n, step);
            }
        }
        for (int n = 0; n < j->workers; n++) {
            if (makes[n]) {
                CHECK_OK(trm_ps_push(j->worker[n].batch, NULL, &err), err);
            }
        }
    }
    for (int n = 0; n < j->workers; n++) {
        assert_int_equal(trm_ps_client_next_batch(j->worker[n].client), steps);
        CHECK_OK(trm_ps_flush(j->worker[n].client, &err), err);
    }
}

static void stop_servers(job *j) {
    for (int s = 0; s < j->servers; s++) {
        trm_ps_server_stop(j->server[s]);
    }
}

/* All processes die; the shards whose bit is set have not logged the last step. */
static void kill_all(job *j, unsigned lost) {
    for (int n = 0; n < j->workers; n++) {
        worker_die(&j->worker[n]);
    }
    stop_servers(j);
    for (int i = 0; i < j->servers * SHARDS; i++) {
        if ((lost >> i & 1) != 0) {
            lose_last_push(j->folder, (job_shard){i / SHARDS, j->servers, i % SHARDS, SHARDS});
        }
    }
}

static void join_all(job *j) {
    for (int n = 0; n < j->workers; n++) {
        join_worker(j, n);
    }
}

/* `kills` kills after step `fatal`; after the first, each comes when the restarted job has
 * begun. */
static void run_lives(int servers, int workers, trm_dtype wire, int fatal, int kills, unsigned lost,
                      float rows[KEYS * WIDTH]) {
    job j = {.servers = servers, .workers = workers, .wire = wire, .folder = in_folder("job")};
    trm_error err;
    start_server(&j);
    join_all(&j);
    for (int k = 0; k < kills; k++) {
        train_steps(&j, fatal);
        /* Later kills lose the step on other shards. */
        kill_all(&j, k == 0 ? lost : (lost * 5 + 3 * (unsigned)k) % (1u << servers * SHARDS));
        start_server(&j);
        join_all(&j);
    }
    train_steps(&j, STEPS);
    worker_read_all(&j.worker[0], rows);
    kill_all(&j, 0);
    CHECK_OK(trmi_os_remove_tree(NULL, j.folder, &err), err);
}

static void each_step_on_each_set_of_shards(void **state) {
    static float rows[KEYS * WIDTH], expected[KEYS * WIDTH];
    for (int servers = 1; servers <= SERVERS_MAX; servers++) {
        for (int workers = 1; workers <= WORKERS_MAX; workers++) {
            run_lives(servers, workers, TRM_FLOAT32, 0, 0, 0, expected);
            for (int fatal = 1; fatal < STEPS; fatal += fatal < 3 ? 1 : 3) {
                for (unsigned lost = 0; lost < 1u << servers * SHARDS; lost++) {
                    run_lives(servers, workers, TRM_FLOAT32, fatal, 1 + (fatal == 2), lost, rows);
                    assert_memory_equal(rows, expected, sizeof rows);
                }
            }
        }
    }
}

static void gradients_of_16_bits_are_rounded_alike(void **state) {
    static float rows[KEYS * WIDTH], expected[KEYS * WIDTH];
    run_lives(2, 2, TRM_BFLOAT16, 0, 0, 0, expected);
    run_lives(2, 2, TRM_BFLOAT16, 3, 1, 1, rows);
    assert_memory_equal(rows, expected, sizeof rows);
}

/* The restarted job saves before it makes a step, as one that is stopped at once or has made its
 * steps already: the read returns the rows of the step before, and later steps are the same. */
static void a_restarted_job_saves_before_its_first_step(void **state) {
    static float rows[KEYS * WIDTH], before[KEYS * WIDTH], expected[KEYS * WIDTH];
    for (int workers = 1; workers <= WORKERS_MAX; workers++) {
        run_lives(2, workers, TRM_FLOAT32, 0, 0, 0, expected);
        for (int kills = 1; kills <= 2; kills++) {
            job j = {
                .servers = 2, .workers = workers, .wire = TRM_FLOAT32, .folder = in_folder("job")};
            trm_ps_checkpoint_result result;
            trm_error err;
            start_server(&j);
            join_all(&j);
            train_steps(&j, 2);
            worker_read_all(&j.worker[0], before);
            train_steps(&j, 3);
            kill_all(&j, 1u << SHARDS); /* server 0 has step 3, a shard of server 1 has not */
            start_server(&j);
            join_all(&j);
            CHECK_OK(trm_ps_checkpoint(j.worker[0].client, true, &result, &err), err);
            worker_read_all(&j.worker[0], rows);
            assert_memory_equal(rows, before, sizeof rows);
            if (kills == 2) { /* the snapshot that was taken in between is whole */
                kill_all(&j, 0);
                start_server(&j);
                join_all(&j);
            }
            train_steps(&j, STEPS);
            worker_read_all(&j.worker[0], rows);
            assert_memory_equal(rows, expected, sizeof rows);
            kill_all(&j, 0);
            CHECK_OK(trmi_os_remove_tree(NULL, j.folder, &err), err);
        }
    }
}

/* Two servers have an undecided step, and a life of the worker that they do not know goes on after
 * it: it began before they were started again. Its first message says so, and the beginning of this
 * life, which that message shows, too, does not take it back; that of the next one does. */
static void the_first_message_of_a_life_may_be_its_report(void **state) {
    static const trmi_ps_kind kinds[] = {TRMI_PS_PUSH, TRMI_PS_PULL};
    job j = {.servers = 2, .workers = 1, .wire = TRM_FLOAT32, .folder = in_folder("job")};
    trm_error err;
    (void)state;
    start_server(&j);
    join_all(&j);
    train_steps(&j, 2);
    kill_all(&j, 0);
    start_server(&j);
    for (uint32_t i = 0; i < 2; i++) {
        trm_ps_server *server = j.server[i];
        const trmi_request r = {
            .header = {.kind = (uint16_t)kinds[i], .incarnation = 3, .clock = 3}};
        assert_int_equal(server->last.step, 2);
        pthread_mutex_lock(&server->mutex);
        trmi_last_step_note_message(server, &r);
        assert_non_null(trmi_front_worker(server, 0, 3, &err));
        assert_true(server->last.members[0].is_final);
        assert_non_null(trmi_front_worker(server, 0, 4, &err));
        assert_false(server->last.members[0].is_final);
        /* a life that is owed nothing says with which batch it began */
        trmi_request begun = {.header = {.kind = TRMI_PS_CONTROL, .incarnation = 4},
                              .note = {.value = {TRMI_ORDER_PUSHED, 0, 1}}};
        trmi_last_step_note_message(server, &begun);
        assert_false(server->last.members[0].is_final);
        begun.note.value[2] = 2;
        trmi_last_step_note_message(server, &begun);
        assert_true(server->last.members[0].is_final);
        pthread_mutex_unlock(&server->mutex);
    }
    stop_servers(&j);
    CHECK_OK(trmi_os_remove_tree(NULL, j.folder, &err), err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_on_each_set_of_shards),
        cmocka_unit_test(gradients_of_16_bits_are_rounded_alike),
        cmocka_unit_test(a_restarted_job_saves_before_its_first_step),
        cmocka_unit_test(the_first_message_of_a_life_may_be_its_report),
    };
    return cmocka_run_group_tests_name("ps the last step of the logs", tests, make_folder,
                                       remove_folder);
}
