/* SPDX-License-Identifier: Apache-2.0 */
/* A model whose parameters are on servers against the same model on one device: the same
 * description, the same numbers.
 *
 * Servers and workers are threads of this process. In every mode in which an order of updates
 * exists (synchronous, one asynchronous worker, hybrid, strict) losses and rows must equal those
 * of one device that trains the whole batch; in strict mode bit by bit. Several asynchronous
 * workers have no such order: there each sample must be used once an epoch. */
#include "click_shard.h"

#include "trireme/train.h"
#include "trireme/ps.h"

#include "ranks.h"
#include "servers.h"

#include <math.h>
#include <pthread.h>

enum {
    ROWS = 1024,
    FIELDS = 5,
    DENSE = 3,
    VOCABULARY = 60,
    WIDTH = 6,
    BATCH = 64,
    WORKERS_MAX = 4
};

/* Field 0 in a table of its own, without weight decay; all fields in one wide table of width 1 and
 * one deep table (which the last field reads a second time, unless context is NULL); an MLP over
 * them, one of its layers of an awkward size. */
static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    trm_node keys = trm_inputs_get(inputs, "keys"), dense = trm_inputs_get(inputs, "dense");
    int64_t n = trm_node_shape(g, keys).dim[0];
    trm_node own = trm_exclude_from_decay(
        g, trm_parameter(g, "own", trm_shape_of(VOCABULARY, 4), TRM_INIT_NORMAL_001));
    trm_node wide = trm_parameter(g, "wide", trm_shape_of(VOCABULARY, 1), TRM_INIT_ZERO);
    trm_node deep = trm_parameter(g, "deep", trm_shape_of(VOCABULARY, WIDTH), TRM_INIT_LINEAR);
    trm_node first = trm_slice(g, keys, (int64_t[]){0, 0}, (int64_t[]){n, 1});
    trm_node last = trm_slice(g, keys, (int64_t[]){0, FIELDS - 1}, (int64_t[]){n, 1});
    trm_node a = trm_reshape(g, trm_embedding(g, own, first), trm_shape_of(n, 4));
    trm_node b = trm_reshape(g, trm_embedding(g, deep, keys), trm_shape_of(n, FIELDS * WIDTH));
    /* On one device a table read twice has a dense gradient, and rules with momentum then move all
     * its rows: there the two are not the same by design. */
    trm_node other = context != NULL ? deep
                                     : trm_parameter(g, "other", trm_shape_of(VOCABULARY, WIDTH),
                                                     TRM_INIT_LINEAR);
    trm_node c = trm_reshape(g, trm_embedding(g, other, last), trm_shape_of(n, WIDTH));
    trm_node w = trm_reshape(g, trm_embedding(g, wide, keys), trm_shape_of(n, FIELDS));
    trm_node x = trm_concat(g, (trm_node[]){a, b, c, dense}, 4, 1);
    int64_t in = trm_node_shape(g, x).dim[1];
    x = trm_relu(
        g, trm_linear(g, x, trm_parameter(g, "fc0.weight", trm_shape_of(37, in), TRM_INIT_LINEAR),
                      trm_parameter(g, "fc0.bias", trm_shape_of(37), TRM_INIT_LINEAR)));
    x = trm_linear(g, x, trm_parameter(g, "fc1.weight", trm_shape_of(1, 37), TRM_INIT_LINEAR),
                   trm_parameter(g, "fc1.bias", trm_shape_of(1), TRM_INIT_ZERO));
    w = trm_reduce_sum(g, w, (int32_t[]){1}, 1, true);
    return trm_add(g, x, w);
}

static trm_dataset *open_clicks(int shards, int shard) {
    return click_shard(&(trm_click_generator_options){.rows = ROWS,
                                                      .test_rows = 256,
                                                      .fields = FIELDS,
                                                      .dense = DENSE,
                                                      .vocabulary = VOCABULARY,
                                                      .seed = 5},
                       BATCH, shards, shard);
}

/* ---- a job of workers in threads ------------------------------------------------------------- */

typedef struct setting {
    int servers, workers;
    trm_ps_mode mode;
    trm_optimizer_options optimizer;
    const char *backend;
    bool no_prefetch;
    trm_placement_kind placement;
    trm_partition partition;
    int block; /* strict determinism: trm_parallel_options.block */
    bool hybrid;
} setting;

typedef struct worker {
    const setting *s;
    trm_ps_server **servers;
    int number, steps;
    float losses[64]; /* [count], of each batch */
    int count;
    uint64_t global_step; /* of the model at the end, like the weights */
    float fc0[37 * 43], fc1[37];
    trm_error err;
    trm_status status;
    pthread_t thread;
} worker;

static trm_status note_loss(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    worker *w = context;
    if (w->count < 64) {
        w->losses[w->count++] = p->loss;
    }
    return TRM_OK;
}

static trm_model_options options_of(const setting *s, trm_dataset *data) {
    static bool twice = true;
    bool remembers = s->optimizer.momentum > 0 || s->optimizer.kind == TRM_ADAM || s->block != 0;
    return (trm_model_options){
        .network = build_network,
        .network_context = remembers ? NULL : &twice,
        .loss = trm_loss_logistic,
        .exec.optimizer = s->optimizer,
        .learning_rate = {.decay = TRM_DECAY_COSINE,
                          .base = s->optimizer.kind == TRM_ADAM ? 0.002 : 0.05,
                          .total_steps = 40},
        .data = data,
        .exec.backend = s->backend,
        .exec.threads = 1,
        .exec.parallel.block = s->block,
        .exec.seed = 21};
}

static trm_status run_worker(worker *w) {
    trm_error *err = &w->err;
    trm_ps_client *client = NULL;
    trm_model *model;
    trm_dataset *data = open_clicks(w->servers != NULL ? w->s->workers : 1, w->number);
    trm_model_options options = options_of(w->s, data);
    if (w->servers != NULL) {
        const trm_ps_client_options o = {.local = w->servers,
                                         .servers = w->s->servers,
                                         .worker = w->number,
                                         .timeout_seconds = 30};
        trm_status status = trm_ps_client_create(&o, &client, err);
        if (status != TRM_OK) {
            return status;
        }
        options.ps = (trm_ps_training){.client = client,
                                       .prefetch = w->s->no_prefetch ? TRM_OFF : TRM_DEFAULT,
                                       .placement = w->s->placement,
                                       .partition = w->s->partition};
    }
    trm_status status = trm_model_create(&options, &model, err);
    if (status == TRM_OK) {
        status = trm_model_train(
            model,
            &(trm_train_options){.data = data,
                                 .until_step = w->steps,
                                 .callbacks = {{.on_step_end = note_loss, .context = w}}},
            err);
        w->global_step = trm_model_global_step(model);
        trm_exec *exec = trm_model_exec(model);
        trm_exec_read(exec, trm_exec_find(exec, "fc0.weight"), w->fc0);
        trm_exec_read(exec, trm_exec_find(exec, "fc1.weight"), w->fc1);
        trm_model_destroy(model);
    }
    trm_ps_client_destroy(client);
    trm_dataset_destroy(data);
    return status;
}

static void *worker_main(void *context) {
    worker *w = context;
    w->status = run_worker(w);
    return NULL;
}

static void run_job(const setting *s, int steps, worker *workers) {
    trm_ps_server *servers[4];
    trm_error err;
    for (int i = 0; i < s->servers; i++) {
        const trm_ps_server_options o = {.server = i,
                                         .servers = s->servers,
                                         .shards = 2,
                                         .mode = s->mode,
                                         .workers = s->workers,
                                         .memory_bytes = 1 << 26};
        CHECK_OK(trm_ps_server_start(&o, &servers[i], &err), err);
    }
    for (int i = 0; i < s->workers; i++) {
        workers[i] = (worker){.s = s, .servers = servers, .number = i, .steps = steps};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < s->workers; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (int i = 0; i < s->servers; i++) {
        trm_ps_server_stop(servers[i]);
    }
    for (int i = 0; i < s->workers; i++) {
        CHECK_OK(workers[i].status, workers[i].err);
    }
}

/* ---- synchronous equals one device ----------------------------------------------------------- */

static void compare_with_one(const setting *s) {
    enum { STEPS = 37 }; /* two epochs and a part */
    worker *alone = calloc(1, sizeof *alone), *workers = calloc(WORKERS_MAX, sizeof *workers);
    *alone = (worker){.s = s, .steps = STEPS};
    CHECK_OK(run_worker(alone), alone->err);
    run_job(s, STEPS, workers);
    for (int i = 0; i < STEPS; i++) {
        double mean = 0;
        for (int k = 0; k < s->workers; k++) {
            assert_int_equal(workers[k].count, STEPS);
            mean += (double)workers[k].losses[i] / s->workers;
        }
        CHECK_CLOSE(mean, (double)alone->losses[i], 1e-6);
    }
    /* At the end a worker holds the parameters with which it computed the last step. */
    assert_int_equal(workers[0].global_step, STEPS);
    double first = 0, last = 0;
    for (int i = 0; i < 16; i++) { /* an epoch each */
        first += (double)alone->losses[i];
        last += (double)alone->losses[STEPS - 1 - i];
    }
    assert_true(last < first || s->optimizer.kind == TRM_FTRL); /* which begins by forgetting */
    free(alone);
    free(workers);
}

static void synchronous_equals_one_device(void **state) {
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_SGD},
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_NESTEROV, .momentum = 0.9},
        {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1},
        {.kind = TRM_ADAM},
        {.kind = TRM_ADAM, .decoupled = true, .weight_decay = 2},
        {.kind = TRM_FTRL, .initial_accumulator = 0.1, .l1 = 1e-3, .l2 = 1e-3}};
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++) {
        const setting s = {.servers = 1 + (int)o % 2,
                           .workers = 1 + (int)(o % 3 == 1),
                           .mode = TRM_PS_SYNC,
                           .optimizer = optimizers[o],
                           .backend = "ref"};
        compare_with_one(&s);
    }
}

static void four_workers_equal_one_device(void **state) {
    const setting s = {.servers = 2,
                       .workers = 4,
                       .mode = TRM_PS_SYNC,
                       .backend = NULL,
                       .optimizer = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1}};
    compare_with_one(&s);
    setting plain = s;
    plain.no_prefetch = true;
    plain.placement = TRM_PLACE_ROUND_ROBIN;
    plain.partition = (trm_partition){.kind = TRM_PARTITION_FIXED, .max_parts = 3};
    compare_with_one(&plain);
    plain.placement = TRM_PLACE_BY_SIZE;
    compare_with_one(&plain);
}

/* Alone, and without reading ahead, an asynchronous worker does what one device does. */
static void asynchronous_alone_equals_one_device(void **state) {
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-1, .decay_biases = true},
        {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1}};
    for (int o = 0; o < 2; o++) {
        const setting s = {.servers = 2,
                           .workers = 1,
                           .mode = TRM_PS_ASYNC,
                           .optimizer = optimizers[o],
                           .backend = "ref",
                           .no_prefetch = true};
        compare_with_one(&s);
    }
}

/* ---- the other modes ------------------------------------------------------------------------- */

static void asynchronous_workers_share_the_step(void **state) {
    enum { STEPS = 60 };
    worker *workers = calloc(WORKERS_MAX, sizeof *workers);
    for (int mode = 0; mode < 2; mode++) {
        const setting s = {.servers = 2,
                           .workers = 3,
                           .mode = mode == 0 ? TRM_PS_ASYNC : TRM_PS_BOUNDED,
                           .optimizer = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1}};
        run_job(&s, STEPS, workers);
        int total = 0;
        for (int k = 0; k < s.workers; k++) {
            total += workers[k].count;
            assert_true(workers[k].global_step >= STEPS);
        }
        assert_true(total >= STEPS);
        /* Pushes under way when the limit is seen: a few a worker. */
        assert_true(total <= STEPS + 6 * s.workers);
        assert_true(workers[0].losses[workers[0].count - 1] < 0.75f);
    }
    free(workers);
}

/* ---- hybrid: tables on servers, the rest by all-reduce --------------------------------------- */

typedef struct hybrid {
    const setting *s;
    trm_ps_server **servers;
    int steps;
    float losses[64]; /* [count], of each step */
    int count;
} hybrid;

static trm_status note_hybrid(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    hybrid *h = context;
    h->losses[h->count++] = p->loss; /* the mean over the ranks already */
    return TRM_OK;
}

static void hybrid_rank(rank_context *context) {
    hybrid *h = context->arg;
    trm_error err;
    trm_bootstrap *bootstrap = NULL;
    trm_comm *comm = NULL;
    trm_ps_client *client;
    trm_model *model;
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &bootstrap, &err), err);
    EXPECT_OK(trm_comm_create(bootstrap, NULL, &comm, &err), err);
    EXPECT_OK(trm_ps_client_create(&(trm_ps_client_options){.local = h->servers,
                                                            .servers = h->s->servers,
                                                            .worker = context->rank,
                                                            .timeout_seconds = 30},
                                   &client, &err),
              err);
    trm_dataset *data = open_clicks(context->size, context->rank);
    trm_model_options o = options_of(h->s, data);
    o.exec.parallel.comm = comm;
    o.ps = (trm_ps_training){.client = client, .tables_only = h->s->hybrid};
    EXPECT_OK(trm_model_create(&o, &model, &err), err);
    trm_train_options train = {.data = data, .until_step = h->steps};
    if (context->rank == 0) {
        train.callbacks[0] = (trm_callback){.on_step_end = note_hybrid, .context = h};
    }
    EXPECT_OK(trm_model_train(model, &train, &err), err);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    trm_ps_client_destroy(client);
    trm_comm_destroy(comm);
    bootstrap->table->destroy(bootstrap);
}

static void hybrid_equals_one_device(void **state) {
    enum { STEPS = 20 };
    const setting s = {.workers = 1,
                       .servers = 1,
                       .hybrid = true,
                       .backend = "ref",
                       .optimizer = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1}};
    trm_error err;
    trm_ps_server *server;
    worker *alone = calloc(1, sizeof *alone);
    *alone = (worker){.s = &s, .steps = STEPS};
    CHECK_OK(run_worker(alone), alone->err);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        CHECK_OK(trm_ps_server_start(&(trm_ps_server_options){.shards = 2,
                                                              .mode = TRM_PS_SYNC,
                                                              .workers = ranks,
                                                              .memory_bytes = 1 << 26},
                                     &server, &err),
                 err);
        hybrid *h = calloc(1, sizeof *h);
        h->s = &s;
        h->servers = &server;
        h->steps = STEPS;
        ranks_run(ranks, 0, false, hybrid_rank, h, "hybrid");
        assert_int_equal(h->count, STEPS);
        for (int i = 0; i < STEPS; i++) {
            CHECK_CLOSE((double)h->losses[i], (double)alone->losses[i], 1e-6);
        }
        trm_ps_server_stop(server);
        free(h);
    }
    free(alone);
}

/* ---- strict determinism: the bits of one device ---------------------------------------------- */

/* Losses of equal bits in all steps: each depends on all weights and rows of the step before. */
static void compare_bits(const setting *s, const worker *alone, int steps) {
    trm_ps_server *servers[4];
    hybrid *h = calloc(1, sizeof *h);
    servers_start(
        servers, s->servers,
        (trm_ps_server_options){.shards = 1 + s->servers, .mode = s->mode, .workers = s->workers});
    *h = (hybrid){.s = s, .servers = servers, .steps = steps};
    ranks_run(s->workers, 0, false, hybrid_rank, h, "strict");
    assert_int_equal(h->count, steps);
    assert_memory_equal(h->losses, alone->losses, (size_t)steps * sizeof *h->losses);
    for (int i = 0; i < s->servers; i++) {
        trm_ps_server_stop(servers[i]);
    }
    free(h);
}

static void strict_has_the_bits_of_one_device(void **state) {
    enum { STEPS = 24 };
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_SGD},
        {.kind = TRM_NESTEROV, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1},
        {.kind = TRM_ADAM, .decoupled = true, .weight_decay = 2},
        {.kind = TRM_FTRL, .initial_accumulator = 0.1, .l1 = 1e-3, .l2 = 1e-3}};
    worker *alone = calloc(1, sizeof *alone);
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++) {
        setting s = {.workers = 1, .optimizer = optimizers[o], .block = -1};
        *alone = (worker){.s = &s, .steps = STEPS};
        CHECK_OK(run_worker(alone), alone->err);
        s.mode = TRM_PS_SYNC;
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            s.workers = ranks;
            s.servers = 1 + (int)o % 3;
            s.hybrid = false;
            compare_bits(&s, alone, STEPS);
            s.hybrid = true;
            compare_bits(&s, alone, STEPS);
        }
    }
    free(alone);
}

/* ---- data lent by the servers ---------------------------------------------------------------- */

/* Samples are told apart by their first dense value. */
typedef struct history {
    pthread_mutex_t mutex;
    float used[4 * ROWS];
    int count;
} history;

typedef struct borrower {
    history *all;
    trm_ps_server **servers;
    int number, quits_after, steps; /* quits_after 0: at the end */
    trm_status status;
    trm_error err;
    pthread_t thread;
} borrower;

static trm_status note_samples(void *context, const trm_progress *p, trm_error *err) {
    borrower *b = context;
    trm_tensor dense;
    trm_status status = trm_exec_input(trm_model_exec(p->model), "dense", &dense, err);
    pthread_mutex_lock(&b->all->mutex);
    for (int i = 0; status == TRM_OK && i < dense.shape.dim[0] && b->all->count < 4 * ROWS; i++) {
        b->all->used[b->all->count++] = ((const float *)dense.data)[i * DENSE];
    }
    pthread_mutex_unlock(&b->all->mutex);
    b->steps++;
    return status;
}

static trm_status stop_run(void *context, const trm_progress *p, trm_error *err) {
    (void)p;
    (void)err;
    const borrower *b = context;
    return b->quits_after > 0 && b->steps >= b->quits_after ? TRM_END : TRM_OK;
}

static void *borrower_main(void *context) {
    borrower *b = context;
    const setting s = {.workers = 1, .optimizer = {.kind = TRM_SGD}, .backend = "ref"};
    trm_ps_client *client;
    trm_model *model;
    trm_dataset *data = open_clicks(1, 0); /* all of it, BATCH at a time */
    b->status = trm_ps_client_create(
        &(trm_ps_client_options){
            .local = b->servers, .servers = 2, .worker = b->number, .timeout_seconds = 30},
        &client, &b->err);
    if (b->status == TRM_OK) {
        trm_model_options o = options_of(&s, data);
        o.ps = (trm_ps_training){.client = client, .lease_batches = 3};
        b->status = trm_model_create(&o, &model, &b->err);
        if (b->status == TRM_OK) {
            b->status =
                trm_model_train(model,
                                &(trm_train_options){.data = data,
                                                     .until_epoch = 3,
                                                     .callbacks = {{.on_gradients = note_samples,
                                                                    .on_step_end = stop_run,
                                                                    .context = b}}},
                                &b->err);
            trm_model_destroy(model);
        }
        trm_ps_client_destroy(client);
    }
    trm_dataset_destroy(data);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void each_sample_once(trm_ps_mode mode, int32_t staleness) {
    enum { WORKERS = 3, BATCHES = 3 * (ROWS / BATCH) };
    history *all = calloc(1, sizeof *all);
    borrower b[WORKERS];
    trm_ps_server *servers[2];
    trm_error err;
    pthread_mutex_init(&all->mutex, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trm_ps_server_start(&(trm_ps_server_options){.server = i,
                                                              .servers = 2,
                                                              .shards = 2,
                                                              .mode = mode,
                                                              .staleness = staleness,
                                                              .workers = WORKERS,
                                                              .memory_bytes = 1 << 26},
                                     &servers[i], &err),
                 err);
    }
    for (int i = 0; i < WORKERS; i++) { /* worker 1 leaves early: what it was lent goes to others */
        b[i] =
            (borrower){.all = all, .servers = servers, .number = i, .quits_after = i == 1 ? 4 : 0};
        assert_int_equal(pthread_create(&b[i].thread, NULL, borrower_main, &b[i]), 0);
    }
    int steps = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(b[i].thread, NULL);
        CHECK_OK(b[i].status, b[i].err);
        steps += b[i].steps;
    }
    assert_int_equal(steps, BATCHES);
    assert_int_equal(all->count, 3 * ROWS);
    qsort(all->used, (size_t)all->count, sizeof *all->used, by_value);
    for (int i = 0; i < all->count; i += 3) { /* each value three times: once an epoch */
        assert_true(all->used[i] == all->used[i + 2]);
        assert_true(i + 3 >= all->count || all->used[i] != all->used[i + 3]);
    }
    for (int i = 0; i < 2; i++) {
        trm_ps_server_stop(servers[i]);
    }
    free(all);
}

static void each_sample_is_used_once_an_epoch(void **state) {
    each_sample_once(TRM_PS_ASYNC, 0);
    each_sample_once(TRM_PS_BOUNDED, 0);
    each_sample_once(TRM_PS_BOUNDED, 2);
    each_sample_once(TRM_PS_SYNC, 0);
}

/* ---- other datasets -------------------------------------------------------------------------- */

/* Samples in arrays, and a dataset of some of their fields: "kdl" are keys, dense values, label. */
typedef struct sample_arrays {
    int32_t keys[ROWS * FIELDS];
    float dense[ROWS * DENSE], label[ROWS];
} sample_arrays;

static trm_dataset *open_fields(sample_arrays *from, const char *letters, int64_t batch) {
    trm_batch_field fields[3];
    trm_dataset *data;
    trm_error err;
    int32_t count = 0;
    for (; letters[count] != '\0'; count++) {
        switch (letters[count]) {
        case 'k':
            fields[count] =
                (trm_batch_field){"keys", {from->keys, TRM_INT32, trm_shape_of(ROWS, FIELDS)}};
            break;
        case 'd':
            fields[count] =
                (trm_batch_field){"dense", {from->dense, TRM_FLOAT32, trm_shape_of(ROWS, DENSE)}};
            break;
        default:
            fields[count] =
                (trm_batch_field){"label", {from->label, TRM_FLOAT32, trm_shape_of(ROWS)}};
        }
    }
    CHECK_OK(trm_dataset_arrays(fields, count, 0, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, batch, true, &err), err);
    return data;
}

/* Trains a step of each dataset on one model, which is made with the first one; on servers unless
 * client is NULL. Then one of another batch size, and one that lacks a field. */
enum { OTHERS = 4 };
static void train_on_others(sample_arrays *from, trm_ps_client *client, worker *w) {
    static const char *const others[OTHERS] = {"kdl", "dlk", "lkd", "kdl"};
    const setting s = {.optimizer = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1},
                       .backend = "ref"};
    trm_error err;
    trm_model *model = NULL;
    for (int i = 0; i < OTHERS; i++) {
        trm_dataset *data = open_fields(from, others[i], BATCH);
        if (model == NULL) {
            trm_model_options o = options_of(&s, data);
            o.ps = (trm_ps_training){.client = client, .prefetch = TRM_OFF};
            CHECK_OK(trm_model_create(&o, &model, &err), err);
        }
        const trm_train_options o = {.data = data,
                                     .until_step = i + 1,
                                     .callbacks = {{.on_step_end = note_loss, .context = w}}};
        CHECK_OK(trm_model_train(model, &o, &err), err);
        trm_dataset_destroy(data);
    }
    trm_dataset *less = open_fields(from, "lk", BATCH), *half = open_fields(from, "ldk", BATCH / 2);
    trm_train_options o = {.data = half, .until_step = OTHERS + 1};
    CHECK_FAILS(trm_model_train(model, &o, &err), TRM_INVALID, err,
                "[32, 5], the model was compiled for");
    o.data = less;
    CHECK_FAILS(trm_model_train(model, &o, &err), TRM_INVALID, err,
                "no field 'dense', which the network or its loss reads (found 2 fields");
    trm_dataset_destroy(half);
    trm_dataset_destroy(less);
    trm_model_destroy(model);
}

/* A model finds the fields of each dataset by their names, with servers as with one device, and
 * refuses batches of another size. */
static void fields_are_found_by_name(void **state) {
    sample_arrays *from = calloc(1, sizeof *from);
    worker *alone = calloc(1, sizeof *alone), *served = calloc(1, sizeof *served);
    trm_ps_server *server;
    trm_ps_client *client;
    trm_error err;
    for (int i = 0; i < ROWS * FIELDS; i++) {
        from->keys[i] = i * 7 % VOCABULARY;
    }
    for (int i = 0; i < ROWS * DENSE; i++) {
        from->dense[i] = (float)(i * 13 % 31) / 31;
    }
    for (int i = 0; i < ROWS; i++) {
        from->label[i] = (float)(i % 3 == 0);
    }
    CHECK_OK(
        trm_ps_server_start(
            &(trm_ps_server_options){.mode = TRM_PS_SYNC, .workers = 1, .memory_bytes = 1 << 24},
            &server, &err),
        err);
    CHECK_OK(trm_ps_client_create(
                 &(trm_ps_client_options){.local = &server, .servers = 1, .timeout_seconds = 30},
                 &client, &err),
             err);
    train_on_others(from, NULL, alone);
    train_on_others(from, client, served);
    assert_int_equal(alone->count, OTHERS);
    assert_int_equal(served->count, OTHERS);
    for (int i = 0; i < OTHERS; i++) {
        CHECK_CLOSE((double)served->losses[i], (double)alone->losses[i], 1e-6);
    }
    trm_ps_client_destroy(client);
    trm_ps_server_stop(server);
    free(from);
    free(alone);
    free(served);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void impossible_optimizers_are_refused(void **state) {
    trm_error err;
    trm_ps_server *server;
    trm_ps_client *client;
    trm_model *model;
    CHECK_OK(trm_ps_server_start(&(trm_ps_server_options){.memory_bytes = 1 << 24}, &server, &err),
             err);
    CHECK_OK(trm_ps_client_create(&(trm_ps_client_options){.local = &server, .servers = 1}, &client,
                                  &err),
             err);
    trm_dataset *data = open_clicks(1, 0);
    setting s = {.optimizer = {.kind = TRM_LARS, .momentum = 0.9}, .backend = "ref"};
    trm_model_options o = options_of(&s, data);
    o.ps.client = client;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "lars needs whole layers");
    o.exec.optimizer = (trm_optimizer_options){.kind = TRM_SGD, .clip_norm = 1};
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "clip_norm");
    o.exec.optimizer = (trm_optimizer_options){.kind = TRM_SGD};
    o.exec.accumulate = 2;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "accumulate 2");
    o.exec.accumulate = 1;
    o.exec.parallel.block = -1; /* the servers are asynchronous */
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "needs synchronous ones");
    trm_dataset_destroy(data);
    trm_ps_client_destroy(client);
    trm_ps_server_stop(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronous_equals_one_device),
        cmocka_unit_test(four_workers_equal_one_device),
        cmocka_unit_test(asynchronous_alone_equals_one_device),
        cmocka_unit_test(hybrid_equals_one_device),
        cmocka_unit_test(strict_has_the_bits_of_one_device),
        cmocka_unit_test(asynchronous_workers_share_the_step),
        cmocka_unit_test(each_sample_is_used_once_an_epoch),
        cmocka_unit_test(fields_are_found_by_name),
        cmocka_unit_test(impossible_optimizers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
