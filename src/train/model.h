/* SPDX-License-Identifier: Apache-2.0 */
/* train/model.h: the inside of trm_model, shared by the files of src/train.
 *
 *        network, loss ---> graph ---> exec      compiled for training, with the optimiser
 *              \----------> graph ---> exec      compiled for evaluation, shares the parameters
 *        dataset ---> batch fields ---> feeds ---^
 *        position: epoch, steps of it that are done; notes of callbacks; a flag that requests a
 *        stop
 *
 * A model is used by one thread at a time; only trm_model_request_stop may come from any thread
 * or a signal handler. */
#ifndef TRMI_TRAIN_MODEL_H
#define TRMI_TRAIN_MODEL_H

#include "trireme/train.h"

#include "base/memory.h"

#include <stdatomic.h>

/* The fields of a dataset, as the network and the loss see them. A field becomes an input of the
 * graph at the first trm_inputs_get of its name; a field that the network does not use costs
 * nothing. */
struct trm_inputs {
    trm_graph *graph;
    int32_t count;
    trm_batch_field fields[TRM_MAX_BATCH_FIELDS];
    trm_node nodes[TRM_MAX_BATCH_FIELDS]; /* id 0: not an input yet */
};

/* A graph with its program, and where in its input memory each field of a batch goes. */
typedef struct trmi_compiled {
    trm_graph *graph;
    trm_node logits, loss;
    trm_node predicted; /* evaluation: ids that the loss's operator predicts; TRM_NO_NODE: none */
    trm_exec *exec;
    int64_t batch; /* samples of a batch that this rank feeds */
    int32_t label; /* index of the field "label", -1 if there is none */
    int32_t fields;
    const char *names[TRM_MAX_BATCH_FIELDS]; /* names of the fields; in the model's arena */
    int32_t inputs[TRM_MAX_BATCH_FIELDS];    /* index of the program's input that takes the field */
    int32_t places[TRM_MAX_BATCH_FIELDS];    /* place of the field in batches; -1: they lack it */
    bool ragged[TRM_MAX_BATCH_FIELDS];       /* batches have the field with fewer rows, too */
    bool only_loss[TRM_MAX_BATCH_FIELDS];    /* the loss reads the field, the network does not */
    int32_t blocks; /* of samples in a batch (strict determinism); 0: none */
    trm_tensor target[TRM_MAX_BATCH_FIELDS]; /* data NULL: the network does not use the field */
    /* training on several ranks: whose steps take long; made with the first step */
    struct trmi_stragglers *stragglers;
} trmi_compiled;

/* Notes of a model, and characters of a note's name with the '\0', at most. */
enum { TRMI_NOTES_MAX = 32, TRMI_NOTE_NAME_MAX = 48 };
/* A named number that callbacks keep in the model and its checkpoints (trm_model_set_note). */
typedef struct trmi_note {
    char name[TRMI_NOTE_NAME_MAX];
    double value;
} trmi_note;

/* The model. Options are settled once at creation; position and notes change with each step. */
struct trm_model {
    trm_model_options options; /* strings are copies in the arena, `data` is NULL */
    trmi_arena arena;
    trmi_compiled train, evaluate;
    const struct trmi_gradient_sink *sink;
    const struct trmi_rank_changes *changes;
    struct trmi_remote *remote; /* state of the sinks on servers; NULL: local parameters */
    /* Borrowed: position in the data of synchronous workers (estimator/dealt.h). NULL: one batch
     * a step, from 0. */
    struct trmi_dealt *dealt;
    struct trm_auc *auc;                 /* of evaluations; created when first needed */
    int64_t epoch;                       /* epochs done */
    int64_t epoch_step;                  /* steps done of the epoch after those */
    int64_t epoch_samples;               /* samples of it that the steps of all ranks have used */
    int64_t data_samples;                /* samples in the dataset of the latest training call */
    const trm_dataset *data;             /* dataset of the running training; NULL: none runs */
    int64_t wanted_epochs, wanted_steps; /* length of the running training */
    trmi_text job;                      /* description of the job (job.h); made at the first save */
    trmi_text resumed_job;              /* the checkpoint's description, until training begins */
    int64_t resumed_samples;            /* samples in the resumed run's dataset; 0: not resumed */
    float loss;                         /* of the last step */
    struct trmi_elastic_model *elastic; /* of an elastic job; NULL: its ranks do not change */
    /* ranks when the training began, where each rank keeps its batch (TRM_ELASTIC_BATCH_RANK); 0:
     * the batch of all ranks is always the same */
    int32_t first_ranks;
    /* ranks of a group of batch norm when the training began, in an elastic job; 0: as in the
     * options */
    int32_t norm_ranks;
    double owed_rate; /* strict hybrid: rate of an update that a push has interrupted; 0: none */
    int32_t notes_count;
    trmi_note notes[TRMI_NOTES_MAX];
    char servers[128]; /* how an estimator's servers apply gradients (job.h); empty: none */
    atomic_int stop;
};

/* Builds the graph for batches of `data`, compiles it into a program and looks up where each
 * field is fed. The evaluation program uses the weights of the training program where
 * trmi_model_shares_weights.
 *   owns   the caller, trmi_compiled_free; `out` is zeroed on failure
 *   errors  INVALID: dataset, network or options; those of trm_exec_create */
trm_status trmi_compile(trm_model *model, trm_dataset *data, bool training, trmi_compiled *out,
                        trm_error *err);
/* Destroys program and graph and zeroes the struct. The evaluation program must go before the
 * training program that it shares weights with. */
void trmi_compiled_free(trmi_compiled *compiled);
/* Sets *bytes to what one batch of a model with these options exchanges with servers: dense
 * parameters and gathered rows. Builds the graph, compiles nothing.   errors  INVALID (options,
 * graph), NOMEM */
trm_status trmi_model_traffic(const trm_model_options *options, int64_t *bytes, trm_error *err);
/* Returns the program that owns the parameters: the training program, or in a model made with
 * evaluation_only the evaluation program. */
trmi_compiled *trmi_model_owner(trm_model *model);

/* Looks up where the batches of `data` have the fields of the compiled network: it may be another
 * dataset than that of which the network was made, with its fields in another order. Before a run
 * reads batches. */
void trmi_match_fields(trmi_compiled *compiled, trm_dataset *data);
/* Gives the tensor of field `field` of the compiled network in a batch of the matched dataset.
 *   errors  INVALID: the batch has no field of this name */
trm_status trmi_find_field(const trmi_compiled *compiled, const trm_batch *batch, int32_t field,
                           const trm_tensor **out, trm_error *err);
/* Gives a field (trmi_find_field) that goes into the program's input. A ragged field may have fewer
 * rows than the input, except in blocks of samples.
 *   errors  INVALID: no such field, or one of another dtype or shape */
trm_status trmi_fit_field(const trmi_compiled *compiled, const trm_batch *batch, int32_t field,
                          const trm_tensor **out, trm_error *err);
/* Copies a field to memory that has room for the input `room`, and zeroes what a shorter field
 * leaves: these bytes must not depend on earlier batches, or a resumed run would compute other
 * bits. */
void trmi_copy_field(const trm_tensor *from, void *to, const trm_tensor *room);
/* Copies the batch's fields into the inputs of the program; fields that the network does not use
 * are skipped. Without `loss` the value of the loss has no meaning, and the batch need not have the
 * fields that the loss alone reads.
 *   errors  INVALID: a field has another dtype or shape than the compiled one */
trm_status trmi_feed(const trmi_compiled *compiled, const trm_batch *batch, bool loss,
                     trm_error *err);
/* Returns the next batch of `data` in *out (borrowed until the next call), and begins the next
 * epoch at the end of one.
 *   errors  INVALID: the dataset has no batches; those of trm_dataset_next */
trm_status trmi_next_batch(trm_dataset *data, const trm_batch **out, trm_error *err);

/* Returns the number of batches a step, at least 1. */
static inline int32_t trmi_accumulate(const trm_model *model) {
    return model->options.exec.accumulate > 1 ? model->options.exec.accumulate : 1;
}

/* model_ranks.c: returns the communicator of the model's ranks; NULL with one rank. */
trm_comm *trmi_model_comm(const trm_model *model);
/* Counts a step: its seconds, and those of them in which this rank waited for data. Every rank
 * calls it after each step; every 50th call is a collective, after which rank 0 names the ranks
 * that delay the others.
 *   errors  NOMEM, those of trm_comm_run */
trm_status trmi_model_compare_ranks(trm_model *model, double step_seconds, double data_seconds,
                                    trm_error *err);
/* Sets the options' parallel.comm to the ranks of the elastic job, else to those that this process
 * has joined, unless the options name a communicator or say stand_alone, or the workers of the
 * model's sink have their own samples. Collective if a communicator is created.
 *   errors  those of trm_comm_create */
trm_status trmi_model_find_ranks(trm_model *model, trm_error *err);
/* Gives each rank its part of `data`, unless the user has already sharded it (trm_dataset_shard)
 * or every rank reads whole batches. Training wraps around to equal parts, evaluation pads.
 *   errors  those of trm_dataset_check */
trm_status trmi_model_share_data(const trm_model *model, trm_dataset *data, bool training,
                                 trm_error *err);
/* Returns this process's rank among the model's ranks, 0 without a communicator. */
int32_t trmi_model_rank(const trm_model *model);
/* Returns the number of the model's ranks, 1 without a communicator. */
int32_t trmi_model_size(const trm_model *model);
/* Writes whose samples batch norm takes its statistics from ("all ranks'"). Returns whether it
 * matters: false for one rank, or without batch norm. */
bool trmi_model_norm_samples(const trm_model *model, char *text, size_t size);
/* Returns how many parts a global batch is read in: one for each rank, or 1 where every rank reads
 * the whole batch. */
int32_t trmi_model_shares(const trm_model *model);
/* Returns whether the evaluation program uses the training program's weights in place. Otherwise
 * they are copied before each evaluation. */
bool trmi_model_shares_weights(const trm_model *model);
/* Logs one line for a job of several ranks: samples of a step, and which samples batch norm takes
 * its statistics from. */
void trmi_model_log_ranks(const trm_model *model);
/* The numbers that ranks have in one place; equal: all have the same. */
typedef struct trmi_rank_range {
    int64_t least, most;
} trmi_rank_range;
enum { TRMI_NUMBERS_MOST = 8 }; /* numbers that are compared at once, at most */
/* Compares `count` numbers of all ranks: `out` gets the range of each. `what` names the collective
 * for messages. Collective.
 *   errors  those of trm_comm_run */
trm_status trmi_model_compare_numbers(const trm_model *model, const int64_t *numbers, int32_t count,
                                      const char *what, trmi_rank_range *out, trm_error *err);
/* Meets the other ranks after the last step of a training. Collective; a no-op with one rank.
 *   errors  INVALID: a rank that goes on, or has stopped after another step; those of trm_comm_run */
trm_status trmi_model_meet_at_end(const trm_model *model, trm_error *err);
/* Combines a status over the ranks. A rank that failed keeps its own error; a rank that
 * succeeded gets INVALID if another rank failed, or if `number` (for instance the global step)
 * differs. `what` is the subject of the message. Collective; a no-op with one rank.
 *   errors  `status`, INVALID, those of trm_comm_run */
trm_status trmi_model_agree(const trm_model *model, trm_status status, int64_t number,
                            const char *what, trm_error *err);
/* Sets *answer on every rank to rank 0's. Collective.   errors  those of trm_comm_run */
trm_status trmi_model_broadcast_answer(const trm_model *model, bool *answer, trm_error *err);
/* Replace values[0 .. count) by their sums over the ranks. Collective.   errors  those of
 * trm_comm_run */
trm_status trmi_model_add(const trm_model *model, double *values, int64_t count, trm_error *err);
trm_status trmi_model_add_counts(const trm_model *model, int64_t *values, int64_t count,
                                 trm_error *err);
/* auc.c: adds the counts of all ranks to `auc`, on every rank. Collective. */
struct trm_auc;
trm_status trmi_auc_add_ranks(struct trm_auc *auc, const trm_model *model, trm_error *err);

/* Call the hooks on_evaluated and on_checkpoint of all callbacks of the run that `progress`
 * belongs to. Called by the callback that has evaluated or saved, from inside its own hook.
 *   errors  that of the first hook that fails */
trm_status trmi_call_evaluated(const trm_progress *progress, const trm_evaluation *evaluation,
                               trm_error *err);
trm_status trmi_call_checkpoint(const trm_progress *progress, const char *path, trm_error *err);
/* Returns whether the run of `progress` begins again because the ranks of an elastic job have
 * changed: what on_begin opened before is still open. */
bool trmi_run_is_again(const trm_progress *progress);
/* Returns whether a callback of the run of `progress` has this hook as its on_epoch_end. */
bool trmi_run_has_epoch_end(const trm_progress *progress, trm_hook hook);
/* Notes that the run of `progress` is saved in a directory, from which it can be resumed. Borrowed
 * until the run ends. */
void trmi_run_set_checkpoints(const trm_progress *progress, const char *directory);

#endif
