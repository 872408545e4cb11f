/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/dataset.h: the dataset object, shared by the files that build, run and describe it.
 *
 *   consumer                       worker w (of T), batches w, w+T, w+2T, ... from the start
 *   trm_dataset_next  <--ready[w]--  fill slot  <--idle[w]--+
 *        |                                                  |
 *        +---------- the slot before goes back -------------+
 *
 * Batch numbers are dealt round robin, so the order of delivery needs no sorting, and everything
 * in a batch is a function of its number: threads change nothing but time.
 */
#ifndef TRMI_DATA_DATASET_H
#define TRMI_DATA_DATASET_H

#include "data/pipeline/order.h"
#include "data/pipeline/source.h"
#include "data/image/transform.h"

#include "base/queue.h"
#include "base/trace.h"

#include <pthread.h>
#include <stdatomic.h>

/* One batch and everything to fill it. */
typedef struct trmi_batch_slot {
    trm_batch batch;
    void *memory[TRM_MAX_BATCH_FIELDS];
    int64_t *indices;
    trm_status status;
    trm_error error;
} trmi_batch_slot;

typedef struct trmi_prefetch_worker {
    trm_dataset *dataset;
    pthread_t thread;
    bool running;
    int64_t first, stride; /* batch numbers: first, first + stride, ... */
    trmi_queue *idle, *ready;
    trmi_picture_scratch scratch;
    trmi_cursor cursor;
} trmi_prefetch_worker;

/* A function of the caller's that changes samples in place (own.c). */
enum { TRMI_MAX_OWN_TRANSFORMS = 4 };
typedef struct trmi_own_transform {
    trm_sample_transform transform;
    void *context;
} trmi_own_transform;

struct trm_dataset {
    trmi_source *source;
    trmi_sample_order order;
    trm_transform transforms[TRMI_MAX_TRANSFORMS];
    int32_t transform_count;
    trmi_own_transform own[TRMI_MAX_OWN_TRANSFORMS]; /* after `transforms` */
    int32_t own_count;
    int64_t batch_size, passes;
    bool drop_remainder, sealed;
    bool sharded; /* the program has said which part is read (trm_dataset_shard) */
    int64_t depth, threads;

    /* Once sealed. */
    trmi_chain chain;
    int32_t field_count;
    trmi_field fields[TRM_MAX_BATCH_FIELDS];
    int64_t epoch_batches;

    /* While reading. */
    int64_t epoch, index; /* of the next batch */
    trmi_batch_slot *slots;
    int64_t slot_count;
    trmi_prefetch_worker *workers;
    int64_t worker_count, next_worker;
    trmi_batch_slot *lent; /* to the caller */
    trmi_prefetch_worker *lender;
    _Atomic(trmi_trace *) trace; /* records each batch that is filled; NULL: nothing does */
    bool failed;                 /* the last batch could not be made; the workers have gone */
};

/* All shards together, however many they were, have used the first `used` samples of this epoch's
 * order: the rest is dealt to those
 * that there are now, as the last batches of the epoch; *first is the first of them. Other epochs
 * are as they are. (A window
 * shuffle mixes over the seam.) The position is undefined until the next seek.   errors  INVALID */
trm_status trmi_dataset_deal(trm_dataset *dataset, int64_t epoch, int64_t used, int64_t *first,
                             trm_error *err);
/* Among `count` ranks this one reads part `index`, unless the program has said which part it reads.
 * A position is undefined until the next seek.   errors  those of trm_dataset_check */
trm_status trmi_dataset_share(trm_dataset *dataset, int32_t count, int32_t index,
                              trm_shard_mode mode, trm_error *err);
/* Checks the pipeline and computes chain, fields and epoch_batches. */
trm_status trmi_dataset_seal(trm_dataset *dataset, trm_error *err);
/* Makes batch `number` (epoch * epoch_batches + index) in `slot`; the outcome is in the slot. */
void trmi_slot_fill(trm_dataset *dataset, trmi_prefetch_worker *worker, int64_t number,
                    trmi_batch_slot *slot);
/* The status of a function of the caller's for sample `index`: an error without a sentence gets one
 * that names the function as `what`, and each the sample's number. */
trm_status trmi_name_sample(trm_status status, int64_t index, const char *what, trm_error *err);
/* Own transforms: whether each field has a row a sample, once the fields are known; and what they
 * make of a batch's samples. */
trm_status trmi_check_transforms(const trm_dataset *dataset, trm_error *err);
trm_status trmi_transform_samples(const trm_dataset *dataset, const trmi_batch_work *work,
                                  trm_error *err);
/* Buffers and workers, from the current position on; and their end. */
trm_status trmi_dataset_start(trm_dataset *dataset, trm_error *err);
void trmi_dataset_stop(trm_dataset *dataset);

#endif
