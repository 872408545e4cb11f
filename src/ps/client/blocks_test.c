/* SPDX-License-Identifier: Apache-2.0 */
/* Strict determinism on servers: sums of blocks of samples have the same bits for any number of
 * workers, steps wait for all of them, and pushes that do not fit each other are errors. */
#include "servers.h"

#include "base/rng.h"
#include "base/tree.h"
#include "ps/client/client.h"

#include <math.h>
#include <unistd.h>

enum { BLOCKS = 12, SAMPLES = 60, KEYS = 7, WIDTH = 70, WORKERS_MAX = 6, SERVERS = 2 };

typedef struct job {
    trm_ps_server *servers[SERVERS];
    int workers, table;
    trm_ps_client *client[WORKERS_MAX];
    trm_ps_batch *batch[WORKERS_MAX];
    /* of each worker */
    uint64_t keys[WORKERS_MAX][SAMPLES];
    float gradients[WORKERS_MAX][SAMPLES * WIDTH];
    int32_t positions[WORKERS_MAX][BLOCKS];
} job;

static uint64_t key_of(int64_t sample) { return trmi_mix(3, (uint64_t)sample) % KEYS; }
static float gradient_of(int64_t sample, int64_t column) {
    uint64_t bits = trmi_mix((uint64_t)sample, (uint64_t)column);
    return ldexpf((float)(int32_t)(bits & 0xFFFFFF) - 0x800000, (int)(bits >> 60) - 24);
}

static void start_job(job *j, int workers, trm_ps_mode mode, double silence) {
    trm_error err;
    servers_start(
        j->servers, SERVERS,
        (trm_ps_server_options){
            .shards = 2, .mode = mode, .workers = workers, .worker_timeout_seconds = silence});
    j->workers = workers;
    for (int w = 0; w < workers; w++) {
        const trm_ps_client_options o = {
            .local = j->servers, .servers = SERVERS, .worker = w, .timeout_seconds = 30};
        const trm_table_options table = {.name = "rows",
                                         .width = WIDTH,
                                         .learning_rate = 0.1f,
                                         .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9f}};
        CHECK_OK(trm_ps_client_create(&o, &j->client[w], &err), err);
        CHECK_OK(trm_ps_client_table(j->client[w], &table, &j->table, &err), err);
        CHECK_OK(trm_ps_batch_create(j->client[w], &j->batch[w], &err), err);
    }
}

static void end_job(job *j) {
    for (int w = 0; w < j->workers; w++) {
        trm_ps_batch_destroy(j->batch[w]);
        trm_ps_client_destroy(j->client[w]);
    }
    for (int s = 0; s < SERVERS; s++) {
        trm_ps_server_stop(j->servers[s]);
    }
}

/* Worker w of n has samples w, w + n, ...: local sample i is in local block i mod blocks, and
 * blocks lie by position. Returns how it pushes. */
static trmi_push_blocks fill_batch(job *j, int w, int64_t step) {
    const int32_t n = j->workers, blocks = BLOCKS / n, samples = SAMPLES / n,
                  each = samples / blocks;
    const bool node = (n & (n - 1)) == 0;
    const trmi_tree own = trmi_tree_of(blocks), all = trmi_tree_of(node ? n : BLOCKS);
    for (int32_t i = 0; i < samples; i++) {
        int64_t at = trmi_tree_position(&own, i % blocks) * each + i / blocks;
        int64_t sample = step * SAMPLES + (int64_t)i * n + w;
        j->keys[w][at] = key_of(sample);
        for (int64_t c = 0; c < WIDTH; c++) {
            j->gradients[w][at * WIDTH + c] = gradient_of(sample, c);
        }
    }
    for (int32_t b = 0; b < blocks; b++) {
        j->positions[w][node ? 0 : trmi_tree_position(&own, b)] =
            (int32_t)trmi_tree_position(&all, node ? w : (int64_t)b * n + w);
    }
    return (trmi_push_blocks){.blocks = blocks,
                              .nodes = node ? 1 : blocks,
                              .positions = j->positions[w],
                              .total = node ? n : BLOCKS};
}

static trm_status push_batch(job *j, int w, const trmi_push_blocks *blocks, trm_error *err) {
    trm_ps_batch_clear(j->batch[w]);
    trm_status status = trmi_batch_set_blocks(j->batch[w], blocks, err);
    if (status == TRM_OK) {
        status = trm_ps_batch_add(j->batch[w], j->table, j->keys[w], SAMPLES / j->workers, NULL,
                                  j->gradients[w], err);
    }
    status = status == TRM_OK ? trmi_batch_by_blocks(j->batch[w], err) : status;
    return status == TRM_OK ? trm_ps_push(j->batch[w], NULL, err) : status;
}

/* Returns how often row `key` was updated, and writes its values. */
static int64_t read_row(job *j, uint64_t key, float values[WIDTH]) {
    trm_error err;
    trm_row_info info = {0};
    trm_status status = trm_ps_row(j->client[0], j->table, key, &info, values, NULL, &err);
    assert_true(status == TRM_OK || status == TRM_END);
    return info.count;
}

static void train_steps(int workers, float out[KEYS][WIDTH]) {
    enum { STEPS = 3 };
    job *j = calloc(1, sizeof *j);
    trm_error err;
    start_job(j, workers, TRM_PS_SYNC, 30);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int w = workers; w-- > 0;) { /* not in their order */
            const trmi_push_blocks blocks = fill_batch(j, w, step);
            CHECK_OK(push_batch(j, w, &blocks, &err), err);
        }
        for (int w = 0; w < workers; w++) {
            CHECK_OK(trm_ps_flush(j->client[w], &err), err);
        }
    }
    for (int k = 0; k < KEYS; k++) {
        assert_int_equal(read_row(j, (uint64_t)k, out[k]), STEPS);
    }
    end_job(j);
    free(j);
}

static void bits_depend_on_no_number_of_workers(void **state) {
    float one[KEYS][WIDTH], many[KEYS][WIDTH];
    train_steps(1, one);
    for (int workers = 2; workers <= WORKERS_MAX; workers++) {
        if (BLOCKS % workers == 0) {
            train_steps(workers, many);
            assert_memory_equal(many, one, sizeof one);
        }
    }
}

/* Servers wait no longer for a worker that has been silent, but a step without its blocks would
 * have other bits. */
static void a_step_waits_for_a_silent_worker(void **state) {
    job *j = calloc(1, sizeof *j);
    trm_error err;
    float row[WIDTH];
    start_job(j, 3, TRM_PS_SYNC, 0.3);
    for (int w = 0; w < 3; w++) {
        const trmi_push_blocks blocks = fill_batch(j, w, 0);
        if (w == 2) {
            usleep(1500000);
            assert_int_equal(read_row(j, 0, row), 0);
        }
        CHECK_OK(push_batch(j, w, &blocks, &err), err);
    }
    for (int w = 0; w < 3; w++) {
        CHECK_OK(trm_ps_flush(j->client[w], &err), err);
    }
    assert_int_equal(read_row(j, 0, row), 1);
    end_job(j);
    free(j);
}

static void what_does_not_fit_is_refused(void **state) {
    job *j = calloc(1, sizeof *j);
    trm_error err;
    start_job(j, 1, TRM_PS_ASYNC, 30);
    trmi_push_blocks blocks = fill_batch(j, 0, 0);
    CHECK_FAILS(push_batch(j, 0, &blocks, &err), TRM_INVALID, err, "synchronous servers");
    end_job(j);

    start_job(j, 2, TRM_PS_SYNC, 30);
    blocks = fill_batch(j, 0, 0);
    CHECK_OK(trm_ps_batch_add(j->batch[0], j->table, j->keys[0], 2, NULL, j->gradients[0], &err),
             err);
    CHECK_OK(trmi_batch_set_blocks(j->batch[0], &blocks, &err), err);
    CHECK_OK(trm_ps_batch_add(j->batch[0], j->table, j->keys[0], 30, NULL, j->gradients[0], &err),
             err);
    CHECK_FAILS(trmi_batch_by_blocks(j->batch[0], &err), TRM_INVALID, err, "twice");
    /* two workers, each of which counts itself as the only one */
    for (int w = 0; w < 2; w++) {
        const int32_t first = 0;
        (void)fill_batch(j, w, 0);
        blocks = (trmi_push_blocks){.blocks = 6, .nodes = 1, .positions = &first, .total = 1};
        CHECK_OK(push_batch(j, w, &blocks, &err), err);
    }
    CHECK_FAILS(trm_ps_flush(j->client[0], &err), TRM_INVALID, err, "a communicator");
    end_job(j);
    free(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_no_number_of_workers),
        cmocka_unit_test(a_step_waits_for_a_silent_worker),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("blocks of samples on servers", tests, NULL, NULL);
}
