/* SPDX-License-Identifier: Apache-2.0 */
/* Saves checkpoints of a job whose parameters are on servers. Every trainer has this callback;
 * the chief saves.
 *
 *        servers   a snapshot of rows, slots and windows, in their folder            what a restart needs
 *        chief     ckpt-STEP in model_dir: weights as one device would save them     evaluation, export
 *
 * In synchronous mode both contain the state after one and the same step: the chief saves
 * between two of its own pushes, and no step is complete without them.
 *
 * A table is not copied into the chief's memory: the writer of the file requests its rows from
 * the servers in blocks. */
#include "train/estimator/estimator.h"

#include "train/callbacks/callback.h"
#include "train/export/gather.h"
#include "train/model.h"
#include "train/estimator/remote.h"
#include "train/estimator/states_file.h"

#include "base/error.h"
#include "base/format/report.h"
#include "base/log.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Rows that are requested at a time, and workers of a report, at most. */
enum { READ_ROWS = 1 << 14, WORKERS_SHOWN = 1024 };
/* Seconds to wait for the lock of model_dir: at the start, and for the lock of a chief that died
 * on another host. */
static const double lock_seconds = 10, dead_lock_seconds = 100;

/* State of the callback. */
typedef struct saver {
    trm_estimator *estimator;
    trm_ps_client *client;
    trmi_chief_role duty;
    trm_checkpoint_writer *writer;
    const trmi_remote *remote;
    trm_ps_batch *batch; /* request that reads rows of tables, and its keys */
    uint64_t keys[READ_ROWS];
    int64_t table_bytes;      /* most bytes of tables in a checkpoint */
    bool servers_save;        /* the servers have a folder */
    uint64_t step;            /* step of the latest checkpoint */
    trmi_states_file *states; /* NULL: not written */
    bool states_done;         /* none are written any more */
    int64_t batches;          /* of this worker, the current one included */
    /* a checkpoint has been written by this chief */
    bool any;
    bool left_out; /* the latest save found no room on the disk */
    /* time of the latest checkpoint */
    double time;
} saver;

/* ---- content of a checkpoint ----------------------------------------------------------------- */

/* Returns the table of a name that exists. */
static trmi_remote_table table_called(const trmi_remote *remote, const char *name) {
    int32_t i = 0;
    while (strcmp(trmi_remote_table_at(remote, i).name, name) != 0) {
        i++;
    }
    return trmi_remote_table_at(remote, i);
}

/* Reads `rows` rows of a table, from `first` on, from the servers into `to`. Called by the
 * writer of the checkpoint (trm_checkpoint_part.read) as it writes the file. */
static trm_status read_rows(void *context, const trm_named_tensor *tensor, int64_t first,
                            int64_t rows, void *to, trm_error *err) {
    saver *s = context;
    const trmi_remote_table table = table_called(s->remote, tensor->name);
    float *values = to;
    for (int64_t end = first + rows, some; first < end;
         first += some, values += some * table.width) {
        some = end - first < READ_ROWS ? end - first : READ_ROWS;
        for (int64_t i = 0; i < some; i++) {
            s->keys[i] = (uint64_t)(first + i);
        }
        trm_ps_batch_clear(s->batch);
        TRMI_TRY(trm_ps_batch_add(s->batch, table.number, s->keys, some, values, NULL, err));
        TRMI_TRY(trm_ps_read(s->batch, err));
    }
    return TRM_OK;
}

/* Tensors of a checkpoint; `tensors` has room for all. */
typedef struct list {
    trmi_arena arena;
    trm_named_tensor *tensors;
    int64_t count;
} list;

/* Appends a tensor and returns its memory, in the list's arena; NULL without memory. */
static void *add_tensor(list *l, const char *name, trm_dtype dtype, trm_shape shape) {
    trm_tensor t = {.dtype = dtype, .shape = shape};
    t.data = trmi_arena_alloc(&l->arena, (size_t)trm_tensor_bytes(&t) + 1);
    if (t.data != NULL) {
        l->tensors[l->count++] = (trm_named_tensor){.name = name, .tensor = t};
    }
    return t.data;
}

/* Adds copies of all variables of the program but slots and the rows of the current batch. */
static trm_status add_variables(const trm_model *model, list *l, trm_error *err) {
    const trm_exec *exec = model->train.exec;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind == TRM_VARIABLE_SLOT || strstr(v.name, "#rows") != NULL) {
            continue;
        }
        void *data = add_tensor(l, v.name, v.dtype, v.shape);
        if (data == NULL) {
            return TRMI_NO_MEMORY(err, "for a copy of the model to save");
        }
        trm_exec_read(exec, i, data);
    }
    return TRM_OK;
}

/* Returns how many bytes of tables a checkpoint may have: export_bytes, or 40 % of the free disk
 * space, so that two checkpoints and the servers' files fit. */
static int64_t bytes_of_tables(const saver *s) {
    struct statvfs space;
    const trm_run_config *c = &s->estimator->config;
    if (c->export_bytes > 0 || statvfs(c->model_dir, &space) != 0) {
        return c->export_bytes > 0 ? c->export_bytes : INT64_MAX;
    }
    return (int64_t)((double)space.f_bavail * (double)space.f_frsize * 0.4);
}

/* Adds the tables that fit into the limit, in their order, without data: read_rows supplies
 * their rows. The tables that are left out are named in the log at the first save. */
static void add_tables(const saver *s, const trm_model *model, list *l) {
    int32_t count = trmi_remote_table_count(model->remote);
    int64_t left = s->table_bytes;
    for (int32_t i = 0; i < count; i++) {
        trmi_remote_table t = trmi_remote_table_at(model->remote, i);
        int64_t bytes = t.rows > left / 4 / t.width ? INT64_MAX : t.rows * t.width * 4;
        if (bytes > left) {
            if (!s->any) {
                trmi_log(TRM_LOG_WARN, "train",
                         "table %s (%lld rows of %d) is too large for export_bytes, %lld are left: "
                         "checkpoints for evaluation are without it",
                         t.name, (long long)t.rows, t.width, (long long)left);
            }
            continue;
        }
        left -= bytes;
        l->tensors[l->count++] = (trm_named_tensor){
            .name = t.name,
            .tensor = {.dtype = TRM_FLOAT32, .shape = trm_shape_of(t.rows, t.width)}};
    }
}

/* Writes ckpt-STEP of the chief: the current dense variables, read from the servers, states and
 * tables; hybrid slots too. */
static trm_status write_weights(saver *s, const trm_progress *p, trm_error *err) {
    const trm_model *model = p->model;
    list l = {.arena = {.chunk_bytes = 1 << 20}};
    char *state = NULL;
    int64_t room =
        trm_exec_variable_count(model->train.exec) + trmi_remote_table_count(model->remote);
    trm_status status = TRMI_NEW(err, l.tensors, room + 1, "for a list of tensors");
    /* the dense variables are on the servers */
    if (status == TRM_OK) {
        status = trmi_remote_read_dense(model->remote, err);
    }
    status = status == TRM_OK ? add_variables(model, &l, err) : status;
    if (status == TRM_OK) {
        add_tables(s, model, &l);
        /* "batch": 0 marks a checkpoint of weights only: a resume uses the servers' files. */
        trmi_report r;
        trmi_report_begin(&r, true);
        trmi_report_put(&r, trmi_int("epoch", model->epoch),
                        trmi_int("epoch_step", model->epoch_step), trmi_int("batch", 0),
                        trmi_int("accumulate", 1), trmi_int("samples", 0),
                        trmi_nine("loss", (double)model->loss), trmi_json_value("notes", "{}"));
        status = trmi_report_give(&r, "for a checkpoint", &state, err);
        /* tables are read row by row while they are written */
        trm_checkpoint_part parts[] = {{.name = "model",
                                        .tensors = l.tensors,
                                        .count = l.count,
                                        .read = read_rows,
                                        .read_context = s},
                                       {.name = "optimizer"}};
        const trm_checkpoint_info info = {.global_step = (int64_t)trm_model_global_step(model),
                                          .epoch = model->epoch,
                                          .seed = model->options.exec.seed,
                                          .world_size = s->estimator->trainers,
                                          .config_json = model->options.description,
                                          .state_json = state};
        trm_named_tensor *slots = NULL;
        /* hybrid: the executor has the slots */
        if (status == TRM_OK && s->estimator->strategy.training.tables_only) {
            status = trmi_gather(model->train.exec, true, &l.arena, &slots, &parts[1].count, err);
            parts[1].tensors = slots;
        }
        if (status == TRM_OK) {
            status = trm_checkpoint_save(s->writer, &info, parts, parts[1].count > 0 ? 2 : 1, err);
        }
    }
    trm_free(state);
    trmi_free(l.tensors);
    trmi_arena_free(&l.arena);
    return status;
}

/* Notes step and time of a save. */
static void note_save(saver *s, uint64_t step, bool left_out) {
    s->any = true;
    s->left_out = left_out;
    s->step = step;
    s->time = trmi_os_now();
}

/* Saves now: waits for the pushes under way, makes the servers save a snapshot, and writes the
 * weights. A server that was restarted during the snapshot is not an error; the next one is
 * complete. */
static trm_status save_now(saver *s, const trm_progress *p, trm_error *err) {
    uint64_t step = trm_model_global_step(p->model);
    if (s->writer == NULL || (s->any && s->step == step && !s->left_out)) {
        return TRM_OK;
    }
    char path[4096];
    trm_ps_checkpoint_result result;
    TRMI_TRY(trmi_remote_flush(p->model->remote, err));
    if (s->servers_save) {
        trm_status status = trm_ps_checkpoint(s->client, true, &result, err);
        if (status == TRM_PEER) { /* a server was restarted in the middle; the next one is whole */
            trmi_log(TRM_LOG_WARN, "train", "no checkpoint of the servers at step %llu: %s",
                     (unsigned long long)step, err->message);
        } else {
            TRMI_TRY(status);
        }
    }
    TRMI_TRY(write_weights(s, p, err));
    note_save(s, step, false);
    snprintf(path, sizeof path, "%s/ckpt-%llu", s->estimator->config.model_dir,
             (unsigned long long)step);
    return trmi_call_checkpoint(p, path, err);
}

/* ---- saving in time -------------------------------------------------------------------------- */

/* Begins to do the chief's work: opens the checkpoint writer, which locks model_dir (waiting
 * `patience` seconds), and writes job.json. */
static trm_status begin_chief_work(saver *s, const trm_progress *p, double patience,
                                   trm_error *err) {
    trm_estimator *e = s->estimator;
    const trm_run_config *c = &e->config;
    if (c->model_dir != NULL) {
        trm_checkpoint_options options = c->checkpoints.writer;
        options.lock_wait_seconds = patience;
        TRMI_TRY(trm_checkpoint_writer_open(c->model_dir, &options, &s->writer, err));
        TRMI_TRY(s->batch == NULL ? trm_ps_batch_create(s->client, &s->batch, err) : TRM_OK);
        s->remote = p->model->remote;
        s->table_bytes = bytes_of_tables(s);
        s->servers_save = true;
        TRMI_TRY(trmi_job_write(e, TRMI_JOB_RUNNING, p->global_step, err));
    }
    s->time = trmi_os_now();
    e->acts = true;
    return TRM_OK;
}

/* Stops doing the chief's work and releases model_dir. */
static void lay_down(saver *s) {
    (void)!trm_checkpoint_writer_close(s->writer, NULL);
    s->writer = NULL;
    s->any = s->left_out = s->estimator->acts = false;
}

/* Requests the chief's lease and begins or ends the chief's work accordingly. If model_dir is
 * still locked, by a chief that was suspended or died on another host, a later call tries again. */
static trm_status follow_lease(saver *s, const trm_progress *p, bool now, trm_error *err) {
    trm_estimator *e = s->estimator;
    TRMI_TRY(trmi_chief_role_query(&s->duty, now, err));
    if (!s->duty.mine && e->acts) {
        lay_down(s);
    }
    if (!s->duty.mine || e->acts) {
        return TRM_OK;
    }
    trm_error why;
    trm_status status = begin_chief_work(s, p, 0, &why);
    if (status != TRM_OK) {
        trmi_log(TRM_LOG_WARN, "train", "the chief's work waits: %s", why.message);
        lay_down(s);
    }
    return TRM_OK;
}

/* Requests the lease and, as the chief, takes the work up. An error of the lock is final here. */
static trm_status saver_begin(void *context, const trm_progress *p, trm_error *err) {
    saver *s = context;
    s->estimator->acts = false;
    s->batches = trmi_remote_position(p->model->remote);
    TRMI_TRY(trmi_chief_role_query(&s->duty, true, err));
    return s->duty.mine ? begin_chief_work(s, p, lock_seconds, err) : TRM_OK;
}

/* Saves if this process is still the chief. Without disk space training goes on, except for the
 * last save. Any other error is dropped if another worker has become the chief in the meantime. */
static trm_status save_as_chief(saver *s, const trm_progress *p, bool last, trm_error *err) {
    trm_error why, failed = {0};
    TRMI_TRY(follow_lease(s, p, true, err));
    if (!s->estimator->acts) {
        return TRM_OK;
    }
    trm_status status = save_now(s, p, &failed);
    if (status == TRM_NOSPACE && !last) {
        trmi_log(TRM_LOG_WARN, "train",
                 "step %llu is not saved: %s; training goes on, the next save tries again",
                 (unsigned long long)p->global_step, failed.message);
        note_save(s, trm_model_global_step(p->model), true);
        return TRM_OK;
    }
    if (status != TRM_OK && err != NULL) {
        *err = failed;
    }
    if (status == TRM_OK || trmi_chief_role_query(&s->duty, true, &why) != TRM_OK || s->duty.mine) {
        return status;
    }
    lay_down(s);
    return TRM_OK;
}

/* Keeps the running statistics of the chief, before the batch's push: whether the servers have the
 * push or not when this process dies, the file has the statistics that belong to their rows. */
static trm_status saver_gradients(void *context, const trm_progress *p, trm_error *err) {
    saver *s = context;
    const trm_run_config *c = &s->estimator->config;
    trm_error why;
    (void)err;
    s->batches++;
    if (!s->estimator->acts || !trmi_estimator_keeps_states(s->estimator) || s->states_done) {
        return TRM_OK;
    }
    trm_status status = TRM_OK;
    /* the file is opened with the first batch */
    if (s->states == NULL) {
        status = trmi_states_open(c->model_dir, p->model->train.exec, &s->states, &why);
        s->states_done = s->states == NULL; /* nothing to keep */
    }
    if (status == TRM_OK && s->states != NULL) {
        status = trmi_states_write(s->states, p->model->train.exec, s->batches, &why);
    }
    if (status != TRM_OK) {
        s->states_done = true;
        trmi_log(TRM_LOG_WARN, "train",
                 "%s: a restart takes running statistics of the newest checkpoint", why.message);
    }
    return TRM_OK;
}

/* Saves if a checkpoint is due, by steps or seconds, and at the first step. Steps are compared
 * by multiples passed, because all workers advance the global step. */
static trm_status saver_step(void *context, const trm_progress *p, trm_error *err) {
    saver *s = context;
    const trm_run_config *c = &s->estimator->config;
    uint64_t every = (uint64_t)c->checkpoints.every_steps;
    TRMI_TRY(follow_lease(s, p, false, err));
    bool due = !s->any || (every > 0 && p->global_step / every != s->step / every) ||
               (c->checkpoints.every_seconds > 0 &&
                trmi_os_now() - s->time >= c->checkpoints.every_seconds);
    return due && s->estimator->acts ? save_as_chief(s, p, false, err) : TRM_OK;
}

/* Returns how many other workers are active, -1 if server 0 does not answer. `who` receives
 * their names for the log. *all_came: all trainers have connected at least once. */
static int32_t busy_workers(const saver *s, bool *all_came, char *who, size_t size) {
    trm_ps_worker workers[WORKERS_SHOWN];
    trm_error err;
    int32_t count, busy = 0;
    who[0] = '\0';
    if (trm_ps_workers(s->client, workers, WORKERS_SHOWN, &count, &err) != TRM_OK) {
        return -1;
    }
    *all_came = count >= s->estimator->trainers;
    for (int32_t i = 0; i < count && i < WORKERS_SHOWN; i++) {
        if (workers[i].active && workers[i].worker != s->estimator->trainer) {
            size_t at = strlen(who);
            snprintf(who + at, size - at, "%s%d (batch %lld)", at ? ", " : "", workers[i].worker,
                     (long long)workers[i].batches);
            busy++;
        }
    }
    return busy;
}

/* Waits up to `patience` seconds until no other worker is active, so that the last checkpoint
 * contains all pushes. A worker that has not connected after 10 s is not waited for. */
static void wait_for_workers(const saver *s, double patience) {
    char who[256];
    double begin = trmi_os_now(), said = begin;
    for (bool all_came = false;;) {
        int32_t busy = busy_workers(s, &all_came, who, sizeof who);
        double waited = trmi_os_now() - begin;
        bool lost =
            s->estimator->workers != NULL && trm_comm_health(s->estimator->workers, NULL) != TRM_OK;
        if (busy < 0 || (busy == 0 && (all_came || waited > 10)) || waited > patience || lost) {
            return;
        }
        if (trmi_os_now() - said > 10) {
            said = trmi_os_now();
            trmi_estimator_say(s->estimator, "waiting for workers: %s",
                               busy > 0 ? who : "not yet seen");
        }
        usleep(20000);
    }
}

/* Ends the training of this trainer: a worker waits for the end of the job or takes the chief's
 * work over; the chief waits for the other workers and saves once more. */
static trm_status saver_end(void *context, const trm_progress *p, trm_error *err) {
    saver *s = context;
    trm_estimator *e = s->estimator;
    TRMI_TRY(follow_lease(s, p, true, err));
    if (!e->acts && p->stopping) {
        return TRM_OK;
    }
    if (!e->acts && !s->duty.mine) {
        trm_status status = trmi_chief_role_wait(&s->duty, err);
        if (status != TRM_OK) {
            return status == TRM_END ? TRM_OK : status;
        }
        trmi_estimator_say(e, "trainer %d is the chief now, and ends the job", e->trainer);
    }
    TRMI_TRY(e->acts ? TRM_OK : begin_chief_work(s, p, dead_lock_seconds, err));
    wait_for_workers(s, p->stopping ? 3 : e->strategy.client.timeout_seconds);
    /* a hybrid worker that died at the end must repeat its batch first */
    TRMI_TRY(e->workers == NULL ? TRM_OK : trm_comm_health(e->workers, err));
    if (!e->strategy.training.tables_only) { /* other workers have advanced the step */
        trm_exec_set_step(p->model->train.exec, trmi_remote_step(p->model->remote));
    }
    TRMI_TRY(save_as_chief(s, p, true, err));
    trm_checkpoint_writer *writer = s->writer;
    s->writer = NULL;
    return trm_checkpoint_writer_close(writer, err);
}

/* Frees the saver. An error of closing is dropped: the errors of saves were reported. */
static void saver_destroy(void *context) {
    saver *s = context;
    (void)!trm_checkpoint_writer_close(s->writer, NULL);
    trm_ps_batch_destroy(s->batch);
    trmi_states_close(s->states);
    trmi_free(s);
}

/* Contract in estimator.h. `last`: other callbacks of the step run before the save. */
trm_callback trmi_ps_saver(trm_estimator *e, trm_ps_client *client) {
    saver *s = trmi_alloc(sizeof *s);
    if (s == NULL) {
        return trmi_callback_no_memory();
    }
    s->estimator = e;
    s->client = client;
    s->duty = (trmi_chief_role){.estimator = e, .client = client};
    return (trm_callback){.on_begin = saver_begin,
                          .on_gradients = saver_gradients,
                          .on_step_end = saver_step,
                          .on_end = saver_end,
                          .destroy = saver_destroy,
                          .context = s,
                          .last = true};
}
