/* Tests of leases: every sample once an epoch although workers come and go, and after restarts;
 * then the whole of it with processes that are killed. */
#include "check.h"

#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "ps/lease.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 1000, LEASE = 70, EPOCHS = 3, WORKERS = 5 };

typedef struct history {
    trmi_lease_event events[20000];
    int64_t count;
} history;

static trm_status record(void *context, const trmi_lease_event *event, trm_error *err) {
    history *h = context;
    h->events[h->count++] = *event;
    return TRM_OK;
}

/* Each sample of each epoch is used exactly once: by progress from the grant's begin on. */
static void check_history(const trmi_lease_event *events, int64_t count, int64_t epochs) {
    static int used[EPOCHS + 1][SAMPLES];
    static struct { int64_t epoch, position; } lease[20000];
    memset(used, 0, sizeof used);
    for (int64_t i = 0; i < count; i++) {
        const trmi_lease_event *e = &events[i];
        if (e->kind == TRMI_LEASE_GRANT) {
            lease[e->id].epoch = e->epoch;
            lease[e->id].position = e->begin;
        } else if (e->kind == TRMI_LEASE_PROGRESS) {
            for (; lease[e->id].position < e->position; lease[e->id].position++) {
                used[lease[e->id].epoch][lease[e->id].position]++;
            }
        }
    }
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        for (int s = 0; s < SAMPLES; s++) {
            assert_int_equal(used[epoch][s], 1);
        }
    }
}

static void every_sample_once_although_workers_come_and_go(void **state) {
    static history h;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        trmi_lease_book *book;
        trm_error err;
        h.count = 0;
        CHECK_OK(trmi_lease_book_create(record, &h, &book, &err), err);
        trm_ps_lease_options o = {SAMPLES, LEASE, EPOCHS, 10};
        trm_ps_lease have[WORKERS] = {{0}};
        int64_t position[WORKERS] = {0};
        double now = 1;
        bool over = false;
        for (uint64_t turn = 0; turn < 100000 && !over; turn++) {
            uint32_t r[4];
            trmi_philox(seed, TRMI_STREAM_TEST, turn, r);
            uint32_t w = r[0] % WORKERS;
            now += 0.05;
            if (r[1] % 100 < 2) { /* dies: silent, its lease runs out; or comes back at once */
                if (r[1] % 2 == 0) {
                    CHECK_OK(trmi_lease_drop_worker(book, w, &err), err);
                }
                have[w].id = 0;
            } else if (have[w].id == 0) {
                trm_status status = trmi_lease_take(book, &o, w, now, &have[w], &err);
                position[w] = have[w].begin;
                over = status == TRM_END;
                assert_true(status == TRM_OK || status == TRM_END || status == TRM_PENDING);
            } else {
                position[w] = position[w] + 1 + r[2] % 20;
                position[w] = position[w] > have[w].end ? have[w].end : position[w];
                trm_status status =
                    trmi_lease_progress(book, have[w].id, w, position[w], now, &err);
                if (status == TRM_OK && r[3] % 4 == 0) { /* sent again */
                    CHECK_OK(trmi_lease_progress(book, have[w].id, w, position[w], now, &err), err);
                }
                assert_true(status == TRM_OK || status == TRM_CANCELLED);
                have[w].id = status != TRM_OK || position[w] == have[w].end ? 0 : have[w].id;
            }
        }
        assert_true(over);
        check_history(h.events, h.count, EPOCHS);
        /* The events alone make the same book. */
        trmi_lease_book *again;
        static history nothing;
        CHECK_OK(trmi_lease_book_create(record, &nothing, &again, &err), err);
        for (int64_t i = 0; i < h.count; i++) {
            CHECK_OK(trmi_lease_replay(again, &h.events[i], &err), err);
        }
        trm_ps_lease lease;
        assert_int_equal(trmi_lease_take(again, &o, 0, now, &lease, &err), TRM_END);
        trmi_lease_book_destroy(again);
        trmi_lease_book_destroy(book);
    }
}

static void wrong_use_is_said(void **state) {
    static history h;
    trmi_lease_book *book;
    trm_error err;
    trm_ps_lease lease;
    CHECK_OK(trmi_lease_book_create(record, &h, &book, &err), err);
    trm_ps_lease_options o = {SAMPLES, 0, 1, 0};
    CHECK_FAILS(trmi_lease_take(book, &o, 0, 1, &lease, &err), TRM_INVALID, err, "above 0");
    o.lease_samples = 100;
    CHECK_OK(trmi_lease_take(book, &o, 0, 1, &lease, &err), err);
    o.samples = 7;
    CHECK_FAILS(trmi_lease_take(book, &o, 1, 1, &lease, &err), TRM_INVALID, err,
                "others asked for 100 of 1000");
    CHECK_FAILS(trmi_lease_progress(book, lease.id, 0, 101, 1, &err), TRM_INVALID, err,
                "position 101 in a lease of 0 to 100");
    CHECK_FAILS(trmi_lease_progress(book, lease.id, 3, 50, 1, &err), TRM_CANCELLED, err, "is over");
    trmi_lease_book_destroy(book);
}

/* ---- processes that are killed
 * ------------------------------------------------------------------------------ */

static char folder[64], address[2][64];

/* A server process; says where it listens through a file, and keeps its port over its lives. */
static pid_t start_server_process(int number, const char *listen) {
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody */
    char path[128], state_folder[128];
    trm_error err;
    trm_ps_server *server;
    snprintf(state_folder, sizeof state_folder, "%s/job", folder);
    trm_ps_server_options o = {.server = number,
                               .servers = 2,
                               .shards = 2,
                               .listen = listen,
                               .memory_bytes = 1 << 26,
                               .folder = state_folder,
                               .log_pushes = true};
    trm_status status;
    do {
        status = trm_ps_server_start(&o, &server, &err);
        usleep(20000);
    } while (status == TRM_IO); /* the port of the life before may linger */
    if (status != TRM_OK) {
        fprintf(stderr, "server %d: %s\n", number, err.message);
        _exit(3);
    }
    snprintf(path, sizeof path, "%s/address-%d", folder, number);
    (void)!trmi_os_replace_file(NULL, path, trm_ps_server_address(server),
                                strlen(trm_ps_server_address(server)), NULL);
    while (trm_ps_server_wait(server, 60) == TRM_TIMEOUT) {
    }
    trm_ps_server_stop(server);
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
    snprintf(address[number], sizeof address[number], "%s", (char *)text);
    trmi_free(text);
}

/* Uses samples: sample s adds 1 to key s % 64, so that the sums tell how often each was used. */
static int worker_life(int worker, int batches) {
    const char *addresses[2] = {address[0], address[1]};
    trm_error err = {0};
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    trm_table_options o = {
        .name = "counts", .width = 1, .optimizer = {.rule = TRM_ROW_SGD, .learning_rate = 1}};
    trm_ps_client_options co = {.addresses = addresses,
                                .servers = 2,
                                .worker = worker,
                                .timeout_seconds = 30,
                                .ring_bytes = 1 << 20};
    trm_ps_lease_options lo = {SAMPLES, LEASE, EPOCHS, 2};
    if (trm_ps_client_create(&co, &client, &err) != TRM_OK ||
        trm_ps_client_table(client, &o, &table, &err) != TRM_OK ||
        trm_ps_batch_create(client, &batch, &err) != TRM_OK) {
        fprintf(stderr, "worker %d: %s\n", worker, err.message);
        return 4;
    }
    trm_ps_lease lease = {0};
    int64_t position = 0;
    for (int n = 0; n < batches; n++) {
        if (worker == 1 && n == 20) {
            raise(SIGSTOP); /* for longer than its lease lasts */
        }
        if (lease.id == 0) {
            trm_status status = trm_ps_lease_take(client, &lo, &lease, &err);
            if (status == TRM_END) {
                break;
            }
            if (status == TRM_PENDING) {
                usleep(20000);
                lease.id = 0;
                continue;
            }
            if (status != TRM_OK) {
                fprintf(stderr, "worker %d: %s\n", worker, err.message);
                return 5;
            }
            position = lease.begin;
        }
        uint64_t keys[10];
        float gradients[10];
        int64_t count = lease.end - position < 10 ? lease.end - position : 10;
        for (int64_t i = 0; i < count; i++) {
            keys[i] = (uint64_t)(position + i) % 64;
            gradients[i] = -1;
        }
        position += count;
        trm_ps_batch_clear(batch);
        trm_ps_push_options po = {.lease = lease, .position = position};
        trm_status status = trm_ps_batch_add(batch, table, keys, count, NULL, gradients, &err);
        status = status == TRM_OK ? trm_ps_push(batch, &po, &err) : status;
        if (status == TRM_CANCELLED) { /* others have its samples now */
            fprintf(stderr, "worker %d: %s\n", worker, err.message);
            lease.id = 0;
            continue;
        }
        if (status != TRM_OK) {
            fprintf(stderr, "worker %d: %s\n", worker, err.message);
            return 6;
        }
        lease.id = position == lease.end ? 0 : lease.id;
        usleep(500);
    }
    trm_status status = trm_ps_flush(client, &err);
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    if (status != TRM_OK) {
        fprintf(stderr, "worker %d: %s\n", worker, err.message);
    }
    return status == TRM_OK ? 0 : 7;
}

static pid_t start_worker(int worker, int batches) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(worker_life(worker, batches));
    }
    return pid;
}

static void killed_servers_lose_and_repeat_nothing(void **state) {
    snprintf(folder, sizeof folder, "/tmp/ps-lease-XXXXXX");
    assert_non_null(mkdtemp(folder));
    pid_t server[2], worker[3];
    for (int s = 0; s < 2; s++) {
        server[s] = start_server_process(s, "127.0.0.1:0");
        learn_address(s);
    }
    for (int w = 0; w < 3; w++) {
        worker[w] = start_worker(w, 1 << 20);
    }
    /* Each server is killed several times while the workers go on. */
    for (int k = 0; k < 6; k++) {
        usleep(60000);
        int s = k % 2, status;
        kill(server[s], SIGKILL);
        waitpid(server[s], &status, 0);
        server[s] = start_server_process(s, address[s]);
    }
    int stopped = 0;
    waitpid(worker[1], &stopped, WUNTRACED);
    assert_true(WIFSTOPPED(stopped));
    usleep(2500000);
    kill(worker[1], SIGCONT);
    for (int w = 0; w < 3; w++) {
        int status;
        waitpid(worker[w], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    const char *addresses[2] = {address[0], address[1]};
    trm_error err;
    trm_ps_client *reader;
    trm_ps_client_options co = {
        .addresses = addresses, .servers = 2, .worker = -1, .ring_bytes = 1 << 20};
    CHECK_OK(trm_ps_client_create(&co, &reader, &err), err);
    int32_t table;
    trm_table_options o = {
        .name = "counts", .width = 1, .optimizer = {.rule = TRM_ROW_SGD, .learning_rate = 1}};
    CHECK_OK(trm_ps_client_table(reader, &o, &table, &err), err);
    for (uint64_t key = 0; key < 64; key++) {
        float value;
        trm_row_info info;
        CHECK_OK(trm_ps_row(reader, table, key, &info, &value, NULL, &err), err);
        int64_t expected = 0;
        for (int s = 0; s < SAMPLES; s++) {
            expected += s % 64 == (int)key;
        }
        assert_true(value == (float)(expected * EPOCHS));
    }
    CHECK_OK(trm_ps_stop_servers(reader, &err), err);
    trm_ps_client_destroy(reader);
    for (int s = 0; s < 2; s++) {
        int status;
        waitpid(server[s], &status, 0);
        assert_int_equal(status, 0);
    }
    /* The book of leases agrees. */
    char path[128];
    uint8_t *events;
    size_t bytes;
    snprintf(path, sizeof path, "%s/job/leases.log", folder);
    CHECK_OK(trmi_os_read_file(path, 1 << 26, &events, &bytes, &err), err);
    check_history((const trmi_lease_event *)(const void *)events,
                  (int64_t)(bytes / sizeof(trmi_lease_event)), EPOCHS);
    trmi_free(events);
    CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_although_workers_come_and_go),
        cmocka_unit_test(wrong_use_is_said),
        cmocka_unit_test(killed_servers_lose_and_repeat_nothing),
    };
    return cmocka_run_group_tests_name("ps lease", tests, NULL, NULL);
}
