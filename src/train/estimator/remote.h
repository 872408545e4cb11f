/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/remote.h: parameters on servers, seen from a worker's training loop.
 *
 *      batch --> ids program --> keys ---pull--> servers      rows lie in the program's memory, in
 *        |                                 <--- rows, dense   place of what the gathers would make
 *        '----> feed --> forward, backward --> gradients ---push--> servers (they run the
 *        optimiser)
 *
 * The next batch is staged while this one is computed: its keys go out, its rows come back. Not
 * where workers do not wait for each other and there are only dense variables: read a batch ahead
 * they would be twice as old. */
#ifndef TRMI_TRAIN_REMOTE_H
#define TRMI_TRAIN_REMOTE_H

#include "trireme/train.h"

#include "graph/detach.h"

struct trmi_compiled;
typedef struct trmi_remote trmi_remote;

/* Before the graph is compiled: takes its tables out and makes the program of ids. `options` are
 * the
 * model's, with ps.client.   owns  caller, trmi_remote_destroy     error INVALID, NOMEM */
trm_status trmi_remote_create(const trm_model_options *options, trm_graph *graph, trmi_remote **out,
                              trm_error *err);
/* After it: declares tables and dense variables on the servers.   error INVALID, PEER, TIMEOUT */
trm_status trmi_remote_bind(trmi_remote *remote, struct trmi_compiled *compiled, trm_error *err);
void trmi_remote_destroy(trmi_remote *remote);

/* A batch's place in the data, to be held against what the loop expects. */
typedef struct trmi_staged {
    int64_t epoch, index, samples;
    trm_ps_lease lease; /* id 0 = none */
} trmi_staged;

/* remote_leases.c: data lent by the servers. */
bool trmi_remote_leases(const trmi_remote *remote);
/* What there is to lend: whole batches of the dataset, so many epochs, for so many steps (0 = no
 * end). */
void trmi_remote_lend(trmi_remote *remote, trm_dataset *data, int64_t epochs, int64_t steps);
/* Reads the next batch that is this worker's and stages it; where workers wait for each other not
 * before the last
 * batch of a lease has been pushed.
 *   error  TRM_END: all are used; TRM_PENDING: others still work on the last of this epoch, ask again
 */
trm_status trmi_remote_stage_lent(trmi_remote *remote, trm_dataset *data, trm_error *err);
/* The staged batch's epoch. */
int64_t trmi_remote_staged_epoch(const trmi_remote *remote);

/* Copies the batch and asks for its rows. At most one batch is staged and not begun. */
trm_status trmi_remote_stage(trmi_remote *remote, const trm_batch *batch, const trm_ps_lease *lease,
                             trm_error *err);
bool trmi_remote_is_staged(const trmi_remote *remote);
/* Whether the next batch is staged while this one is computed. */
bool trmi_remote_reads_ahead(const trmi_remote *remote);
/* Whether gradients may be of older values than those that they change. */
bool trmi_remote_is_late(const trmi_remote *remote);
/* Waits for the staged batch's rows and feeds the program with them and with the batch. */
trm_status trmi_remote_begin(trmi_remote *remote, trmi_staged *out, trm_error *err);
/* Sends the gradients of the batch that was begun. `rate` is the learning rate of this step.
 *   error  DIVERGED when one of them is not finite */
trm_status trmi_remote_push(trmi_remote *remote, double rate, trm_error *err);
/* Waits until the servers have answered all pushes. */
trm_status trmi_remote_flush(trmi_remote *remote, trm_error *err);
/* Reads all dense variables of the moment into the program. */
trm_status trmi_remote_read_dense(trmi_remote *remote, trm_error *err);
/* The job's step: synchronous, of the last batch pushed; else updates of all workers so far, as of
 * the last answer. */
uint64_t trmi_remote_step(const trmi_remote *remote);
/* Batches that this worker has finished, in its earlier lives too, as far as the servers know. */
int64_t trmi_remote_position(const trmi_remote *remote);

/* Before training: the next batch is this one; of those up to trmi_remote_position the servers know
 * the pushes. */
void trmi_remote_begin_at(trmi_remote *remote, int64_t batch);

/* How often the rows of dense variables have been updated, the least and the most often: equal, and
 * the number of
 * batches, when each push was applied exactly once.   error  those of trm_ps_row */
trm_status trmi_remote_counters(trmi_remote *remote, int64_t *least, int64_t *most, trm_error *err);

/* Tables as described in the graph. */
int32_t trmi_remote_table_count(const trmi_remote *remote);
typedef struct trmi_remote_table {
    const char *name;
    int64_t rows;
    int32_t width, number; /* number: of the client */
} trmi_remote_table;
trmi_remote_table trmi_remote_table_at(const trmi_remote *remote, int32_t index);

/* remote_rules.c: how rows learn, for a dense variable or a table. `decay`: weight decay applies.
 *   error  INVALID: the optimiser has no such rule, with what to do */
trm_status trmi_remote_rule(const trm_optimizer_options *options, double rate, bool decay,
                            bool table, trm_row_optimizer *out, trm_error *err);
trm_row_init trmi_remote_init(trm_init init, const char *name, const trm_shape *shape);

#endif
