/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between the processes of a job (base/net/net.h): the proof of the token, and what
 * processes without the token can cause.
 *
 * Both ends run in this process, over real sockets. A stranger may connect, be silent or send
 * anything: it must be refused, cost neither a thread nor an allocation, and not keep others
 * from connecting. */
#include "base/net/net.h"

#include "base/os.h"
#include "check.h"
#include "threads_of_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t token[TRMI_TOKEN_BYTES] = "the token of this job";
enum { VERSION = 3, IDLE = 500 };

/* An acceptor and the thread that serves it. */
typedef struct gate {
    trmi_acceptor *acceptor;
    char host[64]; /* with port: where it listens */
    int32_t port;
    pthread_t thread;
    trmi_session last;    /* of the last peer that proved the token */
    _Atomic int accepted; /* such peers */
} gate;

static void open_gate(gate *g, const char *(*refuses)(void *context, bool is_local)) {
    char name[TRMI_NET_NAME_BYTES];
    trm_error err;
    int fd;
    memset(g, 0, sizeof *g);
    trmi_acceptor_options options = {
        .credentials = {.service = TRMI_SERVICE_PARAMETERS, .version = VERSION},
        .room = "test",
        .name = "gate",
        .refuses = refuses};
    memcpy(options.credentials.token, token, sizeof token);
    CHECK_OK(trmi_net_bind("127.0.0.1", 0, &fd, name, &err), err);
    CHECK_OK(trmi_net_split(name, g->host, &g->port, &err), err);
    CHECK_OK(trmi_acceptor_create(&fd, 1, &options, &g->acceptor, &err), err);
}

static void *serve_one(void *context) {
    gate *g = context;
    trmi_session session;
    trm_status status;
    while ((status = trmi_acceptor_next(g->acceptor, 0.2, &session, NULL)) != TRM_CANCELLED) {
        if (status == TRM_OK) {
            g->last = session;
            close(session.fd);
            g->accepted++;
        }
    }
    return NULL;
}

static void start_gate(gate *g) {
    open_gate(g, NULL);
    assert_int_equal(pthread_create(&g->thread, NULL, serve_one, g), 0);
}

static void stop_gate(gate *g) {
    trmi_acceptor_stop(g->acceptor);
    pthread_join(g->thread, NULL);
    trmi_acceptor_destroy(g->acceptor);
}

static trmi_wait_limit limit_of(double seconds) {
    return (trmi_wait_limit){.deadline = trmi_os_now() + seconds};
}

static int connect_to(const gate *g) {
    trm_error err;
    int fd;
    const trmi_wait_limit patience = limit_of(10);
    CHECK_OK(trmi_net_connect(g->host, g->port, &patience, &fd, &err), err);
    return fd;
}

static trm_status prove_to_gate(const gate *g, trmi_credentials mine, trmi_session *out,
                                trm_error *err) {
    const trmi_wait_limit patience = limit_of(10);
    trmi_session session;
    int fd = connect_to(g);
    trm_status status =
        trmi_net_prove_token(fd, &mine, &patience, out != NULL ? out : &session, err);
    if (status != TRM_OK || out == NULL) {
        close(fd);
    }
    return status;
}

static trmi_credentials make_credentials(const uint8_t *own) {
    trmi_credentials mine = {.service = TRMI_SERVICE_PARAMETERS,
                             .version = VERSION,
                             .detail = "rank 3",
                             .detail_bytes = 6};
    memcpy(mine.token, own, TRMI_TOKEN_BYTES);
    return mine;
}

/* A connector and an acceptor with one token agree on keys and detail; another token, version or
 * service is refused. */
static void both_ends_prove_the_token(void **state) {
    (void)state;
    gate g;
    trm_error err;
    trmi_session mine;
    start_gate(&g);
    CHECK_OK(prove_to_gate(&g, make_credentials(token), &mine, &err), err);
    while (g.accepted == 0) {
        usleep(1000);
    }
    assert_int_equal(g.last.detail_bytes, 6);
    assert_memory_equal(g.last.detail, "rank 3", 6);
    assert_true(g.last.is_local && mine.is_local);
    assert_memory_equal(g.last.up_key, mine.up_key, 32);
    assert_memory_equal(g.last.down_key, mine.down_key, 32);
    assert_memory_not_equal(mine.up_key, mine.down_key, 32);
    close(mine.fd);

    static const uint8_t other[TRMI_TOKEN_BYTES] = "the token of another job",
                         zeros[TRMI_TOKEN_BYTES];
    CHECK_FAILS(prove_to_gate(&g, make_credentials(other), NULL, &err), TRM_INVALID, err,
                "tokens differ");
    CHECK_FAILS(prove_to_gate(&g, make_credentials(zeros), NULL, &err), TRM_INVALID, err,
                "tokens differ");
    trmi_credentials old = make_credentials(token);
    old.version = VERSION - 1;
    CHECK_FAILS(prove_to_gate(&g, old, NULL, &err), TRM_UNSUPPORTED, err,
                "version 3, this process version 2");
    trmi_credentials elsewhere = make_credentials(token);
    elsewhere.service = TRMI_SERVICE_COLLECTIVES;
    CHECK_FAILS(prove_to_gate(&g, elsewhere, NULL, &err), TRM_PEER, err, "does not answer");
    assert_int_equal(g.accepted, 1);
    stop_gate(&g);
}

/* After a valid HELLO only the PROOF is accepted: a CHALLENGE that is sent back is refused. */
static void a_wrong_proof_is_refused(void **state) {
    (void)state;
    gate g;
    trm_error err;
    uint8_t hello[TRMI_HELLO_HEAD] = "TRIREME", answer[TRMI_CHALLENGE_BYTES], byte;
    const trmi_wait_limit patience = limit_of(10);
    start_gate(&g);
    hello[8] = VERSION;
    hello[10] = TRMI_SERVICE_PARAMETERS;
    int fd = connect_to(&g);
    CHECK_OK(trmi_net_send(fd, hello, sizeof hello, &patience, &err), err);
    CHECK_OK(trmi_net_receive(fd, answer, sizeof answer, &patience, &err), err);
    CHECK_OK(trmi_net_send(fd, answer + 48, TRMI_PROOF_BYTES, &patience, &err), err);
    CHECK_FAILS(trmi_net_receive(fd, &byte, 1, &patience, &err), TRM_PEER, err, "closed");
    close(fd);
    hello[13] = 2; /* a detail of 512 bytes */
    fd = connect_to(&g);
    CHECK_OK(trmi_net_send(fd, hello, sizeof hello, &patience, &err), err);
    CHECK_FAILS(trmi_net_receive(fd, &byte, 1, &patience, &err), TRM_PEER, err, "closed");
    close(fd);
    assert_int_equal(g.accepted, 0);
    stop_gate(&g);
}

static const char *refuse_all(void *context, bool is_local) {
    (void)context;
    return is_local ? "this gate is closed today, and its reason is as long as the longest that "
                      "the rooms give"
                    : "another host";
}

static void a_room_may_refuse_before_the_proof(void **state) {
    (void)state;
    gate g;
    trmi_session session;
    open_gate(&g, refuse_all);
    int fd = connect_to(&g);
    assert_int_equal(trmi_acceptor_next(g.acceptor, 0.2, &session, NULL), TRM_TIMEOUT);
    assert_non_null(strstr(trmi_acceptor_refused(g.acceptor), "closed today"));
    assert_non_null(strstr(trmi_acceptor_refused(g.acceptor), "the rooms give")); /* to its end */
    close(fd);
    trmi_acceptor_destroy(g.acceptor);
}

/* Five hundred silent connections cause no thread and no allocation, and a process with the token
 * still connects at once. */
static void idle_connections_cost_nothing(void **state) {
    (void)state;
    gate g;
    trm_error err;
    int idle[IDLE], open_ends = 0;
    start_gate(&g);
    CHECK_OK(prove_to_gate(&g, make_credentials(token), NULL, &err), err);
    int64_t before = trmi_os_resident_bytes();
    int threads = count_threads();
    for (int i = 0; i < IDLE; i++) {
        idle[i] = connect_to(&g);
    }
    for (int i = 0; i < 20; i++) {
        double begun = trmi_os_now();
        CHECK_OK(prove_to_gate(&g, make_credentials(token), NULL, &err), err);
        assert_true(trmi_os_now() - begun < 2 * check_patience());
    }
    assert_int_equal(count_threads(), threads);
    if (!TRMI_THREAD_SANITIZER) { /* which keeps memory of its own for each access */
        assert_true(trmi_os_resident_bytes() - before < 1 << 20);
    }
    for (int i = 0; i < IDLE; i++) {
        char byte;
        ssize_t got = recv(idle[i], &byte, 1, MSG_DONTWAIT);
        open_ends += got < 0;
    }
    assert_true(open_ends <= TRMI_UNPROVED_MAX);
    double deadline = trmi_os_now() + 2 * TRMI_HALF_OPEN_SECONDS * check_patience();
    for (char byte; open_ends > 0 && trmi_os_now() < deadline; usleep(50000)) {
        open_ends = 0;
        for (int i = 0; i < IDLE; i++) {
            open_ends += recv(idle[i], &byte, 1, MSG_DONTWAIT) < 0;
        }
    }
    assert_int_equal(open_ends, 0);
    for (int i = 0; i < IDLE; i++) {
        close(idle[i]);
    }
    stop_gate(&g);
}

static void addresses_are_checked(void **state) {
    (void)state;
    trm_error err;
    char host[64];
    int32_t port;
    CHECK_OK(trmi_net_split("[::1]:4000", host, &port, &err), err);
    assert_string_equal(host, "::1");
    assert_int_equal(port, 4000);
    static const char *const wrong[] = {"",       "host",    "host:",      ":1",
                                        "host:x", "host:1x", "host:65536", "host:-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_FAILS(trmi_net_split(wrong[i], host, &port, &err), TRM_INVALID, err,
                    "HOST:PORT expected");
    }
    const trmi_wait_limit patience = limit_of(1);
    int fd;
    CHECK_FAILS(trmi_net_connect("127.0.0.1", 1, &patience, &fd, &err), TRM_PEER, err,
                "cannot connect");
}

int main(void) {
    const struct rlimit files = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &files);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_prove_the_token),
        cmocka_unit_test(a_wrong_proof_is_refused),
        cmocka_unit_test(a_room_may_refuse_before_the_proof),
        cmocka_unit_test(idle_connections_cost_nothing),
        cmocka_unit_test(addresses_are_checked),
    };
    return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
