/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of one model that differ in width, rule, dtype, admission and initial values, trained by
 * workers and servers in step: one device's numbers, before and after a restart with another number
 * of servers. The one device computes gradients; plain loops here do what the servers' tables do
 * with them. */
#include "click_shard.h"

#include "trireme/nn.h"
#include "trireme/ps.h"
#include "trireme/train.h"

#include <math.h>
#include <pthread.h>

enum {
    ROWS = 1024,
    FIELDS = 5,
    VOCABULARY = 400,
    BATCH = 64,
    WORKERS = 2,
    TABLES = 4,
    WIDTH_MAX = 10,         /* of the rows of a table */
    FIRST_STEPS = 16,       /* of the first job; a second one goes on from its checkpoint ... */
    STEPS = 32,             /* ... until this step */
    PUSHES_TO_ADMISSION = 6 /* of the table with admission by count */
};

static const int32_t users[] = {0, 3}, items[] = {1, 2, 4};
static const trm_field_table field_tables[] = {
    {.name = "user", .fields = users, .count = 2, .rows = VOCABULARY, .width = 6},
    {.name = "item",
     .fields = items,
     .count = 3,
     .rows = VOCABULARY,
     .width = 10,
     .init = TRM_INIT_NORMAL_002}};

/* The properties of a table: the hook requests them, and the plain loops implement them. */
typedef struct table {
    const char *name;
    int32_t width;
    double rate;
    trm_optimizer_options optimizer;
    bool bfloat16; /* the rows, else float32 */
    bool counts;   /* a row is admitted by its PUSHES_TO_ADMISSION-th push, else by its first */
    const int32_t *fields;
    int32_t fields_count;
} table;
static const table kinds[TABLES] = {
    {.name = "embedding.user.weight",
     .width = 6,
     .rate = 0.1,
     .optimizer = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1},
     .counts = true,
     .fields = users,
     .fields_count = 2},
    {.name = "embedding.item.weight",
     .width = 10,
     .rate = 2,
     .optimizer = {.kind = TRM_SGD},
     .bfloat16 = true,
     .fields = items,
     .fields_count = 3},
    {.name = "wide.user.weight",
     .width = 1,
     .rate = 0.3,
     .optimizer = {.kind = TRM_FTRL, .initial_accumulator = 0.1, .l1 = 0.02},
     .fields = users,
     .fields_count = 2},
    {.name = "wide.item.weight",
     .width = 1,
     .rate = 0.05,
     .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
     .fields = items,
     .fields_count = 3}};

static void tell_table(void *context, trm_table_options *o) {
    (void)context;
    for (int t = 0; t < TABLES; t++) {
        if (strcmp(o->name, kinds[t].name) == 0) {
            o->learning_rate = kinds[t].rate;
            o->optimizer = kinds[t].optimizer;
            o->dtype = kinds[t].bfloat16 ? TRM_BFLOAT16 : TRM_FLOAT32;
            o->round_to_nearest = true;
            o->admission.kind = kinds[t].counts ? TRM_ADMIT_COUNT : TRM_ADMIT_ALL;
            o->admission.min_count = PUSHES_TO_ADMISSION;
        }
    }
}

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    (void)context;
    static const int64_t hidden[] = {12};
    const trm_click_inputs in = {.keys = trm_inputs_get(inputs, "keys"),
                                 .dense = trm_inputs_get(inputs, "dense")};
    return trm_widedeep(
        g, &in,
        &(trm_recommender_options){
            .tables = field_tables, .tables_count = 2, .hidden = hidden, .hidden_count = 1});
}

static trm_dataset *open_clicks(int shards, int shard) {
    return click_shard(&(trm_click_generator_options){.rows = ROWS,
                                                      .test_rows = 64,
                                                      .fields = FIELDS,
                                                      .dense = 3,
                                                      .vocabulary = VOCABULARY,
                                                      .seed = 5},
                       BATCH, shards, shard);
}

static trm_model_options options_of(trm_dataset *data) {
    return (trm_model_options){.network = build_network,
                               .loss = trm_loss_logistic,
                               .exec.optimizer = {.kind = TRM_SGD},
                               .learning_rate = {.base = 0.05},
                               .data = data,
                               .exec.backend = "ref",
                               .exec.threads = 1,
                               .exec.seed = 21};
}

/* ---- one device ------------------------------------------------------------------------------ */

typedef struct rows {
    float w[VOCABULARY * WIDTH_MAX], slots[2][VOCABULARY * WIDTH_MAX],
        gradient[VOCABULARY * WIDTH_MAX];
    int seen[VOCABULARY]; /* steps that touched the row */
} rows;

/* Returns the bfloat16 number that is nearest to x. */
static float round_to_bfloat16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Applies the gradient of element `at` by the table's rule, as the servers do. */
static void learn_element(const table *kind, rows *r, int64_t at) {
    const trm_optimizer_options *o = &kind->optimizer;
    float g = r->gradient[at], *w = &r->w[at], *a = &r->slots[0][at], *b = &r->slots[1][at],
          rate = (float)kind->rate, l1 = (float)o->l1;
    if (o->kind == TRM_SGD) {
        *w -= rate * g;
    } else if (o->kind == TRM_MOMENTUM) {
        *a = (float)o->momentum * *a + g;
        *w -= rate * *a;
    } else if (o->kind == TRM_ADAGRAD) {
        *a += g * g;
        *w -= rate * g / (sqrtf(*a) + 1e-10f);
    } else {
        float before = sqrtf(*a);
        *a += g * g;
        *b += g - (sqrtf(*a) - before) / rate * *w;
        *w = fabsf(*b) <= l1 ? 0 : -(*b - copysignf(l1, *b)) / (sqrtf(*a) / rate);
    }
    *w = kind->bfloat16 ? round_to_bfloat16(*w) : *w;
}

/* Updates the rows that the keys of a batch name. */
static void update_table(const table *kind, rows *r, const int64_t *keys) {
    bool touched[VOCABULARY] = {false};
    for (int i = 0; i < BATCH; i++) {
        for (int f = 0; f < kind->fields_count; f++) {
            touched[keys[i * FIELDS + kind->fields[f]]] = true;
        }
    }
    for (int64_t k = 0; k < VOCABULARY; k++) {
        r->seen[k] += touched[k];
        if (!touched[k] || (kind->counts && r->seen[k] < PUSHES_TO_ADMISSION)) {
            continue; /* a row that is not admitted loses its gradient */
        }
        for (int64_t i = k * kind->width; i < (k + 1) * kind->width; i++) {
            learn_element(kind, r, i);
        }
    }
}

static void begin_rows(trm_exec *exec, rows *tables) {
    for (int t = 0; t < TABLES; t++) {
        int32_t variable = trm_exec_find(exec, kinds[t].name);
        trm_exec_read(exec, variable, tables[t].w);
        for (int i = 0; i < VOCABULARY * WIDTH_MAX; i++) {
            tables[t].w[i] = kinds[t].bfloat16 ? round_to_bfloat16(tables[t].w[i]) : tables[t].w[i];
            tables[t].slots[0][i] = (float)kinds[t].optimizer.initial_accumulator;
        }
        trm_exec_write(exec, variable, tables[t].w);
    }
}

static void step_dense(trm_exec *exec) {
    enum { MOST = 2048 };
    float w[MOST], g[MOST];
    trm_error err;
    for (int32_t v = 0; v < trm_exec_variable_count(exec); v++) {
        trm_variable variable = trm_exec_variable(exec, v);
        bool table =
            strstr(variable.name, ".user.") != NULL || strstr(variable.name, ".item.") != NULL;
        if (variable.kind != TRM_VARIABLE_PARAMETER || table) {
            continue;
        }
        assert_true(trm_shape_count(&variable.shape) <= MOST);
        trm_exec_read(exec, v, w);
        CHECK_OK(trm_exec_gradient(exec, v, g, &err), err);
        for (int64_t i = 0; i < trm_shape_count(&variable.shape); i++) {
            w[i] -= 0.05f * g[i];
        }
        trm_exec_write(exec, v, w);
    }
}

static void one_device(float *losses, rows *tables) {
    trm_error err;
    trm_model *model;
    trm_dataset *data = open_clicks(1, 0);
    trm_model_options options = options_of(data);
    CHECK_OK(trm_model_create(&options, &model, &err), err);
    trm_exec *exec = trm_model_exec(model);
    begin_rows(exec, tables);
    for (int step = 0; step < STEPS;) {
        const trm_batch *batch;
        trm_status status = trm_dataset_next(data, &batch, &err);
        if (status == TRM_END) {
            continue;
        }
        CHECK_OK(status, err);
        for (int32_t f = 0; f < batch->field_count; f++) {
            CHECK_OK(trm_exec_feed(exec, batch->fields[f].name, &batch->fields[f].tensor, &err),
                     err);
        }
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        losses[step++] = trm_exec_loss(exec);
        for (int t = 0; t < TABLES; t++) {
            int32_t v = trm_exec_find(exec, kinds[t].name);
            CHECK_OK(trm_exec_gradient(exec, v, tables[t].gradient, &err), err);
            update_table(&kinds[t], &tables[t], trm_batch_tensor(batch, "keys")->data);
            trm_exec_write(exec, v, tables[t].w);
        }
        step_dense(exec);
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
}

/* ---- the job --------------------------------------------------------------------------------- */

typedef struct worker {
    trm_ps_server **servers;
    int32_t servers_count;
    int number; /* of the worker */
    int to;     /* the step after which it ends */
    bool saves; /* has the servers write a checkpoint at its end */
    float losses[STEPS];
    float w[TABLES][VOCABULARY * WIDTH_MAX]; /* at the end */
    trm_error err;
    trm_status status;
    pthread_t thread;
} worker;

static trm_status note_loss(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    worker *w = context;
    w->losses[p->global_step - 1] = p->loss;
    return TRM_OK;
}

static trm_status read_rows(worker *w, trm_ps_client *client, trm_error *err) {
    uint64_t keys[VOCABULARY];
    trm_ps_batch *batch;
    trm_status status = trm_ps_batch_create(client, &batch, err);
    for (int k = 0; k < VOCABULARY; k++) {
        keys[k] = (uint64_t)k;
    }
    /* The model declares its tables first, in the order of `kinds`: their numbers are 0, 1, ... */
    for (int t = 0; status == TRM_OK && t < TABLES; t++) {
        status = trm_ps_batch_add(batch, t, keys, VOCABULARY, w->w[t], NULL, err);
    }
    status = status == TRM_OK ? trm_ps_read(batch, err) : status;
    trm_ps_batch_destroy(batch);
    return status;
}

static trm_status run_worker(worker *w) {
    trm_error *err = &w->err;
    trm_ps_client *client;
    trm_model *model = NULL;
    trm_ps_checkpoint_result result;
    trm_dataset *data = open_clicks(WORKERS, w->number);
    trm_model_options options = options_of(data);
    trm_status status = trm_ps_client_create(&(trm_ps_client_options){.local = w->servers,
                                                                      .servers = w->servers_count,
                                                                      .worker = w->number,
                                                                      .timeout_seconds = 30},
                                             &client, err);
    if (status != TRM_OK) {
        return status;
    }
    options.ps = (trm_ps_training){.client = client, .table = tell_table};
    status = trm_model_create(&options, &model, err);
    if (status == TRM_OK) {
        status = trm_model_train(
            model,
            &(trm_train_options){.data = data,
                                 .until_step = w->to,
                                 .callbacks = {{.on_step_end = note_loss, .context = w}}},
            err);
    }
    status = status == TRM_OK ? trm_ps_flush(client, err) : status;
    status = status == TRM_OK ? read_rows(w, client, err) : status;
    status = status == TRM_OK && w->saves ? trm_ps_checkpoint(client, false, &result, err) : status;
    trm_model_destroy(model);
    trm_ps_client_destroy(client);
    trm_dataset_destroy(data);
    return status;
}

static void *worker_main(void *context) {
    worker *w = context;
    w->status = run_worker(w);
    return NULL;
}

static void run_job(const char *folder, int32_t servers_count, int to, worker *workers) {
    trm_ps_server *servers[4];
    trm_error err;
    for (int i = 0; i < servers_count; i++) {
        const trm_ps_server_options o = {.server = i,
                                         .servers = servers_count,
                                         .shards = 2,
                                         .mode = TRM_PS_SYNC,
                                         .workers = WORKERS,
                                         .memory_bytes = 1 << 26,
                                         .folder = folder};
        CHECK_OK(trm_ps_server_start(&o, &servers[i], &err), err);
    }
    for (int i = 0; i < WORKERS; i++) {
        workers[i].servers = servers;
        workers[i].servers_count = servers_count;
        workers[i].number = i;
        workers[i].to = to;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK_OK(workers[i].status, workers[i].err);
    }
    /* A client that only reads (worker -1) ends the job. Servers whose job is over remove their
     * records of workers (server_away.c), so that the next job does not wait for these. */
    trm_ps_client *last;
    CHECK_OK(trm_ps_client_create(
                 &(trm_ps_client_options){.local = servers, .servers = servers_count, .worker = -1},
                 &last, &err),
             err);
    CHECK_OK(trm_ps_stop_servers(last, &err), err);
    trm_ps_client_destroy(last);
    for (int i = 0; i < servers_count; i++) {
        trm_ps_server_stop(servers[i]);
    }
}

static void check_losses(const worker *workers, const float *losses, int from, int to) {
    for (int i = from; i < to; i++) {
        CHECK_CLOSE(((double)workers[0].losses[i] + (double)workers[1].losses[i]) / 2,
                    (double)losses[i], 1e-6);
    }
}

static void check_rows(const worker *w, const rows *tables) {
    for (int t = 0; t < TABLES; t++) {
        /* The servers add the sums of two workers, one device adds all samples in order: bfloat16
         * may round the two to neighbouring numbers. */
        double change = kinds[t].bfloat16 ? 0x1p-8 : 0;
        for (int i = 0; i < VOCABULARY * kinds[t].width; i++) {
            double want = (double)tables[t].w[i];
            CHECK_CLOSE((double)w->w[t][i], want, 1e-6 + change * fabs(want));
        }
    }
}

static void different_tables_equal_one_device(void **state) {
    char folder[] = "/tmp/trireme_tables_XXXXXX", command[64];
    float losses[STEPS];
    rows *tables = calloc(TABLES, sizeof *tables);
    worker *workers = calloc(WORKERS, sizeof *workers);
    assert_non_null(mkdtemp(folder));
    one_device(losses, tables);
    workers[0].saves = true;
    run_job(folder, 2, FIRST_STEPS, workers);
    check_losses(workers, losses, 0, FIRST_STEPS);
    run_job(folder, 3, STEPS, workers); /* from the checkpoint */
    check_losses(workers, losses, FIRST_STEPS, STEPS);
    check_rows(&workers[0], tables);
    assert_true(losses[STEPS - 1] < losses[0]);
    /* Admission kept rows out of table 0, and l1 made some weights of table 2 zero, but not all. */
    int waiting = 0, gone = 0, kept = 0;
    for (int k = 0; k < VOCABULARY; k++) {
        waiting += tables[0].seen[k] > 0 && tables[0].seen[k] < PUSHES_TO_ADMISSION;
        gone += tables[2].w[k] == 0 && tables[2].seen[k] > 4;
        kept += tables[2].w[k] != 0;
    }
    assert_true(waiting > 4 && gone > 4 && kept > 4);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    free(workers);
    free(tables);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(different_tables_equal_one_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
