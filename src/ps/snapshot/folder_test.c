/* SPDX-License-Identifier: Apache-2.0 */
/* Tests reading a job's folder: the rows of the servers, their last writers, and messages about
 * damage.
 */
#include "servers.h"

#include "base/memory.h"
#include "base/os.h"
#include "ps/client/client.h"

#include <stdio.h>
#include <unistd.h>

enum { WIDTH = 3, KEYS = 100, NEW_KEYS = 3 };
static char folder[64];

static trm_status count_rows(void *context, const trm_row_info *info, const float *values,
                             const float *slots) {
    int64_t *sum = context;
    sum[0]++;
    sum[1] += (int64_t)info->key;
    return values != NULL && slots != NULL ? TRM_OK : TRM_INTERNAL;
}

static void push_rows(trm_ps_batch *to, int32_t table, uint64_t first, int64_t count) {
    static uint64_t keys[KEYS];
    static float gradients[KEYS * WIDTH];
    trm_error err;
    for (int64_t i = 0; i < count; i++) {
        keys[i] = first + (uint64_t)i;
        for (int j = 0; j < WIDTH; j++) {
            gradients[i * WIDTH + j] = 0.25f;
        }
    }
    trm_ps_batch_clear(to);
    CHECK_OK(trm_ps_batch_add(to, table, keys, count, NULL, gradients, &err), err);
    CHECK_OK(trm_ps_push(to, NULL, &err), err);
}

/* Gives the initial values of rows of table "a". */
static bool give_warm_rows(void *context, const char *table, uint64_t key, int32_t width,
                           float *values) {
    (void)context;
    for (int32_t i = 0; i < width; i++) {
        values[i] = (float)key + 0.5f * (float)i;
    }
    return strcmp(table, "a") == 0;
}
static const trm_ps_source initial = {give_warm_rows, NULL};

enum { SERVERS_MAX = 3 };
static trm_ps_server *server[SERVERS_MAX];
static trm_ps_client *client[2];
static trm_ps_batch *batch[2];
static int32_t a, b;

static void start_job(int servers) {
    trm_error err;
    servers_start(server, servers,
                  (trm_ps_server_options){
                      .shards = 2, .folder = folder, .initial = initial, .log_pushes = TRM_ON});
    for (int w = 0; w < 2; w++) {
        trm_ps_client_options o = {
            .local = server, .servers = servers, .worker = w, .ring_bytes = 1 << 20};
        CHECK_OK(trm_ps_client_create(&o, &client[w], &err), err);
        trm_table_options t = {
            .name = "a", .width = WIDTH, .learning_rate = 1, .optimizer = {.kind = TRM_ADAGRAD}};
        CHECK_OK(trm_ps_client_table(client[w], &t, &a, &err), err);
        t.name = "b";
        CHECK_OK(trm_ps_client_table(client[w], &t, &b, &err), err);
        CHECK_OK(trm_ps_batch_create(client[w], &batch[w], &err), err);
    }
}

static void end_job(int servers) {
    for (int w = 0; w < 2; w++) {
        trm_ps_batch_destroy(batch[w]);
        trm_ps_client_destroy(client[w]);
    }
    for (int s = 0; s < servers; s++) {
        trm_ps_server_stop(server[s]);
    }
}

static void check_rows(const trm_ps_folder *f) {
    trm_error err;
    for (uint64_t key = 0; key < KEYS + NEW_KEYS; key++) {
        trm_row_info have, want;
        float v[2][WIDTH], s[2][WIDTH];
        CHECK_OK(trm_ps_folder_row(f, 0, key, &have, v[0], s[0], &err), err);
        CHECK_OK(trm_ps_row(client[0], a, key, &want, v[1], s[1], &err), err);
        assert_memory_equal(v[0], v[1], sizeof v[0]);
        assert_memory_equal(s[0], s[1], sizeof s[0]);
        assert_int_equal(have.count, want.count);
    }
}

/* The job goes on with more servers: their checkpoint is what has changed since one of fewer. */
static void a_job_of_another_form(void) {
    trm_error err;
    trm_ps_folder *f;
    trm_ps_folder_info info;
    trm_ps_checkpoint_result result;
    int64_t rows;
    int32_t slots;
    start_job(SERVERS_MAX);
    push_rows(batch[0], a, 20, 30);
    CHECK_OK(trm_ps_flush(client[0], &err), err);
    CHECK_OK(trm_ps_checkpoint(client[0], true, &result, &err), err);
    assert_true(result.differential);
    push_rows(batch[1], a, 40, 30);
    CHECK_OK(trm_ps_flush(client[1], &err), err);
    CHECK_OK(trm_ps_folder_open(folder, &(trm_ps_folder_options){.initial = initial}, &f, &err),
             err);
    trm_ps_folder_get_info(f, &info);
    assert_int_equal(info.servers, SERVERS_MAX);
    (void)trm_ps_folder_table(f, 0, &rows, &slots);
    assert_int_equal(rows, KEYS + NEW_KEYS);
    check_rows(f);
    trm_ps_folder_close(f);
    end_job(SERVERS_MAX);
}

static void damage_is_named(void) {
    trm_error err;
    trm_ps_folder *f;
    /* A byte of a file is wrong. */
    char path[128];
    uint8_t *data;
    size_t bytes;
    snprintf(path, sizeof path, "%s/snapshot-000001/server-1-shard-0.full", folder);
    CHECK_OK(trmi_os_read_file(path, 1 << 26, &data, &bytes, &err), err);
    data[bytes / 2] ^= 1;
    CHECK_OK(trmi_os_replace_file(NULL, path, data, bytes, &err), err);
    trmi_free(data);
    CHECK_FAILS(trm_ps_folder_open(folder, &(trm_ps_folder_options){0}, &f, &err), TRM_CORRUPT, err,
                "server-1-shard-0.full: block");
}

/* Checks that a further file of the folder is refused by readers and by a server (status TRM_OK: is
 * left alone). */
static void check_file(const char *name, const char *text, trm_status status, const char *said) {
    trm_error err;
    trm_ps_folder *f;
    trm_ps_server *refused;
    char path[200];
    const trm_ps_folder_options reads = {.initial = initial};
    const trm_ps_server_options o = {.shards = 2,
                                     .servers = SERVERS_MAX,
                                     .memory_bytes = 1 << 26,
                                     .folder = folder,
                                     .initial = initial,
                                     .log_pushes = TRM_ON};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(trmi_os_replace_file(NULL, path, text, strlen(text), &err), err);
    if (status != TRM_OK) {
        CHECK_FAILS(trm_ps_folder_open(folder, &reads, &f, &err), status, err, said);
        CHECK_FAILS(trm_ps_server_start(&o, &refused, &err), status, err, said);
    } else {
        CHECK_OK(trm_ps_folder_open(folder, &reads, &f, &err), err);
        trm_ps_folder_close(f);
        CHECK_OK(trm_ps_server_start(&o, &refused, &err), err);
        trm_ps_server_stop(refused);
    }
    assert_int_equal(unlink(path), 0);
}

static void other_files_are_named(void) {
    check_file("log/server-0-of-3-shard-0-of-2-snapshot-4294967295.log", "", TRM_CORRUPT,
               "4294967295");
    check_file("log/server-0-of-3-shard-0-of-2-snapshot-18446744073709551615.log", "", TRM_CORRUPT,
               "the number of no");
    check_file("log/server-0-of-3-shard-0-of-2-snapshot-4294967295.log.old", "", TRM_OK, NULL);
    check_file("MANIFEST-4294967295.json", "", TRM_CORRUPT, "at most 99999999 expected");
    check_file("MANIFEST-4294967295.json.old", "", TRM_OK, NULL);
    /* version 0.1 */
    check_file("log/server-0-of-3-shard-0-of-2-cut-000000.log", "", TRM_UNSUPPORTED,
               "a log of Trireme 0.1");
    check_file("log/server-0-of-3-shard-0-of-2-cut-000000.log.old", "", TRM_OK, NULL);
    check_file("MANIFEST-000009.json", "{\"format\": 1, \"cut\": 9}", TRM_UNSUPPORTED,
               "format 1 (expected 2)");
}

static void a_folder_shows_what_servers_have(void **state) {
    snprintf(folder, sizeof folder, "/tmp/ps-folder-XXXXXX");
    assert_non_null(mkdtemp(folder));
    trm_error err;
    start_job(2);
    trm_ps_folder *f;
    CHECK_FAILS(trm_ps_folder_open(folder, &(trm_ps_folder_options){0}, &f, &err), TRM_INVALID, err,
                "holds no checkpoint");
    push_rows(batch[0], a, 0, KEYS);
    push_rows(batch[0], b, 7, 10);
    CHECK_OK(trm_ps_flush(client[0], &err), err);
    trm_ps_checkpoint_result result;
    CHECK_OK(trm_ps_checkpoint(client[0], false, &result, &err), err);
    push_rows(batch[0], a, 50, 10);
    CHECK_OK(trm_ps_flush(client[0], &err), err);
    CHECK_OK(trm_ps_checkpoint(client[0], true, &result, &err), err);
    push_rows(batch[0], a, 50, 20); /* only in the logs, as the next */
    CHECK_OK(trm_ps_flush(client[0], &err), err);
    push_rows(batch[1], a, 55, 1);
    push_rows(batch[1], a, KEYS, NEW_KEYS); /* rows that logs make begin as the servers' */
    CHECK_OK(trm_ps_flush(client[1], &err), err);
    /* While the servers run. */
    CHECK_OK(trm_ps_folder_open(folder, &(trm_ps_folder_options){.initial = initial}, &f, &err),
             err);
    trm_ps_folder_info info;
    trm_ps_folder_get_info(f, &info);
    assert_int_equal(info.snapshot, 2);
    assert_true(info.differential);
    assert_int_equal(info.servers, 2);
    assert_int_equal(info.shards, 2);
    assert_int_equal(info.tables, 2);
    assert_int_equal(info.global_step, 6);
    assert_int_equal(info.logged, 3);
    int64_t rows, sum[2] = {0};
    int32_t slots;
    assert_string_equal(trm_ps_folder_table(f, 0, &rows, &slots)->name, "a");
    assert_int_equal(rows, KEYS + NEW_KEYS);
    assert_int_equal(slots, WIDTH);
    assert_null(trm_ps_folder_table(f, 2, &rows, &slots));
    CHECK_OK(trm_ps_folder_each(f, 1, count_rows, sum, &err), err);
    assert_int_equal(sum[0], 10);
    assert_int_equal(sum[1], 7 * 10 + 45);
    check_rows(f);
    assert_int_equal(trm_ps_folder_row(f, 0, 12345, NULL, NULL, NULL, &err), TRM_END);
    trm_ps_folder_close(f);
    /* One row, and the workers that have written it since the checkpoint. */
    uint64_t key = 55;
    trm_ps_folder_options one = {.table = "a", .key = &key};
    CHECK_OK(trm_ps_folder_open(folder, &one, &f, &err), err);
    trm_ps_writer writers[TRM_PS_WRITERS];
    int64_t total;
    assert_int_equal(trm_ps_folder_writers(f, writers, &total), 2);
    assert_int_equal(total, 2);
    assert_int_equal(writers[0].worker, 1);
    assert_int_equal(writers[0].sequence, 1);
    assert_int_equal(writers[1].worker, 0);
    assert_int_equal(writers[1].sequence, 4);
    trm_row_info row;
    CHECK_OK(trm_ps_folder_row(f, 0, key, &row, NULL, NULL, &err), err);
    assert_int_equal(row.count, 4);
    /* Other rows, of which the logs have pushes, are not shown: without the snapshot they are
     * wrong. */
    sum[0] = sum[1] = 0;
    CHECK_OK(trm_ps_folder_each(f, 0, count_rows, sum, &err), err);
    assert_int_equal(sum[0], 1);
    assert_int_equal(sum[1], key);
    (void)trm_ps_folder_table(f, 0, &rows, &slots);
    assert_int_equal(rows, 1);
    assert_int_equal(trm_ps_folder_row(f, 0, key + 1, &row, NULL, NULL, &err), TRM_END);
    trm_ps_folder_close(f);
    /* One table. */
    one.table = "b";
    one.key = NULL;
    CHECK_OK(trm_ps_folder_open(folder, &one, &f, &err), err);
    (void)trm_ps_folder_table(f, 0, &rows, &slots);
    assert_int_equal(rows, 0);
    (void)trm_ps_folder_table(f, 1, &rows, &slots);
    assert_int_equal(rows, 10);
    assert_int_equal(trm_ps_folder_row(f, 0, key, &row, NULL, NULL, &err), TRM_END);
    sum[0] = 0;
    CHECK_OK(trm_ps_folder_each(f, 0, count_rows, sum, &err), err);
    assert_int_equal(sum[0], 0);
    trm_ps_folder_close(f);
    CHECK_FAILS(trm_ps_folder_open(folder, &(trm_ps_folder_options){.table = "c"}, &f, &err),
                TRM_INVALID, err, "no table 'c': there are a, b");
    /* The previous snapshot, without logs, has the rows of its moment. */
    trm_ps_folder_options old = {.snapshot = 1, .logs = TRM_OFF};
    CHECK_OK(trm_ps_folder_open(folder, &old, &f, &err), err);
    CHECK_OK(trm_ps_folder_row(f, 0, key, &row, NULL, NULL, &err), err);
    assert_int_equal(row.count, 1);
    trm_ps_folder_close(f);
    CHECK_OK(trm_ps_checkpoint(client[0], true, &result, &err), err);
    end_job(2);
    a_job_of_another_form();
    other_files_are_named();
    damage_is_named();
    CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_folder_shows_what_servers_have)};
    return cmocka_run_group_tests_name("ps folder", tests, NULL, NULL);
}
