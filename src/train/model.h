/* SPDX-License-Identifier: Apache-2.0 */
/* train/model.h: a model's inside.
 *
 *      network, loss ---> graph ---> exec      compiled for training, with the optimiser
 *            \----------> graph ---> exec      compiled for evaluation, shares the parameters
 *      dataset ---> batch fields ---> feeds ---^
 *      position: epoch, steps of it that are done; notes of callbacks; a flag that asks to stop
 */
#ifndef TRMI_TRAIN_MODEL_H
#define TRMI_TRAIN_MODEL_H

#include "trireme/train.h"

#include "base/memory.h"

#include <stdatomic.h>

/* Fields become inputs of the graph when the network first asks for them. */
struct trm_inputs {
    trm_graph *graph;
    int32_t count;
    trm_batch_field fields[TRM_MAX_BATCH_FIELDS];
    trm_node nodes[TRM_MAX_BATCH_FIELDS]; /* id 0: nobody asked yet */
};

/* A graph with its program, and where in its input memory each field of a batch goes. */
typedef struct trmi_compiled {
    trm_graph *graph;
    trm_node logits, loss;
    trm_exec *exec;
    int64_t batch; /* first dimension of the fields */
    int32_t label; /* field "label", -1 if there is none */
    int32_t fields;
    const char *names[TRM_MAX_BATCH_FIELDS]; /* of the fields; in the model's arena */
    int32_t blocks;                          /* of samples: trm_exec_options.blocks */
    trm_tensor target[TRM_MAX_BATCH_FIELDS]; /* data NULL: the network does not use the field */
} trmi_compiled;

enum { TRMI_NOTES_MAX = 32, TRMI_NOTE_NAME_MAX = 48 };
typedef struct trmi_note {
    char name[TRMI_NOTE_NAME_MAX];
    double value;
} trmi_note;

struct trm_model {
    trm_model_options options; /* strings are copies in the arena, `data` is NULL */
    trmi_arena arena;
    trmi_compiled train, evaluate;
    const struct trmi_gradient_sink *sink;
    struct trmi_remote *remote; /* of the sinks on servers; NULL: parameters are here */
    /* borrowed; workers that keep step: where in the data they are. NULL: step by step from 0 */
    struct trmi_dealt *dealt;
    struct trm_auc *auc;                 /* made when first needed */
    int64_t epoch;                       /* epochs done */
    int64_t epoch_step;                  /* steps of the next epoch that are done */
    int64_t data_samples;                /* of the dataset of the latest training call */
    const trm_dataset *data;             /* of the running training; NULL = none runs */
    int64_t wanted_epochs, wanted_steps; /* of it */
    trmi_text job;                       /* its description (job.h), empty until it is asked for */
    trmi_text resumed_job;               /* that of the checkpoint, until training begins */
    int64_t resumed_samples; /* of the resumed run's, until training begins; 0 = not resumed */
    float loss;              /* of the last step */
    int32_t notes_count;
    trmi_note notes[TRMI_NOTES_MAX];
    atomic_int stop;
};

/* Graph, program and feeds for batches of `data`; for evaluation over the weights of training where
 * they can be shared.
 *   owns  the caller, trmi_compiled_free; zeroes `out` on failure */
trm_status trmi_compile(trm_model *model, trm_dataset *data, bool training, trmi_compiled *out,
                        trm_error *err);
void trmi_compiled_free(trmi_compiled *compiled);
/* Bytes of parameters and of gathered rows that a batch of such a model exchanges with servers; its
 * graph is
 * built for that, nothing is compiled.   error  INVALID (options, graph), NOMEM */
trm_status trmi_model_traffic(const trm_model_options *options, int64_t *bytes, trm_error *err);
/* The program that owns the parameters. */
trmi_compiled *trmi_model_owner(trm_model *model);

/* Copies the batch's fields into the program's inputs. INVALID when a shape is not the compiled
 * one. */
trm_status trmi_feed(const trmi_compiled *compiled, const trm_batch *batch, trm_error *err);
/* The next batch; passes over one TRM_END. */
trm_status trmi_next_batch(trm_dataset *data, const trm_batch **out, trm_error *err);

int32_t trmi_accumulate(const trm_model *model);

/* ranks.c: the communicator, NULL with one rank; rank and size of it. */
trm_comm *trmi_model_comm(const trm_model *model);
/* The ranks that this process has joined, where the options name no communicator and do not say
 * stand_alone. Collective where they are found.   error  those of trm_comm_create */
trm_status trmi_model_find_ranks(trm_model_options *options, trm_error *err);
/* Shares `data` out among the ranks, unless the program has said which part each reads
 * (trm_dataset_shard), or every rank reads whole batches.   error  those of trm_dataset_check */
trm_status trmi_model_share_data(const trm_model *model, trm_dataset *data, bool training,
                                 trm_error *err);
int32_t trmi_model_rank(const trm_model *model);
int32_t trmi_model_size(const trm_model *model);
/* Parts that a global batch is read in: one a rank, or, where the graph is split, the whole by
 * every rank. */
int32_t trmi_model_shares(const trm_model *model);
/* Does the evaluation program lie over the training program's weights? Else they are copied. */
bool trmi_model_shares_weights(const trm_model *model);
/* What every rank has returned: own failures stay, a rank that succeeded learns of another's.
 * Statuses
 * and `number` (the global step, say) must agree.   error  that of the rank itself, or INVALID */
trm_status trmi_model_agree(const trm_model *model, trm_status status, int64_t number,
                            const char *what, trm_error *err);
/* Rank 0's answer, on every rank. */
trm_status trmi_model_ask_first(const trm_model *model, bool *answer, trm_error *err);
/* Sums over the ranks. */
trm_status trmi_model_add(const trm_model *model, double *values, int64_t count, trm_error *err);
trm_status trmi_model_add_counts(const trm_model *model, int64_t *values, int64_t count,
                                 trm_error *err);
/* auc.c: what all ranks have added. */
struct trm_auc;
trm_status trmi_auc_add_ranks(struct trm_auc *auc, const trm_model *model, trm_error *err);

/* From a callback of the running training: hands the news to all callbacks. */
trm_status trmi_tell_evaluated(const trm_progress *progress, const trm_evaluation *evaluation,
                               trm_error *err);
trm_status trmi_tell_checkpoint(const trm_progress *progress, const char *path, trm_error *err);

#endif
