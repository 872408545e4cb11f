/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the staleness bounds of single tables, and the lag of pushes, which is counted by table. */
#include "servers.h"

#include "base/error.h"
#include "ps/client/client.h"

enum { KEYS = 4 };

typedef struct worker {
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table[2];
    float rows[2][KEYS], gradients[2][KEYS];
} worker;

static trm_ps_server *start_with(trm_ps_server_options o) {
    o.shards = 2;
    o.workers = 2;
    return server_start(o);
}

static trm_ps_server *start_server(int32_t staleness) {
    return start_with((trm_ps_server_options){.mode = TRM_PS_BOUNDED, .staleness = staleness});
}

/* Table 0 has the job's bound, table 1 the bound `staleness`. */
static trm_status declare_table(worker *w, int32_t staleness, trm_error *err) {
    for (int t = 0; t < 2; t++) {
        const trm_table_options o = {.name = t == 0 ? "loose" : "tight",
                                     .width = 1,
                                     .staleness = t == 0 ? 0 : staleness,
                                     .learning_rate = 1,
                                     .optimizer = {.kind = TRM_SGD}};
        TRMI_TRY(trm_ps_client_table(w->client, &o, &w->table[t], err));
    }
    return TRM_OK;
}

static void join_worker(trm_ps_server *server, worker *w, int number, trm_ps_client_options o,
                        int32_t staleness) {
    trm_error err;
    o.local = &server;
    o.servers = 1;
    o.worker = number;
    o.ring_bytes = 1 << 16;
    CHECK_OK(trm_ps_client_create(&o, &w->client, &err), err);
    CHECK_OK(declare_table(w, staleness, &err), err);
    CHECK_OK(trm_ps_batch_create(w->client, &w->batch, &err), err);
    for (int i = 0; i < KEYS; i++) {
        w->gradients[0][i] = w->gradients[1][i] = -1;
    }
}

static void leave_job(worker *w) {
    trm_ps_batch_destroy(w->batch);
    trm_ps_client_destroy(w->client);
}

enum { LOOSE = 1, TIGHT = 2 };

static trm_status ask_rows(worker *w, trm_error *err) {
    CHECK_OK(trm_ps_pull_start(w->batch, err), *err);
    return trm_ps_pull_wait(w->batch, err);
}

static trm_status pull_rows(worker *w, int tables, trm_error *err) {
    static const uint64_t keys[KEYS] = {1, 20, 300, 4000};
    trm_ps_batch_clear(w->batch);
    for (int t = 0; t < 2; t++) {
        if ((tables >> t & 1) != 0) {
            CHECK_OK(trm_ps_batch_add(w->batch, w->table[t], keys, KEYS, w->rows[t],
                                      w->gradients[t], err),
                     *err);
        }
    }
    return ask_rows(w, err);
}

static void push_rows(worker *w) {
    trm_error err;
    CHECK_OK(trm_ps_push(w->batch, NULL, &err), err);
    CHECK_OK(trm_ps_flush(w->client, &err), err);
}

/* Returns whether the worker may begin a batch. A timeout counts only if the server has said that
 * the worker waits; a server that is only slow is asked again. */
static bool may_begin(worker *w, int tables) {
    trm_error err;
    const double patience = w->client->options.timeout_seconds;
    w->client->options.timeout_seconds = 0.4;
    trm_status status = pull_rows(w, tables, &err);
    while (status == TRM_TIMEOUT && strstr(err.message, "to begin batch") == NULL) {
        status = ask_rows(w, &err); /* the same batch */
    }
    w->client->options.timeout_seconds = patience;
    assert_true(status == TRM_OK || status == TRM_TIMEOUT);
    return status == TRM_OK;
}

/* Returns how many batches a worker may begin while the other worker does nothing. */
static int batches_ahead(int32_t job, int32_t table, int tables) {
    trm_ps_server *server = start_server(job);
    worker w = {0}, other = {0};
    int count = 0;
    join_worker(server, &w, 0, (trm_ps_client_options){.timeout_seconds = 30}, table);
    join_worker(server, &other, 1, (trm_ps_client_options){.timeout_seconds = 30}, table);
    while (count < 6 && may_begin(&w, tables)) {
        push_rows(&w);
        count++;
    }
    leave_job(&w);
    leave_job(&other);
    trm_ps_server_stop(server);
    return count;
}

static void tables_have_bounds_of_their_own(void **state) {
    assert_int_equal(batches_ahead(1, 3, LOOSE), 2);
    assert_int_equal(batches_ahead(1, 3, TIGHT), 4);         /* looser than the job's bound */
    assert_int_equal(batches_ahead(1, 3, LOOSE | TIGHT), 2); /* the strictest bound applies */
    assert_int_equal(batches_ahead(3, TRM_STALENESS_NONE, TIGHT), 1);
    assert_int_equal(batches_ahead(TRM_STALENESS_ANY, 2, TIGHT), 3);
    assert_int_equal(batches_ahead(TRM_STALENESS_ANY, 2, LOOSE), 6);
}

static void bounds_are_agreed_on(void **state) {
    trm_ps_server *server = start_server(2);
    trm_error err;
    worker w = {0}, other = {0};
    join_worker(server, &w, 0, (trm_ps_client_options){0}, 3);
    const trm_ps_client_options o = {
        .local = &server, .servers = 1, .worker = 1, .ring_bytes = 1 << 16};
    CHECK_OK(trm_ps_client_create(&o, &other.client, &err), err);
    CHECK_FAILS(declare_table(&other, 4, &err), TRM_INVALID, err,
                "'tight': declared with staleness 4, by another worker with 3");
    CHECK_FAILS(declare_table(&other, -2, &err), TRM_INVALID, err, "staleness -2");
    trm_ps_client_destroy(other.client);
    leave_job(&w);
    trm_ps_server_stop(server);
}

/* Two workers in turns. The server knows a worker from its first push on: the lag of that push is
 * not counted. */
static void lags_are_counted_by_table(void **state) {
    trm_ps_server *server = start_server(TRM_STALENESS_ANY);
    trm_error err;
    trm_table_stats stats;
    worker a = {0}, b = {0};
    join_worker(server, &a, 0, (trm_ps_client_options){0}, 0);
    join_worker(server, &b, 1, (trm_ps_client_options){0}, 0);
    for (int n = 0; n < 3; n++) { /* both read, then both push: 0 and 1 */
        CHECK_OK(pull_rows(&a, LOOSE | TIGHT, &err), err);
        CHECK_OK(pull_rows(&b, LOOSE, &err), err);
        push_rows(&a);
        push_rows(&b);
    }
    /* six pushes of b between a's read and push: the class of lags up to 8 */
    CHECK_OK(pull_rows(&a, LOOSE, &err), err);
    for (int n = 0; n < 6; n++) {
        CHECK_OK(pull_rows(&b, LOOSE, &err), err);
        push_rows(&b);
    }
    push_rows(&a);
    CHECK_OK(trm_ps_table_get_stats(a.client, a.table[0], &stats, &err), err);
    assert_int_equal(stats.lags[0], 2 + 6);
    assert_int_equal(stats.lags[1], 2);
    assert_int_equal(stats.lags[4], 1);
    assert_int_equal(stats.lag_sum, 2 + 6);
    CHECK_OK(trm_ps_table_get_stats(a.client, a.table[1], &stats, &err), err);
    assert_int_equal(stats.lags[0], 2); /* no other worker uses it */
    assert_int_equal(stats.lag_sum, 0);
    leave_job(&a);
    leave_job(&b);
    trm_ps_server_stop(server);
}

/* Gradients of -1 at rate 1, so that a row is the sum of the weights of its pushes. A late push has
 * the weight 1 / (1 + the other workers' pushes since its read). */
static float worth_of_pushes(trm_ps_mode mode, const char *folder, bool restarted) {
    trm_ps_server *server;
    trm_error err;
    worker a = {0}, b = {0};
    const trm_ps_server_options o = {.mode = mode,
                                     .staleness = TRM_STALENESS_ANY,
                                     .staleness_aware = true,
                                     .folder = folder,
                                     .log_pushes = folder != NULL};
    server = start_with(o);
    join_worker(server, &a, 0, (trm_ps_client_options){0}, 0);
    join_worker(server, &b, 1, (trm_ps_client_options){0}, 0);
    CHECK_OK(pull_rows(&a, LOOSE, &err),
             err); /* its lag is not known yet; the other worker has pushed at most once: 1/2 */
    push_rows(&a);
    CHECK_OK(pull_rows(&b, LOOSE, &err), err); /* 1/2 */
    push_rows(&b);
    CHECK_OK(pull_rows(&a, LOOSE, &err), err);
    for (int n = 0; n < 3; n++) { /* 1 each */
        CHECK_OK(pull_rows(&b, LOOSE, &err), err);
        push_rows(&b);
    }
    push_rows(&a); /* 1/4 */
    leave_job(&a);
    leave_job(&b);
    if (restarted) { /* the server's log has the weights */
        trm_ps_server_stop(server);
        server = start_with(o);
    }
    join_worker(server, &a, 0, (trm_ps_client_options){0}, 0);
    CHECK_OK(pull_rows(&a, LOOSE, &err), err);
    float worth = a.rows[0][KEYS - 1];
    leave_job(&a);
    trm_ps_server_stop(server);
    return worth;
}

static void late_pushes_count_less(void **state) {
    char folder[] = "/tmp/ps-lag-XXXXXX";
    assert_non_null(mkdtemp(folder));
    CHECK_CLOSE(worth_of_pushes(TRM_PS_ASYNC, NULL, false), 4.25, 1e-6);
    CHECK_CLOSE(worth_of_pushes(TRM_PS_BOUNDED, NULL, false), 4.25, 1e-6);
    CHECK_CLOSE(worth_of_pushes(TRM_PS_ASYNC, folder, true), 4.25, 1e-6);
    assert_int_equal(trmi_os_remove_tree(NULL, folder, NULL), TRM_OK);
}

/* The bound of a table, not of another one, limits the age of its cached rows. */
static void hot_rows_keep_the_bound(void **state) {
    trm_ps_server *server = start_server(TRM_STALENESS_ANY);
    trm_error err;
    worker w = {0};
    trm_ps_client_stats stats;
    join_worker(
        server, &w, 0,
        (trm_ps_client_options){.cache_rows = 64, .cache_staleness = 5, .timeout_seconds = 30},
        TRM_STALENESS_NONE);
    for (int n = 0; n < 4; n++) {
        CHECK_OK(pull_rows(&w, LOOSE, &err), err);
        push_rows(&w);
    }
    trm_ps_client_get_stats(w.client, &stats);
    assert_int_equal(stats.cached_keys, 3 * KEYS);
    leave_job(&w);
    trm_ps_server_stop(server);
    server = start_server(TRM_STALENESS_ANY);
    join_worker(
        server, &w, 0,
        (trm_ps_client_options){.cache_rows = 64, .cache_staleness = 5, .timeout_seconds = 30}, 1);
    for (int n = 0; n < 2; n++) { /* the other worker never connects: a batch may be 1 ahead */
        CHECK_OK(pull_rows(&w, TIGHT, &err), err);
        push_rows(&w);
    }
    trm_ps_client_get_stats(w.client, &stats);
    assert_int_equal(stats.cached_keys, KEYS);
    leave_job(&w);
    trm_ps_server_stop(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_have_bounds_of_their_own), cmocka_unit_test(bounds_are_agreed_on),
        cmocka_unit_test(lags_are_counted_by_table),       cmocka_unit_test(late_pushes_count_less),
        cmocka_unit_test(hot_rows_keep_the_bound),
    };
    return cmocka_run_group_tests_name("ps lag", tests, NULL, NULL);
}
