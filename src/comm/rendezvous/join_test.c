/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that MindSpore's msrun has started, what HCCL's variables say of a rank, and what a member
 * of a running job brings. */
#include "check.h"

#include "trireme/dist.h"

#include "base/os.h"
#include "comm/rendezvous/side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct member {
    trm_lookup lookup;
    const char *number; /* what the lookup is about: a device or a rank */
    const char *place;
    double timeout;
    trm_status status;
    trm_error err;
    trm_bootstrap *bootstrap;
    double end_time;
} member;

static char port[8];

static void choose_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    close(fd);
    snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
}

static void *join_job(void *context) {
    member *m = context;
    trm_cluster *cluster;
    const trm_cluster_flags flags = {.rendezvous = m->place};
    const trm_join_options options = {.timeout_seconds = m->timeout};
    m->status =
        trm_cluster_from_env(&flags, m->lookup, (void *)(uintptr_t)m->number, &cluster, &m->err);
    if (m->status == TRM_OK) {
        m->status = trm_cluster_join(cluster, &options, &m->bootstrap, &m->err);
        trm_cluster_destroy(cluster);
    }
    m->end_time = trmi_os_now();
    return NULL;
}

static void *leave_job(void *context) {
    trm_cluster_leave(((member *)context)->bootstrap);
    return NULL;
}

static void leave_all(member *members, int n) {
    pthread_t threads[4];
    for (int r = 0; r < n; r++) {
        pthread_create(&threads[r], NULL, leave_job, &members[r]);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
    }
}

/* A worker without a number, or the scheduler ("-1"). */
static const char *ms_lookup(void *context, const char *name) {
    bool scheduler = strcmp(context, "-1") == 0;
    return strcmp(name, "MS_ROLE") == 0         ? scheduler ? "MS_SCHED" : "MS_WORKER"
           : strcmp(name, "MS_WORKER_NUM") == 0 ? "3"
           : strcmp(name, "MS_SCHED_HOST") == 0 ? "127.0.0.1"
           : strcmp(name, "MS_SCHED_PORT") == 0 ? port
           : strcmp(name, "DEVICE_ID") == 0     ? scheduler ? NULL : context
                                                : NULL;
}

/* The first worker at the address is rank 0; the scheduler ends when rank 0 has left, not before.
 */
static void msruns_workers_number_themselves(void **state) {
    static const char *const devices[] = {"2", "0", "1", "-1"};
    member members[4] = {{0}};
    pthread_t threads[4];
    bool seen[3] = {false};
    choose_port();
    for (int r = 3; r >= 0; r--) {
        members[r] = (member){.lookup = ms_lookup, .number = devices[r], .timeout = 20};
        pthread_create(&threads[r], NULL, join_job, &members[r]);
        usleep(r == 3 ? 200000 : 0); /* msrun starts the scheduler first */
    }
    for (int r = 0; r < 3; r++) {
        pthread_join(threads[r], NULL);
        CHECK_OK(members[r].status, members[r].err);
    }
    for (int r = 0; r < 3; r++) {
        int rank = members[r].bootstrap->rank;
        assert_true(rank >= 0 && rank < 3 && !seen[rank]);
        seen[rank] = true;
    }
    usleep(300000);
    double left = trmi_os_now();
    leave_all(members, 3);
    pthread_join(threads[3], NULL);
    assert_int_equal(members[3].status, TRM_END);
    assert_non_null(strstr(members[3].err.message, "the job of 3 ranks at 127.0.0.1:"));
    assert_true(members[3].end_time >= left);
}

/* It must not keep msrun waiting. */
static void a_scheduler_without_a_job_ends(void **state) {
    member one = {.lookup = ms_lookup, .number = "-1", .timeout = 0.3};
    choose_port();
    join_job(&one);
    assert_int_equal(one.status, TRM_END);
    assert_non_null(strstr(one.err.message, "no rank 0 answered at 127.0.0.1:"));
}

static const char *hccl_lookup(void *context, const char *name) {
    return strcmp(name, "TRIREME_RANK") == 0   ? context
           : strcmp(name, "TRIREME_SIZE") == 0 ? "2"
           : strcmp(name, "HCCL_IF_IP") == 0 ? strcmp(context, "0") == 0 ? "127.0.0.8" : "127.0.0.9"
           : strcmp(name, "HCCL_EXEC_TIMEOUT") == 0  ? "77"
           : strcmp(name, "HCCL_DETERMINISTIC") == 0 ? "true"
                                                     : NULL;
}

static void hccl_says_how_a_rank_is_reached(void **state) {
    static const char *const numbers[] = {"0", "1"}, *const addresses[] = {"127.0.0.8",
                                                                           "127.0.0.9"};
    member members[2] = {{0}};
    pthread_t threads[2];
    char place[32];
    choose_port();
    snprintf(place, sizeof place, "127.0.0.1:%s", port);
    for (int r = 0; r < 2; r++) {
        members[r] =
            (member){.lookup = hccl_lookup, .number = numbers[r], .place = place, .timeout = 20};
        pthread_create(&threads[r], NULL, join_job, &members[r]);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(threads[r], NULL);
        CHECK_OK(members[r].status, members[r].err);
        const trm_bootstrap *b = members[r].bootstrap;
        assert_string_equal(b->address, addresses[r]);
        assert_true(b->exec_seconds == 77 && b->deterministic == TRM_DETERMINISTIC_TRUE);
    }
    leave_all(members, 2);
}

/* Rank 0 of an elastic job that listens, and what it was told. */
typedef struct listening {
    const char *place;
    int32_t size; /* ranks of the job that it is to begin */
    trm_status status;
    char heard[16];
    trm_error err;
} listening;

static trm_status hear_running(void *context, const trmi_join *join, const trmi_link *link,
                               const trmi_frame *frame, trm_error *err) {
    (void)join, (void)link, (void)err;
    memcpy(((listening *)context)->heard, frame->payload, frame->bytes < 16 ? frame->bytes : 15);
    return TRM_END;
}

/* Fills in what a rank of a job of `size` ranks brings to the place. */
static void prepare_rank(const char *where, int32_t rank, int32_t size, trmi_join *out) {
    trm_error err;
    trm_cluster *cluster;
    const trm_cluster_flags flags = {.rank = rank, .size = size, .rendezvous = where};
    const trm_join_options options = {.timeout_seconds = 60, .insecure = true};
    CHECK_OK(trm_cluster_create(&flags, &cluster, &err), err);
    CHECK_OK(trmi_side_prepare(cluster, &options, out, &err), err);
    CHECK_OK(trmi_side_find_place(cluster, out, &err), err);
    trm_cluster_destroy(cluster);
}

static void *listen_as_rank_0(void *context) {
    listening *l = context;
    trmi_join join;
    trm_bootstrap *bootstrap = NULL;
    prepare_rank(l->place, 0, l->size, &join);
    join.running = hear_running;
    join.running_context = l;
    trmi_join lasting = join;
    trmi_reception held = TRMI_RECEPTION_CLOSED;
    join.holds = l->size == 1 ? &held : NULL;
    join.lasting = &lasting;
    l->status = trmi_side_meet(&join, &bootstrap, &l->err);
    trmi_reception_close(&held, &lasting);
    return NULL;
}

/* What a member brings. */
typedef struct brought {
    trmi_frame_type type;
    char text[8];
} brought;

static void bring_link(void *context, trmi_link *link) {
    const brought *what = context;
    (void)trmi_link_put(link, what->type, 0, what->text, strlen(what->text));
    (void)trmi_link_flush(link);
}

/* The only process on the host of the place has come back: no member can listen there, so a member
 * comes and says where the doors are, also to one that is to begin alone. A member that says
 * something else makes it ask again. */
static void a_herald_brings_the_doors(void **state) {
    char where[32];
    choose_port();
    snprintf(where, sizeof where, "127.0.0.1:%s", port);
    for (int i = 0; i < 4; i++) {
        const bool brings = i % 2 == 1;
        brought what = {brings ? TRMI_FRAME_RUNNING : TRMI_FRAME_ACK, "doors"};
        listening l = {.place = where, .size = 1 + i / 2, .status = TRM_INVALID};
        trm_error err;
        trmi_join herald;
        pthread_t thread;
        bool ended = false;
        pthread_create(&thread, NULL, listen_as_rank_0, &l);
        for (int tries = 0; tries < 3000 && !ended; tries++) { /* until it listens */
            prepare_rank(where, 1, 2, &herald);
            herald.hello.rank = TRMI_HERALD;
            (void)!trmi_side_ask_running(&herald, bring_link, &what, &err);
            usleep(20000);
            ended = pthread_tryjoin_np(thread, NULL) == 0;
        }
        assert_true(ended);
        assert_int_equal(l.status, brings ? TRM_END : TRM_PENDING);
        assert_string_equal(l.heard, brings ? "doors" : "");
    }
    (void)state;
}

/* Lets one connection in, then closes the place. */
static void *let_one_in(void *context) {
    int listener = *(int *)context, fd = accept(listener, NULL, NULL);
    close(listener);
    close(fd);
    return NULL;
}

/* A rank was let in to a meeting, its connection broke, and then the place is closed: a place of
 * one meeting is left, at another one the rank waits for rank 0. */
static void an_ended_meeting_is_left(void **state) {
    for (int once = 0; once < 2; once++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof address;
        char where[32];
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
        assert_int_equal(listen(listener, 1), 0);
        getsockname(listener, (struct sockaddr *)&address, &bytes);
        snprintf(where, sizeof where, "127.0.0.1:%d", ntohs(address.sin_port));
        trmi_join join;
        trm_error err;
        trm_bootstrap *bootstrap = NULL;
        pthread_t thread;
        prepare_rank(where, 1, 2, &join);
        join.once = once != 0;
        join.options.timeout_seconds = once != 0 ? 60 : 0.5;
        pthread_create(&thread, NULL, let_one_in, &listener);
        trm_status status = trmi_side_meet(&join, &bootstrap, &err);
        pthread_join(thread, NULL);
        assert_int_equal(status, once != 0 ? TRM_PEER : TRM_TIMEOUT);
        assert_non_null(strstr(err.message, once != 0 ? "rank 0 has ended the meeting of 2 ranks"
                                                      : "Connection refused"));
    }
    (void)state;
}

/* A rank that comes to an elastic job that has ended is told so, long before its deadline. */
static void a_job_that_has_ended_is_not_waited_for(void **state) {
    char folder[] = "/tmp/joinXXXXXX", where[64], list[64];
    assert_non_null(mkdtemp(folder));
    snprintf(where, sizeof where, "unix:%s/place", folder);
    snprintf(list, sizeof list, "%s/place.lost", folder);
    trmi_place_add_ended(where + strlen("unix:"));
    assert_int_not_equal(access(list, F_OK), 0); /* a rank begins no list */
    trmi_place_begin_list(where + strlen("unix:"));
    trmi_place_add_ended(where + strlen("unix:"));
    for (int32_t rank = 0; rank < 2; rank++) {
        listening l = {.place = where};
        trmi_join join;
        trm_error err;
        trm_bootstrap *bootstrap = NULL;
        prepare_rank(where, rank, 2, &join);
        join.running = hear_running;
        join.running_context = &l;
        assert_int_equal(trmi_side_meet(&join, &bootstrap, &err), TRM_PEER);
        assert_non_null(strstr(err.message, "has come to an elastic job that has ended"));
    }
    unlink(list);
    rmdir(folder);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(msruns_workers_number_themselves),
        cmocka_unit_test(a_scheduler_without_a_job_ends),
        cmocka_unit_test(hccl_says_how_a_rank_is_reached),
        cmocka_unit_test(a_herald_brings_the_doors),
        cmocka_unit_test(an_ended_meeting_is_left),
        cmocka_unit_test(a_job_that_has_ended_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
