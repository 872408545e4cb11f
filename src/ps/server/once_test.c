/* SPDX-License-Identifier: Apache-2.0 */
/* Each push is applied exactly once on every shard of every server, although workers and servers
 * are killed at random moments: rows count pushes, and the book of leases agrees. The workers and
 * servers are processes.
 *
 * PS_KILL_LONG=n runs n rounds of each job with other seeds. PS_KILL_SEED=k selects further seeds,
 * so that copies can run side by side. */
#include "check.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "ps/server/lease.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SERVERS = 2, WORKERS = 3, BATCH = 10, KEYS = 64, OWN_KEYS = 24 };

/* One job: its options, and which processes are killed. */
typedef struct job {
    const char *name;
    trm_ps_mode mode;
    int staleness;
    bool lent; /* samples come from leases; else each worker has a fixed number of batches */
    int samples, lease;     /* of an epoch, of one lease */
    int epochs;             /* with leases */
    int batches;            /* without */
    int kills;              /* of a random process each */
    int pause_microseconds; /* at most, between kills */
    bool stop_a_worker;     /* SIGSTOP one for longer than its lease lasts */
} job;

static char folder[64], address[SERVERS][64];

/* ---- processes ------------------------------------------------------------------------------- */

/* A server process. It writes its address to a file and keeps its port over its lives. */
static pid_t start_server_process(const job *j, int number, const char *listen) {
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the process ends with the test */
    char path[128], state_folder[128];
    trm_error err;
    trm_ps_server *server;
    snprintf(state_folder, sizeof state_folder, "%s/job", folder);
    trm_ps_server_options o = {.server = number,
                               .servers = SERVERS,
                               .shards = 2,
                               .listen = listen,
                               .memory_bytes = 1 << 26,
                               .folder = state_folder,
                               .mode = j->mode,
                               .staleness = j->staleness,
                               .workers = WORKERS,
                               .sum_gradients = true,
                               .log_pushes = TRM_ON};
    char own[64]; /* its address, once it has one */
    trm_status status;
    do {
        do {
            status = trm_ps_server_start(&o, &server, &err);
            usleep(20000);
        } while (status == TRM_IO); /* the port of the previous life may still be in use */
        if (status != TRM_OK) {
            fprintf(stderr, "server %d: %s\n", number, err.message);
            _exit(3);
        }
        snprintf(own, sizeof own, "%s", trm_ps_server_address(server));
        o.listen = own;
        snprintf(path, sizeof path, "%s/address-%d", folder, number);
        (void)!trmi_os_replace_file(NULL, path, own, strlen(own), NULL);
        while ((status = trm_ps_server_wait(server, 60)) == TRM_TIMEOUT) {
        }
        trm_ps_server_stop(server);
    } while (status == TRM_PENDING); /* it goes back by a step */
    _exit(0);
}

static void learn_address(int number) {
    char path[128];
    uint8_t *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/address-%d", folder, number);
    for (int i = 0; i < 1000 && trmi_os_read_file(path, 64, &text, &bytes, NULL) != TRM_OK; i++) {
        usleep(10000);
    }
    assert_non_null(text);
    snprintf(address[number], sizeof address[number], "%.63s", (char *)text);
    address[number][bytes < 63 ? bytes : 63] = '\0';
    trmi_free(text);
}

typedef struct worker_state {
    const job *job;
    int number;
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
} worker_state;

static trm_status connect_worker(worker_state *w, trm_error *err) {
    const char *addresses[SERVERS];
    for (int s = 0; s < SERVERS; s++) {
        addresses[s] = address[s];
    }
    trm_table_options o = {
        .name = "counts", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    trm_ps_client_options co = {.addresses = addresses,
                                .servers = SERVERS,
                                .worker = w->number,
                                .timeout_seconds = 30,
                                .ring_bytes = 1 << 20};
    TRMI_TRY(trm_ps_client_create(&co, &w->client, err));
    TRMI_TRY(trm_ps_client_table(w->client, &o, &w->table, err));
    return trm_ps_batch_create(w->client, &w->batch, err);
}

/* Pulls if workers keep in step, then adds 1 to each key. */
static trm_status add_one(worker_state *w, const uint64_t *keys, int64_t count,
                          const trm_ps_push_options *o, trm_error *err) {
    float rows[OWN_KEYS], gradients[OWN_KEYS];
    for (int64_t i = 0; i < count; i++) {
        gradients[i] = -1;
    }
    trm_ps_batch_clear(w->batch);
    TRMI_TRY(trm_ps_batch_add(w->batch, w->table, keys, count, rows, gradients, err));
    if (w->job->mode != TRM_PS_ASYNC) {
        TRMI_TRY(trm_ps_pull_start(w->batch, err));
        TRMI_TRY(trm_ps_pull_wait(w->batch, err));
    }
    return trm_ps_push(w->batch, o, err);
}

/* Sample s adds 1 to key s % KEYS. */
static trm_status use_lent_samples(worker_state *w, trm_error *err) {
    const job *j = w->job;
    trm_ps_lease_options lo = {j->samples, j->lease, j->epochs, 2, 0, 0};
    trm_ps_lease lease = {0};
    int64_t position = 0;
    for (int n = 0;; n++) {
        if (j->stop_a_worker && w->number == 1 && n == 20) {
            raise(SIGSTOP); /* for longer than its lease lasts */
        }
        if (lease.id == 0) {
            trm_status status = trm_ps_lease_take(w->client, &lo, &lease, err);
            if (status == TRM_END) {
                return TRM_OK;
            }
            if (status == TRM_PENDING) {
                usleep(20000);
                lease.id = 0;
                continue;
            }
            TRMI_TRY(status);
            position = lease.begin;
        }
        uint64_t keys[BATCH];
        int64_t count = lease.end - position < BATCH ? lease.end - position : BATCH;
        for (int64_t i = 0; i < count; i++) {
            keys[i] = (uint64_t)(position + i) % KEYS;
        }
        position += count;
        trm_ps_push_options po = {.lease = lease, .position = position};
        trm_status status = add_one(w, keys, count, &po, err);
        if (status == TRM_CANCELLED) { /* other workers have its samples now */
            lease.id = 0;
            continue;
        }
        TRMI_TRY(status);
        lease.id = position == lease.end ? 0 : lease.id;
        usleep(500);
    }
}

/* Each batch adds 1 to all of the worker's own keys, which lie on all shards of all servers. */
static trm_status use_own_batches(worker_state *w, trm_error *err) {
    uint64_t keys[OWN_KEYS];
    for (uint64_t i = 0; i < OWN_KEYS; i++) {
        keys[i] = (uint64_t)w->number * 1000 + i;
    }
    for (int64_t n = trm_ps_client_next_batch(w->client); n < w->job->batches; n++) {
        TRMI_TRY(add_one(w, keys, OWN_KEYS, NULL, err));
        usleep(300);
    }
    return TRM_OK;
}

static int worker_life(const job *j, int number) {
    worker_state w = {.job = j, .number = number};
    trm_error err = {0};
    trm_status status = connect_worker(&w, &err);
    if (status == TRM_OK) {
        status = j->lent ? use_lent_samples(&w, &err) : use_own_batches(&w, &err);
    }
    if (status == TRM_OK) {
        status = trm_ps_flush(w.client, &err);
    }
    /* a server that is killed behind the last step then knows that no worker repeats it */
    status = status == TRM_OK ? trm_ps_leave(w.client, &err) : status;
    trm_ps_batch_destroy(w.batch);
    trm_ps_client_destroy(w.client);
    if (status != TRM_OK) {
        fprintf(stderr, "%s: worker %d: %s\n", j->name, number, err.message);
    }
    return status == TRM_OK ? 0 : 7;
}

static pid_t start_worker(const job *j, int worker) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(worker_life(j, worker));
    }
    return pid;
}

/* ---- a job ----------------------------------------------------------------------------------- */

/* Kills and restarts random processes until `kills` have died or the job has ended. */
static void kill_some(const job *j, uint64_t seed, pid_t *server, pid_t *worker) {
    for (int k = 0; k < j->kills; k++) {
        uint32_t r[4];
        trmi_philox(seed, TRMI_STREAM_TEST, (uint64_t)k, r);
        usleep(1000 + r[0] % (uint32_t)j->pause_microseconds);
        int victim = (int)(r[1] % (SERVERS + WORKERS)), status;
        if (victim < SERVERS) {
            kill(server[victim], SIGKILL);
            waitpid(server[victim], &status, 0);
            server[victim] = start_server_process(j, victim, address[victim]);
            continue;
        }
        victim -= SERVERS;
        if (j->stop_a_worker && victim == 1) {
            continue;
        }
        if (waitpid(worker[victim], &status, WNOHANG) == worker[victim]) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
        } else {
            kill(worker[victim], SIGKILL);
            waitpid(worker[victim], &status, 0);
        }
        worker[victim] = start_worker(j, victim);
    }
}

/* Samples of several workers with one key may be one update with their sum. */
static bool row_is(trm_ps_client *reader, int32_t table, uint64_t key, int64_t expected,
                   bool summed) {
    float value;
    trm_row_info info;
    trm_error err;
    CHECK_OK(trm_ps_row(reader, table, key, &info, &value, NULL, &err), err);
    bool right = value == (float)expected && (summed || info.count == expected);
    if (!right) {
        print_error("key %lld: %g after %u updates, %lld expected\n", (long long)key, (double)value,
                    info.count, (long long)expected);
    }
    return right;
}

static void check_rows(const job *j) {
    const char *addresses[SERVERS] = {address[0], address[1]};
    trm_error err;
    trm_ps_client *reader;
    trm_ps_client_options co = {
        .addresses = addresses, .servers = SERVERS, .worker = -1, .ring_bytes = 1 << 20};
    CHECK_OK(trm_ps_client_create(&co, &reader, &err), err);
    int32_t table;
    trm_table_options o = {
        .name = "counts", .width = 1, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    CHECK_OK(trm_ps_client_table(reader, &o, &table, &err), err);
    int wrong = 0;
    for (uint64_t key = 0; j->lent && key < KEYS; key++) {
        int64_t expected = 0;
        for (int s = 0; s < j->samples; s++) {
            expected += s % KEYS == (int)key;
        }
        wrong += !row_is(reader, table, key, expected * j->epochs, j->mode == TRM_PS_SYNC);
    }
    for (uint64_t i = 0; !j->lent && i < WORKERS * OWN_KEYS; i++) {
        wrong += !row_is(reader, table, i / OWN_KEYS * 1000 + i % OWN_KEYS, j->batches, false);
    }
    assert_int_equal(wrong, 0);
    CHECK_OK(trm_ps_stop_servers(reader, &err), err);
    trm_ps_client_destroy(reader);
}

static void run_job(const job *j, uint64_t seed) {
    snprintf(folder, sizeof folder, "/tmp/ps-once-XXXXXX");
    assert_non_null(mkdtemp(folder));
    pid_t server[SERVERS], worker[WORKERS];
    for (int s = 0; s < SERVERS; s++) {
        server[s] = start_server_process(j, s, "127.0.0.1:0");
        learn_address(s);
    }
    for (int w = 0; w < WORKERS; w++) {
        worker[w] = start_worker(j, w);
    }
    kill_some(j, seed, server, worker);
    if (j->stop_a_worker) {
        int stopped = 0;
        waitpid(worker[1], &stopped, WUNTRACED);
        assert_true(WIFSTOPPED(stopped));
        usleep(2500000);
        kill(worker[1], SIGCONT);
    }
    for (int w = 0; w < WORKERS; w++) {
        int status;
        waitpid(worker[w], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    check_rows(j);
    for (int s = 0; s < SERVERS; s++) {
        int status;
        waitpid(server[s], &status, 0);
        assert_int_equal(status, 0);
    }
    trm_error err;
    CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
}

static void repeat_rounds(const job *j) {
    const char *more = getenv("PS_KILL_LONG");
    const char *seed = getenv("PS_KILL_SEED");
    uint64_t first = seed == NULL ? 3 : 3 + 1000003 * (uint64_t)atoll(seed);
    int count = more == NULL ? 1 : atoi(more) > 0 ? atoi(more) : 10;
    for (int i = 0; i < count; i++) {
        if (more != NULL) {
            print_message("round %d\n", i);
        }
        run_job(j, (uint64_t)i * 17 + first);
    }
}

static void leases_with_servers_that_die_and_a_worker_that_stops(void **state) {
    repeat_rounds(&(job){.name = "a stopped worker",
                         .lent = true,
                         .samples = 1000,
                         .lease = 70,
                         .epochs = 3,
                         .kills = 8,
                         .pause_microseconds = 80000,
                         .stop_a_worker = true});
}
static void leases_while_all_kinds_die(void **state) {
    repeat_rounds(&(job){.name = "leases",
                         .lent = true,
                         .samples = 2000,
                         .lease = 70,
                         .epochs = 3,
                         .kills = 24,
                         .pause_microseconds = 30000});
}
static void leases_of_synchronous_workers_while_all_kinds_die(void **state) {
    repeat_rounds(&(job){.name = "synchronous leases",
                         .mode = TRM_PS_SYNC,
                         .lent = true,
                         .samples = 1000,
                         .lease = 70,
                         .epochs = 2,
                         .kills = 12,
                         .pause_microseconds = 60000});
}
static void leases_of_bounded_workers_while_all_kinds_die(void **state) {
    repeat_rounds(&(job){.name = "bounded leases",
                         .mode = TRM_PS_BOUNDED,
                         .staleness = 1,
                         .lent = true,
                         .samples = 1000,
                         .lease = 70,
                         .epochs = 2,
                         .kills = 12,
                         .pause_microseconds = 60000});
}
static void synchronous_batches_while_all_kinds_die(void **state) {
    repeat_rounds(&(job){.name = "synchronous",
                         .mode = TRM_PS_SYNC,
                         .batches = 150,
                         .kills = 12,
                         .pause_microseconds = 60000});
}
static void bounded_batches_while_all_kinds_die(void **state) {
    repeat_rounds(&(job){.name = "bounded",
                         .mode = TRM_PS_BOUNDED,
                         .staleness = 2,
                         .batches = 150,
                         .kills = 12,
                         .pause_microseconds = 60000});
}

int main(int argc, char **argv) {
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_with_servers_that_die_and_a_worker_that_stops),
        cmocka_unit_test(leases_while_all_kinds_die),
        cmocka_unit_test(leases_of_synchronous_workers_while_all_kinds_die),
        cmocka_unit_test(leases_of_bounded_workers_while_all_kinds_die),
        cmocka_unit_test(synchronous_batches_while_all_kinds_die),
        cmocka_unit_test(bounded_batches_while_all_kinds_die),
    };
    return cmocka_run_group_tests_name("ps once", tests, NULL, NULL);
}
