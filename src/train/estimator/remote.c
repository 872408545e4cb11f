/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a worker whose parameters are on servers (contracts and states of a batch: remote.h).
 * remote_bind.c makes what is used here.
 *
 *       stage     copy the fields, compute the keys, start the pull
 *       begin     wait for the pull, feed the program
 *       push      check the gradients, send them
 *       leases    take the right to samples from the servers, where they lend them
 *
 * One thread calls all functions of a connection. A pull names where rows and gradients lie, and
 * the push sends the same request back, so that the stage of a batch must not change in between.
 *
 * Strict determinism: gradients of dense variables are complete on every worker, which pushes a
 * part of them. */
#include "train/estimator/remote_state.h"

#include "base/element.h"
#include "base/error.h"
#include "exec/exec.h"
#include "ps/client/life.h"

#include <string.h>

/* Dense rows that trmi_remote_counters samples. */
enum { COUNTED = 64 };

/* ---- staging --------------------------------------------------------------------------------- */

/* Copies the fields of a batch into the stage and into the inputs of the ids program. The copy
 * is needed because the dataset's batch is borrowed, and the program's inputs still hold the
 * batch that is being computed. */
static trm_status copy_fields(trmi_remote *r, trmi_remote_batch *s, const trm_batch *batch,
                              trm_error *err) {
    for (int32_t f = 0; f < r->compiled->fields; f++) {
        const trm_tensor *from;
        if (s->fields[f] == NULL) {
            continue;
        }
        TRMI_TRY(trmi_fit_field(r->compiled, batch, f, &from, err));
        trmi_copy_field(from, s->fields[f], &r->compiled->target[f]);
        if (r->ids_target[f].data != NULL) {
            trmi_copy_field(from, r->ids_target[f].data, &r->ids_target[f]);
        }
    }
    return TRM_OK;
}

/* Converts the ids of one gather into keys, which lie by blocks in strict determinism.
 *   errors  INVALID: an id outside the table, as the gather itself reports it */
static trm_status take_keys(const trmi_remote *r, const trmi_detached *t, const trm_tensor *ids,
                            uint64_t *keys, trm_error *err) {
    const int64_t each = r->row_of != NULL ? t->count / r->compiled->batch : 1;
    bool wide = ids->dtype == TRM_INT64;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t id = trmi_element_id(ids->data, wide, i);
        if (id < 0 || id >= t->rows) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: id %lld at position %lld, 0 to %lld expected",
                             t->table, (long long)id, (long long)i, (long long)t->rows - 1);
        }
        keys[r->row_of != NULL ? r->row_of[i / each] * each + i % each : i] = (uint64_t)id;
    }
    return TRM_OK;
}

/* Runs the ids program and stores the keys of all gathers in the stage. */
static trm_status find_keys(trmi_remote *r, trmi_remote_batch *s, trm_error *err) {
    if (r->lookups_count == 0) {
        return TRM_OK;
    }
    TRMI_TRY(trm_exec_forward(r->ids_exec, err));
    for (int32_t i = 0; i < r->lookups_count; i++) {
        trm_tensor ids;
        TRMI_TRY(trm_exec_output(r->ids_exec, i, &ids, err));
        TRMI_TRY(take_keys(r, &r->found[i], &ids, s->keys[i], err));
    }
    return TRM_OK;
}

/* Adds rows [begin, end) of a dense variable to the request. `pushed`: with their gradients. */
static trm_status add_rows(const trmi_remote_dense *d, trm_ps_batch *batch, int64_t begin,
                           int64_t end, bool pushed, trm_error *err) {
    return begin == end ? TRM_OK
                        : trm_ps_batch_add(batch, d->table, d->keys + begin, end - begin,
                                           d->values + begin * d->width,
                                           pushed ? d->gradients + begin * d->width : NULL, err);
}

/* Adds a dense variable to the request. In strict determinism each worker has the complete gradient
 * and pushes a part of its rows. */
static trm_status add_dense(const trmi_remote *r, const trmi_remote_dense *d, trm_ps_batch *batch,
                            trm_error *err) {
    const int64_t ranks = r->samples.count > 0 ? r->samples.ranks : 1, rank = r->samples.rank;
    int64_t begin = d->rows * rank / ranks, end = d->rows * (rank + 1) / ranks;
    TRMI_TRY(add_rows(d, batch, 0, begin, false, err));
    TRMI_TRY(add_rows(d, batch, begin, end, true, err));
    return add_rows(d, batch, end, d->rows, false, err);
}

/* Fills the pull request of the stage: the keys of each gather, and all rows of all dense
 * variables. The same request is pushed later, so that it names where the gradients lie too. */
static trm_status fill_batch(trmi_remote *r, trmi_remote_batch *s, trm_error *err) {
    trm_ps_batch_clear(s->batch);
    if (r->samples.count > 0) {
        TRMI_TRY(trmi_batch_set_blocks(s->batch, &r->blocks, err));
    }
    for (int32_t i = 0; i < r->lookups_count; i++) {
        const trmi_remote_lookup *l = &r->lookups[i];
        TRMI_TRY(trm_ps_batch_add(s->batch, l->table, s->keys[i], l->what.count, l->values,
                                  l->gradients, err));
        TRMI_TRY(trmi_batch_by_blocks(s->batch, err));
    }
    for (int32_t i = 0; i < r->dense_count; i++) {
        const trmi_remote_dense *d = &r->dense[i];
        TRMI_TRY(d->frozen ? TRM_OK : add_dense(r, d, s->batch, err));
    }
    return TRM_OK;
}

/* Writes the copies of dense variables, trained or frozen ones, whose layout in the program is not
 * plain. */
static void put_dense(trmi_remote *r, bool frozen) {
    for (int32_t i = 0; i < r->dense_count; i++) {
        if (!r->dense[i].direct && r->dense[i].frozen == frozen) {
            trm_exec_write(r->compiled->exec, r->dense[i].variable, r->dense[i].values);
        }
    }
}

/* Reads dense variables from the servers: all, or only the frozen ones. */
static trm_status read_dense(trmi_remote *r, bool all, trm_error *err) {
    int32_t count = 0;
    trm_ps_batch_clear(r->reader);
    for (int32_t i = 0; i < r->dense_count; i++) {
        const trmi_remote_dense *d = &r->dense[i];
        if (all || d->frozen) {
            count++;
            TRMI_TRY(trm_ps_batch_add(r->reader, d->table, d->keys, d->rows, d->values, NULL, err));
        }
    }
    TRMI_TRY(count > 0 ? trm_ps_read(r->reader, err) : TRM_OK);
    put_dense(r, true);
    if (all) {
        put_dense(r, false);
    }
    return TRM_OK;
}

/* Contract in remote.h. Copies, computes keys, sends the pull; the answer is awaited in
 * trmi_remote_begin. */
trm_status trmi_remote_stage(trmi_remote *r, const trm_batch *batch, const trm_ps_lease *lease,
                             trm_error *err) {
    trmi_remote_batch *s = &r->stages[r->next];
    if (!r->read_frozen) { /* they are read once */
        TRMI_TRY(read_dense(r, false, err));
        r->read_frozen = true;
    }
    TRMI_TRY(copy_fields(r, s, batch, err));
    TRMI_TRY(find_keys(r, s, err));
    TRMI_TRY(fill_batch(r, s, err));
    s->place = (trmi_staged_batch){batch->epoch, batch->index, batch->samples,
                                   lease != NULL ? *lease : (trm_ps_lease){0}};
    TRMI_TRY(trm_ps_pull_start(s->batch, err));
    s->filled = true;
    return TRM_OK;
}

bool trmi_remote_is_late(const trmi_remote *r) {
    return trmi_client_mode(r->client) != TRM_PS_SYNC;
}

/* Returns whether staging ahead pays. A row of a table is seldom in two successive batches, so
 * its value is hardly older when pulled ahead. A dense variable is in every batch: without
 * synchronous steps, values pulled ahead lack the update of the batch that is being computed,
 * and twice as many updates of the other workers. */
bool trmi_remote_reads_ahead(const trmi_remote *r) {
    return r->options.prefetch != TRM_OFF && (r->lookups_count > 0 || !trmi_remote_is_late(r));
}

int64_t trmi_remote_staged_epoch(const trmi_remote *r) { return r->stages[r->next].place.epoch; }

bool trmi_remote_is_staged(const trmi_remote *r) { return r->stages[r->next].filled; }

/* ---- a step ---------------------------------------------------------------------------------- */

/* Contract in remote.h. The stage becomes the current one, and the other stage is free for the
 * next batch. */
trm_status trmi_remote_begin(trmi_remote *r, trmi_staged_batch *out, trm_error *err) {
    trmi_remote_batch *s = &r->stages[r->next];
    TRMI_TRY(trm_ps_pull_wait(s->batch, err));
    put_dense(r, false);
    for (int32_t f = 0; f < r->compiled->fields; f++) {
        const trm_tensor *to = &r->compiled->target[f];
        if (s->fields[f] != NULL &&
            !trmi_distribution_feed(r->compiled->exec, r->compiled->inputs[f], to, s->fields[f])) {
            memcpy(to->data, s->fields[f], (size_t)trm_tensor_bytes(to));
        }
    }
    s->filled = false;
    *out = s->place;
    r->current = r->next;
    r->next = (r->next + 1) % TRMI_REMOTE_STAGES;
    return TRM_OK;
}

/* Returns whether no value is NaN or infinite, by its exponent bits: an integer loop that
 * compilers vectorise. */
static bool all_finite(const float *x, int64_t count) {
    uint32_t found = 0; /* 1 if an exponent is all ones */
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return found == 0;
}

/* Fetches the gradients of dense variables that need a copy, and checks that the gradients are
 * finite: a NaN that reaches the servers would spoil the parameters of all workers.
 *   errors  DIVERGED */
static trm_status take_gradients(trmi_remote *r, trm_error *err) {
    for (int32_t i = 0; i < r->dense_count; i++) {
        trmi_remote_dense *d = &r->dense[i];
        if (d->frozen) {
            continue;
        }
        if (!d->direct) {
            TRMI_TRY(trm_exec_gradient(r->compiled->exec, d->variable, d->gradients, err));
        }
        if (!all_finite(d->gradients, d->count)) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "the gradient of %s is NaN or infinite; a lower learning "
                             "rate may help",
                             d->name);
        }
    }
    /* Rows of tables are checked only in a model without dense variables: a NaN reaches a row's
     * gradient through a dense variable's. */
    for (int32_t i = 0; i < r->lookups_count && r->dense_count == 0; i++) {
        const trmi_remote_lookup *l = &r->lookups[i];
        if (!all_finite(l->gradients, l->what.count * l->what.width)) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "a gradient of table %s is NaN or infinite; a lower "
                             "learning rate may help",
                             l->what.table);
        }
    }
    return TRM_OK;
}

/* Contract in remote.h. The servers' rows have the base rate, so the push carries the ratio of
 * the current rate to it. */
trm_status trmi_remote_push(trmi_remote *r, double rate, trm_error *err) {
    TRMI_TRY(take_gradients(r, err));
    trmi_remote_batch *s = &r->stages[r->current];
    const trm_ps_push_options options = {
        .rate_scale = rate == 0 ? TRM_NONE : (float)(rate / trmi_remote_table_rate(r)),
        .lease = s->place.lease,
        .position = (s->place.index + 1) * r->compiled->batch};
    r->current = -1;
    trm_status status = trm_ps_push(s->batch, &options, err);
    /* The servers have leased this batch's samples to other workers. For the caller that is a lost
     * connection; CANCELLED would read as a requested stop. */
    if (status == TRM_CANCELLED) {
        return TRMI_FAIL(err, TRM_PEER, "%s", err != NULL ? err->message : "");
    }
    TRMI_TRY(status);
    r->step++; /* count the own update at once; the servers' answers bring those of other workers */
    r->step = trmi_remote_step(r);
    return TRM_OK;
}

trm_status trmi_remote_flush(trmi_remote *r, trm_error *err) {
    return trm_ps_flush(r->client, err);
}

/* Reads the update counts of about COUNTED rows of each dense variable (contract in remote.h). */
trm_status trmi_remote_counters(trmi_remote *r, int64_t *least, int64_t *most, trm_error *err) {
    *least = *most = 0;
    bool first = true;
    for (int32_t i = 0; i < r->dense_count; i++) {
        const trmi_remote_dense *d = &r->dense[i];
        int64_t step = d->rows / COUNTED + 1;
        for (int64_t k = 0; k < d->rows && !d->frozen; k += step) {
            trm_row_info info = {0};
            trm_status status = trm_ps_row(r->client, d->table, d->keys[k], &info, NULL, NULL, err);
            if (status != TRM_OK && status != TRM_END) {
                return status;
            }
            *least = first || info.count < *least ? info.count : *least;
            *most = first || info.count > *most ? info.count : *most;
            first = false;
        }
    }
    return TRM_OK;
}

trm_status trmi_remote_read_dense(trmi_remote *r, trm_error *err) {
    return read_dense(r, true, err);
}

uint64_t trmi_remote_step(const trmi_remote *r) {
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(r->client, &stats);
    uint64_t counted = (uint64_t)stats.global_step;
    if (trmi_client_mode(r->client) == TRM_PS_SYNC && r->options.lease_batches <= 0) {
        return (uint64_t)trmi_remote_position(r);
    }
    return counted > r->step ? counted : r->step;
}

/* The client counts a batch when it is staged; a staged batch is not finished yet. */
int64_t trmi_remote_position(const trmi_remote *r) {
    return trm_ps_client_next_batch(r->client) - (trmi_remote_is_staged(r) ? 1 : 0);
}

void trmi_remote_begin_at(trmi_remote *r, int64_t batch) { trmi_client_begin_at(r->client, batch); }

/* ---- leases ---------------------------------------------------------------------------------- */

/* Contract in remote.h. Leases are whole batches, so that all workers cut the samples alike. */
void trmi_remote_lend(trmi_remote *r, trm_dataset *data, int64_t epochs, int64_t steps) {
    int64_t batch = r->compiled->batch;
    /* Only asynchronous steps can be limited by samples: a synchronous step takes a batch of
     * every worker that has samples, and that number varies. */
    bool counts = trmi_client_mode(r->client) != TRM_PS_SYNC;
    r->lending = (trm_ps_lease_options){.samples = trm_dataset_epoch_batches(data) * batch,
                                        .lease_samples = r->options.lease_batches * batch,
                                        .epochs = epochs,
                                        .samples_max = counts ? steps * batch : 0,
                                        .batch = batch,
                                        .timeout_seconds = r->options.lease_seconds};
    r->read_epoch = -1;
}

/* Reads the batch of the lease that is due. The dataset seeks only where leases do not follow
 * each other.
 *   errors  INTERNAL: the dataset gave another batch */
static trm_status read_lent(trmi_remote *r, trm_dataset *data, const trm_batch **out,
                            trm_error *err) {
    if (r->read_epoch != r->lease.epoch || r->read_next != r->lent_next) {
        TRMI_TRY(trm_dataset_seek(data, r->lease.epoch, r->lent_next, err));
    }
    TRMI_TRY(trmi_next_batch(data, out, err));
    if ((*out)->epoch != r->lease.epoch || (*out)->index != r->lent_next) {
        return TRMI_FAIL(err, TRM_INTERNAL,
                         "the dataset gave batch %lld of epoch %lld, lent was %lld of %lld",
                         (long long)(*out)->index, (long long)(*out)->epoch,
                         (long long)r->lent_next, (long long)r->lease.epoch);
    }
    r->read_epoch = r->lease.epoch;
    r->read_next = r->lent_next + 1;
    return TRM_OK;
}

/* Contract in remote.h. Takes a new lease when the last one is used up. */
trm_status trmi_remote_stage_lent(trmi_remote *r, trm_dataset *data, trm_error *err) {
    int64_t size = r->compiled->batch;
    bool used = r->lease.id == 0 || r->lent_next * size >= r->lease.end;
    if (used && r->current >= 0 && trmi_client_mode(r->client) != TRM_PS_ASYNC) {
        /* Without a lease this worker would be inactive, and the servers would finish the step
         * without the gradients that it is about to push. So the next lease is taken after the
         * push. */
        return TRM_OK;
    }
    if (used) {
        TRMI_TRY(trm_ps_lease_take(r->client, &r->lending, &r->lease, err));
        r->lent_next = r->lease.begin / size;
    }
    const trm_batch *batch;
    TRMI_TRY(read_lent(r, data, &batch, err));
    TRMI_TRY(trmi_remote_stage(r, batch, &r->lease, err));
    r->lent_next++;
    return TRM_OK;
}
