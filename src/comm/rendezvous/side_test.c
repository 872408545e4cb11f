/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how ranks meet over TCP, unix sockets and files, as threads and as forked processes, with
 * failures during and after the meeting. */
#include "check.h"

#include "trireme/dist.h"

#include "base/error.h"
#include "base/os.h"
#include "comm/rendezvous/token.h"
#include "comm/shm/futex.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 8 };

/* A rank that joins on a thread, and how that ended. */
typedef struct rank_case {
    trm_cluster_flags flags;
    const char *device;
    trm_join_options options;
    trm_status status;
    trm_error err;
    double seconds; /* that joining took */
    trm_bootstrap *bootstrap;
} rank_case;

static void *join_rank(void *context) {
    rank_case *one = context;
    trm_cluster *cluster;
    double start = trmi_os_now();
    memset(&one->err, 0, sizeof one->err);
    one->bootstrap = NULL;
    one->status = trm_cluster_create(&one->flags, &cluster, &one->err);
    if (one->status == TRM_OK) {
        one->status = trm_cluster_join(cluster, &one->options, &one->bootstrap, &one->err);
        trm_cluster_destroy(cluster);
    }
    one->seconds = trmi_os_now() - start;
    return NULL;
}

static void *leave_rank(void *context) {
    trm_cluster_leave(((rank_case *)context)->bootstrap);
    return NULL;
}

static void on_all(rank_case *ranks, int n, void *(*what)(void *)) {
    pthread_t threads[RANKS_MAX];
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, what, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
    }
}

static char directory[] = "/tmp/sidetestXXXXXX";

static const char *fresh_place(const char *kind) {
    static char text[96];
    static int count;
    if (strcmp(kind, "tcp") == 0) {
        /* a port that is free now */
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof address;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        getsockname(fd, (struct sockaddr *)&address, &bytes);
        close(fd);
        sprintf(text, "127.0.0.1:%d", ntohs(address.sin_port));
    } else {
        sprintf(text, "%s:%s/%d", kind, directory, ++count);
    }
    return text;
}

static void prepare_ranks(rank_case *ranks, int n, const char *place, double timeout) {
    memset(ranks, 0, (size_t)n * sizeof *ranks);
    for (int r = 0; r < n; r++) {
        ranks[r].flags = (trm_cluster_flags){.rank = r, .size = n, .rendezvous = place};
        ranks[r].options = (trm_join_options){.timeout_seconds = timeout};
    }
}

static void all_joined(rank_case *ranks, int n) {
    for (int r = 0; r < n; r++) {
        if (ranks[r].status != TRM_OK) {
            fail_msg("rank %d: %s", r, ranks[r].err.message);
        }
    }
}

typedef struct gather_case {
    trm_bootstrap *bootstrap;
    int rounds;
    bool wrong;
} gather_case;

static void *gather_rounds(void *context) {
    gather_case *one = context;
    trm_bootstrap *b = one->bootstrap;
    trm_error err;
    for (int i = 0; i < one->rounds; i++) {
        int64_t mine[40], all[40 * RANKS_MAX];
        size_t count = (size_t)(i % 40);
        for (size_t k = 0; k < count; k++) {
            mine[k] = b->rank * 1000003 + i * 101 + (int64_t)k;
        }
        if (b->table->allgather(b, mine, count * 8, all, 20, &err) != TRM_OK) {
            print_message("rank %d: %s\n", b->rank, err.message);
            one->wrong = true;
            return NULL;
        }
        for (int r = 0; r < b->size; r++) {
            for (size_t k = 0; k < count; k++) {
                one->wrong |= all[(size_t)r * count + k] != r * 1000003 + i * 101 + (int64_t)k;
            }
        }
    }
    one->wrong |= b->table->barrier(b, 20, &err) != TRM_OK;
    return NULL;
}

static void gather_on_all(rank_case *ranks, int n, int rounds) {
    pthread_t threads[RANKS_MAX];
    gather_case cases[RANKS_MAX];
    for (int r = 0; r < n; r++) {
        cases[r] = (gather_case){.bootstrap = ranks[r].bootstrap, .rounds = rounds};
        pthread_create(&threads[r], NULL, gather_rounds, &cases[r]);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
        assert_false(cases[r].wrong);
    }
}

static void ranks_meet_in_every_place(void **state) {
    static const char *const kinds[] = {"unix", "file", "tcp"};
    for (int k = 0; k < 3; k++) {
        rank_case ranks[RANKS_MAX];
        uint8_t a[32], b[32];
        prepare_ranks(ranks, 5, fresh_place(kinds[k]), 20);
        on_all(ranks, 5, join_rank);
        all_joined(ranks, 5);
        for (int r = 0; r < 5; r++) {
            trm_bootstrap *boot = ranks[r].bootstrap;
            assert_int_equal(boot->rank, r);
            assert_int_equal(boot->local_rank, r);
            assert_int_equal(boot->local_size, 5);
            assert_int_equal(boot->host_count, 1);
            assert_string_equal(boot->address, "127.0.0.1");
            assert_true(trmi_bootstrap_healthy(boot));
            boot->table->sign(boot, "abc", 3, r == 0 ? a : b);
            if (r > 0) {
                assert_memory_equal(a, b, 32);
            }
        }
        gather_on_all(ranks, 5, 200);
        double start = trmi_os_now();
        on_all(ranks, 5, leave_rank);
        assert_true(trmi_os_now() - start < check_slack());
    }
}

static void one_rank_costs_nothing(void **state) {
    trm_cluster *cluster;
    trm_bootstrap *b;
    trm_error err;
    int in = 7, out = 0;
    CHECK_OK(trm_cluster_create(NULL, &cluster, &err), err);
    int before = dup(0);
    close(before);
    CHECK_OK(trm_cluster_join(cluster, NULL, &b, &err), err);
    int after = dup(0);
    close(after);
    assert_int_equal(before, after); /* no descriptor was opened and kept */
    assert_string_equal(b->table->name, "single");
    CHECK_OK(b->table->allgather(b, &in, sizeof in, &out, 1, &err), err);
    assert_int_equal(out, 7);
    CHECK_OK(b->table->barrier(b, 1, &err), err);
    TRMI_FAIL(&err, TRM_IO, "disk");
    b->table->poison(b, &err);
    CHECK_FAILS(b->table->check(b, &err), TRM_IO, err, "disk");
    trm_cluster_leave(b);
    trm_cluster_leave(NULL);
    trm_cluster_destroy(cluster);
}

static void hosts_are_numbered_by_rank(void **state) {
    rank_case ranks[RANKS_MAX];
    static const char *const hosts[] = {"b", "b", "a", "a", "a"};
    prepare_ranks(ranks, 5, fresh_place("unix"), 20);
    for (int r = 0; r < 5; r++) {
        ranks[r].options.host_name = hosts[r];
    }
    on_all(ranks, 5, join_rank);
    all_joined(ranks, 5);
    trm_bootstrap *b = ranks[3].bootstrap;
    assert_int_equal(b->host, 1);
    assert_int_equal(b->host_count, 2);
    assert_int_equal(b->local_rank, 1);
    assert_int_equal(b->local_size, 3);
    assert_int_equal(b->host_of[1], 0);
    on_all(ranks, 5, leave_rank);
}

static void missing_ranks_are_named(void **state) {
    rank_case ranks[RANKS_MAX];
    prepare_ranks(ranks, 6, fresh_place("unix"), 0.7);
    ranks[3].flags.rank = 4; /* ranks 0, 1, 2 and 4 come */
    on_all(ranks, 4, join_rank);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ranks[r].status, TRM_TIMEOUT);
        if (strstr(ranks[r].err.message, "for ranks 3, 5 of 6") == NULL) {
            fail_msg("rank %d: %s", r, ranks[r].err.message);
        }
        assert_true(ranks[r].seconds < 2 * check_slack());
    }
    /* no process listens */
    prepare_ranks(ranks, 2, fresh_place("tcp"), 0.3);
    join_rank(&ranks[1]);
    assert_int_equal(ranks[1].status, TRM_TIMEOUT);
    assert_non_null(strstr(ranks[1].err.message, "Connection refused"));
    prepare_ranks(ranks, 2, "nosuchhost.invalid:5", 0.3);
    join_rank(&ranks[1]);
    assert_int_equal(ranks[1].status, TRM_TIMEOUT);
    assert_non_null(strstr(ranks[1].err.message, "\"nosuchhost.invalid\" is not known"));
    prepare_ranks(ranks, 2, "203.0.113.1:5", 0.3);
    join_rank(&ranks[0]);
    assert_int_equal(ranks[0].status, TRM_INVALID);
    assert_non_null(strstr(ranks[0].err.message, "this host has no such address"));
    prepare_ranks(ranks, 2, NULL, 0.3);
    join_rank(&ranks[0]);
    assert_non_null(strstr(ranks[0].err.message, "no address of rank 0 is set"));
    prepare_ranks(ranks, 2, "unix:relative", 0.3);
    join_rank(&ranks[0]);
    assert_non_null(strstr(ranks[0].err.message, "an absolute path"));
}

static void disagreement_names_both_sides(void **state) {
    rank_case ranks[RANKS_MAX];
    prepare_ranks(ranks, 2, fresh_place("unix"), 5);
    ranks[1].flags.size = 3;
    on_all(ranks, 2, join_rank);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, TRM_INVALID);
        assert_non_null(strstr(ranks[r].err.message, "was told of 3 ranks"));
    }
    /* different tables */
    char paths[2][64];
    for (int r = 0; r < 2; r++) {
        sprintf(paths[r], "%s/table%d", directory, r);
        FILE *file = fopen(paths[r], "w");
        fprintf(file,
                "{\"version\":\"1.0\",\"server_count\":\"1\",\"status\":\"completed\","
                "\"server_list\":[{\"server_id\":\"h\",\"device\":[{\"device_id\":\"0\","
                "\"rank_id\":\"0\"},{\"device_id\":\"%d\",\"rank_id\":\"1\"}]}]}",
                r + 1);
        fclose(file);
    }
    prepare_ranks(ranks, 2, fresh_place("unix"), 5);
    for (int r = 0; r < 2; r++) {
        ranks[r].flags.rank_table = paths[r];
    }
    on_all(ranks, 2, join_rank);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, TRM_INVALID);
        assert_non_null(strstr(ranks[r].err.message, "has another rank table"));
        unlink(paths[r]);
    }
    /* the same rank twice: the second is refused, the job goes on waiting for the missing one */
    prepare_ranks(ranks, 3, fresh_place("unix"), 1);
    ranks[2].flags.rank = 1;
    on_all(ranks, 3, join_rank);
    assert_int_equal(ranks[0].status, TRM_TIMEOUT);
    assert_non_null(strstr(ranks[0].err.message, "rank 2 of 3"));
    int refused = ranks[1].status == TRM_INVALID ? 1 : 2;
    assert_int_equal(ranks[refused].status, TRM_INVALID);
    assert_non_null(strstr(ranks[refused].err.message, "rank 1 is already here"));
}

static void tokens_decide(void **state) {
    rank_case ranks[RANKS_MAX];
    trm_error err;
    char a[64], b[64];
    sprintf(a, "%s/a.token", directory);
    sprintf(b, "%s/b.token", directory);
    CHECK_OK(trmi_token_create(a, &err), err);
    CHECK_OK(trmi_token_create(b, &err), err);
    prepare_ranks(ranks, 3, fresh_place("tcp"), 10);
    for (int r = 0; r < 3; r++) {
        ranks[r].flags.token_file = a;
    }
    on_all(ranks, 3, join_rank);
    all_joined(ranks, 3);
    gather_on_all(ranks, 3, 50);
    on_all(ranks, 3, leave_rank);
    /* another token, and none */
    for (int wrong = 0; wrong < 2; wrong++) {
        prepare_ranks(ranks, 2, fresh_place("tcp"), 1);
        ranks[0].flags.token_file = a;
        ranks[1].flags.token_file = wrong ? b : NULL;
        on_all(ranks, 2, join_rank);
        assert_int_equal(ranks[0].status, TRM_TIMEOUT);
        assert_non_null(strstr(ranks[0].err.message, "turned away"));
        assert_int_equal(ranks[1].status, TRM_INVALID);
        assert_non_null(strstr(ranks[1].err.message, "has another token than this rank"));
    }
    chmod(a, 0644);
    prepare_ranks(ranks, 2, fresh_place("tcp"), 1);
    ranks[0].flags.token_file = a;
    join_rank(&ranks[0]);
    assert_int_equal(ranks[0].status, TRM_INVALID);
    assert_non_null(strstr(ranks[0].err.message, "chmod 600"));
    unlink(a);
    unlink(b);
}

/* Strangers that connect to the port do not disturb the ranks of the job. */
static void *pester_port(void *context) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int port, silent[20];
    sscanf(context, "127.0.0.1:%d", &port);
    address.sin_port = htons((uint16_t)port);
    for (int i = 0; i < 300; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            static const char *const words[] = {"GET / HTTP/1.0\r\n\r\n",
                                                "\x16\x03\x01\x02\x00\x01", "TRIREME", "",
                                                "TRIREME\0\x01\0\xff\xff\xff\xff"};
            char junk[TRMI_HELLO_BYTES] = {0};
            strcpy(junk, words[i % 5]);
            ssize_t sent = send(fd, junk, i % 2 ? sizeof junk : 12, MSG_NOSIGNAL);
            (void)sent;
        }
        if (i < 20) {
            silent[i] = fd;
        } else {
            close(fd);
        }
        usleep(1000);
    }
    for (int i = 0; i < 20; i++) {
        close(silent[i]);
    }
    return NULL;
}

static void strangers_do_not_disturb(void **state) {
    rank_case ranks[RANKS_MAX];
    pthread_t stranger, root;
    prepare_ranks(ranks, 3, fresh_place("tcp"), 20);
    char place[64];
    strcpy(place, ranks[0].flags.rendezvous);
    pthread_create(&root, NULL, join_rank, &ranks[0]);
    usleep(50000);
    pthread_create(&stranger, NULL, pester_port, place);
    usleep(100000);
    on_all(ranks + 1, 2, join_rank);
    pthread_join(root, NULL);
    all_joined(ranks, 3);
    gather_on_all(ranks, 3, 20);
    on_all(ranks, 3, leave_rank);
    pthread_join(stranger, NULL);
}

/* On one host, without a file of the token: another user's process does not become a rank. */
static void another_user_stays_out(void **state) {
    (void)state;
    rank_case ranks[2];
    pthread_t root;
    if (geteuid() != 0) {
        skip();
    }
    prepare_ranks(ranks, 2, fresh_place("tcp"), 20);
    pthread_create(&root, NULL, join_rank, &ranks[0]);
    usleep(100000);
    pid_t stranger = fork();
    if (stranger == 0) {
        ranks[1].options.timeout_seconds = 1;
        bool dropped = setgid(65534) == 0 && setuid(65534) == 0;
        join_rank(&ranks[1]);
        _exit(!dropped || ranks[1].status == TRM_OK ||
              strstr(ranks[1].err.message, "has published none") == NULL);
    }
    int code;
    assert_int_equal(waitpid(stranger, &code, 0), stranger);
    assert_int_equal(code, 0);
    join_rank(&ranks[1]);
    pthread_join(root, NULL);
    all_joined(ranks, 2);
    on_all(ranks, 2, leave_rank);
}

static void two_jobs_do_not_mix(void **state) {
    /* same port, different jobs: told apart by their key; the second root is refused the place */
    rank_case ranks[4];
    char place[64];
    prepare_ranks(ranks, 2, fresh_place("unix"), 10);
    strcpy(place, ranks[0].flags.rendezvous);
    pthread_t root;
    ranks[0].flags.rendezvous = place;
    pthread_create(&root, NULL, join_rank, &ranks[0]);
    usleep(100000);
    prepare_ranks(ranks + 2, 2, place, 1);
    join_rank(&ranks[2]);
    assert_int_equal(ranks[2].status, TRM_INVALID);
    assert_non_null(strstr(ranks[2].err.message, "another job of yours already meets"));
    ranks[1].flags.rendezvous = place;
    join_rank(&ranks[1]);
    pthread_join(root, NULL);
    all_joined(ranks, 2);
    on_all(ranks, 2, leave_rank);
    /* a taken port */
    prepare_ranks(ranks, 2, fresh_place("tcp"), 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0), port;
    sscanf(ranks[0].flags.rendezvous, "127.0.0.1:%d", &port);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    listen(fd, 1);
    join_rank(&ranks[0]);
    assert_int_equal(ranks[0].status, TRM_INVALID);
    assert_non_null(strstr(ranks[0].err.message, "is taken by another program"));
    close(fd);
}

static void exchanges_fail_with_reasons(void **state) {
    rank_case ranks[RANKS_MAX];
    trm_error err;
    char mine[16] = "x", all[64];
    prepare_ranks(ranks, 3, fresh_place("unix"), 10);
    on_all(ranks, 3, join_rank);
    all_joined(ranks, 3);
    trm_bootstrap *zero = ranks[0].bootstrap, *one = ranks[1].bootstrap;
    double start = trmi_os_now();
    CHECK_FAILS(one->table->allgather(one, mine, 1, all, 0.3, &err), TRM_TIMEOUT, err,
                " s for ranks 0, 2 of 3");
    CHECK_FAILS(zero->table->allgather(zero, mine, 1, all, 0.1, &err), TRM_TIMEOUT, err,
                "rank 2 of 3");
    assert_true(trmi_os_now() - start < 10);
    assert_true(trmi_bootstrap_healthy(one)); /* the caller decides whether that is the end */
    CHECK_FAILS(one->table->allgather(one, mine, 1 << 26, all, 1, &err), TRM_INVALID, err,
                "at most 67108864 bytes");
    /* a rank that leaves has not died, but no rank waits for it */
    leave_rank(&ranks[2]);
    usleep(700000); /* its BYE ends exchange 1, which it never joined */
    CHECK_FAILS(zero->table->barrier(zero, 10, &err), TRM_PEER, err, "rank 2");
    assert_true(trmi_bootstrap_healthy(zero));
    on_all(ranks, 2, leave_rank);
    /* different lengths */
    prepare_ranks(ranks, 2, fresh_place("unix"), 10);
    on_all(ranks, 2, join_rank);
    all_joined(ranks, 2);
    gather_case thread = {.bootstrap = ranks[1].bootstrap, .rounds = 1};
    pthread_t other;
    pthread_create(&other, NULL, gather_rounds, &thread);
    CHECK_FAILS(ranks[0].bootstrap->table->allgather(ranks[0].bootstrap, mine, 9, all, 5, &err),
                TRM_INVALID, err, "all must bring equally many");
    pthread_join(other, NULL);
    assert_true(thread.wrong);
    on_all(ranks, 2, leave_rank);
}

static void first_cause_reaches_everybody(void **state) {
    for (int from = 0; from < 3; from++) {
        rank_case ranks[RANKS_MAX];
        trm_error cause, err;
        prepare_ranks(ranks, 3, fresh_place("unix"), 10);
        on_all(ranks, 3, join_rank);
        all_joined(ranks, 3);
        TRMI_FAIL(&cause, TRM_NOSPACE, "disk of rank %d is full", from);
        trm_bootstrap *b = ranks[from].bootstrap;
        double start = trmi_os_now();
        b->table->poison(b, &cause);
        TRMI_FAIL(&cause, TRM_IO, "too late");
        ranks[0].bootstrap->table->poison(ranks[0].bootstrap, &cause);
        for (int r = 0; r < 3; r++) {
            trm_bootstrap *boot = ranks[r].bootstrap;
            struct pollfd wait = {.fd = boot->alarm_fd, .events = POLLIN};
            assert_int_equal(poll(&wait, 1, 1000), 1);
            trmi_futex_wait(boot->alarm, 0, 1);
            CHECK_FAILS(boot->table->check(boot, &err), TRM_NOSPACE, err, "is full");
            assert_int_equal(err.rank, from);
            CHECK_FAILS(boot->table->barrier(boot, 5, &err), TRM_NOSPACE, err, "is full");
        }
        assert_true(trmi_os_now() - start < check_slack());
        on_all(ranks, 3, leave_rank);
    }
}

/* CM_*: only the chief knows its rank, the others are numbered by address and device. */
static const char *cm_lookup(void *context, const char *name) {
    static const char *const all[] = {"CM_CHIEF_IP=127.0.0.1", "CM_CHIEF_PORT=9",
                                      "CM_CHIEF_DEVICE=2", "CM_WORKER_SIZE=3",
                                      "CM_WORKER_IP=127.0.0.1"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strncmp(all[i], name, length) == 0 && all[i][length] == '=') {
            return all[i] + length + 1;
        }
    }
    return strcmp(name, "ASCEND_DEVICE_ID") == 0 ? context : NULL;
}

static void *join_cm(void *context) {
    rank_case *one = context;
    trm_cluster *cluster;
    one->status = trm_cluster_from_env(&one->flags, cm_lookup, (void *)(uintptr_t)one->device,
                                       &cluster, &one->err);
    if (one->status == TRM_OK) {
        one->status = trm_cluster_join(cluster, &one->options, &one->bootstrap, &one->err);
        trm_cluster_destroy(cluster);
    }
    return NULL;
}

static void ranks_may_be_given_later(void **state) {
    static const char *const devices[] = {"2", "5", "3"};
    static const int expected[] = {0, 2, 1};
    rank_case ranks[3];
    prepare_ranks(ranks, 3, fresh_place("tcp"), 10);
    pthread_t threads[3];
    for (int r = 0; r < 3; r++) {
        ranks[r].flags = (trm_cluster_flags){.rendezvous = ranks[r].flags.rendezvous};
    }
    for (int r = 0; r < 3; r++) {
        /* the device travels through the lookup's context */
        ranks[r].device = devices[r];
    }
    for (int r = 0; r < 3; r++) {
        pthread_create(&threads[r], NULL, join_cm, &ranks[r]);
    }
    for (int r = 0; r < 3; r++) {
        pthread_join(threads[r], NULL);
    }
    all_joined(ranks, 3);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].bootstrap->rank, expected[r]);
    }
    on_all(ranks, 3, leave_rank);
}

/* ---- processes ---- */

typedef struct report {
    trm_status status[RANKS_MAX];
    trm_error err[RANKS_MAX];
    double seconds[RANKS_MAX]; /* from `fault_time` until the rank knew */
    int ready;
    double fault_time;
} report;

/* A rank that joins, reports that, and waits until it learns that the job has failed. */
static void rank_process(report *shared, rank_case *one, int r) {
    join_rank(one);
    if (one->status != TRM_OK) {
        shared->status[r] = one->status;
        shared->err[r] = one->err;
        _exit(1);
    }
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 4000 && trmi_bootstrap_healthy(one->bootstrap); i++) {
        trmi_futex_wait(one->bootstrap->alarm, 0, 0.01);
    }
    shared->seconds[r] = trmi_os_now() - shared->fault_time;
    shared->status[r] = one->bootstrap->table->check(one->bootstrap, &shared->err[r]);
    trm_cluster_leave(one->bootstrap);
    _exit(0);
}

static report *start_processes(rank_case *ranks, int n, pid_t *pids) {
    report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            alarm(60);
            rank_process(shared, &ranks[r], r);
        }
    }
    for (int i = 0; i < 2000 && __atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < n; i++) {
        usleep(5000);
    }
    assert_int_equal(__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST), n);
    return shared;
}

static void killed_ranks_are_named_within_a_second(void **state) {
    static const char *const kinds[] = {"unix", "tcp"};
    for (int k = 0; k < 2; k++) {
        for (int victim = 0; victim < 3; victim++) {
            rank_case ranks[RANKS_MAX];
            pid_t pids[RANKS_MAX];
            int status;
            char text[32];
            prepare_ranks(ranks, 4, fresh_place(kinds[k]), 20);
            report *shared = start_processes(ranks, 4, pids);
            shared->fault_time = trmi_os_now();
            kill(pids[victim], SIGKILL);
            sprintf(text, "rank %d (", victim);
            for (int r = 0; r < 4; r++) {
                waitpid(pids[r], &status, 0);
                if (r == victim) {
                    continue;
                }
                assert_int_equal(shared->status[r], TRM_PEER);
                assert_non_null(strstr(shared->err[r].message, text));
                assert_non_null(strstr(shared->err[r].message, "died"));
                assert_int_equal(shared->err[r].rank, victim);
                assert_true(shared->seconds[r] < check_slack());
            }
            munmap(shared, sizeof *shared);
        }
    }
}

static void stopped_ranks_are_told_from_dead_ones(void **state) {
    rank_case ranks[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    int status;
    prepare_ranks(ranks, 3, fresh_place("unix"), 20);
    for (int r = 0; r < 3; r++) {
        ranks[r].options.heartbeat_seconds = 0.1;
        ranks[r].options.stall_seconds = 3;
    }
    report *shared = start_processes(ranks, 3, pids);
    /* stopped shorter than the limit: nothing happens */
    kill(pids[1], SIGSTOP);
    usleep(1500000);
    kill(pids[1], SIGCONT);
    usleep(500000);
    assert_int_equal(shared->status[0], 0);
    assert_int_equal(kill(pids[0], 0), 0);
    assert_int_equal(waitpid(pids[0], &status, WNOHANG), 0);
    shared->fault_time = trmi_os_now();
    kill(pids[1], SIGSTOP);
    for (int r = 0; r < 3; r += 2) {
        waitpid(pids[r], &status, 0);
        assert_int_equal(shared->status[r], TRM_PEER);
        assert_non_null(strstr(shared->err[r].message, "rank 1 ("));
        assert_non_null(strstr(shared->err[r].message, "stopped or hung"));
        assert_true(shared->seconds[r] > 2.5 && shared->seconds[r] < 5 * check_slack());
    }
    kill(pids[1], SIGKILL);
    kill(pids[1], SIGCONT);
    waitpid(pids[1], &status, 0);
    munmap(shared, sizeof *shared);
}

/* ---- hosts: two network name spaces joined by a wire ---- */

static char spaces[2][32];

static int run_command(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return system(line);
}

static void remove_hosts(void) {
    for (int h = 0; h < 2 && spaces[h][0] != '\0'; h++) {
        run_command("ip netns del %s 2>/dev/null", spaces[h]);
        spaces[h][0] = '\0';
    }
}

/* 10.77.0.1 and 10.77.0.2, each with its loopback; false when this machine does not let us. */
static bool make_hosts(void) {
    for (int h = 0; h < 2; h++) {
        sprintf(spaces[h], "trmside%d-%d", h, (int)getpid());
    }
    bool made = run_command("ip netns add %s 2>/dev/null && ip netns add %s 2>/dev/null", spaces[0],
                            spaces[1]) == 0 &&
                run_command("ip -n %s link add w type veth peer name w netns %s", spaces[0],
                            spaces[1]) == 0;
    for (int h = 0; made && h < 2; h++) {
        made = run_command("ip -n %s addr add 10.77.0.%d/24 dev w && ip -n %s link set w up && "
                           "ip -n %s link set lo up",
                           spaces[h], h + 1, spaces[h], spaces[h]) == 0;
    }
    if (!made) {
        remove_hosts();
        print_message("skipped: network name spaces cannot be made here\n");
    }
    return made;
}

static void enter_host(int h) {
    char path[64];
    sprintf(path, "/var/run/netns/%s", spaces[h]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        _exit(9);
    }
    close(fd);
}

/* Ranks 0 .. n-1; the last one is on the second host. */
static report *start_on_hosts(rank_case *ranks, int n, pid_t *pids, int ready) {
    report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(60);
            enter_host(r == n - 1);
            rank_process(shared, &ranks[r], r);
        }
    }
    for (int i = 0; i < 2000 && __atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < ready; i++) {
        usleep(5000);
    }
    return shared;
}

static void hosts_without_token_are_refused(void **state) {
    rank_case ranks[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    int status;
    if (!make_hosts()) {
        skip();
    }
    prepare_ranks(ranks, 3, "10.77.0.1:7070", 2);
    report *shared = start_on_hosts(ranks, 3, pids, 0);
    for (int r = 0; r < 3; r++) {
        waitpid(pids[r], &status, 0);
    }
    assert_int_equal(shared->status[2], TRM_INVALID);
    assert_non_null(strstr(shared->err[2].message, "this job has no token"));
    assert_int_equal(shared->status[0], TRM_TIMEOUT); /* rank 1 on the same host was let in */
    assert_non_null(strstr(shared->err[0].message, "for rank 2 of 3"));
    munmap(shared, sizeof *shared);
    remove_hosts();
}

static void cut_off_hosts_are_named_within_six_seconds(void **state) {
    rank_case ranks[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    trm_error err;
    char token[64];
    int status;
    if (!make_hosts()) {
        skip();
    }
    sprintf(token, "%s/host.token", directory);
    CHECK_OK(trmi_token_create(token, &err), err);
    prepare_ranks(ranks, 3, "10.77.0.1:7070", 20);
    for (int r = 0; r < 3; r++) {
        ranks[r].flags.token_file = token;
    }
    report *shared = start_on_hosts(ranks, 3, pids, 3);
    assert_int_equal(shared->ready, 3);
    /* route packets to each other to an address that no host has */
    for (int h = 0; h < 2; h++) {
        assert_int_equal(
            run_command("ip -n %s neigh replace 10.77.0.%d lladdr 02:00:00:00:00:99 dev w "
                        "nud permanent",
                        spaces[h], 2 - h),
            0);
    }
    shared->fault_time = trmi_os_now();
    for (int r = 0; r < 3; r++) {
        waitpid(pids[r], &status, 0);
        assert_int_equal(shared->status[r], TRM_PEER);
        assert_non_null(strstr(shared->err[r].message, "no answer from its host"));
        assert_non_null(strstr(shared->err[r].message, r == 2 ? "rank 0 (" : "rank 2 ("));
        print_message("rank %d knew after %.1f s\n", r, shared->seconds[r]);
        assert_true(shared->seconds[r] < 6 * check_slack());
    }
    munmap(shared, sizeof *shared);
    unlink(token);
    remove_hosts();
}

static int make_directory(void **state) { return mkdtemp(directory) == NULL; }
static int remove_directory(void **state) {
    trm_error err;
    remove_hosts(); /* of a test that has failed */
    return trmi_os_remove_tree(NULL, directory, &err) != TRM_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_are_named_within_a_second),
        cmocka_unit_test(stopped_ranks_are_told_from_dead_ones),
        cmocka_unit_test(hosts_without_token_are_refused),
        cmocka_unit_test(cut_off_hosts_are_named_within_six_seconds),
        cmocka_unit_test(ranks_meet_in_every_place),
        cmocka_unit_test(one_rank_costs_nothing),
        cmocka_unit_test(hosts_are_numbered_by_rank),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(disagreement_names_both_sides),
        cmocka_unit_test(tokens_decide),
        cmocka_unit_test(strangers_do_not_disturb),
        cmocka_unit_test(another_user_stays_out),
        cmocka_unit_test(two_jobs_do_not_mix),
        cmocka_unit_test(exchanges_fail_with_reasons),
        cmocka_unit_test(first_cause_reaches_everybody),
        cmocka_unit_test(ranks_may_be_given_later),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
