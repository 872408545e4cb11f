/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/remote.h: parameters on servers, as a worker's training loop uses them.
 *
 *        batch --> ids program --> keys ---pull--> servers      rows go into the program's memory, in
 *          |                                 <--- rows, dense   place of what the gathers would compute
 *          '----> feed --> forward, backward --> gradients ---push--> servers (they run the optimiser)
 *
 * A batch passes three states: staged (fields copied, keys sent), begun (rows arrived, program
 * fed), pushed. The next batch is staged while the current one is computed. An exception are
 * models without tables on asynchronous servers: dense variables that are pulled a batch ahead
 * would be twice as old.
 *
 * Thread rule: all functions on the thread of the training loop. */
#ifndef TRMI_TRAIN_REMOTE_H
#define TRMI_TRAIN_REMOTE_H

#include "trireme/train.h"

#include "graph/detach.h"

struct trmi_compiled;
typedef struct trmi_remote trmi_remote;

/* Takes, before the graph is compiled, the embedding tables out of `graph` and compiles the program
 * that computes the ids. `options` are the model's, with ps.client.
 *   owns  the caller, trmi_remote_destroy
 *   errors  INVALID, NOMEM */
trm_status trmi_remote_create(const trm_model_options *options, trm_graph *graph, trmi_remote **out,
                              trm_error *err);
/* Declares tables and dense variables on the servers, after the graph is compiled.
 *   errors  INVALID, PEER, TIMEOUT */
trm_status trmi_remote_bind(trmi_remote *remote, struct trmi_compiled *compiled, trm_error *err);
/* Destroys the remote; the client stays. NULL is accepted. */
void trmi_remote_destroy(trmi_remote *remote);

/* Position in the data of a staged batch; the loop checks it against the batch that is due. */
typedef struct trmi_staged_batch {
    int64_t epoch, index, samples;
    trm_ps_lease lease; /* lease of the samples; id 0: none */
} trmi_staged_batch;

/* Sets what the servers lend: whole batches of `data`, for `epochs` epochs and `steps` steps (0:
 * no limit). */
void trmi_remote_lend(trmi_remote *remote, trm_dataset *data, int64_t epochs, int64_t steps);
/* Reads the next batch of this worker's lease and stages it; takes a new lease if the current
 * one is used up. Where workers wait for each other, a new lease is not taken before the last
 * batch of the old one has been pushed.
 *   errors  TRM_END: all samples are used; TRM_PENDING: other workers still hold the last leases of
 *          this epoch, call again */
trm_status trmi_remote_stage_lent(trmi_remote *remote, trm_dataset *data, trm_error *err);
/* Returns the epoch of the staged batch. */
int64_t trmi_remote_staged_epoch(const trmi_remote *remote);

/* Copies the batch's fields and sends the pull for its rows and for the dense variables. At most
 * one batch is staged and not begun. `lease`: of its samples, or NULL.
 *   errors  INVALID: an id outside its table; those of trm_ps_pull_start */
trm_status trmi_remote_stage(trmi_remote *remote, const trm_batch *batch, const trm_ps_lease *lease,
                             trm_error *err);
/* Returns whether a batch is staged and not begun. */
bool trmi_remote_is_staged(const trmi_remote *remote);
/* Returns whether the next batch is to be staged while the current one is computed. */
bool trmi_remote_reads_ahead(const trmi_remote *remote);
/* Returns whether gradients may be computed from older values than those they are applied to. */
bool trmi_remote_is_late(const trmi_remote *remote);
/* Waits for the rows of the staged batch and feeds the program with rows, variables and fields.
 * *out: its position.
 *   errors  those of trm_ps_pull_wait */
trm_status trmi_remote_begin(trmi_remote *remote, trmi_staged_batch *out, trm_error *err);
/* Pushes the gradients of the batch that was begun. `rate`: learning rate of this step.
 *   errors  DIVERGED: a gradient is not finite; PEER: the servers have given this batch's samples
 *           to other workers */
trm_status trmi_remote_push(trmi_remote *remote, double rate, trm_error *err);
/* Waits until the servers have answered all pushes.
 *   errors  those of trm_ps_flush */
trm_status trmi_remote_flush(trmi_remote *remote, trm_error *err);
/* Reads the current values of all dense variables into the program, for a checkpoint. */
trm_status trmi_remote_read_dense(trmi_remote *remote, trm_error *err);
/* Returns the job's step. Synchronous: the batches that this worker has pushed. Otherwise the
 * updates of all workers, as of the servers' latest answer. */
uint64_t trmi_remote_step(const trmi_remote *remote);
/* Returns the number of batches that this worker has finished, earlier runs included, as the
 * servers counted them. */
int64_t trmi_remote_position(const trmi_remote *remote);

/* Sets the number of the next batch, before training. Servers drop a push of a batch that they
 * already have. */
void trmi_remote_begin_at(trmi_remote *remote, int64_t batch);

/* Sets *least and *most to the smallest and largest number of updates of the dense rows (a
 * sample of them). Both equal the number of batches if each push was applied exactly once.
 *   errors  those of trm_ps_row */
trm_status trmi_remote_counters(trmi_remote *remote, int64_t *least, int64_t *most, trm_error *err);

/* Returns the number of embedding tables. */
int32_t trmi_remote_table_count(const trmi_remote *remote);
/* An embedding table as the graph describes it. */
typedef struct trmi_remote_table {
    const char *name;
    int64_t rows;
    int32_t width, number; /* number: table number of the client */
} trmi_remote_table;
/* Returns table `index`; the name lives as long as the graph. */
trmi_remote_table trmi_remote_table_at(const trmi_remote *remote, int32_t index);

/* remote_rules.c: sets learning rate and rule of a dense variable's or embedding table's rows to
 * those of the model's optimiser. The servers check them (trmi_optimizer_check). */
void trmi_remote_rule(const trm_optimizer_options *options, double rate, bool decay, bool table,
                      trm_table_options *out);
/* Returns the initial values of the rows of parameter `name`: those that a single device would
 * compute. */
trm_row_init trmi_remote_init(trm_init init, const char *name, const trm_shape *shape);

#endif
