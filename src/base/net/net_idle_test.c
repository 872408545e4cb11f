/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of sockets with deadlines: how an idle connection ends whose other host has gone. */
#include "base/net/net.h"

#include "base/os.h"
#include "check.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Makes a connection within this process. */
static void connect_ends(int *here, int *there) {
    char name[TRMI_NET_NAME_BYTES], host[64];
    int32_t port;
    trm_error err;
    int listener;
    CHECK_OK(trmi_net_bind("127.0.0.1", 0, &listener, name, &err), err);
    assert_int_equal(listen(listener, 1), 0);
    CHECK_OK(trmi_net_split(name, host, &port, &err), err);
    const trmi_wait_limit limit = {.deadline = trmi_os_now() + 10 * check_patience()};
    CHECK_OK(trmi_net_connect(host, port, &limit, here, &err), err);
    struct pollfd waits = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&waits, 1, (int)(1e4 * check_patience())), 1);
    *there = accept(listener, NULL, NULL);
    assert_true(*there >= 0);
    close(listener);
}

static int option_of(int fd, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, name, &value, &bytes), 0);
    return value;
}

static void silence_has_a_limit(void **state) {
    int here, there;
    (void)state;
    connect_ends(&here, &there);
    trmi_net_set_patience(here, 15);
    assert_int_equal(option_of(here, TCP_USER_TIMEOUT), 15000);
    assert_int_equal(option_of(here, TCP_KEEPIDLE), 5);
    assert_int_equal(option_of(here, TCP_KEEPINTVL), 5);
    trmi_net_set_patience(here, 0.25);
    assert_int_equal(option_of(here, TCP_USER_TIMEOUT), 250);
    assert_int_equal(option_of(here, TCP_KEEPIDLE), 1);
    trmi_net_set_patience(here, 1e9);
    assert_int_equal(option_of(here, TCP_USER_TIMEOUT), 1000000000);
    assert_int_equal(option_of(here, TCP_KEEPINTVL), 32767);
    close(here);
    close(there);
}

/* The other end vanishes without a word, as when its host loses its power and starts again: a
 * process that only waits for data learns of it. */
static void a_host_that_started_again_is_noticed(void **state) {
    int here, there, yes = 1;
    (void)state;
    connect_ends(&here, &there);
    trmi_net_set_patience(here, 3);
    /* a socket under repair is closed without a word; only root may do that */
    const bool vanishes = setsockopt(there, IPPROTO_TCP, TCP_REPAIR, &yes, sizeof yes) == 0;
    close(there);
    struct pollfd waits = {.fd = here, .events = POLLIN};
    char byte;
    if (vanishes) {
        assert_int_equal(poll(&waits, 1, (int)(2e4 * check_patience())), 1);
        assert_int_equal(recv(here, &byte, 1, 0), -1);
        assert_int_equal(errno, ECONNRESET);
    }
    close(here);
    if (!vanishes) {
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_has_a_limit),
        cmocka_unit_test(a_host_that_started_again_is_noticed),
    };
    return cmocka_run_group_tests_name("idle connections", tests, NULL, NULL);
}
