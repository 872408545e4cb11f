/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a server answers processes that know the job's token, and no others. */
#include "servers.h"
#include "threads_of_test.h"

#include "base/net/net.h"
#include "base/os.h"
#include "comm/rendezvous/token.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* Sends random bytes without a token, to which the server must answer by closing the connection. */
static void send_garbage(const char *host, int32_t port) {
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + 20};
    uint8_t garbage[500];
    trm_error err;
    int fd;
    memset(garbage, 'x', sizeof garbage);
    CHECK_OK(trmi_net_connect(host, port, &patience, &fd, &err), err);
    CHECK_OK(trmi_net_send(fd, garbage, sizeof garbage, &patience, &err), err);
    CHECK_FAILS(trmi_net_receive(fd, garbage, 1, &patience, &err), TRM_PEER, err, "closed");
    close(fd);
}

static void strangers_are_turned_away(void **state) {
    (void)state;
    trm_error err;
    trm_ps_server *server;
    trm_ps_server_options o = {.listen = "0.0.0.0:0", .shards = 1, .memory_bytes = 1 << 24};
    CHECK_FAILS(trm_ps_server_start(&o, &server, &err), TRM_INVALID, err, "needs the job's token");
    uint8_t token[32] = "the secret of this job", other[32] = "another", zeros[32] = {0};
    char host[64];
    int32_t port;
    o.listen = "127.0.0.1:0";
    o.token = token;
    CHECK_OK(trm_ps_server_start(&o, &server, &err), err);
    const char *address = trm_ps_server_address(server);
    CHECK_OK(trmi_net_split(address, host, &port, &err), err);
    trm_ps_client_options co = {.addresses = &address, .servers = 1, .timeout_seconds = 2};
    trm_ps_client *client;
    co.token = zeros;
    CHECK_FAILS(trm_ps_client_create(&co, &client, &err), TRM_PEER, err, "token");
    co.token = other;
    CHECK_FAILS(trm_ps_client_create(&co, &client, &err), TRM_PEER, err, "token");
    co.token = token;
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    trm_ps_client_destroy(client);
    send_garbage(host, port);
    co.token = NULL; /* a process of this user finds it */
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    trm_ps_client_destroy(client);
    trm_ps_server_stop(server);
}

/* Also where the caller names no token: one is made that only this user's processes find. */
static void a_token_is_always_needed(void **state) {
    (void)state;
    trm_error err;
    trm_ps_server *server =
        server_start((trm_ps_server_options){.listen = "127.0.0.1:0", .shards = 1});
    const char *address = trm_ps_server_address(server);
    uint8_t zeros[32] = {0}, token[32];
    trm_ps_client *client;
    trm_ps_client_options co = {
        .addresses = &address, .servers = 1, .worker = -1, .timeout_seconds = 2, .token = zeros};
    CHECK_FAILS(trm_ps_client_create(&co, &client, &err), TRM_PEER, err, "token");
    co.token = NULL;
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    trm_ps_client_destroy(client);

    struct stat file, folder;
    char path[TRMI_TOKEN_PATH_BYTES], *slash;
    snprintf(path, sizeof path, "/tmp/trireme-%u/token-%s", (unsigned)geteuid(), address);
    assert_int_equal(lstat(path, &file), 0);
    assert_true(S_ISREG(file.st_mode) && (file.st_mode & 07777) == 0600 &&
                file.st_uid == geteuid() && file.st_size == 32);
    slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stat(path, &folder), 0);
    assert_true((folder.st_mode & 077) == 0 && folder.st_uid == geteuid());
    *slash = '/';
    CHECK_OK(trm_token_read(path, token, &err), err);
    assert_memory_not_equal(token, zeros, 32);
    if (geteuid() == 0) { /* another user finds nothing, and can stop nothing */
        pid_t child = fork();
        if (child == 0) {
            trm_ps_client_options other = co;
            other.worker = 0;
            bool dropped = setgid(65534) == 0 && setuid(65534) == 0;
            _exit(!dropped || trm_ps_client_create(&other, &client, &err) == TRM_OK);
        }
        int code;
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_int_equal(code, 0);
    }
    trm_ps_server_stop(server);
    assert_int_not_equal(lstat(path, &file), 0);
}

/* Connections that say nothing cost no threads, and a worker still gets in. */
static void idle_connections_do_not_disturb(void **state) {
    (void)state;
    enum { IDLE = 300 };
    trm_error err;
    trm_ps_server *server =
        server_start((trm_ps_server_options){.listen = "127.0.0.1:0", .shards = 1});
    const char *address = trm_ps_server_address(server);
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + 60};
    int idle[IDLE], threads = count_threads();
    char host[64];
    int32_t port;
    CHECK_OK(trmi_net_split(address, host, &port, &err), err);
    for (int i = 0; i < IDLE; i++) {
        CHECK_OK(trmi_net_connect(host, port, &patience, &idle[i], &err), err);
    }
    trm_ps_client *client;
    const trm_ps_client_options co = {.addresses = &address, .servers = 1, .timeout_seconds = 20};
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    assert_true(count_threads() <= threads + 1); /* the client's */
    trm_ps_client_destroy(client);
    for (int i = 0; i < IDLE; i++) {
        close(idle[i]);
    }
    trm_ps_server_stop(server);
}

static char said[512];
static void keep_warning(void *context, trm_log_level level, const char *room, const char *text) {
    (void)context, (void)room;
    if (level == TRM_LOG_WARN) {
        snprintf(said, sizeof said, "%s", text);
    }
}

/* A worker whose server has ended says at once for which one it waits, and fails by its name. */
static void a_lost_server_is_named(void **state) {
    (void)state;
    trm_error err;
    trm_ps_server *server =
        server_start((trm_ps_server_options){.listen = "127.0.0.1:0", .shards = 1});
    char address[96], expected[160];
    snprintf(address, sizeof address, "%s", trm_ps_server_address(server));
    const char *const addresses[] = {address};
    trm_ps_client *client;
    const trm_ps_client_options co = {.addresses = addresses, .servers = 1, .timeout_seconds = 1};
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    trm_ps_server_stop(server);
    trm_log_set_sink(keep_warning, NULL, TRM_LOG_WARN);
    trm_ps_worker workers[4];
    int32_t count;
    CHECK_FAILS(trm_ps_workers(client, workers, 4, &count, &err), TRM_PEER, err, "server 0: ");
    trm_log_set_sink(NULL, NULL, TRM_LOG_ERROR);
    snprintf(expected, sizeof expected, "server 0 (%s) has been disconnected", address);
    if (strstr(said, expected) == NULL) {
        fail_msg("said '%s', expected '%s'", said, expected);
    }
    trm_ps_client_destroy(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(a_token_is_always_needed),
        cmocka_unit_test(idle_connections_do_not_disturb),
        cmocka_unit_test(a_lost_server_is_named),
    };
    return cmocka_run_group_tests_name("ps server token", tests, NULL, NULL);
}
